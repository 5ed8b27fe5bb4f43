/* tiles.h -- register tiles: compute the sums of a few rows of x and a few columns of a panel over a range of its
 * lines. There is one function per type of weights. Parameters: VL, MR, MAX_ROWS, vf and the vector operations.
 *
 * Contract: `rows` and `columns` are constants. A tile loads partial sums from t->sums (64 per row, f32, or int32
 * for int8), adds its products, and stores the sums back. Each sum is one chain over the inputs in ascending order,
 * so its bits do not depend on how the lines are divided. A tile reads whole columns of weights, and no input after
 * the last. */
#ifndef LINEAR_ISA
#include "linear/kernels/signs.h" /* lets an editor parse this file on its own */
#endif

/* Add to the sums of all rows the products of the weights of a line and the row's input `a`, of type `type`. */
#define ADD_ROWS(rows, n, sum, dot, weights, type, a)                                                                  \
    FOR (r, rows) {                                                                                                    \
        const type of_row = a;                                                                                         \
        FOR (c, n)                                                                                                     \
            sum[r][c] = dot(sum[r][c], weights[c], of_row);                                                            \
    }

INLINE void sums_load(int n, vf *sum, const float *from)
{
    FOR (c, n)
        sum[c] = vf_load(from + c * VL);
}

INLINE void sums_store(int n, const vf *sum, float *to)
{
    FOR (c, n)
        vf_store(to + c * VL, sum[c]);
}

/* Load the partial sums of all rows. */
INLINE void rows_load(int rows, int n, const tile *t, vf sum[MAX_ROWS][MAX_VECTORS])
{
    FOR (r, rows)
        sums_load(n, sum[r], t->sums + r * LINEAR_PANEL);
}

INLINE void rows_store(int rows, int n, const tile *t, vf sum[MAX_ROWS][MAX_VECTORS])
{
    float *sums = t->sums;
    FOR (r, rows)
        sums_store(n, sum[r], sums + r * LINEAR_PANEL);
}

/* Convert complete sums to outputs in registers, as int8_end does. */
INLINE void floats_end(int rows, int n, const tile *t, bool add, vf sum[MAX_ROWS][MAX_VECTORS])
{
    const vf least = vf_set1(t->j->then == LINEAR_RELU ? 0 : -INFINITY);
    const float *bias = t->bias + t->first * LINEAR_COLUMN;
    FOR (r, rows) {
        float *y = t->y + r * t->j->ldy;
        FOR (c, n) {
            const vf p = sum[r][c] + vf_load(bias + c * VL);
            vf_store(y + c * VL, add ? (vf)(vf_load(y + c * VL) + p) : (vf)vf_max(least, p));
        }
    }
}

/* Store outputs or sums. */
INLINE void floats_store(int rows, int n, const tile *t, vf sum[MAX_ROWS][MAX_VECTORS])
{
    if (!t->y)
        rows_store(rows, n, t, sum);
    else if (t->j->then == LINEAR_ADD)
        floats_end(rows, n, t, true, sum);
    else
        floats_end(rows, n, t, false, sum);
}

/* Addresses of the next inputs of all rows. Three rows share one address. With one address per row there are too few
 * general registers, and compilers move addresses to vector registers. */
typedef struct inputs {
    const char *at[(MAX_ROWS + 2) / 3]; /* of rows 0, 3, … */
    int64_t row;                        /* bytes from row to row */
} inputs;

INLINE void inputs_begin(inputs *x, int rows, const char *first, int64_t row)
{
    x->row = row;
    RPI_UNROLL
    for (int r = 0; r < rows; r += 3)
        x->at[r / 3] = first + r * row;
}

INLINE const char *inputs_of(const inputs *x, int r)
{
    return x->at[r / 3] + r % 3 * x->row;
}

INLINE void inputs_step(inputs *x, int rows, int64_t bytes)
{
    RPI_UNROLL
    for (int r = 0; r < rows; r += 3) {
        x->at[r / 3] += bytes;
        __asm__("" : "+r"(x->at[r / 3])); /* keep the compiler from computing one address per row */
    }
}

