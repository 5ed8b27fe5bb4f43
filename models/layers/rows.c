/* rows.c -- elementwise and row operations: norms, activations, residual sums, cross-entropy. Every sum uses LANES
 * partial sums, whatever vector length the machine has, so all machines compute the bits of plain C.
 * SPDX-License-Identifier: Apache-2.0 */
#include "src/base/random.h"
#include "src/processor/clones.h"
#include "layers/numeric.h"
#include <math.h>
#include <string.h>

enum { LANES = 16 };

#define INLINE static inline __attribute__((always_inline))

#ifdef LAYERS_F64
INLINE real exp_of(real x)
{
    return exp(x);
}
#else
/* Return e^x without branches, with a relative error of 1e-7: 2^n e^r with |r| <= ln(2)/2, where e^r is computed by its
 * Taylor series up to r^7/5040. x is clamped to [-87, 87]. */
INLINE real exp_of(real x)
{
    const float magic = 12582912.0f; /* 1.5 * 2^23: adding it rounds to an integer and leaves that in the low bits */
    x = x < -87.0f ? -87.0f : x;
    x = x > 87.0f ? 87.0f : x;
    const float shifted = x * 1.44269504f + magic, n = shifted - magic;
    const float r = (x - n * 0.693359375f) + n * 2.12194440e-4f;
    float p = 1.98412698e-4f, scale;
    p = p * r + 1.38888889e-3f;
    p = p * r + 8.33333333e-3f;
    p = p * r + 4.16666667e-2f;
    p = p * r + 1.66666667e-1f;
    p = p * r + 0.5f;
    p = p * r + 1.0f;
    p = p * r + 1.0f;
    uint32_t bits;
    memcpy(&bits, &shifted, sizeof bits);
    bits = (bits << 23) + (127u << 23);
    memcpy(&scale, &bits, sizeof scale);
    return p * scale;
}
#endif

INLINE real lanes_sum(const real *lane)
{
    real s[LANES];
    memcpy(s, lane, sizeof s);
    for (int half = LANES / 2; half > 0; half /= 2)
        for (int l = 0; l < half; l++)
            s[l] += s[l + half];
    return s[0];
}

/* Set `to` to the sum of EXPRESSION over x = 0 … n-1. */
#define SUM(to, n, EXPRESSION)                                                                                         \
    do {                                                                                                               \
        real lane_[LANES] = {0};                                                                                       \
        int64_t x0_ = 0;                                                                                               \
        for (; x0_ + LANES <= (n); x0_ += LANES)                                                                       \
            for (int l_ = 0; l_ < LANES; l_++) {                                                                       \
                const int64_t x = x0_ + l_;                                                                            \
                lane_[l_] += (EXPRESSION);                                                                             \
            }                                                                                                          \
        for (int l_ = 0; x0_ + l_ < (n); l_++) {                                                                       \
            const int64_t x = x0_ + l_;                                                                                \
            lane_[l_] += (EXPRESSION);                                                                                 \
        }                                                                                                              \
        (to) = lanes_sum(lane_);                                                                                       \
    } while (0)

/* The arguments of an operation. Each task computes one chunk of rows. */
typedef struct rows_job {
    void (*run)(const struct rows_job *j, int64_t chunk, int64_t from, int64_t to);
    int64_t rows, n, step;
    int32_t kind;
    bool add;
    const real *x, *y, *gamma, *beta, *in;
    real *out, *stat, *partial;
    const int32_t *target;
    double p, factor, *loss; /* p: probability of dropout; for a norm, epsilon */
    bool *right;
    uint64_t seed;
} rows_job;

static void rows_task(void *context, int64_t t, int32_t worker)
{
    const rows_job *j = context;
    const int64_t from = t * j->step, to = from + j->step < j->rows ? from + j->step : j->rows;
    (void)worker;
    j->run(j, t, from, to);
}

static void run_rows(rp_pool *pool, rows_job *j)
{
    j->step = j->step ? j->step : LAYERS_ROWS;
    rp_pool_run(pool, (j->rows + j->step - 1) / j->step, rows_task, j);
}

