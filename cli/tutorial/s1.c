/* s1.c -- "Relative Position Encoding: Distance-Based Attention for Transformers", a tutorial on Shaw 2018, with the
 * random numbers of NumPy.
 * SPDX-License-Identifier: Apache-2.0 */
#include "cli/tutorial/tutorial.h"
#include <math.h>

enum { N = 6, WIDTH = 8, D = 4, FAR = 3 };

/* ------------------------------------------------------------ np.random.RandomState(seed).randn */

/* The Mersenne Twister (Matsumoto, Nishimura 1998), and normal numbers by the polar method (Marsaglia, Bray 1964). */
typedef struct generator {
    uint32_t word[624];
    int at;
    bool has_spare;
    double spare;
} generator;

static void seed(generator *g, uint32_t s)
{
    for (uint32_t i = 0; i < 624; i++)
        g->word[i] = s = i ? 1812433253u * (s ^ s >> 30) + i : s;
    g->at = 624;
    g->has_spare = false;
}

static uint32_t next(generator *g)
{
    if (g->at == 624) {
        for (int i = 0; i < 624; i++) {
            const uint32_t y = (g->word[i] & 0x80000000u) | (g->word[(i + 1) % 624] & 0x7fffffffu);
            g->word[i] = g->word[(i + 397) % 624] ^ y >> 1 ^ (y & 1 ? 0x9908b0dfu : 0);
        }
        g->at = 0;
    }
    uint32_t y = g->word[g->at++];
    y ^= y >> 11;
    y ^= y << 7 & 0x9d2c5680u;
    y ^= y << 15 & 0xefc60000u;
    return y ^ y >> 18;
}

static double uniform(generator *g)
{
    const double high = next(g) >> 5;
    return (high * 67108864 + (next(g) >> 6)) / 9007199254740992;
}

static double normal(generator *g)
{
    double x, y, r;
    if (g->has_spare) {
        g->has_spare = false;
        return g->spare;
    }
    do {
        x = 2 * uniform(g) - 1;
        y = 2 * uniform(g) - 1;
        r = x * x + y * y;
    } while (r >= 1 || r == 0);
    const double factor = sqrt(-2 * log(r) / r);
    g->has_spare = true;
    g->spare = factor * x;
    return factor * y;
}

static void draw(generator *g, double *to, int n, double scale)
{
    for (int x = 0; x < n; x++)
        to[x] = normal(g) * scale;
}

/* ------------------------------------------------------------------------------------------------ the layer */

typedef struct layer {
    double q[N * D], k[N * D], v[N * D], a_k[(2 * FAR + 1) * D], a_v[(2 * FAR + 1) * D];
} layer;

static void project(generator *g, const double *x, double *to)
{
    double w[WIDTH * D];
    draw(g, w, WIDTH * D, sqrt(2.0 / (WIDTH + D)));
    for (int n = 0; n < N * D; n++) {
        to[n] = 0;
        for (int c = 0; c < WIDTH; c++)
            to[n] += x[n / D * WIDTH + c] * w[c * D + n % D];
    }
}

static layer make_layer(void)
{
    generator g;
    layer l;
    double x[N * WIDTH];
    seed(&g, 42);
    draw(&g, x, N * WIDTH, 1);
    seed(&g, 123);
    project(&g, x, l.q);
    project(&g, x, l.k);
    project(&g, x, l.v);
    seed(&g, 123); /* the tutorial seeds again, so the vectors begin with the numbers of W_q */
    draw(&g, l.a_k, (2 * FAR + 1) * D, sqrt(2.0 / (2 * FAR + 1 + D)));
    draw(&g, l.a_v, (2 * FAR + 1) * D, sqrt(2.0 / (2 * FAR + 1 + D)));
    return l;
}

static void compute(tutorial_row which, double *to)
{
    const layer l = make_layer();
    tutorial_problem p = {.len = N,
                          .dim = D,
                          .q = l.q,
                          .k = l.k,
                          .v = l.v,
                          .term = {rp_term_init(RP_TERM_RELKEY), rp_term_init(RP_TERM_RELVAL)},
                          .array = {l.a_k, l.a_v},
                          .n_terms = 2};
    for (int x = 0; x < 2; x++)
        p.term[x].left = p.term[x].right = FAR;
    tutorial_compute(&p, which, to);
}

