/* forward.c -- tokens to hidden states. Linear layers process the rows of all sequences together, without padding;
 * attention processes each sequence separately.
 * SPDX-License-Identifier: Apache-2.0 */
#include "checkpoint/finite.h"
#include "encoder/encoder.h"
#include <stdlib.h>
#include <string.h>

enum { FEED_ROWS = 96 }; /* rows per thread and pass of a feed-forward layer: their inner values fit in cache */

/* One pass of several sequences through the model. */
typedef struct pass {
    const rp_encoder *m;
    model_watch *watch;
    int64_t n, rows;       /* sequences, and rows of all */
    const int64_t *starts; /* [n + 1]: first row of each sequence */
    float *x;              /* [rows, width]: the residual stream */
    float *embedded;       /* [rows, width]: the embedding, if a convolution follows the first layer */
    float *y;              /* [rows, width]: norms of x, if they come before the layers */
    float *qkv, *mixed;    /* [rows, 3 width] and [rows, width]: input and output of attention */
    float *inner;          /* [feed_rows, outputs of up] */
    int64_t feed_rows;
    void *scratch;                  /* of linear layers */
    encoder_attention attention[2]; /* of layers without and with a window */
    int64_t layer;
    model_failure failure;
} pass;

/* ------------------------------------------------------------------------------------------------ memory */

/* Return the number of rows of a feed-forward layer that are computed together. */
static int64_t feed_rows(const rp_encoder *m, int64_t rows)
{
    const int64_t most = FEED_ROWS * (int64_t)rp_pool_threads(m->pool);
    return rows < most ? rows : most;
}

/* Return the bytes of scratch memory for linear layers; -1 on overflow. */
static int64_t scratch_bytes(const rp_encoder *m, int64_t rows)
{
    const int64_t wide = linear_scratch_bytes(m->weights.type, rows, m->config.width),
                  narrow = linear_scratch_bytes(m->weights.type, feed_rows(m, rows), m->config.inner);
    return wide < 0 || narrow < 0 ? -1 : wide > narrow ? wide : narrow;
}

/* Find out whether some layers have no window, and whether some have one. */
static void find_windows(const encoder_config *c, bool *full, bool *local)
{
    *full = *local = false;
    for (int64_t i = 0; i < c->layers; i++)
        *(c->local[i] ? local : full) = true;
}

int64_t rp_encoder_hidden_bytes(const rp_encoder *m, int64_t tokens, int64_t longest)
{
    if (m == NULL || longest < 0 || longest > tokens || tokens > INT32_MAX)
        return -1;
    if (longest == 0)
        return 0;
    const encoder_config *c = &m->config;
    const int64_t rows = longest > ENCODER_ROWS  ? longest
                         : tokens < ENCODER_ROWS ? tokens
                                                 : ENCODER_ROWS,
                  scratch = scratch_bytes(m, rows), columns = (5 + c->row->pre_norm + (c->kernel > 0)) * c->width,
                  inner = feed_rows(m, rows) * (c->row->gated ? 2 : 1);
    int64_t bytes, feed;
    bool kind[2];
    find_windows(c, &kind[0], &kind[1]);
    if (scratch < 0 || __builtin_mul_overflow(rows, columns * 4, &bytes) ||
        __builtin_mul_overflow(inner, c->inner * 4, &feed) || __builtin_add_overflow(bytes, feed, &bytes) ||
        __builtin_add_overflow(bytes, scratch + encoder_convolution_bytes(m, rows), &bytes))
        return -1;
    for (int k = 0; k < 2; k++) {
        const int64_t attention = kind[k] ? encoder_attention_bytes(m, k == 1, longest) : 0;
        if (attention < 0 || __builtin_add_overflow(bytes, attention, &bytes))
            return -1;
    }
    return bytes;
}

static rp_status make_pass(pass *p, int64_t longest)
{
    const encoder_config *c = &p->m->config;
    const int64_t width = c->width, scratch = scratch_bytes(p->m, p->rows);
    bool full, local;
    p->feed_rows = feed_rows(p->m, p->rows);
    if (scratch < 0)
        return encoder_fail(RP_E_OVERFLOW, "a call of %lld tokens is too large (use fewer or shorter texts)",
                            (long long)p->rows);
    p->x = encoder_take(p->rows, width);
    p->y = encoder_take(c->row->pre_norm ? p->rows : 0, width);
    p->embedded = encoder_take(c->kernel > 0 ? p->rows : 0, width);
    p->qkv = encoder_take(p->rows, 3 * width);
    p->mixed = encoder_take(p->rows, width);
    p->inner = encoder_take(p->feed_rows, c->row->gated ? 2 * c->inner : c->inner);
    p->scratch = scratch > 0 ? aligned_alloc(64, ((size_t)scratch + 63) / 64 * 64) : NULL;
    if (p->x == NULL || p->y == NULL || p->embedded == NULL || p->qkv == NULL || p->mixed == NULL || p->inner == NULL ||
        (scratch > 0 && p->scratch == NULL))
        return encoder_no_memory();
    find_windows(c, &full, &local);
    rp_status status = full ? encoder_attention_make(&p->attention[0], p->m, false, longest) : RP_OK;
    if (status == RP_OK && local)
        status = encoder_attention_make(&p->attention[1], p->m, true, longest);
    return status;
}

