/* kernels/summary.h -- summaries of the weights, in a second pass over the tiles of a block: weight by offset, weight
 * by key, and the entropy of each row. Independent of the backend.
 * Parameters: BLOCK_ROWS, TILE_KEYS.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef RPI_ISA
#include "nonfinite.h" /* lets an editor parse this file on its own */
#endif

/* Recompute the scores of a tile, and divide by the rows' sums, which are now complete, to get the final weights. Add
 * each weight to `profile` by its offset and to `key_mass` by its key, and add to the entropy of its row. */
static void tile_summary(block *k, const tile *t, double *profile, double *key_mass)
{
    const rp_desc *d = &k->c->args->desc;
    const int64_t keys = rpi_min(t->end, d->len_k - t->tile0), offsets = d->len_q + d->len_k - 1;
    tile_scores(k, t, keys_at(k->c, k->kv, t->tile0));
    memset(k->column, 0, TILE_KEYS * sizeof(real));
    memset(k->diagonal, 0, (BLOCK_ROWS + TILE_KEYS) * sizeof(real));
    for (int64_t r = 0; r < k->rows; r++) {
        real *s = k->s + r * ROW_STEP, *diagonal = k->diagonal + BLOCK_ROWS - r;
        const vf base = vf_set1(k->sum[r] == 0 ? 0 : k->running_max[r]),
                 inverse = vf_set1(k->sum[r] == 0 ? 0 : 1 / k->sum[r]);
        const vf lowest = vf_set1(-REAL_MAX), zero = vf_set1(0);
        /* x is raised to at least `low`, where exp(x) is 0, to avoid 0 * -infinity */
        const vf low = vf_set1(RPI_F64 ? -750 : -104);
        vf entropy = vf_set1(0), total = vf_set1(0);
        for (int64_t j = t->from[r / MR]; j < t->to[r / MR]; j += VL) {
            /* a masked pair has no weight, even in a row with NaN */
            const vf x = vf_load(s + j) - base, w = vf_below(vf_load(s + j), lowest, zero, vf_exp(x) * inverse);
            entropy = vf_fma(w, vf_below(x, low, low, x), entropy);
            total = total + w;
            vf_store(k->column + j, vf_load(k->column + j) + w);
            vf_store(diagonal + j, vf_load(diagonal + j) + w);
        }
        k->entropy[r] -= vf_sum(entropy);
        k->weight_sum[r] += vf_sum(total);
    }
    for (int64_t n = 1; n < BLOCK_ROWS + keys; n++) {
        const int64_t at = t->tile0 - k->row0 + d->len_q - 1 + n - BLOCK_ROWS;
        if (at >= 0 && at < offsets)
            profile[at] += (double)k->diagonal[n];
    }
    for (int64_t j = 0; j < keys; j++)
        key_mass[t->tile0 + j] += (double)k->column[j];
}
