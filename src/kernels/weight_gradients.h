/* kernels/weight_gradients.h -- the derivative dp of the loss with respect to the weights, if the loss also depends on
 * weights, profile, key_mass or entropy, whose gradients the caller gives (rp_grads). Independent of the backend.
 * Parameters: BLOCK_ROWS, ROW_STEP, TILE_KEYS.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef RPI_ISA
#include "backward_terms.h" /* lets an editor parse this file on its own */
#endif

/* Load the gradients of key_mass for the keys of a tile into k->column, and those of profile for its offsets into
 * k->diagonal, as in tile_summary. */
static void load_summary_gradients(block *k, const tile *t)
{
    const rpi_grads *g = k->c->grads;
    const rp_desc *d = &k->c->args->desc;
    const int64_t keys = rpi_min(t->end, d->len_k - t->tile0), offsets = d->len_q + d->len_k - 1;
    memset(k->column, 0, TILE_KEYS * sizeof(real));
    memset(k->diagonal, 0, (BLOCK_ROWS + TILE_KEYS) * sizeof(real));
    for (int64_t j = 0; g->dkey_mass.data && j < keys; j++)
        k->column[j] = (real)rpi_at(&g->dkey_mass, k->b, k->h, t->tile0 + j, 0);
    for (int64_t n = 1; g->dprofile.data && n < BLOCK_ROWS + keys; n++) {
        const int64_t at = t->tile0 - k->row0 + d->len_q - 1 + n - BLOCK_ROWS;
        if (at >= 0 && at < offsets)
            k->diagonal[n] = (real)(rpi_at(&g->dprofile, k->b, k->h, at, 0) / (double)rpi_offset_pairs(d, at));
    }
}

/* Add columns [from, to) of row r of dweights to dp. */
static void add_dweights(block *k, const tile *t, int64_t r, int64_t from, int64_t to, real *dp)
{
    const rpi_view *v = &k->c->grads->dweights;
    const int64_t past = rpi_min(to, k->c->args->desc.len_k - t->tile0);
    const char *row = rpi_row_of(v, k->b, k->h, row_of(k, r));
    real scratch[CHANNELS];
    for (int64_t j0 = from; j0 < past; j0 += CHANNELS) {
        const int64_t n = rpi_min(CHANNELS, past - j0);
        const real *x = load_channels(v, row, t->tile0 + j0, n, scratch);
        for (int64_t j = 0; j < n; j += VL)
            vf_store(dp + j0 + j, vf_load(dp + j0 + j) + vf_load_some(x + j, rpi_min(VL, n - j)));
    }
}

/* Finish columns [from, to) of row r of dp, which has the products of dout with the values. top + rest is lse. */
static void finish_dp(backward_scratch *w, const tile *t, int64_t r, int64_t from, int64_t to, vf top, vf rest)
{
    block *k = &w->k;
    const rpi_grads *g = k->c->grads;
    const real *s = k->s + r * ROW_STEP, *diagonal = k->diagonal + BLOCK_ROWS - r;
    real *dp = w->dp + r * ROW_STEP;
    if (g->dweights.data)
        add_dweights(k, t, r, from, to, dp);
    if (k->c->args->desc.dropout > 0 && from < to)
        apply_dropout(k, t, r, from, to, dp);
    if (!g->of_weights)
        return;
    const vf of_entropy = vf_set1(g->dentropy.data ? (real)rpi_at(&g->dentropy, k->b, k->h, row_of(k, r), 0) : 0);
    for (int64_t j = from; j < to; j += VL) {
        vf x = vf_load(dp + j) + vf_load(k->column + j) + vf_load(diagonal + j);
        if (g->dentropy.data)
            x = x - of_entropy * (((vf_load(s + j) - top) - rest) + vf_set1(1));
        vf_store(dp + j, x);
    }
}

/* Compute k->weight_sum[r], the sum of the weights of row r times the finished dp without the products of dout. */
static void sum_weighted(backward_scratch *w, const tile *t, int64_t r, const double *stats)
{
    block *k = &w->k;
    const real *s = k->s + r * ROW_STEP;
    real *dp = w->dp + r * ROW_STEP;
    const int64_t from = t->from[r / MR], to = t->to[r / MR];
    const vf top = vf_set1((real)(stats[0] == -HUGE_VAL ? 0 : stats[0])), rest = vf_set1((real)stats[1]);
    const vf lowest = vf_set1(-REAL_MAX), zero = vf_set1(0);
    vf sum = zero;
    memset(dp + from, 0, reals(to - from, 1));
    finish_dp(w, t, r, from, to, top, rest);
    for (int64_t j = from; j < to; j += VL) {
        const vf x = vf_load(s + j);
        sum = sum + vf_below(x, lowest, zero, vf_exp((x - top) - rest) * vf_load(dp + j));
    }
    k->weight_sum[r] = vf_sum(sum);
}
