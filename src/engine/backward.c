/* engine/backward.c -- one backward call: memory, the order in which tasks add, and sums folded into the arrays they belong to.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* sched_yield */
#endif
#include "engine.h"
#include <math.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

/* kv heads are worked on in groups, of which the sums for dq exist at one time. */
#define MAX_GROUP_BYTES  ((int64_t)32 << 20)
#define TASKS_PER_THREAD 8

void rpi_ticket_wait(atomic_llong *at, int64_t ticket)
{
    for (int spins = 0; atomic_load_explicit(at, memory_order_acquire) < ticket; spins++)
        if (spins > 256)
            sched_yield();
}

void rpi_ticket_pass(atomic_llong *at)
{
    atomic_fetch_add_explicit(at, 1, memory_order_release);
}

typedef struct layout {
    rpi_arena all;
    rpi_sources sources;
    rpi_rope_tables rope;
    int64_t groups, scratch_step, wide_k;
    rpi_backward back; /* sizes only */
    int64_t dq, own[RPI_MAX_SOURCES], row_stats, strips, entries[RPI_MAX_SOURCES], vectors[RPI_MAX_SOURCES + 1],
        columns, sums_row, sums_column, ticket_pairs, ticket_rows, ticket_own[RPI_MAX_SOURCES], ticket_head, scratch,
        zero_from, zero_to;
    bool has_own[RPI_MAX_SOURCES], has_vectors[RPI_MAX_SOURCES + 1], has_entries[RPI_MAX_SOURCES];
    bool has_strips, has_columns, has_fold;
} layout;

static bool wanted(const rpi_grads *g, int32_t term)
{
    for (int x = 0; g && x < RP_MAX_ARRAYS; x++)
        if (g->term[term][x].data)
            return true;
    return !g;
}

/* Whether a task may write the gradient of an array of biases in place: every element belongs to one pair. */
static bool is_direct(const rpi_args *args, const rpi_grads *g, const rpi_source *s)
{
    const rp_desc *d = &args->desc;
    const int64_t *len = args->term[s->term][0].len;
    return rpi_scheme_of(d->terms[s->term].kind)->in_place && g->term[s->term][0].data && len[0] == d->batch &&
           len[1] == d->heads && len[2] == d->len_q && len[3] == d->len_k;
}

/* Whether the gradient of an array of biases is one sum for each query and key, over batch entries or heads. */
static bool is_of_pairs(const rpi_args *args, const rpi_grads *g, const rpi_source *s)
{
    const rp_desc *d = &args->desc;
    const int64_t *len = args->term[s->term][0].len;
    return rpi_scheme_of(d->terms[s->term].kind)->in_place && g->term[s->term][0].data && len[2] == d->len_q &&
           len[3] == d->len_k;
}

