/* net_layers.h -- what the layers of a net (net_layers.c, net_attention.c), its list of them (net_list.c) and net.c see.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef RELPOS_NET_LAYERS_H
#define RELPOS_NET_LAYERS_H

#include "lab/engine/nn.h"

typedef enum node_kind { EMBED, NORM, LINEAR, ATTENTION, CROSS, ACT, ADD, SCALE, POOL, HEAD, N_KINDS } node_kind;

/* The output of a projection has several splits: q, k, v, and columns that terms use. Its data is interleaved, [rows, width]; its gradient
 * has one split after another, [rows, width of the split] each, because outputs of the operator may not be interleaved. */
enum { MAX_SPLITS = 3 + RP_MAX_TERMS };
typedef struct slot {
    int64_t width;
    int32_t n_splits;
    int64_t split[MAX_SPLITS]; /* widths */
    int32_t stack;             /* whose tokens its rows belong to */
    bool pooled;               /* a row for each batch entry, not for each token */
    real *data;
    int32_t grad; /* its buffer; -1: none */
} slot;

typedef struct node {
    node_kind kind;
    int32_t in, in2, out;          /* slots; in2: what ADD adds to `in`, or the keys and values of CROSS */
    int32_t layer, stack, n_terms; /* n_terms: ATTENTION: those of the stack, or none */
    int32_t param[2];              /* weight, and bias of a norm; ATTENTION: [1] what log(n) is multiplied by */
    bool add;                      /* NORM, LINEAR: the gradient of `in` has a value already: add to it */
    real *aux;                     /* NORM: mean and factor of each row; ATTENTION, CROSS: lse */
    real *r;                       /* ATTENTION: products of the sinusoids, for xl */
    real *gate;                    /* ATTENTION: logarithms of gates [batch, heads, cache + capacity] */
    real *cache; /* ATTENTION: keys and values of the tokens before [batch, cache + capacity, 2 width] */
    int32_t array[RP_MAX_TERMS][RP_MAX_ARRAYS]; /* ATTENTION: parameters of the terms; -1: none */
} node;

enum { MAX_BUFFERS = 32, HEAD_ROWS = 1024 };

/* The tokens of a stack, those of the current call. */
typedef struct sequence {
    int64_t capacity, length;
    const int32_t *tokens; /* [batch, length] */
    int32_t *lengths;      /* of a padded stack [batch] */
    real *sinusoids;       /* of distances, for xl [2 capacity - 1, width] */
    int64_t *positions;    /* of the tokens in the cache and of the call [cache + capacity]; NULL: 0, 1, 2, ... */
} sequence;

struct nn_net {
    nn_model *m;
    rp_pool *pool;
    int64_t batch, cache, cached;
    sequence of[NN_STACKS];
    bool train;
    node *nodes;
    int32_t n_nodes;
    slot *slots;
    int32_t n_slots;
    int64_t buffer_size[MAX_BUFFERS]; /* of gradients, in numbers */
    real *buffer[MAX_BUFFERS];
    int32_t refs[MAX_BUFFERS], n_buffers; /* refs: gradients that a buffer holds while the list is planned */
    real *partial;                        /* of the norms' gradients */
    real *scratch;                        /* gradients of the terms of one attention */
    int64_t n_scratch;
    real *scaled; /* queries of one attention, multiplied by log(n) */
    /* gradients of the biases of one attention, where fire's c and L are learned [heads, length, length] */
    real *pairs;
    real *logits; /* of HEAD_ROWS rows at most */
    void *work;   /* of the operator */
    size_t work_size;
    size_t bytes; /* of all memory */
    void *blocks[4096];
    int32_t n_blocks;
    /* arguments of the current call */
    const int32_t *target;
    double share; /* that gradients are multiplied by */
    bool add;     /* to the gradients that the model has */
    uint64_t seed;
    uint64_t draws; /* of positions, for losses without a seed */
    double *loss;
    bool *right; /* NULL: not asked for */
    char *err;
};

/* The layers: forward from the slots `in` to the slot `out`, and backward from the gradient of `out`. */
typedef struct layer_kind {
    int (*forward)(nn_net *n, const node *e);
    int (*backward)(nn_net *n, const node *e);
} layer_kind;
extern const layer_kind nn_kinds[N_KINDS];

/* Make the list of a net whose nodes and slots have memory enough (net_list.c). */
void nn_make_list(nn_net *n);

/* net_attention.c */
int nn_attention_forward(nn_net *n, const node *e);
int nn_attention_backward(nn_net *n, const node *e);
int nn_cross_forward(nn_net *n, const node *e);
int nn_cross_backward(nn_net *n, const node *e);

/* net_fire.c: whether c and L of fire are learned in a layer; add their gradients, from those of the biases of all pairs. */
bool nn_has_fire_scales(const nn_net *n, const node *e);
int nn_fire_backward(nn_net *n, const node *e);

/* Rows of a batch entry's keys and values in the cache. */
static inline int64_t nn_cache_rows(const nn_net *n, const node *e)
{
    return n->cache + n->of[e->stack].capacity;
}

static inline int64_t nn_rows(const nn_net *n, const slot *s)
{
    return n->batch * (s->pooled ? 1 : n->of[s->stack].length);
}

static inline const nn_stack *nn_stack_of(const nn_net *n, const node *e)
{
    return &n->m->stack[e->stack];
}

/* A parameter, its gradient, and the gradient of a slot. */
static inline real *nn_weight(const nn_net *n, int32_t param)
{
    return param < 0 ? NULL : n->m->w + n->m->params[param].offset;
}

static inline real *nn_gradient(const nn_net *n, int32_t param)
{
    return param < 0 ? NULL : n->m->g + n->m->params[param].offset;
}

static inline real *nn_grad(const nn_net *n, int32_t s)
{
    return n->buffer[n->slots[s].grad];
}

static inline double nn_dropout(const nn_net *n)
{
    return n->seed ? n->m->c.dropout : 0;
}

/* Each layer with dropout has a seed of its own. */
static inline uint64_t nn_seed(const nn_net *n, const node *e)
{
    return nn_random(n->seed, (uint64_t)(e - n->nodes), 0);
}

/* Channel c of the absolute position's sinusoids. */
double nn_sinusoid(double position, int64_t c, int64_t width);
/* How many tokens of a stack came before those of the current call. */
int64_t nn_before(const nn_net *n, int32_t stack);
/* How many distances there are between the queries and the keys of the current call. */
int64_t nn_offsets(const nn_net *n, int32_t stack);
/* Whether a term of a stack has an array that is made of sinusoids; of node e, which may be NULL, *param gets the matrix that multiplies
 * them. */
bool nn_uses_sinusoids(const nn_stack *s, const node *e, int32_t *param);
/* What the attention of a node computes in the current call; terms and mask are the caller's memory. */
rp_desc nn_layer_desc(const nn_net *n, const node *e, rp_term terms[RP_MAX_TERMS], rp_mask *mask);
/* The plan and arrays of a call, and of its backward pass where g is not NULL. */
int nn_attention_call(nn_net *n, const node *e, rp_plan **plan, rp_tensors *t, rp_grads *g);

#endif
