/* decoders.c -- writes a decoder for Hugging Face's transformers, as the class that computes the same function: GPT-2
 * (positions added to the embedding, or none), GPT-NeoX (RoPE, LayerNorm) or Llama (RoPE, RMSNorm, gated MLP). Our
 * linear layers have no biases; where a class requires biases, zeros are written.
 * SPDX-License-Identifier: Apache-2.0 */
#include "lab/engine/net_layers.h"
#include "lab/engine/transformers.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CLASSES "GPT-2, GPT-NeoX and Llama"
typedef enum form { GPT2, NEOX, LLAMA, N_FORMS } form;
static const struct {
    const char *class, *type, *body, *layer, *embedding, *last_norm;
} forms[N_FORMS] = {
    {"GPT2LMHeadModel", "gpt2", "transformer", "h", "wte", "ln_f"},
    {"GPTNeoXForCausalLM", "gpt_neox", "gpt_neox", "layers", "embed_in", "final_layer_norm"},
    {"LlamaForCausalLM", "llama", "model", "layers", "embed_tokens", "norm"},
};

/* ---------------------------------------------------------------------------------------------- choice of the class */

/* Choose the class for a model. If no class fits, the error names the key to change. */
static int form_of(const nn_model *m, form *to, char err[NN_ERR_MAX])
{
    const nn_config *c = &m->c;
    const nn_stack *s = &m->stack[0];
    const rp_term *rope = s->n_terms == 1 && s->terms[0].term.kind == RP_TERM_ROPE ? &s->terms[0].term : NULL;
    const bool added = s->sinusoidal || s->learned, gated = c->act == LAYERS_SWIGLU || c->act == LAYERS_GEGLU;
    const int64_t D = c->width / c->heads;
    if (c->task != NN_DECODER)
        return nn_fail(err, "task = classifier: " CLASSES " are decoders (set task = decoder, or use --model)");
    if (c->log_scale != NN_LOG_NONE)
        return nn_fail(err, "log_scale = %s: " CLASSES " do not support it (set log_scale = none, or use --model)",
                       c->log_scale == NN_LOG_FIXED ? "fixed" : "learned");
    if (c->random_positions > 0)
        return nn_fail(err,
                       "random_positions = %lld: " CLASSES " number positions from 0 (set random_positions = 0, or use "
                       "--model)",
                       (long long)c->random_positions);
    if (c->nope_every > 0 && s->n_terms > 0)
        return nn_fail(err,
                       "nope_every = %lld: " CLASSES " have the same positions in every layer (set nope_every = 0, "
                       "or use --model)",
                       (long long)c->nope_every);
    if (c->scale > 0 && fabs(c->scale * sqrt((double)D) - 1) > 1e-12)
        return nn_fail(err, "scale = %g: " CLASSES " use 1/sqrt(width / heads) (set scale = 0, or use --model)",
                       c->scale);
    if ((s->n_terms > 0 && !rope) || (rope && added))
        return nn_fail(err,
                       "position = %.100s: " CLASSES " do not have it (set position = none, sinusoidal, learned or "
                       "rope, or use --model)",
                       c->position);
    *to = !rope ? GPT2 : c->norm == LAYERS_LAYERNORM ? NEOX : LLAMA;
    if (rope && (rope->layout != 0 || rope->scaling != 0))
        return nn_fail(
            err,
            "position = %.100s: export to GPT-NeoX and Llama needs layout=half and scaling=none (change rope, "
            "or use --model)",
            c->position);
    const int64_t dim = rope && rope->dim > 0 ? rope->dim : D;
    if (*to == NEOX && (int64_t)((double)D * ((double)dim / (double)D)) != dim)
        return nn_fail(err,
                       "position: rope has dim=%lld; the configuration of GPT-NeoX has it as a fraction of %lld "
                       "channels, which rounds to another dim (change dim, or use --model)",
                       (long long)dim, (long long)D);
    if (*to == LLAMA && dim != D)
        return nn_fail(err, "position: rope has dim=%lld; Llama rotates all %lld channels (remove dim, or use --model)",
                       (long long)dim, (long long)D);
    if (*to != LLAMA && c->norm != LAYERS_LAYERNORM)
        return nn_fail(err, "norm = rmsnorm: without rope the class is GPT-2, which has layernorm (set norm = "
                            "layernorm, or use --model)");
    if (*to != LLAMA && gated)
        return nn_fail(err, "activation = %s: %s has no gated MLP (set activation = gelu or relu, or use --model)",
                       c->act == LAYERS_SWIGLU ? "swiglu" : "geglu", *to == GPT2 ? "GPT-2" : "GPT-NeoX");
    return *to == LLAMA && !gated
               ? nn_fail(err,
                         "activation = %s: with rope and rmsnorm the class is Llama, which has a gated MLP (set "
                         "activation = swiglu or geglu, or norm = layernorm, or use --model)",
                         c->act == LAYERS_GELU ? "gelu" : "relu")
               : 0;
}

