/* terms/axial.h -- tables and vectors for each axis of a grid.
 * axial: bh[h, dy + grid_h-1] + bw[h, dx + grid_w-1], dy and dx key minus query. */

static void axial_shape(const rp_desc *d, const rp_term *t, int32_t index, rpi_shape *s)
{
    const int64_t side = index == 0 ? t->grid_h : t->grid_w;
    *s = (rpi_shape){.ndim = 2, .min_ndim = 1, .ones = 1u << 0, .n = {d->heads, 2 * side - 1}};
}

static int64_t axial_index(const rpi_pair *p)
{
    const rp_term *t = p->term;
    return grid_rows(t, p->j, p->i) * (2 * t->grid_w - 1) + grid_columns(t, p->j, p->i);
}

static double axial_entry(const rpi_pair *p, int64_t e)
{
    const int64_t across = 2 * p->term->grid_w - 1;
    return rpi_at(&p->array[0], p->h, e / across, 0, 0) + rpi_at(&p->array[1], p->h, e % across, 0, 0);
}

static void axial_entry_grad(const rpi_pair *p, int64_t e, double g, const rpi_sums *to)
{
    const int64_t across = 2 * p->term->grid_w - 1;
    rpi_add(to, 0, p->h, e / across, 0, 0, g);
    rpi_add(to, 1, p->h, e % across, 0, 0, g);
}

RPI_SCHEME(AXIAL, .form = RPI_INDEX, .array = {RPI_LEARN("bh"), RPI_LEARN("bw")}, .params = grid_params + 1,
           .check = grid_check, .grid = true, .check_arrays = grid_check_arrays, .shape = axial_shape,
           .entries = grid_entries, .index = axial_index, .entry = axial_entry, .entry_grad = axial_entry_grad)

/* axialkey: <q_i, rh[dy + grid_h-1] + rw[dx + grid_w-1]>, query minus key. Li et al. 2022 (MViTv2), equation 4, as SAM and
 * ViTDet have it: not scaled. */

static void axialkey_shape(const rp_desc *d, const rp_term *t, int32_t index, rpi_shape *s)
{
    const int64_t side = index == 0 ? t->grid_h : t->grid_w;
    *s = (rpi_shape){.ndim = 2, .min_ndim = 2, .n = {2 * side - 1, d->dim_k}};
}

#define RPI_AXIS(axis, side, number, difference)                                                                       \
    static int64_t axialkey_##axis##_count(const rp_desc *d, const rp_term *t)                                         \
    {                                                                                                                  \
        (void)d;                                                                                                       \
        return 2 * t->side - 1;                                                                                        \
    }                                                                                                                  \
    static int64_t axialkey_##axis##_index(const rpi_pair *p)                                                          \
    {                                                                                                                  \
        return difference(p->term, p->i, p->j);                                                                        \
    }                                                                                                                  \
    static double axialkey_##axis##_vec(const rpi_pair *p, int64_t e, int64_t c)                                       \
    {                                                                                                                  \
        return rpi_at(&p->array[number], e, c, 0, 0);                                                                  \
    }                                                                                                                  \
    static void axialkey_##axis##_grad(const rpi_pair *p, int64_t e, int64_t c, double g, const rpi_sums *to)          \
    {                                                                                                                  \
        (void)p;                                                                                                       \
        rpi_add(to, number, e, c, 0, 0, g);                                                                            \
    }
RPI_AXIS(h, grid_h, 0, grid_rows)
RPI_AXIS(w, grid_w, 1, grid_columns)
#undef RPI_AXIS

#define RPI_AXIS_PART(axis, number)                                                                                    \
    .array = number, .count = axialkey_##axis##_count, .index = axialkey_##axis##_index, .vec = axialkey_##axis##_vec, \
    .vec_grad = axialkey_##axis##_grad
RPI_SCHEME(AXIALKEY, .form = RPI_VEC, .unscaled = true, .array = {RPI_LEARN("rh"), RPI_LEARN("rw")},
           .params = grid_params + 1, .check = grid_check, .grid = true, .check_arrays = grid_check_arrays,
           .shape = axialkey_shape, .part = {{RPI_AXIS_PART(h, 0)}, {RPI_AXIS_PART(w, 1)}})
#undef RPI_AXIS_PART
