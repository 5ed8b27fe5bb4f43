/* test_picture.c -- pictures can be decoded, have the right colours in the right places, and survive hostile input.
 * SPDX-License-Identifier: Apache-2.0 */
#include <locale.h>
#include <math.h>
#include <png.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "cli/picture/picture.h"

enum { MAGENTA = 0xff00ff, GREY = 0xd4d4d4, WHITE = 0xffffff };

typedef struct picture {
    int w, h;
    unsigned char *rgb;
} picture;

static picture decoded(const pic_map *map) /* Return the PNG of a map, decoded by libpng. */
{
    unsigned char *data = NULL;
    size_t size = 0;
    char err[256] = "";
    if (pic_png(map, &data, &size, err))
        fail_msg("pic_png: %s", err);
    assert_true(size > 8 && !png_sig_cmp(data, 0, 8));
    png_image image = {.version = PNG_IMAGE_VERSION};
    assert_true(png_image_begin_read_from_memory(&image, data, size));
    image.format = PNG_FORMAT_RGB;
    picture p = {(int)image.width, (int)image.height, malloc(PNG_IMAGE_SIZE(image))};
    assert_non_null(p.rgb);
    assert_true(png_image_finish_read(&image, NULL, p.rgb, 0, NULL));
    assert_int_equal((data[16] << 24) + (data[17] << 16) + (data[18] << 8) + data[19], p.w); /* the size in IHDR */
    assert_int_equal((data[20] << 24) + (data[21] << 16) + (data[22] << 8) + data[23], p.h);
    free(data);
    return p;
}

static unsigned at(const picture *p, int x, int y)
{
    assert_true(x >= 0 && y >= 0 && x < p->w && y < p->h);
    const unsigned char *c = p->rgb + 3 * ((size_t)y * (size_t)p->w + (size_t)x);
    return (unsigned)c[0] << 16 | (unsigned)c[1] << 8 | c[2];
}

/* Find the first square of this colour, `side` pixels wide, in reading order. For grey, one pixel would not be enough:
 * the edges of letters contain every shade of grey. */
static void first_of(const picture *p, unsigned colour, int side, int *x, int *y)
{
    for (*y = 0; *y + side <= p->h; ++*y)
        for (*x = 0; *x + side <= p->w; ++*x) {
            int same = 0;
            while (same < side * side && at(p, *x + same % side, *y + same / side) == colour)
                same++;
            if (same == side * side)
                return;
        }
    fail_msg("no square of #%06x in the picture", colour);
}

static char *svg_of(const pic_map *map) /* Return the SVG of a map as a string. */
{
    unsigned char *data = NULL;
    size_t size = 0;
    char err[256] = "";
    if (pic_svg(map, &data, &size, err))
        fail_msg("pic_svg: %s", err);
    char *s = malloc(size + 1);
    assert_non_null(s);
    memcpy(s, data, size);
    s[size] = 0;
    assert_int_equal(strlen(s), size);
    free(data);
    return s;
}

static char *text_of(const pic_map *map, int width, bool colour)
{
    char *s = NULL;
    size_t size = 0;
    FILE *to = open_memstream(&s, &size);
    assert_non_null(to);
    pic_text(to, map, width, colour);
    assert_int_equal(fclose(to), 0);
    return s;
}

static int count(const char *s, const char *what)
{
    int n = 0;
    while ((s = strstr(s, what)) != NULL) {
        s += strlen(what);
        n++;
    }
    return n;
}

/* Check that the SVG is well-formed, for the constructs that this writer uses: tags are nested, attributes are quoted,
 * every "&" starts a known entity, and all bytes are XML characters. */
