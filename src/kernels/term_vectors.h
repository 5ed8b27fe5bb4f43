/* kernels/term_vectors.h -- products of a term's vectors with the block's queries (RUN) or the tile's keys (KEYS); the
 * index of each pair's entry or vector. Names no term.
 * Parameters: MR, NR, TILE_KEYS, WINDOW_VECTORS.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef RPI_ISA
#include "key_tile.h" /* lets an editor parse this file on its own */
#endif

/* Return the index of the vector for row r and the tile's first key, before clamping. */
static inline int64_t vector_of(const block *k, const rpi_vectors *v, const tile *t, int64_t r)
{
    return t->tile0 - (v->product->without_q_offset ? row_of(k, r) : k->position[r]) - v->first;
}

/* Ensure that the window of source n has the products of the block's queries with vectors [low, high). Without an
 * index, pad each row of products by TILE_KEYS on both sides with its first and last product (or zeros). A row of a
 * tile can then read consecutive products even where its offsets are clamped. */
static void ensure_products(block *k, int32_t n, int64_t low, int64_t high)
{
    window *w = &k->vec[n];
    const rpi_run *run = &k->c->source[n].run;
    const int64_t R = run->vectors.count, D = run->vectors.width, pad = run->gather ? 0 : TILE_KEYS,
                  wide = rpi_round_up(D, VL);
    const real *packed = (const real *)run->panels + k->h * run->panels_step;
    if (low >= w->low && high <= w->high)
        return;
    w->low = low / NR * NR;
    w->high = rpi_round_up(high, NR);
    for (int64_t v = w->low; v < w->high; v += NR)
        for (int64_t g = 0; g < k->groups; g++)
            score_tile(w->queries + g * MR * wide, wide, packed + v * D, D, NULL, 0,
                       w->at + g * MR * w->step + pad + v - (run->gather ? 0 : w->low), w->step, NULL, packed);
    for (int64_t r = 0; r < k->groups * MR && pad; r++) {
        real *row = w->at + r * w->step + pad;
        if (w->low == 0)
            for (int64_t v = 1; v <= TILE_KEYS; v++)
                row[-v] = run->vectors.product->zero_outside ? 0 : row[0];
        if (w->high >= R)
            for (int64_t v = R - w->low; v < R - w->low + TILE_KEYS; v++)
                row[v] = run->vectors.product->zero_outside ? 0 : row[R - 1 - w->low];
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
    int64_t j = 0;
    if (s->k_int) {
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
        for (j = 0; s->has_masked && j < real_keys; j++)
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
    if (RPI_F64 || !s->k_int || s->has_masked)
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

/* Compute the product of each pair's vector with the pair's unrotated key. Each row of a register tile starts one
 * vector earlier than the row before it. */
static void key_products(block *k, const rpi_keys *s, const tile *t, const real **rows, real *scratch)
{
    const rpi_call *c = k->c;
    const rp_desc *d = &c->args->desc;
    const rpi_vectors *v = &s->vectors;
    const int64_t D = v->width, g = k->h / (d->heads / d->kv_heads), step = s->step;
    const vf factor = vf_set1((real)v->factor);
    const real *vectors = (const real *)s->channels + (s->per_head ? k->h : 0) * D * step;
    const real *keys = k->tile_keys;
    if (!keys || !plain_panels(c->plan)) {
        pack_panels(&c->args->k, k->b, g, t->tile0, t->end, d->len_k, D, NULL, NULL, k->keys_scratch, NULL);
        keys = k->keys_scratch;
    }
    for (int64_t group = 0; group < k->groups; group++) {
        const real *from[MR];
        for (int r = 0; r < MR; r++) {
            rows[group * MR + r] = scratch + (group * MR + r) * ROW_STEP;
            from[r] = vectors + TILE_KEYS + rpi_clamp(vector_of(k, v, t, group * MR + r), -TILE_KEYS, v->count - 1);
        }
        for (int64_t j = t->from[group]; j < t->to[group]; j += VL) {
            const real *key = keys + j / NR * NR * D + j % NR;
            vf sum[MR];
            RPI_UNROLL
            for (int r = 0; r < MR; r++)
                sum[r] = vf_set1(0);
            for (int64_t x = 0; x < D; x++) {
                const vf y = vf_load(key + x * NR);
                RPI_UNROLL
                for (int r = 0; r < MR; r++)
                    sum[r] = vf_fma(y, vf_load(from[r] + x * step + j), sum[r]);
            }
            RPI_UNROLL
            for (int r = 0; r < MR; r++)
                vf_store(scratch + (group * MR + r) * ROW_STEP + j, sum[r] * factor);
        }
    }
}
