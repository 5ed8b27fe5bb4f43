/* terms/sink.h -- a learned extra logit in each row: exp(sink) is added to the denominator of the softmax, without a
 * value vector. One for each head, as in gpt-oss, or one for each row, as in Inkling 2, whose sinks are a projection of
 * the layer's input. The name is from Xiao et al. 2024.
 * SPDX-License-Identifier: Apache-2.0 */

static const rp_param sink_params[] = {
    {"rows", RP_PARAM_FLAG, RPI_FIELD(choice[0]), .unset = "1 if sink has an axis of queries",
     .meaning = "1: a logit for each row of each head"},
    {0},
};

static int sink_sizes(rp_term *t, const rp_array *a)
{
    if (t->choice[0] == 0 && a[0].data)
        t->choice[0] = a[0].ndim > 1;
    return -1;
}

static double sink_pair(const rpi_pair *p)
{
    return p->term->choice[0] ? rpi_at(&p->array[0], p->b, p->h, p->i, 0) : rpi_at(&p->array[0], p->h, 0, 0, 0);
}

static void sink_grad(const rpi_pair *p, double g, const rpi_sums *to)
{
    if (p->term->choice[0])
        rpi_add(to, 0, p->b, p->h, p->i, 0, g);
    else
        rpi_add(to, 0, p->h, 0, 0, 0, g);
}

static rp_status sink_check_arrays(const rp_desc *d, const rp_term *t, const rpi_view *array, int32_t n)
{
    const rpi_view *v = &array[0];
    for (int64_t x = 0; x < v->len[0]; x++)
        for (int64_t y = 0; y < v->len[1]; y++)
            for (int64_t z = 0; z < v->len[2]; z++) {
                const double e = rpi_at(v, x, y, z, 0);
                char at[80];
                if (!isnan(e) && e != INFINITY)
                    continue;
                if (t->choice[0])
                    snprintf(at, sizeof at, "[%lld, %lld, %lld]", (long long)x, (long long)y, (long long)z);
                else
                    snprintf(at, sizeof at, "%lld", (long long)x);
                return rpi_fail(RP_E_RANGE,
                                "term[%d].sink (of sink): element %s is %g; it must be finite, or -inf for none",
                                (int)n, at, e);
            }
    (void)d;
    return RP_OK;
}

RPI_SCHEME(SINK, .form = RPI_SINK,
           .facts = {.formula = "adds exp(sink_h), or exp(sink[b,h,i]), to the row sum, so the weights sum to less "
                                "than one",
                     .about = "an extra logit per row, without a value vector",
                     .samples = {"", "rows=1"}},
           .array = {{"sink", .shape = "rows ? [B?, H, Lq] : [H]", .start = {.rule = RP_RULE_ZERO}}},
           .params = sink_params, .sizes = sink_sizes, .check_arrays = sink_check_arrays, .pair = sink_pair,
           .grad = sink_grad)
