/* s3.c -- the example of "Relative Positional Bias (T5-style)": the buckets of distances, the array of biases, and
 * T5Attention twice, where the second layer shares the biases of the first, trained for one step.
 *
 *     cc s3.c $(pkg-config --cflags --libs relpos_layers relpos) -lm -o s3 && ./s3
 *
 * Offsets are those of T5, key - query, and the buckets are right where the text is not. An argument is added to the
 * first number of the input: ./s3 0.5
 * SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <relpos/layers.h>
#include <stdio.h>
#include <stdlib.h>

enum { L = 6, DIM = 8, HEADS = 2, BUCKETS = 32, FAR = 128 };

static void stop_on(rp_status status)
{
    if (status != RP_OK) {
        fprintf(stderr, "%s\n", rp_layer_last_error());
        exit(1);
    }
}

static void print_buckets(void)
{
    const int offsets[] = {-100, -50, -10, -5, -1, 0, 1, 5, 10, 50, 100};
    printf("%d buckets, maximum distance %d\noffset         ", BUCKETS, FAR);
    for (int n = 0; n < 11; n++)
        printf("%5d", offsets[n]);
    for (int bidirectional = 1; bidirectional >= 0; bidirectional--) {
        printf("\n%s", bidirectional ? "bidirectional  " : "causal         ");
        for (int n = 0; n < 11; n++)
            printf("%5d", (int)rp_bucket(offsets[n], BUCKETS, FAR, bidirectional, RP_STRATEGY_LOG));
    }
    printf("\n\n");
}

static rp_layer *layer_of(int has_relative_bias, int first)
{
    rp_layer_desc desc = rp_layer_t5_attention(DIM, HEADS, BUCKETS, FAR, has_relative_bias, 1);
    rp_layer *layer;
    desc.dtype = RP_F64;
    stop_on(rp_layer_create(&layer, &desc));
    for (int n = 0; rp_layer_param_at(layer, n); n++) { /* any numbers will do */
        const rp_layer_param *p = rp_layer_param_at(layer, n);
        for (int64_t i = 0; i < p->n; i++)
            ((double *)p->data)[i] = cos((double)(i + 10 * (n + first))) / 2;
    }
    return layer;
}

/* Print the biases of head 0 for all queries and keys. */
static void print_biases(const rp_layer *layer)
{
    const int64_t shape[4] = {1, HEADS, L, L};
    double bias[HEADS][L][L] = {{{0}}};
    const rp_array to = rp_array_of(bias, RP_F64, 4, shape);
    stop_on(rp_layer_biases(layer, 0, &to));
    printf("biases (1, %d, %d, %d), head 0:\n", HEADS, L, L);
    for (int i = 0; i < L; i++)
        for (int j = 0; j < L; j++)
            printf("%s%7.4f%s", j ? " " : "  ", bias[0][i][j], j == L - 1 ? "\n" : "");
}

int main(int argc, char **argv)
{
    const int64_t shape[3] = {1, L, DIM};
    double x[L][DIM], hidden[L][DIM], out[L][DIM], dhidden[L][DIM];
    rp_layer *first = layer_of(1, 0), *second = layer_of(0, 5);
    const rp_layer_param *table = rp_layer_param_named(first, "relative_bias.relative_attention_bias.weight");
    rp_layer_call one = rp_layer_call_init(), two = rp_layer_call_init();
    rp_layer_grads of_one = rp_layer_grads_init(), of_two = rp_layer_grads_init();
    for (int i = 0; i < L * DIM; i++)
        x[i / DIM][i % DIM] = sin(i) + (i == 0 && argc > 1 ? atof(argv[1]) : 0);
    print_buckets();
    print_biases(first);

    one.query = rp_array_of(x, RP_F64, 3, shape);
    one.out = two.query = rp_array_of(hidden, RP_F64, 3, shape);
    two.out = of_two.dout = rp_array_of(out, RP_F64, 3, shape); /* the gradient of the loss sum(out^2) / 2 is out */
    of_two.dquery = of_one.dout = rp_array_of(dhidden, RP_F64, 3, shape);
    two.terms_of = first; /* position_bias of the first layer */
    printf("\ntwo layers with one table, one step of training:\n");
    for (int step = 0; step < 2; step++) {
        rp_layer_saved *saved[2];
        double loss = 0;
        stop_on(rp_layer_forward(first, &one, &saved[0]));
        stop_on(rp_layer_forward(second, &two, &saved[1]));
        for (int i = 0; i < L * DIM; i++)
            loss += out[i / DIM][i % DIM] * out[i / DIM][i % DIM] / 2;
        printf("  loss %.6f\n", loss);
        stop_on(rp_layer_backward(second, &two, saved[1], &of_two)); /* adds its part to the table of the first */
        stop_on(rp_layer_backward(first, &one, saved[0], &of_one));
        if (step == 0)
            printf("  gradient of bucket 0: %.6f, %.6f\n", ((double *)table->grad)[0], ((double *)table->grad)[1]);
        rp_layer_step(first, 0.01);
        rp_layer_step(second, 0.01);
        rp_layer_saved_free(saved[0]);
        rp_layer_saved_free(saved[1]);
    }
    rp_layer_destroy(first);
    rp_layer_destroy(second);
    return 0;
}
