/* encode.c -- converts text to token numbers: finds added tokens, normalizes the text between them, splits it into
 * words if the tokenizer does so, and splits the words into pieces.
 * SPDX-License-Identifier: Apache-2.0 */
#include "tokenizer/parts.h"

#include <stdlib.h>

/* Encode a word. `origins` are those of its bytes, if w->mapped. */
static void encode_word(tok_work *w, const char *text, int64_t size, const int64_t *origins)
{
    w->origins = origins;
    if (w->t->model == TOK_BPE)
        tok_bpe(w, text, size);
    else if (w->t->model == TOK_WORDPIECE)
        tok_wordpiece(w, text, size);
    else
        tok_unigram(w, text, size);
}

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
    tok_edit e = {text,     size, w->mapped ? w->normalized.origins + (text - w->normalized.bytes) : NULL, 0, 0,
                  &w->word, false};
    w->word.size = 0;
    if (!begins && (t->prepend == TOK_PREPEND_ALWAYS || (t->prepend == TOK_PREPEND_FIRST && at_start)))
        tok_edit_add(&e, t->meta_text, t->meta_size, tok_edit_origin(&e, 0));
    while (e.at < size && tok_goes_on(w, 1)) {
        const bool meta = size - e.at >= t->meta_size && memcmp(text + e.at, t->meta_text, (size_t)t->meta_size) == 0;
        if (text[e.at] != ' ' && !meta) {
            tok_edit_keep(&e, 1 + plain_run(t, text + e.at + 1, size - e.at - 1));
            continue;
        }
        if (t->meta_split && w->word.size > 0) {
            encode_word(w, w->word.bytes, w->word.size, w->word.origins);
            w->word.size = 0;
        }
        tok_edit_add(&e, t->meta_text, t->meta_size, tok_edit_origin(&e, e.at));
        e.at += meta ? t->meta_size : 1;
    }
    if (w->word.size > 0 && !w->stopped)
        encode_word(w, w->word.bytes, w->word.size, w->word.origins);
}

static void encode_words(tok_work *w, const char *text, int64_t size, bool at_start)
{
    if (w->t->meta)
        encode_meta(w, text, size, at_start);
    else
        encode_word(w, text, size, w->mapped ? w->normalized.origins + (text - w->normalized.bytes) : NULL);
}

/* Apply the ByteLevel step: insert a space before the text if the settings require it, and encode each word. */
static void encode_byte_level(tok_work *w, const char *text, int64_t size)
{
    const tokenizer *t = w->t;
    const int64_t *origins = w->mapped ? w->normalized.origins + (text - w->normalized.bytes) : NULL;
    if (t->prefix_space && text[0] != ' ') {
        tok_edit e = {text, size, origins, 0, 0, &w->word, false};
        w->word.size = 0;
        tok_edit_add(&e, " ", 1, w->mapped ? origins[0] : 0);
        tok_edit_keep(&e, size);
        if (w->word.failed)
            return;
        text = w->word.bytes, size = w->word.size, origins = w->word.origins;
    }
    for (int64_t at = 0, n; at < size && !w->stopped; at += n) {
        n = t->split == TOK_SPLIT_NONE ? size : tok_pattern_word(t->split, text + at, size - at);
        encode_word(w, text + at, n, w->mapped ? origins + at : NULL);
    }
}

/* Kinds of characters. Words are runs of characters of one kind. */
enum { SPACE, ALONE, LETTER, OTHER }; /* SPACE: in no word; ALONE: a word by itself */

static int white_kind(uint32_t c)
{
    return tok_is_space(c) ? SPACE : LETTER;
}

static int python_kind(uint32_t c)
{
    return tok_is_space(c) || (c >= 0x1c && c <= 0x1f) ? SPACE : LETTER;
}

static int punctuation_kind(uint32_t c)
{
    return tok_is_punctuation(c) ? ALONE : LETTER;
}

static int bert_kind(uint32_t c)
{
    return tok_is_space(c) ? SPACE : punctuation_kind(c);
}

static int words_kind(uint32_t c)
{
    return tok_is_space(c) ? SPACE : tok_is_word(c) ? LETTER : OTHER;
}

/* Encode normalized text that contains no added tokens. */
static void encode_normalized(tok_work *w, const char *text, int64_t size, int64_t from)
{
    static int (*const kinds[])(uint32_t c) = {[TOK_SPLIT_WHITE] = white_kind,
                                               [TOK_SPLIT_PYTHON] = python_kind,
                                               [TOK_SPLIT_BERT] = bert_kind,
                                               [TOK_SPLIT_PUNCTUATION] = punctuation_kind,
                                               [TOK_SPLIT_WORDS] = words_kind};
    if (w->t->byte_level) {
        encode_byte_level(w, text, size);
        return;
    }
    if (w->t->split == TOK_SPLIT_NONE) {
        encode_words(w, text, size, from < w->front);
        return;
    }
    int64_t start = 0, at = 0;
    int before = SPACE;
    while (at < size && tok_goes_on(w, 1)) {
        uint32_t c;
        const int n = tok_utf8(text + at, size - at, &c);
        if (n == 0)
            break;
        const int kind = kinds[w->t->split](c);
        if (kind != before || kind == ALONE) {
            if (before != SPACE)
                encode_words(w, text + start, at - start, from + start < w->front);
            start = at;
        }
        before = kind;
        at += n;
    }
    if (before != SPACE && at > start && !w->stopped)
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
            tok_split_added(w, &t->normalized, w->other.bytes, w->other.size, tok_add_normalized, encode_sentencepiece);
        return;
    }
    int64_t front = from == 0;
    tok_normalize_json(w, text, size, from, &front);
    w->front = bytes_of(w->normalized.bytes, w->normalized.size, front);
    if (!w->normalized.failed && !w->other.failed && w->normalized.size > 0 && !w->stopped)
        tok_split_added(w, &t->normalized, w->normalized.bytes, w->normalized.size, tok_add_normalized,
                        encode_normalized);
}

