/* engine/call.h -- the interface between engine and kernels: one call, decoding of few queries, one backward call.
 * Kernels see nothing else of the engine.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef RELPOS_CALL_H
#define RELPOS_CALL_H
#include "base/pool.h"
#include "base/random.h"
#include "sources/source.h"

/* One call, with everything that a block of queries reads and writes. The packed arrays are refilled for each group of
 * kv heads. */
struct rpi_call {
    const rp_plan *plan;
    const rpi_limits *limits;
    const rpi_args *args;   /* NULL while a plan computes sizes */
    const rpi_grads *grads; /* NULL in a forward call */
    rpi_progress *progress;
    const rpi_source *source; /* [n_sources] */
    int32_t n_sources;
    const rpi_source *value_vectors; /* the VALUES source; NULL: none */
    /* The packed kv heads are g0 … g0+groups-1, as indices into batch * kv_heads. */
    int64_t g0, groups;
    /* kv heads of one task, if a task processes whole heads: short heads, or few queries of one tile */
    int64_t heads_per_task;
    void *keys, *values; /* packed keys and values of these heads, in the layout of kernels/template.h */
    uint8_t *large_k,    /* [kv head][panel] 1: a key of the panel is non-finite or large */
        *large_v;        /* [kv head][Lk padded] 1: the value is not finite */
    bool starts,         /* a row starts its running maximum near the score of its own key (kernels/skip.h) */
        skips;           /* tiles may be skipped (kernels/skip.h) */
    /* [kv head][panel] the largest norm of a key; infinite if a key or value of the panel is non-finite or large */
    void *key_norms;
    int64_t pad_k, /* Lk rounded up to NR */
        pad_v;     /* Dv rounded up to VL */
    rpi_rope_tables rope;
    char *scratch;        /* scratch of all workers */
    int64_t scratch_step; /* bytes of scratch of one worker */
    /* [head of the group][chunk][Lq+Lk-1 profile, Lk key mass] for summaries: partial sums, added up in order at the
     * end of each group */
    double *partial;
    int64_t chunks;        /* number of partial sums of a head */
    int64_t rows_per_task; /* queries of one task: a block; with summaries a chunk, which is a multiple of blocks */
    struct rpi_backward *backward; /* backward call only */
    struct rpi_decode *decode;     /* decoding of few queries only */
};

/* State that the tasks of a decoding call (few queries, many keys) share (kernels/decode.h). */
typedef struct rpi_decode {
    int64_t n_tiles;
    void *scores, *tiles, *sums; /* of the query heads of a group */
    atomic_int non_finite;       /* 1: a value is not finite, and the call is repeated block by block */
} rpi_decode;

/* State that the tasks of a backward call share (backward.c). Indices of heads run over batch * heads, or over the
 * group if a field says so. */
typedef struct rpi_backward {
    int64_t blocks, /* number of blocks of BLOCK_ROWS rows */
        rows,       /* limit of Lq */
        key_blocks; /* number of blocks of BACKWARD_KEYS keys */
    /* [head of the group][rows][Dk padded] gradient of the rotated queries, without scale */
    void *dq;
    void *run_dq[RPI_MAX_SOURCES]; /* [head of the group][rows][width padded] gradient of the queries of each RUN */
    /* [B * H][Lq][3] largest score and log of the sum (lse as two numbers); <dout, out> - dlse */
    double *row_stats;
    /* Bounds of blocks of rows, [B * H][blocks][2], or NULL: the largest norm of a scaled query, and the smallest lse,
     * which is -infinity if an element of the block is non-finite or large. */
    double *bounds;
    rpi_term_sums sums;               /* gradients of the arrays of the terms */
    rpi_term_sums *private_sums;      /* the same for each worker, for terms computed pair by pair; NULL: none */
    bool direct[RPI_MAX_SOURCES];     /* tasks write the gradient in place */
    bool pairs[RPI_MAX_SOURCES],      /* heads or batch entries share the gradient of an array of pairs */
        any_pairs;                    /* some source has pairs set */
    double *strips;                   /* [1 or B][H][strip.len] gradients of the entries of the STRIP */
    double *entries[RPI_MAX_SOURCES]; /* [H][count] of GATHER, [H][sums_size] of ROWS with row_grad */
    double *vectors[RPI_MAX_SOURCES]; /* [H][count][width] of RUN, KEYS and VALUES */
    double *columns;                  /* [B * H][key_blocks][width] of COLUMN */
    /* [B * H][Lk] for `reduce` of a scheme: sum of ds over the pairs with j < t <= p_i, for each t */
    double *between;
    /* Tickets: how many key blocks, heads or tasks have added their sums. */
    atomic_llong *ticket_rows, *ticket_run_dq[RPI_MAX_SOURCES]; /* [head of the group][blocks] */
    atomic_llong *ticket_head;                                  /* [H] */
    atomic_llong *ticket_pairs;                                 /* [blocks][key_blocks] counts heads */
    atomic_llong ticket_task;
    bool any_head; /* some source has sums for each head */
} rpi_backward;

/* Return the cosines and sines of the keys or of the queries of batch entry b, or NULL if no term rotates. */
static inline const void *rpi_rope_of(const rpi_call *c, bool keys, int64_t b)
{
    const char *table = keys ? c->rope.k : c->rope.q;
    return table ? table + b * (keys ? c->rope.k_step : c->rope.q_step) * c->plan->ops->real : NULL;
}

/* Return a limit above which the kernels' exp(-x) is 0. It includes a margin for the rounding of x: 2^-126 is
 * exp(-87.4), and 2^-1022 is exp(-708.4). */
static inline double rpi_exp_limit(const rp_plan *plan)
{
    return plan->ops->real == 8 ? 709 : 88;
}

/* Wait until `ticket` tasks have passed (rpi_ticket_wait); let the next task pass (rpi_ticket_pass). */
void rpi_ticket_wait(atomic_llong *at, int64_t ticket);
void rpi_ticket_pass(atomic_llong *at);

/* Largest magnitude of a moderate element; "large" means NaN, infinite or beyond it. Products of moderate keys and
 * queries cannot overflow or turn finite numbers into NaN: Dk * 1e30 stays far below FLT_MAX for any possible Dk. */
#define RPI_MODERATE 1e15f

#endif
