/* read_beside.c -- reads the JSON files beside a model: added_tokens.json, tokenizer_config.json and
 * special_tokens_map.json. Adds the tokens that transformers 5.24 adds for them, with the same properties and numbers:
 * those that the files number, special tokens with a name such as "eos_token", and a list of other special tokens.
 * SPDX-License-Identifier: Apache-2.0 */
#include "io/io.h"
#include "io/json.h"
#include "tokenizer/parts.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { BYTES = 259 }; /* tokens of ByT5 before its added tokens */

/* The tokens to add, in the order in which they get numbers. */
typedef struct listing {
    tokenizer *t;
    const tok_beside *files;
    json_t *added, *config, *map; /* contents of the files; NULL: there is none */
    const json_t
        *numbered;        /* added_tokens_decoder of the config; if there is one, added, map and listed are not read */
    const json_t *listed; /* added_tokens of a tokenizer.json with the rules of T5Tokenizer */
    const char *padding;  /* pad_token in "padding" of a tokenizer.json with its own rules */
    json_t *index;        /* from the content of a token to its index in tokens */
    tok_listed *tokens;
    size_t n, capacity;
    int32_t extra_ids;
    tok_source source;
    char *err;
} listing;

/* The tokens that a class gives to names such as "eos_token" if the files do not name them. */
enum { BOS, EOS, UNK, SEP, PAD, CLS, MASK, NAMES };
static const char *const names[NAMES] = {"bos_token", "eos_token", "unk_token", "sep_token",
                                         "pad_token", "cls_token", "mask_token"};
static const char *const usual_tokens[TOK_RULES][NAMES] = {
    [TOK_RULES_FILE] = {NULL, "</s>", "<unk>", NULL, "<pad>", NULL, NULL},
    [TOK_RULES_T5] = {NULL, "</s>", "<unk>", NULL, "<pad>", NULL, NULL},
    [TOK_RULES_BERT] = {NULL, NULL, "[UNK]", "[SEP]", "[PAD]", "[CLS]", "[MASK]"},
    [TOK_RULES_MPNET] = {"<s>", "</s>", "[UNK]", "</s>", "<pad>", "<s>", "<mask>"},
    [TOK_RULES_ROBERTA] = {"<s>", "</s>", "<unk>", "</s>", "<pad>", "<s>", "<mask>"},
    [TOK_RULES_ESM] = {NULL, "<eos>", "<unk>", NULL, "<pad>", "<cls>", "<mask>"}};

static const tok_file tokenizer_json = {NULL, 0, "tokenizer.json"};

static const char *name_of(const tok_file *file)
{
    return file->name != NULL ? file->name : "the tokenizer";
}

static tok_status no_memory(const tok_file *file, char err[TOK_ERR_MAX])
{
    char safe[200];
    return tok_fail(err, TOK_FAILED, "%s: out of memory", io_safe(safe, sizeof safe, name_of(file)));
}

/* Parse a file, which must be an object. *root is NULL if there is no file. Integers become reals: model_max_length may
 * be 10^30. */
static tok_status parse(const tok_file *file, json_t **root, char err[TOK_ERR_MAX])
{
    char safe[200], fault[IO_JSON_FAULT] = "it is not a JSON object (it must begin with {)";
    json_error_t error;
    bool out_of_memory;
    *root = NULL;
    if (file->text == NULL)
        return TOK_OK;
    *root = io_json(file->text, (size_t)file->size, JSON_REJECT_DUPLICATES | JSON_DECODE_INT_AS_REAL, &error,
                    &out_of_memory);
    if (out_of_memory)
        return no_memory(file, err);
    if (*root != NULL && json_is_object(*root))
        return TOK_OK;
    if (*root == NULL)
        io_json_fault(file->text, (size_t)file->size, &error, fault);
    tok_fail(err, TOK_DAMAGED, "%s: %s", io_safe(safe, sizeof safe, name_of(file)), fault);
    json_decref(*root);
    *root = NULL;
    return TOK_DAMAGED;
}

