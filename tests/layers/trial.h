/* trial.h -- small layers with the arrays of a call: every published class, a layer with all kinds of settings, and a
 * layer for every sample of every term.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef RELPOS_TESTS_TRIAL_H
#define RELPOS_TESTS_TRIAL_H
#include "tests/layers/layer_checks.h"

typedef struct trial {
    char name[160];
    problem memory, sample; /* sample: the arrays of a term */
    rp_layer_desc d;
    rp_layer *layer, *shared; /* shared: terms_of, or NULL */
    rp_layer_call call;       /* with out */
    rp_layer_grads g;         /* with every gradient */
    uint64_t random;
} trial;

HELPER void end_trial(trial *t)
{
    rp_layer_destroy(t->layer);
    rp_layer_destroy(t->shared);
    problem_free(&t->memory);
    problem_free(&t->sample);
}

/* Give a layer random weights, those of terms of order one. */
HELPER void draw_weights(trial *t, rp_layer *layer)
{
    rp_layer_random(layer, problem_next(&t->random));
    EACH_PARAM(layer, w)
    {
        const rp_array a = data_of(&t->d, w);
        for (int64_t x = 0; x < w->n; x++)
            set(&a, x, at(&a, x) + 0.3 * (2 * (double)(problem_next(&t->random) >> 11) * 0x1p-53 - 1));
    }
}

/* Create the layer and the arrays of a call: B, Lq, Lk (0: no keys), and own values. */
HELPER void begin_trial(trial *t, const char *name, rp_layer_desc d, rp_dtype type, int64_t b, int64_t lq, int64_t lk,
                        bool values)
{
    problem *p = &t->memory;
    const int64_t key = d.key_width ? d.key_width : d.width, value = d.value_width ? d.value_width : key;
    memset(t, 0, sizeof *t);
    snprintf(t->name, sizeof t->name, "%s", name);
    t->random = (uint64_t)strlen(name) * 1000 + (uint64_t)lq;
    d.dtype = type;
    t->d = d;
    t->layer = layer_of(d);
    draw_weights(t, t->layer);
    t->call = rp_layer_call_init();
    t->g = rp_layer_grads_init();
    t->call.query = ZEROS(p, type, b, lq, d.width);
    t->g.dquery = ZEROS(p, type, b, lq, d.width);
    fill_normal(&t->call.query, &t->random);
    if (lk) {
        t->call.key = ZEROS(p, type, b, lk, key);
        t->g.dkey = ZEROS(p, type, b, lk, key);
        fill_normal(&t->call.key, &t->random);
    }
    if (values) {
        t->call.value = ZEROS(p, type, b, lk, value);
        t->g.dvalue = ZEROS(p, type, b, lk, value);
        fill_normal(&t->call.value, &t->random);
    }
    const int64_t dim_k = d.dim_k ? d.dim_k : d.width / d.heads, dim_v = d.dim_v ? d.dim_v : dim_k;
    const int64_t out = d.out_width ? d.out_width : d.weight[RP_O] ? d.width : d.heads * dim_v;
    t->call.out = ZEROS(p, type, b, lq, out);
    t->g.dout = ZEROS(p, type, b, lq, out);
    fill_normal(&t->g.dout, &t->random);
}

HELPER rp_array ones(trial *t, int32_t ndim, const int64_t *shape)
{
    const rp_array a = array_in(&t->memory, RP_U8, ndim, shape);
    memset(a.data, 1, (size_t)problem_size(&a));
    return a;
}

enum { TRIALS = 12, ALL_SETTINGS = 10 };