/* A walk over the lines of a tile, and the inputs that belong to them. There is at least one line, so loops end with
 * next_line; if a loop might not run, compilers keep the sums on the stack. */
typedef struct walk {
    inputs x;
    const char *line;
    int64_t step, k, lines; /* bytes from line to line, the number of this one, and of all */
} walk;

/* Begin at line t->from. `first` is the first input of row 0, `row` the bytes from row to row. */
INLINE void walk_begin(walk *w, int rows, const tile *t, const char *first, int64_t row)
{
    inputs_begin(&w->x, rows, first, row);
    w->line = line_at(t, t->from);
    w->step = line_step(t);
    w->k = 0;
    w->lines = t->end - t->from;
}

/* Go to the next line, whose inputs are `bytes` further on. Return false after the last. */
INLINE bool next_line(walk *w, int rows, int64_t bytes)
{
    inputs_step(&w->x, rows, bytes);
    w->line += w->step;
    return ++w->k < w->lines;
}

/* Return weights for the products of some rows. A single row uses them once, so they can stay in memory. */
INLINE vf weights(int rows, vi w)
{
    return (vf)(rows > 1 ? held(w) : w);
}

/* Add the products of one input per row and the weights of all columns. */
INLINE void input(int rows, int n, const inputs *x, int64_t k, const vf *w, vf sum[MAX_ROWS][MAX_VECTORS])
{
    FOR (r, rows) {
        const vf a = vf_set1(((const float *)(const void *)inputs_of(x, r))[k]);
        FOR (c, n)
            sum[r][c] = vf_fma(a, w[c], sum[r][c]);
    }
}

/* Add the products of lines of f32 weights. If `fetches` is set, prefetch the tile's part
 * of the next step. */
INLINE void f32_products(int rows, int n, const tile *t, walk *at, bool fetches)
{
    vf sum[MAX_ROWS][MAX_VECTORS];
    rows_load(rows, n, t, sum);
    do {
        vf w[MAX_VECTORS];
        if (fetches)
            fetch(t, at->k);
        FOR (c, n)
            w[c] = weights(rows, vi_load(at->line + c * VL * 4));
        input(rows, n, &at->x, 0, w, sum);
    } while (next_line(at, rows, 4));
    rows_store(rows, n, t, sum);
}

#ifdef GROUPED
/* Add the products of some lines of a column with interleaved inputs. */
INLINE void f32_lines(int lines, int rows, const float *x, const char *line, int64_t step,
                      vf sum[MAX_ROWS][MAX_VECTORS])
{
    FOR (k, lines) {
        const float *w = (const float *)(const void *)(line + k * step);
        const vf low = vf_load(w), high = vf_load(w + VL);
        FOR (r, rows)
            ADD_PRODUCTS(sum[r][0], sum[r][1], x[k * rows + r], low, high);
    }
}

/* f32_tile for interleaved inputs and one column. */
INLINE void f32_group(int rows, const tile *t)
{
    const char *line = line_at(t, t->from), *ahead = t->ahead[0];
    const float *x = (const float *)(const void *)t->group;
    const int64_t step = line_step(t), lines = t->end - t->from;
    vf sum[MAX_ROWS][MAX_VECTORS];
    rows_load(rows, LANES, t, sum);
    for (int64_t k = lines / UNROLLED; k > 0; k--) {
        ahead = fetch_share(t, ahead);
        f32_lines(UNROLLED, rows, x, line, step, sum);
        x += UNROLLED * rows;
        line += UNROLLED * step;
    }
    for (int64_t k = lines % UNROLLED; k > 0; k--) {
        f32_lines(1, rows, x, line, step, sum);
        x += rows;
        line += step;
    }
    floats_store(rows, LANES, t, sum);
}
#endif

