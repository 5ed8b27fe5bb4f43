/* screen.c -- bounds of a product with weights of f32 or bf16 from 8 bits of each of them. A caller that looks for the
 * largest output alone reads those, and of W itself only the rows that may have it.
 * It may not know instruction sets or models.
 *
 * x is first rounded where linear_apply rounds it: for W of bf16, whose packed numbers and sums have no subnormal ones.
 * With W = Ŵ + F as int8 packs it, and x = x̃ + r, x̃ = s₁ p₁ + s₂ p₂ for integers p from -127 to 127,
 *
 *   x · w = x̃ · ŵ + x̃ · f + r · w      and by Cauchy and Schwarz |x · w - x̃ · ŵ| <= |x̃| |f| + |r| |w|.
 *
 * Both products of integers are exact up to two roundings each, and three more make bounds of them: 16 u size |ŵ| is more
 * than all, with u = 2^-24, |ŵ| <= |w| + |f| and |x̃| <= size = |s₁ p₁| + |s₂ p₂|. linear_apply's own chain of n sums is off
 * by γ Σ|x w| <= γ |x| |w| with γ = (n + 2) u / (1 - (n + 2) u) and |x| <= size + |r|. So for an output with |w| and |f|
 *
 *   |y - bounds' middle| <= a |w| + b |f| + c,   a = |r| + (γ + 16 u) (size + |r|),   b = (1 + 16 u) size,
 *
 * and c for what underflows: 2^-126 at each of fewer than 4 (n + 8) roundings, even where the machine makes zeros of
 * subnormal numbers. a, b and norms are made in double and enlarged by 16 u, more than their roundings and those of the
 * sum above.
 * Nothing overflows, since |x| < 2^49 and |w| < 2^60.
 * SPDX-License-Identifier: Apache-2.0 */
#include "linear/layout.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { CHUNK = 512 /* rows of W at once */, PANEL = 64 /* that linear_pack puts side by side */ };

#define UNIT     0x1p-24
#define ENLARGED (1 + 16 * UNIT)
#define MAX_NORM 0x1p60   /* of a row of W */
#define MIN_X    0x1p-40f /* of the largest number of x */
#define MAX_X    0x1p40f

static int64_t rounded_up(int64_t bytes)
{
    return (bytes + LINEAR_ALIGN - 1) / LINEAR_ALIGN * LINEAR_ALIGN;
}

int64_t linear_screen_bytes(int64_t in, int64_t out)
{
    const int64_t packed = linear_packed_bytes(LINEAR_INT8, in, out);
    if (packed < 0 || out > INT64_MAX / 32 || packed > INT64_MAX / 2 - 8 * out)
        return -1;
    return packed + rounded_up(8 * out);
}

/* ------------------------------------------------------------------------------------------------ the screen of W */

/* Rows of W from `row` on, as they are and as 8 bits stand for them. */
typedef struct making {
    const linear_weights *from;
    linear_screen *to;
    int64_t row;
    float *w, *kept; /* [CHUNK, in] */
    float *norms;
} making;

static void read_task(void *context, int64_t n, int32_t worker)
{
    const making *k = context;
    (void)worker;
    linear_row(k->from, k->row + n, k->w + n * k->from->in);
}

static float upper_norm(double squares)
{
    return (float)(sqrt(squares) * ENLARGED + 0x1p-126);
}

static void norms_task(void *context, int64_t n, int32_t worker)
{
    const making *k = context;
    const int64_t in = k->from->in;
    const float *w = k->w + n * in;
    float *kept = k->kept + n * in;
    double squares = 0, lost = 0;
    (void)worker;
    linear_row(&k->to->w, k->row + n, kept);
    for (int64_t i = 0; i < in; i++) {
        const double x = (double)w[i], rest = x - (double)kept[i];
        squares += x * x;
        lost += rest * rest;
    }
    k->norms[k->row + n] = upper_norm(squares);
    k->norms[k->from->out + k->row + n] = upper_norm(lost);
}

/* Panels of 64 rows follow one another, so that some of them are packed by themselves. */
static rp_status make_chunk(making *k, rp_pool *pool, char *packed)
{
    const int64_t in = k->from->in, left = k->from->out - k->row, n = left < CHUNK ? left : CHUNK;
    char *to = packed + k->row / PANEL * linear_packed_bytes(LINEAR_INT8, in, PANEL);
    rp_status status = rp_pool_run(pool, n, read_task, k);
    if (status == RP_OK)
        status = linear_pack(pool, LINEAR_INT8, in, n, k->w, RP_F32, in, to);
    return status == RP_OK ? rp_pool_run(pool, n, norms_task, k) : status;
}

