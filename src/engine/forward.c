/* engine/forward.c -- one forward call: allocate its memory and run its tasks in order. tasks.c divides the call into
 * tasks; base/pool.c runs them on threads.
 * SPDX-License-Identifier: Apache-2.0 */
#include "engine.h"
#include <string.h>

/* Panels of keys that one task packs. */
#define PANELS_PER_TASK 8
/* Whole heads are decoded by one task each if a thread gets at least this many, or if they divide evenly. */
#define MIN_HEADS_PER_THREAD 8
/* Lay out the memory of a call. The first run adds up sizes; once the arena has a base, the second run assigns
 * addresses. */
static void place(rpi_forward *f)
{
    rpi_call *c = &f->call;
    const rp_plan *plan = c->plan;
    const rpi_limits *e = c->limits;
    const rpi_ops *ops = plan->ops;
    rpi_arena *a = &f->memory;
    const int64_t per_kv = plan->desc.heads / plan->desc.kv_heads, real = ops->real;
    c->keys = rpi_arena_take3(a, f->groups, c->packed_k, ops->key_bytes(plan), 1);
    c->values = rpi_arena_take3(a, f->groups, c->packed_k, ops->value_bytes(plan), 1);
    c->large_k = rpi_arena_take(a, f->groups, c->packed_k / ops->nr, 1);
    c->large_v = rpi_arena_take(a, f->groups, c->packed_k, 1);
    if (c->starts)
        c->key_norms = rpi_arena_take3(a, f->groups, c->packed_k / ops->nr, real, 1);
    rpi_sources_place(&f->sources, a, plan, e, f->groups * per_kv, false);
    rpi_rope_tables_place(&c->rope, a, plan, e);
    c->scratch = rpi_arena_take(a, f->threads, c->scratch_step, 1);
    if (f->decode.n_tiles) {
        const int64_t heads = f->decode_groups * per_kv, tiles = f->decode.n_tiles;
        f->decode.scores = rpi_arena_take3(a, heads, e->decode_queries, c->packed_k, real);
        f->decode.tiles = rpi_arena_take(a, heads, tiles, ops->decode_tile);
        f->decode.sums =
            rpi_arena_take3(a, heads, tiles * (ops->tile_keys / ops->sum_keys) * ops->decode_rows, c->pad_v, real);
    }
    if (c->chunks)
        c->partial = rpi_arena_take3(a, f->groups * per_kv, c->chunks, e->len_q + 2 * e->len_k, sizeof(double));
}

/* Set everything in a call except memory addresses, and add up the size of its memory. */
static void begin(rpi_forward *f, const rp_plan *plan, const rpi_limits *e, const rpi_args *args, int32_t threads)
{
    const rpi_ops *ops = plan->ops;
    rpi_call *c = &f->call;
    f->memory = (rpi_arena){0};
    f->threads = threads;
    rpi_call_begin(c, &f->sources, plan, e, args);
    rpi_forward_split(f);
    c->scratch_step = rpi_max(ops->scratch_size(c), ops->decode_size(c));
    place(f);
}

/* noinline: inlining would put a second rpi_forward on the stack of rpi_fast_attend. */
__attribute__((noinline)) size_t rpi_fast_work_size(const rp_plan *plan, int32_t threads)
{
    rpi_forward f;
    begin(&f, plan, &plan->bounds, NULL, threads);
    return rpi_arena_fits(&f.memory, "a call") == RP_OK ? (size_t)f.memory.used : 0;
}

/* ---------------------------------------------------------------------------------------------- a group of kv heads */

static void pack_task(void *context, int64_t n, int32_t worker)
{
    const rpi_call *c = context;
    const int64_t panels = c->packed_k / c->plan->ops->nr, tasks = (panels + PANELS_PER_TASK - 1) / PANELS_PER_TASK,
                  first = n % tasks * PANELS_PER_TASK;
    c->plan->ops->pack(c, n / tasks, first, rpi_min(first + PANELS_PER_TASK, panels), worker);
}

/* Return the number of tasks of a head. */
static int64_t row_tasks(const rpi_call *c)
{
    return (c->args->row_to - c->args->row_from + c->rows_per_task - 1) / c->rows_per_task;
}

