/* error.c -- the message of the last failure of each thread.
 * SPDX-License-Identifier: Apache-2.0 */
#include "io/io.h"
#include "layers/layer.h"
#include <stdarg.h>

static _Thread_local char last[1024];

const char *rp_layer_last_error(void)
{
    return last;
}

rp_status layers_fail(rp_status status, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    io_safe_message(last, sizeof last, format, list);
    va_end(list);
    return status;
}

rp_status layers_no_memory(const char *what)
{
    return layers_fail(RP_E_NOMEM, "out of memory for %s (use a smaller batch or shorter sequences)", what);
}

rp_status layers_core_failed(rp_status status, const rp_desc *desc)
{
    char text[sizeof last];
    return layers_fail(status, "%s", rp_last_error_in(desc, NULL, NULL, text, sizeof text));
}
