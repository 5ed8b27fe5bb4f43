/* linear.c -- matrix products, divided into chunks of rows that a pool computes, and linear layers, forward and
 * backward.
 * SPDX-License-Identifier: Apache-2.0 */
#include "layers/numeric.h"

/* The arguments of layers_matmul. Each task computes `step` rows of c. Since step does not depend on the number of
 * threads, the bits of c do not either. */
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
    layers_multiply(LAYERS_ROW_MAJOR, p->transa, p->transb, (int)rows, (int)p->n, (int)p->k, 1, p->a + from * p->next_a,
                    (int)p->lda, p->b, (int)p->ldb, p->beta, p->c + from * p->ldc, (int)p->ldc);
}

enum { STEP = 256, STEP_TRANS = 128 };

void layers_matmul(rp_pool *pool, int transa, int transb, int64_t m, int64_t n, int64_t k, const real *a, int64_t lda,
                   const real *b, int64_t ldb, real beta, real *c, int64_t ldc)
{
    const bool turned = transa == LAYERS_TRANS;
    product p = {.transa = transa,
                 .transb = transb,
                 .m = m,
                 .n = n,
                 .k = k,
                 .step = turned ? STEP_TRANS : STEP,
                 .a = a,
                 .b = b,
                 .lda = lda,
                 .ldb = ldb,
                 .ldc = ldc,
                 .next_a = turned ? 1 : lda,
                 .beta = beta,
                 .c = c};
    if (m > 0 && n > 0)
        rp_pool_run(pool, (m + p.step - 1) / p.step, multiply_chunk, &p);
}

void layers_linear(rp_pool *pool, int64_t rows, int64_t in, int64_t out, const real *x, int64_t ldx, const real *w,
                   real *y, int64_t ldy)
{
    layers_matmul(pool, LAYERS_NO_TRANS, LAYERS_TRANS, rows, out, in, x, ldx, w, in, 0, y, ldy);
}

void layers_linear_dx(rp_pool *pool, int64_t rows, int64_t in, int64_t out, const real *dy, int64_t lddy, const real *w,
                      real beta, real *dx, int64_t lddx)
{
    layers_matmul(pool, LAYERS_NO_TRANS, LAYERS_NO_TRANS, rows, in, out, dy, lddy, w, in, beta, dx, lddx);
}

void layers_linear_dw(rp_pool *pool, int64_t rows, int64_t in, int64_t out, const real *dy, int64_t lddy, const real *x,
                      int64_t ldx, real *dw)
{
    layers_matmul(pool, LAYERS_TRANS, LAYERS_NO_TRANS, out, in, rows, dy, lddy, x, ldx, 1, dw, in);
}
