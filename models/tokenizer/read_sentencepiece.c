/* read_sentencepiece.c -- reads a SentencePiece model, a message of protocol buffers (sentencepiece_model.proto). All
 * bounds are checked; fields that are not needed are skipped.
 * SPDX-License-Identifier: Apache-2.0 */
#include "io/io.h"
#include "tokenizer/parts.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

typedef struct bytes {
    const char *at, *end;
} bytes;

typedef struct field {
    int64_t number; /* 0: end of the message; -1: damaged */
    int wire;
    uint64_t value; /* for wire types 0, 1 and 5 */
    bytes content;  /* for wire type 2 */
} field;

enum { MAX_SURFACE = 1024 }; /* max bytes of unk_surface, the text of an unknown token */
enum { WIRE_VARINT = 0, WIRE_64 = 1, WIRE_BYTES = 2, WIRE_32 = 5 };

static bool read_varint(bytes *b, uint64_t *value)
{
    *value = 0;
    for (int shift = 0; shift < 64 && b->at < b->end; shift += 7) {
        const unsigned char byte = (unsigned char)*b->at++;
        if (shift == 63 && byte > 1)
            return false;
        *value |= (uint64_t)(byte & 0x7f) << shift;
        if (byte < 0x80)
            return true;
    }
    return false;
}

static bool read_fixed(bytes *b, int n, uint64_t *value)
{
    *value = 0;
    if (b->end - b->at < n)
        return false;
    for (int k = 0; k < n; k++)
        *value |= (uint64_t)(unsigned char)*b->at++ << 8 * k;
    return true;
}

static field next_field(bytes *b)
{
    field f = {0};
    if (b->at == b->end)
        return f;
    uint64_t tag;
    bool good = read_varint(b, &tag) && tag >> 3 > 0 && tag >> 32 == 0;
    f.number = (int64_t)(tag >> 3);
    f.wire = (int)(tag & 7);
    if (good && f.wire == WIRE_VARINT)
        good = read_varint(b, &f.value);
    else if (good && (f.wire == WIRE_64 || f.wire == WIRE_32))
        good = read_fixed(b, f.wire == WIRE_64 ? 8 : 4, &f.value);
    else if (good && f.wire == WIRE_BYTES) {
        good = read_varint(b, &f.value) && f.value <= (uint64_t)(b->end - b->at);
        if (good)
            f.content = (bytes){b->at, b->at + f.value}, b->at += f.value;
    } else
        good = false;
    if (!good)
        f.number = -1;
    return f;
}

typedef struct reader {
    tokenizer *t;
    const char *name;
    char *err;
    bytes trainer_eos, unk_surface; /* at == NULL: absent */
    bytes charsmap;
} reader;

static tok_status damaged(const reader *r, const char *where)
{
    return tok_fail(r->err, TOK_DAMAGED,
                    "%s: %s is damaged: it is not a SentencePiece model, or cut off (give a whole spiece.model)",
                    r->name, where);
}

static tok_status wrong_type(const reader *r, const char *what, int wire, int wanted)
{
    return tok_fail(r->err, TOK_DAMAGED, "%s: %s has wire type %d; it must be %d (it is not a SentencePiece model)",
                    r->name, what, wire, wanted);
}

/* The fields of a SentencePiece message: one piece. */
typedef struct piece {
    bytes text;
    float score;
    uint64_t type;
} piece;

static tok_status read_piece(const reader *r, bytes b, int32_t id, piece *p)
{
    *p = (piece){.type = TOK_NORMAL};
    char what[32];
    snprintf(what, sizeof(what), "piece %d", id);
    for (field f; (f = next_field(&b)).number != 0;) {
        if (f.number < 0)
            return damaged(r, what);
        const int wanted = f.number == 1 ? WIRE_BYTES : f.number == 2 ? WIRE_32 : f.number == 3 ? WIRE_VARINT : f.wire;
        if (f.wire != wanted)
            return wrong_type(r, what, f.wire, wanted);
        if (f.number == 1)
            p->text = f.content;
        if (f.number == 3)
            p->type = f.value;
        const uint32_t bits = (uint32_t)f.value;
        if (f.number == 2)
            memcpy(&p->score, &bits, 4);
    }
    return TOK_OK;
}

