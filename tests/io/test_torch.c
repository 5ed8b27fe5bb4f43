/* test_torch.c -- files of torch.save: what PyTorch wrote is read in place; pickles and archives that were made by hand
 * are refused with a reason.
 * SPDX-License-Identifier: Apache-2.0 */
#include "io/checkpoint.h"
#include "io/pickle.h"
#include "io/zip_members.h"
#include "tests/io/archives.h"
#include "tests/starve.h"

/* ------------------------------------------------------------------------------------------------ files of PyTorch */

static io_checkpoint *opened(const char *path)
{
    io_checkpoint *c;
    if (io_checkpoint_open(&c, path, err) != IO_OK)
        fail_msg("%s", err);
    return c;
}

/* Check that a tensor has the elements first, first + 1, ... and this shape. */
static void counts_from(const io_checkpoint *c, const char *name, rp_dtype dtype, float first, int32_t ndim,
                        const int64_t *shape)
{
    const io_tensor *t = io_checkpoint_find(c, name);
    float x[24];
    int64_t n = 1;
    assert_non_null(t);
    assert_int_equal(t->dtype, dtype);
    assert_int_equal(t->ndim, ndim);
    for (int32_t k = 0; k < ndim; k++) {
        assert_int_equal(t->shape[k], shape[k]);
        n *= shape[k];
    }
    assert_int_equal(t->bytes, (size_t)n * (dtype == IO_F8_E4M3 ? 1 : io_dtype_size(dtype)));
    if (!io_tensor_read(t, 0, n, x)) { /* an integer type */
        for (int64_t k = 0; k < n; k++) {
            uint64_t number = 0;
            memcpy(&number, t->data + (size_t)k * io_dtype_size(dtype), io_dtype_size(dtype));
            x[k] = (float)number;
        }
    }
    for (int64_t k = 0; k < n; k++)
        if (x[k] != (dtype == RP_BOOL                ? (float)(first + (float)k > 0)
                     : dtype == IO_F8_E4M3 && k > 16 ? x[k]
                                                     : first + (float)k))
            fail_msg("%s[%d] is %g", name, (int)k, (double)x[k]);
}

static void every_type_is_read(void **state)
{
    (void)state;
    io_checkpoint *c = opened(RELPOS_TEST_DATA "/torch.pt");
    for (int k = 0; k < N_TYPES; k++)
        counts_from(c, type_names[k], every_type[k], 0, 3, (int64_t[]){2, 3, 4});
    counts_from(c, "f8", IO_F8_E4M3, 0, 3, (int64_t[]){2, 3, 4});
    assert_int_equal(io_checkpoint_size(c), N_TYPES + 9);
    counts_from(c, "view", RP_F32, 16, 2, (int64_t[]){2, 4});
    counts_from(c, "parameter", RP_F32, 0, 2, (int64_t[]){3, 4});
    counts_from(c, "scalar", RP_F32, 23, 0, NULL);
    counts_from(c, "empty", RP_F32, 0, 3, (int64_t[]){3, 0, 2});
    counts_from(c, "ones", RP_F32, 0, 3, (int64_t[]){1, 24, 1});
    counts_from(c, "na\xc3\xafve", RP_F32, 0, 1, (int64_t[]){4});
    assert_ptr_equal(io_checkpoint_find(c, "f32")->data, io_checkpoint_find(c, "tied")->data); /* nothing is copied */
    assert_int_equal(io_checkpoint_find(c, "transposed")->dtype, IO_NO_DTYPE);
    assert_non_null(strstr(io_checkpoint_find(c, "transposed")->unsupported, "not contiguous"));
    io_checkpoint_close(c);
}

static void a_training_checkpoint_has_its_state_dict(void **state)
{
    (void)state;
    io_checkpoint *c = opened(RELPOS_TEST_DATA "/torch_nested.pt");
    assert_int_equal(io_checkpoint_size(c), 2);
    counts_from(c, "weight", RP_F32, 0, 3, (int64_t[]){2, 3, 4});
    counts_from(c, "bias", RP_F32, 0, 2, (int64_t[]){3, 4});
    io_checkpoint_close(c);
    assert_int_equal(io_checkpoint_open(&c, RELPOS_TEST_DATA "/torch_old.pt", err), IO_DAMAGED);
    assert_non_null(strstr(err, "before 1.6"));
}

/* ------------------------------------------------------------------------------------------------ handmade files */

static bytes archive_of(const void *pickle, size_t n, const void *storage, size_t storage_size)
{
    const member members[] = {{.name = "a/data.pkl", .data = pickle, .size = n},
                              {.name = "a/data/0", .data = storage, .size = storage_size}};
    return make_zip(members, 2, 2);
}

