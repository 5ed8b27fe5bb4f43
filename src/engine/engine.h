/* engine/engine.h -- the fast path of one call: forward, decoding of few queries, and backward. Independent of schemes
 * and instruction sets.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef RELPOS_ENGINE_H
#define RELPOS_ENGINE_H
#include "call.h"
#include "sources/sources.h"

/* Run the forward call. Outputs may be absent. If work is NULL, allocate memory. */
rp_status rpi_fast_attend(const rpi_args *args, rp_pool *pool, rpi_progress *progress, void *work);
/* Compute the requested gradients. If the forward pass must run again, *args is changed. */
rp_status rpi_fast_backward(rpi_args *args, const rpi_grads *grads, rp_pool *pool, rpi_progress *progress, void *work);

/* Return the bytes of work memory of the fast path, from the limits of the plan. */
size_t rpi_fast_work_size(const rp_plan *plan, int32_t threads); /* of any call; 0 after rpi_fail */
size_t rpi_backward_work_size(const rp_plan *plan, int32_t threads);

/* One forward call. While a plan computes its work size, this describes the largest call that the plan allows. */
typedef struct rpi_forward {
    rpi_call call;
    rpi_sources sources;
    rpi_arena memory;
    int32_t threads;
    int64_t groups; /* kv heads that are packed at a time */
    bool by_heads;  /* each task packs and computes whole kv heads; `groups` then has one slot for each thread */
    rpi_decode decode;
    int64_t decode_groups; /* kv heads that a decoding call processes at a time */
} rpi_forward;

/* Divide a call into tasks: rows, kv heads, groups of kv heads, tiles of few queries. tasks.c */
void rpi_forward_split(rpi_forward *f);

/* ---- shared by forward and backward: call.c */

/* Describe a call with these limits and its sources, without memory. args is NULL while a plan computes sizes. */
void rpi_call_begin(rpi_call *c, rpi_sources *sources, const rp_plan *plan, const rpi_limits *e, const rpi_args *args);
/* Use the caller's work of `size` bytes if the arena fits, else allocate. */
rp_status rpi_work_begin(rpi_arena *a, void *work, size_t size);
/* Find batch entry b and query head h of the head with index `head` in the group. */
void rpi_head_at(const rpi_call *c, int64_t head, int64_t *b, int64_t *h);
/* Fill the sources and RoPE tables that the kernels read. */
void rpi_call_fill(rpi_call *c, rpi_sources *sources, rp_pool *pool);
/* Compute the products of COLUMN sources (one per key) for the heads of the group. */
void rpi_columns_fill(rpi_call *c, rp_pool *pool);

/* ---- reduce.c */

/* Turn the sums of a backward call into gradients of the terms' arrays, on one thread in a fixed order. */
void rpi_reduce(const rpi_call *c);

#endif
