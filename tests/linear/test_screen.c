/* test_screen.c -- computing some outputs gives the same bits as computing all outputs. The 8-bit bounds contain every
 * product, and the largest product among the remaining candidates is the largest of all.
 * SPDX-License-Identifier: Apache-2.0 */
#include "tests/helpers.h"
#include "linear/ops.h"

enum { IN = 96, OUT = 5000, ROWS = 24 };

/* Loop with ops = each instruction set of linear layers that this machine has. */
#define EACH_SET(ops)                                                                                                  \
    for (int ops##_n = 0; ops##_n >= 0; ops##_n = -1)                                                                  \
        for (const linear_ops *ops; (ops = linear_entry(ops##_n, &(bool){false})) != NULL; ops##_n++)                  \
            if (set_found(ops##_n))

static bool set_found(int n)
{
    bool found;
    linear_entry(n, &found);
    return found;
}

static void *taken(int64_t bytes)
{
    void *p = aligned_alloc(64, (size_t)(bytes + 63) / 64 * 64);
    assert_non_null(p);
    return p;
}

static float uniform(uint64_t *state)
{
    return (float)((double)(draw(state) >> 11) * 0x1p-52 - 1);
}

/* Fill x with sums of four uniform numbers, which are approximately normal. */
static void numbers(float *x, int64_t n, float size, uint64_t *seed)
{
    for (int64_t i = 0; i < n; i++)
        x[i] = size * (uniform(seed) + uniform(seed) + uniform(seed) + uniform(seed));
}

static linear_weights packed(linear_type type, int64_t in, int64_t out, const float *w)
{
    void *memory = taken(linear_packed_bytes(type, in, out));
    good(linear_pack(NULL, type, in, out, w, RP_F32, in, memory));
    return (linear_weights){type, in, out, memory};
}

static linear_screen screen_of(const linear_weights *w)
{
    linear_screen s;
    good(linear_screen_make(&s, NULL, w, taken(linear_screen_bytes(w->in, w->out))));
    return s;
}

static void free_weights(const linear_weights *w)
{
    free((void *)(uintptr_t)w->packed);
}

/* ---- some outputs */

static void test_some_outputs_have_the_bits_of_all(void **state)
{
    static const int64_t ins[] = {1, 2, 33, 700}, outs[] = {1, 16, 17, 64, 65, 200};
    uint64_t seed = 5;
    (void)state;
    EACH_SET(ops)
    for (int type = LINEAR_F32; type <= LINEAR_BF16; type++)
        for (int i = 0; i < 4; i++)
            for (int o = 0; o < 6; o++) {
                const int64_t in = ins[i], out = outs[o];
                float *given = taken(in * out * 4), *x = taken(in * 4), all[200], some[400];
                int32_t list[400];
                numbers(given, in * out, 1, &seed);
                numbers(x, in, 1, &seed);
                const linear_weights w = packed((linear_type)type, in, out, given);
                good(linear_apply(NULL, &w, &(linear_call){.rows = 1, .x = x, .y = all, .isa = ops->name}));
                for (int k = 0; k < 400; k++) /* first in order, then in random order */
                    list[k] = k < 200 ? (int32_t)(k % out) : (int32_t)(draw(&seed) % (uint64_t)out);
                good(linear_some(&w, x, 400, list, some, ops->name));
                for (int k = 0; k < 400; k++)
                    if (memcmp(&some[k], &all[list[k]], 4) != 0)
                        fail_msg("%s on %s, in %d, out %d: output %d is %.9g alone and %.9g among all", ops->name,
                                 linear_type_name(w.type), (int)in, (int)out, (int)list[k], (double)some[k],
                                 (double)all[list[k]]);
                free_weights(&w);
                free(given);
                free(x);
            }
}

/* ---- bounds */

typedef struct found {
    int64_t rows, candidates, none; /* rows tested; outputs in them that may be the largest; rows without bounds */
    double worst;                   /* largest distance of a product from the middle of its bounds, in half widths */
} found;

static int64_t argmax(const float *y, int64_t n)
{
    int64_t at = 0;
    for (int64_t o = 1; o < n; o++)
        at = y[o] > y[at] ? o : at;
    return at;
}

/* Check that every product is within its bounds, and that the first largest output is also the first largest
 * candidate. */
static void check_row(const linear_weights *w, const float *x, const float *y, const float *bounds, const char *isa,
                      found *f)
{
    const int64_t out = w->out;
    const float *low = bounds, *high = bounds + out;
    float most = -INFINITY, best = -INFINITY;
    int64_t n = 0, at = -1;
    for (int64_t o = 0; o < out; o++) {
        if (!(low[o] <= y[o] && y[o] <= high[o]) && !(isinf(low[o]) && isinf(high[o])))
            fail_msg("%s on %s: product %d is %.9g, not from %.9g to %.9g", linear_type_name(w->type), isa, (int)o,
                     (double)y[o], (double)low[o], (double)high[o]);
        most = low[o] > most ? low[o] : most;
        if (isfinite(low[o]) && high[o] > low[o])
            f->worst = fmax(f->worst, fabs(2 * (double)y[o] - (double)low[o] - (double)high[o]) /
                                          ((double)high[o] - (double)low[o]));
    }
    if (most == -INFINITY) {
        f->none++;
        return;
    }
    for (int32_t o = 0; o < out; o++)
        if (high[o] >= most) {
            float alone;
            good(linear_some(w, x, 1, &o, &alone, isa));
            if (at < 0 || alone > best) {
                best = alone;
                at = o;
            }
            n++;
        }
    if (at != argmax(y, out))
        fail_msg("%s on %s: the largest is %d and not %d", linear_type_name(w->type), isa, (int)at,
                 (int)argmax(y, out));
    f->rows++;
    f->candidates += n;
}

static void check_rows(const linear_weights *w, const linear_screen *s, int64_t rows, const float *x, const char *isa,
                       found *f)
{
    float *y = taken(rows * w->out * 4), *bounds = taken(rows * 2 * w->out * 4);
    const linear_call call = {.rows = rows, .x = x, .ldx = w->in, .y = y, .ldy = w->out, .isa = isa};
    good(linear_apply(NULL, w, &call));
    good(linear_screen_bounds(s, NULL, rows, x, w->in, bounds, isa));
    for (int64_t r = 0; r < rows; r++)
        check_row(w, x + r * w->in, y + r * w->out, bounds + 2 * r * w->out, isa, f);
    free(y);
    free(bounds);
}

/* Kinds of matrices whose rows are hard to tell apart, or hard to represent in 8 bits. */
enum { NORMAL, EQUAL_ROWS, ONE_LARGE_NUMBER, MANY_SIZES, ON_THE_GRID, IN_8_BITS, MATRICES };
static const char *const matrix_name[] = {"normal",     "equal rows",  "one large number",
                                          "many sizes", "on the grid", "in 8 bits"};

static void make_matrix(int kind, float *w, uint64_t *seed)
{
    numbers(w, IN * OUT, 1, seed);
    for (int64_t o = 0; o < OUT; o++)
        for (int64_t i = 0; i < IN; i++) {
            float *at = &w[o * IN + i];
            switch (kind) {
            case EQUAL_ROWS: *at = o < 4 ? *at : w[o % 4 * IN + i] * (o % 8 < 4 ? 1 : 1 + 0x1p-22f); break;
            case ONE_LARGE_NUMBER: *at *= i == 7 ? 500 : 1; break;
            case MANY_SIZES: *at = ldexpf(*at, (int)(o % 200) - 150); break;
            case ON_THE_GRID: *at = i == 0 ? 127 : rintf(*at * 60) + 0.5f; break; /* between two steps */
            case IN_8_BITS:
                *at = i == 0 ? 127 : rintf(*at * 31);
                break; /* exact in 8 bits: only x and the sum are rounded */
            }
        }
}

/* Fill the rows of x: ordinary rows; with one large number; sparse; tiny and large; equal; on the grid; zeros;
 * non-finite. */
static void make_rows(float *x, uint64_t *seed)
{
    numbers(x, ROWS * IN, 1, seed);
    for (int64_t i = 0; i < IN; i++) {
        x[1 * IN + i] *= i == 3 ? 1000 : 1;
        x[2 * IN + i] *= i % 16 ? 0 : 1;
        x[3 * IN + i] *= 0x1p-38f;
        x[4 * IN + i] *= 0x1p+37f;
        x[5 * IN + i] = 1;
        x[6 * IN + i] = i == 0 ? 127 : rintf(x[6 * IN + i] * 60) + 0.5f;
        x[7 * IN + i] *= ldexpf(1, -(int)i);
        x[8 * IN + i] = i == 0 ? 1 : 0x1p-140f;
        x[9 * IN + i] = i == 0 ? 127 : rintf(x[9 * IN + i] * 60);                             /* rounds exactly */
        x[10 * IN + i] = i == 0 ? 127 : rintf(x[10 * IN + i] * 60) + (i == 1 ? 0x1p-17f : 0); /* almost exactly */
        x[11 * IN + i] = 0;
        x[12 * IN + i] *= 0x1p-60f;
        x[13 * IN + i] *= 0x1p+60f;
    }
    x[14 * IN + 5] = NAN;
    x[15 * IN + 5] = INFINITY;
    x[16 * IN + 95] = -INFINITY;
}
enum { UNBOUNDED = 6 }; /* the number of rows without bounds */

/* Make x proportional to the rounding error of row `o`, so the error of their product almost reaches its bound. */
static void lost_row(const linear_weights *w, const linear_screen *s, int64_t o, float *x)
{
    float kept[IN], most = 0;
    linear_row(w, o, x);
    linear_row(&s->w, o, kept);
    for (int i = 0; i < IN; i++)
        most = fmaxf(most, fabsf(x[i] -= kept[i]));
    for (int i = 0; i < IN; i++)
        x[i] = most > 0 ? x[i] / most : 1;
}

static float largest(const float *x, int64_t n)
{
    float most = 0;
    for (int64_t i = 0; i < n; i++)
        most = fmaxf(most, fabsf(x[i]));
    return most;
}

static void test_products_are_within_their_bounds(void **state)
{
    float *given = taken(IN * OUT * 4), *x = taken(ROWS * IN * 4);
    (void)state;
    for (int kind = 0; kind < MATRICES; kind++)
        for (int type = LINEAR_F32; type <= LINEAR_BF16; type++) {
            uint64_t seed = 11 + (uint64_t)kind;
            found f = {0};
            make_matrix(kind, given, &seed);
            const linear_weights w = packed((linear_type)type, IN, OUT, given);
            const linear_screen s = screen_of(&w);
            if (type == LINEAR_F16 && largest(given, IN * OUT) > 65504) { /* infinite in f16 */
                assert_false(s.bounds);
                free_weights(&w);
                free_weights(&s.w);
                continue;
            }
            assert_true(s.bounds);
            make_rows(x, &seed);
            for (int64_t r = 17; r < ROWS; r++)
                lost_row(&w, &s, 700 * (r - 16), x + r * IN);
            EACH_SET(ops)
            {
                f.rows = f.candidates = f.none = 0;
                check_rows(&w, &s, ROWS, x, ops->name, &f);
                assert_int_equal(f.none, UNBOUNDED);
            }
            if (kind == NORMAL)
                assert_true(f.worst > 0.9);
            printf("%-16s %-4s %6.1f candidates of %d; largest distance %.2f of its bound\n", matrix_name[kind],
                   linear_type_name(w.type), (double)f.candidates / (double)f.rows, OUT, f.worst);
            free_weights(&w);
            free_weights(&s.w);
        }
    free(given);
    free(x);
}

static void test_thousands_of_rows(void **state)
{
    enum { TIMES = 100, MANY = 40 };
    float *given = taken(IN * OUT * 4), *x = taken(MANY * IN * 4);
    uint64_t seed = 3;
    found f = {0};
    (void)state;
    make_matrix(NORMAL, given, &seed);
    const linear_weights w = packed(LINEAR_F32, IN, OUT, given);
    const linear_screen s = screen_of(&w);
    for (int t = 0; t < TIMES; t++) {
        numbers(x, MANY * IN, ldexpf(1, t % 60 - 30), &seed);
        check_rows(&w, &s, MANY, x, NULL, &f);
    }
    assert_int_equal(f.rows, TIMES * MANY);
    assert_true(f.candidates < f.rows * OUT / 50);
    printf("%d rows: %.1f candidates of %d; largest distance %.2f of its bound\n", (int)f.rows,
           (double)f.candidates / (double)f.rows, OUT, f.worst);
    free_weights(&w);
    free_weights(&s.w);
    free(given);
    free(x);
}

/* A matrix with a non-finite or huge number has no bounds: `bounds` is false. */
static void test_matrices_without_bounds(void **state)
{
    const float bad[] = {NAN, INFINITY, -INFINITY, 0x1p61f};
    float *given = taken(40 * IN * 4), x[IN], bounds[80];
    uint64_t seed = 1;
    (void)state;
    numbers(x, IN, 1, &seed);
    for (int k = 0; k < 4; k++) {
        numbers(given, 40 * IN, 1, &seed);
        given[17 * IN + 3] = bad[k];
        const linear_weights w = packed(LINEAR_F32, IN, 40, given);
        const linear_screen s = screen_of(&w);
        assert_false(s.bounds);
        good(linear_screen_bounds(&s, NULL, 1, x, IN, bounds, NULL));
        for (int o = 0; o < 40; o++)
            assert_true(bounds[o] == -INFINITY && bounds[40 + o] == INFINITY);
        free_weights(&w);
        free_weights(&s.w);
    }
    free(given);
}

/* A screen contains the bytes that linear_pack makes from the same numbers. */
static void test_a_screen_is_packed_as_int8(void **state)
{
    static const int64_t ins[] = {1, 2, 6, 33, 700}, outs[] = {1, 16, 17, 64, 65, 200};
    uint64_t seed = 8;
    (void)state;
    for (int type = LINEAR_F32; type <= LINEAR_BF16; type++)
        for (int i = 0; i < 5; i++)
            for (int o = 0; o < 6; o++) {
                const int64_t in = ins[i], out = outs[o];
                float *given = taken(in * out * 4);
                numbers(given, in * out, 1, &seed);
                if (out > 20) { /* zeros, tiny numbers, NaN, infinity, and quotients halfway between two integers */
                    memset(given, 0, (size_t)in * 4);
                    numbers(given + in, in, 0x1p-122f, &seed);
                    given[3 * in] = NAN;
                    given[5 * in - 1] = -INFINITY;
                    for (int64_t k = 0; k < in; k++)
                        given[6 * in + k] = k > 0 ? (float)(k % 127) - 0.5f : 127;
                }
                const linear_weights w = packed((linear_type)type, in, out, given);
                for (int64_t r = 0; r < out; r++)
                    linear_row(&w, r, given + r * in);
                const linear_weights int8 = packed(LINEAR_INT8, in, out, given);
                const linear_screen s = screen_of(&w);
                assert_memory_equal(s.w.packed, int8.packed, linear_packed_bytes(LINEAR_INT8, in, out));
                assert_int_equal(s.bounds, out <= 20);
                free_weights(&w);
                free_weights(&int8);
                free_weights(&s.w);
                free(given);
            }
}

static void test_arguments(void **state)
{
    float w[64 * 2] = {1}, x[2] = {1, 2}, y[4];
    int32_t list[] = {0, 64};
    linear_screen s;
    (void)state;
    const linear_weights f32 = packed(LINEAR_F32, 2, 64, w), int8 = packed(LINEAR_INT8, 2, 64, w);
    char *memory = taken(linear_screen_bytes(2, 64));
    assert_int_equal(linear_some(&f32, x, 2, list, y, NULL), RP_E_ARG);
    list[1] = -1;
    assert_int_equal(linear_some(&f32, x, 2, list, y, NULL), RP_E_ARG);
    assert_int_equal(linear_some(&f32, NULL, 1, list, y, NULL), RP_E_ARG);
    assert_int_equal(linear_some(&f32, x, -1, list, y, NULL), RP_E_ARG);
    assert_int_equal(linear_some(&int8, x, 1, list, y, NULL), RP_E_UNSUPPORTED);
    assert_int_equal(linear_some(&f32, x, 1, list, y, "6502"), RP_E_ARG);
    good(linear_some(&f32, NULL, 0, NULL, NULL, NULL));
    assert_int_equal(linear_screen_make(&s, NULL, &int8, memory), RP_E_ARG);
    assert_int_equal(linear_screen_make(&s, NULL, &f32, memory + 4), RP_E_ARG);
    assert_int_equal(linear_screen_bytes(2, INT64_MAX / 4), -1);
    assert_int_equal(linear_screen_bytes(0, 4), -1);
    assert_int_equal(linear_screen_bytes(LINEAR_INT8_MAX_IN + 1, 4), -1);
    free_weights(&f32);
    free_weights(&int8);
    free(memory);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_some_outputs_have_the_bits_of_all),
        cmocka_unit_test(test_products_are_within_their_bounds),
        cmocka_unit_test(test_thousands_of_rows),
        cmocka_unit_test(test_matrices_without_bounds),
        cmocka_unit_test(test_a_screen_is_packed_as_int8),
        cmocka_unit_test(test_arguments),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
