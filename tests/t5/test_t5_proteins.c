/* test_t5_proteins.c -- compares tokens, hidden states of residues and 3Di letters of protein models with the results
 * of the families' own scripts in tests/t5/data/proteins, and checks families and errors.
 * SPDX-License-Identifier: Apache-2.0 */
#include "tests/t5/models.h"

#define FASTA DATA "/proteins/proteins.fasta"
enum { PROTEINS = 6, WIDTH = 16, LONGEST = 200 };

static const char *const families[] = {"prott5", "prostt5", "ankh"};

static rp_t5 *open_family(const char *name)
{
    char path[300];
    snprintf(path, sizeof path, "proteins/%s", name);
    return open_model(path, "f32", NULL);
}

static void read_family(expected *e, const char *name)
{
    char path[300], err[IO_ERR_MAX];
    snprintf(path, sizeof path, DATA "/proteins/%s/expected.safetensors", name);
    if (io_read(path, &e->set, NULL, err) != IO_OK)
        fail_msg("%s", err);
}

/* Read the proteins of the FASTA file as tokens. Return the number of residues. */
static int64_t read_proteins(const rp_t5 *m, rp_t5_protein p[PROTEINS], int64_t *replaced)
{
    rp_t5_fasta *file;
    rp_t5_record r;
    int64_t n = 0, residues = 0;
    *replaced = 0;
    fine(rp_t5_fasta_open(&file, FASTA));
    assert_int_equal(rp_t5_fasta_again(file), 1);
    for (fine(rp_t5_fasta_next(file, 1, LONGEST, &r)); r.header != NULL; n++) {
        assert_true(n < PROTEINS);
        fine(rp_t5_residues(m, NULL, r.residues, r.n, &p[n]));
        assert_int_equal(p[n].residues, r.n);
        residues += r.n;
        *replaced += p[n].replaced;
        fine(rp_t5_fasta_next(file, 1, LONGEST, &r));
    }
    assert_int_equal(n, PROTEINS);
    rp_t5_fasta_close(file);
    return residues;
}

static void free_proteins(rp_t5_protein p[PROTEINS])
{
    for (int n = 0; n < PROTEINS; n++)
        rp_t5_free(p[n].tokens);
}

static void test_hidden(void **state)
{
    (void)state;
    for (size_t f = 0; f < sizeof families / sizeof *families; f++) {
        expected e;
        rp_t5_protein p[PROTEINS];
        int64_t replaced;
        rp_t5 *m = open_family(families[f]);
        read_family(&e, families[f]);
        assert_string_equal(rp_t5_family(m), families[f]);
        const int64_t n = read_proteins(m, p, &replaced);
        const io_array *hidden = array_of(&e, "hidden");
        assert_int_equal(n, hidden->shape[0]);
        assert_int_equal(replaced, *(const int64_t *)array_of(&e, "replaced")->data);
        float *all = malloc((size_t)n * WIDTH * 4), *one = malloc((size_t)n * WIDTH * 4), *at = one;
        fine(rp_t5_encode_residues(m, PROTEINS, p, all, NULL, NULL));
        double most = 0;
        for (int64_t k = 0; k < n * WIDTH; k++)
            most = fmax(most, fabs((double)all[k] - (double)((const float *)hidden->data)[k]));
        print_message("    %-8s error %.1e of 2e-5\n", families[f], most);
        assert_true(most <= 2e-5);
        for (int k = 0; k < PROTEINS; at += p[k++].residues * WIDTH) /* each protein by itself gives the same bits */
            fine(rp_t5_encode_residues(m, 1, &p[k], at, NULL, NULL));
        assert_memory_equal(all, one, (size_t)n * WIDTH * 4);
        free(all);
        free(one);
        free_proteins(p);
        free_expected(&e);
        rp_t5_close(m);
    }
}

static void test_letters(void **state)
{
    (void)state;
    expected e;
    rp_t5_protein p[PROTEINS];
    rp_t5_structure *s;
    int64_t replaced;
    rp_t5 *m = open_family("prostt5");
    read_family(&e, "prostt5");
    const int64_t n = read_proteins(m, p, &replaced);
    float *hidden = malloc((size_t)n * WIDTH * 4), *at = hidden;
    char *letters = malloc((size_t)n), *to = letters;
    fine(rp_t5_structure_open(&s, m, DATA "/proteins/prostt5/cnn.safetensors"));
    fine(rp_t5_encode_residues(m, PROTEINS, p, hidden, NULL, NULL));
    for (int k = 0; k < PROTEINS; k++) {
        fine(rp_t5_structure_of(s, at, p[k].residues, to));
        at += p[k].residues * WIDTH;
        to += p[k].residues;
    }
    assert_memory_equal(letters, array_of(&e, "letters")->data, (size_t)n);
    fine(rp_t5_structure_of(s, NULL, 0, NULL));
    rp_t5_structure_close(s);
    rp_t5_structure_close(NULL);
    free(letters);
    free(hidden);
    free_proteins(p);
    free_expected(&e);
    rp_t5_close(m);
}

