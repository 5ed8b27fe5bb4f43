/* kernels/pack.h -- pack rows for register tiles: as panels of NR rows side by side, or as columns of NR channels. Keys
 * are rotated here if the plan has RoPE (rotate_rows.h).
 * Parameters: VL, NR, the vector operations.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef RPI_ISA
#include "rotate_rows.h" /* lets an editor parse this file on its own */
#endif

/* Transpose VL rows of n channels that are `gap` elements apart: to[x * step + r] = from[r * gap + x]. Only the first
 * `there` rows exist; set the others to 0. Also prefetch the same channels of later rows: these begin at `ahead`, which
 * may be any address, are ahead_gap bytes apart, and have elements of `size` bytes. */
static inline __attribute__((always_inline)) void transpose_rows(const real *from, int64_t gap, int64_t there,
                                                                 uintptr_t ahead, int64_t ahead_gap, int64_t size,
                                                                 int64_t n, real *to, int64_t step, magnitude *w)
{
    magnitude all = *w; /* in a register */
    int64_t x = 0;
    for (; x + VL <= n; x += VL) {
        vf y[VL];
        const real *row = from + x;
        if (x * size % 64 == 0) { /* once for each cache line of a row */
            uintptr_t next = ahead + (uintptr_t)(x * size);
            RPI_UNROLL
            for (int r = 0; r < VL; r++, next += (uintptr_t)ahead_gap)
                if (r < there)
                    __builtin_prefetch((const void *)next, 0, 2);
        }
        RPI_UNROLL
        for (int r = 0; r < VL; r++) {
            if (r < there) {
                y[r] = vf_load(row);
                note_magnitude(&all, y[r]);
                row += r + 1 < VL ? gap : 0;
            } else {
                y[r] = vf_set1(0);
            }
        }
        vf_transpose(y);
        RPI_UNROLL
        for (int c = 0; c < VL; c++)
            vf_store(to + (x + c) * step, y[c]);
    }
    for (; x < n; x++) {
        real lane[VL];
        for (int r = 0; r < VL; r++)
            lane[r] = r < there ? from[r * gap + x] : 0;
        note_magnitude(&all, vf_load(lane));
        vf_store(to + x * step, vf_load(lane));
    }
    *w = all;
}

#if !RPI_F64 && RPI_TRANSPOSES
/* Compute transpose_rows for f16 or bf16: transpose pairs of channels, and widen them to f32 when storing. Return the
 * number of channels transposed; the last n % (2 VL) remain. */
static int64_t transpose_halves(rp_dtype dtype, const uint16_t *from, int64_t gap, int64_t there, uintptr_t ahead,
                                int64_t n, real *to, int64_t step, magnitude *w)
{
    int64_t x = 0;
    for (; x + 2 * VL <= n; x += 2 * VL) {
        vf y[VL];
        RPI_UNROLL
        for (int r = 0; r < VL; r++) {
            if (r < there) {
                __builtin_prefetch((const void *)(ahead + (uintptr_t)((r * gap + x) * 2)), 0, 2);
                y[r] = (vf)vf_bits(from + r * gap + x);
            } else {
                y[r] = vf_set1(0);
            }
        }
        vf_transpose(y);
        for (int c = 0; c < VL; c++) {
            const vf low = widen_halves((vu)y[c] & 0xffff, dtype), high = widen_halves((vu)y[c] >> 16, dtype);
            note_magnitude(w, low);
            note_magnitude(w, high);
            vf_store(to + (x + 2 * c) * step, low);
            vf_store(to + (x + 2 * c + 1) * step, high);
        }
    }
    return x;
}
#endif

/* Copy channels x0 … x0+n-1 of rows j … j+VL-1 of an array stored as [channels][keys]. Only the first `there` rows
 * exist; set the others to 0. */
