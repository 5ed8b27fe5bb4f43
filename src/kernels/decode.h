/* kernels/decode.h -- decoding: few queries against many keys. Several threads share the tiles of a head. A row has the
 * same bits as if attend_rows (forward.h) computed it. Independent of the backend.
 * Parameters: MR, the largest number of rows; TILE_KEYS, SUM_KEYS.
 *
 *     scores   compute the scores of every tile, and the largest score of each row
 *     values   compute weights relative to the row's maximum up to this tile, their sum, and sums of SUM_KEYS weighted
 *              values
 *     merge    add the sums in the order of the tiles, and rescale them when the maximum rises, like tile_attend
 *
 * If there are enough kv heads for all threads, decode_heads runs all three steps for some of them, and stores no
 * intermediate results.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef RPI_ISA
#include "forward.h" /* lets an editor parse this file on its own */
#endif

/* The results of one tile and one query head that decode_merge reads, for rows r < MR. */
typedef struct decode_tile {
    int64_t from, to; /* columns [from, to) are computed; none if from == to */
    real tile_max[MR], alpha[MR], sum[MR];
} decode_tile;

typedef struct decode_scratch {
    block k;
    void *keys, *values; /* packed keys and values of one tile */
    uint8_t *large_k, *large_v;
} decode_scratch;

static void decode_layout(const rpi_call *c, decode_scratch *w, rpi_arena *a)
{
    memset(w, 0, sizeof *w);
    block_layout(c, &w->k, a);
    w->keys = rpi_arena_take(a, TILE_KEYS, key_bytes(c->plan), 1);
    w->values = rpi_arena_take(a, TILE_KEYS, value_bytes(c->plan), 1);
    w->large_k = rpi_arena_take(a, TILE_KEYS / NR, 1, 1);
    w->large_v = rpi_arena_take(a, TILE_KEYS, 1, 1);
}

static int64_t decode_size(const rpi_call *c)
{
    decode_scratch w;
    rpi_arena a = {0};
    decode_layout(c, &w, &a);
    return rpi_arena_size(&a);
}

/* Return the first key of tile n of the call's range. */
static int64_t decode_tile0(const rpi_call *c, int64_t n)
{
    return c->args->key_from + n * TILE_KEYS;
}

static decode_tile *decode_tile_at(const rpi_call *c, int64_t head, int64_t n)
{
    return (decode_tile *)c->decode->tiles + head * c->decode->n_tiles + n;
}

/* Return the head's rows of scores, [Lq][packed_k]. */
static real *decode_scores_at(const rpi_call *c, int64_t head)
{
    return (real *)c->decode->scores + head * c->args->desc.len_q * c->packed_k;
}

/* Return the head's partial sums of values, [n_tiles * TILE_KEYS / SUM_KEYS][MR][pad_v]: one sum for each SUM_KEYS
 * keys. */
static real *decode_sums_at(const rpi_call *c, int64_t head)
{
    return (real *)c->decode->sums + head * c->decode->n_tiles * (TILE_KEYS / SUM_KEYS) * MR * c->pad_v;
}

static void decode_head(decode_scratch *w, int64_t kv)
{
    w->k.kv = kv;
    w->k.b = (w->k.c->g0 + kv) / w->k.c->args->desc.kv_heads;
    memset(w->large_k, 0, TILE_KEYS / NR);
    memset(w->large_v, 0, TILE_KEYS);
}

static void decode_begin(const rpi_call *c, decode_scratch *w, int64_t kv, int32_t worker)
{
    block *k = &w->k;
    rpi_arena a = scratch_of(c, worker);
    decode_layout(c, w, &a);
    k->c = c;
    k->row0 = 0;
    k->rows = c->args->desc.len_q;
    k->groups = 1;
    decode_head(w, kv);
}

/* Open tile n for query head m of the kv head, and compute its scores. Return false if no row needs the tile. *packed
 * says whether w->keys already has the packed keys. */
static bool decode_open(decode_scratch *w, int64_t m, int64_t n, tile *t, bool *packed)
{
    block *k = &w->k;
    const rpi_call *c = k->c;
    const rp_desc *d = &c->args->desc;
    const int64_t per_kv = d->heads / d->kv_heads, g = (c->g0 + k->kv) % d->kv_heads, tile0 = decode_tile0(c, n);
    k->h = g * per_kv + m;
    find_intervals(k);
    const bool needed = !(c->skips && c->args->key_norms.data && is_far_unread(k, g, tile0, tile0 + TILE_KEYS)) &&
                        open_tile(k, t, tile0, TILE_KEYS, w->large_k,
                                  w->large_v); /* the second open_tile below uses the large_k that packing sets */
    if (c->args->pairs)
        count_pairs(k, needed ? t : NULL, tile0);
    if (!needed)
        return false;
    load_queries(k);
    k->unpacked = w->keys;
    if (!unpacked_pays(per_kv, k->rows) || k->large_q || *packed || !tile_scores(k, t, NULL)) {
        if (!*packed)
            pack_keys(k, k->b, g, tile0, rpi_round_up(rpi_min(TILE_KEYS, d->len_k - tile0), NR), w->keys, w->large_k);
        *packed = true;
        open_tile(k, t, tile0, TILE_KEYS, w->large_k, w->large_v);
        tile_scores(k, t, w->keys);
    }
    return true;
}

