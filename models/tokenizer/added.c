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

/* Return true if text[start .. end) has no character of a word next to it. */
static bool is_single_word(const char *text, int64_t size, int64_t start, int64_t end)
{
    uint32_t c;
    int64_t before = start > 0 ? start - 1 : 0;
    while (before > 0 && start - before < 4 && ((unsigned char)text[before] & 0xc0) == 0x80)
        before--;
    return !(tok_utf8(text + before, start - before, &c) > 0 && tok_is_word(c)) &&
           !(tok_utf8(text + end, size - end, &c) > 0 && tok_is_word(c));
}

void tok_split_added(tok_work *w, const tok_matcher *matcher, const char *text, int64_t size,
                     void (*add)(tok_work *w, int32_t id, int64_t begin, int64_t end),
                     void (*part)(tok_work *w, const char *text, int64_t size, int64_t from))
{
    const tokenizer *t = w->t;
    int64_t done = 0;
    if (matcher->trie.units != NULL) {
        int32_t index;
        int64_t n;
        for (int64_t at = 0; !w->stopped && (n = next_match(matcher, text, size, &at, &index)) > 0; at += n) {
            tok_goes_on(w, n);
            const tok_added *token = &t->added[index];
            if (token->single_word && !is_single_word(text, size, at, at + n))
                continue;
            const int64_t start = token->lstrip ? space_before(t, text, done < at ? done : at, at) : at;
            const int64_t stop = token->rstrip ? space_after(t, text, at + n, size) : at + n;
            if (done < start)
                part(w, text + done, start - done, done);
            add(w, token->id, start, stop);
            done = stop;
        }
    }
    if (done < size && !w->stopped)
        part(w, text + done, size - done, done);
}

/* ------------------------------------------------------------------------------------------------ ByT5 */

/* A part of a text: an added token, or bytes. */
typedef struct part {
    int64_t start, end;
    int32_t index; /* of `added`; -1: bytes */
    bool joined;   /* an added token whose bytes belong to one of its neighbours */
} part;

/* Return the part at `at`: a match, or the bytes before the next match, at `match`. */
static part next_part(const tokenizer *t, const char *text, int64_t size, int64_t at, int64_t *match, int64_t *n,
                      int32_t *index)
{
    if (*match < at) {
        *match = at;
        *n = t->raw.trie.units != NULL ? next_match(&t->raw, text, size, match, index) : 0;
        if (*n == 0)
            *match = size;
    }
    return *match > at || at == size ? (part){at, *match, -1, false} : (part){at, at + *n, *index, false};
}

static bool is_there(const part *p)
{
    return !p->joined && p->end > p->start;
}

/* Set the bounds of a part. A part that has become equal to an added token is that token. */
static void set_bounds(const tokenizer *t, const char *text, part *p, int64_t start, int64_t end)
{
    if (p->start == start && p->end == end)
        return;
    const int32_t index = end > start ? tok_trie_exact(&t->raw.trie, text + start, end - start) : -1;
    *p = (part){start, end, index, false};
}

/* Make the bytes of an added token part of its neighbour. */
static void join(const tokenizer *t, const char *text, part *token, part *side)
{
    if (side->end == side->start || side->start == token->end || side->end == token->start) {
        const bool empty = side->end == side->start;
        const int64_t start = empty || token->start < side->start ? token->start : side->start,
                      end = empty || token->end > side->end ? token->end : side->end;
        set_bounds(t, text, side, start, end);
        *token = (part){token->end, token->end, -1, false};
    } else { /* white space between them was dropped */
        side->index = token->index = -1;
        token->joined = true;
    }
}

/* Apply the properties of an added token to the parts beside it, as the tokenizers of transformers written in Python
 * do: a token that is no single word becomes bytes of the part before or after it. */
static void apply_properties(const tokenizer *t, const char *text, part *left, part *token, part *right)
{
    const tok_added *a = &t->added[token->index];
    const bool before = is_there(left) && text[left->end - 1] != ' ',
               after = is_there(right) && text[right->start] != ' ';
    if (a->rstrip && is_there(right))
        set_bounds(t, text, right, space_after(t, text, right->start, right->end), right->end);
    if (a->lstrip && is_there(left))
        set_bounds(t, text, left, left->start, space_before(t, text, left->start, left->end));
    if (a->single_word && (before || after))
        join(t, text, token, before ? left : right);
}

static void add_part(tok_work *w, const char *text, const part *p)
{
    if (p->index >= 0)
        tok_ids_add(&w->ids, w->t->added[p->index].id);
    for (int64_t k = p->start; k < p->end && p->index < 0 && tok_goes_on(w, 1); k++)
        tok_ids_add(&w->ids, w->t->byte_ids[(unsigned char)text[k]]);
}

void tok_split_bytes(tok_work *w, const char *text, int64_t size)
{
    const tokenizer *t = w->t;
    int64_t match = -1, n = 0;
    int32_t index = 0;
    part left = {0, 0, -1, false}, now = next_part(t, text, size, 0, &match, &n, &index);
    for (int64_t at = 0, end = now.end; at < size && !w->stopped;) {
        at = end;
        part right = next_part(t, text, size, at, &match, &n, &index);
        end = right.end;
        if (now.index >= 0)
            apply_properties(t, text, &left, &now, &right);
        add_part(w, text, &left);
        left = now;
        now = right;
    }
    add_part(w, text, &left);
}
