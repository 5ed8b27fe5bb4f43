/* layout.h -- memory layout of packed weights (panels of 64 outputs, equal for all instruction sets) and of prepared
 * rows.
 *
 * A panel holds 64 rows of W side by side. It consists of lines; each line holds a few inputs of all 64 rows. Panels
 * follow each other, so multiplying one row of x reads W from beginning to end. A line has 4 columns of 64 bytes, one
 * vector of AVX-512; each column covers 16 outputs. The last panel may have fewer columns.
 *
 *   f32    a line is 1 input; a column has 16 numbers
 *   f16    a line is 2 inputs; a column has 16 numbers of the even input, then 16 of the odd one
 *   bf16   a line is 2 inputs; a column has 16 pairs, with the even input in the lower half of a 32-bit word
 *   int8   a line is 4 inputs; a column has 16 groups of four signed bytes. Before the lines there is an f32 scale for
 *          each output, then an int32 for each output, -128 Σ q
 *   int4   a line is 8 inputs; a column has 16 groups of four bytes, with q + 8 of inputs 0-3 in the low halves and of
 *          inputs 4-7 in the high halves. 4 lines are a group; before them there is a bf16 scale for each output
 *   q8     a line is 4 inputs; a column has 16 groups of four bytes, q + 128. 8 lines are a group; before them there is
 *          an f32 scale for each output
 *
 * Pairs and groups of four are the operands of VNNI and AMX. Zeros pad the inputs to whole lines (int4 and q8: whole
 * groups) and the outputs to whole columns.
 *
 * For weights from bf16 on, rows of x are prepared. A prepared row has a header of 64 bytes (the scale of integers; 1
 * for q8), then the inputs as bf16 or as integers in the form that the instruction set reads, then for int4 and q8 one
 * int32 per group, -8 Σ q or -128 Σ q (0 if the instruction set reads signed weights), then for q8 an f32 scale per
 * group. For blocks, there are instead an f32 scale for each 32 inputs, and the sum of the quantized inputs of each
 * group that shares an offset, as f32.
 *
 * Blocks stay rows. 256 inputs at a time of a panel are converted to a strip: the offsets of each group (16 or 32
 * inputs), the scales of each group, then lines of 4 inputs; the integers of a line are bytes below 64.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef RELPOS_LINEAR_LAYOUT_H
#define RELPOS_LINEAR_LAYOUT_H

#include "linear/linear.h"
#include <math.h>
#include <string.h>

enum {
    LINEAR_COLUMN = 16,       /* outputs of a column */
    LINEAR_COLUMN_BYTES = 64, /* bytes of one column in one line */
    LINEAR_COLUMNS = 4,       /* columns of a panel */
    LINEAR_PANEL = 64,        /* outputs of a panel */
    LINEAR_GROUP = 32,        /* inputs of int4 and q8 that share a scale */
    LINEAR_TILE_ROWS = 6,     /* max rows of a group, the rows of a register tile */
    LINEAR_ROW_HEAD = 64      /* bytes before the inputs of a prepared row */
};