static void check_xml(const char *s)
{
    int depth = 0;
    const char *p = strstr(s, "?>");
    assert_non_null(p);
    for (p += 2; *p; p++) {
        assert_true((unsigned char)*p >= 0x20 || *p == '\n');
        if (*p == '&')
            assert_true(!strncmp(p, "&lt;", 4) || !strncmp(p, "&gt;", 4) || !strncmp(p, "&amp;", 5) ||
                        !strncmp(p, "&quot;", 6));
        assert_int_not_equal(*p, '>');
        if (*p != '<')
            continue;
        const bool closes = p[1] == '/';
        int quotes = 0;
        for (p++; *p != '>'; p++) {
            assert_true(*p && *p != '<' && *p != '&');
            quotes += *p == '"';
        }
        assert_int_equal(quotes % 2, 0);
        depth += closes ? -1 : p[-1] == '/' ? 0 : 1;
        assert_true(depth >= 0);
    }
    assert_int_equal(depth, 0);
}

static pic_map map_of(const pic_panel *panels, int n)
{
    return (pic_map){
        .panels = panels, .n_panels = n, .title = "T", .row_label = "query", .col_label = "key", .value_label = "bias"};
}

/* Cells of a 6 x 6 map are 48 pixels wide. One NaN at (1, 2) and one masked cell at (4, 5) show where the panel is. */
static void cells_are_in_their_place(void **state)
{
    (void)state;
    double v[36];
    for (int i = 0; i < 36; i++)
        v[i] = i % 6 < 3 ? 1 : -1;
    v[1 * 6 + 2] = NAN;
    v[4 * 6 + 5] = -INFINITY;
    const pic_panel panel = {v, 6, 6, NULL};
    pic_map map = map_of(&panel, 1);
    map.diverging = true;
    const picture p = decoded(&map);
    int x, y, mx, my;
    first_of(&p, MAGENTA, 1, &x, &y);
    first_of(&p, GREY, 8, &mx, &my);
    assert_int_equal(mx - x, 3 * 48);
    assert_int_equal(my - y, 3 * 48);
    const int x0 = x - 2 * 48, y0 = y - 48;
    const unsigned high = at(&p, x0 + 3, y0 + 3), low = at(&p, x0 + 3 * 48 + 3, y0 + 3);
    assert_int_equal(high, 0x94030e); /* the red end and the blue end of the colours */
    assert_int_equal(low, 0x024394);
    for (int i = 0; i < 6; i++)
        for (int j = 0; j < 6; j++) {
            const double w = v[i * 6 + j];
            const unsigned expected = isnan(w) ? MAGENTA : isinf(w) ? GREY : w > 0 ? high : low;
            assert_int_equal(at(&p, x0 + j * 48 + 3, y0 + i * 48 + 3), expected);
        }
    assert_int_equal(at(&p, 0, 0), WHITE);
    assert_int_equal(at(&p, p.w - 1, p.h - 1), WHITE);
    free(p.rgb);
}

static void zero_is_white(void **state)
{
    (void)state;
    double v[64 * 64];
    for (int i = 0; i < 64 * 64; i++)
        v[i] = i == 0 ? NAN : i / 64 == i % 64 ? 0 : -abs(i / 64 - i % 64);
    const pic_panel panel = {v, 64, 64, "head 0"};
    pic_map map = map_of(&panel, 1);
    map.diverging = true;
    const picture p = decoded(&map);
    int x, y;
    first_of(&p, MAGENTA, 1, &x, &y);
    for (int i = 1; i < 64; i++)
        assert_int_equal(at(&p, x + 8 * i + 4, y + 8 * i + 4), WHITE); /* cells of a 64 x 64 map are 8 pixels wide */
    assert_int_equal(at(&p, x + 8 * 63 + 4, y + 4), 0x024394);
    assert_int_equal(at(&p, x + 4, y + 8 * 63 + 4), 0x024394);
    assert_true(p.w >= 500 && p.w <= 1400);
    free(p.rgb);
}

