/* keys.h -- the JSON files of a model: parsing, and the check of their keys with a table of all that are known: used,
 * without effect, or refused.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef RELPOS_CHECKPOINT_KEYS_H
#define RELPOS_CHECKPOINT_KEYS_H

#include "checkpoint/notes.h"
#include "io/json.h"

/* Parse a JSON file, with flags of jansson. Refuse a key that occurs twice. On failure *root is NULL. */
rp_status model_parse_json(json_t **root, const char *path, const char *text, size_t size, size_t flags);
/* Like model_parse_json, for a file that must be an object. */
rp_status model_parse_object(json_t **root, const char *path, const char *text, size_t size, size_t flags);

/* A row of a table. */
typedef struct model_key_row {
    int file;                  /* a number that the table gives to each of its files */
    const char *keys, *values; /* separated by spaces; values: JSON, NULL if all are allowed */
    const char *text;
} model_key_row;

/* Rows of a .def file, such as t5/keys.def, which describes them. The file that includes it defines KEY_FILE(FILE), the
 * number of a file. */
#define USED(file, keys, text)         {KEY_FILE(file), keys, NULL, text},
#define SAME(file, keys, text)         {KEY_FILE(file), keys, NULL, text},
#define ONLY(file, keys, values, text) {KEY_FILE(file), keys, values, text},

/* Which keys a file may have. */
typedef struct model_keys {
    const model_key_row *rows; /* [n] */
    int n, file;
    int also;           /* another file, whose keys are known in this file too, but not checked; or `file` */
    const char *advice; /* what to do about a refused value; NULL: use a model with an allowed value */
} model_keys;

/* Check the keys of an object. Add a note about those that the table lacks, unless `notes` is NULL. Refuse values that
 * the table does not allow; or, if `refused` is not NULL, set *refused to the first such key unless it is set. */
rp_status model_check_keys(model_notes *notes, const model_keys *keys, const char *path, const json_t *root,
                           const char **refused);

#endif
