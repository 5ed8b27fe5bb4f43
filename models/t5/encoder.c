/* encoder.c -- the encoder: tokens to hidden states. Linear layers process the rows of all sequences together, without
 * padding; attention processes each sequence separately. Also implements the local and transient-global attention of
 * LongT5.
 * SPDX-License-Identifier: Apache-2.0 */
#include "checkpoint/finite.h"
#include "t5/model.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_ROWS = 8192 }; /* max rows of a pass, unless one sequence is longer */

/* One pass of several sequences through the encoder. */
typedef struct pass {
    const rp_t5 *m;
    model_watch *watch;
    t5_work work;
    int64_t n;             /* number of sequences */
    const int64_t *starts; /* [n + 1]: first row of each sequence */
    int64_t before, after; /* rows at the start and the end of each sequence that are not part of the result */
    t5_attention attention;
    const t5_block *block;
    int64_t layer;
    model_failure failure;
    /* Transient-global attention: the sums of blocks of tokens serve as additional keys and values. */
    t5_attention side;
    t5_buffer globals, global_normed, global_qkv, side_mixed, lse, positions;
    int64_t *global_starts; /* [n + 1]: first global row of each sequence */
} pass;

/* Return the index of the current layer's table. */
static int64_t table_of(const pass *p)
{
    return p->m->config.kind == T5_UMT5 ? p->layer : 0;
}

/* --------------------------------------------------------------------------------------- transient-global attention */

/* Return the block of a token. Tokens after the last complete block count as part of it. */
static int64_t block_of(const t5_config *c, int64_t token, int64_t globals)
{
    const int64_t block = token / c->global_block;
    return block < globals ? block : globals - 1;
}

static void global_sums(pass *p)
{
    const t5_config *c = &p->m->config;
    const int64_t d = c->d_model;
    float *sums = p->globals.data;
    memset(sums, 0, (size_t)(p->global_starts[p->n] * d) * sizeof *sums);
    for (int64_t s = 0; s < p->n; s++) {
        const int64_t g = p->global_starts[s + 1] - p->global_starts[s], n = p->starts[s + 1] - p->starts[s];
        for (int64_t i = 0; g > 0 && i < n; i++) {
            float *to = sums + (p->global_starts[s] + block_of(c, i, g)) * d;
            const float *x = (const float *)p->work.normed.data + (p->starts[s] + i) * d;
            for (int64_t k = 0; k < d; k++)
                to[k] += x[k];
        }
    }
}

static rp_status make_globals(pass *p)
{
    const t5_config *c = &p->m->config;
    const int64_t n = p->global_starts[p->n];
    if (n == 0) /* every sequence is shorter than a block */
        return RP_OK;
    global_sums(p);
    t5_rms_norm(p->globals.data, n, c->d_model, p->block->norm_global, c->eps, p->global_normed.data);
    return t5_linear(&p->work, &p->block->qkv, n, p->global_normed.data, c->d_model, p->global_qkv.data, 3 * c->inner,
                     LINEAR_STORE);
}

/* Merge two softmaxes over disjoint sets of keys into one. The weight of each result is its sum of exponentials. */
static void merge(pass *p, int64_t first, int64_t rows, const float *lse, const float *side_lse)
{
    const t5_config *c = &p->m->config;
    float *mixed = p->work.mixed.data;
    const float *side = p->side_mixed.data;
    for (int64_t i = 0; i < rows; i++)
        for (int64_t h = 0; h < c->heads; h++) {
            const double fraction = 1 / (1 + exp((double)side_lse[h * rows + i] - (double)lse[h * rows + i]));
            const int64_t at = (first + i) * c->inner + h * c->d_kv;
            for (int64_t k = at; k < at + c->d_kv; k++)
                mixed[k] = (float)(fraction * (double)mixed[k] + (1 - fraction) * (double)side[k]);
        }
}

