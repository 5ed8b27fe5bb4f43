/* base/system.h -- what the pool asks the operating system. It may not know pools.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef RELPOS_SYSTEM_H
#define RELPOS_SYSTEM_H
#include <stdint.h>

/* A number other than 0 that no other process has, a fork of this one included. */
long long rpi_this_process(void);

/* The processors that this process may use, at least 1: Linux's affinity and the quota of a control group, elsewhere
 * those of the machine. */
int32_t rpi_usable_processors(void);

#endif
