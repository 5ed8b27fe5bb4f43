/* vectors.c -- DeBERTa's vectors of positions: its table, normed and projected by the keys and queries of each layer.
 * They are constants of a model, so they are computed once when it is opened or packed.
 * SPDX-License-Identifier: Apache-2.0 */
#include "encoder/encoder.h"
#include <stdlib.h>
#include <string.h>

/* Copy columns first … first + width - 1 of `from`, whose rows have `ld` numbers. */
static float *copy_columns(const float *from, int64_t rows, int64_t ld, int64_t first, int64_t width)
{
    const size_t size = ((size_t)(rows * width) * sizeof(float) + 63) / 64 * 64;
    float *to = aligned_alloc(64, size);
    if (to != NULL && size >= 64) /* a packed file has all of these bytes */
        memset((char *)to + size - 64, 0, 64);
    for (int64_t r = 0; to != NULL && r < rows; r++)
        memcpy(to + r * width, from + r * ld + first, (size_t)width * sizeof *to);
    return to;
}

/* Compute the vectors of a layer by projecting the table with its q and k, or with layers of its own. */
static rp_status project(rp_encoder *m, encoder_layer *l, const float *table, float *projected)
{
    const encoder_config *c = &m->config;
    const int64_t rows = 2 * c->span;
    rp_status status = RP_OK;
    if (!c->own_tables)
        status = encoder_multiply(m, &l->qkv, rows, table, c->width, projected, LINEAR_STORE, NULL);
    for (int n = 0; n < 2 && status == RP_OK; n++) { /* keys, then queries */
        const encoder_linear *own = n == 0 ? &l->table_k : &l->table_q, *used = c->own_tables ? own : &l->qkv;
        if (!encoder_has_vectors(c, n))
            continue;
        if (c->own_tables)
            status = encoder_multiply(m, own, rows, table, c->width, projected, LINEAR_STORE, NULL);
        if (status != RP_OK)
            return status;
        l->vectors[n] = copy_columns(projected, rows, used->w.out, !c->own_tables && n == 0 ? c->width : 0, c->width);
        status = l->vectors[n] != NULL ? RP_OK : encoder_no_memory();
    }
    return status;
}

/* Use the vectors of a packed file. *found is false if it has none of this instruction set. */
static rp_status map_vectors(rp_encoder *m, bool *found)
{
    const char *isa = m->file != NULL ? io_checkpoint_meta(m->file, ENCODER_VECTORS) : NULL;
    model_store store = {0};
    *found = isa != NULL && strcmp(isa, linear_default_isa()) == 0;
    if (!*found)
        return RP_OK;
    m->weights.vectors_mapped = true;
    return encoder_model_failed(model_map(&store, m->file, m->files.root, encoder_walk_vectors, m));
}

rp_status encoder_make_vectors(rp_encoder *m)
{
    const encoder_config *c = &m->config;
    const int64_t rows = 2 * c->span;
    bool found;
    const rp_status mapped = map_vectors(m, &found);
    if (c->scheme != ENCODER_DEBERTA || found || mapped != RP_OK)
        return mapped;
    float *table = malloc((size_t)(rows * c->width) * sizeof *table),
          *projected = malloc((size_t)(rows * 3 * c->width) * sizeof *projected);
    rp_status status = table != NULL && projected != NULL ? RP_OK : encoder_no_memory();
    if (status == RP_OK && c->table_norm)
        encoder_norm_rows(m->pool, rows,
                          &(encoder_normed){m->weights.table, &m->weights.table_norm, table, c->width, c->eps});
    else if (status == RP_OK)
        memcpy(table, m->weights.table, (size_t)(rows * c->width) * sizeof *table);
    for (int64_t i = 0; i < c->layers && status == RP_OK; i++)
        status = project(m, &m->weights.layer[i], table, projected);
    free(table);
    free(projected);
    return status;
}
