/* kernels/backward_tile.h -- one tile of the backward pass: recompute the weights from lse, then compute ds, the five
 * products, and the gradients of the terms. Independent of the backend.
 * Parameters: BLOCK_ROWS, ROW_STEP.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef RPI_ISA
#include "weight_gradients.h" /* lets an editor parse this file on its own */
#endif

/* Compute the products of dout with the vectors that a VALUES source adds to the values, or with their tangents. Set
 * rows[r] to the products of row r, from which dp starts. */
static void value_products(backward_scratch *w, const tile *t, const rpi_source *s, const real **rows)
{
    block *k = &w->k;
    const rpi_call *c = k->c;
    const rpi_run *run = &s->values.run;
    const rpi_vectors *v = &run->vectors;
    const int64_t Dv = v->width, wide = rpi_round_up(Dv, VL), last = k->groups * MR - 1;
    const int64_t low = run->gather ? 0 : rpi_clamp(vector_of(k, v, t, last), 0, v->count - 1) / NR * NR;
    const int64_t high = run->gather ? v->count : rpi_clamp(vector_of(k, v, t, 0) + t->end, 1, v->count);
    const real *packed = (const real *)run->panels + k->h * run->panels_step;
    for (int64_t n = low; n < high; n += NR)
        for (int64_t g = 0; g < k->groups; g++)
            score_tile(w->dout + g * MR * wide, wide, packed + n * Dv, Dv, NULL, 0,
                       w->sums + g * MR * w->sums_step + n - low, w->sums_step, NULL, packed);
    for (int64_t r = 0; r <= last; r++) {
        const real *from = w->sums + r * w->sums_step - low;
        real *to = k->sum_in + r * ROW_STEP;
        const int64_t at = run->gather ? 0 : vector_of(k, v, t, r);
        rows[r] = to;
        if (run->gather)
            find_index(k, &run->index, t, r, rpi_min(t->end, c->args->desc.len_k - t->tile0));
        for (int64_t j = 0; j < t->end; j++)
            to[j] = !run->gather ? from[rpi_clamp(at + j, 0, v->count - 1)] : k->index[j] < 0 ? 0 : from[k->index[j]];
    }
}

/* Turn the scores of row r into weights, and its dp into ds. Both are 0 for masked pairs. */
static void row_gradient(backward_scratch *w, const tile *t, int64_t r, const double *stats)
{
    block *k = &w->k;
    const rp_desc *d = &k->c->args->desc;
    real *s = k->s + r * ROW_STEP, *dp = w->dp + r * ROW_STEP;
    const int64_t end = rpi_round_up(t->end, MR) + MR, from = r < k->rows ? t->from[r / MR] : 0,
                  to = r < k->rows ? t->to[r / MR] : 0;
    /* subtract the maximum and the logarithm of the sum separately; their sum would be rounded too much if the maximum
     * is large */
    const vf top = vf_set1((real)(stats[0] == -HUGE_VAL ? 0 : stats[0])), rest = vf_set1((real)stats[1]);
    const vf average = vf_set1((real)stats[2]);
    const vf lowest = vf_set1(-REAL_MAX), zero = vf_set1(0);
    finish_dp(w, t, r, from, to, top, rest);
    for (int64_t j = from; j < to; j += VL) {
        const vf x = vf_load(s + j), p = vf_below(x, lowest, zero, vf_exp((x - top) - rest));
        vf_store(dp + j, vf_below(x, lowest, zero, p * (vf_load(dp + j) - average)));
        if (w->large_dout[r]) /* this row of dout is not finite and was packed as 0; NaN weights make dv NaN */
            vf_store(s + j, vf_below(x, lowest, zero, vf_set1(NAN)));
        else
            vf_store(s + j, p);
    }
    if (d->dropout > 0 && from < to)
        apply_dropout(k, t, r, from, to, s);
    memset(s, 0, reals(from, 1));
    memset(dp, 0, reals(from, 1));
    memset(s + to, 0, reals(end - to, 1));
    memset(dp + to, 0, reals(end - to, 1));
}

/* Add the lanes of a sum to a gradient of a softcap. */
static inline void add_to_softcap(backward_scratch *w, int n, vf sum)
{
    real lane[VL];
    vf_store(lane, sum);
    for (int x = 0; x < VL; x++)
        w->softcap[n] += (double)lane[x];
}

