/* base/error.h -- the last error of a thread.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef RELPOS_ERROR_H
#define RELPOS_ERROR_H
#include <relpos/relpos.h>

/* Keep one line for rp_last_error and return the status. */
__attribute__((format(printf, 2, 3))) rp_status rpi_fail(rp_status status, const char *format, ...);

#endif
