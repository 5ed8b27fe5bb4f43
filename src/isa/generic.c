/* isa/generic.c -- any machine whose C compiler supports vectors of 16 bytes (gcc, clang). They are compiled to SSE2,
 * NEON or plain code.
 * SPDX-License-Identifier: Apache-2.0 */
#include "call/call.h"
#include "processor/float_state.h"
#include "processor/target.h"
#include <float.h>
#include <math.h>
#include <string.h>
#define RPI_ISA generic
#define RPI_F64 0
enum { VL = 4, MR = 6, NR = 8 }; /* 6 x 8 sums take 12 of 16 registers */
typedef float vf __attribute__((vector_size(16), may_alias));
#include "processor/vector_ops.h"
#include "kernels/template.h"
