/* from_gguf.c -- writes the tokenizer of a .gguf file as a SentencePiece model, so that there is one reader for both.
 *
 * llama.cpp's conversion of a T5 stores all rows of the embedding: the pieces of spiece.model, then those of
 * added_tokens.json, as user-defined tokens of score -1000, and placeholders [PADn] for the other rows. T5's tokenizer
 * has 100 tokens <extra_id_N> after the pieces of its spiece.model. The conversion does not know them, so they are
 * placeholders, too.
 * SPDX-License-Identifier: Apache-2.0 */
#include "io/gguf.h"
#include "io/json.h"
#include "tokenizer/parts.h"

#include <stdio.h>
#include <stdlib.h>

enum { EXTRA_IDS = 100 };

typedef struct reader {
    const io_gguf *keys;
    const char *name;
    char *err;
    io_gguf_text *tokens; /* [n] */
    const unsigned char *scores, *types;
    int64_t n;
} reader;

static tok_status damaged(const reader *r, const char *key, const char *what)
{
    char safe[200];
    return tok_fail(r->err, TOK_DAMAGED, "%s: tokenizer.ggml.%s %s (convert the model again)",
                    io_safe(safe, sizeof safe, r->name), key, what);
}

static tok_status no_memory(const reader *r)
{
    char safe[200];
    return tok_fail(r->err, TOK_FAILED, "%s: out of memory while reading the tokenizer",
                    io_safe(safe, sizeof safe, r->name));
}

static const io_gguf_value *find(const reader *r, const char *key)
{
    char full[64];
    snprintf(full, sizeof full, "tokenizer.ggml.%s", key);
    return io_gguf_find(r->keys, full);
}

static bool is_array(const io_gguf_value *v, io_gguf_type type, int64_t n)
{
    return v != NULL && v->array && v->type == type && v->n == (uint64_t)n;
}

static float score_of(const reader *r, int64_t id)
{
    float x;
    memcpy(&x, r->scores + 4 * id, sizeof x);
    return x;
}

static int32_t type_of(const reader *r, int64_t id)
{
    int32_t x;
    memcpy(&x, r->types + 4 * id, sizeof x);
    return x;
}

static tok_status find_tokens(reader *r)
{
    const io_gguf_value *tokens = find(r, "tokens"), *scores = find(r, "scores"), *types = find(r, "token_type");
    if (tokens == NULL || !tokens->array || tokens->type != GGUF_STRING)
        return damaged(r, "tokens", "must be an array of strings");
    if (tokens->n < 1 || tokens->n > TOK_MAX_TOKENS)
        return damaged(r, "tokens", "must have 1 to 4,194,304 strings");
    r->n = (int64_t)tokens->n;
    if (!is_array(scores, GGUF_F32, r->n))
        return damaged(r, "scores", "must be an array of as many F32 as there are tokens");
    if (!is_array(types, GGUF_I32, r->n) && !is_array(types, GGUF_U32, r->n))
        return damaged(r, "token_type", "must be an array of as many I32 as there are tokens");
    r->scores = scores->at;
    r->types = types->at;
    r->tokens = malloc((size_t)r->n * sizeof *r->tokens);
    if (r->tokens == NULL)
        return no_memory(r);
    const unsigned char *at = tokens->at;
    for (int64_t id = 0; id < r->n; id++)
        r->tokens[id] = io_gguf_next(&at);
    return TOK_OK;
}

static bool begins(io_gguf_text text, const char *with)
{
    const size_t n = strlen(with);
    return text.size > n && memcmp(text.at, with, n) == 0;
}

/* Return true if the token is not one of spiece.model's. */
static bool is_placeholder(const reader *r, int64_t id)
{
    return type_of(r, id) == TOK_UNUSED && begins(r->tokens[id], "[PAD");
}

static bool is_added(const reader *r, int64_t id)
{
    return type_of(r, id) == TOK_USER_DEFINED && score_of(r, id) == -1000.0f;
}

/* ------------------------------------------------------------------------------------------------ spiece.model */

static void put_varint(tok_text *to, uint64_t x)
{
    for (; x > 0x7f; x >>= 7)
        tok_text_add_byte(to, (char)(x | 0x80));
    tok_text_add_byte(to, (char)x);
}

/* Write a field with a number. */
static void put_number(tok_text *to, int field, uint64_t x)
{
    put_varint(to, (uint64_t)field << 3);
    put_varint(to, x);
}

static void put_bytes(tok_text *to, int field, const void *bytes, size_t size)
{
    put_varint(to, (uint64_t)field << 3 | 2);
    put_varint(to, size);
    tok_text_add(to, bytes, (int64_t)size);
}

static void put_piece(const reader *r, tok_text *to, tok_text *piece, int64_t id)
{
    /* the conversion makes the user-defined pieces of spiece.model normal */
    const bool extra = type_of(r, id) == TOK_NORMAL && begins(r->tokens[id], "<extra_id_");
    piece->size = 0;
    put_bytes(piece, 1, r->tokens[id].at, r->tokens[id].size);
    put_varint(piece, 2 << 3 | 5);
    tok_text_add(piece, (const char *)r->scores + 4 * id, 4);
    put_number(piece, 3, extra ? TOK_USER_DEFINED : (uint64_t)(uint32_t)type_of(r, id));
    put_bytes(to, 1, piece->bytes, (size_t)piece->size);
}

