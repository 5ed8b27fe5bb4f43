/* sources/describe.c -- which sources a call has, and how much memory each takes: the place where terms become forms of biases.
 * SPDX-License-Identifier: Apache-2.0 */
#include "fill.h"
#include <math.h>
#include <string.h>

/* A list of integral positions may span this many offsets beside the lengths before it is left to the definition. */
#define WIDEST ((int64_t)1 << 16)
/* Biases by index become a table of every pair where batch entries share them and it stays in a cache. */
#define TABLE_BYTES ((int64_t)4 << 20)

/* Given positions as doubles; NaN where a mask says no. */
void rpi_positions_of(const rpi_args *args, int32_t term, bool key, int64_t b, double *to)
{
    const rp_desc *d = &args->desc;
    const rpi_scheme *s = rpi_scheme_of(d->terms[term].kind);
    const rpi_view *given = &args->term[term][s->positions + (key ? 1 : 0)];
    const int mask_at = s->positions + 2 + (key ? 1 : 0);
    const rpi_view *mask = mask_at < RP_MAX_ARRAYS && s->array[mask_at].name && s->array[mask_at].role == RPI_TRUTH
                               ? &args->term[term][mask_at]
                               : NULL;
    const bool restart = args->segment_start && rpi_positions_given(s, args->term[term]);
    for (int64_t n = 0; n < (key ? d->len_k : d->len_q); n++) {
        const int64_t start = restart ? args->segment_start[b * d->len_k + n] : 0;
        to[n] = given->data ? rpi_at(given, b, n, 0, 0)
                : key       ? (double)(n - start)
                            : (double)(restart ? n - start : rpi_position(args, b, n));
        if (mask && mask->data && !rpi_truth(mask->data, mask->dtype, rpi_index(mask, b, n, 0, 0)))
            to[n] = NAN;
    }
}

/* The range of differences of positions over the call, and whether all positions are whole numbers. */
static bool range_of(const rpi_args *args, int32_t term, double *low, double *high, double *scratch)
{
    const rp_desc *d = &args->desc;
    bool integral = true;
    *low = INFINITY, *high = -INFINITY;
    for (int64_t b = 0; b < d->batch; b++) {
        double min[2] = {INFINITY, INFINITY}, max[2] = {-INFINITY, -INFINITY};
        for (int key = 0; key < 2; key++) {
            rpi_positions_of(args, term, key, b, scratch);
            for (int64_t n = 0; n < (key ? d->len_k : d->len_q); n++) {
                if (isnan(scratch[n]))
                    continue;
                min[key] = fmin(min[key], scratch[n]);
                max[key] = fmax(max[key], scratch[n]);
                integral = integral && scratch[n] == trunc(scratch[n]);
            }
        }
        if (min[0] <= max[0] && min[1] <= max[1]) {
            *low = fmin(*low, min[1] - max[0]);
            *high = fmax(*high, max[1] - min[0]);
        }
    }
    return integral;
}

/* Whether a term that goes by given positions can be tabulated, and then which offsets. */
static bool tabulate(rpi_source *s, const rpi_args *args, double *scratch)
{
    const rp_term *t = &args->desc.terms[s->term];
    const rpi_scheme *scheme = rpi_scheme_of(t->kind);
    double low, high;
    const bool integral = range_of(args, s->term, &low, &high, scratch);
    if (!(low <= high))
        low = high = 0;
    low = trunc(low), high = trunc(high);
    if (scheme->reach) {
        int64_t left, right;
        scheme->reach(t, &left, &right);
        low = fmax(fmin(low, (double)right), (double)-left);
        high = fmin(fmax(high, (double)-left), (double)right);
    } else if (!integral) {
        return false;
    }
    if (!(high - low < 0x1p30) ||
        (!scheme->reach && high - low > (double)(WIDEST + 8 * (args->desc.len_q + args->desc.len_k))))
        return false;
    s->first = (int64_t)low;
    s->count = (int64_t)(high - low) + 1;
    return true;
}

static void add(rpi_sources *l, rpi_source s)
{
    l->source[l->n++] = s;
}

