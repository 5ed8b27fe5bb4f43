/* engine/backward.c -- one backward call, or one call of second derivatives: its memory and its tasks.
 * SPDX-License-Identifier: Apache-2.0 */
#include "engine.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* kv heads are processed in groups, so that memory has to hold dq of the rotated queries for only one group at a time.
 * A group has enough heads to keep every thread busy, and at least FEW_BYTES of dq. It takes at most MAX_GROUP_BYTES,
 * unless a single head needs more. */
#define MAX_GROUP_BYTES  ((int64_t)32 << 20)
#define FEW_BYTES        ((int64_t)2 << 20)
#define TASKS_PER_THREAD 8
/* Query rows of one task of stats_task and rows_task. */
#define ROWS_PER_TASK 64 /* also those of a sum of rope_q */

/* One backward call. When computing the work size of a plan, it is the largest call that the plan allows. */
typedef struct gradients {
    rpi_call call;
    rpi_sources sources;
    rpi_backward back;
    rpi_arena memory;
    int32_t threads;
    int64_t groups;               /* number of kv heads in a group */
    int64_t call_from, call_to;   /* range of memory.base to zero when the call begins */
    int64_t group_from, group_to; /* range of memory.base to zero when a group begins */
    const rpi_tangents *tangents; /* second derivatives only: given tangents, out and lse computed; else NULL */
    rpi_tangent_calls calls;      /* second derivatives only */
} gradients;

/* Choose the number of kv heads in a group. Use the plan's lengths, so that shorter calls of a flexible plan fit into
 * its work memory. */
static void set_groups(gradients *g)
{
    const rp_plan *plan = g->call.plan;
    const rp_desc *d = &plan->desc;
    const rpi_ops *ops = plan->ops;
    const int64_t kv = d->batch * d->kv_heads, per_kv = d->heads / d->kv_heads,
                  rows = rpi_round_up(d->len_q, ops->block_rows),
                  key_blocks = (d->len_k + ops->backward_keys - 1) / ops->backward_keys;
    int64_t bytes = MAX_GROUP_BYTES; /* size of dq of one kv head */
    if (!rpi_mul(rows, per_kv * rpi_round_up(d->dim_k, ops->vl), ops->real, &bytes))
        g->memory.too_large = true;
    g->groups = (TASKS_PER_THREAD * g->threads + key_blocks) / rpi_max(key_blocks, 1);
    g->groups = rpi_clamp(rpi_max(g->groups, FEW_BYTES / rpi_max(bytes, 1)), 1, rpi_max(kv, 1));
    g->groups = rpi_max(rpi_min(g->groups, MAX_GROUP_BYTES / rpi_max(bytes, 1)), 1);
}

/* Allocate the tickets of given angles of RoPE, and sums for the keys if one array is for both queries and keys. */
static void place_angles(gradients *g)
{
    rpi_backward *bw = &g->back;
    const rp_desc *d = &g->call.plan->desc;
    bw->angles[0].blocks = bw->rope_rows;
    bw->angles[1].blocks = bw->key_blocks;
    for (int key = 0; key < 2; key++) {
        rpi_angle_sums *s = &bw->angles[key];
        s->ticket = rpi_arena_take3(&g->memory, d->batch, d->kv_heads, s->blocks, sizeof *s->ticket);
    }
    bw->rope_k = rpi_arena_take3(&g->memory, g->call.limits->rope_shared, g->call.limits->len_k,
                                 rpi_rotation_angles(&g->call.plan->terms[g->call.plan->rotate]), sizeof(double));
}

/* Let the sums for given angles be those of the call, or others for keys if one array is for queries and keys. */
static void use_angles(gradients *g)
{
    const rpi_call *c = &g->call;
    for (int key = 0; key < 2 && c->limits->rope_angles; key++) {
        rpi_view *v = &g->back.angles[key].array;
        *v = g->back.sums.term[c->plan->rotate].array[rpi_rope_angles_given(c->args, key)];
        if (key && v->data && c->limits->rope_shared)
            v->data = g->back.rope_k;
    }
}

