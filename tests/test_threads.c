/* test_threads.c -- pools: many callers, forks at any moment, and the same bits from all of them.
 * SPDX-License-Identifier: Apache-2.0 */
#include "helpers.h"
#include "watchdog.h"
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/wait.h>

enum { CALLERS = 8 };

static const char *const text = "fwd:f32:b2h2q70k130d8:t5+relkey,left=3,right=3:causal";

/* What callers share: one plan, one set of inputs, the right answer. */
typedef struct shared {
    problem p;
    rp_plan *plan;
    rp_pool *pool; /* NULL: the default one */
    float *want;
    double *want_mass;
    size_t n;
    int rounds;
    bool own_pool, own_work;
    atomic_int wrong;
} shared;

static void shared_begin(shared *s, const char *isa)
{
    memset(s, 0, sizeof *s);
    pose(&s->p, 1, "%s", text);
    also(&s->p, WITH_SUMMARY, RP_F64);
    s->p.desc.isa = isa;
    good(rp_plan_create(&s->plan, &s->p.desc));
    good(rp_attend(s->plan, &s->p.t, NULL));
    s->want = copy_of(&s->p.t.out);
    s->want_mass = copy_of(&s->p.t.key_mass);
    s->n = (size_t)problem_size(&s->p.t.out);
    s->rounds = 20;
}

static void shared_end(shared *s)
{
    rp_plan_destroy(s->plan);
    free(s->want);
    free(s->want_mass);
    problem_free(&s->p);
}

/* Outputs and work of one caller. */
typedef struct room {
    float *out;
    double *sums;
    void *work; /* NULL: the call allocates */
} room;

static room room_begin(const shared *s, const rp_pool *pool)
{
    const rp_tensors *t = &s->p.t;
    const int64_t sums = problem_size(&t->key_mass) + problem_size(&t->profile) + problem_size(&t->entropy);
    return (room){malloc(s->n * sizeof(float)), malloc((size_t)sums * sizeof(double)),
                  s->own_work ? aligned_alloc(64, (rp_plan_work_size(s->plan, pool) + 63) / 64 * 64) : NULL};
}

static void room_end(room *r)
{
    free(r->out);
    free(r->sums);
    free(r->work);
}

/* Pools that are watched. */
static rp_status begin_pool(rp_pool **pool, int32_t threads)
{
    step("rp_pool_create");
    return rp_pool_create(pool, threads);
}

static void end_pool(rp_pool *pool)
{
    step("rp_pool_destroy");
    rp_pool_destroy(pool);
}

/* One call that, with work of its own, allocates nothing: true if the bits are right. */
static bool call_in(const shared *s, rp_pool *pool, const room *r)
{
    rp_tensors t = s->p.t;
    const size_t mass = (size_t)problem_size(&t.key_mass);
    t.pool = pool;
    t.out.data = r->out;
    t.key_mass.data = r->sums;
    t.profile.data = r->sums + mass;
    t.entropy.data = r->sums + mass + problem_size(&t.profile);
    step("rp_attend");
    return r->out && r->sums && (r->work || !s->own_work) && rp_attend(s->plan, &t, r->work) == RP_OK &&
           memcmp(r->out, s->want, s->n * sizeof *r->out) == 0 &&
           memcmp(r->sums, s->want_mass, mass * sizeof *r->sums) == 0;
}

/* One call with outputs and work of its own. */
static bool call(shared *s, rp_pool *pool)
{
    room r = room_begin(s, pool);
    const bool right = call_in(s, pool, &r);
    room_end(&r);
    return right;
}

static void *caller(void *argument)
{
    shared *s = argument;
    rp_pool *pool = s->pool;
    if (s->own_pool && begin_pool(&pool, 2) != RP_OK)
        atomic_fetch_add(&s->wrong, 1);
    for (int n = 0; n < s->rounds; n++)
        if (!call(s, pool))
            atomic_fetch_add(&s->wrong, 1);
    if (s->own_pool)
        end_pool(pool);
    return NULL;
}

static void all_callers(shared *s)
{
    pthread_t thread[CALLERS];
    for (int n = 0; n < CALLERS; n++)
        assert_int_equal(pthread_create(&thread[n], NULL, caller, s), 0);
    for (int n = 0; n < CALLERS; n++)
        pthread_join(thread[n], NULL);
    assert_int_equal(atomic_load(&s->wrong), 0);
}

static void many_callers(void **state)
{
    shared s;
    (void)state;
    static const char *const reference[] = {"reference"};
    watch(__func__);
    for (int i = -1; i < 0 || rp_isa_name(i); i++) {
        const char *isa = i < 0 ? reference[0] : rp_isa_name(i);
        if (!TRIED(isa))
            continue;
        for (int form = 0; form < 4; form++) {
            shared_begin(&s, isa);
            s.rounds = i < 0 ? 2 : 20;
            s.own_work = form % 2;
            s.own_pool = form == 3;
            if (form == 1) /* one pool, made here and used by all at once, its threads not yet started */
                good(begin_pool(&s.pool, 3));
            all_callers(&s);
            end_pool(s.pool);
            shared_end(&s);
        }
    }
}

/* One pool, first used by all of its callers in the same moment, again and again. */
static void first_use(void **state)
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

