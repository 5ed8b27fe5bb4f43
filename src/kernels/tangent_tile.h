/* kernels/tangent_tile.h -- the tangents of the scores of a tile: their derivative along given tangents of q, k and the
 * arrays of the terms. Names no term. For the FMA backend.
 * Parameters: VL, MR, BLOCK_ROWS, ROW_STEP.
 *
 * A product has two tangents: q' k + q k', and those with vectors R of a term q' R + q R'. Each is computed like a
 * product of scores, in a block of its own, whose call has other arrays (rpi_jvp). The sums of q' k start from the
 * tangents of the biases and products with vectors, those of q k' from q' k.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef RPI_ISA
#include "forward.h" /* lets an editor parse this file on its own */
#endif

/* A block of query rows with the tangents of its scores. */
typedef struct tangent_block {
    block k;      /* the rows, their scores and their softmax */
    block inputs; /* the tangents of the queries. s: tangents of the scores, [BLOCK_ROWS][ROW_STEP] */
    block arrays; /* the queries, with the tangents of biases and vectors. Shares s and o */
} tangent_block;

/* Let a block have the rows of another one, and share what depends only on them. */
static void share_rows(block *to, const block *k)
{
    to->b = k->b;
    to->h = k->h;
    to->kv = k->kv;
    to->row0 = k->row0;
    to->rows = k->rows;
    to->groups = k->groups;
    to->lo = k->lo;
    to->hi = k->hi;
    to->position = k->position;
    to->keep = k->keep;
    to->vector_weights.low = to->vector_weights.high = 0;
}

/* Take the scratch of a block with tangents from an arena. */
static void tangent_layout(const rpi_call *c, tangent_block *w, rpi_arena *a)
{
    block_layout(c, &w->k, a);
    caps_layout(c, &w->k, false, a);
    block_layout(&c->jvp->inputs, &w->inputs, a);
    block_layout(&c->jvp->arrays, &w->arrays, a);
    w->k.c = c;
    w->inputs.c = &c->jvp->inputs;
    w->arrays.c = &c->jvp->arrays;
    w->arrays.s = w->inputs.s;
    w->arrays.o = w->inputs.o;
}

/* Let the blocks x with the tangents of the queries, and y with the queries, follow block k to its rows. Load them. */
static void open_tangents(const block *k, block *x, block *y)
{
    share_rows(x, k);
    share_rows(y, k);
    load_queries(x);
    load_queries(y);
}

/* Return the tangent of a softcap: its slope, 1 - tanh^2, times the tangent x of its argument, plus its derivative by c
 * times the tangent `limit` of c, if `ratio` is not NULL. Store the tangent of the slope, unless `slope_tangent` is
 * NULL. */
static inline vf cap_tangent(vf x, const real *bent, const real *ratio, vf limit, double cap, real *slope_tangent)
{
    const vf y = vf_load(bent), slope = vf_set1(1) - y * y;
    vf z = slope * x, bend = z;
    if (ratio) {
        const vf u = vf_load(ratio);
        z = vf_fma(cap_by_limit(y, u), limit, z);
        bend = slope * (x - u * limit);
    }
    if (slope_tangent)
        vf_store(slope_tangent, vf_set1((real)(-2 / cap)) * y * bend);
    return z;
}

/* Take the tangents of row r in x->s through the softcaps, and add those of the biases after the first one. */
static void bend_tangents(const block *k, block *x, const tile *t, const real *out, int64_t r)
{
    const rp_desc *d = &k->c->args->desc;
    const rpi_view *given = k->c->jvp->given->softcap;
    const vf limit = vf_set1((real)rpi_at_or_0(&given[RPI_BEFORE], k->b, 0, 0, 0)),
             limit_after = vf_set1((real)rpi_at_or_0(&given[RPI_AFTER], k->b, 0, 0, 0));
    for (int64_t j = t->from[r / MR]; j < t->to[r / MR]; j += VL) {
        const int64_t at = r * ROW_STEP + j;
        vf y = vf_load(x->s + at);
        if (d->softcap > 0)
            y = cap_tangent(y, k->bent + at, given[RPI_BEFORE].data ? k->ratio + at : NULL, limit, d->softcap,
                            x->slope_tangent ? x->slope_tangent + at : NULL);
        if (out)
            y = y + vf_load(out + j);
        if (d->softcap_after > 0)
            y = cap_tangent(y, k->bent_after + at, given[RPI_AFTER].data ? k->ratio_after + at : NULL, limit_after,
                            d->softcap_after, x->slope_after_tangent ? x->slope_after_tangent + at : NULL);
        vf_store(x->s + at, y);
    }
}

/* Compute in x->s the tangents of the tile's scores, after tile_scores(k). Those of masked pairs are undefined, and may
 * be NaN. `keys` and `turned` are the packed keys of the tile and their tangents. */
static void tile_tangents(const block *k, block *x, block *y, const tile *t, const void *keys, const void *turned)
{
    const rp_desc *d = &k->c->args->desc;
    const int64_t rows = k->groups * MR;
    const real *const *in, *const *out, *const *more, *const *more_out;
    bool first = true;
    x->tile_keys = turned;
    y->tile_keys = keys;
    biases_of(x, t, &in, &out);
    biases_of(y, t, &more, &more_out);
    if (in && more)
        add_rows(x->in, x->in, y->in, x->sum_in, rows, t->end);
    if (out && more_out)
        add_rows(x->out, x->out, y->out, x->sum_out, rows, t->end);
    in = in ? in : more;
    out = out ? out : more_out;
    if (x->c->args->q.data) {
        key_scores(x, t, keys, in, NULL);
        first = false;
    }
    for (int64_t r = 0; r < rows && !first; r++)
        y->in[r] = x->s + r * ROW_STEP;
    if (x->c->args->k.data) {
        key_scores(y, t, turned, first ? in : (const real *const *)y->in, NULL);
        first = false;
    }
    for (int64_t r = 0; r < rows; r++) {
        const int64_t from = t->from[r / MR], n = rpi_max(t->to[r / MR] - from, 0);
        if (first && in)
            memcpy(x->s + r * ROW_STEP + from, in[r] + from, reals(n, 1));
        else if (first)
            memset(x->s + r * ROW_STEP + from, 0, reals(n, 1));
        if (out || d->softcap > 0 || d->softcap_after > 0)
            bend_tangents(k, x, t, out ? out[r] : NULL, r);
    }
}
