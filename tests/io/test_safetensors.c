/* test_safetensors.c -- headers of .safetensors files.
 * SPDX-License-Identifier: Apache-2.0 */
#include "tests/io/files.h"
#include "tests/memory_limit.h"

static bytes make_st(const char *header, size_t data_size)
{
    bytes b = {0};
    put_int(&b, strlen(header), 8);
    put_text(&b, header);
    for (size_t n = 0; n < data_size; n++)
        put_int(&b, n, 1);
    return b;
}

static void refuse_st(const char *header, size_t data_size, const char *words)
{
    bytes b = make_st(header, data_size);
    refuse(IO_SAFETENSORS, b.p, b.n, words);
    free(b.p);
}

static void accept_st(const char *header, size_t data_size, size_t n_arrays)
{
    io_set set;
    bytes b = make_st(header, data_size);
    if (parse(IO_SAFETENSORS, b.p, b.n, &set) != 0)
        fail_msg("%s: %s", header, err);
    assert_int_equal(set.n_arrays, n_arrays);
    io_free(&set);
    free(b.p);
}

#define ONE(DTYPE, SHAPE, OFFSETS) "{\"a\":{\"dtype\":" DTYPE ",\"shape\":" SHAPE ",\"data_offsets\":" OFFSETS "}}"

static void headers_are_read(void **state)
{
    (void)state;
    accept_st("{}", 0, 0);
    accept_st(ONE("\"F32\"", "[3]", "[0,12]"), 12, 1);
    accept_st("\n\t " ONE("\"F32\"", "[3]", "[0,12]") "     ", 12, 1); /* odd header length: unaligned data */
    accept_st(ONE("\"F64\"", "[]", "[0,8]"), 8, 1);
    accept_st(ONE("\"F32\"", "[2,0]", "[0,0]"), 0, 1);
    accept_st(ONE("\"f32\"", "[3]", "[0,12]"), 12, 1); /* an unknown type makes only its array unusable */
    accept_st("{\"\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]},\"b\":{\"dtype\":\"F32\",\"shape\":[1],"
              "\"data_offsets\":[1,5]},\"z\":{\"dtype\":\"I8\",\"shape\":[0],\"data_offsets\":[1,1]}}",
              5, 3);
    accept_st("{\"c\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[3,5]},\"b\":{\"dtype\":\"U8\",\"shape\":[2],"
              "\"data_offsets\":[1,3]},\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}",
              5, 3); /* the order in the header differs from the order of the data */
}

