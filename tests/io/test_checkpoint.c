/* test_checkpoint.c -- tensors of a model, in one file or in shards; number types of 8 to 64 bits.
 * SPDX-License-Identifier: Apache-2.0 */
#include "io/block_types.h"
#include "io/checkpoint.h"
#include "io/scaled.h"
#include "tests/io/files.h"

/* Write a .safetensors file with the metadata k = v and one tensor for each letter of `names`, with two f32 numbers
 * each. */
static void save_shard(const char *path, const char *names)
{
    io_set set = {0};
    const float x[2] = {1, -2};
    for (const char *c = names; *c; c++)
        assert_int_equal(io_add(&set, (char[]){*c, 0}, RP_F32, 1, (int64_t[]){2}, (void *)(uintptr_t)x, true), 0);
    assert_int_equal(io_add_meta(&set, "k", "v"), 0);
    assert_int_equal(io_add_meta(&set, "k", "of two values the first counts"), 0);
    assert_int_equal(io_write(path, IO_SAFETENSORS, &set, err), 0);
    io_free(&set);
}

static void save_text(const char *path, const char *text)
{
    save(path, text, strlen(text));
}

static void refuse_open(io_status status, const char *path, const char *words)
{
    io_checkpoint *c = (io_checkpoint *)1;
    assert_int_equal(io_checkpoint_open(&c, path, err), status);
    assert_null(c);
    if (strstr(err, words) == NULL)
        fail_msg("'%s' does not contain '%s'", err, words);
}

static void one_file_or_shards(void **state)
{
    (void)state;
    io_checkpoint *c;
    float x[2];
    assert_int_equal(mkdir(in_dir("shards"), 0755), 0);
    save_shard(in_dir("shards/1.safetensors"), "ab");
    save_shard(in_dir("shards/2.safetensors"), "c");
    assert_int_equal(io_checkpoint_open(&c, in_dir("shards/1.safetensors"), err), 0);
    assert_int_equal(io_checkpoint_size(c), 2);
    assert_string_equal(io_checkpoint_meta(c, "k"), "v");
    assert_true(io_tensor_read(io_checkpoint_find(c, "b"), 0, 2, x) && x[0] == 1 && x[1] == -2);
    assert_null(io_checkpoint_find(c, "c"));
    io_checkpoint_close(c);
    save_text(in_dir("shards/model.safetensors.index.json"),
              "{\"weight_map\":{\"a\":\"1.safetensors\",\"c\":\"2.safetensors\",\"b\":\"1.safetensors\"}}");
    assert_int_equal(io_checkpoint_open(&c, in_dir("shards"), err), 0);
    assert_int_equal(io_checkpoint_size(c), 3);
    assert_string_equal(io_checkpoint_find(c, "c")->file, "2.safetensors");
    assert_null(io_checkpoint_keys(c));
    assert_null(io_checkpoint_meta(c, "k")); /* each shard has its own metadata */
    io_checkpoint_close(c);
    io_checkpoint_close(NULL);
}

static void what_does_not_agree_is_refused(void **state)
{
    (void)state;
    refuse_open(IO_ABSENT, in_dir("nowhere"), "No such file");
    refuse_open(IO_ABSENT, in_dir("shards/2.safetensors/x"), "Not a directory");
    refuse_open(IO_FAILED, "/dev/null", "not a regular file");
    assert_int_equal(mkdir(in_dir("bad"), 0755), 0);
    refuse_open(IO_ABSENT, in_dir("bad"), "neither model.safetensors nor pytorch_model.bin");
    save_shard(in_dir("bad/1.safetensors"), "ab");
    save_shard(in_dir("bad/2.safetensors"), "bc");
    save_text(in_dir("bad/model.safetensors.index.json"),
              "{\"weight_map\":{\"a\":\"1.safetensors\",\"b\":\"1.safetensors\",\"c\":\"2.safetensors\"}}");
    refuse_open(IO_DAMAGED, in_dir("bad"), "tensor 'b' is in two files");
    save_text(in_dir("bad/model.safetensors.index.json"), "{\"weight_map\":{\"a\":\"3.safetensors\"}}");
    refuse_open(IO_DAMAGED, in_dir("bad"), "there is no such file");
    save(in_dir("bad/3.safetensors"), "", 0);
    refuse_open(IO_DAMAGED, in_dir("bad"), "empty");
    bytes many = {0};
    put_text(&many, "{\"weight_map\":{\"a\":\"1.safetensors\"");
    for (int n = 0; n < 10000; n++) {
        char key[64], name[32];
        snprintf(name, sizeof name, "bad/s%d", n);
        snprintf(key, sizeof key, ",\"t%d\":\"s%d\"", n, n);
        assert_int_equal(link(in_dir("bad/2.safetensors"), in_dir(name)), 0);
        put_text(&many, key);
    }
    put_text(&many, "}}");
    save(in_dir("bad/model.safetensors.index.json"), many.p, many.n);
    refuse_open(IO_DAMAGED, in_dir("bad"), "more than 10000 files");
    free(many.p);
    assert_int_equal(symlink("model.safetensors", in_dir("bad/model.safetensors")), 0);
    refuse_open(IO_FAILED, in_dir("bad"), "Too many levels of symbolic links");
}

