/* test_float_state.c -- the caller's rounding mode and floating-point traps change no bit of a result, and every call
 * restores them.
 * SPDX-License-Identifier: Apache-2.0 */
#include "cli/support/sample_problem.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <fenv.h>
#include <string.h>

/* On other machines the library does not change this state (docs/maintainers/numerics.md). */
#if defined(__x86_64__) || defined(__aarch64__)
#include "src/processor/float_state.h"
#include <float.h>

static float half_of(float x)
{
    volatile float y = x; /* volatile: the division happens at run time */
    y = y * 0.5f;
    return y;
}

static void tiny_numbers_are_zero_only_inside(void **state)
{
    (void)state;
    assert_true(half_of(FLT_MIN) > 0);
    const unsigned before = rpi_float_begin(RPI_FLOAT_FLUSH);
    const float half = half_of(FLT_MIN), twice = half_of(FLT_MIN * 2);
    rpi_float_end(before);
    assert_true(half == 0 && twice == FLT_MIN);
    assert_true(half_of(FLT_MIN) > 0);
}

static void rounding_and_traps_change_no_bit(void **state)
{
    static const char *const texts[] = {"fwd:f32:b1h2q20k150d12:rope+t5+relval,left=3,right=2:causal",
                                        "fwd:f32:b1h2q20k600d8:alibi+dense:window=3,0+key_mask"};
    static const int modes[] = {FE_UPWARD, FE_DOWNWARD, FE_TOWARDZERO};
    (void)state;
    for (size_t n = 0; n < sizeof texts / sizeof *texts; n++)
        for (int k = 0; rp_isa_name(k); k++) {
            problem p;
            rp_plan *plan;
            rp_pool *pool;
            char err[512];
            if (rp_isa_found(rp_isa_name(k)) != 1)
                continue;
            assert_int_equal(problem_parse(&p, texts[n], err), 0);
            assert_int_equal(problem_fill(&p, 5, err), 0);
            /* the mask of the first problem hides key 1 from query 0; rows that attend to it become NaN */
            ((float *)p.t.k.data)[p.desc.dim_k] = NAN;
            ((float *)p.t.v.data)[p.desc.dim_k + 1] = INFINITY;
            p.desc.isa = rp_isa_name(k);
            const size_t bytes = (size_t)problem_size(&p.t.out) * sizeof(float);
            float *first = problem_alloc(&p, bytes);
            assert_non_null(first);
            assert_int_equal(rp_plan_create(&plan, &p.desc), RP_OK);
            assert_int_equal(rp_pool_create(&pool, 1), RP_OK);
            p.t.pool = pool;
            assert_int_equal(rp_attend(plan, &p.t, NULL), RP_OK);
            memcpy(first, p.t.out.data, bytes);
            for (size_t m = 0; m < sizeof modes / sizeof *modes; m++) {
                memset(p.t.out.data, 0xff, bytes);
                fesetround(modes[m]);
                feenableexcept(FE_INVALID | FE_DIVBYZERO | FE_OVERFLOW); /* a trap in a task would end the program */
                const int asked = fegetexcept();                         /* some AArch64 machines have no traps */
                const rp_status status = rp_attend(plan, &p.t, NULL);
                const int mode = fegetround(), traps = fegetexcept();
                fedisableexcept(FE_ALL_EXCEPT);
                fesetround(FE_TONEAREST);
                assert_int_equal(status, RP_OK);
                assert_int_equal(mode, modes[m]);
                assert_int_equal(traps, asked);
                print_message("%s on %s, rounding mode %d: same bits\n", p.text, p.desc.isa, modes[m]);
                assert_memory_equal(p.t.out.data, first, bytes);
            }
            rp_pool_destroy(pool);
            rp_plan_destroy(plan);
            problem_free(&p);
        }
}
#else
static void tiny_numbers_are_zero_only_inside(void **state)
{
    (void)state;
    print_message("the library does not handle the state of this machine\n");
}

static void rounding_and_traps_change_no_bit(void **state)
{
    (void)state;
    print_message("the library leaves the caller's state alone\n");
}
#endif

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(tiny_numbers_are_zero_only_inside),
                                       cmocka_unit_test(rounding_and_traps_change_no_bit)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
