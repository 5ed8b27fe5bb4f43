/* kernels/softmax.h -- the running softmax of a block (running maximum, sums of weights), and dropout. tile_scores
 * (scores.h) decides whether sum_rows (register_tile.h) finds the largest score of a row while the scores are in
 * registers, or find_row_max finds it later. Independent of the backend.
 * Parameters: VL, ROW_VECTORS, ROW_STEP.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef RPI_ISA
#include "tile_biases.h" /* lets an editor parse this file on its own */
#endif

/* Store the lane maxima of columns [from, to) of row r in k->tile_max. The largest lane is the largest score. NaN
 * scores may be ignored. */
static void find_row_max(block *k, int64_t r, int64_t from, int64_t to)
{
    const real *s = k->s + r * ROW_STEP;
    vf max[ROW_VECTORS];
    RPI_UNROLL
    for (int n = 0; n < ROW_VECTORS; n++)
        max[n] = vf_set1(-INFINITY);
    for (; from + NR <= to; from += NR) {
        RPI_UNROLL
        for (int n = 0; n < ROW_VECTORS; n++)
            max[n] = vf_max(max[n], vf_load(s + from + n * VL));
    }
    for (; from < to; from += VL)
        max[0] = vf_max(max[0], vf_load(s + from));
    for (int n = 1; n < ROW_VECTORS; n++)
        max[0] = vf_max(max[0], max[n]);
    vf_store(k->tile_max + r * VL, max[0]);
}

/* Raise the running maxima of rows r0 … r0+VL-1 to the largest scores of the tile. Multiply k->sum by the factors that
 * rescale it to the new maxima, and write these factors to alpha. */
static void raise_running_max(block *k, int64_t r0, real *alpha)
{
    const vf before = vf_load(k->running_max + r0);
    vf max[VL];
    RPI_UNROLL
    for (int r = 0; r < VL; r++)
        max[r] = vf_load(k->tile_max + (r0 + r) * VL);
    vf_transpose(max);
    RPI_UNROLL
    for (int half = VL / 2; half > 0; half /= 2)
        for (int c = 0; c < half; c++)
            max[c] = vf_max(max[c], max[c + half]);
    const vf top = vf_below(before, max[0], max[0], before), one = vf_set1(1);
    const vf factor = vf_below(before, top, vf_exp(before - top), one);
    vf_store(k->running_max + r0, top);
    vf_store(k->sum + r0, vf_load(k->sum + r0) * factor);
    vf_store(alpha + r0, factor);
}

/* For r < VL, add the lanes of sums[r] in a fixed order (a binary tree), and add the result to to[r]. */
static inline void add_sums(real *to, vf *sums)
{
    vf_transpose(sums);
    RPI_UNROLL
    for (int half = VL / 2; half > 0; half /= 2)
        for (int c = 0; c < half; c++)
            sums[c] = sums[c] + sums[c + half];
    vf_store(to, vf_load(to) + sums[0]);
}

/* Return the value to subtract from the scores of row r before exp: the running maximum, or 0 if the row has no key
 * yet. */
static inline vf score_shift(const block *k, int64_t r)
{
    return vf_set1(k->running_max[r] == -INFINITY ? 0 : k->running_max[r]);
}

/* Multiply columns [from, to) of row r by their dropout factors, 0 or 1 / (1 - dropout). The loop computes rpi_random
 * for 16 keys at a time. */
static void apply_dropout(const block *k, const tile *t, int64_t r, int64_t from, int64_t to, real *row)
{
    typedef uint32_t sixteen __attribute__((vector_size(64)));
    const rp_desc *d = &k->c->args->desc;
    const rpi_dropout_row key = rpi_dropout_at(d->seed, k->b, k->h, row_of(k, r));
    const uint32_t limit = rpi_dropout_limit(d->dropout), high = (uint32_t)((uint64_t)t->tile0 >> 32);
    const real factor = (real)(1 / (1 - d->dropout));
    const sixteen steps = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    for (int64_t j = from; j < to; j += 16) {
        /* a tile begins at a multiple of TILE_KEYS, so the upper half of the index is the same for all its keys */
        sixteen x = ((steps + (uint32_t)(t->tile0 + j)) ^ high) + key.low;
        for (int round = 0; round < 2; round++) {
            x = (x ^ x >> 16) * RPI_MIX32_A;
            x = (x ^ x >> 15) * RPI_MIX32_B;
            x = (x ^ x >> 15) + key.high;
        }
        real_bits kept[16]; /* all bits set, or none */
        const sixteen yes = (sixteen)(x >= limit);
        for (int n = 0; n < 16; n++)
            kept[n] = (real_bits)(int32_t)yes[n];
        for (int n = 0; n < 16; n += VL)
            vf_store(row + j + n, (vf)(vf_bits(kept + n) & (vi)(vf_load(row + j + n) * vf_set1(factor))));
    }
}
