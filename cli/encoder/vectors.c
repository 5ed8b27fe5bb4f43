/* vectors.c -- see vectors.h.
 * SPDX-License-Identifier: Apache-2.0 */
#include "cli/encoder/vectors.h"
#include "io/formats.h"
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int no_memory(const vectors_file *v)
{
    return cli_error(CLI_FAILED, "embed: out of memory for %lld vectors (split the file)", (long long)v->n);
}

static int other_texts(const vectors_file *v, int64_t block)
{
    char safe[160];
    return cli_error(CLI_FAILED,
                     "-o: %s: its vectors %lld to %lld are of other texts (give the same texts to continue, or remove "
                     "this file)",
                     io_safe(safe, sizeof safe, v->part), (long long)(block * VECTORS_BLOCK + 1),
                     (long long)((block + 1) * VECTORS_BLOCK));
}

/* ------------------------------------------------------------------------------------------------ OUT.part */

/* Return the number of the block that an array has, or -1 if it is not one. */
static int64_t block_of(const vectors_file *v, const io_array *array)
{
    char name[24], *end;
    const long long block = strtoll(array->name, &end, 10);
    snprintf(name, sizeof name, "%lld", block);
    return block >= 0 && strcmp(name, array->name) == 0 && array->dtype == RP_F32 && array->ndim == 2 &&
                   array->shape[0] == VECTORS_BLOCK && array->shape[1] == v->width
               ? block
               : -1;
}

/* Make room for a block. */
static bool reach(vectors_file *v, int64_t block)
{
    while (v->n_blocks <= block) {
        vectors_block *more = io_grow(v->blocks, &v->capacity, (size_t)v->n_blocks, sizeof *more);
        if (more == NULL)
            return false;
        v->blocks = more;
        more[v->n_blocks++] = (vectors_block){0, false};
    }
    return true;
}

/* Record an array of OUT.part. A damaged one is computed again. */
static int on_found(void *context, const io_array *array, uint64_t tag, off_t at, char err[IO_ERR_MAX])
{
    vectors_file *v = context;
    if (at == IO_APPEND_DAMAGED)
        return 0;
    const int64_t block = block_of(v, array);
    if (block < 0 || block > INT32_MAX)
        return io_fail(err, v->part, "it has an array that this command did not write (remove it)");
    if (!reach(v, block))
        return io_fail(err, v->part, "out of memory");
    v->blocks[block] = (vectors_block){tag, true};
    return 0;
}

/* Open OUT.part. It is continued only by the same model and options. */
static int open_part(vectors_file *v)
{
    char checksum[17], note[1024], safe[700], err[IO_ERR_MAX];
    if (rp_encoder_checksum(v->model, checksum) != RP_OK)
        return cli_error(CLI_FAILED, "%s", rp_encoder_last_error());
    snprintf(note, sizeof note, "relpos embed: model %s as %s, %s", checksum, rp_encoder_about(v->model)->type,
             io_safe(safe, sizeof safe, v->settings));
    v->archive = io_append_open(v->part, NULL, note, on_found, v, err);
    return v->archive != NULL ? CLI_OK : cli_error(CLI_FAILED, "-o: %s", err);
}

int vectors_begin(vectors_file *v, int64_t *known)
{
    char *path = io_follow_links(v->path);
    *known = 0;
    v->rows = malloc((size_t)(VECTORS_BLOCK * v->width) * sizeof *v->rows);
    v->part = path != NULL ? malloc(strlen(path) + sizeof ".part") : NULL;
    if (v->part != NULL)
        sprintf(v->part, "%s.part", path);
    free(path);
    if (v->part == NULL || v->rows == NULL)
        return no_memory(v);
    if (access(v->part, F_OK) != 0)
        return CLI_OK;
    const int code = open_part(v);
    while (*known < v->n_blocks && v->blocks[*known].stored)
        ++*known;
    *known *= VECTORS_BLOCK;
    return code;
}

