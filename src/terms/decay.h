/* terms/decay.h -- biases that fall with distance by a rate that is not learned: logarithmic and linear. */

static const rp_param log_params[] = {
    {"lambda", RP_PARAM_REAL, RPI_FIELD(lambda), .value = 0.3, .meaning = "strength"},
    {0},
};

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

static int log_worked(const rpi_pair *p, char *to, size_t size)
{
    return snprintf(to, size, "%g * log(1 + %g)", 0 - p->term->lambda, fabs(p->delta));
}

RPI_SCHEME(LOG, .form = RPI_OFFSET, .same_heads = true, .array = {RPI_TWO_POSITIONS}, .params = log_params,
           .facts = {.formula = "-lambda log(1 + |delta|)",
                     .about = "decay by the logarithm of distance",
                     .class_name = "LogDecay",
                     .shown = "- {lambda} log(1 + d)"},
           .check = log_check, .pair = log_pair, .worked = log_worked)

static const rp_param linear_params[] = {
    {"left", RP_PARAM_REAL, RPI_FIELD(rate_left), .value = 1, .meaning = "loss for each step before the query"},
    {"right", RP_PARAM_REAL, RPI_FIELD(rate_right), .value = 1, .meaning = "loss for each step after the query"},
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

static int linear_worked(const rpi_pair *p, char *to, size_t size)
{
    return snprintf(to, size, "%g * %g", 0 - (p->delta < 0 ? p->term->rate_left : p->term->rate_right), fabs(p->delta));
}

RPI_SCHEME(LINEAR, .form = RPI_OFFSET, .same_heads = true, .array = {RPI_TWO_POSITIONS}, .params = linear_params,
           .facts = {.formula = "-left |delta| before the query, -right delta after it",
                     .about = "linear decay with a rate for each side",
                     .shown = "- d * ({left} before the query, {right} after it)",
                     .samples = {"left=0.1,right=0.2"}},
           .check = linear_check, .pair = linear_pair, .worked = linear_worked)
