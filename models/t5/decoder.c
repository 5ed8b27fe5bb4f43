/* decoder.c -- decoding sessions: encode sources, then run decoding steps, each for all rows. The cross-attention keys
 * and values of a source are computed once. One call computes the cross-attention of all rows that have the same
 * source.
 * SPDX-License-Identifier: Apache-2.0 */
#include "checkpoint/finite.h"
#include "t5/session.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    HEAD_ROWS = 16, /* rows whose logits are computed together before `visit` gets them */
    KEY_BLOCK = 32  /* the keys of a source are padded to a multiple of this, to fill whole cache lines */
};

/* ------------------------------------------------------------------------------------------------ sessions */

/* Return the number of elements that one layer has in s->cross. */
static int64_t cross_numbers(const rp_t5_session *s)
{
    return (s->key_starts[s->n_sources] + s->starts[s->n_sources]) * s->m->config.inner;
}

/* Copy n numbers (keys or values) with strides: to[k * to_step] = from[k * from_step]. */
static void copy_numbers(const rp_t5_session *s, int64_t n, const void *from, int64_t from_step, void *to,
                         int64_t to_step)
{
    if (s->type == RP_F32)
        for (int64_t k = 0; k < n; k++)
            ((float *)to)[k * to_step] = ((const float *)from)[k * from_step];
    else
        for (int64_t k = 0; k < n; k++)
            ((uint16_t *)to)[k * to_step] = ((const uint16_t *)from)[k * from_step];
}

typedef struct transposing {
    const rp_t5_session *s;
    const float *kv;   /* [tokens][2 * inner] of one layer */
    uint16_t *rounded; /* kv as bf16, if the cache is bf16 */
    unsigned char *to;
} transposing;

/* Store the keys of one source, transposed to [inner][keys], and its values, one head after another. */
static void transpose_source(void *context, int64_t n, int32_t worker)
{
    const transposing *t = context;
    const rp_t5_session *s = t->s;
    const int64_t inner = s->m->config.inner, d = s->m->config.d_kv, width = 2 * inner, first = s->starts[n],
                  keys = s->starts[n + 1] - first, capacity = s->key_starts[n + 1] - s->key_starts[n];
    const void *kv = s->type == RP_F32 ? (const void *)(t->kv + first * width) : t->rounded + first * width;
    unsigned char *k = t5_number(s, t->to, s->key_starts[n] * inner),
                  *v = t5_number(s, t->to, (s->key_starts[s->n_sources] + first) * inner);
    (void)worker;
    if (s->type == RP_BF16)
        rp_convert(t->rounded + first * width, RP_BF16, t->kv + first * width, RP_F32, keys * width);
    for (int64_t j0 = 0; j0 < keys; j0 += KEY_BLOCK)
        for (int64_t x = 0; x < inner; x++)
            copy_numbers(s, keys - j0 < KEY_BLOCK ? keys - j0 : KEY_BLOCK, t5_number(s, kv, j0 * width + x), width,
                         t5_number(s, k, x * capacity + j0), 1);
    for (int64_t h = 0; h < s->m->config.heads; h++)
        for (int64_t j = 0; j < keys; j++)
            memcpy(t5_number(s, v, (h * keys + j) * d), t5_number(s, kv, j * width + inner + h * d),
                   (size_t)(d * s->size));
}

/* Compute the keys and values of all sources in all layers. */
static rp_status make_cross(rp_t5_session *s, const float *hidden)
{
    const t5_config *c = &s->m->config;
    const t5_stack *stack = &s->m->weights.decoder;
    const int64_t rows = s->starts[s->n_sources], width = 2 * c->inner;
    int64_t count;
    for (int64_t n = 0; n < s->n_sources; n++)
        s->key_starts[n + 1] =
            s->key_starts[n] + (s->starts[n + 1] - s->starts[n] + KEY_BLOCK - 1) / KEY_BLOCK * KEY_BLOCK;
    if (!t5_mul(rows + s->key_starts[s->n_sources], c->inner * s->size, &count) ||
        !t5_mul(count, stack->layers, &count))
        return t5_fail(RP_E_OVERFLOW, "sources of %lld tokens are too long (use fewer or shorter ones)",
                       (long long)rows);
    float *kv = malloc((size_t)(rows * width) * (sizeof *kv + sizeof(uint16_t)) + 1);
    s->cross = aligned_alloc(64, (size_t)count / 64 * 64 + 64);
    rp_status status = s->cross != NULL && kv != NULL ? t5_work_rows(&s->work, s->m, rows)
                                                      : t5_no_memory_for("keys and values of the sources", count);
    for (int64_t l = 0; l < stack->layers && status == RP_OK; l++) {
        transposing t = {s, kv, (uint16_t *)(void *)(kv + rows * width), t5_number(s, s->cross, l * cross_numbers(s))};
        status = t5_linear(&s->work, &stack->block[l].cross_kv, rows, hidden, c->d_model, kv, width, LINEAR_STORE);
        if (status == RP_OK)
            rp_pool_run(s->m->pool, s->n_sources, transpose_source, &t);
    }
    free(kv);
    return status;
}

