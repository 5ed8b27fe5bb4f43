/* kernels/amx/amx_scores.h -- load a block's queries, and compute its scores on AMX tiles.
 * Parameters: VL, NR, MR, BLOCK_ROWS, TILE_KEYS, ROW_STEP.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef RPI_ISA
#include "amx_pack.h" /* lets an editor parse this file on its own */
#endif

/* Return false: weigh_tile adds to its o. */
static bool is_whole(const rpi_call *c)
{
    (void)c;
    return false;
}

/* Return NULL: packed values are bf16 components, which the caller's array does not have. */
static const void *values_in_place(const rpi_call *c, int64_t b, int64_t g)
{
    (void)c, (void)b, (void)g;
    return NULL;
}

/* Load the block's queries as the left operand. Also load them as rows if a RUN source uses them or a query is
 * non-finite or large. */
static void load_queries(block *k)
{
    const rpi_call *c = k->c;
    const rp_desc *d = &c->args->desc;
    const int64_t wide = rpi_round_up(d->dim_k, CHUNK), rows = rpi_round_up(k->groups * MR, CHUNK);
    const rp_term *rotate = c->plan->rotate >= 0 ? &c->plan->terms[c->plan->rotate] : NULL;
    const real *rope = rpi_rope_of(c, false, k->b, rpi_kv_head(d, k->h));
    const vf scale = vf_set1((real)d->scale);
    magnitude seen = {vf_set1(0)};
    bool groups = false;
    k->products.q_components = query_components(c->plan);
    for (int64_t r0 = 0; r0 < rows; r0 += TILE_SIDE) {
        real *to = k->products.q_rows + r0 * wide;
        packing s;
        rows_at(&s, &c->args->q, k->b, k->h, k->row0 + r0, TILE_SIDE, k->row0 + k->rows, d->dim_k, to);
        for (int64_t r = 0; r < TILE_SIDE; r++, to += wide)
            for (int64_t x = 0; x < wide; x += VL) {
                const vf y = vf_load(s.at[r] + x);
                __builtin_prefetch(s.ahead[r] + x * s.size, 0, 2);
                note_magnitude(&seen, y);
                vf_store(to + x, y * scale);
            }
    }
    for (int n = 0; n < c->n_sources; n++)
        groups |= c->source[n].kind == RPI_RUN;
    k->large_q = is_large(&seen, (real)d->scale);
    k->grouped = false;
    if (k->large_q || groups)
        load_groups(k);
    for (int64_t r = 0; k->large_q && r < k->rows; r++)
        if (k->large_row[r])
            memset(k->products.q_rows + r * wide, 0, reals(wide, 1));
    for (int64_t r = 0; rotate && r < k->rows; r++)
        rotate_row(rotate, rope + (k->row0 + r) * rpi_rotation_width(rotate), 1, k->products.q_rows + r * wide, 1);
    pack_rows(k->products.q_rows, wide, rows, wide, k->products.q_components, k->products.q_operand);
}

/* Find the range [*from, *to) of the tile's columns that any of rows [r0, r0 + n) computes. */
static void columns_of(const block *k, const tile *t, int64_t r0, int64_t n, int64_t *from, int64_t *to)
{
    *from = TILE_KEYS;
    *to = 0;
    for (int64_t g = r0 / MR; g < k->groups && g * MR < r0 + n; g++)
        if (t->from[g] < t->to[g]) {
            *from = rpi_min(*from, t->from[g]);
            *to = rpi_max(*to, t->to[g]);
        }
}

/* Return the biases of rows r0 … r0+15 with equal distances between rows, because an AMX tile can only load such rows.
 * If the distances differ, copy columns [from, to) to k->sum_in. */
static const real *evenly_spaced(block *k, const real *const *in, int64_t r0, int64_t from, int64_t to, int64_t *step)
{
    const int64_t last = k->groups * MR - 1;
    bool even = r0 + TILE_SIDE - 1 <= last;
    *step = even ? in[r0 + 1] - in[r0] : 0;
    for (int64_t r = r0 + 1; even && r < r0 + TILE_SIDE - 1; r++)
        even = in[r + 1] - in[r] == *step;
    if (even)
        return in[r0];
    *step = ROW_STEP;
    for (int64_t r = r0; r < r0 + TILE_SIDE; r++)
        memmove(k->sum_in + r * ROW_STEP + from, in[rpi_min(r, last)] + from, reals(to - from, 1));
    return k->sum_in + r0 * ROW_STEP;
}