/* Return true if a number is an integer that double represents exactly, and set *n. */
static bool read_integer(const json_t *value, long long *n)
{
    const double x = json_number_value(value);
    const bool good = json_is_number(value) && x == floor(x) && fabs(x) <= 9007199254740992.0;
    *n = good ? (long long)x : 0;
    return good;
}

tok_status tok_read_extra_ids(const tok_beside *beside, int32_t *extra_ids, char err[TOK_ERR_MAX])
{
    const tok_file *file = &beside->tokenizer_config;
    char safe[200];
    json_t *root;
    tok_status status = parse(file, &root, err);
    const json_t *value = json_object_get(root, "extra_ids");
    if (status == TOK_OK && value != NULL && !json_is_null(value)) {
        long long n;
        if (!read_integer(value, &n) || n < 0 || n > TOK_MAX_EXTRA_IDS)
            status = tok_fail(err, TOK_DAMAGED, "%s: extra_ids must be an integer from 0 to %d (T5 has 100, mT5 0)",
                              io_safe(safe, sizeof safe, name_of(file)), TOK_MAX_EXTRA_IDS);
        else
            *extra_ids = (int32_t)n;
    }
    json_decref(root);
    return status;
}

/* ------------------------------------------------------------------------------------------------ one token */

/* Return the file that numbers tokens. */
static const tok_file *numbering(const listing *l)
{
    return l->numbered != NULL              ? &l->files->tokenizer_config
           : json_array_size(l->listed) > 0 ? &tokenizer_json
                                            : &l->files->added_tokens;
}

/* Fail with the number that the file gives a token, and the reason: `why`, followed by `number`. */
static tok_status refuse(const listing *l, const char *token, long long id, const char *why, int number)
{
    char safe[200], name[60];
    return tok_fail(l->err, TOK_DAMAGED, "%s: \"%s\" has the number %lld; %s %d",
                    io_safe(safe, sizeof safe, name_of(numbering(l))), io_safe(name, sizeof name, token), id, why,
                    number);
}

/* Append a token, unless a token with this content is there. That token becomes special if this one has a name, or for
 * ByT5. */
static tok_status put(listing *l, const tok_file *file, tok_listed token)
{
    const json_t *known = json_object_get(l->index, token.content);
    if (known != NULL) {
        tok_listed *same = &l->tokens[json_integer_value(known)];
        same->named = same->named || token.named;
        same->special = same->special || (token.special && (token.named || l->t->kind == TOK_BYTES));
        return TOK_OK;
    }
    tok_listed *tokens = io_grow(l->tokens, &l->capacity, l->n, sizeof *tokens);
    if (tokens == NULL)
        return no_memory(file, l->err);
    l->tokens = tokens;
    token.size = (int64_t)strlen(token.content);
    if (json_object_set_new(l->index, token.content, json_integer((json_int_t)l->n)) != 0)
        return no_memory(file, l->err);
    token.content = json_object_iter_key(json_object_iter_at(l->index, token.content)); /* a copy that stays */
    l->tokens[l->n++] = token;
    return TOK_OK;
}

/* Read a property of a token. */
static tok_status read_flag(const listing *l, const tok_file *file, const json_t *token, const char *key, bool *to)
{
    const json_t *value = json_object_get(token, key);
    char safe[200];
    if (value == NULL || json_is_null(value))
        return TOK_OK;
    if (!json_is_boolean(value))
        return tok_fail(l->err, TOK_DAMAGED, "%s: \"%s\" must be true or false",
                        io_safe(safe, sizeof safe, name_of(file)), key);
    *to = json_is_true(value);
    return TOK_OK;
}

