/* test_golden.c -- recomputes published worked examples through the public interface and compares the results with the
 * printed digits.
 *
 * golden.h contains the examples (docs/texts lists them, with the printed numbers that are wrong); t5_buckets.h
 * contains the buckets of Hugging Face's T5. Every check prints the largest error and its tolerance. The plain loops in
 * this file follow the formulas. The stored numbers, the plain loops and the library must all agree.
 * SPDX-License-Identifier: Apache-2.0 */
#include "tests/golden/example.h"
#include "tests/golden/golden.h"
#include "tests/golden/t5_buckets.h"

/* ------------------------------------------------------------------------------------------------ the sentence */

static void cat_with_decay(rp_dtype dtype, double extra)
{
    struct example e = example_of(CAT_Q, CAT_K, CAT_V, 5, 4);
    struct result r;
    rp_term decay = rp_term_init(RP_TERM_LOG);
    decay.lambda = CAT_LAMBDA[0];
    example_add(&e, decay, NULL);
    run(&e, dtype, &r);
    near("sentence: raw", r.raw, CAT_RAW_PRINT, COUNT(CAT_RAW_PRINT), extra);
    near("sentence: scaled", r.scaled, CAT_SCALED_PRINT, COUNT(CAT_SCALED_PRINT), extra);
    near("sentence: bias", r.bias, CAT_BIAS_PRINT, COUNT(CAT_BIAS_PRINT), HALF(4) + extra);
    near("sentence: bias by rp_bias", r.only_bias, CAT_BIAS_PRINT, COUNT(CAT_BIAS_PRINT), HALF(4) + extra);
    near("sentence: biased score", r.score, CAT_BIASED_PRINT, COUNT(CAT_BIASED_PRINT), HALF(4) + extra);
    near("sentence: weights", r.weights, CAT_WEIGHTS_PRINT, COUNT(CAT_WEIGHTS_PRINT), HALF(4) + extra);
    near("sentence: output", r.out, CAT_OUT_PRINT, COUNT(CAT_OUT_PRINT), HALF(4) + extra);
    near("sentence: weights in full", r.weights, CAT_WEIGHTS, COUNT(CAT_WEIGHTS), extra);
    near("sentence: output in full", r.out, CAT_OUT, COUNT(CAT_OUT), extra);
    near("sentence: traced weights", r.row_weights, CAT_WEIGHTS, COUNT(CAT_WEIGHTS), TINY);
    near("sentence: traced output", r.row_out, CAT_OUT, COUNT(CAT_OUT), TINY);

    struct example plain = example_of(CAT_Q, CAT_K, CAT_V, 5, 4);
    struct result s;
    double diff[COUNT(CAT_DIFF_PRINT)];
    run(&plain, dtype, &s);
    near("sentence: standard weights", s.weights, CAT_STD_WEIGHTS_PRINT, COUNT(CAT_STD_WEIGHTS_PRINT), HALF(4) + extra);
    near("sentence: standard output", s.out, CAT_STD_OUT_PRINT, COUNT(CAT_STD_OUT_PRINT), HALF(4) + extra);
    for (size_t x = 0; x < COUNT(diff); x++)
        diff[x] = r.weights[x] - s.weights[x];
    near("sentence: difference", diff, CAT_DIFF_PRINT, COUNT(diff), HALF(4) + extra);

    e.terms[0].lambda = 0.0; /* a lambda of 0 gives no bias */
    run(&e, dtype, &r);
    near("sentence: lambda 0 = standard", r.out, s.out, COUNT(CAT_OUT), extra);
}

static void the_sentence_with_decay_f64(void **state)
{
    (void)state;
    cat_with_decay(RP_F64, TINY);
}

static void the_sentence_with_decay_f32(void **state)
{
    (void)state;
    cat_with_decay(RP_F32, F32);
}

/* ------------------------------------------------------------------------------------------------ Shaw */

