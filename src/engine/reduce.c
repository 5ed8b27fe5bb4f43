/* engine/reduce.c -- the last step of a backward call: turn the sums of each source into gradients of the terms'
 * arrays, with the derivatives of the definitions. merge_head (kernels/backward_task.h) computes the sums;
 * rpi_sums_store (problem/sums.c) writes the gradients. Names no scheme.
 * SPDX-License-Identifier: Apache-2.0 */
#include "engine.h"
#include <math.h>

/* Return the number of batch entries with sums of their own. */
static int64_t samples_of(const rpi_call *c)
{
    return c->limits->per_sample ? c->args->desc.batch : 1;
}

/* STRIP: reduce the sums of each offset. rpi_strip_entry_grads (sources/tables.c) calls `grad` of each OFFSET term,
 * such as bucket_grad in terms/t5_buckets.h. */
static void reduce_strip(const rpi_call *c, const rpi_strip *s)
{
    rpi_backward *bw = c->backward;
    const rp_desc *d = &c->args->desc;
    for (int64_t b = 0; bw->strips && b < (s->batch_step ? d->batch : samples_of(c)); b++) {
        rpi_sums_at(&bw->sums, c->args, b);
        for (int64_t e = s->from; e < s->past; e++)
            rpi_strip_entry_grads(c->args, b, e + rpi_strip_low(s, c->args, b), bw->strips + b * d->heads * s->len + e,
                                  s->len, &bw->sums);
    }
}

/* GATHER: reduce the sums of each entry. rpi_gather_entry_grads (sources/tables.c) calls the scheme's `entry_grad` or
 * `grad`. */
static void reduce_gather(const rpi_call *c, const rpi_source *s, const double *entries)
{
    const int64_t count = s->gather.index.count;
    for (int64_t e = 0; e < count; e++)
        rpi_gather_entry_grads(s, c->args, e, entries + e, count, &c->backward->sums);
}

/* ROWS: reduce the sums that the scheme's row_grad has computed. */
static void reduce_rows(const rpi_call *c, const rpi_source *s, const double *sums)
{
    for (int64_t h = 0; h < c->args->desc.heads; h++) {
        const rpi_pair p = rpi_pair_of(c->args, s->term, 0, h, 0);
        s->scheme->reduce_sums(&p, sums + h * s->rows.sums, &c->backward->sums.term[s->term]);
    }
}

/* RUN, KEYS and VALUES: reduce the sums of each vector. */
static void reduce_vectors(const rpi_call *c, const rpi_source *s, const double *sums)
{
    const rpi_vectors *v = rpi_vectors_of(s);
    for (int64_t h = 0; h < c->args->desc.heads; h++) {
        const rpi_pair p = rpi_pair_of(c->args, s->term, 0, h, 0);
        for (int64_t e = 0; e < v->count; e++)
            for (int64_t x = 0; x < v->width; x++)
                v->product->vec_grad(&p, v->skip + e, x, sums[(h * v->count + e) * v->width + x],
                                     &c->backward->sums.term[s->term]);
    }
}

/* COLUMN: reduce the sums of its single vector. Each block of keys has one sum. */
static void reduce_column(const rpi_call *c, const rpi_source *s)
{
    rpi_backward *bw = c->backward;
    const rp_desc *d = &c->args->desc;
    const rpi_vectors *v = &s->column.vectors;
    for (int64_t h = 0; bw->columns && h < d->heads; h++) {
        const rpi_pair p = rpi_pair_of(c->args, s->term, 0, h, 0);
        for (int64_t b = 0; b < d->batch; b++) {
            rpi_sums_at(&bw->sums, c->args, b);
            for (int64_t n = 0; n < bw->key_blocks; n++)
                for (int64_t x = 0; x < v->width; x++)
                    v->product->vec_grad(&p, 0, x,
                                         bw->columns[((b * d->heads + h) * bw->key_blocks + n) * v->width + x],
                                         &bw->sums.term[s->term]);
        }
    }
}

/* For one head, call each scheme's `reduce` (scheme.h) with the sums of ds. For each key t, the sum is over the pairs
 * with j < t <= p_i. */
static void reduce_head(const rpi_call *c, int64_t b, int64_t h)
{
    rpi_backward *bw = c->backward;
    const rp_desc *d = &c->args->desc;
    const int64_t head = b * d->heads + h;
    for (int32_t n = 0; n < d->n_terms && bw->between; n++) {
        if (!c->plan->scheme[n]->reduce)
            continue;
        const rpi_pair p = rpi_pair_of(c->args, n, b, h, 0);
        c->plan->scheme[n]->reduce(&p, bw->between + head * d->len_k, &bw->sums.term[n]);
    }
}

