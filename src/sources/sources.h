/* sources/sources.h -- the sources of one call: which there are, where they lie in the work, what fills them; cosines and sines of RoPE.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef RELPOS_SOURCES_H
#define RELPOS_SOURCES_H
#include "base/pool.h"
#include "source.h"

/* Where the parts of a source lie. */
typedef struct rpi_place {
    int64_t strip, table, q_at, k_at, q_int, k_int, panels, rows, extreme, column, transposed;
} rpi_place;

typedef struct rpi_sources {
    rpi_source source[RPI_MAX_SOURCES], valvec;
    rpi_place at[RPI_MAX_SOURCES + 1]; /* the last is valvec's */
    int n;
} rpi_sources;

/* Which sources a call has; with args NULL those of a call whose terms go by index. scratch has max(Lq, Lk) doubles. */
void rpi_sources_describe(rpi_sources *l, const rp_plan *plan, const rpi_args *args, double *scratch);
/* group_heads: query heads that are worked on together, for COLUMN, which the engine makes for each group */
void rpi_sources_lay_out(rpi_sources *l, rpi_arena *to, const rp_plan *plan, const rpi_args *args, int64_t group_heads,
                         bool backward);
/* Addresses and numbers of every source, in the work that was laid out. */
void rpi_sources_fill(rpi_sources *l, const rp_plan *plan, const rpi_args *args, bool backward, char *work,
                      rp_pool *pool);

struct rp_prepared {
    const rp_plan *plan;
    int64_t positions; /* 0 … positions-1 of queries and keys */
    uint64_t terms;    /* those summed in the strip, a bit each */
    rpi_source strip;  /* .strip NULL: none */
    void *rope_k;      /* [positions][dim] cosines and sines; NULL: none */
    rpi_arena memory;
};

uint64_t rpi_strip_terms(const rpi_args *args); /* OFFSET terms that go by index */
bool rpi_strip_is_shared(const rpi_args *args); /* one strip serves every head */
void rpi_strip_fill(const rpi_source *s, const rp_plan *plan, const rpi_args *args, rp_pool *pool);

/* Element `at` of an array of the type of the arithmetic. */
static inline void rpi_put_real(const rp_plan *plan, void *to, int64_t at, double x)
{
    if (plan->ops->real == 8)
        ((double *)to)[at] = x;
    else
        ((float *)to)[at] = (float)x;
}

/* Cosines and sines of queries and keys. */
typedef struct rpi_rope_tables {
    int64_t q_at, k_at;    /* offsets in the work */
    bool batch_q, batch_k; /* each batch entry has its own */
    void *ready_k;         /* made before */
    /* filled in: [B or 1][Lq or Lk][dim/2][2] cosine, sine, and numbers between batch entries */
    void *q, *k;
    int64_t q_step, k_step;
} rpi_rope_tables;
bool rpi_rope_table_is_fixed(const rp_plan *plan, const rpi_args *args, bool key); /* it depends on the index alone */
void rpi_rope_table_of_keys(const rp_plan *plan, const rpi_args *args, rp_pool *pool, void *to,
                            int64_t n); /* 0 … n-1 */
void rpi_rope_tables_lay_out(rpi_rope_tables *t, rpi_arena *to, const rp_plan *plan, const rpi_args *args);
void rpi_rope_tables_fill(rpi_rope_tables *t, const rp_plan *plan, const rpi_args *args, char *work, rp_pool *pool);

#endif
