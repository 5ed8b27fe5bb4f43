/* reference.c -- the model computed by plain loops in double, from the same packed weights. `relpos t5 verify` and the
 * tests compare the fast code with it; `relpos t5 explain` shows its attention. The only code that it shares with the
 * fast path is the list of weights and the T5 bucket function.
 * SPDX-License-Identifier: Apache-2.0 */
#include "t5/model.h"
#include "src/base/random.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { GROUP = 8, OUTPUTS = 16 }; /* rows of x that share one pass over the weights; outputs per task */

/* A pass of one sequence through the encoder or the decoder. */
typedef struct pass {
    const rp_t5 *m;
    rp_t5_rounding rounding;
    model_watch *watch;
    uint64_t drawn; /* number of random numbers drawn so far */
    int64_t n;      /* number of tokens */
    double *x;      /* [n, d_model]: the residual stream */
    double *normed, *q, *k, *v, *mixed, *inner, *gate, *out;
    double *rounded; /* inputs of a linear layer: groups of GROUP rows, transposed */
    float *weights;  /* one row of weights per worker */
    double *memory;
    rp_t5_attention *wanted; /* if not NULL: copy the attention of layer `stop` of `part` here, and end the pass */
    rp_t5_part part;
    int64_t stop;
    bool found;
} pass;

/* ------------------------------------------------------------------------------------------------ memory */

/* Return the largest number of inputs that a linear layer has. */
static int64_t widest_input(const t5_config *c)
{
    const int64_t attention = c->d_model > c->inner ? c->d_model : c->inner;
    return attention > c->d_ff ? attention : c->d_ff;
}

/* Allocate arrays for n tokens that attend to at most `keys` keys. */
static rp_status allocate(pass *p, int64_t n, int64_t keys)
{
    const t5_config *c = &p->m->config;
    const int64_t d = c->d_model, max = widest_input(c), rows = n > keys ? n : keys;
    const int64_t sizes[] = {n * d,        n * d,       rows * c->inner, rows * c->inner, rows * c->inner,
                             n * c->inner, n * c->d_ff, n * c->d_ff,     n * d,           (rows + GROUP) * max};
    double **const to[] = {&p->x,     &p->normed, &p->q,    &p->k,   &p->v,
                           &p->mixed, &p->inner,  &p->gate, &p->out, &p->rounded};
    enum { ARRAYS = sizeof sizes / sizeof *sizes };
    int64_t all = 0, bytes;
    if (!t5_mul(rows + GROUP, (ARRAYS * max + 1) * 8, &bytes))
        return t5_fail(RP_E_OVERFLOW, "a sequence of %lld tokens is too long (use shorter inputs)", (long long)rows);
    for (int k = 0; k < ARRAYS; k++)
        all += sizes[k];
    p->n = n;
    p->memory = calloc((size_t)all + 1, sizeof *p->memory);
    p->weights = malloc((size_t)(rp_pool_threads(p->m->pool) * max) * sizeof *p->weights);
    if (p->memory == NULL || p->weights == NULL)
        return t5_no_memory();
    double *at = p->memory;
    for (int k = 0; k < ARRAYS; at += sizes[k++])
        *to[k] = at;
    return RP_OK;
}

static void release(pass *p)
{
    free(p->memory);
    free(p->weights);
    p->memory = NULL;
    p->weights = NULL;
}

/* ------------------------------------------------------------------------------------------------ linear layers */

/* Round to the nearest integer, ties to even. If x is within `close` of a midpoint, round it the other way. */
static double round_within(double x, double close)
{
    const double nearest = rint(x), off = x - nearest;
    return close > 0 && 0.5 - fabs(off) <= close ? nearest + (off < 0 ? -1 : 1) : nearest;
}

/* Round to the 8 significant bits of bf16, without limiting the exponent. */
static double round_bf16(double x, double close)
{
    int exponent;
    const double fraction = frexp(x, &exponent);
    return x != 0 ? ldexp(round_within(fraction * 256, ldexp(close, 8 - exponent)), exponent - 8) : 0;
}

static uint64_t draw(pass *p)
{
    return rpi_mix64(p->rounding.seed + 0x9e3779b97f4a7c15u * ++p->drawn);
}

