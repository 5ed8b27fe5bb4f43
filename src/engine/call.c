/* engine/call.c -- code that forward and backward calls share: set up the call, its sources and its memory, and fill
 * COLUMN sources.
 * SPDX-License-Identifier: Apache-2.0 */
#include "engine.h"
#include <string.h>

/* Return true if there is no RoPE, or if RoPE changes neither norms nor the product of a query with its own key. This
 * requires that no positions or angles are given and that the factor of RoPE is 1. */
static bool norms_stay(const rp_plan *plan, const rpi_args *args)
{
    if (plan->rotate < 0 || !args)
        return true;
    return !rpi_rope_tokens_given(args, false) && !rpi_rope_tokens_given(args, true) && args->rope_factor == 1;
}

void rpi_call_begin(rpi_call *c, rpi_sources *sources, const rp_plan *plan, const rpi_limits *e, const rpi_args *args)
{
    rpi_sources_describe(sources, plan, e);
    const rpi_source *last = sources->n ? &sources->source[sources->n - 1] : NULL;
    *c = (rpi_call){.plan = plan,
                    .limits = e,
                    .args = args,
                    .source = sources->source,
                    .n_sources = sources->n,
                    .value_vectors = last && last->kind == RPI_VALUES ? last : NULL,
                    .starts = e->len_k > plan->ops->tile_keys && rpi_biases_bounded(sources->source, sources->n) &&
                              norms_stay(plan, args) && plan->desc.softcap_after == 0,
                    .pad_k = rpi_round_up(e->len_k, plan->ops->nr),
                    .packed_k = rpi_round_up(args ? args->key_to - args->key_from : e->len_k, plan->ops->nr),
                    .pad_v = rpi_round_up(plan->desc.dim_v, plan->ops->vl)};
}

rp_status rpi_work_begin(rpi_arena *a, void *work, size_t size)
{
    const rp_status status = rpi_arena_fits(a, "the call");
    if (status != RP_OK || !work || (size_t)a->used > size)
        return status == RP_OK ? rpi_arena_alloc(a, false, "the call") : status;
    *a = (rpi_arena){.base = work};
    return RP_OK;
}

void rpi_head_at(const rpi_call *c, int64_t head, int64_t *b, int64_t *h)
{
    const rp_desc *d = &c->args->desc;
    const int64_t per_kv = d->heads / d->kv_heads, kv = c->g0 + head / per_kv;
    *b = kv / d->kv_heads;
    *h = kv % d->kv_heads * per_kv + head % per_kv;
}

void rpi_call_fill(rpi_call *c, rpi_sources *sources, rp_pool *pool)
{
    rpi_sources_fill(sources, c->args, c->limits, pool);
    rpi_rope_tables_fill(&c->rope, c->args, c->limits, pool);
    /* the special start of the running maximum (kernels/skip.h) helps only if some biases fall far enough */
    c->starts = c->starts && rpi_biases_fall(c->source, c->n_sources, c->args, rpi_exp_limit(c->plan));
    /* a decoding call reads keys and values only once, so skipping saves time only if the caller keeps key_norms */
    c->skips = c->starts && c->plan->skips && (!c->limits->decode_queries || c->args->key_norms.data || c->grads);
}

/* Set sum[i] to the product of key j0+i of kv head g with the only vector of a product. Add the channels in order. */
enum { COLUMN_KEYS = 8, COLUMN_CHANNELS = 64 };
static void column_products(const rpi_pair *p, const rpi_vectors *v, const rpi_view *keys, int64_t g, int64_t j0,
                            int64_t n, double sum[COLUMN_KEYS])
{
    double key[COLUMN_KEYS][COLUMN_CHANNELS] = {{0}}, vector[COLUMN_CHANNELS];
    memset(sum, 0, COLUMN_KEYS * sizeof *sum);
    for (int64_t x0 = 0; x0 < v->width; x0 += COLUMN_CHANNELS) {
        const int64_t m = rpi_min(COLUMN_CHANNELS, v->width - x0);
        for (int64_t x = 0; x < m; x++)
            vector[x] = v->product->vec(p, 0, x0 + x);
        for (int64_t i = 0; i < n; i++)
            if (rpi_is_transposed(keys))
                for (int64_t x = 0; x < m; x++)
                    key[i][x] = rpi_row_value(keys, p->b, g, j0 + i, x0 + x);
            else
                rpi_load_f64(key[i],
                             (const char *)rpi_row_of(keys, p->b, g, j0 + i) + x0 * rpi_floating_size(keys->dtype),
                             keys->dtype, m);
        for (int64_t x = 0; x < m; x++)
            for (int64_t i = 0; i < COLUMN_KEYS; i++)
                sum[i] += key[i][x] * vector[x];
    }
}

static void column_task(void *context, int64_t head, int32_t worker)
{
    const rpi_call *c = context;
    const rp_desc *d = &c->args->desc;
    int64_t b, h;
    (void)worker;
    rpi_head_at(c, head, &b, &h);
    for (int n = 0; n < c->n_sources; n++) {
        const rpi_source *s = &c->source[n];
        const rpi_vectors *v = &s->column.vectors;
        if (s->kind != RPI_COLUMN)
            continue;
        const rpi_pair p = rpi_pair_of(c->args, s->term, b, h, 0);
        const int64_t past = c->args->key_to;
        for (int64_t j0 = c->args->key_from; j0 < c->args->key_from + c->packed_k; j0 += COLUMN_KEYS) {
            double sum[COLUMN_KEYS];
            column_products(&p, v, &c->args->k, rpi_kv_head(d, h), j0, rpi_clamp(past - j0, 0, COLUMN_KEYS), sum);
            for (int64_t i = 0; i < rpi_min(COLUMN_KEYS, c->pad_k - j0); i++)
                rpi_put_real(c->plan, s->column.product, head * c->pad_k + j0 + i,
                             j0 + i < past ? sum[i] * v->factor : 0);
        }
    }
}

void rpi_columns_fill(rpi_call *c, rp_pool *pool)
{
    const rp_desc *d = &c->args->desc;
    bool any = false;
    for (int n = 0; n < c->n_sources; n++)
        any |= c->source[n].kind == RPI_COLUMN;
    if (any && d->len_q && d->len_k)
        rpi_pool_run(pool, c->groups * (d->heads / d->kv_heads), column_task, c);
}
