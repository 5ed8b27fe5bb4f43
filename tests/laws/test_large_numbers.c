/* test_large_numbers.c -- very large and very small numbers: logits, biases, softcaps, and 16-bit types at the ends of
 * their ranges.
 * SPDX-License-Identifier: Apache-2.0 */
#include "tests/laws/definition.h"

/* A bias that is the lowest finite number does not mask, and neither does the sum of two: a row with only such biases
 * gives the mean of v. */
static void the_lowest_numbers_give_the_mean(void **state)
{
    static const char *const sets[] = {"dense",
                                       "dense+dense",
                                       "dense+dense+dense",
                                       "table,left=0,right=0",
                                       "table,left=0,right=0+table,left=0,right=0",
                                       "table,left=0,right=0+dense"};
    problem p;
    (void)state;
    for (size_t n = 0; n < sizeof sets / sizeof *sets; n++)
        for (int type = 0; type < 2; type++)
            for (int cap_it = 0; cap_it < 4; cap_it++)
                EACH_ISA(isa)
                {
                    pose(&p, 32, "fwd:f32:b1h1q9k%dd4v5:%s:%s", n % 2 ? 37 : 530, sets[n],
                         cap_it == 0   ? ""
                         : cap_it == 1 ? "softcap=5"
                         : cap_it == 2 ? "softcap_after=5"
                                       : "softcap=5+softcap_after=4");
                    for (int m = 0; m < p.desc.n_terms; m++) {
                        rp_array *a = &p.t.term[m][0];
                        if (type) /* this f64 number does not fit in f32 */
                            *a = array_in(&p, RP_F64, a->ndim, a->shape);
                        for (int64_t x = 0; x < problem_size(a); x++)
                            if (type)
                                ((double *)a->data)[x] = -DBL_MAX;
                            else
                                ((float *)a->data)[x] = -FLT_MAX;
                    }
                    attend(&p, isa);
                    float *got = copy_of(&p.t.out);
                    attend(&p, "reference");
                    for (int64_t r = 0; r < 9; r++)
                        for (int64_t c = 0; c < 5; c++) {
                            double mean = 0;
                            for (int64_t j = 0; j < p.desc.len_k; j++)
                                mean += at(&p.t.v, j * 5 + c) / (double)p.desc.len_k;
                            const double g = (double)got[r * 5 + c], w = at(&p.t.out, r * 5 + c);
                            if (!(fabs(g - mean) < 2e-6))
                                wrong(&p, isa, "a row of the lowest %s gives %g, but the mean is %g",
                                      type ? "f64" : "f32", g, mean);
                            if (!(fabs(w - mean) < 2e-6))
                                wrong(&p, "reference", "a row of the lowest gives %g, but the mean is %g", w, mean);
                        }
                    free(got);
                    problem_free(&p);
                }
}

/* Biases beyond the range of f32 are finite numbers. Only -infinity masks a pair, and no bias gives NaN. */
static void biases_beyond_f32_are_finite(void **state)
{
    static const char *const sets[] = {"dense",
                                       "dense+dense",
                                       "table,left=3,right=3",
                                       "table,left=3,right=3+dense",
                                       "log,lambda=-1e300",
                                       "log,lambda=1e300",
                                       "linear,left=1e300,right=-1e300"};
    static const double values[] = {1e300, -1e300, 3.4e38, 1e39, -1e39};
    problem p;
    (void)state;
    for (size_t n = 0; n < sizeof sets / sizeof *sets; n++)
        for (size_t x = 0; x < sizeof values / sizeof *values; x++)
            EACH_ISA(isa)
            {
                pose(&p, 33, "fwd:f32:b1h1q9k20d4v5:%s:", sets[n]);
                for (int m = 0; m < p.desc.n_terms; m++) {
                    if (!p.t.term[m][0].data)
                        continue;
                    p.t.term[m][0] = array_in(&p, RP_F64, p.t.term[m][0].ndim, p.t.term[m][0].shape);
                    for (int64_t e = 0; e < problem_size(&p.t.term[m][0]); e++)
                        ((double *)p.t.term[m][0].data)[e] = e % 7 == 3 ? values[x] : 0.25;
                }
                attend(&p, "reference");
                float *want = copy_of(&p.t.out);
                attend(&p, isa);
                /* rates of 1e300 give different biases that are all clamped to the same f32, so any finite mean is
                 * right */
                const bool same = !strstr(sets[n], "=-1e300") && !strstr(sets[n], "left=1e300");
                for (int64_t e = 0; e < 45; e++)
                    if (same ? !(fabs(at(&p.t.out, e) - (double)want[e]) < 1e-5) : !isfinite(at(&p.t.out, e)))
                        wrong(&p, isa, "with %g in %s out is %g, not %g", values[x], sets[n], at(&p.t.out, e),
                              (double)want[e]);
                free(want);
                problem_free(&p);
            }
}

