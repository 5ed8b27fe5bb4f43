/* spans.c -- appends tokens, each with the part of the encoded text that it comes from.
 * SPDX-License-Identifier: Apache-2.0 */
#include "tokenizer/parts.h"

/* Return the number of bytes of the first character that trim_offsets trims; 0: it is no such character. */
static int trimmed(const char *text, int64_t size)
{
    enum { BYTE_SPACE = 0x120 }; /* a space in byte-level pieces */
    uint32_t c;
    const int n = tok_utf8(text, size, &c);
    return n > 0 && (c == BYTE_SPACE || tok_is_space(c)) ? n : 0;
}

/* Return the place of the last character of text[0 .. end); 0 if there is none. */
static int64_t character_before(const char *text, int64_t end)
{
    int64_t at = end > 0 ? end - 1 : 0;
    while (at > 0 && ((unsigned char)text[at] & 0xc0) == 0x80)
        at--;
    return at;
}

/* Apply trim_offsets of RobertaProcessing or ByteLevel: for each space at an end of the token's text, remove a
 * character at that end of its span. */
static tok_span trim(const tok_work *w, tok_span span, const char *text, int64_t size)
{
    int64_t first = 0, last = 0; /* numbers of spaces */
    int n;
    for (int64_t at = 0; (n = trimmed(text + at, size - at)) > 0; at += n)
        first++;
    for (int64_t end = size, at; end > 0; end = at, last++) {
        at = character_before(text, end);
        if (trimmed(text + at, end - at) == 0)
            break;
    }
    if (first == 1 && w->t->trim_first && (w->ids.n == 1 || span.begin == 0))
        first = 0; /* ByteLevel inserted the space */
    uint32_t c;
    for (; first > 0 && span.begin < span.end; first--)
        span.begin += tok_utf8(w->text + span.begin, span.end - span.begin, &c);
    int64_t end = span.end;
    for (int64_t k = 0; k < last; k++, end = character_before(w->text, end))
        if (end == 0)
            return span;
    return (tok_span){span.begin, end > span.begin ? end : span.begin};
}

/* Append a token with its span. `text` is its piece, or an added token with the white space that it takes. */
static void add(tok_work *w, int32_t id, tok_span span, const char *text, int64_t size)
{
    tok_ids_add(&w->ids, id);
    tok_spans_add(&w->spans, w->t->trim ? trim(w, span, text, size) : span);
}

/* Return the span from the origin of one byte to the end of the character that another byte comes from. */
static tok_span span_of(const tok_work *w, int64_t first, int64_t last)
{
    uint32_t c;
    return (tok_span){first, last + tok_utf8(w->text + last, 4, &c)};
}

void tok_add_raw(tok_work *w, int32_t id, int64_t begin, int64_t end)
{
    if (w->mapped)
        add(w, id, (tok_span){begin, end}, w->text + begin, end - begin);
    else
        tok_ids_add(&w->ids, id);
}

void tok_add_normalized(tok_work *w, int32_t id, int64_t begin, int64_t end)
{
    const int64_t *origins = w->normalized.origins;
    if (w->mapped)
        add(w, id, span_of(w, origins[begin], origins[end - 1]), w->normalized.bytes + begin, end - begin);
    else
        tok_ids_add(&w->ids, id);
}

void tok_add_mapped(tok_work *w, int32_t id, int64_t begin, int64_t end)
{
    const tok_entry *token = &w->t->tokens[id];
    add(w, id, span_of(w, w->origins[begin], w->origins[end - 1]), tok_named(w->t, token->piece), token->size);
}
