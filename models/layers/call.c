/* call.c -- a call of a layer: checks its arrays, describes its attention, and computes the forward pass.
 * SPDX-License-Identifier: Apache-2.0 */
#include "layers/layer.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

rp_layer_call rp_layer_call_init(void)
{
    rp_layer_call c;
    memset(&c, 0, sizeof c);
    c.size = sizeof c;
    return c;
}

void rp_layer_saved_free(rp_layer_saved *saved)
{
    for (int x = 0; saved && x < LAYERS_ARRAYS; x++)
        if (saved->owned[x])
            free(saved->data[x]);
    free(saved);
}

/* ------------------------------------------------------------------------------------------------ checks */

const char *layers_print_shape(char to[128], int32_t ndim, const int64_t *shape)
{
    const size_t size = 128;
    size_t n = (size_t)snprintf(to, size, "(");
    for (int32_t x = 0; x < ndim && n < size; x++)
        n += (size_t)snprintf(to + n, size - n, "%s%lld", x ? ", " : "", (long long)shape[x]);
    if (n < size)
        snprintf(to + n, size - n, ")");
    return to;
}

rp_status layers_check_array(const char *name, const rp_array *a, rp_dtype dtype, int32_t ndim, const int64_t *shape)
{
    char has[128], wants[128];
    int64_t step = 1;
    if (a->dtype != dtype)
        return layers_fail(RP_E_ARG, "%s is of type %s; this layer needs %s", name, rp_dtype_name(a->dtype),
                           rp_dtype_name(dtype));
    if (a->ndim != ndim)
        return layers_fail(RP_E_SHAPE, "%s has %d axes; expected %d", name, (int)a->ndim, (int)ndim);
    if (memcmp(a->shape, shape, (size_t)ndim * sizeof *shape) != 0)
        return layers_fail(RP_E_SHAPE, "%s has shape %s; expected %s", name, layers_print_shape(has, ndim, a->shape),
                           layers_print_shape(wants, ndim, shape));
    for (int32_t x = 0; x < ndim; x++)
        if (shape[x] < 0)
            return layers_fail(RP_E_SHAPE, "%s has shape %s; sizes must be 0 or more", name,
                               layers_print_shape(has, ndim, shape));
    if (layers_count(ndim, shape) < 0)
        return layers_fail(RP_E_OVERFLOW, "%s has shape %s; its number of bytes does not fit in 63 bits", name,
                           layers_print_shape(has, ndim, shape));
    for (int32_t x = ndim - 1; x >= 0; x--) {
        if (shape[x] > 1 && a->stride[x] != step)
            return layers_fail(RP_E_STRIDE,
                               "%s is not contiguous: axis %d has stride %lld, expected %lld (copy it first)", name,
                               (int)x, (long long)a->stride[x], (long long)step);
        step *= shape[x];
    }
    if (!a->data && layers_count(ndim, shape) > 0)
        return layers_fail(RP_E_ARG, "%s has shape %s but no data; pass a pointer to its elements", name,
                           layers_print_shape(has, ndim, shape));
    return RP_OK;
}

/* Return the bytes from the first to the last element of an array, and set *first. */
static uintptr_t extent(const rp_array *a, uintptr_t *first)
{
    const uintptr_t size = rp_dtype_size(a->dtype);
    uintptr_t low = (uintptr_t)a->data, high = low + size;
    for (int32_t x = 0; x < a->ndim && x < RP_MAX_AXES; x++) {
        if (a->shape[x] < 1)
            return 0;
        if (a->shape[x] > 1) /* otherwise the stride may have any value */
            *(a->stride[x] < 0 ? &low : &high) += (uintptr_t)(a->shape[x] - 1) * (uintptr_t)a->stride[x] * size;
    }
    *first = low;
    return high - low;
}

rp_status layers_check_apart(const char *a_name, const rp_array *a, const char *b_name, const rp_array *b)
{
    uintptr_t first_a, first_b;
    const uintptr_t n_a = a->data ? extent(a, &first_a) : 0, n_b = b->data ? extent(b, &first_b) : 0;
    if (n_a > 0 && n_b > 0 && first_a < first_b + n_b && first_b < first_a + n_a)
        return layers_fail(RP_E_OVERLAP, "%s and %s share memory; use separate arrays", a_name, b_name);
    return RP_OK;
}

