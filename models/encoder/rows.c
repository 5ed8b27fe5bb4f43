/* rows.c -- norms and activations of rows. Every row is computed independently, in a fixed order.
 * SPDX-License-Identifier: Apache-2.0 */
#include "encoder/encoder.h"
#include "linear/erf.h"
#include "src/processor/clones.h"
#include <math.h>
#include <stdlib.h>

enum { LANES = 16, BLOCK = 16 /* rows of a task */ };

/* ------------------------------------------------------------------------------------------------ norms */

/* Return the sum of x, always in the same order. */
RPI_CLONES static double sum_of(const float *x, int64_t n)
{
    float sum[LANES] = {0};
    double total = 0;
    int64_t k = 0;
    for (; k + LANES <= n; k += LANES)
        for (int l = 0; l < LANES; l++)
            sum[l] += x[k + l];
    for (int l = 0; l < LANES; l++)
        total += (double)sum[l];
    for (; k < n; k++)
        total += (double)x[k];
    return total;
}

/* Return the sum of (x - mean)^2. */
RPI_CLONES static double sum_of_squares(const float *x, int64_t n, float mean)
{
    float sum[LANES] = {0};
    double total = 0;
    int64_t k = 0;
    for (; k + LANES <= n; k += LANES)
        for (int l = 0; l < LANES; l++)
            sum[l] += (x[k + l] - mean) * (x[k + l] - mean);
    for (int l = 0; l < LANES; l++)
        total += (double)sum[l];
    for (; k < n; k++)
        total += (double)((x[k] - mean) * (x[k] - mean));
    return total;
}

RPI_CLONES static void scale_row(const float *x, int64_t n, float mean, float scale, const encoder_norm *norm,
                                 float *to)
{
    const float *w = norm->weight, *b = norm->bias;
    if (b != NULL)
        for (int64_t k = 0; k < n; k++)
            to[k] = (x[k] - mean) * scale * w[k] + b[k];
    else
        for (int64_t k = 0; k < n; k++)
            to[k] = (x[k] - mean) * scale * w[k];
}

static void norm_row(const encoder_normed *c, int64_t r)
{
    const float *x = c->x + r * c->n;
    const double mean = sum_of(x, c->n) / (double)c->n;
    const double variance = sum_of_squares(x, c->n, (float)mean) / (double)c->n;
    scale_row(x, c->n, (float)mean, (float)(1 / sqrt(variance + c->eps)), c->norm, c->to + r * c->n);
}

/* ------------------------------------------------------------------------------------------------ activations */

/* p/2 (1 + erf(p/√2)), as gelu_erf in linear/kernels/store.h. */
static inline __attribute__((always_inline)) float gelu(float p)
{
    const float x = p * 0.70710678f, t = x * x;
    float above = 0, under = 0;
#define STEP(c) above = above * t + c;
    LINEAR_ERF_ABOVE(STEP)
#undef STEP
#define STEP(c) under = under * t + c;
    LINEAR_ERF_UNDER(STEP)
#undef STEP
    const float y = 0.5f * p * (1 + x * above / under);
    return x < -LINEAR_ERF_END ? 0 : x > LINEAR_ERF_END ? p : y;
}

RPI_CLONES static void gelu_row(float *x, int64_t n)
{
    for (int64_t k = 0; k < n; k++)
        x[k] = gelu(x[k]);
}

static float apply(encoder_activation activation, float x)
{
    switch (activation) {
    case ENCODER_GELU_TANH: return 0.5f * x * (1 + tanhf(0.79788456f * (x + 0.044715f * x * x * x)));
    case ENCODER_RELU: return x > 0 || x != x ? x : 0;
    case ENCODER_TANH: return tanhf(x);
    case ENCODER_LOGISTIC: return 1 / (1 + expf(-x));
    case ENCODER_SILU: return x / (1 + expf(-x));
    case ENCODER_QUICK_GELU: return x / (1 + expf(-1.702f * x));
    case ENCODER_MISH: return x * tanhf(log1pf(expf(x)));
    case ENCODER_RELU2: return x > 0 || x != x ? x * x : 0;
    case ENCODER_RELU6: return x < 0 ? 0 : x > 6 ? 6 : x;
    case ENCODER_LEAKY_RELU: return x < 0 ? 0.01f * x : x;
    case ENCODER_HARDSWISH: return x < -3 ? 0 : x > 3 ? x : x * (x + 3) / 6;
    case ENCODER_LINEAR: return x;
    case ENCODER_GELU: break;
    }
    return gelu(x);
}

static void activate_row(const encoder_activated *c, int64_t r)
{
    float *x = c->x + r * c->n;
    const int64_t n = c->gated ? c->n / 2 : c->n;
    if (c->activation == ENCODER_GELU)
        gelu_row(x, n);
    else
        for (int64_t k = 0; k < n; k++)
            x[k] = apply(c->activation, x[k]);
    if (c->gated)
        for (int64_t k = 0; k < n; k++)
            x[k] *= x[n + k];
}

/* ------------------------------------------------------------------------------------------------ tasks */

/* A call: of one of these. */
typedef struct call {
    int64_t rows;
    const encoder_normed *normed;
    const encoder_activated *activated;
} call;

static void one_row(const call *c, int64_t r)
{
    if (c->normed != NULL)
        norm_row(c->normed, r);
    else
        activate_row(c->activated, r);
}

static void rows_task(void *context, int64_t block, int32_t worker)
{
    const call *c = context;
    const int64_t end = (block + 1) * BLOCK < c->rows ? (block + 1) * BLOCK : c->rows;
    (void)worker;
    for (int64_t r = block * BLOCK; r < end; r++)
        one_row(c, r);
}

static void run(rp_pool *pool, const call *c)
{
    rp_pool_run(pool, (c->rows + BLOCK - 1) / BLOCK, rows_task, (void *)(uintptr_t)c);
}

void encoder_norm_rows(rp_pool *pool, int64_t rows, const encoder_normed *normed)
{
    run(pool, &(call){.rows = rows, .normed = normed});
}

void encoder_activate_rows(rp_pool *pool, int64_t rows, const encoder_activated *activated)
{
    run(pool, &(call){.rows = rows, .activated = activated});
}

float *encoder_take(int64_t rows, int64_t n)
{
    int64_t bytes;
    if (__builtin_mul_overflow(rows, n * 4, &bytes) || bytes > INT64_MAX / 2)
        return NULL;
    return aligned_alloc(64, ((size_t)bytes + 63) / 64 * 64 + 64);
}