INLINE void f32_tile(int rows, int columns, const tile *t)
{
#ifdef GROUPED
    if (columns == 1 && rows >= MIN_GROUP_ROWS && t->group) {
        f32_group(rows, t);
        return;
    }
#endif
    walk at;
    walk_begin(&at, rows, t, (const char *)(t->j->x + t->row * t->j->ldx + t->from), t->j->ldx * 4);
    f32_products(rows, columns * LANES, t, &at, true);
}

/* Add in the order of f32, so the bits equal those of f32 with the same weights. If the number of inputs is odd, the
 * last line has only one. */
INLINE void f16_tile(int rows, int columns, const tile *t)
{
    const int n = columns * LANES;
    const char *line = line_at(t, t->from);
    const int64_t step = line_step(t);
    vf sum[MAX_ROWS][MAX_VECTORS];
    inputs x;
    rows_load(rows, n, t, sum);
    inputs_begin(&x, rows, (const char *)(t->j->x + t->row * t->j->ldx + 2 * t->from), t->j->ldx * 4);
    for (int64_t k = t->from; k < t->end; k++) {
        vf w[MAX_VECTORS];
        fetch(t, k - t->from);
        FOR (odd, 2) {
            if (2 * k + odd == t->j->in)
                break;
            FOR (c, n)
                w[c] = vf_load_f16((const uint16_t *)(const void *)line + (c / LANES * 2 + odd) * LINEAR_COLUMN +
                                   c % LANES * VL);
            input(rows, n, &x, odd, w, sum);
        }
        inputs_step(&x, rows, 8);
        line += step;
    }
    rows_store(rows, n, t, sum);
}

/* For each pair, add the odd input first, as the bf16 instructions do. */
#ifdef W16_DOT
INLINE void bf16_tile(int rows, int columns, const tile *t)
{
    const int n = columns * LANES;
    vf sum[MAX_ROWS][MAX_VECTORS];
    walk at;
    rows_load(rows, n, t, sum);
    walk_begin(&at, rows, t, prepared_row(t->j, t->row) + t->from * 4, t->j->row_bytes);
    do {
        vi w[MAX_VECTORS];
        fetch(t, at.k);
        FOR (c, n)
            w[c] = vi_load(at.line + c * VL * 4);
        ADD_ROWS(rows, n, sum, W16_DOT, w, vi, vi_set1(inputs_of(&at.x, r)))
    } while (next_line(&at, rows, 4));
    rows_store(rows, n, t, sum);
}
#else
INLINE void bf16_tile(int rows, int columns, const tile *t)
{
    const int n = columns * LANES;
    vf sum[MAX_ROWS][MAX_VECTORS];
    walk at;
    rows_load(rows, n, t, sum);
    walk_begin(&at, rows, t, prepared_row(t->j, t->row) + t->from * 8, t->j->row_bytes);
    do {
        vf w[MAX_VECTORS];
        fetch(t, at.k);
        FOR (c, n)
            w[c] = weights(rows, (vi)((vu)vi_load(at.line + c * VL * 4) & 0xffff0000u));
        input(rows, n, &at.x, 1, w, sum);
        __asm__ volatile("" ::: "memory"); /* load the line again: there are no registers for both halves */
        FOR (c, n)
            w[c] = weights(rows, (vi)((vu)vi_load(at.line + c * VL * 4) << 16));
        input(rows, n, &at.x, 0, w, sum);
    } while (next_line(&at, rows, 8));
    rows_store(rows, n, t, sum);
}
#endif

/* Return the initial sums of int8, and set *row to their stride. At line 0 with unsigned inputs they are -128 Σ q from
 * the panel, equal for all rows; otherwise they are t->sums. */
INLINE const float *int8_begin(const tile *t, int64_t *row)
{
    const bool first = X8_UNSIGNED && t->from == 0;
    *row = first ? 0 : LINEAR_PANEL;
    return first ? (const float *)(const void *)(t->panel + (t->columns + t->first) * LINEAR_COLUMN_BYTES) : t->sums;
}

