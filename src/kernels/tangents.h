/* kernels/tangents.h -- the tangents of out and lse (forward mode): weights and their products with the tangents of the
 * scores, and the sums of both times values. For the FMA backend.
 * Parameters: VL, MR, NR, BLOCK_ROWS, TILE_KEYS, ROW_STEP.
 *
 * With the weights p = exp(s - running maximum) and dropout's factors f, a row keeps
 *     l = sum p     b = sum p s'     a = sum p f v     c = sum p f (s' v + v')
 * which are rescaled together when the maximum rises, and at the end lse' = b / l, out' = c / l - (b / l) (a / l).
 * docs/maintainers/numerics.md bounds the errors.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef RPI_ISA
#include "tangent_tile.h" /* lets an editor parse this file on its own */
#endif

/* Turn n vectors of scores s into weights, and their tangents x into products with the weights. Masked pairs have the
 * weight and the product 0. Add both to the sums. */
static inline __attribute__((always_inline)) void weigh_tangent_vectors(int n, real *s, real *x, vf base, vf *sum,
                                                                        vf *product)
{
    const vf lowest = vf_set1(-REAL_MAX), zero = vf_set1(0);
    vf w[ROW_VECTORS], turned[ROW_VECTORS];
    RPI_UNROLL
    for (int m = 0; m < n; m++) {
        const vf y = vf_load(s + m * VL);
        turned[m] = vf_below(y, lowest, zero, vf_load(x + m * VL));
        w[m] = y - base;
    }
    vf_exps(n, w);
    RPI_UNROLL
    for (int m = 0; m < n; m++) {
        turned[m] = turned[m] * w[m];
        vf_store(s + m * VL, w[m]);
        vf_store(x + m * VL, turned[m]);
        sum[m] = sum[m] + w[m];
        product[m] = product[m] + turned[m];
    }
}

/* Compute weigh_tangent_vectors for rows r0 … r0+VL-1, and add the rows' sums to k->sum and to b. */
static void weigh_tangents(block *k, const tile *t, int64_t r0, real *tangents, real *b)
{
    enum { TOGETHER = ROW_VECTORS == 2 ? 2 : 1 };
    vf sums[VL], products[VL];
    for (int64_t r = r0; r < r0 + VL; r++) {
        const bool there = r < k->rows;
        const vf base = there ? score_shift(k, r) : vf_set1(0);
        const int64_t to = there ? t->to[r / MR] : 0;
        real *s = k->s + r * ROW_STEP, *x = tangents + r * ROW_STEP;
        vf sum[ROW_VECTORS], product[ROW_VECTORS];
        RPI_UNROLL
        for (int n = 0; n < ROW_VECTORS; n++)
            sum[n] = product[n] = vf_set1(0);
        int64_t j = there ? t->from[r / MR] : 0;
        for (; j + NR <= to; j += NR) {
            RPI_UNROLL
            for (int n = 0; n < ROW_VECTORS; n += TOGETHER)
                weigh_tangent_vectors(TOGETHER, s + j + n * VL, x + j + n * VL, base, sum + n, product + n);
        }
        for (int n = 0; j < to; j += VL, n++) /* vectors of the last panel */
            weigh_tangent_vectors(1, s + j, x + j, base, sum + n, product + n);
        for (int n = 1; n < ROW_VECTORS; n++) {
            sum[0] = sum[0] + sum[n];
            product[0] = product[0] + product[n];
        }
        sums[r - r0] = sum[0];
        products[r - r0] = product[0];
    }
    add_sums(k->sum + r0, sums);
    add_sums(b + r0, products);
}

