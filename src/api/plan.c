/* plan.c -- the door: descriptions are checked here, and the arrays of a call; what follows checks nothing again.
 * SPDX-License-Identifier: Apache-2.0 */
#include "internal.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Positions and lengths up to here leave room for sums and differences in 63 bits. */
#define MOST ((int64_t)1 << 60)

static rp_status check_size(const char *field, int64_t n, int64_t least, int64_t most)
{
    if (n < least || n > most)
        return rpi_fail(RP_E_RANGE, "desc.%s is %lld: %lld to %lld", field, (long long)n, (long long)least,
                        (long long)most);
    return RP_OK;
}

/* The description with its defaults resolved, or an error. */
static rp_status check_sizes(rp_desc *d, const rp_desc *given)
{
    if (!given)
        return rpi_fail(RP_E_ARG, "desc is NULL: make one with rp_desc_init");
    if (given->size != sizeof *d)
        return rpi_fail(RP_E_ARG, "desc.size is %zu: this library knows %zu; start from rp_desc_init", given->size,
                        sizeof *d);
    *d = *given;
    const struct {
        const char *name;
        int64_t n, least, most;
    } sizes[] = {
        {"batch", d->batch, 0, MOST},
        {"heads", d->heads, 1, MOST},
        {"kv_heads", d->kv_heads, 0, MOST},
        {"len_q", d->len_q, 0, MOST},
        {"len_k", d->len_k, 0, MOST},
        {"dim_k", d->dim_k, 1, (int64_t)1 << 30},
        {"dim_v", d->dim_v, 0, (int64_t)1 << 30},
        {"q_offset", d->q_offset, -MOST, MOST},
        {"n_terms", d->n_terms, 0, RP_MAX_TERMS},
        {"n_masks", d->n_masks, 0, RP_MAX_MASKS},
        {"cap_after", d->cap_after, 0, 1},
        {"flexible", d->flexible, 0, 1},
        {"precision", d->precision, RP_PRECISION_HIGHEST, RP_PRECISION_HIGH},
    };
    for (size_t n = 0; n < sizeof sizes / sizeof *sizes; n++) {
        rp_status s = check_size(sizes[n].name, sizes[n].n, sizes[n].least, sizes[n].most);
        if (s != RP_OK)
            return s;
    }
    d->kv_heads = d->kv_heads ? d->kv_heads : d->heads;
    d->dim_v = d->dim_v ? d->dim_v : d->dim_k;
    if (d->heads % d->kv_heads != 0)
        return rpi_fail(RP_E_RANGE, "desc.kv_heads is %lld: it must divide heads, which is %lld",
                        (long long)d->kv_heads, (long long)d->heads);
    if (!rpi_is_floating(d->dtype))
        return rpi_fail(RP_E_ARG, "desc.dtype is %s (%d): f32, f64, f16 or bf16", rp_dtype_name(d->dtype),
                        (int)d->dtype);
    if (!(d->dropout >= 0 && d->dropout < 1))
        return rpi_fail(RP_E_RANGE, "desc.dropout is %g: 0 (none) to below 1", d->dropout);
    if (d->scale == RP_SCALE_AUTO)
        d->scale = 1.0 / sqrt((double)d->dim_k);
    /* Far below the largest f32, so that products with tame numbers stay finite. */
    if (!(fabs(d->scale) <= 1e20))
        return rpi_fail(RP_E_RANGE, "desc.scale is %g: -1e20 to 1e20, or RP_SCALE_AUTO for 1/sqrt(dim_k)", d->scale);
    if (d->softcap != 0 && !(d->softcap >= 1e-20 && d->softcap <= 1e20))
        return rpi_fail(RP_E_RANGE, "desc.softcap is %g: 0 (none), or 1e-20 to 1e20", d->softcap);
    if ((d->n_terms && !d->terms) || (d->n_masks && !d->masks))
        return rpi_fail(RP_E_ARG, "desc.%s is NULL while n_%s is not 0", d->n_terms && !d->terms ? "terms" : "masks",
                        d->n_terms && !d->terms ? "terms" : "masks");
    /* Elements of the arrays, a zero taken as one so that it does not hide an overflow. */
    const int64_t products[][4] = {{d->batch, d->heads, d->len_q, d->dim_k},
                                   {d->batch, d->heads, d->len_q, d->dim_v},
                                   {d->batch, d->kv_heads, d->len_k, d->dim_k},
                                   {d->batch, d->kv_heads, d->len_k, d->dim_v},
                                   {d->batch, d->heads, d->len_q + d->len_k, 2}};
    for (size_t n = 0; n < sizeof products / sizeof *products; n++) {
        int64_t size = 1;
        for (int x = 0; x < 4; x++)
            if (!rpi_mul(size, rpi_max(products[n][x], 1), x == 3 ? 8 : 1, &size))
                return rpi_fail(RP_E_OVERFLOW, "desc: batch * heads * length * dim does not fit in 63 bits");
    }
    return RP_OK;
}

