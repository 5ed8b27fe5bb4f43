/* kernels/skip.h -- skip tiles of keys whose weights would all be 0. Independent of the backend; names no scheme.
 * Parameters: VL, NR, BLOCK_ROWS, TILE_KEYS.
 *
 * A score is at most |scale q| |k| plus the largest bias of the rows and keys. If this bound is so far below the
 * running maximum of every row that exp gives 0, the keys raise no maximum and add exact zeros. Skipping them changes
 * no bit. Far keys are visited before near ones, when the running maximum is still low. Therefore a row with keys in
 * tiles before its own starts its running maximum slightly below the score of its own key, even if no tiles are
 * skipped. docs/maintainers/numerics.md has the proof.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef RPI_ISA
#include "state.h" /* lets an editor parse this file on its own */
#endif

/* Return a bound on the total relative rounding error of scores, their bounds and norms. */
static inline double slack(const rpi_call *c)
{
    return 0x1p-12 + 8 * (double)(c->plan->desc.dim_k + 16) * (RPI_F64 ? 0x1p-53 : 0x1p-24);
}

/* Return the dot product of n channels of two rows. */
static double channels_dot(const real *a, const real *b, int64_t n)
{
    vf sum = vf_set1(0);
    double rest = 0;
    int64_t x = 0;
    for (; x + VL <= n; x += VL)
        sum = vf_fma(vf_load(a + x), vf_load(b + x), sum);
    for (; x < n; x++)
        rest += (double)a[x] * (double)b[x];
    return (double)vf_sum(sum) + rest;
}

static double rows_dot(const rpi_view *a, const void *from_a, const rpi_view *b, const void *from_b, int64_t width)
{
    real scratch[2][CHANNELS];
    double sum = 0;
    for (int64_t x0 = 0; x0 < width; x0 += CHANNELS) {
        const int64_t n = rpi_min(CHANNELS, width - x0);
        sum +=
            channels_dot(load_channels(a, from_a, x0, n, scratch[0]), load_channels(b, from_b, x0, n, scratch[1]), n);
    }
    return sum;
}

/* Return an upper bound of the norm of a row, up to the slack. If an element is non-finite or large, the result is
 * above RPI_MODERATE, infinite or NaN. The bound includes 2 REAL_TINY for each element, because squares below REAL_TINY
 * are flushed to 0. */
static double row_norm(const rpi_view *v, const void *row, int64_t width)
{
    return sqrt(rows_dot(v, row, v, row, width) + 2 * (double)width * (double)REAL_TINY);
}

/* Return the largest norm of the keys of a panel, or infinity if `large` is set or a norm is infinite or NaN. */
static real panel_norm(const rpi_call *c, int64_t b, int64_t g, int64_t j0, bool large)
{
    const rp_desc *d = &c->args->desc;
    const rpi_view *v = &c->args->k;
    double norm = large ? HUGE_VAL : 0;
    for (int64_t j = j0; j < rpi_min(j0 + NR, d->len_k) && norm < HUGE_VAL; j++) {
        const double x = row_norm(v, rpi_row_of(v, b, g, j), d->dim_k);
        norm = x <= norm ? norm : x < HUGE_VAL ? x : HUGE_VAL;
    }
    return (real)norm;
}

/* Compute the norms of the block's scaled queries. */
static void find_norms(block *k)
{
    const rpi_call *c = k->c;
    const rpi_view *q = &c->args->q;
    k->moderate = true;
    for (int64_t r = 0; r < k->rows; r++) {
        const double norm = row_norm(q, rpi_row_of(q, k->b, k->h, k->row0 + r), c->args->desc.dim_k),
                     scaled = norm * fabs(c->args->desc.scale);
        k->moderate = k->moderate && norm <= (double)RPI_MODERATE && scaled <= (double)RPI_MODERATE;
        k->norm[r] = (real)scaled;
    }
}

/* Return a lower bound on the score of row r with its own key, j = k->position[r], from which the running maximum may
 * start. Return -infinity (start as usual) if key j is masked or in the row's first tile, if the bias of key 0 is not
 * at least rpi_exp_limit below the bias of key j, or if the bound is not moderate. The result depends only on the
 * row. */