/* Read a copy of exactly n bytes, in which a sanitizer detects reads past the end. Return the number of tensors, or
 * -1. */
static int tensors_in(const void *data, size_t n)
{
    io_set set = {0};
    unsigned char *copy = malloc(n > 0 ? n : 1);
    assert_non_null(copy);
    memcpy(copy, data, n);
    err[0] = 0;
    const io_status status = io_torch_in_place("x.pt", copy, n, &set, err);
    const int tensors = (int)set.n_arrays;
    io_free(&set);
    free(copy);
    if (status != IO_OK && (strncmp(err, "x.pt: ", 6) != 0 || strchr(err, '\n') != NULL))
        fail_msg("'%s' is not a line with the path", err);
    return status == IO_OK ? tensors : -1;
}

static void refuses(const char *words, bytes file)
{
    const int n = tensors_in(file.p, file.n);
    free(file.p);
    if (n >= 0 || strstr(err, words) == NULL)
        fail_msg("%s: %d tensors, '%s'", words, n, err);
}

static const float storage[6] = {0, 1, 2, 3, 4, 5};

static void refuses_pickle(const char *words, const void *pickle, size_t n)
{
    refuses(words, archive_of(pickle, n, storage, sizeof storage));
}

/* Parts of pickles: a storage of 6 numbers, and a tensor with these offset, shape and strides. */
#define PROTOCOL                   "\x80\x02"
#define STORAGE(TYPE, KEY, NUMBER) "(X\7\0\0\0storagectorch\n" TYPE "\nX\1\0\0\0" KEY "X\3\0\0\0cpuK" NUMBER "tQ"
#define OF(THIS, OFFSET, SHAPE)    "ctorch._utils\n_rebuild_tensor_v2\n(" THIS "K" OFFSET SHAPE "\x89}tR"
#define TENSOR                     OF(STORAGE("FloatStorage", "0", "\6"), "\0", "K\2K\3\x86K\3K\1\x86")
#define SHAPED(OFFSET, SHAPE)      OF(STORAGE("FloatStorage", "0", "\6"), OFFSET, SHAPE)
#define NAMED(TENSOR)              "X\1\0\0\0x" TENSOR
#define ONE(TENSOR)                PROTOCOL "}" NAMED(TENSOR) "s."
#define TEXT(PICKLE)               PICKLE, sizeof(PICKLE) - 1

