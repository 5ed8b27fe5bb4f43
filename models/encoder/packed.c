/* packed.c -- packed files: weights that are used in place, the JSON files of the folder, and its tokenizer.
 * SPDX-License-Identifier: Apache-2.0 */
#include "encoder/encoder.h"
#include <stdlib.h>
#include <string.h>

rp_status encoder_finish(const rp_encoder *m, rp_status status)
{
    char err[IO_ERR_MAX];
    const bool concerns = m->file != NULL && status != RP_E_NOMEM && status != RP_E_CANCELLED;
    return concerns && io_checkpoint_unchanged(m->file, err) != IO_OK ? encoder_fail(RP_E_ARG, "%s", err) : status;
}

static bool is_config(const char *key)
{
    const char *slash = strrchr(key, '/');
    return strcmp(slash != NULL ? slash + 1 : strchr(key, ':') + 1, "config.json") == 0;
}

static const char *config_of(const rp_encoder *m)
{
    for (int64_t n = 0; n < m->files.n_texts; n++)
        if (is_config(m->files.texts[n].key))
            return m->files.texts[n].text;
    return "{}";
}

/* Add everything to a set that will be written. */
static rp_status list(const rp_encoder *m, const model_packed *kind, io_set *set)
{
    rp_encoder all = *m; /* a copy, because encoder_walk passes non-const pointers into it */
    const int64_t size = (int64_t)m->tokenizer_size;
    rp_status status = model_list(encoder_walk, &all, set);
    if (status == RP_OK)
        status = model_list(encoder_walk_vectors, &all, set);
    if (status == RP_OK)
        status = model_list(model_modules_walk, m->modules, set);
    if (status == RP_OK && m->tokenizer_text != NULL && /* last, because its size is no multiple of 64 */
        io_add(set, m->tokenizer_array, RP_U8, 1, &size, m->tokenizer_text, true) != 0)
        status = model_no_memory();
    if (status == RP_OK)
        status = model_describe_packed(set, kind, m->weights.type, config_of(m), m->weights.store.not_finite);
    if (status == RP_OK && m->config.scheme == ENCODER_DEBERTA &&
        io_add_meta(set, ENCODER_VECTORS, linear_default_isa()) != 0)
        status = model_no_memory();
    if (status == RP_OK)
        status = model_list_texts(&m->files, set);
    return status == RP_OK ? model_describe_origin(&m->origin, m->file, set) : status;
}

/* Set *kind to the metadata of a packed file. The caller frees kind->keys. */
static rp_status describe(const rp_encoder *m, model_packed *kind)
{
    const int n = (int)m->files.n_texts;
    const char **keys = model_text_keys(&m->files);
    if (keys != NULL)
        keys[n] = ENCODER_VECTORS;
    *kind = (model_packed){ENCODER_PACKED, keys, n + 1};
    return keys != NULL ? RP_OK : encoder_no_memory();
}

rp_status rp_encoder_pack(const rp_encoder *m, const char *path)
{
    io_set set = {0};
    if (m == NULL || path == NULL)
        return encoder_fail(RP_E_ARG, "model or path is NULL; pass both");
    if (model_reads(&m->files, path))
        return encoder_fail(RP_E_ARG, "%s: the model was read from this file (give another name)", path);
    model_packed kind;
    rp_status status = describe(m, &kind);
    if (status == RP_OK)
        status = encoder_finish(m, encoder_model_failed(list(m, &kind, &set)));
    if (status == RP_OK)
        status = encoder_model_failed(model_write_packed(&set, &kind, path));
    free((void *)(uintptr_t)kind.keys);
    io_free(&set);
    return status;
}

rp_status rp_encoder_check_file(const rp_encoder *m, rp_progress *progress, void *context)
{
    if (m == NULL)
        return encoder_fail(RP_E_ARG, "model is NULL; open one with rp_encoder_open");
    if (m->file == NULL)
        return encoder_fail(RP_E_UNSUPPORTED,
                            "the model was read from a folder, which has no checksum (pack it first)");
    model_packed kind;
    rp_status status = describe(m, &kind);
    if (status == RP_OK)
        status = encoder_model_failed(model_check_checksum(m->file, &kind, progress, context));
    free((void *)(uintptr_t)kind.keys);
    return status;
}

rp_status rp_encoder_checksum(const rp_encoder *m, char text[17])
{
    if (m == NULL || text == NULL)
        return encoder_fail(RP_E_ARG, "model or text is NULL; pass both");
    const rp_status status = encoder_model_failed(model_origin_checksum(&m->origin, m->file, text));
    if (status != RP_OK)
        return status;
    uint64_t sum = io_checksum(1, text, MODEL_CHECKSUM);
    for (int64_t n = 0; n < m->files.n_texts; n++)
        sum = io_checksum(io_checksum(sum, m->files.texts[n].key, strlen(m->files.texts[n].key)),
                          m->files.texts[n].text, strlen(m->files.texts[n].text));
    sum = io_checksum(sum, m->tokenizer_text, m->tokenizer_size);
    model_checksum_text(model_modules_checksum(m->modules, sum), text);
    return RP_OK;
}