/* Round inputs as a layer of this type does: for bf16 weights to bf16; for int8, int4 and q8 to integers up to 127
 * times a scale; not at all for f32 and f16. */
static void round_numbers(pass *p, linear_type type, int64_t n, double *x)
{
    double max = 0;
    if (type <= LINEAR_F16 || p->rounding.exact_inputs)
        return;
    for (int64_t i = 0; i < n; i++)
        max = fmax(max, fabs(x[i]));
    for (int64_t i = 0; max > 0 && i < n; i++) {
        const bool goes = p->rounding.other_way > 0 && (p->rounding.seed == 0 || draw(p) >> 63);
        const double close = goes ? p->rounding.other_way * max : 0;
        x[i] = type == LINEAR_BF16 ? round_bf16(x[i], close)
                                   : round_within(x[i] * (127 / max), close * (127 / max)) * (max / 127);
    }
}

/* Round a row of inputs. For q8, groups of 32 have their own scale. */
static void round_row(pass *p, linear_type type, int64_t n, double *x)
{
    const int64_t group = type == LINEAR_Q8 ? 32 : n;
    for (int64_t i = 0; i < n; i += group)
        round_numbers(p, type, n - i < group ? n - i : group, x + i);
}

/* Add the requested noise to a row of inputs, then round the row. */
static void round_inputs(pass *p, linear_type type, int64_t n, double *x)
{
    for (int64_t i = 0; p->rounding.noise != 0 && i < n; i++)
        x[i] *= 1 + p->rounding.noise * ((double)(draw(p) >> 11) * 0x1p-52 - 1);
    round_row(p, type, n, x);
}

/* Round queries, keys, values or results of the decoder's attention to bf16, unless the weights are f32 or f16. */
static void round_attended(pass *p, int64_t rows, double *x)
{
    for (int64_t r = 0; r < rows && p->m->weights.type > LINEAR_F16; r++)
        round_row(p, LINEAR_BF16, p->m->config.inner, x + r * p->m->config.inner);
}

typedef struct product {
    const pass *p;
    const linear_weights *w;
    int64_t rows, ld;
    double *y;
} product;

static void outputs_task(void *context, int64_t n, int32_t worker)
{
    const product *k = context;
    const int64_t in = k->w->in, end = (n + 1) * OUTPUTS < k->w->out ? (n + 1) * OUTPUTS : k->w->out;
    float *w = k->p->weights + worker * in;
    for (int64_t o = n * OUTPUTS; o < end; o++) {
        linear_row(k->w, o, w);
        for (int64_t r = 0; r < k->rows; r += GROUP) {
            const double *x = k->p->rounded + r * in;
            double sum[GROUP] = {0};
            for (int64_t i = 0; i < in; i++)
                for (int g = 0; g < GROUP; g++)
                    sum[g] += (double)w[i] * x[i * GROUP + g];
            for (int64_t g = 0; g < GROUP && r + g < k->rows; g++)
                k->y[(r + g) * k->ld + o] = sum[g];
        }
    }
}

/* Compute y [rows, out] = x Wᵀ for x [rows, in]; ld is the number of elements from one row of y to the next. `type` is
 * the type for which x is rounded. */
static rp_status multiply_as(pass *p, linear_type type, const linear_weights *w, int64_t rows, const double *x,
                             double *y, int64_t ld)
{
    const int64_t in = w->in;
    const product k = {p, w, rows, ld, y};
    if (model_stopped(p->watch))
        return t5_cancelled();
    double *row = malloc((size_t)in * sizeof *row);
    if (row == NULL)
        return t5_no_memory();
    for (int64_t r = 0; r < (rows + GROUP - 1) / GROUP * GROUP; r++) {
        if (r < rows) {
            memcpy(row, x + r * in, (size_t)in * sizeof *row);
            round_inputs(p, type, in, row);
        }
        for (int64_t i = 0; i < in; i++)
            p->rounded[(r / GROUP * in + i) * GROUP + r % GROUP] = r < rows ? row[i] : 0;
    }
    free(row);
    return rp_pool_run(p->m->pool, (w->out + OUTPUTS - 1) / OUTPUTS, outputs_task, (void *)(uintptr_t)&k);
}