static void free_pass(pass *p)
{
    for (int k = 0; k < 2; k++)
        encoder_attention_free(&p->attention[k]);
    free(p->x);
    free(p->y);
    free(p->embedded);
    free(p->qkv);
    free(p->mixed);
    free(p->inner);
    free(p->scratch);
}

/* ------------------------------------------------------------------------------------------------ embedding */

/* Compute the rows of one sequence before the norm: scale * word + position + token type. */
static void embed(const rp_encoder *m, const rp_encoder_tokens *s, float *to)
{
    const encoder_config *c = &m->config;
    const encoder_weights *w = &m->weights;
    const float scale = (float)encoder_token_scale(c, s);
    int64_t position = c->first;
    for (int64_t i = 0; i < s->n; i++, to += c->width) {
        const bool counts = !c->row->after_pad || s->tokens[i] != c->padded;
        linear_row(&w->word, s->tokens[i], to);
        for (int64_t k = 0; k < c->width && c->token_dropout; k++)
            to[k] = s->tokens[i] != c->mask ? scale * to[k] : 0;
        if (w->token_type != NULL) {
            const float *type = w->token_type + (s->types != NULL ? s->types[i] : 0) * c->width;
            for (int64_t k = 0; k < c->width; k++)
                to[k] += type[k];
        }
        if (w->position != NULL) { /* a padding token of RoBERTa has the position pad, and does not count */
            const float *at = w->position + (counts ? position : c->padded) * c->width;
            for (int64_t k = 0; k < c->width; k++)
                to[k] += at[k];
        }
        position += counts;
    }
}

/* ------------------------------------------------------------------------------------------------ layers */

/* Call the callback when `done` layers are done. */
static bool stopped(const pass *p, double done)
{
    model_watch_at(p->watch, done / (double)p->m->config.layers);
    return model_stopped(p->watch);
}

rp_status encoder_multiply(const rp_encoder *m, const encoder_linear *l, int64_t rows, const float *x, int64_t ldx,
                           float *y, linear_then then, void *scratch)
{
    const linear_call call = {
        .rows = rows, .x = x, .ldx = ldx, .y = y, .ldy = l->w.out, .then = then, .bias = l->bias, .scratch = scratch};
    return encoder_linear_failed(linear_apply(m->pool, &l->w, &call));
}

rp_status encoder_activate(const rp_encoder *m, const encoder_linear *l, encoder_activation activation, bool gated,
                           int64_t rows, const float *x, float *y, void *scratch)
{
    static const linear_then then[] = {
        [ENCODER_GELU] = LINEAR_GELU_ERF, [ENCODER_GELU_TANH] = LINEAR_GELU, [ENCODER_RELU] = LINEAR_RELU};
    const bool later = gated || activation > ENCODER_RELU;
    const rp_status status =
        encoder_multiply(m, l, rows, x, l->w.in, y, later ? LINEAR_STORE : then[activation], scratch);
    if (status == RP_OK && later)
        encoder_activate_rows(m->pool, rows, &(encoder_activated){y, l->w.out, activation, gated});
    return status;
}

/* x += z Wᵀ + b for some rows of the residual stream; with norms after the layers, x = norm(x + z Wᵀ + b). */
static rp_status add_affine(const pass *p, const encoder_linear *l, const encoder_norm *norm, int64_t first,
                            int64_t rows, const float *z, int64_t ldz)
{
    const encoder_config *c = &p->m->config;
    float *x = p->x + first * c->width;
    const rp_status status = encoder_multiply(p->m, l, rows, z, ldz, x, LINEAR_ADD, p->scratch);
    if (status == RP_OK && !c->row->pre_norm)
        encoder_norm_rows(p->m->pool, rows, &(encoder_normed){x, norm, x, c->width, c->eps});
    return status;
}

/* Return the input of a layer for some rows: x, or norm(x). */
static const float *input_of(const pass *p, const encoder_norm *norm, int64_t first, int64_t rows)
{
    const encoder_config *c = &p->m->config;
    float *x = p->x + first * c->width;
    if (!c->row->pre_norm || norm->weight == NULL)
        return x;
    float *y = p->y + first * c->width;
    encoder_norm_rows(p->m->pool, rows, &(encoder_normed){x, norm, y, c->width, c->eps});
    return y;
}

