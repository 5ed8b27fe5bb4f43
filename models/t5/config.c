/* config.c -- reads config.json (kind and sizes of a model) and generation_config.json (defaults of generation).
 * SPDX-License-Identifier: Apache-2.0 */
#include "checkpoint/error.h"
#include "checkpoint/values.h"
#include "t5/keys.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Keys that transformers also takes as 6.0 for 6. */
#define CONFIG_REALS " decoder_start_token_id encoder_sparse_step decoder_sparse_step "
#define GENERATION_REALS                                                                                               \
    " max_length max_new_tokens num_return_sequences top_k pad_token_id eos_token_id decoder_start_token_id "          \
    "bos_token_id suppress_tokens begin_suppress_tokens "

/* ------------------------------------------------------------------------------------------------ config.json */

static const struct {
    const char *name, *classes; /* model_type, and how the names in `architectures` begin */
    t5_kind kind;
} kinds[] = {{"t5", "T5", T5_PLAIN},        {"byt5", "ByT5", T5_PLAIN},
             {"mt5", "MT5", T5_MT5},        {"umt5", "UMT5", T5_UMT5},
             {"longt5", "LongT5", T5_LONG}, {"switch_transformers", "SwitchTransformers", T5_SWITCH}};
enum { KINDS = sizeof kinds / sizeof *kinds };
#define KIND_NAMES "t5, byt5, mt5, umt5, longt5 or switch_transformers"

/* Return the model_type of a class of transformers, such as t5 for T5EncoderModel; NULL if it is not known. */
static const char *type_of_class(const char *name)
{
    static const char *const models[] = {"ForConditionalGeneration", "EncoderModel", "Model"};
    char class[64];
    for (int n = 0; n < KINDS && name != NULL; n++)
        for (int k = 0; k < 3; k++) {
            snprintf(class, sizeof class, "%s%s", kinds[n].classes, models[k]);
            if (strcmp(name, class) == 0)
                return kinds[n].name;
        }
    return NULL;
}

/* Find the model_type of a config that does not have it. The classes in `architectures` must all be of one type. */
static const char *type_of_classes(model_reader *r)
{
    const json_t *list = model_value(r, "architectures");
    const size_t n = json_array_size(list);
    const char *type = n > 0 ? type_of_class(json_string_value(json_array_get(list, 0))) : NULL;
    for (size_t k = 1; k < n && type != NULL; k++) {
        const char *other = type_of_class(json_string_value(json_array_get(list, k)));
        type = other != NULL && strcmp(other, type) == 0 ? type : NULL;
    }
    if (type == NULL)
        model_fault(r, "model_type",
                    n > 0 ? "is missing, and \"architectures\" names no class of the T5 family (add it: " KIND_NAMES ")"
                          : "is missing (add it: " KIND_NAMES ")");
    return type != NULL ? type : "";
}

static void read_kind(model_reader *r, t5_config *c)
{
    const char *type = model_value(r, "model_type") != NULL ? model_string(r, "model_type", "") : type_of_classes(r);
    for (int n = 0; n < KINDS; n++)
        if (strcmp(type, kinds[n].name) == 0) {
            c->kind = kinds[n].kind;
            return;
        }
    if (r->status == RP_OK)
        r->status = model_fail(RP_E_UNSUPPORTED,
                               "%s: model_type \"%s\" is not in the T5 family (use a model of type " KIND_NAMES ")",
                               r->path, type);
}

/* Read the activation and the gate. As in transformers, dense_act_fn and is_gated_act replace what feed_forward_proj
 * says, and Switch has neither feed_forward_proj nor a gate. */
