/* picture.c -- heat maps of a matrix as PNG and as SVG: layout and drawing.
 * SPDX-License-Identifier: Apache-2.0
 *
 * One layout and one draw() serve PNG and SVG, because a picture consists of filled rectangles and lines of text.
 *
 *     title
 *         panel title     panel title      value label
 *     r   +-----------+   +-----------+    +--+
 *     o   |           |   |           |    |  | -0      the colour bar: one scale for all panels (a difference
 *     w   |           |   |           |    |  | -1      has a second bar, to the right of this one)
 *     s   +-----------+   +-----------+    +--+
 *          0   5   10      0   5   10      [] masked
 *              columns         columns
 *     note */
#include "cli/picture/canvas.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MARGIN = 18, NAME_LINE = 15 }; /* in pixels; NAME_LINE: min distance between two names */

/* ---- ticks */

/* Return the centre of value i, in pixels from the edge of the panel. */
static int centre(const pic_axis *a, int64_t i)
{
    return (int)(i / a->per * a->px + (2 * (i % a->per) + 1) * a->px / (2 * a->per));
}

/* Return the width of the widest label in pixels. */
static int widest(const pic_axis *a)
{
    char label[LABEL];
    int w = 0;
    for (int64_t i = a->start; i < a->n; i += a->step) {
        const int wi = pic_text_width(pic_tick(label, a, i), SMALL);
        w = wi > w ? wi : w;
    }
    return w;
}

static void plan_rows(pic_axis *a)
{
    pic_space_ticks(a, a->names ? NAME_LINE : 26);
    a->depth = widest(a) + 9;
}

static void plan_cols(pic_axis *a)
{
    if (a->names) {
        a->step = 1;
        a->start = 0;
        a->rotated = a->per > 1 || a->px < 12 || widest(a) + 4 > a->px;
        pic_space_ticks(a, a->rotated ? NAME_LINE : 1);
    } else {
        char label[LABEL];
        const int first = pic_text_width(pic_tick(label, a, 0), SMALL),
                  last = pic_text_width(pic_tick(label, a, a->n - 1), SMALL);
        pic_space_ticks(a, 12 + (first > last ? first : last));
    }
    a->depth = a->rotated ? widest(a) + 12 : 20;
}

/* ---- layout and drawing ------------------------------------------------------------------------------------------ */

typedef struct layout {
    pic_axis row, col;          /* axes of the panel with the most values */
    int across, down;           /* panels per line; number of lines */
    int slot_w, slot_h;         /* size of the largest panel, in pixels */
    int x0, y0, dx, dy;         /* top left corner of the first panel; distance from one panel to the next */
    int bar_x[2], bar_w, bar_h; /* positions of the shared colour bar and of the bar of a difference */
    int w, h;                   /* size of the picture */
    bool each_row;              /* panels have different heights, so label the rows of every panel */
} layout;

enum { BAR_W = 16, ROW_LABEL_W = 20 };

/* Arrange the panels in lines, and choose the size of their cells. */
static void arrange_panels(layout *l, const pic_map *map, int max_cells)
{
    /* For 1 to 4 panels in a line: desired side of a panel in pixels, and max number of cells per side. With more
     * values than that, each cell shows an average. */
    static const int side[] = {540, 500, 370, 290}, max_by_panels[] = {1200, 720, 540, 420};
    l->across = map->n_panels;
    l->down = 1;
    if (map->n_panels > 4) {
        l->down = (int)pic_groups(map->n_panels, 4);
        l->across = (int)pic_groups(map->n_panels, l->down);
    }
    const int limit = max_by_panels[l->across - 1] < max_cells ? max_by_panels[l->across - 1] : max_cells;
    for (int k = 0; k < map->n_panels; k++) {
        const pic_panel *p = &map->panels[k];
        l->row.n = p->rows > l->row.n ? p->rows : l->row.n;
        l->col.n = p->cols > l->col.n ? p->cols : l->col.n;
        l->each_row |= p->rows != map->panels[0].rows;
    }
    pic_axis *const axes[2] = {&l->row, &l->col};
    int64_t cells[2];
    for (int k = 0; k < 2; k++) {
        pic_axis *a = axes[k];
        a->names = k ? map->col_names : map->row_names;
        a->first = k ? map->col0 : map->row0;
        a->per = pic_groups(a->n, limit);
        cells[k] = pic_groups(a->n, a->per);
        a->px = (int)((side[l->across - 1] + cells[k] / 2) / cells[k]);
        a->px = a->px < 1 ? 1 : a->px > 48 ? 48 : a->px;
        if (a->names && cells[k] <= 40 && a->px < NAME_LINE)
            a->px = NAME_LINE; /* widen the picture to show every name */
    }
    /* use square cells, unless the panel would become very elongated */
    if (cells[0] <= 3 * cells[1] && cells[1] <= 3 * cells[0])
        l->row.px = l->col.px = l->row.px < l->col.px ? l->row.px : l->col.px;
    l->slot_h = (int)cells[0] * l->row.px;
    l->slot_w = (int)cells[1] * l->col.px;
}

