/* kernels/second_tile.h -- one tile of second derivatives (rp_hvp): the gradients of <dout, tangent of out> +
 * <dlse, tangent of lse>. Independent of the backend.
 * Parameters: BLOCK_ROWS, ROW_STEP.
 *
 * The tangents of q, k and v are the arrays of a second call (rpi_jvp.inputs). A task has scratch of its own for them,
 * which shares the sums, so that each product of the backward pass runs twice: x' are tangents, ds0 and ds1 the
 * derivatives by s and s', m the row's tangent of lse.
 *
 *     s' = q' k^T + q k'^T + bias'      p = dout v^T      r = dout v'^T      g = p - <dout, out> + dlse
 *     ds1 = w g                         ds0 = w ((s' - m) g + r - <dout, out'>)
 *     dv += (w (s' - m))^T dout         dk += ds0^T q + ds1^T q'             dq += ds0 k + ds1 k'
 *
 * Vectors of terms are multiplied like keys and values. Every number of a row comes from its output and the tangent of
 * that, so no pass over the keys precedes this one.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef RPI_ISA
#include "backward_tile.h" /* lets an editor parse this file on its own */
#endif

/* Pack the tangents of keys and values j0 … j0+n-1. */
static void begin_tangents(backward_scratch *w, int64_t g, int64_t j0, int64_t n)
{
    backward_scratch *x = &w->second->inputs;
    x->k.c = &w->k.c->jvp->inputs;
    w->second->arrays.c = &w->k.c->jvp->arrays;
    x->k.b = w->k.b;
    memset(x->large_k, 0, BACKWARD_KEYS / NR + 1);
    products_begin(x, g, j0, n);
}

/* Set columns of row r outside [from, to), up to `end`, to 0. */
static inline void clear_outside(real *row, int64_t from, int64_t to, int64_t end)
{
    memset(row, 0, reals(from, 1));
    memset(row + to, 0, reals(end - to, 1));
}

/* Turn dp of row r into ds0, that of the tangents into ds1, and the scores into w (s' - m), times dropout. All are 0
 * for masked pairs. */
static void second_row(backward_scratch *w, const tile *t, int64_t r, const double *stats)
{
    block *k = &w->k;
    backward_scratch *x = &w->second->inputs;
    const rp_desc *d = &k->c->args->desc;
    real *s = k->s + r * ROW_STEP, *p = w->dp + r * ROW_STEP, *tangent = x->dp + r * ROW_STEP;
    const real *score = x->k.s + r * ROW_STEP;
    const int64_t end = rpi_round_up(t->end, MR) + MR, from = r < k->rows ? t->from[r / MR] : 0,
                  to = r < k->rows ? t->to[r / MR] : 0;
    const vf top = vf_set1((real)(stats[0] == -HUGE_VAL ? 0 : stats[0])), rest = vf_set1((real)stats[1]);
    const vf average = vf_set1((real)stats[2]), m = vf_set1((real)stats[3]), change = vf_set1((real)stats[4]);
    const vf lowest = vf_set1(-REAL_MAX), zero = vf_set1(0);
    if (d->dropout > 0 && from < to) {
        apply_dropout(k, t, r, from, to, p);
        apply_dropout(k, t, r, from, to, tangent);
    }
    for (int64_t j = from; j < to; j += VL) {
        const vf y = vf_load(s + j), weight = vf_exp((y - top) - rest), g = vf_load(p + j) - average,
                 ahead = vf_load(score + j) - m, nan = vf_set1(NAN);
        vf_store(p + j, vf_below(y, lowest, zero, weight * (vf_fma(ahead, g, vf_load(tangent + j)) - change)));
        vf_store(tangent + j, vf_below(y, lowest, zero, weight * g));
        if (w->large_dout[r]) /* as in row_gradient */
            vf_store(s + j, vf_below(y, lowest, zero, nan));
        else
            vf_store(s + j, vf_below(y, lowest, zero, weight * ahead));
    }
    if (d->dropout > 0 && from < to)
        apply_dropout(k, t, r, from, to, s);
    clear_outside(s, from, to, end);
    clear_outside(p, from, to, end);
    clear_outside(tangent, from, to, end);
}

/* Apply the chain rule of a softcap to ds0 and ds1: ds1 is multiplied by the slope, and ds0 becomes ds0 times the slope
 * plus ds1 times the tangent of the slope. */
static void second_cap(backward_scratch *w, const tile *t, const real *bent, const real *slope_tangent)
{
    real *dp = w->dp, *tangents = w->second->inputs.dp;
    const vf tiny = vf_set1(REAL_TINY), zero = vf_set1(0);
    for (int64_t r = 0; r < w->k.rows; r++)
        for (int64_t j = t->from[r / MR]; j < t->to[r / MR]; j += VL) {
            const int64_t at = r * ROW_STEP + j;
            const vf y = vf_load(bent + at), slope = vf_set1(1) - y * y, ds0 = vf_load(dp + at),
                     ds1 = vf_load(tangents + at);
            const vf one = vf_below(vf_abs(ds0), tiny, zero, ds0 * slope),
                     other = vf_below(vf_abs(ds1), tiny, zero, ds1 * vf_load(slope_tangent + at));
            vf_store(dp + at, one + other);
            vf_store(tangents + at, vf_below(vf_abs(ds1), tiny, zero, ds1 * slope));
        }
}

/* Add the sum of the derivatives by the limit of softcap n: ds0 times that of its result, and ds1 times that of its
 * tangent, which is -x / c times the tangent of the slope. */
