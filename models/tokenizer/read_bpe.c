/* read_bpe.c -- reads the model BPE of a tokenizer.json.
 * SPDX-License-Identifier: Apache-2.0 */
#include "io/io.h"
#include "tokenizer/read_json.h"

#include <stdlib.h>

enum { MAX_MERGES = 1 << 24 };

/* ---- merges */

/* A merge as the file has it: "a b", or in newer files ["a", "b"]. */
typedef struct pair {
    const char *left, *right;
    int64_t left_size, right_size;
} pair;

static bool pair_of(const json_t *merge, pair *to)
{
    const json_t *left = json_array_get(merge, 0), *right = json_array_get(merge, 1);
    if (json_is_string(left) && json_is_string(right) && json_array_size(merge) == 2) {
        *to = (pair){json_string_value(left), json_string_value(right), (int64_t)json_string_length(left),
                     (int64_t)json_string_length(right)};
        return true;
    }
    const char *text = json_string_value(merge), *space = text != NULL ? strchr(text, ' ') : NULL;
    if (space == NULL || strchr(space + 1, ' ') != NULL)
        return false;
    *to = (pair){text, space + 1, space - text, (int64_t)strlen(space + 1)};
    return true;
}

/* Return true for a line such as "#version: 0.2", which is no merge. */
static bool is_version(const json_t *merge)
{
    static const char version[] = "#version";
    const char *text = json_string_value(merge);
    return text != NULL && strncmp(text, version, sizeof(version) - 1) == 0;
}

/* Return the number of the piece left + right, or -1. */
static int32_t joined(const tok_trie *pieces, const pair *p)
{
    uint32_t base = pieces->root;
    int32_t id = TOK_TRIE_NONE;
    for (int64_t k = 0; k < p->left_size + p->right_size; k++) {
        const char c = k < p->left_size ? p->left[k] : p->right[k - p->left_size];
        if (!tok_trie_step(pieces, &base, (unsigned char)c, &id))
            return -1;
    }
    return id != TOK_TRIE_NONE ? id : -1;
}

/* Add a merge to the table. Of equal merges, the last counts. */
static void add_merge(tok_merges *m, tok_merge merge)
{
    uint32_t at = tok_merge_place(merge.left, merge.right) & m->mask;
    while (m->table[at].left >= 0 && (m->table[at].left != merge.left || m->table[at].right != merge.right))
        at = (at + 1) & m->mask;
    m->table[at] = merge;
    m->made[merge.rank] = merge.made;
}

static tok_status read_merge(tok_reader *r, const json_t *merge, size_t index)
{
    tokenizer *t = r->t;
    pair p;
    char left[60], right[60];
    if (!pair_of(merge, &p))
        return tok_reader_fail(r, TOK_DAMAGED,
                               "model.merges[%zu] is not a pair of pieces; it must be as \"t he\" or [\"t\", \"he\"]",
                               index);
    const tok_merge made = {tok_trie_exact(&t->pieces, p.left, p.left_size),
                            tok_trie_exact(&t->pieces, p.right, p.right_size), joined(&t->pieces, &p), t->merges.n};
    if (made.left < 0 || made.right < 0 || made.made < 0) {
        const char *what = made.left < 0 ? "its first piece" : made.right < 0 ? "its second piece" : "what it makes";
        snprintf(left, sizeof(left), "%.*s", (int)(p.left_size < 50 ? p.left_size : 50), p.left);
        snprintf(right, sizeof(right), "%.*s", (int)(p.right_size < 50 ? p.right_size : 50), p.right);
        return tok_reader_fail(r, TOK_DAMAGED, "model.merges[%zu] is \"%s %s\"; model.vocab must have %s", index, left,
                               right, what);
    }
    add_merge(&t->merges, made);
    t->merges.n++;
    return TOK_OK;
}

static tok_status read_merges(tok_reader *r, const json_t *merges)
{
    tok_merges *m = &r->t->merges;
    const size_t n = json_array_size(merges);
    if (!json_is_array(merges) || n > MAX_MERGES)
        return tok_reader_fail(r, TOK_DAMAGED, "model.merges has %zu merges; it must be a list of at most %d", n,
                               MAX_MERGES);
    m->mask = 15;
    while (m->mask < 2 * n)
        m->mask = 2 * m->mask + 1;
    m->table = malloc(((size_t)m->mask + 1) * sizeof(*m->table));
    m->made = malloc((n + 1) * sizeof(*m->made));
    if (m->table == NULL || m->made == NULL)
        return tok_reader_memory(r);
    for (uint32_t k = 0; k <= m->mask; k++)
        m->table[k] = (tok_merge){-1, -1, -1, -1};
    tok_status status = TOK_OK;
    for (size_t k = 0; k < n && status == TOK_OK; k++)
        if (!is_version(json_array_get(merges, k)))
            status = read_merge(r, json_array_get(merges, k), k);
    return status;
}

