/* test_backward_arguments.c -- wrong arguments of a backward call: each mistake returns its status and an error that
 * names it, and nothing is written.
 * SPDX-License-Identifier: Apache-2.0 */
#include "tests/api/refusals.h"

static const char *const slip_text =
    "bwd:f32:b2h4g2q5k7d8v6:t5,buckets=8,q_positions=x+dense+relkey,left=2,right=1+alibi:mask+dweights+dsummary";
static double room[4096];

static void absent_arrays_are_named(void **state)
{
    const int64_t three[4] = {2, 4, 5, 7}, slopes[1] = {4}, positions[1] = {5};
    (void)state;
    SLIP(g->size--, RP_E_ARG, "grads", NULL);
    SLIP(t->size--, RP_E_ARG, "tensors", NULL);
    SLIP(g->dout.data = NULL, RP_E_ARG, "dout", NULL);
    SLIP(t->q.data = NULL, RP_E_ARG, "q", NULL);
    SLIP(t->v.data = NULL, RP_E_ARG, "v is missing", NULL);
    SLIP(t->term[0][0].data = NULL, RP_E_ARG, "term[0].table", NULL);
    SLIP(t->mask[0].data = NULL, RP_E_ARG, "mask[0]", NULL);
    SLIP(t->weights = rp_array_of(room, RP_F32, 4, three), RP_E_ARG, "output other than out and lse", NULL);
    SLIP(t->entropy = rp_array_of(room, RP_F32, 3, three), RP_E_ARG, "output other than out and lse", NULL);
    /* gradients of arrays that do not exist */
    SLIP(g->term[0][1] = rp_array_of(room, RP_F32, 1, positions), RP_E_ARG, "term[0].q_positions", NULL);
    SLIP(g->term[3][0] = rp_array_of(room, RP_F32, 1, slopes), RP_E_ARG, "term[3].slopes", NULL);
    SLIP(g->term[2][7] = rp_array_of(room, RP_F32, 1, slopes), RP_E_ARG, "the gradient term[2][7]",
         "relkey has no array 7");
    SLIP(g->term[4][0] = rp_array_of(room, RP_F32, 1, slopes), RP_E_ARG, "the gradient term[4][0]", "n_terms is 4");
    SLIP(g->term[RP_MAX_TERMS - 1][RP_MAX_ARRAYS - 1] = rp_array_of(room, RP_F32, 1, slopes), RP_E_ARG,
         "the gradient term[", "n_terms is 4");
}

static const struct {
    const char *name;
    size_t offset;
} all[] = {
    {"dout", offsetof(rp_grads, dout)},
    {"dweights", offsetof(rp_grads, dweights)},
    {"dprofile", offsetof(rp_grads, dprofile)},
    {"dkey_mass", offsetof(rp_grads, dkey_mass)},
    {"dentropy", offsetof(rp_grads, dentropy)},
    {"dq", offsetof(rp_grads, dq)},
    {"dk", offsetof(rp_grads, dk)},
    {"dv", offsetof(rp_grads, dv)},
    {"term[0].table", offsetof(rp_grads, term)},
    {"term[1].bias", offsetof(rp_grads, term) + sizeof(rp_array) * RP_MAX_ARRAYS},
    {"term[2].table", offsetof(rp_grads, term) + 2 * sizeof(rp_array) * RP_MAX_ARRAYS},
};
enum { DQ = 5, ALL = sizeof all / sizeof *all }; /* all[DQ] is the first output */

#define ARRAY ((rp_array *)(void *)((char *)g + all[n].offset))

/* Change the shape, axes, type, strides and address of dout and of each gradient. */
static void each_gradient_is_checked(void **state)
{
    (void)state;
    for (int n = 0; n < ALL; n++) {
        const char *name = all[n].name;
        SLIP(ARRAY->shape[0]++, RP_E_SHAPE, name, NULL);
        SLIP(ARRAY->shape[1]--, RP_E_SHAPE, name, NULL);
        SLIP(ARRAY->ndim--, RP_E_SHAPE, name, NULL);
        SLIP(ARRAY->ndim = 5, RP_E_SHAPE, name, NULL);
        SLIP(ARRAY->dtype = RP_I32, RP_E_ARG, name, NULL);
        SLIP(ARRAY->dtype = (rp_dtype)13, RP_E_ARG, name, NULL);
        SLIP(ARRAY->data = (char *)ARRAY->data + 2, RP_E_ARG, name, NULL);
        SLIP(ARRAY->stride[0] = INT64_MAX, RP_E_OVERFLOW, name, NULL);
        if (n == 0 || (n >= DQ && n < DQ + 3))
            SLIP(ARRAY->stride[3] = 2, RP_E_STRIDE, name, NULL);
    }
}

