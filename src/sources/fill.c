/* sources/fill.c -- fill the sources of a call: indices of queries and keys, then the tables and vectors.
 * SPDX-License-Identifier: Apache-2.0 */
#include "fill.h"
#include <math.h>
#include <string.h>

/* q_at and k_at of an index that is the difference of a number of the query and one of the key. */
static void separate(const rpi_source *s, const rpi_args *args, double *q_at, double *k_at)
{
    const rp_desc *d = &args->desc;
    const rp_term *t = &d->terms[s->term];
    const rpi_scheme *scheme = rpi_scheme_of(t->kind);
    if (rpi_takes_positions(scheme)) {
        for (int64_t b = 0; b < d->batch; b++) {
            rpi_positions_of(args, s->term, false, b, q_at + b * s->q_step);
            rpi_positions_of(args, s->term, true, b, k_at + b * s->k_step);
        }
        return;
    }
    const int64_t x = scheme->class_token ? t->extra : 0; /* class tokens ask the definition: NaN */
    rpi_pair p = rpi_pair_of(args, s->term, 0, 0, rpi_min(x, d->len_q - 1));
    for (int64_t j = 0; j < d->len_k; j++) {
        rpi_pair_key(args, &p, j);
        k_at[j] = j < x ? NAN : (double)rpi_source_index(s, &p);
    }
    rpi_pair_key(args, &p, rpi_min(x, d->len_k - 1));
    const int64_t zero = rpi_source_index(s, &p);
    for (int64_t i = 0; i < d->len_q; i++) {
        p = rpi_pair_of(args, s->term, 0, 0, i);
        rpi_pair_key(args, &p, rpi_min(x, d->len_k - 1));
        q_at[i] = i < x ? NAN : (double)(zero - rpi_source_index(s, &p));
    }
}

/* x - first as small whole numbers, whose differences fit in 32 bits; NaN as 0. */
static bool to_integers(const double *x, int64_t n, int64_t first, int32_t *to, bool *special)
{
    bool integral = true;
    for (int64_t m = 0; m < n; m++) {
        const double y = isnan(x[m]) ? 0 : x[m] - (double)first;
        *special |= isnan(x[m]);
        integral = integral && y == trunc(y) && fabs(y) < 0x1p29;
        to[m] = integral ? (int32_t)y : 0;
    }
    return integral;
}

/* Whether every key's number less every query's lies in [0, count). Numbers past the last key become the last one's. */
static bool within(const int32_t *q, int32_t *k, int64_t batch, int64_t len_q, int64_t len_k, int64_t pad_k,
                   int64_t count)
{
    int64_t min[2] = {INT32_MAX, INT32_MAX}, max[2] = {INT32_MIN, INT32_MIN};
    for (int64_t b = 0; b < batch; b++) {
        for (int64_t j = len_k; j < pad_k; j++)
            k[b * pad_k + j] = k[b * pad_k + len_k - 1];
        for (int64_t j = 0; j < len_k; j++) {
            min[1] = rpi_min(min[1], k[b * pad_k + j]);
            max[1] = rpi_max(max[1], k[b * pad_k + j]);
        }
    }
    for (int64_t i = 0; i < batch * len_q; i++) {
        min[0] = rpi_min(min[0], q[i]);
        max[0] = rpi_max(max[0], q[i]);
    }
    return min[1] - max[0] >= 0 && max[1] - min[0] < count;
}

void rpi_sources_fill(rpi_sources *l, const rp_plan *plan, const rpi_args *args, bool backward, char *work,
                      rp_pool *pool)
{
    const rp_desc *d = &args->desc;
    const int64_t pad_k = rpi_round_up(d->len_k, plan->ops->nr);
    if (d->len_q == 0 || d->len_k == 0)
        return;
    for (int n = 0; n <= l->n; n++) {
        rpi_source *s = n < l->n ? &l->source[n] : &l->valvec;
        const rpi_place *at = &l->at[n];
        rpi_fill_job j = {.s = s, .plan = plan, .args = args};
        if (n == l->n && !s->part)
            break;
        if (s->kind == RPI_GATHER || s->gather) {
            double *q_at = (double *)(void *)(work + at->q_at), *k_at = (double *)(void *)(work + at->k_at);
            s->q_at = q_at;
            s->k_at = k_at;
            memset(k_at, 0, (size_t)(s->k_step ? d->batch * s->k_step : pad_k) * sizeof *k_at);
            separate(s, args, q_at, k_at);
            const int64_t batch = s->k_step ? d->batch : 1;
            int32_t *q_int = (int32_t *)(void *)(work + at->q_int), *k_int = (int32_t *)(void *)(work + at->k_int);
            const bool integral_q = to_integers(q_at, batch * d->len_q, 0, q_int, &s->special);
            const bool integral_k = to_integers(k_at, batch * pad_k, s->first, k_int, &s->special);
            const bool integral = integral_q && integral_k;
            s->q_int = integral ? q_int : NULL;
            s->k_int = integral ? k_int : NULL;
            s->unclamped = integral && !s->special && within(q_int, k_int, batch, d->len_q, d->len_k, pad_k, s->count);
        }
        if (s->kind == RPI_STRIP && !s->strip) {
            s->strip = work + at->strip;
            rpi_strip_fill(s, plan, args, pool);
        }
        if (s->kind == RPI_GATHER) {
            s->strip = work + at->strip;
            rpi_pool_run(pool, d->heads * ((s->strip_len + RPI_ENTRIES_PER_TASK - 1) / RPI_ENTRIES_PER_TASK),
                         rpi_entries_task, &j);
        }
        if (rpi_wants_table(s, plan, args) && (s->kind == RPI_ROWS || (s->k_int && !s->special))) {
            s->table = work + at->table;
            rpi_pool_run(pool, d->heads * d->len_q, rpi_table_task, &j);
        }
        if (!s->part)
            continue;
        s->column = s->kind == RPI_COLUMN ? work + at->column : NULL;
        const bool panels = s->kind == RPI_RUN, rows = n == l->n || backward;
        s->panels = panels ? work + at->panels : NULL;
        s->rows = rows ? work + at->rows : NULL;
        s->extreme = n == l->n ? (uint8_t *)work + at->extreme : NULL;
        const int64_t heads = rpi_vectors_are_shared(s, args) ? 1 : d->heads;
        if (panels || rows)
            rpi_pool_run(pool, heads, rpi_vectors_task, &j);
        if (s->kind == RPI_KEYS) {
            s->transposed = work + at->transposed;
            rpi_pool_run(pool, heads, rpi_transposed_task, &j);
        }
        if (s->extreme && !memchr(s->extreme, 1, (size_t)(heads * s->pad_count)))
            s->extreme = NULL;
    }
}
