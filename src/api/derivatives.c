/* api/derivatives.c -- rp_jvp and rp_hvp: check the arguments, then run the fast path or the reference path.
 * engine/tangents.c computes tangents, and the reference path those of rows with numbers that are not finite.
 * Independent of kernels.
 * SPDX-License-Identifier: Apache-2.0 */
#include "arguments.h"
#include "engine/engine.h"
#include "reference/reference.h"
#include <stdlib.h>
#include <string.h>

/* Compute tangents on the fast path, and in plain loops the rows that it leaves. */
static rp_status fast_jvp(const rpi_args *args, const rpi_tangents *tangents, rpi_ref_tangents *ref, rp_pool *pool,
                          rpi_progress *progress)
{
    const rp_desc *d = &args->desc;
    rpi_arena memory = {0};
    rpi_arena_take3(&memory, d->batch, d->heads, d->len_q, 1);
    rp_status status = rpi_arena_alloc(&memory, true, "the rows of the call");
    if (status != RP_OK)
        return status;
    uint8_t *plain = rpi_arena_take3(&memory, d->batch, d->heads, d->len_q, 1);
    status = rpi_fast_jvp(args, tangents, pool, progress, plain);
    bool some = false;
    for (int64_t n = 0; n < d->batch * d->heads * d->len_q; n++)
        some |= plain[n] != 0;
    if (status == RP_OK && some)
        status = rpi_ref_jvp_run(ref, plain, pool, progress);
    rpi_arena_free(&memory);
    return status;
}

static rp_status jvp(const rp_plan *plan, const rpi_args *args, const rpi_tangents *tangents, rp_pool *pool,
                     rpi_progress *progress)
{
    rpi_ref_tangents *ref;
    rp_status status = rpi_ref_jvp_begin(&ref, plan, args, tangents, pool);
    if (status == RP_OK)
        status = rpi_fast_jvp_takes(plan) ? fast_jvp(args, tangents, ref, pool, progress)
                                          : rpi_ref_jvp_run(ref, NULL, pool, progress);
    rpi_ref_jvp_end(ref);
    return status;
}

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
                    : jvp(plan, args, &own->tangents, rpi_pool_for(t->pool, &args->desc), &progress);
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
