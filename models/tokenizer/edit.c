/* edit.c -- inserts characters and replaces strings, as NormalizedString of `tokenizers` does.
 * SPDX-License-Identifier: Apache-2.0 */
#include "tokenizer/edit.h"

int64_t tok_characters(const char *text, int64_t size)
{
    int64_t n = 0;
    for (int64_t k = 0; k < size; k++)
        n += ((unsigned char)text[k] & 0xc0) != 0x80;
    return n;
}

void tok_edit_insert(tok_edit *e, const char *bytes, int64_t size)
{
    int64_t before = e->at > 0 ? e->at - 1 : 0;
    while (before > 0 && ((unsigned char)e->text[before] & 0xc0) == 0x80)
        before--;
    tok_edit_add(e, bytes, size, tok_edit_origin(e, before));
}

/* Return the number of bytes of the character at text[at]. */
static int64_t size_at(const char *text, int64_t size, int64_t at)
{
    int64_t end = at + 1;
    while (end < size && ((unsigned char)text[end] & 0xc0) == 0x80)
        end++;
    return at < size ? end - at : 0;
}

/* Remove the next n characters. They count as part of the character before them. If that was inserted, it replaces the
 * first of them instead. Without a character before them, `tokenizers` forgets to skip them. */
static void remove_next(tok_edit *e, int64_t n)
{
    int64_t last = e->to->size;
    while (last > 0 && ((unsigned char)e->to->bytes[--last] & 0xc0) == 0x80)
        ;
    for (int64_t k = last; k < e->to->size && e->inserted; k++)
        e->to->origins[k] = tok_edit_origin(e, e->at);
    e->inserted = false;
    for (; n > 0 && e->to->size > 0; n--)
        e->at += size_at(e->text, e->size, e->at);
}

void tok_edit_string(tok_edit *e, int64_t n, const char *bytes, int64_t size)
{
    if (!e->to->mapped) {
        tok_text_add(e->to, bytes, size);
        return;
    }
    for (int64_t at = 0, more; at < size && !e->to->failed; at += more, n--) {
        more = size_at(bytes, size, at);
        e->inserted = n <= 0;
        if (e->inserted) {
            tok_edit_insert(e, bytes + at, more);
        } else {
            tok_edit_add(e, bytes + at, more, tok_edit_origin(e, e->at));
            e->at += size_at(e->text, e->size, e->at);
        }
    }
    if (n > 0 && !e->to->failed)
        remove_next(e, n);
}
