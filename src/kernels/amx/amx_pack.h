/* kernels/amx/amx_pack.h -- pack rows of arrays as operands of AMX products. Independent of the products.
 * Parameters: VL, NR.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef RPI_ISA
#include "amx_products.h" /* lets an editor parse this file on its own */
#endif

/* Return row j as f32, padded with zeros to whole chunks: a pointer into the array if possible, else a copy in
 * `scratch`. Rows past the last one are 0. */
static inline const real *row_at(const rpi_view *v, int64_t b, int64_t h, int64_t j, int64_t real_rows, int64_t width,
                                 real *scratch)
{
    const int64_t wide = rpi_round_up(width, CHUNK);
    if (j >= real_rows || !v->data) {
        memset(scratch, 0, reals(wide, 1));
        return scratch;
    }
    const void *row = rpi_row_of(v, b, h, j);
    if (v->dtype == RP_F32 && width == wide && !rpi_is_transposed(v))
        return row;
    for (int64_t x0 = 0; x0 < width; x0 += CHANNELS) {
        const int64_t m = rpi_min(CHANNELS, width - x0);
        const real *from = load_channels(v, row, x0, m, scratch + x0);
        if (from != scratch + x0)
            memcpy(scratch + x0, from, reals(m, 1));
    }
    memset(scratch + width, 0, reals(wide - width, 1));
    return scratch;
}

/* Up to CHUNK rows that are packed together. */
typedef struct packing {
    const real *at[CHUNK];    /* the elements of each row, as f32 */
    const char *ahead[CHUNK]; /* for each row, the address of a later row to prefetch */
    int64_t size;             /* bytes of an element of `ahead` */
    magnitude seen;           /* the magnitude of the packed elements */
} packing;

/* Copy rows j0 … j0+n-1 of an array [channels][rows] to scratch, where n is a multiple of VL. */
static void rows_of_channel_major(const head_rows *rows, int64_t j0, int64_t n, int64_t width, real *scratch)
{
    const int64_t wide = rpi_round_up(width, CHUNK);
    magnitude unused = {vf_set1(0)};
    for (int64_t r = 0; r < n; r += VL)
        for (int64_t x = 0; x < wide; x += VL) {
            const int64_t there = rpi_clamp(rows->rows - j0 - r, 0, VL), m = rpi_clamp(width - x, 0, VL);
            real packed[VL * VL] = {0};
            vf y[VL];
            copy_channels(rows, j0 + r, there, x, m, packed, VL, &unused);
            RPI_UNROLL
            for (int c = 0; c < VL; c++)
                y[c] = vf_load(packed + c * VL);
            vf_transpose(y);
            RPI_UNROLL
            for (int c = 0; c < VL; c++)
                vf_store(scratch + (r + c) * wide + x, y[c]);
        }
}

/* Set s->at (as row_at returns it) and s->ahead for rows j0 … j0+n-1. scratch has space for n rows. */
static inline void rows_at(packing *s, const rpi_view *v, int64_t b, int64_t h, int64_t j0, int64_t n,
                           int64_t real_rows, int64_t width, real *scratch)
{
    const int64_t wide = rpi_round_up(width, CHUNK);
    const head_rows rows = rows_of_head(v, b, h, real_rows);
    s->size = rpi_floating_size(v->dtype);
    if (j0 + n + AHEAD <= real_rows && !v->page && !rpi_is_transposed(v) && v->dtype == RP_F32 && width == wide) {
        const real *at = rpi_row_of(v, b, h, j0);
        for (int64_t r = 0; r < n; r++, at += v->stride[2]) {
            s->at[r] = at;
            s->ahead[r] = (const char *)(at + AHEAD * v->stride[2]);
        }
        return;
    }
    const bool channel_major = v->data && rpi_is_transposed(v) && n % VL == 0;
    if (channel_major)
        rows_of_channel_major(&rows, j0, n, width, scratch);
    for (int64_t r = 0; r < n; r++) {
        s->at[r] = channel_major ? scratch + r * wide : row_at(v, b, h, j0 + r, real_rows, width, scratch + r * wide);
        s->ahead[r] = (const char *)s->at[r];
        if (j0 + r < real_rows && v->data)
            s->ahead[r] = row_ahead(&rows, j0 + r);
    }
}

