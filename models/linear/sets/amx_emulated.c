/* linear/sets/amx_emulated.c -- the tiles of AMX-INT8 in plain C, to test amx_block.h on every machine.
 * SPDX-License-Identifier: Apache-2.0 */
#include "linear/ops.h"
#include "processor/float_state.h"
#include "processor/target.h"
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#define LINEAR_ISA amx_emulated
extern const linear_ops linear_ops_generic;
#define LINEAR_BASE linear_ops_generic
#define OWNS(type)  ((type) == LINEAR_INT8)
#define LINEAR_AMX
#define FEWEST_ROWS 1 /* always use tiles: the fallback, generic, prepares rows in another form */
#define RPI_F64     0
enum { VL = 4 };
typedef float vf __attribute__((vector_size(16), may_alias));
#include "processor/vector_ops.h"
#define X8_BYTES    1
#define X8_UNSIGNED 1

typedef struct amx_tiles {
    int rows[8]; /* rows of each tile; 0: not configured, before and after a task */
    uint8_t at[8][16][64];
} amx_tiles;

/* True between amx_begin and amx_end. A thread has only one set of tiles. */
static _Thread_local bool taken;

/* Abort where the processor would raise an exception or compute sums of another shape. */
static inline void demand(bool right)
{
    if (!right)
        abort();
}

static void amx_begin(amx_tiles *R, int rows)
{
    demand(!taken && rows >= 1 && rows <= 16);
    taken = true;
    memset(R, 0, sizeof *R);
    for (int n = 0; n < 8; n++)
        R->rows[n] = n < 6 ? rows : 16;
}

static void amx_end(amx_tiles *R)
{
    demand(taken);
    taken = false;
    memset(R, 0, sizeof *R);
}
#define amx_fence() ((void)0)

static void amx_load(amx_tiles *R, int t, const void *from, int64_t step)
{
    demand(R->rows[t] > 0);
    memset(R->at[t], 0, sizeof R->at[t]);
    for (int m = 0; m < R->rows[t]; m++)
        memcpy(R->at[t][m], (const char *)from + m * step, 64);
}

static void amx_store(const amx_tiles *R, int t, void *to, int64_t step)
{
    demand(R->rows[t] > 0);
    for (int m = 0; m < R->rows[t]; m++)
        memcpy((char *)to + m * step, R->at[t][m], 64);
}

/* Compute c += a b modulo 2^32 like TDPBUSD: bytes of a are unsigned, bytes of b signed. AddressSanitizer is off
 * because AMX tiles are registers and have no bounds to check. */
__attribute__((no_sanitize("address"))) static void amx_dot(amx_tiles *R, int c, int a, int b)
{
    demand(R->rows[c] > 0 && R->rows[c] == R->rows[a] && R->rows[b] == 16);
    for (int m = 0; m < R->rows[c]; m++) {
        uint32_t sum[16];
        memcpy(sum, R->at[c][m], sizeof sum);
        for (int k = 0; k < 16; k++)
            for (int n = 0; n < 16; n++)
                for (int i = 0; i < 4; i++)
                    sum[n] += (uint32_t)(R->at[a][m][4 * k + i] * (int8_t)R->at[b][k][4 * n + i]);
        memcpy(R->at[c][m], sum, sizeof sum);
    }
}
#include "linear/kernels/template.h"
