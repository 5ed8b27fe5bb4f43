/* test_arguments.c -- wrong arguments of a call: each mistake returns its status and an error that names it, and
 * nothing is written.
 * SPDX-License-Identifier: Apache-2.0 */
#include "tests/api/refusals.h"

static void no_loop(void *context, int32_t count, rp_work *work, void *data)
{
    (void)context, (void)count, (void)work, (void)data;
}

static void null_pointers_are_named(void **state)
{
    rp_desc d = rp_desc_init(1, 2, 3, 4, 5);
    rp_plan *plan;
    rp_tensors t = rp_tensors_init();
    rp_term term;
    rp_row row = {0};
    rp_pool *pool;
    int32_t ndim;
    int64_t shape[RP_MAX_AXES];
    double flops;
    char names[RP_MAX_ARRAYS][RP_NAME_MAX];
    rp_array a = {0};
    (void)state;
    said(rp_plan_create(NULL, &d), RP_E_ARG, "plan", "NULL");
    said(rp_plan_create(&plan, NULL), RP_E_ARG, "desc", "NULL");
    assert_null(plan);
    rp_plan_destroy(NULL);
    rp_pool_destroy(NULL);
    good(rp_plan_create(&plan, &d));
    said(rp_attend(NULL, &t, NULL), RP_E_ARG, "plan", "NULL");
    said(rp_attend(plan, NULL, NULL), RP_E_ARG, "tensors", "NULL");
    said(rp_attend_row(NULL, &t, 0, 0, 0, &row), RP_E_ARG, "plan", "NULL");
    said(rp_attend_row(plan, NULL, 0, 0, 0, &row), RP_E_ARG, "tensors", "NULL");
    said(rp_bias(NULL, &t, 0, &a), RP_E_ARG, "plan", "NULL");
    said(rp_bias(plan, NULL, 0, &a), RP_E_ARG, "tensors", "NULL");
    said(rp_bias(plan, &t, 0, NULL), RP_E_ARG, "bias", "NULL");
    said(rp_bias(plan, &t, 0, &a), RP_E_ARG, "bias", "NULL");
    said(rp_error_bound(NULL, &t, &a), RP_E_ARG, "plan", "NULL");
    said(rp_error_bound(plan, NULL, &a), RP_E_ARG, "tensors", "NULL");
    assert_int_equal(rp_plan_work_size(NULL, NULL), 0);
    said(RP_E_ARG, RP_E_ARG, "plan", "NULL");
    assert_true(rp_plan_work_size(plan, NULL) > 0);
    said(rp_pool_create(NULL, 1), RP_E_ARG, "pool", "NULL");
    said(rp_pool_create(&pool, -1), RP_E_RANGE, "threads", "-1");
    assert_null(pool);
    good(rp_pool_create(&pool, 0)); /* a thread for each processor */
    rp_pool_destroy(pool);
    said(rp_pool_create(&pool, 4097), RP_E_RANGE, "threads", "4097");
    said(rp_pool_from(&pool, NULL, NULL, 1), RP_E_ARG, "parallel", "NULL");
    said(rp_pool_from(NULL, no_loop, NULL, 1), RP_E_ARG, "pool", "NULL");
    said(rp_pool_from(&pool, no_loop, NULL, 4097), RP_E_RANGE, "threads", "4097");
    assert_null(pool);
    said(rp_term_shape(NULL, 0, 0, &ndim, shape), RP_E_ARG, "desc", "NULL");
    said(rp_term_shape(&d, 0, 0, NULL, shape), RP_E_ARG, "ndim", "NULL");
    said(rp_term_shape(&d, 0, 0, &ndim, NULL), RP_E_ARG, "shape", "NULL");
    said(rp_term_shape(&d, 0, 0, &ndim, shape), RP_E_ARG, "term", "0");
    said(rp_term_shape(&d, -1, 0, &ndim, shape), RP_E_ARG, "term", "-1");
    said(rp_mask_shape(NULL, 0, &ndim, shape), RP_E_ARG, "desc", "NULL");
    said(rp_mask_shape(&d, 0, NULL, shape), RP_E_ARG, "ndim", "NULL");
    said(rp_mask_shape(&d, 0, &ndim, NULL), RP_E_ARG, "shape", "NULL");
    said(rp_mask_shape(&d, 0, &ndim, shape), RP_E_ARG, "mask", "0");
    said(rp_term_parse(NULL, &term, names), RP_E_ARG, "text", "NULL");
    said(rp_term_parse("rope", NULL, names), RP_E_ARG, "term", "NULL");
    said(rp_term_parse("rope", &term, NULL), RP_E_ARG, "names", "NULL");
    said(rp_measure_peak(NULL, NULL, NULL), RP_E_ARG, "gflops", "NULL");
    said(rp_measure_peak("reference", NULL, &flops), RP_E_ARG, "isa", "reference");
    flops = 7;
    said(rp_measure_peak("mmx", NULL, &flops), RP_E_ARG, "isa", "mmx");
    assert_true(flops == 0);
    said(rp_measure_bandwidth(NULL, NULL), RP_E_ARG, "bytes_per_second", "NULL");
    said(rp_measure_tile_peak(NULL, NULL), RP_E_ARG, "gflops", "NULL");
    if (rp_isa_found("amx") == 1) {
        assert_int_equal(rp_measure_tile_peak(NULL, &flops), RP_OK);
        assert_true(flops > 1);
    } else {
        flops = 7;
        said(rp_measure_tile_peak(NULL, &flops), RP_E_UNSUPPORTED, "isa", "amx");
        assert_true(flops == 0);
    }
    assert_int_equal(rp_isa_found(NULL), -1);
    rp_plan_destroy(plan);
}

