/* kernels/forward.h -- the forward pass: pack keys and values, process the tiles of a block of rows, and store the
 * rows. Independent of the backend.
 * Parameters: BLOCK_ROWS, TILE_KEYS, COLUMN_STEP, NR.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef RPI_ISA
#include "state.h" /* lets an editor parse this file on its own */
#endif

/* Pack panels [panel0, panel1) of kv head g of batch entry b into slot `at` of the packed heads. If `values` is false,
 * pack only the keys, because the values will be read from the caller's array. */
static void pack_at(block *k, int64_t b, int64_t g, int64_t at, int64_t panel0, int64_t panel1, bool values)
{
    const rpi_call *c = k->c;
    uint8_t *large_k = c->large_k + at * (c->packed_k / NR), *large_v = c->large_v + at * c->packed_k;
    memset(large_k + panel0, 0, (size_t)(panel1 - panel0));
    for (int64_t panel = panel0; panel < panel1; panel++) {
        const int64_t at_j = panel * NR, j = c->args->key_from + at_j,
                      n = rpi_min(NR, rpi_round_up(c->args->desc.len_k - j, COLUMN_STEP));
        if (c->args->k.data) /* absent: the tangent of k, if it is 0 */
            pack_keys(k, b, g, j, n, keys_at(c, at, j), large_k + panel);
        memset(large_v + at_j, 0, NR);
        if (values) /* pack_values packs zeros if v is absent (out not requested) */
            pack_values(k, b, g, j, n, values_at(c, at), at_j, c->packed_k, large_v + at_j);
        if (c->skips)
            ((real *)c->key_norms)[at * (c->packed_k / NR) + panel] =
                panel_norm(c, b, g, j, large_k[panel] || memchr(large_v + at_j, 1, NR));
    }
}

/* Set up a block in the scratch of one worker. */
static void worker_block(const rpi_call *c, block *k, int32_t worker)
{
    rpi_arena a = scratch_of(c, worker);
    block_layout(c, k, &a);
    k->c = c;
}

/* Pack panels [panel0, panel1) of a kv head of the group. */
static void pack_kv(const rpi_call *c, int64_t kv, int64_t panel0, int64_t panel1, int32_t worker)
{
    const int64_t heads = c->args->desc.kv_heads;
    block k;
    worker_block(c, &k, worker);
    pack_at(&k, (c->g0 + kv) / heads, (c->g0 + kv) % heads, kv, panel0, panel1, true);
}

/* Process one tile for all rows of the block: compute scores, raise the running maximum, compute weights, add weighted
 * values. */
static void tile_attend(block *k, const tile *t)
{
    const rpi_call *c = k->c;
    real alpha[BLOCK_ROWS];
    tile_scores(k, t, keys_at(c, k->kv, t->tile0));
    for (int64_t r0 = 0; r0 < k->groups * MR; r0 += VL)
        raise_running_max(k, r0, alpha);
    const bool large = t->large_v || (c->value_vectors && c->value_vectors->values.nonfinite);
    rescale_vector_weights(k, alpha);
    weigh_tile(k, t, makes_out(c) ? k->values : NULL, t->tile0 - c->args->key_from, c->packed_k, alpha, k->o, 0,
               k->vector_weights.at || large);
    if (!makes_out(c))
        return;
    if (k->vector_weights.at)
        add_vector_weights(k, t);
    if (large)
        add_nonfinite(k, t);
}

/* Divide the sums of weighted values by the sums of weights, and write the block's rows of all outputs. If later keys
 * follow, write the state of the rows instead. */
static void write_rows(block *k)
{
    const rpi_call *c = k->c;
    const rpi_args *a = c->args;
    const rp_desc *d = &c->args->desc;
    if (a->state_out.data) {
        save_state(k);
        return;
    }
    if (k->whole && !a->lse.data && !a->row_max.data && !a->entropy.data)
        return;
    for (int64_t r = 0; r < k->rows; r++) {
        const real sum = k->sum[r];
        const int64_t i = k->row0 + r;
        if (a->out.data && !k->whole) {
            real *row = k->o + r * c->pad_v, *to = row;
            const int64_t at = rpi_index(&a->out, k->b, k->h, i, 0);
            const bool in_place = a->out.dtype == (RPI_F64 ? RP_F64 : RP_F32) && d->dim_v == c->pad_v;
            if (in_place)
                to = (real *)a->out.data + at;
            /* + 0 turns a sum that was flushed to -0 into 0, as it would be if another tile had added a 0 */
            for (int64_t x = 0; sum != 0 && x < c->pad_v; x += VL)
                vf_store(to + x, (vf_load(row + x) + vf_set1(0)) / vf_set1(sum));
            for (int64_t x = 0; sum == 0 && x < c->pad_v; x += VL)
                vf_store(to + x, vf_set1(0));
            if (!in_place)
                store_channels(a->out.data, a->out.dtype, at, row, d->dim_v);
        }
        if (a->lse.data)
            rpi_put(a->lse.data, a->lse.dtype, rpi_index(&a->lse, k->b, k->h, i, 0),
                    sum == 0 ? -INFINITY : (double)k->running_max[r] + log((double)sum));
        if (a->row_max.data) {
            rpi_put(a->row_max.data, RP_F64, rpi_index(&a->row_max, k->b, k->h, i, 0),
                    sum == 0 ? -HUGE_VAL : (double)k->running_max[r]);
            rpi_put(a->log_sum.data, RP_F64, rpi_index(&a->log_sum, k->b, k->h, i, 0), sum == 0 ? 0 : log((double)sum));
        }
        if (a->entropy.data)
            rpi_put(a->entropy.data, a->entropy.dtype, rpi_index(&a->entropy, k->b, k->h, i, 0),
                    sum == 0 ? 0.0 : log((double)sum) * (double)k->weight_sum[r] + (double)k->entropy[r]);
    }
}

