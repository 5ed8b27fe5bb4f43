/* settings.c -- parses the input as the configuration of a training run. If it parses, its printed form must parse to
 * the same configuration, and planning its model must succeed or give an error.
 * SPDX-License-Identifier: Apache-2.0 */
#include "lab/engine/nn.h"
#include "tests/fuzz/fuzz.h"

static int other(void *context, const char *key, const char *value, char err[NN_ERR_MAX])
{
    (void)context, (void)key, (void)value, (void)err;
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static char first[NN_PRINT_MAX], second[NN_PRINT_MAX];
    char *text = text_of(data, size), err[NN_ERR_MAX] = "";
    static nn_config defaults; /* nn_config_init parses their text, which takes as long as the rest */
    nn_model m = {0};
    if (defaults.layers == 0)
        nn_config_init(&defaults);
    nn_config c = defaults, again = defaults;
    if (nn_config_parse(&c, "x", text, other, NULL, err) == 0) {
        nn_config_print(&c, first);
        PROMISE(nn_config_parse(&again, "y", first, NULL, NULL, err) == 0, "the printed text does not parse: %s", err);
        nn_config_print(&again, second);
        PROMISE(strcmp(first, second) == 0, "printed differently the second time:\n%s\n%s", first, second);
        if (nn_config_check(&c, err) == 0) {
            if (nn_model_plan(&m, &c, err) == 0) {
                fuzz_valid++;
                PROMISE(m.n_weights > 0, "a model of %lld weights", (long long)m.n_weights);
            }
            nn_model_destroy(&m);
        }
    } else {
        refusal_is_a_line(err, sizeof err);
    }
    free(text);
    return 0;
}
