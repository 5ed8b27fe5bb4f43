/* test_layers.c -- compares layers in f32 with their formulas in double, within bounds on rounding errors.
 * SPDX-License-Identifier: Apache-2.0 */
#include "io/io.h"
#include "lab/engine/nn.h"
#include "tests/helpers.h"

static const double eps = FLT_EPSILON;

/* Return how many times a summand is rounded in a sum of n numbers: 16 partial sums, then a tree. */
static double sum_steps(int64_t n)
{
    return (double)(n / 16 + 6);
}

static void within(const char *what, double got, double want, double bound)
{
    if (!(fabs(got - want) <= bound))
        fail_msg("%s: %.9g, expected %.9g, bound %.3g", what, got, want, bound);
}

static double sigma(double x)
{
    return 1 / (1 + exp(-x));
}

/* Bound the error of sigmoid(u) in y = h sigmoid(u). Rounding u changes the sigmoid by s (1 - s) |u| eps per rounding;
 * exp has a relative error of 4 eps and is clamped below e^-87. */
static double sigma_bound(double u)
{
    const double s = sigma(u);
    return eps * (s * (1 - s) * (4 * fabs(u) + 4) + 2 * s) + 4e-38;
}

/* GELU, ReLU and SwiGLU, forward and backward. */
static void activations_keep_their_bounds(void **state)
{
    enum { N = 4001 };
    static float h[2 * N], y[2 * N], dy[N], dh[2 * N];
    const double a = 1.5957691216057308, b = 0.044715;
    (void)state;
    for (int x = 0; x < N; x++) {
        h[x] = (float)(x - N / 2) * 0.01f;
        dy[x] = (float)layers_normal(1, 1, (uint64_t)x);
    }
    layers_act_forward(NULL, LAYERS_GELU, 1, N, h, y);
    layers_act_backward(NULL, LAYERS_GELU, 1, N, h, dy, dh);
    for (int x = 0; x < N; x++) {
        const double z = (double)h[x], u = a * (z + b * z * z * z), s = sigma(u), du = a * (1 + 3 * b * z * z);
        within("gelu", (double)y[x], z * s, fabs(z) * sigma_bound(u));
        within("gelu, backward", (double)dh[x], (double)dy[x] * (s + z * s * (1 - s) * du),
               fabs((double)dy[x]) *
                   (sigma_bound(u) * (1 + 2 * fabs(z) * du) + 8 * eps * (s + fabs(z) * s * (1 - s) * du)));
    }
    layers_act_forward(NULL, LAYERS_RELU, 1, N, h, y);
    layers_act_backward(NULL, LAYERS_RELU, 1, N, h, dy, dh);
    for (int x = 0; x < N; x++)
        assert_true(y[x] == (h[x] < 0 ? 0 : h[x]) && dh[x] == (h[x] > 0 ? dy[x] : 0));
    for (int x = 0; x < N; x++) /* first the gates, then the values that they multiply */
        h[N + x] = (float)layers_normal(1, 2, (uint64_t)x);
    layers_act_forward(NULL, LAYERS_SWIGLU, 1, N, h, y);
    layers_act_backward(NULL, LAYERS_SWIGLU, 1, N, h, dy, dh);
    for (int x = 0; x < N; x++) {
        const double g = (double)h[x], up = (double)h[N + x], s = sigma(g), d = fabs((double)dy[x]);
        within("swiglu", (double)y[x], g * s * up, fabs(g * up) * (sigma_bound(g) + 2 * eps * s));
        within("swiglu, through", (double)dh[N + x], (double)dy[x] * g * s,
               d * fabs(g) * (sigma_bound(g) + 2 * eps * s));
        within("swiglu, gate", (double)dh[x], (double)dy[x] * up * s * (1 + g * (1 - s)),
               d * fabs(up) * (sigma_bound(g) * (1 + 2 * fabs(g)) + 8 * eps * s * (1 + fabs(g) * (1 - s))));
    }
}

