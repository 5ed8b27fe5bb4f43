/* read_json.h -- what the files that read a tokenizer.json share: each takes a value of JSON, and says in one line what
 * is wrong with it.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef RELPOS_TOKENIZER_READ_JSON_H
#define RELPOS_TOKENIZER_READ_JSON_H

#include "tokenizer/parts.h"
#include <jansson.h>

/* The pieces of model.vocab outside the JSON: compact.c. */
typedef struct tok_vocab {
    int32_t n;
    const char *scores, *sizes, *pieces; /* [n] double, [n] int32, and the bytes one after the other; at any address */
} tok_vocab;

typedef struct tok_reader {
    tokenizer *t;
    const char *name; /* of the file, safe to print */
    char *err;
    const tok_vocab *vocab; /* NULL: they are in the JSON */
} tok_reader;

/* A failure: "<name>: <text>". */
tok_status tok_reader_fail(const tok_reader *r, tok_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
tok_status tok_reader_memory(const tok_reader *r);

/* Fields of an object. A string that is absent is a failure; a boolean that is absent has the value that *to has. where
 * names the object. */
tok_status tok_json_string(const tok_reader *r, const json_t *object, const char *where, const char *key,
                           const char **text, int64_t *size);
tok_status tok_json_bool(const tok_reader *r, const json_t *object, const char *where, const char *key, bool *to);

/* The "type" of an object, such as "Metaspace". */
tok_status tok_json_type(const tok_reader *r, const json_t *object, const char *where, const char **type);

/* The number that `tokenizers` reads for a score in the JSON. */
double tok_json_score(const json_t *score);

/* Read a tokenizer.json, with its pieces elsewhere unless vocab is NULL. */
tok_status tok_read_json_with(tokenizer *t, const char *data, int64_t size, const tok_vocab *vocab, const char *name,
                              char err[TOK_ERR_MAX]);

/* read_steps.c */
tok_status tok_read_normalizer(tok_reader *r, const json_t *normalizer);
tok_status tok_read_pre_tokenizer(tok_reader *r, const json_t *pre_tokenizer);
tok_status tok_read_post_processor(tok_reader *r, const json_t *post_processor);
tok_status tok_read_decoder(tok_reader *r, const json_t *decoder);

#endif
