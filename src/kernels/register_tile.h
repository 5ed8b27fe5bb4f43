/* kernels/register_tile.h -- register tiles: MR x NR sums of products, for scores (with the largest score of each row)
 * and for values. Independent of blocks and calls.
 * Parameters: VL, MR, NR; SUM_KEYS: keys per partial sum of values.
 *
 * Contract: a tile has MR rows of queries or weights, or one row. Packed k and v (pack.h) have NR columns (the last
 * columns of v may be narrower), and their padding is also read. Unpacked k and v are read from the caller's array with
 * the given row step. Outputs overlap no operand, with one exception: a score may overwrite its bias.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef RPI_ISA
#include "pack.h" /* lets an editor parse this file on its own */
#endif

/* FETCH: prefetch at each step. It does not pay for narrower register tiles, whose step covers only a small part of a
 * cache line. */
enum { FETCH = NR * sizeof(real) >= 256, LINE_VECTORS = 64 / (VL * sizeof(real)) };

/* Compute s[r][0…vectors * VL) = bias[r][col…] + sum_d q[r][d] k[d][…] for `rows` rows (MR or 1). `rows` and `vectors`
 * are constants. If bias is NULL, sums start at 0.
 *
 * Rows of q are q_step elements apart, and rows of s `step` elements. Rows of k are k_step elements apart: NR if
 * packed, more in the caller's array. For keys in the caller's array, w records the magnitude; for packed keys, w is
 * NULL. If column `there` is in the last vector, set columns from `there` on to -infinity. If max is not NULL, update
 * the lane maxima of row r at max + r * VL.
 *
 * Prefetch a 16th of the panel at `ahead`, because the 16 groups of a block together prefetch the next panel. In the
 * caller's array, prefetch the whole panel. If `pairs` is set, each element of q and k is a pair of bf16, and dim is
 * the number of pairs. */
static inline __attribute__((always_inline)) void sum_rows(bool pairs, int rows, int vectors, const real *q,
                                                           int64_t q_step, const real *k, int64_t k_step, int64_t dim,
                                                           const real *const *bias, int64_t col, real *s, int64_t step,
                                                           real *max, const real *ahead, int64_t there, magnitude *w)
{
    vf sum[MR][ROW_VECTORS];
    RPI_UNROLL
    for (int r = 0; r < rows; r++) {
        RPI_UNROLL
        for (int n = 0; n < vectors; n++)
            sum[r][n] = bias ? vf_load(bias[r] + col + n * VL) : vf_set1(0);
    }
    for (int64_t d = 0; d < dim; d++) {
        vf y[ROW_VECTORS];
        if (w) { /* k is the caller's array: prefetch the whole panel at `ahead` */
            RPI_UNROLL
            for (int n = 0; n < vectors; n += LINE_VECTORS)
                __builtin_prefetch(ahead + d * k_step + n * VL, 0, 2);
        } else if (FETCH) {
            __builtin_prefetch(ahead + d * (NR / 16), 0, 2);
        }
        RPI_UNROLL
        for (int n = 0; n < vectors; n++)
            y[n] = vf_load(k + d * k_step + n * VL);
        RPI_UNROLL
        for (int n = 0; w && n < vectors; n++)
            note_magnitude(w, y[n]);
        RPI_UNROLL
        for (int r = 0; r < rows; r++) {
            const vf x = vf_set1(q[r * q_step + d]);
            RPI_UNROLL
            for (int n = 0; n < vectors; n++)
                if (pairs)
                    sum[r][n] = vf_pairs(x, y[n], sum[r][n]);
                else
                    sum[r][n] = vf_fma(x, y[n], sum[r][n]);
        }
    }
    if (there < vectors * VL) {
        static const real steps[] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
        const vf lane = vf_load(steps), limit = vf_set1((real)(there - (vectors - 1) * VL)), none = vf_set1(-INFINITY);
        RPI_UNROLL
        for (int r = 0; r < rows; r++)
            sum[r][vectors - 1] = vf_below(lane, limit, sum[r][vectors - 1], none);
    }
    RPI_UNROLL
    for (int r = 0; r < rows; r++) {
        RPI_UNROLL
        for (int n = 0; n < vectors; n++)
            vf_store(s + r * step + n * VL, sum[r][n]);
    }
    if (!max)
        return;
    RPI_UNROLL
    for (int r = 0; r < rows; r++) {
        vf top = vf_load(max + r * VL);
        RPI_UNROLL
        for (int n = 0; n < vectors; n++)
            top = vf_max(top, sum[r][n]);
        vf_store(max + r * VL, top);
    }
}