/* ------------------------------------------------------------------------------------------------ norms */

RPI_CLONES static void norm_forward(const rows_job *j, int64_t chunk, int64_t from, int64_t to)
{
    const int64_t n = j->n;
    (void)chunk;
    for (int64_t r = from; r < to; r++) {
        const real *in = j->x + r * n, *gamma = j->gamma, *beta = j->beta;
        real *out = j->out + r * n, mean = 0, square;
        if (j->kind == LAYERS_LAYERNORM) {
            SUM(mean, n, in[x]);
            mean /= (real)n;
        }
        SUM(square, n, (in[x] - mean) * (in[x] - mean));
        const real scale = 1 / (real)sqrt((double)(square / (real)n + (real)j->p));
        j->stat[2 * r] = mean;
        j->stat[2 * r + 1] = scale;
        if (beta)
            for (int64_t x = 0; x < n; x++)
                out[x] = (in[x] - mean) * scale * gamma[x] + beta[x];
        else
            for (int64_t x = 0; x < n; x++)
                out[x] = (in[x] - mean) * scale * gamma[x];
    }
}

void layers_norm_forward(rp_pool *pool, int32_t kind, double eps, int64_t rows, int64_t n, const real *x,
                         const real *gamma, const real *beta, real *y, real *stat)
{
    run_rows(pool, &(rows_job){.run = norm_forward,
                               .p = eps,
                               .rows = rows,
                               .n = n,
                               .kind = kind,
                               .x = x,
                               .gamma = gamma,
                               .beta = beta,
                               .out = y,
                               .stat = stat});
}

/* Compute dx = s (a - mean(a) - u mean(a u)) with a = dy gamma and u = (x - mean) s, the normalized row. RMSNorm omits
 * mean(a). */
RPI_CLONES static void norm_backward(const rows_job *j, int64_t chunk, int64_t from, int64_t to)
{
    const int64_t n = j->n;
    real *dgamma = j->partial + chunk * 2 * n, *dbeta = dgamma + n;
    memset(dgamma, 0, 2 * (size_t)n * sizeof(real));
    for (int64_t r = from; r < to; r++) {
        const real *in = j->x + r * n, *dy = j->in + r * n, *gamma = j->gamma;
        const real mean = j->stat[2 * r], s = j->stat[2 * r + 1];
        real *dx = j->out + r * n, first = 0, second;
        if (j->kind == LAYERS_LAYERNORM)
            SUM(first, n, dy[x] * gamma[x]);
        SUM(second, n, dy[x] * gamma[x] * ((in[x] - mean) * s));
        first /= (real)n;
        second /= (real)n;
        if (j->add)
            for (int64_t x = 0; x < n; x++)
                dx[x] += s * (dy[x] * gamma[x] - first - (in[x] - mean) * s * second);
        else
            for (int64_t x = 0; x < n; x++)
                dx[x] = s * (dy[x] * gamma[x] - first - (in[x] - mean) * s * second);
        for (int64_t x = 0; x < n; x++) {
            dgamma[x] += dy[x] * ((in[x] - mean) * s);
            dbeta[x] += dy[x];
        }
    }
}

void layers_norm_backward(rp_pool *pool, int32_t kind, int64_t rows, int64_t n, const real *x, const real *gamma,
                          const real *stat, const real *dy, bool add, real *dx, real *dgamma, real *dbeta,
                          real *partial)
{
    run_rows(pool, &(rows_job){.run = norm_backward,
                               .rows = rows,
                               .n = n,
                               .kind = kind,
                               .add = add,
                               .x = x,
                               .gamma = gamma,
                               .stat = (real *)(uintptr_t)stat,
                               .in = dy,
                               .out = dx,
                               .partial = partial});
    for (int64_t chunk = 0; chunk * LAYERS_ROWS < rows; chunk++)
        for (int64_t c = 0; c < n; c++) {
            dgamma[c] += partial[chunk * 2 * n + c];
            if (dbeta)
                dbeta[c] += partial[chunk * 2 * n + n + c];
        }
}

