/* error.c -- the message of the last failure of each thread.
 * SPDX-License-Identifier: Apache-2.0 */
#include "checkpoint/error.h"
#include "io/io.h"
#include <stdarg.h>

static _Thread_local char last[1024];

const char *model_error(void)
{
    return last;
}

rp_status model_fail(rp_status status, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    io_safe_message(last, sizeof last, format, list);
    va_end(list);
    return status;
}

rp_status model_no_memory(void)
{
    return model_fail(RP_E_NOMEM, "out of memory (close other programs, or use fewer or shorter inputs)");
}

rp_status model_no_memory_for(const char *what, int64_t bytes)
{
    return model_fail(
        RP_E_NOMEM,
        "out of memory: cannot allocate %lld bytes for %s (use a narrower type such as int8, or fewer or shorter "
        "inputs)",
        (long long)bytes, what);
}

rp_status model_cancelled(void)
{
    return model_fail(RP_E_CANCELLED, "the callback cancelled the call");
}
