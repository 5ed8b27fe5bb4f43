/* results.c -- texts to vectors and scores.
 * SPDX-License-Identifier: Apache-2.0 */
#include "encoder/encoder.h"
#include "tokenizer/tokenizer.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ------------------------------------------------------------------------------------------------ vectors */

rp_status rp_encoder_prompt(const rp_encoder *m, const char *name, const char **prompt)
{
    if (m == NULL || prompt == NULL)
        return encoder_fail(RP_E_ARG, "model or prompt is NULL; pass both");
    *prompt = NULL;
    if (!m->has_modules)
        return encoder_fail(RP_E_UNSUPPORTED, "the model has no modules.json (use a model folder saved by "
                                              "sentence-transformers)");
    return encoder_model_failed(model_modules_prompt(m->modules, name, prompt));
}

/* Count the tokens of a prompt as sentence-transformers does: alone, cut like a text, without the last token if it is
 * special. */
static rp_status count_prompt(const rp_encoder *m, const char *prompt, int64_t *n)
{
    tok_encoding made = {0};
    const rp_encoder_text text = {prompt, -1, NULL, 0};
    *n = 0;
    if (!model_modules_skips_prompt(m->modules) || prompt == NULL || prompt[0] == 0)
        return RP_OK;
    rp_status status = encoder_check_text(m, 1, &text);
    if (status == RP_OK)
        status = encoder_tokenize(m, NULL, &text, m->info.vector_tokens, &made);
    if (status != RP_OK)
        return status;
    *n = made.n > 0 && tok_is_special(m->tokenizer, made.ids[made.n - 1]) ? made.n - 1 : made.n;
    tok_encoding_free(&made);
    return RP_OK;
}

rp_status rp_encoder_vector(const rp_encoder *m, const char *prompt, int64_t n, const float *hidden, float *vector)
{
    int64_t first;
    if (m == NULL || hidden == NULL || vector == NULL || n < 0)
        return encoder_fail(RP_E_ARG, "model, hidden or vector is NULL, or n is %lld; pass all, and n >= 0",
                            (long long)n);
    const rp_status status = count_prompt(m, prompt, &first);
    if (status != RP_OK)
        return status;
    return encoder_model_failed(model_modules_apply(m->modules, hidden, m->config.width, first, n, vector));
}

/* Texts whose results are computed batch by batch. */
typedef struct call {
    const rp_encoder *m;
    const char *prompt; /* NULL: none */
    int64_t first;      /* token at which pooling begins */
    float *out;         /* [n, width] */
    int64_t width;
    rp_status (*compute)(const struct call *c, const encoder_batch *b, float *out, model_watch *watch);
} call;

static rp_status run(const call *c, int64_t n, const rp_encoder_text *texts, rp_progress *progress, void *context)
{
    rp_status status = RP_OK;
    for (int64_t k = 0; k < n && status == RP_OK;) {
        encoder_batch b;
        status = encoder_batch_read(&b, c->m, c->prompt, k, n, texts);
        model_watch watch = model_watch_of(progress, context);
        model_watch_part(&watch, (double)k / (double)n, (double)(k + b.n) / (double)n);
        if (status == RP_OK)
            status = c->compute(c, &b, c->out + k * c->width, &watch);
        k += b.n;
        encoder_batch_free(&b);
    }
    return status;
}

static rp_status embed_batch(const call *c, const encoder_batch *b, float *vectors, model_watch *watch)
{
    const int64_t d = c->m->config.width;
    float *hidden = malloc((size_t)(b->rows * d + 1) * sizeof *hidden), *at = hidden;
    rp_status status = hidden != NULL ? encoder_run(c->m, b->n, b->sequence, hidden, watch) : encoder_no_memory();
    for (int64_t k = 0; k < b->n && status == RP_OK; at += b->sequence[k++].n * d)
        status = encoder_model_failed(
            model_modules_apply(c->m->modules, at, d, c->first, b->sequence[k].n, vectors + k * c->width));
    free(hidden);
    return status;
}

