/* test_gradient_bounds.c -- compares gradients of every type with the reference in double, with rp_gradient_bound as
 * tolerance.
 * SPDX-License-Identifier: Apache-2.0 */
#include "tests/laws/bounds.h"
#include "tests/laws/gradients.h"

static rp_array in_double(problem *p, const rp_array *a)
{
    rp_array to = array_in(p, RP_F64, a->ndim, a->shape);
    good(rp_convert(to.data, RP_F64, a->data, a->dtype, problem_size(a)));
    return to;
}

/* Compare out and the gradients, in the problem's type and on every instruction set, with the reference in double on
 * the same inputs. Outside ./check full, slow instruction sets run every third problem. */
static void judged(problem *p)
{
    static int turn;
    const bool skip_slow = turn++ % 3 != 0 && !all_cases();
    rp_grads want = gradients_like(p, RP_F64), bound = gradients_like(p, RP_F64);
    rp_tensors exact = p->t;
    rp_desc d = p->desc;
    rp_plan *plan;
    exact.q = in_double(p, &p->t.q);
    exact.k = in_double(p, &p->t.k);
    exact.v = in_double(p, &p->t.v);
    exact.out.data = exact.lse.data = NULL;
    d.dtype = RP_F64;
    d.isa = "reference";
    good(rp_plan_create(&plan, &d));
    good(rp_backward(plan, &exact, &want, NULL));
    exact.out = array_in(p, RP_F64, 4, p->t.out.shape);
    const rp_array out_bound = array_in(p, RP_F64, 4, p->t.out.shape);
    good(rp_attend(plan, &exact, NULL));
    rp_plan_destroy(plan);
    EACH_ISA(isa)
    {
        if (SLOW(isa) && skip_slow)
            continue;
        rp_tensors t = p->t;
        t.out.data = t.lse.data = NULL;
        p->desc.isa = isa;
        good(rp_plan_create(&plan, &p->desc));
        good(rp_gradient_bound(plan, &t, &bound));
        good(rp_error_bound(plan, &t, &out_bound));
        rp_plan_destroy(plan);
        attend(p, isa);
        for (int64_t x = 0; x < problem_size(&p->t.out); x++)
            if (!within(&p->t.out, at(&p->t.out, x), at(&exact.out, x), at(&out_bound, x)))
                wrong(p, isa, "out[%lld] is %.9g, not %.9g: bound %.3g", (long long)x, at(&p->t.out, x),
                      at(&exact.out, x), at(&out_bound, x));
        for (int given = 0; given < 2; given++) {
            backward(p, isa, &p->g, given);
            for (int n = 0; n < GRADIENTS; n++) {
                const rp_array *g = gradient(&p->g, n), *w = gradient(&want, n), *b = gradient(&bound, n);
                for (int64_t x = 0; g->data && x < problem_size(g); x++)
                    if (!within(g, at(g, x), at(w, x), at(b, x)))
                        wrong(p, isa, "%s[%lld]%s is %.9g, not %.9g: bound %.3g", gradient_name(p, n), (long long)x,
                              given ? ", out and lse given," : "", at(g, x), at(w, x), at(b, x));
            }
        }
    }
}

/* Numbers of queries, keys and channels near MR = 6, NR, QB = 96 and BKB = 256. */
static void every_size_keeps_the_bound(void **state)
{
    static const int queries[] = {1, 5, 6, 7, 95, 96, 97, 193}, keys[] = {1, 63, 64, 65, 255, 256, 257, 600},
                     widths[] = {1, 3, 16, 17, 64, 65};
    static const char *const of_any_width[] = {"t5,buckets=8,max_distance=20",
                                               "dense",
                                               "relkey,left=4,right=2+alibi,slopes=x",
                                               "relval,left=200,right=3",
                                               "sink+band,width=3,extent=20",
                                               "xl",
                                               "forget",
                                               "real,max_distance=9",
                                               "deberta,span=12",
                                               "fire,c=1,L=20,width=4"};
    problem p;
    (void)state;
    for (int n = 0; n < 8; n++)
        for (int m = 0; m < 2; m++) {
            const int q = queries[n], k = keys[m ? 7 - n : (n * 3 + 2) % 8], turn = n * 2 + m;
            pose(&p, (uint64_t)turn + 1, "bwd:f32:b1h2g1q%dk%dd%dv%do%d:%s:%s", q, k, widths[turn % 6],
                 widths[(turn * 5 + 3) % 6],
                 turn % 3 == 1 ? k - q
                 : turn % 3    ? -3
                               : 0,
                 of_any_width[turn % 10], settings[turn % SETTINGS]);
            judged(&p);
            problem_free(&p);
        }
    show("sizes");
}

