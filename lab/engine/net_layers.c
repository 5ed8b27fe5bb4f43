/* net_layers.c -- all kinds of layers except attention, forward and backward: embedding, norm, linear, activation,
 * addition, scaling, pooling, and the head with its loss. The tables at the end list all kinds, including the
 * attention of net_attention.c.
 * SPDX-License-Identifier: Apache-2.0 */
#include "lab/engine/net_layers.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

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
    const bool sinusoidal = nn_stack_of(n, e)->sinusoidal;
    const int64_t d = n->m->c.width, rows = n->batch * q->length, before = nn_before(n, e->stack);
    const double amplitude = nn_sinusoidal_scale(&n->m->c);
    const real scale = (real)nn_embedding_scale(&n->m->c);
    const real *table = nn_weight(n, e->param[0]), *positions = nn_weight(n, e->param[1]);
    (void)worker;
    for (int64_t r = t * LAYERS_ROWS; r < rows && r < (t + 1) * LAYERS_ROWS; r++) {
        const int64_t token = before + r % q->length, at = q->positions ? q->positions[token] : token;
        const real *from = table + q->tokens[r] * d;
        real *to = n->slots[e->out].data + r * d;
        for (int64_t c = 0; c < d; c++)
            to[c] = scale * from[c] + (positions ? positions[at * d + c] : 0);
        for (int64_t c = 0; c < d && sinusoidal; c++)
            to[c] += (real)(amplitude * nn_sinusoid((double)at, c, d));
    }
}

static int embed_forward(nn_net *n, const node *e)
{
    embed_job j = {n, e};
    return rp_pool_run(n->pool, (nn_rows(n, &n->slots[e->out]) + LAYERS_ROWS - 1) / LAYERS_ROWS, embed_rows, &j) ==
                   RP_OK
               ? 0
               : -1;
}

/* Add the gradients of a range of channels, for all tokens in order. Tasks are divided by channel, not by token,
 * because several tokens can add to the same row of the table. */
static void embed_channels(void *context, int64_t t, int32_t worker)
{
    const embed_job *j = context;
    const nn_net *n = j->n;
    const node *e = j->e;
    const sequence *q = &n->of[e->stack];
    const int64_t d = n->m->c.width, rows = n->batch * q->length, from = t * LAYERS_ROWS;
    const int64_t to = from + LAYERS_ROWS < d ? from + LAYERS_ROWS : d;
    real *table = nn_gradient(n, e->param[0]), *positions = nn_gradient(n, e->param[1]);
    const real *dy = nn_grad(n, e->out), scale = (real)nn_embedding_scale(&n->m->c);
    (void)worker;
    for (int64_t r = 0; r < rows; r++) {
        const int64_t at = q->positions ? q->positions[r % q->length] : r % q->length;
        for (int64_t c = from; c < to; c++) {
            table[q->tokens[r] * d + c] += scale * dy[r * d + c];
            if (positions)
                positions[at * d + c] += dy[r * d + c];
        }
    }
}

static int embed_backward(nn_net *n, const node *e)
{
    embed_job j = {n, e};
    return rp_pool_run(n->pool, (n->m->c.width + LAYERS_ROWS - 1) / LAYERS_ROWS, embed_channels, &j) == RP_OK ? 0 : -1;
}

/* ------------------------------------------------------------------------------------- norm, linear, act, add, pool */

static int norm_forward(nn_net *n, const node *e)
{
    const slot *in = &n->slots[e->in];
    layers_norm_forward(n->pool, n->m->c.norm, n->m->c.norm_eps, nn_rows(n, in), in->width, in->data,
                        nn_weight(n, e->param[0]), nn_weight(n, e->param[1]), n->slots[e->out].data, e->aux);
    return 0;
}

static int norm_backward(nn_net *n, const node *e)
{
    const slot *in = &n->slots[e->in];
    layers_norm_backward(n->pool, n->m->c.norm, nn_rows(n, in), in->width, in->data, nn_weight(n, e->param[0]), e->aux,
                         nn_grad(n, e->out), e->add, nn_grad(n, e->in), nn_gradient(n, e->param[0]),
                         nn_gradient(n, e->param[1]), n->partial);
    return 0;
}

static int linear_forward(nn_net *n, const node *e)
{
    const slot *in = &n->slots[e->in], *out = &n->slots[e->out];
    layers_linear(n->pool, nn_rows(n, in), in->width, out->width, in->data, in->width, nn_weight(n, e->param[0]),
                  out->data, out->width);
    return 0;
}

static int linear_backward(nn_net *n, const node *e)
{
    const slot *in = &n->slots[e->in], *out = &n->slots[e->out];
    const int64_t rows = nn_rows(n, in), d = in->width;
    for (int32_t p = 0, first = 0; p < out->n_splits; first += (int32_t)out->split[p++]) {
        const real *dy = nn_grad(n, e->out) + rows * first;
        const int64_t width = out->split[p];
        layers_linear_dw(n->pool, rows, d, width, dy, width, in->data, d, nn_gradient(n, e->param[0]) + first * d);
        layers_linear_dx(n->pool, rows, d, width, dy, width, nn_weight(n, e->param[0]) + first * d, p > 0 || e->add,
                         nn_grad(n, e->in), d);
    }
    return 0;
}

