/* kernels/fma/fma_forward.h -- the forward products of a block, computed with register tiles. amx/ has the same
 * functions.
 * Parameters: VL, MR, NR, BLOCK_ROWS, SUM_KEYS.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef RPI_ISA
#include "kernels/softmax.h" /* lets an editor parse this file on its own */
#endif

#define amx_begin() ((void)0) /* the AMX backend configures and releases AMX tiles here */
#define amx_end()   ((void)0)

/* Return the bytes of a packed key (key_bytes) or of a packed value (value_bytes). */
static int64_t key_bytes(const rp_plan *plan)
{
    return key_numbers(plan) * (int64_t)sizeof(real);
}

static int64_t value_bytes(const rp_plan *plan)
{
    return rpi_round_up(plan->desc.dim_v, VL) * (int64_t)sizeof(real);
}

/* Pack rows j0 … j0+n-1 as columns of up to NR channels, so that a register tile reads a row of a column as vectors.
 * Set non-finite rows to 0, and set large[r] for them. */
static void pack_columns(const rpi_view *v, int64_t b, int64_t h, int64_t j0, int64_t n, int64_t real_rows,
                         int64_t width, real *to, int64_t first, int64_t pad, uint8_t *large)
{
    const int64_t wide = rpi_round_up(width, VL), there = v->data ? rpi_clamp(real_rows - j0, 0, n) : 0;
    const int64_t size = rpi_floating_size(v->dtype);
    const head_rows rows = rows_of_head(v, b, h, real_rows);
    magnitude all = {vf_set1(0)};
    real scratch[CHANNELS];
    for (int64_t r = 0; r < there; r++) {
        const void *row = head_row(&rows, j0 + r);
        const char *ahead = row_ahead(&rows, j0 + r);
        for (int64_t x0 = 0; x0 < width; x0 += CHANNELS) {
            const int64_t m = rpi_min(CHANNELS, width - x0);
            const real *from = load_channels(v, row, x0, m, scratch);
            int64_t x = 0;
            for (; x + VL <= m; x += VL) {
                const vf y = vf_load(from + x);
                __builtin_prefetch(ahead + (x0 + x) * size, 0, 2);
                note_magnitude(&all, y);
                vf_store(in_column(to, pad, first + r, wide, x0 + x), y);
            }
            if (x < m) {
                real lane[VL] = {0};
                memcpy(lane, from + x, (size_t)(m - x) * sizeof(real));
                note_magnitude(&all, vf_load(lane));
                vf_store(in_column(to, pad, first + r, wide, x0 + x), vf_load(lane));
            }
        }
    }
    for (int64_t r = there; r < n; r++)
        for (int64_t x = 0; x < wide; x += VL)
            vf_store(in_column(to, pad, first + r, wide, x), vf_set1(0));
    for (int64_t r = 0; r < n; r++)
        large[r] = 0;
    if (!is_finite(&all))
        clear_large(to, pad, first, there, wide, large);
}

/* Pack keys j0 … j0+n-1 of a kv head as single elements, transposed and rotated. Set large[panel] if a key is
 * non-finite or large. */
static void pack_numbers(const block *k, int64_t b, int64_t g, int64_t j0, int64_t n, void *to, uint8_t *large)
{
    const rpi_call *c = k->c;
    const rp_desc *d = &c->args->desc;
    const rp_term *rotate = c->plan->rotate >= 0 ? &c->plan->terms[c->plan->rotate] : NULL;
    pack_panels(&c->args->k, b, g, j0, n, d->len_k, d->dim_k, rotate, rpi_rope_of(c, true, b, g), to, large);
}

/* Pack keys j0 … j0+n-1 of a kv head, as pairs if scores are computed from pairs, else as single elements. */
static void pack_keys(const block *k, int64_t b, int64_t g, int64_t j0, int64_t n, void *to, uint8_t *large)
{
    const rpi_call *c = k->c;
    if (scores_by_pairs(c->plan))
        pack_pairs(&c->args->k, b, g, j0, n, c->args->desc.len_k, c->args->desc.dim_k, to, large);
    else
        pack_numbers(k, b, g, j0, n, to, large);
}

/* Pack values j0 … j0+n-1 as rows first … first+n-1 of columns of `pad` rows. Pack a non-finite value as 0 and set
 * large[r]. */
static void pack_values(const block *k, int64_t b, int64_t g, int64_t j0, int64_t n, void *to, int64_t first,
                        int64_t pad, uint8_t *large)
{
    const rpi_call *c = k->c;
    const rp_desc *d = &c->args->desc;
    pack_columns(&c->args->v, b, g, j0, n, d->len_k, d->dim_v, to, first, pad, large);
}