static rp_status multiply(pass *p, const linear_weights *w, int64_t rows, const double *x, double *y, int64_t ld)
{
    if (w->type != LINEAR_BLOCKS)
        return multiply_as(p, w->type, w, rows, x, y, ld);
    const linear_tensors *tensors = w->packed;
    rp_status status = RP_OK;
    for (int n = 0; n < tensors->n && status == RP_OK; n++) {
        const linear_tensor *t = &tensors->each[n];
        const linear_tensors one = {1, {*t}};
        const linear_weights alone = {LINEAR_BLOCKS, t->w.in, t->w.out, &one};
        status = multiply_as(p, t->blocks != NULL ? LINEAR_Q8 : t->w.type, &alone, rows, x, y, ld);
        y += t->w.out;
    }
    return status;
}

/* Add y Wᵀ to the residual stream. */
static rp_status add(pass *p, const linear_weights *w, const double *y)
{
    const int64_t d = p->m->config.d_model;
    const rp_status status = multiply(p, w, p->n, y, p->out, d);
    for (int64_t k = 0; status == RP_OK && k < p->n * d; k++)
        p->x[k] += p->out[k];
    return status;
}

static void norm(const pass *p, const float *weight, int64_t n, const double *x, double *to)
{
    const int64_t d = p->m->config.d_model;
    for (int64_t r = 0; r < n; r++, x += d, to += d) {
        double sum = 0;
        for (int64_t k = 0; k < d; k++)
            sum += x[k] * x[k];
        for (int64_t k = 0; k < d; k++)
            to[k] = (double)weight[k] * x[k] / sqrt(sum / (double)d + p->m->config.eps);
    }
}

/* ------------------------------------------------------------------------------------------------ attention */

/* A set of keys: tokens, or sums of blocks of tokens. The position of such a sum is the index of its block. */
typedef struct keys {
    const double *k, *v; /* [n, inner] */
    int64_t n, block;    /* block: tokens per block; 0: keys are tokens */
    const float *table;  /* [buckets, heads]; NULL: no bias */
    bool both_ways, causal;
    int64_t window; /* largest distance from query to key; -1: unlimited */
} keys;

/* Return the score of query i and key j in head h, or -INFINITY if the key is masked. */
static double score(const pass *p, const keys *s, const double *q, int64_t h, int64_t i, int64_t j)
{
    const t5_config *c = &p->m->config;
    int64_t at = i;
    if (s->block > 0) /* tokens after the last complete block count as part of it */
        at = i / s->block < s->n ? i / s->block : s->n - 1;
    if ((s->causal && j > at) || (s->window >= 0 && llabs(j - at) > s->window))
        return -INFINITY;
    double sum = 0;
    for (int64_t x = 0; x < c->d_kv; x++)
        sum += q[i * c->inner + h * c->d_kv + x] * s->k[j * c->inner + h * c->d_kv + x];
    if (s->table != NULL)
        sum +=
            (double)
                s->table[rp_bucket(j - at, c->buckets, c->max_distance, s->both_ways, RP_STRATEGY_LOG) * c->heads + h];
    return sum;
}

/* Compute p->mixed = softmax(scores over the keys of all sets) times the values. */
static rp_status attend_to(pass *p, const keys *set, int n_sets)
{
    const t5_config *c = &p->m->config;
    int64_t n_keys = 0;
    for (int s = 0; s < n_sets; s++)
        n_keys += set[s].n;
    double *weight = malloc(((size_t)n_keys + 1) * sizeof *weight);
    if (weight == NULL)
        return t5_no_memory();
    memset(p->mixed, 0, (size_t)(p->n * c->inner) * sizeof *p->mixed);
    for (int64_t h = 0; h < c->heads; h++)
        for (int64_t i = 0; i < p->n; i++) {
            double max = -INFINITY, sum = 0, *w = weight, *out = p->mixed + i * c->inner + h * c->d_kv;
            for (int s = 0; s < n_sets; s++)
                for (int64_t j = 0; j < set[s].n; j++, w++)
                    max = fmax(max, *w = score(p, &set[s], p->q, h, i, j));
            for (int64_t j = 0; j < n_keys; j++)
                sum += weight[j] = exp(weight[j] - max);
            w = weight;
            for (int s = 0; s < n_sets; s++)
                for (int64_t j = 0; j < set[s].n; j++, w++)
                    for (int64_t x = 0; x < c->d_kv; x++)
                        out[x] += *w / sum * set[s].v[j * c->inner + h * c->d_kv + x];
        }
    free(weight);
    return RP_OK;
}

