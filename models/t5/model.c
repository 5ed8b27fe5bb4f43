/* model.c -- opens a model from a folder or a packed file, describes it, and writes it packed.
 * SPDX-License-Identifier: Apache-2.0 */
#include "checkpoint/folder.h"
#include "checkpoint/modules.h"
#include "checkpoint/packed.h"
#include "t5/gguf.h"
#include "tokenizer/tokenizer.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ------------------------------------------------------------------------------------------------ files of a folder */

static rp_status read_config(rp_t5 *m, const char *folder)
{
    size_t size;
    char *path = model_join(folder, "config.json");
    if (path == NULL)
        return t5_no_memory();
    rp_status status = t5_model_failed(model_read_text(&m->files, path, &m->config_text, &size));
    if (status == RP_OK && m->config_text == NULL && model_has_adapter(folder))
        status = t5_model_failed(model_refuse_adapter(folder));
    else if (status == RP_OK && m->config_text == NULL)
        status = t5_fail(RP_E_ARG,
                         "%s: there is no config.json in it (give a folder that save_pretrained wrote, or a file of "
                         "`relpos t5 pack`)",
                         folder);
    if (status == RP_OK)
        status = t5_config_read(m, path, m->config_text, size);
    free(path);
    return status;
}

/* Without generation_config.json, read the same keys from config.json, where older checkpoints keep them. */
static rp_status old_generation(rp_t5 *m, const char *path)
{
    return t5_generation_read(m, "config.json", path, m->config_text, strlen(m->config_text));
}

static rp_status read_generation(rp_t5 *m, const char *folder)
{
    size_t size;
    char *path = model_join(folder, "generation_config.json");
    if (path == NULL)
        return t5_no_memory();
    rp_status status = t5_model_failed(model_read_text(&m->files, path, &m->generation_text, &size));
    if (status == RP_OK && m->generation_text != NULL)
        status = t5_generation_read(m, "generation_config.json", path, m->generation_text, size);
    else if (status == RP_OK)
        status = old_generation(m, folder);
    free(path);
    return status;
}

/* ------------------------------------------------------------------------------------------------ opening */

static void fill_info(rp_t5 *m)
{
    static const char *const kinds[] = {"t5", "mt5", "umt5", "longt5", "switch_transformers"};
    static const char *const activations[] = {"relu", "gelu_new", "gelu", "silu"};
    static const char *const attentions[] = {"full", "local", "transient-global"};
    const t5_config *c = &m->config;
    const t5_weights *w = &m->weights;
    int64_t parameters = 0, step_bytes = 0;
    if (m->load != RP_T5_LOAD_TEXT)
        t5_weights_count(w, c, &parameters, &step_bytes);
    const int32_t cleans_up = m->info.cleans_up; /* was set when the tokenizer was opened */
    m->info = (rp_t5_info){.kind = kinds[c->kind],
                           .type = m->load != RP_T5_LOAD_TEXT ? linear_type_name(w->type) : "",
                           .vocab = c->vocab,
                           .d_model = c->d_model,
                           .d_kv = c->d_kv,
                           .d_ff = c->d_ff,
                           .heads = c->heads,
                           .layers = w->encoder.layers,
                           .decoder_layers = w->decoder.layers,
                           .parameters = parameters,
                           .bytes = w->store.bytes,
                           .step_bytes = step_bytes,
                           .gated = c->gated,
                           .tied = w->tied,
                           .scaled = c->scale,
                           .has_tokenizer = m->tokenizer != NULL,
                           .start = c->start,
                           .eos = c->n_eos > 0 ? c->eos[0] : -1,
                           .pad = c->pad,
                           .activation = activations[c->activation],
                           .attention = attentions[c->encoder_attention],
                           .experts = c->experts,
                           .not_finite = w->store.not_finite,
                           .packed = m->packed,
                           .source = m->origin.name != NULL ? m->origin.name : "",
                           .source_checksum = m->origin.checksum,
                           .vector_width = model_modules_width(m->modules),
                           .vector_tokens = model_modules_tokens(m->modules),
                           .cleans_up = cleans_up};
}