static void shaw_in(rp_dtype dtype, double tolerance)
{
    enum { N = 6, D = 4, CLIP = 3 };
    struct example e = example_of(SHAW_Q, SHAW_K, SHAW_V, N, D);
    struct result r;
    double score[N * N], weights[N * N], out[N * D], profile[2 * N - 1];
    example_add(&e, term_of(RP_TERM_RELKEY, CLIP, CLIP), SHAW_A_K);
    example_add(&e, term_of(RP_TERM_RELVAL, CLIP, CLIP), SHAW_A_V);
    run(&e, dtype, &r);

    for (int64_t i = 0; i < N; i++)
        for (int64_t j = 0; j < N; j++) {
            const double *a = SHAW_A_K + (plain_clamp(j - i, -CLIP, CLIP) + CLIP) * D;
            const double *q = SHAW_Q + i * D;
            score[i * N + j] = (plain_dot(q, SHAW_K + j * D, D) + plain_dot(q, a, D)) / sqrt(D);
        }
    plain_softmax(score, weights, N, N);
    for (int64_t i = 0; i < N; i++)
        for (int64_t c = 0; c < D; c++) {
            out[i * D + c] = 0.0;
            for (int64_t j = 0; j < N; j++)
                out[i * D + c] += weights[i * N + j] *
                                  (SHAW_V[j * D + c] + SHAW_A_V[(plain_clamp(j - i, -CLIP, CLIP) + CLIP) * D + c]);
        }
    for (int64_t delta = 1 - N; delta < N; delta++) {
        profile[delta + N - 1] = 0.0;
        for (int64_t i = 0; i < N; i++)
            if (i + delta >= 0 && i + delta < N)
                profile[delta + N - 1] += weights[i * N + i + delta] / (double)(N - llabs(delta));
    }
    double combined[N * N];
    for (size_t x = 0; x < COUNT(combined); x++)
        combined[x] = SHAW_CONTENT[x] + SHAW_POSITION[x];
    near("Shaw: loops, scores", score, combined, COUNT(score), TINY);
    near("Shaw: loops, weights", weights, SHAW_WEIGHTS, COUNT(weights), TINY);
    near("Shaw: loops, output", out, SHAW_OUT, COUNT(out), TINY);
    near("Shaw: loops, profile", profile, SHAW_PROFILE, COUNT(profile), TINY);
    near("Shaw: traced content + position", r.score, score, COUNT(score), dtype == RP_F32 ? 10 * F32 : TINY);
    near("Shaw: weights as printed", r.weights, SHAW_WEIGHTS_PRINT, COUNT(SHAW_WEIGHTS_PRINT), HALF(3) + tolerance);
    near("Shaw: weights", r.weights, weights, COUNT(weights), tolerance);
    near("Shaw: output", r.out, out, COUNT(out), tolerance);
    near("Shaw: stored output", r.out, SHAW_OUT, COUNT(SHAW_OUT), tolerance);
    near("Shaw: profile", r.profile, SHAW_PROFILE, COUNT(SHAW_PROFILE), tolerance);

    struct example plain = example_of(SHAW_Q, SHAW_K, SHAW_V, N, D);
    run(&plain, dtype, &r);
    near("Shaw: content scores", r.scaled, SHAW_CONTENT, COUNT(SHAW_CONTENT), dtype == RP_F32 ? 10 * F32 : TINY);
    near("Shaw: content weights", r.weights, SHAW_CONTENT_WEIGHTS, COUNT(SHAW_CONTENT_WEIGHTS), tolerance);
}

static void the_formula_of_shaw_holds_in_f64(void **state)
{
    (void)state;
    shaw_in(RP_F64, TINY);
}

static void the_formula_of_shaw_holds_in_f32(void **state)
{
    (void)state;
    shaw_in(RP_F32, 10 * F32); /* scores reach 5.1, so rounding q, k and v to f32 alone changes them by this much */
}