/* Multiply rows of x by one stacked matrix, which gives q, k and v (or k and v, or only q). */
static rp_status project(pass *p, const linear_weights *qkv, int64_t rows, const double *x, double *const *to,
                         int parts)
{
    const int64_t inner = p->m->config.inner;
    double *all = malloc((size_t)(rows * parts * inner + 1) * sizeof *all);
    if (all == NULL)
        return t5_no_memory();
    const rp_status status = multiply(p, qkv, rows, x, all, parts * inner);
    for (int64_t r = 0; status == RP_OK && r < rows; r++)
        for (int n = 0; n < parts; n++)
            memcpy(to[n] + r * inner, all + (r * parts + n) * inner, (size_t)inner * sizeof *all);
    free(all);
    return status;
}

/* If the caller wants the attention of this layer, copy its q, k and v and return true: the pass ends here. */
static bool wanted(pass *p, rp_t5_part part, int64_t layer, const keys *set)
{
    const t5_config *c = &p->m->config;
    rp_t5_attention *a = p->wanted;
    if (a == NULL || part != p->part || layer != p->stop)
        return false;
    const double *const from[3] = {p->q, set->k, set->v};
    const int64_t rows[3] = {p->n, set->n, set->n};
    double *to = (double *)(a + 1);
    const double **const at[3] = {&a->q, &a->k, &a->v};
    a->len_q = p->n;
    a->len_k = set->n;
    for (int n = 0; n < 3; n++) {
        *at[n] = to;
        for (int64_t h = 0; h < c->heads; h++)
            for (int64_t r = 0; r < rows[n]; r++, to += c->d_kv)
                memcpy(to, from[n] + r * c->inner + h * c->d_kv, (size_t)c->d_kv * sizeof *to);
    }
    a->table = set->table;
    a->bidirectional = set->both_ways;
    a->causal = set->causal;
    a->window = set->window;
    return p->found = true;
}

/* Compute the sums of blocks of normed tokens, and the keys and values of these sums. */
static rp_status make_globals(pass *p, const t5_block *b, const double *normed, keys *set, double **memory)
{
    const t5_config *c = &p->m->config;
    const int64_t d = c->d_model, n = p->n / c->global_block;
    double *sums = calloc((size_t)(n * (d + 3 * c->inner)) + 1, sizeof *sums);
    *memory = sums;
    if (sums == NULL)
        return t5_no_memory();
    for (int64_t i = 0; n > 0 && i < p->n; i++)
        for (int64_t k = 0; k < d; k++)
            sums[(i / c->global_block < n ? i / c->global_block : n - 1) * d + k] += normed[i * d + k];
    double *const to[3] = {sums + n * d, sums + n * (d + c->inner), sums + n * (d + 2 * c->inner)};
    norm(p, b->norm_global, n, sums, sums);
    *set = (keys){to[1], to[2], n, c->global_block, p->m->weights.encoder.block[0].global_table, true, false, -1};
    return n > 0 ? project(p, &b->qkv, n, sums, to, 3) : RP_OK;
}

static rp_status self_attention(pass *p, const t5_stack *stack, int64_t layer, bool encoder)
{
    const t5_config *c = &p->m->config;
    const t5_block *b = &stack->block[layer];
    const bool local = encoder && c->encoder_attention != T5_FULL;
    const int n_sets = encoder && c->encoder_attention == T5_TRANSIENT_GLOBAL ? 2 : 1;
    double *const to[3] = {p->q, p->k, p->v}, *memory = NULL;
    keys set[2] = {{p->k, p->v, p->n, 0, stack->block[c->kind == T5_UMT5 ? layer : 0].table, encoder, !encoder,
                    local ? c->radius : -1}};
    norm(p, b->norm_self, p->n, p->x, p->normed);
    rp_status status = project(p, &b->qkv, p->n, p->normed, to, 3);
    if (status == RP_OK && n_sets > 1)
        status = make_globals(p, b, p->normed, &set[1], &memory);
    for (int n = 0; n < 3 && !encoder && status == RP_OK; n++)
        round_attended(p, p->n, to[n]);
    if (status == RP_OK && !wanted(p, encoder ? RP_T5_ENCODER : RP_T5_DECODER, layer, set)) {
        status = attend_to(p, set, n_sets);
        if (status == RP_OK && !encoder)
            round_attended(p, p->n, p->mixed);
        if (status == RP_OK)
            status = add(p, &b->o, p->mixed);
    }
    free(memory);
    return status;
}

