/* sentencepiece.c -- a tokenizer that runs the programs of SentencePiece and checks their output. SentencePiece calls a
 * token a piece; messages to the user say "word piece".
 *
 * spm_encode works line by line and writes one line of token numbers for each line of text. Between lines this file
 * inserts the token <0x0A>, a byte, which models with byte_fallback have. The texts of the tokens must concatenate to
 * exactly the text that was split.
 * SPDX-License-Identifier: Apache-2.0 */
#include "lab/engine/nn.h"
#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

/* Create an unnamed temporary file with these bytes. Return a descriptor of 10 or more, so that run_program can assign
 * 0 to 3 freely; -1 with err on failure. */
static int temporary_file(const void *bytes, size_t size, char err[NN_ERR_MAX])
{
    FILE *f = tmpfile();
    int fd = -1;
    if (f && fwrite(bytes, 1, size, f) == size && fflush(f) == 0)
        fd = fcntl(fileno(f), F_DUPFD_CLOEXEC, 10);
    if (fd < 0)
        nn_fail(err, "tokenizer: a temporary file of %zu bytes cannot be created: %s (free space in /tmp)", size,
                strerror(errno));
    if (f)
        fclose(f);
    if (fd >= 0)
        lseek(fd, 0, SEEK_SET);
    return fd;
}

/* Read to the end of the file and append a NUL. Return NULL with err on failure. */
static char *read_to_end(int fd, size_t *size, char err[NN_ERR_MAX])
{
    size_t capacity = 0;
    char *text = NULL;
    for (*size = 0;;) {
        if (*size + 1 >= capacity) {
            char *more = realloc(text, capacity = 2 * capacity + 65536);
            if (!more) {
                free(text);
                nn_fail(err, "tokenizer: out of memory for %zu bytes of token numbers (use a shorter text)", capacity);
                return NULL;
            }
            text = more;
        }
        const ssize_t got = read(fd, text + *size, capacity - 1 - *size);
        if (got == 0)
            break;
        if (got < 0 && errno != EINTR) {
            nn_fail(err, "tokenizer: the output of SentencePiece cannot be read: %s", strerror(errno));
            free(text);
            return NULL;
        }
        *size += got > 0 ? (size_t)got : 0;
    }
    text[*size] = 0;
    return text;
}

/* Run a program of SentencePiece with the text as standard input and the .model file as descriptor 3. Return its
 * output, which the caller frees, or NULL with err. */