/* The query is at position 5, with keys 0 to 9 and clip 4. Each table entry is its own offset. */
static void a_clipped_table_holds_its_offsets(void **state)
{
    static const double self[9] = {-4, -3, -2, -1, 0, 1, 2, 3, 4};
    static const int64_t q_shape[4] = {1, 1, 1, 1}, k_shape[4] = {1, 1, 10, 1}, table_shape[2] = {1, 9};
    static const int64_t bias_shape[3] = {1, 1, 10};
    double zero[10] = {0}, got[10], want[10];
    rp_term term = term_of(RP_TERM_TABLE, 4, 4);
    rp_desc d = rp_desc_init(1, 1, 1, 10, 1);
    rp_tensors t = rp_tensors_init();
    rp_plan *plan = NULL;
    (void)state;
    d.dtype = RP_F64;
    d.q_offset = 5;
    d.terms = &term;
    d.n_terms = 1;
    good(rp_plan_create(&plan, &d));
    t.q = rp_array_of(zero, RP_F64, 4, q_shape);
    t.k = t.v = rp_array_of(zero, RP_F64, 4, k_shape);
    t.term[0][0] = rp_array_of(self, RP_F64, 2, table_shape);
    rp_array bias = rp_array_of(got, RP_F64, 3, bias_shape);
    good(rp_bias(plan, &t, 0, &bias));
    rp_plan_destroy(plan);
    for (size_t j = 0; j < COUNT(want); j++)
        want[j] = (double)SHAW_CLIP5[j];
    near("clip table of the query at 5", got, want, COUNT(want), 0.0);
}

/* The query is uniform, at offset 0; the vectors are those that the example simulates; keys are zeros. So the scores
 * are the pattern. */
static void the_pattern_prefers_near_offsets(void **state)
{
    enum { CLIP = 5, OFFSETS = 2 * CLIP + 1, D = 4 };
    static const int64_t q_shape[4] = {1, 1, 1, D}, k_shape[4] = {1, 1, OFFSETS, D}, table_shape[3] = {1, OFFSETS, D};
    double q[D] = {0.5, 0.5, 0.5, 0.5}, k[OFFSETS * D] = {0}, table[OFFSETS * D], score[OFFSETS];
    rp_term term = term_of(RP_TERM_RELKEY, CLIP, CLIP);
    rp_desc d = rp_desc_init(1, 1, 1, OFFSETS, D);
    rp_tensors t = rp_tensors_init();
    rp_row row = {.score = score};
    rp_plan *plan = NULL;
    (void)state;
    for (int x = 0; x < OFFSETS * D; x++)
        table[x] = SHAW_NOISE[x] + (x % D == 0 ? exp(-0.5 * (x / D - CLIP) * (x / D - CLIP)) : 0);
    d.dtype = RP_F64, d.q_offset = CLIP, d.scale = 1;
    d.terms = &term, d.n_terms = 1;
    good(rp_plan_create(&plan, &d));
    t.q = rp_array_of(q, RP_F64, 4, q_shape);
    t.k = rp_array_of(k, RP_F64, 4, k_shape);
    t.term[0][0] = rp_array_of(table, RP_F64, 3, table_shape);
    good(rp_attend_row(plan, &t, 0, 0, 0, &row));
    rp_plan_destroy(plan);
    near("Shaw: simulated pattern", score, SHAW_PATTERN, OFFSETS, TINY);
}

/* A model trained on 128 positions runs on 256. Count the pairs of positions that never occurred in training, and the
 * pairs with the same offset. */
static void an_offset_stands_for_unseen_pairs(void **state)
{
    int64_t unseen = 0, total = 0, pairs_of_one = 0;
    (void)state;
    for (int64_t i = 0; i < SHAW_PAIRS[1]; i++)
        for (int64_t j = 0; j < SHAW_PAIRS[1]; j++) {
            total++;
            unseen += i >= SHAW_PAIRS[0] || j >= SHAW_PAIRS[0];
        }
    for (int64_t i = 0; i < SHAW_PAIRS[0]; i++)
        pairs_of_one += i + 1 < SHAW_PAIRS[0];
    assert_int_equal(unseen, SHAW_PAIRS[2]);
    assert_int_equal(total, SHAW_PAIRS[3]);
    assert_int_equal(pairs_of_one, 127); /* the source says thousands (docs/texts/s1.md) */
}

/* ------------------------------------------------------------------------------------------------ vision notes */

/* Three tokens with q = k = v = x. `want` contains scores printed to 3 decimals; the weights follow from them. */
static void three_tokens(const char *what, const struct example *e, const double *want, double tolerance)
{
    struct result r, s;
    double weights[9], out[6] = {0};
    run(e, RP_F64, &r);
    near(what, r.score, want, 9, tolerance);
    plain_softmax(r.score, weights, 3, 3);
    for (int64_t i = 0; i < 3; i++)
        for (int64_t j = 0; j < 3; j++)
            for (int64_t c = 0; c < 2; c++)
                out[i * 2 + c] += weights[i * 3 + j] * VIT3_X[j * 2 + c];
    near("  weights", r.weights, weights, 9, TINY);
    near("  output", r.out, out, 6, TINY);
    run(e, RP_F32, &s);
    near("  output in f32", s.out, out, 6, F32);
}

