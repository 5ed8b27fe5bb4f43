/* test_encoder_pack.c -- a packed file gives what its folder gives with the same type of weights: information, tokens,
 * vectors, scores, and the checksum of the model.
 * SPDX-License-Identifier: Apache-2.0 */
#include "tests/encoder/checks.h"
#include "tests/io/files.h"
#include <unistd.h>

static const char *const folders[] = {
    "tests/encoder/texts/search",     "tests/encoder/texts/labels",    "tests/encoder/texts/rank",
    "tests/encoder/texts/asymmetric", "tests/encoder/data/deberta",    "tests/encoder/data/deberta_c2p",
    "tests/encoder/data/deberta_own", "tests/encoder/data/modernbert", "tests/encoder/data/deberta_conv5",
    "tests/encoder/texts/protein",    "tests/encoder/data/esm1b",
};
static const char *const types[] = {"f32", "f16", "bf16", "q8", "int8"};
enum { FOLDERS = sizeof folders / sizeof *folders, TYPES = sizeof types / sizeof *types, TOKENS = 20 };

static rp_encoder *open_as(const char *path, const char *type)
{
    rp_encoder *m;
    rp_encoder_opening o = rp_encoder_opening_init();
    o.type = type;
    fine(rp_encoder_open(&m, path, &o));
    return m;
}

/* Compute everything that a model gives. Return the numbers, which the caller frees. */
static float *results_of(const rp_encoder *m, size_t *size)
{
    const rp_encoder_info *i = rp_encoder_about(m);
    const rp_encoder_text texts[2] = {{"the cat sleeps", -1, NULL, 0}, {"where is the dog", -1, "a cat", -1}};
    int32_t tokens[TOKENS];
    const rp_encoder_tokens sequence = {tokens, NULL, TOKENS};
    const int64_t n = TOKENS * i->width + i->labels + 2 * (i->has_tokenizer ? i->vector_width + i->labels : 0);
    float *out = calloc((size_t)n, sizeof *out), *at = out + TOKENS * i->width;
    for (int t = 0; t < TOKENS; t++)
        tokens[t] = 5 + t;
    fine(rp_encoder_hidden(m, 1, &sequence, out, NULL, NULL));
    if (i->labels > 0)
        fine(rp_encoder_logits(m, 1, &sequence, at, NULL, NULL));
    at += i->labels;
    if (i->has_tokenizer)
        fine(rp_encoder_embed(m, NULL, 2, texts, at, NULL, NULL));
    if (i->has_tokenizer && i->labels > 0)
        fine(rp_encoder_classify(m, 2, texts, at + 2 * i->vector_width, NULL, NULL));
    *size = (size_t)n * sizeof *out;
    return out;
}

static void same_model(const rp_encoder *a, const rp_encoder *b)
{
    const rp_encoder_info *x = rp_encoder_about(a), *y = rp_encoder_about(b);
    char sum[2][17];
    size_t size[2];
    float *results[2] = {results_of(a, &size[0]), results_of(b, &size[1])};
    assert_string_equal(x->kind, y->kind);
    assert_string_equal(x->type, y->type);
    assert_int_equal(x->has_tokenizer, y->has_tokenizer);
    assert_int_equal(x->vector_tokens, y->vector_tokens);
    assert_int_equal(x->vector_width, y->vector_width);
    assert_int_equal(x->parameters, y->parameters);
    assert_int_equal(x->bytes, y->bytes);
    assert_int_equal(x->plain_scores, y->plain_scores);
    for (int64_t k = 0; k < x->labels; k++)
        assert_string_equal(rp_encoder_label(a, k), rp_encoder_label(b, k));
    assert_int_equal(size[0], size[1]);
    assert_memory_equal(results[0], results[1], size[0]);
    fine(rp_encoder_checksum(a, sum[0]));
    fine(rp_encoder_checksum(b, sum[1]));
    assert_string_equal(sum[0], sum[1]);
    free(results[0]);
    free(results[1]);
}

static void packed(void **state)
{
    (void)state;
    for (int f = 0; f < FOLDERS; f++)
        for (int t = 0; t < TYPES; t++) {
            print_message("    %s as %s\n", folders[f], types[t]);
            rp_encoder *folder = open_as(folders[f], types[t]);
            fine(rp_encoder_pack(folder, in_dir("packed")));
            rp_encoder *file = open_as(in_dir("packed"), NULL);
            assert_int_equal(rp_encoder_about(file)->packed, 1);
            fine(rp_encoder_check_file(file, NULL, NULL));
            same_model(folder, file);
            fine(rp_encoder_pack(file, in_dir("again"))); /* a packed file can be packed */
            rp_encoder *again = open_as(in_dir("again"), NULL);
            same_model(folder, again);
            rp_encoder_close(again);
            rp_encoder_close(file);
            rp_encoder_close(folder);
        }
}

/* DeBERTa's vectors in a file depend on the instruction set that computed them. Another one computes them again. This
 * is the first test, because a process chooses its instruction set once. */
static void other_instruction_set(void **state)
{
    (void)state;
    const pid_t child = fork();
    if (child == 0) {
        rp_encoder *m = NULL;
        rp_encoder_opening o = rp_encoder_opening_init();
        o.type = "f32";
        setenv("RELPOS_ISA", "generic", 1);
        _exit(rp_encoder_open(&m, "tests/encoder/data/deberta", &o) != RP_OK ||
              rp_encoder_pack(m, in_dir("generic")) != RP_OK);
    }
    int status = -1;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    rp_encoder *folder = open_as("tests/encoder/data/deberta", "f32"), *file = open_as(in_dir("generic"), NULL);
    same_model(folder, file);
    rp_encoder_close(folder);
    rp_encoder_close(file);
}

/* The array with the bytes of the tokenizer's file may have no other type, known or unknown. */
static void array_of_the_tokenizer(void **state)
{
    static const char *const types_of_others[] = {"U9", "U1", "I3", "F8"};
    (void)state;
    rp_encoder *m = open_as("tests/encoder/texts/search", NULL);
    fine(rp_encoder_pack(m, in_dir("packed")));
    rp_encoder_close(m);
    const bytes file = load_file(in_dir("packed"));
    char *type = memmem(file.p, file.n, "\"tokenizer\":{\"dtype\":\"U8\"", 25);
    assert_non_null(type);
    for (size_t n = 0; n < sizeof types_of_others / sizeof *types_of_others; n++) {
        memcpy(strstr(type, "dtype") + 8, types_of_others[n], 2);
        save(in_dir("changed"), file.p, file.n);
        refused(rp_encoder_open(&m, in_dir("changed"), NULL), RP_E_ARG,
                "its array 'tokenizer' must have bytes, of the dtype U8 (pack the folder again)");
    }
    free(file.p);
}

/* Models that differ have different checksums. */
static void checksums(void **state)
{
    char sums[FOLDERS][17], one[17];
    (void)state;
    for (int f = 0; f < FOLDERS; f++) {
        rp_encoder *m = open_as(folders[f], NULL);
        fine(rp_encoder_checksum(m, sums[f]));
        refused(rp_encoder_checksum(m, NULL), RP_E_ARG, "model or text is NULL");
        rp_encoder_close(m);
        for (int k = 0; k < f; k++)
            assert_string_not_equal(sums[f], sums[k]);
    }
    refused(rp_encoder_checksum(NULL, one), RP_E_ARG, "model or text is NULL");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(other_instruction_set), cmocka_unit_test(packed),
                                       cmocka_unit_test(array_of_the_tokenizer), cmocka_unit_test(checksums)};
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