/* Convert complete sums to outputs in registers. If there is no ReLU, max with -infinity leaves p unchanged. `add` is a
 * constant, so the code for y = p does not wait for y. If the loop read the job, clang would keep the sums on the
 * stack. */
INLINE void int8_end(int rows, int n, const tile *t, bool add, vi sum[MAX_ROWS][MAX_VECTORS])
{
    const linear_job *j = t->j;
    const float *scale = (const float *)(const void *)t->panel + t->first * LINEAR_COLUMN,
                *bias = t->bias + t->first * LINEAR_COLUMN;
    const vf least = vf_set1(j->then == LINEAR_RELU ? 0 : -INFINITY);
    float *y = t->y;
    const char *x = j->prepared + t->row * j->row_bytes;
    const int64_t ldy = j->ldy, row = j->row_bytes;
    FOR (r, rows) {
        const vf a = (vf)vi_set1(x + r * row);
        FOR (c, n) {
            float *to = y + r * ldy + c * VL;
            const vf p = vf_of_vi(sum[r][c]) * vf_load(scale + c * VL) * a + vf_load(bias + c * VL);
            vf_store(to, add ? (vf)(vf_load(to) + p) : (vf)vf_max(least, p));
        }
    }
}

/* Store outputs or sums. */
INLINE void int8_store(int rows, int columns, const tile *t, vi sum[MAX_ROWS][MAX_VECTORS])
{
    const int n = columns * LANES;
    if (INT8_ENDS(rows, columns) && t->y) {
        if (t->j->then == LINEAR_ADD)
            int8_end(rows, n, t, true, sum);
        else
            int8_end(rows, n, t, false, sum);
        return;
    }
    float *sums = t->sums;
    FOR (r, rows) {
        FOR (c, n)
            vi_store(sums + r * LINEAR_PANEL + c * VL, sum[r][c]);
    }
}

INLINE void int8_tile(int rows, int columns, const tile *t)
{
    const int n = columns * LANES;
    vi sum[MAX_ROWS][MAX_VECTORS];
    int64_t row;
    const float *begin = int8_begin(t, &row);
    walk at;
    FOR (r, rows) {
        FOR (c, n)
            sum[r][c] = vi_load(begin + r * row + c * VL);
    }
#ifdef GROUPED
    if (columns == 1 && rows >= MIN_GROUP_ROWS && rows <= GROUP_ROWS(LINEAR_INT8) && t->group) {
        const char *ahead = t->ahead[0];
        sign_run(t->end - t->from, rows, t, (const float *)(const void *)t->group, t->signs, &ahead, sum);
        int8_store(rows, columns, t, sum);
        return;
    }
#endif
    walk_begin(&at, rows, t, prepared_row(t->j, t->row) + t->from * 4 * X8_BYTES, t->j->row_bytes);
    do {
        w8 w[MAX_VECTORS];
        fetch(t, at.k);
        FOR (c, n)
            w[c] = w8_load(at.line + c * VL * 4);
        ADD_ROWS(rows, n, sum, W8_DOT, w, x8, x8_load(inputs_of(&at.x, r)))
    } while (next_line(&at, rows, 4 * X8_BYTES));
    int8_store(rows, columns, t, sum);
}

/* Multiply the integer sums of a group by its scales, and add them to the sums of all rows. `at` are the words of the
 * group in each row. */
INLINE void int4_add(int rows, int n, const uint16_t *scales, const inputs *at, s4 sum[MAX_ROWS][MAX_VECTORS],
                     float *to)
{
    FOR (r, rows) {
        const vi bias = vi_set1(inputs_of(at, r));
        FOR (c, n) {
            const vf s = (vf)(vu_wide(scales + c * VL) << 16);
            float *all = to + r * LINEAR_PANEL + c * VL;
            vf_store(all, vf_fma(vf_of_vi(s4_sum(sum[r][c]) + bias), s, vf_load(all)));
        }
    }
}

