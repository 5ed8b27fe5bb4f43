/* kernels/tangent_tile.h -- the tangents of the scores of a tile: their derivative along given tangents of q, k and the
 * arrays of the terms. Names no term. For the FMA backend.
 * Parameters: VL, MR, BLOCK_ROWS, ROW_STEP.
 *
 * A product has two tangents: q' k + q k'. Each is computed like a product of scores, in a block of its own, whose call
 * has other arrays (rpi_jvp). The sum of the first starts from the tangents of the biases, the sum of the second from
 * the first.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef RPI_ISA
#include "forward.h" /* lets an editor parse this file on its own */
#endif

/* A block of query rows with the tangents of its scores. */
typedef struct tangent_block {
    block k;      /* the rows, their scores and their softmax */
    block inputs; /* the tangents of the queries. s: tangents of the scores, [BLOCK_ROWS][ROW_STEP] */
    block arrays; /* the queries, with the tangents of the biases. Shares s */
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
}

/* Take the scratch of a block with tangents from an arena. */
static void tangent_layout(const rpi_call *c, tangent_block *w, rpi_arena *a)
{
    block_layout(c, &w->k, a);
    if (c->plan->desc.softcap > 0)
        w->k.slope = take_reals(a, BLOCK_ROWS, ROW_STEP);
    if (c->plan->desc.softcap_after > 0)
        w->k.slope_after = take_reals(a, BLOCK_ROWS, ROW_STEP);
    block_layout(&c->jvp->inputs, &w->inputs, a);
    block_layout(&c->jvp->arrays, &w->arrays, a);
    w->k.c = c;
    w->inputs.c = &c->jvp->inputs;
    w->arrays.c = &c->jvp->arrays;
    w->arrays.s = w->inputs.s;
}

/* Load what the tangents of the block's scores need, after start_block(&w->k). */
static void open_tangents(tangent_block *w)
{
    share_rows(&w->inputs, &w->k);
    share_rows(&w->arrays, &w->k);
    if (w->inputs.c->args->q.data)
        load_queries(&w->inputs);
    load_queries(&w->arrays);
}

/* Multiply the tangents of row r by the slopes of the softcaps, and add those of the biases after the first one. */
static void bend_tangents(const block *k, const tile *t, const real *out, int64_t r, real *x)
{
    for (int64_t j = t->from[r / MR]; j < t->to[r / MR]; j += VL) {
        vf y = vf_load(x + j);
        if (k->slope)
            y = y * vf_load(k->slope + r * ROW_STEP + j);
        if (out)
            y = y + vf_load(out + j);
        if (k->slope_after)
            y = y * vf_load(k->slope_after + r * ROW_STEP + j);
        vf_store(x + j, y);
    }
}

/* Compute in w->inputs.s the tangents of the tile's scores, after tile_scores(&w->k). Those of masked pairs are
 * undefined, and may be NaN. */
static void tile_tangents(tangent_block *w, const tile *t)
{
    block *x = &w->inputs, *y = &w->arrays;
    const int64_t rows = w->k.groups * MR;
    const real *const *in, *const *out;
    const void *keys = keys_at(w->k.c, w->k.kv, t->tile0), *turned = keys_at(x->c, x->kv, t->tile0);
    bool first = true;
    y->tile_keys = keys;
    biases_of(y, t, &in, &out);
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
        if (out || w->k.slope || w->k.slope_after)
            bend_tangents(&w->k, t, out ? out[r] : NULL, r, x->s + r * ROW_STEP);
    }
}
