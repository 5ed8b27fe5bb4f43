/* test_pools.c -- pools: created and destroyed, used by many callers at the same time, cancelled, and run on parallel
 * loops of the caller. The bits are always the same.
 * SPDX-License-Identifier: Apache-2.0 */
#include "tests/hazards/callers.h"
#include <time.h>

/* Create and destroy pools of many sizes, unused or used once. */
static void pools_come_and_go(void **state)
{
    shared s;
    (void)state;
    watch(__func__);
    shared_begin(&s, rp_isa_default());
    for (int n = 0; n < 1000; n++) {
        rp_pool *pool;
        const int32_t threads = 1 + n % 5;
        good(begin_pool(&pool, threads));
        assert_int_equal(rp_pool_threads(pool), threads);
        if (n % 10 == 0)
            assert_true(call(&s, pool));
        end_pool(pool);
    }
    rp_pool *pool;
    good(begin_pool(&pool, 0)); /* 0: one thread for each processor that this process may use */
    assert_true(rp_pool_threads(pool) >= 1 && rp_pool_threads(pool) <= 4096);
    end_pool(pool);
    good(begin_pool(&pool, 4096)); /* no thread starts before the first call */
    assert_int_equal(rp_pool_threads(pool), 4096);
    end_pool(pool);
    assert_true(rp_pool_threads(NULL) >= 1);
    shared_end(&s);
}

/* Run eight callers at the same time: on the default pool, on one shared pool, and on one pool each; with and without
 * scratch memory of their own. */
static void many_callers_get_the_same_bits(void **state)
{
    shared s;
    (void)state;
    watch(__func__);
    EACH_PATH(isa)
    {
        for (int form = 0; form < 4; form++) {
            shared_begin(&s, isa);
            s.rounds = strcmp(isa, "reference") == 0 || SLOW(isa) ? 2 : 20;
            s.own_work = form % 2;
            s.own_pool = form == 3;
            if (form == 1) /* all callers share one pool, whose threads have not started yet */
                good(begin_pool(&s.pool, 3));
            all_callers(&s);
            end_pool(s.pool);
            shared_end(&s);
        }
    }
}

/* Repeatedly let all callers use a new pool at the same moment, for the first time. */
static void first_use_may_come_from_all_at_once(void **state)
{
    shared s;
    (void)state;
    watch(__func__);
    shared_begin(&s, "generic");
    s.rounds = 1;
    for (int n = 0; n < 30; n++) {
        good(begin_pool(&s.pool, 4));
        all_callers(&s);
        end_pool(s.pool);
    }
    shared_end(&s);
}

/* rp_last_error is per thread. */
static void *fails(void *argument)
{
    rp_pool *pool;
    char want[32];
    snprintf(want, sizeof want, "%d", *(int *)argument);
    for (int n = 0; n < 200; n++)
        if (rp_pool_create(&pool, *(int *)argument) != RP_E_RANGE || !strstr(rp_last_error(), want))
            return argument;
    return NULL;
}

static void errors_belong_to_their_thread(void **state)
{
    pthread_t thread[CALLERS];
    int number[CALLERS];
    rp_pool *pool;
    (void)state;
    watch(__func__);
    assert_int_equal(rp_pool_create(&pool, -77), RP_E_RANGE);
    for (int n = 0; n < CALLERS; n++) {
        number[n] = 5000 + n;
        assert_int_equal(pthread_create(&thread[n], NULL, fails, &number[n]), 0);
    }
    for (int n = 0; n < CALLERS; n++) {
        void *bad;
        pthread_join(thread[n], &bad);
        assert_null(bad);
    }
    assert_non_null(strstr(rp_last_error(), "-77"));
}

/* Run a call on a stack of 128 KiB, the size that musl gives threads. */
static void *small_caller(void *argument)
{
    shared *s = argument;
    return call(s, s->pool) ? NULL : argument;
}

static void a_small_stack_is_enough(void **state)
{
    shared s;
    pthread_attr_t attributes;
    pthread_t thread;
    void *bad;
    (void)state;
    watch(__func__);
    if (SANITIZED) {
        print_message("small stack: not run, because sanitizers make frames larger\n");
        return;
    }
    shared_begin(&s, rp_isa_default());
    pthread_attr_init(&attributes);
    assert_int_equal(pthread_attr_setstacksize(&attributes, 128 << 10), 0);
    assert_int_equal(pthread_create(&thread, &attributes, small_caller, &s), 0);
    pthread_join(thread, &bad);
    assert_null(bad);
    pthread_attr_destroy(&attributes);
    shared_end(&s);
}

