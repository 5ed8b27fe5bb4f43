/* test_t5_starved.c -- lets allocations fail while models with tokenizers are opened, used and packed: each call fails
 * for lack of memory or gives the usual result, and frees its memory. test_t5_damage.c does this with the search.
 * SPDX-License-Identifier: Apache-2.0 */
#include "tests/t5/models.h"
#include "tests/starved_runs.h"

enum { MAX_NUMBERS = 64 };

/* The results of a run. */
typedef struct outcome {
    float numbers[MAX_NUMBERS];
    int64_t tokens, bytes, residues;
    char letters[8], checksum[17];
} outcome;

/* Convert a text to tokens and back, and compute what the model is for. */
static rp_status use(const rp_t5 *m, outcome *out)
{
    int32_t *tokens;
    char *text;
    rp_status status = rp_t5_tokenize(m, "the  C\xc3\xa9t <extra_id_1>", -1, &tokens, &out->tokens);
    if (status != RP_OK)
        return status;
    status = rp_t5_detokenize_special(m, tokens, out->tokens, &text, &out->bytes);
    if (status == RP_OK)
        rp_t5_free(text);
    rp_t5_free(tokens);
    if (status == RP_OK && rp_t5_about(m)->vector_width > 0 && rp_t5_about(m)->vector_width <= MAX_NUMBERS) {
        float hidden[3 * 64];
        for (int k = 0; k < 3 * 64; k++)
            hidden[k] = (float)(k % 7) - 3;
        status = rp_t5_vector(m, NULL, 3, hidden, out->numbers);
    }
    return status == RP_OK ? rp_t5_checksum(m, out->checksum) : status;
}

/* Read a protein, and predict its structure if the folder has a file for that. */
static rp_status use_protein(const rp_t5 *m, const char *path, outcome *out)
{
    char file[200];
    rp_t5_structure *structure;
    rp_t5_protein p;
    rp_status status = rp_t5_residues(m, NULL, "MKJ-v", -1, &p);
    if (status != RP_OK)
        return status;
    out->residues = p.residues;
    rp_t5_free(p.tokens);
    snprintf(file, sizeof file, "%s/cnn.safetensors", path);
    if (strstr(path, "prostt5") == NULL)
        return RP_OK;
    status = rp_t5_structure_open(&structure, m, file);
    if (status == RP_OK) {
        float hidden[2 * 1024] = {1, -2, 3};
        if (rp_t5_about(m)->d_model <= 1024)
            status = rp_t5_structure_of(structure, hidden, 2, out->letters);
        rp_t5_structure_close(structure);
    }
    return status;
}

/* A folder or a file, its tokenizer if it is elsewhere, and whether it is packed. */
typedef struct tried_model {
    const char *path, *tokenizer;
    bool pack;
} tried_model;

/* Open a model, use it and pack it. */
static rp_status run(const void *model, void *outcome_of_run)
{
    const tried_model *tried = model;
    const char *path = tried->path;
    outcome *out = outcome_of_run;
    rp_pool *pool;
    rp_t5 *m = NULL;
    rp_t5_opening o = rp_t5_opening_init();
    memset(out, 0, sizeof *out);
    if (rp_pool_create(&pool, 1) != RP_OK)
        return RP_E_NOMEM;
    o.pool = pool;
    o.tokenizer = tried->tokenizer;
    rp_status status = rp_t5_open(&m, path, &o);
    if (status == RP_OK && strstr(path, "proteins") != NULL)
        status = use_protein(m, path, out);
    else if (status == RP_OK && rp_t5_about(m)->has_tokenizer)
        status = use(m, out);
    if (status == RP_OK && tried->pack)
        status = rp_t5_pack(m, packed);
    if (status == RP_OK && path == packed)
        status = rp_t5_check_file(m, NULL, NULL);
    rp_t5_close(m);
    rp_pool_destroy(pool);
    return status;
}

static void every_allocation_may_fail(void **state)
{
    static const tried_model models[] = {
        {"tests/t5/sentence/old", NULL, false},
        {"tests/t5/data/byt5", NULL, false},
        {"tests/t5/sentence/new", "tests/t5/sentence/new/tokenizer.json", false},
        {"tests/t5/data/proteins/ankh", NULL, false},
        {"tests/t5/data/proteins/prostt5", NULL, false},
        {"tests/t5/gguf/t5.gguf", NULL, false},
        {"tests/t5/gguf/umt5.gguf", NULL, false},
        {"tests/t5/gguf/encoder.gguf", NULL, false},
        {"tests/t5/sentence/new", NULL, false},
        {"tests/t5/data/proteins/prott5", NULL, true},
        {packed, NULL, false},
    };
    outcome usual, found;
    (void)state;
    if (!STARVES)
        skip();
    for (size_t k = 0; k < sizeof models / sizeof *models; k++)
        starve_runs(run, models[k].path, &models[k], rp_t5_last_error, &usual, &found, sizeof usual);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, make_packed, remove_packed);
}
