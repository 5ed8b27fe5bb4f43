/* problem/sums.c -- allocate the sums for the gradients of the terms' arrays and of softcaps, in double, and store the
 * results. engine/reduce.c or the reference computes the sums. Independent of sources, kernels and the reference.
 * SPDX-License-Identifier: Apache-2.0 */
#include "problem.h"
#include <string.h>

rp_status rpi_sums_alloc(rpi_term_sums *sums, const rpi_args *args, const rpi_grads *grads, const uint32_t *arrays,
                         bool samples)
{
    int64_t at[RP_MAX_TERMS][RP_MAX_ARRAYS];
    memset(sums, 0, sizeof *sums);
    for (int32_t n = 0; n < args->desc.n_terms; n++)
        for (int32_t x = 0; x < RP_MAX_ARRAYS; x++) {
            const bool per_sample = samples && grads->term[n][x].per_sample;
            const int64_t *lens = grads->term[n][x].per_sample ? grads->term[n][x].len : args->term[n][x].len;
            int64_t count = 1;
            if (!grads->term[n][x].data || !(arrays[n] >> x & 1))
                continue;
            for (int32_t a = RP_MAX_AXES - 1; a >= 0; a--) {
                const int64_t len = lens[a];
                sums->term[n].array[x].len[a] = len;
                sums->term[n].array[x].stride[a] = len > 1 ? count : 0;
                if (!rpi_mul(count, len, 1, &count))
                    return rpi_fail(RP_E_OVERFLOW,
                                    "term[%d].%s: the number of elements of its gradient does not fit in 63 bits; "
                                    "use smaller sizes",
                                    (int)n, rp_term_array(args->desc.terms[n].kind, x));
            }
            sums->elements[n][x] = count;
            sums->term[n].array[x].per_sample = per_sample;
            sums->term[n].array[x].sample_step = per_sample ? count : 0;
            at[n][x] = rpi_arena_add(&sums->memory, per_sample ? args->desc.batch : 1, count, 1, sizeof(double));
        }
    const bool softcaps = samples && (grads->softcap[RPI_BEFORE].data || grads->softcap[RPI_AFTER].data);
    const int64_t at_softcap =
        softcaps ? rpi_arena_add(&sums->memory, args->desc.batch, RPI_SOFTCAPS, 1, sizeof(double)) : 0;
    const rp_status status = rpi_arena_alloc(&sums->memory, true, "the sum of the terms' gradients");
    if (status != RP_OK)
        return status;
    for (int32_t n = 0; n < args->desc.n_terms; n++)
        for (int32_t x = 0; x < RP_MAX_ARRAYS; x++)
            if (sums->elements[n][x]) {
                sums->term[n].array[x].data = sums->memory.base + at[n][x];
                sums->term[n].array[x].dtype = RP_F64;
            }
    if (softcaps)
        sums->softcap = (double *)(void *)(sums->memory.base + at_softcap);
    return RP_OK;
}

void rpi_sums_at(rpi_term_sums *sums, const rpi_args *args, int64_t b)
{
    for (int32_t n = 0; n < args->desc.n_terms && b != sums->sample; n++)
        for (int32_t x = 0; x < RP_MAX_ARRAYS; x++)
            sums->term[n].array[x] = rpi_sample(&sums->term[n].array[x], b - sums->sample);
    sums->sample = b;
}

/* Store the sums of one array. */
static void store(const rpi_view *to, const rpi_view *from, const int64_t *len)
{
    for (int64_t a = 0; a < len[0]; a++)
        for (int64_t b = 0; b < len[1]; b++)
            for (int64_t c = 0; c < len[2]; c++)
                for (int64_t e = 0; e < len[3]; e++)
                    rpi_put(to->data, to->dtype, rpi_index(to, a, b, c, e), rpi_at(from, a, b, c, e));
}

/* Store the gradient of a softcap: that of each batch entry, or their sum. */
static void store_softcap(const rpi_view *to, const double *from, int64_t batch)
{
    double sum = 0;
    for (int64_t b = 0; b < batch; b++) {
        sum += from[RPI_SOFTCAPS * b];
        if (to->per_sample)
            rpi_put(to->data, to->dtype, rpi_index(to, b, 0, 0, 0), from[RPI_SOFTCAPS * b]);
    }
    if (!to->per_sample)
        rpi_put(to->data, to->dtype, 0, sum);
}

void rpi_sums_store(rpi_term_sums *sums, const rpi_args *args, const rpi_grads *grads)
{
    rpi_sums_at(sums, args, 0);
    for (int32_t n = 0; n < args->desc.n_terms; n++)
        for (int32_t x = 0; x < RP_MAX_ARRAYS; x++) {
            const rpi_view *to = &grads->term[n][x], *from = &sums->term[n].array[x];
            for (int64_t b = 0; to->data && from->data && b < (to->per_sample ? args->desc.batch : 1); b++) {
                const rpi_view to_one = rpi_sample(to, b), from_one = rpi_sample(from, b);
                store(&to_one, &from_one, from->len);
            }
        }
    for (int n = 0; n < RPI_SOFTCAPS; n++)
        if (grads->softcap[n].data)
            store_softcap(&grads->softcap[n], sums->softcap + n, args->desc.batch);
}
