/* normalize_json.c -- the normalizer of a tokenizer.json, with the results of the library `tokenizers`.
 *
 * The Precompiled step treats grapheme clusters of less than 6 bytes as a unit: it finds the shortest prefix with a
 * rule, and replaces the whole cluster by the replacement of that prefix. In longer clusters it replaces each character
 * separately.
 * SPDX-License-Identifier: Apache-2.0 */
#include "tokenizer/parts.h"

static void add_replaced(const tokenizer *t, tok_text *to, const char *text, int64_t size)
{
    const tok_rule rule = tok_charsmap_find(&t->charsmap, text, size, false);
    if (rule.length > 0)
        tok_text_add(to, rule.text, rule.size);
    else
        tok_text_add(to, text, size);
}

/* Append the replacement of a cluster that is not a single ASCII character. */
static void add_cluster(const tokenizer *t, tok_text *to, const char *text, int64_t size)
{
    if (size < 6) {
        const tok_rule rule = tok_charsmap_find(&t->charsmap, text, size, false);
        if (rule.length > 0) {
            tok_text_add(to, rule.text, rule.size);
            return;
        }
    }
    uint32_t c;
    for (int64_t at = 0, n; at < size && (n = tok_utf8(text + at, size - at, &c)) > 0; at += n)
        add_replaced(t, to, text + at, n);
}

static void apply_charsmap(tok_work *w, tok_text *to, const char *text, int64_t size)
{
    const tokenizer *t = w->t;
    for (int64_t at = 0; at < size && tok_goes_on(w, 1);) {
        const unsigned char c = (unsigned char)text[at];
        const unsigned char next = at + 1 < size ? (unsigned char)text[at + 1] : 0;
        if (c < 0x80 && next < 0x80 && c != '\r') { /* a cluster of one ASCII character */
            const tok_rule *rule = &t->charsmap.ascii[c];
            if (rule->length == 0)
                tok_text_add_byte(to, (char)c);
            else if (rule->size == 1)
                tok_text_add_byte(to, rule->text[0]);
            else
                tok_text_add(to, rule->text, rule->size);
            at++;
            continue;
        }
        const int64_t n = tok_grapheme(&t->graphemes, text + at, size - at);
        add_cluster(t, to, text + at, n);
        at += n;
    }
}

/* With "prepend_scheme": "first", Metaspace treats the first word of the text differently. `tokenizers` tests whether
 * the first character of the word comes from the first character of the original text. To answer this, each step counts
 * how many characters at the front come from that character. */

static int64_t characters(const char *text, int64_t size)
{
    int64_t n = 0;
    for (int64_t k = 0; k < size; k++)
        n += ((unsigned char)text[k] & 0xc0) != 0x80;
    return n;
}

typedef struct origin {
    int64_t before, after; /* characters that come from the first one: before this step, and after it so far */
    int64_t used;          /* characters replaced so far */
    bool inserted;         /* the last replacement was longer than the text it replaced, in characters */
    bool ended;
} origin;

static void use(origin *o, int64_t n)
{
    o->used += n;
    o->ended = o->ended || o->used > o->before;
    o->after += !o->ended;
}

/* Record that n characters were replaced by `made` characters. Character k of the replacement comes from character k of
 * the n; any beyond n come from the last. A removed character counts as part of the previous one; a character inserted
 * there then comes from the removed one. */
static void count_origin(origin *o, int64_t n, int64_t made)
{
    if (made == 0 && o->inserted) {
        o->after--;
        use(o, 1);
        o->used += n - 1;
        o->inserted = false;
        return;
    }
    for (int64_t k = 0; k < made && !o->ended; k++)
        use(o, k < n);
    if (made < n && o->after > 0)
        o->used += n - made;
    if (made > 0)
        o->inserted = made > n;
}

static int64_t charsmap_front(tok_work *w, const char *text, int64_t size, int64_t before)
{
    const tokenizer *t = w->t;
    origin o = {.before = before};
    for (int64_t at = 0; at < size && !o.ended && tok_goes_on(w, 1);) {
        const int64_t n = tok_grapheme(&t->graphemes, text + at, size - at);
        const tok_rule whole = n < 6 ? tok_charsmap_find(&t->charsmap, text + at, n, false) : (tok_rule){0};
        uint32_t c;
        if (whole.length > 0)
            count_origin(&o, characters(text + at, n), characters(whole.text, whole.size));
        else
            for (int64_t k = 0, m; k < n && (m = tok_utf8(text + at + k, n - k, &c)) > 0; k += m) {
                const tok_rule rule = tok_charsmap_find(&t->charsmap, text + at + k, m, false);
                count_origin(&o, 1, rule.length > 0 ? characters(rule.text, rule.size) : 1);
            }
        at += n;
    }
    return o.after;
}