static struct example three(void)
{
    return example_of(VIT3_X, VIT3_X, VIT3_X, 3, 2);
}

static void three_tokens_with_biases(void **state)
{
    struct example e = three();
    (void)state;
    three_tokens("three tokens: content", &e, VIT3_CONTENT_PRINT, HALF(3) + TINY);

    example_add(&e, term_of(RP_TERM_TABLE, 2, 2), VIT3_BIAS_TABLE);
    three_tokens("three tokens: additive bias", &e, VIT3_BIAS_PRINT, HALF(3) + TINY);

    e = three();
    example_add(&e, term_of(RP_TERM_RELKEY, 2, 2), VIT3_SHAW_TABLE);
    three_tokens("three tokens: Shaw", &e, VIT3_SHAW_PRINT, HALF(3) + TINY);
}

/* The example adds -m (i - j), including its sign: negative before the query, positive after it. This equals `linear`
 * with rates m and -m, and a table; the real ALiBi uses |i - j|. With a causal mask the three agree. */
static void a_signed_slope_is_linear(void **state)
{
    const double m = VIT3_SLOPE[0], slope[5] = {-2 * m, -m, 0, m, 2 * m};
    struct example e = three(), table = three(), alibi = three();
    struct result r, s;
    rp_term linear = rp_term_init(RP_TERM_LINEAR);
    (void)state;
    linear.rate_left = m;
    linear.rate_right = -m;
    example_add(&e, linear, NULL);
    three_tokens("three tokens: signed slope by LINEAR", &e, VIT3_LINEAR_PRINT, HALF(3) + TINY);
    example_add(&table, term_of(RP_TERM_TABLE, 2, 2), slope);
    three_tokens("three tokens: signed slope by TABLE", &table, VIT3_LINEAR_PRINT, HALF(3) + TINY);

    example_add(&alibi, rp_term_init(RP_TERM_ALIBI), VIT3_SLOPE);
    e.masks[0].kind = alibi.masks[0].kind = RP_MASK_CAUSAL;
    e.n_masks = alibi.n_masks = 1;
    run(&e, RP_F64, &r);
    run(&alibi, RP_F64, &s);
    near("three tokens: causal ALiBi = causal LINEAR", s.weights, r.weights, 9, TINY);
}

/* Compute <R(p_i a) x_i, R(p_j a) x_j> / sqrt 2 for pairs of channels, from the rotation formula. */
static void plain_rope(double angle, double *score)
{
    double turned[3][2];
    for (int64_t p = 0; p < 3; p++) {
        const double *x = VIT3_X + p * 2, c = cos((double)p * angle), s = sin((double)p * angle);
        turned[p][0] = c * x[0] - s * x[1];
        turned[p][1] = s * x[0] + c * x[1];
    }
    for (int64_t i = 0; i < 3; i++)
        for (int64_t j = 0; j < 3; j++)
            score[i * 3 + j] = plain_dot(turned[i], turned[j], 2) / sqrt(2.0);
}

/* Pair 0 of RoPE rotates by 1 radian per position, whatever the base, so a width of 2 cannot rotate by 30 degrees. In a
 * width of 4, pair 1 rotates by base^(-1/2), which is pi/6 for base = (6/pi)^2. Hence the tokens are put into pair 1,
 * and pair 0 is zero. */
