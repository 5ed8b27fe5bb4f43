/* single.c -- opens a file of weights that has no config.json, such as text encoders of image and video models. Its
 * tensors have the names of transformers, with or without a prefix, or those of Wan; their shapes are the
 * configuration.
 * SPDX-License-Identifier: Apache-2.0 */
#include "t5/model.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Prefixes of the names in files that contain other models too. */
static const char *const prefixes[] = {"", "text_encoders.t5xxl.transformer.", "text_encoders.umt5xxl.transformer."};
enum { PREFIXES = sizeof prefixes / sizeof *prefixes };

/* Names of Wan's text encoder. %d is the number of a block. */
static const struct {
    const char *wan, *name;
} names[] = {
    {"token_embedding.weight", "shared.weight"},
    {"norm.weight", "encoder.final_layer_norm.weight"},
    {"blocks.%d.norm1.weight", "encoder.block.%d.layer.0.layer_norm.weight"},
    {"blocks.%d.attn.q.weight", "encoder.block.%d.layer.0.SelfAttention.q.weight"},
    {"blocks.%d.attn.k.weight", "encoder.block.%d.layer.0.SelfAttention.k.weight"},
    {"blocks.%d.attn.v.weight", "encoder.block.%d.layer.0.SelfAttention.v.weight"},
    {"blocks.%d.attn.o.weight", "encoder.block.%d.layer.0.SelfAttention.o.weight"},
    {"blocks.%d.pos_embedding.embedding.weight",
     "encoder.block.%d.layer.0.SelfAttention.relative_attention_bias.weight"},
    {"pos_embedding.embedding.weight", "encoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight"},
    {"blocks.%d.norm2.weight", "encoder.block.%d.layer.1.layer_norm.weight"},
    {"blocks.%d.ffn.gate.0.weight", "encoder.block.%d.layer.1.DenseReluDense.wi_0.weight"},
    {"blocks.%d.ffn.fc1.weight", "encoder.block.%d.layer.1.DenseReluDense.wi_1.weight"},
    {"blocks.%d.ffn.fc2.weight", "encoder.block.%d.layer.1.DenseReluDense.wo.weight"},
};
enum { NAMES = sizeof names / sizeof *names };

/* ------------------------------------------------------------------------------------------------ names */

/* Match a name with a pattern. Set *block to the number at %d. */
static bool matches(const char *pattern, const char *name, int *block)
{
    const char *number = strchr(pattern, '%');
    *block = 0;
    if (number == NULL)
        return strcmp(pattern, name) == 0;
    const size_t before = (size_t)(number - pattern);
    if (strncmp(pattern, name, before) != 0)
        return false;
    size_t digits = 0;
    for (; digits < 4 && name[before + digits] >= '0' && name[before + digits] <= '9'; digits++)
        *block = *block * 10 + (name[before + digits] - '0');
    return digits > 0 && strcmp(number + 2, name + before + digits) == 0;
}

/* Give a tensor the name that transformers gives it. Return false to leave out a tensor of another model. */
static bool rename_tensor(const void *context, const char *name, char *to, size_t size)
{
    const char *prefix = context;
    int block;
    const size_t n = strlen(prefix);
    if (strncmp(name, prefix, n) != 0)
        return false;
    for (int k = 0; k < NAMES; k++)
        if (matches(names[k].wan, name + n, &block)) {
            const char *number = strchr(names[k].name, '%');
            const int before = (int)(number != NULL ? number - names[k].name : (ptrdiff_t)strlen(names[k].name));
            if (number == NULL)
                snprintf(to, size, "%s", names[k].name);
            else
                snprintf(to, size, "%.*s%d%s", before, names[k].name, block, number + 2);
            return true;
        }
    snprintf(to, size, "%s", name + n);
    return strcmp(name + n, T5_EMBEDDED_TOKENIZER) != 0;
}

static bool has(const io_checkpoint *file, const char *prefix, const char *name)
{
    char full[160];
    snprintf(full, sizeof full, "%s%s", prefix, name);
    return io_checkpoint_find(file, full) != NULL;
}

/* Return the prefix of the names; NULL if the file has no encoder. */
static const char *find_prefix(const io_checkpoint *file)
{
    for (int k = 0; k < PREFIXES; k++)
        if (has(file, prefixes[k], "encoder.block.0.layer.0.SelfAttention.q.weight") ||
            has(file, prefixes[k], "blocks.0.attn.q.weight"))
            return prefixes[k];
    return NULL;
}

/* ------------------------------------------------------------------------------------------------ the configuration */

/* Return the size of an axis of a tensor with two axes; 0 if there is no such tensor. */
static int64_t axis(const io_checkpoint *file, const char *name, int x)
{
    const io_tensor *t = io_checkpoint_find(file, name);
    return t != NULL && t->ndim == 2 ? t->shape[x] : 0;
}

