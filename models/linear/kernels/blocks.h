/* blocks.h -- products of blocks as they are in a file: converts a few inputs of a panel of rows to a strip (layout.h),
 * and multiplies the strip by register tiles. Parameters: as tiles.h. */
#ifndef LINEAR_ISA
#include "linear/kernels/tiles.h" /* lets an editor parse this file on its own */
#endif

enum { STRIP_BYTES = (2 * LINEAR_BLOCK / LINEAR_SHARED + LINEAR_BLOCK / 4) * LINEAR_COLUMNS * LINEAR_COLUMN_BYTES };

#define SPLIT_STEP        LINEAR_COLUMN_BYTES
#define SPLIT_LOAD(p)     ((vu)vi_load(p))
#define SPLIT_STORE(p, x) vi_store(p, (vi)(x))
#define SPLIT_FLOAT(x)    ((vf)(x))
#define SPLIT_BITS(x)     ((vu)(x))
#include "linear/split.h"

enum { RAW_BYTES = 256 }; /* a block with space for whole vectors */

/* Copy a block. memcpy of a size that is not constant would take as long as everything else. */
static void copy_block(char *to, const char *from, int64_t bytes)
{
    enum { PIECE = 16 }; /* every block is larger */
    for (int64_t k = 0; k < bytes - PIECE; k += PIECE)
        memcpy(to + k, from + k, PIECE);
    memcpy(to + bytes - PIECE, from + bytes - PIECE, PIECE);
}

/* Store words of 16 blocks side by side: word k of all blocks at to + k * LINEAR_COLUMN_BYTES. */
INLINE void spread(char raw[LINEAR_COLUMN][RAW_BYTES], int64_t words, char *to)
{
    for (int64_t k = 0; k < words; k += VL) {
        RPI_UNROLL
        for (int r = 0; r < LINEAR_COLUMN; r += VL) {
            vf x[VL];
            RPI_UNROLL
            for (int c = 0; c < VL; c++)
                x[c] = vf_load((const float *)(const void *)raw[r + c] + k);
            vf_transpose(x);
            RPI_UNROLL
            for (int c = 0; c < VL; c++)
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
static void split_column(const linear_blocks *b, char raw[LINEAR_COLUMN][RAW_BYTES], const split *to, int64_t group)
{
    char words[RAW_BYTES / 4][LINEAR_COLUMN_BYTES] __attribute__((aligned(64)));
    const int64_t line = group * b->group / 4;
    spread(raw, linear_ceil(b->lead + b->bytes, 4), words[0]);
    for (int r = 0; r < LINEAR_COLUMN; r += VL) {
        const split s = {words[0] + 4 * r, to->lines + line * to->step + 4 * r, to->scales + group * to->step + 4 * r,
                         to->offsets + group * to->step + 4 * r, to->step};
        split_blocks(&s, b->kind);
        finish_scales(b, &s, b->numbers / b->group);
    }
}

/* Convert n inputs of a panel, from input `from` on. */
static void make_strip(const linear_job *j, int64_t panel, int64_t columns, int64_t from, int64_t n, char *strip)
{
    const linear_blocks *b = j->blocks;
    const int64_t step = columns * LINEAR_COLUMN_BYTES, groups = n / b->group, row = j->panel_bytes / LINEAR_PANEL;
    char raw[LINEAR_COLUMN][RAW_BYTES] __attribute__((aligned(64))) = {{0}};
    for (int64_t c = 0; c < columns; c++, strip += LINEAR_COLUMN_BYTES) {
        const int64_t first = panel * LINEAR_PANEL + c * LINEAR_COLUMN,
                      rows = linear_min(j->out - first, LINEAR_COLUMN);
        const split to = {NULL, strip + 2 * groups * step, strip + groups * step, strip, step};
        for (int64_t i = 0; i < n; i += b->numbers) {
            const char *at = j->packed + first * row + (from + i) / b->numbers * b->bytes;
            for (int64_t r = 0; r < rows; r++) {
                __builtin_prefetch(at + r * row + n / b->numbers * b->bytes, 0, 3);
                copy_block(raw[r] + b->lead, at + r * row, b->bytes);
            }
            split_column(b, raw, &to, i / b->group);
        }
    }
}

/* Add the products of the offsets and the sums of inputs. */
INLINE void blocks_offsets(int rows, int n, const tile *t)
{
    const linear_job *j = t->j;
    const int64_t each = j->blocks->group, step = line_step(t);
    const char *offsets = t->panel + t->first * LINEAR_COLUMN_BYTES;
    vf sum[MAX_ROWS][MAX_VECTORS];
    inputs x;
    rows_load(rows, n, t, sum);
    inputs_begin(&x, rows,
                 j->prepared + t->row * j->row_bytes + linear_row_groups(j->in) +
                     4 * (j->in / LINEAR_GROUP + t->from / each),
                 j->row_bytes);
    int64_t k = t->from;
    do {
        vf w[MAX_VECTORS];
        RPI_UNROLL
        for (int c = 0; c < n; c++)
            w[c] = vf_load((const float *)(const void *)offsets + c * VL);
        input(rows, n, &x, 0, w, sum);
        inputs_step(&x, rows, 4);
        offsets += step;
        k += each;
    } while (k < t->end);
    rows_store(rows, n, t, sum);
}

/* Multiply the integer sums of a run by the scales of x and of the weights, and add them to the sums of a row. `input`
 * is the first input of the run. */
INLINE void blocks_add(int n, const tile *t, const char *scales, int64_t input, int r, const s4 *sum)
{
    const linear_job *j = t->j;
    const vf x =
        (vf)vi_set1(j->prepared + (t->row + r) * j->row_bytes + linear_row_groups(j->in) + 4 * (input / LINEAR_GROUP));
    float *to = t->sums + r * LINEAR_PANEL;
    RPI_UNROLL
    for (int c = 0; c < n; c++)
        vf_store(to + c * VL, vf_fma(vf_of_vi(s4_sum(sum[c])) * x,
                                     vf_load((const float *)(const void *)scales + c * VL), vf_load(to + c * VL)));
}

INLINE void blocks_tile(int rows, int columns, const tile *t)
{
    const int n = columns * LANES;
    const int64_t step = line_step(t), each = t->j->blocks->group, run = linear_run(t->j->blocks);
    const char *scales = t->panel + (t->end - t->from) / each * step + t->first * LINEAR_COLUMN_BYTES,
               *line = scales + (t->end - t->from) / each * step;
    blocks_offsets(rows, n, t);
    for (int64_t k = t->from; k < t->end; k += run) {
        s4 sum[MAX_ROWS][MAX_VECTORS];
        RPI_UNROLL
        for (int r = 0; r < rows; r++) {
            RPI_UNROLL
            for (int c = 0; c < n; c++)
                sum[r][c] = (s4){0};
        }
        for (int64_t i = k; i < k + run; i += 4, line += step) {
            w4 w[MAX_VECTORS];
            RPI_UNROLL
            for (int c = 0; c < n; c++)
                w[c] = vi_load(line + c * VL * 4);
            RPI_UNROLL
            for (int r = 0; r < rows; r++) {
                const x4 a = x4_load(prepared_row(t->j, t->row + r) + i);
                RPI_UNROLL
                for (int c = 0; c < n; c++)
                    sum[r][c] = W4_DOT(sum[r][c], w[c], a);
            }
        }
        RPI_UNROLL
        for (int r = 0; r < rows; r++)
            blocks_add(n, t, scales + (k - t->from) / each * step, k, r, sum[r]);
    }
}
