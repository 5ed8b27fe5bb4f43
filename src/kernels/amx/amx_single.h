/* kernels/amx/amx_single.h -- one query against bf16 keys and values, read from the caller's arrays. A tile product
 * would use one of its 16 queries, so vectors multiply instead. They add in the order of an AMX tile (amx_unpacked.h),
 * so the bits are the same.
 * Parameters: VL, NR.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef RPI_ISA
#include "amx_scores.h" /* lets an editor parse this file on its own */
#endif

/* CHUNK_WORDS: the 32-bit words of a chunk of bf16, with two elements each. SINGLE_COLUMNS: the most vectors of values
 * that are summed together. */
enum { CHUNK_WORDS = CHUNK / 2, SINGLE_COLUMNS = 4 };

/* Return true if the rows of an array are consecutive bf16, and `width` is a multiple of `unit`. */
static bool bf16_rows(const rpi_view *v, int64_t width, int64_t unit)
{
    return v->data && v->dtype == RP_BF16 && !rpi_is_transposed(v) && v->stride[2] % 2 == 0 && width % unit == 0;
}

/* Compute the scores of NR keys, s = in + q k^T; in NULL: 0. `q` has the components of the query, [component][width],
 * and keys are `gap` words apart. Prefetch the keys of `ahead`. */
ALWAYS_INLINE void bf16_keys(const real *q, int components, int64_t width, const real *from, int64_t gap,
                             prefetch_walk ahead, const real *in, real *s, magnitude *seen)
{
    magnitude all = *seen;
    for (int64_t r = 0; r < NR; r += VL, from += VL * gap) {
        vf sum = in ? vf_load(in + r) : vf_set1(0);
        for (int64_t x = 0; x < width; x += CHUNK) {
            vf half[2][3]; /* sums of the first and of the second elements of 16 pairs, for each component */
            RPI_UNROLL
            for (int h = 0; h < 2; h++) {
                RPI_UNROLL
                for (int n = 0; n < components; n++)
                    half[h][n] = vf_set1(0);
                RPI_UNROLL
                for (int line = 0; line < VL / 2; line++) /* as many bytes as the step reads */
                    prefetch_next(&ahead);
                RPI_UNROLL
                for (int w = 0; w < CHUNK_WORDS / 2; w += 4) {
                    const real *at = q + x + h * TILE_SIDE + 2 * w;
                    vf y[4];
                    vf_columns(from + x / 2 + h * CHUNK_WORDS / 2 + w, gap, y);
                    RPI_UNROLL
                    for (int c = 0; c < 4; c++) {
                        const vf low = widen_halves((vu)y[c] & 0xffffu, RP_BF16),
                                 high = widen_halves((vu)y[c] >> 16, RP_BF16);
                        note_magnitude(&all, low);
                        note_magnitude(&all, high);
                        RPI_UNROLL
                        for (int n = 0; n < components; n++) {
                            half[h][n] = vf_fma(vf_set1(at[n * width + 2 * c]), low, half[h][n]);
                            half[h][n] = vf_fma(vf_set1(at[n * width + 2 * c + 1]), high, half[h][n]);
                        }
                    }
                }
            }
            RPI_UNROLL
            for (int n = components - 1; n >= 0; n--)
                sum = sum + (half[0][n] + half[1][n]);
        }
        vf_store(s + r, sum);
    }
    *seen = all;
}

/* Write the components of the block's first query to to[component][width]. */
static void split_query(const block *k, int64_t width, real *to)
{
    for (int64_t x = 0; x < width; x += VL) {
        vf component[3];
        BY_COMPONENTS(COMPONENTS, k->products.q_components,
                      bf16_vector(vf_load(k->products.q_rows + x), COMPONENTS, component));
        for (int n = 0; n < k->products.q_components; n++)
            vf_store(to + n * width + x, component[n]);
    }
}

/* Add the products of 32 weights and `vectors` vectors of 32 rows of values. `left` has the two components of the
 * weights, `step` elements apart; rows are `gap` elements apart. */
