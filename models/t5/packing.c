/* packing.c -- packs the weights of a T5, or finds them in a packed file (checkpoint/weights.h).
 * SPDX-License-Identifier: Apache-2.0 */
#include "t5/weights.h"
#include <stdlib.h>
#include <string.h>

/* Return true for a tensor that checkpoints may contain although the model does not need it: a head without a decoder,
 * a head that equals the embedding, or the table of cross-attention in old checkpoints. */
static bool is_stray(const void *model, const char *name)
{
    (void)model;
    const char *end = strstr(name, ".EncDecAttention.relative_attention_bias.weight");
    return strcmp(name, "lm_head.weight") == 0 || (end != NULL && strncmp(name, "decoder.block.", 14) == 0);
}

static bool is_table(const char *name)
{
    return strstr(name, "relative_attention_bias") != NULL;
}

static const char *const embedding_names[] = {"shared.weight", "encoder.embed_tokens.weight",
                                              "decoder.embed_tokens.weight"};
enum { EMBEDDING_NAMES = 3 };

/* Return the name of the embedding in a checkpoint. */
static const char *embedding_name(const io_checkpoint *file)
{
    for (int n = 0; n < EMBEDDING_NAMES; n++)
        if (io_checkpoint_find(file, embedding_names[n]) != NULL)
            return embedding_names[n];
    return embedding_names[0];
}

/* Return true if the head is the embedding: either the file has a head that equals it, or the file has no head and the
 * config ties the two. */
static bool is_tied(const t5_config *c, const io_checkpoint *file, const char *embedding)
{
    const io_tensor *head = io_checkpoint_find(file, "lm_head.weight"), *e = io_checkpoint_find(file, embedding);
    if (head == NULL)
        return c->tied;
    return e != NULL && io_tensor_same(e, head);
}

rp_status t5_weights_pack(t5_weights *w, const t5_config *c, const io_checkpoint *file, const char *path, int type,
                          bool sizes, rp_pool *pool)
{
    const model_source from = {.file = file,
                               .path = path,
                               .advice = c->advice,
                               .stray = is_stray,
                               .equal = embedding_names,
                               .n_equal = EMBEDDING_NAMES,
                               .why_equal = "encoder and decoder must share one embedding"};
    t5_walked all = {w, c, embedding_name(file)};
    w->type = type >= 0 ? (linear_type)type : model_type_of(file, is_table);
    w->tied = is_tied(c, file, all.embedding);
    const rp_status status = t5_make_blocks(w, c, file, path);
    return status == RP_OK ? t5_model_failed(model_pack(&w->store, &from, t5_walk_weights, &all, sizes, pool)) : status;
}

rp_status t5_weights_map(t5_weights *w, const t5_config *c, const io_checkpoint *file, const char *path)
{
    t5_walked all = {w, c, "shared.weight"};
    rp_status status = t5_model_failed(model_packed_type(file, path, &w->type));
    if (status != RP_OK)
        return status;
    w->tied = io_checkpoint_find(file, "lm_head.weight") == NULL;
    status = t5_make_blocks(w, c, file, path);
    return status == RP_OK ? t5_model_failed(model_map(&w->store, file, path, t5_walk_weights, &all)) : status;
}

typedef struct counting {
    int64_t parameters, step_bytes;
    bool tied;
} counting;

static rp_status count_part(void *context, const model_part *p)
{
    counting *k = context;
    const bool embedding = strcmp(p->name, "shared.weight") == 0, head = strcmp(p->name, "lm_head.weight") == 0;
    const char *expert = strstr(p->name, ".experts.expert_"); /* a token reads one expert: count only the first */
    k->parameters += model_part_numbers(p);
    if (p->matrix != NULL && (expert == NULL || strncmp(expert, ".experts.expert_0.", 18) == 0) &&
        (strncmp(p->name, "decoder.", 8) == 0 || head || (embedding && k->tied)))
        k->step_bytes += model_part_bytes(p);
    return RP_OK;
}

void t5_weights_count(const t5_weights *w, const t5_config *c, int64_t *parameters, int64_t *step_bytes)
{
    t5_weights copy = *w; /* because t5_walk_weights passes non-const pointers into it */
    t5_walked all = {&copy, c, "shared.weight"};
    counting k = {0, 0, w->tied && w->decoder.layers > 0};
    t5_walk_weights(&all, count_part, &k);
    *parameters = k.parameters;
    *step_bytes = k.step_bytes;
}

rp_status t5_weights_list(const t5_weights *w, const t5_config *c, io_set *set)
{
    t5_weights copy = *w;
    t5_walked all = {&copy, c, "shared.weight"};
    return t5_model_failed(model_list(t5_walk_weights, &all, set));
}
