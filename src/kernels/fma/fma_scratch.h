/* kernels/fma/fma_scratch.h -- scratch memory of the FMA backend, for a block and for a backward task. amx/ has the
 * same types.
 * Parameters: VL, BLOCK_ROWS, BACKWARD_KEYS.
 * SPDX-License-Identifier: Apache-2.0 */

#include "fma_pairs.h"

/* Scratch of a block. Register tiles read its queries and scores without repacking, so only pairs need scratch. */
typedef struct products_block {
    real *q_pairs; /* [BLOCK_ROWS][half of Dk padded] queries as pairs */
} products_block;

typedef struct products_backward {
    real *key_rows;                 /* BACKWARD_KEYS keys as columns */
    real *values;                   /* BACKWARD_KEYS values as panels */
    real *dout_scratch, *q_scratch; /* BLOCK_ROWS rows as columns */
    real *dout_pairs;               /* [BLOCK_ROWS][half of Dv padded] if pairs may be used */
    const real *dout_columns;       /* the block's rows of dout as columns: dout_scratch, or the loaded rows */
} products_backward;

static void products_block_layout(const rpi_call *c, products_block *p, rpi_arena *a)
{
    if (scores_by_pairs(c->plan))
        p->q_pairs = rpi_arena_take(a, BLOCK_ROWS, rpi_round_up(key_numbers(c->plan), VL), sizeof(real));
}
