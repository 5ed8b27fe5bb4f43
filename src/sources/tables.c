/* sources/tables.c -- biases computed once for a call: strips (by offset), entries (by index) and tables of all pairs.
 * Also the gradients of entries. Independent of tiles; names no scheme.
 * SPDX-License-Identifier: Apache-2.0 */
#include "fill_tasks.h"
#include <string.h>

#define ENTRIES RPI_ENTRIES_PER_TASK

int64_t rpi_source_index(const rpi_source *s, const rpi_pair *p)
{
    const rpi_vectors *v = rpi_vectors_of(s);
    return v ? rpi_product_index(v->product, p) : s->scheme->index(p);
}

/* Return a pair with a head and an offset, but without a query and a key. */
static rpi_pair entry_pair(const rpi_args *args, int32_t term, int64_t h, double delta)
{
    return (rpi_pair){.desc = &args->desc,
                      .term = &args->desc.terms[term],
                      .scheme = args->plan->scheme[term],
                      .array = args->term[term],
                      .prepared = args->prepared[term],
                      .h = h,
                      .delta = delta};
}

static double entry_value(const rpi_source *s, const rpi_args *args, int64_t h, int64_t e)
{
    const rpi_pair p = entry_pair(args, s->term, h, (double)(s->gather.index.first + e));
    if (s->scheme->form == RPI_OFFSET)
        return s->scheme->pair(&p);
    return s->scheme->entry(&p, rpi_takes_positions(s->scheme) ? s->scheme->index(&p) : e);
}

/* Add the gradients of one entry of a term, for every head. OFFSET: the entry of delta. INDEX: the entry of delta if
 * the term accepts positions, else entry e. */
static void entry_grads(const rpi_args *args, int32_t term, int64_t delta, int64_t e, const double *g, int64_t step,
                        rpi_term_sums *sums)
{
    const rpi_scheme *scheme = args->plan->scheme[term];
    rpi_pair p = entry_pair(args, term, 0, (double)delta);
    double shared;
    for (; p.h < args->desc.heads; p.h++) {
        if (g[p.h * step] == 0)
            continue;
        if (scheme->shared && !p.shared)
            shared = scheme->shared(&p), p.shared = &shared;
        if (scheme->form == RPI_OFFSET && scheme->grad)
            scheme->grad(&p, g[p.h * step], &sums->term[term]);
        else if (scheme->form == RPI_INDEX && scheme->entry_grad)
            scheme->entry_grad(&p, rpi_takes_positions(scheme) ? scheme->index(&p) : e, g[p.h * step],
                               &sums->term[term]);
    }
}

void rpi_strip_entry_grads(const rpi_args *args, int64_t delta, const double *g, int64_t step, rpi_term_sums *sums)
{
    const uint64_t terms = rpi_strip_terms(args);
    for (int32_t n = 0; n < args->desc.n_terms; n++)
        if (terms >> n & 1)
            entry_grads(args, n, delta, 0, g, step, sums);
}

void rpi_gather_entry_grads(const rpi_source *s, const rpi_args *args, int64_t e, const double *g, int64_t step,
                            rpi_term_sums *sums)
{
    entry_grads(args, s->term, s->gather.index.first + e, e, g, step, sums);
}

static void put_bias(const rp_plan *plan, void *to, int64_t at, double x)
{
    rpi_put_real(plan, to, at, rpi_round_bias(x, plan->ops->real));
}

typedef struct strip_job {
    const rpi_strip *s;
    const rpi_args *args;
} strip_job;

/* Fill a block of a strip's entries for every head. Entry e is the sum of the OFFSET terms at delta = e + low, computed
 * in double and rounded once. */
