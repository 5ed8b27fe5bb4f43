/* common.c -- helpers for all files of lab/engine: error messages, reading a file.
 * SPDX-License-Identifier: Apache-2.0 */
#include "lab/engine/nn.h"
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

int nn_fail(char err[NN_ERR_MAX], const char *format, ...)
{
    va_list list;
    va_start(list, format);
    vsnprintf(err, NN_ERR_MAX, format, list);
    va_end(list);
    return -1;
}

const char *nn_library_error(const rp_desc *desc, char text[NN_ERR_MAX])
{
    return rp_last_error_in(desc, NULL, NULL, text, NN_ERR_MAX);
}

unsigned char *nn_read_file(const char *path, size_t *size, char err[NN_ERR_MAX])
{
    /* O_NONBLOCK: without it, opening a pipe that has no writer would block. With it, reading fails below. */
    const int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC | O_NOCTTY);
    struct stat st;
    unsigned char *bytes = NULL;
    if (fd < 0) {
        nn_fail(err, "%.300s: cannot be read: %s", path, strerror(errno));
        return NULL;
    }
    if (fstat(fd, &st) != 0) {
        nn_fail(err, "%.300s: cannot be read: %s", path, strerror(errno));
    } else if (!S_ISREG(st.st_mode)) {
        nn_fail(err, "%.300s: it is not a regular file (name a file, not a pipe or folder)", path);
    } else if (st.st_size == 0) {
        nn_fail(err, "%.300s: it is empty (name a file with text)", path);
    } else if (!(bytes = malloc((size_t)st.st_size + 1))) {
        nn_fail(err, "%.300s: out of memory while reading its %lld bytes (use a shorter text)", path,
                (long long)st.st_size);
    } else {
        *size = 0;
        ssize_t got;
        while ((got = read(fd, bytes + *size, (size_t)st.st_size - *size)) != 0)
            if (got > 0)
                *size += (size_t)got;
            else if (errno != EINTR)
                break;
        bytes[*size] = 0;
        if (got < 0 || (off_t)*size != st.st_size) {
            nn_fail(err, "%.300s: cannot be read to its end: %s", path,
                    got < 0 ? strerror(errno) : "it became shorter while it was read");
            free(bytes);
            bytes = NULL;
        }
    }
    close(fd);
    return bytes;
}
