/* reference/gradients.c -- the reference path's gradients, in double, and bounds on the errors of the fast path's
 * gradients. Shares only definitions with the fast path.
 * SPDX-License-Identifier: Apache-2.0 */
#include "bounds.h"
#include "input_sums.h"
#include "reference.h"
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* The sums of gradients, or bounds on their errors, and what a row contributes to them. */
typedef struct kv_gradients {
    rpi_row row, size; /* the row, and the same row with absolute values of all summands */
    bool bound;        /* the sums are bounds on errors */
    double largest;    /* summands up to this size cannot make a sum over keys or rows overflow */
    const rpi_grads *grads;
    rpi_input_sums in;
    double *ds, *dw; /* [Lk] gradients of the scores (ds), and weights after dropout (dw) */
    double *slope_error, *slope_after_error, *size_ds; /* only for bounds: errors of the slopes, and |ds| */
    rpi_arena memory;
} kv_gradients;

static double sized(const kv_gradients *s, double x)
{
    return s->bound ? fabs(x) : x;
}

static double contribution_error(const kv_gradients *s, double a, double error, double x)
{
    return rpi_product_error(&s->row.args->desc, s->largest, a, error, x);
}

/* Add g times the derivatives of a term of form VEC with respect to queries, keys and vectors. */
static void spread_vectors(kv_gradients *s, int32_t term, int64_t j, double g, double size)
{
    const rp_desc *d = &s->row.args->desc;
    const rpi_pair p = rpi_row_pair(&s->row, term, j);
    rpi_sums *to = &s->in.terms.term[term];
    to->absolute = s->bound;
    to->q = s->in.dq;
    to->k = s->in.dk + j * d->dim_k;
    g *= sized(s, rpi_vec_factor(p.scheme, d));
    size *= fabs(rpi_vec_factor(p.scheme, d));
    for (int n = 0; n < 2; n++) {
        const rpi_product *product = &p.scheme->product[n];
        const int64_t e = product->count ? rpi_product_index(product, &p) : -1;
        for (int64_t c = 0; e >= 0 && c < rpi_product_width(product, &p); c++) {
            const double x = product->query      ? product->query(&p, c)
                             : product->key_side ? p.k[c]
                                                 : p.q[c],
                         v = product->vec(&p, e, c);
            if (product->vec_grad)
                product->vec_grad(&p, e, c, s->bound ? contribution_error(s, size, g, x) : g * x, to);
            const double of_row = s->bound ? contribution_error(s, size, g, v) : g * v;
            if (product->query)
                product->query_grad(&p, c, of_row, to);
            else
                (product->key_side ? to->k : to->q)[c] += of_row;
        }
    }
}

/* Return the row's contribution to the gradient of channel c of value j and of its vector; if `bound` is set, a bound
 * on the error of this contribution. */
static double value_contribution(const kv_gradients *s, int64_t j, int64_t c)
{
    const double weight = s->row.weight[j] * (s->bound ? rpi_row_dropout(&s->row, j) : 1);
    return s->bound ? contribution_error(s, weight, s->dw[j], s->size.out[c]) : s->dw[j] * s->size.out[c];
}

/* Return a bound on the error of ds times the slope of a softcap, from the errors of both and the size of ds. */
static double under_softcap(double error, double size, double slope, double slope_error)
{
    return error * (fabs(slope) + slope_error) + size * slope_error;
}

/* Return the contribution of key j to the gradient of softcap n with argument x. `ds` is the derivative by its result;
 * if `bound` is set, a bound on its error, and `size` its size. */
static double of_softcap(const kv_gradients *s, int n, double x, int64_t j, double ds, double size)
{
    const rp_desc *d = &s->row.args->desc;
    const double cap = rpi_softcap(d, n);
    if (!s->grads->softcap[n].data)
        return 0;
    const double by = rpi_cap_by_limit(cap, x);
    if (!s->bound)
        return ds * by;
    const double error = rpi_by_limit_error(d, cap, x, s->size.score[j]);
    return size + ds <= s->largest
               ? under_softcap(ds, size, by, error) + rpi_softcap_sums_error(d) * (size + ds) * (fabs(by) + error)
               : INFINITY;
}

