/* picture.h -- heat maps of a matrix: in the terminal, as PNG, as SVG. Independent of attention.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef RELPOS_PICTURE_H
#define RELPOS_PICTURE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* One panel: rows x cols values, row-major. -INFINITY is drawn as "masked" (grey, '/'), NaN in magenta or as '?', and
 * +INFINITY as the largest finite value. */
typedef struct pic_panel {
    const double *value;
    int64_t rows, cols;
    const char *title; /* printed above the panel; may be NULL */
} pic_panel;

/* A picture. All strings are UTF-8 and may be NULL. Control characters and malformed bytes are shown as '?'. */
typedef struct pic_map {
    const pic_panel *panels; /* 1 to 64 panels, at most four per line, that share one colour scale */
    int n_panels;
    const char *title;                               /* title of the whole picture */
    const char *row_label, *col_label;               /* such as "query" and "key" */
    const char *value_label;                         /* such as "bias" or "weight" */
    const char *const *row_names, *const *col_names; /* names (tokens) for all rows or columns of the largest panel;
                                                      * NULL: use numbers */
    int64_t row0, col0;                              /* without names: numbers of the first row and column */
    bool diverging;             /* centre the colours on 0 (blue, white, red); otherwise use a sequential scale */
    bool difference;            /* the last of 2 to 4 panels is a difference, with a diverging scale and bar of its
                                 * own */
    double cap, difference_cap; /* if > 0: colours end at values of this magnitude, and a note says so */
} pic_map;

/* Encode a picture in memory. Return 0 and allocate *data with malloc; or return -1 with a message in err and leave
 * *data unchanged. Small matrices (up to 10 x 10) show their values in the cells. Matrices with more than 1200 cells
 * per side (SVG: 200; fewer with several panels) are reduced by averaging, and a note says so. PNG shows non-ASCII
 * characters as '?'; SVG shows all characters. */
int pic_png(const pic_map *map, unsigned char **data, size_t *size, char err[256]);
int pic_svg(const pic_map *map, unsigned char **data, size_t *size, char err[256]);

/* Print a picture for a terminal that is `width` columns wide (24 to 1000). With colour, each line shows two rows of
 * cells, as half blocks in 256 colours; without, it shows one row, with the characters " .:-=+*#%@". Matrices of up to
 * 12 x 12 are printed as numbers if they fit the width; with colour, the numbers have coloured backgrounds. Larger
 * matrices are reduced by averaging. Panels are printed below each other, followed by a legend with the range. If the
 * map cannot be drawn, print an error line instead. */
void pic_text(FILE *to, const pic_map *map, int width, bool colour);
/* Return the number of terminal columns that UTF-8 text takes. */
int pic_columns(const char *text);

#endif
