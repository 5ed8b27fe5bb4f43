/* parts.h -- what a tokenizer consists of, for the files of this folder: a normalizer, a model of pieces, added tokens
 * and a decoder.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef RELPOS_TOKENIZER_PARTS_H
#define RELPOS_TOKENIZER_PARTS_H

#include "tokenizer/charsmap.h"
#include "tokenizer/graphemes.h"
#include "tokenizer/text.h"
#include "tokenizer/trie.h"

enum { TOK_MAX_TOKENS = 1 << 22 }; /* of a tokenizer; TOK_TRIE_NONE is more */
enum { TOK_MAX_EXTRA_IDS = 1 << 20 };
enum { TOK_MAX_PIECE = 1 << 20 };       /* bytes of a piece */
#define TOK_MAX_FILE ((int64_t)1 << 30) /* bytes of a file */
#define TOK_MAX_TEXT ((int64_t)1 << 40) /* bytes of a text */

typedef enum tok_type { /* as SentencePiece numbers them */
                        TOK_NORMAL = 1,
                        TOK_UNKNOWN = 2,
                        TOK_CONTROL = 3,
                        TOK_USER_DEFINED = 4,
                        TOK_UNUSED = 5,
                        TOK_BYTE = 6
} tok_type;

/* One token. Its texts are in the tokenizer's names, each with a NUL after it. */
typedef struct tok_entry {
    int64_t piece; /* place in names; -1: no token has this number */
    int32_t size;
    int32_t decoded_size; /* what a decoder sees, which a normalizer may have made of the piece */
    int64_t decoded;
    double score;
    uint8_t type; /* tok_type */
    bool special;
} tok_entry;

/* A token that is found in the text before pieces are. */
typedef struct tok_added {
    int32_t id;
    bool lstrip, rstrip, normalized;
    int64_t content; /* what is looked for: a place in names */
    int32_t size;
} tok_added;

typedef struct tok_matcher {
    tok_trie trie; /* of contents; the value is an index of added */
    bool first[256];
    int only_first; /* the one byte that all begin with; -1: there are several, or none */
} tok_matcher;

/* One step of the normalizer of a tokenizer.json. */
typedef enum tok_norm_kind { TOK_NORM_CHARSMAP, TOK_NORM_STRIP, TOK_NORM_REPLACE, TOK_NORM_SPACES } tok_norm_kind;
typedef struct tok_norm {
    tok_norm_kind kind;
    bool left, right;        /* STRIP */
    char *pattern, *content; /* REPLACE: this text by that; SPACES: two or more spaces by that */
    int64_t pattern_size, content_size;
} tok_norm;

/* One step of a decoder, from tokens to tokens. */
typedef enum tok_decode_kind { TOK_DECODE_META, TOK_DECODE_BYTES, TOK_DECODE_REPLACE, TOK_DECODE_JOIN } tok_decode_kind;
typedef struct tok_decode_step {
    tok_decode_kind kind;
    bool drop;               /* META: the first token loses its spaces */
    char *pattern, *content; /* META: pattern becomes a space; REPLACE */
    int64_t pattern_size, content_size;
} tok_decode_step;

typedef enum tok_kind { TOK_JSON, TOK_SENTENCEPIECE, TOK_BYTES } tok_kind;
typedef enum tok_prepend { TOK_PREPEND_NEVER, TOK_PREPEND_FIRST, TOK_PREPEND_ALWAYS } tok_prepend;
enum { TOK_MAX_STEPS = 8, TOK_MAX_AROUND = 16 };

struct tokenizer {
    tok_kind kind;
    tok_text names;
    tok_entry *tokens;
    int32_t n_tokens;
    int32_t *by_piece; /* numbers in the order of their pieces, n_named of them */
    int32_t n_named;
    int32_t eos, pad, unk;

    /* the model */
    tok_trie pieces; /* the value is the token */
    int32_t byte_ids[256];
    bool byte_fallback;
    double min_score;

    /* added tokens: looked for in the text, and in the normalized text */
    tok_added *added;
    int32_t n_added;
    tok_matcher raw, normalized;

    /* of a tokenizer.json */
    tok_norm norms[TOK_MAX_STEPS];
    int n_norms;
    tok_graphemes graphemes;
    bool white_split, meta, meta_split; /* pre-tokenizers: WhitespaceSplit, Metaspace */
    tok_prepend prepend;
    char meta_text[8]; /* what stands for a space */
    int meta_size;
    int32_t before[TOK_MAX_AROUND], after[TOK_MAX_AROUND]; /* special tokens around a text */
    int n_before, n_after;
    tok_decode_step steps[TOK_MAX_STEPS];
    int n_steps;