/* Compute rows of one head: call `attend` (kernels/forward.h). */
static void attend_task(void *context, int64_t n, int32_t worker)
{
    const rpi_call *c = context;
    const rp_desc *d = &c->args->desc;
    const int64_t rows = c->rows_per_task, tasks = row_tasks(c);
    /* later rows first: with a causal mask they have more keys */
    const int64_t head = n / tasks, task = tasks - 1 - n % tasks;
    int64_t b, h;
    double *partial = NULL;
    rpi_head_at(c, head, &b, &h);
    if (c->partial) {
        const int64_t sums = d->len_q + 2 * d->len_k - 1;
        partial = c->partial + (head * c->chunks + task) * sums;
        memset(partial, 0, (size_t)sums * sizeof *partial);
    }
    const int64_t row0 = c->args->row_from + task * rows;
    c->plan->ops->attend(c, b, h, row0, rpi_min(row0 + rows, c->args->row_to), partial, worker);
    rpi_progress_step(c->progress);
}

/* Pack heads_per_task kv heads and compute all their rows. */
static void heads_task(void *context, int64_t n, int32_t worker)
{
    const rpi_call *c = context;
    const rp_desc *d = &c->args->desc;
    const int64_t past = rpi_min((n + 1) * c->heads_per_task, d->batch * d->kv_heads);
    c->plan->ops->attend_heads(c, n * c->heads_per_task, past, worker);
    for (int64_t kv = n * c->heads_per_task; kv < past; kv++)
        for (int64_t row0 = 0; row0 < d->heads / d->kv_heads * d->len_q; row0 += c->rows_per_task)
            rpi_progress_step(c->progress);
}

/* Add the partial sums of one head in order, and write its summaries. */
static void summary_task(void *context, int64_t head, int32_t worker)
{
    const rpi_call *c = context;
    const rp_desc *d = &c->args->desc;
    const int64_t offsets = d->len_q + d->len_k - 1, sums = offsets + d->len_k;
    const int64_t chunks = (d->len_q + c->rows_per_task - 1) / c->rows_per_task;
    const rpi_view *profile = &c->args->profile, *key_mass = &c->args->key_mass;
    int64_t b, h;
    (void)worker;
    rpi_head_at(c, head, &b, &h);
    for (int64_t n = 0; n < sums; n++) {
        double sum = 0;
        for (int64_t chunk = 0; chunk < chunks; chunk++)
            sum += c->partial[(head * c->chunks + chunk) * sums + n];
        if (n < offsets && profile->data) {
            const int64_t pairs = rpi_offset_pairs(d, n);
            rpi_put(profile->data, profile->dtype, rpi_index(profile, b, h, n, 0), pairs > 0 ? sum / (double)pairs : 0);
        } else if (n >= offsets && key_mass->data) {
            rpi_put(key_mass->data, key_mass->dtype, rpi_index(key_mass, b, h, n - offsets, 0), sum);
        }
    }
}

static void decode_scores_task(void *context, int64_t n, int32_t worker)
{
    const rpi_call *c = context;
    c->plan->ops->decode_scores(c, n / c->decode->n_tiles, n % c->decode->n_tiles, worker);
}

static void decode_values_task(void *context, int64_t n, int32_t worker)
{
    const rpi_call *c = context;
    c->plan->ops->decode_values(c, n / c->decode->n_tiles, n % c->decode->n_tiles, worker);
}

static void decode_merge_task(void *context, int64_t head, int32_t worker)
{
    const rpi_call *c = context;
    c->plan->ops->decode_merge(c, head, worker);
    rpi_progress_step(c->progress);
}

/* Decode heads_per_task kv heads. */
static void decode_heads_task(void *context, int64_t n, int32_t worker)
{
    const rpi_call *c = context;
    const rp_desc *d = &c->args->desc;
    const int64_t past = rpi_min((n + 1) * c->heads_per_task, c->groups);
    c->plan->ops->decode_heads(c, n * c->heads_per_task, past, worker);
    for (int64_t head = n * c->heads_per_task * (d->heads / d->kv_heads); head < past * (d->heads / d->kv_heads);
         head++)
        rpi_progress_step(c->progress);
}

/* Return true if a decoding task computes whole heads: their keys are one tile, or no other head shares them and there
 * are enough heads to keep all threads busy. Skipped tiles would make tasks of whole heads uneven. */
static bool decodes_heads(const rpi_forward *f)
{
    const rpi_call *c = &f->call;
    const rp_desc *d = &c->args->desc;
    const int64_t kv = d->batch * d->kv_heads;
    return c->args->state_in.data == NULL && /* a call that starts again must find the states unchanged */
           (f->decode.n_tiles == 1 || (d->heads == d->kv_heads && !c->skips &&
                                       (kv % f->threads == 0 || kv >= MIN_HEADS_PER_THREAD * f->threads)));
}

/* Decode few queries tile by tile. Return false if a value is not finite; the call then runs block by block from kv
 * head c->g0 on. */
