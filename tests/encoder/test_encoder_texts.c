/* test_encoder_texts.c -- texts to tokens, vectors and scores, compared with sentence-transformers and transformers
 * (tests/encoder/texts). Tokens must be equal. Numbers may be at most eight times as far from the f64 results as those
 * of these libraries in f32.
 * SPDX-License-Identifier: Apache-2.0 */
#include "io/fasta.h"
#include "io/io.h"
#include "io/json.h"
#include "tests/encoder/checks.h"

#define TEXTS "tests/encoder/texts"
enum { MARGIN = 8, MOST = 16, WIDEST = 32 };

/* The texts and results of a folder. */
typedef struct expected {
    json_t *root;
    int64_t n;
    rp_encoder_text text[MOST];
} expected;

static rp_encoder *open_model(const char *name, expected *e)
{
    char path[200];
    json_error_t error;
    rp_encoder *m;
    rp_encoder_opening o = rp_encoder_opening_init();
    o.type = "f32";
    snprintf(path, sizeof path, TEXTS "/%s/expected.json", name);
    e->root = json_load_file(path, 0, &error);
    assert_non_null(e->root);
    const json_t *texts = json_object_get(e->root, "texts");
    e->n = (int64_t)json_array_size(texts);
    assert_true(e->n >= 5 && e->n <= MOST);
    for (int64_t k = 0; k < e->n; k++) {
        const json_t *t = json_array_get(texts, (size_t)k);
        const bool pair = json_is_array(t);
        const json_t *a = pair ? json_array_get(t, 0) : t, *b = pair ? json_array_get(t, 1) : NULL;
        e->text[k] = (rp_encoder_text){json_string_value(a), pair ? (int64_t)json_string_length(a) : -1,
                                       json_string_value(b), pair ? -1 : 0};
    }
    snprintf(path, sizeof path, TEXTS "/%s", name);
    fine(rp_encoder_open(&m, path, &o));
    return m;
}

static void close_model(rp_encoder *m, expected *e)
{
    json_decref(e->root);
    rp_encoder_close(m);
}

static void same_tokens(const int32_t *found, int64_t n, const json_t *right, const char *what, int64_t k)
{
    if (n != (int64_t)json_array_size(right))
        fail_msg("%s of text %d: %d, not %d", what, (int)k, (int)n, (int)json_array_size(right));
    for (int64_t i = 0; i < n; i++)
        assert_int_equal(found[i], json_integer_value(json_array_get(right, (size_t)i)));
}

/* Compare n rows of `width` numbers. */
static void same_rows(const expected *e, const char *key, const float *found, int64_t width)
{
    const json_t *rows = json_object_get(e->root, key);
    const double bound = MARGIN * json_number_value(json_object_get(e->root, "error"));
    double error = 0;
    assert_int_equal(json_array_size(rows), e->n);
    for (int64_t k = 0; k < e->n; k++) {
        const json_t *row = json_array_get(rows, (size_t)k);
        assert_int_equal(json_array_size(row), width);
        for (int64_t x = 0; x < width; x++)
            error = fmax(error, fabs(json_number_value(json_array_get(row, (size_t)x)) - (double)found[k * width + x]));
    }
    print_message("    %-18s error %.2e of %.2e\n", key, error, bound);
    if (!(error <= bound))
        fail_msg("%s: off by %g, above %g", key, error, bound);
}

static void tokens(void **state)
{
    static const char *const names[] = {"search", "asymmetric", "protein", "labels", "rank"};
    (void)state;
    for (int f = 0; f < 5; f++) {
        expected e;
        rp_encoder *m = open_model(names[f], &e);
        for (int64_t k = 0; k < e.n; k++) {
            int32_t *found, *types;
            int64_t n;
            const int64_t most = f < 3 ? rp_encoder_about(m)->vector_tokens : 30;
            fine(rp_encoder_tokenize(m, &e.text[k], most, &found, &types, &n));
            same_tokens(found, n, json_array_get(json_object_get(e.root, "tokens"), (size_t)k), names[f], k);
            if (f >= 3)
                same_tokens(types, n, json_array_get(json_object_get(e.root, "types"), (size_t)k), "types", k);
            rp_encoder_free(found);
            rp_encoder_free(types);
            fine(rp_encoder_tokenize(m, &e.text[k], 0, &found, NULL, &n));
            rp_encoder_free(found);
        }
        close_model(m, &e);
    }
}

