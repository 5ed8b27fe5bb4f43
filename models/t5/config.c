/* config.c -- reads config.json (kind and sizes of a model) and generation_config.json (defaults of generation).
 * SPDX-License-Identifier: Apache-2.0 */
#include "t5/keys.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A file that is being read. `status` is the status of the first error. */
typedef struct reader {
    const json_t *root;
    const char *path;
    const char *as_reals; /* keys that transformers also takes as 6.0 for 6 */
    rp_status status;
} reader;
#define CONFIG_REALS " decoder_start_token_id encoder_sparse_step decoder_sparse_step "
#define GENERATION_REALS                                                                                               \
    " max_length max_new_tokens num_return_sequences top_k pad_token_id eos_token_id decoder_start_token_id "          \
    "bos_token_id suppress_tokens begin_suppress_tokens "

static rp_status fault(reader *r, const char *key, const char *why)
{
    if (r->status == RP_OK)
        r->status = t5_fail(RP_E_ARG, "%s: \"%s\" %s", r->path, key, why);
    return r->status;
}

/* Return the value of a key, or NULL if it is absent or null. */
static const json_t *get(const reader *r, const char *key)
{
    const json_t *v = json_object_get(r->root, key);
    return json_is_null(v) ? NULL : v;
}

/* Format a number as " (it is ...)", and any other value as "". */
static const char *describe_number(const json_t *v, char given[64])
{
    const double x = json_number_value(v);
    given[0] = 0;
    if (json_is_integer(v))
        snprintf(given, 64, " (it is %lld)", (long long)json_integer_value(v));
    else if (json_is_real(v) && x == trunc(x) && fabs(x) < 1e15)
        snprintf(given, 64, " (it is %.1f: write %.0f)", x, x);
    else if (json_is_real(v))
        snprintf(given, 64, " (it is %g)", x);
    return given;
}

/* Read an item of a key, or its value, as an integer from min to max. Return false if it is not one. */
static bool read_integer(const reader *r, const char *key, const json_t *v, int64_t min, int64_t max, int64_t *x)
{
    char word[64];
    const double real = json_number_value(v);
    snprintf(word, sizeof word, " %s ", key);
    if (json_is_integer(v))
        *x = json_integer_value(v);
    else if (json_is_real(v) && real == trunc(real) && fabs(real) < 1e15 && strstr(r->as_reals, word) != NULL)
        *x = (int64_t)real;
    else
        return false;
    return *x >= min && *x <= max;
}

static int64_t integer(reader *r, const char *key, int64_t fallback, int64_t min, int64_t max)
{
    const json_t *v = get(r, key);
    int64_t x;
    char why[160], given[64];
    if (v == NULL)
        return fallback;
    if (read_integer(r, key, v, min, max, &x))
        return x;
    snprintf(why, sizeof why, "is not a whole number from %lld to %lld%s", (long long)min, (long long)max,
             describe_number(v, given));
    fault(r, key, why);
    return fallback;
}

/* Read a size from 1 to `max`. The key is required if `fallback` is 0. `other` is another name of the key, or NULL. */
static int64_t size_of(reader *r, const char *key, const char *other, int64_t fallback, int64_t max)
{
    const json_t *v = get(r, key), *o = other != NULL ? get(r, other) : NULL;
    char why[96];
    if (v == NULL && o == NULL && fallback == 0)
        fault(r, key, "is missing (it is not the config.json of a T5)");
    if (v != NULL && o != NULL && json_equal(v, o) == 0) {
        snprintf(why, sizeof why, "and its other name \"%s\" have different values (remove one of them)", other);
        fault(r, key, why);
    }
    return integer(r, v == NULL && o != NULL ? other : key, fallback > 0 ? fallback : 1, 1, max);
}

static double number(reader *r, const char *key, double fallback, double min, double max)
{
    const json_t *v = get(r, key);
    char why[160], given[64];
    if (v == NULL)
        return fallback;
    if (json_is_number(v) && json_number_value(v) >= min && json_number_value(v) <= max)
        return json_number_value(v);
    snprintf(why, sizeof why, "is not a number from %g to %g%s", min, max, describe_number(v, given));
    fault(r, key, why);
    return fallback;
}

