/* charsmap.h -- the precompiled character map of SentencePiece: strings and their replacements.
 *
 * A map consists of the size of a trie in bytes (u32, little-endian), the trie (units of u32: a double array of
 * Darts-clone), and the replacements, each terminated by NUL. A damaged file may contain any numbers, so each index is
 * checked when it is used.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef RELPOS_TOKENIZER_CHARSMAP_H
#define RELPOS_TOKENIZER_CHARSMAP_H

#include "tokenizer/text.h"

typedef struct tok_rule { /* a rule: replacement of the first `length` bytes; length 0: no rule */
    const char *text;
    int32_t size;
    int32_t length;
} tok_rule;

typedef struct tok_charsmap {
    uint32_t *units;
    int64_t n_units;
    char *texts; /* terminated by NUL */
    int64_t texts_size;
    tok_rule ascii[128];   /* rule for each single ASCII character */
    bool ascii_alone[128]; /* true if no rule has this character followed by another ASCII character */
} tok_charsmap;

/* Copy a map of `size` bytes; a map of 0 bytes has no rules. Messages begin with "<what> has". */
tok_status tok_charsmap_open(tok_charsmap *map, const char *bytes, int64_t size, const char *what,
                             char err[TOK_ERR_MAX]);
void tok_charsmap_free(tok_charsmap *map);

/* Return the rule for the longest prefix of text that has one; with longest = false, for the shortest such prefix. */
tok_rule tok_charsmap_find(const tok_charsmap *map, const char *text, int64_t size, bool longest);

#endif
