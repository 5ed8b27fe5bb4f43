/* call/tickets.c -- tickets that make tasks add their sums in a fixed order.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* sched_yield */
#endif
#include "call.h"
#include <sched.h>

void rpi_ticket_wait(atomic_llong *at, int64_t ticket)
{
    for (int spins = 0; atomic_load_explicit(at, memory_order_acquire) < ticket; spins++)
        if (spins > 256)
            sched_yield();
}

void rpi_ticket_pass(atomic_llong *at)
{
    atomic_fetch_add_explicit(at, 1, memory_order_release);
}
