/* test_environment.c -- the environment variables RELPOS_ISA and RELPOS_THREADS.
 * SPDX-License-Identifier: Apache-2.0 */
#include "tests/api/refusals.h"
#include <sys/wait.h>

/* An unknown name is ignored, and so is a set that this machine lacks. The description overrides the variable. */
static void relpos_isa_chooses_the_default(void **state)
{
    const char *kept = getenv("RELPOS_ISA");
    char keep[64];
    rp_plan *plan;
    const rp_desc d = rp_desc_init(1, 1, 1, 1, 1);
    (void)state;
    snprintf(keep, sizeof keep, "%s", kept ? kept : "");
    unsetenv("RELPOS_ISA");
    const char *best = rp_isa_default();
    const bool amx = strcmp(best, "amx") == 0;
    static const char *const garbage[] = {"", "mmx", " generic", "generic ", "GENERIC", "\n", "avx2,avx512"};
    for (size_t n = 0; n < sizeof garbage / sizeof *garbage; n++) {
        setenv("RELPOS_ISA", garbage[n], 1);
        assert_string_equal(rp_isa_default(), best);
        good(rp_plan_create(&plan, &d));
        assert_string_equal(rp_plan_isa(plan), amx ? "avx512_bf16" : best);
        rp_plan_destroy(plan);
    }
    for (int n = 0; n < 4; n++) { /* on AMX, the default set depends on the number of bf16 products for each product */
        rp_desc few = d;
        few.dtype = n == 1 ? RP_BF16 : n == 3 ? RP_F16 : RP_F32;
        few.precision = n == 2 ? RP_PRECISION_HIGH : RP_PRECISION_HIGHEST;
        good(rp_plan_create(&plan, &few));
        assert_string_equal(rp_plan_isa(plan), amx && n % 3 == 0 ? "avx512_bf16" : best);
        rp_plan_destroy(plan);
    }
    for (int n = 0; rp_isa_name(n); n++) { /* sets that this machine lacks are ignored */
        setenv("RELPOS_ISA", rp_isa_name(n), 1);
        assert_string_equal(rp_isa_default(), rp_isa_found(rp_isa_name(n)) ? rp_isa_name(n) : best);
        if (rp_isa_found(rp_isa_name(n))) { /* also for f32 */
            good(rp_plan_create(&plan, &d));
            assert_string_equal(rp_plan_isa(plan), rp_isa_name(n));
            rp_plan_destroy(plan);
        }
    }
    setenv("RELPOS_ISA", "reference", 1);
    assert_string_equal(rp_isa_default(), "reference");
    rp_desc asked = d; /* the description overrides the variable */
    asked.isa = "generic";
    good(rp_plan_create(&plan, &asked));
    assert_string_equal(rp_plan_isa(plan), "generic");
    rp_plan_destroy(plan);
    if (*keep)
        setenv("RELPOS_ISA", keep, 1);
    else
        unsetenv("RELPOS_ISA");
}

/* The default pool is created once per process, so each value is tested in a child process. */
static void relpos_threads_sets_the_default_pool(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int32_t threads; /* 0: as many as without the variable */
    } values[] = {{NULL, 0}, {"", 0},  {"3", 3},  {"1", 1},    {"x", 0},
                  {"3x", 0}, {"0", 0}, {"-2", 0}, {"4097", 0}, {"99999999999999999999", 0},
                  {"2.5", 0}};
    int plain = 0;
    for (size_t n = 0; n < sizeof values / sizeof *values; n++) {
        fflush(NULL);
        pid_t child = fork();
        assert_true(child >= 0);
        if (child == 0) {
            if (values[n].text)
                setenv("RELPOS_THREADS", values[n].text, 1);
            else
                unsetenv("RELPOS_THREADS");
            const int32_t threads = rp_pool_threads(NULL);
            _exit(threads > 250 ? 250 : threads);
        }
        int how;
        assert_int_equal(waitpid(child, &how, 0), child);
        assert_true(WIFEXITED(how));
        if (n == 0)
            plain = WEXITSTATUS(how);
        const int want = values[n].threads ? values[n].threads : plain;
        if (WEXITSTATUS(how) != want)
            fail_msg("RELPOS_THREADS=%s gives %d threads, not %d", values[n].text, WEXITSTATUS(how), want);
    }
    assert_true(plain >= 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(relpos_isa_chooses_the_default),
        cmocka_unit_test(relpos_threads_sets_the_default_pool),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