static rp_status check_terms(rp_plan *p)
{
    p->rotate = p->vec = p->valvec = p->sink = -1;
    for (int32_t n = 0; n < p->desc.n_terms; n++) {
        rp_term *t = &p->terms[n];
        const rpi_scheme *s = rpi_scheme_of(t->kind);
        if (!s)
            return rpi_fail(RP_E_ARG, "terms[%d].kind is %d: no such term in terms.def", (int)n, (int)t->kind);
        const rp_status status = s->check ? s->check(&p->desc, t, n) : RP_OK;
        if (status != RP_OK)
            return status;
        p->intervals |= s->causal;
        int32_t *one = NULL; /* of which there is one at most */
        switch (s->form) {
        case RPI_OFFSET: p->n_offset++; break;
        case RPI_INDEX: p->n_index++; break;
        case RPI_TILE: p->n_tile++; break;
        case RPI_ROTATE: one = &p->rotate; break;
        case RPI_VALVEC: one = &p->valvec; break;
        case RPI_SINK: one = &p->sink; break;
        case RPI_VEC:
            p->n_vec += s->bias;
            one = s->bias ? NULL : &p->vec;
            break;
        }
        if (one && *one >= 0)
            return rpi_fail(RP_E_UNSUPPORTED,
                            "terms[%d] is %s: terms[%d], %s, is one of its family, and one is allowed", (int)n,
                            rp_term_name(t->kind), (int)*one, rp_term_name(p->terms[*one].kind));
        if (one)
            *one = n;
    }
    return RP_OK;
}

static rp_status check_masks(rp_plan *p)
{
    for (int32_t n = 0; n < p->desc.n_masks; n++) {
        const rpi_masker *m = rpi_masker_of(p->masks[n].kind);
        if (!m)
            return rpi_fail(RP_E_ARG, "masks[%d].kind is %d: no such mask in masks.def", (int)n, (int)p->masks[n].kind);
        rp_status status = m->check ? m->check(&p->desc, &p->masks[n], n) : RP_OK;
        if (status != RP_OK)
            return status;
        p->intervals |= m->interval != NULL;
        p->mask_keep |= m->keep != NULL;
        p->mask_keep_rows |= m->keep != NULL && !m->keep_same_rows;
    }
    return RP_OK;
}

/* Fill a plan in place; the instruction set comes later. */
static rp_status plan_fill(rp_plan *p, const rp_desc *desc)
{
    memset(p, 0, sizeof *p);
    rp_status status = check_sizes(&p->desc, desc);
    if (status != RP_OK)
        return status;
    for (int32_t n = 0; status == RP_OK && n < desc->n_terms; n++)
        status = rpi_term_take(&p->terms[n], (const char *)desc->terms + (size_t)n * desc->term_size, desc->term_size);
    if (status == RP_OK && desc->n_masks)
        status = rpi_check_struct_size("rp_mask", desc->mask_size, sizeof *p->masks);
    for (int32_t n = 0; status == RP_OK && n < desc->n_masks; n++) /* fields that the caller's lacks are 0 */
        memcpy(&p->masks[n], (const char *)desc->masks + (size_t)n * desc->mask_size, desc->mask_size);
    if (status != RP_OK)
        return status;
    p->desc.terms = p->terms;
    p->desc.masks = p->masks;
    p->desc.term_size = sizeof *p->terms;
    p->desc.mask_size = sizeof *p->masks;
    status = check_terms(p);
    return status == RP_OK ? check_masks(p) : status;
}

rp_status rp_plan_create(rp_plan **plan, const rp_desc *desc)
{
    if (!plan)
        return rpi_fail(RP_E_ARG, "plan is NULL: where the plan should go");
    *plan = NULL;
    rp_plan *p = malloc(sizeof *p);
    if (!p)
        return rpi_fail(RP_E_NOMEM, "a plan needs %zu bytes", sizeof *p);
    rp_status status = plan_fill(p, desc);
    if (status == RP_OK) {
        const char *isa = p->desc.isa ? p->desc.isa : rp_isa_default();
        int found = rp_isa_found(isa);
        if (found < 0)
            status = rpi_fail(RP_E_ARG, "desc.isa is \"%.32s\": no such instruction set; rp_isa_name lists them", isa);
        else if (!found)
            status = rpi_fail(RP_E_UNSUPPORTED, "desc.isa is \"%.32s\": this machine does not have it", isa);
        else if (strcmp(isa, "reference") != 0)
            p->ops = rpi_ops_named(isa, p->desc.dtype == RP_F64);
        p->isa = p->ops ? rpi_ops_named(isa, false)->name : "reference";
        p->parts = p->desc.dtype == RP_F32 && p->desc.precision == RP_PRECISION_HIGH ? 2 : 3;
        p->desc.isa = NULL; /* the caller's string is not kept */
    }
    if (status != RP_OK) {
        free(p);
        return status;
    }
    *plan = p;
    return RP_OK;
}

