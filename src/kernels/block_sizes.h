/* kernels/block_sizes.h -- sizes of blocks and tiles. The file of each instruction set (processor/avx2.h, avx512.h, …)
 * defines VL, MR and NR, the sizes of vectors and register tiles.
 * Parameters: VL, MR, NR, RPI_AMX.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef RPI_ISA
#include "editor.h" /* lets an editor parse this file on its own */
#endif

enum {
    /* vectors in a row of a register tile */
    ROW_VECTORS = NR / VL,
    /* query rows of a block: the scores of one tile, its keys and its values stay in the L2 cache */
    BLOCK_ROWS = 16 * MR,
    /* keys of a tile */
    TILE_KEYS = 512,
    /* elements from one row of scores to the next; if this were a power of two, all rows would use the same few sets of
     * the cache */
    ROW_STEP = TILE_KEYS + 16,
    /* the number of computed columns is a multiple of this; VL lets FMA skip empty vectors of the last panel */
    COLUMN_STEP = RPI_AMX ? NR : VL,
    /* weighted values that are summed before each addition to out; limits the rounding error, and these values stay in
     * the L1 cache */
    SUM_KEYS = RPI_AMX ? TILE_KEYS : 128,
    /* keys of a backward task: their gradients stay in the L2 cache */
    BACKWARD_KEYS = 256,
    /* the most vectors for which a block stores products (RUN) or weights (VALUES) at a time */
    WINDOW_VECTORS = RPI_AMX ? 1280 : 1024,
};
/* A window begins at a multiple of SUM_KEYS and covers all vectors that a block can use in one tile. */
_Static_assert(WINDOW_VECTORS >= BLOCK_ROWS + TILE_KEYS + SUM_KEYS + NR, "a window must cover the offsets of one tile");
_Static_assert(TILE_KEYS % SUM_KEYS == 0 && SUM_KEYS % NR == 0 && NR % VL == 0, "tiles nest");
