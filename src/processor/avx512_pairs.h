/* processor/avx512_pairs.h -- the instruction of AVX512-BF16 that adds the products of pairs. Include it where the
 * target has AVX512-BF16.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef RELPOS_AVX512_PAIRS_H
#define RELPOS_AVX512_PAIRS_H
#include "processor/target.h"
#if defined(__x86_64__) && defined(RPI_F64)
#include <immintrin.h>

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
#endif
#endif