/* Add the gradient of the sink, which acts as a key whose value is 0. */
static void reduce_sink(const rpi_call *c, int64_t b, int64_t h)
{
    rpi_backward *bw = c->backward;
    const rp_desc *d = &c->args->desc;
    rpi_view tangents[RP_MAX_ARRAYS];
    for (int x = 0; x < RP_MAX_ARRAYS && c->jvp; x++)
        tangents[x] = rpi_sample(&c->jvp->given->term[c->plan->sink][x], b);
    for (int64_t i = c->args->row_from; i < c->args->row_to; i++) {
        const double *stats = rpi_row_stats(c, b * d->heads + h, i);
        if (stats[0] == -HUGE_VAL)
            continue;
        const double sink = rpi_round_bias(rpi_sink(c->args, b, h, i), c->plan->ops->real),
                     tangent = c->jvp ? rpi_sink_tangent(c->args, b, h, i, tangents) : 0,
                     w = exp((sink - stats[0]) - stats[1]),
                     by = c->jvp ? (tangent - stats[3]) * -stats[2] - stats[4] : -stats[2];
        rpi_sink_grad(c->args, b, h, i, w * by, &bw->sums.term[c->plan->sink]);
    }
}

/* Add up the gradients of the softcaps in batch entry b. */
static void reduce_softcaps(const rpi_call *c, int64_t b)
{
    const rpi_backward *bw = c->backward;
    const int64_t blocks = c->args->desc.heads * bw->key_blocks;
    double *to = bw->sums.softcap + RPI_SOFTCAPS * b;
    for (int64_t n = 0; n < blocks * RPI_SOFTCAPS; n++)
        to[n % RPI_SOFTCAPS] += bw->softcap[b * blocks * RPI_SOFTCAPS + n];
}

/* ROTATE: add up the gradients of the frequencies, those of queries before those of keys. */
void rpi_reduce_rotation(const rpi_args *args, rpi_term_sums *sums, const double *const from[2], const int64_t n[2])
{
    const rp_desc *d = &args->desc;
    const int64_t pairs = args->plan->terms[args->plan->rotate].dim / 2, each = rpi_rope_axes(args) * pairs;
    for (int64_t b = 0; b < d->batch; b++) {
        rpi_sums_at(sums, args, b);
        for (int key = 0; key < 2; key++) {
            const int64_t heads = key ? d->kv_heads : d->heads, of_head = n[key] * each;
            for (int64_t x = 0; x < heads * of_head; x++)
                rpi_rope_add(args, &sums->term[args->plan->rotate], x % each / pairs,
                             key ? x / of_head : rpi_kv_head(d, x / of_head), x % pairs,
                             from[key][b * heads * of_head + x]);
        }
    }
}

/* ROTATE: add the gradients of angles for both queries and keys, those of keys to those of queries. */
static void reduce_angles(const rpi_call *c)
{
    rpi_backward *bw = c->backward;
    const int64_t n = c->limits->rope_shared * c->limits->len_k * rpi_rotation_angles(&c->plan->terms[c->plan->rotate]);
    double *to = bw->angles[0].array.data;
    for (int64_t x = 0; x < n; x++)
        to[x] += bw->rope_k[x];
}

/* Reduce the sums of heads of source n, those of each batch entry if it has its own. */
static void reduce_heads(const rpi_call *c, int32_t n)
{
    rpi_backward *bw = c->backward;
    const rpi_source *s = &c->source[n];
    const int64_t heads = c->args->desc.heads;
    for (int64_t b = 0; b < samples_of(c); b++) {
        const rpi_vectors *v = rpi_vectors_of(s);
        rpi_sums_at(&bw->sums, c->args, b);
        if (s->kind == RPI_GATHER && bw->entries[n])
            reduce_gather(c, s, bw->entries[n] + b * heads * s->gather.index.count);
        else if (s->kind == RPI_ROWS && bw->entries[n])
            reduce_rows(c, s, bw->entries[n] + b * heads * s->rows.sums);
        else if (bw->vectors[n])
            reduce_vectors(c, s, bw->vectors[n] + b * heads * v->count * v->width);
    }
}

void rpi_reduce(const rpi_call *c)
{
    const rp_desc *d = &c->args->desc;
    for (int n = 0; n < c->n_sources; n++) {
        const rpi_source *s = &c->source[n];
        switch (s->kind) {
        case RPI_STRIP: reduce_strip(c, &s->strip); break;
        case RPI_COLUMN: reduce_column(c, s); break;
        default: reduce_heads(c, n);
        }
    }
    for (int64_t b = 0; b < d->batch && c->backward->softcap; b++)
        reduce_softcaps(c, b);
    if (c->backward->rope_q)
        rpi_reduce_rotation(c->args, &c->backward->sums, (const double *[]){c->backward->rope_q, c->backward->rope_k},
                            (int64_t[]){c->backward->rope_rows, c->backward->key_blocks});
    if (c->limits->rope_shared)
        reduce_angles(c);
    for (int64_t b = 0; b < d->batch; b++)
        for (int64_t h = 0; h < d->heads; h++) {
            rpi_sums_at(&c->backward->sums, c->args, b);
            reduce_head(c, b, h);
            if (c->plan->sink >= 0 && c->args->key_from == 0) /* once for all ranges of keys */
                reduce_sink(c, b, h);
        }
}
