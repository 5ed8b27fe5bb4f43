/* kernels/fma/fma_scratch.h -- what products by register tiles add to the scratch of a block and of a backward task;
 * amx/ has the same types. May not know AMX tiles.
 * Parameters: VL, BLOCK_ROWS, BACKWARD_KEYS.
 * SPDX-License-Identifier: Apache-2.0 */

/* Nothing: register tiles read the queries and scores of the block itself. */
typedef struct products_block {
    char none;
} products_block;

typedef struct products_backward {
    real *key_rows;                 /* columns of BACKWARD_KEYS keys */
    real *values;                   /* panels of BACKWARD_KEYS values */
    real *dout_scratch, *q_scratch; /* columns of BLOCK_ROWS rows */
    const real *dout_columns;       /* the block's rows of dout: there, or those that it has loaded */
} products_backward;

static void products_block_layout(const rpi_call *c, products_block *p, rpi_arena *a)
{
    (void)c, (void)p, (void)a;
}