static void large_maps_average_their_cells(void **state) /* a checkerboard of 0 and 2 has the average 1 everywhere */
{
    (void)state;
    const int n = 2400;
    double *v = malloc(sizeof *v * (size_t)n * (size_t)n);
    assert_non_null(v);
    for (int i = 0; i < n * n; i++)
        v[i] = (i / n + i % n) % 2 * 2;
    for (int i = 0; i < 4; i++)
        v[i / 2 * n + i % 2] = NAN;
    const pic_panel big = {v, n, n, NULL};
    const pic_map map = map_of(&big, 1);
    const picture p = decoded(&map);
    int x, y;
    first_of(&p, MAGENTA, 1, &x, &y);
    assert_int_equal(at(&p, x + 1, y), at(&p, x + 600, y + 600));
    assert_int_equal(at(&p, x + 1199, y + 1199), at(&p, x + 600, y + 600));
    free(p.rgb);
    char *s = svg_of(&map);
    check_xml(s);
    assert_non_null(strstr(s, "the mean of 12 x 12 values"));
    assert_true(count(s, "<rect") < 1000); /* adjacent equal cells become one rectangle */
    free(s);
    s = text_of(&map, 80, true);
    assert_non_null(strstr(s, "the mean of up to"));
    free(s);
    free(v);
}

/* A small map is printed as numbers, with fewer decimals if the width requires it. */
static void decimals_fit_the_width(void **state)
{
    (void)state;
    double v[12 * 12];
    for (int i = 0; i < 144; i++)
        v[i] = -(double)(i + 1) / 1024;
    const pic_panel panel = {v, 12, 12, NULL};
    const pic_map map = map_of(&panel, 1);
    static const struct {
        int width;
        const char *shown;
    } cases[] = {{111, " 0  -0.0010  -0.0020 "}, {110, " 0 -0.0010 -0.0020 "}, {99, " 0 -0.0010 -0.0020 "},
                 {98, " 0 -0.001 -0.002 "},      {87, " 0 -0.001 -0.002 "},    {86, " 0  0.00  0.00 "},
                 {75, " 0  0.00  0.00 "}};
    for (size_t n = 0; n < sizeof cases / sizeof *cases; n++) {
        char *s = text_of(&map, cases[n].width, false);
        assert_non_null(strstr(s, cases[n].shown));
        free(s);
    }
    char *s = text_of(&map, 74, false); /* two decimals do not fit: a map */
    assert_null(strstr(s, "0.00 "));
    free(s);
}

/* Draw any content in every format: no crash, hang or malformed result. Most useful with sanitizers. */
static void draw_all(const pic_map *map)
{
    free(decoded(map).rgb);
    char *s = svg_of(map);
    check_xml(s);
    assert_int_equal(count(s, "<title>"), 1);
    assert_int_equal(count(s, "role=\"img\""), 1);
    free(s);
    static const int widths[] = {-5, 0, 24, 80, 5000};
    for (int k = 0; k < 10; k++) {
        s = text_of(map, widths[k / 2], k % 2);
        assert_true(*s && s[strlen(s) - 1] == '\n');
        if (k % 2 == 0)
            assert_null(strchr(s, '\x1b'));
        free(s);
    }
}

static void odd_values_are_drawn(void **state)
{
    (void)state;
    static const double odd[][4] = {{0, 0, 0, 0},
                                    {7, 7, 7, 7},
                                    {-3, -3, -3, -3},
                                    {0, 1, 2, 3},
                                    {NAN, NAN, NAN, NAN},
                                    {-INFINITY, -INFINITY, -INFINITY, -INFINITY},
                                    {INFINITY, INFINITY, INFINITY, INFINITY},
                                    {INFINITY, -INFINITY, NAN, 1},
                                    {1.7e308, -1.7e308, 0, 1},
                                    {1.7e308, 1.7e308, 1.7e308, 1.7e308},
                                    {5e-324, 5e-324, 5e-324, 5e-324},
                                    {5e-324, 0, 1e-323, -5e-324},
                                    {1, 1 + 2.3e-16, 1, 1},
                                    {1e-320, 2e-310, 0, 0},
                                    {-1e300, -1e300, -2e300, NAN},
                                    {123456789, 123456788, 123456790, 1e5}};
    static const int64_t shapes[][2] = {{1, 1}, {2, 2}, {1, 4}, {4, 1}, {1, 500}, {500, 1}, {90, 70}};
    static double v[500 * 90];
    for (size_t k = 0; k < sizeof odd / sizeof *odd; k++)
        for (size_t m = 0; m < sizeof shapes / sizeof *shapes; m++) {
            if (m > 1 && (k + m) % 3 != 0) /* draw all values in small maps, a third of them in larger ones */
                continue;
            const pic_panel panel = {v, shapes[m][0], shapes[m][1], NULL};
            for (int64_t i = 0; i < panel.rows * panel.cols; i++)
                v[i] = odd[k][i % 4];
            pic_map map = {.panels = &panel, .n_panels = 1, .row0 = INT64_MAX - 2, .col0 = INT64_MIN};
            draw_all(&map);
            map.diverging = true;
            draw_all(&map);
        }
}

