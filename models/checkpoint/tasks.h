/* tasks.h -- the parallel tasks of a forward pass, such as one for each sequence: attention in them, and the first
 * failure. A task that runs alone uses all threads of the pool; otherwise each task uses one.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef RELPOS_CHECKPOINT_TASKS_H
#define RELPOS_CHECKPOINT_TASKS_H

#include <relpos/relpos.h>

/* Return the number of workers: one for each thread, and, as the last one, a worker for a task that runs alone. */
static inline int32_t model_workers(const rp_pool *pool)
{
    return rp_pool_threads(pool) + 1;
}

/* Run task(context, n, worker) for n = 0 … n_tasks-1, with worker < model_workers(pool). */
void model_run_tasks(rp_pool *pool, int64_t n_tasks, rp_task *task, void *context);

/* The first failure among parallel tasks, with its message: the last error is separate for each thread. */
typedef struct model_failure {
    _Atomic int status;
    char text[1024];
} model_failure;
void model_failed(model_failure *f, rp_status status, const char *message); /* nothing happens if status is RP_OK */
rp_status model_failure_of(const model_failure *f);

/* Calls of one plan, each with the arrays and the work memory of its worker. */
typedef struct model_attention {
    rp_plan *plan;
    rp_pool *single; /* one thread: the pool of tasks that run at the same time */
    int32_t workers;
    rp_tensors *tensors; /* [workers], without arrays, and with a pool */
    unsigned char *work; /* [workers - 1] of work_size bytes; the last worker uses all of it */
    size_t work_size;
} model_attention;

/* The caller also frees *a after a failure. */
rp_status model_attention_make(model_attention *a, const rp_desc *desc, rp_pool *pool);
void model_attention_free(model_attention *a);
/* Return the approximate size of the memory that model_attention_make allocates; -1 on overflow. */
int64_t model_attention_bytes(const rp_desc *desc, rp_pool *pool);
/* Prepare the bias of the arrays that the tensors of the last worker have. */
rp_status model_attention_prepare(const model_attention *a, rp_prepared **prepared);
/* Let a callback watch attention in a task that runs alone; elsewhere it would run in other threads. Nothing happens if
 * *a is zero. */
void model_attention_watch(model_attention *a, rp_progress *progress, void *context);
/* Compute attention. The caller has set the arrays in the tensors of this worker. */
rp_status model_attend(const model_attention *a, int32_t worker);

#endif