static inline void note_row(magnitude *w, const real *row, int64_t wide)
{
    for (int64_t x = 0; x < wide; x += VL)
        note_magnitude(w, vf_load(row + x));
}

/* Return true if the recorded elements are finite and none exceeds `limit`. */
static inline bool is_moderate(const magnitude *w, real limit)
{
    return is_finite(w) && vf_max_lane(w->max) <= limit;
}

/* If a row has a non-finite element or one above `limit`, replace the row by zeros and set large[r]. Return true if any
 * row was replaced. */
static bool clear_rows(packing *s, int64_t n, int64_t wide, real limit, real *scratch, uint8_t *large)
{
    bool any = false;
    for (int64_t r = 0; r < n; r++) {
        magnitude w = {vf_set1(0)};
        note_row(&w, s->at[r], wide);
        large[r] = !is_moderate(&w, limit);
        any |= large[r];
        if (large[r])
            s->at[r] = memset(scratch + r * wide, 0, reals(wide, 1));
    }
    return any;
}

/* Replace rows j0 … j0+n-1 by copies in scratch, rotated by RoPE. */
static void rotated_copies(packing *s, int64_t n, int64_t wide, const rp_term *rotate, const real *rope, int64_t j0,
                           int64_t real_rows, real *scratch)
{
    for (int64_t r = 0; r < n && j0 + r < real_rows; r++) {
        if (s->at[r] != scratch + r * wide)
            s->at[r] = memcpy(scratch + r * wide, s->at[r], reals(wide, 1));
        rotate_row(rotate, rope + (j0 + r) * rpi_rotation_width(rotate), 1, scratch + r * wide, 1);
    }
}

/* Split 16 pairs (x, y) into components. Record their magnitude, and prefetch later rows. */
ALWAYS_INLINE void take_pair(magnitude *seen, const real *x, const real *y, const char *ahead_x, const char *ahead_y,
                             int components, vu *to)
{
    const vf a = vf_load(x), b = vf_load(y);
    __builtin_prefetch(ahead_x, 0, 2);
    __builtin_prefetch(ahead_y, 0, 2);
    note_magnitude(seen, a);
    note_magnitude(seen, b);
    bf16_pair(a, b, components, to);
}

/* Pack one chunk of channels of 16 rows, one fragment for each component. A row becomes a column of the fragment. */
ALWAYS_INLINE void transposed_fragments(packing *s, int64_t x, int components, uint32_t *to)
{
    vu fragment[3][TILE_SIDE];
    magnitude seen = s->seen;
    RPI_UNROLL
    for (int r = 0; r < TILE_SIDE; r++) {
        vu component[3];
        const char *ahead = s->ahead[r] + x * s->size;
        take_pair(&seen, s->at[r] + x, s->at[r] + x + TILE_SIDE, ahead, ahead + TILE_SIDE * s->size, components,
                  component);
        RPI_UNROLL
        for (int p = 0; p < components; p++)
            fragment[p][r] = component[p];
    }
    s->seen = seen;
    RPI_UNROLL
    for (int p = 0; p < components; p++) {
        vf_transpose((vf *)fragment[p]);
        memcpy(to + p * FRAGMENT, fragment[p], sizeof fragment[p]);
    }
}

static void pack_transposed(packing *s, int64_t x, int components, uint32_t *to)
{
    BY_COMPONENTS(COMPONENTS, components, transposed_fragments(s, x, COMPONENTS, to));
}

/* Pack n rows of an array as the right operand of a sum over channels: [16 rows][chunk][component]. Pack a non-finite
 * or large row as 0, and set large of its panel (and large_rows of the row, unless large_rows is NULL). scratch has
 * space for 16 rows. */