static void bad_pickles_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *words, *pickle;
        size_t n;
    } cases[] = {
        {"uses posix.system, which", TEXT(PROTOCOL "cposix\nsystem\nX\4\0\0\0echo\x85R.")},
        {"uses os.OrderedDict, which", TEXT(PROTOCOL "cos\nOrderedDict\n)R.")},
        {"uses os.system, which", TEXT(PROTOCOL "X\2\0\0\0osX\6\0\0\0system\x93X\4\0\0\0echo\x85R.")},
        {"uses torch.ComplexFloatStorage", TEXT(ONE(OF(STORAGE("ComplexFloatStorage", "0", "\3"), "\0", "))")))},
        {"uses builtins.\\x0deval", TEXT(PROTOCOL "cbuiltins\n\reval\n.")},
        {"operation 0x69", TEXT(PROTOCOL "(iposix\nsystem\n.")},
        {"operation 0x81", TEXT(PROTOCOL "ccollections\nOrderedDict\n)\x81.")},
        {"operation 0x82", TEXT(PROTOCOL "\x82\1.")}, /* an extension, which names no global */
        {"no dictionary of tensors", TEXT(PROTOCOL "K\1.")},
        {"no dictionary of tensors", TEXT(PROTOCOL "}}.")},
        {"its tensors are in a member 'ema', which", TEXT(PROTOCOL "}X\3\0\0\0ema}" NAMED(TENSOR) "ss.")},
        {"its tensors are in a member 'deep'", /* one level */
         TEXT(PROTOCOL "}X\5\0\0\0model}X\4\0\0\0deep}" NAMED(TENSOR) "sss.")},
        {"bytes after its end", TEXT(PROTOCOL "}..")},
        {"cut short", TEXT(PROTOCOL "}")},
        {"cut short", TEXT(PROTOCOL "X\xff\xff\xff\xff")},
        {"cut short", TEXT(PROTOCOL "\x8d\xff\xff\xff\xff\xff\xff\xff\xff")},
        {"cut short", TEXT(PROTOCOL "cposix\nsystem")},
        {"a value is missing", TEXT(PROTOCOL "s.")},
        {"a value is missing", TEXT(PROTOCOL "(\x85.")},
        {"a value is missing", TEXT(PROTOCOL "(K\1\x86.")},
        {"a value is missing", TEXT(PROTOCOL "}(K\1s.")},
        {"a value is missing", TEXT(PROTOCOL "}K\1(s.")},
        {"a value is missing", TEXT(PROTOCOL "K\1(a.")},
        {"not a list", TEXT(PROTOCOL "K\1K\1a.")},
        {"a value is missing", TEXT(PROTOCOL "(q\0.")},
        {"a mark is missing", TEXT(PROTOCOL "}u.")},
        {"a mark is missing", TEXT(PROTOCOL "t.")},
        {"a mark is missing", TEXT(PROTOCOL "e.")},
        {"not a dictionary", TEXT(PROTOCOL "](X\1\0\0\0xK\1u.")},
        {"not a dictionary", TEXT(PROTOCOL "}(X\1\0\0\0xu.")},
        {"not a dictionary", TEXT(PROTOCOL "]}b.")},
        {"not a list", TEXT(PROTOCOL "}K\1a.")},
        {"not a list", TEXT(PROTOCOL "}(K\1e.")},
        {"leaves a gap in the memo", TEXT(PROTOCOL "}q\1.")},
        {"leaves a gap in the memo", TEXT(PROTOCOL "}r\xff\xff\xff\xff.")},
        {"the memo has no such value", TEXT(PROTOCOL "h\0.")},
        {"the memo has no such value", TEXT(PROTOCOL "j\xff\xff\xff\xff.")},
        {"no function", TEXT(PROTOCOL "K\1)R.")},
        {"no function", TEXT(PROTOCOL "ctorch\nFloatStorage\n)R.")},
        {"no function", TEXT(PROTOCOL "ctorch._utils\n_rebuild_tensor_v2\nK\1R.")},
        {"OrderedDict is made with arguments", TEXT(PROTOCOL "ccollections\nOrderedDict\n]\x85R.")},
        {"a parameter has no tensor", TEXT(PROTOCOL "ctorch._utils\n_rebuild_parameter\n)R.")},
        {"the description of a tensor", TEXT(PROTOCOL "ctorch._utils\n_rebuild_tensor_v2\n)R.")},
        {"the description of a tensor", TEXT(ONE(SHAPED("\0", "K\6\x85)")))},
        {"the description of a tensor", TEXT(ONE(SHAPED("\0", "J\xff\xff\xff\xff\x85K\1\x85")))},
        {"the description of a tensor", TEXT(ONE(SHAPED("\0", "\x8a\x09\0\0\0\0\0\0\0\0\1\x85K\1\x85")))},
        {"the name of a global is no text", TEXT(PROTOCOL "K\1K\1\x93.")},
        {"does not describe a storage", TEXT(PROTOCOL "X\1\0\0\0"
                                                      "0Q.")},
        {"does not describe a storage", TEXT(ONE(OF(STORAGE("FloatStorage", "0", "\6") "Q", "\0", "))")))},
        {"a storage has no type", TEXT(PROTOCOL "(X\7\0\0\0storagectorch\nfloat32\nX\1\0\0\0"
                                                "0X\3\0\0\0cpuK\6tQ.")},
        {"tensor 'x': its storage is not in the file", TEXT(ONE(OF(STORAGE("FloatStorage", "1", "\6"), "\0", "))")))},
        {"its storage has 24 bytes; it must have 28", TEXT(ONE(OF(STORAGE("FloatStorage", "0", "\7"), "\0", "))")))},
        {"its storage has 24 bytes; it must have 20", TEXT(ONE(OF(STORAGE("FloatStorage", "0", "\5"), "\0", "))")))},
        {"its storage has 24 bytes; it must have 48", TEXT(ONE(OF(STORAGE("DoubleStorage", "0", "\6"), "\0", "))")))},
        {"from element 1 on are not within", TEXT(ONE(SHAPED("\1", "K\2K\3\x86K\3K\1\x86")))},
        {"from element 7 on are not within", TEXT(ONE(SHAPED("\7", "K\0\x85K\1\x85")))},
        {"from element 0 on are not within", TEXT(ONE(SHAPED("\0", "K\7\x85K\1\x85")))},
        {"the product of the shape", TEXT(ONE(SHAPED("\0", "\x8a\x08\0\0\0\0\0\0\0\x40K\4\x86K\4K\1\x86")))},
        {"two tensors are named 'x'", TEXT(PROTOCOL "}(" NAMED(TENSOR) NAMED(TENSOR) "u.")},
        {"not UTF-8 without NUL", TEXT(PROTOCOL "}X\3\0\0\0a\0b" TENSOR "s.")},
        {"not UTF-8 without NUL", TEXT(PROTOCOL "}X\1\0\0\0\xff" TENSOR "s.")},
    };
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++)
        refuses_pickle(cases[k].words, cases[k].pickle, cases[k].n);
}

