/* picture.c -- heat maps of a matrix: in the terminal, as PNG, as SVG.
 * SPDX-License-Identifier: Apache-2.0
 *
 * One layout and one draw() serve PNG and SVG: both canvases know a filled rectangle and a line of text, nothing else.
 *
 *     title
 *         panel title     panel title      value label
 *     r   +-----------+   +-----------+    +--+
 *     o   |           |   |           |    |  | -0      the colour bar: one scale for all panels
 *     w   |           |   |           |    |  | -1
 *     s   +-----------+   +-----------+    +--+
 *          0   5   10      0   5   10      [] masked
 *              columns         columns
 *     note */
#include "picture.h"

#include <float.h>
#include <math.h>
#include <png.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "font.h"

enum { MOST_PANELS = 64, MARGIN = 18, SMALL = 13, LARGE = 17, NAME_PX = 120, LABEL = 256 };
#define INK 0x222222u
#define SOFT 0x666666u                                /* ticks, notes */
#define LINE 0x9a9a9au                                /* frames */
#define WHITE 0xffffffu
#define MASKED 0xd4d4d4u                              /* neutral: no colour of either scale comes near it */
#define NOT_A_NUMBER 0xff00ffu

/* Colours evenly spaced in OKLab (Ottosson 2020), computed for relpos. Sequential: lightness 0.26 to 0.94 while the hue
 * turns from violet over blue and green to yellow. Diverging: two arms of like lightness that meet in white. */
static const unsigned sequential[] = {
    0x2c144a, 0x2e235f, 0x2b3273, 0x204385, 0x015592, 0x086791, 0x0b7895, 0x01899a,
    0x059a9d, 0x09ab9e, 0x0dbd99, 0x4acc8f, 0x7cd886, 0xa7e27e, 0xcfea7b, 0xf4f27d };
static const unsigned diverging[] = {
    0x024394, 0x2861b3, 0x487ac4, 0x6592d3, 0x82a8e0, 0x9fbdeb, 0xbbd2f4, 0xd9e6fa, 0xffffff,
    0xfcdeda, 0xf7c4bd, 0xeea9a1, 0xe38f85, 0xd5746a, 0xc5574e, 0xb23630, 0x94030e };

/* ---- small tools: a growing buffer, characters, numbers ---------------------------------------------------------- */

typedef struct bytes {
    unsigned char *at;
    size_t size, room;
    bool failed;                                      /* out of memory: the rest is dropped, checked at the end */
} bytes;

static void put(bytes *b, const void *from, size_t n)
{
    if (b->failed)
        return;
    if (n > b->room - b->size) {
        const size_t room = n > SIZE_MAX / 4 || b->room > SIZE_MAX / 4 ? 0 : 2 * b->room + n + 4096;
        unsigned char *at = room ? realloc(b->at, room) : NULL;
        if (!at) {
            b->failed = true;
            return;
        }
        b->at = at;
        b->room = room;
    }
    memcpy(b->at + b->size, from, n);
    b->size += n;
}

#ifdef __GNUC__
__attribute__((format(printf, 2, 3)))
#endif
static void putf(bytes *b, const char *format, ...)   /* integers and short strings: no locale, at most 400 bytes */
{
    char line[400];
    va_list args;
    va_start(args, format);
    const int n = vsnprintf(line, sizeof line, format, args);
    va_end(args);
    put(b, line, n < 0 ? 0 : (size_t)n < sizeof line ? (size_t)n : sizeof line - 1);
}

/* The next character of UTF-8; '?' for what is malformed, no XML character, or would steer a terminal or the reading
 * direction. */
static unsigned next(const char **s)
{
    const unsigned char *p = (const unsigned char *)*s;
    unsigned c = *p;
    const int more = c >= 0xf0 && c <= 0xf4 ? 3 : c >= 0xe0 && c < 0xf0 ? 2 : c >= 0xc2 && c < 0xe0 ? 1 : 0;
    if (more)
        c &= 0x3fu >> more;
    else if (c >= 0x80)
        c = 0;
    for (int k = 1; k <= more; k++) {
        if ((p[k] & 0xc0) != 0x80) {
            *s += k;
            return '?';
        }
        c = c << 6 | (p[k] & 0x3fu);
    }
    *s += more + 1;
    const bool bad = c < 0x20 || (c >= 0x7f && c < 0xa0) || (more == 2 && c < 0x800) || (more == 3 && c < 0x10000) ||
        c > 0x10ffff || (c >= 0xd800 && c < 0xe000) || (c & 0xfffe) == 0xfffe || c == 0x200b || c == 0x200e ||
        c == 0x200f || (c >= 0x2028 && c < 0x202f) || (c >= 0x2066 && c < 0x206a) || c == 0xfeff;
    return bad ? '?' : c;
}

static char *put_char(char *to, unsigned c)           /* UTF-8, at most 4 bytes; returns the end */
{
    const int more = c < 0x80 ? 0 : c < 0x800 ? 1 : c < 0x10000 ? 2 : 3;
    static const unsigned char lead[4] = { 0, 0xc0, 0xe0, 0xf0 };
    *to++ = (char)(lead[more] | c >> 6 * more);
    for (int k = more - 1; k >= 0; k--)
        *to++ = (char)(0x80 | (c >> 6 * k & 0x3f));
    return to;
}

/* A number with `digits` significant digits, or decimals when fixed; the same in every locale; no "-0". */
static const char *number(char out[48], double v, int digits, bool fixed)
{
    if (isnan(v))
        return strcpy(out, "nan");
    if (isinf(v))
        return strcpy(out, v < 0 ? "-inf" : "inf");
    if (fixed)
        snprintf(out, 48, "%.*f", digits, v);
    else
        snprintf(out, 48, "%.*g", digits, v);
    char *point = out + strspn(out, "+-0123456789");
    const size_t n = strcspn(point, "+-0123456789e");  /* the decimal point of the locale, of whatever length */
    if (n) {
        *point = '.';
        memmove(point + 1, point + n, strlen(point + n) + 1);
    }
    if (*out == '-' && strspn(out + 1, "0.") == strlen(out + 1))
        memmove(out, out + 1, strlen(out));
    return out;
}

