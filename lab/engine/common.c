/* common.c -- helpers for all files of lab/engine: error messages, random numbers, reading a file.
 * SPDX-License-Identifier: Apache-2.0 */
#include "src/base/random.h"
#include "lab/engine/nn.h"
#include <errno.h>
#include <fcntl.h>
#include <math.h>
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

uint64_t nn_random(uint64_t seed, uint64_t stream, uint64_t n)
{
    return rpi_mix64(rpi_mix64(rpi_mix64(seed + 0x9e3779b97f4a7c15u) ^ (stream + 0xd1b54a32d192ed03u)) ^
                     (n + 0x8cb92ba72f3d8dd7u));
}

double nn_uniform(uint64_t seed, uint64_t stream, uint64_t n)
{
    return (double)(nn_random(seed, stream, n) >> 11) * 0x1p-53;
}

double nn_normal(uint64_t seed, uint64_t stream, uint64_t n)
{
    const double u = 1 - nn_uniform(seed, stream, 2 * n),
                 v = nn_uniform(seed, stream, 2 * n + 1); /* Box, Muller 1958 */
    return sqrt(-2 * log(u)) * cos(6.283185307179586 * v);
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
