/* engine/forward.c -- one call: lay out the work, make strips and packed arrays, hand blocks of rows to the pool.
 * SPDX-License-Identifier: Apache-2.0 */
#include "engine.h"
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* kv heads are packed in groups: as many as keep every thread busy, but no more memory than MAX_GROUP_BYTES unless one head
 * needs it; and short heads by FEW_BYTES, so that threads meet seldom. */
#define MAX_GROUP_BYTES  ((int64_t)32 << 20)
#define FEW_BYTES        ((int64_t)1 << 19)
#define TASKS_PER_THREAD 16
/* A kv head of no more bytes than this is packed and attended in one task: what was packed is still near. */
#define SHORT_HEAD_BYTES   ((int64_t)1 << 18)
#define MAX_HEADS_PER_TASK 16 /* most kv heads of such a task */
/* Panels of keys that one task packs. */
#define PANELS 8
/* Partial sums of a summary, added in order: enough to share a kv head among threads. */
#define CHUNKS 8

/* Where everything lies in the work of a call. */
typedef struct layout {
    rpi_arena all;
    rpi_sources sources;
    rpi_rope_tables rope;
    int64_t pad_k, pad_v, groups, chunks, scratch_step;
    bool by_heads; /* a task for each kv head; groups: one for each thread */
    int64_t keys, values, extreme_k, extreme_v, scratch, partial; /* offsets */
    int64_t tiles, decode_groups;                                 /* of few queries and many keys; 0: block by block */
    int64_t scores, decode_tiles, sums;
} layout;

/* args NULL: what a call needs whose arrays are as the plan says. scratch has max(Lq, Lk) doubles where args is not NULL. */
static void lay_out(layout *l, const rp_plan *plan, const rpi_args *args, int32_t threads, bool summary,
                    double *scratch)
{
    const rp_desc *d = args ? &args->desc : &plan->desc;
    const rpi_ops *ops = plan->ops;
    const int64_t kv = d->batch * d->kv_heads, share = d->heads / d->kv_heads, f = ops->real;
    memset(l, 0, sizeof *l);
    l->pad_k = rpi_round_up(d->len_k, ops->nr);
    l->pad_v = rpi_round_up(d->dim_v, ops->vl);
    int64_t bytes = MAX_GROUP_BYTES; /* of one kv head */
    /* groups are those of the plan's own lengths, so that shorter calls of a flexible plan fit its work */
    if (!rpi_mul(rpi_round_up(plan->desc.len_k, ops->nr), ops->key_bytes(plan) + ops->value_bytes(plan) + 1, 1, &bytes))
        l->all.too_large = true;
    const int64_t blocks = rpi_max((plan->desc.len_q + ops->qb - 1) / ops->qb * share, 1);
    l->groups = rpi_max((TASKS_PER_THREAD * threads + blocks - 1) / blocks, FEW_BYTES / rpi_max(bytes, 1));
    l->groups = rpi_clamp(rpi_min(l->groups, MAX_GROUP_BYTES / rpi_max(bytes, 1)), 1, rpi_max(kv, 1));
    rpi_arena *to = &l->all;
    rpi_sources_describe(&l->sources, plan, args, scratch);
    l->by_heads = bytes <= SHORT_HEAD_BYTES && !summary && plan->desc.batch * plan->desc.kv_heads % threads == 0;
    for (int n = 0; n < l->sources.n; n++)
        l->by_heads = l->by_heads && l->sources.source[n].kind != RPI_COLUMN; /* made for a group of heads at once */
    if (l->by_heads)
        l->groups = threads;
    l->keys = rpi_arena_add(to, l->groups, l->pad_k, ops->key_bytes(plan), 1);
    l->values = rpi_arena_add(to, l->groups, l->pad_k, ops->value_bytes(plan), 1);
    l->extreme_k = rpi_arena_add(to, l->groups, l->pad_k / ops->nr, 1, 1);
    l->extreme_v = rpi_arena_add(to, l->groups, l->pad_k, 1, 1);
    rpi_sources_lay_out(&l->sources, to, plan, args, l->groups * share, false);
    rpi_rope_tables_lay_out(&l->rope, to, plan, args);
    rpi_call c = {.plan = plan, .args = args, .n_sources = l->sources.n, .valvec = l->sources.valvec};
    memcpy(c.source, l->sources.source, sizeof c.source);
    l->scratch_step = rpi_max(ops->scratch_size(&c), ops->decode_size(&c));
    l->scratch = rpi_arena_add(to, threads, l->scratch_step, 1, 1);
    /* for a plan: as a call with the most queries that go tile by tile */
    const int64_t few = args ? d->len_q : rpi_min(d->len_q, ops->decode_rows);
    const bool decodes = few <= ops->decode_rows && d->len_k > ops->kb && plan->valvec < 0 && (!summary || !args);
    if (decodes) {
        l->tiles = (d->len_k + ops->kb - 1) / ops->kb;
        const int64_t one =
            rpi_max(rpi_min(plan->desc.len_q, ops->decode_rows), 1) * rpi_round_up(plan->desc.len_k, ops->nr);
        l->decode_groups = rpi_clamp(MAX_GROUP_BYTES / f / rpi_max(one, 1) / share, 1, rpi_max(kv, 1));
        const int64_t heads = l->decode_groups * share;
        l->scores = rpi_arena_add(to, heads, few, l->pad_k, f);
        l->decode_tiles = rpi_arena_add(to, heads, l->tiles, 1, ops->decode_tile);
        l->sums = rpi_arena_add(to, heads, l->tiles * (ops->kb / ops->vb) * ops->decode_rows, l->pad_v, f);
        /* key columns of other groups than those of the normal path */
        for (int n = 0; n < l->sources.n; n++)
            if (l->sources.source[n].kind == RPI_COLUMN)
                l->decode_groups = rpi_min(l->decode_groups, l->groups);
    }
    if (summary) {
        l->chunks = rpi_clamp((d->len_q + ops->qb - 1) / ops->qb, 1, rpi_max(CHUNKS / share, 1));
        l->partial = rpi_arena_add(to, l->groups * share, l->chunks, d->len_q + 2 * d->len_k, (int64_t)sizeof(double));
    }
}

