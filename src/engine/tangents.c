/* engine/tangents.c -- a call that computes tangents of out and lse in one pass, like a forward call: three calls with
 * the same tasks, for the arrays, for the tangents of q, k and v, and for the tangents of the terms' arrays
 * (kernels/tangent_tile.h).
 * SPDX-License-Identifier: Apache-2.0 */
#include "engine.h"
#include <stdlib.h>
#include <string.h>

/* Panels of keys that one task packs. */
#define PANELS_PER_TASK 8

typedef struct tangents {
    rpi_forward f;
    rpi_limits limits;
    rpi_tangent_calls calls;
} tangents;

static bool has_tangents(const rpi_tangents *given, int32_t term)
{
    bool some = false;
    for (int x = 0; x < RP_MAX_ARRAYS; x++)
        some |= given->term[term][x].data != NULL;
    return some;
}

bool rpi_fast_jvp_takes(const rp_plan *plan)
{
    const rp_desc *d = &plan->desc;
    bool takes = plan->ops && plan->ops->jvp && (d->dtype == RP_F32 || d->dtype == RP_F64);
    for (int32_t n = 0; n < d->n_terms; n++) {
        const rpi_scheme *s = plan->scheme[n];
        /* the derivative of a TILE with `row` takes too long for each pair */
        takes = takes && s->form != RPI_VEC && s->form != RPI_VALVEC && !s->row;
    }
    return takes;
}

/* Remove the sources whose terms have no tangents: theirs are 0. */
static void remove_constant(rpi_sources *l, const rpi_args *args)
{
    const uint64_t strip = rpi_strip_terms(args);
    int32_t kept = 0;
    for (int32_t n = 0; n < l->n; n++) {
        const int32_t term = l->source[n].term;
        bool some = term >= 0 && has_tangents(args->along, term);
        for (int32_t m = 0; m < args->desc.n_terms; m++)
            some |= term < 0 && (strip >> m & 1) && has_tangents(args->along, m);
        if (some)
            l->source[kept++] = l->source[n];
    }
    l->n = kept;
}

/* Lay out the memory of the calls; runs twice, as in forward.c. */
static void place(tangents *x)
{
    rpi_call *c = &x->f.call, *inputs = &x->calls.jvp.inputs, *arrays = &x->calls.jvp.arrays;
    const rp_plan *plan = c->plan;
    const rpi_ops *ops = plan->ops;
    rpi_arena *a = &x->f.memory;
    const int64_t heads = x->f.groups * (plan->desc.heads / plan->desc.kv_heads);
    rpi_call *const packs[2] = {c, inputs};
    for (int n = 0; n < 2; n++) {
        packs[n]->keys = rpi_arena_take3(a, x->f.groups, c->packed_k, ops->key_bytes(plan), 1);
        packs[n]->values = rpi_arena_take3(a, x->f.groups, c->packed_k, ops->value_bytes(plan), 1);
        packs[n]->large_k = rpi_arena_take(a, x->f.groups, c->packed_k / ops->nr, 1);
        packs[n]->large_v = rpi_arena_take(a, x->f.groups, c->packed_k, 1);
    }
    rpi_sources_place(&x->f.sources, a, plan, &x->limits, heads, false);
    rpi_sources_place(&x->calls.along, a, plan, &x->calls.along_limits, heads, false);
    rpi_rope_tables_place(&c->rope, a, plan, &x->limits);
    inputs->rope = arrays->rope = c->rope;
    c->scratch = rpi_arena_take(a, x->f.threads, c->scratch_step, 1);
}

void rpi_tangents_begin(rpi_tangent_calls *x, rpi_call *c, const rpi_tangents *given)
{
    const rp_plan *plan = c->plan;
    x->inputs = x->arrays = *c->args;
    x->inputs.q = given->q;
    x->inputs.k = given->k;
    x->inputs.v = given->v;
    x->given = given;
    x->one = *given;
    x->arrays.along = &x->one;
    rpi_limits_of(&x->along_limits, &x->arrays, NULL);
    rpi_sources_describe(&x->along, plan, &x->along_limits);
    remove_constant(&x->along, &x->arrays);
    x->jvp = (rpi_jvp){.given = given, .tangents = &x->one, .inputs = *c, .arrays = *c};
    x->jvp.scores =
        given->q.data || given->k.data || x->along.n || (plan->sink >= 0 && has_tangents(given, plan->sink));
    x->jvp.inputs.args = &x->inputs;
    x->jvp.inputs.n_sources = 0;
    x->jvp.arrays.args = &x->arrays;
    x->jvp.arrays.limits = &x->along_limits;
    x->jvp.arrays.source = x->along.source;
    x->jvp.arrays.n_sources = x->along.n;
    c->jvp = &x->jvp;
}

int64_t rpi_tangent_entries(const rpi_tangent_calls *x)
{
    const rp_desc *d = &x->arrays.desc;
    bool samples = false;
    for (int32_t n = 0; n < d->n_terms; n++)
        for (int m = 0; m < RP_MAX_ARRAYS; m++)
            samples |= x->given->term[n][m].per_sample;
    return samples ? 1 : d->batch;
}

