/* test_process_numbers.c -- a forked child that has the same process number as its parent, which can happen for the
 * first process of a PID namespace. The child must still notice that the threads of the pool do not exist in it. This
 * file replaces getpid of the C library by a function that always returns the same number.
 * SPDX-License-Identifier: Apache-2.0 */
#include "tests/hazards/callers.h"
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

__attribute__((visibility("default"))) pid_t getpid(void)
{
    return 4242;
}

static void a_child_with_the_same_number_gets_new_threads(void **state)
{
    problem p;
    rp_plan *plan;
    rp_pool *pool;
    int how = 0;
    (void)state;
    if (no_forks())
        return;
    pose(&p, 1, "fwd:f32:b2h2q70k130d8:t5:causal");
    good(rp_plan_create(&plan, &p.desc));
    good(rp_pool_create(&pool, 3));
    p.t.pool = pool;
    good(rp_attend(plan, &p.t, NULL)); /* starts the pool's threads */
    float *want = copy_of(&p.t.out);
    fflush(NULL);
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        alarm(SANITIZED ? 300 : 60); /* without this, a child that fails would wait for ever */
        const rp_status status = rp_attend(plan, &p.t, NULL);
        const bool same = memcmp(want, p.t.out.data, (size_t)problem_size(&p.t.out) * sizeof *want) == 0;
        rp_pool_destroy(pool);
        _exit(status != RP_OK ? 1 : same ? 0 : 2);
    }
    assert_int_equal(waitpid(child, &how, 0), child);
    assert_true(WIFEXITED(how)); /* it was not ended by SIGALRM */
    assert_int_equal(WEXITSTATUS(how), 0);
    good(rp_attend(plan, &p.t, NULL)); /* the parent continues */
    rp_pool_destroy(pool);
    rp_plan_destroy(plan);
    free(want);
    problem_free(&p);
}

int main(void)
{
    setenv("RELPOS_SHORT", "0", 1); /* let short calls use the pool too */
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_child_with_the_same_number_gets_new_threads)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
