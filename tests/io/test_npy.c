/* test_npy.c -- headers of .npy members.
 * SPDX-License-Identifier: Apache-2.0 */
#include "tests/io/archives.h"

/* Return an archive with the single member x.npy. */
static bytes wrap(const void *data, size_t n)
{
    return make_zip(&(member){.name = "x.npy", .data = data, .size = n}, 1, 1);
}

static void refuse_npy(const void *data, size_t n, const char *words)
{
    bytes zip = wrap(data, n);
    refuse(IO_NPZ, zip.p, zip.n, words);
    free(zip.p);
}

static void refuse_header(const char *dictionary, const char *words)
{
    bytes npy = make_npy(1, dictionary, strlen(dictionary), 12);
    refuse_npy(npy.p, npy.n, words);
    free(npy.p);
}

static void accept_npy(int version, const char *dictionary, size_t data_size, rp_dtype dtype, int32_t ndim)
{
    bytes npy = make_npy(version, dictionary, strlen(dictionary), data_size), zip = wrap(npy.p, npy.n);
    io_set set;
    if (parse(IO_NPZ, zip.p, zip.n, &set) != 0)
        fail_msg("%s: %s", dictionary, err);
    assert_int_equal(set.arrays[0].dtype, dtype);
    assert_int_equal(set.arrays[0].ndim, ndim);
    assert_int_equal(set.arrays[0].bytes, data_size);
    assert_null(set.arrays[0].unsupported);
    io_free(&set);
    free(npy.p);
    free(zip.p);
}

/* Valid versions, orders, shapes and spellings. */
static void headers_are_read(void **state)
{
    (void)state;
    accept_npy(1, HEADER("(3,)"), 12, RP_F32, 1);
    accept_npy(2, HEADER("(3,)") "   \n", 12, RP_F32, 1);
    accept_npy(3, HEADER("(3, 1)"), 12, RP_F32, 2);
    accept_npy(1, HEADER("(3L,)"), 12, RP_F32, 1);
    accept_npy(1, "{'descr': 'f4', 'fortran_order': False, 'shape': (3,)}", 12, RP_F32, 1);
    accept_npy(1, "{'descr': '>u1', 'fortran_order': False, 'shape': (3,)}", 3, RP_U8, 1);
    accept_npy(1, "{'shape': (3,), 'descr': '<i2', 'fortran_order': False\n}", 6, RP_I16, 1);
    accept_npy(1, HEADER("(1, 3, )"), 12, RP_F32, 2);
    accept_npy(1, HEADER("()"), 4, RP_F32, 0);
    accept_npy(1, HEADER("(0,)"), 0, RP_F32, 1);
    accept_npy(1, "{'descr': '<f4', 'fortran_order': True, 'shape': (3,)}", 12, RP_F32, 1);
    accept_npy(1, "{'descr': '<f4', 'shape': (3,), 'fortran_order': False,\n}", 12, RP_F32, 1);
    accept_npy(1, HEADER("(3,0,2)"), 0, RP_F32, 3);
    accept_npy(1, "{\"shape\":(2,2),\"fortran_order\":True,\"descr\":\"|b1\"}", 4, RP_BOOL, 2);
}

