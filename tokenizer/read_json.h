/* read_json.h -- what the files that read a tokenizer.json share: each takes a value of JSON, and says in one line what
 * is wrong with it.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef RELPOS_TOKENIZER_READ_JSON_H
#define RELPOS_TOKENIZER_READ_JSON_H

#include "tokenizer/parts.h"
#include <jansson.h>

typedef struct tok_reader {
    tokenizer *t;
    const char *name; /* of the file, safe to print */
    char *err;
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

/* read_steps.c */
tok_status tok_read_normalizer(tok_reader *r, const json_t *normalizer);
tok_status tok_read_pre_tokenizer(tok_reader *r, const json_t *pre_tokenizer);
tok_status tok_read_post_processor(tok_reader *r, const json_t *post_processor);
tok_status tok_read_decoder(tok_reader *r, const json_t *decoder);

#endif
