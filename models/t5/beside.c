/* beside.c -- the JSON files beside a tokenizer: added_tokens.json, tokenizer_config.json and special_tokens_map.json.
 * Their keys are checked for every kind of tokenizer. tokenize.c passes the files to the tokenizer.
 * SPDX-License-Identifier: Apache-2.0 */
#include "t5/keys.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *const t5_beside_names[T5_BESIDE] = {"added_tokens.json", "tokenizer_config.json",
                                                "special_tokens_map.json"};
enum { TOKENIZER_CONFIG = 1 }; /* index of tokenizer_config.json */
const char *const t5_packed_keys[T5_BESIDE + 1] = {"added_tokens", "tokenizer_config", "special_tokens_map",
                                                   T5_GENERATION_KEY};

rp_status t5_read_beside(rp_t5 *m, const char *folder)
{
    rp_status status = RP_OK;
    for (int k = 0; k < T5_BESIDE && status == RP_OK; k++) {
        size_t size;
        char *path = model_join(folder, t5_beside_names[k]);
        free(m->beside_text[k]);
        m->beside_text[k] = NULL;
        status = path != NULL ? t5_model_failed(model_read_text(&m->files, path, &m->beside_text[k], &size))
                              : t5_no_memory();
        free(path);
    }
    return status;
}

rp_status t5_copy_beside(rp_t5 *m)
{
    for (int k = 0; k < T5_BESIDE; k++) {
        const char *text = io_checkpoint_meta(m->file, t5_packed_keys[k]);
        if (text != NULL && (m->beside_text[k] = strdup(text)) == NULL)
            return t5_no_memory();
    }
    return RP_OK;
}

/* Check the keys of one file, and read clean_up_tokenization_spaces. */
static rp_status check_file(rp_t5 *m, const char *path, const char *text, t5_key_file keys)
{
    json_t *root;
    /* model_max_length may be 10^30, which is no integer of C */
    rp_status status = t5_model_failed(model_parse_object(&root, path, text, strlen(text), JSON_DECODE_INT_AS_REAL));
    if (status == RP_OK)
        status = t5_check_keys(m, keys, path, root, NULL);
    if (status == RP_OK && keys == T5_KEYS_TOKENIZER)
        m->info.cleans_up = json_is_true(json_object_get(root, "clean_up_tokenization_spaces"));
    json_decref(root);
    return status;
}

/* Copy "tokenizer_class" of a file; "" if there is none. Errors of a file are reported where its keys are checked. */
static rp_status read_class(const char *text, char name[64])
{
    json_error_t error;
    bool no_memory = false;
    json_t *root = text != NULL ? io_json(text, strlen(text), JSON_DECODE_INT_AS_REAL, &error, &no_memory) : NULL;
    const char *given = json_string_value(json_object_get(root, "tokenizer_class"));
    snprintf(name, 64, "%s", given != NULL ? given : "");
    json_decref(root);
    return no_memory ? t5_no_memory() : RP_OK;
}

/* Find the class that tokenizer_config.json names, or else config.json, which then sets *by_config. */
static rp_status find_class(const rp_t5 *m, char name[64], bool *by_config)
{
    rp_status status = read_class(m->beside_text[TOKENIZER_CONFIG], name);
    *by_config = status == RP_OK && *name == 0;
    if (*by_config)
        status = read_class(m->config_text, name);
    return status;
}

/* Check the class that config.json names if tokenizer_config.json names none. */
static rp_status check_class(rp_t5 *m, const char *folder)
{
    char class[64];
    bool by_config;
    rp_status status = find_class(m, class, &by_config);
    if (status != RP_OK || !by_config || *class == 0)
        return status;
    char *path = model_join(folder, "config.json");
    json_t *root = json_pack("{s:o}", "tokenizer_class", json_string_nocheck(class));
    status = path != NULL && root != NULL ? t5_check_keys(m, T5_KEYS_TOKENIZER, path, root, NULL) : t5_no_memory();
    json_decref(root);
    free(path);
    return status;
}

rp_status t5_check_beside(rp_t5 *m, const char *folder)
{
    static const t5_key_file keys[T5_BESIDE] = {0, T5_KEYS_TOKENIZER, T5_KEYS_SPECIAL};
    rp_status status = RP_OK;
    for (int k = 1; k < T5_BESIDE && status == RP_OK; k++) {
        if (m->beside_text[k] == NULL)
            continue;
        char *path = model_join(folder, t5_beside_names[k]);
        status = path != NULL ? check_file(m, path, m->beside_text[k], keys[k]) : t5_no_memory();
        free(path);
    }
    return status == RP_OK ? check_class(m, folder) : status;
}

/* ------------------------------------------------------------------------------------------------ class */

rp_status t5_find_maker(const rp_t5 *m, t5_maker *maker, bool *named)
{
    const t5_kind kind = m->config.kind;
    char class[64];
    bool by_config;
    const rp_status status = find_class(m, class, &by_config);
    *named = *class != 0 || m->beside_text[TOKENIZER_CONFIG] != NULL;
    const size_t size = strlen(class);
    if (size > 4 && strcmp(class + size - 4, "Fast") == 0)
        class[size - 4] = 0;
    if (kind == T5_UMT5 || (*class == 0 && kind == T5_LONG))
        *maker = T5_MAKER_FILE;
    else if (*class == 0 || strcmp(class, "T5Tokenizer") == 0)
        *maker = T5_MAKER_T5;
    else /* transformers has no MT5Tokenizer, and then uses the rules of the file */
        *maker = strcmp(class, "ByT5Tokenizer") == 0 ? T5_MAKER_BYTES : T5_MAKER_FILE;
    return status;
}

rp_status t5_name_maker(rp_t5 *m)
{
    free(m->beside_text[TOKENIZER_CONFIG]);
    m->beside_text[TOKENIZER_CONFIG] = strdup("{\"tokenizer_class\": \"TokenizersBackend\"}");
    return m->beside_text[TOKENIZER_CONFIG] != NULL ? RP_OK : t5_no_memory();
}

/* ------------------------------------------------------------------------------------------------ clean-up */

/* Replace every `from` of a text by the `n` bytes after its first. Return the new size. */
static int64_t shorten(char *text, int64_t size, const char *from, int64_t n)
{
    const int64_t length = (int64_t)strlen(from);
    int64_t kept = 0;
    for (int64_t at = 0; at < size;) {
        if (at + length <= size && memcmp(text + at, from, (size_t)length) == 0) {
            memcpy(text + kept, from + 1, (size_t)n);
            kept += n;
            at += length;
        } else
            text[kept++] = text[at++];
    }
    return kept;
}

/* How far further text can reach back: an incomplete character is 3 bytes of text (U+FFFD), and each replacement may
 * depend on all bytes of its pattern but one, 19 in total. rp_t5_detokenize promises 22. */
int64_t t5_clean_up(char *text, int64_t size)
{
    /* in the order of transformers, whose replacements see the results of those before them */
    static const struct {
        const char *from;
        int n; /* the number of bytes after the space that remain */
    } rules[] = {{" .", 1},   {" ?", 1},  {" !", 1},  {" ,", 1},   {" ' ", 1},
                 {" n't", 3}, {" 'm", 2}, {" 's", 2}, {" 've", 3}, {" 're", 3}};
    for (size_t n = 0; n < sizeof rules / sizeof *rules; n++)
        size = shorten(text, size, rules[n].from, rules[n].n);
    text[size] = 0;
    return size;
}
