/* kernels/term_vectors.h -- products of a term's vectors with the block's queries (RUN) or the tile's keys (KEYS); the
 * index of each pair's entry or vector. Names no term.
 * Parameters: VL, MR, NR, BLOCK_ROWS, TILE_KEYS, ROW_STEP.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef RPI_ISA
#include "key_tile.h" /* lets an editor parse this file on its own */
#endif

/* Return the index of the vector for row r and the tile's first key, before clamping. */
static inline int64_t vector_of(const block *k, const rpi_vectors *v, const tile *t, int64_t r)
{
    return t->tile0 - (v->product->without_q_offset ? row_of(k, r) : k->position[r]) - v->first;
}

/* Ensure that the window of source n, which has an index, has the products of the block's queries with vectors
 * [low, high). */
static void ensure_products(block *k, int32_t n, int64_t low, int64_t high)
{
    window *w = &k->vec[n];
    const rpi_run *run = &k->c->source[n].run;
    const int64_t D = run->vectors.width, wide = rpi_round_up(D, VL);
    const real *packed = (const real *)run->panels + k->h * run->panels_step;
    if (low >= w->low && high <= w->high)
        return;
    w->low = low / NR * NR;
    w->high = rpi_round_up(high, NR);
    for (int64_t v = w->low; v < w->high; v += NR)
        for (int64_t g = 0; g < k->groups; g++)
            score_tile(w->queries + g * MR * wide, wide, packed + v * D, D, NULL, 0, w->at + g * MR * w->step + v,
                       w->step, NULL, packed);
}

/* Ensure that the window of source n has the products of each group g with vectors [low[g], high[g]). low may be before
 * vector 0 and high after the last one, by up to TILE_KEYS: these products are the first and the last one (or zeros).
 * So a row of a tile reads consecutive products even where its offsets are clamped. */
static void group_products(block *k, int32_t n, const int64_t *low, const int64_t *high)
{
    window *w = &k->vec[n];
    const rpi_run *run = &k->c->source[n].run;
    const rpi_vectors *v = &run->vectors;
    const int64_t R = v->count, D = v->width, wide = rpi_round_up(D, VL), step = w->step;
    const bool zero = v->product->zero_outside;
    const real *panels = (const real *)run->panels + k->h * run->panels_step;
    int64_t first[BLOCK_ROWS / MR], past[BLOCK_ROWS / MR]; /* the packed vectors of a group, multiples of VL */
    int64_t from = v->packed, to = 0;                      /* those of all groups */
    /* where a row has the products with its packed vectors: as far to the right as possible, so that they can be
     * distributed to the vectors from left to right, in place */
    real *products[BLOCK_ROWS / MR];
    for (int64_t g = 0; g < k->groups; g++) {
        first[g] = past[g] = 0;
        if (low[g] >= w->from[g] && high[g] <= w->to[g])
            continue;
        w->from[g] = (low[g] + TILE_KEYS) / VL * VL - TILE_KEYS;
        w->to[g] = rpi_round_up(high[g] + TILE_KEYS, VL) - TILE_KEYS;
        const int64_t end = rpi_min(w->to[g], rpi_round_up(R, VL));
        first[g] = v->place[rpi_max(w->from[g], 0)] / VL * VL;
        past[g] = rpi_round_up(v->place[end - 1] + 1, VL);
        products[g] = w->at + g * MR * step + end - w->from[g] + (v->packed < R ? VL : 0) - (past[g] - first[g]);
        from = rpi_min(from, first[g]);
        to = rpi_max(to, past[g]);
    }
    for (int64_t p = from / NR * NR; p < to; p += NR) /* the panel stays in the L1 cache for all groups */
        for (int64_t g = 0; g < k->groups; g++) {
            const int64_t x0 = rpi_max(p, first[g]), x1 = rpi_min(p + NR, past[g]);
            if (x0 < x1)
                score_columns(w->queries + g * MR * wide, wide, panels + p * D + x0 - p, D, NULL, 0,
                              products[g] + x0 - first[g], step, NULL, panels + (p + NR) * D + g * (NR * D / 16),
                              x1 - x0);
        }
    for (int64_t g = 0; g < k->groups; g++) {
        if (first[g] == past[g])
            continue;
        real *row = w->at + g * MR * step - w->from[g];
        const int64_t end = rpi_min(w->to[g], rpi_round_up(R, VL));
        for (int64_t e = rpi_max(w->from[g], 0); e < end && v->packed < R; e += VL) {
            const int32_t *place = v->place + e;
            int32_t near[VL];
            for (int x = 0; x < VL; x++)
                near[x] = place[x] - place[0];
            for (int64_t r = 0; r < MR; r++)
                vf_store(row + r * step + e, vf_lookup(products[g] + r * step + place[0] - first[g], near));
        }
        for (int64_t r = 0; r < MR; r++, row += step) {
            const real before = zero || w->from[g] >= 0 ? 0 : row[0], after = zero || w->to[g] <= R ? 0 : row[R - 1];
            for (int64_t e = w->from[g]; e < 0; e++)
                row[e] = before;
            for (int64_t e = R; e < w->to[g]; e++)
                row[e] = after;
        }
    }
}

