/* readers.c -- reads keys of config.json that only some architectures have.
 * SPDX-License-Identifier: Apache-2.0 */
#include "checkpoint/values.h"
#include "encoder/encoder.h"
#include "io/io.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

encoder_activation encoder_read_activation(model_reader *r, const char *key)
{
    static const struct {
        const char *name;
        encoder_activation activation;
    } names[] = {{"gelu", ENCODER_GELU},
                 {"gelu_python", ENCODER_GELU},
                 {"gelu_new", ENCODER_GELU_TANH},
                 {"gelu_pytorch_tanh", ENCODER_GELU_TANH},
                 {"gelu_python_tanh", ENCODER_GELU_TANH},
                 {"gelu_fast", ENCODER_GELU_TANH},
                 {"gelu_accurate", ENCODER_GELU_TANH},
                 {"relu", ENCODER_RELU},
                 {"tanh", ENCODER_TANH},
                 {"sigmoid", ENCODER_LOGISTIC},
                 {"silu", ENCODER_SILU},
                 {"swish", ENCODER_SILU},
                 {"quick_gelu", ENCODER_QUICK_GELU},
                 {"mish", ENCODER_MISH},
                 {"relu2", ENCODER_RELU2},
                 {"relu6", ENCODER_RELU6},
                 {"leaky_relu", ENCODER_LEAKY_RELU},
                 {"hardswish", ENCODER_HARDSWISH},
                 {"linear", ENCODER_LINEAR}};
    const char *name = model_string(r, key, "gelu");
    for (size_t n = 0; n < sizeof names / sizeof *names; n++)
        if (strcmp(name, names[n].name) == 0)
            return names[n].activation;
    if (r->status == RP_OK)
        r->status = model_fail(RP_E_UNSUPPORTED,
                               "%s: \"%s\" is \"%s\", which is not supported (use a model with gelu, gelu_new, relu, "
                               "silu or tanh)",
                               r->path, key, name);
    return ENCODER_GELU;
}

