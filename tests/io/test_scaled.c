/* test_scaled.c -- scales of 8-bit floats: which tensors and formats are understood, and why others are refused.
 * SPDX-License-Identifier: Apache-2.0 */
#include "io/scaled.h"
#include "tests/io/files.h"
#include "tests/starve.h"

enum { ROWS = 4, COLUMNS = 6, MOST = 5 };

static const float numbers[24] = {2, 0.5, 4, 8, 16, 32, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2};
static const float zero[1] = {0}, huge[1] = {1e38F};
static const double wide[1] = {0.25};
static const uint16_t half[1] = {0x3400}; /* 0.25 */

/* A tensor beside the weight "l.weight". */
typedef struct beside {
    const char *name, *json; /* json: its bytes; NULL: `data` */
    rp_dtype dtype;
    int32_t ndim;
    int64_t shape[3];
    const void *data;
} beside;

typedef struct scaled_case {
    rp_dtype dtype; /* of the weight */
    int32_t ndim;
    const char *metadata;
    beside other[3];
    const char *why; /* NULL: it is not refused, and element `at` is multiplied by `scale` */
    int64_t at;
    double scale;
} scaled_case;

#define E4M3         IO_F8_E4M3, 2
#define NUMBERS(...) RP_F32, __VA_ARGS__, numbers
#define ONE                                                                                                            \
    {                                                                                                                  \
        "l.weight_scale", NULL, NUMBERS(0, {0})                                                                        \
    }
#define QUANT(text)                                                                                                    \
    {                                                                                                                  \
        "l.comfy_quant", text, RP_U8, 1, {0}, NULL                                                                     \
    }
#define NO_OTHER                                                                                                       \
    {                                                                                                                  \
        NULL, NULL, NUMBERS(0, {0})                                                                                    \
    }
#define NO_SHAPE "the shape of its scale is neither one number, nor one a row, nor one a block"

