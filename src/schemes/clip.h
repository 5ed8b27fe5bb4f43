/* schemes/clip.h -- what the clipped tables share: offsets below -left and above right use the last entry.
 * Shaw, Uszkoreit, Vaswani 2018, section 3.2; delta = key - query, as there. */

static const rpi_param clip_params[] = {
    {"left", RPI_INT, offsetof(rp_term, left), true, NULL},
    {"right", RPI_INT, offsetof(rp_term, right), true, NULL},
    {0},
};

static int64_t clip_index(const rp_term *t, int64_t delta)
{
    return rpi_clamp(delta, -t->left, t->right) + t->left;
}

static rp_status clip_check(const rp_desc *d, const rp_term *t, int32_t n)
{
    const int64_t most = (int64_t)1 << 40; /* left + right + 1 vectors are indexed in 63 bits with room to spare */
    (void)d;
    if (t->left < 0 || t->left > most)
        return rpi_fail(RP_E_RANGE, "terms[%d].left is %lld: 0 to 2^40 entries before the query", (int)n,
                        (long long)t->left);
    if (t->right < 0 || t->right > most)
        return rpi_fail(RP_E_RANGE, "terms[%d].right is %lld: 0 to 2^40 entries after the query", (int)n,
                        (long long)t->right);
    return RP_OK;
}

/* Vectors: [left+right+1, width], or the same for each head. */
static void clip_vector_shape(const rp_desc *d, const rp_term *t, int64_t width, rpi_shape *s)
{
    *s = (rpi_shape){.ndim = 3, .min_ndim = 2, .ones = 1u << 0, .n = {d->heads, t->left + t->right + 1, width}};
}

static double clip_vec(const rpi_pair *p, int64_t c)
{
    return rpi_value(p->array[0].data, p->array[0].dtype,
                     rpi_index(&p->array[0], p->h, clip_index(p->term, p->delta), c, 0));
}
