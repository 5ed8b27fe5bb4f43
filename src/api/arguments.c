/* api/arguments.c -- check the arrays of a call against its plan and convert them to views. Later code does not check
 * them again. Independent of kernels.
 * SPDX-License-Identifier: Apache-2.0 */
#include "arguments.h"
#include "sources/sources.h"
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static rp_status check_array(rpi_view *v, const rp_array *a, int32_t ndim, const int64_t *n, rp_dtype dtype,
                             const char *name)
{
    rpi_shape shape = {.ndim = ndim, .min_ndim = ndim};
    memcpy(shape.n, n, (size_t)ndim * sizeof *n);
    rp_status s = rpi_view_of(v, a, &shape, RPI_FLOATS, name);
    if (s != RP_OK)
        return s;
    if (rpi_is_floating(dtype) && a->dtype != dtype)
        return rpi_fail(RP_E_ARG, "%s: dtype is %s; it must be %s, like desc.dtype", name, rp_dtype_name(a->dtype),
                        rp_dtype_name(dtype));
    return RP_OK;
}

static bool is_empty(const rp_array *a)
{
    for (int32_t x = 0; x < a->ndim; x++)
        if (a->shape[x] == 0)
            return true;
    return false;
}

/* An array without elements may have any strides: torch gives gradients of empty tensors the stride 0. */
static rp_status check_contiguous(const rp_array *a, const char *name)
{
    int32_t last = a->ndim - 1;
    if (a->shape[last] > 1 && a->stride[last] != 1 && !is_empty(a))
        return rpi_fail(RP_E_STRIDE, "%s: the stride of the last axis is %lld; it must be 1", name,
                        (long long)a->stride[last]);
    return RP_OK;
}

/* Check that the last axis is contiguous; in k, the axis of keys may be contiguous instead. Set the stride of the
 * contiguous axis in the view to 1, even if the axis has one element. */
static rp_status check_rows(rpi_view *v, const rp_array *a, bool keys, const char *name)
{
    const bool transposed = keys && a->shape[3] > 1 && a->stride[3] != 1 && !is_empty(a);
    if (!transposed) {
        v->stride[3] = 1;
        return check_contiguous(a, name);
    }
    if (a->shape[2] > 1 && a->stride[2] != 1)
        return rpi_fail(RP_E_STRIDE, "%s: the strides of keys and of the last axis are %lld and %lld; one must be 1",
                        name, (long long)a->stride[2], (long long)a->stride[3]);
    v->stride[2] = 1;
    return RP_OK;
}

/* Check that no two elements of an output share memory: with the axes sorted by stride, each stride must exceed the
 * range that the axes with shorter strides cover. */
rp_status rpi_check_output(const rp_array *a, const char *name)
{
    int32_t order[RP_MAX_AXES], n = 0;
    int64_t covered = 1;
    if (is_empty(a))
        return RP_OK;
    for (int32_t x = 0; x < a->ndim; x++) {
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
            return rpi_fail(RP_E_STRIDE,
                            "%s: stride %lld on axis %d makes elements of the output share memory; use a larger stride",
                            name, (long long)a->stride[order[k]], (int)order[k]);
        covered = step * (a->shape[order[k]] - 1) + covered;
    }
    return RP_OK;
}

static rp_status require(const rp_array *a, int64_t elements, const char *name)
{
    if (!a->data && elements > 0)
        return rpi_fail(RP_E_ARG, "%s is missing; pass this array", name);
    return RP_OK;
}

/* Check an array of a term or a mask. It may be absent if it is optional or has no elements. */
static rp_status check_named(rpi_view *v, const rp_array *a, const rpi_shape *shape, rpi_class cls, bool optional,
                             const char *name)
{
    bool empty = false;
    for (int32_t x = 0; x < shape->ndim; x++)
        empty = empty || shape->n[x] == 0;
    if (!a->data && (optional || empty))
        return RP_OK;
    const rp_status status = require(a, 1, name);
    return status == RP_OK ? rpi_view_of(v, a, shape, cls, name) : status;
}

/* For a flexible plan, set the lengths of the call from its arrays. The plan's lengths are maxima. */
static rp_status take_lengths(rp_desc *d, const rp_tensors *t)
{
    const struct {
        const char *name;
        const rp_array *a;
        int64_t *len;
    } sides[] = {{"q", &t->q, &d->len_q}, {"k", &t->k, &d->len_k}};
    if (d->flexible && t->pages.k) {
        if (t->pages.len_k < 0 || t->pages.len_k > d->len_k)
            return rpi_fail(RP_E_SHAPE, "pages.len_k is %lld; it must be 0 to %lld, the number of keys in the plan",
                            (long long)t->pages.len_k, (long long)d->len_k);
        d->len_k = t->pages.len_k;
    }
    for (int n = 0; n < 2 && d->flexible; n++) {
        /* with a range, the sequence has all rows or keys of the plan */
        const bool range = n ? t->key_from || t->key_to : t->row_from || t->row_to;
        if (!sides[n].a->data || sides[n].a->ndim != 4 || range)
            continue;
        if (sides[n].a->shape[2] > *sides[n].len || sides[n].a->shape[2] < 0)
            return rpi_fail(RP_E_SHAPE, "%s: the length is %lld; it must be 0 to %lld, the length of the plan",
                            sides[n].name, (long long)sides[n].a->shape[2], (long long)*sides[n].len);
        *sides[n].len = sides[n].a->shape[2];
    }
    return RP_OK;
}

/* The pages of keys or of values. */
typedef struct page_side {
    const char *name;
    const rp_array *a; /* the array that they replace */
    const void *const *page;
    int64_t head, key, channel; /* strides in elements */
    rpi_view *view;
} page_side;

/* Check the strides and addresses of one side, and make its view. */
static rp_status check_page_side(const rp_desc *d, const rp_pages *p, const page_side *side)
{
    int64_t span;
    if (side->a->data)
        return rpi_fail(RP_E_ARG, "%s and pages.k were both given; pass keys and values either in pages or in arrays",
                        side->name);
    if (!side->page)
        return RP_OK;
    if (side->head < 0 || side->key < 0 || !rpi_mul(side->head, d->kv_heads, 8, &span) ||
        !rpi_mul(side->key, p->page, 8, &span))
        return rpi_fail(
            RP_E_STRIDE,
            "pages: the strides of %s are %lld and %lld; they must be 0 or more elements, and spans of all heads "
            "and of a page must fit in 63 bits",
            side->name, (long long)side->head, (long long)side->key);
    if (side->channel < 0 || (side->channel != 1 && side->key != 1) || !rpi_mul(side->channel, d->dim_k, 8, &span))
        return rpi_fail(RP_E_STRIDE,
                        "pages: k_channel is %lld and k_key is %lld; k_channel must be 0 or 1, or positive with "
                        "k_key = 1, and the span of all channels must fit in 63 bits",
                        (long long)side->channel, (long long)side->key);
    for (int64_t m = 0; m < d->batch * p->per_batch; m++) {
        const bool used = m % p->per_batch * p->page < d->len_k;
        if (used && (!side->page[m] || (uintptr_t)side->page[m] % rp_dtype_size(d->dtype) != 0))
            return rpi_fail(RP_E_ARG, "pages.%s[%lld] is %s; pass the address of a page", side->name, (long long)m,
                            side->page[m] ? "not aligned to its elements" : "NULL");
    }
    *side->view = (rpi_view){.data = (void *)(uintptr_t)side->page,
                             .dtype = d->dtype,
                             .page = side->page,
                             .page_keys = p->page,
                             .per_batch = p->per_batch,
                             .stride = {0, side->head, side->key, side->channel}};
    return RP_OK;
}

