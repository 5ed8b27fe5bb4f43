/* test_files.c -- files written by this library and by others are read back correctly. Also tests the errors of
 * io_take.
 * SPDX-License-Identifier: Apache-2.0 */
#include "tests/io/files.h"

/* Write and read every type and unusual shapes, in both formats. */
static void written_files_are_read_back(void **state)
{
    (void)state;
    for (io_format format = IO_NPZ; format <= IO_SAFETENSORS; format++) {
        io_set set, back;
        io_format found = IO_UNKNOWN;
        char name[64];
        fill_set(&set, format);
        if (format == IO_SAFETENSORS) {
            assert_int_equal(io_add_meta(&set, "tokens", "[\"a\", \"\xe2\x82\xac\"]"), 0);
            assert_int_equal(io_add_meta(&set, "", ""), 0);
        }
        snprintf(name, sizeof name, "round.%s", suffixes[format]);
        const char *path = in_dir(name), *again = in_dir("again");
        if (io_write(path, format, &set, err) != 0 || io_read(path, &back, &found, err) != 0)
            fail_msg("%s", err);
        assert_int_equal(found, format);
        assert_true(same_set(&set, &back));
        /* Equal content must give equal bytes. If a file name has no suffix, the first bytes select the format. */
        assert_int_equal(io_write(again, format, &set, err), 0);
        bytes one = load_file(path), two = load_file(again);
        assert_int_equal(one.n, two.n);
        assert_memory_equal(one.p, two.p, one.n);
        io_free(&back);
        assert_int_equal(io_read(again, &back, &found, err), 0);
        assert_int_equal(found, format);
        io_free(&back);
        io_free(&set);
        free(one.p);
        free(two.p);
        /* An empty set. */
        assert_int_equal(io_write(path, format, &set, err), 0);
        assert_int_equal(io_read(path, &back, NULL, err), 0);
        assert_int_equal(back.n_arrays, 0);
        io_free(&back);
    }
}

/* Check arrays of every type that contain 0, 1, ..., 23 (bool: false for 0) with shape (2, 3, 4). */
static void check_counting(const char *file, bool bf16)
{
    io_set set;
    char path[300];
    snprintf(path, sizeof path, RELPOS_TEST_DATA "/%s", file);
    if (io_read(path, &set, NULL, err) != 0)
        fail_msg("%s", err);
    for (int k = 0; k < N_TYPES; k++) {
        const io_array *a = io_find(&set, type_names[k]);
        if (every_type[k] == RP_BF16 && !bf16)
            continue;
        assert_non_null(a);
        assert_int_equal(a->dtype, every_type[k]);
        assert_true(a->ndim == 3 && a->shape[0] == 2 && a->shape[1] == 3 && a->shape[2] == 4);
        for (size_t i = 0; i < 24; i++) {
            double d = 0;
            uint64_t u = 0;
            if (a->dtype <= RP_BF16)
                rp_convert(&d, RP_F64, (char *)a->data + i * io_dtype_size(a->dtype), a->dtype, 1);
            else
                memcpy(&u, (char *)a->data + i * io_dtype_size(a->dtype), io_dtype_size(a->dtype));
            assert_true(a->dtype <= RP_BF16 ? d == (double)i : u == (a->dtype == RP_BOOL ? i > 0 : i));
        }
    }
    io_free(&set);
}