void rp_plan_destroy(rp_plan *plan)
{
    free(plan);
}

const char *rp_plan_isa(const rp_plan *plan)
{
    return !plan ? "" : plan->isa;
}

size_t rp_plan_work_size(const rp_plan *plan, const rp_pool *pool)
{
    if (!plan) {
        rpi_fail(RP_E_ARG, "plan is NULL: make one with rp_plan_create");
        return 0;
    }
    return plan->ops ? rpi_fast_work_size(plan, rp_pool_threads(pool)) : 64;
}

size_t rp_plan_backward_size(const rp_plan *plan, const rp_pool *pool)
{
    if (!plan) {
        rpi_fail(RP_E_ARG, "plan is NULL: make one with rp_plan_create");
        return 0;
    }
    return plan->ops ? rpi_backward_work_size(plan, rp_pool_threads(pool)) : 64;
}

/* The full shape of an array, for a caller that makes one. */
static void full_shape(const rpi_shape *s, int32_t *ndim, int64_t *shape)
{
    int32_t skip = s->ndim - rpi_max(s->min_ndim, s->ndim == 3 ? 2 : s->ndim); /* vectors: without the head axis */
    *ndim = s->ndim - skip;
    for (int32_t x = 0; x < *ndim; x++)
        shape[x] = s->n[x + skip];
}

/* What both questions about shapes begin with: a checked description, and no axes yet. */
static rp_status start_shape(rp_plan *p, const rp_desc *desc, int32_t *ndim, const int64_t *shape)
{
    if (!ndim || !shape)
        return rpi_fail(RP_E_ARG, "ndim or shape is NULL");
    *ndim = 0;
    return plan_fill(p, desc);
}

rp_status rp_term_shape(const rp_desc *desc, int32_t term, int32_t index, int32_t *ndim, int64_t *shape)
{
    rp_plan p;
    rpi_shape s;
    const rp_status status = start_shape(&p, desc, ndim, shape);
    if (status != RP_OK)
        return status;
    if (term < 0 || term >= p.desc.n_terms || index < 0)
        return rpi_fail(RP_E_ARG, "term is %d, index %d: there are %d terms", (int)term, (int)index,
                        (int)p.desc.n_terms);
    const rpi_scheme *scheme = rpi_scheme_of(p.terms[term].kind);
    if (index < rpi_count_arrays(scheme)) {
        rpi_term_shape(&p.desc, &p.terms[term], index, &s);
        full_shape(&s, ndim, shape);
    }
    return RP_OK;
}

rp_status rp_mask_shape(const rp_desc *desc, int32_t mask, int32_t *ndim, int64_t *shape)
{
    rp_plan p;
    rpi_shape s;
    const rp_status status = start_shape(&p, desc, ndim, shape);
    if (status != RP_OK)
        return status;
    if (mask < 0 || mask >= p.desc.n_masks)
        return rpi_fail(RP_E_ARG, "mask is %d: there are %d masks", (int)mask, (int)p.desc.n_masks);
    const rpi_masker *m = rpi_masker_of(p.masks[mask].kind);
    if (m->shape) {
        m->shape(&p.desc, &s);
        full_shape(&s, ndim, shape);
    }
    return RP_OK;
}

/* ---------------------------------------------------------------------------------------------- the arrays of a call */

static rp_status check_array(rpi_view *v, const rp_array *a, int32_t ndim, const int64_t *n, rp_dtype dtype,
                             const char *name)
{
    rpi_shape shape = {.ndim = ndim, .min_ndim = ndim};
    memcpy(shape.n, n, (size_t)ndim * sizeof *n);
    rp_status s = rpi_view_of(v, a, &shape, RPI_FLOATS, name);
    if (s != RP_OK)
        return s;
    if (rpi_is_floating(dtype) && a->dtype != dtype)
        return rpi_fail(RP_E_ARG, "%s: dtype is %s, and desc.dtype is %s: they must be equal", name,
                        rp_dtype_name(a->dtype), rp_dtype_name(dtype));
    return RP_OK;
}

