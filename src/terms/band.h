/* terms/band.h -- a band of biases that depends on the query's content, as in Inkling: sum over c of r[b,h,i,c]
 * p[h,c,-delta] for the `extent` keys up to and including the query's position, 0 for all other keys. Vector e of the
 * product is for -delta = extent-1-e.
 * SPDX-License-Identifier: Apache-2.0 */

static const rp_param band_params[] = {
    {"width", RP_PARAM_INT, RPI_FIELD(width), .unset = "the width of r", .min = 1, .max = 1 << 30,
     .meaning = "number of channels of r"},
    {"extent", RP_PARAM_INT, RPI_FIELD(extent), .unset = "the extent of p", .min = 1, .max = 0x1p40,
     .meaning = "number of keys with a bias, up to and including the query"},
    {0},
};

static int64_t band_count(const rp_desc *d, const rp_term *t)
{
    (void)d;
    return t->extent;
}

static int64_t band_first(const rp_desc *d, const rp_term *t)
{
    (void)d;
    return 1 - t->extent;
}

static int64_t band_width(const rp_desc *d, const rp_term *t)
{
    (void)d;
    return t->width;
}

static double band_vec(const rpi_pair *p, int64_t e, int64_t c)
{
    return rpi_at(&p->array[1], p->h, c, p->term->extent - 1 - e, 0);
}

static void band_vec_grad(const rpi_pair *p, int64_t e, int64_t c, double g, const rpi_sums *to)
{
    rpi_add(to, 1, p->h, c, p->term->extent - 1 - e, 0, g);
}

static double band_query(const rpi_pair *p, int64_t c)
{
    return rpi_at(&p->array[0], p->b, p->h, p->i, c);
}

static void band_query_grad(const rpi_pair *p, int64_t c, double g, const rpi_sums *to)
{
    rpi_add(to, 0, p->b, p->h, p->i, c, g);
}

static int band_sizes(rp_term *t, const rp_array *a)
{
    take_size(&t->width, &a[1], 2, 1);
    take_size(&t->extent, &a[1], 1, 1);
    return (t->width == 0 || t->extent == 0) && a[1].data ? 1 : -1;
}

static void band_usual_sizes(rp_term *t, int64_t len_k)
{
    t->width = t->width ? t->width : 8;
    t->extent = t->extent ? t->extent : rpi_clamp(len_k, 1, 64);
}

RPI_SCHEME(BAND, .form = RPI_VEC, .bias = true, .unscaled = true,
           .facts = {.formula = "sum over c of r[b,h,i,c] p[h,c,-delta] for 0 <= -delta < extent, else 0",
                     .about = "a band conditioned on the query",
                     .samples = {"", "width=3,extent=5"},
                     .bench = {"width=16,extent=512"}},
           .array = {{"r", .shape = "[B, H, Lq, width]", .draw = {.rule = RP_RULE_FACTOR, .over = "width"},
                      .start = {.rule = RP_RULE_PROJECTED}},
                     {"p", .shape = "[H?, width, extent]", .draw = {.rule = RP_RULE_FACTOR, .over = "width"}}},
           .params = band_params, .sizes = band_sizes, .usual_sizes = band_usual_sizes,
           .product = {{.array = 1,
                        .shown = "r . p",
                        .zero_outside = true,
                        .count = band_count,
                        .first = band_first,
                        .width = band_width,
                        .vec = band_vec,
                        .vec_grad = band_vec_grad,
                        .query = band_query,
                        .query_grad = band_query_grad}})