static int check_shape(const nn_model *m, char err[NN_ERR_MAX])
{
    form f;
    return form_of(m, &f, err);
}

/* ------------------------------------------------------------------------------------------------ weights */

/* How a tensor of transformers is made from one of our parameters. */
typedef enum change {
    SAME,
    TRANSPOSED, /* [in, out] instead of [out, in] */
    BY_HEAD,    /* q, k and v of head 0, then q, k and v of head 1, ... */
    NO_BIAS     /* zeros, one for each row of the parameter */
} change;

/* Divide the rows of our parameter `ours` into `parts` equal parts: the tensor `theirs` of transformers is part number
 * `part`. */
typedef struct tensor_name {
    const char *ours, *theirs;
    change how;
    int part, parts;
} tensor_name;

static const tensor_name gpt2[] = {
    {"attn_norm.weight", "ln_1.weight", SAME, 0, 1},
    {"attn_norm.bias", "ln_1.bias", SAME, 0, 1},
    {"attn.qkv.weight", "attn.c_attn.weight", TRANSPOSED, 0, 1},
    {"attn.qkv.weight", "attn.c_attn.bias", NO_BIAS, 0, 1},
    {"attn.out.weight", "attn.c_proj.weight", TRANSPOSED, 0, 1},
    {"attn.out.weight", "attn.c_proj.bias", NO_BIAS, 0, 1},
    {"mlp_norm.weight", "ln_2.weight", SAME, 0, 1},
    {"mlp_norm.bias", "ln_2.bias", SAME, 0, 1},
    {"mlp.up.weight", "mlp.c_fc.weight", TRANSPOSED, 0, 1},
    {"mlp.up.weight", "mlp.c_fc.bias", NO_BIAS, 0, 1},
    {"mlp.down.weight", "mlp.c_proj.weight", TRANSPOSED, 0, 1},
    {"mlp.down.weight", "mlp.c_proj.bias", NO_BIAS, 0, 1},
    {NULL, NULL, SAME, 0, 0},
};
static const tensor_name neox[] = {
    {"attn_norm.weight", "input_layernorm.weight", SAME, 0, 1},
    {"attn_norm.bias", "input_layernorm.bias", SAME, 0, 1},
    {"attn.qkv.weight", "attention.query_key_value.weight", BY_HEAD, 0, 1},
    {"attn.qkv.weight", "attention.query_key_value.bias", NO_BIAS, 0, 1},
    {"attn.out.weight", "attention.dense.weight", SAME, 0, 1},
    {"attn.out.weight", "attention.dense.bias", NO_BIAS, 0, 1},
    {"mlp_norm.weight", "post_attention_layernorm.weight", SAME, 0, 1},
    {"mlp_norm.bias", "post_attention_layernorm.bias", SAME, 0, 1},
    {"mlp.up.weight", "mlp.dense_h_to_4h.weight", SAME, 0, 1},
    {"mlp.up.weight", "mlp.dense_h_to_4h.bias", NO_BIAS, 0, 1},
    {"mlp.down.weight", "mlp.dense_4h_to_h.weight", SAME, 0, 1},
    {"mlp.down.weight", "mlp.dense_4h_to_h.bias", NO_BIAS, 0, 1},
    {NULL, NULL, SAME, 0, 0},
};
static const tensor_name llama[] = {
    {"attn_norm.weight", "input_layernorm.weight", SAME, 0, 1},
    {"attn.qkv.weight", "self_attn.q_proj.weight", SAME, 0, 3},
    {"attn.qkv.weight", "self_attn.k_proj.weight", SAME, 1, 3},
    {"attn.qkv.weight", "self_attn.v_proj.weight", SAME, 2, 3},
    {"attn.out.weight", "self_attn.o_proj.weight", SAME, 0, 1},
    {"mlp_norm.weight", "post_attention_layernorm.weight", SAME, 0, 1},
    {"mlp.up.weight", "mlp.gate_proj.weight", SAME, 0, 2},
    {"mlp.up.weight", "mlp.up_proj.weight", SAME, 1, 2},
    {"mlp.down.weight", "mlp.down_proj.weight", SAME, 0, 1},
    {NULL, NULL, SAME, 0, 0},
};
static const tensor_name *const names[N_FORMS] = {gpt2, neox, llama};