/* Read a token, which is a string or an object with "content" and properties. content = NULL: it is neither. */
static tok_status read_token(const listing *l, const tok_file *file, const json_t *value, tok_listed *token)
{
    token->content = json_string_value(json_is_object(value) ? json_object_get(value, "content") : value);
    token->id = -1;
    if (token->content == NULL || !json_is_object(value))
        return TOK_OK;
    tok_status status = read_flag(l, file, value, "special", &token->special);
    token->normalized = !token->special;
    if (status == TOK_OK)
        status = read_flag(l, file, value, "lstrip", &token->lstrip);
    if (status == TOK_OK)
        status = read_flag(l, file, value, "rstrip", &token->rstrip);
    if (status == TOK_OK)
        status = read_flag(l, file, value, "single_word", &token->single_word);
    if (status == TOK_OK)
        status = read_flag(l, file, value, "normalized", &token->normalized);
    return status;
}

/* Append a special token of the files; if `value` is no token, do nothing. */
static tok_status put_special(listing *l, const tok_file *file, const json_t *value, bool named)
{
    tok_listed token = {.special = true, .named = named};
    tok_status status = read_token(l, file, value, &token);
    if (l->t->kind == TOK_BYTES) /* ByT5Tokenizer only keeps the content */
        token = (tok_listed){.content = token.content, .id = -1, .named = named};
    token.special = true;
    return status == TOK_OK && token.content != NULL ? put(l, file, token) : status;
}

/* ------------------------------------------------------------------------------------------------ numbered tokens */

static int by_id(const void *a, const void *b)
{
    const long long x = ((const tok_listed *)a)->id, y = ((const tok_listed *)b)->id;
    return (x > y) - (x < y);
}

/* Sort the tokens by their numbers. */
static tok_status sort(listing *l, const tok_file *file)
{
    if (l->n > 0)
        qsort(l->tokens, l->n, sizeof *l->tokens, by_id);
    for (size_t k = 0; k < l->n; k++)
        if (json_object_set_new(l->index, l->tokens[k].content, json_integer((json_int_t)k)) != 0)
            return no_memory(file, l->err);
    return TOK_OK;
}

/* Read added_tokens_decoder: {"number": token}. */
static tok_status list_decoder(listing *l)
{
    const tok_file *file = &l->files->tokenizer_config;
    char safe[200], name[60];
    const char *key;
    json_t *value;
    tok_status status = TOK_OK;
    json_object_foreach((json_t *)(uintptr_t)l->numbered, key, value)
    {
        char *end;
        tok_listed token = {.normalized = true};
        status = status == TOK_OK ? read_token(l, file, value, &token) : status;
        token.id = strtoll(key, &end, 10);
        token.special = token.special && l->t->kind != TOK_BYTES; /* ByT5 only skips those that other keys list */
        if (status == TOK_OK && (token.content == NULL || *key == 0 || *end != 0 || token.id < 0))
            status = tok_fail(l->err, TOK_DAMAGED,
                              "%s: added_tokens_decoder has the key \"%s\"; it must have a number as key, and a token "
                              "with \"content\"",
                              io_safe(safe, sizeof safe, name_of(file)), io_safe(name, sizeof name, key));
        if (status == TOK_OK)
            status = put(l, file, token);
        if (status != TOK_OK)
            return status;
    }
    return sort(l, file);
}

/* Return a list of special tokens of the config; NULL: there is none. */
static const json_t *config_list(const listing *l)
{
    const json_t *extra = json_object_get(l->config, "extra_special_tokens"),
                 *old = json_object_get(l->config, "additional_special_tokens");
    return old != NULL && json_array_size(extra) == 0 && json_object_size(extra) == 0 ? old : extra;
}

/* Return the value of a key of special_tokens_map.json, or else of the config; it may be null. *file becomes
 * its file. */
static const json_t *setting(const listing *l, const char *key, const tok_file **file)
{
    const json_t *value = l->numbered == NULL ? json_object_get(l->map, key) : NULL;
    *file = value != NULL ? &l->files->special_tokens_map : &l->files->tokenizer_config;
    return value != NULL ? value : json_object_get(l->config, key);
}