static void becomes(const rp_t5 *m, const char *family, const char *text, int64_t replaced, const char *tokens)
{
    rp_t5_protein p;
    char found[200] = "";
    fine(rp_t5_residues(m, family, text, -1, &p));
    for (int64_t k = 0; k < p.n; k++)
        snprintf(found + strlen(found), sizeof found - strlen(found), k == 0 ? "%d" : " %d", (int)p.tokens[k]);
    assert_string_equal(found, tokens);
    assert_int_equal(p.replaced, replaced);
    rp_t5_free(p.tokens);
}

static void test_tokens(void **state)
{
    (void)state;
    rp_t5 *prott5 = open_family("prott5"), *prostt5 = open_family("prostt5"), *ankh = open_family("ankh");
    becomes(prott5, NULL, "Al-G\tV\n", 0, "3 4 5 6 1");
    becomes(prott5, NULL, "BJOUZ*X", 5, "24 23 23 23 23 23 23 1");
    becomes(prott5, NULL, "", 0, "1");
    becomes(prostt5, NULL, "MBJOUZ", 5, "149 19 10 4 23 23 9 1");
    becomes(ankh, NULL, "MBJOUZ*", 2, "19 24 2 25 26 27 23 1");
    becomes(prott5, "ankh", "BJ", 1, "24 2 1");    /* the usual numbers */
    rp_t5 *plain = open_model("v11", "f32", NULL); /* without a tokenizer */
    becomes(plain, "prott5", "MKU", 1, "19 14 23 1");
    rp_t5_close(plain);
    rp_t5_close(prott5);
    rp_t5_close(prostt5);
    rp_t5_close(ankh);
}

static void refused(rp_status expected_status, const char *words, rp_status status)
{
    assert_int_equal(status, expected_status);
    if (strstr(rp_t5_last_error(), words) == NULL)
        fail_msg("\"%s\" does not contain \"%s\"", rp_t5_last_error(), words);
}

static void test_errors(void **state)
{
    (void)state;
    rp_t5_protein p;
    rp_t5_structure *s;
    rp_t5_fasta *file;
    float out[WIDTH];
    rp_t5 *m = open_family("prott5"), *byt5 = open_model("byt5", "f32", NULL), *v11 = open_model("v11", "f32", NULL);
    assert_null(rp_t5_family(byt5));
    refused(RP_E_UNSUPPORTED, "lacks the piece", rp_t5_residues(byt5, NULL, "M", 1, &p));
    refused(RP_E_UNSUPPORTED, "tokenizer.json", rp_t5_residues(v11, NULL, "M", 1, &p));
    refused(RP_E_UNSUPPORTED, "64 rows", rp_t5_residues(v11, "prostt5", "M", 1, &p));
    refused(RP_E_ARG, "is unknown", rp_t5_residues(m, "esm", "M", 1, &p));
    refused(RP_E_ARG, "byte 1 is 0x31", rp_t5_residues(m, NULL, "M1", 2, &p));
    refused(RP_E_ARG, "byte 1 is 0x00", rp_t5_residues(m, NULL, "M\0K", 3, &p));
    refused(RP_E_RANGE, "it must have at most", rp_t5_residues(m, NULL, "M", INT64_MAX, &p));
    refused(RP_E_ARG, "is NULL", rp_t5_residues(m, NULL, NULL, 0, &p));
    fine(rp_t5_residues(m, NULL, "M", 1, &p));
    p.before = 1;
    refused(RP_E_ARG, "was not made by", rp_t5_encode_residues(m, 1, &p, out, NULL, NULL));
    rp_t5_free(p.tokens);
    fine(rp_t5_encode_residues(m, 0, NULL, NULL, NULL, NULL));
    refused(RP_E_ARG, "classifier.0.weight is missing",
            rp_t5_structure_open(&s, m, DATA "/proteins/prott5/model.safetensors"));
    assert_null(s);
    rp_t5 *wide = open_model("t5", "f32", NULL); /* 12 wide */
    refused(RP_E_ARG, "must have the shape (outputs, 12, odd width up to 99)",
            rp_t5_structure_open(&s, wide, DATA "/proteins/prostt5/cnn.safetensors"));
    rp_t5_close(wide);
    refused(RP_E_ARG, "cannot be opened", rp_t5_fasta_open(&file, DATA "/none.fasta"));
    rp_t5_fasta_close(NULL);
    rp_t5_close(m);
    rp_t5_close(byt5);
    rp_t5_close(v11);
}

/* The stated memory grows with the longest protein, and covers the buffers of a call. */
static void test_bytes(void **state)
{
    (void)state;
    rp_t5 *m = open_family("prott5");
    const rp_t5_info *i = rp_t5_about(m);
    const int64_t row = (2 * i->d_model + 4 * i->heads * i->d_kv) * 4;
    assert_int_equal(rp_t5_encode_bytes(m, 0, 0), 0);
    assert_int_equal(rp_t5_encode_bytes(m, 1, 2), -1);
    assert_true(rp_t5_encode_bytes(m, 1000, 1000) >= 1000 * row);
    assert_true(rp_t5_encode_bytes(m, 100000, 100000) >= 100000 * row);
    assert_int_equal(rp_t5_encode_bytes(m, 100000, 10), rp_t5_encode_bytes(m, 8192, 10)); /* passes of 8192 tokens */
    rp_t5_close(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_hidden), cmocka_unit_test(test_letters), cmocka_unit_test(test_tokens),
        cmocka_unit_test(test_errors), cmocka_unit_test(test_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