/* The elements of a gradient must not overlap each other, an input or another gradient. */
static void gradients_overlap_nothing(void **state)
{
    (void)state;
    for (int n = DQ; n < ALL; n++) {
        const char *name = all[n].name;
        SLIP(ARRAY->stride[0] = 0, RP_E_STRIDE, name, NULL);
        SLIP(ARRAY->shape[0] = 1, RP_E_SHAPE, name, NULL);
        SLIP(ARRAY->data = t->q.data, RP_E_OVERLAP, "overlaps", NULL);
        SLIP(ARRAY->data = (char *)t->term[1][0].data + 4, RP_E_OVERLAP, "overlaps", NULL);
        SLIP(ARRAY->data = t->out.data, RP_E_OVERLAP, "overlaps", NULL);
        SLIP(ARRAY->data = g->dout.data, RP_E_OVERLAP, "overlaps", NULL);
        SLIP(ARRAY->data = g->dweights.data = room, RP_E_OVERLAP, "overlaps dweights", NULL);
        SLIP(ARRAY->data = g->dentropy.data = room, RP_E_OVERLAP, "overlaps dentropy", NULL);
        SLIP(ARRAY->data = t->mask[0].data, RP_E_OVERLAP, "overlaps", NULL);
        SLIP(ARRAY->data = n == DQ ? g->dk.data : g->dq.data, RP_E_OVERLAP, "overlaps", NULL);
    }
}

#undef ARRAY

static void null_pointers_are_refused(void **state)
{
    problem p;
    rp_plan *plan;
    (void)state;
    pose(&p, 1, "%s", slip_text);
    good(rp_plan_create(&plan, &p.desc));
    assert_int_equal(rp_backward(NULL, &p.t, &p.g, NULL), RP_E_ARG);
    assert_int_equal(rp_backward(plan, NULL, &p.g, NULL), RP_E_ARG);
    assert_int_equal(rp_backward(plan, &p.t, NULL, NULL), RP_E_ARG);
    assert_int_equal(rp_gradient_bound(plan, &p.t, NULL), RP_E_ARG);
    assert_int_equal(rp_plan_backward_size(NULL, NULL), 0);
    rp_plan_destroy(plan);
    problem_free(&p);
}

/* A backward call needs aligned scratch memory of exactly the size that the plan reports. The memory is placed between
 * inaccessible pages. */
static void backward_scratch_has_the_reported_size(void **state)
{
    problem p;
    rp_plan *plan;
    (void)state;
    SLIP(s.work = (char *)room + 4, RP_E_ARG, "work", NULL);
    pose(&p, 1, "%s", slip_text);
    good(rp_plan_create(&plan, &p.desc));
    const size_t bytes = rp_plan_backward_size(plan, NULL);
    assert_true(bytes > 0);
    fence f = fence_of((bytes + 63) / 64 * 64, true);
    good(rp_backward(plan, &p.t, &p.g, f.data));
    assert_true(fence_intact(&f, (bytes + 63) / 64 * 64));
    fence_free(&f);
    rp_plan_destroy(plan);
    problem_free(&p);
}

/* The struct of an earlier version ends before dweights, and the library reads no further. */
static void a_shorter_struct_has_no_gradients_of_weights(void **state)
{
    problem p;
    const size_t bytes = offsetof(rp_grads, dweights);
    (void)state;
    EACH_PATH(path)
    {
        pose(&p, 1, "%s", slip_text);
        rp_grads one = gradients_like(&p, RP_F32);
        fence f = fence_of(bytes, true);
        memcpy(f.data, &p.g, bytes);
        rp_grads *shorter = (rp_grads *)(void *)f.data;
        shorter->size = bytes;
        backward(&p, path, shorter, true);
        drop_weight_gradients(&p);
        for (int n = 0; n < OUTPUT_GRADIENTS; n++)
            *output_gradient(&one, n) = *output_gradient(&p.g, n);
        backward(&p, path, &one, true);
        for (int n = 0; n < GRADIENTS; n++)
            if (gradient(&one, n)->data)
                same_bits(&p, path, gradient_name(&p, n), gradient(&one, n)->data, gradient(&p.g, n)->data,
                          (size_t)problem_size(gradient(&one, n)) * sizeof(float));
        fence_free(&f);
        problem_free(&p);
    }
}

static void gradients_of_weights_need_all_keys(void **state)
{
    static const char *const names[OUTPUT_GRADIENTS] = {"", "dweights", "dprofile", "dkey_mass", "dentropy"};
    (void)state;
    for (int n = 1; n < OUTPUT_GRADIENTS; n++) {
        problem p;
        char want[64];
        pose(&p, 1, "bwd:f32:b1h2q5k600d4::dweights+dsummary");
        const rp_array one = *output_gradient(&p.g, n);
        drop_weight_gradients(&p);
        *output_gradient(&p.g, n) = one;
        p.t.key_from = 512, p.t.key_to = 600;
        p.t.k.shape[2] = p.t.v.shape[2] = p.g.dk.shape[2] = p.g.dv.shape[2] = 88;
        assert_int_equal(attempt_backward(&p, "generic", &p.g, true), RP_E_UNSUPPORTED);
        snprintf(want, sizeof want, "%s needs all keys in one call", names[n]);
        assert_non_null(strstr(rp_last_error(), want));
        problem_free(&p);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(absent_arrays_are_named),
        cmocka_unit_test(each_gradient_is_checked),
        cmocka_unit_test(gradients_overlap_nothing),
        cmocka_unit_test(null_pointers_are_refused),
        cmocka_unit_test(backward_scratch_has_the_reported_size),
        cmocka_unit_test(a_shorter_struct_has_no_gradients_of_weights),
        cmocka_unit_test(gradients_of_weights_need_all_keys),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