static inline int64_t linear_min(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static inline int64_t linear_ceil(int64_t n, int64_t step)
{
    return n / step + (n % step != 0);
}

/* Return the number of inputs of a line. */
static inline int64_t linear_line_inputs(linear_type type)
{
    return type == LINEAR_F32 ? 1 : type <= LINEAR_BF16 ? 2 : type == LINEAR_INT4 ? 8 : 4;
}

/* Return the number of lines of a group; 0 if the type has no groups. */
static inline int64_t linear_group_lines(linear_type type)
{
    return type >= LINEAR_INT4 ? LINEAR_GROUP / linear_line_inputs(type) : 0;
}

/* Return the number of lines of a panel. */
static inline int64_t linear_lines(linear_type type, int64_t in)
{
    return type >= LINEAR_INT4 ? linear_group_lines(type) * linear_ceil(in, LINEAR_GROUP)
                               : linear_ceil(in, linear_line_inputs(type));
}

/* Return the number of columns of a panel: 4, or fewer for the last panel. */
static inline int64_t linear_columns(int64_t out, int64_t panel)
{
    return linear_min(linear_ceil(out, LINEAR_COLUMN) - panel * LINEAR_COLUMNS, LINEAR_COLUMNS);
}

/* Return the bytes before the lines of a panel; for int4 and q8, the bytes before the lines of a group. */
static inline int64_t linear_head_bytes(linear_type type, int64_t columns)
{
    return type == LINEAR_INT8   ? 2 * columns * LINEAR_COLUMN_BYTES
           : type == LINEAR_INT4 ? linear_ceil(columns, 2) * LINEAR_COLUMN_BYTES
           : type == LINEAR_Q8   ? columns * LINEAR_COLUMN_BYTES
                                 : 0;
}

/* Return the bytes of a group of int4 or q8. */
static inline int64_t linear_group_bytes(linear_type type, int64_t columns)
{
    return linear_head_bytes(type, columns) + linear_group_lines(type) * columns * LINEAR_COLUMN_BYTES;
}

/* Return the byte offset of line k in a panel. */
static inline int64_t linear_line_at(linear_type type, int64_t columns, int64_t k)
{
    const int64_t heads = type >= LINEAR_INT4 ? k / linear_group_lines(type) + 1 : 1;
    return heads * linear_head_bytes(type, columns) + k * columns * LINEAR_COLUMN_BYTES;
}

static inline int64_t linear_panel_bytes(linear_type type, int64_t in, int64_t columns)
{
    const int64_t last = linear_lines(type, in) - 1;
    return linear_line_at(type, columns, last) + columns * LINEAR_COLUMN_BYTES;
}

/* Return the number of inputs of a prepared row, padded with zeros to whole groups (for int8: to whole rows of an AMX
 * tile). */
static inline int64_t linear_row_inputs(linear_type type, int64_t in)
{
    const int64_t step = type == LINEAR_INT8 ? LINEAR_COLUMN_BYTES : LINEAR_GROUP;
    return linear_ceil(in, step) * step;
}

/* Return the number of words that a prepared row has for a group of 32 inputs. */
static inline int64_t linear_row_floats(linear_type type)
{
    return type == LINEAR_BLOCKS ? 3 : type == LINEAR_Q8 ? 2 : 1;
}

/* Return the size of a prepared row in bytes. An int8 input takes up to two bytes, because instruction sets without
 * VNNI store 16 bits. A bf16 input takes up to four, because sets without bf16 products store f32. */
static inline int64_t linear_row_bytes(linear_type type, int64_t in)
{
    const int64_t inputs = linear_row_inputs(type, in), groups = linear_ceil(in, LINEAR_GROUP);
    const int64_t bytes = type == LINEAR_BF16   ? 4 * inputs
                          : type == LINEAR_INT8 ? 2 * inputs
                                                : inputs + linear_row_floats(type) * 4 * groups;
    return LINEAR_ROW_HEAD + linear_ceil(bytes, 64) * 64;
}

/* Return the bytes of a prepared row, or 0 if the type uses the rows of x. */
static inline int64_t linear_prepared_bytes(linear_type type, int64_t in)
{
    return type > LINEAR_F16 ? linear_row_bytes(type, in) : 0;
}

/* Return the bytes of a row in a group, or 0 if rows of this type are not interleaved. Instruction sets may interleave
 * the rows of a group, so that a tile reads its inputs as one stream: for each word of four bytes of a row, the group
 * stores this word of all its rows. */
static inline int64_t linear_grouped_bytes(linear_type type, int64_t in)
{
    return type == LINEAR_F32 || type == LINEAR_INT8 || type == LINEAR_Q8 ? 4 * linear_lines(type, in) : 0;
}

/* Return the scale of an int8 row, or of a group of q8, whose largest |x| is `most`: NaN if the row is not finite; 0
 * if the scale would be subnormal, so that it becomes zeros. */
static inline float linear_int8_scale(float most)
{
    return !isfinite(most) ? NAN : most < 0x1p-119f ? 0 : most / 127;
}

/* Round x to the nearest bf16, ties to even, and return it as f32. Subnormal numbers become zeros of the same sign; NaN
 * stays NaN. Numbers of at least 2^128 - 2^119, half a step above the largest bf16, become infinity. */
static inline float linear_bf16(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    if (x != x)
        bits |= 0x400000;
    else if ((bits & 0x7f800000) == 0)
        bits &= 0x80000000;
    else
        bits += 0x7fff + (bits >> 16 & 1);
    bits &= 0xffff0000;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* Return the number of inputs whose products with blocks are added in 16 bits: the sum of two products for each 4
 * inputs fits, since inputs are at most 127. */
static inline int64_t linear_run(const linear_blocks *b)
{
    return linear_min(b->group, b->most <= 15 ? 32 : b->most <= 31 ? 16 : 8);
}

/* Return the byte offset of the int32 of the groups in a prepared row; for blocks, of the scales. */
static inline int64_t linear_row_groups(int64_t in)
{
    return LINEAR_ROW_HEAD + linear_ceil(in, LINEAR_GROUP) * LINEAR_GROUP;
}

#endif
