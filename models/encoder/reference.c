/* reference.c -- the model computed by plain loops in double, from the same packed weights. Tests compare the fast
 * code with it; it shares only the description, the list of weights and the T5 bucket function with the fast path.
 * SPDX-License-Identifier: Apache-2.0 */
#include "encoder/encoder.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Arrays of a pass over n tokens. */
typedef struct pass {
    const rp_encoder *m;
    int64_t n;
    double *x, *y;           /* [n, width]: the residual stream, and inputs or outputs of layers */
    double *wide;            /* [n, 3 width or 2 inner] */
    double *mixed;           /* [n, width] */
    double *embedded;        /* [n, width]: the embedding, for the convolution */
    double *table, *vectors; /* DeBERTa: the normed table [2 span, width], and projected [2, 2 span, width] */
    double *weight;          /* [n]: of one query */
} pass;

/* Compute y [n, out] = x Wᵀ + b for x [n, in]. */
static rp_status multiply(const encoder_linear *l, int64_t n, const double *x, int64_t ldx, double *y)
{
    const int64_t in = l->w.in, out = l->w.out;
    float *row = malloc((size_t)in * sizeof *row);
    if (row == NULL)
        return encoder_no_memory();
    for (int64_t o = 0; o < out; o++) {
        linear_row(&l->w, o, row);
        for (int64_t r = 0; r < n; r++) {
            double sum = l->bias != NULL ? (double)l->bias[o] : 0;
            for (int64_t i = 0; i < in; i++)
                sum += (double)row[i] * x[r * ldx + i];
            y[r * out + o] = sum;
        }
    }
    free(row);
    return RP_OK;
}

static void norm(const encoder_config *c, const encoder_norm *w, int64_t n, const double *x, double *to)
{
    for (int64_t r = 0; r < n; r++, x += c->width, to += c->width) {
        double mean = 0, variance = 0;
        for (int64_t k = 0; k < c->width; k++)
            mean += x[k] / (double)c->width;
        for (int64_t k = 0; k < c->width; k++)
            variance += (x[k] - mean) * (x[k] - mean) / (double)c->width;
        for (int64_t k = 0; k < c->width; k++) {
            to[k] = (x[k] - mean) / sqrt(variance + c->eps) * (double)w->weight[k];
            if (w->bias != NULL)
                to[k] += (double)w->bias[k];
        }
    }
}

double encoder_activate_double(encoder_activation activation, double x)
{
    switch (activation) {
    case ENCODER_GELU: return x / 2 * (1 + erf(x / sqrt(2)));
    case ENCODER_GELU_TANH: return x / 2 * (1 + tanh(sqrt(2 / 3.14159265358979323846) * (x + 0.044715 * x * x * x)));
    case ENCODER_RELU: return x > 0 ? x : 0;
    case ENCODER_LOGISTIC: return 1 / (1 + exp(-x));
    case ENCODER_SILU: return x / (1 + exp(-x));
    case ENCODER_QUICK_GELU: return x / (1 + exp(-1.702 * x));
    case ENCODER_MISH: return x * tanh(log1p(exp(x)));
    case ENCODER_RELU2: return x > 0 ? x * x : 0;
    case ENCODER_RELU6: return fmin(fmax(x, 0), 6);
    case ENCODER_LEAKY_RELU: return x < 0 ? 0.01 * x : x;
    case ENCODER_HARDSWISH: return x * fmin(fmax(x + 3, 0), 6) / 6;
    case ENCODER_LINEAR: return x;
    case ENCODER_TANH: break;
    }
    return tanh(x);
}

/* ------------------------------------------------------------------------------------------------ positions */

/* Rotate the queries and keys of all heads in `wide`: pairs (x, x + half) by position * theta^(-x / half), or by the
 * frequency that the file gives. */
static void rotate(const pass *p, double theta)
{
    const encoder_config *c = &p->m->config;
    const float *given = p->m->weights.frequencies;
    const int64_t half = c->head_width / 2;
    for (int64_t i = 0; i < p->n; i++)
        for (int64_t h = 0; h < 2 * c->heads; h++)
            for (int64_t x = 0; x < half; x++) {
                double *a = p->wide + i * 3 * c->width + h * c->head_width + x, *b = a + half, first = *a;
                const double frequency = given != NULL ? (double)given[x] : pow(theta, -(double)x / (double)half),
                             angle = (double)i * frequency;
                *a = first * cos(angle) - *b * sin(angle);
                *b = *b * cos(angle) + first * sin(angle);
            }
}

/* Return the row of DeBERTa's table for the distance i - j: log buckets, in f32 as transformers computes them. */
static int64_t deberta_row(const encoder_config *c, int64_t distance)
{
    const int64_t middle = c->buckets / 2, size = llabs(distance), sign = distance < 0 ? -1 : 1;
    int64_t bucket = distance;
    if (c->buckets > 0 && size > middle)
        bucket =
            sign * (int64_t)(ceilf(logf((float)size / (float)middle) /
                                   (float)log((double)(c->max_distance - 1) / (double)middle) * (float)(middle - 1)) +
                             (float)middle);
    const int64_t row = bucket + c->span;
    return row < 0 ? 0 : row > 2 * c->span - 1 ? 2 * c->span - 1 : row;
}

