/* api/inspect.c -- functions that inspect a call with the reference path: trace a row, compute biases, and compute
 * bounds on errors. Independent of kernels.
 * SPDX-License-Identifier: Apache-2.0 */
#include "inspect.h"
#include "arguments.h"
#include "reference/reference.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

rp_status rpi_rows_begin(rpi_rows *s, const rp_plan *plan, const rp_tensors *t)
{
    memset(s, 0, sizeof *s);
    rp_status status = rpi_args_check_whole(&s->args, plan, t);
    if (status == RP_OK)
        status = rpi_args_prepare(&s->args);
    if (status != RP_OK)
        return status;
    rpi_arena_add(&s->memory, s->args.desc.len_k, 1, 1, sizeof *s->raw);
    status = rpi_arena_alloc(&s->memory, false, "a row of scores");
    s->raw = (double *)(void *)s->memory.base;
    if (status == RP_OK)
        status = rpi_row_alloc(&s->row, plan, &s->args);
    if (status != RP_OK)
        rpi_rows_end(s);
    return status;
}

void rpi_rows_end(rpi_rows *s)
{
    rpi_arena_free(&s->memory);
    rpi_row_free(&s->row);
    rpi_args_free(&s->args);
}

int rpi_rows_example(rpi_rows *s, int32_t term, int64_t h, int64_t i, int64_t j, char *to, size_t size)
{
    rpi_row_at(&s->row, 0, h, i);
    const rpi_pair p = rpi_row_pair(&s->row, term, j);
    if (p.absent)
        return snprintf(to, size, "0 (a masked position)");
    return p.scheme->example ? p.scheme->example(&p, to, size) : snprintf(to, size, "%s", p.scheme->facts.formula);
}

/* Compute the scores and weights of a row, including the scores of masked pairs. */
static rp_status score_row(rpi_rows *s, int64_t b, int64_t h, int64_t i)
{
    const rp_desc *d = &s->args.desc;
    rpi_row *r = &s->row;
    if (b < 0 || b >= d->batch || h < 0 || h >= d->heads || i < 0 || i >= d->len_q)
        return rpi_fail(
            RP_E_RANGE,
            "batch entry %lld, head %lld, query %lld do not exist; there are %lld, %lld and %lld, counted from 0",
            (long long)b, (long long)h, (long long)i, (long long)d->batch, (long long)d->heads, (long long)d->len_q);
    rpi_row_at(r, b, h, i);
    if (!r->raw)
        r->raw = s->raw; /* with r->raw, rpi_row_scores also computes the scores of masked pairs */
    rpi_row_scores(r);
    rpi_row_softmax(r);
    return RP_OK;
}

static rp_status trace_row(rpi_rows *s, int64_t b, int64_t h, int64_t i, rp_row *want)
{
    const rp_desc *d = &s->args.desc;
    rpi_row *r = &s->row;
    if (!want)
        return rpi_fail(RP_E_ARG, "row is NULL; pass the row to fill");
    if (want->out && !s->args.v.data && d->len_k)
        return rpi_fail(RP_E_ARG, "v is missing; pass this array, which out is computed from");
    r->raw = want->raw;
    r->scaled = want->scaled;
    r->bias = want->bias;
    const rp_status status = score_row(s, b, h, i);
    if (status != RP_OK)
        return status;
    if (want->out) {
        rpi_row_mix(r);
        memcpy(want->out, r->out, (size_t)d->dim_v * sizeof *r->out);
    }
    if (want->score)
        memcpy(want->score, r->score, (size_t)d->len_k * sizeof *r->score);
    for (int64_t j = 0; want->weights && j < d->len_k; j++)
        want->weights[j] = r->weight[j] * rpi_row_dropout(r, j);
    want->lse = r->lse;
    return RP_OK;
}

rp_status rp_attend_row(const rp_plan *plan, const rp_tensors *t, int64_t b, int64_t h, int64_t i, rp_row *want)
{
    rpi_rows rows;
    rp_status status = rpi_rows_begin(&rows, plan, t);
    if (status == RP_OK) {
        status = trace_row(&rows, b, h, i, want);
        rpi_rows_end(&rows);
    }
    return status;
}

rp_status rp_attend_parts(const rp_plan *plan, const rp_tensors *t, int64_t b, int64_t h, int64_t i, rp_part *part,
                          int32_t *n_parts)
{
    rpi_rows rows;
    if (!part || !n_parts)
        return rpi_fail(RP_E_ARG, "%s is NULL; pass a valid pointer", part ? "n_parts" : "part");
    rp_status status = rpi_rows_begin(&rows, plan, t);
    if (status == RP_OK) {
        status = score_row(&rows, b, h, i);
        if (status == RP_OK) {
            *n_parts = rpi_row_parts(&rows.row, part);
            rpi_row_split(&rows.row, part, *n_parts);
        }
        rpi_rows_end(&rows);
    }
    return status;
}