static layout lay_out(const pic_map *map, const pic_scale s[2], int max_cells)
{
    layout l = {0};
    arrange_panels(&l, map, max_cells);
    plan_rows(&l.row);
    plan_cols(&l.col);
    bool panel_titles = false;
    for (int k = 0; k < map->n_panels; k++)
        panel_titles |= pic_has_text(map->panels[k].title);

    const int left = l.row.depth + (pic_has_text(map->row_label) ? ROW_LABEL_W : 0);
    const int head = panel_titles || pic_has_text(map->value_label) ? 24 : 4;
    const int foot = l.col.depth + (pic_has_text(map->col_label) ? 20 : 0);
    l.x0 = MARGIN + left;
    l.y0 = MARGIN + (pic_has_text(map->title) ? 32 : 0) + head;
    l.dx = l.slot_w + (l.each_row ? left + MARGIN : 26);
    l.dy = l.slot_h + foot + head + 6;
    const int right = l.x0 + (l.across - 1) * l.dx + l.slot_w, bottom = l.y0 + (l.down - 1) * l.dy + l.slot_h;
    l.bar_h = bottom - l.y0 < 110 ? 110 : bottom - l.y0 > 540 ? 540 : bottom - l.y0;
    l.bar_w = BAR_W + 70;
    if (pic_has_text(map->value_label)) {
        const int w = pic_text_width(map->value_label, SMALL);
        l.bar_w = w > l.bar_w ? w < 180 ? w : 180 : l.bar_w;
    }
    const bool two = map->difference; /* the shared bar is to the left of the last panel, which moves to the right */
    l.bar_x[0] = right + 26 - (two ? l.dx : 0);
    l.bar_x[1] = right + l.bar_w + 26;
    l.w = l.bar_x[two] + l.bar_w + MARGIN;
    if (pic_has_text(map->title)) { /* widen a small picture for a long title, up to 900 pixels */
        const int w = pic_text_width(map->title, LARGE) + 2 * MARGIN;
        l.w = w > l.w ? w < 900 ? w : l.w > 900 ? l.w : 900 : l.w;
    }
    int under_bar = 0;
    for (int k = 0; k <= two; k++) {
        const int y = l.y0 + (s[k].finite ? l.bar_h + 12 : 0) + 20 * (s[k].masked + s[k].nan);
        under_bar = y > under_bar ? y : under_bar;
    }
    l.h = (bottom + foot > under_bar ? bottom + foot : under_bar) +
          (l.row.per > 1 || l.col.per > 1 || s[0].capped || s[1].capped ? 20 : 0) + MARGIN;
    return l;
}

/* Return a text colour that is readable on a background, based on its luma (Rec. 601). */
static unsigned ink_on(unsigned rgb)
{
    return 299 * (rgb >> 16) + 587 * (rgb >> 8 & 255) + 114 * (rgb & 255) > 140000 ? 0x111111 : WHITE;
}

static void draw_cells(pic_canvas *c, const pic_panel *p, const layout *l, const pic_scale *s, int x, int y)
{
    const int64_t fr = l->row.per, fc = l->col.per;
    const int rows = (int)pic_groups(p->rows, fr), cols = (int)pic_groups(p->cols, fc), cw = l->col.px, ch = l->row.px;
    pic_rect(c, x - 1, y - 1, cols * cw + 2, rows * ch + 2, LINE);
    for (int i = 0; i < rows; i++) {
        unsigned now = pic_colour_of(s, pic_cell(p, i, 0, fr, fc));
        for (int j = 0, begin = 0; j < cols; j++) { /* draw adjacent cells of one colour as one rectangle */
            const unsigned then = j + 1 < cols ? pic_colour_of(s, pic_cell(p, i, j + 1, fr, fc)) : ~now;
            if (then != now) {
                pic_rect(c, x + begin * cw, y + i * ch, (j + 1 - begin) * cw, ch, now);
                begin = j + 1;
                now = then;
            }
        }
    }
    if (cw < 20 || ch < 20)
        return;
    for (int i = 1; i < rows; i++)
        pic_rect(c, x, y + i * ch - 1, cols * cw, 1, WHITE);
    for (int j = 1; j < cols; j++)
        pic_rect(c, x + j * cw - 1, y, 1, rows * ch, WHITE);
    for (int i = 0; cw >= 36 && i < rows; i++)
        for (int j = 0; j < cols; j++) {
            const double v = pic_cell(p, i, j, fr, fc);
            char value[48];
            pic_number(value, v, fabs(v) < 100 ? 2 : 3, fabs(v) < 100);
            if (v != -INFINITY && pic_text_width(value, SMALL) <= cw - 4)
                pic_write(c, x + j * cw + cw / 2, y + i * ch + ch / 2 + 5, SMALL, MIDDLE, false,
                          ink_on(pic_colour_of(s, v)), value);
        }
}

