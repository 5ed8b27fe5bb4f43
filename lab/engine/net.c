/* net.c -- a model at one batch and length: a list of layers over activations, walked forward and then backward.
 *
 *   embed ─ x ┬ norm ─ linear ─ attention ─ linear ┬ add ─ x ┬ norm ─ linear ─ act ─ linear ┬ add ─ x … norm ─ (pool) ─ head
 *             └────────────────────────────────────┘         └──────────────────────────────┘
 *
 * A layer is a line of `kinds`: forward and backward. Its activations are slots; buffers for their gradients are assigned when the list
 * is made, and one buffer serves several gradients, one after another. This file knows layers and the operator's arrays, and of position
 * terms only where their arrays come from (nn_source).
 * SPDX-License-Identifier: Apache-2.0 */
#include "lab/engine/nn.h"
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef enum node_kind { EMBED, NORM, LINEAR, ATTENTION, ACT, ADD, POOL, HEAD, N_KINDS } node_kind;

/* The output of a projection has several splits: q, k, v, and columns that terms use. Its data is interleaved, [rows, width]; its gradient
 * has one split after another, [rows, width of the split] each, because outputs of the operator may not be interleaved. */
enum { MAX_SPLITS = 3 + RP_MAX_TERMS };
typedef struct slot {
    int64_t width;
    int32_t n_splits;
    int64_t split[MAX_SPLITS]; /* widths */
    bool pooled;               /* a row for each batch entry, not for each token */
    real *data;
    int32_t grad; /* its buffer; -1: none */
} slot;

typedef struct node {
    node_kind kind;
    int32_t in, in2, out; /* slots; in2: what ADD adds to `in` */
    int32_t layer;
    int32_t param[2];                           /* weight, and bias of a norm */
    bool add;                                   /* NORM: the gradient of `in` has a value already: add to it */
    real *aux;                                  /* NORM: mean and factor of each row; ATTENTION: lse */
    real *r;                                    /* ATTENTION: products of the sinusoids, for xl */
    real *cache;                                /* ATTENTION: keys and values of the tokens before */
    int32_t array[RP_MAX_TERMS][RP_MAX_ARRAYS]; /* ATTENTION: parameters of the terms; -1: none */
} node;

enum { MAX_BUFFERS = 32, HEAD_ROWS = 1024 };

struct nn_net {
    nn_model *m;
    rp_pool *pool;
    int64_t batch, capacity, cache, cached;
    bool train;
    node *nodes;
    int32_t n_nodes;
    slot *slots;
    int32_t n_slots;
    int64_t buffer_size[MAX_BUFFERS]; /* of gradients, in numbers a token */
    real *buffer[MAX_BUFFERS];
    int32_t refs[MAX_BUFFERS], n_buffers; /* refs: gradients that a buffer holds while the list is planned */
    real *sinusoids;                      /* of distances, for xl [2 capacity - 1, width] */
    real *partial;                        /* of the norms' gradients */
    real *scratch;                        /* gradients of the terms of one attention */
    int64_t n_scratch;
    real *logits; /* of HEAD_ROWS rows at most */
    void *work;   /* of the operator */
    size_t work_size;
    size_t bytes; /* of all memory */
    void *blocks[4096];
    int32_t n_blocks;
    /* arguments of the current call */
    int64_t length;
    const int32_t *tokens, *target;
    uint64_t seed;
    double *loss;
    char *err;
};

