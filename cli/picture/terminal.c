/* terminal.c -- prints heat maps to the terminal, as characters or in 256 colours.
 * SPDX-License-Identifier: Apache-2.0 */
#include "cli/picture/canvas.h"

#include <math.h>
#include <string.h>

static const char ramp[] = " .:-=+*#%@";
enum { RAMP = sizeof ramp - 1, GUTTER = 10, NO_COLOUR = -1 };

/* Ranges of characters that take two columns (common blocks of East Asian Width, and emoji) or no column. */
static const struct {
    unsigned first, end;
    int columns;
} blocks[] = {{0x300, 0x370, 0},   {0x1100, 0x1160, 2},   {0x200c, 0x200e, 0},  {0x2e80, 0xa4d0, 2},
              {0xac00, 0xd7a4, 2}, {0xf900, 0xfb00, 2},   {0xfe00, 0xfe10, 0},  {0xfe30, 0xfe70, 2},
              {0xff00, 0xff61, 2}, {0x1f300, 0x1fb00, 2}, {0x20000, 0x40000, 2}};
enum { BLOCKS = sizeof blocks / sizeof *blocks };

static int columns(unsigned c)
{
    for (int n = 0; n < BLOCKS; n++)
        if (c >= blocks[n].first && c < blocks[n].end)
            return blocks[n].columns;
    return 1;
}

int pic_columns(const char *s)
{
    int n = 0;
    while (*s)
        n += columns(pic_next(&s));
    return n;
}

static void spaces(FILE *to, int n)
{
    fprintf(to, "%*s", n > 0 ? n : 0, "");
}

/* Print text, cut to max_columns. Return the number of columns it takes. */
static int print_text(FILE *to, const char *s, int max_columns)
{
    int n = 0;
    while (s && *s) {
        char one[8];
        const unsigned c = pic_next(&s);
        if (n + columns(c) > max_columns)
            break;
        n += columns(c);
        fwrite(one, 1, (size_t)(pic_put_char(one, c) - one), to);
    }
    return n;
}

static void print_right(FILE *to, const char *s, int width)
{
    const int n = pic_columns(s);
    spaces(to, width - n);
    print_text(to, s, width);
}

/* Return the colour of a value, one of the 256 colours of xterm. Both scales were chosen by eye, because taking the
 * nearest colours in xterm's colour cube gives visible jumps. */
static int xterm(const pic_scale *s, double v)
{
    static const unsigned char low_high[] = {17, 18, 24, 25, 31, 37, 43, 78, 114, 150, 186, 228};
    static const unsigned char blue_red[] = {18, 25, 68, 110, 153, 189, 231, 224, 217, 174, 167, 124, 88};
    if (isnan(v))
        return 201;
    if (v == -INFINITY)
        return 250;
    const int last = (int)(s->diverging ? sizeof blue_red : sizeof low_high) - 1;
    return (s->diverging ? blue_red : low_high)[(int)(pic_shade(s, v) * last + 0.5)];
}

/* Return the text colour for a value: black on light colours, otherwise white. */
static int xterm_ink(const pic_scale *s, double v)
{
    const double t = pic_shade(s, v);
    return v == -INFINITY || (s->diverging ? fabs(t - 0.5) < 0.3 : t > 0.5) ? 16 : 231;
}

typedef struct pen {
    FILE *to;
    int ink, paper; /* current colours of the terminal */
} pen;

/* Set the colours of the terminal; print only what changes. */
static void set_colours(pen *p, int ink, int paper)
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

/* Return the character that represents a value. */
static char mark(const pic_scale *s, double v)
{
    const int i = isnan(v) ? 0 : (int)(pic_position(s, v) * RAMP);
    return isnan(v) ? '?' : v == -INFINITY ? '/' : ramp[i < RAMP ? i : RAMP - 1];
}

/* Print the line of column labels. Each label begins at its column; a label is omitted if it would touch the previous
 * one. */
static void header(FILE *to, const pic_axis *a, int width)
{
    char label[LABEL];
    int at = 0;
    for (int64_t j = a->start, last = 0; j < a->n && at < width; j += a->step) {
        const int x = (int)(j / a->per) * a->px;
        pic_tick(label, a, j);
        const int n = pic_columns(label), space = !a->names ? n : a->px > 9 ? a->px - 1 : 8;
        if ((j > last && x <= at) || x + (n < space ? n : space) > width)
            continue;
        last = j;
        spaces(to, x - at);
        at = x + print_text(to, label, space);
    }
    fputc('\n', to);
}

static const char *number(char out[48], double v, int digits)
{
    return pic_number(out, v, fabs(v) < 1e5 ? digits : 4, fabs(v) < 1e5);
}

