/* api/describe.c -- check a description, create a plan from it, and compute the shapes of the arrays that it requires.
 * Independent of kernels.
 * SPDX-License-Identifier: Apache-2.0 */
#include "arguments.h"
#include "engine/engine.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

static rp_status check_size(const char *field, int64_t n, int64_t min, int64_t max)
{
    if (n < min || n > max)
        return rpi_fail(RP_E_RANGE, "desc.%s is %lld; it must be %lld to %lld", field, (long long)n, (long long)min,
                        (long long)max);
    return RP_OK;
}

/* Copy a description, check its sizes and resolve its defaults. */
static rp_status check_sizes(rp_desc *d, const rp_desc *given)
{
    if (!given)
        return rpi_fail(RP_E_ARG, "desc is NULL; make one with rp_desc_init");
    if (given->size != sizeof *d)
        return rpi_fail(RP_E_ARG, "desc.size is %zu; it must be %zu in this library; start from rp_desc_init",
                        given->size, sizeof *d);
    *d = *given;
    const struct {
        const char *name;
        int64_t n, min, max;
    } sizes[] = {
        {"batch", d->batch, 0, RPI_MAX_POSITION},
        {"heads", d->heads, 1, RPI_MAX_POSITION},
        {"kv_heads", d->kv_heads, 0, RPI_MAX_POSITION},
        {"len_q", d->len_q, 0, RPI_MAX_POSITION},
        {"len_k", d->len_k, 0, RPI_MAX_POSITION},
        {"dim_k", d->dim_k, 1, (int64_t)1 << 30},
        {"dim_v", d->dim_v, 0, (int64_t)1 << 30},
        {"q_offset", d->q_offset, -RPI_MAX_POSITION, RPI_MAX_POSITION},
        {"n_terms", d->n_terms, 0, RP_MAX_TERMS},
        {"n_masks", d->n_masks, 0, RP_MAX_MASKS},
        {"flexible", d->flexible, 0, 1},
        {"precision", d->precision, RP_PRECISION_HIGHEST, RP_PRECISION_HIGH},
    };
    for (size_t n = 0; n < sizeof sizes / sizeof *sizes; n++) {
        rp_status s = check_size(sizes[n].name, sizes[n].n, sizes[n].min, sizes[n].max);
        if (s != RP_OK)
            return s;
    }
    d->kv_heads = d->kv_heads ? d->kv_heads : d->heads;
    d->dim_v = d->dim_v ? d->dim_v : d->dim_k;
    if (d->heads % d->kv_heads != 0)
        return rpi_fail(RP_E_RANGE, "desc.kv_heads is %lld; it must divide desc.heads, which is %lld",
                        (long long)d->kv_heads, (long long)d->heads);
    if (!rpi_is_floating(d->dtype))
        return rpi_fail(RP_E_ARG, "desc.dtype is %s (%d); it must be f32, f64, f16 or bf16", rp_dtype_name(d->dtype),
                        (int)d->dtype);
    if (!(d->dropout >= 0 && d->dropout < 1))
        return rpi_fail(RP_E_RANGE, "desc.dropout is %g; it must be at least 0 (none) and below 1", d->dropout);
    if (d->scale == RP_SCALE_AUTO)
        d->scale = 1.0 / sqrt((double)d->dim_k);
    /* The limit is far below the largest f32, so that multiplying a moderate number by it stays finite. */
    if (!(fabs(d->scale) <= 1e20))
        return rpi_fail(RP_E_RANGE, "desc.scale is %g; it must be -1e20 to 1e20", d->scale);
    if (d->softcap != 0 && !(d->softcap >= 1e-20 && d->softcap <= 1e20))
        return rpi_fail(RP_E_RANGE, "desc.softcap is %g; it must be 0 (none), or 1e-20 to 1e20", d->softcap);
    if (d->softcap_after != 0 && !(d->softcap_after >= 1e-20 && d->softcap_after <= 1e20))
        return rpi_fail(RP_E_RANGE, "desc.softcap_after is %g; it must be 0 (none), or 1e-20 to 1e20",
                        d->softcap_after);
    if ((d->n_terms && !d->terms) || (d->n_masks && !d->masks))
        return rpi_fail(RP_E_ARG, "desc.%s is NULL, but n_%s is not 0; pass an array",
                        d->n_terms && !d->terms ? "terms" : "masks", d->n_terms && !d->terms ? "terms" : "masks");
    /* Check that the numbers of elements of the arrays do not overflow. Zeros count as 1, so that they do not hide an
     * overflow. */
    const int64_t products[][4] = {{d->batch, d->heads, d->len_q, d->dim_k},
                                   {d->batch, d->heads, d->len_q, d->dim_v},
                                   {d->batch, d->kv_heads, d->len_k, d->dim_k},
                                   {d->batch, d->kv_heads, d->len_k, d->dim_v},
                                   {d->batch, d->heads, d->len_q + d->len_k, 2}};
    for (size_t n = 0; n < sizeof products / sizeof *products; n++) {
        int64_t size = 1;
        for (int x = 0; x < 4; x++)
            if (!rpi_mul(size, rpi_max(products[n][x], 1), x == 3 ? 8 : 1, &size))
                return rpi_fail(RP_E_OVERFLOW,
                                "batch * heads * length * width does not fit in 63 bits; use smaller sizes");
    }
    return RP_OK;
}

