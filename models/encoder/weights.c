/* weights.c -- the list of a model's weights: their names and shapes in checkpoints.
 * SPDX-License-Identifier: Apache-2.0 */
#include "encoder/encoder.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NAME = 192 };

/* State of a walk over all weights. */
typedef struct walk {
    rp_encoder *m;
    model_visitor *visit;
    void *context;
    rp_status status;
} walk;

/* Write the name of a tensor: `name` with the number of the layer for "#", and ".weight" or ".bias". */
static void name_of(const walk *k, const char *name, int64_t layer, const char *end, char text[NAME])
{
    const bool absolute = name[0] == '/';
    const char *hash = strchr(name, '#');
    if (hash == NULL)
        snprintf(text, NAME, "%s%s%s", absolute ? "" : k->m->weights.prefix, name + absolute, end);
    else
        snprintf(text, NAME, "%s%.*s%lld%s%s", k->m->weights.prefix, (int)(hash - name), name, (long long)layer,
                 hash + 1, end);
}

/* Visit an array [rows, columns], or [n * rows] that concatenates n tensors. */
static void visit_array(walk *k, int n, const char *const *names, int64_t layer, const char *end, int64_t rows,
                        int64_t columns, const float **array)
{
    char source[MODEL_MAX_SOURCES][NAME];
    model_part p = {.n_sources = n, .rows = rows, .columns = columns, .array = array};
    for (int s = 0; s < n; s++) {
        name_of(k, names[s], layer, end, source[s]);
        p.source[s] = source[s];
    }
    p.name = source[0];
    if (k->status == RP_OK)
        k->status = k->visit(k->context, &p);
}

static void visit_table(walk *k, const char *name, int64_t rows, int64_t columns, const float **array)
{
    if (name != NULL && rows > 0)
        visit_array(k, 1, &name, 0, ".weight", rows, columns, array);
}

static void visit_norm(walk *k, const char *name, int64_t layer, bool bias, encoder_norm *norm)
{
    if (name == NULL)
        return;
    visit_array(k, 1, &name, layer, ".weight", k->m->config.width, 0, &norm->weight);
    if (bias)
        visit_array(k, 1, &name, layer, ".bias", k->m->config.width, 0, &norm->bias);
}

/* A linear layer of a checkpoint, or n layers that become one. */
typedef struct shape {
    int n;
    const char *const *names; /* [n] */
    int64_t out, in;          /* of each */
    linear_type type;
    bool bias;
} shape;

static void visit_linear(walk *k, int64_t layer, const shape *s, encoder_linear *l)
{
    char source[MODEL_MAX_SOURCES][NAME];
    model_part p = {.n_sources = s->n, .rows = s->out, .columns = s->in, .matrix = &l->w, .type = s->type};
    for (int n = 0; n < s->n; n++) {
        name_of(k, s->names[n], layer, ".weight", source[n]);
        p.source[n] = source[n];
    }
    p.name = source[0];
    if (k->status == RP_OK)
        k->status = k->visit(k->context, &p);
    if (s->bias)
        visit_array(k, s->n, s->names, layer, ".bias", s->out, 0, &l->bias);
}

/* Visit the convolution after the first layer. */
static void visit_convolution(walk *k)
{
    const encoder_config *c = &k->m->config;
    encoder_convolution *v = &k->m->weights.convolution;
    char name[NAME];
    name_of(k, c->row->names.convolution, 0, ".weight", name);
    const model_part p = {.name = name,
                          .source = {name},
                          .n_sources = 1,
                          .rows = c->width,
                          .columns = c->width / c->groups,
                          .depth = c->kernel,
                          .array = &v->weight};
    if (k->status == RP_OK)
        k->status = k->visit(k->context, &p);
    visit_array(k, 1, &c->row->names.convolution, 0, ".bias", c->width, 0, &v->bias);
    visit_norm(k, c->row->names.convolution_norm, 0, true, &v->norm);
}

static void visit_layer(walk *k, int64_t i)
{
    const encoder_config *c = &k->m->config;
    const encoder_names *r = &c->row->names;
    encoder_layer *l = &k->m->weights.layer[i];
    const linear_type type = k->m->weights.type;
    const char *const qkv[] = {r->q, r->k, r->v};
    const int n = r->k != NULL ? 3 : 1;
    if (!c->row->no_first_norm || i > 0)
        visit_norm(k, r->attention_norm, i, c->norm_bias, &l->attention_norm);
    visit_linear(k, i, &(shape){n, qkv, 3 / n * c->width, c->width, type, c->attention_bias}, &l->qkv);
    visit_linear(k, i, &(shape){1, &r->o, c->width, c->width, type, c->attention_bias}, &l->o);
    if (c->own_tables && c->c2p)
        visit_linear(k, i, &(shape){1, &r->table_k, c->width, c->width, LINEAR_F32, true}, &l->table_k);
    if (c->own_tables && c->p2c)
        visit_linear(k, i, &(shape){1, &r->table_q, c->width, c->width, LINEAR_F32, true}, &l->table_q);
    visit_norm(k, r->feed_norm, i, c->norm_bias, &l->feed_norm);
    visit_linear(k, i, &(shape){1, &r->up, c->inner * (c->row->gated ? 2 : 1), c->width, type, c->feed_bias}, &l->up);
    visit_linear(k, i, &(shape){1, &r->down, c->width, c->inner, type, c->feed_bias}, &l->down);
}

