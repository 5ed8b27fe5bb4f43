/* added.c -- splits a text at its added tokens, such as </s> and <extra_id_0>. The leftmost match wins; of several that
 * begin there, the longest.
 * SPDX-License-Identifier: Apache-2.0 */
#include "tokenizer/parts.h"

/* Find the next match, starting at *at. Set *at to its start and *index to the token's index in `added`. Return its
 * size; 0 if there is no match. */
static int64_t next_match(const tok_matcher *m, const char *text, int64_t size, int64_t *at, int32_t *index)
{
    for (; *at < size; (*at)++) {
        if (m->only_first >= 0) {
            const char *found = memchr(text + *at, m->only_first, (size_t)(size - *at));
            if (found == NULL)
                return 0;
            *at = found - text;
        } else if (!m->first[(unsigned char)text[*at]]) {
            continue;
        }
        const int64_t n = tok_trie_longest(&m->trie, text + *at, size - *at, index);
        if (n > 0)
            return n;
    }
    return 0;
}

/* Return true for white space. For ByT5, whose tokenizer is written in Python, this includes four more control
 * characters. */
static bool strips(const tokenizer *t, uint32_t c)
{
    return tok_is_space(c) || (t->kind == TOK_BYTES && c >= 0x1c && c <= 0x1f);
}

/* Return the start of the white space that ends at `end`, but at least `from`. */
static int64_t space_before(const tokenizer *t, const char *text, int64_t from, int64_t end)
{
    while (end > from) {
        int64_t start = end - 1;
        while (start > from && end - start < 4 && ((unsigned char)text[start] & 0xc0) == 0x80)
            start--;
        uint32_t c;
        if (tok_utf8(text + start, end - start, &c) != end - start || !strips(t, c))
            break;
        end = start;
    }
    return end;
}

/* Return the end of the white space that begins at `start`. */
static int64_t space_after(const tokenizer *t, const char *text, int64_t start, int64_t size)
{
    uint32_t c;
    for (int n; (n = tok_utf8(text + start, size - start, &c)) > 0 && strips(t, c);)
        start += n;
    return start;
}

void tok_split_added(tok_work *w, const tok_matcher *matcher, const char *text, int64_t size,
                     void (*part)(tok_work *w, const char *text, int64_t size, int64_t from))
{
    const tokenizer *t = w->t;
    int64_t done = 0;
    if (matcher->trie.units != NULL) {
        int32_t index;
        int64_t n;
        for (int64_t at = 0; !w->stopped && (n = next_match(matcher, text, size, &at, &index)) > 0; at += n) {
            const tok_added *token = &t->added[index];
            const int64_t start = token->lstrip ? space_before(t, text, done < at ? done : at, at) : at;
            const int64_t stop = token->rstrip ? space_after(t, text, at + n, size) : at + n;
            if (done < start)
                part(w, text + done, start - done, done);
            tok_ids_add(&w->ids, token->id);
            done = stop;
        }
    }
    if (done < size && !w->stopped)
        part(w, text + done, size - done, done);
}
