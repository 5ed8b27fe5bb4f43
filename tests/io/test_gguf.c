/* test_gguf.c -- .gguf files: the numbers of every type of blocks equal those of the Python package gguf
 * (tests/t5/make_gguf.py wrote them); keys of every type; damaged files.
 * SPDX-License-Identifier: Apache-2.0 */
#include "io/block_types.h"
#include "io/checkpoint.h"
#include "tests/io/files.h"

static const char *data_file(const char *name)
{
    static char path[2][512];
    static int which;
    which = !which;
    snprintf(path[which], sizeof path[which], RELPOS_TEST_DATA "/%s", name);
    return path[which];
}

static void numbers_equal_those_of_gguf(void **state)
{
    (void)state;
    io_checkpoint *c, *golden;
    float x[512];
    assert_int_equal(io_checkpoint_open(&c, data_file("blocks.gguf"), err), IO_OK);
    assert_int_equal(io_checkpoint_open(&golden, data_file("blocks.safetensors"), err), IO_OK);
    assert_int_equal(io_checkpoint_size(c), 11);
    for (size_t n = 0; n < 11; n++) {
        const io_tensor *t = io_checkpoint_at(c, n), *g = io_checkpoint_find(golden, t->name);
        const int64_t all = t->shape[0] * t->shape[1];
        assert_non_null(g);
        assert_string_equal(strcmp(t->name, "BF16") == 0 ? "bf16" : io_block_of(t->dtype)->name,
                            io_tensor_type_name(t));
        assert_memory_equal(t->shape, g->shape, 2 * sizeof *t->shape);
        assert_true(io_tensor_read(t, 0, all, x));
        if (memcmp(x, g->data, (size_t)all * sizeof *x) != 0)
            fail_msg("%s has other numbers", t->name);
        assert_int_equal(io_tensor_not_finite(t), 0);
        for (int64_t k = 0; k < all && io_block_of(t->dtype) != NULL; k += 9) { /* begin and end within blocks */
            const int64_t some = all - k < 40 ? all - k : 40;
            assert_true(io_tensor_read(t, k, some, x));
            assert_memory_equal(x, g->data + 4 * k, (size_t)some * sizeof *x);
        }
    }
    io_checkpoint_close(c);
    io_checkpoint_close(golden);
}

static void scales_that_are_not_finite_are_counted(void **state)
{
    (void)state;
    for (int dtype = IO_Q8_0; dtype < IO_BLOCKS_END; dtype++) {
        const linear_blocks *b = io_block_of((rp_dtype)dtype);
        unsigned char block[512] = {0};
        const io_tensor t = {.name = "t",
                             .file = "f",
                             .dtype = (rp_dtype)dtype,
                             .ndim = 1,
                             .shape = &(int64_t){2 * b->numbers},
                             .data = block,
                             .bytes = 2 * (size_t)b->bytes};
        assert_int_equal(io_tensor_not_finite(&t), 0);
        block[b->bytes + b->scale + 1] = 0xfc; /* -infinity */
        assert_int_equal(io_tensor_not_finite(&t), b->numbers);
        if (b->min >= 0)
            block[b->min + 1] = 0x7e; /* NaN */
        assert_int_equal(io_tensor_not_finite(&t), b->min >= 0 ? 2 * b->numbers : b->numbers);
    }
    assert_null(io_block_of(RP_F32));
    assert_null(io_block_of((rp_dtype)IO_BLOCKS_END));
}

/* ------------------------------------------------------------------------------------------------ written here */

static void put_string(bytes *b, const char *text)
{
    put_int(b, strlen(text), 8);
    put_text(b, text);
}

static void put_key(bytes *b, const char *key, int type, uint64_t bits, int size)
{
    put_string(b, key);
    put_int(b, (uint64_t)type, 4);
    put_int(b, bits, size);
}

static void put_head(bytes *b, int version, uint64_t tensors, uint64_t keys)
{
    put_text(b, "GGUF");
    put_int(b, (uint64_t)version, 4);
    put_int(b, tensors, 8);
    put_int(b, keys, 8);
}

static void put_tensor(bytes *b, const char *name, uint64_t rows, uint64_t columns, int type, uint64_t offset)
{
    put_string(b, name);
    put_int(b, 2, 4);
    put_int(b, columns, 8);
    put_int(b, rows, 8);
    put_int(b, (uint64_t)type, 4);
    put_int(b, offset, 8);
}

static void put_padding(bytes *b, size_t alignment)
{
    while (b->n % alignment != 0)
        put_int(b, 0, 1);
}

static io_status open_bytes(io_checkpoint **c, const bytes *b)
{
    const char *path = in_dir("x.gguf");
    save(path, b->p, b->n);
    return io_checkpoint_open(c, path, err);
}

