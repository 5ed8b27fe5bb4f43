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

#define KEY_FILE(file) ENCODER_KEYS_##file
static const model_key_row key_rows[] = {
#include "encoder/keys.def"
};

static void read_sizes(model_reader *r, encoder_config *c)
{
    const encoder_architecture *a = c->row;
    c->vocab = model_size(r, "vocab_size", NULL, 0, MODEL_MAX_SIZE);
    c->width = model_size(r, "hidden_size", NULL, 0, MODEL_MAX_SIZE);
    c->heads = model_size(r, "num_attention_heads", NULL, 0, MODEL_MAX_SIZE);
    c->inner = model_size(r, "intermediate_size", NULL, 0, MODEL_MAX_SIZE);
    c->layers = model_size(r, "num_hidden_layers", NULL, 0, ENCODER_MAX_LAYERS);
    c->eps = model_number(r, a->eps_key, a->eps, 0, 1);
    if (a->names.position != NULL)
        c->positions = model_size(r, "max_position_embeddings", NULL, a->max_positions, MODEL_MAX_SIZE);
    if (a->names.token_type != NULL)
        c->token_types = model_integer(r, "type_vocab_size", a->token_types, 0, MODEL_MAX_SIZE);
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
    c->named_positions = model_integer(r, "max_position_embeddings", -1, INT64_MIN, INT64_MAX);
    c->pad = (int32_t)model_integer(r, "pad_token_id", pad, 0, c->vocab - 1);
    c->padded = c->scheme == ENCODER_T5_BUCKETS ? 1 : c->pad; /* MPNet counts from 2, whatever config.json says */
    c->first = c->row->after_pad ? c->padded + 1 : 0;
    if (r->status == RP_OK && c->positions > 0 && c->first >= c->positions)
        model_fault(r, "max_position_embeddings", "leaves no position after pad_token_id");
    if (c->scheme != ENCODER_T5_BUCKETS)
        return;
    /* MPNet computes 32 buckets with a maximum distance of 128, whatever config.json says */
    c->buckets = model_integer(r, "relative_attention_num_buckets", 32, 32, 32);
    c->max_distance = 128;
}

/* ------------------------------------------------------------------------------------------------ the head */

/* Return true if a class in `architectures` is …ForSequenceClassification. */
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
    const int64_t n =
        names != NULL ? (int64_t)json_object_size(names) : model_integer(r, "num_labels", 2, 1, MAX_LABELS);
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

/* Set what CrossEncoder makes of logits: the name of a module of torch. */
static void set_activation(model_reader *r, encoder_config *c, const char *name)
{
    const char *dot = strrchr(name, '.');
    if (r->status != RP_OK)
        return;
    c->plain_score = dot != NULL && strcmp(dot, ".Identity") == 0;
    c->other_activation = !c->plain_score && (dot == NULL || strcmp(dot, ".Sigmoid") != 0) && c->score_fault == NULL;
    if (c->other_activation)
        r->status = model_fail(RP_E_UNSUPPORTED,
                               "%s: the activation of scores is \"%s\", which is not supported (use Sigmoid or "
                               "Identity)",
                               r->path, name);
    encoder_keep_fault(r, &c->score_fault);
}

/* Read what scores are made of logits. CrossEncoder of sentence-transformers stores the name of a module of torch. */
static void read_scores(model_reader *r, encoder_config *c)
{
    const json_t *inner = model_value(r, "sentence_transformers");
    const char *problem = model_string(r, "problem_type", ""),
               *old = model_string(r, "sbert_ce_default_activation_function", ""),
               *name = json_string_value(json_object_get(inner, "activation_fn")), *used = name != NULL ? name : old;
    c->scores = strcmp(problem, "regression") == 0                                     ? ENCODER_LOGITS
                : c->labels == 1 || strcmp(problem, "multi_label_classification") == 0 ? ENCODER_SIGMOID
                                                                                       : ENCODER_SOFTMAX;
    if (c->cross_activation || c->labels == 0)
        return;
    if (used[0] != 0)
        set_activation(r, c, used);
    else
        c->plain_score = c->labels > 1;
}

