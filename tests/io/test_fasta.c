/* test_fasta.c -- reads FASTA files in whole and in small blocks, and archives that grow array by array.
 * SPDX-License-Identifier: Apache-2.0 */
#include "io/append.h"
#include "io/fasta.h"
#include "tests/io/files.h"

/* Read a FASTA text. Return "header=RESIDUES@line " for each record, then the error if there is one. */
static const char *read_text(const char *text, size_t n, bool keep, int64_t max)
{
    static char found[4096];
    io_record r;
    const char *path = in_dir("x.fasta");
    save(path, text, n);
    io_fasta *f = io_fasta_open(path, err);
    assert_non_null(f);
    found[0] = 0;
    int got;
    while ((got = io_fasta_next(f, keep, max, &r, err)) == 1) {
        const size_t at = strlen(found);
        if (keep)
            snprintf(found + at, sizeof found - at, "%s=%s@%d ", r.header, r.residues, (int)r.line);
        else
            snprintf(found + at, sizeof found - at, "%s=%d@%d ", r.header, (int)r.n, (int)r.line);
    }
    if (got < 0)
        snprintf(found + strlen(found), sizeof found - strlen(found), "! %s", err + strlen(path) + 2);
    io_fasta_close(f);
    return found;
}

static void becomes(const char *text, const char *expected)
{
    assert_string_equal(read_text(text, strlen(text), true, 1000), expected);
}

static void test_records(void **state)
{
    (void)state;
    becomes(">a\nMK\n>b\nL\n", "a=MK@1 b=L@3 ");
    becomes("\n\n; comment\n>a b \t\r\nmk\r\n;>c\n\n l-V* \n", "a b=MKLV@4 ");
    becomes(">a\nM*K**\n*", "a=M*K@1 ");
    becomes("> > x>y\nM", "xy=M@1 ");
    becomes(">\xce\xb1\nM", "\xce\xb1=M@1 ");
    const char *text = ">a\nMK\nL\n>b\nM";
    assert_string_equal(read_text(text, strlen(text), false, 3), "a=3@1 b=1@4 ");
}

static void test_refusals(void **state)
{
    (void)state;
    becomes(">a\nMKL\n>b\n>c\nM", "a=MKL@1 ! line 3: the protein b has no residues (remove the record)");
    becomes("M", "! line 1: no header comes before it (begin each protein with a line \">NAME\")");
    becomes(">a\nM>K", "! line 2: the character '>' is not a residue (use A to Z, *, or - for a gap)");
    const char *text = ">a\nMK\nL\n";
    assert_string_equal(read_text(text, strlen(text), true, 2),
                        "! line 3: the protein a has more than 2 residues, which is the limit (remove it)");
    assert_string_equal(read_text(">a\nM\0", 5, true, 9),
                        "! line 2: the byte 0x00 is not a residue (use A to Z, *, or - for a gap)");
    assert_null(io_fasta_open(in_dir("none"), err));
    assert_null(io_fasta_open(dir, err));
}

/* A record that is longer than the reader's block, with a line end on each side of its border. */
static void test_blocks(void **state)
{
    (void)state;
    enum { BLOCK = 1 << 16 };
    for (int shift = -3; shift <= 3; shift++) {
        const int n = BLOCK + shift;
        char *text = malloc((size_t)n + 100);
        memset(text, 'A', (size_t)n + 100);
        memcpy(text, ">x\n", 3);
        memcpy(text + n, "\n;c\nC\n>y\nM", 10);
        save(in_dir("y.fasta"), text, (size_t)n + 10);
        io_record r;
        io_fasta *f = io_fasta_open(in_dir("y.fasta"), err);
        assert_int_equal(io_fasta_next(f, true, n, &r, err), 1);
        assert_int_equal(r.n, n - 2);
        assert_int_equal(strspn(r.residues, "A"), n - 3);
        assert_int_equal(r.residues[n - 3], 'C');
        assert_int_equal(io_fasta_next(f, false, n, &r, err), 1);
        assert_int_equal(r.line, 5);
        assert_int_equal(io_fasta_next(f, true, n, &r, err), 0);
        io_fasta_close(f);
        free(text);
    }
}

/* ------------------------------------------------------------------------------------------------ archives */