/* Compute attention to the encoder's output, hidden [n, d_model]. */
static rp_status cross_attention(pass *p, const t5_block *b, int64_t layer, int64_t n, const double *hidden)
{
    double *const kv[2] = {p->k, p->v}, *const q[1] = {p->q};
    norm(p, b->norm_cross, p->n, p->x, p->normed);
    rp_status status = project(p, &b->cross_q, p->n, p->normed, q, 1);
    if (status == RP_OK)
        status = project(p, &b->cross_kv, n, hidden, kv, 2);
    const keys set = {p->k, p->v, n, 0, NULL, false, false, -1};
    if (status == RP_OK) {
        round_attended(p, p->n, p->q);
        round_attended(p, n, p->k);
        round_attended(p, n, p->v);
    }
    if (status != RP_OK || wanted(p, RP_T5_CROSS, layer, &set))
        return status;
    status = attend_to(p, &set, 1);
    if (status == RP_OK)
        round_attended(p, p->n, p->mixed);
    return status == RP_OK ? add(p, &b->cross_o, p->mixed) : status;
}

/* ---------------------------------------------------------------------------------------------- feed-forward layers */

static double activate(t5_activation activation, double x)
{
    switch (activation) {
    case T5_RELU: return x > 0 ? x : 0;
    case T5_GELU_TANH: return x / 2 * (1 + tanh(sqrt(2 / acos(-1)) * (x + 0.044715 * x * x * x)));
    case T5_GELU: return x / 2 * (1 + erf(x / sqrt(2)));
    default: return x / (1 + exp(-x));
    }
}

/* Compute a feed-forward layer: to [rows, d_model] from x [rows, d_model]. */
static rp_status feed(pass *p, const t5_feed *f, int64_t rows, const double *x, double *to)
{
    const t5_config *c = &p->m->config;
    rp_status status = multiply(p, &f->wi, rows, x, p->inner, c->d_ff);
    if (status == RP_OK && c->gated)
        status = multiply(p, &f->wi_gate, rows, x, p->gate, c->d_ff);
    for (int64_t k = 0; status == RP_OK && k < rows * c->d_ff; k++)
        p->inner[k] = activate(c->activation, p->inner[k]) * (c->gated ? p->gate[k] : 1);
    return status == RP_OK ? multiply(p, &f->wo, rows, p->inner, to, c->d_model) : status;
}

/* Send each token to its likeliest expert (the first if several are equal). With `bounded`, an expert skips tokens
 * beyond its capacity. */
static rp_status feed_experts(pass *p, const t5_block *b, bool bounded)
{
    const t5_config *c = &p->m->config;
    const int64_t d = c->d_model;
    double *scores = malloc((size_t)(p->n * c->experts) * sizeof *scores);
    int64_t *used = calloc((size_t)c->experts, sizeof *used);
    rp_status status = scores != NULL && used != NULL ? RP_OK : t5_no_memory();
    if (status == RP_OK)
        status = multiply(p, &b->router, p->n, p->normed, scores, c->experts);
    for (int64_t r = 0; status == RP_OK && r < p->n; r++) {
        const double *s = scores + r * c->experts;
        int64_t best = 0;
        double sum = 0;
        for (int64_t e = 1; e < c->experts; e++)
            best = s[e] > s[best] ? e : best;
        for (int64_t e = 0; e < c->experts; e++)
            sum += exp(s[e] - s[best]);
        if (bounded && used[best]++ >= c->capacity)
            continue;
        status = feed(p, &b->experts[best], 1, p->normed + r * d, p->out);
        for (int64_t k = 0; status == RP_OK && k < d; k++)
            p->x[r * d + k] += p->out[k] / sum;
    }
    free(scores);
    free(used);
    return status;
}

