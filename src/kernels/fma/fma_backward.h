/* kernels/fma/fma_backward.h -- the products of the backward pass, computed with register tiles. amx/ has the same
 * functions.
 * Parameters: MR, NR, BLOCK_ROWS, BACKWARD_KEYS.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef RPI_ISA
#include "kernels/backward_scratch.h" /* lets an editor parse this file on its own */
#endif

/* Return true if dp is computed from pairs of bf16. */
static bool dp_by_pairs(const rpi_call *c)
{
    return has_pairs(c->plan) && c->grads->dout.dtype == RP_BF16;
}

static void products_layout(const rpi_call *c, backward_scratch *w, rpi_arena *a)
{
    const rp_desc *d = &c->plan->desc;
    w->packed_keys = w->keys;
    w->products.key_rows = take_reals(a, BACKWARD_KEYS, rpi_round_up(d->dim_k, VL));
    w->products.values = take_reals(a, BACKWARD_KEYS, d->dim_v);
    w->products.dout_scratch = take_reals(a, BLOCK_ROWS, rpi_round_up(d->dim_v, VL));
    if (has_pairs(c->plan))
        w->products.dout_pairs = take_reals(a, BLOCK_ROWS, rpi_round_up(row_numbers(d->dim_v, true), VL));
    w->products.q_scratch = take_reals(a, BLOCK_ROWS, rpi_round_up(d->dim_k, VL));
}

/* Pack keys and values j0 … j0+n-1. */
static void products_begin(backward_scratch *w, int64_t g, int64_t j0, int64_t n)
{
    const rpi_call *c = w->k.c;
    const rp_desc *d = &c->args->desc;
    const int64_t b = w->k.b;
    if (c->args->k.data) /* absent: the tangent of k, if it is 0 */
        pack_keys(&w->k, b, g, j0, n, w->keys, w->large_k);
    if (c->args->k.data && c->plan->rotate >= 0)
        to_columns(w->keys, NR, n, d->dim_k, w->products.key_rows, BACKWARD_KEYS, w->large_rows);
    else
        pack_columns(&c->args->k, b, g, j0, n, d->len_k, d->dim_k, w->products.key_rows, 0, BACKWARD_KEYS,
                     w->large_rows);
    memset(w->large_rows, 0, BACKWARD_KEYS);
    if (!c->args->v.data)
        return;
    if (dp_by_pairs(c))
        pack_pairs(&c->args->v, b, g, j0, n, d->len_k, d->dim_v, w->products.values, w->large_rows);
    else
        pack_panels(&c->args->v, b, g, j0, n, d->len_k, d->dim_v, NULL, NULL, w->products.values, w->large_rows);
    for (int64_t j = 0; j < BACKWARD_KEYS; j += NR)
        memset(w->large_v + j, w->large_rows[j / NR], NR);
}

/* Set the sums of n keys to zero. */
static void products_zero(backward_scratch *w, int64_t n)
{
    const rp_desc *d = &w->k.c->args->desc;
    const int64_t sums = rpi_round_up(n, MR) + MR;
    memset(w->head.dk, 0, reals(sums, rpi_round_up(d->dim_k, VL)));
    memset(w->head.dv, 0, reals(sums, rpi_round_up(d->dim_v, VL)));
}

static void products_resume(backward_scratch *w, int64_t keys)
{
    (void)w, (void)keys; /* the products add to w->head */
}

static void products_end(backward_scratch *w, int64_t keys)
{
    (void)w, (void)keys; /* dk and dv are already in w->head */
}

static void load_dout(backward_scratch *w)
{
    block *k = &w->k;
    const rpi_view *dout = &k->c->grads->dout;
    const int64_t Dv = k->c->args->desc.dim_v;
    magnitude seen = {vf_set1(0)};
    load_rows(k, dout, Dv, 1, w->dout, &seen);
    if (dp_by_pairs(k->c))
        rows_as_pairs(w->dout, k->groups * MR, Dv, w->products.dout_pairs);
    w->products.dout_columns = rows_as_columns(w->dout, k->groups * MR, rpi_round_up(Dv, VL), is_finite(&seen),
                                               w->products.dout_scratch, BLOCK_ROWS, w->large_dout);
}

/* Find the range [*g0, *g1) of groups that computed any of columns j … j+MR-1. */
static void groups_of(const block *k, const tile *t, int64_t j, int64_t *g0, int64_t *g1)
{
    *g0 = k->groups;
    *g1 = 0;
    for (int64_t g = 0; g < k->groups; g++)
        if (t->from[g] < j + MR && t->to[g] > j) {
            *g0 = rpi_min(*g0, g);
            *g1 = g + 1;
        }
}

/* Compute dp = starts + dout v^T. If starts is NULL, sums start at zero. */
static void dp_products(backward_scratch *w, const tile *t, const real *const *starts)
{
    const block *k = &w->k;
    const bool pairs = dp_by_pairs(k->c);
    const int64_t Dv = row_numbers(k->c->args->desc.dim_v, pairs), wide = rpi_round_up(Dv, VL);
    const real *dout = pairs ? w->products.dout_pairs : w->dout;
    for (int64_t col = 0; col < t->end; col += NR)
        for (int64_t g = 0; g < k->groups; g++)
            if (col >= t->from[g] && col < t->to[g])
                (pairs ? score_pairs : score_columns)(
                    dout + g * MR * wide, wide, w->products.values + col * Dv, Dv, starts ? starts + g * MR : NULL, col,
                    w->dp + g * MR * ROW_STEP + col, ROW_STEP, NULL, dout, t->to[g] - col);
}

/* Compute sums[keys][wide] += x^T rows, where x is p or ds, and rows are dout or q. */
static void add_keys(const block *k, const tile *t, const real *x, const real *rows, int64_t wide, real *sums)
{
    for (int64_t j = 0; j < t->end; j += MR) {
        int64_t g0, g1;
        groups_of(k, t, j, &g0, &g1);
        if (g0 < g1)
            add_transposed(x + j, ROW_STEP, g0 * MR, g1 * MR, rows, BLOCK_ROWS, sums + j * wide, wide);
    }
}

/* Compute dv += p^T dout. */
static void dv_products(backward_scratch *w, const tile *t)
{
    add_keys(&w->k, t, w->k.s, w->products.dout_columns, rpi_round_up(w->k.c->args->desc.dim_v, VL), w->head.dv);
}

/* Compute dk += ds^T q. */
static void dk_products(backward_scratch *w, const tile *t)
{
    const block *k = &w->k;
    const int64_t wide = rpi_round_up(k->c->args->desc.dim_k, VL);
    const real *columns =
        rows_as_columns(k->q, k->groups * MR, wide, !k->large_q, w->products.q_scratch, BLOCK_ROWS, w->large_rows);
    add_keys(k, t, w->dp, columns, wide, w->head.dk);
}

/* Compute dq = ds k. */
static void dq_products(backward_scratch *w, const tile *t)
{
    const block *k = &w->k;
    const int64_t wide = rpi_round_up(k->c->args->desc.dim_k, VL);
    memset(w->dq, 0, reals(k->groups * MR, wide));
    for (int64_t g = 0; g < k->groups; g++)
        if (t->from[g] < t->to[g])
            add_values(w->dp + g * MR * ROW_STEP, ROW_STEP, t->from[g], t->to[g], w->products.key_rows, 0,
                       BACKWARD_KEYS, w->dq + g * MR * wide, wide, ones, -1);
}