rp_status layers_check_output(const char *name, const rp_array *output, const rp_layer_call *c)
{
    rp_status status;
    char text[32];
    if ((status = layers_check_apart(name, output, "query", &c->query)) != RP_OK ||
        (status = layers_check_apart(name, output, "key", &c->key)) != RP_OK ||
        (status = layers_check_apart(name, output, "value", &c->value)) != RP_OK)
        return status;
    for (int t = 0; t < 2 * RP_LAYER_TERMS; t++)
        for (int x = 0; x < RP_MAX_ARRAYS; x++) {
            snprintf(text, sizeof text, "term[%d][%d]", t, x);
            if ((status = layers_check_apart(name, output, text, &c->term[t][x])) != RP_OK)
                return status;
        }
    for (int m = 0; m < RP_LAYER_MASKS && status == RP_OK; m++) {
        snprintf(text, sizeof text, "mask[%d]", m);
        status = layers_check_apart(name, output, text, &c->mask[m]);
    }
    return status;
}

rp_status layers_check_terms(const rp_layer *l, const rp_layer_call *c,
                             const rp_array term[2 * RP_LAYER_TERMS][RP_MAX_ARRAYS])
{
    for (int32_t at = 0; at < 2 * RP_LAYER_TERMS; at++)
        for (int32_t x = 0; x < RP_MAX_ARRAYS; x++) {
            const rp_layer *of = at < l->d.n_terms ? l : c->terms_of;
            const int32_t t = at < l->d.n_terms ? at : at - l->d.n_terms;
            if (!term[at][x].data)
                continue;
            if (!of || t >= of->d.n_terms || !rp_term_array(of->d.term[t].kind, x))
                return layers_fail(RP_E_ARG, "term[%d][%d] is present, but the terms of the call have no such array",
                                   (int)at, (int)x);
            if (of->term_param[t][x] >= 0)
                return layers_fail(RP_E_ARG, "term[%d][%d] is present, but it is the weight %s of the layer; set that",
                                   (int)at, (int)x, of->params[of->term_param[t][x]].name);
        }
    return RP_OK;
}

static rp_status check_masks(const rp_layer *l, const rp_layer_call *c)
{
    for (int32_t m = l->d.n_masks; m < RP_LAYER_MASKS; m++)
        if (c->mask[m].data)
            return layers_fail(RP_E_ARG, "mask[%d] is present, but the layer has %d masks; add it to the description",
                               (int)m, (int)l->d.n_masks);
    return RP_OK;
}

static rp_status check_input(const char *name, const rp_layer *l, const rp_array *a, int64_t batch, int64_t len,
                             int64_t width)
{
    const int64_t shape[3] = {batch, len, width};
    return layers_check_array(name, a, l->d.dtype, 3, shape);
}

rp_status layers_check_weights(const char *name, const rp_layer *l, const rp_layer_saved *s, const rp_array *a)
{
    const int64_t each[4] = {s->batch, l->d.heads, s->len_q, s->len_k}, mean[3] = {s->batch, s->len_q, s->len_k};
    return !a->ndim       ? RP_OK
           : a->ndim == 3 ? layers_check_array(name, a, l->d.dtype, 3, mean)
                          : layers_check_array(name, a, l->d.dtype, 4, each);
}

static rp_status check_outputs(const rp_layer *l, const rp_layer_call *c, const rp_layer_saved *s)
{
    rp_status status = RP_OK;
    if (c->out.ndim)
        status = check_input("out", l, &c->out, s->batch, s->len_q, l->d.out_width);
    if (status == RP_OK)
        status = layers_check_weights("weights", l, s, &c->weights);
    if (status == RP_OK && !c->out.ndim && !c->weights.ndim)
        status = layers_fail(RP_E_ARG, "the call has neither out nor weights; pass one of them");
    if (status == RP_OK)
        status = layers_check_apart("out", &c->out, "weights", &c->weights);
    if (status == RP_OK)
        status = layers_check_output("out", &c->out, c);
    return status == RP_OK ? layers_check_output("weights", &c->weights, c) : status;
}

static rp_status check_cache(const rp_layer *l, const rp_layer_call *c, rp_layer_saved *s)
{
    const rp_layer_cache *cache = c->cache;
    if (!cache)
        return RP_OK;
    if (cache->ops != l->ops || cache->width_k != l->out[RP_K] || cache->width_v != l->out[RP_V])
        return layers_fail(RP_E_ARG,
                           "the cache belongs to a layer of another type or width; create one for this layer");
    if (cache->batch != s->batch)
        return layers_fail(RP_E_SHAPE, "query has %lld batch entries, but the cache has %lld", (long long)s->batch,
                           (long long)cache->batch);
    if (s->len_k > cache->capacity - cache->length)
        return layers_fail(
            RP_E_RANGE, "the cache has %lld tokens and a capacity of %lld; %lld more do not fit (create a larger one)",
            (long long)cache->length, (long long)cache->capacity, (long long)s->len_k);
    if (c->q_offset > INT64_MAX - cache->length)
        return layers_fail(RP_E_RANGE, "q_offset is %lld; it must be at most 2^60", (long long)c->q_offset);
    s->len_k += cache->length;
    return RP_OK;
}