rp_status rp_encoder_embed(const rp_encoder *m, const char *prompt, int64_t n, const rp_encoder_text *texts,
                           float *vectors, rp_progress *progress, void *context)
{
    int64_t first = 0;
    rp_status status = encoder_check_text(m, n, texts);
    if (status == RP_OK && vectors == NULL && n > 0)
        status = encoder_fail(RP_E_ARG, "vectors is NULL; pass the array to fill");
    if (status == RP_OK && prompt == NULL && m->has_modules)
        status = encoder_model_failed(model_modules_prompt(m->modules, NULL, &prompt));
    if (status == RP_OK)
        status = count_prompt(m, prompt, &first);
    if (status != RP_OK)
        return status;
    return run(&(call){m, prompt, first, vectors, m->info.vector_width, embed_batch}, n, texts, progress, context);
}

/* ------------------------------------------------------------------------------------------------ scores */

static float sigmoid(float x)
{
    return (float)(1 / (1 + exp(-(double)x)));
}

/* Replace logits by probabilities. */
static void softmax(float *x, int64_t n)
{
    double max = -INFINITY, sum = 0;
    for (int64_t k = 0; k < n; k++)
        max = fmax(max, (double)x[k]);
    for (int64_t k = 0; k < n; k++)
        sum += exp((double)x[k] - max);
    for (int64_t k = 0; k < n; k++)
        x[k] = (float)(exp((double)x[k] - max) / sum);
}

static rp_status logits_batch(const call *c, const encoder_batch *b, float *logits, model_watch *watch)
{
    return encoder_logits(c->m, &b->place, b->n, b->sequence, logits, watch);
}

static rp_status logits_of(const rp_encoder *m, int64_t n, const rp_encoder_text *texts, float *logits,
                           rp_progress *progress, void *context)
{
    rp_status status = encoder_check_text(m, n, texts);
    if (status == RP_OK && logits == NULL && n > 0)
        status = encoder_fail(RP_E_ARG, "scores is NULL; pass the array to fill");
    if (status != RP_OK)
        return status;
    return run(&(call){m, NULL, 0, logits, m->config.labels, logits_batch}, n, texts, progress, context);
}

/* As logits_of, but an empty second text is none, as for the tokenizers of transformers when they get one pair. */
static rp_status logits_of_texts(const rp_encoder *m, int64_t n, const rp_encoder_text *texts, float *logits,
                                 rp_progress *progress, void *context)
{
    rp_status status = encoder_check_text(m, n, texts);
    if (status != RP_OK || n == 0)
        return status;
    rp_encoder_text *made = malloc((size_t)n * sizeof *made);
    if (made == NULL)
        return encoder_no_memory();
    memcpy(made, texts, (size_t)n * sizeof *made);
    for (int64_t k = 0; k < n; k++)
        if (made[k].pair != NULL && (made[k].pair_bytes == 0 || (made[k].pair_bytes < 0 && made[k].pair[0] == 0)))
            made[k].pair = NULL;
    status = logits_of(m, n, made, logits, progress, context);
    free(made);
    return status;
}

rp_status rp_encoder_classify(const rp_encoder *m, int64_t n, const rp_encoder_text *texts, float *scores,
                              rp_progress *progress, void *context)
{
    rp_status status = encoder_need_head(m);
    if (status == RP_OK)
        status = logits_of_texts(m, n, texts, scores, progress, context);
    if (status != RP_OK)
        return status;
    const int64_t labels = m->config.labels;
    if (m->config.scores == ENCODER_SIGMOID)
        for (int64_t k = 0; k < n * labels; k++)
            scores[k] = sigmoid(scores[k]);
    else if (m->config.scores == ENCODER_SOFTMAX)
        for (int64_t k = 0; k < n; k++)
            softmax(scores + k * labels, labels);
    return RP_OK;
}

rp_status rp_encoder_rerank(const rp_encoder *m, int64_t n, const rp_encoder_text *pairs, float *scores,
                            rp_progress *progress, void *context)
{
    rp_status status = encoder_need_head(m);
    if (status == RP_OK && m->config.score_fault != NULL)
        status = encoder_fail(RP_E_UNSUPPORTED, "%s", m->config.score_fault);
    if (status == RP_OK && m->config.labels != 1)
        status = encoder_fail(RP_E_UNSUPPORTED,
                              "the model has %lld labels, but a reranker has one (use "
                              "rp_encoder_classify)",
                              (long long)m->config.labels);
    if (status == RP_OK)
        status = logits_of(m, n, pairs, scores, progress, context);
    for (int64_t k = 0; k < n && status == RP_OK && !m->config.plain_score; k++)
        scores[k] = sigmoid(scores[k]);
    return status;
}