size_t rpi_fast_work_size(const rp_plan *plan, int32_t threads)
{
    layout l;
    lay_out(&l, plan, NULL, threads, true, NULL);
    return rpi_arena_fits(&l.all, "a call") == RP_OK ? (size_t)l.all.used : 0;
}

/* ---------------------------------------------------------------------------------------------- a group of kv heads */

static void pack_task(void *context, int64_t n, int32_t worker)
{
    const rpi_call *c = context;
    const int64_t panels = c->pad_k / c->plan->ops->nr, pieces = (panels + PANELS - 1) / PANELS, piece = n % pieces;
    c->plan->ops->pack(c, n / pieces, piece * PANELS, rpi_min((piece + 1) * PANELS, panels), worker);
}

static void attend_task(void *context, int64_t n, int32_t worker)
{
    const rpi_call *c = context;
    const rp_desc *d = &c->args->desc;
    const int64_t rows = c->chunk_rows, pieces = (d->len_q + rows - 1) / rows;
    /* later rows first: under a causal mask they are the long ones */
    const int64_t head = n / pieces, piece = pieces - 1 - n % pieces;
    int64_t b, h;
    double *partial = NULL;
    rpi_head_at(c, head, &b, &h);
    if (c->partial) {
        const int64_t sums = d->len_q + 2 * d->len_k - 1;
        partial = c->partial + (head * c->chunks + piece) * sums;
        memset(partial, 0, (size_t)sums * sizeof *partial);
    }
    c->plan->ops->attend(c, b, h, piece * rows, rpi_min((piece + 1) * rows, d->len_q), partial, worker);
    rpi_progress_step(c->progress, worker);
}

static void heads_task(void *context, int64_t n, int32_t worker)
{
    const rpi_call *c = context;
    const rp_desc *d = &c->args->desc;
    const int64_t past = rpi_min((n + 1) * c->heads_per_task, d->batch * d->kv_heads);
    c->plan->ops->attend_heads(c, n * c->heads_per_task, past, worker);
    for (int64_t kv = n * c->heads_per_task; kv < past; kv++)
        for (int64_t row0 = 0; row0 < d->heads / d->kv_heads * d->len_q; row0 += c->chunk_rows)
            rpi_progress_step(c->progress, worker);
}

/* Add up the partial sums of one head in order, and write its summaries. */
static void summary_task(void *context, int64_t head, int32_t worker)
{
    const rpi_call *c = context;
    const rp_desc *d = &c->args->desc;
    const int64_t offsets = d->len_q + d->len_k - 1, sums = offsets + d->len_k;
    const int64_t pieces = (d->len_q + c->chunk_rows - 1) / c->chunk_rows;
    const rpi_view *profile = &c->args->profile, *key_mass = &c->args->key_mass;
    int64_t b, h;
    (void)worker;
    rpi_head_at(c, head, &b, &h);
    for (int64_t n = 0; n < sums; n++) {
        double sum = 0;
        for (int64_t piece = 0; piece < pieces; piece++)
            sum += c->partial[(head * c->chunks + piece) * sums + n];
        if (n < offsets && profile->data) {
            const int64_t pairs = rpi_min(d->len_q - 1, offsets - 1 - n) - rpi_max(0, d->len_q - 1 - n) + 1;
            rpi_put(profile->data, profile->dtype, rpi_index(profile, b, h, n, 0), pairs > 0 ? sum / (double)pairs : 0);
        } else if (n >= offsets && key_mass->data) {
            rpi_put(key_mass->data, key_mass->dtype, rpi_index(key_mass, b, h, n - offsets, 0), sum);
        }
    }
}

/* Query rows of a task: a block; with summaries, one of the head's chunks, whole blocks each. */
static int64_t rows_of_task(const rp_plan *plan, const rp_desc *d, const layout *l)
{
    const int64_t qb = plan->ops->qb;
    return l->chunks ? rpi_round_up((rpi_max(d->len_q, 1) + l->chunks - 1) / l->chunks, qb) : qb;
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
    rpi_progress_step(c->progress, worker);
}

