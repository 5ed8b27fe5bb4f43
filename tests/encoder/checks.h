/* checks.h -- statuses and messages of calls, for the tests of encoders.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef RELPOS_TESTS_ENCODER_CHECKS_H
#define RELPOS_TESTS_ENCODER_CHECKS_H

#include "tests/helpers.h"

#include <relpos/encoder.h>

HELPER void fine(rp_status status)
{
    if (status != RP_OK)
        fail_msg("%s: %s", rp_status_name(status), rp_encoder_last_error());
}

HELPER void refused(rp_status status, rp_status expected_status, const char *text)
{
    if (status != expected_status || strstr(rp_encoder_last_error(), text) == NULL)
        fail_msg("%s: %s (expected %s: ...%s...)", rp_status_name(status), rp_encoder_last_error(),
                 rp_status_name(expected_status), text);
}

#endif