/* ------------------------------------------------------------------------------------------------ checksums */

static const model_packed packed_kind = {
    .format = "relpos-t5 2", .keys = t5_packed_keys, .n_keys = sizeof t5_packed_keys / sizeof *t5_packed_keys};
#define PACKED_FORMAT_1 "relpos-t5 1" /* metadata "format" of relpos 0.1: no checksum and no source */

rp_status rp_t5_check_file(const rp_t5 *m, rp_progress *progress, void *context)
{
    if (m == NULL)
        return t5_fail(RP_E_ARG, "model is NULL; open one with rp_t5_open");
    if (m->packed < 2)
        return t5_fail(RP_E_UNSUPPORTED, m->packed == 0 ? "the model was read from a folder, which has no checksum "
                                                          "(pack it first)"
                                                        : "the file was packed by relpos 0.1 and has no checksum (pack "
                                                          "the folder again)");
    return t5_model_failed(model_check_checksum(m->file, &packed_kind, progress, context));
}

rp_status rp_t5_checksum(const rp_t5 *m, char text[17])
{
    if (m == NULL || text == NULL)
        return t5_fail(RP_E_ARG, "model or text is NULL; pass both");
    const rp_status status = t5_model_failed(model_origin_checksum(&m->origin, m->file, text));
    return m->origin.folder == NULL && m->origin.name == NULL ? t5_finish(m, status) : status;
}

static rp_status open_weights(rp_t5 *m, const char *folder)
{
    const rp_status status = t5_model_failed(model_open_weights(&m->file, &m->notes, folder));
    if (status != RP_OK || !model_has_file(folder, "custom_generate/generate.py"))
        return status;
    return t5_model_failed(model_add_note(&m->notes, "%s: custom_generate/generate.py is not run", folder));
}

/* `own`: use the tokenizer of the model itself. */
static rp_status open_transformer(rp_t5 *m, const char *path, int type, bool own)
{
    rp_status status = read_config(m, path);
    if (status == RP_OK)
        status = read_generation(m, path);
    if (status == RP_OK && m->load != RP_T5_LOAD_TEXT)
        status = open_weights(m, path);
    if (status == RP_OK && m->file != NULL)
        status = t5_model_failed(model_note_checkpoint(&m->files, m->file, path));
    if (status == RP_OK && m->file != NULL)
        status = t5_model_failed(model_strip_prefixes(m->file, &t5_names, &m->notes, path));
    if (status == RP_OK && m->file != NULL)
        status = t5_model_failed(model_check_names(m->file, &t5_names, path));
    if (status == RP_OK && m->load != RP_T5_LOAD_TEXT)
        status = t5_finish(
            m, t5_weights_pack(&m->weights, &m->config, m->file, path, type, m->load == RP_T5_LOAD_SIZES, m->pool));
    if (status == RP_OK && own)
        status = t5_find_tokenizer(m, path);
    io_checkpoint_close(m->file); /* no longer needed: the weights are packed in memory */
    m->file = NULL;
    return status;
}

/* Open a folder of save_pretrained, or of sentence-transformers, which may have the former in a subfolder. */
static rp_status open_folder(rp_t5 *m, const char *path, int type, bool own)
{
    char *inner = NULL;
    rp_status status = t5_model_failed(model_note_origin(&m->origin, path));
    if (status == RP_OK)
        status = t5_model_failed(model_modules_find(&m->modules, &m->files, path, &inner));
    if (status == RP_OK)
        status = t5_model_failed(model_origin_inner(&m->origin, inner));
    if (status == RP_OK)
        status = open_transformer(m, inner != NULL ? inner : path, type, own);
    const model_reading reading = {
        &m->files, &m->notes, m->config.d_model, m->config.max_positions, m->load == RP_T5_LOAD_ALL, false};
    if (status == RP_OK && inner != NULL)
        status = t5_model_failed(model_modules_read(m->modules, &reading, path, inner));
    free(inner);
    return status;
}

