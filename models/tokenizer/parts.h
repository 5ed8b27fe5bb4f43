/* parts.h -- the parts of a tokenizer, shared by the files of this folder: normalizer, model of pieces, added tokens
 * and decoder.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef RELPOS_TOKENIZER_PARTS_H
#define RELPOS_TOKENIZER_PARTS_H

#include "tokenizer/charsmap.h"
#include "tokenizer/edit.h"
#include "tokenizer/graphemes.h"
#include "tokenizer/text.h"
#include "tokenizer/trie.h"

enum { TOK_MAX_TOKENS = 1 << 22 }; /* max tokens of a tokenizer; less than TOK_TRIE_NONE */
enum { TOK_MAX_EXTRA_IDS = 1 << 20 };
enum { TOK_MAX_PIECE = 1 << 20 };       /* max bytes of a piece */
#define TOK_MAX_TEXT ((int64_t)1 << 40) /* max bytes of a text */

typedef enum tok_type { /* numbered as in SentencePiece */
                        TOK_NORMAL = 1,
                        TOK_UNKNOWN = 2,
                        TOK_CONTROL = 3,
                        TOK_USER_DEFINED = 4,
                        TOK_UNUSED = 5,
                        TOK_BYTE = 6
} tok_type;

/* One token. Its texts are in tokenizer.names, each followed by NUL. */
typedef struct tok_entry {
    int64_t piece; /* offset in names; -1: no token has this index */
    int32_t size;
    int32_t decoded_size; /* size in bytes of the text at `decoded` */
    int64_t decoded;      /* offset in names of the text that the decoder reads: the piece, possibly normalized */
    double score;
    uint8_t type; /* tok_type */
    bool special;
    int32_t added; /* 1 + its index in tokenizer.added; 0: it is not there */
} tok_entry;

/* A token that is searched for in the text before the rest is split into pieces. */
typedef struct tok_added {
    int32_t id;
    bool lstrip, rstrip; /* also take the white space before or after it */
    bool single_word;    /* only if no letter, digit or "_" is next to it; for ByT5: only between spaces */
    bool normalized;     /* search the normalized text; otherwise the original text */
    int64_t content;     /* offset in names of the text to search for */
    int32_t size;
} tok_added;

typedef struct tok_matcher {
    tok_trie trie;   /* the texts to search for; values are indices of `added` */
    bool first[256]; /* first[b]: some text begins with byte b */
    int only_first;  /* the first byte, if it is the same for all texts; otherwise -1 */
} tok_matcher;

/* One step of the normalizer of a tokenizer.json. */
typedef enum tok_norm_kind {
    TOK_NORM_CHARSMAP,
    TOK_NORM_STRIP,
    TOK_NORM_REPLACE,
    TOK_NORM_SPACES,
    TOK_NORM_WHITE,
    TOK_NORM_CLEAN,      /* BertNormalizer: remove control characters; white space becomes " " */
    TOK_NORM_IDEOGRAPHS, /* BertNormalizer: put spaces around CJK characters */
    TOK_NORM_NFD,
    TOK_NORM_NFC,
    TOK_NORM_NONSPACING, /* BertNormalizer: remove marks of category Mn */
    TOK_NORM_MARKS,      /* StripAccents */
    TOK_NORM_LOWER
} tok_norm_kind;
typedef struct tok_norm {
    tok_norm_kind kind;
    bool left, right;        /* STRIP */
    char *pattern, *content; /* REPLACE: replace pattern by content; SPACES: replace runs of two or more spaces;
                                WHITE: replace runs of two or more characters of white space, and line ends and tabs */
    int64_t pattern_size, content_size;
} tok_norm;