/* Many heads of 49 tokens, and one bias shared by all windows. */
static void windows_of_a_picture_keep_the_bound(void **state)
{
    problem p;
    (void)state;
    pose(&p, 3, "bwd:f32:b36h3q49k49d8:swin,grid=7x7+dense:");
    p.t.term[1][0].shape[0] = p.g.term[1][0].shape[0] = 1; /* (1, 3, 49, 49): one bias for all windows */
    judged(&p);
    problem_free(&p);
    show("windows");
}

/* Numbers so small that the kernels flush them to 0. The numbers they are multiplied by are large, so the products
 * would matter. */
static void numbers_near_0_keep_the_bound(void **state)
{
    static const char *const texts[] = {"b1h2q20k70d6v5:t5,buckets=8,max_distance=20+sink:causal", "b1h2q7k70d16:rope:",
                                        "b1h2q20k70d6:relkey,left=9,right=9+dense:softcap=90+dsoftcap",
                                        "b1h2q20k70d6:relval,left=3,right=3+forget:"};
    static const double sizes[][4] = {/* of q, k, v, dout */
                                      {1, 1, 1e8, 1e-42},   {1, 1, 1e-42, 1e8},          {1, 1e-40, 1e6, 1e6},
                                      {1e-40, 1, 1e6, 1e6}, {1e-25, 1e25, 1e-20, 1e-20}, {1, 1, 1e-37, 1}};
    (void)state;
    for (size_t n = 0; n < sizeof texts / sizeof *texts; n++)
        for (size_t m = 0; m < sizeof sizes / sizeof *sizes; m++) {
            problem p;
            pose(&p, 7 + n, "bwd:f32:%s", texts[n]);
            const rp_array *const arrays[] = {&p.t.q, &p.t.k, &p.t.v, &p.g.dout};
            for (int a = 0; a < 4; a++)
                for (int64_t x = 0; x < problem_size(arrays[a]); x++)
                    set(arrays[a], x, at(arrays[a], x) * sizes[m][a]);
            judged(&p);
            problem_free(&p);
        }
    show("numbers near 0");
}

/* Logits in the hundreds, and logits so large that their errors are large too. The bounds must stay finite. */
static void large_logits_keep_the_bound(void **state)
{
    static const double factors[] = {300, 1e5, 1e8, 1e14};
    static const char *const texts[] = {"b1h2q20k70d6v5:t5,buckets=8,max_distance=20+sink:causal", "b1h2q7k70d16:rope:",
                                        "b1h2q20k70d6:relkey,left=9,right=9+dense:softcap=90+dsoftcap"};
    problem p;
    (void)state;
    for (int n = 0; n < 3; n++)
        for (int m = 0; m < 4; m++) {
            pose(&p, 4, "bwd:f32:%s", texts[n]);
            for (int64_t x = 0; x < problem_size(&p.t.q); x++)
                set(&p.t.q, x, factors[m] * at(&p.t.q, x));
            judged(&p);
            problem_free(&p);
        }
    assert_true(infinite == 0);
    show("large logits");
}

/* Softcaps far above and far below all scores. Far above, tanh(u) - u (1 - tanh^2 u) is near 2/3 u^3, the difference of
 * two much larger numbers; its bound is relative to u^3. Outside ./check full, few problems have several
 * tiles. */
static void softcaps_of_all_sizes_keep_the_bound(void **state)
{
    static const char *const caps[] = {"0.001", "0.3", "5", "40", "1000", "1e6", "1e12"};
    (void)state;
    for (size_t n = 0; n < sizeof caps / sizeof *caps; n++)
        for (int where = 1; where < 4; where++) {
            problem p;
            pose(&p, 3, "bwd:f32:%s:t5+dense:causal+dsoftcap%s%s%s%s",
                 all_cases() || (n + (size_t)where) % 9 == 3 ? "b2h2g1q97k260d16" : "b1h2g1q33k70d16o37",
                 where & 1 ? "+softcap=" : "", where & 1 ? caps[n] : "", where & 2 ? "+softcap_after=" : "",
                 where & 2 ? caps[n] : "");
            judged(&p);
            problem_free(&p);
        }
    assert_true(infinite == 0);
    show("softcaps of all sizes");
}

