/* layer.c -- creates layers: checks a description, and allocates the weights and their gradients.
 * SPDX-License-Identifier: Apache-2.0 */
#include "layers/layer.h"
#include <ctype.h>
#include <math.h>
#include <relpos/facts.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const projection_names[RP_PROJECTIONS] = {"q_proj", "k_proj", "v_proj", "o_proj"};

rp_layer_desc rp_layer_desc_init(int64_t width, int64_t heads)
{
    rp_layer_desc d;
    memset(&d, 0, sizeof d);
    d.size = sizeof d;
    d.dtype = RP_F32;
    d.width = width;
    d.heads = heads;
    for (int x = 0; x < RP_PROJECTIONS; x++)
        d.weight[x] = 1;
    d.scale = RP_SCALE_AUTO;
    return d;
}

int64_t layers_count(int32_t ndim, const int64_t *shape)
{
    int64_t n = 1;
    bool empty = false;
    for (int32_t x = 0; x < ndim; x++) {
        empty = empty || shape[x] == 0;
        if (shape[x] < 0 || __builtin_mul_overflow(n, shape[x] ? shape[x] : 1, &n) || n > INT64_MAX / 8)
            return -1;
    }
    return empty ? 0 : n;
}

void *layers_at(const rp_layer *layer, layers_place place)
{
    return place.param < 0 ? NULL : (char *)layer->params[place.param].data + (size_t)place.first * layer->ops->size;
}

void *layers_grad_at(const rp_layer *layer, layers_place place)
{
    return place.param < 0 ? NULL : (char *)layer->params[place.param].grad + (size_t)place.first * layer->ops->size;
}

/* ------------------------------------------------------------------------------------------------ the description */

/* Replace zeros that stand for defaults, and compute the widths of the projections. dim_k stays 0 if width is not a
 * multiple of heads. */
static void resolve(rp_layer *l)
{
    rp_layer_desc *d = &l->d;
    d->key_width = d->key_width ? d->key_width : d->width;
    d->value_width = d->value_width ? d->value_width : d->key_width;
    d->kv_heads = d->kv_heads ? d->kv_heads : d->heads;
    if (d->dim_k == 0 && d->heads > 0 && d->width % d->heads == 0)
        d->dim_k = d->width / d->heads;
    d->dim_v = d->dim_v ? d->dim_v : d->dim_k;
    l->in[RP_Q] = d->width, l->in[RP_K] = d->key_width, l->in[RP_V] = d->value_width;
}

static rp_status check_sizes(rp_layer *l)
{
    rp_layer_desc *d = &l->d;
    const struct {
        const char *name;
        int64_t value;
    } sizes[] = {{"width", d->width}, {"key_width", d->key_width}, {"value_width", d->value_width},
                 {"heads", d->heads}, {"kv_heads", d->kv_heads},   {"dim_k", d->dim_k},
                 {"dim_v", d->dim_v}};
    if (d->dim_k == 0 && d->width > 0 && d->heads > 0)
        return layers_fail(RP_E_SHAPE,
                           "width is %lld, which is not a multiple of heads, %lld; change one, or set dim_k",
                           (long long)d->width, (long long)d->heads);
    for (size_t x = 0; x < sizeof sizes / sizeof *sizes; x++)
        if (sizes[x].value < 1 || sizes[x].value > INT32_MAX)
            return layers_fail(RP_E_RANGE, "%s is %lld; it must be from 1 to %d", sizes[x].name,
                               (long long)sizes[x].value, INT32_MAX);
    if (d->heads % d->kv_heads != 0)
        return layers_fail(RP_E_RANGE, "kv_heads is %lld; it must divide heads, which is %lld", (long long)d->kv_heads,
                           (long long)d->heads);
    if (l->d.dtype != RP_F32 && l->d.dtype != RP_F64)
        return layers_fail(RP_E_UNSUPPORTED, "dtype is %s; layers compute in f32 or f64", rp_dtype_name(d->dtype));
    l->out[RP_Q] = d->heads * d->dim_k, l->out[RP_K] = d->kv_heads * d->dim_k, l->out[RP_V] = d->kv_heads * d->dim_v;
    l->in[RP_O] = d->heads * d->dim_v;
    if (!d->out_width)
        d->out_width = d->weight[RP_O] ? d->width : l->in[RP_O];
    l->out[RP_O] = d->out_width;
    for (int x = 0; x < RP_PROJECTIONS; x++) {
        if (l->in[x] < 1 || l->out[x] < 1 || l->in[x] > INT32_MAX || l->out[x] > INT32_MAX)
            return layers_fail(RP_E_RANGE, "%s has %lld inputs and %lld outputs; both must be from 1 to %d",
                               projection_names[x], (long long)l->in[x], (long long)l->out[x], INT32_MAX);
        if (!d->weight[x] && l->in[x] != l->out[x])
            return layers_fail(RP_E_SHAPE, "without %s, its %lld inputs must be as many as its %lld outputs",
                               projection_names[x], (long long)l->in[x], (long long)l->out[x]);
        if (!d->weight[x] && d->bias[x])
            return layers_fail(RP_E_UNSUPPORTED, "%s has a bias vector but no weights; set weight too",
                               projection_names[x]);
    }
    return RP_OK;
}

