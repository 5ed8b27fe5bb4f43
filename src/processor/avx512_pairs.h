/* processor/avx512_pairs.h -- sums of products of pairs of bf16 (AVX512-BF16), for instruction sets built on avx512.h.
 * SPDX-License-Identifier: Apache-2.0 */

/* Return sum plus the products of the pairs in x and y. */
static inline __attribute__((always_inline)) __m512 dot_pairs(__m512 sum, __m512 x, __m512 y)
{
#if defined(__clang__) && __clang_major__ == 16
    /* else the optimizer of clang 16 recurses without end if all pairs of a vector are equal */
    RPI_HOLD(x);
    RPI_HOLD(y);
#endif
    return _mm512_dpbf16_ps(sum, (__m512bh)x, (__m512bh)y);
}