/* ------------------------------------------------------------------------------------------------ arrays */

static const char *const slip_text = EVERY_FORM;

static void absent_arrays_are_named(void **state)
{
    (void)state;
    SLIP(t->size--, RP_E_ARG, "size", NULL);
    SLIP(t->size = 0, RP_E_ARG, "size", NULL);
    SLIP(t->q.data = NULL, RP_E_ARG, "q is missing", "pass");
    SLIP(t->k.data = NULL, RP_E_ARG, "k is missing", "pass");
    SLIP(t->v.data = NULL, RP_E_ARG, "v is missing", "pass");
    SLIP(t->term[0][0].data = NULL, RP_E_ARG, "term[0].table", "missing");
    SLIP(t->term[2][0].data = NULL, RP_E_ARG, "term[2].table", "relkey");
    SLIP(t->mask[1].data = NULL, RP_E_ARG, "mask[1]", "missing");
    SLIP((t->out.data = t->lse.data = t->weights.data = t->profile.data = t->key_mass.data = t->entropy.data = NULL),
         RP_E_ARG, "output", NULL);
}

/* The arrays that all calls have. */
static const struct {
    const char *name;
    size_t offset;
    int last_contiguous;
} all[] = {
    {"q:", offsetof(rp_tensors, q), 1},
    {"k:", offsetof(rp_tensors, k), 1},
    {"v:", offsetof(rp_tensors, v), 1},
    {"out:", offsetof(rp_tensors, out), 1},
    {"lse:", offsetof(rp_tensors, lse), 0},
    {"weights:", offsetof(rp_tensors, weights), 0},
    {"profile:", offsetof(rp_tensors, profile), 0},
    {"key_mass:", offsetof(rp_tensors, key_mass), 0},
    {"entropy:", offsetof(rp_tensors, entropy), 0},
};
enum { OUT = 3, ALL = sizeof all / sizeof *all }; /* all[OUT] is the first output */

#define ARRAY ((rp_array *)(void *)((char *)t + all[n].offset))