/* Return the new count if the first n characters are replaced by `made` characters, which all come from the last of the
 * n. */
static int64_t replaced_front(int64_t before, int64_t n, int64_t made)
{
    return n > before ? 0 : before - n + made;
}

static void apply_strip(const tok_norm *norm, tok_text *to, const char *text, int64_t size, int64_t *front)
{
    int64_t first = 0, end = size;
    uint32_t c;
    for (int n; norm->left && (n = tok_utf8(text + first, end - first, &c)) > 0 && tok_is_space(c);)
        first += n;
    while (norm->right && end > first) {
        int64_t start = end - 1;
        while (start > first && ((unsigned char)text[start] & 0xc0) == 0x80)
            start--;
        if (tok_utf8(text + start, end - start, &c) == 0 || !tok_is_space(c))
            break;
        end = start;
    }
    *front -= characters(text, first);
    tok_text_add(to, text + first, end - first);
}

/* Replace runs of two or more spaces. */
static void apply_spaces(tok_work *w, const tok_norm *norm, tok_text *to, const char *text, int64_t size,
                         int64_t *front)
{
    for (int64_t at = 0, done = 0; at < size && tok_goes_on(w, at - done);) {
        done = at;
        const char *space = memchr(text + at, ' ', (size_t)(size - at));
        const int64_t start = space != NULL ? space - text : size;
        int64_t end = start;
        while (end < size && text[end] == ' ')
            end++;
        if (end - start < 2) {
            tok_text_add(to, text + at, end - at);
        } else {
            tok_text_add(to, text + at, start - at);
            tok_text_add(to, norm->content, norm->content_size);
            if (start == 0)
                *front = replaced_front(*front, end, characters(norm->content, norm->content_size));
        }
        at = end;
    }
}

static void apply_replace(tok_work *w, const tok_norm *norm, tok_text *to, const char *text, int64_t size,
                          int64_t *front)
{
    for (int64_t at = 0, done = 0; at < size && tok_goes_on(w, at - done);) {
        done = at;
        const char *found = memmem(text + at, (size_t)(size - at), norm->pattern, (size_t)norm->pattern_size);
        const int64_t start = found != NULL ? found - text : size;
        tok_text_add(to, text + at, start - at);
        at = start;
        if (found != NULL) {
            if (start == 0)
                *front = replaced_front(*front, characters(norm->pattern, norm->pattern_size),
                                        characters(norm->content, norm->content_size));
            tok_text_add(to, norm->content, norm->content_size);
            at += norm->pattern_size;
        }
    }
}

void tok_normalize_json(tok_work *w, const char *text, int64_t size, int64_t from, int64_t *front)
{
    const tokenizer *t = w->t;
    const int64_t limit = tok_growth_limit(size);
    tok_text_begin(&w->normalized, limit);
    for (int k = 0; k < t->n_norms && !w->normalized.failed && !w->stopped; k++) {
        const tok_norm *norm = &t->norms[k];
        tok_text_begin(&w->other, limit);
        if (w->other.capacity < size && !tok_text_grow(&w->other, size))
            return;
        tok_edit edit = {text, size, k > 0 ? w->normalized.origins : NULL, from, 0, &w->other};
        switch (norm->kind) {
        case TOK_NORM_CHARSMAP:
            if (t->prepend == TOK_PREPEND_FIRST && *front > 0)
                *front = charsmap_front(w, text, size, *front);
            apply_charsmap(w, &w->other, text, size);
            break;
        case TOK_NORM_STRIP: apply_strip(norm, &w->other, text, size, front); break;
        case TOK_NORM_SPACES: apply_spaces(w, norm, &w->other, text, size, front); break;
        case TOK_NORM_REPLACE: apply_replace(w, norm, &w->other, text, size, front); break;
        default: tok_normalize_unicode(w, norm->kind, &edit);
        }
        const tok_text made = w->other;
        w->other = w->normalized;
        w->normalized = made;
        text = made.bytes, size = made.size;
    }
    tok_edit copy = {text, size, NULL, from, 0, &w->normalized};
    if (t->n_norms == 0)
        tok_edit_keep(&copy, size);
}
