/* test_formulas.c -- compares the frequencies of RoPE, the buckets and Sandwich with their formulas.
 * SPDX-License-Identifier: Apache-2.0 */
#include "tests/helpers.h"
#include "tests/golden/rope_scaling.h"

/* Compare with the frequencies that transformers computes in f32. */
static void frequencies_equal_transformers(void **state)
{
    static const char *const names[] = {"default", "linear", "dynamic", "yarn", "llama3", "longrope"};
    double worst = 0;
    (void)state;
    for (size_t n = 0; n < sizeof ROPE_GOLDEN / sizeof *ROPE_GOLDEN; n++) {
        const struct rope_golden *g = &ROPE_GOLDEN[n];
        double frequency[16], factor;
        rp_term t = rp_term_init(RP_TERM_ROPE);
        for (int s = 0; s < 6; s++)
            if (strcmp(names[s], g->type) == 0)
                t.scaling = (rp_scaling)s;
        const struct {
            double given, *to;
        } reals[] = {{g->factor, &t.factor},
                     {g->beta_fast, &t.beta_fast},
                     {g->beta_slow, &t.beta_slow},
                     {g->attention_factor, &t.attention_factor},
                     {g->mscale, &t.mscale},
                     {g->mscale_all_dim, &t.mscale_all_dim},
                     {g->low_freq_factor, &t.low_freq_factor},
                     {g->high_freq_factor, &t.high_freq_factor}};
        for (size_t x = 0; x < sizeof reals / sizeof *reals; x++)
            if (reals[x].given != 0) /* otherwise keep the default */
                *reals[x].to = reals[x].given;
        t.dim = g->dim;
        t.base = g->base;
        t.truncate = g->truncate;
        t.original_max_position_embeddings = (int64_t)g->original_max_position_embeddings;
        t.max_position_embeddings = (int64_t)g->max_position_embeddings;
        good(rp_rope_frequencies(&t, g->seq_len, g->short_factor, g->long_factor, frequency, &factor));
        for (int c = 0; c < g->n; c++) {
            const double error = fabs(frequency[c] / g->inv_freq[c] - 1);
            worst = fmax(worst, error);
            if (!(error <= 1e-6))
                fail_msg("%s: frequency %d is %.9g, in transformers %.9g", g->name, c, frequency[c], g->inv_freq[c]);
        }
        if (!(fabs(factor / g->attention_scaling - 1) <= 1e-12))
            fail_msg("%s: the factor is %.17g, in transformers %.17g", g->name, factor, g->attention_scaling);
    }
    print_message("frequencies: error %.3g, tolerance 1e-6\n", worst);
}

/* The smallest and largest numbers of buckets, and the offsets where the last bucket begins. */
static void buckets_end_where_they_should(void **state)
{
    (void)state;
    assert_int_equal(rp_bucket(INT64_MIN, 4, 2, 1, RP_STRATEGY_LOG), 1);
    assert_int_equal(rp_bucket(INT64_MAX, 4, 2, 1, RP_STRATEGY_LOG), 3);
    assert_int_equal(rp_bucket(INT64_MAX, 2, 2, 0, RP_STRATEGY_UNIFORM), 0);
    for (int s = 0; s < 4; s++) {
        const int64_t most = (int64_t)1 << 32, n = (int64_t)1 << 30;
        assert_int_equal(rp_bucket(INT64_MIN, n, most, 0, (rp_strategy)s), n - 1);
        assert_int_equal(rp_bucket(-most, n, most, 0, (rp_strategy)s), n - 1);
        assert_true(rp_bucket(1 - most, n, most, 0, (rp_strategy)s) >= n - 8);
        assert_true(rp_bucket(1 - most, n, most, 0, (rp_strategy)s) < n);
    }
}

/* The formulas of rp_strategy, in both directions, at offsets for which rounding cannot change the bucket. */
static void buckets_follow_their_formulas(void **state)
{
    (void)state;
    for (int s = 0; s < 4; s++)
        for (int64_t delta = -300; delta <= 300; delta++) {
            const int64_t n = 8, E = 4, M = 100, d = delta < 0 ? -delta : delta;
            const double x = (double)(d - E), rest = (double)(n - E), span = (double)(M - E);
            double want = (double)d;
            if (s == RP_STRATEGY_UNIFORM)
                want = (double)(d * n / M);
            else if (d >= E)
                want = (double)E + (s == RP_STRATEGY_LINEAR ? x * rest / span
                                    : s == RP_STRATEGY_QUADRATIC
                                        ? rest * sqrt(x / span)
                                        : log((double)d / (double)E) / log((double)M / (double)E) * rest);
            const int64_t low = (int64_t)fmin(want - 1e-6, (double)n - 1),
                          high = (int64_t)fmin(want + 1e-6, (double)n - 1);
            const int64_t one = rp_bucket(delta, n, M, 0, (rp_strategy)s),
                          two = rp_bucket(delta, 2 * n, M, 1, (rp_strategy)s);
            assert_true(delta > 0 ? one == 0 : one == low || one == high);
            assert_true(two - (delta > 0 ? n : 0) == low || two - (delta > 0 ? n : 0) == high);
        }
}

/* Sandwich of many cosines: sum over k < dim/2 of cos((j - i) / base^(2k/dim)), divided by 8 (h+1)/H. */
static void sandwich_sums_many_cosines(void **state)
{
    enum { HEADS = 2, LENGTH = 30, DIM = 100 };
    double bias[HEADS][LENGTH][LENGTH], worst = 0;
    const int64_t shape[3] = {HEADS, LENGTH, LENGTH};
    const rp_array array = rp_array_of(bias, RP_F64, 3, shape);
    rp_desc d = rp_desc_init(1, HEADS, LENGTH, LENGTH, 4);
    rp_term term = rp_term_init(RP_TERM_SANDWICH);
    const rp_tensors t = rp_tensors_init();
    rp_plan *plan;
    (void)state;
    term.dim = DIM;
    d.terms = &term;
    d.n_terms = 1;
    good(rp_plan_create(&plan, &d));
    good(rp_bias(plan, &t, 0, &array));
    for (int h = 0; h < HEADS; h++)
        for (int i = 0; i < LENGTH; i++)
            for (int j = 0; j < LENGTH; j++) {
                double sum = 0;
                for (int k = 0; k < DIM / 2; k++)
                    sum += cos((j - i) * pow(term.base, -2.0 * k / DIM));
                worst = fmax(worst, fabs(bias[h][i][j] - sum * HEADS / (8.0 * (h + 1))));
            }
    print_message("sandwich: error %.3g, tolerance 1e-12\n", worst);
    assert_true(worst <= 1e-12); /* DIM / 2 cosines of angles of at most LENGTH, with 20 roundings each */
    rp_plan_destroy(plan);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(frequencies_equal_transformers),
        cmocka_unit_test(buckets_end_where_they_should),
        cmocka_unit_test(buckets_follow_their_formulas),
        cmocka_unit_test(sandwich_sums_many_cosines),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