/* Check every 8-bit code against its formula, types without a conversion, and the count of non-finite numbers. */
static void numbers_are_converted(void **state)
{
    (void)state;
    unsigned char all[256];
    float x[256];
    for (int n = 0; n < 256; n++)
        all[n] = (unsigned char)n;
    const int64_t shape = 256;
    io_tensor t = {"t", "f", IO_F8_E4M3, 1, &shape, all, 256, NULL, NULL};
    assert_true(io_tensor_read(&t, 0, 256, x));
    for (int n = 0; n < 256; n++) {
        const int exponent = n >> 3 & 15;
        const float size = exponent ? ldexpf(1 + (float)(n & 7) / 8, exponent - 7) : ldexpf((float)(n & 7) / 8, -6);
        if ((n & 127) == 127)
            assert_true(isnan(x[n]));
        else
            assert_true(x[n] == (n & 128 ? -size : size) && !signbit(x[n]) == !(n & 128));
    }
    assert_int_equal(io_tensor_not_finite(&t), 2);
    t.dtype = IO_F8_E5M2; /* the upper half of an f16 */
    assert_true(io_tensor_read(&t, 0, 256, x));
    for (int n = 0; n < 256; n++) {
        const uint16_t half = (uint16_t)(n << 8);
        float size;
        assert_int_equal(rp_convert(&size, RP_F32, &half, RP_F16, 1), RP_OK);
        assert_true(isnan(size) ? isnan(x[n]) : x[n] == size && !signbit(x[n]) == !signbit(size));
    }
    assert_int_equal(io_tensor_not_finite(&t), 8);
    static const rp_dtype types[] = {RP_F32, RP_F64, RP_F16, RP_BF16};
    static const double wanted[] = {1.5, -INFINITY, NAN, -0.25};
    for (size_t n = 0; n < sizeof types / sizeof *types; n++) {
        unsigned char stored[4 * 8 + 1];
        assert_int_equal(rp_convert(stored, types[n], wanted, RP_F64, 4), RP_OK);
        memmove(stored + 1, stored, 4 * io_dtype_size(types[n])); /* numbers in a file may be unaligned */
        const io_tensor of = {"t",  "f", types[n], 1, &(int64_t){4}, stored + 1, 4 * io_dtype_size(types[n]),
                              NULL, NULL};
        assert_true(io_tensor_read(&of, 0, 4, x));
        assert_true(x[0] == 1.5F && x[1] == -HUGE_VALF && isnan(x[2]) && x[3] == -0.25F);
        assert_int_equal(io_tensor_not_finite(&of), 2);
    }
    t.dtype = RP_I32;
    assert_false(io_tensor_read(&t, 0, 4, x));
    assert_int_equal(io_tensor_not_finite(&t), 0);
}

/* Two tensors are the same if their type, shape, bytes and scales are. */
static void equal_tensors_have_equal_scales(void **state)
{
    static const int64_t shape[3] = {2, 2, 1}, other[2] = {1, 4};
    static const unsigned char numbers[4] = {1, 2, 3, 4}, changed[4] = {1, 2, 3, 5};
    (void)state;
    io_scales *s[2];
    for (int n = 0; n < 2; n++) {
        s[n] = calloc(1, sizeof **s + 2 * sizeof(float));
        assert_non_null(s[n]);
        s[n]->rows = 1, s[n]->columns = 2, s[n]->across = 1, s[n]->n = 2;
        s[n]->values[0] = 1, s[n]->values[1] = 2;
    }
    const io_tensor a = {"a", "f", IO_F8_E4M3, 2, shape, numbers, 4, NULL, s[0]};
    io_tensor b = {"b", "g", IO_F8_E4M3, 2, (int64_t[]){2, 2}, (const unsigned char[]){1, 2, 3, 4}, 4, NULL, s[1]};
    const io_tensor same = b;
    assert_true(io_tensor_same(&a, &b)); /* names and files do not matter */
    b.ndim = 3, b.shape = shape;
    assert_false(io_tensor_same(&a, &b));
    b = same, b.shape = other;
    assert_false(io_tensor_same(&a, &b));
    b = same, b.dtype = IO_F8_E5M2;
    assert_false(io_tensor_same(&a, &b));
    b = same, b.bytes = 0;
    assert_false(io_tensor_same(&a, &b));
    b = same, b.data = changed;
    assert_false(io_tensor_same(&a, &b));
    b = same, b.scales = NULL;
    assert_false(io_tensor_same(&a, &b));
    assert_false(io_tensor_same(&b, &a));
    io_tensor plain = a;
    plain.scales = NULL;
    assert_true(io_tensor_same(&plain, &b));
    const uint64_t sum = io_tensor_checksum(&a, 1);
    assert_int_equal(io_tensor_checksum(&same, 1), sum);
    s[1]->rows = 2;
    assert_false(io_tensor_same(&a, &same));
    s[1]->rows = 1, s[1]->columns = 1;
    assert_false(io_tensor_same(&a, &same));
    s[1]->columns = 2, s[1]->n = 1;
    assert_false(io_tensor_same(&a, &same));
    s[1]->n = 2, s[1]->values[1] = 3;
    assert_false(io_tensor_same(&a, &same));
    assert_true(io_tensor_checksum(&same, 1) != sum);
    free(s[0]);
    free(s[1]);
}