static void amx_pack_panels(const rpi_view *v, int64_t b, int64_t h, int64_t j0, int64_t n, int64_t real_rows,
                            int64_t width, const rp_term *rotate, const real *rope, int components, uint32_t *to,
                            uint8_t *large, uint8_t *large_rows, real *scratch)
{
    const int64_t wide = rpi_round_up(width, CHUNK);
    for (int64_t r0 = 0; r0 < n; r0 += TILE_SIDE, to += wide / CHUNK * components * FRAGMENT) {
        uint8_t cleared[TILE_SIDE];
        packing s;
        bool look = rotate; /* clear large rows first: always with RoPE, else only after packing has found one */
        rows_at(&s, v, b, h, j0 + r0, TILE_SIDE, real_rows, width, scratch);
        do {
            if (look &&
                clear_rows(&s, TILE_SIDE, wide, (real)RPI_MODERATE, scratch, large_rows ? large_rows + r0 : cleared))
                large[r0 / NR] = 1;
            if (rotate)
                rotated_copies(&s, TILE_SIDE, wide, rotate, rope, j0 + r0, real_rows, scratch);
            s.seen = (magnitude){vf_set1(0)};
            for (int64_t x = 0; x < wide; x += CHUNK)
                pack_transposed(&s, x, components, to + x / CHUNK * components * FRAGMENT);
        } while (!look && (look = !is_moderate(&s.seen, (real)RPI_MODERATE)));
    }
}

/* Pack n vectors of 16 pairs (x, y). The vectors are `step` elements apart, and each becomes a row of a fragment. */
ALWAYS_INLINE void run_fragments(const real *x, const real *y, int64_t step, int64_t n, int components, uint32_t *to)
{
    for (; n > 0; n--, x += step, y += step, to += components * FRAGMENT) {
        vu component[3];
        bf16_pair(vf_load(x), vf_load(y), components, component);
        RPI_UNROLL
        for (int p = 0; p < components; p++)
            store_pairs(to + p * FRAGMENT, component[p]);
    }
}

static void pack_run(const real *x, const real *y, int64_t step, int64_t n, int components, uint32_t *to)
{
    BY_COMPONENTS(COMPONENTS, components, run_fragments(x, y, step, n, COMPONENTS, to));
}

/* Pack 32 rows of an array as pairs of elements from rows r and r + 16: [16 channels][component]. */
ALWAYS_INLINE void across_fragments(packing *s, int64_t columns, int components, uint32_t *to)
{
    const int64_t size = s->size;
    magnitude seen = s->seen;
    for (int64_t r = 0; r < TILE_SIDE; r++) {
        const real *x = s->at[r], *y = s->at[r + TILE_SIDE];
        const char *a = s->ahead[r], *b = s->ahead[r + TILE_SIDE];
        uint32_t *fragment = to + r * TILE_SIDE;
        for (int64_t m = 0; m < columns; m++, fragment += components * FRAGMENT) {
            vu component[3];
            take_pair(&seen, x + m * TILE_SIDE, y + m * TILE_SIDE, a + m * TILE_SIDE * size, b + m * TILE_SIDE * size,
                      components, component);
            RPI_UNROLL
            for (int p = 0; p < components; p++)
                store_pairs(fragment + p * FRAGMENT, component[p]);
        }
    }
    s->seen = seen;
}

static void pack_across(packing *s, int64_t columns, int components, uint32_t *to)
{
    BY_COMPONENTS(COMPONENTS, components, across_fragments(s, columns, COMPONENTS, to));
}

/* Pack n rows of an array as the right operand of a sum over rows: [chunk of rows][16 channels][component]. If a row
 * has a non-finite element or one above `limit`, pack it as 0 and set large[r]. scratch has space for 32 rows. */