static rp_status begin(rp_t5_session *s, const rp_t5_tokens *sources, int64_t positions, model_watch *watch)
{
    for (int64_t n = 0; n < s->n_sources; n++)
        s->starts[n + 1] = s->starts[n] + sources[n].n;
    int64_t bytes;
    if (!t5_mul(s->starts[s->n_sources], s->m->config.d_model * 4, &bytes))
        return t5_fail(RP_E_OVERFLOW, "the sources are too long (use fewer or shorter ones)");
    float *hidden = malloc((size_t)bytes + 1);
    if (hidden == NULL)
        return t5_no_memory_for("hidden states", bytes);
    rp_status status = t5_encode_sources(s->m, s->n_sources, sources, hidden, watch);
    if (status == RP_OK)
        status = make_cross(s, hidden);
    free(hidden);
    return status == RP_OK ? t5_grow_capacity(s, positions) : status;
}

rp_status t5_begin(rp_t5_session **session, const rp_t5 *m, int64_t n_sources, const rp_t5_tokens *sources,
                   int64_t positions, model_watch *watch)
{
    if (session == NULL)
        return t5_fail(RP_E_ARG, "session is NULL; pass the address of a pointer");
    *session = NULL;
    rp_status status = t5_check_tokens(m, "sources", n_sources, sources);
    if (status == RP_OK)
        status = t5_need_decoder(m);
    if (status != RP_OK)
        return status;
    if (positions < 0 || positions > INT32_MAX)
        return t5_fail(RP_E_RANGE, "positions is %lld; it must be 0 to %d", (long long)positions, INT32_MAX);
    rp_t5_session *s = calloc(1, sizeof *s);
    if (s == NULL)
        return t5_no_memory();
    s->m = m;
    s->type = t5_cached_type(m);
    s->size = (int64_t)rp_dtype_size(s->type);
    s->n_sources = n_sources;
    s->page = t5_page_tokens(m);
    s->starts = calloc((size_t)n_sources + 1, sizeof *s->starts);
    s->key_starts = calloc((size_t)n_sources + 1, sizeof *s->key_starts);
    s->work.watch = watch;
    status = s->starts != NULL && s->key_starts != NULL ? begin(s, sources, positions > 1 ? positions : 1, watch)
                                                        : t5_no_memory();
    if (status != RP_OK) {
        rp_t5_end(s);
        return status;
    }
    *session = s;
    return RP_OK;
}

rp_status rp_t5_begin(rp_t5_session **session, const rp_t5 *m, int64_t n_sources, const rp_t5_tokens *sources,
                      int64_t positions)
{
    return t5_begin(session, m, n_sources, sources, positions, NULL);
}

void t5_set_watch(rp_t5_session *s, model_watch *watch)
{
    s->work.watch = watch;
}

void rp_t5_end(rp_t5_session *s)
{
    if (s == NULL)
        return;
    t5_free_cache(s);
    t5_attention_free(&s->step);
    t5_attention_free(&s->prefill);
    t5_attention_free(&s->cross_attention);
    t5_work_free(&s->work);
    t5_release(&s->rounded);
    t5_release(&s->logits);
    free(s->cross);
    free(s->key_starts);
    free(s->starts);
    free(s);
}

/* ---------------------------------------------------------------------------------------------- attention of a step */

/* One step of all rows, with n tokens each. */
typedef struct step {
    rp_t5_session *s;
    const t5_block *blocks; /* layers of the decoder or of the draft */
    t5_attention *self;
    int64_t n, layer;
    const int64_t *groups; /* first row of each group of consecutive rows with the same source; then n_rows */
    model_failure failure;
} step;

