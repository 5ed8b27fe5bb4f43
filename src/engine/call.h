/* engine/call.h -- what the kernels read and write: one call, few queries of many keys, one backward call. It is all
 * that a kernel may know of the engine.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef RELPOS_CALL_H
#define RELPOS_CALL_H
#include "base/pool.h"
#include "base/random.h"
#include "sources/source.h"

/* Everything that a block of queries reads and writes. There is one for a call; what is packed changes with each group
 * of kv heads. */
struct rpi_call {
    const rp_plan *plan;
    const rpi_extents *extents;
    const rpi_args *args;   /* NULL while sizes are asked for */
    const rpi_grads *grads; /* NULL: forward */
    rpi_progress *progress;
    const rpi_source *source; /* [n_sources] */
    int32_t n_sources;
    const rpi_source *value_vectors; /* the one of VALUES; NULL: none */
    /* packed keys and values of kv heads g0 … g0+groups-1, counted over batch * kv_heads; kernels/template.h has their
     * layout. extreme_k [kv head][panel] is 1 where a key is extreme, extreme_v [kv head][Lk padded] where a value is
     * not finite */
    int64_t g0, groups;
    int64_t heads_per_task; /* kv heads of a task that does all of them: short ones, or few queries of one tile */
    void *keys, *values;
    uint8_t *extreme_k, *extreme_v;
    /* what kernels/skip.h needs: rows start at the score of their own key; tiles may be left out; [kv head][panel] the
     * largest norm of a key, infinite where a key or value is extreme */
    bool starts, skips;
    void *key_norms;
    int64_t pad_k, pad_v; /* Lk rounded up to NR, Dv rounded up to VL */
    rpi_rope_tables rope;
    /* scratch of one worker each */
    char *scratch;
    int64_t scratch_step;
    /* summaries of a head: `chunks` partial sums, added in order at the end of each group */
    double *partial; /* [head of the group][chunk][Lq+Lk-1 profile, Lk key mass] */
    int64_t chunks;
    int64_t rows_per_task; /* queries of a task: a block; with summaries a chunk, which is a multiple of blocks */
    struct rpi_backward *backward; /* of a backward call */
    struct rpi_decode *decode;     /* of few queries and many keys */
};

/* What the tasks of few queries and many keys share; kernels/decode.h. */
typedef struct rpi_decode {
    int64_t n_tiles;
    void *scores, *tiles, *sums; /* of the query heads of a group */
    atomic_int extreme;          /* a value is not finite: the call starts again, block by block */
} rpi_decode;

/* What a backward call shares: backward.c. Heads are counted within the group where it says so, else over batch *
 * heads. */
typedef struct rpi_backward {
    int64_t blocks, pad_rows, key_blocks; /* blocks of BLOCK_ROWS rows and rows padded to them; blocks of keys */
    void *dq;                      /* [head of the group][pad_rows][Dk padded] of rotated queries, without scale */
    void *run_dq[RPI_MAX_SOURCES]; /* [head of the group][pad_rows][width padded] of each RUN's own queries */
    double *row_stats;             /* [B * H][Lq][3] largest score, log of the sum: lse in two; <dout, out> - dlse */
    double *bounds;               /* NULL, or [B * H][blocks][2] of blocks of rows: the largest norm of a query, scaled;
                                      the least lse, -infinity where a number is extreme */
    rpi_term_sums sums;           /* of the arrays of the terms */
    rpi_term_sums *private_sums;  /* for each worker: of terms that go pair by pair; NULL: none */
    bool direct[RPI_MAX_SOURCES]; /* gradients that tasks write themselves */
    bool pairs[RPI_MAX_SOURCES], any_pairs; /* gradients of arrays of pairs that heads or batch entries share */
    double *strips;                         /* [1 or B][H][strip.len] gradients of the entries of the STRIP */
    double *entries[RPI_MAX_SOURCES];       /* [H][count] of GATHER, [H][sums_size] of ROWS with row_grad */
    double *vectors[RPI_MAX_SOURCES];       /* [H][count][width] of RUN, KEYS and VALUES */
    double *columns;                        /* [B * H][key_blocks][width] of COLUMN */
    double *between;                        /* [B * H][Lk] sums of ds over the pairs with j < t <= p_i, for `fold` */
    /* how many key blocks, or tasks, have added what they had */
    atomic_llong *ticket_rows, *ticket_run_dq[RPI_MAX_SOURCES]; /* [head of the group][blocks] */
    atomic_llong *ticket_head;                                  /* [H] */
    atomic_llong *ticket_pairs;                                 /* [blocks][key_blocks] heads that have added theirs */
    atomic_llong ticket_task;
    bool any_head; /* something is summed for each head */
} rpi_backward;

/* Cosines and sines of the keys, or of the queries, of batch entry b; NULL where no term rotates. */
static inline const void *rpi_rope_of(const rpi_call *c, bool keys, int64_t b)
{
    const char *table = keys ? c->rope.k : c->rope.q;
    return table ? table + b * (keys ? c->rope.k_step : c->rope.q_step) * c->plan->ops->real : NULL;
}

/* The kernels' exp is 0 below minus this, with room for the rounding of its argument: 2^-126 is exp(-87.4), 2^-1022
 * exp(-708.4). */
static inline double rpi_far(const rp_plan *plan)
{
    return plan->ops->real == 8 ? 709 : 88;
}

/* Wait until `ticket` tasks have passed; let the next one pass. */
void rpi_ticket_wait(atomic_llong *at, int64_t ticket);
void rpi_ticket_pass(atomic_llong *at);

/* Keys of which all |x| <= RPI_MODERATE, with queries that are too, cannot overflow or make NaN from finite numbers:
 * Dk * 1e30 stays far below FLT_MAX for any Dk a machine can hold. */
#define RPI_MODERATE 1e15f

#endif
