/* net_layers.h -- declarations shared by the layers of a net (net_layers.c, net_attention.c, net_fire.c), the list of
 * layers (net_list.c) and net.c.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef RELPOS_NET_LAYERS_H
#define RELPOS_NET_LAYERS_H

#include "lab/engine/nn.h"

typedef enum node_kind { EMBED, NORM, LINEAR, ATTENTION, CROSS, ACT, ADD, SCALE, POOL, HEAD, N_KINDS } node_kind;

/* The output of a projection has several splits: q, k, v, and columns for the terms. In memory its data is [rows,
 * width], with the splits of a row side by side. Its gradient stores one split after another, each [rows, width of the
 * split], because the operator cannot write outputs with gaps between rows. */
enum { MAX_SPLITS = 3 + RP_MAX_TERMS };
/* The output of a layer. */
typedef struct slot {
    int64_t width;
    int32_t n_splits;
    int64_t split[MAX_SPLITS]; /* width of each split */
    int32_t stack;             /* stack whose tokens the rows belong to */
    bool pooled;               /* true: one row per batch entry; false: one row per token */
    real *data;
    int32_t grad; /* index of the buffer that holds its gradient; -1: none */
} slot;

/* A layer in the list. */
typedef struct node {
    node_kind kind;
    int32_t in, in2, out;          /* indices of slots; in2: second summand of ADD, keys and values of CROSS */
    int32_t layer, stack, n_terms; /* n_terms: number of position terms of ATTENTION in this layer */
    int32_t param[2];              /* [0]: weight; [1]: bias of a norm, or for ATTENTION the factor of log(n) */
    bool add;                      /* NORM, LINEAR: add to the gradient of `in`, which already holds a value */
    real *aux;                     /* NORM: mean and factor of each row; ATTENTION, CROSS: lse */
    real *r;                       /* ATTENTION: array r of xl, the sinusoids times a matrix */
    real *gate;                    /* ATTENTION: logarithms of gates [batch, heads, cache + capacity] */
    real *cache;                   /* ATTENTION: cached keys and values [batch, cache + capacity, 2 width] */
    int32_t array[RP_MAX_TERMS][RP_MAX_ARRAYS]; /* ATTENTION: parameters of the terms; -1: none */
} node;

enum {
    MAX_BUFFERS = 32,
    HEAD_ROWS = 1024 /* rows of logits per chunk of the head */
};

/* The tokens of a stack in the current call. */
typedef struct sequence {
    int64_t capacity, length;
    const int32_t *tokens; /* [batch, length] */
    int32_t *lengths;      /* padded stack: number of tokens of each batch entry [batch] */
    real *sinusoids;       /* sinusoids of the distances, for xl [cache + 2 capacity - 1, width] */
    int64_t *positions;    /* positions of cached and current tokens [cache + capacity]; NULL: 0, 1, 2, ... */
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
    int64_t buffer_size[MAX_BUFFERS]; /* size of each gradient buffer in elements */
    real *buffer[MAX_BUFFERS];
    int32_t refs[MAX_BUFFERS], n_buffers; /* refs: number of gradients in each buffer, while plan_gradients runs */
    real *partial;                        /* partial sums for the gradients of a norm */
    real *scratch;                        /* gradients of the terms of one attention layer */
    int64_t n_scratch;
    real *scaled; /* queries of one attention layer, multiplied by log(n) */
    /* gradients of the biases of nn_fire_rows rows [batch, heads, rows, length], if a layer learns c and L of FIRE */
    real *pairs;
    real *logits; /* logits of at most HEAD_ROWS rows */
    void *work;   /* scratch memory of the operator */
    size_t work_size;
    size_t bytes; /* total memory of the net */
    void *blocks[4096];
    int32_t n_blocks;
    /* arguments of the current call */
    const int32_t *target;
    double factor; /* factor that multiplies the gradients */
    uint64_t seed;
    uint64_t draws; /* how often losses without a seed have drawn positions */
    double *loss;
    bool *right; /* [batch * length], or NULL */
    char *err;
};

/* The passes of each kind of layer. nn_forward computes slot `out` from slots `in` and `in2`; nn_backward computes
 * their gradients from the gradient of `out`. They are separate tables, so a program that only runs models forward does
 * not contain the backward pass. */
typedef int layer_pass(nn_net *n, const node *e);
extern layer_pass *const nn_forward[N_KINDS], *const nn_backward[N_KINDS];

/* Fill the list of nodes and slots; nn_net_create has allocated it (net_list.c). */
void nn_make_list(nn_net *n);

/* net_attention.c */
int nn_attention_forward(nn_net *n, const node *e);
int nn_attention_backward(nn_net *n, const node *e);
int nn_cross_forward(nn_net *n, const node *e);
int nn_cross_backward(nn_net *n, const node *e);

/* net_fire.c. Return true if a layer learns c and L of FIRE. */
bool nn_has_fire_scales(const nn_net *n, const node *e);
/* Return the number of rows whose pairs are in memory at the same time while the gradients of c and L are computed. */
int64_t nn_fire_rows(const nn_net *n, int32_t stack);
/* Add a dense bias to the terms of a layer. Its gradients are the gradients of the scores of all pairs. */
int nn_add_pairs(rp_desc *desc, rp_term terms[RP_MAX_TERMS], char err[NN_ERR_MAX]);
/* Add the gradients of c and L. The plan has the dense bias. t and g are the arguments of the layer's backward call. */
int nn_fire_backward(nn_net *n, const node *e, const rp_plan *plan, const rp_tensors *t, const rp_grads *g);

/* Return the number of cache rows for one batch entry. */
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

/* Return the weights of a parameter; NULL if param is -1. */
static inline real *nn_weight(const nn_net *n, int32_t param)
{
    return param < 0 ? NULL : n->m->w + n->m->params[param].offset;
}

/* Return the gradient of a parameter; NULL if param is -1. */
static inline real *nn_gradient(const nn_net *n, int32_t param)
{
    return param < 0 ? NULL : n->m->g + n->m->params[param].offset;
}

/* Return the gradient of a slot. */
static inline real *nn_grad(const nn_net *n, int32_t s)
{
    return n->buffer[n->slots[s].grad];
}

static inline double nn_dropout(const nn_net *n)
{
    return n->seed ? n->m->c.dropout : 0;
}

/* Return the dropout seed of a layer; each layer has a different one. */
static inline uint64_t nn_seed(const nn_net *n, const node *e)
{
    return layers_random(n->seed, (uint64_t)(e - n->nodes), 0);
}

/* Return channel c of the sinusoidal embedding of a position. */
double nn_sinusoid(double position, int64_t c, int64_t width);
/* Return the number of tokens of a stack that came before the current call. */
int64_t nn_before(const nn_net *n, int32_t stack);
/* Return the number of distinct distances between the queries and the keys of the current call. */
int64_t nn_offsets(const nn_net *n, int32_t stack);
/* Return true if a term of the stack has an array computed from sinusoids (source NN_SINUSOID). If e is not NULL, set
 * *param to the matrix that multiplies them in layer e. */
bool nn_uses_sinusoids(const nn_stack *s, const node *e, int32_t *param);
/* Describe the attention of a layer in the current call. The result points to `terms` and `mask`, which the caller
 * provides. */
rp_desc nn_layer_desc(const nn_net *n, const node *e, rp_term terms[RP_MAX_TERMS], rp_mask *mask);
/* Get the plan and the arrays of a layer's attention; if g is not NULL, those for the backward pass. */
int nn_attention_call(nn_net *n, const node *e, rp_plan **plan, rp_tensors *t, rp_grads *g);

#endif
