/* terms/kerple.h -- two kernels of distance: KERPLE with learned parameters per head, and Sandwich from sinusoids.
 * Chi, Fan, Ramadge, Rudnicky 2022, equations 1 and 2; Chi, Fan, Rudnicky, Ramadge 2023, section 4.
 * SPDX-License-Identifier: Apache-2.0 */

static const char *const kerple_kinds[] = {"log", "power", NULL};
static const rp_param kerple_params[] = {
    {"kind", RP_PARAM_CHOICE, RPI_FIELD(kerple), .choices = kerple_kinds, .meaning = "shape of the decay"},
    {0},
};

/* Return -p log(1 + a r) or -a r^p, r = |delta|; for r = 0 return 0, whatever p is. */
static double kerple_pair(const rpi_pair *pair)
{
    const double r = fabs(pair->delta);
    const double p = rpi_at(&pair->array[0], pair->h, 0, 0, 0), a = rpi_at(&pair->array[1], pair->h, 0, 0, 0);
    if (r == 0)
        return 0.0;
    return pair->term->kerple == RP_KERPLE_LOG ? -p * log1p(a * r) : -a * pow(r, p);
}

static void kerple_grad(const rpi_pair *pair, double g, const rpi_sums *to)
{
    const double r = fabs(pair->delta);
    const double p = rpi_at(&pair->array[0], pair->h, 0, 0, 0), a = rpi_at(&pair->array[1], pair->h, 0, 0, 0);
    if (r == 0)
        return;
    if (pair->term->kerple == RP_KERPLE_LOG) {
        rpi_add(to, 0, pair->h, 0, 0, 0, -g * log1p(a * r));
        rpi_add(to, 1, pair->h, 0, 0, 0, -g * p * r / (1 + a * r));
    } else {
        rpi_add(to, 0, pair->h, 0, 0, 0, -g * a * pow(r, p) * log(r));
        rpi_add(to, 1, pair->h, 0, 0, 0, -g * pow(r, p));
    }
}

static void kerple_tangent_grad(const rpi_pair *pair, double g, const rpi_view *tangent, const rpi_sums *to)
{
    const double r = fabs(pair->delta);
    const double p = rpi_at(&pair->array[0], pair->h, 0, 0, 0), a = rpi_at(&pair->array[1], pair->h, 0, 0, 0);
    const double p_tangent = rpi_at_or_0(&tangent[0], pair->h, 0, 0, 0),
                 a_tangent = rpi_at_or_0(&tangent[1], pair->h, 0, 0, 0);
    double pp, pa, aa; /* second derivatives */
    if (r == 0)
        return;
    if (pair->term->kerple == RP_KERPLE_LOG) {
        pp = 0;
        pa = -r / (1 + a * r);
        aa = p * (r / (1 + a * r)) * (r / (1 + a * r));
    } else {
        pp = -a * pow(r, p) * log(r) * log(r);
        pa = -pow(r, p) * log(r);
        aa = 0;
    }
    rpi_add(to, 0, pair->h, 0, 0, 0, g * (pp * p_tangent + pa * a_tangent));
    rpi_add(to, 1, pair->h, 0, 0, 0, g * (pa * p_tangent + aa * a_tangent));
}

static int kerple_example(const rpi_pair *pair, char *to, size_t size)
{
    const double r = fabs(pair->delta);
    const double p = rpi_at(&pair->array[0], pair->h, 0, 0, 0), a = rpi_at(&pair->array[1], pair->h, 0, 0, 0);
    return pair->term->kerple == RP_KERPLE_LOG ? snprintf(to, size, "%g * log(1 + %g * %g)", 0 - p, a, r)
                                               : snprintf(to, size, "%g * %g^%g", 0 - a, r, p);
}

RPI_SCHEME(KERPLE, .form = RPI_OFFSET,
           .facts = {.formula = "-p_h log(1 + a_h |delta|), or with kind=power -a_h |delta|^p_h",
                     .about = "learned kernels of distance",
                     .samples = {"", "kind=power"},
                     .bench = {"", "kind=power"}},
           /* The paper requires positive p and a. For training, start and min are those of its published code. */
           .array = {{"p", .shape = "[H]", .draw = {.rule = RP_RULE_UNIFORM, .a = 0.1, .b = 0.5},
                      .start = {.rule = RP_RULE_UNIFORM, .b = 2}, .min = 0.01},
                     {"a", .shape = "[H]", .draw = {.rule = RP_RULE_UNIFORM, .a = 0.1, .b = 0.5},
                      .start = {.rule = RP_RULE_UNIFORM, .b = 1}, .min = 0.01},
                     RPI_TWO_POSITIONS},
           .positions = 2, .params = kerple_params, .pair = kerple_pair, .example = kerple_example, .grad = kerple_grad,
           .tangent_grad = kerple_tangent_grad)

static const rp_param sandwich_params[] = {
    {"dim", RP_PARAM_INT, RPI_FIELD(dim), .required = true, .min = 2, .max = 1 << 20,
     .meaning = "width of the sinusoids, even"},
    {"base", RP_PARAM_REAL, RPI_FIELD(base), .value = 10000, .above_min = 1, .meaning = "base of the wavelengths"},
    {0},
};

static rp_status sandwich_check(const rp_desc *d, rp_term *t, int32_t n)
{
    (void)d;
    if (t->dim % 2 != 0)
        return rpi_fail(RP_E_RANGE, "terms[%d].dim is %lld; it must be even, the width of the sinusoids", (int)n,
                        (long long)t->dim);
    return RP_OK;
}

/* Return the sum over k < dim/2 of cos(delta / base^(2k/dim)). */
static double sandwich_shared(const rpi_pair *p)
{
    const rp_term *t = p->term;
    const double ratio = pow(t->base, -2.0 / (double)t->dim);
    double sum = 0, frequency = 1;
    for (int64_t k = 0; k < t->dim / 2; k++, frequency *= ratio) {
        if (k % 16 == 0) /* restart, so that rounding errors accumulate over at most 16 products */
            frequency = pow(t->base, -2.0 * (double)k / (double)t->dim);
        sum += cos(p->delta * frequency);
    }
    return sum;
}

/* Return the sum of cosines divided by 8 (h+1)/H. */
static double sandwich_pair(const rpi_pair *p)
{
    return (p->shared ? *p->shared : sandwich_shared(p)) * (double)p->desc->heads / (8.0 * (double)(p->h + 1));
}

/* Print the value of the sum instead of its dim/2 cosines. */
static int sandwich_example(const rpi_pair *p, char *to, size_t size)
{
    return snprintf(to, size, "%g / (8 * (%lld + 1) / %lld)", sandwich_shared(p), (long long)p->h,
                    (long long)p->desc->heads);
}

RPI_SCHEME(SANDWICH, .form = RPI_OFFSET, .array = {RPI_TWO_POSITIONS}, .params = sandwich_params,
           .facts = {.formula = "sum over k < dim/2 of cos(delta / base^(2k/dim)), divided by 8 (h+1)/H",
                     .about = "sums of cosines",
                     .samples = {"dim=16"},
                     .bench = {"dim=64"}},
           .check = sandwich_check, .pair = sandwich_pair, .example = sandwich_example, .shared = sandwich_shared)
