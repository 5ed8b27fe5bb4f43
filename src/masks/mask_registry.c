/* masks/mask_registry.c -- compile the masks, and build their registry from masks.def. Independent of terms and
 * kernels.
 * SPDX-License-Identifier: Apache-2.0 */
#include "mask.h"
#include <stddef.h>
#include <string.h>

#define RP_X(ENUM, name, meaning) static const char name_##ENUM[] = #name, meaning_##ENUM[] = meaning;
#include <relpos/masks.def>
#undef RP_X
#define RPI_MASK(ENUM, ...)                                                                                            \
    static const rpi_mask_entry mask_RP_MASK_##ENUM = {                                                                \
        .info.name = name_RP_MASK_##ENUM, .info.meaning = meaning_RP_MASK_##ENUM, __VA_ARGS__};

#include "pairs.h"
#include "intervals.h"

static const rpi_mask_entry *const registry[] = {
#define RP_X(ENUM, name, meaning) [ENUM] = &mask_##ENUM,
#include <relpos/masks.def>
#undef RP_X
};

const rpi_mask_entry *rpi_mask_entry_of(rp_mask_kind kind)
{
    return kind > RP_MASK_NONE && kind < RP_MASK_COUNT ? registry[kind] : NULL;
}

const rp_mask_info *rp_mask_info_of(rp_mask_kind kind)
{
    const rpi_mask_entry *m = rpi_mask_entry_of(kind);
    return m ? &m->info : NULL;
}

const rp_mask_param *rp_mask_param_of(rp_mask_kind kind, int index)
{
    const rpi_mask_entry *m = rpi_mask_entry_of(kind);
    for (const rp_mask_param *p = m && index >= 0 ? m->params : NULL; p && p->key; p++)
        if (index-- == 0)
            return p;
    return NULL;
}

const char *rp_mask_name(rp_mask_kind kind)
{
    const rpi_mask_entry *m = rpi_mask_entry_of(kind);
    return m ? m->info.name : NULL;
}

/* The given array may omit leading axes, and any axis may have length 1. */
bool rpi_mask_array(const rpi_mask_entry *mask_entry, const rp_desc *desc, rpi_shape *shape)
{
    const struct {
        const char *name;
        int64_t n;
    } axes[] = {{"B", desc->batch}, {"H", desc->heads}, {"Lq", desc->len_q}, {"Lk", desc->len_k}};
    *shape = (rpi_shape){0};
    for (const char *at = mask_entry->info.axes; at && *at; at += strspn(at, ", ")) {
        const size_t length = strcspn(at, ",");
        for (size_t x = 0; x < sizeof axes / sizeof *axes; x++)
            if (strlen(axes[x].name) == length && strncmp(axes[x].name, at, length) == 0)
                shape->n[shape->ndim++] = axes[x].n;
        at += length;
    }
    shape->ones = (1u << shape->ndim) - 1;
    return shape->ndim > 0;
}

rp_status rpi_mask_check(const rp_desc *desc, const rp_mask *mask, int32_t n)
{
    const rpi_mask_entry *m = rpi_mask_entry_of(mask->kind);
    if (!m)
        return rpi_fail(RP_E_ARG, "masks[%d].kind is %d; it must be a value of rp_mask_kind", (int)n, (int)mask->kind);
    for (const rp_mask_param *p = m->params; p && p->key; p++) {
        int64_t value;
        memcpy(&value, (const char *)mask + p->offset, sizeof value);
        if (value < p->min || value > p->max)
            return p->max == INT64_MAX ? rpi_fail(RP_E_RANGE, "masks[%d].%s is %lld; it must be %lld or more", (int)n,
                                                  p->key, (long long)value, (long long)p->min)
                                       : rpi_fail(RP_E_RANGE, "masks[%d].%s is %lld; it must be %lld to %lld", (int)n,
                                                  p->key, (long long)value, (long long)p->min, (long long)p->max);
    }
    if (m->info.same_lengths && desc->len_q != desc->len_k)
        return rpi_fail(RP_E_SHAPE, "masks[%d]: there are %lld queries and %lld keys; their numbers must be equal",
                        (int)n, (long long)desc->len_q, (long long)desc->len_k);
    return RP_OK;
}
