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
 * of the pool. If `rows` [B * H][Lq] is not NULL, compute only the tangents whose bits are set: 1 for out, 2 for
 * lse. */
typedef struct rpi_ref_tangents rpi_ref_tangents;
rp_status rpi_ref_jvp_begin(rpi_ref_tangents **ref, const rp_plan *plan, const rpi_args *args,
                            const rpi_tangents *tangents, rp_pool *pool); /* does everything that may fail */
rp_status rpi_ref_jvp_run(rpi_ref_tangents *ref, const uint8_t *rows, rp_pool *pool, rpi_progress *progress);
void rpi_ref_jvp_end(rpi_ref_tangents *ref);
/* Compute the gradients of the tangents' products with grads->dout and dlse, and the tangents of out and lse. */
rp_status rpi_ref_hvp(const rp_plan *plan, const rpi_args *args, const rpi_tangents *tangents, const rpi_grads *grads,
                      rpi_progress *progress);

/* Compute bounds on the errors of the fast path's gradients, or of its out ([B,H,Lq,Dv] in f64). */
rp_status rpi_ref_gradient_bound(const rp_plan *plan, const rpi_args *args, const rpi_grads *bounds);
rp_status rpi_ref_error_bound(const rp_plan *plan, const rpi_args *args, const rpi_view *bound);
/* Compute bounds on the errors of the tangents of out and lse on the fast path, in f64. */
rp_status rpi_ref_tangent_bound(const rp_plan *plan, const rpi_args *args, const rpi_tangents *bounds);
/* Compute the sum of the biases of each pair of batch entry b: bias [H,Lq,Lk]. */
void rpi_ref_bias(const rp_plan *plan, const rpi_args *args, int64_t b, const rpi_view *bias);
/* Compute bounds on the errors of second derivatives: `results` has dout and dlse, and arrays for the bounds. */
rp_status rpi_ref_hvp_bound(const rp_plan *plan, const rpi_args *args, const rpi_tangents *tangents,
                            const rpi_grads *results);

#endif