/* Return rows of `width` numbers in the type that attention uses: for f32 the rows themselves, otherwise a copy rounded
 * to bf16. */
static const void *attended(const rp_t5_session *s, const float *x, int64_t first, int64_t rows, int64_t width)
{
    if (s->type == RP_F32)
        return x + first * width;
    uint16_t *rounded = (uint16_t *)s->rounded.data + first * width;
    rp_convert(rounded, RP_BF16, x + first * width, RP_F32, rows * width);
    return rounded;
}

/* Return where attention writes its results. Afterwards take_mixed moves them to s->work.mixed. */
static void *mixed_of(const rp_t5_session *s, int64_t first)
{
    const int64_t inner = s->m->config.inner;
    if (s->type == RP_F32)
        return (float *)s->work.mixed.data + first * inner;
    return (uint16_t *)s->rounded.data + (3 * s->work.rows + first) * inner;
}

static void take_mixed(const rp_t5_session *s, int64_t first, int64_t rows)
{
    const int64_t inner = s->m->config.inner;
    if (s->type == RP_BF16)
        rp_convert((float *)s->work.mixed.data + first * inner, RP_F32, mixed_of(s, first), RP_BF16, rows * inner);
}

/* Copy the new keys and values of a row to its pages. */
static void store_row(const step *p, const row *r, const void *qkv)
{
    const rp_t5_session *s = p->s;
    const int64_t inner = s->m->config.inner, d = s->m->config.d_kv;
    for (int64_t i = 0; i < p->n; i++, qkv = t5_number(s, qkv, 3 * inner)) {
        const int64_t at = s->length + i;
        page *to = r->pages[at / s->page];
        const void *keys = t5_page_layer(s, to, p->layer, 0), *values = t5_page_layer(s, to, p->layer, 1);
        copy_numbers(s, inner, t5_number(s, qkv, inner), 1, t5_number(s, keys, at % s->page), s->page);
        for (int64_t h = 0; h < s->m->config.heads; h++)
            memcpy(t5_number(s, values, (h * s->page + at % s->page) * d), t5_number(s, qkv, 2 * inner + h * d),
                   (size_t)(d * s->size));
    }
}

static void self_task(void *context, int64_t r, int32_t worker)
{
    step *p = context;
    rp_t5_session *s = p->s;
    const int64_t inner = s->m->config.inner, one = 1, n_pages = t5_pages_of(s, s->length + p->n);
    const void *qkv = attended(s, s->work.qkv.data, r * p->n, p->n, 3 * inner);
    const void **k = s->page_at + (int64_t)worker * 2 * s->capacity, **v = k + s->capacity;
    rp_tensors *t = &p->self->calls.tensors[worker];
    store_row(p, &s->rows[r], qkv);
    for (int64_t x = 0; x < n_pages; x++) {
        k[x] = t5_page_layer(s, s->rows[r].pages[x], p->layer, 0);
        v[x] = t5_page_layer(s, s->rows[r].pages[x], p->layer, 1);
    }
    t->pages = (rp_pages){.k = k,
                          .v = v,
                          .page = s->page,
                          .per_batch = s->capacity,
                          .len_k = s->length + p->n,
                          .k_head = s->m->config.d_kv * s->page,
                          .k_key = 1,
                          .k_channel = s->page,
                          .v_head = s->m->config.d_kv * s->page,
                          .v_key = s->m->config.d_kv};
    t->q = t5_heads(s->m, s->type, qkv, p->n, 3 * inner);
    t->out = t5_heads(s->m, s->type, mixed_of(s, r * p->n), p->n, inner);
    t->q_offset = rp_array_of(&s->length, RP_I64, 1, &one);
    model_failed(&p->failure, t5_attend(p->self, s->m, s->m->config.kind == T5_UMT5 ? p->layer : 0, worker),
                 rp_t5_last_error());
    take_mixed(s, r * p->n, p->n);
}