void rpi_tangents_fill(rpi_tangent_calls *x, int64_t b, rp_pool *pool)
{
    for (int32_t n = 0; n < x->arrays.desc.n_terms; n++)
        for (int m = 0; m < RP_MAX_ARRAYS; m++)
            x->one.term[n][m] = rpi_sample(&x->given->term[n][m], b);
    rpi_sources_fill(&x->along, &x->arrays, &x->along_limits, pool);
}

/* Describe the calls, without memory addresses, and add up the size of their memory. */
static void begin(tangents *x, const rpi_args *args, const rpi_tangents *given, int32_t threads, uint8_t *plain)
{
    const rp_plan *plan = args->plan;
    rpi_call *c = &x->f.call;
    x->f.threads = threads;
    rpi_limits_of(&x->limits, args, NULL);
    x->limits.decode_queries = 0;
    rpi_call_begin(c, &x->f.sources, plan, &x->limits, args);
    c->starts = false;
    rpi_tangents_begin(&x->calls, c, given);
    x->calls.jvp.plain = plain;
    rpi_forward_split(&x->f);
    c->scratch_step = plan->ops->jvp_size(c);
    place(x);
}

/* Pack some panels of a kv head, and of its tangents. A value counts as not finite if its tangent is not. */
static void pack_task(void *context, int64_t n, int32_t worker)
{
    const rpi_call *c = context;
    const rpi_ops *ops = c->plan->ops;
    const int64_t panels = c->packed_k / ops->nr, tasks = (panels + PANELS_PER_TASK - 1) / PANELS_PER_TASK,
                  kv = n / tasks, first = n % tasks * PANELS_PER_TASK, past = rpi_min(first + PANELS_PER_TASK, panels);
    rpi_call inputs = c->jvp->inputs;
    inputs.g0 = c->g0;
    inputs.scratch = c->scratch;
    inputs.scratch_step = c->scratch_step;
    ops->pack(c, kv, first, past, worker);
    ops->pack(&inputs, kv, first, past, worker);
    for (int64_t j = kv * c->packed_k + first * ops->nr; j < kv * c->packed_k + past * ops->nr; j++)
        c->large_v[j] |= inputs.large_v[j];
}

/* Return the number of tasks of a head. */
static int64_t row_tasks(const rpi_call *c)
{
    return (c->args->desc.len_q + c->rows_per_task - 1) / c->rows_per_task;
}

static void rows_task(void *context, int64_t n, int32_t worker)
{
    const rpi_call *c = context;
    const int64_t tasks = row_tasks(c), row0 = (tasks - 1 - n % tasks) * c->rows_per_task; /* later rows first */
    int64_t b, h;
    rpi_head_at(c, n / tasks, &b, &h);
    c->plan->ops->jvp(c, b, h, row0, rpi_min(row0 + c->rows_per_task, c->args->desc.len_q), worker);
    rpi_progress_step(c->progress);
}

/* Compute kv heads [kv0, kv1), counted over the batch. */
static void run_heads(tangents *x, int64_t kv0, int64_t kv1, rp_pool *pool)
{
    rpi_call *c = &x->f.call;
    const rp_desc *d = &c->args->desc;
    const atomic_bool *stop = &c->progress->stop;
    const int64_t panels = c->packed_k / c->plan->ops->nr;
    for (c->g0 = kv0; c->g0 < kv1 && !atomic_load(stop); c->g0 += x->f.groups) {
        c->groups = rpi_min(x->f.groups, kv1 - c->g0);
        rpi_pool_run(pool, c->groups * ((panels + PANELS_PER_TASK - 1) / PANELS_PER_TASK), pack_task, c);
        rpi_pool_run_until(pool, c->groups * (d->heads / d->kv_heads) * row_tasks(c), rows_task, c, stop);
    }
}

/* Compute all heads or, if some array has a tangent for each batch entry, one entry after the other. */
static void run(tangents *x, rp_pool *pool)
{
    const rp_desc *d = &x->f.call.args->desc;
    const int64_t entries = rpi_tangent_entries(&x->calls);
    rpi_call_fill(&x->f.call, &x->f.sources, pool);
    for (int64_t b = 0; b < d->batch; b += entries) {
        rpi_tangents_fill(&x->calls, b, pool);
        run_heads(x, b * d->kv_heads, (b + entries) * d->kv_heads, pool);
    }
}

rp_status rpi_fast_jvp(const rpi_args *args, const rpi_tangents *given, rp_pool *pool, rpi_progress *progress,
                       uint8_t *plain)
{
    tangents *x = rpi_arguments_alloc(sizeof *x);
    if (!x)
        return RP_E_NOMEM;
    memset(x, 0, sizeof *x);
    begin(x, args, given, rp_pool_threads(pool), plain);
    x->f.call.progress = progress;
    progress->total += args->desc.batch * args->desc.heads * row_tasks(&x->f.call);
    rp_status status = rpi_arena_alloc(&x->f.memory, false, "the call");
    if (status == RP_OK) {
        place(x);
        run(x, pool);
        status = rpi_progress_status(progress);
    }
    rpi_arena_free(&x->f.memory);
    free(x);
    return status;
}