static real start_of(const block *k, int64_t r)
{
    const rpi_call *c = k->c;
    const rp_desc *d = &c->args->desc;
    const int64_t i = k->row0 + r, j = k->position[r];
    double size, unused;
    uint8_t keep = 1;
    if (!c->starts || r >= k->rows || j < k->lo[r] || j >= k->hi[r] || k->lo[r] / TILE_KEYS == j / TILE_KEYS)
        return (real)-INFINITY;
    const double bias = rpi_bias_of_pair(c->source, c->n_sources, c->args, k->b, k->h, i, j, &size);
    if (!(rpi_bias_of_pair(c->source, c->n_sources, c->args, k->b, k->h, i, 0, &unused) <
          bias - rpi_exp_limit(c->plan)))
        return (real)-INFINITY;
    if (c->plan->mask_keep)
        rpi_mask_keep(c->args, k->b, k->h, i, j, 1, &keep);
    if (!keep)
        return (real)-INFINITY;
    const bool in_range = j >= c->args->key_from && j < c->args->key_to;
    const rpi_view *q = &c->args->q, *key = in_range ? &c->args->k : &c->args->own_keys;
    const void *a = rpi_row_of(q, k->b, k->h, i),
               *b = rpi_row_of(key, k->b, k->h / (d->heads / d->kv_heads), in_range ? j : i);
    double product = d->scale * rows_dot(q, a, key, b, d->dim_k);
    size += fabs(d->scale) * row_norm(q, a, d->dim_k) * row_norm(key, b, d->dim_k);
    if (d->softcap > 0)
        product = d->softcap * tanh(product / d->softcap);
    const double start = product + bias - slack(c) * size;
    return fabs(start) <= (double)RPI_MODERATE ? (real)start : (real)-INFINITY;
}

/* Return the logit of the sink of row r, or -infinity if there is none. */
static real sink_of(const block *k, int64_t r)
{
    return (real)rpi_round_bias(rpi_sink(k->c->args, k->b, k->h, row_of(k, r)), sizeof(real));
}

/* Initialize the running maximum and the sum of row r from its state, or from the sink (a key without a value) and
 * start_of. */
static void start_row(block *k, int64_t r)
{
    const real *state = state_of(k, r);
    if (state) {
        k->running_max[r] = state[STATE_MAX];
        k->sum[r] = state[STATE_SUM];
        return;
    }
    const real own = start_of(k, r), sink = sink_of(k, r);
    real sum[VL] = {0};
    k->running_max[r] = own > sink ? own : sink;
    k->sum[r] = sink == -INFINITY ? 0 : 1;
    if (own > sink && sink != -INFINITY) {
        vf_store(sum, vf_exp(vf_set1(sink - own)));
        k->sum[r] = sum[0];
    }
}

/* Initialize the running maxima and sums of all rows of the block. */
static void start_rows(block *k)
{
    const rpi_call *c = k->c;
    const bool by_row =
        c->starts || c->args->state_in.data || (c->plan->sink >= 0 && c->args->term[c->plan->sink][0].len[2] > 1);
    const real sink = by_row ? (real)-INFINITY : sink_of(k, 0);
    const vf sum = vf_set1(sink == -INFINITY ? 0 : 1), max = vf_set1(sink);
    for (int64_t r = 0; r < k->groups * MR; r += VL) {
        vf_store(k->running_max + r, max);
        vf_store(k->sum + r, sum);
        vf_store(k->entropy + r, vf_set1(0));
        vf_store(k->weight_sum + r, vf_set1(0));
    }
    for (int64_t r = 0; by_row && r < k->rows; r++)
        start_row(k, r);
}

/* Return the largest |q| `norm` - running maximum over the block's rows, with the product limited by the softcap. In
 * the backward pass, use the largest |q| and the smallest lse of the block. */
static double rows_above(const block *k, real norm)
{
    const double softcap = k->c->args->desc.softcap,
                 max_product = softcap > 0 ? softcap * (1 + slack(k->c)) : (double)REAL_MAX;
    if (k->bounds)
        return fmin(k->bounds[0] * (double)norm, max_product) - k->bounds[1];
    const vf factor = vf_set1(norm), cap = vf_set1((real)max_product);
    vf max = vf_set1(-INFINITY);
    int64_t r = 0;
    for (; r + VL <= k->rows; r += VL) {
        const vf x = vf_load(k->norm + r) * factor;
        max = vf_max(vf_below(cap, x, cap, x) - vf_load(k->running_max + r), max);
    }
    real max_above = vf_max_lane(max);
    for (; r < k->rows; r++) {
        const real product = k->norm[r] * norm, x = product > cap[0] ? cap[0] : product;
        max_above = x - k->running_max[r] > max_above ? x - k->running_max[r] : max_above;
    }
    return (double)max_above;
}