    /* of a spiece.model, and the character map of either */
    tok_charsmap charsmap;
    tok_trie user_defined;
    bool dummy_prefix, remove_extra, escape, space_is_suffix;
    int64_t unk_surface; /* place in names */
    int32_t unk_surface_size;
};

/* ---- tokens.c: the list of tokens, which readers fill */
/* Append a text to names; its place, or -1 if memory ran out. */
int64_t tok_name(tokenizer *t, const char *text, int64_t size);
static inline const char *tok_named(const tokenizer *t, int64_t place)
{
    return t->names.bytes + place;
}
/* Make space for n tokens, all without a piece. */
bool tok_tokens_make(tokenizer *t, int32_t n);
bool tok_token_set(tokenizer *t, int32_t id, const char *piece, int64_t size, tok_type type, double score);
/* After all tokens are set: sort them by piece. Two tokens with one piece are a failure, "<name>: ...". */
tok_status tok_tokens_sort(tokenizer *t, const char *name, char err[TOK_ERR_MAX]);
/* Make the trie of the pieces that a filter takes, with the tokens as values. */
bool tok_pieces_trie(const tokenizer *t, tok_trie *trie, bool (*takes)(const tok_entry *));
/* Make the matchers of t->added. False if memory runs out. */
bool tok_matchers_make(tokenizer *t);

/* ---- readers: fill an empty tokenizer; what they filled is freed by tok_close, also after a failure */
tok_status tok_read_json(tokenizer *t, const char *data, int64_t size, const char *name, char err[TOK_ERR_MAX]);
tok_status tok_read_sentencepiece(tokenizer *t, const char *data, int64_t size, const char *name, int32_t extra_ids,
                                  const tok_beside *beside, char err[TOK_ERR_MAX]);
/* read_beside.c: replace *extra_ids where the files say so; add their tokens to those that were read. */
tok_status tok_read_extra_ids(const tok_beside *beside, int32_t *extra_ids, char err[TOK_ERR_MAX]);
tok_status tok_add_beside(tokenizer *t, const tok_beside *beside, char err[TOK_ERR_MAX]);
bool tok_is_compact(const char *data, int64_t size);
tok_status tok_read_compact(tokenizer *t, const char *data, int64_t size, const char *name, char err[TOK_ERR_MAX]);

/* ---- one call of tok_encode */
typedef struct tok_node tok_node;
typedef struct tok_work {
    const tokenizer *t;
    tok_ids ids;
    tok_text normalized, other, word;
    tok_node *nodes; /* of the search for the best pieces */
    int64_t n_nodes;
    bool nodes_failed;
    int64_t front;        /* bytes at the start of the normalized text that came from the first character of the text */
    int64_t unknown_from; /* start of a run of unknown characters; -1: none */
    bool after_unknown;
    int (*cancelled)(void *context); /* asked from time to time; NULL: never */
    void *context;
    int64_t until_asked; /* bytes of work until it is asked again */
    bool stopped;
} tok_work;

/* encode.c: ask whether the call is cancelled. */
bool tok_ask(tok_work *w);
/* Count bytes of work. False once the call is cancelled: every loop over a text ends there. */
static inline bool tok_goes_on(tok_work *w, int64_t bytes)
{
    w->until_asked -= bytes;
    return w->until_asked > 0 || tok_ask(w);
}

/* added.c: call part for each stretch of text without an added token, in order, and add the tokens between them. */
void tok_split_added(tok_work *w, const tok_matcher *matcher, const char *text, int64_t size,
                     void (*part)(tok_work *w, const char *text, int64_t size, int64_t from));
/* normalize_json.c: text, as the steps of a tokenizer.json change it, in w->normalized. *front characters of the text
 * come from its first one; it becomes the number of those that do in the normalized text, or less than 1. */
void tok_normalize_json(tok_work *w, const char *text, int64_t size, int64_t *front);
/* normalize_sentencepiece.c: the same by SentencePiece's rules. */
void tok_normalize_sentencepiece(tok_work *w, const char *text, int64_t size);
/* Its characters alone, without its rules about spaces, in *to. */
void tok_normalize_characters(tok_work *w, tok_text *to, const char *text, int64_t size);
/* unigram.c: add the tokens of the best pieces. */
void tok_unigram(tok_work *w, const char *text, int64_t size);

#endif
