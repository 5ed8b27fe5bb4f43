/* test_scales.c -- scales of 8-bit floats (models/io/scaled.h): which shapes fit, and the products.
 * test_scaled.c tests the descriptions of formats.
 * SPDX-License-Identifier: Apache-2.0 */
#include "io/scaled.h"
#include "tests/io/files.h"

enum { WEIGHTS = 600 * 3, SCALES = 600 };

/* Tensors a.weight, a.weight_scale and, if given, a.comfy_quant, with scales 1, 2, 3, … */
typedef struct layer {
    unsigned char weights[WEIGHTS];
    float scales[SCALES];
    io_tensor t[4];
    size_t n;
    io_scales *made;
} layer;

static void find_scales(layer *l, int32_t ndim, const int64_t *shape, int32_t scale_ndim, const int64_t *scale_shape,
                        const char *quant)
{
    memset(l, 0, sizeof *l);
    for (int k = 0; k < SCALES; k++)
        l->scales[k] = (float)(k + 1);
    memset(l->weights, 0x38, sizeof l->weights); /* 1 */
    if (quant != NULL)
        l->t[l->n++] = (io_tensor){"a.comfy_quant", "f",  RP_U8, 1, &(int64_t){0}, (const unsigned char *)quant,
                                   strlen(quant),   NULL, NULL};
    l->t[l->n++] = (io_tensor){"a.weight", "f", IO_F8_E4M3, ndim, shape, l->weights, 0, NULL, NULL};
    l->t[l->n++] = (io_tensor){
        "a.weight_scale", "f", RP_F32, scale_ndim, scale_shape, (const unsigned char *)l->scales, 0, NULL, NULL};
    assert_int_equal(io_scales_find(l->t, &l->n, NULL, &l->made, "f", err), IO_OK);
    assert_int_equal(l->n, 1); /* the other tensors belong to the weight */
    assert_string_equal(l->t[0].name, "a.weight");
}

#define GROUP(N) "{\"format\":\"float8_e4m3fn_blockwise\",\"group_size\":" #N "}"

/* rows and columns: of a block; 0: the shapes do not fit */
static const struct {
    int32_t ndim;
    int64_t shape[3];
    int32_t scale_ndim;
    int64_t scale_shape[3];
    const char *quant;
    int64_t rows, columns;
} cases[] = {
    {0, {0}, 0, {0}, NULL, 1, 1},
    {1, {3}, 0, {0}, NULL, 3, 1},
    {1, {3}, 1, {1}, NULL, 3, 1},
    {1, {3}, 1, {3}, NULL, 1, 1},
    {1, {3}, 1, {2}, NULL, 0, 0},
    {1, {4}, 1, {2}, NULL, 0, 0}, /* one axis: one number, or one a row */
    {2, {4, 3}, 0, {0}, NULL, 4, 3},
    {2, {4, 3}, 2, {1, 1}, NULL, 4, 3},
    {2, {4, 3}, 1, {4}, NULL, 1, 3},
    {2, {4, 3}, 2, {4, 1}, NULL, 1, 3},
    {2, {4, 3}, 2, {4, 3}, NULL, 1, 1},
    {2, {4, 3}, 2, {2, 1}, NULL, 0, 0},
    {2, {4, 3}, 2, {3, 1}, NULL, 0, 0},
    {2, {4, 3}, 2, {0, 3}, NULL, 0, 0},
    {2, {6, 4}, 2, {2, 2}, NULL, 3, 2},
    {2, {6, 4}, 2, {2, 4}, NULL, 3, 1},
    {2, {6, 4}, 2, {1, 2}, NULL, 6, 2},
    {2, {6, 4}, 2, {2, 3}, NULL, 0, 0},
    {2, {6, 4}, 3, {2, 2, 1}, NULL, 3, 2},
    {2, {6, 4}, 3, {2, 1, 2}, NULL, 0, 0},
    {3, {2, 2, 2}, 0, {0}, NULL, 0, 0},
    {2, {7, 5}, 2, {4, 3}, GROUP(2), 2, 2}, /* the last block is smaller */
    {2, {7, 5}, 2, {3, 3}, GROUP(2), 0, 0},
    {2, {7, 5}, 2, {4, 2}, GROUP(2), 0, 0},
    {2, {600, 3}, 2, {5, 1}, NULL, 0, 0},   /* blocks of 120 or of 128 */
    {2, {600, 3}, 2, {10, 1}, NULL, 0, 0},  /* blocks of 60 or of 64 */
    {2, {600, 3}, 2, {3, 1}, NULL, 0, 0},   /* blocks of 200 or of 256 */
    {2, {512, 3}, 2, {2, 3}, NULL, 256, 1}, /* blocks of 256 in both cases */
    {2, {600, 3}, 2, {50, 3}, NULL, 12, 1}, /* no other size fits */
    {2, {600, 3}, 2, {5, 3}, GROUP(128), 128, 1},
    {2, {600, 3}, 2, {5, 3}, GROUP(120), 120, 1},
    {2, {600, 3}, 2, {5, 3}, "{\"format\":\"float8_e4m3fn\",\"params\":{\"group_size\":128}}", 128, 1},
};

