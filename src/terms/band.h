/* terms/band.h -- a band conditioned on content, as in Inkling: sum over c of r[b,h,i,c] p[h,c,i-j] for the `extent`
 * keys up to the query, 0 elsewhere. i - j counts with q_offset; vector e of the seam belongs to i - j = extent-1-e. */

static const rpi_param band_params[] = {
    {"width", RPI_INT, offsetof(rp_term, width), false, NULL},
    {"extent", RPI_INT, offsetof(rp_term, extent), false, NULL},
    {0},
};

static rp_status band_check(const rp_desc *d, rp_term *t, int32_t n)
{
    (void)d;
    rp_status status = check_size(n, "width", t->width, (int64_t)1 << 30, "the width of r");
    return status != RP_OK ? status : check_size(n, "extent", t->extent, (int64_t)1 << 40, "the last axis of p");
}

static void band_shape(const rp_desc *d, const rp_term *t, int32_t index, rpi_shape *s)
{
    if (index == 0)
        *s = (rpi_shape){.ndim = 4, .min_ndim = 4, .ones = 1u << 1, .n = {d->batch, d->heads, d->len_q, t->width}};
    else
        *s = (rpi_shape){.ndim = 3, .min_ndim = 2, .ones = 1u << 0, .n = {d->heads, t->width, t->extent}};
}

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

RPI_SCHEME(BAND, .form = RPI_VEC, .bias = true, .unscaled = true, .array = {RPI_LEARN("r"), RPI_LEARN("p")},
           .params = band_params, .sizes = band_sizes, .check = band_check, .shape = band_shape,
           .part = {{.array = 1,
                     .zero_outside = true,
                     .count = band_count,
                     .first = band_first,
                     .width = band_width,
                     .vec = band_vec,
                     .vec_grad = band_vec_grad,
                     .query = band_query,
                     .query_grad = band_query_grad}})
