/* test_convert.c -- rp_convert: every f16 and bf16 code, one rounding to nearest even, and integer types.
 * SPDX-License-Identifier: Apache-2.0 */
#include "tests/helpers.h"

/* Return the value of a 16-bit float from its fraction and exponent bits. */
static double by_definition(unsigned code, int fraction, int exponent)
{
    const int top = (1 << exponent) - 1, bias = top / 2, e = (int)(code >> fraction) & top;
    const double f = (double)(code & ((1u << fraction) - 1)) / (double)(1 << fraction), sign = code >> 15 ? -1 : 1;
    if (e == top)
        return f != 0 ? NAN : sign * INFINITY;
    return sign * (e ? ldexp(1 + f, e - bias) : ldexp(f, 1 - bias));
}

static const struct {
    rp_dtype type;
    int fraction, exponent;
} narrow[] = {{RP_F16, 10, 5}, {RP_BF16, 7, 8}};

/* Every code has its defined value and is written back unchanged. */
static void every_code_keeps_its_value(void **state)
{
    static uint16_t code[65536], back[65536];
    static double wide[65536];
    static float single[65536];
    (void)state;
    for (unsigned c = 0; c < 65536; c++)
        code[c] = (uint16_t)c;
    for (int n = 0; n < 2; n++) {
        good(rp_convert(wide, RP_F64, code, narrow[n].type, 65536));
        good(rp_convert(single, RP_F32, code, narrow[n].type, 65536));
        for (unsigned c = 0; c < 65536; c++) {
            const double want = by_definition(c, narrow[n].fraction, narrow[n].exponent);
            if (isnan(want) ? !isnan(wide[c]) || !isnan(single[c]) : wide[c] != want || (double)single[c] != want)
                fail_msg("%s %04x is %g and %g, not %g", rp_dtype_name(narrow[n].type), c, wide[c], (double)single[c],
                         want);
            assert_true(isnan(want) || !!signbit(wide[c]) == (c >> 15 != 0));
        }
        good(rp_convert(back, narrow[n].type, wide, RP_F64, 65536));
        for (unsigned c = 0; c < 65536; c++)
            if (back[c] != c && !isnan(wide[c]))
                fail_msg("%s %04x comes back as %04x", rp_dtype_name(narrow[n].type), c, back[c]);
        for (unsigned c = 0; c < 65536; c++) /* a NaN stays NaN */
            assert_true(!isnan(wide[c]) || isnan(by_definition(back[c], narrow[n].fraction, narrow[n].exponent)));
    }
}

/* A number between two codes is rounded once: to the nearer code, or from the middle to the even one, even if it has
 * more digits than f32. */
static void rounding_is_to_nearest_even(void **state)
{
    (void)state;
    for (int n = 0; n < 2; n++) {
        const unsigned top = ((1u << narrow[n].exponent) - 1) << narrow[n].fraction; /* infinity */
        for (unsigned c = 0; c < top; c++) {
            const double low = by_definition(c, narrow[n].fraction, narrow[n].exponent);
            const double step = ldexp(1, (int)fmax(c >> narrow[n].fraction, 1) - (1 << (narrow[n].exponent - 1)) + 1 -
                                             narrow[n].fraction);
            /* past the largest finite number, high is infinity */
            const double middle = low + step / 2, high = low + step;
            const struct {
                double x;
                unsigned want;
            } cases[] = {{middle, c + (c & 1)},
                         {nextafter(middle, 0), c},
                         {nextafter(middle, INFINITY), c + 1},
                         {nextafter(low, high), c},
                         {nextafter(high, 0), c + 1}};
            for (int k = 0; k < 5; k++) {
                const double x[2] = {cases[k].x, -cases[k].x};
                const float y[2] = {(float)x[0], (float)x[1]};
                const bool exact = (double)y[0] == x[0]; /* all except the neighbours of the middle are exact in f32 */
                uint16_t got[2], again[2];
                good(rp_convert(got, narrow[n].type, x, RP_F64, 2));
                good(rp_convert(again, narrow[n].type, y, RP_F32, 2));
                if (got[0] != cases[k].want || got[1] != (cases[k].want | 0x8000))
                    fail_msg("%.17g is %04x and %04x in %s, not %04x", x[0], got[0], got[1],
                             rp_dtype_name(narrow[n].type), cases[k].want);
                if (exact && (again[0] != got[0] || again[1] != got[1]))
                    fail_msg("%.17g is %04x and %04x in %s from f32, not %04x", x[0], again[0], again[1],
                             rp_dtype_name(narrow[n].type), cases[k].want);
            }
        }
    }
}

