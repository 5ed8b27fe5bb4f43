/* call/call.h -- the interface between engine and kernels: the structs of a call, of decoding and of a backward call.
 * Kernels include nothing else of the engine.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef RELPOS_CALL_H
#define RELPOS_CALL_H
#include "base/pool.h"
#include "base/random.h"
#include "sources/source.h"

/* One call: everything that a block of queries reads and writes. The packed arrays are filled again for each group of
 * kv heads. */
struct rpi_call {
    const rp_plan *plan;
    const rpi_limits *limits;
    const rpi_args *args;   /* NULL when computing sizes for a plan */
    const rpi_grads *grads; /* NULL in a forward call */
    rpi_progress *progress;
    const rpi_source *source; /* [n_sources] */
    int32_t n_sources;
    const rpi_source *value_vectors; /* the VALUES source, or NULL */
    /* The current group is kv heads g0 … g0+groups-1, counted over batch * kv_heads. */
    int64_t g0, groups;
    /* kv heads of one task, if tasks process whole kv heads (short heads, or decoding with one tile) */
    int64_t heads_per_task;
    void *keys, *values; /* packed keys and values of the group; kernels/template.h has the layout */
    uint8_t *large_k,    /* [kv head][panel] 1: a key of the panel is non-finite or large */
        *large_v;        /* [kv head][packed_k] 1: the value is not finite */
    bool starts,         /* a row starts its running maximum near the score of its own key (kernels/skip.h) */
        skips;           /* tiles whose weights are all 0 are skipped (kernels/skip.h) */
    /* [kv head][panel] the largest norm of a key; infinite if a key of the panel is non-finite or large, or a value is
     * not finite */
    void *key_norms;
    int64_t pad_k, /* Lk rounded up to NR */
        packed_k,  /* the keys of the call's range, rounded up to NR; packed keys start at key args->key_from */
        pad_v;     /* Dv rounded up to VL */
    rpi_rope_tables rope;
    char *scratch;        /* scratch of all workers */
    int64_t scratch_step; /* bytes of scratch of one worker */
    /* Partial sums of the requested summaries, [head of the group][chunk][profile: Lq+Lk-1, then key_mass: Lk]. At the
     * end of each group, the chunks of a head are added up in order. */
    double *partial;
    int64_t chunks; /* number of partial sums of a head */
    /* query rows of one task: one block, or one chunk (several blocks) if a summary is requested */
    int64_t rows_per_task;
    struct rpi_backward *backward; /* backward call only */
    struct rpi_jvp *jvp;           /* call of tangents only */
    struct rpi_decode *decode;     /* decoding of few queries only */
};

/* State shared by the tasks of a decoding call (few queries, many keys; kernels/decode.h). */
typedef struct rpi_decode {
    int64_t n_tiles;
    void *scores, *tiles, *sums; /* scratch for the query heads of a group */
    atomic_int non_finite;       /* 1: a value is not finite; attend_rows must compute the call */
} rpi_decode;

/* Sums for the gradient of given angles of RoPE, of queries or of keys. Heads that share angles add in their order. */
typedef struct rpi_angle_sums {
    rpi_view array;       /* double, with the shape of the angles; absent if it is not requested */
    atomic_llong *ticket; /* [B][Hk][blocks] number of heads that have added the gradients of a block of rows */
    int64_t blocks;
} rpi_angle_sums;

/* State shared by the tasks of a backward call (backward.c). */
typedef struct rpi_backward {
    int64_t blocks, /* number of blocks of BLOCK_ROWS rows */
        rows,       /* limit of the number of rows */
        key_blocks; /* number of blocks of BACKWARD_KEYS keys */
    /* [head of the group][rows][Dk padded] gradient of the rotated queries, without scale */
    void *dq;
    void *run_dq[RPI_MAX_SOURCES]; /* [head of the group][rows][width padded] gradient of each RUN source's queries */
    /* [B * H][rows][RPI_ROW_STATS] largest score, log of the sum (lse is the sum of both), and sum_j w dp - dlse, which
     * is <dout, out> - dlse if the loss depends on the weights only through out. For second derivatives also the
     * tangent of lse, and <dout, tangent of out> */
    double *row_stats;
    /* [B * H][blocks][2] bounds of each block of rows: the largest norm of a scaled query, and the smallest lse
     * (-infinity if an element of the block is non-finite or large); NULL if no tiles are skipped. */
    double *bounds;
    rpi_term_sums sums;           /* gradients of the arrays of the terms */
    rpi_term_sums *private_sums;  /* like sums, for each worker, for terms computed pair by pair; or NULL */
    bool direct[RPI_MAX_SOURCES]; /* tasks write the gradient to the output */
    bool pairs[RPI_MAX_SOURCES],  /* heads or batch entries share the gradient of a bias array */
        any_pairs;                /* some source has pairs set */
    /* Sums that the batch entries share, unless limits->per_sample is set: then [1 or B] is B. */
    double *strips;                   /* [1 or B][H][strip.len] gradients of the entries of the STRIP */
    double *entries[RPI_MAX_SOURCES]; /* [1 or B][H][count] of GATHER, [1 or B][H][sums_size] of ROWS with row_grad */
    double *vectors[RPI_MAX_SOURCES]; /* [1 or B][H][count][width] of RUN, KEYS and VALUES */
    double *columns;                  /* [B * H][key_blocks][width] of COLUMN */
    double *softcap; /* [B * H][key_blocks][RPI_SOFTCAPS] gradients of the softcaps; NULL: not wanted */
    /* [B * H][Lk] for schemes with `reduce`: for each t, the sum of ds over the pairs with j < t <= p_i */
    double *between;
    /* Gradients of RoPE's frequencies: sums for some rows of a query head, [B * H][rope_rows][axes][dim/2], and for
     * each block of keys of a kv head, [B * Hk][key_blocks][axes][dim/2]; NULL if they are not requested. */
    double *rope_q, *rope_k;
    int64_t rope_rows;
    rpi_angle_sums angles[2]; /* those of given angles of queries and of keys */
    /* Tickets: the number of key blocks, heads or tasks that have added their sums. */
    atomic_llong *ticket_rows, *ticket_run_dq[RPI_MAX_SOURCES]; /* [head of the group][blocks] */
    atomic_llong *ticket_head;                                  /* [1 or B][H] */
    atomic_llong *ticket_pairs;                                 /* [blocks][key_blocks], counts heads */
    atomic_llong ticket_task;
    bool any_head;  /* some source has sums for each head */
    bool sums_only; /* the tasks add to the third number of row_stats, and compute no gradients */
} rpi_backward;

