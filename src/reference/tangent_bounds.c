/* reference/tangent_bounds.c -- bounds on the errors of the tangents of out and lse. docs/maintainers/numerics.md
 * derives these formulas. Uses nothing of the kernels except the block sizes of their sums.
 * SPDX-License-Identifier: Apache-2.0 */
#include "bounds.h"
#include "reference.h"
#include "tangents.h"

static double largest(const double *x, int64_t n)
{
    double most = 0;
    for (int64_t c = 0; c < n; c++)
        most = fmax(most, fabs(x[c]));
    return most;
}

/* Return a bound on the error of the tangent of a softcap with argument x, as far as it comes from the tangent of its
 * limit, besides the roundings of the product. */
static double by_limit_error(const rpi_tangent_row *t, int n, double x, double eta)
{
    const rp_desc *d = &t->row.args->desc;
    const double limit = rpi_at_or_0(&t->given->softcap[n], t->row.b, 0, 0, 0);
    return limit == 0 ? 0 : fabs(limit) * rpi_by_limit_error(d, rpi_softcap(d, n), x, eta);
}

/* Replace the sizes in absolute->inside, biased and score by bounds on the errors of these tangents. */
static void tangent_errors(const rpi_tangent_row *t, rpi_tangent_row *absolute)
{
    const rp_plan *plan = t->row.plan;
    const rp_desc *d = &t->row.args->desc;
    const int64_t D = d->dim_k;
    const double u = rpi_unit(d), *eta = absolute->row.score, widest = (double)rpi_widest_product(plan),
                 scale = fmax(fabs(d->scale), 1),
                 queries = scale * (largest(absolute->row.q, D) + largest(absolute->q, D));
    for (int64_t j = 0; j < d->len_k; j++) {
        const double keys = largest(absolute->row.keys + j * D, D) + largest(absolute->keys + j * D, D);
        const double flushed = 4 * widest * 0x1p-126 * (queries + keys + 1); /* numbers below 2^-126 may count as 0 */
        const double angles = rpi_angle_error(&t->row, j);
        const double slope = t->row.slope[j], after = t->row.slope_after[j],
                     off = rpi_slope_error(d->softcap, slope, eta[j], u),
                     off_after = rpi_slope_error(d->softcap_after, after, eta[j], u);
        /* both products of a tangent are sums of their own; the second starts from the first */
        /* tangents of rotated rows are rounded once more where RoPE's frequencies have tangents */
        const double inside = (1.01 * u * 2 * (rpi_score_roundings(plan) + (angles > 0 ? 1 : 0)) + 2 * angles) *
                                  absolute->inside[j] +
                              flushed,
                     biased = inside * (slope + off) + fabs(t->inside[j]) * off +
                              by_limit_error(t, RPI_BEFORE, t->row.inside[j], eta[j]) +
                              1.01 * u * (4 + 2 * d->n_terms) * absolute->biased[j];
        absolute->score[j] = biased * (after + off_after) + fabs(t->biased[j]) * off_after +
                             by_limit_error(t, RPI_AFTER, t->row.biased[j], eta[j]) + 4 * u * absolute->score[j];
        absolute->inside[j] = inside;
        absolute->biased[j] = biased;
    }
}

