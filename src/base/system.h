/* base/system.h -- functions of the operating system that the pool needs. Independent of pools.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef RELPOS_SYSTEM_H
#define RELPOS_SYSTEM_H
#include <stdint.h>

/* Return an id of this process, not 0, which differs from that of any other process, including forks of this one. */
long long rpi_this_process(void);

/* Return the number of processors that this process may use, at least 1: by affinity and control-group quota on Linux,
 * otherwise all of the machine. */
int32_t rpi_usable_processors(void);

#endif
