/* keys.h -- the JSON files of a model: parsing, and the table of all their keys (keys.def): used, without effect, or
 * refused.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef RELPOS_T5_KEYS_H
#define RELPOS_T5_KEYS_H

#include "io/json.h"
#include "t5/model.h"

/* The files whose keys the table has. */
typedef enum t5_key_file {
    T5_KEYS_CONFIG,      /* config.json */
    T5_KEYS_GENERATION,  /* generation_config.json, or config.json if there is none */
    T5_KEYS_TOKENIZER,   /* tokenizer_config.json */
    T5_KEYS_SPECIAL,     /* special_tokens_map.json */
    T5_KEYS_MODULES,     /* modules.json of sentence-transformers; below, config.json of its modules */
    T5_KEYS_POOLING,     /* Pooling */
    T5_KEYS_DENSE,       /* Dense */
    T5_KEYS_NORMALIZE,   /* Normalize */
    T5_KEYS_TRANSFORMER, /* sentence_bert_config.json */
    T5_KEYS_SENTENCE     /* config_sentence_transformers.json */
} t5_key_file;

/* Parse a JSON file, with flags of jansson. Refuse a key that occurs twice. On failure *root is NULL. */
rp_status t5_parse_json(json_t **root, const char *path, const char *text, size_t size, size_t flags);
/* Like t5_parse_json, for a file that must be an object. */
rp_status t5_parse_object(json_t **root, const char *path, const char *text, size_t size, size_t flags);

/* Check the keys of an object. Add a note about those that the table lacks, unless m is NULL. Refuse values that relpos
 * does not compute; or, if `refused` is not NULL, set *refused to the first such key unless it is set. */
rp_status t5_check_keys(rp_t5 *m, t5_key_file file, const char *path, const json_t *root, const char **refused);

#endif