static rp_status check_terms(rp_plan *p)
{
    p->rotate = p->vec = p->valvec = p->sink = -1;
    for (int32_t n = 0; n < p->desc.n_terms; n++) {
        rp_term *t = &p->terms[n];
        const rpi_scheme *s = p->scheme[n] = rpi_scheme_of(t->kind);
        if (!s)
            return rpi_fail(RP_E_ARG, "terms[%d].kind is %d; it must be a value of rp_term_kind", (int)n, (int)t->kind);
        const rp_status status = rpi_term_check(&p->desc, t, n);
        if (status != RP_OK)
            return status;
        p->intervals |= s->causal;
        int32_t *one = NULL; /* where to store the term's index, if only one term of this form is allowed */
        switch (s->form) {
        case RPI_OFFSET:
        case RPI_INDEX: break;
        case RPI_TILE: p->n_tile++; break;
        case RPI_ROTATE: one = &p->rotate; break;
        case RPI_VALVEC: one = &p->valvec; break;
        case RPI_SINK: one = &p->sink; break;
        case RPI_VEC:
            p->n_vec += s->bias;
            one = s->bias ? NULL : &p->vec;
            break;
        }
        if (one && *one >= 0 && p->terms[*one].kind == t->kind)
            return rpi_fail(RP_E_UNSUPPORTED, "terms[%d] (of %s) was given twice; give it once", (int)n,
                            rp_term_name(t->kind));
        if (one && *one >= 0)
            return rpi_fail(RP_E_UNSUPPORTED,
                            "terms[%d] (of %s) and terms[%d] (of %s) were both given; give only one of them", (int)*one,
                            rp_term_name(p->terms[*one].kind), (int)n, rp_term_name(t->kind));
        if (one)
            *one = n;
    }
    return RP_OK;
}

static rp_status check_masks(rp_plan *p)
{
    for (int32_t n = 0; n < p->desc.n_masks; n++) {
        const rp_status status = rpi_mask_check(&p->desc, &p->masks[n], n);
        if (status != RP_OK)
            return status;
        const rpi_mask_entry *m = p->mask_entry[n] = rpi_mask_entry_of(p->masks[n].kind);
        p->intervals |= m->interval != NULL;
        p->mask_keep |= m->pairs != NULL;
        p->mask_keep_rows |= m->pairs != NULL && !m->same_rows;
    }
    return RP_OK;
}

/* Fill in a plan, except for its instruction set. */
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
    for (int32_t n = 0; status == RP_OK && n < desc->n_masks; n++) /* fields missing from the caller's struct are 0 */
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

