/* kernels/query_block.h -- a block of query rows: allocate its scratch and load its queries.
 * Parameters: MR, BLOCK_ROWS, TILE_KEYS, ROW_STEP, WINDOW_VECTORS; the backend's products_block.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef RPI_ISA
#include "fma/fma_scratch.h" /* lets an editor parse this file on its own */
#endif

/* For each row of the block, the products of its query with vectors [low, high) of a RUN source, or the sum of its
 * weights for each of these vectors (VALUES). Without an index, each group of rows has a range of its own, which may
 * begin before vector 0 and end after the last one, by up to TILE_KEYS. */
typedef struct window {
    real *queries; /* [BLOCK_ROWS][width padded] the source's queries, times its factor */
    real *at;      /* [BLOCK_ROWS][step] */
    int64_t step, low, high;
    int64_t *from, *to; /* [BLOCK_ROWS / MR] without an index: the ranges of the groups, multiples of VL */
} window;

/* A worker's scratch for its current block of rows. */
typedef struct block {
    const rpi_call *c;
    int64_t b,      /* batch entry */
        h,          /* query head */
        kv,         /* slot of the packed keys and values */
        row0,       /* first row of the block */
        rows,       /* rows of the block */
        groups;     /* groups of MR rows, the last one padded */
    real *q,        /* [BLOCK_ROWS][Dk padded] queries, scaled and rotated */
        *plain_q;   /* [BLOCK_ROWS][Dk padded] queries, scaled but not rotated, for products with vectors */
    real *s;        /* [BLOCK_ROWS][ROW_STEP] scores of the tile, later its weights */
    real *tile_max; /* [BLOCK_ROWS][VL] lane maxima: the largest lane is the row's largest score in the tile */
    /* [BLOCK_ROWS][ROW_STEP] tanh(x / c) of the arguments x of the two softcaps, for their derivatives; NULL if not
     * needed */
    real *bent, *bent_after;
    real *ratio, *ratio_after;                 /* likewise x / c, for the derivatives by c */
    real *slope_tangent, *slope_after_tangent; /* tangents of 1 - tanh^2; for second derivatives only */
    real *sum_in, *sum_out; /* [BLOCK_ROWS][ROW_STEP] sums of several biases inside and outside the softcap */
    real *o;                /* [BLOCK_ROWS][pad_v] */
    real *running_max,      /* [BLOCK_ROWS] the largest score of the tiles so far */
        *sum;               /* [BLOCK_ROWS] the sum of exp(score - running_max) over the tiles so far */
    real *norm;             /* [BLOCK_ROWS] norms of the scaled queries, for skipping tiles */
    /* backward pass: the bounds of the block (rpi_backward.bounds), used instead of bounds of each row */
    const double *bounds;
    const real *key_norms; /* the largest key norm of each panel; the first panel starts at key norms_from */
    int64_t norms_from;
    bool moderate;               /* no query is non-finite or large; always true in a backward call (see `bounds`) */
    real *entropy,               /* [BLOCK_ROWS] for summaries: sums of -w log w */
        *weight_sum;             /* [BLOCK_ROWS] for summaries: sums of w */
    window vec[RPI_MAX_SOURCES], /* products of the queries with the vectors of each RUN source */
        vector_weights;          /* sums of weights for each vector of the VALUES source */
    real *diagonal,              /* [BLOCK_ROWS + TILE_KEYS] one tile's sums of ds or of weights, by diagonal j - i */
        *column;                 /* [TILE_KEYS] one tile's sums of ds or of weights, by key */
    real *keys_scratch;          /* unrotated keys for KEYS sources: panels, or [TILE_KEYS][Dk padded] */
    real *key_products;          /* [VL + BLOCK_ROWS + NR + MR][NR] products of a panel of keys with vectors (KEYS) */
    int32_t *key_places;         /* [BLOCK_ROWS + TILE_KEYS + VL] the tile's packed vectors by offset (KEYS) */
    const real *tile_keys;       /* packed keys of the tile; NULL: keys are not packed */
    const void *values;          /* packed values of the kv head, or the caller's values (values_in_place) */
    int64_t value_step; /* elements from one row of the caller's values to the next; 0: the values are packed */
    bool whole;         /* one tile has all keys of the block: weigh_tile writes its rows of out (is_whole) */
    void *unpacked;     /* scratch, if keys and values are not packed; NULL: they are packed */
    bool defer;         /* weigh_tile may leave values for the scores of the next tile, or for finish_values */
    double *row;        /* [Dk or more] one query for definitions, or [TILE_KEYS] biases of one row */
    /* [TILE_KEYS] 1: this key of a row has no index; its bias is 0 or comes from the definition */
    uint8_t *keep_scratch;
    int32_t *index;          /* [TILE_KEYS] entry or vector of each key of a row */
    int64_t *given_index;    /* [TILE_KEYS] the same, read from an array */
    const real **in, **out;  /* [BLOCK_ROWS] where each row's biases of the tile start */
    uint8_t *keep;           /* [BLOCK_ROWS][TILE_KEYS] 1: the row attends to the key */
    int64_t *lo, *hi;        /* [BLOCK_ROWS] the row may attend to keys [lo, hi) */
    int64_t *position;       /* [BLOCK_ROWS] i + q_offset */
    bool large_q,            /* some query is non-finite or large */
        grouped;             /* k->q is filled */
    uint8_t *large_row;      /* [BLOCK_ROWS] 1: the query is non-finite or large */
    products_block products; /* scratch of the backend */
} block;

