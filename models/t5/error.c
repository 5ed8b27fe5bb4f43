/* error.c -- the message of the last failure of each thread.
 * SPDX-License-Identifier: Apache-2.0 */
#include "checkpoint/error.h"
#include "t5/model.h"
#include <stdarg.h>
#include <stdio.h>

static _Thread_local char last[1024];

const char *rp_t5_last_error(void)
{
    return last;
}

rp_status t5_fail(rp_status status, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    io_safe_message(last, sizeof last, format, list);
    va_end(list);
    return status;
}

rp_status t5_no_memory(void)
{
    return t5_model_failed(model_no_memory());
}

rp_status t5_no_memory_for(const char *what, int64_t bytes)
{
    return t5_model_failed(model_no_memory_for(what, bytes));
}

rp_status t5_not_finite(const rp_t5 *m, const char *what)
{
    if (m->weights.store.not_finite > 0)
        return t5_fail(RP_E_RANGE,
                       "%s are not finite: %lld of the weights are NaN or infinite (use weights without them)", what,
                       (long long)m->weights.store.not_finite);
    return t5_fail(RP_E_RANGE, "%s are not finite (the weights are too large for f32; use other weights)", what);
}

rp_status t5_model_failed(rp_status status)
{
    return status == RP_OK ? RP_OK : t5_fail(status, "%s", model_error());
}

rp_status t5_linear_failed(rp_status status)
{
    return status == RP_OK        ? RP_OK
           : status == RP_E_NOMEM ? t5_no_memory()
                                  : t5_fail(status, "a linear layer failed: %s", rp_status_name(status));
}

rp_status t5_cancelled(void)
{
    return t5_model_failed(model_cancelled());
}

rp_status t5_check_cancelled(const rp_t5_generation *g)
{
    return g->cancelled != NULL && g->cancelled(g->context) != 0 ? t5_cancelled() : RP_OK;
}
