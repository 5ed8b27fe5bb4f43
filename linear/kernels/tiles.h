/* tiles.h -- register tiles: the sums of a few rows of x and a few panels over a range of lines, for each type of weights.
 * May not know blocks, threads or what becomes of a sum.
 * Parameters: VL, vf and the verbs.
 *
 * Contract. `rows` and `panels` are constants. Sums go on from p->sums, 16 * panels in a row, f32 or (int8) int32, and back:
 * each is one chain over the inputs in order, wherever the lines are cut, so that its bits depend on nothing else. A tile
 * reads whole lines of weights and no input past the last. */

enum {
    LANES = LINEAR_PANEL / VL,
    MAX_PANELS = 8,
    MAX_VECTORS = MAX_PANELS * LANES
}; /* vectors of a line; of a tile's row */

typedef struct tile {
    const linear_job *j;
    int64_t row;       /* of x */
    const char *panel; /* the first one */
    int64_t from, end; /* lines */
    void *sums;
    const char *ahead; /* lines that another tile reads later: one is prefetched at each step */
} tile;

#define INLINE static inline __attribute__((always_inline))

INLINE void sums_load(int n, vf *sum, const float *from)
{
    RPI_UNROLL
    for (int c = 0; c < n; c++)
        sum[c] = vf_load(from + c * VL);
}

INLINE void sums_store(int n, const vf *sum, float *to)
{
    RPI_UNROLL
    for (int c = 0; c < n; c++)
        vf_store(to + c * VL, sum[c]);
}

INLINE void f32_tile(int rows, int panels, const tile *p)
{
    const int n = panels * LANES;
    const int64_t step = p->j->panel_bytes;
    vf sum[MR][MAX_VECTORS];
    const float *x[MR];
    RPI_UNROLL
    for (int r = 0; r < rows; r++) {
        sums_load(n, sum[r], (const float *)p->sums + r * n * VL);
        x[r] = p->j->x + (p->row + r) * p->j->ldx;
    }
    const char *ahead = p->ahead - p->from * LINEAR_LINE;
    for (int64_t k = p->from; k < p->end; k++) {
        __builtin_prefetch(ahead + k * LINEAR_LINE, 0, 2);
        const char *line = p->panel + k * LINEAR_LINE;
        vf w[MAX_VECTORS];
        RPI_UNROLL
        for (int c = 0; c < n; c++)
            w[c] = vf_load((const float *)(const void *)(line + c / LANES * step) + c % LANES * VL);
        RPI_UNROLL
        for (int r = 0; r < rows; r++) {
            const vf a = vf_set1(x[r][k]);
            RPI_UNROLL
            for (int c = 0; c < n; c++)
                sum[r][c] = vf_fma(a, w[c], sum[r][c]);
        }
    }
    RPI_UNROLL
    for (int r = 0; r < rows; r++)
        sums_store(n, sum[r], (float *)p->sums + r * n * VL);
}

/* One input of a line of bf16: its weights in the upper halves of `w`. */
INLINE void bf16_step(int rows, int n, const float *const *x, int64_t k, const vu *w, vf sum[MR][MAX_VECTORS])
{
    RPI_UNROLL
    for (int r = 0; r < rows; r++) {
        const vf a = vf_set1(x[r][k]);
        RPI_UNROLL
        for (int c = 0; c < n; c++)
            sum[r][c] = vf_fma(a, (vf)w[c], sum[r][c]);
    }
}

INLINE void bf16_tile(int rows, int panels, const tile *p)
{
    const int n = panels * LANES;
    const int64_t step = p->j->panel_bytes;
    vf sum[MR][MAX_VECTORS];
    const float *x[MR];
    RPI_UNROLL
    for (int r = 0; r < rows; r++) {
        sums_load(n, sum[r], (const float *)p->sums + r * n * VL);
        x[r] = p->j->x + (p->row + r) * p->j->ldx;
    }
    const char *ahead = p->ahead - p->from * LINEAR_LINE;
    for (int64_t k = p->from; k < p->end; k++) {
        __builtin_prefetch(ahead + k * LINEAR_LINE, 0, 2);
        const char *line = p->panel + k * LINEAR_LINE;
        vu w[MAX_VECTORS];
        RPI_UNROLL
        for (int c = 0; c < n; c++)
            w[c] = (vu)vi_load(line + c / LANES * step + c % LANES * VL * 4) << 16;
        bf16_step(rows, n, x, 2 * k, w, sum);
        if (2 * k + 1 >= p->j->in)
            break;
        RPI_UNROLL
        for (int c = 0; c < n; c++)
            w[c] = (vu)vi_load(line + c / LANES * step + c % LANES * VL * 4) & 0xffff0000u;
        bf16_step(rows, n, x, 2 * k + 1, w, sum);
    }
    RPI_UNROLL
    for (int r = 0; r < rows; r++)
        sums_store(n, sum[r], (float *)p->sums + r * n * VL);
}