/* Files written by NumPy and by safetensors are read. If an array in them cannot be used, a reason is given. */
static void files_of_numpy_and_safetensors_are_read(void **state)
{
    (void)state;
    io_set set;
    check_counting("numpy.npz", false);
    check_counting("numpy_deflated.npz", false);
    check_counting("numpy_pipe.npz", false);
    check_counting("reference.safetensors", true);

    assert_int_equal(io_read(RELPOS_TEST_DATA "/reference.safetensors", &set, NULL, err), 0);
    assert_string_equal(io_meta(&set, "source"), "make.py");
    assert_non_null(strstr(io_find(&set, "fp8")->unsupported, "'F8_E4M3'"));
    io_free(&set);
    assert_int_equal(io_read(RELPOS_TEST_DATA "/numpy_empty.npz", &set, NULL, err), 0);
    assert_int_equal(set.n_arrays, 0);
    io_free(&set);

    if (io_read(RELPOS_TEST_DATA "/numpy_odd.npz", &set, NULL, err) != 0)
        fail_msg("%s", err);
    assert_int_equal(set.n_arrays, 12);
    for (int i = 0; i < 24; i++) {
        assert_true(((double *)io_find(&set, "big")->data)[i] == i);
        assert_true(((float *)io_find(&set, "fortran")->data)[i] == (float)i);
        assert_true(((int16_t *)io_find(&set, "both")->data)[i] == i);
    }
    assert_int_equal(io_find(&set, "rank0")->ndim, 0);
    assert_true(*(float *)io_find(&set, "rank0")->data == 7);
    assert_true(io_find(&set, "empty")->shape[1] == 0 && io_find(&set, "empty")->data == NULL);
    assert_non_null(io_find(&set, "na\xc3\xafve/\xd0\xba\xd0\xbb\xd1\x8e\xd1\x87"));
    assert_non_null(strstr(io_find(&set, "object")->unsupported, "relpos never reads pickles"));
    assert_non_null(strstr(io_find(&set, "fields")->unsupported, "structured"));
    assert_non_null(strstr(io_find(&set, "complex")->unsupported, "'<c8'"));
    assert_non_null(strstr(io_find(&set, "text")->unsupported, "'<U2'"));
    assert_string_equal(io_meta(&set, "text"), "[\"ab\"]");
    assert_non_null(strstr(io_find(&set, "void")->unsupported, "bfloat16"));
    io_free(&set);
}

/* The errors of io_take for arrays that are missing or unusable. */
static void unusable_arrays_say_why(void **state)
{
    (void)state;
    io_set set;
    assert_int_equal(io_read(RELPOS_TEST_DATA "/reference.safetensors", &set, NULL, err), 0);
    assert_null(io_take(&set, "fp8", err));
    assert_string_equal(
        err, "array \"fp8\": it has the dtype 'F8_E4M3' (save it as F32, F64, F16, BF16 or an integer type)");
    assert_int_equal(io_find(&set, "fp8")->dtype, IO_NO_DTYPE);
    assert_null(io_take(&set, "no\nthing", err));
    assert_memory_equal(err, "array \"no\\x0athing\" is not in the file (it has ", 46);
    io_free(&set);
    assert_int_equal(io_read(RELPOS_TEST_DATA "/numpy_odd.npz", &set, NULL, err), 0);
    assert_int_equal(io_find(&set, "object")->dtype, IO_NO_DTYPE);
    assert_null(io_take(&set, "object", err));
    assert_non_null(strstr(err, "relpos never reads pickles)"));
    assert_ptr_equal(io_take(&set, "empty", err), io_find(&set, "empty")); /* an array with no bytes still has a type */
    io_free(&set);
    assert_null(io_take(&set, "a", err)); /* a set without arrays */
    assert_non_null(strstr(err, "(it has no arrays)"));
    assert_int_equal(io_add(&set, "a", RP_F32, 0, NULL, &(float){1}, true), 0);
    assert_true(io_unsupported(io_push(&set, "odd"), "it is odd"));
    assert_null(io_take(&set, "odd", err));
    assert_string_equal(err, "array \"odd\": it is odd (save it as f32)");
    io_free(&set);
}

/* Control characters and bytes that are not UTF-8 are escaped. A name that is too long is cut between characters. */
static void names_are_safe_to_print(void **state)
{
    (void)state;
    char buf[32];
    assert_string_equal(io_safe(buf, sizeof buf, "q\n\x1b\x7f\xff\xc3\xa9\xc2\x9b"),
                        "q\\x0a\\x1b\\x7f\\xff\xc3\xa9\\x9b");
    assert_string_equal(io_safe(buf, sizeof buf, "\xed\xa0\x80"), "\\xed\\xa0\\x80");
    assert_string_equal(io_safe(buf, sizeof buf, "\xc2\xa9"), "\xc2\xa9");
    assert_string_equal(io_safe(buf, 8, "12345678"), "1234...");
    assert_string_equal(io_safe(buf, 8, "1234567"), "1234567");
    assert_string_equal(io_safe(buf, 8,
                                "123\xe2\x82\xac"
                                "89"),
                        "123...");
    assert_string_equal(io_safe(buf, 3, "1234"), "..");
    assert_string_equal(io_safe(buf, 1, "1234"), "");
    for (size_t size = 1; size < sizeof buf; size++)
        assert_true(strlen(io_safe(buf, size, "\xe2\x82\xac\n\xe2\x82\xac\n\xe2\x82\xac\xff\xff\xff")) < size);
}