/* The calls from which the tangents of scores and values are computed (kernels/tangent_tile.h). By the rule for
 * products, each product with a vector has two tangents: that of its row with the vector, and its row with the tangent
 * of the vector. */
typedef struct rpi_jvp {
    const rpi_tangents *given;    /* of all batch entries */
    const rpi_tangents *tangents; /* of the batch entries of the group (rpi_sample) */
    rpi_call inputs; /* q, k and v are the tangents of these arrays; its sources have the vectors of the call */
    rpi_call arrays; /* q, k and v of the call; its sources have the tangents of biases and vectors */
    bool scores;     /* the scores have tangents that are not 0 */
    uint8_t *plain;  /* [B * H][Lq] RPI_PLAIN_…: the tangents of the row that plain loops must compute */
} rpi_jvp;
enum { RPI_PLAIN_OUT = 1, RPI_PLAIN_LSE = 2 };

/* Numbers of a row in row_stats. */
enum { RPI_ROW_STATS = 5 };

/* Return the row_stats of row i of a head, counted over batch * heads. */
static inline double *rpi_row_stats(const rpi_call *c, int64_t head, int64_t i)
{
    const rpi_args *a = c->args;
    return c->backward->row_stats + RPI_ROW_STATS * (head * (a->row_to - a->row_from) + i - a->row_from);
}

/* Return the kv head of a query head. */
static inline int64_t rpi_kv_head(const rp_desc *d, int64_t h)
{
    return h / (d->heads / d->kv_heads);
}

/* Return the cosines and sines of kv head g of batch entry b, those of its keys or of its queries, or NULL without
 * RoPE. */
static inline const void *rpi_rope_of(const rpi_call *c, bool keys, int64_t b, int64_t g)
{
    const char *table = keys ? c->rope.k : c->rope.q;
    const int64_t at = keys ? b * c->rope.k_step + g * c->rope.k_head : b * c->rope.q_step + g * c->rope.q_head;
    return table ? table + at * c->plan->ops->real : NULL;
}

/* Return a limit for x above which the kernels' exp(-x) is 0. It has a margin for the rounding of x: the smallest
 * normal numbers are 2^-126 = exp(-87.4) and 2^-1022 = exp(-708.4). */
static inline double rpi_exp_limit(const rp_plan *plan)
{
    return plan->ops->real == 8 ? 709 : 88;
}

/* Wait until a block of rows of head h of n heads may add its gradients of angles, where the heads are those of queries
 * or keys of batch entry b. Then let the next head that shares the angles add to them. */
void rpi_angles_wait(const rpi_angle_sums *s, int64_t block, int64_t b, int64_t h, int64_t n, int64_t kv_heads);
void rpi_angles_pass(const rpi_angle_sums *s, int64_t block, int64_t b, int64_t h, int64_t n, int64_t kv_heads);

/* Return the sums for the angles of row i of kv head g of batch entry b. */
static inline double *rpi_angles_of(const rpi_angle_sums *s, int64_t b, int64_t g, int64_t i)
{
    const rpi_view v = rpi_sample(&s->array, b);
    return (double *)v.data + rpi_index(&v, b, g, i, 0);
}

/* Wait until `ticket` tasks have passed (rpi_ticket_wait), or let the next task pass (rpi_ticket_pass). */
void rpi_ticket_wait(atomic_llong *at, int64_t ticket);
void rpi_ticket_pass(atomic_llong *at);

/* The largest magnitude of a moderate element. Names with "large" mean NaN, infinite or beyond this limit. Products of
 * moderate keys and queries cannot overflow or become NaN: Dk * 1e30 is far below FLT_MAX for any possible Dk. */
#define RPI_MODERATE 1e15f

#endif
