/* error.h -- the message of the last failure of each thread, in a file of this folder.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef RELPOS_CHECKPOINT_ERROR_H
#define RELPOS_CHECKPOINT_ERROR_H

#include <relpos/relpos.h>

/* Set the message of model_error for this thread, and return `status`. */
rp_status model_fail(rp_status status, const char *format, ...) __attribute__((format(printf, 2, 3)));
rp_status model_no_memory(void);
rp_status model_no_memory_for(const char *what, int64_t bytes);
rp_status model_cancelled(void);
const char *model_error(void); /* the message of the last failure in this thread */

#endif
