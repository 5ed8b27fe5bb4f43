/* 04_shift.c -- shift an image by one patch, and compare the scores of attention with absolute and with relative
 * positions. An object of 3 x 3 patches moves down and to the right. With absolute positions its scores change; with a
 * table of offsets, as in Swin, they do not.
 *
 *     cc 04_shift.c $(pkg-config --cflags --libs relpos) -lm -o 04_shift && ./04_shift
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <relpos/relpos.h>
#include <stdio.h>
#include <stdlib.h>

enum { SIDE = 9, OBJECT = 3, CELLS = OBJECT * OBJECT, N = SIDE * SIDE, D = 8, TABLE = (2 * SIDE - 1) * (2 * SIDE - 1) };

static float object[CELLS][D], position[N][D], table[TABLE][1];

static void draw(float *x, int n)
{
    for (int i = 0; i < n; i++)
        x[i] = 2 * (float)rand() / (float)RAND_MAX - 1;
}

/* Return the token of a cell of the object, whose upper left corner is at (corner, corner). */
static int token(int corner, int cell)
{
    return (corner + cell / OBJECT) * SIDE + corner + cell % OBJECT;
}

/* Compute the scores of the object's patches with each other. The rest of the image is 0. */
static void object_scores(double score[CELLS][CELLS], int corner, int relative)
{
    const int64_t shape[4] = {1, 1, N, D}, table_shape[2] = {TABLE, 1};
    float x[N][D] = {0};
    for (int cell = 0; cell < CELLS; cell++)
        for (int d = 0; d < D; d++)
            x[token(corner, cell)][d] = object[cell][d];
    for (int i = 0; i < N && !relative; i++) /* absolute positions are added to the patches */
        for (int d = 0; d < D; d++)
            x[i][d] += position[i][d];

    rp_term swin = rp_term_init(RP_TERM_SWIN);
    swin.grid_h = swin.grid_w = SIDE;
    rp_desc desc = rp_desc_init(1, 1, N, N, D);
    desc.terms = &swin, desc.n_terms = relative;
    rp_tensors t = rp_tensors_init();
    t.q = t.k = t.v = rp_array_of(x, RP_F32, 4, shape);
    if (relative)
        t.term[0][0] = rp_array_of(table, RP_F32, 2, table_shape);

    rp_plan *plan;
    rp_status status = rp_plan_create(&plan, &desc);
    for (int i = 0; i < CELLS && status == RP_OK; i++) {
        double all[N];
        rp_row row = {.score = all};
        status = rp_attend_row(plan, &t, 0, 0, token(corner, i), &row);
        for (int j = 0; j < CELLS && status == RP_OK; j++)
            score[i][j] = all[token(corner, j)];
    }
    if (status != RP_OK) {
        fprintf(stderr, "%s\n", rp_last_error());
        exit(1);
    }
    rp_plan_destroy(plan);
}

int main(void)
{
    draw(*object, CELLS * D);
    draw(*position, N * D);
    draw(*table, TABLE);
    printf("largest change of a score in the object, shifted by one patch:\n");
    for (int relative = 0; relative < 2; relative++) {
        double before[CELLS][CELLS], after[CELLS][CELLS], change = 0;
        object_scores(before, 2, relative);
        object_scores(after, 3, relative);
        for (int i = 0; i < CELLS; i++)
            for (int j = 0; j < CELLS; j++)
                change = fmax(change, fabs(after[i][j] - before[i][j]));
        printf("%s positions  %.2f\n", relative ? "relative" : "absolute", change);
    }
    return 0;
}