static void put_xml(bytes *b, const char *s)
{
    while (*s) {
        char one[8];
        const unsigned c = next(&s);
        const char *name = c == '<' ? "&lt;" : c == '>' ? "&gt;" : c == '&' ? "&amp;" : c == '"' ? "&quot;" : NULL;
        if (name)
            put(b, name, strlen(name));
        else
            put(b, one, (size_t)(put_char(one, c) - one));
    }
}

static int fail(char err[256], const char *why)
{
    snprintf(err, 256, "%s", why);
    return -1;
}

static int check(const pic_map *map, char err[256])
{
    if (!map->panels || map->n_panels < 1 || map->n_panels > MOST_PANELS) {
        snprintf(err, 256, "a picture of %d panels: from 1 to %d", map->n_panels, MOST_PANELS);
        return -1;
    }
    for (int k = 0; k < map->n_panels; k++) {
        const pic_panel *p = &map->panels[k];
        if (p->rows < 1 || p->cols < 1 || !p->value || p->rows > INT64_MAX / 16 / p->cols) {
            snprintf(err, 256, "panel %d of the picture has %lld x %lld values: at least 1 x 1, and in memory", k,
                (long long)p->rows, (long long)p->cols);
            return -1;
        }
    }
    return 0;
}

/* ---- values and colours ------------------------------------------------------------------------------------------ */

typedef struct scale {
    double lo, hi;                                    /* of the finite values */
    double from, to;                                  /* what the colour bar shows: from < to */
    double most;                                      /* diverging: the value of the two end colours */
    bool diverging, finite, masked, nan;              /* whether there are such values */
} scale;

static scale scale_of(const pic_map *map)
{
    scale s = { .lo = DBL_MAX, .hi = -DBL_MAX, .diverging = map->diverging };
    for (int k = 0; k < map->n_panels; k++) {
        const pic_panel *p = &map->panels[k];
        for (int64_t i = 0; i < p->rows * p->cols; i++) {
            const double v = p->value[i];
            s.nan |= isnan(v);
            s.masked |= v == -INFINITY;
            if (isfinite(v)) {
                s.finite = true;
                s.lo = v < s.lo ? v : s.lo;
                s.hi = v > s.hi ? v : s.hi;
            }
        }
    }
    if (!s.finite)
        s.lo = s.hi = 0;
    s.from = s.diverging && s.lo > 0 ? 0 : s.lo;
    s.to = s.diverging && s.hi < 0 ? 0 : s.hi;
    if (!(s.to > s.from)) {                           /* a constant gets the middle of some range around it */
        const double pad = s.lo != 0 ? fabs(s.lo) / 2 : 0.5;
        s.from = fmax(s.from - pad, -DBL_MAX);
        s.to = fmin(s.to + pad, DBL_MAX);
    }
    s.most = fmax(fabs(s.from), fabs(s.to));
    return s;
}

static double clamp01(double t) { return t > 0 ? t < 1 ? t : 1 : 0; }

static double position(const scale *s, double v)      /* 0 at from, 1 at to; halves, as to - from may overflow */
{
    const double span = s->to / 2 - s->from / 2;
    return span > 0 ? clamp01((v / 2 - s->from / 2) / span) : 0.5;
}

static double shade(const scale *s, double v)         /* the place on the colour scale, from 0 to 1 */
{
    return !s->diverging ? position(s, v) : s->most > 0 ? clamp01(0.5 + v / s->most / 2) : 0.5;
}

static unsigned colour_of(const scale *s, double v)
{
    if (isnan(v))
        return NOT_A_NUMBER;
    if (v == -INFINITY)
        return MASKED;
    const unsigned *table = s->diverging ? diverging : sequential;
    const size_t size = s->diverging ? sizeof diverging : sizeof sequential;
    const int last = (int)(size / sizeof *table) - 1;
    const double x = last * shade(s, v);
    const int i = x < last ? (int)x : last - 1;
    unsigned rgb = 0;
    for (int shift = 0; shift < 24; shift += 8) {
        const double a = table[i] >> shift & 255, b = table[i + 1] >> shift & 255;
        rgb |= (unsigned)(a + (b - a) * (x - i) + 0.5) << shift;
    }
    return rgb;
}

static unsigned ink_on(unsigned rgb)                  /* the readable text colour, by luma (Rec. 601) */
{
    return 299 * (rgb >> 16) + 587 * (rgb >> 8 & 255) + 114 * (rgb & 255) > 140000 ? 0x111111 : WHITE;
}

static int64_t groups(int64_t n, int64_t per) { return n / per + (n % per != 0); }

/* What cell (i, j) shows when each is fr x fc values: a NaN if there is one, so that none gets lost, +inf likewise;
 * else the mean of the finite ones; masked when all are. */
static double cell(const pic_panel *p, int64_t i, int64_t j, int64_t fr, int64_t fc)
{
    const int64_t r0 = i * fr, c0 = j * fc;
    const int64_t r1 = p->rows - r0 < fr ? p->rows : r0 + fr, c1 = p->cols - c0 < fc ? p->cols : c0 + fc;
    double mean = 0, n = 0, top = -INFINITY;
    for (int64_t r = r0; r < r1; r++)
        for (int64_t c = c0; c < c1; c++) {
            const double v = p->value[r * p->cols + c];
            if (isnan(v))
                return v;
            if (isfinite(v)) {
                n++;
                mean += v / n - mean / n;             /* no sum that could overflow */
            } else if (v > 0) {
                top = v;
            }
        }
    return n > 0 && top < 0 ? mean : top;
}

/* ---- text: measuring and cutting --------------------------------------------------------------------------------- */

static int digit36(char c) { return c <= '9' ? c - '0' : c - 'a' + 10; }
static double unit_of(int size) { return floor(size * 0.06 * 4 + 0.5) / 4; } /* pixels per font unit, in quarters */

