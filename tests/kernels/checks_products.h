/* checks_products.h -- products that are summed in registers: scores, and weights times values.
 * SPDX-License-Identifier: Apache-2.0 */

/* Check one tile of MR x NR, and one row of it; rows of s are longer than the tile. */
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
            /* compute only the first columns of the panel, rounded up to whole vectors; columns past them become
             * -infinity */
            const int64_t there = n % 3 ? NR : NR - VL + 1 + n % VL, width = rpi_round_up(there, VL);
            if (rows == 1)
                score_rows(1, ROW_VECTORS, q, dim, k, NR, dim, form < 2 ? bias : NULL, col, s, step, max, q, there,
                           NULL);
            else if (there == NR)
                score_tile(q, dim, k, dim, form < 2 ? bias : NULL, col, s, step, max, q);
            else
                score_rows(MR, ROW_VECTORS, q, dim, k, NR, dim, form < 2 ? bias : NULL, col, s, step, max, q, there,
                           NULL);
            kernel_true(width == NR, "the last vector has the last column", width, there);
            for (int64_t r = 0; r < rows; r++) {
                double top = 0.25, found = -INFINITY;
                for (int64_t j = 0; j < step; j++) {
                    double want = form < 2 ? (double)bias[r][rpi_min(col + j, NR + col - 1)] : 0, size = fabs(want);
                    for (int64_t d = 0; d < dim && j < NR; d++) {
                        const double product = (double)q[r * dim + d] * (double)k[d * NR + j];
                        want += product;
                        size += fabs(product);
                    }
                    if (j >= NR && r + 1 < rows)
                        kernel_true(isnan(s[r * step + j]) != 0, "score_tile writes NR columns", r, j);
                    if (j >= NR)
                        break;
                    if (j >= there)
                        want = -INFINITY;
                    kernel_close((double)s[r * step + j], want, (double)(2 * dim + 1) * EPS * size, "score_tile", r, j);
                    top = fmax(top, (double)s[r * step + j]);
                }
                for (int64_t x = 0; x < VL; x++)
                    found = fmax(found, (double)max[r * VL + x]);
                kernel_close(found, top, 0, "score_tile's maximum", r, dim);
            }
        }
}

/* Pack n rows of values into panels of at most NR columns. Padding is NaN. */
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

/* Check values that are read in place, with gaps between rows, for one row and for MR rows of weights. */
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