/* Return true if a row is a single sum of weighted values, which register tiles divide and write to out. */
static bool is_whole(const rpi_call *c)
{
    const rpi_view *out = &c->args->out;
    return c->args->desc.len_k <= SUM_KEYS && !c->value_vectors && out->data &&
           out->dtype == (RPI_F64 ? RP_F64 : RP_F32) && c->args->desc.dim_v == c->pad_v;
}

/* The most bytes of a head's values that whole_rows reads in the caller's array: they stay in the L1 cache. */
enum { IN_PLACE_BYTES = 1 << 14 };

/* Return the values of a kv head in the caller's array if they are finite and have the layout of pack_values, or if
 * whole_rows reads them; else NULL. */
static const void *values_in_place(const rpi_call *c, int64_t b, int64_t g)
{
    const rpi_view *v = &c->args->v;
    const int64_t width = c->args->desc.dim_v, n = c->args->desc.len_k * width;
    if (!v->data || v->page || v->dtype != (RPI_F64 ? RP_F64 : RP_F32) || v->stride[2] != width || width % VL != 0 ||
        (width > NR && !(is_whole(c) && reals(n, 1) <= IN_PLACE_BYTES)))
        return NULL;
    const real *from = rpi_row_of(v, b, g, 0);
    magnitude all = {vf_set1(0)};
    int64_t x = 0;
    for (; x + LINE_VECTORS * VL <= n; x += LINE_VECTORS * VL) {
        __builtin_prefetch((const void *)((uintptr_t)(from + x) + (uintptr_t)(AHEAD * width) * sizeof(real)), 0, 2);
        RPI_UNROLL
        for (int y = 0; y < LINE_VECTORS; y++)
            note_magnitude(&all, vf_load(from + x + y * VL));
    }
    for (; x < n; x += VL)
        note_magnitude(&all, vf_load(from + x));
    return is_finite(&all) ? from : NULL;
}

/* Load the block's queries as rows, and also as pairs if scores are computed from pairs. */
static void load_queries(block *k)
{
    load_groups(k);
    if (scores_by_pairs(k->c->plan))
        rows_as_pairs(k->q, k->groups * MR, k->c->plan->desc.dim_k, k->products.q_pairs);
}

SCORE_COLUMNS(single_columns, 1, false)
#ifdef RPI_PAIRS_ISA
SCORE_COLUMNS(score_pairs, MR, true)
SCORE_COLUMNS(single_pairs, 1, true)
#else
#define score_pairs  score_columns
#define single_pairs single_columns
#endif

/* Compute the tile's scores k->s = in + q k^T. If max is not NULL, store VL lane maxima of each row there. */
static void key_scores(block *k, const tile *t, const void *keys, const real *const *in, real *max)
{
    const bool pairs = scores_by_pairs(k->c->plan);
    const int64_t D = key_numbers(k->c->plan), step = rpi_round_up(D, VL), there = k->c->args->desc.len_k - t->tile0;
    const real *q = pairs ? k->products.q_pairs : k->q;
    for (int64_t col = 0; col < t->end; col += NR) /* the panel stays in the L1 cache for all groups */
        for (int64_t g = 0; g < k->groups; g++) {
            if (col < t->from[g] || col >= t->to[g])
                continue;
            const bool one = k->rows - g * MR == 1;
            const real *ahead = one ? q : (const real *)keys + (col + NR) * D + g * (NR * D / 16);
            __typeof__(&score_columns) const scores =
                one ? (pairs ? single_pairs : single_columns) : (pairs ? score_pairs : score_columns);
            scores(q + g * MR * step, step, (const real *)keys + col * D, D, in ? in + g * MR : NULL, col,
                   k->s + g * MR * ROW_STEP + col, ROW_STEP, max ? max + g * MR * VL : NULL, ahead, there - col);
        }
}

/* Turn the scores of a panel of one row into weights exp(s - base), and add them to `sum`. If a panel has two vectors,
 * compute their exponentials together, which is faster than one after the other. */
static inline __attribute__((always_inline)) void weigh_panel(real *s, vf base, vf *sum)
{
    enum { TOGETHER = ROW_VECTORS == 2 ? 2 : 1 };
    RPI_UNROLL
    for (int n = 0; n < ROW_VECTORS; n += TOGETHER) {
        vf w[TOGETHER];
        RPI_UNROLL
        for (int m = 0; m < TOGETHER; m++)
            w[m] = vf_load(s + (n + m) * VL) - base;
        vf_exps(TOGETHER, w);
        RPI_UNROLL
        for (int m = 0; m < TOGETHER; m++) {
            vf_store(s + (n + m) * VL, w[m]);
            sum[n + m] = sum[n + m] + w[m];
        }
    }
}