double rpi_tangent_bound_row(rpi_tangent_row *t, rpi_tangent_row *absolute, bool of_out, double *out)
{
    rpi_row *r = &t->row;
    const rp_desc *d = &r->args->desc;
    const double u = rpi_unit(d), *a = absolute->row.weight, *e = absolute->score,
                 rounding = 1.01 * u * (rpi_sum_roundings(r->plan, d) + 8),
                 tiny = 2 * (double)d->len_k * 0x1p-126; /* weights and products below 2^-126 may count as 0 */
    const double sink = rpi_bound_row(r, &absolute->row, r->out);
    const double sink_weight = r->lse == -INFINITY ? 0 : rpi_row_sink_weight(r);
    double lse = sink * fabs(t->sink) + 4 * u * (sink_weight + sink) * fabs(t->sink), most = fabs(t->sink);
    tangent_errors(t, absolute);
    absolute->sink = sink;
    for (int64_t j = 0; j < d->len_k; j++) {
        const double s = fabs(t->score[j]), p = r->weight[j] + a[j];
        if (!r->keep[j])
            continue;
        lse += a[j] * s + p * e[j] + 4 * u * p * (s + e[j]);
        most = fmax(most, s + e[j]);
    }
    lse += tiny * (most + 1);
    for (int64_t c = 0; of_out && c < d->dim_v; c++) {
        double mean = 0, mean_error = 0, sum = 0, error = 0, value = 0;
        for (int64_t j = 0; j < d->len_k; j++) {
            if (!r->keep[j])
                continue;
            const rpi_row_vector vector = rpi_row_vector_of(r, j);
            const double v = rpi_value_size(r, j, c), p = r->weight[j] + a[j], s = fabs(t->score[j]),
                         turned = fabs(rpi_row_vector_tangent(t, &vector, j, c)) * rpi_row_dropout(r, j);
            mean += r->weight[j] * v;
            mean_error += a[j] * v;
            sum += r->weight[j] * (s * v + turned);
            error += a[j] * (s * v + turned) + p * (e[j] * v + rounding * ((s + e[j]) * v + turned));
            value = fmax(value, v + turned);
        }
        error += (fabs(t->lse) + lse) * mean_error + mean * lse +
                 8 * u * (sum + error + (fabs(t->lse) + lse) * (mean + mean_error)) +
                 2 * tiny * (value + 1) * (most + 1);
        error += rpi_stored(d) * (sum + fabs(t->lse) * mean + error) + (d->dtype == RP_F16 ? 0x1p-25 : 0);
        out[c] = isnan(error) ? INFINITY : error;
    }
    lse += rpi_stored(d) * (fabs(t->lse) + lse) + (d->dtype == RP_F16 ? 0x1p-25 : 0);
    return isnan(lse) ? INFINITY : lse;
}

rp_status rpi_ref_tangent_bound(const rp_plan *plan, const rpi_args *args, const rpi_tangents *bounds)
{
    const rp_desc *d = &args->desc;
    const rpi_view *out = &bounds->out, *lse = &bounds->lse;
    rpi_tangent_row t = {0}, absolute = {0};
    rp_status status = rpi_tangent_row_alloc(&t, plan, args, bounds);
    if (status == RP_OK)
        status = rpi_tangent_row_alloc(&absolute, plan, args, bounds);
    absolute.row.absolute = true;
    rpi_arena memory = {0};
    rpi_arena_take(&memory, d->dim_v, 1, sizeof(double));
    if (status == RP_OK)
        status = rpi_arena_alloc(&memory, false, "the bounds of a row");
    double *row = status == RP_OK ? rpi_arena_take(&memory, d->dim_v, 1, sizeof(double)) : NULL;
    for (int64_t b = 0; status == RP_OK && b < d->batch; b++)
        for (int64_t h = 0; h < d->heads; h++)
            for (int64_t i = 0; i < d->len_q; i++) {
                rpi_tangent_row_at(&t, b, h, i);
                rpi_row_at(&absolute.row, b, h, i);
                rpi_score_sizes(&t.row, &absolute.row);
                rpi_tangent_sizes(&absolute, &t);
                const double of_lse = rpi_tangent_bound_row(&t, &absolute, out->data != NULL, row);
                for (int64_t c = 0; out->data && c < d->dim_v; c++)
                    rpi_put(out->data, out->dtype, rpi_index(out, b, h, i, c), row[c]);
                if (lse->data)
                    rpi_put(lse->data, lse->dtype, rpi_index(lse, b, h, i, 0), of_lse);
            }
    rpi_arena_free(&memory);
    rpi_tangent_row_free(&t);
    rpi_tangent_row_free(&absolute);
    return status;
}
