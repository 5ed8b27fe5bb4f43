/* api/derivatives.c -- rp_jvp: check the arguments, then run the reference path, which computes it for every plan.
 * Independent of kernels.
 * SPDX-License-Identifier: Apache-2.0 */
#include "arguments.h"
#include "reference/reference.h"
#include <stdlib.h>

static rp_status jvp(rpi_jvp_args *own, const rp_plan *plan, const rp_tensors *t, const rp_tangents *tangents)
{
    rpi_args *args = &own->args;
    rp_status status = rpi_jvp_check(args, &own->tangents, plan, t, tangents);
    if (status == RP_OK)
        status = rpi_args_prepare(args);
    if (status != RP_OK)
        return status;
    rpi_progress progress = {.report = t->progress, .context = t->progress_context, .caller = rpi_this_thread()};
    status = rpi_ref_jvp(plan, args, &own->tangents, rpi_pool_for(t->pool, &args->desc), &progress);
    rpi_args_free(args);
    return status;
}

rp_status rp_jvp(const rp_plan *plan, const rp_tensors *t, const rp_tangents *tangents)
{
    rpi_jvp_args *own = rpi_arguments_alloc(sizeof *own);
    const rp_status status = own ? jvp(own, plan, t, tangents) : RP_E_NOMEM;
    free(own);
    return status;
}