void rpi_sources_describe(rpi_sources *l, const rp_plan *plan, const rpi_args *args, double *scratch)
{
    const rp_desc *d = args ? &args->desc : &plan->desc;
    static const rpi_view none[RP_MAX_ARRAYS];
    const int32_t nr = plan->ops->nr;
    memset(l, 0, sizeof *l);
    /* VEC first: its products are wide sums of their own */
    for (int32_t n = 0; n < d->n_terms; n++) {
        const rpi_scheme *s = rpi_scheme_of(d->terms[n].kind);
        const rpi_view *array = args ? args->term[n] : none;
        for (int x = 0; x < 2 && (s->form == RPI_VEC || s->form == RPI_VALVEC); x++) {
            const rpi_part *part = &s->part[x];
            if (!part->count || (args && part->present && !part->present(array)))
                continue;
            rpi_source v = {.kind = RPI_RUN, .term = n, .part = part, .inside = !s->bias};
            v.count = part->count(d, &d->terms[n]);
            v.pad_count = rpi_round_up(v.count, nr);
            v.first = part->first ? part->first(d, &d->terms[n]) : 0;
            v.width = s->form == RPI_VALVEC ? d->dim_v : part->width ? part->width(d, &d->terms[n]) : d->dim_k;
            v.gather = part->index || rpi_positions_given(s, array);
            if (part->key_side)
                v.kind = v.count == 1 ? RPI_COLUMN : RPI_KEYS;
            if (s->form == RPI_VALVEC)
                l->valvec = v;
            else
                add(l, v);
        }
    }
    bool strip = false;
    for (int32_t n = 0; n < d->n_terms; n++) {
        const rpi_scheme *s = rpi_scheme_of(d->terms[n].kind);
        strip |= rpi_in_strip(s, args ? args->term[n] : none);
    }
    if (strip)
        add(l, (rpi_source){.kind = RPI_STRIP, .term = -1});
    for (int32_t n = 0; n < d->n_terms; n++) {
        const rpi_scheme *s = rpi_scheme_of(d->terms[n].kind);
        rpi_source t = {.kind = RPI_ROWS, .term = n};
        t.by_row = s->row && !rpi_positions_given(s, args ? args->term[n] : none);
        if (s->form == RPI_INDEX) {
            t.kind = RPI_GATHER;
            if (!rpi_takes_positions(s))
                t.count = s->entries(d, &d->terms[n]);
            else if (!args)
                t.count = d->len_q + d->len_k;
            else if (!tabulate(&t, args, scratch))
                t.kind = RPI_ROWS;
            add(l, t);
        } else if (s->form == RPI_OFFSET && rpi_positions_given(s, args ? args->term[n] : none)) {
            if (tabulate(&t, args, scratch))
                t.kind = RPI_GATHER;
            add(l, t);
        } else if (s->form == RPI_TILE) {
            add(l, t);
        }
    }
}

/* Whether a term's vectors are the same for every head. */
bool rpi_vectors_are_shared(const rpi_source *s, const rpi_args *args)
{
    rpi_shape shape;
    rpi_term_shape(&args->desc, &args->desc.terms[s->term], s->part->array, &shape);
    return shape.ndim < 3 || args->term[s->term][s->part->array].len[0] == 1;
}

uint64_t rpi_strip_terms(const rpi_args *args)
{
    uint64_t terms = 0;
    for (int32_t n = 0; n < args->desc.n_terms; n++) {
        const rpi_scheme *s = rpi_scheme_of(args->desc.terms[n].kind);
        if (rpi_in_strip(s, args->term[n]))
            terms |= (uint64_t)1 << n;
    }
    return terms;
}

/* Whether one strip serves every head. */
bool rpi_strip_is_shared(const rpi_args *args)
{
    for (int32_t n = 0; n < args->desc.n_terms; n++) {
        const rpi_scheme *s = rpi_scheme_of(args->desc.terms[n].kind);
        if (rpi_in_strip(s, args->term[n]) && !s->same_heads)
            return false;
    }
    return true;
}

/* Whether the biases of all batch entries are alike and few. By the lengths of the plan, so that its work has room for shorter
 * calls; args NULL: an array of them may be alike. */
bool rpi_wants_table(const rpi_source *s, const rp_plan *plan, const rpi_args *args)
{
    const rp_desc *d = &plan->desc;
    const rpi_scheme *scheme =
        s->kind == RPI_GATHER || s->kind == RPI_ROWS ? rpi_scheme_of(d->terms[s->term].kind) : NULL;
    int64_t n;
    return d->batch > 1 && scheme && !rpi_takes_positions(scheme) &&
           (s->kind == RPI_GATHER || (scheme->in_place && (!args || args->term[s->term][0].stride[0] == 0))) &&
           rpi_mul(d->heads, d->len_q, rpi_round_up(d->len_k, plan->ops->nr), &n) && n <= TABLE_BYTES / plan->ops->real;
}

