/* base/pool.h -- run tasks on threads, and report the progress of a call. Independent of terms, masks and calls.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef RELPOS_POOL_H
#define RELPOS_POOL_H
#include <relpos/relpos.h>
#include <stdatomic.h>
#include <stdbool.h>

/* Run task(context, n, worker) for n = 0 … n_tasks-1, with worker < rp_pool_threads(pool). Threads take tasks in order,
 * so a task may wait for earlier tasks, but not for later ones. */
typedef void (*rpi_task)(void *context, int64_t n, int32_t worker);
void rpi_pool_run(rp_pool *pool, int64_t n_tasks, rpi_task task, void *context);
/* Like rpi_pool_run, but start no more tasks once *stop is set, which a task may do. If stop is NULL, run all. */
void rpi_pool_run_until(rp_pool *pool, int64_t n_tasks, rpi_task task, void *context, const atomic_bool *stop);
rp_pool *rpi_pool_or_default(rp_pool *pool);
rp_pool *rpi_pool_for(rp_pool *pool, const rp_desc *d); /* one thread for a short call */

/* The progress of a call. Workers count finished tasks; the caller's thread calls `report`. */
typedef struct rpi_progress {
    rp_progress *report;
    void *context;
    const void *caller; /* rpi_this_thread() */
    int64_t total;
    atomic_llong done;
    atomic_bool stop; /* set when `report` cancels the call; no more tasks start */
} rpi_progress;

/* Return an address that identifies the running thread. */
const void *rpi_this_thread(void);

void rpi_progress_step(rpi_progress *p);
rp_status rpi_progress_status(const rpi_progress *p);

#endif
