/* kernels/amx/amx_unpacked.h -- one or two queries against unpacked keys and values. Scores use AMX tiles. Weighted
 * values use vectors and get the same bits as on AMX tiles.
 * Parameters: VL, NR, TILE_KEYS.
 *
 * For each chunk and each pair of components, an AMX tile computes two sums from zero: one of the products of the first
 * elements of 16 pairs, one of the products of the second elements. It then adds both to the total. The vectors here
 * add in the same order, and the values need no packing.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef RPI_ISA
#include "amx_single.h" /* lets an editor parse this file on its own */
#endif

/* Return true if reading keys and values from the caller's arrays is faster than packing them: for at most two rows, if
 * no other query head uses the same keys. */
static bool unpacked_pays(int64_t per_kv, int64_t rows)
{
    return per_kv == 1 && rows <= 2;
}

/* Add A B, summed over chunks, to tiles 0 … 3. Rows of A are 64 keys, columns of B are queries. Components are
 * multiplied in the order that dot_chunks uses with the queries as the left operand. */
ALWAYS_INLINE void dot_key_chunks(amx_tiles *R, const operand *a, const operand *b, int64_t chunks, int a_components,
                                  int b_components)
{
    const int max = a_components > b_components ? a_components : b_components;
    const uint32_t *x = a->at, *y = b->at;
    (void)R;
    for (int64_t c = 0; c < chunks; c++, x += a->chunk, y += b->chunk) {
        RPI_UNROLL
        for (int j = b_components - 1; j >= 0; j--) {
            amx_load(R, 6, y + j * FRAGMENT, 64);
            RPI_UNROLL
            for (int i = a_components - 1; i >= 0; i--) {
                if (i + j >= max)
                    continue;
                amx_load(R, 4, x + i * FRAGMENT, 64);
                amx_dot(R, 0, 4, 6);
                amx_load(R, 5, x + a->tile + i * FRAGMENT, 64);
                amx_dot(R, 1, 5, 6);
                amx_load(R, 4, x + 2 * a->tile + i * FRAGMENT, 64);
                amx_dot(R, 2, 4, 6);
                amx_load(R, 5, x + 3 * a->tile + i * FRAGMENT, 64);
                amx_dot(R, 3, 5, 6);
            }
        }
    }
}

/* Compute s[64 keys][16 queries] += A B, summed over chunks. */
static void key_product(const operand *a, const operand *b, int64_t chunks, real *s)
{
    amx_tiles scratch, *R = &scratch;
    (void)R;
    amx_fence();
    amx_load(R, 0, s, 64);
    amx_load(R, 1, s + FRAGMENT, 64);
    amx_load(R, 2, s + 2 * FRAGMENT, 64);
    amx_load(R, 3, s + 3 * FRAGMENT, 64);
    BY_COMPONENTS(PA, a->components, BY_COMPONENTS(PB, b->components, dot_key_chunks(R, a, b, chunks, PA, PB)));
    amx_store(R, 0, s, 64);
    amx_store(R, 1, s + FRAGMENT, 64);
    amx_store(R, 2, s + 2 * FRAGMENT, 64);
    amx_store(R, 3, s + 3 * FRAGMENT, 64);
    amx_fence();
}

/* Pack the queries as a right operand. */
static void pack_right_queries(const block *k, int64_t chunks, const operand *right)
{
    packing rows = {.size = 0};
    for (int64_t r = 0; r < TILE_SIDE; r++) {
        rows.at[r] = k->products.q_rows + r * chunks * CHUNK;
        rows.ahead[r] = (const char *)rows.at[r];
    }
    for (int64_t x = 0; x < chunks; x++)
        pack_transposed(&rows, x * CHUNK, k->products.q_components, (uint32_t *)right->at + x * right->chunk);
}

/* Compute k->s = in + q k^T for one group of rows and unpacked keys; in NULL: 0. Keys are the left operand, because
 * fragments of a left operand need no transposition. A single query uses vectors where single_panel can. Return false
 * if a key is non-finite or large; k->s is then undefined. */
