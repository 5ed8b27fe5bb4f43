/* test_weights.c -- weights of a small model (models/checkpoint/weights.h): stacked arrays, tensors that the model does
 * not need, tensors that must be equal, and packed files.
 * SPDX-License-Identifier: Apache-2.0 */
#include "checkpoint/error.h"
#include "checkpoint/weights.h"
#include "tests/io/files.h"

enum { ROWS = 21, COLUMNS = 7 };

/* A layer with q, k and v in one matrix, whose biases follow each other, and an array with two axes of two tensors. */
typedef struct layer {
    linear_weights qkv;
    const float *bias, *table;
} layer;

static rp_status walk(void *model, model_visitor *visit, void *context)
{
    layer *l = model;
    const model_part parts[] = {
        {"qkv", {"q", "k", "v"}, 3, ROWS, COLUMNS, 0, &l->qkv, NULL, LINEAR_F32},
        {"bias", {"q.bias", "k.bias", "v.bias"}, 3, ROWS, 0, 0, NULL, &l->bias, LINEAR_F32},
        {"table", {"upper", "lower"}, 2, 2, COLUMNS, 0, NULL, &l->table, LINEAR_F32},
    };
    rp_status status = RP_OK;
    for (size_t n = 0; n < sizeof parts / sizeof *parts && status == RP_OK; n++)
        status = visit(context, &parts[n]);
    return status;
}

/* The tensors of the model. Number i of tensor n is 1000 n + i. */
static const struct {
    const char *name;
    int ndim;
    int64_t rows, columns;
} tensors[] = {{"q", 2, ROWS, COLUMNS}, {"k", 2, ROWS, COLUMNS}, {"v", 2, ROWS, COLUMNS},  {"q.bias", 1, ROWS, 1},
               {"k.bias", 1, ROWS, 1},  {"v.bias", 1, ROWS, 1},  {"upper", 2, 2, COLUMNS}, {"lower", 2, 2, COLUMNS}};
enum { TENSORS = sizeof tensors / sizeof *tensors };

static float numbers[TENSORS][ROWS * COLUMNS];

/* Open a file with these tensors, without the one named `without`, and with one more that is named `more`. */
static io_checkpoint *open_tensors(const char *without, const char *more, float *data)
{
    io_set set = {0};
    io_checkpoint *file;
    for (int n = 0; n < TENSORS; n++) {
        for (int i = 0; i < ROWS * COLUMNS; i++)
            numbers[n][i] = (float)(1000 * n + i);
        if (without == NULL || strcmp(without, tensors[n].name) != 0)
            assert_int_equal(io_add(&set, tensors[n].name, RP_F32, tensors[n].ndim,
                                    (int64_t[]){tensors[n].rows, tensors[n].columns}, numbers[n], true),
                             0);
    }
    if (more != NULL)
        assert_int_equal(io_add(&set, more, RP_F32, 2, (int64_t[]){ROWS, COLUMNS}, data, true), 0);
    assert_int_equal(io_write(in_dir("model.safetensors"), IO_SAFETENSORS, &set, err), 0);
    io_free(&set);
    assert_int_equal(io_checkpoint_open(&file, in_dir("model.safetensors"), err), 0);
    return file;
}

static void check_layer(const layer *l)
{
    for (int n = 0; n < 3; n++)
        for (int i = 0; i < ROWS; i++)
            assert_true(l->bias[n * ROWS + i] == numbers[n + 3][i]);
    for (int n = 0; n < 2; n++)
        for (int i = 0; i < 2 * COLUMNS; i++)
            assert_true(l->table[n * 2 * COLUMNS + i] == numbers[n + 6][i]);
    assert_true(l->qkv.in == COLUMNS && l->qkv.out == 3 * ROWS && l->qkv.type == LINEAR_F32);
    for (int n = 0; n < 3; n++)
        for (int r = 0; r < ROWS; r++) {
            float row[COLUMNS];
            linear_row(&l->qkv, n * ROWS + r, row);
            assert_memory_equal(row, numbers[n] + r * COLUMNS, sizeof row);
        }
}

static void stacked_arrays_are_packed_and_mapped(void **state)
{
    (void)state;
    io_checkpoint *file = open_tensors(NULL, NULL, NULL);
    const model_source from = {.file = file, .path = "m", .advice = ""};
    model_store sizes = {0}, packed = {0}, mapped = {0};
    layer a = {0}, b = {0};
    io_set set = {0};
    linear_type type;
    assert_int_equal(model_type_of(file, NULL), LINEAR_F32);
    assert_int_equal(model_pack(&sizes, &from, walk, &b, true, NULL), RP_OK);
    assert_null(sizes.memory);
    assert_int_equal(model_pack(&packed, &from, walk, &a, false, NULL), RP_OK);
    assert_true(packed.bytes == sizes.bytes && packed.not_finite == 0);
    check_layer(&a);
    assert_int_equal(model_list(walk, &a, &set), RP_OK);
    assert_int_equal(io_add_meta(&set, "type", "f32"), 0);
    assert_int_equal(io_write(in_dir("packed"), IO_SAFETENSORS, &set, err), 0);
    io_free(&set);
    io_checkpoint_close(file);
    assert_int_equal(io_checkpoint_open(&file, in_dir("packed"), err), 0);
    assert_int_equal(model_packed_type(file, "p", &type), RP_OK);
    assert_int_equal(type, LINEAR_F32);
    assert_int_equal(model_map(&mapped, file, "p", walk, &b), RP_OK);
    assert_true(mapped.bytes == packed.bytes && mapped.memory == NULL);
    check_layer(&b);
    io_checkpoint_close(file);
    model_store_free(&sizes);
    model_store_free(&packed);
    model_store_free(&mapped);
}

/* Pack a file of open_tensors, and expect success, or an error with this message. */
static void expect(const char *without, const char *more, float *data, model_source from, const char *message)
{
    io_checkpoint *file = open_tensors(without, more, data);
    model_store s = {0};
    layer l = {0};
    from.file = file;
    from.path = "m";
    from.advice = " (mend it)";
    assert_true((model_pack(&s, &from, walk, &l, false, NULL) == RP_OK) == (message == NULL));
    if (message != NULL)
        assert_string_equal(model_error(), message);
    model_store_free(&s);
    io_checkpoint_close(file);
}

static bool is_position(const void *model, const char *name)
{
    (void)model;
    return strcmp(name, "positions") == 0;
}

static void other_tensors_are_errors_unless_stray(void **state)
{
    (void)state;
    const model_source plain = {0}, with = {.stray = is_position};
    expect(NULL, NULL, NULL, plain, NULL);
    expect(NULL, "positions", numbers[0], plain, "m: tensor 'positions' is not in the model (mend it)");
    expect(NULL, "positions", numbers[0], with, NULL);
    expect("k.bias", "other", numbers[0], with,
           "m: tensor 'k.bias' is missing; tensor 'other' is not in the model (mend it)");
}

static void equal_tensors_are_compared(void **state)
{
    (void)state;
    static const char *const names[] = {"absent", "k", "copy"};
    const model_source from = {.equal = names, .n_equal = 3, .why_equal = "they are one"};
    float other[ROWS * COLUMNS];
    expect(NULL, "copy", numbers[1], from, NULL);
    memcpy(other, numbers[1], sizeof other);
    other[ROWS * COLUMNS - 1]++;
    expect(NULL, "copy", other, from, "m: tensor 'copy' differs from 'k' (they are one)");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(stacked_arrays_are_packed_and_mapped),
        cmocka_unit_test(other_tensors_are_errors_unless_stray),
        cmocka_unit_test(equal_tensors_are_compared),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
