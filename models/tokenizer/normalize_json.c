/* normalize_json.c -- the normalizer of a tokenizer.json, with the results of the library `tokenizers`.
 *
 * The Precompiled step treats grapheme clusters of less than 6 bytes as a unit: it finds the shortest prefix with a
 * rule, and replaces the whole cluster by the replacement of that prefix. In longer clusters it replaces each character
 * separately.
 * SPDX-License-Identifier: Apache-2.0 */
#include "tokenizer/parts.h"

/* Append the replacement of a character or cluster. */
static void add_replaced(const tokenizer *t, tok_edit *e, const char *text, int64_t size)
{
    const tok_rule rule = tok_charsmap_find(&t->charsmap, text, size, false);
    const int64_t n = e->to->mapped ? tok_characters(text, size) : 0;
    if (rule.length > 0)
        tok_edit_string(e, n, rule.text, rule.size);
    else
        tok_edit_string(e, n, text, size);
}

/* Append the replacement of a cluster that is not a single ASCII character. */
static void add_cluster(const tokenizer *t, tok_edit *e, const char *text, int64_t size)
{
    if (size < 6 && tok_charsmap_find(&t->charsmap, text, size, false).length > 0) {
        add_replaced(t, e, text, size);
        return;
    }
    uint32_t c;
    for (int64_t at = 0, n; at < size && (n = tok_utf8(text + at, size - at, &c)) > 0; at += n)
        add_replaced(t, e, text + at, n);
}

static void apply_charsmap(tok_work *w, tok_edit *e)
{
    const tokenizer *t = w->t;
    const char *text = e->text;
    const int64_t size = e->size;
    tok_text *to = e->to;
    for (int64_t at = 0; at < size && tok_goes_on(w, 1);) {
        const unsigned char c = (unsigned char)text[at];
        const unsigned char next = at + 1 < size ? (unsigned char)text[at + 1] : 0;
        if (c < 0x80 && next < 0x80 && c != '\r') { /* a cluster of one ASCII character */
            const tok_rule *rule = &t->charsmap.ascii[c];
            if (to->mapped)
                tok_edit_string(e, 1, rule->length > 0 ? rule->text : text + at, rule->length > 0 ? rule->size : 1);
            else if (rule->length == 0)
                tok_text_add_byte(to, (char)c);
            else if (rule->size == 1)
                tok_text_add_byte(to, rule->text[0]);
            else
                tok_text_add(to, rule->text, rule->size);
            at++;
            continue;
        }
        const int64_t n = tok_grapheme(&t->graphemes, text + at, size - at);
        add_cluster(t, e, text + at, n);
        at += n;
    }
}

/* With "prepend_scheme": "first", Metaspace treats the first word of the text differently. `tokenizers` tests whether
 * the first character of the word comes from the first character of the original text. To answer this, each step counts
 * how many characters at the front come from that character. */

typedef struct origin {
    int64_t before, after; /* characters that come from the first one: before this step, and after it so far */
    int64_t used;          /* characters replaced so far */
    bool inserted;         /* the last replacement was longer than the text it replaced, in characters */
    bool ended;
} origin;

static void use(origin *o, int64_t n)
{
    o->used += n;
    o->ended = o->used > o->before;
    o->after += !o->ended;
}

/* Record that n characters were replaced by `made` characters. Character k of the replacement comes from character k of
 * the n; any beyond n come from the last. A removed character counts as part of the previous one; a character inserted
 * there then comes from the removed one. */
