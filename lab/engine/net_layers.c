/* net_layers.c -- the layers of a net, forward and backward: embedding, norm, linear, activation, addition, pooling, attention and the
 * head with its loss. A layer is a line of nn_kinds, at the end. This file knows the operator's arrays, and of position terms only where
 * their arrays come from (nn_source); it does not know what the list of layers is.
 * SPDX-License-Identifier: Apache-2.0 */
#include "lab/engine/net_layers.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

static int64_t rows_of(const nn_net *n, const slot *s)
{
    return n->batch * (s->pooled ? 1 : n->of[s->stack].length);
}

static const nn_stack *stack_of(const nn_net *n, const node *e)
{
    return &n->m->stack[e->stack];
}

static real *weight(const nn_net *n, int32_t param)
{
    return param < 0 ? NULL : n->m->w + n->m->params[param].offset;
}

static real *gradient(const nn_net *n, int32_t param)
{
    return param < 0 ? NULL : n->m->g + n->m->params[param].offset;
}

static real *grad_of(const nn_net *n, int32_t s)
{
    return n->buffer[n->slots[s].grad];
}

/* ------------------------------------------------------------------------------------------------ embedding */

double nn_sinusoid(double position, int64_t c, int64_t width)
{
    const double angle = position * pow(10000, -2.0 * (double)(c / 2) / (double)width); /* Vaswani 2017, section 3.5 */
    return c % 2 ? cos(angle) : sin(angle);
}

typedef struct embed_job {
    const nn_net *n;
    const node *e;
} embed_job;

static void embed_rows(void *context, int64_t t, int32_t worker)
{
    const embed_job *j = context;
    const nn_net *n = j->n;
    const node *e = j->e;
    const sequence *q = &n->of[e->stack];
    const bool sinusoidal = stack_of(n, e)->sinusoidal;
    const int64_t d = n->m->c.width, rows = n->batch * q->length, before = nn_before(n, e->stack);
    const real *table = weight(n, e->param[0]), *positions = weight(n, e->param[1]);
    (void)worker;
    for (int64_t r = t * NN_ROWS; r < rows && r < (t + 1) * NN_ROWS; r++) {
        const int64_t at = before + r % q->length;
        const real *from = table + q->tokens[r] * d;
        real *to = n->slots[e->out].data + r * d;
        for (int64_t c = 0; c < d; c++)
            to[c] = from[c] + (positions ? positions[at * d + c] : 0);
        for (int64_t c = 0; c < d && sinusoidal; c++) /* as small as embeddings begin */
            to[c] += (real)(0.02 * nn_sinusoid((double)at, c, d));
    }
}

static int embed_forward(nn_net *n, const node *e)
{
    embed_job j = {n, e};
    return rp_pool_run(n->pool, (rows_of(n, &n->slots[e->out]) + NN_ROWS - 1) / NN_ROWS, embed_rows, &j) == RP_OK ? 0
                                                                                                                  : -1;
}

/* Several tokens add to the same row of the table. So a task has a range of channels and adds all tokens in order. */
static void embed_channels(void *context, int64_t t, int32_t worker)
{
    const embed_job *j = context;
    const nn_net *n = j->n;
    const node *e = j->e;
    const sequence *q = &n->of[e->stack];
    const int64_t d = n->m->c.width, rows = n->batch * q->length, from = t * NN_ROWS;
    const int64_t to = from + NN_ROWS < d ? from + NN_ROWS : d;
    real *table = gradient(n, e->param[0]), *positions = gradient(n, e->param[1]);
    const real *dy = grad_of(n, e->out);
    (void)worker;
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = from; c < to; c++) {
            table[q->tokens[r] * d + c] += dy[r * d + c];
            if (positions)
                positions[r % q->length * d + c] += dy[r * d + c];
        }
}

static int embed_backward(nn_net *n, const node *e)
{
    embed_job j = {n, e};
    return rp_pool_run(n->pool, (n->m->c.width + NN_ROWS - 1) / NN_ROWS, embed_channels, &j) == RP_OK ? 0 : -1;
}

/* ------------------------------------------------------------------------------------------------ norm, linear, act, add, pool */

static int norm_forward(nn_net *n, const node *e)
{
    const slot *in = &n->slots[e->in];
    nn_norm_forward(n->pool, n->m->c.norm, rows_of(n, in), in->width, in->data, weight(n, e->param[0]),
                    weight(n, e->param[1]), n->slots[e->out].data, e->aux);
    return 0;
}

static int norm_backward(nn_net *n, const node *e)
{
    const slot *in = &n->slots[e->in];
    nn_norm_backward(n->pool, n->m->c.norm, rows_of(n, in), in->width, in->data, weight(n, e->param[0]), e->aux,
                     grad_of(n, e->out), e->add, grad_of(n, e->in), gradient(n, e->param[0]), gradient(n, e->param[1]),
                     n->partial);
    return 0;
}