/* Add the tensor `theirs`: our parameter `ours`, changed according to `how` and multiplied by `factor`. */
static int add(io_set *set, const nn_model *m, const char *ours, const char *theirs, const tensor_name *how,
               double factor, rp_dtype type, char err[NN_ERR_MAX])
{
    const nn_param *p = &m->params[nn_model_find(m, ours)];
    const int64_t rows = p->shape[0] / how->parts, columns = p->ndim > 1 ? p->shape[1] : 1;
    const int64_t heads = m->c.heads, D = m->c.width / heads;
    const real *from = m->w + p->offset + how->part * rows * columns;
    real *to = calloc((size_t)(rows * columns) + 1, sizeof *to);
    if (!to)
        return nn_fail(err, "lab: out of memory while converting %.100s (close other programs)", theirs);
    for (int64_t r = 0; r < rows && how->how != NO_BIAS; r++)
        for (int64_t c = 0; c < columns; c++) {
            const int64_t of_head = (r % m->c.width / D * 3 + r / m->c.width) * D + r % D;
            const int64_t at = how->how == TRANSPOSED ? c * rows + r
                               : how->how == BY_HEAD  ? of_head * columns + c
                                                      : r * columns + c;
            to[at] = (real)factor * from[r * columns + c];
        }
    const int64_t shape[2] = {how->how == TRANSPOSED ? columns : rows, how->how == TRANSPOSED ? rows : columns};
    const int code = nn_add_tensor(set, theirs, how->how == NO_BIAS ? 1 : p->ndim, shape, to, type, err);
    free(to);
    return code;
}

/* Add GPT-2's table of positions: learned positions, sinusoids, their sum, or zeros. */
static int add_positions(io_set *set, const nn_model *m, rp_dtype type, char err[NN_ERR_MAX])
{
    const nn_stack *s = &m->stack[0];
    const int64_t shape[2] = {s->length, m->c.width};
    const int32_t learned = nn_model_find(m, "positions.weight");
    real *to = calloc((size_t)(shape[0] * shape[1]), sizeof *to);
    if (!to)
        return nn_fail(err, "lab: out of memory while computing %lld positions (close other programs)",
                       (long long)s->length);
    for (int64_t x = 0; x < shape[0] * shape[1]; x++) {
        to[x] = learned >= 0 ? m->w[m->params[learned].offset + x] : 0;
        if (s->sinusoidal)
            to[x] += (real)(nn_sinusoidal_scale(&m->c) * nn_sinusoid((double)(x / shape[1]), x % shape[1], shape[1]));
    }
    const int code = nn_add_tensor(set, "transformer.wpe.weight", 2, shape, to, type, err);
    free(to);
    return code;
}

/* Return true if the head and the embedding are written as the same matrix. A scaled embedding is multiplied by its
 * scale when written, so it then differs from the head. */
static bool is_tied(const nn_config *c)
{
    return c->tied && nn_embedding_scale(c) == 1;
}