/* Add the sum of ds, by the result of softcap n, times the derivative of this by its limit. */
static void softcap_gradient(backward_scratch *w, const tile *t, int n, const real *bent, const real *ratio)
{
    const vf tiny = vf_set1(REAL_TINY), zero = vf_set1(0);
    for (int64_t r = 0; r < w->k.rows; r++) {
        vf sum = zero;
        for (int64_t j = t->from[r / MR]; j < t->to[r / MR]; j += VL) {
            const int64_t at = r * ROW_STEP + j;
            const vf ds = vf_load(w->dp + at), x = ds * cap_by_limit(vf_load(bent + at), vf_load(ratio + at));
            sum = sum + vf_below(vf_abs(ds), tiny, zero, x);
        }
        add_to_softcap(w, n, sum);
    }
}

/* Multiply ds by the slope of a softcap, 1 - tanh^2. */
static void multiply_ds(backward_scratch *w, const tile *t, const real *bent)
{
    for (int64_t r = 0; r < w->k.rows; r++)
        for (int64_t j = t->from[r / MR]; j < t->to[r / MR]; j += VL) {
            const vf ds = vf_load(w->dp + r * ROW_STEP + j), y = vf_load(bent + r * ROW_STEP + j), zero = vf_set1(0);
            const vf x = ds * (vf_set1(1) - y * y);
            vf_store(w->dp + r * ROW_STEP + j, vf_below(vf_abs(ds), vf_set1(REAL_TINY), zero, x));
        }
}

/* Load the queries of a block, and compute the scores of a tile. */
static void backward_scores(backward_scratch *w, tile *t)
{
    block *k = &w->k;
    load_queries(k);
    if (k->large_q) /* open again: with large queries, biases of -infinity must clear keep */
        open_tile(k, t, t->tile0, BACKWARD_KEYS, w->large_k, w->large_v);
    tile_scores(k, t, w->packed_keys);
    if (k->c->grads->of_weights)
        load_summary_gradients(k, t);
}

/* Compute all gradients of one tile. terms_gradient (backward_terms.h) adds up the gradients of the terms. */
static void tile_backward(backward_scratch *w, tile *t, int64_t head)
{
    block *k = &w->k;
    const rpi_call *c = k->c;
    const rp_desc *d = &c->args->desc;
    const double *stats = rpi_row_stats(c, k->b * d->heads + k->h, k->row0);
    const real *products[BLOCK_ROWS];
    backward_scores(w, t);
    load_dout(w);
    if (c->value_vectors)
        value_products(w, t, c->value_vectors, products);
    dp_products(w, t, c->value_vectors ? products : NULL);
    for (int64_t r = 0; r < k->groups * MR; r++)
        row_gradient(w, t, r, stats + RPI_ROW_STATS * rpi_min(r, k->rows - 1));
    if (makes_dv(c))
        dv_products(w, t);
    if (c->value_vectors && term_wanted(c, c->value_vectors))
        vectors_gradient(w, t, c->n_sources - 1, &c->value_vectors->values.run, k->s, w->dout, NULL, true);
    if (c->grads->softcap[RPI_AFTER].data)
        softcap_gradient(w, t, RPI_AFTER, k->bent_after, k->ratio_after);
    if (d->softcap_after > 0)
        multiply_ds(w, t, k->bent_after);
    if (c->grads->softcap[RPI_BEFORE].data)
        softcap_gradient(w, t, RPI_BEFORE, k->bent, k->ratio);
    if (d->softcap > 0) {
        terms_gradient(w, t, false, head);
        multiply_ds(w, t, k->bent);
    }
    terms_gradient(w, t, true, head);
    if (makes_dk(c))
        dk_products(w, t);
    if (c->limits->dq)
        dq_products(w, t);
}

/* Compute k->weight_sum of each row of one tile: its part of sum_j w dp, as far as dp does not come from dout. */
static void tile_sums(backward_scratch *w, tile *t)
{
    block *k = &w->k;
    const double *stats = rpi_row_stats(k->c, k->b * k->c->args->desc.heads + k->h, k->row0);
    backward_scores(w, t);
    for (int64_t r = 0; r < k->rows; r++)
        sum_weighted(w, t, r, stats + RPI_ROW_STATS * r);
}