/* Return the offset (key - query) of the first column of the tile for row r. */
static inline int64_t delta_of(const block *k, const tile *t, int64_t r)
{
    return t->tile0 - k->position[r];
}

/* Set k->index[j] to the entry or vector of row r and key j of the tile, computed from q_at and k_at. It is -1 if the
 * pair has none (a class token's bias then comes from the definition). */
static void find_index(block *k, const rpi_indices *s, const tile *t, int64_t r, int64_t real_keys)
{
    const int64_t keys = k->b * s->k_step + t->tile0, query = k->b * s->q_step + row_of(k, r);
    const double *key = s->k_at + keys, q = s->q_at[query];
    const int64_t entry = rpi_index_entry(s, k->b);
    int64_t j = 0;
    if (s->integral[entry]) {
        typedef int32_t sixteen __attribute__((vector_size(64)));
        typedef int32_t loose __attribute__((vector_size(64), aligned(4), may_alias));
        const int32_t *key_int = s->k_int + keys, q_int = s->q_int[query], max = (int32_t)(s->count - 1);
        for (; j + 16 <= t->end; j += 16) {
            sixteen e = *(const loose *)(key_int + j) - q_int;
            const sixteen above = e > max;
            e = (above & max) | (~above & e);
            *(loose *)(k->index + j) = e & ~(e < 0);
        }
        for (; j < t->end; j++)
            k->index[j] = (int32_t)rpi_clamp((int64_t)key_int[j] - q_int, 0, max);
        for (j = 0; s->has_masked[entry] && j < real_keys; j++)
            if (isnan(key[j] - q))
                k->index[j] = -1;
    } else {
        const double low = (double)s->first, high = (double)(s->first + s->count - 1);
        for (; j < t->end; j++) {
            const double x = key[j] - q;
            k->index[j] = isnan(x) ? -1 : (int32_t)((int64_t)(x < low ? low : x > high ? high : x) - s->first);
        }
    }
    for (j = real_keys; j < t->end; j++) /* padding keys get the index of the last key, or 0 if it has none */
        k->index[j] = (int32_t)rpi_max(k->index[real_keys - 1], 0);
}

/* The minimum, maximum and step of k_int in each chunk of INDEX_KEYS keys of a tile. They serve all queries, because
 * the index of a pair is k_int - q_int. */
enum { INDEX_KEYS = 16 };
typedef struct key_chunks {
    int32_t low[TILE_KEYS / INDEX_KEYS], high[TILE_KEYS / INDEX_KEYS];
    int step[TILE_KEYS / INDEX_KEYS]; /* difference of consecutive keys if it is 1 or -1 throughout, else 0 */
} key_chunks;

/* Compute the chunks of a tile. Return false if a position is NaN or not an integer. Always return false in f64, so
 * that the compiler drops the code that uses chunks. */
static bool find_chunks(const block *k, const rpi_indices *s, const tile *t, key_chunks *to)
{
    const int64_t keys = rpi_min(t->end, k->c->args->desc.len_k - t->tile0);
    if (RPI_F64 || !s->integral[rpi_index_entry(s, k->b)] || s->has_masked[rpi_index_entry(s, k->b)])
        return false;
    const int32_t *key = s->k_int + k->b * s->k_step + t->tile0;
    for (int64_t j = 0; j < keys; j++) {
        const int64_t c = j / INDEX_KEYS;
        if (j % INDEX_KEYS == 0) {
            to->low[c] = to->high[c] = key[j];
            to->step[c] = keys - j < 2 ? 0 : key[j + 1] == key[j] + 1 ? 1 : key[j + 1] == key[j] - 1 ? -1 : 0;
        } else {
            to->low[c] = key[j] < to->low[c] ? key[j] : to->low[c];
            to->high[c] = key[j] > to->high[c] ? key[j] : to->high[c];
            to->step[c] = key[j] - key[j - 1] == to->step[c] ? to->step[c] : 0;
        }
    }
    return true;
}