static size_t reals(int64_t a, int64_t b)
{
    return (size_t)a * (size_t)b * sizeof(real);
}

static real *take_reals(rpi_arena *a, int64_t rows, int64_t columns)
{
    return rpi_arena_take(a, rows, columns, sizeof(real));
}

static bool uses_plain_q(const rpi_call *c, const rpi_vectors *v)
{
    return !v->product->query && v->factor == c->plan->desc.scale;
}

/* Take the scratch of a block from an arena. If the arena has no base, this only adds up sizes. */
static void block_layout(const rpi_call *c, block *k, rpi_arena *a)
{
    const rp_plan *plan = c->plan;
    const rp_desc *d = &plan->desc;
    const int64_t pad_v = rpi_round_up(d->dim_v, VL), wide_k = rpi_round_up(d->dim_k, VL);
    int64_t widest = rpi_max(d->dim_k, TILE_KEYS);
    bool keys = false;
    memset(k, 0, sizeof *k);
    k->q = k->plain_q = take_reals(a, BLOCK_ROWS, wide_k);
    if (plan->vec >= 0 && plan->rotate >= 0)
        k->plain_q = take_reals(a, BLOCK_ROWS, wide_k);
    k->s = take_reals(a, BLOCK_ROWS, ROW_STEP);
    k->tile_max = take_reals(a, BLOCK_ROWS, VL);
    k->sum_in = take_reals(a, BLOCK_ROWS, ROW_STEP);
    k->sum_out = take_reals(a, BLOCK_ROWS, ROW_STEP);
    k->o = take_reals(a, BLOCK_ROWS, pad_v);
    k->running_max = take_reals(a, BLOCK_ROWS, 1);
    k->sum = take_reals(a, BLOCK_ROWS, 1);
    k->norm = take_reals(a, BLOCK_ROWS, 1);
    k->entropy = take_reals(a, BLOCK_ROWS, 1);
    k->weight_sum = take_reals(a, BLOCK_ROWS, 1);
    for (int n = 0; n < c->n_sources; n++) {
        const rpi_source *s = &c->source[n];
        window *w = &k->vec[n];
        keys |= s->kind == RPI_KEYS;
        if (s->kind != RPI_RUN)
            continue;
        const rpi_vectors *v = &s->run.vectors;
        widest = rpi_max(widest, v->width);
        w->step = s->run.gather ? v->padded : rpi_min(v->padded, WINDOW_VECTORS) + 2 * TILE_KEYS + 2 * VL;
        w->at = take_reals(a, BLOCK_ROWS, w->step);
        w->from = rpi_arena_take(a, BLOCK_ROWS / MR, 1, sizeof(int64_t));
        w->to = rpi_arena_take(a, BLOCK_ROWS / MR, 1, sizeof(int64_t));
        w->queries = uses_plain_q(c, v) ? k->plain_q : take_reals(a, BLOCK_ROWS, rpi_round_up(v->width, VL));
    }
    if (c->value_vectors) {
        const rpi_run *run = &c->value_vectors->values.run;
        k->vector_weights.step = run->gather ? run->vectors.padded : rpi_min(run->vectors.padded, WINDOW_VECTORS);
        k->vector_weights.at = take_reals(a, BLOCK_ROWS, k->vector_weights.step);
    }
    k->diagonal = take_reals(a, BLOCK_ROWS + TILE_KEYS, 1);
    k->column = take_reals(a, TILE_KEYS, 1);
    if (keys) {
        k->keys_scratch = take_reals(a, TILE_KEYS, rpi_round_up(d->dim_k, VL));
        k->key_products = take_reals(a, VL + BLOCK_ROWS + NR + MR, NR);
        k->key_places = rpi_arena_take(a, BLOCK_ROWS + TILE_KEYS + VL, 1, sizeof(int32_t));
    }
    k->large_row = rpi_arena_take(a, BLOCK_ROWS, 1, 1);
    products_block_layout(c, &k->products, a);
    k->row = rpi_arena_take(a, widest, 1, sizeof(double));
    k->keep_scratch = rpi_arena_take(a, TILE_KEYS, 1, 1);
    k->index = rpi_arena_take(a, TILE_KEYS, 1, sizeof(int32_t));
    k->given_index = rpi_arena_take(a, TILE_KEYS, 1, sizeof(int64_t));
    k->in = rpi_arena_take(a, BLOCK_ROWS, 1, sizeof(real *));
    k->out = rpi_arena_take(a, BLOCK_ROWS, 1, sizeof(real *));
    k->keep = rpi_arena_take(a, BLOCK_ROWS, TILE_KEYS, 1);
    k->lo = rpi_arena_take(a, BLOCK_ROWS, 1, sizeof(int64_t));
    k->hi = rpi_arena_take(a, BLOCK_ROWS, 1, sizeof(int64_t));
    k->position = rpi_arena_take(a, BLOCK_ROWS, 1, sizeof(int64_t));
}

