/* base/arena.c -- the allocator of the core: where an arena ends, whether it fits, and its memory.
 * It may not know what lies in it.
 * SPDX-License-Identifier: Apache-2.0 */
#include "arena.h"
#include "error.h"
#include <stdlib.h>

rp_status rpi_arena_fits(const rpi_arena *a, const char *what)
{
    if (!a->too_large)
        return RP_OK;
    return rpi_fail(RP_E_OVERFLOW,
                    "the memory that %s needs does not fit in 63 bits: fewer heads, shorter sequences or tables", what);
}

rp_status rpi_arena_alloc(rpi_arena *a, bool zeroed, const char *what)
{
    const rp_status status = rpi_arena_fits(a, what);
    if (status != RP_OK)
        return status;
    const size_t bytes = (size_t)a->used + RPI_ARENA_ALIGNMENT; /* room to align, and never 0 */
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
