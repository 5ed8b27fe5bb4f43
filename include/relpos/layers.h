/* layers.h -- multi-head attention with its projections, forward and backward. The library is relpos_layers; it uses
 * relpos.
 *
 *     q = query Wq^T + bq    k = key Wk^T + bk    v = value Wv^T + bv    out = attention(q, k, v) Wo^T + bo
 *
 * where attention is that of relpos.h, with the terms and masks of a description. Each projection and each bias vector
 * may be absent.
 *
 *     rp_layer_desc d = rp_layer_t5_attention(512, 8, 32, 128, 1, 1);       f32; d.dtype = RP_F64 for f64
 *     d.mask[d.n_masks++] = rp_mask_init(RP_MASK_CAUSAL);                   for a decoder
 *     rp_layer     *layer;
 *     if (rp_layer_create(&layer, &d) != RP_OK) { puts(rp_layer_last_error()); exit(1); }
 *     rp_layer_random(layer, 1);                                            or rp_layer_read(layer, "layer.npz", NULL)
 *     rp_layer_call call = rp_layer_call_init();
 *     call.query = rp_array_of(x, RP_F32, 3, shape);  call.out = rp_array_of(y, RP_F32, 3, shape);
 *     rp_layer_saved *saved;
 *     if (rp_layer_forward(layer, &call, &saved) != RP_OK) { puts(rp_layer_last_error()); exit(1); }
 *     rp_layer_grads g = rp_layer_grads_init();
 *     g.dout = rp_array_of(dy, RP_F32, 3, shape);
 *     rp_layer_backward(layer, &call, saved, &g);                           adds to the gradients of the weights
 *     rp_layer_step(layer, 0.01);
 *     rp_layer_saved_free(saved);  rp_layer_destroy(layer);
 *
 * Letters  B batch, Lq queries, Lk keys, H heads, Hk key/value heads, Dk and Dv widths of a head.
 * Bits     results have the same bits for any pool. Matrix products are plain loops with the same bits on every
 *          machine; those of attention depend on the instruction set (relpos.h). rp_layers_use_blas replaces the
 *          plain loops.
 * Memory   O(Lq + Lk), except for weights on request.
 * Errors   every function that can fail returns rp_status, and its paragraph "Returns" names the errors.
 *          rp_layer_last_error describes the failure in one line.
 * Threads  any number of threads may call rp_layer_forward on one layer. Calls that change the layer (backward, step,
 *          read, random) need it alone.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef RELPOS_LAYERS_H
#define RELPOS_LAYERS_H

#include "relpos.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ------------------------------------------------------------------------------ descriptions: what a layer computes */

/* Return one line about the last failure of this library on this thread, or "" if there was none. */
RP_API const char *rp_layer_last_error(void);

#define RP_LAYER_TERMS 4 /* largest number of terms of a layer */
#define RP_LAYER_MASKS 4 /* largest number of masks of a layer */

/* The four projections. */
typedef enum rp_projection {
    RP_Q = 0,          /* of query */
    RP_K = 1,          /* of key */
    RP_V = 2,          /* of value */
    RP_O = 3,          /* of the output of attention */
    RP_PROJECTIONS = 4 /* number of projections */
} rp_projection;

/* A description of a layer. Start from rp_layer_desc_init or from the function of a published class below. It is plain
 * data.
 *
 * The learned arrays of the terms are weights of the layer, except those that may be absent (slopes of ALIBI) and those
 * whose shape depends on the batch or the lengths (the bias of DENSE): these belong to each call. */