/* args and grads NULL: what a call needs that wants every gradient and whose arrays are as the plan says. */
static void lay_out(layout *l, const rp_plan *plan, const rpi_args *args, const rpi_grads *g, int32_t threads,
                    double *scratch)
{
    const rp_desc *d = args ? &args->desc : &plan->desc;
    const rpi_ops *ops = plan->ops;
    const int64_t kv = d->batch * d->kv_heads, share = d->heads / d->kv_heads, f = ops->real,
                  heads = d->batch * d->heads;
    rpi_arena *to = &l->all;
    memset(l, 0, sizeof *l);
    l->wide_k = rpi_round_up(d->dim_k, ops->vl);
    l->back.blocks = (d->len_q + ops->qb - 1) / ops->qb;
    l->back.pad_rows = l->back.blocks * ops->qb;
    l->back.key_blocks = (d->len_k + ops->bkb - 1) / ops->bkb;
    /* groups are those of the plan's own lengths, so that shorter calls of a flexible plan fit its work */
    const int64_t max_rows = rpi_round_up(plan->desc.len_q, ops->qb),
                  max_blocks = (plan->desc.len_k + ops->bkb - 1) / ops->bkb;
    int64_t bytes = MAX_GROUP_BYTES;
    if (!rpi_mul(max_rows, share * l->wide_k, f, &bytes))
        l->all.too_large = true;
    l->groups = (TASKS_PER_THREAD * threads + max_blocks) / rpi_max(max_blocks, 1);
    l->groups = rpi_clamp(rpi_max(l->groups, ((int64_t)2 << 20) / rpi_max(bytes, 1)), 1, rpi_max(kv, 1));
    l->groups = rpi_max(rpi_min(l->groups, MAX_GROUP_BYTES / rpi_max(bytes, 1)), 1);
    const int64_t group_heads = l->groups * share;
    rpi_sources_describe(&l->sources, plan, args, scratch);
    rpi_sources_lay_out(&l->sources, to, plan, args, group_heads, true);
    rpi_rope_tables_lay_out(&l->rope, to, plan, args);
    l->row_stats = rpi_arena_add(to, heads, d->len_q, 3, 8);
    l->zero_from = to->used; /* sums from here on start at zero */
    l->ticket_head = rpi_arena_add(to, d->heads, 1, 1, sizeof(atomic_llong));
    l->ticket_pairs = rpi_arena_add(to, l->back.blocks, l->back.key_blocks, 1, sizeof(atomic_llong));
    for (int n = 0; n <= l->sources.n; n++) {
        const rpi_source *s = n < l->sources.n ? &l->sources.source[n] : &l->sources.valvec;
        if (n == l->sources.n && !s->part)
            break;
        if (s->kind == RPI_STRIP) {
            for (int32_t m = 0; m < d->n_terms; m++)
                l->has_strips |= rpi_scheme_of(d->terms[m].kind)->form == RPI_OFFSET && wanted(g, m);
            if (l->has_strips)
                l->strips = rpi_arena_add(to, s->strip_batch ? d->batch : 1, d->heads, s->strip_len, 8);
            continue;
        }
        const bool want = wanted(g, s->term);
        const rpi_scheme *scheme = rpi_scheme_of(d->terms[s->term].kind);
        const bool rows = s->kind == RPI_ROWS && s->by_row && scheme->row_grad;
        if ((s->kind == RPI_GATHER || rows) && (l->has_entries[n] = want))
            l->entries[n] =
                rpi_arena_add(to, d->heads, rows ? scheme->sums_size(d, &d->terms[s->term]) : s->count, 1, 8);
        if (s->part && s->kind != RPI_COLUMN && (l->has_vectors[n] = want))
            l->vectors[n] = rpi_arena_add(to, d->heads, s->count, s->width, 8);
        if (s->kind == RPI_COLUMN && (l->has_columns = want))
            l->columns = rpi_arena_add(to, heads, l->back.key_blocks, s->width, 8);
        if (s->kind == RPI_ROWS && scheme->fold && want && !l->has_fold) {
            l->has_fold = true;
            l->sums_row = rpi_arena_add(to, heads, d->len_q, 1, 8);
            l->sums_column = rpi_arena_add(to, heads, d->len_k, 1, 8);
        }
    }
    l->zero_to = to->used;
    /* of the group: zeroed for each */
    l->ticket_rows = rpi_arena_add(to, group_heads, l->back.blocks, 1, sizeof(atomic_llong));
    l->dq = rpi_arena_add(to, group_heads, l->back.pad_rows, l->wide_k, f);
    for (int n = 0; n < l->sources.n; n++) {
        const rpi_source *s = &l->sources.source[n];
        l->has_own[n] = s->kind == RPI_RUN && (!g || g->dq.data || (s->part->query && wanted(g, s->term)));
        if (!l->has_own[n])
            continue;
        l->own[n] = rpi_arena_add(to, group_heads, l->back.pad_rows, rpi_round_up(s->width, ops->vl), f);
        l->ticket_own[n] = rpi_arena_add(to, group_heads, l->back.blocks, 1, sizeof(atomic_llong));
    }
    rpi_call c = {.plan = plan, .args = args, .n_sources = l->sources.n, .valvec = l->sources.valvec};
    rpi_args only = {.desc = *d};
    if (!args)
        c.args = &only;
    memcpy(c.source, l->sources.source, sizeof c.source);
    l->scratch_step = ops->backward_size(&c);
    l->scratch = rpi_arena_add(to, threads, l->scratch_step, 1, 1);
}