static char *run_program(const char *program, const nn_tokenizer *t, const void *text, size_t text_size, size_t *size,
                         char err[NN_ERR_MAX])
{
    enum { MODEL = 3 };
    char name[32],
        *argv[] = {name, "--model=/dev/fd/3", strcmp(program, "spm_encode") == 0 ? "--output_format=id" : NULL, NULL};
    int pipe_ends[2] = {-1, -1}, status = 0;
    pid_t pid = 0;
    char *output = NULL;
    posix_spawn_file_actions_t actions;
    const int model = temporary_file(t->model, t->size, err),
              in = model < 0 ? -1 : temporary_file(text, text_size, err);
    snprintf(name, sizeof name, "%s", program);
    if (in < 0 || posix_spawn_file_actions_init(&actions) != 0)
        goto done;
    if (pipe2(pipe_ends, O_CLOEXEC) != 0) {
        nn_fail(err, "tokenizer: cannot create a pipe to %s: %s", program, strerror(errno));
    } else {
        posix_spawn_file_actions_adddup2(&actions, in, STDIN_FILENO);
        posix_spawn_file_actions_adddup2(&actions, pipe_ends[1], STDOUT_FILENO);
        posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
        posix_spawn_file_actions_adddup2(&actions, model, MODEL);
        const int failed = posix_spawnp(&pid, program, &actions, NULL, argv, environ);
        close(pipe_ends[1]);
        if (failed) {
            nn_fail(err, "tokenizer: %s cannot be run: %s (install Debian's sentencepiece)", program, strerror(failed));
        } else {
            output = read_to_end(pipe_ends[0], size, err);
            while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
                continue;
            if (output && status != 0) {
                nn_fail(err, "tokenizer: %s failed, %s %d (name a .model file of spm_train)", program,
                        WIFSIGNALED(status) ? "signal" : "exit code",
                        WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
                free(output);
                output = NULL;
            }
        }
        close(pipe_ends[0]);
    }
    posix_spawn_file_actions_destroy(&actions);
done:
    if (model >= 0)
        close(model);
    if (in >= 0)
        close(in);
    return output;
}

/* Write the text of a token in the list: <0x0A> is a byte, U+2581 is a space. Return the size of the text. */
static size_t decode_token(const char *token, size_t size, char *to)
{
    static const char digits[] = "0123456789ABCDEF", blank[] = "\xe2\x96\x81";
    if (size == 6 && strncmp(token, "<0x", 3) == 0 && token[5] == '>') {
        const char *high = memchr(digits, token[3], 16), *low = memchr(digits, token[4], 16);
        if (high && low) {
            *to = (char)((high - digits) << 4 | (low - digits));
            return 1;
        }
    }
    size_t n = 0;
    for (size_t x = 0; x < size;)
        if (size - x >= 3 && strncmp(token + x, blank, 3) == 0) {
            to[n++] = ' ';
            x += 3;
        } else {
            to[n++] = token[x++];
        }
    return n;
}

/* Read the list of spm_export_vocab, which has for each token a line with its text, a tab and its score. */
static int read_list(nn_tokenizer *t, const char *list, size_t size, const char *name, char err[NN_ERR_MAX])
{
    int32_t lines = 0;
    size_t used = 0;
    for (size_t x = 0; x < size; x++)
        lines += list[x] == '\n';
    t->text = malloc(size + 1);
    t->offset = malloc(((size_t)lines + 1) * sizeof *t->offset);
    if (!t->text || !t->offset)
        return nn_fail(err, "tokenizer: out of memory for %d word pieces (use a smaller model)", (int)lines);
    t->line_feed = -1;
    for (const char *from = list; t->n < lines; t->n++) {
        const char *end = strchr(from, '\n'), *tab = end ? memrchr(from, '\t', (size_t)(end - from)) : NULL;
        if (!tab || tab == from)
            return nn_fail(
                err, "tokenizer: %.200s: spm_export_vocab cannot list word piece %d (name a .model file of spm_train)",
                name, (int)t->n);
        t->offset[t->n] = used;
        used += decode_token(from, (size_t)(tab - from), t->text + used);
        if (used - t->offset[t->n] == 1 && t->text[used - 1] == '\n')
            t->line_feed = t->n;
        from = end + 1;
    }
    t->offset[t->n] = used;
    return t->line_feed >= 0 ? 0
                             : nn_fail(err,
                                       "tokenizer: %.200s: none of its %d word pieces is a line feed (train it with "
                                       "spm_train --byte_fallback=true; docs/lab-reference.md has the command)",
                                       name, (int)t->n);
}

int nn_tokenizer_parse(nn_tokenizer **to, const void *model, size_t size, const char *name, char err[NN_ERR_MAX])
{
    nn_tokenizer *t = calloc(1, sizeof *t);
    size_t list_size = 0;
    char *list = NULL;
    int code = -1;
    if (t && (t->model = malloc(size + 1))) {
        memcpy(t->model, model, size);
        t->size = size;
        list = run_program("spm_export_vocab", t, "", 0, &list_size, err);
        code = list ? read_list(t, list, list_size, name, err) : -1;
    } else {
        nn_fail(err, "tokenizer: %.200s: out of memory for its %zu bytes (close other programs)", name, size);
    }
    free(list);
    if (code != 0)
        nn_tokenizer_free(t);
    *to = code == 0 ? t : NULL;
    return code;
}

int nn_tokenizer_read(nn_tokenizer **to, const char *path, char err[NN_ERR_MAX])
{
    size_t size = 0;
    char why[NN_ERR_MAX];
    unsigned char *model = nn_read_file(path, &size, why);
    if (!model)
        nn_fail(err, "tokenizer: %.400s", why);
    *to = NULL;
    const int code = model ? nn_tokenizer_parse(to, model, size, path, err) : -1;
    free(model);
    return code;
}

void nn_tokenizer_free(nn_tokenizer *t)
{
    if (!t)
        return;
    free(t->model);
    free(t->text);
    free(t->offset);
    free(t);
}

/* Read the token numbers that spm_encode wrote, and check that their texts concatenate to the text that was split. */
static int64_t read_numbers(const nn_tokenizer *t, const char *output, const unsigned char *text, int64_t size,
                            int32_t *tokens, char err[NN_ERR_MAX])
{
    int64_t at = 0, n = 0;
    long long line = 1;
    while (*output) {
        char *end;
        const long x = strtol(output, &end, 10);
        const bool number = *output >= '0' && *output <= '9' && x < t->n;
        const int32_t token = number ? (int32_t)x : t->line_feed;
        const int64_t bytes = (int64_t)(t->offset[token + 1] - t->offset[token]);
        if (*output == ' ') {
            output++;
        } else if (number || (*output == '\n' && at < size)) {
            if (bytes == 0 || bytes > size - at || memcmp(t->text + t->offset[token], text + at, (size_t)bytes) != 0)
                return nn_fail(err,
                               "line %lld: the text of the word pieces differs from the file (train a model that does "
                               "not change text; docs/lab-reference.md has the command)",
                               line);
            tokens[n++] = token;
            at += bytes;
            line += !number;
            output = number ? end : output + 1;
        } else if (*output == '\n') { /* the output ends with a line feed even if the text does not */
            output++;
        } else {
            return nn_fail(err,
                           "line %lld: spm_encode wrote \"%.20s\", which is not a token number (check the "
                           "installed sentencepiece)",
                           line, output);
        }
    }
    return at == size
               ? n
               : nn_fail(err, "line %lld: spm_encode ended before the text (check the installed sentencepiece)", line);
}

int32_t *nn_tokenizer_encode(const nn_tokenizer *t, const unsigned char *text, int64_t size, int64_t *n,
                             char err[NN_ERR_MAX])
{
    size_t output_size;
    char *output = run_program("spm_encode", t, text, (size_t)size, &output_size, err);
    int32_t *tokens = output ? malloc((size_t)size * sizeof *tokens + 1) : NULL;
    if (output && !tokens)
        nn_fail(err, "tokenizer: out of memory for the tokens of %lld bytes (use a shorter text)", (long long)size);
    *n = tokens ? read_numbers(t, output, text, size, tokens, err) : -1;
    free(output);
    if (*n < 0) {
        free(tokens);
        return NULL;
    }
    return tokens;
}