static bool unpacked_scores(block *k, const tile *t, const real *const *in)
{
    const rpi_call *c = k->c;
    const rp_desc *d = &c->args->desc;
    const rp_term *rotate = c->plan->rotate >= 0 ? &c->plan->terms[c->plan->rotate] : NULL;
    const real *rope = rpi_rope_of(c, true, k->b, rpi_kv_head(d, k->h));
    const int64_t head = k->h / (d->heads / d->kv_heads), wide = rpi_round_up(d->dim_k, CHUNK), chunks = wide / CHUNK;
    const int components = key_components(c->plan);
    const operand left = {k->unpacked, chunks * components * FRAGMENT, components * FRAGMENT, components};
    const operand right = {k->products.q_operand + 2 * chunks * k->products.q_components * FRAGMENT, 0,
                           k->products.q_components * FRAGMENT, k->products.q_components};
    const bool single = k->rows == 1 && !rotate && bf16_rows(&c->args->k, d->dim_k, CHUNK);
    bool split = false, packed = false; /* k->unpacked has the components of the query; `right` is packed */
    real s[NR * TILE_SIDE] = {0};
    int32_t lane[VL];
    packing rows = {.size = 0};
    for (int64_t r = 0; r < TILE_SIDE; r++)
        lane[r] = (int32_t)(r * TILE_SIDE);
    for (int64_t col = t->from[0]; col < t->to[0]; col += NR) {
        rows.seen = (magnitude){vf_set1(0)};
        if (single && !split)
            split_query(k, wide, k->unpacked);
        split = single &&
                single_panel(k, head, t->tile0 + col, k->unpacked, in ? in[0] + col : NULL, k->s + col, &rows.seen);
        if (split && !is_moderate(&rows.seen, (real)RPI_MODERATE))
            return false;
        if (split)
            continue;
        if (!packed)
            pack_right_queries(k, chunks, &right);
        packed = true;
        for (int64_t r = 0; r < k->rows; r++)
            for (int64_t j = 0; j < NR; j++)
                s[j * TILE_SIDE + r] = in ? in[r][col + j] : 0;
        for (int64_t j = 0; j < NR; j += CHUNK) {
            const int64_t at = t->tile0 + col + j;
            rows_at(&rows, &c->args->k, k->b, head, at, CHUNK, d->len_k, d->dim_k, k->products.rows_scratch);
            magnitude seen = rows.seen; /* magnitude of the keys before rotation */
            for (int64_t r = 0; rotate && r < CHUNK; r++)
                note_row(&seen, rows.at[r], wide);
            if (rotate)
                rotated_copies(&rows, CHUNK, wide, rotate, rope, at, d->len_k, k->products.rows_scratch);
            pack_along(&rows, chunks, components, (uint32_t *)left.at + j / TILE_SIDE * left.tile);
            if (rotate)
                rows.seen = seen;
        }
        if (!is_moderate(&rows.seen, (real)RPI_MODERATE))
            return false;
        key_product(&left, &right, chunks, s);
        for (int64_t r = 0; r < k->rows; r++)
            for (int64_t j = 0; j < NR; j += VL)
                vf_store(k->s + r * ROW_STEP + col + j, vf_gather(s + j * TILE_SIDE + r, lane));
    }
    return true;
}

/* Return sum + left times 32 rows, for channels x … x+15. `left` is a chunk of 32 elements, and its components are
 * `step` elements apart. */
ALWAYS_INLINE vf unpacked_chunk(const real *left, int64_t step, const packing *s, int64_t x, int left_components,
                                int components, vf sum, magnitude *seen)
{
    const int max = left_components > components ? left_components : components;
    vf first[6], second[6];
    RPI_UNROLL
    for (int n = 0; n < 6; n++)
        first[n] = second[n] = vf_set1(0);
    for (int p = 0; p < TILE_SIDE; p++) {
        const vf a = vf_load(s->at[p] + x), b = vf_load(s->at[p + TILE_SIDE] + x);
        vf one[3], two[3];
        int n = 0;
        __builtin_prefetch(s->ahead[p] + x * s->size, 0, 2);
        __builtin_prefetch(s->ahead[p + TILE_SIDE] + x * s->size, 0, 2);
        note_magnitude(seen, a);
        note_magnitude(seen, b);
        bf16_vector(a, components, one);
        bf16_vector(b, components, two);
        RPI_UNROLL
        for (int i = left_components - 1; i >= 0; i--) {
            RPI_UNROLL
            for (int j = components - 1; j >= 0; j--) {
                if (i + j >= max)
                    continue;
                first[n] = vf_fma(vf_set1(left[i * step + p]), one[j], first[n]);
                second[n] = vf_fma(vf_set1(left[i * step + p + TILE_SIDE]), two[j], second[n]);
                n++;
            }
        }
    }
    int n = 0;
    RPI_UNROLL
    for (int i = left_components - 1; i >= 0; i--) {
        RPI_UNROLL
        for (int j = components - 1; j >= 0; j--)
            if (i + j < max) {
                sum = sum + (first[n] + second[n]);
                n++;
            }
    }
    return sum;
}

