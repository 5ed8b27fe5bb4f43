/* open.c -- opens a tokenizer from a file, a directory or memory, creates the tokenizer of ByT5, and frees tokenizers.
 * SPDX-License-Identifier: Apache-2.0 */
#include "io/io.h"
#include "tokenizer/compact.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

static tokenizer *empty(tok_kind kind)
{
    tokenizer *t = calloc(1, sizeof(*t));
    if (t == NULL)
        return NULL;
    t->kind = kind;
    t->eos = t->unk = -1;
    tok_set_end(t, -1);
    for (int byte = 0; byte < 256; byte++)
        t->byte_ids[byte] = -1;
    return t;
}

void tok_close(tokenizer *t)
{
    if (t == NULL)
        return;
    for (int k = 0; k < TOK_MAX_STEPS; k++) {
        free(t->norms[k].pattern);
        free(t->norms[k].content);
        free(t->steps[k].pattern);
        free(t->steps[k].content);
    }
    free(t->names.bytes);
    free(t->tokens);
    free(t->by_piece);
    free(t->added);
    free(t->merges.table);
    free(t->merges.made);
    tok_trie_free(&t->pieces);
    tok_trie_free(&t->raw.trie);
    tok_trie_free(&t->normalized.trie);
    tok_trie_free(&t->user_defined);
    tok_graphemes_free(&t->graphemes);
    tok_charsmap_free(&t->charsmap);
    free(t);
}

static tok_status check_extra(int32_t extra_ids, char err[TOK_ERR_MAX])
{
    if (extra_ids < 0 || extra_ids > TOK_MAX_EXTRA_IDS)
        return tok_fail(err, TOK_ARGUMENT, "extra_ids is %d; it must be 0 to %d (T5 has 100, ByT5 125)", extra_ids,
                        TOK_MAX_EXTRA_IDS);
    return TOK_OK;
}

/* Prepare the search for added tokens, and pass on the tokenizer; or close it if it could not be read. */
static tok_status finish(tokenizer **made, tokenizer *t, tok_status status, const char *name, char err[TOK_ERR_MAX])
{
    if (status == TOK_OK && !tok_added_finish(t))
        status = tok_fail(err, TOK_FAILED, "%s: out of memory while reading %d tokens", name, t->n_tokens);
    if (status == TOK_OK)
        *made = t;
    else
        tok_close(t);
    return status;
}

bool tok_is_json(const char *data, int64_t size)
{
    int64_t at = 0;
    while (at < size && (data[at] == ' ' || data[at] == '\t' || data[at] == '\r' || data[at] == '\n'))
        at++;
    return at < size && data[at] == '{';
}

/* Open a tokenizer from memory; beside = NULL: as `tokenizers` or SentencePiece reads the file by itself. */
static tok_status open_memory(tokenizer **made, const void *data, int64_t size, const char *name, int32_t extra_ids,
                              const tok_beside *beside, char err[TOK_ERR_MAX])
{
    *made = NULL;
    tok_status status = check_extra(extra_ids, err);
    if (status != TOK_OK)
        return status;
    char safe[200];
    io_safe(safe, sizeof(safe), name);
    if (size < 1 || size > TOK_MAX_FILE)
        return tok_fail(err, TOK_DAMAGED, "%s: the file has %lld bytes; it must have 1 to %lld (download it again)",
                        safe, (long long)size, (long long)TOK_MAX_FILE);
    const char *bytes = data;
    const char *dot = strrchr(name, '.');
    const bool compact = tok_is_compact(bytes, size),
               json = tok_is_json(bytes, size) || (dot != NULL && strcmp(dot, ".json") == 0);
    const bool vocab = !json && !compact && beside != NULL && tok_has_vocab(beside->rules);
    tokenizer *t = empty(json || compact || vocab ? TOK_JSON : TOK_SENTENCEPIECE);
    if (t == NULL)
        return tok_fail(err, TOK_FAILED, "%s: out of memory", safe);
    status = compact ? tok_read_compact(t, bytes, size, safe, beside, err)
             : json  ? tok_read_json(t, bytes, size, safe, beside, err)
             : vocab ? tok_read_vocab(t, bytes, size, safe, beside, err)
                     : tok_read_sentencepiece(t, bytes, size, safe, extra_ids, beside, err);
    return finish(made, t, status, safe, err);
}

tok_status tok_open_memory(tokenizer **made, const void *data, int64_t size, const char *name, int32_t extra_ids,
                           char err[TOK_ERR_MAX])
{
    return open_memory(made, data, size, name, extra_ids, NULL, err);
}

