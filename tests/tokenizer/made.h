/* made.h -- helpers of the tests that write their tokenizers themselves: JSON with ` in place of ", and SentencePiece
 * models field by field.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef RELPOS_TESTS_TOKENIZER_MADE_H
#define RELPOS_TESTS_TOKENIZER_MADE_H

#include "tests/tokenizer/files.h"

#define META "\xe2\x96\x81" /* U+2581 */

/* Return a copy of a text with " in place of `. The caller frees it. */
HELPER char *quoted(const char *text)
{
    char *copy = strdup(text);
    assert_non_null(copy);
    for (char *p = copy; *p != 0; p++)
        *p = *p == '`' ? '"' : *p;
    return copy;
}

/* Files beside a tokenizer, with ` in place of "; NULL: there is none. Free them with free_beside. */
HELPER tok_beside beside_of(const char *added, const char *config, const char *map, tok_rules rules)
{
    const char *const texts[] = {added, config, map}, *const names[] = {"added.json", "config.json", "map.json"};
    tok_file files[3];
    for (int k = 0; k < 3; k++) {
        char *text = texts[k] != NULL ? quoted(texts[k]) : NULL;
        files[k] = (tok_file){text, text != NULL ? (int64_t)strlen(text) : 0, names[k]};
    }
    return (tok_beside){files[0], files[1], files[2], rules};
}

HELPER void free_beside(const tok_beside *beside)
{
    free((char *)(uintptr_t)beside->added_tokens.text);
    free((char *)(uintptr_t)beside->tokenizer_config.text);
    free((char *)(uintptr_t)beside->special_tokens_map.text);
}

/* Open a tokenizer.json, with ` in place of ". beside = NULL: by itself. */
HELPER tok_status open_json(tokenizer **t, const char *json, const tok_beside *beside)
{
    char *text = quoted(json);
    const int64_t size = (int64_t)strlen(text);
    const tok_status status = beside != NULL ? tok_open_beside(t, text, size, "made", 0, beside, err)
                                             : tok_open_memory(t, text, size, "made", 0, err);
    free(text);
    return status;
}

HELPER tokenizer *json_opened(const char *json, const tok_beside *beside)
{
    tokenizer *t;
    if (open_json(&t, json, beside) != TOK_OK)
        fail_msg("%s: %s", json, err);
    return t;
}

/* Check that a file is refused with an error of one line that contains `why`. */
HELPER void check_refused(tok_status status, const tokenizer *t, const char *why)
{
    if (status != TOK_DAMAGED)
        fail_msg("status %d without \"%s\"", (int)status, why);
    assert_null(t);
    assert_one_line(err);
    if (strstr(err, why) == NULL)
        fail_msg("\"%s\" has no \"%s\"", err, why);
}

HELPER void refuse_json(const char *json, const tok_beside *beside, const char *why)
{
    tokenizer *t;
    const tok_status status = open_json(&t, json, beside);
    check_refused(status, t, why);
}

/* Check the pieces of a text, which are separated by | in `wanted`. */
HELPER void check_pieces(const tokenizer *t, const char *text, bool special, const char *wanted)
{
    int32_t *ids;
    int64_t n;
    char found[500] = "";
    if (tok_encode(t, text, (int64_t)strlen(text), special, &ids, &n, err) != TOK_OK)
        fail_msg("%s", err);
    for (int64_t k = 0; k < n; k++) {
        assert_true(strlen(found) + strlen(tok_piece(t, ids[k], NULL)) + 2 < sizeof found);
        strcat(strcat(found, k > 0 ? "|" : ""), tok_piece(t, ids[k], NULL));
    }
    if (strcmp(found, wanted) != 0)
        fail_msg("\"%s\" has the pieces %s: %s", text, found, wanted);
    free(ids);
}

/* Check the pieces of a text with a tokenizer.json. */
HELPER void json_splits(const char *json, const char *text, const char *wanted)
{
    tokenizer *t = json_opened(json, NULL);
    check_pieces(t, text, false, wanted);
    tok_close(t);
}