/* Prepare the values of tile n for weigh_tile: pack them into w->values, unless they are there already (*packed),
 * weigh_tile reads them unpacked, or the call has no out. */
static void decode_pack_values(decode_scratch *w, int64_t n, bool *packed)
{
    block *k = &w->k;
    const rpi_call *c = k->c;
    const rp_desc *d = &c->args->desc;
    const int64_t tile0 = decode_tile0(c, n), keys = rpi_min(TILE_KEYS, d->len_k - tile0);
    const bool unpacked = unpacked_pays(d->heads / d->kv_heads, k->rows);
    k->unpacked = unpacked ? w->values : NULL;
    if (unpacked || *packed || !makes_out(c))
        return;
    pack_values(k, k->b, (c->g0 + k->kv) % d->kv_heads, tile0, rpi_round_up(keys, NR), w->values, 0, TILE_KEYS,
                w->large_v);
    if (memchr(w->large_v, 1, (size_t)keys))
        atomic_store(&c->decode->non_finite, 1);
    *packed = true;
}

static void decode_scores(const rpi_call *c, int64_t kv, int64_t n, int32_t worker)
{
    const rp_desc *d = &c->args->desc;
    const unsigned before = rpi_float_begin(RPI_FLOAT_FLUSH);
    const int64_t per_kv = d->heads / d->kv_heads;
    decode_scratch w;
    block *k = &w.k;
    bool packed = false;
    amx_begin();
    decode_begin(c, &w, kv, worker);
    for (int64_t m = 0; m < per_kv; m++) {
        decode_tile *to = decode_tile_at(c, kv * per_kv + m, n);
        tile t;
        to->from = to->to = 0;
        if (!decode_open(&w, m, n, &t, &packed))
            continue;
        to->from = t.from[0];
        to->to = t.to[0];
        for (int64_t r = 0; r < k->rows; r++) {
            memcpy(decode_scores_at(c, kv * per_kv + m) + r * c->packed_k + n * TILE_KEYS + to->from,
                   k->s + r * ROW_STEP + to->from, reals(to->to - to->from, 1));
            to->tile_max[r] = vf_max_lane(vf_load(k->tile_max + r * VL));
        }
    }
    amx_end();
    rpi_float_end(before);
}

static void decode_values(const rpi_call *c, int64_t kv, int64_t n, int32_t worker)
{
    const rp_desc *d = &c->args->desc;
    const unsigned before = rpi_float_begin(RPI_FLOAT_FLUSH);
    const int64_t per_kv = d->heads / d->kv_heads, g = (c->g0 + kv) % d->kv_heads, tile0 = decode_tile0(c, n);
    decode_scratch w;
    block *k = &w.k;
    bool packed = false;
    amx_begin();
    decode_begin(c, &w, kv, worker);
    for (int64_t m = 0; m < per_kv; m++) {
        decode_tile *at = decode_tile_at(c, kv * per_kv + m, n);
        tile t = {.tile0 = tile0};
        k->h = g * per_kv + m;
        if (at->from == at->to)
            continue;
        if (c->starts)
            find_intervals(k);
        t.from[0] = at->from;
        t.to[0] = t.end = at->to;
        decode_pack_values(&w, n, &packed);
        for (int64_t r = 0; r < MR; r++) {
            real *s = k->s + r * ROW_STEP;
            k->sum[r] = 0;
            if (r >= k->rows) { /* padding row of the group */
                memset(s + at->from, 0, reals(at->to - at->from, 1));
                k->running_max[r] = -INFINITY;
                continue;
            }
            start_row(k, r);
            k->sum[r] = 0;
            for (int64_t before_it = 0; before_it < n; before_it++) {
                const decode_tile *other = decode_tile_at(c, kv * per_kv + m, before_it);
                if (other->from < other->to && other->tile_max[r] > k->running_max[r])
                    k->running_max[r] = other->tile_max[r];
            }
            memcpy(s + at->from, decode_scores_at(c, kv * per_kv + m) + r * c->packed_k + n * TILE_KEYS + at->from,
                   reals(at->to - at->from, 1));
            find_row_max(k, r, at->from, at->to);
        }
        real alpha[BLOCK_ROWS];
        for (int64_t r0 = 0; r0 < MR; r0 += VL)
            raise_running_max(k, r0, alpha);
        memcpy(at->alpha, alpha, sizeof at->alpha);
        real *sums = decode_sums_at(c, kv * per_kv + m) + n * (TILE_KEYS / SUM_KEYS) * MR * c->pad_v;
        memset(sums, 0, reals(TILE_KEYS / SUM_KEYS * MR, c->pad_v));
        weigh_tile(k, &t, makes_out(c) ? w.values : NULL, 0, TILE_KEYS, ones, sums, MR * c->pad_v, false);
        memcpy(at->sum, k->sum, reals(k->rows, 1));
    }
    amx_end();
    rpi_float_end(before);
}

