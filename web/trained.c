/* trained.c -- runs a trained decoder of the laboratory in the page: lab/engine computes the forward pass, and the
 * library computes the rows of its attention.
 *
 *     model_begin(m, config);  model_weights(m, name);
 *     model_run(position, tokens, n, logits, loss);  model_maps(layer, to);  model_row(layer, head, i, to);  (model 0)
 *     reader_begin(n, m, position, length);  reader_next(n, tokens, count, loss);  reader_end(n);
 *
 * Unless stated otherwise, a call returns 0, or -1 and the message in model_error(). Tokens are bytes.
 * SPDX-License-Identifier: Apache-2.0 */
#include "src/api/inspect.h"
#include "lab/engine/nn.h"
#include "web/export.h"
#include <stdlib.h>
#include <string.h>

enum { MODELS = 6, READERS = 5, PART = 64 };

static nn_model models[MODELS]; /* those without a config are empty */
static nn_model *const trained = &models[0];
static nn_model changed; /* a copy of model 0 with another position */
static nn_net *net;
static int64_t capacity; /* max tokens of the net */
static bool with_other;  /* the net belongs to `changed` */
static char err[NN_ERR_MAX];

/* The page's models have no tokenizer, so the module does not contain the tokenizer that this function would free. */
void nn_tokenizer_free(nn_tokenizer *t)
{
    (void)t;
}

EXPORT(model_error) const char *x_model_error(void)
{
    return err;
}

/* Readers of a long text: each keeps the keys and values of what it has read, so it can read the text in parts. */
static struct reader {
    nn_model other; /* its model with another position; empty if the reader uses the model as it is */
    nn_net *net;
    int64_t vocab;
    float *logits; /* [PART, vocab] */
} readers[READERS];

static void end_net(void)
{
    nn_net_destroy(net);
    net = NULL;
    capacity = 0;
}

/* Free the memory of reader n. */
EXPORT(reader_end) void x_reader_end(int n)
{
    struct reader *r = &readers[n];
    nn_net_destroy(r->net);
    nn_model_destroy(&r->other);
    free(r->logits);
    memset(r, 0, sizeof *r);
}

/* Create model m from the text of its configuration. */
EXPORT(model_begin) int x_model_begin(int m, const char *config)
{
    nn_config c;
    if (m == 0) { /* the net and `changed` belong to model 0 */
        end_net();
        nn_model_destroy(&changed);
        with_other = false;
    }
    for (int n = 0; n < READERS; n++)
        x_reader_end(n);
    nn_model_destroy(&models[m]);
    nn_config_init(&c);
    return nn_config_parse(&c, "model", config, NULL, NULL, err) != 0 ||
                   nn_model_create(&models[m], &c, false, err) != 0
               ? -1
               : 0;
}

/* Return the weights of model m with this name, for the page to fill in; NULL if the model has none. */
EXPORT(model_weights) float *x_model_weights(int m, const char *name)
{
    const int32_t n = models[m].w ? nn_model_find(&models[m], name) : -1;
    return n < 0 ? NULL : models[m].w + models[m].params[n].offset;
}

/* Create a net for the position and at least n tokens, unless the current one fits. */
static int prepare(const char *position, int64_t n)
{
    const bool other = strcmp(position, trained->c.position) != 0;
    if (other && strcmp(position, changed.c.position) != 0) {
        nn_model next;
        if (nn_model_with_position(&next, trained, position, err) != 0)
            return -1;
        end_net();
        nn_model_destroy(&changed);
        changed = next;
    }
    if (other != with_other || n > capacity)
        end_net();
    with_other = other;
    if (net)
        return 0;
    for (capacity = 64; capacity < n;)
        capacity *= 2;
    const int code = nn_net_create(&net, other ? &changed : trained, NULL, 1, capacity, false, 0, NULL, err);
    capacity = code == 0 ? capacity : 0;
    return code;
}

/* Run n tokens with these position terms. Write the logits [n, 256], and the loss of each next token in nats [n]; the
 * last token has none. scratch [n, 256] is overwritten. */
