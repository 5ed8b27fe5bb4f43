/* weights.c -- the weights of a model: which there are, by the names of checkpoints, packed or found in a packed file.
 * `walk` is the one list of them. It knows tensors by name and shape, and computes nothing with them.
 * SPDX-License-Identifier: Apache-2.0 */
#include "t5/model.h"
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { NAME = 192, MAX_SOURCES = 3 };

/* One weight: a matrix that linear layers use, stacked of the rows of one to three tensors, or a plain array of f32. */
typedef struct part {
    const char *name;                /* in a packed file */
    const char *source[MAX_SOURCES]; /* in a checkpoint */
    int n_sources;
    int64_t rows, columns;  /* of each source; columns 0: it has one axis */
    linear_weights *matrix; /* one of these two */
    const float **array;
    linear_type type; /* of a matrix */
} part;

typedef rp_status visitor(void *context, const part *p);

/* A walk over all weights of a model. */
typedef struct walk {
    t5_weights *w;
    const t5_config *c;
    visitor *visit;
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
    const part p = {.name = name, .source = {name}, .n_sources = 1, .rows = rows, .columns = columns, .array = array};
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

/* Rows of `names`, which are letters such as "qkv" or one name, in one matrix. */
static void visit_matrix(walk *k, const char *layer, const char *name, const char *const *names, int n, int64_t rows,
                         int64_t columns, linear_type type, linear_weights *matrix)
{
    char full[NAME], source[MAX_SOURCES][NAME];
    part p = {.name = full, .n_sources = n, .rows = rows, .columns = columns, .matrix = matrix, .type = type};
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

/* Embedding and head are int8 where layers have 4 bits: a row of them is used alone, and its error is not averaged away. */
static linear_type table_type(linear_type type)
{
    return type == LINEAR_INT4 ? LINEAR_INT8 : type;
}

static rp_status walk_all(t5_weights *w, const t5_config *c, const char *embedding, visitor *visit, void *context)
{
    walk k = {w, c, visit, context, RP_OK};
    part p = {.name = "shared.weight",
              .source = {embedding},
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
    free(w->memory);
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

static rp_status make_blocks(t5_weights *w, const t5_config *c, const io_checkpoint *file)
{
    const rp_status status = make_stack(&w->encoder, c, c->layers, c->sparse_encoder);
    if (status != RP_OK)
        return status;
    return make_stack(&w->decoder, c, has_decoder(file) ? c->decoder_layers : 0, c->sparse_decoder);
}

/* ------------------------------------------------------------------------------------------------ from a checkpoint */

/* Packing a checkpoint: `used` says which tensors have been, so that the others can be refused. */
typedef struct packing {
    const io_checkpoint *file;
    const char *path;
    bool *used;
    unsigned char *memory; /* NULL: only sizes are added up */
    int64_t at;
    rp_pool *pool;
} packing;

static int64_t aligned(int64_t bytes)
{
    return (bytes + LINEAR_ALIGN - 1) / LINEAR_ALIGN * LINEAR_ALIGN;
}

static void shape_text(const io_tensor *t, char text[64])
{
    size_t used = 0;
    text[0] = 0;
    for (int32_t x = 0; x < t->ndim && used < 48; x++)
        used += (size_t)snprintf(text + used, 64 - used, "%s%lld", x ? "," : "", (long long)t->shape[x]);
}

/* The tensor of a source, with the shape and a type that it has to have. */
static rp_status find(packing *k, const part *p, int s, const io_tensor **found)
{
    const io_tensor *t = io_checkpoint_find(k->file, p->source[s]);
    char shape[64];
    if (t == NULL)
        return t5_fail(RP_E_ARG, "%s: tensor '%s' is missing (config.json describes a model that has it)", k->path,
                       p->source[s]);
    k->used[t - io_checkpoint_at(k->file, 0)] = true;
    shape_text(t, shape);
    if (p->columns > 0 && (t->ndim != 2 || t->shape[0] != p->rows || t->shape[1] != p->columns))
        return t5_fail(RP_E_ARG, "%s: tensor '%s' has the shape [%s], config.json asks for [%lld,%lld]", k->path,
                       p->source[s], shape, (long long)p->rows, (long long)p->columns);
    if (p->columns == 0 && (t->ndim != 1 || t->shape[0] != p->rows))
        return t5_fail(RP_E_ARG, "%s: tensor '%s' has the shape [%s], config.json asks for [%lld]", k->path,
                       p->source[s], shape, (long long)p->rows);
    if (t->dtype != RP_F32 && t->dtype != RP_F16 && t->dtype != RP_BF16 && t->dtype != IO_F8_E4M3)
        return t5_fail(RP_E_UNSUPPORTED, "%s: tensor '%s' has the type %s (F32, F16, BF16 and F8_E4M3 can be read)",
                       k->path, p->source[s], t->dtype == IO_NO_DTYPE ? "of another kind" : rp_dtype_name(t->dtype));
    *found = t;
    return RP_OK;
}

static rp_status pack_array(packing *k, const part *p)
{
    const io_tensor *t;
    const rp_status status = find(k, p, 0, &t);
    const int64_t n = p->rows * (p->columns > 0 ? p->columns : 1);
    if (status != RP_OK)
        return status;
    if (k->memory != NULL) {
        float *to = (float *)(void *)(k->memory + k->at);
        memset(to, 0, (size_t)aligned(n * 4));
        io_tensor_read(t, 0, n, to);
        *p->array = to;
    }
    k->at += aligned(n * 4);
    return RP_OK;
}

/* Rows of all sources as f32, in memory for one matrix alone. */
static rp_status pack_stacked(packing *k, const part *p, const io_tensor *const *t, void *packed)
{
    const int64_t one = p->rows * p->columns;
    float *stacked = malloc((size_t)(one * p->n_sources) * sizeof *stacked);
    if (stacked == NULL)
        return t5_no_memory_for(p->name, one * p->n_sources * 4);
    for (int s = 0; s < p->n_sources; s++)
        io_tensor_read(t[s], 0, one, stacked + s * one);
    const rp_status status =
        linear_pack(k->pool, p->type, p->columns, p->rows * p->n_sources, stacked, RP_F32, p->columns, packed);
    free(stacked);
    return status;
}

static rp_status pack_matrix(packing *k, const part *p)
{
    const io_tensor *t[MAX_SOURCES] = {NULL};
    const int64_t out = p->rows * p->n_sources, bytes = linear_packed_bytes(p->type, p->columns, out);
    rp_status status = RP_OK;
    for (int s = 0; s < p->n_sources && status == RP_OK; s++)
        status = find(k, p, s, &t[s]);
    if (status != RP_OK)
        return status;
    if (bytes < 0 || k->at > INT64_MAX - bytes)
        return t5_fail(RP_E_OVERFLOW, "%s: '%s' is too large", k->path, p->name);
    if (k->memory != NULL) {
        void *to = k->memory + k->at;
        const size_t element = t[0]->dtype == IO_F8_E4M3 ? 0 : rp_dtype_size(t[0]->dtype);
        if (p->n_sources == 1 && element > 0 && (uintptr_t)t[0]->data % element == 0)
            status = linear_pack(k->pool, p->type, p->columns, out, t[0]->data, t[0]->dtype, p->columns, to);
        else
            status = pack_stacked(k, p, t, to);
        if (status != RP_OK)
            return status == RP_E_NOMEM
                       ? t5_no_memory_for(p->name, bytes)
                       : t5_fail(status, "%s: '%s' cannot be packed: %s", k->path, p->name, rp_status_name(status));
        *p->matrix = (linear_weights){p->type, p->columns, out, to};
    }
    k->at += bytes;
    return RP_OK;
}

static rp_status pack_part(void *context, const part *p)
{
    return p->matrix != NULL ? pack_matrix(context, p) : pack_array(context, p);
}

/* Tensors that checkpoints have and that no model reads: second names of the embedding, and a table that cross-attention once had. */
static bool is_stray(const char *name)
{
    const char *end = strstr(name, ".EncDecAttention.relative_attention_bias.weight");
    return strcmp(name, "encoder.embed_tokens.weight") == 0 || strcmp(name, "decoder.embed_tokens.weight") == 0 ||
           strcmp(name, "shared.weight") == 0 || strcmp(name, "lm_head.weight") == 0 ||
           (end != NULL && strncmp(name, "decoder.block.", 14) == 0);
}

static rp_status refuse_others(const packing *k)
{
    int64_t n_others = 0;
    const char *first = NULL;
    for (size_t n = 0; n < io_checkpoint_size(k->file); n++) {
        const char *name = io_checkpoint_at(k->file, n)->name;
        if (k->used[n] || is_stray(name))
            continue;
        if (n_others++ == 0)
            first = name;
    }
    if (n_others == 0)
        return RP_OK;
    return t5_fail(RP_E_ARG, "%s: tensor '%s' is none that config.json describes (%lld such tensors)", k->path, first,
                   (long long)n_others);
}

/* The name under which the checkpoint has the embedding. */
static const char *embedding_name(const io_checkpoint *file)
{
    static const char *const names[] = {"shared.weight", "encoder.embed_tokens.weight", "decoder.embed_tokens.weight"};
    for (int n = 0; n < 3; n++)
        if (io_checkpoint_find(file, names[n]) != NULL)
            return names[n];
    return names[0];
}

/* The head is the embedding, unless the file has a head with other numbers. */
static bool is_tied(const t5_config *c, const io_checkpoint *file, const char *embedding)
{
    const io_tensor *head = io_checkpoint_find(file, "lm_head.weight"), *e = io_checkpoint_find(file, embedding);
    if (head == NULL)
        return c->tied;
    return e != NULL && e->dtype == head->dtype && e->bytes == head->bytes &&
           memcmp(e->data, head->data, e->bytes) == 0;
}

/* The narrowest type that holds every number of the file. */
static linear_type type_of(const io_checkpoint *file)
{
    for (size_t n = 0; n < io_checkpoint_size(file); n++) {
        const io_tensor *t = io_checkpoint_at(file, n);
        if (t->ndim == 2 && t->dtype != RP_BF16 && t->dtype != IO_F8_E4M3 &&
            strstr(t->name, "relative_attention_bias") == NULL)
            return LINEAR_F32;
    }
    return LINEAR_BF16;
}

/* Memory for packed weights, in large pages where the system has them: one token reads all of it. */
static unsigned char *take_memory(int64_t bytes)
{
    enum { LARGE = 2 << 20 };
    const size_t align = bytes >= 4 * LARGE ? LARGE : LINEAR_ALIGN, size = ((size_t)bytes + align - 1) / align * align;
    unsigned char *memory = aligned_alloc(align, size > 0 ? size : align);
    if (memory != NULL && align == LARGE)
        madvise(memory, size, MADV_HUGEPAGE);
    return memory;
}

rp_status t5_weights_pack(t5_weights *w, const t5_config *c, const io_checkpoint *file, const char *path, int type,
                          rp_pool *pool)
{
    const char *embedding = embedding_name(file);
    packing k = {.file = file, .path = path, .pool = pool};
    w->type = type >= 0 ? (linear_type)type : type_of(file);
    w->tied = is_tied(c, file, embedding);
    k.used = calloc(io_checkpoint_size(file), sizeof *k.used);
    rp_status status = k.used != NULL ? make_blocks(w, c, file) : t5_no_memory();
    if (status == RP_OK)
        status = walk_all(w, c, embedding, pack_part, &k);
    if (status == RP_OK)
        status = refuse_others(&k);
    if (status == RP_OK) {
        w->bytes = k.at;
        w->memory = k.memory = take_memory(k.at);
        k.at = 0;
        status =
            w->memory != NULL ? walk_all(w, c, embedding, pack_part, &k) : t5_no_memory_for("the weights", w->bytes);
    }
    free(k.used);
    return status;
}

/* ------------------------------------------------------------------------------------------------ packed files */

typedef struct mapping {
    const io_checkpoint *file;
    const char *path;
    int64_t bytes;
} mapping;

static int64_t part_bytes(const part *p)
{
    if (p->matrix != NULL)
        return linear_packed_bytes(p->type, p->columns, p->rows * p->n_sources);
    return aligned(p->rows * (p->columns > 0 ? p->columns : 1) * 4);
}

static rp_status map_part(void *context, const part *p)
{
    mapping *k = context;
    const io_tensor *t = io_checkpoint_find(k->file, p->name);
    const int64_t bytes = part_bytes(p);
    if (t == NULL)
        return t5_fail(RP_E_ARG, "%s: weight '%s' is missing (pack the model again)", k->path, p->name);
    if ((uintptr_t)t->data % LINEAR_ALIGN != 0)
        return t5_fail(RP_E_ARG, "%s: weight '%s' does not begin at a multiple of %d bytes (pack the model again)",
                       k->path, p->name, LINEAR_ALIGN);
    if (bytes < 0 || t->dtype != RP_U8 || t->bytes != (size_t)bytes)
        return t5_fail(RP_E_ARG, "%s: weight '%s' has %zu bytes and not %lld (pack the model again)", k->path, p->name,
                       t->bytes, (long long)bytes);
    if (p->matrix != NULL)
        *p->matrix = (linear_weights){p->type, p->columns, p->rows * p->n_sources, t->data};
    else
        *p->array = (const float *)(const void *)t->data;
    k->bytes += bytes;
    return RP_OK;
}

rp_status t5_weights_map(t5_weights *w, const t5_config *c, const io_checkpoint *file, const char *path)
{
    const char *type = io_checkpoint_meta(file, "type");
    mapping k = {file, path, 0};
    int n = 0;
    while (n < LINEAR_TYPES && (type == NULL || strcmp(type, linear_type_name((linear_type)n)) != 0))
        n++;
    if (n == LINEAR_TYPES)
        return t5_fail(RP_E_ARG, "%s: it does not say the type of its weights (pack the model again)", path);
    w->type = (linear_type)n;
    w->tied = io_checkpoint_find(file, "lm_head.weight") == NULL;
    rp_status status = make_blocks(w, c, file);
    if (status == RP_OK)
        status = walk_all(w, c, "shared.weight", map_part, &k);
    w->bytes = k.bytes;
    return status;
}

static rp_status list_part(void *context, const part *p)
{
    const int64_t bytes = part_bytes(p);
    const void *data = p->matrix != NULL ? p->matrix->packed : (const void *)*p->array;
    return io_add(context, p->name, RP_U8, 1, &bytes, (void *)(uintptr_t)data, true) == 0 ? RP_OK : t5_no_memory();
}

rp_status t5_weights_list(const t5_weights *w, const t5_config *c, io_set *set)
{
    t5_weights all = *w; /* the walk hands out places in it, and nothing is written there */
    return walk_all(&all, c, "shared.weight", list_part, set);
}
