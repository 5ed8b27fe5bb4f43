/* architectures.c -- the table of architectures. A new one is a row here, the keys of its config.json in keys.def, and
 * a golden file in tests/encoder.
 * SPDX-License-Identifier: Apache-2.0 */
#include "encoder/encoder.h"
#include <string.h>

/* Heads and poolers of other classes of transformers, and numbers of positions that older versions stored. */
static const char *const strays[] = {
    "embeddings.position_ids", "embeddings.token_type_ids", "pooler.*",   "/pooler.*", "/cls.*", "/lm_head.*",
    "/lm_predictions.*",       "/mask_predictions.*",       "/decoder.*", "/head.*",   NULL};

/* Rotary models of older versions have a table of positions, which is not used. */
static const char *const esm_strays[] = {"embeddings.position_ids",
                                         "embeddings.position_embeddings.weight",
                                         "pooler.*",
                                         "contact_head.*",
                                         "/lm_head.*",
                                         NULL};

#define BERT_FEED                                                                                                      \
    .up = "encoder.layer.#.intermediate.dense", .down = "encoder.layer.#.output.dense",                                \
    .feed_norm = "encoder.layer.#.output.LayerNorm"
#define BERT_EMBEDDING                                                                                                 \
    .word = "embeddings.word_embeddings", .position = "embeddings.position_embeddings",                                \
    .token_type = "embeddings.token_type_embeddings", .embedding_norm = "embeddings.LayerNorm"
#define BERT_LAYERS                                                                                                    \
    BERT_EMBEDDING, .q = "encoder.layer.#.attention.self.query", .k = "encoder.layer.#.attention.self.key",            \
                    .v = "encoder.layer.#.attention.self.value", .o = "encoder.layer.#.attention.output.dense",        \
                    .attention_norm = "encoder.layer.#.attention.output.LayerNorm", BERT_FEED
#define ROBERTA_HEAD .head_dense = "/classifier.dense", .head_out = "/classifier.out_proj"
#define BERT_KEYS    .keys = ENCODER_KEYS_BERT, COMMON_KEYS
#define COMMON_KEYS  .strays = strays, .eps_key = "layer_norm_eps", .activation_key = "hidden_act", .max_positions = 512

#define ROBERTA                                                                                                        \
    .prefix = "roberta.", .names = {BERT_LAYERS, ROBERTA_HEAD}, BERT_KEYS, .after_pad = true,                          \
    .head_activation = ENCODER_TANH, .eps = 1e-12, .token_types = 2, .pad = 1

static const encoder_architecture rows[] = {
    {.type = "bert",
     .prefix = "bert.",
     .names = {BERT_LAYERS, .head_dense = "pooler.dense", .head_out = "/classifier"},
     BERT_KEYS,
     .head_activation = ENCODER_TANH,
     .eps = 1e-12,
     .token_types = 2},
    {.type = "roberta", ROBERTA},
    {.type = "xlm-roberta", ROBERTA},
    {.type = "mpnet",
     .prefix = "mpnet.",
     .names = {.word = "embeddings.word_embeddings",
               .position = "embeddings.position_embeddings",
               .embedding_norm = "embeddings.LayerNorm",
               .q = "encoder.layer.#.attention.attn.q",
               .k = "encoder.layer.#.attention.attn.k",
               .v = "encoder.layer.#.attention.attn.v",
               .o = "encoder.layer.#.attention.attn.o",
               .attention_norm = "encoder.layer.#.attention.LayerNorm",
               BERT_FEED,
               .table = "encoder.relative_attention_bias",
               ROBERTA_HEAD},
     BERT_KEYS,
     .scheme = ENCODER_T5_BUCKETS,
     .after_pad = true,
     .head_activation = ENCODER_TANH,
     .eps = 1e-12,
     .pad = 1},
    {.type = "deberta-v2",
     .prefix = "deberta.",
     .names = {BERT_EMBEDDING, .q = "encoder.layer.#.attention.self.query_proj",
               .k = "encoder.layer.#.attention.self.key_proj", .v = "encoder.layer.#.attention.self.value_proj",
               .o = "encoder.layer.#.attention.output.dense",
               .attention_norm = "encoder.layer.#.attention.output.LayerNorm", BERT_FEED,
               .convolution = "encoder.conv.conv", .convolution_norm = "encoder.conv.LayerNorm",
               .table = "encoder.rel_embeddings", .table_norm = "encoder.LayerNorm",
               .table_k = "encoder.layer.#.attention.self.pos_key_proj",
               .table_q = "encoder.layer.#.attention.self.pos_query_proj", .head_dense = "/pooler.dense",
               .head_out = "/classifier"},
     .keys = ENCODER_KEYS_DEBERTA,
     COMMON_KEYS,
     .scheme = ENCODER_DEBERTA,
     .head_activation = ENCODER_GELU,
     .eps = 1e-7,
     .read = encoder_read_deberta},
    {.type = "esm",
     .prefix = "esm.",
     .names = {.word = "embeddings.word_embeddings",
               .position = "embeddings.position_embeddings",
               .embedding_norm = "embeddings.layer_norm",
               .final_norm = "encoder.emb_layer_norm_after",
               .frequencies = "rotary_embeddings.inv_freq",
               .q = "encoder.layer.#.attention.self.query",
               .k = "encoder.layer.#.attention.self.key",
               .v = "encoder.layer.#.attention.self.value",
               .o = "encoder.layer.#.attention.output.dense",
               .attention_norm = "encoder.layer.#.attention.LayerNorm",
               .up = "encoder.layer.#.intermediate.dense",
               .down = "encoder.layer.#.output.dense",
               .feed_norm = "encoder.layer.#.LayerNorm",
               ROBERTA_HEAD},
     .keys = ENCODER_KEYS_ESM,
     .strays = esm_strays,
     .eps_key = "layer_norm_eps",
     .scheme = ENCODER_ROPE,
     .pre_norm = true,
     .residues = true,
     .after_pad = true,
     .head_activation = ENCODER_TANH,
     .eps = 1e-12,
     .max_positions = 1026,
     .pad = 1,
     .read = encoder_read_esm},
    {.type = "modernbert",
     .prefix = "model.",
     .names = {.word = "embeddings.tok_embeddings",
               .embedding_norm = "embeddings.norm",
               .final_norm = "final_norm",
               .q = "layers.#.attn.Wqkv",
               .o = "layers.#.attn.Wo",
               .attention_norm = "layers.#.attn_norm",
               .up = "layers.#.mlp.Wi",
               .down = "layers.#.mlp.Wo",
               .feed_norm = "layers.#.mlp_norm",
               .head_dense = "/head.dense",
               .head_norm = "/head.norm",
               .head_out = "/classifier"},
     .keys = ENCODER_KEYS_MODERNBERT,
     .strays = strays,
     .eps_key = "norm_eps",
     .activation_key = "hidden_activation",
     .scheme = ENCODER_ROPE,
     .pre_norm = true,
     .gated = true,
     .no_first_norm = true,
     .head_activation = ENCODER_GELU,
     .eps = 1e-5,
     .pad = 50283,
     .read = encoder_read_modernbert},
};
enum { ROWS = sizeof rows / sizeof *rows };

const encoder_architecture *encoder_find_architecture(const char *type, const char **names)
{
    *names = "bert, roberta, xlm-roberta, mpnet, deberta-v2, esm or modernbert";
    for (int n = 0; n < ROWS; n++)
        if (strcmp(rows[n].type, type) == 0)
            return &rows[n];
    return NULL;
}