/* Allocate the sums of terms, which are kept for the whole call. */
static void place_sums(gradients *g)
{
    rpi_backward *bw = &g->back;
    const rpi_limits *e = g->call.limits;
    const rp_plan *plan = g->call.plan;
    const rp_desc *d = &plan->desc;
    rpi_arena *a = &g->memory;
    const int64_t heads = d->batch * d->heads, size = sizeof(double),
                  samples = e->per_sample ? d->batch : 1; /* batch entries with sums of their own */
    bool offsets = false, reduces = false;
    bw->ticket_head = rpi_arena_take(a, samples, d->heads, sizeof *bw->ticket_head);
    for (int32_t n = 0; n < d->n_terms; n++)
        offsets |= plan->scheme[n]->form == RPI_OFFSET && e->term[n].wanted;
    for (int n = 0; n < g->call.n_sources; n++) {
        const rpi_source *s = &g->call.source[n];
        const rpi_vectors *v = rpi_vectors_of(s);
        if (s->kind == RPI_STRIP && offsets)
            bw->strips = rpi_arena_take3(a, s->strip.batch_step ? d->batch : samples, d->heads, s->strip.len, size);
        if (s->kind == RPI_STRIP || !e->term[s->term].wanted)
            continue;
        if (s->kind == RPI_GATHER)
            bw->entries[n] = rpi_arena_take3(a, samples, d->heads, s->gather.index.count, size);
        else if (s->kind == RPI_ROWS && s->rows.sums)
            bw->entries[n] = rpi_arena_take3(a, samples, d->heads, s->rows.sums, size);
        else if (s->kind == RPI_COLUMN)
            bw->columns = rpi_arena_take3(a, heads, bw->key_blocks, v->width, size);
        else if (v)
            bw->vectors[n] = rpi_arena_take3(a, samples * d->heads, v->count, v->width, size);
        if (s->kind == RPI_ROWS && s->scheme->reduce && !reduces) { /* all terms with `reduce` read the same sums */
            reduces = true;
            bw->between = rpi_arena_take(a, heads, e->len_k, size);
        }
        bw->any_head |= reduces || bw->entries[n] || bw->vectors[n];
    }
    bw->any_head |= bw->strips != NULL;
    if (e->softcap)
        bw->softcap = rpi_arena_take3(a, heads, bw->key_blocks, RPI_SOFTCAPS, size);
    if (plan->rotate >= 0 && e->term[plan->rotate].wanted) {
        const rp_term *t = &plan->terms[plan->rotate];
        const int64_t pairs = rpi_rotation_axes(t) * (t->dim / 2);
        bw->rope_rows = (bw->rows + ROWS_PER_TASK - 1) / ROWS_PER_TASK;
        if (e->rope_angles) {
            place_angles(g);
            return;
        }
        bw->rope_q = rpi_arena_take3(a, heads * bw->rope_rows, pairs, 1, size);
        bw->rope_k = rpi_arena_take3(a, d->batch * d->kv_heads * bw->key_blocks, pairs, 1, size);
    }
}

/* Allocate the sums of one group: dq, and the gradients of the queries that RUN sources multiply. */
static void place_rows(gradients *g)
{
    rpi_backward *bw = &g->back;
    const rp_plan *plan = g->call.plan;
    rpi_arena *a = &g->memory;
    const int64_t heads = g->groups * (plan->desc.heads / plan->desc.kv_heads), vl = plan->ops->vl;
    bw->ticket_rows = rpi_arena_take(a, heads, bw->blocks, sizeof *bw->ticket_rows);
    bw->dq = rpi_arena_take3(a, heads, bw->rows, rpi_round_up(plan->desc.dim_k, vl), plan->ops->real);
    for (int n = 0; n < g->call.n_sources; n++) {
        const rpi_source *s = &g->call.source[n];
        const bool own =
            s->kind == RPI_RUN &&
            (g->call.limits->dq || (s->run.vectors.product->query && g->call.limits->term[s->term].wanted));
        if (!own)
            continue;
        bw->run_dq[n] = rpi_arena_take3(a, heads, bw->rows, rpi_round_up(s->run.vectors.width, vl), plan->ops->real);
        bw->ticket_run_dq[n] = rpi_arena_take(a, heads, bw->blocks, sizeof *bw->ticket_run_dq[n]);
    }
}

/* Lay out the memory of a call. The first run adds up sizes; once the arena has a base, the second run assigns
 * addresses. */
static void place(gradients *g)
{
    rpi_call *c = &g->call;
    rpi_backward *bw = &g->back;
    const rp_desc *d = &c->plan->desc;
    rpi_arena *a = &g->memory;
    rpi_sources_place(&g->sources, a, c->plan, c->limits, g->groups * (d->heads / d->kv_heads), true);
    if (g->tangents)
        rpi_tangents_place(&g->calls, a, g->groups * (d->heads / d->kv_heads), true);
    rpi_rope_tables_place(&c->rope, a, c->plan, c->limits);
    bw->row_stats = rpi_arena_take3(a, d->batch * d->heads, c->limits->rows, RPI_ROW_STATS, sizeof(double));
    if (c->starts)
        bw->bounds = rpi_arena_take3(a, d->batch * d->heads, bw->blocks, 2, sizeof(double));
    g->call_from = a->used;
    bw->ticket_pairs = rpi_arena_take(a, bw->blocks, bw->key_blocks, sizeof *bw->ticket_pairs);
    place_sums(g);
    g->call_to = g->group_from = a->used;
    place_rows(g);
    g->group_to = a->used;
    c->scratch = rpi_arena_take(a, g->threads, c->scratch_step, 1);
}

/* Give the calls of the tangents what they share with the call. */
static void share_call(gradients *g)
{
    rpi_call *const of[2] = {&g->calls.jvp.inputs, &g->calls.jvp.arrays};
    for (int n = 0; n < 2; n++) {
        of[n]->grads = g->call.grads;
        of[n]->rope = g->call.rope;
    }
}

/* Set the kv heads of the group that begins at c->g0. If the batch entries have tangents of their own, let it end with
 * the entry, and fill the sources of its tangents. */
