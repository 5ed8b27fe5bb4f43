/* apply.c -- linear_apply and linear_some: check the arguments, prepare the rows of x if the type needs it, and run the
 * product in the thread pool. A task is a block of rows times a range of panels. Independent of particular instruction
 * sets.
 * SPDX-License-Identifier: Apache-2.0 */
#include "linear/ops.h"
#include <pthread.h>
#include <stdlib.h>

/* A call and its division into tasks. */
typedef struct cut {
    const linear_job *j;
    const linear_ops *ops;
    int64_t row_blocks, panels;
    int64_t chunk; /* panels per task */
} cut;

enum { PREPARED_ROWS = 16 }; /* rows of x that one task prepares */

int64_t linear_scratch_bytes(linear_type type, int64_t rows, int64_t in)
{
    int64_t bytes;
    if (linear_packed_bytes(type == LINEAR_BLOCKS ? LINEAR_Q8 : type, in, 1) < 0 || rows < 0)
        return -1;
    const int64_t row =
        linear_prepared_bytes(type, in) + (rows > LINEAR_TILE_ROWS ? linear_grouped_bytes(type, in) : 0);
    return __builtin_mul_overflow(rows, row, &bytes) || bytes > INT64_MAX - LINEAR_ALIGN
               ? -1
               : linear_ceil(bytes, LINEAR_ALIGN) * LINEAR_ALIGN;
}

static bool aligned(const void *p)
{
    return (uintptr_t)p % LINEAR_ALIGN == 0;
}

/* Return true if the bytes of rows * ld floats fit in int64_t. */
static bool fits(int64_t rows, int64_t ld)
{
    int64_t bytes;
    return !__builtin_mul_overflow(rows, ld, &bytes) && !__builtin_mul_overflow(bytes, (int64_t)sizeof(float), &bytes);
}

/* Return true if blocks of a matrix can be used. */
static bool valid_blocks(const linear_weights *w, const linear_blocks *b)
{
    int64_t bytes;
    return w->in > 0 && w->out > 0 && w->in % b->numbers == 0 && linear_uses(b) && w->packed &&
           !__builtin_mul_overflow(w->in / b->numbers * b->bytes, w->out, &bytes);
}

static bool valid(const linear_weights *w, const linear_blocks *b, const linear_call *c)
{
    if (!w || !c)
        return false;
    if (b != NULL ? !valid_blocks(w, b)
                  : linear_packed_bytes(w->type, w->in, w->out) < 0 || !w->packed || !aligned(w->packed))
        return false;
    if ((unsigned)c->then > LINEAR_GELU_ERF || c->rows < 0 || !aligned(c->scratch))
        return false;
    if (c->rows == 0)
        return true;
    return c->x && c->y && (c->rows == 1 || (c->ldx >= w->in && c->ldy >= w->out)) && fits(c->rows, c->ldx) &&
           fits(c->rows, c->ldy) && linear_scratch_bytes(w->type, c->rows, w->in) >= 0;
}

static void prepare_task(void *context, int64_t n, int32_t worker)
{
    const cut *c = context;
    const int64_t row = n * PREPARED_ROWS;
    (void)worker;
    c->ops->prepare(c->j, row, linear_min(PREPARED_ROWS, c->j->rows - row));
}

static void block_task(void *context, int64_t n, int32_t worker)
{
    const cut *c = context;
    const int64_t row = n % c->row_blocks * LINEAR_MAX_ROWS, panel = n / c->row_blocks * c->chunk;
    (void)worker;
    c->ops->block(c->j, row, linear_min(LINEAR_MAX_ROWS, c->j->rows - row), panel,
                  linear_min(c->chunk, c->panels - panel));
}

static bool is_prepared(const linear_job *j)
{
    return j->prepared || j->grouped;
}

/* Run the whole call as one task. */
static void whole_task(void *context, int64_t n, int32_t worker)
{
    const cut *c = context;
    (void)n;
    if (is_prepared(c->j))
        c->ops->prepare(c->j, 0, c->j->rows);
    for (int64_t b = 0; b < c->row_blocks; b++)
        block_task(context, b, worker);
}

/* Calls with fewer multiply-adds run as one task: they end before another thread would have woken up. */
static double short_call = 4e6;

static void read_short(void)
{
    const char *text = getenv("RELPOS_SHORT");
    char *end = NULL;
    const double x = text && *text ? strtod(text, &end) : -1;
    if (end && *end == 0 && x >= 0)
        short_call = x;
}

/* Return true if a call is too short for several threads. Integer products take a quarter of the time of f32
 * products. */
static bool is_short(const linear_job *j)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, read_short);
    const double time = j->type >= LINEAR_INT8 ? 0.25 : 1;
    return time * (double)j->rows * (double)j->in * (double)j->out < short_call;
}

