/* isa/avx512.c -- AVX-512 (F, BW, DQ, VL), and a second table for AVX512-BF16. Only kernels of the second table run
 * vf_pairs. Compilers generate no other AVX512-BF16 instructions for code that does not use bf16 types.
 * SPDX-License-Identifier: Apache-2.0 */
#include "call/call.h"
#include "processor/float_state.h"
#include "processor/target.h"
#include <float.h>
#include <math.h>
#include <string.h>
#if defined(__x86_64__)
#include <immintrin.h>
RPI_TARGET_BEGIN("avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,avx2,fma")
#define RPI_ISA       avx512
#define RPI_F64       0
#define RPI_PAIRS_ISA avx512_bf16
#include "processor/avx512.h"
#include "processor/avx512_pairs.h"
#define vf_pairs(x, y, sum) dot_pairs(sum, x, y)
#include "processor/vector_ops.h"
#include "kernels/template.h"
RPI_TARGET_END
#endif