static const char *content_of(const json_t *value)
{
    return json_string_value(json_is_object(value) ? json_object_get(value, "content") : value);
}

static bool has(const json_t *list, const char *content)
{
    for (size_t k = 0; k < json_array_size(list); k++) {
        const char *one = content_of(json_array_get(list, k));
        if (one != NULL && strcmp(one, content) == 0)
            return true;
    }
    return false;
}

/* Return true if the files list the content as a special token. */
static bool is_special(const listing *l, const char *content)
{
    const tok_file *file;
    for (int k = 0; k < NAMES; k++) {
        const char *name = content_of(setting(l, names[k], &file));
        if (name != NULL && strcmp(name, content) == 0)
            return true;
    }
    return has(config_list(l), content) || has(json_object_get(l->map, "extra_special_tokens"), content);
}

/* Read added_tokens of a tokenizer.json: [token with "id"]. */
static tok_status list_listed(listing *l)
{
    char name[60];
    tok_status status = TOK_OK;
    for (size_t k = 0; k < json_array_size(l->listed) && status == TOK_OK; k++) {
        const json_t *value = json_array_get(l->listed, k), *content = json_object_get(value, "content");
        tok_listed token = {0};
        status = read_token(l, &tokenizer_json, value, &token);
        if (status == TOK_OK && (token.content == NULL || json_string_length(content) != strlen(token.content) ||
                                 !read_integer(json_object_get(value, "id"), &token.id)))
            status = tok_fail(l->err, TOK_DAMAGED,
                              "tokenizer.json: added_tokens[%zu], \"%s\", must have an integer id, and \"content\" "
                              "without NUL",
                              k, io_safe(name, sizeof name, token.content != NULL ? token.content : ""));
        if (status == TOK_OK && *token.content != 0) /* empty ones are ignored */
            status = put(l, &tokenizer_json, token);
    }
    return status == TOK_OK ? sort(l, &tokenizer_json) : status;
}

/* Read added_tokens.json: {"token": number}. A number that tokenizer.json lists keeps its token. */
static tok_status list_added(listing *l)
{
    const tok_file *file = &l->files->added_tokens;
    const tok_status listed = list_listed(l);
    const size_t n_listed = l->n;
    if (listed != TOK_OK)
        return listed;
    char safe[200], name[60];
    const char *key;
    json_t *value;
    json_object_foreach(l->added, key, value)
    {
        const bool special = is_special(l, key);
        long long id;
        if (!read_integer(value, &id))
            return tok_fail(l->err, TOK_DAMAGED, "%s: the number of \"%s\" must be an integer",
                            io_safe(safe, sizeof safe, name_of(file)), io_safe(name, sizeof name, key));
        if (id < 0)
            return refuse(l, key, id, "it must be at least", 0);
        const tok_listed token = {.content = key, .id = id, .normalized = !special, .special = special};
        const bool known = n_listed > 0 && bsearch(&token, l->tokens, n_listed, sizeof token, by_id) != NULL;
        const tok_status status = known ? TOK_OK : put(l, file, token);
        if (status != TOK_OK)
            return status;
    }
    return sort(l, file);
}

/* ------------------------------------------------------------------------------------------------ special tokens */

static bool is_name(const char *key)
{
    for (int k = 0; k < NAMES; k++)
        if (strcmp(key, names[k]) == 0)
            return true;
    return false;
}

/* Append the tokens of an object {"name": token}; with `suffix`, only names that end in "_token". */
static tok_status list_members(listing *l, const tok_file *file, const json_t *object, bool suffix)
{
    const char *key;
    json_t *value;
    tok_status status = TOK_OK;
    json_object_foreach((json_t *)(uintptr_t)object, key, value)
    {
        const size_t size = strlen(key);
        const bool token = size > 6 && strcmp(key + size - 6, "_token") == 0 && !is_name(key);
        if (status == TOK_OK && (token || !suffix))
            status = put_special(l, file, value, true);
    }
    return status;
}