static int advance(unsigned c, double unit)           /* pixels from one glyph to the next */
{
    const char *g = c >= 32 && c < 127 ? font[c - 32] : font['?' - 32];
    int wide = *g ? 0 : 3;
    for (; *g; g++)
        if (*g != ' ' && *g != '~') {
            wide = digit36(*g) > wide ? digit36(*g) : wide;
            g++;
        }
    return (int)(wide * unit + 0.5) + (int)(3.4 * unit + 0.5);
}

static int text_width(const char *s, int size)
{
    int w = 0;
    while (*s)
        w += advance(next(&s), unit_of(size));
    return w;
}

/* A copy that is valid UTF-8 without control characters and at most `most` pixels wide; what was cut is marked "..". */
static const char *fit(char out[LABEL], const char *s, int size, int most)
{
    const int dots = 2 * advance('.', unit_of(size));
    char *to = out, *cut = out;
    for (int w = 0; *s;) {
        const unsigned c = next(&s);
        w += advance(c, unit_of(size));
        if (w > most || to - out > LABEL - 8) {
            to = cut;
            *to++ = '.';
            *to++ = '.';
            break;
        }
        to = put_char(to, c);
        if (w + dots <= most)
            cut = to;
    }
    *to = 0;
    return out;
}

/* ---- ticks ------------------------------------------------------------------------------------------------------- */

typedef struct axis {
    const char *const *names;                         /* or NULL: numbers from `first` */
    int64_t first, n;                                 /* values along this axis */
    int64_t per, step, start;                         /* values per cell; ticks at start, start + step, ... */
    int px, depth;                                    /* pixels per cell; pixels the labels take away from the panel */
    bool rotated;
} axis;

static const char *tick(char out[LABEL], const axis *a, int64_t i)
{
    if (a->names && a->names[i])
        return fit(out, a->names[i], SMALL, NAME_PX);
    snprintf(out, LABEL, "%lld", (long long)(int64_t)((uint64_t)a->first + (uint64_t)i));
    return out;
}

static int centre(const axis *a, int64_t i)           /* of value i, in pixels from the edge of the panel */
{
    return (int)(i / a->per * a->px + (2 * (i % a->per) + 1) * a->px / (2 * a->per));
}

/* The least of 1 2 5 10 20 50 ... that keeps ticks `need` pixels apart; numbers start at a multiple of it. */
static void space_ticks(axis *a, int need)
{
    const int64_t least = groups(need * a->per, a->px);
    for (a->step = 1; a->step < least;) {
        int64_t lead = a->step;
        while (lead >= 10)
            lead /= 10;
        a->step = lead == 2 ? a->step / 2 * 5 : a->step * 2;
    }
    const int64_t past = a->names ? 0 : (a->first % a->step + a->step) % a->step;
    a->start = past ? a->step - past : 0;
}

static int widest(const axis *a)
{
    char label[LABEL];
    int w = 0;
    for (int64_t i = a->start; i < a->n; i += a->step) {
        const int wi = text_width(tick(label, a, i), SMALL);
        w = wi > w ? wi : w;
    }
    return w;
}

static void plan_rows(axis *a)
{
    space_ticks(a, a->names ? 15 : 26);
    a->depth = widest(a) + 9;
}

static void plan_cols(axis *a)
{
    if (a->names) {
        a->step = 1;
        a->start = 0;
        a->rotated = a->per > 1 || a->px < 12 || widest(a) + 4 > a->px;
        space_ticks(a, a->rotated ? 15 : 1);
    } else {
        char label[LABEL];
        const int first = text_width(tick(label, a, 0), SMALL), last = text_width(tick(label, a, a->n - 1), SMALL);
        space_ticks(a, 12 + (first > last ? first : last));
    }
    a->depth = a->rotated ? widest(a) + 12 : 20;
}

/* ---- two canvases ------------------------------------------------------------------------------------------------ */

typedef struct canvas {
    int w, h;
    unsigned char *rgb;                               /* PNG: w x h pixels; NULL: SVG */
    bytes svg;
} canvas;

static void rect(canvas *c, int x, int y, int w, int h, unsigned rgb)
{
    if (!c->rgb) {
        putf(&c->svg, "<rect x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" fill=\"#%06x\"/>\n", x, y, w, h, rgb);
        return;
    }
    for (int i = y < 0 ? 0 : y; i < y + h && i < c->h; i++)
        for (int j = x < 0 ? 0 : x; j < x + w && j < c->w; j++) {
            unsigned char *p = c->rgb + 3 * ((size_t)i * (size_t)c->w + (size_t)j);
            p[0] = (unsigned char)(rgb >> 16);
            p[1] = (unsigned char)(rgb >> 8);
            p[2] = (unsigned char)rgb;
        }
}

typedef struct point { double x, y; } point;

/* One stroke of a glyph in pixels; returns where the next begins. Points are rounded to pixels, for crisp stems,
 * before three rounds of Chaikin's corner cutting turn the polygon into (nearly) a quadratic B-spline. */
enum { STROKES = 4, STROKE_MAX = 80 };                /* '#' has 4; 9 points become 16, 30, 58: n -> 2 (n - 1) */
static const char *stroke(const char *g, double unit, point p[STROKE_MAX], int *n)
{
    const bool smooth = *g == '~';
    *n = 0;
    for (g += smooth; *g && *g != ' '; g += 2)
        p[(*n)++] = (point){ floor(digit36(g[0]) * unit + 0.5), floor((digit36(g[1]) - 12) * unit + 0.5) };
    for (int round = 0; smooth && round < 3; round++) {
        point q[STROKE_MAX];
        int m = 0;
        q[m++] = p[0];
        for (int i = 0; i + 1 < *n; i++) {
            const point a = p[i], b = p[i + 1];
            if (i > 0)
                q[m++] = (point){ 0.75 * a.x + 0.25 * b.x, 0.75 * a.y + 0.25 * b.y };
            if (i + 2 < *n)
                q[m++] = (point){ 0.25 * a.x + 0.75 * b.x, 0.25 * a.y + 0.75 * b.y };
        }
        q[m++] = p[*n - 1];
        memcpy(p, q, (size_t)m * sizeof *p);
        *n = m;
    }
    return g + (*g == ' ');
}