/* Count the blocks of a stack: the largest number in a name, plus one. */
static int count_blocks(const io_checkpoint *file, const char *stack)
{
    char begin[32];
    int n = 0;
    const size_t length = (size_t)snprintf(begin, sizeof begin, "%s.block.", stack);
    for (size_t k = 0; k < io_checkpoint_size(file); k++) {
        const char *name = io_checkpoint_at(file, k)->name;
        const int block = strncmp(name, begin, length) == 0 ? (int)strtol(name + length, NULL, 10) : -1;
        n = block >= n && block < 4096 ? block + 1 : n;
    }
    return n;
}

#define LAYER  "encoder.block.0.layer."
#define ADVICE " (convert the file again, or give a folder that save_pretrained wrote)"
#define BIAS   "SelfAttention.relative_attention_bias.weight"

/* Write config.json from the shapes of the tensors. */
static rp_status make_config(rp_t5 *m, const char *path)
{
    const io_checkpoint *f = m->file;
    const char *wi = LAYER "1.DenseReluDense.wi_0.weight";
    const char *embedding = has(f, "", "shared.weight") ? "shared.weight" : "encoder.embed_tokens.weight";
    const bool gated = has(f, "", wi);
    const int64_t heads = axis(f, LAYER "0." BIAS, 1), inner = axis(f, LAYER "0.SelfAttention.q.weight", 0);
    const int decoder = count_blocks(f, "decoder");
    const char *const needed[] = {embedding, LAYER "0.SelfAttention.q.weight", LAYER "0." BIAS,
                                  gated ? wi : LAYER "1.DenseReluDense.wi.weight"};
    char decoder_text[48] = "", *text = malloc(1024);
    if (text == NULL)
        return t5_no_memory();
    m->config_text = text;
    for (size_t n = 0; n < sizeof needed / sizeof *needed; n++)
        if (axis(f, needed[n], 0) <= 0)
            return t5_fail(RP_E_ARG, "%s: tensor '%s' %s" ADVICE, path, needed[n],
                           io_checkpoint_find(f, needed[n]) == NULL ? "is missing" : "is not a matrix with rows");
    if (heads <= 0 || inner % heads != 0)
        return t5_fail(RP_E_ARG,
                       "%s: its tensor '" LAYER "0." BIAS
                       "' has %lld heads, which do not divide the %lld rows of q" ADVICE,
                       path, (long long)heads, (long long)inner);
    if (decoder > 0)
        snprintf(decoder_text, sizeof decoder_text, ", \"num_decoder_layers\": %d", decoder);
    snprintf(text, 1024,
             "{\"model_type\": \"%s\", \"vocab_size\": %lld, \"d_model\": %lld, \"d_kv\": %lld, \"d_ff\": %lld, "
             "\"num_layers\": %d%s, \"num_heads\": %lld, \"relative_attention_num_buckets\": %lld, "
             "\"feed_forward_proj\": \"%s\", \"tie_word_embeddings\": %s}\n",
             has(f, "", "encoder.block.1.layer.0." BIAS) ? "umt5" : "t5", (long long)axis(f, embedding, 0),
             (long long)axis(f, embedding, 1), (long long)(inner / heads),
             (long long)axis(f, gated ? wi : LAYER "1.DenseReluDense.wi.weight", 0), count_blocks(f, "encoder"),
             decoder_text, (long long)heads, (long long)axis(f, LAYER "0." BIAS, 0), gated ? "gated-gelu" : "relu",
             has(f, "", "lm_head.weight") ? "false" : "true");
    const rp_status status = t5_config_read(m, path, text, strlen(text));
    m->config.advice = ADVICE;
    return status;
}

/* Copy the tokenizer that is a tensor of the file. */
static rp_status take_tokenizer(rp_t5 *m, const char *prefix, const char *path)
{
    char name[96];
    snprintf(name, sizeof name, "%s" T5_EMBEDDED_TOKENIZER, prefix);
    const io_tensor *t = io_checkpoint_find(m->file, name);
    if (t == NULL && prefix[0] != 0)
        t = io_checkpoint_find(m->file, T5_EMBEDDED_TOKENIZER);
    if (t == NULL || (t->dtype != RP_U8 && t->dtype != RP_I8) || t->bytes == 0)
        return RP_OK;
    return t5_copy_tokenizer(m, t, path);
}

rp_status t5_single(rp_t5 *m, const char *path)
{
    char err[IO_ERR_MAX] = "";
    rp_status status = t5_model_failed(model_strip_prefixes(m->file, &t5_names, &m->notes, path));
    if (status != RP_OK)
        return status;
    const char *prefix = find_prefix(m->file);
    if (prefix == NULL || prefix[0] == 0)
        status = t5_model_failed(model_check_names(m->file, &t5_names, path));
    if (status == RP_OK && prefix != NULL)
        status = take_tokenizer(m, prefix, path);
    else if (status == RP_OK)
        status = t5_fail(RP_E_ARG,
                         "%s: it is not a file of `relpos t5 pack`, and it has no T5 encoder (give a folder that "
                         "save_pretrained wrote, or a file with the names of transformers or Wan)",
                         path);
    if (status != RP_OK)
        return status;
    if (io_checkpoint_rename(m->file, rename_tensor, prefix, path, err) != IO_OK)
        return t5_fail(RP_E_ARG, "%s", err);
    return make_config(m, path);
}
