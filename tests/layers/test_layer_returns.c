/* test_layer_returns.c -- get each error of functions in layers.h that other tests do not get, for the comparison with
 * their Returns paragraphs (tests/returns.h).
 * SPDX-License-Identifier: Apache-2.0 */
#include "tests/layers/layer_checks.h"
#include "tests/starve.h"

#define GETS(want, call)                                                                                               \
    do {                                                                                                               \
        const rp_status got_ = call;                                                                                   \
        if (got_ != (want))                                                                                            \
            fail_msg("%s: %s (\"%s\"), not %s", #call, rp_status_name(got_), rp_layer_last_error(),                    \
                     rp_status_name(want));                                                                            \
    } while (0)

static float numbers[256], more[256];
static int32_t labels[64];

/* Return a contiguous array of two to four axes; axes of length 0 at the end are left out. */
static rp_array array(void *data, rp_dtype dtype, int64_t a, int64_t b, int64_t c, int64_t d)
{
    const int64_t shape[4] = {a, b, c, d};
    return rp_array_of(data, dtype, d ? 4 : c ? 3 : 2, shape);
}

/* Return the array with one stride changed. */
static rp_array strided(rp_array a, int32_t axis, int64_t stride)
{
    a.stride[axis] = stride;
    return a;
}

#define LONG ((int64_t)1 << 61)

static void images(void **state)
{
    (void)state;
    const rp_array image = array(numbers, RP_F32, 1, 1, 4, 4), cut = array(more, RP_F32, 1, 4, 4, 0),
                   same = array(numbers, RP_F32, 1, 4, 4, 0), loose = strided(cut, 1, 5);
    GETS(RP_OK, rp_patches(&image, 2, &cut));
    GETS(RP_E_SHAPE, rp_patches_back(&cut, 3, &image));
    GETS(RP_E_STRIDE, rp_patches_back(&loose, 2, &image));
    GETS(RP_E_OVERLAP, rp_patches_back(&same, 2, &image));
}

static void tables(void **state)
{
    (void)state;
    const rp_array table = array(numbers, RP_F32, 4, 3, 0, 0), resized = array(more, RP_F32, 9, 3, 0, 0),
                   loose = strided(table, 0, 4), same = array(numbers, RP_F32, 9, 3, 0, 0),
                   wide = array(numbers, RP_F32, 4, LONG, 0, 0), wider = array(more, RP_F32, 9, LONG, 0, 0);
    GETS(RP_OK, rp_resize_table(&table, 2, 2, 0, RP_BILINEAR, &resized, 3, 3));
    GETS(RP_E_STRIDE, rp_resize_table(&loose, 2, 2, 0, RP_BILINEAR, &resized, 3, 3));
    GETS(RP_E_OVERFLOW, rp_resize_table(&wide, 2, 2, 0, RP_BILINEAR, &wider, 3, 3));
    GETS(RP_E_RANGE, rp_resize_table_back(&resized, 3, 3, -1, RP_BILINEAR, &table, 2, 2));
    GETS(RP_E_STRIDE, rp_resize_table_back(&resized, 3, 3, 0, RP_BILINEAR, &loose, 2, 2));
    GETS(RP_E_OVERLAP, rp_resize_table_back(&same, 3, 3, 0, RP_BILINEAR, &table, 2, 2));
    GETS(RP_E_OVERFLOW, rp_resize_table_back(&wider, 3, 3, 0, RP_BILINEAR, &wide, 2, 2));
}

static void windows(void **state)
{
    (void)state;
    const rp_windows of = {4, 4, 2, 2, 0, 0}, shifted = {4, 4, 2, 2, 2, 0};
    const rp_array grids = array(numbers, RP_F32, 1, 4, 4, 2), cut = array(more, RP_F32, 4, 4, 2, 0),
                   loose = strided(cut, 1, 3), same = array(numbers, RP_F32, 4, 4, 2, 0),
                   label = array(labels, RP_I32, 4, 4, 0, 0), gaps = strided(label, 0, 5),
                   many = array(labels, RP_I32, LONG, 4, 0, 0);
    GETS(RP_OK, rp_window_partition(&grids, &of, &cut));
    GETS(RP_E_STRIDE, rp_window_partition(&grids, &of, &loose));
    GETS(RP_E_OVERLAP, rp_window_partition(&grids, &of, &same));
    GETS(RP_E_RANGE, rp_window_reverse(&cut, &shifted, &grids));
    GETS(RP_E_STRIDE, rp_window_reverse(&loose, &of, &grids));
    GETS(RP_E_OVERLAP, rp_window_reverse(&same, &of, &grids));
    GETS(RP_E_RANGE, rp_window_labels(&shifted, &label));
    GETS(RP_E_STRIDE, rp_window_labels(&of, &gaps));
    GETS(RP_E_OVERFLOW, rp_window_labels(&of, &many));
}

static void layers(void **state)
{
    (void)state;
    const rp_layer_desc d = rp_layer_t5_attention(8, 2, 8, 16, 1, 1);
    rp_layer *layer;
    rp_layer_saved *saved;
    GETS(RP_OK, rp_layer_create(&layer, &d));
    rp_layer_call call = rp_layer_call_init();
    call.query = array(numbers, RP_F32, 1, 3, 8, 0);
    call.out = array(more, RP_F32, 1, 3, 8, 0);
    GETS(RP_OK, rp_layer_forward(layer, &call, &saved));
    rp_layer_grads g = rp_layer_grads_init();
    g.dout = array(more, RP_F32, 1, 3, 8, 0);
    call.q_offset = LONG;
    GETS(RP_E_RANGE, rp_layer_backward(layer, &call, saved, &g));
    call.q_offset = 0;
    call.query.shape[0] = call.out.shape[0] = LONG;
    GETS(RP_E_OVERFLOW, rp_layer_backward(layer, &call, saved, &g));
    rp_layer_saved_free(saved);
    const rp_array bias = array(numbers, RP_F32, 1, 2, 3, 3), loose = strided(bias, 2, 4),
                   large = array(numbers, RP_F32, 1, 2, LONG, 3);
    GETS(RP_OK, rp_layer_biases(layer, 0, &bias));
    GETS(RP_E_STRIDE, rp_layer_biases(layer, 0, &loose));
    GETS(RP_E_OVERFLOW, rp_layer_biases(layer, 0, &large));
    rp_status status = RP_E_NOMEM;
    for (long n = 1; STARVES && status != RP_OK; n++) {
        starve(n, false);
        status = rp_layer_biases(layer, 0, &bias);
        starve_end();
        if (status != RP_OK)
            assert_int_equal(status, RP_E_NOMEM);
    }
    rp_layer_destroy(layer);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(images), cmocka_unit_test(tables), cmocka_unit_test(windows),
                                       cmocka_unit_test(layers)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