static rp_status attend_side(pass *p, int64_t s, int32_t worker, int64_t rows, const rp_array *q)
{
    const t5_config *c = &p->m->config;
    const int64_t g = p->global_starts[s + 1] - p->global_starts[s], row = 3 * c->inner, first = p->starts[s];
    const float *qkv = (const float *)p->global_qkv.data + p->global_starts[s] * row;
    float *lse = (float *)p->lse.data + 2 * first * c->heads, *side_lse = lse + rows * c->heads;
    const int64_t *positions = (const int64_t *)p->positions.data + first;
    const int64_t lse_shape[3] = {1, c->heads, rows};
    rp_tensors *t = &p->side.calls.tensors[worker];
    t->q = *q;
    t->k = t5_heads(p->m, RP_F32, qkv + c->inner, g, row);
    t->v = t5_heads(p->m, RP_F32, qkv + 2 * c->inner, g, row);
    t->out = t5_heads(p->m, RP_F32, (float *)p->side_mixed.data + first * c->inner, rows, c->inner);
    t->lse = rp_array_of(side_lse, RP_F32, 3, lse_shape);
    t->term[0][1] = rp_array_of(positions, RP_I64, 1, &rows);
    const rp_status status = t5_attend(&p->side, p->m, 0, worker);
    if (status == RP_OK)
        merge(p, first, rows, lse, side_lse);
    return status;
}

/* ---------------------------------------------------------------------------------------- attention of one sequence */

static void attend_task(void *context, int64_t s, int32_t worker)
{
    pass *p = context;
    const t5_config *c = &p->m->config;
    const int64_t first = p->starts[s], rows = p->starts[s + 1] - first, row = 3 * c->inner;
    const float *qkv = (const float *)p->work.qkv.data + first * row;
    const int64_t lse_shape[3] = {1, c->heads, rows};
    const bool side = p->global_starts != NULL && p->global_starts[s + 1] > p->global_starts[s];
    rp_tensors *t = &p->attention.calls.tensors[worker];
    if (rows == 0)
        return;
    t->q = t5_heads(p->m, RP_F32, qkv, rows, row);
    t->k = t5_heads(p->m, RP_F32, qkv + c->inner, rows, row);
    t->v = t5_heads(p->m, RP_F32, qkv + 2 * c->inner, rows, row);
    t->out = t5_heads(p->m, RP_F32, (float *)p->work.mixed.data + first * c->inner, rows, c->inner);
    if (p->global_starts != NULL)
        t->lse = rp_array_of((float *)p->lse.data + 2 * first * c->heads, RP_F32, 3, lse_shape);
    rp_status status = t5_attend(&p->attention, p->m, table_of(p), worker);
    if (status == RP_OK && side)
        status = attend_side(p, s, worker, rows, &t->q);
    model_failed(&p->failure, status, rp_t5_last_error());
}

static rp_status self_attention(pass *p)
{
    const t5_config *c = &p->m->config;
    t5_work *w = &p->work;
    t5_rms_norm(w->x.data, w->rows, c->d_model, p->block->norm_self, c->eps, w->normed.data);
    rp_status status =
        t5_linear(w, &p->block->qkv, w->rows, w->normed.data, c->d_model, w->qkv.data, 3 * c->inner, LINEAR_STORE);
    if (status == RP_OK && p->global_starts != NULL)
        status = make_globals(p);
    if (status != RP_OK)
        return status;
    model_run_tasks(p->m->pool, p->n, attend_task, p);
    status = t5_model_failed(model_failure_of(&p->failure));
    if (status == RP_OK)
        status = t5_linear(w, &p->block->o, w->rows, w->mixed.data, c->inner, w->x.data, c->d_model, LINEAR_ADD);
    return status;
}

/* ------------------------------------------------------------------------------------------------ a pass */

/* List the tables of all layers that have one. */
static const float **tables_of(const rp_t5 *m, bool global, int64_t *n)
{
    *n = m->config.kind == T5_UMT5 ? m->weights.encoder.layers : 1;
    const float **tables = calloc((size_t)*n, sizeof *tables);
    for (int64_t i = 0; tables != NULL && i < *n; i++)
        tables[i] = global ? m->weights.encoder.block[i].global_table : m->weights.encoder.block[i].table;
    return tables;
}

/* Describe the attention of the encoder, without its tables. */
static t5_attention_kind kind_of(const rp_t5 *m, bool side, int64_t longest)
{
    const t5_config *c = &m->config;
    return (t5_attention_kind){.len_q = longest,
                               .len_k = side ? longest / c->global_block : longest,
                               .both_ways = true,
                               .positions = side,
                               .window = c->encoder_attention == T5_FULL || side ? -1 : c->radius};
}

