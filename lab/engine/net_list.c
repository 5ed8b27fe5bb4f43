/* net_list.c -- builds the list of the layers of a model, in order, with the slots that each layer reads and writes.
 *
 * embed ─ x ┬ norm ─ linear ─ attention ─ linear ┬ add ─ x ┬ norm ─ linear ─ act ─ linear ┬ add … norm ─ (pool) ─ head
 *           └────────────────────────────────────┘         └──────────────────────────────┘
 *
 * In an encoder-decoder the encoder comes first. A decoder layer has cross-attention after self-attention; its keys and
 * values come from a linear layer applied to the output of the encoder.
 * SPDX-License-Identifier: Apache-2.0 */
#include "lab/engine/net_layers.h"
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* Add a slot with this width; copy the stack and the `pooled` flag from slot `like`. Return its index. */
static int32_t add_slot(nn_net *n, int64_t width, int32_t like)
{
    slot *s = &n->slots[n->n_slots];
    *s = (slot){.width = width, .n_splits = 1, .split = {width}, .grad = -1};
    if (like >= 0) {
        s->stack = n->slots[like].stack;
        s->pooled = n->slots[like].pooled;
    }
    return n->n_slots++;
}

/* Set the splits of a projection: queries, keys, values, and the columns for the terms of the layer. */
static void split_projection(const nn_model *m, int32_t n_terms, slot *s)
{
    const nn_stack *stack = &m->stack[s->stack];
    for (s->n_splits = 0; s->n_splits < 3; s->n_splits++)
        s->split[s->n_splits] = m->c.width;
    for (int32_t t = 0; t < n_terms; t++)
        for (int x = 0; x < RP_MAX_ARRAYS; x++)
            if (stack->terms[t].source[x] == NN_GATE)
                s->split[s->n_splits++] = m->c.heads;
            else if (stack->terms[t].source[x] == NN_COLUMNS)
                s->split[s->n_splits++] = m->c.heads * stack->terms[t].term.width;
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
    e->out = kind == HEAD ? -1 : add_slot(n, width, in);
    e->stack = in >= 0 ? n->slots[in].stack : 0;
    return e->out;
}

static void find_arrays(nn_net *n, node *e)
{
    const nn_stack *s = &n->m->stack[e->stack];
    char name[96];
    for (int32_t t = 0; t < e->n_terms; t++)
        for (int x = 0; x < RP_MAX_ARRAYS; x++) {
            const nn_term *term = &s->terms[t];
            e->array[t][x] = -1;
            if (term->source[x] == NN_ABSENT || term->source[x] == NN_COLUMNS || term->source[x] >= NN_QUERIES)
                continue;
            const char *array = rp_term_array(term->term.kind, x), *tail = term->source[x] == NN_SINUSOID ? ".weight"
                                                                           : term->source[x] == NN_GATE   ? ".bias"
                                                                                                          : "";
            if (n->m->c.position_layers)
                snprintf(name, sizeof name, "%sattn.%s.%s%s", s->prefix, term->name, array, tail);
            else
                snprintf(name, sizeof name, "%slayers.%d.attn.%s.%s%s", s->prefix, (int)e->layer, term->name, array,
                         tail);
            e->array[t][x] = nn_model_find(n->m, name);
        }
}

/* Add layers that compute x + dropout(y). */
static int32_t add_sum(nn_net *n, int32_t x, int32_t y, int32_t layer)
{
    const int32_t out = add_node(n, ADD, x, n->m->c.width, layer, "sum");
    n->nodes[n->n_nodes - 1].in2 = y;
    return out;
}

