/* read_set.c -- opens a file, detects its format, and reads its arrays. npz.c and safetensors.c read the formats.
 * SPDX-License-Identifier: Apache-2.0 */
#include "io/formats.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static bool ends_in(const char *text, const char *suffix)
{
    const size_t n = strlen(text), m = strlen(suffix);
    return n >= m && memcmp(text + n - m, suffix, m) == 0;
}

io_format io_format_of(const char *path)
{
    return ends_in(path, ".npz") ? IO_NPZ : ends_in(path, ".safetensors") ? IO_SAFETENSORS : IO_UNKNOWN;
}

/* Detect the format from the first bytes. "PK\3\4\0\0" is not a zip file (its version would be 0.0): these bytes are
 * the header length of a .safetensors file. */
static io_format sniff(const unsigned char *start, size_t size)
{
    uint64_t length = 0;
    if (size < 8)
        return IO_UNKNOWN;
    if ((memcmp(start, "PK\3\4", 4) == 0 && (start[4] | start[5]) != 0) || memcmp(start, "PK\5\6", 4) == 0)
        return IO_NPZ;
    for (int n = 0; n < 8; n++)
        length |= (uint64_t)start[n] << 8 * n;
    return length >= 2 && length <= IO_SAFETENSORS_HEADER_MAX ? IO_SAFETENSORS : IO_UNKNOWN;
}

/* Read `size` bytes, or fewer at the end of the file. Return the number of bytes; -1 with errno. */
static ssize_t read_up_to(int fd, unsigned char *data, size_t size)
{
    size_t at = 0;
    while (at < size) {
        const ssize_t n = read(fd, data + at, size - at);
        if (n == 0)
            break;
        if (n > 0) {
            at += (size_t)n;
        } else if (errno == EAGAIN) { /* standard input may be non-blocking */
            struct pollfd ready = {fd, POLLIN, 0};
            poll(&ready, 1, -1);
        } else if (errno != EINTR) {
            return -1;
        }
    }
    return (ssize_t)at;
}

io_status io_parse(const char *path, io_format format, const unsigned char *data, size_t size, io_set *set,
                   char err[IO_ERR_MAX])
{
    if (size == 0)
        return io_damaged(err, path, "it is empty");
    if (size >= 6 && memcmp(data, "\x93NUMPY", 6) == 0)
        return io_damaged(err, path, "it is a single .npy array (save arrays with names, by numpy.savez)");
    if (format == IO_NPZ)
        return io_npz_read(path, data, size, set, err);
    if (format == IO_SAFETENSORS)
        return io_safetensors_read(path, data, size, set, err);
    return io_damaged(err, path, "it is neither .npz nor .safetensors");
}

enum { START_BYTES = 8 }; /* of a file, from which its format is seen */

/* Read a regular file after its first bytes. Do not map it: if another process truncated it, accessing the mapping
 * would kill this process. */
static io_status read_regular(const char *path, int fd, int64_t file_size, io_format format, io_set *set,
                              char err[IO_ERR_MAX])
{
    unsigned char byte;
    const off_t begin = lseek(fd, 0, SEEK_CUR) - (off_t)START_BYTES; /* standard input may not start at 0 */
    if (begin < 0 || begin > file_size)
        return io_fail(err, path, "cannot be read: %s", strerror(errno));
    const size_t left = (size_t)(file_size - begin);
    const io_status status = format == IO_NPZ ? io_npz_file(path, fd, begin, left, set, err)
                                              : io_safetensors_file(path, fd, begin, left, set, err);
    if (status == IO_OK && pread(fd, &byte, 1, file_size) == 1)
        return io_fail(err, path, "it grew while it was being read");
    return status;
}

/* Read a pipe after its first bytes. */
static io_status read_pipe(const char *path, int fd, const unsigned char start[START_BYTES], io_format format,
                           io_set *set, char err[IO_ERR_MAX])
{
    size_t capacity = 65536, size = START_BYTES; /* buffer, doubled as needed */
    unsigned char *data = malloc(capacity);
    io_status result =
        data != NULL ? IO_OK : io_fail(err, path, "out of memory while reading its first %zu bytes", capacity);
    if (result == IO_OK)
        memcpy(data, start, size);
    while (result == IO_OK && size < capacity) {
        const ssize_t n = read_up_to(fd, data + size, capacity - size);
        if (n < 0) {
            result = io_fail(err, path, "cannot be read at byte %zu: %s", size, strerror(errno));
            break;
        }
        size += (size_t)n;
        if (size < capacity || size > IO_MAX_PIPE)
            break;
        capacity = capacity < IO_MAX_PIPE / 2 ? 2 * capacity : IO_MAX_PIPE + 1;
        unsigned char *more = realloc(data, capacity);
        if (more == NULL)
            result = io_fail(err, path, "out of memory while reading, after %zu bytes", size);
        else
            data = more;
    }
    if (result == IO_OK && size > IO_MAX_PIPE)
        result = io_fail(err, path, "it is longer than 16 GiB (save it to a file first)");
    if (result == IO_OK)
        result = io_parse(path, format, data, size, set, err);
    free(data);
    return result;
}

