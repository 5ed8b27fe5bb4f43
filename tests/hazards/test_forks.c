/* test_forks.c -- forks at any moment. Also tests that the watchdog finds a child that hangs.
 * SPDX-License-Identifier: Apache-2.0 */
#include "tests/hazards/callers.h"

/* Run a child. Return 0 if it exited by itself and its bits were right; otherwise its exit status, or a negative number
 * for a signal. */
static int ending(shared *s, bool (*what)(shared *))
{
    fflush(NULL);
    const pid_t child = fork_watched();
    if (child == 0) {
        signal(SIGSEGV, SIG_DFL);
        _exit(what(s) ? 0 : 1);
    }
    int how;
    step("waitpid");
    if (!wait_watched(child, &how))
        return 99;
    return WIFEXITED(how) ? WEXITSTATUS(how) : -WTERMSIG(how);
}

static void in_child(shared *s, bool (*what)(shared *))
{
    const int end = ending(s, what);
    if (end != 0)
        fail_msg("the child ended with %d", end);
}

static bool child_calls(shared *s)
{
    bool right = true;
    for (int n = 0; n < 3; n++)
        right = call(s, s->pool) && call(s, NULL) && right;
    return right;
}

static bool child_calls_and_destroys(shared *s)
{
    const bool right = call(s, s->pool);
    end_pool(s->pool);
    return right;
}

static bool child_destroys(shared *s)
{
    end_pool(s->pool);
    return call(s, NULL);
}

/* Let several threads of the child use the parent's pool at the same time. */
static bool child_has_threads(shared *s)
{
    pthread_t thread[CALLERS];
    s->rounds = 2;
    for (int n = 0; n < CALLERS; n++)
        if (pthread_create(&thread[n], NULL, caller, s) != 0)
            return false;
    for (int n = 0; n < CALLERS; n++)
        pthread_join(thread[n], NULL);
    return atomic_load(&s->wrong) == 0;
}

static bool grandchild(shared *s)
{
    if (!call(s, s->pool))
        return false;
    const pid_t child = fork_watched();
    if (child == 0) {
        _exit(call(s, s->pool) && call(s, NULL) ? 0 : 1);
    }
    int how;
    step("waitpid");
    return wait_watched(child, &how) && WIFEXITED(how) && WEXITSTATUS(how) == 0 && call(s, s->pool);
}

/* Fork before and after the threads of the pool exist. The parent continues its work. */
static void a_child_uses_and_destroys_the_pool(void **state)
{
    shared s;
    static bool (*const what[])(shared *) = {child_calls, child_calls_and_destroys, child_destroys, grandchild};
    (void)state;
    if (no_forks())
        return;
    watch(__func__);
    shared_begin(&s, rp_isa_default());
    for (int used = 0; used < 2; used++) /* 0: before the pool's threads exist; 1: after */
        for (size_t n = 0; n < sizeof what / sizeof *what; n++) {
            good(begin_pool(&s.pool, 3));
            if (used)
                assert_true(call(&s, s.pool));
            in_child(&s, what[n]);
            assert_true(call(&s, s.pool)); /* the parent continues */
            in_child(&s, what[n]);
            end_pool(s.pool);
        }
    shared_end(&s);
}

/* Repeatedly let several threads of a child use the parent's pool at the same time. */
static void threads_of_a_child_share_the_pool(void **state)
{
    shared s;
    (void)state;
    if (no_forks())
        return;
    watch(__func__);
    shared_begin(&s, "generic");
    good(begin_pool(&s.pool, 3));
    assert_true(call(&s, s.pool));
    for (int n = 0; n < 60; n++)
        in_child(&s, child_has_threads);
    end_pool(s.pool);
    shared_end(&s);
}

/* Forks while other threads are inside calls that use the same pool. These threads allocate only before the first fork
 * and after the last. Otherwise a child might inherit a locked allocator (AddressSanitizer's can be locked) and wait
 * for ever. */
static atomic_bool stop;

static atomic_int ready;

static void *busy_caller(void *argument)
{
    shared *s = argument;
    room r = room_begin(s, s->pool);
    atomic_fetch_add(&ready, 1);
    while (!atomic_load(&stop))
        if (!call_in(s, s->pool, &r))
            atomic_fetch_add(&s->wrong, 1);
    room_end(&r);
    return NULL;
}

