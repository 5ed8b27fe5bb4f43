/* test_t5_golden.c -- compares hidden states, logits, greedy search and beam search of every member of the T5 family
 * with the results of transformers in tests/t5/data. Tokens must be equal. Numbers may be at most eight times as far
 * from the f64 results as those of transformers in f32.
 * SPDX-License-Identifier: Apache-2.0 */
#include "tests/t5/models.h"

enum { MARGIN = 8 };

static double farthest(const float *x, const io_array *expected_array)
{
    const float *y = expected_array->data;
    double most = 0;
    for (size_t k = 0; k < expected_array->bytes / sizeof *y; k++)
        most = fmax(most, fabs((double)x[k] - (double)y[k]));
    return most;
}

static double bound_of(const expected *e, const char *name)
{
    return MARGIN * (double)*(const float *)array_of(e, name)->data;
}

static void check(const char *model, const char *what, double error, double bound)
{
    print_message("    %-14s %-8s error %.2e of %.2e\n", model, what, error, bound);
    if (!(error <= bound))
        fail_msg("%s: %s is off by %g, above %g", model, what, error, bound);
}

static void test_hidden(void **state)
{
    (void)state;
    for (int n = 0; n < N_MODELS; n++) {
        expected e;
        rp_t5 *m = open_model(model_names[n], "f32", NULL);
        read_expected(&e, model_names[n]);
        float *hidden = encode_all(m, SOURCES, e.source);
        check(model_names[n], "hidden", farthest(hidden, array_of(&e, "hidden")), bound_of(&e, "hidden_error"));
        free(hidden);
        free_expected(&e);
        rp_t5_close(m);
    }
}

static void test_logits(void **state)
{
    (void)state;
    for (int n = 0; n < N_MODELS; n++) {
        expected e;
        rp_t5_session *s;
        int32_t target[MAX_TOKENS], parent = 0;
        rp_t5 *m = open_model(model_names[n], "f32", NULL);
        if (decodes(m)) {
            read_expected(&e, model_names[n]);
            const int64_t vocab = rp_t5_about(m)->vocab,
                          length = read_row(array_of(&e, "targets"), SOURCES - 1, target);
            float *logits = malloc((size_t)(length * vocab) * sizeof *logits);
            fine(rp_t5_begin(&s, m, 1, &e.source[SOURCES - 1], length));
            for (int64_t k = 0; k < length; k++) {
                const int32_t token = k > 0 ? target[k - 1] : rp_t5_about(m)->start;
                fine(rp_t5_step(s, 1, &parent, &token, logits + k * vocab));
            }
            rp_t5_end(s);
            check(model_names[n], "logits", farthest(logits, array_of(&e, "logits")), bound_of(&e, "logits_error"));
            free(logits);
            free_expected(&e);
        }
        rp_t5_close(m);
    }
}

static void same_targets(const char *model, const char *what, const rp_t5_results *r, const io_array *targets,
                         int64_t each)
{
    int32_t tokens[MAX_TOKENS];
    assert_int_equal(rp_t5_results_size(r), SOURCES * each);
    for (int64_t k = 0; k < SOURCES * each; k++) {
        const rp_t5_sequence *q = rp_t5_result(r, k);
        assert_int_equal(q->source, k / each);
        assert_int_equal(q->index, k % each);
        if (!same_tokens(q, tokens, read_row(targets, k, tokens)))
            fail_msg("%s: %s: result %d of source %d differs", model, what, (int)(k % each), (int)(k / each));
    }
}

static void test_greedy(void **state)
{
    (void)state;
    for (int n = 0; n < N_MODELS; n++) {
        expected e;
        rp_t5_results *r;
        rp_t5 *m = open_model(model_names[n], "f32", NULL);
        if (decodes(m)) {
            read_expected(&e, model_names[n]);
            const rp_t5_generation g = settings_of(m);
            fine(rp_t5_generate(m, SOURCES, e.source, &g, &r));
            same_targets(model_names[n], "greedy", r, array_of(&e, "targets"), 1);
            rp_t5_results_free(r);
            free_expected(&e);
        }
        rp_t5_close(m);
    }
}