/* Open a file of weights without a config.json. */
static rp_status open_single(rp_t5 *m, const char *path, int type)
{
    rp_status status = t5_model_failed(model_note_origin(&m->origin, path));
    if (status == RP_OK)
        status = t5_model_failed(model_note_file(&m->files, path));
    if (status == RP_OK)
        status = t5_single(m, path);
    if (status == RP_OK)
        status = old_generation(m, path);
    if (status == RP_OK && m->load != RP_T5_LOAD_TEXT)
        status = t5_finish(
            m, t5_weights_pack(&m->weights, &m->config, m->file, path, type, m->load == RP_T5_LOAD_SIZES, m->pool));
    io_checkpoint_close(m->file); /* no longer needed: the weights are packed in memory */
    m->file = NULL;
    return status;
}

static rp_status copy_meta(const rp_t5 *m, const char *key, char **text)
{
    const char *value = io_checkpoint_meta(m->file, key);
    if (value != NULL && (*text = strdup(value)) == NULL)
        return t5_no_memory();
    return RP_OK;
}

static rp_status open_gguf(rp_t5 *m, const char *path, int type, bool own)
{
    rp_status status = t5_model_failed(model_note_origin(&m->origin, path));
    if (status == RP_OK)
        status = t5_model_failed(model_note_file(&m->files, path));
    if (status == RP_OK)
        status = t5_gguf_describe(m, path);
    if (status == RP_OK)
        status = t5_config_read(m, path, m->config_text, strlen(m->config_text));
    m->config.advice = " (convert the model again)";
    if (status == RP_OK)
        status = old_generation(m, path);
    if (status == RP_OK && m->load != RP_T5_LOAD_TEXT)
        status = t5_finish(
            m, t5_weights_pack(&m->weights, &m->config, m->file, path, type, m->load == RP_T5_LOAD_SIZES, m->pool));
    if (status == RP_OK && own)
        status = t5_gguf_tokenizer(m, path);
    if (status == RP_OK && m->load == RP_T5_LOAD_ALL && m->weights.type == LINEAR_BLOCKS)
        return status;            /* the weights are blocks in the file */
    io_checkpoint_close(m->file); /* no longer needed: the weights are packed in memory */
    m->file = NULL;
    return status;
}

static rp_status open_packed(rp_t5 *m, const char *path, int type)
{
    const char *format = io_checkpoint_meta(m->file, "format");
    m->packed = format == NULL                            ? 0
                : strcmp(format, packed_kind.format) == 0 ? 2
                : strcmp(format, PACKED_FORMAT_1) == 0    ? 1
                                                          : 0;
    if (m->packed == 0)
        return t5_fail(RP_E_ARG,
                       "%s: it is not a file of `relpos t5 pack` of this version (give the folder that contains "
                       "config.json, or a .gguf file)",
                       path);
    rp_status status = t5_model_failed(model_check_packed(m->file, path, type, m->packed > 1));
    if (status == RP_OK)
        status = t5_model_failed(model_note_file(&m->files, path));
    if (status == RP_OK)
        status = copy_meta(m, "config", &m->config_text);
    if (status == RP_OK)
        status = copy_meta(m, T5_GENERATION_KEY, &m->generation_text);
    if (status == RP_OK)
        status = t5_model_failed(model_copy_origin(&m->origin, m->file));
    if (status == RP_OK && m->config_text == NULL)
        status = t5_fail(RP_E_ARG, "%s: it has no config (pack the folder again)", path);
    if (status == RP_OK)
        status = t5_config_read(m, path, m->config_text, strlen(m->config_text));
    m->config.advice = " (pack the model again)";
    if (status == RP_OK && m->generation_text != NULL)
        status = t5_generation_read(m, "generation_config.json", path, m->generation_text, strlen(m->generation_text));
    else if (status == RP_OK)
        status = old_generation(m, path);
    if (status == RP_OK && m->load != RP_T5_LOAD_TEXT)
        status = t5_weights_map(&m->weights, &m->config, m->file, path);
    return status;
}

