/* terms/real.h -- a clipped table over real-valued positions: sign * table[h, trunc(clamp(d, -M, M)) + M], where
 * M = max_distance and d = p_i - p_j (query minus key). trunc rounds toward zero.
 * SPDX-License-Identifier: Apache-2.0 */

static const rp_param real_params[] = {
    {"max_distance", RP_PARAM_INT, RPI_FIELD(max_distance), .required = true, .value = -1, .max = 0x1p40,
     .meaning = "longest distance of the table on each side"},
    {"sign", RP_PARAM_SIGN, RPI_FIELD(sign), .value = -1, .meaning = "factor of the table"},
    {0},
};

static int64_t real_entries(const rp_desc *d, const rp_term *t)
{
    (void)d;
    return 2 * t->max_distance + 1;
}

static int64_t real_index(const rpi_pair *p)
{
    return clip_to(-p->delta, p->term->max_distance, p->term->max_distance);
}

static void real_reach(const rp_term *t, int64_t *left, int64_t *right)
{
    *left = *right = t->max_distance;
}

static double real_entry(const rpi_pair *p, int64_t e)
{
    return p->term->sign * rpi_at(&p->array[0], p->h, e, 0, 0);
}

static void real_entry_grad(const rpi_pair *p, int64_t e, double g, const rpi_sums *to)
{
    rpi_add(to, 0, p->h, e, 0, 0, p->term->sign * g);
}

static int real_example(const rpi_pair *p, char *to, size_t size)
{
    const int64_t e = real_index(p), max = p->term->max_distance;
    return snprintf(to, size, "%d * table[%lld, %lld + %lld]", (int)p->term->sign, (long long)p->h,
                    (long long)(e - max), (long long)max);
}

RPI_SCHEME(
    REAL, .form = RPI_INDEX,
    .facts = {.formula = "sign table[h, trunc(clamp(-delta, -max_distance, max_distance)) + max_distance]",
              .about = "a clipped table over real-valued positions",
              .samples = {"max_distance=9", "max_distance=300,sign=1,q_position_mask=given,k_position_mask=given"},
              .bench = {"max_distance=64"}},
    .array = {{"table", .shape = "[H?, 2*max_distance+1]", .shows = "entry"}, RPI_TWO_POSITIONS, RPI_POSITION_MASKS},
    .positions = 1, .params = real_params, .entries = real_entries, .index = real_index, .reach = real_reach,
    .example = real_example, .entry = real_entry, .entry_grad = real_entry_grad)