/* Set the options for search k of make_models.py. */
static void set_search(int k, rp_t5_generation *g)
{
    static const int32_t beams[] = {4, 3, 2, 5}, returned[] = {2, 3, 1, 1};
    static const double penalty[] = {1, 2, -0.5, 0.8};
    static const rp_t5_stopping stopping[] = {RP_T5_STOP_LIKELY, RP_T5_STOP_FIRST, RP_T5_STOP_NEVER_EARLY,
                                              RP_T5_STOP_LIKELY};
    g->beams = beams[k];
    g->returned = returned[k];
    g->length_penalty = penalty[k];
    g->early_stopping = stopping[k];
    g->min_new_tokens = k == 2 ? 3 : 0;
    g->no_repeat_ngram = k == 3 ? 2 : 0;
    g->repetition_penalty = k == 3 ? 1.3 : 1;
}

/* Compare the scores. A score sums one logit per token and logarithms, in f32. */
static void same_scores(const char *model, const rp_t5_results *r, const io_array *scores, double logits_error)
{
    double error = 0, largest = 1;
    for (int64_t k = 0; k < rp_t5_results_size(r); k++) {
        const double expected_score = (double)((const float *)scores->data)[k];
        error = fmax(error, fabs(rp_t5_result(r, k)->score - expected_score));
        largest = fmax(largest, fabs(expected_score));
    }
    check(model, "scores", error, 2 * STEPS * (logits_error + 8 * FLT_EPSILON * largest));
}

static void test_beams(void **state)
{
    (void)state;
    for (int n = 0; n < N_MODELS; n++) {
        expected e;
        rp_t5 *m = open_model(model_names[n], "f32", NULL);
        read_expected(&e, model_names[n]);
        for (int k = 0; decodes(m) && k < 4; k++) {
            char name[40], scores[40];
            rp_t5_results *r;
            rp_t5_generation g = settings_of(m);
            set_search(k, &g);
            snprintf(name, sizeof name, "beams.%d", k);
            snprintf(scores, sizeof scores, "beam_scores.%d", k);
            fine(rp_t5_generate(m, SOURCES, e.source, &g, &r));
            same_targets(model_names[n], name, r, array_of(&e, name), g.returned);
            same_scores(model_names[n], r, array_of(&e, scores), bound_of(&e, "logits_error") / MARGIN);
            rp_t5_results_free(r);
        }
        free_expected(&e);
        rp_t5_close(m);
    }
}

/* 8-bit weights have rounding errors of up to half a step, so hidden states are off by a few per cent. With bf16,
 * hidden states are at most as far from f64 as those of transformers in bf16: transformers rounds every result, relpos
 * only the inputs of products. */
static void test_types(void **state)
{
    static const struct {
        const char *type;
        double share; /* error relative to the norm of the hidden states; 0: use the error of transformers */
    } types[] = {{"bf16", 0}, {"int8", 0.1}, {"int4", 0.9}};
    (void)state;
    for (int n = 0; n < N_MODELS; n++)
        for (int t = 0; t < 3; t++) {
            expected e;
            rp_t5 *m = open_model(model_names[n], types[t].type, NULL);
            read_expected(&e, model_names[n]);
            const io_array *exact = array_of(&e, "hidden");
            const int64_t count = (int64_t)(exact->bytes / sizeof(float));
            float *hidden = encode_all(m, SOURCES, e.source);
            double error = 0, size = 0;
            for (int64_t k = 0; k < count; k++) {
                const double y = (double)((const float *)exact->data)[k];
                error += pow((double)hidden[k] - y, 2);
                size += y * y;
            }
            const float *theirs = array_of(&e, "hidden_bf16_share")->data;
            check(model_names[n], types[t].type, sqrt(error / size),
                  types[t].share > 0 ? types[t].share : (double)*theirs);
            free(hidden);
            free_expected(&e);
            rp_t5_close(m);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_hidden), cmocka_unit_test(test_logits), cmocka_unit_test(test_greedy),
        cmocka_unit_test(test_beams),  cmocka_unit_test(test_types),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
