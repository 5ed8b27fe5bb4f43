/* isa/generic_f64.c -- any machine whose C compiler supports vectors of 16 bytes, in double.
 * SPDX-License-Identifier: Apache-2.0 */
#include "call/call.h"
#include "processor/float_state.h"
#include "processor/target.h"
#include <float.h>
#include <math.h>
#include <string.h>
#define RPI_ISA generic
#define RPI_F64 1
enum { VL = 2, MR = 6, NR = 4 };
typedef double vf __attribute__((vector_size(16), may_alias));
#include "processor/vector_ops.h"
#include "kernels/template.h"