/* Copy a text to w->valid, replacing bytes that are not UTF-8 by U+FFFD. */
static void make_valid(tok_work *w, const char *text, int64_t size)
{
    tok_text *to = &w->valid;
    to->mapped = w->mapped;
    for (int64_t at = 0; at < size && tok_goes_on(w, 1);) {
        uint32_t c;
        const int64_t start = to->size;
        const int n = tok_utf8(text + at, size - at, &c);
        if (n > 0)
            tok_text_add(to, text + at, n);
        else
            tok_text_add(to, TOK_REPLACEMENT, TOK_REPLACEMENT_SIZE);
        for (int64_t k = start; k < to->size && to->mapped; k++)
            to->origins[k] = n > 0 ? at + k - start : at;
        at += n > 0 ? n : tok_utf8_broken(text + at, size - at);
    }
}

/* Make spans in w->valid spans in the caller's text, of `size` bytes. */
static void finish_spans(tok_work *w, int64_t size)
{
    const tok_text *valid = &w->valid;
    for (int64_t k = 0; k < w->spans.n && !valid->failed; k++) {
        tok_span *span = &w->spans.spans[k];
        span->begin = span->begin < valid->size ? valid->origins[span->begin] : size;
        span->end = span->end < valid->size ? valid->origins[span->end] : size;
    }
}

void tok_work_encode(tok_work *w, const char *text, int64_t size)
{
    const tokenizer *t = w->t;
    w->text = text;
    w->normalized.mapped = w->other.mapped = w->word.mapped = w->mapped;
    int64_t n = size;
    if (t->kind == TOK_JSON && !tok_utf8_valid(text, size)) {
        make_valid(w, text, size);
        w->text = w->valid.bytes;
        n = w->valid.size;
    }
    if (t->kind == TOK_BYTES)
        tok_split_bytes(w, text, size);
    else if (!w->valid.failed && !w->stopped)
        tok_split_added(w, &t->raw, w->text, n, tok_add_raw, encode_raw);
    if (w->mapped && w->text != text)
        finish_spans(w, size);
}

void tok_work_free(tok_work *w)
{
    tok_text_free(&w->valid);
    tok_text_free(&w->normalized);
    tok_text_free(&w->other);
    tok_text_free(&w->word);
    free(w->marks);
    free(w->nodes);
    free(w->symbols);
    free(w->queue);
}

tok_status tok_work_status(const tok_work *w, int64_t size, char err[TOK_ERR_MAX])
{
    if (w->stopped)
        return tok_fail(err, TOK_CANCELLED, "a text of %lld bytes: the callback cancelled the call", (long long)size);
    if (w->normalized.too_long || w->other.too_long)
        return tok_fail(
            err, TOK_DAMAGED,
            "a text of %lld bytes: the tokenizer's normalizer turns N bytes into more than 64 N + 1024 (use "
            "another tokenizer)",
            (long long)size);
    if (w->word_too_long)
        return tok_fail(err, TOK_DAMAGED, "a text of %lld bytes: a word has more than %d bytes (encode it in parts)",
                        (long long)size, TOK_MAX_WORD);
    const bool failed = w->valid.failed || w->normalized.failed || w->other.failed || w->word.failed ||
                        w->nodes_failed || w->symbols_failed || w->ids.failed || w->spans.failed;
    return failed ? tok_fail(err, TOK_FAILED, "out of memory while encoding a text of %lld bytes (encode it in parts)",
                             (long long)size)
                  : TOK_OK;
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
    for (int k = 0; k < t->single.n; k++) {
        const int32_t id = t->single.items[k].id;
        const bool again = /* ByT5: no second </s> */
            t->kind == TOK_BYTES && w.ids.n > 0 && id == t->eos && w.ids.ids[w.ids.n - 1] == id;
        if (id == TOK_FIRST_TEXT)
            tok_work_encode(&w, text, size);
        else if (special && !again)
            tok_ids_add(&w.ids, id);
    }
    if (w.ids.n == 0)
        tok_ids_grow(&w.ids);
    const tok_status status = tok_work_status(&w, size, err);
    tok_work_free(&w);
    if (status != TOK_OK) {
        free(w.ids.ids);
        return status;
    }
    *ids = w.ids.ids;
    *n = w.ids.n;
    return TOK_OK;
}
