/* config.c -- reads config.json: the architecture, its sizes and its labels.
 * SPDX-License-Identifier: Apache-2.0 */
#include "checkpoint/keys.h"
#include "checkpoint/values.h"
#include "encoder/encoder.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_LABELS = 65536 };

/* The tables of keys: of all architectures, and of some. */
enum { COMMON, BERT, DEBERTA, MODERNBERT };
#define KEY_FILE(file) file
static const model_key_row key_rows[] = {
#include "encoder/keys.def"
};

static void read_sizes(model_reader *r, encoder_config *c)
{
    const encoder_architecture *a = c->row;
    c->vocab = model_size(r, "vocab_size", NULL, 0, ENCODER_MAX_SIZE);
    c->width = model_size(r, "hidden_size", NULL, 0, ENCODER_MAX_SIZE);
    c->heads = model_size(r, "num_attention_heads", NULL, 0, ENCODER_MAX_SIZE);
    c->inner = model_size(r, "intermediate_size", NULL, 0, ENCODER_MAX_SIZE);
    c->layers = model_size(r, "num_hidden_layers", NULL, 0, ENCODER_MAX_LAYERS);
    c->eps = model_number(r, a->eps_key, a->eps, 0, 1);
    if (a->names.position != NULL)
        c->positions = model_size(r, "max_position_embeddings", NULL, a->max_positions, ENCODER_MAX_SIZE);
    if (a->names.token_type != NULL)
        c->token_types = model_integer(r, "type_vocab_size", a->token_types, 0, ENCODER_MAX_SIZE);
    if (r->status == RP_OK && c->width % c->heads != 0) {
        char why[96];
        snprintf(why, sizeof why, "is %lld, which is no divisor of hidden_size, %lld", (long long)c->heads,
                 (long long)c->width);
        model_fault(r, "num_attention_heads", why);
    }
    if (r->status == RP_OK)
        c->head_width = c->width / c->heads;
    c->scale = 1 / sqrt((double)c->head_width);
}

static void read_positions(model_reader *r, encoder_config *c)
{
    const int64_t pad = c->row->pad < c->vocab ? c->row->pad : 0;
    c->pad = (int32_t)model_integer(r, "pad_token_id", pad, 0, c->vocab - 1);
    c->first = c->row->after_pad ? c->pad + 1 : 0;
    if (r->status == RP_OK && c->positions > 0 && c->first >= c->positions)
        model_fault(r, "max_position_embeddings", "leaves no position after pad_token_id");
    if (c->row->scheme != ENCODER_T5_BUCKETS)
        return;
    /* MPNet computes 32 buckets with a maximum distance of 128, whatever config.json says */
    c->buckets = model_integer(r, "relative_attention_num_buckets", 32, 32, 32);
    c->max_distance = 128;
}

encoder_activation encoder_read_activation(model_reader *r, const char *key)
{
    static const struct {
        const char *name;
        encoder_activation activation;
    } names[] = {{"gelu", ENCODER_GELU},
                 {"gelu_python", ENCODER_GELU},
                 {"gelu_new", ENCODER_GELU_TANH},
                 {"gelu_pytorch_tanh", ENCODER_GELU_TANH},
                 {"relu", ENCODER_RELU},
                 {"tanh", ENCODER_TANH}};
    const char *name = model_string(r, key, "gelu");
    for (size_t n = 0; n < sizeof names / sizeof *names; n++)
        if (strcmp(name, names[n].name) == 0)
            return names[n].activation;
    if (r->status == RP_OK)
        r->status = model_fail(RP_E_UNSUPPORTED,
                               "%s: \"%s\" is \"%s\", which is not supported (use a model with gelu, gelu_new, relu "
                               "or tanh)",
                               r->path, key, name);
    return ENCODER_GELU;
}

/* ------------------------------------------------------------------------------------------------ DeBERTa */

/* Set c2p or p2c as a word of pos_att_type says. */
static void read_position_type(model_reader *r, encoder_config *c, const char *word, size_t size)
{
    if (size == 3 && strncmp(word, "c2p", 3) == 0)
        c->c2p = true;
    else if (size == 3 && strncmp(word, "p2c", 3) == 0)
        c->p2c = true;
    else if (size > 0)
        model_fault(r, "pos_att_type", "is not a list or text of c2p and p2c");
}

/* Read pos_att_type: a list, or a text with "|" between words. */
static void read_position_types(model_reader *r, encoder_config *c)
{
    const json_t *v = model_value(r, "pos_att_type");
    const char *text = json_string_value(v);
    for (size_t n = 0; n < json_array_size(v); n++) {
        const char *word = json_string_value(json_array_get(v, n));
        read_position_type(r, c, word != NULL ? word : "?", word != NULL ? strlen(word) : 1);
    }
    while (text != NULL) {
        const size_t size = strcspn(text, "|");
        read_position_type(r, c, text, size);
        text = text[size] == '|' ? text + size + 1 : NULL;
    }
}