void encoder_keep_fault(model_reader *r, char **fault)
{
    if (r->status == RP_OK || r->status == RP_E_NOMEM)
        return;
    if (*fault == NULL)
        *fault = strdup(model_error());
    r->status = *fault != NULL ? RP_OK : model_no_memory();
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

/* Read the convolution after the first layer. */
static void read_convolution(model_reader *r, encoder_config *c)
{
    c->kernel = model_integer(r, "conv_kernel_size", 0, 0, MODEL_MAX_SIZE);
    c->groups = model_size(r, "conv_groups", NULL, 1, MODEL_MAX_SIZE);
    if (c->kernel == 0 || r->status != RP_OK)
        return;
    if (c->kernel % 2 == 0)
        model_fault(r, "conv_kernel_size", "is even, so there would be one token less after the convolution");
    if (c->width % c->groups != 0)
        model_fault(r, "conv_groups", "is no divisor of hidden_size");
    c->convolution_activation =
        model_value(r, "conv_act") != NULL ? encoder_read_activation(r, "conv_act") : ENCODER_TANH;
}

void encoder_read_deberta(model_reader *r, encoder_config *c)
{
    const int64_t most = model_size(r, "max_position_embeddings", NULL, 512, MODEL_MAX_SIZE),
                  given = model_integer(r, "max_relative_positions", -1, -1, MODEL_MAX_SIZE);
    const char *norms = model_string(r, "norm_rel_ebd", "none");
    const size_t norm = strcspn(norms, "|");
    if (!model_boolean(r, "relative_attention", false))
        model_fault(r, "relative_attention", "is not true (use a model with relative attention)");
    c->buckets = model_integer(r, "position_buckets", -1, -1, MODEL_MAX_SIZE);
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
    read_convolution(r, c);
    c->scale = 1 / sqrt((double)c->head_width * (1 + c->c2p + c->p2c));
    if (c->labels == 0 || r->status != RP_OK)
        return;
    need_size(r, "pooler_hidden_size", c->width, "as hidden_size");
    c->head_activation = encoder_read_activation(r, "pooler_hidden_act");
    encoder_keep_fault(r, &c->head_fault);
}

/* ------------------------------------------------------------------------------------------------ ESM */

void encoder_read_esm(model_reader *r, encoder_config *c)
{
    const bool none = json_is_null(json_object_get(r->root, "position_embedding_type")); /* no positions at all */
    const char *type = none ? "null" : model_string(r, "position_embedding_type", "absolute");
    c->embedding_norm = model_boolean(r, "emb_layer_norm_before", false);
    c->token_dropout = model_boolean(r, "token_dropout", false);
    c->mask = (int32_t)model_integer(r, "mask_token_id", -1, 0, c->vocab - 1);
    if (c->token_dropout && c->mask < 0)
        model_fault(r, "mask_token_id", "is missing, but \"token_dropout\" needs it");
    c->theta[0] = model_number(r, "rope_theta", 10000, 1, 1e12);
    if (strcmp(type, "rotary") == 0)
        c->positions = 0;
    else if (strcmp(type, "absolute") == 0)
        c->scheme = ENCODER_ABSOLUTE;
    else
        model_fault(r, "position_embedding_type", "is neither \"rotary\" nor \"absolute\"");
    if (c->scheme == ENCODER_ROPE && c->head_width % 2 != 0)
        model_fault(r, "num_attention_heads", "gives heads of an odd width, which cannot be rotated");
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
    c->window = model_integer(r, "local_attention", 128, 0, MODEL_MAX_SIZE) / 2;
}

/* Refuse an object that has a key other than those `known`. */
static void check_members(model_reader *r, const char *object, const json_t *v, const char *const known[3])
{
    const char *key;
    json_t *value;
    char why[160], safe[64];
    if (v != NULL && !json_is_object(v))
        model_fault(r, object, "is not an object");
    json_object_foreach((json_t *)(uintptr_t)v, key, value)
    {
        bool found = false;
        for (int k = 0; k < 3 && !found; k++)
            found = known[k] != NULL && strcmp(key, known[k]) == 0;
        snprintf(why, sizeof why, "has the key \"%s\", which is not supported (use a model without it)",
                 io_safe(safe, sizeof safe, key));
        if (!found)
            model_fault(r, object, why);
    }
}

/* Read the base of a kind of layer: rope_parameters.KIND.rope_theta, or the older key. */
static double read_theta(model_reader *r, const char *kind, const char *key, double fallback)
{
    static const char *const known[] = {"rope_theta", "rope_type", "type"}; /* type: the older name of rope_type */
    const json_t *one = json_object_get(model_value(r, "rope_parameters"), kind);
    model_reader inner = {one, r->path, r->kind, NULL, r->status};
    check_members(&inner, kind, one, known);
    for (int k = 1; k < 3; k++)
        if (strcmp(model_string(&inner, known[k], "default"), "default") != 0)
            model_fault(&inner, known[k], "is not \"default\", the only one that is supported");
    r->status = inner.status;
    const double old = model_number(r, key, fallback, 1, 1e12);
    inner.status = r->status;
    const double theta = model_number(&inner, "rope_theta", old, 1, 1e12);
    r->status = inner.status;
    return theta;
}

/* Read the bases of both kinds of layers. */
static void read_thetas(model_reader *r, encoder_config *c)
{
    static const char *const kinds[] = {"full_attention", "sliding_attention", NULL};
    check_members(r, "rope_parameters", model_value(r, "rope_parameters"), kinds);
    c->theta[0] = read_theta(r, kinds[0], "global_rope_theta", 160000);
    c->theta[1] = read_theta(r, kinds[1], "local_rope_theta", 10000);
}

void encoder_read_modernbert(model_reader *r, encoder_config *c)
{
    c->norm_bias = model_boolean(r, "norm_bias", false);
    c->attention_bias = model_boolean(r, "attention_bias", false);
    c->feed_bias = model_boolean(r, "mlp_bias", false);
    c->head_bias = model_boolean(r, "classifier_bias", false);
    read_thetas(r, c);
    read_windows(r, c);
    if (c->labels == 0 || r->status != RP_OK)
        return;
    const char *pooling = model_string(r, "classifier_pooling", "cls");
    c->head_mean = strcmp(pooling, "mean") == 0;
    if (!c->head_mean && strcmp(pooling, "cls") != 0)
        model_fault(r, "classifier_pooling", "is neither \"cls\" nor \"mean\"");
    c->head_activation = encoder_read_activation(r, "classifier_activation");
    encoder_keep_fault(r, &c->head_fault);
}