static rp_status make_attention(t5_attention *a, const rp_t5 *m, bool side, int64_t longest)
{
    t5_attention_kind kind = kind_of(m, side, longest);
    const float **tables = tables_of(m, side, &kind.n_tables);
    kind.tables = tables;
    const rp_status status = tables != NULL ? t5_attention_make(a, m, &kind) : t5_no_memory();
    free(tables);
    return status;
}

static rp_status make_side(pass *p, int64_t longest)
{
    const t5_config *c = &p->m->config;
    const int64_t rows = p->starts[p->n];
    p->global_starts = calloc((size_t)p->n + 1, sizeof *p->global_starts);
    if (p->global_starts == NULL)
        return t5_no_memory();
    for (int64_t s = 0; s < p->n; s++)
        p->global_starts[s + 1] = p->global_starts[s] + (p->starts[s + 1] - p->starts[s]) / c->global_block;
    const int64_t n = p->global_starts[p->n];
    rp_status status;
    if ((status = t5_reserve(&p->globals, n, c->d_model * 4)) != RP_OK ||
        (status = t5_reserve(&p->global_normed, n, c->d_model * 4)) != RP_OK ||
        (status = t5_reserve(&p->global_qkv, n, 3 * c->inner * 4)) != RP_OK ||
        (status = t5_reserve(&p->side_mixed, rows, c->inner * 4)) != RP_OK ||
        (status = t5_reserve(&p->lse, rows, 2 * c->heads * 4)) != RP_OK ||
        (status = t5_reserve(&p->positions, rows, 8)) != RP_OK)
        return status;
    for (int64_t s = 0; s < p->n; s++)
        for (int64_t r = p->starts[s]; r < p->starts[s + 1]; r++)
            ((int64_t *)p->positions.data)[r] =
                block_of(c, r - p->starts[s], p->global_starts[s + 1] - p->global_starts[s]);
    return n > 0 ? make_attention(&p->side, p->m, true, longest) : RP_OK;
}

static void free_pass(pass *p)
{
    t5_buffer *all[] = {&p->globals, &p->global_normed, &p->global_qkv, &p->side_mixed, &p->lse, &p->positions};
    for (size_t n = 0; n < sizeof all / sizeof *all; n++)
        t5_release(all[n]);
    free(p->global_starts);
    t5_attention_free(&p->attention);
    t5_attention_free(&p->side);
    t5_work_free(&p->work);
}

static rp_status run_layers(pass *p, const rp_t5_tokens *sources, float *out)
{
    const t5_config *c = &p->m->config;
    const t5_stack *stack = &p->m->weights.encoder;
    rp_status status = RP_OK;
    for (int64_t s = 0; s < p->n; s++)
        t5_embed(&p->work, sources[s].tokens, sources[s].n, (float *)p->work.x.data + p->starts[s] * c->d_model);
    for (p->layer = 0; status == RP_OK && p->layer < stack->layers; p->layer++) {
        p->block = &stack->block[p->layer];
        model_watch_at(p->watch, (double)p->layer / (double)stack->layers);
        status = self_attention(p);
        if (status == RP_OK)
            status = t5_feed_forward(&p->work, p->block, p->block->experts != NULL, p->n, p->starts);
    }
    for (int64_t s = 0; status == RP_OK && s < p->n; s++) {
        const int64_t rows = p->starts[s + 1] - p->starts[s] - p->before - p->after;
        const float *x = (const float *)p->work.x.data + (p->starts[s] + p->before) * c->d_model;
        t5_rms_norm(x, rows, c->d_model, stack->norm, c->eps, out);
        out += rows > 0 ? rows * c->d_model : 0;
    }
    return status;
}

/* Call the callback during attention, which takes most of the time for a long sequence. */
static int check_watch(void *context, double fraction)
{
    const pass *p = context;
    const t5_config *c = &p->m->config;
    const double attention = 2 * (double)p->starts[p->n] * (double)c->inner,
                 linear = (double)c->d_model * (4 * (double)c->inner + (c->gated ? 3 : 2) * (double)c->d_ff);
    model_watch_at(p->watch, ((double)p->layer + fraction * attention / (attention + linear)) / (double)c->layers);
    return model_stopped(p->watch);
}

