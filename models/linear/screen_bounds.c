/* screen_bounds.c -- bounds of products with weights of f32, f16 or bf16, computed from an int8 copy of the weights. To
 * find the largest output, a caller reads this copy, and then only those rows of W that may have the largest output.
 *
 * If W is bf16, x is first rounded as linear_apply rounds it; packed bf16 numbers and their sums are never subnormal.
 * Let W = Ŵ + F, where Ŵ is W packed as int8, and x = x̃ + r, x̃ = s₁ p₁ + s₂ p₂ for integers p from -127 to 127. Then
 *
 *   x · w = x̃ · ŵ + x̃ · f + r · w      and by Cauchy and Schwarz |x · w - x̃ · ŵ| <= |x̃| |f| + |r| |w|.
 *
 * Each of the two products of integers is exact except for two roundings, and computing the bounds takes three more.
 * Their total is below 16 u size |ŵ| with u = 2^-24, |ŵ| <= |w| + |f| and |x̃| <= size = |s₁ p₁| + |s₂ p₂|. The error
 * of the n sums of linear_apply is at most γ Σ|x w| <= γ |x| |w| with γ = (n + 2) u / (1 - (n + 2) u) and |x| <= size +
 * |r|. Hence for an output with |w| and |f|
 *
 *   |y - middle of the bounds| <= a |w| + b |f| + c,   a = |r| + (γ + 16 u) (size + |r|),   b = (1 + 16 u) size,
 *
 * where c covers underflow: 2^-126 for each of fewer than 4 (n + 8) roundings, even if the machine flushes subnormal
 * numbers to zero. a, b and the norms are computed in double and enlarged by 16 u, which exceeds their own rounding
 * errors and those of the sum above. Nothing overflows, since |x| < 2^49 and |w| < 2^60.
 * SPDX-License-Identifier: Apache-2.0 */
#include "linear/layout.h"
#include "processor/clones.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define UNIT     0x1p-24
#define ENLARGED (1 + 16 * UNIT)
#define MAX_NORM 0x1p60   /* max norm of a row of W */
#define MIN_X    0x1p-40f /* lower and upper limit of the largest |x| */
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

typedef struct making {
    const linear_weights *from;
    char *packed;
    float *norms;
} making;

/* Vectors with one number for each output of a column. */
typedef float floats __attribute__((vector_size(4 * LINEAR_COLUMN)));
typedef int32_t integers __attribute__((vector_size(4 * LINEAR_COLUMN)));
typedef double doubles __attribute__((vector_size(8 * LINEAR_COLUMN)));

/* A column of a panel of W, and the matching column of the screen. */
typedef struct column {
    linear_type type;
    int64_t in, step; /* number of inputs; bytes from one line to the next */
    const char *lines;
    char *to_lines;
    float *scales;
    int32_t *sums;
} column;

/* Load input i for the 16 outputs of the column. */
static inline __attribute__((always_inline)) void input_of(const column *c, int64_t i, floats *x)
{
    integers bits;
    if (c->type == LINEAR_F16) {
        rp_convert(x, RP_F32, c->lines + i / 2 * c->step + i % 2 * 2 * LINEAR_COLUMN, RP_F16, LINEAR_COLUMN);
        return;
    }
    memcpy(&bits, c->lines + (c->type == LINEAR_F32 ? i : i / 2) * c->step, sizeof bits);
    if (c->type == LINEAR_BF16)
        bits = i % 2 ? bits & -65536 : bits << 16;
    *x = (floats)bits;
}

/* Compute the int8 scales as linear_pack does, and the divisors. If the scale is 0 or NaN, the divisor is infinity and
 * the mask `kept` is 0, which replaces x with zero. */
static inline __attribute__((always_inline)) void find_scales(const column *c, floats *divisor, integers *kept)
{
    integers most = {0};
    float by[LINEAR_COLUMN];
    int32_t keep[LINEAR_COLUMN];
    for (int64_t i = 0; i < c->in; i++) { /* as integers, infinity and NaN are larger than all other |x| */
        floats x;
        input_of(c, i, &x);
        const integers size = (integers)x & 0x7fffffff, more = size > most;
        most = (more & size) | (~more & most);
    }
    for (int o = 0; o < LINEAR_COLUMN; o++) {
        float max;
        const int32_t bits = most[o];
        memcpy(&max, &bits, sizeof max);
        c->scales[o] = linear_int8_scale(max);
        keep[o] = c->scales[o] > 0 ? -1 : 0;
        by[o] = keep[o] ? c->scales[o] : INFINITY;
    }
    memcpy(divisor, by, sizeof by);
    memcpy(kept, keep, sizeof keep);
}

static float upper_norm(double squares)
{
    return (float)(sqrt(squares) * ENLARGED + 0x1p-126);
}

