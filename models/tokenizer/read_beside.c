/* read_beside.c -- reads the JSON files beside a spiece.model, like transformers: the number of tokens <extra_id_N>,
 * and tokens that were added later, such as <AA2fold> of ProstT5.
 * SPDX-License-Identifier: Apache-2.0 */
#include "io/io.h"
#include "io/json.h"
#include "tokenizer/parts.h"

#include <jansson.h>
#include <stdlib.h>

static tok_status no_memory(const tok_file *file, char err[TOK_ERR_MAX])
{
    char safe[200];
    return tok_fail(err, TOK_FAILED, "%s: out of memory", io_safe(safe, sizeof safe, file->name));
}

/* Parse a file, which must be an object. *root is NULL if there is no file. */
static tok_status parse(const tok_file *file, json_t **root, char err[TOK_ERR_MAX])
{
    char safe[200], why[200];
    json_error_t error;
    bool out_of_memory;
    *root = NULL;
    if (file->text == NULL)
        return TOK_OK;
    *root = io_json(file->text, (size_t)file->size, JSON_REJECT_DUPLICATES, &error, &out_of_memory);
    if (out_of_memory)
        return no_memory(file, err);
    if (*root != NULL && json_is_object(*root))
        return TOK_OK;
    tok_fail(err, TOK_DAMAGED, "%s: line %d: %s (it is not valid JSON: download the file again)",
             io_safe(safe, sizeof safe, file->name), *root == NULL ? error.line : 1,
             io_safe(why, sizeof why, *root == NULL ? error.text : "it is not an object"));
    json_decref(*root);
    *root = NULL;
    return TOK_DAMAGED;
}

tok_status tok_read_extra_ids(const tok_beside *beside, int32_t *extra_ids, char err[TOK_ERR_MAX])
{
    const tok_file *file = &beside->tokenizer_config;
    char safe[200];
    json_t *root;
    tok_status status = parse(file, &root, err);
    const json_t *value = json_object_get(root, "extra_ids");
    if (status == TOK_OK && value != NULL && !json_is_null(value)) {
        const long long n = json_integer_value(value);
        if (!json_is_integer(value) || n < 0 || n > TOK_MAX_EXTRA_IDS)
            status = tok_fail(err, TOK_DAMAGED, "%s: extra_ids must be an integer from 0 to %d (T5 has 100, mT5 0)",
                              io_safe(safe, sizeof safe, file->name), TOK_MAX_EXTRA_IDS);
        else
            *extra_ids = (int32_t)n;
    }
    json_decref(root);
    return status;
}

/* ---- special tokens */

/* Add a token to a set. The token is a string or an object with "content". Return false if out of memory. */
static bool collect_token(json_t *set, const json_t *value)
{
    const char *text = json_string_value(json_is_object(value) ? json_object_get(value, "content") : value);
    return text == NULL || json_object_set_new(set, text, json_true()) == 0;
}

/* Add the special tokens that a file lists. */
static bool collect_special(json_t *set, const json_t *root)
{
    static const char *const keys[] = {"bos_token", "eos_token", "unk_token", "sep_token",
                                       "pad_token", "cls_token", "mask_token"},
                             *const lists[] = {"additional_special_tokens", "extra_special_tokens"};
    bool good = true;
    for (size_t k = 0; k < sizeof keys / sizeof *keys; k++)
        good = good && collect_token(set, json_object_get(root, keys[k]));
    for (size_t k = 0; k < sizeof lists / sizeof *lists; k++) {
        const json_t *list = json_object_get(root, lists[k]);
        for (size_t n = 0; n < json_array_size(list) && good; n++)
            good = collect_token(set, json_array_get(list, n));
    }
    return good;
}

/* ---- added tokens */

typedef struct adding {
    tokenizer *t;
    const tok_file *file;
    const json_t *special; /* object whose keys are the special tokens */
    int32_t first, n;      /* number of the first new token; how many new tokens were read */
    char *err;
} adding;

/* Fail with the number that the file gives a token, and the reason: `why`, followed by `number`. */
static tok_status refuse(const adding *a, const char *token, long long id, const char *why, int number)
{
    char safe[200], name[60];
    return tok_fail(a->err, TOK_DAMAGED, "%s: \"%s\" has the number %lld; %s %d",
                    io_safe(safe, sizeof safe, a->file->name), io_safe(name, sizeof name, token), id, why, number);
}

/* Set the normalized form of a token that is searched for in the normalized text. */
static tok_status set_normalized(const adding *a, tok_added *added, const char *token)
{
    tok_work w = {.t = a->t};
    tok_text text = {0};
    tok_status status = TOK_OK;
    char safe[200], name[60];
    tok_normalize_characters(&w, &text, token, (int64_t)strlen(token));
    if (text.failed && !text.too_long)
        status = no_memory(a->file, a->err);
    else if (text.too_long || text.size == 0)
        status = tok_fail(a->err, TOK_DAMAGED, "%s: \"%s\" is %s after normalization",
                          io_safe(safe, sizeof safe, a->file->name), io_safe(name, sizeof name, token),
                          text.too_long ? "too long" : "empty");
    else if ((added->content = tok_name(a->t, text.bytes, text.size)) < 0)
        status = no_memory(a->file, a->err);
    added->size = (int32_t)text.size;
    free(text.bytes);
    return status;
}

