/* tile_tmpl.h -- register tiles: MR x NR sums of products, for scores and for values.
 * Compiled once per instruction set. */

/* Whether a fetch at each step pays: AVX2's steps are short, and each would take a small part of a line. */
enum { FETCH = NR * sizeof(real) >= 256 };

/* s[r][0…NR) = bias[r][col…] + sum_d q[d][r] k[d][…] for `rows` rows, MR or 1, a constant; bias NULL starts at 0. Rows of s are `step` apart.
 * max[r], a vector, rises to the largest of them in any lane; NULL: not wanted. A 16th of a panel at
 * `ahead` is fetched meanwhile: the groups of a block fetch the next one together. */
static inline __attribute__((always_inline)) void score_rows(int rows, const real *q, const real *k, int64_t dim,
                                                             const real *const *bias, int64_t col, real *s,
                                                             int64_t step, real *max, const real *ahead)
{
    vf sum[MR][NV];
    RPI_UNROLL
    for (int r = 0; r < rows; r++) {
        RPI_UNROLL
        for (int n = 0; n < NV; n++)
            sum[r][n] = bias ? vf_load(bias[r] + col + n * VL) : vf_set1(0);
    }
    for (int64_t d = 0; d < dim; d++) {
        vf y[NV];
        if (FETCH)
            __builtin_prefetch(ahead + d * (NR / 16), 0, 2);
        RPI_UNROLL
        for (int n = 0; n < NV; n++)
            y[n] = vf_load(k + d * NR + n * VL);
        RPI_UNROLL
        for (int r = 0; r < rows; r++) {
            const vf x = vf_set1(q[d * MR + r]);
            RPI_UNROLL
            for (int n = 0; n < NV; n++)
                sum[r][n] = vf_fma(x, y[n], sum[r][n]);
        }
    }
    RPI_UNROLL
    for (int r = 0; r < rows; r++) {
        RPI_UNROLL
        for (int n = 0; n < NV; n++)
            vf_store(s + r * step + n * VL, sum[r][n]);
    }
    if (!max)
        return;
    RPI_UNROLL
    for (int r = 0; r < rows; r++) {
        vf top = vf_load(max + r * VL);
        RPI_UNROLL
        for (int n = 0; n < NV; n++)
            top = vf_max(top, sum[r][n]);
        vf_store(max + r * VL, top);
    }
}

static inline void score_tile(const real *q, const real *k, int64_t dim, const real *const *bias, int64_t col, real *s,
                              int64_t step, real *max, const real *ahead)
{
    score_rows(MR, q, k, dim, bias, col, s, step, max, ahead);
}

/* o[r][0…width) = o[r][…] * alpha[r] + sum over n keys of w[r][j] v[j][…], width = NVW vectors. w[r][j] lies at
 * w[AT]: weights by row, or (transposed) by column. Values are V_STEP apart: packed, or unpacked (UNPACKED), and a later one is fetched. */
#define VALUE_TILE(NAME, NVW, ROWS, AT, V_STEP, UNPACKED)                                                              \
    static inline void NAME##_##NVW(const real *w, int64_t w_step, int64_t n, const real *v, int64_t v_step, real *o,  \
                                    int64_t o_step, const real *alpha, const real *ahead)                              \
    {                                                                                                                  \
        vf sum[ROWS][NVW];                                                                                             \
        RPI_UNROLL                                                                                                     \
        for (int r = 0; r < ROWS; r++) {                                                                               \
            RPI_UNROLL                                                                                                 \
            for (int c = 0; c < NVW; c++)                                                                              \
                sum[r][c] = vf_set1(0);                                                                                \
        }                                                                                                              \
        (void)w_step, (void)v_step, (void)ahead;                                                                       \
        for (int64_t j = 0; j < n; j++) {                                                                              \
            vf y[NVW];                                                                                                 \
            if (UNPACKED) {                                                                                            \
                RPI_UNROLL                                                                                             \
                for (int c = 0; c < NVW; c++)                                                                          \
                    __builtin_prefetch((const void *)((uintptr_t)(v + c * VL) +                                        \
                                                      (uintptr_t)((j + AHEAD) * v_step * (int64_t)sizeof(real))),      \
                                       0, 2);                                                                          \
            } else if (FETCH)                                                                                          \
                __builtin_prefetch(ahead + j * (NVW * VL) / 16, 0, 2);                                                 \
            RPI_UNROLL                                                                                                 \
            for (int c = 0; c < NVW; c++)                                                                              \
                y[c] = vf_load(v + j * (V_STEP) + c * VL);                                                             \
            RPI_UNROLL                                                                                                 \
            for (int r = 0; r < ROWS; r++) {                                                                           \
                const vf x = vf_set1(w[AT]);                                                                           \
                RPI_UNROLL                                                                                             \
                for (int c = 0; c < NVW; c++)                                                                          \
                    sum[r][c] = vf_fma(x, y[c], sum[r][c]);                                                            \
            }                                                                                                          \
        }                                                                                                              \
        RPI_UNROLL                                                                                                     \
        for (int r = 0; r < ROWS; r++) {                                                                               \
            const vf x = vf_set1(alpha[r]);                                                                            \
            RPI_UNROLL                                                                                                 \
            for (int c = 0; c < NVW; c++)                                                                              \
                vf_store(o + r * o_step + c * VL, vf_fma(x, vf_load(o + r * o_step + c * VL), sum[r][c]));             \
        }                                                                                                              \
    }