static void vectors(void **state)
{
    static const struct {
        const char *folder, *prompt, *key;
        int64_t width;
    } cases[] = {{"search", NULL, "vectors", 24},
                 {"asymmetric", "", "vectors", 10},
                 {"asymmetric", "query", "vectors.query", 10},
                 {"asymmetric", "document", "vectors.document", 10},
                 {"protein", NULL, "vectors", 24}};
    (void)state;
    for (int c = 0; c < 5; c++) {
        expected e;
        rp_encoder *m = open_model(cases[c].folder, &e);
        const char *prompt = cases[c].prompt;
        float found[MOST * WIDEST], alone[WIDEST];
        assert_int_equal(rp_encoder_about(m)->vector_width, cases[c].width);
        if (c == 0 || c == 4)
            assert_int_equal(rp_encoder_about(m)->vector_tokens,
                             json_integer_value(json_object_get(e.root, "max_tokens")));
        if (c == 2 || c == 3)
            fine(rp_encoder_prompt(m, prompt, &prompt));
        fine(rp_encoder_embed(m, prompt, e.n, e.text, found, NULL, NULL));
        same_rows(&e, cases[c].key, found, cases[c].width);
        for (int64_t k = 0; k < e.n; k++) { /* the bits do not depend on the other texts */
            fine(rp_encoder_embed(m, prompt, 1, &e.text[k], alone, NULL, NULL));
            assert_memory_equal(alone, found + k * cases[c].width, (size_t)cases[c].width * sizeof *alone);
        }
        close_model(m, &e);
    }
}

/* Compare softmax(logits). Its derivatives are at most 1/4, so the error of three logits is an upper bound. */
static void compare_probabilities(const expected *e, const float *found)
{
    const double bound = MARGIN * json_number_value(json_object_get(e->root, "error")) + (double)FLT_EPSILON;
    double error = 0;
    for (int64_t k = 0; k < e->n; k++) {
        const json_t *row = json_array_get(json_object_get(e->root, "logits"), (size_t)k);
        double sum = 0;
        for (size_t x = 0; x < 3; x++)
            sum += exp(json_number_value(json_array_get(row, x)));
        for (size_t x = 0; x < 3; x++)
            error = fmax(
                error, fabs((double)found[3 * k + (int64_t)x] - exp(json_number_value(json_array_get(row, x))) / sum));
    }
    print_message("    %-18s error %.2e of %.2e\n", "probabilities", error, bound);
    if (!(error <= bound))
        fail_msg("probabilities: off by %g, above %g", error, bound);
}

/* Classifying a pair gives the bits of its score, but an empty second text is none. */
static void compare_pairs(const rp_encoder *m, const expected *e, const float *found)
{
    float label[MOST], alone;
    int64_t empty = 0;
    fine(rp_encoder_classify(m, e->n, e->text, label, NULL, NULL));
    for (int64_t k = 0; k < e->n; k++) {
        const bool none = e->text[k].pair[0] == 0;
        const rp_encoder_text one = {e->text[k].text, e->text[k].bytes, NULL, 0};
        const rp_encoder_text sized = {e->text[k].text, e->text[k].bytes, "not read", 0};
        fine(rp_encoder_classify(m, 1, none ? &one : &e->text[k], &alone, NULL, NULL));
        assert_memory_equal(&alone, &label[k], sizeof alone);
        assert_int_equal(memcmp(&found[k], &label[k], sizeof alone) != 0, none);
        if (none)
            fine(rp_encoder_classify(m, 1, &sized, &label[k], NULL, NULL));
        assert_memory_equal(&alone, &label[k], sizeof alone);
        empty += none;
    }
    assert_true(empty > 0);
}