/* ------------------------------------------------------------------------------------------------ activations */

/* GELU in its tanh form: x (1 + tanh u) / 2 = x sigmoid(2u) with u = sqrt(2/pi) (x + 0.044715 x^3). */
#define GELU_A ((real)1.5957691216057308) /* 2 sqrt(2/pi) */
#define GELU_B ((real)0.044715)

INLINE real sigmoid(real x)
{
    return 1 / (1 + exp_of(-x));
}

INLINE real gelu(real x)
{
    return x * sigmoid(GELU_A * (x + GELU_B * x * x * x));
}

INLINE real gelu_slope(real x)
{
    const real s = sigmoid(GELU_A * (x + GELU_B * x * x * x));
    return s + x * s * (1 - s) * GELU_A * (1 + 3 * GELU_B * x * x);
}

INLINE bool gated(int32_t kind)
{
    return kind == LAYERS_SWIGLU || kind == LAYERS_GEGLU;
}

int64_t layers_act_columns(int32_t kind, int64_t n)
{
    return gated(kind) ? 2 * n : n;
}

RPI_CLONES static void act_forward(const rows_job *j, int64_t chunk, int64_t from, int64_t to)
{
    const int64_t n = j->n;
    (void)chunk;
    for (int64_t r = from; r < to && gated(j->kind); r++) {
        const real *gate = j->x + r * 2 * n, *up = gate + n;
        real *y = j->out + r * n;
        if (j->kind == LAYERS_SWIGLU)
            for (int64_t x = 0; x < n; x++)
                y[x] = gate[x] * sigmoid(gate[x]) * up[x];
        else
            for (int64_t x = 0; x < n; x++)
                y[x] = gelu(gate[x]) * up[x];
    }
    if (gated(j->kind))
        return;
    const real *h = j->x + from * n;
    real *y = j->out + from * n;
    const int64_t all = (to - from) * n;
    if (j->kind == LAYERS_GELU)
        for (int64_t x = 0; x < all; x++)
            y[x] = gelu(h[x]);
    else
        for (int64_t x = 0; x < all; x++)
            y[x] = h[x] < 0 ? 0 : h[x]; /* keeps NaN */
}

RPI_CLONES static void act_backward(const rows_job *j, int64_t chunk, int64_t from, int64_t to)
{
    const int64_t n = j->n;
    (void)chunk;
    for (int64_t r = from; r < to && gated(j->kind); r++) {
        const real *gate = j->x + r * 2 * n, *up = gate + n, *dy = j->in + r * n;
        real *dgate = j->out + r * 2 * n, *dup = dgate + n;
        if (j->kind == LAYERS_SWIGLU)
            for (int64_t x = 0; x < n; x++) {
                const real s = sigmoid(gate[x]);
                dup[x] = dy[x] * gate[x] * s;
                dgate[x] = dy[x] * up[x] * s * (1 + gate[x] * (1 - s));
            }
        else
            for (int64_t x = 0; x < n; x++) {
                dup[x] = dy[x] * gelu(gate[x]);
                dgate[x] = dy[x] * up[x] * gelu_slope(gate[x]);
            }
    }
    if (gated(j->kind))
        return;
    const real *h = j->x + from * n, *dy = j->in + from * n;
    real *dh = j->out + from * n;
    const int64_t all = (to - from) * n;
    if (j->kind == LAYERS_GELU)
        for (int64_t x = 0; x < all; x++)
            dh[x] = dy[x] * gelu_slope(h[x]);
    else
        for (int64_t x = 0; x < all; x++)
            dh[x] = h[x] > 0 ? dy[x] : 0;
}

void layers_act_forward(rp_pool *pool, int32_t kind, int64_t rows, int64_t n, const real *h, real *y)
{
    run_rows(pool, &(rows_job){.run = act_forward, .rows = rows, .n = n, .kind = kind, .x = h, .out = y});
}