/* Pack a column as linear_pack does, and compute |w| and |w - ŵ| of each output. */
RPI_CLONES static void make_column(const column *c, float *norms, float *lost_norms)
{
    const floats magic = (floats){0} + 0x1.8p23f; /* rounds to the nearest integer, ties to even */
    floats divisor, scales;
    integers kept, total = {0};
    doubles squares = {0}, lost = {0};
    find_scales(c, &divisor, &kept);
    memcpy(&scales, c->scales, sizeof scales);
    for (int64_t first = 0; first < c->in; first += 4) {
        integers bytes = {0};
        for (int64_t i = first; i < first + 4 && i < c->in; i++) {
            floats x;
            input_of(c, i, &x);
            const floats q = ((floats)((integers)x & kept) / divisor + magic) - magic;
            const doubles wide = __builtin_convertvector(x, doubles);
            const doubles rest = wide - __builtin_convertvector(scales * q, doubles);
            const integers whole = __builtin_convertvector(q, integers);
            squares += wide * wide;
            lost += rest * rest;
            total += whole;
            bytes |= (whole & 255) << (8 * (int32_t)(i - first));
        }
        memcpy(c->to_lines + first / 4 * c->step, &bytes, sizeof bytes);
    }
    total *= -128;
    memcpy(c->sums, &total, sizeof total);
    for (int o = 0; o < LINEAR_COLUMN; o++) {
        norms[o] = upper_norm(squares[o]);
        lost_norms[o] = upper_norm(lost[o]);
    }
}

static void make_panel(void *context, int64_t panel, int32_t worker)
{
    const making *k = context;
    const linear_weights *w = k->from;
    const int64_t columns = linear_columns(w->out, panel), size = columns * LINEAR_COLUMN_BYTES;
    const char *from = (const char *)w->packed + panel * linear_panel_bytes(w->type, w->in, LINEAR_COLUMNS);
    char *to = k->packed + panel * linear_panel_bytes(LINEAR_INT8, w->in, LINEAR_COLUMNS);
    (void)worker;
    for (int64_t n = 0; n < columns; n++) {
        const int64_t at = n * LINEAR_COLUMN_BYTES, first = panel * LINEAR_PANEL + n * LINEAR_COLUMN;
        const column c = {w->type,
                          w->in,
                          size,
                          from + linear_line_at(w->type, columns, 0) + at,
                          to + linear_line_at(LINEAR_INT8, columns, 0) + at,
                          (float *)(void *)(to + at),
                          (int32_t *)(void *)(to + size + at)};
        float norms[LINEAR_COLUMN], lost[LINEAR_COLUMN];
        make_column(&c, norms, lost);
        for (int64_t o = 0; o < LINEAR_COLUMN && first + o < w->out; o++) {
            k->norms[first + o] = norms[o];
            k->norms[w->out + first + o] = lost[o];
        }
    }
}

rp_status linear_screen_make(linear_screen *s, rp_pool *pool, const linear_weights *w, void *memory)
{
    if (!s || !w || !memory || (uintptr_t)memory % LINEAR_ALIGN != 0 || w->type >= LINEAR_INT8 || !w->packed ||
        linear_screen_bytes(w->in, w->out) < 0)
        return RP_E_ARG;
    const int64_t packed = linear_packed_bytes(LINEAR_INT8, w->in, w->out);
    making k = {w, memory, (float *)(void *)((char *)memory + packed)};
    *s = (linear_screen){{LINEAR_INT8, w->in, w->out, memory}, k.norms, w->type == LINEAR_BF16, true};
    const rp_status status = rp_pool_run(pool, linear_ceil(w->out, LINEAR_PANEL), make_panel, &k);
    for (int64_t o = 0; o < w->out; o++)
        s->bounds = s->bounds && (double)k.norms[o] < MAX_NORM && (double)k.norms[w->out + o] < MAX_NORM;
    return status;
}

/* ------------------------------------------------------------------------------------------------ bounds */

/* A row of x as two rows of integers: their scales, and the factors a, b, c of the bounds. */
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

/* Approximate x by scale * p with integers p. The largest |p| is 127, so linear_apply quantizes p with scale 1 and
 * leaves it unchanged. Return the norm |scale p|. x and p may be the same array. */
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

/* Split x into two rows of integers, p and p + n, and compute the factors of the bounds. */
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

/* Replace the products of both integer rows by the lower and upper bounds. */
RPI_CLONES static void make_bounds(const linear_screen *s, const row *r, float *low, float *high)
{
    const int64_t out = s->w.out;
    const float *const norms = s->norms, *const lost = norms + out;
    int64_t o = 0;
    if (!r->bounds)
        for (; o < out; o++) {
            low[o] = -INFINITY;
            high[o] = INFINITY;
        }
    for (; o + LINEAR_COLUMN <= out; o += LINEAR_COLUMN) {
        floats p[2], w, f;
        memcpy(&p[0], low + o, sizeof w);
        memcpy(&p[1], high + o, sizeof w);
        memcpy(&w, norms + o, sizeof w);
        memcpy(&f, lost + o, sizeof f);
        const floats y = r->scale[0] * p[0] + r->scale[1] * p[1], off = r->a * w + r->b * f + r->c;
        p[0] = y - off;
        p[1] = y + off;
        memcpy(low + o, &p[0], sizeof w);
        memcpy(high + o, &p[1], sizeof w);
    }
    for (; o < out; o++) {
        const float y = r->scale[0] * low[o] + r->scale[1] * high[o], off = r->a * norms[o] + r->b * lost[o] + r->c;
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