typedef struct rp_layer_desc {
    size_t size;                    /* sizeof(rp_layer_desc) */
    rp_dtype dtype;                 /* RP_F32 or RP_F64: type of all arrays of the layer and of its arithmetic */
    int64_t width;                  /* width of query; this and the sizes below are 1 … 2^31-1 */
    int64_t key_width;              /* width of key; 0 = width */
    int64_t value_width;            /* width of value; 0 = key_width */
    int64_t out_width;              /* width of out; 0 = width, or H Dv without an output projection */
    int64_t heads;                  /* H >= 1 */
    int64_t kv_heads;               /* Hk, divides H; 0 = H */
    int64_t dim_k;                  /* Dk; 0 = width / heads */
    int64_t dim_v;                  /* Dv; 0 = Dk */
    int32_t weight[RP_PROJECTIONS]; /* 1: the projection exists; 0: its input is used as it is */
    int32_t bias[RP_PROJECTIONS];   /* 1: the projection has a bias vector */
    int32_t packed;     /* 1: the rows of Wq, Wk and Wv are one array (and bq, bk, bv), named as that of Q */
    int32_t transposed; /* 1: weights are [in, out], y = x W; 0: [out, in], y = x W^T, as in torch.nn.Linear */
    int32_t one_table;  /* 1: arrays of terms are shared by the heads; 0: one for each head */
    int32_t flat;       /* 1: axes of length 1 of the arrays of terms are left out of their shapes */
    double scale;       /* factor of <q, k>; RP_SCALE_AUTO = 1/sqrt(Dk) */
    double softcap;     /* as in rp_desc */
    double dropout;     /* probability with which calls with `train` drop a weight */
    int32_t n_terms;    /* number of terms */
    int32_t n_masks;    /* number of masks */
    rp_term term[RP_LAYER_TERMS];                         /* terms of attention */
    rp_mask mask[RP_LAYER_MASKS];                         /* masks of attention */
    const char *weight_name[RP_PROJECTIONS];              /* names in files; NULL: "q_proj.weight" and so on */
    const char *bias_name[RP_PROJECTIONS];                /* NULL: "q_proj.bias" and so on */
    const char *term_name[RP_LAYER_TERMS][RP_MAX_ARRAYS]; /* NULL: such as "term0.table" */
} rp_layer_desc;

/* Return a description of plain self-attention: f32, four projections without bias vectors, Dk = width / heads, scale
 * 1/sqrt(Dk), no terms, no masks. */
RP_API rp_layer_desc rp_layer_desc_init(int64_t width, int64_t heads);

/* ------------------------------------------------------------------------- published classes and their descriptions */

/* RelativePositionBiasAttention(d_k, bias_scale) of "Relative Position Bias Attention": one head without projections,
 * softmax(Q K^T / sqrt(d_k) - bias_scale log(1 + |i - j|)) V. Q and K have width d_k, V has width d_v. Type f64. */
RP_API rp_layer_desc rp_layer_position_bias_attention(int64_t d_k, int64_t d_v, double bias_scale);

/* The learned variant of the same class: relative_bias_table [num_buckets] holds a bias for each bucket of T5
 * (bidirectional) in place of the logarithm. */
RP_API rp_layer_desc rp_layer_position_table_attention(int64_t d_k, int64_t d_v, int64_t num_buckets,
                                                       int64_t max_distance);

/* RelativeSelfAttention(embed_dim, d_k, d_v, max_distance) of "Relative Position Encoding", a tutorial on Shaw 2018:
 * one head, W_q, W_k [embed_dim, d_k] and W_v [embed_dim, d_v] with y = x W, no output projection, and vectors
 * rel_embed.a_K [2 max_distance + 1, d_k] and rel_embed.a_V [2 max_distance + 1, d_v] for each clipped offset j - i.
 * Type f64. */
RP_API rp_layer_desc rp_layer_relative_self_attention(int64_t embed_dim, int64_t d_k, int64_t d_v,
                                                      int64_t max_distance);

/* Attention of a ViT, to whose input an absolute table was added: qkv.weight [3 dim, dim], qkv.bias, proj.weight,
 * proj.bias, no terms. */
RP_API rp_layer_desc rp_layer_vit_attention(int64_t dim, int64_t num_heads);

/* Swin's attention in windows of window_h x window_w tokens: as rp_layer_vit_attention, with
 * relative_position_bias_table [(2 window_h - 1)(2 window_w - 1), num_heads]. For shifted windows, add a mask of kind
 * RP_MASK_SEGMENTS, whose array is that of rp_window_labels. */
RP_API rp_layer_desc rp_layer_window_attention(int64_t dim, int64_t window_h, int64_t window_w, int64_t num_heads);