/* Change the type, axes, shape, strides and address of one array at a time. */
static void each_array_is_checked(void **state)
{
    (void)state;
    for (int n = 0; n < ALL; n++) {
        const char *name = all[n].name;
        EACH(int, x, RP_BOOL, RP_I32, RP_I64, 13, -1, 1 << 30)
        SLIP(ARRAY->dtype = (rp_dtype)x, RP_E_ARG, name, "dtype");
        EACH(int, x, -1, 0, 1, 2, 5, 1 << 30, INT32_MIN) SLIP(ARRAY->ndim = x, RP_E_SHAPE, name, NULL);
        for (int x = 0; x < 3; x++) {
            SLIP(ARRAY->shape[x]++, RP_E_SHAPE, name, "shape");
            SLIP(ARRAY->shape[x]--, RP_E_SHAPE, name, "shape");
            SLIP(ARRAY->shape[x] = 1, RP_E_SHAPE, name, "shape"); /* these arrays do not broadcast */
            SLIP(ARRAY->shape[x] = -1, RP_E_SHAPE, name, "shape");
            SLIP(ARRAY->shape[x] = INT64_MAX, RP_E_SHAPE, name, "shape");
        }
        SLIP(ARRAY->data = (char *)ARRAY->data + 1, RP_E_ARG, name, "address");
        SLIP(ARRAY->data = (char *)ARRAY->data + 2, RP_E_ARG, name, "address");
        EACH(int64_t, x, INT64_MIN, INT64_MAX, INT64_MAX / 4, -INT64_MAX)
        SLIP(ARRAY->stride[1] = x, RP_E_OVERFLOW, name, "stride");
        SLIP((ARRAY->stride[0] = INT64_MAX / 4 - 100, ARRAY->stride[1] = INT64_MAX / 16), RP_E_OVERFLOW, name,
             "stride");
        if (all[n].last_contiguous) { /* q, k, v and out must have the type of the description */
            EACH(int, x, RP_F16, RP_BF16) SLIP(ARRAY->dtype = (rp_dtype)x, RP_E_ARG, name, "dtype");
            SLIP((ARRAY->dtype = RP_F64, ARRAY->data = (void *)((uintptr_t)ARRAY->data & ~(uintptr_t)7)), RP_E_ARG,
                 name, "f64");
            EACH(int64_t, x, 0, 2, -1) SLIP(ARRAY->stride[3] = x, RP_E_STRIDE, name, "last axis");
        }
    }
}

/* The elements of an output must not overlap each other, an input or another output. */
static void outputs_overlap_nothing(void **state)
{
    (void)state;
    for (int n = OUT; n < ALL; n++) {
        const char *name = all[n].name;
        const int end = n == 3 || n == 5 ? 3 : 2;
        SLIP(ARRAY->stride[0] = 0, RP_E_STRIDE, name, "stride");
        SLIP(ARRAY->stride[1] = 0, RP_E_STRIDE, name, "stride");
        SLIP(ARRAY->stride[0] = ARRAY->stride[1], RP_E_STRIDE, name, "stride");
        SLIP(ARRAY->stride[0] = -ARRAY->stride[1], RP_E_STRIDE, name, "stride");
        SLIP(ARRAY->stride[end - 1] = ARRAY->stride[end - 1] / ARRAY->shape[end] * (ARRAY->shape[end] - 1), RP_E_STRIDE,
             name, "stride"); /* rows share one element */
        SLIP(ARRAY->data = t->q.data, RP_E_OVERLAP, "q", NULL);
        SLIP(ARRAY->data = (char *)t->k.data + 4, RP_E_OVERLAP, "k", NULL);
        SLIP(ARRAY->data = (char *)t->term[1][0].data, RP_E_OVERLAP, "term", NULL);
        SLIP(t->mask[1].data = (char *)ARRAY->data + 3, RP_E_OVERLAP, "mask", NULL);
        if (n > 3)
            SLIP(ARRAY->data = (char *)t->out.data + 2 * 4 * 5 * 6 * 4 - 4, RP_E_OVERLAP, "out", NULL);
    }
    /* an input that ends at the first element of out, in normal and in reversed order */
    SLIP((t->q.data = (float *)t->out.data - (problem_size(&t->q) - 1)), RP_E_OVERLAP, "out", "q");
    SLIP((t->k.data = (float *)t->out.data + problem_size(&t->out) + 40, t->k.stride[0] = -41), RP_E_OVERLAP, "out",
         "k");
}

#undef ARRAY