static void read_activation(model_reader *r, t5_config *c)
{
    static const struct {
        const char *name;
        t5_activation activation;
    } names[] = {{"relu", T5_RELU}, {"gelu_new", T5_GELU_TANH}, {"gelu_pytorch_tanh", T5_GELU_TANH},
                 {"gelu", T5_GELU}, {"silu", T5_SILU},          {"swish", T5_SILU}};
    const char *all = c->kind == T5_MT5 || c->kind == T5_UMT5 ? "gated-gelu" : "relu";
    if (c->kind != T5_SWITCH)
        all = model_string(r, "feed_forward_proj", all);
    const bool gated = strncmp(all, "gated-", 6) == 0;
    c->gated = c->kind == T5_SWITCH ? false : model_condition(r, "is_gated_act", gated);
    const char *name =
        model_string(r, "dense_act_fn", strcmp(all, "gated-gelu") == 0 ? "gelu_new" : all + (gated ? 6 : 0));
    for (size_t n = 0; n < sizeof names / sizeof *names; n++)
        if (strcmp(name, names[n].name) == 0) {
            c->activation = names[n].activation;
            return;
        }
    if (r->status == RP_OK)
        r->status =
            model_fail(RP_E_UNSUPPORTED,
                       "%s: the activation \"%s\" is not supported (use a model with relu, gelu, gelu_new or silu)",
                       r->path, name);
}

/* Read how the head uses the embedding. Except for Switch, transformers ties the two regardless of tie_word_embeddings.
 * For T5, UMT5 and LongT5 that key is instead the default of scale_decoder_outputs. (For UMT5 since transformers 5.24;
 * earlier versions always scale.) */
static void read_head(model_reader *r, t5_config *c)
{
    const bool tied = model_boolean(r, "tie_word_embeddings", true);
    c->tied = c->kind != T5_SWITCH || tied;
    c->scale = c->kind == T5_MT5      ? false
               : c->kind == T5_SWITCH ? tied
                                      : model_condition(r, "scale_decoder_outputs", tied);
}

static void read_long(model_reader *r, t5_config *c)
{
    const char *type = model_string(r, "encoder_attention_type", "local");
    c->radius = model_integer(r, "local_radius", 127, 0, MODEL_MAX_SIZE);
    c->global_block = model_integer(r, "global_block_size", 16, 1, MODEL_MAX_SIZE);
    if (strcmp(type, "local") == 0)
        c->encoder_attention = T5_LOCAL;
    else if (strcmp(type, "transient-global") == 0)
        c->encoder_attention = T5_TRANSIENT_GLOBAL;
    else
        model_fault(r, "encoder_attention_type", "is not local or transient-global");
}

static void read_switch(model_reader *r, t5_config *c)
{
    const int64_t encoder = model_integer(r, "num_sparse_encoder_layers", 3, 0, MODEL_MAX_SIZE);
    const int64_t decoder = model_integer(r, "num_sparse_decoder_layers", 3, 0, MODEL_MAX_SIZE);
    c->experts = model_integer(r, "num_experts", 8, 1, 65536);
    c->capacity = model_integer(r, "expert_capacity", 64, 1, INT64_MAX);
    c->sparse_encoder = model_integer(r, "encoder_sparse_step", encoder > 0 ? c->layers / encoder : c->layers, 0, 4096);
    c->sparse_decoder =
        model_integer(r, "decoder_sparse_step", decoder > 0 ? c->decoder_layers / decoder : c->decoder_layers, 0, 4096);
}

/* Read an item of a key, or its value, as a token. */
static void read_token(model_reader *r, const char *key, const json_t *v, int64_t vocab, int32_t *token)
{
    char why[160], given[64];
    int64_t x = 0;
    if (!model_is_integer(r, key, v, 0, vocab - 1, &x)) {
        snprintf(why, sizeof why, "is not a token of the vocabulary, from 0 to %lld%s", (long long)vocab - 1,
                 model_describe_number(v, given));
        model_fault(r, key, why);
    }
    *token = (int32_t)x;
}

/* Read eos_token_id: a number, a list of numbers, or null for a model without an end token. */
static void read_eos(model_reader *r, t5_config *c)
{
    const json_t *v = model_value(r, "eos_token_id");
    if (json_is_null(json_object_get(r->root, "eos_token_id")))
        c->n_eos = 0;
    if (v == NULL)
        return;
    const size_t n = json_is_array(v) ? json_array_size(v) : 1;
    if (n > T5_MAX_EOS) {
        model_fault(r, "eos_token_id", "has more than 8 numbers");
        return;
    }
    for (size_t k = 0; k < n; k++)
        read_token(r, "eos_token_id", json_is_array(v) ? json_array_get(v, k) : v, c->vocab, &c->eos[k]);
    c->n_eos = (int32_t)n;
}