/* Few queries: tile by tile. false: values that are not finite were met, and the call goes block by block. */
static bool decode(rpi_call *c, rp_pool *pool, const layout *l, char *work)
{
    const rp_desc *d = &c->args->desc;
    const int64_t kv = d->batch * d->kv_heads, share = d->heads / d->kv_heads;
    rpi_decode few = {
        .n_tiles = l->tiles, .scores = work + l->scores, .tiles = work + l->decode_tiles, .sums = work + l->sums};
    c->decode = &few;
    for (c->g0 = 0; c->g0 < kv; c->g0 += l->decode_groups) {
        c->groups = rpi_min(l->decode_groups, kv - c->g0);
        rpi_columns_fill(c, pool);
        rpi_pool_run(pool, c->groups * few.n_tiles, decode_scores_task, c);
        rpi_pool_run(pool, c->groups * few.n_tiles, decode_values_task, c);
        if (atomic_load(&few.extreme))
            return false;
        rpi_pool_run(pool, c->groups * share, decode_merge_task, c);
        if (atomic_load(&c->progress->stop))
            return true;
    }
    return true;
}

/* Nothing in here fails: the caller has the memory already. */
static void attend(const rp_plan *plan, const rpi_args *args, rp_pool *pool, rpi_progress *progress, layout *l,
                   char *work)
{
    const rp_desc *d = &args->desc;
    const rpi_ops *ops = plan->ops;
    const int64_t kv = d->batch * d->kv_heads, share = d->heads / d->kv_heads;
    rpi_call c = {
        .plan = plan,
        .args = args,
        .progress = progress,
        .pad_k = l->pad_k,
        .pad_v = l->pad_v,
        .keys = work + l->keys,
        .values = work + l->values,
        .extreme_k = (uint8_t *)work + l->extreme_k,
        .extreme_v = (uint8_t *)work + l->extreme_v,
        .scratch = work + l->scratch,
        .scratch_step = l->scratch_step,
        .partial = l->chunks ? (double *)(void *)(work + l->partial) : NULL,
        .chunks = l->chunks,
        .heads_per_task =
            l->by_heads ? rpi_clamp(kv / (TASKS_PER_THREAD * rp_pool_threads(pool)), 1, MAX_HEADS_PER_TASK) : 0,
    };
    c.chunk_rows = rows_of_task(plan, d, l);
    rpi_call_fill(&c, &l->sources, &l->rope, work, pool);
    if (l->tiles && decode(&c, pool, l, work))
        return;
    if (l->by_heads)
        rpi_pool_run_until(pool, (kv + c.heads_per_task - 1) / c.heads_per_task, heads_task, &c, &progress->stop);
    for (c.g0 = 0; !l->by_heads && c.g0 < kv && !atomic_load(&progress->stop); c.g0 += l->groups) {
        c.groups = rpi_min(l->groups, kv - c.g0);
        rpi_pool_run(pool, c.groups * ((l->pad_k / ops->nr + PANELS - 1) / PANELS), pack_task, &c);
        rpi_columns_fill(&c, pool);
        rpi_pool_run_until(pool, c.groups * share * ((d->len_q + c.chunk_rows - 1) / c.chunk_rows), attend_task, &c,
                           &progress->stop);
        if (c.partial && !atomic_load(&progress->stop))
            rpi_pool_run(pool, c.groups * share, summary_task, &c);
    }
}

rp_status rpi_fast_attend(const rp_plan *plan, const rpi_args *args, rp_pool *pool, rpi_progress *progress, void *work)
{
    const rp_desc *d = &args->desc;
    /* Memory comes first: a call that cannot be finished writes nothing. */
    layout l;
    rpi_arena scratch = {0};
    rpi_arena_add(&scratch, rpi_max(d->len_q, d->len_k), 1, 1, sizeof(double));
    rp_status status = rpi_arena_alloc(&scratch, false, "the call");
    if (status != RP_OK)
        return status;
    lay_out(&l, plan, args, rp_pool_threads(pool), args->profile.data || args->key_mass.data || args->entropy.data,
            (double *)(void *)scratch.base);
    rpi_arena_free(&scratch);
    if ((status = rpi_arena_fits(&l.all, "the call")) != RP_OK)
        return status;
    /* given positions and offsets may need more than the plan knew of */
    if (work && (size_t)l.all.used > rpi_fast_work_size(plan, rp_pool_threads(pool)))
        work = NULL;
    const int64_t rows = rows_of_task(plan, d, &l);
    progress->total += d->batch * d->heads * ((d->len_q + rows - 1) / rows);
    if (!work && (status = rpi_arena_alloc(&l.all, false, "the call")) != RP_OK)
        return status;
    if (d->batch > 0)
        attend(plan, args, pool, progress, &l, work ? work : l.all.base);
    rpi_arena_free(&l.all);
    return rpi_progress_status(progress);
}
