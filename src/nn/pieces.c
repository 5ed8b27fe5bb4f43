/* pieces.c -- word pieces of SentencePiece: its programs split text and list the pieces, and what they say is checked.
 *
 * spm_encode works line by line and writes the numbers of each line's pieces in a line; between lines stands the piece <0x0A>, a byte
 * that models with byte_fallback have. Pieces have to stand for exactly the text that they were made of.
 * SPDX-License-Identifier: Apache-2.0 */
#include "nn.h"
#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

/* A file without a name that holds these bytes, beyond the standard streams; -1 with err. */
static int hold(const void *bytes, size_t size, char err[NN_ERR_MAX])
{
    FILE *f = tmpfile();
    int fd = -1;
    if (f && fwrite(bytes, 1, size, f) == size && fflush(f) == 0)
        fd = fcntl(fileno(f), F_DUPFD_CLOEXEC, 10);
    if (fd < 0)
        nn_fail(err, "tokenizer: a temporary file of %zu bytes cannot be made: %s", size, strerror(errno));
    if (f)
        fclose(f);
    if (fd >= 0)
        lseek(fd, 0, SEEK_SET);
    return fd;
}

/* All that can be read, with a NUL after it; NULL with err. */
static char *drain(int fd, size_t *size, char err[NN_ERR_MAX])
{
    size_t room = 0;
    char *text = NULL;
    for (*size = 0;;) {
        if (*size + 1 >= room) {
            char *more = realloc(text, room = 2 * room + 65536);
            if (!more) {
                free(text);
                nn_fail(err, "tokenizer: no memory for %zu bytes of pieces (a shorter text)", room);
                return NULL;
            }
            text = more;
        }
        const ssize_t got = read(fd, text + *size, room - 1 - *size);
        if (got == 0)
            break;
        if (got < 0 && errno != EINTR) {
            nn_fail(err, "tokenizer: cannot be read: %s", strerror(errno));
            free(text);
            return NULL;
        }
        *size += got > 0 ? (size_t)got : 0;
    }
    text[*size] = 0;
    return text;
}