/* LayerNorm and RMSNorm, forward and backward. */
static void norms_keep_their_bounds(void **state)
{
    enum { ROWS = 70, N = 37 };
    static float x[ROWS * N], y[ROWS * N], dy[ROWS * N], dx[ROWS * N], gamma[N], beta[N], stat[2 * ROWS], dgamma[N],
        dbeta[N], partial[2 * N * 2];
    (void)state;
    for (int n = 0; n < ROWS * N; n++) {
        x[n] = (float)(3 * layers_normal(2, 1, (uint64_t)n) + 1);
        dy[n] = (float)layers_normal(2, 2, (uint64_t)n);
    }
    for (int c = 0; c < N; c++) {
        gamma[c] = (float)layers_normal(2, 3, (uint64_t)c);
        beta[c] = (float)layers_normal(2, 4, (uint64_t)c);
    }
    for (int kind = LAYERS_LAYERNORM; kind <= LAYERS_RMSNORM; kind++) {
        double want_gamma[N] = {0}, size_gamma[N] = {0};
        memset(dgamma, 0, sizeof dgamma);
        memset(dbeta, 0, sizeof dbeta);
        layers_norm_forward(NULL, kind, 1e-5, ROWS, N, x, gamma, kind == LAYERS_LAYERNORM ? beta : NULL, y, stat);
        layers_norm_backward(NULL, kind, ROWS, N, x, gamma, stat, dy, false, dx, dgamma,
                             kind == LAYERS_LAYERNORM ? dbeta : NULL, partial);
        for (int r = 0; r < ROWS; r++) {
            double mean = 0, square = 0, most = 0, first = 0, second = 0, first_size = 0;
            for (int c = 0; c < N; c++) {
                mean += kind == LAYERS_LAYERNORM ? (double)x[r * N + c] / N : 0;
                most = fmax(most, fabs((double)x[r * N + c]));
            }
            for (int c = 0; c < N; c++)
                square += pow((double)x[r * N + c] - mean, 2) / N;
            const double s = 1 / sqrt(square + 1e-5);
            /* the error of the mean adds to u; half the relative error of the square adds to s */
            const double u_most = (most + fabs(mean)) * s, u_error = eps * (sum_steps(N) + 4) * (u_most + most * s);
            for (int c = 0; c < N; c++) {
                const double u = ((double)x[r * N + c] - mean) * s, a = (double)dy[r * N + c] * (double)gamma[c];
                within("norm", (double)y[r * N + c],
                       u * (double)gamma[c] + (kind == LAYERS_LAYERNORM ? (double)beta[c] : 0),
                       fabs((double)gamma[c]) * u_error + eps * (fabs(u * (double)gamma[c]) + fabs((double)beta[c])));
                first += kind == LAYERS_LAYERNORM ? a / N : 0;
                first_size += fabs(a) / N;
                second += a * u / N;
                want_gamma[c] += (double)dy[r * N + c] * u;
                size_gamma[c] += fabs((double)dy[r * N + c]) * (u_error + (LAYERS_ROWS + 4) * eps * u_most);
            }
            for (int c = 0; c < N; c++) {
                const double u = ((double)x[r * N + c] - mean) * s, a = (double)dy[r * N + c] * (double)gamma[c];
                const double size = fabs(a) + first_size + 2 * fabs(u) * first_size * u_most;
                within("norm, backward", (double)dx[r * N + c], s * (a - first - u * second),
                       s * (2 * first_size * u_most * u_error + 2 * (sum_steps(N) + 6) * eps * size +
                            eps * (sum_steps(N) + 4) * size));
            }
        }
        for (int c = 0; c < N; c++)
            within("norm, gamma", (double)dgamma[c], want_gamma[c], size_gamma[c]);
    }
}