/* Compute the cross-attention of all rows of one source in one call. */
static void cross_task(void *context, int64_t g, int32_t worker)
{
    step *p = context;
    rp_t5_session *s = p->s;
    const int64_t inner = s->m->config.inner, d = s->m->config.d_kv, first = p->groups[g] * p->n,
                  rows = p->groups[g + 1] * p->n - first;
    const int64_t source = s->rows[p->groups[g]].source, keys = s->starts[source + 1] - s->starts[source];
    const void *layer = t5_number(s, s->cross, p->layer * cross_numbers(s));
    const int64_t capacity = s->key_starts[source + 1] - s->key_starts[source];
    rp_tensors *t = &s->cross_attention.calls.tensors[worker];
    if (keys == 0) { /* nothing to attend to */
        memset((float *)s->work.mixed.data + first * inner, 0, (size_t)(rows * inner) * sizeof(float));
        return;
    }
    t->q = t5_heads(s->m, s->type, attended(s, s->work.qkv.data, first, rows, inner), rows, inner);
    t->k = t5_heads(s->m, s->type, t5_number(s, layer, s->key_starts[source] * inner), keys, inner);
    t->k.stride[1] = d * capacity;
    t->k.stride[2] = 1;
    t->k.stride[3] = capacity;
    t->v = t5_heads(s->m, s->type, t5_number(s, layer, (s->key_starts[s->n_sources] + s->starts[source]) * inner), keys,
                    d);
    t->v.stride[1] = keys * d;
    t->out = t5_heads(s->m, s->type, mixed_of(s, first), rows, inner);
    model_failed(&p->failure, t5_attend(&s->cross_attention, s->m, 0, worker), rp_t5_last_error());
    take_mixed(s, first, rows);
}

static rp_status run_tasks(step *p, int64_t n, rp_task *task)
{
    model_run_tasks(p->s->m->pool, n, task, p);
    return t5_model_failed(model_failure_of(&p->failure));
}

static rp_status run_layer(step *p)
{
    t5_work *w = &p->s->work;
    const t5_config *c = &p->s->m->config;
    const t5_block *b = &p->blocks[p->layer];
    const int64_t d = c->d_model;
    int64_t n_groups = 0;
    while (p->groups[n_groups] < p->s->n_rows)
        n_groups++;
    t5_rms_norm(w->x.data, w->rows, d, b->norm_self, c->eps, w->normed.data);
    rp_status status = t5_linear(w, &b->qkv, w->rows, w->normed.data, d, w->qkv.data, 3 * c->inner, LINEAR_STORE);
    if (status == RP_OK)
        status = run_tasks(p, p->s->n_rows, self_task);
    if (status == RP_OK)
        status = t5_linear(w, &b->o, w->rows, w->mixed.data, c->inner, w->x.data, d, LINEAR_ADD);
    if (status != RP_OK)
        return status;
    t5_rms_norm(w->x.data, w->rows, d, b->norm_cross, c->eps, w->normed.data);
    status = t5_linear(w, &b->cross_q, w->rows, w->normed.data, d, w->qkv.data, c->inner, LINEAR_STORE);
    if (status == RP_OK)
        status = run_tasks(p, n_groups, cross_task);
    if (status == RP_OK)
        status = t5_linear(w, &b->cross_o, w->rows, w->mixed.data, c->inner, w->x.data, d, LINEAR_ADD);
    if (status == RP_OK) /* unlimited capacity of experts: a token must not depend on other tokens of its step */
        status = t5_feed_forward(w, b, b->experts != NULL, 0, NULL);
    return status;
}

/* ------------------------------------------------------------------------------------------------ a step */

/* Grow a length by doubling, so attention is rarely prepared again. */
static int64_t bound(int64_t had, int64_t needed)
{
    return needed <= had ? had : needed > 2 * had ? needed : 2 * had;
}

static rp_status remake(t5_attention *a, const rp_t5 *m, const t5_attention_kind *kind)
{
    if (a->calls.plan != NULL && kind->len_q <= a->longest_q && kind->len_k <= a->longest_k)
        return RP_OK;
    t5_attention_kind larger = *kind;
    larger.len_q = bound(a->longest_q, kind->len_q);
    larger.len_k = bound(a->longest_k, kind->len_k);
    t5_attention_free(a);
    return t5_attention_make(a, m, &larger);
}