/* Begin trial number n < TRIALS. */
HELPER void published(trial *t, int n, rp_dtype type)
{
    const rp_windows shifted = {4, 6, 2, 3, 1, 2};
    rp_layer_desc d;
    switch (n) {
    case 0: begin_trial(t, "position_bias", rp_layer_position_bias_attention(4, 3, 0.3), type, 2, 5, 6, true); break;
    case 1: begin_trial(t, "position_table", rp_layer_position_table_attention(4, 3, 8, 5), type, 2, 5, 7, true); break;
    case 2:
        begin_trial(t, "relative_self_attention", rp_layer_relative_self_attention(5, 4, 3, 2), type, 2, 6, 0, false);
        break;
    case 3: begin_trial(t, "vit", rp_layer_vit_attention(6, 2), type, 2, 5, 0, false); break;
    case 4:
        d = rp_layer_window_attention(4, 2, 3, 2);
        d.mask[d.n_masks++] = rp_mask_init(RP_MASK_SEGMENTS);
        begin_trial(t, "window", d, type, 4, 6, 0, false);
        t->call.mask[0] = ZEROS(&t->memory, RP_I32, 4, 6);
        fine(rp_window_labels(&shifted, &t->call.mask[0]));
        break;
    case 5: begin_trial(t, "t5", rp_layer_t5_attention(6, 2, 8, 5, 1, 1), type, 2, 7, 0, false); break;
    case 6:
        d = rp_layer_t5_attention(6, 2, 8, 5, 1, 0);
        d.mask[d.n_masks++] = rp_mask_init(RP_MASK_CAUSAL);
        begin_trial(t, "t5, causal", d, type, 2, 7, 0, false);
        break;
    case 7: begin_trial(t, "t5, cross", rp_layer_t5_attention(6, 2, 8, 5, 1, 1), type, 2, 4, 6, false); break;
    case 8:
        begin_trial(t, "t5, bias of another layer", rp_layer_t5_attention(6, 2, 8, 5, 0, 1), type, 2, 6, 0, false);
        d = rp_layer_relative_positional_bias(2, 8, 5, 1);
        d.dtype = type;
        t->shared = layer_of(d);
        draw_weights(t, t->shared);
        t->call.terms_of = t->shared;
        break;
    case 9:
        d = rp_layer_additive_rel_attention(6, 2, 2, 0, 1);
        d.mask[d.n_masks++] = rp_mask_init(RP_MASK_KEYS);
        begin_trial(t, "additive_rel", d, type, 2, 5, 6, true);
        t->call.term[0][1] = ZEROS(&t->memory, RP_F64, 2, 5);
        t->call.term[0][2] = ZEROS(&t->memory, RP_F64, 6);
        t->call.term[0][3] = ones(t, 2, SHAPE(2, 5));
        t->call.term[0][4] = ones(t, 1, SHAPE(6));
        fill_normal(&t->call.term[0][1], &t->random);
        fill_normal(&t->call.term[0][2], &t->random);
        ((uint8_t *)t->call.term[0][3].data)[7] = ((uint8_t *)t->call.term[0][4].data)[2] = 0;
        t->call.mask[0] = ones(t, 2, SHAPE(2, 6));
        ((uint8_t *)t->call.mask[0].data)[3] = 0;
        break;
    case ALL_SETTINGS: /* query 0 of batch entry 0 attends to no key */
        d = rp_layer_desc_init(5, 4);
        d.key_width = 3, d.value_width = 6, d.out_width = 7, d.kv_heads = 2, d.dim_k = 4, d.dim_v = 3;
        d.bias[RP_Q] = d.bias[RP_K] = d.bias[RP_V] = d.bias[RP_O] = 1;
        d.transposed = 1;
        d.scale = 0.4;
        d.softcap = 3;
        d.term[d.n_terms++] = rp_term_init(RP_TERM_ROPE);
        d.term[d.n_terms++] = rp_term_init(RP_TERM_ALIBI);
        d.mask[d.n_masks++] = rp_mask_init(RP_MASK_CAUSAL);
        d.mask[d.n_masks++] = rp_mask_init(RP_MASK_KEYS);
        begin_trial(t, "all settings", d, type, 2, 5, 5, true);
        t->call.mask[1] = ones(t, 2, SHAPE(2, 5));
        ((uint8_t *)t->call.mask[1].data)[0] = 0;
        break;
    default:
        d = rp_layer_t5_attention(6, 3, 8, 5, 1, 1);
        d.dropout = 0.3;
        begin_trial(t, "dropout", d, type, 2, 6, 0, false);
        t->call.train = 1;
        t->call.seed = 5;
    }
}

/* Begin a trial with one term. Return false if the kind has fewer samples. */
HELPER bool one_term(trial *t, rp_term_kind kind, int sample, rp_dtype type)
{
    const rp_term_facts *facts = rp_term_about(kind);
    char terms[160], name[16];
    if (!facts || sample >= RP_MAX_SAMPLES || !facts->samples[sample])
        return false;
    const bool parameters = *facts->samples[sample] != 0;
    snprintf(terms, sizeof terms, "%s%s%s", rp_term_name(kind), parameters ? "," : "", facts->samples[sample]);
    const int64_t tokens = problem_tokens(terms), length = tokens ? tokens : 6;
    rp_layer_desc d = rp_layer_desc_init(5, 2);
    d.dim_k = 4;
    problem p;
    pose(&p, 7, "bwd:%s:b2h2q%dk%dd4:%s", rp_dtype_name(type), (int)length, (int)length, terms);
    d.term[d.n_terms++] = p.terms[0];
    begin_trial(t, terms, d, type, 2, length, 0, false);
    t->sample = p;
    for (int x = 0; x < RP_MAX_ARRAYS && rp_term_array(kind, x); x++) {
        snprintf(name, sizeof name, "term0.%s", rp_term_array(kind, x));
        const rp_layer_param *w = rp_layer_param_named(t->layer, name);
        const rp_array *a = &p.t.term[0][x];
        if (!w) {
            t->call.term[0][x] = *a;
            t->g.term[0][x] = p.g.term[0][x];
            continue;
        }
        /* the weight has the shape and type that the library wants */
        assert_int_equal(w->ndim, a->ndim);
        assert_memory_equal(w->shape, a->shape, (size_t)w->ndim * sizeof(int64_t));
        memcpy(w->data, a->data, (size_t)w->n * rp_dtype_size(type));
    }
    return true;
}

/* Add the attention weights of each head, or their mean, to the outputs, and random gradients with respect to them. */
HELPER void with_weights(trial *t, bool mean)
{
    const rp_array *q = &t->call.query, *k = t->call.key.ndim ? &t->call.key : q;
    const int64_t b = q->shape[0], lq = q->shape[1], lk = k->shape[1];
    rp_array *const both[] = {&t->call.weights, &t->g.dweights};
    for (int x = 0; x < 2; x++)
        *both[x] =
            mean ? ZEROS(&t->memory, t->d.dtype, b, lq, lk) : ZEROS(&t->memory, t->d.dtype, b, t->d.heads, lq, lk);
    fill_normal(&t->g.dweights, &t->random);
}

HELPER double loss_of(const trial *t)
{
    double sum = 0;
    fine(rp_layer_forward(t->layer, &t->call, NULL));
    for (int64_t x = 0; x < problem_size(&t->call.out); x++)
        sum += at(&t->call.out, x) * at(&t->g.dout, x);
    for (int64_t x = 0; t->g.dweights.ndim && x < problem_size(&t->call.weights); x++)
        sum += at(&t->call.weights, x) * at(&t->g.dweights, x);
    return sum;
}

/* Compute the output and all gradients. */
HELPER void run_trial(trial *t)
{
    rp_layer_saved *saved;
    fine(rp_layer_forward(t->layer, &t->call, &saved));
    fine(rp_layer_backward(t->layer, &t->call, saved, &t->g));
    rp_layer_saved_free(saved);
}

#endif
