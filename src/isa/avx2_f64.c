/* isa/avx2_f64.c -- AVX2 (with FMA) in double.
 * SPDX-License-Identifier: Apache-2.0 */
#include "call/call.h"
#include "processor/float_state.h"
#include "processor/target.h"
#include <float.h>
#include <math.h>
#include <string.h>
#if defined(__x86_64__)
#include <immintrin.h>
RPI_TARGET_BEGIN("avx2,fma")
#define RPI_ISA avx2
#define RPI_F64 1
enum { VL = 4, MR = 6, NR = 8 };
typedef __m256d vf;
#define vf_fma(a, b, c)             _mm256_fmadd_pd(a, b, c)
#define vf_set1(x)                  _mm256_set1_pd(x)
#define vf_load(p)                  _mm256_loadu_pd(p)
#define vf_store(p, v)              _mm256_storeu_pd(p, v)
#define vf_max(a, b)                _mm256_max_pd(a, b)
#define vf_below(x, limit, yes, no) _mm256_blendv_pd(no, yes, _mm256_cmp_pd(x, limit, _CMP_LT_OQ))
#define vf_transpose(x)             transpose(x)
static inline void transpose(__m256d *x)
{
    const __m256d a = _mm256_unpacklo_pd(x[0], x[1]), b = _mm256_unpackhi_pd(x[0], x[1]);
    const __m256d c = _mm256_unpacklo_pd(x[2], x[3]), d = _mm256_unpackhi_pd(x[2], x[3]);
    x[0] = _mm256_permute2f128_pd(a, c, 0x20);
    x[1] = _mm256_permute2f128_pd(b, d, 0x20);
    x[2] = _mm256_permute2f128_pd(a, c, 0x31);
    x[3] = _mm256_permute2f128_pd(b, d, 0x31);
}
#include "processor/vector_ops.h"
#include "kernels/template.h"
RPI_TARGET_END
#endif
