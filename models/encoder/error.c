/* error.c -- the message of the last failure of each thread.
 * SPDX-License-Identifier: Apache-2.0 */
#include "encoder/encoder.h"
#include <stdarg.h>
#include <stdlib.h>

static _Thread_local char last[1024];

const char *rp_encoder_last_error(void)
{
    return last;
}

void rp_encoder_free(void *memory)
{
    free(memory);
}

rp_status encoder_fail(rp_status status, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    io_safe_message(last, sizeof last, format, list);
    va_end(list);
    return status;
}

rp_status encoder_no_memory(void)
{
    return encoder_fail(RP_E_NOMEM, "out of memory (close other programs, or use fewer or shorter texts)");
}

rp_status encoder_model_failed(rp_status status)
{
    return status == RP_OK ? RP_OK : encoder_fail(status, "%s", model_error());
}

rp_status encoder_linear_failed(rp_status status)
{
    return status == RP_OK        ? RP_OK
           : status == RP_E_NOMEM ? encoder_no_memory()
                                  : encoder_fail(status, "a linear layer failed: %s", rp_status_name(status));
}

rp_status encoder_not_finite(const rp_encoder *m, const char *what)
{
    if (m->weights.store.not_finite > 0)
        return encoder_fail(RP_E_RANGE,
                            "%s are not finite: %lld of the weights are NaN or infinite (use weights without them)",
                            what, (long long)m->weights.store.not_finite);
    return encoder_fail(RP_E_RANGE, "%s are not finite (the weights are too large for f32; use other weights)", what);
}
