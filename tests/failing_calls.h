/* failing_calls.h -- makes system calls on files fail: the n-th after a call of fail_calls, alone or with all later
 * ones, or lets it transfer fewer bytes. Include this file once per program, because it defines pread and others.
 * Functions of libc that call the kernel themselves, such as fread, are not affected.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef RELPOS_TESTS_FAILING_CALLS_H
#define RELPOS_TESTS_FAILING_CALLS_H

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>

typedef enum call_failure {
    CALL_FAILS,       /* with the error failing_error */
    CALLS_FAIL,       /* so do all later calls */
    CALL_INTERRUPTED, /* a read, write or close fails with EINTR, as after a signal */
    CALL_SHORT,       /* a read or write transfers half of the bytes */
    CALL_ENDS,        /* a read or write transfers nothing and succeeds, as at the end of a file */
    CALL_FAILURES
} call_failure;

static long failing_n, failing_count;
static int failing_error = EIO;
static call_failure failing_how;

static inline void fail_calls(long n, call_failure how)
{
    failing_count = 0;
    failing_how = how;
    failing_n = n;
}

/* Let calls succeed again. Return their number since fail_calls. */
static inline long fail_calls_end(void)
{
    failing_n = 0;
    return failing_count;
}

#if defined(__GLIBC__)
#include <dlfcn.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#define CALLS_CAN_FAIL 1

static bool failing_reached(void)
{
    if (failing_n == 0)
        return false;
    failing_count++;
    return failing_count == failing_n || (failing_how == CALLS_FAIL && failing_count > failing_n);
}

/* Return true, with errno, if this call must fail. */
static bool failing(void)
{
    if (!failing_reached() || failing_how > CALLS_FAIL)
        return false;
    errno = failing_error;
    return true;
}

/* Return true if this transfer of *n bytes must end with *result. Otherwise, *n may be smaller afterwards. */
static bool failing_transfer(size_t *n, ssize_t *result)
{
    if (!failing_reached())
        return false;
    *result = failing_how == CALL_ENDS ? 0 : -1;
    errno = failing_how == CALL_INTERRUPTED ? EINTR : failing_error;
    if (failing_how == CALL_SHORT)
        *n -= *n / 2;
    return failing_how != CALL_SHORT;
}

/* The definition of libc, by its name. */
#define FAILING_NEXT(NAME) (__extension__(__typeof__(NAME) *) dlsym(RTLD_NEXT, #NAME))

#define FAILING_CALL(RESULT, NAME, PARAMETERS, ARGUMENTS, FAILURE)                                                     \
    RESULT NAME PARAMETERS                                                                                             \
    {                                                                                                                  \
        return failing() ? FAILURE : FAILING_NEXT(NAME) ARGUMENTS;                                                     \
    }

#define FAILING_TRANSFER(NAME, PARAMETERS, ARGUMENTS)                                                                  \
    ssize_t NAME PARAMETERS                                                                                            \
    {                                                                                                                  \
        ssize_t result;                                                                                                \
        return failing_transfer(&n, &result) ? result : FAILING_NEXT(NAME) ARGUMENTS;                                  \
    }

/* The functions that _FORTIFY_SOURCE calls instead. */
ssize_t __read_chk(int fd, void *to, size_t n, size_t size);
ssize_t __pread_chk(int fd, void *to, size_t n, off_t at, size_t size);

#pragma GCC visibility push(default) /* shared libraries of the program call these functions too */
FAILING_CALL(int, fstat, (int fd, struct stat *st), (fd, st), -1)
FAILING_CALL(int, stat, (const char *path, struct stat *st), (path, st), -1)
FAILING_CALL(int, ftruncate, (int fd, off_t size), (fd, size), -1)
FAILING_CALL(int, flock, (int fd, int operation), (fd, operation), -1)
FAILING_CALL(int, rename, (const char *from, const char *to), (from, to), -1)
FAILING_CALL(off_t, lseek, (int fd, off_t at, int from), (fd, at, from), -1)
FAILING_CALL(void *, mmap, (void *at, size_t n, int protection, int flags, int fd, off_t from),
             (at, n, protection, flags, fd, from), MAP_FAILED)
FAILING_TRANSFER(read, (int fd, void *to, size_t n), (fd, to, n))
FAILING_TRANSFER(pread, (int fd, void *to, size_t n, off_t at), (fd, to, n, at))
FAILING_TRANSFER(__read_chk, (int fd, void *to, size_t n, size_t size), (fd, to, n, size))
FAILING_TRANSFER(__pread_chk, (int fd, void *to, size_t n, off_t at, size_t size), (fd, to, n, at, size))
FAILING_TRANSFER(write, (int fd, const void *from, size_t n), (fd, from, n))
FAILING_TRANSFER(pwrite, (int fd, const void *from, size_t n, off_t at), (fd, from, n, at))

/* Nothing is synced, which would take minutes. */
int fsync(int fd)
{
    return failing() ? -1 : fcntl(fd, F_GETFD) < 0 ? -1 : 0;
}

int open(const char *path, int flags, ...)
{
    va_list arguments;
    va_start(arguments, flags);
    const mode_t mode = flags & O_CREAT ? va_arg(arguments, mode_t) : 0;
    va_end(arguments);
    return failing() ? -1 : FAILING_NEXT(open)(path, flags, mode);
}

/* Linux closes the file even if close fails. */
int close(int fd)
{
    size_t n = 0;
    ssize_t result;
    const bool fails = failing_transfer(&n, &result) && result < 0;
    const int error = errno, code = FAILING_NEXT(close)(fd);
    if (!fails)
        return code;
    errno = error;
    return -1;
}
#pragma GCC visibility pop
#else
#define CALLS_CAN_FAIL 0
#endif

#endif