size_t rpi_backward_work_size(const rp_plan *plan, int32_t threads)
{
    layout l;
    lay_out(&l, plan, NULL, NULL, threads, NULL);
    return rpi_arena_fits(&l.all, "a backward call") == RP_OK ? (size_t)l.all.used : 0;
}

/* ---------------------------------------------------------------------------------------------- the tasks */

/* The parts of lse and <dout, out> of 64 rows of one head. */
static void stats_task(void *context, int64_t n, int32_t worker)
{
    const rpi_call *c = context;
    const rp_desc *d = &c->args->desc;
    const int64_t pieces = (d->len_q + 63) / 64, head = n / pieces, b = head / d->heads, h = head % d->heads;
    (void)worker;
    for (int64_t i = n % pieces * 64; i < rpi_min((n % pieces + 1) * 64, d->len_q); i++) {
        double *to = c->backward->row_stats + 3 * (head * d->len_q + i), sum[8] = {0};
        const bool parts = c->args->top.data;
        to[0] = rpi_at(parts ? &c->args->top : &c->args->lse, b, h, i, 0);
        to[1] = parts ? rpi_at(&c->args->log_sum, b, h, i, 0) : 0;
        const void *dout = rpi_row_of(&c->grads->dout, b, h, i), *out = rpi_row_of(&c->args->out, b, h, i);
        for (int64_t x0 = 0; to[0] != -HUGE_VAL && x0 < d->dim_v; x0 += 64) {
            double y[64], z[64];
            const int64_t m = rpi_min(64, d->dim_v - x0);
            rpi_load_f64(y, (const char *)dout + (size_t)x0 * rp_dtype_size(c->grads->dout.dtype), c->grads->dout.dtype,
                         m);
            rpi_load_f64(z, (const char *)out + (size_t)x0 * rp_dtype_size(c->args->out.dtype), c->args->out.dtype, m);
            for (int64_t x = 0; x < m; x++) /* of a row without a key dout may be anything */
                sum[x & 7] += z[x] != 0 ? y[x] * z[x] : 0;
        }
        to[2] = (sum[0] + sum[4]) + (sum[1] + sum[5]) + ((sum[2] + sum[6]) + (sum[3] + sum[7]));
    }
}

static void key_task(void *context, int64_t n, int32_t worker)
{
    const rpi_call *c = context;
    c->plan->ops->backward(c, n / c->backward->key_blocks, n % c->backward->key_blocks, worker);
    rpi_progress_step(c->progress, worker);
}

static double real_at(const rpi_call *c, const void *data, int64_t at)
{
    return c->plan->ops->real == 8 ? ((const double *)data)[at] : (double)((const float *)data)[at];
}

