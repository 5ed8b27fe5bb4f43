/* rows.c -- norms and activations of rows. Every row is computed independently, in a fixed order.
 * SPDX-License-Identifier: Apache-2.0 */
#include "encoder/encoder.h"
#include "src/processor/clones.h"
#include <math.h>
#include <string.h>

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

RPI_CLONES static void add_rows(const float *x, const float *y, const float *bias, int64_t n, float *to)
{
    if (bias != NULL)
        for (int64_t k = 0; k < n; k++)
            to[k] = x[k] + (y[k] + bias[k]);
    else
        for (int64_t k = 0; k < n; k++)
            to[k] = x[k] + y[k];
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
    float *to = c->to + r * c->n;
    if (c->y != NULL) {
        add_rows(x, c->y + r * c->n, c->bias, c->n, to);
        x = to;
    }
    const double mean = sum_of(x, c->n) / (double)c->n;
    const double variance = sum_of_squares(x, c->n, (float)mean) / (double)c->n;
    scale_row(x, c->n, (float)mean, (float)(1 / sqrt(variance + c->eps)), c->norm, to);
}

/* ------------------------------------------------------------------------------------------------ activations */

/* erf in f32, as an odd rational function; |x| above 3.925 counts as 3.925, where erf is 1 in f32. */
static inline __attribute__((always_inline)) float erf_f32(float x)
{
    x = x < -3.925f ? -3.925f : x > 3.925f ? 3.925f : x;
    const float t = x * x;
    float p = -2.72614225801306e-10f, q = -1.45660718464996e-05f;
    p = p * t + 2.77068142495902e-08f;
    p = p * t - 2.10102402082508e-06f;
    p = p * t - 5.69250639462346e-05f;
    p = p * t - 7.34990630326855e-04f;
    p = p * t - 2.95459980854025e-03f;
    p = p * t - 1.60960333262415e-02f;
    q = q * t - 2.13374055278905e-04f;
    q = q * t - 1.68282697438203e-03f;
    q = q * t - 7.37332916720468e-03f;
    q = q * t - 1.42647390514189e-02f;
    return x * p / q;
}

RPI_CLONES static void gelu_row(const float *x, const float *bias, int64_t n, float *to)
{
    for (int64_t k = 0; k < n; k++) {
        const float v = bias != NULL ? x[k] + bias[k] : x[k];
        to[k] = 0.5f * v * (1 + erf_f32(v * 0.70710678f));
    }
}

static float apply(encoder_activation activation, float x)
{
    switch (activation) {
    case ENCODER_GELU_TANH: return 0.5f * x * (1 + tanhf(0.79788456f * (x + 0.044715f * x * x * x)));
    case ENCODER_RELU: return x > 0 || x != x ? x : 0;
    case ENCODER_TANH: return tanhf(x);
    case ENCODER_GELU: break;
    }
    return 0.5f * x * (1 + erff(x * 0.70710678f));
}

static void activate_row(const encoder_activated *c, int64_t r)
{
    float *x = c->x + r * c->n;
    const int64_t n = c->gated ? c->n / 2 : c->n;
    if (c->activation == ENCODER_GELU)
        gelu_row(x, c->bias, n, x);
    else
        for (int64_t k = 0; k < n; k++)
            x[k] = apply(c->activation, c->bias != NULL ? x[k] + c->bias[k] : x[k]);
    if (!c->gated)
        return;
    for (int64_t k = 0; k < n; k++)
        x[k] *= c->bias != NULL ? x[n + k] + c->bias[n + k] : x[n + k];
}

/* ------------------------------------------------------------------------------------------------ tasks */

/* A call: of one of these. */
typedef struct call {
    int64_t rows, n;
    const encoder_normed *normed;
    const encoder_activated *activated;
    float *x;
    const float *row;
    bool adds;
} call;

static void one_row(const call *c, int64_t r)
{
    if (c->normed != NULL)
        norm_row(c->normed, r);
    else if (c->activated != NULL)
        activate_row(c->activated, r);
    else if (c->adds)
        for (int64_t k = 0; k < c->n; k++)
            c->x[r * c->n + k] += c->row[k];
    else
        memcpy(c->x + r * c->n, c->row, (size_t)c->n * sizeof *c->x);
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

void encoder_fill_rows(rp_pool *pool, int64_t rows, int64_t n, float *x, const float *row)
{
    run(pool, &(call){.rows = rows, .n = n, .x = x, .row = row});
}

void encoder_add_to_rows(rp_pool *pool, int64_t rows, int64_t n, float *x, const float *row)
{
    run(pool, &(call){.rows = rows, .n = n, .x = x, .row = row, .adds = true});
}

RPI_CLONES bool encoder_finite(const float *x, int64_t n)
{
    float zero[LANES] = {0}, sum = 0; /* of 0 * x: NaN if some x is NaN or infinite */
    int64_t k = 0;
    for (; k + LANES <= n; k += LANES)
        for (int l = 0; l < LANES; l++)
            zero[l] += x[k + l] * 0;
    for (int l = 0; l < LANES; l++)
        sum += zero[l];
    for (; k < n; k++)
        sum += x[k] * 0;
    return sum == 0;
}
