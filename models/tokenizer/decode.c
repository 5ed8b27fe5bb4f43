/* decode.c -- converts token numbers to text.
 * SPDX-License-Identifier: Apache-2.0 */
#include "tokenizer/parts.h"

#include <stdlib.h>

typedef struct decoding {
    const tokenizer *t;
    bool skip_special;
    tok_text out;
    tok_text held;                   /* bytes of byte tokens, not yet output */
    tok_text scratch[TOK_MAX_STEPS]; /* output of each step for the current token */
    int64_t limit;                   /* max bytes that the steps may produce from the current token */
    bool seen[TOK_MAX_STEPS];        /* the step has processed at least one token */
    bool inner;                      /* SentencePiece: true once leading spaces are no longer removed */
    bool dropped;                    /* SentencePiece: the last token lost its leading space */
} decoding;

/* Append text. Replace step->pattern by step->content, or remove it if `drop`. */
static void add_with(tok_text *to, const char *text, int64_t size, const tok_decode_step *step, bool drop)
{
    for (int64_t at = 0; at < size;) {
        const char *found = memmem(text + at, (size_t)(size - at), step->pattern, (size_t)step->pattern_size);
        const int64_t start = found != NULL ? found - text : size;
        tok_text_add(to, text + at, start - at);
        if (found != NULL && !drop)
            tok_text_add(to, step->content, step->content_size);
        at = start + (found != NULL ? step->pattern_size : 0);
    }
}

