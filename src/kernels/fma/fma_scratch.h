/* kernels/fma/fma_scratch.h -- scratch memory of the FMA backend, for a block and for a backward task. amx/ has the
 * same types.
 * Parameters: VL, BLOCK_ROWS, BACKWARD_KEYS.
 * SPDX-License-Identifier: Apache-2.0 */

#include "fma_pairs.h"

/* Values of a tile that are still to be added to the sums of a single row (fma_unpacked.h). */
typedef struct late_values {
    const real *w;      /* weights of the tile */
    int64_t b, head,    /* batch entry and kv head */
        tile0, col, to; /* columns [col, to) are still to be added */
    real *o;            /* sums of the row; weigh_tile describes o and sum_step */
    int64_t sum_step;   /* elements of o between the sums of successive SUM_KEYS keys; 0: all are added to one sum */
    real *sums;         /* [Dv padded] sum of weighted values of the current SUM_KEYS keys */
    real alpha;         /* factor of the earlier sums in o, applied when the next sum is added */
    magnitude size;     /* magnitude of the results */
} late_values;

/* Scratch of a block, in addition to its queries and scores, which register tiles read as they are. */
typedef struct products_block {
    real *q_pairs; /* [BLOCK_ROWS][half of Dk padded] queries as pairs */
    late_values late;
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
    p->late.sums = rpi_arena_take(a, rpi_round_up(c->plan->desc.dim_v, VL), 1, sizeof(real));
}
