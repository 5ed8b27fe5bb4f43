/* picture.h -- heat maps of a matrix: in the terminal, as PNG, as SVG. Independent of attention.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef RELPOS_PICTURE_H
#define RELPOS_PICTURE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* One panel: rows x cols values, row-major. -INFINITY is drawn as "masked" (grey, '/'), NaN in magenta or as '?',
 * and +INFINITY like the largest finite value. */
typedef struct pic_panel {
    const double *value;
    int64_t rows, cols;
    const char *title; /* printed above the panel; may be NULL */
} pic_panel;

/* A picture. All strings are UTF-8 and may be NULL; control characters and malformed bytes show as '?'. */
typedef struct pic_map {
    const pic_panel *panels; /* 1 to 64 panels with one colour scale, at most four in a line */
    int n_panels;
    const char *title;                               /* title of the whole picture */
    const char *row_label, *col_label;               /* such as "query" and "key" */
    const char *value_label;                         /* such as "bias" or "weight" */
    const char *const *row_names, *const *col_names; /* names (tokens) of all rows or columns of the largest panel;
                                                      * NULL: numbers */
    int64_t row0, col0;                              /* without names: number of the first row and column */
    bool diverging;             /* colours are centred on 0 (blue, white, red); else sequential from low to high */
    bool difference;            /* the last of 2 to 4 panels has a separate, diverging scale with a colour bar */
    double cap, difference_cap; /* > 0: the colours end at values of this magnitude, and a note says so */
} pic_map;

/* Encode a picture in memory. Return 0 with malloc'd *data, or -1 with a message in err and *data unchanged. Small
 * matrices (10 x 10) show their values in the cells. Matrices of more than 1200 cells a side (SVG: 200; fewer with
 * several panels) are reduced by averaging cells, and a note says so. PNG draws only ASCII, and '?' for other
 * characters; SVG draws all. */
int pic_png(const pic_map *map, unsigned char **data, size_t *size, char err[256]);
int pic_svg(const pic_map *map, unsigned char **data, size_t *size, char err[256]);

/* Print a picture for a terminal `width` columns wide (24 to 1000). With colour, a line of text has two rows of
 * cells, as half blocks in 256 colours; without, one row of the characters " .:-=+*#%@". Matrices of up to 12 x 12
 * are printed as numbers on their colours if they fit the width. Larger matrices are reduced by averaging cells.
 * Panels follow one below the other, then a legend line with the range. If the map cannot be drawn, print an error
 * line instead. */
void pic_text(FILE *to, const pic_map *map, int width, bool colour);
/* Return the number of columns that UTF-8 text takes in a terminal. */
int pic_columns(const char *text);

#endif