static rp_status prepare_self(rp_t5_session *s, int64_t n, t5_attention **chosen)
{
    const t5_stack *stack = &s->m->weights.decoder;
    const int64_t capacity = s->capacity * s->page;
    t5_attention_kind kind = {.len_q = n, .len_k = capacity, .causal = n > 1, .window = -1, .type = s->type};
    kind.n_tables = s->m->config.kind == T5_UMT5 ? stack->layers : 1;
    const float **tables = calloc((size_t)kind.n_tables, sizeof *tables);
    if (tables == NULL)
        return t5_no_memory();
    for (int64_t l = 0; l < kind.n_tables; l++)
        tables[l] = stack->block[l].table;
    kind.tables = tables;
    *chosen = n > 1 ? &s->prefill : &s->step;
    const rp_status status = remake(*chosen, s->m, &kind);
    free(tables);
    return status;
}

static rp_status prepare_cross(rp_t5_session *s, int64_t n, const int64_t *groups)
{
    int64_t queries = 0, keys = 1;
    for (int64_t g = 0; groups[g] < s->n_rows; g++)
        queries = (groups[g + 1] - groups[g]) * n > queries ? (groups[g + 1] - groups[g]) * n : queries;
    for (int64_t k = 0; k < s->n_sources; k++)
        keys = s->starts[k + 1] - s->starts[k] > keys ? s->starts[k + 1] - s->starts[k] : keys;
    const t5_attention_kind kind = {.len_q = queries, .len_k = keys, .window = -1, .type = s->type};
    return remake(&s->cross_attention, s->m, &kind);
}

/* Find groups of consecutive rows with the same source (see step.groups). The caller frees the result. */
static int64_t *find_groups(const rp_t5_session *s)
{
    int64_t *groups = malloc(((size_t)s->n_rows + 1) * sizeof *groups), n = 0;
    for (int64_t r = 0; groups != NULL && r < s->n_rows; r++)
        if (r == 0 || s->rows[r].source != s->rows[r - 1].source)
            groups[n++] = r;
    if (groups != NULL)
        groups[n] = s->n_rows;
    return groups;
}

/* Compute the input of the head for all tokens. */
static void finish_hidden(const rp_t5_session *s)
{
    const t5_config *c = &s->m->config;
    const int64_t rows = s->work.rows;
    float *hidden = s->work.normed.data;
    const float scale = (float)(1 / sqrt((double)c->d_model));
    t5_rms_norm(s->work.x.data, rows, c->d_model, s->m->weights.decoder.norm, c->eps, hidden);
    for (int64_t k = 0; c->scale && k < rows * c->d_model; k++)
        hidden[k] *= scale;
}

static rp_status apply_head(rp_t5_session *s, int64_t rows, const float *hidden, int64_t ld, float *logits)
{
    return t5_linear(&s->work, &s->m->weights.head, rows, hidden, ld, logits, s->m->config.vocab, LINEAR_STORE);
}

rp_status t5_check_logits(const rp_t5 *m, const float *logits)
{
    return model_finite(logits, m->config.vocab) ? RP_OK : t5_not_finite(m, "logits");
}

/* Compute rows of logits, and check them. */
static rp_status finite_logits(rp_t5_session *s, int64_t rows, const float *hidden, int64_t ld, float *logits)
{
    rp_status status = apply_head(s, rows, hidden, ld, logits);
    for (int64_t r = 0; status == RP_OK && r < rows; r++)
        status = t5_check_logits(s->m, logits + r * s->m->config.vocab);
    return status;
}

const float *t5_hidden(const rp_t5_session *s, int64_t r, int64_t position)
{
    return (const float *)s->work.normed.data + (r * s->taken + position) * s->m->config.d_model;
}

rp_status t5_keep_row(rp_t5_session *s, int32_t r)
{
    const rp_status status = t5_continue_rows(s, 1, &r);
    s->broken = status != RP_OK;
    return status;
}

int64_t t5_length(const rp_t5_session *s)
{
    return s->length;
}

rp_status t5_logits_of(rp_t5_session *s, const float *hidden, float *logits)
{
    return finite_logits(s, 1, hidden, s->m->config.d_model, logits);
}

static rp_status visit_all(rp_t5_session *s, int64_t n, t5_visit *visit, void *context)
{
    const int64_t d = s->m->config.d_model, vocab = s->m->config.vocab, all = s->n_rows * n;
    rp_status status = t5_reserve(&s->logits, HEAD_ROWS, vocab * 4);
    for (int64_t r = 0; status == RP_OK && r < all; r += HEAD_ROWS) {
        const int64_t some = all - r < HEAD_ROWS ? all - r : HEAD_ROWS;
        const float *hidden = (const float *)s->work.normed.data + r * d;
        status = apply_head(s, some, hidden, d, s->logits.data);
        for (int64_t k = r; status == RP_OK && k < r + some; k++)
            status = visit(context, k / n, k % n, (float *)s->logits.data + (k - r) * vocab);
    }
    return status;
}

