/* base/pool.c -- worker threads. A pool either has its own threads, which start when first needed, are shared by
 * callers, and start again after a fork; or it uses the caller's threads through a parallel loop. rpi_pool_run_until
 * distributes the tasks of a call, and each thread runs them in run_tasks. Independent of terms, masks and calls.
 * SPDX-License-Identifier: Apache-2.0 */
#include "pool.h"
#include "error.h"
#include "integer.h"
#include "processor/float_state.h"
#include "system.h"
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

/* The tasks of one call. Threads take them in order, so a task may wait for earlier tasks: each of these is finished or
 * running. */
typedef struct job {
    rpi_task task;
    void *context;
    int64_t n_tasks;
    const atomic_bool *stop;
    atomic_llong next;
    atomic_int workers; /* number of calls of a parallel loop that have started */
    int32_t threads;    /* the most of these calls that may run tasks */
} job;

/* A worker pool. Only one caller at a time uses its threads (the holder); other callers run their tasks on their own
 * thread. `mutex` guards round, job, running and quit.
 *
 * A fork copies the memory but not the threads. In the child, a holder with another process id no longer exists, and
 * threads of another owner must be started again. A pool with a parallel loop has no threads and no holder: each job is
 * on its caller's stack. */
struct rp_pool {
    int32_t threads;
    rp_parallel *parallel; /* NULL if the pool has its own threads */
    void *parallel_context;
    atomic_llong holder; /* rpi_this_process() of the process that uses the pool; 0 if free */
    long long owner;     /* rpi_this_process() of the process that started the threads, or 0; only the holder uses it */
    pthread_t *thread;
    int32_t n_started; /* threads in addition to the caller */
    pthread_mutex_t mutex;
    pthread_cond_t work, done;
    uint64_t round; /* number of the current job */
    bool quit;
    int32_t running;
    job *job;
};

typedef struct start_note {
    rp_pool *pool;
    int32_t index;
    uint64_t round;
} start_note;

static bool stopped(const atomic_bool *stop)
{
    return stop && atomic_load_explicit(stop, memory_order_relaxed);
}

/* Run tasks until none is left or *stop is set. Always run a task that was taken, because others may wait for it. */
static void run_tasks(job *j, int32_t index)
{
    const unsigned before = rpi_float_begin(RPI_FLOAT_PLAIN);
    int64_t n;
    while (!stopped(j->stop) && (n = atomic_fetch_add_explicit(&j->next, 1, memory_order_relaxed)) < j->n_tasks)
        j->task(j->context, n, index);
    rpi_float_end(before);
}

/* Run tasks as one call of a parallel loop (an rp_work). */
static void work(void *data)
{
    job *j = data;
    const int index = atomic_fetch_add_explicit(&j->workers, 1, memory_order_relaxed);
    if (index < j->threads)
        run_tasks(j, index);
}

/* The smallest stack size of a thread in bytes; more than a call needs. If the system's default is larger, it is used.
 * The default may be only 128 KB or less, depending on `ulimit -s` and the C library. */
#define STACK ((size_t)512 << 10)

static void thread_attributes(pthread_attr_t *a)
{
    size_t size;
    pthread_attr_init(a);
    if (pthread_attr_getstacksize(a, &size) == 0 && size < STACK)
        pthread_attr_setstacksize(a, STACK);
}

static void *worker_main(void *argument)
{
    start_note w = *(start_note *)argument;
    rp_pool *p = w.pool;
    free(argument);
    pthread_mutex_lock(&p->mutex);
    for (;;) {
        while (p->round == w.round && !p->quit)
            pthread_cond_wait(&p->work, &p->mutex);
        if (p->quit)
            break;
        w.round = p->round;
        job *j = p->job;
        pthread_mutex_unlock(&p->mutex);
        run_tasks(j, w.index);
        pthread_mutex_lock(&p->mutex);
        if (--p->running == 0)
            pthread_cond_signal(&p->done);
    }
    pthread_mutex_unlock(&p->mutex);
    return NULL;
}

