/* ops.h -- a checked call, and the functions that each instruction set implements.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef RELPOS_LINEAR_OPS_H
#define RELPOS_LINEAR_OPS_H

#include "linear/layout.h"

typedef struct linear_job {
    linear_type type;
    linear_then then;
    int64_t rows, in, out, ldx, ldy;
    const float *x;
    float *y;
    const float *bias; /* [out]; NULL: none */
    const char *packed;
    int64_t panel_bytes, lines;  /* bytes and lines of a panel of 64 outputs; for blocks, a line is an input */
    const linear_blocks *blocks; /* only for LINEAR_BLOCKS */
    char *prepared;              /* prepared rows of x, row_bytes each; only for bf16, int8 and int4 */
    int64_t row_bytes;
    char *grouped; /* interleaved inputs of groups of rows, linear_grouped_bytes per row; NULL: none */
} linear_job;

enum { LINEAR_MAX_ROWS = 96 }; /* max rows of a block */

typedef struct linear_ops {
    const char *name;
    /* Return true if blocks of this type read their inputs from `grouped`. */
    bool (*groups)(linear_type type);
    /* Prepare rows row … row+rows-1 of x, for types from bf16 on. If `grouped` is set, prepare and interleave the
     * groups that begin in this range. */
    void (*prepare)(const linear_job *j, int64_t row, int64_t rows);
    /* Compute rows row … row+rows-1 (at most LINEAR_MAX_ROWS) of the outputs of `panels` panels, starting at
     * `panel`. */
    void (*block)(const linear_job *j, int64_t row, int64_t rows, int64_t panel, int64_t panels);
    /* Compute LINEAR_COLUMN sums: row 0 times one column of a panel, bit-identical to block. Not for int8 and int4. */
    void (*column)(const linear_job *j, int64_t panel, int64_t column, float *sums);
    /* Convert n inputs of a panel of blocks to a strip (layout.h). NULL: the set uses that of its base. */
    void (*strip)(const linear_job *j, int64_t panel, int64_t columns, int64_t from, int64_t n, char *strip);
} linear_ops;

/* Find an instruction set by name. NULL selects RELPOS_ISA, or the fastest set of this machine. If only the core of
 * relpos has the named set, use generic, or for amx the fastest set. Return RP_OK; RP_E_ARG for an unknown name;
 * RP_E_UNSUPPORTED if this machine does not support the set. */
rp_status linear_choose(const char *isa, const linear_ops **ops);
/* Return entry n of the list, or NULL past the end. Set *found to true if this machine supports it. */
const linear_ops *linear_entry(int n, bool *found);

#endif