static void three_tokens_with_rope(void **state)
{
    double want[9];
    struct example e = three();
    (void)state;
    plain_rope(1.0, want);
    for (int layout = 0; layout < 2; layout++) {
        e = three();
        rp_term rope = rp_term_init(RP_TERM_ROPE);
        rope.layout = (rp_layout)layout;
        rope.base = layout ? 10000.0 : 7.0; /* the base has no effect on pair 0 */
        example_add(&e, rope, NULL);
        three_tokens("three tokens: rotary, 1 radian", &e, want, TINY);
    }

    plain_rope(PI / 6, want);
    near("three tokens: rotation formula, 30 degrees", want, VIT3_ROPE30, 9, TINY);
    for (int layout = 0; layout < 2; layout++) {
        double wide[12] = {0};
        struct result r;
        for (int64_t p = 0; p < 3; p++) { /* half: pairs (0,2) and (1,3); interleaved: (0,1) and (2,3) */
            wide[p * 4 + (layout == RP_LAYOUT_HALF ? 1 : 2)] = VIT3_X[p * 2];
            wide[p * 4 + 3] = VIT3_X[p * 2 + 1];
        }
        e = example_of(wide, wide, wide, 3, 4);
        e.scale = 1 / sqrt(2.0);
        rp_term rope = rp_term_init(RP_TERM_ROPE);
        rope.layout = (rp_layout)layout;
        rope.base = 36 / (PI * PI);
        example_add(&e, rope, NULL);
        run(&e, RP_F64, &r);
        near("three tokens: rotary, 30 degrees, corrected", r.score, VIT3_ROPE30, 9, TINY);
    }
}

static void four_patches_with_each_sign_of_the_offset(void **state)
{
    struct example e = example_of(VIT4_X, VIT4_X, VIT4_X, 4, 2);
    struct result r, s;
    double bias[16], weights[16];
    (void)state;
    run(&e, RP_F64, &r);
    near("four patches: no positions, corrected", r.score, VIT4_CONTENT, 16, TINY);

    e = example_of(VIT4_PLACED, VIT4_PLACED, VIT4_X, 4, 2);
    run(&e, RP_F64, &r);
    near("four patches: absolute positions, corrected", r.score, VIT4_ABSOLUTE, 16, TINY);

    e = example_of(VIT4_X, VIT4_X, VIT4_X, 4, 2);
    example_add(&e, rp_term_init(RP_TERM_DENSE), VIT4_BIAS);
    run(&e, RP_F64, &r);
    near("four patches: query minus key, corrected", r.score, VIT4_RELATIVE, 16, TINY);
    plain_softmax(VIT4_RELATIVE, weights, 4, 4);
    near("four patches: weights", r.weights, weights, 16, TINY);
    run(&e, RP_F32, &s);
    near("four patches: weights in f32", s.weights, weights, 16, F32);

    for (int64_t i = 0; i < 4; i++)
        for (int64_t j = 0; j < 4; j++)
            bias[i * 4 + j] = VIT4_BIAS[j * 4 + i]; /* the sign of the offset is reversed */
    e.array[0] = bias;
    run(&e, RP_F64, &r);
    near("four patches: key minus query", r.score, VIT4_RELATIVE_FLIPPED, 16, TINY);
}

static void seven_tokens_share_the_clipped_offsets(void **state)
{
    static const double self[5] = {2, 1, 0, -1, -2}; /* values are i - j, stored in the order of delta = j - i */
    double zero[7] = {0}, clip[49];
    struct example e = example_of(zero, zero, zero, 7, 1);
    struct result r;
    (void)state;
    for (size_t x = 0; x < COUNT(clip); x++)
        clip[x] = (double)VIT7_CLIP_PRINT[x];
    example_add(&e, term_of(RP_TERM_TABLE, 2, 2), self);
    run(&e, RP_F64, &r);
    near("seven tokens: clipped offsets", r.only_bias, clip, COUNT(clip), 0.0);
    e.array[0] = VIT3_BIAS_TABLE;
    run(&e, RP_F64, &r);
    near("seven tokens: biases", r.only_bias, VIT7_BIAS_PRINT, COUNT(VIT7_BIAS_PRINT), TINY);
    near("seven tokens: scores are the biases", r.score, r.only_bias, COUNT(clip), 0.0);
}

/* ------------------------------------------------------------------------------------------------ buckets */

static void t5_buckets_of_the_page(void **state)
{
    (void)state;
    for (size_t x = 0; x < COUNT(T5_DELTA); x++) {
        assert_int_equal(rp_bucket(T5_DELTA[x], 32, 128, 1, RP_STRATEGY_LOG), T5_BUCKET[x]);
        assert_int_equal(rp_bucket(T5_DELTA[x], 32, 128, 0, RP_STRATEGY_LOG), T5_BUCKET_CAUSAL[x]);
    }
    for (int64_t delta = -300; delta <= 300; delta++) /* offset 0 is in the first half, so this bucket stays empty */
        assert_int_not_equal(rp_bucket(delta, 32, 128, 1, RP_STRATEGY_LOG), 16);
}