tok_status tok_open_beside(tokenizer **made, const void *data, int64_t size, const char *name, int32_t extra_ids,
                           const tok_beside *beside, char err[TOK_ERR_MAX])
{
    return open_memory(made, data, size, name, extra_ids, beside, err);
}

/* Read the whole file. */
static tok_status read_file(FILE *f, const char *safe, tok_text *content, char err[TOK_ERR_MAX])
{
    for (size_t got = 1; got > 0 && content->size <= TOK_MAX_FILE;) {
        if (!tok_text_grow(content, 1 << 16))
            return tok_fail(err, TOK_FAILED, "%s: out of memory after %lld bytes", safe, (long long)content->size);
        got = fread(content->bytes + content->size, 1, (size_t)(content->capacity - content->size), f);
        content->size += (int64_t)got;
    }
    if (ferror(f))
        return tok_fail(err, TOK_FAILED, "%s: cannot be read: %s", safe, strerror(errno));
    return TOK_OK;
}

static tok_status open_file(tokenizer **made, const char *path, int32_t extra_ids, char err[TOK_ERR_MAX])
{
    char safe[200];
    io_safe(safe, sizeof(safe), path);
    FILE *f = fopen(path, "rbe");
    if (f == NULL)
        return tok_fail(err, errno == ENOENT ? TOK_ABSENT : TOK_FAILED, "%s: cannot be opened: %s", safe,
                        strerror(errno));
    tok_text content = {0};
    tok_status status = read_file(f, safe, &content, err);
    fclose(f);
    if (status == TOK_OK)
        status = tok_open_memory(made, content.bytes, content.size, path, extra_ids, err);
    free(content.bytes);
    return status;
}

tok_status tok_open(tokenizer **made, const char *path, int32_t extra_ids, char err[TOK_ERR_MAX])
{
    *made = NULL;
    struct stat about;
    if (stat(path, &about) != 0 || !S_ISDIR(about.st_mode))
        return open_file(made, path, extra_ids, err);
    static const char *const names[] = {"tokenizer.json", "spiece.model"};
    for (int k = 0; k < 2; k++) {
        char *file;
        if (asprintf(&file, "%s/%s", path, names[k]) < 0)
            return tok_fail(err, TOK_FAILED, "out of memory while opening a tokenizer");
        const tok_status status = open_file(made, file, extra_ids, err);
        free(file);
        if (status != TOK_ABSENT)
            return status;
    }
    char safe[200];
    return tok_fail(err, TOK_ABSENT,
                    "%s: it has neither tokenizer.json nor spiece.model (give the directory of a model)",
                    io_safe(safe, sizeof(safe), path));
}

/* Make the tokens of ByT5 that stand for bytes. */
static bool fill_bytes(tokenizer *t)
{
    bool good = tok_tokens_make(t, 259);
    for (int32_t id = 3; good && id < t->n_tokens; id++) {
        char piece[8];
        const int n = sprintf(piece, "<0x%02X>", (unsigned)(id - 3) & 0xff);
        good = tok_token_set(t, id, piece, n, TOK_BYTE, 0);
        t->byte_ids[id - 3] = id;
    }
    return good;
}

tok_status tok_open_bytes(tokenizer **made, int32_t extra_ids, const tok_beside *beside, char err[TOK_ERR_MAX])
{
    static const tok_beside none = {{NULL, 0, "added_tokens.json"},
                                    {NULL, 0, "tokenizer_config.json"},
                                    {NULL, 0, "special_tokens_map.json"},
                                    TOK_RULES_FILE};
    static const char name[] = "the tokenizer of bytes";
    beside = beside != NULL ? beside : &none;
    *made = NULL;
    tok_status status = check_extra(extra_ids, err);
    if (status == TOK_OK)
        status = tok_read_extra_ids(beside, &extra_ids, err);
    if (status != TOK_OK)
        return status;
    tokenizer *t = empty(TOK_BYTES);
    if (t == NULL || !fill_bytes(t)) {
        tok_close(t);
        return tok_fail(err, TOK_FAILED, "out of memory while creating %s with %d extra_ids", name, extra_ids);
    }
    status = tok_tokens_sort(t, name, err);
    if (status == TOK_OK)
        status = tok_add_beside(t, beside, extra_ids, TOK_FROM_FILE, NULL, err);
    if (status == TOK_OK && t->eos >= 0)
        tok_set_end(t, t->eos);
    return finish(made, t, status, name, err);
}
