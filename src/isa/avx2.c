/* isa/avx2.c -- AVX2 (with FMA and F16C).
 * SPDX-License-Identifier: Apache-2.0 */
#include "call/call.h"
#include "processor/float_state.h"
#include "processor/target.h"
#include <float.h>
#include <math.h>
#include <string.h>
#if defined(__x86_64__)
#include <immintrin.h>
RPI_TARGET_BEGIN("avx2,fma,f16c")
#define RPI_ISA avx2
#define RPI_F64 0
#include "processor/avx2.h"
#include "processor/vector_ops.h"
#include "kernels/template.h"
RPI_TARGET_END
#endif