static rp_status feed_forward(pass *p, const t5_block *b, bool encoder)
{
    const int64_t d = p->m->config.d_model;
    norm(p, b->norm_feed, p->n, p->x, p->normed);
    if (b->experts != NULL)
        return feed_experts(p, b, encoder);
    const rp_status status = feed(p, &b->feed, p->n, p->normed, p->out);
    for (int64_t k = 0; status == RP_OK && k < p->n * d; k++)
        p->x[k] += p->out[k];
    return status;
}

/* ------------------------------------------------------------------------------------------------ stacks */

static rp_status embed(pass *p, const int32_t *tokens)
{
    const int64_t d = p->m->config.d_model;
    float *row = malloc((size_t)d * sizeof *row);
    if (row == NULL)
        return t5_no_memory();
    for (int64_t r = 0; r < p->n; r++) {
        linear_row(&p->m->weights.embedding, tokens[r], row);
        for (int64_t k = 0; k < d; k++)
            p->x[r * d + k] = (double)row[k];
    }
    free(row);
    return RP_OK;
}

/* Run all layers, and leave the hidden states in p->normed. End early once p->wanted has been filled. */
static rp_status run_stack(pass *p, bool encoder, const int32_t *tokens, int64_t n_source, const double *hidden)
{
    const t5_stack *stack = encoder ? &p->m->weights.encoder : &p->m->weights.decoder;
    rp_status status = embed(p, tokens);
    for (int64_t l = 0; status == RP_OK && !p->found && l < stack->layers; l++) {
        model_watch_at(p->watch, (double)l / (double)stack->layers);
        status = self_attention(p, stack, l, encoder);
        if (status == RP_OK && !encoder && !p->found)
            status = cross_attention(p, &stack->block[l], l, n_source, hidden);
        if (status == RP_OK && !p->found)
            status = feed_forward(p, &stack->block[l], encoder);
    }
    if (status == RP_OK && !p->found)
        norm(p, stack->norm, p->n, p->x, p->normed);
    return status;
}

static rp_status run_head(pass *p, double *logits)
{
    const t5_config *c = &p->m->config;
    for (int64_t k = 0; c->scale && k < p->n * c->d_model; k++)
        p->normed[k] /= sqrt((double)c->d_model);
    return multiply(p, &p->m->weights.head, p->n, p->normed, logits, c->vocab);
}

/* Run the decoder on the start token followed by all tokens of the target except the last. */
static rp_status run_decoder(pass *p, rp_t5_tokens source, rp_t5_tokens target, const double *hidden, double *logits)
{
    int32_t *tokens = malloc(((size_t)target.n + 1) * sizeof *tokens);
    rp_status status = tokens != NULL ? allocate(p, target.n, source.n) : t5_no_memory();
    if (status == RP_OK) {
        tokens[0] = p->m->config.start;
        if (target.n > 1)
            memcpy(tokens + 1, target.tokens, (size_t)(target.n - 1) * sizeof *tokens);
        status = run_stack(p, false, tokens, source.n, hidden);
    }
    if (status == RP_OK && logits != NULL)
        status = run_head(p, logits);
    free(tokens);
    release(p);
    return status;
}

/* Compute hidden states and logits, or only the attention p->wanted. */
static rp_status run(pass *p, rp_t5_tokens source, rp_t5_tokens target, double *hidden, double *logits)
{
    const size_t size = (size_t)(source.n * p->m->config.d_model);
    double *encoded = malloc((size + 1) * sizeof *encoded);
    model_watch_part(p->watch, 0, target.n > 0 ? 0.5 : 1);
    rp_status status = encoded != NULL ? allocate(p, source.n, 0) : t5_no_memory();
    if (status == RP_OK)
        status = run_stack(p, true, source.tokens, 0, NULL);
    if (status == RP_OK)
        memcpy(encoded, p->normed, size * sizeof *encoded);
    if (status == RP_OK && hidden != NULL)
        memcpy(hidden, encoded, size * sizeof *encoded);
    release(p);
    model_watch_part(p->watch, 0.5, 1);
    if (status == RP_OK && target.n > 0 && !p->found)
        status = run_decoder(p, source, target, encoded, logits);
    free(encoded);
    return status;
}