/* Add the products of a chunk to n vectors of sums. */
ALWAYS_INLINE void unpacked_chunks(const real *left, int64_t step, int left_components, packing *s, int64_t n,
                                   int components, real *sums)
{
    magnitude seen = s->seen;
    for (int64_t x = 0; x < n; x++)
        vf_store(sums + x * VL,
                 unpacked_chunk(left, step, s, x * VL, left_components, components, vf_load(sums + x * VL), &seen));
    s->seen = seen;
}

static void unpacked_products(const real *left, int64_t step, int left_components, packing *s, int64_t n,
                              int components, real *sums)
{
    BY_COMPONENTS(PA, left_components, BY_COMPONENTS(PB, components, unpacked_chunks(left, step, PA, s, n, PB, sums)));
}

/* Compute the weights of row r, add them to its sum, and store their components in left[component][TILE_KEYS]. */
static void unpacked_weights(block *k, const tile *t, int64_t r, int components, bool kept, real *left)
{
    const bool dropout = k->c->args->desc.dropout > 0;
    const vf base = score_shift(k, r);
    real *s = k->s + r * ROW_STEP;
    vf sum = vf_set1(0);
    for (int64_t x = t->from[0]; x < t->to[0]; x += CHUNK) {
        vf w[2] = {vf_exp(vf_load(s + x) - base), vf_exp(vf_load(s + x + TILE_SIDE) - base)};
        sum = sum + (w[0] + w[1]);
        if (kept) {
            vf_store(s + x, w[0]);
            vf_store(s + x + TILE_SIDE, w[1]);
        }
        if (dropout) {
            apply_dropout(k, t, r, x, x + CHUNK, s);
            w[0] = vf_load(s + x);
            w[1] = vf_load(s + x + TILE_SIDE);
        }
        for (int m = 0; m < 2; m++) {
            vf component[3];
            BY_COMPONENTS(COMPONENTS, components, bf16_vector_truncated(w[m], COMPONENTS, component));
            for (int n = 0; n < components; n++)
                vf_store(left + n * TILE_KEYS + x + m * TILE_SIDE, component[n]);
        }
    }
    k->sum[r] += vf_sum(sum);
}

/* For one group of rows, turn k->s into weights (stored in k->s if `kept`), add their sums to k->sum, and compute
 * o = o * alpha + w v from unpacked values; without `values`, do not compute o. If a value is not finite or exceeds
 * MAX_VALUE, set decode->non_finite; the call is then repeated by the ordinary forward pass. */
static void unpacked_weigh(block *k, const tile *t, bool values, const real *alpha, real *o, bool kept)
{
    const rpi_call *c = k->c;
    const rp_desc *d = &c->args->desc;
    const int64_t head = k->h / (d->heads / d->kv_heads), columns = c->pad_v / TILE_SIDE;
    const int components = weight_components(c->plan), v_components = value_components(c->plan);
    real *left = k->unpacked;
    packing s = {.seen = {vf_set1(0)}};
    for (int64_t r = 0; r < k->rows; r++)
        unpacked_weights(k, t, r, components, kept, left + r * components * TILE_KEYS);
    memset(k->products.values, 0, reals(k->rows, c->pad_v));
    for (int64_t col = t->from[0]; values && col < t->to[0]; col += CHUNK) {
        if (single_values(k, head, t->tile0 + col, left + col, TILE_KEYS, k->products.values, &s.seen))
            continue;
        rows_at(&s, &c->args->v, k->b, head, t->tile0 + col, CHUNK, d->len_k, d->dim_v, k->products.rows_scratch);
        for (int64_t r = 0; r < k->rows; r++)
            unpacked_products(left + r * components * TILE_KEYS + col, TILE_KEYS, components, &s, columns, v_components,
                              k->products.values + r * c->pad_v);
    }
    if (!is_moderate(&s.seen, (real)MAX_VALUE))
        atomic_store(&c->decode->non_finite, 1);
    for (int64_t r = 0; values && r < k->rows; r++)
        for (int64_t x = 0; x < c->pad_v; x += VL)
            vf_store(o + r * c->pad_v + x, vf_fma(vf_set1(alpha[r]), vf_load(o + r * c->pad_v + x),
                                                  vf_load(k->products.values + r * c->pad_v + x)));
}

/* weigh_tile leaves no values for later. */
static void finish_values(block *k)
{
    (void)k;
}
