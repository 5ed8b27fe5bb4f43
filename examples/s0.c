/* s0.c -- the example of "Relative Position Bias Attention", a course chapter: the sentence "The cat sat on mat", with
 * a bias that falls with the logarithm of the distance. It prints what the chapter prints, then trains a table of
 * biases for one step.
 *
 *     cc s0.c $(pkg-config --cflags --libs relpos_layers relpos) -lm -o s0 && ./s0
 *
 * An argument is added to the first number of Q: ./s0 0.5
 * SPDX-License-Identifier: Apache-2.0 */
#include <relpos/layers.h>
#include <stdio.h>
#include <stdlib.h>

enum { N = 5, D = 4 };
static const char *const tokens[N] = {"The", "cat", "sat", "on", "mat"};
static double Q[N][D] = {{1, 0, 1, 0}, {0, 2, 0, 1}, {1, 1, 1, 0}, {0, 0, 1, 1}, {1, 0, 0, 1}};
static double K[N][D] = {{0, 1, 0, 1}, {1, 0, 1, 0}, {1, 1, 0, 0}, {0, 0, 1, 1}, {1, 0, 0.5, 0.5}};
static double V[N][D] = {{1, 0, 0, 0}, {0, 1, 0, 0}, {0, 0, 1, 0}, {0, 0, 0, 1}, {0.5, 0.5, 0.5, 0.5}};

static void stop_on(rp_status status)
{
    if (status != RP_OK) {
        fprintf(stderr, "%s\n", rp_layer_last_error());
        exit(1);
    }
}

static void print(const char *title, int rows, int columns, const void *numbers)
{
    const double *x = numbers;
    printf("\n%s:\n", title);
    for (int i = 0; i < rows; i++)
        for (int j = 0; j < columns; j++)
            printf("%s%7.4f%s", j ? " " : "", x[i * columns + j], j == columns - 1 ? "\n" : "");
}

/* Describe a call of a layer without projections: Q, K and V are its inputs. */
static rp_layer_call call_of(double out[N][D], double weights[N][N])
{
    const int64_t shape[3] = {1, N, D}, pairs[4] = {1, 1, N, N};
    rp_layer_call c = rp_layer_call_init();
    c.query = rp_array_of(Q, RP_F64, 3, shape);
    c.key = rp_array_of(K, RP_F64, 3, shape);
    c.value = rp_array_of(V, RP_F64, 3, shape);
    c.out = rp_array_of(out, RP_F64, 3, shape);
    c.weights = rp_array_of(weights, RP_F64, 4, pairs);
    return c;
}

static void attend(double bias_scale, double out[N][D], double weights[N][N])
{
    const rp_layer_desc desc = rp_layer_position_bias_attention(D, D, bias_scale);
    const rp_layer_call call = call_of(out, weights);
    rp_layer *layer;
    stop_on(rp_layer_create(&layer, &desc));
    stop_on(rp_layer_forward(layer, &call, NULL));
    rp_layer_destroy(layer);
}

/* Train the chapter's learned table, one number for each bucket, for one step: the outputs shall be like V. */
static void train(void)
{
    const rp_layer_desc desc = rp_layer_position_table_attention(D, D, 32, 128);
    const int64_t shape[3] = {1, N, D};
    double out[N][D], weights[N][N], dout[N][D];
    const rp_layer_call call = call_of(out, weights);
    rp_layer *layer;
    stop_on(rp_layer_create(&layer, &desc));
    const double *gradient = rp_layer_param_named(layer, "relative_bias_table")->grad;
    printf("\nOne step of training the table of 32 buckets\n");
    for (int step = 0; step < 2; step++) {
        rp_layer_saved *saved;
        rp_layer_grads g = rp_layer_grads_init();
        double loss = 0;
        stop_on(rp_layer_forward(layer, &call, &saved));
        for (int i = 0; i < N * D; i++) {
            const int token = i / D, channel = i % D;
            dout[token][channel] = out[token][channel] - V[token][channel];
            loss += dout[token][channel] * dout[token][channel] / 2;
        }
        printf("loss %.6f\n", loss);
        g.dout = rp_array_of(dout, RP_F64, 3, shape);
        stop_on(rp_layer_backward(layer, &call, saved, &g));
        for (int offset = -2; step == 0 && offset <= 2; offset++)
            printf("gradient of offset %+d: %9.6f\n", offset, gradient[rp_bucket(offset, 32, 128, 1, RP_STRATEGY_LOG)]);
        rp_layer_step(layer, 1.0);
        rp_layer_saved_free(saved);
    }
    rp_layer_destroy(layer);
}

int main(int argc, char **argv)
{
    double out[N][D], weights[N][N], plain_out[N][D], plain[N][N], change[N];
    Q[0][0] += argc > 1 ? atof(argv[1]) : 0;
    attend(0.3, out, weights);
    attend(0.0, plain_out, plain);
    printf("=== Relative Position Bias Attention ===");
    print("Weights", N, N, weights);
    print("Output", N, D, out);
    printf("\nAttention weights of The:\n");
    for (int j = 0; j < N; j++)
        printf("  A[The,%s] = %.4f (d=%d) |%.*s|\n", tokens[j], weights[0][j], j, (int)(weights[0][j] * 50),
               "##################################################");
    for (int j = 0; j < N; j++)
        change[j] = weights[0][j] - plain[0][j];
    printf("\n=== Standard vs Biased (The) ===");
    print("Standard", 1, N, plain[0]);
    print("Biased", 1, N, weights[0]);
    print("Diff", 1, N, change);
    train();
    return 0;
}