static rp_status check_packed(const rp_layer *l)
{
    const rp_layer_desc *d = &l->d;
    if (!d->packed)
        return RP_OK;
    if (!d->weight[RP_Q] || !d->weight[RP_K] || !d->weight[RP_V] || d->transposed)
        return layers_fail(RP_E_UNSUPPORTED, "packed needs the weights of Q, K and V as [out, in]");
    if (d->bias[RP_Q] != d->bias[RP_K] || d->bias[RP_Q] != d->bias[RP_V])
        return layers_fail(RP_E_UNSUPPORTED, "packed needs bias vectors for all of Q, K and V, or for none");
    if (d->key_width != d->width || d->value_width != d->width)
        return layers_fail(RP_E_SHAPE, "packed needs key_width (%lld) and value_width (%lld) to be width, %lld",
                           (long long)d->key_width, (long long)d->value_width, (long long)d->width);
    return RP_OK;
}

/* ------------------------------------------------------------------------------------------------ weights */

static rp_status add_param(rp_layer *l, const char *name, int32_t ndim, const int64_t *shape)
{
    const int64_t n = layers_count(ndim, shape);
    rp_layer_param *p = &l->params[l->n_params];
    char *to = l->names[l->n_params];
    if (!*name || strlen(name) >= RP_NAME_MAX)
        return layers_fail(RP_E_RANGE, "the name \"%.32s\" of a weight has %zu bytes; it must have 1 to %d", name,
                           strlen(name), RP_NAME_MAX - 1);
    snprintf(to, RP_NAME_MAX, "%s", name);
    for (int32_t x = 0; x < l->n_params; x++)
        if (strcmp(l->params[x].name, to) == 0)
            return layers_fail(RP_E_ARG, "two weights are named \"%s\"; give each a name of its own", to);
    if (n < 0)
        return layers_fail(RP_E_OVERFLOW, "the number of elements of %s does not fit in 63 bits", name);
    *p = (rp_layer_param){.name = to, .ndim = ndim, .n = n};
    memcpy(p->shape, shape, (size_t)ndim * sizeof *shape);
    p->data = calloc((size_t)n + 1, l->ops->size);
    p->grad = calloc((size_t)n + 1, l->ops->size);
    l->n_params++;
    return p->data && p->grad ? RP_OK : layers_no_memory("the weights");
}

static rp_status add_projection(rp_layer *l, int which)
{
    const rp_layer_desc *d = &l->d;
    const bool packed = d->packed && which != RP_O;
    const char *names[] = {d->weight_name[which], d->bias_name[which]};
    char own[2][32];
    rp_status status = RP_OK;
    l->weight[which] = l->bias[which] = (layers_place){.param = -1};
    if (packed && which != RP_Q) {
        const int64_t rows = which == RP_K ? l->out[RP_Q] : l->out[RP_Q] + l->out[RP_K];
        l->weight[which] = (layers_place){l->weight[RP_Q].param, rows * d->width};
        l->bias[which] = (layers_place){l->bias[RP_Q].param, rows};
        return RP_OK;
    }
    const int64_t rows = packed ? l->out[RP_Q] + l->out[RP_K] + l->out[RP_V] : l->out[which];
    const int64_t shape[2] = {d->transposed ? l->in[which] : rows, d->transposed ? rows : l->in[which]};
    for (int x = 0; x < 2; x++) {
        snprintf(own[x], sizeof own[x], "%s.%s", projection_names[which], x ? "bias" : "weight");
        names[x] = names[x] ? names[x] : own[x];
    }
    if (d->weight[which]) {
        l->weight[which].param = l->n_params;
        status = add_param(l, names[0], 2, shape);
    }
    if (d->bias[which] && status == RP_OK) {
        l->bias[which].param = l->n_params;
        status = add_param(l, names[1], 1, &rows);
    }
    return status;
}

