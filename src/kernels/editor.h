/* kernels/editor.h -- parameters with which an editor can parse a template without an instruction set. A template
 * includes the one before it, and block_sizes.h this file, only if RPI_ISA is undefined. No build includes it.
 * SPDX-License-Identifier: Apache-2.0 */
#include "engine/call.h"
#include "isa/float_state.h"
#include "isa/target.h"
#include <float.h>
#include <math.h>
#include <string.h>
#define RPI_ISA editor
#define RPI_F64 0
#define RPI_AMX 0
enum { VL = 4, MR = 6, NR = 8 };
typedef float vf __attribute__((vector_size(16), may_alias));
#include "isa/vector_ops.h"
