/* test_other_calls.c -- what rp_key_norms, rp_prepare, rp_bias, rp_error_bound and rp_gradient_bound refuse, and the numbers of
 * rp_key_norms.
 * SPDX-License-Identifier: Apache-2.0 */
#include "tests/helpers.h"

static problem p;
static rp_plan *plan;

static void begin(const char *text)
{
    pose(&p, 6, "%s", text);
    p.desc.isa = "generic";
    good(rp_plan_create(&plan, &p.desc));
}

static void end(void)
{
    rp_plan_destroy(plan);
    problem_free(&p);
}

static void refused(rp_status got, rp_status want, const char *words)
{
    if (got != want || !strstr(rp_last_error(), words))
        fail_msg("%s: \"%s\", not %s: \"%s\"", rp_status_name(got), rp_last_error(), rp_status_name(want), words);
}

static void norms_are_refused(void **state)
{
    const char *needs = "rp_key_norms needs a plan";
    (void)state;
    begin("fwd:f32:b2h4g2q3k130d5v6:");
    const int64_t shape[3] = {2, 2, 3}, few[3] = {2, 2, 2};
    rp_array norms = array_in(&p, RP_F64, 3, shape);
    const rp_array none = rp_array_of(NULL, RP_F64, 3, shape), short_ = array_in(&p, RP_F64, 3, few),
                   whole = array_in(&p, RP_I32, 3, shape);
    rp_tensors old = p.t, t = p.t;
    old.size--;
    refused(rp_key_norms(NULL, &t, 0, &norms), RP_E_ARG, needs);
    refused(rp_key_norms(plan, NULL, 0, &norms), RP_E_ARG, needs);
    refused(rp_key_norms(plan, &old, 0, &norms), RP_E_ARG, needs);
    refused(rp_key_norms(plan, &t, 0, NULL), RP_E_ARG, needs);
    refused(rp_key_norms(plan, &t, 0, &none), RP_E_ARG, needs);
    refused(rp_key_norms(plan, &t, 0, &short_), RP_E_SHAPE, "key_norms");
    refused(rp_key_norms(plan, &t, 0, &whole), RP_E_ARG, "key_norms");
    refused(rp_key_norms(plan, &t, -1, &norms), RP_E_RANGE, "from is -1: 0 to 130 keys");
    refused(rp_key_norms(plan, &t, 131, &norms), RP_E_RANGE, "from is 131: 0 to 130 keys");
    t.v.data = NULL;
    refused(rp_key_norms(plan, &t, 0, &norms), RP_E_ARG, "v is absent");
    t = p.t;
    t.k.data = NULL;
    refused(rp_key_norms(plan, &t, 0, &norms), RP_E_ARG, "k");
    end();
}

/* The largest length of 64 keys, or infinity where a key, or its values, are not finite; from a key on, the others' numbers stay. */
static void norms_are_the_largest_lengths(void **state)
{
    enum { LK = 130, D = 5, DV = 6 };
    (void)state;
    begin("fwd:f32:b2h4g2q3k130d5v6:");
    const int64_t shape[3] = {2, 2, 3};
    rp_array norms = array_in(&p, RP_F64, 3, shape);
    float *k = (float *)(uintptr_t)p.t.k.data, *v = (float *)(uintptr_t)p.t.v.data;
    double *found = norms.data, want[12] = {0};
    v[(1 * LK + 70) * DV + 2] = INFINITY;
    k[(2 * LK + 129) * D] = NAN;
    k[(3 * LK + 3) * D + 1] = 2e15f; /* beyond what is moderate */
    for (int64_t x = 0; x < 4 * LK; x++) {
        double squares = 0;
        for (int c = 0; c < D; c++)
            squares += (double)k[x * D + c] * (double)k[x * D + c];
        double *to = &want[x / LK * 3 + x % LK / RP_NORM_KEYS];
        *to = fmax(*to, sqrt(squares));
    }
    want[1 * 3 + 1] = want[2 * 3 + 2] = want[3 * 3] = INFINITY;
    good(rp_key_norms(plan, &p.t, 0, &norms));
    for (int x = 0; x < 12; x++)
        if (!(found[x] == want[x] || fabs(found[x] - want[x]) <= 1e-12 * want[x]))
            fail_msg("norm %d is %.17g, not %.17g", x, found[x], want[x]);
    good(rp_key_norms(plan, &p.t, LK, &norms)); /* no key */
    for (int x = 0; x < 12; x++)
        found[x] = 1000;
    good(rp_key_norms(plan, &p.t, 65, &norms)); /* those of key 64 stay, and the next 64 begin anew */
    assert_true(found[0] == 1000 && found[1] == 1000);
    assert_true(fabs(found[2] - want[2]) <= 1e-12 * want[2]);
    assert_true(isinf(found[4]));
    end();
}

