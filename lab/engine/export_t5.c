/* export_t5.c -- writes an encoder-decoder for Hugging Face's transformers: config.json, generation_config.json,
 * tokenizer_config.json and model.safetensors, for T5ForConditionalGeneration and ByT5Tokenizer.
 * SPDX-License-Identifier: Apache-2.0 */
#include "lab/engine/transformers.h"
#include <stdio.h>
#include <string.h>

/* ------------------------------------------------------------------------------------------------ checks */

/* Return the T5 term of a stack; NULL if it has other position terms or none. */
static const rp_term *table_of(const nn_stack *s)
{
    const bool only_t5 = s->n_terms == 1 && s->terms[0].term.kind == RP_TERM_T5 && !s->sinusoidal && !s->learned;
    return only_t5 ? &s->terms[0].term : NULL;
}

/* Check that T5's configuration can describe the model. */
static int check_shape(const nn_model *m, char err[NN_ERR_MAX])
{
    const nn_config *c = &m->c;
    if (c->norm != LAYERS_RMSNORM)
        return nn_fail(err, "norm = layernorm: T5 has rmsnorm (set norm = rmsnorm, or use --model)");
    if (c->act != LAYERS_RELU && c->act != LAYERS_GEGLU)
        return nn_fail(err, "activation = %s: T5 has relu or geglu (set activation to one of them, or use --model)",
                       c->act == LAYERS_GELU ? "gelu" : "swiglu");
    if (nn_embedding_scale(c) != 1)
        return nn_fail(err,
                       "embedding_scale = %g: T5 does not scale embeddings (set embedding_scale = 1, or use --model)",
                       c->embedding_scale);
    if (c->scale != 1)
        return nn_fail(err, "scale = %g: T5 does not scale scores (set scale = 1, or use --model)", c->scale);
    const rp_term *table[NN_STACKS];
    for (int k = 0; k < NN_STACKS; k++) {
        const char *key = k == 0 && c->encoder_position[0] ? "encoder_position" : "position";
        const char *value = k == 0 && c->encoder_position[0] ? c->encoder_position : c->position;
        table[k] = table_of(&m->stack[k]);
        if (!table[k])
            return nn_fail(err, "%s = %.100s: T5 supports only one t5 table (set preset = t5, or use --model)", key,
                           value);
        if (table[k]->bidirectional != !m->stack[k].causal)
            return nn_fail(
                err, "%s = %.100s: in T5 the table of the %s has bidirectional=%d (set preset = t5, or use --model)",
                key, value, k == 0 ? "encoder" : "decoder", !m->stack[k].causal);
    }
    if (table[0]->buckets != table[1]->buckets || table[0]->max_distance != table[1]->max_distance)
        return nn_fail(err,
                       "encoder_position = %.100s: in T5 its buckets and max_distance equal those of position = %.100s "
                       "(set preset = t5, or use --model)",
                       c->encoder_position, c->position);
    if (c->nope_every > 0)
        return nn_fail(err, "nope_every: T5 uses its table in every layer (set nope_every = 0, or use --model)");
    if (!c->position_layers)
        return nn_fail(
            err,
            "position_layers = own: all layers of T5 share one table (set position_layers = shared, or use --model)");
    return c->position_heads ? nn_fail(err, "position_heads = shared: each head of T5 has separate biases (set "
                                            "position_heads = own, or use --model)")
                             : 0;
}

/* ------------------------------------------------------------------------------------------------ names */

/* Divide the rows of our parameter `ours` into `parts` equal parts: the tensor `theirs` of transformers is part number
 * `part`. */
typedef struct tensor_name {
    const char *ours, *theirs;
    int part, parts;
} tensor_name;

/* Names within a layer. Our names begin with "encoder.layers.N." or "decoder.layers.N."; those of transformers begin
 * with "encoder.block.N.layer." or "decoder.block.N.layer.". */
