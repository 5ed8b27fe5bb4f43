/* reference/input_sums.c -- run a pass over all rows and store the gradients that it adds up. Independent of the fast
 * path.
 * SPDX-License-Identifier: Apache-2.0 */
#include "input_sums.h"
#include <math.h>
#include <string.h>

static void lay_out(rpi_input_sums *s, const rp_desc *d)
{
    rpi_arena *a = &s->memory;
    const int64_t size = sizeof(double);
    s->dq_rotated = rpi_arena_take(a, d->dim_k, 1, size);
    s->dq = rpi_arena_take(a, d->dim_k, 1, size);
    s->dk_rotated = rpi_arena_take(a, d->len_k, d->dim_k, size);
    s->dk = rpi_arena_take(a, d->len_k, d->dim_k, size);
    s->dv = rpi_arena_take(a, d->len_k, d->dim_v, size);
    s->tq_rotated = rpi_arena_take(a, d->dim_k, 1, size);
    s->tk_rotated = rpi_arena_take(a, d->len_k, d->dim_k, size);
}

rp_status rpi_input_sums_alloc(rpi_input_sums *s, const rpi_args *args, const rpi_grads *grads, bool bound)
{
    uint32_t all[RP_MAX_TERMS];
    memset(all, 0xff, sizeof all);
    memset(s, 0, sizeof *s);
    s->bound = bound;
    lay_out(s, &args->desc);
    rp_status status = rpi_arena_alloc(&s->memory, false, "the backward pass of the reference path");
    if (status != RP_OK)
        return status;
    lay_out(s, &args->desc);
    status = rpi_sums_alloc(&s->terms, args, grads, all, true);
    if (status != RP_OK)
        rpi_input_sums_free(s);
    return status;
}

void rpi_input_sums_free(rpi_input_sums *s)
{
    rpi_arena_free(&s->memory);
    rpi_arena_free(&s->terms.memory);
}

/* Return x; in a bound, replace NaN (an infinite bound times a factor of 0) by infinity. */
static double finish_bound(bool bound, double x)
{
    return !bound ? x : isnan(x) ? INFINITY : x + 0x1p-120; /* products below 2^-126 may be treated as 0 */
}

static void store(const rpi_input_sums *s, const rpi_view *v, int64_t b, int64_t h, int64_t n, int64_t width,
                  const double *rotated, const double *plain)
{
    for (int64_t c = 0; v->data && c < width; c++)
        rpi_put(v->data, v->dtype, rpi_index(v, b, h, n, c),
                finish_bound(s->bound, (rotated ? rotated[c] : 0) + plain[c]));
}

/* Return the derivative of the angle of a pair along the tangents of RoPE's arrays. */
static double angle_tangent(const rpi_input_sums *s, const rpi_row *r, bool key, int64_t n, int64_t c)
{
    double sum = 0;
    rpi_sums to = {.along = &sum};
    for (int x = 0; x < RP_MAX_ARRAYS; x++)
        to.array[x] = rpi_sample(&s->along->term[r->plan->rotate][x], r->b);
    rpi_rope_angle_grad(r->args, key, r->b, r->g, n, c, 1, &to);
    return sum;
}

/* The gradient d of query or key n, turned by angles of its channels, is complete, and so is t, which has the
 * derivatives by its tangent: add the gradients of the angles, and multiply by the transposed matrices. With a pair (x,
 * y), its tangent (x0, y0), and the tangents s[0] and s[1] of its angles, the tangent of the turned pair is T (x0, y0)
 * plus that of T, times (x, y). */
