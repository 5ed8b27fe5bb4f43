/* compact.h -- the compact form of a tokenizer.json, whose pieces and scores are stored as arrays instead of text.
 *
 * Layout, in the byte order of the machine: TOK_COMPACT_MAGIC; int64 [3]: number of pieces n, bytes of all pieces,
 * bytes of the JSON; double [n] scores; int32 [n] sizes; the pieces; the JSON, in which the list model.vocab is empty.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef RELPOS_TOKENIZER_COMPACT_H
#define RELPOS_TOKENIZER_COMPACT_H

#include "tokenizer/read_json.h"

#define TOK_COMPACT_MAGIC "\x89tokens1" /* neither JSON nor a SentencePiece model begins with this */
enum { TOK_COMPACT_MAGIC_BYTES = 8, TOK_COMPACT_HEAD = TOK_COMPACT_MAGIC_BYTES + 3 * 8 };

bool tok_is_json(const char *data, int64_t size); /* true if the file is a tokenizer.json */
bool tok_is_compact(const char *data, int64_t size);
tok_status tok_read_compact(tokenizer *t, const char *data, int64_t size, const char *name, const tok_beside *beside,
                            char err[TOK_ERR_MAX]);

#endif
