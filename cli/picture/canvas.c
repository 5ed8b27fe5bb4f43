/* canvas.c -- the two kinds of canvas, PNG and SVG. Both draw filled rectangles and lines of text.
 * SPDX-License-Identifier: Apache-2.0 */
#include "cli/picture/canvas.h"

#include <math.h>
#include <png.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "cli/picture/font.h"

/* ---- errors, and a growing buffer */

int pic_fail(char err[256], const char *why)
{
    snprintf(err, 256, "%s", why);
    return -1;
}

static void pic_put(pic_bytes *b, const void *from, size_t n)
{
    if (b->failed)
        return;
    if (n > b->capacity - b->size) {
        const size_t capacity = n > SIZE_MAX / 4 || b->capacity > SIZE_MAX / 4 ? 0 : 2 * b->capacity + n + 4096;
        unsigned char *at = capacity ? realloc(b->at, capacity) : NULL;
        if (!at) {
            b->failed = true;
            return;
        }
        b->at = at;
        b->capacity = capacity;
    }
    memcpy(b->at + b->size, from, n);
    b->size += n;
}

void pic_putf(pic_bytes *b, const char *format, ...)
{
    char line[400];
    va_list args;
    va_start(args, format);
    const int n = vsnprintf(line, sizeof line, format, args);
    va_end(args);
    pic_put(b, line, n < 0 ? 0 : (size_t)n < sizeof line ? (size_t)n : sizeof line - 1);
}

void pic_put_xml(pic_bytes *b, const char *s)
{
    while (*s) {
        char one[8];
        const unsigned c = pic_next(&s);
        const char *name = c == '<' ? "&lt;" : c == '>' ? "&gt;" : c == '&' ? "&amp;" : c == '"' ? "&quot;" : NULL;
        if (name)
            pic_put(b, name, strlen(name));
        else
            pic_put(b, one, (size_t)(pic_put_char(one, c) - one));
    }
}

/* ---- text: measuring and cutting --------------------------------------------------------------------------------- */

static int digit36(char c)
{
    return c <= '9' ? c - '0' : c - 'a' + 10;
}

/* Return the number of pixels per font unit, a multiple of a quarter. */
static double unit_of(int size)
{
    return floor(size * 0.06 * 4 + 0.5) / 4;
}

/* Return the distance in pixels from the left edge of a glyph to the left edge of the next one. */
static int advance(unsigned c, double unit)
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

int pic_text_width(const char *s, int size)
{
    int w = 0;
    while (*s)
        w += advance(pic_next(&s), unit_of(size));
    return w;
}

const char *pic_fit(char out[LABEL], const char *s, int size, int max_width)
{
    const int dots = 2 * advance('.', unit_of(size));
    char *to = out, *cut = out;
    for (int w = 0; *s;) {
        const unsigned c = pic_next(&s);
        w += advance(c, unit_of(size));
        if (w > max_width || to - out > LABEL - 8) {
            to = cut;
            *to++ = '.';
            *to++ = '.';
            break;
        }
        to = pic_put_char(to, c);
        if (w + dots <= max_width)
            cut = to;
    }
    *to = 0;
    return out;
}

/* ---- two canvases ------------------------------------------------------------------------------------------------ */

