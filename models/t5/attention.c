/* attention.c -- attention for one kind of layer: a plan, the prepared bias of each table, and work memory for each
 * worker.
 * SPDX-License-Identifier: Apache-2.0 */
#include "t5/model.h"
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum { ALIGN = 64 };

/* Indices of the arrays of a T5 term: the table, and the given positions of queries and keys. */
enum { TABLE = 0, Q_POSITIONS = 1, K_POSITIONS = 2 };

static rp_status make_plan(t5_attention *a, const rp_t5 *m, const t5_attention_kind *kind)
{
    const t5_config *c = &m->config;
    rp_term term = rp_term_init(RP_TERM_T5);
    rp_mask masks[2];
    rp_desc desc = rp_desc_init(1, c->heads, kind->len_q, kind->len_k, c->d_kv);
    term.buckets = c->buckets;
    term.max_distance = c->max_distance;
    term.bidirectional = kind->both_ways;
    desc.terms = &term;
    desc.n_terms = kind->n_tables > 0;
    if (kind->causal)
        masks[desc.n_masks++] = rp_mask_init(RP_MASK_CAUSAL);
    if (kind->window >= 0) {
        masks[desc.n_masks] = rp_mask_init(RP_MASK_WINDOW);
        masks[desc.n_masks].left = masks[desc.n_masks].right = kind->window;
        desc.n_masks++;
    }
    desc.masks = masks;
    desc.scale = 1;
    desc.dtype = kind->type;
    desc.flexible = 1;
    const rp_status status = rp_plan_create(&a->plan, &desc);
    return status == RP_OK ? RP_OK : t5_core_failed(status);
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
        rp_tensors *t = a->tensors;
        t->term[0][TABLE] = rp_array_of(tables[n], RP_F32, 2, shape);
        const rp_status status = rp_prepare(&a->prepared[n], a->plan, t);
        if (status != RP_OK)
            return t5_core_failed(status);
    }
    return RP_OK;
}

rp_status t5_attention_make(t5_attention *a, const rp_t5 *m, const t5_attention_kind *kind)
{
    *a = (t5_attention){.longest_q = kind->len_q, .longest_k = kind->len_k, .positions = kind->positions};
    rp_status status = make_plan(a, m, kind);
    if (status != RP_OK)
        return status;
    a->workers = rp_pool_threads(m->pool);
    a->work_size = (rp_plan_work_size(a->plan, m->pool) + ALIGN - 1) / ALIGN * ALIGN;
    a->tensors = malloc((size_t)a->workers * sizeof *a->tensors);
    size_t all;
    if (a->work_size == 0)
        return t5_core_failed(RP_E_OVERFLOW);
    if (__builtin_mul_overflow(a->work_size, (size_t)a->workers, &all) || all > PTRDIFF_MAX)
        return t5_fail(RP_E_OVERFLOW, "a sequence of %lld tokens is too long (use shorter inputs)",
                       (long long)kind->len_k);
    a->work = aligned_alloc(ALIGN, all);
    if (a->tensors == NULL || a->work == NULL)
        return t5_no_memory();
    for (int32_t w = 0; w < a->workers; w++) {
        a->tensors[w] = rp_tensors_init();
        a->tensors[w].pool = m->pool;
    }
    return prepare(a, m, kind);
}

int64_t t5_attention_bytes(const rp_t5 *m, const t5_attention_kind *kind)
{
    t5_attention a = {0};
    int64_t bytes = -1;
    if (make_plan(&a, m, kind) == RP_OK) {
        const size_t work = rp_plan_work_size(a.plan, m->pool);
        const int64_t prepared = 4 * (kind->len_q + kind->len_k) * m->config.heads * kind->n_tables;
        if (work == 0 || !t5_mul((int64_t)work, rp_pool_threads(m->pool), &bytes) ||
            __builtin_add_overflow(bytes, prepared, &bytes))
            bytes = -1;
    }
    rp_plan_destroy(a.plan);
    return bytes;
}

void t5_attention_free(t5_attention *a)
{
    for (int64_t n = 0; a->prepared != NULL && n < a->n_tables; n++)
        rp_prepared_destroy(a->prepared[n]);
    free(a->prepared);
    free((void *)(uintptr_t)a->tables);
    free(a->tensors);
    free(a->work);
    rp_plan_destroy(a->plan);
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
    rp_tensors *t = &a->tensors[worker];
    if (a->n_tables > 0) {
        t->term[0][TABLE] = rp_array_of(a->tables[table], RP_F32, 2, shape);
        t->prepared = a->prepared[table];
    }
    const rp_status status = rp_attend(a->plan, t, a->work + (size_t)worker * a->work_size);
    return status == RP_OK ? RP_OK : t5_core_failed(status);
}

/* ------------------------------------------------------------------------------------------------ failures of tasks */

void t5_failed(t5_failure *f, rp_status status)
{
    int none = RP_OK;
    if (status == RP_OK || !atomic_compare_exchange_strong(&f->status, &none, (int)status))
        return;
    strncpy(f->text, rp_t5_last_error(), sizeof f->text - 1);
}

rp_status t5_failure_of(const t5_failure *f)
{
    const rp_status status = (rp_status)f->status;
    return status == RP_OK ? RP_OK : t5_fail(status, "%s", f->text);
}