/* Add a text to the checksum of its block. Return true if the block is complete; *tag is then its checksum. */
static bool add_text(vectors_file *v, const rp_encoder_text *text, uint64_t *tag)
{
    const int64_t sizes[2] = {text->bytes, text->pair != NULL ? text->pair_bytes : -1};
    v->tag = io_checksum(v->tag, sizes, sizeof sizes);
    v->tag = io_checksum(v->tag, text->text, (size_t)text->bytes);
    if (text->pair != NULL)
        v->tag = io_checksum(v->tag, text->pair, (size_t)text->pair_bytes);
    if (++v->n % VECTORS_BLOCK != 0)
        return false;
    *tag = v->tag;
    v->tag = 0;
    return true;
}

int vectors_known(vectors_file *v, const rp_encoder_text *text)
{
    uint64_t tag;
    if (!add_text(v, text, &tag) || v->blocks[v->n / VECTORS_BLOCK - 1].tag == tag)
        return CLI_OK;
    return other_texts(v, v->n / VECTORS_BLOCK - 1);
}

/* Write the vectors of a block, unless OUT.part has them: then a block before it was damaged. */
static int store(vectors_file *v, int64_t block, uint64_t tag)
{
    char name[24], err[IO_ERR_MAX];
    const int64_t shape[2] = {VECTORS_BLOCK, v->width};
    const int code = v->archive == NULL ? open_part(v) : CLI_OK;
    if (code != CLI_OK)
        return code;
    if (!reach(v, block))
        return no_memory(v);
    if (v->blocks[block].stored)
        return v->blocks[block].tag == tag ? CLI_OK : other_texts(v, block);
    snprintf(name, sizeof name, "%lld", (long long)block);
    const io_array array = {.name = name,
                            .dtype = RP_F32,
                            .ndim = 2,
                            .shape = (int64_t *)(uintptr_t)shape,
                            .bytes = (size_t)(VECTORS_BLOCK * v->width) * sizeof *v->rows,
                            .data = v->rows};
    if (io_append_array(v->archive, &array, tag, err) != 0)
        return cli_error(CLI_FAILED, "-o: %s", err);
    v->blocks[block] = (vectors_block){tag, true};
    return CLI_OK;
}

int vectors_put(vectors_file *v, const rp_encoder_text *text, const float *vector)
{
    uint64_t tag;
    memcpy(v->rows + v->n % VECTORS_BLOCK * v->width, vector, (size_t)v->width * sizeof *vector);
    return add_text(v, text, &tag) ? store(v, v->n / VECTORS_BLOCK - 1, tag) : CLI_OK;
}

/* ------------------------------------------------------------------------------------------------ OUT */

/* OUT, while it is written. */
typedef struct copying {
    vectors_file *v;
    io_stream *stream; /* arrays; NULL: lines */
    FILE *lines;
    int64_t next; /* block of OUT.part */
    int part;     /* descriptor of OUT.part */
} copying;

static int put_rows(const copying *c, int64_t n, char err[IO_ERR_MAX])
{
    const vectors_file *v = c->v;
    if (c->stream != NULL)
        return n > 0 ? io_stream_put(c->stream, v->rows, (size_t)(n * v->width) * sizeof *v->rows, err) : 0;
    for (int64_t r = 0; r < n; r++) {
        for (int64_t k = 0; k < v->width; k++) {
            fputs(k == 0 ? "{\"vector\": [" : ", ", c->lines);
            cli_json_number(c->lines, "%.9g", (double)v->rows[r * v->width + k]);
        }
        fputs("]}\n", c->lines);
    }
    return 0;
}