static bool boolean(reader *r, const char *key, bool fallback)
{
    const json_t *v = get(r, key);
    if (v == NULL)
        return fallback;
    if (!json_is_boolean(v))
        fault(r, key, "is neither true nor false");
    return json_is_true(v);
}

/* Read a boolean that transformers uses even if it is null; null is false. */
static bool condition(reader *r, const char *key, bool fallback)
{
    return json_is_null(json_object_get(r->root, key)) ? false : boolean(r, key, fallback);
}

static const char *string(reader *r, const char *key, const char *fallback)
{
    const json_t *v = get(r, key);
    if (v == NULL)
        return fallback;
    if (!json_is_string(v)) {
        fault(r, key, "is not a text");
        return fallback;
    }
    return json_string_value(v);
}

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
static const char *type_of_classes(reader *r)
{
    const json_t *list = get(r, "architectures");
    const size_t n = json_array_size(list);
    const char *type = n > 0 ? type_of_class(json_string_value(json_array_get(list, 0))) : NULL;
    for (size_t k = 1; k < n && type != NULL; k++) {
        const char *other = type_of_class(json_string_value(json_array_get(list, k)));
        type = other != NULL && strcmp(other, type) == 0 ? type : NULL;
    }
    if (type == NULL)
        fault(r, "model_type",
              n > 0 ? "is missing, and \"architectures\" names no class of the T5 family (add it: " KIND_NAMES ")"
                    : "is missing (add it: " KIND_NAMES ")");
    return type != NULL ? type : "";
}

static void read_kind(reader *r, t5_config *c)
{
    const char *type = get(r, "model_type") != NULL ? string(r, "model_type", "") : type_of_classes(r);
    for (int n = 0; n < KINDS; n++)
        if (strcmp(type, kinds[n].name) == 0) {
            c->kind = kinds[n].kind;
            return;
        }
    if (r->status == RP_OK)
        r->status = t5_fail(RP_E_UNSUPPORTED,
                            "%s: model_type \"%s\" is not in the T5 family (use a model of type " KIND_NAMES ")",
                            r->path, type);
}

/* Read the activation and the gate. As in transformers, dense_act_fn and is_gated_act replace what feed_forward_proj
 * says, and Switch has neither feed_forward_proj nor a gate. */
static void read_activation(reader *r, t5_config *c)
{
    static const struct {
        const char *name;
        t5_activation activation;
    } names[] = {{"relu", T5_RELU}, {"gelu_new", T5_GELU_TANH}, {"gelu_pytorch_tanh", T5_GELU_TANH},
                 {"gelu", T5_GELU}, {"silu", T5_SILU},          {"swish", T5_SILU}};
    const char *all = c->kind == T5_MT5 || c->kind == T5_UMT5 ? "gated-gelu" : "relu";
    if (c->kind != T5_SWITCH)
        all = string(r, "feed_forward_proj", all);
    const bool gated = strncmp(all, "gated-", 6) == 0;
    c->gated = c->kind == T5_SWITCH ? false : condition(r, "is_gated_act", gated);
    const char *name = string(r, "dense_act_fn", strcmp(all, "gated-gelu") == 0 ? "gelu_new" : all + (gated ? 6 : 0));
    for (size_t n = 0; n < sizeof names / sizeof *names; n++)
        if (strcmp(name, names[n].name) == 0) {
            c->activation = names[n].activation;
            return;
        }
    if (r->status == RP_OK)
        r->status =
            t5_fail(RP_E_UNSUPPORTED,
                    "%s: the activation \"%s\" is not supported (use a model with relu, gelu, gelu_new or silu)",
                    r->path, name);
}

/* Read how the head uses the embedding. Except for Switch, transformers ties the two regardless of tie_word_embeddings.
 * For T5, UMT5 and LongT5 that key is instead the default of scale_decoder_outputs. (For UMT5 since transformers 5.24;
 * earlier versions always scale.) */
static void read_head(reader *r, t5_config *c)
{
    const bool tied = boolean(r, "tie_word_embeddings", true);
    c->tied = c->kind != T5_SWITCH || tied;
    c->scale = c->kind == T5_MT5 ? false : c->kind == T5_SWITCH ? tied : condition(r, "scale_decoder_outputs", tied);
}