/* The loss of a row, and its gradient. A row with target -1 is ignored. */
static void cross_entropy_keeps_its_bound(void **state)
{
    enum { ROWS = 40, N = 256 };
    static float z[ROWS * N], given[ROWS * N];
    int32_t target[ROWS];
    double loss[ROWS];
    bool right[ROWS];
    (void)state;
    for (int n = 0; n < ROWS * N; n++)
        given[n] = z[n] = (float)(layers_normal(3, 1, (uint64_t)n) * (n / N));
    for (int r = 0; r < ROWS; r++)
        target[r] = r == 5 ? -1 : (r * 7) % N;
    given[9 * N + target[9]] = z[9 * N + target[9]] = 100;
    given[0] = z[0] = z[1] = given[1] = z[N] = given[N] = 50; /* of two equal maxima, the first is chosen */
    given[N + target[1]] = z[N + target[1]] = 50;
    layers_softmax_loss(NULL, ROWS, N, z, target, 0.25, loss, right);
    for (int r = 0; r < ROWS; r++) {
        double sum = 0, most = -INFINITY;
        for (int c = 0; c < N; c++) /* gcc 12 for AArch64 crashes on fmax here */
            if ((double)given[r * N + c] > most)
                most = (double)given[r * N + c];
        for (int c = 0; c < N; c++)
            sum += exp((double)given[r * N + c] - most);
        int first = 0;
        while ((double)given[r * N + first] != most)
            first++;
        assert_true(right[r] == (first == target[r]));
        if (r == 5) {
            assert_true(loss[r] == 0 && z[r * N] == 0 && z[r * N + N - 1] == 0);
            continue;
        }
        /* the argument of exp has a relative error of eps/2, and d e^-d < 0.4 for each */
        const double sum_error = eps * (sum_steps(N) + 4 + 0.4 * N) * sum;
        within("loss", loss[r], log(sum) + most - (double)given[r * N + target[r]], sum_error / sum + 1e-12);
        for (int c = 0; c < N; c++) {
            const double d = most - (double)given[r * N + c], p = exp(-d) / sum;
            within("loss, backward", (double)z[r * N + c], 0.25 * (p - (c == target[r])),
                   0.25 * (p * (eps * (d + 6) + sum_error / sum) + eps + 1e-37));
        }
    }
}

/* Dropout keeps the right fraction, scales what it keeps, and drops the same elements in the backward pass. */
static void dropout_is_the_same_forward_and_backward(void **state)
{
    enum { ROWS = 100, N = 100 };
    static float x[ROWS * N], z[ROWS * N], y[ROWS * N], dz[ROWS * N];
    int kept = 0;
    (void)state;
    for (int n = 0; n < ROWS * N; n++) {
        x[n] = (float)n;
        z[n] = 1;
    }
    layers_add_forward(NULL, ROWS, N, x, z, 0.25, 17, y);
    layers_add_backward(NULL, ROWS, N, 0.25, 17, z, dz);
    for (int n = 0; n < ROWS * N; n++) {
        assert_true(y[n] == x[n] || y[n] == x[n] + 1 / 0.75f);
        assert_true((dz[n] != 0) == (y[n] != x[n]));
        kept += dz[n] != 0;
    }
    assert_true(abs(kept - 7500) < 5 * 44); /* five standard deviations */
    layers_add_forward(NULL, ROWS, N, x, z, 0, 17, y);
    for (int n = 0; n < ROWS * N; n++)
        assert_true(y[n] == x[n] + 1);
}