/* Apply the cleanup of `tokenizers` to the text of one token, which only gets shorter. */
static void clean_up(tok_text *text)
{
    static const char *const changes[][2] = {{" .", "."},   {" ?", "?"},     {" !", "!"},    {" ,", ","},
                                             {" ' ", "'"},  {" n't", "n't"}, {" 'm", "'m"},  {" do not", " don't"},
                                             {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"}};
    for (size_t k = 0; k < sizeof(changes) / sizeof(*changes); k++) {
        const int64_t old = (int64_t)strlen(changes[k][0]), new = (int64_t)strlen(changes[k][1]);
        int64_t to = 0;
        for (int64_t at = 0; at < text->size;) {
            const bool found = text->size - at >= old && memcmp(text->bytes + at, changes[k][0], (size_t)old) == 0;
            memmove(text->bytes + to, found ? changes[k][1] : text->bytes + at, found ? (size_t) new : 1);
            to += found ? new : 1;
            at += found ? old : 1;
        }
        text->size = to;
    }
}

/* Append a token of WordPiece: without its prefix, or after a space. */
static void add_wordpiece(tok_text *to, const char *text, int64_t size, const tok_decode_step *step, bool first)
{
    const int64_t n = step->pattern_size;
    const bool inner = size >= n && memcmp(text, step->pattern, (size_t)n) == 0;
    if (!first && !inner)
        tok_text_add_byte(to, ' ');
    if (!first && inner)
        text += n, size -= n;
    tok_text_add(to, text, size);
    if (step->cleanup)
        clean_up(to);
}

static int digit(char c)
{
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
                                  : -1;
}

/* Return the byte of a piece such as "<0x0A>", or -1. */
static int byte_of(const char *text, int64_t size)
{
    if (size != 6 || memcmp(text, "<0x", 3) != 0 || text[5] != '>' || digit(text[4]) < 0)
        return -1;
    if (text[3] == '+') /* Rust's number parser, which `tokenizers` uses, accepts a plus sign */
        return digit(text[4]);
    return digit(text[3]) < 0 ? -1 : digit(text[3]) * 16 + digit(text[4]);
}

/* Append the bytes of a token of byte-level BPE; a text with other characters stands for itself. */
static void hold_bytes(decoding *s, const char *text, int64_t size)
{
    const int64_t start = s->held.size;
    uint32_t c;
    for (int64_t at = 0, n; at < size && (n = tok_utf8(text + at, size - at, &c)) > 0; at += n) {
        const int byte = tok_character_byte(c);
        if (byte < 0) {
            s->held.size = start;
            tok_text_add(&s->held, text, size);
            return;
        }
        tok_text_add_byte(&s->held, (char)byte);
    }
}

static void pass(decoding *s, int k, const char *text, int64_t size);

/* Output the pending bytes like `tokenizers`: as text if they are valid UTF-8, otherwise as one U+FFFD per byte. */
static void pass_held(decoding *s, int k)
{
    tok_text run = s->held;
    const int64_t limit = s->limit;
    s->held = (tok_text){0};
    s->limit = tok_growth_limit(run.size);
    if (tok_utf8_valid(run.bytes, run.size) && run.size > 0)
        pass(s, k, run.bytes, run.size);
    else
        for (int64_t n = 0; n < run.size; n++)
            pass(s, k, TOK_REPLACEMENT, TOK_REPLACEMENT_SIZE);
    s->held.failed = run.failed;
    s->limit = limit;
    free(run.bytes);
}

/* Pass a token through step k of a tokenizer.json's decoder, and its output through the following steps. */
static void pass(decoding *s, int k, const char *text, int64_t size)
{
    if (k == s->t->n_steps) {
        tok_text_add(&s->out, text, size);
        return;
    }
    const tok_decode_step *step = &s->t->steps[k];
    const bool first = !s->seen[k];
    s->seen[k] = true;
    if (step->kind == TOK_DECODE_BYTES) {
        const int byte = byte_of(text, size);
        if (byte >= 0) {
            tok_text_add_byte(&s->held, (char)byte);
            return;
        }
        pass_held(s, k + 1);
        pass(s, k + 1, text, size);
        return;
    }
    if (step->kind == TOK_DECODE_BYTE_LEVEL) {
        hold_bytes(s, text, size);
        return;
    }
    tok_text *made = &s->scratch[k];
    if (made->failed)
        return;
    tok_text_begin(made, s->limit);
    if (step->kind == TOK_DECODE_JOIN) {
        if (!first)
            tok_text_add_byte(made, ' ');
        tok_text_add(made, text, size);
    } else if (step->kind == TOK_DECODE_WORDPIECE) {
        add_wordpiece(made, text, size, step, first);
    } else {
        add_with(made, text, size, step, step->drop && first);
    }
    pass(s, k + 1, made->bytes, made->size);
}

/* Output the pending bytes when a run of byte tokens ends. Each invalid byte becomes U+FFFD for SentencePiece, and each
 * part of a character for byte-level BPE; for ByT5 they are skipped. */
static void give_characters(decoding *s)
{
    const bool each = s->t->kind == TOK_SENTENCEPIECE, skips = s->t->kind == TOK_BYTES;
    int64_t at = 0;
    while (at < s->held.size) {
        const char *text = s->held.bytes + at;
        const int64_t left = s->held.size - at;
        uint32_t c;
        const int n = tok_utf8(text, left, &c);
        if (n > 0)
            tok_text_add(&s->out, text, n);
        else if (!skips)
            tok_text_add(&s->out, TOK_REPLACEMENT, TOK_REPLACEMENT_SIZE);
        at += n > 0 ? n : each ? 1 : tok_utf8_broken(text, left);
    }
    s->held.size = 0;
}

static const tok_decode_step meta_step = {.kind = TOK_DECODE_META,
                                          .pattern = (char *)TOK_META,
                                          .pattern_size = TOK_META_SIZE,
                                          .content = (char *)" ",
                                          .content_size = 1};

int64_t tok_token_text(const tokenizer *t, int32_t id, char *to)
{
    int64_t size;
    const char *piece = tok_piece(t, id, &size);
    if (piece == NULL)
        return 0;
    const int byte = t->tokens[id].type == TOK_BYTE ? byte_of(piece, size) : -1;
    if (byte >= 0) {
        *to = (char)byte;
        return 1;
    }
    tok_text text = {.bytes = to, .capacity = size}; /* does not grow: a space has fewer bytes than U+2581 */
    add_with(&text, piece, size, &meta_step, false);
    return text.size;
}

static void give_piece(decoding *s, const tok_entry *token)
{
    const tokenizer *t = s->t;
    const char *text = tok_named(t, token->piece);
    int64_t size = token->size;
    if (s->dropped || s->out.size > 0)
        s->inner = true;
    s->dropped = false;
    if (token->added > 0 && token->special) {
        tok_text_add(&s->out, text, s->skip_special ? 0 : size);
        return;
    }
    if (token->type == TOK_CONTROL)
        return;
    if (token->type == TOK_UNKNOWN) {
        tok_text_add(&s->out, tok_named(t, t->unk_surface), t->unk_surface_size);
        return;
    }
    if (!s->inner && (t->dummy_prefix || t->remove_extra) && size >= TOK_META_SIZE &&
        memcmp(text, TOK_META, TOK_META_SIZE) == 0) {
        text += TOK_META_SIZE, size -= TOK_META_SIZE;
        s->dropped = !t->remove_extra; /* with remove_extra, all leading spaces of the text are removed */
    }
    s->scratch[0].size = 0;
    add_with(&s->scratch[0], text, size, &meta_step, false);
    tok_text_add(&s->out, s->scratch[0].bytes, s->scratch[0].size);
}

static void next(decoding *s, int32_t id)
{
    const tokenizer *t = s->t;
    const tok_entry *token = id < t->n_tokens ? &t->tokens[id] : NULL;
    const bool control =
        t->kind == TOK_SENTENCEPIECE && token != NULL && token->type == TOK_CONTROL; /* ends a run of bytes */
    if (token == NULL || token->piece < 0 || (s->skip_special && token->special && !control))
        return;
    if (t->kind == TOK_JSON) {
        s->limit = tok_growth_limit(token->decoded_size);
        pass(s, 0, tok_named(t, token->decoded), token->decoded_size);
    } else if (token->type == TOK_BYTE) {
        tok_text_add_byte(&s->held, (char)byte_of(tok_named(t, token->piece), token->size));
    } else {
        give_characters(s);
        if (t->kind == TOK_SENTENCEPIECE)
            give_piece(s, token);
        else
            tok_text_add(&s->out, tok_named(t, token->piece), token->size);
    }
}

static void end(decoding *s)
{
    for (int k = 0; s->t->kind == TOK_JSON && k < s->t->n_steps; k++)
        if (s->t->steps[k].kind == TOK_DECODE_BYTES)
            pass_held(s, k + 1);
    give_characters(s);
}

static void close_parts(decoding *s)
{
    free(s->out.bytes);
    free(s->held.bytes);
    for (int k = 0; k < TOK_MAX_STEPS; k++)
        free(s->scratch[k].bytes);
}

static tok_status finish(decoding *s, char err[TOK_ERR_MAX])
{
    tok_text_add_byte(&s->out, 0);
    bool failed = s->out.failed || s->held.failed, too_long = false;
    for (int k = 0; k < TOK_MAX_STEPS; k++) {
        failed = failed || s->scratch[k].failed;
        too_long = too_long || s->scratch[k].too_long;
    }
    if (too_long)
        return tok_fail(
            err, TOK_DAMAGED,
            "text of tokens: the tokenizer's decoder turns a piece of N bytes into more than 64 N + 1024 bytes "
            "(use another tokenizer)");
    return failed ? tok_fail(err, TOK_FAILED, "out of memory: the text of the tokens needs %lld bytes",
                             (long long)s->out.size)
                  : TOK_OK;
}

tok_status tok_decode(const tokenizer *t, const int32_t *ids, int64_t n, bool skip_special, char **text, int64_t *size,
                      char err[TOK_ERR_MAX])
{
    *text = NULL;
    *size = 0;
    decoding s = {.t = t, .skip_special = skip_special};
    tok_status status =
        n < 0 ? tok_fail(err, TOK_ARGUMENT, "the number of tokens is %lld; it must be at least 0", (long long)n)
              : TOK_OK;
    for (int64_t k = 0; k < n && status == TOK_OK; k++)
        if (ids[k] < 0)
            status = tok_fail(err, TOK_ARGUMENT, "token %lld of %lld is %d; it must be at least 0", (long long)k,
                              (long long)n, ids[k]);
        else
            next(&s, ids[k]);
    if (status == TOK_OK) {
        end(&s);
        status = finish(&s, err);
    }
    if (status == TOK_OK) {
        *text = s.out.bytes;
        *size = s.out.size - 1;
        s.out.bytes = NULL;
    }
    close_parts(&s);
    return status;
}
