/* ops.h -- a checked call, and what an instruction set does of it.
 * It may not know how work is handed to threads, or what an instruction set is made of.
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
    const char *packed;
    int64_t panel_bytes, lines; /* of a panel of 64 outputs */
    char *prepared;             /* rows of x, of row_bytes, for types from bf16 on */
    int64_t row_bytes;
} linear_job;

enum { LINEAR_MAX_ROWS = 96 }; /* of a block */

typedef struct linear_ops {
    const char *name;
    void (*prepare)(const linear_job *j, int64_t row, int64_t rows); /* types from bf16 on */
    /* Rows row … row+rows-1, at most LINEAR_MAX_ROWS, of the outputs of `panels` panels from `panel` on. */
    void (*block)(const linear_job *j, int64_t row, int64_t rows, int64_t panel, int64_t panels);
    /* The LINEAR_COLUMN sums of row 0 and one column of a panel, as block makes them; types without integers. */
    void (*column)(const linear_job *j, int64_t panel, int64_t column, float *sums);
} linear_ops;

/* The instruction set of a name of its own or of the core's; NULL: RELPOS_ISA, or the fastest of this machine.
 * RP_OK, RP_E_ARG for an unknown name, RP_E_UNSUPPORTED where this machine lacks it. */
rp_status linear_choose(const char *isa, const linear_ops **ops);
/* Entry n of the list and whether this machine has it; NULL past the last. */
const linear_ops *linear_entry(int n, bool *found);

#endif
