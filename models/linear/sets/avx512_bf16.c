/* linear/sets/avx512_bf16.c -- AVX-512 with AVX512-BF16 (sums of two products of bf16), on machines
 * that also have VNNI.
 * SPDX-License-Identifier: Apache-2.0 */
#include "linear/ops.h"
#include "processor/float_state.h"
#include "processor/target.h"
#include <float.h>
#include <math.h>
#include <string.h>
#if defined(__x86_64__)
#include <immintrin.h>
RPI_TARGET_BEGIN("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,avx512bf16")
#define LINEAR_ISA avx512_bf16
extern const linear_ops linear_ops_avx512_vnni;
#define LINEAR_BASE linear_ops_avx512_vnni
#define OWNS(type)  ((type) == LINEAR_BF16)
#define RPI_F64     0
#define SHAPES(X)   X(4, 6) X(2, 6) X(1, 6)
#define MAX_ROWS    6
#include "processor/avx512.h"
#include "processor/avx512_pairs.h"
#include "processor/vector_ops.h"
#include "linear/sets/avx512_integers.h"

/* For each pair, VDPBF16PS adds the product of the odd inputs and then the product of the even inputs, rounding to
 * nearest after each. It treats subnormal inputs and results as zero. */
#define W16_DOT(sum, w, x) dot_pairs(sum, (__m512)(w), (__m512)(x))
#define x16_store(p, x)    _mm256_storeu_si256((__m256i *)(void *)(p), _mm512_cvtepi32_epi16((__m512i)((vu)(x) >> 16)))
#include "linear/kernels/template.h"
RPI_TARGET_END
#endif