static void visit_head(walk *k)
{
    const encoder_config *c = &k->m->config;
    const encoder_names *r = &c->row->names;
    encoder_weights *w = &k->m->weights;
    visit_linear(k, 0, &(shape){1, &r->head_dense, c->width, c->width, LINEAR_F32, c->head_bias}, &w->head_dense);
    visit_norm(k, r->head_norm, 0, c->norm_bias, &w->head_norm);
    visit_linear(k, 0, &(shape){1, &r->head_out, c->labels, c->width, LINEAR_F32, true}, &w->head_out);
}

rp_status encoder_walk(void *model, model_visitor *visit, void *context)
{
    rp_encoder *m = model;
    const encoder_config *c = &m->config;
    const encoder_names *r = &c->row->names;
    encoder_weights *w = &m->weights;
    walk k = {m, visit, context, RP_OK};
    char word[NAME];
    name_of(&k, r->word, 0, ".weight", word);
    const model_part p = {.name = word,
                          .source = {word},
                          .n_sources = 1,
                          .rows = c->vocab,
                          .columns = c->width,
                          .matrix = &w->word,
                          .type = w->type};
    k.status = visit(context, &p);
    visit_table(&k, r->position, c->positions, c->width, &w->position);
    visit_table(&k, r->token_type, c->token_types, c->width, &w->token_type);
    if (c->embedding_norm)
        visit_norm(&k, r->embedding_norm, 0, c->norm_bias, &w->embedding_norm);
    if (w->has_frequencies)
        visit_array(&k, 1, &r->frequencies, 0, "", c->head_width / 2, 0, &w->frequencies);
    if (c->scheme == ENCODER_T5_BUCKETS)
        visit_table(&k, r->table, c->buckets, c->heads, &w->table);
    if (c->scheme == ENCODER_DEBERTA)
        visit_table(&k, r->table, 2 * c->span, c->width, &w->table);
    if (c->table_norm)
        visit_norm(&k, r->table_norm, 0, true, &w->table_norm);
    if (c->kernel > 0)
        visit_convolution(&k);
    for (int64_t i = 0; i < c->layers && k.status == RP_OK; i++)
        visit_layer(&k, i);
    visit_norm(&k, r->final_norm, 0, c->norm_bias, &w->final_norm);
    if (c->labels > 0) /* a row for each sequence: f32 */
        visit_head(&k);
    return k.status;
}

rp_status encoder_walk_vectors(void *model, model_visitor *visit, void *context)
{
    rp_encoder *m = model;
    const encoder_config *c = &m->config;
    rp_status status = RP_OK;
    for (int64_t i = 0; i < c->layers; i++)
        for (int n = 0; n < 2 && status == RP_OK; n++) {
            char name[48];
            snprintf(name, sizeof name, "vectors.%lld.%s", (long long)i, n == 0 ? "keys" : "queries");
            const model_part p = {.name = name,
                                  .n_sources = 1,
                                  .rows = 2 * c->span,
                                  .columns = c->width,
                                  .array = &m->weights.layer[i].vectors[n]};
            if (encoder_has_vectors(c, n))
                status = visit(context, &p);
        }
    return status;
}

/* Return true if a name matches a stray: equal, or with the same beginning if the stray ends with "*". */
static bool matches(const char *stray, const char *prefix, const char *name)
{
    const size_t n = strlen(stray);
    if (stray[0] == '/')
        return matches(stray + 1, "", name);
    if (strncmp(name, prefix, strlen(prefix)) != 0)
        return false;
    name += strlen(prefix);
    return stray[n - 1] == '*' ? strncmp(name, stray, n - 1) == 0 : strcmp(name, stray) == 0;
}

bool encoder_is_stray(const void *model, const char *name)
{
    const rp_encoder *m = model;
    for (const char *const *s = m->config.row->strays; *s != NULL; s++)
        if (matches(*s, m->weights.prefix, name))
            return true;
    return false;
}

rp_status encoder_make_layers(rp_encoder *m, const io_checkpoint *file, const char *path)
{
    const encoder_config *c = &m->config;
    char word[NAME];
    enum { FEWEST = 5 }; /* a layer has at least a norm and four matrices */
    if (c->layers > (int64_t)io_checkpoint_size(file) / FEWEST)
        return encoder_fail(RP_E_ARG,
                            "%s: %lld layers have at least %lld tensors, but there are %zu (check that config.json and "
                            "the weights belong to one model)",
                            path, (long long)c->layers, (long long)(FEWEST * c->layers), io_checkpoint_size(file));
    snprintf(word, sizeof word, "%s%s.weight", c->row->prefix, c->row->names.word);
    m->weights.prefix = io_checkpoint_find(file, word) != NULL ? c->row->prefix : "";
    if (c->scheme == ENCODER_ROPE && c->row->names.frequencies != NULL) {
        snprintf(word, sizeof word, "%s%s", m->weights.prefix, c->row->names.frequencies);
        m->weights.has_frequencies = io_checkpoint_find(file, word) != NULL;
    }
    m->weights.layer = calloc((size_t)c->layers + 1, sizeof *m->weights.layer);
    return m->weights.layer != NULL ? RP_OK : encoder_no_memory();
}

void encoder_weights_free(rp_encoder *m)
{
    encoder_weights *w = &m->weights;
    for (int64_t i = 0; w->layer != NULL && !w->vectors_mapped && i < m->config.layers; i++)
        for (int n = 0; n < 2; n++)
            free((void *)(uintptr_t)w->layer[i].vectors[n]);
    free(w->layer);
    free(w->stretch);
    encoder_convolution_free(&w->convolution);
    model_store_free(&w->store);
}