/* Check keys and values in pages, and make views of them that replace k and v. */
static rp_status check_pages(rpi_args *args, const rp_tensors *t)
{
    const rp_desc *d = &args->desc;
    const rp_pages *p = &t->pages;
    if (!p->k)
        return p->v ? rpi_fail(RP_E_ARG, "pages.k is NULL and pages.v is not; set both or neither") : RP_OK;
    if (p->page < 1 || p->page > RPI_MAX_POSITION || p->len_k != d->len_k)
        return rpi_fail(RP_E_RANGE,
                        "pages.page is %lld and pages.len_k is %lld; page must be 1 to 2^60 and len_k must be %lld",
                        (long long)p->page, (long long)p->len_k, (long long)d->len_k);
    int64_t pages;
    const int64_t needed = (d->len_k + p->page - 1) / p->page;
    if (p->per_batch < needed)
        return rpi_fail(RP_E_RANGE, "pages.per_batch is %lld; %lld keys need %lld pages of %lld keys; list more pages",
                        (long long)p->per_batch, (long long)d->len_k, (long long)needed, (long long)p->page);
    if (!rpi_mul(d->batch, p->per_batch, 8, &pages))
        return rpi_fail(RP_E_RANGE,
                        "pages.per_batch is %lld; the lists of %lld batch entries do not fit in 63 bits; list fewer "
                        "pages",
                        (long long)p->per_batch, (long long)d->batch);
    const page_side keys = {"k", &t->k, p->k, p->k_head, p->k_key, p->k_channel ? p->k_channel : 1, &args->k},
                    values = {"v", &t->v, p->v, p->v_head, p->v_key, 1, &args->v};
    const rp_status s = check_page_side(d, p, &keys);
    return s == RP_OK ? check_page_side(d, p, &values) : s;
}

static rp_status check_q_offsets(rpi_args *args, const rp_tensors *t)
{
    const rpi_shape shape = {.ndim = 1, .min_ndim = 0, .ones = 1u, .n = {args->desc.batch}};
    if (!t->q_offset.data)
        return RP_OK;
    const rp_status s = rpi_view_of(&args->q_offset, &t->q_offset, &shape, RPI_INTEGERS, "tensors.q_offset");
    for (int64_t b = 0; s == RP_OK && b < args->desc.batch; b++) {
        const int64_t at = rpi_position(args, b, 0);
        if (at < -RPI_MAX_POSITION || at > RPI_MAX_POSITION || (args->q_offset.dtype == RP_U64 && at < 0))
            return rpi_fail(RP_E_RANGE, "tensors.q_offset: element %lld is %lld; it must be -2^60 to 2^60",
                            (long long)b, (long long)at);
    }
    return s;
}

/* Set the range of rows that the call computes. */
static rp_status check_rows_range(rpi_args *args, const rp_tensors *t)
{
    const int64_t rows = args->desc.len_q, to = t->row_to == 0 && t->row_from == 0 ? rows : t->row_to;
    if (t->row_from < 0 || to < t->row_from || to > rows)
        return rpi_fail(
            RP_E_RANGE,
            "tensors.row_from is %lld and tensors.row_to is %lld; they must be 0 to %lld, the number of queries "
            "of the plan, in this order",
            (long long)t->row_from, (long long)t->row_to, (long long)rows);
    args->row_from = t->row_from;
    args->row_to = to;
    return RP_OK;
}

/* Set the range of keys that the call computes, and check that it begins and ends at tiles. */
static rp_status check_range(rpi_args *args, const rp_tensors *t)
{
    const rp_desc *d = &args->desc;
    const int64_t step = rp_plan_key_step(args->plan), to = t->key_to == 0 && t->key_from == 0 ? d->len_k : t->key_to;
    if (t->key_from < 0 || to < t->key_from || to > d->len_k)
        return rpi_fail(
            RP_E_RANGE,
            "tensors.key_from is %lld and tensors.key_to is %lld; they must be 0 to %lld, the number of keys "
            "of the plan, in this order",
            (long long)t->key_from, (long long)t->key_to, (long long)d->len_k);
    args->key_from = t->key_from;
    args->key_to = to;
    if (!step && rpi_is_range(args))
        return rpi_fail(RP_E_UNSUPPORTED,
                        "the reference path computes all rows and keys in one call; choose another instruction set");
    for (int n = 0; n < 2 && step; n++) {
        const int64_t at = n ? to : t->key_from;
        if (at % step != 0 && at != d->len_k)
            return rpi_fail(
                RP_E_RANGE,
                "tensors.key_%s is %lld; it must be a multiple of %lld (rp_plan_key_step) or %lld, the number "
                "of keys",
                n ? "to" : "from", (long long)at, (long long)step, (long long)d->len_k);
    }
    if (step && args->key_from == args->key_to) /* an empty range in the last tile must not open that tile */
        args->key_from = args->key_to = to / step * step;
    if (rpi_is_range(args) && t->pages.k)
        return rpi_fail(RP_E_UNSUPPORTED, "pages were given with a range of keys or rows; pass k and v as arrays");
    return RP_OK;
}

/* Check an array that passes sums from one range of keys, or block of rows, to the next; it may be absent. */
static rp_status check_state(rpi_view *v, const rp_array *a, const rp_plan *plan, const int64_t *n, bool output,
                             const char *name)
{
    const rp_dtype real = plan->desc.dtype == RP_F64 ? RP_F64 : RP_F32;
    if (!a->data)
        return RP_OK;
    if (!plan->ops)
        return rpi_fail(RP_E_UNSUPPORTED,
                        "%s was given, but the reference path computes all pairs in one call; omit it", name);
    if (a->dtype != real)
        return rpi_fail(RP_E_ARG, "%s: dtype is %s; it must be %s, the type of the arithmetic", name,
                        rp_dtype_name(a->dtype), rp_dtype_name(real));
    rp_status s = check_array(v, a, 4, n, real, name);
    if (s == RP_OK)
        s = check_rows(v, a, false, name);
    return s == RP_OK && output ? rpi_check_output(a, name) : s;
}