static rp_status run_step(step *p, const int32_t *tokens, float *logits, t5_visit *visit, void *context)
{
    rp_t5_session *s = p->s;
    rp_status status = RP_OK;
    t5_embed(&s->work, tokens, s->n_rows * p->n, s->work.x.data);
    for (p->layer = 0; status == RP_OK && p->layer < s->m->weights.decoder.layers; p->layer++)
        status = run_layer(p);
    if (status != RP_OK)
        return status;
    finish_hidden(s);
    s->length += p->n;
    s->taken = p->n;
    if (visit != NULL)
        return visit_all(s, p->n, visit, context);
    if (logits == NULL)
        return RP_OK;
    return finite_logits(s, s->n_rows, t5_hidden(s, 0, p->n - 1), p->n * s->m->config.d_model, logits);
}

static rp_status decode_by(const t5_block *blocks, rp_t5_session *s, int64_t rows, const int32_t *parents, int64_t n,
                           const int32_t *tokens, float *logits, t5_visit *visit, void *context)
{
    step p = {.s = s, .blocks = blocks, .n = n};
    int64_t *groups = NULL, all;
    if (s->broken)
        return t5_fail(RP_E_ARG, "the session cannot continue, because an earlier call failed (begin another)");
    if (!t5_mul(rows, n, &all) || all > INT32_MAX || s->length > INT32_MAX - n)
        return t5_fail(RP_E_RANGE, "%lld rows of %lld tokens are too many (use fewer or shorter inputs)",
                       (long long)rows, (long long)n);
    rp_status status = t5_grow_capacity(s, s->length + n);
    if (status == RP_OK)
        status = t5_continue_rows(s, rows, parents);
    if (status == RP_OK)
        status = t5_open_pages(s, n);
    if (status == RP_OK)
        status = (groups = find_groups(s)) != NULL ? RP_OK : t5_no_memory();
    if (status == RP_OK)
        status = prepare_self(s, n, &p.self);
    if (status == RP_OK)
        status = prepare_cross(s, n, groups);
    if (status == RP_OK)
        status = t5_work_rows(&s->work, s->m, all);
    if (status == RP_OK && s->type == RP_BF16)
        status = t5_reserve(&s->rounded, all, 4 * s->m->config.inner * s->size);
    p.groups = groups;
    if (status == RP_OK)
        status = run_step(&p, tokens, logits, visit, context);
    s->broken = status != RP_OK;
    free(groups);
    return status;
}

rp_status t5_decode(rp_t5_session *s, int64_t rows, const int32_t *parents, int64_t n, const int32_t *tokens,
                    float *logits, t5_visit *visit, void *context)
{
    return decode_by(s->m->weights.decoder.block, s, rows, parents, n, tokens, logits, visit, context);
}

rp_status t5_decode_draft(rp_t5_session *s, int32_t token, const rp_t5_tokens *source, float *logits)
{
    const int32_t only = 0;
    const rp_status status = decode_by(s->m->draft->blocks, s, 1, &only, 1, &token, NULL, NULL, NULL);
    return status == RP_OK ? t5_draft_logits(&s->work, t5_hidden(s, 0, 0), source, logits) : status;
}

rp_status rp_t5_step(rp_t5_session *s, int64_t rows, const int32_t *parents, const int32_t *tokens, float *logits)
{
    if (s == NULL || parents == NULL || tokens == NULL || logits == NULL)
        return t5_fail(RP_E_ARG, "session, parents, tokens or logits is NULL; pass all of them");
    if (rows < 1)
        return t5_fail(RP_E_RANGE, "rows is %lld; it must be at least 1", (long long)rows);
    for (int64_t r = 0; r < rows; r++)
        if (tokens[r] < 0 || tokens[r] >= s->m->config.vocab)
            return t5_fail(RP_E_RANGE, "tokens[%lld] is %d; it must be 0 to %lld", (long long)r, (int)tokens[r],
                           (long long)s->m->config.vocab - 1);
    return t5_decode(s, rows, parents, 1, tokens, logits, NULL, NULL);
}