/* ---- the model */

/* Refuse a setting that changes the tokens in a way that byte-level BPE does not need. */
static tok_status check_settings(const tok_reader *r, const json_t *model)
{
    static const char *const texts[] = {"continuing_subword_prefix", "end_of_word_suffix"};
    for (int k = 0; k < 2; k++) {
        const json_t *value = json_object_get(model, texts[k]);
        const char *text = json_string_value(value);
        char safe[60];
        if (value != NULL && !json_is_null(value) && (text == NULL || text[0] != 0))
            return tok_reader_fail(r, TOK_DAMAGED, "model.%s is \"%s\", which is not supported; it must be empty",
                                   texts[k], io_safe(safe, sizeof(safe), text != NULL ? text : "no text"));
    }
    const json_t *dropout = json_object_get(model, "dropout");
    if (dropout != NULL && !json_is_null(dropout) && (!json_is_number(dropout) || json_number_value(dropout) != 0))
        return tok_reader_fail(r, TOK_DAMAGED, "model.dropout is %g, which is not supported; it must be null",
                               json_number_value(dropout));
    bool fallback = false;
    const tok_status status = tok_json_bool(r, model, "model", "byte_fallback", &fallback);
    return status == TOK_OK && fallback
               ? tok_reader_fail(r, TOK_DAMAGED,
                                 "model.byte_fallback is true, which is not supported for BPE; it must be false, as in "
                                 "byte-level BPE")
               : status;
}

/* Find the pieces of the bytes, and the token of bytes without one. */
static tok_status find_bytes(const tok_reader *r, const json_t *model)
{
    tokenizer *t = r->t;
    const json_t *unk = json_object_get(model, "unk_token");
    int missing = -1;
    char safe[60];
    for (int byte = 255; byte >= 0; byte--) {
        char text[4];
        const int n = tok_utf8_write(tok_byte_character(byte), text);
        t->byte_ids[byte] = tok_trie_exact(&t->pieces, text, n);
        missing = t->byte_ids[byte] < 0 ? byte : missing;
    }
    t->merges.skips = missing >= 0 && (unk == NULL || json_is_null(unk));
    if (unk == NULL || json_is_null(unk))
        return TOK_OK;
    if (!json_is_string(unk))
        return tok_reader_fail(r, TOK_DAMAGED, "model.unk_token is not a text; it must be a piece or null");
    t->unk = tok_trie_exact(&t->pieces, json_string_value(unk), (int64_t)json_string_length(unk));
    if (t->unk < 0 && missing >= 0)
        return tok_reader_fail(r, TOK_DAMAGED,
                               "model.vocab has neither a piece for the byte 0x%02x nor the unk_token \"%s\"", missing,
                               io_safe(safe, sizeof(safe), json_string_value(unk)));
    return TOK_OK;
}

tok_status tok_read_bpe(tok_reader *r, const json_t *model)
{
    tokenizer *t = r->t;
    tok_status status = check_settings(r, model);
    if (status == TOK_OK)
        status = tok_json_bool(r, model, "model", "fuse_unk", &t->merges.fuse_unk);
    if (status == TOK_OK)
        status = tok_json_bool(r, model, "model", "ignore_merges", &t->merges.ignore_merges);
    if (status == TOK_OK)
        status = tok_read_numbered(r, json_object_get(model, "vocab"));
    if (status != TOK_OK)
        return status;
    t->model = TOK_BPE;
    status = find_bytes(r, model);
    return status == TOK_OK ? read_merges(r, json_object_get(model, "merges")) : status;
}

tok_status tok_check_byte_level(const tok_reader *r)
{
    const tokenizer *t = r->t;
    if (t->model == TOK_BPE && !t->byte_level)
        return tok_reader_fail(
            r, TOK_DAMAGED,
            "model \"BPE\" without the pre_tokenizer ByteLevel is not supported; it must have it, as "
            "in RoBERTa, ModernBERT and CodeT5");
    if (t->model != TOK_BPE && (t->byte_level || t->split >= TOK_SPLIT_GPT2))
        return tok_reader_fail(
            r, TOK_DAMAGED, "pre_tokenizer ByteLevel or Split is not supported with this model; the model must be BPE");
    return TOK_OK;
}
