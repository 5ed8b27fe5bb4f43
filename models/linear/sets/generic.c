/* linear/sets/generic.c -- the instruction set `generic`, for any machine whose C compiler supports vectors of 16
 * bytes. For f32, the product and the sum are rounded separately.
 * SPDX-License-Identifier: Apache-2.0 */
#include "linear/ops.h"
#include "processor/float_state.h"
#include "processor/target.h"
#include <float.h>
#include <math.h>
#include <string.h>
#define LINEAR_ISA generic
#define RPI_F64    0
#define SHAPES(X)  X(2, 1) X(1, 3)
#define MAX_ROWS   3
enum { VL = 4, MR = 3 }; /* 3 x 16 sums take 12 of 16 registers */
typedef float vf __attribute__((vector_size(16), may_alias));
#include "processor/vector_ops.h"
#include "linear/kernels/template.h"
