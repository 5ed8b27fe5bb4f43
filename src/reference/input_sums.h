/* reference/input_sums.h -- sums for gradients of q, k, v, the terms' arrays and the softcaps, which a pass over all
 * rows adds up. Independent of the fast path.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef RELPOS_INPUT_SUMS_H
#define RELPOS_INPUT_SUMS_H
#include "base/pool.h"
#include "row.h"

/* The sums of one row for dq, and of one kv head for dk and dv. Gradients of rotated queries and keys are apart from
 * those of unrotated ones. */
typedef struct rpi_input_sums {
    bool bound; /* the sums are bounds on errors */
    double *dq_rotated, *dq;
    double *dk_rotated, *dk, *dv;
    double softcap[RPI_SOFTCAPS]; /* of one row */
    /* second derivatives along these tangents, else NULL; derivatives by the tangents of rotated queries and keys */
    const rpi_tangents *along;
    double *tq_rotated, *tk_rotated;
    rpi_term_sums terms;
    rpi_arena memory;
} rpi_input_sums;

rp_status rpi_input_sums_alloc(rpi_input_sums *s, const rpi_args *args, const rpi_grads *grads, bool bound);
void rpi_input_sums_free(rpi_input_sums *s);
/* Call row(context, b, h, i) for every row, which adds to the sums, and store the gradients. r is a row of the same
 * call. progress may be NULL. */
rp_status rpi_input_sums_run(rpi_input_sums *s, rpi_row *r, const rpi_grads *grads,
                             void (*row)(void *context, int64_t b, int64_t h, int64_t i), void *context,
                             rpi_progress *progress);

#endif
