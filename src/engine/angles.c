/* engine/angles.c -- derivatives along, and second derivatives by, the frequencies or angles of RoPE. Kernels know
 * nothing of them: with the angle p of a pair x and a turn J by 90 degrees, the tangent of R(p) x is R(p) (x' + p' J
 * x), so the tangents of queries and keys become x' + p' J x before a call (rpi_turns_begin). Let d and t be the
 * derivatives of second order by x and by that sum; t is the gradient of a backward pass. After the call
 * (rpi_turns_finish), the derivative by x is d - p' J t, and that by p is <J x, d> + <J (x' + p' J x), t>.
 * SPDX-License-Identifier: Apache-2.0 */
#include "engine.h"
#include <stdlib.h>
#include <string.h>

/* Rows of one task, and of one sum. */
#define ROWS_PER_TASK 64

/* Return true if one of the learned arrays of RoPE is present. */
static bool any(const rpi_args *args, const rpi_view term[][RP_MAX_ARRAYS])
{
    bool found = false;
    for (int x = RPI_ROPE_FREQUENCIES; x < RPI_ROPE_END; x++)
        found |= term[args->plan->rotate][x].data != NULL;
    return found;
}

static bool has_tangent(const rpi_args *args, const rpi_tangents *given)
{
    return any(args, given->term);
}

static bool has_gradient(const rpi_args *args, const rpi_grads *grads)
{
    return grads && any(args, grads->term);
}

/* Remove the learned arrays of RoPE. */
static void clear(const rpi_args *args, rpi_view term[][RP_MAX_ARRAYS])
{
    for (int x = RPI_ROPE_FREQUENCIES; x < RPI_ROPE_END; x++)
        term[args->plan->rotate][x] = (rpi_view){0};
}

bool rpi_turns(const rpi_args *args, const rpi_tangents *given, const rpi_grads *grads)
{
    return args->plan->rotate >= 0 && (has_tangent(args, given) || has_gradient(args, grads));
}

/* Return the heads of queries or keys, counted over the batch, and the rows of each. */
static int64_t heads_of(const rp_desc *d, bool key, int64_t *rows)
{
    *rows = key ? d->len_k : d->len_q;
    return d->batch * (key ? d->kv_heads : d->heads);
}

static int64_t tasks_of_head(int64_t rows)
{
    return (rows + ROWS_PER_TASK - 1) / ROWS_PER_TASK;
}

/* Make a view of an array [B, H, Lq, Dk], or of keys, in the type of the arithmetic. */
static rpi_view rows_view(const rpi_args *args, bool key, void *data)
{
    const rp_desc *d = &args->desc;
    const int64_t n[4] = {d->batch, key ? d->kv_heads : d->heads, key ? d->len_k : d->len_q, d->dim_k};
    const rp_array a = rp_array_of(data, args->plan->ops->real == 8 ? RP_F64 : RP_F32, 4, n);
    rpi_view v = {.data = data, .dtype = a.dtype};
    memcpy(v.stride, a.stride, sizeof v.stride);
    memcpy(v.len, n, sizeof n);
    return v;
}

/* The tasks of queries or of keys. */
typedef struct turn_job {
    rpi_turns_data *turns;
    bool key;
} turn_job;

/* A row of a task: batch entry, head, kv head, and its number; where the tangents of RoPE's arrays are. */
typedef struct turned_row {
    int64_t b, h, g, n;
    rpi_sums along;
    double sum; /* along.along */
} turned_row;

static void begin_rows(const turn_job *j, int64_t task, turned_row *row, int64_t *past)
{
    const rpi_args *args = j->turns->args;
    const rp_desc *d = &args->desc;
    int64_t rows;
    heads_of(d, j->key, &rows);
    const int64_t head = task / tasks_of_head(rows), heads = j->key ? d->kv_heads : d->heads;
    *row = (turned_row){.b = head / heads, .h = head % heads, .n = task % tasks_of_head(rows) * ROWS_PER_TASK};
    row->g = j->key ? row->h : rpi_kv_head(d, row->h);
    *past = rpi_min(row->n + ROWS_PER_TASK, rows);
    for (int x = RPI_ROPE_FREQUENCIES; x < RPI_ROPE_END; x++)
        row->along.array[x] = rpi_sample(&j->turns->given->term[args->plan->rotate][x], row->b);
}

/* Return the tangent of the angle of pair c. */
static double angle_tangent(const turn_job *j, turned_row *row, int64_t c)
{
    row->sum = 0;
    row->along.along = &row->sum;
    rpi_rope_angle_grad(j->turns->args, j->key, row->b, row->g, row->n, c, 1, &row->along);
    return row->sum;
}