void pic_rect(pic_canvas *c, int x, int y, int w, int h, unsigned rgb)
{
    if (!c->rgb) {
        pic_putf(&c->svg, "<rect x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" fill=\"#%06x\"/>\n", x, y, w, h, rgb);
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

typedef struct point {
    double x, y;
} point;

/* Read one stroke of a glyph as points in pixels. Return the text after the stroke. Points are rounded to pixels, which
 * makes stems crisp. Smooth strokes then get three rounds of Chaikin's corner cutting, which gives approximately a
 * quadratic B-spline. A round turns n points into 2 (n - 1): 9 points become 16, 30, 58. */
enum { STROKES = 4, STROKE_MAX = 80 }; /* '#' has 4 strokes */
static const char *stroke(const char *g, double unit, point p[STROKE_MAX], int *n)
{
    const bool smooth = *g == '~';
    *n = 0;
    for (g += smooth; *g && *g != ' '; g += 2)
        p[(*n)++] = (point){floor(digit36(g[0]) * unit + 0.5), floor((digit36(g[1]) - 12) * unit + 0.5)};
    for (int round = 0; smooth && round < 3; round++) {
        point q[STROKE_MAX];
        int m = 0;
        q[m++] = p[0];
        for (int i = 0; i + 1 < *n; i++) {
            const point a = p[i], b = p[i + 1];
            if (i > 0)
                q[m++] = (point){0.75 * a.x + 0.25 * b.x, 0.75 * a.y + 0.25 * b.y};
            if (i + 2 < *n)
                q[m++] = (point){0.25 * a.x + 0.75 * b.x, 0.25 * a.y + 0.75 * b.y};
        }
        q[m++] = p[*n - 1];
        memcpy(p, q, (size_t)m * sizeof *p);
        *n = m;
    }
    return g + (*g == ' ');
}

/* Return the distance from p to the segment a b. */
static double distance(point p, point a, point b)
{
    const double dx = b.x - a.x, dy = b.y - a.y, len = dx * dx + dy * dy;
    const double t = len > 0 ? pic_clamp(((p.x - a.x) * dx + (p.y - a.y) * dy) / len) : 0;
    return hypot(p.x - a.x - t * dx, p.y - a.y - t * dy);
}

/* Draw a glyph whose left edge is on the base line at (x, y). The closer a pixel is to a stroke, the more it is
 * inked. */
static void glyph(pic_canvas *c, int x, int y, unsigned ch, double unit, bool vertical, unsigned rgb)
{
    const double pen = 0.68 * sqrt(unit); /* half the width of a stroke */
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
                    nearest = fmin(nearest, distance((point){a, b}, p[k][i], p[k][i + 1]));
            const double cover = pic_clamp(pen + 0.5 - nearest);
            unsigned char *to = c->rgb + 3 * ((size_t)py * (size_t)c->w + (size_t)px);
            for (int k = 0; k < 3; k++)
                to[k] = (unsigned char)(to[k] + cover * ((double)(rgb >> (16 - 8 * k) & 255) - to[k]) + 0.5);
        }
}

void pic_write(pic_canvas *c, int x, int y, int size, int anchor, bool vertical, unsigned rgb, const char *s)
{
    if (c->rgb) {
        const int back = anchor * pic_text_width(s, size) / 2;
        for (x -= vertical ? 0 : back, y += vertical ? back : 0; *s;) {
            unsigned ch = pic_next(&s);
            ch = ch < 127 ? ch : ch == 0x2581 || ch == 0x120 ? '_' : '?'; /* both stand for a space in tokenizers */
            const int step = advance(ch, unit_of(size));
            glyph(c, x, y, ch, unit_of(size), vertical, rgb);
            x += vertical ? 0 : step;
            y -= vertical ? step : 0;
        }
        return;
    }
    static const char *const anchors[] = {"", " text-anchor=\"middle\"", " text-anchor=\"end\""};
    char rotation[64] = "";
    if (vertical)
        snprintf(rotation, sizeof rotation, " transform=\"rotate(-90 %d %d)\"", x, y);
    pic_putf(&c->svg, "<text x=\"%d\" y=\"%d\" font-size=\"%d\" fill=\"#%06x\"%s%s>", x, y, size, rgb, anchors[anchor],
             rotation);
    pic_put_xml(&c->svg, s);
    pic_putf(&c->svg, "</text>\n");
}

/* ---- PNG --------------------------------------------------------------------------------------------------------- */

static void png_append(png_structp png, png_bytep from, size_t n)
{
    pic_bytes *b = png_get_io_ptr(png);
    pic_put(b, from, n);
    if (b->failed)
        png_error(png, "out of memory");
}

static void png_flush_none(png_structp png)
{
    (void)png;
}
static void png_warn_none(png_structp png, png_const_charp what)
{
    (void)png, (void)what;
}

static void png_failed(png_structp png, png_const_charp what)
{
    snprintf(png_get_error_ptr(png), 256, "PNG: %s", what);
    png_longjmp(png, 1);
}

int pic_encode(const pic_canvas *c, pic_bytes *out, char err[256])
{
    png_structp png = png_create_write_struct(PNG_LIBPNG_VER_STRING, err, png_failed, png_warn_none);
    png_infop info = png ? png_create_info_struct(png) : NULL;
    if (!info) {
        png_destroy_write_struct(&png, NULL);
        return pic_fail(err, "PNG: out of memory");
    }
    if (setjmp(png_jmpbuf(png))) { /* png and info do not change between here and the jump */
        png_destroy_write_struct(&png, &info);
        return -1;
    }
    png_set_write_fn(png, out, png_append, png_flush_none);
    png_set_IHDR(png, info, (png_uint_32)c->w, (png_uint_32)c->h, 8, PNG_COLOR_TYPE_RGB, PNG_INTERLACE_NONE,
                 PNG_COMPRESSION_TYPE_DEFAULT, PNG_FILTER_TYPE_DEFAULT);
    png_set_filter(png, 0, PNG_FILTER_NONE); /* flat colours compress best without a filter */
    png_set_sRGB(png, info, PNG_sRGB_INTENT_PERCEPTUAL);
    png_write_info(png, info);
    for (int y = 0; y < c->h; y++)
        png_write_row(png, c->rgb + 3 * (size_t)y * (size_t)c->w);
    png_write_end(png, NULL);
    png_destroy_write_struct(&png, &info);
    return 0;
}