/* Compare the ten settings with the original at every offset. */
static void t5_buckets_of_the_original(void **state)
{
    (void)state;
    for (size_t n = 0; n < COUNT(T5_SETTINGS); n++) {
        const struct t5_setting *s = &T5_SETTINGS[n];
        int64_t differ = 0, run_at = 0;
        for (int64_t delta = -T5_SPAN; delta <= T5_SPAN; delta++) {
            if (run_at + 1 < s->n_runs && s->runs[run_at + 1][0] == delta)
                run_at++;
            const int64_t got = rp_bucket(delta, s->buckets, s->max_distance, s->bidirectional, RP_STRATEGY_LOG);
            if (got != s->runs[run_at][1] && differ++ == 0)
                print_message("offset %lld: bucket %lld, not %lld\n", (long long)delta, (long long)got,
                              (long long)s->runs[run_at][1]);
        }
        assert_int_equal(run_at + 1, s->n_runs);
        print_message("T5, %3d buckets, maximum distance %5d, %s: %lld of %d offsets differ, tolerance 0\n",
                      (int)s->buckets, (int)s->max_distance, s->bidirectional ? "bidirectional" : "causal       ",
                      (long long)differ, 2 * T5_SPAN + 1);
        assert_int_equal(differ, 0);
        const int64_t ends[2] = {INT64_MIN, INT64_MAX}; /* every offset is allowed, up to the ends of int64 */
        for (int64_t x = 0; x < 2; x++)
            assert_int_equal(rp_bucket(ends[x], s->buckets, s->max_distance, s->bidirectional, RP_STRATEGY_LOG),
                             s->runs[x ? s->n_runs - 1 : 0][1]);
    }
}

/* At these offsets a logarithm in f64, or one in f32 whose last bit is wrong, gives the neighbouring bucket. */
static void t5_takes_its_logarithm_in_f32(void **state)
{
    (void)state;
    for (size_t n = 0; n < COUNT(T5_F32_WITNESS); n++) {
        const int32_t *w = T5_F32_WITNESS[n];
        assert_int_not_equal(w[4], w[5]);
        assert_int_equal(rp_bucket(w[3], w[0], w[1], w[2], RP_STRATEGY_LOG), w[4]);
    }
    for (size_t n = 0; n < COUNT(T5_LOGF_WITNESS); n++) {
        const int32_t *w = T5_LOGF_WITNESS[n];
        assert_int_equal(rp_bucket(w[3], w[0], w[1], w[2], RP_STRATEGY_LOG), w[4]);
    }
}

/* Compute floor((n-E) sqrt((d-E)/(M-E))) without a square root: the largest t with t^2 (M-E) <= (n-E)^2 (d-E). */
static int64_t quadratic_step(int64_t d, int64_t n, int64_t most)
{
    const int64_t exact = n / 2;
    int64_t t = 0;
    while ((t + 1) * (t + 1) * (most - exact) <= (n - exact) * (n - exact) * (d - exact))
        t++;
    return t;
}

static int64_t plain_bucket(int64_t delta, int64_t buckets, int64_t most, int32_t bidirectional, rp_strategy strategy)
{
    const int64_t n = bidirectional ? buckets / 2 : buckets, exact = n / 2;
    const int64_t d = bidirectional ? llabs(delta) : delta < 0 ? -delta : 0;
    int64_t b = d;
    if (strategy == RP_STRATEGY_UNIFORM)
        b = d * n / most;
    else if (d >= exact && strategy == RP_STRATEGY_LINEAR)
        b = exact + (d - exact) * (n - exact) / (most - exact);
    else if (d >= exact)
        b = exact + quadratic_step(d, n, most);
    return (b < n - 1 ? b : n - 1) + (bidirectional && delta > 0 ? n : 0);
}