/* A stride; RPI_TOO_LARGE where it does not fit, and then the arena says that what it steps over does not fit either. */
static int64_t times(int64_t a, int64_t b)
{
    int64_t product;
    return rpi_mul(a, b, 1, &product) ? product : RPI_TOO_LARGE;
}

void rpi_sources_lay_out(rpi_sources *l, rpi_arena *to, const rp_plan *plan, const rpi_args *args, int64_t group_heads,
                         bool backward)
{
    const rp_desc *d = args ? &args->desc : &plan->desc;
    const int64_t real = plan->ops->real, pad_k = rpi_round_up(d->len_k, plan->ops->nr);
    for (int n = 0; n <= l->n; n++) {
        rpi_source *s = n < l->n ? &l->source[n] : &l->valvec;
        rpi_place *at = &l->at[n];
        if (s->kind == RPI_STRIP && !s->part && n < l->n) {
            int64_t max = args ? 0 : d->q_offset, min = max;
            for (int64_t b = 0; args && b < d->batch; b++) {
                const int64_t offset = rpi_position(args, b, 0);
                max = b == 0 ? offset : rpi_max(max, offset);
                min = b == 0 ? offset : rpi_min(min, offset);
            }
            const rp_prepared *ready = args && !backward ? args->ready : NULL;
            if (ready && ready->strip.strip && ready->terms == rpi_strip_terms(args) && min >= 0 &&
                max + d->len_q <= ready->positions) {
                *s = ready->strip;
                continue;
            }
            /* offsets of the batch entries that lie far apart get strips of their own */
            const bool together = max - min <= d->len_q + pad_k + WIDEST;
            s->strip_len = rpi_max(d->len_q - 1 + pad_k, 0) + (together ? max - min : 0);
            s->strip_low = -(d->len_q - 1 + max);
            const int64_t heads = args && rpi_strip_is_shared(args) ? 1 : d->heads;
            s->strip_step = heads > 1 ? s->strip_len : 0;
            s->strip_batch = together ? 0 : times(heads, s->strip_len);
            at->strip = rpi_arena_add(to, together ? 1 : d->batch, heads, s->strip_len, real);
        } else if (s->kind == RPI_GATHER) {
            s->strip_len = s->strip_step = s->count;
            at->strip = rpi_arena_add(to, d->heads, s->count, 1, real);
        }
        if (rpi_wants_table(s, plan, args))
            at->table = rpi_arena_add(to, d->heads, d->len_q, pad_k, real);
        if (s->kind == RPI_GATHER || s->gather) {
            const bool batch = rpi_takes_positions(rpi_scheme_of(d->terms[s->term].kind));
            s->q_step = batch ? d->len_q : 0;
            s->k_step = batch ? pad_k : 0;
            at->q_at = rpi_arena_add(to, batch ? d->batch : 1, d->len_q, 1, sizeof(double));
            at->k_at = rpi_arena_add(to, batch ? d->batch : 1, pad_k, 1, sizeof(double));
            at->q_int = rpi_arena_add(to, batch ? d->batch : 1, d->len_q, 1, sizeof(int32_t));
            at->k_int = rpi_arena_add(to, batch ? d->batch : 1, pad_k, 1, sizeof(int32_t));
        }
        if (!s->part)
            continue;
        const int64_t heads = args && rpi_vectors_are_shared(s, args) ? 1 : d->heads;
        if (s->kind == RPI_KEYS) {
            s->transposed_step = rpi_round_up(s->count + 2 * plan->ops->kb, 64) + 16; /* not a power of two */
            s->transposed_heads = heads > 1;
            at->transposed = rpi_arena_add(to, heads, s->width, s->transposed_step, real);
        }
        if (s->kind == RPI_COLUMN)
            at->column = rpi_arena_add(to, group_heads, pad_k, 1, real);
        if (s->kind == RPI_RUN) {
            s->panels_step = heads > 1 ? times(s->pad_count, s->width) : 0;
            at->panels = rpi_arena_add(to, heads, s->pad_count, s->width, real);
        }
        if (s == &l->valvec || backward) {
            const int64_t wide = rpi_round_up(s->width, plan->ops->vl);
            s->rows_step = heads > 1 ? times(s->pad_count, wide) : 0;
            at->rows = rpi_arena_add(to, heads, s->pad_count, wide, real);
        }
        if (s == &l->valvec) {
            s->extreme_step = heads > 1 ? s->pad_count : 0;
            at->extreme = rpi_arena_add(to, heads, s->pad_count, 1, 1);
        }
    }
}
