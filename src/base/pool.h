/* base/pool.h -- threads to work on, and how far a call is.
 * It may not know terms, masks or calls.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef RELPOS_POOL_H
#define RELPOS_POOL_H
#include <relpos/relpos.h>
#include <stdatomic.h>
#include <stdbool.h>

/* Run task(context, n, worker) for n = 0 … n_tasks-1; worker < rp_pool_threads(pool). Tasks are taken in order, by any
 * number of threads that is not larger, so a task may wait for those before it and for no other. */
typedef void (*rpi_task)(void *context, int64_t n, int32_t worker);
void rpi_pool_run(rp_pool *pool, int64_t n_tasks, rpi_task task, void *context);
/* Until *stop, which a task may set; NULL: to the end. */
void rpi_pool_run_until(rp_pool *pool, int64_t n_tasks, rpi_task task, void *context, const atomic_bool *stop);
rp_pool *rpi_pool_or_default(rp_pool *pool);
rp_pool *rpi_pool_for(rp_pool *pool, const rp_desc *d); /* one thread alone for a short call */

/* How far a call is: workers count tasks, the caller's own thread reports. */
typedef struct rpi_progress {
    rp_progress *report;
    void *context;
    const void *caller; /* rpi_this_thread() */
    int64_t total;
    atomic_llong done;
    atomic_bool stop; /* report asked for it: tasks that have not begun are not run */
} rpi_progress;

/* An address that each running thread has for itself alone. */
const void *rpi_this_thread(void);

void rpi_progress_step(rpi_progress *p);
rp_status rpi_progress_status(const rpi_progress *p);

#endif
