/* exact.c -- exact_run, and what the reference path needs of the files that are not compiled again: conversions of
 * elements, a pool of one thread, and fast paths that nothing calls.
 * SPDX-License-Identifier: Apache-2.0 */
#include "exact.h"
#include "base/array.h"
#include "base/pool.h"
#include "problem/ops.h"

/* ------------------------------------------------------------------------------------------------ elements */

double rpi_value(const void *data, rp_dtype dtype, int64_t at)
{
    switch (dtype) {
    case RP_F64: return ((const double *)data)[at];
    case RP_F32: return (double)((const float *)data)[at];
    case RP_U64: return (double)((const uint64_t *)data)[at];
    default: return (double)rpi_integer(data, dtype, at);
    }
}

void rpi_put(void *data, rp_dtype dtype, int64_t at, double value)
{
    if (dtype == RP_F32)
        ((float *)data)[at] = (float)value;
    else
        ((double *)data)[at] = value;
}

rp_status rp_convert(void *to, rp_dtype to_type, const void *from, rp_dtype from_type, int64_t n)
{
    for (int64_t x = 0; x < n; x++)
        rpi_put(to, to_type, x, rpi_value(from, from_type, x));
    return RP_OK;
}

double rpi_row_norm(const rpi_view *v, int64_t b, int64_t h, int64_t j, int64_t width)
{
    double sum = 0;
    for (int64_t c = 0; c < width; c++)
        sum += rpi_row_value(v, b, h, j, c) * rpi_row_value(v, b, h, j, c);
    return sqrt(sum);
}

void rpi_load_f64(double *to, const void *from, rp_dtype dtype, int64_t n)
{
    for (int64_t x = 0; x < n; x++)
        to[x] = rpi_value(from, dtype, x);
}

void rpi_store_f64(void *to, rp_dtype dtype, const double *from, int64_t n)
{
    for (int64_t x = 0; x < n; x++)
        rpi_put(to, dtype, x, from[x]);
}

/* ------------------------------------------------------------------------------------------------ one thread */

int32_t rp_pool_threads(const rp_pool *pool)
{
    (void)pool;
    return 1;
}

rp_pool *rpi_pool_or_default(rp_pool *pool)
{
    return pool;
}

rp_pool *rpi_pool_for(rp_pool *pool, const rp_desc *d)
{
    (void)d;
    return pool;
}

void rpi_pool_run_until(rp_pool *pool, int64_t n_tasks, rpi_task task, void *context, const atomic_bool *stop)
{
    (void)pool, (void)stop;
    for (int64_t n = 0; n < n_tasks; n++)
        task(context, n, 0);
}

void rpi_pool_run(rp_pool *pool, int64_t n_tasks, rpi_task task, void *context)
{
    rpi_pool_run_until(pool, n_tasks, task, context, NULL);
}

const void *rpi_this_thread(void)
{
    return NULL;
}

void rpi_progress_step(rpi_progress *p)
{
    (void)p;
}

rp_status rpi_progress_status(const rpi_progress *p)
{
    (void)p;
    return RP_OK;
}

/* ------------------------------------------------------------------------------------------------ no fast path */

int rp_isa_found(const char *name)
{
    return strcmp(name, "reference") == 0 ? 1 : -1;
}

const rpi_ops *rpi_ops_named(const char *name, bool f64)
{
    (void)name, (void)f64;
    return NULL;
}

const char *rpi_isa_for(rp_dtype dtype, rp_precision precision)
{
    (void)dtype, (void)precision;
    return "reference";
}

#define UNUSED(name)                                                                                                   \
    void name(void);                                                                                                   \
    void name(void)                                                                                                    \
    {                                                                                                                  \
        fprintf(stderr, "exact: %s is called\n", #name);                                                               \
        abort();                                                                                                       \
    }

UNUSED(rpi_backward_width)
UNUSED(rpi_backward_work_size)
UNUSED(rpi_fast_attend)
UNUSED(rpi_fast_backward)
UNUSED(rpi_fast_hvp)
UNUSED(rpi_fast_jvp)
UNUSED(rpi_fast_work_size)
UNUSED(rpi_limits_bound)
UNUSED(rpi_turns)

/* ------------------------------------------------------------------------------------------------ a call */

static void end(exact_call *c)
{
    problem *p = c->memory;
    if (p)
        problem_free(p);
    free(p);
    c->memory = NULL;
}

void exact_end(exact_call *c)
{
    end(c);
}

/* Copy the inputs into the arrays of the problem, which are of f64 where those of the call are floating. */
static int take(exact_call *c, problem *p)
{
    rp_array *a[EXACT_ARRAYS];
    const int n_inputs = exact_inputs(p, a);
    for (int n = 0; n < n_inputs; n++) {
        const int64_t size = a[n]->data ? problem_size(a[n]) : 0;
        if (size != c->input_size[n]) {
            snprintf(c->err, sizeof c->err, "input %d has %lld elements, not %lld", n, (long long)c->input_size[n],
                     (long long)size);
            return 1;
        }
        if (rpi_is_floating(a[n]->dtype))
            for (int64_t x = 0; x < size; x++)
                ((double *)a[n]->data)[x] = (double)((const exact_number *)c->input[n])[x];
        else if (size > 0)
            memcpy(a[n]->data, c->input[n], (size_t)size * rp_dtype_size(a[n]->dtype));
    }
    return 0;
}

/* Run the calls of the pass; gradients get no results of the forward pass. */
static rp_status run(problem *p, const rp_plan *plan)
{
    rp_tensors without = p->t;
    rp_status status = RP_OK;
    without.out = without.lse = (rp_array){0};
    if (p->pass & PROBLEM_FORWARD)
        status = rp_attend(plan, &p->t, NULL);
    if (status == RP_OK && p->pass & PROBLEM_BACKWARD)
        status = rp_backward(plan, &without, &p->g, NULL);
    if (status == RP_OK && p->pass & PROBLEM_TANGENTS)
        status = rp_jvp(plan, &without, &p->x);
    if (status == RP_OK && p->pass & PROBLEM_SECOND)
        status = rp_hvp(plan, &without, &p->x, &p->g);
    return status;
}

int exact_run(exact_call *c)
{
    problem *p = c->memory = calloc(1, sizeof *p);
    rp_array *a[EXACT_RESULTS];
    rp_plan *plan = NULL;
    int code = p ? problem_parse(p, c->text, c->err) : 1;
    if (code == 0) {
        p->desc.dtype = RP_F64;
        p->desc.isa = "reference";
        code = problem_fill(p, 1, c->err);
    }
    if (code == 0)
        code = take(c, p);
    if (code == 0 && (rp_plan_create(&plan, &p->desc) != RP_OK || run(p, plan) != RP_OK)) {
        snprintf(c->err, sizeof c->err, "%.500s", rp_last_error());
        code = 1;
    }
    rp_plan_destroy(plan);
    if (code != 0) {
        end(c);
        return code;
    }
    const int n_results = exact_results(p, a);
    for (int n = 0; n < n_results; n++)
        c->result[n] = a[n]->data;
    return 0;
}
