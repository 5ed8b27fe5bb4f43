/* text.c -- UTF-8 files as tokens, and the windows of each step.
 * SPDX-License-Identifier: Apache-2.0 */
#include "nn.h"
#include "io/io.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* Where a byte lies, as an editor says it. */
static void place(const unsigned char *bytes, size_t at, size_t *line, size_t *column)
{
    *line = *column = 1;
    for (size_t n = 0; n < at; n++)
        if (bytes[n] == '\n') {
            ++*line;
            *column = 1;
        } else {
            ++*column;
        }
}

static int check_text(const unsigned char *bytes, size_t size, const char *path, char err[NN_ERR_MAX])
{
    size_t line, column;
    for (size_t at = 0, n; at < size; at += n) {
        n = bytes[at] < 0x80 ? 1 : io_utf8(bytes + at, size - at);
        if (bytes[at] == 0 || n == 0) {
            place(bytes, at, &line, &column);
            return nn_fail(err, "%.200s:%zu:%zu: %s (the lab reads UTF-8 text)", path, line, column,
                           bytes[at] == 0 ? "a NUL byte: this is no text" : "not valid UTF-8");
        }
    }
    return 0;
}

static int read_file(nn_text *t, const char *path, char err[NN_ERR_MAX])
{
    struct stat st;
    FILE *f = fopen(path, "re");
    if (!f)
        return nn_fail(err, "%.300s: cannot be read: %s", path, strerror(errno));
    if (fstat(fileno(f), &st) != 0 || !S_ISREG(st.st_mode)) {
        fclose(f);
        return nn_fail(err, "%.300s: no regular file (name text files)", path);
    }
    const size_t size = (size_t)st.st_size;
    unsigned char *more = realloc(t->bytes, (size_t)t->n + size + 1);
    if (!more) {
        fclose(f);
        return nn_fail(err, "%.300s: no memory for its %zu bytes", path, size);
    }
    t->bytes = more;
    const size_t got = fread(more + t->n, 1, size, f);
    const bool failed = ferror(f) != 0;
    fclose(f);
    if (failed || got != size)
        return nn_fail(err, "%.300s: cannot be read whole: %s", path,
                       failed ? strerror(errno) : "it has become shorter");
    if (size == 0)
        return nn_fail(err, "%.300s: empty (text is needed)", path);
    if (check_text(more + t->n, size, path, err) != 0)
        return -1;
    t->n += (int64_t)size;
    return 0;
}

int nn_text_read(nn_text *t, const char *files, int64_t least, char err[NN_ERR_MAX])
{
    *t = (nn_text){0};
    if (!files[strspn(files, " ")])
        return nn_fail(err, "text: no file is named (text = FILE ...)");
    for (const char *from = files + strspn(files, " "); *from; from += strspn(from, " ")) {
        char path[NN_TEXT_MAX];
        const int size = (int)strcspn(from, " ");
        snprintf(path, sizeof path, "%.*s", size, from);
        if (read_file(t, path, err) != 0) {
            nn_text_free(t);
            return -1;
        }
        from += size;
    }
    if (t->n < least) {
        const long long n = t->n;
        nn_text_free(t);
        return nn_fail(err, "text: %lld bytes (at least %lld are needed: a longer text, or a shorter length)", n,
                       (long long)least);
    }
    return 0;
}

void nn_text_free(nn_text *t)
{
    free(t->bytes);
    *t = (nn_text){0};
}

enum { STREAM_WINDOWS = 1 };

void nn_text_batch(const nn_text *t, int64_t n, uint64_t seed, int64_t step, int64_t batch, int64_t length,
                   int32_t *tokens, int32_t *target)
{
    for (int64_t b = 0; b < batch; b++) {
        const uint64_t places = (uint64_t)(n - length);
        const int64_t at = (int64_t)(nn_random(seed, STREAM_WINDOWS, (uint64_t)(step * batch + b)) % places);
        for (int64_t i = 0; i < length; i++) {
            tokens[b * length + i] = t->bytes[at + i];
            target[b * length + i] = t->bytes[at + i + 1];
        }
    }
}
