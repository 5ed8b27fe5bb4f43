/* tokenizer.h -- converts text to token numbers and back: for the models of the T5 family, Unigram from a
 * tokenizer.json or a SentencePiece model, and the bytes of ByT5; for BERT and MPNet, WordPiece, and for RoBERTa,
 * ModernBERT and CodeT5, byte-level BPE, from a tokenizer.json.
 * Readers treat every file as hostile. Independent of models and attention.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef RELPOS_TOKENIZER_H
#define RELPOS_TOKENIZER_H

#include <stdbool.h>
#include <stdint.h>

#define TOK_MAX_FILE ((int64_t)128 << 20) /* max bytes of a file; the largest that are known have 34 MB */

/* A tokenizer. It is immutable, so several threads can use it concurrently. */
typedef struct tokenizer tokenizer;

/* Status of a call. On failure err contains one line that states what was given, the bound and what to do. Every result
 * is then NULL or 0. */
#define TOK_ERR_MAX 512
typedef enum tok_status {
    TOK_OK = 0,
    TOK_FAILED = -1,   /* the file cannot be read, or out of memory; its contents may be valid */
    TOK_DAMAGED = -2,  /* the contents of the file are not valid or not supported */
    TOK_ABSENT = -3,   /* there is no such file */
    TOK_ARGUMENT = -4, /* an argument is out of range, such as a negative size */
    TOK_CANCELLED = -5 /* the callback cancelled the call */
} tok_status;

enum { TOK_T5_EXTRA_IDS = 100 }; /* the extra_ids of T5 */

/* Read a tokenizer from a file, or from a directory with a tokenizer.json or, if there is none, a spiece.model. A file
 * that begins with "{" is read as a tokenizer.json; any other file as a SentencePiece model or as the output of
 * tok_compact.
 *
 * tokenizer.json   gives the tokens of the library `tokenizers` of Hugging Face (0.23.3); truncation and padding are
 *                  ignored. Only Unigram, WordPiece and byte-level BPE are supported, with the steps of T5, BERT,
 *                  MPNet, RoBERTa and ModernBERT
 * spiece.model     gives the tokens of SentencePiece (0.2.3). extra_ids more tokens follow its pieces; the last is
 *                  <extra_id_0>, as in T5 (T5: 100; mT5, UMT5, plain SentencePiece: 0). They are found in text before
 *                  all pieces. tok_open_beside reads it as transformers does
 *
 * extra_ids is ignored for a tokenizer.json, which lists its extra tokens. */
tok_status tok_open(tokenizer **made, const char *path, int32_t extra_ids, char err[TOK_ERR_MAX]);

/* Read a tokenizer from memory; the caller may free the memory afterwards. name is the name of the file for messages in
 * err. */
tok_status tok_open_memory(tokenizer **made, const void *data, int64_t size, const char *name, int32_t extra_ids,
                           char err[TOK_ERR_MAX]);

/* A file that may exist beside a tokenizer; text is NULL if it does not. */
typedef struct tok_file {
    const char *text;
    int64_t size;
    const char *name; /* for messages */
} tok_file;
/* The class of transformers (5.24) whose rules a tokenizer gets, see tok_open_beside. */
typedef enum tok_rules {
    TOK_RULES_FILE = 0,    /* TokenizersBackend: the rules of the file */
    TOK_RULES_T5 = 1,      /* T5Tokenizer */
    TOK_RULES_BERT = 2,    /* BertTokenizer, also DistilBertTokenizer and ElectraTokenizer */
    TOK_RULES_MPNET = 3,   /* MPNetTokenizer */
    TOK_RULES_ESM = 4,     /* EsmTokenizer */
    TOK_RULES_ROBERTA = 5, /* RobertaTokenizer */
    TOK_RULES
} tok_rules;
typedef struct tok_beside {
    tok_file added_tokens;     /* added_tokens.json: {"token": number}; numbers continue after the model's tokens */
    tok_file tokenizer_config; /* tokenizer_config.json: added and special tokens; "extra_ids" overrides the argument */
    tok_file special_tokens_map; /* special_tokens_map.json: special tokens */
    tok_rules rules;
} tok_beside;