/* Parse the shapes of the arrays of all terms. */
static rp_status parse_shapes(rp_plan *p)
{
    if (p->desc.n_terms == 0)
        return RP_OK;
    const size_t n = (size_t)p->desc.n_terms * RP_MAX_ARRAYS;
    if (!(p->shape = calloc(n, sizeof *p->shape)))
        return rpi_fail(RP_E_NOMEM, "out of memory: a plan needs %zu bytes", sizeof *p + n * sizeof *p->shape);
    for (int32_t term = 0; term < p->desc.n_terms; term++)
        for (int32_t x = 0; x < rpi_count_arrays(p->scheme[term]); x++)
            rpi_parse_shape(&p->shape[term * RP_MAX_ARRAYS + x], p->scheme[term]->array[x].shape,
                            p->scheme[term]->params);
    return RP_OK;
}

rp_status rp_plan_create(rp_plan **plan, const rp_desc *desc)
{
    if (!plan)
        return rpi_fail(RP_E_ARG, "plan is NULL; pass the address of a pointer");
    *plan = NULL;
    rp_plan *p = malloc(sizeof *p);
    if (!p)
        return rpi_fail(RP_E_NOMEM, "out of memory: a plan needs %zu bytes", sizeof *p);
    rp_status status = plan_fill(p, desc);
    if (status == RP_OK)
        status = parse_shapes(p);
    if (status == RP_OK) {
        const char *isa = p->desc.isa ? p->desc.isa : rpi_isa_for(p->desc.dtype, p->desc.precision);
        int found = rp_isa_found(isa);
        if (found < 0)
            status = rpi_fail(RP_E_ARG, "desc.isa is \"%.32s\"; it must be an instruction set of this build", isa);
        else if (!found)
            status =
                rpi_fail(RP_E_UNSUPPORTED,
                         "desc.isa is \"%.32s\", which this machine does not have; use another instruction set", isa);
        else if (strcmp(isa, "reference") != 0)
            p->ops = rpi_ops_named(isa, p->desc.dtype == RP_F64);
        p->isa = p->ops ? rpi_ops_named(isa, false)->name : "reference";
        p->components = p->desc.dtype == RP_F32 && p->desc.precision == RP_PRECISION_HIGH ? 2 : 3;
        const char *skip = getenv("RELPOS_SKIP");
        p->skips = !(skip && strcmp(skip, "0") == 0);
        p->checks_norms = skip && strcmp(skip, "check") == 0;
        p->desc.isa = NULL; /* the caller's string may be freed after this call */
        if (p->ops)
            rpi_limits_bound(&p->bounds, p);
    }
    if (status != RP_OK) {
        rp_plan_destroy(p);
        return status;
    }
    *plan = p;
    return RP_OK;
}

void rp_plan_destroy(rp_plan *plan)
{
    if (plan)
        free(plan->shape);
    free(plan);
}

const char *rp_plan_isa(const rp_plan *plan)
{
    return !plan ? "" : plan->isa;
}

size_t rp_plan_work_size(const rp_plan *plan, const rp_pool *pool)
{
    if (!plan) {
        rpi_fail(RP_E_ARG, "plan is NULL; make one with rp_plan_create");
        return 0;
    }
    const size_t size = plan->ops ? rpi_fast_work_size(plan, rp_pool_threads(pool)) : 64;
    return size ? size + rpi_arguments_bytes(sizeof(rpi_attending)) : 0;
}

int64_t rp_plan_key_step(const rp_plan *plan)
{
    return plan && plan->ops ? plan->ops->tile_keys : 0;
}

int64_t rp_plan_state_width(const rp_plan *plan)
{
    return plan && plan->ops ? 2 + plan->desc.dim_v + rpi_state_vectors(plan) : 0;
}

int64_t rp_plan_dq_width(const rp_plan *plan)
{
    return plan && plan->ops ? rpi_backward_width(plan, false) : 0;
}

int64_t rp_plan_row_step(const rp_plan *plan)
{
    return plan && plan->ops ? plan->ops->block_rows : 0;
}

int64_t rp_plan_dkv_width(const rp_plan *plan)
{
    return plan && plan->ops ? rpi_backward_width(plan, true) : 0;
}