/* Pools made and let go: unused, used once, of many sizes. */
static void create_destroy(void **state)
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
    good(begin_pool(&pool, 0)); /* as many as this process may use */
    assert_true(rp_pool_threads(pool) >= 1 && rp_pool_threads(pool) <= 4096);
    end_pool(pool);
    good(begin_pool(&pool, 4096)); /* none is started before a call wants them */
    assert_int_equal(rp_pool_threads(pool), 4096);
    end_pool(pool);
    assert_true(rp_pool_threads(NULL) >= 1);
    shared_end(&s);
}

/* ------------------------------------------------------------------------------------------------ fork */

/* Run a child: 0 if it ended by itself and found the right bits, its status, or less than 0 for a signal. */
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

/* ThreadSanitizer does not follow a child of a process with threads, nor does qemu. */
static bool no_forks(void)
{
    if (THREAD_SANITIZED || EMULATED)
        print_message("forks: not run under ThreadSanitizer or an emulator\n");
    return THREAD_SANITIZED || EMULATED;
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

/* Several threads of the child come to the pool of the parent at once. */
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

static void forks(void **state)
{
    shared s;
    static bool (*const what[])(shared *) = {child_calls, child_calls_and_destroys, child_destroys, grandchild};
    (void)state;
    if (no_forks())
        return;
    watch(__func__);
    shared_begin(&s, rp_isa_default());
    for (int used = 0; used < 2; used++) /* before the pool's threads exist, and after */
        for (size_t n = 0; n < sizeof what / sizeof *what; n++) {
            good(begin_pool(&s.pool, 3));
            if (used)
                assert_true(call(&s, s.pool));
            in_child(&s, what[n]);
            assert_true(call(&s, s.pool)); /* the parent goes on */
            in_child(&s, what[n]);
            end_pool(s.pool);
        }
    shared_end(&s);
}

static void forks_with_threads(void **state)
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

/* Forks while other threads are in the middle of calls on the same pool. They allocate before the first fork and after the
 * last: a child that inherits an allocator in the middle of its work, as it does from AddressSanitizer's, can wait for ever. */
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

static void forks_during_calls(void **state)
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
    assert_true(call(&s, s.pool)); /* the pool's threads exist */
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

/* rp_last_error belongs to a thread. */
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

static void errors_of_threads(void **state)
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

/* A small stack is enough for a caller: 128 KiB, as musl gives its threads. */
static void *small_caller(void *argument)
{
    shared *s = argument;
    return call(s, s->pool) ? NULL : argument;
}

static void small_stack(void **state)
{
    shared s;
    pthread_attr_t attributes;
    pthread_t thread;
    void *bad;
    (void)state;
    watch(__func__);
    if (SANITIZED) {
        print_message("small stack: a sanitizer's frames are larger: not run\n");
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

/* Every task once, and no worker's number twice at a time. */
static void run_tasks(void **state)
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

/* Ends a call at the block after the first `left`. */
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

static void cancelled(void **state)
{
    static const char *const texts[] = {"fwd:f32:b2h2q200k300d8:t5:causal", "fwd:f32:b1h2q700k700d32:alibi",
                                        "fwd:f32:b64h1q2k600d8:", "bwd:f32:b2h2q200k700d8:t5+relkey,left=3,right=3"};
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
            good(rp_attend(plan, &p.t, NULL)); /* whose out and lse a backward call reads */
            for (int left = 0; left < 3; left++) {
                ender e = {.left = left, .caller = pthread_self()};
                p.t.progress = end_after;
                p.t.progress_context = &e;
                step(texts[n]);
                const rp_status status = backward ? rp_backward(plan, &p.t, &p.g, NULL) : rp_attend(plan, &p.t, NULL);
                if (e.left < 0) { /* the last word */
                    assert_int_equal(status, RP_E_CANCELLED);
                    assert_non_null(strstr(rp_last_error(), "progress"));
                    assert_int_equal(e.calls, left + 1);
                } else {
                    good(status);
                }
                if (left == 0 && threads == 1)
                    assert_int_equal(status, RP_E_CANCELLED);
                e.left = -1; /* the same plan and pool go on */
                step(texts[n]);
                good(backward ? rp_backward(plan, &p.t, &p.g, NULL) : rp_attend(plan, &p.t, NULL));
            }
            end_pool(pool);
            rp_plan_destroy(plan);
            problem_free(&p);
        }
}

/* ------------------------------------------------------------------------------------------------ the watchdog itself */

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

/* Half a second of processor time, in many calls: beyond the limit for one. */
static void works(void)
{
    while (clock() < CLOCKS_PER_SEC / 2)
        step("a call that ends");
}

/* Hangs are found and named, whatever they are; a process that works and is stopped for longer than the limits is left alone. */
static void watchdog(void **state)
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
            watch_self = NULL; /* it watches itself */
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
        cmocka_unit_test(create_destroy),     cmocka_unit_test(many_callers),
        cmocka_unit_test(first_use),          cmocka_unit_test(forks),
        cmocka_unit_test(forks_with_threads), cmocka_unit_test(forks_during_calls),
        cmocka_unit_test(errors_of_threads),  cmocka_unit_test(small_stack),
        cmocka_unit_test(run_tasks),          cmocka_unit_test(cancelled),
        cmocka_unit_test(watchdog),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
