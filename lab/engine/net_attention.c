/* net_attention.c -- attention layers, forward and backward: self-attention of a stack, with its position terms, and
 * cross-attention, without terms. The nn_source of each array says how to get it, so no code is specific to one kind of
 * term.
 * SPDX-License-Identifier: Apache-2.0 */
#include "lab/engine/net_layers.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Return a view [batch, heads, length, width] of rows that are `ld` numbers apart. In each row, a head has `width`
 * adjacent channels. */
static rp_array heads_view(const nn_net *n, real *data, int64_t heads, int64_t length, int64_t width, int64_t ld)
{
    const int64_t shape[4] = {n->batch, heads, length, width};
    rp_array a = rp_array_of(data, LAYERS_REAL, 4, shape);
    a.stride[0] = length * ld;
    a.stride[1] = width;
    a.stride[2] = ld;
    return a;
}

int64_t nn_before(const nn_net *n, int32_t stack)
{
    return n->m->stack[stack].causal ? n->cached : 0;
}

int64_t nn_offsets(const nn_net *n, int32_t stack)
{
    return nn_before(n, stack) + 2 * n->of[stack].length - 1;
}

/* Return the number of keys in the current call, including cached ones. */
static int64_t keys_of(const nn_net *n, const node *e)
{
    return nn_before(n, e->stack) + n->of[e->stack].length;
}

/* Get the arrays of the terms; with `gradients`, get the arrays of their gradients. Gradients of parameters and gates
 * are stored consecutively in scratch. */
static void term_arrays(nn_net *n, const node *e, real *qkv, real *r, bool gradients, rp_array to[][RP_MAX_ARRAYS])
{
    const nn_model *m = n->m;
    const nn_stack *s = nn_stack_of(n, e);
    const int64_t d = m->c.width, heads = m->c.heads, length = n->of[e->stack].length, rows = n->batch * length;
    real *scratch = n->scratch;
    for (int32_t t = 0; t < e->n_terms; t++)
        for (int x = 0; x < RP_MAX_ARRAYS; x++)
            if (s->terms[t].source[x] == NN_LEARNED) {
                const nn_param *p = &m->params[e->array[t][x]];
                to[t][x] = rp_array_of(gradients ? scratch : m->w + p->offset, LAYERS_REAL, p->ndim, p->shape);
                if (gradients)
                    scratch += p->size;
            } else if (s->terms[t].source[x] == NN_SINUSOID) {
                const int64_t shape[3] = {heads, nn_offsets(n, e->stack), d / heads};
                to[t][x] = rp_array_of(r, LAYERS_REAL, 3, shape);
                to[t][x].stride[0] = d / heads;
                to[t][x].stride[1] = d;
            } else if (s->terms[t].source[x] == NN_GATE) {
                const int64_t shape[3] = {n->batch, heads, keys_of(n, e)}, step = nn_cache_rows(n, e);
                to[t][x] = rp_array_of(gradients ? scratch : e->gate, LAYERS_REAL, 3, shape);
                if (gradients) {
                    scratch += rows * heads;
                    continue;
                }
                to[t][x].stride[0] = heads * step;
                to[t][x].stride[1] = step;
            } else if (s->terms[t].source[x] == NN_QUERIES && !gradients) {
                to[t][x] = rp_array_of(n->of[e->stack].positions + nn_before(n, e->stack), RP_I64, 1, &length);
            } else if (s->terms[t].source[x] == NN_KEYS && !gradients) {
                const int64_t keys = keys_of(n, e);
                to[t][x] = rp_array_of(n->of[e->stack].positions, RP_I64, 1, &keys);
            } else if (s->terms[t].source[x] == NN_COLUMNS) {
                const int64_t width = s->terms[t].term.width, column = s->terms[t].column[x];
                to[t][x] = gradients ? heads_view(n, qkv + rows * column, heads, length, width, heads * width)
                                     : heads_view(n, qkv + column, heads, length, width, n->slots[e->in].width);
            }
}