static int64_t rows_of(const nn_net *n, const slot *s)
{
    return n->batch * (s->pooled ? 1 : n->length);
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

static double sinusoid(double position, int64_t c, int64_t width)
{
    const double angle = position * pow(10000, -2.0 * (double)(c / 2) / (double)width); /* Vaswani 2017, section 3.5 */
    return c % 2 ? cos(angle) : sin(angle);
}

static void embed_rows(void *context, int64_t t, int32_t worker)
{
    const nn_net *n = context;
    const node *e = &n->nodes[0];
    const int64_t d = n->m->c.width, rows = n->batch * n->length;
    const real *table = weight(n, e->param[0]), *positions = weight(n, e->param[1]);
    (void)worker;
    for (int64_t r = t * NN_ROWS; r < rows && r < (t + 1) * NN_ROWS; r++) {
        const int64_t at = n->cached + r % n->length;
        const real *from = table + n->tokens[r] * d;
        real *to = n->slots[e->out].data + r * d;
        for (int64_t c = 0; c < d; c++)
            to[c] = from[c] + (positions ? positions[at * d + c] : 0);
        for (int64_t c = 0; c < d && n->m->sinusoidal; c++) /* as small as embeddings begin */
            to[c] += (real)(0.02 * sinusoid((double)at, c, d));
    }
}

static int embed_forward(nn_net *n, const node *e)
{
    (void)e;
    return rp_pool_run(n->pool, (n->batch * n->length + NN_ROWS - 1) / NN_ROWS, embed_rows, n) == RP_OK ? 0 : -1;
}

/* Several tokens add to the same row of the table. So a task has a range of channels and adds all tokens in order. */
static void embed_channels(void *context, int64_t t, int32_t worker)
{
    const nn_net *n = context;
    const node *e = &n->nodes[0];
    const int64_t d = n->m->c.width, rows = n->batch * n->length, from = t * NN_ROWS;
    const int64_t to = from + NN_ROWS < d ? from + NN_ROWS : d;
    real *table = gradient(n, e->param[0]), *positions = gradient(n, e->param[1]);
    const real *dy = grad_of(n, e->out);
    (void)worker;
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = from; c < to; c++) {
            table[n->tokens[r] * d + c] += dy[r * d + c];
            if (positions)
                positions[r % n->length * d + c] += dy[r * d + c];
        }
}

static int embed_backward(nn_net *n, const node *e)
{
    (void)e;
    return rp_pool_run(n->pool, (n->m->c.width + NN_ROWS - 1) / NN_ROWS, embed_channels, n) == RP_OK ? 0 : -1;
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
    const int64_t d = n->slots[e->in].width;
    for (int64_t b = 0; b < n->batch; b++) {
        const real *in = n->slots[e->in].data + b * n->length * d;
        real *out = n->slots[e->out].data + b * d;
        memset(out, 0, (size_t)d * sizeof(real));
        for (int64_t i = 0; i < n->length; i++)
            for (int64_t c = 0; c < d; c++)
                out[c] += in[i * d + c];
        for (int64_t c = 0; c < d; c++)
            out[c] /= (real)n->length;
    }
    return 0;
}