enum { TASKS = 1000, WORKERS = 3 };

typedef struct tally {
    atomic_int runs[TASKS], inside[WORKERS], bad;
} tally;

static void count_task(void *context, int64_t n, int32_t worker)
{
    tally *t = context;
    atomic_fetch_add(&t->runs[n], 1);
    if (worker < 0 || worker >= WORKERS || atomic_fetch_add(&t->inside[worker], 1) != 0)
        atomic_fetch_add(&t->bad, 1);
    else
        atomic_fetch_sub(&t->inside[worker], 1);
}

/* Each task runs once, and no two workers that run at the same time have the same number. */
static void each_task_runs_once(void **state)
{
    static tally t;
    rp_pool *pool;
    (void)state;
    watch(__func__);
    good(begin_pool(&pool, WORKERS));
    for (int round = 0; round < 3; round++) {
        step("rp_pool_run");
        good(rp_pool_run(pool, TASKS, count_task, &t));
    }
    step("rp_pool_run");
    good(rp_pool_run(pool, 0, count_task, &t));
    for (int n = 0; n < TASKS; n++)
        assert_int_equal(atomic_load(&t.runs[n]), 3);
    assert_int_equal(atomic_load(&t.bad), 0);
    assert_int_equal(rp_pool_run(pool, 1, NULL, &t), RP_E_ARG);
    end_pool(pool);
}

/* Cancels a call at the block after the first `left` blocks. */
typedef struct ender {
    int left, calls;
    pthread_t caller;
} ender;

static int end_after(void *context, double share)
{
    ender *e = context;
    assert_true(share > 0 && share <= 1);
    assert_true(pthread_equal(pthread_self(), e->caller));
    e->calls++;
    return e->left-- == 0;
}

/* The progress callback cancels a call after a few blocks. Afterwards the same plan and pool can run the whole call. */
static void a_cancelled_call_leaves_plan_and_pool_usable(void **state)
{
    static const char *const texts[] = {"fwd:f32:b2h2q200k100d8:t5:causal", "fwd:f32:b1h2q700k100d8:alibi",
                                        "fwd:f32:b64h1q2k600d8:", "bwd:f32:b2h2q40k700d8:t5+relkey,left=3,right=3"};
    (void)state;
    watch(__func__);
    EACH_PATH(path)
    for (int n = 0; n < 4; n++)
        for (int threads = 1; threads < 4; threads++) {
            problem p;
            rp_plan *plan;
            rp_pool *pool;
            const bool backward = texts[n][0] == 'b';
            if (EMULATED && n == 1)
                continue;
            pose(&p, 1, "%s", texts[n]);
            p.desc.isa = path;
            good(rp_plan_create(&plan, &p.desc));
            good(begin_pool(&pool, threads));
            p.t.pool = pool;
            step("rp_attend");
            good(rp_attend(plan, &p.t, NULL)); /* computes out and lse for the backward call */
            for (int left = 0; left < 3; left++) {
                ender e = {.left = left, .caller = pthread_self()};
                p.t.progress = end_after;
                p.t.progress_context = &e;
                step(texts[n]);
                const rp_status status = backward ? rp_backward(plan, &p.t, &p.g, NULL) : rp_attend(plan, &p.t, NULL);
                if (e.left < 0) { /* the callback returned true */
                    assert_int_equal(status, RP_E_CANCELLED);
                    assert_non_null(strstr(rp_last_error(), "progress"));
                    assert_int_equal(e.calls, left + 1);
                } else {
                    good(status);
                }
                if (left == 0 && threads == 1)
                    assert_int_equal(status, RP_E_CANCELLED);
                e.left = -1; /* run the whole call, with the same plan and pool */
                step(texts[n]);
                good(backward ? rp_backward(plan, &p.t, &p.g, NULL) : rp_attend(plan, &p.t, NULL));
            }
            end_pool(pool);
            rp_plan_destroy(plan);
            problem_free(&p);
        }
}

