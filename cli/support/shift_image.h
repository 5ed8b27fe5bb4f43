/* shift_image.h -- an experiment: an object moves over a grid of patches, and the scores of attention among its patches
 * change with absolute positions, but not with positions relative to each other. The program and the explorer share it.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef RELPOS_SHIFT_IMAGE_H
#define RELPOS_SHIFT_IMAGE_H

#include <relpos/relpos.h>
#include <stdbool.h>

enum { SHIFT_WIDTH = 8, SHIFT_MAX_GRID = 32, SHIFT_MAX_OBJECT = 16 };

/* What attention adds to a picture. */
typedef enum shift_kind {
    SHIFT_ABSOLUTE,        /* a vector for each patch of the grid, as in ViT */
    SHIFT_RELATIVE,        /* a bias for each offset (the term swin), for the whole grid */
    SHIFT_WINDOWS,         /* the same biases, within the windows of Swin */
    SHIFT_SHIFTED_WINDOWS, /* the same biases, within windows that are shifted by half a window */
    SHIFT_KINDS
} shift_kind;

/* A square object on a square grid. Patches outside the object are 0. */
typedef struct shift_image {
    int64_t grid;     /* rows and columns of patches, 1 to SHIFT_MAX_GRID */
    int64_t object;   /* rows and columns of the object, 1 to SHIFT_MAX_OBJECT, at most grid */
    int64_t window;   /* rows and columns of a window, 1 to grid. Windows at the edges may be smaller */
    double *patch;    /* [object * object, SHIFT_WIDTH] patches of the object */
    double *position; /* [grid * grid, SHIFT_WIDTH] vectors of absolute positions */
    double *table;    /* [(2 grid - 1)^2, 1] biases of offsets, in the order of the term swin */
} shift_image;

/* Draw the numbers of `patch`, `position` and `table`, in this order, between -1 and 1. Return false if out of memory.
 * The caller calls shift_end in both cases. */
bool shift_begin(shift_image *s, int64_t grid, int64_t object, int64_t window, uint64_t seed);
void shift_end(shift_image *s);

/* Compute the scores [object * object, object * object] of the object's patches with each other, by the definition and
 * in double. The object's first patch is in row and column `corner`, 0 to grid - object. A pair that does not attend
 * has the score -INFINITY. Return RP_OK or RP_E_NOMEM. */
rp_status shift_scores(const shift_image *s, shift_kind kind, int64_t corner, double *score);

/* How scores differ in two places. */
typedef struct shift_change {
    double largest; /* change of a score, among pairs that attend in both places */
    int64_t pairs;  /* pairs that attend in only one of the places */
} shift_change;
/* Compare n scores in two places. */
shift_change shift_compare(int64_t n, const double *before, const double *after);

#endif
