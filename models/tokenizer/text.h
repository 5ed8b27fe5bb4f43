/* text.h -- growing arrays of bytes and token numbers, UTF-8, and error messages.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef RELPOS_TOKENIZER_TEXT_H
#define RELPOS_TOKENIZER_TEXT_H

#include "tokenizer/tokenizer.h"
#include "tokenizer/unicode.h"
#include <string.h>

/* Write the message to err and return status. */
tok_status tok_fail(char err[TOK_ERR_MAX], tok_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* A growing text. If memory runs out or the text would exceed its limit, `failed` is set and later additions do
 * nothing. So it suffices to check `failed` once, at the end. */
typedef struct tok_text {
    char *bytes;
    int64_t size, capacity;
    int64_t limit; /* max bytes; 0: no limit */
    bool failed;
    bool too_long;    /* failed because of the limit, not memory */
    bool mapped;      /* `origins` is used */
    int64_t *origins; /* for each byte, the place in the encoded text of the character that it comes from */
} tok_text;

/* Return the max bytes that the rules of a tokenizer may produce from a text or token of `size` bytes. The rules of T5
 * models produce at most 13 bytes per byte (for U+FDFA), but a file may contain several rules that each produce a
 * thousand. */
static inline int64_t tok_growth_limit(int64_t size)
{
    return 64 * size + 1024;
}

bool tok_text_grow(tok_text *t, int64_t more); /* make space for `more` bytes after the current end */
void tok_text_free(tok_text *t);

/* Clear a text and set its limit. */
static inline void tok_text_begin(tok_text *t, int64_t limit)
{
    t->size = 0;
    t->limit = limit;
    if (t->capacity > limit)
        t->capacity = limit;
}

static inline void tok_text_add(tok_text *t, const char *bytes, int64_t size)
{
    if (size > t->capacity - t->size && !tok_text_grow(t, size))
        return;
    if (size > 0)
        memcpy(t->bytes + t->size, bytes, (size_t)size);
    t->size += size;
}

static inline void tok_text_add_byte(tok_text *t, char byte)
{
    if (t->size < t->capacity || tok_text_grow(t, 1))
        t->bytes[t->size++] = byte;
}

/* A growing array of token numbers; `failed` works as in tok_text. */
typedef struct tok_ids {
    int32_t *ids;
    int64_t n, capacity;
    bool failed;
} tok_ids;

bool tok_ids_grow(tok_ids *t);

static inline void tok_ids_add(tok_ids *t, int32_t id)
{
    if (t->n < t->capacity || tok_ids_grow(t))
        t->ids[t->n++] = id;
}

/* A growing array of spans. */
typedef struct tok_spans {
    tok_span *spans;
    int64_t n, capacity;
    bool failed;
} tok_spans;

bool tok_spans_grow(tok_spans *t);

static inline void tok_spans_add(tok_spans *t, tok_span span)
{
    if (t->n < t->capacity || tok_spans_grow(t))
        t->spans[t->n++] = span;
}

/* Read the character at text. Return its number of bytes; 0 if it is not valid UTF-8. */
int tok_utf8(const char *text, int64_t size, uint32_t *character);
/* After tok_utf8 returned 0, return the number of bytes, at least 1, that one U+FFFD replaces: those of the incomplete
 * character. */
int tok_utf8_broken(const char *text, int64_t size);
/* Write a character, and return its number of bytes. */
int tok_utf8_write(uint32_t character, char to[4]);
bool tok_utf8_valid(const char *text, int64_t size);

#define TOK_REPLACEMENT "\xef\xbf\xbd" /* U+FFFD */
#define TOK_META        "\xe2\x96\x81" /* U+2581, which represents a space in pieces */
enum { TOK_META_SIZE = 3, TOK_REPLACEMENT_SIZE = 3 };

#endif