/* Return true if an array of term t has an axis that depends on the batch or on the lengths. */
static bool of_a_call(const rp_desc *desc, int32_t t, int32_t x)
{
    const char *const text = rp_term_array_about(desc->terms[t].kind, x)->shape;
    rp_desc two = *desc;
    int64_t shape[2][RP_MAX_AXES] = {{0}};
    int32_t ndim[2];
    two.batch = 2;
    if (strstr(text, " : ")) /* one of two shapes, of which the one of a call has an axis of the batch */
        return rp_term_shape(desc, t, x, &ndim[0], shape[0]) == RP_OK &&
               rp_term_shape(&two, t, x, &ndim[1], shape[1]) == RP_OK && shape[0][0] != shape[1][0];
    for (const char *at = text; *at;) {
        const char *word = at;
        while (isalnum((unsigned char)*at) || *at == '_')
            at++;
        const size_t n = (size_t)(at - word);
        if (n > 0 && n < 3 && (*word == 'B' || *word == 'L') && (n == 1 || word[1] == 'q' || word[1] == 'k'))
            return true;
        at += n == 0;
    }
    return false;
}

/* Describe the layer's attention for lengths that its terms allow, for the shapes of their arrays. */
static rp_desc sample_attention(const rp_layer *l, int64_t heads)
{
    const rp_layer_desc *d = &l->d;
    int64_t length = 1;
    for (int32_t t = 0; t < d->n_terms; t++)
        if (d->term[t].grid_h > 0 && d->term[t].grid_h < INT32_MAX && d->term[t].grid_w < INT32_MAX)
            length = d->term[t].grid_h * d->term[t].grid_w + d->term[t].extra;
    rp_desc desc = rp_desc_init(1, heads, length, length, d->dim_k);
    desc.dim_v = d->dim_v;
    desc.dtype = d->dtype;
    desc.scale = d->scale;
    desc.softcap = d->softcap;
    desc.dropout = d->dropout;
    desc.terms = d->term;
    desc.n_terms = d->n_terms;
    desc.masks = d->mask;
    desc.n_masks = d->n_masks;
    return desc;
}

static rp_status add_term_array(rp_layer *l, const rp_desc *desc, int32_t t, int32_t x)
{
    const rp_layer_desc *d = &l->d;
    const rp_term_kind kind = d->term[t].kind;
    int64_t shape[RP_MAX_AXES], kept[RP_MAX_AXES] = {1};
    int32_t ndim, n = 0;
    char own[RP_NAME_MAX];
    l->term_param[t][x] = -1;
    if (!rp_term_array_learned(kind, x) || rp_term_array_optional(kind, x) || of_a_call(desc, t, x))
        return RP_OK;
    rp_status status = rp_term_shape(desc, t, x, &ndim, shape);
    if (status != RP_OK)
        return layers_core_failed(status, desc);
    if (ndim == 0)
        return RP_OK;
    for (int32_t axis = 0; axis < ndim; axis++)
        if (!d->flat || shape[axis] != 1)
            kept[n++] = shape[axis];
    snprintf(own, sizeof own, "term%d.%s", (int)t, rp_term_array(kind, x));
    l->term_param[t][x] = l->n_params;
    status = add_param(l, d->term_name[t][x] ? d->term_name[t][x] : own, n ? n : 1, kept);
    if (status == RP_OK)
        l->term[t][x] = rp_array_of(l->params[l->term_param[t][x]].data, d->dtype, ndim, shape);
    return status;
}