static rp_status check_contiguous(const rp_array *a, const char *name)
{
    int32_t last = a->ndim - 1;
    if (a->shape[last] > 1 && a->stride[last] != 1)
        return rpi_fail(RP_E_STRIDE, "%s: the stride of the last axis is %lld: it must be 1", name,
                        (long long)a->stride[last]);
    return RP_OK;
}

/* An output must not write one place twice: with its axes sorted by stride, each steps over all that lies below it. */
rp_status rpi_check_output(const rp_array *a, const char *name)
{
    int32_t order[RP_MAX_AXES], n = 0;
    int64_t covered = 1;
    for (int32_t x = 0; x < a->ndim; x++) {
        if (a->shape[x] == 0)
            return RP_OK;
        if (a->shape[x] == 1)
            continue;
        int32_t at = n++;
        for (; at > 0 && llabs(a->stride[order[at - 1]]) > llabs(a->stride[x]); at--)
            order[at] = order[at - 1];
        order[at] = x;
    }
    for (int32_t k = 0; k < n; k++) {
        int64_t step = llabs(a->stride[order[k]]);
        if (step < covered)
            return rpi_fail(RP_E_STRIDE, "%s: stride %lld on axis %d makes elements of the output share memory", name,
                            (long long)a->stride[order[k]], (int)order[k]);
        covered = step * (a->shape[order[k]] - 1) + covered;
    }
    return RP_OK;
}

static rp_status need(const rp_array *a, int64_t elements, const char *name)
{
    if (!a->data && elements > 0)
        return rpi_fail(RP_E_ARG, "%s is absent (data is NULL): it is needed here", name);
    return RP_OK;
}

/* An array of a term or a mask. It may stay away where it is optional or has no elements. */
static rp_status check_named(rpi_view *v, const rp_array *a, const rpi_shape *shape, rpi_class cls, bool optional,
                             const char *name)
{
    bool empty = false;
    for (int32_t x = 0; x < shape->ndim; x++)
        empty = empty || shape->n[x] == 0;
    if (!a->data && (optional || empty))
        return RP_OK;
    const rp_status status = need(a, 1, name);
    return status == RP_OK ? rpi_view_of(v, a, shape, cls, name) : status;
}

/* The lengths of a call of a flexible plan: those of its arrays, up to the plan's. */
static rp_status take_lengths(rp_desc *d, const rp_tensors *t)
{
    const struct {
        const char *name;
        const rp_array *a;
        int64_t *len;
    } sides[] = {{"q", &t->q, &d->len_q}, {"k", &t->k, &d->len_k}};
    if (d->flexible && t->pages.k) {
        if (t->pages.len_k < 0 || t->pages.len_k > d->len_k)
            return rpi_fail(RP_E_SHAPE, "pages.len_k is %lld: the plan was made for 0 to %lld",
                            (long long)t->pages.len_k, (long long)d->len_k);
        d->len_k = t->pages.len_k;
    }
    for (int n = 0; n < 2 && d->flexible; n++) {
        if (!sides[n].a->data || sides[n].a->ndim != 4)
            continue;
        if (sides[n].a->shape[2] > *sides[n].len || sides[n].a->shape[2] < 0)
            return rpi_fail(RP_E_SHAPE, "%s: its length is %lld: the plan was made for up to %lld", sides[n].name,
                            (long long)sides[n].a->shape[2], (long long)*sides[n].len);
        *sides[n].len = sides[n].a->shape[2];
    }
    return RP_OK;
}

