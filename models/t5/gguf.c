/* gguf.c -- reads the keys of a .gguf file, and gives its tensors the names that they have in a checkpoint.
 *
 * A config.json is written from the keys, so config.c checks the sizes, and a packed file contains it. The format
 * has no key for the activation: layers with a gate have gelu_new, others relu, as in llama.cpp.
 * SPDX-License-Identifier: Apache-2.0 */
#include "t5/gguf.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_DISTANCE = 128 }; /* T5's relative_attention_max_distance, for which there is no key */

/* ------------------------------------------------------------------------------------------------ names */

/* Names of the tensors of a layer: enc.blk.N.FROM.weight is encoder.block.N.layer.PART.TO.weight. A part of a layer has
 * a number: self-attention 0, cross-attention 1, the feed-forward layer 1 or, in the decoder, 2. */
typedef enum part { SELF, CROSS, FEED } part;
static const struct {
    const char *from;
    part part;
    const char *to;
} layer_names[] = {{"attn_norm", SELF, "layer_norm"},
                   {"attn_q", SELF, "SelfAttention.q"},
                   {"attn_k", SELF, "SelfAttention.k"},
                   {"attn_v", SELF, "SelfAttention.v"},
                   {"attn_o", SELF, "SelfAttention.o"},
                   {"attn_rel_b", SELF, "SelfAttention.relative_attention_bias"},
                   {"cross_attn_norm", CROSS, "layer_norm"},
                   {"cross_attn_q", CROSS, "EncDecAttention.q"},
                   {"cross_attn_k", CROSS, "EncDecAttention.k"},
                   {"cross_attn_v", CROSS, "EncDecAttention.v"},
                   {"cross_attn_o", CROSS, "EncDecAttention.o"},
                   {"cross_attn_rel_b", CROSS, "EncDecAttention.relative_attention_bias"},
                   {"ffn_norm", FEED, "layer_norm"},
                   {"ffn_gate", FEED, "DenseReluDense.wi_0"},
                   {"ffn_up", FEED, NULL}, /* wi_1, or wi without a gate */
                   {"ffn_down", FEED, "DenseReluDense.wo"}};
static const struct {
    const char *from, *to;
} other_names[] = {{"token_embd.weight", "shared.weight"},
                   {"output.weight", "lm_head.weight"},
                   {"enc.output_norm.weight", "encoder.final_layer_norm.weight"},
                   {"dec.output_norm.weight", "decoder.final_layer_norm.weight"}};

/* Write the name of a tensor of a layer. Return false if the name is unknown. */
static bool rename_layer(bool gated, const char *name, char *to, size_t size)
{
    char stack[4], rest[32];
    int layer, end = 0;
    if (sscanf(name, "%3[a-z].blk.%4d.%31[a-z_].weight%n", stack, &layer, rest, &end) != 3 || end == 0 ||
        name[end] != 0 || layer < 0)
        return false;
    const bool encoder = strcmp(stack, "enc") == 0;
    if (!encoder && strcmp(stack, "dec") != 0)
        return false;
    for (size_t n = 0; n < sizeof layer_names / sizeof *layer_names; n++) {
        if (strcmp(rest, layer_names[n].from) != 0)
            continue;
        const part p = layer_names[n].part;
        const char *known = layer_names[n].to;
        snprintf(to, size, "%s.block.%d.layer.%d.%s.weight", encoder ? "encoder" : "decoder", layer,
                 p == FEED && encoder ? 1 : (int)p,
                 known != NULL ? known
                 : gated       ? "DenseReluDense.wi_1"
                               : "DenseReluDense.wi");
        return true;
    }
    return false;
}

/* An io_renamer. Unknown names stay, and packing reports them. */
static bool rename_tensor(const void *context, const char *name, char *to, size_t size)
{
    const bool *gated = context;
    for (size_t n = 0; n < sizeof other_names / sizeof *other_names; n++)
        if (strcmp(name, other_names[n].from) == 0) {
            snprintf(to, size, "%s", other_names[n].to);
            return true;
        }
    if (!rename_layer(*gated, name, to, size))
        snprintf(to, size, "%s", name);
    return true;
}

/* ------------------------------------------------------------------------------------------------ keys */

typedef struct reader {
    const io_checkpoint *file;
    const char *path, *architecture;
    rp_status status; /* of the first error */
} reader;

/* Read a size: the value of the key ARCHITECTURE.name, or `fallback`; -1 means that the key is required. */
static int64_t size_of(reader *r, const char *name, int64_t fallback)
{
    char key[96];
    int64_t x = 0;
    snprintf(key, sizeof key, "%s.%s", r->architecture, name);
    const io_gguf_value *v = io_gguf_find(io_checkpoint_keys(r->file), key);
    if (v == NULL && fallback >= 0)
        return fallback;
    if (io_gguf_integer(v, &x) && x >= 1 && x <= MODEL_MAX_SIZE)
        return x;
    if (r->status == RP_OK)
        r->status = v == NULL ? t5_fail(RP_E_ARG, "%s: key %s is missing (convert the model again)", r->path, key)
                              : t5_fail(RP_E_ARG, "%s: key %s must be a whole number from 1 to %d", r->path, key,
                                        MODEL_MAX_SIZE);
    return 1;
}

