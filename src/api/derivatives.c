/* api/derivatives.c -- rp_jvp and rp_hvp: check the arguments, then run the reference path, which computes them for
 * every plan. Independent of kernels.
 * SPDX-License-Identifier: Apache-2.0 */
#include "arguments.h"
#include "reference/reference.h"
#include <stdlib.h>

/* Compute tangents or, with gradients, second derivatives. */
static rp_status derivatives(rpi_derivative_args *own, const rp_plan *plan, const rp_tensors *t,
                             const rp_tangents *tangents, const rp_grads *g, bool second)
{
    rpi_args *args = &own->args;
    rp_status status = second ? rpi_hvp_check(own, plan, t, tangents, g) : rpi_jvp_check(own, plan, t, tangents);
    if (status == RP_OK)
        status = rpi_args_prepare(args);
    if (status != RP_OK)
        return status;
    rpi_progress progress = {.report = t->progress, .context = t->progress_context, .caller = rpi_this_thread()};
    status = second ? rpi_ref_hvp(plan, args, &own->tangents, &own->grads, &progress)
                    : rpi_ref_jvp(plan, args, &own->tangents, rpi_pool_for(t->pool, &args->desc), &progress);
    rpi_args_free(args);
    return status;
}

rp_status rp_jvp(const rp_plan *plan, const rp_tensors *t, const rp_tangents *tangents)
{
    rpi_derivative_args *own = rpi_arguments_alloc(sizeof *own);
    const rp_status status = own ? derivatives(own, plan, t, tangents, NULL, false) : RP_E_NOMEM;
    free(own);
    return status;
}

rp_status rp_hvp(const rp_plan *plan, const rp_tensors *t, const rp_tangents *tangents, const rp_grads *g)
{
    rpi_derivative_args *own = rpi_arguments_alloc(sizeof *own);
    const rp_status status = own ? derivatives(own, plan, t, tangents, g, true) : RP_E_NOMEM;
    free(own);
    return status;
}