/* Keys and values in pages take the place of k and v. */
static rp_status check_pages(rpi_args *args, const rp_tensors *t)
{
    const rp_desc *d = &args->desc;
    const rp_pages *p = &t->pages;
    const struct {
        const char *name;
        const rp_array *a;
        const void *const *page;
        int64_t head, key, width;
        rpi_view *view;
    } sides[] = {{"k", &t->k, p->k, p->k_head, p->k_key, d->dim_k, &args->k},
                 {"v", &t->v, p->v, p->v_head, p->v_key, d->dim_v, &args->v}};
    if (!p->k)
        return p->v ? rpi_fail(RP_E_ARG, "pages.k is NULL, and pages.v is not: keys and values are in pages together")
                    : RP_OK;
    if (p->page < 1 || p->page > MOST || p->len_k != d->len_k)
        return rpi_fail(RP_E_RANGE, "pages.page is %lld, pages.len_k %lld: 1 key or more, and %lld keys",
                        (long long)p->page, (long long)p->len_k, (long long)d->len_k);
    int64_t pages;
    if (p->per_batch < (d->len_k + p->page - 1) / p->page || !rpi_mul(d->batch, p->per_batch, 8, &pages))
        return rpi_fail(RP_E_RANGE, "pages.per_batch is %lld: %lld keys need %lld pages of %lld",
                        (long long)p->per_batch, (long long)d->len_k, (long long)((d->len_k + p->page - 1) / p->page),
                        (long long)p->page);
    for (int n = 0; n < 2; n++) {
        int64_t span;
        if (sides[n].a->data)
            return rpi_fail(RP_E_ARG,
                            "%s is there beside pages.k: keys and values are both in pages, or both in arrays",
                            sides[n].name);
        if (!sides[n].page)
            continue;
        if (sides[n].head < 0 || sides[n].key < 0 || !rpi_mul(sides[n].head, d->kv_heads, 8, &span) ||
            !rpi_mul(sides[n].key, p->page, 8, &span))
            return rpi_fail(RP_E_STRIDE, "pages: the strides of %s are %lld and %lld: 0 or more elements",
                            sides[n].name, (long long)sides[n].head, (long long)sides[n].key);
        for (int64_t m = 0; m < d->batch * p->per_batch; m++) {
            const bool used = m % p->per_batch * p->page < d->len_k;
            if (used && (!sides[n].page[m] || (uintptr_t)sides[n].page[m] % rp_dtype_size(d->dtype) != 0))
                return rpi_fail(RP_E_ARG, "pages.%s[%lld] is %s", sides[n].name, (long long)m,
                                sides[n].page[m] ? "not aligned to its elements" : "NULL");
        }
        *sides[n].view = (rpi_view){.data = (void *)(uintptr_t)sides[n].page,
                                    .dtype = d->dtype,
                                    .page = sides[n].page,
                                    .page_keys = p->page,
                                    .per_batch = p->per_batch,
                                    .stride = {0, sides[n].head, sides[n].key, 1}};
    }
    return RP_OK;
}

static rp_status check_offsets(rpi_args *args, const rp_tensors *t)
{
    const rpi_shape shape = {.ndim = 1, .min_ndim = 0, .ones = 1u, .n = {args->desc.batch}};
    if (!t->q_offset.data)
        return RP_OK;
    const rp_status s = rpi_view_of(&args->q_offset, &t->q_offset, &shape, RPI_INTEGERS, "q_offset");
    for (int64_t b = 0; s == RP_OK && b < args->desc.batch; b++) {
        const int64_t at = rpi_position(args, b, 0);
        if (at < -MOST || at > MOST || (args->q_offset.dtype == RP_U64 && at < 0))
            return rpi_fail(RP_E_RANGE, "q_offset[%lld] is %lld: -2^60 to 2^60", (long long)b, (long long)at);
    }
    return s;
}

