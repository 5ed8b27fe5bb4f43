/* canvas.h -- the functions that the files of cli/picture share: numbers and colours (values.c), rectangles and text (canvas.c).
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef RELPOS_PICTURE_INTERNAL_H
#define RELPOS_PICTURE_INTERNAL_H

#include "cli/picture/picture.h"

enum { SMALL = 13, LARGE = 17 };     /* sizes of text, in pixels */
enum { LABEL = 256, NAME_PX = 120 }; /* bytes of a label; pixels of a name beside an axis */
enum { NUMBER = 48 };                /* bytes of a number */
enum pic_colour {
    INK = 0x222222,
    SOFT = 0x666666,
    LINE = 0x9a9a9a,
    WHITE = 0xffffff,  /* INK: text; SOFT: labels and notes; LINE: ticks and frames */
    MASKED = 0xd4d4d4, /* a grey that no colour of either scale resembles */
    NOT_A_NUMBER = 0xff00ff
};

/* ---- values.c: characters, numbers, the colour of a value, the labels of an axis */

/* The next character of UTF-8; '?' in place of malformed bytes, of characters that XML forbids, and of those that control a terminal or the
 * reading direction. */
unsigned pic_next(const char **s);
char *pic_put_char(char *to, unsigned c); /* UTF-8, at most 4 bytes; returns the end */
/* A number with `digits` significant digits, or with `fixed` as many decimals; the same in every locale, and without "-0". */
const char *pic_number(char out[NUMBER], double v, int digits, bool fixed);
int pic_fail(char err[256], const char *why); /* -1 */
int pic_check(const pic_map *map, char err[256]);

static inline bool pic_has_text(const char *s)
{
    return s && *s;
}
static inline double pic_clamp(double t)
{
    return t > 0 ? t < 1 ? t : 1 : 0;
}
static inline int64_t pic_groups(int64_t n, int64_t per)
{
    return n / per + (n % per != 0);
}

typedef struct pic_scale {
    double lo, hi;                               /* of the finite values */
    double from, to;                             /* the range of the colour bar: from < to */
    double max;                                  /* diverging: the size of the values at the two end colours */
    bool diverging, finite, masked, nan, capped; /* whether there are such values; capped: values beyond the bar */
} pic_scale;

/* The scale of the panels that share one, or that of the difference. */
pic_scale pic_scale_of(const pic_map *map, bool difference);
static inline bool pic_is_difference(const pic_map *map, int k)
{
    return map->difference && k == map->n_panels - 1;
}
double pic_position(const pic_scale *s, double v); /* 0 at from, 1 at to */
double pic_shade(const pic_scale *s, double v);    /* the place on the colour scale, from 0 to 1 */
unsigned pic_colour_of(const pic_scale *s, double v);

/* What cell (i, j) shows when each is fr x fc values. */
double pic_cell(const pic_panel *p, int64_t i, int64_t j, int64_t fr, int64_t fc);

typedef struct pic_axis {
    const char *const *names; /* or NULL: numbers from `first` */
    int64_t first, n;         /* values along this axis */
    int64_t per, step, start; /* values per cell; ticks at start, start + step, ... */
    int px, depth;            /* pixels per cell; pixels the labels take away from the panel */
    bool rotated;
} pic_axis;

const char *pic_tick(char out[LABEL], const pic_axis *a, int64_t i); /* the label of value i */
/* Choose the smallest step of 1 2 5 10 20 50 ... at which ticks are at least min_px pixels apart; numbers start at a multiple of it. */
void pic_space_ticks(pic_axis *a, int min_px);

/* ---- canvas.c: rectangles and text, in pixels or in SVG */

typedef struct pic_bytes {
    unsigned char *at;
    size_t size, capacity;
    bool failed; /* out of memory: later writes do nothing, and the caller checks at the end */
} pic_bytes;

/* For integers and short strings, which no locale changes; at most 400 bytes. */
__attribute__((format(printf, 2, 3))) void pic_putf(pic_bytes *b, const char *format, ...);
void pic_put_xml(pic_bytes *b, const char *s);

typedef struct pic_canvas {
    int w, h;
    unsigned char *rgb; /* PNG: w x h pixels; NULL: SVG */
    pic_bytes svg;
} pic_canvas;

enum { START, MIDDLE, END }; /* which point of a text is given */
void pic_rect(pic_canvas *c, int x, int y, int w, int h, unsigned rgb);
void pic_write(pic_canvas *c, int x, int y, int size, int anchor, bool vertical, unsigned rgb, const char *s);
int pic_text_width(const char *s, int size);
/* A copy that is valid UTF-8 without control characters and at most max_width pixels wide; ".." marks a cut. */
const char *pic_fit(char out[LABEL], const char *s, int size, int max_width);
int pic_encode(const pic_canvas *c, pic_bytes *out, char err[256]); /* as PNG; 0 or -1 */

#endif
