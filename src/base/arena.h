/* base/arena.h -- the memory of a call, allocated as one block for all of its arrays. The sizes are added up first,
 * with checks for overflow. There are two ways to use it. Either call rpi_arena_add, which returns the offset of each
 * array before there is memory. Or run a layout function twice: with base NULL, its calls of rpi_arena_take only add up
 * sizes; after rpi_arena_alloc, the same calls return addresses. Independent of terms, masks and calls.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef RELPOS_ARENA_H
#define RELPOS_ARENA_H
#include <relpos/relpos.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define RPI_ARENA_ALIGNMENT 64
/* The result of a function that computes a size, if the size does not fit in 63 bits. Sums and products with it
 * overflow too, and are reported as too large. */
#define RPI_TOO_LARGE INT64_MAX

typedef struct rpi_arena {
    char *base;     /* start of the block, aligned to 64; NULL while only adding up sizes */
    int64_t used;   /* total bytes of the arrays so far, each rounded up to a multiple of 64 */
    bool too_large; /* the total does not fit in 63 bits; `used` and offsets are invalid */
    void *memory;   /* the block that rpi_arena_free frees; NULL if there is none or a caller owns it */
} rpi_arena;

/* Append n0 * n1 * n2 elements of `size` bytes and return their offset from the base. A negative number sets
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

/* Append an array and return its address, or NULL while only adding up sizes. */
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

/* Allocate the total size, zeroed if `zeroed` is set, and restart the layout at the beginning of the block. Return
 * RP_OK, RP_E_OVERFLOW or RP_E_NOMEM. */
rp_status rpi_arena_alloc(rpi_arena *a, bool zeroed, const char *what);

void rpi_arena_free(rpi_arena *a);

/* Allocate memory for the arguments of a call; free it with free(). Arguments take tens of KB, too much for the stack
 * of a small thread. The memory is not zeroed. Return NULL after rpi_fail. */
void *rpi_arguments_alloc(size_t size);

/* Return how many bytes of the caller's work memory `size` bytes of arguments take. They are stored at its start,
 * because a call with work memory allocates nothing. */
static inline size_t rpi_arguments_bytes(size_t size)
{
    return (size + 63) / 64 * 64;
}

#endif
