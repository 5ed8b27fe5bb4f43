/* signs.h -- strips of signs: products of bytes for instruction sets that multiply unsigned by signed bytes and add two
 * products in 16 bits, which must not saturate. A strip has |w| and the signs of some lines of a column, for all groups
 * of rows of a block. Tiles multiply |w| by x, or by x ^ -1 = -x - 1 where w is negative. This gives w x or w x + w, so
 * sums begin at minus the sum of the negative w. Two products are at most 2 * 127 * 128, which fits into 16 bits.
 * Parameters: W8_SIZE(w), |w|; W8_NEGATIVE(w), -1 where w < 0; W8_PAIRS(size, x), sums of two products in 16 bits;
 * ADD_BYTES, the products of a line. */
#ifndef LINEAR_ISA
#include "linear/kernels/store.h" /* lets an editor parse this file on its own */
#endif
#ifdef GROUPED

/* A strip consists of runs of lines. A run begins with the first sums; then each line has |w|, then -1 where w is
 * negative. A run of q8 is a group. For int8 there is one run. */
enum { SIGN_LINES = 256, SIGN_LINE = 2 * LINEAR_COLUMN_BYTES };
enum { SIGN_BYTES = SIGN_LINES / Q8_LINES * LINEAR_COLUMN_BYTES + SIGN_LINES * SIGN_LINE };

/* Return true if blocks of this type use strips of signs. */
INLINE bool has_signs(linear_type type)
{
    return type == LINEAR_INT8 || type == LINEAR_Q8;
}

/* Convert `lines` lines of a vector, `step` bytes apart, to a run. The sum of two negative w is at least -254, so 16
 * bits hold the sum of 128 lines. */
INLINE void make_run(const char *line, int64_t step, int64_t lines, int32_t flip, char *run)
{
    char *to = run + LINEAR_COLUMN_BYTES;
    const vh ones = (vh){0} + 1;
    vi first = {0};
    while (lines > 0) {
        vh sum = {0};
        int64_t some = linear_min(lines, 128);
        for (lines -= some; some > 0; some--, line += step, to += SIGN_LINE) {
            const vi w = vi_load(line) ^ flip, negative = W8_NEGATIVE(w), size = W8_SIZE(w);
            vi_store(to, size);
            vi_store(to + LINEAR_COLUMN_BYTES, negative);
            sum += W8_PAIRS(size, negative);
        }
        first -= vi_madd((vi)sum, (vi)ones);
    }
    vi_store(run, first);
}

/* Convert the lines of a tile of one column to a strip. */
static void make_signs(const tile *t, char *strip)
{
    const bool q8 = t->j->type == LINEAR_Q8;
    const int64_t lines = q8 ? Q8_LINES : t->end - t->from, step = line_step(t);
    for (int64_t k = t->from; k < t->end; k += lines, strip += LINEAR_COLUMN_BYTES + lines * SIGN_LINE) {
        for (int c = 0; c < LINEAR_COLUMN_BYTES; c += 4 * VL)
            make_run(line_at(t, k) + c, step, lines, q8 ? Q8_SIGN : 0, strip + c);
    }
}

/* Add the products of some lines of a run. */
INLINE void sign_lines(int lines, int rows, const float *x, const char *line, vi ones, vi sum[MAX_ROWS][MAX_VECTORS])
{
    FOR (k, lines) {
        const vi *w = (const vi *)(const void *)(line + k * SIGN_LINE);
        const vi low = held(w[0]), high = held(w[1]);
        FOR (r, rows)
            ADD_BYTES(sum[r][0], sum[r][1], x[k * rows + r], low, high, w + 2, ones);
    }
}

/* Add the products of a run to the sums of all rows, and the first sums of the run. Return the end of the run. */
INLINE const char *sign_run(int64_t lines, int rows, const tile *t, const float *x, const char *run, const char **ahead,
                            vi sum[MAX_ROWS][MAX_VECTORS])
{
    const vi ones = held((vi)((vh){0} + 1));
    const vi *first = (const vi *)(const void *)run;
    FOR (r, rows) {
        FOR (c, LANES)
            sum[r][c] += first[c];
    }
    run += LINEAR_COLUMN_BYTES;
    for (int64_t k = lines / UNROLLED; k > 0; k--) {
        *ahead = fetch_share(t, *ahead);
        sign_lines(UNROLLED, rows, x, run, ones, sum);
        x += UNROLLED * rows;
        run += UNROLLED * SIGN_LINE;
    }
    for (int64_t k = lines % UNROLLED; k > 0; k--) {
        sign_lines(1, rows, x, run, ones, sum);
        x += rows;
        run += SIGN_LINE;
    }
    return run;
}
#endif
