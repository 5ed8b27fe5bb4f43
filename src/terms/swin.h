/* terms/swin.h -- a window table: table[index(i,j), h], with offsets query minus key. Liu et al. 2021, section 3.2. A
 * class token is handled as in BEiT, Bao 2021: the last three entries are for class to token, token to class, and class
 * to class.
 * SPDX-License-Identifier: Apache-2.0 */

static int64_t swin_index(const rpi_pair *p)
{
    const rp_term *t = p->term;
    const int64_t i = p->i - t->extra, j = p->j - t->extra, window = (2 * t->grid_h - 1) * (2 * t->grid_w - 1);
    if (i < 0 || j < 0)
        return window + (i >= 0 ? 1 : j >= 0 ? 0 : 2);
    return grid_rows(t, i, j) * (2 * t->grid_w - 1) + grid_columns(t, i, j);
}

static double swin_entry(const rpi_pair *p, int64_t e)
{
    return rpi_at(&p->array[0], e, p->h, 0, 0);
}

static void swin_entry_grad(const rpi_pair *p, int64_t e, double g, const rpi_sums *to)
{
    rpi_add(to, 0, e, p->h, 0, 0, g);
}

/* Print how the entry depends on the row and column differences. For a class token, print only its number. */
static int swin_example(const rpi_pair *p, char *to, size_t size)
{
    const rp_term *t = p->term;
    const int64_t i = p->i - t->extra, j = p->j - t->extra, across = 2 * t->grid_w - 1;
    if (i < 0 || j < 0)
        return snprintf(to, size, "table[%lld, %lld]", (long long)swin_index(p), (long long)p->h);
    return snprintf(to, size, "table[(%lld + %lld) * %lld + (%lld + %lld), %lld]",
                    (long long)(i / t->grid_w - j / t->grid_w), (long long)t->grid_h - 1, (long long)across,
                    (long long)(i % t->grid_w - j % t->grid_w), (long long)t->grid_w - 1, (long long)p->h);
}

RPI_SCHEME(SWIN, .form = RPI_INDEX,
           .facts = {.formula = "table[index(i,j), h], index as in Swin; with extra = 1 as in BEiT, where token 0 is "
                                "the class token",
                     .about = "the window table of Swin",
                     .samples = {"grid=5x7", "grid=9x8,extra=1"},
                     .bench = {"grid=32x64"}},
           .array = {{"table", .shape = "[(2*grid_h-1)*(2*grid_w-1)+3*extra, H]", .shows = "entry"}},
           .params = grid_params, .check = grid_check, .grid = true, .class_token = true,
           .check_arrays = grid_check_arrays, .entries = grid_entries, .index = swin_index, .example = swin_example,
           .entry = swin_entry, .entry_grad = swin_entry_grad)
