/* attention.c -- attention of an encoder: the calls of a plan, and its prepared bias.
 * SPDX-License-Identifier: Apache-2.0 */
#include "encoder/encoder.h"

/* Set the term of the position scheme. Return the number of terms: 0 or 1. */
static int make_term(const rp_encoder *m, bool local, rp_term *term)
{
    const encoder_config *c = &m->config;
    switch (c->scheme) {
    case ENCODER_T5_BUCKETS:
        *term = rp_term_init(RP_TERM_T5);
        term->buckets = c->buckets;
        term->max_distance = c->max_distance;
        term->bidirectional = 1;
        return 1;
    case ENCODER_DEBERTA:
        if (!c->c2p && !c->p2c)
            return 0;
        *term = rp_term_init(RP_TERM_DEBERTA);
        term->buckets = c->buckets;
        term->span = c->span;
        term->max_position = c->max_distance;
        return 1;
    case ENCODER_ROPE:
        *term = rp_term_init(RP_TERM_ROPE);
        term->base = c->theta[local];
        if (m->weights.stretch != NULL) { /* LongRoPE divides frequencies by factors, the same for all lengths here */
            term->scaling = RP_SCALING_LONGROPE;
            term->original_max_position_embeddings = 2;
            term->attention_factor = 1;
        }
        return 1;
    case ENCODER_ABSOLUTE: break;
    }
    return 0;
}

/* A description, with its term and mask. */
typedef struct described {
    rp_desc desc;
    rp_term term;
    rp_mask window;
} described;

static const rp_desc *describe(described *d, const rp_encoder *m, bool local, int64_t longest)
{
    const encoder_config *c = &m->config;
    d->desc = rp_desc_init(1, c->heads, longest, longest, c->head_width);
    d->window = rp_mask_init(RP_MASK_WINDOW);
    d->window.left = d->window.right = c->window;
    d->desc.n_terms = make_term(m, local, &d->term);
    d->desc.terms = &d->term;
    d->desc.masks = &d->window;
    d->desc.n_masks = local;
    d->desc.scale = c->scale;
    d->desc.flexible = 1;
    return &d->desc;
}

int64_t encoder_attention_bytes(const rp_encoder *m, bool local, int64_t longest)
{
    described d;
    return model_attention_bytes(describe(&d, m, local, longest), m->pool);
}

/* Set the arrays of the position scheme that all layers share. */
static void set_table(const rp_encoder *m, rp_tensors *t)
{
    const int64_t shape[2] = {m->config.buckets, m->config.heads}, pairs = m->config.head_width / 2;
    if (m->config.scheme == ENCODER_T5_BUCKETS)
        t->term[0][0] = rp_array_of(m->weights.table, RP_F32, 2, shape);
    for (int n = 3; n < 5 && m->weights.stretch != NULL; n++) /* short_factor and long_factor */
        t->term[0][n] = rp_array_of(m->weights.stretch, RP_F64, 1, &pairs);
}

/* Return true if preparing saves work in each call, and no layer has arrays of its own. */
static bool prepares(encoder_scheme scheme)
{
    return scheme == ENCODER_T5_BUCKETS || scheme == ENCODER_ROPE;
}

void encoder_attention_of(encoder_attention *a, const rp_encoder *m, const encoder_layer *l)
{
    const encoder_config *c = &m->config;
    for (int32_t w = 0; w < a->calls.workers && c->scheme == ENCODER_DEBERTA; w++)
        for (int n = 0; n < 2; n++)
            if (l->vectors[n] != NULL)
                a->calls.tensors[w].term[0][n] = (rp_array){(void *)(uintptr_t)l->vectors[n],
                                                            RP_F32,
                                                            3,
                                                            {c->heads, 2 * c->span, c->head_width},
                                                            {c->head_width, c->width, 1}};
}

rp_status encoder_attention_make(encoder_attention *a, const rp_encoder *m, bool local, int64_t longest)
{
    model_attention *calls = &a->calls;
    described d;
    a->prepared = NULL;
    rp_status status = encoder_model_failed(model_attention_make(calls, describe(&d, m, local, longest), m->pool));
    for (int32_t w = 0; w < calls->workers && status == RP_OK; w++)
        set_table(m, &calls->tensors[w]);
    if (status == RP_OK && prepares(m->config.scheme))
        status = encoder_model_failed(model_attention_prepare(calls, &a->prepared));
    for (int32_t w = 0; w < calls->workers && status == RP_OK; w++)
        calls->tensors[w].prepared = a->prepared;
    return status;
}

void encoder_attention_free(encoder_attention *a)
{
    rp_prepared_destroy(a->prepared);
    model_attention_free(&a->calls);
    *a = (encoder_attention){0};
}

/* Describe n rows as an array [1, heads, n, head_width]; `row` is the number of elements from one row to the next. */
static rp_array heads_of(const rp_encoder *m, const float *first, int64_t n, int64_t row)
{
    const int64_t d = m->config.head_width;
    return (rp_array){(void *)(uintptr_t)first, RP_F32, 4, {1, m->config.heads, n, d}, {n * row, d, row, 1}};
}

rp_status encoder_attend(encoder_attention *a, const rp_encoder *m, const float *qkv, int64_t n, float *out,
                         int32_t worker)
{
    const int64_t d = m->config.width;
    rp_tensors *t = &a->calls.tensors[worker];
    t->q = heads_of(m, qkv, n, 3 * d);
    t->k = heads_of(m, qkv + d, n, 3 * d);
    t->v = heads_of(m, qkv + 2 * d, n, 3 * d);
    t->out = heads_of(m, out, n, d);
    return encoder_model_failed(model_attend(&a->calls, worker));
}