/* Check the first and the last sequence of each length, and their invalid neighbours. */
static void utf8_is_recognized(void **state)
{
    static const struct {
        const char *text;
        size_t bytes;
    } cases[] = {{"\x7f", 1},
                 {"\x80", 0},
                 {"\xc1\xbf", 0},
                 {"\xc2\x80", 2},
                 {"\xdf\xbf", 2},
                 {"\xe0\x9f\xbf", 0},
                 {"\xe0\xa0\x80", 3},
                 {"\xed\x9f\xbf", 3},
                 {"\xed\xa0\x80", 0},
                 {"\xee\x80\x80", 3},
                 {"\xef\xbf\xbf", 3},
                 {"\xf0\x8f\xbf\xbf", 0},
                 {"\xf4\x8f\xbf\xbf", 4},
                 {"\xf4\x90\x80\x80", 0},
                 {"\xf0\x90\x80\x80", 4},
                 {"\xf5\x80\x80\x80", 0}};
    (void)state;
    for (size_t n = 0; n < sizeof cases / sizeof *cases; n++) {
        const size_t found = io_utf8((const unsigned char *)cases[n].text, strlen(cases[n].text));
        if (found != cases[n].bytes)
            fail_msg("sequence %zu: %zu bytes, not %zu", n, found, cases[n].bytes);
        if (found > 1)
            assert_int_equal(io_utf8((const unsigned char *)cases[n].text, found - 1), 0); /* truncated sequences */
    }
    assert_int_equal(io_utf8((const unsigned char *)"a", 0), 0);
    char buf[8] = "kept";
    assert_string_equal(io_safe(buf, 0, "name"), "");
    assert_string_equal(buf, "kept");
}

static void a_suffix_names_the_format(void **state)
{
    (void)state;
    assert_int_equal(io_format_of("a.npz"), IO_NPZ);
    assert_int_equal(io_format_of("d.npz/a.safetensors"), IO_SAFETENSORS);
    assert_int_equal(io_format_of("-"), IO_UNKNOWN);
    assert_int_equal(io_format_of("a.npy"), IO_UNKNOWN);
}

static void an_error_about_a_long_path_says_why(void **state)
{
    (void)state;
    char path[3000];
    memset(path, '\n', sizeof path - 1);
    path[sizeof path - 1] = 0;
    io_set set;
    assert_int_equal(io_read(path, &set, NULL, err), IO_FAILED);
    assert_non_null(strstr(err, "...: cannot be opened"));
}

static void sizes_do_not_wrap(void **state)
{
    io_set set = {0};
    (void)state;
    size_t product;
    assert_true(io_mul(1, PTRDIFF_MAX, &product) && product == PTRDIFF_MAX);
    assert_false(io_mul(2, (size_t)PTRDIFF_MAX / 2 + 1, &product));
    assert_int_equal(io_add(&set, "x", RP_F32, -1, (int64_t[1]){0}, NULL, false), -1);
    assert_int_equal(io_add(&set, "x", RP_F32, 33, (int64_t[33]){0}, NULL, false), -1);
    assert_int_equal(io_add(&set, "x", RP_F64, 1, (int64_t[]){INT64_MAX}, NULL, false), -1);
    assert_int_equal(io_add(&set, "x", RP_F64, 1, (int64_t[]){-1}, NULL, false), -1);
    io_free(&set);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(written_files_are_read_back),
        cmocka_unit_test(files_of_numpy_and_safetensors_are_read),
        cmocka_unit_test(unusable_arrays_say_why),
        cmocka_unit_test(names_are_safe_to_print),
        cmocka_unit_test(utf8_is_recognized),
        cmocka_unit_test(a_suffix_names_the_format),
        cmocka_unit_test(an_error_about_a_long_path_says_why),
        cmocka_unit_test(sizes_do_not_wrap),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