HELPER void check_text(const tokenizer *t, const int32_t *ids, int64_t n, bool skip, const char *wanted)
{
    char *text;
    int64_t size;
    if (tok_decode(t, ids, n, skip, &text, &size, err) != TOK_OK)
        fail_msg("%s", err);
    assert_string_equal(text, wanted);
    assert_int_equal(size, strlen(wanted));
    free(text);
}

/* Write a precompiled_charsmap with these rules: "a" and U+0301, bytes cc 81, become `grown`; "r" and U+0300, bytes
 * cc 80, are removed. Return its size. */
HELPER int64_t write_charsmap(char *to, const char *grown)
{
    enum { UNITS = 214, LEAF = 1 << 8, NEXT = 1 << 10 };
    const size_t size = strlen(grown) + 1;
    uint32_t units[1 + UNITS] = {4 * UNITS};
    units[1 + 'a'] = 'a' | LEAF | NEXT;
    units[1 + ('a' ^ 1)] = 1u << 31;
    units[1 + 'r'] = 'r' | LEAF | NEXT;
    units[1 + ('r' ^ 1)] = (uint32_t)size | 1u << 31;
    units[1 + 0xcc] = 0xcc | 0x9d * NEXT;
    units[1 + (0xcc ^ 0x9d ^ 0x81)] = 0x81 | LEAF | 4 * NEXT;
    units[1 + (0xcc ^ 0x9d ^ 0x81 ^ 4)] = 1u << 31;
    units[1 + (0xcc ^ 0x9d ^ 0x80)] = 0x80 | LEAF | 4 * NEXT;
    units[1 + (0xcc ^ 0x9d ^ 0x80 ^ 4)] = (uint32_t)size | 1u << 31;
    memcpy(to, units, sizeof units);
    memcpy(to + sizeof units, grown, size);
    to[sizeof units + size] = 0;
    return (int64_t)(sizeof units + size + 1);
}

/* ---- SentencePiece models */

typedef struct model {
    char bytes[8000];
    int64_t size;
} model;

HELPER void put(model *m, const void *bytes, size_t size)
{
    assert_true((size_t)m->size + size <= sizeof m->bytes);
    memcpy(m->bytes + m->size, bytes, size);
    m->size += (int64_t)size;
}

/* Add a field that consists of bytes, such as trainer_spec (2) and normalizer_spec (3). */
HELPER void put_field(model *m, int number, const void *bytes, size_t size)
{
    const char head[] = {(char)(number << 3 | 2), (char)(size & 0x7f) | (char)0x80, (char)(size >> 7)};
    put(m, head, 3);
    put(m, bytes, size);
}

/* Add a normalizer_spec with the rules of write_charsmap. */
HELPER void put_charsmap(model *m, const char *grown)
{
    char map[4000];
    model spec = {.size = 0};
    assert_true(strlen(grown) < 3000);
    put_field(&spec, 2, map, (size_t)write_charsmap(map, grown));
    put_field(m, 3, spec.bytes, (size_t)spec.size);
}

enum { NORMAL = 1, UNKNOWN = 2, CONTROL = 3, USER_DEFINED = 4, UNUSED = 5 };

/* Add a piece with the score -1. */
HELPER void put_piece(model *m, const char *text, int type)
{
    model piece = {.size = 0};
    const char end[] = {2 << 3 | 5, 0, 0, (char)0x80, (char)0xbf, 3 << 3, (char)type};
    put_field(&piece, 1, text, strlen(text));
    put(&piece, end, sizeof end);
    put_field(m, 1, piece.bytes, (size_t)piece.size);
}

HELPER tokenizer *model_opened(const model *m, const tok_beside *beside)
{
    tokenizer *t;
    if ((beside != NULL ? tok_open_beside(&t, m->bytes, m->size, "made", 0, beside, err)
                        : tok_open_memory(&t, m->bytes, m->size, "made", 0, err)) != TOK_OK)
        fail_msg("%s", err);
    return t;
}

#endif
