/* error.c -- statuses, the last error of a thread, checked sizes.
 * SPDX-License-Identifier: Apache-2.0 */
#include "internal.h"
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

bool rpi_mul(int64_t a, int64_t b, int64_t c, int64_t *product)
{
    /* In 63 bits with every zero taken as one first, so that a zero does not hide an overflow. */
    int64_t p;
    if (a < 0 || b < 0 || c < 0)
        return false;
    if (__builtin_mul_overflow(rpi_max(a, 1), rpi_max(b, 1), &p) || __builtin_mul_overflow(p, rpi_max(c, 1), &p))
        return false;
    *product = a && b && c ? p : 0;
    return true;
}