/* For a block whose only tile has no key for its rows: set the sums of values to 0, and let write_rows store them. */
static void no_values(block *k)
{
    k->whole = false;
    memset(k->o, 0, reals(k->groups * MR, k->c->pad_v));
}

/* Load rows k->row0 … of a block, up to row1 at most. Set [*first, *past) to the keys that some row may attend to. */
static void start_block(block *k, int64_t row1, int64_t *first, int64_t *past)
{
    const rpi_call *c = k->c;
    const bool all = !c->plan->intervals;
    k->rows = rpi_min(BLOCK_ROWS, row1 - k->row0);
    k->groups = (k->rows + MR - 1) / MR;
    k->vector_weights.low = k->vector_weights.high = 0;
    load_queries(k);
    find_intervals(k);
    start_rows(k);
    *first = all ? c->args->key_from : c->args->key_to;
    *past = all ? c->args->key_to : 0;
    for (int64_t r = 0; r < k->rows && !all; r++) {
        if (k->lo[r] < k->hi[r]) {
            *first = rpi_min(*first, k->lo[r]);
            *past = rpi_max(*past, k->hi[r]);
        }
    }
    *first = rpi_max(*first, c->args->key_from);
    *past = rpi_min(*past, c->args->key_to);
}

/* Compute rows [row0, row1) of head k->h of batch entry k->b, whose keys and values are in slot k->kv of the packed
 * heads. If a summary is requested, `partial` has Lq+Lk-1 sums by offset, then Lk sums by key. */
static void attend_rows(block *k, int64_t row0, int64_t row1, double *partial)
{
    const rpi_call *c = k->c;
    const rp_desc *d = &c->args->desc;
    const int64_t key_from = c->args->key_from;
    const uint8_t *large_k = c->large_k + k->kv * (c->packed_k / NR), *large_v = c->large_v + k->kv * c->packed_k;
    const bool whole = is_whole(c) && !rpi_is_range(c->args) && !memchr(large_v, 1, (size_t)d->len_k);
    for (k->row0 = row0; k->row0 < row1; k->row0 += BLOCK_ROWS) {
        tile t;
        int64_t first, past;
        start_block(k, row1, &first, &past);
        k->whole = whole;
        if (!whole)
            start_sums(k);
        if (c->skips) {
            find_norms(k);
            k->key_norms = (const real *)c->key_norms + k->kv * (c->packed_k / NR);
            k->norms_from = key_from;
        }
        for (int64_t tile0 = first / TILE_KEYS * TILE_KEYS; tile0 < past; tile0 += TILE_KEYS) {
            const bool needed =
                !(c->skips && is_far(k, tile0, tile0 + TILE_KEYS)) &&
                open_tile(k, &t, tile0, TILE_KEYS, large_k + (tile0 - key_from) / NR, large_v + tile0 - key_from) &&
                !(c->skips && narrow_tile(k, &t));
            if (c->args->pairs)
                count_pairs(k, needed ? &t : NULL, tile0);
            if (needed)
                tile_attend(k, &t);
            else if (whole)
                no_values(k);
        }
        if (whole && first >= past)
            no_values(k);
        if (k->vector_weights.at && !(c->args->state_out.data && rpi_state_vectors(c->plan)))
            flush_vector_weights(k);
        for (int64_t tile0 = first / TILE_KEYS * TILE_KEYS; partial && tile0 < past; tile0 += TILE_KEYS)
            if (open_tile(k, &t, tile0, TILE_KEYS, large_k + (tile0 - key_from) / NR, large_v + tile0 - key_from))
                tile_summary(k, &t, partial, partial + d->len_q + d->len_k - 1);
        write_rows(k);
    }
}

/* Run a task: compute rows [row0, row1) of one head whose kv head is packed. */
static void attend(const rpi_call *c, int64_t b, int64_t h, int64_t row0, int64_t row1, double *partial, int32_t worker)
{
    const rp_desc *d = &c->args->desc;
    const unsigned before = rpi_float_begin(RPI_FLOAT_FLUSH);
    block k;
    amx_begin();
    worker_block(c, &k, worker);
    k.b = b;
    k.h = h;
    k.kv = b * d->kv_heads + h / (d->heads / d->kv_heads) - c->g0;
    k.values = values_at(c, k.kv);
    attend_rows(&k, row0, row1, partial);
    amx_end();
    rpi_float_end(before);
}

/* Run a task on kv heads [kv0, kv1), one at a time: pack the head into the worker's slot of c->keys and c->values, then
 * compute all its rows. Values that need no packing are read from the caller's array. */
static void attend_heads(const rpi_call *c, int64_t kv0, int64_t kv1, int32_t worker)
{
    const rp_desc *d = &c->args->desc;
    const unsigned before = rpi_float_begin(RPI_FLOAT_FLUSH);
    const int64_t per_kv = d->heads / d->kv_heads;
    block k;
    amx_begin();
    worker_block(c, &k, worker);
    k.kv = worker;
    for (int64_t kv = kv0; kv < kv1; kv++) {
        const int64_t g = kv % d->kv_heads;
        k.b = kv / d->kv_heads;
        const void *values = values_in_place(c, k.b, g);
        k.values = values ? values : values_at(c, worker);
        k.value_step = values ? d->dim_v : 0;
        pack_at(&k, k.b, g, worker, 0, c->packed_k / NR, !values);
        for (k.h = g * per_kv; k.h < (g + 1) * per_kv; k.h++)
            attend_rows(&k, 0, d->len_q, NULL);
    }
    amx_end();
    rpi_float_end(before);
}
