/* sources.c -- where the biases of a call come from: which forms its terms take, and the strips, entries and packed
 * vectors that are made once for a call.
 * SPDX-License-Identifier: Apache-2.0 */
#include "call.h"
#include <math.h>
#include <string.h>

/* Entries of a strip that one task makes. */
#define PIECE 1024
/* A list of integral positions may span this many offsets beside the lengths before it is left to the definition. */
#define WIDEST ((int64_t)1 << 16)
/* Biases by index become a table of every pair where batch entries share them and it stays in a cache. */
#define TABLE_BYTES ((int64_t)4 << 20)

/* Whether a term is one of those that the strip sums. */
static bool in_strip(const rpi_scheme *s, const rpi_view *array)
{
    return s->form == RPI_OFFSET && !rpi_positions_given(s, array);
}

/* The arrays of a term without its masks, for definitions that are asked about no pair in particular. */
static void without_masks(const rpi_scheme *s, const rpi_view *array, rpi_view *to)
{
    memcpy(to, array, RP_MAX_ARRAYS * sizeof *to);
    for (int x = 0; x < RP_MAX_ARRAYS; x++)
        if (s->array[x].role == RPI_TRUTH || s->array[x].role == RPI_POSITIONS)
            to[x] = (rpi_view){0};
}

/* Given positions as doubles; NaN where a mask says no. */
static void positions_of(const rpi_args *args, int32_t term, bool key, int64_t b, double *to)
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
static bool range_of(const rpi_args *args, int32_t term, double *low, double *high, double *room)
{
    const rp_desc *d = &args->desc;
    bool whole = true;
    *low = INFINITY, *high = -INFINITY;
    for (int64_t b = 0; b < d->batch; b++) {
        double least[2] = {INFINITY, INFINITY}, most[2] = {-INFINITY, -INFINITY};
        for (int key = 0; key < 2; key++) {
            positions_of(args, term, key, b, room);
            for (int64_t n = 0; n < (key ? d->len_k : d->len_q); n++) {
                if (isnan(room[n]))
                    continue;
                least[key] = fmin(least[key], room[n]);
                most[key] = fmax(most[key], room[n]);
                whole = whole && room[n] == trunc(room[n]);
            }
        }
        if (least[0] <= most[0] && least[1] <= most[1]) {
            *low = fmin(*low, least[1] - most[0]);
            *high = fmax(*high, most[1] - least[0]);
        }
    }
    return whole;
}

/* Whether a term that goes by given positions can be tabulated, and then which offsets. */
static bool tabulate(rpi_source *s, const rpi_args *args, double *room)
{
    const rp_term *t = &args->desc.terms[s->term];
    const rpi_scheme *scheme = rpi_scheme_of(t->kind);
    double low, high;
    const bool whole = range_of(args, s->term, &low, &high, room);
    if (!(low <= high))
        low = high = 0;
    low = trunc(low), high = trunc(high);
    if (scheme->reach) {
        int64_t left, right;
        scheme->reach(t, &left, &right);
        low = fmax(fmin(low, (double)right), (double)-left);
        high = fmin(fmax(high, (double)-left), (double)right);
    } else if (!whole) {
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

void rpi_sources_describe(rpi_sources *l, const rp_plan *plan, const rpi_args *args, double *room)
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
        strip |= in_strip(s, args ? args->term[n] : none);
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
            else if (!tabulate(&t, args, room))
                t.kind = RPI_ROWS;
            add(l, t);
        } else if (s->form == RPI_OFFSET && rpi_positions_given(s, args ? args->term[n] : none)) {
            if (tabulate(&t, args, room))
                t.kind = RPI_GATHER;
            add(l, t);
        } else if (s->form == RPI_TILE) {
            add(l, t);
        }
    }
}

/* Whether a term's vectors are the same for every head. */
static bool shared_heads(const rpi_source *s, const rpi_args *args)
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
        if (in_strip(s, args->term[n]))
            terms |= (uint64_t)1 << n;
    }
    return terms;
}

/* Whether one strip serves every head. */
bool rpi_strip_is_shared(const rpi_args *args)
{
    for (int32_t n = 0; n < args->desc.n_terms; n++) {
        const rpi_scheme *s = rpi_scheme_of(args->desc.terms[n].kind);
        if (in_strip(s, args->term[n]) && !s->same_heads)
            return false;
    }
    return true;
}

int64_t rpi_source_index(const rpi_source *s, const rpi_pair *p)
{
    const rpi_scheme *scheme = rpi_scheme_of(p->term->kind);
    return s->part ? rpi_part_index(s->part, p) : scheme->index(p);
}

