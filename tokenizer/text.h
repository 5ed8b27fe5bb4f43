/* text.h -- growing arrays of bytes and token numbers, UTF-8, and the one line of an error. It knows no tokenizer.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef RELPOS_TOKENIZER_TEXT_H
#define RELPOS_TOKENIZER_TEXT_H

#include "tokenizer/tokenizer.h"
#include <string.h>

/* Write the line and return status. */
tok_status tok_fail(char err[TOK_ERR_MAX], tok_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Bytes that grow. After memory ran out, or the text would have become longer than its limit, failed is set and nothing
 * more is added: the caller looks once, at the end. */
typedef struct tok_text {
    char *bytes;
    int64_t size, capacity;
    int64_t limit; /* bytes; 0: none */
    bool failed;
    bool too_long; /* the limit made it fail, not memory */
} tok_text;

/* The most bytes that a tokenizer's rules may make of a text or a token. The rules of T5's models make up to 13 bytes of
 * one, U+FDFA; a file may have rules that each make a thousand, one after the other. */
static inline int64_t tok_growth_limit(int64_t size)
{
    return 64 * size + 1024;
}

bool tok_text_grow(tok_text *t, int64_t more); /* make space for that many more bytes */

/* Empty a text and give it a limit. */
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

/* Token numbers that grow, likewise. */
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

/* Bytes of the valid character at text, and the character; 0 where there is none. */
int tok_utf8(const char *text, int64_t size, uint32_t *character);
/* Bytes from text that begin a character and do not complete it, at least 1: where tok_utf8 gives 0, one U+FFFD stands
 * for them. */
int tok_utf8_broken(const char *text, int64_t size);
bool tok_utf8_valid(const char *text, int64_t size);
/* More bytes could complete the character at text. */
bool tok_utf8_incomplete(const char *text, int64_t size);

#define TOK_REPLACEMENT "\xef\xbf\xbd" /* U+FFFD */
#define TOK_META        "\xe2\x96\x81" /* U+2581: a space within a piece */
enum { TOK_META_SIZE = 3, TOK_REPLACEMENT_SIZE = 3 };

bool tok_is_space(uint32_t character); /* White_Space of Unicode */

#endif