static tok_status check_piece(const reader *r, int32_t id, const piece *p)
{
    const int64_t size = p->text.end - p->text.at;
    if (size < 1 || size > TOK_MAX_PIECE)
        return tok_fail(r->err, TOK_DAMAGED, "%s: piece %d has %lld bytes; it must have 1 to %d (the file is damaged)",
                        r->name, id, (long long)size, TOK_MAX_PIECE);
    if (!tok_utf8_valid(p->text.at, size) || memchr(p->text.at, 0, (size_t)size) != NULL)
        return tok_fail(r->err, TOK_DAMAGED, "%s: piece %d must be UTF-8 without NUL (the file is damaged)", r->name,
                        id);
    if (!isfinite(p->score))
        return tok_fail(r->err, TOK_DAMAGED, "%s: piece %d has the score %g; it must be finite (the file is damaged)",
                        r->name, id, (double)p->score);
    if (p->type < TOK_NORMAL || p->type > TOK_BYTE)
        return tok_fail(r->err, TOK_DAMAGED, "%s: piece %d has type %llu; it must be 1 to 6 (the file is damaged)",
                        r->name, id, (unsigned long long)p->type);
    return TOK_OK;
}

/* Return the byte of a piece such as "<0x0A>", or -1. */
static int byte_of(const piece *p)
{
    for (int byte = 0; byte < 256 && p->text.end - p->text.at == 6; byte++) {
        char text[8];
        sprintf(text, "<0x%02X>", (unsigned)byte);
        if (memcmp(text, p->text.at, 6) == 0)
            return byte;
    }
    return -1;
}

static tok_status add_piece(reader *r, int32_t id, const piece *p)
{
    tokenizer *t = r->t;
    if (!tok_token_set(t, id, p->text.at, p->text.end - p->text.at, (tok_type)p->type, (double)p->score))
        return tok_fail(r->err, TOK_FAILED, "%s: out of memory while reading piece %d", r->name, id);
    if (p->type == TOK_NORMAL)
        t->min_score = fmin(t->min_score, (double)p->score);
    t->tokens[id].special = p->type == TOK_CONTROL;
    if (p->type == TOK_UNKNOWN) {
        if (t->unk >= 0)
            return tok_fail(
                r->err, TOK_DAMAGED,
                "%s: pieces %d and %d both have type unknown; only one piece may have it (the file is damaged)",
                r->name, t->unk, id);
        t->unk = id;
    }
    if (p->type == TOK_BYTE) {
        const int byte = byte_of(p);
        if (byte < 0)
            return tok_fail(r->err, TOK_DAMAGED,
                            "%s: piece %d has type byte; it must be \"<0x00>\" to \"<0xFF>\" (the file is damaged)",
                            r->name, id);
        t->byte_ids[byte] = id;
    }
    return TOK_OK;
}

static tok_status read_pieces(reader *r, bytes b)
{
    int32_t id = 0;
    for (field f; (f = next_field(&b)).number > 0;) {
        if (f.number != 1)
            continue;
        piece p;
        tok_status status = read_piece(r, f.content, id, &p);
        if (status == TOK_OK)
            status = check_piece(r, id, &p);
        if (status == TOK_OK)
            status = add_piece(r, id, &p);
        if (status != TOK_OK)
            return status;
        id++;
    }
    return TOK_OK;
}

static tok_status read_trainer(reader *r, bytes b)
{
    uint64_t model = 1;
    for (field f; (f = next_field(&b)).number != 0;) {
        if (f.number < 0)
            return damaged(r, "trainer_spec");
        const bool text = f.number == 44 || f.number == 47, number = f.number == 3 || f.number == 24 || f.number == 35;
        if ((text && f.wire != WIRE_BYTES) || (number && f.wire != WIRE_VARINT))
            return wrong_type(r, "a field of trainer_spec", f.wire, text ? WIRE_BYTES : WIRE_VARINT);
        switch (f.number) {
        case 3: model = f.value; break;
        case 24: r->t->space_is_suffix = f.value != 0; break;
        case 35: r->t->byte_fallback = f.value != 0; break;
        case 44: r->unk_surface = f.content; break;
        case 47: r->trainer_eos = f.content; break;
        default: break;
        }
    }
    static const char *const types[] = {"unknown", "Unigram", "BPE", "word", "char"};
    if (model != 1)
        return tok_fail(r->err, TOK_DAMAGED,
                        "%s: its model type is %llu, %s; it must be 1, Unigram (use a model of spm_train "
                        "--model_type=unigram)",
                        r->name, (unsigned long long)model, types[model < 5 ? model : 0]);
    return TOK_OK;
}

static tok_status read_normalizer(reader *r, bytes b)
{
    for (field f; (f = next_field(&b)).number != 0;) {
        if (f.number < 0)
            return damaged(r, "normalizer_spec");
        const int wanted = f.number == 2 ? WIRE_BYTES : f.number >= 3 && f.number <= 5 ? WIRE_VARINT : f.wire;
        if (f.wire != wanted)
            return wrong_type(r, "a field of normalizer_spec", f.wire, wanted);
        switch (f.number) {
        case 2: r->charsmap = f.content; break;
        case 3: r->t->dummy_prefix = f.value != 0; break;
        case 4: r->t->remove_extra = f.value != 0; break;
        case 5: r->t->escape = f.value != 0; break;
        default: break;
        }
    }
    return TOK_OK;
}

