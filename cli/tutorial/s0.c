/* s0.c -- "Relative Position Bias Attention", a course chapter: the sentence "The cat sat on mat".
 * SPDX-License-Identifier: Apache-2.0 */
#include "cli/tutorial/tutorial.h"
#include <math.h>

enum { N = 5, D = 4 };
static const double q[N * D] = {1, 0, 1, 0, 0, 2, 0, 1, 1, 1, 1, 0, 0, 0, 1, 1, 1, 0, 0, 1};
static const double k[N * D] = {0, 1, 0, 1, 1, 0, 1, 0, 1, 1, 0, 0, 0, 0, 1, 1, 1, 0, 0.5, 0.5};
static const double v[N * D] = {1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 0.5, 0.5, 0.5, 0.5};

static void numbers(double lambda, tutorial_row which, double *to)
{
    tutorial_problem p = {
        .len = N, .dim = D, .q = q, .k = k, .v = v, .term = {rp_term_init(RP_TERM_LOG)}, .n_terms = 1};
    p.term[0].lambda = lambda;
    tutorial_compute(&p, which, to);
}

static void print(char *text, size_t size, double lambda, tutorial_row which, int digits)
{
    double x[N * N];
    numbers(lambda, which, x);
    tutorial_print(text, size, x, N, which == TUTORIAL_OUT ? D : N, digits);
}

static void raw(char *text, size_t size)
{
    print(text, size, 0.3, TUTORIAL_RAW, 1);
}

static void scaled(char *text, size_t size)
{
    print(text, size, 0.3, TUTORIAL_SCALED, 3);
}

static void bias(char *text, size_t size)
{
    print(text, size, 0.3, TUTORIAL_BIAS, 4);
}

static void biased(char *text, size_t size)
{
    print(text, size, 0.3, TUTORIAL_SCORE, 4);
}

/* The sums of exp(score - largest score) of rows 0 and 2. */
static void sums(char *text, size_t size)
{
    double x[N * N], sum[2] = {0};
    numbers(0.3, TUTORIAL_SCORE, x);
    for (int row = 0; row < 2; row++) {
        const double *score = x + 2 * row * N;
        double most = score[0];
        for (int j = 1; j < N; j++)
            most = fmax(most, score[j]);
        for (int j = 0; j < N; j++)
            sum[row] += exp(score[j] - most);
    }
    tutorial_print(text, size, sum, 2, 1, 4);
}

static void weights(char *text, size_t size)
{
    print(text, size, 0.3, TUTORIAL_WEIGHTS, 4);
}

static void output(char *text, size_t size)
{
    print(text, size, 0.3, TUTORIAL_OUT, 4);
}

static void standard(char *text, size_t size)
{
    print(text, size, 0, TUTORIAL_WEIGHTS, 4);
}

static void standard_output(char *text, size_t size)
{
    print(text, size, 0, TUTORIAL_OUT, 4);
}

static void differences(double x[N * N])
{
    double without[N * N];
    numbers(0.3, TUTORIAL_WEIGHTS, x);
    numbers(0, TUTORIAL_WEIGHTS, without);
    for (int n = 0; n < N * N; n++)
        x[n] -= without[n];
}

static void difference(char *text, size_t size)
{
    double x[N * N];
    differences(x);
    tutorial_print(text, size, x, N, N, 4);
}

static void lost_by_edges(char *text, size_t size)
{
    double x[N * N];
    differences(x);
    tutorial_print(text, size, (const double[]){x[2 * N], x[2 * N + 4]}, 1, 2, 4);
}

static void gained(char *text, size_t size)
{
    double x[N * N], diagonal[N];
    differences(x);
    text[0] = 0;
    for (int i = 0; i < N; i++) {
        int before = 0; /* how many gain more */
        diagonal[i] = x[i * N + i];
        for (int j = 0; j < N; j++)
            before += x[j * N + j] > diagonal[i];
        tutorial_add(text, size, "%s%d", i ? " " : "", before + 1);
    }
}

static void offsets(char *text, size_t size)
{
    text[0] = 0;
    for (int j = 0; j < N; j++)
        tutorial_add(text, size, "%s%d", j ? " " : "", j);
}

static void buckets(char *text, size_t size)
{
    text[0] = 0;
    for (int d = 12; d <= 16; d++)
        tutorial_add(text, size, "%s%d", d > 12 ? " " : "", (int)rp_bucket(-d, 32, 128, 1, RP_STRATEGY_LOG));
}

static void doubled(char *text, size_t size)
{
    tutorial_print(text, size, (const double[]){log(1 + 4 * 25) / log(1 + 25), log(1 + 4 * 1) / log(1 + 1)}, 1, 2, 2);
}