/* Mark the rows of the block that attend to a value or a tangent of a value that is not finite: it was packed as 0. */
static void mark_nonfinite(const block *k, const tile *t)
{
    const rpi_call *c = k->c;
    const rp_desc *d = &c->args->desc;
    const int64_t keys = rpi_min(t->end, d->len_k - t->tile0);
    const uint8_t *large = c->large_v + k->kv * c->packed_k + t->tile0 - c->args->key_from;
    uint8_t *plain = c->jvp->plain + (k->b * d->heads + k->h) * d->len_q + k->row0;
    for (int64_t r = 0; r < k->rows; r++)
        for (int64_t j = 0; j < keys; j++)
            if (large[j] && k->keep[r * TILE_KEYS + j])
                plain[r] |= RPI_PLAIN_OUT;
}

/* Add the weights of a tile, and their products with the tangents of the scores, to the sums for each vector that a
 * term adds to the values. */
static void tile_vector_weights(tangent_block *w, const tile *t, const real *alpha)
{
    block *const blocks[3] = {&w->k, &w->inputs, &w->arrays};
    w->arrays.s = w->k.s; /* the vectors' tangents have the weights themselves */
    for (int n = w->k.c->jvp->scores || w->k.c->args->row_max.data ? 0 : 2; n < 3; n++)
        if (blocks[n]->vector_weights.at) {
            rescale_vector_weights(blocks[n], alpha);
            add_vector_weights(blocks[n], t);
        }
    w->arrays.s = w->inputs.s;
}

/* Add a tile to the sums of the block's rows. */
static void tile_jvp(tangent_block *w, const tile *t)
{
    block *k = &w->k;
    const rpi_call *c = k->c, *inputs = w->inputs.c;
    const rpi_jvp *jvp = c->jvp;
    const int64_t first = t->tile0 - c->args->key_from;
    real alpha[BLOCK_ROWS], all_ones[BLOCK_ROWS];
    tile_scores(k, t, keys_at(c, k->kv, t->tile0));
    for (int64_t r0 = 0; r0 < k->groups * MR; r0 += VL) {
        raise_running_max(k, r0, alpha);
        vf_store(w->inputs.sum + r0, vf_load(w->inputs.sum + r0) * vf_load(alpha + r0));
        vf_store(all_ones + r0, vf_set1(1));
    }
    if (jvp->scores)
        tile_tangents(k, &w->inputs, &w->arrays, t, keys_at(c, k->kv, t->tile0), keys_at(inputs, k->kv, t->tile0));
    for (int64_t r0 = 0; r0 < k->groups * MR; r0 += VL)
        if (jvp->scores)
            weigh_tangents(k, t, r0, w->inputs.s, w->inputs.sum);
        else
            weigh_rows(k, t, r0);
    for (int64_t r = 0; c->args->desc.dropout > 0 && r < k->rows; r++) {
        apply_dropout(k, t, r, t->from[r / MR], t->to[r / MR], k->s + r * ROW_STEP);
        if (jvp->scores)
            apply_dropout(k, t, r, t->from[r / MR], t->to[r / MR], w->inputs.s + r * ROW_STEP);
    }
    if (!jvp->tangents->out.data)
        return;
    if (jvp->scores || c->args->row_max.data)
        tile_values(k, t, k->s, k->values, first, c->packed_k, alpha, k->o, 0);
    if (jvp->scores)
        tile_values(k, t, w->inputs.s, k->values, first, c->packed_k, alpha, w->inputs.o, 0);
    if (inputs->args->v.data || !jvp->scores) /* absent: packed as 0 */
        tile_values(k, t, k->s, w->inputs.values, first, c->packed_k, jvp->scores ? all_ones : alpha, w->inputs.o, 0);
    tile_vector_weights(w, t, alpha);
    if (t->large_v)
        mark_nonfinite(k, t);
}

