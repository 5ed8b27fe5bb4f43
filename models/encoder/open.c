/* open.c -- opens a model from a folder, and describes it.
 * SPDX-License-Identifier: Apache-2.0 */
#include "checkpoint/folder.h"
#include "checkpoint/names.h"
#include "encoder/encoder.h"
#include "tokenizer/tokenizer.h"
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static rp_status read_config(rp_encoder *m, const char *folder)
{
    char *text = NULL, *path = model_join(folder, "config.json");
    size_t size;
    if (path == NULL)
        return encoder_no_memory();
    rp_status status = encoder_model_failed(model_read_text(&m->files, path, &text, &size));
    if (status == RP_OK && text == NULL && model_has_adapter(folder))
        status = encoder_model_failed(model_refuse_adapter(folder));
    else if (status == RP_OK && text == NULL)
        status = encoder_fail(RP_E_ARG, "%s: there is no config.json in it (give a folder that save_pretrained wrote)",
                              folder);
    if (status == RP_OK)
        status = encoder_config_read(m, path, text, size);
    free(text);
    free(path);
    return status;
}

/* Return true for tables, which are not packed as matrices. */
static bool is_table(const char *name)
{
    return strstr(name, "position_embeddings") != NULL || strstr(name, "token_type_embeddings") != NULL ||
           strstr(name, "relative_attention_bias") != NULL || strstr(name, "rel_embeddings") != NULL;
}

static rp_status pack(rp_encoder *m, const io_checkpoint *file, const char *path, int type)
{
    const model_source source = {.file = file,
                                 .path = path,
                                 .advice = " (check that config.json and the weights belong to one model)",
                                 .stray = encoder_is_stray};
    m->weights.type = type >= 0 ? (linear_type)type : model_type_of(file, is_table);
    rp_status status = encoder_make_layers(m, file, path);
    if (status == RP_OK)
        status = encoder_model_failed(model_pack(&m->weights.store, &source, encoder_walk, m, false, m->pool));
    return status;
}

/* BERT's first files have other names for the weights of norms, which transformers reads too. */
static bool rename_norm(const void *context, const char *name, char *to, size_t size)
{
    static const char *const names[2][2] = {{".gamma", ".weight"}, {".beta", ".bias"}};
    size_t n = strlen(name);
    const char *end = "";
    (void)context;
    for (int k = 0; k < 2; k++) {
        const size_t old = strlen(names[k][0]);
        if (n > old && strcmp(name + n - old, names[k][0]) == 0) {
            n -= old;
            end = names[k][1];
            break;
        }
    }
    snprintf(to, size, "%.*s%s", (int)n, name, end);
    return true;
}

/* ESM's files may have the frequencies of RoPE in every layer. They become those of the model. */
typedef struct frequencies {
    const char *name;   /* encoder_names.frequencies */
    const char *source; /* the tensor that is used; NULL: there is none */
} frequencies;

/* Return the place where the name of a tensor ends with that of the frequencies, or NULL. */
static const char *find_frequencies(const frequencies *f, const char *name)
{
    const size_t n = strlen(name), size = strlen(f->name);
    return n >= size && strcmp(name + n - size, f->name) == 0 ? name + n - size : NULL;
}

static bool rename_frequencies(const void *context, const char *name, char *to, size_t size)
{
    const frequencies *f = context;
    const char *end = find_frequencies(f, name), *layer = end != NULL ? strstr(name, "encoder.layer.") : NULL;
    snprintf(to, size, "%.*s%s", layer != NULL ? (int)(layer - name) : 0, name, layer != NULL ? end : name);
    return end == NULL || strcmp(name, f->source) == 0;
}

