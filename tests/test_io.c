/* test_io.c -- the file layer: round trips, hostile files, and the promise that a failed write harms nothing.
 * Most of the bad files are made here; those that NumPy and safetensors wrote lie in tests/data/io.
 * SPDX-License-Identifier: Apache-2.0 */
#include "io/io_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <zip.h>

#include <cmocka.h> /* wants some of the headers above before it */

#include "helpers.h"
#include "starve.h"

#ifndef RELPOS_TEST_DATA
#define RELPOS_TEST_DATA "tests/data" /* from the root of the repository */
#endif

static char dir[256], err[IO_ERR_MAX];

/* ------------------------------------------------------------------------------------------------ bytes */

/* A growing string of bytes. */
typedef struct bytes {
    unsigned char *p;
    size_t n;
} bytes;

static void put(bytes *b, const void *data, size_t n)
{
    if (b->p == NULL || (b->n + n) / 4096 != b->n / 4096)
        b->p = realloc(b->p, 2 * (b->n + n) + 4096);
    assert_non_null(b->p);
    if (n > 0)
        memcpy(b->p + b->n, data, n);
    b->n += n;
}

static void put_text(bytes *b, const char *text)
{
    put(b, text, strlen(text));
}

static void put_int(bytes *b, uint64_t value, int n)
{
    for (int k = 0; k < n; k++)
        put(b, &(unsigned char){(unsigned char)(value >> 8 * k)}, 1);
}

static const char *in_dir(const char *name)
{
    static char path[4][512];
    static int turn;
    turn = (turn + 1) % 4;
    snprintf(path[turn], sizeof path[turn], "%s/%s", dir, name);
    return path[turn];
}

static void save(const char *path, const void *data, size_t n)
{
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(data, 1, n, f), n);
    assert_int_equal(fclose(f), 0);
}

static bytes load_file(const char *path)
{
    bytes b = {NULL, 0};
    char block[4096];
    size_t n;
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    while ((n = fread(block, 1, sizeof block, f)) > 0)
        put(&b, block, n);
    fclose(f);
    return b;
}

static int entries(const char *path)
{
    char command[600];
    int n = -1;
    snprintf(command, sizeof command, "ls -A '%s' | wc -l", path);
    FILE *f = popen(command, "r");
    assert_non_null(f);
    assert_int_equal(fscanf(f, "%d", &n), 1);
    pclose(f);
    return n;
}

/* Parse from a block of exactly n bytes, so that the sanitizer sees a byte too far. */
static int parse(io_format format, const void *data, size_t n, io_set *set)
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

/* The file has to be refused for a reason that holds the given words. */
static void refuse(io_format format, const void *data, size_t n, const char *words)
{
    io_set set;
    if (parse(format, data, n, &set) == 0) {
        io_free(&set);
        fail_msg("accepted; expected: %s", words);
    }
    if (strstr(err, words) == NULL)
        fail_msg("'%s' does not say '%s'", err, words);
}

/* ------------------------------------------------------------------------------------------------ arrays */

static const rp_dtype every_type[] = {RP_F32, RP_F64, RP_F16, RP_BF16, RP_BOOL, RP_U8, RP_I8,
                                      RP_U16, RP_I16, RP_U32, RP_I32,  RP_U64,  RP_I64};
static const char *const type_names[] = {"f32", "f64", "f16", "bf16", "bool", "u8", "i8",
                                         "u16", "i16", "u32", "i32",  "u64",  "i64"};
enum { N_TYPES = sizeof every_type / sizeof *every_type };

/* One array of each type and some odd shapes, with all sorts of bytes. */
static void fill_set(io_set *set, io_format format)
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

static bool same_array(const io_array *a, const io_array *b)
{
    return a->dtype == b->dtype && a->ndim == b->ndim && memcmp(a->shape, b->shape, sizeof a->shape) == 0 &&
           a->bytes == b->bytes && (a->bytes == 0 || memcmp(a->data, b->data, a->bytes) == 0) &&
           a->unsupported == NULL && b->unsupported == NULL;
}

static bool same_set(const io_set *a, const io_set *b)
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

static const char *const suffixes[] = {[IO_NPZ] = "npz", [IO_SAFETENSORS] = "safetensors"};

static void test_round_trip(void **state)
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
        /* Equal content gives equal bytes; a file without a suffix is known by its first bytes. */
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
        /* A set of nothing. */
        assert_int_equal(io_write(path, format, &set, err), 0);
        assert_int_equal(io_read(path, &back, NULL, err), 0);
        assert_int_equal(back.n_arrays, 0);
        io_free(&back);
    }
}

