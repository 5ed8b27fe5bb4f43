/* starve.c -- a library for LD_PRELOAD: the STARVE_N-th allocation of the program fails, with STARVE_EVER all after it too. STARVE_LOG names a
 * file that receives how many there were. Shells and interpreters that run beside the program are left alone.
 * SPDX-License-Identifier: Apache-2.0 */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void *__libc_malloc(size_t size);
void *__libc_calloc(size_t n, size_t size);
void *__libc_realloc(void *p, size_t size);
void *__libc_memalign(size_t alignment, size_t size);

static bool counting, ever;
static long fails, count;
static const char *file;

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
    char text[32];
    if (!counting || file == NULL)
        return;
    counting = false;
    const int fd = open(file, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    const int size = snprintf(text, sizeof text, "%ld alloc\n", count);
    if (fd >= 0 && write(fd, text, (size_t)size) != size)
        unlink(file);
    if (fd >= 0)
        close(fd);
}

/* Fortran's runtime, which OpenBLAS loads, ends the program where it gets no memory: that is not what is tested. */
static bool others(const void *caller)
{
    Dl_info about;
    return dladdr(caller, &about) != 0 && about.dli_fname != NULL && strstr(about.dli_fname, "libgfortran") != NULL;
}

static bool starved(const void *caller)
{
    if (!counting || others(caller))
        return false;
    const long n = __atomic_add_fetch(&count, 1, __ATOMIC_RELAXED);
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