static inline __attribute__((always_inline)) void score_rows(int rows, int vectors, const real *q, int64_t q_step,
                                                             const real *k, int64_t k_step, int64_t dim,
                                                             const real *const *bias, int64_t col, real *s,
                                                             int64_t step, real *max, const real *ahead, int64_t there,
                                                             magnitude *w)
{
    sum_rows(false, rows, vectors, q, q_step, k, k_step, dim, bias, col, s, step, max, ahead, there, w);
}

/* Compute the scores of all columns of a panel. */
static inline void score_tile(const real *q, int64_t q_step, const real *k, int64_t dim, const real *const *bias,
                              int64_t col, real *s, int64_t step, real *max, const real *ahead)
{
    score_rows(MR, ROW_VECTORS, q, q_step, k, NR, dim, bias, col, s, step, max, ahead, NR, NULL);
}

/* Define a function that computes the scores of ROWS rows for a panel. If the panel has only `there` < NR keys, it
 * skips vectors without keys. */
#define SCORE_COLUMNS(NAME, ROWS, PAIRS)                                                                               \
    static void NAME(const real *q, int64_t q_step, const real *k, int64_t dim, const real *const *bias, int64_t col,  \
                     real *s, int64_t step, real *max, const real *ahead, int64_t there)                               \
    {                                                                                                                  \
        enum { TWO = ROW_VECTORS < 2 ? ROW_VECTORS : 2, THREE = ROW_VECTORS < 3 ? ROW_VECTORS : 3 };                   \
        switch (there < NR ? (there + VL - 1) / VL : ROW_VECTORS) {                                                    \
        case 1: sum_rows(PAIRS, ROWS, 1, q, q_step, k, NR, dim, bias, col, s, step, max, k, there, NULL); break;       \
        case 2: sum_rows(PAIRS, ROWS, TWO, q, q_step, k, NR, dim, bias, col, s, step, max, k, there, NULL); break;     \
        case 3: sum_rows(PAIRS, ROWS, THREE, q, q_step, k, NR, dim, bias, col, s, step, max, k, there, NULL); break;   \
        default:                                                                                                       \
            sum_rows(PAIRS, ROWS, ROW_VECTORS, q, q_step, k, NR, dim, bias, col, s, step, max, ahead, there, NULL);    \
        }                                                                                                              \
    }
SCORE_COLUMNS(score_columns, MR, false)

/* Parts of the value tiles: set all sums to 0, and add the values of key j times its weights w[AT]. */
#define ZERO_SUMS(ROWS, NVW)                                                                                           \
    RPI_UNROLL                                                                                                         \
    for (int r = 0; r < ROWS; r++) {                                                                                   \
        RPI_UNROLL                                                                                                     \
        for (int c = 0; c < NVW; c++)                                                                                  \
            sum[r][c] = vf_set1(0);                                                                                    \
    }
#define ADD_VALUES(ROWS, NVW, AT, V_STEP)                                                                              \
    RPI_UNROLL                                                                                                         \
    for (int c = 0; c < NVW; c++)                                                                                      \
        y[c] = vf_load(v + j * (V_STEP) + c * VL);                                                                     \
    RPI_UNROLL                                                                                                         \
    for (int r = 0; r < ROWS; r++) {                                                                                   \
        const vf x = vf_set1(w[AT]);                                                                                   \
        RPI_UNROLL                                                                                                     \
        for (int c = 0; c < NVW; c++)                                                                                  \
            sum[r][c] = vf_fma(x, y[c], sum[r][c]);                                                                    \
    }

