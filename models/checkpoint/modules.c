/* modules.c -- see modules.h. Types and keys differ by version: versions before 5 of sentence-transformers write
 * sentence_transformers.models.Pooling with a key for each kind of pooling, later ones ….pooling.Pooling with
 * "pooling_mode".
 * Source: sentence-transformers 6.2, base/modules and sentence_transformer/modules/pooling.py.
 * SPDX-License-Identifier: Apache-2.0 */
#include "checkpoint/modules.h"
#include "checkpoint/error.h"
#include "checkpoint/keys.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_MODULES = 16 };
#define REMOVE "remove modules.json to use the Transformer alone"

typedef float pool_column(const float *x, int64_t d, int64_t first, int64_t n);

/* A kind of pooling: the value of "pooling_mode", and the key that older versions set to true. In their order. */
typedef struct pooling {
    const char *mode, *key;
    pool_column *column; /* pools the rows first … n - 1 of one column, whose elements are d apart */
} pooling;

/* A module after Pooling. */
typedef struct module {
    int64_t in, out;            /* in = 0: Normalize */
    const float *weight, *bias; /* [out, in], [out]; bias: NULL if there is none */
    bool has_bias;
    bool tanh;        /* the activation is Tanh; otherwise none */
    float *memory[2]; /* of weight and bias; NULL: they are mapped from a packed file */
} module;

struct model_modules {
    json_t *list; /* modules.json */
    const pooling *pool[MAX_MODULES];
    int n_pools;
    bool skips_prompt; /* pooling omits the tokens of the prompt */
    module module[MAX_MODULES];
    int n;
    int64_t not_finite; /* NaN and infinite weights of the modules */
    int64_t width;      /* of the result of the modules */
    int64_t kept;       /* width of the result: truncate_dim, if it is less than `width` */
    int64_t tokens;     /* longest text, in tokens; 0: not limited */
    json_t *about;      /* config_sentence_transformers.json; NULL: absent */
    const char *prompt; /* text of the default prompt */
};

/* ------------------------------------------------------------------------------------------------ pooling */

static float pool_first(const float *x, int64_t d, int64_t first, int64_t n)
{
    return first < n ? x[first * d] : 0;
}

static float pool_max(const float *x, int64_t d, int64_t first, int64_t n)
{
    float max = first < n ? x[first * d] : 0;
    for (int64_t i = first + 1; i < n; i++)
        max = x[i * d] > max ? x[i * d] : max;
    return max;
}

static double sum_of(const float *x, int64_t d, int64_t first, int64_t n)
{
    double sum = 0;
    for (int64_t i = first; i < n; i++)
        sum += (double)x[i * d];
    return sum;
}

static float pool_mean(const float *x, int64_t d, int64_t first, int64_t n)
{
    return first < n ? (float)(sum_of(x, d, first, n) / (double)(n - first)) : 0;
}

static float pool_mean_root(const float *x, int64_t d, int64_t first, int64_t n)
{
    return first < n ? (float)(sum_of(x, d, first, n) / sqrt((double)(n - first))) : 0;
}

/* The weight of a token is its position, which counts from 1 and includes the prompt. */
static float pool_weighted(const float *x, int64_t d, int64_t first, int64_t n)
{
    double sum = 0, weights = 0;
    for (int64_t i = first; i < n; i++) {
        sum += (double)(i + 1) * (double)x[i * d];
        weights += (double)(i + 1);
    }
    return first < n ? (float)(sum / weights) : 0;
}

static float pool_last(const float *x, int64_t d, int64_t first, int64_t n)
{
    return first < n ? x[(n - 1) * d] : 0;
}

static const pooling poolings[] = {
    {"cls", "pooling_mode_cls_token", pool_first},
    {"max", "pooling_mode_max_tokens", pool_max},
    {"mean", "pooling_mode_mean_tokens", pool_mean},
    {"mean_sqrt_len_tokens", "pooling_mode_mean_sqrt_len_tokens", pool_mean_root},
    {"weightedmean", "pooling_mode_weightedmean_tokens", pool_weighted},
    {"lasttoken", "pooling_mode_lasttoken", pool_last},
};
enum { POOLINGS = sizeof poolings / sizeof *poolings, MEAN = 2 };

