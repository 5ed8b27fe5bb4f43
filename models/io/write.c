/* write.c -- writes a file completely or not at all: to a temporary file beside the target, which is renamed to the
 * target at the end. The writers of the formats use only io_put.
 * SPDX-License-Identifier: Apache-2.0 */
#include "io/formats.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* Write all bytes. Block the two signals that a failing write can raise, so the caller gets an error and the process
 * survives. A signal that was already pending stays pending. Return 0 or the error number. */
static int write_all(int fd, const char *data, size_t size)
{
    sigset_t signals, old, before;
    const struct timespec now = {0, 0};
    int error = 0;
    sigemptyset(&signals);
    sigaddset(&signals, SIGPIPE);
    sigaddset(&signals, SIGXFSZ);
    sigpending(&before);
    pthread_sigmask(SIG_BLOCK, &signals, &old);
    while (size > 0 && error == 0) {
        const ssize_t n = write(fd, data, size);
        if (n > 0) {
            data += n;
            size -= (size_t)n;
        } else if (n == 0) {
            error = ENOSPC; /* write returned 0 without an error: retrying might never end */
        } else if (errno == EAGAIN) {
            struct pollfd ready = {fd, POLLOUT, 0};
            poll(&ready, 1, -1);
        } else if (errno != EINTR) {
            error = errno;
        }
    }
    if (error == EPIPE || error == EFBIG) {
        const int sent = error == EPIPE ? SIGPIPE : SIGXFSZ;
        sigemptyset(&signals);
        sigaddset(&signals, sent);
        while (!sigismember(&before, sent) && sigtimedwait(&signals, NULL, &now) < 0 && errno == EINTR)
            continue;
    }
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    return error;
}

int io_put(io_out *out, const void *data, size_t size, char err[IO_ERR_MAX])
{
    const int error = size > 0 ? write_all(out->fd, data, size) : 0;
    if (error == EFAULT) /* the memory is mapped from a file that became shorter */
        return io_fail(err, out->path,
                       "cannot be written: a file with its numbers was changed while it was in use "
                       "(start again, and replace files with mv instead of writing to them)");
    return error == 0 ? 0 : io_fail(err, out->path, "cannot be written: %s", strerror(error));
}

/* Return the path of `name` in the folder of the file `beside`; the caller frees it. */
static char *sibling(const char *beside, const char *name)
{
    const char *slash = strrchr(beside, '/');
    const size_t n = name[0] == '/' || slash == NULL ? 0 : (size_t)(slash - beside) + 1, m = strlen(name) + 1;
    char *path = malloc(n + m);
    if (path != NULL) {
        memcpy(path, beside, n);
        memcpy(path + n, name, m);
    }
    return path;
}

int io_put_at(io_out *out, const void *data, size_t size, off_t at, char err[IO_ERR_MAX])
{
    const char *from = data;
    while (size > 0) {
        const ssize_t n = pwrite(out->fd, from, size, at);
        if (n <= 0 && (n == 0 || errno != EINTR))
            return io_fail(err, out->path, "cannot be written: %s", strerror(n == 0 ? ENOSPC : errno));
        if (n > 0) {
            from += n;
            at += n;
            size -= (size_t)n;
        }
    }
    return 0;
}

char *io_follow_links(const char *path)
{
    enum { MAX_LINKS = 40, PATH_SIZE = 4096 };
    char *target = strdup(path);
    for (int n = 0; target != NULL; n++) {
        struct stat st;
        char link[PATH_SIZE];
        if (lstat(target, &st) != 0 || !S_ISLNK(st.st_mode))
            return target;
        const ssize_t length = readlink(target, link, sizeof link - 1);
        if (length < 0 || n == MAX_LINKS) {
            const int error = n == MAX_LINKS ? ELOOP : errno;
            free(target);
            errno = error;
            return NULL;
        }
        link[length] = 0;
        char *next = sibling(target, link);
        free(target);
        target = next;
    }
    return NULL;
}

/* Create the temporary file of io_replace. Its name is fixed, so it replaces a file left by a killed process. */
static int create_own(io_out *out, mode_t mode)
{
    const char *slash = strrchr(out->target, '/'), *name = slash != NULL ? slash + 1 : out->target;
    const size_t folder = (size_t)(name - out->target), size = strlen(name) + sizeof "..tmp";
    out->temp = malloc(folder + size);
    if (out->temp == NULL)
        return -1;
    memcpy(out->temp, out->target, folder);
    snprintf(out->temp + folder, size, ".%s.tmp", name);
    unlink(out->temp);
    out->fd = open(out->temp, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, mode);
    return out->fd;
}

