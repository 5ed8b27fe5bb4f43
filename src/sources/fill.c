/* sources/fill.c -- fill the sources of a call from its arrays and definitions, with one function for each kind.
 * Independent of tiles; names no scheme.
 * SPDX-License-Identifier: Apache-2.0 */
#include "fill_tasks.h"
#include <math.h>
#include <string.h>

/* Fill q_at and k_at. The index of a pair is k_at of its key minus q_at of its query. */
static void separate(const rpi_source *s, rpi_indices *x, const rpi_args *args)
{
    const rp_desc *d = &args->desc;
    if (rpi_takes_positions(s->scheme)) {
        for (int64_t b = 0; b < d->batch; b++) {
            rpi_positions_of(args, s->term, false, b, 0, d->len_q, x->q_at + b * x->q_step);
            rpi_positions_of(args, s->term, true, b, 0, d->len_k, x->k_at + b * x->k_step);
        }
        return;
    }
    /* NaN marks class tokens: their pairs use the definition */
    const int64_t first = s->scheme->class_token ? d->terms[s->term].extra : 0;
    rpi_pair p = rpi_pair_of(args, s->term, 0, 0, rpi_min(first, d->len_q - 1));
    for (int64_t j = 0; j < d->len_k; j++) {
        rpi_pair_key(args, &p, j);
        x->k_at[j] = j < first ? NAN : (double)rpi_source_index(s, &p);
    }
    rpi_pair_key(args, &p, rpi_min(first, d->len_k - 1));
    const int64_t zero = rpi_source_index(s, &p);
    for (int64_t i = 0; i < d->len_q; i++) {
        p = rpi_pair_of(args, s->term, 0, 0, i);
        rpi_pair_key(args, &p, rpi_min(first, d->len_k - 1));
        x->q_at[i] = i < first ? NAN : (double)(zero - rpi_source_index(s, &p));
    }
}

/* Store x - first as integers below 2^29 in magnitude, so that their differences fit in 32 bits; store NaN as 0. Return
 * false if an element is too large or not an integer. */
static bool to_integers(const double *x, int64_t n, int64_t first, int32_t *to, uint8_t *has_masked)
{
    bool integral = true;
    for (int64_t m = 0; m < n; m++) {
        const double y = isnan(x[m]) ? 0 : x[m] - (double)first;
        *has_masked |= isnan(x[m]);
        integral = integral && y == trunc(y) && fabs(y) < 0x1p29;
        to[m] = integral ? (int32_t)y : 0;
    }
    return integral;
}

/* Return true if k - q is in [0, count) for every key and query. Fill the padding past the last key with the value of
 * the last key. */
static bool within(const int32_t *q, int32_t *k, int64_t len_q, int64_t len_k, int64_t pad_k, int64_t count)
{
    int64_t min[2] = {INT32_MAX, INT32_MAX}, max[2] = {INT32_MIN, INT32_MIN};
    for (int64_t j = len_k; j < pad_k; j++)
        k[j] = k[len_k - 1];
    for (int64_t j = 0; j < len_k; j++) {
        min[1] = rpi_min(min[1], k[j]);
        max[1] = rpi_max(max[1], k[j]);
    }
    for (int64_t i = 0; i < len_q; i++) {
        min[0] = rpi_min(min[0], q[i]);
        max[0] = rpi_max(max[0], q[i]);
    }
    return min[1] - max[0] >= 0 && max[1] - min[0] < count;
}

static void fill_indices(const rpi_source *s, rpi_indices *x, const rpi_args *args)
{
    const rp_desc *d = &args->desc;
    const int64_t pad_k = rpi_round_up(d->len_k, args->plan->ops->nr), batch = x->k_step ? d->batch : 1;
    memset(x->k_at, 0, (size_t)(batch * pad_k) * sizeof *x->k_at);
    separate(s, x, args);
    for (int64_t b = 0; b < batch; b++) {
        int32_t *q = x->q_int + b * x->q_step, *k = x->k_int + b * x->k_step;
        x->has_masked[b] = 0;
        x->integral[b] = to_integers(x->q_at + b * x->q_step, d->len_q, 0, q, &x->has_masked[b]);
        x->integral[b] &= to_integers(x->k_at + b * x->k_step, pad_k, x->first, k, &x->has_masked[b]);
        x->unclamped[b] = x->integral[b] && !x->has_masked[b] && within(q, k, d->len_q, d->len_k, pad_k, x->count);
    }
}

static void fill_gather(rpi_source *s, const rpi_args *args, rp_pool *pool)
{
    rpi_gather *g = &s->gather;
    const rp_desc *d = &args->desc;
    rpi_fill_job job = {.s = s, .args = args};
    if (!g->by_array)
        fill_indices(s, &g->index, args);
    rpi_pool_run(pool, d->heads * ((g->index.count + RPI_ENTRIES_PER_TASK - 1) / RPI_ENTRIES_PER_TASK),
                 rpi_entries_task, &job);
    if (g->table && (!g->index.integral[0] || g->index.has_masked[0])) /* a table needs no positions */
        g->table = NULL;
    if (g->table)
        rpi_pool_run(pool, d->heads * d->len_q, rpi_gather_table_task, &job);
}

static void fill_rows(rpi_source *s, const rpi_args *args, rp_pool *pool)
{
    if (s->rows.table)
        rpi_pool_run(pool, args->desc.heads * args->desc.len_q, rpi_array_table_task,
                     &(rpi_fill_job){.s = s, .args = args});
}

static void fill_run(rpi_source *s, rpi_run *r, const rpi_args *args, int64_t heads, rp_pool *pool)
{
    if (r->gather)
        fill_indices(s, &r->index, args);
    rpi_vectors_share(s, &r->vectors, args);
    rpi_pool_run(pool, heads, rpi_vectors_task, &(rpi_fill_job){.s = s, .args = args});
}

static void fill_keys(rpi_source *s, const rpi_args *args, int64_t heads, rp_pool *pool)
{
    rpi_vectors_share(s, &s->keys.vectors, args);
    rpi_pool_run(pool, heads, rpi_vectors_task, &(rpi_fill_job){.s = s, .args = args});
}

static void fill_values(rpi_source *s, const rpi_args *args, int64_t heads, rp_pool *pool)
{
    rpi_values *v = &s->values;
    fill_run(s, &v->run, args, heads, pool);
    if (!memchr(v->nonfinite, 1, (size_t)(heads * v->run.vectors.padded)))
        v->nonfinite = NULL;
}

void rpi_sources_fill(rpi_sources *l, const rpi_args *args, const rpi_limits *e, rp_pool *pool)
{
    const rp_desc *d = &args->desc;
    if (d->len_q == 0 || d->len_k == 0)
        return;
    for (int32_t n = 0; n < l->n; n++) {
        rpi_source *s = &l->source[n];
        const rpi_vectors *v = rpi_vectors_of(s);
        const int64_t heads = v && e->term[s->term].per_head[v->product - s->scheme->product] ? d->heads : 1;
        switch (s->kind) {
        case RPI_STRIP:
            if (!e->strip)
                rpi_strip_fill(&s->strip, args, pool);
            break;
        case RPI_GATHER: fill_gather(s, args, pool); break;
        case RPI_ROWS: fill_rows(s, args, pool); break;
        case RPI_RUN: fill_run(s, &s->run, args, heads, pool); break;
        case RPI_COLUMN: break; /* engine/call.c fills it for each group of heads */
        case RPI_KEYS: fill_keys(s, args, heads, pool); break;
        case RPI_VALUES: fill_values(s, args, heads, pool); break;
        }
    }
}