/* Open a file: a .gguf file, a packed one, or weights without a config.json. */
static rp_status open_file(rp_t5 *m, const char *path, int type, bool own)
{
    char err[IO_ERR_MAX] = "";
    if (io_checkpoint_open(&m->file, path, err) != IO_OK)
        return t5_fail(RP_E_ARG, "%s", err);
    if (io_checkpoint_keys(m->file) != NULL)
        return open_gguf(m, path, type, own);
    const char *format = io_checkpoint_meta(m->file, "format");
    const bool packed = format != NULL && strncmp(format, "relpos-t5 ", 10) == 0;
    rp_status status = t5_model_failed(model_check_kind(m->file, path, "relpos-t5"));
    if (status == RP_OK)
        status = packed ? open_packed(m, path, type) : open_single(m, path, type);
    if (status != RP_OK || !own)
        return status;
    return packed ? t5_packed_tokenizer(m, path) : t5_embedded_tokenizer(m, path);
}

/* Discard the tokenizer of the model's file, and use the given one; given = NULL: none. */
static rp_status replace_tokenizer(rp_t5 *m, const char *given)
{
    free(m->tokenizer_text);
    m->tokenizer_text = NULL;
    m->tokenizer_size = 0;
    return given != NULL ? t5_given_tokenizer(m, given) : t5_drop_tokenizer(m);
}

static rp_status find_type(const char *name, int *type)
{
    *type = linear_find_type(name);
    if (name == NULL || *type >= 0)
        return RP_OK;
    return t5_fail(RP_E_ARG, "the type of weights is \"%s\"; it must be f32, f16, bf16, int8, int4 or q8", name);
}

rp_status rp_t5_open(rp_t5 **model, const char *path, const rp_t5_opening *opening)
{
    const rp_t5_opening o = opening != NULL ? *opening : rp_t5_opening_init();
    int type = -1, draft = -1;
    if (model == NULL || path == NULL)
        return t5_fail(RP_E_ARG, "model or path is NULL; pass both");
    *model = NULL;
    if (o.size != sizeof o)
        return t5_fail(RP_E_ARG, "opening.size is %zu; it must be %zu (start from rp_t5_opening_init)", o.size,
                       sizeof o);
    if ((unsigned)o.load > RP_T5_LOAD_TEXT)
        return t5_fail(RP_E_ARG, "opening.load is %d; it must be a value of rp_t5_loading", (int)o.load);
    if (o.load != RP_T5_LOAD_ALL && o.draft != NULL)
        return t5_fail(RP_E_ARG, "opening.draft is \"%s\", but a draft needs the weights (use RP_T5_LOAD_ALL)",
                       o.draft);
    if (o.tokenizer != NULL && o.no_tokenizer)
        return t5_fail(RP_E_ARG, "opening.tokenizer is \"%s\", but opening.no_tokenizer is set (set only one of them)",
                       o.tokenizer);
    const bool own = o.tokenizer == NULL && !o.no_tokenizer;
    rp_status status = find_type(o.type, &type);
    if (status == RP_OK)
        status = find_type(o.draft, &draft);
    if (status != RP_OK)
        return status;
    rp_t5 *m = calloc(1, sizeof *m);
    if (m == NULL)
        return t5_no_memory();
    m->pool = o.pool;
    m->load = o.load;
    m->generation = rp_t5_generation_of(NULL);
    bool folder;
    char err[IO_ERR_MAX];
    if (io_is_folder(path, &folder, err) != IO_OK)
        status = t5_fail(RP_E_ARG, "%s", err);
    else
        status = folder ? open_folder(m, path, type, own) : open_file(m, path, type, own);
    if (status == RP_OK && !own)
        status = replace_tokenizer(m, o.tokenizer);
    if (status == RP_OK && o.load == RP_T5_LOAD_ALL)
        status = t5_screen_open(m);
    if (status == RP_OK && draft >= 0)
        status = t5_draft_open(m, (linear_type)draft);
    if (status != RP_OK) {
        rp_t5_close(m);
        return status;
    }
    fill_info(m);
    m->generation.unsupported = m->kept.refused;
    *model = m;
    return RP_OK;
}

