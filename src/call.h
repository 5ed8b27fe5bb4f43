/* call.h -- what a forward and a backward call share: the memory they lay out, sources of biases, turns, kv heads.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef RELPOS_CALL_H
#define RELPOS_CALL_H
#include "arena.h"
#include "ref.h"

/* Where the parts of a source lie. */
typedef struct rpi_place {
    int64_t strip, table, q_at, k_at, q_int, k_int, panels, rows, wild, column, turned;
} rpi_place;

typedef struct rpi_sources {
    rpi_source source[RPI_MAX_SOURCES], valvec;
    rpi_place at[RPI_MAX_SOURCES + 1]; /* the last is valvec's */
    int n;
} rpi_sources;

/* Which sources a call has; with args NULL those of a call whose terms go by index. room has max(Lq, Lk) doubles. */
void rpi_sources_describe(rpi_sources *l, const rp_plan *plan, const rpi_args *args, double *room);
/* group_heads: query heads that are worked on together, for COLUMN, which rpi_columns_fill makes for each group */
void rpi_sources_lay_out(rpi_sources *l, rpi_arena *to, const rp_plan *plan, const rpi_args *args, int64_t group_heads,
                         bool backward);
void rpi_columns_fill(rpi_call *c, rp_pool *pool);
void rpi_sources_fill(rpi_call *c, const rpi_sources *l, char *work, rp_pool *pool);

struct rp_prepared {
    const rp_plan *plan;
    int64_t positions; /* 0 … positions-1 of queries and keys */
    uint64_t terms;    /* those summed in the strip, a bit each */
    rpi_source strip;  /* .strip NULL: none */
    void *turn_k;      /* [positions][dim] NULL: none */
    rpi_arena memory;
};

uint64_t rpi_strip_terms(const rpi_args *args); /* OFFSET terms that go by index */
bool rpi_strip_is_shared(const rpi_args *args); /* one strip serves every head */
void rpi_strip_fill(const rpi_source *s, const rp_plan *plan, const rpi_args *args, rp_pool *pool);
bool rpi_turns_stay(const rp_plan *plan, const rpi_args *args, bool key); /* they depend on the index alone */
void rpi_turn_table(const rp_plan *plan, const rpi_args *args, rp_pool *pool, void *to, int64_t n);

/* Cosines and sines of queries and keys. */
typedef struct rpi_turns {
    int64_t q, k;
    bool batch_q, batch_k; /* each batch entry has its own */
    void *ready_k;         /* made before */
} rpi_turns;
void rpi_turns_lay_out(rpi_turns *t, rpi_arena *to, const rp_plan *plan, const rpi_args *args);
void rpi_turns_fill(rpi_call *c, const rpi_turns *t, char *work, rp_pool *pool);

/* Batch entry and query head of head number `head` of the group. */
void rpi_head_at(const rpi_call *c, int64_t head, int64_t *b, int64_t *h);

/* The fast forward call. out and lse may be anywhere; memory is allocated where work is NULL. */
rp_status rpi_fast_attend(const rp_plan *plan, const rpi_args *args, rp_pool *pool, rpi_progress *progress, void *work);

#endif
