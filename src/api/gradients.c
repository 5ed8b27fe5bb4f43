/* api/gradients.c -- rp_backward: check the arguments, then run the fast path or the reference path.
 * The fast path continues with rpi_fast_backward in engine/backward.c; kernels/backward_task.h describes how gradients
 * are computed. Independent of kernels.
 * SPDX-License-Identifier: Apache-2.0 */
#include "arguments.h"
#include "engine/engine.h"
#include "reference/reference.h"
#include <stdlib.h>

static rp_status backward(rpi_backward_args *own, const rp_plan *plan, const rp_tensors *t, const rp_grads *g,
                          void *work)
{
    rpi_args *args = &own->args;
    rp_status status = rpi_backward_check(args, &own->grads, plan, t, g);
    args->pairs = NULL; /* only forward calls count pairs */
    if (status == RP_OK)
        status = rpi_args_prepare(args);
    if (status != RP_OK)
        return status;
    rpi_progress progress = {.report = t->progress, .context = t->progress_context, .caller = rpi_this_thread()};
    status = plan->ops ? rpi_fast_backward(args, &own->grads, rpi_pool_for(t->pool, &args->desc), &progress, work)
                       : rpi_ref_backward(plan, args, &own->grads, &progress);
    rpi_args_free(args);
    return status;
}

rp_status rp_backward(const rp_plan *plan, const rp_tensors *t, const rp_grads *g, void *work)
{
    if ((uintptr_t)work % 64 != 0)
        return rpi_fail(RP_E_ARG, "work: the address is not a multiple of 64; align it, or pass NULL");
    const bool there = plan && work;
    rpi_backward_args *own = there ? work : rpi_arguments_alloc(sizeof *own);
    const rp_status status =
        own ? backward(own, plan, t, g, there ? (char *)work + rpi_arguments_bytes(sizeof *own) : NULL) : RP_E_NOMEM;
    if (!there)
        free(own);
    return status;
}