static void bucket_strategies_follow_their_formulas(void **state)
{
    static const struct {
        int64_t buckets, most;
        int32_t bidirectional;
    } settings[] = {{32, 128, 1},  {32, 128, 0}, {32, 256, 1},   {16, 64, 1}, {16, 64, 0}, {64, 512, 1}, {64, 1024, 0},
                    {320, 800, 1}, {8, 32, 1},   {128, 2000, 0}, {2, 2, 0},   {3, 100, 0}, {4, 2, 1},    {200, 675, 1}};
    static const rp_strategy strategies[] = {RP_STRATEGY_UNIFORM, RP_STRATEGY_LINEAR, RP_STRATEGY_QUADRATIC};
    static const char *const names[] = {"uniform", "linear", "quadratic"};
    (void)state;
    for (size_t s = 0; s < COUNT(strategies); s++) {
        int64_t differ = 0, seen = 0;
        for (size_t n = 0; n < COUNT(settings); n++)
            for (int64_t delta = -3000; delta <= 3000; delta++, seen++) {
                const int64_t buckets = settings[n].buckets, most = settings[n].most;
                const int32_t both = settings[n].bidirectional;
                const int64_t got = rp_bucket(delta, buckets, most, both, strategies[s]);
                const int64_t want = plain_bucket(delta, buckets, most, both, strategies[s]);
                if (got != want && differ++ < 4)
                    print_message("%s: offset %lld, %lld buckets, maximum distance %lld: %lld, not %lld\n", names[s],
                                  (long long)delta, (long long)buckets, (long long)most, (long long)got,
                                  (long long)want);
            }
        print_message("strategy %-9s: %lld of %lld offsets differ, tolerance 0\n", names[s], (long long)differ,
                      (long long)seen);
        assert_int_equal(differ, 0);
    }
}

/* If each entry of a T5 table is its bucket number, the biases are the bucket numbers. */
static void t5_buckets_reach_the_scores(void **state)
{
    double table[32], zero[MOST] = {0}, want[MOST * MOST];
    struct example e = example_of(zero, zero, zero, MOST, 1);
    struct result r;
    (void)state;
    for (int64_t n = 0; n < 32; n++)
        table[n] = (double)n;
    for (int32_t both = 0; both < 2; both++) {
        for (int64_t i = 0; i < MOST; i++)
            for (int64_t j = 0; j < MOST; j++)
                want[i * MOST + j] = (double)rp_bucket(j - i - 100, 32, 128, both, RP_STRATEGY_LOG);
        e.n_terms = 0;
        e.q_offset = 100; /* delta = j - (i + 100): keys far before the query */
        example_add(&e, rp_term_init(RP_TERM_T5), table);
        e.terms[0].bidirectional = both;
        run(&e, RP_F64, &r);
        near(both ? "T5 term, bidirectional" : "T5 term, causal", r.only_bias, want, COUNT(want), 0.0);
    }
}

int main(void)
{
    const char *isa = getenv("RELPOS_ISA");
    if (isa && rp_isa_found(isa) != 1) {
        print_message("this machine does not have %s\n", isa);
        return 77; /* exit code of a skipped test */
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_sentence_with_decay_f64),
        cmocka_unit_test(the_sentence_with_decay_f32),
        cmocka_unit_test(the_formula_of_shaw_holds_in_f64),
        cmocka_unit_test(the_formula_of_shaw_holds_in_f32),
        cmocka_unit_test(a_clipped_table_holds_its_offsets),
        cmocka_unit_test(the_pattern_prefers_near_offsets),
        cmocka_unit_test(an_offset_stands_for_unseen_pairs),
        cmocka_unit_test(three_tokens_with_biases),
        cmocka_unit_test(a_signed_slope_is_linear),
        cmocka_unit_test(three_tokens_with_rope),
        cmocka_unit_test(four_patches_with_each_sign_of_the_offset),
        cmocka_unit_test(seven_tokens_share_the_clipped_offsets),
        cmocka_unit_test(t5_buckets_of_the_page),
        cmocka_unit_test(t5_buckets_of_the_original),
        cmocka_unit_test(t5_takes_its_logarithm_in_f32),
        cmocka_unit_test(bucket_strategies_follow_their_formulas),
        cmocka_unit_test(t5_buckets_reach_the_scores),
    };
    return cmocka_run_group_tests_name("golden", tests, NULL, NULL);
}