static const tensor_name attention[] = {
    {"attn_norm.weight", "0.layer_norm.weight", 0, 1},     {"attn.qkv.weight", "0.SelfAttention.q.weight", 0, 3},
    {"attn.qkv.weight", "0.SelfAttention.k.weight", 1, 3}, {"attn.qkv.weight", "0.SelfAttention.v.weight", 2, 3},
    {"attn.out.weight", "0.SelfAttention.o.weight", 0, 1}, {NULL, NULL, 0, 0},
};
static const tensor_name cross[] = {
    {"cross_norm.weight", "1.layer_norm.weight", 0, 1},       {"cross.q.weight", "1.EncDecAttention.q.weight", 0, 1},
    {"cross.kv.weight", "1.EncDecAttention.k.weight", 0, 2},  {"cross.kv.weight", "1.EncDecAttention.v.weight", 1, 2},
    {"cross.out.weight", "1.EncDecAttention.o.weight", 0, 1}, {NULL, NULL, 0, 0},
};
static const tensor_name plain_mlp[] = {
    /* %d is 1 in the encoder and 2 in the decoder */
    {"mlp_norm.weight", "%d.layer_norm.weight", 0, 1},
    {"mlp.up.weight", "%d.DenseReluDense.wi.weight", 0, 1},
    {"mlp.down.weight", "%d.DenseReluDense.wo.weight", 0, 1},
    {NULL, NULL, 0, 0},
};
static const tensor_name gated_mlp[] = {
    {"mlp_norm.weight", "%d.layer_norm.weight", 0, 1},
    {"mlp.up.weight", "%d.DenseReluDense.wi_0.weight", 0, 2},
    {"mlp.up.weight", "%d.DenseReluDense.wi_1.weight", 1, 2},
    {"mlp.down.weight", "%d.DenseReluDense.wo.weight", 0, 1},
    {NULL, NULL, 0, 0},
};

/* Add a part of a parameter, converted to `type`. */
static int add(io_set *set, const nn_model *m, const char *ours, const char *theirs, int part, int parts, rp_dtype type,
               char err[NN_ERR_MAX])
{
    const nn_param *p = &m->params[nn_model_find(m, ours)];
    int64_t shape[RP_MAX_AXES];
    const real *from = m->w + p->offset + part * (p->size / parts);
    memcpy(shape, p->shape, sizeof shape);
    shape[0] /= parts;
    return nn_add_tensor(set, theirs, p->ndim, shape, from, type, err);
}

static int add_group(io_set *set, const nn_model *m, const nn_stack *s, int64_t layer, const tensor_name *group,
                     rp_dtype type, char err[NN_ERR_MAX])
{
    for (; group->ours; group++) {
        char ours[128], theirs[192], tail[64];
        snprintf(ours, sizeof ours, "%slayers.%lld.%s", s->prefix, (long long)layer, group->ours);
        snprintf(tail, sizeof tail, "%d%s", s->cross ? 2 : 1, group->theirs + strcspn(group->theirs, "."));
        snprintf(theirs, sizeof theirs, "%sblock.%lld.layer.%s", s->prefix, (long long)layer,
                 *group->theirs == '%' ? tail : group->theirs);
        if (add(set, m, ours, theirs, group->part, group->parts, type, err) != 0)
            return -1;
    }
    return 0;
}

static int add_stack(io_set *set, const nn_model *m, const nn_stack *s, rp_dtype type, char err[NN_ERR_MAX])
{
    char ours[64], theirs[96];
    snprintf(ours, sizeof ours, "%sattn.t5.table", s->prefix);
    snprintf(theirs, sizeof theirs, "%sblock.0.layer.0.SelfAttention.relative_attention_bias.weight", s->prefix);
    if (add(set, m, ours, theirs, 0, 1, type, err) != 0)
        return -1;
    for (int64_t l = 0; l < s->layers; l++)
        if (add_group(set, m, s, l, attention, type, err) != 0 ||
            (s->cross && add_group(set, m, s, l, cross, type, err) != 0) ||
            add_group(set, m, s, l, m->c.act == LAYERS_GEGLU ? gated_mlp : plain_mlp, type, err) != 0)
            return -1;
    snprintf(ours, sizeof ours, "%snorm.weight", s->prefix);
    snprintf(theirs, sizeof theirs, "%sfinal_layer_norm.weight", s->prefix);
    return add(set, m, ours, theirs, 0, 1, type, err);
}

