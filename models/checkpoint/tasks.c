/* tasks.c -- see tasks.h.
 * SPDX-License-Identifier: Apache-2.0 */
#include "checkpoint/tasks.h"
#include "checkpoint/error.h"
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

enum { ALIGN = 64 };

void model_run_tasks(rp_pool *pool, int64_t n_tasks, rp_task *task, void *context)
{
    if (n_tasks == 1)
        task(context, 0, model_workers(pool) - 1);
    else
        rp_pool_run(pool, n_tasks, task, context);
}

void model_failed(model_failure *f, rp_status status, const char *message)
{
    int none = RP_OK;
    if (status != RP_OK && atomic_compare_exchange_strong(&f->status, &none, (int)status))
        strncpy(f->text, message, sizeof f->text - 1);
}

rp_status model_failure_of(const model_failure *f)
{
    const rp_status status = (rp_status)f->status;
    return status == RP_OK ? RP_OK : model_fail(status, "%s", f->text);
}

/* ------------------------------------------------------------------------------------------------ attention */

static rp_status core_failed(rp_status status)
{
    return status == RP_OK            ? RP_OK
           : status == RP_E_CANCELLED ? model_cancelled()
                                      : model_fail(status, "attention failed: %s", rp_last_error());
}

/* Compute the bytes of work memory of one thread, and of all workers. Return false on overflow. */
static bool work_sizes(const model_attention *a, rp_pool *pool, size_t *one, size_t *all)
{
    const size_t alone = rp_plan_work_size(a->plan, pool);
    *one = (rp_plan_work_size(a->plan, a->single) + ALIGN - 1) / ALIGN * ALIGN;
    if (alone == 0 || *one == 0 || __builtin_mul_overflow(*one, (size_t)rp_pool_threads(pool), all))
        return false;
    if (*all < alone)
        *all = (alone + ALIGN - 1) / ALIGN * ALIGN;
    return *all <= PTRDIFF_MAX;
}

/* Make the plan, and a pool of one thread. */
static rp_status begin(model_attention *a, const rp_desc *desc)
{
    *a = (model_attention){0};
    const rp_status status = core_failed(rp_plan_create(&a->plan, desc));
    return status == RP_OK ? core_failed(rp_pool_create(&a->single, 1)) : status;
}

rp_status model_attention_make(model_attention *a, const rp_desc *desc, rp_pool *pool)
{
    size_t all;
    const rp_status status = begin(a, desc);
    if (status != RP_OK)
        return status;
    if (!work_sizes(a, pool, &a->work_size, &all))
        return model_fail(RP_E_OVERFLOW, "a sequence of %lld tokens is too long (use shorter inputs)",
                          (long long)(desc->len_k > desc->len_q ? desc->len_k : desc->len_q));
    a->workers = model_workers(pool);
    a->tensors = malloc((size_t)a->workers * sizeof *a->tensors);
    a->work = aligned_alloc(ALIGN, all);
    if (a->tensors == NULL || a->work == NULL)
        return model_no_memory();
    for (int32_t w = 0; w < a->workers; w++) {
        a->tensors[w] = rp_tensors_init();
        a->tensors[w].pool = w < a->workers - 1 ? a->single : pool;
    }
    return RP_OK;
}

void model_attention_free(model_attention *a)
{
    free(a->tensors);
    free(a->work);
    rp_plan_destroy(a->plan);
    rp_pool_destroy(a->single);
    *a = (model_attention){0};
}

int64_t model_attention_bytes(const rp_desc *desc, rp_pool *pool)
{
    model_attention a;
    size_t one, all;
    const bool fits = begin(&a, desc) == RP_OK && work_sizes(&a, pool, &one, &all);
    model_attention_free(&a);
    return fits ? (int64_t)all : -1;
}

rp_status model_attention_prepare(const model_attention *a, rp_prepared **prepared)
{
    return core_failed(rp_prepare(prepared, a->plan, &a->tensors[a->workers - 1]));
}

void model_attention_watch(model_attention *a, rp_progress *progress, void *context)
{
    if (a->tensors == NULL) /* it was not made */
        return;
    a->tensors[a->workers - 1].progress = progress;
    a->tensors[a->workers - 1].progress_context = context;
}

rp_status model_attend(const model_attention *a, int32_t worker)
{
    const size_t at = worker < a->workers - 1 ? (size_t)worker * a->work_size : 0;
    return core_failed(rp_attend(a->plan, &a->tensors[worker], a->work + at));
}
