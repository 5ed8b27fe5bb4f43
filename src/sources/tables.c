/* sources/tables.c -- biases computed once for a call: strips (by offset), entries (by index) and tables of all pairs.
 * Also the gradients of entries. Independent of tiles; names no scheme.
 * SPDX-License-Identifier: Apache-2.0 */
#include "fill_tasks.h"
#include <float.h>
#include <math.h>
#include <string.h>

#define ENTRIES RPI_ENTRIES_PER_TASK
#define MARGIN  256

int64_t rpi_source_index(const rpi_source *s, const rpi_pair *p)
{
    const rpi_vectors *v = rpi_vectors_of(s);
    return v ? rpi_product_index(v->product, p) : s->scheme->index(p);
}

/* Return a pair with a batch entry, a head and an offset, but without a query and a key. */
static rpi_pair entry_pair(const rpi_args *args, int32_t term, int64_t b, int64_t h, double delta)
{
    return (rpi_pair){.desc = &args->desc,
                      .term = &args->desc.terms[term],
                      .scheme = args->plan->scheme[term],
                      .array = args->term[term],
                      .prepared = args->prepared[term],
                      .b = b,
                      .h = h,
                      .delta = delta};
}

/* Return sums that add up the derivatives of a definition along the tangents of its arrays. */
static rpi_sums along(const rpi_args *args, int32_t term, double *sum)
{
    rpi_sums to = {.along = sum};
    memcpy(to.array, args->along->term[term], sizeof to.array);
    *sum = 0;
    return to;
}

/* Return the value of rpi_definition for a pair of a term, or its tangent in a call of tangents. */
static double definition(const rpi_args *args, int32_t term, const rpi_pair *p)
{
    double sum;
    if (!args->along)
        return rpi_definition(p);
    const rpi_sums to = along(args, term, &sum);
    rpi_definition_grad(p, 1, &to);
    return sum;
}

double rpi_source_bias(const rpi_source *s, const rpi_args *args, const rpi_pair *p)
{
    return definition(args, s->term, p);
}

static double entry_value(const rpi_source *s, const rpi_args *args, int64_t h, int64_t e)
{
    const rpi_pair p = entry_pair(args, s->term, 0, h, (double)(s->gather.index.first + e));
    double sum;
    if (s->scheme->form == RPI_OFFSET || rpi_takes_positions(s->scheme))
        return definition(args, s->term, &p);
    if (!args->along)
        return s->scheme->entry(&p, e);
    const rpi_sums to = along(args, s->term, &sum);
    if (s->scheme->entry_grad)
        s->scheme->entry_grad(&p, e, 1, &to);
    return sum;
}

/* Add the gradients of one entry of a term, for every head of batch entry b. OFFSET: the entry of delta. INDEX: the
 * entry of delta if the term accepts positions, else entry e. */
