/* kernels/tile_biases.h -- the biases of a tile: for each row, a pointer to its biases. Names no scheme: the kind of a
 * source decides how its biases are computed.
 * Parameters: BLOCK_ROWS, ROW_STEP, VL, COLUMN_STEP, TILE_KEYS.
 *
 * Contract: kernels may read whole panels from the pointer of a row, for all columns that the row's group computes.
 * Strips, tables and scratch have enough padding. A row of the caller's array that ends within a panel is copied.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef RPI_ISA
#include "term_vectors.h" /* lets an editor parse this file on its own */
#endif

/* Round n biases like rpi_round_bias. */
static void biases_to(real *to, const double *from, int64_t n)
{
    int64_t j = 0;
#if !RPI_F64
    typedef double eight __attribute__((vector_size(64)));
    typedef double loose __attribute__((vector_size(64), aligned(8), may_alias));
    typedef int64_t wide __attribute__((vector_size(64)));
    typedef float narrow __attribute__((vector_size(32)));
    typedef float narrow_loose __attribute__((vector_size(32), aligned(4), may_alias));
    const eight max = (eight){0} + (double)FLT_MAX;
    for (; j + 8 <= n; j += 8) {
        eight x = *(const loose *)(from + j);
        const wide high = (x > max) & (x < (double)INFINITY), low = (x < -max) & (x > -(double)INFINITY);
        x = (eight)((high & (wide)max) | (~high & (wide)x));
        x = (eight)((low & (wide)-max) | (~low & (wide)x));
        *(narrow_loose *)(to + j) = __builtin_convertvector(x, narrow);
    }
#endif
    for (; j < n; j++)
        to[j] = (real)rpi_round_bias(from[j], sizeof(real));
}

/* Set rows[r] to the products of row r's query with the vectors of its offsets. In the forward pass, a block visits
 * tile after tile, so compute the products for all of them if they fit into the window. */
static void run_rows(block *k, const tile *t, int32_t n, const real **rows)
{
    const window *w = &k->vec[n];
    const rpi_vectors *v = &k->c->source[n].run.vectors;
    const int64_t R = v->count, max = v->product->zero_outside ? R : R - 1;
    int64_t low[BLOCK_ROWS / MR], high[BLOCK_ROWS / MR];
    int64_t from = t->tile0, to = t->tile0 + 1; /* keys from the first tile of the block to its last one */
    for (int64_t r = 0; r < k->rows && !k->c->backward; r++)
        if (k->lo[r] < k->hi[r]) {
            from = rpi_min(from, k->lo[r]);
            to = rpi_max(to, k->hi[r]);
        }
    from = from / TILE_KEYS * TILE_KEYS - t->tile0;
    to = rpi_min(rpi_round_up(to, TILE_KEYS), rpi_round_up(k->c->args->desc.len_k, COLUMN_STEP)) - t->tile0;
    for (int64_t g = 0; g < k->groups; g++) {
        const int64_t first = vector_of(k, v, t, g * MR), last = vector_of(k, v, t, g * MR + MR - 1);
        low[g] = rpi_clamp(last, -TILE_KEYS, R - 1);
        high[g] = rpi_clamp(first + t->end, 1, R + TILE_KEYS);
        if (!k->c->backward) {
            const int64_t every_low = rpi_clamp(last + from, -TILE_KEYS, R - 1),
                          every_high = rpi_clamp(first + to, 1, R + TILE_KEYS);
            if (every_high - every_low <= w->step - 4 * VL)
                low[g] = every_low, high[g] = every_high;
        }
    }
    group_products(k, n, low, high);
    for (int64_t r = 0; r < k->groups * MR; r++)
        rows[r] = w->at + r * w->step + rpi_clamp(vector_of(k, v, t, r), -TILE_KEYS, max) - w->from[r / MR];
}

/* Set rows[r] to the address of row r in the strip. */
static void strip_rows(const block *k, const tile *t, const rpi_strip *s, const real **rows)
{
    const real *strip = (const real *)s->entry + k->b * s->batch_step + k->h * s->head_step;
    const int64_t low = rpi_strip_low(s, k->c->args, k->b), all = k->groups * MR;
    for (int64_t r = 0; r < all; r++)
        rows[r] = strip + (delta_of(k, t, r) - low);
}

/* Set rows[r], for every row, to the products of the keys with the source's single vector. */
static void column_rows(const block *k, const tile *t, const rpi_column *s, const real **rows)
{
    const rpi_call *c = k->c;
    const int64_t per_kv = c->args->desc.heads / c->args->desc.kv_heads;
    for (int64_t r = 0; r < k->groups * MR; r++)
        rows[r] = (const real *)s->product + (k->kv * per_kv + k->h % per_kv) * c->pad_k + t->tile0;
}

