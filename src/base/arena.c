/* base/arena.c -- the allocator of the library: add up sizes, check that they fit, allocate.
 * SPDX-License-Identifier: Apache-2.0 */
#include "arena.h"
#include "error.h"
#include <stdlib.h>

int64_t rpi_arena_add_any(rpi_arena *a, int64_t n0, int64_t n1, int64_t n2, int64_t size)
{
    const int64_t at = a->used;
    int64_t bytes, end;
    if ((n0 | n1 | n2 | size) < 0 || __builtin_mul_overflow(n0, n1, &bytes) ||
        __builtin_mul_overflow(bytes, n2, &bytes) || __builtin_mul_overflow(bytes, size, &bytes) ||
        __builtin_add_overflow(at, bytes, &end) || end > INT64_MAX - 2 * RPI_ARENA_ALIGNMENT)
        a->too_large = true;
    else
        a->used = (end + RPI_ARENA_ALIGNMENT - 1) & -(int64_t)RPI_ARENA_ALIGNMENT;
    return at;
}

rp_status rpi_arena_fits(const rpi_arena *a, const char *what)
{
    if (!a->too_large)
        return RP_OK;
    return rpi_fail(RP_E_OVERFLOW,
                    "the number of bytes that %s needs does not fit in 63 bits; use fewer heads, shorter sequences or "
                    "smaller tables",
                    what);
}

rp_status rpi_arena_alloc(rpi_arena *a, bool zeroed, const char *what)
{
    const rp_status status = rpi_arena_fits(a, what);
    if (status != RP_OK)
        return status;
    const size_t bytes =
        (size_t)a->used + RPI_ARENA_ALIGNMENT; /* extra bytes for the alignment; they also prevent a size of 0 */
    a->memory = zeroed ? calloc(1, bytes) : malloc(bytes);
    if (!a->memory)
        return rpi_fail(RP_E_NOMEM, "out of memory: %s needs %lld bytes", what, (long long)a->used);
    const uintptr_t beyond = (uintptr_t)a->memory % RPI_ARENA_ALIGNMENT;
    a->base = (char *)a->memory + (beyond ? RPI_ARENA_ALIGNMENT - beyond : 0);
    a->used = 0;
    return RP_OK;
}

void rpi_arena_free(rpi_arena *a)
{
    free(a->memory);
    *a = (rpi_arena){0};
}

void *rpi_arguments_alloc(size_t size)
{
    void *p = malloc(size);
    if (!p)
        rpi_fail(RP_E_NOMEM, "out of memory: the arguments of a call need %zu bytes", size);
    return p;
}