static int write_weights(const nn_model *m, form f, const char *dir, rp_dtype type, char err[NN_ERR_MAX])
{
    static const tensor_name whole = {NULL, NULL, SAME, 0, 1};
    io_set set = {0};
    char ours[96], theirs[160];
    snprintf(theirs, sizeof theirs, "%s.%s.weight", forms[f].body, forms[f].embedding);
    int code = add(&set, m, "embedding.weight", theirs, &whole, nn_embedding_scale(&m->c), type, err);
    if (f == GPT2 && code == 0)
        code = add_positions(&set, m, type, err);
    for (int64_t l = 0; l < m->c.layers; l++)
        for (const tensor_name *n = names[f]; n->ours && code == 0; n++) {
            snprintf(ours, sizeof ours, "layers.%lld.%s", (long long)l, n->ours);
            snprintf(theirs, sizeof theirs, "%s.%s.%lld.%s", forms[f].body, forms[f].layer, (long long)l, n->theirs);
            code = add(&set, m, ours, theirs, n, 1, type, err);
        }
    for (int bias = 0; bias <= (f != LLAMA) && code == 0; bias++) {
        snprintf(theirs, sizeof theirs, "%s.%s.%s", forms[f].body, forms[f].last_norm, bias ? "bias" : "weight");
        code = add(&set, m, bias ? "norm.bias" : "norm.weight", theirs, &whole, 1, type, err);
    }
    if (code == 0 && !is_tied(&m->c))
        code = add(&set, m, m->c.tied ? "embedding.weight" : "head.weight",
                   f == NEOX ? "embed_out.weight" : "lm_head.weight", &whole, 1, type, err);
    return nn_write_tensors(&set, dir, code, err);
}

/* ------------------------------------------------------------------------------------------------ configuration */

static int write_config(const nn_model *m, form f, const char *dir, rp_dtype type, char err[NN_ERR_MAX])
{
    const nn_config *c = &m->c;
    const rp_term *rope = &m->stack[0].terms[0].term;
    const int64_t D = c->width / c->heads;
    char text[4096], own[2048], eps[NN_REAL_MAX], dropout[NN_REAL_MAX], base[NN_REAL_MAX], part[NN_REAL_MAX], bos[32];
    const char *act = c->act == LAYERS_RELU     ? "relu"
                      : c->act == LAYERS_SWIGLU ? "silu"
                      : f == LLAMA              ? "gelu_pytorch_tanh"
                                                : "gelu_new";
    nn_print_real(eps, c->norm_eps);
    nn_print_real(dropout, c->dropout);
    nn_print_real(base, f == GPT2 ? 1 : rope->base);
    nn_print_real(part, f == GPT2 || rope->dim == 0 ? 1 : (double)rope->dim / (double)D);
    snprintf(bos, sizeof bos, c->bos ? "%d" : "null", (int)nn_first_token(c));
    int used;
    if (f == GPT2)
        used = snprintf(own, sizeof own,
                        "  \"n_embd\": %lld,\n  \"n_layer\": %lld,\n  \"n_head\": %lld,\n  \"n_inner\": %lld,\n"
                        "  \"n_positions\": %lld,\n  \"activation_function\": \"%s\",\n  \"layer_norm_epsilon\": %s,\n"
                        "  \"embd_pdrop\": 0.0,\n  \"attn_pdrop\": %s,\n  \"resid_pdrop\": %s,\n",
                        (long long)c->width, (long long)c->layers, (long long)c->heads, (long long)c->mlp,
                        (long long)m->stack[0].length, act, eps, dropout, dropout);
    else
        used = snprintf(own, sizeof own,
                        "  \"hidden_size\": %lld,\n  \"num_hidden_layers\": %lld,\n  \"num_attention_heads\": %lld,\n"
                        "  \"num_key_value_heads\": %lld,\n  \"head_dim\": %lld,\n  \"intermediate_size\": %lld,\n"
                        "  \"max_position_embeddings\": %lld,\n  \"hidden_act\": \"%s\",\n  \"%s\": %s,\n"
                        "  \"use_parallel_residual\": false,\n  \"attention_dropout\": %s,\n  \"hidden_dropout\": %s,\n"
                        "  \"rope_theta\": %s,\n  \"rotary_emb_base\": %s,\n  \"rotary_pct\": %s,\n"
                        "  \"rope_parameters\": {\"rope_type\": \"default\", \"rope_theta\": %s, "
                        "\"partial_rotary_factor\": %s},\n",
                        (long long)c->width, (long long)c->layers, (long long)c->heads, (long long)c->heads,
                        (long long)D, (long long)c->mlp, (long long)m->stack[0].length, act,
                        f == LLAMA ? "rms_norm_eps" : "layer_norm_eps", eps, dropout, dropout, base, base, part, base,
                        part);
    if (used < 0 || snprintf(text, sizeof text,
                             "{\n  \"architectures\": [\"%s\"],\n  \"model_type\": \"%s\",\n%s"
                             "  \"vocab_size\": %lld,\n  \"tie_word_embeddings\": %s,\n  \"bos_token_id\": %s,\n"
                             "  \"eos_token_id\": null,\n  \"pad_token_id\": null,\n  \"dtype\": \"%s\"\n}\n",
                             forms[f].class, forms[f].type, own, (long long)c->vocab, is_tied(c) ? "true" : "false",
                             bos, nn_torch_type(type)) < 0)
        return nn_fail(err, "%.300s: out of memory while writing config.json (close other programs)", dir);
    return nn_write_text(dir, "config.json", text, err);
}

