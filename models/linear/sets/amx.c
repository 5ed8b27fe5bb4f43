/* linear/sets/amx.c -- AVX-512 with AMX-TILE and AMX-INT8: tiles of 16 x 16 sums of products of bytes.
 * SPDX-License-Identifier: Apache-2.0 */
#include "linear/ops.h"
#include "processor/float_state.h"
#include "processor/target.h"
#include <float.h>
#include <math.h>
#include <string.h>
#if defined(__x86_64__)
#include <immintrin.h>
RPI_TARGET_BEGIN("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,amx-tile,amx-int8")
#define LINEAR_ISA amx
extern const linear_ops linear_ops_avx512_bf16;
#define LINEAR_BASE linear_ops_avx512_bf16
#define OWNS(type)  ((type) == LINEAR_INT8)
#define LINEAR_AMX
#define FEWEST_ROWS 5 /* fewer rows go to VPDPBUSD: 4 rows take no longer than loading their weights from L2 */
#define RPI_F64     0
#include "processor/avx512.h"
#include "processor/vector_ops.h"
#include "processor/amx.h"
#include "linear/sets/avx512_integers.h"
#define X8_BYTES            1
#define X8_UNSIGNED         1
#define amx_begin(R, rows)  amx_configure(rows)
#define amx_dot(R, c, a, b) _tile_dpbusd(c, a, b)
#include "linear/kernels/template.h"
RPI_TARGET_END
#endif