static double dot(const double *a, const double *b, int64_t n)
{
    double sum = 0;
    for (int64_t x = 0; x < n; x++)
        sum += a[x] * b[x];
    return sum;
}

/* Return the score of query i and key j in head h. */
static double score(const pass *p, bool local, int64_t h, int64_t i, int64_t j)
{
    const encoder_config *c = &p->m->config;
    const int64_t d = c->head_width, at = h * d;
    const double *q = p->wide + i * 3 * c->width + at, *k = p->wide + (j * 3 + 1) * c->width + at;
    double sum = dot(q, k, d);
    if (local && llabs(i - j) > c->window)
        return -INFINITY;
    if (c->scheme == ENCODER_DEBERTA) {
        const int64_t row = deberta_row(c, i - j) * c->width + at;
        sum += c->c2p ? dot(q, p->vectors + row, d) : 0;
        sum += c->p2c ? dot(k, p->vectors + 2 * c->span * c->width + row, d) : 0;
    }
    sum *= c->scale;
    if (c->scheme == ENCODER_T5_BUCKETS) {
        const int32_t bucket = rp_bucket(j - i, c->buckets, c->max_distance, 1, RP_STRATEGY_LOG);
        sum += (double)p->m->weights.table[bucket * c->heads + h];
    }
    return sum;
}

/* Project DeBERTa's table with the keys and queries of a layer. */
static rp_status project_table(const pass *p, const encoder_layer *l)
{
    const encoder_config *c = &p->m->config;
    const int64_t rows = 2 * c->span, width = c->width;
    double *both = malloc((size_t)(rows * 3 * width) * sizeof *both), *keys = p->vectors,
           *queries = keys + rows * width;
    rp_status status = both != NULL ? RP_OK : encoder_no_memory();
    if (status == RP_OK && !c->own_tables)
        status = multiply(&l->qkv, rows, p->table, width, both);
    for (int64_t r = 0; status == RP_OK && !c->own_tables && r < rows; r++) {
        memcpy(queries + r * width, both + r * 3 * width, (size_t)width * sizeof *both);
        memcpy(keys + r * width, both + (r * 3 + 1) * width, (size_t)width * sizeof *both);
    }
    if (status == RP_OK && c->own_tables && c->c2p)
        status = multiply(&l->table_k, rows, p->table, width, keys);
    if (status == RP_OK && c->own_tables && c->p2c)
        status = multiply(&l->table_q, rows, p->table, width, queries);
    free(both);
    return status;
}

/* ------------------------------------------------------------------------------------------------ layers */

static void attend(const pass *p, bool local)
{
    const encoder_config *c = &p->m->config;
    memset(p->mixed, 0, (size_t)(p->n * c->width) * sizeof *p->mixed);
    for (int64_t h = 0; h < c->heads; h++)
        for (int64_t i = 0; i < p->n; i++) {
            double max = -INFINITY, sum = 0, *out = p->mixed + i * c->width + h * c->head_width;
            for (int64_t j = 0; j < p->n; j++)
                max = fmax(max, p->weight[j] = score(p, local, h, i, j));
            for (int64_t j = 0; j < p->n; j++)
                sum += p->weight[j] = exp(p->weight[j] - max);
            for (int64_t j = 0; j < p->n; j++)
                for (int64_t x = 0; x < c->head_width; x++)
                    out[x] += p->weight[j] / sum * p->wide[(j * 3 + 2) * c->width + h * c->head_width + x];
        }
}

static void embed(const pass *p, const rp_encoder_tokens *s, float *row)
{
    const rp_encoder *m = p->m;
    const encoder_config *c = &m->config;
    const double scale = encoder_token_scale(c, s);
    int64_t position = c->first;
    for (int64_t i = 0; i < s->n; i++) {
        const bool counts = !c->row->after_pad || s->tokens[i] != c->padded;
        linear_row(&m->weights.word, s->tokens[i], row);
        for (int64_t k = 0; k < c->width; k++) {
            double *to = p->x + i * c->width + k;
            *to = c->token_dropout && s->tokens[i] == c->mask ? 0 : scale * (double)row[k];
            if (m->weights.position != NULL)
                *to += (double)m->weights.position[(counts ? position : c->padded) * c->width + k];
            if (m->weights.token_type != NULL)
                *to += (double)m->weights.token_type[(s->types != NULL ? s->types[i] : 0) * c->width + k];
        }
        position += counts;
    }
}

/* Begin a layer: return its input, x or norm(x). */
static const double *input_of(const pass *p, const encoder_norm *w)
{
    if (!p->m->config.row->pre_norm || w->weight == NULL)
        return p->x;
    norm(&p->m->config, w, p->n, p->x, p->y);
    return p->y;
}

