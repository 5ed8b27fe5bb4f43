/* terms/registry.c -- the position terms: each scheme's definition, and the registry made from terms.def.
 * It may not know calls or kernels.
 * SPDX-License-Identifier: Apache-2.0 */
#include "registry.h"
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A scheme fills the entry of its kind; name, syntax and source come from terms.def. */
#define RPI_SCHEME(ENUM, ...) static const rpi_scheme scheme_##ENUM = {__VA_ARGS__};

/* Several schemes share these four: bounds and sizes, clipped tables, grids of tokens, stretched frequencies. */
#include "common.h"
#include "clip.h"
#include "grid.h"
#include "rope_scaling.h"

#include "terms/schemes.inc" /* every file of src/terms with a scheme: CMake and tools/terms.py make this list */

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

const rp_term_facts *rp_term_about(rp_term_kind kind)
{
    const rpi_scheme *s = rpi_scheme_of(kind);
    return s ? &s->facts : NULL;
}

const rp_param *rp_term_param(rp_term_kind kind, int index)
{
    const rpi_scheme *s = rpi_scheme_of(kind);
    if (!s || !s->params || index < 0)
        return NULL;
    for (const rp_param *p = s->params; p->key; p++)
        if (index-- == 0)
            return p;
    return NULL;
}

const rp_array_facts *rp_term_array_about(rp_term_kind kind, int index)
{
    const rpi_scheme *s = rpi_scheme_of(kind);
    return s && index >= 0 && index < rpi_count_arrays(s) ? &s->array[index] : NULL;
}

rp_role rp_term_role(rp_term_kind kind)
{
    const rpi_scheme *s = rpi_scheme_of(kind);
    if (!s)
        return RP_ROLE_BIAS;
    switch (s->form) {
    case RPI_VEC: return s->bias ? RP_ROLE_BIAS : RP_ROLE_PRODUCT;
    case RPI_VALVEC: return RP_ROLE_VALUE;
    case RPI_ROTATE: return RP_ROLE_ROTATION;
    case RPI_SINK: return RP_ROLE_SINK;
    default: return RP_ROLE_BIAS;
    }
}

int rp_term_is_bias(rp_term_kind kind)
{
    return is_kind(kind) && rp_term_role(kind) == RP_ROLE_BIAS;
}

int rp_term_is_causal(rp_term_kind kind)
{
    const rpi_scheme *s = rpi_scheme_of(kind);
    return s && s->causal;
}

int rp_term_is_array(rp_term_kind kind)
{
    const rpi_scheme *s = rpi_scheme_of(kind);
    return s && s->in_place;
}

int rp_term_takes_name(rp_term_kind kind)
{
    const rpi_scheme *s = rpi_scheme_of(kind);
    return s && !rp_term_is_bias(kind) && rpi_count_arrays(s) == 1 && !(s->params && s->params->key);
}

const char *rp_term_fault(rp_term_kind kind)
{
    const rpi_scheme *s = rpi_scheme_of(kind);
    return s ? rpi_scheme_fault(s) : NULL;
}

const char *rp_term_array(rp_term_kind kind, int index)
{
    const rp_array_facts *a = rp_term_array_about(kind, index);
    return a ? a->name : NULL;
}

int rp_term_array_optional(rp_term_kind kind, int index)
{
    const rp_array_facts *a = rp_term_array_about(kind, index);
    return a && a->presence != RP_NEEDED;
}

int rp_term_array_learned(rp_term_kind kind, int index)
{
    const rp_array_facts *a = rp_term_array_about(kind, index);
    return a && a->use == RP_USE_LEARNED;
}

rp_status rpi_term_check(const rp_desc *desc, rp_term *term, int32_t n)
{
    const rpi_scheme *s = rpi_scheme_of(term->kind);
    char what[32];
    snprintf(what, sizeof what, "terms[%d].", (int)n);
    rp_status status = check_params(what, term, s->params, true);
    if (status == RP_OK && s->check)
        status = s->check(desc, term, n);
    return status == RP_OK ? check_params(what, term, s->params, false) : status; /* what `check` has resolved too */
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

/* Every parameter that the kind reads at its default. */
static void set_defaults(rp_term *t, rp_term_kind kind)
{
    const rpi_scheme *s = rpi_scheme_of(kind);
    memset(t, 0, sizeof *t);
    t->kind = kind;
    for (const rp_param *p = s ? s->params : NULL; p && p->key; p++) {
        char *field = (char *)t + p->offset;
        const int64_t n = (int64_t)p->value;
        const int32_t small = (int32_t)p->value;
        if (p->type == RP_PARAM_REAL)
            memcpy(field, &p->value, sizeof p->value);
        else if (p->type == RP_PARAM_INT)
            memcpy(field, &n, sizeof n);
        else if (p->type != RP_PARAM_GRID) /* which has no default */
            memcpy(field, &small, sizeof small);
    }
}

void rp_term_init_sized(rp_term *term, size_t term_size, rp_term_kind kind)
{
    rp_term own;
    set_defaults(&own, kind);
    if (term && rpi_check_struct_size("rp_term", term_size, sizeof own) == RP_OK)
        memcpy(term, &own, term_size);
}

rp_status rpi_term_take(rp_term *to, const void *from, size_t size)
{
    rp_term_kind kind;
    const rp_status status = rpi_check_struct_size("rp_term", size, sizeof *to);
    if (status != RP_OK)
        return status;
    memcpy(&kind, from, sizeof kind);
    set_defaults(to, kind);
    memcpy(to, from, size);
    return RP_OK;
}

rp_status rpi_term_give(void *to, size_t size, const rp_term *from)
{
    rp_term plain;
    set_defaults(&plain, from->kind);
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

rp_status rp_term_usual_sizes_sized(rp_term *term, size_t term_size, int64_t len_k)
{
    rp_term own;
    if (!term)
        return rpi_fail(RP_E_ARG, "term is NULL");
    const rp_status status = rpi_term_take(&own, term, term_size);
    const rpi_scheme *s = status == RP_OK ? rpi_scheme_of(own.kind) : NULL;
    if (!s || !s->usual_sizes)
        return status;
    s->usual_sizes(&own, len_k);
    return rpi_term_give(term, term_size, &own);
}

void rpi_term_shape(const rpi_scheme *s, const rp_desc *desc, const rp_term *term, int32_t x, rpi_shape *shape)
{
    *shape = (rpi_shape){.ndim = 0};
    if (x >= 0 && x < rpi_count_arrays(s))
        rpi_read_shape(s->array[x].shape, desc, term, s->params, shape);
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

double rpi_vec_factor(const rpi_scheme *s, const rp_desc *d)
{
    return s->bias || s->unscaled ? 1.0 : d->scale;
}

int64_t rpi_product_index(const rpi_product *product, const rpi_pair *p)
{
    const int64_t count = product->count(p->desc, p->term);
    if (p->absent || (product->present && !product->present(p->array)))
        return -1;
    if (product->index)
        return product->index(p);
    const double delta = trunc(product->without_q_offset ? (double)(p->j - p->i) : p->delta),
                 e = delta - (double)product->first(p->desc, p->term);
    if (product->zero_outside && !(e >= 0 && e < (double)count))
        return -1;
    return e <= 0 ? 0 : e >= (double)(count - 1) ? count - 1 : (int64_t)e;
}

int64_t rpi_product_width(const rpi_product *product, const rpi_pair *p)
{
    return product->width ? product->width(p->desc, p->term) : p->desc->dim_k;
}