/* Turn the scores of rows r0 … r0+VL-1 into weights relative to their running maxima, and add the weights to the rows'
 * sums. */
static void weigh_rows(block *k, const tile *t, int64_t r0)
{
    vf sums[VL];
    for (int64_t r = r0; r < r0 + VL; r++) {
        const bool there = r < k->rows;
        const vf base = there ? score_shift(k, r) : vf_set1(0);
        real *s = k->s + r * ROW_STEP;
        vf sum[ROW_VECTORS];
        RPI_UNROLL
        for (int n = 0; n < ROW_VECTORS; n++)
            sum[n] = vf_set1(0);
        const int64_t to = there ? t->to[r / MR] : 0;
        int64_t j = there ? t->from[r / MR] : 0;
        for (; j + NR <= to; j += NR)
            weigh_panel(s + j, base, sum);
        for (int n = 0; j < to; j += VL, n++) { /* vectors of the last panel */
            const vf w = vf_exp(vf_load(s + j) - base);
            vf_store(s + j, w);
            sum[n] = sum[n] + w;
        }
        for (int n = 1; n < ROW_VECTORS; n++)
            sum[0] = sum[0] + sum[n];
        sums[r - r0] = sum[0];
    }
    add_sums(k->sum + r0, sums);
}
_Static_assert(BLOCK_ROWS % VL == 0, "rows are transposed VL at a time");

/* Compute weigh_rows for all rows of a tile without intervals, panel by panel: for few keys, one loop over many rows is
 * faster than many loops over few columns. */
static void weigh_panels(block *k, const tile *t)
{
    const int64_t from = t->from[0], to = t->to[0], rows = k->rows; /* the same columns in all groups */
    vf sum[BLOCK_ROWS][ROW_VECTORS];
    real shift[BLOCK_ROWS];
    memset(sum, 0, (size_t)rpi_round_up(rows, VL) * sizeof *sum);
    for (int64_t r = 0; r < rows; r += VL) { /* score_shift of each row */
        const vf max = vf_load(k->running_max + r);
        vf_store(shift + r, vf_below(max, vf_set1(-REAL_MAX), vf_set1(0), max));
    }
    int64_t j = from;
    for (; j + NR <= to; j += NR)
        for (int64_t r = 0; r < rows; r++)
            weigh_panel(k->s + r * ROW_STEP + j, vf_set1(shift[r]), sum[r]);
    for (int n = 0; j < to; j += VL, n++) /* vectors of the last panel */
        for (int64_t r = 0; r < rows; r++) {
            real *s = k->s + r * ROW_STEP + j;
            const vf w = vf_exp(vf_load(s) - vf_set1(shift[r]));
            vf_store(s, w);
            sum[r][n] = sum[r][n] + w;
        }
    for (int64_t r0 = 0; r0 < rows; r0 += VL) {
        vf sums[VL];
        RPI_UNROLL
        for (int r = 0; r < VL; r++) {
            sums[r] = sum[r0 + r][0];
            RPI_UNROLL
            for (int n = 1; n < ROW_VECTORS; n++)
                sums[r] = sums[r] + sum[r0 + r][n];
        }
        add_sums(k->sum + r0, sums);
    }
}

#include "fma_unpacked.h"

/* Compute o[pad_v] = o * alpha + w v for one row and columns [from, to), which must be within one group of SUM_KEYS
 * columns. Column 0 belongs to row `first` of the packed values. */
static void add_row_values(const real *w, int64_t from, int64_t to, const real *v, int64_t first, int64_t pad_keys,
                           real *o, int64_t pad_v, const real *alpha)
{
    for (int64_t x = 0; x < pad_v; x += NR) {
        const int64_t width = rpi_min(NR, pad_v - x);
        const real *at = v + x * pad_keys + (first + from) * width;
        BY_WIDTH(single_tile, width, (w + from, 0, to - from, at, width, o + x, pad_v, alpha, NULL));
    }
}

/* Compute mean_tile for one row, with sums of several vectors side by side. `sums` is scratch. */
static void mean_row(const real *w, int64_t n, const real *v, int64_t v_step, int64_t width, real *sums, real *o,
                     real total)
{
    memset(sums, 0, reals(width, 1));
    for (int64_t x = 0, vectors; x < width; x += vectors * VL) {
        vectors = vectors_together((width - x) / VL);
        row_values(vectors, w, n, (const char *)(v + x), v_step * (int64_t)sizeof(real), sums + x);
    }
    for (int64_t x = 0; x < width; x += VL)
        vf_store(o + x, (vf_load(sums + x) + vf_set1(0)) / vf_set1(total));
}

