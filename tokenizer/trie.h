/* trie.h -- a double-array trie: which of many keys are prefixes of a text. It knows bytes and no tokens.
 *
 * A state is a base. The child of a state for byte c is units[base ^ c], if that unit has c as its label. No two states
 * have one base, so the label alone tells whose child a unit is. Units come in blocks of 256, so base ^ c is always
 * inside the array.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef RELPOS_TOKENIZER_TRIE_H
#define RELPOS_TOKENIZER_TRIE_H

#include <stdbool.h>
#include <stdint.h>

typedef struct tok_trie_unit {
    uint32_t base;  /* of the state that this unit leads to; 0, which no state has, where that has no children */
    uint32_t entry; /* value, bit 8 of a unit in use, label */
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

/* Order of keys: by bytes, then by size. */
int tok_key_order(const tok_key *a, const tok_key *b);

/* Make the trie of n keys that are sorted and not empty; of equal ones the first counts. False if memory runs out. */
bool tok_trie_build(tok_trie *trie, const tok_key *keys, int64_t n);
void tok_trie_free(tok_trie *trie);

/* One byte further: *base becomes the next state's, *value that of the key that ends there, or TOK_TRIE_NONE. False: no
 * key goes on so. */
static inline bool tok_trie_step(const tok_trie *trie, uint32_t *base, unsigned char byte, int32_t *value)
{
    const tok_trie_unit unit = trie->units[*base ^ byte];
    if ((unit.entry & 0x1ff) != (byte | (uint32_t)TOK_TRIE_USED))
        return false;
    *base = unit.base;
    *value = (int32_t)(unit.entry >> 9);
    return true;
}

/* The longest key that text begins with: its size, 0 where there is none. */
int64_t tok_trie_longest(const tok_trie *trie, const char *text, int64_t size, int32_t *value);
/* The value of this key, -1 where there is none. */
int32_t tok_trie_exact(const tok_trie *trie, const char *key, int64_t size);

#endif