static rp_status check_args(rpi_args *args, const rp_plan *plan, const rp_tensors *t, bool offsets_only)
{
    if (!plan)
        return rpi_fail(RP_E_ARG, "plan is NULL: make one with rp_plan_create");
    if (!t || t->size != sizeof *t)
        return rpi_fail(RP_E_ARG, "tensors %s: start from rp_tensors_init", t ? "of another size" : "is NULL");
    memset(args, 0, sizeof *args);
    args->desc = plan->desc;
    rp_status s = take_lengths(&args->desc, t);
    if (s != RP_OK)
        return s;
    const rp_desc *d = &args->desc;
    const int64_t B = d->batch, H = d->heads, Hk = d->kv_heads, Lq = d->len_q, Lk = d->len_k, Dk = d->dim_k,
                  Dv = d->dim_v;
    const rp_dtype any = RP_BOOL; /* an output of a floating type as the caller likes */
    const struct {
        const char *name;
        const rp_array *a;
        rpi_view *v;
        int64_t n[4];
        int32_t ndim;
        rp_dtype dtype;
        bool contiguous;
    } arrays[] = {
        {"q", &t->q, &args->q, {B, H, Lq, Dk}, 4, d->dtype, true},
        {"k", &t->k, &args->k, {B, Hk, Lk, Dk}, 4, d->dtype, true},
        {"v", &t->v, &args->v, {B, Hk, Lk, Dv}, 4, d->dtype, true},
        {"out", &t->out, &args->out, {B, H, Lq, Dv}, 4, d->dtype, true},
        {"lse", &t->lse, &args->lse, {B, H, Lq}, 3, any, false},
        {"weights", &t->weights, &args->weights, {B, H, Lq, Lk}, 4, any, false},
        {"profile", &t->profile, &args->profile, {B, H, rpi_max(Lq + Lk - 1, 0)}, 3, any, false},
        {"key_mass", &t->key_mass, &args->key_mass, {B, H, Lk}, 3, any, false},
        {"entropy", &t->entropy, &args->entropy, {B, H, Lq}, 3, any, false},
    };
    for (size_t n = 0; n < sizeof arrays / sizeof *arrays; n++) {
        if (!arrays[n].a->data)
            continue;
        s = check_array(arrays[n].v, arrays[n].a, arrays[n].ndim, arrays[n].n, arrays[n].dtype, arrays[n].name);
        if (s == RP_OK && arrays[n].contiguous)
            s = check_contiguous(arrays[n].a, arrays[n].name);
        if (s == RP_OK && n >= 3)
            s = rpi_check_output(arrays[n].a, arrays[n].name);
        if (s != RP_OK)
            return s;
    }
    if ((s = check_offsets(args, t)) != RP_OK || (s = check_pages(args, t)) != RP_OK)
        return s;
    for (int32_t n = 0; n < d->n_terms; n++) {
        const rpi_scheme *scheme = rpi_scheme_of(d->terms[n].kind);
        if (offsets_only && scheme->form != RPI_OFFSET && scheme->form != RPI_ROTATE)
            continue;
        for (int32_t x = 0; x < rpi_count_arrays(scheme); x++) {
            char name[64];
            rpi_shape shape;
            const rpi_role role = scheme->array[x].role;
            const rpi_class cls = role == RPI_POSITIONS ? RPI_NUMBERS : role == RPI_TRUTH ? RPI_INTEGERS : RPI_FLOATS;
            snprintf(name, sizeof name, "term[%d].%s (of %s)", (int)n, scheme->array[x].name,
                     rp_term_name(d->terms[n].kind));
            rpi_term_shape(d, &d->terms[n], x, &shape);
            s = check_named(&args->term[n][x], &t->term[n][x], &shape, cls, scheme->array[x].optional, name);
            if (s == RP_OK && role == RPI_POSITIONS && args->term[n][x].data)
                s = rpi_check_positions(&args->term[n][x], &shape, name);
            if (s != RP_OK)
                return s;
        }
        if (t->q_offset.data && scheme->grid)
            return rpi_fail(RP_E_UNSUPPORTED,
                            "q_offset: term[%d] is %s, whose tokens lie on a grid: leave q_offset out", (int)n,
                            rp_term_name(d->terms[n].kind));
        if (scheme->check_arrays && (s = scheme->check_arrays(d, &d->terms[n], args->term[n], n)) != RP_OK)
            return s;
    }
    for (int32_t n = 0; n < d->n_masks && !offsets_only; n++) {
        const rpi_masker *m = rpi_masker_of(d->masks[n].kind);
        char name[64];
        rpi_shape shape;
        if (m->check && (s = m->check(d, &d->masks[n], n)) != RP_OK) /* a flexible plan has other lengths */
            return s;
        if (!m->shape)
            continue;
        snprintf(name, sizeof name, "mask[%d] (%s)", (int)n, rp_mask_name(d->masks[n].kind));
        m->shape(d, &shape);
        if ((s = check_named(&args->mask[n], &t->mask[n], &shape, RPI_INTEGERS, false, name)) != RP_OK)
            return s;
    }
    if (t->prepared && rpi_prepared_plan(t->prepared) != plan)
        return rpi_fail(RP_E_ARG, "prepared was made from another plan");
    args->ready = t->prepared;
    args->offsets_only = offsets_only;
    s = need(&t->q, B * Lq, "q");
    return s == RP_OK && !t->pages.k ? need(&t->k, B * Lk, "k") : s;
}

rp_status rpi_args_check(rpi_args *args, const rp_plan *plan, const rp_tensors *t)
{
    return check_args(args, plan, t, false);
}

rp_status rpi_args_check_offsets(rpi_args *args, const rp_plan *plan, const rp_tensors *t)
{
    return check_args(args, plan, t, true);
}

/* A gradient has the shape of the array it belongs to, lies over nothing, and is of a floating type. */
static rp_status check_gradient(rpi_view *v, const rp_array *a, const rp_array *of, bool contiguous, const char *name)
{
    char what[96];
    rpi_shape shape = {.ndim = of->ndim, .min_ndim = of->ndim};
    if (!a->data)
        return RP_OK;
    if (!of->data)
        return rpi_fail(RP_E_ARG, "%s: the array itself is absent, so it has no gradient", name);
    memcpy(shape.n, of->shape, sizeof shape.n);
    snprintf(what, sizeof what, "the gradient %s", name);
    rp_status s = rpi_view_of(v, a, &shape, RPI_FLOATS, what);
    if (s == RP_OK && contiguous)
        s = check_contiguous(a, what);
    return s == RP_OK ? rpi_check_output(a, what) : s;
}

