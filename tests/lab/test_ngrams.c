/* test_ngrams.c -- compares n-gram probabilities with the formula of Kneser and Ney, computed separately for each
 * string.
 * SPDX-License-Identifier: Apache-2.0 */
#include "lab/engine/nn.h"
#include "tests/helpers.h"
#include <math.h>
#include <string.h>

enum { N = 400, ORDER = 4, LETTERS = 5 };

static bool same(const int32_t *a, const int32_t *b, int n)
{
    return memcmp(a, b, (size_t)n * sizeof *a) == 0;
}

/* Count the occurrences of a string of k bytes; with `different`, count the distinct bytes that precede it. */
static int count(const int32_t *text, const int32_t *s, int k, bool different)
{
    bool seen[LETTERS] = {false};
    int n = 0;
    for (int x = 0; x + k <= N; x++) {
        if (!same(text + x, s, k) || (different && (x == 0 || seen[text[x - 1]])))
            continue;
        n++;
        if (different)
            seen[text[x - 1]] = true;
    }
    return n;
}

static double discount(const int32_t *text, int k, bool different)
{
    double once = 0, twice = 0;
    for (int x = 0; x + k <= N; x++) {
        bool first = true;
        for (int y = 0; y < x && first; y++)
            first = !same(text + x, text + y, k);
        const int n = first ? count(text, text + x, k, different) : 0;
        once += n == 1;
        twice += n == 2;
    }
    return once > 0 ? once / (once + 2 * twice) : 0;
}

/* Return the probability of the last of the k bytes in s, given the bytes before it. */
static double probability(const int32_t *text, const int32_t *s, int k, int order)
{
    if (k == 0)
        return 1.0 / 256;
    int32_t other[ORDER];
    double all = 0, kinds = 0;
    memcpy(other, s, (size_t)k * sizeof *s);
    for (int32_t c = 0; c < LETTERS; c++) {
        other[k - 1] = c;
        const int n = count(text, other, k, k < order);
        all += n;
        kinds += n > 0;
    }
    const double shorter = probability(text, s + 1, k - 1, order), d = discount(text, k, k < order);
    return all > 0 ? (fmax(count(text, s, k, k < order) - d, 0) + d * kinds * shorter) / all : shorter;
}

static void probabilities_follow_the_formula(void **state)
{
    int32_t text[N], before[ORDER - 1];
    char err[NN_ERR_MAX] = "";
    const nn_text t = {.tokens = text, .n = N};
    nn_ngrams *g;
    double worst = 0;
    (void)state;
    for (int x = 0; x < N; x++) /* some letters are rare, and some strings occur once, twice or never */
        text[x] = (int32_t)(LETTERS * layers_uniform(1, 2, (uint64_t)x) * layers_uniform(1, 3, (uint64_t)x));
    assert_int_equal(nn_ngrams_count(&g, &t, ORDER, err), 0);
    for (int order = 1; order <= ORDER; order++)
        for (int x = 0; x < 60; x++) {
            double sum = 0;
            for (int k = 0; k < ORDER - 1; k++)
                before[k] = (int32_t)(layers_random(4, (uint64_t)x, (uint64_t)k) % LETTERS);
            for (int32_t c = 0; c < 256; c++)
                sum += nn_ngrams_probability(g, order, before, ORDER - 1, c);
            assert_true(fabs(sum - 1) <= 1e-13);
            int32_t s[ORDER];
            memcpy(s, before, sizeof before);
            s[ORDER - 1] = x % LETTERS;
            const double want = probability(text, s + ORDER - order, order, order);
            const double found = nn_ngrams_probability(g, order, before, ORDER - 1, x % LETTERS);
            worst = fmax(worst, fabs(found - want) / want);
        }
    print_message("probabilities differ by at most %.2g, bound %.2g\n", worst, 1e-14);
    assert_true(worst <= 1e-14); /* some tens of roundings */
    /* with fewer preceding bytes, counts of shorter strings are used */
    assert_true(nn_ngrams_probability(g, 3, before, 1, 1) != nn_ngrams_probability(g, 3, before, 2, 1));
    nn_ngrams_free(g);
}

static void impossible_counts_are_refused(void **state)
{
    int32_t text[3] = {1, 2, 3};
    char err[NN_ERR_MAX] = "";
    const nn_text t = {.tokens = text, .n = 3};
    nn_ngrams *g;
    (void)state;
    assert_int_equal(nn_ngrams_count(&g, &t, NN_MAX_ORDER + 1, err), -1);
    assert_string_equal(err, "ngrams: order 8 is out of range (1 to 7)");
    assert_int_equal(nn_ngrams_count(&g, &t, 4, err), -1);
    assert_non_null(strstr(err, "the text has 3 bytes"));
    assert_int_equal(nn_ngrams_count(&g, &t, 3, err), 0);
    nn_ngrams_free(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(probabilities_follow_the_formula),
        cmocka_unit_test(impossible_counts_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
