/* test_linear.c -- linear layers beside plain loops in double: every type, every instruction set of this machine, sizes at the edges
 * of tiles; and that the bits of a row depend on nothing but the row.
 * SPDX-License-Identifier: Apache-2.0 */
#include "tests/helpers.h"
#include "linear/ops.h"

/* ops = each instruction set of linear layers that this machine has. */
#define EACH_SET(ops)                                                                                                  \
    for (int ops##_n = 0; ops##_n >= 0; ops##_n = -1)                                                                  \
        for (const linear_ops *ops; (ops = linear_entry(ops##_n, &(bool){false})) != NULL; ops##_n++)                  \
            if (set_found(ops##_n))

HELPER bool set_found(int n)
{
    bool found;
    linear_entry(n, &found);
    return found;
}

static const char *const then_name[] = {"store", "add", "relu", "gelu", "times"};

/* A matrix, its packed form and what the packed form stands for. */
typedef struct matrix {
    linear_weights w;
    float *given, *kept; /* [out, in] */
} matrix;

static float uniform(uint64_t *state)
{
    return (float)((double)(draw(state) >> 11) * 0x1p-52 - 1);
}

static void *taken(int64_t bytes)
{
    void *p = aligned_alloc(64, (size_t)(bytes + 63) / 64 * 64);
    assert_non_null(p);
    return p;
}

static float *numbers(int64_t n, uint64_t seed)
{
    float *x = taken(n * 4);
    for (int64_t i = 0; i < n; i++)
        x[i] = uniform(&seed);
    return x;
}

static void matrix_begin(matrix *m, linear_type type, int64_t in, int64_t out)
{
    void *packed = taken(linear_packed_bytes(type, in, out));
    m->given = numbers(in * out, (uint64_t)(in * 1000 + out));
    m->kept = taken(in * out * 4);
    good(linear_pack(NULL, type, in, out, m->given, RP_F32, in, packed));
    m->w = (linear_weights){type, in, out, packed};
    for (int64_t o = 0; o < out; o++)
        linear_row(&m->w, o, m->kept + o * in);
}

static void matrix_end(matrix *m)
{
    free((void *)(uintptr_t)m->w.packed);
    free(m->given);
    free(m->kept);
}

/* x as the products see it: rounded to its 8 bits for types with integers. */
static void seen(linear_type type, const float *x, int64_t n, double *to)
{
    float max = 0;
    for (int64_t i = 0; i < n; i++)
        max = fmaxf(max, fabsf(x[i]));
    const float scale = max / 127, over = 127 / max;
    for (int64_t i = 0; i < n; i++)
        to[i] = type >= LINEAR_INT8 ? (double)scale * (double)rintf(x[i] * over) : (double)x[i];
}

static double then_of(linear_then then, double p, double y)
{
    switch (then) {
    case LINEAR_ADD: return y + p;
    case LINEAR_RELU: return fmax(p, 0);
    case LINEAR_GELU: return p / 2 * (1 + tanh(sqrt(2 / 3.14159265358979323846) * (p + 0.044715 * p * p * p)));
    case LINEAR_TIMES: return y * p;
    default: return p;
    }
}

/* What rounding may have changed, in units of 2^-24. A chain of n sums and as many products, or with fma as few, is off by
 * (n + 1) Σ|x w|, in f32; sums of integers are exact, so that a chain over groups of 32 remains; 4 more for the scales. Two
 * roundings for ADD and TIMES; the slope of GELU is below 1.13, and gelu() itself is off by 8 + 4 |u|, u = √(2/π)(p + …). */
static double bound_of(linear_type type, linear_then then, int64_t in, double size, double p, double y)
{
    const double u = 0x1p-24, chain = type == LINEAR_INT8   ? 3
                                      : type == LINEAR_INT4 ? (double)in / 32 + 5
                                                            : 2.0 * (double)in;
    const double off = chain * u * size, inner = 0.8 * (fabs(p) + 0.044715 * fabs(p * p * p));
    switch (then) {
    case LINEAR_ADD: return off + u * (fabs(p) + fabs(y) + off);
    case LINEAR_TIMES: return fabs(y) * (off + u * (fabs(p) + off));
    case LINEAR_GELU:
        return 1.13 * off + u * (8 + 4 * inner) * (fabs(then_of(LINEAR_GELU, p, 0)) + 1.13 * off) + 0x1p-140;
    default: return off;
    }
}

/* The largest error over its bound. */
static double worst_of(const matrix *m, const linear_call *c, const float *before)
{
    const int64_t in = m->w.in;
    double *x = taken(in * 8), worst = 0;
    for (int64_t r = 0; r < c->rows; r++) {
        seen(m->w.type, c->x + r * c->ldx, in, x);
        for (int64_t o = 0; o < m->w.out; o++) {
            double p = 0, size = 0;
            for (int64_t i = 0; i < in; i++) {
                p += x[i] * (double)m->kept[o * in + i];
                size += fabs(x[i] * (double)m->kept[o * in + i]);
            }
            const double y = (double)before[r * c->ldy + o], want = then_of(c->then, p, y);
            const double error = fabs((double)c->y[r * c->ldy + o] - want);
            const double bound = bound_of(m->w.type, c->then, in, size, p, y);
            if (!(error <= bound))
                fail_msg("%s on %s, then %s: %d rows, in %d, out %d: [%d, %d] is %.9g instead of %.9g: error %.3g, "
                         "bound %.3g",
                         linear_type_name(m->w.type), c->isa, then_name[c->then], (int)c->rows, (int)in, (int)m->w.out,
                         (int)r, (int)o, (double)c->y[r * c->ldy + o], want, error, bound);
            worst = bound > 0 ? fmax(worst, error / bound) : worst;
        }
    }
    free(x);
    return worst;
}

static const int64_t rows_tried[] = {1, 2, 5, 6, 7, 12, 13, 16, 33}, ins[] = {1, 31, 32, 33, 64, 100},
                     outs[] = {1, 15, 16, 17, 64, 65, 100};
#define COUNT(list) ((int)(sizeof(list) / sizeof(list)[0]))
enum { MOST_ROWS = 33, MOST_IN = 100, MOST_OUT = 100, LDX = MOST_IN + 3, LDY = MOST_OUT + 5 };

static double sizes_of(linear_type type, const linear_ops *ops, const float *x, const float *before, float *y)
{
    double worst = 0;
    for (int i = 0; i < COUNT(ins); i++)
        for (int o = 0; o < COUNT(outs); o++) {
            matrix m;
            matrix_begin(&m, type, ins[i], outs[o]);
            for (int r = 0; r < COUNT(rows_tried); r++) {
                const linear_then then = (linear_then)((i + o + r) % 5);
                linear_call c = {
                    .rows = rows_tried[r], .x = x, .ldx = LDX, .y = y, .ldy = LDY, .then = then, .isa = ops->name};
                memcpy(y, before, sizeof(float) * MOST_ROWS * LDY);
                good(linear_apply(NULL, &m.w, &c));
                worst = fmax(worst, worst_of(&m, &c, before));
                for (int64_t a = 0; a < MOST_ROWS * LDY; a++) /* nothing beside it is touched */
                    if (a / LDY >= c.rows || a % LDY >= outs[o])
                        assert_memory_equal(&y[a], &before[a], 4);
            }
            matrix_end(&m);
        }
    return worst;
}

static void test_every_size_is_within_its_bound(void **state)
{
    float *x = numbers(MOST_ROWS * LDX, 1), *before = numbers(MOST_ROWS * LDY, 2), *y = taken(MOST_ROWS * LDY * 4);
    (void)state;
    EACH_SET(ops)
    for (int type = 0; type < LINEAR_TYPES; type++)
        printf("%-12s %-4s largest error %.2f of its bound\n", ops->name, linear_type_name((linear_type)type),
               sizes_of((linear_type)type, ops, x, before, y));
    free(x);
    free(before);
    free(y);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_size_is_within_its_bound),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