static void preparing_is_refused(void **state)
{
    rp_prepared *prepared = (rp_prepared *)&p;
    (void)state;
    begin("fwd:f32:b1h2q9k9d4:t5+rope");
    rp_tensors old = p.t;
    old.size++;
    refused(rp_prepare(NULL, plan, &p.t), RP_E_ARG, "prepared is NULL");
    refused(rp_prepare(&prepared, NULL, &p.t), RP_E_ARG, "plan is NULL");
    assert_null(prepared);
    refused(rp_prepare(&prepared, plan, NULL), RP_E_ARG, "tensors is NULL");
    refused(rp_prepare(&prepared, plan, &old), RP_E_ARG, "tensors of another size");
    old = p.t;
    old.term[0][0].data = NULL;
    old.term[1][0].data = NULL;
    assert_true(rp_prepare(&prepared, plan, &old) != RP_OK);
    assert_null(prepared);
    rp_prepared_destroy(NULL);
    end();
}

static void inspection_is_refused(void **state)
{
    (void)state;
    begin("bwd:f32:b2h2q5k7d4v3:t5");
    const int64_t bias_shape[3] = {2, 5, 7}, out_shape[4] = {2, 2, 5, 3}, q_shape[4] = {2, 2, 5, 4}, table[2] = {32, 2};
    rp_array bias = array_in(&p, RP_F64, 3, bias_shape), single = array_in(&p, RP_F32, 4, out_shape),
             bound = array_in(&p, RP_F64, 4, out_shape);
    const rp_array none = rp_array_of(NULL, RP_F64, 3, bias_shape);
    rp_tensors t = p.t;
    t.size++;
    refused(rp_bias(NULL, &p.t, 0, &bias), RP_E_ARG, "plan is NULL");
    refused(rp_bias(plan, NULL, 0, &bias), RP_E_ARG, "tensors is NULL");
    refused(rp_bias(plan, &p.t, 0, NULL), RP_E_ARG, "bias is NULL");
    refused(rp_bias(plan, &p.t, 0, &none), RP_E_ARG, "bias is NULL");
    refused(rp_bias(plan, &t, 0, &bias), RP_E_ARG, "tensors of another size");
    refused(rp_bias(plan, &p.t, -1, &bias), RP_E_RANGE, "b is -1: 0 to 1");
    refused(rp_bias(plan, &p.t, 2, &bias), RP_E_RANGE, "b is 2: 0 to 1");
    refused(rp_error_bound(plan, &p.t, NULL), RP_E_ARG, "bound is NULL or absent");
    refused(rp_error_bound(plan, &p.t, &none), RP_E_ARG, "bound is NULL or absent");
    refused(rp_error_bound(plan, &p.t, &single), RP_E_ARG, "bound: dtype is f32: f64 is needed");
    t = p.t;
    t.v.data = NULL;
    refused(rp_error_bound(plan, &t, &bound), RP_E_ARG, "v is absent");
    t = p.t;
    t.out.data = t.lse.data = NULL;
    refused(rp_attend(plan, &t, NULL), RP_E_ARG, "tensors has no output");
    rp_grads g = rp_grads_init();
    g.dout = p.g.dout;
    g.dq = array_in(&p, RP_F32, 4, q_shape);
    refused(rp_gradient_bound(plan, &t, &g), RP_E_ARG, "bound of dq: dtype is f32: f64 is needed");
    g.dq.data = NULL;
    g.term[0][0] = array_in(&p, RP_F32, 2, table);
    refused(rp_gradient_bound(plan, &t, &g), RP_E_ARG, "f64 is needed");
    end();
}

/* Each output alone, on the reference and the fast path: the same numbers as beside the others. */
static void each_output_alone(void **state)
{
    (void)state;
    EACH_PATH(path)
    {
        begin("fwd:f32:b2h2q5k7d4:t5");
        rp_plan_destroy(plan);
        p.desc.isa = path;
        good(rp_plan_create(&plan, &p.desc));
        also(&p, WITH_ALL, RP_F32);
        good(rp_attend(plan, &p.t, NULL));
        rp_array *const outputs[] = {&p.t.out, &p.t.lse, &p.t.weights, &p.t.profile, &p.t.key_mass, &p.t.entropy};
        rp_array whole[6];
        for (int n = 0; n < 6; n++)
            whole[n] = *outputs[n];
        for (int n = 0; n < 6; n++) {
            for (int m = 0; m < 6; m++)
                outputs[m]->data = NULL;
            *outputs[n] = array_in(&p, RP_F32, whole[n].ndim, whole[n].shape);
            good(rp_attend(plan, &p.t, NULL));
            if (memcmp(outputs[n]->data, whole[n].data, (size_t)problem_size(&whole[n]) * sizeof(float)) != 0)
                wrong(&p, path, "output %d alone is another", n);
        }
        end();
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(norms_are_refused),    cmocka_unit_test(norms_are_the_largest_lengths),
        cmocka_unit_test(preparing_is_refused), cmocka_unit_test(inspection_is_refused),
        cmocka_unit_test(each_output_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
