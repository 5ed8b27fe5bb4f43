/* terms/registry.c -- the position terms: each scheme's definition, and the registry made from terms.def.
 * SPDX-License-Identifier: Apache-2.0 */
#include "scheme.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A scheme fills the entry of its kind; name, syntax and source come from terms.def. */
#define RPI_SCHEME(ENUM, ...) static const rpi_scheme scheme_##ENUM = {__VA_ARGS__};

#include "common.h" /* the first four are shared by those below */
#include "clip.h"
#include "grid.h"
#include "rope_scaling.h"

#include "alibi.h"
#include "axial.h"
#include "band.h"
#include "bucket.h"
#include "deberta.h"
#include "decay.h"
#include "dense.h"
#include "fire.h"
#include "forget.h"
#include "kerple.h"
#include "real.h"
#include "rope.h"
#include "shaw.h"
#include "sink.h"
#include "swin.h"
#include "table.h"
#include "xl.h"

static const struct {
    const char *name, *syntax, *source;
    const rpi_scheme *scheme;
} registry[] = {
#define RP_X(ENUM, name, syntax, source) [RP_TERM_##ENUM] = {#name, syntax, source, &scheme_##ENUM},
#include <relpos/terms.def>
#undef RP_X
};

static bool is_kind(rp_term_kind kind)
{
    return kind > RP_TERM_NONE && kind < RP_TERM_COUNT;
}

const rpi_scheme *rpi_scheme_of(rp_term_kind kind)
{
    return is_kind(kind) ? registry[kind].scheme : NULL;
}

const char *rp_term_name(rp_term_kind kind)
{
    return is_kind(kind) ? registry[kind].name : NULL;
}

const char *rp_term_syntax(rp_term_kind kind)
{
    return is_kind(kind) ? registry[kind].syntax : NULL;
}

const char *rp_term_source(rp_term_kind kind)
{
    return is_kind(kind) ? registry[kind].source : NULL;
}

int rp_term_is_bias(rp_term_kind kind)
{
    const rpi_scheme *s = rpi_scheme_of(kind);
    return s &&
           (s->form == RPI_OFFSET || s->form == RPI_INDEX || s->form == RPI_TILE || (s->form == RPI_VEC && s->bias));
}

static const rpi_array *array_of(rp_term_kind kind, int index)
{
    const rpi_scheme *s = rpi_scheme_of(kind);
    return s && index >= 0 && index < rpi_count_arrays(s) ? &s->array[index] : NULL;
}

const char *rp_term_array(rp_term_kind kind, int index)
{
    const rpi_array *a = array_of(kind, index);
    return a ? a->name : NULL;
}

int rp_term_array_optional(rp_term_kind kind, int index)
{
    const rpi_array *a = array_of(kind, index);
    return a && a->optional;
}

int rp_term_array_learned(rp_term_kind kind, int index)
{
    const rpi_array *a = array_of(kind, index);
    return a && a->role == RPI_LEARNED;
}

rp_status rpi_check_struct_size(const char *name, size_t size, size_t own)
{
    if (size < sizeof(int64_t) || size > own || size % sizeof(int64_t) != 0)
        return rpi_fail(RP_E_ARG,
                        "the size of %s is %zu: this library, %s, knows %zu bytes; pass sizeof(%s), or start from "
                        "rp_desc_init, and link a library that is not older than the header",
                        name, size, RP_VERSION_STRING, own, name);
    return RP_OK;
}

rp_status rpi_term_take(rp_term *to, const void *from, size_t size)
{
    rp_term_kind kind;
    const rp_status status = rpi_check_struct_size("rp_term", size, sizeof *to);
    if (status != RP_OK)
        return status;
    memcpy(&kind, from, sizeof kind);
    *to = rp_term_init(kind);
    memcpy(to, from, size);
    return RP_OK;
}