/* Give the frequencies of RoPE the name that they have in newer files. They must be the same in all layers. */
static rp_status move_frequencies(io_checkpoint *file, const encoder_architecture *row, const char *path)
{
    frequencies f = {row->names.frequencies, NULL};
    const io_tensor *first = NULL;
    char err[IO_ERR_MAX] = "";
    for (size_t n = 0; f.name != NULL && n < io_checkpoint_size(file); n++) {
        const io_tensor *t = io_checkpoint_at(file, n);
        if (find_frequencies(&f, t->name) == NULL)
            continue;
        if (first != NULL && !io_tensor_same(t, first))
            return model_fail(RP_E_UNSUPPORTED, "%s: tensor '%s' differs from '%s' (all layers must have the same)",
                              path, t->name, first->name);
        first = t;
    }
    if (first == NULL)
        return RP_OK;
    char *source = strdup(first->name);
    f.source = source;
    rp_status status = source != NULL ? RP_OK : model_no_memory();
    if (status == RP_OK && io_checkpoint_rename(file, rename_frequencies, &f, path, err) != IO_OK)
        status = model_fail(RP_E_ARG, "%s", err);
    free(source);
    return status;
}

/* Give the tensors the names of the architecture: without the prefixes of wrappers. */
static rp_status rename_tensors(rp_encoder *m, io_checkpoint *file, const char *path)
{
    static const char *const prefixes[] = {"_orig_mod.", "module."};
    const encoder_architecture *row = m->config.row;
    char word[128], err[IO_ERR_MAX] = "";
    snprintf(word, sizeof word, "%s.weight", row->names.word);
    const model_naming names = {prefixes, 2, word, NULL, row->type};
    rp_status status = model_strip_prefixes(file, &names, &m->notes, path);
    if (status == RP_OK && io_checkpoint_rename(file, rename_norm, NULL, path, err) != IO_OK)
        status = model_fail(RP_E_ARG, "%s", err);
    if (status == RP_OK)
        status = move_frequencies(file, row, path);
    snprintf(word, sizeof word, "%s%s.weight", row->prefix, row->names.word);
    if (status == RP_OK && io_checkpoint_find(file, word) == NULL)
        snprintf(word, sizeof word, "%s.weight", row->names.word);
    return status == RP_OK ? model_check_names(file, &names, path) : status;
}

static bool has_type(int type)
{
    return type >= 0 && type != LINEAR_INT4;
}

/* Point to the weights of a packed file. */
static rp_status map_weights(rp_encoder *m, const char *path)
{
    rp_status status = encoder_model_failed(model_packed_type(m->file, path, &m->weights.type));
    if (status == RP_OK && !has_type(m->weights.type))
        status =
            encoder_fail(RP_E_ARG, "%s: its weights are %s, a type that encoders do not have (pack the folder again)",
                         path, linear_type_name(m->weights.type));
    if (status == RP_OK)
        status = encoder_make_layers(m, m->file, path);
    if (status == RP_OK)
        status = encoder_model_failed(model_map(&m->weights.store, m->file, path, encoder_walk, m));
    return encoder_finish(m, status);
}

static rp_status read_weights(rp_encoder *m, const char *folder, int type)
{
    char err[IO_ERR_MAX] = "";
    io_checkpoint *file = NULL;
    rp_status status = encoder_model_failed(model_open_weights(&file, &m->notes, folder));
    if (status == RP_OK)
        status = encoder_model_failed(model_note_checkpoint(&m->files, file, folder));
    if (status == RP_OK)
        status = encoder_model_failed(rename_tensors(m, file, folder));
    if (status == RP_OK)
        status = pack(m, file, folder, type);
    if (status == RP_OK && io_checkpoint_unchanged(file, err) != IO_OK)
        status = encoder_fail(RP_E_ARG, "%s", err);
    io_checkpoint_close(file);
    return status;
}

static rp_status count_part(void *context, const model_part *p)
{
    *(int64_t *)context += model_part_numbers(p);
    return RP_OK;
}

/* Return to how many tokens a text is cut: as modules.json says, and at most what the model takes; 0: not cut. */
static int64_t text_tokens(const rp_encoder *m)
{
    const int64_t most = encoder_max_tokens(&m->config), asked = model_modules_tokens(m->modules);
    return most > 0 && (asked == 0 || asked > most) ? most : asked;
}