/* Check the sizes of the arrays between the input and the output. The loops over rows count in 32 bits. */
static rp_status check_sizes(const rp_layer *l, const rp_layer_saved *s)
{
    const int64_t sizes[][3] = {{s->batch, s->len_q, l->out[RP_Q]},
                                {s->batch, s->len_k, l->out[RP_K]},
                                {s->batch, s->len_k, l->out[RP_V]},
                                {s->batch, s->len_q, l->in[RP_O]}};
    for (size_t x = 0; x < sizeof sizes / sizeof *sizes; x++) {
        if (layers_count(3, sizes[x]) < 0)
            return layers_fail(RP_E_OVERFLOW,
                               "the activations of a batch of %lld sequences of %lld tokens do not fit "
                               "in 63 bits; use a smaller batch or shorter sequences",
                               (long long)s->batch, (long long)sizes[x][1]);
        if (sizes[x][0] * sizes[x][1] > INT32_MAX)
            return layers_fail(RP_E_RANGE,
                               "the batch has %lld sequences of %lld tokens; their product must be at most "
                               "%d (use a smaller batch)",
                               (long long)s->batch, (long long)sizes[x][1], INT32_MAX);
    }
    return RP_OK;
}

static rp_status check_shared(const rp_layer *l, const rp_layer_call *c)
{
    const rp_layer *other = c->terms_of;
    if (other && (other->d.dtype != l->d.dtype || other->d.heads != l->d.heads))
        return layers_fail(RP_E_ARG, "terms_of is a layer of %lld heads in %s; this layer has %lld in %s",
                           (long long)other->d.heads, rp_dtype_name(other->d.dtype), (long long)l->d.heads,
                           rp_dtype_name(l->d.dtype));
    return RP_OK;
}

rp_status layers_check_call(const rp_layer *l, const rp_layer_call *c, rp_layer_saved *s)
{
    rp_status status;
    if (!l || !c || c->size != sizeof *c)
        return layers_fail(RP_E_ARG,
                           "layer or call is NULL, or call of another version; start from rp_layer_call_init");
    const rp_array *key = layers_key_of(c), *value = layers_value_of(c);
    s->layer = l;
    s->batch = c->query.shape[0];
    s->len_q = c->query.shape[1];
    s->len_k = key->shape[1];
    if ((status = check_input("query", l, &c->query, s->batch, s->len_q, l->d.width)) != RP_OK ||
        (status = check_input(c->key.ndim ? "key" : "query, in place of an absent key,", l, key, s->batch, s->len_k,
                              l->d.key_width)) != RP_OK ||
        (status = check_input(c->value.ndim ? "value" : "key, in place of an absent value,", l, value, s->batch,
                              s->len_k, l->d.value_width)) != RP_OK ||
        (status = check_shared(l, c)) != RP_OK || (status = layers_check_terms(l, c, c->term)) != RP_OK ||
        (status = check_masks(l, c)) != RP_OK || (status = check_cache(l, c, s)) != RP_OK ||
        (status = check_sizes(l, s)) != RP_OK)
        return status;
    return check_outputs(l, c, s);
}

/* ------------------------------------------------------------------------------------------------ attention */

rp_array layers_heads(const rp_layer *l, void *data, int64_t batch, int64_t heads, int64_t len, int64_t dim,
                      int64_t rows)
{
    const int64_t shape[4] = {batch, heads, len, dim};
    rp_array a = rp_array_of(data, l->d.dtype, 4, shape);
    a.stride[0] = rows * heads * dim;
    a.stride[1] = dim;
    a.stride[2] = heads * dim;
    return a;
}

static void add_terms(layers_attention *a, const rp_layer *l, const rp_layer_call *c)
{
    for (int32_t t = 0; t < l->d.n_terms; t++) {
        const int32_t at = a->desc.n_terms++;
        a->term[at] = l->d.term[t];
        for (int32_t x = 0; x < RP_MAX_ARRAYS; x++)
            a->t.term[at][x] = l->term_param[t][x] >= 0 ? l->term[t][x] : c->term[at][x];
    }
}

