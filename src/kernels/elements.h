/* kernels/elements.h -- load elements of the caller's arrays as `real`, store results in them, and record the largest
 * magnitude that was loaded.
 * Parameters: VL, real, the vector operations.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef RPI_ISA
#include "block_sizes.h" /* lets an editor parse this file on its own */
#endif

#if !RPI_F64
/* Convert VL f16 or bf16 to f32, exactly. They are in the lower halves of x; the upper halves must be 0. */
static inline __attribute__((always_inline)) vf widen_halves(vu x, rp_dtype dtype)
{
    return dtype == RP_BF16 ? (vf)(x << 16) : vf_f16(x);
}

static inline __attribute__((always_inline)) vf load_halves(const uint16_t *from, rp_dtype dtype)
{
    return dtype == RP_BF16 ? (vf)(vu_wide(from) << 16) : vf_load_f16(from);
}

/* Load n elements (1 to VL) and read nothing past them. Set the other lanes to 0. */
static inline __attribute__((always_inline)) vf load_some_halves(const uint16_t *from, rp_dtype dtype, int64_t n)
{
    return widen_halves(vu_wide_some(from, n), dtype);
}
#endif

/* Return n consecutive elements of any floating type as `real`: the array itself if its type is `real`, else a
 * converted copy in scratch. */
static inline const real *load_elements(rp_dtype dtype, const void *from, int64_t n, real *scratch)
{
#if RPI_F64
    if (dtype == RP_F64)
        return from;
    for (int64_t x = 0; x < n; x++)
        scratch[x] = rpi_value(from, dtype, x);
#else
    if (dtype == RP_F32)
        return from;
    const int64_t size = rpi_floating_size(dtype);
    int64_t x = 0;
    for (; size == 2 && x + VL <= n; x += VL)
        vf_store(scratch + x, load_halves((const uint16_t *)from + x, dtype));
    if (x < n)
        rpi_load_f32(scratch + x, (const char *)from + x * size, dtype, n - x);
#endif
    return scratch;
}

/* Return channels x0 … x0+n-1 of a row as `real`, n <= CHANNELS: a pointer into the array if possible, else a copy in
 * scratch. */
enum { CHANNELS = 64 };
static inline const real *load_channels(const rpi_view *v, const void *row, int64_t x0, int64_t n, real *scratch)
{
    const char *from = (const char *)row + x0 * v->stride[3] * rpi_floating_size(v->dtype);
    if (!rpi_is_transposed(v))
        return load_elements(v->dtype, from, n, scratch);
    for (int64_t x = 0; x < n; x++)
        scratch[x] = (real)rpi_value(from, v->dtype, x * v->stride[3]);
    return scratch;
}

/* Round n elements to an array's floating type, and store them at indices at … at+n-1. */
static inline void store_channels(void *data, rp_dtype dtype, int64_t at, const real *from, int64_t n)
{
    int64_t x = 0;
    if (dtype == (RPI_F64 ? RP_F64 : RP_F32)) {
        memcpy((real *)data + at, from, (size_t)n * sizeof(real));
        return;
    }
#if !RPI_F64
    typedef uint16_t halves __attribute__((vector_size(2 * VL)));
    for (; dtype == RP_BF16 && x + VL <= n; x += VL) {
        const vu bits = (vu)vf_load(from + x), even = bits >> 16 & 1,
                 nan = (vu)(vf_load(from + x) != vf_load(from + x));
        const vu upper = ((bits + 0x7fffu + even) >> 16 & ~nan) | ((bits >> 16 | 0x40u) & nan);
        const halves to = __builtin_convertvector(upper, halves);
        memcpy((uint16_t *)data + at + x, &to, sizeof to);
    }
#endif
    for (; x < n; x++)
        rpi_put(data, dtype, at + x, (double)from[x]);
}

/* The rows of one head of an array. */
typedef struct head_rows {
    const rpi_view *v;
    int64_t b, h, rows;
    const char *first, *next; /* row 0 of this head and of the next head; NULL if the rows are in pages */
    int64_t step;             /* bytes from one row to the next */
} head_rows;

static inline head_rows rows_of_head(const rpi_view *v, int64_t b, int64_t h, int64_t rows)
{
    head_rows s = {.v = v, .b = b, .h = h, .rows = rows};
    if (v->page || !v->data)
        return s;
    const bool last = h + 1 >= v->len[1];
    s.first = rpi_row_of(v, b, h, 0);
    s.next = !last ? rpi_row_of(v, b, h + 1, 0) : b + 1 < v->len[0] ? rpi_row_of(v, b + 1, 0, 0) : s.first;
    s.step = v->stride[2] * rpi_floating_size(v->dtype);
    return s;
}

static inline const char *head_row(const head_rows *s, int64_t j)
{
    return s->first ? s->first + j * s->step : rpi_row_of(s->v, s->b, s->h, j);
}

/* Return true if no page ends between rows j and j+n-1. */
static inline bool on_one_page(const rpi_view *v, int64_t j, int64_t n)
{
    return !v->page || j % v->page_keys + n <= v->page_keys;
}

/* Return the address of the row AHEAD rows after row j, which may be in the next head. Callers prefetch it while they
 * load row j, because the processor's own prefetcher reads short arrays more slowly. If the rows are in pages and the
 * row is not in the page of row j, return the address of row j. */
enum { AHEAD = 32 };
static inline const char *row_ahead(const head_rows *s, int64_t j)
{
    const int64_t n = j + AHEAD;
    if (!s->first)
        return head_row(s, n < s->rows && n / s->v->page_keys == j / s->v->page_keys ? n : j);
    return n < s->rows ? s->first + n * s->step : s->next + rpi_min(n - s->rows, s->rows - 1) * s->step;
}

/* Addresses to prefetch, in the order of memory, which the processor's prefetcher also follows. */
typedef struct prefetch_walk {
    uintptr_t line, past, /* the next line; the end of its row */
        row, gap;         /* bytes of a row; bytes from the end of a row to the next row */
} prefetch_walk;

static inline prefetch_walk walk_from(const void *from, int64_t row, int64_t step)
{
    const uintptr_t at = (uintptr_t)from;
    return (prefetch_walk){at, row == step ? UINTPTR_MAX : at + (uintptr_t)row, (uintptr_t)row,
                           (uintptr_t)(step - row)};
}

static inline __attribute__((always_inline)) void prefetch_next(prefetch_walk *w)
{
    __builtin_prefetch((const void *)w->line, 0, 3);
    w->line += 64;
    if (w->line >= w->past) {
        w->line = w->past + w->gap;
        w->past = w->line + w->row;
    }
}

/* The largest magnitude of the recorded elements, in each lane. Magnitudes are compared as integers, so that NaN is
 * larger than infinity. */
typedef struct magnitude {
    vf max;
} magnitude;

static inline void note_magnitude(magnitude *w, vf x)
{
    w->max = vf_larger(w->max, vf_abs(x));
}

static inline bool is_finite(const magnitude *w)
{
    return vf_sum(w->max * vf_set1(0)) == 0;
}

static inline bool is_immoderate(const magnitude *w)
{
    return !is_finite(w) || vf_max_lane(w->max) > (real)RPI_MODERATE;
}