static void turn_back(rpi_input_sums *s, const rpi_row *r, bool key, int64_t n, double slack, double *d, double *t)
{
    const rp_term *term = &r->plan->terms[r->plan->rotate];
    const int64_t head = key ? r->g : r->h;
    const rpi_view *of = key ? &r->args->k : &r->args->q, *along = !s->along ? NULL : key ? &s->along->k : &s->along->q;
    rpi_sums *to = &s->terms.term[r->plan->rotate];
    to->absolute = s->bound;
    for (int64_t c = 0; c < term->dim / 2; c++) {
        int64_t u[2];
        double at[4], by[2], second[2] = {0, 0}, turn[2] = {0, 0};
        rpi_rotate_channels(term, c, &u[0], &u[1]);
        rpi_row_turn(r, key, n, c, at);
        const double x = rpi_row_value(of, r->b, head, n, u[0]), y = rpi_row_value(of, r->b, head, n, u[1]);
        const double factor = r->args->rope_factor, size = factor * (fabs(x) + fabs(y));
        for (int side = 0; along && side < 2; side++)
            turn[side] = angle_tangent(s, r, key, n, u[side] - rpi_rotation_first(term));
        const double x0 = along ? rpi_at_or_0(along, r->b, head, n, u[0]) : 0,
                     y0 = along ? rpi_at_or_0(along, r->b, head, n, u[1]) : 0;
        double *const dx = &d[u[0]], *const dy = &d[u[1]], *tx = along ? &t[u[0]] : NULL, *ty = along ? &t[u[1]] : NULL;
        if (s->bound) {
            by[0] = size * *dx + (along ? (factor * (fabs(x0) + fabs(y0)) + fabs(turn[0]) * size) * *tx : 0);
            by[1] = size * *dy + (along ? (factor * (fabs(x0) + fabs(y0)) + fabs(turn[1]) * size) * *ty : 0);
            const double sum =
                factor * (*dx + *dy) + (along ? 1.01 * factor * (fabs(turn[0]) * *tx + fabs(turn[1]) * *ty) : 0);
            *dx = *dy = sum;
        } else {
            rpi_turn_grad(x, y, *dx, *dy, at, by);
            rpi_turn(dx, dy, at, true);
            if (along) {
                rpi_turn_grad(x0, y0, *tx, *ty, at, second);
                by[0] += second[0] + turn[0] * *tx * (y * at[1] - x * at[0]);
                by[1] += second[1] - turn[1] * *ty * (y * at[2] + x * at[3]);
                *dx += turn[1] * at[2] * *ty - turn[0] * at[1] * *tx;
                *dy -= turn[0] * at[0] * *tx + turn[1] * at[3] * *ty;
            }
        }
        for (int side = 0; side < 2; side++)
            rpi_rope_angle_grad(r->args, key, r->b, r->g, n, u[side] - rpi_rotation_first(term), slack * by[side], to);
    }
}

/* The rotated gradient d of query or key n is complete: rotate it back, and add the gradients of RoPE's arrays. For
 * second derivatives, t has the derivatives by the tangent x' of the rotated row. With the angle p, its tangent p' and
 * a turn J by 90 degrees, the row is R(p) x and its tangent R(p) (x' + p' J x). So the derivative by p is the product
 * of J x with d plus that of J (x' + p' J x) with t, and -p' J t is added to the derivative by x. */
static void rotate_back(rpi_input_sums *s, const rpi_row *r, bool key, int64_t n, double *d, double *t)
{
    const rp_desc *desc = &r->args->desc;
    const double sums = (double)(desc->batch * (desc->heads * desc->len_q + desc->kv_heads * desc->len_k));
    /* d and t are bounds with the error of 1000 roundings; the sums of these gradients are in double */
    const double slack = 1 + (sums + 400) / 1000;
    if (r->plan->rotate >= 0 && rpi_rotates_channels(&r->plan->terms[r->plan->rotate])) {
        turn_back(s, r, key, n, s->bound ? slack : 1, d, t);
        return;
    }
    rpi_row_rotate(r, d, key, n, -1);
    if (r->plan->rotate < 0 || !rpi_rope_is_learned(r->args))
        return;
    const rp_term *term = &r->plan->terms[r->plan->rotate];
    const int64_t head = key ? r->g : r->h;
    if (s->along)
        rpi_row_rotate(r, t, key, n, -1);
    for (int64_t c = 0; c < term->dim / 2; c++) {
        int64_t u, v;
        rpi_rotate_channels(term, c, &u, &v);
        const rpi_view *of = key ? &r->args->k : &r->args->q, *along = !s->along ? NULL
                                                                       : key     ? &s->along->k
                                                                                 : &s->along->q;
        const double x = rpi_row_value(of, r->b, head, n, u), y = rpi_row_value(of, r->b, head, n, v);
        double g = s->bound ? fabs(x) * d[v] + fabs(y) * d[u] : rpi_rotation_grad(x, y, d[u], d[v]);
        if (along) {
            const double turn = angle_tangent(s, r, key, n, c), x0 = rpi_at_or_0(along, r->b, head, n, u),
                         y0 = rpi_at_or_0(along, r->b, head, n, v);
            if (s->bound) {
                g += (fabs(x0) + fabs(turn * y)) * t[v] + (fabs(y0) + fabs(turn * x)) * t[u];
                d[u] += 1.01 * fabs(turn) * t[v];
                d[v] += 1.01 * fabs(turn) * t[u];
            } else {
                g += rpi_rotation_grad(x0 - turn * y, y0 + turn * x, t[u], t[v]);
                d[u] += turn * t[v];
                d[v] -= turn * t[u];
            }
        }
        rpi_sums *to = &s->terms.term[r->plan->rotate];
        to->absolute = s->bound;
        rpi_rope_angle_grad(r->args, key, r->b, r->g, n, c, s->bound ? slack * g : g, to);
    }
}