static void keys_have_values(void **state)
{
    (void)state;
    bytes b = {0};
    io_checkpoint *c;
    int64_t x;
    double y;
    put_head(&b, 2, 2, 8);
    put_key(&b, "u8", GGUF_U8, 200, 1);
    put_key(&b, "i16", GGUF_I16, 0xfffe, 2);
    put_key(&b, "large", GGUF_U64, UINT64_MAX, 8);
    put_key(&b, "f32", GGUF_F32, 0x3fc00000, 4);
    put_key(&b, "yes", GGUF_BOOL, 1, 1);
    put_key(&b, "general.alignment", GGUF_U32, 64, 4);
    put_string(&b, "text");
    put_int(&b, GGUF_STRING, 4);
    put_string(&b, "t5");
    put_string(&b, "list");
    put_int(&b, GGUF_ARRAY, 4);
    put_int(&b, GGUF_STRING, 4);
    put_int(&b, 2, 8);
    put_string(&b, "a");
    put_string(&b, "");
    put_tensor(&b, "empty", 0, 3, 0, 0);
    put_tensor(&b, "w", 3, 2, 0, 0);
    put_padding(&b, 64);
    for (int k = 0; k < 6; k++)
        put_int(&b, k == 5 ? 0x40000000 : 0, 4);
    assert_int_equal(open_bytes(&c, &b), IO_OK);
    const io_gguf *keys = io_checkpoint_keys(c);
    assert_true(io_gguf_integer(io_gguf_find(keys, "u8"), &x) && x == 200);
    assert_true(io_gguf_integer(io_gguf_find(keys, "i16"), &x) && x == -2);
    assert_true(io_gguf_integer(io_gguf_find(keys, "yes"), &x) && x == 1);
    assert_true(io_gguf_number(io_gguf_find(keys, "f32"), &y) && y == 1.5);
    assert_true(io_gguf_number(io_gguf_find(keys, "u8"), &y) && y == 200);
    assert_false(io_gguf_integer(io_gguf_find(keys, "large"), &x));
    assert_false(io_gguf_integer(io_gguf_find(keys, "f32"), &x));
    assert_false(io_gguf_integer(io_gguf_find(keys, "list"), &x));
    assert_false(io_gguf_integer(io_gguf_find(keys, "none"), &x));
    assert_true(io_gguf_is_text(io_gguf_find(keys, "text"), "t5"));
    assert_false(io_gguf_is_text(io_gguf_find(keys, "text"), "t"));
    assert_int_equal(io_gguf_find(keys, "list")->n, 2);
    assert_null(io_gguf_find(keys, "tex"));
    const io_tensor *w = io_checkpoint_find(c, "w");
    assert_true(w->shape[0] == 3 && w->shape[1] == 2 && w->bytes == 24);
    assert_memory_equal(w->data + 20, "\0\0\0\x40", 4);
    io_checkpoint_close(c);
    free(b.p);
}

static void refuse_bytes(const bytes *b, const char *words)
{
    io_checkpoint *c;
    if (open_bytes(&c, b) == IO_OK)
        fail_msg("opened; expected: %s", words);
    if (strstr(err, words) == NULL || strchr(err, '\n') != NULL)
        fail_msg("'%s' does not contain '%s'", err, words);
}

static void refuse_tensor(uint64_t rows, uint64_t columns, int type, uint64_t offset, const char *words)
{
    bytes b = {0};
    put_head(&b, 3, 1, 0);
    put_tensor(&b, "w", rows, columns, type, offset);
    put_padding(&b, 32);
    put(&b, (char[64]){0}, 64);
    refuse_bytes(&b, words);
    free(b.p);
}

static void refuse_key(int type, uint64_t bits, int size, const char *words)
{
    bytes b = {0};
    put_head(&b, 3, 1, 1);
    put_key(&b, "general.alignment", type, bits, size);
    put_tensor(&b, "w", 2, 2, 0, 0);
    put(&b, (char[64]){0}, 64);
    refuse_bytes(&b, words);
    free(b.p);
}

