/* test_t5_beams.c -- beam search where it ends, and where hypotheses have equal scores. In the model of make_beams.py,
 * the next token depends only on the last one.
 * SPDX-License-Identifier: Apache-2.0 */
#include "tests/io/files.h"
#include "tests/t5/models.h"

enum { VOCAB = 16, TARGET = 8 };

/* The searches of make_beams.py, in its order. */
static void set_search(int k, rp_t5_generation *g)
{
    static const rp_t5_stopping stopping[] = {RP_T5_STOP_LIKELY, RP_T5_STOP_FIRST, RP_T5_STOP_NEVER_EARLY};
    static const double penalty[] = {-1, 0, 0.4, 1, 2};
    static const int32_t beams[] = {2, 4};
    g->early_stopping = stopping[k / 10];
    g->length_penalty = penalty[k / 2 % 5];
    g->beams = g->returned = beams[k % 2];
    g->max_new_tokens = TARGET - 1;
}

/* Compare all beams and their scores with those of transformers: 30 settings, from each of 14 tokens. They depend on
 * when a search ends. A score is the sum of at most 7 log-probabilities of at most 40, in f32. */
static void test_ends(void **state)
{
    char path[300], text[IO_ERR_MAX], name[40];
    io_set set;
    int64_t lengths = 0;
    (void)state;
    snprintf(path, sizeof path, "tests/t5/beams/expected.safetensors");
    if (io_read(path, &set, NULL, text) != IO_OK)
        fail_msg("%s", text);
    rp_t5 *m;
    fine(rp_t5_open(&m, "tests/t5/beams", NULL));
    const int32_t word = 2;
    const rp_t5_tokens source = {&word, 1};
    for (int k = 0; k < 30; k++) {
        rp_t5_generation g = rp_t5_generation_of(m);
        set_search(k, &g);
        snprintf(name, sizeof name, "beams.%d", k);
        const io_array *beams = io_find(&set, name);
        snprintf(name, sizeof name, "scores.%d", k);
        const io_array *scores = io_find(&set, name);
        for (int32_t start = 2; start < VOCAB; start++) {
            rp_t5_results *r;
            g.prefix = (rp_t5_tokens){&start, 1};
            fine(rp_t5_generate(m, 1, &source, &g, &r));
            assert_int_equal(rp_t5_results_size(r), g.beams);
            for (int32_t n = 0; n < g.beams; n++) {
                int32_t wanted[TARGET];
                const rp_t5_sequence *got = rp_t5_result(r, n);
                const int64_t row = (int64_t)start * g.beams + n, size = read_row(beams, row, wanted);
                const double score = (double)((const float *)scores->data)[row];
                if (got->n != size || memcmp(got->tokens, wanted, (size_t)size * sizeof *wanted) != 0)
                    fail_msg("search %d from token %d: beam %d differs from transformers", k, (int)start, (int)n);
                if (!(fabs(got->score - score) <= 7 * 40 * 8 * (double)FLT_EPSILON))
                    fail_msg("search %d from token %d: score %.9g and not %.9g", k, (int)start, got->score, score);
                lengths |= 1 << size;
            }
            rp_t5_results_free(r);
        }
    }
    assert_true((lengths & 0x1fc) == 0x1fc); /* targets of 2 to 8 tokens */
    rp_t5_close(m);
    io_free(&set);
}

/* With a head of zeros, all tokens are equally likely. Among equal scores, a hypothesis that was found earlier comes
 * first, then one of the earlier beam, then the smaller token. */
static void test_order(void **state)
{
    static const int32_t one[4][2] = {{0}, {1}, {2}, {3}};
    static const int32_t two[4][2] = {{1}, {0, 0}, {0, 1}, {0, 2}};
    static const int64_t lengths_of_two[4] = {1, 2, 2, 2};
    io_set set;
    (void)state;
    assert_int_equal(io_read("tests/t5/beams/model.safetensors", &set, NULL, err), IO_OK);
    io_array *head = (io_array *)(uintptr_t)io_find(&set, "lm_head.weight");
    memset(head->data, 0, head->bytes);
    assert_int_equal(io_write(in_dir("model.safetensors"), IO_SAFETENSORS, &set, err), 0);
    io_free(&set);
    const bytes config = load_file("tests/t5/beams/config.json");
    save(in_dir("config.json"), config.p, config.n);
    free(config.p);
    rp_t5 *m;
    rp_t5_opening o = rp_t5_opening_init();
    fine(rp_t5_open(&m, dir, &o));
    const int32_t word = 2;
    const rp_t5_tokens source = {&word, 1};
    for (int32_t steps = 1; steps <= 2; steps++) {
        rp_t5_generation g = rp_t5_generation_of(m);
        rp_t5_results *r;
        g.beams = g.returned = 4;
        g.max_new_tokens = steps;
        fine(rp_t5_generate(m, 1, &source, &g, &r));
        for (int n = 0; n < 4; n++) {
            const rp_t5_sequence *got = rp_t5_result(r, n);
            assert_true(fabs(got->score + log(VOCAB)) <= 4 * (double)FLT_EPSILON * log(VOCAB));
            assert_int_equal(got->n, steps == 1 ? 1 : lengths_of_two[n]);
            assert_memory_equal(got->tokens, steps == 1 ? one[n] : two[n], (size_t)got->n * sizeof(int32_t));
        }
        rp_t5_results_free(r);
    }
    rp_t5_close(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_ends), cmocka_unit_test(test_order)};
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
