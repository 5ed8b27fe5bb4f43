/* kernels/amx/amx_editor.h -- as kernels/editor.h, for the templates of AMX: parameters, declarations of the operations
 * on AMX tiles, and the templates before bf16_sums.h. No build includes it.
 * SPDX-License-Identifier: Apache-2.0 */
#include "call/call.h"
#include "processor/float_state.h"
#include "processor/target.h"
#include <float.h>
#include <math.h>
#include <string.h>
#define RPI_ISA editor
#define RPI_F64 0
#define RPI_AMX 1
enum { VL = 16, MR = 6, NR = 64 };
typedef float vf __attribute__((vector_size(64), may_alias));
typedef struct amx_tiles {
    char none;
} amx_tiles;
void amx_begin(void);
void amx_end(void);
void amx_fence(void);
void amx_zero(amx_tiles *R, int t);
void amx_load(amx_tiles *R, int t, const void *from, int64_t step);
void amx_store(const amx_tiles *R, int t, void *to, int64_t step);
void amx_dot(amx_tiles *R, int c, int a, int b);
#include "processor/vector_ops.h"
#include "kernels/block_sizes.h"
#include "kernels/elements.h"
#include "kernels/rotate_rows.h"
#include "kernels/pack.h"
#include "kernels/register_tile.h"