/* Find the range [*low, *high) of entries that rows [r0, r1) of the block use in the tile. If chunks is NULL, return
 * all entries. */
static void find_reach(const block *k, const rpi_indices *s, const key_chunks *chunks, const tile *t, int64_t r0,
                       int64_t r1, int64_t *low, int64_t *high)
{
    const int64_t keys = rpi_min(t->end, k->c->args->desc.len_k - t->tile0);
    int32_t key_low = INT32_MAX, key_high = INT32_MIN, q_low = INT32_MAX, q_high = INT32_MIN;
    *low = 0;
    *high = s->count;
    if (!chunks)
        return;
    for (int64_t c = 0; c * INDEX_KEYS < keys; c++) {
        key_low = chunks->low[c] < key_low ? chunks->low[c] : key_low;
        key_high = chunks->high[c] > key_high ? chunks->high[c] : key_high;
    }
    for (int64_t r = r0; r < r1; r++) {
        const int32_t q = s->q_int[k->b * s->q_step + row_of(k, r)];
        q_low = q < q_low ? q : q_low;
        q_high = q > q_high ? q : q_high;
    }
    *low = rpi_clamp((int64_t)key_low - q_high, 0, s->count - 1);
    *high = rpi_clamp((int64_t)key_high - q_low, 0, s->count - 1) + 1;
}

/* Ensure that the window of source n has the products that this tile uses by index. If their range is unknown, and in
 * the forward pass, where a block visits many tiles, compute the products with all vectors. */
static void ensure_gathered(block *k, int32_t n, const tile *t)
{
    const rpi_run *run = &k->c->source[n].run;
    key_chunks chunks;
    int64_t low = 0, high = run->vectors.count;
    if (k->c->backward && find_chunks(k, &run->index, t, &chunks))
        find_reach(k, &run->index, &chunks, t, 0, k->rows, &low, &high);
    ensure_products(k, n, low, high);
}

/* Look up the entries of row r, add `add` unless it is NULL, and store the sums in `to`. No index may need clamping. */
static void gather_unclamped(const block *k, const rpi_indices *s, const tile *t, int64_t r, const real *entry,
                             const real *add, real *to)
{
    const int32_t *key = s->k_int + k->b * s->k_step + t->tile0, q = s->q_int[k->b * s->q_step + row_of(k, r)];
    const real *from = (const real *)((uintptr_t)entry - (uintptr_t)((int64_t)q * (int64_t)sizeof(real)));
    if (add)
        for (int64_t j = 0; j < t->end; j += VL)
            vf_store(to + j, vf_load(add + j) + vf_gather(from, key + j));
    else
        for (int64_t j = 0; j < t->end; j += VL)
            vf_store(to + j, vf_gather(from, key + j));
}

/* Return a pair for the query of row r, to pass to the definition of the source's term. The caller sets its key. */
static rpi_pair pair_of_row(const block *k, const rpi_source *s, int64_t r)
{
    return rpi_pair_of(k->c->args, s->term, k->b, k->h, row_of(k, r));
}

/* Lanes of x whose number has the bit `bit` come from b, the others from a. */
static inline vf choose_lanes(int bit, vf a, vf b)
{
    vi lane;
    RPI_UNROLL
    for (int c = 0; c < VL; c++)
        lane[c] = c;
    const vi from_b = (vi)((lane & bit) != 0);
    return (vf)((from_b & (vi)b) | (~from_b & (vi)a));
}

/* Write the products of VL keys with the vectors of n rows, times `factor`, row by row. The product of key c and row r
 * is lane c of row place[VL - 1 + r - c] - first of `products`: each row starts one vector earlier than the row before
 * it. Step by step, lanes whose number has bit 1, 2, 4, … come from 1, 2, 4, … vectors before. */