/* The weights and gradients of a whole model have the same bits with one thread and with three. */
static void threads_change_no_bit(void **state)
{
    enum { BATCH = 3, LENGTH = 150, ROWS = BATCH * LENGTH };
    char err[NN_ERR_MAX];
    int32_t tokens[ROWS], target[ROWS];
    double loss[2][ROWS], mean;
    float *g[2];
    int64_t n = 0;
    (void)state;
    if (nn_blas_open(err) != 0) {
        print_message("skipped: %s\n", err);
        skip();
    }
    for (int r = 0; r < ROWS; r++) {
        tokens[r] = (int32_t)(layers_random(4, 1, (uint64_t)r) % 256);
        target[r] = (int32_t)(layers_random(4, 2, (uint64_t)r) % 256);
    }
    for (int t = 0; t < 2; t++) {
        nn_config c;
        nn_model m;
        nn_net *net = NULL;
        rp_pool *pool;
        nn_config_init(&c);
        c.dropout = 0.1;
        c.length = LENGTH;
        snprintf(c.position, sizeof c.position, "t5+xl+band,width=4,extent=9");
        good(rp_pool_create(&pool, t ? 3 : 1));
        if (nn_model_create(&m, &c, true, err) != 0 ||
            nn_net_create(&net, &m, pool, BATCH, LENGTH, true, 0, NULL, err) != 0 ||
            nn_net_loss(net, LENGTH, tokens, target, 3, loss[t], &mean, err) != 0)
            fail_msg("%s", err);
        n = m.n_weights;
        g[t] = malloc((size_t)n * sizeof(float));
        assert_non_null(g[t]);
        assert_true(nn_adamw(&m, pool, 0) > 0);
        memcpy(g[t], m.g, (size_t)n * sizeof(float));
        nn_net_destroy(net);
        nn_model_destroy(&m);
        rp_pool_destroy(pool);
    }
    assert_memory_equal(loss[0], loss[1], sizeof loss[0]);
    assert_memory_equal(g[0], g[1], (size_t)n * sizeof(float));
    free(g[0]);
    free(g[1]);
}

/* AdamW with gradients around eps. In double, test_nn.c compares it with its formula. Bound: v has a relative error of
 * 4 roundings, its root of half as much and one more; the mean has 4 and the step 5. */
static void adamw_adds_eps_to_the_root(void **state)
{
    static const float gradients[] = {1e-12f, 1e-10f, 1e-8f, 3e-8f, 1e-6f, 1e-4f, 1};
    enum { N = sizeof gradients / sizeof *gradients };
    const double beta1 = 0.9, beta2 = 0.95, added = 1e-8, rate = 1e-3;
    char err[NN_ERR_MAX];
    nn_config c;
    nn_model m;
    (void)state;
    nn_config_init(&c);
    c.lr = c.lr_min = rate;
    c.warmup = 0;
    c.clip = 0;
    c.weight_decay = 0;
    c.beta1 = beta1;
    c.beta2 = beta2;
    c.eps = added;
    if (nn_model_create(&m, &c, true, err) != 0)
        fail_msg("%s", err);
    const int64_t first = m.params[0].offset;
    double w[N] = {0}, mean[N] = {0}, square[N] = {0};
    for (int k = 0; k < N; k++)
        m.w[first + k] = 0;
    for (int step = 0; step < 3; step++) {
        memset(m.g, 0, (size_t)m.n_weights * sizeof *m.g);
        memcpy(m.g + first, gradients, sizeof gradients);
        nn_adamw(&m, NULL, step);
        for (int k = 0; k < N; k++) {
            const double g = gradients[k];
            mean[k] = beta1 * mean[k] + (1 - beta1) * g;
            square[k] = beta2 * square[k] + (1 - beta2) * g * g;
            w[k] -=
                rate * mean[k] / (1 - pow(beta1, step + 1)) / (sqrt(square[k] / (1 - pow(beta2, step + 1))) + added);
            within("weight", m.w[first + k], w[k], 12 * eps * (step + 1) * fabs(w[k]));
        }
    }
    nn_model_destroy(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(adamw_adds_eps_to_the_root),
        cmocka_unit_test(activations_keep_their_bounds),
        cmocka_unit_test(norms_keep_their_bounds),
        cmocka_unit_test(cross_entropy_keeps_its_bound),
        cmocka_unit_test(dropout_is_the_same_forward_and_backward),
        cmocka_unit_test(threads_change_no_bit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
