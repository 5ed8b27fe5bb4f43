/* problem/problem.h -- one call, checked: its plan, its arrays as views, positions, the keys a query may see, sums of
 * gradients. It may not know sources, kernels or the reference.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef RPI_PROBLEM_H
#define RPI_PROBLEM_H
#include "base/arena.h"
#include "base/array.h"
#include "extents.h"
#include "masks/mask.h"
#include "ops.h"
#include "terms/registry.h"

/* Sums and differences of positions and lengths up to here fit in 63 bits. */
#define RPI_MAX_POSITION ((int64_t)1 << 60)

struct rp_plan {
    rp_desc desc;                /* defaults resolved; terms and masks point into this struct */
    rp_term terms[RP_MAX_TERMS]; /* defaults resolved */
    rp_mask masks[RP_MAX_MASKS];
    const rpi_scheme *scheme[RP_MAX_TERMS];     /* of each term */
    const rpi_mask_entry *masker[RP_MAX_MASKS]; /* of each mask */
    rpi_extents bounds;                         /* where there are ops */
    const rpi_ops *ops;                         /* NULL: the reference path */
    const char *isa;                            /* by name; f64 may have the kernels of another */
    int32_t components;                         /* where products are made of bf16: how many a number is the sum of */
    int32_t rotate, vec, valvec, sink; /* index of the term of that form, vec of one inside the softcap; -1: none */
    int32_t n_tile, n_vec;             /* terms of those forms; n_vec: of VEC that are biases */
    bool intervals;                    /* some mask or term limits a row to an interval of keys */
    bool mask_keep;                    /* some mask needs bytes, not intervals alone */
    bool mask_keep_rows;               /* and they differ between rows */
    bool skips;                        /* tiles whose weights are all 0 may be left out */
};

/* The arrays of one call, checked, and what follows from them once for the call. */
typedef struct rpi_args {
    const rp_plan *plan;
    rp_desc desc; /* the plan's, with the lengths of this call */
    rpi_view q, k, v, out, lse, weights, profile, key_mass, entropy, q_offset;
    rpi_view key_norms;        /* [B, Hk, segments of RP_NORM_KEYS keys]; absent: not known */
    int64_t *pairs;            /* [2] allowed and computed; NULL: not counted */
    rpi_view row_max, log_sum; /* lse as two numbers, whose sum it is, for the backward pass: [B,H,Lq] f64 */
    rpi_view term[RP_MAX_TERMS][RP_MAX_ARRAYS];
    rpi_view mask[RP_MAX_MASKS];
    /* made by rpi_args_prepare */
    double *prepared[RP_MAX_TERMS];
    int64_t *segment_start;         /* [B][Lk] index of the first token of the segment; NULL: no segments */
    double *frequency, rope_factor; /* [dim/2] of ROTATE */
    rpi_arena memory;
    const rp_prepared *ready; /* NULL: none */
    bool prepared_only;       /* of rp_prepare: arrays of OFFSET and ROTATE terms alone are there */
} rpi_args;

/* ---- prepare.c */

/* What a call needs beside its arrays: prefix sums, frequencies, segments. rpi_args_free undoes it. */
rp_status rpi_args_prepare(rpi_args *args);
void rpi_args_free(rpi_args *args);

/* The position of query i of batch entry b among indices: i + q_offset. */
static inline int64_t rpi_position(const rpi_args *a, int64_t b, int64_t i)
{
    return i + (a->q_offset.data ? rpi_integer(a->q_offset.data, a->q_offset.dtype, rpi_index(&a->q_offset, b, 0, 0, 0))
                                 : a->desc.q_offset);
}

/* The largest |lse| that serves the backward pass as one number: rounded, it changes weights by at most 2^-8. */
static inline double rpi_lse_limit(const rp_desc *d)
{
    return d->dtype == RP_F64 ? 0x1p44 : 0x1p16;
}

/* The position by which RoPE rotates query or key n. */
double rpi_rope_position(const rpi_args *args, bool key, int64_t b, int64_t n);

/* ---- pairs.c */

/* A pair of terms[term] for a query; rpi_pair_key adds the key. */
rpi_pair rpi_pair_of(const rpi_args *args, int32_t term, int64_t b, int64_t h, int64_t i);
void rpi_pair_key(const rpi_args *args, rpi_pair *p, int64_t j);

/* The keys [*lo, *hi) that query i may see, as far as intervals go: 0 <= *lo <= *hi <= Lk. */
void rpi_interval(const rpi_args *args, int64_t b, int64_t i, int64_t *lo, int64_t *hi);
/* Clear keep[n] where a mask that goes pair by pair takes key j0 + n from query i; 0 <= n < count. */
void rpi_mask_keep(const rpi_args *args, int64_t b, int64_t h, int64_t i, int64_t j0, int64_t count, uint8_t *keep);

/* ---- sums.c */

/* The gradients of one backward call, checked. */
typedef struct rpi_grads {
    rpi_view dout, dlse, dq, dk, dv;
    rpi_view term[RP_MAX_TERMS][RP_MAX_ARRAYS];
} rpi_grads;

/* Sums for the gradient of each wanted array of the terms, of those whose bit is set in arrays[term], zero at first, in
 * one block of memory: rpi_arena_free(&sums->memory). */
typedef struct rpi_term_sums {
    rpi_sums term[RP_MAX_TERMS];
    int64_t elements[RP_MAX_TERMS][RP_MAX_ARRAYS];
    rpi_arena memory;
} rpi_term_sums;
#define RPI_ALL_ARRAYS UINT32_MAX
rp_status rpi_sums_alloc(rpi_term_sums *sums, const rpi_args *args, const rpi_grads *grads, const uint32_t *arrays);
void rpi_sums_store(const rpi_term_sums *sums, const rpi_args *args, const rpi_grads *grads);

#endif
