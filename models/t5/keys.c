/* keys.c -- see keys.h.
 * SPDX-License-Identifier: Apache-2.0 */
#include "t5/keys.h"

#define KEY_FILE(file) T5_KEYS_##file
static const model_key_row rows[] = {
#include "t5/keys.def"
};

rp_status t5_check_keys(rp_t5 *m, t5_key_file file, const char *path, const json_t *root, const char **refused)
{
    const model_keys keys = {.rows = rows,
                             .n = sizeof rows / sizeof *rows,
                             .file = (int)file,
                             .also = file == T5_KEYS_CONFIG ? (int)T5_KEYS_GENERATION : (int)file};
    return t5_model_failed(model_check_keys(m != NULL ? &m->notes : NULL, &keys, path, root, refused));
}