/* Read an open file. Check the first bytes before reading the rest, which may be an endless pipe or a huge file. */
static io_status read_open(const char *path, int fd, io_format format, io_set *set, io_format *found,
                           char err[IO_ERR_MAX])
{
    struct stat st;
    unsigned char start[START_BYTES];
    if (fstat(fd, &st) != 0)
        return io_fail(err, path, "cannot be read: %s", strerror(errno));
    if (S_ISDIR(st.st_mode))
        return io_fail(err, path, "it is a directory");
    if (!S_ISREG(st.st_mode) && !S_ISFIFO(st.st_mode) && !S_ISSOCK(st.st_mode))
        return io_fail(err, path, "it is a device (give a file or a pipe)");

    const ssize_t n_start = read_up_to(fd, start, sizeof start);
    if (n_start < 0)
        return io_fail(err, path, "cannot be read: %s", strerror(errno));
    const io_format seen = sniff(start, (size_t)n_start);
    if (format == IO_UNKNOWN)
        format = seen;
    if (seen == IO_UNKNOWN || format != seen) {
        const io_status status = io_parse(path, format, start, (size_t)n_start, set, err);
        return status == IO_OK
                   ? io_damaged(err, path, "its first bytes do not match its suffix (rename it, or use another copy)")
                   : status;
    }
    const io_status status = S_ISREG(st.st_mode) && st.st_size > 0
                                 ? read_regular(path, fd, st.st_size, format, set, err)
                                 : read_pipe(path, fd, start, format, set, err);
    if (status == IO_OK && found != NULL)
        *found = format;
    return status;
}

/* Open a file. O_NONBLOCK: opening a pipe without a writer must not block; the pipe then reads as empty. */
static io_status open_file(const char *path, int *fd, char err[IO_ERR_MAX])
{
    *fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC | O_NOCTTY);
    if (*fd >= 0)
        return IO_OK;
    const io_status status = errno == ENOENT ? IO_ABSENT : IO_FAILED;
    io_fail(err, path, "cannot be opened: %s", strerror(errno));
    return status;
}

io_status io_read(const char *path, io_set *set, io_format *found, char err[IO_ERR_MAX])
{
    return io_read_wanted(path, NULL, NULL, set, found, err);
}

io_status io_read_wanted(const char *path, io_wanted *wanted, const void *context, io_set *set, io_format *found,
                         char err[IO_ERR_MAX])
{
    memset(set, 0, sizeof *set);
    set->wanted = wanted;
    set->wanted_context = context;
    if (found != NULL)
        *found = IO_UNKNOWN;
    io_status result;
    if (io_is_standard(path, "/dev/stdin")) {
        result = read_open("standard input", STDIN_FILENO, IO_UNKNOWN, set, found, err);
    } else {
        int fd;
        if ((result = open_file(path, &fd, err)) != IO_OK)
            return result;
        result = read_open(path, fd, io_format_of(path), set, found, err);
        close(fd);
    }
    if (result != IO_OK)
        io_free(set);
    return result;
}

io_status io_read_parts(const char *path, io_wanted *wanted, io_wanted *in_parts, const void *context, io_set *set,
                        char err[IO_ERR_MAX])
{
    io_format format = IO_UNKNOWN;
    struct stat st;
    memset(set, 0, sizeof *set);
    set->wanted = wanted;
    set->in_parts = in_parts;
    set->wanted_context = context;
    int fd;
    io_status status = open_file(path, &fd, err);
    if (status != IO_OK)
        return status;
    set->parts_file = fd + 1;
    status = fstat(fd, &st) == 0 && S_ISFIFO(st.st_mode)
                 ? io_fail(err, path, "it is a pipe, which cannot be read in parts (save it to a file first)")
             : io_format_of(path) == IO_NPZ
                 ? io_fail(err, path, "an .npz file cannot be read in parts (use .safetensors)")
                 : read_open(path, fd, io_format_of(path), set, &format, err);
    if (status == IO_OK && format != IO_SAFETENSORS)
        status = io_fail(err, path, "only .safetensors files can be read in parts (convert it)");
    if (status != IO_OK)
        io_free(set);
    return status;
}

io_status io_read_part(const io_set *set, const io_array *array, int64_t first, int64_t n, void *to,
                       char err[IO_ERR_MAX])
{
    const size_t size = io_dtype_size(array->dtype);
    char why[IO_WHY_MAX], safe[80];
    if (set->parts_file == 0 || first < 0 || n < 0 || (uint64_t)(first + n) * size > array->bytes)
        return io_fail(err, io_safe(safe, sizeof safe, array->name), "elements outside the array were requested");
    const io_status status =
        io_pread(set->parts_file - 1, array->at + (off_t)((size_t)first * size), to, (size_t)n * size, why);
    return status == IO_OK ? status : io_fail(err, io_safe(safe, sizeof safe, array->name), "%s", why);
}
