/* read_json.h -- functions shared by the files that read a tokenizer.json. Each reads a JSON value and reports an error
 * in one line.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef RELPOS_TOKENIZER_READ_JSON_H
#define RELPOS_TOKENIZER_READ_JSON_H

#include "tokenizer/parts.h"
#include <jansson.h>

/* The pieces of model.vocab as arrays, from read_compact.c. */
typedef struct tok_vocab {
    int32_t n;
    const char *scores, *sizes, *pieces; /* double [n], int32 [n], and the bytes of all pieces; may be unaligned */
} tok_vocab;

typedef struct tok_reader {
    tokenizer *t;
    const char *name; /* name of the file, safe to print */
    char *err;
    const tok_vocab *vocab; /* NULL: pieces are in the JSON */
} tok_reader;

/* json_members.c */
/* Write "<name>: <text>" to err and return status. */
tok_status tok_reader_fail(const tok_reader *r, tok_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
tok_status tok_reader_memory(const tok_reader *r);

/* Read a member of an object. A missing string is an error; a missing boolean leaves *to unchanged. Messages call the
 * object `where`. */
tok_status tok_json_string(const tok_reader *r, const json_t *object, const char *where, const char *key,
                           const char **text, int64_t *size);
tok_status tok_json_bool(const tok_reader *r, const json_t *object, const char *where, const char *key, bool *to);

/* Read the "type" of an object, such as "Metaspace". */
tok_status tok_json_type(const tok_reader *r, const json_t *object, const char *where, const char **type);

/* read_json.c */
/* Return a score of the JSON as `tokenizers` reads it. */
double tok_json_score(const json_t *score);

/* Read a tokenizer.json. If vocab is not NULL, take the pieces from it. */
tok_status tok_read_json_with(tokenizer *t, const char *data, int64_t size, const tok_vocab *vocab, const char *name,
                              const tok_beside *beside, char err[TOK_ERR_MAX]);

/* read_wordpiece.c: set the pieces from a vocabulary such as {"the": 1996}, and prepare the search for
 * them. */
tok_status tok_read_numbered(tok_reader *r, const json_t *vocab);
/* Read the model WordPiece with its pieces. */
tok_status tok_read_wordpiece(tok_reader *r, const json_t *model);

/* read_bpe.c: read the model BPE with its pieces. */
tok_status tok_read_bpe(tok_reader *r, const json_t *model);
/* Check that the steps are those of byte-level BPE if, and only if, the model is BPE. */
tok_status tok_check_byte_level(const tok_reader *r);

/* read_steps.c */
tok_status tok_read_normalizer(tok_reader *r, const json_t *normalizer);
/* Read only the first Precompiled step of a normalizer, as T5Tokenizer does. */
tok_status tok_read_charsmap(tok_reader *r, const json_t *normalizer);
tok_status tok_read_pre_tokenizer(tok_reader *r, const json_t *pre_tokenizer);
tok_status tok_read_post_processor(tok_reader *r, const json_t *post_processor);
tok_status tok_read_decoder(tok_reader *r, const json_t *decoder);

#endif
