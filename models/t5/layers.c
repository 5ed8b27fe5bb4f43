/* layers.c -- layers that the encoder and the decoder share: norms, embeddings, linear layers, feed-forward layers with
 * experts, and reductions over the vocabulary. Every row is computed independently, in a fixed order.
 * SPDX-License-Identifier: Apache-2.0 */
#include "t5/model.h"
#include "src/processor/clones.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    LANES = 16,
    FEED_ROWS = 96 /* rows per thread and pass of a feed-forward layer: their inner values fit in cache */
};

/* ------------------------------------------------------------------------------------------------ memory */

rp_status t5_reserve(t5_buffer *b, int64_t count, int64_t element)
{
    int64_t bytes;
    if (!t5_mul(count, element, &bytes) || bytes > INT64_MAX / 2)
        return t5_fail(RP_E_OVERFLOW,
                       "the product of the sizes of this call is too large (use fewer or shorter inputs)");
    if ((size_t)bytes <= b->size)
        return RP_OK;
    const size_t size = ((size_t)bytes + 63) / 64 * 64;
    free(b->data);
    b->data = aligned_alloc(64, size);
    b->size = b->data != NULL ? size : 0;
    return b->data != NULL ? RP_OK : t5_no_memory();
}

void t5_release(t5_buffer *b)
{
    free(b->data);
    *b = (t5_buffer){0};
}

/* Return the number of rows that a feed-forward layer processes at a time. */
static int64_t fed_at_once(const rp_t5 *m, int64_t rows)
{
    const int64_t max = FEED_ROWS * (int64_t)rp_pool_threads(m->pool);
    return rows < max ? rows : max;
}

/* Return the scratch size that covers every linear layer of this model for `rows` rows, in bytes; -1 on overflow. */
static int64_t scratch_size(const rp_t5 *m, int64_t rows)
{
    const t5_config *c = &m->config;
    const int64_t widths[] = {c->d_model, c->inner, c->d_ff}, calls[] = {rows, rows, fed_at_once(m, rows)};
    int64_t max = 0;
    for (int w = 0; w < 3; w++)
        for (int type = 0; type <= LINEAR_BLOCKS; type++) {
            const int64_t bytes = linear_scratch_bytes((linear_type)type, calls[w], widths[w]);
            if (bytes < 0)
                return -1;
            if (bytes > max)
                max = bytes;
        }
    return max;
}

rp_status t5_work_rows(t5_work *w, const rp_t5 *m, int64_t rows)
{
    const t5_config *c = &m->config;
    const int64_t scratch = scratch_size(m, rows);
    rp_status status;
    w->m = m;
    w->rows = rows;
    if (scratch < 0)
        return t5_fail(RP_E_OVERFLOW, "a call of %lld rows is too large (use fewer or shorter inputs)",
                       (long long)rows);
    if ((status = t5_reserve(&w->x, rows, c->d_model * 4)) != RP_OK ||
        (status = t5_reserve(&w->normed, rows, c->d_model * 4)) != RP_OK ||
        (status = t5_reserve(&w->qkv, rows, 3 * c->inner * 4)) != RP_OK ||
        (status = t5_reserve(&w->mixed, rows, c->inner * 4)) != RP_OK ||
        (status = t5_reserve(&w->feed, fed_at_once(m, rows), c->d_ff * 4)) != RP_OK ||
        (status = t5_reserve(&w->scratch, scratch, 1)) != RP_OK)
        return status;
    if (c->experts > 0)
        return t5_reserve(&w->route, rows, (c->experts + 2 * c->d_model) * 4 + 16);
    return RP_OK;
}

int64_t t5_work_bytes(const rp_t5 *m, int64_t rows)
{
    const t5_config *c = &m->config;
    const int64_t scratch = scratch_size(m, rows), row = (2 * c->d_model + 4 * c->inner) * 4,
                  route = c->experts > 0 ? (c->experts + 2 * c->d_model) * 4 + 16 : 0;
    int64_t bytes, feed, total;
    return scratch >= 0 && t5_mul(rows, row + route, &bytes) && t5_mul(fed_at_once(m, rows), c->d_ff * 4, &feed) &&
                   !__builtin_add_overflow(bytes, feed, &total) && !__builtin_add_overflow(total, scratch, &total)
               ? total
               : -1;
}

void t5_work_free(t5_work *w)
{
    t5_buffer *all[] = {&w->x, &w->normed, &w->qkv, &w->mixed, &w->feed, &w->scratch, &w->route};
    for (size_t n = 0; n < sizeof all / sizeof *all; n++)
        t5_release(all[n]);
}

/* ------------------------------------------------------------------------------------------------ norms */

RPI_CLONES static void norm_row(const float *x, int64_t d, const float *norm, double eps, float *to)
{
    float sum[LANES] = {0};
    double total = 0;
    int64_t c = 0;
    for (; c + LANES <= d; c += LANES)
        for (int l = 0; l < LANES; l++)
            sum[l] += x[c + l] * x[c + l];
    for (int l = 0; l < LANES; l++)
        total += (double)sum[l];
    for (; c < d; c++)
        total += (double)(x[c] * x[c]);
    const float scale = (float)(1 / sqrt(total / (double)d + eps));
    for (c = 0; c < d; c++)
        to[c] = norm[c] * (x[c] * scale);
}