static rp_status add_params(rp_layer *l)
{
    const rp_desc desc = sample_attention(l, l->d.one_table ? 1 : l->d.heads);
    const size_t most = 2 * RP_PROJECTIONS + RP_LAYER_TERMS * RP_MAX_ARRAYS;
    rp_status status = RP_OK;
    rp_plan *plan;
    l->params = calloc(most, sizeof *l->params);
    l->names = calloc(most, sizeof *l->names);
    if (!l->params || !l->names)
        return layers_no_memory("the weights");
    if ((status = rp_plan_create(&plan, &desc)) != RP_OK)
        return layers_core_failed(status, &desc);
    rp_plan_destroy(plan);
    for (int x = 0; x < RP_PROJECTIONS && status == RP_OK; x++)
        status = add_projection(l, x);
    for (int32_t t = 0; t < l->d.n_terms; t++)
        for (int32_t x = 0; x < RP_MAX_ARRAYS && status == RP_OK && rp_term_array(l->d.term[t].kind, x); x++)
            status = add_term_array(l, &desc, t, x);
    return status;
}

rp_status rp_layer_create(rp_layer **layer, const rp_layer_desc *desc)
{
    rp_status status;
    if (!layer)
        return layers_fail(RP_E_ARG, "layer is NULL; pass the address of a pointer");
    *layer = NULL;
    if (!desc || desc->size != sizeof *desc)
        return layers_fail(RP_E_ARG, "desc is NULL or of another version; start from rp_layer_desc_init");
    if (desc->n_terms < 0 || desc->n_terms > RP_LAYER_TERMS || desc->n_masks < 0 || desc->n_masks > RP_LAYER_MASKS)
        return layers_fail(RP_E_RANGE, "n_terms is %d and n_masks is %d; they must be from 0 to %d and %d",
                           (int)desc->n_terms, (int)desc->n_masks, RP_LAYER_TERMS, RP_LAYER_MASKS);
    rp_layer *l = calloc(1, sizeof *l);
    if (!l)
        return layers_no_memory("a layer");
    l->d = *desc;
    l->ops = desc->dtype == RP_F64 ? &layers_ops_f64 : &layers_ops_f32;
    memset(l->term_param, 0xff, sizeof l->term_param);
    resolve(l);
    if ((status = check_sizes(l)) != RP_OK || (status = check_packed(l)) != RP_OK ||
        (status = add_params(l)) != RP_OK) {
        rp_layer_destroy(l);
        return status;
    }
    *layer = l;
    return RP_OK;
}

void rp_layer_destroy(rp_layer *layer)
{
    if (!layer)
        return;
    for (int32_t x = 0; x < layer->n_params; x++) {
        free(layer->params[x].data);
        free(layer->params[x].grad);
    }
    free(layer->params);
    free(layer->names);
    free(layer);
}

rp_layer_param *rp_layer_param_at(rp_layer *layer, int32_t index)
{
    return layer && index >= 0 && index < layer->n_params ? &layer->params[index] : NULL;
}

rp_layer_param *rp_layer_param_named(rp_layer *layer, const char *name)
{
    for (int32_t x = 0; layer && name && x < layer->n_params; x++)
        if (strcmp(layer->params[x].name, name) == 0)
            return &layer->params[x];
    return NULL;
}

void rp_layer_random(rp_layer *layer, uint64_t seed)
{
    for (int32_t x = 0; layer && x < layer->n_params; x++) {
        const rp_layer_param *p = &layer->params[x];
        double deviation = p->ndim == 1 ? 0 : sqrt(2.0 / (double)(p->shape[p->ndim - 2] + p->shape[p->ndim - 1]));
        for (int32_t t = 0; t < layer->d.n_terms; t++)
            for (int32_t y = 0; y < RP_MAX_ARRAYS; y++)
                if (layer->term_param[t][y] == x && rp_term_is_bias(layer->d.term[t].kind))
                    deviation = 0.02;
        layer->ops->set(p->n, seed, (uint64_t)x, deviation, p->data);
    }
}

void rp_layer_zero_grad(rp_layer *layer)
{
    for (int32_t x = 0; layer && x < layer->n_params; x++)
        memset(layer->params[x].grad, 0, (size_t)layer->params[x].n * layer->ops->size);
}

void rp_layer_step(rp_layer *layer, double rate)
{
    for (int32_t x = 0; layer && x < layer->n_params; x++)
        layer->ops->add(layer->params[x].n, -rate, layer->params[x].grad, layer->params[x].data);
    rp_layer_zero_grad(layer);
}
