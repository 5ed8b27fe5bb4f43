/* add.c -- adds a token that is searched for in a text before the rest is split into pieces, for the readers.
 * SPDX-License-Identifier: Apache-2.0 */
#include "io/io.h"
#include "tokenizer/parts.h"

#include <stdlib.h>

bool tok_added_make(tokenizer *t, int64_t n)
{
    const int64_t max = t->n_added + n;
    if (max <= t->max_added && t->added != NULL)
        return true;
    tok_added *added = realloc(t->added, ((size_t)max + 1) * sizeof *added);
    if (added == NULL)
        return false;
    t->added = added;
    t->max_added = (int32_t)max;
    return true;
}

static tok_status no_memory(const char *name, char err[TOK_ERR_MAX])
{
    return tok_fail(err, TOK_FAILED, "%s: out of memory", name);
}

/* Set the normalized form of a token. The encoder searches for it in the normalized text; with the rules of
 * `tokenizers`, the decoder reads it. */
static tok_status set_normalized(tokenizer *t, tok_added *added, const tok_listed *token, const char *name,
                                 char err[TOK_ERR_MAX])
{
    tok_work w = {.t = t};
    int64_t front = 1;
    char safe[60];
    tok_status status = TOK_OK;
    if (t->kind == TOK_JSON)
        tok_normalize_json(&w, token->content, token->size, 0, &front);
    else
        tok_normalize_characters(&w, &w.normalized, token->content, token->size);
    const tok_text *made = &w.normalized;
    io_safe(safe, sizeof safe, token->content);
    if (made->too_long || w.other.too_long)
        status = tok_fail(err, TOK_DAMAGED,
                          "%s: the normalizer turns the N bytes of the added token \"%s\" into more than 64 N + 1024",
                          name, safe);
    else if (made->failed || w.other.failed)
        status = no_memory(name, err);
    else if (made->size == 0)
        status =
            tok_fail(err, TOK_DAMAGED,
                     "%s: the added token \"%s\" is empty after normalization (set \"normalized\": false)", name, safe);
    else if (made->size != token->size || memcmp(made->bytes, token->content, (size_t)token->size) != 0) {
        added->content = tok_name(t, made->bytes, made->size);
        added->size = (int32_t)made->size;
        t->tokens[added->id].decoded = added->content;
        t->tokens[added->id].decoded_size = added->size;
        status = added->content < 0 ? no_memory(name, err) : TOK_OK;
    }
    tok_work_free(&w);
    return status;
}

/* Return true if a number has another piece. ByT5Tokenizer numbers its new tokens without regard to gaps in the numbers
 * of a file; the later of two tokens with one number replaces the first. */
static bool is_replaced(const tokenizer *t, const tok_entry *entry, const tok_listed *token)
{
    return t->kind == TOK_BYTES && entry->piece >= 0 &&
           (entry->size != token->size || memcmp(tok_named(t, entry->piece), token->content, (size_t)token->size) != 0);
}

tok_status tok_add(tokenizer *t, int32_t id, const tok_listed *token, const char *name, char err[TOK_ERR_MAX])
{
    const tok_entry before = t->tokens[id];
    if (is_replaced(t, &before, token))
        t->tokens[id].piece = -1;
    if (t->tokens[id].piece < 0 && !tok_token_set(t, id, token->content, token->size, TOK_UNUSED, 0))
        return no_memory(name, err);
    tok_entry *entry = &t->tokens[id];
    entry->added = before.added;
    entry->special = before.special || token->special;
    entry->decoded = entry->piece;
    entry->decoded_size = entry->size;
    if (entry->added == 0)
        entry->added = ++t->n_added;
    tok_added *added = &t->added[entry->added - 1];
    const bool normalized = token->normalized && t->kind != TOK_BYTES; /* ByT5 has no normalizer */
    *added = (tok_added){id, token->lstrip, token->rstrip, token->single_word, normalized, entry->piece, entry->size};
    return normalized ? set_normalized(t, added, token, name, err) : TOK_OK;
}

/* `tokenizers` skips a token if the text that its decoder reads is a special token. So a special token that the
 * normalizer changes is not always skipped. */
static void set_skipped(tokenizer *t)
{
    for (int32_t k = 0; k < t->n_added; k++) {
        tok_entry *token = &t->tokens[t->added[k].id];
        const int32_t seen =
            token->decoded == token->piece ? -1 : tok_id(t, tok_named(t, token->decoded), token->decoded_size);
        if (token->decoded != token->piece)
            token->special = seen >= 0 && seen != t->added[k].id && t->tokens[seen].special;
    }
}

bool tok_added_finish(tokenizer *t)
{
    if (t->kind == TOK_JSON)
        set_skipped(t);
    return tok_matchers_make(t);
}
