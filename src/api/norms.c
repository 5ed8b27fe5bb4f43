/* api/norms.c -- rp_key_norms: compute norms of the keys in a cache, with which decoding can skip keys without reading
 * them. Independent of kernels.
 * SPDX-License-Identifier: Apache-2.0 */
#include "arguments.h"
#include "engine/call.h"
#include <math.h>
#include <stdlib.h>

static rp_status key_norms(rpi_args *args, const rp_plan *plan, const rp_tensors *t, int64_t from,
                           const rp_array *norms)
{
    static const double placeholder = 0; /* placeholder for q, never read */
    rpi_view to;
    if (!plan || !t || t->size != sizeof *t || !norms || !norms->data)
        return rpi_fail(RP_E_ARG, "plan, tensors or norms is NULL, or tensors has another size; pass a plan, tensors "
                                  "from rp_tensors_init, and norms");
    const rp_desc *own = &plan->desc;
    const int64_t q[4] = {own->batch, own->heads, own->len_q, own->dim_k};
    rp_tensors with = rp_tensors_init();
    with.k = t->k, with.v = t->v, with.pages = t->pages;
    with.q = rp_array_of(&placeholder, own->dtype, 4, q);
    rp_status status = rpi_args_check_keys(args, plan, &with);
    if (status == RP_OK)
        status = rpi_check_norms(&args->desc, norms, &to);
    if (status == RP_OK)
        status = rpi_check_output(norms, "tensors.key_norms");
    with.q.data = NULL;
    if (status == RP_OK)
        status = rpi_output_overlap(plan, &with, norms, "tensors.key_norms");
    if (status != RP_OK)
        return status;
    const rp_desc *d = &args->desc;
    if (!args->v.data && d->len_k)
        return rpi_fail(RP_E_ARG,
                        "v is missing; pass this array, because the norms depend on whether values are finite");
    if (from < 0 || from > d->len_k)
        return rpi_fail(RP_E_RANGE, "from is %lld; it must be 0 to %lld, the number of keys", (long long)from,
                        (long long)d->len_k);
    for (int64_t b = 0; b < d->batch; b++)
        for (int64_t g = 0; g < d->kv_heads; g++)
            for (int64_t j = from; j < d->len_k; j++) {
                const int64_t at = rpi_index(&to, b, g, j / RP_NORM_KEYS, 0);
                const double before = j % RP_NORM_KEYS ? rpi_value(to.data, to.dtype, at) : 0;
                const double of_key = rpi_row_norm(&args->k, b, g, j, d->dim_k);
                const bool read =
                    !(of_key <= (double)RPI_MODERATE && rpi_row_norm(&args->v, b, g, j, d->dim_v) < HUGE_VAL);
                const double norm = read ? HUGE_VAL : of_key;
                if (!(norm <= before))
                    rpi_put(to.data, to.dtype, at, norm);
            }
    return RP_OK;
}

rp_status rp_key_norms(const rp_plan *plan, const rp_tensors *t, int64_t from, const rp_array *norms)
{
    rpi_args *args = rpi_arguments_alloc(sizeof *args);
    const rp_status status = args ? key_norms(args, plan, t, from, norms) : RP_E_NOMEM;
    free(args);
    return status;
}