static void panels_of_any_number_are_drawn(void **state) /* 1 to 64 panels of different shapes */
{
    (void)state;
    double v[30] = {0};
    pic_panel panels[64];
    for (int k = 0; k < 64; k++) {
        v[k % 30] = k;
        panels[k] = (pic_panel){v, 1 + k % 5, 1 + k % 6, k % 3 ? "panel" : NULL};
    }
    static const int numbers[] = {1, 2, 3, 4, 5, 7, 64};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        const pic_map map = map_of(panels, numbers[i]);
        draw_all(&map);
    }
}

static void hostile_names_are_escaped(void **state)
{
    (void)state;
    char endless[20001];
    memset(endless, 'W', 20000);
    endless[20000] = 0;
    const char *const names[] = {"</text><script>alert(1)</script>",
                                 "a\x1b[31m\x07\x01",
                                 "\"&'<>",
                                 endless,
                                 "\xff\xfe\xc0\x80",
                                 "\xed\xa0\x80\xf4\x90\x80\x80",
                                 "\xe2\x80\xae"
                                 "bidi",
                                 "",
                                 NULL,
                                 "\xe4\xb8\xad\xe6\x96\x87",
                                 "\xe2\x96\x81the",
                                 "cut\xe2"};
    enum { N = sizeof names / sizeof *names };
    double v[N * N];
    for (int i = 0; i < N * N; i++)
        v[i] = i;
    for (int k = 0; k < N; k++) {
        const pic_panel panel = {v, N, N, names[k]};
        const pic_map map = {.panels = &panel,
                             .n_panels = 1,
                             .title = names[k],
                             .row_label = names[k],
                             .col_label = names[k],
                             .value_label = names[k],
                             .row_names = names,
                             .col_names = names};
        draw_all(&map);
        char *s = svg_of(&map);
        assert_null(strstr(s, "<script"));
        assert_non_null(strstr(s, "\xe4\xb8\xad\xe6\x96\x87"));
        assert_non_null(strstr(s, "&quot;&amp;'&lt;&gt;"));
        free(s);
        s = text_of(&map, 80, false); /* no line is longer than the longest numbers require */
        for (const char *line = s; *line; line = strchr(line, '\n') + 1)
            assert_true(strcspn(line, "\n") < 400);
        free(s);
    }
}

/* The numbers in cells and at the colour bar are the same in every locale. */
static void numbers_are_shown_in_every_locale(void **state)
{
    (void)state;
    const char *const names[] = {"The", "cat"};
    const double v[4] = {1, 0, 0.25, 0.75};
    const pic_panel panel = {v, 2, 2, NULL};
    const pic_map map = {
        .panels = &panel, .n_panels = 1, .row_names = names, .col_names = names, .value_label = "weight"};
    static const char *const locales[] = {"C", "de_DE.UTF-8", "fr_FR.UTF-8", "fa_IR.UTF-8"};
    for (size_t k = 0; k < sizeof locales / sizeof *locales; k++) {
        if (!setlocale(LC_ALL, locales[k]))
            continue;
        char *s = text_of(&map, 80, false);
        assert_string_equal(s, "        The     cat\n"
                               "The  1.0000  0.0000\n"
                               "cat  0.2500  0.7500\n"
                               "weight 0 [ .:-=+*#%@] 1\n");
        free(s);
        s = svg_of(&map);
        assert_non_null(strstr(s, ">0.25</text>"));
        assert_non_null(strstr(s, ">0.8</text>")); /* a label of the colour bar */
        assert_null(strstr(s, "0,"));
        free(s);
    }
    setlocale(LC_ALL, "C");
}