/* ------------------------------------------------------------------------------------------------ reading JSON */

/* Read a JSON file. *root is NULL if it does not exist. Integers become reals: model_max_length may be 10^30. */
static rp_status read_json(model_files *files, const char *folder, const char *name, json_t **root)
{
    char *text = NULL, *path = model_join(folder, name);
    size_t size;
    *root = NULL;
    rp_status status = path != NULL ? model_read_text(files, path, &text, &size) : model_no_memory();
    if (status == RP_OK && text != NULL)
        status = model_parse_json(root, path, text, size, JSON_DECODE_INT_AS_REAL);
    free(text);
    free(path);
    return status;
}

/* Return the integer of a key, or -1 if it is absent or not from 1 to MODEL_MAX_SIZE. */
static int64_t size_of(const json_t *config, const char *key)
{
    const double x = json_number_value(json_object_get(config, key));
    return x >= 1 && x <= MODEL_MAX_SIZE && x == floor(x) ? (int64_t)x : -1;
}

/* Return true if the text of a key is `expected`, or if the key is absent or null. */
static bool is_text(const json_t *config, const char *key, const char *expected)
{
    const json_t *v = json_object_get(config, key);
    return v == NULL || json_is_null(v) || (json_is_string(v) && strcmp(json_string_value(v), expected) == 0);
}

/* Return true if a key is present and not null. */
static bool has_key(const json_t *config, const char *key)
{
    const json_t *v = json_object_get(config, key);
    return v != NULL && !json_is_null(v);
}

static bool is_true(const json_t *config, const char *key)
{
    return has_key(config, key) && !json_is_false(json_object_get(config, key));
}

/* The files of modules.def. */
typedef enum key_file { MODULES, POOLING, DENSE, NORMALIZE, TRANSFORMER, SENTENCE } key_file;
#define KEY_FILE(file) file
static const model_key_row key_rows[] = {
#include "checkpoint/modules.def"
};

/* Check the keys of a file of a folder. */
static rp_status check_keys(const model_reading *r, key_file file, const char *folder, const char *name,
                            const json_t *root)
{
    const model_keys keys = {.rows = key_rows,
                             .n = sizeof key_rows / sizeof *key_rows,
                             .file = (int)file,
                             .also = (int)file,
                             .advice = REMOVE};
    char *path = model_join(folder, name);
    const rp_status status = path != NULL ? model_check_keys(r->notes, &keys, path, root, NULL) : model_no_memory();
    free(path);
    return status;
}

static rp_status not_supported(const char *folder, const char *file, const char *what)
{
    return model_fail(RP_E_UNSUPPORTED, "%s/%s: %s is not supported (" REMOVE ")", folder, file, what);
}

/* ------------------------------------------------------------------------------------------------ modules */

/* Return true if there is a kind of pooling with this name, and space for it. */
static bool add_kind(model_modules *s, const char *mode)
{
    for (int k = 0; k < POOLINGS; k++)
        if (strcmp(mode, poolings[k].mode) == 0 && s->n_pools < MAX_MODULES) {
            s->pool[s->n_pools++] = &poolings[k];
            return true;
        }
    return false;
}

static rp_status add_pooling(model_modules *s, const char *folder, const char *mode)
{
    char what[160], safe[96];
    if (mode != NULL && add_kind(s, mode))
        return RP_OK;
    snprintf(what, sizeof what, "the pooling_mode \"%s\"", io_safe(safe, sizeof safe, mode != NULL ? mode : "?"));
    return not_supported(folder, "config.json", what);
}