static double distance(point p, point a, point b)     /* from p to the segment a b */
{
    const double dx = b.x - a.x, dy = b.y - a.y, len = dx * dx + dy * dy;
    const double t = len > 0 ? clamp01(((p.x - a.x) * dx + (p.y - a.y) * dy) / len) : 0;
    return hypot(p.x - a.x - t * dx, p.y - a.y - t * dy);
}

/* A glyph with its left edge on the base line at (x, y): each pixel by its distance from the path of the pen. */
static void glyph(canvas *c, int x, int y, unsigned ch, double unit, bool vertical, unsigned rgb)
{
    const double pen = 0.68 * sqrt(unit);             /* half the width of a stroke */
    point p[STROKES][STROKE_MAX];
    int n[STROKES], strokes = 0;
    for (const char *g = font[ch - 32]; *g; strokes++)
        g = stroke(g, unit, p[strokes], &n[strokes]);
    const int wide = advance(ch, unit), up = (int)(12 * unit) + 2, down = (int)(4 * unit) + 2;
    for (int b = -up; b <= down; b++)
        for (int a = -2; a <= wide; a++) {
            const int px = vertical ? x + b : x + a, py = vertical ? y - a : y + b;
            if (px < 0 || py < 0 || px >= c->w || py >= c->h)
                continue;
            double nearest = 9;
            for (int k = 0; k < strokes; k++)
                for (int i = 0; i + 1 < n[k]; i++)
                    nearest = fmin(nearest, distance((point){ a, b }, p[k][i], p[k][i + 1]));
            const double cover = clamp01(pen + 0.5 - nearest);
            unsigned char *to = c->rgb + 3 * ((size_t)py * (size_t)c->w + (size_t)px);
            for (int k = 0; k < 3; k++)
                to[k] = (unsigned char)(to[k] + cover * ((double)(rgb >> (16 - 8 * k) & 255) - to[k]) + 0.5);
        }
}

enum { START, MIDDLE, END };
static void text(canvas *c, int x, int y, int size, int anchor, bool vertical, unsigned rgb, const char *s)
{
    if (c->rgb) {
        const int back = anchor * text_width(s, size) / 2;
        for (x -= vertical ? 0 : back, y += vertical ? back : 0; *s;) {
            unsigned ch = next(&s);
            ch = ch < 127 ? ch : ch == 0x2581 || ch == 0x120 ? '_' : '?'; /* the marks of a blank in token lists */
            const int step = advance(ch, unit_of(size));
            glyph(c, x, y, ch, unit_of(size), vertical, rgb);
            x += vertical ? 0 : step;
            y -= vertical ? step : 0;
        }
        return;
    }
    static const char *const anchors[] = { "", " text-anchor=\"middle\"", " text-anchor=\"end\"" };
    char turn[64] = "";
    if (vertical)
        snprintf(turn, sizeof turn, " transform=\"rotate(-90 %d %d)\"", x, y);
    putf(&c->svg, "<text x=\"%d\" y=\"%d\" font-size=\"%d\" fill=\"#%06x\"%s%s>", x, y, size, rgb, anchors[anchor],
        turn);
    put_xml(&c->svg, s);
    putf(&c->svg, "</text>\n");
}

/* ---- layout and drawing ------------------------------------------------------------------------------------------ */

typedef struct layout {
    axis row, col;                                    /* of the largest panel */
    int across, down;                                 /* panels */
    int slot_w, slot_h;                               /* pixels of the largest panel */
    int x0, y0, dx, dy;                               /* top left of the first panel, and from one panel to the next */
    int bar_x, bar_h, w, h;
    bool each_row;                                    /* row labels at every panel, as they differ */
} layout;

enum { BAR_W = 16, ROW_LABEL_W = 20 };

static bool said(const char *s) { return s && *s; }

static layout lay_out(const pic_map *map, const scale *s, int most_cells)
{
    /* Pixels wanted for a side of one panel, and cells it may have before they are averaged, by panels across. */
    static const int wanted[] = { 540, 500, 370, 290 }, most[] = { 1200, 720, 540, 420 };
    layout l = { .across = map->n_panels, .down = 1 };
    if (map->n_panels > 4) {
        l.down = (int)groups(map->n_panels, 4);
        l.across = (int)groups(map->n_panels, l.down);
    }
    const int limit = most[l.across - 1] < most_cells ? most[l.across - 1] : most_cells;
    bool panel_titles = false;
    for (int k = 0; k < map->n_panels; k++) {
        const pic_panel *p = &map->panels[k];
        l.row.n = p->rows > l.row.n ? p->rows : l.row.n;
        l.col.n = p->cols > l.col.n ? p->cols : l.col.n;
        l.each_row |= p->rows != map->panels[0].rows;
        panel_titles |= said(p->title);
    }
    axis *const axes[2] = { &l.row, &l.col };
    int64_t cells[2];
    for (int k = 0; k < 2; k++) {
        axis *a = axes[k];
        a->names = k ? map->col_names : map->row_names;
        a->first = k ? map->col0 : map->row0;
        a->per = groups(a->n, limit);
        cells[k] = groups(a->n, a->per);
        a->px = (int)((wanted[l.across - 1] + cells[k] / 2) / cells[k]);
        a->px = a->px < 1 ? 1 : a->px > 48 ? 48 : a->px;
    }
    if (cells[0] <= 3 * cells[1] && cells[1] <= 3 * cells[0]) /* squares, unless that makes a ribbon */
        l.row.px = l.col.px = l.row.px < l.col.px ? l.row.px : l.col.px;
    plan_rows(&l.row);
    plan_cols(&l.col);
    l.slot_h = (int)cells[0] * l.row.px;
    l.slot_w = (int)cells[1] * l.col.px;

    const int left = l.row.depth + (said(map->row_label) ? ROW_LABEL_W : 0);
    const int head = panel_titles || said(map->value_label) ? 24 : 4;
    const int foot = l.col.depth + (said(map->col_label) ? 20 : 0);
    l.x0 = MARGIN + left;
    l.y0 = MARGIN + (said(map->title) ? 32 : 0) + head;
    l.dx = l.slot_w + (l.each_row ? left + MARGIN : 26);
    l.dy = l.slot_h + foot + head + 6;
    const int right = l.x0 + (l.across - 1) * l.dx + l.slot_w, bottom = l.y0 + (l.down - 1) * l.dy + l.slot_h;
    l.bar_x = right + 26;
    l.bar_h = bottom - l.y0 < 110 ? 110 : bottom - l.y0 > 540 ? 540 : bottom - l.y0;
    int bar_w = BAR_W + 70;
    if (said(map->value_label)) {
        const int w = text_width(map->value_label, SMALL);
        bar_w = w > bar_w ? w < 180 ? w : 180 : bar_w;
    }
    l.w = l.bar_x + bar_w + MARGIN;
    if (said(map->title)) {                           /* a long title makes a small picture wider, up to a point */
        const int w = text_width(map->title, LARGE) + 2 * MARGIN;
        l.w = w > l.w ? w < 900 ? w : l.w > 900 ? l.w : 900 : l.w;
    }
    const int under_bar = l.y0 + (s->finite ? l.bar_h + 12 : 0) + 20 * (s->masked + s->nan);
    l.h = (bottom + foot > under_bar ? bottom + foot : under_bar) + (l.row.per > 1 || l.col.per > 1 ? 20 : 0) + MARGIN;
    return l;
}

