/* reference/bounds.c -- a bound on the error of a row of out. Uses nothing of the kernels except the block sizes of
 * their sums.
 * SPDX-License-Identifier: Apache-2.0 */
#include "bounds.h"
#include "reference.h"
#include <float.h>
#include <math.h>

/* docs/maintainers/numerics.md derives these formulas. u = 2^-24. The score of key j is off by at most eta_j:
 *     eta_j = u ((Dk + c) A_j + 2 (|m| + |s_j|) + 4 + 4 T)
 * A_j is the score computed from absolute values of all summands, m the largest score, T the number of tiles. c counts
 * roundings outside the sum over Dk. The roundings of exp are included. For all scores within these errors, the weight
 * of key j is at most U_j and at least L_j:
 *     U_j = 1 / (1 + sum_(i != j) exp(s_i - s_j - eta_i - eta_j))       L_j = the same with + eta_i + eta_j
 * The weight is therefore off by at most a_j = off + u n (w_j + off), off = max(U_j - w_j, w_j - L_j), with n roundings
 * of the sums over keys, and
 *     |error| <= sum a_j |v_j| */

/* The logarithm of a sum of exp(x_j), stored so that one summand can be removed. */
typedef struct log_sum {
    int64_t at;             /* index of the largest x_j */
    double largest, others; /* largest x_j, and the logarithm of the sum over the others */
} log_sum;

/* The numbers x_j = s_j - largest ± eta_j, or -infinity where masked. Number len_k is the sink. */
typedef struct shifted {
    const rpi_row *plain, *absolute; /* absolute->score is eta */
    double largest, sink, sink_eta;
} shifted;

static double shift(const shifted *s, double sign, int64_t j)
{
    if (j == s->plain->args->desc.len_k)
        return s->sink == -INFINITY ? -INFINITY : s->sink - s->largest + sign * s->sink_eta;
    const double score = s->plain->score[j];
    return score == -INFINITY ? -INFINITY : score - s->largest + sign * s->absolute->score[j];
}

static log_sum sum_of(const shifted *s, double sign)
{
    log_sum sum = {.largest = -INFINITY, .others = -INFINITY};
    const int64_t n = s->plain->args->desc.len_k + 1;
    double second = -INFINITY, rest = 0;
    for (int64_t j = 0; j < n; j++) {
        const double x = shift(s, sign, j);
        second = fmax(second, fmin(x, sum.largest));
        if (x > sum.largest) {
            sum.largest = x;
            sum.at = j;
        }
    }
    for (int64_t j = 0; j < n && second != -INFINITY; j++)
        if (j != sum.at)
            rest += exp(shift(s, sign, j) - second);
    if (rest > 0)
        sum.others = second + log(rest);
    return sum;
}

/* Return the logarithm of the sum without summand j, which is exp(x). */
static double without(const log_sum *sum, double x, int64_t j)
{
    if (j == sum->at)
        return sum->others;
    return sum->largest + log(1 + fmax(exp(sum->others - sum->largest) - exp(x - sum->largest), 0));
}

/* Return a bound on the error of the weight w of key j (or the sink). `rounding` is the relative error of the sums over
 * keys. */
static double weight_error(const shifted *s, const log_sum *sum_low, const log_sum *sum_high, int64_t j, double w,
                           double rounding)
{
    const double low = shift(s, -1, j), high = shift(s, 1, j);
    if (high == -INFINITY)
        return 0;
    const double upper = 1 / (1 + exp(without(sum_low, low, j) - high)),
                 lower = 1 / (1 + exp(without(sum_high, high, j) - low));
    const double off = fmax(fmax(upper - w, w - lower), 0);
    /* the last term accounts for rounding the differences of exponents in double */
    return off + (w + off) * (rounding + 0x1p-51 * (2 + fabs(low) + fabs(high)));
}

double rpi_value_size(const rpi_row *r, int64_t j, int64_t x)
{
    const rpi_row_vector vector = rpi_row_vector_of(r, j);
    const double v = fabs(rpi_value(rpi_row_of(&r->args->v, r->b, r->g, j), r->args->v.dtype, x));
    return (v + fabs(rpi_row_vector_channel(&vector, x))) * rpi_row_dropout(r, j);
}

/* Return a bound on |out - exact| if weights are off by up to absolute->weight. It excludes rounding to the type of
 * out. */
