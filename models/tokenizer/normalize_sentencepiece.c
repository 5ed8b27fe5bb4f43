/* normalize_sentencepiece.c -- the normalizer of a SentencePiece model, with the results of SentencePiece. User-defined
 * pieces are left unchanged.
 * SPDX-License-Identifier: Apache-2.0 */
#include "tokenizer/parts.h"

/* The replacement for the first characters of a text. */
typedef struct prefix {
    const char *text;
    int64_t size;
    int64_t length; /* number of bytes that are replaced */
} prefix;

static prefix normalize_prefix(const tokenizer *t, const char *text, int64_t size)
{
    const unsigned char first = (unsigned char)text[0];
    int32_t value;
    const int64_t user = t->user_defined.units != NULL ? tok_trie_longest(&t->user_defined, text, size, &value) : 0;
    if (user > 0)
        return (prefix){text, user, user};
    tok_rule rule;
    if (first < 0x80 && (size == 1 || (unsigned char)text[1] < 0x80) && t->charsmap.ascii_alone[first])
        rule = t->charsmap.ascii[first];
    else
        rule = tok_charsmap_find(&t->charsmap, text, size, true);
    if (rule.length > 0)
        return (prefix){rule.text, rule.size, rule.length};
    uint32_t character;
    const int n = tok_utf8(text, size, &character);
    return n > 0 ? (prefix){text, n, n} : (prefix){TOK_REPLACEMENT, TOK_REPLACEMENT_SIZE, 1};
}

static void add_space(const tokenizer *t, tok_text *to)
{
    if (t->escape)
        tok_text_add(to, TOK_META, TOK_META_SIZE);
    else
        tok_text_add_byte(to, ' ');
}

static void add_escaped(const tokenizer *t, tok_text *to, const char *text, int64_t size)
{
    if (!t->escape || (size > 1 && memchr(text, ' ', (size_t)size) == NULL)) {
        tok_text_add(to, text, size);
        return;
    }
    for (int64_t k = 0; k < size; k++)
        if (text[k] == ' ')
            tok_text_add(to, TOK_META, TOK_META_SIZE);
        else
            tok_text_add_byte(to, text[k]);
}

static void remove_trailing(const tokenizer *t, tok_text *to)
{
    const char *space = t->escape ? TOK_META : " ";
    const int64_t n = t->escape ? TOK_META_SIZE : 1;
    while (to->size >= n && memcmp(to->bytes + to->size - n, space, (size_t)n) == 0)
        to->size -= n;
}

void tok_normalize_sentencepiece(tok_work *w, const char *text, int64_t size)
{
    const tokenizer *t = w->t;
    tok_text *to = &w->normalized;
    tok_text_begin(to, tok_growth_limit(size));
    int64_t at = 0;
    while (t->remove_extra && at < size && tok_goes_on(w, 1)) {
        const prefix p = normalize_prefix(t, text + at, size - at);
        if (p.size != 1 || p.text[0] != ' ')
            break;
        at += p.length;
    }
    if (at == size)
        return;
    if (t->dummy_prefix && !t->space_is_suffix)
        add_space(t, to);
    bool after_space = t->remove_extra;
    while (at < size && tok_goes_on(w, 1)) {
        prefix p = normalize_prefix(t, text + at, size - at);
        at += p.length;
        while (after_space && p.size > 0 && p.text[0] == ' ')
            p.text++, p.size--;
        if (p.size > 0) {
            add_escaped(t, to, p.text, p.size);
            after_space = t->remove_extra && p.text[p.size - 1] == ' ';
        }
    }
    if (t->remove_extra)
        remove_trailing(t, to);
    if (t->dummy_prefix && t->space_is_suffix)
        add_space(t, to);
}

void tok_normalize_characters(tok_work *w, tok_text *to, const char *text, int64_t size)
{
    tok_text_begin(to, tok_growth_limit(size));
    for (int64_t at = 0; at < size && tok_goes_on(w, 1);) {
        const prefix p = normalize_prefix(w->t, text + at, size - at);
        tok_text_add(to, p.text, p.size);
        at += p.length;
    }
}