static void skew_products(const real *products, const int32_t *place, int32_t first, int64_t n, vf factor, real *to)
{
    enum { STEP = VL / 2 };
    vf before[VL];
    RPI_UNROLL
    for (int c = 0; c < VL; c++)
        before[c] = vf_set1(0);
    for (int64_t r0 = 1 - VL; r0 < n; r0 += STEP) {
        RPI_UNROLL
        for (int y = 0; y < STEP; y++) {
            const int64_t r = r0 + y;
            vf x = vf_load(products + (place[VL - 1 + r] - first) * NR);
            RPI_UNROLL
            for (int bit = 1; bit < VL; bit *= 2) {
                const vf earlier = before[bit + y % bit];
                before[bit + y % bit] = x;
                x = choose_lanes(bit, x, earlier);
            }
            if (r >= 0 && r < n)
                vf_store(to + r * ROW_STEP, x * factor);
        }
    }
}

/* Compute the products of a panel of keys with the vectors of n rows, and write them row by row. Only products that
 * some row uses are computed, except at the edges of register tiles. The vector of row r and column c of the panel is
 * place[columns - 1 + r - c]. */
static void panel_key_products(block *k, const rpi_keys *s, const int32_t *place, const real *panel, int64_t columns,
                               int64_t n, real *to)
{
    const int64_t D = s->vectors.width, wide = rpi_round_up(D, VL), vectors = columns / VL;
    const real *rows = (const real *)s->rows + k->h * s->rows_step;
    real *products = k->key_products + VL * NR; /* skew_products reads up to VL rows before the first one */
    const int32_t first = place[columns + n - 2];
    int32_t low[ROW_VECTORS] = {0}, high[ROW_VECTORS] = {0}; /* vectors [low, high) of VL columns */
    for (int64_t c = 0; c < vectors; c++) {
        low[c] = place[columns + n - 2 - c * VL];
        high[c] = place[columns - (c + 1) * VL] + 1;
    }
    for (int64_t e = first, c0 = 0, c1 = 1; e < high[vectors - 1]; e += MR) { /* vectors of columns c0 … c1-1 */
        while (high[c0] <= e)
            c0++;
        while (c1 < vectors && low[c1] < e + MR)
            c1++;
        score_columns(rows + e * wide, wide, panel + c0 * VL, D, NULL, 0, products + (e - first) * NR + c0 * VL, NR,
                      NULL, panel, (c1 - c0) * VL);
    }
    for (int64_t c = 0; c < vectors; c++)
        skew_products(products + c * VL, place + (vectors - 1 - c) * VL, first, n, vf_set1((real)s->vectors.factor),
                      to + c * VL);
}

/* Compute the product of each pair's vector with the pair's unrotated key. */
static void key_products(block *k, const rpi_keys *s, const tile *t, const real **rows, real *scratch)
{
    const rpi_call *c = k->c;
    const rp_desc *d = &c->args->desc;
    const int64_t D = s->vectors.width, g = k->h / (d->heads / d->kv_heads);
    const real *keys = k->tile_keys;
    if (!keys || !plain_panels(c->plan)) {
        pack_panels(&c->args->k, k->b, g, t->tile0, t->end, d->len_k, D, NULL, NULL, k->keys_scratch, NULL);
        keys = k->keys_scratch;
    }
    /* the packed vectors by offset, from the first row and the last column to the last row and the first column */
    int32_t *place = k->key_places;
    const int64_t highest = vector_of(k, &s->vectors, t, 0) + t->end - 1;
    for (int64_t x = 0; x < k->groups * MR + t->end + VL; x++)
        place[x] = s->vectors.place[rpi_clamp(highest - x, 0, s->vectors.count - 1)];
    for (int64_t r = 0; r < k->groups * MR; r++)
        rows[r] = scratch + r * ROW_STEP;
    for (int64_t col = 0; col < t->end; col += NR) {
        const int64_t columns = rpi_min(NR, t->end - col);
        int64_t first = 0, past = k->groups; /* groups that use the panel */
        while (first < past && !(col >= t->from[first] && col < t->to[first]))
            first++;
        while (first < past && !(col >= t->from[past - 1] && col < t->to[past - 1]))
            past--;
        if (first < past)
            panel_key_products(k, s, place + t->end - col - columns + first * MR, keys + col * D, columns,
                               (past - first) * MR, scratch + first * MR * ROW_STEP + col);
    }
}