static rp_status check_gradients(rpi_grads *grads, const rpi_args *args, const rp_plan *plan, const rp_tensors *t,
                                 const rp_grads *g)
{
    const rp_desc *d = &args->desc;
    memset(grads, 0, sizeof *grads);
    if (!g || g->size != sizeof *g)
        return rpi_fail(RP_E_ARG, "grads %s: start from rp_grads_init", g ? "of another size" : "is NULL");
    if (t->weights.data || t->profile.data || t->key_mass.data || t->entropy.data)
        return rpi_fail(RP_E_ARG, "tensors has an output beside out and lse: a backward call makes gradients only");
    if (t->pages.k)
        return rpi_fail(RP_E_UNSUPPORTED,
                        "pages: a backward call needs k and v as arrays, which its gradients resemble");
    const int64_t n[4] = {d->batch, d->heads, d->len_q, d->dim_v};
    rp_status s = need(&g->dout, d->batch * d->len_q, "dout");
    if (s == RP_OK && g->dout.data)
        s = check_array(&grads->dout, &g->dout, 4, n, RP_BOOL, "dout");
    if (s == RP_OK && g->dout.data)
        s = check_contiguous(&g->dout, "dout");
    if (s == RP_OK)
        s = need(&t->v, d->batch * d->len_k, "v");
    if (s == RP_OK)
        s = check_gradient(&grads->dq, &g->dq, &t->q, true, "dq");
    if (s == RP_OK)
        s = check_gradient(&grads->dk, &g->dk, &t->k, true, "dk");
    if (s == RP_OK)
        s = check_gradient(&grads->dv, &g->dv, &t->v, true, "dv");
    for (int32_t m = 0; s == RP_OK && m < d->n_terms; m++)
        for (int32_t x = 0; s == RP_OK && x < RP_MAX_ARRAYS; x++) {
            const rp_array *a = &g->term[m][x];
            const char *array = rp_term_array(d->terms[m].kind, x);
            char name[64];
            if (!a->data || !array)
                continue;
            snprintf(name, sizeof name, "of term[%d].%s (of %s)", (int)m, array, rp_term_name(d->terms[m].kind));
            if (!rp_term_array_learned(d->terms[m].kind, x))
                return rpi_fail(RP_E_ARG, "the gradient %s: this array is not learned and has none", name);
            rpi_view v; /* of the array's own axes; those of args are aligned with the scheme's */
            s = check_gradient(&v, a, &t->term[m][x], false, name);
            if (s == RP_OK) {
                rpi_shape shape;
                rpi_term_shape(d, &plan->terms[m], x, &shape);
                s = rpi_view_of(&grads->term[m][x], a, &shape, RPI_FLOATS, name);
            }
        }
    return s;
}

/* The bytes an array may touch: [*from, *to). false: none. */
static bool extent(const rp_array *a, uintptr_t *from, uintptr_t *to)
{
    uintptr_t low = (uintptr_t)a->data, high = low;
    const int64_t size = (int64_t)rp_dtype_size(a->dtype);
    if (!a->data)
        return false;
    for (int32_t x = 0; x < a->ndim; x++) {
        if (a->shape[x] == 0)
            return false;
        if (a->shape[x] == 1)
            continue; /* no step is taken: its stride may be anything */
        if (a->stride[x] < 0)
            low -= (uintptr_t)((a->shape[x] - 1) * -a->stride[x] * size);
        else
            high += (uintptr_t)((a->shape[x] - 1) * a->stride[x] * size);
    }
    *from = low;
    *to = high + (uintptr_t)size;
    return true;
}

/* Arrays of a call by name, outputs first. */
typedef struct listed {
    const char *name;
    const rp_array *a;
} listed;
#define MOST_LISTED (16 + 2 * RP_MAX_TERMS * RP_MAX_ARRAYS + RP_MAX_MASKS)

static void list(listed *all, int *n, const char *name, const rp_array *a)
{
    if (a->data)
        all[(*n)++] = (listed){name, a};
}

static void list_inputs(listed *all, int *n, const rp_plan *plan, const rp_tensors *t)
{
    list(all, n, "q", &t->q);
    list(all, n, "k", &t->k);
    list(all, n, "v", &t->v);
    list(all, n, "q_offset", &t->q_offset);
    for (int32_t m = 0; m < plan->desc.n_terms; m++)
        for (int32_t x = 0; x < RP_MAX_ARRAYS; x++)
            if (rp_term_array(plan->terms[m].kind, x))
                list(all, n, "an array of a term", &t->term[m][x]);
    for (int32_t m = 0; m < plan->desc.n_masks; m++)
        if (rpi_masker_of(plan->masks[m].kind)->shape)
            list(all, n, "the array of a mask", &t->mask[m]);
}

