/* api/inspect.h -- rows of one call by the reference path, for programs that look at many of them, such as the
 * explorer. Independent of kernels.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef RELPOS_INSPECT_H
#define RELPOS_INSPECT_H
#include "reference/row.h"

/* Data shared by the rows of one call. Keys are also converted only once per head. Do not move it. */
typedef struct rpi_rows {
    rpi_args args;
    rpi_row row;
    double *raw; /* [Lk] scratch */
    rpi_arena memory;
} rpi_rows;

rp_status rpi_rows_begin(rpi_rows *s, const rp_plan *plan, const rp_tensors *t);
void rpi_rows_end(rpi_rows *s);
/* Write the computation of the bias of a pair of batch entry 0 by term `term`, with numbers: the text of `example` in
 * scheme.h, or the formula if the scheme has none. Return the length of the text, of which at most size - 1 bytes are
 * written. */
int rpi_rows_example(rpi_rows *s, int32_t term, int64_t h, int64_t i, int64_t j, char *to, size_t size);

#endif
