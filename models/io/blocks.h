/* blocks.h -- types of tensors whose numbers are stored in blocks with scales, as in .gguf files.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef RELPOS_IO_BLOCKS_H
#define RELPOS_IO_BLOCKS_H

#include "io/io.h"

/* Types of mapped tensors. They are not types of relpos. */
enum { IO_Q8_0 = 240, IO_Q4_0, IO_Q4_1, IO_Q5_0, IO_Q5_1, IO_Q2_K, IO_Q3_K, IO_Q4_K, IO_Q5_K, IO_Q6_K, IO_BLOCKS_END };
enum { IO_PART = 32 }; /* numbers that are decoded together; the size of every block is a multiple */

typedef struct io_block_type {
    const char *name;
    int64_t numbers, bytes; /* of a block */
    int scale, min;         /* offsets of the f16 scales in a block; -1: none */
    /* Decode part n of a block: numbers 32 n to 32 n + 31. */
    void (*decode)(const unsigned char *block, int n, float *to);
} io_block_type;

/* Return the description of a type, or NULL if its numbers are not in blocks. */
const io_block_type *io_block_of(rp_dtype dtype);

#endif