static void amx_pack_columns(const rpi_view *v, int64_t b, int64_t h, int64_t j0, int64_t n, int64_t real_rows,
                             int64_t width, const rp_term *rotate, const real *rope, int components, real limit,
                             uint32_t *to, uint8_t *large, real *scratch)
{
    const int64_t wide = rpi_round_up(width, CHUNK), columns = rpi_round_up(width, TILE_SIDE) / TILE_SIDE;
    for (int64_t r0 = 0; r0 < n; r0 += CHUNK, to += columns * components * FRAGMENT) {
        packing s;
        bool look = rotate; /* clear large rows first: always with RoPE, else only after packing has found one */
        rows_at(&s, v, b, h, j0 + r0, CHUNK, real_rows, width, scratch);
        memset(large + r0, 0, CHUNK);
        do {
            if (look)
                clear_rows(&s, CHUNK, wide, limit, scratch, large + r0);
            if (rotate)
                rotated_copies(&s, CHUNK, wide, rotate, rope, j0 + r0, real_rows, scratch);
            s.seen = (magnitude){vf_set1(0)};
            pack_across(&s, columns, components, to);
        } while (!look && (look = !is_moderate(&s.seen, limit)));
    }
}

/* Pack rows, which are `step` elements apart, as the left operand of a sum over channels:
 * [16 rows][chunk][component]. */
static inline void pack_rows(const real *from, int64_t step, int64_t rows, int64_t width, int components, uint32_t *to)
{
    const int64_t chunks = width / CHUNK;
    for (int64_t r = 0; r < rows; r++)
        pack_run(from + r * step, from + r * step + TILE_SIDE, CHUNK, chunks, components,
                 to + r / TILE_SIDE * chunks * components * FRAGMENT + r % TILE_SIDE * TILE_SIDE);
}

/* Pack 32 rows of an array as the left operand of a sum over channels: [16 rows][chunk][component]. */
ALWAYS_INLINE void along_fragments(packing *s, int64_t chunks, int components, uint32_t *to)
{
    const int64_t size = s->size;
    magnitude seen = s->seen;
    for (int64_t r = 0; r < CHUNK; r++) {
        const real *x = s->at[r];
        const char *ahead = s->ahead[r];
        uint32_t *fragment = to + r / TILE_SIDE * chunks * components * FRAGMENT + r % TILE_SIDE * TILE_SIDE;
        for (int64_t m = 0; m < chunks; m++, x += CHUNK, ahead += CHUNK * size, fragment += components * FRAGMENT) {
            vu component[3];
            take_pair(&seen, x, x + TILE_SIDE, ahead, ahead + TILE_SIDE * size, components, component);
            RPI_UNROLL
            for (int p = 0; p < components; p++)
                store_pairs(fragment + p * FRAGMENT, component[p]);
        }
    }
    s->seen = seen;
}

static void pack_along(packing *s, int64_t chunks, int components, uint32_t *to)
{
    BY_COMPONENTS(COMPONENTS, components, along_fragments(s, chunks, COMPONENTS, to));
}

static int64_t key_bytes(const rp_plan *plan)
{
    return rpi_round_up(plan->desc.dim_k, CHUNK) * 2 * key_components(plan);
}

static int64_t value_bytes(const rp_plan *plan)
{
    return rpi_round_up(plan->desc.dim_v, TILE_SIDE) * 2 * value_components(plan);
}

static void pack_keys(const block *k, int64_t b, int64_t g, int64_t j0, int64_t n, void *to, uint8_t *large)
{
    const rpi_call *c = k->c;
    const rp_desc *d = &c->args->desc;
    const rp_term *rotate = c->plan->rotate >= 0 ? &c->plan->terms[c->plan->rotate] : NULL;
    amx_pack_panels(&c->args->k, b, g, j0, n, d->len_k, d->dim_k, rotate, rpi_rope_of(c, true, b, g),
                    key_components(c->plan), to, large, NULL, k->products.rows_scratch);
}

static void pack_values(const block *k, int64_t b, int64_t g, int64_t j0, int64_t n, void *to, int64_t first,
                        int64_t pad, uint8_t *large)
{
    const rpi_call *c = k->c;
    const rp_desc *d = &c->args->desc;
    const int components = value_components(c->plan);
    (void)pad;
    amx_pack_columns(&c->args->v, b, g, j0, n, d->len_k, d->dim_v, NULL, NULL, components, (real)MAX_VALUE,
                     (uint32_t *)to + first / CHUNK * (c->pad_v / TILE_SIDE) * components * FRAGMENT, large,
                     k->products.rows_scratch);
}
