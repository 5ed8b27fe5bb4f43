/* shift_image.c -- an experiment: an object moves over a grid of patches.
 * SPDX-License-Identifier: Apache-2.0 */
#include "cli/support/shift_image.h"
#include "cli/support/sample_arrays.h"
#include <math.h>
#include <stdlib.h>

static double *draw(int64_t n, uint64_t seed, uint64_t *place)
{
    double *x = malloc((size_t)n * sizeof *x);
    for (int64_t c = 0; x && c < n; c++)
        x[c] = sample_number(seed, (*place)++);
    return x;
}

/* Return the number of entries of the table. */
static int64_t offsets(const shift_image *s)
{
    return (2 * s->grid - 1) * (2 * s->grid - 1);
}

bool shift_begin(shift_image *s, int64_t grid, int64_t object, int64_t window, uint64_t seed)
{
    uint64_t place = 0;
    *s = (shift_image){.grid = grid, .object = object, .window = window};
    s->patch = draw(object * object * SHIFT_WIDTH, seed, &place);
    s->position = draw(grid * grid * SHIFT_WIDTH, seed, &place);
    s->table = draw(offsets(s), seed, &place);
    return s->patch && s->position && s->table;
}

void shift_end(shift_image *s)
{
    free(s->patch);
    free(s->position);
    free(s->table);
}

/* Return the token of a cell of the object. */
static int64_t token(const shift_image *s, int64_t corner, int64_t cell)
{
    return (corner + cell / s->object) * s->grid + corner + cell % s->object;
}

/* Return the number of the window that contains a row or a column. Shifted windows begin half a window later, so
 * another one, which the edge of the grid cuts, is before them. Swin does not shift a window as large as the grid. */
static int32_t window_of(const shift_image *s, shift_kind kind, int64_t row)
{
    const bool shifted = kind == SHIFT_SHIFTED_WINDOWS && s->window < s->grid;
    return (int32_t)((row + (shifted ? s->window - s->window / 2 : 0)) / s->window);
}

/* Fill the patches x [grid * grid, SHIFT_WIDTH] and the window of each patch. */
static void fill(const shift_image *s, shift_kind kind, int64_t corner, double *x, int32_t *window)
{
    const int64_t n = s->grid * s->grid;
    for (int64_t c = 0; c < n * SHIFT_WIDTH; c++)
        x[c] = kind == SHIFT_ABSOLUTE ? s->position[c] : 0;
    for (int64_t cell = 0; cell < s->object * s->object; cell++)
        for (int64_t c = 0; c < SHIFT_WIDTH; c++)
            x[token(s, corner, cell) * SHIFT_WIDTH + c] += s->patch[cell * SHIFT_WIDTH + c];
    for (int64_t i = 0; i < n; i++)
        window[i] = window_of(s, kind, i / s->grid) * (int32_t)(s->grid + 1) + window_of(s, kind, i % s->grid);
}

rp_status shift_scores(const shift_image *s, shift_kind kind, int64_t corner, double *score)
{
    const int64_t n = s->grid * s->grid, cells = s->object * s->object;
    const int64_t shape[4] = {1, 1, n, SHIFT_WIDTH}, table_shape[2] = {offsets(s), 1}, window_shape[2] = {1, n};
    double *x = malloc((size_t)n * SHIFT_WIDTH * sizeof *x), *all = malloc((size_t)n * sizeof *all);
    int32_t *window = malloc((size_t)n * sizeof *window);
    rp_term swin = rp_term_init(RP_TERM_SWIN);
    rp_mask segments = rp_mask_init(RP_MASK_SEGMENTS);
    rp_desc desc = rp_desc_init(1, 1, n, n, SHIFT_WIDTH);
    rp_tensors t = rp_tensors_init();
    rp_plan *plan = NULL;
    rp_status status = x && all && window ? RP_OK : RP_E_NOMEM;
    swin.grid_h = swin.grid_w = s->grid;
    desc.dtype = RP_F64;
    desc.terms = &swin, desc.masks = &segments;
    if (status == RP_OK) {
        fill(s, kind, corner, x, window);
        t.q = t.k = t.v = rp_array_of(x, RP_F64, 4, shape);
        if (kind != SHIFT_ABSOLUTE) {
            desc.n_terms = 1;
            t.term[0][0] = rp_array_of(s->table, RP_F64, 2, table_shape);
        }
        if (kind == SHIFT_WINDOWS || kind == SHIFT_SHIFTED_WINDOWS) {
            desc.n_masks = 1;
            t.mask[0] = rp_array_of(window, RP_I32, 2, window_shape);
        }
        status = rp_plan_create(&plan, &desc);
    }
    for (int64_t i = 0; i < cells && status == RP_OK; i++) {
        rp_row row = {.score = all};
        status = rp_attend_row(plan, &t, 0, 0, token(s, corner, i), &row);
        for (int64_t j = 0; j < cells && status == RP_OK; j++)
            score[i * cells + j] = all[token(s, corner, j)];
    }
    rp_plan_destroy(plan);
    free(x);
    free(all);
    free(window);
    return status;
}

shift_change shift_compare(int64_t n, const double *before, const double *after)
{
    shift_change change = {0};
    for (int64_t c = 0; c < n; c++) {
        if ((before[c] == -INFINITY) != (after[c] == -INFINITY))
            change.pairs++;
        else if (before[c] != -INFINITY)
            change.largest = fmax(change.largest, fabs(after[c] - before[c]));
    }
    return change;
}
