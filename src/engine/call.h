/* engine/call.h -- what the kernels read and write: sources of biases, one call, one backward call, the table of an instruction set.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef RELPOS_CALL_H
#define RELPOS_CALL_H
#include "base/pool.h"
#include "base/random.h"
#include "sources/source.h"

/* All that a query block reads and writes: one for the whole call, the packed part renewed for each group of kv heads. */
struct rpi_call {
    const rp_plan *plan;
    const rpi_args *args;
    const rpi_grads *grads; /* NULL: forward */
    rpi_progress *progress;
    rpi_source source[RPI_MAX_SOURCES], valvec;
    int32_t n_sources;
    /* packed keys and values of kv heads g0 … g0+groups-1, counted over batch * kv_heads:
     *   keys   [kv head][panel of NR keys][Dk][NR]          values [kv head][columns in steps of NR][Lk padded][up to NR]
     *   extreme_k [kv head][panel] 1: a key that is extreme   extreme_v [kv head][Lk padded] 1: a value that is not finite */
    int64_t g0, groups;
    int64_t heads_per_task; /* or instead: of the kv head that each worker is at; kv heads of a task, 0: go by groups */
    void *keys, *values;
    uint8_t *extreme_k, *extreme_v;
    int64_t pad_k, pad_v; /* Lk rounded up to NR, Dv rounded up to VL */
    /* rotation: [B or 1][Lq or Lk][dim/2][2] cosine, sine */
    void *rope_q, *rope_k;
    int64_t rope_q_step, rope_k_step;
    /* scratch of one worker each */
    char *scratch;
    int64_t scratch_step;
    /* summaries of one (b, h): `chunks` partial sums, added in order at the end of each group */
    double *partial; /* [head of the group][chunk][Lq+Lk-1 profile, Lk key mass] */
    int64_t chunks, chunk_rows;
    struct rpi_backward *backward; /* of a backward call */
    struct rpi_decode *decode;     /* of few queries and many keys */
};

/* What the tasks of few queries and many keys share; kernels/decode_tmpl.h. */
typedef struct rpi_decode {
    int64_t n_tiles;
    void *scores, *tiles, *sums; /* of the query heads of a group */
    atomic_int extreme;          /* a value is not finite: the call starts again, block by block */
} rpi_decode;

/* What a backward call shares: backward.c. Heads are counted within the group where it says so, else over batch * heads. */
typedef struct rpi_backward {
    int64_t blocks, pad_rows, key_blocks; /* blocks of QB rows and rows padded to them; blocks of keys */
    void *dq;                     /* [head of the group][pad_rows][Dk padded] of rotated queries, without scale */
    void *own[RPI_MAX_SOURCES];   /* [head of the group][pad_rows][width padded] of each RUN's own queries */
    double *row_stats;            /* [B * H][Lq][3] the parts of lse, largest score and log of the sum; <dout, out> */
    rpi_term_sums sums;           /* of the arrays of the terms */
    rpi_term_sums *private_sums;  /* for each worker: of terms that go pair by pair; NULL: none */
    bool direct[RPI_MAX_SOURCES]; /* gradients that tasks write themselves */
    bool pairs[RPI_MAX_SOURCES], any_pairs; /* gradients of arrays of pairs that heads or batch entries share */
    double *strips;                         /* [1 or B][H][strip_len] gradients of the entries of the STRIP */
    double *entries[RPI_MAX_SOURCES];       /* [H][count] of GATHER, [H][sums_size] of ROWS with row_grad */
    double *vectors[RPI_MAX_SOURCES + 1];   /* [H][count][width] of RUN and KEYS; the last is VALVEC's */
    double *columns;                        /* [B * H][key_blocks][width] of COLUMN */
    double *sums_row, *sums_column;         /* [B * H][Lq], [B * H][Lk] sums of ds for `fold` */
    /* how many key blocks, or tasks, have added their part */
    atomic_llong *ticket_rows, *ticket_own[RPI_MAX_SOURCES]; /* [head of the group][blocks] */
    atomic_llong *ticket_head;                               /* [H] */
    atomic_llong *ticket_pairs;                              /* [blocks][key_blocks] heads that have added theirs */
    atomic_llong ticket_task;
    bool any_head; /* something is summed for each head */
} rpi_backward;

/* Wait until `ticket` tasks have passed; let the next one pass. */
void rpi_ticket_wait(atomic_llong *at, int64_t ticket);
void rpi_ticket_pass(atomic_llong *at);

/* Keys of which all |x| <= RPI_MODERATE, with queries that are too, cannot overflow or make NaN from finite numbers:
 * Dk * 1e30 stays far below FLT_MAX for any Dk a machine can hold. */
#define RPI_MODERATE 1e15f

#endif