/* Each header must be refused with the given reason. */
static void bad_headers_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *text, *words;
    } bad[] = {
        {HEADER("(-1,)"), "negative"},
        {HEADER("(3,-1)"), "negative"},
        {HEADER("(4294967296,4294967296)"), "too large"},
        {HEADER("(2147483648,2147483648,4)"), "too large"},
        {HEADER("(9223372036854775808,2)"), "63 bits"},
        {HEADER("(0,9223372036854775808)"), "63 bits"},
        {HEADER("(0,9223372036854775807,2)"), "too large"},
        {HEADER("(99999999999999999999999999999999999,)"), "63 bits"},
        {HEADER("(1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1)"), "32 axes"},
        {HEADER("(3)"), "not a tuple"},
        {HEADER("[3]"), "not a tuple"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (3", "comma"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (3,", "does not end"},
        {HEADER("(3,,)"), "expected"},
        {HEADER("(,)"), "expected"},
        {HEADER("(3 1)"), "comma"},
        {HEADER("(1e3,)"), "comma"},
        {HEADER("(True,)"), "expected"},
        {HEADER("(0x10,)"), "comma"},
        {HEADER("(03,)"), "zeros"},
        {HEADER("(1_000,)"), "comma"},
        {HEADER("(np.int64(3),)"), "expected"},
        {HEADER("(\xd9\xa3,)"), "expected"},
        {"{'descr': '<f4', 'fortran_order': 1, 'shape': (3,)}", "neither True nor False"},
        {"{'descr': '<f4', 'fortran_order': 'True', 'shape': (3,)}", "neither True nor False"},
        {"{'descr': '<f4', 'fortran_order': Falsehood, 'shape': (3,)}", "neither True nor False"},
        {"{'descr': '<f4', 'fortran_order': False, }", "missing"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (3,), 'more': 1}", "other than"},
        {"{'descr': '<f4', 'descr': '<f4', 'fortran_order': False, 'shape': (3,)}", "twice"},
        {"{'descr': '<f4' 'fortran_order': False, 'shape': (3,)}", "comma"},
        {"{'descr' '<f4', 'fortran_order': False, 'shape': (3,)}", "colon"},
        {"{'descr': <f4, 'fortran_order': False, 'shape': (3,)}", "string"},
        {"{'descr': '<f4, 'fortran_order': False, 'shape': (3,)}", "comma"},
        {"{'descr': '\\x3cf4', 'fortran_order': False, 'shape': (3,)}", "escape"},
        {"{'descr': [('a', '<f4'), 'fortran_order': False, 'shape': (3,)}", "list does not end"},
        {"{'descr': ['", "list does not end"},
        {"{'descr': ['\\", "list does not end"},
        {"{'descr': [('a\\', '<f4')], 'fortran_order': False, 'shape': (3,)}",
         "list does not end"}, /* the backslash escapes the quote */
        {"{'descr': [('a', \x01'<f4')], 'fortran_order': False, 'shape': (3,)}", "control character"},
        {HEADER("(3,)") " ; import os", "after the dictionary"},
        {"   ", "expected a dictionary"},
        {"{"
         "          ",
         "expected a string"},
        {HEADER("(4,)"), "needs 16 bytes"},
        {HEADER("(2,)"), "needs 8 bytes"},
        {HEADER("(3,"), "expected"},
    };
    for (size_t n = 0; n < sizeof bad / sizeof *bad; n++)
        refuse_header(bad[n].text, bad[n].words);
}

/* NUL bytes in the dictionary, a version 3.0 that is not UTF-8, 60,000 brackets. */
static void hostile_headers_are_refused(void **state)
{
    (void)state;
    static const char nul[] = "{'descr': '<f4', 'fo\0\0\0\0n_order': False, 'shape': (3,)}";
    bytes npy = make_npy(1, nul, sizeof nul - 1, 12);
    refuse_npy(npy.p, npy.n, "control character");
    free(npy.p);
    const char *latin = "{'descr': [('\xe9', '<f4')], 'fortran_order': False, 'shape': (3,)}";
    npy = make_npy(3, latin, strlen(latin), 12);
    refuse_npy(npy.p, npy.n, "UTF-8");
    free(npy.p);
    char *deep = malloc(60000);
    memset(deep, '(', 60000);
    npy = make_npy(1, deep, 60000, 0);
    refuse_npy(npy.p, npy.n, "expected a dictionary");
    free(npy.p);
    memcpy(deep, "{'descr': [", 11);
    npy = make_npy(2, deep, 60000, 0);
    refuse_npy(npy.p, npy.n, "list does not end");
    free(npy.p);
    free(deep);
}