static rp_status read_pooling(model_modules *s, const model_reading *r, const json_t *config, const char *folder)
{
    const json_t *mode = json_object_get(config, "pooling_mode"), *one;
    rp_status status = check_keys(r, POOLING, folder, "config.json", config);
    size_t k;
    if (status != RP_OK)
        return status;
    if (json_is_array(mode))
        for (k = 0; k < json_array_size(mode) && status == RP_OK; k++) {
            one = json_array_get(mode, k);
            status = add_pooling(s, folder, json_string_value(one));
        }
    else if (mode != NULL)
        status = add_pooling(s, folder, json_string_value(mode));
    else
        for (k = 0; k < POOLINGS; k++)
            if (is_true(config, poolings[k].key))
                s->pool[s->n_pools++] = &poolings[k];
    if (s->n_pools == 0)
        s->pool[s->n_pools++] = &poolings[MEAN];
    s->skips_prompt = json_is_false(json_object_get(config, "include_prompt"));
    s->width = r->width * s->n_pools;
    return status;
}

/* Copy the numbers of a tensor with the shape [rows, columns], or [rows] if columns = 0. */
static rp_status copy_tensor(model_modules *s, const io_checkpoint *file, const char *name, int64_t rows,
                             int64_t columns, const char *folder, float **numbers)
{
    const io_tensor *t = io_checkpoint_find(file, name);
    const int64_t n = rows * (columns > 0 ? columns : 1),
                  bytes = model_part_bytes(&(model_part){.rows = rows, .columns = columns, .n_sources = 1});
    if (t == NULL || t->ndim != (columns > 0 ? 2 : 1) || t->shape[0] != rows || (columns > 0 && t->shape[1] != columns))
        return model_fail(RP_E_ARG, "%s: the tensor %s %s (check that config.json and the weights belong together)",
                          folder, name, t == NULL ? "is missing" : "does not have the sizes of config.json");
    *numbers = calloc(1, (size_t)bytes); /* a packed file has all of these bytes */
    if (*numbers == NULL)
        return model_no_memory();
    s->not_finite += io_tensor_not_finite(t);
    return io_tensor_read(t, 0, n, *numbers)
               ? RP_OK
               : model_fail(RP_E_ARG, "%s: the tensor %s: %s", folder, name,
                            t->unsupported != NULL ? t->unsupported
                                                   : "it has no floating-point numbers (give f32 or f16)");
}

static rp_status read_weights(model_modules *s, const model_reading *r, module *d, const char *folder)
{
    char err[IO_ERR_MAX] = "";
    io_checkpoint *file;
    if (io_checkpoint_open(&file, folder, err) != IO_OK)
        return model_fail(RP_E_ARG, "%s", err);
    rp_status status = model_note_checkpoint(r->files, file, folder);
    if (status == RP_OK)
        status = copy_tensor(s, file, "linear.weight", d->out, d->in, folder, &d->memory[0]);
    if (status == RP_OK && d->has_bias)
        status = copy_tensor(s, file, "linear.bias", d->out, 0, folder, &d->memory[1]);
    if (status == RP_OK && io_checkpoint_unchanged(file, err) != IO_OK)
        status = model_fail(RP_E_ARG, "%s", err);
    io_checkpoint_close(file);
    d->weight = d->memory[0];
    d->bias = d->memory[1];
    return status;
}

/* Visit the weights of a module. */
static rp_status walk_module(const model_modules *s, module *d, model_visitor *visit, void *context)
{
    char name[32];
    model_part p = {.name = name, .n_sources = 1, .rows = d->out, .columns = d->in, .array = &d->weight};
    snprintf(name, sizeof name, "module.%d.weight", (int)(d - s->module));
    const rp_status status = visit(context, &p);
    if (status != RP_OK || !d->has_bias)
        return status;
    snprintf(name, sizeof name, "module.%d.bias", (int)(d - s->module));
    p.columns = 0;
    p.array = &d->bias;
    return visit(context, &p);
}

