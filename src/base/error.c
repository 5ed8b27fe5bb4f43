/* base/error.c -- statuses, the last error of a thread, checked sizes.
 * It may not know terms, masks or calls.
 * SPDX-License-Identifier: Apache-2.0 */
#include "error.h"
#include <stdarg.h>
#include <stdio.h>

static _Thread_local char last_error[512];

rp_status rpi_fail(rp_status status, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    vsnprintf(last_error, sizeof last_error, format, list);
    va_end(list);
    return status;
}

const char *rp_last_error(void)
{
    return last_error;
}

const char *rp_version(void)
{
    return RP_VERSION_STRING;
}

const char *rp_status_name(rp_status status)
{
    static const char *const names[] = {
        [RP_OK] = "RP_OK",
        [RP_E_ARG] = "RP_E_ARG",
        [RP_E_SHAPE] = "RP_E_SHAPE",
        [RP_E_STRIDE] = "RP_E_STRIDE",
        [RP_E_RANGE] = "RP_E_RANGE",
        [RP_E_OVERLAP] = "RP_E_OVERLAP",
        [RP_E_UNSUPPORTED] = "RP_E_UNSUPPORTED",
        [RP_E_NOMEM] = "RP_E_NOMEM",
        [RP_E_OVERFLOW] = "RP_E_OVERFLOW",
        [RP_E_CANCELLED] = "RP_E_CANCELLED",
    };
    return (unsigned)status < sizeof names / sizeof *names ? names[status] : "unknown status";
}
