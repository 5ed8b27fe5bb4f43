/* api/attend.c -- rp_attend: check the arguments, then run the fast path, the reference path, or both if weights are
 * requested. Independent of kernels.
 * SPDX-License-Identifier: Apache-2.0 */
#include "arguments.h"
#include "engine/engine.h"
#include "reference/reference.h"
#include <stdlib.h>

static rp_status attend_with(rpi_attending *own, const rp_plan *plan, const rp_tensors *t, void *work)
{
    rpi_args *args = &own->args;
    rp_status status = rpi_args_check(args, plan, t);
    if (status == RP_OK)
        status = rpi_args_overlap(plan, t);
    if (status == RP_OK && plan->checks_norms && args->key_norms.data)
        status = rpi_compare_norms(args);
    if (status != RP_OK)
        return status;
    const rp_desc *d = &args->desc;
    const bool has_output = t->state_out.data || t->out.data || t->lse.data || t->weights.data || t->profile.data ||
                            t->key_mass.data || t->entropy.data;
    if (!has_output && d->batch && d->len_q)
        return rpi_fail(RP_E_ARG, "tensors has no output; set out or another output");
    if ((t->out.data || t->state_out.data) && !args->v.data && d->batch && args->key_to > args->key_from)
        return rpi_fail(RP_E_ARG, "v is missing; pass this array, which out is computed from");
    rp_pool *pool = rpi_pool_for(t->pool, d);
    if (args->pairs)
        args->pairs[0] = args->pairs[1] = 0;
    rpi_progress progress = {.report = t->progress, .context = t->progress_context, .caller = rpi_this_thread()};
    if ((status = rpi_args_prepare(args)) != RP_OK)
        return status;
    /* allocate the reference path's memory before the fast path writes outputs, so that a failure leaves them
     * unchanged */
    rpi_ref *ref = NULL;
    if (!plan->ops || args->weights.data) {
        const rpi_view none = {0};
        rpi_args *r = &own->reference;
        *r = *args;
        if (plan->ops)
            r->out = r->lse = r->profile = r->key_mass = r->entropy = none;
        status = rpi_ref_begin(&ref, plan, r, pool);
    }
    args->weights.data = NULL;
    if (status == RP_OK && plan->ops &&
        (t->state_out.data || t->out.data || t->lse.data || t->profile.data || t->key_mass.data || t->entropy.data))
        status = rpi_fast_attend(args, pool, &progress, work);
    if (status == RP_OK && ref)
        status = rpi_ref_run(ref, pool, &progress);
    rpi_ref_end(ref);
    rpi_args_free(args);
    return status;
}

rp_status rp_attend(const rp_plan *plan, const rp_tensors *t, void *work)
{
    if ((uintptr_t)work % 64 != 0)
        return rpi_fail(RP_E_ARG, "work: the address is not a multiple of 64; align it, or pass NULL");
    const bool there = plan && work;
    rpi_attending *own = there ? work : rpi_arguments_alloc(sizeof *own);
    const rp_status status =
        own ? attend_with(own, plan, t, there ? (char *)work + rpi_arguments_bytes(sizeof *own) : NULL) : RP_E_NOMEM;
    if (!there)
        free(own);
    return status;
}
