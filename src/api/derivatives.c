/* api/derivatives.c -- rp_jvp and rp_hvp: check the arguments, then run the fast path or the reference path.
 * engine/tangents.c computes tangents, and the reference path those of rows with numbers that are not finite.
 * Independent of kernels.
 * SPDX-License-Identifier: Apache-2.0 */
#include "arguments.h"
#include "engine/engine.h"
#include "reference/reference.h"
#include <stdlib.h>
#include <string.h>

/* Return the instruction set that computes the tangents of a plan. */
static const rpi_ops *ops_of(const rp_plan *plan)
{
    return rpi_ops_named(plan->ops->singles, plan->desc.dtype == RP_F64);
}

/* Return true if only plain loops compute the derivatives: those of RoPE's frequencies or angles, if terms multiply
 * queries or keys that RoPE does not rotate, and those of angles of each channel. */
static bool needs_plain(const rpi_args *args, const rpi_tangents *tangents, const rpi_grads *grads)
{
    const rp_plan *plan = args->plan;
    const bool vectors = plan->vec >= 0 || plan->n_vec > 0;
    return !plan->ops ||
           (rpi_turns(args, tangents, grads) && (vectors || rpi_rotates_channels(&plan->terms[plan->rotate])));
}

/* Compute tangents on the fast path, and in plain loops the rows that it leaves. */
static rp_status fast_jvp(const rpi_args *args, const rpi_tangents *tangents, rpi_ref_tangents *ref, rp_pool *pool,
                          rpi_progress *progress)
{
    const rp_desc *d = &args->desc;
    rpi_arena memory = {0};
    const int64_t at = rpi_arena_add(&memory, d->batch * d->heads, d->len_q, 1, 1);
    rp_status status = rpi_arena_alloc(&memory, true, "the rows of the call");
    if (status != RP_OK)
        return status;
    uint8_t *plain = (uint8_t *)memory.base + at;
    status = rpi_fast_jvp(args, ops_of(args->plan), tangents, pool, progress, plain);
    if (status == RP_OK && rpi_leaves_rows(d, plain))
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
        status = needs_plain(args, tangents, NULL) ? rpi_ref_jvp_run(ref, NULL, pool, progress)
                                                   : fast_jvp(args, tangents, ref, pool, progress);
    rpi_ref_jvp_end(ref);
    return status;
}

/* Make a view of f64 rows [B, H, Lq, width]. */
static rpi_view rows_of(const rp_desc *d, double *data, int64_t width)
{
    const int64_t n[4] = {d->batch, d->heads, d->len_q, width};
    const rp_array a = rp_array_of(data, RP_F64, 4, n);
    rpi_view v = {.data = data, .dtype = RP_F64};
    memcpy(v.stride, a.stride, sizeof v.stride);
    return v;
}

/* Store the tangents of out and lse where they are wanted. */
static void store_tangents(const rp_desc *d, const rpi_view *from[2], const rpi_view *to[2])
{
    for (int64_t x = 0; x < d->batch * d->heads * d->len_q; x++) {
        const int64_t head = x / d->len_q, b = head / d->heads, h = head % d->heads, i = x % d->len_q;
        for (int n = 0; n < 2; n++)
            for (int64_t c = 0; to[n]->data && c < (n ? 1 : d->dim_v); c++)
                rpi_put(to[n]->data, to[n]->dtype, rpi_index(to[n], b, h, i, c), rpi_at(from[n], b, h, i, c));
    }
}

/* Compute second derivatives on the fast path, or in plain loops if the tangent of some row is not finite. The tangents
 * of out and lse are those of rp_jvp. */
static rp_status fast_hvp(const rp_plan *plan, const rpi_args *args, rpi_tangents *tangents, const rpi_grads *grads,
                          rp_pool *pool, rpi_progress *progress, double *out, double *lse, uint8_t *plain)
{
    const rp_desc *d = &args->desc;
    const rpi_view wanted[2] = {tangents->out, tangents->lse}, own[2] = {rows_of(d, out, d->dim_v), rows_of(d, lse, 1)};
    tangents->out = own[0];
    tangents->lse = own[1];
    rp_status status = rpi_fast_hvp(args, ops_of(plan), tangents, grads, pool, progress, plain);
    const bool some = rpi_leaves_rows(d, plain);
    if (status == RP_OK && some && (wanted[0].data || wanted[1].data))
        status = jvp(plan, args, tangents, pool, progress);
    tangents->out.data = tangents->lse.data = NULL;
    if (status == RP_OK && some)
        status = rpi_ref_hvp(plan, args, tangents, grads, progress);
    if (status == RP_OK)
        store_tangents(d, (const rpi_view *[]){&own[0], &own[1]}, (const rpi_view *[]){&wanted[0], &wanted[1]});
    return status;
}

static rp_status hvp(const rp_plan *plan, const rpi_args *args, rpi_tangents *tangents, const rpi_grads *grads,
                     rp_pool *pool, rpi_progress *progress)
{
    const rp_desc *d = &args->desc;
    const int64_t heads = d->batch * d->heads;
    rpi_arena memory = {0};
    if (needs_plain(args, tangents, grads))
        return rpi_ref_hvp(plan, args, tangents, grads, progress);
    const int64_t out = rpi_arena_add(&memory, heads, d->len_q, d->dim_v, sizeof(double)),
                  lse = rpi_arena_add(&memory, heads, d->len_q, 1, sizeof(double)),
                  plain = rpi_arena_add(&memory, heads, d->len_q, 1, 1);
    rp_status status = rpi_arena_alloc(&memory, true, "the tangents of the call");
    if (status == RP_OK)
        status = fast_hvp(plan, args, tangents, grads, pool, progress, (double *)(void *)(memory.base + out),
                          (double *)(void *)(memory.base + lse), (uint8_t *)memory.base + plain);
    rpi_arena_free(&memory);
    return status;
}

/* Compute tangents or, with gradients, second derivatives. */
static rp_status derivatives(rpi_derivative_args *own, const rp_plan *plan, const rp_tensors *t,
                             const rp_tangents *tangents, const rp_grads *g, bool second)
{
    rpi_args *args = &own->args;
    rp_status status = second ? rpi_hvp_check(own, plan, t, tangents, g) : rpi_jvp_check(own, plan, t, tangents);
    if (status == RP_OK)
        status = second ? rpi_hvp_prepare(own) : rpi_args_prepare(args);
    if (status != RP_OK)
        return status;
    rpi_progress progress = {.report = t->progress, .context = t->progress_context, .caller = rpi_this_thread()};
    rp_pool *pool = rpi_pool_for(t->pool, &args->desc);
    status = second ? hvp(plan, args, &own->tangents, &own->grads, pool, &progress)
                    : jvp(plan, args, &own->tangents, pool, &progress);
    if (second)
        rpi_hvp_free(own);
    else
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
