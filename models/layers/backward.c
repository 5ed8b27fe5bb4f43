/* backward.c -- the gradients of a layer.
 * SPDX-License-Identifier: Apache-2.0 */
#include "layers/layer.h"
#include <stdlib.h>
#include <string.h>

rp_layer_grads rp_layer_grads_init(void)
{
    rp_layer_grads g;
    memset(&g, 0, sizeof g);
    g.size = sizeof g;
    return g;
}

/* Gradients of q, k, v and the output of attention, and of the arrays of terms that are weights. */
typedef struct scratch {
    void *data[LAYERS_ARRAYS];
    void *term[2 * RP_LAYER_TERMS][RP_MAX_ARRAYS];
    void *dweights; /* the gradient of a mean of weights, divided by the number of heads */
} scratch;

static void free_scratch(scratch *s)
{
    for (int x = 0; x < LAYERS_ARRAYS; x++)
        free(s->data[x]);
    for (int t = 0; t < 2 * RP_LAYER_TERMS; t++)
        for (int x = 0; x < RP_MAX_ARRAYS; x++)
            free(s->term[t][x]);
    free(s->dweights);
}

static rp_status check_gradient(const char *name, const rp_layer *l, const rp_array *g, const rp_array *of)
{
    if (!g->ndim)
        return RP_OK;
    if (!of->ndim)
        return layers_fail(RP_E_ARG,
                           "%s is the gradient of an array that the call does not have; its part is in the "
                           "gradient of the array in its place",
                           name);
    return layers_check_array(name, g, l->d.dtype, 3, of->shape);
}

/* Check that the outputs have no memory in common with other arrays. */
static rp_status check_apart(const rp_layer_call *c, const rp_layer_grads *g)
{
    const struct {
        const char *name;
        const rp_array *a;
    } outputs[] = {{"dquery", &g->dquery}, {"dkey", &g->dkey}, {"dvalue", &g->dvalue}};
    rp_status status = RP_OK;
    for (int x = 0; x < 3 && status == RP_OK; x++) {
        status = layers_check_output(outputs[x].name, outputs[x].a, c);
        if (status == RP_OK)
            status = layers_check_apart(outputs[x].name, outputs[x].a, "dout", &g->dout);
        if (status == RP_OK)
            status = layers_check_apart(outputs[x].name, outputs[x].a, "out", &c->out);
        if (status == RP_OK)
            status = layers_check_apart(outputs[x].name, outputs[x].a, "dweights", &g->dweights);
        for (int y = 0; y < x && status == RP_OK; y++)
            status = layers_check_apart(outputs[x].name, outputs[x].a, outputs[y].name, outputs[y].a);
    }
    return status;
}

static rp_status check(const rp_layer *l, const rp_layer_call *c, const rp_layer_saved *s, const rp_layer_grads *g,
                       rp_layer_saved *sizes)
{
    rp_status status = layers_check_call(l, c, sizes);
    if (status != RP_OK)
        return status;
    if (!s || !g || g->size != sizeof *g)
        return layers_fail(RP_E_ARG, "saved or g is NULL, or g of another version; start from rp_layer_grads_init");
    if (s->layer != l)
        return layers_fail(RP_E_ARG, "saved belongs to another layer; pass the result of rp_layer_forward of this one");
    if (s->batch != sizes->batch || s->len_q != sizes->len_q || s->len_k != sizes->len_k || c->cache)
        return layers_fail(RP_E_ARG, "saved belongs to a call with other sizes; pass the call of rp_layer_forward");
    const int64_t shape[3] = {s->batch, s->len_q, l->d.out_width};
    if ((status = layers_check_weights("dweights", l, s, &g->dweights)) != RP_OK)
        return status;
    if ((status = layers_check_array("dout", &g->dout, l->d.dtype, 3, shape)) != RP_OK ||
        (status = check_gradient("dquery", l, &g->dquery, &c->query)) != RP_OK ||
        (status = check_gradient("dkey", l, &g->dkey, &c->key)) != RP_OK)
        return status;
    if ((status = check_gradient("dvalue", l, &g->dvalue, &c->value)) != RP_OK ||
        (status = layers_check_terms(l, c, g->term)) != RP_OK)
        return status;
    return check_apart(c, g);
}