/* Fork children while other threads are inside calls that use the same pool. */
static void forks_during_calls_harm_nobody(void **state)
{
    shared s;
    pthread_t thread[3];
    int end = 0;
    (void)state;
    if (no_forks())
        return;
    watch(__func__);
    shared_begin(&s, rp_isa_default());
    s.own_work = true;
    good(begin_pool(&s.pool, 3));
    assert_true(call(&s, s.pool)); /* starts the pool's threads */
    atomic_store(&stop, false);
    atomic_store(&ready, 0);
    for (int n = 0; n < 3; n++)
        assert_int_equal(pthread_create(&thread[n], NULL, busy_caller, &s), 0);
    while (atomic_load(&ready) < 3)
        sched_yield();
    for (int n = 0; n < 40 && end == 0; n++)
        end = ending(&s, n % 2 ? child_calls : child_calls_and_destroys);
    atomic_store(&stop, true);
    for (int n = 0; n < 3; n++)
        pthread_join(thread[n], NULL);
    assert_int_equal(end, 0);
    assert_int_equal(atomic_load(&s.wrong), 0);
    end_pool(s.pool);
    shared_end(&s);
}

static pthread_mutex_t locked = PTHREAD_MUTEX_INITIALIZER;

static void *waits(void *unused)
{
    pthread_mutex_lock(&locked);
    return unused;
}

static void deadlock(void)
{
    pthread_t thread;
    pthread_mutex_lock(&locked);
    step("a lock that nobody opens");
    pthread_create(&thread, NULL, waits, NULL);
    pthread_join(thread, NULL);
}

static void spin(void)
{
    step("a loop without end");
    for (volatile int n = 0;; n++)
        continue;
}

static void child_that_waits(void)
{
    const pid_t child = fork_watched();
    if (child == 0) {
        step("a child that waits");
        for (;;)
            pause();
    }
    wait_watched(child, NULL);
}

/* Use half a second of processor time in many calls; one call would not be allowed that much. */
static void works(void)
{
    while (clock() < CLOCKS_PER_SEC / 2)
        step("a call that ends");
}

/* The watchdog finds every kind of hang and names it. It tolerates a process that is working, or that is stopped for
 * longer than the limits. */
static void the_watchdog_finds_hangs(void **state)
{
    static const struct {
        void (*what)(void);
        const char *says;
    } hangs[] = {{deadlock, "in or after a lock that nobody opens"},
                 {spin, "in or after a loop without end"},
                 {child_that_waits, "in or after a child that waits"},
                 {works, NULL}};
    (void)state;
    if (no_forks())
        return;
    watch(__func__);
    for (size_t n = 0; n < sizeof hangs / sizeof *hangs; n++) {
        int ends[2], how;
        char said[400];
        size_t size = 0;
        assert_int_equal(pipe(ends), 0);
        fflush(NULL);
        const pid_t child = fork_watched();
        if (child == 0) {
            dup2(ends[1], STDERR_FILENO);
            close(ends[0]);
            close(ends[1]);
            watch_self = NULL; /* the child watches itself */
            watch_limit.looks = 20;
            watch_limit.pause_ms = 5;
            watch_limit.cpu = 0.4;
            watch("a test");
            hangs[n].what();
            _exit(0);
        }
        close(ends[1]);
        step(hangs[n].says ? hangs[n].says : "a child that is stopped");
        if (!hangs[n].says) {
            const struct timespec second = {1, 0};
            kill(child, SIGSTOP);
            nanosleep(&second, NULL);
            kill(child, SIGCONT);
        }
        for (ssize_t got; size < sizeof said - 1 && (got = read(ends[0], said + size, sizeof said - 1 - size)) > 0;)
            size += (size_t)got;
        said[size] = 0;
        close(ends[0]);
        assert_true(wait_watched(child, &how));
        const bool hung = WIFSIGNALED(how) && WTERMSIG(how) == SIGABRT;
        if (hangs[n].says ? !hung || !strstr(said, "HANG in a test, ") || !strstr(said, hangs[n].says)
                          : how != 0 || *said)
            fail_msg("%s: status %d, it says '%s'", hangs[n].says ? hangs[n].says : "no hang", how, said);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_child_uses_and_destroys_the_pool),
        cmocka_unit_test(threads_of_a_child_share_the_pool),
        cmocka_unit_test(forks_during_calls_harm_nobody),
        cmocka_unit_test(the_watchdog_finds_hangs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
