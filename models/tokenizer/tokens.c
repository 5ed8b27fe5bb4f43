/* tokens.c -- the list of tokens and their pieces: functions for the readers that fill it, and for lookups.
 * SPDX-License-Identifier: Apache-2.0 */
#include "io/io.h"
#include "tokenizer/parts.h"

#include <stdlib.h>

int64_t tok_name(tokenizer *t, const char *text, int64_t size)
{
    const int64_t place = t->names.size;
    tok_text_add(&t->names, text, size);
    tok_text_add_byte(&t->names, 0);
    return t->names.failed ? -1 : place;
}

void tok_set_end(tokenizer *t, int32_t end)
{
    const int n = end >= 0 ? 2 : 1;
    t->single = (tok_template){{{TOK_FIRST_TEXT, 0}, {end, 0}}, n};
    t->pair = (tok_template){{{TOK_FIRST_TEXT, 0}, {TOK_SECOND_TEXT, 1}}, 2};
    if (end >= 0)
        t->pair = (tok_template){{{TOK_FIRST_TEXT, 0}, {end, 0}, {TOK_SECOND_TEXT, 0}, {end, 0}}, 4};
}

bool tok_tokens_make(tokenizer *t, int32_t n)
{
    tok_entry *tokens = realloc(t->tokens, ((size_t)n + 1) * sizeof(*tokens));
    if (tokens == NULL)
        return false;
    t->tokens = tokens;
    for (int32_t id = t->n_tokens; id < n; id++)
        tokens[id] = (tok_entry){.piece = -1, .type = TOK_UNUSED};
    t->n_tokens = n;
    return true;
}

bool tok_token_set(tokenizer *t, int32_t id, const char *piece, int64_t size, tok_type type, double score)
{
    const int64_t place = tok_name(t, piece, size);
    t->tokens[id] = (tok_entry){place, (int32_t)size, (int32_t)size, place, score, (uint8_t)type, false, 0};
    return place >= 0;
}

static tok_key key_of(const tokenizer *t, int32_t id)
{
    return (tok_key){tok_named(t, t->tokens[id].piece), t->tokens[id].size, id};
}

static int by_key(const void *a, const void *b)
{
    return tok_key_order(a, b);
}

/* A token, and the first eight bytes of its piece as a number. Most pieces differ in this number, so comparing it is
 * usually enough. */
typedef struct sorting {
    uint64_t first;
    int32_t id;
} sorting;

static uint64_t first_bytes(const tok_key *key)
{
    uint64_t first = 0;
    for (int64_t x = 0; x < 8; x++)
        first = first << 8 | (x < key->size ? (unsigned char)key->bytes[x] : 0);
    return first;
}

/* Sort by the first eight bytes with a stable radix sort, which is several times faster than qsort. `from` and `to`
 * have n elements each; return whichever contains the result. */
static sorting *sort_by_first(sorting *from, sorting *to, int64_t n)
{
    static const size_t values = 256;
    int64_t counts[8][256] = {{0}};
    for (int64_t k = 0; k < n; k++)
        for (int byte = 0; byte < 8; byte++)
            counts[byte][from[k].first >> 8 * byte & 0xff]++;
    for (int byte = 0; byte < 8; byte++) {
        int64_t starts[256], sum = 0;
        for (size_t value = 0; value < values; value++)
            starts[value] = sum, sum += counts[byte][value];
        for (int64_t k = 0; k < n; k++)
            to[starts[from[k].first >> 8 * byte & 0xff]++] = from[k];
        sorting *const sorted = to;
        to = from;
        from = sorted;
    }
    return from;
}

/* Return the sorted pieces for which takes() is true (takes = NULL: all pieces); NULL if out of memory. */
static tok_key *sorted_keys(const tokenizer *t, bool (*takes)(const tok_entry *), int64_t *n)
{
    const size_t most = (size_t)t->n_tokens + 1;
    tok_key *keys = malloc(most * sizeof(*keys));
    sorting *both = malloc(2 * most * sizeof(*both));
    *n = 0;
    if (keys == NULL || both == NULL) {
        free(keys);
        free(both);
        return NULL;
    }
    for (int32_t id = 0; id < t->n_tokens; id++)
        if (t->tokens[id].piece >= 0 && (takes == NULL || (t->tokens[id].size > 0 && takes(&t->tokens[id])))) {
            const tok_key key = key_of(t, id);
            both[(*n)++] = (sorting){first_bytes(&key), id};
        }
    const sorting *sorted = sort_by_first(both, both + most, *n);
    for (int64_t k = 0, end; k < *n; k = end) {
        for (end = k; end < *n && sorted[end].first == sorted[k].first; end++)
            keys[end] = key_of(t, sorted[end].id);
        if (end - k > 1)
            qsort(keys + k, (size_t)(end - k), sizeof(*keys), by_key);
    }
    free(both);
    return keys;
}