#define TYPED(TYPE) /* a tensor of this type in a storage of 6 bytes without a type */                                 \
    "ctorch._utils\n_rebuild_tensor_v3\n((X\7\0\0\0storagectorch.storage\nUntypedStorage\nX\1\0\0\0"                   \
    "0X\3\0\0\0cpuK\6tQK\0K\6\x85K\1\x85\x89}" TYPE "tR"
#define STORED(TYPE, NUMBER)                                                                                           \
    "(X\7\0\0\0storagectorch\n" TYPE "\nX\1\0\0\0"                                                                     \
    "0X\3\0\0\0cpu" NUMBER "tQ"

/* Arguments of the wrong kind, one by one. */
static void arguments_of_the_wrong_kind_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *words, *pickle;
        size_t n;
    } cases[] = {
        {"not a dictionary", TEXT(PROTOCOL "(u.")},
        {"not a list", TEXT(PROTOCOL "(e.")},
        {"attributes are set on a value that is not a dictionary", TEXT(PROTOCOL "}b.")},
        {"does not describe a storage", TEXT(ONE(OF(STORED("FloatStorage", "X\1\0\0\0"
                                                                           "6"),
                                                    "\0", "))")))},
        {"does not describe a storage", TEXT(ONE(OF(STORED("FloatStorage", "J\xff\xff\xff\xff"), "\0", "))")))},
        {"a storage is too large", TEXT(ONE(OF(STORED("FloatStorage", "\x8a\x08\0\0\0\0\0\0\0\x40"), "\0", "))")))},
        {"the description of a tensor", /* 33 axes */
         TEXT(ONE(SHAPED("\0", "(K\1K\1K\1K\1K\1K\1K\1K\1K\1K\1K\1K\1K\1K\1K\1K\1K\1K\1K\1K\1K\1K\1K\1K\1K\1"
                               "K\1K\1K\1K\1K\1K\1K\1K\1tK\1\x85")))},
        {"the description of a tensor", /* the offset is a text, and negative */
         TEXT(PROTOCOL "}" NAMED(
             "ctorch._utils\n_rebuild_tensor_v2\n(" STORED("FloatStorage", "K\6") "X\1\0\0\0"
                                                                                  "0K\6\x85K\1\x85\x89}tR") "s.")},
        {"the description of a tensor", TEXT(PROTOCOL "}" NAMED("ctorch._utils\n_rebuild_tensor_v2\n(" STORED(
                                            "FloatStorage", "K\6") "J\xff\xff\xff\xffK\6\x85K\1\x85\x89}tR") "s.")},
        {"a tensor has no type", TEXT(ONE(TYPED("K\1")))},
        {"a tensor has no type", TEXT(ONE(TYPED("ctorch\nFloatStorage\n")))},
        {"a tensor has no type", /* a storage without a type, in a tensor without one */
         TEXT(ONE(OF("(X\7\0\0\0storagectorch.storage\nUntypedStorage\nX\1\0\0\0"
                     "0X\3\0\0\0cpuK\6tQ",
                     "\0", "K\6\x85K\1\x85")))},
        {"a parameter has no tensor", TEXT(PROTOCOL "ctorch._utils\n_rebuild_parameter\nK\1\x85R.")},
        {"are not within its storage", /* the offset in bytes needs more than 64 bits */
         TEXT(PROTOCOL "}" NAMED("ctorch._utils\n_rebuild_tensor_v2\n(" STORED(
             "FloatStorage", "K\6") "\x8a\x08\0\0\0\0\0\0\0\x40K\1\x85K\1\x85\x89}tR") "s.")},
        {"its tensors are in a member 'a name of more than sixty-three bytes, which is cut off in a me'",
         TEXT(PROTOCOL "}X\111\0\0\0a name of more than sixty-three bytes, which is cut off in a message, too"
                       "}" NAMED(TENSOR) "ss.")},
    };
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++)
        refuses_pickle(cases[k].words, cases[k].pickle, cases[k].n);
}

