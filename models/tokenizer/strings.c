/* strings.c -- growing arrays, UTF-8 and error messages.
 * SPDX-License-Identifier: Apache-2.0 */
#include "tokenizer/text.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

tok_status tok_fail(char err[TOK_ERR_MAX], tok_status status, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(err, TOK_ERR_MAX, format, arguments);
    va_end(arguments);
    return status;
}

bool tok_text_grow(tok_text *t, int64_t more)
{
    const int64_t most = t->limit > 0 ? t->limit : INT64_MAX / 4;
    if (t->failed || more > most - t->size) {
        t->too_long = t->too_long || (!t->failed && t->limit > 0);
        t->failed = true;
        t->capacity = t->size; /* stop: nothing more fits */
        return false;
    }
    const int64_t wanted = t->size + more + t->size / 2 + 64, capacity = wanted < most ? wanted : most;
    char *bytes = realloc(t->bytes, (size_t)capacity);
    if (bytes == NULL) {
        t->failed = true;
        t->capacity = t->size; /* stop: nothing more fits */
        return false;
    }
    t->bytes = bytes;
    int64_t *origins = t->mapped ? realloc(t->origins, (size_t)capacity * sizeof(*origins)) : NULL;
    if (t->mapped && origins == NULL) {
        t->failed = true;
        t->capacity = t->size;
        return false;
    }
    t->origins = origins;
    t->capacity = capacity;
    return true;
}

void tok_text_free(tok_text *t)
{
    free(t->bytes);
    free(t->origins);
    *t = (tok_text){0};
}

/* Enlarge an array. Return false if out of memory; then nothing more is added. */
static bool grow(void **elements, size_t size, int64_t n, int64_t *capacity, bool *failed)
{
    const int64_t more = *capacity + *capacity / 2 + 64;
    void *made = *failed ? NULL : realloc(*elements, (size_t)more * size);
    *failed = made == NULL;
    *capacity = made != NULL ? more : n;
    if (made != NULL)
        *elements = made;
    return made != NULL;
}

bool tok_ids_grow(tok_ids *t)
{
    void *ids = t->ids;
    const bool good = grow(&ids, sizeof(*t->ids), t->n, &t->capacity, &t->failed);
    t->ids = ids;
    return good;
}

bool tok_spans_grow(tok_spans *t)
{
    void *spans = t->spans;
    const bool good = grow(&spans, sizeof(*t->spans), t->n, &t->capacity, &t->failed);
    t->spans = spans;
    return good;
}

int tok_utf8_write(uint32_t c, char to[4])
{
    if (c < 0x80) {
        to[0] = (char)c;
        return 1;
    }
    const int n = c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    for (int k = n - 1; k > 0; k--, c >>= 6)
        to[k] = (char)(0x80 | (c & 0x3f));
    to[0] = (char)((0xf00 >> n & 0xff) | c);
    return n;
}

/* Return the number of bytes of the character that begins with this byte, and set the allowed range of its second byte
 * (Unicode, table of well-formed byte sequences). */
static int expected(unsigned char first, unsigned char *low, unsigned char *high)
{
    *low = first == 0xe0 ? 0xa0 : first == 0xf0 ? 0x90 : 0x80;
    *high = first == 0xed ? 0x9f : first == 0xf4 ? 0x8f : 0xbf;
    if (first < 0x80)
        return 1;
    if (first < 0xc2 || first > 0xf4)
        return 0;
    return first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
}

/* Return how many bytes at text are valid for one character; *n is the number of bytes that the whole character has. */
static int right_bytes(const char *text, int64_t size, int *n)
{
    unsigned char low, high;
    *n = expected((unsigned char)text[0], &low, &high);
    int k = 1;
    for (; k < *n && k < size; k++, low = 0x80, high = 0xbf)
        if ((unsigned char)text[k] < low || (unsigned char)text[k] > high)
            break;
    return k;
}

int tok_utf8(const char *text, int64_t size, uint32_t *character)
{
    if (size <= 0)
        return 0;
    int n;
    if (right_bytes(text, size, &n) != n)
        return 0;
    const unsigned char *p = (const unsigned char *)text;
    *character = n == 1 ? p[0] : p[0] & (0x7fu >> n);
    for (int k = 1; k < n; k++)
        *character = *character << 6 | (p[k] & 0x3f);
    return n;
}

int tok_utf8_broken(const char *text, int64_t size)
{
    int n;
    return right_bytes(text, size, &n);
}

bool tok_utf8_valid(const char *text, int64_t size)
{
    for (int64_t at = 0; at < size;) {
        while (at + 8 <= size) { /* skip eight ASCII bytes per step */
            uint64_t word;
            memcpy(&word, text + at, 8);
            if (word & 0x8080808080808080)
                break;
            at += 8;
        }
        uint32_t character;
        const int n = tok_utf8(text + at, size - at, &character);
        if (n == 0 && at < size)
            return false;
        at += n;
    }
    return true;
}
