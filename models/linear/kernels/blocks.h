/* blocks.h -- products of blocks as they are in a file: converts a few inputs of a panel of rows to a strip (layout.h),
 * and multiplies the strip by register tiles. Parameters: as tiles.h. */
#ifndef LINEAR_ISA
#include "linear/kernels/tiles.h" /* lets an editor parse this file on its own */
#endif

enum { STRIP_BYTES = (2 * LINEAR_BLOCK / LINEAR_SHARED + LINEAR_BLOCK / 4) * LINEAR_COLUMNS * LINEAR_COLUMN_BYTES };

#ifdef LINEAR_BASE
#define make_strip LINEAR_BASE.strip
#else
#define SPLIT_STEP        LINEAR_COLUMN_BYTES
#define SPLIT_UNROLL      RPI_UNROLL
#define SPLIT_LOAD(p)     ((vu)vi_load(p))
#define SPLIT_STORE(p, x) vi_store(p, (vi)(x))
#define SPLIT_FLOAT(x)    ((vf)(x))
#define SPLIT_BITS(x)     ((vu)(x))
#include "linear/split.h"

enum { RAW_BYTES = 256 }; /* a block with space for whole vectors */

/* Copy a block. A call of memcpy would take as long as everything else. */
INLINE void copy_block(char *to, const char *from, int64_t bytes)
{
    enum { PIECE = 16 }; /* every block is larger */
    for (int64_t k = 0; k < bytes - PIECE; k += PIECE) {
        memcpy(to + k, from + k, PIECE);
        __asm__("" : "+r"(k)); /* keep the compiler from making this loop a call of memcpy */
    }
    memcpy(to + bytes - PIECE, from + bytes - PIECE, PIECE);
}

/* Store words of 16 blocks, `row` bytes apart, side by side: word k of all blocks at to + k * LINEAR_COLUMN_BYTES. */
INLINE void spread(const char *blocks, int64_t row, int64_t words, char *to)
{
    for (int64_t k = 0; k < words; k += VL) {
        RPI_UNROLL
        for (int r = 0; r < LINEAR_COLUMN; r += VL) {
            vf x[VL];
            FOR (c, VL)
                x[c] = (vf)vf_bits(blocks + (r + c) * row + 4 * k); /* blocks of 18 bytes are not aligned */
            vf_transpose(x);
            FOR (c, VL)
                vf_store((float *)(void *)(to + (k + c) * LINEAR_COLUMN_BYTES) + r, x[c]);
        }
    }
}

/* For types with a zero, write offsets: -zero * scale. If a scale or offset is not finite, make the scale NaN, so that
 * the output is NaN. */
static void finish_scales(const linear_blocks *b, const split *s, int64_t groups)
{
    for (int64_t g = 0; g < groups; g++) {
        const vf scale = vf_load((const float *)(void *)(s->scales + g * s->step));
        const vf offset = b->zero > 0 ? (vf)(scale * vf_set1(-(float)b->zero))
                                      : (vf)vf_load((const float *)(void *)(s->offsets + g * s->step));
        vf_store((float *)(void *)(s->offsets + g * s->step), offset);
        vf_store((float *)(void *)(s->scales + g * s->step), scale + ((scale - scale) + (offset - offset)));
    }
}

/* Split the blocks of 16 rows, and store them in a column of a strip from group `group` on. */
static void split_column(const linear_blocks *b, const char *blocks, int64_t row, const split *to, int64_t group)
{
    char words[RAW_BYTES / 4][LINEAR_COLUMN_BYTES] __attribute__((aligned(64)));
    const int64_t line = group * b->group / 4;
    spread(blocks, row, linear_ceil(b->lead + b->bytes, 4), words[0]);
    for (int r = 0; r < LINEAR_COLUMN; r += VL) {
        const split s = {words[0] + 4 * r, to->lines + line * to->step + 4 * r, to->scales + group * to->step + 4 * r,
                         to->offsets + group * to->step + 4 * r, to->step};
        split_blocks(&s, b->kind);
        finish_scales(b, &s, b->numbers / b->group);
    }
}

/* Prefetch the blocks of 16 rows that the next strip reads, which may be in the next panel. `at` has the blocks of this
 * strip. They are far apart, so processors do not prefetch them. */
static void fetch_blocks(const linear_job *j, const char *at, int64_t first, int64_t from, int64_t n)
{
    const int64_t row = j->panel_bytes / LINEAR_PANEL, bytes = n / j->blocks->numbers * j->blocks->bytes;
    const bool last = from + n >= j->in;
    if (last && first + LINEAR_PANEL + LINEAR_COLUMN > j->out)
        return;
    at += last ? j->panel_bytes + bytes - row : bytes;
    for (int r = 0; r < LINEAR_COLUMN; r++, at += row)
        for (int64_t k = 0; k < bytes + 63; k += 64)
            __builtin_prefetch(at + k, 0, 3);
}

