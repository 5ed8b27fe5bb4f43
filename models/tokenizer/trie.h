/* trie.h -- a double-array trie, which finds the keys that are prefixes of a text.
 *
 * A state is a number called base. The child of a state for byte c is units[base ^ c], if the label of that unit is c.
 * No two states have the same base, so the label shows that the unit belongs to this state. Units come in blocks of
 * 256, so base ^ c is always inside the array.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef RELPOS_TOKENIZER_TRIE_H
#define RELPOS_TOKENIZER_TRIE_H

#include <stdbool.h>
#include <stdint.h>

typedef struct tok_trie_unit {
    uint32_t base;  /* base of the state reached here; 0, which is no valid base, if it has no children */
    uint32_t entry; /* value << 9 | TOK_TRIE_USED if in use | label */
} tok_trie_unit;

typedef struct tok_trie {
    tok_trie_unit *units; /* NULL: no keys */
    uint32_t root;
} tok_trie;

enum { TOK_TRIE_NONE = 0x7fffff, TOK_TRIE_USED = 0x100 }; /* values are below TOK_TRIE_NONE */

typedef struct tok_key {
    const char *bytes;
    int64_t size;
    int32_t value;
} tok_key;

/* Compare keys by bytes, then by size, for qsort. */
int tok_key_order(const tok_key *a, const tok_key *b);

/* Build the trie of n sorted, non-empty keys. Of equal keys, the first is used. Return false if out of memory. */
bool tok_trie_build(tok_trie *trie, const tok_key *keys, int64_t n);
void tok_trie_free(tok_trie *trie);

/* Advance by one byte. Set *base to the next state. Set *value to the value of the key that ends there, or to
 * TOK_TRIE_NONE. Return false if no key continues with this byte. */
static inline bool tok_trie_step(const tok_trie *trie, uint32_t *base, unsigned char byte, int32_t *value)
{
    const tok_trie_unit unit = trie->units[*base ^ byte];
    if ((unit.entry & 0x1ff) != (byte | (uint32_t)TOK_TRIE_USED))
        return false;
    *base = unit.base;
    *value = (int32_t)(unit.entry >> 9);
    return true;
}

/* Find the longest key that is a prefix of text, and set *value. Return the size of the key; 0 if there is none. */
int64_t tok_trie_longest(const tok_trie *trie, const char *text, int64_t size, int32_t *value);
/* Return the value of a key, or -1. */
int32_t tok_trie_exact(const tok_trie *trie, const char *key, int64_t size);

#endif