void layers_attention_of(layers_attention *a, const rp_layer *l, const rp_layer_call *c, const rp_layer_saved *s)
{
    const rp_layer_desc *d = &l->d;
    const int64_t shape[3] = {s->batch, d->heads, s->len_q};
    const int64_t rows_k = c->cache ? c->cache->capacity : s->len_k;
    a->desc = rp_desc_init(s->batch, d->heads, s->len_q, s->len_k, d->dim_k);
    a->desc.kv_heads = d->kv_heads;
    a->desc.dim_v = d->dim_v;
    a->desc.dtype = d->dtype;
    a->desc.scale = d->scale;
    a->desc.softcap = d->softcap;
    a->desc.q_offset = c->q_offset + (c->cache ? c->cache->length : 0);
    a->desc.terms = a->term;
    a->desc.masks = d->mask;
    a->desc.n_masks = d->n_masks;
    a->desc.dropout = c->train ? d->dropout : 0;
    a->desc.seed = c->seed;
    a->t = rp_tensors_init();
    add_terms(a, l, c);
    if (c->terms_of)
        add_terms(a, c->terms_of, c);
    memcpy(a->t.mask, c->mask, sizeof c->mask);
    a->t.pool = c->pool;
    a->t.q = layers_heads(l, s->data[LAYERS_Q], s->batch, d->heads, s->len_q, d->dim_k, s->len_q);
    a->t.k = layers_heads(l, s->data[LAYERS_K], s->batch, d->kv_heads, s->len_k, d->dim_k, rows_k);
    a->t.v = layers_heads(l, s->data[LAYERS_V], s->batch, d->kv_heads, s->len_k, d->dim_v, rows_k);
    a->t.out = layers_heads(l, s->data[LAYERS_OUT], s->batch, d->heads, s->len_q, d->dim_v, s->len_q);
    if (s->data[LAYERS_LSE])
        a->t.lse = rp_array_of(s->data[LAYERS_LSE], d->dtype, 3, shape);
}

/* ------------------------------------------------------------------------------------------------ forward */

/* Project rows of an input. Without weights, use the input as it is: *to becomes its data, or, if it has a place in a
 * cache already, a copy of the data. */
static void project(const rp_layer *l, const rp_layer_call *c, int which, int64_t rows, const void *x, void *to)
{
    const void *w = layers_at(l, l->weight[which]);
    if (w)
        l->ops->project(c->pool, rows, l->in[which], l->out[which], x, w, l->d.transposed, layers_at(l, l->bias[which]),
                        to);
    else if (to != x && rows > 0)
        memcpy(to, x, (size_t)(rows * l->out[which]) * l->ops->size);
}

/* Append the projections of keys or values to the cache, after its last token. */
static void append(const rp_layer *l, const rp_layer_call *c, int which, const rp_array *from, void *cache)
{
    const size_t size = l->ops->size;
    const int64_t rows = from->shape[1], width = l->out[which];
    for (int64_t b = 0; rows > 0 && b < from->shape[0]; b++)
        project(l, c, which, rows, (const char *)from->data + (size_t)(b * rows * l->in[which]) * size,
                (char *)cache + (size_t)((b * c->cache->capacity + c->cache->length) * width) * size);
}

/* Get memory for an array of s, unless `given` holds it already. */
static bool place(rp_layer_saved *s, layers_array which, int64_t n, size_t size, void *given)
{
    s->data[which] = given ? given : malloc((size_t)n * size + 1);
    s->owned[which] = !given;
    return s->data[which] != NULL;
}

static bool place_arrays(const rp_layer *l, const rp_layer_call *c, rp_layer_saved *s)
{
    const size_t size = l->ops->size;
    const int64_t rows_q = s->batch * s->len_q, rows_k = s->batch * s->len_k;
    return place(s, LAYERS_Q, rows_q * l->out[RP_Q], size, l->d.weight[RP_Q] ? NULL : c->query.data) &&
           place(s, LAYERS_K, rows_k * l->out[RP_K], size,
                 c->cache            ? c->cache->k
                 : l->d.weight[RP_K] ? NULL
                                     : layers_key_of(c)->data) &&
           place(s, LAYERS_V, rows_k * l->out[RP_V], size,
                 c->cache            ? c->cache->v
                 : l->d.weight[RP_V] ? NULL
                                     : layers_value_of(c)->data) &&
           place(s, LAYERS_OUT, rows_q * l->in[RP_O], size, !l->d.weight[RP_O] && c->out.ndim ? c->out.data : NULL) &&
           place(s, LAYERS_LSE, rows_q * l->d.heads, size, NULL);
}