static void bad_beginnings_are_refused(void **state)
{
    static const struct {
        const char *bytes;
        size_t n;
        const char *words;
    } bad[] = {
        {"", 0, "is too short"},
        {"\x93NUMPX\x01\x00\x40\x00{}", 12, "does not begin like"},
        {"\x93NUMPY\x00\x00\x40\x00{}", 12, "version 0.0"},
        {"\x93NUMPY\x04\x00\x40\x00{}", 12, "version 4.0"},
        {"\x93NUMPY\xff\xff\x40\x00{}", 12, "version 255.255"},
        {"\x93NUMPY\x01\x00\x00\x00{}", 12, "empty"},
        {"\x93NUMPY\x01\x00\xff\xff{}", 12, "is too short"},
        {"\x93NUMPY\x01\x00\xf8\xff", 10, "is too short"},
        {"\x93NUMPY\x02\x00\xf0\xff\xff\xff", 12, "at most 65536"},
        {"\x93NUMPY\x02\x00\xff\xff\xff\x7f", 12, "at most 65536"},
    };
    (void)state;
    for (size_t n = 0; n < sizeof bad / sizeof *bad; n++)
        refuse_npy(bad[n].bytes, bad[n].n, bad[n].words);
}

static void an_unusable_type_affects_only_its_array(void **state)
{
    (void)state;
    static const char *const unusable[] = {
        "|O",
        "<U4",
        "<c8",
        "<f16",
        "<f3",
        "<V2",
        "",
        "f",
        "\x1b[31m",
        "<M8[ns]",
        "<Ux",
        "<U1/",
        "one of a type with a name that is longer than any that NumPy would write down"};
    for (size_t n = 0; n < sizeof unusable / sizeof *unusable; n++) {
        char text[200];
        io_set set;
        snprintf(text, sizeof text, "{'descr': '%s', 'fortran_order': False, 'shape': (3,)}", unusable[n]);
        bytes npy = make_npy(1, text, strlen(text), 12);
        bytes good = make_npy(1, HEADER("(3,)"), strlen(HEADER("(3,)")), 12);
        bytes zip = make_zip((member[]){{.name = "bad.npy", .data = npy.p, .size = npy.n},
                                        {.name = "good.npy", .data = good.p, .size = good.n},
                                        {.name = "readme.txt", .data = "hello", .size = 5}},
                             3, 3);
        if (unusable[n][0] == 27) {
            refuse(IO_NPZ, zip.p, zip.n, "control character");
        } else {
            if (parse(IO_NPZ, zip.p, zip.n, &set) != 0)
                fail_msg("%s", err);
            assert_non_null(io_find(&set, "bad")->unsupported);
            assert_null(io_find(&set, "good")->unsupported);
            assert_non_null(io_find(&set, "readme.txt")->unsupported);
            io_free(&set);
        }
        free(npy.p);
        free(good.p);
        free(zip.p);
    }
}

/* Nested lists in a type, with strings, spaces and line ends, are skipped. A list that does not end is an error. */
static void structured_types_are_skipped(void **state)
{
    (void)state;
    static const struct {
        const char *type, *words; /* words: NULL if only this array is unusable */
    } cases[] = {{"[('a', '<f4'), (\"b\",\t'<i4', (2,))\n]", NULL},
                 {"[('a]', '<f4'), ('it\\'s', '<f4')]", NULL},
                 {"[('a', '<f4')", "does not end"},
                 {"[('a", "does not end"},
                 {"[(\"a\\", "does not end"},
                 {"[('a',\v'<f4')]", "control character"}};
    for (size_t n = 0; n < sizeof cases / sizeof *cases; n++) {
        char text[200];
        io_set set;
        snprintf(text, sizeof text, "{'fortran_order': False, 'shape': (3,), 'descr': %s%s", cases[n].type,
                 cases[n].words ? "" : "}");
        if (cases[n].words) {
            refuse_header(text, cases[n].words);
            continue;
        }
        bytes npy = make_npy(1, text, strlen(text), 12), zip = wrap(npy.p, npy.n);
        if (parse(IO_NPZ, zip.p, zip.n, &set) != 0)
            fail_msg("%s: %s", text, err);
        assert_non_null(strstr(io_find(&set, "x")->unsupported, "structured"));
        io_free(&set);
        free(npy.p);
        free(zip.p);
    }
    refuse_header("{'descr':", "");
}

