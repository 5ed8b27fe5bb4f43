/* draft.c -- the draft: a copy of the decoder's layers with fewer bits, used to propose tokens. It shares the decoder's
 * cache, norms, tables, embedding and cross-attention keys and values; only its matrices need memory. If the head is
 * large, the draft computes logits only for frequent tokens, with the screen's int8 copy of the head, and for the
 * tokens of the source. The decoder checks every proposal, so a worse draft costs speed but changes no result.
 * SPDX-License-Identifier: Apache-2.0 */
#include "t5/model.h"
#include <stdlib.h>
#include <string.h>

enum {
    BLOCK_MATRICES = 4,
    FEED_MATRICES = 3,
    FREQUENT = 8192, /* tokens below this are frequent, because SentencePiece sorts by frequency; a multiple of 64 */
    RARE = 256       /* max tokens of the source, besides frequent ones, that may be proposed */
};

static int list_feed(t5_feed *f, linear_weights *to[FEED_MATRICES])
{
    linear_weights *const all[FEED_MATRICES] = {&f->wi, &f->wi_gate, &f->wo};
    int n = 0;
    for (int k = 0; k < FEED_MATRICES; k++)
        if (all[k]->packed != NULL)
            to[n++] = all[k];
    return n;
}

/* Repack a matrix in the draft's type. In the first of two rounds, d->memory is NULL and sizes are only added up. */
static rp_status repack(t5_draft *d, const rp_t5 *m, linear_weights *w)
{
    const int64_t bytes = linear_packed_bytes(d->type, w->in, w->out);
    if (bytes < 0 || d->bytes > INT64_MAX - bytes)
        return t5_fail(RP_E_OVERFLOW, "a draft of this model is too large (open the model without a draft)");
    unsigned char *to = d->memory != NULL ? d->memory + d->bytes : NULL;
    d->bytes += bytes;
    if (to == NULL)
        return RP_OK;
    const rp_status status = linear_repack(m->pool, d->type, w, to);
    if (status != RP_OK)
        return status == RP_E_NOMEM ? t5_no_memory()
                                    : t5_fail(status, "the draft cannot be packed: %s", rp_status_name(status));
    w->type = d->type;
    w->packed = to;
    return RP_OK;
}

static rp_status take_all(t5_draft *d, const rp_t5 *m)
{
    rp_status status = RP_OK;
    d->bytes = 0;
    for (int64_t l = 0; l < m->weights.decoder.layers; l++) {
        t5_block *b = &d->blocks[l];
        linear_weights *const own[BLOCK_MATRICES] = {&b->qkv, &b->o, &b->cross_q, &b->cross_o}, *feed[FEED_MATRICES];
        for (int k = 0; status == RP_OK && k < BLOCK_MATRICES; k++)
            status = repack(d, m, own[k]);
        for (int64_t e = 0; e < (b->experts != NULL ? m->config.experts : 1); e++) {
            const int n = list_feed(b->experts != NULL ? &b->experts[e] : &b->feed, feed);
            for (int k = 0; status == RP_OK && k < n; k++)
                status = repack(d, m, feed[k]);
        }
    }
    return status;
}

/* Copy the decoder's blocks. take_all then replaces their matrices. */
static rp_status copy_blocks(t5_draft *d, const rp_t5 *m)
{
    const t5_stack *s = &m->weights.decoder;
    const int64_t experts = m->config.experts;
    d->blocks = malloc((size_t)s->layers * sizeof *d->blocks);
    d->experts = malloc((size_t)(s->layers * experts + 1) * sizeof *d->experts);
    if (d->blocks == NULL || d->experts == NULL)
        return t5_no_memory();
    for (int64_t l = 0; l < s->layers; l++) {
        d->blocks[l] = s->block[l];
        if (s->block[l].experts == NULL)
            continue;
        d->blocks[l].experts = d->experts + l * experts;
        memcpy(d->blocks[l].experts, s->block[l].experts, (size_t)experts * sizeof *d->experts);
    }
    return RP_OK;
}

static rp_status make(t5_draft *d, const rp_t5 *m)
{
    rp_status status = copy_blocks(d, m);
    if (status == RP_OK)
        status = take_all(d, m);
    if (status == RP_OK && (d->memory = aligned_alloc(LINEAR_ALIGN, (size_t)d->bytes)) == NULL)
        status = t5_no_memory_for("a draft", d->bytes);
    if (status == RP_OK)
        status = take_all(d, m);
    return status == RP_OK && m->screen != NULL ? t5_screen_make(m) : status;
}

rp_status t5_draft_open(rp_t5 *m, linear_type type)
{
    const t5_weights *w = &m->weights;
    if (w->decoder.layers == 0)
        return t5_fail(RP_E_UNSUPPORTED,
                       "the checkpoint has no decoder, so there is nothing to draft (open it without a draft)");
    if ((type != LINEAR_INT8 && type != LINEAR_INT4) || type <= w->type ||
        (w->type == LINEAR_Q8 && type == LINEAR_INT8))
        return t5_fail(RP_E_ARG,
                       "draft type %s with weights of %s; it must be int8 or int4 and have fewer bits (choose another, "
                       "or no draft)",
                       linear_type_name(type), linear_type_name(w->type));
    m->draft = calloc(1, sizeof *m->draft);
    if (m->draft == NULL)
        return t5_no_memory();
    m->draft->type = type;
    m->draft->frequent = FREQUENT;
    return make(m->draft, m);
}

void t5_draft_close(rp_t5 *m)
{
    if (m->draft == NULL)
        return;
    free(m->draft->blocks);
    free(m->draft->experts);
    free(m->draft->memory);
    free(m->draft);
    m->draft = NULL;
}

/* ------------------------------------------------------------------------------------------------ proposals */

/* List the distinct tokens of the source that are at least `first`; stop after `max` of them. */
static int64_t rare_tokens(const rp_t5_tokens *source, int64_t first, int64_t max, int32_t *tokens)
{
    int64_t n = 0;
    for (int64_t k = 0; k < source->n && n < max; k++) {
        bool known = source->tokens[k] < first;
        for (int64_t x = 0; x < n && !known; x++)
            known = tokens[x] == source->tokens[k];
        if (!known)
            tokens[n++] = source->tokens[k];
    }
    return n;
}

rp_status t5_draft_logits(t5_work *w, const float *hidden, const rp_t5_tokens *source, float *logits)
{
    const rp_t5 *m = w->m;
    const int64_t d = m->config.d_model, vocab = m->config.vocab, frequent = m->draft->frequent;
    if (m->screen == NULL || !m->screen->made || !m->screen->screen.bounds || vocab < 2 * frequent)
        return t5_linear(w, &m->weights.head, 1, hidden, d, logits, vocab, LINEAR_STORE);
    linear_weights head = m->screen->screen.w;
    int32_t tokens[RARE];
    float exact[RARE];
    const int64_t n = rare_tokens(source, frequent, RARE, tokens);
    head.out = frequent;
    const rp_status status = t5_linear(w, &head, 1, hidden, d, logits, frequent, LINEAR_STORE);
    return status == RP_OK ? t5_some_logits(m, hidden, n, tokens, exact, frequent, logits) : status;
}