/* Few channels in f16. A sum on AMX tiles is rounded more often than it has summands, and products of f16 leave out the
 * product of the second components. Nearly all of the weight goes to the sink, so out and its rounding error are too
 * small to hide these errors. */
static void few_channels_of_f16_keep_the_bound(void **state)
{
    problem p;
    (void)state;
    for (uint64_t seed = 1; seed <= 30; seed++) {
        pose(&p, seed, "bwd:f16:b1h2q48k3d2v%d:sink:", (int)(1 + seed % 3));
        p.g = gradients_like(&p, RP_F32);
        for (int64_t x = 0; x < 2; x++)
            set(&p.t.term[0][0], x, 30);
        judged(&p);
        problem_free(&p);
    }
    assert_true(infinite == 0);
    show("few channels of f16");
}

/* Multiply one element in forty of each array by a number that is far from 1. With `far`, products may exceed the range
 * of f32. */
static void disturb(const rp_array *a, uint64_t *random, bool far)
{
    const double factors[] = {1e4, 1e-30, 1e6, 0, 1e-42, far ? 1e19 : 3e3, far ? 1e30 : 1e8};
    for (int64_t x = 0; x < problem_size(a); x++) {
        const uint64_t n = draw(random) >> 33;
        double y = n % 40 < 7 ? at(a, x) * factors[n % 40] : at(a, x);
        if (a->dtype == RP_F16) /* dropout divides by 1 - p, and out may be f16 */
            y = fmin(fmax(y, -40000), 40000);
        set(a, x, y);
    }
}

/* Random problems with numbers of all sizes. If no product exceeds the range of f32, every bound must be finite.
 * Otherwise gradients may be NaN or infinite, but only where their bounds are infinite. */
static void numbers_of_all_sizes_keep_the_bound(void **state)
{
    static const char *const types[] = {"f32", "f16", "bf16"};
    (void)state;
    for (int far = 0; far < 2; far++) {
        for (uint64_t seed = 1; seed <= 60; seed++) {
            uint64_t random = seed * 2 + (uint64_t)far;
            problem p;
            const int n = (int)(draw(&random) >> 33) % TERMS;
            const char *how = settings[(draw(&random) >> 33) % SETTINGS];
            if (terms[n].sizes && (strstr(how, "q_offsets") || strstr(how, "positions")))
                how = "causal";
            pose(&p, seed, "bwd:%s:%s:%s:%s", types[seed % 3],
                 terms[n].sizes ? terms[n].sizes : small[(draw(&random) >> 33) % SMALL], terms[n].text, how);
            const double scale = pow(10, (double)((draw(&random) >> 33) % 5) - 1);
            const rp_array *const arrays[] = {&p.t.q, &p.t.k, &p.t.v, &p.g.dout};
            for (int a = 0; a < 4; a++) {
                for (int64_t x = 0; x < problem_size(arrays[a]); x++)
                    set(arrays[a], x, at(arrays[a], x) * scale);
                disturb(arrays[a], &random, far);
            }
            judged(&p);
            problem_free(&p);
        }
        const bool some = infinite > 0;
        show(far ? "numbers of all sizes, beyond the range" : "numbers of all sizes");
        assert_true(some == (far == 1));
    }
}

/* Sums of products with vectors exceed the range of f32; only afterwards would the factor 1 / sqrt(3 Dk) make them
 * smaller. */
static void vectors_at_the_end_of_the_range_have_no_bound(void **state)
{
    problem p;
    (void)state;
    pose(&p, 5, "bwd:f32:b1h2q6k6d15:deberta,span=10:");
    for (int x = 0; x < RP_MAX_ARRAYS; x++)
        for (int64_t e = 0; p.t.term[0][x].data && e < problem_size(&p.t.term[0][x]); e++)
            set(&p.t.term[0][x], e, x == 1 ? 2.5e37 : 0); /* the products by key */
    for (int64_t x = 0; x < problem_size(&p.t.k); x++)
        set(&p.t.k, x, 1);
    judged(&p);
    assert_true(infinite > 0);
    problem_free(&p);
    show("vectors at the end of the range");
}

/* With biases of 0, units of FIRE's network are off at distance 0 and on at other distances. So a query's own key gives
 * such a unit no gradient, neither from an ordinary ds nor from NaN. */