static void shapes_of_scales_decide_the_blocks(void **state)
{
    (void)state;
    for (size_t n = 0; n < sizeof cases / sizeof *cases; n++) {
        static layer l;
        find_scales(&l, cases[n].ndim, cases[n].ndim > 0 ? cases[n].shape : NULL, cases[n].scale_ndim,
                    cases[n].scale_ndim > 0 ? cases[n].scale_shape : NULL, cases[n].quant);
        const io_tensor *w = l.t;
        if (!w->scales != !cases[n].rows)
            fail_msg("case %zu: %s", n, w->scales ? "not refused" : w->unsupported);
        if (!w->scales) {
            assert_string_equal(w->unsupported, "the shape of its scale is neither one number, nor one a row, nor one "
                                                "a block");
            assert_int_equal(w->dtype, IO_NO_DTYPE);
            io_scales_free(l.made);
            continue;
        }
        const int64_t rows = w->ndim > 0 ? w->shape[0] : 1, columns = w->ndim > 1 ? w->shape[1] : 1;
        const int64_t across = (columns + cases[n].columns - 1) / cases[n].columns;
        for (int64_t first = 0; first < rows * columns; first += 5) { /* any part of the weight */
            float x[WEIGHTS];
            const int64_t count = rows * columns - first < 11 ? rows * columns - first : 11;
            for (int64_t k = 0; k < count; k++)
                x[k] = 2;
            io_scales_apply(w, first, count, x);
            for (int64_t k = 0; k < count; k++) {
                const int64_t row = (first + k) / columns / cases[n].rows, column = (first + k) % columns;
                const float wanted = (float)(2 * (row * across + column / cases[n].columns + 1));
                if (x[k] != wanted)
                    fail_msg("case %zu: element %lld of %lld: %g: %g", n, (long long)(first + k),
                             (long long)(rows * columns), (double)x[k], (double)wanted);
            }
        }
        io_scales_free(l.made);
    }
}

/* Scales of other types, and numbers that are no scales: 57344 times the scale must be finite. */
static void only_positive_finite_scales_are_used(void **state)
{
    static const struct {
        double scale;
        const char *shown;
    } bad[] = {{0, "0"}, {-1, "-1"}, {NAN, "nan"}, {HUGE_VAL, "inf"}, {1e34, "1e+34"}};
    static const rp_dtype types[] = {RP_F32, RP_F64, RP_F16, RP_BF16};
    static layer l;
    (void)state;
    for (size_t n = 0; n < sizeof types / sizeof *types; n++) {
        const double values[2] = {0.5, 3};
        _Alignas(double) unsigned char converted[2 * 8], stored[1 + 2 * 8];
        assert_int_equal(rp_convert(converted, types[n], values, RP_F64, 2), RP_OK);
        memcpy(stored + 1, converted, sizeof converted); /* tensors in a file may be unaligned */
        io_tensor t[2] = {{"a.weight", "f", IO_F8_E5M2, 1, (int64_t[]){2}, stored, 2, NULL, NULL},
                          {"a.weight_scale", "f", types[n], 1, (int64_t[]){2}, stored + 1, 0, NULL, NULL}};
        float x[2] = {1, 1};
        l.n = 2;
        assert_int_equal(io_scales_find(t, &l.n, NULL, &l.made, "f", err), IO_OK);
        assert_non_null(t[0].scales);
        io_scales_apply(t, 0, 2, x);
        assert_true(x[0] == 0.5F && x[1] == 3);
        io_scales_free(l.made);
    }
    for (size_t n = 0; n < sizeof bad / sizeof *bad; n++) {
        const float scales[2] = {1, (float)bad[n].scale};
        io_tensor t[2] = {
            {"a.scale_weight", "f", RP_F32, 1, (int64_t[]){2}, (const unsigned char *)scales, 0, NULL, NULL},
            {"a.weight", "f", IO_F8_E4M3, 1, (int64_t[]){2}, (const unsigned char *)scales, 0, NULL, NULL}};
        char text[100];
        l.n = 2;
        assert_int_equal(io_scales_find(t, &l.n, NULL, &l.made, "f", err), IO_OK);
        snprintf(text, sizeof text, "its scale has the value %s (", bad[n].shown);
        assert_null(t[0].scales);
        assert_memory_equal(t[0].unsupported, text, strlen(text));
        io_scales_free(l.made);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shapes_of_scales_decide_the_blocks),
        cmocka_unit_test(only_positive_finite_scales_are_used),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
