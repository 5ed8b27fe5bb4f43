/* weights.c -- the list of a model's weights: their names and shapes in checkpoints. t5_walk_weights visits them.
 * SPDX-License-Identifier: Apache-2.0 */
#include "t5/weights.h"
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NAME = 192 };

static const char *const prefixes[] = {"_orig_mod.", "module.", "model."};

const model_naming t5_names = {.prefixes = prefixes,
                               .n_prefixes = sizeof prefixes / sizeof *prefixes,
                               .tensor = "encoder.block.0.layer.0.layer_norm.weight",
                               .other = T5_EMBEDDED_TOKENIZER,
                               .kind = "T5"};

/* State of a walk over all weights of a model. */
typedef struct walk {
    t5_weights *w;
    const t5_config *c;
    model_visitor *visit;
    void *context;
    rp_status status;
} walk;

/* ------------------------------------------------------------------------------------------------ the list */

__attribute__((format(printf, 2, 3))) static void name_of(char name[NAME], const char *format, ...)
{
    va_list list;
    va_start(list, format);
    vsnprintf(name, NAME, format, list);
    va_end(list);
}

static void visit_array(walk *k, const char *name, int64_t rows, int64_t columns, const float **array)
{
    const model_part p = {
        .name = name, .source = {name}, .n_sources = 1, .rows = rows, .columns = columns, .array = array};
    if (k->status == RP_OK)
        k->status = k->visit(k->context, &p);
}

static void visit_norm(walk *k, const char *layer, const char *name, const float **array)
{
    char full[NAME];
    name_of(full, "%s.%s.weight", layer, name);
    visit_array(k, full, k->c->d_model, 0, array);
}

static void visit_table(walk *k, const char *layer, const char *name, const float **array)
{
    char full[NAME];
    name_of(full, "%s.%s.weight", layer, name);
    visit_array(k, full, k->c->buckets, k->c->heads, array);
}

/* Visit a matrix that stacks the rows of n tensors: one tensor, or several, such as q, k and v. */
static void visit_matrix(walk *k, const char *layer, const char *name, const char *const *names, int n, int64_t rows,
                         int64_t columns, linear_type type, linear_weights *matrix)
{
    char full[NAME], source[MODEL_MAX_SOURCES][NAME];
    model_part p = {.name = full, .n_sources = n, .rows = rows, .columns = columns, .matrix = matrix, .type = type};
    name_of(full, "%s.%s.weight", layer, name);
    for (int s = 0; s < n; s++) {
        name_of(source[s], "%s.%s.weight", layer, names[s]);
        p.source[s] = source[s];
    }
    if (k->status == RP_OK)
        k->status = k->visit(k->context, &p);
}

static void visit_linear(walk *k, const char *layer, const char *name, int64_t out, int64_t in, linear_weights *matrix)
{
    visit_matrix(k, layer, name, &name, 1, out, in, k->w->type, matrix);
}

static void visit_feed(walk *k, const char *layer, t5_feed *f)
{
    const t5_config *c = k->c;
    visit_linear(k, layer, c->gated ? "wi_0" : "wi", c->d_ff, c->d_model, &f->wi);
    if (c->gated)
        visit_linear(k, layer, "wi_1", c->d_ff, c->d_model, &f->wi_gate);
    visit_linear(k, layer, "wo", c->d_model, c->d_ff, &f->wo);
}

static void visit_feed_layer(walk *k, const char *layer, bool sparse, t5_block *b)
{
    static const char *const classifier[] = {"mlp.router.classifier"};
    char name[NAME];
    visit_norm(k, layer, "layer_norm", &b->norm_feed);
    if (!sparse) {
        name_of(name, "%s.%s", layer, k->c->kind == T5_SWITCH ? "mlp" : "DenseReluDense");
        visit_feed(k, name, &b->feed);
        return;
    }
    visit_matrix(k, layer, *classifier, classifier, 1, k->c->experts, k->c->d_model, LINEAR_F32, &b->router);
    for (int64_t e = 0; e < k->c->experts; e++) {
        name_of(name, "%s.mlp.experts.expert_%lld", layer, (long long)e);
        visit_feed(k, name, &b->experts[e]);
    }
}

static void visit_self_attention(walk *k, const char *layer, bool encoder, bool first, t5_block *b)
{
    static const char *const names[] = {"SelfAttention", "LocalSelfAttention", "TransientGlobalSelfAttention"};
    static const char *const qkv[] = {"q", "k", "v"};
    const t5_encoder_attention kind = encoder ? k->c->encoder_attention : T5_FULL;
    char name[NAME];
    visit_norm(k, layer, "layer_norm", &b->norm_self);
    name_of(name, "%s.%s", layer, names[kind]);
    visit_matrix(k, name, "qkv", qkv, 3, k->c->inner, k->c->d_model, k->w->type, &b->qkv);
    visit_linear(k, name, "o", k->c->d_model, k->c->inner, &b->o);
    if (first || k->c->kind == T5_UMT5)
        visit_table(k, name, "relative_attention_bias", &b->table);
    if (kind == T5_TRANSIENT_GLOBAL) {
        visit_norm(k, name, "global_input_layer_norm", &b->norm_global);
        if (first)
            visit_table(k, name, "global_relative_attention_bias", &b->global_table);
    }
}

static void visit_cross_attention(walk *k, const char *layer, t5_block *b)
{
    static const char *const kv[] = {"k", "v"};
    char name[NAME];
    visit_norm(k, layer, "layer_norm", &b->norm_cross);
    name_of(name, "%s.EncDecAttention", layer);
    visit_linear(k, name, "q", k->c->inner, k->c->d_model, &b->cross_q);
    visit_matrix(k, name, "kv", kv, 2, k->c->inner, k->c->d_model, k->w->type, &b->cross_kv);
    visit_linear(k, name, "o", k->c->d_model, k->c->inner, &b->cross_o);
}

