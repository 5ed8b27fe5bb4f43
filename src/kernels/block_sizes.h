/* kernels/block_sizes.h -- sizes of blocks and tiles. The file of each instruction set (isa/avx2.h, isa/avx512.h, …)
 * has VL, MR and NR, the sizes of vectors and register tiles.
 * Parameters: VL, MR, NR, RPI_AMX.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef RPI_ISA
#include "editor.h" /* only if an editor parses this file by itself */
#endif

enum {
    /* vectors in a row of a register tile */
    ROW_VECTORS = NR / VL,
    /* query rows of a block: the scores of one tile, its keys and its values stay in the L2 cache */
    BLOCK_ROWS = 16 * MR,
    /* keys of a tile */
    TILE_KEYS = 512,
    /* elements from one row of scores to the next; with a power of two, all rows would compete for a few sets of the
     * cache */
    ROW_STEP = TILE_KEYS + 16,
    /* columns of a tile are computed in multiples of this, so vectors of the last panel without keys are skipped */
    COLUMN_STEP = RPI_AMX ? NR : VL,
    /* keys summed before each addition to out; limits the rounding error and keeps the values in the L1 cache */
    SUM_KEYS = RPI_AMX ? TILE_KEYS : 128,
    /* keys of a backward task: their gradients stay in the L2 cache */
    BACKWARD_KEYS = 256,
    /* vectors for which a block keeps products, or weights by vector, at a time */
    WINDOW_VECTORS = RPI_AMX ? 1280 : 1024,
};
/* A window covers the vectors that a block can use in one tile, beginning at a multiple of SUM_KEYS. */
_Static_assert(WINDOW_VECTORS >= BLOCK_ROWS + TILE_KEYS + SUM_KEYS + NR, "a window must cover the offsets of one tile");
_Static_assert(TILE_KEYS % SUM_KEYS == 0 && SUM_KEYS % NR == 0 && NR % VL == 0, "tiles nest");
