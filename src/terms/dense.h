/* terms/dense.h -- a given array of biases, bias[b,h,i,j], with broadcasting. -infinity masks the pair. Batch entries
 * may share the entries of the array: `interleave` neighbours share one, and after all entries, the first one follows
 * again, `tile` times in all.
 * SPDX-License-Identifier: Apache-2.0 */

static const rp_param dense_params[] = {
    {"interleave", RP_PARAM_INT, RPI_FIELD(integer[0]), .value = 1, .min = 1, .max = 1 << 30,
     .meaning = "neighbours in the batch that share an entry of bias, as in repeat_interleave"},
    {"tile", RP_PARAM_INT, RPI_FIELD(integer[1]), .value = 1, .min = 1, .max = 1 << 30,
     .meaning = "times that the entries of bias follow each other in the batch, as in tile"},
    {0},
};

static rp_status dense_check_arrays(const rp_desc *d, const rp_term *t, const rpi_view *array, int32_t n)
{
    const int64_t share = t->integer[0] * t->integer[1];
    (void)array;
    if (d->batch % share == 0)
        return RP_OK;
    return rpi_fail(
        RP_E_SHAPE,
        "term[%d].bias (of dense): with interleave=%lld and tile=%lld, %lld batch entries share one of bias; "
        "the number of batch entries must be a multiple of this, but is %lld",
        (int)n, (long long)t->integer[0], (long long)t->integer[1], (long long)share, (long long)d->batch);
}

static int64_t dense_batch_entry(const rp_desc *d, const rp_term *t, int64_t b)
{
    if (t->integer[0] == 1 && t->integer[1] == 1)
        return b;
    return b / t->integer[0] % (d->batch / (t->integer[0] * t->integer[1]));
}

static double dense_pair(const rpi_pair *p)
{
    return rpi_at(&p->array[0], dense_batch_entry(p->desc, p->term, p->b), p->h, p->i, p->j);
}

static void dense_grad(const rpi_pair *p, double g, const rpi_sums *to)
{
    rpi_add(to, 0, dense_batch_entry(p->desc, p->term, p->b), p->h, p->i, p->j, g);
}

static int dense_example(const rpi_pair *p, char *to, size_t size)
{
    return snprintf(to, size, "bias[%lld, %lld, %lld, %lld]", (long long)dense_batch_entry(p->desc, p->term, p->b),
                    (long long)p->h, (long long)p->i, (long long)p->j);
}

RPI_SCHEME(DENSE, .form = RPI_TILE, .in_place = true,
           .facts = {.formula = "bias[b,h,i,j]; -infinity masks the pair",
                     .about = "an array of biases, added unchanged"},
           .array = {{"bias", .shape = "[B/interleave/tile?, H?, Lq?, Lk?]"}}, .params = dense_params,
           .check_arrays = dense_check_arrays, .batch_entry = dense_batch_entry,
           .sharing = "interleave=N lets N neighbours in the batch share an entry, tile=N repeats all entries N times",
           .pair = dense_pair, .example = dense_example, .grad = dense_grad)