/* Add one row's contributions to all gradients, from its ds and dw. */
static void spread(kv_gradients *s)
{
    rpi_row *r = &s->row;
    const rp_desc *d = &r->args->desc;
    const int64_t D = d->dim_k;
    for (int64_t j = 0; j < d->len_k; j++) {
        if (!r->keep[j] || (!s->bound && r->score[j] == -INFINITY))
            continue;
        /* plain: the derivative by the biases. inside: the derivative by the products, to which a second softcap
         * applies. If s->bound is set, both are bounds on the errors of these derivatives. */
        const double size_after = s->bound ? s->size_ds[j] : 0, size = size_after * fabs(r->slope_after[j]),
                     size_inside = size * fabs(r->slope[j]), scale = fabs(d->scale);
        const double plain = s->bound ? under_softcap(s->ds[j], size_after, r->slope_after[j], s->slope_after_error[j])
                                      : s->ds[j] * r->slope_after[j];
        const double inside = s->bound ? under_softcap(plain, size, r->slope[j], s->slope_error[j]) +
                                             2 * rpi_angle_error(r, j) * size_inside
                                       : plain * r->slope[j];
        const double outside = !s->bound || size_after + plain <= s->largest ? plain : INFINITY;
        s->in.softcap[RPI_AFTER] += of_softcap(s, RPI_AFTER, r->biased[j], j, s->ds[j], size_after);
        s->in.softcap[RPI_BEFORE] += of_softcap(s, RPI_BEFORE, r->inside[j], j, plain, size);
        for (int64_t c = 0; c < D; c++) {
            const double k = s->size.keys[j * D + c], q = s->size.q[c];
            if (s->bound) {
                const double stored = (size_inside + inside) * k * scale; /* sums are scaled when they are stored */
                s->in.dq_rotated[c] +=
                    stored <= s->largest ? scale * contribution_error(s, size_inside, inside, k) : INFINITY;
                s->in.dk_rotated[j * D + c] += contribution_error(s, size_inside, inside, q * scale);
            } else {
                s->in.dq_rotated[c] += inside * d->scale * k;
                s->in.dk_rotated[j * D + c] += inside * d->scale * q;
            }
        }
        if (r->plan->vec >= 0)
            spread_vectors(s, r->plan->vec, j, inside, size_inside);
        for (int32_t n = 0; n < d->n_terms; n++) {
            const rpi_scheme *scheme = r->plan->scheme[n];
            rpi_sums *to = &s->in.terms.term[n];
            to->absolute = s->bound;
            to->rounding = rpi_gradient_rounding(d);
            if (scheme->form == RPI_VEC && scheme->bias) {
                spread_vectors(s, n, j, outside, size);
            } else if (scheme->form == RPI_INDEX || scheme->form == RPI_OFFSET || scheme->form == RPI_TILE) {
                const rpi_pair p = rpi_row_pair(r, n, j);
                rpi_definition_grad(&p, outside, to);
            } else if (scheme->form == RPI_VALVEC) {
                const rpi_pair p = rpi_row_pair(r, n, j);
                const int64_t e = rpi_product_index(&scheme->product[0], &p);
                for (int64_t c = 0; e >= 0 && c < d->dim_v; c++)
                    scheme->product[0].vec_grad(&p, e, c, value_contribution(s, j, c), to);
            }
        }
        for (int64_t c = 0; c < d->dim_v; c++)
            s->in.dv[j * d->dim_v + c] += value_contribution(s, j, c);
    }
}

/* Return <dout_i, v_j + relval> times the factor of dropout. Set *size to the sum of absolute values, and *loss to a
 * bound on the error of treating tiny numbers as 0. */
static double weight_gradient(const kv_gradients *s, const rpi_view *dout, int64_t j, double *size, double *loss)
{
    const rpi_row *r = &s->row;
    const rp_desc *d = &r->args->desc;
    const double factor = rpi_row_dropout(r, j);
    const rpi_row_vector vector = rpi_row_vector_of(r, j);
    double sum = 0;
    *size = *loss = 0;
    for (int64_t c = 0; c < d->dim_v && factor != 0; c++) {
        const double v = rpi_value(rpi_row_of(&r->args->v, r->b, r->g, j), r->args->v.dtype, c),
                     a = rpi_row_vector_channel(&vector, c), plain = rpi_at(dout, r->b, r->h, r->i, c),
                     o = plain * factor;
        sum += o * (v + a);
        *size += fabs(o) * (fabs(v) + fabs(a));
        *loss += factor * (rpi_rounded_product(d, fabs(v), 0, plain) + rpi_rounded_product(d, fabs(a), 0, plain));
    }
    return sum;
}