/* 0 t5 table [8, 4]; 1 dense; 2 relkey [4, 8]; 3 relval [4, 6]; 4 alibi [4]; 5 table [4, 7]. */
static void arrays_of_terms_are_checked(void **state)
{
    (void)state;
    EACH(int, n, 0, 1, 2, 3, 5)
    {
        EACH(int, x, RP_BOOL, RP_I64, 13, -1) SLIP(t->term[n][0].dtype = (rp_dtype)x, RP_E_ARG, "term[", "dtype");
        SLIP(t->term[n][0].ndim = 5, RP_E_SHAPE, "term[", NULL);
        SLIP(t->term[n][0].ndim = -1, RP_E_SHAPE, "term[", NULL);
        SLIP(t->term[n][0].shape[t->term[n][0].ndim - 1]++, RP_E_SHAPE, "term[", "shape");
        SLIP(t->term[n][0].shape[0]++, RP_E_SHAPE, "term[", "shape");
        SLIP(t->term[n][0].data = (char *)t->term[n][0].data + 1, RP_E_ARG, "term[", "address");
        SLIP(t->term[n][0].stride[0] = INT64_MIN, RP_E_OVERFLOW, "term[", "stride");
    }
    SLIP(t->term[0][0].shape[0] = 1, RP_E_SHAPE, "term[0].table", "(1, 4)"); /* buckets do not broadcast */
    SLIP(t->term[0][0].ndim = 1, RP_E_SHAPE, "term[0].table", NULL);
    SLIP(t->term[5][0].shape[1] = 1, RP_E_SHAPE, "term[5].table", NULL);
    SLIP(t->term[2][0].shape[1] = 1, RP_E_SHAPE, "term[2].table", NULL);
    SLIP(t->term[3][0].ndim = 1, RP_E_SHAPE, "term[3].table", NULL);
    /* slopes are given, with a wrong shape */
    static float slopes[8];
    static const int64_t three[1] = {3}, two[2] = {4, 4};
    SLIP(t->term[4][0] = rp_array_of(slopes, RP_F32, 1, three), RP_E_SHAPE, "term[4].slopes", "(3)");
    SLIP(t->term[4][0] = rp_array_of(slopes, RP_F32, 2, two), RP_E_SHAPE, "term[4].slopes", "(4, 4)");
}

/* 0 key_mask [2, 7]; 1 mask [2, 4, 5, 7]; 2 lengths [2]. */
static void arrays_of_masks_are_checked(void **state)
{
    (void)state;
    for (int n = 0; n < 3; n++) {
        EACH(int, x, RP_F32, RP_F64, RP_F16, RP_BF16, 13, -1)
        SLIP(t->mask[n].dtype = (rp_dtype)x, RP_E_ARG, "mask[", "dtype");
        SLIP(t->mask[n].ndim = 5, RP_E_SHAPE, "mask[", NULL);
        SLIP(t->mask[n].shape[0] = 3, RP_E_SHAPE, "mask[", "shape");
        SLIP(t->mask[n].shape[t->mask[n].ndim - 1] = 0, RP_E_SHAPE, "mask[", "shape");
        SLIP((t->mask[n].dtype = RP_U16, t->mask[n].data = (char *)t->mask[n].data + 1), RP_E_ARG, "mask[", "address");
        SLIP(t->mask[n].stride[0] = INT64_MAX, RP_E_OVERFLOW, "mask[", "stride");
    }
}

/* ------------------------------------------------------------------------------------------------ looking inside */

static void rows_out_of_bounds_are_named(void **state)
{
    problem p;
    rp_plan *plan;
    rp_row row = {0};
    (void)state;
    pose(&p, 8, "fwd:f64:b2h2q3k4d2:dense+log:");
    good(rp_plan_create(&plan, &p.desc));
    static const int64_t outside[][3] = {{-1, 0, 0}, {2, 0, 0}, {0, -1, 0},        {0, 2, 0},
                                         {0, 0, -1}, {0, 0, 3}, {INT64_MIN, 0, 0}, {0, INT64_MAX, 0}};
    for (size_t n = 0; n < sizeof outside / sizeof *outside; n++)
        said(rp_attend_row(plan, &p.t, outside[n][0], outside[n][1], outside[n][2], &row), RP_E_RANGE, "query", NULL);
    said(rp_attend_row(plan, &p.t, 0, 0, 0, NULL), RP_E_ARG, "row", "NULL");
    static rp_part parts[RP_MAX_PARTS];
    int32_t n_parts;
    for (size_t n = 0; n < sizeof outside / sizeof *outside; n++)
        said(rp_attend_parts(plan, &p.t, outside[n][0], outside[n][1], outside[n][2], parts, &n_parts), RP_E_RANGE,
             "query", NULL);
    said(rp_attend_parts(plan, &p.t, 0, 0, 0, NULL, &n_parts), RP_E_ARG, "part", "NULL");
    said(rp_attend_parts(plan, &p.t, 0, 0, 0, parts, NULL), RP_E_ARG, "n_parts", "NULL");
    double room[64], far[2] = {7, 7};
    row.out = far;
    rp_tensors t = p.t;
    t.v.data = NULL;
    said(rp_attend_row(plan, &t, 0, 0, 0, &row), RP_E_ARG, "v", "missing");
    assert_true(far[0] == 7 && far[1] == 7);
    row = (rp_row){.weights = room};
    good(rp_attend_row(plan, &t, 1, 1, 2, &row)); /* weights need no v and no out */
    t.k.data = NULL;
    said(rp_attend_row(plan, &t, 0, 0, 0, &row), RP_E_ARG, "k", "missing");
    rp_plan_destroy(plan);
    problem_free(&p);
}

