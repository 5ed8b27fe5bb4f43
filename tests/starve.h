/* starve.h -- makes allocations fail: the n-th after a call of starve, alone or with all later ones. Also counts the
 * allocated blocks, so that a test can find those that a failed call does not free, and their bytes. Include this file
 * once per program, because it defines malloc. With sanitizers, which define their own malloc, no allocation fails and
 * no block counts.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef RELPOS_TESTS_STARVE_H
#define RELPOS_TESTS_STARVE_H

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>

static long starve_n, starve_count;
static bool starve_ever;
static _Atomic long starve_blocks;             /* number of allocated blocks */
static _Atomic long starve_bytes, starve_peak; /* bytes of all blocks, and their maximum since starve_begin_peak */

static inline void starve(long n, bool ever)
{
    starve_count = 0;
    starve_ever = ever;
    starve_n = n;
}

/* Let allocations succeed again. Return their number since starve. */
static inline long starve_end(void)
{
    starve_n = 0;
    return starve_count;
}

/* Let starve_peak begin at the bytes of now, and return them. */
static inline long starve_begin_peak(void)
{
    const long now = starve_bytes;
    starve_peak = now;
    return now;
}

#if defined(__GLIBC__) && !SANITIZED
#include <malloc.h>
#include <stdatomic.h>
#define STARVES 1
void *__libc_malloc(size_t size);
void *__libc_calloc(size_t n, size_t size);
void *__libc_realloc(void *p, size_t size);
void *__libc_memalign(size_t alignment, size_t size);
void __libc_free(void *p);

#pragma GCC visibility push(default) /* shared libraries of the program call these functions too */
static bool starved(void)
{
    if (starve_n == 0)
        return false;
    starve_count++;
    if (starve_count != starve_n && (!starve_ever || starve_count < starve_n))
        return false;
    errno = ENOMEM;
    return true;
}

static void count_bytes(long more)
{
    const long all = atomic_fetch_add(&starve_bytes, more) + more;
    for (long peak = starve_peak; all > peak && !atomic_compare_exchange_weak(&starve_peak, &peak, all);)
        ;
}

static void *counted(void *block)
{
    starve_blocks += block != NULL;
    count_bytes((long)malloc_usable_size(block));
    return block;
}

void *malloc(size_t size)
{
    return starved() ? NULL : counted(__libc_malloc(size));
}

void *calloc(size_t n, size_t size)
{
    return starved() ? NULL : counted(__libc_calloc(n, size));
}

void *realloc(void *p, size_t size)
{
    if (!p)
        return malloc(size);
    const long before = (long)malloc_usable_size(p);
    void *block = starved() ? NULL : __libc_realloc(p, size);
    if (block)
        count_bytes((long)malloc_usable_size(block) - before);
    return block;
}

void *aligned_alloc(size_t alignment, size_t size)
{
    return starved() ? NULL : counted(__libc_memalign(alignment, size));
}

void free(void *p)
{
    starve_blocks -= p != NULL;
    count_bytes(-(long)malloc_usable_size(p));
    __libc_free(p);
}
#pragma GCC visibility pop
#else
#define STARVES 0
#endif

#endif
