/* s1.c -- the example of "Relative Position Encoding: Distance-Based Attention for Transformers", a tutorial on Shaw
 * 2018: a layer of self-attention with learned vectors for each offset, on six random tokens. It prints the
 * weights of the tutorial, then takes one step of gradient descent.
 *
 *     cc s1.c $(pkg-config --cflags --libs relpos_layers relpos) -lm -o s1 && ./s1
 *
 * The random numbers are those of np.random.seed(42) and seed 123. An argument is the seed of the tokens: ./s1 7
 * SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <relpos/layers.h>
#include <stdio.h>
#include <stdlib.h>

enum { N = 6, WIDTH = 8, D = 4, FAR = 3 };

/* np.random.seed and np.random.randn: the Mersenne Twister, and Marsaglia's polar method. */
static uint32_t state[624];
static int at;
static double spare = NAN;

static void seed(uint32_t s)
{
    for (uint32_t i = 0; i < 624; i++)
        state[i] = s = i ? 1812433253u * (s ^ s >> 30) + i : s;
    at = 624;
    spare = NAN;
}

static uint32_t next(void)
{
    for (int i = 0; at == 624 && i < 624; i++) {
        const uint32_t y = (state[i] & 0x80000000u) | (state[(i + 1) % 624] & 0x7fffffffu);
        state[i] = state[(i + 397) % 624] ^ y >> 1 ^ (y & 1 ? 0x9908b0dfu : 0);
    }
    uint32_t y = state[at %= 624];
    at++;
    y ^= y >> 11;
    y ^= y << 7 & 0x9d2c5680u;
    y ^= y << 15 & 0xefc60000u;
    return y ^ y >> 18;
}

static double uniform(void)
{
    const double high = next() >> 5;
    return (high * 67108864 + (next() >> 6)) / 9007199254740992;
}

static double normal(void)
{
    double x, y, r, last = spare;
    spare = NAN;
    if (!isnan(last))
        return last;
    do {
        x = 2 * uniform() - 1;
        y = 2 * uniform() - 1;
        r = x * x + y * y;
    } while (r >= 1 || r == 0);
    const double factor = sqrt(-2 * log(r) / r);
    spare = factor * x;
    return factor * y;
}

static void stop_on(rp_status status)
{
    if (status != RP_OK) {
        fprintf(stderr, "%s\n", rp_layer_last_error());
        exit(1);
    }
}

/* Draw the weights as the tutorial's constructors do. The second seed repeats the first numbers. */
static void draw_weights(rp_layer *layer)
{
    const char *const names[] = {"W_q", "W_k", "W_v", "rel_embed.a_K", "rel_embed.a_V"};
    for (int n = 0; n < 5; n++) {
        const rp_layer_param *p = rp_layer_param_named(layer, names[n]);
        if (n == 0 || n == 3)
            seed(123);
        for (int64_t i = 0; i < p->n; i++)
            ((double *)p->data)[i] = normal() * sqrt(2.0 / (double)(p->shape[0] + p->shape[1]));
    }
}

int main(int argc, char **argv)
{
    const rp_layer_desc desc = rp_layer_relative_self_attention(WIDTH, D, D, FAR);
    const int64_t in[3] = {1, N, WIDTH}, to[3] = {1, N, D}, pairs[4] = {1, 1, N, N};
    double X[N][WIDTH], out[N][D], weights[N][N];
    rp_layer *layer;
    rp_layer_call call = rp_layer_call_init();
    rp_layer_grads g = rp_layer_grads_init();
    stop_on(rp_layer_create(&layer, &desc));
    seed(argc > 1 ? (uint32_t)atoi(argv[1]) : 42);
    for (int i = 0; i < N * WIDTH; i++)
        X[i / WIDTH][i % WIDTH] = normal();
    draw_weights(layer);
    call.query = rp_array_of(X, RP_F64, 3, in);
    call.out = g.dout = rp_array_of(out, RP_F64, 3, to); /* the gradient of the loss sum(out^2) / 2 is out */
    call.weights = rp_array_of(weights, RP_F64, 4, pairs);
    for (int step = 0; step < 2; step++) {
        rp_layer_saved *saved;
        double loss = 0;
        stop_on(rp_layer_forward(layer, &call, &saved));
        printf("%s", step ? "" : "Attention weights (rows sum to 1):\n");
        for (int i = 0; step == 0 && i < N * N; i++)
            printf("%s%.3f%s", i % N ? " " : "  ", weights[i / N][i % N], i % N == N - 1 ? "\n" : "");
        for (int i = 0; i < N * D; i++)
            loss += out[i / D][i % D] * out[i / D][i % D] / 2;
        printf("loss sum(out^2)/2 %s: %.6f\n", step ? "after one step" : "before", loss);
        stop_on(rp_layer_backward(layer, &call, saved, &g));
        rp_layer_step(layer, 0.1);
        rp_layer_saved_free(saved);
    }
    rp_layer_destroy(layer);
    return 0;
}
