/* test_encoder_starved.c -- lets allocations fail while an encoder is opened, used and packed: each call fails for lack
 * of memory or gives the usual result, and frees its memory.
 * SPDX-License-Identifier: Apache-2.0 */
#include "tests/encoder/checks.h"
#include "tests/starved_runs.h"

enum { MAX_NUMBERS = 256 };

/* The results of a run. */
typedef struct outcome {
    float numbers[MAX_NUMBERS];
    int64_t tokens, unknown;
    char checksum[17];
} outcome;

/* Compute what the model can: vectors, scores of pairs, or tokens of residues. */
static rp_status use(const rp_encoder *m, outcome *out)
{
    static const rp_encoder_text pair = {"The cat \xc3\xa9t\xc3\xa9", -1, "sleeps [MASK] here", -1},
                                 text = {"A cat", -1, NULL, 0};
    const rp_encoder_info *about = rp_encoder_about(m);
    int32_t *tokens, *types;
    rp_status status = rp_encoder_tokenize(m, &pair, 9, &tokens, &types, &out->tokens);
    if (status != RP_OK)
        return status;
    rp_encoder_free(tokens);
    rp_encoder_free(types);
    if (about->labels > 0 && about->labels < MAX_NUMBERS)
        status = rp_encoder_classify(m, 1, &pair, out->numbers, NULL, NULL);
    else if (about->vector_width > 0 && about->vector_width <= MAX_NUMBERS)
        status = rp_encoder_embed(m, NULL, 1, &text, out->numbers, NULL, NULL);
    if (status == RP_OK)
        status = rp_encoder_checksum(m, out->checksum);
    return status;
}

/* A folder or a file, and the type of the packed weights, or NULL. */
typedef struct tried_model {
    const char *path, *type;
} tried_model;

/* Open a model, use it and pack it. */
static rp_status run(const void *model, void *outcome_of_run)
{
    const char *path = ((const tried_model *)model)->path, *type = ((const tried_model *)model)->type;
    outcome *out = outcome_of_run;
    rp_pool *pool;
    rp_encoder *m = NULL;
    rp_encoder_opening o = rp_encoder_opening_init();
    memset(out, 0, sizeof *out);
    if (rp_pool_create(&pool, 1) != RP_OK)
        return RP_E_NOMEM;
    o.pool = pool;
    o.type = type;
    rp_status status = rp_encoder_open(&m, path, &o);
    if (status == RP_OK && strstr(path, "protein") == NULL)
        status = use(m, out);
    else if (status == RP_OK) {
        int32_t *tokens;
        status = rp_encoder_residues(m, "MKJ*V", -1, &tokens, &out->tokens, &out->unknown);
        if (status == RP_OK)
            rp_encoder_free(tokens);
    }
    if (status == RP_OK && type != NULL)
        status = rp_encoder_pack(m, packed);
    rp_encoder_close(m);
    rp_pool_destroy(pool);
    return status;
}

static void every_allocation_may_fail(void **state)
{
    static const tried_model models[] = {
        {"tests/encoder/texts/search", "int8"},  {"tests/encoder/texts/asymmetric", NULL},
        {"tests/encoder/texts/labels", NULL},    {"tests/encoder/texts/rank", "f32"},
        {"tests/encoder/texts/protein", "bf16"}, {packed, NULL},
    };
    outcome usual, found;
    (void)state;
    if (!STARVES)
        skip();
    for (size_t k = 0; k < sizeof models / sizeof *models; k++)
        starve_runs(run, models[k].path, &models[k], rp_encoder_last_error, &usual, &found, sizeof usual);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, make_packed, remove_packed);
}