/* T5Attention(dim, num_heads, num_buckets, max_distance, has_relative_bias, bidirectional) of "Relative Positional
 * Bias (T5-style)": q_proj, k_proj, v_proj, o_proj without bias vectors, scores divided by sqrt(Dk), and if
 * has_relative_bias, T5's buckets with relative_bias.relative_attention_bias.weight [num_buckets, num_heads]. T5
 * itself does not divide: set scale = 1. A layer without a table uses that of another layer through
 * rp_layer_call.terms_of. */
RP_API rp_layer_desc rp_layer_t5_attention(int64_t dim, int64_t num_heads, int64_t num_buckets, int64_t max_distance,
                                           int has_relative_bias, int bidirectional);

/* RelativePositionalBias(num_heads, num_buckets, max_distance, bidirectional) of the same text, alone:
 * relative_attention_bias.weight [num_buckets, num_heads], without projections. rp_layer_biases computes its array; to
 * share it between layers, pass it as rp_layer_call.terms_of. */
RP_API rp_layer_desc rp_layer_relative_positional_bias(int64_t num_heads, int64_t num_buckets, int64_t max_distance,
                                                       int bidirectional);

/* AdditiveRelMultiheadAttention(embed_dim, num_heads, max_distance, dropout, bias) of symm_learning: the weights of
 * torch.nn.MultiheadAttention (attn.in_proj_weight, attn.out_proj.weight and, with `bias`, their bias vectors), and
 * rel_bias [2 max_distance + 1], which is subtracted: scores - rel_bias[trunc(clamp(p_q - p_k)) + max_distance]. Real
 * positions are arrays of each call, rp_layer_call.term[0][1] for queries and [2] for keys, [L] or [B, L]; [3] and [4]
 * are their masks, 0 where a token has no position. Without them, positions are indices. */
RP_API rp_layer_desc rp_layer_additive_rel_attention(int64_t embed_dim, int64_t num_heads, int64_t max_distance,
                                                     double dropout, int bias);

/* ----------------------------------------------------------------------------------------- layers and their weights */

/* A layer with its weights and their gradients. */
typedef struct rp_layer rp_layer;

/* Create a layer. Its weights and gradients are zeros.
 * Returns  RP_OK and *layer; on an error *layer = NULL and RP_E_ARG, RP_E_SHAPE, RP_E_RANGE, RP_E_UNSUPPORTED,
 *          RP_E_OVERFLOW or RP_E_NOMEM. */
RP_API rp_status rp_layer_create(rp_layer **layer, const rp_layer_desc *desc);

/* Destroy a layer that no call is using. NULL is allowed. */
RP_API void rp_layer_destroy(rp_layer *layer);

/* A weight of a layer: a contiguous array of the layer's type. Later versions may add fields at the end. */
typedef struct rp_layer_param {
    const char *name;           /* name in files */
    int32_t ndim;               /* number of axes */
    int64_t shape[RP_MAX_AXES]; /* elements along each axis */
    int64_t n;                  /* number of elements */
    void *data;                 /* the elements; you may write them */
    void *grad;                 /* their gradients; rp_layer_backward adds to them */
} rp_layer_param;

/* Return weight number `index` of a layer (projections Q, K, V, O with their bias vectors, then arrays of terms), or
 * NULL past the last. */
RP_API rp_layer_param *rp_layer_param_at(rp_layer *layer, int32_t index);

/* Return the weight with a name, or NULL if there is none. */
RP_API rp_layer_param *rp_layer_param_named(rp_layer *layer, const char *name);

/* Draw the weights: projections and vectors normal with variance 2 / (rows + columns) (Xavier), other arrays of terms
 * normal with standard deviation 0.02, bias vectors zero. The numbers depend only on the seed and the shapes. */
RP_API void rp_layer_random(rp_layer *layer, uint64_t seed);

/* Set the gradients to zero. */
RP_API void rp_layer_zero_grad(rp_layer *layer);

/* Take a step of gradient descent, weight -= rate * gradient, and set the gradients to zero. */
RP_API void rp_layer_step(rp_layer *layer, double rate);