/* Set (*x, *y) to the pair of channels u and v of x' + p' J x. */
static void turned_pair(const turn_job *j, const turned_row *row, double turn, int64_t u, int64_t v, double *x,
                        double *y)
{
    const rpi_args *args = j->turns->args;
    const rpi_view *of = j->key ? &args->k : &args->q, *tangent = j->key ? &j->turns->given->k : &j->turns->given->q;
    *x = rpi_at_or_0(tangent, row->b, row->h, row->n, u);
    *y = rpi_at_or_0(tangent, row->b, row->h, row->n, v);
    if (turn != 0) {
        *x -= turn * rpi_row_value(of, row->b, row->h, row->n, v);
        *y += turn * rpi_row_value(of, row->b, row->h, row->n, u);
    }
}

/* Write the tangents of some rows, x' + p' J x. */
static void turn_task(void *context, int64_t task, int32_t worker)
{
    const turn_job *j = context;
    const rpi_args *args = j->turns->args;
    const rp_term *t = &args->plan->terms[args->plan->rotate];
    const rpi_view *from = j->key ? &j->turns->given->k : &j->turns->given->q,
                   *to = j->key ? &j->turns->tangents.k : &j->turns->tangents.q;
    turned_row row;
    int64_t past;
    (void)worker;
    for (begin_rows(j, task, &row, &past); row.n < past; row.n++) {
        for (int64_t c = 0; c < args->desc.dim_k; c++)
            rpi_put(to->data, to->dtype, rpi_index(to, row.b, row.h, row.n, c),
                    rpi_at_or_0(from, row.b, row.h, row.n, c));
        for (int64_t c = 0; c < t->dim / 2; c++) {
            int64_t u, v;
            double x, y;
            rpi_rotate_channels(t, c, &u, &v);
            turned_pair(j, &row, angle_tangent(j, &row, c), u, v, &x, &y);
            rpi_put(to->data, to->dtype, rpi_index(to, row.b, row.h, row.n, u), x);
            rpi_put(to->data, to->dtype, rpi_index(to, row.b, row.h, row.n, v), y);
        }
    }
}

/* Finish the derivatives of second order of a row. Add those by its angles to `angles`, one for each pair, or, if it is
 * NULL, those by the frequencies to `sums`. */
static void finish_row(const turn_job *j, turned_row *row, double *angles, double *sums)
{
    const rpi_turns_data *turns = j->turns;
    const rpi_args *args = turns->args;
    const rp_term *t = &args->plan->terms[args->plan->rotate];
    const rpi_view *of = j->key ? &args->k : &args->q, *d = j->key ? &turns->second.dk : &turns->second.dq,
                   *first = j->key ? &turns->first.dk : &turns->first.dq,
                   *to = j->key ? &turns->grads->dk : &turns->grads->dq;
    const int64_t b = row->b, h = row->h, n = row->n, pairs = t->dim / 2;
    for (int64_t c = 0; c < args->desc.dim_k && to->data; c++)
        rpi_put(to->data, to->dtype, rpi_index(to, b, h, n, c), rpi_at(d, b, h, n, c));
    for (int64_t c = 0; c < pairs; c++) {
        int64_t u, v;
        double x, y;
        rpi_rotate_channels(t, c, &u, &v);
        const double turn = angle_tangent(j, row, c), du = rpi_at(d, b, h, n, u), dv = rpi_at(d, b, h, n, v),
                     tu = rpi_at(first, b, h, n, u), tv = rpi_at(first, b, h, n, v);
        turned_pair(j, row, turn, u, v, &x, &y);
        const double by = rpi_rotation_grad(rpi_row_value(of, b, h, n, u), rpi_row_value(of, b, h, n, v), du, dv) +
                          rpi_rotation_grad(x, y, tu, tv);
        if (angles)
            angles[c] += by;
        else if (sums)
            rpi_rope_angle_sums(args, j->key, b, n, by, sums + c, pairs);
        if (!to->data || turn == 0)
            continue;
        rpi_put(to->data, to->dtype, rpi_index(to, b, h, n, u), du + turn * tv);
        rpi_put(to->data, to->dtype, rpi_index(to, b, h, n, v), dv - turn * tu);
    }
}

/* Finish the derivatives of second order of some rows. */
static void finish_task(void *context, int64_t task, int32_t worker)
{
    const turn_job *j = context;
    const rpi_turns_data *turns = j->turns;
    const rpi_args *args = turns->args;
    const rp_desc *d = &args->desc;
    const rpi_angle_sums *angles = &turns->angles[j->key];
    const int64_t each = rpi_rope_axes(args) * (args->plan->terms[args->plan->rotate].dim / 2),
                  heads = j->key ? d->kv_heads : d->heads;
    double *sums = turns->sums[j->key] ? turns->sums[j->key] + task * each : NULL;
    turned_row row;
    int64_t past;
    (void)worker;
    if (sums)
        memset(sums, 0, (size_t)each * sizeof *sums);
    begin_rows(j, task, &row, &past);
    const int64_t block = row.n / ROWS_PER_TASK;
    if (angles->array.data)
        rpi_angles_wait(angles, block, row.b, row.h, heads, d->kv_heads);
    for (; row.n < past; row.n++)
        finish_row(j, &row, angles->array.data ? rpi_angles_of(angles, row.b, row.g, row.n) : NULL, sums);
    if (angles->array.data)
        rpi_angles_pass(angles, block, row.b, row.h, heads, d->kv_heads);
}