tok_status tok_tokens_sort(tokenizer *t, const char *name, char err[TOK_ERR_MAX])
{
    int64_t n;
    tok_key *keys = t->names.failed ? NULL : sorted_keys(t, NULL, &n);
    t->by_piece = keys != NULL ? malloc(((size_t)n + 1) * sizeof(int32_t)) : NULL;
    if (t->by_piece == NULL) {
        free(keys);
        return tok_fail(err, TOK_FAILED, "%s: out of memory while sorting %d tokens", name, t->n_tokens);
    }
    tok_status status = TOK_OK;
    for (int64_t k = 0; k < n && status == TOK_OK; k++) {
        t->by_piece[k] = keys[k].value;
        if (k > 0 && tok_key_order(&keys[k - 1], &keys[k]) == 0) {
            char safe[80];
            status = tok_fail(err, TOK_DAMAGED, "%s: tokens %d and %d are both \"%s\"; pieces must be unique", name,
                              keys[k - 1].value, keys[k].value, io_safe(safe, sizeof(safe), keys[k].bytes));
        }
    }
    t->n_named = (int32_t)n;
    free(keys);
    return status;
}

bool tok_pieces_trie(const tokenizer *t, tok_trie *trie, bool (*takes)(const tok_entry *))
{
    int64_t n;
    tok_key *keys = sorted_keys(t, takes, &n);
    const bool good = keys != NULL && tok_trie_build(trie, keys, n);
    free(keys);
    return good;
}

static bool make_matcher(const tokenizer *t, tok_matcher *matcher, bool normalized)
{
    tok_key *keys = malloc(((size_t)t->n_added + 1) * sizeof(*keys));
    int64_t n = 0;
    matcher->only_first = -1;
    for (int32_t k = 0; keys != NULL && k < t->n_added; k++) {
        const tok_added *a = &t->added[k];
        if (a->normalized != normalized || a->size == 0)
            continue;
        keys[n++] = (tok_key){tok_named(t, a->content), a->size, k};
        const unsigned char first = (unsigned char)*tok_named(t, a->content);
        matcher->only_first = n == 1 || matcher->only_first == first ? first : -1;
        matcher->first[first] = true;
    }
    if (keys == NULL)
        return false;
    qsort(keys, (size_t)n, sizeof(*keys), by_key);
    const bool good = tok_trie_build(&matcher->trie, keys, n);
    free(keys);
    return good;
}

bool tok_matchers_make(tokenizer *t)
{
    return make_matcher(t, &t->raw, false) && make_matcher(t, &t->normalized, true);
}

/* ---- public functions */

int32_t tok_size(const tokenizer *t)
{
    return t->n_tokens;
}

bool tok_is_special(const tokenizer *t, int32_t id)
{
    return id >= 0 && id < t->n_tokens && t->tokens[id].special;
}

const char *tok_piece(const tokenizer *t, int32_t id, int64_t *size)
{
    const bool known = id >= 0 && id < t->n_tokens && t->tokens[id].piece >= 0;
    const tok_entry *entry = known ? &t->tokens[id] : NULL;
    if (size != NULL)
        *size = entry != NULL ? entry->size : 0;
    return entry != NULL ? tok_named(t, entry->piece) : NULL;
}

int32_t tok_id(const tokenizer *t, const char *piece, int64_t size)
{
    const tok_key wanted = {piece, size, 0};
    int32_t low = 0, high = t->n_named;
    while (low < high) {
        const int32_t middle = low + (high - low) / 2;
        const tok_key key = key_of(t, t->by_piece[middle]);
        const int order = tok_key_order(&key, &wanted);
        if (order == 0)
            return key.value;
        if (order < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return -1;
}

const char *tok_model_name(const tokenizer *t)
{
    static const char *const names[] = {"Unigram", "WordPiece", "BPE"};
    return names[t->model];
}
