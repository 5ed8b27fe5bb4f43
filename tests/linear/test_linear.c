/* test_linear.c -- compares linear layers with plain loops in double: every type, every instruction set of this
 * machine, sizes at the edges of tiles. Also checks that the bits of a row depend only on that row.
 * SPDX-License-Identifier: Apache-2.0 */
#include "tests/helpers.h"
#include "linear/ops.h"

/* Loop with ops = each instruction set of linear layers that this machine has. */
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

/* Return true for sets without FMA. They round product and sum separately, so their bits differ for types with
 * floating-point sums. */
HELPER bool plain(const linear_ops *ops)
{
    return strcmp(ops->name, "generic") == 0 || strcmp(ops->name, "amx_emulated") == 0;
}

static const char *const then_name[] = {"store", "add", "relu", "gelu", "times", "gelu_erf"};

/* A matrix, its packed form, and the numbers that this form represents. */
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

/* Round x like the products: to bf16, or to 8 bits for integer types. */
static void seen(linear_type type, const float *x, int64_t n, double *to)
{
    if (type == LINEAR_BF16) {
        uint16_t *half = taken(n * 2);
        float *rounded = taken(n * 4);
        good(rp_convert(half, RP_BF16, x, RP_F32, n));
        good(rp_convert(rounded, RP_F32, half, RP_BF16, n));
        for (int64_t i = 0; i < n; i++)
            to[i] = (double)rounded[i];
        free(half);
        free(rounded);
        return;
    }
    const int64_t group = type == LINEAR_Q8 ? 32 : n; /* inputs that share a scale */
    for (int64_t from = 0; from < n; from += group) {
        const int64_t end = from + group < n ? from + group : n;
        float max = 0;
        for (int64_t i = from; i < end; i++)
            max = fmaxf(max, fabsf(x[i]));
        const float scale = max / 127, over = 127 / max;
        for (int64_t i = from; i < end; i++)
            to[i] = type >= LINEAR_INT8 ? (double)scale * (double)rintf(x[i] * over) : (double)x[i];
    }
}

static double then_of(linear_then then, double p, double y)
{
    switch (then) {
    case LINEAR_ADD: return y + p;
    case LINEAR_RELU: return fmax(p, 0);
    case LINEAR_GELU: return p / 2 * (1 + tanh(sqrt(2 / 3.14159265358979323846) * (p + 0.044715 * p * p * p)));
    case LINEAR_TIMES: return y * p;
    case LINEAR_GELU_ERF: return p / 2 * (1 + erf(p / sqrt(2)));
    default: return p;
    }
}

/* Return the bound of the rounding error. In f32, a chain of n sums and n products for n inputs is off by (n + 1) Σ|x
 * w| units of 2^-24, with or without FMA. Products of bf16 are exact, which leaves n sums. Sums of integers are exact,
 * which leaves a chain over groups of 32; the scales add 4. A bias rounds once more; p includes it. ADD and TIMES round
 * twice. The slope of GELU is below 1.13, gelu() itself is off by 9 + 8 |u|, and gelu_erf() by 12 |p|. */
static double bound_of(linear_type type, const linear_call *c, int64_t in, double size, double p, double y)
{
    const double u = 0x1p-24, chain = type == LINEAR_INT8   ? 3
                                      : type == LINEAR_INT4 ? (double)in / 32 + 5
                                      : type == LINEAR_Q8   ? (double)in / 32 + 6
                                      : type == LINEAR_BF16 ? (double)in
                                                            : 2.0 * (double)in;
    const double sum = chain * u * size, off = sum + (c->bias ? u * (fabs(p) + sum) : 0);
    const double inner = 0.8 * (fabs(p) + 0.044715 * fabs(p * p * p));
    switch (c->then) {
    case LINEAR_ADD: return off + u * (fabs(p) + fabs(y) + off);
    case LINEAR_TIMES: return fabs(y) * (off + u * (fabs(p) + off));
    case LINEAR_GELU:
        return 1.13 * off + u * (9 + 8 * inner) * (fabs(then_of(LINEAR_GELU, p, 0)) + 1.13 * off) + 0x1p-140;
    case LINEAR_GELU_ERF: return 1.13 * off + u * 12 * (fabs(p) + off);
    default: return off;
    }
}

