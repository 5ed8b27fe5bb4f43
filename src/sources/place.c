/* sources/place.c -- lay out the memory of the sources of a call, with one function for each kind. Each function runs
 * twice: first it only adds up sizes, then the arena has memory and assigns addresses. Independent of tiles; names no
 * scheme.
 * SPDX-License-Identifier: Apache-2.0 */
#include "fill_tasks.h"

/* The largest table of the biases of all pairs, in bytes, so that it stays in a cache. Only biases that batch entries
 * share get such a table. */
#define TABLE_BYTES ((int64_t)4 << 20)

typedef struct placing {
    rpi_arena *a;
    const rp_plan *plan;
    const rpi_limits *e;
    int64_t real, pad_k;
    int64_t end_k; /* Lk rounded up to the columns that the kernels compute */
    bool backward;
} placing;

/* Return a * b, to use as a stride, or RPI_TOO_LARGE if it overflows. In that case the arena reports the array as too
 * large. */
static int64_t times(int64_t a, int64_t b)
{
    int64_t product;
    return rpi_mul(a, b, 1, &product) ? product : RPI_TOO_LARGE;
}

/* Allocate n0 * n1 * n2 elements of the arithmetic type from the arena. */
static void *allocate(const placing *p, int64_t n0, int64_t n1, int64_t n2)
{
    return rpi_arena_take3(p->a, n0, n1, n2, p->real);
}

static void place_strip(rpi_strip *s, const placing *p)
{
    const rp_desc *d = &p->plan->desc;
    const rpi_limits *e = p->e;
    if (e->strip) {
        *s = e->strip->strip;
        return;
    }
    const int64_t span = e->max_offset - e->min_offset, heads = e->strip_per_head ? d->heads : 1;
    const bool together = !e->strip_per_entry && span <= e->len_q + p->end_k + RPI_WIDEST; /* all entries share it */
    s->len = rpi_max(e->len_q - 1 + p->end_k, 0) + (together ? span : 0);
    s->low = -(e->len_q - 1 + e->max_offset);
    s->from = rpi_min(e->strip_from, s->len);
    s->past = e->strip_past < s->len - (together ? span : 0) ? e->strip_past + (together ? span : 0) : s->len;
    s->head_step = heads > 1 ? s->len : 0;
    s->batch_step = together ? 0 : times(heads, s->len);
    s->entry = allocate(p, together ? 1 : d->batch, heads, s->len);
    s->largest = allocate(p, together ? 1 : d->batch, 2 * heads, rpi_segments_of(s->len));
}

static void place_indices(rpi_indices *x, const rpi_scheme *scheme, const placing *p)
{
    const bool own = rpi_takes_positions(scheme); /* if set, positions may differ between batch entries */
    const int64_t batch = own ? p->plan->desc.batch : 1;
    x->q_step = own ? p->e->len_q : 0;
    x->k_step = own ? p->pad_k : 0;
    x->q_at = rpi_arena_take(p->a, batch, p->e->len_q, sizeof(double));
    x->k_at = rpi_arena_take(p->a, batch, p->pad_k, sizeof(double));
    x->q_int = rpi_arena_take(p->a, batch, p->e->len_q, sizeof(int32_t));
    x->k_int = rpi_arena_take(p->a, batch, p->pad_k, sizeof(int32_t));
    x->integral = rpi_arena_take(p->a, batch, 1, 1);
    x->has_masked = rpi_arena_take(p->a, batch, 1, 1);
    x->unclamped = rpi_arena_take(p->a, batch, 1, 1);
}

/* Return true if the source gets a table of the biases of all pairs. Use the plan's lengths, so that the plan's work
 * memory also has room for the tables of shorter calls. */
static bool wants_table(const rpi_source *s, const rp_plan *plan, const rpi_limits *e)
{
    const rp_desc *d = &plan->desc;
    int64_t n;
    return d->batch > 1 && !rpi_takes_positions(s->scheme) && !s->scheme->index_array &&
           (s->kind == RPI_GATHER || (s->scheme->in_place && e->term[s->term].shares_batch)) &&
           rpi_mul(d->heads, d->len_q, rpi_round_up(d->len_k, plan->ops->nr), &n) && n <= TABLE_BYTES / plan->ops->real;
}