/* Check the states and the own keys of a call, and that it has only outputs that a range of keys determines. */
static rp_status check_states(rpi_args *args, const rp_tensors *t)
{
    const rp_desc *d = &args->desc;
    const int64_t rows = args->row_to - args->row_from,
                  state[4] = {d->batch, d->heads, rows, rp_plan_state_width(args->plan)},
                  own[4] = {d->batch, d->kv_heads, rows, d->dim_k};
    rp_status s = check_state(&args->state_in, &t->state_in, args->plan, state, false, "state_in");
    if (s == RP_OK)
        s = check_state(&args->state_out, &t->state_out, args->plan, state, true, "state_out");
    if (s == RP_OK && t->own_keys.data)
        s = check_array(&args->own_keys, &t->own_keys, 4, own, d->dtype, "own_keys");
    if (s == RP_OK && t->own_keys.data)
        s = check_rows(&args->own_keys, &t->own_keys, false, "own_keys");
    if (s != RP_OK || !rpi_is_range(args))
        return s;
    if (t->weights.data || t->profile.data || t->key_mass.data || t->entropy.data)
        return rpi_fail(RP_E_UNSUPPORTED,
                        "%s needs all rows and keys in one call; omit key_from, key_to, row_from, row_to and the "
                        "states, or the output",
                        t->weights.data    ? "weights"
                        : t->profile.data  ? "profile"
                        : t->key_mass.data ? "key_mass"
                                           : "entropy");
    if (t->state_out.data && (t->out.data || t->lse.data))
        return rpi_fail(RP_E_ARG,
                        "%s was given with state_out; the call over the last keys of the rows computes it, "
                        "without state_out",
                        t->out.data ? "the output" : "lse");
    return RP_OK;
}

void rpi_shift_keys(const rpi_args *args, rpi_view *v, int64_t keys)
{
    if (v->data)
        v->data = (void *)((uintptr_t)v->data -
                           (uintptr_t)(args->key_from / keys * v->stride[2] * rpi_floating_size(v->dtype)));
}

/* Shift n views of rows, so that row i is query i of the sequence. */
static void shift_rows(const rpi_args *args, rpi_view *const *views, size_t n)
{
    for (size_t x = 0; x < n; x++)
        if (views[x]->data)
            views[x]->data = (void *)((uintptr_t)views[x]->data - (uintptr_t)(args->row_from * views[x]->stride[2] *
                                                                              rpi_floating_size(views[x]->dtype)));
}

/* Check the norms of pages, and make a view of them. */
static rp_status check_page_norms(rpi_args *args, const rp_tensors *t)
{
    const rp_pages *p = &t->pages;
    rpi_view *v = &args->key_norms;
    if (t->key_norms.data || !p->k)
        return rpi_fail(RP_E_ARG, "pages.norms was given %s",
                        p->k ? "with tensors.key_norms; pass only one of them"
                             : "without pages.k; set it too, or pass tensors.key_norms");
    const int64_t of_page = (p->page - 1) / RP_NORM_KEYS + 1;
    for (int64_t m = 0; m < args->desc.batch * p->per_batch; m++)
        if (m % p->per_batch * p->page < args->desc.len_k &&
            (!p->norms[m] || (uintptr_t)p->norms[m] % sizeof(float) != 0))
            return rpi_fail(RP_E_ARG, "pages.norms[%lld] is %s; pass the address of the page's norms", (long long)m,
                            p->norms[m] ? "not aligned to its elements" : "NULL");
    *v = (rpi_view){.data = (void *)(uintptr_t)p->norms,
                    .dtype = RP_F32,
                    .page = (const void *const *)p->norms,
                    .page_keys = of_page,
                    .per_batch = p->per_batch,
                    .stride = {0, of_page, 1, 1}};
    return RP_OK;
}

/* Check the shape and type of the norms, and make a view of them. The array may be longer than the call needs, because
 * a cache may have room for more keys. */
static rp_status check_norms(rpi_args *args, const rp_tensors *t)
{
    const rp_desc *d = &args->desc;
    const int64_t segments = (args->key_to - args->key_from + RP_NORM_KEYS - 1) / RP_NORM_KEYS;
    const rpi_shape shape = {.ndim = 3, .min_ndim = 3, .n = {d->batch, d->kv_heads, segments}};
    rp_array there = t->key_norms;
    if (t->pages.norms)
        return check_page_norms(args, t);
    if (!there.data)
        return RP_OK;
    if (there.dtype != RP_F32 && there.dtype != RP_F64)
        return rpi_fail(RP_E_ARG, "tensors.key_norms: dtype is %s; it must be f32 or f64", rp_dtype_name(there.dtype));
    if (there.ndim == 3 && there.shape[2] > segments)
        there.shape[2] = segments;
    return rpi_view_of(&args->key_norms, &there, &shape, RPI_FLOATS, "tensors.key_norms");
}

/* Return the index of the first of n norms that is NaN or negative, or n if there is none. */
static int64_t not_a_norm(const rpi_view *v, const void *from, int64_t n)
{
    const int64_t step = v->stride[2];
    int64_t x = 0;
    if (v->dtype == RP_F32)
        for (const float *norm = from; x < n && norm[x * step] >= 0; x++)
            ;
    else
        for (const double *norm = from; x < n && norm[x * step] >= 0; x++)
            ;
    return x;
}

/* Check the norms that a call reads. Invalid norms would make it skip the wrong tiles. */
static rp_status check_known_norms(const rpi_args *args)
{
    const rpi_view *v = &args->key_norms;
    int64_t last = -1;
    if (args->key_to > args->key_from)
        rpi_norm_of_key(args, args->key_to - args->key_from - 1, &last);
    const int64_t adjacent = v->page ? v->page_keys : last + 1;
    for (int64_t b = 0; b < args->desc.batch; b++)
        for (int64_t g = 0; g < args->desc.kv_heads; g++)
            for (int64_t n = 0; n <= last; n += adjacent) {
                const int64_t count = rpi_min(adjacent, last + 1 - n),
                              wrong = not_a_norm(v, rpi_row_of(v, b, g, n), count);
                if (wrong < count)
                    return rpi_fail(RP_E_RANGE,
                                    "%s: element [%lld, %lld, %lld] is %g; it must be 0 or more; compute norms with "
                                    "rp_key_norms",
                                    v->page ? "pages.norms" : "tensors.key_norms", (long long)b, (long long)g,
                                    (long long)(n + wrong), rpi_value(rpi_row_of(v, b, g, n + wrong), v->dtype, 0));
            }
    return RP_OK;
}

/* Report an array that is given although its condition, such as "scaling=longrope ? [dim/2] : none", excludes it, or
 * that is absent although its condition requires it. */
static rp_status refuse_conditional(const char *name, bool given, const char *condition)
{
    const int length = (int)strcspn(condition, " ");
    const bool with = !strstr(condition, "? none");
    if (given)
        return rpi_fail(RP_E_ARG, "%s was given, but it is only read %s %.*s; omit it", name, with ? "with" : "without",
                        length, condition);
    return rpi_fail(RP_E_ARG, "%s is missing; pass this array, which is needed %s %.*s", name,
                    with ? "with" : "without", length, condition);
}

/* Report an array whose axis of the batch has a wrong length, and how batch entries may share its elements. */
static rp_status refuse_entries(const char *name, int64_t given, int64_t needed, const char *sharing)
{
    return rpi_fail(RP_E_SHAPE, "%s: the first axis of the shape is %lld; it must be %lld, for the batch, or 1 (%s)",
                    name, (long long)given, (long long)needed, sharing);
}