/* Add layers that compute x + cross-attention of norm(x) to the rows of slot `memory`. */
static int32_t add_cross(nn_net *n, int32_t x, int32_t memory, const char *in, int32_t layer)
{
    const int64_t d = n->m->c.width;
    const int32_t kv = add_node(n, LINEAR, memory, 2 * d, layer, "%slayers.%d.cross.kv", in, (int)layer);
    slot *s = &n->slots[kv];
    s->n_splits = 2;
    s->split[0] = s->split[1] = d;
    int32_t y = add_node(n, NORM, x, d, layer, "%slayers.%d.cross_norm", in, (int)layer);
    y = add_node(n, LINEAR, y, d, layer, "%slayers.%d.cross.q", in, (int)layer);
    y = add_node(n, CROSS, y, d, layer, "%slayers.%d.cross", in, (int)layer);
    n->nodes[n->n_nodes - 1].in2 = kv;
    y = add_node(n, LINEAR, y, d, layer, "%slayers.%d.cross.out", in, (int)layer);
    return add_sum(n, x, y, layer);
}

/* Add the embedding, the layers and the last norm of a stack. `memory` is the output slot of the previous stack; -1:
 * none. */
static int32_t add_stack(nn_net *n, int32_t stack, int32_t memory)
{
    const nn_config *c = &n->m->c;
    const nn_stack *s = &n->m->stack[stack];
    const char *in = s->prefix;
    const int64_t d = c->width, up = layers_act_columns(c->act, c->mlp);
    char name[96];
    int32_t x = add_node(n, EMBED, -1, d, 0, "embedding"), y;
    n->nodes[n->n_nodes - 1].stack = n->slots[x].stack = stack;
    snprintf(name, sizeof name, "%spositions.weight", in);
    n->nodes[n->n_nodes - 1].param[1] = nn_model_find(n->m, name);
    for (int32_t l = 0; l < (int32_t)s->layers; l++) {
        y = add_node(n, NORM, x, d, l, "%slayers.%d.attn_norm", in, (int)l);
        const int32_t n_terms = nn_layer_terms(n->m, stack, l, NULL);
        y = add_node(n, LINEAR, y, n_terms > 0 ? s->columns : 3 * d, l, "%slayers.%d.attn.qkv", in, (int)l);
        split_projection(n->m, n_terms, &n->slots[y]);
        y = add_node(n, ATTENTION, y, d, l, "%slayers.%d.attn", in, (int)l);
        n->nodes[n->n_nodes - 1].n_terms = n_terms;
        find_arrays(n, &n->nodes[n->n_nodes - 1]);
        snprintf(name, sizeof name, "%slayers.%d.attn.log_scale", in, (int)l);
        n->nodes[n->n_nodes - 1].param[1] = nn_model_find(n->m, name);
        y = add_node(n, LINEAR, y, d, l, "%slayers.%d.attn.out", in, (int)l);
        x = add_sum(n, x, y, l);
        if (s->cross)
            x = add_cross(n, x, memory, in, l);
        y = add_node(n, NORM, x, d, l, "%slayers.%d.mlp_norm", in, (int)l);
        y = add_node(n, LINEAR, y, up, l, "%slayers.%d.mlp.up", in, (int)l);
        y = add_node(n, ACT, y, c->mlp, l, "%slayers.%d.mlp.act", in, (int)l);
        y = add_node(n, LINEAR, y, d, l, "%slayers.%d.mlp.down", in, (int)l);
        x = add_sum(n, x, y, l);
    }
    return add_node(n, NORM, x, d, 0, "%snorm", in);
}

void nn_make_list(nn_net *n)
{
    const nn_config *c = &n->m->c;
    int32_t x = -1;
    for (int32_t k = 0; k < n->m->n_stacks; k++)
        x = add_stack(n, k, x);
    if (c->task == NN_ENCODER_DECODER && c->tied)
        x = add_node(n, SCALE, x, c->width, 0, "scale");
    if (c->task == NN_CLASSIFIER) {
        x = add_node(n, POOL, x, c->width, 0, "pool");
        n->slots[x].pooled = true;
    }
    add_node(n, HEAD, x, 0, 0, "%s", c->task == NN_CLASSIFIER || !c->tied ? "head" : "embedding");
}
