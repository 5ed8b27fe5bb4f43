/* reference/second_bounds.c -- bounds on the errors of second derivatives. docs/maintainers/numerics.md derives these
 * formulas. Uses nothing of the kernels except the block sizes of their sums.
 * SPDX-License-Identifier: Apache-2.0 */
#include "bounds.h"
#include "input_sums.h"
#include "reference.h"
#include "tangents.h"
#include <string.h>

/* A derivative: its size, and a bound on its error. */
typedef struct inexact {
    double size, error;
} inexact;

typedef struct bounds {
    rpi_tangent_row t, size; /* the row; sizes, later bounds on the errors, of its scores, weights and their tangents */
    const rpi_grads *grads;
    rpi_input_sums in;
    double largest;   /* summands up to this size cannot make a sum over keys or rows overflow */
    double roundings; /* relative error of the sums over keys and rows */
    double *p, *r;    /* [Lk] as in second_order.c */
    double *out;      /* [Dv] bounds of the tangent of out */
    double *dout;     /* [Dv] |dout| */
    rpi_arena memory;
} bounds;

static inexact sum_of(inexact a, inexact b)
{
    return (inexact){a.size + b.size, a.error + b.error};
}

/* Return the product of two inexact numbers, before rounding. */
static inexact times(inexact a, inexact b)
{
    return (inexact){a.size * b.size, a.error * b.size + a.size * b.error + a.error * b.error};
}

/* Return x after `n` roundings. */
static inexact rounded(const bounds *s, inexact x, double n)
{
    const double u = rpi_unit(&s->t.row.args->desc);
    return (inexact){x.size, x.error + 1.01 * n * u * (x.size + x.error) + 2 * rpi_tiny(&s->t.row.args->desc)};
}

/* Return a bound on the error of a contribution x * y to a gradient. */
static double contribution(const bounds *s, inexact x, double y)
{
    return rpi_product_error(&s->t.row.args->desc, s->largest, x.size, x.error, y);
}

/* Return <dout, v_j + relval>, or with the tangents of both, times dropout's factor. Set *error to a bound on the error
 * of the kernel's sum. */
static double value_product(bounds *s, int64_t j, bool tangent, double *error)
{
    const rpi_row *row = &s->t.row;
    const rp_desc *d = &row->args->desc;
    const double factor = rpi_row_dropout(row, j), u = rpi_unit(d);
    const rpi_row_vector vector = rpi_row_vector_of(row, j);
    double sum = 0, size = 0, loss = 0;
    for (int64_t c = 0; c < d->dim_v && factor != 0; c++) {
        const double dout = rpi_at(&s->grads->dout, row->b, row->h, row->i, c),
                     plain = tangent ? rpi_at_or_0(&s->t.given->v, row->b, row->g, j, c)
                                     : rpi_row_value(&row->args->v, row->b, row->g, j, c),
                     both = tangent ? rpi_row_vector_tangent(&s->t, &vector, j, c)
                                    : plain + rpi_row_vector_channel(&vector, c),
                     other = vector.e >= 0 ? both - plain : 0;
        sum += dout * factor * both;
        size += fabs(dout) * factor * (fabs(plain) + fabs(other));
        loss += factor * (rpi_rounded_product(d, fabs(plain), 0, dout) + rpi_rounded_product(d, fabs(other), 0, dout));
    }
    *error = size > rpi_max_sum(d)
                 ? INFINITY
                 : 1.01 * u * (2 * (double)d->dim_v + rpi_tile_roundings(row->plan, d->dim_v) + 8) * size +
                       (rpi_bf16_error(d) + rpi_f16_error(row->plan)) * size + loss;
    return sum;
}

/* Add the bounds of the products of a term of form VEC. */
static void spread_vectors(bounds *s, int32_t term, int64_t j, inexact g, inexact g_tangent)
{
    const rpi_pair p = rpi_row_pair(&s->t.row, term, j);
    const double factor = fabs(rpi_vec_factor(p.scheme, p.desc));
    rpi_sums *to = &s->in.terms.term[term];
    to->q = s->in.dq;
    to->k = s->in.dk + j * p.desc->dim_k;
    g = (inexact){g.size * factor, g.error * factor};
    g_tangent = (inexact){g_tangent.size * factor, g_tangent.error * factor};
    for (int n = 0; n < 2; n++) {
        const rpi_product *product = &p.scheme->product[n];
        const int64_t e = product->count ? rpi_product_index(product, &p) : -1;
        for (int64_t c = 0; e >= 0 && c < rpi_product_width(product, &p); c++) {
            const rpi_channel x = rpi_tangent_channel(&s->t, &p, product, e, c);
            const double of_row = contribution(s, g, x.vec) + contribution(s, g_tangent, x.vec_tangent);
            if (product->vec_grad)
                product->vec_grad(&p, e, c, contribution(s, g, x.row) + contribution(s, g_tangent, x.row_tangent), to);
            if (product->query)
                product->query_grad(&p, c, of_row, to);
            else
                (product->key_side ? to->k : to->q)[c] += of_row;
        }
    }
}