/* Compute the scores of non-finite or large keys and queries, with register tiles in f32. */
static void large_scores(block *k, const tile *t, const real *const *in)
{
    const rpi_call *c = k->c;
    const rp_desc *d = &c->args->desc;
    const int64_t head = k->h / (d->heads / d->kv_heads), wide = rpi_round_up(d->dim_k, VL);
    const rp_term *rotate = c->plan->rotate >= 0 ? &c->plan->terms[c->plan->rotate] : NULL;
    if (!k->grouped)
        load_groups(k);
    for (int64_t col = 0; col < t->end; col += NR) {
        if (!k->large_q && !t->large_k[col / NR])
            continue;
        pack_panels(&c->args->k, k->b, head, t->tile0 + col, NR, d->len_k, d->dim_k, rotate,
                    rpi_rope_of(c, true, k->b, head), k->products.panel, NULL);
        bool large[NR]; /* true for keys that were packed as 0 */
        for (int64_t j = 0; j < NR; j++) {
            magnitude w = {vf_set1(0)};
            note_row(&w,
                     row_at(&c->args->k, k->b, head, t->tile0 + col + j, d->len_k, d->dim_k, k->products.rows_scratch),
                     rpi_round_up(d->dim_k, CHUNK));
            large[j] = !is_moderate(&w, (real)RPI_MODERATE);
        }
        for (int64_t g = 0; g < k->groups; g++) {
            real s[MR * NR];
            if (col < t->from[g] || col >= t->to[g])
                continue;
            score_tile(k->q + g * MR * wide, wide, k->products.panel, d->dim_k, in ? in + g * MR : NULL, col, s, NR,
                       NULL, k->q);
            for (int64_t r = 0; r < MR; r++)
                for (int64_t j = 0; j < NR; j++)
                    if (large[j] || (k->large_q && k->large_row[g * MR + r]))
                        k->s[(g * MR + r) * ROW_STEP + col + j] = s[r * NR + j];
        }
    }
}

/* Update the lane maxima of each row with the first two vectors of that row of s. */
static inline void raise_max(real *max, const real *s, int64_t rows)
{
    for (int64_t r = 0; r < rows; r++) {
        const real *x = s + r * ROW_STEP;
        vf_store(max + r * VL, vf_max(vf_max(vf_load(max + r * VL), vf_load(x)), vf_load(x + VL)));
    }
}

/* Compute s[BLOCK_ROWS][ROW_STEP] = in + left right^T for the columns of the tile. If max is not NULL, also store the
 * lane maxima of each row. */
static void amx_scores(block *k, const tile *t, operand left, operand right, int64_t chunks, const real *const *in,
                       real *s, real *max)
{
    const int64_t rows = rpi_round_up(k->groups * MR, TILE_SIDE);
    const uint32_t *const a = left.at, *const b = right.at;
    const real *start[BLOCK_ROWS / TILE_SIDE];
    int64_t step[BLOCK_ROWS / TILE_SIDE];
    for (int64_t r = 0; in && r < rows; r += TILE_SIDE) {
        int64_t from, to;
        columns_of(k, t, r, TILE_SIDE, &from, &to);
        step[r / TILE_SIDE] = ROW_STEP;
        start[r / TILE_SIDE] = from < to ? evenly_spaced(k, in, r, from, to, &step[r / TILE_SIDE]) : s + r * ROW_STEP;
    }
    for (int64_t r = 0; r < rows; r += 2 * TILE_SIDE) { /* the rows stay in the L1 cache for all columns */
        const int64_t mt = rpi_min(2, (rows - r) / TILE_SIDE);
        int64_t from, to;
        columns_of(k, t, r, mt * TILE_SIDE, &from, &to);
        left.at = a + r / TILE_SIDE * left.tile;
        for (int64_t x = from; x < to; x += 2 * TILE_SIDE) {
            const real *init[2] = {in ? start[r / TILE_SIDE] + x : NULL,
                                   in && mt > 1 ? start[r / TILE_SIDE + 1] + x : NULL};
            right.at = b + x / TILE_SIDE * right.tile;
            product(mt, 2, &left, &right, chunks, in ? init : NULL, step + r / TILE_SIDE, s + r * ROW_STEP + x,
                    ROW_STEP, NULL);
            if (max && x > from) /* the scores of the previous columns are complete */
                raise_max(max + r * VL, s + r * ROW_STEP + x - 2 * TILE_SIDE, mt * TILE_SIDE);
        }
        if (max && from < to)
            raise_max(max + r * VL, s + r * ROW_STEP + to - 2 * TILE_SIDE, mt * TILE_SIDE);
    }
}

/* See the contract in template.h. */
static void key_scores(block *k, const tile *t, const void *keys, const real *const *in, real *max)
{
    const int64_t chunks = rpi_round_up(k->c->plan->desc.dim_k, CHUNK) / CHUNK;
    const int components = key_components(k->c->plan);
    bool large = k->large_q;
    amx_scores(k, t,
               (operand){k->products.q_operand, chunks * k->products.q_components * FRAGMENT,
                         k->products.q_components * FRAGMENT, k->products.q_components},
               (operand){keys, chunks * components * FRAGMENT, components * FRAGMENT, components}, chunks, in, k->s,
               max);
    for (int64_t n = 0; n < t->end / NR; n++)
        large |= t->large_k[n];
    if (large)
        large_scores(k, t, in);
    for (int64_t r = 0; large && max && r < k->groups * MR; r++)
        find_row_max(k, r, t->from[r / MR], t->to[r / MR]);
}