/* One step of a decoder, which maps tokens to tokens. */
typedef enum tok_decode_kind {
    TOK_DECODE_META,
    TOK_DECODE_BYTES,
    TOK_DECODE_REPLACE,
    TOK_DECODE_JOIN,
    TOK_DECODE_WORDPIECE,
    TOK_DECODE_BYTE_LEVEL
} tok_decode_kind;
typedef struct tok_decode_step {
    tok_decode_kind kind;
    bool drop;               /* META: remove the spaces from the first token */
    bool cleanup;            /* WORDPIECE: remove the spaces before punctuation and English contractions */
    char *pattern, *content; /* META, REPLACE: replace pattern by content, which is a space for META */
                             /* WORDPIECE: remove the prefix `pattern`, or else put a space before the token */
    int64_t pattern_size, content_size;
} tok_decode_step;

typedef enum tok_model { TOK_UNIGRAM, TOK_WORDPIECE, TOK_BPE } tok_model; /* of a tokenizer.json */
typedef enum tok_kind { TOK_JSON, TOK_SENTENCEPIECE, TOK_BYTES } tok_kind;
typedef enum tok_prepend { TOK_PREPEND_NEVER, TOK_PREPEND_FIRST, TOK_PREPEND_ALWAYS } tok_prepend;
/* Pre-tokenizers that split a text into words by the kinds of its characters. */
typedef enum tok_split {
    TOK_SPLIT_NONE,
    TOK_SPLIT_WHITE,       /* WhitespaceSplit: between white space */
    TOK_SPLIT_PYTHON,      /* str.split of Python: also between four control characters */
    TOK_SPLIT_BERT,        /* BertPreTokenizer: also around each punctuation character */
    TOK_SPLIT_PUNCTUATION, /* Punctuation: only there */
    TOK_SPLIT_WORDS,       /* Whitespace: between white space, and between words and other characters */
    TOK_SPLIT_GPT2,        /* the regular expressions of patterns.c, in its order */
    TOK_SPLIT_CL100K,
    TOK_SPLIT_QWEN2
} tok_split;
enum { TOK_MAX_STEPS = 8, TOK_MAX_ITEMS = 33 };

/* The tokens of a text or a pair, with special tokens. */
enum { TOK_FIRST_TEXT = -1, TOK_SECOND_TEXT = -2 }; /* in place of a token: those of a text */
typedef struct tok_template {
    struct {
        int32_t id, type;
    } items[TOK_MAX_ITEMS];
    int n;
} tok_template;

/* A merge of two tokens that follow each other; an element of a hash table. */
typedef struct tok_merge {
    int32_t left, right, made; /* left = -1: the element is empty */
    int32_t rank;              /* merges with a lower rank come first */
} tok_merge;

/* Return the first place of a pair in the table, before masking. */
static inline uint32_t tok_merge_place(int32_t left, int32_t right)
{
    const uint64_t key = ((uint64_t)(uint32_t)left << 32 | (uint32_t)right) * 0x9e3779b97f4a7c15;
    return (uint32_t)(key >> 32);
}

/* The model BPE. */
typedef struct tok_merges {
    tok_merge *table; /* [mask + 1] */
    uint32_t mask;
    int32_t *made; /* [n]: the token that the merge with this rank makes */
    int32_t n;
    bool skips;         /* bytes without a piece have no token */
    bool fuse_unk;      /* unknown bytes that follow each other are one token */
    bool ignore_merges; /* a word that is a piece is one token, whatever the merges make of it */
} tok_merges;

struct tokenizer {
    tok_kind kind;
    tok_text names;
    tok_entry *tokens;
    int32_t n_tokens;
    int32_t *by_piece; /* [n_named]: numbers of the tokens with a piece, sorted by piece */
    int32_t n_named;
    int32_t eos, unk; /* -1: none */

    /* the model */
    tok_model model;
    tok_merges merges;
    tok_trie pieces;  /* values are token numbers */
    uint32_t inner;   /* WordPiece: state of `pieces` after the prefix of pieces inside a word; 0: none has it */
    int64_t max_word; /* WordPiece: max characters of a word */
    int32_t byte_ids[256];
    bool byte_fallback;
    double min_score;

    /* added tokens: `raw` matches in the original text, `normalized` in the normalized text */
    tok_added *added;
    int32_t n_added, max_added;
    tok_matcher raw, normalized;

