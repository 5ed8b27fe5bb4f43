/* base/error.c -- names of status codes, the version, and the last error of a thread. Independent of terms, masks and
 * calls.
 * SPDX-License-Identifier: Apache-2.0 */
#include "error.h"
#include <stdarg.h>
#include <stdio.h>

static _Thread_local char last_error[512];

rp_status rpi_fail(rp_status status, const char *format, ...)
{
    enum { OURS = 1 }; /* stands for quotes of the format while quotes in the arguments are replaced by ' */
    char marked[sizeof last_error];
    va_list list;
    snprintf(marked, sizeof marked, "%s", format);
    for (char *c = marked; *c; c++)
        *c = *c == '"' ? OURS : *c;
    va_start(list, format);
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
    vsnprintf(last_error, sizeof last_error, marked, list); /* the compiler checks the format at each call */
#pragma GCC diagnostic pop
    va_end(list);
    for (char *c = last_error; *c; c++)
        *c = *c == '"' ? '\'' : *c == OURS ? '"' : *c;
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
