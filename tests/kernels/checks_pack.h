/* checks_pack.h -- loading, packing and rotating the caller's arrays for the products.
 * SPDX-License-Identifier: Apache-2.0 */

static const rp_dtype types[] = {RP_F32, RP_F64, RP_F16, RP_BF16};

/* Return true if kernels of this precision accept the type. */
static bool is_read(rp_dtype type)
{
    return RPI_F64 || type != RP_F64;
}

/* Return an array [2][2][rows][width] of this type, with `gap` elements of NaN after each row. */
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

/* Check every f16 and bf16 code; for storing, also check numbers between two codes. */
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
        for (int64_t x0 = 0, m = 1; x0 < all; x0 += m, m = m % CHANNELS + 1) { /* 1 to CHANNELS numbers at a time */
            const int64_t n_channels = rpi_min(m, all - x0);
            rpi_view v = {.dtype = type, .stride = {0, 0, 0, 1}};
            const real *got = load_channels(&v, from, x0, n_channels, scratch);
            for (int64_t x = 0; x < n_channels; x++)
                kernel_close((double)got[x], rpi_value(from, type, x0 + x), 0, "load_channels", type, x0 + x);
            store_channels(stored, type, x0, got, n_channels);
        }
        for (int64_t x = 0; x < all; x++)
            kernel_close(rpi_value(stored, type, x), rpi_value(from, type, x), 0, "store_channels", type, x);
        for (int64_t x = 0; x < 4096; x++) { /* numbers between two codes */
            const uint16_t low = (uint16_t)(x * 5 + x / 2), code[2] = {low, (uint16_t)(low + 1)};
            const real y = x % 2 && size == 2 /* exactly in the middle, or anywhere between */
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
            uint8_t *large = kernel_memory(3);
            if (!is_read(types[k]))
                continue;
            memset(large, 0, 3);
            if (types[k] == RP_F32 && width > 3) /* a huge number in the second panel */
                rpi_put(v.data, types[k], rpi_index(&v, 1, 0, j0 + NR + 1, width - 1), 1e30);
            pack_panels(&v, 1, 0, j0, 3 * NR, rows, width, NULL, NULL, to, large);
            for (int64_t r = 0; r < 3 * NR; r++)
                for (int64_t x = 0; x < width; x++)
                    kernel_close((double)to[r / NR * NR * width + x * NR + r % NR],
                                 r < there ? at_row(&v, 1, 0, j0 + r, x) : 0, 0, "pack_panels", r, x);
            for (int panel = 0; panel < 3; panel++)
                kernel_true(large[panel] == (panel == 1 && types[k] == RP_F32 && width > 3 && NR + 1 < there),
                            "pack_panels tells of a huge number", panel, k);
        }
}

CHECK(non_finite_rows_are_found_and_cleared)
{
    static const real odd[] = {(real)NAN, (real)INFINITY, (real)-INFINITY, REAL_MAX};
    for (int n = 0; n < COUNT(odd); n++)
        for (int64_t x = 0; x < 3 * VL; x++) {
            real *row = random_numbers(3 * VL, 3), *columns = random_numbers(4 * (NR + VL), 4);
            uint8_t *large = kernel_memory(4);
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
            /* row 2 of 4, in blocks as wide as NR and in blocks as wide as a vector */
            const int64_t wide = NR + VL, at = x % wide;
            *in_column(columns, 4, 2, wide, at) = odd[n];
            clear_large(columns, 4, 0, 4, wide, large);
            for (int64_t r = 0; r < 4; r++) {
                kernel_true(large[r] == (r == 2 && n < 3), "clear_large marks the row", n, r);
                for (int64_t c = 0; c < wide; c++) {
                    const real *got = in_column(columns, 4, r, wide, c);
                    kernel_true(r == 2 && n < 3 ? *got == 0 : *got != 0, "clear_large clears only that row", r, c);
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
            uint8_t *large = kernel_memory((size_t)m);
            if (!is_read(types[k]))
                continue;
            if (n % 2)
                rpi_put(v.data, types[k], rpi_index(&v, 0, 1, j0 + 5, width - 1), n % 4 == 1 ? NAN : -INFINITY);
            pack_columns(&v, 0, 1, j0, m, rows, width, to, first, pad, large);
            for (int64_t r = 0; r < m; r++) {
                const bool odd = n % 2 && r == 5;
                kernel_true(large[r] == odd, "pack_columns marks a row", n, r);
                for (int64_t x = 0; x < wide; x++)
                    kernel_close((double)*in_column(to, pad, first + r, wide, x),
                                 odd || x >= width || j0 + r >= rows ? 0 : at_row(&v, 0, 1, j0 + r, x), 0,
                                 "pack_columns", r, x);
            }
            for (int64_t x = 0; x < wide; x++) { /* the rows next to it must not change */
                kernel_true(isnan(*in_column(to, pad, first - 1, wide, x)) != 0, "pack_columns, row before", n, x);
                kernel_true(isnan(*in_column(to, pad, first + m, wide, x)) != 0, "pack_columns, row after", n, x);
            }
            kernel_borders();
        }
}
#endif