static double out_error(rpi_row *plain, const rpi_row *absolute, int64_t x, double max_eta, double *size)
{
    const rp_desc *d = &plain->args->desc;
    double error = 0, sum = 0, max = 0, unnormalized = 0;
    for (int64_t j = 0; j < d->len_k; j++) {
        if (!plain->keep[j])
            continue;
        const double v = rpi_value_size(plain, j, x);
        error += absolute->weight[j] * v;
        sum += plain->weight[j] * v;
        max = fmax(max, v);
        unnormalized += exp(fmin(plain->score[j] - plain->lse + 2 * max_eta, 0)) * v;
    }
    *size = sum;
    /* weights and values below 2^-126 may be treated as 0 */
    return unnormalized <= rpi_max_sum(d) ? error + 2 * (double)d->len_k * 0x1p-126 * (max + 1) : INFINITY;
}

int64_t rpi_widest_product(const rp_plan *plan)
{
    int64_t widest = plan->desc.dim_k;
    for (int32_t m = 0; m < plan->desc.n_terms; m++)
        for (int x = 0; x < 2; x++)
            if (plan->scheme[m]->product[x].width)
                widest = rpi_max(widest, plan->scheme[m]->product[x].width(&plan->desc, &plan->terms[m]));
    return widest;
}

double rpi_score_roundings(const rp_plan *plan)
{
    const rp_desc *d = &plan->desc;
    /* products with vectors are themselves rounded sums, from which the other sums start */
    const double sums = plan->vec >= 0 || plan->n_vec ? 2 : 1;
    return sums * (double)rpi_widest_product(plan) + 4 + rpi_tile_roundings(plan, d->dim_k) + 2 * d->n_terms +
           (plan->rotate >= 0 ? 8 : 0) + (d->softcap > 0 ? 12 : 0) + (d->softcap_after > 0 ? 12 : 0);
}

double rpi_sum_roundings(const rp_plan *plan, const rp_desc *d)
{
    const rpi_ops *ops = plan->ops ? plan->ops : rpi_ops_named("generic", d->dtype == RP_F64);
    const double tiles = ceil((double)d->len_k / ops->tile_keys);
    double n = ops->sum_keys + (double)d->len_k / ops->sum_keys + (double)ops->tile_keys / ops->nr + 8 + 3 * tiles;
    if (plan->valvec >= 0)
        n += (double)ops->tile_keys / ops->vl + ops->sum_keys + (double)d->len_k / ops->sum_keys + 8 + tiles;
    return d->dropout > 0 ? n + 2 : n;
}

double rpi_angle_error(const rpi_row *r, int64_t j)
{
    const rpi_args *args = r->args;
    double largest[2] = {0, 0};
    if (r->plan->rotate < 0 || !rpi_rope_is_learned(args))
        return 0;
    if (!rpi_rope_frequencies_given(args)->data)
        return 0x1p-52 * 4; /* only cosines and sines are rounded */
    for (int key = 0; key < 2; key++)
        for (int64_t c = 0; c < r->plan->terms[r->plan->rotate].dim / 2; c++) {
            const int64_t n = key ? j : r->i;
            double size = 0;
            for (int64_t axis = 0; axis < rpi_rope_axes(args); axis++)
                size += fabs(rpi_rope_position(args, key, r->b, axis, n) *
                             rpi_rope_frequency(args, r->b, n, r->g, axis)[c]);
            largest[key] = fmax(largest[key], (double)rpi_rope_axes(args) * size);
        }
    return 0x1p-52 * (largest[0] + largest[1] + 2 * 65);
}

/* Replace the absolute scores in absolute->score by eta_j, or by infinity if a sum may overflow. Return the largest
 * eta_j. */
static double score_errors(const rpi_row *plain, rpi_row *absolute, double largest, double tiles)
{
    const rp_plan *plan = plain->plan;
    const rp_desc *d = &plain->args->desc;
    const double u = rpi_unit(d);
    const double roundings = rpi_score_roundings(plan);
    double wide = 0, max = 0;
    double range = rpi_max_sum(d); /* the largest score without overflow, before the factors of products with vectors */
    const int64_t widest = rpi_widest_product(plan);
    for (int32_t m = 0; m < d->n_terms; m++)
        if (plan->scheme[m]->form == RPI_VEC)
            range = fmin(range, rpi_max_sum(d) * fabs(rpi_vec_factor(plan->scheme[m], d)));
    for (int64_t x = 0; x < d->dim_k; x++)
        wide = fmax(wide, fabs(absolute->q[x]) * fmax(fabs(d->scale), 1));
    for (int64_t j = 0; j < d->len_k; j++) {
        const double s = plain->score[j], a = absolute->score[j];
        double far = 0; /* channels below 2^-126 may be treated as 0 */
        if (!plain->keep[j])
            continue;
        for (int64_t x = 0; x < d->dim_k; x++)
            far = fmax(far, fabs(absolute->keys[j * d->dim_k + x]));
        const double flushed = 2 * (double)widest * 0x1p-126 * (wide + far + 1);
        const double eta = 1.01 * u * (roundings * a + 2 * (fabs(largest) + fabs(s)) + 4 + 4 * tiles) +
                           (rpi_bf16_error(d) + rpi_angle_error(plain, j)) * a + flushed;
        absolute->score[j] = a <= range && wide <= rpi_max_sum(d) && far <= rpi_max_sum(d) ? eta : INFINITY;
        max = fmax(max, absolute->score[j]);
    }
    return max;
}

