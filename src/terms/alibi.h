/* terms/alibi.h -- a linear penalty on distance, one slope per head: -slope_h |delta|.
 * Press, Smith, Lewis 2022, section 3. Attention in the paper is causal; |delta| extends the penalty to keys after the
 * query. max_bias is MPT's alibi_bias_max.
 * SPDX-License-Identifier: Apache-2.0 */

double rp_alibi_slope(int64_t h, int64_t heads)
{
    if (h < 0 || h >= heads)
        return NAN;
    int64_t n = 1; /* the largest power of two that is at most heads */
    while (n <= heads / 2)
        n *= 2;
    /* heads from n on use slopes 1, 3, 5, … of the sequence for 2n heads */
    return h < n ? exp2(-8.0 * (double)(h + 1) / (double)n) : exp2(-4.0 * (double)(2 * (h - n) + 1) / (double)n);
}

static const rp_param alibi_params[] = {
    {"max_bias", RP_PARAM_REAL, RPI_FIELD(real[0]), .value = 8, .above_min = 1, .max = 1024,
     .meaning = "slopes from 2^(-max_bias/H) to 2^-max_bias; not used with given slopes"},
    {0},
};

/* Arrays: 0 slopes; 5 batch_slopes. */
static rp_status alibi_check_arrays(const rp_desc *d, const rp_term *t, const rpi_view *array, int32_t n)
{
    (void)d, (void)t;
    if (array[0].data && array[5].data)
        return rpi_fail(RP_E_ARG,
                        "term[%d].slopes (of alibi) was given with batch_slopes, which replaces it; give only one of "
                        "them",
                        (int)n);
    return RP_OK;
}

static double alibi_slope_of(const rpi_pair *p)
{
    if (p->array[5].data)
        return rpi_at(&p->array[5], p->b, p->h, 0, 0);
    if (p->array[0].data)
        return rpi_at(&p->array[0], p->h, 0, 0, 0);
    const double slope = rp_alibi_slope(p->h, p->desc->heads), max_bias = p->term->real[0];
    return max_bias == 8 ? slope : pow(slope, max_bias / 8);
}

/* The bias is 0 for delta = 0 even if the slope is infinite. */
static double alibi_pair(const rpi_pair *p)
{
    return p->delta != 0 ? -alibi_slope_of(p) * fabs(p->delta) : 0.0;
}

/* Compute the slope once for all offsets. */
static void alibi_offsets(const rpi_pair *p, int64_t delta0, int64_t n, double *to)
{
    const double slope = alibi_slope_of(p);
    for (int64_t x = 0; x < n; x++)
        to[x] = -slope * fabs((double)(delta0 + x));
    if (delta0 <= 0 && delta0 + n > 0)
        to[-delta0] = 0;
}

static int alibi_example(const rpi_pair *p, char *to, size_t size)
{
    return snprintf(to, size, "%g * %g", 0 - alibi_slope_of(p), fabs(p->delta));
}

static void alibi_grad(const rpi_pair *p, double g, const rpi_sums *to)
{
    rpi_add(to, 0, p->h, 0, 0, 0, -fabs(p->delta) * g);
    rpi_add(to, 5, p->b, p->h, 0, 0, -fabs(p->delta) * g);
}

RPI_SCHEME(ALIBI, .form = RPI_OFFSET,
           .facts = {.formula = "-slope_h |delta|; by default the slopes of the paper",
                     .about = "a linear penalty on distance, one slope per head",
                     .class_name = "ALiBi",
                     .shown = "- {slope} d",
                     .samples = {"", "max_bias=4", "slopes=given", "batch_slopes=given",
                                 "slopes=given,q_position_mask=given,k_position_mask=given"}},
           .array = {{"slopes", .presence = RP_REPLACES, .shape = "[H]",
                      .draw = {.rule = RP_RULE_UNIFORM, .a = 0.1, .b = 0.5}, .start = {.rule = RP_RULE_SLOPES}},
                     RPI_TWO_POSITIONS,
                     RPI_POSITION_MASKS,
                     {"batch_slopes", .presence = RP_REPLACES, .shape = "[B?, H]",
                      .draw = {.rule = RP_RULE_UNIFORM, .a = 0.1, .b = 0.5}, .start = {.rule = RP_RULE_SLOPES}}},
           .positions = 1, .params = alibi_params, .check_arrays = alibi_check_arrays, .pair = alibi_pair,
           .offsets = alibi_offsets, .example = alibi_example, .grad = alibi_grad)
