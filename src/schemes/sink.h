/* schemes/sink.h -- a learned logit beside each row: exp(sink_h) joins the sum of the weights and has no value.
 * As in gpt-oss; Xiao et al. 2024 for the name. */

static void sink_shape(const rp_desc *d, const rp_term *t, int32_t index, rpi_shape *s)
{
    (void)t, (void)index;
    *s = (rpi_shape){.ndim = 1, .min_ndim = 1, .ones = 1u << 0, .n = {d->heads}};
}

RPI_SCHEME(SINK, .form = RPI_SINK, .array = {RPI_LEARN("sink")}, .shape = sink_shape)
