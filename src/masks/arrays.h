/* masks/arrays.h -- masks that say pair by pair: keys, pairs, segments. */

static void keys_shape(const rp_desc *d, rpi_shape *s)
{
    *s = (rpi_shape){.ndim = 2, .min_ndim = 0, .ones = 3u, .n = {d->batch, d->len_k}};
}

static void keys_keep(const rpi_view *a, int64_t b, int64_t h, int64_t i, int64_t j0, int64_t n, uint8_t *keep)
{
    (void)h, (void)i;
    for (int64_t j = 0; j < n; j++)
        keep[j] &= rpi_truth(a->data, a->dtype, rpi_index(a, b, j0 + j, 0, 0));
}

RPI_MASK(KEYS, .shape = keys_shape, .keep = keys_keep, .keep_same_rows = true)

static void pairs_shape(const rp_desc *d, rpi_shape *s)
{
    *s = (rpi_shape){.ndim = 4, .min_ndim = 0, .ones = 15u, .n = {d->batch, d->heads, d->len_q, d->len_k}};
}

static void pairs_keep(const rpi_view *a, int64_t b, int64_t h, int64_t i, int64_t j0, int64_t n, uint8_t *keep)
{
    for (int64_t j = 0; j < n; j++)
        keep[j] &= rpi_truth(a->data, a->dtype, rpi_index(a, b, h, i, j0 + j));
}

RPI_MASK(PAIRS, .shape = pairs_shape, .keep = pairs_keep)

static rp_status segments_check(const rp_desc *d, const rp_mask *m, int32_t n)
{
    (void)m;
    if (d->len_q != d->len_k)
        return rpi_fail(RP_E_SHAPE, "masks[%d]: segments need as many queries as keys: %lld and %lld", (int)n,
                        (long long)d->len_q, (long long)d->len_k);
    return RP_OK;
}

static void segments_keep(const rpi_view *a, int64_t b, int64_t h, int64_t i, int64_t j0, int64_t n, uint8_t *keep)
{
    const int64_t own = rpi_integer(a->data, a->dtype, rpi_index(a, b, i, 0, 0));
    (void)h;
    for (int64_t j = 0; j < n; j++)
        keep[j] &= rpi_integer(a->data, a->dtype, rpi_index(a, b, j0 + j, 0, 0)) == own;
}

/* An offset inside a segment is the same whether positions run on or restart, so no term needs to know. */
RPI_MASK(SEGMENTS, .check = segments_check, .shape = keys_shape, .keep = segments_keep)