static void bad_files_are_refused(void **state)
{
    (void)state;
    refuse_tensor(2, UINT64_MAX, 0, 0, "has an axis of");
    refuse_tensor(1u << 31, (uint64_t)1 << 33, 0, 0, "is too large");
    refuse_tensor(INT64_MAX / 2, 2, 8, 0, "not whole blocks of 32");
    refuse_tensor((uint64_t)1 << 58, 32, 8, 0, "is too large");
    refuse_tensor(2, 16, 8, 0, "not whole blocks of 32");
    refuse_tensor(2, 2, 99, 0, "has the type 99");
    refuse_tensor(2, 2, 0, 32, "begins at 32; it must begin at 0");
    refuse_tensor(17, 1, 0, 0, "ends at byte");
    refuse_key(GGUF_U32, 12, 4, "a power of two from 8");
    refuse_key(GGUF_U32, 0, 4, "a power of two from 8");
    refuse_key(GGUF_U64, (uint64_t)1 << 40, 8, "a power of two from 8");
    refuse_key(GGUF_ARRAY, GGUF_ARRAY, 8, "values of type 9");
    refuse_key(77, 0, 4, "values of type 77");
    refuse_key(GGUF_STRING, UINT64_MAX - 7, 8, "the file ends within the keys");
    static const struct {
        int version;
        uint64_t tensors, keys;
        const char *words;
    } heads[] = {{1, 0, 0, "version 1; it must be 2 or 3"},
                 {3 << 24, 0, 0, "or big-endian"},
                 {3, UINT64_MAX, 0, "more than fit"},
                 {3, 0, (uint64_t)1 << 60, "more than fit"},
                 {3, 1, 2, "more than fit"},
                 {3, 0, 0, "it has no tensors"}};
    for (size_t n = 0; n < sizeof heads / sizeof *heads; n++) {
        bytes b = {0};
        put_head(&b, heads[n].version, heads[n].tensors, heads[n].keys);
        refuse_bytes(&b, heads[n].words);
        free(b.p);
    }
    bytes b = {0}; /* two tensors with one name, and two equal keys */
    put_head(&b, 3, 2, 0);
    put_tensor(&b, "w", 1, 8, 0, 0);
    put_tensor(&b, "w", 1, 8, 0, 32);
    put(&b, (char[128]){0}, 128);
    refuse_bytes(&b, "tensor 'w' occurs twice");
    b.n = 0;
    put_head(&b, 3, 1, 2);
    put_key(&b, "k", GGUF_U8, 1, 1);
    put_key(&b, "k", GGUF_U8, 2, 1);
    put(&b, (char[128]){0}, 128);
    refuse_bytes(&b, "key 'k' occurs twice");
    free(b.p);
}

/* Keys of every type: integers of every width keep their sign, and a text is no number. */
static void keys_of_every_type_have_values(void **state)
{
    static const struct {
        const char *key;
        int type;
        uint64_t bits;
        int size;
        bool integer;
        double number;
    } keys[] = {{"u8", GGUF_U8, 0xff, 1, true, 255},
                {"i8", GGUF_I8, 0xff, 1, true, -1},
                {"u16", GGUF_U16, 0xfffe, 2, true, 65534},
                {"i16", GGUF_I16, 0xfffe, 2, true, -2},
                {"u32", GGUF_U32, UINT32_MAX, 4, true, 0x1p32 - 1},
                {"i32", GGUF_I32, UINT32_MAX - 2, 4, true, -3},
                {"u64", GGUF_U64, 1ull << 40, 8, true, 0x1p40},
                {"i64", GGUF_I64, UINT64_MAX - 3, 8, true, -4},
                {"bool", GGUF_BOOL, 0, 1, true, 0},
                {"f32", GGUF_F32, 0xc0200000, 4, false, -2.5},
                {"f64", GGUF_F64, 0x400c000000000000, 8, false, 3.5}};
    enum { KEYS = sizeof keys / sizeof *keys };
    (void)state;
    bytes b = {0};
    io_checkpoint *c;
    int64_t x;
    double y;
    put_head(&b, 3, 1, KEYS + 2);
    for (size_t n = 0; n < KEYS; n++)
        put_key(&b, keys[n].key, keys[n].type, keys[n].bits, keys[n].size);
    put_string(&b, "text");
    put_int(&b, GGUF_STRING, 4);
    put_string(&b, "7");
    put_string(&b, "list");
    put_int(&b, GGUF_ARRAY, 4);
    put_int(&b, GGUF_F32, 4);
    put_int(&b, 1, 8);
    put_int(&b, 0x3f800000, 4);
    put_tensor(&b, "w", 1, 1, 0, 0);
    put_padding(&b, 32);
    put_int(&b, 0, 4);
    assert_int_equal(open_bytes(&c, &b), IO_OK);
    const io_gguf *found = io_checkpoint_keys(c);
    for (size_t n = 0; n < KEYS; n++) {
        const io_gguf_value *v = io_gguf_find(found, keys[n].key);
        assert_true(io_gguf_integer(v, &x) == keys[n].integer && (!keys[n].integer || x == (int64_t)keys[n].number));
        assert_true(io_gguf_number(v, &y) && y == keys[n].number);
        assert_false(io_gguf_is_text(v, "7"));
    }
    assert_true(io_gguf_is_text(io_gguf_find(found, "text"), "7"));
    assert_false(io_gguf_is_text(io_gguf_find(found, "text"), "8"));
    static const char *const no_numbers[] = {"text", "list", "none"};
    for (int n = 0; n < 3; n++) {
        const io_gguf_value *v = io_gguf_find(found, no_numbers[n]);
        assert_false(io_gguf_integer(v, &x) || io_gguf_number(v, &y) || (n > 0 && io_gguf_is_text(v, "7")));
    }
    assert_null(io_gguf_find(NULL, "u8")); /* a model of another format has no keys */
    io_checkpoint_close(c);
    free(b.p);
}