static void draw_cells(canvas *c, const pic_panel *p, const layout *l, const scale *s, int x, int y)
{
    const int64_t fr = l->row.per, fc = l->col.per;
    const int rows = (int)groups(p->rows, fr), cols = (int)groups(p->cols, fc), cw = l->col.px, ch = l->row.px;
    rect(c, x - 1, y - 1, cols * cw + 2, rows * ch + 2, LINE);
    for (int i = 0; i < rows; i++) {
        unsigned now = colour_of(s, cell(p, i, 0, fr, fc));
        for (int j = 0, begin = 0; j < cols; j++) {   /* a run of equal cells is one rectangle */
            const unsigned then = j + 1 < cols ? colour_of(s, cell(p, i, j + 1, fr, fc)) : ~now;
            if (then != now) {
                rect(c, x + begin * cw, y + i * ch, (j + 1 - begin) * cw, ch, now);
                begin = j + 1;
                now = then;
            }
        }
    }
    if (cw < 20 || ch < 20)
        return;
    for (int i = 1; i < rows; i++)
        rect(c, x, y + i * ch - 1, cols * cw, 1, WHITE);
    for (int j = 1; j < cols; j++)
        rect(c, x + j * cw - 1, y, 1, rows * ch, WHITE);
    for (int i = 0; cw >= 36 && i < rows; i++)
        for (int j = 0; j < cols; j++) {
            const double v = cell(p, i, j, fr, fc);
            char value[48];
            number(value, v, fabs(v) < 100 ? 2 : 3, fabs(v) < 100);
            if (v != -INFINITY && text_width(value, SMALL) <= cw - 4)
                text(c, x + j * cw + cw / 2, y + i * ch + ch / 2 + 5, SMALL, MIDDLE, false, ink_on(colour_of(s, v)),
                    value);
        }
}

static void draw_panel(canvas *c, const pic_map *map, const layout *l, const scale *s, int k)
{
    const pic_panel *p = &map->panels[k];
    const int x = l->x0 + k % l->across * l->dx, y = l->y0 + k / l->across * l->dy;
    const int w = (int)groups(p->cols, l->col.per) * l->col.px, h = (int)groups(p->rows, l->row.per) * l->row.px;
    char label[LABEL];
    draw_cells(c, p, l, s, x, y);
    if (said(p->title))
        text(c, x, y - 10, SMALL, START, false, INK, fit(label, p->title, SMALL, l->dx - 12));
    for (int64_t j = l->col.start; j < p->cols; j += l->col.step) {
        const int at = x + centre(&l->col, j);
        rect(c, at, y + h + 1, 1, 4, LINE);
        if (l->col.rotated)
            text(c, at + 5, y + h + 8, SMALL, END, true, INK, tick(label, &l->col, j));
        else
            text(c, at, y + h + 17, SMALL, MIDDLE, false, INK, tick(label, &l->col, j));
    }
    if (said(map->col_label))
        text(c, x + w / 2, y + h + l->col.depth + 15, SMALL, MIDDLE, false, SOFT,
            fit(label, map->col_label, SMALL, l->dx));
    if (k % l->across && !l->each_row)
        return;
    for (int64_t i = l->row.start; i < p->rows; i += l->row.step) {
        const int at = y + centre(&l->row, i);
        rect(c, x - 5, at, 4, 1, LINE);
        text(c, x - 8, at + 5, SMALL, END, false, INK, tick(label, &l->row, i));
    }
    if (said(map->row_label))
        text(c, x - l->row.depth - 10, y + h / 2, SMALL, MIDDLE, true, SOFT,
            fit(label, map->row_label, SMALL, l->dy - 8));
}

static void draw_bar(canvas *c, const pic_map *map, const layout *l, const scale *s)
{
    char label[LABEL], value[48];
    const int x = l->bar_x, fine = c->rgb ? 1 : 3;    /* pixels per step of colour: SVG grows with each */
    int y = l->y0;
    if (s->finite) {
        if (said(map->value_label))
            text(c, x, y - 10, SMALL, START, false, INK, fit(label, map->value_label, SMALL, l->w - x - MARGIN));
        rect(c, x - 1, y - 1, BAR_W + 2, l->bar_h + 2, LINE);
        for (int i = 0; i < l->bar_h; i += fine) {
            const double t = l->bar_h > fine ? fmin(1, (double)i / (l->bar_h - fine)) : 0;
            const int high = l->bar_h - i < fine ? l->bar_h - i : fine;
            rect(c, x, y + i, BAR_W, high, colour_of(s, s->to * (1 - t) + s->from * t));
        }
        /* Ticks at multiples of 1, 2 or 5 times a power of ten; none where that is below the smallest double. */
        const double rough = s->to / 5 - s->from / 5, power = pow(10, floor(log10(rough)));
        const double step = power * (rough / power > 5 ? 10 : rough / power > 2 ? 5 : rough / power > 1 ? 2 : 1);
        const double places = log10(s->most) - log10(step);
        const int digits = places > 4 ? places < 14 ? (int)places + 2 : 16 : 6;
        for (int k = 0; step > 0 && k < 12; k++) {
            const double v = (ceil(s->from / step - 1e-9) + k) * step;
            if (!(v <= s->to + step * 1e-9) || !isfinite(v))
                break;
            const int at = y + (int)((l->bar_h - 1) * (1 - position(s, v)) + 0.5);
            rect(c, x + BAR_W + 1, at, 4, 1, LINE);
            text(c, x + BAR_W + 9, at + 5, SMALL, START, false, INK, number(value, v, digits, false));
        }
        y += l->bar_h + 12;
    }
    for (int k = 0; k < 2; k++)
        if (k ? s->nan : s->masked) {
            rect(c, x - 1, y - 1, BAR_W + 2, 16, LINE);
            rect(c, x, y, BAR_W, 14, k ? NOT_A_NUMBER : MASKED);
            text(c, x + BAR_W + 9, y + 12, SMALL, START, false, INK, k ? "NaN" : "masked");
            y += 20;
        }
}