    /* only for tokenizer.json */
    tok_norm norms[TOK_MAX_STEPS];
    int n_norms;
    tok_graphemes graphemes;
    tok_split split;
    bool byte_level;       /* pre-tokenizer ByteLevel */
    bool prefix_space;     /* ByteLevel: insert a space before a text that does not begin with one */
    bool meta, meta_split; /* pre-tokenizer Metaspace */
    tok_prepend prepend;
    char meta_text[8]; /* replacement of a space */
    int meta_size;
    tok_template single, pair;
    bool has_template;     /* a post_processor sets them */
    bool trim, trim_first; /* RobertaProcessing, ByteLevel: trim_offsets, add_prefix_space */
    tok_decode_step steps[TOK_MAX_STEPS];
    int n_steps;

    tok_charsmap charsmap; /* used by both formats */

    /* only for spiece.model */
    tok_trie user_defined;
    bool dummy_prefix, remove_extra, escape, space_is_suffix;
    int64_t unk_surface; /* offset in names */
    int32_t unk_surface_size;
};

/* ---- tokens.c: the list of tokens, which readers fill */
/* Append a text to names. Return its offset, or -1 if out of memory. */
int64_t tok_name(tokenizer *t, const char *text, int64_t size);
static inline const char *tok_named(const tokenizer *t, int64_t place)
{
    return t->names.bytes + place;
}
/* Encode a text as its tokens, followed by the token `end`; and a pair as both texts, each followed by it. end = -1:
 * without it. */
void tok_set_end(tokenizer *t, int32_t end);
/* Grow the list to n tokens; new tokens have no piece. This function and those below return false if out of memory. */
bool tok_tokens_make(tokenizer *t, int32_t n);
bool tok_token_set(tokenizer *t, int32_t id, const char *piece, int64_t size, tok_type type, double score);
/* Sort tokens by piece. Call this after setting all tokens. It is an error, "<name>: ...", if two tokens have the same
 * piece. */
tok_status tok_tokens_sort(tokenizer *t, const char *name, char err[TOK_ERR_MAX]);
/* Build the trie of all pieces for which takes() is true. Values are token numbers. */
bool tok_pieces_trie(const tokenizer *t, tok_trie *trie, bool (*takes)(const tok_entry *));
/* Build the matchers of t->added. */
bool tok_matchers_make(tokenizer *t);

/* ---- add.c: added tokens
 * An added token as a file describes it. */
typedef struct tok_listed {
    const char *content;
    int64_t size;
    long long id; /* its number in the file; -1: none */
    bool lstrip, rstrip, single_word, normalized, special;
    bool named; /* it is the value of a key such as "eos_token" */
} tok_listed;
/* Make room for n more tokens in t->added. Return false if out of memory. */
bool tok_added_make(tokenizer *t, int64_t n);
/* Add a token with the number id, in the room that tok_added_make made; or change its properties if it was added
 * before. If the number has no piece yet, its piece is the content. `name` is the name of the file, safe to print. */
tok_status tok_add(tokenizer *t, int32_t id, const tok_listed *token, const char *name, char err[TOK_ERR_MAX]);
/* Prepare the search for added tokens. Call this after sorting the pieces. Return false if out of memory. */
bool tok_added_finish(tokenizer *t);

/* ---- t5_rules.c
 * Give the tokenizer the rules of T5Tokenizer. Pieces and charsmap must be set. Return false if out of memory. */
bool tok_set_t5_rules(tokenizer *t);

/* ---- bert_rules.c */
#define TOK_INNER_PREFIX "##" /* of pieces inside a word */
enum { TOK_BERT_MAX_WORD = 100 };
static inline bool tok_has_vocab(tok_rules rules) /* a vocab.txt */
{
    return rules == TOK_RULES_BERT || rules == TOK_RULES_MPNET || rules == TOK_RULES_ESM;
}
static inline bool tok_is_bert(tok_rules rules)
{
    return rules == TOK_RULES_BERT || rules == TOK_RULES_MPNET;
}
/* The settings of BertNormalizer. */
typedef struct tok_bert {
    bool clean, ideographs, strip, lower;
} tok_bert;
/* Append its steps to the normalizer. Return false if they are too many. */
bool tok_add_bert_steps(tokenizer *t, const tok_bert *bert);
/* Set all rules of BertTokenizer but the tokens around a text. Return false if out of memory. */
bool tok_set_bert_rules(tokenizer *t, const tok_bert *bert);
/* Encode a text as [CLS] a [SEP] and a pair as [CLS] a [SEP] b [SEP]; with `roberta`, a pair as <s> a </s></s> b </s>,
 * without token types. */