/* A tensor of a type that is not read is listed with advice; the data of the next tensor follows its blocks. */
static void types_that_are_not_read_are_listed(void **state)
{
    (void)state;
    bytes b = {0};
    io_checkpoint *c;
    float x[2];
    put_head(&b, 3, 2, 0);
    put_tensor(&b, "a", 2, 32, 20, 0); /* IQ4_NL: blocks of 32 numbers in 18 bytes */
    put_tensor(&b, "b", 1, 2, 0, 64);
    put_padding(&b, 32);
    put(&b, (char[64]){1, 2, 3}, 64);
    put_int(&b, 0x3f800000, 4);
    put_int(&b, 0x40000000, 4);
    assert_int_equal(open_bytes(&c, &b), IO_OK);
    const io_tensor *a = io_checkpoint_find(c, "a");
    assert_true(a->dtype == IO_NO_DTYPE && a->bytes == 0 && a->shape[0] == 2 && a->shape[1] == 32);
    assert_string_equal(a->unsupported, "it has the type IQ4_NL (use a file with Q8_0, Q4_K_M or F16)");
    assert_false(io_tensor_has_numbers(a));
    assert_true(io_tensor_read(io_checkpoint_find(c, "b"), 0, 2, x) && x[0] == 1 && x[1] == 2);
    io_checkpoint_close(c);
    free(b.p);
}

/* Files that end within the value of a key or the description of a tensor, names that are too long, and alignments that
 * are not integers, negative or too small. */
static void cut_descriptions_are_refused(void **state)
{
    static const char name[] = "a name of thirty-two characters!";
    (void)state;
    bytes b = {0};
    put_head(&b, 3, 0, 1);
    put_string(&b, name);
    refuse_bytes(&b, "the file ends within the keys, at byte 64");
    b.n = 0;
    put_head(&b, 3, 1, 0);
    put_string(&b, name);
    put_int(&b, 1, 4);
    put_int(&b, 8, 8);
    refuse_bytes(&b, "the file ends within the tensors, at byte 76");
    b.n = 0;
    put_head(&b, 3, 0, 1);
    put_int(&b, 65536, 8);
    for (int n = 0; n < 65536; n++)
        put_int(&b, 'k', 1);
    put_int(&b, GGUF_U8, 4);
    put_int(&b, 0, 1);
    refuse_bytes(&b, "has 65536 bytes; it must have 1 to 65535");
    free(b.p);
    refuse_key(GGUF_F32, 0x42000000, 4, "general.alignment must be a power of two from 8 to 1048576");
    refuse_key(GGUF_I8, 0x80, 1, "general.alignment must be a power of two from 8 to 1048576");
    refuse_key(GGUF_U8, 4, 1, "general.alignment must be a power of two from 8 to 1048576");
}

/* Every prefix of a file is refused, and no change of a byte leads to a read outside the file. */
static void cut_and_changed_files_are_safe(void **state)
{
    (void)state;
    bytes all = load_file(data_file("blocks.gguf"));
    for (size_t n = 0; n < all.n; n += n < 1000 ? 1 : 31) {
        unsigned char *copy = malloc(n + 1);
        io_gguf keys = {0};
        io_set set = {0};
        memcpy(copy, all.p, n);
        const io_status status = n >= 4 ? io_gguf_in_place("f", copy, n, &keys, &set, err) : IO_DAMAGED;
        assert_true(status == IO_DAMAGED || n + 64 > all.n); /* the last bytes are padding */
        io_gguf_free(&keys);
        io_free(&set);
        free(copy);
        copy = malloc(all.n);
        memcpy(copy, all.p, all.n);
        copy[n] ^= (unsigned char)(1 + n % 255);
        if (n >= 4) {
            io_gguf_in_place("f", copy, all.n, &keys, &set, err);
            io_gguf_free(&keys);
            io_free(&set);
        }
        free(copy);
    }
    free(all.p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(numbers_equal_those_of_gguf),
                                       cmocka_unit_test(scales_that_are_not_finite_are_counted),
                                       cmocka_unit_test(keys_have_values),
                                       cmocka_unit_test(keys_of_every_type_have_values),
                                       cmocka_unit_test(types_that_are_not_read_are_listed),
                                       cmocka_unit_test(cut_descriptions_are_refused),
                                       cmocka_unit_test(bad_files_are_refused),
                                       cmocka_unit_test(cut_and_changed_files_are_safe)};
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