static void draw(canvas *c, const pic_map *map, const layout *l, const scale *s)
{
    char label[LABEL];
    rect(c, 0, 0, l->w, l->h, WHITE);
    if (said(map->title))
        text(c, MARGIN, MARGIN + 13, LARGE, START, false, INK, fit(label, map->title, LARGE, l->w - 2 * MARGIN));
    for (int k = 0; k < map->n_panels; k++)
        draw_panel(c, map, l, s, k);
    draw_bar(c, map, l, s);
    if (l->row.per > 1 || l->col.per > 1) {
        snprintf(label, sizeof label, "each cell: the mean of %lld x %lld values", (long long)l->row.per,
            (long long)l->col.per);
        text(c, MARGIN, l->h - MARGIN, SMALL, START, false, SOFT, label);
    }
}

/* ---- PNG --------------------------------------------------------------------------------------------------------- */

static void png_append(png_structp png, png_bytep from, size_t n)
{
    bytes *b = png_get_io_ptr(png);
    put(b, from, n);
    if (b->failed)
        png_error(png, "out of memory");
}

static void png_flush_none(png_structp png) { (void)png; }
static void png_warn_none(png_structp png, png_const_charp what) { (void)png, (void)what; }

static void png_failed(png_structp png, png_const_charp what)
{
    snprintf(png_get_error_ptr(png), 256, "PNG: %s", what);
    png_longjmp(png, 1);
}

static int encode(const canvas *c, bytes *out, char err[256])
{
    png_structp png = png_create_write_struct(PNG_LIBPNG_VER_STRING, err, png_failed, png_warn_none);
    png_infop info = png ? png_create_info_struct(png) : NULL;
    if (!info) {
        png_destroy_write_struct(&png, NULL);
        return fail(err, "PNG: out of memory");
    }
    if (setjmp(png_jmpbuf(png))) {                    /* nothing between here and the jump changes png or info */
        png_destroy_write_struct(&png, &info);
        return -1;
    }
    png_set_write_fn(png, out, png_append, png_flush_none);
    png_set_IHDR(png, info, (png_uint_32)c->w, (png_uint_32)c->h, 8, PNG_COLOR_TYPE_RGB, PNG_INTERLACE_NONE,
        PNG_COMPRESSION_TYPE_DEFAULT, PNG_FILTER_TYPE_DEFAULT);
    png_set_filter(png, 0, PNG_FILTER_NONE);          /* flat colours: zlib alone packs them best */
    png_set_sRGB(png, info, PNG_sRGB_INTENT_PERCEPTUAL);
    png_write_info(png, info);
    for (int y = 0; y < c->h; y++)
        png_write_row(png, c->rgb + 3 * (size_t)y * (size_t)c->w);
    png_write_end(png, NULL);
    png_destroy_write_struct(&png, &info);
    return 0;
}

int pic_png(const pic_map *map, unsigned char **data, size_t *size, char err[256])
{
    if (check(map, err))
        return -1;
    const scale s = scale_of(map);
    const layout l = lay_out(map, &s, INT16_MAX);
    canvas c = { .w = l.w, .h = l.h };
    c.rgb = (size_t)l.w > SIZE_MAX / 3 / (size_t)l.h ? NULL : malloc(3 * (size_t)l.w * (size_t)l.h);
    if (!c.rgb)
        return fail(err, "PNG: out of memory");
    draw(&c, map, &l, &s);
    bytes out = { 0 };
    const int rc = encode(&c, &out, err);
    free(c.rgb);
    if (rc) {
        free(out.at);
        return -1;
    }
    *data = out.at;
    *size = out.size;
    return 0;
}

/* ---- SVG --------------------------------------------------------------------------------------------------------- */

int pic_svg(const pic_map *map, unsigned char **data, size_t *size, char err[256])
{
    if (check(map, err))
        return -1;
    const scale s = scale_of(map);
    const layout l = lay_out(map, &s, 200);
    canvas c = { .w = l.w, .h = l.h };
    bytes *b = &c.svg;
    char lo[48], hi[48];
    putf(b, "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" "
        "height=\"%d\" viewBox=\"0 0 %d %d\" role=\"img\" font-family=\"sans-serif\" shape-rendering=\"crispEdges\">\n"
        "<title>", l.w, l.h, l.w, l.h);
    put_xml(b, said(map->title) ? map->title : "heat map");
    putf(b, "</title>\n<desc>");
    put_xml(b, said(map->value_label) ? map->value_label : "values");
    putf(b, " from %s to %s, rows: ", number(lo, s.lo, 6, false), number(hi, s.hi, 6, false));
    put_xml(b, said(map->row_label) ? map->row_label : "row");
    putf(b, ", columns: ");
    put_xml(b, said(map->col_label) ? map->col_label : "column");
    putf(b, ", panels: %d</desc>\n", map->n_panels);
    draw(&c, map, &l, &s);
    putf(b, "</svg>\n");
    if (b->failed) {
        free(b->at);
        return fail(err, "SVG: out of memory");
    }
    *data = b->at;
    *size = b->size;
    return 0;
}