static tok_status add_one(adding *a, const char *token, const json_t *value)
{
    tokenizer *t = a->t;
    const int64_t size = (int64_t)strlen(token);
    const int32_t known = tok_id(t, token, size);
    const long long id = json_integer_value(value);
    char safe[200], name[60];
    if (!json_is_integer(value))
        return tok_fail(a->err, TOK_DAMAGED, "%s: the number of \"%s\" must be an integer of at least %d",
                        io_safe(safe, sizeof safe, a->file->name), io_safe(name, sizeof name, token), a->first);
    if (size == 0 || size > TOK_MAX_PIECE)
        return refuse(a, token, id,
                      size == 0 ? "the token is empty; its length in bytes must be 1 to"
                                : "the token is too long; its length in bytes must be 1 to",
                      TOK_MAX_PIECE);
    if (known >= 0 && id != known)
        return refuse(a, token, id, "in the model it is token", known);
    if (known >= 0 && t->tokens[known].type == TOK_UNUSED && t->tokens[known].special)
        return TOK_OK; /* <extra_id_N> */
    const int32_t count = (int32_t)(t->n_tokens - a->first);
    if (known < 0 && (id < a->first || id >= (long long)a->first + count || t->tokens[id].piece >= 0))
        return refuse(a, token, id, "new tokens must have consecutive numbers, beginning with", a->first);
    const bool special = json_object_get(a->special, token) != NULL;
    if (known < 0 && !tok_token_set(t, (int32_t)id, token, size, TOK_UNUSED, 0))
        return no_memory(a->file, a->err);
    t->tokens[id].special = t->tokens[id].special || special;
    a->n += known < 0;
    tok_added added = {(int32_t)id, false, false, !special, t->tokens[id].piece, (int32_t)size};
    const tok_status status = added.normalized ? set_normalized(a, &added, token) : TOK_OK;
    t->added[t->n_added++] = added;
    return status;
}

/* Check that the token numbers have no gap, and sort the pieces again. */
static tok_status finish(adding *a)
{
    tokenizer *t = a->t;
    char safe[200];
    for (int32_t id = a->first; id < a->first + a->n; id++)
        if (t->tokens[id].piece < 0)
            return tok_fail(
                a->err, TOK_DAMAGED,
                "%s: it adds %d tokens after token %d, but token %d is missing (add it, or download the file again)",
                io_safe(safe, sizeof safe, a->file->name), a->n, a->first - 1, id);
    t->n_tokens = a->first + a->n;
    free(t->by_piece);
    t->by_piece = NULL;
    return tok_tokens_sort(t, io_safe(safe, sizeof safe, a->file->name), a->err);
}

static tok_status add_all(adding *a, json_t *root)
{
    tokenizer *t = a->t;
    const size_t n = json_object_size(root);
    char safe[200];
    if (n > TOK_MAX_TOKENS - (size_t)t->n_tokens)
        return tok_fail(a->err, TOK_DAMAGED,
                        "%s: it adds %zu tokens to the %d of the model; the total must be at most %d (remove some)",
                        io_safe(safe, sizeof safe, a->file->name), n, t->n_tokens, TOK_MAX_TOKENS);
    tok_added *added = realloc(t->added, ((size_t)t->n_added + n + 1) * sizeof *added);
    if (added == NULL)
        return no_memory(a->file, a->err);
    t->added = added;
    if (!tok_tokens_make(t, t->n_tokens + (int32_t)n))
        return no_memory(a->file, a->err);
    tok_status status = TOK_OK;
    const char *token;
    json_t *value;
    json_object_foreach(root, token, value)
    {
        if (status == TOK_OK)
            status = add_one(a, token, value);
    }
    return status == TOK_OK ? finish(a) : status;
}

tok_status tok_add_beside(tokenizer *t, const tok_beside *beside, char err[TOK_ERR_MAX])
{
    const tok_file *const files[] = {&beside->tokenizer_config, &beside->special_tokens_map};
    json_t *root, *special = json_object();
    tok_status status = parse(&beside->added_tokens, &root, err);
    bool collected = special != NULL;
    for (int k = 0; k < 2 && root != NULL && status == TOK_OK && collected; k++) {
        json_t *about;
        status = parse(files[k], &about, err);
        collected = collect_special(special, about);
        json_decref(about);
    }
    if (status == TOK_OK && root != NULL && !collected)
        status = no_memory(&beside->added_tokens, err);
    adding a = {t, &beside->added_tokens, special, t->n_tokens, 0, err};
    if (status == TOK_OK && root != NULL)
        status = add_all(&a, root);
    json_decref(root);
    json_decref(special);
    return status;
}