static void scores(void **state)
{
    static const char *const names[] = {"labels", "rank"};
    (void)state;
    for (int f = 0; f < 2; f++) {
        expected e;
        rp_encoder *m = open_model(names[f], &e);
        const int64_t labels = rp_encoder_about(m)->labels;
        float found[MOST * 3], other[MOST * 3];
        assert_int_equal(labels, f == 0 ? 3 : 1);
        fine((f == 1 ? rp_encoder_rerank : rp_encoder_classify)(m, e.n, e.text, found, NULL, NULL));
        for (int64_t k = 0; k < e.n * labels; k++) { /* logits, up to a number for each text */
            assert_true(found[k] > 0 && found[k] < 1);
            other[k] = f == 1 ? logf(found[k] / (1 - found[k])) : 0;
        }
        if (f == 1) {
            same_rows(&e, "logits", other, 1);
            compare_pairs(m, &e, found);
        } else {
            compare_probabilities(&e, found);
            assert_string_equal(rp_encoder_label(m, 0), "negative");
            assert_string_equal(rp_encoder_label(m, 2), "positive");
            refused(rp_encoder_rerank(m, e.n, e.text, other, NULL, NULL), RP_E_UNSUPPORTED, "has 3 labels");
        }
        close_model(m, &e);
    }
}

#define FASTA "tests/t5/data/proteins/proteins.fasta"

/* Read the next protein as tokens. Return its number of residues; 0: there is none. */
static int64_t next_protein(const rp_encoder *m, io_fasta *file, rp_encoder_tokens *t, int64_t *unknown)
{
    char err[IO_ERR_MAX];
    io_record r;
    int32_t *made;
    const int got = io_fasta_next(file, true, 1000, &r, err);
    if (got == 0)
        return 0;
    assert_int_equal(got, 1);
    fine(rp_encoder_residues(m, r.residues, r.n, &made, &t->n, unknown));
    assert_int_equal(t->n, r.n + 2);
    t->tokens = made;
    return r.n;
}

/* Hidden states of residues are those of EsmModel, and a mean over them omits <cls> and <eos>. */
static void residues(void **state)
{
    char err[IO_ERR_MAX];
    expected e;
    rp_encoder *m = open_model("protein", &e);
    io_set set = {0};
    io_fasta *file = io_fasta_open(FASTA, err);
    rp_encoder_tokens t = {0};
    double error = 0;
    int64_t unknown, missing = 0, proteins = 0, n;
    (void)state;
    assert_non_null(file);
    assert_int_equal(io_read(TEXTS "/protein/proteins.safetensors", &set, NULL, err), IO_OK);
    const io_array *hidden = io_find(&set, "hidden");
    const float *right = hidden->data, *end = right + hidden->shape[0] * hidden->shape[1];
    const double bound = MARGIN * (double)*(const float *)io_find(&set, "error")->data;
    for (; (n = next_protein(m, file, &t, &unknown)) > 0; proteins++, missing += unknown) {
        float *found = malloc((size_t)(t.n * 24) * sizeof *found);
        fine(rp_encoder_hidden(m, 1, &t, found, NULL, NULL));
        for (int64_t k = 0; k < n * 24; k++)
            error = fmax(error, fabs((double)found[24 + k] - (double)right[k]));
        right += n * 24;
        free(found);
        rp_encoder_free((void *)(uintptr_t)t.tokens);
    }
    assert_ptr_equal(right, end);
    assert_int_equal(proteins, 6);
    assert_int_equal(missing, 1); /* J */
    print_message("    %-18s error %.2e of %.2e\n", "residues", error, bound);
    assert_true(error <= bound);
    io_fasta_close(file);
    io_free(&set);
    close_model(m, &e);
}