static void units_of_fire_are_off_at_distance_0(void **state)
{
    static const char *const texts[] = {"fire,c=1,L=4,width=9", "fire,c=0.5,L=2,width=5,width2=4"};
    static const char *const sizes[] = {"b1h2q6k9d4", "b2h2q1k1d4", "b1h1q1k1d4", "b1h2q70k70d4"};
    (void)state;
    for (int n = 0; n < 2; n++)
        for (int m = 0; m < 4; m++)
            for (int which = 0; which < 3; which++) /* biases of the second layer, of the first, of both */
                for (int far = 0; far < 2; far++) {
                    problem p;
                    pose(&p, 11, "bwd:f32:%s:%s:", sizes[m], texts[n]);
                    for (int x = 1; x < 4; x += 2)
                        for (int64_t e = 0; which != x / 2 && e < problem_size(&p.t.term[0][x]); e++)
                            set(&p.t.term[0][x], e, e % 2 ? 0 : -0.0);
                    for (int64_t x = 0; far && x < problem_size(&p.t.v); x++)
                        set(&p.t.v, x, 1e25 * at(&p.t.v, x));
                    for (int64_t x = 0; far && x < problem_size(&p.g.dout); x++)
                        set(&p.g.dout, x, 1e25 * at(&p.g.dout, x));
                    judged(&p);
                    problem_free(&p);
                }
    show("biases of 0");
}

/* An infinite query, multiplied by a vector of a band that is treated as 0, gives NaN; the exact product is -infinity,
 * which masks. */
static void infinite_numbers_times_ones_near_0_have_no_bound(void **state)
{
    static const char *const types[] = {"f32", "f16", "bf16"};
    (void)state;
    for (int n = 0; n < 3; n++)
        for (int keys = 1; keys < 4; keys += 2) {
            problem p;
            pose(&p, 12, "bwd:%s:b1h2q3k%dd5:band,width=2,extent=4:causal", types[n], keys);
            p.t.term[0][1] = in_double(&p, &p.t.term[0][1]);
            for (int64_t x = 0; x < problem_size(&p.t.term[0][0]); x += 3)
                set(&p.t.term[0][0], x, -INFINITY);
            for (int64_t x = 0; x < problem_size(&p.t.term[0][1]); x++)
                set(&p.t.term[0][1], x, 1e-40);
            judged(&p);
            assert_true(infinite > 0);
            problem_free(&p);
        }
    show("infinite numbers times ones near 0");
}

/* Put one non-finite number into each array in turn. Results that do not depend on it must keep their bound. */
static void numbers_that_are_not_finite_keep_the_bound(void **state)
{
    const double poisons[] = {NAN, INFINITY, -INFINITY};
    (void)state;
    for (int n = 0; n < TERMS; n++)
        for (int array = 0; array < 4 + RP_MAX_TERMS * 2; array++) {
            problem p;
            const char *how = settings[(n + array) % SETTINGS];
            if (terms[n].sizes && (strstr(how, "q_offsets") || strstr(how, "positions")))
                how = "causal";
            pose(&p, (uint64_t)n + 1, "bwd:f32:%s:%s:%s", terms[n].sizes ? terms[n].sizes : small[(n + array) % SMALL],
                 terms[n].text, how);
            const rp_array *const given[] = {&p.t.q, &p.t.k, &p.t.v, &p.g.dout};
            const int32_t t = array / 2 - 2;
            const rp_array *a = array < 4 ? given[array] : &p.t.term[t][array % 2];
            const bool some = a->data && (array < 4 || (rp_term_array_learned(p.terms[t].kind, array % 2) &&
                                                        p.terms[t].kind != RP_TERM_SINK)); /* a sink must be finite */
            for (int m = 0; some && m < 3; m++) { /* outside ./check full, one of the three */
                if (!all_cases() && (n + array + m) % 3)
                    continue;
                const int64_t at_x = (7 * n + 5 * array + m) % problem_size(a);
                const double was = at(a, at_x);
                set(a, at_x, poisons[m]);
                judged(&p);
                set(a, at_x, was);
            }
            problem_free(&p);
        }
    show("numbers that are not finite");
}