/* Add up and store the gradients of q, k and v of one kv head. */
static void run_head(rpi_input_sums *s, rpi_row *r, const rpi_grads *grads, int64_t b, int64_t g,
                     void (*row)(void *context, int64_t b, int64_t h, int64_t i), void *context)
{
    const rp_desc *d = &r->args->desc;
    const int64_t group = d->heads / d->kv_heads, D = d->dim_k;
    rpi_sums_at(&s->terms, r->args, b);
    memset(s->dk_rotated, 0, (size_t)(d->len_k * D) * sizeof(double));
    memset(s->dk, 0, (size_t)(d->len_k * D) * sizeof(double));
    memset(s->dv, 0, (size_t)(d->len_k * d->dim_v) * sizeof(double));
    memset(s->tk_rotated, 0, (size_t)(d->len_k * D) * sizeof(double));
    rpi_row_at(r, b, g * group, 0); /* needed if there is no query */
    for (int64_t n = 0; n < group * d->len_q; n++) {
        const int64_t h = g * group + n / d->len_q, i = n % d->len_q;
        memset(s->dq, 0, (size_t)D * sizeof(double));
        memset(s->dq_rotated, 0, (size_t)D * sizeof(double));
        memset(s->tq_rotated, 0, (size_t)D * sizeof(double));
        memset(s->softcap, 0, sizeof s->softcap);
        row(context, b, h, i);
        for (int x = 0; x < RPI_SOFTCAPS && s->terms.softcap; x++)
            s->terms.softcap[RPI_SOFTCAPS * b + x] += s->softcap[x];
        rotate_back(s, r, false, i, s->dq_rotated, s->tq_rotated);
        store(s, &grads->dq, b, h, i, D, s->dq_rotated, s->dq);
    }
    for (int64_t j = 0; j < d->len_k; j++) {
        rotate_back(s, r, true, j, s->dk_rotated + j * D, s->tk_rotated + j * D);
        store(s, &grads->dk, b, g, j, D, s->dk_rotated + j * D, s->dk + j * D);
        store(s, &grads->dv, b, g, j, d->dim_v, NULL, s->dv + j * d->dim_v);
    }
}

/* Finish the bounds on the errors of the gradient of array x of term n. */
static void finish_bounds(rpi_input_sums *s, const rpi_args *args, int32_t n, int x)
{
    const rpi_view *v = &s->terms.term[n].array[x];
    const int64_t samples = v->per_sample ? args->desc.batch : 1;
    rpi_sums_at(&s->terms, args, 0);
    for (int64_t e = 0; e < samples * s->terms.elements[n][x]; e++)
        ((double *)v->data)[e] = finish_bound(true, ((double *)v->data)[e]);
}

rp_status rpi_input_sums_run(rpi_input_sums *s, rpi_row *r, const rpi_grads *grads,
                             void (*row)(void *context, int64_t b, int64_t h, int64_t i), void *context,
                             rpi_progress *progress)
{
    const rp_desc *d = &r->args->desc;
    for (int64_t kv = 0; kv < d->batch * d->kv_heads; kv++) {
        run_head(s, r, grads, kv / d->kv_heads, kv % d->kv_heads, row, context);
        if (progress)
            rpi_progress_step(progress);
        if (progress && rpi_progress_status(progress) != RP_OK)
            return rpi_progress_status(progress);
    }
    for (int32_t n = 0; s->bound && n < d->n_terms; n++)
        for (int x = 0; x < RP_MAX_ARRAYS; x++)
            finish_bounds(s, r->args, n, x);
    for (int64_t e = 0; s->bound && s->terms.softcap && e < RPI_SOFTCAPS * d->batch; e++)
        s->terms.softcap[e] = finish_bound(true, s->terms.softcap[e]);
    rpi_sums_store(&s->terms, r->args, grads);
    return RP_OK;
}