static void read_sizes(model_reader *r, t5_config *c)
{
    c->vocab = model_size(r, "vocab_size", NULL, 0, MODEL_MAX_SIZE);
    c->d_model = model_size(r, "d_model", "hidden_size", 0, MODEL_MAX_SIZE);
    c->heads = model_size(r, "num_heads", "num_attention_heads", 0, MODEL_MAX_SIZE);
    c->d_kv = model_size(r, "d_kv", c->kind == T5_SWITCH ? NULL : "head_dim", 64, MODEL_MAX_SIZE);
    c->d_ff = model_size(r, "d_ff", NULL, 0, MODEL_MAX_SIZE);
    c->layers = model_size(r, "num_layers", "num_hidden_layers", 0, 4096);
    c->decoder_layers = model_integer(r, "num_decoder_layers", c->layers, 1, 4096);
    c->buckets = model_integer(r, "relative_attention_num_buckets", 32, 4, MODEL_MAX_SIZE);
    c->max_distance = model_integer(r, "relative_attention_max_distance", 128, 1, MODEL_MAX_SIZE);
    c->eps = model_number(r, "layer_norm_epsilon", 1e-6, 0, 1);
    if (r->status == RP_OK && (c->buckets % 2 != 0 || c->max_distance <= c->buckets / 2)) {
        char why[160];
        snprintf(why, sizeof why,
                 "is %lld; it must be even, and relative_attention_max_distance, %lld, must be above half of it",
                 (long long)c->buckets, (long long)c->max_distance);
        model_fault(r, "relative_attention_num_buckets", why);
    }
    if (!t5_mul(c->heads, c->d_kv, &c->inner) || c->inner > MODEL_MAX_SIZE)
        model_fault(r, "num_heads", "times d_kv is too large");
}

rp_status t5_config_read(rp_t5 *m, const char *path, const char *text, size_t size)
{
    t5_config *c = &m->config;
    json_t *root;
    memset(c, 0, sizeof *c);
    c->advice = " (check that config.json and the weights belong to one model)";
    const rp_status status = t5_model_failed(model_parse_object(&root, path, text, size, 0));
    if (status != RP_OK)
        return status;
    model_reader r = {root, path, "a T5", CONFIG_REALS, RP_OK};
    read_kind(&r, c);
    if (r.status == RP_OK)
        r.status = t5_check_keys(m, T5_KEYS_CONFIG, path, root, NULL);
    if (r.status == RP_OK)
        read_sizes(&r, c);
    read_activation(&r, c);
    read_head(&r, c);
    if (c->kind == T5_LONG)
        read_long(&r, c);
    if (c->kind == T5_SWITCH)
        read_switch(&r, c);
    c->pad = (int32_t)model_integer(&r, "pad_token_id", 0, 0, c->vocab - 1);
    c->start = (int32_t)model_integer(&r, "decoder_start_token_id", c->pad, 0, c->vocab - 1);
    c->names_start = model_value(&r, "decoder_start_token_id") != NULL;
    c->eos[0] = 1;
    c->n_eos = 1;
    read_eos(&r, c);
    (void)model_string(&r, "tokenizer_class", ""); /* only check it: t5_find_maker reads it */
    c->only_encodes = !model_condition(&r, "is_encoder_decoder", true);
    c->max_positions = model_integer(&r, "max_position_embeddings", -1, INT64_MIN, INT64_MAX);
    json_decref(root);
    return t5_model_failed(r.status); /* every function above sets model_error */
}

/* ------------------------------------------------------------------------------------------------
 * generation_config.json */

