/* base/system.h -- what the pool needs from the operating system.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef RELPOS_SYSTEM_H
#define RELPOS_SYSTEM_H
#include <stdint.h>

/* Return a nonzero id of this process. It differs from the id of any other process, including forks of this one. */
long long rpi_this_process(void);

/* Return the number of processors that this process may use, at least 1. Linux: limited by affinity and control-group
 * quota; other systems: all processors of the machine. */
int32_t rpi_usable_processors(void);

#endif