/* Return the derivative of the loss with respect to the weight of key j, except through out: the gradients of weights
 * and their summaries that the caller gives. Set *size to the sum of absolute values. */
static double given_gradient(const kv_gradients *s, const rpi_grads *g, int64_t j, double *size)
{
    const rpi_row *r = &s->row;
    const rp_desc *d = &r->args->desc;
    const int64_t t = j - r->i + d->len_q - 1; /* index in profile */
    const double factor = rpi_row_dropout(r, j), log_weight = r->score[j] - r->lse;
    double part[4] = {0};
    if (r->score[j] != -INFINITY) {
        part[0] = g->dweights.data && factor != 0 ? factor * rpi_at(&g->dweights, r->b, r->h, r->i, j) : 0;
        part[1] = g->dprofile.data ? rpi_at(&g->dprofile, r->b, r->h, t, 0) / (double)rpi_offset_pairs(d, t) : 0;
        part[2] = g->dkey_mass.data ? rpi_at(&g->dkey_mass, r->b, r->h, j, 0) : 0;
        part[3] = g->dentropy.data ? -rpi_at(&g->dentropy, r->b, r->h, r->i, 0) * (1 + log_weight) : 0;
    }
    *size = fabs(part[0]) + fabs(part[1]) + fabs(part[2]) + fabs(part[3]);
    return part[0] + part[1] + part[2] + part[3];
}

/* Return the largest value that out can store without overflow. */
static double stored_most(const rp_desc *d)
{
    return d->dtype == RP_F16 ? 65504 : rpi_max_sum(d);
}

/* Return a bound on the error of given_gradient, and set *size as it does. The error comes from roundings, numbers
 * treated as 0, and the logarithm of the weight, whose score is off by up to eta. */
static double given_error(const kv_gradients *s, const rpi_grads *g, int64_t j, double eta, double *size)
{
    const rpi_row *r = &s->row;
    const rp_desc *d = &r->args->desc;
    *size = 0;
    if (!g->of_weights || r->score[j] == -INFINITY)
        return 0;
    given_gradient(s, g, j, size);
    const double of_entropy = g->dentropy.data ? fabs(rpi_at(&g->dentropy, r->b, r->h, r->i, 0)) : 0,
                 numbers = fabs(r->score[j] - r->lse) + 2 * eta + fabs(r->lse) + log1p((double)d->len_k) + 2,
                 log_error = 2 * eta + 2.02 * rpi_unit(d) * numbers;
    return *size > rpi_max_sum(d) ? INFINITY : 8 * rpi_unit(d) * *size + of_entropy * log_error + 16 * rpi_tiny(d);
}

/* Return a bound on the error of the sum of the weights times given_gradient. */
static double given_sum_error(const kv_gradients *s, const rpi_grads *g, double eta)
{
    const rpi_row *r = &s->row;
    const double u = rpi_unit(&r->args->desc);
    double error = 0;
    for (int64_t j = 0; g->of_weights && j < r->args->desc.len_k; j++) {
        double size;
        if (!r->keep[j])
            continue;
        const double one = given_error(s, g, j, eta, &size), w = r->weight[j],
                     off = rpi_recomputed_weight_error(r, r->score[j], eta, w, s->size.weight[j]);
        error += off * size + (w + off) * (one + 1.01 * u * (512 + 16) * size) + rpi_tiny(&r->args->desc);
    }
    return error;
}