/* dq of the rows of one head: scaled, rotated back, with what the vectors gave. */
static void rows_of_head(const rpi_call *c, int64_t head, int64_t row0, int64_t row1, double *row)
{
    const rp_desc *d = &c->args->desc;
    const rpi_backward *bw = c->backward;
    const rpi_view *dq = &c->grads->dq;
    const int64_t wide = rpi_round_up(d->dim_k, c->plan->ops->vl);
    const rp_term *rotate = c->plan->rotate >= 0 ? &c->plan->terms[c->plan->rotate] : NULL;
    int64_t b, h;
    rpi_head_at(c, head, &b, &h);
    for (int64_t i = row0; i < row1; i++) {
        const char *dq_row = (const char *)bw->dq + (head * bw->pad_rows + i) * wide * c->plan->ops->real;
        rpi_load_f64(row, dq_row, c->plan->ops->real == 8 ? RP_F64 : RP_F32, d->dim_k);
        for (int64_t x = 0; x < d->dim_k; x++)
            row[x] *= d->scale;
        for (int64_t p = 0; rotate && p < rotate->dim / 2; p++) {
            int64_t u, v;
            rpi_rotate_channels(rotate, p, &u, &v);
            const int64_t at = b * c->rope_q_step + i * rotate->dim + 2 * p;
            const double cosine = real_at(c, c->rope_q, at), sine = real_at(c, c->rope_q, at + 1), y = row[u],
                         z = row[v];
            row[u] = y * cosine + z * sine;
            row[v] = z * cosine - y * sine;
        }
        for (int n = 0; n < c->n_sources; n++) {
            const rpi_source *s = &c->source[n];
            if (!bw->own[n])
                continue;
            const rpi_pair p = rpi_pair_of(c->args, s->term, b, h, i);
            const double factor = rpi_vec_factor(d, p.term);
            const int64_t at = (head * bw->pad_rows + i) * rpi_round_up(s->width, c->plan->ops->vl);
            rpi_sums to = bw->sums.term[s->term];
            to.q = row;
            for (int64_t x = 0; x < s->width; x++) {
                const double g = factor * real_at(c, bw->own[n], at + x);
                if (s->part->query)
                    s->part->query_grad(&p, x, g, &to);
                else
                    row[x] += g;
            }
        }
        if (dq->data)
            rpi_store_f64((char *)dq->data + rpi_index(dq, b, h, i, 0) * (int64_t)rp_dtype_size(dq->dtype), dq->dtype,
                          row, d->dim_k);
    }
}

static void rows_task(void *context, int64_t n, int32_t worker)
{
    const rpi_call *c = context;
    const int64_t pieces = (c->args->desc.len_q + 63) / 64, first = n % pieces * 64;
    double *row = (double *)(void *)(c->scratch + worker * c->scratch_step);
    rows_of_head(c, n / pieces, first, rpi_min(first + 64, c->args->desc.len_q), row);
}

/* ---------------------------------------------------------------------------------------------- the call */

/* Sums for terms that go pair by pair, for each worker. */
static rp_status private_sums(rpi_backward *bw, const rp_plan *plan, const rpi_args *args, const rpi_grads *g,
                              const layout *l, int32_t threads)
{
    rpi_grads some = {0};
    bool any = false;
    for (int n = 0; n < l->sources.n; n++) {
        const rpi_source *s = &l->sources.source[n];
        if (s->kind != RPI_ROWS || bw->direct[n] || bw->pairs[n] ||
            rpi_scheme_of(args->desc.terms[s->term].kind)->fold || !wanted(g, s->term))
            continue;
        memcpy(some.term[s->term], g->term[s->term], sizeof some.term[0]);
        any = true;
    }
    if (!any)
        return RP_OK;
    bw->private_sums = calloc((size_t)threads, sizeof *bw->private_sums);
    rp_status status =
        bw->private_sums ? RP_OK : rpi_fail(RP_E_NOMEM, "out of memory: the sums of %d threads", (int)threads);
    for (int32_t n = 0; status == RP_OK && n < threads; n++)
        status = rpi_sums_alloc(&bw->private_sums[n], plan, args, &some);
    return status;
}

static void fill_zero(const rpi_view *v, const int64_t *len)
{
    for (int64_t a = 0; a < len[0]; a++)
        for (int64_t b = 0; b < len[1]; b++)
            for (int64_t i = 0; i < len[2]; i++)
                for (int64_t j = 0; j < len[3]; j++)
                    rpi_put(v->data, v->dtype, rpi_index(v, a, b, i, j), 0);
}