static void copy_channels(const head_rows *s, int64_t j, int64_t there, int64_t x0, int64_t n, real *to, int64_t step,
                          magnitude *w)
{
    const rpi_view *v = s->v;
    const int64_t gap = v->stride[3] * rpi_floating_size(v->dtype);
    for (int64_t x = 0; x < n && there < VL; x++)
        vf_store(to + x * step, vf_set1(0));
    for (int64_t r = 0, m; r < there; r += m) { /* rows of one page */
        const char *from = head_row(s, j + r) + x0 * gap;
        m = v->page ? rpi_min(there - r, v->page_keys - (j + r) % v->page_keys) : there - r;
        for (int64_t x = 0; x < n; x++) {
            real *at = to + x * step + r;
            const real *row = load_elements(v->dtype, from + x * gap, m, at);
            if (m == VL)
                vf_store(at, vf_load(row));
            else if (row != at)
                memcpy(at, row, (size_t)m * sizeof(real));
        }
    }
    for (int64_t x = 0; x < n; x++)
        note_magnitude(w, vf_load(to + x * step));
}

/* Transpose channels x0 … x0+n-1, n <= CHANNELS, of rows j … j+VL-1 of a head of any type and layout. Only the first
 * `there` rows exist; set the others to 0. */
static void transpose_channels(const head_rows *s, int64_t j, int64_t there, int64_t x0, int64_t n, real *to,
                               int64_t step, magnitude *w)
{
    const rpi_view *v = s->v;
    const int64_t size = rpi_floating_size(v->dtype), gap = v->stride[2];
    real scratch[VL][CHANNELS];
    if (there <= 0) {
        for (int64_t x = 0; x < n; x++)
            vf_store(to + x * step, vf_set1(0));
        return;
    }
    if (rpi_is_transposed(v)) {
        copy_channels(s, j, there, x0, n, to, step, w);
        return;
    }
    uintptr_t ahead = (uintptr_t)row_ahead(s, j) + (uintptr_t)(x0 * size);
    const bool one_piece = on_one_page(v, j, there);
#if !RPI_F64 && RPI_TRANSPOSES
    if (size == 2 && one_piece) {
        const uint16_t *halves = (const uint16_t *)(const void *)head_row(s, j) + x0;
        const int64_t done = transpose_halves(v->dtype, halves, gap, there, ahead, n, to, step, w);
        if (done == n)
            return;
        x0 += done, n -= done, to += done * step, ahead += (uintptr_t)(done * size);
    }
#endif
    const bool in_place = size == sizeof(real) && one_piece;
    const real *from = in_place ? (const real *)(const void *)head_row(s, j) + x0 : scratch[0];
    for (int64_t r = 0; r < there && !in_place; r++) {
        const real *row = load_channels(v, head_row(s, j + r), x0, n, scratch[r]);
        if (row != scratch[r])
            memcpy(scratch[r], row, (size_t)n * sizeof(real));
    }
    const int64_t apart = in_place ? gap : CHANNELS;
    if (there == VL)
        transpose_rows(from, apart, VL, ahead, gap * size, size, n, to, step, w);
    else
        transpose_rows(from, apart, there, ahead, gap * size, size, n, to, step, w);
}

/* Pack rows j0 … j0+n-1 of a head as transposed panels of NR rows, so that a register tile reads one channel of NR rows
 * as ROW_VECTORS vectors. The head has `real_rows` rows; set rows past them to 0. Set large[panel] if an element is
 * non-finite or large. */
static void pack_panels(const rpi_view *v, int64_t b, int64_t h, int64_t j0, int64_t n, int64_t real_rows,
                        int64_t width, const rp_term *rotate, const real *rope, real *to, uint8_t *large)
{
    const head_rows rows = rows_of_head(v, b, h, real_rows);
    for (int64_t r0 = 0; r0 < n; r0 += VL) {
        const int64_t there = rpi_clamp(real_rows - j0 - r0, 0, VL);
        real *at = to + r0 / NR * NR * width + r0 % NR;
        magnitude w = {vf_set1(0)};
        for (int64_t x0 = 0; x0 < width; x0 += CHANNELS)
            transpose_channels(&rows, j0 + r0, there, x0, rpi_min(CHANNELS, width - x0), at + x0 * NR, NR, &w);
        if (large)
            large[r0 / NR] |= is_immoderate(&w);
        for (int64_t r = 0; rotate && r < there; r++)
            rotate_row(rotate, rope + (j0 + r0 + r) * rpi_rotation_width(rotate), 1, at + r, NR);
    }
}
_Static_assert(NR % VL == 0, "panels are transposed VL rows at a time");