rp_desc nn_model_attention(const nn_model *m, int32_t stack, int64_t batch, int64_t len_q, int64_t len_k,
                           rp_term terms[RP_MAX_TERMS], rp_mask *mask)
{
    const nn_stack *s = &m->stack[stack];
    rp_desc desc = rp_desc_init(batch, m->c.heads, len_q, len_k, m->c.width / m->c.heads);
    for (int32_t x = 0; x < s->n_terms; x++)
        terms[x] = s->terms[x].term;
    *mask = (rp_mask){.kind = s->causal ? RP_MASK_CAUSAL : RP_MASK_LENGTHS};
    desc.terms = terms;
    desc.n_terms = s->n_terms;
    desc.masks = mask;
    desc.n_masks = s->causal || s->padded;
    desc.dtype = LAYERS_REAL;
    desc.scale = m->c.scale > 0 ? m->c.scale : RP_SCALE_AUTO;
    return desc;
}

rp_desc nn_layer_desc(const nn_net *n, const node *e, rp_term terms[RP_MAX_TERMS], rp_mask *mask)
{
    const bool cross = e->kind == CROSS;
    const int64_t length = n->of[e->stack].length, before = cross ? 0 : nn_before(n, e->stack);
    const int64_t keys = cross ? n->of[0].length : before + length;
    rp_desc desc = nn_model_attention(n->m, e->stack, n->batch, length, keys, terms, mask);
    desc.n_terms = cross ? 0 : nn_layer_terms(n->m, e->stack, e->layer, terms);
    if (cross)
        *mask = (rp_mask){.kind = RP_MASK_LENGTHS};
    desc.q_offset = before;
    desc.dropout = nn_dropout(n);
    desc.seed = nn_seed(n, e);
    return desc;
}

/* Create a plan for a call, and enlarge n->work if necessary. */
static int make_plan(nn_net *n, rp_desc desc, bool backward, rp_plan **plan)
{
    if (rp_plan_create(plan, &desc) != RP_OK)
        return nn_fail(n->err, "position: %s", NN_WORDS(&desc));
    const size_t size = backward ? rp_plan_backward_size(*plan, n->pool) : rp_plan_work_size(*plan, n->pool);
    if (size == 0) {
        rp_plan_destroy(*plan);
        return nn_fail(n->err, "position: %s", NN_WORDS(&desc));
    }
    if (size <= n->work_size)
        return 0;
    free(n->work);
    n->work = aligned_alloc(64, (size + 63) / 64 * 64);
    n->work_size = n->work ? size : 0;
    if (n->work)
        return 0;
    rp_plan_destroy(*plan);
    return nn_fail(
        n->err,
        "lab: out of memory while creating %zu bytes of scratch memory for attention (use a smaller batch or length)",
        size);
}

/* ------------------------------------------------------------------------------------ factors of queries, and gates */

typedef struct heads_job {
    const nn_net *n;
    const node *e;
    const real *from; /* gradients of the gates, or NULL */
    real *to;
    int32_t bias;   /* index of the gates' bias parameter */
    int64_t column; /* first column of the gates in the projection */
} heads_job;

/* Return the factor by which the query of token i is multiplied. */
static real factor_of(const nn_net *n, const node *e, int64_t h, int64_t i)
{
    const double s = e->param[1] >= 0 ? (double)nn_weight(n, e->param[1])[h] : 1 / log((double)n->m->c.length);
    return (real)(s * log((double)(nn_before(n, e->stack) + i + 1)));
}

static void scale_head(void *context, int64_t h, int32_t worker)
{
    const heads_job *j = context;
    const nn_net *n = j->n;
    const int64_t d = n->m->c.width, D = d / n->m->c.heads, length = n->of[j->e->stack].length;
    const int64_t ld = n->slots[j->e->in].width;
    const real *q = n->slots[j->e->in].data + h * D;
    (void)worker;
    for (int64_t r = 0; r < n->batch * length; r++) {
        const real x = factor_of(n, j->e, h, r % length);
        for (int64_t c = 0; c < D; c++)
            n->scaled[r * d + h * D + c] = x * q[r * ld + c];
    }
}

/* Convert the gradient of the scaled queries to the gradient of the queries, in place. Also add to the gradient of the
 * head's factor. */
