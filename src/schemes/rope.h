/* schemes/rope.h -- rotary positions: pair c of channels turns by position * base^(-2c/dim).
 * Su et al. 2021, section 3.2. Channels from dim on are left as they are (partial rotation, GPT-NeoX). */

static const char *const rope_layouts[] = {"half", "interleaved", NULL};

static const rpi_param rope_params[] = {
    {"dim", RPI_INT, offsetof(rp_term, dim), false, NULL},
    {"base", RPI_REAL, offsetof(rp_term, base), false, NULL},
    {"layout", RPI_CHOICE, offsetof(rp_term, layout), false, rope_layouts},
    {0},
};

static rp_status rope_check(const rp_desc *d, const rp_term *t, int32_t n)
{
    int64_t dim = t->dim ? t->dim : d->dim_k;
    if (dim < 2 || dim > d->dim_k || dim % 2 != 0)
        return rpi_fail(RP_E_RANGE, "terms[%d].dim is %lld: an even number from 2 to %lld, the width of q and k",
                        (int)n, (long long)dim, (long long)d->dim_k);
    if (!isfinite(t->base) || t->base <= 0)
        return rpi_fail(RP_E_RANGE, "terms[%d].base is %g: a finite number above 0", (int)n, t->base);
    if (t->layout != RP_LAYOUT_HALF && t->layout != RP_LAYOUT_INTERLEAVED)
        return rpi_fail(RP_E_ARG, "terms[%d].layout is %d: 0 (half) or 1 (interleaved)", (int)n, (int)t->layout);
    return RP_OK;
}

static double rope_frequency(const rp_desc *d, const rp_term *t, int64_t c)
{
    (void)d;
    return pow(t->base, -2.0 * (double)c / (double)t->dim);
}

RPI_SCHEME(ROPE, .form = RPI_ROTATE, .params = rope_params, .check = rope_check, .frequency = rope_frequency)