void rpi_score_sizes(rpi_row *plain, rpi_row *absolute)
{
    rpi_row_scores(absolute);
    for (int64_t j = 0; j < plain->args->desc.len_k; j++)
        plain->keep[j] |= absolute->keep[j];
}

double rpi_bound_row(rpi_row *plain, rpi_row *absolute, double *bound)
{
    const rp_plan *plan = plain->plan;
    const rp_desc *d = &plain->args->desc;
    const rpi_ops *ops = plan->ops ? plan->ops : rpi_ops_named("generic", d->dtype == RP_F64);
    const double u = rpi_unit(d), tiles = ceil((double)d->len_k / ops->tile_keys);
    shifted s = {plain, absolute, .sink = rpi_sink(plain->args, plain->b, plain->h, plain->i)};
    s.largest = s.sink;
    for (int64_t j = 0; j < d->len_k; j++)
        if (plain->score[j] > s.largest)
            s.largest = plain->score[j];
    const double max_eta = score_errors(plain, absolute, s.largest, tiles),
                 rounding = 1.01 * u * rpi_sum_roundings(plan, d) + 1.5 * rpi_bf16_error(d);
    s.sink_eta = 1.01 * u * (2 * (fabs(s.largest) + fabs(s.sink)) + 4 + 4 * tiles);
    const bool known = max_eta < INFINITY;
    const log_sum sum_low = known ? sum_of(&s, -1) : (log_sum){0}, sum_high = known ? sum_of(&s, 1) : (log_sum){0};
    for (int64_t j = 0; j < d->len_k; j++)
        absolute->weight[j] = known ? weight_error(&s, &sum_low, &sum_high, j, plain->weight[j], rounding) : INFINITY;
    for (int64_t x = 0; x < d->dim_v; x++) {
        double size;
        bound[x] = out_error(plain, absolute, x, max_eta, &size);
        bound[x] += rpi_stored(d) * (size + bound[x]) + (d->dtype == RP_F16 ? 0x1p-25 : 0);
        if (isnan(bound[x]))
            bound[x] = INFINITY; /* an infinite bound times a value of 0 is NaN */
    }
    if (s.sink == -INFINITY)
        return 0;
    return known ? weight_error(&s, &sum_low, &sum_high, d->len_k, exp(s.sink - plain->lse), rounding) : INFINITY;
}

double rpi_recomputed_weight_error(const rpi_row *r, double score, double eta, double w, double off)
{
    const rp_desc *d = &r->args->desc;
    const double smallest = d->dtype == RP_F64 ? 709 : 88, argument = fmin(fabs(score - r->lse) + 2 * eta, smallest),
                 lse = fmin(fabs(r->lse), rpi_lse_limit(d)), sum = log1p((double)d->len_k);
    return off + (w + off) * expm1(2.02 * rpi_unit(d) * (argument + lse + sum + 2)) + 0x1p-126;
}

rp_status rpi_ref_error_bound(const rp_plan *plan, const rpi_args *args, const rpi_view *bound)
{
    const rp_desc *d = &args->desc;
    rpi_row plain = {0}, absolute = {0};
    rp_status status = rpi_row_alloc(&plain, plan, args);
    if (status == RP_OK)
        status = rpi_row_alloc(&absolute, plan, args);
    absolute.absolute = true;
    for (int64_t b = 0; status == RP_OK && b < d->batch; b++)
        for (int64_t h = 0; h < d->heads; h++)
            for (int64_t i = 0; i < d->len_q; i++) {
                rpi_row_at(&plain, b, h, i);
                rpi_row_at(&absolute, b, h, i);
                rpi_row_scores(&plain);
                rpi_row_softmax(&plain);
                rpi_score_sizes(&plain, &absolute);
                rpi_bound_row(&plain, &absolute, plain.out);
                for (int64_t x = 0; x < d->dim_v; x++)
                    rpi_put(bound->data, bound->dtype, rpi_index(bound, b, h, i, x), plain.out[x]);
            }
    rpi_row_free(&plain);
    rpi_row_free(&absolute);
    return status;
}
