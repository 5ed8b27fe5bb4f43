/* layer.h -- the parts of a layer, shared by the files of relpos_layers.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef RELPOS_LAYERS_LAYER_H
#define RELPOS_LAYERS_LAYER_H

#include <relpos/layers.h>
#include <stdbool.h>

/* Set the message of rp_layer_last_error and return the status. */
__attribute__((format(printf, 2, 3))) rp_status layers_fail(rp_status status, const char *format, ...);
rp_status layers_no_memory(const char *what);
/* Report the failure of a call of librelpos. desc may be NULL. */
rp_status layers_core_failed(rp_status status, const rp_desc *desc);

/* The arithmetic of a type (project.c). Arrays are contiguous; x [rows, in], y [rows, out]. */
typedef struct layers_ops {
    size_t size; /* bytes of a number */
    /* y = x W + bias; bias may be NULL */
    void (*project)(rp_pool *pool, int64_t rows, int64_t in, int64_t out, const void *x, const void *w, bool transposed,
                    const void *bias, void *y);
    /* dx = dy W^T, or with add dx += dy W^T */
    void (*project_dx)(rp_pool *pool, int64_t rows, int64_t in, int64_t out, const void *dy, const void *w,
                       bool transposed, bool add, void *dx);
    /* dw += the gradient of W, dbias += the sums of dy over the rows; dbias may be NULL */
    void (*project_dw)(rp_pool *pool, int64_t rows, int64_t in, int64_t out, const void *x, const void *dy,
                       bool transposed, void *dw, void *dbias);
    void (*add)(int64_t n, double factor, const void *x, void *y);                     /* y += factor x */
    void (*set)(int64_t n, uint64_t seed, uint64_t stream, double deviation, void *x); /* normal random numbers */
    /* y [batch, n] = means over the middle axis of x [batch, heads, n] */
    void (*mean)(int64_t batch, int64_t heads, int64_t n, const void *x, void *y);
} layers_ops;
extern const layers_ops layers_ops_f32, layers_ops_f64;

/* Where the weights of a projection are: in a parameter, from an element on. */
typedef struct layers_place {
    int32_t param; /* -1: none */
    int64_t first;
} layers_place;

struct rp_layer {
    rp_layer_desc d; /* without zeros that stand for defaults */
    const layers_ops *ops;
    int64_t in[RP_PROJECTIONS], out[RP_PROJECTIONS]; /* widths */
    rp_layer_param *params;
    int32_t n_params;
    char (*names)[RP_NAME_MAX]; /* of params */
    layers_place weight[RP_PROJECTIONS], bias[RP_PROJECTIONS];
    int32_t term_param[RP_LAYER_TERMS][RP_MAX_ARRAYS]; /* -1: an array of the call */
    rp_array term[RP_LAYER_TERMS][RP_MAX_ARRAYS];      /* the weights as arrays of terms */
};

/* Return the elements of a projection's weights (bias vector), or NULL. */
void *layers_at(const rp_layer *layer, layers_place place);
void *layers_grad_at(const rp_layer *layer, layers_place place);

struct rp_layer_cache {
    const layers_ops *ops;
    int64_t batch, capacity, length, width_k, width_v;
    void *k, *v; /* [batch, capacity, width] */
};

/* Queries, keys, values and the output of attention: [B, L, heads D]. */
typedef enum layers_array { LAYERS_Q, LAYERS_K, LAYERS_V, LAYERS_OUT, LAYERS_LSE, LAYERS_ARRAYS } layers_array;

struct rp_layer_saved {
    const rp_layer *layer;
    int64_t batch, len_q, len_k;
    void *data[LAYERS_ARRAYS];
    bool owned[LAYERS_ARRAYS]; /* false: data is an array of the call */
};

/* The attention of a call as librelpos sees it. */
typedef struct layers_attention {
    rp_term term[2 * RP_LAYER_TERMS];
    rp_desc desc;
    rp_tensors t;
} layers_attention;
/* Fill desc with its terms and masks, and t with the arrays of terms, masks, q, k, v, out and lse. */
void layers_attention_of(layers_attention *a, const rp_layer *layer, const rp_layer_call *call,
                         const rp_layer_saved *s);
/* View [B, L, heads D] as [B, heads, L, D]; `rows` is the number of rows from one batch entry to the next. */
rp_array layers_heads(const rp_layer *layer, void *data, int64_t batch, int64_t heads, int64_t len, int64_t dim,
                      int64_t rows);
/* Return the array that a call uses for keys, or for values. */
static inline const rp_array *layers_key_of(const rp_layer_call *c)
{
    return c->key.ndim ? &c->key : &c->query;
}
static inline const rp_array *layers_value_of(const rp_layer_call *c)
{
    return c->value.ndim ? &c->value : layers_key_of(c);
}
/* Check the arrays of a call, and set the sizes of s. */
rp_status layers_check_call(const rp_layer *layer, const rp_layer_call *call, rp_layer_saved *s);
/* Write a shape, such as "(2, 3)". Return `to`. */
const char *layers_print_shape(char to[128], int32_t ndim, const int64_t *shape);
/* Check that an array is contiguous, and has data and this type and shape. */
rp_status layers_check_array(const char *name, const rp_array *a, rp_dtype dtype, int32_t ndim, const int64_t *shape);
/* Check an array of attention weights or of their gradient, unless it is absent: that of each head, or of the mean. */
rp_status layers_check_weights(const char *name, const rp_layer *layer, const rp_layer_saved *s, const rp_array *a);
/* Check that two arrays have no memory in common. */
rp_status layers_check_apart(const char *a_name, const rp_array *a, const char *b_name, const rp_array *b);
/* Check that an output has no memory in common with an input of the call. */
rp_status layers_check_output(const char *name, const rp_array *output, const rp_layer_call *call);
/* Check that the call's arrays of terms, or their gradients, belong to terms and are not weights. */
rp_status layers_check_terms(const rp_layer *layer, const rp_layer_call *call,
                             const rp_array term[2 * RP_LAYER_TERMS][RP_MAX_ARRAYS]);
/* Return the number of elements of an array of that shape; -1 if a size is negative, or if the product of the sizes
 * other than 0 overflows a size in bytes of 8-byte numbers. */
int64_t layers_count(int32_t ndim, const int64_t *shape);

#endif