static int write_weights(const nn_model *m, const char *dir, rp_dtype type, char err[NN_ERR_MAX])
{
    io_set set = {0};
    int code = add(&set, m, "embedding.weight", "shared.weight", 0, 1, type, err);
    for (int k = 0; k < NN_STACKS && code == 0; k++)
        code = add_stack(&set, m, &m->stack[k], type, err);
    if (code == 0 && !m->c.tied)
        code = add(&set, m, "head.weight", "lm_head.weight", 0, 1, type, err);
    return nn_write_tensors(&set, dir, code, err);
}

/* ------------------------------------------------------------------------------------------------ files */

/* Print config.json. Return false if out of memory: snprintf allocates when it has so many arguments. */
static bool print_config(const nn_model *m, rp_dtype type, char *text, size_t size)
{
    const nn_config *c = &m->c;
    const rp_term *table = &m->stack[0].terms[0].term;
    char eps[NN_REAL_MAX], dropout[NN_REAL_MAX];
    nn_print_real(eps, c->norm_eps);
    nn_print_real(dropout, c->dropout);
    return snprintf(text, size,
                    "{\n"
                    "  \"architectures\": [\"T5ForConditionalGeneration\"],\n"
                    "  \"model_type\": \"t5\",\n"
                    "  \"d_model\": %lld,\n  \"d_kv\": %lld,\n  \"d_ff\": %lld,\n  \"num_heads\": %lld,\n"
                    "  \"num_layers\": %lld,\n  \"num_decoder_layers\": %lld,\n"
                    "  \"relative_attention_num_buckets\": %lld,\n  \"relative_attention_max_distance\": %lld,\n"
                    "  \"feed_forward_proj\": \"%s\",\n  \"layer_norm_epsilon\": %s,\n  \"dropout_rate\": %s,\n"
                    "  \"vocab_size\": %lld,\n  \"tie_word_embeddings\": %s,\n  \"is_encoder_decoder\": true,\n"
                    "  \"pad_token_id\": %d,\n  \"eos_token_id\": %d,\n  \"decoder_start_token_id\": %d,\n"
                    "  \"tokenizer_class\": \"ByT5Tokenizer\",\n  \"dtype\": \"%s\"\n}\n",
                    (long long)c->width, (long long)(c->width / c->heads), (long long)c->mlp, (long long)c->heads,
                    (long long)m->stack[0].layers, (long long)m->stack[1].layers, (long long)table->buckets,
                    (long long)table->max_distance, c->act == LAYERS_GEGLU ? "gated-gelu" : "relu", eps, dropout,
                    (long long)c->vocab, c->tied ? "true" : "false", NN_PAD, NN_END, NN_PAD, nn_torch_type(type)) >= 0;
}

static int write_files(const nn_model *m, const char *dir, rp_dtype type, char err[NN_ERR_MAX])
{
    char text[2048];
    if (!print_config(m, type, text, sizeof text))
        return nn_fail(err, "%.300s: out of memory while writing config.json (close other programs)", dir);
    if (nn_write_text(dir, "config.json", text, err) != 0)
        return -1;
    snprintf(text, sizeof text,
             "{\n  \"decoder_start_token_id\": %d,\n  \"eos_token_id\": %d,\n  \"pad_token_id\": %d,\n"
             "  \"max_new_tokens\": %lld\n}\n",
             NN_PAD, NN_END, NN_PAD, (long long)m->stack[1].length);
    if (nn_write_text(dir, "generation_config.json", text, err) != 0)
        return -1;
    snprintf(text, sizeof text, "{\n  \"tokenizer_class\": \"ByT5Tokenizer\",\n  \"extra_ids\": %lld\n}\n",
             (long long)(m->c.vocab - NN_TOKENS < 125 ? m->c.vocab - NN_TOKENS : 125));
    if (nn_write_text(dir, "tokenizer_config.json", text, err) != 0)
        return -1;
    return write_weights(m, dir, type, err);
}

const nn_exporter nn_t5_family = {check_shape, write_files};