void rp_t5_close(rp_t5 *m)
{
    if (m == NULL)
        return;
    t5_screen_close(m);
    t5_draft_close(m);
    model_modules_free(m->modules);
    t5_weights_free(&m->weights);
    io_checkpoint_close(m->file);
    tok_close(m->tokenizer);
    free(m->tokenizer_text);
    for (int k = 0; k < T5_BESIDE; k++)
        free(m->beside_text[k]);
    free(m->why_no_tokenizer);
    model_notes_free(&m->notes);
    model_files_free(&m->files);
    model_origin_free(&m->origin);
    free(m->config_text);
    free(m->generation_text);
    t5_kept_free(&m->kept);
    free(m);
}

int rp_t5_reads(const rp_t5 *m, const char *path)
{
    return m != NULL && path != NULL && model_reads(&m->files, path);
}

const char *rp_t5_note(const rp_t5 *m, int64_t n)
{
    return m != NULL ? model_note(&m->notes, n) : NULL;
}

const rp_t5_info *rp_t5_about(const rp_t5 *m)
{
    return m != NULL ? &m->info : NULL;
}

rp_t5_generation rp_t5_generation_of(const rp_t5 *m)
{
    const rp_t5_generation without = {.size = sizeof without,
                                      .max_new_tokens = 256,
                                      .beams = 1,
                                      .returned = 1,
                                      .length_penalty = 1,
                                      .temperature = 1,
                                      .top_k = 50, /* the default of transformers */
                                      .top_p = 1,
                                      .repetition_penalty = 1,
                                      .forced_first = -1,
                                      .forced_last = -1};
    return m != NULL ? m->generation : without;
}

/* ------------------------------------------------------------------------------------------------ packed files */

rp_status rp_t5_pack(const rp_t5 *m, const char *path)
{
    io_set set = {0};
    if (m == NULL || path == NULL)
        return t5_fail(RP_E_ARG, "model or path is NULL; pass both");
    rp_status status = t5_need_weights(m);
    if (status == RP_OK && m->weights.type == LINEAR_BLOCKS)
        status = t5_fail(RP_E_UNSUPPORTED, "blocks of a .gguf file cannot be packed as they are (open the model with a "
                                           "type, such as q8)");
    if (status == RP_OK && m->modules != NULL)
        status = t5_fail(RP_E_UNSUPPORTED, "modules.json of sentence-transformers cannot be packed (use the folder, or "
                                           "remove modules.json to pack only the encoder)");
    if (status == RP_OK && m->tokenizer_refused)
        status = t5_fail(RP_E_ARG, "%s; --no-tokenizer packs the model without it", m->why_no_tokenizer);
    if (status == RP_OK && rp_t5_reads(m, path))
        status = t5_fail(RP_E_ARG, "%s: the model was read from this file (give another name)", path);
    if (status == RP_OK)
        status = t5_weights_list(&m->weights, &m->config, &set);
    char *compact = NULL;
    int64_t size = 0;
    if (status == RP_OK && m->tokenizer_text != NULL)
        status = t5_compact_tokenizer(m, &compact, &size);
    if (compact == NULL)
        size = (int64_t)m->tokenizer_size;
    if (status == RP_OK && m->tokenizer_text != NULL && /* last, because its size is not a multiple of 64 */
        io_add(&set, T5_TOKENIZER_ARRAY, RP_U8, 1, &size, compact != NULL ? (void *)compact : m->tokenizer_text,
               true) != 0)
        status = t5_no_memory();
    if (status == RP_OK)
        status = t5_model_failed(
            model_describe_packed(&set, &packed_kind, m->weights.type, m->config_text, m->weights.store.not_finite));
    if (status == RP_OK && m->generation_text != NULL && io_add_meta(&set, T5_GENERATION_KEY, m->generation_text) != 0)
        status = t5_no_memory();
    for (int k = 0; k < T5_BESIDE && status == RP_OK && m->tokenizer != NULL; k++)
        if (m->beside_text[k] != NULL && io_add_meta(&set, t5_packed_keys[k], m->beside_text[k]) != 0)
            status = t5_no_memory();
    if (status == RP_OK)
        status = t5_finish(m, t5_model_failed(model_describe_origin(&m->origin, m->file, &set)));
    if (status == RP_OK)
        status = t5_model_failed(model_write_packed(&set, &packed_kind, path));
    io_free(&set);
    free(compact);
    return status;
}
