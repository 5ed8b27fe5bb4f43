/* sources/choose.c -- choose the sources of a call, that is, how each term is computed. This needs no memory and no
 * arrays: sizes that depend on arrays come from the limits. Independent of kernels; names no scheme.
 * SPDX-License-Identifier: Apache-2.0 */
#include "fill_tasks.h"
#include <string.h>

static rpi_source *add(rpi_sources *l, rpi_source_kind kind, const rp_plan *plan, int32_t term)
{
    rpi_source *s = &l->source[l->n++];
    *s = (rpi_source){.kind = kind, .term = term, .scheme = term < 0 ? NULL : plan->scheme[term]};
    return s;
}

/* Describe the vectors of a product. d is the plan's description with the lengths of the call. */
static void describe_vectors(rpi_vectors *v, const rp_plan *plan, const rp_desc *d, const rpi_scheme *scheme,
                             const rp_term *t, const rpi_product *product)
{
    v->product = product;
    v->factor = rpi_vec_factor(scheme, d);
    v->count = product->count(d, t);
    v->first = product->first ? product->first(d, t) : 0;
    v->width = scheme->form == RPI_VALVEC ? d->dim_v : product->width ? product->width(d, t) : d->dim_k;
    v->padded = rpi_round_up(v->count, plan->ops->nr);
}

/* Leave out vectors of offsets that no pair of the call has: for 16 tokens, 31 of the 1,023 vectors of DeBERTa remain.
 * A multiple of NR is skipped, so that vectors stay in the same panels and sums of vectors keep their order. */
static void leave_out_vectors(rpi_vectors *v, const rp_plan *plan, const rpi_limits *e)
{
    const int64_t nr = plan->ops->nr, before = v->product->without_q_offset ? 0 : e->max_offset,
                  lowest = 1 - e->len_q - before,
                  pairs = e->len_q + e->len_k + (v->product->without_q_offset ? 0 : e->max_offset - e->min_offset);
    v->skip = rpi_clamp(lowest - v->first, 0, v->count - 1) / nr * nr;
    v->first += v->skip;
    v->count = rpi_min(v->count - v->skip, pairs + nr);
    v->padded = rpi_round_up(v->count, nr);
}

/* Add the sources of term n of form VEC or VALVEC: one for each of its products that is present. */
static void describe_products(rpi_sources *l, const rp_plan *plan, const rpi_limits *e, const rp_desc *d, int32_t n)
{
    const rpi_scheme *scheme = plan->scheme[n];
    for (int x = 0; x < 2; x++) {
        const rpi_product *product = &scheme->product[x];
        if (!product->count || !e->term[n].present[x])
            continue;
        rpi_source *s = add(l, scheme->form == RPI_VALVEC ? RPI_VALUES : RPI_RUN, plan, n);
        s->inside = !scheme->bias;
        describe_vectors(&s->run.vectors, plan, d, scheme, &d->terms[n], product);
        if (product->key_side) {
            s->kind = s->run.vectors.count == 1 ? RPI_COLUMN : RPI_KEYS;
            if (s->kind == RPI_KEYS)
                leave_out_vectors(&s->run.vectors, plan, e);
            continue;
        }
        s->run.gather = product->index || e->term[n].by_position;
        /* VALUES keep all vectors: whether they fit into a window decides the order of additions */
        if (s->kind == RPI_RUN && !s->run.gather)
            leave_out_vectors(&s->run.vectors, plan, e);
        s->run.index.count = s->run.vectors.count;
        s->run.index.first = s->run.vectors.first;
    }
}

/* Add the source of term n whose biases are looked up by index (GATHER) or filled row by row (ROWS). */
static void describe_biases(rpi_sources *l, const rp_plan *plan, const rpi_limits *e, const rp_desc *d, int32_t n)
{
    const rpi_scheme *scheme = plan->scheme[n];
    const rpi_term_limits *given = &e->term[n];
    int64_t first = 0, count = 0;
    if (scheme->form == RPI_INDEX && !rpi_takes_positions(scheme))
        count = scheme->entries(d, &d->terms[n]);
    else if (scheme->form == RPI_INDEX || scheme->form == RPI_OFFSET)
        first = given->first, count = given->count;
    rpi_source *s = add(l, count ? RPI_GATHER : RPI_ROWS, plan, n);
    if (count)
        s->gather = (rpi_gather){.by_array = scheme->index_array, .index = {.count = count, .first = first}};
    else
        s->rows = (rpi_filled){.by_row = scheme->row && !given->by_position};
    if (!count && s->rows.by_row && scheme->row_grad)
        s->rows.sums = scheme->sums_size(d, &d->terms[n]);
}

void rpi_sources_describe(rpi_sources *l, const rp_plan *plan, const rpi_limits *e)
{
    rp_desc d = plan->desc;
    bool strip = false;
    d.len_q = e->len_q;
    d.len_k = e->len_k;
    l->n = 0;
    /* VEC comes first, because each of its products is itself a long sum */
    for (int32_t n = 0; n < d.n_terms; n++)
        if (plan->scheme[n]->form == RPI_VEC)
            describe_products(l, plan, e, &d, n);
    for (int32_t n = 0; n < d.n_terms; n++)
        strip |= plan->scheme[n]->form == RPI_OFFSET && !e->term[n].by_position;
    if (strip)
        add(l, RPI_STRIP, plan, -1);
    for (int32_t n = 0; n < d.n_terms; n++) {
        const rpi_form form = plan->scheme[n]->form;
        if (form == RPI_INDEX || form == RPI_TILE || (form == RPI_OFFSET && e->term[n].by_position))
            describe_biases(l, plan, e, &d, n);
    }
    if (plan->valvec >= 0)
        describe_products(l, plan, e, &d, plan->valvec);
}
