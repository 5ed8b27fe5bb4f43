/* canvas.h -- functions shared by the files of cli/picture: characters (characters.c), rectangles and text (canvas.c),
 * numbers and colours (values.c).
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef RELPOS_PICTURE_INTERNAL_H
#define RELPOS_PICTURE_INTERNAL_H

#include "cli/picture/picture.h"

enum { SMALL = 13, LARGE = 17 };     /* sizes of text, in pixels */
enum { LABEL = 256, NAME_PX = 120 }; /* bytes of a label; max width in pixels of a name on an axis */
enum { NUMBER = 48 };                /* bytes of a number as text */
enum pic_colour {
    INK = 0x222222,  /* text */
    SOFT = 0x666666, /* labels and notes */
    LINE = 0x9a9a9a, /* ticks and frames */
    WHITE = 0xffffff,
    MASKED = 0xd4d4d4, /* a grey that neither colour scale contains */
    NOT_A_NUMBER = 0xff00ff
};

/* ---- The functions, by file. Each file calls only functions of files above it. */

/* ---- characters.c */

/* Read the next UTF-8 character and advance *s. Return '?' for malformed bytes, for characters that XML forbids, and
 * for characters that control a terminal or the direction of text. */
unsigned pic_next(const char **s);
/* Write a character as UTF-8, in at most 4 bytes and without a final NUL. Return the end. */
char *pic_put_char(char *to, unsigned c);

/* ---- canvas.c: rectangles and text, in pixels or in SVG */

/* Copy an error message to `err` and return -1. */
int pic_fail(char err[256], const char *why);
static inline double pic_clamp(double t)
{
    return t > 0 ? t < 1 ? t : 1 : 0;
}

typedef struct pic_bytes {
    unsigned char *at;
    size_t size, capacity;
    bool failed; /* out of memory: later writes do nothing, and one check at the end suffices */
} pic_bytes;

/* Append formatted text of at most 400 bytes. Format only integers and strings, whose form does not depend on the
 * locale. */
__attribute__((format(printf, 2, 3))) void pic_putf(pic_bytes *b, const char *format, ...);
/* Append text, escaped for XML. */
void pic_put_xml(pic_bytes *b, const char *s);

typedef struct pic_canvas {
    int w, h;
    unsigned char *rgb; /* PNG: w x h pixels; NULL: SVG */
    pic_bytes svg;
} pic_canvas;

void pic_rect(pic_canvas *c, int x, int y, int w, int h, unsigned rgb);
/* Write one line of text. (x, y) is on the base line, at the start, middle or end of the text. Vertical text runs
 * upward. */
enum { START, MIDDLE, END };
void pic_write(pic_canvas *c, int x, int y, int size, int anchor, bool vertical, unsigned rgb, const char *s);
/* Return the width of a text in pixels. */
int pic_text_width(const char *s, int size);
/* Copy a text as valid UTF-8 without control characters, and cut it to max_width pixels; ".." marks the cut. Return
 * `out`. */
const char *pic_fit(char out[LABEL], const char *s, int size, int max_width);
/* Encode the canvas as PNG. Return 0, or -1 with a message in `err`. */
int pic_encode(const pic_canvas *c, pic_bytes *out, char err[256]);

/* ---- values.c: numbers, the colour of a value, the labels of an axis */

/* Write a number with `digits` significant digits or, if `fixed`, with `digits` decimals. The text does not depend on
 * the locale, and is never "-0". Return `out`. */
const char *pic_number(char out[NUMBER], double v, int digits, bool fixed);
/* Check that a map can be drawn. Return 0, or -1 with a message in `err`. */
int pic_check(const pic_map *map, char err[256]);

static inline bool pic_has_text(const char *s)
{
    return s && *s;
}
/* Return the number of cells for n values with `per` values in each cell. */
static inline int64_t pic_groups(int64_t n, int64_t per)
{
    return n / per + (n % per != 0);
}

typedef struct pic_scale {
    double lo, hi;            /* range of the finite values */
    double from, to;          /* range of the colour bar: from < to */
    double max;               /* if diverging: absolute value at both ends of the colour scale */
    bool diverging;           /* colours are centred on 0 */
    bool finite, masked, nan; /* at least one value is of this kind */
    bool capped;              /* some values are outside the colour bar */
} pic_scale;

/* Compute the colour scale shared by the panels, or the scale of the difference panel. */
pic_scale pic_scale_of(const pic_map *map, bool difference);
/* Return true if panel k is the difference panel. */
static inline bool pic_is_difference(const pic_map *map, int k)
{
    return map->difference && k == map->n_panels - 1;
}
double pic_position(const pic_scale *s, double v);    /* position on the colour bar: 0 at from, 1 at to */
double pic_shade(const pic_scale *s, double v);       /* position on the colour scale, from 0 to 1 */
unsigned pic_colour_of(const pic_scale *s, double v); /* 0xRRGGBB */

/* Return the value that cell (i, j) shows if each cell covers fr x fc values. If one of them is NaN or +infinity,
 * return that value, so it stays visible. Otherwise return the mean of the finite values; if all are masked, return
 * -infinity. */
double pic_cell(const pic_panel *p, int64_t i, int64_t j, int64_t fr, int64_t fc);

typedef struct pic_axis {
    const char *const *names; /* labels; NULL: use numbers starting at `first` */
    int64_t first, n;         /* number of the first value; number of values */
    int64_t per, step, start; /* per: values per cell; ticks are at start, start + step, ... */
    int px, depth;            /* pixels per cell; pixels from the panel to the outer edge of the labels */
    bool rotated;             /* write labels vertically */
} pic_axis;

/* Return the label of value i, which may be written to `out`. */
const char *pic_tick(char out[LABEL], const pic_axis *a, int64_t i);
/* Choose the smallest step from 1 2 5 10 20 50 ... that keeps ticks at least min_px pixels apart. If the labels are
 * numbers, ticks are at multiples of the step. */
void pic_space_ticks(pic_axis *a, int min_px);

#endif