/* ------------------------------------------------------------------------------------------------ tokens */

/* Return the character that represents a byte in GPT-2's byte-level tokenizer: the byte itself if it is printable,
 * otherwise the next unused character, starting at U+0100. */
static int character_of(int byte)
{
    const bool printable = (byte > 32 && byte < 127) || (byte > 160 && byte != 173);
    int before = 0;
    for (int b = 0; b < byte && !printable; b++)
        before += !((b > 32 && b < 127) || (b > 160 && b != 173));
    return printable ? byte : 256 + before;
}

/* Write a byte tokenizer: tokens 0 … 255 and, with bos = 1, a first token before each text. */
static int write_tokenizer(const nn_model *m, const char *dir, char err[NN_ERR_MAX])
{
    const char *added = "", *first = "null";
    char text[16384];
    size_t used = 0;
    if (m->tokenizer) /* a SentencePiece model is not converted; the checkpoint contains its file */
        return 0;
    if (m->c.bos) {
        added = "{\"id\": 256, \"content\": \"<bos>\", \"special\": true, \"single_word\": false, \"lstrip\": false, "
                "\"rstrip\": false, \"normalized\": false}";
        first = "{\"type\": \"TemplateProcessing\", \"single\": [{\"SpecialToken\": {\"id\": \"<bos>\", \"type_id\": "
                "0}}, {\"Sequence\": {\"id\": \"A\", \"type_id\": 0}}], \"pair\": [{\"SpecialToken\": {\"id\": "
                "\"<bos>\", \"type_id\": 0}}, {\"Sequence\": {\"id\": \"A\", \"type_id\": 0}}, {\"Sequence\": {\"id\": "
                "\"B\", \"type_id\": 0}}], \"special_tokens\": {\"<bos>\": {\"id\": \"<bos>\", \"ids\": [256], "
                "\"tokens\": [\"<bos>\"]}}}";
    }
    used += (size_t)snprintf(text, sizeof text,
                             "{\n  \"version\": \"1.0\",\n  \"added_tokens\": [%s],\n  \"normalizer\": null,\n"
                             "  \"pre_tokenizer\": {\"type\": \"ByteLevel\", \"add_prefix_space\": false, "
                             "\"trim_offsets\": true, \"use_regex\": false},\n"
                             "  \"post_processor\": %s,\n"
                             "  \"decoder\": {\"type\": \"ByteLevel\", \"add_prefix_space\": false, "
                             "\"trim_offsets\": true, \"use_regex\": false},\n"
                             "  \"model\": {\"type\": \"BPE\", \"vocab\": {",
                             added, first);
    for (int byte = 0; byte < 256; byte++)
        used += (size_t)snprintf(text + used, sizeof text - used, "%s\"\\u%04x\": %d", byte ? ", " : "",
                                 (unsigned)character_of(byte), byte);
    snprintf(text + used, sizeof text - used, "}, \"merges\": []}\n}\n");
    if (nn_write_text(dir, "tokenizer.json", text, err) != 0)
        return -1;
    return nn_write_text(dir, "tokenizer_config.json",
                         m->c.bos
                             ? "{\n  \"tokenizer_class\": \"PreTrainedTokenizerFast\",\n  \"bos_token\": \"<bos>\",\n"
                               "  \"clean_up_tokenization_spaces\": false\n}\n"
                             : "{\n  \"tokenizer_class\": \"PreTrainedTokenizerFast\",\n"
                               "  \"clean_up_tokenization_spaces\": false\n}\n",
                         err);
}

static int write_files(const nn_model *m, const char *dir, rp_dtype type, char err[NN_ERR_MAX])
{
    form f;
    return form_of(m, &f, err) == 0 && write_config(m, f, dir, type, err) == 0 && write_tokenizer(m, dir, err) == 0
               ? write_weights(m, f, dir, type, err)
               : -1;
}

const nn_exporter nn_decoder_family = {check_shape, write_files};