/* Print a small matrix as numbers with this many decimals, in columns of this width. */
static void print_numbers(pen *p, const pic_panel *m, const pic_axis *row, const pic_axis *col, const pic_scale *s,
                          int gutter, int digits, int wide, bool colour)
{
    char value[48], label[LABEL];
    spaces(p->to, gutter);
    for (int64_t j = 0; j < m->cols; j++) {
        spaces(p->to, j ? 2 : 1);
        print_right(p->to, pic_tick(label, col, j), wide - 2);
    }
    fputc('\n', p->to);
    for (int64_t i = 0; i < m->rows; i++) {
        print_right(p->to, pic_tick(label, row, i), gutter - 1);
        fputc(' ', p->to);
        for (int64_t j = 0; j < m->cols; j++) {
            const double v = m->value[i * m->cols + j];
            if (colour)
                set_colours(p, xterm_ink(s, v), xterm(s, v));
            fprintf(p->to, "%*s%s", wide - 1, number(value, v, digits), colour ? " " : "");
            if (!colour && j + 1 < m->cols)
                fputc(' ', p->to);
        }
        set_colours(p, NO_COLOUR, NO_COLOUR);
        fputc('\n', p->to);
    }
}

/* Print a map. A line has one row of characters or, with colour, two rows of half blocks. */
static void print_map(pen *p, const pic_panel *m, const pic_axis *row, const pic_axis *col, const pic_scale *s,
                      int gutter, bool colour)
{
    const int half = colour ? 2 : 1, cols = (int)pic_groups(m->cols, col->per),
              rows = (int)pic_groups(m->rows, row->per);
    char label[LABEL];
    spaces(p->to, gutter);
    header(p->to, col, cols * col->px);
    for (int h = 0; h < rows * row->px; h += half) {
        const int first = (h + row->px - 1) / row->px; /* first row of cells that begins in this line or below */
        *label = 0;
        if (first < rows && first * row->px < h + half)
            pic_tick(label, row, first * row->per);
        print_right(p->to, label, gutter - 1);
        fputc(' ', p->to);
        for (int x = 0; x < cols * col->px; x++) {
            const int64_t j = x / col->px;
            const double top = pic_cell(m, h / row->px, j, row->per, col->per);
            const bool below = colour && h + 1 < rows * row->px;
            if (!colour) {
                fputc(mark(s, top), p->to);
                continue;
            }
            const double low = below ? pic_cell(m, (h + 1) / row->px, j, row->per, col->per) : 0;
            set_colours(p, xterm(s, top), below ? xterm(s, low) : NO_COLOUR);
            fputs("\xe2\x96\x80", p->to); /* upper half block */
        }
        set_colours(p, NO_COLOUR, NO_COLOUR);
        fputc('\n', p->to);
    }
}

/* Return true if every finite number is a whole one, which needs no decimals. */
static bool are_whole(const pic_panel *m)
{
    for (int64_t i = 0; i < m->rows * m->cols; i++)
        if (isfinite(m->value[i]) && m->value[i] != rint(m->value[i]))
            return false;
    return true;
}

/* Return the number of columns of the widest number. */
static int number_columns(const pic_panel *m, int digits)
{
    char value[48];
    int wide = 0;
    for (int64_t i = 0; i < m->rows * m->cols; i++) {
        const int n = (int)strlen(number(value, m->value[i], digits));
        wide = n > wide ? n : wide;
    }
    return wide;
}

/* Return the width of the widest label in columns, at most GUTTER. */
static int label_columns(const pic_axis *a)
{
    char label[LABEL];
    int w = 1;
    for (int64_t i = 0; i < a->n && w < GUTTER; i += a->per) {
        const int n = pic_columns(pic_tick(label, a, i));
        w = n > w ? n : w;
    }
    return w < GUTTER ? w : GUTTER;
}

