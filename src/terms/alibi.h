/* terms/alibi.h -- a linear penalty on distance, one slope per head: -slope_h |delta|.
 * Press, Smith, Lewis 2022, section 3. The paper is causal; |delta| also covers keys after the query.
 * SPDX-License-Identifier: Apache-2.0 */

double rp_alibi_slope(int64_t h, int64_t heads)
{
    if (h < 0 || h >= heads)
        return NAN;
    int64_t n = 1; /* the largest power of two up to heads */
    while (n <= heads / 2)
        n *= 2;
    /* heads from n on use slopes 1, 3, 5, … of the sequence for 2n heads */
    return h < n ? exp2(-8.0 * (double)(h + 1) / (double)n) : exp2(-4.0 * (double)(2 * (h - n) + 1) / (double)n);
}

static double alibi_slope_of(const rpi_pair *p)
{
    return p->array[0].data ? rpi_at(&p->array[0], p->h, 0, 0, 0) : rp_alibi_slope(p->h, p->desc->heads);
}

/* The bias is 0 for delta = 0 even if the slope is infinite. */
static double alibi_pair(const rpi_pair *p)
{
    return p->delta != 0 ? -alibi_slope_of(p) * fabs(p->delta) : 0.0;
}

static int alibi_example(const rpi_pair *p, char *to, size_t size)
{
    return snprintf(to, size, "%g * %g", 0 - alibi_slope_of(p), fabs(p->delta));
}

static void alibi_grad(const rpi_pair *p, double g, const rpi_sums *to)
{
    rpi_add(to, 0, p->h, 0, 0, 0, -fabs(p->delta) * g);
}

RPI_SCHEME(ALIBI, .form = RPI_OFFSET,
           .facts = {.formula = "-slope_h |delta|; by default the slopes of the paper",
                     .about = "a linear penalty on distance, one slope per head",
                     .class_name = "ALiBi",
                     .shown = "- {slope} d",
                     .samples = {"", "slopes=given", "slopes=given,q_position_mask=given,k_position_mask=given"}},
           .array = {{"slopes", .presence = RP_REPLACES, .shape = "[H]",
                      .draw = {.rule = RP_RULE_UNIFORM, .a = 0.1, .b = 0.5}, .start = {.rule = RP_RULE_SLOPES}},
                     RPI_TWO_POSITIONS,
                     RPI_POSITION_MASKS},
           .positions = 1, .pair = alibi_pair, .example = alibi_example, .grad = alibi_grad)