static const scaled_case cases[] = {
    {E4M3, NULL, {ONE}, NULL, 23, 2},
    {IO_F8_E5M2, 2, NULL, {ONE}, NULL, 7, 2},
    {IO_F8_E4M3, 1, NULL, {ONE}, NULL, 3, 2},
    {IO_F8_E4M3, 0, NULL, {ONE}, NULL, 0, 2},
    {E4M3, NULL, {{"l.scale_weight", NULL, NUMBERS(1, {1})}, {"l.input_scale", NULL, NUMBERS(0, {0})}}, NULL, 23, 2},
    {E4M3, NULL, {{"l.weight_scale", NULL, RP_F64, 0, {0}, wide}}, NULL, 5, 0.25},
    {E4M3, NULL, {{"l.weight_scale", NULL, RP_F16, 0, {0}, half}}, NULL, 5, 0.25},
    {E4M3, NULL, {{"l.weight_scale", NULL, RP_BF16, 0, {0}, half}}, NULL, 5, 0x1p-23},
    {E4M3, NULL, {{"l.weight_scale", NULL, NUMBERS(1, {4})}}, NULL, 6, 0.5},    /* one a row */
    {E4M3, NULL, {{"l.weight_scale", NULL, NUMBERS(2, {4, 1})}}, NULL, 12, 4},  /* one a row */
    {E4M3, NULL, {{"l.weight_scale", NULL, NUMBERS(2, {2, 3})}}, NULL, 22, 32}, /* blocks of 2 x 2 */
    {E4M3, NULL, {{"l.weight_scale", NULL, NUMBERS(2, {2, 3})}}, NULL, 8, 0.5},
    {E4M3,
     NULL,
     {{"l.weight_scale", NULL, NUMBERS(2, {2, 2})},
      QUANT("{\"format\": \"float8_e4m3fn_blockwise\", "
            "\"group_size\": 3}")},
     NULL,
     23,
     8},
    {E4M3,
     NULL,
     {{"l.weight_scale", NULL, NUMBERS(2, {1, 2})},
      QUANT("{\"format\": \"float8_e4m3fn_blockwise\", "
            "\"params\": {\"group_size\": 4}, \"x\": false, \"y\": null}")},
     NULL,
     23,
     0.5}, /* the last block is smaller */
    {E4M3, NULL, {ONE, QUANT("{\"format\": \"float8_e4m3fn\", \"full_precision_matrix_mult\": true}")}, NULL, 0, 2},
    {E4M3, "{\"layers\": {\"l\": {\"format\": \"float8_e4m3fn\"}}}", {ONE}, NULL, 0, 2},
    {E4M3, "{\"layers\": {\"l\": \"float8_e4m3fn_rowwise\"}}", {ONE}, NULL, 0, 2},
    {E4M3, "{\"layers\": {}}", {ONE}, NULL, 0, 2},
    {RP_F16, 2, NULL, {NO_OTHER}, NULL, 0, 1}, /* without scales */
    {E4M3, NULL, {NO_OTHER}, NULL, 0, 1},
    /* refused */
    {E4M3, NULL, {{"l.weight_scale", NULL, NUMBERS(1, {3})}}, NO_SHAPE, 0, 0},
    {E4M3, NULL, {{"l.weight_scale", NULL, NUMBERS(1, {2})}}, NO_SHAPE, 0, 0},
    {E4M3, NULL, {{"l.weight_scale", NULL, NUMBERS(2, {3, 1})}}, NO_SHAPE, 0, 0},
    {E4M3, NULL, {{"l.weight_scale", NULL, NUMBERS(2, {4, 5})}}, NO_SHAPE, 0, 0},
    {E4M3, NULL, {{"l.weight_scale", NULL, NUMBERS(2, {0, 6})}}, NO_SHAPE, 0, 0},
    {E4M3, NULL, {{"l.weight_scale", NULL, NUMBERS(3, {2, 3, 2})}}, NO_SHAPE, 0, 0},
    {IO_F8_E4M3, 3, NULL, {ONE}, NO_SHAPE, 0, 0},
    {E4M3,
     NULL,
     {{"l.weight_scale", NULL, RP_U8, 0, {0}, numbers}},
     "its scale is not of the type F32, F16 or BF16",
     0,
     0},
    {E4M3, NULL, {{"l.weight_scale", NULL, RP_F32, 0, {0}, zero}}, "its scale has the value 0 (scales must be", 0, 0},
    {E4M3, NULL, {{"l.weight_scale", NULL, RP_F32, 0, {0}, huge}}, "its scale has the value 1e+38", 0, 0},
    {E4M3,
     NULL,
     {ONE, {"l.scale_weight", NULL, NUMBERS(0, {0})}},
     "it has two scales, weight_scale and scale_weight",
     0,
     0},
    {RP_F16, 2, NULL, {ONE}, "its weight_scale is for 8-bit floats, but its numbers have the type f16", 0, 0},
    {RP_F16, 2, NULL, {{"l.scale_weight", NULL, NUMBERS(0, {0})}}, "its scale_weight is for 8-bit floats", 0, 0},
    {E4M3, NULL, {QUANT("\"float8_e4m3fn\"")}, "its comfy_quant is not a JSON object", 0, 0},
    {E4M3, NULL, {QUANT("{\"format\": \"float8_e4m3fn\"}")}, "it has a comfy_quant, but no weight_scale", 0, 0},
    {E4M3, NULL, {ONE, QUANT("7")}, "its comfy_quant is not a JSON object", 0, 0},
    {E4M3, NULL, {ONE, QUANT("{")}, "its comfy_quant is not a JSON object", 0, 0},
    {E4M3, NULL, {ONE, {"l.comfy_quant", NULL, RP_F32, 0, {0}, numbers}}, "its comfy_quant is not a JSON object", 0, 0},
    {E4M3, NULL, {ONE, QUANT("{}")}, "its comfy_quant names no format", 0, 0},
    {E4M3, NULL, {ONE, QUANT("{\"format\": \"nvfp4\"}")}, "its format nvfp4 is not supported", 0, 0},
    {E4M3,
     NULL,
     {ONE, QUANT("{\"format\": \"float8_e5m2\"}")},
     "says float8_e5m2, but its numbers have another type",
     0,
     0},
    {E4M3,
     NULL,
     {ONE, QUANT("{\"format\": \"float8_e4m3fn\", \"hadamard\": 1}")},
     "its comfy_quant has the key hadamard, which is not supported",
     0,
     0},
    {E4M3,
     NULL,
     {ONE, QUANT("{\"format\": \"float8_e4m3fn\", \"rotation\": 1, \"zero\": 2}")},
     "its comfy_quant has the key rotation, which", /* the first reason stays */
     0,
     0},
    {E4M3, NULL, {ONE, {"l.comfy_quant", "{\"format\": \"float8_e4m3fn\"}", RP_I8, 1, {0}, NULL}}, NULL, 0, 2},
    {E4M3, "{\"layers\": {\"l\": {\"format\": \"int8\"}}}", {ONE}, "its format int8 is not supported", 0, 0},
    {E4M3, "{\"layers\": {\"l\": 7}}", {ONE}, "its format in _quantization_metadata is not a JSON object", 0, 0},
    {E4M3, NULL, {{"scaled_fp8", NULL, NUMBERS(1, {1})}}, "its file has scaled_fp8, but it has no weight_scale", 0, 0},
    {E4M3,
     NULL,
     {{"l.scaled_fp8", NULL, NUMBERS(1, {1})}},
     "its file has scaled_fp8, but it has no weight_scale",
     0,
     0},
};
enum { CASES = sizeof cases / sizeof *cases };

static int by_name(const void *a, const void *b)
{
    return strcmp(((const io_tensor *)a)->name, ((const io_tensor *)b)->name);
}