/* Check array x of term n. */
static rp_status check_term_array(rpi_args *args, const rp_tensors *t, int32_t n, int32_t x)
{
    const rp_desc *d = &args->desc;
    const rpi_scheme *scheme = args->plan->scheme[n];
    const rp_array_use use = scheme->array[x].use;
    const rp_presence presence = scheme->array[x].presence;
    const bool given = t->term[n][x].data != NULL;
    char name[64];
    rpi_shape shape;
    if (!given && (presence == RP_OPTIONAL || presence == RP_REPLACES))
        return RP_OK;
    const rpi_class cls = use == RP_USE_POSITIONS                      ? RPI_NUMBERS
                          : use == RP_USE_TRUTH || use == RP_USE_INDEX ? RPI_INTEGERS
                                                                       : RPI_FLOATS;
    snprintf(name, sizeof name, "term[%d].%s (of %s)", (int)n, scheme->array[x].name, rp_term_name(d->terms[n].kind));
    rpi_array_shape(args->plan, d, n, x, &shape);
    if (presence == RP_CONDITIONAL && given != (shape.ndim > 0))
        return refuse_conditional(name, given, scheme->array[x].shape);
    if (presence == RP_CONDITIONAL && shape.ndim == 0)
        return RP_OK;
    const rp_array *a = &t->term[n][x];
    if (given && scheme->batch_entry && x == 0 && a->ndim == shape.ndim && a->shape[0] != shape.n[0] &&
        a->shape[0] != 1)
        return refuse_entries(name, a->shape[0], shape.n[0], scheme->sharing);
    const rp_status s = check_named(&args->term[n][x], &t->term[n][x], &shape, cls, presence != RP_NEEDED, name);
    return s == RP_OK && use == RP_USE_POSITIONS && args->term[n][x].data
               ? rpi_check_positions(&args->term[n][x], &shape, name)
               : s;
}

static rp_status check_term(rpi_args *args, const rp_tensors *t, int32_t n)
{
    const rp_desc *d = &args->desc;
    const rpi_scheme *scheme = args->plan->scheme[n];
    for (int32_t x = 0; x < rpi_count_arrays(scheme); x++) {
        const rp_status s = check_term_array(args, t, n, x);
        if (s != RP_OK)
            return s;
    }
    if (t->q_offset.data && scheme->grid)
        return rpi_fail(RP_E_UNSUPPORTED,
                        "tensors.q_offset was given, but the tokens of terms[%d] (of %s) are on a grid, which has no "
                        "offset; omit it",
                        (int)n, rp_term_name(d->terms[n].kind));
    return scheme->check_arrays ? scheme->check_arrays(d, &d->terms[n], args->term[n], n) : RP_OK;
}

static rp_status check_mask(rpi_args *args, const rp_tensors *t, int32_t n)
{
    const rp_desc *d = &args->desc;
    char name[64];
    rpi_shape shape;
    /* check again: a flexible plan was checked with other lengths */
    const rp_status s = rpi_mask_check(d, &d->masks[n], n);
    if (s != RP_OK || !rpi_mask_array(args->plan->mask_entry[n], d, &shape))
        return s;
    snprintf(name, sizeof name, "mask[%d] (of %s)", (int)n, rp_mask_name(d->masks[n].kind));
    return check_named(&args->mask[n], &t->mask[n], &shape, RPI_INTEGERS, false, name);
}

/* The lengths in the shapes of arrays[] below. */
typedef struct lengths {
    int64_t batch, heads, kv_heads, rows, keys, dim_k, dim_v, len_q, len_k, offsets;
} lengths;

/* The kinds of arrays in arrays[]. */
enum { QUERIES, KEYS, OUTPUT, STATISTIC };

#define ARRAY(name)  #name, offsetof(rp_tensors, name), offsetof(rpi_args, name)
#define LENGTH(name) offsetof(lengths, name)
/* The arrays of every call, with their shapes. The last axis of QUERIES and OUTPUT is contiguous; KEYS may be
 * transposed; a STATISTIC is an output of any floating type and any strides. */
static const struct {
    const char *name;
    size_t array, view; /* offsets in rp_tensors and rpi_args */
    int32_t ndim;
    size_t shape[4]; /* offsets in lengths */
    int kind;
} arrays[] = {
    {ARRAY(q), 4, {LENGTH(batch), LENGTH(heads), LENGTH(rows), LENGTH(dim_k)}, QUERIES},
    {ARRAY(k), 4, {LENGTH(batch), LENGTH(kv_heads), LENGTH(keys), LENGTH(dim_k)}, KEYS},
    {ARRAY(v), 4, {LENGTH(batch), LENGTH(kv_heads), LENGTH(keys), LENGTH(dim_v)}, QUERIES},
    {ARRAY(out), 4, {LENGTH(batch), LENGTH(heads), LENGTH(rows), LENGTH(dim_v)}, OUTPUT},
    {ARRAY(lse), 3, {LENGTH(batch), LENGTH(heads), LENGTH(rows)}, STATISTIC},
    {ARRAY(weights), 4, {LENGTH(batch), LENGTH(heads), LENGTH(len_q), LENGTH(len_k)}, STATISTIC},
    {ARRAY(profile), 3, {LENGTH(batch), LENGTH(heads), LENGTH(offsets)}, STATISTIC},
    {ARRAY(key_mass), 3, {LENGTH(batch), LENGTH(heads), LENGTH(len_k)}, STATISTIC},
    {ARRAY(entropy), 3, {LENGTH(batch), LENGTH(heads), LENGTH(len_q)}, STATISTIC},
};
#undef LENGTH
#undef ARRAY

/* Check the arrays of arrays[] that were given. */
static rp_status check_arrays(rpi_args *args, const rp_tensors *t)
{
    const rp_desc *d = &args->desc;
    const lengths all = {.batch = d->batch,
                         .heads = d->heads,
                         .kv_heads = d->kv_heads,
                         .rows = args->row_to - args->row_from,
                         .keys = args->key_to - args->key_from,
                         .dim_k = d->dim_k,
                         .dim_v = d->dim_v,
                         .len_q = d->len_q,
                         .len_k = d->len_k,
                         .offsets = rpi_max(d->len_q + d->len_k - 1, 0)};
    for (size_t m = 0; m < sizeof arrays / sizeof *arrays; m++) {
        const rp_array *a = (const rp_array *)(const void *)((const char *)t + arrays[m].array);
        rpi_view *v = (rpi_view *)(void *)((char *)args + arrays[m].view);
        const int kind = arrays[m].kind;
        int64_t n[4] = {0};
        if (!a->data)
            continue;
        for (int32_t x = 0; x < arrays[m].ndim; x++)
            memcpy(&n[x], (const char *)&all + arrays[m].shape[x], sizeof n[x]);
        /* RP_BOOL is not a floating type, so check_array accepts all of them */
        rp_status s = check_array(v, a, arrays[m].ndim, n, kind == STATISTIC ? RP_BOOL : d->dtype, arrays[m].name);
        if (s == RP_OK && kind != STATISTIC)
            s = check_rows(v, a, kind == KEYS, arrays[m].name);
        if (s == RP_OK && (kind == OUTPUT || kind == STATISTIC))
            s = rpi_check_output(a, arrays[m].name);
        if (s != RP_OK)
            return s;
    }
    return RP_OK;
}

