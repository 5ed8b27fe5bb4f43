/* linear/sets/avx512.c -- AVX-512 (F, BW, DQ, VL).
 * SPDX-License-Identifier: Apache-2.0 */
#include "linear/ops.h"
#include "processor/float_state.h"
#include "processor/target.h"
#include <float.h>
#include <math.h>
#include <string.h>
#if defined(__x86_64__)
#include <immintrin.h>
RPI_TARGET_BEGIN("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")
#define LINEAR_ISA avx512
#define RPI_F64    0
#define SHAPES(X)  X(4, 6) X(2, 6) X(1, 6)
#define MAX_ROWS   6
#include "processor/avx512.h"
#include "processor/vector_ops.h"
#include "linear/sets/avx512_integers.h"
#define vi_madd(a, b) ((vi)_mm512_madd_epi16((__m512i)(a), (__m512i)(b)))

/* 4-bit weights are stored as unsigned bytes. The sum of two products is below 2^12, so eight such sums fit into 16
 * bits. */
typedef __m512i s4;
typedef vi w4, x4;
#define x4_load(p)        vi_set1(p)
#define W4_DOT(sum, w, x) _mm512_add_epi16(sum, _mm512_maddubs_epi16((__m512i)(w), (__m512i)(x)))
#define s4_sum(sum)       vi_madd((vi)(sum), (vi)_mm512_set1_epi16(1))

/* Products of |w| and inputs with the sign of w: a pair of them is at most 2 * 127 * 127, which fits into 16 bits. */
typedef struct wq {
    vi size;
    __mmask64 negative;
} wq;
static inline wq wq_load(const void *p)
{
    const __m512i w = (__m512i)(vi_load(p) ^ (int32_t)0x80808080);
    return (wq){(vi)_mm512_abs_epi8(w), _mm512_movepi8_mask(w)};
}
static inline vi wq_dot(vi sum, wq w, vi x)
{
    const __m512i a = _mm512_mask_sub_epi8((__m512i)x, w.negative, _mm512_setzero_si512(), (__m512i)x);
    return sum + vi_madd(_mm512_maddubs_epi16((__m512i)w.size, a), _mm512_set1_epi16(1));
}
#define WQ_DOT(sum, w, x) wq_dot(sum, w, x)
#include "linear/kernels/template.h"
RPI_TARGET_END
#endif