/* Compute ds and dw of one row, or bounds on their errors (docs/maintainers/numerics.md, "Gradients"). */
static void row_backward(kv_gradients *s, const rpi_grads *g)
{
    const rpi_view *dout = &g->dout, *dlse = &g->dlse;
    rpi_row *r = &s->row;
    const rp_desc *d = &r->args->desc;
    const int64_t D = d->dim_k, Dv = d->dim_v;
    const double u = rpi_unit(d);
    double mean = 0, mean_error = 0, sink_error = 0, max_eta = 0;
    rpi_row_scores(r);
    rpi_row_softmax(r);
    if (s->bound)
        rpi_score_sizes(r, &s->size);
    /* until slope_error and size_ds are computed, their memory holds size and loss of <dout, v> */
    double *size = s->slope_error, *loss = s->size_ds;
    for (int64_t j = 0; j < d->len_k; j++) {
        size[j] = loss[j] = 0;
        s->dw[j] = r->score[j] == -INFINITY ? 0 : r->weight[j] * rpi_row_dropout(r, j);
        s->ds[j] = r->keep[j] && r->lse != -INFINITY ? weight_gradient(s, dout, j, &size[j], &loss[j]) : 0;
        if (g->of_weights && r->keep[j] && r->lse != -INFINITY) {
            double given;
            s->ds[j] += given_gradient(s, g, j, &given);
            size[j] += given;
        }
        if (r->keep[j]) /* a weight of 0 times an infinite value gives NaN, as in out */
            mean += r->weight[j] * s->ds[j];
    }
    if (dlse->data && r->lse != -INFINITY) {
        const double given = rpi_at(dlse, r->b, r->h, r->i, 0);
        mean -= given;
        mean_error = 2 * u * fabs(given); /* rounding of the difference */
    }
    if (s->bound) {
        double *bound = s->row.out;
        const double *eta = s->size.score, *weight_error = s->size.weight;
        sink_error = rpi_bound_row(r, &s->size, bound);
        for (int64_t j = 0; j < d->len_k; j++)
            max_eta = r->keep[j] ? fmax(max_eta, eta[j]) : max_eta;
        for (int64_t c = 0; c < Dv; c++) {
            double out = 0, largest = 0;
            for (int64_t j = 0; j < d->len_k; j++)
                if (r->keep[j]) {
                    const double v = rpi_value_size(r, j, c);
                    out += r->weight[j] * v;
                    largest = fmax(largest, v);
                }
            /* a given out may have overflowed in its type; otherwise it is at most the largest value */
            const double error =
                fmin(out + bound[c], 1.01 * largest) <= stored_most(d) ? bound[c] + rpi_stored(d) * out : INFINITY;
            mean_error += fabs(rpi_at(dout, r->b, r->h, r->i, c)) * error;
        }
        mean_error += given_sum_error(s, g, max_eta);
        if (!(fabs(mean) <= rpi_max_sum(d)))
            mean_error = INFINITY;
        for (int64_t j = 0; j < d->len_k; j++) {
            double given;
            if (!r->keep[j])
                continue;
            const double w = r->weight[j],
                         off = rpi_recomputed_weight_error(r, r->score[j], max_eta, w, weight_error[j]),
                         away = fabs(s->ds[j] - mean),
                         dp_error = size[j] > rpi_max_sum(d)
                                        ? INFINITY
                                        : (1.01 * u * (2 * (double)Dv + rpi_tile_roundings(r->plan, Dv) + 8) +
                                           rpi_bf16_error(d) + rpi_f16_error(r->plan)) *
                                                  size[j] +
                                              loss[j] + given_error(s, g, j, max_eta, &given);
            /* roundings of the later sums over keys, over queries, and over blocks of both */
            const double group = (double)(d->heads / d->kv_heads);
            const double n = 1.01 * u * (2 * 512 + group * (double)(d->len_k + d->len_q) / 96 + 16 + (double)(2 * D)) +
                             3 * rpi_bf16_error(d);
            s->size_ds[j] = w * away;
            s->ds[j] = off * away + (w + off) * (dp_error + mean_error) +
                       (4 * u + n) * (w + off) * (away + dp_error + mean_error) + 0x1p-125;
            s->slope_error[j] = rpi_slope_error(d->softcap, r->slope[j], eta[j], u);
            s->slope_after_error[j] = rpi_slope_error(d->softcap_after, r->slope_after[j], eta[j], u);
            s->dw[j] = (off + n * (w + off)) * rpi_row_dropout(r, j);
        }
    } else {
        for (int64_t j = 0; j < d->len_k; j++)
            if (r->score[j] != -INFINITY)
                s->ds[j] = r->weight[j] * (s->ds[j] - mean);
        s->size.q = r->q, s->size.keys = r->keys;
    }
    if (r->plan->sink >= 0 && r->lse != -INFINITY) { /* the sink is a key of value 0: dp = 0 */
        rpi_sums *to = &s->in.terms.term[r->plan->sink];
        const double w = rpi_row_sink_weight(r);
        to->absolute = s->bound;
        const double off =
            s->bound ? rpi_recomputed_weight_error(r, rpi_sink(r->args, r->b, r->h, r->i), max_eta, w, sink_error) : 0;
        rpi_sink_grad(r->args, r->b, r->h, r->i,
                      s->bound ? (w + off) * mean_error + off * fabs(mean) + 4 * u * (w + off) * fabs(mean) : -w * mean,
                      to);
    }
    bool finite = true; /* NaN in dout reaches every channel of dv */
    for (int64_t c = 0; c < Dv; c++)
        finite &= isfinite(rpi_at(dout, r->b, r->h, r->i, c));
    for (int64_t c = 0; c < Dv; c++)
        s->size.out[c] = s->bound && !finite ? INFINITY : sized(s, rpi_at(dout, r->b, r->h, r->i, c));
    spread(s);
}