/* Compute o[r][0…width) = o[r][…] * alpha[r] + sum over n keys of w[r][j] v[j][…]. The width is NVW vectors. AT is the
 * index of w[r][j]; transposed_tile reads weights stored by column. Rows of v are V_STEP elements apart. If UNPACKED is
 * set, v is the caller's array: prefetch the row AHEAD rows later, or the values at `ahead` if there is no such row. */
#define VALUE_TILE(NAME, NVW, ROWS, AT, V_STEP, UNPACKED)                                                              \
    static inline void NAME##_##NVW(const real *w, int64_t w_step, int64_t n, const real *v, int64_t v_step, real *o,  \
                                    int64_t o_step, const real *alpha, const real *ahead)                              \
    {                                                                                                                  \
        vf sum[ROWS][NVW];                                                                                             \
        ZERO_SUMS(ROWS, NVW)                                                                                           \
        uintptr_t fetched = (uintptr_t)(n > AHEAD ? v + AHEAD * v_step : ahead);                                       \
        (void)w_step, (void)v_step, (void)fetched;                                                                     \
        for (int64_t j = 0; j < n; j++) {                                                                              \
            vf y[NVW];                                                                                                 \
            if (UNPACKED) {                                                                                            \
                RPI_UNROLL                                                                                             \
                for (int c = 0; c < NVW; c++)                                                                          \
                    __builtin_prefetch((const void *)(fetched + (uintptr_t)c * VL * sizeof(real)), 0, 2);              \
                fetched = j + AHEAD + 1 == n ? (uintptr_t)ahead : fetched + (uintptr_t)v_step * sizeof(real);          \
            } else if (FETCH)                                                                                          \
                __builtin_prefetch(ahead + j * (NVW * VL) / 16, 0, 2);                                                 \
            ADD_VALUES(ROWS, NVW, AT, V_STEP)                                                                          \
        }                                                                                                              \
        RPI_UNROLL                                                                                                     \
        for (int r = 0; r < ROWS; r++) {                                                                               \
            const vf x = vf_set1(alpha[r]);                                                                            \
            RPI_UNROLL                                                                                                 \
            for (int c = 0; c < NVW; c++)                                                                              \
                vf_store(o + r * o_step + c * VL, vf_fma(x, vf_load(o + r * o_step + c * VL), sum[r][c]));             \
        }                                                                                                              \
    }
VALUE_TILE(value_tile, 1, MR, r *w_step + j, 1 * VL, 0)
VALUE_TILE(value_tile, 2, MR, r *w_step + j, 2 * VL, 0)
VALUE_TILE(value_tile, 3, MR, r *w_step + j, 3 * VL, 0)
VALUE_TILE(value_tile, 4, MR, r *w_step + j, 4 * VL, 0)
VALUE_TILE(transposed_tile, 1, MR, j *w_step + r, 1 * VL, 0)
VALUE_TILE(transposed_tile, 2, MR, j *w_step + r, 2 * VL, 0)
VALUE_TILE(transposed_tile, 3, MR, j *w_step + r, 3 * VL, 0)
VALUE_TILE(transposed_tile, 4, MR, j *w_step + r, 4 * VL, 0)
VALUE_TILE(unpacked_tile, 1, MR, r *w_step + j, v_step, 1)
VALUE_TILE(unpacked_tile, 2, MR, r *w_step + j, v_step, 1)
VALUE_TILE(unpacked_tile, 3, MR, r *w_step + j, v_step, 1)
VALUE_TILE(unpacked_tile, 4, MR, r *w_step + j, v_step, 1)
VALUE_TILE(single_tile, 1, 1, j, v_step, 1)
VALUE_TILE(single_tile, 2, 1, j, v_step, 1)
VALUE_TILE(single_tile, 3, 1, j, v_step, 1)
VALUE_TILE(single_tile, 4, 1, j, v_step, 1)
_Static_assert(ROW_VECTORS <= 4, "value_tile has up to 4 vectors");

