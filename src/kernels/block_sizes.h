/* kernels/block_sizes.h -- rows of a block, keys of a tile, and what else is cut. VL, MR and NR, the sizes of a
 * register tile, are in the file of each instruction set (isa/avx2.c, isa/avx512.h, …).
 * Parameters: VL, MR, NR, RPI_AMX.
 * May not know what is computed with them.
 * SPDX-License-Identifier: Apache-2.0 */

enum {
    /* vectors of a row of a register tile */
    ROW_VECTORS = NR / VL,
    /* rows of a block of queries: their scores of one tile stay in L2 with the tile's keys and values */
    BLOCK_ROWS = 16 * MR,
    /* keys of a tile */
    TILE_KEYS = 512,
    /* numbers between two rows of scores: a power of two would crowd the rows into a few sets of the cache */
    ROW_STEP = TILE_KEYS + 16,
    /* columns of a tile are computed in multiples of this: of the last panel, only the vectors that have keys */
    COLUMN_STEP = RPI_AMX ? NR : VL,
    /* keys between two additions to out: this bounds the error, and their values stay in L1 */
    SUM_KEYS = RPI_AMX ? TILE_KEYS : 128,
    /* keys of a task of the backward pass: their gradients stay in L2 */
    BACKWARD_KEYS = 256,
    /* products with vectors, or weights by vector, that a block holds at a time */
    WINDOW_VECTORS = RPI_AMX ? 1280 : 1024,
};
/* A window holds what a block can reach in one tile, from a multiple of SUM_KEYS on. */
_Static_assert(WINDOW_VECTORS >= BLOCK_ROWS + TILE_KEYS + SUM_KEYS + NR, "a window must cover the offsets of one tile");
_Static_assert(TILE_KEYS % SUM_KEYS == 0 && SUM_KEYS % NR == 0 && NR % VL == 0, "tiles nest");