static void attend_task(void *context, int64_t s, int32_t worker)
{
    pass *p = context;
    const int64_t first = p->starts[s], rows = p->starts[s + 1] - first, width = p->m->config.width;
    if (rows == 0)
        return;
    const rp_status status = encoder_attend(&p->attention[p->m->config.local[p->layer]], p->m,
                                            p->qkv + first * 3 * width, rows, p->mixed + first * width, worker);
    model_failed(&p->failure, status, rp_encoder_last_error());
}

static rp_status attention_layer(pass *p, const encoder_layer *l)
{
    const encoder_config *c = &p->m->config;
    rp_status status = encoder_multiply(p->m, &l->qkv, p->rows, input_of(p, &l->attention_norm, 0, p->rows), c->width,
                                        p->qkv, LINEAR_STORE, p->scratch);
    if (status != RP_OK)
        return status;
    encoder_attention_of(&p->attention[c->local[p->layer]], p->m, l);
    model_run_tasks(p->m->pool, p->n, attend_task, p);
    status = encoder_model_failed(model_failure_of(&p->failure));
    if (status != RP_OK)
        return status;
    return add_affine(p, &l->o, &l->attention_norm, 0, p->rows, p->mixed, c->width);
}

static rp_status feed_layer(pass *p, const encoder_layer *l)
{
    const encoder_config *c = &p->m->config;
    rp_status status = RP_OK;
    for (int64_t r = 0; r < p->rows && status == RP_OK; r += p->feed_rows) {
        const int64_t rows = p->rows - r < p->feed_rows ? p->rows - r : p->feed_rows;
        status = encoder_activate(p->m, &l->up, c->activation, c->row->gated, rows, input_of(p, &l->feed_norm, r, rows),
                                  p->inner, p->scratch);
        if (status == RP_OK)
            status = add_affine(p, &l->down, &l->feed_norm, r, rows, p->inner, l->up.w.out);
    }
    return status;
}

static void norm_all(const pass *p, const encoder_norm *norm, float *to)
{
    const encoder_config *c = &p->m->config;
    encoder_norm_rows(p->m->pool, p->rows, &(encoder_normed){p->x, norm, to, c->width, c->eps});
}

static rp_status run_layers(pass *p, const rp_encoder_tokens *sequences, float *out)
{
    const encoder_config *c = &p->m->config;
    rp_status status = RP_OK;
    for (int64_t s = 0; s < p->n; s++)
        embed(p->m, &sequences[s], p->x + p->starts[s] * c->width);
    if (c->embedding_norm)
        norm_all(p, &p->m->weights.embedding_norm, p->x);
    if (c->kernel > 0)
        memcpy(p->embedded, p->x, (size_t)(p->rows * c->width) * sizeof *p->x);
    for (p->layer = 0; status == RP_OK && p->layer < c->layers; p->layer++) {
        const encoder_layer *l = &p->m->weights.layer[p->layer];
        if (stopped(p, (double)p->layer))
            return encoder_model_failed(model_cancelled());
        status = attention_layer(p, l);
        if (status == RP_OK)
            status = feed_layer(p, l);
        if (status == RP_OK && p->layer == 0 && c->kernel > 0)
            status = encoder_convolve(p->m, p->n, p->starts, p->embedded, p->x);
    }
    if (status == RP_OK && p->m->weights.final_norm.weight != NULL)
        norm_all(p, &p->m->weights.final_norm, out);
    else if (status == RP_OK)
        memcpy(out, p->x, (size_t)(p->rows * c->width) * sizeof *out);
    return status;
}

/* ------------------------------------------------------------------------------------------------ calls */

/* Call the callback during attention, which takes most of the time for a long sequence. */
static int check_watch(void *context, double fraction)
{
    const pass *p = context;
    return stopped(p, (double)p->layer + fraction);
}

static rp_status run_some(const rp_encoder *m, int64_t n, const rp_encoder_tokens *sequences, float *out,
                          model_watch *watch)
{
    int64_t longest = 0, *starts = calloc((size_t)n + 1, sizeof *starts);
    pass p = {.m = m, .watch = watch, .n = n, .starts = starts};
    if (starts == NULL)
        return encoder_no_memory();
    for (int64_t s = 0; s < n; s++) {
        starts[s + 1] = starts[s] + sequences[s].n;
        longest = sequences[s].n > longest ? sequences[s].n : longest;
    }
    p.rows = starts[n];
    rp_status status = RP_OK;
    if (longest > 0) {
        status = make_pass(&p, longest);
        for (int k = 0; k < 2 && status == RP_OK; k++)
            model_attention_watch(&p.attention[k].calls, check_watch, &p);
        if (status == RP_OK)
            status = run_layers(&p, sequences, out);
    }
    free_pass(&p);
    free(starts);
    return status;
}

