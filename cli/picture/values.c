/* values.c -- functions for pictures of every kind: numbers, the colour of a value, the labels of an axis.
 * SPDX-License-Identifier: Apache-2.0 */
#include "cli/picture/canvas.h"

#include <float.h>
#include <math.h>
#include <string.h>

enum { MAX_PANELS = 64 };

/* Colours evenly spaced in OKLab (Ottosson 2020), computed for relpos. Sequential: lightness rises from 0.26 to 0.94
 * and the hue changes from violet through blue and green to yellow. Diverging: two arms of equal lightness that meet
 * in white. */
static const unsigned sequential[] = {0x2c144a, 0x2e235f, 0x2b3273, 0x204385, 0x015592, 0x086791, 0x0b7895, 0x01899a,
                                      0x059a9d, 0x09ab9e, 0x0dbd99, 0x4acc8f, 0x7cd886, 0xa7e27e, 0xcfea7b, 0xf4f27d};
static const unsigned diverging[] = {0x024394, 0x2861b3, 0x487ac4, 0x6592d3, 0x82a8e0, 0x9fbdeb,
                                     0xbbd2f4, 0xd9e6fa, 0xffffff, 0xfcdeda, 0xf7c4bd, 0xeea9a1,
                                     0xe38f85, 0xd5746a, 0xc5574e, 0xb23630, 0x94030e};

/* ---- numbers */

const char *pic_number(char out[48], double v, int digits, bool fixed)
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
    const size_t n = strcspn(point, "+-0123456789e"); /* the decimal point of the locale, in bytes */
    if (n) {
        *point = '.';
        memmove(point + 1, point + n, strlen(point + n) + 1);
    }
    if (*out == '-' && strspn(out + 1, "0.") == strlen(out + 1))
        memmove(out, out + 1, strlen(out));
    return out;
}

int pic_check(const pic_map *map, char err[256])
{
    if (!map->panels || map->n_panels < 1 || map->n_panels > MAX_PANELS) {
        snprintf(err, 256, "a picture of %d panels: 1 to %d are possible", map->n_panels, MAX_PANELS);
        return -1;
    }
    for (int k = 0; k < map->n_panels; k++) {
        const pic_panel *p = &map->panels[k];
        if (p->rows < 1 || p->cols < 1 || !p->value || p->rows > INT64_MAX / 16 / p->cols) {
            snprintf(err, 256,
                     "panel %d of the picture has %lld x %lld values: 1 x 1 or more are possible, as memory allows", k,
                     (long long)p->rows, (long long)p->cols);
            return -1;
        }
    }
    if (map->difference && (map->n_panels < 2 || map->n_panels > 4))
        return pic_fail(err, "only the last of 2 to 4 panels can be a difference");
    return 0;
}

/* ---- values and colours ------------------------------------------------------------------------------------------ */

pic_scale pic_scale_of(const pic_map *map, bool difference)
{
    pic_scale s = {.lo = DBL_MAX, .hi = -DBL_MAX, .diverging = difference || map->diverging};
    for (int k = 0; k < map->n_panels; k++) {
        const pic_panel *p = &map->panels[k];
        for (int64_t i = 0; pic_is_difference(map, k) == difference && i < p->rows * p->cols; i++) {
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
    const double cap = difference ? map->difference_cap : map->cap, lo = cap > 0 ? fmax(s.lo, -cap) : s.lo,
                 hi = cap > 0 ? fmin(s.hi, cap) : s.hi;
    s.capped = lo > s.lo || hi < s.hi;
    s.from = s.diverging && lo > 0 ? 0 : lo;
    s.to = s.diverging && hi < 0 ? 0 : hi;
    if (!(s.to > s.from)) { /* all values are equal, so use a range around them */
        const double pad = s.lo != 0 ? fabs(s.lo) / 2 : 0.5;
        s.from = fmax(s.from - pad, -DBL_MAX);
        s.to = fmin(s.to + pad, DBL_MAX);
    }
    s.max = fmax(fabs(s.from), fabs(s.to));
    return s;
}

double pic_position(const pic_scale *s, double v) /* computed with halves, because to - from may overflow */
{
    const double span = s->to / 2 - s->from / 2;
    return span > 0 ? pic_clamp((v / 2 - s->from / 2) / span) : 0.5;
}

double pic_shade(const pic_scale *s, double v)
{
    return !s->diverging ? pic_position(s, v) : s->max > 0 ? pic_clamp(0.5 + v / s->max / 2) : 0.5;
}

unsigned pic_colour_of(const pic_scale *s, double v)
{
    if (isnan(v))
        return NOT_A_NUMBER;
    if (v == -INFINITY)
        return MASKED;
    const unsigned *table = s->diverging ? diverging : sequential;
    const size_t size = s->diverging ? sizeof diverging : sizeof sequential;
    const int last = (int)(size / sizeof *table) - 1;
    const double x = last * pic_shade(s, v);
    const int i = x < last ? (int)x : last - 1;
    unsigned rgb = 0;
    for (int shift = 0; shift < 24; shift += 8) {
        const double a = table[i] >> shift & 255, b = table[i + 1] >> shift & 255;
        rgb |= (unsigned)(a + (b - a) * (x - i) + 0.5) << shift;
    }
    return rgb;
}

double pic_cell(const pic_panel *p, int64_t i, int64_t j, int64_t fr, int64_t fc)
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
                mean += v / n - mean / n; /* running mean, because a sum could overflow */
            } else if (v > 0) {
                top = v;
            }
        }
    return n > 0 && top < 0 ? mean : top;
}

/* ---- labels of an axis */

const char *pic_tick(char out[LABEL], const pic_axis *a, int64_t i)
{
    if (a->names && a->names[i])
        return pic_fit(out, a->names[i], SMALL, NAME_PX);
    snprintf(out, LABEL, "%lld", (long long)(int64_t)((uint64_t)a->first + (uint64_t)i));
    return out;
}

void pic_space_ticks(pic_axis *a, int min_px)
{
    const int64_t min = pic_groups(min_px * a->per, a->px);
    for (a->step = 1; a->step < min;) {
        int64_t lead = a->step;
        while (lead >= 10)
            lead /= 10;
        a->step = lead == 2 ? a->step / 2 * 5 : a->step * 2;
    }
    const int64_t past = a->names ? 0 : (a->first % a->step + a->step) % a->step;
    a->start = past ? a->step - past : 0;
}