/* Return the address of channel x of row r in packed columns of `pad` rows. The column that starts with channel c
 * begins at c * pad. It is NR channels wide; the last column may be narrower. */
static inline real *in_column(real *to, int64_t pad, int64_t r, int64_t wide, int64_t x)
{
    const int64_t column = x / NR * NR;
    return to + column * pad + r * rpi_min(NR, wide - column) + x - column;
}

/* Set the non-finite rows of packed columns to 0, because 0 * NaN would reach other rows. Set large[r] to 1 for these
 * rows and to 0 for the others. */
static void clear_large(real *to, int64_t pad, int64_t first, int64_t n, int64_t wide, uint8_t *large)
{
    for (int64_t r = 0; r < n; r++) {
        magnitude w = {vf_set1(0)};
        for (int64_t x = 0; x < wide; x += VL)
            note_magnitude(&w, vf_load(in_column(to, pad, first + r, wide, x)));
        large[r] = !is_finite(&w);
        for (int64_t x = 0; large[r] && x < wide; x += VL)
            vf_store(in_column(to, pad, first + r, wide, x), vf_set1(0));
    }
}

/* Pack rows stored as panels of `size` rows, [panel][width][size], as columns of `pad` rows. Set non-finite rows to 0,
 * and set large[r] for them. */
static inline void to_columns(const real *packed, int64_t size, int64_t rows, int64_t width, real *to, int64_t pad,
                              uint8_t *large)
{
    const int64_t wide = rpi_round_up(width, VL);
    magnitude w = {vf_set1(0)};
    for (int64_t r0 = 0; r0 < rows; r0 += rpi_min(VL, size - r0 % size)) {
        const real *from = packed + r0 / size * size * width + r0 % size;
        for (int64_t x = 0; x < wide; x += VL) {
            vf y[VL];
            RPI_UNROLL
            for (int c = 0; c < VL; c++)
                y[c] = x + c < width ? vf_load(from + (x + c) * size) : vf_set1(0);
            vf_transpose(y);
            for (int64_t r = 0; r < rpi_min(VL, size - r0 % size); r++) {
                note_magnitude(&w, y[r]);
                vf_store(in_column(to, pad, r0 + r, wide, x), y[r]);
            }
        }
    }
    for (int64_t r = 0; r < rows; r++)
        large[r] = 0;
    if (!is_finite(&w))
        clear_large(to, pad, 0, rows, wide, large);
}

/* Return rows, [rows][width padded], as columns of `pad` rows: `from` itself if it is one column and finite, else a
 * packed copy in `to`. `finite` says that all rows are known to be finite. In the copy, set non-finite rows to 0, and
 * set large[r] for them. */
static const real *rows_as_columns(const real *from, int64_t rows, int64_t wide, bool finite, real *to, int64_t pad,
                                   uint8_t *large)
{
    magnitude w = {vf_set1(0)};
    for (int64_t x = 0; x < rows * wide && !finite; x += VL)
        note_magnitude(&w, vf_load(from + x));
    memset(large, 0, (size_t)rows);
    if (wide <= NR && is_finite(&w))
        return from;
    for (int64_t r = 0; r < rows; r++)
        for (int64_t x = 0; x < wide; x += VL)
            vf_store(in_column(to, pad, r, wide, x), vf_load(from + r * wide + x));
    if (!is_finite(&w))
        clear_large(to, pad, 0, rows, wide, large);
    return to;
}