/* Types of 8 bits, integers without bytes (0), and a dictionary that is its own member. */
static void unusual_pickles_are_read(void **state)
{
    (void)state;
    static const unsigned char numbers[6] = {0x3c, 0x40, 0xbc, 0, 0, 0}; /* 1, 2, -1 in E5M2 */
    static const char typed[] = ONE(TYPED("ctorch\nfloat8_e5m2\n")),
                      zero[] = PROTOCOL "}" NAMED("ctorch._utils\n_rebuild_tensor_v2\n(" STORED(
                          "FloatStorage", "K\6") "\x8a\0K\6\x85K\1\x85\x89}tR") "s.",
                      own[] = PROTOCOL "}q\0(X\4\0\0\0selfh\0" NAMED(TENSOR) "u.";
    float x[6];
    bytes file = archive_of(typed, sizeof typed - 1, numbers, sizeof numbers);
    save(in_dir("e5m2.pt"), file.p, file.n);
    free(file.p);
    io_checkpoint *c = opened(in_dir("e5m2.pt"));
    const io_tensor *t = io_checkpoint_find(c, "x");
    assert_string_equal(io_tensor_type_name(t), "F8_E5M2");
    assert_true(t->bytes == 6 && io_tensor_read(t, 0, 6, x) && x[0] == 1 && x[1] == 2 && x[2] == -1);
    io_checkpoint_close(c);
    file = archive_of(zero, sizeof zero - 1, storage, sizeof storage);
    save(in_dir("zero.pt"), file.p, file.n);
    free(file.p);
    c = opened(in_dir("zero.pt"));
    counts_from(c, "x", RP_F32, 0, 1, (int64_t[]){6});
    io_checkpoint_close(c);
    file = archive_of(own, sizeof own - 1, storage, sizeof storage);
    io_set set = {0};
    assert_int_equal(io_torch_in_place("x.pt", file.p, file.n, &set, err), IO_OK);
    assert_true(set.n_arrays == 1 && set.note == NULL); /* "self" has no other tensors */
    io_free(&set);
    free(file.p);
}

/* A note of many members ends with dots. */
static void long_notes_are_cut(void **state)
{
    (void)state;
    bytes b = {0};
    put(&b, TEXT(PROTOCOL "}(" NAMED(TENSOR)));
    for (int k = 0; k < 40; k++) {
        put(&b, TEXT("X\12\0\0\0member "));
        put_int(&b, (uint64_t)('0' + k / 10), 1);
        put_int(&b, (uint64_t)('0' + k % 10), 1);
        put(&b, TEXT("!}" NAMED(TENSOR) "s"));
    }
    put(&b, TEXT("u."));
    bytes file = archive_of(b.p, b.n, storage, sizeof storage);
    io_set set = {0};
    assert_int_equal(io_torch_in_place("x.pt", file.p, file.n, &set, err), IO_OK);
    assert_non_null(strstr(set.note, "not those of its members 'member 00!', 'member 01!'"));
    assert_true(strlen(set.note) < IO_WHY_MAX && strlen(set.note) > IO_WHY_MAX - 30);
    assert_string_equal(set.note + strlen(set.note) - 5, "' ...");
    io_free(&set);
    free(file.p);
    free(b.p);
    char note[IO_WHY_MAX], why[IO_WHY_MAX]; /* a pickle that is too large is not looked at */
    assert_int_equal(io_pickle_read((const unsigned char *)"", 100000001, NULL, NULL, note, why), IO_DAMAGED);
    assert_string_equal(why, "its pickle has 100000001 bytes (at most 100000000 are supported)");
}

/* What looks like a file of PyTorch: a tar file is an old one, unless it begins like .safetensors. */
static void formats_are_seen_in_the_first_bytes(void **state)
{
    static unsigned char tar[600] = "a file", header[600];
    (void)state;
    memcpy(tar + 257, "ustar", 5);
    assert_true(io_torch_is_old(tar, sizeof tar));
    assert_false(io_torch_is_old(tar, 511));
    tar[8] = '{';
    assert_false(io_torch_is_old(tar, sizeof tar));
    tar[8] = 0, tar[257] = 'U';
    assert_false(io_torch_is_old(tar, sizeof tar));
    memcpy(header, "PK\3\4", 4); /* the length of a header of 67 MB, and its first bytes */
    header[8] = header[9] = '{';
    assert_false(io_torch_is(header, sizeof header));
    header[9] = 0;
    assert_true(io_torch_is(header, sizeof header));
    assert_false(io_torch_is(header, 9));
}

static void good_pickles_are_read(void **state)
{
    (void)state;
    static const struct {
        int tensors;
        const char *pickle;
        size_t n;
    } cases[] = {
        {1, TEXT(ONE(TENSOR))},
        {1, TEXT(ONE(SHAPED("\5", "K\1\x85K\x63\x85")))},     /* the stride of one element does not matter */
        {1, TEXT(ONE(SHAPED("\0", "K\3K\2\x86K\1K\3\x86")))}, /* a transposed tensor is listed */
        {0, TEXT(PROTOCOL "}.")},
        {0, TEXT(PROTOCOL "}q\0X\5\0\0\0modelh\0s.")}, /* a dictionary that contains itself */
        {1, TEXT(PROTOCOL "}X\5\0\0\0model}" NAMED(TENSOR) "ss.")},
        {1,
         TEXT(PROTOCOL "}(X\5\0\0\0model}X\1\0\0\0y" TENSOR "s" NAMED(TENSOR) "u.")}, /* its own tensors come first */
        {1, TEXT(PROTOCOL "}K\1K\1sK\2]K\3asX\1\0\0\0x" TENSOR "s.")},
    };
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        bytes file = archive_of(cases[k].pickle, cases[k].n, storage, sizeof storage);
        if (tensors_in(file.p, file.n) != cases[k].tensors)
            fail_msg("case %zu: '%s'", k, err);
        free(file.p);
    }
}

