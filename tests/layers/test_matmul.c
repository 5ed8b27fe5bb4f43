/* test_matmul.c -- the plain matrix product has the bits of its definition: beta c, to which products are added in the
 * order of k, each product and each sum rounded once.
 * SPDX-License-Identifier: Apache-2.0 */
#include "tests/helpers.h"
#include <relpos/layers.h>

extern rp_sgemm layers_plain_f32;
extern rp_dgemm layers_plain_f64;

enum { ROW_MAJOR = 101, NO_TRANS = 111, TRANS = 112 };

/* layers_matmul of both types; numeric.h declares only one of them. */
void layers_matmul_f32(rp_pool *pool, int transa, int transb, int64_t m, int64_t n, int64_t k, const float *a,
                       int64_t lda, const float *b, int64_t ldb, float beta, float *c, int64_t ldc);
void layers_matmul_f64(rp_pool *pool, int transa, int transb, int64_t m, int64_t n, int64_t k, const double *a,
                       int64_t lda, const double *b, int64_t ldb, double beta, double *c, int64_t ldc);

/* Define check_TYPE, which compares a product with its definition. Rows are longer than their elements (`gap`), and the
 * numbers between them must not change. pool = NULL: call layers_plain. */
#define CHECKS(type, real)                                                                                             \
    static void check_##type(rp_pool *pool, int transa, int transb, int m, int n, int k, real beta, int gap)           \
    {                                                                                                                  \
        const int lda = (transa == TRANS ? m : k) + gap, ldb = (transb == TRANS ? k : n) + gap, ldc = n + gap;         \
        const size_t n_a = (size_t)lda * (size_t)(transa == TRANS ? k : m), n_c = (size_t)ldc * (size_t)m;             \
        const size_t n_b = (size_t)ldb * (size_t)(transb == TRANS ? n : k);                                            \
        real *const a = malloc((n_a + 1) * sizeof(real)), *const b = malloc((n_b + 1) * sizeof(real));                 \
        real *const c = malloc((n_c + 1) * sizeof(real)), *const want = malloc((n_c + 1) * sizeof(real));              \
        uint64_t random = (uint64_t)(m * 10000 + n * 100 + k);                                                         \
        assert_true(a &&b &&c &&want);                                                                                 \
        for (size_t x = 0; x < n_a; x++)                                                                               \
            a[x] = number_##type(&random);                                                                             \
        for (size_t x = 0; x < n_b; x++)                                                                               \
            b[x] = number_##type(&random);                                                                             \
        for (size_t x = 0; x < n_c; x++)                                                                               \
            c[x] = want[x] = beta == 0 ? (real)NAN : number_##type(&random); /* beta = 0: never read */                \
        for (int i = 0; i < m; i++)                                                                                    \
            for (int j = 0; j < n; j++) {                                                                              \
                volatile real sum = beta == 0 ? 0 : beta * want[(size_t)i * (size_t)ldc + (size_t)j];                  \
                for (int t = 0; t < k; t++) {                                                                          \
                    const size_t at_a =                                                                                \
                        transa == TRANS ? (size_t)t * (size_t)lda + (size_t)i : (size_t)i * (size_t)lda + (size_t)t;   \
                    const size_t at_b =                                                                                \
                        transb == TRANS ? (size_t)j * (size_t)ldb + (size_t)t : (size_t)t * (size_t)ldb + (size_t)j;   \
                    volatile real product = a[at_a] * b[at_b];                                                         \
                    sum = sum + product;                                                                               \
                }                                                                                                      \
                want[(size_t)i * (size_t)ldc + (size_t)j] = sum;                                                       \
            }                                                                                                          \
        if (pool)                                                                                                      \
            layers_matmul_##type(pool, transa, transb, m, n, k, a, lda, b, ldb, beta, c, ldc);                         \
        else                                                                                                           \
            layers_plain_##type(ROW_MAJOR, transa, transb, m, n, k, 1, a, lda, b, ldb, beta, c, ldc);                  \
        if (memcmp(c, want, n_c * sizeof(real)) != 0)                                                                  \
            fail_msg("%s: %d x %d x %d, transposed %d %d, beta %g: the bits differ from the definition", #type, m, n,  \
                     k, transa == TRANS, transb == TRANS, (double)beta);                                               \
        free(a);                                                                                                       \
        free(b);                                                                                                       \
        free(c);                                                                                                       \
        free(want);                                                                                                    \
    }

/* Numbers of many sizes, so that every order of summation has other bits. */
static double number_f64(uint64_t *random)
{
    const uint64_t bits = problem_next(random);
    const double x = 1 + (double)(bits >> 12) * 0x1p-52;
    return ldexp(bits & 1 ? x : -x, (int)(bits >> 1 & 7) - 4);
}

static float number_f32(uint64_t *random)
{
    return (float)number_f64(random);
}

CHECKS(f32, float)
CHECKS(f64, double)

/* Shapes at the edges of the tiles: 4 rows, 32 or 16 columns, 64 products. */
static void plain_loops(void **state)
{
    static const int rows[] = {0, 1, 3, 4, 5, 9}, columns[] = {0, 1, 15, 16, 17, 31, 32, 33, 65},
                     depths[] = {0, 1, 2, 63, 64, 65, 129};
    static const double betas[] = {0, 1, -0.75};
    (void)state;
    for (size_t m = 0; m < sizeof rows / sizeof *rows; m++)
        for (size_t n = 0; n < sizeof columns / sizeof *columns; n++)
            for (size_t k = 0; k < sizeof depths / sizeof *depths; k++)
                for (int trans = 0; trans < 4; trans++) {
                    const int a = trans & 1 ? TRANS : NO_TRANS, b = trans & 2 ? TRANS : NO_TRANS;
                    const double beta = betas[(m + n + k + (size_t)trans) % 3];
                    check_f32(NULL, a, b, rows[m], columns[n], depths[k], (float)beta, (int)(n % 3));
                    check_f64(NULL, a, b, rows[m], columns[n], depths[k], beta, (int)(m % 3));
                }
}

/* Products that a pool computes in chunks of 256 or, transposed, 128 rows. */
static void chunks_of_rows(void **state)
{
    static const int rows[] = {0, 1, 127, 128, 129, 255, 256, 257, 520};
    static const int32_t threads[] = {1, 2, 5};
    (void)state;
    for (int t = 0; t < 3; t++) {
        rp_pool *pool;
        good(rp_pool_create(&pool, threads[t]));
        for (size_t m = 0; m < sizeof rows / sizeof *rows; m++)
            for (int trans = 0; trans < 4; trans++) {
                const int a = trans & 1 ? TRANS : NO_TRANS, b = trans & 2 ? TRANS : NO_TRANS;
                check_f32(pool, a, b, rows[m], 19, 7, m % 2 == 0, 1);
                check_f64(pool, a, b, rows[m], 19, 7, m % 2 == 1, 2);
            }
        rp_pool_destroy(pool);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(plain_loops), cmocka_unit_test(chunks_of_rows)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