static int count(void *context, const io_array *array, uint64_t tag, off_t at, char why[IO_ERR_MAX])
{
    assert_true(at > 0);
    int *n = context;
    char name[24];
    (void)why;
    snprintf(name, sizeof name, "array%d", *n);
    assert_string_equal(array->name, name);
    assert_int_equal(array->ndim, 1);
    assert_int_equal(array->shape[0], 3 + *n);
    assert_int_equal(tag, 7 + *n);
    ++*n;
    return 0;
}

/* Add arrays until there are `n`, and close the archive. Return the number of arrays that it already had. */
static int add(const char *path, const char *from, int n, bool flush, const char *to)
{
    static const float zeros[100];
    int found = 0;
    io_append *a = io_append_open(path, from, "a note", count, &found, err);
    if (a == NULL)
        fail_msg("%s", err);
    for (int k = found; k < n; k++) {
        char name[24];
        int64_t size = 3 + k;
        snprintf(name, sizeof name, "array%d", k);
        const io_array array = {.name = name,
                                .dtype = RP_F32,
                                .ndim = 1,
                                .shape = &size,
                                .bytes = 4 * (size_t)size,
                                .data = (void *)(uintptr_t)zeros,
                                .borrowed = true};
        assert_int_equal(io_append_array(a, &array, (uint64_t)(7 + k), err), 0);
        if (flush)
            assert_int_equal(io_append_flush(a, err), 0);
    }
    assert_int_equal(io_append_close(a, to, err), 0);
    return found;
}

static void check_archive(const char *path, size_t n)
{
    io_set set;
    if (io_read(path, &set, NULL, err) != IO_OK)
        fail_msg("%s", err);
    assert_int_equal(set.n_arrays, n);
    io_free(&set);
}

static void test_append(void **state)
{
    (void)state;
    const char *part = in_dir("a.npz.part"), *out = in_dir("a.npz");
    assert_int_equal(add(part, out, 3, false, NULL), 0);
    check_archive(part, 3);
    assert_int_equal(add(part, out, 5, true, NULL), 3);
    check_archive(part, 5);
    assert_int_equal(add(part, out, 6, false, out), 5);
    check_archive(out, 6);
    assert_int_equal(access(part, F_OK), -1);
    assert_int_equal(add(part, out, 8, true, out), 6); /* begins with a copy */
    check_archive(out, 8);
    assert_int_equal(add(part, NULL, 0, false, NULL), 0); /* nothing was added: no file */
    assert_int_equal(access(part, F_OK), -1);
}

/* Wherever the file ends, the arrays before that are found, and the rest can be added. */
static void test_cut(void **state)
{
    (void)state;
    const char *out = in_dir("whole.npz"), *part = in_dir("cut.part"), *second = in_dir("cut.npz");
    add(in_dir("whole.part"), NULL, 4, false, out);
    const bytes whole = load_file(out);
    int before = 0;
    for (size_t size = 0; size <= whole.n; size++) {
        save(part, whole.p, size);
        const int found = add(part, NULL, 4, false, second);
        assert_true(found >= before);
        before = found;
        const bytes cut = load_file(second);
        assert_int_equal(cut.n, whole.n);
        assert_memory_equal(cut.p, whole.p, whole.n);
        free(cut.p);
    }
    assert_int_equal(before, 4);
    free(whole.p);
}

static void test_other_files(void **state)
{
    (void)state;
    int n = 0;
    const char *part = in_dir("other.part"), *out = in_dir("whole.npz");
    save(part, "something", 9);
    assert_null(io_append_open(part, NULL, "a note", count, &n, err));
    assert_non_null(strstr(err, "this command did not write it"));
    save(part, "", 0);
    assert_null(io_append_open(part, out, "another note", count, &n, err));
    assert_non_null(strstr(err, "it was written with a note, but this run has another note"));
    assert_null(io_append_open(dir, NULL, "a note", count, &n, err));
    assert_null(io_append_open("/none/x", NULL, "a note", count, &n, err));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_records), cmocka_unit_test(test_refusals), cmocka_unit_test(test_blocks),
        cmocka_unit_test(test_append),  cmocka_unit_test(test_cut),      cmocka_unit_test(test_other_files),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