static void open_group(gradients *g, rp_pool *pool)
{
    rpi_call *c = &g->call;
    const rp_desc *d = &c->args->desc;
    c->groups = rpi_min(g->groups, d->batch * d->kv_heads - c->g0);
    if (!g->tangents)
        return;
    const int64_t entries = rpi_tangent_entries(&g->calls), heads = entries * d->kv_heads;
    if (c->g0 % heads == 0)
        rpi_tangents_fill(&g->calls, c->g0 / d->kv_heads, pool);
    c->groups = rpi_min(c->groups, heads - c->g0 % heads);
}

/* Set everything in a call except memory addresses, and add up the size of its memory. */
static void begin(gradients *g, const rp_plan *plan, const rpi_limits *e, const rpi_args *args, int32_t threads)
{
    const rpi_ops *ops = plan->ops;
    memset(&g->back, 0, sizeof g->back);
    g->memory = (rpi_arena){0};
    g->threads = threads;
    rpi_call_begin(&g->call, &g->sources, plan, e, args);
    g->call.backward = &g->back;
    if (g->tangents)
        rpi_tangents_begin(&g->calls, &g->call, g->tangents);
    g->back.blocks = (e->rows + ops->block_rows - 1) / ops->block_rows;
    g->back.rows = e->rows;
    g->back.key_blocks = (g->call.packed_k + ops->backward_keys - 1) / ops->backward_keys;
    set_groups(g);
    g->call.scratch_step = ops->backward_size(&g->call);
    place(g);
}

/* Return the bytes that the plan's largest call needs in addition to *g, or 0 after rpi_fail. Overwrite *g. */
static size_t longest(gradients *g, const rp_plan *plan, int32_t threads)
{
    begin(g, plan, &plan->bounds, NULL, threads);
    return rpi_arena_fits(&g->memory, "a backward call") == RP_OK ? (size_t)g->memory.used : 0;
}

size_t rpi_backward_work_size(const rp_plan *plan, int32_t threads)
{
    gradients *g = rpi_arguments_alloc(sizeof *g);
    if (g)
        g->tangents = NULL;
    const size_t size = g ? longest(g, plan, threads) : 0;
    free(g);
    return size ? size + rpi_arguments_bytes(sizeof *g) : 0;
}

/* ---------------------------------------------------------------------------------------------- the tasks */

/* Two doubles, integers of the same size, or floats: vectors that every processor has, so comparisons need no branch.
 * They are aligned only like an element. */
typedef double two __attribute__((vector_size(16), aligned(8), may_alias));
typedef int64_t two_bits __attribute__((vector_size(16), aligned(8), may_alias));
typedef float two_floats __attribute__((vector_size(8), aligned(4), may_alias));

/* Load elements x … x+n-1 of a row into y, n <= 8. Set the other lanes to 0. */
static inline void load_eight(two y[4], const char *row, rp_dtype dtype, int64_t x, int64_t n)
{
    for (int k = 0; k < 4; k++)
        y[k] = dtype == RP_F32 && n == 8
                   ? __builtin_convertvector(*(const two_floats *)(const void *)(row + 4 * x + 8 * k), two)
                   : (two){0};
    if (dtype != RP_F32 || n != 8)
        rpi_load_f64((double *)y, row + x * rpi_floating_size(dtype), dtype, n);
}

/* Return the number of tasks of a head that compute ROWS_PER_TASK rows each. */
static int64_t row_tasks(const rpi_call *c)
{
    return (c->args->row_to - c->args->row_from + ROWS_PER_TASK - 1) / ROWS_PER_TASK;
}

/* Find the head and the rows [*from, *to) of task n. */
static int64_t rows_of_task(const rpi_call *c, int64_t n, int64_t *from, int64_t *to)
{
    *from = c->args->row_from + n % row_tasks(c) * ROWS_PER_TASK;
    *to = rpi_min(*from + ROWS_PER_TASK, c->args->row_to);
    return n / row_tasks(c);
}

/* Return the product of row i of dout with that of out or of its tangent. These are 0 in a row without a key, where
 * dout may be anything. */
static double product_of_rows(const rpi_view *dout, const rpi_view *out, int64_t b, int64_t h, int64_t i, int64_t width)
{
    const void *one = rpi_row_of(dout, b, h, i), *other = rpi_row_of(out, b, h, i);
    two sum[4] = {{0}};
    for (int64_t x = 0; x < width; x += 8) {
        two y[4], z[4];
        load_eight(y, one, dout->dtype, x, rpi_min(8, width - x));
        load_eight(z, other, out->dtype, x, rpi_min(8, width - x));
        for (int k = 0; k < 4; k++)
            sum[k] += (two)((two_bits)(z[k] != 0) & (two_bits)(y[k] * z[k]));
    }
    const two even = sum[0] + sum[2], odd = sum[1] + sum[3];
    return even[0] + even[1] + (odd[0] + odd[1]);
}

/* Fill row_stats for ROWS_PER_TASK rows of one head: the maximum and log_sum (or lse and 0 if only lse is given),
 * <dout, out> - dlse, and for second derivatives the products with the tangents. */