size_t rp_plan_backward_size(const rp_plan *plan, const rp_pool *pool)
{
    if (!plan) {
        rpi_fail(RP_E_ARG, "plan is NULL; make one with rp_plan_create");
        return 0;
    }
    const size_t size = plan->ops ? rpi_backward_work_size(plan, rp_pool_threads(pool)) : 64;
    return size ? size + rpi_arguments_bytes(sizeof(rpi_backward_args)) : 0;
}

/* Return the shape with which a caller should allocate an array. */
static void full_shape(const rpi_shape *s, int32_t *ndim, int64_t *shape)
{
    /* arrays of vectors are returned without the axis of heads */
    int32_t skip = s->ndim - rpi_max(s->min_ndim, s->ndim == 3 && !s->batch ? 2 : s->ndim);
    *ndim = s->ndim - skip;
    for (int32_t x = 0; x < *ndim; x++)
        shape[x] = s->n[x + skip];
}

/* Do the common first part of rp_term_shape and rp_mask_shape: check the description and set *ndim to 0. */
static rp_status start_shape(rp_plan *p, const rp_desc *desc, int32_t *ndim, const int64_t *shape)
{
    if (!ndim || !shape)
        return rpi_fail(RP_E_ARG, "ndim or shape is NULL; pass both");
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
        return rpi_fail(RP_E_ARG,
                        "term is %d, index is %d; they must be 0 or more, and term below %d, the number of terms",
                        (int)term, (int)index, (int)p.desc.n_terms);
    if (index < rpi_count_arrays(p.scheme[term])) {
        rpi_term_shape(p.scheme[term], &p.desc, &p.terms[term], index, &s);
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
        return rpi_fail(RP_E_ARG, "mask is %d; it must be 0 or more and below %d, the number of masks", (int)mask,
                        (int)p.desc.n_masks);
    rpi_mask_array(p.mask_entry[mask], &p.desc, &s);
    *ndim = s.ndim;
    for (int32_t x = 0; x < s.ndim; x++)
        shape[x] = s.n[x];
    return RP_OK;
}

rp_status rp_mask_row(const rp_desc *desc, int32_t mask, const rp_array *array, int64_t b, int64_t h, int64_t i,
                      int64_t *first, int64_t *end, uint8_t *keep)
{
    rp_plan p;
    rpi_shape s;
    rpi_view v = {0};
    if (!first || !end)
        return rpi_fail(RP_E_ARG, "first or end is NULL; pass both");
    rp_status status = plan_fill(&p, desc);
    if (status != RP_OK)
        return status;
    if (mask < 0 || mask >= p.desc.n_masks)
        return rpi_fail(RP_E_ARG, "mask is %d; it must be 0 or more and below %d, the number of masks", (int)mask,
                        (int)p.desc.n_masks);
    if (b < 0 || b >= p.desc.batch || h < 0 || h >= p.desc.heads || i < 0 || i >= p.desc.len_q)
        return rpi_fail(
            RP_E_RANGE,
            "batch entry %lld, head %lld, query %lld do not exist; there are %lld, %lld and %lld, counted from 0",
            (long long)b, (long long)h, (long long)i, (long long)p.desc.batch, (long long)p.desc.heads,
            (long long)p.desc.len_q);
    const rpi_mask_entry *m = p.mask_entry[mask];
    if (rpi_mask_array(m, &p.desc, &s)) {
        if (!array || !array->data)
            return rpi_fail(RP_E_ARG, "array is missing; pass the array of the mask %s", m->info.name);
        if ((status = rpi_view_of(&v, array, &s, RPI_INTEGERS, "array")) != RP_OK)
            return status;
    }
    const rpi_mask_row row = {&p.masks[mask], &v, b, h, i, i + p.desc.q_offset};
    *first = 0;
    *end = p.desc.len_k;
    if (m->interval)
        m->interval(&row, first, end);
    *first = rpi_clamp(*first, 0, p.desc.len_k);
    *end = rpi_clamp(*end, *first, p.desc.len_k);
    if (keep) {
        memset(keep, 0, (size_t)p.desc.len_k);
        memset(keep + *first, 1, (size_t)(*end - *first));
        if (m->pairs)
            m->pairs(&row, *first, *end - *first, keep + *first);
    }
    return RP_OK;
}