static void read_early_stopping(model_reader *r, rp_t5_generation *g)
{
    const json_t *v = model_value(r, "early_stopping");
    if (v == NULL)
        return;
    if (json_is_string(v) && strcmp(json_string_value(v), "never") == 0)
        g->early_stopping = RP_T5_STOP_NEVER_EARLY;
    else if (json_is_boolean(v))
        g->early_stopping = json_is_true(v) ? RP_T5_STOP_FIRST : RP_T5_STOP_LIKELY;
    else
        model_fault(r, "early_stopping", "is not true, false or \"never\"");
}

static void read_lengths(model_reader *r, rp_t5_generation *g)
{
    const int64_t longest = model_integer(r, "max_length", 0, 1, INT32_MAX),
                  shortest = model_integer(r, "min_length", 0, 0, INT32_MAX);
    g->max_new_tokens = model_integer(r, "max_new_tokens", longest > 1 ? longest - 1 : g->max_new_tokens, 1, INT32_MAX);
    g->min_new_tokens = model_integer(r, "min_new_tokens", shortest > 1 ? shortest - 1 : 0, 0, INT32_MAX);
}

void t5_kept_free(t5_kept *kept)
{
    free(kept->refused);
    free(kept->tokens);
    free(kept->bad_words);
    for (int32_t k = 0; k < kept->n_stop; k++)
        free(kept->stop[k]);
    free(kept->stop);
}

/* Read a list of tokens into *next, and advance *next past it. */
static rp_t5_tokens read_tokens(model_reader *r, const char *key, const json_t *list, int64_t vocab, int32_t **next)
{
    const rp_t5_tokens tokens = {*next, (int64_t)json_array_size(list)};
    if (list != NULL && !json_is_array(list))
        model_fault(r, key, "is not a list of tokens");
    for (size_t k = 0; k < json_array_size(list); k++)
        read_token(r, key, json_array_get(list, k), vocab, (*next)++);
    return tokens;
}

static void read_suppressed(model_reader *r, const t5_config *c, rp_t5_generation *g, t5_kept *kept)
{
    const json_t *suppress = model_value(r, "suppress_tokens"), *begin = model_value(r, "begin_suppress_tokens"),
                 *bad = model_value(r, "bad_words_ids");
    const size_t n_bad = json_array_size(bad);
    size_t n = json_array_size(suppress) + json_array_size(begin);
    for (size_t k = 0; k < n_bad; k++)
        n += json_array_size(json_array_get(bad, k));
    if (bad != NULL && !json_is_array(bad))
        model_fault(r, "bad_words_ids", "is not a list of lists of tokens");
    kept->tokens = malloc((n + 1) * sizeof *kept->tokens);
    kept->bad_words = malloc((n_bad + 1) * sizeof *kept->bad_words);
    if (kept->tokens == NULL || kept->bad_words == NULL) {
        r->status = r->status == RP_OK ? model_no_memory() : r->status;
        return;
    }
    int32_t *next = kept->tokens;
    g->suppress = read_tokens(r, "suppress_tokens", suppress, c->vocab, &next);
    g->begin_suppress = read_tokens(r, "begin_suppress_tokens", begin, c->vocab, &next);
    for (size_t k = 0; k < n_bad; k++) {
        kept->bad_words[k] = read_tokens(r, "bad_words_ids", json_array_get(bad, k), c->vocab, &next);
        if (kept->bad_words[k].n == 0)
            model_fault(r, "bad_words_ids", "contains a sequence without tokens");
    }
    g->bad_words = kept->bad_words;
    g->n_bad_words = (int64_t)n_bad;
}

/* Read stop_strings: a string or a list of strings. */
static void read_stops(model_reader *r, rp_t5_generation *g, t5_kept *kept)
{
    const json_t *v = model_value(r, "stop_strings");
    const size_t n = json_is_array(v) ? json_array_size(v) : v != NULL;
    if (n > INT32_MAX)
        model_fault(r, "stop_strings", "contains too many texts");
    if (n == 0 || r->status != RP_OK)
        return;
    kept->stop = calloc(n, sizeof *kept->stop);
    if (kept->stop == NULL)
        r->status = model_no_memory();
    for (size_t k = 0; k < n && r->status == RP_OK; k++) {
        const char *text = json_string_value(json_is_array(v) ? json_array_get(v, k) : v);
        if (text == NULL || *text == 0)
            model_fault(r, "stop_strings", "is not a non-empty text or a list of non-empty texts");
        else if ((kept->stop[k] = strdup(text)) == NULL)
            r->status = model_no_memory();
        kept->n_stop = (int32_t)k + 1;
    }
    g->stop = (const char *const *)kept->stop;
    g->n_stop = kept->n_stop;
}