/* End a layer: x += z Wᵀ + b, then the norm unless it comes before layers. */
static rp_status end_layer(const pass *p, const encoder_linear *l, const encoder_norm *w, const double *z, int64_t ldz)
{
    const encoder_config *c = &p->m->config;
    const rp_status status = multiply(l, p->n, z, ldz, p->y);
    for (int64_t k = 0; k < p->n * c->width; k++)
        p->x[k] += p->y[k];
    if (!c->row->pre_norm)
        norm(c, w, p->n, p->x, p->x);
    return status;
}

static rp_status run_layer(const pass *p, int64_t number)
{
    const encoder_config *c = &p->m->config;
    const encoder_layer *l = &p->m->weights.layer[number];
    const int64_t wide = l->up.w.out;
    rp_status status = multiply(&l->qkv, p->n, input_of(p, &l->attention_norm), c->width, p->wide);
    if (status == RP_OK && c->scheme == ENCODER_DEBERTA)
        status = project_table(p, l);
    if (status != RP_OK)
        return status;
    if (c->scheme == ENCODER_ROPE)
        rotate(p, c->theta[c->local[number]]);
    attend(p, c->local[number]);
    status = end_layer(p, &l->o, &l->attention_norm, p->mixed, c->width);
    if (status == RP_OK)
        status = multiply(&l->up, p->n, input_of(p, &l->feed_norm), c->width, p->wide);
    for (int64_t r = 0; r < p->n; r++)
        for (int64_t k = 0; k < c->inner; k++) {
            double *inner = p->wide + r * wide + k;
            *inner = encoder_activate_double(c->activation, *inner) * (c->row->gated ? inner[c->inner] : 1);
        }
    return status == RP_OK ? end_layer(p, &l->down, &l->feed_norm, p->wide, wide) : status;
}

/* x = norm(x + act(conv(embedded) + b)) */
static void convolve(const pass *p)
{
    const encoder_config *c = &p->m->config;
    const encoder_convolution *v = &p->m->weights.convolution;
    const int64_t each = c->width / c->groups;
    for (int64_t t = 0; t < p->n; t++)
        for (int64_t o = 0; o < c->width; o++) {
            double sum = (double)v->bias[o];
            for (int64_t j = 0; j < c->kernel; j++) {
                const int64_t from = t + j - c->kernel / 2;
                for (int64_t i = 0; i < each && from >= 0 && from < p->n; i++)
                    sum += (double)v->weight[(o * each + i) * c->kernel + j] *
                           p->embedded[from * c->width + o / each * each + i];
            }
            p->x[t * c->width + o] += encoder_activate_double(c->convolution_activation, sum);
        }
    norm(c, &v->norm, p->n, p->x, p->x);
}

static rp_status take(pass *p, int64_t n)
{
    const encoder_config *c = &p->m->config;
    const int64_t wide = 3 * c->width > 2 * c->inner ? 3 * c->width : 2 * c->inner, rows = 2 * c->span + 1;
    p->n = n;
    p->x = calloc((size_t)(n * (4 * c->width + wide + 1) + 3 * rows * c->width) + 1, sizeof *p->x);
    if (p->x == NULL)
        return encoder_no_memory();
    p->y = p->x + n * c->width;
    p->mixed = p->y + n * c->width;
    p->embedded = p->mixed + n * c->width;
    p->wide = p->embedded + n * c->width;
    p->weight = p->wide + n * wide;
    p->table = p->weight + n;
    p->vectors = p->table + rows * c->width;
    return RP_OK;
}

/* Norm DeBERTa's table. */
static void norm_table(const pass *p)
{
    const encoder_config *c = &p->m->config;
    for (int64_t k = 0; k < 2 * c->span * c->width; k++)
        p->table[k] = (double)p->m->weights.table[k];
    if (c->table_norm)
        norm(c, &p->m->weights.table_norm, 2 * c->span, p->table, p->table);
}

rp_status encoder_reference(const rp_encoder *m, const rp_encoder_tokens *s, double *hidden)
{
    const encoder_config *c = &m->config;
    const encoder_weights *w = &m->weights;
    pass p = {.m = m};
    float *row = malloc((size_t)c->width * sizeof *row);
    rp_status status = row != NULL ? take(&p, s->n) : encoder_no_memory();
    if (status == RP_OK) {
        embed(&p, s, row);
        if (c->embedding_norm)
            norm(c, &w->embedding_norm, s->n, p.x, p.x);
        norm_table(&p);
        memcpy(p.embedded, p.x, (size_t)(s->n * c->width) * sizeof *p.x);
    }
    for (int64_t i = 0; i < c->layers && status == RP_OK; i++)
        if ((status = run_layer(&p, i)) == RP_OK && i == 0 && c->kernel > 0)
            convolve(&p);
    if (status == RP_OK && w->final_norm.weight != NULL)
        norm(c, &w->final_norm, s->n, p.x, p.x);
    if (status == RP_OK)
        memcpy(hidden, p.x, (size_t)(s->n * c->width) * sizeof *hidden);
    free(p.x);
    free(row);
    return status;
}