#define MEMBER(SIZE, NAME) "X" SIZE "\0\0\0" NAME "}" NAMED(TENSOR) "s"

/* The member with the weights is read, and a note names the others that have tensors. */
static void members_are_named(void **state)
{
    (void)state;
    static const struct {
        const char *note, *pickle; /* note: NULL if none */
        size_t n;
    } cases[] = {
        {NULL, TEXT(PROTOCOL "}" MEMBER("\5", "model") "s.")},
        {NULL, TEXT(PROTOCOL "}" MEMBER("\6", "module") "s.")},
        {NULL, TEXT(PROTOCOL "}(" MEMBER("\20", "model_state_dict") "X\5\0\0\0epochK\1u.")},
        {NULL, TEXT(PROTOCOL "}(" MEMBER("\12", "state_dict") "X\5\0\0\0model}u.")},
        {NULL, TEXT(PROTOCOL "}(X\12\0\0\0state_dict}" MEMBER("\5", "model") "u.")}, /* the first has no tensors */
        {"the tensors of its member 'model' are read; not those of 'ema', 'b'",
         TEXT(PROTOCOL "}(" MEMBER("\3", "ema") MEMBER("\5", "model") MEMBER("\1", "b") "u.")},
        {"the tensors of its member 'state_dict' are read; not those of 'model'",
         TEXT(PROTOCOL "}(" MEMBER("\5", "model") MEMBER("\12", "state_dict") "u.")},
        {"its own tensors are read; not those of its members 'model'",
         TEXT(PROTOCOL "}(" NAMED(TENSOR) MEMBER("\5", "model") "u.")},
    };
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        bytes file = archive_of(cases[k].pickle, cases[k].n, storage, sizeof storage);
        io_set set = {0};
        if (io_torch_in_place("x.pt", file.p, file.n, &set, err) != IO_OK)
            fail_msg("case %zu: '%s'", k, err);
        assert_int_equal(set.n_arrays, 1);
        assert_string_equal(set.note != NULL ? set.note : "", cases[k].note != NULL ? cases[k].note : "");
        io_free(&set);
        free(file.p);
    }
}

static void enormous_pickles_are_refused(void **state)
{
    (void)state;
    bytes b = {0};
    for (int k = 0; k <= 100000; k++)
        put(&b, "(", 1);
    refuses_pickle("nests more than 100000 values", b.p, b.n);
    free(b.p);
}

/* Names may share a storage, but not so often that a small file stands for a large model. */
static void sharing_is_limited(void **state)
{
    (void)state;
    enum { NUMBERS = 65535 };
    static const float numbers[NUMBERS];
    for (int names = 10; names <= 2000; names *= 200) {
        bytes b = {0};
        put_text(&b, PROTOCOL "}");
        for (int k = 0; k < names; k++) {
            char name[16];
            snprintf(name, sizeof name, "%05d", k);
            put(&b, TEXT("X\5\0\0\0"));
            put_text(&b, name);
            put(&b, TEXT(OF("(X\7\0\0\0storagectorch\nFloatStorage\nX\1\0\0\0"
                            "0X\3\0\0\0cpuM\xff\xfftQ",
                            "\0", "M\xff\xff\x85K\1\x85") "s"));
        }
        put_text(&b, ".");
        bytes file = archive_of(b.p, b.n, numbers, sizeof numbers);
        free(b.p);
        if (names == 10) {
            assert_int_equal(tensors_in(file.p, file.n), 10);
            free(file.p);
        } else {
            refuses("share their storages more than 64 times", file);
        }
    }
}

