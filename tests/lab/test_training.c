/* test_training.c -- training data: windows of texts and of files, and configurations.
 * SPDX-License-Identifier: Apache-2.0 */
#include "lab/engine/nn.h"
#include "tests/helpers.h"

/* In a window each token is followed by the next token of the text. Windows differ by step and by seed. */
static void windows_come_from_all_over_the_text(void **state)
{
    enum { N = 300, LENGTH = 20, BATCH = 2, STEPS = 2000 };
    int32_t text[N], tokens[BATCH * LENGTH], target[BATCH * LENGTH];
    bool begun[N] = {false};
    const nn_text t = {.tokens = text, .n = N};
    int all = 0, again = 0, before = -1;
    (void)state;
    for (int n = 0; n < N; n++)
        text[n] = n % 251;
    for (int step = 0; step < STEPS; step++) {
        nn_text_batch(&t, 1, step, BATCH, LENGTH, tokens, target);
        for (int x = 0; x < BATCH * LENGTH; x++)
            assert_int_equal(target[x], (tokens[x] + 1) % 251);
        again += tokens[0] == before;
        before = tokens[0];
        for (int b = 0; b < BATCH; b++)
            begun[tokens[b * LENGTH]] = true;
    }
    for (int n = 0; n < 251; n++)
        all += begun[n];
    assert_int_equal(all, 251);
    assert_true(again < STEPS / 50);
}

/* The windows cover each file in turn, from its first token to its last, and no window crosses a file boundary. */
static void windows_of_a_classifier_stay_in_their_file(void **state)
{
    enum { N = 100, LENGTH = 20, BATCH = 2, STEPS = 3000 };
    int32_t text[N], tokens[BATCH * LENGTH], target[BATCH];
    int64_t end[] = {LENGTH, 60, N};
    bool begun[N] = {false};
    const nn_text t = {.tokens = text, .n = N, .end = end, .n_files = 3};
    int all = 0;
    (void)state;
    for (int n = 0; n < N; n++)
        text[n] = n;
    for (int step = 0; step < STEPS; step++) {
        nn_text_batch_files(&t, 1, step, BATCH, LENGTH, tokens, target);
        for (int b = 0; b < BATCH; b++) {
            assert_int_equal(target[b], (step * BATCH + b) % 3);
            assert_true(tokens[b * LENGTH] >= nn_text_start(&t, target[b]));
            assert_true(tokens[b * LENGTH + LENGTH - 1] < end[target[b]]);
            begun[tokens[b * LENGTH]] = true;
        }
    }
    for (int n = 0; n < N; n++)
        all += begun[n];
    assert_int_equal(all, N - 3 * (LENGTH - 1));
}

/* A printed configuration parses back to the same configuration. */
static void printed_configurations_parse_to_the_same(void **state)
{
    char err[NN_ERR_MAX] = "", one[NN_PRINT_MAX], two[NN_PRINT_MAX];
    nn_config c, d;
    const char *key, *value, *help;
    (void)state;
    nn_config_init(&c);
    assert_int_equal(
        nn_config_parse(&c, "a", "preset = t5\n\n# no\nlr = 1e-4 # yes\n text =  a b \nlayers=3", NULL, NULL, err), 0);
    assert_true(c.layers == 3 && c.lr == 1e-4 && c.scale == 1 && c.position_layers == 1);
    assert_string_equal(c.text, "a b");
    nn_config_print(&c, one);
    nn_config_init(&d);
    assert_int_equal(nn_config_parse(&d, "b", one, NULL, NULL, err), 0);
    nn_config_print(&d, two);
    assert_string_equal(one, two);
    for (int n = 0; nn_config_key(n, &key, &value, &help); n++)
        assert_int_equal(nn_config_set(&d, key, value, err), 0);
}

/* Each line must fail with an error that begins with its place and contains these words. */
static void bad_configurations_are_refused(void **state)
{
    static const struct {
        const char *text, *words;
    } bad[] = {
        {"layers = 1\nlayers = 2", "c:2: layers was given twice"},
        {"# none\n\nlayers", "c:3: \"layers\" is not key = value"},
        {"layers =", "c:1: layers: \"\" is not an integer"},
        {"layers = 2.5", "c:1: layers: \"2.5\" is not an integer"},
        {"layers = 99999999999999999999", "is not an integer"},
        {"layers = 0", "layers: 0 is out of range (1 to 256)"},
        {"lr = 0x1p3", "lr: \"0x1p3\" is not a finite number"},
        {"lr = nan", "lr: \"nan\" is not a finite number"},
        {"lr = 0,1", "lr: \"0,1\" is not a finite number"},
        {"dropout = 1", "dropout: 1 is out of range (0 to 0.99)"},
        {"norm = batchnorm", "norm: \"batchnorm\" is none of layernorm|rmsnorm"},
        {"tied = 10", "tied: \"10\" is none of 0|1"},
        {"preset = shew", "preset: \"shew\" is none of"},
        {"layrs = 2", "no key is called \"layrs\" (did you mean layers?)"},
        {"Layers! = 2", "(did you mean layers?)"},
        {"learning_rate = 2", "no key is called \"learning_rate\" (did you mean lr?)"},
        {"= 2", "no key is called \"\""},
        {"nothing_like_it = 2", "relpos lab --help lists them"},
    };
    (void)state;
    for (size_t n = 0; n < sizeof bad / sizeof *bad; n++) {
        char err[NN_ERR_MAX] = "";
        nn_config c;
        nn_config_init(&c);
        if (nn_config_parse(&c, "c", bad[n].text, NULL, NULL, err) != -1 || strncmp(err, "c:", 2) != 0 ||
            !strstr(err, bad[n].words) || strchr(err, '\n'))
            fail_msg("%s: \"%s\" does not say %s", bad[n].text, err, bad[n].words);
    }
    /* keys that are valid one by one but not together */
    static const struct {
        const char *text, *words;
    } together[] = {
        {"width = 10\nheads = 3", "width = 10: it is not a multiple of heads, 3 (set width = 12, for example)"},
        {"steps = 5\nwarmup = 6", "warmup = 6: it is above steps, 5 (use a smaller warmup or more steps)"},
        {"lr = 0.1\nlr_min = 0.2", "lr_min = 0.2: it is above lr, 0.1 (use a lower lr_min or a higher lr)"},
    };
    for (size_t n = 0; n < sizeof together / sizeof *together; n++) {
        char err[NN_ERR_MAX] = "";
        nn_config c;
        nn_config_init(&c);
        assert_int_equal(nn_config_parse(&c, "c", together[n].text, NULL, NULL, err), 0);
        assert_int_equal(nn_config_check(&c, err), -1);
        assert_string_equal(err, together[n].words);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(windows_come_from_all_over_the_text),
        cmocka_unit_test(windows_of_a_classifier_stay_in_their_file),
        cmocka_unit_test(printed_configurations_parse_to_the_same),
        cmocka_unit_test(bad_configurations_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
