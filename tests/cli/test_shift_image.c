/* test_shift_image.c -- the scores of an object that moves over a grid, compared with loops over their formulas.
 * SPDX-License-Identifier: Apache-2.0 */
#include "tests/helpers.h"

#include "cli/support/shift_image.h"

/* Return the row or column in the grid that Swin rolls by `shift` before it cuts windows. */
static int64_t rolled(int64_t row, int64_t shift, int64_t padded)
{
    return (row - shift + padded) % padded;
}

/* Return true if two rows (or columns) are in one window, and were neighbours of its other rows before the roll. */
static bool together(int64_t a, int64_t b, int64_t shift, int64_t window, int64_t padded)
{
    return rolled(a, shift, padded) / window == rolled(b, shift, padded) / window && (a < shift) == (b < shift);
}

/* Compute one score from the patches and positions of the cells i and j of the object. */
static double score_of(const shift_image *s, shift_kind kind, int64_t corner, int64_t i, int64_t j)
{
    const int64_t iy = corner + i / s->object, ix = corner + i % s->object, jy = corner + j / s->object,
                  jx = corner + j % s->object, padded = (s->grid + s->window - 1) / s->window * s->window,
                  shift = kind == SHIFT_SHIFTED_WINDOWS && s->window < s->grid ? s->window / 2 : 0;
    double sum = 0;
    for (int64_t c = 0; c < SHIFT_WIDTH; c++) {
        double q = s->patch[i * SHIFT_WIDTH + c], k = s->patch[j * SHIFT_WIDTH + c];
        if (kind == SHIFT_ABSOLUTE) {
            q += s->position[(iy * s->grid + ix) * SHIFT_WIDTH + c];
            k += s->position[(jy * s->grid + jx) * SHIFT_WIDTH + c];
        }
        sum += q * k;
    }
    const double score = sum / sqrt(SHIFT_WIDTH);
    if (kind == SHIFT_ABSOLUTE)
        return score;
    if (kind != SHIFT_RELATIVE &&
        !(together(iy, jy, shift, s->window, padded) && together(ix, jx, shift, s->window, padded)))
        return -INFINITY;
    return score + s->table[(iy - jy + s->grid - 1) * (2 * s->grid - 1) + ix - jx + s->grid - 1];
}

static void scores_equal_the_formulas(void **state)
{
    (void)state;
    static const int64_t sizes[][3] = {{8, 2, 4}, {9, 3, 3}, {7, 4, 3}, {6, 2, 1}, {5, 3, 5}, {1, 1, 1}, {11, 5, 6}};
    for (size_t n = 0; n < sizeof sizes / sizeof *sizes; n++) {
        shift_image s;
        const int64_t cells = sizes[n][1] * sizes[n][1];
        double score[25 * 25];
        assert_true(shift_begin(&s, sizes[n][0], sizes[n][1], sizes[n][2], n));
        for (int kind = 0; kind < SHIFT_KINDS; kind++)
            for (int64_t corner = 0; corner <= s.grid - s.object; corner++) {
                assert_int_equal(shift_scores(&s, (shift_kind)kind, corner, score), RP_OK);
                for (int64_t x = 0; x < cells * cells; x++) {
                    /* sums of 8 products of numbers below 2, divided by sqrt(8), plus a bias below 1: below 13. Each
                     * of the two sums is off by less than 12 roundings */
                    const double want = score_of(&s, (shift_kind)kind, corner, x / cells, x % cells);
                    if (!(score[x] == want || fabs(score[x] - want) <= 2 * 12 * 13 * 0x1p-53))
                        fail_msg("grid %d, object %d, window %d, kind %d, corner %d, pair %d: %.17g, expected %.17g",
                                 (int)s.grid, (int)s.object, (int)s.window, kind, (int)corner, (int)x, score[x], want);
                }
            }
        shift_end(&s);
    }
}

/* The numbers of an image depend on the seed, and their number on the sizes. */
static void numbers_are_drawn(void **state)
{
    (void)state;
    shift_image a, b;
    assert_true(shift_begin(&a, 4, 2, 2, 1) && shift_begin(&b, 4, 2, 2, 2));
    double low = 0, high = 0;
    for (int64_t c = 0; c < 49; c++) {
        assert_true(a.table[c] != b.table[c] && fabs(a.table[c]) < 1);
        low = fmin(low, a.table[c]), high = fmax(high, a.table[c]);
    }
    assert_true(low < -0.5 && high > 0.5);
    shift_end(&a), shift_end(&b);
}

static void scores_are_compared(void **state)
{
    (void)state;
    const double before[6] = {1, -INFINITY, 2, -INFINITY, 5, 0}, after[6] = {1.5, -INFINITY, -INFINITY, 3, 4, 0};
    const shift_change c = shift_compare(6, before, after);
    assert_true(c.largest == 1 && c.pairs == 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(scores_equal_the_formulas), cmocka_unit_test(numbers_are_drawn),
                                       cmocka_unit_test(scores_are_compared)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