/* Each header must be refused with the given reason. 12 bytes of data follow it. */
static void bad_headers_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *text, *words;
    } bad[] = {
        {"", "malformed"},
        {"[]", "not a JSON object"},
        {"{} x", "malformed"},
        {"{\"a\":1,}", "exactly dtype"},
        {"{,}", "malformed"},
        {"{\"a\":1", "malformed"},
        {"{\"a\":1]", "malformed"},
        {"{\"a\":[}", "malformed"},
        {"{\"a\":[1}]}", "malformed"},
        {"{\"a\" 1}", "malformed"},
        {"{\"a\":}", "malformed"},
        {"{\"a\":1 \"b\":1}", "malformed"},
        {"{\"a:1}", "malformed"},
        {"{\"a\\", "malformed"},
        {"{1:1}", "malformed"},
        {"{\"__metadata__\":{\"a\":\"b\" \"c\":\"d\"}}", "malformed"},
        {"{\"a\\\":1}", "malformed"},
        {"{a:1}", "malformed"},
        {"{\"__metadata__\":{},}", "malformed"},
        {"{\"__metadata__\":{\"a\":\"b\",}}", "malformed"},
        {"{\"__metadata__\":{\"a\":\"b\"} 1}", "malformed"},
        {"\xef\xbb\xbf{}", "malformed"},
        {"{\"a\":1}", "exactly dtype"},
        {"{\"a\":{}}", "exactly dtype"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[3],\"data_offsets\":[0,12],\"more\":1}}", "exactly dtype"},
        {ONE("\"F32\"", "[3]", "[0,16]"), "not within the 12 bytes"},
        {ONE("\"F32\"", "[3]", "[12,0]"), "not within the 12 bytes"},
        {ONE("\"F32\"", "[3]", "[-1,12]"), "integer"},
        {ONE("\"F32\"", "[3]", "[0.0,12]"), "integer"},
        {ONE("\"F32\"", "[3]", "[0,1.2e1]"), "integer"},
        {ONE("\"F32\"", "[3]", "[\"0\",12]"), "integer"},
        {ONE("\"F32\"", "[3]", "[0]"), "it must have 2"},
        {ONE("\"F32\"", "[3]", "[0,12,12]"), "it must have 2"},
        {ONE("\"F32\"", "[3]", "[0,18446744073709551615]"), "malformed"},
        {ONE("\"F32\"", "[1000,1000]", "[0,12]"), "needs"},
        {ONE("\"F32\"", "[2]", "[0,8]"), "end at byte 8"},
        {ONE("\"F32\"", "[2]", "[4,12]"), "begins at byte 4"},
        {ONE("\"F32\"", "[2,18446744073709551614]", "[0,12]"), "malformed"},
        {ONE("\"F32\"", "[2,9223372036854775807]", "[0,12]"), "too large"},
        {ONE("\"F32\"", "[0,9223372036854775807,9]", "[0,0]"), "too large"},
        {ONE("\"f32\"", "[2,9223372036854775807]", "[0,12]"), "too large"},
        {ONE("\"F32\"", "[9007199254740993]", "[0,12]"), "needs 36028797018963972"},
        {ONE("\"F32\"", "[1e30]", "[0,12]"), "integer"},
        {ONE("\"F32\"", "[1e999]", "[0,12]"), "malformed"},
        {ONE("\"F32\"", "[-1]", "[0,12]"), "integer"},
        {ONE("\"F32\"", "[\"3\"]", "[0,12]"), "integer"},
        {ONE("\"F32\"", "[null]", "[0,12]"), "integer"},
        {ONE("\"F32\"", "[true]", "[0,12]"), "integer"},
        {ONE("\"F32\"", "3", "[0,12]"), "exactly dtype"},
        {ONE("4", "[3]", "[0,12]"), "exactly dtype"},
        {ONE("\"F32\"", "[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,3]", "[0,12]"), "33 axes"},
        {"{\"a\":{\"dtype\":\"F32\",\"dtype\":\"F32\",\"shape\":[3],\"data_offsets\":[0,12]}}", "malformed"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[3],\"data_offsets\":[0,12]},"
         "\"a\":{\"dtype\":\"F32\",\"shape\":[3],\"data_offsets\":[0,12]}}",
         "malformed"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[3],\"data_offsets\":[0,12]},"
         "\"b\":{\"dtype\":\"F32\",\"shape\":[3],\"data_offsets\":[0,12]}}",
         "before the end"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]},"
         "\"b\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[8,12]}}",
         "after the end"},
        {"{\"__metadata__\":{},\"\\u005f_metadata__\":{}}", "malformed"},
        {"{\"__metadata__\":{\"a\":\"b\",\"a\":\"b\"}}", "malformed"},
        {"{\"__metadata__\":{\"a\":1}}", "not a string"},
        {"{\"__metadata__\":{\"a\":{}}}", "not a string"},
        {"{\"__metadata__\":[]}", "not an object"},
        {"{\"a\\u0000\":{\"dtype\":\"F32\",\"shape\":[3],\"data_offsets\":[0,12]}}", "malformed"},
        {"{\"\\ud800\":{\"dtype\":\"F32\",\"shape\":[3],\"data_offsets\":[0,12]}}", "malformed"},
        {"{\"\xc0\x80\":{\"dtype\":\"F32\",\"shape\":[3],\"data_offsets\":[0,12]}}", "malformed"},
        {"{\"\x1b[31m\":1}", "malformed"},
        {"{\"\\u001b[31m\":1}", "tensor '\\x1b[31m'"},
    };
    for (size_t n = 0; n < sizeof bad / sizeof *bad; n++)
        refuse_st(bad[n].text, 12, bad[n].words);
}

/* Invalid header lengths in a file of ten bytes. */
static void bad_lengths_are_refused(void **state)
{
    (void)state;
    static const struct {
        uint64_t length;
        const char *words;
    } lengths[] = {{UINT64_MAX, "its header would"},
                   {UINT64_C(1) << 63, "its header would"},
                   {100000001, "its header would"},
                   {100000000, "cut short"},
                   {3, "cut short"}};
    for (size_t n = 0; n < sizeof lengths / sizeof *lengths; n++) {
        bytes b = {0};
        put_int(&b, lengths[n].length, 8);
        put_text(&b, "{}");
        refuse(IO_SAFETENSORS, b.p, b.n, lengths[n].words);
        free(b.p);
    }
}