rp_status encoder_run(const rp_encoder *m, int64_t n, const rp_encoder_tokens *sequences, float *out,
                      model_watch *watch)
{
    const double from = watch != NULL ? watch->from : 0, to = watch != NULL ? watch->to : 1;
    double done = 0, all = 1e-9;
    for (int64_t s = 0; s < n; s++)
        all += (double)sequences[s].n;
    for (int64_t s = 0, end; s < n; s = end) {
        int64_t rows = 0;
        for (end = s; end < n && (end == s || rows + sequences[end].n <= ENCODER_ROWS); end++)
            rows += sequences[end].n;
        model_watch_part(watch, from + (to - from) * done / all, from + (to - from) * (done + (double)rows) / all);
        const rp_status status = encoder_finish(m, run_some(m, end - s, sequences + s, out, watch));
        if (status != RP_OK)
            return status;
        if (!model_finite(out, rows * m->config.width))
            return encoder_not_finite(m, "hidden states");
        done += (double)rows;
        out = rows > 0 ? out + rows * m->config.width : out; /* without rows, out may be NULL */
    }
    return RP_OK;
}

/* Check the tokens and types of sequence s. */
static rp_status check_sequence(const rp_encoder *m, const encoder_place *place, int64_t s, const rp_encoder_tokens *t)
{
    const encoder_config *c = &m->config;
    const int64_t most = encoder_max_tokens(c), types = c->token_types > 0 ? c->token_types : 1;
    if (t->n < 0 || (t->tokens == NULL && t->n > 0))
        return encoder_fail(RP_E_ARG, "%s[%lld]: n is %lld and tokens is %s", place->name,
                            (long long)(place->first + s), (long long)t->n, t->tokens != NULL ? "given" : "NULL");
    if (most > 0 && t->n > most)
        return encoder_fail(RP_E_RANGE, "%s[%lld] has %lld tokens; the model takes at most %lld (cut it)", place->name,
                            (long long)(place->first + s), (long long)t->n, (long long)most);
    for (int64_t i = 0; i < t->n; i++) {
        if (t->tokens[i] < 0 || t->tokens[i] >= c->vocab)
            return encoder_fail(RP_E_RANGE, "%s[%lld]: token %lld is %d; it must be from 0 to %lld", place->name,
                                (long long)(place->first + s), (long long)i, (int)t->tokens[i],
                                (long long)c->vocab - 1);
        if (t->types != NULL && (t->types[i] < 0 || t->types[i] >= types))
            return encoder_fail(RP_E_RANGE, "%s[%lld]: the type of token %lld is %d; it must be from 0 to %lld",
                                place->name, (long long)(place->first + s), (long long)i, (int)t->types[i],
                                (long long)types - 1);
    }
    return RP_OK;
}

const encoder_place encoder_sequences = {"sequences", 0};

rp_status encoder_check(const rp_encoder *m, const encoder_place *place, int64_t n, const rp_encoder_tokens *sequences)
{
    int64_t all = 0;
    if (m == NULL)
        return encoder_fail(RP_E_ARG, "model is NULL; open one with rp_encoder_open");
    if (n < 0 || (n > 0 && sequences == NULL))
        return encoder_fail(RP_E_ARG, "n is %lld and sequences is %s", (long long)n,
                            sequences != NULL ? "given" : "NULL");
    for (int64_t s = 0; s < n; s++) {
        const rp_status status = check_sequence(m, place, s, &sequences[s]);
        if (status != RP_OK)
            return status;
        if (__builtin_add_overflow(all, sequences[s].n, &all) || all > INT32_MAX)
            return encoder_fail(RP_E_OVERFLOW, "the sequences have more than 2^31 - 1 tokens (give fewer at a time)");
    }
    return RP_OK;
}

rp_status rp_encoder_hidden(const rp_encoder *m, int64_t n, const rp_encoder_tokens *sequences, float *out,
                            rp_progress *progress, void *context)
{
    model_watch watch = model_watch_of(progress, context);
    int64_t rows = 0;
    const rp_status status = encoder_check(m, &encoder_sequences, n, sequences);
    if (status != RP_OK)
        return status;
    for (int64_t s = 0; s < n; s++)
        rows += sequences[s].n;
    if (out == NULL && rows > 0)
        return encoder_fail(RP_E_ARG, "out is NULL; pass the array to fill");
    return encoder_run(m, n, sequences, out, &watch);
}