/* The arguments of rp_bias, and a copy of the caller's tensors with placeholders for q and k. */
typedef struct bias_arguments {
    rpi_args args;
    rp_tensors with;
} bias_arguments;

static rp_status make_bias(bias_arguments *own, const rp_plan *plan, const rp_tensors *t, int64_t b,
                           const rp_array *bias)
{
    rpi_args *args = &own->args;
    rp_tensors *with = &own->with;
    rpi_view v;
    if (!plan || !t || !bias || !bias->data)
        return rpi_fail(RP_E_ARG, "%s is NULL; pass a valid pointer", !plan ? "plan" : !t ? "tensors" : "bias");
    if (t->size != sizeof *t)
        return rpi_fail(RP_E_ARG, "tensors has another size; start from rp_tensors_init");
    /* The biases do not need q and k, but rpi_args_check does: give it placeholders. */
    *with = *t;
    rp_desc lengths = plan->desc;
    const rp_desc *d = &lengths;
    if (d->flexible && t->q.data && t->q.ndim == 4)
        lengths.len_q = t->q.shape[2];
    if (d->flexible && (t->pages.k || (t->k.data && t->k.ndim == 4)))
        lengths.len_k = t->pages.k ? t->pages.len_k : t->k.shape[2];
    with->pages = (rp_pages){0};
    const int64_t q_shape[4] = {d->batch, d->heads, d->len_q, d->dim_k},
                  k_shape[4] = {d->batch, d->kv_heads, d->len_k, d->dim_k};
    static const double placeholder = 0; /* aligned for any type; never read */
    with->q = rp_array_of(&placeholder, d->dtype, 4, q_shape);
    with->k = rp_array_of(&placeholder, d->dtype, 4, k_shape);
    rp_status status = rpi_args_check_whole(args, plan, with);
    if (status != RP_OK)
        return status;
    with->q.data = with->k.data = NULL;
    rpi_shape shape = {.ndim = 3, .min_ndim = 3, .n = {d->heads, d->len_q, d->len_k}};
    if ((status = rpi_view_of(&v, bias, &shape, RPI_FLOATS, "bias")) != RP_OK ||
        (status = rpi_check_output(bias, "bias")) != RP_OK ||
        (status = rpi_output_overlap(plan, with, bias, "bias")) != RP_OK)
        return status;
    if (b < 0 || b >= d->batch)
        return rpi_fail(RP_E_RANGE, "b is %lld; it must be 0 to %lld", (long long)b, (long long)d->batch - 1);
    if ((status = rpi_args_prepare(args)) != RP_OK)
        return status;
    rpi_ref_bias(plan, args, b, &v);
    rpi_args_free(args);
    return RP_OK;
}

rp_status rp_bias(const rp_plan *plan, const rp_tensors *t, int64_t b, const rp_array *bias)
{
    bias_arguments *own = rpi_arguments_alloc(sizeof *own);
    const rp_status status = own ? make_bias(own, plan, t, b, bias) : RP_E_NOMEM;
    free(own);
    return status;
}

static rp_status error_bound(rpi_args *args, const rp_plan *plan, const rp_tensors *t, const rp_array *bound)
{
    rpi_view v;
    rp_status status = rpi_args_check_whole(args, plan, t);
    if (status != RP_OK)
        return status;
    const rp_desc *d = &args->desc;
    const rpi_shape shape = {.ndim = 4, .min_ndim = 4, .n = {d->batch, d->heads, d->len_q, d->dim_v}};
    if (!bound || !bound->data)
        return rpi_fail(RP_E_ARG, "bound is missing; pass the array to fill");
    if ((status = rpi_view_of(&v, bound, &shape, RPI_FLOATS, "bound")) != RP_OK ||
        (status = rpi_check_output(bound, "bound")) != RP_OK ||
        (status = rpi_output_overlap(plan, t, bound, "bound")) != RP_OK)
        return status;
    if (v.dtype != RP_F64)
        return rpi_fail(RP_E_ARG, "bound: dtype is %s; it must be f64", rp_dtype_name(v.dtype));
    if (!args->v.data && d->len_k)
        return rpi_fail(RP_E_ARG, "v is missing; pass this array, which the bound is computed from");
    if ((status = rpi_args_prepare(args)) != RP_OK)
        return status;
    status = rpi_ref_error_bound(plan, args, &v);
    rpi_args_free(args);
    return status;
}

