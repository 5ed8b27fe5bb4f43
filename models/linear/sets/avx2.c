/* linear/sets/avx2.c -- AVX2 with FMA.
 * SPDX-License-Identifier: Apache-2.0 */
#include "linear/ops.h"
#include "processor/float_state.h"
#include "processor/target.h"
#include <float.h>
#include <math.h>
#include <string.h>
#if defined(__x86_64__)
#include <immintrin.h>
RPI_TARGET_BEGIN("avx2,fma,f16c")
#define LINEAR_ISA               avx2
#define RPI_F64                  0
#define SHAPES(X)                X(4, 1) X(2, 3) X(1, 6)
#define MAX_ROWS                 6
#define GROUPED(type)            ((type) == LINEAR_F32 || (type) == LINEAR_INT8 || (type) == LINEAR_Q8)
#define INT8_ENDS(rows, columns) 1
/* 5 x 16 sums of bf16, int8 and q8 leave 6 of 16 registers for operands; 3 x 32 sums of int4 are faster than 6 x 16. */
#define GROUP_ROWS(type)                                                                                               \
    ((type) == LINEAR_BF16 || (type) == LINEAR_INT8 || (type) == LINEAR_Q8 ? 5 : (type) == LINEAR_INT4 ? 3 : MR)
#include "processor/avx2.h"
#include "processor/vector_ops.h"
#include "linear/sets/avx2_integers.h"
#define vi_madd(a, b) ((vi)_mm256_madd_epi16((__m256i)(a), (__m256i)(b)))

/* Products of |w| and inputs with the sign of w: a pair of them is at most 2 * 127 * 127, which fits into 16 bits. */
#define X8_BYTES    1
#define X8_UNSIGNED 0
typedef struct w8 {
    vi w, size;
} w8;
typedef vi x8;
static inline w8 w8_load(const void *p)
{
    const vi w = vi_load(p);
    return (w8){w, (vi)_mm256_abs_epi8((__m256i)w)};
}
#define x8_load(p) vi_set1(p)
#define W8_DOT(sum, w8, x)                                                                                             \
    ((sum) + vi_madd(_mm256_maddubs_epi16((__m256i)(w8).size, _mm256_sign_epi8((__m256i)(x), (__m256i)(w8).w)),        \
                     _mm256_set1_epi16(1)))

/* Weights of 4 bits are unsigned bytes. A pair of products is below 2^12, so eight pairs fit into 16 bits. */
typedef __m256i s4;
typedef vi w4, x4;
#define x4_load(p)        vi_set1(p)
#define W4_DOT(sum, w, x) _mm256_add_epi16(sum, _mm256_maddubs_epi16((__m256i)(w), (__m256i)(x)))
#define s4_sum(sum)       vi_madd((vi)(sum), (vi)_mm256_set1_epi16(1))

/* W4_DOT for unrolled loops with many sums (see ADD_PRODUCTS). */
#define W4_ADD(sum, w, x) w4_add(sum, (__m256i)(w), (__m256i)(x))
static inline __attribute__((always_inline)) s4 w4_add(s4 sum, __m256i w, __m256i x)
{
    __m256i p;
    __asm__("vpmaddubsw %3, %2, %1\n\tvpaddw %1, %0, %0" : "+x"(sum), "=&x"(p) : "x"(w), "x"(x));
    return sum;
}

typedef w8 wq;
static inline wq wq_load(const void *p)
{
    const vi w = vi_load(p) ^ (int32_t)0x80808080;
    return (wq){w, (vi)_mm256_abs_epi8((__m256i)w)};
}
#define WQ_DOT(sum, w, x) W8_DOT(sum, w, x)

/* low += x * w_low, high += x * w_high. In C, gcc 12 moves the sums of unrolled loops to other registers and to the
 * stack. */
#define ADD_PRODUCTS(low, high, x, w_low, w_high)                                                                      \
    do {                                                                                                               \
        vf a;                                                                                                          \
        __asm__("vbroadcastss %3, %2\n\tvfmadd231ps %4, %2, %0\n\tvfmadd231ps %5, %2, %1"                              \
                : "+&x"(low), "+x"(high), "=&x"(a)                                                                     \
                : "m"(x), "x"(w_low), "x"(w_high));                                                                    \
    } while (0)

#define W8_SIZE(w)        ((vi)_mm256_abs_epi8((__m256i)(w)))
#define W8_NEGATIVE(w)    ((vi)_mm256_cmpgt_epi8(_mm256_setzero_si256(), (__m256i)(w)))
#define W8_PAIRS(size, x) ((vh)_mm256_maddubs_epi16((__m256i)(size), (__m256i)(x)))

/* The products of ADD_PRODUCTS for bytes of a strip of signs (signs.h): `size` are |w| of two vectors, and `negative`
 * are their signs. VPXOR has more execution units than VPSIGNB. */
#define ADD_BYTES(low, high, x, size_low, size_high, negative, ones)                                                   \
    do {                                                                                                               \
        vi a, b;                                                                                                       \
        __asm__("vpbroadcastd %4, %2\n\tvpxor %5, %2, %3\n\tvpxor %6, %2, %2\n\t"                                      \
                "vpmaddubsw %3, %7, %3\n\tvpmaddubsw %2, %8, %2\n\tvpmaddwd %9, %3, %3\n\tvpmaddwd %9, %2, %2\n\t"     \
                "vpaddd %3, %0, %0\n\tvpaddd %2, %1, %1"                                                               \
                : "+x"(low), "+x"(high), "=&x"(a), "=&x"(b)                                                            \
                : "m"(x), "m"((negative)[0]), "m"((negative)[1]), "x"(size_low), "x"(size_high), "x"(ones));           \
    } while (0)
#include "linear/kernels/template.h"
RPI_TARGET_END
#endif