static void unscale_head(void *context, int64_t h, int32_t worker)
{
    const heads_job *j = context;
    const nn_net *n = j->n;
    const int64_t d = n->m->c.width, D = d / n->m->c.heads, length = n->of[j->e->stack].length;
    const int64_t ld = n->slots[j->e->in].width;
    const real *q = n->slots[j->e->in].data + h * D;
    double sum = 0;
    (void)worker;
    for (int64_t r = 0; r < n->batch * length; r++) {
        const real x = factor_of(n, j->e, h, r % length);
        real *g = j->to + r * d + h * D;
        double product = 0;
        for (int64_t c = 0; c < D; c++) {
            product += (double)g[c] * (double)q[r * ld + c];
            g[c] *= x;
        }
        sum += product * log((double)(nn_before(n, j->e->stack) + r % length + 1));
    }
    if (j->e->param[1] >= 0)
        nn_gradient(n, j->e->param[1])[h] += (real)sum;
}

/* Compute the logarithms of the gates, log sigmoid(y + bias). */
static void gate_head(void *context, int64_t h, int32_t worker)
{
    const heads_job *j = context;
    const nn_net *n = j->n;
    const int64_t heads = n->m->c.heads, length = n->of[j->e->stack].length, step = nn_cache_rows(n, j->e);
    const int64_t ld = n->slots[j->e->in].width;
    const real *y = n->slots[j->e->in].data + j->column + h, bias = nn_weight(n, j->bias)[h];
    (void)worker;
    for (int64_t r = 0; r < n->batch * length; r++) {
        const double x = (double)(y[r * ld] + bias);
        const int64_t at = (r / length * heads + h) * step + nn_before(n, j->e->stack) + r % length;
        j->e->gate[at] = (real)(fmin(x, 0) - log1p(exp(-fabs(x))));
    }
}

/* Compute the gradients of y and of the bias: the gradients of the log gates times 1 - sigmoid(y + bias). */
static void ungate_head(void *context, int64_t h, int32_t worker)
{
    const heads_job *j = context;
    const nn_net *n = j->n;
    const int64_t heads = n->m->c.heads, length = n->of[j->e->stack].length, step = nn_cache_rows(n, j->e);
    double sum = 0;
    (void)worker;
    for (int64_t r = 0; r < n->batch * length; r++) {
        const int64_t of_head = r / length * heads + h;
        const double g =
            -expm1((double)j->e->gate[of_head * step + r % length]) * (double)j->from[of_head * length + r % length];
        j->to[r * heads + h] = (real)g;
        sum += g;
    }
    nn_gradient(n, j->bias)[h] += (real)sum;
}

static rp_array lengths_of(const nn_net *n, int32_t stack)
{
    return rp_array_of(n->of[stack].lengths, RP_I32, 1, &n->batch);
}

int nn_attention_call(nn_net *n, const node *e, rp_plan **plan, rp_tensors *t, rp_grads *g)
{
    const nn_model *m = n->m;
    const int64_t length = n->of[e->stack].length, keys = keys_of(n, e);
    const int64_t d = m->c.width, heads = m->c.heads, D = d / heads, ld = n->slots[e->in].width;
    const slot *in = &n->slots[e->in], *out = &n->slots[e->out];
    const int64_t shape[3] = {n->batch, heads, length};
    rp_term terms[RP_MAX_TERMS];
    rp_mask mask;
    if (make_plan(n, nn_layer_desc(n, e, terms, &mask), g != NULL, plan) != 0)
        return -1;
    *t = rp_tensors_init();
    if (nn_stack_of(n, e)->padded)
        t->mask[0] = lengths_of(n, e->stack);
    t->q = heads_view(n, in->data, heads, length, D, ld);
    if (m->c.log_scale != NN_LOG_NONE) {
        rp_pool_run(n->pool, heads, scale_head, &(heads_job){.n = n, .e = e});
        t->q = heads_view(n, n->scaled, heads, length, D, d);
    }
    if (e->cache) {
        t->k = heads_view(n, e->cache, heads, keys, D, 2 * d);
        t->v = heads_view(n, e->cache + d, heads, keys, D, 2 * d);
        t->k.stride[0] = t->v.stride[0] = nn_cache_rows(n, e) * 2 * d;
    } else {
        t->k = heads_view(n, in->data + d, heads, keys, D, ld);
        t->v = heads_view(n, in->data + 2 * d, heads, keys, D, ld);
    }
    t->out = heads_view(n, out->data, heads, length, D, d);
    if (n->train)
        t->lse = rp_array_of(e->aux, LAYERS_REAL, 3, shape);
    term_arrays(n, e, in->data, e->r, false, t->term);
    t->pool = n->pool;
    if (g) {
        real *dqkv = nn_grad(n, e->in);
        const int64_t all = n->batch * length * d;
        *g = rp_grads_init();
        g->dout = heads_view(n, nn_grad(n, e->out), heads, length, D, d);
        g->dq = heads_view(n, dqkv, heads, length, D, d);
        g->dk = heads_view(n, dqkv + all, heads, length, D, d);
        g->dv = heads_view(n, dqkv + 2 * all, heads, length, D, d);
        term_arrays(n, e, dqkv, n->scratch + n->n_scratch, true, g->term);
    }
    return 0;
}