/* Read the weights from a .safetensors or .npz file with arrays under their names, of any floating type, converted to
 * the layer's type. Other arrays of the file are ignored; *unused (may be NULL) receives their number.
 * Returns  RP_OK; RP_E_ARG if the file cannot be read; RP_E_SHAPE if an array is missing or has another shape, with its
 *          name; RP_E_NOMEM. After an error the layer has not changed. */
RP_API rp_status rp_layer_read(rp_layer *layer, const char *path, int64_t *unused);

/* Write the weights to a .safetensors or .npz file, completely or not at all.
 * Returns  RP_OK; RP_E_ARG if the name has another ending or the file cannot be written; RP_E_NOMEM. */
RP_API rp_status rp_layer_write(const rp_layer *layer, const char *path);

/* -------------------------------------------------------------------------------------------------- calls of layers */

/* The keys and values of the tokens so far, for decoding. */
typedef struct rp_layer_cache rp_layer_cache;

/* Create an empty cache for `batch` sequences, 0 or more, of up to `capacity` tokens, 0 or more.
 * Returns  RP_OK and *cache; on an error *cache = NULL and RP_E_ARG, RP_E_RANGE, RP_E_OVERFLOW or RP_E_NOMEM. */
RP_API rp_status rp_layer_cache_create(rp_layer_cache **cache, const rp_layer *layer, int64_t batch, int64_t capacity);

/* Destroy a cache. NULL is allowed. */
RP_API void rp_layer_cache_destroy(rp_layer_cache *cache);

/* Return the number of tokens in a cache. */
RP_API int64_t rp_layer_cache_length(const rp_layer_cache *cache);

/* Set the number of tokens: 0 to begin a new sequence, fewer than before to drop the last ones; larger numbers have no
 * effect. */
RP_API void rp_layer_cache_truncate(rp_layer_cache *cache, int64_t length);

/* The arrays of a call. Start from rp_layer_call_init. All have the layer's type and are contiguous, except arrays of
 * terms and masks, which are as in rp_tensors.
 *
 * Shapes   query [B, Lq, width], key [B, Lk, key_width], value [B, Lk, value_width], out [B, Lq, out_width]; weights
 *          [B, H, Lq, Lk], or [B, Lq, Lk] for their mean over the heads. An absent key is the query (self-attention);
 *          an absent value is the key. B Lq and B Lk must be less than 2^31.
 * Memory   outputs must not overlap other arrays. */
typedef struct rp_layer_call {
    size_t size;      /* sizeof(rp_layer_call) */
    rp_array query;   /* queries come from this array */
    rp_array key;     /* keys come from this array */
    rp_array value;   /* values come from this array */
    rp_array out;     /* output; may be absent if weights is present */
    rp_array weights; /* output: attention weights, after dropout; absent: not computed */
    rp_array term[2 * RP_LAYER_TERMS][RP_MAX_ARRAYS]; /* arrays of the terms that are not weights of the layer: those of
                                                         the layer's terms, then those of terms_of */
    rp_array mask[RP_LAYER_MASKS];                    /* arrays of the masks */
    int64_t q_offset; /* position of query 0, -2^60 … 2^60; with a cache, its length is added */
    /* A layer whose terms are added to those of this one, such as the first layer of T5. Their gradients are added to
     * that layer. It has the type and heads of this layer; NULL: none. */
    rp_layer *terms_of;
    /* The call appends its keys and values to the cache, and attends to all of the cache. A key with Lk = 0 appends
     * nothing. Lengths of masks and terms are those of the whole cache. NULL: none. */
    rp_layer_cache *cache;
    int32_t train; /* 1: drop weights with probability desc.dropout */
    uint64_t seed; /* seed of dropout */
    rp_pool *pool; /* NULL: the default pool */
} rp_layer_call;

/* Return a call with every array absent. */
RP_API rp_layer_call rp_layer_call_init(void);

/* What a forward call keeps for rp_layer_backward: q, k, v, the output of attention and the logarithms of its row
 * sums. */
typedef struct rp_layer_saved rp_layer_saved;

/* Free the result of rp_layer_forward. NULL is allowed. */
RP_API void rp_layer_saved_free(rp_layer_saved *saved);