/* Make a file whose array x has the dtype `type`, such as "<U3", and n code points of `text`, in the byte order of that
 * type. Check that x is no array that can be computed with, and that metadata x is `want` (NULL: there is none). */
static void strings_are(const char *type, const char *shape, const uint32_t *text, size_t n, const char *want)
{
    char dictionary[200];
    io_set set;
    snprintf(dictionary, sizeof dictionary, "{'descr': '%s', 'fortran_order': False, 'shape': %s}", type, shape);
    bytes npy = make_npy(1, dictionary, strlen(dictionary), 4 * n);
    for (size_t at = 0; at < n; at++)
        for (size_t b = 0; b < 4; b++)
            npy.p[npy.n - 4 * n + 4 * at + b] = (unsigned char)(text[at] >> 8 * (type[0] == '>' ? 3 - b : b));
    bytes zip = wrap(npy.p, npy.n);
    if (parse(IO_NPZ, zip.p, zip.n, &set) != 0)
        fail_msg("%s", err);
    assert_non_null(io_find(&set, "x")->unsupported);
    const char *found = io_meta(&set, "x");
    if ((found == NULL) != (want == NULL) || (found != NULL && strcmp(found, want) != 0))
        fail_msg("%s %s: metadata %s, not %s", type, shape, found ? found : "(none)", want ? want : "(none)");
    io_free(&set);
    free(npy.p);
    free(zip.p);
}

static void strings_are_metadata(void **state)
{
    (void)state;
    static const uint32_t plain[] = {'T', 'h', 'e', 'a', 0, 0, 0, 0, 0, 'b', 0, 'c'},
                          odd[] = {0xe9, 0x20ac, 0x1f600, '"', '\\', '\n', 0x7f, 0x7ff, 0x800},
                          last[] = {0x10ffff, 0xffff, 0x10000}, surrogate[] = {'a', 0xd800, 'b'},
                          beyond[] = {'a', 'b', 0x110000};
    strings_are("<U3", "(4,)", plain, 12, "[\"The\", \"a\", \"\", \"b\\u0000c\"]");
    strings_are(">U3", "(4,)", plain, 12, "[\"The\", \"a\", \"\", \"b\\u0000c\"]");
    strings_are("<U3", "(3,)", odd, 9,
                "[\"\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80\", \"\\u0022\\u005c\\u000a\", \"\x7f\xdf\xbf\xe0\xa0\x80\"]");
    strings_are("<U1", "(3,)", last, 3, "[\"\xf4\x8f\xbf\xbf\", \"\xef\xbf\xbf\", \"\xf0\x90\x80\x80\"]");
    strings_are("<U3", "(0,)", NULL, 0, "[]");
    strings_are("<U3", "(1,)", surrogate, 3, NULL);
    strings_are("<U3", "(1,)", beyond, 3, NULL);
    strings_are("<U3", "(2, 2)", plain, 12, NULL);
    strings_are("<U3", "()", plain, 3, NULL);
    strings_are("<U3", "(5,)", plain, 12, NULL); /* the shape needs more data than the file has */
    strings_are("<U3", "(3,)", plain, 12, NULL);
    strings_are("<U0", "(4,)", NULL, 0, NULL);
    strings_are("<U9999999", "(4,)", plain, 12, NULL);
    strings_are("<U3x", "(4,)", plain, 12, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(headers_are_read),
        cmocka_unit_test(bad_headers_are_refused),
        cmocka_unit_test(hostile_headers_are_refused),
        cmocka_unit_test(bad_beginnings_are_refused),
        cmocka_unit_test(an_unusable_type_affects_only_its_array),
        cmocka_unit_test(structured_types_are_skipped),
        cmocka_unit_test(strings_are_metadata),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