rp_status model_modules_walk(void *modules, model_visitor *visit, void *context)
{
    model_modules *s = modules;
    rp_status status = RP_OK;
    for (int k = 0; k < s->n && status == RP_OK; k++)
        if (s->module[k].in > 0)
            status = walk_module(s, &s->module[k], visit, context);
    return status;
}

static rp_status walk_last(void *modules, model_visitor *visit, void *context)
{
    model_modules *s = modules;
    return walk_module(s, &s->module[s->n - 1], visit, context);
}

/* Point to the weights of the last module in a packed file. */
static rp_status map_weights(model_modules *s, const model_reading *r)
{
    const module *d = &s->module[s->n - 1];
    model_store store = {0};
    const rp_status status = model_map(&store, r->files->packed, r->files->root, walk_last, s);
    for (int64_t k = 0; k < d->in * d->out && status == RP_OK; k++)
        s->not_finite += !isfinite(d->weight[k]);
    for (int64_t k = 0; k < d->out && d->bias != NULL && status == RP_OK; k++)
        s->not_finite += !isfinite(d->bias[k]);
    return status;
}

static rp_status read_dense(model_modules *s, const model_reading *r, const json_t *config, const char *folder)
{
    module *d = &s->module[s->n++];
    const char *activation = json_string_value(json_object_get(config, "activation_function"));
    const char *dot = activation != NULL ? strrchr(activation, '.') : NULL;
    const rp_status status = check_keys(r, DENSE, folder, "config.json", config);
    const json_t *bias = json_object_get(config, "bias");
    const bool torch = dot != NULL && strncmp(activation, "torch.nn.", 9) == 0;
    d->in = s->width;
    d->has_bias = bias == NULL || json_is_true(bias);
    d->out = size_of(config, "out_features");
    d->tanh = activation == NULL || (torch && strcmp(dot, ".Tanh") == 0);
    if (status != RP_OK)
        return status;
    if (!d->tanh && !(torch && strcmp(dot, ".Identity") == 0))
        return not_supported(folder, "config.json", "its activation_function, which is neither Identity nor Tanh,");
    if (size_of(config, "in_features") != d->in || d->out < 0)
        return model_fail(RP_E_ARG,
                          "%s/config.json: in_features must be %lld, the width of its input, and out_features 1 to %d "
                          "(check that the modules belong to one model)",
                          folder, (long long)d->in, MODEL_MAX_SIZE);
    s->width = d->out;
    return !r->weights ? RP_OK : r->files->packed != NULL ? map_weights(s, r) : read_weights(s, r, d, folder);
}

static rp_status read_normalize(model_modules *s, const model_reading *r, const json_t *config, const char *folder)
{
    s->n++;
    return check_keys(r, NORMALIZE, folder, "config.json", config);
}

/* Return the last word of the type of a module of sentence-transformers; otherwise "". */
static const char *type_of(const json_t *entry)
{
    const char *type = json_string_value(json_object_get(entry, "type"));
    const char *dot = type != NULL ? strrchr(type, '.') : NULL;
    return dot != NULL && strncmp(type, "sentence_transformers.", 22) == 0 ? dot + 1 : "";
}

/* Return the folder of a module, which the caller frees. It must be the folder itself or directly within it. */
static rp_status path_of(const json_t *entry, const char *folder, char **path)
{
    const char *name = json_string_value(json_object_get(entry, "path"));
    char safe[64];
    *path = NULL;
    if (name == NULL || name[0] == '.' || strchr(name, '/') != NULL)
        return model_fail(RP_E_ARG,
                          "%s/modules.json: path \"%s\" is not the name of a folder beside this file (correct it)",
                          folder, io_safe(safe, sizeof safe, name != NULL ? name : ""));
    *path = name[0] != 0 ? model_join(folder, name) : strdup(folder);
    return *path != NULL ? RP_OK : model_no_memory();
}

