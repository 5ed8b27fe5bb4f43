/* engine/call.c -- what a forward and a backward call share: heads of a group, sources as the kernels find them, key columns.
 * SPDX-License-Identifier: Apache-2.0 */
#include "engine.h"
#include <string.h>

void rpi_head_at(const rpi_call *c, int64_t head, int64_t *b, int64_t *h)
{
    const rp_desc *d = &c->args->desc;
    const int64_t share = d->heads / d->kv_heads, kv = c->g0 + head / share;
    *b = kv / d->kv_heads;
    *h = kv % d->kv_heads * share + head % share;
}

void rpi_call_fill(rpi_call *c, rpi_sources *sources, rpi_rope_tables *rope, char *work, rp_pool *pool)
{
    rpi_sources_fill(sources, c->plan, c->args, c->grads != NULL, work, pool);
    c->n_sources = sources->n;
    memcpy(c->source, sources->source, sizeof c->source);
    c->valvec = sources->valvec;
    rpi_rope_tables_fill(rope, c->plan, c->args, work, pool);
    c->rope_q = rope->q;
    c->rope_k = rope->k;
    c->rope_q_step = rope->q_step;
    c->rope_k_step = rope->k_step;
}

/* The one product of each key of a COLUMN, for the heads of the group. */
static void column_task(void *context, int64_t head, int32_t worker)
{
    const rpi_call *c = context;
    const rp_desc *d = &c->args->desc;
    int64_t b, h;
    (void)worker;
    rpi_head_at(c, head, &b, &h);
    for (int n = 0; n < c->n_sources; n++) {
        const rpi_source *s = &c->source[n];
        if (s->kind != RPI_COLUMN || !s->column)
            continue;
        const rpi_pair p = rpi_pair_of(c->args, s->term, b, h, 0);
        const double factor = rpi_vec_factor(d, p.term);
        for (int64_t j = 0; j < c->pad_k; j++) {
            double sum = 0;
            for (int64_t x = 0; x < s->width && j < d->len_k; x++)
                sum += rpi_value(rpi_row_of(&c->args->k, b, h / (d->heads / d->kv_heads), j), c->args->k.dtype, x) *
                       s->part->vec(&p, 0, x);
            rpi_put_real(c->plan, s->column, head * c->pad_k + j, sum * factor);
        }
    }
}

void rpi_columns_fill(rpi_call *c, rp_pool *pool)
{
    bool any = false;
    for (int n = 0; n < c->n_sources; n++)
        any |= c->source[n].kind == RPI_COLUMN && c->source[n].column;
    if (any)
        rpi_pool_run(pool, c->groups * (c->args->desc.heads / c->args->desc.kv_heads), column_task, c);
}