/* Start the threads of this process. If some cannot be started, use fewer; the caller itself always runs tasks. */
static void start(rp_pool *p)
{
    p->owner = rpi_this_process();
    p->n_started = 0;
    p->round = 0;
    p->quit = false;
    pthread_mutex_init(&p->mutex, NULL);
    pthread_cond_init(&p->work, NULL);
    pthread_cond_init(&p->done, NULL);
    if (!p->thread)
        p->thread = malloc((size_t)p->threads * sizeof *p->thread);
    pthread_attr_t attributes;
    thread_attributes(&attributes);
    for (int32_t n = 1; p->thread && n < p->threads; n++) {
        start_note *w = malloc(sizeof *w);
        if (!w)
            break;
        *w = (start_note){.pool = p, .index = n, .round = 0};
        if (pthread_create(&p->thread[p->n_started], &attributes, worker_main, w) != 0) {
            free(w);
            break;
        }
        p->n_started++;
    }
    pthread_attr_destroy(&attributes);
}

/* Take the pool for this process; return false if another thread of the process holds it. */
static bool hold(rp_pool *p)
{
    const long long self = rpi_this_process();
    long long holder = 0;
    while (!atomic_compare_exchange_strong(&p->holder, &holder, self))
        if (holder == self)
            return false;
    return true;
}

void rpi_pool_run_until(rp_pool *pool, int64_t n_tasks, rpi_task task, void *context, const atomic_bool *stop)
{
    if (n_tasks <= 0)
        return;
    job j = {.task = task, .context = context, .n_tasks = n_tasks, .stop = stop, .threads = pool->threads};
    if (n_tasks == 1 || pool->threads == 1) {
        run_tasks(&j, 0);
        return;
    }
    if (pool->parallel) {
        pool->parallel(pool->parallel_context, (int32_t)rpi_min(n_tasks, pool->threads), work, &j);
        run_tasks(&j, 0); /* runs all tasks if the loop has not called `work` */
        return;
    }
    if (!hold(pool)) {
        run_tasks(&j, 0);
        return;
    }
    if (pool->owner != rpi_this_process())
        start(pool);
    pthread_mutex_lock(&pool->mutex);
    pool->job = &j;
    pool->running = pool->n_started;
    pool->round++;
    pthread_cond_broadcast(&pool->work);
    pthread_mutex_unlock(&pool->mutex);
    run_tasks(&j, 0);
    pthread_mutex_lock(&pool->mutex);
    while (pool->running > 0)
        pthread_cond_wait(&pool->done, &pool->mutex);
    pool->job = NULL;
    pthread_mutex_unlock(&pool->mutex);
    atomic_store(&pool->holder, 0);
}

void rpi_pool_run(rp_pool *pool, int64_t n_tasks, rpi_task task, void *context)
{
    rpi_pool_run_until(pool, n_tasks, task, context, NULL);
}

rp_status rp_pool_run(rp_pool *pool, int64_t n_tasks, rp_task *task, void *context)
{
    if (!task)
        return rpi_fail(RP_E_ARG, "task is NULL; pass the function to run");
    rpi_pool_run(rpi_pool_or_default(pool), n_tasks, task, context);
    return RP_OK;
}

const void *rpi_this_thread(void)
{
    static _Thread_local char here;
    return &here;
}

void rpi_progress_step(rpi_progress *p)
{
    if (!p->report) /* without a callback, do not count */
        return;
    const int64_t done = atomic_fetch_add_explicit(&p->done, 1, memory_order_relaxed) + 1;
    if (rpi_this_thread() == p->caller && !stopped(&p->stop) &&
        p->report(p->context, (double)done / (double)rpi_max(p->total, 1)) != 0)
        atomic_store(&p->stop, true);
}