/* A pair for entry e of head h, which no query and no key stands behind. */
static rpi_pair entry_pair(const rpi_args *args, int32_t term, rpi_view *array, int64_t h, double delta)
{
    rpi_pair p = {
        .desc = &args->desc, .term = &args->desc.terms[term], .array = array, .prepared = args->prepared[term]};
    without_masks(rpi_scheme_of(p.term->kind), args->term[term], array);
    p.h = h;
    p.delta = delta;
    return p;
}

static double entry_value(const rpi_source *s, const rpi_args *args, int64_t h, int64_t e)
{
    rpi_view array[RP_MAX_ARRAYS];
    const rpi_pair p = entry_pair(args, s->term, array, h, (double)(s->first + e));
    const rpi_scheme *scheme = rpi_scheme_of(p.term->kind);
    if (scheme->form == RPI_OFFSET)
        return scheme->pair(&p);
    return scheme->entry(&p, rpi_takes_positions(scheme) ? scheme->index(&p) : e);
}

void rpi_source_entry_grads(const rpi_source *s, const rpi_args *args, int64_t low, int64_t e, const double *g,
                            int64_t step, rpi_term_sums *sums)
{
    for (int32_t n = 0; n < args->desc.n_terms; n++) {
        const rpi_scheme *scheme = rpi_scheme_of(args->desc.terms[n].kind);
        if (s->kind == RPI_STRIP ? !in_strip(scheme, args->term[n]) : n != s->term)
            continue;
        rpi_view array[RP_MAX_ARRAYS];
        rpi_pair p = entry_pair(args, n, array, 0, (double)(e + low));
        double shared;
        for (; p.h < args->desc.heads; p.h++) {
            if (g[p.h * step] == 0)
                continue;
            if (scheme->shared && !p.shared)
                shared = scheme->shared(&p), p.shared = &shared;
            if (scheme->form == RPI_OFFSET && scheme->grad)
                scheme->grad(&p, g[p.h * step], &sums->term[n]);
            else if (scheme->form == RPI_INDEX && scheme->entry_grad)
                scheme->entry_grad(&p, rpi_takes_positions(scheme) ? scheme->index(&p) : e, g[p.h * step],
                                   &sums->term[n]);
        }
    }
}

/* ---------------------------------------------------------------------------------------------- memory */

/* Whether the biases of all batch entries are alike and few. By the lengths of the plan, so that its work has room for shorter
 * calls; args NULL: an array of them may be alike. */
static bool wants_table(const rpi_source *s, const rp_plan *plan, const rpi_args *args)
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
            int64_t most = args ? 0 : d->q_offset, least = most;
            for (int64_t b = 0; args && b < d->batch; b++) {
                const int64_t offset = rpi_position(args, b, 0);
                most = b == 0 ? offset : rpi_max(most, offset);
                least = b == 0 ? offset : rpi_min(least, offset);
            }
            const rp_prepared *ready = args && !backward ? args->ready : NULL;
            if (ready && ready->strip.strip && ready->terms == rpi_strip_terms(args) && least >= 0 &&
                most + d->len_q <= ready->positions) {
                *s = ready->strip;
                continue;
            }
            /* offsets of the batch entries that lie far apart get strips of their own */
            const bool together = most - least <= d->len_q + pad_k + WIDEST;
            s->strip_len = rpi_max(d->len_q - 1 + pad_k, 0) + (together ? most - least : 0);
            s->strip_low = -(d->len_q - 1 + most);
            const int64_t heads = args && rpi_strip_is_shared(args) ? 1 : d->heads;
            s->strip_step = heads > 1 ? s->strip_len : 0;
            s->strip_batch = together ? 0 : times(heads, s->strip_len);
            at->strip = rpi_arena_add(to, together ? 1 : d->batch, heads, s->strip_len, real);
        } else if (s->kind == RPI_GATHER) {
            s->strip_len = s->strip_step = s->count;
            at->strip = rpi_arena_add(to, d->heads, s->count, 1, real);
        }
        if (wants_table(s, plan, args))
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
        const int64_t heads = args && shared_heads(s, args) ? 1 : d->heads;
        if (s->kind == RPI_KEYS) {
            s->turned_step = rpi_round_up(s->count + 2 * plan->ops->kb, 64) + 16; /* not a power of two */
            s->turned_heads = heads > 1;
            at->turned = rpi_arena_add(to, heads, s->width, s->turned_step, real);
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
            s->wild_step = heads > 1 ? s->pad_count : 0;
            at->wild = rpi_arena_add(to, heads, s->pad_count, 1, 1);
        }
    }
}

