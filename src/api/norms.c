/* api/norms.c -- rp_key_norms: compute norms of the keys in a cache, with which decoding can skip keys without reading
 * them. Independent of kernels.
 * SPDX-License-Identifier: Apache-2.0 */
#include "arguments.h"
#include "call/call.h"
#include <math.h>
#include <stdlib.h>

/* Return the norm of a key, or infinity if calls must read the key or its value. */
static double key_norm(const rpi_args *args, int64_t b, int64_t g, int64_t j)
{
    const rp_desc *d = &args->desc;
    const double norm = rpi_row_norm(&args->k, b, g, j, d->dim_k);
    const bool moderate =
        norm <= (double)RPI_MODERATE && (!args->v.data || rpi_row_norm(&args->v, b, g, j, d->dim_v) < HUGE_VAL);
    return moderate ? norm : HUGE_VAL;
}

/* Check that no key has a larger norm than the one given for it, except for rounding to f32. */
rp_status rpi_compare_norms(const rpi_args *args)
{
    const rpi_view *v = &args->key_norms;
    for (int64_t b = 0; b < args->desc.batch; b++)
        for (int64_t g = 0; g < args->desc.kv_heads; g++)
            for (int64_t j = args->key_from, n; j < args->key_to; j++) {
                rpi_norm_of_key(args, j, &n);
                const double norm = key_norm(args, b, g, j), given = rpi_value(rpi_row_of(v, b, g, n), v->dtype, 0);
                if (norm * (1 - 0x1p-20) > given)
                    return rpi_fail(RP_E_RANGE,
                                    "%s: element [%lld, %lld, %lld] is %g, but key %lld has norm %g; when keys or "
                                    "values change, compute norms again with rp_key_norms",
                                    v->page ? "pages.norms" : "tensors.key_norms", (long long)b, (long long)g,
                                    (long long)n, given, (long long)j, norm);
            }
    return RP_OK;
}

static rp_status key_norms(rpi_args *args, const rp_plan *plan, const rp_tensors *t, int64_t from,
                           const rp_array *norms)
{
    static const double placeholder = 0; /* placeholder for q, never read */
    if (!plan)
        return rpi_fail(RP_E_ARG, "plan is NULL; make one with rp_plan_create");
    if (!t || t->size != sizeof *t)
        return rpi_fail(RP_E_ARG, "tensors %s; start from rp_tensors_init", t ? "has another size" : "is NULL");
    if (norms ? !norms->data : !t->pages.norms)
        return rpi_fail(RP_E_ARG, "norms is NULL; pass an array to fill, or set pages.norms");
    const rp_desc *own = &plan->desc;
    const int64_t q[4] = {own->batch, own->heads, own->len_q, own->dim_k};
    rp_tensors with = rp_tensors_init();
    with.k = t->k, with.v = t->v, with.pages = t->pages;
    with.key_from = t->key_from, with.key_to = t->key_to;
    with.q = rp_array_of(&placeholder, own->dtype, 4, q);
    if (norms)
        with.key_norms = *norms;
    rp_status status = rpi_args_check_keys(args, plan, &with);
    with.q.data = with.key_norms.data = NULL;
    if (status == RP_OK && norms)
        status = rpi_check_output(norms, "tensors.key_norms");
    if (status == RP_OK && norms)
        status = rpi_output_overlap(plan, &with, norms, "tensors.key_norms");
    if (status != RP_OK)
        return status;
    const rp_desc *d = &args->desc;
    const int64_t keys = args->key_to - args->key_from;
    if (!args->v.data && keys)
        return rpi_fail(RP_E_ARG,
                        "v is missing; pass this array, because the norms depend on whether values are finite");
    if (from < 0 || from > keys)
        return rpi_fail(RP_E_RANGE, "from is %lld; it must be 0 to %lld, the number of keys", (long long)from,
                        (long long)keys);
    for (int64_t b = 0; b < d->batch; b++)
        for (int64_t g = 0; g < d->kv_heads; g++)
            for (int64_t j = args->key_from + from, next, n, before; j < args->key_to; j = next) {
                next = rpi_min(rpi_norm_of_key(args, j, &n), args->key_to);
                void *to = (void *)(uintptr_t)rpi_row_of(&args->key_norms, b, g, n);
                const bool continues = j > args->key_from && rpi_norm_of_key(args, j - 1, &before) > j;
                double norm = continues ? rpi_value(to, args->key_norms.dtype, 0) : 0;
                for (int64_t x = j; x < next; x++) {
                    const double of_key = key_norm(args, b, g, x);
                    norm = of_key <= norm ? norm : of_key;
                }
                rpi_put(to, args->key_norms.dtype, 0, norm);
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
