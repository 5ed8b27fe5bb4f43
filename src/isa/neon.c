/* isa/neon.c -- AdvSIMD (NEON), the vectors of every AArch64 machine.
 * SPDX-License-Identifier: Apache-2.0 */
#include "call/call.h"
#include "processor/float_state.h"
#include "processor/target.h"
#include <float.h>
#include <math.h>
#include <string.h>
#if defined(__aarch64__)
RPI_SOURCE_ORDER
#include <arm_neon.h>
#define RPI_ISA neon
#define RPI_F64 0
#include "processor/neon.h"
#include "processor/vector_ops.h"
#include "kernels/template.h"
#endif