/* Read module k, k > 0. */
static rp_status read_module(model_modules *s, const model_reading *r, const char *folder, size_t k)
{
    const json_t *entry = json_array_get(s->list, k);
    const char *type = type_of(entry), *full = json_string_value(json_object_get(entry, "type"));
    char *path, what[160], safe[96];
    json_t *config = NULL;
    rp_status status = path_of(entry, folder, &path);
    if (status == RP_OK)
        status = check_keys(r, MODULES, folder, "modules.json", entry);
    if (status == RP_OK)
        status = read_json(r->files, path, "config.json", &config);
    if (status == RP_OK && config == NULL && strcmp(type, "Normalize") != 0)
        status = model_fail(RP_E_ARG, "%s/config.json: it does not exist (add the missing file)", path);
    if (status == RP_OK && k == 1 && strcmp(type, "Pooling") == 0)
        status = read_pooling(s, r, config, path);
    else if (status == RP_OK && k > 1 && strcmp(type, "Dense") == 0)
        status = read_dense(s, r, config, path);
    else if (status == RP_OK && k > 1 && strcmp(type, "Normalize") == 0)
        status = read_normalize(s, r, config, path);
    else if (status == RP_OK) {
        snprintf(what, sizeof what, "the type %s of module %zu", io_safe(safe, sizeof safe, full != NULL ? full : "?"),
                 k + 1);
        status = not_supported(folder, "modules.json", what);
    }
    json_decref(config);
    free(path);
    return status;
}

static rp_status make(model_modules **made, json_t *list)
{
    model_modules *s = *made = calloc(1, sizeof *s);
    if (s == NULL) {
        json_decref(list);
        return model_no_memory();
    }
    s->list = list;
    s->prompt = "";
    return RP_OK;
}

rp_status model_modules_find(model_modules **made, model_files *files, const char *folder, char **inner)
{
    json_t *list;
    *made = NULL;
    *inner = NULL;
    rp_status status = read_json(files, folder, "modules.json", &list);
    if (status != RP_OK || list == NULL)
        return status;
    status = make(made, list);
    if (status != RP_OK)
        return status;
    const size_t n = json_array_size(list);
    if (n < 2 || n > MAX_MODULES || strcmp(type_of(json_array_get(list, 0)), "Transformer") != 0)
        return model_fail(RP_E_UNSUPPORTED,
                          "%s/modules.json: it must list 2 to %d modules, the first a Transformer "
                          "(" REMOVE ")",
                          folder, MAX_MODULES);
    return path_of(json_array_get(list, 0), folder, inner);
}

/* ------------------------------------------------------------------------------------------------ texts */

/* Read max_seq_length; *n is -1 if there is none. Its file may have the name of another kind of model. */
static rp_status read_max_length(const model_reading *r, const char *inner, int64_t *n)
{
    static const char *const names[] = {"sentence_bert_config.json",       "sentence_roberta_config.json",
                                        "sentence_distilbert_config.json", "sentence_camembert_config.json",
                                        "sentence_albert_config.json",     "sentence_xlm-roberta_config.json",
                                        "sentence_xlnet_config.json"};
    json_t *config = NULL;
    rp_status status = RP_OK;
    size_t k = 0;
    for (; k < sizeof names / sizeof *names && status == RP_OK && json_object_size(config) == 0; k++) {
        json_decref(config);
        status = read_json(r->files, inner, names[k], &config);
    }
    const char *name = names[k - 1];
    if (status == RP_OK && !r->scores)
        status = check_keys(r, TRANSFORMER, inner, name, config);
    *n = size_of(config, "max_seq_length");
    if (status == RP_OK && *n < 0 && has_key(config, "max_seq_length"))
        status = not_supported(inner, name, "a max_seq_length that is not an integer above 0");
    json_decref(config);
    return status;
}

/* Find the longest source, as sentence-transformers does: max_seq_length, which it reads if there is a modules.json, or
 * model_max_length of the tokenizer and max_position_embeddings of the model. */
