/* head.c -- the classification head: one row of each sequence, or the mean of its rows, to a number for each label.
 *
 *     logits = out norm(act(dense x + b)) + b       most heads have no norm
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "checkpoint/finite.h"
#include "encoder/encoder.h"
#include <stdlib.h>
#include <string.h>

/* Write the input of the head for a sequence of n rows. */
static void pool(const encoder_config *c, const float *rows, int64_t n, float *to)
{
    if (!c->head_mean) {
        memcpy(to, rows, (size_t)c->width * sizeof *to);
        return;
    }
    for (int64_t k = 0; k < c->width; k++) {
        double sum = 0;
        for (int64_t r = 0; r < n; r++)
            sum += (double)rows[r * c->width + k];
        to[k] = (float)(sum / (double)n);
    }
}

/* Apply the layers of the head to `rows` rows. */
static rp_status apply(const rp_encoder *m, int64_t rows, const float *x, float *y, float *logits)
{
    const encoder_config *c = &m->config;
    const encoder_weights *w = &m->weights;
    const rp_status status = encoder_activate(m, &w->head_dense, c->head_activation, false, rows, x, y, NULL);
    if (status != RP_OK)
        return status;
    if (w->head_norm.weight != NULL)
        encoder_norm_rows(m->pool, rows, &(encoder_normed){y, &w->head_norm, y, c->width, c->eps});
    return encoder_multiply(m, &w->head_out, rows, y, c->width, logits, LINEAR_STORE, NULL);
}

rp_status encoder_need_head(const rp_encoder *m)
{
    if (m == NULL)
        return encoder_fail(RP_E_ARG, "model is NULL; open one with rp_encoder_open");
    if (m->config.labels == 0)
        return encoder_fail(RP_E_UNSUPPORTED, "the model has no classification head (its config.json names no class "
                                              "…ForSequenceClassification)");
    return m->config.head_fault == NULL ? RP_OK : encoder_fail(RP_E_UNSUPPORTED, "%s", m->config.head_fault);
}

/* Pool the hidden states of each sequence, and apply the head. */
static rp_status run(const rp_encoder *m, int64_t n, const rp_encoder_tokens *sequences, const float *hidden,
                     float *logits)
{
    const int64_t width = m->config.width;
    float *pooled = malloc((size_t)(2 * n * width + 1) * sizeof *pooled);
    if (pooled == NULL)
        return encoder_no_memory();
    for (int64_t s = 0; s < n; hidden += sequences[s++].n * width)
        pool(&m->config, hidden, sequences[s].n, pooled + s * width);
    const rp_status status = apply(m, n, pooled, pooled + n * width, logits);
    free(pooled);
    return status;
}

rp_status encoder_logits(const rp_encoder *m, const encoder_place *place, int64_t n, const rp_encoder_tokens *sequences,
                         float *logits, model_watch *watch)
{
    int64_t rows = 0;
    for (int64_t s = 0; s < n; s++) {
        if (sequences[s].n == 0)
            return encoder_fail(RP_E_ARG, "%s[%lld] has no tokens, but the head needs one", place->name,
                                (long long)(place->first + s));
        rows += sequences[s].n;
    }
    float *hidden = malloc((size_t)(rows * m->config.width + 1) * sizeof *hidden);
    rp_status status = hidden != NULL ? encoder_run(m, n, sequences, hidden, watch) : encoder_no_memory();
    if (status == RP_OK)
        status = run(m, n, sequences, hidden, logits);
    if (status == RP_OK && !model_finite(logits, n * m->config.labels))
        status = encoder_not_finite(m, "logits");
    free(hidden);
    return status;
}

rp_status rp_encoder_logits(const rp_encoder *m, int64_t n, const rp_encoder_tokens *sequences, float *logits,
                            rp_progress *progress, void *context)
{
    model_watch watch = model_watch_of(progress, context);
    rp_status status = encoder_check(m, &encoder_sequences, n, sequences);
    if (status == RP_OK)
        status = encoder_need_head(m);
    if (status == RP_OK && logits == NULL && n > 0)
        status = encoder_fail(RP_E_ARG, "logits is NULL; pass the array to fill");
    return status == RP_OK ? encoder_logits(m, &encoder_sequences, n, sequences, logits, &watch) : status;
}
