/* test_modules.c -- pooling without modules.json (models/checkpoint/modules.h). tests/cli/t5_sentence.sh tests folders
 * of sentence-transformers.
 * SPDX-License-Identifier: Apache-2.0 */
#include "checkpoint/error.h"
#include "checkpoint/modules.h"
#include "tests/helpers.h"

enum { N = 3, D = 2 };
static model_files files;
static model_notes notes;
static const model_reading reading = {&files, &notes, D, -1, true, false};
static const float hidden[N * D] = {1, -1, 3, 5, 5, -7};

static void each_default_pools(void **state)
{
    (void)state;
    static const struct {
        const char *mode;
        float all[D], without_first[D]; /* pooled from token 0, and from token 1 */
    } cases[] = {{"mean", {3, -1}, {4, -1}}, {"cls", {1, -1}, {3, 5}}, {"last", {5, -7}, {5, -7}}};
    for (size_t n = 0; n < sizeof cases / sizeof *cases; n++) {
        model_modules *s;
        const char *prompt;
        float vector[D];
        assert_int_equal(model_modules_default(&s, cases[n].mode, &reading, "/nowhere"), RP_OK);
        assert_true(model_modules_width(s) == D && model_modules_tokens(s) == 0 && !model_modules_skips_prompt(s));
        assert_int_equal(model_modules_apply(s, hidden, D, 0, N, vector), RP_OK);
        assert_memory_equal(vector, cases[n].all, sizeof vector);
        assert_int_equal(model_modules_apply(s, hidden, D, 1, N, vector), RP_OK);
        assert_memory_equal(vector, cases[n].without_first, sizeof vector);
        assert_int_equal(model_modules_prompt(s, NULL, &prompt), RP_OK);
        assert_string_equal(prompt, "");
        assert_int_equal(model_modules_prompt(s, "query", &prompt), RP_OK);
        assert_string_equal(prompt, "");
        assert_int_equal(model_modules_prompt(s, "topic", &prompt), RP_E_ARG);
        assert_non_null(strstr(model_error(), "no prompt has the name \"topic\""));
        model_modules_free(s);
    }
}

static void faults_are_reported(void **state)
{
    (void)state;
    model_modules *s;
    float vector[D] = {7, 7};
    const float infinite[D] = {1, INFINITY};
    assert_int_equal(model_modules_default(&s, "median", &reading, "/nowhere"), RP_E_ARG);
    assert_string_equal(model_error(), "\"median\" is no kind of pooling (use mean, cls or last)");
    model_modules_free(s);
    assert_int_equal(model_modules_default(&s, "mean", &reading, "/nowhere"), RP_OK);
    assert_int_equal(model_modules_apply(s, infinite, D, 0, 1, vector), RP_E_RANGE);
    assert_true(vector[0] == 7 && vector[1] == 7);
    model_modules_free(s);
    model_modules_free(NULL);
    assert_true(model_modules_width(NULL) == 0 && model_modules_tokens(NULL) == 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_default_pools),
        cmocka_unit_test(faults_are_reported),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
