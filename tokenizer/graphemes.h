/* graphemes.h -- where a grapheme cluster ends: extended clusters of Unicode, UAX #29. It knows characters and no
 * tokens.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef RELPOS_TOKENIZER_GRAPHEMES_H
#define RELPOS_TOKENIZER_GRAPHEMES_H

#include <stdint.h>

typedef struct tok_graphemes {
    uint8_t *properties; /* of the planes that have any */
} tok_graphemes;

/* False if memory runs out. */
_Bool tok_graphemes_open(tok_graphemes *g);
void tok_graphemes_free(tok_graphemes *g);

/* Bytes of the first cluster of text, which is valid UTF-8 and not empty. */
int64_t tok_grapheme(const tok_graphemes *g, const char *text, int64_t size);

#endif
