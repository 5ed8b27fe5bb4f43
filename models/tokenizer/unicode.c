/* unicode.c -- properties of characters, found by binary search in ranges.
 * SPDX-License-Identifier: Apache-2.0 */
#include "tokenizer/unicode.h"

#include <stddef.h>

typedef struct tok_range {
    uint32_t first, last;
} tok_range;

typedef struct tok_class {
    uint32_t first, last;
    int rank;
} tok_class;

typedef struct tok_decomposition {
    uint32_t from, to[4];
} tok_decomposition;

typedef struct tok_composition {
    uint32_t first, second, to;
} tok_composition;

typedef struct tok_lower_range {
    uint32_t first, last;
    int32_t step, difference;
} tok_lower_range;

#include "tokenizer/unicode_table.h"
#include "tokenizer/word_table.h"

/* Return the last entry whose first number is at most c; NULL: none. Each entry begins with a uint32_t. */
static const void *last_from(const void *entries, size_t n, size_t size, uint32_t c)
{
    const char *first = entries;
    size_t low = 0, high = n;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        if (*(const uint32_t *)(const void *)(first + middle * size) <= c)
            low = middle + 1;
        else
            high = middle;
    }
    return low > 0 ? first + (low - 1) * size : NULL;
}

#define LAST_FROM(entries, c) last_from(entries, sizeof(entries) / sizeof(*(entries)), sizeof(*(entries)), c)

static bool in_range(const tok_range *range, uint32_t c)
{
    return range != NULL && c <= range->last;
}

bool tok_is_space(uint32_t c)
{
    return (c >= 0x9 && c <= 0xd) || c == 0x20 || c == 0x85 || c == 0xa0 || c == 0x1680 ||
           (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 || c == 0x202f || c == 0x205f || c == 0x3000;
}

bool tok_is_word(uint32_t c)
{
    return in_range(LAST_FROM(word_ranges, c), c);
}

bool tok_is_letter(uint32_t c)
{
    return c < 0x80 ? (c | 0x20) >= 'a' && (c | 0x20) <= 'z' : in_range(LAST_FROM(letter_ranges, c), c);
}

bool tok_is_number(uint32_t c)
{
    return c < 0x80 ? c >= '0' && c <= '9' : in_range(LAST_FROM(number_ranges, c), c);
}

bool tok_is_punctuation(uint32_t c)
{
    return in_range(LAST_FROM(punctuation_ranges, c), c);
}

bool tok_is_removed(uint32_t c)
{
    return in_range(LAST_FROM(removed_ranges, c), c);
}

bool tok_is_nonspacing(uint32_t c)
{
    return in_range(LAST_FROM(nonspacing_ranges, c), c);
}

bool tok_is_mark(uint32_t c)
{
    return in_range(LAST_FROM(mark_ranges, c), c);
}

bool tok_is_ideograph(uint32_t c)
{
    return c >= 0x3400 && in_range(LAST_FROM(ideograph_ranges, c), c);
}

/* Hangul syllables are computed: Unicode, section 3.12. A syllable has a leading consonant, a vowel, and perhaps a
 * trailing consonant, whose number is then at least 1. */
enum { FIRST = 0xac00, SYLLABLES = 11172, LEADS = 19, VOWELS = 21, ENDS = 28 };
enum { LEAD = 0x1100, VOWEL = 0x1161, END = 0x11a7 };

uint32_t tok_compose(uint32_t a, uint32_t b)
{
    if (a >= LEAD && a < LEAD + LEADS && b >= VOWEL && b < VOWEL + VOWELS)
        return FIRST + ((a - LEAD) * VOWELS + (b - VOWEL)) * ENDS;
    if (a >= FIRST && a < FIRST + SYLLABLES && (a - FIRST) % ENDS == 0 && b > END && b < END + ENDS)
        return a + (b - END);
    const tok_composition *found = LAST_FROM(compositions, a);
    for (; found != NULL && found >= compositions && found->first == a; found--)
        if (found->second == b)
            return found->to;
    return 0;
}

int tok_decompose(uint32_t c, uint32_t to[4])
{
    if (c >= FIRST && c < FIRST + SYLLABLES) {
        const uint32_t n = c - FIRST, last = n % ENDS;
        to[0] = LEAD + n / (VOWELS * ENDS);
        to[1] = VOWEL + n / ENDS % VOWELS;
        to[2] = END + last;
        return last != 0 ? 3 : 2;
    }
    const tok_decomposition *found = LAST_FROM(decompositions, c);
    if (found == NULL || found->from != c) {
        to[0] = c;
        return 1;
    }
    int n = 0;
    for (; n < 4 && found->to[n] != 0; n++)
        to[n] = found->to[n];
    return n;
}

int tok_mark_class(uint32_t c)
{
    const tok_class *found = LAST_FROM(class_ranges, c);
    return found != NULL && c <= found->last ? found->rank : 0;
}

uint32_t tok_lower(uint32_t c)
{
    const tok_lower_range *found = LAST_FROM(lower_ranges, c);
    const bool has = found != NULL && c <= found->last && (c - found->first) % (uint32_t)found->step == 0;
    return has ? (uint32_t)((int32_t)c + found->difference) : c;
}
