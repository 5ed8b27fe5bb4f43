/* masks/intervals.h -- masks that are intervals of keys: causal, window, lengths. */

static void causal_interval(const rp_mask *m, const rpi_view *a, int64_t b, int64_t position, int64_t *lo, int64_t *hi)
{
    (void)m, (void)a, (void)b, (void)lo;
    *hi = rpi_min(*hi, position + 1);
}

RPI_MASK(CAUSAL, .interval = causal_interval)

static rp_status window_check(const rp_desc *d, const rp_mask *m, int32_t n)
{
    (void)d;
    if (m->left < -1 || m->right < -1)
        return rpi_fail(RP_E_RANGE, "masks[%d]: window is %lld,%lld: keys before and after the query, -1 = no limit",
                        (int)n, (long long)m->left, (long long)m->right);
    return RP_OK;
}

static void window_interval(const rp_mask *m, const rpi_view *a, int64_t b, int64_t position, int64_t *lo, int64_t *hi)
{
    const int64_t far = (int64_t)1 << 61; /* |position| < 2^61: api/describe.c; so nothing here overflows */
    (void)a, (void)b;
    if (m->left >= 0)
        *lo = rpi_max(*lo, position - rpi_min(m->left, far));
    if (m->right >= 0)
        *hi = rpi_min(*hi, position + rpi_min(m->right, far) + 1);
}

RPI_MASK(WINDOW, .check = window_check, .interval = window_interval)

static void lengths_shape(const rp_desc *d, rpi_shape *s)
{
    *s = (rpi_shape){.ndim = 1, .min_ndim = 0, .ones = 1u, .n = {d->batch}};
}

static void lengths_interval(const rp_mask *m, const rpi_view *a, int64_t b, int64_t position, int64_t *lo, int64_t *hi)
{
    (void)m, (void)position, (void)lo;
    const int64_t n = rpi_integer(a->data, a->dtype, rpi_index(a, b, 0, 0, 0));
    if (n >= 0 || a->dtype != RP_U64) /* a length beyond 2^63 limits nothing */
        *hi = rpi_min(*hi, n);
}

RPI_MASK(LENGTHS, .shape = lengths_shape, .interval = lengths_interval)