static void count_origin(origin *o, int64_t n, int64_t made)
{
    if (o->ended)
        return;
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
            count_origin(&o, tok_characters(text + at, n), tok_characters(whole.text, whole.size));
        else
            for (int64_t k = 0, m; k < n && (m = tok_utf8(text + at + k, n - k, &c)) > 0; k += m) {
                const tok_rule rule = tok_charsmap_find(&t->charsmap, text + at + k, m, false);
                count_origin(&o, 1, rule.length > 0 ? tok_characters(rule.text, rule.size) : 1);
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

static void apply_strip(const tok_norm *norm, tok_edit *e, int64_t *front)
{
    const char *text = e->text;
    int64_t first = 0, end = e->size;
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
    *front -= tok_characters(text, first);
    tok_edit_drop(e, first);
    tok_edit_keep(e, end - first);
}

/* Replace the next n bytes by norm->content. */
static void replace(const tok_norm *norm, tok_edit *e, int64_t n, int64_t *front)
{
    if (e->at == 0)
        *front = replaced_front(*front, tok_characters(e->text, n), tok_characters(norm->content, norm->content_size));
    tok_edit_drop(e, n);
    tok_edit_insert(e, norm->content, norm->content_size);
}

/* Replace runs of two or more spaces. */
static void apply_spaces(tok_work *w, const tok_norm *norm, tok_edit *e, int64_t *front)
{
    for (int64_t done = 0; e->at < e->size && tok_goes_on(w, e->at - done);) {
        done = e->at;
        const char *space = memchr(e->text + e->at, ' ', (size_t)(e->size - e->at));
        const int64_t start = space != NULL ? space - e->text : e->size;
        int64_t end = start;
        while (end < e->size && e->text[end] == ' ')
            end++;
        tok_edit_keep(e, start - e->at);
        if (end - start < 2)
            tok_edit_keep(e, end - start);
        else
            replace(norm, e, end - start, front);
    }
}

/* Replace runs of two or more characters of white space, and each \n, \r or \t. */
static void apply_white(tok_work *w, const tok_norm *norm, tok_edit *e, int64_t *front)
{
    while (e->at < e->size && tok_goes_on(w, 1)) {
        int64_t n = 0, end = e->at;
        uint32_t c, last = 0;
        for (int size; (size = tok_utf8(e->text + end, e->size - end, &c)) > 0 && tok_is_space(c); end += size, n++)
            last = c;
        if (n > 1 || last == '\n' || last == '\r' || last == '\t')
            replace(norm, e, end - e->at, front);
        else
            tok_edit_keep(e, end - e->at);
        while (e->at < e->size && (tok_utf8(e->text + e->at, e->size - e->at, &c)) > 0 && !tok_is_space(c))
            tok_edit_keep(e, tok_utf8(e->text + e->at, e->size - e->at, &c));
    }
}

static void apply_replace(tok_work *w, const tok_norm *norm, tok_edit *e, int64_t *front)
{
    for (int64_t done = 0; e->at < e->size && tok_goes_on(w, e->at - done);) {
        done = e->at;
        const char *found =
            memmem(e->text + e->at, (size_t)(e->size - e->at), norm->pattern, (size_t)norm->pattern_size);
        tok_edit_keep(e, (found != NULL ? found - e->text : e->size) - e->at);
        if (found != NULL)
            replace(norm, e, norm->pattern_size, front);
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
        tok_edit edit = {text, size, k > 0 ? w->normalized.origins : NULL, from, 0, &w->other, false};
        switch (norm->kind) {
        case TOK_NORM_CHARSMAP:
            if (t->prepend == TOK_PREPEND_FIRST && *front > 0)
                *front = charsmap_front(w, text, size, *front);
            apply_charsmap(w, &edit);
            break;
        case TOK_NORM_STRIP: apply_strip(norm, &edit, front); break;
        case TOK_NORM_SPACES: apply_spaces(w, norm, &edit, front); break;
        case TOK_NORM_WHITE: apply_white(w, norm, &edit, front); break;
        case TOK_NORM_REPLACE: apply_replace(w, norm, &edit, front); break;
        default: tok_normalize_unicode(w, norm->kind, &edit);
        }
        const tok_text made = w->other;
        w->other = w->normalized;
        w->normalized = made;
        text = made.bytes, size = made.size;
    }
    tok_edit copy = {text, size, NULL, from, 0, &w->normalized, false};
    if (t->n_norms == 0)
        tok_edit_keep(&copy, size);
}