static const tutorial_step steps[] = {
    {"raw scores Q K^T",
     "0.0 2.0 1.0 1.0 1.5\n3.0 0.0 2.0 1.0 0.5\n1.0 2.0 2.0 1.0 1.5\n1.0 1.0 0.0 2.0 1.0\n1.0 1.0 1.0 1.0 1.5", raw,
     NULL, "relpos explain --query 0 --bias log,lambda=0.3"},
    {"scores divided by sqrt(4)",
     "0.000 1.000 0.500 0.500 0.750\n1.500 0.000 1.000 0.500 0.250\n0.500 1.000 1.000 0.500 0.750\n"
     "0.500 0.500 0.000 1.000 0.500\n0.500 0.500 0.500 0.500 0.750",
     scaled, NULL, "relpos explain --query 0 --bias log,lambda=0.3"},
    {"bias B = -0.3 log(1 + |i - j|)",
     "0.0000 -0.2079 -0.3296 -0.4159 -0.4828\n-0.2079 0.0000 -0.2079 -0.3296 -0.4159\n"
     "-0.3296 -0.2079 0.0000 -0.2079 -0.3296\n-0.4159 -0.3296 -0.2079 0.0000 -0.2079\n"
     "-0.4828 -0.4159 -0.3296 -0.2079 0.0000",
     bias, NULL, "relpos bias log,lambda=0.3 --q 5 --k 5"},
    {"biased scores",
     "0.0000 0.7921 0.1704 0.0841 0.2672\n1.2921 0.0000 0.7921 0.1704 -0.1659\n"
     "0.1704 0.7921 1.0000 0.2921 0.4204\n0.0841 0.1704 -0.2079 1.0000 0.2921\n"
     "0.0172 0.0841 0.1704 0.2921 0.7500",
     biased, NULL, "relpos explain --query 0 --bias log,lambda=0.3"},
    {"softmax of \"The\" and of \"sat\": sums of the exponentials", "3.0743\n3.3013", sums, NULL,
     "relpos explain --query 0 --bias log,lambda=0.3"},
    {"weights",
     "0.1473 0.3253 0.1747 0.1603 0.1924\n0.4099 0.1126 0.2486 0.1335 0.0954\n0.1321 0.2460 0.3029 0.1492 0.1697\n"
     "0.1523 0.1660 0.1137 0.3805 0.1875\n0.1508 0.1612 0.1758 0.1985 0.3138",
     weights, NULL, "examples/s0.c"},
    {"output",
     "0.2435 0.4215 0.2709 0.2565\n0.4576 0.1603 0.2963 0.1812\n0.2170 0.3309 0.3877 0.2341\n"
     "0.2460 0.2597 0.2074 0.4743\n0.3077 0.3181 0.3326 0.3554",
     output, NULL, "examples/s0.c"},
    {"weights without bias",
     "0.1095 0.2976 0.1805 0.1805 0.2318\n0.4026 0.0898 0.2442 0.1481 0.1153\n0.1519 0.2505 0.2505 0.1519 0.1951\n"
     "0.1903 0.1903 0.1154 0.3137 0.1903\n0.1892 0.1892 0.1892 0.1892 0.2430",
     standard, NULL, "relpos explain --query 0 --bias log,lambda=0"},
    {"output without bias",
     "0.2254 0.4135 0.2964 0.2964\n0.4602 0.1475 0.3018 0.2058\n0.2495 0.3481 0.3481 0.2495\n"
     "0.2854 0.2854 0.2106 0.4089\n0.3108 0.3108 0.3108 0.3108",
     standard_output, NULL, "relpos explain --query 0 --bias log,lambda=0"},
    {"weights with bias minus weights without",
     "0.0378 0.0276 -0.0058 -0.0203 -0.0394\n0.0073 0.0228 0.0044 -0.0146 -0.0200\n"
     "-0.0198 -0.0045 0.0524 -0.0027 -0.0254\n-0.0380 -0.0243 -0.0017 0.0668 -0.0028\n"
     "-0.0385 -0.0280 -0.0135 0.0092 0.0708",
     difference, NULL, "examples/s0.c"},
    {"what \"The\" and \"mat\" lose in the row \"sat\"", "-0.0198 -0.0198", lost_by_edges,
     "the text says that both lose equally; the biases are equal, but the scores are not", NULL},
    {"ranks of the five tokens by what they gain for themselves", "1 3 3 3 1", gained,
     "the text says that the two edge tokens gain most; \"The\" is fourth of five", NULL},
    {"relative_pos of the vectorized listing, row 0", "0 -1 -2 -3 -4", offsets,
     "the code subtracts a column of positions from a row, so entry (i, j) is j - i; the bias uses |i - j|",
     "relpos bias linear,left=0,right=-1 --q 5 --k 5"},
    {"buckets of distances 12 to 16 before the query, 32 buckets to 128", "9 9 9 9 9", buckets,
     "8 + floor(8 log(16/8) / log(128/8)) = 10: distance 16 starts the next bucket",
     "relpos bucket -- -12 -13 -14 -15 -16"},
    {"factor of log(1 + d) when the distance grows from 25 to 100, and from 1 to 4", "2.00 2.00", doubled,
     "the takeaways say that a distance four times as large doubles the logarithm; it adds less than log 4", NULL},
    {0},
};

const tutorial tutorial_s0 = {"s0", "Relative Position Bias Attention",
                              "a course chapter; the sentence \"The cat sat on mat\"", steps};
