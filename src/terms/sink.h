/* terms/sink.h -- a learned extra logit in each row: exp(sink_h) is added to the denominator of the softmax, without a
 * value vector. As in gpt-oss; the name is from Xiao et al. 2024.
 * SPDX-License-Identifier: Apache-2.0 */

static rp_status sink_check_arrays(const rp_desc *d, const rp_term *t, const rpi_view *array, int32_t n)
{
    (void)t;
    for (int64_t h = 0; h < d->heads; h++) {
        const double x = rpi_at(&array[0], h, 0, 0, 0);
        if (isnan(x) || x == INFINITY)
            return rpi_fail(RP_E_RANGE,
                            "term[%d].sink (of sink): element %lld is %g; it must be finite, or -inf for none", (int)n,
                            (long long)h, x);
    }
    return RP_OK;
}

RPI_SCHEME(SINK, .form = RPI_SINK,
           .facts = {.formula = "adds exp(sink_h) to the row sum, so the weights sum to less than one",
                     .about = "an extra logit per row, without a value vector"},
           .array = {{"sink", .shape = "[H]", .start = {.rule = RP_RULE_ZERO}}}, .check_arrays = sink_check_arrays)
