/* kernel_checks.h -- the checks of kernels.h for one instruction set and precision.
 * Included where the file of the instruction set has defined vf, VL, MR, NR, its verbs and its kernels: see CMakeLists.txt.
 *
 * Sizes lie around the edges of vectors and tiles. What a kernel writes lies between borders, and what it may not read is NaN.
 * A tolerance is a bound on rounding errors: n EPS times the sum of the summands' sizes, for n roundings.
 * SPDX-License-Identifier: Apache-2.0 */
#include "tests/kernels/kernels.h"

#define EPS       (RPI_F64 ? 0x1p-53 : 0x1p-24)
#define PRECISION (RPI_F64 ? "f64" : "f32")
#define CHECK(name)                                                                                                    \
    static void name##_body(void);                                                                                     \
    static void check_##name(void)                                                                                     \
    {                                                                                                                  \
        kernel_begin(RPI_NAME(RPI_ISA), PRECISION, #name);                                                             \
        name##_body();                                                                                                 \
        kernel_borders();                                                                                              \
    }                                                                                                                  \
    static void name##_body(void)
#define COUNT(list) ((int)(sizeof(list) / sizeof *(list)))

static real *numbers(int64_t n)
{
    return kernel_memory((size_t)n * sizeof(real));
}

static real *random_numbers(int64_t n, uint64_t seed)
{
    real *x = numbers(n);
    for (int64_t c = 0; c < n; c++)
        x[c] = (real)kernel_normal(seed * 1000003 + (uint64_t)c);
    return x;
}

/* ------------------------------------------------------------------------------------------------ verbs */

CHECK(verbs_are_their_plain_loops)
{
    for (int turn = 0; turn < 20; turn++) {
        const real *x = random_numbers(VL * VL, (uint64_t)turn + 1);
        real *y = numbers(VL * VL), lane[VL], kept[VL];
        vf rows[VL];
        double sum = 0, size = 0, top = -INFINITY;
        uint8_t keep[VL];
        int32_t index[VL];
        for (int r = 0; r < VL; r++)
            rows[r] = vf_load(x + r * VL);
        vf_transpose(rows);
        for (int r = 0; r < VL; r++)
            vf_store(y + r * VL, rows[r]);
        for (int r = 0; r < VL; r++)
            for (int c = 0; c < VL; c++)
                kernel_same(&y[r * VL + c], &x[c * VL + r], sizeof *y, "vf_transpose", r, c);
        for (int c = 0; c < VL; c++) {
            sum += (double)x[c];
            size += fabs((double)x[c]);
            top = fmax(top, (double)x[c]);
            keep[c] = (uint8_t)((turn >> c % 4) & 1);
            index[c] = (c * 7 + turn) % (VL * VL);
        }
        kernel_close((double)vf_sum(vf_load(x)), sum, VL * EPS * size, "vf_sum", turn, 0);
        kernel_close((double)vf_max_lane(vf_load(x)), top, 0, "vf_max_lane", turn, 0);
        vf_store(lane, vf_gather(x, index));
        vf_store(kept, vf_keep(vf_load(x), keep));
        for (int c = 0; c < VL; c++) {
            const real none = (real)-INFINITY;
            kernel_same(&lane[c], &x[index[c]], sizeof *x, "vf_gather", turn, c);
            kernel_same(&kept[c], keep[c] ? &x[c] : &none, sizeof *x, "vf_keep", turn, c);
        }
    }
}

/* The argument is reduced almost without error; the last two roundings of the polynomial and a little are 3 EPS. */
CHECK(exp_and_tanh_keep_their_bounds)
{
    const double lowest = RPI_F64 ? -708 : -87;
    real x[VL], e[VL], t[VL];
    for (int64_t n = 0; n < 4000; n++) {
        for (int c = 0; c < VL; c++)
            x[c] = (real)(lowest * (double)(n * VL + c) / (4000.0 * VL));
        vf_store(e, vf_exp(vf_load(x)));
        for (int c = 0; c < VL; c++) {
            const double want = exp((double)x[c]);
            kernel_close((double)e[c], want, 3 * EPS * want, "vf_exp", n, c);
        }
        for (int c = 0; c < VL; c++)
            x[c] = (real)((double)(n * VL + c - 2000 * VL) / (200.0 * VL));
        vf_store(t, vf_tanh(vf_load(x)));
        for (int c = 0; c < VL; c++) {
            const double want = tanh((double)x[c]);
            kernel_close((double)t[c], want, 4 * EPS * fabs(want), "vf_tanh", n, c);
        }
    }
    for (int c = 0; c < VL; c++)
        x[c] = c % 3 == 0 ? (real)-INFINITY : c % 3 == 1 ? (real)NAN : (real)-1e4;
    vf_store(e, vf_exp(vf_load(x)));
    for (int c = 0; c < VL; c++)
        kernel_close((double)e[c], c % 3 == 1 ? NAN : 0, 0, "vf_exp of -infinity, NaN and -10000", 0, c);
    vf_store(t, vf_tanh(vf_load(x)));
    for (int c = 0; c < VL; c++)
        kernel_close((double)t[c], c % 3 == 1 ? NAN : -1, 0, "vf_tanh of -infinity, NaN and -10000", 0, c);
}

/* ------------------------------------------------------------------------------------------------ packing */

static const rp_dtype types[] = {RP_F32, RP_F64, RP_F16, RP_BF16};

/* Whether the kernels of this precision read numbers of the type. */
static bool is_read(rp_dtype type)
{
    return RPI_F64 || type != RP_F64;
}

/* An array [2][2][rows][width] of a type with `gap` elements of NaN after each row. */
static rpi_view array_of(rp_dtype type, int64_t rows, int64_t width, int64_t gap, uint64_t seed)
{
    const int64_t step = width + gap, size = rpi_floating_size(type);
    rpi_view v = {.dtype = type,
                  .stride = {2 * rows * step, rows * step, step, 1},
                  .len = {2, 2, rows, width},
                  .data = kernel_memory((size_t)(4 * rows * step * size))};
    for (int64_t r = 0; r < 4 * rows; r++)
        for (int64_t x = 0; x < step; x++)
            rpi_put(v.data, type, r * step + x,
                    x < width ? kernel_normal(seed * 999983 + (uint64_t)(r * width + x)) : NAN);
    return v;
}

static double at_row(const rpi_view *v, int64_t b, int64_t h, int64_t j, int64_t x)
{
    return rpi_value(v->data, v->dtype, rpi_index(v, b, h, j, x));
}

/* Every half, with the numbers that lie between two of them for the way back. */
CHECK(numbers_of_any_type_are_loaded_and_stored)
{
    for (int n = 0; n < COUNT(types); n++) {
        const rp_dtype type = types[n];
        const int64_t size = rpi_floating_size(type), all = size == 2 ? 65536 : 512;
        char *from = kernel_memory((size_t)(all * size)), *stored = kernel_memory((size_t)(all * size));
        real *scratch = numbers(CHANNELS);
        if (!is_read(type))
            continue;
        for (int64_t x = 0; x < all; x++)
            if (size == 2)
                memcpy(from + 2 * x, &(uint16_t){(uint16_t)x}, 2);
            else
                rpi_put(from, type, x, kernel_normal((uint64_t)x));
        for (int64_t x0 = 0, m = 1; x0 < all; x0 += m, m = m % CHANNELS + 1) { /* 1 to CHANNELS of them at a time */
            const int64_t n_channels = rpi_min(m, all - x0);
            rpi_view v = {.dtype = type};
            const real *got = load_channels(&v, from, x0, n_channels, scratch);
            for (int64_t x = 0; x < n_channels; x++)
                kernel_close((double)got[x], rpi_value(from, type, x0 + x), 0, "load_channels", type, x0 + x);
            store_channels(stored, type, x0, got, n_channels);
        }
        for (int64_t x = 0; x < all; x++)
            kernel_close(rpi_value(stored, type, x), rpi_value(from, type, x), 0, "store_channels", type, x);
        for (int64_t x = 0; x < 4096; x++) { /* between them */
            const uint16_t low = (uint16_t)(x * 5 + x / 2), code[2] = {low, (uint16_t)(low + 1)};
            const real y = x % 2 && size == 2 /* in the middle, or anywhere */
                               ? (real)((rpi_value(code, type, 0) + rpi_value(code, type, 1)) / 2)
                               : (real)(kernel_normal((uint64_t)x) * ldexp(1, (int)(x % 40) - 20));
            if (isnan(y))
                continue;
            uint64_t one = 0, plain = 0;
            real many[CHANNELS];
            char copies[CHANNELS * sizeof(double)];
            for (int c = 0; c < CHANNELS; c++)
                many[c] = y;
            store_channels(copies, type, 0, many, CHANNELS);
            memcpy(&one, copies + x % CHANNELS * size, (size_t)size);
            rpi_put(&plain, type, 0, (double)y);
            kernel_same(&one, &plain, sizeof one, "store_channels of a number between two", type, x);
        }
    }
}

CHECK(keys_are_packed_in_panels)
{
    static const int widths[] = {1, 7, 8, 15, 16, 17, 64, 65, 130};
    for (int n = 0; n < COUNT(widths); n++)
        for (int k = 0; k < COUNT(types); k++) {
            const int64_t width = widths[n], rows = 2 * NR + 3, j0 = k % 2 * NR, there = rows - j0;
            rpi_view v = array_of(types[k], rows, width, n % 3, (uint64_t)n + 1);
            real *to = numbers(3 * NR * width);
            uint8_t *extreme = kernel_memory(3);
            if (!is_read(types[k]))
                continue;
            memset(extreme, 0, 3);
            if (types[k] == RP_F32 && width > 3) /* huge, in the second panel */
                rpi_put(v.data, types[k], rpi_index(&v, 1, 0, j0 + NR + 1, width - 1), 1e30);
            pack_panels(&v, 1, 0, j0, 3 * NR, rows, width, NULL, NULL, to, extreme);
            for (int64_t r = 0; r < 3 * NR; r++)
                for (int64_t x = 0; x < width; x++)
                    kernel_close((double)to[r / NR * NR * width + x * NR + r % NR],
                                 r < there ? at_row(&v, 1, 0, j0 + r, x) : 0, 0, "pack_panels", r, x);
            for (int panel = 0; panel < 3; panel++)
                kernel_true(extreme[panel] == (panel == 1 && types[k] == RP_F32 && width > 3 && NR + 1 < there),
                            "pack_panels tells of a huge number", panel, k);
        }
}

CHECK(non_finite_rows_are_found_and_cleared)
{
    static const real odd[] = {(real)NAN, (real)INFINITY, (real)-INFINITY, REAL_MAX};
    for (int n = 0; n < COUNT(odd); n++)
        for (int64_t x = 0; x < 3 * VL; x++) {
            real *row = random_numbers(3 * VL, 3), *columns = random_numbers(4 * (NR + VL), 4);
            uint8_t *extreme = kernel_memory(4);
            magnitude w = {vf_set1(0)};
            double top = 0;
            row[x] = odd[n];
            for (int64_t c = 0; c < 3 * VL; c += VL)
                note_magnitude(&w, vf_load(row + c));
            for (int64_t c = 0; c < 3 * VL; c++)
                top = fmax(top, fabs((double)row[c]));
            kernel_true(is_finite(&w) == (n == 3), "is_finite", n, x);
            if (n == 3)
                kernel_close((double)vf_max_lane(w.max), top, 0, "the largest size", n, x);
            /* row 2 of 4 in columns as wide as NR, and one vector */
            const int64_t wide = NR + VL, at = x % wide;
            *in_column(columns, 4, 2, wide, at) = odd[n];
            clear_extreme(columns, 4, 0, 4, wide, extreme);
            for (int64_t r = 0; r < 4; r++) {
                kernel_true(extreme[r] == (r == 2 && n < 3), "clear_extreme tells of the row", n, r);
                for (int64_t c = 0; c < wide; c++) {
                    const real *got = in_column(columns, 4, r, wide, c);
                    kernel_true(r == 2 && n < 3 ? *got == 0 : *got != 0, "clear_extreme clears it alone", r, c);
                }
            }
            kernel_borders();
        }
}

CHECK(rows_are_rotated_and_back)
{
    static const int dims[] = {2, 6, 16, 34};
    for (int n = 0; n < COUNT(dims); n++)
        for (int layout = 0; layout < 2; layout++) {
            const int64_t dim = dims[n], step = layout ? NR : 1;
            rp_term t = rp_term_init(RP_TERM_ROPE);
            real *rope = numbers(dim), *row = numbers(dim * step);
            const real *before = random_numbers(dim, 5);
            t.dim = dim;
            t.layout = layout ? RP_LAYOUT_INTERLEAVED : RP_LAYOUT_HALF;
            for (int64_t c = 0; c < dim / 2; c++) {
                rope[2 * c] = (real)cos(0.3 * (double)(c + 1));
                rope[2 * c + 1] = (real)sin(0.3 * (double)(c + 1));
            }
            for (int64_t x = 0; x < dim; x++)
                row[x * step] = before[x];
            rotate_row(&t, rope, 1, row, step);
            for (int64_t c = 0; c < dim / 2; c++) {
                const int64_t u = layout ? 2 * c : c, v = layout ? 2 * c + 1 : c + dim / 2;
                const double a = (double)before[u], b = (double)before[v], cosine = (double)rope[2 * c],
                             sine = (double)rope[2 * c + 1], size = 3 * EPS * (fabs(a) + fabs(b));
                kernel_close((double)row[u * step], a * cosine - b * sine, size, "rotate_row", dim, u);
                kernel_close((double)row[v * step], a * sine + b * cosine, size, "rotate_row", dim, v);
            }
            rotate_row(&t, rope, -1, row, step);
            for (int64_t x = 0; x < dim; x++)
                kernel_close((double)row[x * step], (double)before[x], 30 * EPS, "rotate_row and back", dim, x);
        }
}

/* ------------------------------------------------------------------------------------------------ register tiles */

/* One tile of MR x NR, and one row of it, in rows of s that are wider. */
CHECK(scores_are_products_that_start_at_a_bias)
{
    static const int widths[] = {1, 2, 7, 8, 9, 16, 33, 64, 65};
    for (int n = 0; n < COUNT(widths); n++)
        for (int form = 0; form < 4; form++) {
            const int64_t dim = widths[n], step = NR + 5, rows = form % 2 ? 1 : MR, col = 3;
            const real *q = random_numbers(dim * MR, 6), *k = random_numbers(dim * NR, 7);
            const real *biases = random_numbers(MR * (NR + col), 8), *bias[MR];
            real *s = numbers(rows * step), *max = numbers(rows * VL);
            for (int r = 0; r < MR; r++)
                bias[r] = biases + r * (NR + col);
            for (int64_t x = 0; x < rows * VL; x++)
                max[x] = (real)0.25;
            if (rows == 1)
                score_rows(1, q, k, dim, form < 2 ? bias : NULL, col, s, step, max, q);
            else
                score_tile(q, k, dim, form < 2 ? bias : NULL, col, s, step, max, q);
            for (int64_t r = 0; r < rows; r++) {
                double top = 0.25, found = -INFINITY;
                for (int64_t j = 0; j < step; j++) {
                    double want = form < 2 ? (double)bias[r][rpi_min(col + j, NR + col - 1)] : 0, size = fabs(want);
                    for (int64_t d = 0; d < dim && j < NR; d++) {
                        const double product = (double)q[d * MR + r] * (double)k[d * NR + j];
                        want += product;
                        size += fabs(product);
                    }
                    if (j >= NR && r + 1 < rows)
                        kernel_true(isnan(s[r * step + j]) != 0, "score_tile writes NR columns", r, j);
                    if (j >= NR)
                        break;
                    kernel_close((double)s[r * step + j], want, (double)(2 * dim + 1) * EPS * size, "score_tile", r, j);
                    top = fmax(top, (double)s[r * step + j]);
                }
                for (int64_t x = 0; x < VL; x++)
                    found = fmax(found, (double)max[r * VL + x]);
                kernel_close(found, top, 0, "score_tile's maximum", r, dim);
            }
        }
}

/* Values of n rows in packed columns, each as wide as NR or what is left; NaN where there are none. */
static real *packed_values(const real *values, int64_t n, int64_t pad, int64_t first, int64_t wide)
{
    real *to = numbers(pad * wide);
    for (int64_t j = 0; j < n; j++)
        for (int64_t x = 0; x < wide; x++)
            *in_column(to, pad, first + j, wide, x) = values[j * wide + x];
    return to;
}

CHECK(values_are_summed_by_weights)
{
    static const int keys[] = {1, 5, 16, 127, 128, 129, 300};
    for (int n = 0; n < COUNT(keys); n++)
        for (int64_t wide = VL; wide <= 2 * NR + VL; wide += VL) {
            const int64_t m = keys[n], first = n % 3, j0 = n % 2 ? VL : 0, pad = m + first + j0 + 2, step = m + j0 + 3;
            const real *w = random_numbers(MR * step, 9), *v = random_numbers(m * wide, 10);
            const real *before = random_numbers(MR * wide, 11), *alpha = random_numbers(MR, 12);
            const real *packed = packed_values(v, m, pad, first + j0, wide);
            real *o = numbers(MR * wide);
            memcpy(o, before, (size_t)(MR * wide) * sizeof *o);
            add_values(w, step, j0, j0 + m, packed, first, pad, o, wide, alpha, -1);
            for (int64_t r = 0; r < MR; r++)
                for (int64_t x = 0; x < wide; x++) {
                    double want = (double)before[r * wide + x] * (double)alpha[r], size = fabs(want);
                    for (int64_t j = 0; j < m; j++) {
                        const double product = (double)w[r * step + j0 + j] * (double)v[j * wide + x];
                        want += product;
                        size += fabs(product);
                    }
                    kernel_close((double)o[r * wide + x], want, (double)(2 * m + 4) * EPS * size, "add_values", r, x);
                }
        }
}

CHECK(transposed_products_are_added)
{
    static const int rows[] = {1, 5, 6, 13, 96};
    for (int n = 0; n < COUNT(rows); n++)
        for (int64_t wide = VL; wide <= NR + VL; wide += VL) {
            const int64_t m = rows[n], i0 = n % 2, step = MR + 3, pad = m + i0 + 1;
            const real *w = random_numbers((m + i0) * step, 13), *v = random_numbers(m * wide, 14);
            const real *packed = packed_values(v, m, pad, i0, wide), *before = random_numbers(MR * wide, 15);
            real *o = numbers(MR * wide);
            memcpy(o, before, (size_t)(MR * wide) * sizeof *o);
            add_transposed(w, step, i0, i0 + m, packed, pad, o, wide);
            for (int64_t r = 0; r < MR; r++)
                for (int64_t x = 0; x < wide; x++) {
                    double want = (double)before[r * wide + x], size = fabs(want);
                    for (int64_t i = 0; i < m; i++) {
                        const double product = (double)w[(i0 + i) * step + r] * (double)v[i * wide + x];
                        want += product;
                        size += fabs(product);
                    }
                    kernel_close((double)o[r * wide + x], want, (double)(2 * m + 2) * EPS * size, "add_transposed", r,
                                 x);
                }
        }
}

/* Rows of values in place, some numbers apart; one row of weights, and MR of them. */
CHECK(values_in_place_are_summed_by_weights)
{
    static const int keys[] = {1, 5, 33, 128};
    for (int n = 0; n < COUNT(keys); n++)
        for (int nv = 1; nv <= ROW_VECTORS; nv++)
            for (int single = 0; single < 2; single++) {
                const int64_t m = keys[n], width = nv * VL, v_step = width + 3, rows = single ? 1 : MR, step = m + 2;
                const real *w = random_numbers(MR * step, 16), *v = random_numbers(m * v_step, 17);
                const real *before = random_numbers(MR * width, 18), *alpha = random_numbers(MR, 19);
                real *o = numbers(rows * width);
                memcpy(o, before, (size_t)(rows * width) * sizeof *o);
#define IN_PLACE(N)                                                                                                    \
    if (nv == (N))                                                                                                     \
        (single ? single_tile_##N : unpacked_tile_##N)(w, step, m, v, v_step, o, width, alpha, NULL);
                IN_PLACE(1)
                IN_PLACE(2)
                IN_PLACE(3)
                IN_PLACE(4)
#undef IN_PLACE
                for (int64_t r = 0; r < rows; r++)
                    for (int64_t x = 0; x < width; x++) {
                        double want = (double)before[r * width + x] * (double)alpha[r], size = fabs(want);
                        for (int64_t j = 0; j < m; j++) {
                            const double product = (double)w[r * step + j] * (double)v[j * v_step + x];
                            want += product;
                            size += fabs(product);
                        }
                        kernel_close((double)o[r * width + x], want, (double)(2 * m + 4) * EPS * size,
                                     single ? "single_tile" : "unpacked_tile", r, x);
                    }
            }
}

/* ------------------------------------------------------------------------------------------------ softmax */

CHECK(biases_are_added_and_infinity_masks)
{
    static const double odd[] = {0.5, -0.0, -INFINITY, INFINITY, NAN, -1, 1};
    enum { N = COUNT(odd) * COUNT(odd) };
    const int64_t end = rpi_round_up(N, NR);
    real *a = numbers(end), *b = numbers(end), *to = numbers(ROW_STEP);
    const real *rows_a[1] = {a}, *rows_b[1] = {b}, *total[1];
    for (int64_t x = 0; x < end; x++) {
        const double p = odd[x % N / COUNT(odd)], q = odd[x % N % COUNT(odd)];
        a[x] = p == 1 || p == -1 ? (real)p * REAL_MAX : (real)p;
        b[x] = q == 1 || q == -1 ? (real)q * REAL_MAX : (real)q;
    }
    add_rows(total, rows_a, rows_b, to, 1, end);
    kernel_true(total[0] == to, "add_rows says where the sums are", 0, 0);
    for (int64_t x = 0; x < end; x++) {
        const double p = (double)a[x], q = (double)b[x];
        double want = (double)(real)(p + q);
        if (p == -INFINITY || q == -INFINITY)
            want = -INFINITY;
        else if (isfinite(p) && isfinite(q) && isinf(want))
            want = copysign((double)REAL_MAX, want);
        kernel_close((double)to[x], want, 0, "add_rows", x / COUNT(odd), x % COUNT(odd));
    }
}

CHECK(columns_outside_an_interval_are_masked)
{
    const int64_t from = VL, to = 4 * VL;
    for (int64_t lo = -2; lo <= 5 * VL; lo++)
        for (int64_t hi = -1; hi <= 5 * VL; hi += 3) {
            const real *before = random_numbers(5 * VL, 20);
            real *s = numbers(5 * VL);
            memcpy(s, before, (size_t)(5 * VL) * sizeof *s);
            mask_outside(s, from, to, lo, hi);
            for (int64_t j = from; j < to; j++) /* before and after lies what nobody reads */
                kernel_close((double)s[j], j >= lo && j < hi ? (double)before[j] : -INFINITY, 0, "mask_outside", lo, j);
            for (int64_t j = to; j < 5 * VL; j++)
                kernel_same(&s[j], &before[j], sizeof *s, "mask_outside past its columns", lo, j);
            kernel_borders();
        }
}

/* A block of one group of rows, with what the kernels of the softmax read. */
typedef struct small_block {
    rpi_args args;
    rpi_call call;
    block k;
    tile t;
} small_block;

static small_block *block_of(void)
{
    small_block *b = kernel_memory(sizeof *b);
    memset(b, 0, sizeof *b);
    b->args.desc = rp_desc_init(1, 1, MR, 1000, 4);
    b->call.args = &b->args;
    b->k.c = &b->call;
    b->k.rows = BLOCK_ROWS;
    b->k.groups = BLOCK_ROWS / MR;
    b->k.s = random_numbers(BLOCK_ROWS * ROW_STEP, 21);
    b->k.keep = kernel_memory((size_t)BLOCK_ROWS * TILE_KEYS);
    b->k.tile_max = numbers(BLOCK_ROWS * VL);
    b->k.running_max = numbers(BLOCK_ROWS);
    b->k.sum = numbers(BLOCK_ROWS);
    b->k.lo = kernel_memory(BLOCK_ROWS * sizeof *b->k.lo);
    b->k.hi = kernel_memory(BLOCK_ROWS * sizeof *b->k.hi);
    for (int64_t r = 0; r < BLOCK_ROWS; r++) {
        b->k.lo[r] = 3 + r;
        b->k.hi[r] = TILE_KEYS - 5 + r;
        memset(b->k.keep + r * TILE_KEYS, 1, TILE_KEYS);
    }
    b->t.end = TILE_KEYS;
    return b;
}

CHECK(softcap_and_masks_finish_the_scores)
{
    for (int form = 0; form < 16; form++) {
        small_block *b = block_of();
        const bool inside = form & 1, outside = form & 2, masks = form & 4, pairs = form & 8;
        const int64_t r = form % MR, from = NR, to = 3 * NR, lo = b->k.lo[r], hi = b->k.hi[r];
        real *in_row = random_numbers(TILE_KEYS, 22), *out_row = random_numbers(TILE_KEYS, 23);
        const real *in[BLOCK_ROWS] = {0}, *out[BLOCK_ROWS] = {0}, *before = random_numbers(BLOCK_ROWS * ROW_STEP, 21);
        in[r] = in_row;
        out[r] = out_row;
        in_row[from + 1] = out_row[from + 2] = (real)-INFINITY;
        b->args.desc.softcap = 1.5;
        b->args.desc.cap_after = inside;
        b->k.slope = numbers(BLOCK_ROWS * ROW_STEP);
        b->t.edge = masks;
        b->t.pairs = b->t.check_biases = pairs;
        for (int64_t j = 0; j < TILE_KEYS; j++)
            b->k.keep[r * TILE_KEYS + j] = j % 5 != 2;
        finish_scores(&b->k, &b->t, inside ? in : NULL, outside ? out : NULL, r, from, to);
        for (int64_t j = from; j < to; j++) {
            const double x = (double)before[r * ROW_STEP + j], bent = tanh(x / 1.5);
            double want = 1.5 * bent + (outside ? (double)out_row[j] : 0);
            bool open = !(inside && in_row[j] == (real)-INFINITY) && !(outside && out_row[j] == (real)-INFINITY);
            if (masks)
                open &= pairs ? j % 5 != 2 : j >= lo && j < hi;
            if (!open)
                want = -INFINITY;
            kernel_close((double)b->k.s[r * ROW_STEP + j], want, 12 * EPS * (1.5 + fabs(want)), "finish_scores", form,
                         j);
            kernel_close((double)b->k.slope[r * ROW_STEP + j], 1 - bent * bent, 16 * EPS, "the slope of the softcap",
                         form, j);
        }
        kernel_borders();
    }
}

CHECK(the_running_maximum_rescales_the_sum)
{
    small_block *b = block_of();
    real *alpha = numbers(BLOCK_ROWS), *first = numbers(BLOCK_ROWS), *sum = numbers(BLOCK_ROWS);
    vf sums[VL];
    for (int64_t r = 0; r < BLOCK_ROWS; r++) {
        const int64_t end = NR + r % 3 * NR;
        double top = -INFINITY, found = -INFINITY;
        if (r % 4 == 1) /* a masked row */
            for (int64_t j = 0; j < end; j++)
                b->k.s[r * ROW_STEP + j] = (real)-INFINITY;
        b->k.running_max[r] = first[r] = r % 5 == 2 ? (real)-INFINITY : (real)(r % 7) - 3;
        b->k.sum[r] = sum[r] = (real)(1 + r % 3);
        find_row_max(&b->k, r, 0, end);
        for (int64_t j = 0; j < end; j++)
            top = fmax(top, (double)b->k.s[r * ROW_STEP + j]);
        for (int64_t x = 0; x < VL; x++)
            found = fmax(found, (double)b->k.tile_max[r * VL + x]);
        kernel_close(found, top, 0, "find_row_max", r, 0);
    }
    for (int64_t r0 = 0; r0 < BLOCK_ROWS; r0 += VL)
        raise_running_max(&b->k, r0, alpha);
    for (int64_t r = 0; r < BLOCK_ROWS; r++) {
        const int64_t end = NR + r % 3 * NR;
        double top = (double)first[r], factor;
        for (int64_t j = 0; j < end; j++)
            top = fmax(top, (double)b->k.s[r * ROW_STEP + j]);
        factor = top > (double)first[r] ? exp((double)first[r] - top) : 1;
        kernel_close((double)b->k.running_max[r], top, 0, "raise_running_max", r, 0);
        kernel_close((double)alpha[r], factor, 6 * EPS * factor, "raise_running_max's factor", r, 0);
        kernel_close((double)b->k.sum[r], (double)sum[r] * factor, 8 * EPS * (double)sum[r] * factor,
                     "raise_running_max's sum", r, 0);
        kernel_close((double)vf_sum(score_shift(&b->k, r)), top == -INFINITY ? 0 : VL * top, 0, "score_shift", r, 0);
        sum[r] = b->k.sum[r];
    }
    const real *x = random_numbers(VL * VL, 24);
    for (int r = 0; r < VL; r++)
        sums[r] = vf_load(x + r * VL);
    add_sums(&b->k, 0, sums);
    for (int64_t r = 0; r < VL; r++) {
        double want = (double)sum[r], size = fabs(want);
        for (int64_t c = 0; c < VL; c++) {
            want += (double)x[r * VL + c];
            size += fabs((double)x[r * VL + c]);
        }
        kernel_close((double)b->k.sum[r], want, (VL + 1) * EPS * size, "add_sums", r, 0);
    }
}

CHECK(dropout_is_that_of_the_pair)
{
    small_block *b = block_of();
    const int64_t r = 4, from = NR, to = 3 * NR;
    real *row = random_numbers(TILE_KEYS, 25);
    const real *before = random_numbers(TILE_KEYS, 25);
    b->args.desc.dropout = 0.3;
    b->args.desc.seed = 77;
    b->k.b = 2, b->k.h = 3, b->k.row0 = 50;
    b->t.tile0 = ((int64_t)5 << 32) + 512; /* the number of a key has two halves */
    apply_dropout(&b->k, &b->t, r, from, to, row);
    for (int64_t j = 0; j < TILE_KEYS; j++) { /* 16 at a time: what follows the last column belongs to nobody */
        const bool kept = rpi_random(rpi_dropout_at(77, 2, 3, 54), b->t.tile0 + j) >= rpi_dropout_limit(0.3);
        const double want = j < from || j >= to ? (double)before[j] : kept ? (double)before[j] / (1 - 0.3) : 0;
        if (j >= to && j < from + rpi_round_up(to - from, 16))
            continue;
        kernel_close((double)row[j], want, 2 * EPS * fabs(want), "drop", r, j);
    }
}

/* Sums by vector: columns that lie before the first vector belong to it, or to none; so with the last. */
CHECK(weights_of_a_run_are_collected)
{
    enum { R = 40, LOW = 2, FROM = VL, TO = 3 * VL };
    for (int64_t at = -4 * VL; at <= R + 4; at++)
        for (int zero = 0; zero < 2; zero++) {
            const real *x = random_numbers(4 * VL, 26), *before = random_numbers(R, 27);
            real *sums = numbers(R - LOW);
            double want[R], size[R];
            if (LOW > 0 && at + FROM < LOW)
                continue; /* the window begins at LOW */
            for (int64_t e = LOW; e < R; e++) {
                sums[e - LOW] = before[e];
                want[e] = (double)before[e];
                size[e] = fabs(want[e]);
            }
            collect_run(x, FROM, TO, at, R, zero, sums, LOW);
            for (int64_t j = FROM; j < TO; j++) {
                const int64_t e = rpi_clamp(at + j, 0, R - 1);
                if (zero && e != at + j)
                    continue;
                want[e] += (double)x[j];
                size[e] += fabs((double)x[j]);
            }
            for (int64_t e = LOW; e < R; e++)
                kernel_close((double)sums[e - LOW], want[e], 3 * VL * EPS * size[e], "collect_run", at, e);
            kernel_borders();
        }
    for (int64_t from = 0; from < 3 * VL; from++)
        for (int64_t to = from; to <= 4 * VL; to++) {
            const real *x = random_numbers(4 * VL, 28);
            double want = 0, size = 0;
            for (int64_t j = from; j < to; j++) {
                want += (double)x[j];
                size += fabs((double)x[j]);
            }
            kernel_close((double)range_sum(x, from, to), want, 4 * VL * EPS * size, "range_sum", from, to);
            kernel_borders();
        }
}

#if !RPI_AMX
CHECK(values_are_packed_in_columns)
{
    static const int widths[] = {1, 7, 8, 15, 16, 17, 64, 65, 130};
    for (int n = 0; n < COUNT(widths); n++)
        for (int k = 0; k < COUNT(types); k++) {
            const int64_t width = widths[n], wide = rpi_round_up(width, VL), rows = 21, j0 = 2, m = 24, first = 3,
                          pad = 30;
            rpi_view v = array_of(types[k], rows, width, n % 3, (uint64_t)n + 31);
            real *to = numbers(pad * wide);
            uint8_t *extreme = kernel_memory((size_t)m);
            if (!is_read(types[k]))
                continue;
            if (n % 2)
                rpi_put(v.data, types[k], rpi_index(&v, 0, 1, j0 + 5, width - 1), n % 4 == 1 ? NAN : -INFINITY);
            pack_columns(&v, 0, 1, j0, m, rows, width, to, first, pad, extreme);
            for (int64_t r = 0; r < m; r++) {
                const bool odd = n % 2 && r == 5;
                kernel_true(extreme[r] == odd, "pack_columns tells of a row", n, r);
                for (int64_t x = 0; x < wide; x++)
                    kernel_close((double)*in_column(to, pad, first + r, wide, x),
                                 odd || x >= width || j0 + r >= rows ? 0 : at_row(&v, 0, 1, j0 + r, x), 0,
                                 "pack_columns", r, x);
            }
            for (int64_t x = 0; x < wide; x++) { /* rows beside them are not written */
                kernel_true(isnan(*in_column(to, pad, first - 1, wide, x)) != 0, "pack_columns, row before", n, x);
                kernel_true(isnan(*in_column(to, pad, first + m, wide, x)) != 0, "pack_columns, row after", n, x);
            }
            kernel_borders();
        }
}
#else

/* ------------------------------------------------------------------------------------------------ AMX tiles */

/* What components leave out of a product, as a share of it: i + j >= components, each component at most 2^-8 of the one before. */
static double left_out(int components)
{
    return components == 1 ? 0x1p-8 : components == 2 ? 0x1p-15 : 0x1p-23;
}

/* Numbers that the components hold exactly. */
static real *exact_numbers(int64_t n, uint64_t seed, int components)
{
    real *x = random_numbers(n, seed);
    for (int64_t c = 0; c < n && components < 3; c++) {
        const rp_dtype type = components == 1 ? RP_BF16 : RP_F16;
        uint16_t half;
        rpi_put(&half, type, 0, (double)x[c]);
        x[c] = (real)rpi_value(&half, type, 0);
    }
    return x;
}

/* `components` of a number of 16 pairs, added up again. */
static double component_sum(const vu *component, int components, int lane, int second)
{
    double sum = 0;
    for (int n = 0; n < components; n++) {
        uint32_t pairs[VL];
        float x;
        memcpy(pairs, &component[n], sizeof pairs);
        const uint32_t bits = second ? pairs[lane] & 0xffff0000u : pairs[lane] << 16;
        memcpy(&x, &bits, 4);
        sum += (double)x;
    }
    return sum;
}

CHECK(numbers_are_sums_of_bf16)
{
    for (int turn = 0; turn < 200; turn++)
        for (int components = 1; components <= 3; components++) {
            const real *x = random_numbers(2 * VL, (uint64_t)turn + 40);
            const double bound = components == 1 ? 0x1p-8 : components == 2 ? 0x1p-16 : 0;
            vu split[3], cut[3];
            vf as_vector[3], cut_vectors[3];
            switch (components) {
            case 1: bf16_pair(vf_load(x), vf_load(x + VL), 1, split), bf16_vector(vf_load(x), 1, as_vector); break;
            case 2:
                bf16_pair(vf_load(x), vf_load(x + VL), 2, split), bf16_vector(vf_load(x), 2, as_vector);
                bf16_pair_truncated(vf_load(x), vf_load(x + VL), 2, cut),
                    bf16_vector_truncated(vf_load(x), 2, cut_vectors);
                break;
            default:
                bf16_pair(vf_load(x), vf_load(x + VL), 3, split), bf16_vector(vf_load(x), 3, as_vector);
                bf16_pair_truncated(vf_load(x), vf_load(x + VL), 3, cut),
                    bf16_vector_truncated(vf_load(x), 3, cut_vectors);
            }
            for (int c = 0; c < 2 * VL; c++) {
                const double want = (double)x[c];
                kernel_close(component_sum(split, components, c % VL, c >= VL), want, bound * fabs(want), "bf16_pair",
                             components, c);
                if (components > 1)
                    kernel_close(component_sum(cut, components, c % VL, c >= VL), want, 2 * bound * fabs(want),
                                 "bf16_pair_truncated", components, c);
            }
            for (int n = 0; n < components; n++)
                for (int c = 0; c < VL; c++) {
                    const double one = component_sum(split + n, 1, c, 0),
                                 other = component_sum(cut + (components > 1 ? n : 0), 1, c, 0);
                    kernel_close((double)as_vector[n][c], one, 0, "bf16_vector", n, c);
                    if (components > 1)
                        kernel_close((double)cut_vectors[n][c], other, 0, "bf16_vector_truncated", n, c);
                }
        }
}

/* Roundings of a sum on tiles: of a chunk 16 twice, and two more, for each product of components. */
static double tile_roundings(int64_t chunks, int components)
{
    return (double)(18 + 2 * chunks * components * (components + 1) / 2) * EPS;
}

/* out [mt * 16][nt * 16] = start + left right^T for operands that were packed from rows and from an array. */
CHECK(tiles_multiply_packed_rows)
{
    static const int widths[] = {1, 16, 31, 32, 33, 64, 97};
    const int64_t n_rows = 2 * TILE_SIDE, columns = NR, step = columns + 4;
    for (int n = 0; n < COUNT(widths); n++)
        for (int components = 1; components <= 3; components++) {
            const rp_dtype type = components == 1 ? RP_BF16 : components == 2 ? RP_F16 : RP_F32;
            const int64_t width = widths[n], wide = rpi_round_up(width, CHUNK), chunks = wide / CHUNK,
                          there = columns - 3;
            rpi_view v = array_of(type, there, width, 1, (uint64_t)n + 51);
            const real *q = exact_numbers(n_rows * wide, 52, components), *start = random_numbers(n_rows * step, 53);
            uint32_t *left = kernel_memory((size_t)(n_rows * wide * components) * 2),
                     *right = kernel_memory((size_t)(columns * wide * components) * 2);
            real *scratch = numbers(TILE_SIDE * wide), *out = numbers(n_rows * step);
            uint8_t *extreme = kernel_memory(1);
            *extreme = 0;
            pack_rows(q, wide, n_rows, wide, components, left);
            amx_pack_panels(&v, 1, 1, 0, columns, there, width, NULL, NULL, components, right, extreme, NULL, scratch);
            kernel_true(*extreme == 0, "amx_pack_panels finds no huge number", n, components);
            for (int mt = 1; mt <= 2; mt++)
                for (int nt = 1; nt <= 2; nt++) {
                    const operand a = {left, chunks * components * FRAGMENT, components * FRAGMENT, components},
                                  b = {right, chunks * components * FRAGMENT, components * FRAGMENT, components};
                    const real *from[2] = {start, start + TILE_SIDE * step};
                    const int64_t from_step[2] = {step, step};
                    for (int64_t x = 0; x < n_rows * step; x++)
                        out[x] = (real)-77;
                    product(mt, nt, &a, &b, chunks, n % 2 ? from : NULL, from_step, out, step, NULL);
                    for (int64_t r = 0; r < n_rows; r++)
                        for (int64_t j = 0; j < step; j++) {
                            double want = n % 2 ? (double)start[r * step + j] : 0, size = fabs(want), lost = 0;
                            for (int64_t x = 0; x < width && j < there; x++) {
                                const double p = (double)q[r * wide + x] * at_row(&v, 1, 1, j, x);
                                want += p;
                                lost += fabs(p);
                            }
                            if (r >= mt * TILE_SIDE || j >= nt * TILE_SIDE)
                                kernel_close((double)out[r * step + j], -77, 0, "product writes its tiles alone", r, j);
                            else
                                kernel_close((double)out[r * step + j], want,
                                             (components == 1 ? 0 : left_out(components)) * lost +
                                                 tile_roundings(chunks, components) * (size + 2 * lost),
                                             "product of packed rows", r, j);
                        }
                }
            kernel_borders();
        }
}

/* Values as right operand of a sum over the rows, with weights as left one: what weigh_tile does. */
CHECK(tiles_multiply_across_rows)
{
    static const int widths[] = {1, 16, 17, 40};
    const int64_t n_rows = TILE_SIDE, keys = 2 * CHUNK;
    for (int n = 0; n < COUNT(widths); n++)
        for (int components = 1; components <= 3; components++) {
            const rp_dtype type = components == 1 ? RP_BF16 : components == 2 ? RP_F16 : RP_F32;
            const int64_t width = widths[n], wide = rpi_round_up(width, CHUNK),
                          columns = rpi_round_up(width, TILE_SIDE) / TILE_SIDE, there = keys - 7, odd = 9;
            rpi_view v = array_of(type, there, width, 2, (uint64_t)n + 61);
            const real *w = exact_numbers(n_rows * keys, 62, components);
            uint32_t *left = kernel_memory((size_t)(n_rows * keys * components) * 2),
                     *right = kernel_memory((size_t)(keys * columns * TILE_SIDE * components) * 2);
            real *scratch = numbers(CHUNK * wide), *out = numbers(n_rows * columns * TILE_SIDE);
            uint8_t *extreme = kernel_memory((size_t)keys);
            if (n % 2)
                rpi_put(v.data, type, rpi_index(&v, 0, 1, odd, width - 1), NAN);
            pack_rows(w, keys, n_rows, keys, components, left);
            amx_pack_columns(&v, 0, 1, 0, keys, there, width, NULL, NULL, components, (real)MAX_VALUE, right, extreme,
                             scratch);
            for (int64_t x = 0; x < columns; x++) {
                const operand a = {left, keys / CHUNK * components * FRAGMENT, components * FRAGMENT, components},
                              b = {right + x * components * FRAGMENT, components * FRAGMENT,
                                   columns * components * FRAGMENT, components};
                product(1, 1, &a, &b, keys / CHUNK, NULL, NULL, out + x * TILE_SIDE, columns * TILE_SIDE, NULL);
            }
            for (int64_t j = 0; j < keys; j++)
                kernel_true(extreme[j] == (n % 2 && j == odd), "amx_pack_columns tells of a row", n, j);
            for (int64_t r = 0; r < n_rows; r++)
                for (int64_t x = 0; x < columns * TILE_SIDE; x++) {
                    double want = 0, size = 0;
                    for (int64_t j = 0; j < there && x < width; j++) {
                        const double p = n % 2 && j == odd ? 0 : (double)w[r * keys + j] * at_row(&v, 0, 1, j, x);
                        want += p;
                        size += fabs(p);
                    }
                    kernel_close(
                        (double)out[r * columns * TILE_SIDE + x], want,
                        ((components == 1 ? 0 : left_out(components)) + 3 * tile_roundings(keys / CHUNK, components)) *
                            size,
                        "product across rows", r, x);
                }
            kernel_borders();
        }
}

/* sums [channels][keys] += q^T ds, and back to [keys][channels]: what the backward pass does. */
CHECK(tiles_multiply_transposed_rows)
{
    static const int groups[] = {1, 3, 6, 16};
    for (int n = 0; n < COUNT(groups); n++)
        for (int components = 2; components <= 3; components++) {
            const int64_t wide = 2 * CHUNK, rows = groups[n] * MR, padded = rpi_round_up(rows, CHUNK), keys = 2 * NR;
            const real *q = random_numbers(BLOCK_ROWS * wide, 71);
            real *ds = random_numbers(BLOCK_ROWS * ROW_STEP, 72);
            real *q_padded = numbers(BLOCK_ROWS * wide), *sums = numbers(wide * BACKWARD_KEYS),
                 *by_key = numbers(keys * wide);
            uint32_t *left = kernel_memory((size_t)(BLOCK_ROWS * wide * 3) * 2),
                     *right = kernel_memory((size_t)(BLOCK_ROWS * BACKWARD_KEYS * 3) * 2);
            rp_plan *plan = kernel_memory(sizeof *plan);
            small_block *b = block_of();
            memset(plan, 0, sizeof *plan);
            plan->components = components;
            b->call.plan = plan;
            b->k.groups = groups[n];
            for (int64_t x = 0; x < BLOCK_ROWS * wide; x++)
                q_padded[x] = x < rows * wide ? q[x] : 0;
            for (int64_t x = rows * ROW_STEP; x < BLOCK_ROWS * ROW_STEP; x++)
                ds[x] = (real)NAN; /* of no row */
            for (int64_t x = 0; x < wide * BACKWARD_KEYS; x++)
                sums[x] = (real)0.5;
            pack_by_rows(&b->k, ds, keys, components, right);
            pack_channels(q_padded, wide, padded, components, left);
            add_transposed_products(&b->k, left, components, right, wide, keys, sums);
            transpose_back(sums, wide, keys, by_key);
            for (int64_t j = 0; j < keys; j++)
                for (int64_t x = 0; x < wide; x++) {
                    double want = 0.5, size = 0.5;
                    for (int64_t r = 0; r < rows; r++) {
                        want += (double)q[r * wide + x] * (double)ds[r * ROW_STEP + j];
                        size += fabs((double)q[r * wide + x] * (double)ds[r * ROW_STEP + j]);
                    }
                    kernel_close((double)sums[x * BACKWARD_KEYS + j], want,
                                 (left_out(components) + 3 * tile_roundings(padded / CHUNK, components)) * size,
                                 "add_transposed_products", j, x);
                    kernel_same(&by_key[j * wide + x], &sums[x * BACKWARD_KEYS + j], sizeof(real), "transpose_back", j,
                                x);
                }
            for (int64_t x = 0; x < wide; x++)
                for (int64_t j = keys; j < BACKWARD_KEYS; j++)
                    kernel_close((double)sums[x * BACKWARD_KEYS + j], 0.5, 0, "add_transposed_products past its keys",
                                 j, x);
            kernel_borders();
        }
}

/* Keys as left operand, unpacked: the bits of the tiles that have the queries on the left. */
CHECK(tiles_meet_keys_in_place)
{
    static const int widths[] = {1, 32, 33, 64};
    for (int n = 0; n < COUNT(widths); n++)
        for (int components = 1; components <= 3; components++) {
            const int64_t width = widths[n], wide = rpi_round_up(width, CHUNK), chunks = wide / CHUNK;
            real *keys = exact_numbers(NR * wide, 81, components), *q = exact_numbers(TILE_SIDE * wide, 82, components);
            uint32_t *keys_left = kernel_memory((size_t)(NR * wide * components) * 2),
                     *q_right = kernel_memory((size_t)(TILE_SIDE * wide * components) * 2);
            uint32_t *q_left = kernel_memory((size_t)(TILE_SIDE * wide * components) * 2),
                     *keys_right = kernel_memory((size_t)(NR * wide * components) * 2);
            real *s = numbers(NR * TILE_SIDE), *want = numbers(TILE_SIDE * NR), *scratch = numbers(TILE_SIDE * wide);
            uint8_t *extreme = kernel_memory(1);
            for (int64_t x = 0; x < NR * wide; x++)
                keys[x] = x % wide < width ? keys[x] : 0;
            for (int64_t x = 0; x < TILE_SIDE * wide; x++)
                q[x] = x % wide < width ? q[x] : 0;
            rpi_view k = {.dtype = RP_F32, .data = keys, .stride = {0, 0, wide, 1}, .len = {1, 1, NR, wide}};
            packing rows;
            for (int64_t j = 0; j < NR; j += CHUNK) {
                rows_at(&rows, &k, 0, 0, j, CHUNK, NR, wide, scratch);
                rows.seen = (magnitude){vf_set1(0)};
                pack_along(&rows, chunks, components, keys_left + j / TILE_SIDE * chunks * components * FRAGMENT);
            }
            for (int64_t r = 0; r < TILE_SIDE; r++)
                rows.at[r] = q + r * wide, rows.ahead[r] = (const char *)rows.at[r];
            for (int64_t x = 0; x < chunks; x++)
                pack_transposed(&rows, x * CHUNK, components, q_right + x * components * FRAGMENT);
            for (int64_t x = 0; x < NR * TILE_SIDE; x++)
                s[x] = 0;
            const operand left = {keys_left, chunks * components * FRAGMENT, components * FRAGMENT, components},
                          right = {q_right, 0, components * FRAGMENT, components};
            key_product(&left, &right, chunks, s);
            *extreme = 0;
            pack_rows(q, wide, TILE_SIDE, wide, components, q_left);
            amx_pack_panels(&k, 0, 0, 0, NR, NR, wide, NULL, NULL, components, keys_right, extreme, NULL, scratch);
            for (int64_t j = 0; j < NR; j += 2 * TILE_SIDE) {
                const operand a = {q_left, chunks * components * FRAGMENT, components * FRAGMENT, components},
                              b = {keys_right + j / TILE_SIDE * chunks * components * FRAGMENT,
                                   chunks * components * FRAGMENT, components * FRAGMENT, components};
                product(1, 2, &a, &b, chunks, NULL, NULL, want + j, NR, NULL);
            }
            for (int64_t r = 0; r < TILE_SIDE; r++)
                for (int64_t j = 0; j < NR; j++)
                    kernel_same(&s[j * TILE_SIDE + r], &want[r * NR + j], sizeof *s, "key_product", r, j);
            kernel_borders();
        }
}
#endif

#if RPI_AMX
#define check_values_are_packed_in_columns NULL
#else
#define check_numbers_are_sums_of_bf16       NULL
#define check_tiles_multiply_packed_rows     NULL
#define check_tiles_multiply_across_rows     NULL
#define check_tiles_multiply_transposed_rows NULL
#define check_tiles_meet_keys_in_place       NULL
#endif

#if RPI_F64
#define KERNELS(x) RPI_JOIN3(kernels_, x, _f64)
#else
#define KERNELS(x) RPI_JOIN3(kernels_, x, )
#endif
#define KERNELS_OF(x) KERNELS(x)
extern const kernel_checks KERNELS_OF(RPI_ISA);
const kernel_checks KERNELS_OF(RPI_ISA) = {
#define X(name) .name = check_##name,
    KERNEL_CHECKS(X)
#undef X
};
