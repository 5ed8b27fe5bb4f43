/* base/arena.h -- the memory of a call, allocated as one block for all of its arrays. The sizes are added up first,
 * with checks for overflow. There are two ways to use it. To keep arrays by their offsets, call rpi_arena_add, which
 * returns offsets before there is memory. To fill in addresses, run a function twice: with base NULL its calls of
 * rpi_arena_take only add up sizes; after rpi_arena_alloc the same calls return addresses. Independent of terms, masks
 * and calls.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef RELPOS_ARENA_H
#define RELPOS_ARENA_H
#include <relpos/relpos.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define RPI_ARENA_ALIGNMENT 64
/* A size that does not fit in 63 bits, returned by functions that compute sizes. Sums and products with it do not fit
 * either. */
#define RPI_TOO_LARGE INT64_MAX

typedef struct rpi_arena {
    char *base;     /* start of the block, aligned to 64; NULL: sizes are only added up */
    int64_t used;   /* total bytes of the arrays so far, each rounded up to 64 */
    bool too_large; /* the arrays do not fit in 63 bits: used and the offsets are meaningless */
    void *memory;   /* the block that rpi_arena_free frees; NULL: none, or the block belongs to a caller */
} rpi_arena;

/* Append n0 * n1 * n2 elements of `size` bytes and return their offset from the base. Negative numbers set
 * too_large. */
int64_t rpi_arena_add_any(rpi_arena *a, int64_t n0, int64_t n1, int64_t n2, int64_t size);
static inline int64_t rpi_arena_add(rpi_arena *a, int64_t n0, int64_t n1, int64_t n2, int64_t size)
{
    const int64_t at = a->used;
    if (((uint64_t)(n0 | n1 | n2 | size) >> 15 | (uint64_t)at >> 61) != 0)
        return rpi_arena_add_any(a, n0, n1, n2, size);
    a->used = (at + n0 * n1 * n2 * size + RPI_ARENA_ALIGNMENT - 1) & -(int64_t)RPI_ARENA_ALIGNMENT;
    return at;
}

/* Append an array as rpi_arena_add does and return its address, or NULL while sizes are added up. */
static inline void *rpi_arena_take3(rpi_arena *a, int64_t n0, int64_t n1, int64_t n2, int64_t size)
{
    const int64_t at = rpi_arena_add(a, n0, n1, n2, size);
    return a->base ? a->base + at : NULL;
}

static inline void *rpi_arena_take(rpi_arena *a, int64_t n0, int64_t n1, int64_t size)
{
    return rpi_arena_take3(a, n0, n1, 1, size);
}

/* Return the total size of the arrays, or RPI_TOO_LARGE. */
static inline int64_t rpi_arena_size(const rpi_arena *a)
{
    return a->too_large ? RPI_TOO_LARGE : a->used;
}

/* Return RP_OK, or RP_E_OVERFLOW if the arrays do not fit. `what` names the owner of the memory in errors: "the
 * call". */
rp_status rpi_arena_fits(const rpi_arena *a, const char *what);

/* Allocate the total size, zeroed if `zeroed`, and start to return addresses from the beginning. Return RP_OK,
 * RP_E_OVERFLOW or RP_E_NOMEM. */
rp_status rpi_arena_alloc(rpi_arena *a, bool zeroed, const char *what);

void rpi_arena_free(rpi_arena *a);

/* Allocate memory for the arguments of a call, which free() frees. They take tens of KB, too much for the stack of a
 * small thread. The memory is not zeroed. Return NULL after rpi_fail. */
void *rpi_arguments_alloc(size_t size);

/* Return the bytes that `size` bytes of arguments take at the start of the caller's work. A call with work allocates
 * nothing. */
static inline size_t rpi_arguments_bytes(size_t size)
{
    return (size + 63) / 64 * 64;
}

#endif
