/* sources/tables.c -- biases made once for a call from the definitions: strips by offset, entries by index, all pairs; and back, gradients of entries.
 * SPDX-License-Identifier: Apache-2.0 */
#include "fill.h"
#include <string.h>

#define PIECE RPI_ENTRIES_PER_TASK

/* The arrays of a term without its masks, for definitions that are asked about no pair in particular. */
static void without_masks(const rpi_scheme *s, const rpi_view *array, rpi_view *to)
{
    memcpy(to, array, RP_MAX_ARRAYS * sizeof *to);
    for (int x = 0; x < RP_MAX_ARRAYS; x++)
        if (s->array[x].role == RPI_TRUTH || s->array[x].role == RPI_POSITIONS)
            to[x] = (rpi_view){0};
}

int64_t rpi_source_index(const rpi_source *s, const rpi_pair *p)
{
    const rpi_scheme *scheme = rpi_scheme_of(p->term->kind);
    return s->part ? rpi_part_index(s->part, p) : scheme->index(p);
}

/* A pair for entry e of head h, which no query and no key stands behind. */
static rpi_pair entry_pair(const rpi_args *args, int32_t term, rpi_view *array, int64_t h, double delta)
{
    rpi_pair p = {
        .desc = &args->desc, .term = &args->desc.terms[term], .array = array, .prepared = args->prepared[term]};
    without_masks(rpi_scheme_of(p.term->kind), args->term[term], array);
    p.h = h;
    p.delta = delta;
    return p;
}

static double entry_value(const rpi_source *s, const rpi_args *args, int64_t h, int64_t e)
{
    rpi_view array[RP_MAX_ARRAYS];
    const rpi_pair p = entry_pair(args, s->term, array, h, (double)(s->first + e));
    const rpi_scheme *scheme = rpi_scheme_of(p.term->kind);
    if (scheme->form == RPI_OFFSET)
        return scheme->pair(&p);
    return scheme->entry(&p, rpi_takes_positions(scheme) ? scheme->index(&p) : e);
}

void rpi_source_entry_grads(const rpi_source *s, const rpi_args *args, int64_t low, int64_t e, const double *g,
                            int64_t step, rpi_term_sums *sums)
{
    for (int32_t n = 0; n < args->desc.n_terms; n++) {
        const rpi_scheme *scheme = rpi_scheme_of(args->desc.terms[n].kind);
        if (s->kind == RPI_STRIP ? !rpi_in_strip(scheme, args->term[n]) : n != s->term)
            continue;
        rpi_view array[RP_MAX_ARRAYS];
        rpi_pair p = entry_pair(args, n, array, 0, (double)(e + low));
        double shared;
        for (; p.h < args->desc.heads; p.h++) {
            if (g[p.h * step] == 0)
                continue;
            if (scheme->shared && !p.shared)
                shared = scheme->shared(&p), p.shared = &shared;
            if (scheme->form == RPI_OFFSET && scheme->grad)
                scheme->grad(&p, g[p.h * step], &sums->term[n]);
            else if (scheme->form == RPI_INDEX && scheme->entry_grad)
                scheme->entry_grad(&p, rpi_takes_positions(scheme) ? scheme->index(&p) : e, g[p.h * step],
                                   &sums->term[n]);
        }
    }
}

/* A bias in the type of the arithmetic: a finite one stays finite, because only -infinity masks. */
static void put_bias(const rp_plan *plan, void *to, int64_t at, double x)
{
    rpi_put_real(plan, to, at, plan->ops->real == 8 ? x : (double)rpi_to_float(x));
}

/* Entries of a strip for every head: the sum of the OFFSET terms at delta = e + low, in double, rounded once. */
static void strip_task(void *context, int64_t n, int32_t worker)
{
    const rpi_fill_job *j = context;
    const rpi_source *s = j->s;
    const rp_desc *d = &j->args->desc;
    const int64_t pieces = (s->strip_len + PIECE - 1) / PIECE, heads = s->strip_step ? d->heads : 1, b = n / pieces;
    const int64_t low = s->strip_batch ? -rpi_position(j->args, b, d->len_q - 1) : s->strip_low;
    (void)worker;
    const rpi_scheme *scheme[RP_MAX_TERMS];
    rpi_pair pair[RP_MAX_TERMS];
    double shared[RP_MAX_TERMS];
    int n_terms = 0;
    for (int32_t m = 0; m < d->n_terms; m++) {
        scheme[n_terms] = rpi_scheme_of(d->terms[m].kind);
        if (rpi_in_strip(scheme[n_terms], j->args->term[m]))
            pair[n_terms++] = (rpi_pair){.desc = d, .term = &d->terms[m], .array = j->args->term[m]};
    }
    for (int64_t e = n % pieces * PIECE; e < rpi_min((n % pieces + 1) * PIECE, s->strip_len); e++) {
        for (int m = 0; m < n_terms; m++) {
            pair[m].h = 0;
            pair[m].delta = (double)(e + low);
            if (scheme[m]->shared)
                shared[m] = scheme[m]->shared(&pair[m]), pair[m].shared = &shared[m];
        }
        for (int64_t h = 0; h < heads; h++) {
            double sum = 0;
            for (int m = 0; m < n_terms; m++) {
                pair[m].h = h;
                sum = rpi_bias_sum(sum, scheme[m]->pair(&pair[m]));
            }
            put_bias(j->plan, s->strip, b * s->strip_batch + h * s->strip_step + e, sum);
        }
    }
}

void rpi_strip_fill(const rpi_source *s, const rp_plan *plan, const rpi_args *args, rp_pool *pool)
{
    rpi_fill_job j = {.s = (rpi_source *)(uintptr_t)s, .plan = plan, .args = args};
    rpi_pool_run(pool, (s->strip_batch ? args->desc.batch : 1) * ((s->strip_len + PIECE - 1) / PIECE), strip_task, &j);
}

void rpi_entries_task(void *context, int64_t n, int32_t worker)
{
    const rpi_fill_job *j = context;
    const rpi_source *s = j->s;
    const int64_t pieces = (s->count + PIECE - 1) / PIECE, h = n / pieces;
    (void)worker;
    for (int64_t e = n % pieces * PIECE; e < rpi_min((n % pieces + 1) * PIECE, s->count); e++)
        put_bias(j->plan, s->strip, h * s->strip_step + e, entry_value(s, j->args, h, e));
}

/* The biases of row i of head h, n = h * Lq + i. */
void rpi_table_task(void *context, int64_t n, int32_t worker)
{
    const rpi_fill_job *j = context;
    const rpi_source *s = j->s;
    const rp_desc *d = &j->args->desc;
    const int64_t pad_k = rpi_round_up(d->len_k, j->plan->ops->nr), h = n / d->len_q, i = n % d->len_q;
    const size_t real = (size_t)j->plan->ops->real;
    const char *entries = s->kind == RPI_GATHER ? (const char *)s->strip + (size_t)(h * s->strip_step) * real : NULL;
    char *to = (char *)s->table + (size_t)(n * pad_k) * real;
    (void)worker;
    for (int64_t key = 0; key < d->len_k; key++)
        if (entries)
            memcpy(to + (size_t)key * real,
                   entries + (size_t)rpi_clamp(s->k_int[key] - s->q_int[i], 0, s->count - 1) * real, real);
        else
            put_bias(j->plan, to, key, rpi_at(&j->args->term[s->term][0], 0, h, i, key));
    memset(to + (size_t)d->len_k * real, 0, (size_t)(pad_k - d->len_k) * real);
}
