/* masks/pairs.h -- masks that say pair by pair: keys, pairs, segments. */

/* keep[j] &= element at + j * step is not zero */
static void and_truth(const rpi_view *a, int64_t at, int64_t step, int64_t n, uint8_t *keep)
{
    typedef uint8_t sixteen __attribute__((vector_size(16), aligned(1), may_alias));
    int64_t j = 0;
    if (rp_dtype_size(a->dtype) == 1 && step == 1)
        for (const uint8_t *x = (const uint8_t *)a->data + at; j + 16 <= n; j += 16)
            *(sixteen *)(keep + j) &= (sixteen)(*(const sixteen *)(x + j) != 0) & 1;
    for (; j < n; j++)
        keep[j] &= rpi_truth(a->data, a->dtype, at + j * step);
}

static void keys_shape(const rp_desc *d, rpi_shape *s)
{
    *s = (rpi_shape){.ndim = 2, .min_ndim = 0, .ones = 3u, .n = {d->batch, d->len_k}};
}

static void keys_keep(const rpi_view *a, int64_t b, int64_t h, int64_t i, int64_t j0, int64_t n, uint8_t *keep)
{
    (void)h, (void)i;
    and_truth(a, rpi_index(a, b, j0, 0, 0), a->stride[1], n, keep);
}

RPI_MASK(KEYS, .shape = keys_shape, .keep = keys_keep, .keep_same_rows = true)

static void pairs_shape(const rp_desc *d, rpi_shape *s)
{
    *s = (rpi_shape){.ndim = 4, .min_ndim = 0, .ones = 15u, .n = {d->batch, d->heads, d->len_q, d->len_k}};
}

static void pairs_keep(const rpi_view *a, int64_t b, int64_t h, int64_t i, int64_t j0, int64_t n, uint8_t *keep)
{
    and_truth(a, rpi_index(a, b, h, i, j0), a->stride[3], n, keep);
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
