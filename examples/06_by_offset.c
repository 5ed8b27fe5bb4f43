/* 06_by_offset.c -- a bias of your own: a function of the offset key - query and of the head.
 *
 *     cc 06_by_offset.c $(pkg-config --cflags --libs relpos) -lm -o 06_by_offset && ./06_by_offset
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <relpos/relpos.h>
#include <stdio.h>

enum { H = 4, LQ = 100, LK = 128, D = 16, LEFT = LQ - 1, RIGHT = LK - 1, OFFSETS = LEFT + 1 + RIGHT };

static float my_bias(int head, int offset)
{
    return -fabsf((float)(offset - 5 * head)); /* head h prefers the key 5 h after the query */
}

int main(void)
{
    static float table[H][OFFSETS], q[H][LQ][D], k[H][LK][D], v[H][LK][D], out[H][LQ][D]; /* q and k are 0 */
    const int64_t rows[4] = {1, H, LQ, D}, keys[4] = {1, H, LK, D}, offsets[2] = {H, OFFSETS};
    for (int h = 0; h < H; h++)
        for (int n = 0; n < OFFSETS; n++) /* once for each offset of the call, from -LEFT to RIGHT, not for each pair */
            table[h][n] = my_bias(h, n - LEFT);
    for (int n = 0; n < H * LK; n++)
        v[n / LK][n % LK][0] = (float)(n % LK); /* the position of the key */
    rp_term term = rp_term_init(RP_TERM_TABLE);
    term.left = LEFT, term.right = RIGHT;
    rp_desc desc = rp_desc_init(1, H, LQ, LK, D);
    desc.terms = &term, desc.n_terms = 1;
    rp_tensors t = rp_tensors_init();
    t.q = rp_array_of(q, RP_F32, 4, rows), t.k = rp_array_of(k, RP_F32, 4, keys), t.v = rp_array_of(v, RP_F32, 4, keys);
    t.out = rp_array_of(out, RP_F32, 4, rows), t.term[0][0] = rp_array_of(table, RP_F32, 2, offsets);
    rp_plan *plan = NULL;
    if (rp_plan_create(&plan, &desc) != RP_OK || rp_attend(plan, &t, NULL) != RP_OK)
        return fprintf(stderr, "%s\n", rp_last_error()), 1;
    for (int h = 0; h < H; h++)
        printf("head %d: query 50 attends to position %.1f\n", h, out[h][50][0]);
    rp_plan_destroy(plan);
    return 0;
}
