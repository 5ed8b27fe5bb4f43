/* engine/engine.h -- the fast path of one call: forward (including decoding) and backward. Independent of schemes and
 * instruction sets.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef RELPOS_ENGINE_H
#define RELPOS_ENGINE_H
#include "call/call.h"
#include "sources/sources.h"

/* Run a forward call. Outputs may be absent. If work is NULL, allocate memory. */
rp_status rpi_fast_attend(const rpi_args *args, rp_pool *pool, rpi_progress *progress, void *work);
/* Compute the requested gradients. If the forward pass must run again, modify *args. */
rp_status rpi_fast_backward(rpi_args *args, const rpi_grads *grads, rp_pool *pool, rpi_progress *progress, void *work);

/* Compute the tangents of out and lse that are present, with the set that rpi_ops.singles of the plan names. Set bits
 * of plain [B * H][Lq], RPI_PLAIN_…, for rows with numbers that are not finite or too large: the caller must compute
 * these tangents in plain loops. */
rp_status rpi_fast_jvp(const rpi_args *args, const rpi_ops *ops, const rpi_tangents *given, rp_pool *pool,
                       rpi_progress *progress, uint8_t *plain);
/* Return true if rpi_fast_jvp left some row to plain loops. */
static inline bool rpi_leaves_rows(const rp_desc *d, const uint8_t *plain)
{
    bool some = false;
    for (int64_t n = 0; n < d->batch * d->heads * d->len_q; n++)
        some |= plain[n] != 0;
    return some;
}
/* Compute second derivatives, and the tangents of out and lse, which must be present. If bits of `plain` are set as in
 * rpi_fast_jvp, no gradient has been computed: the caller must compute the call in plain loops. */
rp_status rpi_fast_hvp(const rpi_args *args, const rpi_ops *ops, const rpi_tangents *tangents, const rpi_grads *grads,
                       rp_pool *pool, rpi_progress *progress, uint8_t *plain);

/* Return the bytes of work memory that a call of the plan needs, or 0 after rpi_fail. */
size_t rpi_fast_work_size(const rp_plan *plan, int32_t threads); /* forward call */
/* Return the number of elements of a row of rp_grads.dq_in or, if `keys`, of a key of rp_grads.dkv_in. */
int64_t rpi_backward_width(const rp_plan *plan, bool keys);
size_t rpi_backward_work_size(const rp_plan *plan, int32_t threads);

/* One forward call. When computing the work size of a plan, it is the largest call that the plan allows. */
typedef struct rpi_forward {
    rpi_call call;
    rpi_sources sources;
    rpi_arena memory;
    int32_t threads;
    int64_t groups; /* number of kv heads in a group, which are packed together */
    bool by_heads;  /* each task packs and computes whole kv heads; `groups` is then the number of threads */
    rpi_decode decode;
    int64_t decode_groups; /* number of kv heads in a group of a decoding call */
} rpi_forward;

/* Choose the groups and tasks of a call (tasks.c). */
void rpi_forward_split(rpi_forward *f);

/* ---- shared by forward and backward: call.c */

/* Initialize a call and describe its sources, without memory. args is NULL when computing sizes for a plan. */
void rpi_call_begin(rpi_call *c, rpi_sources *sources, const rp_plan *plan, const rpi_limits *e, const rpi_args *args);
/* Use the caller's `size` bytes of work memory if the arena fits into it, else allocate memory. */
rp_status rpi_work_begin(rpi_arena *a, void *work, size_t size);
/* Find the batch entry *b and query head *h of head number `head` in the group. */
void rpi_head_at(const rpi_call *c, int64_t head, int64_t *b, int64_t *h);
/* Fill the sources and RoPE tables that the kernels read. */
void rpi_call_fill(rpi_call *c, rpi_sources *sources, rp_pool *pool);
/* Compute the products of COLUMN sources (one per key) for the heads of the group. */
void rpi_columns_fill(rpi_call *c, rp_pool *pool);

/* ---- tangents.c */

