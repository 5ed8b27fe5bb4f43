/* schemes/decay.h -- biases that fall with distance by a rate that is not learned: logarithmic and linear. */

static const rpi_param log_params[] = {{"lambda", RPI_REAL, offsetof(rp_term, lambda), false, NULL}, {0}};

static rp_status log_check(const rp_desc *d, const rp_term *t, int32_t n)
{
    (void)d;
    if (!isfinite(t->lambda))
        return rpi_fail(RP_E_RANGE, "terms[%d].lambda is %g: a finite number", (int)n, t->lambda);
    return RP_OK;
}

/* -lambda log(1 + |delta|) */
static double log_pair(const rpi_pair *p)
{
    return -p->term->lambda * log1p(fabs((double)p->delta));
}

RPI_SCHEME(LOG, .form = RPI_OFFSET, .same_heads = true, .params = log_params, .check = log_check, .pair = log_pair)

static const rpi_param linear_params[] = {
    {"left", RPI_REAL, offsetof(rp_term, rate_left), false, NULL},
    {"right", RPI_REAL, offsetof(rp_term, rate_right), false, NULL},
    {0},
};

static rp_status linear_check(const rp_desc *d, const rp_term *t, int32_t n)
{
    (void)d;
    if (!isfinite(t->rate_left))
        return rpi_fail(RP_E_RANGE, "terms[%d].rate_left is %g: a finite number", (int)n, t->rate_left);
    if (!isfinite(t->rate_right))
        return rpi_fail(RP_E_RANGE, "terms[%d].rate_right is %g: a finite number", (int)n, t->rate_right);
    return RP_OK;
}

/* -left |delta| before the query, -right delta after it, 0 on it */
static double linear_pair(const rpi_pair *p)
{
    double r = (double)p->delta;
    return r < 0 ? p->term->rate_left * r : -(p->term->rate_right * r);
}

RPI_SCHEME(LINEAR, .form = RPI_OFFSET, .same_heads = true, .params = linear_params, .check = linear_check,
           .pair = linear_pair)