typedef struct fill_job {
    rpi_source *s;
    const rp_plan *plan;
    const rpi_args *args;
} fill_job;

static void put(const rp_plan *plan, void *to, int64_t at, double x)
{
    if (plan->ops->real == 8)
        ((double *)to)[at] = x;
    else
        ((float *)to)[at] = (float)x;
}

/* A bias in the type of the arithmetic: a finite one stays finite, because only -infinity masks. */
static void put_bias(const rp_plan *plan, void *to, int64_t at, double x)
{
    put(plan, to, at, plan->ops->real == 8 ? x : (double)rpi_to_float(x));
}

/* Entries of a strip for every head: the sum of the OFFSET terms at delta = e + low, in double, rounded once. */
static void strip_task(void *context, int64_t n, int32_t worker)
{
    const fill_job *j = context;
    const rpi_source *s = j->s;
    const rp_desc *d = &j->args->desc;
    const int64_t pieces = (s->strip_len + PIECE - 1) / PIECE, heads = s->strip_step ? d->heads : 1, b = n / pieces;
    const int64_t low = s->strip_batch ? -rpi_position(j->args, b, d->len_q - 1) : s->strip_low;
    (void)worker;
    const rpi_scheme *scheme[RP_MAX_TERMS];
    rpi_pair pair[RP_MAX_TERMS];
    double shared[RP_MAX_TERMS];
    int n_terms = 0;
    for (int32_t m = 0; m < d->n_terms; m++) {
        scheme[n_terms] = rpi_scheme_of(d->terms[m].kind);
        if (in_strip(scheme[n_terms], j->args->term[m]))
            pair[n_terms++] = (rpi_pair){.desc = d, .term = &d->terms[m], .array = j->args->term[m]};
    }
    for (int64_t e = n % pieces * PIECE; e < rpi_min((n % pieces + 1) * PIECE, s->strip_len); e++) {
        for (int m = 0; m < n_terms; m++) {
            pair[m].h = 0;
            pair[m].delta = (double)(e + low);
            if (scheme[m]->shared)
                shared[m] = scheme[m]->shared(&pair[m]), pair[m].shared = &shared[m];
        }
        for (int64_t h = 0; h < heads; h++) {
            double sum = 0;
            for (int m = 0; m < n_terms; m++) {
                pair[m].h = h;
                sum = rpi_bias_sum(sum, scheme[m]->pair(&pair[m]));
            }
            put_bias(j->plan, s->strip, b * s->strip_batch + h * s->strip_step + e, sum);
        }
    }
}

void rpi_strip_fill(const rpi_source *s, const rp_plan *plan, const rpi_args *args, rp_pool *pool)
{
    fill_job j = {.s = (rpi_source *)(uintptr_t)s, .plan = plan, .args = args};
    rpi_pool_run(pool, (s->strip_batch ? args->desc.batch : 1) * ((s->strip_len + PIECE - 1) / PIECE), strip_task, &j);
}

static void entries_task(void *context, int64_t n, int32_t worker)
{
    const fill_job *j = context;
    const rpi_source *s = j->s;
    const int64_t pieces = (s->count + PIECE - 1) / PIECE, h = n / pieces;
    (void)worker;
    for (int64_t e = n % pieces * PIECE; e < rpi_min((n % pieces + 1) * PIECE, s->count); e++)
        put_bias(j->plan, s->strip, h * s->strip_step + e, entry_value(s, j->args, h, e));
}

/* The biases of row i of head h, n = h * Lq + i. */
static void table_task(void *context, int64_t n, int32_t worker)
{
    const fill_job *j = context;
    const rpi_source *s = j->s;
    const rp_desc *d = &j->args->desc;
    const int64_t pad_k = rpi_round_up(d->len_k, j->plan->ops->nr), h = n / d->len_q, i = n % d->len_q;
    const size_t real = (size_t)j->plan->ops->real;
    const char *entries = s->kind == RPI_GATHER ? (const char *)s->strip + (size_t)(h * s->strip_step) * real : NULL;
    char *to = (char *)s->table + (size_t)(n * pad_k) * real;
    (void)worker;
    for (int64_t key = 0; key < d->len_k; key++)
        if (entries)
            memcpy(to + (size_t)key * real,
                   entries + (size_t)rpi_clamp(s->k_int[key] - s->q_int[i], 0, s->count - 1) * real, real);
        else
            put_bias(j->plan, to, key, rpi_at(&j->args->term[s->term][0], 0, h, i, key));
    memset(to + (size_t)d->len_k * real, 0, (size_t)(pad_k - d->len_k) * real);
}