static rp_status read_limit(model_modules *s, const model_reading *r, const char *inner, bool has_modules)
{
    json_t *tokenizer = NULL;
    int64_t n = -1;
    rp_status status = has_modules ? read_max_length(r, inner, &n) : RP_OK;
    if (status == RP_OK)
        status = read_json(r->files, inner, "tokenizer_config.json", &tokenizer);
    if (status == RP_OK && !is_text(tokenizer, "truncation_side", "right"))
        status = model_fail(RP_E_UNSUPPORTED,
                            "%s/tokenizer_config.json: \"truncation_side\" is not \"right\", the only one that is "
                            "supported (change it to \"right\" to keep the beginning of long texts)",
                            inner);
    if (n < 0) {
        n = size_of(tokenizer, has_key(tokenizer, "model_max_length") ? "model_max_length" : "max_len");
        if (r->max_positions > 0 && (n < 0 || n > r->max_positions))
            n = r->max_positions;
    }
    s->tokens = n > 0 ? n : 0;
    json_decref(tokenizer);
    return status;
}

rp_status model_modules_default(model_modules **made, const char *mode, const model_reading *r, const char *folder)
{
    json_t *list = NULL; /* a CrossEncoder may have a modules.json, whose only module is the Transformer */
    rp_status status = make(made, NULL);
    if (status != RP_OK)
        return status;
    (*made)->width = (*made)->kept = r->width;
    if (!add_kind(*made, strcmp(mode, "last") == 0 ? "lasttoken" : mode))
        return model_fail(RP_E_ARG, "\"%s\" is no kind of pooling (use mean, cls or last)", mode);
    status = read_json(r->files, folder, "modules.json", &list);
    if (status == RP_OK)
        status = read_limit(*made, r, folder, list != NULL);
    json_decref(list);
    return status;
}

uint64_t model_modules_checksum(const model_modules *s, uint64_t sum)
{
    for (int k = 0; k < s->n; k++) {
        const module *d = &s->module[k];
        if (d->weight != NULL)
            sum = io_checksum(sum, d->weight, (size_t)(d->in * d->out) * sizeof *d->weight);
        if (d->bias != NULL)
            sum = io_checksum(sum, d->bias, (size_t)d->out * sizeof *d->bias);
    }
    return sum;
}

bool model_modules_skips_prompt(const model_modules *s)
{
    return s->skips_prompt;
}

/* Find the text of a prompt; NULL if there is none. The prompts "query" and "document" are empty unless given. */
static const char *find_prompt(const model_modules *s, const char *name)
{
    const json_t *prompt = json_object_get(json_object_get(s->about, "prompts"), name);
    if (prompt == NULL || json_is_null(prompt))
        return prompt != NULL || strcmp(name, "query") == 0 || strcmp(name, "document") == 0 ? "" : NULL;
    return json_string_value(prompt);
}

/* Find the default prompt. */
static rp_status find_default(model_modules *s, const char *folder)
{
    char safe[96];
    const char *name = json_string_value(json_object_get(s->about, "default_prompt_name"));
    if (name == NULL)
        return RP_OK;
    s->prompt = find_prompt(s, name);
    return s->prompt != NULL ? RP_OK
                             : model_fail(RP_E_ARG,
                                          "%s/config_sentence_transformers.json: default_prompt_name is \"%s\", but "
                                          "prompts has no such text (correct the name)",
                                          folder, io_safe(safe, sizeof safe, name));
}

static rp_status read_about(model_modules *s, const model_reading *r, const char *folder)
{
    static const char name[] = "config_sentence_transformers.json";
    rp_status status = read_json(r->files, folder, name, &s->about);
    if (status == RP_OK)
        status = check_keys(r, SENTENCE, folder, name, s->about);
    const int64_t kept = size_of(s->about, "truncate_dim");
    s->kept = kept > 0 && kept < s->width ? kept : s->width;
    if (status == RP_OK && kept < 0 && has_key(s->about, "truncate_dim"))
        status =
            model_fail(RP_E_ARG, "%s/%s: truncate_dim is not a whole number from 1 to %d (correct it, or remove it)",
                       folder, name, MODEL_MAX_SIZE);
    return status == RP_OK ? find_default(s, folder) : status;
}