/* Compute out and weights. If `saved` is not NULL, *saved receives what rp_layer_backward needs, and NULL on an error;
 * it then excludes a cache.
 * Edges    a row that may attend to no key has out = bo, or 0 without bo. An error leaves the cache as it was.
 * Returns  RP_OK, RP_E_ARG, RP_E_SHAPE, RP_E_STRIDE, RP_E_RANGE, RP_E_OVERLAP, RP_E_UNSUPPORTED, RP_E_OVERFLOW,
 *          RP_E_NOMEM. */
RP_API rp_status rp_layer_forward(const rp_layer *layer, const rp_layer_call *call, rp_layer_saved **saved);

/* The gradients of a call. Start from rp_layer_grads_init. Absent outputs are not computed; outputs must not overlap
 * other arrays. If call.key is absent, dquery includes the gradient of the keys. If call.value is absent, the gradient
 * of the array in its place includes that of the values.
 *
 * Shapes   those of the arrays of the call. dout and dweights are inputs. */
typedef struct rp_layer_grads {
    size_t size;                                      /* sizeof(rp_layer_grads) */
    rp_array dout;                                    /* gradient of the loss with respect to out */
    rp_array dquery;                                  /* output */
    rp_array dkey;                                    /* output; absent if call.key is absent */
    rp_array dvalue;                                  /* output; absent if call.value is absent */
    rp_array term[2 * RP_LAYER_TERMS][RP_MAX_ARRAYS]; /* outputs: gradients of learned arrays of call.term */
    /* gradient of the loss with respect to the attention weights, [B, H, Lq, Lk], or [B, Lq, Lk] for those of their
     * mean over the heads; absent = 0. The backward pass then takes about twice as long. */
    rp_array dweights;
} rp_layer_grads;

/* Return gradients with every array absent. */
RP_API rp_layer_grads rp_layer_grads_init(void);

/* Compute the gradients of sum(dout * out) + sum(dweights * weights). Those of the weights of the layer are added to
 * rp_layer_param.grad; those of the inputs are written. `call` is that of the forward call, and the weights and arrays
 * must not have changed.
 * Returns  RP_OK, RP_E_ARG, RP_E_SHAPE, RP_E_STRIDE, RP_E_RANGE, RP_E_OVERLAP, RP_E_OVERFLOW, RP_E_NOMEM. */
RP_API rp_status rp_layer_backward(rp_layer *layer, const rp_layer_call *call, const rp_layer_saved *saved,
                                   const rp_layer_grads *g);

/* Compute the biases of the layer's terms for queries q_offset … q_offset + Lq - 1 and keys 0 … Lk - 1, as an array.
 * Needs terms without arrays of the call.
 * Shapes   bias [1, H, Lq, Lk] of the layer's type.
 * Returns  RP_OK, RP_E_ARG, RP_E_SHAPE, RP_E_STRIDE, RP_E_OVERFLOW, RP_E_NOMEM; RP_E_RANGE unless q_offset is
 *          -2^60 … 2^60. */
RP_API rp_status rp_layer_biases(const rp_layer *layer, int64_t q_offset, const rp_array *bias);

/* A function with the interface of cblas_sgemm. */
typedef void rp_sgemm(int order, int transa, int transb, int m, int n, int k, float alpha, const float *a, int lda,
                      const float *b, int ldb, float beta, float *c, int ldc);
/* A function with the interface of cblas_dgemm. */
typedef void rp_dgemm(int order, int transa, int transb, int m, int n, int k, double alpha, const double *a, int lda,
                      const double *b, int ldb, double beta, double *c, int ldc);

/* Use functions of a CBLAS for the matrix products of all layers, or NULL for plain loops. Set it to one thread; the
 * pool divides the work. Results then have the bits of that CBLAS. Call this before other threads use layers. */
RP_API void rp_layers_use_blas(rp_sgemm *sgemm, rp_dgemm *dgemm);

/* ------------------------------------------------------------------------------ images: patches, tables and windows */

/* Arrays of images are contiguous f32 or f64, and both arrays of a call have one type. */