static int linear_forward(nn_net *n, const node *e)
{
    const slot *in = &n->slots[e->in], *out = &n->slots[e->out];
    nn_linear(n->pool, rows_of(n, in), in->width, out->width, in->data, in->width, weight(n, e->param[0]), out->data,
              out->width);
    return 0;
}

static int linear_backward(nn_net *n, const node *e)
{
    const slot *in = &n->slots[e->in], *out = &n->slots[e->out];
    const int64_t rows = rows_of(n, in), d = in->width;
    for (int32_t p = 0, first = 0; p < out->n_splits; first += (int32_t)out->split[p++]) {
        const real *dy = grad_of(n, e->out) + rows * first;
        const int64_t width = out->split[p];
        nn_linear_dw(n->pool, rows, d, width, dy, width, in->data, d, gradient(n, e->param[0]) + first * d);
        nn_linear_dx(n->pool, rows, d, width, dy, width, weight(n, e->param[0]) + first * d, p > 0, grad_of(n, e->in),
                     d);
    }
    return 0;
}

static int act_forward(nn_net *n, const node *e)
{
    const slot *out = &n->slots[e->out];
    nn_act_forward(n->pool, n->m->c.act, rows_of(n, out), out->width, n->slots[e->in].data, out->data);
    return 0;
}

static int act_backward(nn_net *n, const node *e)
{
    const slot *out = &n->slots[e->out];
    nn_act_backward(n->pool, n->m->c.act, rows_of(n, out), out->width, n->slots[e->in].data, grad_of(n, e->out),
                    grad_of(n, e->in));
    return 0;
}

static double dropout_of(const nn_net *n)
{
    return n->seed ? n->m->c.dropout : 0;
}

/* Each layer with dropout has a seed of its own. */
static uint64_t seed_of(const nn_net *n, const node *e)
{
    return nn_random(n->seed, (uint64_t)(e - n->nodes), 0);
}

static int add_forward(nn_net *n, const node *e)
{
    const slot *out = &n->slots[e->out];
    nn_add_forward(n->pool, rows_of(n, out), out->width, n->slots[e->in].data, n->slots[e->in2].data, dropout_of(n),
                   seed_of(n, e), out->data);
    return 0;
}

static int add_backward(nn_net *n, const node *e)
{
    const slot *out = &n->slots[e->out];
    if (n->slots[e->in2].grad == out->grad) /* one buffer is the gradient of all three */
        return 0;
    if (dropout_of(n) > 0)
        nn_add_backward(n->pool, rows_of(n, out), out->width, dropout_of(n), seed_of(n, e), grad_of(n, e->out),
                        grad_of(n, e->in2));
    else
        memcpy(grad_of(n, e->in2), grad_of(n, e->out), (size_t)(rows_of(n, out) * out->width) * sizeof(real));
    return 0;
}

static int pool_forward(nn_net *n, const node *e)
{
    const int64_t d = n->slots[e->in].width, length = n->of[e->stack].length;
    for (int64_t b = 0; b < n->batch; b++) {
        const real *in = n->slots[e->in].data + b * length * d;
        real *out = n->slots[e->out].data + b * d;
        memset(out, 0, (size_t)d * sizeof(real));
        for (int64_t i = 0; i < length; i++)
            for (int64_t c = 0; c < d; c++)
                out[c] += in[i * d + c];
        for (int64_t c = 0; c < d; c++)
            out[c] /= (real)length;
    }
    return 0;
}

static int pool_backward(nn_net *n, const node *e)
{
    const int64_t d = n->slots[e->in].width, length = n->of[e->stack].length;
    for (int64_t b = 0; b < n->batch; b++)
        for (int64_t i = 0; i < length; i++)
            for (int64_t c = 0; c < d; c++)
                grad_of(n, e->in)[(b * length + i) * d + c] = grad_of(n, e->out)[b * d + c] / (real)length;
    return 0;
}

/* ------------------------------------------------------------------------------------------------ attention */