/* Return true if a name that has no token in the files has its usual token. With T5Tokenizer, null means none. */
static bool has_default(const listing *l, const json_t *value, int name, const char *usual)
{
    if (l->source == TOK_FROM_JSON)
        return value == NULL || (name == EOS && l->files->rules == TOK_RULES_T5);
    return l->t->kind == TOK_BYTES ||
           (l->source == TOK_FROM_SPIECE && tok_id(l->t, usual, (int64_t)strlen(usual)) >= 0);
}

/* Append the special tokens that have a name. Except for a tokenizer.json with its own rules, the names eos, unk and
 * pad have tokens even if no file lists them; ByT5 gives them the numbers 0 to 2, and drops the white space around
 * them. */
static tok_status list_named(listing *l)
{
    static const int numbers[] = {PAD, EOS, UNK}; /* of ByT5 */
    const bool bytes = l->t->kind == TOK_BYTES;
    const tok_file *file;
    tok_status status = TOK_OK;
    bool taken[3] = {false};
    for (size_t k = 0; k < l->n; k++)
        if (l->tokens[k].id >= 0 && l->tokens[k].id < 3)
            taken[l->tokens[k].id] = true;
    for (int k = 0; k < NAMES && status == TOK_OK; k++) {
        const json_t *value = setting(l, names[k], &file);
        tok_listed token = {.special = true, .named = true};
        int d = 0;
        while (d < 3 && numbers[d] != k)
            d++;
        const char *usual = usual_tokens[l->files->rules][k];
        status = read_token(l, file, value, &token);
        token.special = true;
        if (l->files->rules == TOK_RULES_MPNET && k == MASK && !json_is_object(value))
            token.lstrip = true;
        if (token.content == NULL && usual != NULL && has_default(l, value, k, usual))
            token.content = usual;
        if (token.content == NULL && value == NULL && k == PAD)
            token.content = l->padding;
        if (bytes && (d == 3 || taken[d] || !json_is_object(value)))
            token.lstrip = token.rstrip = d < 3 && !taken[d];
        if (bytes && d < 3 && !taken[d])
            token.id = d;
        else if (bytes)
            token.single_word = false;
        if (status == TOK_OK && token.content != NULL)
            status = put(l, file, token);
    }
    const tok_file *config = &l->files->tokenizer_config, *map = &l->files->special_tokens_map;
    if (status == TOK_OK)
        status = list_members(l, config, l->config, true);
    if (status == TOK_OK && l->numbered == NULL)
        status = list_members(l, map, l->map, true);
    if (status == TOK_OK)
        status = list_members(l, config, json_object_get(l->config, "model_specific_special_tokens"), false);
    if (status == TOK_OK)
        status = list_members(l, config, json_object_get(l->config, "extra_special_tokens"), false);
    if (status == TOK_OK && l->numbered == NULL)
        status = list_members(l, map, json_object_get(l->map, "extra_special_tokens"), false);
    return status;
}

static tok_status list_array(listing *l, const tok_file *file, const json_t *list)
{
    tok_status status = TOK_OK;
    for (size_t k = 0; k < json_array_size(list) && status == TOK_OK; k++)
        status = put_special(l, file, json_array_get(list, k), false);
    return status;
}

/* Append the control pieces of a spiece.model, and with the rules of T5Tokenizer the user-defined pieces. */
static tok_status list_pieces(listing *l)
{
    tok_status status = TOK_OK;
    for (int32_t id = 0; id < l->t->n_tokens && status == TOK_OK; id++) {
        const tok_entry *e = &l->t->tokens[id];
        const tok_listed token = {.content = tok_named(l->t, e->piece), .id = -1, .special = e->type == TOK_CONTROL};
        if (e->type == TOK_CONTROL || (e->type == TOK_USER_DEFINED && l->t->kind == TOK_JSON))
            status = put(l, &l->files->tokenizer_config, token);
    }
    return status;
}