/* Apply the chain rule of softcap number n to the derivatives by its result (ds) and its tangent (*ds_tangent), and add
 * the bound of the derivative by its limit. x is its argument, which is off by up to `eta`; `x_tangent` the tangent of
 * x, which is off by up to `error`. */
static inexact through_softcap(bounds *s, int n, double slope, double x, double eta, double x_tangent, double error,
                               inexact ds, inexact *ds_tangent)
{
    const rpi_row *r = &s->t.row;
    const rp_desc *d = &r->args->desc;
    const double u = rpi_unit(d), cap = rpi_softcap(d, n), limit = rpi_at_or_0(&s->t.given->softcap[n], r->b, 0, 0, 0);
    if (cap == 0)
        return ds;
    const double ratio = rpi_cap_ratio(cap, x);
    const inexact bent = {sqrt(fmax(1 - slope, 0)), fmin(eta / cap, 2) + 16 * u},
                  by = {fabs(slope), rpi_slope_error(cap, slope, eta, u)},
                  at = {fabs(ratio), fmin(eta / cap, RPI_CAPPED) + 4 * u * fabs(ratio)},
                  away = {fabs(x_tangent - ratio * limit),
                          error + fabs(limit) * at.error + 4 * u * (fabs(x_tangent) + fabs(ratio * limit))};
    inexact turned = rounded(s, times(times(bent, by), away), 8); /* the tangent of the slope, times cap / 2 */
    turned = (inexact){turned.size * 2 / cap, turned.error * 2 / cap};
    const inexact second = rounded(s, times(*ds_tangent, turned), 4), to = sum_of(rounded(s, times(ds, by), 4), second);
    if (s->grads->softcap[n].data) {
        const inexact by_limit = {fabs(rpi_cap_by_limit(cap, x)), rpi_by_limit_error(d, cap, x, eta)},
                      sum = sum_of(rounded(s, times(ds, by_limit), 4), rounded(s, times(second, at), 4));
        s->in.softcap[n] += sum.size + sum.error <= s->largest
                                ? sum.error + rpi_softcap_sums_error(d) * (sum.size + sum.error)
                                : INFINITY;
    }
    *ds_tangent = rounded(s, times(*ds_tangent, by), 4);
    return to;
}

/* Add the bounds of the derivatives of key j through its score. */
static void spread_score(bounds *s, int64_t j, inexact ds, inexact ds_tangent)
{
    const rpi_tangent_row *t = &s->t;
    const rpi_row *r = &t->row;
    const rp_desc *d = &r->args->desc;
    const int64_t D = d->dim_k;
    const double eta = s->size.row.score[j], scale = fabs(d->scale);
    inexact biased_tangent = ds_tangent;
    const inexact biased = through_softcap(s, RPI_AFTER, r->slope_after[j], r->biased[j], eta, t->biased[j],
                                           s->size.biased[j], ds, &biased_tangent);
    inexact inside_tangent = biased_tangent;
    inexact inside = through_softcap(s, RPI_BEFORE, r->slope[j], r->inside[j], eta, t->inside[j], s->size.inside[j],
                                     biased, &inside_tangent);
    const double angles = 2 * rpi_angle_error(r, j);
    inside.error += angles * (inside.size + inside.error);
    inside_tangent.error += angles * (inside_tangent.size + inside_tangent.error);
    for (int64_t c = 0; c < D; c++) {
        const double k = s->size.row.keys[j * D + c], k_tangent = s->size.keys[j * D + c], q = s->size.row.q[c],
                     q_tangent = s->size.q[c];
        const double stored =
            ((inside.size + inside.error) * k + (inside_tangent.size + inside_tangent.error) * k_tangent) *
            scale; /* sums are scaled when they are stored */
        s->in.dq_rotated[c] += stored <= s->largest
                                   ? scale * (contribution(s, inside, k) + contribution(s, inside_tangent, k_tangent))
                                   : INFINITY;
        s->in.dk_rotated[j * D + c] +=
            contribution(s, inside, q * scale) + contribution(s, inside_tangent, q_tangent * scale);
        s->in.tq_rotated[c] += scale * contribution(s, inside_tangent, k);
        s->in.tk_rotated[j * D + c] += contribution(s, inside_tangent, q * scale);
    }
    if (r->plan->vec >= 0)
        spread_vectors(s, r->plan->vec, j, inside, inside_tangent);
    for (int32_t n = 0; n < d->n_terms; n++) {
        const rpi_scheme *scheme = r->plan->scheme[n];
        if (scheme->form == RPI_VEC && scheme->bias) {
            spread_vectors(s, n, j, biased, biased_tangent);
        } else if (scheme->form == RPI_INDEX || scheme->form == RPI_OFFSET || scheme->form == RPI_TILE) {
            const rpi_pair p = rpi_row_pair(r, n, j);
            const double error = biased.size + biased.error <= s->largest ? biased.error : INFINITY;
            rpi_definition_grad(&p, error, &s->in.terms.term[n]);
            if (scheme->tangent_grad && !p.absent)
                scheme->tangent_grad(&p, biased_tangent.error, t->term[n].array, &s->in.terms.term[n]);
        }
    }
}