/* What a call reads besides arrays[], and so what is checked. */
typedef struct reads {
    unsigned forms; /* of the terms whose arrays it reads: bit RPI_OFFSET, … */
    bool masks;
    bool norms;         /* of keys in pages */
    bool known_norms;   /* the caller's norms of keys, which must fit the plan */
    bool prepared_only; /* value of rpi_args.prepared_only */
} reads;
static const reads attend_reads = {.forms = ~0u, .masks = true, .norms = true, .known_norms = true};
static const reads prepare_reads = {.forms = 1u << RPI_OFFSET | 1u << RPI_ROTATE, .prepared_only = true};
static const reads key_norms_reads = {.norms = true};

static rp_status check_terms_and_masks(rpi_args *args, const rp_tensors *t, const reads *of)
{
    const rp_desc *d = &args->desc;
    rp_status s = RP_OK;
    for (int32_t n = 0; s == RP_OK && n < d->n_terms; n++)
        if (of->forms >> args->plan->scheme[n]->form & 1u)
            s = check_term(args, t, n);
    for (int32_t n = 0; s == RP_OK && n < d->n_masks && of->masks; n++)
        s = check_mask(args, t, n);
    return s;
}

/* Check q and k, without which no call is possible. */
static rp_status require_inputs(const rpi_args *args, const rp_tensors *t)
{
    const rp_status s = require(&t->q, args->desc.batch * (args->row_to - args->row_from), "q");
    return s == RP_OK && !t->pages.k ? require(&t->k, args->desc.batch * (args->key_to - args->key_from), "k") : s;
}

static rp_status check_args(rpi_args *args, const rp_plan *plan, const rp_tensors *t, const reads *of)
{
    if (!plan)
        return rpi_fail(RP_E_ARG, "plan is NULL; make one with rp_plan_create");
    if (!t || t->size != sizeof *t)
        return rpi_fail(RP_E_ARG, "tensors %s; start from rp_tensors_init", t ? "has another size" : "is NULL");
    memset(args, 0, sizeof *args);
    args->plan = plan;
    args->desc = plan->desc;
    rp_status s;
    if ((s = take_lengths(&args->desc, t)) != RP_OK || (s = check_rows_range(args, t)) != RP_OK ||
        (s = check_range(args, t)) != RP_OK || (s = check_arrays(args, t)) != RP_OK ||
        (s = check_q_offsets(args, t)) != RP_OK || (s = check_pages(args, t)) != RP_OK ||
        (s = check_states(args, t)) != RP_OK || (s = check_terms_and_masks(args, t, of)) != RP_OK)
        return s;
    if (t->prepared && t->prepared->plan != plan)
        return rpi_fail(RP_E_ARG, "prepared belongs to another plan; make one from this plan");
    if ((of->norms && (s = check_norms(args, t)) != RP_OK) ||
        (of->known_norms && args->key_norms.data && (s = check_known_norms(args)) != RP_OK))
        return s;
    args->pairs = t->pairs;
    args->ready = t->prepared;
    args->prepared_only = of->prepared_only;
    s = require_inputs(args, t);
    rpi_shift_keys(args, &args->k, 1);
    rpi_shift_keys(args, &args->v, 1);
    rpi_shift_keys(args, &args->key_norms, RP_NORM_KEYS);
    rpi_view *const views[] = {&args->q, &args->out, &args->lse, &args->state_in, &args->state_out, &args->own_keys};
    shift_rows(args, views, sizeof views / sizeof *views);
    return s;
}

rp_status rpi_args_check(rpi_args *args, const rp_plan *plan, const rp_tensors *t)
{
    return check_args(args, plan, t, &attend_reads);
}

rp_status rpi_args_check_prepared(rpi_args *args, const rp_plan *plan, const rp_tensors *t)
{
    return check_args(args, plan, t, &prepare_reads);
}

rp_status rpi_args_check_keys(rpi_args *args, const rp_plan *plan, const rp_tensors *t)
{
    return check_args(args, plan, t, &key_norms_reads);
}

rp_status rpi_args_check_whole(rpi_args *args, const rp_plan *plan, const rp_tensors *t)
{
    const rp_status status = rpi_args_check(args, plan, t);
    return status == RP_OK ? rpi_refuse_range(args) : status;
}

rp_status rpi_refuse_range(const rpi_args *args)
{
    if (rpi_is_range(args))
        return rpi_fail(RP_E_UNSUPPORTED,
                        "a range of keys or rows or a state was given, but this call needs all of them; omit it");
    return RP_OK;
}

/* Check that a gradient or tangent has the shape of its array and a floating type. `kind` is "gradient" or "tangent";
 * `what` receives its name, "the gradient of q". */
static rp_status check_like(rpi_view *v, const rp_array *a, const rp_array *of, const char *kind, const char *name,
                            char what[96])
{
    rpi_shape shape = {.ndim = of->ndim, .min_ndim = of->ndim};
    if (!of->data)
        return rpi_fail(RP_E_ARG, "the %s %s was given without its array; omit it, or pass the array", kind, name);
    memcpy(shape.n, of->shape, sizeof shape.n);
    snprintf(what, 96, "the %s %s", kind, name);
    return rpi_view_of(v, a, &shape, RPI_FLOATS, what);
}

/* Check that a gradient has the shape of its array and a floating type, and that its elements share no memory. */
static rp_status check_gradient(rpi_view *v, const rp_array *a, const rp_array *of, bool contiguous, const char *name)
{
    char what[96];
    if (!a->data)
        return RP_OK;
    rp_status s = check_like(v, a, of, "gradient", name, what);
    if (s == RP_OK && contiguous)
        s = check_rows(v, a, false, what);
    return s == RP_OK ? rpi_check_output(a, what) : s;
}

/* Write the name of array x of term m, "of term[0].table (of t5)", to `name`. Check that the array exists and is
 * learned, and that its scheme defines what its gradient or tangent needs. */
static rp_status check_learned(const rpi_args *args, int32_t m, int32_t x, const char *kind, char name[64])
{
    if (m >= args->desc.n_terms)
        return rpi_fail(RP_E_ARG, "the %s term[%d][%d] was given, but n_terms is %d; omit it", kind, (int)m, (int)x,
                        (int)args->desc.n_terms);
    const rp_term_kind term = args->desc.terms[m].kind;
    if (!rp_term_array(term, x))
        return rpi_fail(RP_E_ARG, "the %s term[%d][%d] was given, but %s has no array %d; omit it", kind, (int)m,
                        (int)x, rp_term_name(term), (int)x);
    snprintf(name, 64, "of term[%d].%s (of %s)", (int)m, rp_term_array(term, x), rp_term_name(term));
    if (!rp_term_array_learned(term, x))
        return rpi_fail(RP_E_ARG, "the %s %s was given, but the array is not learned and has no %s; omit it", kind,
                        name, kind);
    const char *lacks = rpi_scheme_lacks(args->plan->scheme[m], true);
    if (lacks)
        return rpi_fail(RP_E_UNSUPPORTED, "the %s %s was given: %s; see src/terms/scheme.h", kind, name, lacks);
    return RP_OK;
}