rp_status rpi_term_give(void *to, size_t size, const rp_term *from)
{
    const rp_term plain = rp_term_init(from->kind);
    const rp_status status = rpi_check_struct_size("rp_term", size, sizeof *from);
    if (status != RP_OK)
        return status;
    if (memcmp((const char *)from + size, (const char *)&plain + size, sizeof plain - size) != 0)
        return rpi_fail(
            RP_E_UNSUPPORTED,
            "%s has a parameter that the rp_term of this program, of %zu bytes, has no field for: build the "
            "program with the header of this library",
            rp_term_name(from->kind), size);
    memcpy(to, from, size);
    return RP_OK;
}

rp_status rp_term_sizes_sized(rp_term *term, size_t term_size, const rp_array *arrays)
{
    rp_term own;
    if (!term || !arrays)
        return rpi_fail(RP_E_ARG, "%s is NULL", !term ? "term" : "arrays");
    const rp_status status = rpi_term_take(&own, term, term_size);
    if (status != RP_OK)
        return status;
    const rpi_scheme *s = rpi_scheme_of(own.kind);
    if (!s)
        return rpi_fail(RP_E_ARG, "term.kind is %d: no such term in terms.def", (int)own.kind);
    const int tells = s->sizes ? s->sizes(&own, arrays) : -1;
    if (tells >= 0)
        return rpi_fail(RP_E_SHAPE, "%s: the shape of its array %s does not tell its sizes", rp_term_name(own.kind),
                        s->array[tells].name);
    return rpi_term_give(term, term_size, &own);
}

int32_t rpi_count_arrays(const rpi_scheme *s)
{
    int32_t n = 0;
    while (n < RP_MAX_ARRAYS && s->array[n].name)
        n++;
    return n;
}

void rpi_term_shape(const rp_desc *desc, const rp_term *term, int32_t x, rpi_shape *shape)
{
    const rpi_scheme *s = rpi_scheme_of(term->kind);
    *shape = (rpi_shape){.ndim = 0};
    if (x < 0 || x >= rpi_count_arrays(s))
        return;
    if (rpi_takes_positions(s) && (x == s->positions || x == s->positions + 1))
        *shape = (rpi_shape){.ndim = 2,
                             .min_ndim = 1,
                             .ones = 1u << 0,
                             .n = {desc->batch, x == s->positions ? desc->len_q : desc->len_k}};
    else
        s->shape(desc, term, x, shape);
}

rp_status rpi_check_positions(const rpi_view *v, const rpi_shape *shape, const char *what)
{
    const bool batched = v->stride[0] != 0; /* else one row serves every batch entry */
    for (int64_t b = 0; b < (batched ? shape->n[0] : rpi_min(shape->n[0], 1)); b++)
        for (int64_t n = 0; n < shape->n[1]; n++) {
            const double x = rpi_at(v, b, n, 0, 0);
            if (fabs(x) <= 0x1p53)
                continue;
            char batch[40] = "";
            if (batched)
                snprintf(batch, sizeof batch, " of batch entry %lld", (long long)b);
            return rpi_fail(RP_E_RANGE,
                            "%s: element %lld%s is %g: positions are finite numbers of at most 2^53 in size", what,
                            (long long)n, batch, x);
        }
    return RP_OK;
}

double rpi_vec_factor(const rp_desc *d, const rp_term *t)
{
    const rpi_scheme *s = rpi_scheme_of(t->kind);
    return s->bias || s->unscaled ? 1.0 : d->scale;
}

int64_t rpi_part_index(const rpi_part *part, const rpi_pair *p)
{
    const int64_t count = part->count(p->desc, p->term);
    if (part->present && !part->present(p->array))
        return -1;
    if (part->index)
        return part->index(p);
    const double delta = trunc(part->by_index ? (double)(p->j - p->i) : p->delta),
                 e = delta - (double)part->first(p->desc, p->term);
    if (part->zero_outside && !(e >= 0 && e < (double)count))
        return -1;
    return e <= 0 ? 0 : e >= (double)(count - 1) ? count - 1 : (int64_t)e;
}

int64_t rpi_part_width(const rpi_part *part, const rpi_pair *p)
{
    return part->width ? part->width(p->desc, p->term) : p->desc->dim_k;
}
