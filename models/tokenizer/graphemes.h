/* graphemes.h -- finds the end of an extended grapheme cluster (Unicode UAX #29).
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef RELPOS_TOKENIZER_GRAPHEMES_H
#define RELPOS_TOKENIZER_GRAPHEMES_H

#include <stdint.h>

typedef struct tok_graphemes {
    uint8_t *properties; /* properties of the characters that have any */
} tok_graphemes;

/* Build the table of properties. Return false if out of memory. */
_Bool tok_graphemes_open(tok_graphemes *g);
void tok_graphemes_free(tok_graphemes *g);

/* Return the number of bytes of the first grapheme cluster of text. The text must be valid UTF-8 and not empty. */
int64_t tok_grapheme(const tok_graphemes *g, const char *text, int64_t size);

#endif