bool nn_uses_sinusoids(const nn_stack *s, const node *e, int32_t *param)
{
    for (int32_t t = 0; t < (e ? e->n_terms : s->n_terms); t++)
        for (int x = 0; x < RP_MAX_ARRAYS; x++)
            if (s->terms[t].source[x] == NN_SINUSOID) {
                *param = e ? e->array[t][x] : -1;
                return true;
            }
    return false;
}

int nn_attention_forward(nn_net *n, const node *e)
{
    const sequence *q = &n->of[e->stack];
    const int64_t d = n->m->c.width, ld = n->slots[e->in].width;
    rp_plan *plan;
    rp_tensors t;
    int32_t param;
    if (nn_uses_sinusoids(nn_stack_of(n, e), e, &param))
        layers_linear(n->pool, nn_offsets(n, e->stack), d, d, q->sinusoids, d, nn_weight(n, param), e->r, d);
    for (int64_t r = 0; r < n->batch * q->length && e->cache; r++) {
        const int64_t to = r / q->length * nn_cache_rows(n, e) + n->cached + r % q->length;
        memcpy(e->cache + to * 2 * d, n->slots[e->in].data + r * ld + d, 2 * (size_t)d * sizeof(real));
    }
    const nn_stack *s = nn_stack_of(n, e);
    for (int32_t x = 0; x < e->n_terms; x++)
        for (int y = 0; y < RP_MAX_ARRAYS; y++)
            if (s->terms[x].source[y] == NN_GATE)
                rp_pool_run(n->pool, n->m->c.heads, gate_head,
                            &(heads_job){.n = n, .e = e, .bias = e->array[x][y], .column = s->terms[x].column[y]});
    if (nn_attention_call(n, e, &plan, &t, NULL) != 0)
        return -1;
    const rp_status status = rp_attend(plan, &t, n->work);
    rp_plan_destroy(plan);
    return status == RP_OK ? 0 : nn_fail(n->err, "attention of layer %d: %s", (int)e->layer, NN_WORDS(NULL));
}

/* Add the gradients of c and L of fire. t and g are the arguments of the layer's backward call. */
static int scales_backward(nn_net *n, const node *e, const rp_tensors *t, const rp_grads *g)
{
    rp_term terms[RP_MAX_TERMS];
    rp_mask mask;
    rp_plan *plan;
    rp_desc desc = nn_layer_desc(n, e, terms, &mask);
    if (nn_add_pairs(&desc, terms, n->err) != 0 || make_plan(n, desc, true, &plan) != 0)
        return -1;
    const int code = nn_fire_backward(n, e, plan, t, g);
    rp_plan_destroy(plan);
    return code;
}

