/* test_modules.c -- pooling without modules.json (models/checkpoint/modules.h). tests/cli/t5_sentence.sh tests folders
 * of sentence-transformers.
 * SPDX-License-Identifier: Apache-2.0 */
#include "checkpoint/error.h"
#include "checkpoint/modules.h"
#include "tests/helpers.h"
#include <sys/stat.h>

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

static void write_text(const char *folder, const char *name, const char *text)
{
    char path[512];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs(text, f);
    assert_int_equal(fclose(f), 0);
}

/* The first token is part of the prompt, and has the largest numbers. */
static void every_pooling_can_leave_out_the_prompt(void **state)
{
    (void)state;
    static const float with_prompt[N * D] = {9, 8, 3, 5, 5, -7};
    static const struct {
        const char *mode;
        double all[D], without_first[D];
    } cases[] = {{"cls", {9, 8}, {3, 5}},
                 {"max", {9, 8}, {5, 5}},
                 {"mean", {17.0 / 3, 2}, {4, -1}},
                 {"mean_sqrt_len_tokens",
                  {17 / 1.7320508075688772, 6 / 1.7320508075688772},
                  {8 / 1.4142135623730951, -2 / 1.4142135623730951}},
                 {"weightedmean", {30.0 / 6, -3.0 / 6}, {21.0 / 5, -11.0 / 5}},
                 {"lasttoken", {5, -7}, {5, -7}}};
    char folder[] = "/tmp/relpos_modules.XXXXXX", path[64], text[256];
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/1_Pooling", folder);
    assert_int_equal(mkdir(path, 0700), 0);
    write_text(
        folder, "modules.json",
        "[{\"idx\": 0, \"name\": \"0\", \"path\": \"\", \"type\": \"sentence_transformers.models.Transformer\"},"
        " {\"idx\": 1, \"name\": \"1\", \"path\": \"1_Pooling\", \"type\": \"sentence_transformers.models.Pooling\"}]");
    for (size_t n = 0; n < sizeof cases / sizeof *cases; n++) {
        model_modules *s;
        char *inner;
        float vector[D];
        snprintf(text, sizeof text, "{\"embedding_dimension\": 2, \"pooling_mode\": \"%s\", \"include_prompt\": false}",
                 cases[n].mode);
        write_text(path, "config.json", text);
        assert_int_equal(model_modules_find(&s, &files, folder, &inner), RP_OK);
        assert_int_equal(model_modules_read(s, &reading, folder, inner), RP_OK);
        assert_true(model_modules_skips_prompt(s));
        for (int first = 0; first < 2; first++) {
            assert_int_equal(model_modules_apply(s, with_prompt, D, first, N, vector), RP_OK);
            for (int c = 0; c < D; c++)
                assert_true(vector[c] == (float)(first ? cases[n].without_first : cases[n].all)[c]);
        }
        model_modules_free(s);
        free(inner);
    }
    model_files_free(&files);
    files = (model_files){0};
    snprintf(text, sizeof text, "%s/config.json", path);
    assert_int_equal(unlink(text), 0);
    assert_int_equal(rmdir(path), 0);
    snprintf(path, sizeof path, "%s/modules.json", folder);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(rmdir(folder), 0);
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

/* A file larger than allowed is refused with as much of its path as fits, and an absent file gives no text. */
static void long_paths_are_shortened(void **state)
{
    (void)state;
    char path[600] = "/tmp/relpos-modules-XXXXXX", shown[200], *text;
    size_t size;
    assert_non_null(mkdtemp(path));
    const size_t folder = strlen(path);
    memset(path + folder, 'x', 240);
    path[folder] = '/';
    assert_int_equal(model_read_file(&files, path, 3, &text, &size), RP_OK);
    assert_null(text);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs("four", f);
    fclose(f);
    assert_int_equal(model_read_file(&files, path, 3, &text, &size), RP_E_ARG);
    assert_null(text);
    snprintf(shown, sizeof shown, "%.156s...: it has 4 bytes, and at most 3 are read", path);
    assert_non_null(strstr(model_error(), shown));
    assert_int_equal(model_read_file(&files, path, 4, &text, &size), RP_OK);
    assert_string_equal(text, "four");
    free(text);
    model_files_free(&files);
    unlink(path);
    path[folder] = 0;
    rmdir(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_default_pools),
        cmocka_unit_test(every_pooling_can_leave_out_the_prompt),
        cmocka_unit_test(faults_are_reported),
        cmocka_unit_test(long_paths_are_shortened),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
