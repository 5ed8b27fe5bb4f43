/* encode.c -- converts text to token numbers: finds added tokens, normalizes the text between them, splits it into
 * words if the tokenizer does so, and splits the words into pieces.
 * SPDX-License-Identifier: Apache-2.0 */
#include "tokenizer/parts.h"

#include <stdlib.h>

/* Return the number of bytes before the next space, or before the next byte that may begin meta_text. */
static int64_t plain_run(const tokenizer *t, const char *text, int64_t size)
{
    int64_t n = 0;
    while (n < size && text[n] != ' ' && text[n] != t->meta_text[0])
        n++;
    return n;
}

/* Apply the Metaspace step: replace each space by t->meta_text, insert meta_text before the first word if the scheme
 * requires it, and encode each word separately if meta_split is set. */
static void encode_meta(tok_work *w, const char *text, int64_t size, bool at_start)
{
    const tokenizer *t = w->t;
    const bool begins =
        text[0] == ' ' || (size >= t->meta_size && memcmp(text, t->meta_text, (size_t)t->meta_size) == 0);
    w->word.size = 0;
    if (!begins && (t->prepend == TOK_PREPEND_ALWAYS || (t->prepend == TOK_PREPEND_FIRST && at_start)))
        tok_text_add(&w->word, t->meta_text, t->meta_size);
    for (int64_t at = 0; at < size && tok_goes_on(w, 1);) {
        const bool meta = size - at >= t->meta_size && memcmp(text + at, t->meta_text, (size_t)t->meta_size) == 0;
        if (text[at] != ' ' && !meta) {
            const int64_t n = 1 + plain_run(t, text + at + 1, size - at - 1);
            tok_text_add(&w->word, text + at, n);
            at += n;
            continue;
        }
        if (t->meta_split && w->word.size > 0) {
            tok_unigram(w, w->word.bytes, w->word.size);
            w->word.size = 0;
        }
        tok_text_add(&w->word, t->meta_text, t->meta_size);
        at += meta ? t->meta_size : 1;
    }
    if (w->word.size > 0 && !w->stopped)
        tok_unigram(w, w->word.bytes, w->word.size);
}

static void encode_words(tok_work *w, const char *text, int64_t size, bool at_start)
{
    if (w->t->meta)
        encode_meta(w, text, size, at_start);
    else
        tok_unigram(w, text, size);
}

/* Encode normalized text that contains no added tokens. */
static void encode_normalized(tok_work *w, const char *text, int64_t size, int64_t from)
{
    if (!w->t->white_split) {
        encode_words(w, text, size, from < w->front);
        return;
    }
    int64_t start = 0, at = 0;
    while (at < size && tok_goes_on(w, 1)) {
        uint32_t c;
        const int n = tok_utf8(text + at, size - at, &c);
        if (n == 0)
            break;
        if (tok_is_space(c)) {
            if (at > start)
                encode_words(w, text + start, at - start, from + start < w->front);
            start = at + n;
        }
        at += n;
    }
    if (at > start && !w->stopped)
        encode_words(w, text + start, at - start, from + start < w->front);
}

/* Return the number of bytes that the first n characters have. */
static int64_t bytes_of(const char *text, int64_t size, int64_t n)
{
    int64_t at = 0;
    while (at < size && (n > 0 || ((unsigned char)text[at] & 0xc0) == 0x80))
        n -= ((unsigned char)text[at++] & 0xc0) != 0x80;
    return at;
}

static void encode_sentencepiece(tok_work *w, const char *text, int64_t size, int64_t from)
{
    (void)from;
    tok_normalize_sentencepiece(w, text, size);
    if (!w->normalized.failed && w->normalized.size > 0 && !w->stopped)
        tok_unigram(w, w->normalized.bytes, w->normalized.size);
}

