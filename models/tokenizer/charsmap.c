/* charsmap.c -- reads a precompiled character map, and looks up prefixes of a text in it.
 * SPDX-License-Identifier: Apache-2.0 */
#include "tokenizer/charsmap.h"

#include <stdlib.h>

static uint32_t little_endian(const char *bytes)
{
    const unsigned char *p = (const unsigned char *)bytes;
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

/* Return the offset stored in a unit of Darts-clone. If bit 9 is set, the offset is shifted by 8 more bits. */
static uint32_t offset_of(uint32_t unit)
{
    return (unit >> 10) << ((unit & (1u << 9)) >> 6);
}

static bool has_leaf(uint32_t unit)
{
    return (unit >> 8 & 1) != 0;
}

static uint32_t label_of(uint32_t unit) /* for a leaf, the label is larger than any byte */
{
    return unit & (1u << 31 | 0xff);
}

/* Set *rule to the replacement that begins at offset `place` of the texts. Return false if the offset is not valid. */
static bool replacement(const tok_charsmap *map, uint32_t place, int32_t length, tok_rule *rule)
{
    place &= 0x7fffffff;
    if (place > map->texts_size ||
        ((unsigned char)map->texts[place] & 0xc0) == 0x80) /* outside of the texts, or in the middle of a character */
        return false;
    const size_t size = strlen(map->texts + place);
    if (size > INT32_MAX)
        return false;
    *rule = (tok_rule){map->texts + place, (int32_t)size, length};
    return true;
}

tok_rule tok_charsmap_find(const tok_charsmap *map, const char *text, int64_t size, bool longest)
{
    tok_rule found = {0};
    if (map->n_units == 0)
        return found;
    uint32_t at = offset_of(map->units[0]);
    for (int64_t k = 0; k < size && k < INT32_MAX; k++) {
        const unsigned char byte = (unsigned char)text[k];
        at ^= byte;
        if (byte == 0 || at >= map->n_units || label_of(map->units[at]) != byte)
            break;
        const uint32_t unit = map->units[at];
        at ^= offset_of(unit);
        if (has_leaf(unit) && at < map->n_units && replacement(map, map->units[at], (int32_t)k + 1, &found) && !longest)
            break;
    }
    return found;
}

/* Return true if some rule begins with these two characters. */
static bool goes_on(const tok_charsmap *map, unsigned char first, unsigned char second)
{
    uint32_t at = offset_of(map->units[0]) ^ first;
    if (at >= map->n_units || label_of(map->units[at]) != first)
        return false;
    at ^= offset_of(map->units[at]) ^ second;
    return at < map->n_units && label_of(map->units[at]) == second;
}

static void fill_ascii(tok_charsmap *map)
{
    for (unsigned char c = 0; c < 128; c++) {
        const char character = (char)c;
        map->ascii[c] = tok_charsmap_find(map, &character, 1, true);
        map->ascii_alone[c] = true;
        for (unsigned char d = 1; map->n_units > 0 && c > 0 && d < 128; d++)
            if (goes_on(map, c, d))
                map->ascii_alone[c] = false;
    }
}

static tok_status check_sizes(const char *bytes, int64_t size, const char *what, char err[TOK_ERR_MAX])
{
    if (size < 4)
        return tok_fail(err, TOK_DAMAGED, "%s has %lld bytes; it must have at least 4 (the file is cut off)", what,
                        (long long)size);
    const uint32_t trie = little_endian(bytes);
    if (trie == 0 || trie % 4 != 0 || trie > size - 4)
        return tok_fail(
            err, TOK_DAMAGED,
            "%s has a trie of %u bytes; it must be a positive multiple of 4, at most %lld (the file is damaged)", what,
            trie, (long long)size - 4);
    if (!tok_utf8_valid(bytes + 4 + trie, size - 4 - trie))
        return tok_fail(err, TOK_DAMAGED, "%s has replacements that are not UTF-8 (the file is damaged)", what);
    return TOK_OK;
}

tok_status tok_charsmap_open(tok_charsmap *map, const char *bytes, int64_t size, const char *what,
                             char err[TOK_ERR_MAX])
{
    *map = (tok_charsmap){0};
    if (size > 0) {
        const tok_status status = check_sizes(bytes, size, what, err);
        if (status != TOK_OK)
            return status;
        const uint32_t trie = little_endian(bytes);
        map->n_units = trie / 4;
        map->texts_size = size - 4 - trie;
        map->units = malloc(trie);
        map->texts = malloc((size_t)map->texts_size + 1);
        if (map->units == NULL || map->texts == NULL) {
            tok_charsmap_free(map);
            return tok_fail(err, TOK_FAILED, "out of memory: %s has %lld bytes", what, (long long)size);
        }
        for (int64_t k = 0; k < map->n_units; k++)
            map->units[k] = little_endian(bytes + 4 + 4 * k);
        memcpy(map->texts, bytes + 4 + trie, (size_t)map->texts_size);
        map->texts[map->texts_size] = 0;
    }
    fill_ascii(map);
    return TOK_OK;
}

void tok_charsmap_free(tok_charsmap *map)
{
    free(map->units);
    free(map->texts);
    *map = (tok_charsmap){0};
}