/* Kinds of parallel loops of a caller, which differ in how they run the `count` pieces of work. */
enum loop { TOGETHER, FEWER, NEVER, SERIAL, OTHERS, ONE_BY_ONE, TOO_MANY, LOOPS };

typedef struct parallel {
    enum loop kind;
    atomic_int loops;
} parallel;

typedef struct arrival {
    rp_work *work;
    void *data;
    int delay; /* in microseconds; makes threads arrive in any order */
} arrival;

static void *arrive(void *argument)
{
    const arrival *a = argument;
    if (a->delay > 0)
        nanosleep(&(struct timespec){.tv_nsec = 1000L * a->delay}, NULL);
    a->work(a->data);
    return NULL;
}

static void loop(void *context, int32_t count, rp_work *work, void *data)
{
    enum { MOST = 16 };
    parallel *l = context;
    pthread_t thread[MOST];
    arrival a[MOST];
    const unsigned turn = (unsigned)atomic_fetch_add(&l->loops, 1) * 7919;
    int32_t threads = l->kind == TOGETHER   ? count - 1
                      : l->kind == FEWER    ? (count - 1) / 2
                      : l->kind == TOO_MANY ? 2 * count
                                            : 0;
    if (l->kind == OTHERS || l->kind == ONE_BY_ONE)
        threads = count;
    for (int32_t n = 0; n < threads && n < MOST; n++) {
        a[n] = (arrival){work, data, (int)((turn + 37 * (unsigned)n) % 5) * 20};
        assert_int_equal(pthread_create(&thread[n], NULL, arrive, &a[n]), 0);
        if (l->kind == ONE_BY_ONE)
            pthread_join(thread[n], NULL);
    }
    if (l->kind == TOGETHER || l->kind == FEWER || l->kind == TOO_MANY)
        work(data);
    for (int32_t n = 0; l->kind == SERIAL && n < count; n++)
        work(data);
    for (int32_t n = 0; l->kind != ONE_BY_ONE && n < threads && n < MOST; n++)
        pthread_join(thread[n], NULL);
}

/* Whatever the loop does: each task runs once, in order if there is only one thread, and no two workers that run at the
 * same time have the same number. */
static void a_loop_runs_each_task_once(void **state)
{
    (void)state;
    watch(__func__);
    for (int kind = 0; kind < LOOPS; kind++) {
        static tally t;
        parallel l = {.kind = (enum loop)kind};
        rp_pool *pool;
        memset(&t, 0, sizeof t);
        good(rp_pool_from(&pool, loop, &l, WORKERS));
        assert_int_equal(rp_pool_threads(pool), WORKERS);
        for (int round = 0; round < 3; round++) {
            step("rp_pool_run");
            good(rp_pool_run(pool, TASKS, count_task, &t));
        }
        for (int n = 0; n < TASKS; n++)
            assert_int_equal(atomic_load(&t.runs[n]), 3);
        assert_int_equal(atomic_load(&t.bad), 0);
        assert_int_equal(atomic_load(&l.loops), 3);
        good(rp_pool_run(pool, 1, count_task, &t)); /* a single task */
        assert_int_equal(atomic_load(&l.loops), 3);
        end_pool(pool);
    }
}

/* On every loop, forward and backward calls give bit-identical results to calls on one thread. In backward calls, tasks
 * wait for the sums of others. */