/* Nothing in here fails: the caller has the memory already. */
static void backward(rpi_call *c, layout *l, char *work, rp_pool *pool)
{
    const rp_desc *d = &c->args->desc;
    rpi_backward *bw = c->backward;
    const int64_t kv = d->batch * d->kv_heads, share = d->heads / d->kv_heads, pieces = (d->len_q + 63) / 64;
    bool serial = false; /* rows of all heads add to one array */
    memset(work + l->zero_from, 0, (size_t)(l->zero_to - l->zero_from));
    bw->row_stats = (double *)(void *)(work + l->row_stats);
    bw->dq = work + l->dq;
    bw->ticket_rows = (atomic_llong *)(void *)(work + l->ticket_rows);
    bw->ticket_head = (atomic_llong *)(void *)(work + l->ticket_head);
    bw->ticket_pairs = (atomic_llong *)(void *)(work + l->ticket_pairs);
    atomic_store(&bw->ticket_task, 0);
    if (l->has_strips)
        bw->strips = (double *)(void *)(work + l->strips);
    if (l->has_columns)
        bw->columns = (double *)(void *)(work + l->columns);
    if (l->has_fold) {
        bw->sums_row = (double *)(void *)(work + l->sums_row);
        bw->sums_column = (double *)(void *)(work + l->sums_column);
    }
    for (int n = 0; n <= l->sources.n; n++) {
        if (l->has_vectors[n])
            bw->vectors[n] = (double *)(void *)(work + l->vectors[n]);
        bw->any_head |= l->has_vectors[n] || (n < l->sources.n && l->has_entries[n]) || l->has_strips;
        if (n == l->sources.n)
            break;
        if (l->has_entries[n])
            bw->entries[n] = (double *)(void *)(work + l->entries[n]);
        if (l->has_own[n]) {
            bw->own[n] = work + l->own[n];
            bw->ticket_own[n] = (atomic_llong *)(void *)(work + l->ticket_own[n]);
            serial |= l->sources.source[n].part->query != NULL;
        }
        if (bw->direct[n])
            fill_zero(&c->grads->term[l->sources.source[n].term][0], c->args->term[l->sources.source[n].term][0].len);
    }
    rpi_call_fill(c, &l->sources, &l->rope, work, pool);
    rpi_pool_run(pool, d->batch * d->heads * pieces, stats_task, c);
    const atomic_bool *stop = &c->progress->stop;
    for (c->g0 = 0; c->g0 < kv; c->g0 += l->groups) {
        c->groups = rpi_min(l->groups, kv - c->g0);
        memset(work + l->ticket_rows, 0, (size_t)(l->scratch - l->ticket_rows));
        rpi_columns_fill(c, pool);
        rpi_pool_run_until(pool, c->groups * bw->key_blocks, key_task, c, stop);
        if (atomic_load(stop))
            return;
        if (serial)
            for (int64_t n = 0; n < c->groups * share * pieces; n++)
                rows_task(c, n, 0);
        else if (c->grads->dq.data)
            rpi_pool_run(pool, c->groups * share * pieces, rows_task, c);
    }
    rpi_fold(c);
    rpi_sums_store(&bw->sums, c->plan, c->args, c->grads);
}

/* Whether the given lse is there and says enough. An lse of fewer digits than the arithmetic would be the largest error of every
 * weight; and of a row whose scores are beyond 1e15 any lse has lost the sum. */
static bool is_plain(const rpi_args *args, const rpi_ops *ops)
{
    const rp_desc *d = &args->desc;
    if (!args->lse.data || rpi_floating_size(args->lse.dtype) < ops->real)
        return false;
    for (int64_t b = 0; b < d->batch; b++)
        for (int64_t h = 0; h < d->heads; h++)
            for (int64_t i = 0; i < d->len_q; i++) {
                const double lse = rpi_at(&args->lse, b, h, i, 0);
                if (fabs(lse) > 1e15 && lse != -HUGE_VAL)
                    return false;
            }
    return true;
}

