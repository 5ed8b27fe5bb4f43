/* from_gguf.h -- writes the tokenizer of a .gguf file as the files of a folder: a spiece.model and what is beside it.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef RELPOS_TOKENIZER_FROM_GGUF_H
#define RELPOS_TOKENIZER_FROM_GGUF_H

#include "io/gguf.h"
#include "tokenizer/tokenizer.h"

/* The files; the caller frees them. */
typedef struct tok_written {
    char *spiece;
    int64_t spiece_size;
    char *added_tokens;     /* added_tokens.json; NULL: none */
    char *tokenizer_config; /* tokenizer_config.json, with "extra_ids" */
} tok_written;

/* Write the tokenizer that the keys tokenizer.ggml.* describe. TOK_ABSENT if there is none. `name` is the file's name
 * for messages. tok_open_beside checks the contents of the files. */
tok_status tok_write_gguf(const io_gguf *keys, const char *name, tok_written *files, char err[TOK_ERR_MAX]);

#endif
