/* starve.c -- a library for LD_PRELOAD that makes the STARVE_N-th allocation of the program fail; with STARVE_EVER=1
 * all later ones fail too. STARVE_LOG names a file that receives the number of allocations. If none failed, the file
 * also lists one allocation for each code path, the first, as "N HASH"; the hash covers the program's calls on the
 * stack. Shells and interpreters that the program starts are not affected.
 * SPDX-License-Identifier: Apache-2.0 */
#include <dlfcn.h>
#include <errno.h>
#include <execinfo.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void *__libc_malloc(size_t size);
void *__libc_calloc(size_t n, size_t size);
void *__libc_realloc(void *p, size_t size);
void *__libc_memalign(size_t alignment, size_t size);

enum { MAX_WAYS = 20000, DEPTH = 64 };

static bool counting, ever;
static long fails, count;
static const char *file;
static struct {
    long first;
    uint64_t hash;
} ways[MAX_WAYS];
static int n_ways;
static __thread bool looking; /* this thread is walking the stack, and that may allocate */

/* Return a hash of those return addresses on the stack that point into the program or its library. */
static uint64_t hash_of_stack(void)
{
    void *at[DEPTH];
    uint64_t hash = 14695981039346656037U;
    Dl_info about;
    for (int n = backtrace(at, DEPTH); n > 0; n--) {
        const bool known = dladdr(at[n - 1], &about) != 0 && about.dli_fname != NULL;
        const char *name = known ? strrchr(about.dli_fname, '/') : NULL;
        if (known && strstr(name ? name : about.dli_fname, "relpos") != NULL)
            hash = (hash ^ (uint64_t)((char *)at[n - 1] - (char *)about.dli_fbase)) * 1099511628211U;
    }
    return hash;
}

/* Record the first allocation from each place in the code. If two threads do this at the same time, one record may be
 * lost. */
static void keep_way(long number)
{
    looking = true;
    const uint64_t hash = hash_of_stack();
    int n = 0;
    while (n < n_ways && ways[n].hash != hash)
        n++;
    if (n == n_ways && n < MAX_WAYS) {
        ways[n].first = number;
        ways[n].hash = hash;
        n_ways = n + 1;
    }
    looking = false;
}

__attribute__((constructor)) static void begin(void)
{
    const char *n = getenv("STARVE_N"), *for_ever = getenv("STARVE_EVER");
    file = getenv("STARVE_LOG");
    fails = n != NULL ? atol(n) : 0;
    ever = for_ever != NULL && *for_ever == '1';
    counting = n != NULL && strcmp(program_invocation_short_name, "relpos") == 0;
}

__attribute__((destructor)) static void end(void)
{
    char text[64];
    if (!counting || file == NULL)
        return;
    counting = false;
    const int fd = open(file, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    int size = snprintf(text, sizeof text, "%ld alloc\n", count);
    bool good = fd >= 0 && write(fd, text, (size_t)size) == size;
    for (int n = 0; n < n_ways && good; n++) {
        size = snprintf(text, sizeof text, "%ld %llx\n", ways[n].first, (unsigned long long)ways[n].hash);
        good = write(fd, text, (size_t)size) == size;
    }
    if (!good)
        unlink(file);
    if (fd >= 0)
        close(fd);
}

/* Return true for allocations by Fortran's runtime, which OpenBLAS loads. It aborts when out of memory; that is not
 * what these tests check. */
static bool others(const void *caller)
{
    Dl_info about;
    return dladdr(caller, &about) != 0 && about.dli_fname != NULL && strstr(about.dli_fname, "libgfortran") != NULL;
}

static bool starved(const void *caller)
{
    if (!counting || looking || others(caller))
        return false;
    const long n = __atomic_add_fetch(&count, 1, __ATOMIC_RELAXED);
    if (fails == 0)
        keep_way(n);
    if (n != fails && !(ever && fails > 0 && n > fails))
        return false;
    errno = ENOMEM;
    return true;
}

void *malloc(size_t size)
{
    return starved(__builtin_return_address(0)) ? NULL : __libc_malloc(size);
}

void *calloc(size_t n, size_t size)
{
    return starved(__builtin_return_address(0)) ? NULL : __libc_calloc(n, size);
}

void *realloc(void *p, size_t size)
{
    return starved(__builtin_return_address(0)) ? NULL : __libc_realloc(p, size);
}

void *aligned_alloc(size_t alignment, size_t size)
{
    return starved(__builtin_return_address(0)) ? NULL : __libc_memalign(alignment, size);
}

void *memalign(size_t alignment, size_t size)
{
    return starved(__builtin_return_address(0)) ? NULL : __libc_memalign(alignment, size);
}

int posix_memalign(void **p, size_t alignment, size_t size)
{
    if (starved(__builtin_return_address(0)))
        return ENOMEM;
    *p = __libc_memalign(alignment, size);
    return *p != NULL ? 0 : ENOMEM;
}
