/* numeric.h -- linear layers, norms, activations and losses, forward and backward, for f32 and f64 (real.h).
 *
 * Work is divided into chunks that depend only on the shape, so the bits do not depend on the number of threads.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef RELPOS_LAYERS_NUMERIC_H
#define RELPOS_LAYERS_NUMERIC_H

#include "layers/real.h"
#include <stdbool.h>

#define layers_multiply      LAYERS_TYPED(layers_multiply)
#define layers_plain         LAYERS_TYPED(layers_plain)
#define layers_matmul        LAYERS_TYPED(layers_matmul)
#define layers_linear        LAYERS_TYPED(layers_linear)
#define layers_linear_dx     LAYERS_TYPED(layers_linear_dx)
#define layers_linear_dw     LAYERS_TYPED(layers_linear_dw)
#define layers_norm_forward  LAYERS_TYPED(layers_norm_forward)
#define layers_norm_backward LAYERS_TYPED(layers_norm_backward)
#define layers_act_columns   LAYERS_TYPED(layers_act_columns)
#define layers_act_forward   LAYERS_TYPED(layers_act_forward)
#define layers_act_backward  LAYERS_TYPED(layers_act_backward)
#define layers_add_forward   LAYERS_TYPED(layers_add_forward)
#define layers_add_backward  LAYERS_TYPED(layers_add_backward)
#define layers_softmax_loss  LAYERS_TYPED(layers_softmax_loss)
#define layers_axpy          LAYERS_TYPED(layers_axpy)

/* ------------------------------------------------------------------------------------------------ matrix products */

enum { LAYERS_ROW_MAJOR = 101, LAYERS_NO_TRANS = 111, LAYERS_TRANS = 112 }; /* constants of the CBLAS interface */
typedef void layers_gemm(int order, int transa, int transb, int m, int n, int k, real alpha, const real *a, int lda,
                         const real *b, int ldb, real beta, real *c, int ldc);
/* The function that computes matrix products: plain loops (layers_plain), unless a program replaces it by cblas_sgemm
 * or cblas_dgemm. Plain loops add each element's k products in order, without fused multiply-adds, so every machine
 * computes the same bits. They need order = LAYERS_ROW_MAJOR and alpha = 1. */
extern layers_gemm *layers_multiply, layers_plain;

/* Compute c = a b + beta c for row-major arrays, where a or b may be transposed; c is [m, n], and k is the length of
 * the sums. ld.. is the number of elements from one row to the next. */
void layers_matmul(rp_pool *pool, int transa, int transb, int64_t m, int64_t n, int64_t k, const real *a, int64_t lda,
                   const real *b, int64_t ldb, real beta, real *c, int64_t ldc);
/* Linear layers: y [rows, out], x [rows, in], w [out, in] as in torch.nn.Linear. */
void layers_linear(rp_pool *pool, int64_t rows, int64_t in, int64_t out, const real *x, int64_t ldx, const real *w,
                   real *y, int64_t ldy); /* y = x w^T */
void layers_linear_dx(rp_pool *pool, int64_t rows, int64_t in, int64_t out, const real *dy, int64_t lddy, const real *w,
                      real beta, real *dx, int64_t lddx); /* dx = beta dx + dy w */
void layers_linear_dw(rp_pool *pool, int64_t rows, int64_t in, int64_t out, const real *dy, int64_t lddy, const real *x,
                      int64_t ldx, real *dw); /* dw += dy^T x */

/* ------------------------------------------------------------------------------------------------ rows */

typedef enum layers_norm { LAYERS_LAYERNORM = 0, LAYERS_RMSNORM = 1 } layers_norm;
typedef enum layers_act { LAYERS_GELU = 0, LAYERS_RELU = 1, LAYERS_SWIGLU = 2, LAYERS_GEGLU = 3 } layers_act;
enum { LAYERS_ROWS = 64 }; /* rows per chunk */

/* Normalize each row. eps is added to the variance under the square root. stat [rows, 2] receives the mean and the
 * factor of each row. */
void layers_norm_forward(rp_pool *pool, int32_t kind, double eps, int64_t rows, int64_t n, const real *x,
                         const real *gamma, const real *beta, real *y, real *stat);
/* Compute the gradients of a norm. dx is overwritten or, with `add`, added to; dgamma and dbeta (may be NULL) are
 * always added to. partial is scratch for 2 n (rows / LAYERS_ROWS + 1) numbers. */
void layers_norm_backward(rp_pool *pool, int32_t kind, int64_t rows, int64_t n, const real *x, const real *gamma,
                          const real *stat, const real *dy, bool add, real *dx, real *dgamma, real *dbeta,
                          real *partial);
/* Return the number of columns of h for n columns of y: 2 n for a gated activation (the gates, then the values they
 * multiply), otherwise n. */
int64_t layers_act_columns(int32_t kind, int64_t n);
void layers_act_forward(rp_pool *pool, int32_t kind, int64_t rows, int64_t n, const real *h, real *y);
void layers_act_backward(rp_pool *pool, int32_t kind, int64_t rows, int64_t n, const real *h, const real *dy, real *dh);
/* Add with dropout of probability p: y = x + keep z / (1 - p), dz = keep dy / (1 - p). keep is 0 or 1 and depends only
 * on seed, row and column. */
void layers_add_forward(rp_pool *pool, int64_t rows, int64_t n, const real *x, const real *z, double p, uint64_t seed,
                        real *y);
void layers_add_backward(rp_pool *pool, int64_t rows, int64_t n, double p, uint64_t seed, const real *dy, real *dz);
/* Compute the cross-entropy of each row of logits in nats, and replace the logits by their gradient times `factor`.
 * Rows with a negative target have loss 0. right[r] (right may be NULL) becomes true if the target is the likeliest
 * class; among equally likely classes, the first wins. */
void layers_softmax_loss(rp_pool *pool, int64_t rows, int64_t n, real *logits, const int32_t *target, double factor,
                         double *loss, bool *right);
void layers_axpy(rp_pool *pool, int64_t n, const real *x, real *y); /* y += x */

#endif
