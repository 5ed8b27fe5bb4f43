/* reference/bounds.c -- the bound of the error of a row of out. It may not know kernels, but for the sizes at which
 * they cut sums.
 * SPDX-License-Identifier: Apache-2.0 */
#include "bounds.h"
#include "reference.h"
#include <float.h>
#include <math.h>

/* docs/numerics.md derives what is evaluated here. u = 2^-24. Key j's weight is off by a factor of at most exp(eta_j):
 *     eta_j = u ((Dk + c) A_j + 2 (|top| + |s_j|) + 4 + 4 T)     A_j: the score with every summand taken absolute
 * c counts roundings beside the sum over Dk, T tiles. Then, with e_j = exp(s_j - lse + eta_j) - w_j and E = sum e_j,
 *     |error| <= (sum e_j |v_j| + S (E + u n)) / (1 - E)         S = sum w_j |v_j|, n roundings of the sums over keys.
 * eta_of, where not NULL, receives a bound on the logarithm of the factor of the weights that backward computes again,
 * whose row sum is off by E and whose lse is rounded. */
double rpi_bound_row(rpi_row *plain, rpi_row *absolute, double *bound, double *eta_of)
{
    const rp_plan *plan = plain->plan;
    const rp_desc *d = &plain->args->desc;
    const rpi_ops *ops = plan->ops ? plan->ops : rpi_ops_named("generic", d->dtype == RP_F64);
    const double u = rpi_unit(d), tiles = ceil((double)d->len_k / ops->tile_keys);
    const double tiny = (double)d->len_k * 0x1p-126; /* weights and values below 2^-126 count as 0 */
    /* on AMX tiles: 18 roundings within a chunk of 32, one for each of six products of a chunk, and what six leave
     * out */
    const double chunks = ops->amx ? 20 + 6 * ceil((double)d->dim_k / 32) - fmin((double)d->dim_k, 20) : 0;
    const double c = 4 + fmax(chunks, 0) + 2 * d->n_terms + (plan->rotate >= 0 ? 8 : 0) + (d->softcap > 0 ? 12 : 0) +
                     (d->softcap_after > 0 ? 12 : 0);
    const double sums =
        plan->vec >= 0 || plan->n_vec ? 2 : 1; /* products with vectors are rounded before they start the sums */
    double n = ops->sum_keys + (double)d->len_k / ops->sum_keys + (double)ops->tile_keys / ops->nr + 8 + 3 * tiles;
    double top = plan->sink >= 0 ? rpi_at(&plain->args->term[plan->sink][0], plain->h, 0, 0, 0) : -INFINITY, total = 0;
    int64_t widest = d->dim_k;
    for (int32_t m = 0; m < d->n_terms; m++) {
        const rpi_product *product = plan->scheme[m]->product;
        for (int x = 0; x < 2; x++)
            if (product[x].width)
                widest = rpi_max(widest, product[x].width(d, &d->terms[m]));
    }
    if (plan->valvec >= 0)
        n += (double)ops->tile_keys / ops->vl + ops->sum_keys + (double)d->len_k / ops->sum_keys + 8 + tiles;
    if (d->dropout > 0)
        n += 2;
    for (int64_t j = 0; j < d->len_k; j++)
        if (plain->score[j] > top)
            top = plain->score[j];
    for (int64_t j = 0; j < d->len_k; j++) { /* e_j takes the place of the absolute scores */
        const double s = plain->score[j], a = absolute->score[j];
        if (s == -INFINITY) {
            absolute->score[j] = 0;
            continue;
        }
        double wide = 0, far = 0; /* channels below 2^-126 count as 0 too */
        for (int64_t x = 0; x < d->dim_k; x++) {
            wide = fmax(wide, fabs(absolute->q[x] * d->scale));
            far = fmax(far, fabs(absolute->keys[j * d->dim_k + x]));
        }
        const double flushed = 2 * (double)widest * 0x1p-126 * (wide + far + 1);
        const double eta = 1.01 * u * ((sums * (double)widest + c) * a + 2 * (fabs(top) + fabs(s)) + 4 + 4 * tiles) +
                           rpi_bf16_error(d) * a + flushed;
        absolute->score[j] = exp(s - plain->lse + eta) - plain->weight[j];
        total += absolute->score[j];
        if (eta_of)
            eta_of[j] = eta + 2 * u * (fabs(plain->lse) + fabs(s) + 2);
    }
    const double rest = 1 - total, lse_error = rest > 0 ? total / rest + 1.01 * u * n : INFINITY;
    for (int64_t j = 0; eta_of && j < d->len_k; j++)
        if (plain->score[j] != -INFINITY)
            eta_of[j] += lse_error;
    for (int64_t x = 0; x < d->dim_v; x++) {
        double spread = 0, sum = 0, max = 0;
        for (int64_t j = 0; j < d->len_k; j++) {
            if (plain->score[j] == -INFINITY)
                continue;
            double v = fabs(rpi_value(rpi_row_of(&plain->args->v, plain->b, plain->g, j), plain->args->v.dtype, x));
            if (plan->valvec >= 0) {
                const rpi_pair p = rpi_row_pair(plain, plan->valvec, j);
                const rpi_product *product = &p.scheme->product[0];
                const int64_t e = rpi_product_index(product, &p);
                v += e >= 0 ? fabs(product->vec(&p, e, x)) : 0;
            }
            v *= rpi_row_dropout(plain, j);
            spread += absolute->score[j] * v;
            sum += plain->weight[j] * v;
            max = fmax(max, v);
        }
        bound[x] = rest > 0
                       ? (spread + sum * (total + 1.01 * u * n + 1.5 * rpi_bf16_error(d)) + tiny * (max + 1)) / rest
                       : INFINITY;
        bound[x] += rpi_stored(d) * (sum + bound[x]) + (d->dtype == RP_F16 ? 0x1p-25 : 0);
        if (isnan(bound[x]))
            bound[x] = INFINITY; /* an infinite bound times a value of 0 */
    }
    return lse_error;
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
                rpi_row_scores(&absolute);
                rpi_bound_row(&plain, &absolute, plain.out, NULL);
                for (int64_t x = 0; x < d->dim_v; x++)
                    rpi_put(bound->data, bound->dtype, rpi_index(bound, b, h, i, x), plain.out[x]);
            }
    rpi_row_free(&plain);
    rpi_row_free(&absolute);
    return status;
}