int nn_attention_backward(nn_net *n, const node *e)
{
    const nn_model *m = n->m;
    const nn_stack *s = nn_stack_of(n, e);
    const int64_t d = m->c.width, rows = n->batch * n->of[e->stack].length;
    rp_plan *plan;
    rp_tensors t;
    rp_grads g;
    int32_t param;
    if (nn_attention_call(n, e, &plan, &t, &g) != 0)
        return -1;
    const rp_status status = rp_backward(plan, &t, &g, n->work);
    rp_plan_destroy(plan);
    if (status != RP_OK)
        return nn_fail(n->err, "attention of layer %d, backward: %s", (int)e->layer, NN_WORDS(NULL));
    const real *scratch = n->scratch;
    for (int32_t x = 0; x < e->n_terms; x++)
        for (int y = 0; y < RP_MAX_ARRAYS; y++)
            if (s->terms[x].source[y] == NN_LEARNED) {
                const nn_param *p = &m->params[e->array[x][y]];
                layers_axpy(n->pool, p->size, scratch, m->g + p->offset);
                scratch += p->size;
            } else if (s->terms[x].source[y] == NN_GATE) {
                real *to = nn_grad(n, e->in) + rows * s->terms[x].column[y];
                rp_pool_run(n->pool, m->c.heads, ungate_head,
                            &(heads_job){.n = n, .e = e, .from = scratch, .to = to, .bias = e->array[x][y]});
                scratch += rows * m->c.heads;
            }
    if (nn_has_fire_scales(n, e) && scales_backward(n, e, &t, &g) != 0)
        return -1;
    if (m->c.log_scale != NN_LOG_NONE)
        rp_pool_run(n->pool, m->c.heads, unscale_head, &(heads_job){.n = n, .e = e, .to = nn_grad(n, e->in)});
    if (nn_uses_sinusoids(s, e, &param))
        layers_linear_dw(n->pool, nn_offsets(n, e->stack), d, d, n->scratch + n->n_scratch, d,
                         n->of[e->stack].sinusoids, d, nn_gradient(n, param));
    return 0;
}

/* ------------------------------------------------------------------------------------------------ cross-attention */

/* Get the plan and the arrays of cross-attention. Queries are rows of `in`. Each row of `in2`, computed from the output
 * of the encoder, has a key followed by a value. */
static int cross_call(nn_net *n, const node *e, rp_plan **plan, rp_tensors *t, rp_grads *g)
{
    const int64_t length = n->of[e->stack].length, keys = n->of[0].length, d = n->m->c.width, heads = n->m->c.heads;
    const int64_t D = d / heads, shape[3] = {n->batch, heads, length};
    real *kv = n->slots[e->in2].data;
    rp_term terms[RP_MAX_TERMS];
    rp_mask mask;
    if (make_plan(n, nn_layer_desc(n, e, terms, &mask), g != NULL, plan) != 0)
        return -1;
    *t = rp_tensors_init();
    t->q = heads_view(n, n->slots[e->in].data, heads, length, D, d);
    t->k = heads_view(n, kv, heads, keys, D, 2 * d);
    t->v = heads_view(n, kv + d, heads, keys, D, 2 * d);
    t->out = heads_view(n, n->slots[e->out].data, heads, length, D, d);
    t->mask[0] = lengths_of(n, 0);
    t->pool = n->pool;
    if (n->train)
        t->lse = rp_array_of(e->aux, LAYERS_REAL, 3, shape);
    if (g) {
        real *dkv = nn_grad(n, e->in2);
        *g = rp_grads_init();
        g->dout = heads_view(n, nn_grad(n, e->out), heads, length, D, d);
        g->dq = heads_view(n, nn_grad(n, e->in), heads, length, D, d);
        g->dk = heads_view(n, dkv, heads, keys, D, d);
        g->dv = heads_view(n, dkv + n->batch * keys * d, heads, keys, D, d);
    }
    return 0;
}

int nn_cross_forward(nn_net *n, const node *e)
{
    rp_plan *plan;
    rp_tensors t;
    if (cross_call(n, e, &plan, &t, NULL) != 0)
        return -1;
    const rp_status status = rp_attend(plan, &t, n->work);
    rp_plan_destroy(plan);
    return status == RP_OK ? 0 : nn_fail(n->err, "cross-attention of layer %d: %s", (int)e->layer, NN_WORDS(NULL));
}

int nn_cross_backward(nn_net *n, const node *e)
{
    rp_plan *plan;
    rp_tensors t;
    rp_grads g;
    if (cross_call(n, e, &plan, &t, &g) != 0)
        return -1;
    const rp_status status = rp_backward(plan, &t, &g, n->work);
    rp_plan_destroy(plan);
    return status == RP_OK
               ? 0
               : nn_fail(n->err, "cross-attention of layer %d, backward: %s", (int)e->layer, NN_WORDS(NULL));
}
