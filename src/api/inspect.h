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

#endif