/* Ten million brackets; 10,000 tensors that use the same bytes; 20,000 valid tensors. */
static void large_headers_are_read_or_refused(void **state)
{
    (void)state;
    bytes many = {0};
    put_text(&many, "{\"__metadata__\":{\"k\":\"\"");
    for (int n = 0; n < 100000; n++) {
        char key[32];
        snprintf(key, sizeof key, ",\"k%d\":\"\"", n);
        put_text(&many, key);
    }
    put(&many, "}}", 3);
    refuse_st((const char *)many.p, 0, "more than 100000 keys");
    free(many.p);
    char *deep = malloc(10000001);
    memset(deep, '[', 10000000);
    deep[10000000] = 0;
    refuse_st(deep, 0, "malformed");
    free(deep);
    for (int overlap = 0; overlap < 2; overlap++) {
        const int n = overlap ? 10000 : 20000;
        bytes header = {0};
        header.p = malloc(4 << 20);
        for (int k = 0; k < n; k++)
            header.n += (size_t)sprintf((char *)header.p + header.n,
                                        "%s\"t%d\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[%d,%d]}",
                                        k == 0 ? "{" : ",", k, overlap ? 0 : 4 * k, overlap ? 4 : 4 * k + 4);
        put(&header, "}", 2);
        if (overlap)
            refuse_st((char *)header.p, 4, "before the end");
        else
            accept_st((char *)header.p, 4 * (size_t)n, (size_t)n);
        free(header.p);
    }
}

static bool wants_q(const void *context, const char *name)
{
    (void)context;
    return strcmp(name, "q") == 0;
}

/* Read a file of n_arrays arrays in a child process that may use mb megabytes more than now. Request only the first
 * array, q. */
static void reads_in(const char *path, int mb, size_t n_arrays)
{
    int status;
    const pid_t child = fork();
    if (child == 0) {
        io_set set;
        limit_memory(mb);
        if (io_read_wanted(path, wants_q, NULL, &set, NULL, err) != IO_OK)
            print_error("%s\n", err);
        _exit(set.n_arrays == n_arrays && set.arrays[0].bytes == 4 && ((const char *)set.arrays[0].data)[3] == 'd' ? 0
                                                                                                                   : 1);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

/* If the large array of a 3 GB file is not requested, only the header is read. A header with 300,000 arrays takes at
 * most five times its size. */
static void memory_grows_with_the_requested_arrays(void **state)
{
    (void)state;
    if (SANITIZED)
        return; /* a sanitizer maps more memory than any limit */
    const char *path = in_dir("sparse.safetensors");
    bytes b = make_st("{\"q\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]},\"large\":{\"dtype\":\"U8\","
                      "\"shape\":[3221225472],\"data_offsets\":[4,3221225476]}}",
                      0);
    put_text(&b, "abcd");
    save(path, b.p, b.n);
    if (truncate(path, (off_t)b.n + 3221225472) == 0)
        reads_in(path, 16, 2);
    assert_int_equal(unlink(path), 0);
    free(b.p);

    const int n = 300000;
    char *header = malloc((size_t)n * 80), *at = header;
    assert_non_null(header);
    at += sprintf(at, "{\"q\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}");
    for (int k = 0; k < n; k++)
        at += sprintf(at, ",\"t%d\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[%d,%d]}", k, 4 + k, 5 + k);
    strcpy(at, "}");
    b = make_st(header, 0);
    put_text(&b, "abcd");
    save(path, b.p, b.n);
    assert_int_equal(truncate(path, (off_t)b.n + n), 0);
    /* an array of 58 bytes of header takes 58 bytes, a name and a shape (64), and 88 in lists that are up to 1.75 times
     * as long: 276 bytes, or 4.8 times its header */
    reads_in(path, (int)(6 * b.n >> 20), (size_t)n + 1);
    free(b.p);
    free(header);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(headers_are_read),
        cmocka_unit_test(bad_headers_are_refused),
        cmocka_unit_test(bad_lengths_are_refused),
        cmocka_unit_test(large_headers_are_read_or_refused),
        cmocka_unit_test(memory_grows_with_the_requested_arrays),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