static rp_status attend(const rp_layer *l, const rp_layer_call *c, const rp_layer_saved *s)
{
    const int64_t shape[4] = {s->batch, l->d.heads, s->len_q, s->len_k};
    layers_attention a;
    rp_plan *plan;
    void *full = NULL;
    layers_attention_of(&a, l, c, s);
    if (c->weights.ndim == 3) {
        const int64_t n = layers_count(4, shape);
        full = n < 0 ? NULL : malloc((size_t)n * l->ops->size + 1);
        if (!full)
            return layers_no_memory("attention weights of all heads");
        a.t.weights = rp_array_of(full, l->d.dtype, 4, shape);
    } else if (c->weights.ndim) {
        a.t.weights = c->weights;
    }
    rp_status status = rp_plan_create(&plan, &a.desc);
    if (status == RP_OK)
        status = rp_attend(plan, &a.t, NULL);
    if (status != RP_OK)
        layers_core_failed(status, &a.desc);
    else if (full)
        l->ops->mean(s->batch, l->d.heads, s->len_q * s->len_k, full, c->weights.data);
    rp_plan_destroy(plan);
    free(full);
    return status;
}

static rp_status run(const rp_layer *l, const rp_layer_call *c, rp_layer_saved *s)
{
    const rp_array *key = layers_key_of(c), *value = layers_value_of(c);
    if (!place_arrays(l, c, s))
        return layers_no_memory("the activations of a layer");
    project(l, c, RP_Q, s->batch * s->len_q, c->query.data, s->data[LAYERS_Q]);
    if (c->cache) {
        append(l, c, RP_K, key, s->data[LAYERS_K]);
        append(l, c, RP_V, value, s->data[LAYERS_V]);
    } else {
        project(l, c, RP_K, s->batch * s->len_k, key->data, s->data[LAYERS_K]);
        project(l, c, RP_V, s->batch * s->len_k, value->data, s->data[LAYERS_V]);
    }
    const rp_status status = attend(l, c, s);
    if (status == RP_OK && c->out.ndim)
        project(l, c, RP_O, s->batch * s->len_q, s->data[LAYERS_OUT], c->out.data);
    if (status == RP_OK && c->cache)
        c->cache->length = s->len_k;
    return status;
}

rp_status rp_layer_forward(const rp_layer *layer, const rp_layer_call *call, rp_layer_saved **saved)
{
    rp_layer_saved *s = calloc(1, sizeof *s);
    if (saved)
        *saved = NULL;
    if (!s)
        return layers_no_memory("a call");
    rp_status status = layers_check_call(layer, call, s);
    if (status == RP_OK && saved && call->cache)
        status =
            layers_fail(RP_E_UNSUPPORTED, "a call with a cache has no gradients; pass NULL for saved, or no cache");
    if (status == RP_OK)
        status = run(layer, call, s);
    if (status == RP_OK && saved)
        *saved = s;
    else
        rp_layer_saved_free(s);
    return status;
}

rp_status rp_layer_biases(const rp_layer *layer, int64_t q_offset, const rp_array *bias)
{
    rp_layer_saved s = {.batch = 1};
    rp_layer_call call = rp_layer_call_init();
    layers_attention a;
    rp_plan *plan;
    if (!layer || !bias)
        return layers_fail(RP_E_ARG, "layer or bias is NULL; pass both");
    const int64_t shape[4] = {1, layer->d.heads, bias->shape[2], bias->shape[3]};
    rp_status status = layers_check_array("bias", bias, layer->d.dtype, 4, shape);
    if (status != RP_OK)
        return status;
    s.len_q = shape[2];
    s.len_k = shape[3];
    call.q_offset = q_offset;
    layers_attention_of(&a, layer, &call, &s);
    a.t.q.data = a.t.k.data = a.t.v.data = a.t.out.data = NULL;
    a.desc.n_masks = 0;
    const rp_array to = rp_array_of(bias->data, layer->d.dtype, 3, shape + 1);
    status = rp_plan_create(&plan, &a.desc);
    if (status == RP_OK)
        status = rp_bias(plan, &a.t, 0, &to);
    rp_plan_destroy(plan);
    return status == RP_OK ? RP_OK : layers_core_failed(status, &a.desc);
}