static void run(rpi_turns_data *turns, rp_pool *pool, void (*task)(void *context, int64_t n, int32_t worker))
{
    for (int key = 0; key < 2; key++) {
        turn_job job = {turns, key};
        int64_t rows;
        const int64_t heads = heads_of(&turns->args->desc, key, &rows);
        rpi_pool_run(pool, heads * tasks_of_head(rows), task, &job);
    }
}

/* Lay out the memory; runs twice, as in forward.c. */
static void lay_out(rpi_turns_data *x, rpi_arena *a)
{
    const rp_desc *d = &x->args->desc;
    const int64_t real = x->args->plan->ops->real,
                  each = rpi_rope_axes(x->args) * (x->args->plan->terms[x->args->plan->rotate].dim / 2);
    for (int key = 0; key < 2; key++) {
        int64_t rows;
        const int64_t heads = heads_of(d, key, &rows);
        rpi_view *const of[3] = {key ? &x->tangents.k : &x->tangents.q, key ? &x->second.dk : &x->second.dq,
                                 key ? &x->first.dk : &x->first.dq};
        for (int n = x->turned ? 0 : 1; n < (x->grads ? 3 : 1); n++)
            *of[n] = rows_view(x->args, key, rpi_arena_take3(a, heads, rows, d->dim_k, real));
        if (!x->grads)
            continue;
        if (rpi_rope_frequencies_given(x->args)->data)
            x->sums[key] = rpi_arena_take3(a, heads, tasks_of_head(rows), each, sizeof(double));
        x->angles[key].blocks = tasks_of_head(rows);
        x->angles[key].ticket =
            rpi_arena_take3(a, d->batch * d->kv_heads, tasks_of_head(rows), 1, sizeof *x->angles[key].ticket);
    }
}

rp_status rpi_turns_begin(rpi_turns_data **turns, const rpi_args *args, const rpi_tangents *given,
                          const rpi_grads *grads, rp_pool *pool)
{
    rpi_turns_data *x = *turns = calloc(1, sizeof *x);
    if (!x)
        return rpi_fail(RP_E_NOMEM, "out of memory: the tangents of RoPE's frequencies need %zu bytes", sizeof *x);
    x->args = args;
    x->given = given;
    x->grads = grads;
    x->tangents = *given;
    x->turned = has_tangent(args, given);
    clear(args, x->tangents.term);
    if (grads) {
        x->second = *grads;
        clear(args, x->second.term);
        x->first.dout = grads->dout;
        x->first.dlse = grads->dlse;
        for (int n = RPI_ROPE_FREQUENCIES; n < RPI_ROPE_END; n++)
            x->arrays.term[args->plan->rotate][n] = grads->term[args->plan->rotate][n];
    }
    lay_out(x, &x->memory);
    const rp_status status = rpi_arena_alloc(&x->memory, true, "the tangents of RoPE's frequencies");
    if (status != RP_OK)
        return status;
    lay_out(x, &x->memory);
    if (x->turned)
        run(x, pool, turn_task);
    return RP_OK;
}

rp_status rpi_turns_finish(rpi_turns_data *x, rp_pool *pool)
{
    const rpi_args *args = x->args;
    uint32_t some[RP_MAX_TERMS] = {0};
    rpi_term_sums sums;
    some[args->plan->rotate] = RPI_ALL_ARRAYS;
    const rp_status status = rpi_sums_alloc(&sums, args, &x->arrays, some, true);
    if (status != RP_OK)
        return status;
    for (int key = 0; key < 2; key++)
        if (rpi_rope_angles_given(args, key) >= 0)
            x->angles[key].array = sums.term[args->plan->rotate].array[rpi_rope_angles_given(args, key)];
    run(x, pool, finish_task);
    if (x->sums[0])
        rpi_reduce_rotation(args, &sums, (const double *[]){x->sums[0], x->sums[1]},
                            (int64_t[]){tasks_of_head(args->desc.len_q), tasks_of_head(args->desc.len_k)});
    rpi_sums_store(&sums, args, &x->arrays);
    rpi_arena_free(&sums.memory);
    return RP_OK;
}

void rpi_turns_end(rpi_turns_data *x)
{
    if (x)
        rpi_arena_free(&x->memory);
    free(x);
}
