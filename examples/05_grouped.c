/* 05_grouped.c -- a T5 table of your own, query heads that share heads of keys, a pool of threads, and the gradients.
 *
 *     cc 05_grouped.c $(pkg-config --cflags --libs relpos) -o 05_grouped && ./05_grouped
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <relpos/relpos.h>
#include <stdio.h>
#include <stdlib.h>

enum { B = 1, H = 8, HK = 2, N = 256, D = 64, BUCKETS = 32 };

static int failed(void)
{
    fprintf(stderr, "%s\n", rp_last_error());
    return 1;
}

int main(void)
{
    const int64_t shape[4] = {B, H, N, D}, kv_shape[4] = {B, HK, N, D}, row[3] = {B, H, N},
                  table_shape[2] = {BUCKETS, H};
    static float q[B * H * N * D], k[B * HK * N * D], v[B * HK * N * D], out[B * H * N * D], lse[B * H * N];
    static float dout[B * H * N * D], dk[B * HK * N * D], table[BUCKETS * H], dtable[BUCKETS * H];
    for (int n = 0; n < B * H * N * D; n++)
        q[n] = (float)rand() / (float)RAND_MAX - 0.5f, dout[n] = 1;
    for (int n = 0; n < B * HK * N * D; n++)
        k[n] = (float)rand() / (float)RAND_MAX - 0.5f, v[n] = (float)rand() / (float)RAND_MAX - 0.5f;
    for (int bucket = 0; bucket < BUCKETS; bucket++)
        for (int h = 0; h < H; h++) /* relpos has no default table: read yours from a checkpoint, [buckets, heads] */
            table[bucket * H + h] = -0.1f * (float)(bucket % (BUCKETS / 2));

    /* 8 heads of queries, 2 of keys and values: query head h reads head h / 4 */
    rp_term t5 = rp_term_init(RP_TERM_T5);
    t5.buckets = BUCKETS, t5.max_distance = 128, t5.bidirectional = 1;
    rp_desc desc = rp_desc_init(B, H, N, N, D);
    desc.kv_heads = HK;
    desc.scale = 1; /* T5 does not divide scores by sqrt(D) */
    desc.terms = &t5, desc.n_terms = 1;
    rp_plan *plan;
    if (rp_plan_create(&plan, &desc) != RP_OK)
        return failed();

    /* two threads; several calls may share a pool, and the bits of the result do not depend on it */
    rp_pool *pool;
    if (rp_pool_create(&pool, 2) != RP_OK)
        return failed();
    rp_tensors t = rp_tensors_init();
    t.pool = pool;
    t.q = rp_array_of(q, RP_F32, 4, shape);
    t.k = rp_array_of(k, RP_F32, 4, kv_shape);
    t.v = rp_array_of(v, RP_F32, 4, kv_shape);
    t.term[0][0] = rp_array_of(table, RP_F32, 2, table_shape);
    t.out = rp_array_of(out, RP_F32, 4, shape);
    t.lse = rp_array_of(lse, RP_F32, 3, row); /* rp_backward reads out and lse */
    if (rp_attend(plan, &t, NULL) != RP_OK)
        return failed();

    rp_grads g = rp_grads_init(); /* only gradients that you set are computed */
    g.dout = rp_array_of(dout, RP_F32, 4, shape);
    g.dk = rp_array_of(dk, RP_F32, 4, kv_shape);
    g.term[0][0] = rp_array_of(dtable, RP_F32, 2, table_shape);
    if (rp_backward(plan, &t, &g, NULL) != RP_OK)
        return failed();

    /* a constant added to every bias of a head changes nothing, so the gradients of its buckets sum to 0 */
    for (int h = 0; h < H; h += H / HK) {
        double sum = 0, largest = 0;
        for (int bucket = 0; bucket < BUCKETS; bucket++) {
            const double x = dtable[bucket * H + h];
            sum += x;
            largest = x > largest ? x : largest;
        }
        printf("head %d: largest gradient of the table %.2f, sum over the buckets %.2f\n", h, largest,
               sum < 0 ? -sum : sum);
    }
    rp_pool_destroy(pool);
    rp_plan_destroy(plan);
    return 0;
}