/* ---- terminal ---------------------------------------------------------------------------------------------------- */

static const char ramp[] = " .:-=+*#%@";
enum { RAMP = sizeof ramp - 1, GUTTER = 10, NO_COLOUR = -1 };

/* Columns a character takes in a terminal: the blocks of Unicode's East Asian Width that matter for text, and emoji. */
static int columns(unsigned c)
{
    if ((c >= 0x300 && c < 0x370) || c == 0x200c || c == 0x200d || (c >= 0xfe00 && c < 0xfe10))
        return 0;
    return (c >= 0x1100 && c < 0x1160) || (c >= 0x2e80 && c < 0xa4d0) || (c >= 0xac00 && c < 0xd7a4) ||
        (c >= 0xf900 && c < 0xfb00) || (c >= 0xfe30 && c < 0xfe70) || (c >= 0xff00 && c < 0xff61) ||
        (c >= 0x1f300 && c < 0x1fb00) || (c >= 0x20000 && c < 0x40000) ? 2 : 1;
}

static int text_columns(const char *s)
{
    int n = 0;
    while (*s)
        n += columns(next(&s));
    return n;
}

static void spaces(FILE *to, int n) { fprintf(to, "%*s", n > 0 ? n : 0, ""); }

static int say(FILE *to, const char *s, int most)     /* at most so many columns; returns how many */
{
    int n = 0;
    while (s && *s) {
        char one[8];
        const unsigned c = next(&s);
        if (n + columns(c) > most)
            break;
        n += columns(c);
        fwrite(one, 1, (size_t)(put_char(one, c) - one), to);
    }
    return n;
}

static void say_right(FILE *to, const char *s, int width)
{
    const int n = text_columns(s);
    spaces(to, width - n);
    say(to, s, width);
}

/* The two scales in the 256 colours of xterm: few steps in good order look better than the nearest of its cube. */
static int xterm(const scale *s, double v)
{
    static const unsigned char low_high[] = { 17, 18, 24, 25, 31, 37, 43, 78, 114, 150, 186, 228 };
    static const unsigned char blue_red[] = { 18, 25, 68, 110, 153, 189, 231, 224, 217, 174, 167, 124, 88 };
    if (isnan(v))
        return 201;
    if (v == -INFINITY)
        return 250;
    const int last = (int)(s->diverging ? sizeof blue_red : sizeof low_high) - 1;
    return (s->diverging ? blue_red : low_high)[(int)(shade(s, v) * last + 0.5)];
}

static int xterm_ink(const scale *s, double v)        /* black on the light half of a scale, else white */
{
    const double t = shade(s, v);
    return v == -INFINITY || (s->diverging ? fabs(t - 0.5) < 0.3 : t > 0.5) ? 16 : 231;
}

typedef struct pen {
    FILE *to;
    int ink, paper;                                   /* as the terminal has them now */
} pen;

static void dye(pen *p, int ink, int paper)           /* only what changes */
{
    if ((ink == NO_COLOUR && p->ink != ink) || (paper == NO_COLOUR && p->paper != paper)) {
        fputs("\x1b[0m", p->to);
        p->ink = p->paper = NO_COLOUR;
    }
    if (ink != p->ink)
        fprintf(p->to, "\x1b[38;5;%dm", ink);
    if (paper != p->paper)
        fprintf(p->to, "\x1b[48;5;%dm", paper);
    p->ink = ink;
    p->paper = paper;
}

static char mark(const scale *s, double v)
{
    const int i = isnan(v) ? 0 : (int)(position(s, v) * RAMP);
    return isnan(v) ? '?' : v == -INFINITY ? '/' : ramp[i < RAMP ? i : RAMP - 1];
}

/* The line of column labels: as many as fit without touching, the first at its column. */
static void header(FILE *to, const axis *a, int width)
{
    char label[LABEL];
    int at = 0;
    for (int64_t j = a->start, last = 0; j < a->n && at < width; j += a->step) {
        const int x = (int)(j / a->per) * a->px;
        tick(label, a, j);
        const int n = text_columns(label), room = !a->names ? n : a->px > 9 ? a->px - 1 : 8;
        if ((j > last && x <= at) || x + (n < room ? n : room) > width)
            continue;
        last = j;
        spaces(to, x - at);
        at = x + say(to, label, room);
    }
    fputc('\n', to);
}

static void say_numbers(pen *p, const pic_panel *m, const axis *row, const axis *col, const scale *s, int gutter,
    int wide, bool colour)
{
    char value[48], label[LABEL];
    spaces(p->to, gutter);
    for (int64_t j = 0; j < m->cols; j++) {
        spaces(p->to, j ? 2 : 1);
        say_right(p->to, tick(label, col, j), wide - 2);
    }
    fputc('\n', p->to);
    for (int64_t i = 0; i < m->rows; i++) {
        say_right(p->to, tick(label, row, i), gutter - 1);
        fputc(' ', p->to);
        for (int64_t j = 0; j < m->cols; j++) {
            const double v = m->value[i * m->cols + j];
            if (colour)
                dye(p, xterm_ink(s, v), xterm(s, v));
            fprintf(p->to, "%*s%s", wide - 1, number(value, v, 4, fabs(v) < 1e5), colour ? " " : "");
            if (!colour && j + 1 < m->cols)
                fputc(' ', p->to);
        }
        dye(p, NO_COLOUR, NO_COLOUR);
        fputc('\n', p->to);
    }
}

