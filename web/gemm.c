/* gemm.c -- the matrix product of linear layers for WebAssembly, with vectors of its size. Only the product of the
 * forward pass, c = a b^T, is implemented.
 * SPDX-License-Identifier: Apache-2.0 */
#include "lab/engine/nn.h"

enum { MR = 4, NR = 4, VL = 4 }; /* a tile has MR x NR sums, each a vector of VL partial sums */
typedef float vector __attribute__((vector_size(4 * VL), aligned(4), may_alias));

/* Compute a tile of c. Rows and columns beyond m and n repeat the last one and are not stored. */
static void tile(int m, int n, int k, const float *a, int lda, const float *b, int ldb, float *c, int ldc)
{
    vector sum[MR][NR] = {{{0}}};
    const float *x[MR], *y[NR];
    for (int r = 0; r < MR; r++)
        x[r] = a + (size_t)(r < m ? r : m - 1) * (size_t)lda;
    for (int s = 0; s < NR; s++)
        y[s] = b + (size_t)(s < n ? s : n - 1) * (size_t)ldb;
    for (int t = 0; t + VL <= k; t += VL)
        for (int r = 0; r < MR; r++) {
            const vector from = *(const vector *)(x[r] + t);
            for (int s = 0; s < NR; s++)
                sum[r][s] += from * *(const vector *)(y[s] + t);
        }
    for (int r = 0; r < m && r < MR; r++)
        for (int s = 0; s < n && s < NR; s++) {
            const vector v = sum[r][s];
            float total = (v[0] + v[1]) + (v[2] + v[3]);
            for (int t = k / VL * VL; t < k; t++)
                total += x[r][t] * y[s][t];
            c[(size_t)r * (size_t)ldc + (size_t)s] = total;
        }
}

static void multiply(int order, int transa, int transb, int m, int n, int k, real alpha, const real *a, int lda,
                     const real *b, int ldb, real beta, real *c, int ldc)
{
    if (order != LAYERS_ROW_MAJOR || transa != LAYERS_NO_TRANS || transb != LAYERS_TRANS || alpha < 1 || alpha > 1 ||
        beta < 0 || beta > 0)
        __builtin_trap();
    for (int i = 0; i < m; i += MR)
        for (int j = 0; j < n; j += NR)
            tile(m - i, n - j, k, a + (size_t)i * (size_t)lda, lda, b + (size_t)j * (size_t)ldb, ldb,
                 c + (size_t)i * (size_t)ldc + j, ldc);
}

__attribute__((constructor)) static void use(void)
{
    layers_multiply = multiply;
}