/* Every code survives conversion to each wider type and back; a NaN stays NaN and becomes quiet. */
static void halves_survive_wider_types(void **state)
{
    static const rp_dtype wide[] = {RP_F32, RP_F64};
    (void)state;
    for (int n = 0; n < 2; n++)
        for (int w = 0; w < 2; w++)
            for (unsigned c = 0; c < 65536; c++) {
                const uint16_t from = (uint16_t)c;
                const unsigned infinity = n == 0 ? 0x7c00 : 0x7f80, quiet = n == 0 ? 0x200 : 0x40;
                double middle;
                uint16_t to;
                good(rp_convert(&middle, wide[w], &from, narrow[n].type, 1));
                good(rp_convert(&to, narrow[n].type, &middle, wide[w], 1));
                assert_int_equal(to, (c & 0x7fff) > infinity ? c | quiet : c);
            }
}

static void numbers_beyond_a_half_are_infinity_or_zero(void **state)
{
    const double extremes[] = {1e300, -1e300, 0x1p-1074, -0.0, INFINITY};
    uint16_t out[5];
    (void)state;
    good(rp_convert(out, RP_F16, extremes, RP_F64, 5));
    assert_true(out[0] == 0x7c00 && out[1] == 0xfc00 && out[2] == 0 && out[3] == 0x8000 && out[4] == 0x7c00);
    good(rp_convert(out, RP_BF16, extremes, RP_F64, 5));
    assert_true(out[0] == 0x7f80 && out[1] == 0xff80 && out[2] == 0 && out[3] == 0x8000 && out[4] == 0x7f80);
    good(rp_convert(NULL, RP_F32, NULL, RP_F32, 0));
}

/* f32 and bf16 have separate loops. They must give the codes that conversion through double gives for one number at a
 * time: for all kinds of numbers, and at the ends of vectors. */
static void many_numbers_convert_like_single_ones(void **state)
{
    enum { N = 40000 };
    static float x[N], back[N];
    static uint16_t codes[N];
    uint64_t seed = 7;
    (void)state;
    for (int k = 0; k < N; k++) {
        seed = 6364136223846793005u * seed + 1442695040888963407u;
        const uint32_t bits = k % 3 == 0 ? (uint32_t)(seed >> 32) : (uint32_t)(seed >> 48) << 16 | (0x7fffu + seed % 3);
        memcpy(x + k, &bits, sizeof bits);
    }
    for (int from = 0, n = 1; from + n < N; from += n, n = n % 67 + 1) {
        good(rp_convert(codes, RP_BF16, x + from, RP_F32, n));
        good(rp_convert(back, RP_F32, codes, RP_BF16, n));
        for (int k = 0; k < n; k++) {
            const double one = (double)x[from + k];
            double wide;
            float narrow_again;
            uint16_t want;
            good(rp_convert(&want, RP_BF16, &one, RP_F64, 1));
            good(rp_convert(&wide, RP_F64, &want, RP_BF16, 1));
            narrow_again = (float)wide;
            if (codes[k] != want || memcmp(back + k, &narrow_again, 4) != 0)
                fail_msg("%a is %04x and %a again, not %04x and %a", one, codes[k], (double)back[k], want, wide);
        }
    }
}

/* rp_convert accepts integers and bool as input but refuses them as output. */
static void integers_are_read_as_numbers(void **state)
{
    const int8_t small[3] = {-128, 0, 127};
    const uint64_t large[2] = {UINT64_MAX, 1};
    const uint8_t truth[3] = {0, 1, 1};
    float f[3];
    double d[3];
    uint16_t h[1];
    (void)state;
    good(rp_convert(f, RP_F32, small, RP_I8, 3));
    assert_true(f[0] == -128 && f[1] == 0 && f[2] == 127);
    good(rp_convert(d, RP_F64, large, RP_U64, 2));
    assert_true(d[0] == 0x1p64 && d[1] == 1);
    good(rp_convert(d, RP_F64, truth, RP_BOOL, 3));
    assert_true(d[0] == 0 && d[1] == 1 && d[2] == 1);
    d[0] = 1e300;
    good(rp_convert(f, RP_F32, d, RP_F64, 1));
    assert_true(isinf(f[0]));
    good(rp_convert(h, RP_F16, f, RP_F32, 0)); /* no elements */
    assert_int_equal(rp_convert(h, RP_I16, f, RP_F32, 1), RP_E_ARG);
    assert_non_null(strstr(rp_last_error(), "i16"));
    assert_int_equal(rp_convert(h, RP_F16, f, (rp_dtype)13, 1), RP_E_ARG);
    assert_int_equal(rp_convert(h, (rp_dtype)-1, f, RP_F32, 1), RP_E_ARG);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_code_keeps_its_value),   cmocka_unit_test(rounding_is_to_nearest_even),
        cmocka_unit_test(halves_survive_wider_types),   cmocka_unit_test(numbers_beyond_a_half_are_infinity_or_zero),
        cmocka_unit_test(integers_are_read_as_numbers), cmocka_unit_test(many_numbers_convert_like_single_ones),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