/* Take the memory of a block for the derivatives of softcaps: by their arguments and, if these are wanted or have
 * tangents, by their limits. */
static void caps_layout(const rpi_call *c, block *k, bool wanted, rpi_arena *a)
{
    const rp_desc *d = &c->plan->desc;
    const rpi_view *given = c->jvp ? c->jvp->given->softcap : NULL;
    wanted |= given && (given[RPI_BEFORE].data || given[RPI_AFTER].data);
    if (d->softcap > 0)
        k->bent = take_reals(a, BLOCK_ROWS, ROW_STEP);
    if (d->softcap_after > 0)
        k->bent_after = take_reals(a, BLOCK_ROWS, ROW_STEP);
    if (d->softcap > 0 && wanted)
        k->ratio = take_reals(a, BLOCK_ROWS, ROW_STEP);
    if (d->softcap_after > 0 && wanted)
        k->ratio_after = take_reals(a, BLOCK_ROWS, ROW_STEP);
}

/* Return the address of packed key j in slot kv (keys_at), or of the slot's packed values (values_at). */
static void *keys_at(const rpi_call *c, int64_t kv, int64_t j)
{
    return (char *)c->keys + (kv * c->packed_k + j - c->args->key_from) * c->plan->ops->key_bytes(c->plan);
}

static void *values_at(const rpi_call *c, int64_t kv)
{
    return (char *)c->values + kv * c->packed_k * c->plan->ops->value_bytes(c->plan);
}

static int64_t scratch_size(const rpi_call *c)
{
    block k;
    rpi_arena a = {0};
    block_layout(c, &k, &a);
    return rpi_arena_size(&a);
}

/* Return an arena over the scratch of one worker. */
static rpi_arena scratch_of(const rpi_call *c, int32_t worker)
{
    return (rpi_arena){.base = c->scratch + worker * c->scratch_step};
}

/* Return true if the block is a single row with unpacked keys and values. The group of such a row is not padded to MR
 * rows. */
static inline bool is_single(const block *k)
{
    return k->unpacked && k->rows == 1;
}

/* Return the query index of row r of the block. Padding rows of the last group repeat the last query. */
static inline int64_t row_of(const block *k, int64_t r)
{
    return k->row0 + rpi_min(r, k->rows - 1);
}

/* Multiply n elements by `times`. Prefetch n elements at `ahead`. */
static inline __attribute__((always_inline)) void scale_row(const real *from, const char *ahead, int64_t size,
                                                            int64_t n, vf times, real *to, magnitude *w)
{
    int64_t x = 0;
    for (; x + LINE_VECTORS * VL <= n; x += LINE_VECTORS * VL) {
        __builtin_prefetch(ahead + x * size, 0, 2);
        RPI_UNROLL
        for (int c = 0; c < LINE_VECTORS; c++) {
            const vf y = vf_load(from + x + c * VL);
            note_magnitude(w, y);
            vf_store(to + x + c * VL, y * times);
        }
    }
    for (; x < n; x += VL) {
        const vf y = vf_load_some(from + x, rpi_min(n - x, VL));
        note_magnitude(w, y);
        vf_store(to + x, y * times);
    }
}

/* Load the block's rows of an array, multiply them by `factor`, and store them as [rows][width padded]. Set padding and
 * the padding rows of the last group to 0, and all rows of an absent array: the tangent of q, if it is 0. */