/* Write the tensors of a case, sorted by name. Return their number. */
static size_t list(const scaled_case *c, const char *weight, io_tensor tensors[MOST])
{
    static const int64_t shape[3] = {ROWS, COLUMNS, 1};
    size_t n = 0;
    tensors[n++] = (io_tensor){.name = weight, .dtype = c->dtype, .ndim = c->ndim, .shape = shape};
    tensors[n++] = (io_tensor){.name = "other", .dtype = RP_F32, .shape = shape};
    for (int k = 0; k < 3 && c->other[k].name != NULL; k++) {
        const beside *o = &c->other[k];
        tensors[n++] = (io_tensor){.name = o->name,
                                   .dtype = o->dtype,
                                   .ndim = o->ndim,
                                   .shape = o->shape,
                                   .data = o->json != NULL ? (const unsigned char *)o->json : o->data,
                                   .bytes = o->json != NULL ? strlen(o->json) : 0};
    }
    qsort(tensors, n, sizeof *tensors, by_name);
    return n;
}

static void check_case(const scaled_case *c, size_t k)
{
    io_tensor tensors[MOST];
    size_t n = list(c, "l.weight", tensors);
    io_scales *scales;
    if (io_scales_find(tensors, &n, c->metadata, &scales, "file", err) != IO_OK)
        fail_msg("case %zu: %s", k, err);
    assert_int_equal(n, 2); /* the scales are no longer in the list */
    const io_tensor *w = &tensors[0];
    assert_string_equal(w->name, "l.weight");
    if ((w->unsupported != NULL) != (c->why != NULL) || (c->why != NULL && strstr(w->unsupported, c->why) == NULL))
        fail_msg("case %zu: \"%s\" has no \"%s\"", k, w->unsupported, c->why);
    if (c->why == NULL) {
        float all[ROWS * COLUMNS], one = 1;
        for (int x = 0; x < ROWS * COLUMNS; x++)
            all[x] = 1;
        io_scales_apply(w, 0, c->ndim == 2 ? ROWS * COLUMNS : c->ndim == 1 ? ROWS : 1, all);
        io_scales_apply(w, c->at, 1, &one);
        if ((double)one != c->scale || (double)all[c->at] != c->scale)
            fail_msg("case %zu: element %d is multiplied by %g and %g", k, (int)c->at, (double)one, (double)all[c->at]);
    } else {
        assert_int_equal(w->dtype, IO_NO_DTYPE);
        assert_null(w->scales);
    }
    io_scales_free(scales);
}

static void scales_are_found_or_refused(void **state)
{
    (void)state;
    for (size_t k = 0; k < CASES; k++)
        check_case(&cases[k], k);
}

/* A mark with a prefix speaks of the layers with this prefix only. */
static void marks_have_prefixes(void **state)
{
    static const struct {
        const char *weight, *mark;
        bool refused;
    } marks[] = {{"a.b.weight", "a.scaled_fp8", true},
                 {"a.b.weight", "b.scaled_fp8", false},
                 {"a.b.c.weight", "a.b.scaled_fp8", true},
                 {"weight", "scaled_fp8", false}};
    (void)state;
    for (size_t k = 0; k < sizeof marks / sizeof *marks; k++) {
        const scaled_case c = {E4M3, NULL, {{marks[k].mark, NULL, NUMBERS(1, {1})}}, NULL, 0, 1};
        io_tensor tensors[MOST];
        size_t n = list(&c, marks[k].weight, tensors);
        io_scales *scales;
        assert_int_equal(io_scales_find(tensors, &n, NULL, &scales, "file", err), IO_OK);
        assert_int_equal(n, 2);
        const io_tensor *w = strcmp(tensors[0].name, "other") == 0 ? &tensors[1] : &tensors[0];
        assert_int_equal(w->unsupported != NULL, marks[k].refused);
        io_scales_free(scales);
    }
}

static void malformed_metadata_is_refused(void **state)
{
    static const char *const texts[] = {"", "{", "[]", "{}", "{\"layers\": 7}", "{\"layers\": {}, \"layers\": {}}"};
    (void)state;
    for (size_t k = 0; k < sizeof texts / sizeof *texts; k++) {
        io_tensor tensors[MOST];
        size_t n = list(&cases[0], "l.weight", tensors);
        io_scales *scales;
        assert_int_equal(io_scales_find(tensors, &n, texts[k], &scales, "file", err), IO_FAILED);
        assert_non_null(strstr(err, "file: its metadata _quantization_metadata is not a JSON object with layers"));
        io_scales_free(scales);
    }
}

static void every_allocation_may_fail(void **state)
{
    (void)state;
    if (!STARVES)
        skip();
    for (size_t k = 0; k < CASES; k++)
        for (long left = 1, more = 1; more; left++) {
            io_tensor tensors[MOST];
            size_t n = list(&cases[k], "l.weight", tensors);
            io_scales *scales;
            starve(left, true);
            const io_status status = io_scales_find(tensors, &n, cases[k].metadata, &scales, "file", err);
            more = starve_end() >= left;
            assert_int_equal(status, more ? IO_FAILED : IO_OK);
            if (more)
                assert_non_null(strstr(err, "file: out of memory"));
            io_scales_free(scales);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(scales_are_found_or_refused), cmocka_unit_test(marks_have_prefixes),
        cmocka_unit_test(malformed_metadata_is_refused), cmocka_unit_test(every_allocation_may_fail)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
