/* json.h -- reading JSON with jansson.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef RELPOS_JSON_H
#define RELPOS_JSON_H

#include <jansson.h>
#include <stdbool.h>

#define IO_JSON_MAX ((size_t)512 << 20) /* max bytes of a text */

/* Parse JSON of at most IO_JSON_MAX bytes as json_loadb does; readers of files have lower limits. Return NULL with
 * *error if the text is not valid, and NULL with *no_memory = true if out of memory. */
json_t *io_json(const char *text, size_t size, size_t flags, json_error_t *error, bool *no_memory);

#define IO_JSON_FAULT 320
/* Describe why io_json refused a text: "line 3, column 5: what is wrong (what to do)". */
void io_json_fault(const char *text, size_t size, const json_error_t *error, char fault[IO_JSON_FAULT]);

/* Return the JSON as text, which the caller frees; NULL if out of memory. Use it in place of json_dumps: in jansson
 * 2.14, that function silently omits bytes if its buffer cannot grow. */
char *io_json_text(const json_t *root);

/* If out of memory, jansson silently omits members of JSON that you build. Call io_json_watch before building, and
 * io_json_lost at the end. io_json_lost returns true if an allocation of this thread (outside io_json) has failed since
 * its last call. */
void io_json_watch(void);
bool io_json_lost(void);

/* Iterator over the members of an object as text. Parsing members one by one takes memory only for the largest. */
typedef struct io_members {
    const char *text;
    size_t size, at; /* at: current position; after a failure, position of the error */
    bool begun;
} io_members;

/* A part of the text: a key with its quotation marks, or a value. If the text is valid JSON, so is each part. */
typedef struct io_piece {
    const char *text;
    size_t size;
} io_piece;

/* Find the next member. Return 1 if there is one; 0 at the end of the object and the text; -1 if the text is not an
 * object. */
int io_next_member(io_members *m, io_piece *key, io_piece *value);

#endif
