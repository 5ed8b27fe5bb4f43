/* isa/amx.c -- AVX-512 with AMX tiles (AMX-TILE, AMX-BF16): 16 x 16 sums of products of bf16.
 * SPDX-License-Identifier: Apache-2.0 */
#include "call/call.h"
#include "processor/float_state.h"
#include "processor/target.h"
#include <float.h>
#include <math.h>
#include <string.h>
#if defined(__x86_64__)
#include <immintrin.h>
RPI_TARGET_BEGIN("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,amx-tile,amx-bf16")
#define RPI_ISA     amx
#define RPI_F64     0
#define RPI_AMX     1
#define RPI_SINGLES avx512
#include "processor/avx512.h"
#include "processor/amx.h"
#define amx_begin()         amx_configure(16)
#define amx_dot(R, c, a, b) _tile_dpbf16ps(c, a, b)
#include "processor/vector_ops.h"
#include "kernels/template.h"
RPI_TARGET_END
#endif