static void loops_give_the_same_bits(void **state)
{
    static const char *const texts[] = {"bwd:f32:b2h4q200k900d8:t5+relkey,left=3,right=3:causal",
                                        "bwd:f32:b1h2q70k700d8:dense", "fwd:f32:b64h1q2k600d8:alibi"};
    (void)state;
    watch(__func__);
    EACH_PATH(path)
    for (size_t n = 0; n < sizeof texts / sizeof *texts; n++) {
        problem p;
        rp_plan *plan;
        const bool backward = texts[n][0] == 'b';
        pose(&p, 1, "%s", texts[n]);
        p.desc.isa = path;
        good(rp_plan_create(&plan, &p.desc));
        good(begin_pool(&p.t.pool, 1));
        rp_array *const results[] = {&p.t.out, &p.g.dq, &p.g.dk, &p.g.dv, &p.g.term[0][0], &p.g.term[1][0]};
        enum { RESULTS = sizeof results / sizeof *results };
        void *want[RESULTS] = {NULL};
        step(texts[n]);
        good(rp_attend(plan, &p.t, NULL));
        if (backward)
            good(rp_backward(plan, &p.t, &p.g, NULL));
        for (int r = 0; r < RESULTS; r++)
            want[r] = results[r]->data ? copy_of(results[r]) : NULL;
        end_pool(p.t.pool);
        for (int kind = 0; kind < LOOPS; kind++) {
            parallel l = {.kind = (enum loop)kind};
            good(rp_pool_from(&p.t.pool, loop, &l, 2 + kind % 3));
            for (int r = 0; r < RESULTS; r++)
                if (want[r] && (r == 0 || backward))
                    memset((void *)(uintptr_t)results[r]->data, 0xff,
                           (size_t)problem_size(results[r]) * rp_dtype_size(results[r]->dtype));
            step(texts[n]);
            good(rp_attend(plan, &p.t, NULL));
            if (backward)
                good(rp_backward(plan, &p.t, &p.g, NULL));
            for (int r = 0; r < RESULTS; r++)
                if (want[r])
                    assert_memory_equal(results[r]->data, want[r],
                                        (size_t)problem_size(results[r]) * rp_dtype_size(results[r]->dtype));
            assert_true(atomic_load(&l.loops) > 0);
            end_pool(p.t.pool);
        }
        for (int r = 0; r < RESULTS; r++)
            free(want[r]);
        rp_plan_destroy(plan);
        problem_free(&p);
    }
}

/* Eight callers use one pool at the same time; the loop runs the work of each. */
static void a_loop_serves_many_callers(void **state)
{
    (void)state;
    watch(__func__);
    for (int kind = 0; kind < LOOPS; kind++) {
        shared s;
        parallel l = {.kind = (enum loop)kind};
        shared_begin(&s, rp_isa_default());
        s.rounds = 3;
        good(rp_pool_from(&s.pool, loop, &l, 3));
        all_callers(&s);
        end_pool(s.pool);
        shared_end(&s);
    }
}

/* If the loop runs work in the calling thread, progress is reported there, and the callback can cancel the call. */
static void a_loop_reports_and_is_cancelled(void **state)
{
    (void)state;
    watch(__func__);
    for (int kind = 0; kind < LOOPS; kind++) {
        problem p;
        rp_plan *plan;
        parallel l = {.kind = (enum loop)kind};
        ender e = {.left = 0, .caller = pthread_self()};
        const bool here = kind == SERIAL || kind == NEVER;
        pose(&p, 1, "fwd:f32:b2h2q400k100d8:alibi");
        p.desc.isa = "generic";
        good(rp_plan_create(&plan, &p.desc));
        good(rp_pool_from(&p.t.pool, loop, &l, 3));
        p.t.progress = end_after;
        p.t.progress_context = &e;
        step("rp_attend");
        const rp_status status = rp_attend(plan, &p.t, NULL);
        if (here)
            assert_int_equal(status, RP_E_CANCELLED);
        if (kind == OTHERS || kind == ONE_BY_ONE)
            assert_int_equal(e.calls, 0);
        assert_int_equal(status, e.left < 0 ? RP_E_CANCELLED : RP_OK);
        e.left = -1;
        step("rp_attend");
        good(rp_attend(plan, &p.t, NULL));
        end_pool(p.t.pool);
        rp_plan_destroy(plan);
        problem_free(&p);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pools_come_and_go),
        cmocka_unit_test(many_callers_get_the_same_bits),
        cmocka_unit_test(first_use_may_come_from_all_at_once),
        cmocka_unit_test(errors_belong_to_their_thread),
        cmocka_unit_test(a_small_stack_is_enough),
        cmocka_unit_test(each_task_runs_once),
        cmocka_unit_test(a_cancelled_call_leaves_plan_and_pool_usable),
        cmocka_unit_test(a_loop_runs_each_task_once),
        cmocka_unit_test(loops_give_the_same_bits),
        cmocka_unit_test(a_loop_serves_many_callers),
        cmocka_unit_test(a_loop_reports_and_is_cancelled),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
