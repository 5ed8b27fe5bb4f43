/* terms/table.h -- a learned bias for each clipped offset: table[h, clamp(delta, -left, right) + left]. */

static double table_pair(const rpi_pair *p)
{
    return rpi_at(&p->array[0], p->h, clip_to(p->delta, p->term->left, p->term->right), 0, 0);
}

static void table_grad(const rpi_pair *p, double g, const rpi_sums *to)
{
    rpi_add(to, 0, p->h, clip_to(p->delta, p->term->left, p->term->right), 0, 0, g);
}

static void table_shape(const rp_desc *d, const rp_term *t, int32_t index, rpi_shape *s)
{
    (void)index;
    *s = (rpi_shape){.ndim = 2, .min_ndim = 1, .ones = 1u << 0, .n = {d->heads, t->left + t->right + 1}};
}

RPI_SCHEME(TABLE, .form = RPI_OFFSET, .array = {RPI_LEARN("table"), RPI_TWO_POSITIONS}, .positions = 1,
           .params = clip_params, .check = clip_check, .shape = table_shape, .pair = table_pair, .grad = table_grad,
           .reach = clip_reach)
