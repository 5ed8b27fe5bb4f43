/* compact.c -- writes a tokenizer.json in the compact form, which opens several times faster.
 * SPDX-License-Identifier: Apache-2.0 */
#include "io/json.h"
#include "tokenizer/compact.h"

#include <stdlib.h>
#include <string.h>

/* Write the compact form. Opening the tokenizer has already checked vocab. */
static tok_status write_compact(const json_t *vocab, const char *json, char **made, int64_t *made_size)
{
    int64_t head[3] = {(int64_t)json_array_size(vocab), 0, (int64_t)strlen(json)};
    for (int64_t k = 0; k < head[0]; k++)
        head[1] += (int64_t)json_string_length(json_array_get(json_array_get(vocab, (size_t)k), 0));
    *made_size = TOK_COMPACT_HEAD + 12 * head[0] + head[1] + head[2];
    *made = malloc((size_t)*made_size);
    if (*made == NULL)
        return TOK_FAILED;
    memcpy(*made, TOK_COMPACT_MAGIC, TOK_COMPACT_MAGIC_BYTES);
    memcpy(*made + TOK_COMPACT_MAGIC_BYTES, head, sizeof(head));
    char *score = *made + TOK_COMPACT_HEAD, *size = score + 8 * head[0], *piece = size + 4 * head[0];
    for (int64_t k = 0; k < head[0]; k++, score += 8, size += 4) {
        const json_t *pair = json_array_get(vocab, (size_t)k), *text = json_array_get(pair, 0);
        const double x = tok_json_score(json_array_get(pair, 1));
        const int32_t n = (int32_t)json_string_length(text);
        memcpy(score, &x, sizeof(x));
        memcpy(size, &n, sizeof(n));
        memcpy(piece, json_string_value(text), (size_t)n);
        piece += n;
    }
    memcpy(piece, json, (size_t)head[2]);
    return TOK_OK;
}

tok_status tok_compact(const char *data, int64_t size, const tok_beside *beside, char **made, int64_t *made_size,
                       char err[TOK_ERR_MAX])
{
    tokenizer *t;
    json_error_t error;
    bool no_memory;
    *made = NULL;
    *made_size = 0;
    tok_status status = tok_open_beside(&t, data, size, "the tokenizer", 0, beside, err); /* check the file */
    const bool unigram = status == TOK_OK && t->model == TOK_UNIGRAM;
    tok_close(t);
    if (!unigram || !tok_is_json(data, size))
        return status;
    json_t *root = io_json(data, (size_t)size, JSON_ALLOW_NUL | JSON_REJECT_DUPLICATES, &error, &no_memory);
    json_t *model = json_object_get(root, "model"), *vocab = json_incref(json_object_get(model, "vocab"));
    char *rest = json_object_set_new(model, "vocab", json_array()) == 0 ? io_json_text(root) : NULL;
    status = rest != NULL ? write_compact(vocab, rest, made, made_size) : TOK_FAILED;
    json_decref(vocab);
    json_decref(root);
    free(rest);
    return status == TOK_OK ? TOK_OK : tok_fail(err, status, "out of memory while reading a packed tokenizer");
}