void t5_rms_norm(const float *x, int64_t n, int64_t d, const float *norm, double eps, float *to)
{
    for (int64_t r = 0; r < n; r++)
        norm_row(x + r * d, d, norm, eps, to + r * d);
}

/* ------------------------------------------------------------------------------------------------ linear layers */

rp_status t5_linear(t5_work *w, const linear_weights *l, int64_t rows, const float *x, int64_t ldx, float *y,
                    int64_t ldy, linear_then then)
{
    const linear_call call = {
        .rows = rows, .x = x, .ldx = ldx, .y = y, .ldy = ldy, .then = then, .scratch = w->scratch.data};
    if (model_stopped(w->watch))
        return t5_cancelled();
    return t5_linear_failed(linear_apply(w->m->pool, l, &call));
}

void t5_embed(t5_work *w, const int32_t *tokens, int64_t n, float *to)
{
    for (int64_t r = 0; r < n; r++)
        linear_row(&w->m->weights.embedding, tokens[r], to + r * w->m->config.d_model);
}

/* ---------------------------------------------------------------------------------------------- feed-forward layers */

/* Apply an activation that linear_apply does not offer. */
static void activate(t5_activation activation, float *x, int64_t n)
{
    if (activation == T5_SILU)
        for (int64_t k = 0; k < n; k++)
            x[k] = x[k] / (1 + expf(-x[k]));
    else
        for (int64_t k = 0; k < n; k++)
            x[k] = 0.5f * x[k] * (1 + erff(x[k] * 0.70710678118654752f));
}

/* Compute y = feed(x), or y += feed(x), for rows of d_model numbers. */
static rp_status feed_rows(t5_work *w, const t5_feed *f, int64_t rows, const float *x, float *y, linear_then then)
{
    const t5_config *c = &w->m->config;
    float *inner = w->feed.data;
    const linear_then first = c->activation == T5_RELU        ? LINEAR_RELU
                              : c->activation == T5_GELU_TANH ? LINEAR_GELU
                                                              : LINEAR_STORE;
    const int64_t max = fed_at_once(w->m, rows);
    for (int64_t r = 0; r < rows; r += max) {
        const int64_t n = rows - r < max ? rows - r : max;
        rp_status status = t5_linear(w, &f->wi, n, x + r * c->d_model, c->d_model, inner, c->d_ff, first);
        if (status == RP_OK && first == LINEAR_STORE)
            activate(c->activation, inner, n * c->d_ff);
        if (status == RP_OK && c->gated)
            status = t5_linear(w, &f->wi_gate, n, x + r * c->d_model, c->d_model, inner, c->d_ff, LINEAR_TIMES);
        if (status == RP_OK)
            status = t5_linear(w, &f->wo, n, inner, c->d_ff, y + r * c->d_model, c->d_model, then);
        if (status != RP_OK)
            return status;
    }
    return RP_OK;
}

/* Find the likeliest of n experts (the first if several are equal), and return its probability. */
static float best_probability(const float *scores, int64_t n, int64_t *best)
{
    double sum = 0;
    *best = t5_argmax(scores, n);
    for (int64_t e = 0; e < n; e++)
        sum += exp((double)scores[e] - (double)scores[*best]);
    return (float)(1 / sum);
}

/* Choose an expert for each row: chosen[r] is its index, or -1 if that expert has used up its capacity for the
 * sequence. */
static void route(const t5_config *c, const float *scores, int64_t n_sequences, const int64_t *starts, int64_t rows,
                  int32_t *chosen, float *probability, int64_t *used)
{
    for (int64_t s = 0, r = 0; s < (starts ? n_sequences : 1); s++) {
        const int64_t end = starts ? starts[s + 1] : rows;
        memset(used, 0, (size_t)c->experts * sizeof *used);
        for (; r < end; r++) {
            int64_t best;
            probability[r] = best_probability(scores + r * c->experts, c->experts, &best);
            chosen[r] = starts && used[best]++ >= c->capacity ? -1 : (int32_t)best;
        }
    }
}

/* Compute each expert on all of its rows together, weight the outputs by probability and add them to the residual
 * stream. */