/* Set *like to the array whose shape the gradient or tangent `a` of array x of term m must have: that of the array, or,
 * if `a` has one more axis, the array of each batch entry. An array that itself has an axis for the batch has no more
 * axes; if batch entries share its elements, `a` has B of them. Return true if `a` has an array for each batch
 * entry. */
static bool of_samples(const rpi_args *args, int32_t m, int32_t x, const rp_array *a, const rp_array *of,
                       rp_array *like)
{
    rpi_shape shape;
    *like = *of;
    rpi_array_shape(args->plan, &args->desc, m, x, &shape);
    if (shape.batch && of->ndim == shape.ndim) {
        const bool broadcasts = a->ndim == of->ndim && of->shape[0] < args->desc.batch && a->shape[0] != of->shape[0];
        like->shape[0] = broadcasts ? args->desc.batch : of->shape[0];
        return broadcasts;
    }
    if (!of->data || of->ndim == RP_MAX_AXES || a->ndim != of->ndim + 1)
        return false;
    like->ndim = a->ndim;
    like->shape[0] = args->desc.batch;
    memcpy(like->shape + 1, of->shape, (size_t)of->ndim * sizeof *of->shape);
    return true;
}

/* Make the view of `a`, the gradient or tangent of an array with the given shape, after of_samples and a check. */
static rp_status view_like_array(rpi_view *v, const rp_array *a, const rp_array *of, bool per_sample,
                                 const rpi_shape *shape, const char *name)
{
    rp_array one = *a;
    if (per_sample && a->ndim > of->ndim) {
        one.ndim--;
        memmove(one.shape, a->shape + 1, (size_t)one.ndim * sizeof *one.shape);
        memmove(one.stride, a->stride + 1, (size_t)one.ndim * sizeof *one.stride);
    } else if (per_sample) {
        one.shape[0] = 1;
    }
    const rp_status s = rpi_view_of(v, &one, shape, RPI_FLOATS, name);
    v->per_sample = per_sample;
    v->sample_step = per_sample && a->shape[0] > 1 ? a->stride[0] : 0;
    return s;
}

/* Return true if a gradient has only the rows of the range: in a call over a range of rows, that of a bias with an
 * element for each pair may leave out the other rows. */
static bool has_range_rows(const rpi_args *args, int32_t term, const rp_array *a, const rp_array *of)
{
    const rp_desc *d = &args->desc;
    return args->plan->scheme[term]->in_place && rpi_is_row_range(args) && a->ndim == 4 && of->ndim == 4 &&
           of->shape[0] == d->batch && of->shape[1] == d->heads && of->shape[2] == d->len_q &&
           of->shape[3] == d->len_k && a->shape[2] == args->row_to - args->row_from;
}

/* Check the arrays that pass sums of dq from one range of keys to the next. */
static rp_status check_sums_of_rows(rpi_grads *grads, const rpi_args *args, const rp_tensors *t, const rp_grads *g)
{
    const rp_desc *d = &args->desc;
    const int64_t n[4] = {d->batch, d->heads, args->row_to - args->row_from, rp_plan_dq_width(args->plan)};
    if (t->state_in.data || t->state_out.data)
        return rpi_fail(RP_E_ARG, "%s was given to a backward call, which needs out and lse of the rows; omit it",
                        t->state_in.data ? "state_in" : "state_out");
    if (g->dq.data && g->dq_out.data)
        return rpi_fail(RP_E_ARG, "dq was given with dq_out; the call over the last keys computes it, without dq_out");
    if (g->dq_in.data && !g->dq.data && !g->dq_out.data)
        return rpi_fail(RP_E_ARG, "dq_in was given without dq and dq_out; pass one of them");
    const rp_status s = check_state(&grads->dq_in, &g->dq_in, args->plan, n, false, "dq_in");
    return s == RP_OK ? check_state(&grads->dq_out, &g->dq_out, args->plan, n, true, "dq_out") : s;
}

/* Check that a range of rows of a backward call begins and ends at blocks of rows. */
static rp_status check_row_step(const rpi_args *args)
{
    const int64_t step = rp_plan_row_step(args->plan), rows = args->desc.len_q;
    for (int n = 0; n < 2 && rpi_is_row_range(args); n++) {
        const int64_t at = n ? args->row_to : args->row_from;
        if (at % step != 0 && at != rows)
            return rpi_fail(RP_E_RANGE,
                            "tensors.row_%s is %lld; in a backward call it must be a multiple of %lld "
                            "(rp_plan_row_step) or %lld, the number of queries",
                            n ? "to" : "from", (long long)at, (long long)step, (long long)rows);
    }
    return RP_OK;
}

/* Check the arrays that pass sums of dk and dv from one range of rows to the next. */
static rp_status check_sums_of_keys(rpi_grads *grads, const rpi_args *args, const rp_grads *g)
{
    const rp_desc *d = &args->desc;
    const int64_t n[4] = {d->batch, d->heads, args->key_to - args->key_from, rp_plan_dkv_width(args->plan)};
    if (g->dkv_out.data && (g->dk.data || g->dv.data))
        return rpi_fail(RP_E_ARG, "%s was given with dkv_out; the call over the last rows computes it, without dkv_out",
                        g->dk.data ? "dk" : "dv");
    if (g->dkv_in.data && !g->dk.data && !g->dv.data && !g->dkv_out.data)
        return rpi_fail(RP_E_ARG, "dkv_in was given without dk, dv and dkv_out; pass one of them");
    const rp_status s = check_state(&grads->dkv_in, &g->dkv_in, args->plan, n, false, "dkv_in");
    return s == RP_OK ? check_state(&grads->dkv_out, &g->dkv_out, args->plan, n, true, "dkv_out") : s;
}

/* Check the gradient of array x of term m. */
static rp_status check_term_gradient(rpi_grads *grads, const rpi_args *args, const rp_tensors *t, const rp_grads *g,
                                     int32_t m, int32_t x)
{
    const rp_desc *d = &args->desc;
    const rp_array *a = &g->term[m][x];
    char name[64];
    if (!a->data)
        return RP_OK;
    rp_status s = check_learned(args, m, x, "gradient", name);
    if (s != RP_OK)
        return s;
    rpi_view v; /* has the axes of the caller's array, unlike the views in args */
    rpi_shape shape;
    const rp_array *of = &t->term[m][x];
    rp_array like;
    const bool per_sample = of_samples(args, m, x, a, of, &like), range = has_range_rows(args, m, a, of);
    rpi_array_shape(args->plan, d, m, x, &shape);
    if (range)
        like.shape[2] = shape.n[2] = args->row_to - args->row_from;
    s = check_gradient(&v, a, &like, false, name);
    if (s == RP_OK)
        s = view_like_array(&grads->term[m][x], a, of, per_sample, &shape, name);
    if (range)
        shift_rows(args, &(rpi_view *){&grads->term[m][x]}, 1);
    return s;
}