static void arrays_of_biases_and_bounds_are_checked(void **state)
{
    problem p;
    rp_plan *plan;
    double room[64];
    (void)state;
    pose(&p, 8, "fwd:f64:b2h2q3k4d2:dense+log:");
    good(rp_plan_create(&plan, &p.desc));
    const int64_t shape[3] = {2, 3, 4}, fewer[3] = {2, 3, 3}, bound[4] = {2, 2, 3, 2};
    memset(room, 0xa5, sizeof room);
    rp_array a = rp_array_of(room, RP_F64, 3, shape);
    said(rp_bias(plan, &p.t, -1, &a), RP_E_RANGE, "b", "-1");
    said(rp_bias(plan, &p.t, 2, &a), RP_E_RANGE, "b", "2");
    a = rp_array_of(room, RP_F64, 3, fewer);
    said(rp_bias(plan, &p.t, 0, &a), RP_E_SHAPE, "bias", "(2, 3, 3)");
    a = rp_array_of(room, RP_I64, 3, shape);
    said(rp_bias(plan, &p.t, 0, &a), RP_E_ARG, "bias", "i64");
    a = rp_array_of(room, RP_F64, 3, shape);
    a.stride[1] = 0;
    said(rp_bias(plan, &p.t, 0, &a), RP_E_STRIDE, "bias", "stride");
    a = rp_array_of(p.t.term[0][0].data, RP_F64, 3, shape);
    said(rp_bias(plan, &p.t, 0, &a), RP_E_OVERLAP, "overlaps", NULL);
    a = rp_array_of(room, RP_F32, 4, bound);
    said(rp_error_bound(plan, &p.t, &a), RP_E_ARG, "bound", "f32");
    a = rp_array_of(room, RP_F64, 3, shape);
    said(rp_error_bound(plan, &p.t, &a), RP_E_SHAPE, "bound", NULL);
    said(rp_error_bound(plan, &p.t, NULL), RP_E_ARG, "bound", "missing");
    a = rp_array_of(room, RP_F64, 4, bound);
    a.stride[0] = 0;
    said(rp_error_bound(plan, &p.t, &a), RP_E_STRIDE, "bound", "stride");
    a = rp_array_of(p.t.q.data, RP_F64, 4, bound);
    said(rp_error_bound(plan, &p.t, &a), RP_E_OVERLAP, "overlaps", NULL);
    for (size_t c = 0; c < sizeof room; c++)
        if (c >= 4 * sizeof(double)) /* the first four doubles were overwritten by the row's weights */
            assert_int_equal(((unsigned char *)room)[c], 0xa5);
    /* f32 results need only an alignment of 4 bytes, also with an f64 description */
    a = rp_array_of((float *)(void *)room + 1, RP_F32, 3, shape);
    good(rp_bias(plan, &p.t, 0, &a));
    rp_plan_destroy(plan);
    problem_free(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(null_pointers_are_named),      cmocka_unit_test(absent_arrays_are_named),
        cmocka_unit_test(each_array_is_checked),        cmocka_unit_test(outputs_overlap_nothing),
        cmocka_unit_test(arrays_of_terms_are_checked),  cmocka_unit_test(arrays_of_masks_are_checked),
        cmocka_unit_test(rows_out_of_bounds_are_named), cmocka_unit_test(arrays_of_biases_and_bounds_are_checked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