/* The calls from which tangents are computed (rpi_jvp), and what they point to. */
typedef struct rpi_tangent_calls {
    rpi_jvp jvp;
    const rpi_call *call; /* that of the arrays themselves */
    rpi_args inputs, /* the tangents of q, k, v and, for the rows that products multiply, of the arrays of VEC terms */
        columns,     /* the tangent of k and the arrays of the call: for COLUMN sources of `inputs` */
        arrays,      /* the arrays of the call, along their tangents */
        arrays_fill; /* the same with tangents of the arrays of VEC and VALVEC terms, from which vectors are packed */
    const rpi_tangents *given;
    rpi_tangents one;   /* the tangents; those of one batch entry, if some array has a tangent for each */
    rpi_sources along;  /* the sources of the tangents of the terms' arrays */
    rpi_sources placed; /* `along` before it was filled */
    bool filled;
    rpi_sources vectors;                /* for the tangents of q and k: the sources with vectors */
    int32_t source_of[RPI_MAX_SOURCES]; /* the numbers of the latter among the sources of the call */
    rpi_limits along_limits;
} rpi_tangent_calls;

/* Describe the calls with the tangents of call c, after rpi_call_begin, and set c->jvp. */
void rpi_tangents_begin(rpi_tangent_calls *x, rpi_call *c, const rpi_tangents *given);
/* Return for how many batch entries one call of rpi_tangents_fill serves: for all, or for one if some array has a
 * tangent for each. */
int64_t rpi_tangent_entries(const rpi_tangent_calls *x);
/* Fill the sources of the tangents for the batch entries from b on, after those of the call. */
void rpi_tangents_fill(rpi_tangent_calls *x, int64_t b, rp_pool *pool);
/* Lay out the memory of the sources, for groups of `heads` query heads. */
void rpi_tangents_place(rpi_tangent_calls *x, rpi_arena *a, int64_t heads, bool backward);
/* Compute the COLUMN sources of all calls for the group. */
void rpi_tangents_columns(rpi_tangent_calls *x, rp_pool *pool);
/* Copy the plan and the arguments of a call, for another instruction set. */
void rpi_use_ops(rp_plan *plan, rpi_args *args, const rpi_args *given, const rpi_ops *ops);

/* ---- angles.c */

/* What calls of tangents and second derivatives compute besides, if RoPE's frequencies or angles have a tangent or a
 * gradient. */
typedef struct rpi_turns_data {
    const rpi_args *args;
    const rpi_tangents *given;
    const rpi_grads *grads;   /* those that the caller wants; NULL for tangents */
    bool turned;              /* the angles have a tangent */
    rpi_tangents tangents;    /* for the call: those given, with the tangents of q and k that the kernels need */
    rpi_grads second,         /* for the call of second derivatives: those wanted, with dq and dk in `memory` */
        first,                /* for a backward call: dq and dk */
        arrays;               /* those of the frequencies or angles */
    double *sums[2];          /* of frequencies, for each task of queries and keys; NULL if angles are given */
    rpi_angle_sums angles[2]; /* of angles of queries and keys; keys add to one array after queries */
    rpi_arena memory;
} rpi_turns_data;

/* Return true if a call needs the functions below: if frequencies or angles have a tangent, or a gradient is wanted. */
bool rpi_turns(const rpi_args *args, const rpi_tangents *given, const rpi_grads *grads);
/* Allocate *turns, which the caller frees also after an error, and compute its tangents. */
rp_status rpi_turns_begin(rpi_turns_data **turns, const rpi_args *args, const rpi_tangents *given,
                          const rpi_grads *grads, rp_pool *pool);
/* Compute the wanted dq, dk and gradients of the frequencies or angles, after both calls. */
rp_status rpi_turns_finish(rpi_turns_data *turns, rp_pool *pool);
void rpi_turns_end(rpi_turns_data *turns);

/* ---- reduce.c */

/* Add up sums for RoPE's frequencies: from[0] has n[0] of them for each query head, [B * H][n][axes][dim/2], and
 * from[1] has n[1] for each kv head. */
void rpi_reduce_rotation(const rpi_args *args, rpi_term_sums *sums, const double *const from[2], const int64_t n[2]);
/* Turn the sums of a backward call into gradients of the terms' arrays, on one thread in a fixed order. */
void rpi_reduce(const rpi_call *c);

#endif
