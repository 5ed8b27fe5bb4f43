/* callers.h -- many callers that use one plan, each with its own outputs and scratch memory, observed by the watchdog.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef RELPOS_TESTS_CALLERS_H
#define RELPOS_TESTS_CALLERS_H
#include "tests/helpers.h"
#include "tests/hazards/watchdog.h"
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/wait.h>

enum { CALLERS = 8 };

HELPER const char *const text = "fwd:f32:b2h2q70k130d8:t5+relkey,left=3,right=3:causal";

/* Shared by all callers: one plan, one set of inputs, the expected result. */
typedef struct shared {
    problem p;
    rp_plan *plan;
    rp_pool *pool; /* NULL: the default pool */
    float *want;
    double *want_mass;
    size_t n;
    int rounds;
    bool own_pool, own_work;
    atomic_int wrong;
} shared;

HELPER void shared_begin(shared *s, const char *isa)
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

HELPER void shared_end(shared *s)
{
    rp_plan_destroy(s->plan);
    free(s->want);
    free(s->want_mass);
    problem_free(&s->p);
}

/* Outputs and scratch memory of one caller. */
typedef struct room {
    float *out;
    double *sums;
    void *work; /* NULL: the call allocates it */
} room;

HELPER room room_begin(const shared *s, const rp_pool *pool)
{
    const rp_tensors *t = &s->p.t;
    const int64_t sums = problem_size(&t->key_mass) + problem_size(&t->profile) + problem_size(&t->entropy);
    return (room){malloc(s->n * sizeof(float)), malloc((size_t)sums * sizeof(double)),
                  s->own_work ? aligned_alloc(64, (rp_plan_work_size(s->plan, pool) + 63) / 64 * 64) : NULL};
}

HELPER void room_end(room *r)
{
    free(r->out);
    free(r->sums);
    free(r->work);
}

/* Create a pool; the watchdog observes this step. */
HELPER rp_status begin_pool(rp_pool **pool, int32_t threads)
{
    step("rp_pool_create");
    return rp_pool_create(pool, threads);
}

HELPER void end_pool(rp_pool *pool)
{
    step("rp_pool_destroy");
    rp_pool_destroy(pool);
}

/* Run one call. If the caller provides scratch memory, the call allocates nothing. Return true if the bits are
 * right. */
HELPER bool call_in(const shared *s, rp_pool *pool, const room *r)
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

/* Run one call with newly allocated outputs and scratch memory. */
HELPER bool call(shared *s, rp_pool *pool)
{
    room r = room_begin(s, pool);
    const bool right = call_in(s, pool, &r);
    room_end(&r);
    return right;
}

HELPER void *caller(void *argument)
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

HELPER void all_callers(shared *s)
{
    pthread_t thread[CALLERS];
    for (int n = 0; n < CALLERS; n++)
        assert_int_equal(pthread_create(&thread[n], NULL, caller, s), 0);
    for (int n = 0; n < CALLERS; n++)
        pthread_join(thread[n], NULL);
    assert_int_equal(atomic_load(&s->wrong), 0);
}

/* Return true where fork cannot be tested: ThreadSanitizer and qemu do not support the child of a process with
 * threads. */
HELPER bool no_forks(void)
{
    if (THREAD_SANITIZED || EMULATED)
        print_message("forks: not run under ThreadSanitizer or an emulator\n");
    return THREAD_SANITIZED || EMULATED;
}

#endif