/* Return true if a bound on the scores shows that keys j0 … j1-1, whose norms are at most `norm`, get the weight 0 in
 * all rows of the block. */
static bool norm_is_far(const block *k, real norm, int64_t j0, int64_t j1)
{
    const rpi_call *c = k->c;
    const double more = 1 + slack(c);
    double size;
    if (!k->moderate || !(norm <= (real)RPI_MODERATE))
        return false;
    const double bias = rpi_largest_bias(c->source, c->n_sources, c->args, k->b, k->h, k->row0, k->rows, j0, j1, &size);
    return rows_above(k, (real)((double)norm * more)) + bias + slack(c) * size < -rpi_exp_limit(c->plan);
}

static bool is_far(const block *k, int64_t j0, int64_t j1)
{
    real norm = 0;
    j1 = rpi_min(j1, k->c->args->desc.len_k);
    for (int64_t panel = (j0 - k->norms_from) / NR; k->norms_from + panel * NR < j1; panel++)
        norm = k->key_norms[panel] > norm ? k->key_norms[panel] : norm;
    return norm_is_far(k, norm, j0, j1);
}

/* Decoding: initialize the norms of the queries and start_row of all rows. Return true if a bound on the scores, from
 * the caller's norms, shows that keys j0 … j1-1 get the weight 0 in all rows. The keys are not read. */
static bool is_far_unread(block *k, int64_t g, int64_t j0, int64_t j1)
{
    const rpi_args *args = k->c->args;
    const rpi_view *norms = &args->key_norms;
    double norm = 0;
    j1 = rpi_min(j1, args->desc.len_k);
    for (int64_t j = j0, n; j < j1;) {
        j = rpi_norm_of_key(args, j, &n);
        const double x = rpi_value(rpi_row_of(norms, k->b, g, n), norms->dtype, 0);
        norm = x <= norm ? norm : x < HUGE_VAL ? x : HUGE_VAL;
    }
    find_norms(k);
    for (int64_t r = 0; r < k->rows; r++)
        start_row(k, r);
    return norm_is_far(k, (real)norm, j0, j1);
}

/* Count pairs of a tile: add the number that the rows' intervals allow to args->pairs[0], and the number whose scores
 * are computed (none if t is NULL) to args->pairs[1]. */
static void count_pairs(const block *k, const tile *t, int64_t tile0)
{
    int64_t allowed = 0, computed = 0;
    for (int64_t r = 0; r < k->rows; r++) {
        const int64_t from = rpi_max(k->lo[r], tile0), to = rpi_min(k->hi[r], tile0 + TILE_KEYS);
        allowed += rpi_max(to - from, 0);
        if (t)
            computed += rpi_max(rpi_min(to, tile0 + t->to[r / MR]) - rpi_max(from, tile0 + t->from[r / MR]), 0);
    }
    __atomic_fetch_add(&k->c->args->pairs[0], allowed, __ATOMIC_RELAXED);
    __atomic_fetch_add(&k->c->args->pairs[1], computed, __ATOMIC_RELAXED);
}

/* Remove panels whose weights would all be 0 from both ends of the tile. Return true if no panel remains. */
static bool narrow_tile(const block *k, tile *t)
{
    int64_t from = 0, to = rpi_round_up(t->end, NR);
    while (from < to && is_far(k, t->tile0 + from, t->tile0 + from + NR))
        from += NR;
    while (from < to && is_far(k, t->tile0 + to - NR, t->tile0 + to))
        to -= NR;
    bool any = false;
    for (int64_t g = 0; g < k->groups; g++) {
        /* forward: keep at least the last panel of the group's first SUM_KEYS columns, because adding their sum also
         * rescales and rounds the earlier sum */
        const int64_t last = k->bounds ? TILE_KEYS : (t->from[g] / SUM_KEYS + 1) * SUM_KEYS - NR;
        t->from[g] = rpi_max(t->from[g], rpi_min(from, last));
        t->to[g] = rpi_min(t->to[g], to);
        if (t->from[g] >= t->to[g])
            t->from[g] = t->to[g] = 0;
        any |= t->from[g] < t->to[g];
    }
    return !any;
}