static void weights(char *text, size_t size)
{
    double x[N * N];
    compute(TUTORIAL_WEIGHTS, x);
    tutorial_print(text, size, x, N, N, 3);
}

/* The offset with the largest mean weight, and that mean. */
static void profile(char *text, size_t size)
{
    double x[N * N], best = 0;
    int at = 0;
    compute(TUTORIAL_WEIGHTS, x);
    for (int offset = 1 - N; offset < N; offset++) {
        double sum = 0;
        int n = 0;
        for (int i = 0; i < N; i++)
            if (i + offset >= 0 && i + offset < N) {
                sum += x[i * N + i + offset];
                n++;
            }
        if (sum / n > best) {
            best = sum / n;
            at = offset;
        }
    }
    text[0] = 0;
    tutorial_add(text, size, "%d", at);
}

static void unseen(char *text, size_t size)
{
    const long all = 256L * 256, seen = 128L * 128;
    text[0] = 0;
    tutorial_add(text, size, "%ld of %ld", all - seen, all);
}

static void clip(char *text, size_t size)
{
    text[0] = 0;
    for (int j = 0; j < 10; j++) {
        const int offset = j - 5;
        tutorial_add(text, size, "%s%d", j ? " " : "", offset < -4 ? -4 : offset > 4 ? 4 : offset);
    }
}

static void beyond(char *text, size_t size)
{
    text[0] = 0;
    for (int offset = -5; offset <= 4; offset++)
        if (offset < -4 || offset > 4)
            tutorial_add(text, size, "%s%d", text[0] ? " " : "", offset);
}

static void parameters(char *text, size_t size)
{
    rp_term terms[2] = {rp_term_init(RP_TERM_RELKEY), rp_term_init(RP_TERM_RELVAL)};
    long long n = 0;
    for (int x = 0; x < 2; x++) {
        terms[x].left = terms[x].right = 64;
        n += (long long)tutorial_elements(&terms[x], 1, 64);
    }
    text[0] = 0;
    tutorial_add(text, size, "%lld", n);
}

static void pairs(char *text, size_t size)
{
    text[0] = 0;
    tutorial_add(text, size, "%d", 128 - 1);
}

static const tutorial_step steps[] = {
    {"pairs of positions in 256 tokens that training with 128 never saw", "49152 of 65536", unseen, NULL,
     "python3 -c 'print(256**2 - 128**2)'"},
    {"clipped offsets of keys 0 to 9, query 5, k = 4", "-4 -4 -3 -2 -1 0 1 2 3 4", clip, NULL,
     "python3 -c 'import relpos.numpy as r; print([r.clip_relative_position(j, 5, 4) for j in range(10)])'"},
    {"offsets of the clip table that exceed the limit 4", "-5 -4", beyond, "-4 is the limit itself", NULL},
    {"weights of the layer (seeds 42 and 123)",
     "0.008 0.028 0.001 0.120 0.620 0.223\n0.260 0.098 0.350 0.157 0.052 0.083\n0.794 0.002 0.077 0.122 0.002 0.002\n"
     "0.016 0.394 0.025 0.108 0.356 0.101\n0.475 0.023 0.002 0.130 0.069 0.301\n0.002 0.227 0.001 0.014 0.660 0.097",
     weights, NULL, "examples/s1.c"},
    {"offset with the largest mean weight", "0", profile,
     "the mean over i of the weights (i, i + 4) is 0.3518, and 0.0763 for offset 0", NULL},
    {"pairs with offset +1 in 128 tokens", "thousands", pairs, "offset r has 128 - |r| pairs",
     "python3 -c 'print(128 - 1)'"},
    {"parameters for k = 64, d_k = d_v = 64", "16512", parameters, NULL, NULL},
    {0},
};

const tutorial tutorial_s1 = {"s1", "Relative Position Encoding: Distance-Based Attention for Transformers",
                              "Michael Brenndoerfer's tutorial on Shaw, Uszkoreit, Vaswani 2018", steps};