void tok_set_around(tokenizer *t, int32_t cls, int32_t sep, bool roberta);

/* ---- readers: fill an empty tokenizer. The caller calls tok_close on success and on failure.
 * beside = NULL: read the file as `tokenizers` or SentencePiece does. Otherwise read it as transformers does. */
tok_status tok_read_json(tokenizer *t, const char *data, int64_t size, const char *name, const tok_beside *beside,
                         char err[TOK_ERR_MAX]);
tok_status tok_read_sentencepiece(tokenizer *t, const char *data, int64_t size, const char *name, int32_t extra_ids,
                                  const tok_beside *beside, char err[TOK_ERR_MAX]);
/* read_wordpiece.c: read a vocab.txt. */
tok_status tok_read_vocab(tokenizer *t, const char *data, int64_t size, const char *name, const tok_beside *beside,
                          char err[TOK_ERR_MAX]);
/* read_beside.c: set *extra_ids if the files contain it. */
tok_status tok_read_extra_ids(const tok_beside *beside, int32_t *extra_ids, char err[TOK_ERR_MAX]);
/* Where the pieces come from. */
typedef enum tok_source {
    TOK_FROM_FILE,   /* a tokenizer.json with its own rules, whose added tokens are there already; or ByT5 */
    TOK_FROM_SPIECE, /* a spiece.model: its special pieces are added too */
    TOK_FROM_JSON    /* a tokenizer.json with the rules of a class such as T5Tokenizer: its added tokens are added too;
                        or a vocab.txt */
} tok_source;
struct json_t;
/* Add the tokens that transformers adds for these files, and sort the pieces again. Without a list of special tokens in
 * the files, extra_ids tokens <extra_id_N> are added. If the files name an end token, t->eos becomes its number. json:
 * the contents of the tokenizer.json, or NULL. */
tok_status tok_add_beside(tokenizer *t, const tok_beside *beside, int32_t extra_ids, tok_source source,
                          const struct json_t *json, char err[TOK_ERR_MAX]);

/* ---- the state of one call of tok_encode */
typedef struct tok_node tok_node;
typedef struct tok_mark tok_mark;
typedef struct tok_symbol tok_symbol;
typedef struct tok_work {
    const tokenizer *t;
    tok_ids ids;
    bool mapped;      /* record the span of each token */
    tok_spans spans;  /* of ids, if mapped */
    const char *text; /* the encoded text, as valid UTF-8 */
    tok_text valid;   /* `text`, if the caller's text is not UTF-8 */
    tok_text normalized, other, word;
    const int64_t *origins; /* of the bytes of the word that is split into pieces, if mapped */
    tok_mark *marks;        /* characters to sort, and as many spare ones */
    int64_t n_marks;
    tok_node *nodes; /* nodes of the search for the best pieces */
    int64_t n_nodes;
    bool nodes_failed;
    tok_symbol *symbols; /* of a word, for BPE */
    uint64_t *queue;     /* merges to do */
    int64_t n_symbols;   /* capacity of symbols; `queue` has twice as many */
    bool symbols_failed;
    bool word_too_long;   /* a word has more than TOK_MAX_WORD bytes */
    int64_t front;        /* bytes at the front of the normalized text that come from the text's first character */
    int64_t unknown_from; /* start of a run of unknown characters; -1: none */
    bool after_unknown;
    int (*cancelled)(void *context); /* may be NULL */
    void *context;
    int64_t until_asked; /* bytes to process before the next call of `cancelled` */
    bool stopped;
} tok_work;

