/* base/arena.h -- the memory of a call: the sizes of its arrays are added up with checks, allocated as one block, and
 * handed out. Two ways to use it. Where arrays are kept by their offsets, rpi_arena_add returns them before there is
 * memory. Where a function fills in addresses, it runs twice: with base NULL rpi_arena_take only adds up, after
 * rpi_arena_alloc it hands out the same arrays.
 * It may not know terms, masks or calls.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef RELPOS_ARENA_H
#define RELPOS_ARENA_H
#include <relpos/relpos.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define RPI_ARENA_ALIGNMENT 64
/* A size that does not fit in 63 bits, for functions that return one; any sum or product with it does not fit
 * either. */
#define RPI_TOO_LARGE INT64_MAX

typedef struct rpi_arena {
    char *base;     /* where the block begins, aligned to 64; NULL: sizes are only added up */
    int64_t used;   /* bytes of the arrays so far, each rounded up to 64 */
    bool too_large; /* the arrays do not fit in 63 bits: used and the offsets mean nothing */
    void *memory;   /* what rpi_arena_free returns to the system; NULL: none, or the block belongs to a caller */
} rpi_arena;

/* Append n0 * n1 * n2 elements of `size` bytes; returns their offset from the base. A negative number is too large. */
int64_t rpi_arena_add_any(rpi_arena *a, int64_t n0, int64_t n1, int64_t n2, int64_t size);
static inline int64_t rpi_arena_add(rpi_arena *a, int64_t n0, int64_t n1, int64_t n2, int64_t size)
{
    const int64_t at = a->used;
    if (((uint64_t)(n0 | n1 | n2 | size) >> 15 | (uint64_t)at >> 61) != 0)
        return rpi_arena_add_any(a, n0, n1, n2, size);
    a->used = (at + n0 * n1 * n2 * size + RPI_ARENA_ALIGNMENT - 1) & -(int64_t)RPI_ARENA_ALIGNMENT;
    return at;
}

/* The same, as an address: NULL while sizes are added up. */
static inline void *rpi_arena_take3(rpi_arena *a, int64_t n0, int64_t n1, int64_t n2, int64_t size)
{
    const int64_t at = rpi_arena_add(a, n0, n1, n2, size);
    return a->base ? a->base + at : NULL;
}

static inline void *rpi_arena_take(rpi_arena *a, int64_t n0, int64_t n1, int64_t size)
{
    return rpi_arena_take3(a, n0, n1, 1, size);
}

/* What the arrays need, or RPI_TOO_LARGE. */
static inline int64_t rpi_arena_size(const rpi_arena *a)
{
    return a->too_large ? RPI_TOO_LARGE : a->used;
}

/* RP_OK, or RP_E_OVERFLOW if the arrays do not fit. `what` needs the memory, in errors: "the call". */
rp_status rpi_arena_fits(const rpi_arena *a, const char *what);

/* Allocate what was added up, zeroed if asked for, and begin to hand it out from the start. RP_OK, RP_E_OVERFLOW or
 * RP_E_NOMEM. */
rp_status rpi_arena_alloc(rpi_arena *a, bool zeroed, const char *what);

void rpi_arena_free(rpi_arena *a);

/* What a call knows of its arguments and terms is tens of KB: it has memory of its own, which free() returns, so that a
 * thread of a small stack can make calls. Not zeroed. NULL after rpi_fail. */
void *rpi_new(size_t size);

/* The same from the start of a caller's work, of which it takes rpi_record(size) bytes: a call that has work allocates
 * nothing. */
static inline size_t rpi_record(size_t size)
{
    return (size + 63) / 64 * 64;
}

#endif