/* Set the gradients of the arrays of a layer's terms: scratch memory for its weights, arrays of g for those of the
 * call. `first` is the index of its first term. */
static bool place_terms(const rp_layer *l, int32_t first, const rp_layer_grads *g, scratch *s, rp_grads *to)
{
    for (int32_t t = 0; t < l->d.n_terms; t++)
        for (int32_t x = 0; x < RP_MAX_ARRAYS; x++) {
            to->term[first + t][x] = g->term[first + t][x];
            if (l->term_param[t][x] < 0)
                continue;
            void *memory = calloc((size_t)l->params[l->term_param[t][x]].n + 1, l->ops->size);
            if (!memory)
                return false;
            s->term[first + t][x] = memory;
            to->term[first + t][x] = l->term[t][x];
            to->term[first + t][x].data = memory;
        }
    return true;
}

static void add_terms(rp_layer *l, int32_t first, const scratch *s)
{
    for (int32_t t = 0; t < l->d.n_terms; t++)
        for (int32_t x = 0; x < RP_MAX_ARRAYS; x++)
            if (l->term_param[t][x] >= 0) {
                const rp_layer_param *p = &l->params[l->term_param[t][x]];
                l->ops->add(p->n, 1, s->term[first + t][x], p->grad);
            }
}

/* Set the gradient of the weights: an array of the caller, or for the mean over the heads, a copy of it divided by
 * their number, which all heads share. */
static bool place_dweights(const rp_layer *l, const rp_array *given, scratch *d, rp_grads *to)
{
    to->dweights = *given;
    if (given->ndim != 3)
        return true;
    const int64_t n = layers_count(3, given->shape);
    const int64_t shape[4] = {given->shape[0], l->d.heads, given->shape[1], given->shape[2]};
    d->dweights = calloc((size_t)n + 1, l->ops->size);
    if (!d->dweights)
        return false;
    l->ops->add(n, 1.0 / (double)l->d.heads, given->data, d->dweights);
    to->dweights = rp_array_of(d->dweights, l->d.dtype, 4, shape);
    to->dweights.stride[0] = given->shape[1] * given->shape[2];
    to->dweights.stride[1] = 0;
    return true;
}

/* Compute the gradients of q, k, v and of the terms from that of the output of attention. */
static rp_status attend_back(rp_layer *l, const rp_layer_call *c, const rp_layer_saved *s, const rp_layer_grads *given,
                             scratch *d)
{
    layers_attention a;
    rp_grads g = rp_grads_init();
    rp_plan *plan;
    layers_attention_of(&a, l, c, s);
    g.dout = layers_heads(l, d->data[LAYERS_OUT], s->batch, l->d.heads, s->len_q, l->d.dim_v, s->len_q);
    g.dq = layers_heads(l, d->data[LAYERS_Q], s->batch, l->d.heads, s->len_q, l->d.dim_k, s->len_q);
    g.dk = layers_heads(l, d->data[LAYERS_K], s->batch, l->d.kv_heads, s->len_k, l->d.dim_k, s->len_k);
    g.dv = layers_heads(l, d->data[LAYERS_V], s->batch, l->d.kv_heads, s->len_k, l->d.dim_v, s->len_k);
    if (!place_dweights(l, &given->dweights, d, &g) || !place_terms(l, 0, given, d, &g) ||
        (c->terms_of && !place_terms(c->terms_of, l->d.n_terms, given, d, &g)))
        return layers_no_memory("gradients of terms");
    rp_status status = rp_plan_create(&plan, &a.desc);
    if (status == RP_OK)
        status = rp_backward(plan, &a.t, &g, NULL);
    rp_plan_destroy(plan);
    return status == RP_OK ? RP_OK : layers_core_failed(status, &a.desc);
}