rp_status model_modules_read(model_modules *s, const model_reading *r, const char *folder, const char *inner)
{
    rp_status status = check_keys(r, MODULES, folder, "modules.json", json_array_get(s->list, 0));
    for (size_t k = 1; k < json_array_size(s->list) && status == RP_OK; k++)
        status = read_module(s, r, folder, k);
    if (status == RP_OK)
        status = read_limit(s, r, inner, true);
    return status == RP_OK ? read_about(s, r, folder) : status;
}

rp_status model_modules_prompt(const model_modules *s, const char *name, const char **prompt)
{
    char safe[96];
    *prompt = name != NULL ? find_prompt(s, name) : s->prompt;
    return *prompt != NULL
               ? RP_OK
               : model_fail(RP_E_ARG, "no prompt has the name \"%s\" (use one of config_sentence_transformers.json)",
                            io_safe(safe, sizeof safe, name));
}

int64_t model_modules_width(const model_modules *s)
{
    return s != NULL ? s->kept : 0;
}

int64_t model_modules_tokens(const model_modules *s)
{
    return s != NULL ? s->tokens : 0;
}

void model_modules_free(model_modules *s)
{
    if (s == NULL)
        return;
    for (int k = 0; k < s->n; k++) {
        free(s->module[k].memory[0]);
        free(s->module[k].memory[1]);
    }
    json_decref(s->list);
    json_decref(s->about);
    free(s);
}

/* ------------------------------------------------------------------------------------------------ the vector */

static void normalize(float *x, int64_t n)
{
    double sum = 0;
    for (int64_t k = 0; k < n; k++)
        sum += (double)x[k] * (double)x[k];
    for (int64_t k = 0; k < n && sum > 0; k++)
        x[k] = (float)((double)x[k] / sqrt(sum));
}

/* Compute y = W x + b and the activation. */
static void apply_dense(const module *d, const float *x, float *y)
{
    for (int64_t o = 0; o < d->out; o++) {
        double sum = d->bias != NULL ? (double)d->bias[o] : 0;
        for (int64_t k = 0; k < d->in; k++)
            sum += (double)d->weight[o * d->in + k] * (double)x[k];
        y[o] = (float)(d->tanh ? tanh(sum) : sum);
    }
}

/* Apply the modules after Pooling to x. x and y have the width of the widest. Return the array with the result. */
static float *apply_modules(const model_modules *s, int64_t width, float *x, float *y)
{
    for (int k = 0; k < s->n; k++) {
        if (s->module[k].in == 0) {
            normalize(x, width);
            continue;
        }
        apply_dense(&s->module[k], x, y);
        width = s->module[k].out;
        float *other = x;
        x = y;
        y = other;
    }
    return x;
}

rp_status model_modules_apply(const model_modules *s, const float *hidden, int64_t d, int64_t first, int64_t n,
                              float *vector)
{
    int64_t widest = d * s->n_pools;
    for (int k = 0; k < s->n; k++)
        widest = s->module[k].out > widest ? s->module[k].out : widest;
    float *x = malloc((size_t)widest * 2 * sizeof *x);
    if (x == NULL)
        return model_no_memory();
    for (int p = 0; p < s->n_pools; p++)
        for (int64_t c = 0; c < d; c++)
            x[p * d + c] = s->pool[p]->column(hidden + c, d, first, n);
    const float *made = apply_modules(s, d * s->n_pools, x, x + widest);
    bool finite = true;
    for (int64_t k = 0; k < s->kept; k++)
        finite = finite && isfinite(made[k]);
    if (finite)
        memcpy(vector, made, (size_t)s->kept * sizeof *vector);
    free(x);
    return finite ? RP_OK
                  : model_fail(RP_E_RANGE,
                               "the vector is not finite: %lld of the weights of its modules are NaN or infinite, or "
                               "numbers are too large for f32 (download the folder again)",
                               (long long)s->not_finite);
}