/* encode.c: encode a text without the special tokens around it. */
void tok_work_encode(tok_work *w, const char *text, int64_t size);
void tok_work_free(tok_work *w); /* but not w->ids and w->spans */
/* Return TOK_OK, or the reason why a text of `size` bytes could not be encoded. */
tok_status tok_work_status(const tok_work *w, int64_t size, char err[TOK_ERR_MAX]);

/* spans.c: append a token that the model found at begin to end of a word, with its span. */
void tok_add_mapped(tok_work *w, int32_t id, int64_t begin, int64_t end);
static inline void tok_add_piece(tok_work *w, int32_t id, int64_t begin, int64_t end)
{
    if (w->mapped)
        tok_add_mapped(w, id, begin, end);
    else
        tok_ids_add(&w->ids, id);
}
/* Append an added token that was found in w->normalized, or in w->text. */
void tok_add_normalized(tok_work *w, int32_t id, int64_t begin, int64_t end);
void tok_add_raw(tok_work *w, int32_t id, int64_t begin, int64_t end);

/* cancel.c: call the callback. Return false if the call is cancelled. */
bool tok_ask(tok_work *w);
/* Record that this many bytes were processed. Return false once the call has been cancelled; every loop over a text
 * must then end. */
static inline bool tok_goes_on(tok_work *w, int64_t bytes)
{
    w->until_asked -= bytes;
    return w->until_asked > 0 || tok_ask(w);
}

/* added.c: call `part` for each stretch of text between added tokens, in order, and append the added tokens. `add`
 * appends one of them. */
void tok_split_added(tok_work *w, const tok_matcher *matcher, const char *text, int64_t size,
                     void (*add)(tok_work *w, int32_t id, int64_t begin, int64_t end),
                     void (*part)(tok_work *w, const char *text, int64_t size, int64_t from));
/* Append the added tokens and the bytes of a text, for ByT5. */
void tok_split_bytes(tok_work *w, const char *text, int64_t size);
/* normalize_json.c: apply the normalizer of a tokenizer.json to a text; the result is w->normalized. On input, *front
 * is the number of characters of `text` that come from the first character of the original text; on output, it is that
 * number for the normalized text, or less than 1. `from` is the place of `text` in the encoded text. */
void tok_normalize_json(tok_work *w, const char *text, int64_t size, int64_t from, int64_t *front);
/* normalize_unicode.c: apply one step, of the kinds from TOK_NORM_CLEAN on. */
void tok_normalize_unicode(tok_work *w, tok_norm_kind kind, tok_edit *e);
/* normalize_sentencepiece.c: apply the rules of SentencePiece to a text; the result is w->normalized. */
void tok_normalize_sentencepiece(tok_work *w, const char *text, int64_t size);
/* Normalize only the characters of a text, without the rules for spaces; the result is *to. */
void tok_normalize_characters(tok_work *w, tok_text *to, const char *text, int64_t size);
/* unigram.c: append the tokens of the best segmentation into pieces. */
void tok_unigram(tok_work *w, const char *text, int64_t size);
/* wordpiece.c: set the prefix of pieces inside a word, and the max number of characters of a word that is not unknown.
 * Pieces must be set. */
void tok_set_words(tokenizer *t, const char *prefix, int64_t size, int64_t max_word);
/* Append the tokens of a word. */
void tok_wordpiece(tok_work *w, const char *text, int64_t size);

/* patterns.c: return the size of the first word of a text, by the regular expression of `split`. */
int64_t tok_pattern_word(tok_split split, const char *text, int64_t size);
/* Return the split for a regular expression; TOK_SPLIT_NONE: it is not known. */
tok_split tok_known_pattern(const char *regex);
/* bpe.c: append the tokens of a word. */
enum { TOK_MAX_WORD = INT32_MAX };
void tok_bpe(tok_work *w, const char *text, int64_t size);
/* byte_level.c: return the character that stands for a byte in pieces; and the byte, or -1. */
uint32_t tok_byte_character(int byte);
int tok_character_byte(uint32_t character);

#endif