void encoder_config_free(encoder_config *c)
{
    for (int64_t k = 0; k < c->labels; k++)
        free(c->label[k]);
    free(c->label);
    free(c->tokenizer_class);
    free(c->head_fault);
    free(c->score_fault);
}

/* ------------------------------------------------------------------------------------------------ the file */

/* Keep the class of the tokenizer, for folders whose tokenizer_config.json names none. */
static void keep_class(model_reader *r, encoder_config *c)
{
    const char *name = model_string(r, "tokenizer_class", "");
    if (r->status != RP_OK || name[0] == 0)
        return;
    c->tokenizer_class = strdup(name);
    r->status = c->tokenizer_class != NULL ? RP_OK : model_no_memory();
}

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
    const int n = sizeof key_rows / sizeof *key_rows, own = (int)m->config.row->keys;
    const model_keys common = {key_rows, n, ENCODER_KEYS_COMMON, own, NULL},
                     rest = {key_rows, n, own, ENCODER_KEYS_COMMON, NULL};
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
    c->norm_bias = c->attention_bias = c->feed_bias = c->head_bias = c->embedding_norm = true;
    find_row(&r, c);
    if (r.status == RP_OK)
        r.status = check_keys(m, path, root);
    if (r.status == RP_OK)
        c->scheme = c->row->scheme;
    if (r.status == RP_OK)
        read_sizes(&r, c);
    if (r.status == RP_OK)
        read_positions(&r, c);
    if (r.status == RP_OK && c->row->activation_key != NULL)
        c->activation = encoder_read_activation(&r, c->row->activation_key);
    if (r.status == RP_OK)
        c->head_activation = c->row->head_activation;
    if (r.status == RP_OK && has_head(&r))
        read_labels(&r, c);
    if (r.status == RP_OK)
        read_scores(&r, c);
    keep_class(&r, c);
    if (r.status == RP_OK && c->row->read != NULL)
        c->row->read(&r, c);
    json_decref(root);
    return encoder_model_failed(r.status);
}

rp_status encoder_read_cross(rp_encoder *m, const char *folder)
{
    encoder_config *c = &m->config;
    char *text = NULL, *path = model_join(folder, "config_sentence_transformers.json");
    size_t size;
    json_t *root = NULL;
    if (path == NULL)
        return encoder_no_memory();
    rp_status status = model_read_text(&m->files, path, &text, &size);
    if (status == RP_OK && text != NULL)
        status = model_parse_object(&root, path, text, size, 0);
    model_reader r = {root, path, "a CrossEncoder", NULL, status};
    c->cross = root != NULL && strcmp(model_string(&r, "model_type", ""), "CrossEncoder") == 0;
    if (c->cross && r.status == RP_OK) {
        if (model_value(&r, "default_prompt_name") != NULL)
            model_fault(&r, "default_prompt_name",
                        "is not null, which is not supported for a CrossEncoder (make it null)");
        encoder_keep_fault(&r, &c->score_fault);
        c->cross_activation = model_value(&r, "activation_fn") != NULL;
        if (c->cross_activation)
            set_activation(&r, c, model_string(&r, "activation_fn", ""));
    }
    json_decref(root);
    free(text);
    free(path);
    return encoder_model_failed(r.status);
}

int64_t encoder_max_tokens(const encoder_config *c)
{
    return c->positions > 0 ? c->positions - c->first : 0;
}

double encoder_token_scale(const encoder_config *c, const rp_encoder_tokens *s)
{
    /* 0.15 * 0.8 of the tokens were <mask> in training */
    int64_t masked = 0;
    if (!c->token_dropout)
        return 1;
    for (int64_t i = 0; i < s->n; i++)
        masked += s->tokens[i] == c->mask;
    return (1 - 0.15 * 0.8) / (1 - (double)masked / (double)s->n);
}
