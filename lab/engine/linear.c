/* linear.c -- linear layers, forward and backward. Matrix products are divided into chunks of rows; the CBLAS (blas.c)
 * computes each chunk.
 * SPDX-License-Identifier: Apache-2.0 */
#include "lab/engine/nn.h"

/* A matrix product c = a b + beta c, where a or b may be transposed. Each task computes `step` rows of c. Since step
 * does not depend on the number of threads, the bits of c do not either. */
typedef struct product {
    int transa, transb;
    int64_t m, n, k, step;
    const real *a, *b;
    int64_t lda, ldb, ldc, next_a; /* next_a: elements to advance in a for each row of c */
    real beta, *c;
} product;

static void multiply_chunk(void *context, int64_t t, int32_t worker)
{
    const product *p = context;
    const int64_t from = t * p->step, rows = p->m - from < p->step ? p->m - from : p->step;
    (void)worker;
    nn_blas_gemm(NN_ROW_MAJOR, p->transa, p->transb, (int)rows, (int)p->n, (int)p->k, 1, p->a + from * p->next_a,
                 (int)p->lda, p->b, (int)p->ldb, p->beta, p->c + from * p->ldc, (int)p->ldc);
}

static void multiply(rp_pool *pool, const product *p)
{
    if (p->m > 0 && p->n > 0)
        rp_pool_run(pool, (p->m + p->step - 1) / p->step, multiply_chunk, (void *)(uintptr_t)p);
}

enum { STEP = 256, STEP_DW = 128 };

void nn_linear(rp_pool *pool, int64_t rows, int64_t in, int64_t out, const real *x, int64_t ldx, const real *w, real *y,
               int64_t ldy)
{
    multiply(pool, &(product){.transa = NN_NO_TRANS,
                              .transb = NN_TRANS,
                              .m = rows,
                              .n = out,
                              .k = in,
                              .step = STEP,
                              .a = x,
                              .b = w,
                              .lda = ldx,
                              .ldb = in,
                              .ldc = ldy,
                              .next_a = ldx,
                              .c = y});
}

void nn_linear_dx(rp_pool *pool, int64_t rows, int64_t in, int64_t out, const real *dy, int64_t lddy, const real *w,
                  real beta, real *dx, int64_t lddx)
{
    multiply(pool, &(product){.transa = NN_NO_TRANS,
                              .transb = NN_NO_TRANS,
                              .m = rows,
                              .n = in,
                              .k = out,
                              .step = STEP,
                              .a = dy,
                              .b = w,
                              .lda = lddy,
                              .ldb = in,
                              .ldc = lddx,
                              .next_a = lddy,
                              .beta = beta,
                              .c = dx});
}

void nn_linear_dw(rp_pool *pool, int64_t rows, int64_t in, int64_t out, const real *dy, int64_t lddy, const real *x,
                  int64_t ldx, real *dw)
{
    multiply(pool, &(product){.transa = NN_TRANS,
                              .transb = NN_NO_TRANS,
                              .m = out,
                              .n = in,
                              .k = rows,
                              .step = STEP_DW,
                              .a = dy,
                              .b = x,
                              .lda = lddy,
                              .ldb = ldx,
                              .ldc = in,
                              .next_a = 1,
                              .beta = 1,
                              .c = dw});
}
