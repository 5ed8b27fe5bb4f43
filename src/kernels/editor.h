/* kernels/editor.h -- parameters that let an editor parse a template on its own. If RPI_ISA is undefined, each template
 * includes the template that comes before it, and block_sizes.h includes this file. No build includes this file.
 * SPDX-License-Identifier: Apache-2.0 */
#include "call/call.h"
#include "processor/float_state.h"
#include "processor/target.h"
#include <float.h>
#include <math.h>
#include <string.h>
#define RPI_ISA editor
#define RPI_F64 0
#define RPI_AMX 0
enum { VL = 4, MR = 6, NR = 8 };
typedef float vf __attribute__((vector_size(16), may_alias));
#include "processor/vector_ops.h"