/* Read forced_eos_token_id: a token, or a list of one token. For a longer list, return the name of the key as
 * unsupported: transformers would let beam search choose among the tokens. */
static const char *read_forced_last(model_reader *r, const t5_config *c, rp_t5_generation *g)
{
    const json_t *v = model_value(r, "forced_eos_token_id");
    if (json_is_array(v) && json_array_size(v) > 1)
        return "forced_eos_token_id";
    const json_t *one = json_is_array(v) ? json_array_get(v, 0) : v;
    if (one != NULL)
        read_token(r, "forced_eos_token_id", one, c->vocab, &g->forced_last);
    return NULL;
}

rp_status t5_generation_read(rp_t5 *m, const char *name, const char *path, const char *text, size_t size)
{
    t5_config *c = &m->config;
    rp_t5_generation *g = &m->generation;
    json_t *root;
    const rp_status status = t5_model_failed(model_parse_object(&root, path, text, size, 0));
    if (status != RP_OK)
        return status;
    model_reader r = {root, path, "a T5", GENERATION_REALS, RP_OK};
    read_lengths(&r, g);
    g->beams = (int32_t)model_integer(&r, "num_beams", 1, 1, 4096);
    g->returned = (int32_t)model_integer(&r, "num_return_sequences", 1, 1, 4096);
    g->length_penalty = model_number(&r, "length_penalty", 1, -100, 100);
    read_early_stopping(&r, g);
    g->sample = model_boolean(&r, "do_sample", false);
    g->temperature = model_number(&r, "temperature", 1, 0, 1e6);
    g->top_k = model_integer(&r, "top_k", g->top_k, 0, INT32_MAX);
    g->top_p = model_number(&r, "top_p", 1, 0, 1);
    g->repetition_penalty = model_number(&r, "repetition_penalty", 1, T5_MIN_PENALTY, T5_MAX_PENALTY);
    g->no_repeat_ngram = model_integer(&r, "no_repeat_ngram_size", 0, 0, INT32_MAX);
    g->forced_first = (int32_t)model_integer(&r, "forced_bos_token_id", -1, 0, c->vocab - 1);
    const char *several = read_forced_last(&r, c, g);
    c->pad = (int32_t)model_integer(&r, "pad_token_id", c->pad, 0, c->vocab - 1);
    const char *start = model_value(&r, "decoder_start_token_id") != NULL ? "decoder_start_token_id" : "bos_token_id";
    const int32_t before = c->start;
    c->start = (int32_t)model_integer(&r, start, c->start, 0, c->vocab - 1);
    read_eos(&r, c);
    read_suppressed(&r, c, g, &m->kept);
    read_stops(&r, g, &m->kept);
    const char *key = several;
    if (json_number_value(model_value(&r, "max_length")) == 1 && model_value(&r, "max_new_tokens") == NULL)
        key = "max_length"; /* the first token of a target counts, so no token could follow */
    if (r.status == RP_OK)  /* the keys of config.json were noted when it was read */
        r.status = t5_check_keys(m->generation_text != NULL ? m : NULL, T5_KEYS_GENERATION, path, root, &key);
    m->kept.refused_in = name;
    if (r.status == RP_OK && key != NULL && (m->kept.refused = strdup(key)) == NULL)
        r.status = model_no_memory();
    if (r.status == RP_OK && c->names_start && c->start != before)
        r.status = t5_model_failed(model_add_note(&m->notes,
                                                  "%s: targets begin with token %d, although config.json says %d (%s)",
                                                  path, (int)c->start, (int)before, start));
    json_decref(root);
    return t5_model_failed(r.status); /* every function above sets model_error */
}
