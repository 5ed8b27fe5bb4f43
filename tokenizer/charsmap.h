/* charsmap.h -- the precompiled character map of SentencePiece: strings and what replaces them. It knows no tokens.
 *
 * The bytes of a map are: the size of a trie in bytes (u32, little endian), the trie (units of u32: a double array of
 * Darts-clone), and replacements, each up to a NUL. A file may say anything there, so each index is checked when it is
 * used.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef RELPOS_TOKENIZER_CHARSMAP_H
#define RELPOS_TOKENIZER_CHARSMAP_H

#include "tokenizer/text.h"

typedef struct tok_rule { /* what replaces the first length bytes; length 0: nothing does */
    const char *text;
    int32_t size;
    int32_t length;
} tok_rule;

typedef struct tok_charsmap {
    uint32_t *units;
    int64_t n_units;
    char *texts; /* a NUL follows the last */
    int64_t texts_size;
    tok_rule ascii[128];   /* for that character alone */
    bool ascii_alone[128]; /* no rule goes on after it with another character of ASCII */
} tok_charsmap;

/* Copy a map of size bytes. "" is a map without rules. A failure says why in the words "<what> has ...". */
tok_status tok_charsmap_open(tok_charsmap *map, const char *bytes, int64_t size, const char *what,
                             char err[TOK_ERR_MAX]);
void tok_charsmap_free(tok_charsmap *map);

/* The rule for the longest prefix of text that has one, or for the shortest. */
tok_rule tok_charsmap_find(const tok_charsmap *map, const char *text, int64_t size, bool longest);

#endif