/* Append the lines of a vocab.txt of EsmTokenizer: all are found in a text. */
static tok_status list_vocab(listing *l)
{
    tok_status status = TOK_OK;
    for (int32_t id = 0; id < l->t->n_tokens && status == TOK_OK; id++) {
        const tok_entry *e = &l->t->tokens[id];
        if (e->piece >= 0 && e->size > 0)
            status = put(l, &l->files->tokenizer_config, (tok_listed){.content = tok_named(l->t, e->piece), .id = -1});
    }
    return status;
}

static bool has_extra_id(const json_t *list)
{
    bool found = false;
    for (size_t k = 0; k < json_array_size(list) && !found; k++) {
        const char *content = content_of(json_array_get(list, k));
        found = content != NULL && strstr(content, "<extra_id_") != NULL;
    }
    return found;
}

static tok_status list_extra_ids(listing *l)
{
    tok_status status = TOK_OK;
    for (int32_t k = 0; k < l->extra_ids && status == TOK_OK; k++) {
        char text[32];
        sprintf(text, "<extra_id_%d>", k);
        status = put(l, &l->files->tokenizer_config, (tok_listed){.content = text, .id = -1, .special = true});
    }
    return status;
}

/* Append the other special tokens: those of a list, or else the special pieces of the model and <extra_id_N>. */
static tok_status list_others(listing *l)
{
    const tok_file *config = &l->files->tokenizer_config, *map = &l->files->special_tokens_map;
    const json_t *list = config_list(l), *extra = NULL, *old = NULL;
    if (l->numbered == NULL) {
        extra = json_object_get(l->map, "extra_special_tokens");
        old = json_object_get(l->map, "additional_special_tokens");
    }
    if (old == NULL && json_is_object(list)) /* the config has both lists, and one has names */
        old = json_object_get(l->config, "additional_special_tokens");
    tok_status status = list_array(l, config, list);
    if (status == TOK_OK)
        status = list_array(l, map, extra);
    if (status != TOK_OK || (list != NULL && !json_is_object(list)) || json_is_array(extra))
        return status;
    if (l->source == TOK_FROM_SPIECE)
        status = list_pieces(l);
    else if (json_array_size(old) > 0)
        status = list_array(l, map, old);
    const bool complete =
        l->source != TOK_FROM_SPIECE && json_array_size(old) > 0 && (l->t->kind == TOK_BYTES || has_extra_id(old));
    return status == TOK_OK && !complete ? list_extra_ids(l) : status;
}

/* ------------------------------------------------------------------------------------------------ adding */

/* Find the number of a token. *next is the number of the next new token. */
static tok_status find_number(const listing *l, const tok_listed *token, int32_t *next, int32_t *id)
{
    const tokenizer *t = l->t;
    const bool bytes = t->kind == TOK_BYTES, given = token->id != -1;
    const int32_t known = bytes ? -1 : tok_id(t, token->content, token->size);
    if (token->size == 0 || token->size > TOK_MAX_PIECE)
        return refuse(l, token->content, token->id,
                      token->size == 0 ? "the token is empty; its length in bytes must be 1 to"
                                       : "the token is too long; its length in bytes must be 1 to",
                      TOK_MAX_PIECE);
    *id = known >= 0 ? known : *next;
    if (bytes && given) /* ByT5 keeps the numbers of the files */
        *id = token->id >= 0 && token->id <= TOK_MAX_EXTRA_IDS ? (int32_t)token->id : TOK_MAX_EXTRA_IDS + 1;
    if (bytes && *id >= 3 && *id < BYTES)
        return refuse(l, token->content, token->id, "tokens 3 to 258 are bytes, so it must be at least", BYTES);
    if (*id > (bytes ? TOK_MAX_EXTRA_IDS : TOK_MAX_TOKENS - 1))
        return refuse(l, token->content, given ? token->id : *id, "it must be at most",
                      bytes ? TOK_MAX_EXTRA_IDS : TOK_MAX_TOKENS - 1);
    if (known >= 0 && given && token->id != known && l->source != TOK_FROM_FILE)
        return refuse(l, token->content, token->id, "in the model it is token", known);
    if (known < 0 && given && !bytes && token->id != *id)
        return refuse(l, token->content, token->id, "new tokens must have consecutive numbers, and the next is", *id);
    *next += known < 0 && *id >= (bytes ? BYTES : 0);
    return TOK_OK;
}

