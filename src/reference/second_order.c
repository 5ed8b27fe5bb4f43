/* reference/second_order.c -- second derivatives in double: the gradients of Phi = <dout, out'> + <dlse, lse'>, where
 * out' and lse' are the tangents of tangents.c. Shares only definitions with the fast path.
 *
 * For a row with weights w, tangents s' of the scores, m = sum_j w_j s'_j, p_j = <dout, v_j>, r_j = <dout, v'_j>
 * (vectors of relval included, dropout's factor applied), g_j = p_j - sum_j w_j p_j + dlse and
 * y_j = (s'_j - m) g_j + r_j:
 *     dPhi/ds'_j = w_j g_j                      dPhi/ds_j = w_j (y_j - sum_j w_j y_j)
 *     dPhi/dv_j = w_j (s'_j - m) dout           dPhi/ddout = out'           dPhi/ddlse = m
 * A sink is one more key with p = r = 0. The chain rule then takes both derivatives through the softcaps and products.
 * SPDX-License-Identifier: Apache-2.0 */
#include "input_sums.h"
#include "reference.h"
#include "tangents.h"
#include <math.h>
#include <string.h>

typedef struct second_order {
    rpi_tangent_row t;
    rpi_input_sums in;
    const rpi_grads *grads;
    double *p, *r; /* [Lk] as above */
    double *dout;  /* [Dv] of the row */
    rpi_arena memory;
} second_order;

/* Add the derivatives of the products of a term of form VEC: g times those of the products, and g_tangent times those
 * of their tangents. */
static void spread_vectors(second_order *s, int32_t term, int64_t j, double g, double g_tangent)
{
    const rpi_pair p = rpi_row_pair(&s->t.row, term, j);
    const double factor = rpi_vec_factor(p.scheme, p.desc);
    rpi_sums *to = &s->in.terms.term[term];
    double *dk = s->in.dk + j * p.desc->dim_k;
    to->q = s->in.dq;
    to->k = dk;
    g *= factor;
    g_tangent *= factor;
    for (int n = 0; n < 2; n++) {
        const rpi_product *product = &p.scheme->product[n];
        const int64_t e = product->count ? rpi_product_index(product, &p) : -1;
        for (int64_t c = 0; e >= 0 && c < rpi_product_width(product, &p); c++) {
            const rpi_channel x = rpi_tangent_channel(&s->t, &p, product, e, c);
            const double of_row = g * x.vec + g_tangent * x.vec_tangent;
            if (product->vec_grad)
                product->vec_grad(&p, e, c, g * x.row + g_tangent * x.row_tangent, to);
            if (product->query)
                product->query_grad(&p, c, of_row, to);
            else
                (product->key_side ? dk : s->in.dq)[c] += of_row;
        }
    }
}

/* Apply the chain rule of a softcap with argument x: `g` and *g_tangent are the derivatives by its result and by the
 * tangent of this. Return that by x, set *g_tangent to that by its tangent, x_tangent, and add that by the limit c.
 * With u = x/c and t = tanh u, the tangent of the slope is -2 t (1 - t^2) / c (x' - u c'), and that of the derivative
 * by c is -u times as much. */
static double through_softcap(second_order *s, int n, double x, double slope, double curve, double x_tangent, double g,
                              double *g_tangent)
{
    const rpi_row *r = &s->t.row;
    const double cap = rpi_softcap(&r->args->desc, n), u = cap > 0 ? rpi_cap_ratio(cap, x) : 0,
                 limit = rpi_at_or_0(&s->t.given->softcap[n], r->b, 0, 0, 0),
                 bent = *g_tangent * curve * (x_tangent - u * limit);
    if (s->grads->softcap[n].data)
        s->in.softcap[n] += g * rpi_cap_by_limit(cap, x) - u * bent;
    *g_tangent *= slope;
    return g * slope + bent;
}

/* Add the derivatives of key j through its score: g = dPhi/ds and g_tangent = dPhi/ds'. */
static void spread_score(second_order *s, int64_t j, double g, double g_tangent)
{
    rpi_tangent_row *t = &s->t;
    const rpi_row *r = &t->row;
    const rp_desc *d = &r->args->desc;
    const int64_t D = d->dim_k;
    /* the derivatives by the sum with the biases, then by the products inside the first softcap */
    const double biased = through_softcap(s, RPI_AFTER, r->biased[j], r->slope_after[j], r->curve_after[j],
                                          t->biased[j], g, &g_tangent),
                 biased_tangent = g_tangent,
                 inside = through_softcap(s, RPI_BEFORE, r->inside[j], r->slope[j], r->curve[j], t->inside[j], biased,
                                          &g_tangent),
                 inside_tangent = g_tangent;
    for (int64_t c = 0; c < D; c++) {
        s->in.dq_rotated[c] += d->scale * (inside * r->keys[j * D + c] + inside_tangent * t->keys[j * D + c]);
        s->in.dk_rotated[j * D + c] += d->scale * (inside * r->q[c] + inside_tangent * t->q[c]);
        s->in.tq_rotated[c] += d->scale * inside_tangent * r->keys[j * D + c];
        s->in.tk_rotated[j * D + c] += d->scale * inside_tangent * r->q[c];
    }
    if (r->plan->vec >= 0)
        spread_vectors(s, r->plan->vec, j, inside, inside_tangent);
    for (int32_t n = 0; n < d->n_terms; n++) {
        const rpi_scheme *scheme = r->plan->scheme[n];
        if (scheme->form == RPI_VEC && scheme->bias) {
            spread_vectors(s, n, j, biased, biased_tangent);
        } else if (scheme->form == RPI_INDEX || scheme->form == RPI_OFFSET || scheme->form == RPI_TILE) {
            const rpi_pair p = rpi_row_pair(r, n, j);
            rpi_definition_grad(&p, biased, &s->in.terms.term[n]);
            if (scheme->tangent_grad && !p.absent)
                scheme->tangent_grad(&p, biased_tangent, t->term[n].array, &s->in.terms.term[n]);
        }
    }
}