static void load_rows(const block *k, const rpi_view *v, int64_t width, real factor, real *to, magnitude *w)
{
    const int64_t wide = rpi_round_up(width, VL), size = rpi_floating_size(v->dtype);
    if (!v->data) {
        memset(to, 0, reals(k->groups * MR, wide));
        return;
    }
    const head_rows rows = rows_of_head(v, k->b, k->h, k->c->args->desc.len_q);
    const vf times = vf_set1(factor);
    magnitude all = *w;
    real scratch[CHANNELS];
    const bool plain = rows.first && v->dtype == (RPI_F64 ? RP_F64 : RP_F32) && !rpi_is_transposed(v);
    for (int64_t r = 0; r < k->rows; r++, to += wide) {
        const void *row = head_row(&rows, k->row0 + r);
        const char *ahead = row_ahead(&rows, k->row0 + r);
        if (plain) {
            scale_row(row, ahead, size, width, times, to, &all);
            continue;
        }
        for (int64_t x0 = 0; x0 < width; x0 += CHANNELS) {
            const int64_t m = rpi_min(CHANNELS, width - x0);
            const real *from = load_channels(v, row, x0, m, scratch);
            scale_row(from, ahead + x0 * size, size, m, times, to + x0, &all);
        }
    }
    memset(to, 0, reals(k->groups * MR - k->rows, wide));
    *w = all;
}

/* Load the block's queries in the form that a RUN source multiplies with its vectors, times the source's factor. */
static void load_run_queries(block *k, const rpi_source *s, real *to)
{
    const rpi_call *c = k->c;
    const rpi_view *q = &c->args->q;
    const rpi_vectors *v = &s->run.vectors;
    if (!v->product->query) {
        load_rows(k, q, v->width, (real)v->factor, to, &(magnitude){0});
        return;
    }
    const int64_t wide = rpi_round_up(v->width, VL);
    memset(to, 0, reals(k->groups * MR, wide));
    for (int64_t r = 0; r < k->rows; r++) {
        rpi_pair p = rpi_pair_of(c->args, s->term, k->b, k->h, row_of(k, r));
        real *at = to + r * wide;
        if (q->data)
            rpi_load_f64(k->row, rpi_row_of(q, k->b, k->h, p.i), q->dtype, c->args->desc.dim_k);
        else
            memset(k->row, 0, (size_t)c->args->desc.dim_k * sizeof *k->row);
        p.q = k->row;
        for (int64_t x = 0; x < v->width; x++)
            at[x] = (real)(v->factor * v->product->query(&p, x));
    }
}

/* Return true if any recorded element times the scale is non-finite or large. */
static bool is_large(const magnitude *w, real scale)
{
    return !is_finite(w) || !(vf_max_lane(w->max) * (scale < 0 ? -scale : scale) <= (real)RPI_MODERATE);
}

/* Load the block's queries as rows into k->q, k->plain_q and the windows of the sources. Set k->large_q and
 * k->large_row if a query is non-finite or large. */
static void load_groups(block *k)
{
    const rpi_call *c = k->c;
    const rp_desc *d = &c->args->desc;
    const int64_t wide = rpi_round_up(d->dim_k, VL);
    const real scale = (real)d->scale;
    const rp_term *rotate = c->plan->rotate >= 0 ? &c->plan->terms[c->plan->rotate] : NULL;
    const real *rope = rpi_rope_of(c, false, k->b, rpi_kv_head(d, k->h));
    magnitude w = {vf_set1(0)};
    load_rows(k, &c->args->q, d->dim_k, scale, k->q, &w);
    k->large_q = is_large(&w, scale);
    k->grouped = true;
    for (int64_t r = 0; k->large_q && r < k->groups * MR; r++) {
        k->large_row[r] = 0;
        for (int64_t x = 0; x < d->dim_k; x++)
            k->large_row[r] |= !(fabs((double)k->q[r * wide + x]) <= (double)RPI_MODERATE);
    }
    if (k->plain_q != k->q)
        memcpy(k->plain_q, k->q, reals(k->groups * MR, wide));
    for (int64_t r = 0; rotate && r < k->rows; r++)
        rotate_row(rotate, rope + row_of(k, r) * rpi_rotation_width(rotate), 1, k->q + r * wide, 1);
    for (int n = 0; n < c->n_sources; n++) {
        const rpi_source *s = &c->source[n];
        if (s->kind != RPI_RUN)
            continue;
        k->vec[n].low = k->vec[n].high = 0;
        for (int64_t g = 0; g < k->groups; g++)
            k->vec[n].from[g] = k->vec[n].to[g] = 0;
        if (k->vec[n].queries != k->plain_q)
            load_run_queries(k, s, k->vec[n].queries);
    }
}