/* Refuse arrays of rp_tensors that a call for derivatives does not read or write. `call` is "a backward call" or the
 * name of a function, and `computes` its results. */
static rp_status refuse_forward_only(const rp_tensors *t, const char *call, const char *computes)
{
    if (t->weights.data || t->profile.data || t->key_mass.data || t->entropy.data)
        return rpi_fail(RP_E_ARG, "tensors has an output other than out and lse, but %s computes only %s; omit it",
                        call, computes);
    if (t->pages.k)
        return rpi_fail(RP_E_UNSUPPORTED, "pages were given, but %s does not support them; pass k and v as arrays",
                        call);
    return RP_OK;
}

/* Check dout, which only a backward call needs, and dlse. */
static rp_status check_output_gradients(rpi_grads *grads, const rpi_args *args, const rp_grads *g, bool second)
{
    const rp_desc *d = &args->desc;
    const int64_t rows = args->row_to - args->row_from, n[4] = {d->batch, d->heads, rows, d->dim_v};
    rp_status s = second ? RP_OK : require(&g->dout, d->batch * rows, "dout");
    if (s == RP_OK && g->dout.data)
        s = check_array(&grads->dout, &g->dout, 4, n, RP_BOOL, "dout");
    if (s == RP_OK && g->dout.data)
        s = check_rows(&grads->dout, &g->dout, false, "dout");
    if (s == RP_OK && g->dlse.data)
        s = check_array(&grads->dlse, &g->dlse, 3, n, RP_BOOL, "dlse");
    return s;
}

/* Check the gradients of the loss with respect to the weights and their summaries. */
static rp_status check_weight_gradients(rpi_grads *grads, const rpi_args *args, const rp_grads *g)
{
    const rp_desc *d = &args->desc;
    const int64_t rows = args->row_to - args->row_from, offsets = rpi_max(d->len_q + d->len_k - 1, 0);
    const struct {
        rpi_view *view;
        int32_t ndim;
        int64_t shape[4];
    } to[RPI_WEIGHT_GRADIENTS] = {{&grads->dweights, 4, {d->batch, d->heads, rows, d->len_k}},
                                  {&grads->dprofile, 3, {d->batch, d->heads, offsets}},
                                  {&grads->dkey_mass, 3, {d->batch, d->heads, d->len_k}},
                                  {&grads->dentropy, 3, {d->batch, d->heads, rows}}};
    for (int n = 0; n < RPI_WEIGHT_GRADIENTS; n++) {
        const char *name;
        const rp_array *a = rpi_weight_gradient(g, n, &name);
        if (!a->data)
            continue;
        if (args->key_from > 0 || args->key_to < d->len_k)
            return rpi_fail(RP_E_UNSUPPORTED, "%s needs all keys in one call; omit key_from and key_to, or %s", name,
                            name);
        const rp_status s = check_array(to[n].view, a, to[n].ndim, to[n].shape, RP_BOOL, name);
        if (s != RP_OK)
            return s;
        grads->of_weights = true;
    }
    return RP_OK;
}

/* Check the gradient or tangent of a softcap: a number, or one for each batch entry. */
static rp_status check_softcap(rpi_view *v, const rp_array *a, const rp_desc *d, int n, const char *kind)
{
    const rpi_shape shape = {.ndim = 1, .min_ndim = 0, .n = {d->batch}};
    const char *name = n == RPI_BEFORE ? "softcap" : "softcap_after";
    char what[64];
    if (!a->data)
        return RP_OK;
    if (rpi_softcap(d, n) == 0)
        return rpi_fail(RP_E_ARG, "the %s of %s was given, but desc.%s is 0, which is no softcap; omit it", kind, name,
                        name);
    snprintf(what, sizeof what, "the %s of %s", kind, name);
    const rp_status s = rpi_view_of(v, a, &shape, RPI_FLOATS, what);
    v->per_sample = a->ndim == 1;
    return s;
}

static rp_status check_gradients(rpi_grads *grads, const rpi_args *args, const rp_tensors *t, const rp_grads *g,
                                 bool second)
{
    const rp_desc *d = &args->desc;
    memset(grads, 0, sizeof *grads);
    if (!g ||
        (g->size != sizeof *g && g->size != offsetof(rp_grads, dsoftcap) && g->size != offsetof(rp_grads, dweights)))
        return rpi_fail(RP_E_ARG, "grads %s; start from rp_grads_init", g ? "has another size" : "is NULL");
    rp_status s;
    if ((s = refuse_forward_only(t, "a backward call", "gradients")) != RP_OK || (s = check_row_step(args)) != RP_OK ||
        (s = check_output_gradients(grads, args, g, second)) != RP_OK ||
        (s = check_weight_gradients(grads, args, g)) != RP_OK ||
        (s = require(&t->v, d->batch * (args->key_to - args->key_from), "v")) != RP_OK ||
        (s = check_gradient(&grads->dq, &g->dq, &t->q, true, "dq")) != RP_OK ||
        (s = check_gradient(&grads->dk, &g->dk, &t->k, true, "dk")) != RP_OK ||
        (s = check_gradient(&grads->dv, &g->dv, &t->v, true, "dv")) != RP_OK ||
        (s = check_sums_of_rows(grads, args, t, g)) != RP_OK || (s = check_sums_of_keys(grads, args, g)) != RP_OK)
        return s;
    rpi_shift_keys(args, &grads->dk, 1);
    rpi_shift_keys(args, &grads->dv, 1);
    rpi_shift_keys(args, &grads->dkv_in, 1);
    rpi_shift_keys(args, &grads->dkv_out, 1);
    rpi_view *const views[] = {&grads->dout,   &grads->dlse,     &grads->dq,      &grads->dq_in,
                               &grads->dq_out, &grads->dweights, &grads->dentropy};
    shift_rows(args, views, sizeof views / sizeof *views);
    for (int32_t m = 0; m < RP_MAX_TERMS; m++)
        for (int32_t x = 0; s == RP_OK && x < RP_MAX_ARRAYS; x++)
            s = check_term_gradient(grads, args, t, g, m, x);
    for (int n = 0; s == RP_OK && n < RPI_SOFTCAPS; n++) {
        const rp_array *a = rpi_softcap_gradient(g, n);
        s = check_softcap(&grads->softcap[n], a, d, n, "gradient");
        if (s == RP_OK && a->data)
            s = rpi_check_output(a, n == RPI_BEFORE ? "dsoftcap" : "dsoftcap_after");
    }
    return s;
}

rp_status rpi_backward_check(rpi_args *args, rpi_grads *grads, const rp_plan *plan, const rp_tensors *t,
                             const rp_grads *g)
{
    rp_status status = rpi_args_check(args, plan, t);
    if (status == RP_OK)
        status = check_gradients(grads, args, t, g, false);
    return status == RP_OK ? rpi_derivatives_overlap(plan, t, g, NULL) : status;
}