static void read_long(reader *r, t5_config *c)
{
    const char *type = string(r, "encoder_attention_type", "local");
    c->radius = integer(r, "local_radius", 127, 0, T5_MAX_SIZE);
    c->global_block = integer(r, "global_block_size", 16, 1, T5_MAX_SIZE);
    if (strcmp(type, "local") == 0)
        c->encoder_attention = T5_LOCAL;
    else if (strcmp(type, "transient-global") == 0)
        c->encoder_attention = T5_TRANSIENT_GLOBAL;
    else
        fault(r, "encoder_attention_type", "is not local or transient-global");
}

static void read_switch(reader *r, t5_config *c)
{
    const int64_t encoder = integer(r, "num_sparse_encoder_layers", 3, 0, T5_MAX_SIZE);
    const int64_t decoder = integer(r, "num_sparse_decoder_layers", 3, 0, T5_MAX_SIZE);
    c->experts = integer(r, "num_experts", 8, 1, 65536);
    c->capacity = integer(r, "expert_capacity", 64, 1, INT64_MAX);
    c->sparse_encoder = integer(r, "encoder_sparse_step", encoder > 0 ? c->layers / encoder : c->layers, 0, 4096);
    c->sparse_decoder =
        integer(r, "decoder_sparse_step", decoder > 0 ? c->decoder_layers / decoder : c->decoder_layers, 0, 4096);
}

/* Read an item of a key, or its value, as a token. */
static void read_token(reader *r, const char *key, const json_t *v, int64_t vocab, int32_t *token)
{
    char why[160], given[64];
    int64_t x = 0;
    if (!read_integer(r, key, v, 0, vocab - 1, &x)) {
        snprintf(why, sizeof why, "is not a token of the vocabulary, from 0 to %lld%s", (long long)vocab - 1,
                 describe_number(v, given));
        fault(r, key, why);
    }
    *token = (int32_t)x;
}

/* Read eos_token_id: a number, a list of numbers, or null for a model without an end token. */
static void read_eos(reader *r, t5_config *c)
{
    const json_t *v = get(r, "eos_token_id");
    if (json_is_null(json_object_get(r->root, "eos_token_id")))
        c->n_eos = 0;
    if (v == NULL)
        return;
    const size_t n = json_is_array(v) ? json_array_size(v) : 1;
    if (n > T5_MAX_EOS) {
        fault(r, "eos_token_id", "has more than 8 numbers");
        return;
    }
    for (size_t k = 0; k < n; k++)
        read_token(r, "eos_token_id", json_is_array(v) ? json_array_get(v, k) : v, c->vocab, &c->eos[k]);
    c->n_eos = (int32_t)n;
}

static void read_sizes(reader *r, t5_config *c)
{
    c->vocab = size_of(r, "vocab_size", NULL, 0, T5_MAX_SIZE);
    c->d_model = size_of(r, "d_model", "hidden_size", 0, T5_MAX_SIZE);
    c->heads = size_of(r, "num_heads", "num_attention_heads", 0, T5_MAX_SIZE);
    c->d_kv = size_of(r, "d_kv", c->kind == T5_SWITCH ? NULL : "head_dim", 64, T5_MAX_SIZE);
    c->d_ff = size_of(r, "d_ff", NULL, 0, T5_MAX_SIZE);
    c->layers = size_of(r, "num_layers", "num_hidden_layers", 0, 4096);
    c->decoder_layers = integer(r, "num_decoder_layers", c->layers, 1, 4096);
    c->buckets = integer(r, "relative_attention_num_buckets", 32, 4, T5_MAX_SIZE);
    c->max_distance = integer(r, "relative_attention_max_distance", 128, 1, T5_MAX_SIZE);
    c->eps = number(r, "layer_norm_epsilon", 1e-6, 0, 1);
    if (r->status == RP_OK && (c->buckets % 2 != 0 || c->max_distance <= c->buckets / 2)) {
        char why[160];
        snprintf(why, sizeof why,
                 "is %lld; it must be even, and relative_attention_max_distance, %lld, must be above half of it",
                 (long long)c->buckets, (long long)c->max_distance);
        fault(r, "relative_attention_num_buckets", why);
    }
    if (!t5_mul(c->heads, c->d_kv, &c->inner) || c->inner > T5_MAX_SIZE)
        fault(r, "num_heads", "times d_kv is too large");
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
    reader r = {root, path, CONFIG_REALS, RP_OK};
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
    c->pad = (int32_t)integer(&r, "pad_token_id", 0, 0, c->vocab - 1);
    c->start = (int32_t)integer(&r, "decoder_start_token_id", c->pad, 0, c->vocab - 1);
    c->names_start = get(&r, "decoder_start_token_id") != NULL;
    c->eos[0] = 1;
    c->n_eos = 1;
    read_eos(&r, c);
    (void)string(&r, "tokenizer_class", ""); /* only check it: t5_find_maker reads it */
    c->only_encodes = !condition(&r, "is_encoder_decoder", true);
    c->max_positions = integer(&r, "max_position_embeddings", -1, INT64_MIN, INT64_MAX);
    json_decref(root);
    return r.status;
}

