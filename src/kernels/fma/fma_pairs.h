/* kernels/fma/fma_pairs.h -- keys, queries and dout as pairs of bf16, for an instruction that adds two products. The
 * sums have the same bits as multiply-adds of single elements in the order of the channels, so code for unpacked keys
 * may use single elements.
 * Parameters: VL, NR, vf_pairs; RPI_PAIRS_ISA, the instruction set with that instruction (if undefined, pairs are not
 * used).
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef RPI_ISA
#include "kernels/register_tile.h" /* lets an editor parse this file on its own */
#endif

/* Return the length of a row of `width` channels: in pairs if `pairs` is set, else in elements. */
static inline int64_t row_numbers(int64_t width, bool pairs)
{
    return pairs ? (width + 1) / 2 : width;
}

#ifdef RPI_PAIRS_ISA
/* Return true if the plan's arrays are bf16 and its kernels multiply pairs. */
static inline bool has_pairs(const rp_plan *plan)
{
    return plan->desc.dtype == RP_BF16 && plan->ops->pairs;
}

/* Combine channel 2n (in `even`) and channel 2n + 1 (in `odd`) into pairs. Their elements must be exactly bf16. The
 * upper half of a pair comes from `even`, because vf_pairs adds the product of the upper halves first. It thus adds in
 * the order of the channels, like multiply-adds of single elements. */
static inline vf pairs_of(vf even, vf odd)
{
    return (vf)vu_highs(odd, even);
}

/* Convert rows of n elements, [rows][n padded], to rows of pairs, [rows][n / 2 padded]. */
static void rows_as_pairs(const real *from, int64_t rows, int64_t n, real *to)
{
    const int64_t wide = rpi_round_up(n, VL), half = rpi_round_up((n + 1) / 2, VL);
    vi even, odd;
    RPI_UNROLL
    for (int c = 0; c < VL; c++) {
        even[c] = 2 * c;
        odd[c] = 2 * c + 1;
    }
    for (int64_t r = 0; r < rows; r++, from += wide, to += half)
        for (int64_t x = 0; x < wide; x += 2 * VL) {
            const vf a = vf_load(from + x), b = x + VL < wide ? vf_load(from + x + VL) : vf_set1(0);
            vf_store(to + x / 2, pairs_of(vf_pick(a, even, b), vf_pick(a, odd, b)));
        }
}

/* Pack panels of pairs of channels, like pack_panels: [panel of NR rows][half of the width][NR]. */
static void pack_pairs(const rpi_view *v, int64_t b, int64_t h, int64_t j0, int64_t n, int64_t real_rows, int64_t width,
                       real *to, uint8_t *large)
{
    const head_rows rows = rows_of_head(v, b, h, real_rows);
    real channels[CHANNELS + 1][VL];
    for (int64_t r0 = 0; r0 < n; r0 += VL) {
        const int64_t there = rpi_clamp(real_rows - j0 - r0, 0, VL);
        real *at = to + r0 / NR * NR * ((width + 1) / 2) + r0 % NR;
        magnitude w = {vf_set1(0)};
        for (int64_t x0 = 0; x0 < width; x0 += CHANNELS) {
            const int64_t m = rpi_min(CHANNELS, width - x0);
            transpose_channels(&rows, j0 + r0, there, x0, m, channels[0], VL, &w);
            vf_store(channels[m], vf_set1(0));
            for (int64_t x = 0; x < m; x += 2, at += NR)
                vf_store(at, pairs_of(vf_load(channels[x]), vf_load(channels[x + 1])));
        }
        large[r0 / NR] |= is_immoderate(&w);
    }
}
#else
#define has_pairs(plan)                                         ((void)(plan), false)
#define rows_as_pairs(from, rows, n, to)                        ((void)0)
#define pack_pairs(v, b, h, j0, n, real_rows, width, to, large) ((void)0)
#endif

/* Return true if scores are computed from pairs: has_pairs is true, keys are not rotated, and scaled queries are still
 * exactly bf16, because the scale is a power of two. */
static inline bool scores_by_pairs(const rp_plan *plan)
{
    int exponent;
    return has_pairs(plan) && plan->rotate < 0 && frexp(fabs(plan->desc.scale), &exponent) == 0.5;
}

/* Return the length of a packed key, in elements or in pairs. */
static inline int64_t key_numbers(const rp_plan *plan)
{
    return row_numbers(plan->desc.dim_k, scores_by_pairs(plan));
}

/* Return true if packed keys are panels of single elements that are not rotated. */
static inline bool plain_panels(const rp_plan *plan)
{
    return plan->rotate < 0 && !scores_by_pairs(plan);
}