static void draw_panel(pic_canvas *c, const pic_map *map, const layout *l, const pic_scale s[2], int k)
{
    const pic_panel *p = &map->panels[k];
    const int x = l->x0 + k % l->across * l->dx + (pic_is_difference(map, k) ? l->bar_w : 0),
              y = l->y0 + k / l->across * l->dy;
    const int w = (int)pic_groups(p->cols, l->col.per) * l->col.px,
              h = (int)pic_groups(p->rows, l->row.per) * l->row.px;
    char label[LABEL];
    draw_cells(c, p, l, &s[pic_is_difference(map, k)], x, y);
    if (pic_has_text(p->title))
        pic_write(c, x, y - 10, SMALL, START, false, INK, pic_fit(label, p->title, SMALL, l->dx - 12));
    for (int64_t j = l->col.start; j < p->cols; j += l->col.step) {
        const int at = x + centre(&l->col, j);
        pic_rect(c, at, y + h + 1, 1, 4, LINE);
        if (l->col.rotated)
            pic_write(c, at + 5, y + h + 8, SMALL, END, true, INK, pic_tick(label, &l->col, j));
        else
            pic_write(c, at, y + h + 17, SMALL, MIDDLE, false, INK, pic_tick(label, &l->col, j));
    }
    if (pic_has_text(map->col_label))
        pic_write(c, x + w / 2, y + h + l->col.depth + 15, SMALL, MIDDLE, false, SOFT,
                  pic_fit(label, map->col_label, SMALL, l->dx));
    if (k % l->across && !l->each_row)
        return;
    for (int64_t i = l->row.start; i < p->rows; i += l->row.step) {
        const int at = y + centre(&l->row, i);
        pic_rect(c, x - 5, at, 4, 1, LINE);
        pic_write(c, x - 8, at + 5, SMALL, END, false, INK, pic_tick(label, &l->row, i));
    }
    if (pic_has_text(map->row_label))
        pic_write(c, x - l->row.depth - 10, y + h / 2, SMALL, MIDDLE, true, SOFT,
                  pic_fit(label, map->row_label, SMALL, l->dy - 8));
}

static void draw_bar(pic_canvas *c, const layout *l, const pic_scale *s, int x, const char *name)
{
    char label[LABEL], value[48];
    const int fine = c->rgb ? 1 : 3; /* pixels per colour step; smaller steps make SVG files larger */
    int y = l->y0;
    if (s->finite) {
        if (pic_has_text(name))
            pic_write(c, x, y - 10, SMALL, START, false, INK, pic_fit(label, name, SMALL, l->bar_w));
        pic_rect(c, x - 1, y - 1, BAR_W + 2, l->bar_h + 2, LINE);
        for (int i = 0; i < l->bar_h; i += fine) {
            const double t = l->bar_h > fine ? fmin(1, (double)i / (l->bar_h - fine)) : 0;
            const int high = l->bar_h - i < fine ? l->bar_h - i : fine;
            pic_rect(c, x, y + i, BAR_W, high, pic_colour_of(s, s->to * (1 - t) + s->from * t));
        }
        /* Place ticks at multiples of 1, 2 or 5 times a power of ten. Draw none if this step underflows. */
        const double rough = s->to / 5 - s->from / 5, power = pow(10, floor(log10(rough)));
        const double step = power * (rough / power > 5 ? 10 : rough / power > 2 ? 5 : rough / power > 1 ? 2 : 1);
        const double places = log10(s->max) - log10(step);
        const int digits = places > 4 ? places < 14 ? (int)places + 2 : 16 : 6;
        for (int k = 0; step > 0 && k < 12; k++) {
            const double v = (ceil(s->from / step - 1e-9) + k) * step;
            if (!(v <= s->to + step * 1e-9) || !isfinite(v))
                break;
            const int at = y + (int)((l->bar_h - 1) * (1 - pic_position(s, v)) + 0.5);
            pic_rect(c, x + BAR_W + 1, at, 4, 1, LINE);
            pic_write(c, x + BAR_W + 9, at + 5, SMALL, START, false, INK, pic_number(value, v, digits, false));
        }
        y += l->bar_h + 12;
    }
    for (int k = 0; k < 2; k++)
        if (k ? s->nan : s->masked) {
            pic_rect(c, x - 1, y - 1, BAR_W + 2, 16, LINE);
            pic_rect(c, x, y, BAR_W, 14, k ? NOT_A_NUMBER : MASKED);
            pic_write(c, x + BAR_W + 9, y + 12, SMALL, START, false, INK, k ? "NaN" : "masked");
            y += 20;
        }
}