/* Add the derivatives of key j through its value: dout times `weight`. */
static void spread_value(second_order *s, int64_t j, double weight)
{
    const rp_desc *d = &s->t.row.args->desc;
    const rpi_row_vector v = rpi_row_vector_of(&s->t.row, j);
    for (int64_t c = 0; c < d->dim_v; c++) {
        s->in.dv[j * d->dim_v + c] += weight * s->dout[c];
        if (v.e >= 0)
            v.product->vec_grad(&v.pair, v.e, c, weight * s->dout[c], &s->in.terms.term[s->t.row.plan->valvec]);
    }
}

/* Compute p and r of every key. Return sum_j w_j p_j. */
static double value_products(second_order *s)
{
    const rpi_row *row = &s->t.row;
    const rp_desc *d = &row->args->desc;
    double mean = 0;
    for (int64_t j = 0; j < d->len_k; j++) {
        const double factor = row->keep[j] ? rpi_row_dropout(row, j) : 0;
        s->p[j] = s->r[j] = 0;
        if (factor == 0)
            continue;
        const rpi_row_vector v = rpi_row_vector_of(row, j);
        for (int64_t c = 0; c < d->dim_v; c++) {
            s->p[j] += factor * s->dout[c] *
                       (rpi_row_value(&row->args->v, row->b, row->g, j, c) + rpi_row_vector_channel(&v, c));
            s->r[j] += factor * s->dout[c] * rpi_row_vector_tangent(&s->t, &v, j, c);
        }
        mean += row->weight[j] * s->p[j];
    }
    return mean;
}

static void second_order_row(void *context, int64_t b, int64_t h, int64_t i)
{
    second_order *s = context;
    const rpi_row *row = &s->t.row;
    const rp_desc *d = &row->args->desc;
    const int32_t sink = row->plan->sink;
    rpi_tangent_row_at(&s->t, b, h, i);
    rpi_tangent_row_store(&s->t, true, true); /* the derivatives by dout and dlse */
    if (row->lse == -INFINITY)
        return;
    for (int64_t c = 0; c < d->dim_v; c++)
        s->dout[c] = rpi_at(&s->grads->dout, b, h, i, c);
    const double mean = value_products(s) - rpi_at_or_0(&s->grads->dlse, b, h, i, 0),
                 sink_weight = rpi_row_sink_weight(row), sink_y = (s->t.sink - s->t.lse) * (0 - mean);
    double y_mean = sink_weight * sink_y;
    for (int64_t j = 0; j < d->len_k; j++)
        if (row->keep[j] && row->score[j] != -INFINITY)
            y_mean += row->weight[j] * ((s->t.score[j] - s->t.lse) * (s->p[j] - mean) + s->r[j]);
    if (sink >= 0)
        rpi_sink_grad(row->args, b, h, i, sink_weight * (sink_y - y_mean), &s->in.terms.term[sink]);
    for (int64_t j = 0; j < d->len_k; j++) {
        if (!row->keep[j] || row->score[j] == -INFINITY)
            continue;
        const double w = row->weight[j], ahead = s->t.score[j] - s->t.lse, g = s->p[j] - mean;
        spread_score(s, j, w * (ahead * g + s->r[j] - y_mean), w * g);
        spread_value(s, j, w * rpi_row_dropout(row, j) * ahead);
    }
}

static void lay_out(second_order *s, const rp_desc *d)
{
    s->p = rpi_arena_take(&s->memory, d->len_k, 1, sizeof(double));
    s->r = rpi_arena_take(&s->memory, d->len_k, 1, sizeof(double));
    s->dout = rpi_arena_take(&s->memory, d->dim_v, 1, sizeof(double));
}

rp_status rpi_ref_hvp(const rp_plan *plan, const rpi_args *args, const rpi_tangents *tangents, const rpi_grads *grads,
                      rpi_progress *progress)
{
    const rp_desc *d = &args->desc;
    second_order s = {.grads = grads};
    lay_out(&s, d);
    rp_status status = rpi_arena_alloc(&s.memory, false, "second derivatives");
    if (status != RP_OK)
        return status;
    lay_out(&s, d);
    if ((status = rpi_tangent_row_alloc(&s.t, plan, args, tangents)) == RP_OK &&
        (status = rpi_input_sums_alloc(&s.in, args, grads, false)) == RP_OK) {
        progress->total += d->batch * d->kv_heads;
        s.in.along = tangents;
        status = rpi_input_sums_run(&s.in, &s.t.row, grads, second_order_row, &s, progress);
    }
    rpi_input_sums_free(&s.in);
    rpi_tangent_row_free(&s.t);
    rpi_arena_free(&s.memory);
    return status;
}