/* Like tok_open_memory, but read the files beside the tokenizer too, and find special tokens such as </s> and
 * <extra_id_0> in a text, with the results of T5Tokenizer in transformers (5.24). A spiece.model with T5's rules for
 * spaces gives the tokens that its conversion to a tokenizer.json gives. With other rules for spaces or with bytes for
 * unknown characters, the text between special tokens gives the tokens of SentencePiece.
 *
 * A tokenizer.json keeps its own rules with TOK_RULES_FILE. With TOK_RULES_T5, T5Tokenizer takes only the pieces,
 * precompiled_charsmap and added tokens from the file, and has rules of its own for spaces, unknown characters, the end
 * of a text and decoding. These need pieces that begin with U+2581: without any, the rules of the file stay.
 *
 * With TOK_RULES_BERT or TOK_RULES_MPNET, BertTokenizer and MPNetTokenizer take only the pieces of WordPiece and added
 * tokens from a tokenizer.json; with another model, the rules of the file stay. do_lower_case, tokenize_chinese_chars,
 * strip_accents and the special tokens of tokenizer_config.json decide the rest. A file that is no JSON is then a
 * vocab.txt, with one piece in each line.
 *
 * With TOK_RULES_ROBERTA, RobertaTokenizer has the words of GPT-2 and no normalizer, and add_prefix_space of
 * tokenizer_config.json (default: false) counts instead of that of a tokenizer.json; with a model other than BPE, the
 * rules of the file stay.
 *
 * With TOK_RULES_ESM, the lines of a vocab.txt are the tokens that are found in a text, such as residues; the words
 * between them are unknown. A tokenizer.json keeps its own rules. */
tok_status tok_open_beside(tokenizer **made, const void *data, int64_t size, const char *name, int32_t extra_ids,
                           const tok_beside *beside, char err[TOK_ERR_MAX]);

/* Return true if the rules of a tokenizer.json, or of a spiece.model that tok_open_beside opened, are those of
 * T5Tokenizer. */
bool tok_has_t5_rules(const tokenizer *t);

/* Convert a tokenizer.json to a form that tok_open_memory and tok_open_beside open several times faster, on machines
 * with the same byte order. The file must be one that tok_open_beside opens; beside = NULL: that tok_open_memory opens.
 * *made has *made_size bytes; the caller frees it with free(). Other tokenizers already open fast: for them *made is
 * NULL and *made_size is 0. */
tok_status tok_compact(const char *data, int64_t size, const tok_beside *beside, char **made, int64_t *made_size,
                       char err[TOK_ERR_MAX]);

struct io_gguf;
/* The tokenizer of a .gguf file, as files of a folder. The caller frees the texts. */
typedef struct tok_written {
    char *spiece; /* spiece.model */
    int64_t spiece_size;
    char *added_tokens;     /* added_tokens.json; NULL: none */
    char *tokenizer_config; /* tokenizer_config.json, with "extra_ids" */
} tok_written;
/* Write the tokenizer that the keys tokenizer.ggml.* describe. TOK_ABSENT if there is none. `name` is the file's name
 * for messages. Open the result with tok_open_beside, which checks the contents. */
tok_status tok_write_gguf(const struct io_gguf *keys, const char *name, tok_written *files, char err[TOK_ERR_MAX]);

/* Make the tokenizer of ByT5, which needs no file. Its tokens are <pad>, </s>, <unk>, the 256 bytes, and then extra_ids
 * tokens that begin with <extra_id_0> (ByT5: 125). The files beside it may change and add tokens, as with ByT5Tokenizer
 * in transformers; NULL: there are none. */
tok_status tok_open_bytes(tokenizer **made, int32_t extra_ids, const tok_beside *beside, char err[TOK_ERR_MAX]);

void tok_close(tokenizer *t); /* t may be NULL */