/* Logits of ten thousand, caused by the scale or by a bias. */
static void large_logits_keep_the_bound(void **state)
{
    problem p;
    (void)state;
    for (int n = 0; n < 6; n++) {
        static const char *const settings[] = {"scale=1000",
                                               "scale=-1000",
                                               "scale=1000+causal",
                                               "scale=3000+softcap=10000",
                                               "scale=1000+softcap_after=5000",
                                               "scale=1000+softcap=5000+softcap_after=4000",
                                               "scale=1000"};
        pose(&p, 42, "fwd:f32:b1h2q20k90d12v5:%s:%s", n == 5 ? "dense" : "", settings[n]);
        if (n == 5)
            for (int64_t x = 0; x < problem_size(&p.t.term[0][0]); x++)
                ((float *)p.t.term[0][0].data)[x] *= 1e4f;
        judged(&p);
        problem_free(&p);
    }
    show("logits of 1e4");
}

/* With products of about 1e36, the best key gets all the weight. With a softcap that makes all scores nearly equal,
 * every key keeps some weight. */
static void huge_products_keep_the_best_key(void **state)
{
    problem p;
    (void)state;
    EACH_ISA(isa)
    for (int n = 0; n < 4; n++) {
        static const char *const settings[] = {"", "causal", "softcap=4", "scale=1e-36"};
        pose(&p, 43, "fwd:f32:b1h2q20k90d3v5::%s", settings[n]);
        for (int64_t x = 0; x < problem_size(&p.t.q); x++)
            ((float *)p.t.q.data)[x] *= 1e18f;
        for (int64_t x = 0; x < problem_size(&p.t.k); x++)
            ((float *)p.t.k.data)[x] *= 1e18f;
        attend(&p, "reference");
        float *want = copy_of(&p.t.out);
        attend(&p, isa);
        for (int64_t x = 0; x < problem_size(&p.t.out); x++)
            if (!(fabs(at(&p.t.out, x) - (double)want[x]) < 1e-5))
                wrong(&p, isa, "out[%lld] is %g, not %g", (long long)x, at(&p.t.out, x), (double)want[x]);
        free(want);
        problem_free(&p);
    }
}

/* Products overflow in pairs that a bias of -infinity masks: first because of large queries, then because of large
 * keys. */
static void an_overflow_in_a_hidden_pair_changes_nothing(void **state)
{
    problem p;
    (void)state;
    for (int n = 0; n < 4; n++)
        EACH_ISA(isa)
        {
            pose(&p, 45, "fwd:f32:b1h1q12k64d3v5:dense:%s", n % 2 ? "softcap=3" : "");
            float *q = p.t.q.data, *k = p.t.k.data, *bias = p.t.term[0][0].data;
            for (int j = 0; j < 64; j++) {
                k[j * 3] = j % 3 == 0 ? (n < 2 ? 1e13f : 1e30f) : 0;
                for (int i = 0; i < 12 && j % 3 == 0; i++)
                    bias[i * 64 + j] = -INFINITY;
            }
            for (int i = 0; i < 12; i++)
                q[i * 3] = n < 2 ? 1e30f : 1e13f;
            attend(&p, "reference");
            float *want = copy_of(&p.t.out);
            attend(&p, isa);
            for (int64_t x = 0; x < 60; x++)
                if (!(fabs(at(&p.t.out, x) - (double)want[x]) < 1e-5))
                    wrong(&p, isa, "an overflow in a hidden pair: out[%lld] is %g, not %g", (long long)x,
                          at(&p.t.out, x), (double)want[x]);
            free(want);
            problem_free(&p);
        }
}