/* What a program of SentencePiece writes about a text, to be freed; NULL with err. Its descriptor 3 is the .model file. */
static char *ask(const char *program, const nn_pieces *p, const void *text, size_t text_size, size_t *size,
                 char err[NN_ERR_MAX])
{
    enum { MODEL = 3 };
    char name[32],
        *argv[] = {name, "--model=/dev/fd/3", strcmp(program, "spm_encode") == 0 ? "--output_format=id" : NULL, NULL};
    int ends[2] = {-1, -1}, status = 0;
    pid_t pid = 0;
    char *said = NULL;
    posix_spawn_file_actions_t actions;
    const int model = hold(p->model, p->size, err), in = model < 0 ? -1 : hold(text, text_size, err);
    snprintf(name, sizeof name, "%s", program);
    if (in < 0 || posix_spawn_file_actions_init(&actions) != 0)
        goto done;
    if (pipe2(ends, O_CLOEXEC) != 0) {
        nn_fail(err, "tokenizer: no pipe to %s: %s", program, strerror(errno));
    } else {
        posix_spawn_file_actions_adddup2(&actions, in, STDIN_FILENO);
        posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
        posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
        posix_spawn_file_actions_adddup2(&actions, model, MODEL);
        const int failed = posix_spawnp(&pid, program, &actions, NULL, argv, environ);
        close(ends[1]);
        if (failed) {
            nn_fail(err, "tokenizer: %s cannot be run: %s (install Debian's sentencepiece)", program, strerror(failed));
        } else {
            said = drain(ends[0], size, err);
            while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
                continue;
            if (said && status != 0) {
                nn_fail(err, "tokenizer: %s failed, %s %d (the file has to be a .model of spm_train)", program,
                        WIFSIGNALED(status) ? "signal" : "exit code",
                        WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
                free(said);
                said = NULL;
            }
        }
        close(ends[0]);
    }
    posix_spawn_file_actions_destroy(&actions);
done:
    if (model >= 0)
        close(model);
    if (in >= 0)
        close(in);
    return said;
}

/* What a piece of the list stands for: <0x0A> is a byte, U+2581 a blank. */
static size_t surface(const char *piece, size_t size, char *to)
{
    static const char digits[] = "0123456789ABCDEF", blank[] = "\xe2\x96\x81";
    if (size == 6 && strncmp(piece, "<0x", 3) == 0 && piece[5] == '>') {
        const char *high = memchr(digits, piece[3], 16), *low = memchr(digits, piece[4], 16);
        if (high && low) {
            *to = (char)((high - digits) << 4 | (low - digits));
            return 1;
        }
    }
    size_t n = 0;
    for (size_t x = 0; x < size;)
        if (size - x >= 3 && strncmp(piece + x, blank, 3) == 0) {
            to[n++] = ' ';
            x += 3;
        } else {
            to[n++] = piece[x++];
        }
    return n;
}

/* The list of spm_export_vocab: a line for each piece, a tab, its score. */
static int read_list(nn_pieces *p, const char *list, size_t size, const char *name, char err[NN_ERR_MAX])
{
    int32_t lines = 0;
    size_t used = 0;
    for (size_t x = 0; x < size; x++)
        lines += list[x] == '\n';
    p->text = malloc(size + 1);
    p->at = malloc(((size_t)lines + 1) * sizeof *p->at);
    if (!p->text || !p->at)
        return nn_fail(err, "tokenizer: no memory for %d pieces", (int)lines);
    p->line_feed = -1;
    for (const char *from = list; p->n < lines; p->n++) {
        const char *end = strchr(from, '\n'), *tab = end ? memrchr(from, '\t', (size_t)(end - from)) : NULL;
        if (!tab || tab == from)
            return nn_fail(err, "tokenizer: %.200s: piece %d is none that spm_export_vocab can list", name, (int)p->n);
        p->at[p->n] = used;
        used += surface(from, (size_t)(tab - from), p->text + used);
        if (used - p->at[p->n] == 1 && p->text[used - 1] == '\n')
            p->line_feed = p->n;
        from = end + 1;
    }
    p->at[p->n] = used;
    return p->line_feed >= 0 ? 0
                             : nn_fail(err,
                                       "tokenizer: %.200s: none of its %d pieces is a line feed (spm_train "
                                       "--byte_fallback=true; docs/lab.md has the command)",
                                       name, (int)p->n);
}

int nn_pieces_of(nn_pieces **to, const void *model, size_t size, const char *name, char err[NN_ERR_MAX])
{
    nn_pieces *p = calloc(1, sizeof *p);
    size_t list_size = 0;
    char *list = NULL;
    int code = -1;
    if (p && (p->model = malloc(size + 1))) {
        memcpy(p->model, model, size);
        p->size = size;
        list = ask("spm_export_vocab", p, "", 0, &list_size, err);
        code = list ? read_list(p, list, list_size, name, err) : -1;
    } else {
        nn_fail(err, "tokenizer: %.200s: no memory for its %zu bytes", name, size);
    }
    free(list);
    if (code != 0)
        nn_pieces_free(p);
    *to = code == 0 ? p : NULL;
    return code;
}

int nn_pieces_read(nn_pieces **to, const char *path, char err[NN_ERR_MAX])
{
    size_t size = 0;
    char why[NN_ERR_MAX];
    unsigned char *model = nn_read_file(path, &size, why);
    if (!model)
        nn_fail(err, "tokenizer: %.400s", why);
    *to = NULL;
    const int code = model ? nn_pieces_of(to, model, size, path, err) : -1;
    free(model);
    return code;
}

void nn_pieces_free(nn_pieces *p)
{
    if (!p)
        return;
    free(p->model);
    free(p->text);
    free(p->at);
    free(p);
}

/* The numbers of spm_encode; each piece has to be what stands in the text next. */
static int64_t read_numbers(const nn_pieces *p, const char *said, const unsigned char *text, int64_t size,
                            int32_t *tokens, char err[NN_ERR_MAX])
{
    int64_t at = 0, n = 0;
    long long line = 1;
    while (*said) {
        char *end;
        const long x = strtol(said, &end, 10);
        const bool number = *said >= '0' && *said <= '9' && x < p->n;
        const int32_t piece = number ? (int32_t)x : p->line_feed;
        const int64_t bytes = (int64_t)(p->at[piece + 1] - p->at[piece]);
        if (*said == ' ') {
            said++;
        } else if (number || (*said == '\n' && at < size)) {
            if (bytes == 0 || bytes > size - at || memcmp(p->text + p->at[piece], text + at, (size_t)bytes) != 0)
                return nn_fail(err,
                               "line %lld: the pieces stand for another text (a model that changes no text is needed; "
                               "docs/lab.md has the command)",
                               line);
            tokens[n++] = piece;
            at += bytes;
            line += !number;
            said = number ? end : said + 1;
        } else if (*said == '\n') { /* after a last line without a line feed */
            said++;
        } else {
            return nn_fail(err, "line %lld: spm_encode wrote \"%.20s\", which is no piece", line, said);
        }
    }
    return at == size ? n : nn_fail(err, "line %lld: spm_encode ended before the text", line);
}

int32_t *nn_pieces_encode(const nn_pieces *p, const unsigned char *text, int64_t size, int64_t *n, char err[NN_ERR_MAX])
{
    size_t said_size;
    char *said = ask("spm_encode", p, text, (size_t)size, &said_size, err);
    int32_t *tokens = said ? malloc((size_t)size * sizeof *tokens + 1) : NULL;
    if (said && !tokens)
        nn_fail(err, "tokenizer: no memory for the pieces of %lld bytes", (long long)size);
    *n = tokens ? read_numbers(p, said, text, size, tokens, err) : -1;
    free(said);
    if (*n < 0) {
        free(tokens);
        return NULL;
    }
    return tokens;
}
