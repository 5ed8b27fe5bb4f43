/* terms/decay.h -- biases that decay with distance at a fixed rate: logarithmic and linear.
 * SPDX-License-Identifier: Apache-2.0 */

static const rp_param log_params[] = {
    {"lambda", RP_PARAM_REAL, RPI_FIELD(lambda), .value = 0.3, .meaning = "strength"},
    {0},
};

/* Return -lambda log(1 + |delta|). */
static double log_pair(const rpi_pair *p)
{
    return -p->term->lambda * log1p(fabs(p->delta));
}

static int log_example(const rpi_pair *p, char *to, size_t size)
{
    return snprintf(to, size, "%g * log(1 + %g)", 0 - p->term->lambda, fabs(p->delta));
}

RPI_SCHEME(LOG, .form = RPI_OFFSET, .same_heads = true, .array = {RPI_TWO_POSITIONS}, .params = log_params,
           .facts = {.formula = "-lambda log(1 + |delta|)",
                     .about = "decay with the logarithm of distance",
                     .class_name = "LogDecay",
                     .shown = "- {lambda} log(1 + d)"},
           .pair = log_pair, .example = log_example)

static const rp_param linear_params[] = {
    {"left", RP_PARAM_REAL, RPI_FIELD(rate_left), .value = 1, .meaning = "decay per step before the query"},
    {"right", RP_PARAM_REAL, RPI_FIELD(rate_right), .value = 1, .meaning = "decay per step after the query"},
    {0},
};

/* Return -left |delta| for keys before the query, -right delta for keys after it, 0 for delta = 0. */
static double linear_pair(const rpi_pair *p)
{
    return p->delta < 0 ? p->term->rate_left * p->delta : -(p->term->rate_right * p->delta);
}

static int linear_example(const rpi_pair *p, char *to, size_t size)
{
    return snprintf(to, size, "%g * %g", 0 - (p->delta < 0 ? p->term->rate_left : p->term->rate_right), fabs(p->delta));
}

RPI_SCHEME(LINEAR, .form = RPI_OFFSET, .same_heads = true, .array = {RPI_TWO_POSITIONS}, .params = linear_params,
           .facts = {.formula = "-left |delta| before the query, -right delta after it",
                     .about = "linear decay with one rate per side",
                     .shown = "- d * ({left} before the query, {right} after it)",
                     .samples = {"left=0.1,right=0.2"}},
           .pair = linear_pair, .example = linear_example)