/* Call NAME_n for a tile of `width` channels, which are n vectors: NR channels, or the rest. */
#define BY_WIDTH(NAME, width, ARGUMENTS)                                                                               \
    do                                                                                                                 \
        switch ((width) / VL) {                                                                                        \
        case 1: NAME##_1 ARGUMENTS; break;                                                                             \
        case 2: NAME##_2 ARGUMENTS; break;                                                                             \
        case 3: NAME##_3 ARGUMENTS; break;                                                                             \
        default: NAME##_4 ARGUMENTS; break;                                                                            \
        }                                                                                                              \
    while (0)

/* Compute o[r][0…width) = (sum over n keys of w[r][j] v[j][…]) / total[r] for the first `there` of MR rows. The
 * width is NVW vectors. Rows of w are ROW_STEP elements apart, rows of v v_step and rows of o o_step. Adding 0 turns
 * -0 into 0. */
#define MEAN_TILE(NVW)                                                                                                 \
    static inline void mean_tile_##NVW(const real *w, int64_t n, const real *v, int64_t v_step, real *o,               \
                                       int64_t o_step, const real *total, int64_t there)                               \
    {                                                                                                                  \
        vf sum[MR][NVW];                                                                                               \
        ZERO_SUMS(MR, NVW)                                                                                             \
        for (int64_t j = 0; j < n; j++) {                                                                              \
            vf y[NVW];                                                                                                 \
            ADD_VALUES(MR, NVW, r *ROW_STEP + j, v_step)                                                               \
        }                                                                                                              \
        RPI_UNROLL                                                                                                     \
        for (int r = 0; r < MR; r++) {                                                                                 \
            if (r >= there)                                                                                            \
                break;                                                                                                 \
            RPI_UNROLL                                                                                                 \
            for (int c = 0; c < NVW; c++)                                                                              \
                vf_store(o + r * o_step + c * VL, (sum[r][c] + vf_set1(0)) / vf_set1(total[r]));                       \
        }                                                                                                              \
    }
MEAN_TILE(1)
MEAN_TILE(2)
MEAN_TILE(3)
MEAN_TILE(4)

static const real ones[8] = {1, 1, 1, 1, 1, 1, 1, 1};
_Static_assert(MR <= 8, "ones has a factor for each row");

/* Compute o[MR rows][pad_v] = o * alpha + w v for columns [j0, j1) of w. Sum SUM_KEYS columns from zero, add the sum to
 * o, and continue with the next SUM_KEYS. Column j of w belongs to key first + j of the packed values, whose columns
 * have pad_keys keys. Prefetch one 16th of the next SUM_KEYS values: part g, for group g of the block. If g is -1, do
 * not prefetch. */
static void add_values(const real *w, int64_t w_step, int64_t j0, int64_t j1, const real *v, int64_t first,
                       int64_t pad_keys, real *o, int64_t pad_v, const real *alpha, int64_t g)
{
    for (int64_t from = j0; from < j1; from = (from / SUM_KEYS + 1) * SUM_KEYS) {
        const int64_t n = rpi_min((from / SUM_KEYS + 1) * SUM_KEYS, j1) - from;
        for (int64_t x = 0; x < pad_v; x += NR) {
            const int64_t width = rpi_min(NR, pad_v - x);
            const real *at = v + x * pad_keys + (first + from) * width;
            const real *ahead = g < 0 ? at : at + SUM_KEYS * width + g * (SUM_KEYS * width / 16);
            BY_WIDTH(value_tile, width, (w + from, w_step, n, at, 0, o + x, pad_v, alpha, ahead));
        }
        alpha = ones;
    }
}

/* Compute o[MR rows][pad_v] += w^T v, summed over rows [i0, i1) of w and v. Row r of o belongs to column r of w. v is
 * packed as columns of pad_rows rows. */
static void add_transposed(const real *w, int64_t w_step, int64_t i0, int64_t i1, const real *v, int64_t pad_rows,
                           real *o, int64_t pad_v)
{
    for (int64_t x = 0; x < pad_v; x += NR) {
        const int64_t width = rpi_min(NR, pad_v - x);
        const real *at = v + x * pad_rows + i0 * width, *from = w + i0 * w_step;
        BY_WIDTH(transposed_tile, width, (from, w_step, i1 - i0, at, 0, o + x, pad_v, ones, at));
    }
}