/* Refuse a key whose value is not `only`; it may be absent. */
static void need_size(model_reader *r, const char *key, int64_t only, const char *what)
{
    char why[128];
    const int64_t x = model_integer(r, key, only, INT32_MIN, INT32_MAX);
    snprintf(why, sizeof why, "is %lld, which is not supported; it must be %lld, %s", (long long)x, (long long)only,
             what);
    if (x != only)
        model_fault(r, key, why);
}

void encoder_read_deberta(model_reader *r, encoder_config *c)
{
    const int64_t most = model_size(r, "max_position_embeddings", NULL, 512, ENCODER_MAX_SIZE),
                  given = model_integer(r, "max_relative_positions", -1, -1, ENCODER_MAX_SIZE);
    const char *norms = model_string(r, "norm_rel_ebd", "none");
    const size_t norm = strcspn(norms, "|");
    if (!model_boolean(r, "relative_attention", false))
        model_fault(r, "relative_attention", "is not true (use a model with relative attention)");
    c->buckets = model_integer(r, "position_buckets", -1, -1, ENCODER_MAX_SIZE);
    c->max_distance = given < 1 ? most : given;
    c->span = c->buckets > 0 ? c->buckets : c->max_distance;
    if (c->buckets == 0)
        c->buckets = -1;
    if (!model_boolean(r, "position_biased_input", true))
        c->positions = 0;
    c->own_tables = !model_boolean(r, "share_att_key", false);
    c->table_norm = strstr(norms, "layer_norm") != NULL;
    if ((strncmp(norms, "none", norm) != 0 && strncmp(norms, "layer_norm", norm) != 0) || norms[norm] != 0)
        model_fault(r, "norm_rel_ebd", "is neither \"none\" nor \"layer_norm\"");
    read_position_types(r, c);
    need_size(r, "attention_head_size", c->head_width, "the width of a head");
    need_size(r, "embedding_size", c->width, "as hidden_size");
    need_size(r, "pooler_hidden_size", c->width, "as hidden_size");
    c->scale = 1 / sqrt((double)c->head_width * (1 + c->c2p + c->p2c));
    if (c->labels > 0 || model_value(r, "pooler_hidden_act") != NULL)
        c->head_activation = encoder_read_activation(r, "pooler_hidden_act");
}

/* ------------------------------------------------------------------------------------------------ ModernBERT */

/* Read which layers have a window: layer_types, or every global_attn_every_n_layers-th has none. */
static void read_windows(model_reader *r, encoder_config *c)
{
    const json_t *types = model_value(r, "layer_types");
    const int64_t every = model_integer(r, "global_attn_every_n_layers", 3, 1, ENCODER_MAX_LAYERS);
    if (types != NULL && (int64_t)json_array_size(types) != c->layers)
        model_fault(r, "layer_types", "does not have an entry for each layer");
    for (int64_t i = 0; i < c->layers && r->status == RP_OK; i++) {
        const char *type = json_string_value(json_array_get(types, (size_t)i));
        if (types == NULL)
            c->local[i] = i % every != 0;
        else if (type != NULL && strcmp(type, "sliding_attention") == 0)
            c->local[i] = true;
        else if (type == NULL || strcmp(type, "full_attention") != 0)
            model_fault(r, "layer_types", "has an entry that is neither full_attention nor sliding_attention");
    }
    c->window = model_integer(r, "local_attention", 128, 0, ENCODER_MAX_SIZE) / 2;
}

/* Read the base of a kind of layer: rope_parameters.KIND.rope_theta, or the older key. */
static double read_theta(model_reader *r, const char *kind, const char *key, double fallback)
{
    const json_t *one = json_object_get(model_value(r, "rope_parameters"), kind);
    model_reader inner = {one, r->path, r->kind, NULL, RP_OK};
    const char *type = one != NULL ? model_string(&inner, "rope_type", "default") : "default";
    if (strcmp(type, "default") != 0)
        model_fault(&inner, "rope_type", "is not \"default\", the only one that is supported");
    const double old = model_number(r, key, fallback, 1, 1e12);
    const double theta = one != NULL ? model_number(&inner, "rope_theta", old, 1, 1e12) : old;
    if (r->status == RP_OK)
        r->status = inner.status;
    return theta;
}

void encoder_read_modernbert(model_reader *r, encoder_config *c)
{
    const char *pooling = model_string(r, "classifier_pooling", "cls");
    c->norm_bias = model_boolean(r, "norm_bias", false);
    c->attention_bias = model_boolean(r, "attention_bias", false);
    c->feed_bias = model_boolean(r, "mlp_bias", false);
    c->head_bias = model_boolean(r, "classifier_bias", false);
    c->head_mean = strcmp(pooling, "mean") == 0;
    if (!c->head_mean && strcmp(pooling, "cls") != 0)
        model_fault(r, "classifier_pooling", "is neither \"cls\" nor \"mean\"");
    c->theta[0] = read_theta(r, "full_attention", "global_rope_theta", 160000);
    c->theta[1] = read_theta(r, "sliding_attention", "local_rope_theta", 10000);
    read_windows(r, c);
    c->head_activation = encoder_read_activation(r, "classifier_activation");
}

