/* shrink.c -- for LD_PRELOAD: shortens a file as soon as it is mapped. SHRINK is the end of its path, and
 * SHRINK_TO its new size; if that is negative, the bytes to remove.
 * SPDX-License-Identifier: Apache-2.0 */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

__attribute__((visibility("default"))) void *mmap(void *at, size_t size, int protection, int flags, int fd, off_t from)
{
    void *made = (void *)syscall(SYS_mmap, at, size, protection, flags, fd, from);
    const char *name = getenv("SHRINK"), *to = getenv("SHRINK_TO");
    char link[40], path[PATH_MAX];
    struct stat st;
    if (fd < 0 || name == NULL || to == NULL || fstat(fd, &st) != 0)
        return made;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    const ssize_t n = readlink(link, path, sizeof path - 1);
    path[n > 0 ? n : 0] = 0;
    const long long bytes = atoll(to);
    if (n > (ssize_t)strlen(name) && strcmp(path + n - strlen(name), name) == 0 &&
        truncate(path, bytes < 0 ? st.st_size + bytes : bytes) != 0)
        abort();
    return made;
}
