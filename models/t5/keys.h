/* keys.h -- the keys of the JSON files of a model: the table keys.def.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef RELPOS_T5_KEYS_H
#define RELPOS_T5_KEYS_H

#include "checkpoint/keys.h"
#include "t5/model.h"

/* The files whose keys the table has. */
typedef enum t5_key_file {
    T5_KEYS_CONFIG,     /* config.json */
    T5_KEYS_GENERATION, /* generation_config.json, or config.json if there is none */
    T5_KEYS_TOKENIZER,  /* tokenizer_config.json */
    T5_KEYS_SPECIAL     /* special_tokens_map.json */
} t5_key_file;

/* Check the keys of an object as model_check_keys does; without notes if m is NULL. */
rp_status t5_check_keys(rp_t5 *m, t5_key_file file, const char *path, const json_t *root, const char **refused);

#endif
