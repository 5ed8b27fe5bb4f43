/* pack_tmpl.h -- keys, values and queries laid out for the register tiles.
 * Compiled once per instruction set and precision. */

#if !RPI_F64
/* VL numbers of f16 or bf16, exactly. Subnormal halves are made from integers, because kernels run with numbers below 2^-126
 * taken as zero. */
static inline __attribute__((always_inline)) vf load_halves(const uint16_t *from, rp_dtype dtype)
{
    const vu x = vu_wide(from);
    if (dtype == RP_BF16)
        return (vf)(x << 16);
    const vu none = {0}, exponent = x & 0x7c00, size = ((x & 0x7fff) << 13) + (none + (112u << 23));
    const vf small = ((vf)((x & 0x3ff) | (none + 0x4b000000u)) - vf_set1(0x1p23f)) * vf_set1(0x1p-24f);
    const vu normal = size + ((vu)(exponent == 0x7c00) & (112u << 23)); /* and infinity, NaN */
    const vu zero = (vu)(exponent == 0);
    return (vf)((x & 0x8000) << 16 | (zero & (vu)small) | (~zero & normal));
}
#endif

/* Channels x0 … of a row, at most PART of them, from any floating type. */
enum { PART = 64 };
static inline const real *load_part(const rpi_view *v, const void *row, int64_t x0, int64_t n, real *scratch)
{
#if RPI_F64
    if (v->dtype == RP_F64)
        return (const double *)row + x0;
    for (int64_t x = 0; x < n; x++)
        scratch[x] = rpi_value(row, v->dtype, x0 + x);
#else
    if (v->dtype == RP_F32)
        return (const float *)row + x0;
    const char *from = (const char *)row + x0 * rpi_floating_size(v->dtype);
    int64_t x = 0;
    for (; rpi_floating_size(v->dtype) == 2 && x + VL <= n; x += VL)
        vf_store(scratch + x, load_halves((const uint16_t *)(const void *)from + x, v->dtype));
    if (x < n)
        rpi_load_f32(scratch + x, from + x * rpi_floating_size(v->dtype), v->dtype, n - x);
#endif
    return scratch;
}

/* n numbers to elements at … of an array of any floating type, each rounded once. */
static inline void store_part(void *data, rp_dtype dtype, int64_t at, const real *from, int64_t n)
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

/* Row AHEAD after row j, counted on into the next head: while row j is packed it comes from memory, which the processor's own
 * guesses do as well for long runs alone. Of pages, none but that of row j is looked up. */
enum { AHEAD = 32 };
static inline const char *row_ahead(const rpi_view *v, int64_t b, int64_t h, int64_t j, int64_t rows)
{
    int64_t next = j + AHEAD;
    if (v->page)
        return rpi_row_of(v, b, h, next < rows && next / v->page_keys == j / v->page_keys ? next : j);
    if (next >= rows) {
        const bool last = h + 1 >= v->len[1];
        if (last && b + 1 >= v->len[0])
            return rpi_row_of(v, b, h, j);
        next = rpi_min(next - rows, rows - 1);
        b += last;
        h = last ? 0 : h + 1;
    }
    return rpi_row_of(v, b, h, next);
}

/* Turn a row in place, channel x at row[x * step]; back with sign -1. */
static void rotate_row(const rp_term *t, const real *rope, real sign, real *row, int64_t step)
{
    for (int64_t c = 0; c < t->dim / 2; c++) {
        int64_t u, v;
        rpi_rotate_channels(t, c, &u, &v);
        const real a = row[u * step], b = row[v * step], cosine = rope[2 * c], sine = rope[2 * c + 1] * sign;
        row[u * step] = a * cosine - b * sine;
        row[v * step] = a * sine + b * cosine;
    }
}

/* The largest size of the numbers seen so far, lane by lane; more than infinity's bits: NaN. */
typedef struct watch {
    vf max;
} watch;

static inline void watch_vector(watch *w, vf x)
{
    w->max = vf_larger(w->max, vf_abs(x));
}

static inline bool is_finite(const watch *w)
{
    return vf_sum(w->max * vf_set1(0)) == 0;
}

/* VL rows of n channels, `gap` numbers apart, side by side: to[x * step + r] = from[r * gap + x]. From ahead on, rows of elements
 * of `size` bytes are asked for, ahead_gap bytes apart, whatever lies there. */