rp_status rpi_progress_status(const rpi_progress *p)
{
    return stopped(&p->stop)
               ? rpi_fail(RP_E_CANCELLED, "the progress callback cancelled the call: its outputs are undefined")
               : RP_OK;
}

static rp_pool *pool_new(int32_t threads)
{
    rp_pool *p = calloc(1, sizeof *p);
    if (p)
        p->threads = threads > 0 ? threads : rpi_usable_processors();
    return p;
}

rp_status rp_pool_create(rp_pool **pool, int32_t threads)
{
    if (!pool)
        return rpi_fail(RP_E_ARG, "pool is NULL; pass the address of a pointer");
    *pool = NULL;
    if (threads < 0 || threads > RP_MAX_THREADS)
        return rpi_fail(RP_E_RANGE,
                        "threads is %d; it must be from 0 to %d (0: one per processor that this process may use)",
                        (int)threads, RP_MAX_THREADS);
    *pool = pool_new(threads);
    return *pool ? RP_OK : rpi_fail(RP_E_NOMEM, "out of memory: a pool needs %zu bytes", sizeof **pool);
}

rp_status rp_pool_from(rp_pool **pool, rp_parallel *parallel, void *context, int32_t threads)
{
    if (pool)
        *pool = NULL;
    if (!parallel)
        return rpi_fail(RP_E_ARG, "parallel is NULL; pass the loop that runs the work");
    const rp_status status = rp_pool_create(pool, threads);
    if (status != RP_OK)
        return status;
    (*pool)->parallel = parallel;
    (*pool)->parallel_context = context;
    return RP_OK;
}

void rp_pool_destroy(rp_pool *pool)
{
    if (!pool)
        return;
    if (pool->owner == rpi_this_process()) {
        pthread_mutex_lock(&pool->mutex);
        pool->quit = true;
        pthread_cond_broadcast(&pool->work);
        pthread_mutex_unlock(&pool->mutex);
        for (int32_t n = 0; n < pool->n_started; n++)
            pthread_join(pool->thread[n], NULL);
        pthread_cond_destroy(&pool->work);
        pthread_cond_destroy(&pool->done);
        pthread_mutex_destroy(&pool->mutex);
    }
    free(pool->thread);
    free(pool);
}

/* The default pool is never destroyed; its threads sleep between calls. */
static rp_pool *default_pool;
static pthread_once_t default_once = PTHREAD_ONCE_INIT;

static void make_default(void)
{
    const char *text = getenv("RELPOS_THREADS");
    char *end = NULL;
    long n = text && *text ? strtol(text, &end, 10) : 0;
    default_pool = pool_new(end && *end == 0 && n > 0 && n <= RP_MAX_THREADS ? (int32_t)n : 0);
}

static rp_pool single_thread = {.threads = 1};

rp_pool *rpi_pool_or_default(rp_pool *pool)
{
    if (pool)
        return pool;
    pthread_once(&default_once, make_default);
    return default_pool ? default_pool
                        : &single_thread; /* if there was no memory for the default pool, use one thread */
}

/* Calls with fewer multiply-adds than this end before other threads have woken up. */
#define SHORT 4e6
static double short_call = SHORT;
static pthread_once_t short_once = PTHREAD_ONCE_INIT;

static void read_short(void)
{
    const char *text = getenv("RELPOS_SHORT");
    char *end = NULL;
    const double x = text && *text ? strtod(text, &end) : SHORT;
    if (end && *end == 0 && x >= 0)
        short_call = x;
}

rp_pool *rpi_pool_for(rp_pool *pool, const rp_desc *d)
{
    pthread_once(&short_once, read_short);
    const double n =
        (double)d->batch * (double)d->heads * (double)d->len_q * (double)d->len_k * (double)(d->dim_k + d->dim_v);
    return n < short_call ? &single_thread : rpi_pool_or_default(pool);
}

int32_t rp_pool_threads(const rp_pool *pool)
{
    return pool ? pool->threads : rpi_pool_or_default(NULL)->threads;
}