int io_open_out(io_out *out, const char *path, bool own, char err[IO_ERR_MAX])
{
    struct stat st;
    memset(out, 0, sizeof *out);
    out->path = path;
    if (!own && io_is_standard(path, "/dev/stdout")) {
        out->path = "standard output";
        out->fd = STDOUT_FILENO;
        out->keep_open = true;
        return 0;
    }
    const bool exists = !own && stat(path, &st) == 0;
    if (exists && S_ISDIR(st.st_mode))
        return io_fail(err, path, "it is a directory");
    if (exists && !S_ISREG(st.st_mode)) {
        /* O_NONBLOCK: a pipe without a reader is an error. write_all waits if the pipe is full. */
        out->fd = open(path, O_WRONLY | O_NONBLOCK | O_CLOEXEC | O_NOCTTY);
        return out->fd >= 0 ? 0 : io_fail(err, path, "cannot be opened: %s", strerror(errno));
    }
    if (exists && faccessat(AT_FDCWD, path, W_OK, AT_EACCESS) != 0) /* rename would not check this */
        return io_fail(err, path, "cannot be written: %s", strerror(errno));
    out->target = own ? strdup(path) : io_follow_links(path);
    /* The temporary file never has more permissions than the target. */
    out->fd = out->target == NULL ? -1
              : own               ? create_own(out, 0666)
                                  : io_temporary(out->target, false, exists ? st.st_mode & 0777 : 0666, &out->temp);
    if (out->fd < 0) {
        io_fail(err, path, "cannot be written: cannot create a file in its directory: %s", strerror(errno));
        free(out->temp);
        free(out->target);
        return -1;
    }
    /* Restore permission bits of the target that the umask removed. Ignore failures on file systems without
     * permissions. */
    if (exists && fchmod(out->fd, st.st_mode & 07777) != 0)
        errno = 0;
    return 0;
}

int io_sync_directory(const char *file)
{
    char *path = sibling(file, ".");
    const int fd = path == NULL ? -1 : open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int error = 0;
    free(path);
    if (fd < 0)
        return 0;                                              /* the directory may be writable but not readable */
    if (fsync(fd) != 0 && errno != EINVAL && errno != ENOTSUP) /* some file systems do not support this */
        error = errno;
    close(fd);
    return error;
}

int io_close_out(io_out *out, int result, char err[IO_ERR_MAX])
{
    if (result == 0 && out->temp != NULL && fsync(out->fd) != 0)
        result = io_fail(err, out->path, "cannot be written: %s", strerror(errno));
    if (out->temp != NULL) {
        if (result == 0 && rename(out->temp, out->target) != 0)
            result = io_fail(err, out->path, "cannot be replaced: %s", strerror(errno));
        if (result != 0) {
            unlink(out->temp);
        } else {
            const int error = io_sync_directory(out->target);
            if (error != 0)
                result = io_fail(err, out->path, "has been written, but may be lost in a crash: %s", strerror(error));
        }
    }
    /* Close last: closing unlocks the temporary file. Its contents have already been flushed. */
    if (!out->keep_open && close(out->fd) != 0 && result == 0 && errno != EINTR)
        result = io_fail(err, out->path, "cannot be written: %s", strerror(errno));
    free(out->temp);
    free(out->target);
    return result;
}

int io_write_bytes(const char *path, const void *data, size_t size, char err[IO_ERR_MAX])
{
    io_out out;
    return io_open_out(&out, path, false, err) != 0 ? -1 : io_close_out(&out, io_put(&out, data, size, err), err);
}

struct io_text {
    io_out out;
    FILE *file;
    bool failed;
    char err[IO_ERR_MAX];
};

static ssize_t put_text(void *cookie, const char *data, size_t size)
{
    io_text *t = cookie;
    if (!t->failed && io_put(&t->out, data, size, t->err) != 0)
        t->failed = true;
    return t->failed ? 0 : (ssize_t)size;
}

io_text *io_text_open(const char *path, FILE **to, char err[IO_ERR_MAX])
{
    io_text *t = calloc(1, sizeof *t);
    if (t == NULL) {
        io_fail(err, path, "out of memory");
        return NULL;
    }
    if (io_open_out(&t->out, path, false, err) != 0) {
        free(t);
        return NULL;
    }
    *to = t->file = fopencookie(t, "w", (cookie_io_functions_t){.write = put_text});
    if (t->file != NULL)
        return t;
    io_close_out(&t->out, io_fail(err, path, "out of memory"), err);
    free(t);
    return NULL;
}

int io_text_close(io_text *t, int result, char err[IO_ERR_MAX])
{
    if (fclose(t->file) != 0 && !t->failed && result == 0)
        result = io_fail(err, t->out.path, "out of memory");
    if (t->failed) {
        memcpy(err, t->err, IO_ERR_MAX);
        result = -1;
    }
    result = io_close_out(&t->out, result, err);
    free(t);
    return result;
}
