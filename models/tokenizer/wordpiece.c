/* wordpiece.c -- splits a word into pieces from left to right; each is the longest that fits. Devlin et al. 2019,
 * "BERT", section 3; the algorithm is "greedy longest-match-first" of google-research/bert.
 * SPDX-License-Identifier: Apache-2.0 */
#include "tokenizer/parts.h"

void tok_set_words(tokenizer *t, const char *prefix, int64_t size, int64_t max_word)
{
    int32_t value;
    t->max_word = max_word;
    t->inner = t->pieces.root;
    for (int64_t k = 0; k < size; k++)
        if (!tok_trie_step(&t->pieces, &t->inner, (unsigned char)prefix[k], &value))
            t->inner = 0;
}

/* Return the size of the longest piece of text that continues the state `base`; 0 if there is none. Set *id. */
static int64_t longest(const tokenizer *t, uint32_t base, const char *text, int64_t size, int32_t *id)
{
    int64_t found = 0;
    int32_t value;
    for (int64_t at = 0; at < size && tok_trie_step(&t->pieces, &base, (unsigned char)text[at], &value); at++)
        if (value != TOK_TRIE_NONE)
            found = at + 1, *id = value;
    return found;
}

/* Return true if a text has more than `most` characters. */
static bool is_longer(const char *text, int64_t size, int64_t most)
{
    int64_t n = 0;
    for (int64_t k = 0; k < size && n <= most; k++)
        n += ((unsigned char)text[k] & 0xc0) != 0x80;
    return n > most;
}

void tok_wordpiece(tok_work *w, const char *text, int64_t size)
{
    const tokenizer *t = w->t;
    const int64_t first = w->ids.n;
    const bool too_long = is_longer(text, size, t->max_word);
    for (int64_t at = 0, n; at < size && tok_goes_on(w, 1); at += n) {
        int32_t id = 0;
        n = too_long ? 0 : longest(t, at == 0 ? t->pieces.root : t->inner, text + at, size - at, &id);
        if (n == 0) { /* the whole word is unknown */
            w->ids.n = first;
            w->spans.n = w->mapped ? first : 0;
            tok_add_piece(w, t->unk, 0, size);
            return;
        }
        tok_add_piece(w, id, at, at + n);
    }
}
