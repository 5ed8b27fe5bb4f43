/* values.h -- reads the values of the keys of a config.json.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef RELPOS_CHECKPOINT_VALUES_H
#define RELPOS_CHECKPOINT_VALUES_H

#include "io/json.h"
#include <relpos/relpos.h>
#include <stdbool.h>

/* A file that is being read. */
typedef struct model_reader {
    const json_t *root;
    const char *path;     /* for messages */
    const char *kind;     /* "a T5": what a file without the required keys is not a config.json of */
    const char *as_reals; /* keys that transformers also takes as 6.0 for 6: " key key "; NULL: none */
    rp_status status;     /* of the first error; its message is model_error() */
} model_reader;

/* Record an error: `"key" why`. */
void model_fault(model_reader *r, const char *key, const char *why);
/* Return the value of a key, or NULL if it is absent or null. */
const json_t *model_value(const model_reader *r, const char *key);
/* Read an item of a key, or its value, as an integer from min to max. Return false if it is not one. */
bool model_is_integer(const model_reader *r, const char *key, const json_t *v, int64_t min, int64_t max, int64_t *x);
/* Format a number as " (it is ...)", and any other value as "". */
const char *model_describe_number(const json_t *v, char given[64]);

/* Read the value of a key; return `fallback` if it is absent, null or wrong. */
int64_t model_integer(model_reader *r, const char *key, int64_t fallback, int64_t min, int64_t max);
double model_number(model_reader *r, const char *key, double fallback, double min, double max);
bool model_boolean(model_reader *r, const char *key, bool fallback);
/* Read a boolean that transformers uses even if it is null; null is false. */
bool model_condition(model_reader *r, const char *key, bool fallback);
const char *model_string(model_reader *r, const char *key, const char *fallback);
/* Read a size from 1 to `max`. The key is required if `fallback` is 0. `other` is another name of the key, or NULL. */
int64_t model_size(model_reader *r, const char *key, const char *other, int64_t fallback, int64_t max);

#endif