EXPORT(model_run)
int x_model_run(const char *position, const int32_t *tokens, int n, float *logits, float *scratch, double *loss)
{
    if (!trained->w)
        return nn_fail(err, "the page has no model");
    if (prepare(position, n) != 0 || nn_net_all_logits(net, n, tokens, logits, err) != 0)
        return -1;
    const int64_t vocab = trained->c.vocab;
    int32_t *target = malloc((size_t)n * sizeof *target);
    if (!target)
        return nn_fail(err, "out of memory (use a shorter text)");
    for (int i = 0; i < n; i++)
        target[i] = i + 1 < n ? tokens[i + 1] : -1;
    memcpy(scratch, logits, (size_t)(n * vocab) * sizeof *scratch);
    layers_softmax_loss(NULL, n, vocab, scratch, target, 0, loss, NULL);
    free(target);
    return 0;
}

/* Get the attention of a layer, and plans with and without its terms, which the caller destroys. */
static int attention_of(int layer, rp_tensors *t, rp_plan *plans[2])
{
    return net ? nn_net_attention(net, layer, t, plans, err) : nn_fail(err, "the model has not run yet");
}

static int library_failed(void)
{
    return nn_fail(err, "%s", NN_WORDS(NULL));
}

/* Write the attention weights of all heads of a layer in the last run [heads, n, n]. */
EXPORT(model_maps) int x_model_maps(int layer, double *to)
{
    rp_tensors t;
    rp_plan *plans[2];
    rpi_rows rows;
    if (attention_of(layer, &t, plans) != 0)
        return -1;
    const bool failed = rpi_rows_begin(&rows, plans[0], &t) != RP_OK;
    const int64_t n = t.q.shape[2];
    for (int64_t h = 0; h < trained->c.heads && !failed; h++)
        for (int64_t i = 0; i < n; i++, to += n) {
            rpi_row_at(&rows.row, 0, h, i);
            rpi_row_scores(&rows.row);
            rpi_row_softmax(&rows.row);
            memcpy(to, rows.row.weight, (size_t)n * sizeof *to);
        }
    if (!failed)
        rpi_rows_end(&rows);
    rp_plan_destroy(plans[0]);
    rp_plan_destroy(plans[1]);
    return failed ? library_failed() : 0;
}

/* Write three rows of a query in the last run [3, n]: scores without the position terms, scores, and weights. */
EXPORT(model_row) int x_model_row(int layer, int head, int i, double *to)
{
    rp_tensors t;
    rp_plan *plans[2];
    if (attention_of(layer, &t, plans) != 0)
        return -1;
    const int64_t n = t.q.shape[2];
    rp_row without = {.score = to}, with = {.score = to + n, .weights = to + 2 * n};
    const bool failed = rp_attend_row(plans[1], &t, 0, head, i, &without) != RP_OK ||
                        rp_attend_row(plans[0], &t, 0, head, i, &with) != RP_OK;
    rp_plan_destroy(plans[0]);
    rp_plan_destroy(plans[1]);
    return failed ? library_failed() : 0;
}

/* Let reader n begin a text of at most `length` tokens with model m and these position terms. */
EXPORT(reader_begin) int x_reader_begin(int n, int m, const char *position, int length)
{
    struct reader *r = &readers[n];
    nn_model *model = &models[m];
    x_reader_end(n);
    if (!model->w)
        return nn_fail(err, "the page has no model %d", m);
    const bool other = strcmp(position, model->c.position) != 0;
    if (other && nn_model_with_position(&r->other, model, position, err) != 0)
        return -1;
    r->vocab = model->c.vocab;
    r->logits = malloc((size_t)(PART * r->vocab) * sizeof *r->logits);
    if (!r->logits)
        return nn_fail(err, "out of memory (use a shorter text)");
    return nn_net_create(&r->net, other ? &r->other : model, NULL, 1, PART, false, length, NULL, err);
}

/* Read the next `count` (at most PART) tokens of a text with reader n. Write the loss of the token after each, in nats
 * [count]; tokens [count + 1]. */
EXPORT(reader_next) int x_reader_next(int n, const int32_t *tokens, int count, double *loss)
{
    struct reader *r = &readers[n];
    if (!r->net || nn_net_all_logits(r->net, count, tokens, r->logits, err) != 0)
        return r->net ? -1 : nn_fail(err, "the reader has no text");
    layers_softmax_loss(NULL, count, r->vocab, r->logits, tokens + 1, 0, loss, NULL);
    return 0;
}