/* The inputs of a quantised row. */
INLINE const char *quantised_row(const linear_job *j, int64_t row)
{
    return j->quantised + row * j->row_bytes + LINEAR_ROW_HEAD;
}

INLINE void int8_tile(int rows, int panels, const tile *p)
{
    const int n = panels * LANES;
    const int64_t step = p->j->panel_bytes;
    int32_t *sums = p->sums;
    vi sum[MR][MAX_VECTORS];
    const char *x[MR];
    RPI_UNROLL
    for (int r = 0; r < rows; r++) {
        RPI_UNROLL
        for (int c = 0; c < n; c++)
            sum[r][c] = vi_load(sums + (r * n + c) * VL);
        x[r] = quantised_row(p->j, p->row + r);
    }
    const char *ahead = p->ahead - p->from * LINEAR_LINE;
    for (int64_t k = p->from; k < p->end; k++) {
        __builtin_prefetch(ahead + k * LINEAR_LINE, 0, 2);
        const char *line = p->panel + LINEAR_INT8_HEAD + k * LINEAR_LINE;
        w8 w[MAX_VECTORS];
        RPI_UNROLL
        for (int c = 0; c < n; c++)
            w[c] = w8_load(line + c / LANES * step + c % LANES * VL * 4);
        RPI_UNROLL
        for (int r = 0; r < rows; r++) {
            const x8 a = x8_load(x[r] + k * 4 * X8_BYTES);
            RPI_UNROLL
            for (int c = 0; c < n; c++)
                sum[r][c] = W8_DOT(sum[r][c], w[c], a);
        }
    }
    RPI_UNROLL
    for (int r = 0; r < rows; r++) {
        RPI_UNROLL
        for (int c = 0; c < n; c++)
            vi_store(sums + (r * n + c) * VL, sum[r][c]);
    }
}

/* The integers of a group times its scales, added to the sums. */
INLINE void group_add(int n, const tile *p, int64_t group, int r, const s4 *sum)
{
    const linear_job *j = p->j;
    const char *row = j->quantised + (p->row + r) * j->row_bytes + linear_row_groups(j->in);
    const vi bias = vi_set1(row + 4 * group);
    float *to = (float *)p->sums + r * n * VL;
    RPI_UNROLL
    for (int c = 0; c < n; c++) {
        const char *scale = p->panel + c / LANES * j->panel_bytes + j->lines * LINEAR_LINE +
                            (group * LINEAR_PANEL + c % LANES * VL) * 2;
        const vf s = (vf)(vu_wide((const uint16_t *)(const void *)scale) << 16);
        vf_store(to + c * VL, vf_fma(vf_of_vi(s4_sum(sum[c]) + bias), s, vf_load(to + c * VL)));
    }
}

INLINE void int4_tile(int rows, int panels, const tile *p)
{
    const int n = panels * LANES;
    const int64_t step = p->j->panel_bytes;
    for (int64_t group = p->from / 4; group < p->end / 4; group++) {
        s4 sum[MR][MAX_VECTORS];
        RPI_UNROLL
        for (int r = 0; r < rows; r++) {
            RPI_UNROLL
            for (int c = 0; c < n; c++)
                sum[r][c] = (s4){0};
        }
        for (int k = 0; k < 4; k++) {
            const char *line = p->panel + (4 * group + k) * LINEAR_LINE;
            w4 low[MAX_VECTORS], high[MAX_VECTORS];
            RPI_UNROLL
            for (int c = 0; c < n; c++) {
                const vi w = vi_load(line + c / LANES * step + c % LANES * VL * 4);
                low[c] = W4_LOW(w);
                high[c] = W4_HIGH(w);
            }
            RPI_UNROLL
            for (int r = 0; r < rows; r++) {
                const char *x = quantised_row(p->j, p->row + r) + (4 * group + k) * 8;
                const x4 a = x4_load(x), b = x4_load(x + 4);
                RPI_UNROLL
                for (int c = 0; c < n; c++) {
                    sum[r][c] = W4_DOT(sum[r][c], low[c], a);
                    sum[r][c] = W4_DOT(sum[r][c], high[c], b);
                }
            }
        }
        RPI_UNROLL
        for (int r = 0; r < rows; r++)
            group_add(n, p, group, r, sum[r]);
    }
}
