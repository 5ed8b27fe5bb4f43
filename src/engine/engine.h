/* engine/engine.h -- the fast path of one call: forward, for few queries and many keys, and backward.
 * It may not know schemes or instruction sets by name.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef RELPOS_ENGINE_H
#define RELPOS_ENGINE_H
#include "call.h"
#include "sources/sources.h"

/* The fast forward call. out and lse may be anywhere; memory is allocated where work is NULL. */
rp_status rpi_fast_attend(const rpi_args *args, rp_pool *pool, rpi_progress *progress, void *work);
/* The gradients that are wanted; args is changed where the forward pass is made again. */
rp_status rpi_fast_backward(rpi_args *args, const rpi_grads *grads, rp_pool *pool, rpi_progress *progress, void *work);

/* Bytes of work of the fast path, by the bounds of the plan. */
size_t rpi_fast_work_size(const rp_plan *plan, int32_t threads); /* of any call; 0 after rpi_fail */
size_t rpi_backward_work_size(const rp_plan *plan, int32_t threads);

/* One forward call; or, while a plan asks for sizes, the largest that its bounds allow. */
typedef struct rpi_forward {
    rpi_call call;
    rpi_sources sources;
    rpi_arena memory;
    int32_t threads;
    int64_t groups; /* kv heads that are packed at a time */
    bool by_heads;  /* a task packs and attends kv heads for itself; groups: one for each thread */
    rpi_decode decode;
    int64_t decode_groups; /* kv heads of few queries that are worked on at a time */
} rpi_forward;

/* Cut a call into tasks: rows, kv heads, groups of kv heads, tiles of few queries. tasks.c */
void rpi_forward_cut(rpi_forward *f);

/* ---- what forward and backward share: call.c */

/* A call of these extents with its sources, before it has memory. args NULL: of a plan whose sizes are asked for. */
void rpi_call_begin(rpi_call *c, rpi_sources *sources, const rp_plan *plan, const rpi_extents *e, const rpi_args *args);
/* Memory for what was added up: the caller's work of `size` bytes where that is enough, else its own. */
rp_status rpi_work_begin(rpi_arena *a, void *work, size_t size);
/* Batch entry and query head of head number `head` of the group. */
void rpi_head_at(const rpi_call *c, int64_t head, int64_t *b, int64_t *h);
/* Sources and RoPE's tables of a call, filled, as the kernels find them. */
void rpi_call_fill(rpi_call *c, rpi_sources *sources, rp_pool *pool);
/* The one product of each key of COLUMN sources, for the heads of the group. */
void rpi_columns_fill(rpi_call *c, rp_pool *pool);

/* ---- fold.c */

/* Turn what the tasks of a backward call have summed into gradients of the terms' arrays: on one thread, in one
 * order. */
void rpi_fold(const rpi_call *c);

#endif