static void text_maps_have_their_size(void **state)
{
    (void)state;
    double v[20 * 20];
    for (int i = 0; i < 400; i++)
        v[i] = i % 20 > i / 20 ? -INFINITY : i / 20 - i % 20;
    v[0] = NAN;
    const pic_panel panel = {v, 20, 20, "head 0"};
    const pic_map map = {.panels = &panel, .n_panels = 1, .row0 = 100, .value_label = "distance"};
    char *s = text_of(&map, 30, false); /* 26 columns are left, enough for one per cell */
    assert_non_null(strstr(s, "\n100 ?///////////////////\n101   //////////////////\n"));
    assert_non_null(strstr(s, "\n119 @@%%##**++==--::..  \n"));
    assert_non_null(strstr(s, "distance 0 [ .:-=+*#%@] 19  / masked  ? NaN\n"));
    free(s);
    s = text_of(&map, 30, true);
    assert_int_equal(count(s, "\xe2\x96\x80"), 20 * 10); /* two rows of cells per line */
    free(s);
}

static void impossible_pictures_are_refused(void **state)
{
    (void)state;
    const double v = 0;
    const pic_panel bad[] = {{&v, 0, 1, NULL},
                             {&v, 1, 0, NULL},
                             {&v, -1, 1, NULL},
                             {NULL, 1, 1, NULL},
                             {&v, INT64_MAX, INT64_MAX, NULL},
                             {&v, INT64_MIN, 1, NULL},
                             {&v, (int64_t)1 << 32, (int64_t)1 << 32, NULL}};
    for (size_t k = 0; k <= sizeof bad / sizeof *bad + 4; k++) {
        const pic_panel good = {&v, 1, 1, NULL}, goods[5] = {good, good, good, good, good};
        const size_t n = sizeof bad / sizeof *bad;
        pic_map map = k < n        ? map_of(&bad[k], 1)
                      : k == n     ? map_of(&good, 0)
                      : k == n + 1 ? map_of(NULL, 1)
                      : k == n + 2 ? map_of(&good, 65)
                                   : map_of(goods, k == n + 3 ? 1 : 5);
        map.difference = k > n + 2; /* a difference needs at least two panels, and is the last of at most four */
        unsigned char *data = NULL;
        size_t size = 0;
        char err[256] = "";
        assert_int_equal(pic_png(&map, &data, &size, err), -1);
        assert_true(*err && !data && !size);
        *err = 0;
        assert_int_equal(pic_svg(&map, &data, &size, err), -1);
        assert_true(*err && !data && !size);
        char *s = text_of(&map, 80, true);
        assert_int_equal(strncmp(s, err, strlen(err)), 0);
        assert_string_equal(s + strlen(err), "\n");
        free(s);
    }
}

/* Columns follow Unicode's East Asian Width. Letters take one; kana, Han, Hangul, full-width forms and emoji two; marks
 * and joiners none. */
static void test_columns(void **state)
{
    (void)state;
    assert_int_equal(pic_columns(""), 0);
    assert_int_equal(pic_columns("abc\u00e9\u0416\u20ac"), 6);
    assert_int_equal(pic_columns("e\u0301\u200d\ufe0f"), 1);
    assert_int_equal(pic_columns("\u1100\u3042\u4e2d\uac00\uf900\ufe30\uff21"), 14);
    assert_int_equal(pic_columns("\U0001f600\U00020000"), 4);
    assert_int_equal(pic_columns("\uff61\ua4d0\u2e7f"), 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cells_are_in_their_place),       cmocka_unit_test(zero_is_white),
        cmocka_unit_test(large_maps_average_their_cells), cmocka_unit_test(decimals_fit_the_width),
        cmocka_unit_test(odd_values_are_drawn),           cmocka_unit_test(panels_of_any_number_are_drawn),
        cmocka_unit_test(hostile_names_are_escaped),      cmocka_unit_test(numbers_are_shown_in_every_locale),
        cmocka_unit_test(text_maps_have_their_size),      cmocka_unit_test(test_columns),
        cmocka_unit_test(impossible_pictures_are_refused)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
