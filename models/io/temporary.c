/* temporary.c -- temporary files and folders, created in the folder of the target to which they will be renamed. The
 * program that created one holds a lock on it. A temporary file without a lock was left by a killed program; the next
 * write to the same target removes it.
 *
 *     .relpos-HASH-PROCESS-TIME-COUNT.tmp      HASH of the target's name, which may be too long to use directly
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "io/formats.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { NAME_SIZE = 96 };

/* Return the last component of a path. */
static const char *name_of(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash != NULL ? slash + 1 : path;
}

/* Remove an open file, or an open folder and the files in it. */
static void remove_all(int fd, int folder, const char *name)
{
    if (unlinkat(folder, name, 0) == 0)
        return;
    _Alignas(struct dirent64) char list[2048]; /* opendir would allocate memory */
    for (ssize_t n; (n = getdents64(fd, list, sizeof list)) > 0;)
        for (const struct dirent64 *entry = (void *)list; (char *)entry < list + n;
             entry = (void *)((char *)(uintptr_t)entry + entry->d_reclen))
            unlinkat(fd, entry->d_name, 0); /* fails for . and .. */
    unlinkat(folder, name, AT_REMOVEDIR);
}

void io_remove_temporary(int fd, const char *path)
{
    remove_all(fd, AT_FDCWD, path);
}

/* In the folder of `path`, remove temporary files of killed programs: their names begin with `start` and they are not
 * locked. */
static void remove_left(const char *path, const char *start)
{
    char *place = strndup(path, (size_t)(name_of(path) - path));
    DIR *list = place != NULL ? opendir(*place != 0 ? place : ".") : NULL;
    free(place);
    if (list == NULL)
        return;
    for (const struct dirent *entry; (entry = readdir(list)) != NULL;) {
        struct stat st;
        if (strncmp(entry->d_name, start, strlen(start)) != 0)
            continue;
        const int fd = openat(dirfd(list), entry->d_name, O_RDONLY | O_NONBLOCK | O_NOFOLLOW | O_CLOEXEC);
        if (fd < 0)
            continue;
        if (fstat(fd, &st) == 0 && (S_ISREG(st.st_mode) || S_ISDIR(st.st_mode)) && flock(fd, LOCK_EX | LOCK_NB) == 0)
            remove_all(fd, dirfd(list), entry->d_name);
        close(fd);
    }
    closedir(list);
}

/* Make and lock a temporary file or folder. On failure return -1 with errno; EEXIST means: try another name. */
static int make(const char *path, bool folder, mode_t mode)
{
    if (folder && mkdir(path, mode) != 0)
        return -1;
    const int fd = open(path,
                        folder ? O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW
                               : O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW,
                        mode);
    struct stat st;
    if (fd < 0) {
        const int error = errno;
        if (folder)
            rmdir(path);
        errno = folder && error == ENOENT ? EEXIST : error;
        return -1;
    }
    /* Another program may have locked or removed the new file before flock, taking it for a leftover. Some file systems
     * do not support locks. */
    const bool lost = flock(fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK;
    if (lost || (fstat(fd, &st) == 0 && st.st_nlink == 0)) {
        close(fd);
        errno = EEXIST;
        return -1;
    }
    return fd;
}

int io_temporary(const char *target, bool folder, mode_t mode, char **path)
{
    static unsigned count;
    const char *name = name_of(target);
    const size_t place = (size_t)(name - target);
    unsigned long long hash = 14695981039346656037u; /* FNV-1a */
    char start[32];
    for (const char *c = name; *c != 0; c++)
        hash = (hash ^ (unsigned char)*c) * 1099511628211u;
    snprintf(start, sizeof start, ".relpos-%016llx-", hash);
    remove_left(target, start);
    *path = malloc(place + NAME_SIZE);
    if (*path == NULL)
        return -1;
    memcpy(*path, target, place);
    int fd = -1;
    errno = EEXIST;
    for (int tries = 0; fd < 0 && errno == EEXIST && tries < 100; tries++) {
        struct timespec now;
        clock_gettime(CLOCK_REALTIME, &now);
        snprintf(*path + place, NAME_SIZE, "%s%ld-%lx-%x.tmp", start, (long)getpid(), (unsigned long)now.tv_nsec,
                 __atomic_add_fetch(&count, 1, __ATOMIC_RELAXED));
        fd = make(*path, folder, mode);
    }
    if (fd < 0) {
        const int error = errno;
        free(*path);
        *path = NULL;
        errno = error;
    }
    return fd;
}