static rp_status encode_some(const rp_t5 *m, int64_t n, const rp_t5_tokens *sources, int64_t before, int64_t after,
                             float *out, model_watch *watch)
{
    int64_t longest = 0, *starts = calloc((size_t)n + 1, sizeof *starts);
    pass p = {.m = m, .watch = watch, .n = n, .starts = starts, .before = before, .after = after, .work.watch = watch};
    if (starts == NULL)
        return t5_no_memory();
    for (int64_t s = 0; s < n; s++) {
        starts[s + 1] = starts[s] + sources[s].n;
        longest = sources[s].n > longest ? sources[s].n : longest;
    }
    rp_status status = RP_OK;
    if (longest > 0) {
        status = t5_work_rows(&p.work, m, starts[n]);
        if (status == RP_OK)
            status = make_attention(&p.attention, m, false, longest);
        if (status == RP_OK)
            model_attention_watch(&p.attention.calls, check_watch, &p);
        if (status == RP_OK && m->config.encoder_attention == T5_TRANSIENT_GLOBAL)
            status = make_side(&p, longest);
        if (status == RP_OK)
            status = run_layers(&p, sources, out);
    }
    free_pass(&p);
    free(starts);
    return status;
}

rp_status t5_encode_inner(const rp_t5 *m, int64_t n_sources, const rp_t5_tokens *sources, int64_t before, int64_t after,
                          float *out, model_watch *watch)
{
    const double from = watch != NULL ? watch->from : 0, to = watch != NULL ? watch->to : 1;
    double done = 0, all = 1e-9;
    for (int64_t s = 0; s < n_sources; s++)
        all += (double)sources[s].n;
    for (int64_t s = 0, end; s < n_sources; s = end) {
        int64_t rows = 0;
        for (end = s; end < n_sources && (end == s || rows + sources[end].n <= MAX_ROWS); end++)
            rows += sources[end].n;
        model_watch_part(watch, from + (to - from) * done / all, from + (to - from) * (done + (double)rows) / all);
        const rp_status status = encode_some(m, end - s, sources + s, before, after, out, watch);
        if (status != RP_OK)
            return status;
        done += (double)rows;
        for (; s < end; s++)
            out += (sources[s].n - before - after) * m->config.d_model;
    }
    return RP_OK;
}

rp_status t5_encode_sources(const rp_t5 *m, int64_t n_sources, const rp_t5_tokens *sources, float *out,
                            model_watch *watch)
{
    return t5_encode_inner(m, n_sources, sources, 0, 0, out, watch);
}

rp_status rp_t5_encode(const rp_t5 *m, int64_t n_sources, const rp_t5_tokens *sources, float *out,
                       rp_progress *progress, void *context)
{
    model_watch watch = model_watch_of(progress, context);
    rp_status status = t5_check_tokens(m, "sources", n_sources, sources);
    if (status != RP_OK)
        return status;
    if (out == NULL && n_sources > 0)
        return t5_fail(RP_E_ARG, "out is NULL; pass the array to fill");
    status = t5_finish(m, t5_encode_sources(m, n_sources, sources, out, &watch));
    int64_t rows = 0;
    for (int64_t s = 0; s < n_sources; s++)
        rows += sources[s].n;
    return status == RP_OK ? t5_check_hidden(m, out, rows) : status;
}

rp_status t5_check_hidden(const rp_t5 *m, const float *rows, int64_t n)
{
    return model_finite(rows, n * m->config.d_model) ? RP_OK : t5_not_finite(m, "hidden states");
}

int64_t rp_t5_encode_bytes(const rp_t5 *m, int64_t tokens, int64_t longest)
{
    if (m == NULL || longest < 0 || longest > tokens || tokens > INT32_MAX)
        return -1;
    if (tokens == 0)
        return 0;
    const int64_t rows = longest > MAX_ROWS ? longest : tokens < MAX_ROWS ? tokens : MAX_ROWS;
    t5_attention_kind kind = kind_of(m, false, longest > 0 ? longest : 1);
    kind.n_tables = m->config.kind == T5_UMT5 ? m->config.layers : 1;
    const int64_t work = t5_work_bytes(m, rows), attention = t5_attention_bytes(m, &kind);
    int64_t bytes;
    return work >= 0 && attention >= 0 && !__builtin_add_overflow(work, attention, &bytes) ? bytes : -1;
}