static void decode_merge(const rpi_call *c, int64_t head, int32_t worker)
{
    const rp_desc *d = &c->args->desc;
    const unsigned before = rpi_float_begin(RPI_FLOAT_FLUSH);
    const int64_t per_kv = d->heads / d->kv_heads;
    decode_scratch w;
    block *k = &w.k;
    decode_begin(c, &w, head / per_kv, worker);
    k->h = (c->g0 + k->kv) % d->kv_heads * per_kv + head % per_kv;
    start_sums(k);
    if (c->starts)
        find_intervals(k);
    for (int64_t r = 0; r < k->rows; r++) {
        start_row(k, r);
        k->entropy[r] = k->weight_sum[r] = 0;
    }
    for (int64_t n = 0; n < c->decode->n_tiles; n++) {
        const decode_tile *at = decode_tile_at(c, head, n);
        for (int64_t r = 0; r < k->rows && at->from < at->to; r++) {
            k->running_max[r] = at->tile_max[r] > k->running_max[r] ? at->tile_max[r] : k->running_max[r];
            k->sum[r] = k->sum[r] * at->alpha[r] + at->sum[r];
            for (int64_t col = at->from; makes_out(c) && col < at->to; col = (col / SUM_KEYS + 1) * SUM_KEYS) {
                const real *sums =
                    decode_sums_at(c, head) + ((n * (TILE_KEYS / SUM_KEYS) + col / SUM_KEYS) * MR + r) * c->pad_v;
                const vf alpha = vf_set1(col == at->from ? at->alpha[r] : 1);
                for (int64_t x = 0; x < c->pad_v; x += VL)
                    vf_store(k->o + r * c->pad_v + x,
                             vf_fma(alpha, vf_load(k->o + r * c->pad_v + x), vf_load(sums + x)));
            }
        }
    }
    write_rows(k);
    rpi_float_end(before);
}

/* Decode kv heads [kv0, kv1) of the group, tile by tile. */
static void decode_heads(const rpi_call *c, int64_t kv0, int64_t kv1, int32_t worker)
{
    const rp_desc *d = &c->args->desc;
    const unsigned before = rpi_float_begin(RPI_FLOAT_FLUSH);
    decode_scratch w;
    block *k = &w.k;
    amx_begin();
    decode_begin(c, &w, kv0, worker);
    real *const scores = k->s;
    k->defer = true;
    for (int64_t kv = kv0; kv < kv1; kv++) {
        bool packed_keys = false, packed_values = false;
        decode_head(&w, kv);
        for (int64_t m = 0; m < d->heads / d->kv_heads; m++) {
            int64_t used = 0; /* number of tiles that are not skipped */
            k->h = (c->g0 + kv) % d->kv_heads * (d->heads / d->kv_heads) + m;
            start_sums(k);
            for (int64_t n = 0; n < c->decode->n_tiles; n++) {
                tile t;
                real alpha[BLOCK_ROWS];
                if (n > 0) {
                    decode_head(&w, kv);
                    packed_keys = packed_values = false;
                }
                k->s = scores + used % 2 * MR * ROW_STEP; /* the weights of the last used tile may still be needed */
                const bool needed = decode_open(&w, m, n, &t, &packed_keys);
                if (n == 0)
                    start_rows(k);
                if (!needed)
                    continue;
                used++;
                finish_values(k);
                decode_pack_values(&w, n, &packed_values);
                for (int64_t r = k->rows; r < MR && !is_single(k); r++) { /* padding rows of the group */
                    memset(k->s + r * ROW_STEP + t.from[0], 0, reals(t.to[0] - t.from[0], 1));
                    k->running_max[r] = -INFINITY;
                }
                for (int64_t r0 = 0; r0 < MR; r0 += VL)
                    raise_running_max(k, r0, alpha);
                weigh_tile(k, &t, makes_out(c) ? w.values : NULL, 0, TILE_KEYS, alpha, k->o, 0, false);
            }
            finish_values(k);
            write_rows(k);
        }
    }
    amx_end();
    rpi_float_end(before);
}