/* ------------------------------------------------------------------------------------------------
 * generation_config.json */

static void read_early_stopping(reader *r, rp_t5_generation *g)
{
    const json_t *v = get(r, "early_stopping");
    if (v == NULL)
        return;
    if (json_is_string(v) && strcmp(json_string_value(v), "never") == 0)
        g->early_stopping = RP_T5_STOP_NEVER_EARLY;
    else if (json_is_boolean(v))
        g->early_stopping = json_is_true(v) ? RP_T5_STOP_FIRST : RP_T5_STOP_LIKELY;
    else
        fault(r, "early_stopping", "is not true, false or \"never\"");
}

static void read_lengths(reader *r, rp_t5_generation *g)
{
    const int64_t longest = integer(r, "max_length", 0, 1, INT32_MAX),
                  shortest = integer(r, "min_length", 0, 0, INT32_MAX);
    g->max_new_tokens = integer(r, "max_new_tokens", longest > 1 ? longest - 1 : g->max_new_tokens, 1, INT32_MAX);
    g->min_new_tokens = integer(r, "min_new_tokens", shortest > 1 ? shortest - 1 : 0, 0, INT32_MAX);
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
static rp_t5_tokens read_tokens(reader *r, const char *key, const json_t *list, int64_t vocab, int32_t **next)
{
    const rp_t5_tokens tokens = {*next, (int64_t)json_array_size(list)};
    if (list != NULL && !json_is_array(list))
        fault(r, key, "is not a list of tokens");
    for (size_t k = 0; k < json_array_size(list); k++)
        read_token(r, key, json_array_get(list, k), vocab, (*next)++);
    return tokens;
}

static void read_suppressed(reader *r, const t5_config *c, rp_t5_generation *g, t5_kept *kept)
{
    const json_t *suppress = get(r, "suppress_tokens"), *begin = get(r, "begin_suppress_tokens"),
                 *bad = get(r, "bad_words_ids");
    const size_t n_bad = json_array_size(bad);
    size_t n = json_array_size(suppress) + json_array_size(begin);
    for (size_t k = 0; k < n_bad; k++)
        n += json_array_size(json_array_get(bad, k));
    if (bad != NULL && !json_is_array(bad))
        fault(r, "bad_words_ids", "is not a list of lists of tokens");
    kept->tokens = malloc((n + 1) * sizeof *kept->tokens);
    kept->bad_words = malloc((n_bad + 1) * sizeof *kept->bad_words);
    if (kept->tokens == NULL || kept->bad_words == NULL) {
        r->status = r->status == RP_OK ? t5_no_memory() : r->status;
        return;
    }
    int32_t *next = kept->tokens;
    g->suppress = read_tokens(r, "suppress_tokens", suppress, c->vocab, &next);
    g->begin_suppress = read_tokens(r, "begin_suppress_tokens", begin, c->vocab, &next);
    for (size_t k = 0; k < n_bad; k++) {
        kept->bad_words[k] = read_tokens(r, "bad_words_ids", json_array_get(bad, k), c->vocab, &next);
        if (kept->bad_words[k].n == 0)
            fault(r, "bad_words_ids", "contains a sequence without tokens");
    }
    g->bad_words = kept->bad_words;
    g->n_bad_words = (int64_t)n_bad;
}

/* Read stop_strings: a string or a list of strings. */
static void read_stops(reader *r, rp_t5_generation *g, t5_kept *kept)
{
    const json_t *v = get(r, "stop_strings");
    const size_t n = json_is_array(v) ? json_array_size(v) : v != NULL;
    if (n > INT32_MAX)
        fault(r, "stop_strings", "contains too many texts");
    if (n == 0 || r->status != RP_OK)
        return;
    kept->stop = calloc(n, sizeof *kept->stop);
    if (kept->stop == NULL)
        r->status = t5_no_memory();
    for (size_t k = 0; k < n && r->status == RP_OK; k++) {
        const char *text = json_string_value(json_is_array(v) ? json_array_get(v, k) : v);
        if (text == NULL || *text == 0)
            fault(r, "stop_strings", "is not a non-empty text or a list of non-empty texts");
        else if ((kept->stop[k] = strdup(text)) == NULL)
            r->status = t5_no_memory();
        kept->n_stop = (int32_t)k + 1;
    }
    g->stop = (const char *const *)kept->stop;
    g->n_stop = kept->n_stop;
}

/* Read forced_eos_token_id: a token, or a list of one token. For a longer list, return the name of the key as
 * unsupported: transformers would let beam search choose among the tokens. */
static const char *read_forced_last(reader *r, const t5_config *c, rp_t5_generation *g)
{
    const json_t *v = get(r, "forced_eos_token_id");
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
    reader r = {root, path, GENERATION_REALS, RP_OK};
    read_lengths(&r, g);
    g->beams = (int32_t)integer(&r, "num_beams", 1, 1, 4096);
    g->returned = (int32_t)integer(&r, "num_return_sequences", 1, 1, 4096);
    g->length_penalty = number(&r, "length_penalty", 1, -100, 100);
    read_early_stopping(&r, g);
    g->sample = boolean(&r, "do_sample", false);
    g->temperature = number(&r, "temperature", 1, 0, 1e6);
    g->top_k = integer(&r, "top_k", g->top_k, 0, INT32_MAX);
    g->top_p = number(&r, "top_p", 1, 0, 1);
    g->repetition_penalty = number(&r, "repetition_penalty", 1, T5_MIN_PENALTY, T5_MAX_PENALTY);
    g->no_repeat_ngram = integer(&r, "no_repeat_ngram_size", 0, 0, INT32_MAX);
    g->forced_first = (int32_t)integer(&r, "forced_bos_token_id", -1, 0, c->vocab - 1);
    const char *several = read_forced_last(&r, c, g);
    c->pad = (int32_t)integer(&r, "pad_token_id", c->pad, 0, c->vocab - 1);
    const char *start = get(&r, "decoder_start_token_id") != NULL ? "decoder_start_token_id" : "bos_token_id";
    const int32_t before = c->start;
    c->start = (int32_t)integer(&r, start, c->start, 0, c->vocab - 1);
    read_eos(&r, c);
    read_suppressed(&r, c, g, &m->kept);
    read_stops(&r, g, &m->kept);
    const char *key = several;
    if (json_number_value(get(&r, "max_length")) == 1 && get(&r, "max_new_tokens") == NULL)
        key = "max_length"; /* the first token of a target counts, so no token could follow */
    if (r.status == RP_OK)  /* the keys of config.json were noted when it was read */
        r.status = t5_check_keys(m->generation_text != NULL ? m : NULL, T5_KEYS_GENERATION, path, root, &key);
    m->kept.refused_in = name;
    if (r.status == RP_OK && key != NULL && (m->kept.refused = strdup(key)) == NULL)
        r.status = t5_no_memory();
    if (r.status == RP_OK && c->names_start && c->start != before)
        r.status = t5_model_failed(model_add_note(&m->notes,
                                                  "%s: targets begin with token %d, although config.json says %d (%s)",
                                                  path, (int)c->start, (int)before, start));
    json_decref(root);
    return r.status;
}