/* Encode `size` bytes of text, which may contain NUL. With `special`, add the tokens that the model expects around a
 * text (T5: </s> at the end). *ids receives *n token numbers, and is not NULL even if *n is 0; the caller frees it with
 * free().
 *
 * Bytes that are not UTF-8 become U+FFFD: one for each maximal part of a character, as Unicode recommends and as Python
 * and Rust do. With a spiece.model it is one for each byte, as in SentencePiece. ByT5 encodes all bytes unchanged. Time
 * and memory are linear in size. Besides the result, short words take about 3 bytes of memory per byte of text. A long
 * stretch of overlapping pieces takes up to 27 bytes per byte of normalized text (in which a space has 3 bytes), and a
 * long word of byte-level BPE 36 bytes per byte, and time O(n log n) for n bytes.
 * TOK_DAMAGED means that the normalizer of the file produced more than 64 * size + 1024 bytes from the text. */
tok_status tok_encode(const tokenizer *t, const char *text, int64_t size, bool special, int32_t **ids, int64_t *n,
                      char err[TOK_ERR_MAX]);

/* Like tok_encode, with a callback (may be NULL) that is called once per megabyte. If it returns non-zero, the call is
 * cancelled. */
tok_status tok_encode_watched(const tokenizer *t, const char *text, int64_t size, bool special,
                              int (*cancelled)(void *context), void *context, int32_t **ids, int64_t *n,
                              char err[TOK_ERR_MAX]);

/* A text of `size` bytes, which may contain NUL and bytes that are not UTF-8. */
typedef struct tok_string {
    const char *text;
    int64_t size;
} tok_string;

/* The bytes text[begin .. end) from which a token comes. */
typedef struct tok_span {
    int64_t begin, end;
} tok_span;

typedef struct tok_encoding {
    int32_t *ids;   /* [n] */
    int32_t *types; /* [n]: token types, also called segment ids */
    int32_t *texts; /* [n]: 0 for tokens of a, 1 for tokens of b, -1 for the special tokens around them */
    tok_span
        *spans; /* [n]: place in its text; 0, 0 for the special tokens around the texts. NULL: not known, for ByT5 and
                        a spiece.model with the rules of SentencePiece */
    int64_t n;
} tok_encoding;

/* Encode a text, or a pair of texts, with the tokens that the model expects around them (BERT: [CLS] a [SEP] b [SEP]).
 * b = NULL: only one text. The result has at most max_tokens tokens (0: no limit): tokens are removed at the end of the
 * longer text, as the strategy longest_first of `tokenizers` does. A limit below the number of special tokens is
 * TOK_ARGUMENT. Free the result with tok_encoding_free. */
tok_status tok_encode_pair(const tokenizer *t, tok_string a, const tok_string *b, int64_t max_tokens, tok_encoding *out,
                           char err[TOK_ERR_MAX]);
void tok_encoding_free(tok_encoding *encoding);

/* Decode n token numbers. *text is valid UTF-8 of *size bytes, followed by NUL; the caller frees it with free(). With
 * skip_special, special tokens are skipped. Numbers without a piece are skipped, as in `tokenizers`, because a model
 * may have more rows than its tokenizer has tokens. A negative number gives TOK_ARGUMENT. */
tok_status tok_decode(const tokenizer *t, const int32_t *ids, int64_t n, bool skip_special, char **text, int64_t *size,
                      char err[TOK_ERR_MAX]);

/* Return the model of a tokenizer.json or vocab.txt: "Unigram", "WordPiece" or "BPE". */
const char *tok_model_name(const tokenizer *t);

/* Return true if tok_decode can skip the token. */
bool tok_is_special(const tokenizer *t, int32_t id);

/* Return the number of tokens; their numbers are 0 to tok_size(t) - 1. */
int32_t tok_size(const tokenizer *t);

/* Return the piece of a token, such as "▁the", "</s>" or "<0x0A>"; NULL for a number without a piece. The tokenizer
 * owns the piece. It has *size bytes, which may include NUL, and is followed by NUL; size may be NULL. */
const char *tok_piece(const tokenizer *t, int32_t id, int64_t *size);
/* Write the text of a token of a spiece.model to `to`, which must have room for as many bytes as its piece has. Return
 * the size of the text, or 0 for a number without a piece. For example, the text of "▁the" is " the", and the text of
 * "<0x0A>" is a line feed. */
int64_t tok_token_text(const tokenizer *t, int32_t id, char *to);
/* Return the number of a piece, or -1. */
int32_t tok_id(const tokenizer *t, const char *piece, int64_t size);

#endif