static void stats_task(void *context, int64_t n, int32_t worker)
{
    const rpi_call *c = context;
    const rp_desc *d = &c->args->desc;
    int64_t from, end;
    const int64_t head = rows_of_task(c, n, &from, &end), b = head / d->heads, h = head % d->heads;
    (void)worker;
    for (int64_t i = from; i < end; i++) {
        double *to = rpi_row_stats(c, head, i);
        const bool exact = c->args->row_max.data; /* forward_again computed lse as two numbers */
        to[0] = rpi_at(exact ? &c->args->row_max : &c->args->lse, b, h, i, 0);
        to[1] = exact ? rpi_at(&c->args->log_sum, b, h, i, 0) : 0;
        const bool some = to[0] != -HUGE_VAL;
        to[2] = some ? product_of_rows(&c->grads->dout, &c->args->out, b, h, i, d->dim_v) : 0;
        if (c->grads->dlse.data && some)
            to[2] -= rpi_at(&c->grads->dlse, b, h, i, 0);
        if (!c->jvp)
            continue;
        to[3] = rpi_at(&c->jvp->tangents->lse, b, h, i, 0);
        to[4] = some ? product_of_rows(&c->grads->dout, &c->jvp->tangents->out, b, h, i, d->dim_v) : 0;
    }
}

/* Compute the bounds of one block of rows for kernels/skip.h. A tile may be skipped only if ds is 0 wherever the weight
 * is 0, so the bound is -infinity unless the inputs checked here are moderate. */
static void bounds_task(void *context, int64_t n, int32_t worker)
{
    const rpi_call *c = context;
    const rp_desc *d = &c->args->desc;
    const int64_t rows = c->plan->ops->block_rows, head = n / c->backward->blocks, b = head / d->heads,
                  h = head % d->heads, first = c->args->row_from + n % c->backward->blocks * rows;
    double *to = c->backward->bounds + 2 * n;
    (void)worker;
    to[0] = 0;
    to[1] = HUGE_VAL;
    for (int64_t i = first; i < rpi_min(first + rows, c->args->row_to); i++) {
        const double *stats = rpi_row_stats(c, head, i);
        const double lse = (stats[0] == -HUGE_VAL ? 0 : stats[0]) + stats[1],
                     norm = rpi_row_norm(&c->args->q, b, h, i, d->dim_k);
        const double scaled = norm * fabs(d->scale);
        const bool moderate = norm <= (double)RPI_MODERATE && scaled <= (double)RPI_MODERATE &&
                              rpi_row_norm(&c->grads->dout, b, h, i, d->dim_v) <= (double)RPI_MODERATE &&
                              fabs(stats[2]) <= (double)RPI_MODERATE * (double)RPI_MODERATE && !isnan(lse);
        to[0] = fmax(to[0], scaled);
        to[1] = moderate ? fmin(to[1], lse) : -HUGE_VAL;
    }
}

/* Compute the gradients of a block of keys of one kv head: call `backward` (kernels/backward_task.h). */
static void key_task(void *context, int64_t n, int32_t worker)
{
    const rpi_call *c = context;
    c->plan->ops->backward(c, n / c->backward->key_blocks, n % c->backward->key_blocks, worker);
    rpi_progress_step(c->progress);
}

static double real_at(const rpi_call *c, const void *data, int64_t at)
{
    return c->plan->ops->real == 8 ? ((const double *)data)[at] : (double)((const float *)data)[at];
}

/* Add the gradient of the angles of query i to the sums for given angles or for RoPE's frequencies. dq is that of the
 * unrotated query. */
static void add_angles(const rpi_call *c, int64_t b, int64_t h, int64_t i, const double *dq)
{
    const rp_term *rotate = &c->plan->terms[c->plan->rotate];
    const rpi_angle_sums *angles = &c->backward->angles[0];
    const int64_t task = (i - c->args->row_from) / ROWS_PER_TASK, pairs = rotate->dim / 2;
    double *to = angles->array.data
                     ? rpi_angles_of(angles, b, rpi_kv_head(&c->args->desc, h), i)
                     : c->backward->rope_q + ((b * c->args->desc.heads + h) * c->backward->rope_rows + task) *
                                                 rpi_rope_axes(c->args) * pairs;
    for (int64_t p = 0; p < pairs; p++) {
        int64_t u, v;
        rpi_rotate_channels(rotate, p, &u, &v);
        const double x = rpi_at(&c->args->q, b, h, i, u), y = rpi_at(&c->args->q, b, h, i, v);
        const double by = rpi_rotation_grad(x, y, dq[u], dq[v]);
        if (angles->array.data)
            to[p] += by;
        else
            rpi_rope_angle_sums(c->args, false, b, i, by, to + p, pairs);
    }
}

/* Rotate the gradient of query i back, and add that of its angles. `rope` has the cosines and sines of the rows. */
static void unrotate(const rpi_call *c, int64_t b, int64_t h, int64_t i, const void *rope, double *row)
{
    const rp_term *t = &c->plan->terms[c->plan->rotate];
    const bool wanted = c->limits->rope_wanted[0], channels = rpi_rotates_channels(t);
    for (int64_t p = 0; p < t->dim / 2; p++) {
        int64_t u, v;
        double turn[4];
        rpi_rotate_channels(t, p, &u, &v);
        const int64_t n = channels ? 4 : 2, at = i * rpi_rotation_width(t) + n * p;
        for (int64_t x = 0; x < n; x++)
            turn[x] = real_at(c, rope, at + x);
        if (!channels) {
            rpi_rotate(&row[u], &row[v], turn[0], -turn[1]);
            continue;
        }
        if (wanted) {
            double *to = rpi_angles_of(&c->backward->angles[0], b, rpi_kv_head(&c->args->desc, h), i), by[2];
            rpi_turn_grad(rpi_at(&c->args->q, b, h, i, u), rpi_at(&c->args->q, b, h, i, v), row[u], row[v], turn, by);
            to[u - rpi_rotation_first(t)] += by[0];
            to[v - rpi_rotation_first(t)] += by[1];
        }
        rpi_turn(&row[u], &row[v], turn, true);
    }
    if (wanted && !channels)
        add_angles(c, b, h, i, row);
}