static void types_have_names(void **state)
{
    static const struct {
        int dtype;
        const char *name;
        bool numbers;
    } types[] = {{IO_F8_E4M3, "F8_E4M3", true}, {IO_F8_E5M2, "F8_E5M2", true}, {IO_NO_DTYPE, "unknown", false},
                 {IO_Q8_0, "Q8_0", true},       {RP_BF16, "bf16", true},       {RP_I32, "i32", false}};
    (void)state;
    for (size_t n = 0; n < sizeof types / sizeof *types; n++) {
        const io_tensor t = {"t",  "f", (rp_dtype)types[n].dtype, 1, &(int64_t){0}, (const unsigned char *)"", 0,
                             NULL, NULL};
        assert_string_equal(io_tensor_type_name(&t), types[n].name);
        assert_int_equal(io_tensor_has_numbers(&t), types[n].numbers);
        assert_int_equal(io_tensor_not_finite(&t), 0); /* there are no elements */
    }
}

/* 8-bit floats of both types, which only a model may have. */
static void floats_of_8_bits_are_read_in_place(void **state)
{
    static const char header[] = "{\"a\":{\"dtype\":\"F8_E5M2\",\"shape\":[2],\"data_offsets\":[0,2]},"
                                 "\"b\":{\"dtype\":\"F8_E4M3\",\"shape\":[2],\"data_offsets\":[2,4]}}";
    bytes b = {0};
    io_checkpoint *c;
    float x[2];
    (void)state;
    put_int(&b, sizeof header - 1, 8);
    put_text(&b, header);
    put(&b, "\x3c\xc0\x38\xc0", 4);
    save(in_dir("f8.safetensors"), b.p, b.n);
    free(b.p);
    assert_int_equal(io_checkpoint_open(&c, in_dir("f8.safetensors"), err), IO_OK);
    for (int n = 0; n < 2; n++) {
        const io_tensor *t = io_checkpoint_find(c, n ? "b" : "a");
        assert_string_equal(io_tensor_type_name(t), n ? "F8_E4M3" : "F8_E5M2");
        assert_true(io_tensor_read(t, 0, 2, x) && x[0] == 1 && x[1] == -2);
    }
    io_checkpoint_close(c);
}

static bool keeps_none(const void *context, const char *name, char *to, size_t size)
{
    (void)context, (void)name, (void)to, (void)size;
    return false;
}

/* A file that is written to while it is in use is noticed by its times, and one that is replaced is not in use. */
static void changed_files_are_noticed(void **state)
{
    (void)state;
    io_checkpoint *c;
    const char *path = in_dir("used.safetensors");
    save_shard(path, "ab");
    assert_int_equal(io_checkpoint_open(&c, path, err), IO_OK);
    assert_int_equal(io_checkpoint_unchanged(c, err), IO_OK);
    struct stat st;
    assert_int_equal(stat(path, &st), 0);
    for (int n = 0; n < 2; n++) {
        struct timespec times[2] = {st.st_atim, st.st_mtim};
        times[1].tv_sec += n == 0 ? 1 : 0;
        times[1].tv_nsec = n == 0 ? times[1].tv_nsec : (times[1].tv_nsec + 1000000) % 1000000000;
        assert_int_equal(utimensat(AT_FDCWD, path, times, 0), 0);
        assert_int_equal(io_checkpoint_unchanged(c, err), IO_FAILED);
        assert_non_null(strstr(err, "it was changed while it was in use"));
        assert_non_null(strstr(err, "replace files with mv"));
    }
    save_shard(in_dir("new.safetensors"), "abc");
    assert_int_equal(rename(in_dir("new.safetensors"), path), 0);
    assert_int_equal(io_checkpoint_unchanged(c, err), IO_OK);
    assert_int_equal(io_checkpoint_size(c), 2);
    assert_int_equal(io_checkpoint_rename(c, keeps_none, NULL, path, err), IO_OK);
    assert_int_equal(io_checkpoint_size(c), 0);
    assert_null(io_checkpoint_find(c, "a"));
    io_checkpoint_close(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_file_or_shards),       cmocka_unit_test(what_does_not_agree_is_refused),
        cmocka_unit_test(numbers_are_converted),    cmocka_unit_test(equal_tensors_have_equal_scales),
        cmocka_unit_test(types_have_names),         cmocka_unit_test(floats_of_8_bits_are_read_in_place),
        cmocka_unit_test(changed_files_are_noticed)};
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