static rp_status overlap(const listed *all, int outputs, int n)
{
    for (int pass = 0; pass < 2; pass++) /* an input that is lied over is the worse news: inputs first */
        for (int o = 0; o < outputs; o++) {
            uintptr_t from, to, from2, to2;
            if (!extent(all[o].a, &from, &to))
                continue;
            for (int x = pass ? o + 1 : outputs; x < (pass ? outputs : n); x++)
                if (extent(all[x].a, &from2, &to2) && from < to2 && from2 < to)
                    return rpi_fail(RP_E_OVERLAP, "%s lies over %s: outputs need memory of their own", all[o].name,
                                    all[x].name);
        }
    return RP_OK;
}

/* Outputs beside the pages of keys and values. */
static rp_status overlap_pages(const rp_plan *plan, const rp_tensors *t, const listed *all, int outputs)
{
    const rp_pages *p = &t->pages;
    const int64_t used = p->k && p->page > 0 ? (p->len_k + p->page - 1) / p->page : 0;
    const struct {
        const void *const *page;
        int64_t n[3], stride[3];
    } sides[] = {{p->k, {plan->desc.kv_heads, p->page, plan->desc.dim_k}, {p->k_head, p->k_key, 1}},
                 {p->v, {plan->desc.kv_heads, p->page, plan->desc.dim_v}, {p->v_head, p->v_key, 1}}};
    for (int o = 0; o < outputs; o++)
        for (int64_t m = 0; m < plan->desc.batch * used * 2; m++) {
            uintptr_t from, to, from2, to2;
            const int64_t at = m / 2 / used * p->per_batch + m / 2 % used;
            if (!sides[m % 2].page)
                continue;
            rp_array a = rp_array_of(sides[m % 2].page[at], plan->desc.dtype, 3, sides[m % 2].n);
            memcpy(a.stride, sides[m % 2].stride, sizeof sides->stride);
            if (extent(all[o].a, &from, &to) && extent(&a, &from2, &to2) && from < to2 && from2 < to)
                return rpi_fail(RP_E_OVERLAP, "%s lies over page %lld of %s: outputs need memory of their own",
                                all[o].name, (long long)at, m % 2 ? "v" : "k");
        }
    return RP_OK;
}

rp_status rpi_args_overlap(const rp_plan *plan, const rp_tensors *t)
{
    listed all[MOST_LISTED];
    int n = 0;
    list(all, &n, "the output", &t->out);
    list(all, &n, "lse", &t->lse);
    list(all, &n, "weights", &t->weights);
    list(all, &n, "profile", &t->profile);
    list(all, &n, "key_mass", &t->key_mass);
    list(all, &n, "entropy", &t->entropy);
    const int outputs = n;
    list_inputs(all, &n, plan, t);
    const rp_status status = overlap(all, outputs, n);
    return status == RP_OK ? overlap_pages(plan, t, all, outputs) : status;
}

static rp_status overlap_gradients(const rp_plan *plan, const rp_tensors *t, const rp_grads *g)
{
    listed all[MOST_LISTED];
    int n = 0;
    list(all, &n, "dq", &g->dq);
    list(all, &n, "dk", &g->dk);
    list(all, &n, "dv", &g->dv);
    for (int32_t m = 0; m < plan->desc.n_terms; m++)
        for (int32_t x = 0; x < RP_MAX_ARRAYS; x++)
            if (rp_term_array(plan->terms[m].kind, x))
                list(all, &n, "the gradient of a term's array", &g->term[m][x]);
    const int outputs = n;
    list(all, &n, "dout", &g->dout);
    list(all, &n, "out", &t->out);
    list(all, &n, "lse", &t->lse);
    list_inputs(all, &n, plan, t);
    return overlap(all, outputs, n);
}

rp_status rpi_backward_check(rpi_args *args, rpi_grads *grads, const rp_plan *plan, const rp_tensors *t,
                             const rp_grads *g)
{
    rp_status status = rpi_args_check(args, plan, t);
    if (status == RP_OK)
        status = check_gradients(grads, args, plan, t, g);
    return status == RP_OK ? overlap_gradients(plan, t, g) : status;
}

rp_status rpi_output_overlap(const rp_plan *plan, const rp_tensors *t, const rp_array *out)
{
    const rp_array none = {0};
    rp_tensors with = *t;
    with.out = *out;
    with.lse = with.weights = with.profile = with.key_mass = with.entropy = none;
    return rpi_args_overlap(plan, &with);
}