/* Write the rows of `out` for a whole tile. The weights of the tile and their sums must be complete. */
static void whole_rows(const block *k, const tile *t, const real *values, int64_t pad)
{
    const rpi_view *out = &k->c->args->out;
    const int64_t pad_v = k->c->pad_v, keys = k->c->args->desc.len_k;
    real *o = (real *)out->data + rpi_index(out, k->b, k->h, k->row0, 0);
    for (int64_t g = 0; g < k->groups; g++, o += MR * out->stride[2]) {
        const int64_t from = t->from[g], n = rpi_min(t->to[g], keys) - from, there = rpi_min(MR, k->rows - g * MR);
        const real *w = k->s + g * MR * ROW_STEP + from;
        real total[MR];
        for (int r = 0; r < MR; r++) /* a row without a key has weights and a sum of 0 */
            total[r] = k->sum[g * MR + r] == 0 ? 1 : k->sum[g * MR + r];
        for (int64_t x = 0, width; x < pad_v; x += width) {
            width = rpi_min(there == 1 && k->value_step ? pad_v : NR, pad_v - x);
            const int64_t step = k->value_step ? k->value_step : width;
            const real *v = values + (k->value_step ? x : x * pad) + from * step;
            if (there == 1)
                mean_row(w, n, v, step, width, k->o, o + x, total[0]);
            else
                BY_WIDTH(mean_tile, width, (w, n, v, step, o + x, out->stride[2], total, there));
        }
    }
}

/* Compute o[rows][pad_v] = o * alpha + w v for the rows w [BLOCK_ROWS][ROW_STEP] of a tile, summed SUM_KEYS keys at a
 * time from zero. After each SUM_KEYS keys, o advances by `sum_step` elements; if that is 0, all sums are added to the
 * same o. alpha applies only to a row's first sum. Column 0 belongs to row `first` of the packed values. */
static void tile_values(const block *k, const tile *t, const real *w, const void *values, int64_t first, int64_t pad,
                        const real *alpha, real *o, int64_t sum_step)
{
    const int64_t pad_v = k->c->pad_v, keys = k->c->args->desc.len_k - t->tile0;
    /* these values stay in the L1 cache for all groups */
    for (int64_t col = 0; col < t->end; col += SUM_KEYS)
        for (int64_t g = 0; g < k->groups; g++) {
            const int64_t from = rpi_max(col, t->from[g]), to = rpi_min(col + SUM_KEYS, rpi_min(t->to[g], keys));
            if (from < to && k->rows - g * MR == 1)
                add_row_values(w + g * MR * ROW_STEP, from, to, values, first, pad,
                               o + col / SUM_KEYS * sum_step + g * MR * pad_v, pad_v,
                               col <= t->from[g] ? alpha + g * MR : ones);
            else if (from < to)
                add_values(w + g * MR * ROW_STEP, ROW_STEP, from, to, values, first, pad,
                           o + col / SUM_KEYS * sum_step + g * MR * pad_v, pad_v,
                           col <= t->from[g] ? alpha + g * MR : ones, g);
        }
}

/* Turn scores into weights, add the weights to k->sum, and compute o as tile_values. If values is NULL, do not compute
 * o. If k->whole is set, write rows of out instead of o. */
static void weigh_tile(block *k, const tile *t, const void *values, int64_t first, int64_t pad, const real *alpha,
                       real *o, int64_t sum_step, bool kept)
{
    (void)kept; /* k->s always keeps the weights */
    const bool panels = ROW_VECTORS == 2 && !k->c->plan->intervals && t->end <= SUM_KEYS && k->rows >= 2 * VL;
    if (panels)
        weigh_panels(k, t);
    for (int64_t r0 = 0; r0 < k->groups * MR && !panels; r0 += VL)
        weigh_rows(k, t, r0);
    for (int64_t r = 0; k->c->args->desc.dropout > 0 && r < k->rows; r++)
        apply_dropout(k, t, r, t->from[r / MR], t->to[r / MR], k->s + r * ROW_STEP);
    if (k->whole) {
        whole_rows(k, t, values, pad);
        return;
    }
    if (k->unpacked && values) {
        unpacked_values(k, t, k->c->args->desc.len_k - t->tile0, alpha, o, sum_step);
        return;
    }
    if (values)
        tile_values(k, t, k->s, values, first, pad, alpha, o, sum_step);
}
