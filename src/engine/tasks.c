/* engine/tasks.c -- divide a forward call into tasks: choose the rows of a task, the kv heads of a group, and the tiles
 * of a decoding call. The division changes no bit of the result. Start reading at rpi_forward_split. forward.c passes
 * the tasks to rpi_pool_run_until (base/pool.c). backward.c divides a backward call.
 * SPDX-License-Identifier: Apache-2.0 */
#include "engine.h"

/* kv heads are packed in groups. A group has enough heads to give every thread TASKS_PER_THREAD tasks, and at least
 * FEW_BYTES of packed heads, so that threads seldom wait for each other. It takes at most MAX_GROUP_BYTES, unless a
 * single head needs more. */
#define MAX_GROUP_BYTES  ((int64_t)32 << 20)
#define FEW_BYTES        ((int64_t)1 << 19)
#define TASKS_PER_THREAD 16
/* One task packs and computes a kv head of at most this many bytes, because the packed head is then still in the
 * cache. */
#define SHORT_HEAD_BYTES ((int64_t)1 << 18)
/* The largest number of kv heads in such a task. */
#define MAX_HEADS_PER_TASK 16
/* Number of chunks of a kv head for which a summary has separate sums, so that several threads can share the head. */
#define SUMMARY_CHUNKS 8

/* Choose the number of kv heads in a group. Use the plan's lengths, so that shorter calls of a flexible plan fit into
 * its work memory. */
static void set_groups(rpi_forward *f, bool summary)
{
    const rpi_call *c = &f->call;
    const rp_plan *plan = c->plan;
    const rp_desc *d = &plan->desc;
    const rpi_ops *ops = plan->ops;
    const int64_t kv = d->batch * d->kv_heads, per_kv = d->heads / d->kv_heads;
    int64_t bytes = MAX_GROUP_BYTES; /* size of one packed kv head */
    if (!rpi_mul(rpi_round_up(d->len_k, ops->nr), ops->key_bytes(plan) + ops->value_bytes(plan) + 1, 1, &bytes))
        f->memory.too_large = true;
    const int64_t blocks = rpi_max((d->len_q + ops->block_rows - 1) / ops->block_rows * per_kv, 1);
    f->groups = rpi_max((TASKS_PER_THREAD * f->threads + blocks - 1) / blocks, FEW_BYTES / rpi_max(bytes, 1));
    f->groups = rpi_clamp(rpi_min(f->groups, MAX_GROUP_BYTES / rpi_max(bytes, 1)), 1, rpi_max(kv, 1));
    f->by_heads = bytes <= SHORT_HEAD_BYTES && !summary && kv % f->threads == 0 &&
                  !(c->args && rpi_is_range(c->args)); /* attend_heads computes all rows and keys */
    for (int n = 0; n < c->n_sources; n++)
        f->by_heads =
            f->by_heads && c->source[n].kind != RPI_COLUMN; /* must be computed for a whole group of heads first */
    if (f->by_heads)
        f->groups = f->threads;
}

/* Choose the tiles and groups of a decoding call, also from the plan's lengths. */
static void set_decode(rpi_forward *f)
{
    const rpi_call *c = &f->call;
    const rp_desc *d = &c->plan->desc;
    const rpi_ops *ops = c->plan->ops;
    f->decode.n_tiles = 0;
    if (!c->limits->decode_queries || !c->packed_k || c->plan->valvec >= 0)
        return;
    const int64_t one = rpi_max(rpi_min(d->len_q, ops->decode_rows), 1) * rpi_round_up(d->len_k, ops->nr);
    f->decode.n_tiles = (c->packed_k + ops->tile_keys - 1) / ops->tile_keys;
    f->decode_groups = rpi_clamp(MAX_GROUP_BYTES / ops->real / rpi_max(one, 1) / (d->heads / d->kv_heads), 1,
                                 rpi_max(d->batch * d->kv_heads, 1));
    /* COLUMN sources have memory for only `groups` kv heads */
    for (int n = 0; n < c->n_sources; n++)
        if (c->source[n].kind == RPI_COLUMN)
            f->decode_groups = rpi_min(f->decode_groups, f->groups);
}

/* Choose the query rows of a task: one block, or one chunk if a summary is requested. */
static void set_rows(rpi_forward *f)
{
    rpi_call *c = &f->call;
    const rp_desc *d = &c->plan->desc;
    const int64_t block = c->plan->ops->block_rows, rows = c->limits->len_q;
    c->rows_per_task = block;
    if (!c->limits->summary)
        return;
    c->chunks = rpi_clamp((rows + block - 1) / block, 1, rpi_max(SUMMARY_CHUNKS / (d->heads / d->kv_heads), 1));
    c->rows_per_task = rpi_round_up((rpi_max(rows, 1) + c->chunks - 1) / c->chunks, block);
}

void rpi_forward_split(rpi_forward *f)
{
    const rp_desc *d = &f->call.plan->desc;
    set_groups(f, f->call.limits->summary);
    set_decode(f);
    set_rows(f);
    if (f->by_heads || f->decode.n_tiles)
        f->call.heads_per_task =
            rpi_clamp(d->batch * d->kv_heads / (TASKS_PER_THREAD * f->threads), 1, MAX_HEADS_PER_TASK);
}