/* Begin with the words of the group of line t->from in each prepared row of int4 or q8. */
INLINE void words_begin(inputs *words, int rows, const tile *t, int64_t group)
{
    const linear_job *j = t->j;
    inputs_begin(words, rows, j->prepared + t->row * j->row_bytes + linear_row_groups(j->in) + 4 * group, j->row_bytes);
}

INLINE void int4_tile(int rows, int columns, const tile *t)
{
    const int n = columns * LANES;
    const int64_t step = line_step(t);
    inputs x, words;
    inputs_begin(&x, rows, prepared_row(t->j, t->row) + 8 * t->from, t->j->row_bytes);
    words_begin(&words, rows, t, t->from / INT4_LINES);
    for (int64_t k = t->from; k < t->end; k += INT4_LINES) {
        const int64_t group = k / INT4_LINES;
        const char *line = line_at(t, k);
        s4 sum[MAX_ROWS][MAX_VECTORS];
        FOR (r, rows) {
            FOR (c, n)
                sum[r][c] = (s4){0};
        }
        for (int l = 0; l < INT4_LINES; l++, line += step) {
            w4 low[MAX_VECTORS], high[MAX_VECTORS];
            fetch(t, k + l - t->from);
            FOR (c, n) {
                const vi w = vi_load(line + c * VL * 4);
                low[c] = W4_LOW(w);
                high[c] = W4_HIGH(w);
            }
            FOR (r, rows) {
                const x4 a = x4_load(inputs_of(&x, r) + 8 * l), b = x4_load(inputs_of(&x, r) + 8 * l + 4);
                FOR (c, n) {
                    sum[r][c] = W4_DOT(sum[r][c], low[c], a);
                    sum[r][c] = W4_DOT(sum[r][c], high[c], b);
                }
            }
        }
        const char *scales =
            t->panel + group * linear_group_bytes(LINEAR_INT4, t->columns) + t->first * 2 * LINEAR_COLUMN;
        int4_add(rows, n, (const uint16_t *)(const void *)scales, &words, sum, t->sums);
        inputs_step(&x, rows, LINEAR_GROUP);
        inputs_step(&words, rows, 4);
    }
}

/* Multiply the integer sums of a group of q8 by the scales of x and of the weights, and add them to the sums of all
 * rows. `at` are the words of the group in each row, `scale` the bytes from one to its scale. */
INLINE void q8_add(int rows, int n, const float *scales, const inputs *at, int64_t scale, vi sum[MAX_ROWS][MAX_VECTORS],
                   float *to)
{
    FOR (r, rows) {
        const vi bias = vi_set1(inputs_of(at, r));
        const vf x = (vf)vi_set1(inputs_of(at, r) + scale);
        FOR (c, n) {
            float *all = to + r * LINEAR_PANEL + c * VL;
            vf_store(all, vf_fma(vf_of_vi(sum[r][c] + bias) * x, vf_load(scales + c * VL), vf_load(all)));
        }
    }
}

#ifdef GROUPED
/* q8_tile for interleaved inputs and one column. */
INLINE void q8_group(int rows, const tile *t)
{
    const int64_t scale = 4 * linear_ceil(t->j->in, LINEAR_GROUP), groups = (t->end - t->from) / Q8_LINES;
    const char *run = t->signs, *ahead = t->ahead[0];
    const char *scales = line_at(t, t->from) - linear_head_bytes(LINEAR_Q8, t->columns);
    const float *x = (const float *)(const void *)t->group;
    inputs words;
    words_begin(&words, rows, t, t->from / Q8_LINES);
    for (int64_t g = 0; g < groups; g++) {
        vi sum[MAX_ROWS][MAX_VECTORS];
        FOR (r, rows) {
            FOR (c, LANES)
                sum[r][c] = (vi){0};
        }
        run = sign_run(Q8_LINES, rows, t, x, run, &ahead, sum);
        q8_add(rows, LANES, (const float *)(const void *)scales, &words, scale, sum, t->sums);
        x += Q8_LINES * rows;
        scales += linear_group_bytes(LINEAR_Q8, t->columns);
        inputs_step(&words, rows, 4);
    }
}
#endif

