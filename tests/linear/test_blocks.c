/* test_blocks.c -- products with blocks as they are in a file: every type of blocks and every instruction set of this
 * machine against plain loops in double over the numbers that gguf gives; bits; scales that are not finite; fences.
 * SPDX-License-Identifier: Apache-2.0 */
#include "io/block_types.h"
#include "linear/ops.h"
#include "tests/helpers.h"

#define EACH_SET(ops)                                                                                                  \
    for (int ops##_n = 0; ops##_n >= 0; ops##_n = -1)                                                                  \
        for (const linear_ops *ops; (ops = linear_entry(ops##_n, &(bool){false})) != NULL; ops##_n++)                  \
            if (set_found(ops##_n))
#define EACH_TYPE(b)                                                                                                   \
    for (int b##_n = IO_Q8_0 + 1; b##_n < IO_BLOCKS_END; b##_n++)                                                      \
        for (const linear_blocks *b = io_block_of((rp_dtype)b##_n); b != NULL; b = NULL)

enum { ROWS = 131, OUT = 83 }; /* more rows than a block, and a narrow last panel */

static bool set_found(int n)
{
    bool found;
    linear_entry(n, &found);
    return found;
}

static float *numbers(int64_t n, uint64_t seed)
{
    float *x = aligned_alloc(64, (size_t)(n * 4 + 63) / 64 * 64);
    assert_non_null(x);
    for (int64_t i = 0; i < n; i++)
        x[i] = (float)((double)(draw(&seed) >> 11) * 0x1p-52 - 1);
    return x;
}

/* Rows of random blocks, whose scales are about 2^-8. */
static unsigned char *random_blocks(const linear_blocks *b, int64_t in, int64_t out)
{
    const int64_t all = in / b->numbers * out;
    unsigned char *data = malloc((size_t)(all * b->bytes));
    uint64_t seed = (uint64_t)(in * 1000 + out) + (uint64_t)b->kind;
    assert_non_null(data);
    for (int64_t i = 0; i < all * b->bytes; i++)
        data[i] = (unsigned char)(draw(&seed) >> 33);
    for (int64_t n = 0; n < all; n++)
        for (int s = 0; s < 2; s++) {
            const int at = s == 0 ? b->scale : b->min;
            if (at >= 0)
                data[n * b->bytes + at + 1] = (unsigned char)(0x1c | (data[n * b->bytes + at + 1] & 0x83));
        }
    return data;
}

typedef struct matrix {
    linear_tensors tensors;
    linear_weights w;
    float *kept; /* [out, in] */
} matrix;

static void matrix_begin(matrix *m, const linear_blocks *b, int64_t in, int64_t out)
{
    m->tensors = (linear_tensors){1, {{b, {LINEAR_BLOCKS, in, out, random_blocks(b, in, out)}}}};
    m->w = (linear_weights){LINEAR_BLOCKS, in, out, &m->tensors};
    m->kept = malloc((size_t)(in * out * 4));
    assert_non_null(m->kept);
    for (int64_t o = 0; o < out; o++)
        linear_row(&m->w, o, m->kept + o * in);
}

static void matrix_end(matrix *m)
{
    free((void *)(uintptr_t)m->tensors.each[0].w.packed);
    free(m->kept);
}

/* Round x to 8 bits in groups of 32. */
static void seen(const float *x, int64_t n, double *to)
{
    for (int64_t from = 0; from < n; from += 32) {
        float max = 0;
        for (int64_t i = from; i < from + 32; i++)
            max = fmaxf(max, fabsf(x[i]));
        for (int64_t i = from; i < from + 32; i++)
            to[i] = (double)(max / 127) * (double)rintf(x[i] * (127 / max));
    }
}

/* Return the largest ratio of an error to its bound. Sums of a run are exact. What remains is a chain over runs and
 * offsets, and 5 roundings of scales, of terms up to `most` times the largest scale. */
static double worst_of(const matrix *m, const linear_call *c)
{
    const linear_blocks *b = m->tensors.each[0].blocks;
    const int64_t in = m->w.in;
    const double chain = (double)in / (double)linear_run(b) + (double)in / b->group + 5;
    double *x = malloc((size_t)in * 8), worst = 0;
    for (int64_t r = 0; r < c->rows; r++) {
        seen(c->x + r * c->ldx, in, x);
        for (int64_t o = 0; o < m->w.out; o++) {
            double p = c->bias ? (double)c->bias[o] : 0, size = 0, most = 0;
            for (int64_t i = 0; i < in; i++) {
                p += x[i] * (double)m->kept[o * in + i];
                size += fabs(x[i]);
                most = fmax(most, fabs((double)m->kept[o * in + i]));
            }
            const double error = fabs((double)c->y[r * c->ldy + o] - p),
                         bound = 0x1p-24 * (chain * size * 2 * most + (c->bias ? fabs(p) : 0));
            if (!(error <= bound))
                fail_msg("%s on %s: %d rows, in %d, out %d: [%d, %d] is %.9g instead of %.9g, bound %.3g", b->name,
                         c->isa, (int)c->rows, (int)in, (int)m->w.out, (int)r, (int)o, (double)c->y[r * c->ldy + o], p,
                         bound);
            worst = fmax(worst, error / bound);
        }
    }
    free(x);
    return worst;
}

static void test_every_size_is_within_its_bound(void **state)
{
    static const int64_t rows[] = {1, 2, 5, 6, 7, 13, 33}, outs[] = {1, 15, 16, 17, 64, 65, 100}, blocks[] = {1, 2, 9};
    (void)state;
    EACH_SET(ops)
    EACH_TYPE(b)
    {
        double worst = 0;
        for (int i = 0; i < 3; i++)
            for (int o = 0; o < 7; o++) {
                const int64_t in = blocks[i] * b->numbers;
                float *x = numbers(33 * in + 103, 1), *y = numbers(33 * 100, 2);
                matrix m;
                matrix_begin(&m, b, in, outs[o]);
                for (int r = 0; r < 7; r++) {
                    linear_call c = {.rows = rows[r], .x = x, .ldx = in, .y = y, .ldy = 100, .isa = ops->name};
                    c.bias = r % 2 ? x + 3 : NULL;
                    good(linear_apply(NULL, &m.w, &c));
                    worst = fmax(worst, worst_of(&m, &c));
                }
                matrix_end(&m);
                free(x);
                free(y);
            }
        printf("%-12s %s largest error %.2f of its bound\n", ops->name, b->name, worst);
    }
}

static void test_bits_of_a_row_depend_on_nothing_else(void **state)
{
    enum { IN = 1280, Y = ROWS * OUT };
    float *x = numbers(ROWS * IN, 3), *batch = numbers(Y, 1), *y = numbers(Y, 1), *first = numbers(Y, 1);
    rp_pool *pool;
    (void)state;
    good(rp_pool_create(&pool, 3));
    EACH_TYPE(b)
    {
        matrix m;
        bool begun = false;
        matrix_begin(&m, b, IN, OUT);
        EACH_SET(ops)
        {
            linear_call c = {.rows = ROWS, .x = x, .ldx = IN, .y = batch, .ldy = OUT, .isa = ops->name};
            c.bias = x + 5;
            good(linear_apply(NULL, &m.w, &c));
            c.y = y;
            good(linear_apply(pool, &m.w, &c));
            assert_memory_equal(y, batch, Y * 4);
            for (c.rows = 1; c.rows < 40; c.rows = c.rows * 3 / 2 + 1)
                for (int64_t r = 0; r + c.rows <= ROWS; r += 29) {
                    c.x = x + r * IN;
                    good(linear_apply(pool, &m.w, &c));
                    assert_memory_equal(y, batch + r * OUT, (size_t)c.rows * OUT * 4);
                }
            if (strcmp(ops->name, "generic") == 0 || strcmp(ops->name, "amx_emulated") == 0)
                continue; /* without FMA */
            if (begun)
                assert_memory_equal(first, batch, Y * 4);
            memcpy(first, batch, Y * 4);
            begun = true;
        }
        matrix_end(&m);
    }
    rp_pool_destroy(pool);
    free(x);
    free(batch);
    free(y);
    free(first);
}

/* A matrix of several tensors gives the outputs of each. */
static void test_tensors_of_several_types_follow_each_other(void **state)
{
    enum { IN = 512, FIRST = 20, SECOND = 33, THIRD = 70, ALL = FIRST + SECOND + THIRD };
    float *x = numbers(7 * IN, 4), *w = numbers(SECOND * IN, 5), y[7 * ALL], one[7 * THIRD], row[IN], other[IN];
    const linear_blocks *a = io_block_of((rp_dtype)IO_Q4_K), *b = io_block_of((rp_dtype)IO_Q6_K);
    void *packed = aligned_alloc(64, (size_t)linear_packed_bytes(LINEAR_Q8, IN, SECOND));
    matrix m, k;
    (void)state;
    matrix_begin(&m, a, IN, FIRST);
    matrix_begin(&k, b, IN, THIRD);
    good(linear_pack(NULL, LINEAR_Q8, IN, SECOND, w, RP_F32, IN, packed));
    const linear_weights q8 = {LINEAR_Q8, IN, SECOND, packed};
    const linear_tensors tensors = {3, {m.tensors.each[0], {NULL, q8}, k.tensors.each[0]}};
    const linear_weights all = {LINEAR_BLOCKS, IN, ALL, &tensors}, *parts[] = {&m.w, &q8, &k.w};
    linear_call c = {.rows = 7, .x = x, .ldx = IN, .y = y, .ldy = ALL, .bias = w};
    good(linear_apply(NULL, &all, &c));
    for (int64_t n = 0, o = 0; n < 3; o += parts[n++]->out) {
        linear_call part = c;
        part.y = one;
        part.ldy = parts[n]->out;
        part.bias = w + o;
        good(linear_apply(NULL, parts[n], &part));
        for (int r = 0; r < 7; r++)
            assert_memory_equal(y + r * ALL + o, one + r * part.ldy, (size_t)part.ldy * 4);
        for (int64_t k2 = 0; k2 < parts[n]->out; k2++) {
            linear_row(parts[n], k2, row);
            linear_row(&all, o + k2, other);
            assert_memory_equal(row, other, sizeof row);
        }
    }
    c.rows = 0;
    good(linear_apply(NULL, &all, &c));
    matrix_end(&m);
    matrix_end(&k);
    free(packed);
    free(x);
    free(w);
}

/* Only the output of a row with such a scale is NaN; a row of x that is not finite gives NaN in all its outputs. */
static void test_numbers_that_are_not_finite(void **state)
{
    (void)state;
    EACH_SET(ops)
    EACH_TYPE(b)
    for (int n = 0; n < (b->min >= 0 ? 3 : 2); n++) {
        const int64_t in = 512;
        float *x = numbers(2 * in, 6), y[2 * 40];
        matrix m;
        matrix_begin(&m, b, in, 40);
        unsigned char *data = (unsigned char *)(uintptr_t)m.tensors.each[0].w.packed + 7 * (in / b->numbers) * b->bytes;
        data[(n < 2 ? b->scale : b->min) + 1] = 0x7c;
        data[n < 2 ? b->scale : b->min] = (unsigned char)(n == 1); /* infinity or NaN */
        if (n == 2)
            data[b->min + 1] = 0xfc;
        x[in + 100] = INFINITY;
        const linear_call c = {.rows = 2, .x = x, .ldx = in, .y = y, .ldy = 40, .isa = ops->name};
        good(linear_apply(NULL, &m.w, &c));
        for (int o = 0; o < 40; o++)
            if (!isnan(y[40 + o]) || isnan(y[o]) != (o == 7))
                fail_msg("%s on %s: output %d is %g, then %g", b->name, ops->name, o, (double)y[o], (double)y[40 + o]);
        matrix_end(&m);
        free(x);
    }
}

static void test_nothing_else_is_touched(void **state)
{
    enum { N = 17, OUTS = 71 };
    (void)state;
    EACH_SET(ops)
    EACH_TYPE(b)
    {
        const int64_t in = 2 * b->numbers;
        const size_t bytes = (size_t)(2 * b->bytes * OUTS), work = (size_t)linear_scratch_bytes(LINEAR_BLOCKS, N, in);
        matrix m;
        matrix_begin(&m, b, in, OUTS);
        fence w = fence_of(bytes, true), scratch = fence_of(work, true), x = fence_of((size_t)(4 * N * in), true);
        fence y = fence_of(4 * N * OUTS, true);
        memset(x.data, 0, (size_t)(4 * N * in));
        memcpy(w.data, m.tensors.each[0].w.packed, bytes);
        const linear_tensors end = {1, {{b, {LINEAR_BLOCKS, in, OUTS, w.data}}}};
        const linear_weights at_the_end = {LINEAR_BLOCKS, in, OUTS, &end};
        const linear_call c = {.rows = N,
                               .x = (const float *)(const void *)x.data,
                               .ldx = in,
                               .y = (float *)(void *)y.data,
                               .ldy = OUTS,
                               .scratch = scratch.data,
                               .isa = ops->name};
        good(linear_apply(NULL, &at_the_end, &c));
        assert_true(fence_intact(&x, (size_t)(4 * N * in)) && fence_intact(&y, 4 * N * OUTS) &&
                    fence_intact(&w, bytes) && fence_intact(&scratch, work));
        fence_free(&x);
        fence_free(&y);
        fence_free(&w);
        fence_free(&scratch);
        matrix_end(&m);
    }
}

static void test_refusals(void **state)
{
    float x[512] = {0}, y[16];
    matrix m;
    (void)state;
    matrix_begin(&m, io_block_of((rp_dtype)IO_Q4_K), 512, 16);
    const linear_call c = {.rows = 1, .x = x, .ldx = 512, .y = y, .ldy = 16};
    good(linear_apply(NULL, &m.w, &c));
    linear_tensors bad = m.tensors;
    const linear_weights w = {LINEAR_BLOCKS, 512, 16, &bad};
    bad.each[0].w.in = 500; /* no whole blocks */
    assert_int_equal(linear_apply(NULL, &w, &c), RP_E_ARG);
    bad = m.tensors;
    bad.each[0].blocks = io_block_of((rp_dtype)IO_Q8_0);
    assert_int_equal(linear_apply(NULL, &w, &c), RP_E_ARG);
    bad = m.tensors;
    bad.each[0].w.packed = NULL;
    assert_int_equal(linear_apply(NULL, &w, &c), RP_E_ARG);
    assert_int_equal(linear_packed_bytes(LINEAR_BLOCKS, 512, 16), -1);
    assert_int_equal(linear_some(&m.w, x, 0, NULL, y, NULL), RP_E_ARG);
    assert_string_equal(linear_type_name(LINEAR_BLOCKS), "gguf");
    matrix_end(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_size_is_within_its_bound),
        cmocka_unit_test(test_bits_of_a_row_depend_on_nothing_else),
        cmocka_unit_test(test_tensors_of_several_types_follow_each_other),
        cmocka_unit_test(test_numbers_that_are_not_finite),
        cmocka_unit_test(test_nothing_else_is_touched),
        cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