rp_status linear_screen_make(linear_screen *s, rp_pool *pool, const linear_weights *w, void *memory)
{
    if (!s || !w || !memory || (uintptr_t)memory % LINEAR_ALIGN != 0 || w->type >= LINEAR_INT8 || !w->packed ||
        linear_screen_bytes(w->in, w->out) < 0)
        return RP_E_ARG;
    const int64_t packed = linear_packed_bytes(LINEAR_INT8, w->in, w->out);
    making k = {.from = w, .to = s, .norms = (float *)(void *)((char *)memory + packed)};
    *s = (linear_screen){{LINEAR_INT8, w->in, w->out, memory}, k.norms, w->type == LINEAR_BF16, true};
    k.w = malloc((size_t)(2 * CHUNK * w->in) * sizeof *k.w);
    if (!k.w)
        return RP_E_NOMEM;
    k.kept = k.w + CHUNK * w->in;
    rp_status status = RP_OK;
    for (; status == RP_OK && k.row < w->out; k.row += CHUNK)
        status = make_chunk(&k, pool, memory);
    for (int64_t o = 0; o < w->out; o++)
        s->bounds = s->bounds && (double)k.norms[o] < MAX_NORM && (double)k.norms[w->out + o] < MAX_NORM;
    free(k.w);
    return status;
}

/* ------------------------------------------------------------------------------------------------ bounds */

/* A row of x in two rows of integers, and what makes bounds of their products. */
typedef struct row {
    float scale[2], a, b, c;
    bool bounds;
} row;

static float largest(const float *x, int64_t n)
{
    float most = 0;
    for (int64_t i = 0; i < n; i++)
        most = isnan(most) || fabsf(x[i]) <= most ? most : fabsf(x[i]);
    return most;
}

/* x as scale p, with one |p| of 127: linear_apply quantises such p to itself, with the scale 1. Returns |scale p|; x may
 * be p. */
static double take_integers(const float *x, int64_t n, float max, float *scale, float *p)
{
    double squares = 0;
    *scale = max / 127;
    for (int64_t i = 0; i < n; i++) {
        const float q = rintf(x[i] / *scale);
        p[i] = q > 127 ? 127 : q < -127 ? -127 : q;
        squares += (double)p[i] * (double)p[i];
    }
    return (double)*scale * sqrt(squares);
}

static row split(const float *x, int64_t n, float *p)
{
    row r = {.bounds = false};
    float *const high = p, *const low = p + n;
    const float max = largest(x, n);
    if (!(max >= MIN_X && max <= MAX_X)) {
        memset(p, 0, (size_t)(2 * n) * sizeof *p);
        return r;
    }
    double size = take_integers(x, n, max, &r.scale[0], high), squares = 0;
    for (int64_t i = 0; i < n; i++)
        low[i] = (float)((double)x[i] - (double)r.scale[0] * (double)high[i]);
    const float left = largest(low, n);
    if (left >= 0x1p-100f)
        size += take_integers(low, n, left, &r.scale[1], low);
    else
        memset(low, 0, (size_t)n * sizeof *low);
    for (int64_t i = 0; i < n; i++) {
        const double rest = (double)x[i] - (double)r.scale[0] * (double)high[i] - (double)r.scale[1] * (double)low[i];
        squares += rest * rest;
    }
    const double rest = sqrt(squares), steps = (double)(n + 2) * UNIT, gamma = steps / (1 - steps);
    r.a = (float)(ENLARGED * (rest + (gamma + 16 * UNIT) * (size + rest)));
    r.b = (float)(ENLARGED * ENLARGED * size);
    r.c = (float)(4 * (n + 8)) * 0x1p-126f;
    r.bounds = true;
    return r;
}

/* Products of both rows of integers become bounds in place. */
static void make_bounds(const linear_screen *s, const row *r, float *low, float *high)
{
    const int64_t out = s->w.out;
    for (int64_t o = 0; !r->bounds && o < out; o++) {
        low[o] = -INFINITY;
        high[o] = INFINITY;
    }
    for (int64_t o = 0; r->bounds && o < out; o++) {
        const float y = r->scale[0] * low[o] + r->scale[1] * high[o];
        const float off = r->a * s->norms[o] + r->b * s->norms[out + o] + r->c;
        low[o] = y - off;
        high[o] = y + off;
    }
}

rp_status linear_screen_bounds(const linear_screen *s, rp_pool *pool, int64_t rows, const float *x, int64_t ldx,
                               float *bounds, const char *isa)
{
    if (!s || rows < 0 || (rows > 0 && (!x || !bounds)) || (rows > 1 && ldx < s->w.in) || rows > INT32_MAX)
        return RP_E_ARG;
    const int64_t in = s->w.in, out = s->w.out;
    float *p = malloc((size_t)((2 * rows + 1) * in) * sizeof *p);
    row *split_rows = malloc((size_t)rows * sizeof *split_rows + 1);
    rp_status status = p && split_rows ? RP_OK : RP_E_NOMEM;
    if (status == RP_OK) {
        float *const rounded = p + 2 * rows * in;
        for (int64_t r = 0; r < rows; r++) {
            const float *from = x + r * ldx;
            for (int64_t i = 0; s->rounds && i < in; i++)
                rounded[i] = linear_bf16(from[i]);
            split_rows[r] = split(s->rounds ? rounded : from, in, p + 2 * r * in);
            split_rows[r].bounds &= s->bounds;
        }
        const linear_call call = {.rows = 2 * rows, .x = p, .ldx = in, .y = bounds, .ldy = out, .isa = isa};
        status = linear_apply(pool, &s->w, &call);
    }
    for (int64_t r = 0; status == RP_OK && r < rows; r++)
        make_bounds(s, &split_rows[r], bounds + 2 * r * out, bounds + (2 * r + 1) * out);
    free(p);
    free(split_rows);
    return status;
}