/* Return the bytes of DeBERTa's vectors. */
static int64_t vector_bytes(const rp_encoder *m)
{
    const encoder_config *c = &m->config;
    return c->scheme == ENCODER_DEBERTA ? c->layers * (c->c2p + c->p2c) * 2 * c->span * c->width * 4 : 0;
}

static void fill_info(rp_encoder *m)
{
    const encoder_config *c = &m->config;
    int64_t parameters = 0;
    (void)encoder_walk(m, count_part, &parameters);
    m->info = (rp_encoder_info){.kind = c->row->type,
                                .type = linear_type_name(m->weights.type),
                                .vocab = c->vocab,
                                .width = c->width,
                                .heads = c->heads,
                                .inner = c->inner,
                                .layers = c->layers,
                                .max_tokens = encoder_max_tokens(c),
                                .parameters = parameters,
                                .bytes = m->weights.store.bytes + vector_bytes(m) + m->weights.convolution.bytes,
                                .not_finite = m->weights.store.not_finite,
                                .vector_width = model_modules_width(m->modules),
                                .vector_tokens = text_tokens(m),
                                .labels = c->labels,
                                .has_tokenizer = m->tokenizer != NULL,
                                .token_types = (int32_t)c->token_types,
                                .pad = c->pad,
                                .packed = m->file != NULL,
                                .plain_scores = c->other_activation ? -1 : c->plain_score,
                                .why_no_scores = c->head_fault != NULL ? c->head_fault : c->score_fault};
}

/* Compute by what the frequencies of RoPE are divided to give those of the file. */
static rp_status make_stretch(rp_encoder *m)
{
    const encoder_config *c = &m->config;
    const float *given = m->weights.frequencies;
    const int64_t pairs = c->head_width / 2;
    if (given == NULL)
        return RP_OK;
    m->weights.stretch = malloc((size_t)pairs * sizeof *m->weights.stretch);
    if (m->weights.stretch == NULL)
        return encoder_no_memory();
    for (int64_t k = 0; k < pairs; k++) {
        if (!(given[k] > 0 && given[k] <= FLT_MAX))
            return encoder_fail(RP_E_RANGE, "%s: number %lld is %g; it must be finite and above 0 (use other weights)",
                                c->row->names.frequencies, (long long)k, (double)given[k]);
        m->weights.stretch[k] = pow(c->theta[0], -(double)k / (double)pairs) / (double)given[k];
    }
    return RP_OK;
}

static rp_status find_type(const char *name, int *type)
{
    *type = linear_find_type(name);
    if (name == NULL || has_type(*type))
        return RP_OK;
    return encoder_fail(RP_E_ARG,
                        "the type of weights is \"%s\", which is not supported (use f32, f16, bf16, q8 or int8)", name);
}

/* Open the Transformer in `inner`, and the modules of `folder`. */
static rp_status open_transformer(rp_encoder *m, const char *folder, const char *inner, int type)
{
    rp_status status = read_config(m, inner);
    if (status == RP_OK)
        status = m->file != NULL ? map_weights(m, folder) : read_weights(m, inner, type);
    if (status == RP_OK)
        status = encoder_make_vectors(m);
    if (status == RP_OK)
        status = make_stretch(m);
    if (status == RP_OK)
        status = encoder_make_convolution(m);
    if (status == RP_OK)
        status = encoder_find_tokenizer(m, inner);
    if (status != RP_OK)
        return status;
    const model_reading reading = {&m->files, &m->notes,      m->config.width, m->config.named_positions,
                                   true,      m->config.cross};
    return encoder_model_failed(m->has_modules ? model_modules_read(m->modules, &reading, folder, inner)
                                               : model_modules_default(&m->modules, "mean", &reading, inner));
}

