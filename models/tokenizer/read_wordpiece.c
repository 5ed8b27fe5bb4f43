/* read_wordpiece.c -- reads the model WordPiece of a tokenizer.json, and a vocab.txt.
 * SPDX-License-Identifier: Apache-2.0 */
#include "io/io.h"
#include "tokenizer/read_json.h"

#include <stdlib.h>

enum { MAX_GAPS = 1 << 16 }; /* max numbers without a piece below the number of pieces */

/* Check the numbers of the pieces, and raise *end to 1 + the largest. */
static tok_status check_numbers(const tok_reader *r, const json_t *vocab, int32_t *end)
{
    const size_t n = json_object_size(vocab);
    const char *piece;
    json_t *value;
    char safe[60];
    if (n < 1 || n > TOK_MAX_TOKENS - MAX_GAPS)
        return tok_reader_fail(r, TOK_DAMAGED, "model.vocab has %zu pieces; it must have 1 to %d, as {\"the\": 1996}",
                               n, TOK_MAX_TOKENS - MAX_GAPS);
    json_object_foreach((json_t *)(uintptr_t)vocab, piece, value)
    {
        const long long id = json_integer_value(value);
        const int32_t most = (int32_t)n + MAX_GAPS - 1;
        io_safe(safe, sizeof(safe), piece);
        if (!json_is_integer(value))
            return tok_reader_fail(r, TOK_DAMAGED, "model.vocab has no integer for \"%s\"; it must be 0 to %d", safe,
                                   most);
        if (id < 0 || id > most)
            return tok_reader_fail(r, TOK_DAMAGED, "model.vocab has %lld for \"%s\"; it must be 0 to %d", id, safe,
                                   most);
        if (strlen(piece) > TOK_MAX_PIECE)
            return tok_reader_fail(r, TOK_DAMAGED, "piece %lld of model.vocab has %zu bytes; it must have at most %d",
                                   id, strlen(piece), TOK_MAX_PIECE);
        *end = id >= *end ? (int32_t)id + 1 : *end;
    }
    return TOK_OK;
}

/* Set the pieces. */
static tok_status read_pieces(tok_reader *r, const json_t *vocab)
{
    tokenizer *t = r->t;
    const char *piece;
    json_t *value;
    char safe[60], other[60];
    int32_t end = 0;
    const tok_status status = check_numbers(r, vocab, &end);
    if (status != TOK_OK)
        return status;
    if (!tok_tokens_make(t, end))
        return tok_reader_memory(r);
    json_object_foreach((json_t *)(uintptr_t)vocab, piece, value)
    {
        const int32_t id = (int32_t)json_integer_value(value);
        if (t->tokens[id].piece >= 0)
            return tok_reader_fail(r, TOK_DAMAGED, "model.vocab has %d for both \"%s\" and \"%s\"; it must be unique",
                                   id, io_safe(other, sizeof(other), tok_named(t, t->tokens[id].piece)),
                                   io_safe(safe, sizeof(safe), piece));
        if (!tok_token_set(t, id, piece, (int64_t)strlen(piece), TOK_NORMAL, 0))
            return tok_reader_memory(r);
    }
    return TOK_OK;
}

static bool is_piece(const tok_entry *token)
{
    return token->type == TOK_NORMAL;
}

tok_status tok_read_numbered(tok_reader *r, const json_t *vocab)
{
    tokenizer *t = r->t;
    const tok_status status = read_pieces(r, vocab);
    if (status != TOK_OK)
        return status;
    if (!tok_pieces_trie(t, &t->pieces, is_piece))
        return tok_reader_memory(r);
    if (t->pieces.units == NULL)
        return tok_reader_fail(r, TOK_DAMAGED, "the vocabulary has only an empty piece; at least one must have a byte");
    return TOK_OK;
}

tok_status tok_read_wordpiece(tok_reader *r, const json_t *model)
{
    tokenizer *t = r->t;
    const char *unk, *prefix;
    int64_t unk_size, prefix_size;
    char safe[60];
    const json_t *max = json_object_get(model, "max_input_chars_per_word");
    tok_status status = tok_json_string(r, model, "model", "unk_token", &unk, &unk_size);
    if (status == TOK_OK)
        status = tok_json_string(r, model, "model", "continuing_subword_prefix", &prefix, &prefix_size);
    if (status == TOK_OK && (!json_is_integer(max) || json_integer_value(max) < 0))
        status = tok_reader_fail(r, TOK_DAMAGED,
                                 "model.max_input_chars_per_word is %s; it must be an integer of at least 0, such as "
                                 "100",
                                 max == NULL ? "missing" : "no such number");
    if (status == TOK_OK)
        status = tok_read_numbered(r, json_object_get(model, "vocab"));
    if (status != TOK_OK)
        return status;
    t->model = TOK_WORDPIECE;
    tok_set_words(t, prefix, prefix_size, json_integer_value(max));
    t->unk = tok_trie_exact(&t->pieces, unk, unk_size);
    if (t->unk < 0)
        return tok_reader_fail(r, TOK_DAMAGED, "model.unk_token is \"%s\", which model.vocab does not have",
                               io_safe(safe, sizeof(safe), unk));
    return TOK_OK;
}

/* Return the end of a text without the white space at its end. */
static int64_t without_space(const char *text, int64_t size)
{
    uint32_t c;
    while (size > 0) {
        int64_t last = size - 1;
        while (last > 0 && ((unsigned char)text[last] & 0xc0) == 0x80)
            last--;
        if (tok_utf8(text + last, size - last, &c) == 0 || !tok_is_space(c))
            break;
        size = last;
    }
    return size;
}

/* Make the vocabulary {"piece": number} of a vocab.txt. Of equal lines, the last counts. Return NULL if out of
 * memory. */
static json_t *vocab_of(const char *data, int64_t size)
{
    json_t *vocab = json_object();
    char *line = malloc((size_t)size + 1);
    int32_t id = 0;
    bool good = vocab != NULL && line != NULL;
    for (int64_t at = 0; at < size && good; id++) {
        const char *end = memchr(data + at, '\n', (size_t)(size - at));
        const int64_t n = end != NULL ? end - (data + at) : size - at, kept = without_space(data + at, n);
        memcpy(line, data + at, (size_t)kept);
        line[kept] = 0;
        good = json_object_set_new_nocheck(vocab, line, json_integer(id)) == 0;
        at += n + 1;
    }
    free(line);
    if (!good) {
        json_decref(vocab);
        vocab = NULL;
    }
    return vocab;
}

tok_status tok_read_vocab(tokenizer *t, const char *data, int64_t size, const char *name, const tok_beside *beside,
                          char err[TOK_ERR_MAX])
{
    tok_reader r = {t, name, err, NULL};
    if (!tok_utf8_valid(data, size) || memchr(data, 0, (size_t)size) != NULL)
        return tok_reader_fail(&r, TOK_DAMAGED, "it is no vocab.txt, which must be UTF-8 without NUL");
    json_t *vocab = vocab_of(data, size);
    if (vocab == NULL)
        return tok_reader_memory(&r);
    t->model = TOK_WORDPIECE;
    tok_status status = tok_read_numbered(&r, vocab);
    json_decref(vocab);
    if (status == TOK_OK)
        status = tok_tokens_sort(t, name, err);
    return status == TOK_OK ? tok_add_beside(t, beside, 0, TOK_FROM_JSON, NULL, err) : status;
}
