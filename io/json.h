/* json.h -- reading JSON with jansson.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef RELPOS_JSON_H
#define RELPOS_JSON_H

#include <jansson.h>
#include <stdbool.h>

/* json_loadb, but if memory runs out, NULL with *no_memory set: the text may be valid then. For text that is not JSON, NULL with *error. */
json_t *io_json(const char *text, size_t size, size_t flags, json_error_t *error, bool *no_memory);

/* jansson appends NULL without a word, and what is built while memory runs out lacks members: who builds JSON calls io_json_watch first, and asks
 * before the end whether an allocation failed in this thread since the last answer, other than in io_json. */
void io_json_watch(void);
bool io_json_lost(void);

/* The members of an object one after the other, as text: memory grows with the largest member, not with all of them. */
typedef struct io_members {
    const char *text;
    size_t size, at; /* after a failure: where the text is no object */
    bool begun;
} io_members;

/* A part of such a text: a key with its quotation marks, or a value; each is JSON of its own, or the text is not JSON. */
typedef struct io_piece {
    const char *text;
    size_t size;
} io_piece;

/* The next member: 1; 0: there is none, and nothing comes after the object; -1: the text is not an object. */
int io_next_member(io_members *m, io_piece *key, io_piece *value);

#endif
