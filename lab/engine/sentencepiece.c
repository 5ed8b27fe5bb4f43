/* sentencepiece.c -- splits text into the word pieces of a SentencePiece model, using models/tokenizer. Also checks
 * that the pieces concatenate to exactly the text that was split.
 * SPDX-License-Identifier: Apache-2.0 */
#include "lab/engine/nn.h"
#include "tokenizer/tokenizer.h"
#include <stdlib.h>
#include <string.h>

/* Concatenate the texts of all tokens. Fail if no token is a line feed, which nearly every text contains. */
static int list_texts(nn_tokenizer *t, const char *name, char err[NN_ERR_MAX])
{
    int64_t used = 0, size;
    bool line_feed = false;
    t->n = tok_size(t->pieces);
    for (int32_t token = 0; token < t->n; token++)
        used += tok_piece(t->pieces, token, &size) ? size : 0; /* a piece is at least as long as its text */
    t->text = malloc((size_t)used + 1);
    t->offset = malloc(((size_t)t->n + 1) * sizeof *t->offset);
    if (!t->text || !t->offset)
        return nn_fail(err, "tokenizer: out of memory while reading %d word pieces (use a smaller model)", (int)t->n);
    t->offset[0] = 0;
    for (int32_t token = 0; token < t->n; token++) {
        char *text = t->text + t->offset[token];
        size = tok_token_text(t->pieces, token, text);
        t->offset[token + 1] = t->offset[token] + (size_t)size;
        line_feed = line_feed || (size == 1 && *text == '\n');
    }
    return line_feed ? 0
                     : nn_fail(err,
                               "tokenizer: %.200s: none of its %d word pieces is a line feed (train it with spm_train "
                               "--byte_fallback=true; docs/lab-reference.md has the command)",
                               name, (int)t->n);
}

int nn_tokenizer_parse(nn_tokenizer **to, const void *model, size_t size, const char *name, char err[NN_ERR_MAX])
{
    nn_tokenizer *t = calloc(1, sizeof *t);
    char why[TOK_ERR_MAX];
    int code;
    if (!t || !(t->model = malloc(size))) {
        code = nn_fail(err, "tokenizer: %.200s: out of memory while reading its %zu bytes (close other programs)", name,
                       size);
    } else {
        memcpy(t->model, model, size);
        t->size = size;
        code = tok_open_memory(&t->pieces, model, (int64_t)size, name, 0, why) != TOK_OK
                   ? nn_fail(err, "tokenizer: %.480s", why)
                   : list_texts(t, name, err);
    }
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
    tok_close(t->pieces);
    free(t->model);
    free(t->text);
    free(t->offset);
    free(t);
}

/* Check that the texts of the tokens concatenate to this text. */
static int check_tokens(const nn_tokenizer *t, const int32_t *tokens, int64_t n, const unsigned char *text,
                        int64_t size, char err[NN_ERR_MAX])
{
    int64_t at = 0;
    bool equal = true;
    for (int64_t x = 0; equal && x < n; x++) {
        const size_t from = t->offset[tokens[x]];
        const int64_t bytes = (int64_t)(t->offset[tokens[x] + 1] - from);
        equal = bytes > 0 && bytes <= size - at && memcmp(t->text + from, text + at, (size_t)bytes) == 0;
        at += equal ? bytes : 0;
    }
    if (equal && at == size)
        return 0;
    long long line = 1;
    for (int64_t x = 0; x < at; x++)
        line += text[x] == '\n';
    return nn_fail(err,
                   "line %lld: the text of the word pieces differs from the file (train a model that does not change "
                   "text; docs/lab-reference.md has the command)",
                   line);
}

int32_t *nn_tokenizer_encode(const nn_tokenizer *t, const unsigned char *text, int64_t size, int64_t *n,
                             char err[NN_ERR_MAX])
{
    int32_t *tokens;
    char why[TOK_ERR_MAX];
    if (tok_encode(t->pieces, (const char *)text, size, false, &tokens, n, why) != TOK_OK)
        nn_fail(err, "tokenizer: %.480s", why);
    else if (check_tokens(t, tokens, *n, text, size, err) == 0)
        return tokens;
    free(tokens);
    return NULL;
}