/* A huge softcap changes nothing; a tiny one makes all scores nearly equal. */
static void a_softcap_is_any_finite_number(void **state)
{
    problem p;
    (void)state;
    static const double caps[] = {1e-300, 1e-45, 1e-38, 1e-20, 1e20, 1e30, 1e37, 1e38, 1e39, 1e300, DBL_MAX};
    for (size_t n = 0; n < sizeof caps / sizeof *caps; n++)
        for (int where = 1; where <= 3; where++) /* 1: before the biases, 2: after them, 3: both */
            EACH_ISA(isa)
            {
                pose(&p, 44, "fwd:f32:b1h1q8k20d6:alibi:");
                memset(p.t.q.data, 0, 24); /* make some scores 0 */
                p.desc.softcap = where & 1 ? caps[n] : 0;
                p.desc.softcap_after = where & 2 ? caps[n] : 0;
                rp_plan *plan;
                p.desc.isa = isa;
                if (rp_plan_create(&plan, &p.desc) == RP_E_RANGE) { /* an out-of-range error is right too */
                    assert_non_null(strstr(rp_last_error(), "softcap"));
                    problem_free(&p);
                    continue;
                }
                rp_plan_destroy(plan);
                attend(&p, "reference");
                float *want = copy_of(&p.t.out);
                attend(&p, isa);
                for (int64_t x = 0; x < 48; x++)
                    if (!(fabs(at(&p.t.out, x) - (double)want[x]) < 1e-5))
                        wrong(&p, isa, "softcap %g: out[%lld] is %g, not %g", caps[n], (long long)x, at(&p.t.out, x),
                              (double)want[x]);
                free(want);
                problem_free(&p);
            }
}

/* With only one key, a row is the value of that key, so every f16 and bf16 number must come out unchanged. Numbers
 * below 2^-126 may become 0. */
static void halves_keep_their_values(void **state)
{
    static const char *const types[] = {"f16", "bf16"};
    problem p;
    (void)state;
    for (int type = 0; type < 2; type++)
        EACH_ISA(isa)
        {
            const float least = type == 0 && loses_small_halves() ? 0x1p-14f : FLT_MIN;
            pose(&p, 71, "fwd:%s:b1024h1q1k1d4v64", types[type]);
            uint16_t *v = p.t.v.data;
            const uint16_t *out = p.t.out.data;
            for (int x = 0; x < 65536; x++)
                v[x] = (uint16_t)x;
            attend(&p, isa);
            for (int row = 0; row < 1024; row++)
                for (int x = 64 * row; x < 64 * row + 64; x++) {
                    float in, got;
                    good(rp_convert(&in, RP_F32, v + x, p.t.v.dtype, 1));
                    good(rp_convert(&got, RP_F32, out + x, p.t.v.dtype, 1));
                    if (isnan(in) ? !isnan(got) : fabsf(in) < least ? fabsf(got) > fabsf(in) : got != in)
                        wrong(&p, isa, "value %#x of %s came out as %#x", x, types[type], (unsigned)out[x]);
                }
            problem_free(&p);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_lowest_numbers_give_the_mean),
        cmocka_unit_test(biases_beyond_f32_are_finite),
        cmocka_unit_test(large_logits_keep_the_bound),
        cmocka_unit_test(huge_products_keep_the_best_key),
        cmocka_unit_test(an_overflow_in_a_hidden_pair_changes_nothing),
        cmocka_unit_test(a_softcap_is_any_finite_number),
        cmocka_unit_test(halves_keep_their_values),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