/* Return the largest ratio of an error to its bound. */
static double worst_of(const matrix *m, const linear_call *c, const float *before)
{
    const int64_t in = m->w.in;
    double *x = taken(in * 8), worst = 0;
    for (int64_t r = 0; r < c->rows; r++) {
        seen(m->w.type, c->x + r * c->ldx, in, x);
        for (int64_t o = 0; o < m->w.out; o++) {
            double p = c->bias ? (double)c->bias[o] : 0, size = 0;
            for (int64_t i = 0; i < in; i++) {
                p += x[i] * (double)m->kept[o * in + i];
                size += fabs(x[i] * (double)m->kept[o * in + i]);
            }
            const double y = (double)before[r * c->ldy + o], want = then_of(c->then, p, y);
            const double error = fabs((double)c->y[r * c->ldy + o] - want);
            const double bound = bound_of(m->w.type, c, in, size, p, y);
            if (!(error <= bound))
                fail_msg("%s on %s%s, then %s: %d rows, in %d, out %d: [%d, %d] is %.9g instead of %.9g: error %.3g, "
                         "bound %.3g",
                         linear_type_name(m->w.type), c->isa, c->bias ? ", bias" : "", then_name[c->then], (int)c->rows,
                         (int)in, (int)m->w.out, (int)r, (int)o, (double)c->y[r * c->ldy + o], want, error, bound);
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
                const linear_then then = (linear_then)((i + o + r) % 6);
                const linear_call c = {.rows = rows_tried[r],
                                       .x = x,
                                       .ldx = LDX,
                                       .y = y,
                                       .ldy = LDY,
                                       .then = then,
                                       .bias = r % 2 ? before + 7 : NULL,
                                       .isa = ops->name};
                memcpy(y, before, sizeof(float) * MOST_ROWS * LDY);
                good(linear_apply(NULL, &m.w, &c));
                worst = fmax(worst, worst_of(&m, &c, before));
                for (int64_t a = 0; a < MOST_ROWS * LDY; a++) /* columns outside of y must not be written */
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

/* ---- bits */

enum {
    BIT_ROWS = 131,
    BIT_IN = 4100,
    BIT_OUT = 83
}; /* more rows than a block, more lines than a step, and a narrow last panel */

static void apply_with(int threads, const matrix *m, const linear_call *c)
{
    rp_pool *pool;
    good(rp_pool_create(&pool, threads));
    good(linear_apply(pool, &m->w, c));
    rp_pool_destroy(pool);
}

static void bits_of(const matrix *m, const linear_ops *ops, const float *x, float *batch, float *y)
{
    linear_call c = {
        .rows = BIT_ROWS, .x = x, .ldx = BIT_IN, .y = batch, .ldy = BIT_OUT, .bias = x + 5, .isa = ops->name};
    apply_with(1, m, &c);
    c.y = y;
    for (int threads = 2; threads <= 5; threads += 3) {
        memset(y, 0, sizeof(float) * BIT_ROWS * BIT_OUT);
        apply_with(threads, m, &c);
        if (memcmp(y, batch, sizeof(float) * BIT_ROWS * BIT_OUT) != 0)
            fail_msg("%s on %s: %d threads change bits", linear_type_name(m->w.type), ops->name, threads);
    }
    for (c.rows = 1; c.rows < 40; c.rows = c.rows * 3 / 2 + 1) /* use any number of rows, starting at any row */
        for (int64_t r = 0; r + c.rows <= BIT_ROWS; r += 29) {
            c.x = x + r * BIT_IN;
            apply_with(c.rows % 2 ? 1 : 2, m, &c);
            if (memcmp(y, batch + r * BIT_OUT, sizeof(float) * (size_t)c.rows * BIT_OUT) != 0)
                fail_msg("%s on %s: %d rows from row %d on have other bits than in a batch of %d",
                         linear_type_name(m->w.type), ops->name, (int)c.rows, (int)r, BIT_ROWS);
        }
}

static void test_bits_of_a_row_depend_on_nothing_else(void **state)
{
    float *x = numbers(BIT_ROWS * BIT_IN, 3), *batch = taken(BIT_ROWS * BIT_OUT * 4),
          *y = taken(BIT_ROWS * BIT_OUT * 4);
    (void)state;
    for (int type = 0; type < LINEAR_TYPES; type++) {
        matrix m;
        matrix_begin(&m, (linear_type)type, BIT_IN, BIT_OUT);
        EACH_SET(ops)
        bits_of(&m, ops, x, batch, y);
        matrix_end(&m);
    }
    free(x);
    free(batch);
    free(y);
}

/* int8: sums of integers are exact, and every set rounds everything else in the same way. bf16: products are exact, and
 * all sets add in one order. Other types, and GELU_ERF: only sets with FMA have the same bits. */
static void test_sets_have_the_same_bits(void **state)
{
    float *x = numbers(7 * 500, 4), *first = taken(7 * 40 * 4), *y = taken(7 * 40 * 4);
    (void)state;
    for (int n = 0; n < 2 * LINEAR_TYPES; n++) {
        const linear_type type = (linear_type)(n / 2);
        const linear_then then = n % 2 ? LINEAR_GELU_ERF : LINEAR_STORE;
        matrix m;
        bool begun = false;
        matrix_begin(&m, type, 500, 40);
        EACH_SET(ops)
        {
            const linear_call c = {.rows = 7,
                                   .x = x,
                                   .ldx = 500,
                                   .y = begun ? y : first,
                                   .ldy = 40,
                                   .then = then,
                                   .bias = x + 9,
                                   .isa = ops->name};
            if (((type != LINEAR_INT8 && type != LINEAR_BF16) || then != LINEAR_STORE) && plain(ops))
                continue;
            good(linear_apply(NULL, &m.w, &c));
            if (begun)
                assert_memory_equal(y, first, 7 * 40 * 4);
            begun = true;
        }
        matrix_end(&m);
    }
    free(x);
    free(first);
    free(y);
}

/* p + bias is rounded once, and then used as `then` says. So a call with a bias has the bits of plain code after a call
 * without one, whose p is unchanged. Sizes reach tiles that store outputs from registers, and the last outputs of a
 * row. */
static void test_a_bias_is_added_to_the_product(void **state)
{
    static const int64_t rows[] = {1, 6, 17, 33};
    static const linear_then thens[] = {LINEAR_STORE, LINEAR_ADD, LINEAR_RELU, LINEAR_TIMES};
    enum { IN = 96, OUT = 150 };
    float *x = numbers(33 * IN, 31), *before = numbers(33 * OUT, 32), *bias = numbers(OUT, 33),
          *p = taken(33 * OUT * 4), *y = taken(33 * OUT * 4);
    (void)state;
    for (int n = 0; n < LINEAR_TYPES * COUNT(rows) * COUNT(thens); n++) {
        const linear_then then = thens[n % COUNT(thens)];
        matrix m;
        matrix_begin(&m, (linear_type)(n / COUNT(thens) % LINEAR_TYPES), IN, OUT);
        EACH_SET(ops)
        {
            linear_call c = {.rows = rows[n / COUNT(thens) / LINEAR_TYPES], .x = x, .ldx = IN, .y = p, .ldy = OUT};
            c.isa = ops->name;
            good(linear_apply(NULL, &m.w, &c));
            memcpy(y, before, sizeof(float) * 33 * OUT);
            c.y = y;
            c.then = then;
            c.bias = bias;
            good(linear_apply(NULL, &m.w, &c));
            for (int64_t k = 0; k < c.rows * OUT; k++) {
                const float sum = p[k] + bias[k % OUT], want = then == LINEAR_ADD     ? before[k] + sum
                                                               : then == LINEAR_RELU  ? fmaxf(sum, 0)
                                                               : then == LINEAR_TIMES ? before[k] * sum
                                                                                      : sum;
                if (y[k] != want)
                    fail_msg("%s on %s, then %s, %d rows: [%d, %d] is %a instead of %a", linear_type_name(m.w.type),
                             ops->name, then_name[then], (int)c.rows, (int)(k / OUT), (int)(k % OUT), (double)y[k],
                             (double)want);
            }
        }
        matrix_end(&m);
    }
    free(x);
    free(before);
    free(bias);
    free(p);
    free(y);
}

/* f16 and f32 give bit-identical results for the same numbers, with any number of rows, odd numbers of inputs, and
 * outputs that do not fill a column. */
static void test_f16_has_the_bits_of_f32(void **state)
{
    static const int64_t rows[] = {1, 2, 3, 6, 7, 13, 97};
    enum { MOST = 97 };
    (void)state;
    for (int i = 0; i < COUNT(ins); i++)
        for (int64_t out = 15; out <= 129; out += 38) {
            matrix half, full;
            float *x = numbers(MOST * ins[i], 21), *y = taken(MOST * out * 4), *want = taken(MOST * out * 4);
            matrix_begin(&half, LINEAR_F16, ins[i], out);
            matrix_begin(&full, LINEAR_F32, ins[i], out);
            good(linear_pack(NULL, LINEAR_F32, ins[i], out, half.kept, RP_F32, ins[i],
                             (void *)(uintptr_t)full.w.packed));
            EACH_SET(ops)
            for (int r = 0; r < COUNT(rows); r++) {
                linear_call c = {.rows = rows[r], .x = x, .ldx = ins[i], .y = y, .ldy = out, .isa = ops->name};
                good(linear_apply(NULL, &half.w, &c));
                c.y = want;
                good(linear_apply(NULL, &full.w, &c));
                assert_memory_equal(y, want, rows[r] * out * 4);
            }
            free(x);
            free(y);
            free(want);
            matrix_end(&half);
            matrix_end(&full);
        }
}

/* int8 at the edges of AMX tiles of 16 rows by 16 outputs by 64 inputs. Compare every set with generic, whose sums are
 * plain loops and whose bounds are tested above. In one row out of three and one output out of three, all bytes have
 * the largest absolute value. */
static void test_int8_has_the_same_bits_at_the_edges_of_tiles(void **state)
{
    static const int64_t rows[] = {1, 4, 5, 15, 16, 17, 31, 32, 33, 47, 49, 65, 95, 96, 97, 113},
                         in[] = {1, 3, 5, 31, 33, 60, 61, 64, 65, 96, 100, 129},
                         out[] = {1, 15, 16, 17, 32, 33, 48, 49, 63, 64, 65, 129};
    enum { ROWS = 113, IN = 129, OUT = 129 };
    float *x = numbers(ROWS * IN, 11), *w = numbers(OUT * IN, 12), *before = numbers(ROWS * OUT, 13),
          *want = taken(ROWS * OUT * 4), *y = taken(ROWS * OUT * 4);
    (void)state;
    for (int n = IN; n < ROWS * IN; n++)
        x[n] = n / IN % 3 == 1 ? copysignf(1, x[n]) : x[n];
    for (int n = IN; n < OUT * IN; n++)
        w[n] = n / IN % 3 == 1 ? 1 : w[n];
    for (int i = 0; i < COUNT(in); i++)
        for (int o = 0; o < COUNT(out); o++) {
            const linear_then then = (linear_then[]){LINEAR_STORE, LINEAR_ADD, LINEAR_RELU, LINEAR_TIMES}[(i + o) % 4];
            matrix m = {.w = {LINEAR_INT8, in[i], out[o], taken(linear_packed_bytes(LINEAR_INT8, in[i], out[o]))}};
            good(linear_pack(NULL, LINEAR_INT8, in[i], out[o], w, RP_F32, IN, (void *)(uintptr_t)m.w.packed));
            linear_call c = {.rows = ROWS, .x = x, .ldx = IN, .y = want, .ldy = OUT, .then = then, .isa = "generic"};
            c.bias = o % 2 ? before + 3 : NULL;
            memcpy(want, before, sizeof(float) * ROWS * OUT);
            good(linear_apply(NULL, &m.w, &c));
            c.y = y;
            EACH_SET(ops)
            for (int r = 0; r < COUNT(rows); r++) {
                c.isa = ops->name;
                c.rows = rows[r];
                memcpy(y, before, sizeof(float) * ROWS * OUT);
                apply_with(1 + r % 3, &m, &c);
                if (memcmp(y, want, sizeof(float) * (size_t)c.rows * OUT) != 0 ||
                    memcmp(y + c.rows * OUT, before + c.rows * OUT, sizeof(float) * (size_t)(ROWS - c.rows) * OUT) != 0)
                    fail_msg("%s, then %s: %d rows, in %d, out %d: the bits differ from generic", ops->name,
                             then_name[then], (int)c.rows, (int)in[i], (int)out[o]);
            }
            free((void *)(uintptr_t)m.w.packed);
        }
    free(x);
    free(w);
    free(before);
    free(want);
    free(y);
}

/* Rows that are longer than the lines of a tile. In two rows and two outputs out of three, all bytes have the largest
 * absolute value. */
static void test_long_rows_have_the_same_bits(void **state)
{
    enum { ROWS = 13, IN = 2100, OUT = 49 };
    static const linear_type types[] = {LINEAR_INT8, LINEAR_INT4, LINEAR_Q8};
    float *x = numbers(ROWS * IN, 14), *w = numbers(OUT * IN, 15), *first = taken(ROWS * OUT * 4),
          *y = taken(ROWS * OUT * 4);
    (void)state;
    for (int n = 0; n < ROWS * IN; n++)
        x[n] = n / IN % 3 == 1 ? copysignf(1, x[n]) : n / IN % 3 == 2 ? -1 : x[n];
    for (int n = 0; n < OUT * IN; n++)
        w[n] = n / IN % 3 == 1 ? copysignf(1, w[n]) : n / IN % 3 == 2 ? -1 : w[n];
    for (int n = 0; n < COUNT(types); n++) {
        matrix m = {.w = {types[n], IN, OUT, taken(linear_packed_bytes(types[n], IN, OUT))}};
        bool begun = false;
        good(linear_pack(NULL, types[n], IN, OUT, w, RP_F32, IN, (void *)(uintptr_t)m.w.packed));
        EACH_SET(ops)
        {
            const linear_call c = {
                .rows = ROWS, .x = x, .ldx = IN, .y = begun ? y : first, .ldy = OUT, .isa = ops->name};
            if (types[n] != LINEAR_INT8 && plain(ops))
                continue;
            good(linear_apply(NULL, &m.w, &c));
            if (begun && memcmp(y, first, ROWS * OUT * 4) != 0)
                fail_msg("%s, %s: the bits differ from those of another set", ops->name, linear_type_name(types[n]));
            begun = true;
        }
        free((void *)(uintptr_t)m.w.packed);
    }
    free(x);
    free(w);
    free(first);
    free(y);
}

/* Compute sum + x w with one rounding, like VDPBF16PS. The product is exact in double. If the sum is not exact, it is
 * rounded to odd; rounding it to f32 then gives the rounding of the exact sum. A result below 2^-126 is zero. */
static float dot_step(float sum, float x, float w)
{
    const double a = (double)x * (double)w, b = (double)sum, high = a + b;
    const double rest = fabs(a) > fabs(b) ? b - (high - a) : a - (high - b);
    uint64_t bits;
    float y;
    memcpy(&bits, &high, sizeof bits);
    double odd = high;
    if (rest != 0 && isfinite(high) && (bits & 1) == 0) {
        bits += (rest > 0) == (high > 0) ? 1 : (uint64_t)-1;
        memcpy(&odd, &bits, sizeof odd);
    }
    y = (float)odd;
    return fabsf(y) < 0x1p-126f ? copysignf(0, y) : y;
}

/* Return a random bf16 whose exponent is at least `low`. With these numbers sums cancel, underflow, or are odd in the
 * last bit. */
static float draw_bf16(uint64_t *state, int low, int span)
{
    const uint64_t r = draw(state);
    const uint32_t bits = (uint32_t)((r & 0x807f) << 16) | (uint32_t)(low + (int)((r >> 32) % (uint64_t)span)) << 23;
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* Compare every set, bit for bit, with plain code that follows docs/maintainers/linear.md. Exponents are near 1; or
 * start at 2^-63, where products underflow; or have all values. */
static void test_bf16_is_one_chain_bit_for_bit(void **state)
{
    enum { ROWS = 13, IN = 37, OUT = 70, TIMES = 40 };
    static const struct {
        int low, span;
    } range[] = {{120, 14}, {58, 10}, {1, 190}};
    float *x = taken(ROWS * IN * 4), *w = taken(OUT * IN * 4), *y = taken(ROWS * OUT * 4),
          *want = taken(ROWS * OUT * 4);
    char *packed = taken(linear_packed_bytes(LINEAR_BF16, IN, OUT));
    const linear_weights m = {LINEAR_BF16, IN, OUT, packed};
    uint64_t seed = 9;
    int64_t tiny = 0;
    (void)state;
    for (int time = 0; time < TIMES * COUNT(range); time++) {
        const int low = range[time % COUNT(range)].low, span = range[time % COUNT(range)].span;
        for (int n = 0; n < ROWS * IN; n++)
            x[n] = draw_bf16(&seed, low, span);
        for (int n = 0; n < OUT * IN; n++)
            w[n] = draw_bf16(&seed, low, span > 100 ? 60 : span);
        for (int n = 0; n < ROWS * OUT; n++) {
            want[n] = 0;
            for (int i = 0; i < IN; i += 2) {
                if (i + 1 < IN)
                    want[n] = dot_step(want[n], x[n / OUT * IN + i + 1], w[n % OUT * IN + i + 1]);
                want[n] = dot_step(want[n], x[n / OUT * IN + i], w[n % OUT * IN + i]);
            }
            tiny += want[n] == 0;
        }
        good(linear_pack(NULL, LINEAR_BF16, IN, OUT, w, RP_F32, IN, packed));
        EACH_SET(ops)
        {
            if (low < 120 && plain(ops))
                continue; /* it rounds each product before adding it, so a product alone can underflow */
            const linear_call c = {.rows = ROWS, .x = x, .ldx = IN, .y = y, .ldy = OUT, .isa = ops->name};
            good(linear_apply(NULL, &m, &c));
            for (int n = 0; n < ROWS * OUT; n++)
                if (want[n] != y[n])
                    fail_msg("%s: exponents from %d on: [%d, %d] is %a instead of %a", ops->name, low - 127, n / OUT,
                             n % OUT, (double)y[n], (double)want[n]);
        }
    }
    printf("%d results underflowed to 0\n", (int)tiny);
    assert_true(tiny > 200);
    free(want);
    free(x);
    free(w);
    free(y);
    free(packed);
}

/* Edge cases of rounding inputs and weights: ties, subnormal numbers, the largest number, and NaN in which only the
 * last bit is set. */
static void test_bf16_rounds_to_nearest(void **state)
{
    static const uint32_t given[] = {0x3f800000, 0x3f808000, 0x3f808001, 0x3f818000, 0x3f817fff,
                                     0xbf818000, 0x007fffff, 0x80000001, 0x00800000, 0x7f7f7fff,
                                     0x7f7f8000, 0x7f800000, 0xff800000, 0x7f800001};
    static const uint32_t want[] = {0x3f800000, 0x3f800000, 0x3f810000, 0x3f820000, 0x3f810000, 0xbf820000, 0,
                                    0,          0x00800000, 0x7f7f0000, 0x7f800000, 0x7f800000, 0xff800000, 0x7fc00000};
    char packed[64] __attribute__((aligned(64)));
    const linear_weights m = {LINEAR_BF16, 1, 1, packed};
    const float one = 1;
    float x[COUNT(given)], y[COUNT(given)], kept;
    (void)state;
    memcpy(x, given, sizeof x);
    for (int n = 0; n < COUNT(given); n++) {
        uint32_t bits;
        good(linear_pack(NULL, LINEAR_BF16, 1, 1, &x[n], RP_F32, 1, packed));
        linear_row(&m, 0, &kept);
        memcpy(&bits, &kept, sizeof bits);
        assert_int_equal(kept == 0 ? bits & 0x7fffffff : bits, want[n]);
    }
    good(linear_pack(NULL, LINEAR_BF16, 1, 1, &one, RP_F32, 1, packed));
    EACH_SET(ops)
    {
        good(linear_apply(NULL, &m, &(linear_call){COUNT(given), x, 1, y, 1, .isa = ops->name}));
        for (int n = 0; n < COUNT(given); n++) {
            uint32_t bits;
            memcpy(&bits, &y[n], sizeof bits);
            if ((bits & (isnan(y[n]) ? 0x7fc00000 : ~0u)) != want[n])
                fail_msg("%s: %08x becomes %08x instead of %08x", ops->name, given[n], bits, want[n]);
        }
    }
}

/* ---- weights */

/* Return the bound of the error of a packed weight. It is half a step for int8 and q8. For int4 it is a whole step:
 * the scale maps the largest number to -8, and a number of the opposite sign, which maps to at most 7, may be as
 * large. */
static double packing_bound(linear_type type, const float *w, int64_t in, int64_t i)
{
    const int64_t from = type >= LINEAR_INT4 ? i / 32 * 32 : 0,
                  end = type >= LINEAR_INT4 && from + 32 < in ? from + 32 : in;
    double most = 0;
    for (int64_t k = from; k < end; k++)
        most = fmax(most, fabs((double)w[k]));
    switch (type) {
    case LINEAR_F16: return fmax(0x1p-11 * fabs((double)w[i]), 0x1p-25);
    case LINEAR_BF16: return 0x1p-8 * fabs((double)w[i]);
    case LINEAR_INT8:
    case LINEAR_Q8: return most / 127 * (0.5 + 1e-4);
    case LINEAR_INT4: return most / 7 * (1 + 0x1p-8);
    default: return 0;
    }
}

static void test_packed_weights_are_near_the_given_ones(void **state)
{
    (void)state;
    for (int type = 0; type < LINEAR_TYPES; type++) {
        double worst = 0;
        for (int i = 0; i < COUNT(ins); i++) {
            matrix m;
            matrix_begin(&m, (linear_type)type, ins[i], 65);
            for (int64_t o = 0; o < 65; o++)
                for (int64_t k = 0; k < ins[i]; k++) {
                    const float *w = m.given + o * ins[i];
                    const double error = fabs((double)w[k] - (double)m.kept[o * ins[i] + k]);
                    const double bound = packing_bound((linear_type)type, w, ins[i], k);
                    if (!(error <= bound))
                        fail_msg("%s: in %d, [%d, %d]: %.9g is kept as %.9g, bound %.3g",
                                 linear_type_name((linear_type)type), (int)ins[i], (int)o, (int)k, (double)w[k],
                                 (double)m.kept[o * ins[i] + k], bound);
                    worst = bound > 0 ? fmax(worst, error / bound) : worst;
                }
            matrix_end(&m);
        }
        printf("%-4s packed: largest error %.2f of its bound\n", linear_type_name((linear_type)type), worst);
    }
}

/* Files contain this layout, so it must not change. Compare some bytes with values derived by hand from layout.h. */
static void test_the_layout_stays_as_it_is(void **state)
{
    float w[65 * 33];
    (void)state;
    for (int o = 0; o < 65; o++)
        for (int i = 0; i < 33; i++)
            w[o * 33 + i] = (float)(o - i); /* row 17: from 17 to -15 */
    w[17 * 33 + 5] = 127;                   /* scale 1 */
    for (int type = 0; type < LINEAR_TYPES; type++) {
        const int64_t bytes[] = {33 * 320,   17 * 320, 17 * 320, 512 + 128 + 9 * 320, 2 * (128 + 1024) + 2 * (64 + 256),
                                 2 * 9 * 320};
        char *packed = taken(bytes[type]);
        float value;
        uint16_t half;
        assert_int_equal(linear_packed_bytes((linear_type)type, 33, 65), bytes[type]);
        good(linear_pack(NULL, (linear_type)type, 33, 65, w, RP_F32, 33, packed));
        switch (type) { /* row 17 is lane 1 of column 1; row 64 is lane 0 of the second panel, which has one column */
        case LINEAR_F32:
            memcpy(&value, packed + 3 * 256 + 64 + 4, 4);
            assert_true(value == 14);
            memcpy(&value, packed + 33 * 256 + 2 * 64, 4);
            assert_true(value == 62);
            break;
        case LINEAR_F16:
            memcpy(&half, packed + 1 * 256 + 64 + 32 + 2, 2); /* input 3 is in the second half of line 1 */
            assert_int_equal(half, 0x4b00);                   /* 14 */
            break;
        case LINEAR_BF16:
            memcpy(&half, packed + 1 * 256 + 64 + 2 * 2 + 2, 2); /* input 3 is the upper half of a pair in line 1 */
            assert_int_equal(half, 0x4160);                      /* 14 */
            break;
        case LINEAR_INT8:
            memcpy(&value, packed + 64 + 4, 4);
            assert_true(value == 1);
            assert_int_equal(packed[512 + 2 * 256 + 64 + 4 * 1 + 1], 8); /* input 9 is the second in line 2 */
            break;
        case LINEAR_INT4:
            memcpy(&half, packed + 32 + 2, 2); /* scale of the first group: 127 becomes -8 */
            assert_int_equal(half, 0xc17e);    /* -15.875 */
            assert_int_equal((unsigned char)packed[128 + 64 + 4 + 1] >> 4, 0);
            break;
        case LINEAR_Q8:
            memcpy(&value, packed + 64 + 4, 4);
            assert_true(value == 1);
            assert_int_equal((unsigned char)packed[256 + 2 * 256 + 64 + 4 * 1 + 1], 128 + 8);
            break;
        }
        free(packed);
    }
}

/* Groups of multiples of max |w| / 8 or / 16, as in Q4_0 and Q5_0, and of f16 scales times -127 to 127 (Q8_0) are kept
 * exactly in q8. */
static void test_q8_keeps_blocks_exactly(void **state)
{
    enum { IN = 96, OUT = 70 };
    static const int levels[] = {8, 16, 127};
    float w[OUT * IN], row[IN];
    (void)state;
    for (int o = 0; o < OUT; o++)
        for (int i = 0; i < IN; i++) {
            const int most = levels[i / 32], q = i % 32 == o % 32 ? -most : (o * 37 + i * 11) % (2 * most) - most;
            w[o * IN + i] = (float)q * (float)(1024 + o * 13) * 0x1p-20f;
        }
    linear_weights m = {LINEAR_Q8, IN, OUT, taken(linear_packed_bytes(LINEAR_Q8, IN, OUT))};
    good(linear_pack(NULL, LINEAR_Q8, IN, OUT, w, RP_F32, IN, (void *)(uintptr_t)m.packed));
    for (int o = 0; o < OUT; o++) {
        linear_row(&m, o, row);
        assert_memory_equal(row, w + o * IN, sizeof row);
    }
    free((void *)(uintptr_t)m.packed);
}

static void test_other_types_and_strides_pack_alike(void **state)
{
    enum { IN = 45, OUT = 70, STRIDE = 51 };
    float *w = numbers(OUT * STRIDE, 5);
    uint16_t *narrow = taken(OUT * STRIDE * 2);
    (void)state;
    for (int type = 0; type < LINEAR_TYPES; type++)
        for (int dtype = 0; dtype < 2; dtype++) {
            const int64_t bytes = linear_packed_bytes((linear_type)type, IN, OUT);
            char *a = taken(bytes), *b = taken(bytes);
            good(rp_convert(narrow, dtype ? RP_BF16 : RP_F16, w, RP_F32, OUT * STRIDE));
            good(rp_convert(w, RP_F32, narrow, dtype ? RP_BF16 : RP_F16, OUT * STRIDE));
            good(linear_pack(NULL, (linear_type)type, IN, OUT, w, RP_F32, STRIDE, a));
            good(linear_pack(NULL, (linear_type)type, IN, OUT, narrow, dtype ? RP_BF16 : RP_F16, STRIDE, b));
            assert_memory_equal(a, b, (size_t)bytes);
            free(a);
            free(b);
        }
    free(w);
    free(narrow);
}

/* ---- numbers that are not finite, and very small ones */

static void test_non_finite_numbers(void **state)
{
    enum { IN = 40, OUT = 20, ROWS = 3 };
    const float bad[] = {NAN, INFINITY, -INFINITY};
    float y[ROWS * OUT];
    (void)state;
    for (int type = 0; type < LINEAR_TYPES; type++)
        for (int b = 0; b < COUNT(bad); b++)
            EACH_SET(ops)
            {
                matrix m;
                float *x = numbers(ROWS * IN, 6);
                linear_call c = {.rows = ROWS, .x = x, .ldx = IN, .y = y, .ldy = OUT, .isa = ops->name};
                matrix_begin(&m, (linear_type)type, IN, OUT);
                m.given[3 * IN + 35] = bad[b]; /* affects one output */
                good(linear_pack(NULL, (linear_type)type, IN, OUT, m.given, RP_F32, IN, (void *)(uintptr_t)m.w.packed));
                x[1 * IN + 7] = bad[b]; /* affects one row */
                good(linear_apply(NULL, &m.w, &c));
                for (int n = 0; n < ROWS * OUT; n++) {
                    const bool finite = n % OUT != 3 && n / OUT != 1;
                    if (finite ? !isfinite(y[n]) : type >= LINEAR_INT8 || isnan(bad[b]) ? !isnan(y[n]) : isfinite(y[n]))
                        fail_msg("%s on %s: %g gives [%d, %d] = %g", linear_type_name((linear_type)type), ops->name,
                                 (double)bad[b], n / OUT, n % OUT, (double)y[n]);
                }
                matrix_end(&m);
                free(x);
            }
}

static void test_relu_and_gelu_at_the_ends(void **state)
{
    const float w[] = {1}, x[] = {NAN, INFINITY, 1e30f, -1e30f, -60, -5, 0, 5, 1e-30f};
    float y[COUNT(x)];
    char packed[64] __attribute__((aligned(64)));
    const linear_weights m = {LINEAR_F32, 1, 1, packed};
    (void)state;
    good(linear_pack(NULL, LINEAR_F32, 1, 1, w, RP_F32, 1, packed));
    EACH_SET(ops)
    {
        linear_call c = {.rows = COUNT(x), .x = x, .ldx = 1, .y = y, .ldy = 1, .then = LINEAR_RELU, .isa = ops->name};
        good(linear_apply(NULL, &m, &c));
        assert_true(isnan(y[0]) && y[2] == 1e30f && y[3] == 0 && y[7] == 5);
        c.then = LINEAR_GELU;
        good(linear_apply(NULL, &m, &c));
        assert_true(isnan(y[0]) && isinf(y[1]) && y[2] == 1e30f && y[3] == 0 && y[4] == 0 && y[6] == 0);
        assert_true(fabs((double)y[5] + 2.29179620e-7) < 1e-12 && fabs((double)y[8] - 0.5e-30) < 1e-37);
        c.then = LINEAR_GELU_ERF;
        good(linear_apply(NULL, &m, &c));
        assert_true(isnan(y[0]) && isinf(y[1]) && y[2] == 1e30f && y[3] == 0 && y[4] == 0 && y[6] == 0);
        assert_true(fabs((double)y[7] - 5) < 1e-5 && fabs((double)y[8] - 0.5e-30) < 1e-37);
    }
}

/* Compare gelu with double over its whole range. The bound is relative to the result, even where computing 1 + tanh
 * directly would lose all digits. */
static void test_gelu_is_within_its_bound(void **state)
{
    enum { N = 40000 };
    float *x = taken(N * 4), *y = taken(N * 4), w[] = {1};
    char packed[64] __attribute__((aligned(64)));
    const linear_weights m = {LINEAR_F32, 1, 1, packed};
    (void)state;
    good(linear_pack(NULL, LINEAR_F32, 1, 1, w, RP_F32, 1, packed));
    for (int n = 0; n < N; n++)
        x[n] = -6 + 12.0f * (float)n / N;
    EACH_SET(ops)
    {
        const linear_call c = {.rows = N, .x = x, .ldx = 1, .y = y, .ldy = 1, .then = LINEAR_GELU, .isa = ops->name};
        double worst = 0;
        good(linear_apply(NULL, &m, &c));
        for (int n = 0; n < N; n++) {
            const double p = (double)x[n], u = sqrt(2 / 3.14159265358979323846) * (p + 0.044715 * p * p * p);
            const double want = p / (1 + exp(-2 * u)), bound = 0x1p-24 * (9 + 8 * fabs(u)) * fabs(want);
            worst = fmax(worst, bound > 0 ? fabs((double)y[n] - want) / bound : 0);
        }
        printf("%-12s gelu: largest error %.2f of its bound\n", ops->name, worst);
        assert_true(worst <= 1);
    }
    free(x);
    free(y);
}

/* p/2 (1 + erf(p/√2)): the error of 1 + erf is absolute, so the bound is relative to p. With multiply-adds it is 8 |p|,
 * otherwise 12 |p|, in units of 2^-24. */
static void test_gelu_erf_is_within_its_bound(void **state)
{
    enum { N = 40000 };
    float *x = taken(N * 4), *y = taken(N * 4), w[] = {1};
    char packed[64] __attribute__((aligned(64)));
    const linear_weights m = {LINEAR_F32, 1, 1, packed};
    (void)state;
    good(linear_pack(NULL, LINEAR_F32, 1, 1, w, RP_F32, 1, packed));
    for (int n = 0; n < N; n++)
        x[n] = -8 + 16.0f * (float)n / N;
    EACH_SET(ops)
    {
        const linear_call c = {
            .rows = N, .x = x, .ldx = 1, .y = y, .ldy = 1, .then = LINEAR_GELU_ERF, .isa = ops->name};
        double worst = 0;
        good(linear_apply(NULL, &m, &c));
        for (int n = 0; n < N; n++) {
            const double p = (double)x[n], bound = 0x1p-24 * (plain(ops) ? 12 : 8) * fabs(p);
            worst = fmax(worst, bound > 0 ? fabs((double)y[n] - then_of(LINEAR_GELU_ERF, p, 0)) / bound : 0);
        }
        printf("%-12s gelu_erf: largest error %.2f of its bound\n", ops->name, worst);
        assert_true(worst <= 1);
    }
    free(x);
    free(y);
}

/* ---- refusals */

static void test_refusals(void **state)
{
    float x[64] = {0}, y[64], w[64] = {0};
    char packed[4096] __attribute__((aligned(64)));
    const linear_weights m = {LINEAR_F32, 8, 8, packed};
    const linear_call c = {.rows = 2, .x = x, .ldx = 8, .y = y, .ldy = 8};
    (void)state;
    good(linear_pack(NULL, LINEAR_F32, 8, 8, w, RP_F32, 8, packed));
    memset(y, 0xc3, sizeof y);
#define REFUSED_CALL(status, ...)                                                                                      \
    do {                                                                                                               \
        linear_call d = c;                                                                                             \
        linear_weights v = m;                                                                                          \
        __VA_ARGS__;                                                                                                   \
        assert_int_equal(linear_apply(NULL, &v, &d), status);                                                          \
    } while (0)
    REFUSED_CALL(RP_E_ARG, d.rows = -1);
    REFUSED_CALL(RP_E_ARG, d.x = NULL);
    REFUSED_CALL(RP_E_ARG, d.y = NULL);
    REFUSED_CALL(RP_E_ARG, d.ldx = 7);
    REFUSED_CALL(RP_E_ARG, d.ldy = 7);
    REFUSED_CALL(RP_E_ARG, d.ldy = INT64_MAX / 4);
    REFUSED_CALL(RP_E_ARG, d.then = (linear_then)6);
    REFUSED_CALL(RP_E_ARG, d.scratch = packed + 1);
    REFUSED_CALL(RP_E_ARG, d.isa = "vax");
    REFUSED_CALL(RP_E_ARG, v.type = (linear_type)(LINEAR_BLOCKS + 1));
    REFUSED_CALL(RP_E_ARG, v.packed = packed + 4);
    REFUSED_CALL(RP_E_ARG, v.packed = NULL);
    REFUSED_CALL(RP_E_ARG, v.in = 0);
    REFUSED_CALL(RP_E_ARG, v.out = -1);
    REFUSED_CALL(RP_OK, d.rows = 0; d.x = NULL; d.y = NULL);
    for (int n = 0; n < COUNT(y); n++)
        assert_memory_equal(&y[n], "\xc3\xc3\xc3\xc3", 4);
    assert_int_equal(linear_apply(NULL, NULL, &c), RP_E_ARG);
    assert_int_equal(linear_apply(NULL, &m, NULL), RP_E_ARG);
    bool found;
    for (int n = 0; linear_entry(n, &found); n++)
        if (!found)
            REFUSED_CALL(RP_E_UNSUPPORTED, d.isa = linear_entry(n, &(bool){false})->name);
    assert_true(linear_packed_bytes(LINEAR_F32, INT64_MAX, 1) == -1 &&
                linear_packed_bytes(LINEAR_F32, 1 << 30, INT64_MAX) == -1);
    assert_true(linear_packed_bytes(LINEAR_F32, 0, 1) == -1 && linear_packed_bytes((linear_type)-1, 1, 1) == -1);
    assert_true(linear_packed_bytes(LINEAR_INT8, LINEAR_INT8_MAX_IN + 1, 1) == -1);
    assert_true(linear_scratch_bytes(LINEAR_INT8, INT64_MAX / 64, 64) == -1 &&
                linear_scratch_bytes(LINEAR_INT8, -1, 1) == -1);
    assert_true(linear_scratch_bytes(LINEAR_F32, 6, 64) == 0 && linear_scratch_bytes(LINEAR_F32, 7, 64) > 0 &&
                linear_scratch_bytes(LINEAR_INT4, 2, 64) > 0);
    assert_int_equal(linear_pack(NULL, LINEAR_F32, 8, 8, w, RP_F64, 8, packed), RP_E_ARG);
    assert_int_equal(linear_pack(NULL, LINEAR_F32, 8, 8, w, RP_F32, 7, packed), RP_E_ARG);
    assert_int_equal(linear_pack(NULL, LINEAR_F32, 8, 8, w, RP_F32, 8, packed + 1), RP_E_ARG);
    assert_int_equal(linear_pack(NULL, LINEAR_F32, 8, 8, NULL, RP_F32, 8, packed), RP_E_ARG);
    assert_int_equal(linear_pack(NULL, LINEAR_F32, 8, INT64_MAX, w, RP_F32, 8, packed), RP_E_ARG);
}

/* The caller's scratch memory is used and not exceeded. x, y and the weights end directly before an unmapped page. */
static void test_nothing_else_is_touched(void **state)
{
    enum { ROWS = 17, IN = 37, OUT = 71 }; /* 17 rows give two AMX tiles of 9, which share one row */
    (void)state;
    for (int type = 0; type < LINEAR_TYPES; type++)
        EACH_SET(ops)
        {
            matrix m;
            matrix_begin(&m, (linear_type)type, IN, OUT);
            const size_t weights = (size_t)linear_packed_bytes((linear_type)type, IN, OUT);
            const size_t bytes = (size_t)linear_scratch_bytes((linear_type)type, ROWS, IN);
            fence x = fence_of(sizeof(float) * ROWS * IN, true), y = fence_of(sizeof(float) * ROWS * OUT, true);
            fence w = fence_of(weights, true), scratch = fence_of(bytes, true), bias = fence_of(4 * OUT, true);
            memset(bias.data, 0, 4 * OUT);
            memset(x.data, 0, sizeof(float) * ROWS * IN);
            memcpy(w.data, m.w.packed, weights);
            const linear_weights at_the_end = {(linear_type)type, IN, OUT, w.data};
            const linear_call c = {.rows = ROWS,
                                   .x = (const float *)(const void *)x.data,
                                   .ldx = IN,
                                   .y = (float *)(void *)y.data,
                                   .ldy = OUT,
                                   .bias = (const float *)(const void *)bias.data,
                                   .scratch = bytes ? scratch.data : NULL,
                                   .isa = ops->name};
            good(linear_apply(NULL, &at_the_end, &c));
            assert_true(fence_intact(&x, sizeof(float) * ROWS * IN) && fence_intact(&y, sizeof(float) * ROWS * OUT) &&
                        fence_intact(&w, weights) && fence_intact(&scratch, bytes) && fence_intact(&bias, 4 * OUT));
            fence_free(&x);
            fence_free(&y);
            fence_free(&w);
            fence_free(&scratch);
            fence_free(&bias);
            matrix_end(&m);
        }
}

/* Return the last set in the list that this machine has, excluding emulated sets. */
HELPER const char *fastest_of_the_list(void)
{
    const char *name = NULL;
    EACH_SET(ops)
    if (strcmp(ops->name, "amx_emulated") != 0)
        name = ops->name;
    return name;
}

/* linear_choose accepts every name of the core's list. For a set that this machine lacks, it returns RP_E_UNSUPPORTED
 * and selects plain code. For amx without 8-bit tiles it selects the best other set. Emulated tiles are used only on
 * request. */
static void test_names_of_the_core_are_accepted(void **state)
{
    const linear_ops *ops;
    const char *name;
    const char *forced = getenv("RELPOS_ISA");
    (void)state;
    for (int n = 0; (name = rp_isa_name(n)) != NULL; n++) {
        const bool here = rp_isa_found(name) == 1;
        assert_int_equal(linear_choose(name, &ops), here ? RP_OK : RP_E_UNSUPPORTED);
        if (strcmp(name, "amx") != 0)
            assert_string_equal(ops->name, here ? name : "generic");
    }
    if (forced && linear_choose(forced, &ops) == RP_OK) {
        name = ops->name;
        good(linear_choose(NULL, &ops));
        assert_string_equal(ops->name, name);
    } else {
        good(linear_choose(NULL, &ops));
        assert_string_not_equal(ops->name, "amx_emulated");
        assert_string_equal(ops->name, fastest_of_the_list());
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_size_is_within_its_bound),
        cmocka_unit_test(test_bits_of_a_row_depend_on_nothing_else),
        cmocka_unit_test(test_sets_have_the_same_bits),
        cmocka_unit_test(test_a_bias_is_added_to_the_product),
        cmocka_unit_test(test_f16_has_the_bits_of_f32),
        cmocka_unit_test(test_int8_has_the_same_bits_at_the_edges_of_tiles),
        cmocka_unit_test(test_long_rows_have_the_same_bits),
        cmocka_unit_test(test_bf16_is_one_chain_bit_for_bit),
        cmocka_unit_test(test_bf16_rounds_to_nearest),
        cmocka_unit_test(test_packed_weights_are_near_the_given_ones),
        cmocka_unit_test(test_the_layout_stays_as_it_is),
        cmocka_unit_test(test_q8_keeps_blocks_exactly),
        cmocka_unit_test(test_other_types_and_strides_pack_alike),
        cmocka_unit_test(test_non_finite_numbers),
        cmocka_unit_test(test_relu_and_gelu_at_the_ends),
        cmocka_unit_test(test_gelu_is_within_its_bound),
        cmocka_unit_test(test_gelu_erf_is_within_its_bound),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_nothing_else_is_touched),
        cmocka_unit_test(test_names_of_the_core_are_accepted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