static void *place_table(const rpi_source *s, const placing *p)
{
    return wants_table(s, p->plan, p->e) ? allocate(p, p->plan->desc.heads, p->e->len_q, p->pad_k) : NULL;
}

static void place_gather(rpi_source *s, const placing *p)
{
    s->gather.entry = allocate(p, p->plan->desc.heads, s->gather.index.count, 1);
    s->gather.table = place_table(s, p);
    if (!s->gather.by_array)
        place_indices(&s->gather.index, s->scheme, p);
}

/* Return H if the heads have different vectors, or 1 if they share them. */
static int64_t heads_of(const rpi_source *s, const rpi_vectors *v, const placing *p)
{
    return p->e->term[s->term].per_head[v->product - s->scheme->product] ? p->plan->desc.heads : 1;
}

static void place_columns(rpi_vectors *v, int64_t heads, const placing *p)
{
    const int64_t wide = rpi_round_up(v->width, p->plan->ops->vl);
    v->columns_step = heads > 1 ? times(v->padded, wide) : 0;
    v->columns = allocate(p, heads, v->padded, wide);
}

static void place_shared(rpi_vectors *v, const placing *p)
{
    v->place = rpi_arena_take(p->a, v->padded, 1, sizeof *v->place);
    v->first_of = rpi_arena_take(p->a, v->padded, 1, sizeof *v->first_of);
}

static void place_panels(rpi_run *r, int64_t heads, const placing *p)
{
    r->panels_step = heads > 1 ? times(r->vectors.padded, r->vectors.width) : 0;
    r->panels = allocate(p, heads, r->vectors.padded, r->vectors.width);
}

static void place_run(rpi_source *s, const placing *p)
{
    const int64_t heads = heads_of(s, &s->run.vectors, p);
    if (s->run.gather)
        place_indices(&s->run.index, s->scheme, p);
    else
        place_shared(&s->run.vectors, p);
    place_panels(&s->run, heads, p);
    if (p->backward)
        place_columns(&s->run.vectors, heads, p);
}

static void place_keys(rpi_source *s, const placing *p)
{
    rpi_keys *k = &s->keys;
    const int64_t heads = heads_of(s, &k->vectors, p), rows = k->vectors.padded + p->plan->ops->nr,
                  wide = rpi_round_up(k->vectors.width, p->plan->ops->vl);
    place_shared(&k->vectors, p);
    k->rows_step = heads > 1 ? times(rows, wide) : 0;
    k->rows = allocate(p, heads, rows, wide);
    if (p->backward)
        place_columns(&k->vectors, heads, p);
}

static void place_values(rpi_source *s, const placing *p)
{
    rpi_values *v = &s->values;
    const int64_t heads = heads_of(s, &v->run.vectors, p);
    if (v->run.gather)
        place_indices(&v->run.index, s->scheme, p);
    if (p->backward)
        place_panels(&v->run, heads, p);
    place_columns(&v->run.vectors, heads, p);
    v->nonfinite_step = heads > 1 ? v->run.vectors.padded : 0;
    v->nonfinite = rpi_arena_take(p->a, heads, v->run.vectors.padded, 1);
}

void rpi_sources_place(rpi_sources *l, rpi_arena *a, const rp_plan *plan, const rpi_limits *e, int64_t group_heads,
                       bool backward)
{
    const placing p = {.a = a,
                       .plan = plan,
                       .e = e,
                       .real = plan->ops->real,
                       .pad_k = rpi_round_up(e->len_k, plan->ops->nr),
                       .end_k = rpi_round_up(e->len_k, plan->ops->column_step),
                       .backward = backward};
    for (int32_t n = 0; n < l->n; n++) {
        rpi_source *s = &l->source[n];
        switch (s->kind) {
        case RPI_STRIP: place_strip(&s->strip, &p); break;
        case RPI_GATHER: place_gather(s, &p); break;
        case RPI_ROWS: s->rows.table = place_table(s, &p); break;
        case RPI_RUN: place_run(s, &p); break;
        case RPI_COLUMN: s->column.product = allocate(&p, group_heads, p.pad_k, 1); break;
        case RPI_KEYS: place_keys(s, &p); break;
        case RPI_VALUES: place_values(s, &p); break;
        }
    }
}