static void refused_residues(void **state)
{
    static const int32_t right[] = {0, 20, 15, 3, 3, 3, 2};
    expected e, other;
    rp_encoder *m = open_model("protein", &e), *bert = open_model("rank", &other), *bare;
    int32_t *t;
    int64_t n, unknown;
    char text[17];
    (void)state;
    fine(rp_encoder_residues(m, "m-K *J.", -1, &t, &n, &unknown));
    assert_int_equal(n, 7);
    assert_int_equal(unknown, 3);
    assert_memory_equal(t, right, sizeof right);
    rp_encoder_free(t);
    refused(rp_encoder_residues(m, "MK1", -1, &t, &n, &unknown), RP_E_ARG, "byte 2 is 0x31, which is not a residue");
    refused(rp_encoder_residues(m, "M", INT32_MAX, &t, &n, &unknown), RP_E_RANGE, "2147483647 residues");
    refused(rp_encoder_residues(m, NULL, 0, &t, &n, &unknown), RP_E_ARG, "text, tokens, n or unknown is NULL");
    refused(rp_encoder_residues(NULL, "M", -1, &t, &n, &unknown), RP_E_ARG, "model is NULL");
    refused(rp_encoder_residues(bert, "M", -1, &t, &n, &unknown), RP_E_UNSUPPORTED, "its model_type is bert");
    fine(rp_encoder_open(&bare, "tests/encoder/data/esm", NULL));
    refused(rp_encoder_residues(bare, "M", -1, &t, &n, &unknown), RP_E_UNSUPPORTED, "has no tokenizer");
    rp_encoder_close(bare);
    refused(rp_encoder_checksum(NULL, text), RP_E_ARG, "model or text is NULL");
    fine(rp_encoder_checksum(m, text));
    assert_int_equal(strlen(text), 16);
    assert_true(rp_encoder_hidden_bytes(m, 100, 100) > 100 * 24 * 4 * 6);
    assert_true(rp_encoder_hidden_bytes(m, 20000, 20000) < 10 * rp_encoder_hidden_bytes(m, 10000, 10000) / 4);
    assert_int_equal(rp_encoder_hidden_bytes(m, 0, 0), 0);
    assert_int_equal(rp_encoder_hidden_bytes(m, 1, 2), -1);
    assert_int_equal(rp_encoder_hidden_bytes(NULL, 2, 2), -1);
    close_model(m, &e);
    close_model(bert, &other);
}

static void refusals(void **state)
{
    expected e, other;
    rp_encoder *m = open_model("search", &e), *two = open_model("asymmetric", &other), *bare;
    rp_encoder_text none = {NULL, 0, NULL, 0};
    const char *prompt;
    int32_t *found;
    int64_t n;
    float out[WIDEST];
    (void)state;
    refused(rp_encoder_embed(m, NULL, 1, &none, out, NULL, NULL), RP_E_ARG, "texts[0].text is NULL");
    refused(rp_encoder_embed(m, NULL, 1, e.text, NULL, NULL, NULL), RP_E_ARG, "vectors is NULL");
    refused(rp_encoder_embed(NULL, NULL, 1, e.text, out, NULL, NULL), RP_E_ARG, "model is NULL");
    refused(rp_encoder_embed(m, NULL, -1, e.text, out, NULL, NULL), RP_E_ARG, "n is -1");
    refused(rp_encoder_classify(m, 1, e.text, out, NULL, NULL), RP_E_UNSUPPORTED, "has no classification head");
    refused(rp_encoder_rerank(m, 1, e.text, out, NULL, NULL), RP_E_UNSUPPORTED, "has no classification head");
    refused(rp_encoder_tokenize(m, e.text, -1, &found, NULL, &n), RP_E_ARG, "max_tokens is -1");
    refused(rp_encoder_tokenize(m, e.text, 1, &found, NULL, &n), RP_E_RANGE, "1");
    refused(rp_encoder_tokenize(m, NULL, 0, &found, NULL, &n), RP_E_ARG, "text, tokens or n is NULL");
    refused(rp_encoder_prompt(two, "nothing", &prompt), RP_E_ARG, "nothing");
    refused(rp_encoder_vector(m, NULL, -1, out, out), RP_E_ARG, "n is -1");
    fine(rp_encoder_embed(m, NULL, 0, NULL, NULL, NULL, NULL));
    fine(rp_encoder_open(&bare, "tests/encoder/data/bert", NULL));
    assert_int_equal(rp_encoder_about(bare)->has_tokenizer, 0);
    refused(rp_encoder_embed(bare, NULL, 1, e.text, out, NULL, NULL), RP_E_UNSUPPORTED,
            "has no tokenizer.json or vocab.txt");
    refused(rp_encoder_prompt(bare, NULL, &prompt), RP_E_UNSUPPORTED, "has no modules.json");
    rp_encoder_close(bare);
    close_model(m, &e);
    close_model(two, &other);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(tokens),   cmocka_unit_test(vectors),
                                       cmocka_unit_test(scores),   cmocka_unit_test(refusals),
                                       cmocka_unit_test(residues), cmocka_unit_test(refused_residues)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