/* Compute the gradient of the input of a projection, which is added to dx if `add`. Without weights it is dy. */
static void input_back(const rp_layer *l, const rp_layer_call *c, int which, int64_t rows, const void *dy, bool add,
                       void *dx)
{
    const void *w = layers_at(l, l->weight[which]);
    const int64_t n = rows * l->out[which];
    if (w)
        l->ops->project_dx(c->pool, rows, l->in[which], l->out[which], dy, w, l->d.transposed, add, dx);
    else if (add)
        l->ops->add(n, 1, dy, dx);
    else if (n > 0)
        memcpy(dx, dy, (size_t)n * l->ops->size);
}

/* Add the gradients of the weights of a projection. */
static void weights_back(rp_layer *l, const rp_layer_call *c, int which, int64_t rows, const void *x, const void *dy)
{
    if (l->d.weight[which])
        l->ops->project_dw(c->pool, rows, l->in[which], l->out[which], x, dy, l->d.transposed,
                           layers_grad_at(l, l->weight[which]), layers_grad_at(l, l->bias[which]));
}

/* Compute the gradients of a projection: those of its weights, and that of its input unless dx is NULL. */
static void project_back(rp_layer *l, const rp_layer_call *c, int which, int64_t rows, const void *x, const void *dy,
                         bool add, void *dx)
{
    weights_back(l, c, which, rows, x, dy);
    if (dx)
        input_back(l, c, which, rows, dy, add, dx);
}

static bool place(const rp_layer *l, const rp_layer_saved *s, scratch *d)
{
    const int64_t n[] = {s->batch * s->len_q * l->out[RP_Q], s->batch * s->len_k * l->out[RP_K],
                         s->batch * s->len_k * l->out[RP_V], s->batch * s->len_q * l->in[RP_O]};
    for (int x = LAYERS_Q; x <= LAYERS_OUT; x++)
        if (!(d->data[x] = calloc((size_t)n[x] + 1, l->ops->size)))
            return false;
    return true;
}

rp_status rp_layer_backward(rp_layer *layer, const rp_layer_call *call, const rp_layer_saved *saved,
                            const rp_layer_grads *g)
{
    rp_layer *l = layer;
    rp_layer_saved sizes = {0};
    scratch d = {{0}, {{0}}, NULL};
    rp_status status = check(l, call, saved, g, &sizes);
    if (status != RP_OK)
        return status;
    if (!place(l, saved, &d)) {
        free_scratch(&d);
        return layers_no_memory("the gradients of a layer");
    }
    const int64_t rows_q = saved->batch * saved->len_q, rows_k = saved->batch * saved->len_k;
    input_back(l, call, RP_O, rows_q, g->dout.data, false, d.data[LAYERS_OUT]);
    status = attend_back(l, call, saved, g, &d);
    if (status == RP_OK) { /* nothing has been added to the gradients of weights before */
        const rp_array *key = layers_key_of(call), *value = layers_value_of(call);
        void *dquery = g->dquery.data, *dkey = call->key.ndim ? g->dkey.data : dquery;
        void *dvalue = call->value.ndim ? g->dvalue.data : dkey;
        weights_back(l, call, RP_O, rows_q, saved->data[LAYERS_OUT], g->dout.data);
        project_back(l, call, RP_Q, rows_q, call->query.data, d.data[LAYERS_Q], false, dquery);
        project_back(l, call, RP_K, rows_k, key->data, d.data[LAYERS_K], !call->key.ndim, dkey);
        project_back(l, call, RP_V, rows_k, value->data, d.data[LAYERS_V], !call->value.ndim, dvalue);
        add_terms(l, 0, &d);
        if (call->terms_of)
            add_terms(call->terms_of, l->d.n_terms, &d);
    }
    free_scratch(&d);
    return status;
}