/* Check the tangent of q, k or v. */
static rp_status check_tangent(rpi_view *v, const rp_array *a, const rp_array *of, bool keys, const char *name)
{
    char what[96];
    if (!a->data)
        return RP_OK;
    const rp_status s = check_like(v, a, of, "tangent", name, what);
    return s == RP_OK ? check_rows(v, a, keys, what) : s;
}

/* Check the tangent of array x of term m. */
static rp_status check_term_tangent(rpi_tangents *tangents, const rpi_args *args, const rp_tensors *t,
                                    const rp_tangents *given, int32_t m, int32_t x)
{
    const rp_array *a = &given->term[m][x];
    rpi_view v; /* has the axes of the caller's array, unlike the views in args */
    rpi_shape shape;
    char name[64], what[96];
    if (!a->data)
        return RP_OK;
    const rp_array *of = &t->term[m][x];
    rp_array like;
    rp_status s = check_learned(args, m, x, "tangent", name);
    if (s != RP_OK)
        return s;
    const bool per_sample = of_samples(args, m, x, a, of, &like);
    rpi_array_shape(args->plan, &args->desc, m, x, &shape);
    s = check_like(&v, a, &like, "tangent", name, what);
    return s == RP_OK ? view_like_array(&tangents->term[m][x], a, of, per_sample, &shape, name) : s;
}

/* Check the tangents of out and lse, which are outputs. */
static rp_status check_output_tangents(rpi_tangents *tangents, const rpi_args *args, const rp_tensors *t,
                                       const rp_tangents *given)
{
    const rp_desc *d = &args->desc;
    const int64_t n[4] = {d->batch, d->heads, d->len_q, d->dim_v};
    static const char out[] = "the tangent of out", lse[] = "the tangent of lse";
    rp_status s = RP_OK;
    if (given->out.data &&
        ((s = check_array(&tangents->out, &given->out, 4, n, RP_BOOL, out)) != RP_OK ||
         (s = check_rows(&tangents->out, &given->out, false, out)) != RP_OK ||
         (s = rpi_check_output(&given->out, out)) != RP_OK || (s = require(&t->v, d->batch * d->len_k, "v")) != RP_OK))
        return s;
    if (given->lse.data && (s = check_array(&tangents->lse, &given->lse, 3, n, RP_BOOL, lse)) == RP_OK)
        s = rpi_check_output(&given->lse, lse);
    return s;
}

static rp_status check_tangents(rpi_tangents *tangents, const rpi_args *args, const rp_tensors *t,
                                const rp_tangents *given)
{
    rp_status s;
    memset(tangents, 0, sizeof *tangents);
    if (!given || (given->size != sizeof *given && given->size != offsetof(rp_tangents, softcap)))
        return rpi_fail(RP_E_ARG, "tangents %s; start from rp_tangents_init", given ? "has another size" : "is NULL");
    if ((s = check_tangent(&tangents->q, &given->q, &t->q, false, "of q")) != RP_OK ||
        (s = check_tangent(&tangents->k, &given->k, &t->k, true, "of k")) != RP_OK ||
        (s = check_tangent(&tangents->v, &given->v, &t->v, false, "of v")) != RP_OK ||
        (s = check_output_tangents(tangents, args, t, given)) != RP_OK)
        return s;
    for (int32_t m = 0; m < RP_MAX_TERMS; m++)
        for (int32_t x = 0; s == RP_OK && x < RP_MAX_ARRAYS; x++)
            s = check_term_tangent(tangents, args, t, given, m, x);
    for (int n = 0; s == RP_OK && n < RPI_SOFTCAPS; n++)
        s = check_softcap(&tangents->softcap[n], rpi_softcap_tangent(given, n), &args->desc, n, "tangent");
    return s;
}

rp_status rpi_jvp_check(rpi_derivative_args *own, const rp_plan *plan, const rp_tensors *t, const rp_tangents *given)
{
    rpi_args *args = &own->args;
    rp_status s;
    if ((s = rpi_args_check_whole(args, plan, t)) != RP_OK ||
        (s = refuse_forward_only(t, "rp_jvp", "tangents")) != RP_OK ||
        (s = check_tangents(&own->tangents, args, t, given)) != RP_OK)
        return s;
    if (!given->out.data && !given->lse.data && args->desc.batch && args->desc.len_q)
        return rpi_fail(RP_E_ARG, "tangents has no output; set out or lse");
    return rpi_derivatives_overlap(plan, t, NULL, given);
}

/* Refuse gradients that rp_hvp does not read or write. */
static rp_status refuse_first_order_only(const rp_grads *g)
{
    const struct {
        const char *name;
        const rp_array *a;
    } sums[] = {{"dq_in", &g->dq_in}, {"dq_out", &g->dq_out}, {"dkv_in", &g->dkv_in}, {"dkv_out", &g->dkv_out}};
    for (size_t n = 0; n < sizeof sums / sizeof *sums; n++)
        if (sums[n].a->data)
            return rpi_fail(RP_E_UNSUPPORTED,
                            "%s was given, but rp_hvp computes all rows and keys in one call; omit it", sums[n].name);
    for (int n = 0; n < RPI_WEIGHT_GRADIENTS; n++) {
        const char *name;
        if (rpi_weight_gradient(g, n, &name)->data)
            return rpi_fail(RP_E_UNSUPPORTED, "%s was given, but rp_hvp supports only dout and dlse; omit it", name);
    }
    return RP_OK;
}

rp_status rpi_hvp_check(rpi_derivative_args *own, const rp_plan *plan, const rp_tensors *t, const rp_tangents *given,
                        const rp_grads *g)
{
    rpi_args *args = &own->args;
    rp_status s;
    if ((s = rpi_args_check_whole(args, plan, t)) != RP_OK ||
        (s = refuse_forward_only(t, "rp_hvp", "derivatives")) != RP_OK ||
        (s = check_gradients(&own->grads, args, t, g, true)) != RP_OK || (s = refuse_first_order_only(g)) != RP_OK ||
        (s = check_tangents(&own->tangents, args, t, given)) != RP_OK)
        return s;
    return rpi_derivatives_overlap(plan, t, g, given);
}

rp_status rpi_hvp_prepare(rpi_derivative_args *own)
{
    const rp_desc *d = &own->args.desc;
    own->no_dout = (rpi_arena){0};
    if (!own->grads.dout.data) {
        const int64_t at = rpi_arena_add(&own->no_dout, 1, d->dim_v, 1, sizeof(float));
        const rp_status status = rpi_arena_alloc(&own->no_dout, true, "a row of dout");
        if (status != RP_OK)
            return status;
        own->grads.dout = (rpi_view){.data = own->no_dout.base + at, .dtype = RP_F32, .stride = {0, 0, 0, 1}};
    }
    const rp_status status = rpi_args_prepare(&own->args);
    if (status != RP_OK)
        rpi_arena_free(&own->no_dout);
    return status;
}

void rpi_hvp_free(rpi_derivative_args *own)
{
    rpi_args_free(&own->args);
    rpi_arena_free(&own->no_dout);
}