/* Set rows[r] to the address of row r in the source's table, which has a bias for each pair. */
static void table_rows(const block *k, const tile *t, const void *table, const real **rows)
{
    const int64_t step = k->c->pad_k, all = k->groups * MR, last = k->rows - 1;
    const real *first = (const real *)table + (k->h * k->c->args->desc.len_q + k->row0) * step + t->tile0;
    for (int64_t r = 0; r < all; r++)
        rows[r] = first + rpi_min(r, last) * step;
}

/* Look up the biases of row r by index, and write them to `to`. They are entries (GATHER) or products of the row's
 * query with vectors (RUN). */
static void gather_row(block *k, const tile *t, const rpi_source *s, const rpi_indices *index, int64_t r,
                       const real *entry, real *to)
{
    const rpi_call *c = k->c;
    const int64_t keys = rpi_min(t->end, c->args->desc.len_k - t->tile0);
    const bool has_masked = index->has_masked[rpi_index_entry(index, k->b)];
    find_index(k, index, t, r, keys);
    for (int64_t j = 0; j < keys && has_masked; j++)
        if (k->index[j] < 0) { /* gather entry 0 for now; below, replace it by 0 or the definition's bias */
            k->index[j] = 0;
            k->keep_scratch[j] = 1;
        } else {
            k->keep_scratch[j] = 0;
        }
    for (int64_t j = 0; j < t->end; j += VL)
        vf_store(to + j, vf_gather(entry, k->index + j));
    rpi_pair p = pair_of_row(k, s, r);
    for (int64_t j = 0; j < keys && has_masked; j++)
        if (k->keep_scratch[j] && !s->scheme->class_token) {
            to[j] = 0;
        } else if (k->keep_scratch[j]) {
            rpi_pair_key(c->args, &p, t->tile0 + j);
            to[j] = (real)rpi_round_bias(rpi_source_bias(s, c->args, &p), sizeof(real));
        }
    for (int64_t j = keys; j < t->end; j++)
        to[j] = 0;
}

/* Prefetch the indices of row r in the next tile: the next columns in the forward pass, the next rows in the backward
 * pass. */
static void prefetch_indices(const block *k, const tile *t, const rpi_view *v, int64_t r)
{
    const rp_desc *d = &k->c->args->desc;
    const bool backward = k->c->backward != NULL;
    const int64_t size = (int64_t)rp_dtype_size(v->dtype), j0 = backward ? t->tile0 : t->tile0 + TILE_KEYS,
                  row = backward ? rpi_min(row_of(k, r) + BLOCK_ROWS, d->len_q - 1) : row_of(k, r);
    const char *next = (const char *)v->data + rpi_index(v, k->b, k->h, row, j0) * size;
    for (int64_t x = 0; v->stride[3] == 1 && x < rpi_min(t->end, d->len_k - j0) * size; x += 64)
        __builtin_prefetch(next + x, 0, 2);
}

#ifdef vf_pick
enum { PICKED_VECTORS = 8, PICKED = PICKED_VECTORS * VL };
typedef uint8_t narrow_index __attribute__((vector_size(VL)));
typedef uint8_t loose_index __attribute__((vector_size(VL), aligned(1), may_alias));

/* Set to[j] to number index[j] of a table of up to PICKED numbers, which are kept in registers. Return the number of
 * elements done, a multiple of VL. */
static int64_t pick_biases(const real *entry, int64_t count, const uint8_t *index, int64_t n, real *to)
{
    vf table[PICKED_VECTORS];
    const int64_t vectors = (count + VL - 1) / VL;
    int64_t j = 0;
    for (int64_t x = 0; x < vectors; x++)
        table[x] = vf_load_some(entry + x * VL, rpi_min(VL, count - x * VL));
    for (int64_t x = vectors; x < PICKED_VECTORS; x++)
        table[x] = vf_set1(0);
    for (; j + VL <= n; j += VL) {
        const vi at = __builtin_convertvector((narrow_index)(*(const loose_index *)(index + j)), vi),
                 lane = at & (2 * VL - 1);
        vi found = (vi)vf_pick(table[0], lane, table[1]);
        for (int64_t x = 2; x < vectors; x += 2) {
            const vi here = (at & ~(2 * VL - 1)) == (real_bits)(x * VL), y = (vi)vf_pick(table[x], lane, table[x + 1]);
            found = (here & y) | (~here & found);
        }
        vf_store(to + j, (vf)found);
    }
    return j;
}
#endif

/* Write the biases of row r, which the indices in array v choose from `count` entries, to `to`. Adjacent indices of one
 * or two bytes are loaded eight bytes at a time. */