/* Read the number of a token, which the vocabulary must have. */
static int64_t token_of(reader *r, const char *key, int64_t fallback, int64_t vocab)
{
    int64_t x = fallback;
    const io_gguf_value *v = io_gguf_find(io_checkpoint_keys(r->file), key);
    if (v != NULL && (!io_gguf_integer(v, &x) || x < 0 || x >= vocab) && r->status == RP_OK)
        r->status = t5_fail(RP_E_ARG, "%s: key %s must be a token from 0 to %" PRId64, r->path, key, vocab - 1);
    return x;
}

static bool has(const reader *r, const char *name)
{
    return io_checkpoint_find(r->file, name) != NULL;
}

/* Return true if the head is the embedding. */
static bool is_tied(const reader *r)
{
    const io_tensor *head = io_checkpoint_find(r->file, "output.weight"),
                    *embedding = io_checkpoint_find(r->file, "token_embd.weight");
    return head == NULL || (embedding != NULL && head->dtype == embedding->dtype && head->bytes == embedding->bytes &&
                            memcmp(head->data, embedding->data, head->bytes) == 0);
}

static rp_status check_file(reader *r)
{
    static const char *const known[] = {"t5", "t5encoder"};
    const io_gguf *keys = io_checkpoint_keys(r->file);
    int64_t parts = 1;
    for (int n = 0; n < 2; n++)
        if (io_gguf_is_text(io_gguf_find(keys, "general.architecture"), known[n]))
            r->architecture = known[n];
    if (r->architecture == NULL)
        return t5_fail(RP_E_UNSUPPORTED, "%s: general.architecture must be t5 or t5encoder (use a model of type T5)",
                       r->path);
    if (io_gguf_integer(io_gguf_find(keys, "split.count"), &parts) && parts > 1)
        return t5_fail(RP_E_UNSUPPORTED, "%s: it is one of %" PRId64 " parts; join them with llama-gguf-split --merge",
                       r->path, parts);
    return RP_OK;
}

/* Write a config.json. `gated`: the feed-forward layers have a gate. */
static rp_status write_config(reader *r, bool gated, char **text)
{
    enum { CONFIG = 1024 };
    const io_tensor *embedding = io_checkpoint_find(r->file, "token_embd.weight");
    if (embedding == NULL || embedding->ndim != 2)
        return t5_fail(RP_E_ARG, "%s: tensor token_embd.weight %s (use a model of type T5)", r->path,
                       embedding == NULL ? "is missing" : "does not have two axes");
    const int64_t vocab = embedding->shape[0], width = size_of(r, "embedding_length", -1),
                  heads = size_of(r, "attention.head_count", -1);
    const int64_t keys = size_of(r, "attention.key_length", width >= heads ? width / heads : 1);
    const int64_t layers = size_of(r, "block_count", -1);
    const int64_t pad = token_of(r, "tokenizer.ggml.padding_token_id", 0, vocab);
    char start[96];
    double eps = 1e-6;
    snprintf(start, sizeof start, "%s.attention.layer_norm_rms_epsilon", r->architecture);
    io_gguf_number(io_gguf_find(io_checkpoint_keys(r->file), start), &eps);
    snprintf(start, sizeof start, "%s.decoder_start_token_id", r->architecture);
    if (size_of(r, "attention.value_length", keys) != keys && r->status == RP_OK)
        r->status = t5_fail(RP_E_UNSUPPORTED, "%s: key %s.attention.value_length must equal attention.key_length",
                            r->path, r->architecture);
    if (!(eps >= 0 && eps <= 1) && r->status == RP_OK)
        r->status = t5_fail(RP_E_ARG, "%s: key %s.attention.layer_norm_rms_epsilon must be a number from 0 to 1",
                            r->path, r->architecture);
    *text = malloc(CONFIG);
    if (*text == NULL)
        return t5_no_memory();
    snprintf(*text, CONFIG,
             "{\"model_type\": \"%s\", \"vocab_size\": %" PRId64 ", \"d_model\": %" PRId64 ", \"num_heads\": %" PRId64
             ", \"d_kv\": %" PRId64 ", \"d_ff\": %" PRId64 ", \"num_layers\": %" PRId64
             ", \"num_decoder_layers\": %" PRId64 ", \"relative_attention_num_buckets\": %" PRId64
             ", \"relative_attention_max_distance\": %d, \"layer_norm_epsilon\": %.9g, \"feed_forward_proj\": \"%s\", "
             "\"tie_word_embeddings\": %s, \"pad_token_id\": %" PRId64 ", \"eos_token_id\": %" PRId64
             ", \"decoder_start_token_id\": %" PRId64 "}",
             has(r, "enc.blk.1.attn_rel_b.weight") ? "umt5" : "t5", vocab, width, heads, keys,
             size_of(r, "feed_forward_length", -1), layers, size_of(r, "decoder_block_count", layers),
             size_of(r, "attention.relative_buckets_count", 32), MAX_DISTANCE, eps, gated ? "gated-gelu" : "relu",
             is_tied(r) ? "true" : "false", pad, token_of(r, "tokenizer.ggml.eos_token_id", 1, vocab),
             token_of(r, start, pad, vocab));
    return r->status;
}

rp_status t5_gguf_describe(rp_t5 *m, const char *path)
{
    reader r = {.file = m->file, .path = path, .status = RP_OK};
    char err[IO_ERR_MAX] = "";
    rp_status status = check_file(&r);
    bool gated = has(&r, "enc.blk.0.ffn_gate.weight");
    if (status == RP_OK)
        status = write_config(&r, gated, &m->config_text);
    if (status == RP_OK && io_checkpoint_rename(m->file, rename_tensor, &gated, path, err) != IO_OK)
        status = t5_fail(RP_E_ARG, "%s", err);
    return status;
}