/* Copy blocks of up to 16 rows, `row` bytes apart, to where vectors can be read past their end. */
static const char *copy_blocks(const linear_blocks *b, const char *from, int64_t rows, int64_t row,
                               char raw[LINEAR_COLUMN][RAW_BYTES])
{
    if (rows < LINEAR_COLUMN)
        memset(raw, 0, sizeof(char[LINEAR_COLUMN][RAW_BYTES]));
    for (int64_t r = 0; r < rows; r++)
        copy_block(raw[r] + b->lead, from + r * row, b->bytes);
    return raw[0];
}

/* Convert n inputs of a panel, from input `from` on. */
static void make_strip(const linear_job *j, int64_t panel, int64_t columns, int64_t from, int64_t n, char *strip)
{
    const linear_blocks *b = j->blocks;
    const int64_t step = columns * LINEAR_COLUMN_BYTES, groups = n / b->group, row = j->panel_bytes / LINEAR_PANEL;
    char raw[LINEAR_COLUMN][RAW_BYTES] __attribute__((aligned(64)));
    for (int64_t c = 0; c < columns; c++, strip += LINEAR_COLUMN_BYTES) {
        const int64_t first = panel * LINEAR_PANEL + c * LINEAR_COLUMN,
                      rows = linear_min(j->out - first, LINEAR_COLUMN);
        const bool last = first + LINEAR_COLUMN >= j->out && from + n >= j->in;
        const split to = {NULL, strip + 2 * groups * step, strip + groups * step, strip, step};
        const char *at = j->packed + first * row + from / b->numbers * b->bytes;
        fetch_blocks(j, at, first, from, n);
        for (int64_t i = 0; i < n; i += b->numbers, at += b->bytes) {
            if (b->numbers == LINEAR_BLOCK && rows == LINEAR_COLUMN && !last) /* a block follows */
                split_column(b, at, row, &to, i / b->group);
            else
                split_column(b, copy_blocks(b, at, rows, row, raw), RAW_BYTES, &to, i / b->group);
        }
    }
}
#endif

/* Add the products of the offsets and the sums of inputs. */
INLINE void blocks_offsets(int rows, int n, const tile *t)
{
    const linear_job *j = t->j;
    const int64_t each = j->blocks->group;
    walk at = {
        .line = t->panel + t->first * LINEAR_COLUMN_BYTES, .step = line_step(t), .lines = (t->end - t->from) / each};
    inputs_begin(&at.x, rows,
                 j->prepared + t->row * j->row_bytes + linear_row_groups(j->in) +
                     4 * (j->in / LINEAR_GROUP + t->from / each),
                 j->row_bytes);
    f32_products(rows, n, t, &at, false);
}

/* Multiply the integer sums of a run by the scales of x and of the weights, and add them to the sums of all rows. */
INLINE void blocks_add(int rows, int n, const tile *t, const char *scales, const inputs *x,
                       s4 sum[MAX_ROWS][MAX_VECTORS])
{
    float *to = t->sums;
    FOR (r, rows) {
        const vf a = (vf)vi_set1(inputs_of(x, r));
        FOR (c, n) {
            const vf w = vf_load((const float *)(const void *)scales + c * VL);
            vf_store(to + r * LINEAR_PANEL + c * VL,
                     vf_fma(vf_of_vi(s4_sum(sum[r][c])) * a, w, vf_load(to + r * LINEAR_PANEL + c * VL)));
        }
    }
}

/* Add the products of a line. */
INLINE void blocks_line(int rows, int n, const inputs *x, const char *line, s4 sum[MAX_ROWS][MAX_VECTORS])
{
    w4 w[MAX_VECTORS];
    FOR (c, n)
        w[c] = (w4)vi_load(line + c * VL * 4);
    FOR (r, rows) {
        const x4 a = x4_load(inputs_of(x, r));
        FOR (c, n)
            sum[r][c] = W4_ADD(sum[r][c], w[c], a);
    }
}

/* There are no tiles of two columns, to keep the program small. */
INLINE void blocks_tile(int rows, int columns, const tile *t)
{
    if (columns == 2)
        return;
    const linear_job *j = t->j;
    const int n = columns * LANES;
    const int64_t step = line_step(t), each = j->blocks->group, run = linear_run(j->blocks), size = t->end - t->from;
    const char *scales = t->panel + size / each * step + t->first * LINEAR_COLUMN_BYTES,
               *line = scales + size / each * step;
    inputs x, scale;
    blocks_offsets(rows, n, t);
    inputs_begin(&x, rows, prepared_row(j, t->row) + t->from, j->row_bytes);
    inputs_begin(&scale, rows,
                 j->prepared + t->row * j->row_bytes + linear_row_groups(j->in) + t->from / LINEAR_GROUP * 4,
                 j->row_bytes);
    for (int64_t k = 0; k < size; k += run) {
        s4 sum[MAX_ROWS][MAX_VECTORS];
        FOR (r, rows) {
            FOR (c, n)
                sum[r][c] = (s4){0};
        }
        int64_t i = run;
        do {
            blocks_line(rows, n, &x, line, sum);
            inputs_step(&x, rows, 4);
            line += step;
        } while ((i -= 4) > 0);
        blocks_add(rows, n, t, scales, &scale, sum);
        if ((k + run) % each == 0)
            scales += step;
        if ((k + run) % LINEAR_GROUP == 0)
            inputs_step(&scale, rows, 4);
    }
}