/* Add the listed tokens. */
static tok_status add_all(listing *l)
{
    tokenizer *t = l->t;
    const int32_t first = t->n_tokens;
    int32_t next = first, end = first;
    bool sorted = true;
    char safe[200];
    tok_status status = TOK_OK;
    io_safe(safe, sizeof safe, name_of(numbering(l)));
    if (l->n > (size_t)(TOK_MAX_TOKENS - first))
        return tok_fail(l->err, TOK_DAMAGED,
                        "%s: it adds %zu tokens to the %d of the model; the total must be at most %d (remove some)",
                        safe, l->n, first, TOK_MAX_TOKENS);
    if (!tok_added_make(t, (int64_t)l->n) || !tok_tokens_make(t, first + (int32_t)l->n))
        return no_memory(numbering(l), l->err);
    for (size_t k = 0; k < l->n && status == TOK_OK; k++) {
        int32_t id = 0;
        status = find_number(l, &l->tokens[k], &next, &id);
        if (status == TOK_OK && id >= t->n_tokens && !tok_tokens_make(t, id + 1))
            status = no_memory(numbering(l), l->err);
        if (status != TOK_OK)
            break;
        sorted = sorted && t->tokens[id].piece >= 0;
        if (l->source == TOK_FROM_FILE && t->tokens[id].added > 0 &&
            l->numbered == NULL) /* a tokenizer.json lists it */
            t->tokens[id].special = t->tokens[id].special || l->tokens[k].named;
        else
            status = tok_add(t, id, &l->tokens[k], safe, l->err);
        end = id >= end ? id + 1 : end;
    }
    t->n_tokens = end;
    if (status != TOK_OK || sorted)
        return status;
    free(t->by_piece);
    t->by_piece = NULL;
    t->n_named = 0;
    return tok_tokens_sort(t, safe, l->err);
}

/* Return the number of the token with a name, such as "eos_token"; -1: none. */
static int32_t number_of(const listing *l, int name)
{
    const tok_file *file;
    const json_t *value = setting(l, names[name], &file);
    const char *content = value != NULL ? content_of(value) : usual_tokens[l->files->rules][name];
    return content != NULL ? tok_id(l->t, content, (int64_t)strlen(content)) : -1;
}

/* Set the rules of BertTokenizer that tokenizer_config.json decides. */
static tok_status set_bert_rules(const listing *l)
{
    const tok_file *file = &l->files->tokenizer_config;
    tok_bert bert = {.clean = true, .ideographs = true, .lower = true};
    tok_status status = read_flag(l, file, l->config, "do_lower_case", &bert.lower);
    bert.strip = bert.lower; /* without a value, as do_lower_case */
    if (status == TOK_OK)
        status = read_flag(l, file, l->config, "strip_accents", &bert.strip);
    if (status == TOK_OK)
        status = read_flag(l, file, l->config, "tokenize_chinese_chars", &bert.ideographs);
    return status == TOK_OK && !tok_set_bert_rules(l->t, &bert) ? no_memory(file, l->err) : status;
}

/* Set the rules of RobertaTokenizer, which has no normalizer, and that tokenizer_config.json decides. */
static tok_status set_roberta_rules(const listing *l)
{
    const tok_file *file = &l->files->tokenizer_config;
    tokenizer *t = l->t;
    t->n_norms = 0;
    t->split = TOK_SPLIT_GPT2;
    t->prefix_space = false;
    t->trim = true;
    tok_status status = read_flag(l, file, l->config, "add_prefix_space", &t->prefix_space);
    if (status == TOK_OK)
        status = read_flag(l, file, l->config, "trim_offsets", &t->trim);
    t->trim_first = t->prefix_space;
    return status;
}

