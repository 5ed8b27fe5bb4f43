/* api/inspect.h -- compute rows of one call with the reference path, for programs that inspect many rows, such as the
 * explorer. Independent of kernels.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef RELPOS_INSPECT_H
#define RELPOS_INSPECT_H
#include "reference/row.h"

/* Data shared by the rows of one call; keys are converted only once per head. Do not copy or move this struct. */
typedef struct rpi_rows {
    rpi_args args;
    rpi_row row;
    double *raw; /* [Lk] scratch */
    rpi_arena memory;
} rpi_rows;

rp_status rpi_rows_begin(rpi_rows *s, const rp_plan *plan, const rp_tensors *t);
void rpi_rows_end(rpi_rows *s);
/* Write how a term computes the bias of a pair in batch entry 0, with its numbers: the text of the scheme's `example`
 * (scheme.h), or the formula if it has none. Write at most size - 1 bytes, and return the full length of the text. */
int rpi_rows_example(rpi_rows *s, int32_t term, int64_t h, int64_t i, int64_t j, char *to, size_t size);

#endif