static void run(rp_pool *pool, const linear_job *j, const linear_ops *ops)
{
    cut c = {.j = j, .ops = ops};
    c.row_blocks = linear_ceil(j->rows, LINEAR_MAX_ROWS);
    c.panels = c.chunk = linear_ceil(j->out, LINEAR_PANEL);
    const int64_t threads = rp_pool_threads(pool);
    if (threads == 1 || is_short(j)) {
        rp_pool_run(pool, 1, whole_task, &c);
        return;
    }
    c.chunk = linear_ceil(c.panels, linear_min(c.panels, linear_ceil(4 * threads, c.row_blocks)));
    if (is_prepared(j))
        rp_pool_run(pool, linear_ceil(j->rows, PREPARED_ROWS), prepare_task, &c);
    rp_pool_run(pool, c.row_blocks * linear_ceil(c.panels, c.chunk), block_task, &c);
}

static linear_job job_of(const linear_weights *w, const linear_blocks *b, const float *x)
{
    if (b != NULL)
        return (linear_job){.type = LINEAR_BLOCKS,
                            .rows = 1,
                            .in = w->in,
                            .out = w->out,
                            .x = x,
                            .packed = w->packed,
                            .panel_bytes = w->in / b->numbers * b->bytes * LINEAR_PANEL,
                            .lines = w->in,
                            .blocks = b};
    return (linear_job){.type = w->type,
                        .rows = 1,
                        .in = w->in,
                        .out = w->out,
                        .x = x,
                        .packed = w->packed,
                        .panel_bytes = linear_panel_bytes(w->type, w->in, LINEAR_COLUMNS),
                        .lines = linear_lines(w->type, w->in)};
}

/* Multiply by a packed matrix, or by blocks. */
static rp_status apply(rp_pool *pool, const linear_weights *w, const linear_blocks *blocks, const linear_call *call)
{
    const linear_ops *ops;
    if (!valid(w, blocks, call))
        return RP_E_ARG;
    const rp_status chosen = linear_choose(call->isa, &ops);
    if (chosen != RP_OK || call->rows == 0)
        return chosen;
    const int64_t row = linear_prepared_bytes(w->type, w->in);
    const bool grouped = call->rows > LINEAR_TILE_ROWS && ops->groups(w->type);
    const int64_t bytes = grouped ? linear_scratch_bytes(w->type, call->rows, w->in) : call->rows * row;
    char *own = bytes > 0 && !call->scratch ? aligned_alloc(LINEAR_ALIGN, (size_t)bytes) : NULL;
    if (bytes > 0 && !call->scratch && !own)
        return RP_E_NOMEM;
    linear_job j = job_of(w, blocks, call->x);
    j.then = call->then;
    j.bias = call->bias;
    j.rows = call->rows;
    j.ldx = call->ldx;
    j.ldy = call->ldy;
    j.y = call->y;
    j.row_bytes = row;
    char *scratch = own ? own : call->scratch;
    if (row > 0)
        j.prepared = scratch;
    if (grouped)
        j.grouped = scratch + call->rows * row;
    run(pool, &j, ops);
    free(own);
    return RP_OK;
}

rp_status linear_apply(rp_pool *pool, const linear_weights *w, const linear_call *call)
{
    if (!w || w->type != LINEAR_BLOCKS || !call)
        return apply(pool, w, NULL, call);
    const linear_tensors *tensors = w->packed;
    linear_call c = *call;
    rp_status status = tensors ? RP_OK : RP_E_ARG;
    for (int n = 0; status == RP_OK && n < tensors->n; n++) {
        status = apply(pool, &tensors->each[n].w, tensors->each[n].blocks, &c);
        c.y = c.rows > 0 ? c.y + tensors->each[n].w.out : c.y;
        c.bias = c.bias ? c.bias + tensors->each[n].w.out : NULL;
    }
    return status;
}

rp_status linear_some(const linear_weights *w, const float *x, int64_t n, const int32_t *outputs, float *y,
                      const char *isa)
{
    const linear_ops *ops;
    float sums[LINEAR_COLUMN];
    if (!w || linear_packed_bytes(w->type, w->in, w->out) < 0 || !w->packed || !aligned(w->packed) || n < 0 ||
        (n > 0 && (!x || !outputs || !y)))
        return RP_E_ARG;
    if (w->type >= LINEAR_INT8)
        return RP_E_UNSUPPORTED;
    for (int64_t k = 0; k < n; k++)
        if (outputs[k] < 0 || outputs[k] >= w->out)
            return RP_E_ARG;
    const rp_status chosen = linear_choose(isa, &ops);
    linear_job j = job_of(w, NULL, x);
    if (chosen == RP_OK && n > 0 && w->type == LINEAR_BF16) {
        j.row_bytes = linear_row_bytes(w->type, w->in);
        j.prepared = aligned_alloc(LINEAR_ALIGN, (size_t)j.row_bytes);
        if (!j.prepared)
            return RP_E_NOMEM;
        ops->prepare(&j, 0, 1);
    }
    for (int64_t k = 0, had = -1; chosen == RP_OK && k < n; k++) {
        const int64_t column = outputs[k] / LINEAR_COLUMN;
        if (column != had)
            ops->column(&j, column / LINEAR_COLUMNS, column % LINEAR_COLUMNS, sums);
        had = column;
        y[k] = sums[outputs[k] % LINEAR_COLUMN];
    }
    free(j.prepared);
    return chosen;
}