/* ------------------------------------------------------------------------------------------------ the head */

/* Return true if a class in `architectures` is …ForSequenceClassification. Refuse classes with other heads whose outputs
 * would be expected. */
static bool has_head(model_reader *r)
{
    const json_t *list = model_value(r, "architectures");
    for (size_t n = 0; n < json_array_size(list); n++) {
        const char *name = json_string_value(json_array_get(list, n)),
                   *end = name != NULL ? strstr(name, "ForSequenceClassification") : NULL;
        if (end != NULL)
            return true;
    }
    return false;
}

/* Read the labels: id2label is {"0": name, …}; without it there are num_labels, or 2, without names. */
static void read_labels(model_reader *r, encoder_config *c)
{
    const json_t *names = model_value(r, "id2label");
    const int64_t n = names != NULL ? (int64_t)json_object_size(names) : model_integer(r, "num_labels", 2, 1, MAX_LABELS);
    char key[24], text[32];
    if (n < 1 || n > MAX_LABELS)
        model_fault(r, "id2label", "does not have 1 to 65536 labels");
    if (r->status != RP_OK)
        return;
    c->label = calloc((size_t)n, sizeof *c->label);
    if (c->label == NULL) {
        r->status = model_no_memory();
        return;
    }
    c->labels = n;
    for (int64_t k = 0; k < n && r->status == RP_OK; k++) {
        snprintf(key, sizeof key, "%lld", (long long)k);
        snprintf(text, sizeof text, "LABEL_%lld", (long long)k);
        const json_t *name = names != NULL ? json_object_get(names, key) : NULL;
        if (names != NULL && !json_is_string(name))
            model_fault(r, "id2label", "does not name every number from 0 on with a text");
        else if ((c->label[k] = strdup(name != NULL ? json_string_value(name) : text)) == NULL)
            r->status = model_no_memory();
    }
}

void encoder_config_free(encoder_config *c)
{
    for (int64_t k = 0; k < c->labels; k++)
        free(c->label[k]);
    free(c->label);
}

/* ------------------------------------------------------------------------------------------------ the file */

static void find_row(model_reader *r, encoder_config *c)
{
    const char *names, *type = model_string(r, "model_type", "");
    c->row = encoder_find_architecture(type, &names);
    if (r->status == RP_OK && c->row == NULL)
        r->status = model_fail(RP_E_UNSUPPORTED,
                               "%s: model_type \"%s\" is not an encoder that relpos has (use a model of type %s)",
                               r->path, type, names);
}

/* Check the keys of all architectures, and those of this one. */
static rp_status check_keys(rp_encoder *m, const char *path, const json_t *root)
{
    const int n = sizeof key_rows / sizeof *key_rows,
              own = m->config.row->scheme == ENCODER_DEBERTA ? DEBERTA
                    : m->config.row->scheme == ENCODER_ROPE  ? MODERNBERT
                                                             : BERT;
    const model_keys common = {key_rows, n, COMMON, own, NULL}, rest = {key_rows, n, own, COMMON, NULL};
    const rp_status status = model_check_keys(&m->notes, &common, path, root, NULL);
    return status == RP_OK ? model_check_keys(&m->notes, &rest, path, root, NULL) : status;
}

rp_status encoder_config_read(rp_encoder *m, const char *path, const char *text, size_t size)
{
    encoder_config *c = &m->config;
    json_t *root;
    rp_status status = model_parse_object(&root, path, text, size, 0);
    if (status != RP_OK)
        return encoder_model_failed(status);
    model_reader r = {root, path, "an encoder", NULL, RP_OK};
    c->norm_bias = c->attention_bias = c->feed_bias = c->head_bias = true;
    find_row(&r, c);
    if (r.status == RP_OK)
        r.status = check_keys(m, path, root);
    if (r.status == RP_OK)
        read_sizes(&r, c);
    if (r.status == RP_OK)
        read_positions(&r, c);
    if (r.status == RP_OK)
        c->activation = encoder_read_activation(&r, c->row->activation_key);
    if (r.status == RP_OK)
        c->head_activation = c->row->head_activation;
    if (r.status == RP_OK && has_head(&r))
        read_labels(&r, c);
    if (r.status == RP_OK && c->row->read != NULL)
        c->row->read(&r, c);
    json_decref(root);
    return encoder_model_failed(r.status);
}

int64_t encoder_max_tokens(const encoder_config *c)
{
    return c->positions > 0 ? c->positions - c->first : 0;
}
