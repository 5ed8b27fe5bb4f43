/* terms/decay.h -- biases that fall with distance by a rate that is not learned: logarithmic and linear. */

static const rpi_param log_params[] = {{"lambda", RPI_REAL, offsetof(rp_term, lambda), false, NULL}, {0}};

static rp_status log_check(const rp_desc *d, rp_term *t, int32_t n)
{
    (void)d;
    return check_finite(n, "lambda", t->lambda);
}

/* -lambda log(1 + |delta|) */
static double log_pair(const rpi_pair *p)
{
    return -p->term->lambda * log1p(fabs(p->delta));
}

RPI_SCHEME(LOG, .form = RPI_OFFSET, .same_heads = true, .array = {RPI_TWO_POSITIONS}, .params = log_params,
           .check = log_check, .pair = log_pair)

static const rpi_param linear_params[] = {
    {"left", RPI_REAL, offsetof(rp_term, rate_left), false, NULL},
    {"right", RPI_REAL, offsetof(rp_term, rate_right), false, NULL},
    {0},
};

static rp_status linear_check(const rp_desc *d, rp_term *t, int32_t n)
{
    (void)d;
    rp_status status = check_finite(n, "rate_left", t->rate_left);
    return status != RP_OK ? status : check_finite(n, "rate_right", t->rate_right);
}

/* -left |delta| before the query, -right delta after it, 0 on it */
static double linear_pair(const rpi_pair *p)
{
    return p->delta < 0 ? p->term->rate_left * p->delta : -(p->term->rate_right * p->delta);
}

RPI_SCHEME(LINEAR, .form = RPI_OFFSET, .same_heads = true, .array = {RPI_TWO_POSITIONS}, .params = linear_params,
           .check = linear_check, .pair = linear_pair)