/* Cut images into patches of size x size pixels: patches[b, y n + x, (c, dy, dx)] = images[b, c, y size + dy, x size +
 * dx], with n patches in a row. A product with the weights of a convolution of the same stride embeds them, as in a
 * ViT.
 * Shapes   images [B, C, n_h size, n_w size], patches [B, n_h n_w, C size size]; size >= 1.
 * Returns  RP_OK, RP_E_ARG, RP_E_SHAPE, RP_E_STRIDE, RP_E_OVERLAP. */
RP_API rp_status rp_patches(const rp_array *images, int64_t size, const rp_array *patches);

/* Put patches together: the inverse of rp_patches, which is also its gradient.
 * Shapes   as rp_patches.
 * Returns  as rp_patches. */
RP_API rp_status rp_patches_back(const rp_array *patches, int64_t size, const rp_array *images);

/* How rp_resize_table interpolates: as torch.nn.functional.interpolate with align_corners=False. */
typedef enum rp_interpolation {
    RP_BILINEAR = 0, /* mode="bilinear" */
    RP_BICUBIC = 1   /* mode="bicubic" */
} rp_interpolation;

/* Interpolate a table of absolute positions to a grid of another size, as a ViT needs for other image sizes. The first
 * `extra` rows, such as that of a class token, are copied.
 * Shapes   table [extra + from_h from_w, D], resized [extra + to_h to_w, D]; extra >= 0, the other sizes >= 1.
 * Returns  RP_OK, RP_E_ARG, RP_E_SHAPE, RP_E_STRIDE, RP_E_RANGE, RP_E_OVERLAP, RP_E_OVERFLOW. */
RP_API rp_status rp_resize_table(const rp_array *table, int64_t from_h, int64_t from_w, int64_t extra,
                                 rp_interpolation how, const rp_array *resized, int64_t to_h, int64_t to_w);

/* Compute the gradient of rp_resize_table: dtable from dresized, with the same sizes.
 * Returns  as rp_resize_table; also RP_E_NOMEM. */
RP_API rp_status rp_resize_table_back(const rp_array *dresized, int64_t to_h, int64_t to_w, int64_t extra,
                                      rp_interpolation how, const rp_array *dtable, int64_t from_h, int64_t from_w);

/* Windows of a grid of tokens, as in Swin (Liu 2021). The grid is first rolled by -shift: token (y, x) of the rolled
 * grid is token ((y + shift_h) mod h, (x + shift_w) mod w). */
typedef struct rp_windows {
    int64_t h;        /* rows of the grid; a multiple of window_h */
    int64_t w;        /* columns of the grid; a multiple of window_w */
    int64_t window_h; /* rows of a window */
    int64_t window_w; /* columns of a window */
    int64_t shift_h;  /* 0 <= shift_h < window_h */
    int64_t shift_w;  /* 0 <= shift_w < window_w */
} rp_windows;

/* Roll and cut grids into windows.
 * Shapes   grids [B, h, w, C], windows [B n, window_h window_w, C], n = (h / window_h) (w / window_w).
 * Returns  RP_OK, RP_E_ARG, RP_E_SHAPE, RP_E_RANGE, RP_E_STRIDE, RP_E_OVERLAP. */
RP_API rp_status rp_window_partition(const rp_array *grids, const rp_windows *of, const rp_array *windows);

/* Put windows back into grids and undo the roll: the inverse of rp_window_partition, which is also its gradient.
 * Shapes   as rp_window_partition.
 * Returns  as rp_window_partition. */
RP_API rp_status rp_window_reverse(const rp_array *windows, const rp_windows *of, const rp_array *grids);

/* Compute the array of the mask RP_MASK_SEGMENTS for shifted windows: tokens of a window that are not neighbours in the
 * unrolled grid have different labels. Without a shift all labels are 0. Swin adds -100 to the scores of such pairs;
 * the mask gives them weight 0.
 * Shapes   labels [B n, window_h window_w] of RP_I32.
 * Returns  RP_OK, RP_E_ARG, RP_E_SHAPE, RP_E_STRIDE, RP_E_RANGE, RP_E_OVERFLOW. */
RP_API rp_status rp_window_labels(const rp_windows *of, const rp_array *labels);

#ifdef __cplusplus
}
#endif

#endif