static void gather_array(const block *k, const tile *t, const rpi_view *v, int64_t r, const real *entry, int64_t count,
                         real *to)
{
    const int64_t keys = rpi_min(t->end, k->c->args->desc.len_k - t->tile0),
                  at = rpi_index(v, k->b, k->h, row_of(k, r), t->tile0);
    int64_t j = 0;
    prefetch_indices(k, t, v, r);
#ifdef vf_pick
    if (v->stride[3] == 1 && v->dtype == RP_U8 && count <= PICKED)
        j = pick_biases(entry, count, (const uint8_t *)v->data + at, keys, to);
#else
    (void)count;
#endif
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    const char *from = (const char *)v->data;
    if (v->stride[3] == 1 && v->dtype == RP_U8)
        for (from += at; j + 8 <= keys; j += 8) {
            uint64_t eight;
            memcpy(&eight, from + j, 8);
            RPI_UNROLL
            for (int x = 0; x < 8; x++)
                to[j + x] = entry[eight >> 8 * x & 255];
        }
    else if (v->stride[3] == 1 && v->dtype == RP_U16)
        for (from += 2 * at; j + 4 <= keys; j += 4) {
            uint64_t four;
            memcpy(&four, from + 2 * j, 8);
            RPI_UNROLL
            for (int x = 0; x < 4; x++)
                to[j + x] = entry[four >> 16 * x & 65535];
        }
#endif
    rpi_integers(k->given_index, v, at + j * v->stride[3], keys - j);
    for (const int64_t *index = k->given_index; j < keys; j++)
        to[j] = entry[*index++];
    memset(to + keys, 0, reals(t->end - keys, 1));
}

/* Write the biases of row r to `to`. Call the scheme's `row` if by_row is set, else the definition of each pair, which
 * reads arrays of any type. */
static void define_row(block *k, const tile *t, const rpi_source *s, int64_t r, real *to)
{
    const rpi_call *c = k->c;
    const int64_t keys = rpi_min(t->end, c->args->desc.len_k - t->tile0);
    rpi_pair p = pair_of_row(k, s, r);
    if (s->rows.by_row) {
        s->scheme->row(&p, t->tile0, keys, k->row);
        biases_to(to, k->row, keys);
    } else {
        for (int64_t j = 0; j < keys; j++) {
            rpi_pair_key(c->args, &p, t->tile0 + j);
            to[j] = (real)rpi_round_bias(rpi_source_bias(s, c->args, &p), sizeof(real));
        }
    }
    for (int64_t j = keys; j < t->end; j++)
        to[j] = 0;
}

/* Set rows[r] to the address of row r in entry `entry` of the caller's array of biases. Copy a row to scratch if
 * reading its last panel would pass the end of the row. Prefetch the biases of the next tile: the next columns in the
 * forward pass, the next rows in the backward pass. */
static void array_rows(const block *k, const tile *t, const rpi_view *v, int64_t entry, const real **rows,
                       real *scratch)
{
    const bool backward = k->c->backward != NULL;
    const int64_t len_k = k->c->args->desc.len_k, keys = rpi_min(t->end, len_k - t->tile0);
    for (int64_t r = 0; r < k->groups * MR; r++) {
        real *to = scratch + r * ROW_STEP;
        const real *row = (const real *)v->data + rpi_index(v, entry, k->h, row_of(k, r), t->tile0);
        rows[r] = keys == t->end ? row : to;
        if (rows[r] == row) {
            const real *next = row + TILE_KEYS;
            if (backward)
                next =
                    (const real *)v->data +
                    rpi_index(v, entry, k->h, rpi_min(row_of(k, r) + BLOCK_ROWS, k->c->args->desc.len_q - 1), t->tile0);
            for (int64_t j = 0; (backward || t->tile0 + 2 * TILE_KEYS <= len_k) && j < t->end; j += 16)
                __builtin_prefetch(next + j, 0, 2);
        } else {
            memcpy(to, row, reals(keys, 1));
            memset(to + keys, 0, reals(t->end - keys, 1));
        }
    }
}

/* Set rows[r] to the biases of source n in row r. If memory does not already contain them as rows, write them to
 * scratch [BLOCK_ROWS][ROW_STEP]. */