/* Encode text that contains no added tokens. */
static void encode_raw(tok_work *w, const char *text, int64_t size, int64_t from)
{
    const tokenizer *t = w->t;
    if (t->kind == TOK_SENTENCEPIECE && t->normalized.trie.units == NULL) {
        encode_sentencepiece(w, text, size, from);
        return;
    }
    if (t->kind == TOK_SENTENCEPIECE) {
        tok_normalize_characters(w, &w->other, text, size);
        if (!w->other.failed && !w->stopped)
            tok_split_added(w, &t->normalized, w->other.bytes, w->other.size, encode_sentencepiece);
        return;
    }
    int64_t front = from == 0;
    tok_normalize_json(w, text, size, &front);
    w->front = bytes_of(w->normalized.bytes, w->normalized.size, front);
    if (!w->normalized.failed && !w->other.failed && w->normalized.size > 0 && !w->stopped)
        tok_split_added(w, &t->normalized, w->normalized.bytes, w->normalized.size, encode_normalized);
}

/* Copy a text to *to, replacing bytes that are not UTF-8 by U+FFFD. */
static void make_valid(tok_work *w, tok_text *to, const char *text, int64_t size)
{
    for (int64_t at = 0; at < size && tok_goes_on(w, 1);) {
        uint32_t c;
        const int n = tok_utf8(text + at, size - at, &c);
        if (n > 0)
            tok_text_add(to, text + at, n);
        else
            tok_text_add(to, TOK_REPLACEMENT, TOK_REPLACEMENT_SIZE);
        at += n > 0 ? n : tok_utf8_broken(text + at, size - at);
    }
}

static void add_special(tok_work *w, const int32_t *ids, int n)
{
    for (int k = 0; k < n; k++)
        tok_ids_add(&w->ids, ids[k]);
}

/* Write the reason why a text could not be encoded. */
static tok_status not_encoded(const tok_work *w, int64_t size, char err[TOK_ERR_MAX])
{
    if (w->stopped)
        return tok_fail(err, TOK_CANCELLED, "a text of %lld bytes: the callback cancelled the call", (long long)size);
    if (w->normalized.too_long || w->other.too_long)
        return tok_fail(
            err, TOK_DAMAGED,
            "a text of %lld bytes: the tokenizer's normalizer turns N bytes into more than 64 N + 1024 (use "
            "another tokenizer)",
            (long long)size);
    return tok_fail(err, TOK_FAILED, "out of memory while encoding a text of %lld bytes (encode it in parts)",
                    (long long)size);
}

tok_status tok_encode(const tokenizer *t, const char *text, int64_t size, bool special, int32_t **ids, int64_t *n,
                      char err[TOK_ERR_MAX])
{
    return tok_encode_watched(t, text, size, special, NULL, NULL, ids, n, err);
}

tok_status tok_encode_watched(const tokenizer *t, const char *text, int64_t size, bool special,
                              int (*cancelled)(void *context), void *context, int32_t **ids, int64_t *n,
                              char err[TOK_ERR_MAX])
{
    *ids = NULL;
    *n = 0;
    if (size < 0 || size > TOK_MAX_TEXT)
        return tok_fail(err, TOK_ARGUMENT, "the text has %lld bytes; it must have 0 to %lld (encode it in parts)",
                        (long long)size, (long long)TOK_MAX_TEXT);
    tok_work w = {.t = t, .cancelled = cancelled, .context = context};
    tok_text valid = {0};
    if (t->kind == TOK_JSON && !tok_utf8_valid(text, size)) {
        make_valid(&w, &valid, text, size);
        text = valid.bytes;
    }
    if (special)
        add_special(&w, t->before, t->n_before);
    if (t->kind == TOK_BYTES)
        tok_split_bytes(&w, text, size);
    else if (!valid.failed && !w.stopped)
        tok_split_added(&w, &t->raw, text, valid.bytes != NULL ? valid.size : size, encode_raw);
    if (special &&
        !(t->kind == TOK_BYTES && w.ids.n > 0 && w.ids.ids[w.ids.n - 1] == t->eos)) /* ByT5: no second </s> */
        add_special(&w, t->after, t->n_after);
    if (w.ids.n == 0)
        tok_ids_grow(&w.ids);
    const bool failed = w.stopped || valid.failed || w.normalized.failed || w.other.failed || w.word.failed ||
                        w.nodes_failed || w.ids.failed;
    free(valid.bytes);
    free(w.normalized.bytes);
    free(w.other.bytes);
    free(w.word.bytes);
    free(w.nodes);
    if (failed) {
        free(w.ids.ids);
        return not_encoded(&w, size, err);
    }
    *ids = w.ids.ids;
    *n = w.ids.n;
    return TOK_OK;
}