static int pool_backward(nn_net *n, const node *e)
{
    const int64_t d = n->slots[e->in].width;
    for (int64_t b = 0; b < n->batch; b++)
        for (int64_t i = 0; i < n->length; i++)
            for (int64_t c = 0; c < d; c++)
                grad_of(n, e->in)[(b * n->length + i) * d + c] = grad_of(n, e->out)[b * d + c] / (real)n->length;
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

static int64_t offsets_of(const nn_net *n)
{
    return n->cached + 2 * n->length - 1;
}

/* The arrays of the terms, or with `gradients` the arrays of their gradients: for parameters these follow one another in scratch. */
static void term_arrays(nn_net *n, const node *e, real *qkv, real *r, bool gradients, rp_array to[][RP_MAX_ARRAYS])
{
    const nn_model *m = n->m;
    const int64_t d = m->c.width, heads = m->c.heads, rows = n->batch * n->length;
    real *scratch = n->scratch;
    for (int32_t t = 0; t < m->n_terms; t++)
        for (int x = 0; x < RP_MAX_ARRAYS; x++)
            if (m->terms[t].source[x] == NN_LEARNED) {
                const nn_param *p = &m->params[e->array[t][x]];
                to[t][x] = rp_array_of(gradients ? scratch : m->w + p->offset, NN_REAL, p->ndim, p->shape);
                if (gradients)
                    scratch += p->size;
            } else if (m->terms[t].source[x] == NN_SINUSOID) {
                const int64_t shape[3] = {heads, offsets_of(n), d / heads};
                to[t][x] = rp_array_of(r, NN_REAL, 3, shape);
                to[t][x].stride[0] = d / heads;
                to[t][x].stride[1] = d;
            } else if (m->terms[t].source[x] == NN_COLUMNS) {
                const int64_t width = m->terms[t].term.width, column = m->terms[t].column[x];
                to[t][x] = gradients ? heads_view(n, qkv + rows * column, heads, n->length, width, heads * width)
                                     : heads_view(n, qkv + column, heads, n->length, width, m->columns);
            }
}

/* What the attention of a layer computes; terms and mask are the caller's memory. */
rp_desc nn_model_attention(const nn_model *m, int64_t batch, int64_t len_q, int64_t len_k, rp_term terms[RP_MAX_TERMS],
                           rp_mask *mask)
{
    rp_desc desc = rp_desc_init(batch, m->c.heads, len_q, len_k, m->c.width / m->c.heads);
    for (int32_t x = 0; x < m->n_terms; x++)
        terms[x] = m->terms[x].term;
    *mask = (rp_mask){.kind = RP_MASK_CAUSAL};
    desc.terms = terms;
    desc.n_terms = m->n_terms;
    desc.masks = mask;
    desc.n_masks = m->c.task == NN_DECODER;
    desc.dtype = NN_REAL;
    desc.scale = m->c.scale > 0 ? m->c.scale : RP_SCALE_AUTO;
    return desc;
}

static rp_desc describe(const nn_net *n, const node *e, rp_term terms[RP_MAX_TERMS], rp_mask *causal)
{
    rp_desc desc = nn_model_attention(n->m, n->batch, n->length, n->cached + n->length, terms, causal);
    desc.q_offset = n->cached;
    desc.dropout = dropout_of(n);
    desc.seed = seed_of(n, e);
    return desc;
}

/* The plan and arrays of a call, and of its backward pass where g is not NULL. */
static int attention_call(nn_net *n, const node *e, rp_plan **plan, rp_tensors *t, rp_grads *g)
{
    const nn_model *m = n->m;
    const int64_t d = m->c.width, heads = m->c.heads, D = d / heads, keys = n->cached + n->length, ld = m->columns;
    const slot *in = &n->slots[e->in], *out = &n->slots[e->out];
    const int64_t shape[3] = {n->batch, heads, n->length};
    rp_term terms[RP_MAX_TERMS];
    rp_mask causal;
    const rp_desc desc = describe(n, e, terms, &causal);
    if (rp_plan_create(plan, &desc) != RP_OK)
        return nn_fail(n->err, "position: %s", NN_WORDS(&desc));
    *t = rp_tensors_init();
    t->q = heads_view(n, in->data, heads, n->length, D, ld);
    if (n->cache > 0) {
        t->k = heads_view(n, e->cache, heads, keys, D, 2 * d);
        t->v = heads_view(n, e->cache + d, heads, keys, D, 2 * d);
    } else {
        t->k = heads_view(n, in->data + d, heads, keys, D, ld);
        t->v = heads_view(n, in->data + 2 * d, heads, keys, D, ld);
    }
    t->out = heads_view(n, out->data, heads, n->length, D, d);
    if (n->train)
        t->lse = rp_array_of(e->aux, NN_REAL, 3, shape);
    term_arrays(n, e, in->data, e->r, false, t->term);
    t->pool = n->pool;
    if (g) {
        real *dqkv = grad_of(n, e->in);
        const int64_t all = n->batch * n->length * d;
        *g = rp_grads_init();
        g->dout = heads_view(n, grad_of(n, e->out), heads, n->length, D, d);
        g->dq = heads_view(n, dqkv, heads, n->length, D, d);
        g->dk = heads_view(n, dqkv + all, heads, n->length, D, d);
        g->dv = heads_view(n, dqkv + 2 * all, heads, n->length, D, d);
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

/* Whether a term has an array that is made of sinusoids; *param gets the matrix that multiplies them. */
static bool uses_sinusoids(const nn_model *m, const node *e, int32_t *param)
{
    for (int32_t t = 0; t < m->n_terms; t++)
        for (int x = 0; x < RP_MAX_ARRAYS; x++)
            if (m->terms[t].source[x] == NN_SINUSOID) {
                *param = e ? e->array[t][x] : -1;
                return true;
            }
    return false;
}

static int attention_forward(nn_net *n, const node *e)
{
    const int64_t d = n->m->c.width, ld = n->m->columns;
    rp_plan *plan;
    rp_tensors t;
    int32_t param;
    if (uses_sinusoids(n->m, e, &param))
        nn_linear(n->pool, offsets_of(n), d, d, n->sinusoids, d, weight(n, param), e->r, d);
    for (int64_t i = 0; i < n->length && n->cache > 0; i++)
        memcpy(e->cache + (n->cached + i) * 2 * d, n->slots[e->in].data + i * ld + d, 2 * (size_t)d * sizeof(real));
    if (attention_call(n, e, &plan, &t, NULL) != 0)
        return -1;
    const rp_status status = rp_attend(plan, &t, n->work);
    rp_plan_destroy(plan);
    return status == RP_OK ? 0 : nn_fail(n->err, "attention of layer %d: %s", (int)e->layer, NN_WORDS(NULL));
}

static int attention_backward(nn_net *n, const node *e)
{
    const nn_model *m = n->m;
    const int64_t d = m->c.width;
    rp_plan *plan;
    rp_tensors t;
    rp_grads g;
    int32_t param;
    if (attention_call(n, e, &plan, &t, &g) != 0)
        return -1;
    const rp_status status = rp_backward(plan, &t, &g, n->work);
    rp_plan_destroy(plan);
    if (status != RP_OK)
        return nn_fail(n->err, "attention of layer %d, backward: %s", (int)e->layer, NN_WORDS(NULL));
    const real *scratch = n->scratch;
    for (int32_t x = 0; x < m->n_terms; x++)
        for (int y = 0; y < RP_MAX_ARRAYS; y++)
            if (m->terms[x].source[y] == NN_LEARNED) {
                const nn_param *p = &m->params[e->array[x][y]];
                nn_axpy(n->pool, p->size, scratch, m->g + p->offset);
                scratch += p->size;
            }
    if (uses_sinusoids(m, e, &param))
        nn_linear_dw(n->pool, offsets_of(n), d, d, n->scratch + n->n_scratch, d, n->sinusoids, d, gradient(n, param));
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

static const struct kind {
    int (*forward)(nn_net *n, const node *e);
    int (*backward)(nn_net *n, const node *e);
} kinds[N_KINDS] = {
    [EMBED] = {embed_forward, embed_backward},    [NORM] = {norm_forward, norm_backward},
    [LINEAR] = {linear_forward, linear_backward}, [ATTENTION] = {attention_forward, attention_backward},
    [ACT] = {act_forward, act_backward},          [ADD] = {add_forward, add_backward},
    [POOL] = {pool_forward, pool_backward},       [HEAD] = {head_forward, head_backward},
};

/* ------------------------------------------------------------------------------------------------ the list */

static int32_t add_slot(nn_net *n, int64_t width, bool pooled)
{
    n->slots[n->n_slots] = (slot){.width = width, .n_splits = 1, .split = {width}, .pooled = pooled, .grad = -1};
    return n->n_slots++;
}

/* Queries, keys, values, and the columns that terms use. */
static void split_projection(const nn_model *m, slot *s)
{
    for (s->n_splits = 0; s->n_splits < 3; s->n_splits++)
        s->split[s->n_splits] = m->c.width;
    for (int32_t t = 0; t < m->n_terms; t++)
        for (int x = 0; x < RP_MAX_ARRAYS; x++)
            if (m->terms[t].source[x] == NN_COLUMNS)
                s->split[s->n_splits++] = m->c.heads * m->terms[t].term.width;
}

__attribute__((format(printf, 6, 7))) static int32_t add_node(nn_net *n, node_kind kind, int32_t in, int64_t width,
                                                              int32_t layer, const char *format, ...)
{
    node *e = &n->nodes[n->n_nodes++];
    char name[96];
    va_list list;
    *e = (node){.kind = kind, .in = in, .in2 = -1, .layer = layer, .param = {-1, -1}};
    va_start(list, format);
    vsnprintf(name, sizeof name - 8, format, list);
    va_end(list);
    const size_t used = strlen(name);
    snprintf(name + used, sizeof name - used, ".weight");
    e->param[0] = nn_model_find(n->m, name);
    snprintf(name + used, sizeof name - used, ".bias");
    e->param[1] = nn_model_find(n->m, name);
    e->out = kind == HEAD ? -1 : add_slot(n, width, kind == POOL || (in >= 0 && n->slots[in].pooled));
    return e->out;
}

static void find_arrays(nn_net *n, node *e)
{
    char name[96];
    for (int32_t t = 0; t < n->m->n_terms; t++)
        for (int x = 0; x < RP_MAX_ARRAYS; x++) {
            const nn_term *term = &n->m->terms[t];
            e->array[t][x] = -1;
            if (term->source[x] != NN_LEARNED && term->source[x] != NN_SINUSOID)
                continue;
            const char *array = rp_term_array(term->term.kind, x),
                       *tail = term->source[x] == NN_SINUSOID ? ".weight" : "";
            if (n->m->c.position_layers)
                snprintf(name, sizeof name, "attn.%s.%s%s", term->name, array, tail);
            else
                snprintf(name, sizeof name, "layers.%d.attn.%s.%s%s", (int)e->layer, term->name, array, tail);
            e->array[t][x] = nn_model_find(n->m, name);
        }
}

static void make_list(nn_net *n)
{
    const nn_config *c = &n->m->c;
    const int64_t d = c->width, up = c->act == NN_SWIGLU ? 2 * c->mlp : c->mlp;
    int32_t x = add_node(n, EMBED, -1, d, 0, "embedding"), y;
    n->nodes[0].param[1] = nn_model_find(n->m, "positions.weight");
    for (int32_t l = 0; l < (int32_t)c->layers; l++) {
        y = add_node(n, NORM, x, d, l, "layers.%d.attn_norm", (int)l);
        y = add_node(n, LINEAR, y, n->m->columns, l, "layers.%d.attn.qkv", (int)l);
        split_projection(n->m, &n->slots[y]);
        y = add_node(n, ATTENTION, y, d, l, "layers.%d.attn", (int)l);
        find_arrays(n, &n->nodes[n->n_nodes - 1]);
        y = add_node(n, LINEAR, y, d, l, "layers.%d.attn.out", (int)l);
        x = add_node(n, ADD, x, d, l, "layers.%d.sum", (int)l);
        n->nodes[n->n_nodes - 1].in2 = y;
        y = add_node(n, NORM, x, d, l, "layers.%d.mlp_norm", (int)l);
        y = add_node(n, LINEAR, y, up, l, "layers.%d.mlp.up", (int)l);
        y = add_node(n, ACT, y, c->mlp, l, "layers.%d.mlp.act", (int)l);
        y = add_node(n, LINEAR, y, d, l, "layers.%d.mlp.down", (int)l);
        x = add_node(n, ADD, x, d, l, "layers.%d.sum", (int)l);
        n->nodes[n->n_nodes - 1].in2 = y;
    }
    x = add_node(n, NORM, x, d, 0, "norm");
    if (c->task == NN_CLASSIFIER)
        x = add_node(n, POOL, x, d, 0, "pool");
    add_node(n, HEAD, x, 0, 0, "%s", c->task == NN_CLASSIFIER || !c->tied ? "head" : "embedding");
}

/* ------------------------------------------------------------------------------------------------ memory */

static int32_t acquire_buffer(nn_net *n, int64_t width)
{
    for (int32_t b = 0; b < n->n_buffers; b++)
        if (n->refs[b] == 0 && n->buffer_size[b] == width) {
            n->refs[b] = 1;
            return b;
        }
    n->buffer_size[n->n_buffers] = width;
    n->refs[n->n_buffers] = 1;
    return n->n_buffers++;
}

/* Assign the buffers of gradients, walking the list backward as the backward pass will. */
static void plan_gradients(nn_net *n)
{
    const bool dropout = n->m->c.dropout > 0;
    for (int32_t x = n->n_nodes - 1; x >= 0; x--) {
        node *e = &n->nodes[x];
        slot *in = e->in >= 0 ? &n->slots[e->in] : NULL;
        if (e->kind == ADD) {
            const int32_t b = n->slots[e->out].grad;
            in->grad = b;
            n->refs[b]++;
            n->slots[e->in2].grad = dropout ? acquire_buffer(n, n->slots[e->in2].width) : b;
            n->refs[b] += !dropout;
        } else if (in) {
            e->add = in->grad >= 0;
            if (!e->add)
                in->grad = acquire_buffer(n, in->width);
        }
        if (e->out >= 0)
            n->refs[n->slots[e->out].grad]--;
    }
}

/* Count, and with `allocate` allocate, memory of so many numbers. */
static void *reserve(nn_net *n, bool allocate, int64_t numbers, bool *enough)
{
    const size_t bytes = ((size_t)(numbers > 0 ? numbers : 1) * sizeof(real) + 63) / 64 * 64;
    n->bytes += bytes;
    if (!allocate)
        return NULL;
    void *p =
        *enough && n->n_blocks < (int32_t)(sizeof n->blocks / sizeof *n->blocks) ? aligned_alloc(64, bytes) : NULL;
    if (p)
        n->blocks[n->n_blocks++] = p;
    else
        *enough = false;
    return p;
}

static bool reserve_all(nn_net *n, bool allocate)
{
    const nn_model *m = n->m;
    const int64_t d = m->c.width, rows = n->batch * n->capacity, offsets = n->cache + 2 * n->capacity;
    bool enough = true;
    int32_t param;
    const bool sinusoids = uses_sinusoids(m, NULL, &param);
    for (int32_t x = 0; x < n->n_slots; x++)
        n->slots[x].data = reserve(n, allocate, (n->slots[x].pooled ? n->batch : rows) * n->slots[x].width, &enough);
    for (int32_t x = 0; x < n->n_nodes; x++) {
        node *e = &n->nodes[x];
        if (e->kind == NORM)
            e->aux = reserve(n, allocate, 2 * rows, &enough);
        if (e->kind == ATTENTION && n->train)
            e->aux = reserve(n, allocate, rows * m->c.heads, &enough);
        if (e->kind == ATTENTION && sinusoids)
            e->r = reserve(n, allocate, offsets * d, &enough);
        if (e->kind == ATTENTION && n->cache > 0)
            e->cache = reserve(n, allocate, (n->cache + n->capacity) * 2 * d, &enough);
    }
    for (int32_t b = 0; b < n->n_buffers && n->train; b++)
        n->buffer[b] = reserve(n, allocate, rows * n->buffer_size[b], &enough);
    if (sinusoids)
        n->sinusoids = reserve(n, allocate, offsets * d, &enough);
    n->n_scratch = 0;
    for (int32_t x = 0; x < n->n_nodes; x++)
        if (n->nodes[x].kind == ATTENTION) {
            int64_t all = 0;
            for (int32_t t = 0; t < m->n_terms; t++)
                for (int y = 0; y < RP_MAX_ARRAYS; y++)
                    if (m->terms[t].source[y] == NN_LEARNED)
                        all += m->params[n->nodes[x].array[t][y]].size;
            n->n_scratch = all > n->n_scratch ? all : n->n_scratch;
        }
    if (n->train) {
        n->scratch = reserve(n, allocate, n->n_scratch + (sinusoids ? offsets * d : 0), &enough);
        n->partial = reserve(n, allocate, 2 * d * (rows / NN_ROWS + 1), &enough);
    }
    const int64_t vocab = m->params[n->nodes[n->n_nodes - 1].param[0]].shape[0];
    n->logits = reserve(n, allocate, (rows < HEAD_ROWS ? rows : HEAD_ROWS) * vocab, &enough);
    return enough;
}

int nn_net_create(nn_net **net, nn_model *m, rp_pool *pool, int64_t batch, int64_t length, bool train, int64_t cache,
                  size_t *bytes, char err[NN_ERR_MAX])
{
    nn_net *n = calloc(1, sizeof *n);
    const size_t max_nodes = (size_t)m->c.layers * 10 + 8;
    const int64_t longest = cache > length ? cache : length;
    int64_t numbers;
    if (net)
        *net = NULL;
    if (!n || !(n->nodes = calloc(max_nodes, sizeof *n->nodes)) || !(n->slots = calloc(max_nodes, sizeof *n->slots))) {
        nn_net_destroy(n);
        return nn_fail(err, "lab: out of memory for the list of layers (fewer layers)");
    }
    if (__builtin_mul_overflow(batch, length, &numbers) || numbers > (int64_t)1 << 31 ||
        (m->learned && longest > m->c.length)) {
        nn_net_destroy(n);
        if (m->learned && longest > m->c.length)
            return nn_fail(err,
                           "position: learned positions end at %lld, and the length is %lld (a shorter text, a longer "
                           "training, or another position)",
                           (long long)m->c.length, (long long)longest);
        return nn_fail(err, "lab: %lld windows of %lld tokens (at most 2^31 tokens in all: a smaller batch or length)",
                       (long long)batch, (long long)length);
    }
    n->m = m;
    n->pool = pool;
    n->batch = batch;
    n->capacity = length;
    n->cache = cache;
    n->train = train;
    make_list(n);
    if (train)
        plan_gradients(n);
    /* Plan the longest call: the library may refuse it here rather than later, and its work memory is counted. */
    rp_term terms[RP_MAX_TERMS];
    rp_mask causal;
    rp_plan *plan;
    n->length = length;
    n->cached = cache;
    const rp_desc desc = describe(n, n->nodes, terms, &causal);
    if (rp_plan_create(&plan, &desc) != RP_OK) {
        nn_net_destroy(n);
        return nn_fail(err, "position: %s", NN_WORDS(&desc));
    }
    const size_t work = train ? rp_plan_backward_size(plan, pool) : rp_plan_work_size(plan, pool);
    rp_plan_destroy(plan);
    n->length = n->cached = 0;
    reserve_all(n, false);
    n->bytes += work;
    if (bytes)
        *bytes = n->bytes;
    if (!net) {
        nn_net_destroy(n);
        return 0;
    }
    const double size = (double)n->bytes;
    if (!reserve_all(n, true)) {
        nn_net_destroy(n);
        return nn_fail(err, "lab: out of memory for the activations, %.1f GB (smaller batch, length or width)",
                       size * 1e-9);
    }
    *net = n;
    return 0;
}

void nn_net_destroy(nn_net *n)
{
    if (!n)
        return;
    for (int32_t x = 0; x < n->n_blocks; x++)
        free(n->blocks[x]);
    free(n->work);
    free(n->nodes);
    free(n->slots);
    free(n);
}

/* ------------------------------------------------------------------------------------------------ calls */

static int start_call(nn_net *n, int64_t length, const int32_t *tokens, char err[NN_ERR_MAX])
{
    int32_t param;
    if (length < 1 || length > n->capacity)
        return nn_fail(err, "lab: a length of %lld (1 to %lld)", (long long)length, (long long)n->capacity);
    if (n->cache > 0 && n->cached + length > n->cache)
        return nn_fail(err, "lab: %lld tokens do not fit into the cache (at most %lld)",
                       (long long)(n->cached + length), (long long)n->cache);
    for (int64_t x = 0; x < n->batch * length; x++)
        if (tokens[x] < 0 || tokens[x] >= n->m->c.vocab)
            return nn_fail(err, "lab: token %d (0 to %lld)", (int)tokens[x], (long long)n->m->c.vocab - 1);
    n->err = err;
    n->tokens = tokens;
    if (uses_sinusoids(n->m, NULL, &param) && (n->cache > 0 || n->length != length)) {
        n->length = length;
        for (int64_t t = 0; t < offsets_of(n); t++) /* row t belongs to delta = t - (length - 1 + cached) */
            for (int64_t c = 0; c < n->m->c.width; c++)
                n->sinusoids[t * n->m->c.width + c] =
                    (real)sinusoid((double)(length - 1 + n->cached - t), c, n->m->c.width);
    }
    n->length = length;
    return 0;
}

static int forward(nn_net *n, int32_t count)
{
    for (int32_t x = 0; x < count; x++)
        if (kinds[n->nodes[x].kind].forward(n, &n->nodes[x]) != 0)
            return -1;
    return 0;
}

int nn_net_loss(nn_net *n, int64_t length, const int32_t *tokens, const int32_t *target, uint64_t seed, double *loss,
                double *mean, char err[NN_ERR_MAX])
{
    const int64_t classes = n->m->params[n->nodes[n->n_nodes - 1].param[0]].shape[0];
    int64_t targets = 0;
    double sum = 0;
    if (start_call(n, length, tokens, err) != 0)
        return -1;
    const int64_t rows = n->batch * (n->m->c.task == NN_CLASSIFIER ? 1 : length);
    for (int64_t r = 0; r < rows; r++)
        if (target[r] >= classes)
            return nn_fail(err, "lab: target %d (below %lld)", (int)target[r], (long long)classes);
    n->target = target;
    n->seed = n->train ? seed : 0;
    n->loss = loss;
    if (n->train)
        memset(n->m->g, 0, (size_t)n->m->n_weights * sizeof(real));
    if (forward(n, n->n_nodes) != 0)
        return -1;
    for (int64_t r = 0; r < rows; r++) {
        sum += loss[r];
        targets += target[r] >= 0;
    }
    *mean = targets ? sum / (double)targets : 0;
    for (int32_t x = n->n_nodes - 1; x >= 0 && n->train; x--)
        if (kinds[n->nodes[x].kind].backward(n, &n->nodes[x]) != 0)
            return -1;
    return 0;
}

int nn_net_logits(nn_net *n, int64_t length, const int32_t *tokens, real *logits, char err[NN_ERR_MAX])
{
    if (start_call(n, length, tokens, err) != 0)
        return -1;
    n->seed = 0;
    if (forward(n, n->n_nodes - 1) != 0)
        return -1;
    const node *e = &n->nodes[n->n_nodes - 1];
    const slot *in = &n->slots[e->in];
    const int64_t d = in->width, step = in->pooled ? 1 : length, out = n->m->params[e->param[0]].shape[0];
    nn_linear(n->pool, n->batch, d, out, in->data + (step - 1) * d, step * d, weight(n, e->param[0]), logits, out);
    if (n->cache > 0)
        n->cached += length;
    return 0;
}

int nn_net_attention(nn_net *n, int64_t layer, rp_tensors *t, rp_plan *plans[2], char err[NN_ERR_MAX])
{
    rp_plan *plan;
    n->err = err;
    for (int32_t x = 0; x < n->n_nodes; x++)
        if (n->nodes[x].kind == ATTENTION && n->nodes[x].layer == layer) {
            if (attention_call(n, &n->nodes[x], &plan, t, NULL) != 0)
                return -1;
            if (!plans) {
                rp_plan_destroy(plan);
                return 0;
            }
            rp_term terms[RP_MAX_TERMS];
            rp_mask causal;
            rp_desc plain = describe(n, &n->nodes[x], terms, &causal);
            plain.n_terms = 0;
            plans[0] = plan;
            if (rp_plan_create(&plans[1], &plain) == RP_OK)
                return 0;
            rp_plan_destroy(plan);
            return nn_fail(err, "attention: %s", NN_WORDS(NULL));
        }
    return nn_fail(err, "layer: %lld (0 to %lld)", (long long)layer, (long long)n->m->c.layers - 1);
}

void nn_net_clear(nn_net *n)
{
    n->cached = 0;
}

int64_t nn_net_cached(const nn_net *n)
{
    return n->cached;
}
