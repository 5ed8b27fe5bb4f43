/* api/attention.c -- rp_attention, one call for the simplest case. It uses only the public interface.
 * SPDX-License-Identifier: Apache-2.0 */
#include <relpos/relpos.h>

rp_status rp_attention(const rp_desc *desc, const void *q, const void *k, const void *v, void *out)
{
    rp_plan *plan;
    const rp_status status = rp_plan_create(&plan, desc);
    if (status != RP_OK)
        return status;
    const int64_t kv_heads = desc->kv_heads ? desc->kv_heads : desc->heads;
    const int64_t dim_v = desc->dim_v ? desc->dim_v : desc->dim_k;
    const int64_t q_shape[] = {desc->batch, desc->heads, desc->len_q, desc->dim_k};
    const int64_t k_shape[] = {desc->batch, kv_heads, desc->len_k, desc->dim_k};
    const int64_t v_shape[] = {desc->batch, kv_heads, desc->len_k, dim_v};
    const int64_t out_shape[] = {desc->batch, desc->heads, desc->len_q, dim_v};
    rp_tensors t = rp_tensors_init();
    t.q = rp_array_of(q, desc->dtype, 4, q_shape);
    t.k = rp_array_of(k, desc->dtype, 4, k_shape);
    t.v = rp_array_of(v, desc->dtype, 4, v_shape);
    t.out = rp_array_of(out, desc->dtype, 4, out_shape);
    const rp_status result = rp_attend(plan, &t, NULL);
    rp_plan_destroy(plan);
    return result;
}
