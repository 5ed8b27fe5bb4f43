/* 02_backward.c -- train a bias table by gradient descent until each token attends to the previous one.
 *
 *     cc 02_backward.c $(pkg-config --cflags --libs relpos) -lm -o 02_backward && ./02_backward
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <relpos/relpos.h>
#include <stdio.h>
#include <stdlib.h>

enum { N = 32, D = 16, LEFT = 4, RIGHT = 4, STEPS = 60 };

int main(void)
{
    const int64_t shape[4] = {1, 1, N, D}, row[3] = {1, 1, N}, table_shape[2] = {1, LEFT + RIGHT + 1};
    static float q[N * D], k[N * D], v[N * D], out[N * D], dout[N * D], lse[N];
    float table[LEFT + RIGHT + 1] = {0}, gradient[LEFT + RIGHT + 1];
    for (int n = 0; n < N * D; n++)
        v[n] = (float)rand() / (float)RAND_MAX - 0.5f; /* q and k stay 0, so only the table determines attention */

    rp_term term = rp_term_init(RP_TERM_TABLE);
    term.left = LEFT, term.right = RIGHT;
    rp_desc desc = rp_desc_init(1, 1, N, N, D);
    desc.terms = &term, desc.n_terms = 1;
    rp_plan *plan;
    if (rp_plan_create(&plan, &desc) != RP_OK) {
        fprintf(stderr, "%s\n", rp_last_error());
        return 1;
    }

    rp_tensors t = rp_tensors_init();
    t.q = rp_array_of(q, RP_F32, 4, shape);
    t.k = rp_array_of(k, RP_F32, 4, shape);
    t.v = rp_array_of(v, RP_F32, 4, shape);
    t.out = rp_array_of(out, RP_F32, 4, shape);
    t.lse = rp_array_of(lse, RP_F32, 3, row);
    t.term[0][0] = rp_array_of(table, RP_F32, 2, table_shape);
    rp_grads g = rp_grads_init(); /* only gradients that you set are computed */
    g.dout = rp_array_of(dout, RP_F32, 4, shape);
    g.term[0][0] = rp_array_of(gradient, RP_F32, 2, table_shape);

    for (int step = 0; step <= STEPS; step++) {
        float loss = 0;
        if (rp_attend(plan, &t, NULL) != RP_OK)
            break;
        for (int n = 0; n < N * D; n++) { /* loss: half the squared distance to the previous token's value */
            const float error = n < D ? 0 : out[n] - v[n - D];
            loss += error * error / 2;
            dout[n] = error;
        }
        if (step % 20 == 0)
            printf("step %2d: loss %.4f, bias of the previous token %+.2f, of the token itself %+.2f\n", step,
                   (double)loss, (double)table[LEFT - 1], (double)table[LEFT]);
        if (rp_backward(plan, &t, &g, NULL) != RP_OK) /* uses out and lse of rp_attend */
            break;
        for (int n = 0; n < LEFT + RIGHT + 1; n++)
            table[n] -= 0.5f * gradient[n];
    }
    rp_plan_destroy(plan);
    if (*rp_last_error())
        fprintf(stderr, "%s\n", rp_last_error());
    return *rp_last_error() != 0;
}
