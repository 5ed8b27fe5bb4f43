/* unicode.h -- properties of characters, as the library `tokenizers` defines them.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef RELPOS_TOKENIZER_UNICODE_H
#define RELPOS_TOKENIZER_UNICODE_H

#include <stdbool.h>
#include <stdint.h>

bool tok_is_space(uint32_t character);       /* property White_Space in Unicode */
bool tok_is_word(uint32_t character);        /* \w in regular expressions of Unicode */
bool tok_is_letter(uint32_t character);      /* category L */
bool tok_is_number(uint32_t character);      /* category N */
bool tok_is_punctuation(uint32_t character); /* category P, and all ASCII characters that are no letters or digits */
bool tok_is_removed(uint32_t character);    /* clean_text of BertNormalizer removes it: category Cc, Cf, Co or U+FFFD */
bool tok_is_nonspacing(uint32_t character); /* category Mn; not for characters that tok_decompose decomposes */
bool tok_is_mark(uint32_t character);       /* category M */
bool tok_is_ideograph(uint32_t character);  /* handle_chinese_chars of BertNormalizer puts spaces around it */

/* Write the canonical decomposition (NFD) of a character, and return its length; a character without one is itself. */
int tok_decompose(uint32_t character, uint32_t to[4]);
/* Return the character that NFC makes of two; 0: none. */
uint32_t tok_compose(uint32_t first, uint32_t second);
/* Return the order of a mark among other marks on the same character in NFD; 0 for characters that keep their place. */
enum { TOK_MARK_CLASSES = 64 };
int tok_mark_class(uint32_t character);
/* Return the lower case of a character. U+0130 is not covered: it has two characters. */
uint32_t tok_lower(uint32_t character);

#endif