static void entry_grads(const rpi_args *args, int32_t term, int64_t b, int64_t delta, int64_t e, const double *g,
                        int64_t step, rpi_term_sums *sums)
{
    const rpi_scheme *scheme = args->plan->scheme[term];
    rpi_pair p = entry_pair(args, term, b, 0, (double)delta);
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

void rpi_strip_entry_grads(const rpi_args *args, int64_t b, int64_t delta, const double *g, int64_t step,
                           rpi_term_sums *sums)
{
    const uint64_t terms = rpi_strip_terms(args);
    for (int32_t n = 0; n < args->desc.n_terms; n++)
        if (terms >> n & 1)
            entry_grads(args, n, b, delta, 0, g, step, sums);
}

void rpi_gather_entry_grads(const rpi_source *s, const rpi_args *args, int64_t e, const double *g, int64_t step,
                            rpi_term_sums *sums)
{
    entry_grads(args, s->term, 0, s->gather.index.first + e, e, g, step, sums);
}

static void put_bias(const rp_plan *plan, void *to, int64_t at, double x)
{
    rpi_put_real(plan, to, at, rpi_round_bias(x, plan->ops->real));
}

typedef struct strip_job {
    const rpi_strip *s;
    const rpi_args *args;
} strip_job;

/* Put n biases; -0 becomes 0. */
static void put_biases(const rp_plan *plan, void *to, int64_t at, const double *from, int64_t n)
{
    typedef float four __attribute__((vector_size(16), aligned(4), may_alias));
    typedef int32_t mask __attribute__((vector_size(16)));
    float *f32 = (float *)to + at;
    mask large = {0};
    int64_t x = 0;
    for (; plan->ops->real == 4 && x + 4 <= n; x += 4) {
        for (int l = 0; l < 4; l++)
            f32[x + l] = (float)(from[x + l] + 0);
        large |= (*(four *)(f32 + x) > FLT_MAX) | (*(four *)(f32 + x) < -FLT_MAX);
    }
    if (large[0] | large[1] | large[2] | large[3])
        x = 0; /* convert again with put_bias, which limits finite biases to FLT_MAX */
    for (; x < n; x++)
        put_bias(plan, to, at + x, from[x] + 0);
}

/* Entries of a strip that are computed together. */
enum { STRIP_CHUNK = 64 }; /* the shared values of a chunk are on the stack */
_Static_assert(ENTRIES % STRIP_CHUNK == 0 && STRIP_CHUNK % RPI_SEGMENT == 0, "a task fills whole chunks of segments");

/* Find the offsets delta0+*first … delta0+*past-1 of a chunk of n whose biases differ: those before equal the first of
 * them, those after equal the last one. */
static void differing(const rpi_pair *p, int64_t delta0, int64_t n, int64_t *first, int64_t *past)
{
    *first = 0, *past = n;
    if (p->scheme->reach) {
        int64_t left, right;
        p->scheme->reach(p->term, &left, &right);
        *first = rpi_clamp(-left - delta0, 0, n - 1);
        *past = rpi_clamp(right - delta0 + 1, *first + 1, n);
    }
}

/* Compute `shared` of the scheme, if it exists, for the offsets of a chunk that differ. */
static void fill_shared(rpi_pair *p, int64_t delta0, int64_t n, double *to)
{
    int64_t first, past;
    differing(p, delta0, n, &first, &past);
    for (int64_t x = first; p->scheme->shared && x < past; x++) {
        p->delta = (double)(delta0 + x);
        to[x] = p->scheme->shared(p);
    }
}

/* Compute the biases of term m and one head, or their tangents, for the offsets of a chunk. */
static void fill_offsets(const rpi_args *args, int32_t m, rpi_pair *p, int64_t delta0, int64_t n, const double *shared,
                         double *to)
{
    int64_t first, past;
    if (p->scheme->offsets && !args->along) {
        p->scheme->offsets(p, delta0, n, to);
        return;
    }
    differing(p, delta0, n, &first, &past);
    for (int64_t x = first; x < past; x++) {
        p->delta = (double)(delta0 + x);
        p->shared = p->scheme->shared ? shared + x : NULL;
        to[x] = definition(args, m, p);
    }
    p->shared = NULL;
    for (int64_t x = 0; x < first; x++)
        to[x] = to[first];
    for (int64_t x = past; x < n; x++)
        to[x] = to[past - 1];
}

/* Fill a chunk of a strip for every head: the sum of the OFFSET terms at delta = e + low, computed in double and
 * rounded once. */
static void fill_chunk(const rpi_strip *s, const rpi_args *args, int64_t b, int64_t e0, int64_t n)
{
    const rp_desc *d = &args->desc;
    const int64_t delta0 = e0 + rpi_strip_low(s, args, b);
    const uint64_t terms = rpi_strip_terms(args);
    rpi_pair pair[RP_MAX_TERMS];
    int32_t term[RP_MAX_TERMS];
    double shared[RP_MAX_TERMS][STRIP_CHUNK], sum[STRIP_CHUNK], more[STRIP_CHUNK];
    int n_terms = 0;
    for (int32_t m = 0; m < d->n_terms; m++)
        if (terms >> m & 1) {
            term[n_terms] = m;
            pair[n_terms] = entry_pair(args, m, b, 0, 0);
            fill_shared(&pair[n_terms], delta0, n, shared[n_terms]);
            n_terms++;
        }
    for (int64_t h = 0; h < (s->head_step ? d->heads : 1); h++) {
        for (int m = 0; m < n_terms; m++) {
            pair[m].h = h;
            fill_offsets(args, term[m], &pair[m], delta0, n, shared[m], m ? more : sum);
            for (int64_t x = 0; m && x < n; x++)
                sum[x] = rpi_bias_sum(sum[x], more[x]);
        }
        put_biases(args->plan, s->entry, b * s->batch_step + h * s->head_step + e0, sum, n);
    }
}

/* Fill the entries that a call uses, of ENTRIES entries of a strip. If it has several tiles, also compute the bounds of
 * its segments, for skipping. The kernels load whole vectors and blocks, so the entries have a margin. */
static void strip_task(void *context, int64_t n, int32_t worker)
{
    const strip_job *job = context;
    const rpi_strip *s = job->s;
    const int64_t blocks = (s->len + ENTRIES - 1) / ENTRIES, b = n / blocks, at = n % blocks * ENTRIES,
                  first = rpi_max(at, (s->from - MARGIN) / STRIP_CHUNK * STRIP_CHUNK),
                  past = rpi_min(at + ENTRIES, rpi_min(s->past + MARGIN, s->len));
    (void)worker;
    if (first >= past)
        return;
    for (int64_t e = first; e < past; e += STRIP_CHUNK)
        fill_chunk(s, job->args, b, e, rpi_min(STRIP_CHUNK, past - e));
    if (s->len > job->args->plan->ops->tile_keys) /* a shorter strip has one tile, which is never skipped */
        rpi_strip_bound(s, job->args, b, first, past);
}

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
        put_bias(job->args->plan, to, j,
                 rpi_at(rpi_source_array(job->args, job->s->term), 0, n / d->len_q, n % d->len_q, j));
}