static int act_forward(nn_net *n, const node *e)
{
    const slot *out = &n->slots[e->out];
    layers_act_forward(n->pool, n->m->c.act, nn_rows(n, out), out->width, n->slots[e->in].data, out->data);
    return 0;
}

static int act_backward(nn_net *n, const node *e)
{
    const slot *out = &n->slots[e->out];
    layers_act_backward(n->pool, n->m->c.act, nn_rows(n, out), out->width, n->slots[e->in].data, nn_grad(n, e->out),
                        nn_grad(n, e->in));
    return 0;
}

static int add_forward(nn_net *n, const node *e)
{
    const slot *out = &n->slots[e->out];
    layers_add_forward(n->pool, nn_rows(n, out), out->width, n->slots[e->in].data, n->slots[e->in2].data, nn_dropout(n),
                       nn_seed(n, e), out->data);
    return 0;
}

static int add_backward(nn_net *n, const node *e)
{
    const slot *out = &n->slots[e->out];
    if (n->slots[e->in2].grad == out->grad) /* in, in2 and out share one gradient buffer: nothing to copy */
        return 0;
    if (nn_dropout(n) > 0)
        layers_add_backward(n->pool, nn_rows(n, out), out->width, nn_dropout(n), nn_seed(n, e), nn_grad(n, e->out),
                            nn_grad(n, e->in2));
    else
        memcpy(nn_grad(n, e->in2), nn_grad(n, e->out), (size_t)(nn_rows(n, out) * out->width) * sizeof(real));
    return 0;
}

/* Compute x / sqrt(width). T5 does this before a head that shares the embedding's weights. */
static int scale_forward(nn_net *n, const node *e)
{
    const slot *out = &n->slots[e->out];
    const real s = (real)(1 / sqrt((double)out->width)), *x = n->slots[e->in].data;
    for (int64_t r = 0; r < nn_rows(n, out) * out->width; r++)
        out->data[r] = s * x[r];
    return 0;
}

static int scale_backward(nn_net *n, const node *e)
{
    const slot *out = &n->slots[e->out];
    const real s = (real)(1 / sqrt((double)out->width)), *dy = nn_grad(n, e->out);
    real *dx = nn_grad(n, e->in);
    for (int64_t r = 0; r < nn_rows(n, out) * out->width; r++)
        dx[r] = s * dy[r];
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
                nn_grad(n, e->in)[(b * length + i) * d + c] = nn_grad(n, e->out)[b * d + c] / (real)length;
    return 0;
}

/* ------------------------------------------------------------------------------------------------ head */

/* Compute logits and losses in chunks of rows, so the logits of all rows never have to fit in memory. In training, also
 * compute the backward pass of each chunk. */
static int head_forward(nn_net *n, const node *e)
{
    const slot *in = &n->slots[e->in];
    const int64_t rows = nn_rows(n, in), d = in->width, vocab = n->m->params[e->param[0]].shape[0];
    int64_t targets = 0;
    for (int64_t r = 0; r < rows; r++)
        targets += n->target[r] >= 0;
    for (int64_t from = 0; from < rows; from += HEAD_ROWS) {
        const int64_t count = rows - from < HEAD_ROWS ? rows - from : HEAD_ROWS;
        layers_linear(n->pool, count, d, vocab, in->data + from * d, d, nn_weight(n, e->param[0]), n->logits, vocab);
        layers_softmax_loss(n->pool, count, vocab, n->logits, n->target + from,
                            targets ? n->factor / (double)targets : 0, n->loss + from,
                            n->right ? n->right + from : NULL);
        if (!n->train)
            continue;
        layers_linear_dw(n->pool, count, d, vocab, n->logits, vocab, in->data + from * d, d,
                         nn_gradient(n, e->param[0]));
        layers_linear_dx(n->pool, count, d, vocab, n->logits, vocab, nn_weight(n, e->param[0]), 0,
                         nn_grad(n, e->in) + from * d, d);
    }
    return 0;
}

static int head_backward(nn_net *n, const node *e) /* head_forward has computed the gradients */
{
    (void)n, (void)e;
    return 0;
}

layer_pass *const nn_forward[N_KINDS] = {
    [EMBED] = embed_forward,    [NORM] = norm_forward, [LINEAR] = linear_forward, [ATTENTION] = nn_attention_forward,
    [CROSS] = nn_cross_forward, [ACT] = act_forward,   [ADD] = add_forward,       [SCALE] = scale_forward,
    [POOL] = pool_forward,      [HEAD] = head_forward,
};

layer_pass *const nn_backward[N_KINDS] = {
    [EMBED] = embed_backward,    [NORM] = norm_backward,
    [LINEAR] = linear_backward,  [ATTENTION] = nn_attention_backward,
    [CROSS] = nn_cross_backward, [ACT] = act_backward,
    [ADD] = add_backward,        [SCALE] = scale_backward,
    [POOL] = pool_backward,      [HEAD] = head_backward,
};