/* The vectors of head h as panels of NR, transposed, like keys; and as columns of NR channels, like values, those that
 * are not finite as 0. */
static void vectors_task(void *context, int64_t h, int32_t worker)
{
    const fill_job *j = context;
    const rpi_source *s = j->s;
    const int32_t nr = j->plan->ops->nr, vl = j->plan->ops->vl;
    const int64_t wide = rpi_round_up(s->width, vl);
    rpi_pair p = rpi_pair_of(j->args, s->term, 0, h, 0);
    (void)worker;
    for (int64_t n = 0; n < s->pad_count; n++) {
        bool finite = true;
        for (int64_t x = 0; x < s->width; x++) {
            const double v = n < s->count ? s->part->vec(&p, n, x) : 0;
            finite = finite && isfinite(j->plan->ops->real == 8 ? v : (double)(float)v);
            if (s->panels)
                put(j->plan, s->panels, h * s->panels_step + n / nr * nr * s->width + x * nr + n % nr, v);
        }
        for (int64_t x = 0; s->rows && x < wide; x++) {
            const double v = n < s->count && x < s->width && (finite || !s->wild) ? s->part->vec(&p, n, x) : 0;
            const int64_t column = x / nr * nr, step = rpi_min(nr, wide - column);
            put(j->plan, s->rows, h * s->rows_step + column * s->pad_count + n * step + x - column, v);
        }
        if (s->wild)
            s->wild[h * s->wild_step + n] = !finite;
    }
}

/* The vectors of head h channel by channel, the first and the last repeated past the ends. */
static void turned_task(void *context, int64_t h, int32_t worker)
{
    const fill_job *j = context;
    const rpi_source *s = j->s;
    const rpi_pair p = rpi_pair_of(j->args, s->term, 0, h, 0);
    (void)worker;
    for (int64_t x = 0; x < s->width; x++)
        for (int64_t n = 0; n < s->turned_step; n++)
            put(j->plan, s->turned, (h * s->width + x) * s->turned_step + n,
                s->part->vec(&p, rpi_clamp(n - j->plan->ops->kb, 0, s->count - 1), x));
}

/* q_at and k_at of an index that is the difference of a number of the query and one of the key. */
static void separate(const rpi_source *s, const rpi_args *args, double *q_at, double *k_at)
{
    const rp_desc *d = &args->desc;
    const rp_term *t = &d->terms[s->term];
    const rpi_scheme *scheme = rpi_scheme_of(t->kind);
    if (rpi_takes_positions(scheme)) {
        for (int64_t b = 0; b < d->batch; b++) {
            positions_of(args, s->term, false, b, q_at + b * s->q_step);
            positions_of(args, s->term, true, b, k_at + b * s->k_step);
        }
        return;
    }
    const int64_t x = scheme->class_token ? t->extra : 0; /* class tokens ask the definition: NaN */
    rpi_pair p = rpi_pair_of(args, s->term, 0, 0, rpi_min(x, d->len_q - 1));
    for (int64_t j = 0; j < d->len_k; j++) {
        rpi_pair_key(args, &p, j);
        k_at[j] = j < x ? NAN : (double)rpi_source_index(s, &p);
    }
    rpi_pair_key(args, &p, rpi_min(x, d->len_k - 1));
    const int64_t zero = rpi_source_index(s, &p);
    for (int64_t i = 0; i < d->len_q; i++) {
        p = rpi_pair_of(args, s->term, 0, 0, i);
        rpi_pair_key(args, &p, rpi_min(x, d->len_k - 1));
        q_at[i] = i < x ? NAN : (double)(zero - rpi_source_index(s, &p));
    }
}

/* x - first as small whole numbers, whose differences fit in 32 bits; NaN as 0. */
static bool to_whole(const double *x, int64_t n, int64_t first, int32_t *to, bool *special)
{
    bool whole = true;
    for (int64_t m = 0; m < n; m++) {
        const double y = isnan(x[m]) ? 0 : x[m] - (double)first;
        *special |= isnan(x[m]);
        whole = whole && y == trunc(y) && fabs(y) < 0x1p29;
        to[m] = whole ? (int32_t)y : 0;
    }
    return whole;
}

