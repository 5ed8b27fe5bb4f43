/* corpus.c -- reads UTF-8 files as tokens, splits them into training text and held-out text, and cuts the windows of
 * each step.
 * SPDX-License-Identifier: Apache-2.0 */
#include "lab/engine/nn.h"
#include "io/io.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Find the line and the column of a byte. Both count from 1, as in editors. */
static void line_and_column(const unsigned char *bytes, size_t at, size_t *line, size_t *column)
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
            line_and_column(bytes, at, &line, &column);
            return nn_fail(err, "%.200s:%zu:%zu: %s (the lab reads UTF-8 text)", path, line, column,
                           bytes[at] == 0 ? "a NUL byte: this is not text" : "not valid UTF-8");
        }
    }
    return 0;
}

/* Read a file, check that it is UTF-8 text without NUL, and append its tokens. */
static int add_file(nn_text *t, const char *path, char err[NN_ERR_MAX])
{
    size_t size = 0;
    char why[NN_ERR_MAX];
    unsigned char *bytes = nn_read_file(path, &size, err);
    int32_t *tokens = NULL;
    int64_t n = (int64_t)size;
    if (!bytes || check_text(bytes, size, path, err) != 0) {
        free(bytes);
        return -1;
    }
    if (t->tokenizer && !(tokens = nn_tokenizer_encode(t->tokenizer, bytes, n, &n, why))) {
        free(bytes);
        return nn_fail(err, "%.200s: %.300s", path, why);
    }
    int32_t *more = realloc(t->tokens, (size_t)(t->n + n) * sizeof *more);
    t->tokens = more ? more : t->tokens;
    int64_t *end = realloc(t->end, ((size_t)t->n_files + 1) * sizeof *end);
    t->end = end ? end : t->end;
    for (int64_t x = 0; more && x < n; x++)
        more[t->n + x] = tokens ? tokens[x] : bytes[x];
    free(bytes);
    free(tokens);
    if (!more || !end)
        return nn_fail(err, "%.300s: out of memory while reading its %lld tokens (use a shorter text)", path,
                       (long long)n);
    t->n += n;
    t->end[t->n_files++] = t->n;
    return 0;
}

bool nn_text_name(const char *files, int32_t file, char name[NN_TEXT_MAX])
{
    files += strspn(files, " ");
    for (; file > 0 && *files; file--) {
        files += strcspn(files, " ");
        files += strspn(files, " ");
    }
    snprintf(name, NN_TEXT_MAX, "%.*s", (int)strcspn(files, " "), files);
    return *name != 0;
}

int nn_text_read(nn_text *t, const char *files, const nn_tokenizer *tokenizer, int64_t min_tokens, char err[NN_ERR_MAX])
{
    char path[NN_TEXT_MAX];
    *t = (nn_text){.tokenizer = tokenizer};
    if (!nn_text_name(files, 0, path))
        return nn_fail(err, "text: no file was given (set text = FILE ...)");
    for (int32_t f = 0; nn_text_name(files, f, path); f++)
        if (add_file(t, path, err) != 0) {
            nn_text_free(t);
            return -1;
        }
    if (t->n < min_tokens) {
        const long long n = t->n;
        nn_text_free(t);
        return nn_fail(err,
                       "text: it has %lld %s, but at least %lld are needed (use a longer text or a shorter length)", n,
                       tokenizer ? "word pieces" : "bytes", (long long)min_tokens);
    }
    return 0;
}

void nn_text_free(nn_text *t)
{
    free(t->tokens);
    free(t->end);
    *t = (nn_text){0};
}

static int64_t bytes_of(const nn_text *t, int64_t x)
{
    return t->tokenizer ? (int64_t)(t->tokenizer->offset[t->tokens[x] + 1] - t->tokenizer->offset[t->tokens[x]]) : 1;
}

int64_t nn_text_bytes(const nn_text *t, int64_t from, int64_t to)
{
    int64_t sum = 0;
    while (from < to)
        sum += bytes_of(t, from++);
    return sum;
}

int64_t nn_text_within(const nn_text *t, int64_t from, int64_t to, int64_t bytes)
{
    int64_t n = 0;
    while (from + n < to && (bytes -= bytes_of(t, from + n)) >= 0)
        n++;
    return n;
}

int nn_text_split(nn_text *t, bool by_file, double fraction, nn_text *held_out, char err[NN_ERR_MAX])
{
    int64_t kept = 0, from = 0;
    *held_out = (nn_text){.tokens = malloc((size_t)t->n * sizeof *t->tokens),
                          .end = malloc((size_t)t->n_files * sizeof *t->end),
                          .n_files = t->n_files,
                          .tokenizer = t->tokenizer};
    if (!held_out->tokens || !held_out->end) {
        nn_text_free(held_out);
        return nn_fail(err, "text: out of memory while splitting off the held-out text (use a shorter text)");
    }
    for (int32_t f = by_file ? 0 : t->n_files - 1; f < t->n_files; f++) {
        const int64_t end = t->end[f], bytes = nn_text_bytes(t, from, end);
        const int64_t cut = from + nn_text_within(t, from, end, bytes - (int64_t)((double)bytes * fraction));
        memcpy(held_out->tokens + held_out->n, t->tokens + cut, (size_t)(end - cut) * sizeof *t->tokens);
        held_out->n += end - cut;
        held_out->end[f] = held_out->n;
        memmove(t->tokens + kept, t->tokens + from, (size_t)(cut - from) * sizeof *t->tokens);
        kept += cut - from;
        t->end[f] = kept;
        from = end;
    }
    t->n = kept;
    if (!by_file) { /* each part is one text, without boundaries between files */
        held_out->n_files = t->n_files = 1;
        held_out->end[0] = held_out->n;
        t->end[0] = t->n;
    }
    return 0;
}

enum { STREAM_WINDOWS = 1 };

void nn_text_batch(const nn_text *t, uint64_t seed, int64_t step, int64_t batch, int64_t length, int32_t *tokens,
                   int32_t *target)
{
    for (int64_t b = 0; b < batch; b++) {
        const uint64_t starts = (uint64_t)(t->n - length);
        const int64_t at = (int64_t)(layers_random(seed, STREAM_WINDOWS, (uint64_t)(step * batch + b)) % starts);
        memcpy(tokens + b * length, t->tokens + at, (size_t)length * sizeof *tokens);
        memcpy(target + b * length, t->tokens + at + 1, (size_t)length * sizeof *target);
    }
}

int32_t nn_first_token(const nn_config *c)
{
    return c->bos ? (int32_t)c->vocab - 1 : -1;
}

void nn_begin_windows(const nn_config *c, int64_t batch, int64_t length, int32_t *tokens)
{
    for (int64_t b = 0; b < batch && c->bos; b++)
        tokens[b * length] = nn_first_token(c);
}

int64_t nn_text_start(const nn_text *t, int32_t file)
{
    return file > 0 ? t->end[file - 1] : 0;
}

void nn_text_batch_files(const nn_text *t, uint64_t seed, int64_t step, int64_t batch, int64_t length, int32_t *tokens,
                         int32_t *target)
{
    for (int64_t b = 0; b < batch; b++) {
        const int32_t file = (int32_t)((step * batch + b) % t->n_files);
        const int64_t from = nn_text_start(t, file);
        const uint64_t starts = (uint64_t)(t->end[file] - from - length + 1);
        const int64_t at = from + (int64_t)(layers_random(seed, STREAM_WINDOWS, (uint64_t)(step * batch + b)) % starts);
        memcpy(tokens + b * length, t->tokens + at, (size_t)length * sizeof *tokens);
        target[b] = file;
    }
}