static void draw(pic_canvas *c, const pic_map *map, const layout *l, const pic_scale s[2])
{
    char label[LABEL];
    pic_rect(c, 0, 0, l->w, l->h, WHITE);
    if (pic_has_text(map->title))
        pic_write(c, MARGIN, MARGIN + 13, LARGE, START, false, INK,
                  pic_fit(label, map->title, LARGE, l->w - 2 * MARGIN));
    for (int k = 0; k < map->n_panels; k++)
        draw_panel(c, map, l, s, k);
    draw_bar(c, l, &s[0], l->bar_x[0], map->value_label);
    if (map->difference)
        draw_bar(c, l, &s[1], l->bar_x[1], "difference");
    char note[LABEL] = "", lo[NUMBER], hi[NUMBER];
    if (l->row.per > 1 || l->col.per > 1)
        snprintf(note, sizeof note, "each cell: the mean of %lld x %lld values", (long long)l->row.per,
                 (long long)l->col.per);
    for (int k = 0; k < 2; k++)
        if (s[k].capped) {
            const size_t used = strlen(note);
            const char *name = k ? "difference" : pic_has_text(map->value_label) ? map->value_label : "value";
            snprintf(note + used, sizeof note - used, "%s%s%s goes from %s to %s", used ? "; " : "",
                     k && s[0].capped ? "" : "beyond the colours, ", pic_fit(label, name, SMALL, 180),
                     pic_number(lo, s[k].lo, 3, false), pic_number(hi, s[k].hi, 3, false));
        }
    if (*note)
        pic_write(c, MARGIN, l->h - MARGIN, SMALL, START, false, SOFT, pic_fit(label, note, SMALL, l->w - 2 * MARGIN));
}

/* ---- files in memory */

int pic_png(const pic_map *map, unsigned char **data, size_t *size, char err[256])
{
    if (pic_check(map, err))
        return -1;
    const pic_scale s[2] = {pic_scale_of(map, false), pic_scale_of(map, true)};
    const layout l = lay_out(map, s, INT16_MAX);
    pic_canvas c = {.w = l.w, .h = l.h};
    c.rgb = (size_t)l.w > SIZE_MAX / 3 / (size_t)l.h ? NULL : malloc(3 * (size_t)l.w * (size_t)l.h);
    if (!c.rgb)
        return pic_fail(err, "PNG: out of memory");
    draw(&c, map, &l, s);
    pic_bytes out = {0};
    const int rc = pic_encode(&c, &out, err);
    free(c.rgb);
    if (rc) {
        free(out.at);
        return -1;
    }
    *data = out.at;
    *size = out.size;
    return 0;
}

int pic_svg(const pic_map *map, unsigned char **data, size_t *size, char err[256])
{
    if (pic_check(map, err))
        return -1;
    const pic_scale s[2] = {pic_scale_of(map, false), pic_scale_of(map, true)};
    const layout l = lay_out(map, s, 200);
    pic_canvas c = {.w = l.w, .h = l.h};
    pic_bytes *b = &c.svg;
    char lo[48], hi[48];
    pic_putf(
        b,
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" "
        "height=\"%d\" viewBox=\"0 0 %d %d\" role=\"img\" font-family=\"sans-serif\" shape-rendering=\"crispEdges\">\n"
        "<title>",
        l.w, l.h, l.w, l.h);
    pic_put_xml(b, pic_has_text(map->title) ? map->title : "heat map");
    pic_putf(b, "</title>\n<desc>");
    pic_put_xml(b, pic_has_text(map->value_label) ? map->value_label : "values");
    pic_putf(b, " from %s to %s, rows: ", pic_number(lo, s[0].lo, 6, false), pic_number(hi, s[0].hi, 6, false));
    pic_put_xml(b, pic_has_text(map->row_label) ? map->row_label : "row");
    pic_putf(b, ", columns: ");
    pic_put_xml(b, pic_has_text(map->col_label) ? map->col_label : "column");
    pic_putf(b, ", panels: %d</desc>\n", map->n_panels);
    draw(&c, map, &l, s);
    pic_putf(b, "</svg>\n");
    if (b->failed) {
        free(b->at);
        return pic_fail(err, "SVG: out of memory");
    }
    *data = b->at;
    *size = b->size;
    return 0;
}