static bool decode(rpi_forward *f, rp_pool *pool)
{
    rpi_call *c = &f->call;
    const rp_desc *d = &c->args->desc;
    const int64_t kv = d->batch * d->kv_heads, per_kv = d->heads / d->kv_heads, tiles = f->decode.n_tiles;
    const bool heads = decodes_heads(f);
    const long long start = atomic_load(&c->progress->done);
    c->decode = &f->decode;
    atomic_store(&f->decode.non_finite, 0);
    for (c->g0 = 0; c->g0 < kv; c->g0 += f->decode_groups) {
        const long long before = atomic_load(&c->progress->done);
        c->groups = rpi_min(f->decode_groups, kv - c->g0);
        rpi_columns_fill(c, pool);
        if (heads) {
            rpi_pool_run_until(pool, (c->groups + c->heads_per_task - 1) / c->heads_per_task, decode_heads_task, c,
                               &c->progress->stop);
        } else {
            rpi_pool_run(pool, c->groups * tiles, decode_scores_task, c);
            rpi_pool_run(pool, c->groups * tiles, decode_values_task, c);
        }
        if (atomic_load(&f->decode.non_finite)) {
            atomic_store(&c->progress->done, f->by_heads ? start : before); /* blocks report all heads again */
            return false;
        }
        if (!heads)
            rpi_pool_run(pool, c->groups * per_kv, decode_merge_task, c);
        if (atomic_load(&c->progress->stop))
            return true;
    }
    return true;
}

/* Return true if rows that start from the score of their own key (kernels/skip.h) find this key. */
static bool own_keys_there(const rpi_args *args)
{
    bool there = true;
    for (int64_t b = 0; b < args->desc.batch && !args->state_in.data && !args->own_keys.data; b++) {
        const int64_t from = rpi_max(rpi_position(args, b, args->row_from), 0),
                      to = rpi_min(rpi_position(args, b, args->row_to), args->desc.len_k);
        there = there && (from >= to || (from >= args->key_from && to <= args->key_to));
    }
    return there;
}

/* Run the call. All memory is already allocated; if the call fails, it has written nothing. */
static rp_status run_tasks(rpi_forward *f, rp_pool *pool)
{
    rpi_call *c = &f->call;
    const rp_desc *d = &c->args->desc;
    const atomic_bool *stop = &c->progress->stop;
    const int64_t kv = d->batch * d->kv_heads, per_kv = d->heads / d->kv_heads;
    const int64_t panels = c->packed_k / c->plan->ops->nr, tasks = row_tasks(c);
    rpi_call_fill(c, &f->sources, pool);
    if (c->starts && !own_keys_there(c->args))
        return rpi_fail(RP_E_ARG,
                        "own_keys is missing; pass the keys at the positions of the queries, because the biases "
                        "fall so far that a row starts from the score of its own key");
    c->g0 = 0;
    if (f->decode.n_tiles && decode(f, pool))
        return RP_OK;
    if (f->by_heads)
        rpi_pool_run_until(pool, (kv + c->heads_per_task - 1) / c->heads_per_task, heads_task, c, stop);
    for (; !f->by_heads && c->g0 < kv && !atomic_load(stop); c->g0 += f->groups) {
        c->groups = rpi_min(f->groups, kv - c->g0);
        rpi_pool_run(pool, c->groups * ((panels + PANELS_PER_TASK - 1) / PANELS_PER_TASK), pack_task, c);
        rpi_columns_fill(c, pool);
        rpi_pool_run_until(pool, c->groups * per_kv * tasks, attend_task, c, stop);
        if (c->partial && !atomic_load(stop))
            rpi_pool_run(pool, c->groups * per_kv, summary_task, c);
    }
    return RP_OK;
}

rp_status rpi_fast_attend(const rpi_args *args, rp_pool *pool, rpi_progress *progress, void *work)
{
    const rp_desc *d = &args->desc;
    const int32_t threads = rp_pool_threads(pool);
    rpi_limits limits;
    rpi_forward f;
    rpi_limits_of(&limits, args, NULL);
    begin(&f, args->plan, &limits, args, threads);
    f.call.progress = progress;
    progress->total += d->batch * d->heads * row_tasks(&f.call);
    /* Allocate memory first, so that a call that fails writes nothing. With given positions or offsets, the call may
     * need more memory than the plan's work size. */
    rp_status status = rpi_work_begin(&f.memory, work, work ? rpi_fast_work_size(args->plan, threads) : 0);
    if (status != RP_OK)
        return status;
    place(&f);
    if (d->batch > 0)
        status = run_tasks(&f, pool);
    rpi_arena_free(&f.memory);
    return status == RP_OK ? rpi_progress_status(progress) : status;
}
