/* picture.h -- heat maps of a matrix: in the terminal, as PNG, as SVG. It knows numbers and labels, and nothing of attention.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef RELPOS_PICTURE_H
#define RELPOS_PICTURE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* One panel: rows x cols values (row-major). -INFINITY is drawn as "masked" (grey, '/'), NaN as such (magenta, '?'),
 * +INFINITY like the largest finite value. */
typedef struct pic_panel {
    const double *value;
    int64_t rows, cols;
    const char *title; /* above the panel; may be NULL */
} pic_panel;

/* All strings are UTF-8 and may be NULL; control characters and malformed bytes show as '?'. */
typedef struct pic_map {
    const pic_panel *panels; /* 1 to 64, one colour scale for all; side by side, more than four in lines */
    int n_panels;
    const char *title;                               /* of the whole picture */
    const char *row_label, *col_label;               /* such as "query" and "key" */
    const char *value_label;                         /* such as "bias" or "weight" */
    const char *const *row_names, *const *col_names; /* names (tokens) of every row or column of the
                                                      * largest panel; NULL: numbers */
    int64_t row0, col0;                              /* number of the first row and column, when there are no names */
    bool diverging;             /* colours centred on 0 (blue, white, red); else sequential from low to high */
    bool difference;            /* the last of 2 to 4 panels has a diverging scale and a colour bar of its own */
    double cap, difference_cap; /* > 0: the colours end at values of this size, and the picture says so */
} pic_map;

/* Encoded files in memory: *data is malloc'd. 0, or -1 with a line in err and *data untouched. Small matrices (10 x 10)
 * show their values in the cells; those above 1200 cells a side (SVG: 200; fewer with several panels) are reduced by
 * averaging cells, and the picture says so. PNG draws ASCII only, and '?' for other characters; SVG draws all. */
int pic_png(const pic_map *map, unsigned char **data, size_t *size, char err[256]);
int pic_svg(const pic_map *map, unsigned char **data, size_t *size, char err[256]);

/* A heat map for a terminal `width` columns wide (24 to 1000): two rows of cells per line of text with half blocks in
 * 256 colours when colour is true; characters " .:-=+*#%@" when false. Matrices of up to 12 x 12 are printed as numbers
 * (on their colours) if they fit the width. Bigger matrices are reduced by averaging cells. Panels come one below the
 * other. Ends with a legend line that gives the range. A map that cannot be drawn gives its error line instead. */
void pic_text(FILE *to, const pic_map *map, int width, bool colour);
/* Columns that UTF-8 text takes in a terminal. */
int pic_columns(const char *text);

#endif