static bool boolean(const reader *r, const char *key, bool fallback)
{
    int64_t x;
    return io_gguf_integer(find(r, key), &x) ? x != 0 : fallback;
}

static void put_trainer(const reader *r, tok_text *to, tok_text *message, int64_t n)
{
    int64_t eos;
    bool bytes = false;
    for (int64_t id = 0; id < n; id++)
        bytes = bytes || type_of(r, id) == TOK_BYTE;
    message->size = 0;
    put_number(message, 3, 1); /* Unigram */
    put_number(message, 35, bytes);
    if (io_gguf_integer(find(r, "eos_token_id"), &eos) && eos >= 0 && eos < n)
        put_bytes(message, 47, r->tokens[eos].at, r->tokens[eos].size);
    put_bytes(to, 2, message->bytes, (size_t)message->size);
}

static tok_status put_normalizer(const reader *r, tok_text *to, tok_text *message)
{
    const io_gguf_value *map = find(r, "precompiled_charsmap");
    if (map != NULL && (!map->array || (map->type != GGUF_U8 && map->type != GGUF_I8)))
        return damaged(r, "precompiled_charsmap", "must be an array of bytes");
    message->size = 0;
    if (map != NULL)
        put_bytes(message, 2, map->at, map->bytes);
    put_number(message, 3, boolean(r, "add_space_prefix", true));
    put_number(message, 4, boolean(r, "remove_extra_whitespaces", true));
    put_bytes(to, 3, message->bytes, (size_t)message->size);
    return TOK_OK;
}

/* Write the first n tokens. */
static tok_status write_spiece(const reader *r, int64_t n, tok_written *files)
{
    tok_text to = {0}, message = {0};
    for (int64_t id = 0; id < n; id++)
        put_piece(r, &to, &message, id);
    put_trainer(r, &to, &message, n);
    tok_status status = put_normalizer(r, &to, &message);
    if (status == TOK_OK && (to.failed || message.failed))
        status = no_memory(r);
    free(message.bytes);
    files->spiece = to.bytes;
    files->spiece_size = to.size;
    return status;
}

/* ------------------------------------------------------------------------------------------- files beside the model */

/* Add a token and its number to the object. */
static tok_status add_token(const reader *r, json_t *root, int64_t id)
{
    const io_gguf_text t = r->tokens[id];
    if (t.size > TOK_MAX_PIECE || memchr(t.at, 0, t.size) != NULL || !tok_utf8_valid(t.at, (int64_t)t.size))
        return damaged(r, "tokens", "must be UTF-8 without NUL");
    char *key = strndup(t.at, t.size);
    const bool good = key != NULL && json_object_set_new(root, key, json_integer(id)) == 0;
    free(key);
    return good ? TOK_OK : no_memory(r);
}

/* Write the added tokens from number n on. */
static tok_status write_added(const reader *r, int64_t n, tok_written *files)
{
    io_json_watch();
    json_t *root = json_object();
    tok_status status = root != NULL ? TOK_OK : no_memory(r);
    for (int64_t id = n; id < r->n && status == TOK_OK; id++)
        if (is_added(r, id))
            status = add_token(r, root, id);
    if (status == TOK_OK && json_object_size(root) > 0 && (files->added_tokens = io_json_text(root)) == NULL)
        status = no_memory(r);
    json_decref(root);
    return io_json_lost() && status == TOK_OK ? no_memory(r) : status;
}

static tok_status write_files(reader *r, tok_written *files)
{
    char config[64];
    int64_t n = 0, extra = 0;
    while (n < r->n && !is_placeholder(r, n) && !is_added(r, n))
        n++;
    while (n + extra < r->n && extra < EXTRA_IDS &&
           (is_placeholder(r, n + extra) || begins(r->tokens[n + extra], "<extra_id_")))
        extra++;
    if (extra < EXTRA_IDS) /* placeholders that are not <extra_id_N>, as in mT5 */
        extra = 0;
    snprintf(config, sizeof config, "{\"extra_ids\":%d}", (int)extra);
    files->tokenizer_config = strdup(config);
    if (files->tokenizer_config == NULL)
        return no_memory(r);
    const tok_status status = write_spiece(r, n, files);
    return status == TOK_OK ? write_added(r, n + extra, files) : status;
}

tok_status tok_write_gguf(const io_gguf *keys, const char *name, tok_written *files, char err[TOK_ERR_MAX])
{
    reader r = {.keys = keys, .name = name, .err = err};
    char safe[200];
    const io_gguf_value *model = find(&r, "model");
    *files = (tok_written){0};
    if (model == NULL)
        return tok_fail(err, TOK_ABSENT, "%s: it has no tokenizer (key tokenizer.ggml.model)",
                        io_safe(safe, sizeof safe, name));
    if (!io_gguf_is_text(model, "t5"))
        return damaged(&r, "model", "must be \"t5\"");
    tok_status status = find_tokens(&r);
    if (status == TOK_OK)
        status = write_files(&r, files);
    free(r.tokens);
    if (status != TOK_OK) {
        free(files->spiece);
        free(files->added_tokens);
        free(files->tokenizer_config);
        *files = (tok_written){0};
    }
    return status;
}
