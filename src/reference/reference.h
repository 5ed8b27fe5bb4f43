/* reference/reference.h -- the reference path: every output and gradient in double, in plain loops. Independent of the
 * fast path.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef RELPOS_REFERENCE_H
#define RELPOS_REFERENCE_H
#include "base/pool.h"
#include "problem/problem.h"

/* Compute the outputs that are present in args, or the requested gradients. */
typedef struct rpi_ref rpi_ref;
rp_status rpi_ref_begin(rpi_ref **ref, const rp_plan *plan, const rpi_args *args,
                        rp_pool *pool); /* does everything that may fail */
rp_status rpi_ref_run(rpi_ref *ref, rp_pool *pool, rpi_progress *progress);
void rpi_ref_end(rpi_ref *ref);
rp_status rpi_ref_backward(const rp_plan *plan, const rpi_args *args, const rpi_grads *grads, rpi_progress *progress);

/* Compute the tangents of out and lse that are present, from the other tangents. The rows are computed by the threads
 * of the pool. */
rp_status rpi_ref_jvp(const rp_plan *plan, const rpi_args *args, const rpi_tangents *tangents, rp_pool *pool,
                      rpi_progress *progress);
/* Compute the gradients of the tangents' products with grads->dout and dlse, and the tangents of out and lse. */
rp_status rpi_ref_hvp(const rp_plan *plan, const rpi_args *args, const rpi_tangents *tangents, const rpi_grads *grads,
                      rpi_progress *progress);

/* Compute bounds on the errors of the fast path's gradients, or of its out ([B,H,Lq,Dv] in f64). */
rp_status rpi_ref_gradient_bound(const rp_plan *plan, const rpi_args *args, const rpi_grads *bounds);
rp_status rpi_ref_error_bound(const rp_plan *plan, const rpi_args *args, const rpi_view *bound);
/* Compute the sum of the biases of each pair of batch entry b: bias [H,Lq,Lk]. */
void rpi_ref_bias(const rp_plan *plan, const rpi_args *args, int64_t b, const rpi_view *bias);

#endif
