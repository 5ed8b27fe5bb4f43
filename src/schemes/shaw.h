/* schemes/shaw.h -- learned vectors for each clipped offset, added to keys and to values.
 * Shaw, Uszkoreit, Vaswani 2018: equation 4 (keys, inside the scaling) and equation 3 (values). */

static void relkey_shape(const rp_desc *d, const rp_term *t, int32_t index, rpi_shape *s)
{
    (void)index;
    clip_vector_shape(d, t, d->dim_k, s);
}

static void relval_shape(const rp_desc *d, const rp_term *t, int32_t index, rpi_shape *s)
{
    (void)index;
    clip_vector_shape(d, t, d->dim_v, s);
}

RPI_SCHEME(RELKEY, .form = RPI_KEYVEC, .array = {"table"}, .params = clip_params, .check = clip_check,
           .shape = relkey_shape, .vec = clip_vec)
RPI_SCHEME(RELVAL, .form = RPI_VALVEC, .array = {"table"}, .params = clip_params, .check = clip_check,
           .shape = relval_shape, .vec = clip_vec)