/* Add the products of a group of q8 to integer sums. */
INLINE void q8_lines(int rows, int n, const tile *t, int64_t k, const inputs *x, vi sum[MAX_ROWS][MAX_VECTORS])
{
    const char *line = line_at(t, k);
    const int64_t step = line_step(t);
    for (int l = 0; l < Q8_LINES; l++, line += step) {
        wq w[MAX_VECTORS];
        fetch(t, k + l - t->from);
        FOR (c, n)
            w[c] = wq_load(line + c * VL * 4);
        ADD_ROWS(rows, n, sum, WQ_DOT, w, x4, x4_load(inputs_of(x, r) + 4 * l))
    }
}

/* q8_tile for sets that hold the sums of a group and those of all groups in registers. */
INLINE void q8_held(int rows, int n, const tile *t)
{
    const int64_t scale = 4 * linear_ceil(t->j->in, LINEAR_GROUP), group = linear_group_bytes(LINEAR_Q8, t->columns);
    const char *scales = line_at(t, t->from) - linear_head_bytes(LINEAR_Q8, t->columns);
    vf all[MAX_ROWS][MAX_VECTORS];
    inputs x, words;
    rows_load(rows, n, t, all);
    inputs_begin(&x, rows, prepared_row(t->j, t->row) + 4 * t->from, t->j->row_bytes);
    words_begin(&words, rows, t, t->from / Q8_LINES);
    int64_t k = t->from;
    do {
        vi sum[MAX_ROWS][MAX_VECTORS];
        FOR (r, rows) {
            FOR (c, n)
                sum[r][c] = vi_set1(inputs_of(&words, r));
        }
        q8_lines(rows, n, t, k, &x, sum);
        FOR (r, rows) {
            const vf a = (vf)vi_set1(inputs_of(&words, r) + scale);
            FOR (c, n)
                all[r][c] =
                    vf_fma(vf_of_vi(sum[r][c]) * a, vf_load((const float *)(const void *)scales + c * VL), all[r][c]);
        }
        inputs_step(&x, rows, LINEAR_GROUP);
        inputs_step(&words, rows, 4);
        scales += group;
    } while ((k += Q8_LINES) < t->end);
    floats_store(rows, n, t, all);
}

INLINE void q8_tile(int rows, int columns, const tile *t)
{
#ifdef GROUPED
    if (columns == 1 && rows >= MIN_GROUP_ROWS && rows <= GROUP_ROWS(LINEAR_Q8) && t->group) {
        q8_group(rows, t);
        return;
    }
#endif
    const int n = columns * LANES;
    if (Q8_HELD(rows, columns)) {
        q8_held(rows, n, t);
        return;
    }
    const int64_t scale = 4 * linear_ceil(t->j->in, LINEAR_GROUP);
    inputs x, words;
    inputs_begin(&x, rows, prepared_row(t->j, t->row) + 4 * t->from, t->j->row_bytes);
    words_begin(&words, rows, t, t->from / Q8_LINES);
    for (int64_t k = t->from; k < t->end; k += Q8_LINES) {
        const int64_t group = k / Q8_LINES;
        vi sum[MAX_ROWS][MAX_VECTORS];
        FOR (r, rows) {
            FOR (c, n)
                sum[r][c] = (vi){0};
        }
        q8_lines(rows, n, t, k, &x, sum);
        const char *scales =
            t->panel + group * linear_group_bytes(LINEAR_Q8, t->columns) + t->first * 4 * LINEAR_COLUMN;
        q8_add(rows, n, (const float *)(const void *)scales, &words, scale, sum, t->sums);
        inputs_step(&x, rows, LINEAR_GROUP);
        inputs_step(&words, rows, 4);
    }
}