static inline void ticket_rows(const real *from, int64_t gap, uintptr_t ahead, int64_t ahead_gap, int64_t size,
                               int64_t n, real *to, int64_t step, watch *w)
{
    int64_t x = 0;
    for (; x + VL <= n; x += VL) {
        vf y[VL];
        const real *row = from + x;
        uintptr_t next = ahead + (uintptr_t)(x * size);
        RPI_UNROLL
        for (int r = 0; r < VL; r++) {
            __builtin_prefetch((const void *)next, 0, 2);
            y[r] = vf_load(row);
            watch_vector(w, y[r]);
            row += r + 1 < VL ? gap : 0;
            next += (uintptr_t)ahead_gap;
        }
        vf_transpose(y);
        RPI_UNROLL
        for (int c = 0; c < VL; c++)
            vf_store(to + (x + c) * step, y[c]);
    }
    for (; x < n; x++) {
        real lane[VL];
        for (int r = 0; r < VL; r++)
            lane[r] = from[r * gap + x];
        watch_vector(w, vf_load(lane));
        vf_store(to + x * step, vf_load(lane));
    }
}

/* The same for channels x0 … x0+n-1, at most PART, of rows j … j+VL-1 of a head. Of its `rows` rows `there` are among them;
 * the others are 0. */
static void transpose_part(const rpi_view *v, int64_t b, int64_t h, int64_t j, int64_t there, int64_t rows, int64_t x0,
                           int64_t n, real *to, int64_t step, watch *w)
{
    const int64_t size = rpi_floating_size(v->dtype), gap = v->stride[2];
    real scratch[VL][PART];
    if (there <= 0) {
        for (int64_t x = 0; x < n; x++)
            vf_store(to + x * step, vf_set1(0));
        return;
    }
    const uintptr_t ahead = (uintptr_t)row_ahead(v, b, h, j, rows) + (uintptr_t)(x0 * size);
    if (there == VL && size == sizeof(real) && (!v->page || j % v->page_keys + VL <= v->page_keys)) {
        ticket_rows((const real *)rpi_row_of(v, b, h, j) + x0, gap, ahead, gap * size, size, n, to, step, w);
        return;
    }
    for (int64_t r = 0; r < VL; r++) {
        const real *from = r < there ? load_part(v, rpi_row_of(v, b, h, j + r), x0, n, scratch[r]) : NULL;
        if (!from)
            memset(scratch[r], 0, sizeof scratch[r]);
        else if (from != scratch[r])
            memcpy(scratch[r], from, (size_t)n * sizeof(real));
    }
    ticket_rows(scratch[0], PART, ahead, gap * size, size, n, to, step, w);
}

/* n rows of an array as panels of NR, transposed, so that a register tile reads NR of them at one channel as NV vectors:
 * rows j0 … of which the array has `real_rows`. extreme[panel] tells of numbers that are extreme. */
static void pack_panels(const rpi_view *v, int64_t b, int64_t h, int64_t j0, int64_t n, int64_t real_rows,
                        int64_t width, const rp_term *rotate, const real *rope, real *to, uint8_t *extreme)
{
    for (int64_t r0 = 0; r0 < n; r0 += VL) {
        const int64_t there = rpi_clamp(real_rows - j0 - r0, 0, VL);
        real *at = to + r0 / NR * NR * width + r0 % NR;
        watch w = {vf_set1(0)};
        for (int64_t x0 = 0; x0 < width; x0 += PART)
            transpose_part(v, b, h, j0 + r0, there, real_rows, x0, rpi_min(PART, width - x0), at + x0 * NR, NR, &w);
        if (extreme)
            extreme[r0 / NR] |= !is_finite(&w) || vf_top(w.max) > (real)RPI_MODERATE;
        for (int64_t r = 0; rotate && r < there; r++)
            rotate_row(rotate, rope + (j0 + r0 + r) * rotate->dim, 1, at + r, NR);
    }
}
_Static_assert(NR % VL == 0, "panels are transposed VL rows at a time");

/* Channel x of row r of columns of `pad` rows: the column of channels from c on, as wide as NR or what is left, lies at
 * c * pad. */
static inline real *in_column(real *to, int64_t pad, int64_t r, int64_t wide, int64_t x)
{
    const int64_t column = x / NR * NR;
    return to + column * pad + r * rpi_min(NR, wide - column) + x - column;
}

/* Rows that are not finite become 0 in packed columns, because 0 * NaN must not reach the others; extreme[r] tells of them. */
static void clear_extreme(real *to, int64_t pad, int64_t first, int64_t n, int64_t wide, uint8_t *extreme)
{
    for (int64_t r = 0; r < n; r++) {
        watch w = {vf_set1(0)};
        for (int64_t x = 0; x < wide; x += VL)
            watch_vector(&w, vf_load(in_column(to, pad, first + r, wide, x)));
        extreme[r] = !is_finite(&w);
        for (int64_t x = 0; extreme[r] && x < wide; x += VL)
            vf_store(in_column(to, pad, first + r, wide, x), vf_set1(0));
    }
}