/* Finish dq of rows [row0, row1) of one head: scale it, rotate it back, and add the gradients of the queries from RUN
 * sources. */
static void rows_of_head(const rpi_call *c, int64_t head, int64_t row0, int64_t row1, double *row)
{
    const rp_desc *d = &c->args->desc;
    const rpi_backward *bw = c->backward;
    const rpi_view *dq = &c->grads->dq;
    const int64_t wide = rpi_round_up(d->dim_k, c->plan->ops->vl);
    int64_t b, h;
    rpi_head_at(c, head, &b, &h);
    const void *rope = rpi_rope_of(c, false, b, rpi_kv_head(d, h));
    for (int64_t i = row0; i < row1; i++) {
        const int64_t sums_row = head * bw->rows + i - c->args->row_from;
        const char *dq_row = (const char *)bw->dq + sums_row * wide * c->plan->ops->real;
        rpi_load_f64(row, dq_row, c->plan->ops->real == 8 ? RP_F64 : RP_F32, d->dim_k);
        int64_t x0 = 0; /* adding 0 turns -0 into 0, as it would be if another tile had added a 0 */
        for (; x0 + 2 <= d->dim_k; x0 += 2)
            *(two *)(row + x0) = (*(const two *)(row + x0) + 0.0) * d->scale;
        for (; x0 < d->dim_k; x0++)
            row[x0] = (row[x0] + 0.0) * d->scale;
        if (rope)
            unrotate(c, b, h, i, rope, row);
        for (int n = 0; n < c->n_sources; n++) {
            const rpi_source *s = &c->source[n];
            if (!bw->run_dq[n])
                continue;
            const rpi_pair p = rpi_pair_of(c->args, s->term, b, h, i);
            const rpi_vectors *vectors = &s->run.vectors;
            const int64_t at = sums_row * rpi_round_up(vectors->width, c->plan->ops->vl);
            rpi_sums to = bw->sums.term[s->term];
            for (int x = 0; x < RP_MAX_ARRAYS; x++)
                to.array[x] = rpi_sample(&to.array[x], b);
            to.q = row;
            for (int64_t x = 0; x < vectors->width; x++) {
                const double g = vectors->factor * real_at(c, bw->run_dq[n], at + x);
                if (vectors->product->query)
                    vectors->product->query_grad(&p, x, g, &to);
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
    int64_t from, to;
    const int64_t head = rows_of_task(c, n, &from, &to);
    const rp_desc *d = &c->args->desc;
    const rpi_angle_sums *angles = &c->backward->angles[0];
    int64_t b, h;
    rpi_head_at(c, head, &b, &h);
    if (angles->array.data)
        rpi_angles_wait(angles, n % row_tasks(c), b, h, d->heads, d->kv_heads);
    rows_of_head(c, head, from, to, (double *)(void *)(c->scratch + worker * c->scratch_step));
    if (angles->array.data)
        rpi_angles_pass(angles, n % row_tasks(c), b, h, d->heads, d->kv_heads);
}

/* Copy the sums of ROWS_PER_TASK rows of one head from dq_in (in) or to dq_out: dq of the rotated queries, then the
 * gradients of the queries of each RUN source. */
static void copy_rows(const rpi_call *c, int64_t n, bool in)
{
    const rpi_backward *bw = c->backward;
    const rpi_view *v = in ? &c->grads->dq_in : &c->grads->dq_out;
    int64_t b, h, from, to;
    const int64_t head = rows_of_task(c, n, &from, &to), real = c->plan->ops->real, vl = c->plan->ops->vl;
    rpi_head_at(c, head, &b, &h);
    for (int64_t i = from; i < to; i++) {
        char *state = (char *)v->data + rpi_index(v, b, h, i, 0) * real;
        for (int s = -1; s < c->n_sources; s++) {
            char *sums = s < 0 ? bw->dq : bw->run_dq[s];
            const int64_t width = s < 0 ? c->args->desc.dim_k : c->source[s].run.vectors.width;
            if (!sums)
                continue;
            char *row = sums + (head * bw->rows + i - c->args->row_from) * rpi_round_up(width, vl) * real;
            memcpy(in ? row : state, in ? state : row, (size_t)(width * real));
            state += width * real;
        }
    }
}

static void load_rows_task(void *context, int64_t n, int32_t worker)
{
    (void)worker;
    copy_rows(context, n, true);
}

static void save_rows_task(void *context, int64_t n, int32_t worker)
{
    (void)worker;
    copy_rows(context, n, false);
}

/* ---------------------------------------------------------------------------------------------- the call */

__attribute__((noinline)) int64_t rpi_backward_width(const rp_plan *plan, bool keys)
{
    rpi_sources sources;
    const rp_desc *d = &plan->desc;
    int64_t run = 0;
    bool plain = false, column = false;
    rpi_sources_describe(&sources, plan, &plan->bounds);
    for (int n = 0; n < sources.n; n++) {
        const rpi_source *s = &sources.source[n];
        run += s->kind == RPI_RUN ? s->run.vectors.width : 0;
        column |= s->kind == RPI_COLUMN;
        plain |= s->kind == RPI_KEYS || s->kind == RPI_COLUMN;
    }
    return keys ? d->dim_k + d->dim_v + (plain ? d->dim_k : 0) + (column ? 8 / plan->ops->real : 0) : d->dim_k + run;
}

/* Set elements [from, to) of each row of a gradient with a row for each query to 0; in rows that the call does not
 * compute, all elements, unless the gradient has only the rows that it computes. */
static void clear_keys(const rpi_call *c, const rpi_view *v, int64_t from, int64_t to)
{
    const rp_desc *d = &c->args->desc;
    for (int64_t x = 0; x < d->batch * d->heads * d->len_q; x++) {
        const int64_t i = x % d->len_q, head = x / d->len_q;
        const bool outside = i < c->args->row_from || i >= c->args->row_to;
        if (outside && v->len[2] != d->len_q)
            continue;
        for (int64_t j = outside ? 0 : from; j < (outside ? d->len_k : to); j++)
            rpi_put(v->data, v->dtype,
                    head / d->heads * v->sample_step + rpi_index(v, head / d->heads, head % d->heads, i, j), 0);
    }
}

/* In a call over ranges of rows or keys, set the elements outside to 0 in gradients that tasks write directly. */
static void clear_outside(const rpi_call *c)
{
    for (int n = 0; n < c->n_sources; n++) {
        if (!c->backward->direct[n])
            continue;
        const rpi_view *v = &c->grads->term[c->source[n].term][0];
        clear_keys(c, v, 0, c->args->key_from);
        clear_keys(c, v, c->args->key_to, c->args->desc.len_k);
    }
}

/* Find bias arrays with one element for each pair of query and key. If each head of each batch entry has its own
 * elements, tasks write the gradient directly to the output (direct). If they share elements, tasks take turns adding
 * to sums (pairs). */
static void set_pairs(gradients *g, const rpi_grads *grads)
{
    const rp_desc *d = &g->call.args->desc;
    for (int n = 0; n < g->call.n_sources; n++) {
        const rpi_source *s = &g->call.source[n];
        const int64_t *len = s->kind == RPI_ROWS ? g->call.args->term[s->term][0].len : NULL;
        if (!len || !s->scheme->in_place || !grads->term[s->term][0].data || len[2] != d->len_q || len[3] != d->len_k)
            continue;
        g->back.direct[n] = (len[0] == d->batch || grads->term[s->term][0].per_sample) && len[1] == d->heads;
        g->back.pairs[n] = !g->back.direct[n];
        g->back.any_pairs |= g->back.pairs[n];
    }
}

/* Allocate separate sums for each worker, for terms whose gradient is computed pair by pair. */
static rp_status alloc_private_sums(gradients *g, const rpi_grads *grads)
{
    rpi_backward *bw = &g->back;
    uint32_t some[RP_MAX_TERMS] = {0};
    bool any = false;
    for (int n = 0; n < g->call.n_sources; n++) {
        const rpi_source *s = &g->call.source[n];
        if (s->kind != RPI_ROWS || bw->direct[n] || bw->pairs[n] || s->rows.sums || s->scheme->reduce ||
            !g->call.limits->term[s->term].wanted)
            continue;
        some[s->term] = RPI_ALL_ARRAYS;
        any = true;
    }
    for (int32_t n = 0; g->tangents && n < g->call.plan->desc.n_terms; n++)
        if (g->call.plan->scheme[n]->tangent_grad && g->call.limits->term[n].wanted) {
            some[n] = RPI_ALL_ARRAYS;
            any = true;
        }
    if (!any)
        return RP_OK;
    bw->private_sums = calloc((size_t)g->threads, sizeof *bw->private_sums);
    rp_status status =
        bw->private_sums
            ? RP_OK
            : rpi_fail(RP_E_NOMEM, "out of memory: the sums of %d threads need %zu bytes; use fewer threads",
                       (int)g->threads, (size_t)g->threads * sizeof *bw->private_sums);
    for (int32_t n = 0; status == RP_OK && n < g->threads; n++)
        status = rpi_sums_alloc(&bw->private_sums[n], g->call.args, grads, some, false);
    return status;
}

/* Allocate sums for the terms' arrays, except for arrays whose gradients tasks write directly to the output. */
static rp_status alloc_sums(gradients *g, const rpi_grads *grads)
{
    uint32_t summed[RP_MAX_TERMS];
    memset(summed, 0xff, sizeof summed);
    for (int n = 0; n < g->call.n_sources; n++)
        if (g->back.direct[n])
            summed[g->call.source[n].term] &= ~1u;
    const rp_status status = rpi_sums_alloc(&g->back.sums, g->call.args, grads, summed, true);
    return status == RP_OK ? alloc_private_sums(g, grads) : status;
}

static void free_sums(gradients *g)
{
    for (int32_t n = 0; g->back.private_sums && n < g->threads; n++)
        rpi_arena_free(&g->back.private_sums[n].memory);
    free(g->back.private_sums);
    rpi_arena_free(&g->back.sums.memory);
}

/* Set the sums of a group to zero, and all of its tickets. */
static void clear_group(gradients *g)
{
    memset(g->memory.base + g->group_from, 0, (size_t)(g->group_to - g->group_from));
}

/* Add the sums sum_j w dp of the group's rows to row_stats, as far as dp does not come from dout. Return false if the
 * call has been cancelled. */
static bool add_weight_sums(gradients *g, rp_pool *pool)
{
    rpi_call *c = &g->call;
    g->back.sums_only = true;
    rpi_pool_run_until(pool, c->groups * g->back.key_blocks, key_task, c, &c->progress->stop);
    g->back.sums_only = false;
    clear_group(g);
    return !atomic_load(&c->progress->stop);
}

/* Run the call. It cannot fail, because all memory is already allocated. */
static void backward(gradients *g, rp_pool *pool)
{
    rpi_call *c = &g->call;
    rpi_backward *bw = &g->back;
    const rp_desc *d = &c->args->desc;
    const int64_t kv = d->batch * d->kv_heads, per_kv = d->heads / d->kv_heads, tasks = row_tasks(c);
    const atomic_bool *stop = &c->progress->stop;
    bool serial = false; /* run rows_task on one thread, because rows of all heads add to one array */
    memset(g->memory.base + g->call_from, 0, (size_t)(g->call_to - g->call_from));
    for (int n = 0; n < c->n_sources; n++) {
        const rpi_source *s = &c->source[n];
        serial |= bw->run_dq[n] && s->run.vectors.product->query;
    }
    use_angles(g);
    rpi_call_fill(c, &g->sources, pool);
    if (g->tangents) {
        share_call(g);
        c->skips = false; /* its bounds know nothing of tangents */
    }
    if (c->grads->of_weights) /* dp may be infinite where the weight is 0 */
        c->skips = false;
    if (rpi_is_range(c->args))
        clear_outside(c);
    rpi_pool_run(pool, d->batch * d->heads * tasks, stats_task, c);
    if (c->skips)
        rpi_pool_run(pool, d->batch * d->heads * bw->blocks, bounds_task, c);
    for (c->g0 = 0; c->g0 < kv; c->g0 += c->groups) {
        open_group(g, pool);
        clear_group(g);
        if (g->tangents)
            rpi_tangents_columns(&g->calls, pool);
        else
            rpi_columns_fill(c, pool);
        if (c->grads->of_weights && !add_weight_sums(g, pool))
            return;
        if (c->grads->dq_in.data)
            rpi_pool_run(pool, c->groups * per_kv * tasks, load_rows_task, c);
        rpi_pool_run_until(pool, c->groups * bw->key_blocks, key_task, c, stop);
        if (atomic_load(stop))
            return;
        if (c->grads->dq_out.data)
            rpi_pool_run(pool, c->groups * per_kv * tasks, save_rows_task, c);
        else if (serial)
            for (int64_t n = 0; n < c->groups * per_kv * tasks; n++)
                rows_task(c, n, 0);
        else if (c->grads->dq.data || c->limits->rope_wanted[0])
            rpi_pool_run(pool, c->groups * per_kv * tasks, rows_task, c);
    }
    rpi_reduce(c); /* compute the gradients of the terms' arrays from the sums (reduce.c) */
    rpi_sums_store(&bw->sums, c->args, c->grads);
}

/* Return true if lse is given and precise enough. If its type has fewer digits than the arithmetic, or its magnitude
 * exceeds rpi_lse_limit, its rounding would dominate the error of every weight. */
static bool lse_serves(const rpi_args *args, const rpi_ops *ops)
{
    const rp_desc *d = &args->desc;
    if (!args->lse.data || rpi_floating_size(args->lse.dtype) < ops->real)
        return false;
    for (int64_t b = 0; b < d->batch; b++)
        for (int64_t h = 0; h < d->heads; h++)
            for (int64_t i = args->row_from; i < args->row_to; i++) {
                const double lse = rpi_at(&args->lse, b, h, i, 0);
                if (fabs(lse) > rpi_lse_limit(d) && lse != -HUGE_VAL)
                    return false;
            }
    return true;
}

/* Let a forward pass write out in the arithmetic type, and lse as two numbers: the maximum and the log of the sum. */
static rp_status alloc_outputs(rpi_args *args, rpi_arena *memory)
{
    const rp_desc *d = &args->desc;
    const int64_t n[4] = {d->batch, d->heads, d->len_q, d->dim_v}, heads = d->batch * d->heads,
                  real = args->plan->ops->real;
    rpi_view *v[3] = {&args->out, &args->row_max, &args->log_sum};
    int64_t at[3];
    for (int x = 0; x < 3; x++)
        at[x] = rpi_arena_add(memory, heads, d->len_q, x ? 1 : d->dim_v, x ? 8 : real);
    const rp_status status = rpi_arena_alloc(memory, false, "the forward pass");
    if (status != RP_OK)
        return status;
    for (int x = 0; x < 3; x++) {
        const rp_array a = rp_array_of(memory->base + at[x], x || real == 8 ? RP_F64 : RP_F32, x ? 3 : 4, n);
        memcpy(v[x]->stride, a.stride, sizeof a.stride);
        v[x]->data = a.data;
        v[x]->dtype = a.dtype;
    }
    args->lse.data = NULL;
    return RP_OK;
}

/* Run the forward pass again, because the caller has not given usable outputs of it. */
static rp_status forward_again(rpi_args *args, rp_pool *pool, rpi_progress *progress, rpi_arena *memory)
{
    const rp_status status = alloc_outputs(args, memory);
    return status == RP_OK ? rpi_fast_attend(args, pool, progress, NULL) : status;
}

rp_status rpi_fast_backward(rpi_args *args, const rpi_grads *grads, rp_pool *pool, rpi_progress *progress, void *work)
{
    const int32_t threads = rp_pool_threads(pool);
    rpi_limits limits;
    rpi_arena forward = {0};
    const bool again = !args->out.data || !lse_serves(args, args->plan->ops);
    if (again && (rpi_is_range(args) || grads->dkv_in.data || grads->dkv_out.data))
        return rpi_fail(RP_E_ARG,
                        "out or lse is missing or too imprecise, or lse is too large; ranges, dkv_in and "
                        "dkv_out need both, of the whole rows, with lse in the type of the arithmetic or f64");
    gradients *g = work ? work : rpi_arguments_alloc(sizeof *g);
    if (!g)
        return RP_E_NOMEM;
    g->tangents = NULL;
    const size_t size = work ? longest(g, args->plan, threads) : 0;
    rpi_limits_of(&limits, args, grads);
    begin(g, args->plan, &limits, args, threads);
    g->call.grads = grads;
    g->call.progress = progress;
    set_pairs(g, grads);
    progress->total += (grads->of_weights ? 2 : 1) * args->desc.batch * args->desc.kv_heads * g->back.key_blocks;
    /* Allocate memory first, so that a call that cannot finish writes nothing. */
    rp_status status = rpi_work_begin(&g->memory, work ? (char *)work + rpi_arguments_bytes(sizeof *g) : NULL, size);
    if (status == RP_OK)
        status = alloc_sums(g, grads);
    if (status == RP_OK && again)
        status = forward_again(args, pool, progress, &forward);
    if (status == RP_OK) {
        place(g);
        backward(g, pool);
        status = rpi_progress_status(progress);
    }
    free_sums(g);
    rpi_arena_free(&forward);
    rpi_arena_free(&g->memory);
    if (!work)
        free(g);
    return status;
}

/* ---------------------------------------------------------------------------------------------- second derivatives */

/* Compute the gradients from the results of the forward passes. */
static rp_status second_pass(gradients *g, const rpi_args *args, const rpi_grads *grads, rp_pool *pool,
                             rpi_progress *progress)
{
    rpi_limits limits;
    rpi_limits_of(&limits, args, grads);
    begin(g, args->plan, &limits, args, rp_pool_threads(pool));
    g->call.grads = grads;
    g->call.progress = progress;
    set_pairs(g, grads);
    progress->total += args->desc.batch * args->desc.kv_heads * g->back.key_blocks;
    rp_status status = rpi_work_begin(&g->memory, NULL, 0);
    if (status == RP_OK)
        status = alloc_sums(g, grads);
    if (status == RP_OK) {
        place(g);
        backward(g, pool);
        status = rpi_progress_status(progress);
    }
    free_sums(g);
    rpi_arena_free(&g->memory);
    return status;
}

rp_status rpi_fast_hvp(const rpi_args *args, const rpi_ops *ops, const rpi_tangents *tangents, const rpi_grads *grads,
                       rp_pool *pool, rpi_progress *progress, uint8_t *plain)
{
    struct {
        rp_plan plan;
        gradients g;
        rpi_args args;
    } *own = rpi_arguments_alloc(sizeof *own);
    rpi_arena memory = {0};
    if (!own)
        return RP_E_NOMEM;
    rpi_use_ops(&own->plan, &own->args, args, ops);
    rpi_turns_data *turns = NULL;
    rp_status status = alloc_outputs(&own->args, &memory);
    if (status == RP_OK && rpi_turns(args, tangents, grads))
        status = rpi_turns_begin(&turns, &own->args, tangents, grads, pool);
    own->g.tangents = turns ? &turns->tangents : tangents;
    if (status == RP_OK)
        status = rpi_fast_jvp(&own->args, ops, own->g.tangents, pool, progress, plain);
    const bool fast = status == RP_OK && !rpi_leaves_rows(&args->desc, plain);
    if (fast)
        status = second_pass(&own->g, &own->args, turns ? &turns->second : grads, pool, progress);
    if (fast && status == RP_OK && turns) {
        own->g.tangents = NULL;
        status = second_pass(&own->g, &own->args, &turns->first, pool, progress);
        if (status == RP_OK)
            status = rpi_turns_finish(turns, pool);
    }
    rpi_turns_end(turns);
    rpi_arena_free(&memory);
    free(own);
    return status;
}