static void source_rows(block *k, const tile *t, int32_t n, const real **rows, real *scratch)
{
    const rpi_source *s = &k->c->source[n];
    const rpi_view *v = s->kind == RPI_ROWS && s->scheme->in_place ? rpi_source_array(k->c->args, s->term) : NULL;
    const void *table = s->kind == RPI_GATHER ? s->gather.table : s->kind == RPI_ROWS ? s->rows.table : NULL;
    const real *entry = NULL;
    int64_t entry_step = 0;
    switch (s->kind) {
    case RPI_STRIP: strip_rows(k, t, &s->strip, rows); return;
    case RPI_COLUMN: column_rows(k, t, &s->column, rows); return;
    case RPI_KEYS: key_products(k, &s->keys, t, rows, scratch); return;
    case RPI_VALUES: return; /* no biases */
    case RPI_RUN:
        if (!s->run.gather) {
            run_rows(k, t, n, rows);
            return;
        }
        ensure_gathered(k, n, t);
        entry = k->vec[n].at;
        entry_step = k->vec[n].step;
        break;
    case RPI_GATHER: entry = (const real *)s->gather.entry + k->h * s->gather.index.count; break;
    case RPI_ROWS: break;
    }
    if (table) {
        table_rows(k, t, table, rows);
        return;
    }
    if (v && v->dtype == (RPI_F64 ? RP_F64 : RP_F32) && v->stride[3] == 1) {
        array_rows(k, t, v, rpi_batch_entry(k->c->args, s->term, k->b), rows, scratch);
        return;
    }
    for (int64_t r = 0; r < k->groups * MR; r++) {
        rows[r] = scratch + r * ROW_STEP;
        if (s->kind == RPI_GATHER && s->gather.by_array)
            gather_array(k, t, rpi_source_indices(k->c->args, s), r, entry, s->gather.index.count,
                         scratch + r * ROW_STEP);
        else if (entry)
            gather_row(k, t, s, s->kind == RPI_RUN ? &s->run.index : &s->gather.index, r, entry + r * entry_step,
                       scratch + r * ROW_STEP);
        else
            define_row(k, t, s, r, scratch + r * ROW_STEP);
    }
}

/* Compute total[r][…] = a[r][…] + b[r][…]. If the sum of two finite biases overflows (for example finfo.min twice), it
 * becomes the largest finite value of its sign. -infinity plus any bias is -infinity. */
static void add_rows(const real **total, const real *const *a, const real *const *b, real *to, int64_t rows,
                     int64_t end)
{
    const vf lowest = vf_set1(-REAL_MAX), highest = vf_set1(REAL_MAX), none = vf_set1(-INFINITY);
    for (int64_t r = 0; r < rows; r++) {
        for (int64_t j = 0; j < end; j += VL) {
            const vf x = vf_load(a[r] + j), y = vf_load(b[r] + j), z = x + y;
            const vf larger = vf_max(x, y);
            vf kept = vf_below(highest, z, vf_below(highest, larger, larger, highest), z);
            kept = vf_below(z, lowest, lowest, kept);
            kept = vf_below(x, lowest, none, kept);
            vf_store(to + r * ROW_STEP + j, vf_below(y, lowest, none, kept));
        }
        total[r] = to + r * ROW_STEP;
    }
}

/* Compute total[r][j] = a[r][j] + the product of source n that the index of pair (r, j) selects. A product of -infinity
 * does not mask. */
static void add_gathered(block *k, const tile *t, int32_t n, const real **total, const real *const *a, real *to)
{
    const rpi_run *run = &k->c->source[n].run;
    const int64_t keys = rpi_min(t->end, k->c->args->desc.len_k - t->tile0);
    ensure_gathered(k, n, t);
    for (int64_t r = 0; r < k->groups * MR; r++) {
        const real *entry = k->vec[n].at + r * k->vec[n].step;
        if (run->index.unclamped[rpi_index_entry(&run->index, k->b)]) {
            gather_unclamped(k, &run->index, t, r, entry, a[r], to + r * ROW_STEP);
        } else {
            find_index(k, &run->index, t, r, keys);
            for (int64_t j = 0; j < t->end; j += VL)
                vf_store(to + r * ROW_STEP + j, vf_load(a[r] + j) + vf_gather(entry, k->index + j));
        }
        total[r] = to + r * ROW_STEP;
    }
}

/* Compute the biases of the tile. Scores start from `in`, and `out` is added after the softcap. *in or *out becomes
 * NULL if it has no biases. */
static void biases_of(block *k, const tile *t, const real *const **in, const real *const **out)
{
    const rpi_call *c = k->c;
    const bool apart = c->plan->desc.softcap > 0;
    *in = *out = NULL;
    for (int32_t n = 0; n < c->n_sources; n++) {
        const rpi_source *s = &c->source[n];
        const bool outside = apart && !s->inside;
        const real **rows = outside ? k->out : k->in;
        real *sum = outside ? k->sum_out : k->sum_in;
        const real *const **have = outside ? out : in;
        if (s->kind == RPI_VALUES)
            continue;
        if (*have && s->kind == RPI_RUN && s->run.gather &&
            !s->run.index.has_masked[rpi_index_entry(&s->run.index, k->b)]) {
            add_gathered(k, t, n, rows, rows, sum);
        } else if (*have) {
            const real *more[BLOCK_ROWS];
            source_rows(k, t, n, more, k->s); /* k->s is unused until the scores are computed */
            add_rows(rows, rows, more, sum, k->groups * MR, t->end);
        } else {
            source_rows(k, t, n, rows, sum);
            *have = rows;
        }
    }
}