/* ------------------------------------------------------------------------------------------------ calls */

static rp_status check(const rp_t5 *m, rp_t5_tokens source, rp_t5_tokens target)
{
    rp_status status = t5_check_tokens(m, "source", 1, &source);
    if (status == RP_OK)
        status = t5_check_tokens(m, "target", 1, &target);
    return status == RP_OK && target.n > 0 ? t5_need_decoder(m) : status;
}

rp_status rp_t5_reference(const rp_t5 *m, rp_t5_tokens source, rp_t5_tokens target, const rp_t5_rounding *rounding,
                          double *hidden, double *logits, rp_progress *progress, void *context)
{
    model_watch watch = model_watch_of(progress, context);
    pass p = {.m = m, .watch = &watch};
    const rp_status status = check(m, source, target);
    if (status != RP_OK)
        return status;
    if (rounding != NULL)
        p.rounding = *rounding;
    if (logits == NULL)
        target.n = 0;
    return t5_finish(m, run(&p, source, target, hidden, logits));
}

rp_status rp_t5_attention_of(const rp_t5 *m, rp_t5_part part, int64_t layer, rp_t5_tokens source, rp_t5_tokens target,
                             rp_t5_attention **attention, rp_progress *progress, void *context)
{
    model_watch watch = model_watch_of(progress, context);
    pass p = {.m = m, .watch = &watch, .part = part, .stop = layer};
    int64_t size;
    if (attention == NULL)
        return t5_fail(RP_E_ARG, "attention is NULL; pass the address of a pointer");
    *attention = NULL;
    rp_status status = check(m, source, target);
    if (status != RP_OK)
        return status;
    if ((unsigned)part > RP_T5_CROSS)
        return t5_fail(RP_E_ARG, "part is %d; it must be a value of rp_t5_part", (int)part);
    const int64_t layers = part == RP_T5_ENCODER ? m->weights.encoder.layers : m->weights.decoder.layers;
    const int64_t n_q = part == RP_T5_ENCODER ? source.n : target.n, n_k = part == RP_T5_DECODER ? target.n : source.n;
    if (part != RP_T5_ENCODER && (status = t5_need_decoder(m)) != RP_OK)
        return status;
    if (layer < 0 || layer >= layers)
        return t5_fail(RP_E_RANGE, "layer is %lld; it must be 0 to %lld", (long long)layer, (long long)layers - 1);
    if (n_q == 0 || n_k == 0)
        return t5_fail(RP_E_ARG, "%s has no tokens; it must have at least one",
                       part == RP_T5_ENCODER || target.n > 0 ? "source" : "target");
    if (part == RP_T5_ENCODER && m->config.encoder_attention == T5_TRANSIENT_GLOBAL)
        return t5_fail(RP_E_UNSUPPORTED,
                       "transient-global attention cannot be shown, since some of its keys are sums of tokens "
                       "(choose a layer of the decoder)");
    if (!t5_mul(n_q + 2 * n_k, m->config.inner * (int64_t)sizeof(double), &size))
        return t5_fail(RP_E_OVERFLOW, "sequences of %lld and %lld tokens are too long (use shorter inputs)",
                       (long long)n_q, (long long)n_k);
    p.wanted = calloc(1, sizeof *p.wanted + (size_t)size);
    if (p.wanted == NULL)
        return t5_no_memory();
    *p.wanted = (rp_t5_attention){.heads = m->config.heads,
                                  .d_kv = m->config.d_kv,
                                  .buckets = m->config.buckets,
                                  .max_distance = m->config.max_distance};
    if (part == RP_T5_ENCODER)
        target.n = 0;
    status = t5_finish(m, run(&p, source, target, NULL, NULL));
    if (status == RP_OK)
        *attention = p.wanted;
    else
        free(p.wanted);
    return status;
}

void rp_t5_attention_free(rp_t5_attention *a)
{
    free(a);
}