/* Heads of `width` channels each within rows of `ld` numbers: [batch, heads, length, width]. */
static rp_array heads_view(const nn_net *n, real *data, int64_t heads, int64_t length, int64_t width, int64_t ld)
{
    const int64_t shape[4] = {n->batch, heads, length, width};
    rp_array a = rp_array_of(data, NN_REAL, 4, shape);
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

/* The arrays of the terms, or with `gradients` the arrays of their gradients: for parameters these follow one another in scratch. */
static void term_arrays(nn_net *n, const node *e, real *qkv, real *r, bool gradients, rp_array to[][RP_MAX_ARRAYS])
{
    const nn_model *m = n->m;
    const nn_stack *s = stack_of(n, e);
    const int64_t d = m->c.width, heads = m->c.heads, length = n->of[e->stack].length, rows = n->batch * length;
    real *scratch = n->scratch;
    for (int32_t t = 0; t < s->n_terms; t++)
        for (int x = 0; x < RP_MAX_ARRAYS; x++)
            if (s->terms[t].source[x] == NN_LEARNED) {
                const nn_param *p = &m->params[e->array[t][x]];
                to[t][x] = rp_array_of(gradients ? scratch : m->w + p->offset, NN_REAL, p->ndim, p->shape);
                if (gradients)
                    scratch += p->size;
            } else if (s->terms[t].source[x] == NN_SINUSOID) {
                const int64_t shape[3] = {heads, nn_offsets(n, e->stack), d / heads};
                to[t][x] = rp_array_of(r, NN_REAL, 3, shape);
                to[t][x].stride[0] = d / heads;
                to[t][x].stride[1] = d;
            } else if (s->terms[t].source[x] == NN_COLUMNS) {
                const int64_t width = s->terms[t].term.width, column = s->terms[t].column[x];
                to[t][x] = gradients ? heads_view(n, qkv + rows * column, heads, length, width, heads * width)
                                     : heads_view(n, qkv + column, heads, length, width, s->columns);
            }
}

rp_desc nn_model_attention(const nn_model *m, int32_t stack, int64_t batch, int64_t len_q, int64_t len_k,
                           rp_term terms[RP_MAX_TERMS], rp_mask *mask)
{
    const nn_stack *s = &m->stack[stack];
    rp_desc desc = rp_desc_init(batch, m->c.heads, len_q, len_k, m->c.width / m->c.heads);
    for (int32_t x = 0; x < s->n_terms; x++)
        terms[x] = s->terms[x].term;
    *mask = (rp_mask){.kind = RP_MASK_CAUSAL};
    desc.terms = terms;
    desc.n_terms = s->n_terms;
    desc.masks = mask;
    desc.n_masks = s->causal;
    desc.dtype = NN_REAL;
    desc.scale = m->c.scale > 0 ? m->c.scale : RP_SCALE_AUTO;
    return desc;
}

rp_desc nn_layer_desc(const nn_net *n, const node *e, rp_term terms[RP_MAX_TERMS], rp_mask *causal)
{
    const int64_t length = n->of[e->stack].length, before = nn_before(n, e->stack);
    rp_desc desc = nn_model_attention(n->m, e->stack, n->batch, length, before + length, terms, causal);
    desc.q_offset = before;
    desc.dropout = dropout_of(n);
    desc.seed = seed_of(n, e);
    return desc;
}

int nn_attention_call(nn_net *n, const node *e, rp_plan **plan, rp_tensors *t, rp_grads *g)
{
    const nn_model *m = n->m;
    const int64_t length = n->of[e->stack].length, keys = nn_before(n, e->stack) + length;
    const int64_t d = m->c.width, heads = m->c.heads, D = d / heads, ld = stack_of(n, e)->columns;
    const slot *in = &n->slots[e->in], *out = &n->slots[e->out];
    const int64_t shape[3] = {n->batch, heads, length};
    rp_term terms[RP_MAX_TERMS];
    rp_mask causal;
    const rp_desc desc = nn_layer_desc(n, e, terms, &causal);
    if (rp_plan_create(plan, &desc) != RP_OK)
        return nn_fail(n->err, "position: %s", NN_WORDS(&desc));
    *t = rp_tensors_init();
    t->q = heads_view(n, in->data, heads, length, D, ld);
    if (n->cache > 0) {
        t->k = heads_view(n, e->cache, heads, keys, D, 2 * d);
        t->v = heads_view(n, e->cache + d, heads, keys, D, 2 * d);
    } else {
        t->k = heads_view(n, in->data + d, heads, keys, D, ld);
        t->v = heads_view(n, in->data + 2 * d, heads, keys, D, ld);
    }
    t->out = heads_view(n, out->data, heads, length, D, d);
    if (n->train)
        t->lse = rp_array_of(e->aux, NN_REAL, 3, shape);
    term_arrays(n, e, in->data, e->r, false, t->term);
    t->pool = n->pool;
    if (g) {
        real *dqkv = grad_of(n, e->in);
        const int64_t all = n->batch * length * d;
        *g = rp_grads_init();
        g->dout = heads_view(n, grad_of(n, e->out), heads, length, D, d);
        g->dq = heads_view(n, dqkv, heads, length, D, d);
        g->dk = heads_view(n, dqkv + all, heads, length, D, d);
        g->dv = heads_view(n, dqkv + 2 * all, heads, length, D, d);
        term_arrays(n, e, dqkv, n->scratch + n->n_scratch, true, g->term);
    }
    const size_t size = g ? rp_plan_backward_size(*plan, n->pool) : rp_plan_work_size(*plan, n->pool);
    if (size > n->work_size) {
        free(n->work);
        n->work = aligned_alloc(64, (size + 63) / 64 * 64);
        n->work_size = n->work ? size : 0;
        if (!n->work) {
            rp_plan_destroy(*plan);
            return nn_fail(n->err, "lab: out of memory for the work of attention, %zu bytes (smaller batch or length)",
                           size);
        }
    }
    return 0;
}

bool nn_uses_sinusoids(const nn_stack *s, const node *e, int32_t *param)
{
    for (int32_t t = 0; t < s->n_terms; t++)
        for (int x = 0; x < RP_MAX_ARRAYS; x++)
            if (s->terms[t].source[x] == NN_SINUSOID) {
                *param = e ? e->array[t][x] : -1;
                return true;
            }
    return false;
}

static int attention_forward(nn_net *n, const node *e)
{
    const sequence *q = &n->of[e->stack];
    const int64_t d = n->m->c.width, ld = stack_of(n, e)->columns;
    rp_plan *plan;
    rp_tensors t;
    int32_t param;
    if (nn_uses_sinusoids(stack_of(n, e), e, &param))
        nn_linear(n->pool, nn_offsets(n, e->stack), d, d, q->sinusoids, d, weight(n, param), e->r, d);
    for (int64_t i = 0; i < q->length && n->cache > 0; i++)
        memcpy(e->cache + (n->cached + i) * 2 * d, n->slots[e->in].data + i * ld + d, 2 * (size_t)d * sizeof(real));
    if (nn_attention_call(n, e, &plan, &t, NULL) != 0)
        return -1;
    const rp_status status = rp_attend(plan, &t, n->work);
    rp_plan_destroy(plan);
    return status == RP_OK ? 0 : nn_fail(n->err, "attention of layer %d: %s", (int)e->layer, NN_WORDS(NULL));
}

static int attention_backward(nn_net *n, const node *e)
{
    const nn_model *m = n->m;
    const nn_stack *s = stack_of(n, e);
    const int64_t d = m->c.width;
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
    for (int32_t x = 0; x < s->n_terms; x++)
        for (int y = 0; y < RP_MAX_ARRAYS; y++)
            if (s->terms[x].source[y] == NN_LEARNED) {
                const nn_param *p = &m->params[e->array[x][y]];
                nn_axpy(n->pool, p->size, scratch, m->g + p->offset);
                scratch += p->size;
            }
    if (nn_uses_sinusoids(s, e, &param))
        nn_linear_dw(n->pool, nn_offsets(n, e->stack), d, d, n->scratch + n->n_scratch, d, n->of[e->stack].sinusoids, d,
                     gradient(n, param));
    return 0;
}

/* ------------------------------------------------------------------------------------------------ head */

/* Rows go through the last matrix in chunks, so that the logits of all rows never exist at once; while training, the backward pass of a
 * chunk follows immediately. */
static int head_forward(nn_net *n, const node *e)
{
    const slot *in = &n->slots[e->in];
    const int64_t rows = rows_of(n, in), d = in->width, vocab = n->m->params[e->param[0]].shape[0];
    int64_t targets = 0;
    for (int64_t r = 0; r < rows; r++)
        targets += n->target[r] >= 0;
    for (int64_t from = 0; from < rows; from += HEAD_ROWS) {
        const int64_t count = rows - from < HEAD_ROWS ? rows - from : HEAD_ROWS;
        nn_linear(n->pool, count, d, vocab, in->data + from * d, d, weight(n, e->param[0]), n->logits, vocab);
        nn_softmax_loss(n->pool, count, vocab, n->logits, n->target + from, targets ? 1.0 / (double)targets : 0,
                        n->loss + from);
        if (!n->train)
            continue;
        nn_linear_dw(n->pool, count, d, vocab, n->logits, vocab, in->data + from * d, d, gradient(n, e->param[0]));
        nn_linear_dx(n->pool, count, d, vocab, n->logits, vocab, weight(n, e->param[0]), 0,
                     grad_of(n, e->in) + from * d, d);
    }
    return 0;
}

static int head_backward(nn_net *n, const node *e) /* head_forward has done it */
{
    (void)n, (void)e;
    return 0;
}

const layer_kind nn_kinds[N_KINDS] = {
    [EMBED] = {embed_forward, embed_backward},    [NORM] = {norm_forward, norm_backward},
    [LINEAR] = {linear_forward, linear_backward}, [ATTENTION] = {attention_forward, attention_backward},
    [ACT] = {act_forward, act_backward},          [ADD] = {add_forward, add_backward},
    [POOL] = {pool_forward, pool_backward},       [HEAD] = {head_forward, head_backward},
};
