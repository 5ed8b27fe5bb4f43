/* s4.c -- AdditiveRelMultiheadAttention, a class of symm_learning: multi-head attention with real positions, whose
 * learned bias is subtracted from the scores, trained for one step. Its page has no numbers; these weights are computed
 * from formulas.
 *
 *     cc s4.c $(pkg-config --cflags --libs relpos_layers relpos) -lm -o s4 && ./s4
 *
 * An argument is added to all positions. It changes nothing, unless rounding moves a difference of positions across an
 * integer: ./s4 100
 * SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <relpos/layers.h>
#include <stdio.h>
#include <stdlib.h>

enum { LQ = 3, LK = 5, DIM = 4, HEADS = 2, FAR = 2 };

static void stop_on(rp_status status)
{
    if (status != RP_OK) {
        fprintf(stderr, "%s\n", rp_layer_last_error());
        exit(1);
    }
}

static void fill(void *numbers, int64_t n, double from)
{
    double *x = numbers;
    for (int64_t i = 0; i < n; i++)
        x[i] = cos((double)i + from) / 2;
}

int main(int argc, char **argv)
{
    rp_layer_desc desc = rp_layer_additive_rel_attention(DIM, HEADS, FAR, 0.0, 1);
    const double shift = argc > 1 ? atof(argv[1]) : 0;
    const int64_t q[3] = {1, LQ, DIM}, k[3] = {1, LK, DIM}, mean[3] = {1, LQ, LK}, n_q = LQ, n_k = LK;
    double query[LQ][DIM], key[LK][DIM], out[LQ][DIM], weights[LQ][LK];
    double q_positions[LQ] = {0.5, 1.3, 4.1}, k_positions[LK] = {0, 0.8, 1.7, 2.2, 9};
    const uint8_t k_position_mask[LK] = {1, 1, 1, 1, 0}; /* the last key has no position: its bias is 0 */
    rp_layer *layer;
    rp_layer_call call = rp_layer_call_init();
    rp_layer_grads g = rp_layer_grads_init();
    desc.dtype = RP_F64;
    stop_on(rp_layer_create(&layer, &desc));
    printf("weights of the layer:\n");
    for (int n = 0; rp_layer_param_at(layer, n); n++) {
        const rp_layer_param *p = rp_layer_param_at(layer, n);
        fill(p->data, p->n, 10 * n);
        printf("  %-22s %lld numbers\n", p->name, (long long)p->n);
    }
    fill(query, LQ * DIM, 100);
    fill(key, LK * DIM, 200);
    for (int i = 0; i < LQ; i++)
        q_positions[i] += shift;
    for (int j = 0; j < LK; j++)
        k_positions[j] += shift;

    call.query = rp_array_of(query, RP_F64, 3, q);
    call.key = rp_array_of(key, RP_F64, 3, k);          /* the values come from the keys too */
    call.out = g.dout = rp_array_of(out, RP_F64, 3, q); /* the gradient of the loss sum(out^2) / 2 is out */
    call.weights = rp_array_of(weights, RP_F64, 3, mean);
    call.term[0][1] = rp_array_of(q_positions, RP_F64, 1, &n_q);
    call.term[0][2] = rp_array_of(k_positions, RP_F64, 1, &n_k);
    call.term[0][4] = rp_array_of(k_position_mask, RP_BOOL, 1, &n_k);
    for (int step = 0; step < 2; step++) {
        rp_layer_saved *saved;
        double loss = 0;
        stop_on(rp_layer_forward(layer, &call, &saved));
        printf("%s", step ? "" : "attention weights, mean over the heads:\n");
        for (int i = 0; step == 0 && i < LQ * LK; i++)
            printf("%s%.4f%s", i % LK ? " " : "  ", weights[i / LK][i % LK], i % LK == LK - 1 ? "\n" : "");
        for (int i = 0; i < LQ * DIM; i++)
            loss += out[i / DIM][i % DIM] * out[i / DIM][i % DIM] / 2;
        printf("loss %.6f\n", loss);
        stop_on(rp_layer_backward(layer, &call, saved, &g));
        const double *rel_bias = rp_layer_param_named(layer, "rel_bias")->grad;
        if (step == 0)
            printf("gradient of rel_bias: %.6f %.6f %.6f %.6f %.6f\n", rel_bias[0], rel_bias[1], rel_bias[2],
                   rel_bias[3], rel_bias[4]);
        rp_layer_step(layer, 0.1);
        rp_layer_saved_free(saved);
    }
    rp_layer_destroy(layer);
    return 0;
}