ALWAYS_INLINE void bf16_values(int vectors, const real *left, int64_t step, const uint16_t *v, int64_t gap,
                               uintptr_t ahead, real *sums, magnitude *seen)
{
    vf first[SINGLE_COLUMNS][2], second[SINGLE_COLUMNS][2];
    magnitude all = *seen;
    RPI_UNROLL
    for (int c = 0; c < vectors; c++)
        for (int n = 0; n < 2; n++)
            first[c][n] = second[c][n] = vf_set1(0);
    for (int p = 0; p < TILE_SIDE; p++, v += gap, ahead += (uintptr_t)(2 * gap)) {
        RPI_UNROLL
        for (int c = 0; c < vectors * VL * 2; c += 64) {
            __builtin_prefetch((const void *)(ahead + (uintptr_t)c), 0, 2);
            __builtin_prefetch((const void *)(ahead + (uintptr_t)(TILE_SIDE * 2 * gap + c)), 0, 2);
        }
        RPI_UNROLL
        for (int c = 0; c < vectors; c++) {
            const vf a = load_halves(v + c * VL, RP_BF16), b = load_halves(v + TILE_SIDE * gap + c * VL, RP_BF16);
            note_magnitude(&all, a);
            note_magnitude(&all, b);
            RPI_UNROLL
            for (int n = 0; n < 2; n++) {
                first[c][n] = vf_fma(vf_set1(left[n * step + p]), a, first[c][n]);
                second[c][n] = vf_fma(vf_set1(left[n * step + p + TILE_SIDE]), b, second[c][n]);
            }
        }
    }
    RPI_UNROLL
    for (int c = 0; c < vectors; c++)
        vf_store(sums + c * VL, vf_load(sums + c * VL) + (first[c][1] + second[c][1]) + (first[c][0] + second[c][0]));
    *seen = all;
}

/* Add the products of 32 weights and the rows of values from key j on to `sums`, if their rows can be read in place.
 * Return false if not. */
static bool single_values(const block *k, int64_t head, int64_t j, const real *left, int64_t step, real *sums,
                          magnitude *seen)
{
    const rp_desc *d = &k->c->args->desc;
    const rpi_view *v = &k->c->args->v;
    if (k->rows != 1 || !bf16_rows(v, d->dim_v, VL) || j + CHUNK > d->len_k || !on_one_page(v, j, CHUNK))
        return false;
    const head_rows rows = rows_of_head(v, k->b, head, d->len_k);
    const uint16_t *at = (const uint16_t *)(const void *)head_row(&rows, j);
    const uintptr_t ahead = (uintptr_t)row_ahead(&rows, j);
    int64_t x = 0;
    for (; d->dim_v - x >= SINGLE_COLUMNS * VL; x += SINGLE_COLUMNS * VL)
        bf16_values(SINGLE_COLUMNS, left, step, at + x, v->stride[2], ahead + (uintptr_t)(2 * x), sums + x, seen);
    for (; x < d->dim_v; x += VL)
        bf16_values(1, left, step, at + x, v->stride[2], ahead + (uintptr_t)(2 * x), sums + x, seen);
    return true;
}

/* Compute the scores of a single row and NR keys from key j on, if the keys can be read in place: s = in + q k^T. `q`
 * has the components of the query. Return false if they cannot. */
static bool single_panel(const block *k, int64_t head, int64_t j, const real *q, const real *in, real *s,
                         magnitude *seen)
{
    const rp_desc *d = &k->c->args->desc;
    const rpi_view *v = &k->c->args->k;
    if (j + NR > d->len_k || !on_one_page(v, j, NR))
        return false;
    const head_rows rows = rows_of_head(v, k->b, head, d->len_k);
    const real *from = (const real *)(const void *)head_row(&rows, j);
    const prefetch_walk ahead = walk_from(row_ahead(&rows, j), d->dim_k * 2, v->stride[2] * 2);
    BY_COMPONENTS(COMPONENTS, k->products.q_components,
                  bf16_keys(q, COMPONENTS, d->dim_k, from, v->stride[2] / 2, ahead, in, s, seen));
    return true;
}
