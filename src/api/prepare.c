/* api/prepare.c -- rp_prepare: compute the strips of biases and the keys' RoPE table once for many calls of a plan.
 * Independent of kernels.
 * SPDX-License-Identifier: Apache-2.0 */
#include "arguments.h"
#include "sources/sources.h"
#include <stdlib.h>
#include <string.h>

/* Check the arrays of terms. q and k do not exist yet, so use placeholders for them. */
static rp_status args_without_keys(rpi_args *args, const rp_plan *plan, const rp_tensors *t)
{
    if (!t || t->size != sizeof *t)
        return rpi_fail(RP_E_ARG, "tensors %s; start from rp_tensors_init", t ? "has another size" : "is NULL");
    const rp_desc *d = &plan->desc;
    static const double placeholder = 0; /* aligned for any type; never read */
    const int64_t q[4] = {d->batch, d->heads, d->len_q, d->dim_k}, k[4] = {d->batch, d->kv_heads, d->len_k, d->dim_k};
    rp_tensors with = *t;
    with.q = rp_array_of(&placeholder, d->dtype, 4, q);
    with.k = rp_array_of(&placeholder, d->dtype, 4, k);
    with.v = with.out = with.lse = with.weights = with.profile = with.key_mass = with.entropy = with.q_offset =
        (rp_array){0};
    with.pages = (rp_pages){0};
    with.key_from = with.key_to = with.row_from = with.row_to = 0;
    with.state_in = with.state_out = with.own_keys = (rp_array){0};
    with.key_norms = (rp_array){0};
    with.prepared = NULL;
    return rpi_args_check_prepared(args, plan, &with);
}

static rp_status fill(rp_prepared *p, rpi_args *args, const rp_plan *plan, const rp_tensors *t)
{
    rp_status status = args_without_keys(args, plan, t);
    if (status == RP_OK)
        status = rpi_args_prepare(args);
    if (status != RP_OK)
        return status;
    const rp_desc *d = &args->desc;
    rp_pool *pool = rpi_pool_or_default(t->pool);
    const int64_t max = rpi_max(rpi_max(d->len_q, d->len_k), 1), real = plan->ops ? plan->ops->real : 0;
    rpi_arena *a = &p->memory;
    p->plan = plan;
    p->positions = max;
    if (plan->ops) {
        rpi_limits e;
        rpi_limits_of(&e, args, NULL);
        p->terms = rpi_strip_terms(args);
        const bool strip = p->terms != 0 && !e.strip_per_entry;
        p->strip = (rpi_strip){.low = -(max - 1), .len = 2 * max - 1 + rpi_round_up(plan->ops->nr, 64)};
        p->strip.past = p->strip.len;
        p->strip.head_step = e.strip_per_head ? p->strip.len : 0;
        const int64_t strip_at = rpi_arena_add(a, strip ? (e.strip_per_head ? d->heads : 1) : 0, p->strip.len, 1, real);
        const int64_t largest_at =
            rpi_arena_add(a, strip ? 2 * (e.strip_per_head ? d->heads : 1) : 0, rpi_segments_of(p->strip.len), 1, real);
        const bool rope = plan->rotate >= 0 && rpi_rope_table_is_fixed(args, true);
        const int64_t rope_at =
            rpi_arena_add(a, rope ? max : 0, rope ? rpi_rotation_width(&plan->terms[plan->rotate]) : 1, 1, real);
        status = rpi_arena_alloc(a, false, "rp_prepare");
        if (status == RP_OK && strip) {
            p->strip.entry = a->base + strip_at;
            p->strip.largest = a->base + largest_at;
            rpi_strip_fill(&p->strip, args, pool);
        }
        if (status == RP_OK && rope) {
            p->rope_k = a->base + rope_at;
            rpi_rope_table_of_keys(args, pool, p->rope_k, max);
        }
    }
    rpi_args_free(args);
    return status;
}

rp_status rp_prepare(rp_prepared **prepared, const rp_plan *plan, const rp_tensors *t)
{
    if (!prepared)
        return rpi_fail(RP_E_ARG, "prepared is NULL; pass the address of a pointer");
    *prepared = NULL;
    if (!plan)
        return rpi_fail(RP_E_ARG, "plan is NULL; make one with rp_plan_create");
    rp_prepared *p = calloc(1, sizeof *p);
    if (!p)
        return rpi_fail(RP_E_NOMEM, "out of memory: prepared data need %zu bytes", sizeof *p);
    rpi_args *args = rpi_arguments_alloc(sizeof *args);
    const rp_status status = args ? fill(p, args, plan, t) : RP_E_NOMEM;
    free(args);
    if (status != RP_OK) {
        rp_prepared_destroy(p);
        return status;
    }
    *prepared = p;
    return RP_OK;
}

void rp_prepared_destroy(rp_prepared *p)
{
    if (p)
        rpi_arena_free(&p->memory);
    free(p);
}