/* Whether every key's number less every query's lies in [0, count). Numbers past the last key become the last one's. */
static bool within(const int32_t *q, int32_t *k, int64_t batch, int64_t len_q, int64_t len_k, int64_t pad_k,
                   int64_t count)
{
    int64_t least[2] = {INT32_MAX, INT32_MAX}, most[2] = {INT32_MIN, INT32_MIN};
    for (int64_t b = 0; b < batch; b++) {
        for (int64_t j = len_k; j < pad_k; j++)
            k[b * pad_k + j] = k[b * pad_k + len_k - 1];
        for (int64_t j = 0; j < len_k; j++) {
            least[1] = rpi_min(least[1], k[b * pad_k + j]);
            most[1] = rpi_max(most[1], k[b * pad_k + j]);
        }
    }
    for (int64_t i = 0; i < batch * len_q; i++) {
        least[0] = rpi_min(least[0], q[i]);
        most[0] = rpi_max(most[0], q[i]);
    }
    return least[1] - most[0] >= 0 && most[1] - least[0] < count;
}

void rpi_sources_fill(rpi_call *c, const rpi_sources *l, char *work, rp_pool *pool)
{
    const rpi_args *args = c->args;
    const rp_desc *d = &args->desc;
    c->n_sources = l->n;
    memcpy(c->source, l->source, sizeof c->source);
    c->valvec = l->valvec;
    if (d->len_q == 0 || d->len_k == 0)
        return;
    for (int n = 0; n <= l->n; n++) {
        rpi_source *s = n < l->n ? &c->source[n] : &c->valvec;
        const rpi_place *at = &l->at[n];
        fill_job j = {.s = s, .plan = c->plan, .args = args};
        if (n == l->n && !s->part)
            break;
        if (s->kind == RPI_GATHER || s->gather) {
            double *q_at = (double *)(void *)(work + at->q_at), *k_at = (double *)(void *)(work + at->k_at);
            s->q_at = q_at;
            s->k_at = k_at;
            memset(k_at, 0, (size_t)(s->k_step ? d->batch * s->k_step : c->pad_k) * sizeof *k_at);
            separate(s, args, q_at, k_at);
            const int64_t batch = s->k_step ? d->batch : 1;
            int32_t *q_int = (int32_t *)(void *)(work + at->q_int), *k_int = (int32_t *)(void *)(work + at->k_int);
            const bool whole_q = to_whole(q_at, batch * d->len_q, 0, q_int, &s->special);
            const bool whole_k = to_whole(k_at, batch * c->pad_k, s->first, k_int, &s->special);
            const bool whole = whole_q && whole_k;
            s->q_int = whole ? q_int : NULL;
            s->k_int = whole ? k_int : NULL;
            s->unclamped = whole && !s->special && within(q_int, k_int, batch, d->len_q, d->len_k, c->pad_k, s->count);
        }
        if (s->kind == RPI_STRIP && !s->strip) {
            s->strip = work + at->strip;
            rpi_strip_fill(s, c->plan, args, pool);
        }
        if (s->kind == RPI_GATHER) {
            s->strip = work + at->strip;
            rpi_pool_run(pool, d->heads * ((s->strip_len + PIECE - 1) / PIECE), entries_task, &j);
        }
        if (wants_table(s, c->plan, args) && (s->kind == RPI_ROWS || (s->k_int && !s->special))) {
            s->table = work + at->table;
            rpi_pool_run(pool, d->heads * d->len_q, table_task, &j);
        }
        if (!s->part)
            continue;
        s->column = s->kind == RPI_COLUMN ? work + at->column : NULL;
        const bool panels = s->kind == RPI_RUN, rows = n == l->n || c->grads;
        s->panels = panels ? work + at->panels : NULL;
        s->rows = rows ? work + at->rows : NULL;
        s->wild = n == l->n ? (uint8_t *)work + at->wild : NULL;
        const int64_t heads = shared_heads(s, args) ? 1 : d->heads;
        if (panels || rows)
            rpi_pool_run(pool, heads, vectors_task, &j);
        if (s->kind == RPI_KEYS) {
            s->turned = work + at->turned;
            rpi_pool_run(pool, heads, turned_task, &j);
        }
        if (s->wild && !memchr(s->wild, 1, (size_t)(heads * s->pad_count)))
            s->wild = NULL;
    }
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
            if (c->plan->ops->real == 8)
                ((double *)s->column)[head * c->pad_k + j] = sum * factor;
            else
                ((float *)s->column)[head * c->pad_k + j] = (float)(sum * factor);
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