static tok_status read_denormalizer(reader *r, bytes b)
{
    for (field f; (f = next_field(&b)).number != 0;) {
        if (f.number < 0)
            return damaged(r, "denormalizer_spec");
        if (f.number == 2 && f.value > 0)
            return tok_fail(r->err, TOK_DAMAGED,
                            "%s: it has a denormalizer, which is not supported (T5 models have none)", r->name);
    }
    return TOK_OK;
}

/* Read every field except the pieces; only count these. */
static tok_status read_specs(reader *r, bytes b, int32_t *n_pieces)
{
    tok_status status = TOK_OK;
    for (field f; status == TOK_OK && (f = next_field(&b)).number != 0;) {
        if (f.number < 0)
            return damaged(r, "the file");
        if (f.number <= 5 && f.wire != WIRE_BYTES)
            return wrong_type(r, "a field of the model", f.wire, WIRE_BYTES);
        switch (f.number) {
        case 1:
            if (++*n_pieces > TOK_MAX_TOKENS)
                return tok_fail(r->err, TOK_DAMAGED, "%s: it has more than %d pieces (use a model with fewer)", r->name,
                                TOK_MAX_TOKENS);
            break;
        case 2: status = read_trainer(r, f.content); break;
        case 3: status = read_normalizer(r, f.content); break;
        case 5: status = read_denormalizer(r, f.content); break;
        default: break;
        }
    }
    return status;
}

/* Add the tokens <extra_id_N> in descending order; the last is <extra_id_0>. T5Tokenizer makes them pieces. */
static bool add_extra(tokenizer *t, int32_t extra_ids, const char *name, char err[TOK_ERR_MAX])
{
    const int32_t first = t->n_tokens;
    const bool pieces = t->kind == TOK_JSON;
    bool good = tok_added_make(t, extra_ids) && tok_tokens_make(t, first + extra_ids);
    for (int32_t id = first; good && id < t->n_tokens; id++) {
        char text[32];
        const int n = sprintf(text, "<extra_id_%d>", t->n_tokens - 1 - id);
        const tok_listed token = {.content = text, .size = n, .special = true};
        good = pieces ? tok_token_set(t, id, text, n, TOK_NORMAL, 0) : tok_add(t, id, &token, name, err) == TOK_OK;
    }
    return good;
}

static bool is_searched(const tok_entry *token)
{
    return token->type == TOK_NORMAL || token->type == TOK_USER_DEFINED ||
           (token->type == TOK_UNUSED && !token->special);
}

static bool is_any(const tok_entry *token)
{
    return token->size > 0;
}

static bool is_user_defined(const tok_entry *token)
{
    return token->type == TOK_USER_DEFINED;
}

/* Return the number of the control piece called `name`, or `usual` if name is absent; -1 if there is none. */
static int32_t control(const tokenizer *t, bytes name, const char *usual)
{
    const int64_t size = name.end - name.at;
    const int32_t id = size > 0 ? tok_id(t, name.at, size) : tok_id(t, usual, (int64_t)strlen(usual));
    return id >= 0 && t->tokens[id].type == TOK_CONTROL ? id : -1;
}

static tok_status check_model(const reader *r, int32_t n)
{
    const tokenizer *t = r->t;
    if (t->unk < 0)
        return tok_fail(r->err, TOK_DAMAGED,
                        "%s: none of its %d pieces has type unknown; one piece must have it (the file is damaged)",
                        r->name, n);
    for (int byte = 0; byte < 256; byte++)
        if ((t->byte_ids[byte] >= 0) != t->byte_fallback)
            return tok_fail(r->err, TOK_DAMAGED,
                            "%s: byte_fallback is %s, but there is %s piece <0x%02X> (the file is damaged)", r->name,
                            t->byte_fallback ? "set" : "not set", t->byte_fallback ? "no" : "a", (unsigned)byte);
    return TOK_OK;
}

/* Return true if the model has T5's rules for spaces. Then T5Tokenizer of transformers, which converts a model to a
 * tokenizer.json with these rules, keeps the meaning of the model. With other rules it would change it, so the rules of
 * SentencePiece stay, with which the T5 was trained. */
static bool is_t5(const tokenizer *t)
{
    return t->dummy_prefix && t->remove_extra && t->escape && !t->space_is_suffix;
}