/* Add the bounds of the derivatives of key j through its value. */
static void spread_value(bounds *s, int64_t j, inexact weight)
{
    const rp_desc *d = &s->t.row.args->desc;
    const rpi_row_vector v = rpi_row_vector_of(&s->t.row, j);
    for (int64_t c = 0; c < d->dim_v; c++) {
        const double error = contribution(s, weight, s->dout[c]);
        s->in.dv[j * d->dim_v + c] += error;
        if (v.e >= 0)
            v.product->vec_grad(&v.pair, v.e, c, error, &s->in.terms.term[s->t.row.plan->valvec]);
    }
}

/* The numbers of a row, which all its keys use. */
typedef struct row_numbers {
    double mean, change, max_eta; /* mean of p, minus dlse; mean of y; the largest error of a score */
    double mean_error, change_error, lse_error, sink_error;
} row_numbers;

static row_numbers numbers_of_row(bounds *s)
{
    const rpi_row *row = &s->t.row;
    const rp_desc *d = &row->args->desc;
    const double u = rpi_unit(d), dlse = rpi_at_or_0(&s->grads->dlse, row->b, row->h, row->i, 0);
    row_numbers n = {.mean = -dlse, .mean_error = 2 * u * fabs(dlse)};
    n.lse_error = rpi_tangent_bound_row(&s->t, &s->size, true, s->out) + u * fabs(s->t.lse);
    n.sink_error = s->size.sink;
    for (int64_t j = 0; j < d->len_k; j++) {
        double error;
        s->p[j] = s->r[j] = 0;
        if (!row->keep[j])
            continue;
        s->p[j] = value_product(s, j, false, &error);
        s->r[j] = value_product(s, j, true, &error);
        n.mean += row->weight[j] * s->p[j];
        n.max_eta = fmax(n.max_eta, s->size.row.score[j]);
    }
    if (row->lse != -INFINITY)
        n.change = rpi_row_sink_weight(row) * (s->t.sink - s->t.lse) * (0 - n.mean);
    for (int64_t j = 0; j < d->len_k; j++)
        if (row->keep[j] && row->score[j] != -INFINITY)
            n.change += row->weight[j] * ((s->t.score[j] - s->t.lse) * (s->p[j] - n.mean) + s->r[j]);
    for (int64_t c = 0; c < d->dim_v; c++) {
        double out = 0;
        for (int64_t j = 0; j < d->len_k; j++)
            if (row->keep[j])
                out += row->weight[j] * rpi_value_size(row, j, c);
        n.mean_error += s->dout[c] * (row->out[c] + (rpi_stored(d) + 4 * u) * out);
        n.change_error += s->dout[c] * s->out[c];
    }
    n.change_error += 4 * u * fabs(n.change);
    return n;
}

