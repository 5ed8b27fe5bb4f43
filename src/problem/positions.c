/* problem/positions.c -- positions of queries and keys, the pairs passed to definitions, and the keys that a query may
 * attend to. Independent of sources, kernels and the reference.
 * SPDX-License-Identifier: Apache-2.0 */
#include "problem.h"
#include <string.h>

rpi_pair rpi_pair_of(const rpi_args *args, int32_t term, int64_t b, int64_t h, int64_t i)
{
    const rpi_scheme *s = args->plan->scheme[term];
    rpi_pair p = {.desc = &args->desc,
                  .term = &args->desc.terms[term],
                  .scheme = s,
                  .array = args->term[term],
                  .prepared = args->prepared[term],
                  .b = b,
                  .h = h,
                  .i = i,
                  .position = b < args->desc.batch ? rpi_position(args, b, i) : i};
    const int32_t at = s->positions;
    /* false if the call has no query (b, i), because B or Lq is 0; the pair then only identifies a head */
    const bool real = b < args->desc.batch && i < args->desc.len_q;
    /* positions of a rotation, which may have several axes, are no positions of pairs */
    if (real && s->form != RPI_ROTATE && rpi_takes_positions(s) && p.array[at].data)
        p.at = rpi_at(&p.array[at], b, i, 0, 0);
    else
        p.at = (double)(real && args->segment_start ? i - args->segment_start[b * args->desc.len_k + i] : p.position);
    return p;
}

double rpi_sink(const rpi_args *args, int64_t b, int64_t h, int64_t i)
{
    if (args->plan->sink < 0)
        return -INFINITY;
    const rpi_pair p = rpi_pair_of(args, args->plan->sink, b, h, i);
    return p.scheme->pair(&p);
}

void rpi_sink_grad(const rpi_args *args, int64_t b, int64_t h, int64_t i, double g, const rpi_sums *to)
{
    const rpi_pair p = rpi_pair_of(args, args->plan->sink, b, h, i);
    p.scheme->grad(&p, g, to);
}

double rpi_sink_tangent(const rpi_args *args, int64_t b, int64_t h, int64_t i, const rpi_view *tangents)
{
    double along = 0;
    rpi_sums to = {.along = &along};
    if (args->plan->sink < 0)
        return 0;
    memcpy(to.array, tangents, sizeof to.array);
    rpi_sink_grad(args, b, h, i, 1, &to);
    return along;
}

void rpi_pair_key(const rpi_args *args, rpi_pair *p, int64_t j)
{
    const int32_t at = p->scheme->positions;
    const bool takes = rpi_takes_positions(p->scheme), q = takes && p->array[at].data,
               k = takes && p->array[at + 1].data;
    const int32_t mask = rpi_position_masks(p->scheme);
    p->j = j;
    p->absent =
        mask >= 0 && (rpi_no_position(&p->array[mask], p->b, p->i) || rpi_no_position(&p->array[mask + 1], p->b, j));
    if (!q && !k) {
        p->delta = (double)(j - p->position);
        return;
    }
    const int64_t start = args->segment_start ? args->segment_start[p->b * args->desc.len_k + j] : 0;
    p->delta = (k ? rpi_at(&p->array[at + 1], p->b, j, 0, 0) : (double)(j - start)) - p->at;
}

void rpi_interval(const rpi_args *args, int64_t b, int64_t i, int64_t *lo, int64_t *hi)
{
    const rp_plan *plan = args->plan;
    const rp_desc *d = &args->desc;
    rpi_mask_row row = {.b = b, .i = i, .position = rpi_position(args, b, i)};
    *lo = 0;
    *hi = d->len_k;
    for (int32_t n = 0; n < d->n_masks; n++) {
        row.mask = &d->masks[n];
        row.array = &args->mask[n];
        if (plan->mask_entry[n]->interval)
            plan->mask_entry[n]->interval(&row, lo, hi);
    }
    for (int32_t n = 0; n < d->n_terms && plan->n_tile; n++)
        if (plan->scheme[n]->causal)
            *hi = rpi_min(*hi, row.position + 1);
    *lo = rpi_clamp(*lo, 0, d->len_k);
    *hi = rpi_clamp(*hi, *lo, d->len_k);
}

void rpi_mask_keep(const rpi_args *args, int64_t b, int64_t h, int64_t i, int64_t j0, int64_t count, uint8_t *keep)
{
    const rp_desc *d = &args->desc;
    rpi_mask_row row = {.b = b, .h = h, .i = i, .position = rpi_position(args, b, i)};
    for (int32_t n = 0; n < d->n_masks; n++) {
        row.mask = &d->masks[n];
        row.array = &args->mask[n];
        if (args->plan->mask_entry[n]->pairs)
            args->plan->mask_entry[n]->pairs(&row, j0, count, keep);
    }
}

double rpi_rope_position(const rpi_args *args, bool key, int64_t b, int64_t axis, int64_t n)
{
    const rpi_view *array = args->term[args->plan->rotate], *v = array[0].data ? &array[0]
                                                                 : key         ? &array[2]
                                                                               : &array[1];
    if (v->data && args->plan->terms[args->plan->rotate].integer[0] > 0)
        return rpi_at(v, b, axis, n, 0);
    return v->data ? rpi_at(v, b, n, 0, 0) : (double)(key ? n : rpi_position(args, b, n));
}
