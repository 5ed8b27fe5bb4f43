/* terms/shaw.h -- learned vectors for each clipped offset, added to keys and to values.
 * Shaw, Uszkoreit, Vaswani 2018: equation 4 (keys, inside the scaling) and equation 3 (values). */

static void relkey_shape(const rp_desc *d, const rp_term *t, int32_t index, rpi_shape *s)
{
    (void)index;
    clip_vector_shape(d, t, d->dim_k, s);
}

static int64_t relval_width(const rp_desc *d, const rp_term *t)
{
    (void)t;
    return d->dim_v;
}

static void relval_shape(const rp_desc *d, const rp_term *t, int32_t index, rpi_shape *s)
{
    (void)index;
    clip_vector_shape(d, t, d->dim_v, s);
}

RPI_SCHEME(RELKEY, .form = RPI_VEC, .array = {RPI_LEARN("table"), RPI_TWO_POSITIONS}, .positions = 1,
           .params = clip_params, .check = clip_check, .shape = relkey_shape,
           .part = {{.count = clip_count, .first = clip_first, .vec = clip_vec, .vec_grad = clip_vec_grad}})
RPI_SCHEME(
    RELVAL, .form = RPI_VALVEC, .array = {RPI_LEARN("table"), RPI_TWO_POSITIONS}, .positions = 1, .params = clip_params,
    .check = clip_check, .shape = relval_shape,
    .part = {
        {.count = clip_count, .first = clip_first, .width = relval_width, .vec = clip_vec, .vec_grad = clip_vec_grad}})