/* The forward pass, where the caller did not keep what it made: out in the type of the arithmetic, lse in two parts. */
static rp_status forward_again(rpi_args *args, const rp_plan *plan, rp_pool *pool, rpi_progress *progress,
                               rpi_arena *memory)
{
    const rp_desc *d = &args->desc;
    const int64_t n[4] = {d->batch, d->heads, d->len_q, d->dim_v}, heads = d->batch * d->heads;
    rpi_view *v[3] = {&args->out, &args->top, &args->log_sum};
    int64_t at[3];
    for (int x = 0; x < 3; x++)
        at[x] = rpi_arena_add(memory, heads, d->len_q, x ? 1 : d->dim_v, x ? 8 : plan->ops->real);
    const rp_status status = rpi_arena_alloc(memory, false, "the forward pass");
    if (status != RP_OK)
        return status;
    for (int x = 0; x < 3; x++) {
        const rp_array a = rp_array_of(memory->base + at[x], x || plan->ops->real == 8 ? RP_F64 : RP_F32, x ? 3 : 4, n);
        memcpy(v[x]->stride, a.stride, sizeof a.stride);
        v[x]->data = a.data;
        v[x]->dtype = a.dtype;
    }
    args->lse.data = NULL;
    return rpi_fast_attend(plan, args, pool, progress, NULL);
}

rp_status rpi_fast_backward(const rp_plan *plan, rpi_args *args, const rpi_grads *grads, rp_pool *pool,
                            rpi_progress *progress, void *work)
{
    const rp_desc *d = &args->desc;
    const int32_t threads = rp_pool_threads(pool);
    layout l;
    rpi_arena scratch = {0}, forward = {0}, own = {0};
    rpi_backward bw = {0};
    rpi_arena_add(&scratch, rpi_max(d->len_q, d->len_k), 1, 1, sizeof(double));
    rp_status status = rpi_arena_alloc(&scratch, false, "the call");
    if (status == RP_OK) {
        lay_out(&l, plan, args, grads, threads, (double *)(void *)scratch.base);
        status = rpi_arena_fits(&l.all, "the call");
    }
    rpi_arena_free(&scratch);
    if (status == RP_OK) {
        bw.blocks = l.back.blocks, bw.pad_rows = l.back.pad_rows, bw.key_blocks = l.back.key_blocks;
        rpi_grads summed = *grads;
        for (int n = 0; n < l.sources.n; n++)
            if (l.sources.source[n].kind == RPI_ROWS && is_direct(args, grads, &l.sources.source[n])) {
                bw.direct[n] = true;
                summed.term[l.sources.source[n].term][0].data = NULL;
            } else if (l.sources.source[n].kind == RPI_ROWS && is_of_pairs(args, grads, &l.sources.source[n])) {
                bw.pairs[n] = bw.any_pairs = true;
            }
        status = rpi_sums_alloc(&bw.sums, plan, args, &summed);
    }
    if (status == RP_OK)
        status = private_sums(&bw, plan, args, grads, &l, threads);
    if (status == RP_OK && work && (size_t)l.all.used > rpi_backward_work_size(plan, threads))
        work = NULL;
    if (status == RP_OK && !work) {
        own = l.all;
        status = rpi_arena_alloc(&own, false, "the call");
        work = own.base;
    }
    progress->total += d->batch * d->kv_heads * bw.key_blocks;
    if (status == RP_OK && (!args->out.data || !is_plain(args, plan->ops)))
        status = forward_again(args, plan, pool, progress, &forward);
    if (status == RP_OK) {
        rpi_call c = {.plan = plan, .args = args, .grads = grads, .progress = progress, .backward = &bw};
        c.pad_k = rpi_round_up(d->len_k, plan->ops->nr);
        c.pad_v = rpi_round_up(d->dim_v, plan->ops->vl);
        c.scratch = (char *)work + l.scratch;
        c.scratch_step = l.scratch_step;
        backward(&c, &l, work, pool);
        status = rpi_progress_status(progress);
    }
    for (int32_t n = 0; bw.private_sums && n < threads; n++)
        rpi_arena_free(&bw.private_sums[n].memory);
    free(bw.private_sums);
    rpi_arena_free(&bw.sums.memory);
    rpi_arena_free(&forward);
    rpi_arena_free(&own);
    return status;
}