void layers_act_backward(rp_pool *pool, int32_t kind, int64_t rows, int64_t n, const real *h, const real *dy, real *dh)
{
    run_rows(pool, &(rows_job){.run = act_backward, .rows = rows, .n = n, .kind = kind, .x = h, .in = dy, .out = dh});
}

/* ------------------------------------------------------------------------------------------------ residual sums */

/* Compute out = x + keep in / (1 - p). If x is NULL, omit it. */
RPI_CLONES static void add_run(const rows_job *j, int64_t chunk, int64_t from, int64_t to)
{
    const int64_t n = j->n;
    const uint32_t limit = rpi_dropout_limit(j->p);
    const real scale = (real)(1 / (1 - j->p));
    (void)chunk;
    for (int64_t r = from; r < to; r++) {
        const real *in = j->in + r * n, *base = j->x ? j->x + r * n : NULL;
        real *out = j->out + r * n;
        if (j->p > 0) {
            const rpi_dropout_row row = rpi_dropout_at(j->seed, 0, 0, r);
            for (int64_t x = 0; x < n; x++)
                out[x] = rpi_random(row, x) < limit ? 0 : in[x] * scale;
            if (base)
                for (int64_t x = 0; x < n; x++)
                    out[x] += base[x];
        } else {
            for (int64_t x = 0; x < n; x++)
                out[x] = base[x] + in[x];
        }
    }
}

void layers_add_forward(rp_pool *pool, int64_t rows, int64_t n, const real *x, const real *z, double p, uint64_t seed,
                        real *y)
{
    run_rows(pool, &(rows_job){.run = add_run, .rows = rows, .n = n, .x = x, .in = z, .p = p, .seed = seed, .out = y});
}

void layers_add_backward(rp_pool *pool, int64_t rows, int64_t n, double p, uint64_t seed, const real *dy, real *dz)
{
    run_rows(pool, &(rows_job){.run = add_run, .rows = rows, .n = n, .in = dy, .p = p, .seed = seed, .out = dz});
}

RPI_CLONES static void axpy_run(const rows_job *j, int64_t chunk, int64_t from, int64_t to)
{
    (void)chunk;
    for (int64_t x = from; x < to; x++)
        j->out[x] += j->x[x];
}

void layers_axpy(rp_pool *pool, int64_t n, const real *x, real *y)
{
    run_rows(pool, &(rows_job){.run = axpy_run, .rows = n, .step = 1 << 15, .x = x, .out = y});
}

/* ------------------------------------------------------------------------------------------------ cross-entropy */

RPI_CLONES static void loss_run(const rows_job *j, int64_t chunk, int64_t from, int64_t to)
{
    const int64_t n = j->n;
    (void)chunk;
    for (int64_t r = from; r < to; r++) {
        real *z = j->out + r * n, max = z[0], sum;
        const int32_t target = j->target[r];
        if (target < 0) {
            j->loss[r] = 0;
            if (j->right)
                j->right[r] = false;
            memset(z, 0, (size_t)n * sizeof(real));
            continue;
        }
        const real z_target = z[target];
        for (int64_t x = 0; x < n; x++)
            max = z[x] > max ? z[x] : max;
        if (j->right) {
            int64_t first = 0;
            while (first < target && z[first] != max)
                first++;
            j->right[r] = first == target && z_target == max;
        }
        for (int64_t x = 0; x < n; x++)
            z[x] = exp_of(z[x] - max);
        SUM(sum, n, z[x]);
        j->loss[r] = log((double)sum) + (double)max - (double)z_target;
        const real scale = (real)(j->factor / (double)sum);
        for (int64_t x = 0; x < n; x++)
            z[x] *= scale;
        z[target] -= (real)j->factor;
    }
}

void layers_softmax_loss(rp_pool *pool, int64_t rows, int64_t n, real *logits, const int32_t *target, double factor,
                         double *loss, bool *right)
{
    run_rows(pool, &(rows_job){.run = loss_run,
                               .rows = rows,
                               .n = n,
                               .out = logits,
                               .target = target,
                               .factor = factor,
                               .loss = loss,
                               .right = right});
}
