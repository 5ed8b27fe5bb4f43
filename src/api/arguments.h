/* api/arguments.h -- the arrays of a call as checked views. Independent of kernels.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef RELPOS_ARGUMENTS_H
#define RELPOS_ARGUMENTS_H
#include "problem/problem.h"
#include <stddef.h>

/* The arguments of rp_backward and rp_gradient_bound. */
typedef struct rpi_backward_args {
    rpi_args args;
    rpi_grads grads;
} rpi_backward_args;

/* The arguments of rp_jvp and rp_hvp. */
typedef struct rpi_derivative_args {
    rpi_args args;
    rpi_tangents tangents;
    rpi_grads grads;   /* for rp_hvp */
    rpi_arena no_dout; /* zeros in place of an absent dout */
} rpi_derivative_args;

/* The arguments of rp_attend, and of its reference path if this computes some of the outputs. */
typedef struct rpi_attending {
    rpi_args args, reference;
} rpi_attending;

rp_status rpi_args_check(rpi_args *args, const rp_plan *plan, const rp_tensors *t);
/* Like rpi_args_check, for calls that need all keys. */
rp_status rpi_args_check_whole(rpi_args *args, const rp_plan *plan, const rp_tensors *t);
rp_status rpi_refuse_range(const rpi_args *args); /* fail if the call has a range of keys */
rp_status rpi_args_check_prepared(rpi_args *args, const rp_plan *plan, const rp_tensors *t); /* for rp_prepare */
rp_status rpi_args_check_keys(rpi_args *args, const rp_plan *plan, const rp_tensors *t);     /* for rp_key_norms */
/* Check all arguments of a backward call. */
rp_status rpi_backward_check(rpi_args *args, rpi_grads *grads, const rp_plan *plan, const rp_tensors *t,
                             const rp_grads *g);
/* Check all arguments of rp_jvp, or of rp_hvp. */
rp_status rpi_jvp_check(rpi_derivative_args *own, const rp_plan *plan, const rp_tensors *t, const rp_tangents *given);
rp_status rpi_hvp_check(rpi_derivative_args *own, const rp_plan *plan, const rp_tensors *t, const rp_tangents *given,
                        const rp_grads *g);
/* Prepare checked arguments of rp_hvp, with zeros for a dout that is absent. */
rp_status rpi_hvp_prepare(rpi_derivative_args *own);
void rpi_hvp_free(rpi_derivative_args *own);
/* Return g->dweights (0), dprofile (1), dkey_mass (2) or dentropy (3), and its name; or an absent array, if the struct
 * of an earlier version lacks it. */
enum { RPI_WEIGHT_GRADIENTS = 4 };
static inline const rp_array *rpi_weight_gradient(const rp_grads *g, int n, const char **name)
{
    static const rp_array absent;
    static const char *const names[RPI_WEIGHT_GRADIENTS] = {"dweights", "dprofile", "dkey_mass", "dentropy"};
    *name = names[n];
    return g->size < offsetof(rp_grads, dsoftcap)
               ? &absent
               : (const rp_array *const[]){&g->dweights, &g->dprofile, &g->dkey_mass, &g->dentropy}[n];
}
/* Return the gradient or the tangent of a softcap, RPI_BEFORE or RPI_AFTER; or an absent array, if the struct of an
 * earlier version lacks it. */
static inline const rp_array *rpi_softcap_gradient(const rp_grads *g, int n)
{
    static const rp_array absent;
    return g->size < sizeof *g ? &absent : n == RPI_BEFORE ? &g->dsoftcap : &g->dsoftcap_after;
}
static inline const rp_array *rpi_softcap_tangent(const rp_tangents *x, int n)
{
    static const rp_array absent;
    return x->size < sizeof *x ? &absent : n == RPI_BEFORE ? &x->softcap : &x->softcap_after;
}
/* Shift the view of an array that has one row for `keys` keys, so that row j is of key j of the sequence. */
void rpi_shift_keys(const rpi_args *args, rpi_view *v, int64_t keys);
rp_status rpi_compare_norms(const rpi_args *args);               /* for RELPOS_SKIP=check; in norms.c */
rp_status rpi_check_output(const rp_array *a, const char *name); /* fail if elements share memory */
rp_status rpi_args_overlap(const rp_plan *plan, const rp_tensors *t);
/* Check the outputs of gradients and tangents; either may be NULL. */
rp_status rpi_derivatives_overlap(const rp_plan *plan, const rp_tensors *t, const rp_grads *g,
                                  const rp_tangents *given);
/* Fail if the output shares memory with an input. */
rp_status rpi_output_overlap(const rp_plan *plan, const rp_tensors *t, const rp_array *out, const char *name);

#endif
