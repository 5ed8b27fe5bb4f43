/* files.h -- test files: a temporary folder, bytes, sets of arrays, and checks of errors.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef RELPOS_TESTS_FILES_H
#define RELPOS_TESTS_FILES_H
#include "io/formats.h"
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include "tests/helpers.h"

#ifndef RELPOS_TEST_DATA
#define RELPOS_TEST_DATA "tests/io/data" /* relative to the root of the repository */
#endif

HELPER char dir[256], err[IO_ERR_MAX];

/* A growing string of bytes. */
typedef struct bytes {
    unsigned char *p;
    size_t n, capacity;
} bytes;

HELPER void put(bytes *b, const void *data, size_t n)
{
    if (b->p == NULL || b->n + n > b->capacity) {
        b->capacity = 2 * (b->n + n) + 4096;
        b->p = realloc(b->p, b->capacity);
    }
    assert_non_null(b->p);
    if (n > 0)
        memcpy(b->p + b->n, data, n);
    b->n += n;
}

HELPER void put_text(bytes *b, const char *text)
{
    put(b, text, strlen(text));
}

HELPER void put_int(bytes *b, uint64_t value, int n)
{
    for (int k = 0; k < n; k++)
        put(b, &(unsigned char){(unsigned char)(value >> 8 * k)}, 1);
}

HELPER const char *in_dir(const char *name)
{
    static char path[4][512];
    static int turn;
    turn = (turn + 1) % 4;
    snprintf(path[turn], sizeof path[turn], "%s/%s", dir, name);
    return path[turn];
}

HELPER void save(const char *path, const void *data, size_t n)
{
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(data, 1, n, f), n);
    assert_int_equal(fclose(f), 0);
}

HELPER bytes load_file(const char *path)
{
    bytes b = {0};
    char block[4096];
    size_t n;
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    while ((n = fread(block, 1, sizeof block, f)) > 0)
        put(&b, block, n);
    fclose(f);
    return b;
}

/* Parse a block of exactly n bytes, which lets a sanitizer detect reads past the end. */
HELPER int parse(io_format format, const void *data, size_t n, io_set *set)
{
    unsigned char *copy = malloc(n > 0 ? n : 1);
    assert_non_null(copy);
    if (n > 0)
        memcpy(copy, data, n);
    memset(set, 0, sizeof *set);
    err[0] = 0;
    const int result = io_parse("file", format, copy, n, set, err);
    free(copy);
    if (result != 0) {
        io_free(set);
        assert_int_equal(result, IO_DAMAGED);
        assert_memory_equal(err, "file: ", 6);
        assert_null(strchr(err, '\n'));
        assert_true(io_utf8_all(err, strlen(err)));
    }
    return result;
}

/* Check that reading the file fails and that the error contains these words. */
HELPER void refuse(io_format format, const void *data, size_t n, const char *words)
{
    io_set set;
    if (parse(format, data, n, &set) == 0) {
        io_free(&set);
        fail_msg("accepted; expected: %s", words);
    }
    if (strstr(err, words) == NULL)
        fail_msg("'%s' does not contain '%s'", err, words);
}

HELPER const rp_dtype every_type[] = {RP_F32, RP_F64, RP_F16, RP_BF16, RP_BOOL, RP_U8, RP_I8,
                                      RP_U16, RP_I16, RP_U32, RP_I32,  RP_U64,  RP_I64};

HELPER const char *const type_names[] = {"f32", "f64", "f16", "bf16", "bool", "u8", "i8",
                                         "u16", "i16", "u32", "i32",  "u64",  "i64"};

enum { N_TYPES = sizeof every_type / sizeof *every_type };

/* Fill a set with one array of each type, with arbitrary bytes, and arrays with unusual shapes. */
HELPER void fill_set(io_set *set, io_format format)
{
    memset(set, 0, sizeof *set);
    for (int k = 0; k < N_TYPES; k++) {
        if (format == IO_NPZ && every_type[k] == RP_BF16)
            continue;
        const int64_t shape[2] = {3, 2};
        const size_t n = 6 * io_dtype_size(every_type[k]);
        unsigned char *data = malloc(n);
        assert_non_null(data);
        for (size_t i = 0; i < n; i++)
            data[i] = (unsigned char)(37 * i + 11 * (size_t)k);
        assert_int_equal(io_add(set, type_names[k], every_type[k], 2, shape, data, false), 0);
    }
    static float seven = 7;
    const int64_t empty[3] = {3, 0, 2}, ones[IO_MAX_AXES] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1,
                                                             1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};
    assert_int_equal(io_add(set, "rank0", RP_F32, 0, NULL, &seven, true), 0);
    assert_int_equal(io_add(set, "empty", RP_F64, 3, empty, NULL, false), 0);
    assert_int_equal(io_add(set, "rank32", RP_F32, 32, ones, &seven, true), 0);
    assert_int_equal(io_add(set, "../\xc3\xa9\n\"\\", RP_F32, 1, ones, &seven, true), 0);
}

HELPER bool same_array(const io_array *a, const io_array *b)
{
    return a->dtype == b->dtype && a->ndim == b->ndim &&
           memcmp(a->shape, b->shape, (size_t)a->ndim * sizeof *a->shape) == 0 && a->bytes == b->bytes &&
           (a->bytes == 0 || memcmp(a->data, b->data, a->bytes) == 0) && a->unsupported == NULL &&
           b->unsupported == NULL;
}

HELPER bool same_set(const io_set *a, const io_set *b)
{
    bool same = a->n_arrays == b->n_arrays && a->n_meta == b->n_meta;
    for (size_t n = 0; same && n < a->n_arrays; n++) {
        const io_array *other = io_find(b, a->arrays[n].name);
        same = other != NULL && same_array(&a->arrays[n], other);
    }
    for (size_t n = 0; same && n < a->n_meta; n++) {
        const char *other = io_meta(b, a->meta_keys[n]);
        same = other != NULL && strcmp(other, a->meta_values[n]) == 0;
    }
    return same;
}

HELPER const char *const suffixes[] = {[IO_NPZ] = "npz", [IO_SAFETENSORS] = "safetensors"};

/* Create a temporary folder for this test program. */
HELPER int set_up(void **state)
{
    (void)state;
    const char *base = getenv("TMPDIR");
    snprintf(dir, sizeof dir, "%s/relpos-io-XXXXXX", base != NULL && strlen(base) < 200 ? base : "/tmp");
    return mkdtemp(dir) == NULL;
}

HELPER int tear_down(void **state)
{
    (void)state;
    char command[300];
    snprintf(command, sizeof command, "rm -rf '%s'", dir);
    return system(command);
}

#endif