static void second_softcap(backward_scratch *w, const tile *t, int n, const real *bent, const real *ratio,
                           const real *slope_tangent)
{
    const vf tiny = vf_set1(REAL_TINY), zero = vf_set1(0);
    for (int64_t r = 0; r < w->k.rows; r++) {
        vf sum = zero;
        for (int64_t j = t->from[r / MR]; j < t->to[r / MR]; j += VL) {
            const int64_t at = r * ROW_STEP + j;
            const vf u = vf_load(ratio + at), ds0 = vf_load(w->dp + at), ds1 = vf_load(w->second->inputs.dp + at);
            const vf one = vf_below(vf_abs(ds0), tiny, zero, ds0 * cap_by_limit(vf_load(bent + at), u)),
                     other = vf_below(vf_abs(ds1), tiny, zero, ds1 * vf_load(slope_tangent + at) * u);
            sum = sum + (one - other);
        }
        add_to_softcap(w, n, sum);
    }
}

/* Compute r = dout v'^T plus the products with the tangents of the vectors that a term adds to the values. */
static void tangent_products(backward_scratch *w, const tile *t)
{
    backward_scratch *x = &w->second->inputs;
    const rpi_source *s = w->second->arrays.c->value_vectors;
    const real *products[BLOCK_ROWS];
    if (s)
        value_products(w, t, s, products);
    if (x->k.c->args->v.data) {
        load_dout(x);
        dp_products(x, t, s ? products : NULL);
        return;
    }
    for (int64_t r = 0; r < w->k.rows; r++) {
        memset(x->dp + r * ROW_STEP, 0, reals(t->end, 1));
        if (s)
            memcpy(x->dp + r * ROW_STEP, products[r], reals(t->end, 1));
    }
}

/* For terms that are not linear in their arrays: pass ds' of each pair to the derivative of the bias's tangent. As in
 * pairs_gradient, merge_private_sums adds the workers' sums. */
static void tangents_gradient(backward_scratch *w, const tile *t)
{
    const block *k = &w->k;
    const rpi_call *c = k->c;
    const int64_t keys = rpi_min(t->end, c->args->desc.len_k - t->tile0);
    for (int32_t n = 0; n < c->args->desc.n_terms; n++) {
        const rpi_scheme *s = c->plan->scheme[n];
        if (!s->tangent_grad || !c->limits->term[n].wanted)
            continue;
        for (int64_t r = 0; r < k->rows; r++) {
            rpi_pair p = rpi_pair_of(c->args, n, k->b, k->h, row_of(k, r));
            for (int64_t j = t->from[r / MR]; j < rpi_min(t->to[r / MR], keys); j++) {
                const real ds = w->second->inputs.dp[r * ROW_STEP + j];
                if (ds == 0)
                    continue;
                rpi_pair_key(c->args, &p, t->tile0 + j);
                if (!p.absent)
                    s->tangent_grad(&p, (double)ds, c->jvp->tangents->term[n], &w->private_sums[n]);
            }
        }
    }
}

/* Add the gradients of one tile. An absent tangent is 0, and needs no products. */
static void tile_second(backward_scratch *w, tile *t, int64_t head)
{
    block *k = &w->k;
    backward_scratch *x = &w->second->inputs;
    const rpi_call *c = k->c;
    const rp_desc *d = &c->args->desc;
    const double *stats = rpi_row_stats(c, k->b * d->heads + k->h, k->row0);
    const int64_t wide = rpi_round_up(d->dim_k, VL);
    const real *products[BLOCK_ROWS];
    backward_scores(w, t);
    open_tangents(k, &x->k, &w->second->arrays);
    tile_tangents(k, &x->k, &w->second->arrays, t, w->packed_keys, x->packed_keys);
    load_dout(w);
    if (c->value_vectors)
        value_products(w, t, c->value_vectors, products);
    dp_products(w, t, c->value_vectors ? products : NULL);
    tangent_products(w, t);
    for (int64_t r = 0; r < k->groups * MR; r++)
        second_row(w, t, r, stats + RPI_ROW_STATS * rpi_min(r, k->rows - 1));
    if (makes_dv(c))
        dv_products(w, t);
    if (c->value_vectors && term_wanted(c, c->value_vectors))
        vectors_gradient(w, t, c->n_sources - 1, &c->value_vectors->values.run, k->s, w->dout, NULL, true);
    if (c->grads->softcap[RPI_AFTER].data)
        second_softcap(w, t, RPI_AFTER, k->bent_after, k->ratio_after, x->k.slope_after_tangent);
    if (d->softcap_after > 0)
        second_cap(w, t, k->bent_after, x->k.slope_after_tangent);
    if (c->grads->softcap[RPI_BEFORE].data)
        second_softcap(w, t, RPI_BEFORE, k->bent, k->ratio, x->k.slope_tangent);
    tangents_gradient(w, t);
    if (d->softcap > 0) {
        terms_gradient(w, t, false, head);
        second_cap(w, t, k->bent, x->k.slope_tangent);
    }
    terms_gradient(w, t, true, head);
    if (makes_dk(c))
        dk_products(w, t);
    if (makes_dk(c) && x->k.c->args->q.data)
        dk_products(x, t);
    if (!c->limits->dq)
        return;
    dq_products(w, t);
    if (!x->k.c->args->k.data)
        return;
    dq_products(x, t);
    for (int64_t n = 0; n < k->rows * wide; n += VL)
        vf_store(w->dq + n, vf_load(w->dq + n) + vf_load(x->dq + n));
}
