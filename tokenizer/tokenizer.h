/* tokenizer.h -- text to token numbers and back, as the models of T5's family have them: Unigram from a tokenizer.json
 * or a SentencePiece model, and the bytes of ByT5. Every reader treats its file as hostile. It knows no model and no
 * attention.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef RELPOS_TOKENIZER_H
#define RELPOS_TOKENIZER_H

#include <stdbool.h>
#include <stdint.h>

/* One tokenizer: it never changes after it was made, so any number of threads may use it at once. */
typedef struct tokenizer tokenizer;

/* What a call returns: TOK_OK, or another status with one line in err that says what was given, the bound and how to
 * mend it. After a failure every result is NULL or 0. */
#define TOK_ERR_MAX 512
typedef enum tok_status {
    TOK_OK = 0,
    TOK_FAILED = -1,  /* the file could not be read, or memory ran out; its content may be valid */
    TOK_DAMAGED = -2, /* the file was read, and its content is not valid, or asks for something that is not supported */
    TOK_ABSENT = -3,  /* there is no such file */
    TOK_ARGUMENT = -4, /* an argument is out of its range, such as a negative size */
    TOK_CANCELLED = -5 /* the callback of the call said so */
} tok_status;

/* Read a tokenizer. path is a file, or a directory: then its tokenizer.json is read, or, where there is none, its
 * spiece.model. A file that begins with "{" is a tokenizer.json, another is a SentencePiece model, or comes
 * from tok_compact.
 *
 * tokenizer.json   equals the library `tokenizers` of Hugging Face (0.23.3), without the truncation and padding that the
 *                  file may ask for. Unigram is read, with the steps that models of T5's family have; others are refused
 * spiece.model     equals SentencePiece (0.2.3). extra_ids more tokens follow its pieces, the last of which is
 *                  <extra_id_0>, as T5 has them (T5: 100; SentencePiece alone, mT5, UMT5: 0). They are found in text
 *                  before all else. Files beside it are for tok_open_beside
 *
 * extra_ids is not read for a tokenizer.json, which names its own. */
tok_status tok_open(tokenizer **made, const char *path, int32_t extra_ids, char err[TOK_ERR_MAX]);

/* The same from memory, which may be freed afterwards; name stands for the file in err. */
tok_status tok_open_memory(tokenizer **made, const void *data, int64_t size, const char *name, int32_t extra_ids,
                           char err[TOK_ERR_MAX]);

/* Files that a folder has beside its spiece.model; text NULL: there is no such file. */
typedef struct tok_file {
    const char *text;
    int64_t size;
    const char *name; /* for err */
} tok_file;
typedef struct tok_beside {
    tok_file added_tokens;       /* added_tokens.json: {"token": number}; the numbers follow those of the model */
    tok_file tokenizer_config;   /* tokenizer_config.json: "extra_ids" replaces the argument; special tokens */
    tok_file special_tokens_map; /* special_tokens_map.json: special tokens */
} tok_beside;

/* Like tok_open_memory, with the files beside a spiece.model, read as transformers reads them. A special token is found in
 * the text, another added token in the text that characters were normalized of. Ignored for a tokenizer.json. */
tok_status tok_open_beside(tokenizer **made, const void *data, int64_t size, const char *name, int32_t extra_ids,
                           const tok_beside *beside, char err[TOK_ERR_MAX]);

/* A tokenizer.json as bytes that tok_open_memory opens several times as fast, on machines with the same order of bytes:
 * *made, which the caller frees with free(), has *made_size of them. Any other tokenizer is fast as it is: *made is NULL
 * and *made_size 0. */
tok_status tok_compact(const char *data, int64_t size, char **made, int64_t *made_size, char err[TOK_ERR_MAX]);

/* The tokenizer of ByT5, which has no file: <pad>, </s>, <unk>, then the 256 bytes, then extra_ids tokens from
 * <extra_id_0> upward (ByT5: 125). */
tok_status tok_open_bytes(tokenizer **made, int32_t extra_ids, char err[TOK_ERR_MAX]);

void tok_close(tokenizer *t); /* NULL too */

/* Token numbers of size bytes of text, which may hold NUL. With special, the tokens that the model expects around a
 * text are added (T5: </s> at the end). *ids, which the caller frees with free(), has *n numbers, and is not NULL even
 * where *n is 0.
 *
 * Bytes that are not UTF-8 become U+FFFD, one for each maximal part of a character, as Unicode recommends and Python
 * and Rust do; a spiece.model has one for each byte, as SentencePiece does. ByT5 takes any bytes as they are.
 * Time and memory are linear in size. Beside the result, a byte takes about 3 bytes where words are short; where a stretch has
 * no place that pieces do not go over, each of its bytes, once it is normalized (a space has 3), takes up to 27.
 * TOK_DAMAGED: the file's normalizer makes more of a text than 64 bytes of each, plus 1024. */
tok_status tok_encode(const tokenizer *t, const char *text, int64_t size, bool special, int32_t **ids, int64_t *n,
                      char err[TOK_ERR_MAX]);

/* Like tok_encode, with a callback that is asked once a megabyte: other than 0 cancels the call. NULL: none. */
tok_status tok_encode_watched(const tokenizer *t, const char *text, int64_t size, bool special,
                              int (*cancelled)(void *context), void *context, int32_t **ids, int64_t *n,
                              char err[TOK_ERR_MAX]);

/* Text of n token numbers; with skip_special, special tokens leave nothing. *text, which the caller frees with free(),
 * is valid UTF-8 of *size bytes, and a NUL follows them. A model may have more rows than its tokenizer has tokens:
 * numbers without a piece leave nothing, as in `tokenizers`. A number below 0 is TOK_ARGUMENT. */
tok_status tok_decode(const tokenizer *t, const int32_t *ids, int64_t n, bool skip_special, char **text, int64_t *size,
                      char err[TOK_ERR_MAX]);

/* Decode token by token. What the calls give, one after the other, is what tok_decode gives for all; a character whose
 * bytes come as several tokens is given once it is complete. (A tokenizer.json with
 * ByteFallback gives a run of bytes once it ends.) The tokenizer must outlive the stream. */
typedef struct tok_stream tok_stream;
tok_status tok_stream_open(tok_stream **made, const tokenizer *t, bool skip_special, char err[TOK_ERR_MAX]);
/* *text, of *size bytes with a NUL after them, belongs to the stream and holds until its next call. */
tok_status tok_stream_next(tok_stream *s, int32_t id, const char **text, int64_t *size, char err[TOK_ERR_MAX]);
tok_status tok_stream_end(tok_stream *s, const char **text, int64_t *size,
                          char err[TOK_ERR_MAX]); /* what was held back */
void tok_stream_close(tok_stream *s);

/* Numbers run from 0 to tok_size(t) - 1. Those of eos, pad and unk are -1 where there is none. */
int32_t tok_size(const tokenizer *t);
int32_t tok_eos(const tokenizer *t);
int32_t tok_pad(const tokenizer *t);
int32_t tok_unk(const tokenizer *t);

/* The piece of a token, such as "▁the", "</s>" or "<0x0A>"; NULL for a number without one. It belongs to the tokenizer;
 * a NUL follows its *size bytes (size may be NULL), and it may hold one. */
const char *tok_piece(const tokenizer *t, int32_t id, int64_t *size);
int32_t tok_id(const tokenizer *t, const char *piece, int64_t size); /* -1 where there is none */
bool tok_is_special(const tokenizer *t, int32_t id);                 /* what skip_special leaves out */

#endif