/* A map of marks. A line of text is one row of marks, with colour two. */
static void say_map(pen *p, const pic_panel *m, const axis *row, const axis *col, const scale *s, int gutter,
    bool colour)
{
    const int half = colour ? 2 : 1, cols = (int)groups(m->cols, col->per), rows = (int)groups(m->rows, row->per);
    char label[LABEL];
    spaces(p->to, gutter);
    header(p->to, col, cols * col->px);
    for (int h = 0; h < rows * row->px; h += half) {
        const int first = (h + row->px - 1) / row->px; /* the row of cells that begins in this line, if one does */
        *label = 0;
        if (first < rows && first * row->px < h + half)
            tick(label, row, first * row->per);
        say_right(p->to, label, gutter - 1);
        fputc(' ', p->to);
        for (int x = 0; x < cols * col->px; x++) {
            const int64_t j = x / col->px;
            const double top = cell(m, h / row->px, j, row->per, col->per);
            const bool below = colour && h + 1 < rows * row->px;
            if (!colour) {
                fputc(mark(s, top), p->to);
                continue;
            }
            const double low = below ? cell(m, (h + 1) / row->px, j, row->per, col->per) : 0;
            dye(p, xterm(s, top), below ? xterm(s, low) : NO_COLOUR);
            fputs("\xe2\x96\x80", p->to);             /* upper half block */
        }
        dye(p, NO_COLOUR, NO_COLOUR);
        fputc('\n', p->to);
    }
}

static int label_columns(const axis *a)               /* the widest label, up to the gutter */
{
    char label[LABEL];
    int w = 1;
    for (int64_t i = 0; i < a->n && w < GUTTER; i += a->per) {
        const int n = text_columns(tick(label, a, i));
        w = n > w ? n : w;
    }
    return w < GUTTER ? w : GUTTER;
}

/* One panel; row and col are set to how it was laid out. */
static void say_panel(pen *p, const pic_map *map, const pic_panel *m, const scale *s, int width, bool colour, axis *row,
    axis *col)
{
    *row = (axis){ .names = map->row_names, .first = map->row0, .n = m->rows, .per = 1, .px = 1, .step = 1 };
    *col = (axis){ .names = map->col_names, .first = map->col0, .n = m->cols, .per = 1, .px = 1, .step = 1 };
    const int gutter = label_columns(row) + 1, room = width - gutter;
    if (said(m->title)) {
        say(p->to, m->title, width);
        fputc('\n', p->to);
    }
    if (m->rows <= 12 && m->cols <= 12) {
        char value[48];
        int wide = label_columns(col);
        for (int64_t i = 0; i < m->rows * m->cols; i++) {
            const int n = (int)strlen(number(value, m->value[i], 4, fabs(m->value[i]) < 1e5));
            wide = n > wide ? n : wide;
        }
        wide += 2;
        if (wide * m->cols <= room) {
            say_numbers(p, m, row, col, s, gutter, wide, colour);
            return;
        }
    }
    /* About square: a mark is twice as high as wide, a half block is square. A small map is drawn larger, a high one is
     * kept to about a screen. */
    const int lines = room / 2 > 24 ? room / 2 : 24, most = lines * (colour ? 2 : 1);
    col->per = groups(m->cols, room);
    row->per = groups(m->rows, most);
    if (col->per > 1 && row->per < (colour ? 1 : 2) * col->per && m->rows > 1)
        row->per = (colour ? 1 : 2) * col->per;
    const int64_t cols = groups(m->cols, col->per), rows = groups(m->rows, row->per);
    const int64_t zoom = (room < 64 ? room : 64) / cols;
    col->px = zoom > 1 ? (int)zoom : 1;
    row->px = colour ? col->px : col->px / 2;
    row->px = row->px * rows > most ? (int)(most / rows) : row->px;
    row->px = row->px > 1 ? row->px : 1;
    if (!col->names)
        space_ticks(col, 2 + (int)fmax(text_columns(tick((char[LABEL]){ 0 }, col, 0)),
            text_columns(tick((char[LABEL]){ 0 }, col, m->cols - 1))));
    say_map(p, m, row, col, s, gutter, colour);
}

void pic_text(FILE *to, const pic_map *map, int width, bool colour)
{
    char err[256], lo[48], hi[48];
    if (check(map, err)) {
        fprintf(to, "%s\n", err);
        return;
    }
    width = width < 24 ? 24 : width > 1000 ? 1000 : width;
    const scale s = scale_of(map);
    pen p = { to, NO_COLOUR, NO_COLOUR };
    axis row = { 0 }, col = { 0 };
    int64_t most_r = 1, most_c = 1;
    if (said(map->title)) {
        say(to, map->title, width);
        fputc('\n', to);
    }
    for (int k = 0; k < map->n_panels; k++) {
        say_panel(&p, map, &map->panels[k], &s, width, colour, &row, &col);
        most_r = row.per > most_r ? row.per : most_r;
        most_c = col.per > most_c ? col.per : most_c;
    }
    const bool labels = said(map->row_label) && said(map->col_label);
    if (labels) {
        say(to, map->row_label, width);
        fputs(" downward, ", to);
        say(to, map->col_label, width);
        fputs(" to the right", to);
    }
    if (most_r > 1 || most_c > 1)
        fprintf(to, "%seach cell: the mean of up to %lld x %lld values", labels ? "; " : "", (long long)most_r,
            (long long)most_c);
    if (labels || most_r > 1 || most_c > 1)
        fputc('\n', to);
    say(to, said(map->value_label) ? map->value_label : "value", width);
    if (s.finite) {
        fprintf(to, " %s ", number(lo, s.from, 4, false));
        for (int i = 0; i < 20 && colour; i++) {
            dye(&p, NO_COLOUR, xterm(&s, s.from * (1 - i / 19.0) + s.to * (i / 19.0)));
            fputc(' ', to);
        }
        dye(&p, NO_COLOUR, NO_COLOUR);
        fprintf(to, "%s%s%s %s", colour ? "" : "[", colour ? "" : ramp, colour ? "" : "]", number(hi, s.to, 4, false));
        if (s.from != s.lo || s.to != s.hi)
            fprintf(to, " (values from %s to %s)", number(lo, s.lo, 4, false), number(hi, s.hi, 4, false));
    }
    for (int k = 0; k < 2; k++)
        if (k ? s.nan : s.masked) {
            fputs("  ", to);
            if (colour)
                dye(&p, NO_COLOUR, xterm(&s, k ? NAN : -INFINITY));
            fputs(colour ? "  " : k ? "?" : "/", to);
            dye(&p, NO_COLOUR, NO_COLOUR);
            fputs(k ? " NaN" : " masked", to);
        }
    fputc('\n', to);
}
