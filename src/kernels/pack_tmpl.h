/* pack_tmpl.h -- keys, values and queries laid out for the register tiles.
 * Compiled once per instruction set and precision. */

/* Channels x0 … of a row, at most PART of them, from any floating type. */
enum { PART = 64 };
static inline const real *load_part(const rpi_view *v, const void *row, int64_t x0, int64_t n, real *room)
{
#if RPI_F64
    if (v->dtype == RP_F64)
        return (const double *)row + x0;
    for (int64_t x = 0; x < n; x++)
        room[x] = rpi_value(row, v->dtype, x0 + x);
#else
    if (v->dtype == RP_F32)
        return (const float *)row + x0;
    rpi_load_f32(room, (const char *)row + (size_t)x0 * rp_dtype_size(v->dtype), v->dtype, n);
#endif
    return room;
}

/* Turn a row in place, channel x at row[x * step]; back with sign -1. */
static void turn_row(const rp_term *t, const real *turn, real sign, real *row, int64_t step)
{
    for (int64_t c = 0; c < t->dim / 2; c++) {
        int64_t u, v;
        rpi_rotate_channels(t, c, &u, &v);
        const real a = row[u * step], b = row[v * step], cosine = turn[2 * c], sine = turn[2 * c + 1] * sign;
        row[u * step] = a * cosine - b * sine;
        row[v * step] = a * sine + b * cosine;
    }
}

/* Whether n numbers are finite; *most rises to the largest size among those that are. */
static inline bool all_finite(const real *x, int64_t n, real *most)
{
    vf zero = vf_set1(0), top = vf_set1(*most);
    real rest = 0;
    int64_t c = 0;
    for (; c + VL <= n; c += VL) {
        const vf y = vf_load(x + c);
        zero = zero + y * vf_set1(0); /* 0, or NaN from one that is not finite */
        top = vf_max(top, vf_abs(y));
    }
    *most = vf_top(top);
    for (; c < n; c++) {
        rest += x[c] * 0;
        *most = fabs(x[c]) > *most ? (real)fabs(x[c]) : *most;
    }
    return vf_sum(zero) + rest == 0;
}

/* n rows of an array as panels of NR, transposed, so that a register tile reads NR of them at one channel as NV vectors:
 * rows j0 … of which the array has `real_rows`. wild[panel] tells of numbers that are not tame. */
static void pack_panels(const rpi_view *v, int64_t b, int64_t h, int64_t j0, int64_t n, int64_t real_rows,
                        int64_t width, const rp_term *rotate, const real *turn, real *to, uint8_t *wild)
{
    real room[PART];
    for (int64_t r = 0; r < n; r++) {
        real *at = to + r / NR * NR * width + r % NR;
        bool finite = true;
        real most = 0;
        if (j0 + r >= real_rows) {
            for (int64_t x = 0; x < width; x++)
                at[x * NR] = 0;
            continue;
        }
        const void *row = rpi_row_of(v, b, h, j0 + r);
        for (int64_t x0 = 0; x0 < width; x0 += PART) {
            const int64_t m = rpi_min(PART, width - x0);
            const real *from = load_part(v, row, x0, m, room);
            for (int64_t x = 0; x < m; x++)
                at[(x0 + x) * NR] = from[x];
            finite = all_finite(from, m, &most) && finite;
        }
        if (wild)
            wild[r / NR] |= !finite || !(most <= (real)RPI_TAME);
        if (rotate)
            turn_row(rotate, turn + (j0 + r) * rotate->dim, 1, at, NR);
    }
}

#if !RPI_TILES
/* n rows of an array as columns of up to NR channels, so that a tile reads one row as vectors: row r of column x0 goes to
 * to[x0 * pad + (first + r) * width]. Rows that are not finite become 0 here, because 0 * NaN must not reach the others; wild[r]
 * tells of them. */
static void pack_columns(const rpi_view *v, int64_t b, int64_t h, int64_t j0, int64_t n, int64_t real_rows,
                         int64_t width, real *to, int64_t first, int64_t pad, uint8_t *wild)
{
    const int64_t wide = rpi_round_up(width, VL);
    real room[PART];
    for (int64_t r = 0; r < n; r++) {
        const bool there = j0 + r < real_rows && v->data;
        const void *row = there ? rpi_row_of(v, b, h, j0 + r) : NULL;
        bool finite = true;
        real most = 0;
        for (int64_t x0 = 0; x0 < wide; x0 += PART) {
            const int64_t m = there ? rpi_clamp(width - x0, 0, PART) : 0;
            const real *from = m ? load_part(v, row, x0, m, room) : room;
            finite = all_finite(from, m, &most) && finite;
            for (int64_t column = 0; column < rpi_min(PART, wide - x0); column += NR) { /* NR divides PART */
                const int64_t step = rpi_min(NR, wide - x0 - column), used = rpi_clamp(m - column, 0, step);
                real *at = to + (x0 + column) * pad + (first + r) * step;
                int64_t x = 0;
                for (; x + VL <= used; x += VL)
                    vf_store(at + x, vf_load(from + column + x));
                for (; x < step; x++)
                    at[x] = x < used ? from[column + x] : 0;
            }
        }
        wild[r] = !finite;
        for (int64_t column = 0; wild[r] && column < wide; column += NR) {
            const int64_t step = rpi_min(NR, wide - column);
            memset(to + column * pad + (first + r) * step, 0, (size_t)step * sizeof(real));
        }
    }
}
#endif
_Static_assert(PART % NR == 0, "columns do not cross parts");