static void lay_out(kv_gradients *s, const rp_desc *d)
{
    rpi_arena *a = &s->memory;
    const int64_t size = sizeof(double);
    s->ds = rpi_arena_take(a, d->len_k, 1, size);
    s->dw = rpi_arena_take(a, d->len_k, 1, size);
    s->slope_error = rpi_arena_take(a, d->len_k, 1, size);
    s->slope_after_error = rpi_arena_take(a, d->len_k, 1, size);
    s->size_ds = rpi_arena_take(a, d->len_k, 1, size);
}

static void kv_gradients_free(kv_gradients *s)
{
    rpi_arena_free(&s->memory);
    rpi_input_sums_free(&s->in);
    rpi_row_free(&s->row);
    rpi_row_free(&s->size);
}

static rp_status kv_gradients_alloc(kv_gradients *s, const rp_plan *plan, const rpi_args *args, const rpi_grads *grads,
                                    bool bound)
{
    const rp_desc *d = &args->desc;
    memset(s, 0, sizeof *s);
    s->bound = bound;
    s->grads = grads;
    s->largest = rpi_summand_limit(d);
    lay_out(s, d);
    rp_status status = rpi_arena_alloc(&s->memory, false, "the backward pass of the reference path");
    if (status == RP_OK) {
        lay_out(s, d);
        status = rpi_input_sums_alloc(&s->in, args, grads, bound);
    }
    if (status == RP_OK)
        status = rpi_row_alloc(&s->row, plan, args);
    if (status == RP_OK)
        status = rpi_row_alloc(&s->size, plan, args);
    s->size.absolute = bound;
    if (status != RP_OK)
        kv_gradients_free(s);
    return status;
}

static void gradient_row(void *context, int64_t b, int64_t h, int64_t i)
{
    kv_gradients *s = context;
    rpi_row_at(&s->row, b, h, i);
    rpi_row_at(&s->size, b, h, i);
    row_backward(s, s->grads);
}

static rp_status run(const rp_plan *plan, const rpi_args *args, const rpi_grads *grads, bool bound,
                     rpi_progress *progress)
{
    kv_gradients s;
    rp_status status = kv_gradients_alloc(&s, plan, args, grads, bound);
    if (status != RP_OK)
        return status;
    status = rpi_input_sums_run(&s.in, bound ? &s.size : &s.row, grads, gradient_row, &s, progress);
    kv_gradients_free(&s);
    return status;
}

rp_status rpi_ref_backward(const rp_plan *plan, const rpi_args *args, const rpi_grads *grads, rpi_progress *progress)
{
    progress->total += args->desc.batch * args->desc.kv_heads;
    return run(plan, args, grads, false, progress);
}

rp_status rpi_ref_gradient_bound(const rp_plan *plan, const rpi_args *args, const rpi_grads *bounds)
{
    return run(plan, args, bounds, true, NULL);
}