/* Write the block's rows of the tangents of out and lse. A row without a key has tangents of 0. */
static void write_tangents(tangent_block *w)
{
    block *k = &w->k;
    const rpi_call *c = k->c;
    const rp_desc *d = &c->args->desc;
    const rpi_view *out = &c->jvp->tangents->out, *lse = &c->jvp->tangents->lse;
    uint8_t *plain = c->jvp->plain + (k->b * d->heads + k->h) * d->len_q + k->row0;
    for (int64_t r = 0; r < k->rows; r++) {
        const int64_t i = k->row0 + r;
        const real sum = k->sum[r], total = sum == 0 ? 1 : sum, mean = w->inputs.sum[r] / total;
        const real *a = k->o + r * c->pad_v;
        real *to = w->inputs.o + r * c->pad_v;
        magnitude size = {vf_set1(0)};
        for (int64_t x = 0; out->data && x < c->pad_v; x += VL) {
            vf y = vf_load(to + x);
            if (c->jvp->scores)
                y = y - vf_load(a + x) * vf_set1(mean);
            y = y / vf_set1(total);
            note_magnitude(&size, y);
            vf_store(to + x, y);
        }
        if (out->data)
            store_channels(out->data, out->dtype, rpi_index(out, k->b, k->h, i, 0), to, d->dim_v);
        if (lse->data)
            rpi_put(lse->data, lse->dtype, rpi_index(lse, k->b, k->h, i, 0), (double)mean);
        if (!is_finite(&size))
            plain[r] |= RPI_PLAIN_OUT;
        if (!(mean - mean == 0))
            plain[r] |= RPI_PLAIN_OUT | RPI_PLAIN_LSE;
    }
    if (c->args->row_max.data) /* second derivatives also need out and lse */
        write_rows(k);
}

static int64_t jvp_size(const rpi_call *c)
{
    tangent_block w;
    rpi_arena a = {0};
    tangent_layout(c, &w, &a);
    return rpi_arena_size(&a);
}

/* Run a task: compute rows [row0, row1) of one head whose kv head is packed. */
static void jvp_rows(const rpi_call *c, int64_t b, int64_t h, int64_t row0, int64_t row1, int32_t worker)
{
    const rp_desc *d = &c->args->desc;
    const unsigned before = rpi_float_begin(RPI_FLOAT_FLUSH);
    const rpi_view *turned_sink = c->plan->sink < 0 ? NULL : c->jvp->tangents->term[c->plan->sink];
    rpi_arena a = scratch_of(c, worker);
    tangent_block w;
    block *k = &w.k, *const blocks[3] = {k, &w.inputs, &w.arrays};
    tangent_layout(c, &w, &a);
    k->b = b;
    k->h = h;
    k->kv = b * d->kv_heads + rpi_kv_head(d, h) - c->g0;
    k->values = values_at(c, k->kv);
    w.inputs.values = values_at(w.inputs.c, k->kv);
    const uint8_t *large_k = c->large_k + k->kv * (c->packed_k / NR), *large_v = c->large_v + k->kv * c->packed_k;
    for (k->row0 = row0; k->row0 < row1; k->row0 += BLOCK_ROWS) {
        tile t;
        int64_t first, past;
        start_block(k, row1, &first, &past);
        open_tangents(k, &w.inputs, &w.arrays);
        start_sums(k);
        start_sums(&w.inputs);
        start_sums(&w.arrays);
        for (int64_t r = 0; r < rpi_round_up(k->groups * MR, VL); r++)
            w.inputs.sum[r] = turned_sink && turned_sink->data && r < k->rows
                                  ? k->sum[r] * (real)rpi_sink_tangent(c->args, b, h, row_of(k, r), turned_sink)
                                  : 0;
        for (int64_t tile0 = first / TILE_KEYS * TILE_KEYS; tile0 < past; tile0 += TILE_KEYS)
            if (open_tile(k, &t, tile0, TILE_KEYS, large_k + (tile0 - c->args->key_from) / NR,
                          large_v + tile0 - c->args->key_from))
                tile_jvp(&w, &t);
        for (int n = 0; n < 3; n++)
            if (blocks[n]->vector_weights.at)
                flush_vector_weights(blocks[n]);
        write_tangents(&w);
    }
    rpi_float_end(before);
}
