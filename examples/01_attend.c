/* 01_attend.c -- compute attention with ALiBi on random arrays in one call.
 *
 *     cc 01_attend.c $(pkg-config --cflags --libs relpos) -o 01_attend && ./01_attend
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <relpos/relpos.h>
#include <stdio.h>
#include <stdlib.h>

int main(void)
{
    enum { B = 1, H = 8, N = 256, D = 64 };
    const int64_t shape[4] = {B, H, N, D};
    static float q[B * H * N * D], k[B * H * N * D], v[B * H * N * D], out[B * H * N * D];
    for (int n = 0; n < B * H * N * D; n++) {
        q[n] = (float)rand() / (float)RAND_MAX - 0.5f;
        k[n] = (float)rand() / (float)RAND_MAX - 0.5f;
        v[n] = (float)(n / D % N); /* the value is the position of the key */
    }

    /* describe causal attention with the slopes of the ALiBi paper */
    rp_term alibi = rp_term_init(RP_TERM_ALIBI);
    rp_mask causal = {RP_MASK_CAUSAL, 0, 0};
    rp_desc desc = rp_desc_init(B, H, N, N, D);
    desc.terms = &alibi, desc.n_terms = 1;
    desc.masks = &causal, desc.n_masks = 1;

    /* create a plan: it checks the description and chooses the kernels */
    rp_plan *plan;
    if (rp_plan_create(&plan, &desc) != RP_OK) {
        fprintf(stderr, "%s\n", rp_last_error());
        return 1;
    }

    /* set the arrays of one call */
    rp_tensors t = rp_tensors_init();
    t.q = rp_array_of(q, RP_F32, 4, shape);
    t.k = rp_array_of(k, RP_F32, 4, shape);
    t.v = rp_array_of(v, RP_F32, 4, shape);
    t.out = rp_array_of(out, RP_F32, 4, shape);
    if (rp_attend(plan, &t, NULL) != RP_OK) {
        fprintf(stderr, "%s\n", rp_last_error());
        return 1;
    }

    printf("relpos %s on %s: mean position, of 0 … %d, that the last query attends to\n", rp_version(),
           rp_plan_isa(plan), N - 1);
    for (int h = 0; h < H; h++)
        printf("head %d, slope %-8g position %.1f\n", h, rp_alibi_slope(h, H), (double)out[(h * N + N - 1) * D]);
    rp_plan_destroy(plan);
    return 0;
}