static void strip_task(void *context, int64_t n, int32_t worker)
{
    const strip_job *job = context;
    const rpi_strip *s = job->s;
    const rpi_args *args = job->args;
    const rp_desc *d = &args->desc;
    const int64_t blocks = (s->len + ENTRIES - 1) / ENTRIES, heads = s->head_step ? d->heads : 1, b = n / blocks;
    const int64_t low = rpi_strip_low(s, args, b);
    const uint64_t terms = rpi_strip_terms(args);
    (void)worker;
    rpi_pair pair[RP_MAX_TERMS];
    double shared[RP_MAX_TERMS];
    int n_terms = 0;
    for (int32_t m = 0; m < d->n_terms; m++)
        if (terms >> m & 1)
            pair[n_terms++] =
                (rpi_pair){.desc = d, .term = &d->terms[m], .scheme = args->plan->scheme[m], .array = args->term[m]};
    for (int64_t e = n % blocks * ENTRIES; e < rpi_min((n % blocks + 1) * ENTRIES, s->len); e++) {
        for (int m = 0; m < n_terms; m++) {
            pair[m].h = 0;
            pair[m].delta = (double)(e + low);
            if (pair[m].scheme->shared)
                shared[m] = pair[m].scheme->shared(&pair[m]), pair[m].shared = &shared[m];
        }
        for (int64_t h = 0; h < heads; h++) {
            double sum = 0;
            for (int m = 0; m < n_terms; m++) {
                pair[m].h = h;
                sum = rpi_bias_sum(sum, pair[m].scheme->pair(&pair[m]));
            }
            put_bias(args->plan, s->entry, b * s->batch_step + h * s->head_step + e, sum);
        }
    }
    if (s->len > args->plan->ops->tile_keys) /* a shorter strip has one tile, which is never skipped */
        rpi_strip_bound(s, args, b, n % blocks * ENTRIES, rpi_min((n % blocks + 1) * ENTRIES, s->len));
}
_Static_assert(ENTRIES % RPI_SEGMENT == 0, "a task fills whole segments");

void rpi_strip_fill(const rpi_strip *s, const rpi_args *args, rp_pool *pool)
{
    rpi_pool_run(pool, (s->batch_step ? args->desc.batch : 1) * ((s->len + ENTRIES - 1) / ENTRIES), strip_task,
                 &(strip_job){.s = s, .args = args});
}

void rpi_entries_task(void *context, int64_t n, int32_t worker)
{
    const rpi_fill_job *job = context;
    const rpi_source *s = job->s;
    const int64_t count = s->gather.index.count, blocks = (count + ENTRIES - 1) / ENTRIES, h = n / blocks;
    (void)worker;
    for (int64_t e = n % blocks * ENTRIES; e < rpi_min((n % blocks + 1) * ENTRIES, count); e++)
        put_bias(job->args->plan, s->gather.entry, h * count + e, entry_value(s, job->args, h, e));
}

/* Return the address of row n = h * Lq + i of a table, and set its padding to 0. */
static char *table_row(const rpi_args *args, void *table, int64_t n)
{
    const rpi_ops *ops = args->plan->ops;
    const int64_t len_k = args->desc.len_k, pad_k = rpi_round_up(len_k, ops->nr);
    char *row = (char *)table + n * pad_k * ops->real;
    memset(row + len_k * ops->real, 0, (size_t)((pad_k - len_k) * ops->real));
    return row;
}

void rpi_gather_table_task(void *context, int64_t n, int32_t worker)
{
    const rpi_fill_job *job = context;
    const rpi_indices *x = &job->s->gather.index;
    const rp_desc *d = &job->args->desc;
    const int64_t h = n / d->len_q, i = n % d->len_q;
    const size_t real = (size_t)job->args->plan->ops->real;
    const char *entries = (const char *)job->s->gather.entry + (size_t)(h * x->count) * real;
    char *to = table_row(job->args, job->s->gather.table, n);
    (void)worker;
    for (int64_t j = 0; j < d->len_k; j++)
        memcpy(to + (size_t)j * real, entries + (size_t)rpi_clamp(x->k_int[j] - x->q_int[i], 0, x->count - 1) * real,
               real);
}

void rpi_array_table_task(void *context, int64_t n, int32_t worker)
{
    const rpi_fill_job *job = context;
    const rp_desc *d = &job->args->desc;
    char *to = table_row(job->args, job->s->rows.table, n);
    (void)worker;
    for (int64_t j = 0; j < d->len_k; j++)
        put_bias(job->args->plan, to, j, rpi_at(&job->args->term[job->s->term][0], 0, n / d->len_q, n % d->len_q, j));
}