rp_status rp_error_bound(const rp_plan *plan, const rp_tensors *t, const rp_array *bound)
{
    rpi_args *args = rpi_arguments_alloc(sizeof *args);
    const rp_status status = args ? error_bound(args, plan, t, bound) : RP_E_NOMEM;
    free(args);
    return status;
}

static rp_status check_bound_types(const rpi_args *args, const rpi_grads *bound)
{
    const rpi_view *views[] = {&bound->dq, &bound->dk, &bound->dv, &bound->softcap[RPI_BEFORE],
                               &bound->softcap[RPI_AFTER]};
    const char *const names[] = {"dq", "dk", "dv", "softcap", "softcap_after"};
    for (int n = 0; n < 5; n++)
        if (views[n]->data && views[n]->dtype != RP_F64)
            return rpi_fail(RP_E_ARG, "bound of %s: dtype is %s; it must be f64", names[n],
                            rp_dtype_name(views[n]->dtype));
    for (int32_t n = 0; n < args->desc.n_terms; n++)
        for (int x = 0; x < RP_MAX_ARRAYS; x++)
            if (bound->term[n][x].data && bound->term[n][x].dtype != RP_F64)
                return rpi_fail(RP_E_ARG, "bound of term[%d].%s: dtype is %s; it must be f64", (int)n,
                                args->plan->scheme[n]->array[x].name, rp_dtype_name(bound->term[n][x].dtype));
    return RP_OK;
}

static rp_status gradient_bound(rpi_backward_args *own, const rp_plan *plan, const rp_tensors *t, const rp_grads *bound)
{
    rp_status status = rpi_backward_check(&own->args, &own->grads, plan, t, bound);
    if (status == RP_OK)
        status = rpi_refuse_range(&own->args);
    if (status == RP_OK)
        status = check_bound_types(&own->args, &own->grads);
    if (status == RP_OK)
        status = rpi_args_prepare(&own->args);
    if (status != RP_OK)
        return status;
    status = rpi_ref_gradient_bound(plan, &own->args, &own->grads);
    rpi_args_free(&own->args);
    return status;
}

rp_status rp_gradient_bound(const rp_plan *plan, const rp_tensors *t, const rp_grads *bound)
{
    rpi_backward_args *own = rpi_arguments_alloc(sizeof *own);
    const rp_status status = own ? gradient_bound(own, plan, t, bound) : RP_E_NOMEM;
    free(own);
    return status;
}

static rp_status tangent_bound(rpi_derivative_args *own, const rp_plan *plan, const rp_tensors *t,
                               const rp_tangents *bounds)
{
    const rp_array *out[] = {&bounds->out, &bounds->lse};
    rp_status status = rpi_jvp_check(own, plan, t, bounds);
    for (int n = 0; status == RP_OK && n < 2; n++)
        if (out[n]->data && out[n]->dtype != RP_F64)
            status = rpi_fail(RP_E_ARG, "bound of the tangent of %s: dtype is %s; it must be f64", n ? "lse" : "out",
                              rp_dtype_name(out[n]->dtype));
    if (status == RP_OK && !own->args.v.data && own->args.desc.batch && own->args.desc.len_k)
        status = rpi_fail(RP_E_ARG, "v is missing; pass this array, on which the bounds depend");
    if (status == RP_OK)
        status = rpi_args_prepare(&own->args);
    if (status != RP_OK)
        return status;
    status = rpi_ref_tangent_bound(plan, &own->args, &own->tangents);
    rpi_args_free(&own->args);
    return status;
}

rp_status rp_tangent_bound(const rp_plan *plan, const rp_tensors *t, const rp_tangents *bounds)
{
    rpi_derivative_args *own = rpi_arguments_alloc(sizeof *own);
    const rp_status status = own ? tangent_bound(own, plan, t, bounds) : RP_E_NOMEM;
    free(own);
    return status;
}

static rp_status hvp_bound(rpi_derivative_args *own, const rp_plan *plan, const rp_tensors *t,
                           const rp_tangents *tangents, const rp_grads *bounds)
{
    rp_status status = rpi_hvp_check(own, plan, t, tangents, bounds);
    if (status == RP_OK)
        status = check_bound_types(&own->args, &own->grads);
    if (status == RP_OK)
        status = rpi_hvp_prepare(own);
    if (status != RP_OK)
        return status;
    status = rpi_ref_hvp_bound(plan, &own->args, &own->tangents, &own->grads);
    rpi_hvp_free(own);
    return status;
}

rp_status rp_hvp_bound(const rp_plan *plan, const rp_tensors *t, const rp_tangents *tangents, const rp_grads *bounds)
{
    rpi_derivative_args *own = rpi_arguments_alloc(sizeof *own);
    const rp_status status = own ? hvp_bound(own, plan, t, tangents, bounds) : RP_E_NOMEM;
    free(own);
    return status;
}