VALUE_TILE(value_tile, 1, MR, r *w_step + j, 1 * VL, 0)
VALUE_TILE(value_tile, 2, MR, r *w_step + j, 2 * VL, 0)
VALUE_TILE(value_tile, 3, MR, r *w_step + j, 3 * VL, 0)
VALUE_TILE(value_tile, 4, MR, r *w_step + j, 4 * VL, 0)
VALUE_TILE(transposed_tile, 1, MR, j *w_step + r, 1 * VL, 0)
VALUE_TILE(transposed_tile, 2, MR, j *w_step + r, 2 * VL, 0)
VALUE_TILE(transposed_tile, 3, MR, j *w_step + r, 3 * VL, 0)
VALUE_TILE(transposed_tile, 4, MR, j *w_step + r, 4 * VL, 0)
VALUE_TILE(unpacked_tile, 1, MR, r *w_step + j, v_step, 1)
VALUE_TILE(unpacked_tile, 2, MR, r *w_step + j, v_step, 1)
VALUE_TILE(unpacked_tile, 3, MR, r *w_step + j, v_step, 1)
VALUE_TILE(unpacked_tile, 4, MR, r *w_step + j, v_step, 1)
VALUE_TILE(lone_tile, 1, 1, j, v_step, 1)
VALUE_TILE(lone_tile, 2, 1, j, v_step, 1)
VALUE_TILE(lone_tile, 3, 1, j, v_step, 1)
VALUE_TILE(lone_tile, 4, 1, j, v_step, 1)
_Static_assert(NV <= 4, "value_tile has up to 4 vectors");

static const real ones[8] = {1, 1, 1, 1, 1, 1, 1, 1};
_Static_assert(MR <= 8, "ones has a factor for each row");

/* o[MR rows][pad_v] = o * alpha + w v for columns [j0, j1) of w, summed VB at a time from zero. Column j of w belongs to
 * key first + j of the packed values, whose columns hold pad_keys keys. The block's group g fetches its part of the next VB
 * values; -1: none. */
static void add_values(const real *w, int64_t w_step, int64_t j0, int64_t j1, const real *v, int64_t first,
                       int64_t pad_keys, real *o, int64_t pad_v, const real *alpha, int64_t g)
{
    for (int64_t from = j0; from < j1; from = (from / VB + 1) * VB) {
        const int64_t n = rpi_min((from / VB + 1) * VB, j1) - from;
        for (int64_t x = 0; x < pad_v; x += NR) {
            const int64_t width = rpi_min(NR, pad_v - x);
            const real *at = v + x * pad_keys + (first + from) * width;
            const real *ahead = g < 0 ? at : at + VB * width + g * (VB * width / 16);
            switch (width / VL) {
            case 1: value_tile_1(w + from, w_step, n, at, 0, o + x, pad_v, alpha, ahead); break;
            case 2: value_tile_2(w + from, w_step, n, at, 0, o + x, pad_v, alpha, ahead); break;
            case 3: value_tile_3(w + from, w_step, n, at, 0, o + x, pad_v, alpha, ahead); break;
            default: value_tile_4(w + from, w_step, n, at, 0, o + x, pad_v, alpha, ahead); break;
            }
        }
        alpha = ones;
    }
}

/* o[MR rows][pad_v] += w^T v: rows of o belong to columns of w, sums run over its rows [i0, i1). Row i of v lies in columns
 * of pad_rows rows. */
static void add_transposed(const real *w, int64_t w_step, int64_t i0, int64_t i1, const real *v, int64_t pad_rows,
                           real *o, int64_t pad_v)
{
    for (int64_t x = 0; x < pad_v; x += NR) {
        const int64_t width = rpi_min(NR, pad_v - x);
        const real *at = v + x * pad_rows + i0 * width, *from = w + i0 * w_step;
        switch (width / VL) {
        case 1: transposed_tile_1(from, w_step, i1 - i0, at, 0, o + x, pad_v, ones, at); break;
        case 2: transposed_tile_2(from, w_step, i1 - i0, at, 0, o + x, pad_v, ones, at); break;
        case 3: transposed_tile_3(from, w_step, i1 - i0, at, 0, o + x, pad_v, ones, at); break;
        default: transposed_tile_4(from, w_step, i1 - i0, at, 0, o + x, pad_v, ones, at); break;
        }
    }
}