static rp_status feed_experts(t5_work *w, const t5_block *b, int64_t n_sequences, const int64_t *starts)
{
    const t5_config *c = &w->m->config;
    const int64_t d = c->d_model, rows = w->rows;
    float *x = w->x.data, *in = w->route.data, *out = in + rows * d, *scores = out + rows * d;
    float *probability = scores + rows * c->experts;
    int32_t *chosen = (int32_t *)(void *)(probability + rows);
    int64_t *used = malloc((size_t)c->experts * sizeof *used);
    if (used == NULL)
        return t5_no_memory();
    rp_status status = t5_linear(w, &b->router, rows, w->normed.data, d, scores, c->experts, LINEAR_STORE);
    if (status == RP_OK)
        route(c, scores, n_sequences, starts, rows, chosen, probability, used);
    free(used);
    for (int32_t e = 0; status == RP_OK && e < c->experts; e++) {
        int64_t n = 0;
        for (int64_t r = 0; r < rows; r++)
            if (chosen[r] == e)
                memcpy(in + n++ * d, (float *)w->normed.data + r * d, (size_t)d * 4);
        if (n == 0)
            continue;
        status = feed_rows(w, &b->experts[e], n, in, out, LINEAR_STORE);
        n = 0;
        for (int64_t r = 0; status == RP_OK && r < rows; r++)
            if (chosen[r] == e) {
                for (int64_t k = 0; k < d; k++)
                    x[r * d + k] += out[n * d + k] * probability[r];
                n++;
            }
    }
    return status;
}

rp_status t5_feed_forward(t5_work *w, const t5_block *b, bool sparse, int64_t n_sequences, const int64_t *starts)
{
    const t5_config *c = &w->m->config;
    t5_rms_norm(w->x.data, w->rows, c->d_model, b->norm_feed, c->eps, w->normed.data);
    if (sparse)
        return feed_experts(w, b, n_sequences, starts);
    return feed_rows(w, &b->feed, w->rows, w->normed.data, w->x.data, LINEAR_ADD);
}

/* ------------------------------------------------------------------------------------------------ the vocabulary */

RPI_CLONES float t5_largest(const float *x, int64_t n)
{
    float max[LANES], best = -INFINITY;
    int64_t k = 0;
    for (int l = 0; l < LANES; l++)
        max[l] = -INFINITY;
    for (; k + LANES <= n; k += LANES)
        for (int l = 0; l < LANES; l++)
            max[l] = x[k + l] > max[l] ? x[k + l] : max[l];
    for (int l = 0; l < LANES; l++)
        best = max[l] > best ? max[l] : best;
    for (; k < n; k++)
        best = x[k] > best ? x[k] : best;
    return best;
}

typedef float floats __attribute__((vector_size(LANES * 4)));
typedef int32_t integers __attribute__((vector_size(LANES * 4)));

/* Compute to = exp(x - max) for LANES numbers x <= max, with an error below 2 ulp; 0 if x - max <= -87. */
static inline __attribute__((always_inline)) void exp_lanes(const float *x, float max, float *to)
{
    const float high = 0.693359375f, low = -2.12194440e-4f; /* ln 2 in two parts */
    const floats min = (floats){0} - 87.0f;
    floats below;
    memcpy(&below, x, sizeof below);
    below -= max;
    const integers counts = below > min;
    const floats bounded = (floats)((counts & (integers)below) | (~counts & (integers)min));
    const integers whole = __builtin_convertvector(bounded * 1.44269504f - 0.5f, integers); /* rounds: it is <= 0 */
    const floats n = __builtin_convertvector(whole, floats), r = bounded - n * high - n * low;
    floats p = r * 1.9875691500e-4f + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = p * r * r + r + 1.0f;
    p = (floats)(counts & (integers)(p * (floats)((whole + 127) * 8388608)));
    memcpy(to, &p, sizeof p);
}

RPI_CLONES static double sum_exp(const float *x, int64_t n, float max)
{
    enum { BLOCK = 1024 }; /* blocks of this size are summed in f32, and their sums in double */
    double total = 0;
    float some[LANES], rest[LANES];
    for (int64_t from = 0; from < n; from += BLOCK) {
        const int64_t end = n - from < BLOCK ? n : from + BLOCK;
        float sum[LANES] = {0};
        int64_t k = from;
        for (; k + LANES <= end; k += LANES) {
            exp_lanes(x + k, max, some);
            for (int l = 0; l < LANES; l++)
                sum[l] += some[l];
        }
        for (int l = 0; l < LANES; l++)
            total += (double)sum[l];
        for (int l = 0; l < LANES; l++)
            rest[l] = l < end - k ? x[k + l] : max;
        exp_lanes(rest, max, some);
        for (int l = 0; l < end - k; l++)
            total += (double)some[l];
    }
    return total;
}

RPI_CLONES void t5_add(float *x, int64_t n, float by)
{
    for (int64_t k = 0; k < n; k++)
        x[k] += by;
}

double t5_log_sum_exp(const float *x, int64_t n)
{
    const float max = t5_largest(x, n);
    return max == -INFINITY ? -INFINITY : (double)max + log(sum_exp(x, n, max));
}

int64_t t5_argmax(const float *x, int64_t n)
{
    const float max = t5_largest(x, n);
    enum { BLOCK = 64 };
    for (int64_t from = 0; from < n; from += BLOCK) {
        const int64_t end = n - from < BLOCK ? n : from + BLOCK;
        int found = 0;
        for (int64_t k = from; k < end; k++)
            found |= x[k] == max;
        for (int64_t k = from; found && k < end; k++)
            if (x[k] == max)
                return k;
    }
    return 0; /* all are NaN */
}
