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

/* Return the ticket of the heads that share angles with head h of n heads of batch entry b, and set *turn to the number
 * of those before it. */
static atomic_llong *ticket_of(const rpi_angle_sums *s, int64_t block, int64_t b, int64_t h, int64_t n,
                               int64_t kv_heads, int64_t *turn)
{
    const bool by_entry = s->array.len[0] > 1 || s->array.per_sample, by_head = s->array.len[1] > 1;
    const int64_t group = n / kv_heads, entry = by_entry ? b : 0, head = by_head ? h / group : 0;
    *turn = (by_entry ? 0 : b) * (by_head ? group : n) + (by_head ? h % group : h);
    return s->ticket + (entry * kv_heads + head) * s->blocks + block;
}

void rpi_angles_wait(const rpi_angle_sums *s, int64_t block, int64_t b, int64_t h, int64_t n, int64_t kv_heads)
{
    int64_t turn;
    atomic_llong *at = ticket_of(s, block, b, h, n, kv_heads, &turn);
    rpi_ticket_wait(at, turn);
}

void rpi_angles_pass(const rpi_angle_sums *s, int64_t block, int64_t b, int64_t h, int64_t n, int64_t kv_heads)
{
    int64_t turn;
    rpi_ticket_pass(ticket_of(s, block, b, h, n, kv_heads, &turn));
}