/* An entry of the directory may have its sizes and its offset in a zip64 field. */
static void zip64_fields_are_read(void **state)
{
    (void)state;
    static const char pickle[] = PROTOCOL "}.", name[] = "a/data.pkl";
    for (int64_t wrong = 0; wrong < 2; wrong++) {
        bytes b = {0};
        const size_t n = sizeof name - 1;
        put(&b, TEXT("PK\3\4\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\xa\0\0\0"));
        put_text(&b, name);
        put(&b, pickle, sizeof pickle - 1);
        const size_t begin = b.n;
        put(&b, TEXT("PK\1\2\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\xff\xff\xff\xff\xff\xff\xff\xff"));
        put_int(&b, n, 2);
        put_int(&b, 6 + 28, 2);
        put(&b, TEXT("\0\0\0\0\0\0\0\0\0\0\xff\xff\xff\xff"));
        put_text(&b, name);
        put(&b, TEXT("\5\0\2\0ab\1\0\x18\0")); /* another field, and zip64 */
        put_int(&b, sizeof pickle - 1, 8);
        put_int(&b, sizeof pickle - 1, 8);
        put_int(&b, (uint64_t)wrong << 62, 8);
        const size_t end = b.n;
        put(&b, TEXT("PK\5\6\0\0\0\0\1\0\1\0"));
        put_int(&b, end - begin, 4);
        put_int(&b, begin, 4);
        put_int(&b, 0, 2);
        if (wrong) {
            refuses("is not within the archive", b);
        } else {
            assert_int_equal(tensors_in(b.p, b.n), 0);
            free(b.p);
        }
    }
}

static void bad_archives_are_refused(void **state)
{
    (void)state;
    static const char good[] = ONE(TENSOR);
    const member pickle = {.name = "a/data.pkl", .data = good, .size = sizeof good - 1};
    const member data = {.name = "a/data/0", .data = storage, .size = sizeof storage};
    member changed = data, other = {.name = "a/byteorder", .data = "big", .size = 3};
    bytes file = make_zip((member[]){pickle, data}, 2, 2);
    assert_int_equal(tensors_in(file.p, file.n), 1);
    for (size_t n = 0; n < file.n; n++)
        assert_int_equal(tensors_in(file.p, n), -1);
    refuses("would have 3 members", make_zip((member[]){pickle, data}, 2, 3));
    file.p[file.n - 22 - (46 + 8) + 1] = 0; /* the second entry of the directory */
    refuses("directory of members is damaged", file);
    refuses("not little-endian", make_zip((member[]){pickle, data, other}, 3, 3));
    other = (member){.name = "b/data.pkl", .data = good, .size = sizeof good - 1};
    refuses("two members data.pkl", make_zip((member[]){pickle, data, other}, 3, 3));
    refuses("without data.pkl", make_zip(&data, 1, 1));
    refuses("have the same name", make_zip((member[]){pickle, data, data}, 3, 3));
    changed.method = 8;
    refuses("'a/data/0' is compressed", make_zip((member[]){pickle, changed}, 2, 2));
    changed = data;
    changed.flags = 1;
    refuses("'a/data/0' is encrypted", make_zip((member[]){pickle, changed}, 2, 2));
    changed = data;
    changed.full_size = 25;
    refuses("two sizes differ", make_zip((member[]){pickle, changed}, 2, 2));
    changed = data;
    changed.local_name = "a/data/1";
    refuses("'a/data/0' of 24 bytes at byte", make_zip((member[]){pickle, changed}, 2, 2));
    changed = data;
    changed.at = 5;
    refuses("is not within the archive", make_zip((member[]){pickle, changed}, 2, 2));
    changed.at = 1 << 30;
    refuses("is not within the archive", make_zip((member[]){pickle, changed}, 2, 2));
}

/* Append an entry of the directory. */
static void put_entry(bytes *b, const char *name, uint64_t packed, uint64_t begin, const bytes *extra)
{
    put(b, TEXT("PK\1\2\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0"));
    put_int(b, packed, 4);
    put_int(b, packed, 4);
    put_int(b, strlen(name), 2);
    put_int(b, extra->n, 2);
    put(b, TEXT("\0\0\0\0\0\0\0\0\0\0"));
    put_int(b, begin, 4);
    put_text(b, name);
    put(b, extra->p, extra->n);
}

/* A zip64 field has only the numbers that do not fit, and a number that it lacks stays as it is. */
static void zip64_fields_have_only_what_does_not_fit(void **state)
{
    static const char pickle[] = PROTOCOL "}.", name[] = "a/data.pkl";
    enum { WHOLE, CUT, FAR, LATE, CASES };
    (void)state;
    for (int c = 0; c < CASES; c++) {
        bytes b = {0}, extra = {0};
        put(&b, TEXT("PK\3\4\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\xa\0\0\0"));
        put_text(&b, name);
        put(&b, pickle, sizeof pickle - 1);
        const size_t directory = b.n;
        put_int(&extra, 1, 2);
        put_int(&extra, c == CUT ? 4 : 8, 2);
        put_int(&extra, c == LATE ? directory - 10 : 0, c == CUT ? 4 : 8);
        put_entry(&b, name, c == FAR ? 1000 : sizeof pickle - 1, UINT32_MAX, &extra);
        const size_t end = b.n;
        put(&b, TEXT("PK\5\6\0\0\0\0\1\0\1\0"));
        put_int(&b, end - directory, 4);
        put_int(&b, directory, 4);
        put_int(&b, 0, 2);
        free(extra.p);
        if (c != WHOLE) {
            refuses(c == CUT   ? "of 4 bytes at byte 4294967295 is not within the archive"
                    : c == FAR ? "of 1000 bytes at byte 0 is not within the archive"
                               : "is not within the archive",
                    b);
            continue;
        }
        assert_int_equal(tensors_in(b.p, b.n), 0);
        free(b.p);
    }
}

