/* api/inspect.h -- rows of one call by the reference path, for those who look at many of them: the explorer.
 * It may not know kernels.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef RELPOS_INSPECT_H
#define RELPOS_INSPECT_H
#include "reference/row.h"

/* What the rows of one call share; keys are made once too, as long as the head stays. Not to be moved. */
typedef struct rpi_rows {
    rpi_args args;
    rpi_row row;
    double *raw; /* [Lk] scratch */
    rpi_arena memory;
} rpi_rows;

rp_status rpi_rows_begin(rpi_rows *s, const rp_plan *plan, const rp_tensors *t);
void rpi_rows_end(rpi_rows *s);
/* How term `term` comes to the bias of a pair of batch entry 0, with its numbers, as scheme.h says; the formula where
 * the scheme does not say. The length of the text, of which at most size - 1 bytes are written. */
int rpi_rows_worked(rpi_rows *s, int32_t term, int64_t h, int64_t i, int64_t j, char *to, size_t size);

#endif
