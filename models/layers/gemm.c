/* gemm.c -- the matrix product in plain loops: each element is beta c + a b, added in the order of k.
 * SPDX-License-Identifier: Apache-2.0 */
#include "layers/numeric.h"
#include "src/processor/clones.h"
#include <string.h>

enum { MR = 4, VECTORS = 2, VL = 64 / (int)sizeof(real), NR = VECTORS * VL, KC = 64 };
typedef real vector __attribute__((vector_size(64), aligned(sizeof(real)), may_alias));

/* Columns of b, [KC, NR], zeros beyond the last column. */
typedef struct panel {
    real b[KC][NR];
} panel;

static inline __attribute__((always_inline)) void pack(panel *to, int k, int n, const real *b, size_t next_k,
                                                       size_t next_n)
{
    for (int t = 0; t < k; t++) {
        for (int j = 0; j < n; j++)
            to->b[t][j] = b[(size_t)t * next_k + (size_t)j * next_n];
        memset(to->b[t] + n, 0, (size_t)(NR - n) * sizeof(real));
    }
}

/* Add a b to MR rows of sums. */
static inline __attribute__((always_inline)) void tile(vector sum[MR][VECTORS], int k, const real *const a[MR],
                                                       size_t next_k, const panel *b)
{
    vector s[MR][VECTORS];
    memcpy(s, sum, sizeof s);
    for (int t = 0; t < k; t++) {
        const vector *row = (const vector *)b->b[t];
        for (int r = 0; r < MR; r++) {
            const real x = a[r][(size_t)t * next_k];
            for (int v = 0; v < VECTORS; v++)
                s[r][v] += x * row[v];
        }
    }
    memcpy(sum, s, sizeof s);
}

RPI_CLONES void layers_plain(int order, int transa, int transb, int m, int n, int k, real alpha, const real *a, int lda,
                             const real *b, int ldb, real beta, real *c, int ldc)
{
    const size_t a_row = transa == LAYERS_TRANS ? 1 : (size_t)lda, a_k = transa == LAYERS_TRANS ? (size_t)lda : 1;
    const size_t b_k = transb == LAYERS_TRANS ? 1 : (size_t)ldb, b_column = transb == LAYERS_TRANS ? (size_t)ldb : 1;
    panel p;
    (void)order, (void)alpha;
    for (int64_t i = 0; i < m; i++)
        for (int64_t j = 0; j < n; j++) {
            real *to = c + (size_t)i * (size_t)ldc + j;
            *to = beta == 0 ? 0 : *to * beta; /* c may be uninitialized */
        }
    for (int64_t t = 0; t < k; t += KC)
        for (int64_t j = 0; j < n; j += NR) {
            const int depth = k - t < KC ? (int)(k - t) : KC, columns = n - j < NR ? (int)(n - j) : NR;
            pack(&p, depth, columns, b + (size_t)t * b_k + (size_t)j * b_column, b_k, b_column);
            for (int64_t i = 0; i < m; i += MR) {
                real sum[MR][NR] = {{0}};
                const real *rows[MR];
                const int height = m - i < MR ? (int)(m - i) : MR;
                for (int r = 0; r < MR; r++) { /* rows beyond m repeat the last one and are not stored */
                    const int64_t at = i + (r < height ? r : height - 1);
                    rows[r] = a + (size_t)at * a_row + (size_t)t * a_k;
                    memcpy(sum[r], c + (size_t)at * (size_t)ldc + j, (size_t)columns * sizeof(real));
                }
                tile((vector(*)[VECTORS])sum, depth, rows, a_k, &p);
                for (int r = 0; r < height; r++)
                    memcpy(c + (size_t)(i + r) * (size_t)ldc + j, sum[r], (size_t)columns * sizeof(real));
            }
        }
}

layers_gemm *layers_multiply = layers_plain;
