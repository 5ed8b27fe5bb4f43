/* layout.h -- how packed weights and quantised rows lie in memory: panels of 16 outputs, one layout for all instruction sets.
 * It may not know pools, calls or instruction sets.
 *
 * A panel holds 16 rows of W, side by side, in lines of 64 bytes that follow the inputs upwards, so that one load of a
 * line serves 16 outputs and a matrix product reads a panel from its beginning to its end:
 *
 *   f32    a line is 1 input:   16 numbers
 *   bf16   a line is 2 inputs:  16 pairs (the even input in the lower half of a 32-bit word)
 *   int8   a line is 4 inputs:  16 fours of signed bytes; before the lines stand 16 f32 scales and 16 int32, -128 Σ q
 *   int4   a line is 8 inputs:  16 fours of bytes, q + 8 of inputs 0-3 in the low halves, of 4-7 in the high halves;
 *          4 lines are a group; behind the lines of all groups stand their scales, 16 bf16 for each group
 *
 * Pairs and fours are the operands of VNNI and AMX. Inputs are padded to whole lines (int4: groups) and outputs to whole
 * panels with zeros.
 *
 * A quantised row of x is a header of 64 bytes (its scale), then the inputs in the form that the instruction set reads,
 * then, for int4, an int32 for each group: -8 Σ q.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef RELPOS_LINEAR_LAYOUT_H
#define RELPOS_LINEAR_LAYOUT_H

#include "linear/linear.h"

enum {
    LINEAR_PANEL = 16,        /* outputs of a panel */
    LINEAR_LINE = 64,         /* bytes */
    LINEAR_GROUP = 32,        /* inputs of int4 with one scale */
    LINEAR_GROUP_BYTES = 256, /* of 16 outputs */
    LINEAR_INT8_HEAD = 128,
    LINEAR_ROW_HEAD = 64
};

/* What stands before the lines of a panel of int8. */
typedef struct linear_int8_head {
    float scale[LINEAR_PANEL];
    int32_t bias[LINEAR_PANEL]; /* -128 Σ q: takes away what inputs that were made unsigned by adding 128 add */
} linear_int8_head;

static inline int64_t linear_ceil(int64_t n, int64_t step)
{
    return n / step + (n % step != 0);
}

/* Inputs of a line. */
static inline int64_t linear_line_inputs(linear_type type)
{
    return 1 << type; /* 1, 2, 4, 8 */
}

/* Lines of a panel. */
static inline int64_t linear_lines(linear_type type, int64_t in)
{
    return type == LINEAR_INT4 ? 4 * linear_ceil(in, LINEAR_GROUP) : linear_ceil(in, linear_line_inputs(type));
}

/* From the beginning of a panel to its lines. */
static inline int64_t linear_head_bytes(linear_type type)
{
    return type == LINEAR_INT8 ? LINEAR_INT8_HEAD : 0;
}

/* A panel of int4 is followed by its scales. */
static inline int64_t linear_panel_bytes(linear_type type, int64_t in)
{
    const int64_t scales =
        type == LINEAR_INT4 ? linear_ceil(linear_ceil(in, LINEAR_GROUP) * 2 * LINEAR_PANEL, 64) * 64 : 0;
    return linear_head_bytes(type) + linear_lines(type, in) * LINEAR_LINE + scales;
}

/* Bytes of one quantised row: two for an input of int8, because instruction sets without VNNI keep 16 bits. */
static inline int64_t linear_row_bytes(linear_type type, int64_t in)
{
    const int64_t groups = linear_ceil(in, LINEAR_GROUP), inputs = groups * LINEAR_GROUP;
    const int64_t bytes = type == LINEAR_INT8 ? 2 * inputs : inputs + 4 * groups;
    return LINEAR_ROW_HEAD + linear_ceil(bytes, 64) * 64;
}

/* Where the int32 of the groups begin, in a quantised row. */
static inline int64_t linear_row_groups(int64_t in)
{
    return LINEAR_ROW_HEAD + linear_ceil(in, LINEAR_GROUP) * LINEAR_GROUP;
}

#endif