/* Print one panel and store its layout in *row and *col. */
static void print_panel(pen *p, const pic_map *map, const pic_panel *m, const pic_scale *s, int width, bool colour,
                        pic_axis *row, pic_axis *col)
{
    *row = (pic_axis){.names = map->row_names, .first = map->row0, .n = m->rows, .per = 1, .px = 1, .step = 1};
    *col = (pic_axis){.names = map->col_names, .first = map->col0, .n = m->cols, .per = 1, .px = 1, .step = 1};
    const int gutter = label_columns(row) + 1, space = width - gutter;
    if (pic_has_text(m->title)) {
        print_text(p->to, m->title, width);
        fputc('\n', p->to);
    }
    if (m->rows <= 12 && m->cols <= 12) {
        /* Use the most decimals, and if possible the wider gap, that fit. */
        const int most = are_whole(m) ? 0 : 4, fewest = most < 2 ? most : 2, labels = label_columns(col) + 2;
        for (int digits = most; digits >= fewest; digits--)
            for (int gap = 2; gap > 0; gap--) {
                const int n = number_columns(m, digits) + gap, wide = n > labels ? n : labels;
                if (wide * m->cols <= space) {
                    print_numbers(p, m, row, col, s, gutter, digits, wide, colour);
                    return;
                }
            }
    }
    /* Make the cells about square: a character is twice as high as wide; a half block is square. Enlarge small maps,
     * and limit the height to about one screen. */
    const int lines = space / 2 > 24 ? space / 2 : 24, max_rows = lines * (colour ? 2 : 1);
    col->per = pic_groups(m->cols, space);
    row->per = pic_groups(m->rows, max_rows);
    if (col->per > 1 && row->per < (colour ? 1 : 2) * col->per && m->rows > 1)
        row->per = (colour ? 1 : 2) * col->per;
    const int64_t cols = pic_groups(m->cols, col->per), rows = pic_groups(m->rows, row->per);
    const int64_t zoom = (space < 64 ? space : 64) / cols;
    col->px = zoom > 1 ? (int)zoom : 1;
    row->px = colour ? col->px : col->px / 2;
    row->px = row->px * rows > max_rows ? (int)(max_rows / rows) : row->px;
    row->px = row->px > 1 ? row->px : 1;
    if (!col->names)
        pic_space_ticks(col, 2 + (int)fmax(pic_columns(pic_tick((char[LABEL]){0}, col, 0)),
                                           pic_columns(pic_tick((char[LABEL]){0}, col, m->cols - 1))));
    print_map(p, m, row, col, s, gutter, colour);
}

static void legend(pen *p, const pic_scale *s, const char *name, int width, bool colour)
{
    char lo[48], hi[48];
    print_text(p->to, name, width);
    if (s->finite) {
        fprintf(p->to, " %s ", pic_number(lo, s->from, 4, false));
        for (int i = 0; i < 20 && colour; i++) {
            set_colours(p, NO_COLOUR, xterm(s, s->from * (1 - i / 19.0) + s->to * (i / 19.0)));
            fputc(' ', p->to);
        }
        set_colours(p, NO_COLOUR, NO_COLOUR);
        fprintf(p->to, "%s%s%s %s", colour ? "" : "[", colour ? "" : ramp, colour ? "" : "]",
                pic_number(hi, s->to, 4, false));
        if (s->from != s->lo || s->to != s->hi)
            fprintf(p->to, " (values from %s to %s)", pic_number(lo, s->lo, 4, false), pic_number(hi, s->hi, 4, false));
    }
    for (int k = 0; k < 2; k++)
        if (k ? s->nan : s->masked) {
            fputs("  ", p->to);
            if (colour)
                set_colours(p, NO_COLOUR, xterm(s, k ? NAN : -INFINITY));
            fputs(colour ? "  " : k ? "?" : "/", p->to);
            set_colours(p, NO_COLOUR, NO_COLOUR);
            fputs(k ? " NaN" : " masked", p->to);
        }
    fputc('\n', p->to);
}

void pic_text(FILE *to, const pic_map *map, int width, bool colour)
{
    char err[256];
    if (pic_check(map, err)) {
        fprintf(to, "%s\n", err);
        return;
    }
    width = width < 24 ? 24 : width > 1000 ? 1000 : width;
    const pic_scale s[2] = {pic_scale_of(map, false), pic_scale_of(map, true)};
    pen p = {to, NO_COLOUR, NO_COLOUR};
    pic_axis row = {0}, col = {0};
    int64_t max_r = 1, max_c = 1;
    if (pic_has_text(map->title)) {
        print_text(to, map->title, width);
        fputc('\n', to);
    }
    for (int k = 0; k < map->n_panels; k++) {
        print_panel(&p, map, &map->panels[k], &s[pic_is_difference(map, k)], width, colour, &row, &col);
        max_r = row.per > max_r ? row.per : max_r;
        max_c = col.per > max_c ? col.per : max_c;
    }
    const bool labels = pic_has_text(map->row_label) && pic_has_text(map->col_label);
    if (labels) {
        print_text(to, map->row_label, width);
        fputs(" downward, ", to);
        print_text(to, map->col_label, width);
        fputs(" to the right", to);
    }
    if (max_r > 1 || max_c > 1)
        fprintf(to, "%seach cell: the mean of up to %lld x %lld values", labels ? "; " : "", (long long)max_r,
                (long long)max_c);
    if (labels || max_r > 1 || max_c > 1)
        fputc('\n', to);
    legend(&p, &s[0], pic_has_text(map->value_label) ? map->value_label : "value", width, colour);
    if (map->difference)
        legend(&p, &s[1], "difference", width, colour);
}