/* Arrays of every type that hold 0, 1, ..., 23 (bool: whether it is not 0) in the shape 2, 3, 4. */
static void check_counting(const char *file, bool bf16)
{
    io_set set;
    char path[300];
    snprintf(path, sizeof path, RELPOS_TEST_DATA "/io/%s", file);
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

static void test_peers(void **state)
{
    (void)state;
    io_set set;
    check_counting("numpy.npz", false);
    check_counting("numpy_deflated.npz", false);
    check_counting("numpy_pipe.npz", false);
    check_counting("reference.safetensors", true);

    assert_int_equal(io_read(RELPOS_TEST_DATA "/io/reference.safetensors", &set, NULL, err), 0);
    assert_string_equal(io_meta(&set, "source"), "make.py");
    assert_non_null(strstr(io_find(&set, "fp8")->unsupported, "'F8_E4M3'"));
    io_free(&set);
    assert_int_equal(io_read(RELPOS_TEST_DATA "/io/numpy_empty.npz", &set, NULL, err), 0);
    assert_int_equal(set.n_arrays, 0);
    io_free(&set);

    if (io_read(RELPOS_TEST_DATA "/io/numpy_odd.npz", &set, NULL, err) != 0)
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
    assert_non_null(strstr(io_find(&set, "object")->unsupported, "pickles are never read"));
    assert_non_null(strstr(io_find(&set, "fields")->unsupported, "structured"));
    assert_non_null(strstr(io_find(&set, "complex")->unsupported, "'<c8'"));
    assert_non_null(strstr(io_find(&set, "text")->unsupported, "'<U2'"));
    assert_non_null(strstr(io_find(&set, "void")->unsupported, "bfloat16"));
    io_free(&set);
}

/* ------------------------------------------------------------------------------------------------ damage */

static void test_damage(void **state)
{
    (void)state;
    for (io_format format = IO_NPZ; format <= IO_SAFETENSORS; format++) {
        for (int deflated = 0; deflated <= (format == IO_NPZ); deflated++) {
            const float x[6] = {1, 2, 3, 4, 5, 6};
            io_set set = {0}, back;
            int detected = 0, benign = 0, changed = 0;
            assert_int_equal(io_add(&set, "q", RP_F32, 2, (int64_t[]){2, 3}, (void *)(uintptr_t)x, true), 0);
            assert_int_equal(io_add(&set, "key_mask", RP_U8, 1, (int64_t[]){5}, (void *)(uintptr_t)x, true), 0);
            const char *path = in_dir("damage");
            assert_int_equal(io_write(path, format, &set, err), 0);
            if (deflated) {
                zip_t *zip = zip_open(path, 0, NULL);
                for (zip_uint64_t n = 0; n < 2; n++)
                    assert_int_equal(zip_set_file_compression(zip, n, ZIP_CM_DEFLATE, 9), 0);
                assert_int_equal(zip_close(zip), 0);
            }
            bytes file = load_file(path);
            assert_int_equal(parse(format, file.p, file.n, &back), 0);
            assert_true(same_set(&set, &back));
            io_free(&back);
            for (size_t n = 0; n < file.n; n++) {
                refuse(format, file.p, n, "");
                const unsigned char kept = file.p[n];
                for (int k = 0; k < 10; k++) { /* every bit alone, all bits, and a blank */
                    file.p[n] = (unsigned char)(k < 8 ? kept ^ 1 << k : k == 8 ? ~kept : ' ');
                    if (file.p[n] == kept)
                        continue;
                    if (parse(format, file.p, file.n, &back) != 0) {
                        detected++;
                        continue;
                    }
                    if (same_set(&set, &back))
                        benign++;
                    else
                        changed++;
                    io_free(&back);
                }
                file.p[n] = kept;
            }
            put(&file, "", 1);
            refuse(format, file.p, file.n, "");
            print_message("%s%s: %zu bytes; single-byte damage: %d detected, %d benign, %d changed\n", suffixes[format],
                          deflated ? " (deflated)" : "", file.n - 1, detected, benign, changed);
            if (format == IO_NPZ)
                assert_int_equal(changed, 0);
            free(file.p);
            io_free(&set);
        }
    }
}

/* ------------------------------------------------------------------------------------------------ .npy */

static uint32_t crc32_of(const unsigned char *p, size_t n)
{
    uint32_t crc = ~0u;
    while (n-- > 0) {
        crc ^= *p++;
        for (int k = 0; k < 8; k++)
            crc = crc >> 1 ^ (crc & 1 ? 0xedb88320u : 0);
    }
    return ~crc;
}

/* One member of a zip archive made by hand; the local header may differ from the central one. */
typedef struct member {
    const char *name, *local_name; /* NULL: the same */
    size_t name_size;              /* 0: of the string */
    const void *data;
    size_t size;        /* of the data in the file */
    uint32_t full_size; /* after inflation; 0: size */
    uint32_t crc;       /* 0: that of the data */
    int method, flags;
    int at; /* not 0: nothing is written, and the central header points there */
} member;

static bytes make_zip(const member *members, int n, int claimed)
{
    bytes file = {NULL, 0}, central = {NULL, 0};
    for (int k = 0; k < n; k++) {
        const member *m = &members[k];
        const char *local = m->local_name != NULL ? m->local_name : m->name;
        const size_t name_size = m->name_size > 0 ? m->name_size : strlen(m->name);
        const uint32_t crc = m->crc != 0 ? m->crc : crc32_of(m->data, m->size);
        bytes header = {NULL, 0};
        put_int(&header, 20, 2);
        put_int(&header, (uint64_t)m->flags, 2);
        put_int(&header, (uint64_t)m->method, 2);
        put_int(&header, 0x00210000, 4);
        put_int(&header, crc, 4);
        put_int(&header, m->size, 4);
        put_int(&header, m->full_size > 0 ? m->full_size : m->size, 4);
        put_int(&header, name_size, 2);
        put_int(&header, 0, 2);
        const size_t offset = m->at > 0 ? (size_t)m->at : file.n;
        if (m->at == 0) {
            put(&file, "PK\3\4", 4);
            put(&file, header.p, header.n);
            put(&file, local, name_size);
            put(&file, m->data, m->size);
        }
        put(&central, "PK\1\2\24", 6);
        put(&central, header.p, header.n);
        put_int(&central, 0, 6);
        put_int(&central, 0, 4);
        put_int(&central, offset, 4);
        put(&central, m->name, name_size);
        free(header.p);
    }
    const size_t start = file.n;
    put(&file, central.p, central.n);
    put(&file, "PK\5\6\0\0\0", 8);
    put_int(&file, (uint64_t)claimed, 2);
    put_int(&file, (uint64_t)claimed, 2);
    put_int(&file, central.n, 4);
    put_int(&file, start, 4);
    put_int(&file, 0, 2);
    free(central.p);
    return file;
}

static bytes make_npy(int version, const char *dictionary, size_t size, size_t data_size)
{
    bytes b = {NULL, 0};
    put_text(&b, "\x93NUMPY");
    put_int(&b, (uint64_t)version, 2);
    put_int(&b, size, version == 1 ? 2 : 4);
    put(&b, dictionary, size);
    for (size_t n = 0; n < data_size; n++)
        put_int(&b, n + 1, 1);
    return b;
}

/* An archive of one member x.npy. */
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

#define HEADER(SHAPE) "{'descr': '<f4', 'fortran_order': False, 'shape': " SHAPE ", }"

static void test_npy(void **state)
{
    (void)state;
    accept_npy(1, HEADER("(3,)"), 12, RP_F32, 1);
    accept_npy(2, HEADER("(3,)") "   \n", 12, RP_F32, 1);
    accept_npy(3, HEADER("(3, 1)"), 12, RP_F32, 2);
    accept_npy(1, HEADER("(3L,)"), 12, RP_F32, 1);
    accept_npy(1, HEADER("(1, 3, )"), 12, RP_F32, 2);
    accept_npy(1, HEADER("()"), 4, RP_F32, 0);
    accept_npy(1, HEADER("(0,)"), 0, RP_F32, 1);
    accept_npy(1, HEADER("(3,0,2)"), 0, RP_F32, 3);
    accept_npy(1, "{\"shape\":(2,2),\"fortran_order\":True,\"descr\":\"|b1\"}", 4, RP_BOOL, 2);

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
        {HEADER("(3,)") " ; import os", "after the dictionary"},
        {"   ", "dictionary is expected"},
        {"{"
         "          ",
         "string is expected"},
        {HEADER("(4,)"), "asks for 16 bytes"},
        {HEADER("(2,)"), "asks for 8 bytes"},
        {HEADER("(3,"), "expected"},
    };
    for (size_t n = 0; n < sizeof bad / sizeof *bad; n++)
        refuse_header(bad[n].text, bad[n].words);

    /* NUL bytes in the dictionary, a version 3.0 that is not UTF-8, 60,000 brackets. */
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
    refuse_npy(npy.p, npy.n, "dictionary is expected");
    free(npy.p);
    memcpy(deep, "{'descr': [", 11);
    npy = make_npy(2, deep, 60000, 0);
    refuse_npy(npy.p, npy.n, "list does not end");
    free(npy.p);
    free(deep);

    refuse_npy("", 0, "ends early");
    refuse_npy("\x93NUMPX\x01\x00\x40\x00{}", 12, "does not begin as");
    refuse_npy("\x93NUMPY\x00\x00\x40\x00{}", 12, "version 0.0");
    refuse_npy("\x93NUMPY\x04\x00\x40\x00{}", 12, "version 4.0");
    refuse_npy("\x93NUMPY\xff\xff\x40\x00{}", 12, "version 255.255");
    refuse_npy("\x93NUMPY\x01\x00\x00\x00{}", 12, "empty");
    refuse_npy("\x93NUMPY\x01\x00\xff\xff{}", 12, "ends early");
    refuse_npy("\x93NUMPY\x01\x00\xf8\xff", 10, "ends early");
    refuse_npy("\x93NUMPY\x02\x00\xf0\xff\xff\xff", 12, "over 65536");
    refuse_npy("\x93NUMPY\x02\x00\xff\xff\xff\x7f", 12, "over 65536");

    /* A type that cannot be used spoils its own array only. */
    static const char *const unusable[] = {"|O", "<U4", "<c8", "<f16", "<f3", "<V2", "", "f", "\x1b[31m", "<M8[ns]"};
    for (size_t n = 0; n < sizeof unusable / sizeof *unusable; n++) {
        char text[200];
        io_set set;
        snprintf(text, sizeof text, "{'descr': '%s', 'fortran_order': False, 'shape': (3,)}", unusable[n]);
        npy = make_npy(1, text, strlen(text), 12);
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

/* ------------------------------------------------------------------------------------------------ .npz */

static void refuse_zip(const member *members, int n, int claimed, const char *words)
{
    bytes zip = make_zip(members, n, claimed);
    refuse(IO_NPZ, zip.p, zip.n, words);
    free(zip.p);
}

/* Every value of every byte of the header and of the data's first: what is refused says why, and in what is taken each array has a
 * type and all of its data, or neither. */
static void test_every_byte(void **state)
{
    (void)state;
    static const float data[4] = {1, 2, 3, 4};
    io_set set = {0}, back;
    assert_int_equal(io_add(&set, "a", RP_F32, 2, (int64_t[]){2, 2}, (void *)(uintptr_t)data, true), 0);
    assert_int_equal(io_add(&set, "b", RP_U8, 2, (int64_t[]){0, 9}, NULL, false), 0);
    assert_int_equal(io_add(&set, "c", RP_BF16, 0, NULL, (void *)(uintptr_t)data, true), 0);
    assert_int_equal(io_add_meta(&set, "k", "v"), 0);
    assert_int_equal(io_write(in_dir("bytes.safetensors"), IO_SAFETENSORS, &set, err), 0);
    bytes file = load_file(in_dir("bytes.safetensors"));
    int odd = 0;
    for (size_t at = 0; at < file.n; at++)
        for (int change = 1; change < 256; change++) {
            file.p[at] ^= (unsigned char)change;
            const bool taken = parse(IO_SAFETENSORS, file.p, file.n, &back) == 0;
            file.p[at] ^= (unsigned char)change;
            for (size_t n = 0; taken && n < back.n_arrays; n++) {
                const io_array *a = &back.arrays[n];
                size_t size = rp_dtype_size(a->dtype);
                for (int32_t x = 0; x < a->ndim; x++)
                    size *= (size_t)a->shape[x];
                const bool usable = a->unsupported == NULL && a->bytes == size && (a->data != NULL) == (size > 0);
                const bool unusable =
                    a->unsupported != NULL && a->dtype == IO_NO_DTYPE && a->bytes == 0 && a->data == NULL;
                if (!(io_take(&back, a->name, err) == a ? rp_dtype_size(a->dtype) > 0 && usable : unusable))
                    fail_msg("byte %zu changed by %d: array \"%s\" is neither usable nor unusable", at, change,
                             a->name);
                odd += unusable;
            }
            if (taken)
                io_free(&back);
        }
    assert_true(odd > 100);
    free(file.p);
    io_free(&set);
}

/* Each allocation fails once, alone or with all after it: the file is read whole, or memory is what was wanting. No file is called
 * damaged for it, and no name is cut short. */
static void test_starved(void **state)
{
    (void)state;
    if (!STARVES)
        print_message("allocations: a sanitizer has its own: none fails\n");
    for (io_format format = IO_NPZ; format <= IO_SAFETENSORS; format++) {
        io_set set, back;
        const char *path = in_dir(format == IO_NPZ ? "starved.npz" : "starved.safetensors");
        fill_set(&set, format);
        if (format == IO_SAFETENSORS)
            assert_int_equal(io_add_meta(&set, "a key that is longer than the first buffer", "and its value"), 0);
        assert_int_equal(io_write(path, format, &set, err), 0);
        for (int ever = 0; ever < 2; ever++) {
            long n = 1, count;
            do {
                starve(n, ever);
                const io_status status = io_read(path, &back, NULL, err);
                count = starve_end();
                /* libzip itself says of some of its allocations that this is no archive */
                const bool told = format == IO_NPZ && strstr(err, "Not a zip archive") != NULL;
                if (status == IO_OK ? !same_set(&set, &back)
                                    : !told && (status != IO_FAILED || strstr(err, "memory") == NULL))
                    fail_msg("allocation %ld: status %d: %s", n, (int)status, err);
                if (status == IO_OK)
                    io_free(&back);
            } while (count >= n++);
            assert_true(!STARVES || n > 100); /* the allocations of jansson and libzip are among them */
        }
        io_free(&set);
    }
}

/* What io_take says of what cannot be had. */
static void test_take(void **state)
{
    (void)state;
    io_set set;
    assert_int_equal(io_read(RELPOS_TEST_DATA "/io/reference.safetensors", &set, NULL, err), 0);
    assert_null(io_take(&set, "fp8", err));
    assert_string_equal(
        err, "array \"fp8\": it has the dtype 'F8_E4M3' (save it as F32, F64, F16, BF16 or an integer type)");
    assert_int_equal(io_find(&set, "fp8")->dtype, IO_NO_DTYPE);
    assert_null(io_take(&set, "no\nthing", err));
    assert_memory_equal(err, "array \"no\\x0athing\": not in the file (it has ", 44);
    io_free(&set);
    assert_int_equal(io_read(RELPOS_TEST_DATA "/io/numpy_odd.npz", &set, NULL, err), 0);
    assert_int_equal(io_find(&set, "object")->dtype, IO_NO_DTYPE);
    assert_null(io_take(&set, "object", err));
    assert_non_null(strstr(err, "pickles are never read)"));
    assert_ptr_equal(io_take(&set, "empty", err), io_find(&set, "empty")); /* no bytes, and a type */
    io_free(&set);
}

static void test_npz(void **state)
{
    (void)state;
    io_set set;
    bytes npy = make_npy(1, HEADER("(3,)"), strlen(HEADER("(3,)")), 12);
    const member x = {.name = "x.npy", .data = npy.p, .size = npy.n};
    member m[3] = {x, x, x};
    bytes zip = make_zip(&x, 1, 1);
    assert_int_equal(parse(IO_NPZ, zip.p, zip.n, &set), 0);
    io_free(&set);
    free(zip.p);

    refuse_zip(m, 2, 2, ""); /* a name twice */
    m[1].name = "y.npy";
    refuse_zip(m, 2, 1, ""); /* the count lies */
    refuse_zip(m, 2, 3, "");
    refuse_zip(m, 2, 65535, "");
    m[1].local_name = "z.npy";
    refuse_zip(m, 2, 2, ""); /* the two headers disagree */
    m[1].local_name = NULL;
    m[0].crc = 1;
    refuse_zip(m, 1, 1, "CRC");
    m[0] = x, m[0].flags = 1;
    refuse_zip(m, 1, 1, "encrypted");
    static const int methods[] = {1, 9, 12, 14, 93, 95, 99};
    for (size_t n = 0; n < sizeof methods / sizeof *methods; n++) {
        m[0] = x, m[0].method = methods[n];
        refuse_zip(m, 1, 1, "");
    }
    m[0] = x, m[0].full_size = (uint32_t)npy.n + 1;
    refuse_zip(m, 1, 1, "");  /* stored with two sizes */
    zip = make_zip(&x, 1, 1); /* a member inside another one */
    m[0] = (member){.name = "a.txt", .data = zip.p, .size = 30 + strlen(x.name) + x.size};
    m[1] = x, m[1].at = 30 + (int)strlen("a.txt");
    refuse_zip(m, 2, 2, "overlap");
    free(zip.p);
    m[0] = x;
    m[1] = x, m[1].name = "x"; /* two members, one name */
    refuse_zip(m, 2, 2, "two arrays are named 'x'");

    /* Deflate: an unknown block, LEN that is not ~NLEN, a distance too far, an over-subscribed code, no last block. */
    static const struct {
        const char *data;
        size_t size;
    } deflated[] = {{"\x07", 1},
                    {"\x01\x05\x00\x00\x00hello", 10},
                    {"\x63\x00\x02\x00", 4},
                    {"\x05\xe0\xff\xff\xff", 5},
                    {"\x00\x05\x00\xfa\xffhello", 10},
                    {"", 0}};
    for (size_t n = 0; n < sizeof deflated / sizeof *deflated; n++) {
        m[0] =
            (member){.name = "x.npy", .data = deflated[n].data, .size = deflated[n].size, .full_size = 90, .method = 8};
        refuse_zip(m, 1, 1, "");
    }
    /* A stored block of deflate is right; longer or shorter than the archive says, it is not. */
    bytes block = {NULL, 0};
    put_text(&block, "\x01");
    put_int(&block, npy.n, 2);
    put_int(&block, ~npy.n, 2);
    put(&block, npy.p, npy.n);
    m[0] = (member){.name = "x.npy",
                    .data = block.p,
                    .size = block.n,
                    .full_size = (uint32_t)npy.n,
                    .method = 8,
                    .crc = crc32_of(npy.p, npy.n)};
    zip = make_zip(m, 1, 1);
    if (parse(IO_NPZ, zip.p, zip.n, &set) != 0)
        fail_msg("%s", err);
    io_free(&set);
    free(zip.p);
    m[0].full_size--;
    refuse_zip(m, 1, 1, "asks for");
    m[0].full_size += 2;
    refuse_zip(m, 1, 1, "asks for");
    free(block.p);

    /* A bomb: 4 MB of zeros in 4 KB, whose directory claims 4 GB, or less than there is. */
    const char *path = in_dir("bomb.npz");
    float *zeros = calloc(1 << 20, 4);
    io_set big = {0};
    assert_int_equal(io_add(&big, "x", RP_F32, 1, (int64_t[]){1 << 20}, zeros, false), 0);
    assert_int_equal(io_write(path, IO_NPZ, &big, err), 0);
    zip_t *z = zip_open(path, 0, NULL);
    assert_int_equal(zip_set_file_compression(z, 0, ZIP_CM_DEFLATE, 9), 0);
    assert_int_equal(zip_close(z), 0);
    bytes bomb = load_file(path);
    assert_true(bomb.n < 8192);
    assert_int_equal(parse(IO_NPZ, bomb.p, bomb.n, &set), 0);
    assert_true(same_set(&big, &set));
    io_free(&set);
    for (size_t n = 0; n + 4 < bomb.n; n++)
        if (memcmp(bomb.p + n, "\x80\x00\x40\x00", 4) == 0) /* 4 MB and a header */
            memcpy(bomb.p + n, "\x80\x00\x00\xff", 4);
    refuse(IO_NPZ, bomb.p, bomb.n, "cannot inflate");
    for (size_t n = 0; n + 4 < bomb.n; n++)
        if (memcmp(bomb.p + n, "\x80\x00\x00\xff", 4) == 0)
            memcpy(bomb.p + n, "\x8a\x00\x00\x00", 4);
    refuse(IO_NPZ, bomb.p, bomb.n, "asks for");
    free(bomb.p);
    io_free(&big);
    /* The inner header agrees with the directory that there are 12 bytes, and 4 MB follow. */
    bytes liar = {NULL, 0};
    put(&liar, npy.p, npy.n);
    liar.p = realloc(liar.p, 4 << 20);
    memset(liar.p + liar.n, 0, (4 << 20) - liar.n);
    zip_error_t error;
    zip_source_t *source = zip_source_buffer_create(liar.p, 4 << 20, 0, &error);
    unlink(path);
    z = zip_open(path, ZIP_CREATE, NULL);
    assert_true(zip_file_add(z, "x.npy", source, 0) == 0);
    assert_int_equal(zip_set_file_compression(z, 0, ZIP_CM_DEFLATE, 9), 0);
    assert_int_equal(zip_close(z), 0);
    free(liar.p);
    bomb = load_file(path);
    for (size_t n = 0; n + 4 < bomb.n; n++)
        if (memcmp(bomb.p + n, "\0\0\x40", 4) == 0)
            memcpy(bomb.p + n, &(uint32_t){(uint32_t)npy.n}, 4);
    refuse(IO_NPZ, bomb.p, bomb.n, "goes on");
    free(bomb.p);

    /* Names are keys, never paths, and are safe to print. */
    m[0] = x, m[0].name = "../../tmp/x.npy";
    m[1] = x, m[1].name = "/abs\x1b[31m\n.npy";
    m[2] = x, m[2].name = "a\0b.npy", m[2].name_size = 7;
    zip = make_zip(m, 3, 3);
    if (parse(IO_NPZ, zip.p, zip.n, &set) == 0) { /* refusing the NUL would be as well */
        assert_non_null(io_find(&set, "../../tmp/x"));
        assert_non_null(io_find(&set, "/abs\x1b[31m\n"));
        io_free(&set);
    }
    free(zip.p);
    char *name = malloc(65536);
    memset(name, 'n', 65531);
    memcpy(name + 65531, ".npy", 5);
    m[0].name = name;
    zip = make_zip(m, 1, 1);
    assert_int_equal(parse(IO_NPZ, zip.p, zip.n, &set), 0);
    assert_int_equal(strlen(set.arrays[0].name), 65531);
    io_free(&set);
    free(zip.p);
    m[0].crc = 1;
    refuse_zip(m, 1, 1, "nnn...");
    free(name);
    m[0] = x, m[0].name = "\x82.npy"; /* code page 437 */
    zip = make_zip(m, 1, 1);
    assert_int_equal(parse(IO_NPZ, zip.p, zip.n, &set), 0);
    assert_string_equal(set.arrays[0].name, "\xc3\xa9");
    io_free(&set);
    free(zip.p);
    m[0] = x, m[0].name = "\x1b]0;x\n.npy", m[0].crc = 1;
    refuse_zip(m, 1, 1, "\\x0a");

    /* The end of the directory: offset or size past the end, zip64 with an offset of 2^64-8, a second one in the
     * comment. */
    zip = make_zip(&x, 1, 1);
    bytes bad = {NULL, 0};
    put(&bad, zip.p, zip.n);
    memcpy(bad.p + bad.n - 6, "\xf0\xff\xff\x7f", 4);
    refuse(IO_NPZ, bad.p, bad.n, "");
    memcpy(bad.p + bad.n - 6, zip.p + zip.n - 6, 4);
    memcpy(bad.p + bad.n - 10, "\xf0\xff\xff\x7f", 4);
    refuse(IO_NPZ, bad.p, bad.n, "");
    bad.n = 0;
    put(&bad, zip.p, zip.n - 22);
    put(&bad, "PK\6\6\54\0\0\0\0\0\0\0\55\0\55\0\0\0\0\0\0\0\0\0", 24);
    put_int(&bad, 1, 8);
    put_int(&bad, 1, 8);
    put_int(&bad, 51, 8);
    put_int(&bad, (uint64_t)-8, 8);
    put(&bad, "PK\6\7\0\0\0\0", 8);
    put_int(&bad, zip.n - 22, 8);
    put_int(&bad, 1, 4);
    put(&bad, "PK\5\6\0\0\0\0\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\0\0", 22);
    refuse(IO_NPZ, bad.p, bad.n, "");
    bad.n = 0;
    put(&bad, zip.p, zip.n - 2);
    put_int(&bad, 22, 2);
    put(&bad, "PK\5\6\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0", 22);
    if (parse(IO_NPZ, bad.p, bad.n, &set) == 0)
        io_free(&set);
    free(bad.p);
    free(zip.p);
    free(npy.p);
}

/* ------------------------------------------------------------------------------------------------ .safetensors */

static bytes make_st(const char *header, size_t data_size)
{
    bytes b = {NULL, 0};
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

static void test_safetensors(void **state)
{
    (void)state;
    accept_st("{}", 0, 0);
    accept_st(ONE("\"F32\"", "[3]", "[0,12]"), 12, 1);
    accept_st("\n\t " ONE("\"F32\"", "[3]", "[0,12]") "     ", 12, 1); /* and an odd length: unaligned data */
    accept_st(ONE("\"F64\"", "[]", "[0,8]"), 8, 1);
    accept_st(ONE("\"F32\"", "[2,0]", "[0,0]"), 0, 1);
    accept_st(ONE("\"f32\"", "[3]", "[0,12]"), 12, 1); /* an unknown type is the array's own trouble */
    accept_st("{\"\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]},\"b\":{\"dtype\":\"F32\",\"shape\":[1],"
              "\"data_offsets\":[1,5]},\"z\":{\"dtype\":\"I8\",\"shape\":[0],\"data_offsets\":[1,1]}}",
              5, 3);

    static const struct {
        const char *text, *words;
    } bad[] = {
        {"", "malformed"},
        {"[]", "not a JSON object"},
        {"{} x", "malformed"},
        {"\xef\xbb\xbf{}", "malformed"},
        {"{\"a\":1}", "alone"},
        {"{\"a\":{}}", "alone"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[3],\"data_offsets\":[0,12],\"more\":1}}", "alone"},
        {ONE("\"F32\"", "[3]", "[0,16]"), "outside"},
        {ONE("\"F32\"", "[3]", "[12,0]"), "outside"},
        {ONE("\"F32\"", "[3]", "[-1,12]"), "integer"},
        {ONE("\"F32\"", "[3]", "[0.0,12]"), "integer"},
        {ONE("\"F32\"", "[3]", "[0,1.2e1]"), "integer"},
        {ONE("\"F32\"", "[3]", "[\"0\",12]"), "integer"},
        {ONE("\"F32\"", "[3]", "[0]"), "not 2"},
        {ONE("\"F32\"", "[3]", "[0,12,12]"), "not 2"},
        {ONE("\"F32\"", "[3]", "[0,18446744073709551615]"), "malformed"},
        {ONE("\"F32\"", "[1000,1000]", "[0,12]"), "asks for"},
        {ONE("\"F32\"", "[2]", "[0,8]"), "end at byte 8"},
        {ONE("\"F32\"", "[2]", "[4,12]"), "begins at byte 4"},
        {ONE("\"F32\"", "[2,18446744073709551614]", "[0,12]"), "malformed"},
        {ONE("\"F32\"", "[2,9223372036854775807]", "[0,12]"), "too large"},
        {ONE("\"F32\"", "[0,9223372036854775807,9]", "[0,0]"), "too large"},
        {ONE("\"f32\"", "[2,9223372036854775807]", "[0,12]"), "too large"},
        {ONE("\"F32\"", "[9007199254740993]", "[0,12]"), "asks for 36028797018963972"},
        {ONE("\"F32\"", "[1e30]", "[0,12]"), "integer"},
        {ONE("\"F32\"", "[1e999]", "[0,12]"), "malformed"},
        {ONE("\"F32\"", "[-1]", "[0,12]"), "integer"},
        {ONE("\"F32\"", "[\"3\"]", "[0,12]"), "integer"},
        {ONE("\"F32\"", "[null]", "[0,12]"), "integer"},
        {ONE("\"F32\"", "[true]", "[0,12]"), "integer"},
        {ONE("\"F32\"", "3", "[0,12]"), "alone"},
        {ONE("4", "[3]", "[0,12]"), "alone"},
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

    static const struct {
        uint64_t length;
        const char *words;
    } lengths[] = {{UINT64_MAX, "possible"},
                   {UINT64_C(1) << 63, "possible"},
                   {100000001, "possible"},
                   {100000000, "cut short"},
                   {3, "cut short"}};
    for (size_t n = 0; n < sizeof lengths / sizeof *lengths; n++) {
        bytes b = {NULL, 0};
        put_int(&b, lengths[n].length, 8);
        put_text(&b, "{}");
        refuse(IO_SAFETENSORS, b.p, b.n, lengths[n].words);
        free(b.p);
    }

    /* Ten million brackets; 10,000 tensors on the same bytes; 20,000 good ones. */
    char *deep = malloc(10000001);
    memset(deep, '[', 10000000);
    deep[10000000] = 0;
    refuse_st(deep, 0, "malformed");
    free(deep);
    for (int overlap = 0; overlap < 2; overlap++) {
        const int n = overlap ? 10000 : 20000;
        bytes header = {NULL, 0};
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

/* ------------------------------------------------------------------------------------------------ inputs */

static void refuse_path(io_status status, const char *path, const char *words)
{
    io_set set;
    io_format found = IO_NPZ;
    assert_int_equal(io_read(path, &set, &found, err), status);
    assert_true(set.n_arrays == 0 && set.arrays == NULL && found == IO_UNKNOWN);
    if (strstr(err, words) == NULL)
        fail_msg("'%s' does not say '%s'", err, words);
}

static void test_inputs(void **state)
{
    (void)state;
    refuse_path(IO_ABSENT, in_dir("nowhere.npz"), "No such file");
    refuse_path(IO_FAILED, dir, "directory");
    refuse_path(IO_FAILED, "/dev/zero", "device");
    refuse_path(IO_FAILED, "/dev/null", "device");
    /* What the system says of a file that is there. */
    assert_int_equal(symlink("loop.npz", in_dir("loop.npz")), 0);
    refuse_path(IO_FAILED, in_dir("loop.npz"), "cannot be opened: Too many levels of symbolic links");
    refuse_path(IO_FAILED, "/proc/self/mem", "cannot be read: Input/output error");
    struct rlimit files, none;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &files), 0);
    none = files;
    none.rlim_cur = 3;
    save(in_dir("there.npz"), "PK", 2);
    const char *there = in_dir("there.npz");
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
    refuse_path(IO_FAILED, there, "cannot be opened: Too many open files");
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &files), 0);
    refuse_path(IO_FAILED, in_dir("there.npz/x.npz"), "cannot be opened: Not a directory");
    assert_int_equal(mkfifo(in_dir("pipe.npz"), 0600), 0);
    refuse_path(IO_DAMAGED, in_dir("pipe.npz"), "empty");
    save(in_dir("empty.npz"), "", 0);
    refuse_path(IO_DAMAGED, in_dir("empty.npz"), "empty");
    save(in_dir("short"), "PK", 2);
    refuse_path(IO_DAMAGED, in_dir("short"), "neither");
    save(in_dir("x.npy"), "\x93NUMPY\1\0\0\0\0\0", 12);
    refuse_path(IO_DAMAGED, in_dir("x.npy"), "numpy.savez");
    save(in_dir("line\n\x1b[31m.npz"), "hello, hello", 12);
    refuse_path(IO_DAMAGED, in_dir("line\n\x1b[31m.npz"), "line\\x0a\\x1b[31m.npz: ");
    /* The suffix decides: one format under the name of the other is refused. */
    io_set set = {0};
    assert_int_equal(io_write(in_dir("really.npz"), IO_SAFETENSORS, &set, err), 0);
    refuse_path(IO_DAMAGED, in_dir("really.npz"), ".npz");
    assert_int_equal(io_write(in_dir("really.safetensors"), IO_NPZ, &set, err), 0);
    refuse_path(IO_DAMAGED, in_dir("really.safetensors"), "safetensors");
    /* 3 GB of nothing are refused by their first bytes. */
    save(in_dir("sparse.safetensors"), "", 0);
    if (truncate(in_dir("sparse.safetensors"), (off_t)3 << 30) == 0)
        refuse_path(IO_DAMAGED, in_dir("sparse.safetensors"), "malformed");

    /* Standard input through a pipe, in two pieces; then an endless one. */
    fill_set(&set, IO_NPZ);
    assert_int_equal(io_add(&set, "large", RP_U8, 1, (int64_t[]){300000}, calloc(300000, 1), false), 0);
    const char *path = in_dir("piped.npz");
    assert_int_equal(io_write(path, IO_NPZ, &set, err), 0);
    for (int endless = 0; endless < 2; endless++) {
        int ends[2];
        assert_int_equal(pipe(ends), 0);
        const pid_t child = fork();
        if (child == 0) {
            char command[600];
            dup2(ends[1], 1);
            close(ends[0]);
            close(ends[1]);
            snprintf(command, sizeof command, "head -c 5 %s; sleep 0.05; tail -c +6 %s", path, path);
            execl("/bin/sh", "sh", "-c", endless ? "exec cat /dev/zero" : command, (char *)NULL);
            _exit(1);
        }
        close(ends[1]);
        assert_int_equal(fcntl(ends[0], F_SETFL, O_NONBLOCK), 0); /* as some parents leave it */
        const int kept = dup(0);
        dup2(ends[0], 0);
        close(ends[0]);
        io_set back;
        const int result = io_read("-", &back, NULL, err);
        dup2(kept, 0);
        close(kept);
        assert_int_equal(waitpid(child, NULL, 0), child);
        if (endless) {
            assert_int_equal(result, IO_DAMAGED);
            assert_non_null(strstr(err, "standard input: "));
        } else {
            if (result != 0)
                fail_msg("%s", err);
            assert_true(same_set(&set, &back));
            io_free(&back);
        }
    }
    io_free(&set);
}

/* ------------------------------------------------------------------------------------------------ outputs */

static void refuse_write(const char *path, io_format format, const io_set *set, const char *words)
{
    assert_int_equal(io_write(path, format, set, err), -1);
    if (strstr(err, words) == NULL)
        fail_msg("'%s' does not say '%s'", err, words);
}

static mode_t mode_of(const char *path)
{
    struct stat st;
    assert_int_equal(lstat(path, &st), 0);
    return st.st_mode;
}

static void holds(const char *path, const char *text)
{
    bytes b = load_file(path);
    assert_int_equal(b.n, strlen(text));
    assert_memory_equal(b.p, text, b.n);
    free(b.p);
}

static void test_outputs(void **state)
{
    (void)state;
    io_set set = {0};
    const float x[2] = {1, 2};
    float *many = calloc(1 << 18, 4);
    char home[400], path[420], other[420];
    snprintf(home, sizeof home, "%s", in_dir("out"));
    snprintf(path, sizeof path, "%s/x.npz", home);
    snprintf(other, sizeof other, "%s/link", home);
    assert_int_equal(mkdir(home, 0755), 0);
    const mode_t mask = umask(027);

    /* Modes: a new file obeys the umask, an old one keeps what it had. */
    assert_int_equal(io_write_bytes(path, "one", 3, err), 0);
    assert_int_equal(mode_of(path) & 07777, 0640);
    assert_int_equal(chmod(path, 0606), 0);
    assert_int_equal(io_write_bytes(path, "two", 3, err), 0);
    assert_int_equal(mode_of(path) & 07777, 0606);
    umask(mask);

    /* A link stays and its target is replaced, also one that does not exist yet. */
    assert_int_equal(symlink("x.npz", other), 0);
    assert_int_equal(io_write_bytes(other, "three", 5, err), 0);
    assert_true(S_ISLNK(mode_of(other)) && S_ISREG(mode_of(path)));
    holds(path, "three");
    assert_int_equal(unlink(path), 0);
    assert_int_equal(io_write_bytes(other, "four", 4, err), 0);
    assert_true(S_ISLNK(mode_of(other)));
    holds(path, "four");
    assert_int_equal(unlink(other), 0);
    assert_int_equal(symlink("link", other), 0);
    assert_int_equal(io_write_bytes(other, "x", 1, err), -1);
    assert_int_equal(unlink(other), 0);
    assert_int_equal(io_write_bytes("/dev/null", "x", 1, err), 0);
    assert_int_equal(io_write_bytes(home, "x", 1, err), -1);
    assert_non_null(strstr(err, "directory"));

    /* Sets that cannot be written do not touch the file. */
    assert_int_equal(io_add(&set, "a", RP_F32, 1, (int64_t[]){2}, (void *)(uintptr_t)x, true), 0);
    refuse_write(path, IO_UNKNOWN, &set, "format");
    assert_int_equal(io_add(&set, "a", RP_F32, 1, (int64_t[]){1}, (void *)(uintptr_t)x, true), 0);
    refuse_write(path, IO_NPZ, &set, "two arrays are named 'a'");
    strcpy(set.arrays[1].name, "\xff");
    refuse_write(path, IO_SAFETENSORS, &set, "'\\xff' cannot be written: its name is not UTF-8");
    set.arrays[1].name[0] = 'b';
    set.arrays[1].dtype = RP_BF16;
    refuse_write(path, IO_NPZ, &set, "bfloat16");
    set.arrays[1].dtype = RP_F32;
    set.arrays[1].data = NULL;
    refuse_write(path, IO_NPZ, &set, "no data");
    set.arrays[1].dtype = (rp_dtype)99;
    refuse_write(path, IO_NPZ, &set, "no dtype");
    assert_true(io_unsupported(&set.arrays[1], "it is odd"));
    refuse_write(path, IO_SAFETENSORS, &set, "it is odd");
    io_free(&set);
    char *name = calloc(65533, 1);
    memset(name, 'n', 65532);
    assert_int_equal(io_add(&set, name, RP_F32, 0, NULL, (void *)(uintptr_t)x, true), 0);
    refuse_write(path, IO_NPZ, &set, "too long");
    io_free(&set);
    free(name);
    assert_int_equal(io_add(&set, "__metadata__", RP_F32, 0, NULL, (void *)(uintptr_t)x, true), 0);
    refuse_write(path, IO_SAFETENSORS, &set, "means something else");
    io_free(&set);
    assert_int_equal(io_add_meta(&set, "k", "\xff"), 0);
    refuse_write(path, IO_SAFETENSORS, &set, "metadata 'k' is not UTF-8");
    io_free(&set);
    holds(path, "four");

    /* Failing writes: a full device, a limit on the size of files (with and without the signal), a broken pipe. */
    assert_int_equal(io_add(&set, "a", RP_F32, 1, (int64_t[]){1 << 18}, many, false), 0);
    struct rlimit old, limit;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
    limit = old;
    for (io_format format = IO_NPZ; format <= IO_SAFETENSORS; format++) {
        refuse_write("/dev/full", format, &set, "No space left");
        for (int ignored = 0; ignored < 2; ignored++) {
            for (rlim_t at = 1; at < 1 << 20; at *= 7) {
                limit.rlim_cur = at;
                assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
                signal(SIGXFSZ, ignored ? SIG_IGN : SIG_DFL);
                const int result = io_write(path, format, &set, err);
                setrlimit(RLIMIT_FSIZE, &old);
                signal(SIGXFSZ, SIG_DFL);
                assert_int_equal(result, -1);
                assert_non_null(strstr(err, "File too large"));
            }
        }
        holds(path, "four");
        int ends[2];
        assert_int_equal(pipe(ends), 0);
        close(ends[0]);
        const int kept = dup(1);
        fflush(stdout);
        dup2(ends[1], 1);
        close(ends[1]);
        const int result = io_write("-", format, &set, err);
        dup2(kept, 1);
        close(kept);
        assert_int_equal(result, -1);
        assert_non_null(strstr(err, "standard output: "));
        assert_non_null(strstr(err, "Broken pipe"));
    }
    assert_int_equal(mkfifo(other, 0600), 0);
    refuse_write(other, IO_NPZ, &set, "cannot be opened");
    assert_int_equal(unlink(other), 0);
    refuse_write(in_dir("no/such/dir.npz"), IO_NPZ, &set, "No such file");
    if (geteuid() != 0) {
        assert_int_equal(chmod(path, 0444), 0);
        refuse_write(path, IO_NPZ, &set, "Permission denied");
        assert_int_equal(chmod(path, 0644), 0);
        assert_int_equal(chmod(home, 0555), 0);
        refuse_write(path, IO_NPZ, &set, "no file can be made");
        assert_int_equal(chmod(home, 0755), 0);
    }
    holds(path, "four");
    assert_int_equal(entries(home), 1); /* no temporary is left */
    io_free(&set);
}

/* ------------------------------------------------------------------------------------------------ the rest */

static void test_convert(void **state)
{
    (void)state;
    /* Every half and every bfloat16 survives the way through both wider types; NaN stays NaN, but quiet. */
    static const rp_dtype narrow[] = {RP_F16, RP_BF16}, wide[] = {RP_F32, RP_F64};
    for (int a = 0; a < 2; a++) {
        for (int b = 0; b < 2; b++) {
            for (unsigned n = 0; n < 65536; n++) {
                const uint16_t from = (uint16_t)n;
                const unsigned infinity = a == 0 ? 0x7c00 : 0x7f80, quiet = a == 0 ? 0x200 : 0x40;
                double middle[1];
                uint16_t to;
                rp_convert(middle, wide[b], &from, narrow[a], 1);
                rp_convert(&to, narrow[a], middle, wide[b], 1);
                assert_int_equal(to, (n & 0x7fff) > infinity ? n | quiet : n);
            }
        }
    }
    /* Rounding: the middle between neighbours goes to the even one, and anything beside it to its own side. */
    for (int a = 0; a < 2; a++) {
        const unsigned infinity = a == 0 ? 0x7c00 : 0x7f80;
        for (unsigned n = 0; n < infinity; n++) {
            const uint16_t low = (uint16_t)n, high = (uint16_t)(n + 1);
            double x, y, points[3];
            uint16_t to[3];
            rp_convert(&x, RP_F64, &low, narrow[a], 1);
            rp_convert(&y, RP_F64, &high, narrow[a], 1);
            if (isinf(y)) /* the number that would come next */
                y = a == 0 ? 0x1p16 : 0x1p128;
            points[1] = x / 2 + y / 2;
            points[0] = nextafter(points[1], 0);
            points[2] = nextafter(points[1], INFINITY);
            rp_convert(to, narrow[a], points, RP_F64, 3);
            assert_int_equal(to[0], low);
            assert_int_equal(to[1], n % 2 == 0 ? low : high);
            assert_int_equal(to[2], high);
            for (int k = 0; k < 3; k++)
                points[k] = -points[k];
            rp_convert(to, narrow[a], points, RP_F64, 3);
            assert_int_equal(to[1], 0x8000 | (n % 2 == 0 ? low : high));
        }
    }
    const double extremes[] = {1e300, -1e300, 0x1p-1074, -0.0, INFINITY};
    uint16_t out[5];
    rp_convert(out, RP_F16, extremes, RP_F64, 5);
    assert_true(out[0] == 0x7c00 && out[1] == 0xfc00 && out[2] == 0 && out[3] == 0x8000 && out[4] == 0x7c00);
    rp_convert(out, RP_BF16, extremes, RP_F64, 5);
    assert_true(out[0] == 0x7f80 && out[1] == 0xff80 && out[2] == 0 && out[3] == 0x8000 && out[4] == 0x7f80);
    rp_convert(NULL, RP_F32, NULL, RP_F32, 0);
}

static void test_text(void **state)
{
    (void)state;
    char buf[32];
    assert_string_equal(io_safe(buf, sizeof buf, "q\n\x1b\x7f\xff\xc3\xa9\xc2\x9b"),
                        "q\\x0a\\x1b\\x7f\\xff\xc3\xa9\\x9b");
    assert_string_equal(io_safe(buf, sizeof buf, "\xed\xa0\x80"), "\\xed\\xa0\\x80");
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

    assert_int_equal(io_format_of("a.npz"), IO_NPZ);
    assert_int_equal(io_format_of("d.npz/a.safetensors"), IO_SAFETENSORS);
    assert_int_equal(io_format_of("-"), IO_UNKNOWN);
    assert_int_equal(io_format_of("a.npy"), IO_UNKNOWN);

    /* An error about a long path still says why. */
    char path[3000];
    memset(path, '\n', sizeof path - 1);
    path[sizeof path - 1] = 0;
    io_set set;
    assert_int_equal(io_read(path, &set, NULL, err), IO_FAILED);
    assert_non_null(strstr(err, "...: cannot be opened"));

    size_t product;
    assert_true(io_mul(1, PTRDIFF_MAX, &product) && product == PTRDIFF_MAX);
    assert_false(io_mul(2, (size_t)PTRDIFF_MAX / 2 + 1, &product));
    assert_int_equal(io_add(&set, "x", RP_F32, 33, (int64_t[33]){0}, NULL, false), -1);
    assert_int_equal(io_add(&set, "x", RP_F64, 1, (int64_t[]){INT64_MAX}, NULL, false), -1);
    assert_int_equal(io_add(&set, "x", RP_F64, 1, (int64_t[]){-1}, NULL, false), -1);
    io_free(&set);
}

static int set_up(void **state)
{
    (void)state;
    const char *base = getenv("TMPDIR");
    snprintf(dir, sizeof dir, "%s/relpos-io-XXXXXX", base != NULL && strlen(base) < 200 ? base : "/tmp");
    return mkdtemp(dir) == NULL;
}

static int tear_down(void **state)
{
    (void)state;
    char command[300];
    snprintf(command, sizeof command, "rm -rf '%s'", dir);
    return system(command);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trip), cmocka_unit_test(test_peers),      cmocka_unit_test(test_damage),
        cmocka_unit_test(test_npy),        cmocka_unit_test(test_npz),        cmocka_unit_test(test_safetensors),
        cmocka_unit_test(test_inputs),     cmocka_unit_test(test_outputs),    cmocka_unit_test(test_convert),
        cmocka_unit_test(test_text),       cmocka_unit_test(test_every_byte), cmocka_unit_test(test_take),
        cmocka_unit_test(test_starved),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
