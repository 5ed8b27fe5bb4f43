/* test_text.c -- how output is written: characters in pictures, strings in JSON, and the array of offsets as a single
 * number.
 * SPDX-License-Identifier: Apache-2.0 */
#include "tests/helpers.h"

#include "cli/cli.h"
#include "cli/picture/canvas.h"

/* A character that cannot be shown, or that is not UTF-8, is read as a question mark. Reading continues after it. */
static void characters_are_read(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        unsigned want;
    } cases[] = {{"A", 'A'},
                 {"\xc3\xa9", 0xe9},
                 {"\xdf\xbf", 0x7ff},
                 {"\xe0\xa0\x80", 0x800},
                 {"\xef\xbf\xbd", 0xfffd},
                 {"\xf0\x90\x80\x80", 0x10000},
                 {"\xf4\x8f\xbf\xbd", 0x10fffd},
                 {"\n", '?'},
                 {"\x7f", '?'},
                 {"\xc2\x85", '?'},         /* a control character */
                 {"\xe0\x9f\xbf", '?'},     /* three bytes for a two-byte character */
                 {"\xf0\x8f\xbf\xbf", '?'}, /* four bytes for a three-byte character */
                 {"\xf4\x90\x80\x80", '?'}, /* beyond the last character */
                 {"\xed\xa0\x80", '?'},     /* half of a UTF-16 pair */
                 {"\xef\xbf\xbe", '?'},     /* not a character */
                 {"\xe2\x80\x8b", '?'},     /* zero width */
                 {"\xe2\x80\x8e", '?'},     /* writing directions */
                 {"\xe2\x80\x8f", '?'},
                 {"\xe2\x80\xa8", '?'}, /* a line separator */
                 {"\xe2\x80\xae", '?'},
                 {"\xe2\x81\xa6", '?'},
                 {"\xef\xbb\xbf", '?'}, /* a byte order mark */
                 {"\xe2\x80\xaf", 0x202f},
                 {"\xe2\x81\xaa", 0x206a}};
    for (size_t n = 0; n < sizeof cases / sizeof *cases; n++) {
        const char *at = cases[n].text;
        assert_int_equal(pic_next(&at), cases[n].want);
        assert_int_equal(at - cases[n].text, strlen(cases[n].text));
        char written[5] = "";
        *pic_put_char(written, cases[n].want) = 0;
        if (cases[n].want != '?')
            assert_string_equal(written, cases[n].text);
    }
    const char *cut = "\xe2\x80z";
    assert_int_equal(pic_next(&cut), '?');
    assert_string_equal(cut, "z");
    const char *none = "\x80z";
    assert_int_equal(pic_next(&none), '?');
    assert_string_equal(none, "z");
}

static void strings_are_json(void **state)
{
    (void)state;
    static const struct {
        const char *text, *want;
    } cases[] = {{"", "\"\""},
                 {"a\"b\\c", "\"a\\\"b\\\\c\""},
                 {"\x01\n\x1f\x7f", "\"\\u0001\\u000a\\u001f\\u007f\""},
                 {"\xc2\x85\xc2\x9f\xc2\xa0\xc3\x9f", "\"\\u0085\\u009f\xc2\xa0\xc3\x9f\""},
                 {"\xff\xe2\x82\xac\xe2\x82", "\"\\ufffd\xe2\x82\xac\\ufffd\\ufffd\""}};
    for (size_t n = 0; n < sizeof cases / sizeof *cases; n++) {
        char *found = NULL;
        size_t size = 0;
        FILE *to = open_memstream(&found, &size);
        assert_non_null(to);
        cli_json_string(to, cases[n].text);
        assert_int_equal(fclose(to), 0);
        assert_string_equal(found, cases[n].want);
        free(found);
    }
}

/* The offset is one number for all batch entries, with or without an axis, or one number per entry. */
static void an_offset_of_each_entry(void **state)
{
    (void)state;
    int64_t data[3] = {5, -7, (int64_t)1 << 60};
    const int64_t one = 1, three = 3;
    const struct {
        int32_t ndim;
        const int64_t *shape;
        int64_t batch;
        int code;
        int64_t want;
    } cases[] = {{0, NULL, 2, CLI_OK, 5},       {1, &one, 2, CLI_OK, 5},
                 {1, &three, 1, CLI_OK, -7},    {1, &three, 3, CLI_FAILED, 0},
                 {1, &three, 2, CLI_FAILED, 0}, {2, (int64_t[]){1, 3}, 0, CLI_FAILED, 0}};
    for (size_t n = 0; n < sizeof cases / sizeof *cases; n++) {
        cli_problem p;
        rp_tensors t = rp_tensors_init();
        cli_problem_init(&p);
        t.q_offset = rp_array_of(data, RP_I64, cases[n].ndim, cases[n].shape);
        assert_int_equal(cli_take_offset(&p, &t, cases[n].batch), cases[n].code);
        if (cases[n].code == CLI_OK)
            assert_true(p.desc.q_offset == cases[n].want && !t.q_offset.data);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(characters_are_read), cmocka_unit_test(strings_are_json),
                                       cmocka_unit_test(an_offset_of_each_entry)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
