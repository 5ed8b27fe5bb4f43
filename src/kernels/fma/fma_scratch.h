/* kernels/fma/fma_scratch.h -- what products by register tiles add to the scratch of a block and of a backward task;
 * amx/ has the same types. May not know AMX tiles.
 * Parameters: VL, BLOCK_ROWS, BACKWARD_KEYS.
 * SPDX-License-Identifier: Apache-2.0 */

#include "fma_pairs.h"

/* Register tiles read the queries and scores of the block itself. */
typedef struct products_block {
    real *q_pairs; /* [BLOCK_ROWS][half of Dk padded] the queries as pairs */
} products_block;

typedef struct products_backward {
    real *key_rows;                 /* columns of BACKWARD_KEYS keys */
    real *values;                   /* panels of BACKWARD_KEYS values */
    real *dout_scratch, *q_scratch; /* columns of BLOCK_ROWS rows */
    real *dout_pairs;               /* [BLOCK_ROWS][half of Dv padded] where numbers may go by pairs */
    const real *dout_columns;       /* the block's rows of dout: there, or those that it has loaded */
} products_backward;

static void products_block_layout(const rpi_call *c, products_block *p, rpi_arena *a)
{
    if (scores_by_pairs(c->plan))
        p->q_pairs = rpi_arena_take(a, BLOCK_ROWS, rpi_round_up(key_numbers(c->plan), VL), sizeof(real));
}
