/* attention.c -- attention for one kind of layer: the calls of its plan, and the prepared bias of each table.
 * SPDX-License-Identifier: Apache-2.0 */
#include "t5/model.h"
#include <stdlib.h>

/* Indices of the arrays of a T5 term: the table, and the given positions of queries and keys. */
enum { TABLE = 0, Q_POSITIONS = 1, K_POSITIONS = 2 };

/* A description of a call, and what it points to. */
typedef struct described {
    rp_desc desc;
    rp_term term;
    rp_mask masks[2];
} described;

static const rp_desc *describe(described *to, const rp_t5 *m, const t5_attention_kind *kind)
{
    const t5_config *c = &m->config;
    rp_desc *desc = &to->desc;
    *desc = rp_desc_init(1, c->heads, kind->len_q, kind->len_k, c->d_kv);
    to->term = rp_term_init(RP_TERM_T5);
    to->term.buckets = c->buckets;
    to->term.max_distance = c->max_distance;
    to->term.bidirectional = kind->both_ways;
    desc->terms = &to->term;
    desc->n_terms = kind->n_tables > 0;
    if (kind->causal)
        to->masks[desc->n_masks++] = rp_mask_init(RP_MASK_CAUSAL);
    if (kind->window >= 0) {
        to->masks[desc->n_masks] = rp_mask_init(RP_MASK_WINDOW);
        to->masks[desc->n_masks].left = to->masks[desc->n_masks].right = kind->window;
        desc->n_masks++;
    }
    desc->masks = to->masks;
    desc->scale = 1;
    desc->dtype = kind->type;
    desc->flexible = 1;
    return desc;
}

/* Copy the pointers to the tables, and prepare a bias from each table. */
static rp_status prepare(t5_attention *a, const rp_t5 *m, const t5_attention_kind *kind)
{
    const int64_t shape[2] = {m->config.buckets, m->config.heads};
    const float **tables = calloc((size_t)kind->n_tables + 1, sizeof *tables);
    a->tables = tables;
    a->prepared = calloc((size_t)kind->n_tables + 1, sizeof(rp_prepared *));
    if (tables == NULL || a->prepared == NULL)
        return t5_no_memory();
    a->n_tables = kind->n_tables;
    for (int64_t n = 0; n < kind->n_tables; n++) {
        tables[n] = kind->tables[n];
        if (kind->positions)
            continue;
        a->calls.tensors[a->calls.workers - 1].term[0][TABLE] = rp_array_of(tables[n], RP_F32, 2, shape);
        const rp_status status = t5_model_failed(model_attention_prepare(&a->calls, &a->prepared[n]));
        if (status != RP_OK)
            return status;
    }
    return RP_OK;
}

rp_status t5_attention_make(t5_attention *a, const rp_t5 *m, const t5_attention_kind *kind)
{
    described d;
    *a = (t5_attention){.longest_q = kind->len_q, .longest_k = kind->len_k, .positions = kind->positions};
    const rp_status status = t5_model_failed(model_attention_make(&a->calls, describe(&d, m, kind), m->pool));
    return status == RP_OK ? prepare(a, m, kind) : status;
}

int64_t t5_attention_bytes(const rp_t5 *m, const t5_attention_kind *kind)
{
    described d;
    const int64_t work = model_attention_bytes(describe(&d, m, kind), m->pool),
                  prepared = 4 * (kind->len_q + kind->len_k) * m->config.heads * kind->n_tables;
    int64_t bytes;
    return work < 0 || __builtin_add_overflow(work, prepared, &bytes) ? -1 : bytes;
}

void t5_attention_free(t5_attention *a)
{
    for (int64_t n = 0; a->prepared != NULL && n < a->n_tables; n++)
        rp_prepared_destroy(a->prepared[n]);
    free(a->prepared);
    free((void *)(uintptr_t)a->tables);
    model_attention_free(&a->calls);
    *a = (t5_attention){0};
}

rp_array t5_heads(const rp_t5 *m, rp_dtype type, const void *first, int64_t n, int64_t row)
{
    const int64_t d = m->config.d_kv;
    return (rp_array){(void *)(uintptr_t)first, type, 4, {1, m->config.heads, n, d}, {n * row, d, row, 1}};
}

rp_status t5_attend(t5_attention *a, const rp_t5 *m, int64_t table, int32_t worker)
{
    const int64_t shape[2] = {m->config.buckets, m->config.heads};
    rp_tensors *t = &a->calls.tensors[worker];
    if (a->n_tables > 0) {
        t->term[0][TABLE] = rp_array_of(a->tables[table], RP_F32, 2, shape);
        t->prepared = a->prepared[table];
    }
    return t5_model_failed(model_attend(&a->calls, worker));
}