/* Open a file that rp_encoder_pack wrote. Its JSON files are read from its metadata. */
static rp_status open_packed(rp_encoder *m, const char *path, int type)
{
    char err[IO_ERR_MAX] = "";
    if (io_checkpoint_open(&m->file, path, err) != IO_OK)
        return encoder_fail(RP_E_ARG, "%s", err);
    const char *format = io_checkpoint_meta(m->file, "format");
    rp_status status = encoder_model_failed(model_check_kind(m->file, path, "relpos-encoder"));
    if (status == RP_OK && (format == NULL || strcmp(format, ENCODER_PACKED) != 0))
        return encoder_fail(RP_E_ARG,
                            "%s: it is not a file of `relpos pack` of this version (give the folder that contains "
                            "config.json)",
                            path);
    if (status != RP_OK)
        return status;
    m->files.packed = m->file;
    status = model_check_packed(m->file, path, type, true);
    if (status == RP_OK)
        status = model_note_file(&m->files, path);
    if (status == RP_OK)
        status = model_copy_origin(&m->origin, m->file);
    return encoder_model_failed(status);
}

/* Open a packed file, or a folder of save_pretrained or of sentence-transformers, which may have the former in a
 * subfolder. */
static rp_status open_model(rp_encoder *m, const char *path, int type)
{
    char *inner = NULL, err[IO_ERR_MAX];
    bool folder;
    if (io_is_folder(path, &folder, err) != IO_OK)
        return encoder_fail(RP_E_ARG, "%s", err);
    m->files.root = strdup(path);
    rp_status status = m->files.root == NULL ? encoder_no_memory()
                       : folder              ? encoder_model_failed(model_note_origin(&m->origin, path))
                                             : open_packed(m, path, type);
    if (status == RP_OK)
        status = encoder_read_cross(m, path);
    if (status == RP_OK && !m->config.cross) /* the only module of a CrossEncoder is the Transformer */
        status = encoder_model_failed(model_modules_find(&m->modules, &m->files, path, &inner));
    if (status == RP_OK && folder)
        status = encoder_model_failed(model_origin_inner(&m->origin, inner));
    m->has_modules = m->modules != NULL;
    if (status == RP_OK)
        status = open_transformer(m, path, inner != NULL ? inner : path, type);
    free(inner);
    return status;
}

rp_status rp_encoder_open(rp_encoder **model, const char *path, const rp_encoder_opening *opening)
{
    const rp_encoder_opening o = opening != NULL ? *opening : rp_encoder_opening_init();
    int type;
    if (model == NULL || path == NULL)
        return encoder_fail(RP_E_ARG, "model or path is NULL; pass both");
    *model = NULL;
    if (o.size != sizeof o)
        return encoder_fail(RP_E_ARG, "opening.size is %zu; it must be %zu (start from rp_encoder_opening_init)",
                            o.size, sizeof o);
    rp_status status = find_type(o.type, &type);
    if (status != RP_OK)
        return status;
    rp_encoder *m = calloc(1, sizeof *m);
    if (m == NULL)
        return encoder_no_memory();
    m->pool = o.pool;
    status = open_model(m, path, type);
    if (status != RP_OK) {
        rp_encoder_close(m);
        return status;
    }
    fill_info(m);
    *model = m;
    return RP_OK;
}

void rp_encoder_close(rp_encoder *m)
{
    if (m == NULL)
        return;
    encoder_weights_free(m);
    encoder_config_free(&m->config);
    model_files_free(&m->files);
    model_notes_free(&m->notes);
    model_modules_free(m->modules);
    model_origin_free(&m->origin);
    io_checkpoint_close(m->file);
    free(m->tokenizer_text);
    tok_close(m->tokenizer);
    free(m->why_no_tokenizer);
    free(m);
}

int rp_encoder_reads(const rp_encoder *m, const char *path)
{
    return m != NULL && path != NULL && model_reads(&m->files, path);
}

const rp_encoder_info *rp_encoder_about(const rp_encoder *m)
{
    return m != NULL ? &m->info : NULL;
}

const char *rp_encoder_note(const rp_encoder *m, int64_t n)
{
    return m != NULL ? model_note(&m->notes, n) : NULL;
}

const char *rp_encoder_label(const rp_encoder *m, int64_t n)
{
    return m != NULL && n >= 0 && n < m->config.labels ? m->config.label[n] : NULL;
}
