/* schemes/table.h -- a learned bias for each clipped offset: table[h, clamp(delta, -left, right) + left]. */

static double table_pair(const rpi_pair *p)
{
    return clip_vec(p, 0);
}

static void table_shape(const rp_desc *d, const rp_term *t, int32_t index, rpi_shape *s)
{
    (void)index;
    *s = (rpi_shape){.ndim = 2, .min_ndim = 1, .ones = 1u << 0, .n = {d->heads, t->left + t->right + 1}};
}

RPI_SCHEME(TABLE, .form = RPI_OFFSET, .array = {"table"}, .params = clip_params, .check = clip_check,
           .shape = table_shape, .pair = table_pair)