/* Set the tokens around a text and for unknown words. */
static tok_status set_tokens(const listing *l)
{
    tokenizer *t = l->t;
    const int needed[] = {UNK, CLS, l->files->rules == TOK_RULES_ESM ? EOS : SEP};
    int32_t ids[3];
    char safe[200];
    for (int k = 0; k < 3; k++) {
        ids[k] = number_of(l, needed[k]);
        if (ids[k] < 0 || (k == 0 && t->tokens[ids[k]].type != TOK_NORMAL))
            return tok_fail(l->err, TOK_DAMAGED, "%s: %s must be a token%s, such as \"%s\"",
                            io_safe(safe, sizeof safe, name_of(&l->files->tokenizer_config)), names[needed[k]],
                            k == 0 ? " of the vocabulary" : "", usual_tokens[l->files->rules][needed[k]]);
    }
    t->unk = ids[0];
    t->trim = l->files->rules == TOK_RULES_MPNET;
    tok_set_around(t, ids[1], ids[2], t->trim);
    return TOK_OK;
}

/* Set the end token to the one that a file names. */
static void set_eos(const listing *l)
{
    const tok_file *file;
    const char *eos = content_of(setting(l, names[EOS], &file));
    if (eos == NULL && (l->t->kind == TOK_BYTES || l->source == TOK_FROM_JSON))
        eos = usual_tokens[l->files->rules][EOS];
    if (eos != NULL)
        l->t->eos = tok_id(l->t, eos, (int64_t)strlen(eos));
}

tok_status tok_add_beside(tokenizer *t, const tok_beside *beside, int32_t extra_ids, tok_source source,
                          const json_t *json, char err[TOK_ERR_MAX])
{
    listing l = {.t = t, .files = beside, .extra_ids = extra_ids, .source = source, .err = err};
    l.listed = source == TOK_FROM_JSON ? json_object_get(json, "added_tokens") : NULL;
    l.padding = source == TOK_FROM_FILE
                    ? json_string_value(json_object_get(json_object_get(json, "padding"), "pad_token"))
                    : NULL;
    tok_status status = parse(&beside->tokenizer_config, &l.config, err);
    if (status == TOK_OK)
        status = parse(&beside->special_tokens_map, &l.map, err);
    if (status == TOK_OK)
        status = parse(&beside->added_tokens, &l.added, err);
    l.numbered = json_object_get(l.config, "added_tokens_decoder");
    l.index = json_object();
    if (status == TOK_OK && l.index == NULL)
        status = no_memory(&beside->tokenizer_config, err);
    const tok_rules rules = source == TOK_FROM_JSON ? beside->rules : TOK_RULES_FILE;
    if (status == TOK_OK && tok_is_bert(rules))
        status = set_bert_rules(&l);
    if (status == TOK_OK && beside->rules == TOK_RULES_ROBERTA && t->model == TOK_BPE)
        status = set_roberta_rules(&l);
    if (status == TOK_OK)
        status = l.numbered != NULL ? list_decoder(&l) : list_added(&l);
    if (status == TOK_OK)
        status = list_named(&l);
    if (status == TOK_OK)
        status = list_others(&l);
    if (status == TOK_OK && rules == TOK_RULES_ESM) {
        tok_set_words(t, "", 0, INT64_MAX);
        t->split = TOK_SPLIT_PYTHON;
        status = list_vocab(&l);
    }
    if (status == TOK_OK)
        status = add_all(&l);
    if (status == TOK_OK)
        set_eos(&l);
    if (status == TOK_OK && tok_has_vocab(rules))
        status = set_tokens(&l);
    json_decref(l.added);
    json_decref(l.config);
    json_decref(l.map);
    json_decref(l.index);
    free(l.tokens);
    return status;
}
