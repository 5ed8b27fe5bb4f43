/* edit.h -- replaces characters of a text one by one, and records from which character of the encoded text each
 * character of the result comes, as `tokenizers` does.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef RELPOS_TOKENIZER_EDIT_H
#define RELPOS_TOKENIZER_EDIT_H

#include "tokenizer/text.h"

typedef struct tok_edit {
    const char *text;
    int64_t size;
    const int64_t
        *origins; /* origins of the bytes of text; NULL: byte k comes from byte first + k of the encoded text */
    int64_t first;
    int64_t at; /* the next character of text; those before it have been replaced */
    tok_text *to;
    bool inserted; /* tok_edit_string inserted the last character */
} tok_edit;

/* Return the place in the encoded text that the character at text[at] comes from. */
static inline int64_t tok_edit_origin(const tok_edit *e, int64_t at)
{
    return e->origins != NULL ? e->origins[at] : e->first + at;
}

/* Append bytes that come from a place in the encoded text. */
static inline void tok_edit_add(tok_edit *e, const char *bytes, int64_t size, int64_t origin)
{
    const int64_t start = e->to->size;
    tok_text_add(e->to, bytes, size);
    for (int64_t k = 0; k < size && e->to->mapped && !e->to->failed; k++)
        e->to->origins[start + k] = origin;
}

/* Copy the next n bytes. */
static inline void tok_edit_keep(tok_edit *e, int64_t n)
{
    const int64_t start = e->to->size;
    tok_text_add(e->to, e->text + e->at, n);
    for (int64_t k = 0; k < n && e->to->mapped && !e->to->failed; k++) {
        const bool inner = ((unsigned char)e->text[e->at + k] & 0xc0) == 0x80;
        e->to->origins[start + k] =
            inner && e->origins == NULL ? e->to->origins[start + k - 1] : tok_edit_origin(e, e->at + k);
    }
    e->at += n;
}

/* Remove the next n bytes. */
static inline void tok_edit_drop(tok_edit *e, int64_t n)
{
    e->at += n;
}

/* Replace the next n bytes, a character, by another character. */
static inline void tok_edit_replace(tok_edit *e, int64_t n, uint32_t c)
{
    char bytes[4];
    tok_edit_add(e, bytes, tok_utf8_write(c, bytes), tok_edit_origin(e, e->at));
    e->at += n;
}

/* Insert characters, which come from the same character as the one before e->at. */
void tok_edit_insert(tok_edit *e, const char *bytes, int64_t size);
/* Replace the next n characters by a string: the first n by one character each, and others are inserted. */
void tok_edit_string(tok_edit *e, int64_t n, const char *bytes, int64_t size);

/* Return the number of characters of a text. */
int64_t tok_characters(const char *text, int64_t size);

#endif
