/* sources/sources.h -- the sources of one call, and RoPE's cosines and sines. A call computes its limits, describes its
 * sources, places them in memory (twice: sizes first, then addresses) and fills them. Independent of kernels, tiles and
 * tasks.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef RELPOS_SOURCES_H
#define RELPOS_SOURCES_H
#include "base/pool.h"
#include "source.h"

/* ---- limits.c */

/* Compute bounds of the limits of all calls of a plan (rpi_limits_bound), or the exact limits of one call
 * (rpi_limits_of); grads is NULL in a forward call. */
void rpi_limits_bound(rpi_limits *e, const rp_plan *plan);
void rpi_limits_of(rpi_limits *e, const rpi_args *args, const rpi_grads *grads);
/* Return a bit mask of the terms that the strip includes: OFFSET terms without given positions. */
uint64_t rpi_strip_terms(const rpi_args *args);

/* ---- choose.c and place.c */

void rpi_sources_describe(rpi_sources *l, const rp_plan *plan, const rpi_limits *e);
/* Lay out the memory of each source. group_heads is the number of query heads processed together; it determines the
 * size of COLUMN sources, which the engine fills for each group. */
void rpi_sources_place(rpi_sources *l, rpi_arena *a, const rp_plan *plan, const rpi_limits *e, int64_t group_heads,
                       bool backward);

/* ---- fill.c */

void rpi_sources_fill(rpi_sources *l, const rpi_args *args, const rpi_limits *e, rp_pool *pool);

/* ---- tables.c and rope_tables.c: tables of rp_prepare, for many calls */

struct rp_prepared {
    const rp_plan *plan;
    int64_t positions; /* positions 0 … positions-1 of queries and keys */
    uint64_t terms;    /* a bit for each term that the strip includes */
    rpi_strip strip;   /* .entry is NULL if there is none */
    void *rope_k;      /* [positions][dim] cosines and sines, or NULL */
    rpi_arena memory;
};

void rpi_strip_fill(const rpi_strip *s, const rpi_args *args, rp_pool *pool);
bool rpi_rope_table_is_fixed(const rpi_args *args,
                             bool key); /* the table depends only on the index of the key or query */
void rpi_rope_table_of_keys(const rpi_args *args, rp_pool *pool, void *to, int64_t n); /* positions 0 … n-1 */

/* ---- rope_tables.c */

void rpi_rope_tables_place(rpi_rope_tables *t, rpi_arena *a, const rp_plan *plan, const rpi_limits *e);
void rpi_rope_tables_fill(const rpi_rope_tables *t, const rpi_args *args, const rpi_limits *e, rp_pool *pool);

/* Read or write an element of an array of the arithmetic type. */
static inline double rpi_real_at(const rp_plan *plan, const void *from, int64_t at)
{
    return plan->ops->real == 8 ? ((const double *)from)[at] : (double)((const float *)from)[at];
}

static inline void rpi_put_real(const rp_plan *plan, void *to, int64_t at, double x)
{
    if (plan->ops->real == 8)
        ((double *)to)[at] = x;
    else
        ((float *)to)[at] = (float)x;
}

#endif