static void visit_stack(walk *k, bool encoder)
{
    t5_stack *s = encoder ? &k->w->encoder : &k->w->decoder;
    const char *stack = encoder ? "encoder" : "decoder";
    char layer[NAME];
    for (int64_t i = 0; i < s->layers && k->status == RP_OK; i++) {
        int n = 0;
        name_of(layer, "%s.block.%lld.layer.%d", stack, (long long)i, n++);
        visit_self_attention(k, layer, encoder, i == 0, &s->block[i]);
        if (!encoder) {
            name_of(layer, "%s.block.%lld.layer.%d", stack, (long long)i, n++);
            visit_cross_attention(k, layer, &s->block[i]);
        }
        name_of(layer, "%s.block.%lld.layer.%d", stack, (long long)i, n);
        visit_feed_layer(k, layer, s->block[i].experts != NULL, &s->block[i]);
    }
    if (s->layers > 0)
        visit_norm(k, stack, "final_layer_norm", &s->norm);
}

/* Return the type of embedding and head. It is int8 if the layers are int4, because errors in a row of the embedding do
 * not average out. */
static linear_type table_type(linear_type type)
{
    return type == LINEAR_INT4 ? LINEAR_INT8 : type;
}

rp_status t5_walk_weights(void *model, model_visitor *visit, void *context)
{
    const t5_walked *all = model;
    t5_weights *w = all->w;
    const t5_config *c = all->c;
    walk k = {w, c, visit, context, RP_OK};
    model_part p = {.name = "shared.weight",
                    .source = {all->embedding},
                    .n_sources = 1,
                    .rows = c->vocab,
                    .columns = c->d_model,
                    .matrix = &w->embedding,
                    .type = table_type(w->type)};
    k.status = visit(context, &p);
    visit_stack(&k, true);
    visit_stack(&k, false);
    p.name = p.source[0] = "lm_head.weight";
    p.matrix = &w->head;
    if (k.status == RP_OK && w->decoder.layers > 0 && !w->tied)
        k.status = visit(context, &p);
    if (w->tied)
        w->head = w->embedding;
    return k.status;
}

/* ------------------------------------------------------------------------------------------------ blocks */

static rp_status make_stack(t5_stack *s, const t5_config *c, int64_t layers, int64_t sparse)
{
    s->layers = layers;
    s->block = calloc((size_t)layers + 1, sizeof *s->block);
    if (s->block == NULL)
        return t5_no_memory();
    for (int64_t i = 0; i < layers; i++)
        if (c->experts > 0 && t5_is_sparse(sparse, i)) {
            s->block[i].experts = calloc((size_t)c->experts, sizeof *s->block[i].experts);
            if (s->block[i].experts == NULL)
                return t5_no_memory();
        }
    return RP_OK;
}

static void free_stack(t5_stack *s)
{
    for (int64_t i = 0; s->block != NULL && i < s->layers; i++)
        free(s->block[i].experts);
    free(s->block);
}

void t5_weights_free(t5_weights *w)
{
    free_stack(&w->encoder);
    free_stack(&w->decoder);
    model_store_free(&w->store);
    memset(w, 0, sizeof *w);
}

static bool has_decoder(const io_checkpoint *file)
{
    for (size_t n = 0; n < io_checkpoint_size(file); n++) {
        const char *name = io_checkpoint_at(file, n)->name;
        if (strncmp(name, "decoder.block.", 14) == 0 || strcmp(name, "decoder.final_layer_norm.weight") == 0)
            return true;
    }
    return false;
}

/* Return a lower bound of the number of tensors that the layers of a stack have, in a checkpoint or a packed file: per
 * layer two norms and two attention matrices, and two matrices per feed-forward layer or expert. */
static int64_t fewest_tensors(const t5_config *c, int64_t layers, int64_t sparse)
{
    int64_t n = 0;
    for (int64_t i = 0; i < layers; i++)
        n += 4 + 2 * (c->experts > 0 && t5_is_sparse(sparse, i) ? c->experts : 1);
    return n;
}

/* Check that the file has enough tensors for the layers that config.json describes. Without this check, a hostile
 * config.json could make us allocate 8,192 layers of 65,536 experts. */
static rp_status check_sizes(const t5_config *c, const io_checkpoint *file, int64_t decoder_layers, const char *path)
{
    const int64_t fewest =
        fewest_tensors(c, c->layers, c->sparse_encoder) + fewest_tensors(c, decoder_layers, c->sparse_decoder);
    if (fewest <= (int64_t)io_checkpoint_size(file))
        return RP_OK;
    char experts[48] = "";
    if (c->experts > 0)
        snprintf(experts, sizeof experts, ", %lld experts", (long long)c->experts);
    return t5_fail(RP_E_ARG, "%s: %lld + %lld layers%s have at least %lld tensors, but there are %zu%s", path,
                   (long long)c->layers, (long long)decoder_layers, experts, (long long)fewest,
                   io_checkpoint_size(file), c->advice);
}

rp_status t5_make_blocks(t5_weights *w, const t5_config *c, const io_checkpoint *file, const char *path)
{
    const int64_t decoder_layers = has_decoder(file) ? c->decoder_layers : 0;
    rp_status status = check_sizes(c, file, decoder_layers, path);
    if (status == RP_OK)
        status = make_stack(&w->encoder, c, c->layers, c->sparse_encoder);
    if (status != RP_OK)
        return status;
    return make_stack(&w->decoder, c, decoder_layers, c->sparse_decoder);
}
