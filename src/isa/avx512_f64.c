/* isa/avx512_f64.c -- AVX-512 (F, BW, DQ, VL) in double.
 * SPDX-License-Identifier: Apache-2.0 */
#include "call/call.h"
#include "processor/float_state.h"
#include "processor/target.h"
#include <float.h>
#include <math.h>
#include <string.h>
#if defined(__x86_64__)
#include <immintrin.h>
RPI_TARGET_BEGIN("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")
#define RPI_ISA avx512
#define RPI_F64 1
enum { VL = 8, MR = 6, NR = 32 };
typedef __m512d vf;
#define vf_fma(a, b, c)             _mm512_fmadd_pd(a, b, c)
#define vf_set1(x)                  _mm512_set1_pd(x)
#define vf_load(p)                  _mm512_loadu_pd(p)
#define vf_store(p, v)              _mm512_storeu_pd(p, v)
#define vf_max(a, b)                _mm512_max_pd(a, b)
#define vf_larger(a, b)             ((vf)_mm512_max_epi64((__m512i)(a), (__m512i)(b)))
#define vf_below(x, limit, yes, no) _mm512_mask_blend_pd(_mm512_cmp_pd_mask(x, limit, _CMP_LT_OQ), no, yes)
#define vf_sum(x)                   _mm512_reduce_add_pd(x)
#define vf_max_lane(x)              _mm512_reduce_max_pd(x)
#define vf_gather(p, at)            _mm512_i32gather_pd(_mm256_loadu_si256((const __m256i *)(const void *)(at)), p, 8)
/* Pick lanes by index: index n < VL is lane n of a, VL + n is lane n of b. */
#define vf_pick(a, index, b) _mm512_permutex2var_pd(a, (__m512i)(index), b)
#include "processor/vector_ops.h"
#include "kernels/template.h"
RPI_TARGET_END
#endif