/* The records at the end of an archive: no members at all, and a zip64 record that does not fit before its locator. */
static void ends_of_archives_are_checked(void **state)
{
    (void)state;
    bytes b = {0};
    put(&b, TEXT("PK\5\6\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0"));
    io_zip_list list;
    char why[IO_WHY_MAX];
    assert_int_equal(io_zip_members(b.p, b.n, &list, why), IO_OK);
    assert_true(list.n == 0 && io_zip_find(&list, "a", 1) == NULL);
    free(list.members);
    refuses("without data.pkl", b);
    for (int n = 0; n < 3; n++) { /* too short; not there; not at this byte */
        b = (bytes){0};
        put(&b, (char[80]){0}, n == 0 ? 30 : 80);
        put(&b, TEXT("PK\6\7\0\0\0\0"));
        put_int(&b, n == 1 ? 25 : n == 2 ? 24 : 0, 8);
        put_int(&b, 1, 4);
        put(&b, TEXT("PK\5\6\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0"));
        refuses(n == 0 ? "its zip64 record is not at byte 0" : n == 1 ? "is not at byte 25" : "is not at byte 24", b);
    }
}

/* Every byte of a file of PyTorch may be changed: the file is refused, or every tensor lies within it. */
static void damaged_bytes_do_no_harm(void **state)
{
    (void)state;
    bytes file = load_file(RELPOS_TEST_DATA "/torch_nested.pt");
    int refused = 0;
    for (size_t at = 0; at < file.n; at++)
        for (int k = 0; k < 4; k++) {
            static const unsigned char masks[] = {1, 0x10, 0x80, 0xff};
            io_set set = {0};
            file.p[at] ^= masks[k];
            if (io_torch_in_place("x", file.p, file.n, &set, err) != IO_OK)
                refused++;
            for (size_t n = 0; n < set.n_arrays; n++) {
                const io_array *a = &set.arrays[n];
                if (a->data != NULL)
                    assert_true((unsigned char *)a->data >= file.p &&
                                (unsigned char *)a->data + a->bytes <= file.p + file.n);
            }
            io_free(&set);
            file.p[at] ^= masks[k];
        }
    print_message("%zu bytes, each changed 4 times: %d refused\n", file.n, refused);
    free(file.p);
}

static void lack_of_memory_is_not_damage(void **state)
{
    (void)state;
    bytes file = load_file(RELPOS_TEST_DATA "/torch.pt");
    for (int ever = 0; ever < 2; ever++) {
        long n = 1, count;
        do {
            io_set set = {0};
            starve(n, ever);
            const io_status status = io_torch_in_place("x", file.p, file.n, &set, err);
            count = starve_end();
            if (status != IO_OK && strstr(err, "out of memory") == NULL)
                fail_msg("allocation %ld: %s", n, err);
            io_free(&set);
        } while (count >= n++);
        assert_true(!STARVES || n > 50);
    }
    free(file.p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_type_is_read),
        cmocka_unit_test(a_training_checkpoint_has_its_state_dict),
        cmocka_unit_test(bad_pickles_are_refused),
        cmocka_unit_test(arguments_of_the_wrong_kind_are_refused),
        cmocka_unit_test(good_pickles_are_read),
        cmocka_unit_test(unusual_pickles_are_read),
        cmocka_unit_test(long_notes_are_cut),
        cmocka_unit_test(formats_are_seen_in_the_first_bytes),
        cmocka_unit_test(enormous_pickles_are_refused),
        cmocka_unit_test(sharing_is_limited),
        cmocka_unit_test(zip64_fields_are_read),
        cmocka_unit_test(zip64_fields_have_only_what_does_not_fit),
        cmocka_unit_test(ends_of_archives_are_checked),
        cmocka_unit_test(bad_archives_are_refused),
        cmocka_unit_test(members_are_named),
        cmocka_unit_test(damaged_bytes_do_no_harm),
        cmocka_unit_test(lack_of_memory_is_not_damage),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