static void bound_row(void *context, int64_t b, int64_t h, int64_t i)
{
    bounds *s = context;
    rpi_tangent_row *t = &s->t;
    const rpi_row *row = &t->row;
    const rp_desc *d = &row->args->desc;
    const int32_t sink = row->plan->sink;
    bool finite = true; /* NaN in dout reaches every channel of dv */
    rpi_tangent_row_at(t, b, h, i);
    rpi_row_at(&s->size.row, b, h, i);
    rpi_score_sizes(&t->row, &s->size.row);
    rpi_tangent_sizes(&s->size, t);
    for (int32_t n = 0; n < d->n_terms; n++) {
        s->in.terms.term[n].absolute = true;
        s->in.terms.term[n].rounding = rpi_gradient_rounding(d);
    }
    for (int64_t c = 0; c < d->dim_v; c++) {
        s->dout[c] = fabs(rpi_at(&s->grads->dout, b, h, i, c));
        finite &= isfinite(s->dout[c]);
    }
    const row_numbers n = numbers_of_row(s);
    if (sink >= 0 && row->lse != -INFINITY) {
        const double w = rpi_row_sink_weight(row), score = rpi_sink(row->args, b, h, i),
                     off = rpi_recomputed_weight_error(row, score, n.max_eta, w, n.sink_error);
        const inexact ahead = {fabs(t->sink - t->lse), n.lse_error}, g = {fabs(n.mean), n.mean_error},
                      y = rounded(s, sum_of(times(ahead, g), (inexact){fabs(n.change), n.change_error}), 8);
        rpi_sink_grad(row->args, b, h, i, rounded(s, times((inexact){w, off}, y), 4).error, &s->in.terms.term[sink]);
    }
    for (int64_t c = 0; c < d->dim_v && !finite; c++)
        s->dout[c] = INFINITY;
    for (int64_t j = 0; j < d->len_k; j++) {
        double p_error, r_error;
        if (!row->keep[j])
            continue;
        value_product(s, j, false, &p_error);
        value_product(s, j, true, &r_error);
        const double off =
            rpi_recomputed_weight_error(row, row->score[j], n.max_eta, row->weight[j], s->size.row.weight[j]);
        const inexact w = {row->weight[j], off},
                      ahead = rounded(s, (inexact){fabs(t->score[j] - t->lse), s->size.score[j] + n.lse_error}, 2),
                      g = rounded(s, (inexact){fabs(s->p[j] - n.mean), p_error + n.mean_error}, 2);
        /* y = ahead g + r - change: its size is that of the sum, its roundings those of the summands */
        const inexact product = times(ahead, g);
        const double parts = product.size + fabs(s->r[j]) + fabs(n.change) + product.error + r_error + n.change_error,
                     sum = fabs((t->score[j] - t->lse) * (s->p[j] - n.mean) + s->r[j] - n.change);
        const double y_error = product.error + r_error + n.change_error + 4 * rpi_unit(d) * parts;
        const inexact y = {sum, parts <= rpi_max_sum(d) ? y_error : INFINITY}, ds = rounded(s, times(w, y), 4),
                      ds_tangent = rounded(s, times(w, g), 4);
        inexact value = rounded(s, times(w, ahead), 4);
        const double factor = rpi_row_dropout(row, j), more = s->roundings;
        value = (inexact){value.size * factor, (value.error + more * (value.size + value.error)) * factor};
        spread_score(s, j, (inexact){ds.size, ds.error + more * (ds.size + ds.error)},
                     (inexact){ds_tangent.size, ds_tangent.error + more * (ds_tangent.size + ds_tangent.error)});
        spread_value(s, j, value);
    }
}

static void lay_out(bounds *s, const rp_desc *d)
{
    s->p = rpi_arena_take(&s->memory, d->len_k, 1, sizeof(double));
    s->r = rpi_arena_take(&s->memory, d->len_k, 1, sizeof(double));
    s->out = rpi_arena_take(&s->memory, d->dim_v, 1, sizeof(double));
    s->dout = rpi_arena_take(&s->memory, d->dim_v, 1, sizeof(double));
}

rp_status rpi_ref_hvp_bound(const rp_plan *plan, const rpi_args *args, const rpi_tangents *tangents,
                            const rpi_grads *results)
{
    const rp_desc *d = &args->desc;
    const double group = (double)(d->heads / d->kv_heads);
    bounds s = {.grads = results, .largest = rpi_summand_limit(d)};
    /* as in gradients.c; each sum has two products */
    s.roundings =
        2 * (1.01 * rpi_unit(d) * (2 * 512 + group * (double)(d->len_k + d->len_q) / 96 + 16 + (double)(2 * d->dim_k)) +
             3 * rpi_bf16_error(d));
    lay_out(&s, d);
    rp_status status = rpi_arena_alloc(&s.memory, false, "bounds of second derivatives");
    if (status != RP_OK)
        return status;
    lay_out(&s, d);
    if ((status = rpi_tangent_row_alloc(&s.t, plan, args, tangents)) == RP_OK &&
        (status = rpi_tangent_row_alloc(&s.size, plan, args, tangents)) == RP_OK &&
        (status = rpi_input_sums_alloc(&s.in, args, results, true)) == RP_OK) {
        s.size.row.absolute = true;
        s.in.along = tangents;
        status = rpi_input_sums_run(&s.in, &s.size.row, results, bound_row, &s, NULL);
    }
    rpi_input_sums_free(&s.in);
    rpi_tangent_row_free(&s.t);
    rpi_tangent_row_free(&s.size);
    rpi_arena_free(&s.memory);
    return status;
}