/* Set the rules of T5Tokenizer. It has no bytes for unknown characters, but a model with them was trained with them. */
static bool set_rules(tokenizer *t)
{
    const bool has_bytes = t->byte_fallback;
    t->kind = TOK_JSON;
    for (int32_t id = 0; id < t->n_tokens; id++) { /* tok_add_beside finds the special tokens */
        t->min_score = fmin(t->min_score, t->tokens[id].score);
        t->tokens[id].special = false;
    }
    const bool good = tok_set_t5_rules(t) && tok_graphemes_open(&t->graphemes);
    t->byte_fallback = has_bytes;
    if (has_bytes)
        t->steps[t->n_steps++].kind = TOK_DECODE_BYTES;
    return good;
}

static tok_status make_parts(reader *r, int32_t extra_ids, const tok_beside *beside)
{
    tokenizer *t = r->t;
    char what[256];
    snprintf(what, sizeof(what), "%s: precompiled_charsmap", r->name);
    tok_status status = tok_charsmap_open(&t->charsmap, r->charsmap.at, r->charsmap.end - r->charsmap.at, what, r->err);
    if (status != TOK_OK)
        return status;
    static const char usual[] = " \xe2\x81\x87 "; /* U+2047 between spaces */
    const bool given = r->unk_surface.at != NULL;
    t->unk_surface_size = given ? (int32_t)strnlen(r->unk_surface.at, (size_t)(r->unk_surface.end - r->unk_surface.at))
                                : (int32_t)strlen(usual);
    if (beside != NULL && is_t5(t) && !set_rules(t))
        return tok_fail(r->err, TOK_FAILED, "%s: out of memory while reading %d pieces", r->name, t->n_tokens);
    t->unk_surface = tok_name(t, given ? r->unk_surface.at : usual, t->unk_surface_size);
    if (t->unk_surface_size > MAX_SURFACE)
        return tok_fail(r->err, TOK_DAMAGED,
                        "%s: unk_surface has %d bytes; it must have at most %d (the file is damaged)", r->name,
                        t->unk_surface_size, MAX_SURFACE);
    const bool added = t->unk_surface >= 0 && add_extra(t, extra_ids, r->name, r->err) &&
                       tok_pieces_trie(t, &t->pieces, t->kind == TOK_JSON ? is_any : is_searched) &&
                       tok_pieces_trie(t, &t->user_defined, is_user_defined);
    if (!added)
        return tok_fail(r->err, TOK_FAILED, "%s: out of memory while reading %d pieces", r->name, t->n_tokens);
    status = tok_tokens_sort(t, r->name, r->err);
    if (status == TOK_OK && beside != NULL)
        status = tok_add_beside(t, beside, extra_ids, TOK_FROM_SPIECE, NULL, r->err);
    if (status != TOK_OK)
        return status;
    if (!tok_utf8_valid(tok_named(t, t->unk_surface), t->unk_surface_size))
        return tok_fail(r->err, TOK_DAMAGED, "%s: unk_surface must be UTF-8 (the file is damaged)", r->name);
    if (t->pieces.units == NULL)
        return tok_fail(r->err, TOK_DAMAGED, "%s: no piece has type normal (the file is damaged)", r->name);
    if (t->eos < 0)
        t->eos = control(t, r->trainer_eos, "</s>");
    if (t->eos >= 0)
        tok_set_end(t, t->eos);
    return TOK_OK;
}

tok_status tok_read_sentencepiece(tokenizer *t, const char *data, int64_t size, const char *name, int32_t extra_ids,
                                  const tok_beside *beside, char err[TOK_ERR_MAX])
{
    reader r = {.t = t, .name = name, .err = err};
    const bytes all = {data, data + size};
    t->dummy_prefix = t->remove_extra = t->escape = true;
    t->min_score = (double)FLT_MAX; /* initial value as in SentencePiece */
    int32_t n = 0;
    tok_status status = read_specs(&r, all, &n);
    if (status == TOK_OK && n == 0)
        return tok_fail(err, TOK_DAMAGED, "%s: it has no pieces (it is not a SentencePiece model)", name);
    if (status == TOK_OK && !tok_tokens_make(t, n))
        return tok_fail(err, TOK_FAILED, "%s: out of memory while reading %d pieces", name, n);
    if (status == TOK_OK)
        status = read_pieces(&r, all);
    if (status == TOK_OK)
        status = check_model(&r, n);
    if (status == TOK_OK && beside != NULL)
        status = tok_read_extra_ids(beside, &extra_ids, err);
    return status == TOK_OK ? make_parts(&r, extra_ids, beside) : status;
}