/* Two keys share the largest score, which is too large for an lse in f32. Each of them gets half of the weight. */
static void equal_keys_share_the_gradient(void **state)
{
    problem p;
    (void)state;
    EACH_PATH(path)
    for (int given = 0; given < 2; given++) {
        pose(&p, 4, "bwd:f32:b1h1q9k20d4:");
        for (int64_t x = 0; x < 80; x++)
            set(&p.t.k, x, x / 4 == 3 || x / 4 == 11 ? 1e9 : 1);
        for (int64_t x = 0; x < 36; x++)
            set(&p.t.q, x, 1e9);
        backward(&p, path, &p.g, given);
        for (int64_t j = 0; j < 20; j++)
            for (int64_t c = 0; c < 4; c++) {
                double want = 0;
                for (int64_t i = 0; i < 9; i++)
                    want += j == 3 || j == 11 ? 0.5 * at(&p.g.dout, i * 4 + c) : 0;
                if (!(fabs(at(&p.g.dv, j * 4 + c) - want) <= 1e-6))
                    wrong(&p, path, "dv of key %lld is %g, not %g", (long long)j, at(&p.g.dv, j * 4 + c), want);
            }
        problem_free(&p);
    }
}

/* An lse whose type is less precise than the arithmetic is ignored, so the gradients have the same bits with and
 * without it. */
static void a_narrow_lse_is_computed_again(void **state)
{
    static const rp_dtype types[] = {RP_F64, RP_F32, RP_F16, RP_BF16};
    problem p;
    (void)state;
    for (int data = 0; data < 4; data++)
        for (int type = 0; type < 4; type++) {
            pose(&p, 9, "bwd:%s:b1h2q33k40d16:t5,buckets=8,max_distance=20:", rp_dtype_name(types[data]));
            const bool narrow = rp_dtype_size(types[type]) < (types[data] == RP_F64 ? 8u : 4u);
            also(&p, WITH_LSE, types[type]);
            EACH_ISA(isa)
            {
                const rp_grads without = gradients_like(&p, types[data]);
                backward(&p, isa, &p.g, true);
                backward(&p, isa, &without, false);
                for (int n = 0; narrow && n < GRADIENTS; n++) {
                    const rp_array *a = gradient(&p.g, n), *b = gradient((rp_grads *)&without, n);
                    if (a->data && memcmp(a->data, b->data, (size_t)problem_size(a) * rp_dtype_size(a->dtype)) != 0)
                        wrong(&p, isa, "%s depends on a given lse of %s", gradient_name(&p, n),
                              rp_dtype_name(types[type]));
                }
            }
            if (!narrow)
                judged(&p);
            problem_free(&p);
        }
    show("lse of other types");
}

/* Every term in every type, and gradients whose type differs from that of the inputs. */
static void every_type_keeps_the_bound(void **state)
{
    static const char *const types[] = {"f32", "f16", "bf16"};
    problem p;
    (void)state;
    for (int n = 0; n < TERMS; n++)
        for (int k = 0; k < 3; k++) {
            const char *set = settings[(n + k * 4 + 1) % SETTINGS];
            if (terms[n].sizes && (strstr(set, "q_offsets") || strstr(set, "positions")))
                set = "causal";
            pose(&p, (uint64_t)(n + k) + 1, "bwd:%s:%s:%s:%s", types[k],
                 terms[n].sizes ? terms[n].sizes : small[(n * 3 + k) % SMALL], terms[n].text, set);
            if (k == 2 && n % 2)
                p.g = gradients_like(&p, RP_F32);
            judged(&p);
            problem_free(&p);
        }
    show("storage");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_size_keeps_the_bound),
        cmocka_unit_test(windows_of_a_picture_keep_the_bound),
        cmocka_unit_test(numbers_near_0_keep_the_bound),
        cmocka_unit_test(large_logits_keep_the_bound),
        cmocka_unit_test(equal_keys_share_the_gradient),
        cmocka_unit_test(a_narrow_lse_is_computed_again),
        cmocka_unit_test(every_type_keeps_the_bound),
        cmocka_unit_test(softcaps_of_all_sizes_keep_the_bound),
        cmocka_unit_test(few_channels_of_f16_keep_the_bound),
        cmocka_unit_test(units_of_fire_are_off_at_distance_0),
        cmocka_unit_test(infinite_numbers_times_ones_near_0_have_no_bound),
        cmocka_unit_test(numbers_that_are_not_finite_keep_the_bound),
        cmocka_unit_test(numbers_of_all_sizes_keep_the_bound),
        cmocka_unit_test(vectors_at_the_end_of_the_range_have_no_bound),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