/* Copy an array of OUT.part. */
static int copy_block(void *context, const io_array *array, uint64_t tag, off_t at, char err[IO_ERR_MAX])
{
    copying *c = context;
    const vectors_file *v = c->v;
    char why[IO_WHY_MAX];
    (void)tag;
    if (at == IO_APPEND_DAMAGED || block_of(v, array) != c->next)
        return io_fail(err, v->part, "its array %.40s is damaged (start the command again)", array->name);
    if (c->next++ >= v->n / VECTORS_BLOCK)
        return io_fail(err, v->part,
                       "it has vectors of more than %lld texts (give the same texts, or remove this file)",
                       (long long)v->n);
    if (io_pread(c->part, at, v->rows, (size_t)(VECTORS_BLOCK * v->width) * sizeof *v->rows, why) != IO_OK)
        return io_fail(err, v->part, "%s", why);
    return put_rows(c, VECTORS_BLOCK, err);
}

/* Copy the arrays of OUT.part, then `rest` vectors from memory. */
static int copy_all(copying *c, const float *rest, char err[IO_ERR_MAX])
{
    const vectors_file *v = c->v;
    const int64_t n = v->n % VECTORS_BLOCK;
    char note[4] = "";
    int result = 0;
    if (v->archive != NULL) {
        c->part = open(v->part, O_RDONLY | O_CLOEXEC);
        result = c->part >= 0 ? io_append_list(v->part, note, sizeof note, copy_block, c, NULL, err)
                              : io_fail(err, v->part, "cannot be opened: %s", strerror(errno));
        if (c->part >= 0)
            close(c->part);
    }
    if (result == 0 && c->next < v->n / VECTORS_BLOCK)
        result = io_fail(err, v->part, "it was changed while it was in use (start the command again)");
    if (result == 0 && n > 0) {
        memcpy(v->rows, rest, (size_t)(n * v->width) * sizeof *rest);
        result = put_rows(c, n, err);
    }
    return result;
}

static int write_lines(copying *c, const float *rest, char err[IO_ERR_MAX])
{
    io_text *text = io_text_open(c->v->path, &c->lines, err);
    return text != NULL ? io_text_close(text, copy_all(c, rest, err), err) : -1;
}

static int write_array(copying *c, const float *rest, char err[IO_ERR_MAX])
{
    io_set set = {0};
    const int64_t shape[2] = {c->v->n, c->v->width};
    int result = io_add(&set, "vectors", RP_F32, 2, shape, NULL, true);
    if (result != 0)
        io_fail(err, c->v->path, "out of memory");
    else if ((c->stream = io_stream_open(c->v->path, io_format_of(c->v->path), &set, err)) != NULL)
        result = io_stream_close(c->stream, copy_all(c, rest, err), err);
    else
        result = -1;
    io_free(&set);
    return result;
}

static int write_out(vectors_file *v)
{
    char err[IO_ERR_MAX] = "";
    copying c = {.v = v};
    const size_t bytes = (size_t)(v->n % VECTORS_BLOCK * v->width) * sizeof(float);
    float *rest = malloc(bytes + 1); /* because copying needs v->rows */
    if (rest == NULL)
        return no_memory(v);
    memcpy(rest, v->rows, bytes);
    const int result = v->json ? write_lines(&c, rest, err) : write_array(&c, rest, err);
    free(rest);
    return result == 0 ? CLI_OK : cli_error(CLI_FAILED, "-o: %s", err);
}

int vectors_end(vectors_file *v, int code)
{
    char err[IO_ERR_MAX], safe[160];
    if (code == CLI_OK)
        code = write_out(v);
    if (v->archive != NULL && code == CLI_OK)
        io_append_remove(v->archive);
    else if (v->archive != NULL) {
        const long long kept = (long long)io_append_count(v->archive) * VECTORS_BLOCK;
        if (io_append_close(v->archive, NULL, err) != 0)
            fprintf(stderr, "embed: %s\n", err);
        else if (kept > 0)
            fprintf(stderr, "embed: %lld vectors are in %s; the same command continues after them\n", kept,
                    io_safe(safe, sizeof safe, v->part));
    }
    free(v->part);
    free(v->blocks);
    free(v->rows);
    return code;
}
