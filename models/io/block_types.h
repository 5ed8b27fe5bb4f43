/* block_types.h -- types of tensors whose numbers are stored in blocks with scales, as in .gguf files.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef RELPOS_IO_BLOCK_TYPES_H
#define RELPOS_IO_BLOCK_TYPES_H

#include "io/io.h"
#include "linear/block_kinds.h"

/* Types of mapped tensors, in the order of linear_kind. They are not types of relpos. */
enum { IO_Q8_0 = 240, IO_Q4_0, IO_Q4_1, IO_Q5_0, IO_Q5_1, IO_Q2_K, IO_Q3_K, IO_Q4_K, IO_Q5_K, IO_Q6_K, IO_BLOCKS_END };

/* Return the description of a type, or NULL if its numbers are not in blocks. */
const linear_blocks *io_block_of(rp_dtype dtype);
/* Convert numbers first … first + n - 1 of blocks that follow each other to f32. */
void io_blocks_read(const linear_blocks *b, const unsigned char *blocks, int64_t first, int64_t n, float *to);

#endif
