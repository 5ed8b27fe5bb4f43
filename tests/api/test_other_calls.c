/* test_other_calls.c -- errors of rp_key_norms, rp_prepare, rp_bias, rp_error_bound and rp_gradient_bound, and the
 * results of rp_key_norms; plans with maximum lengths, pages, mask rows, and invalid kinds.
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
    (void)state;
    begin("fwd:f32:b2h4g2q3k130d5v6:");
    const int64_t shape[3] = {2, 2, 3}, few[3] = {2, 2, 2};
    rp_array norms = array_in(&p, RP_F64, 3, shape);
    const rp_array none = rp_array_of(NULL, RP_F64, 3, shape), short_ = array_in(&p, RP_F64, 3, few),
                   whole = array_in(&p, RP_I32, 3, shape);
    rp_tensors old = p.t, t = p.t;
    old.size--;
    refused(rp_key_norms(NULL, &t, 0, &norms), RP_E_ARG, "plan is NULL");
    refused(rp_key_norms(plan, NULL, 0, &norms), RP_E_ARG, "tensors is NULL");
    refused(rp_key_norms(plan, &old, 0, &norms), RP_E_ARG, "tensors has another size");
    refused(rp_key_norms(plan, &t, 0, NULL), RP_E_ARG, "norms is NULL; pass an array");
    refused(rp_key_norms(plan, &t, 0, &none), RP_E_ARG, "norms is NULL; pass an array");
    refused(rp_key_norms(plan, &t, 0, &short_), RP_E_SHAPE, "key_norms");
    refused(rp_key_norms(plan, &t, 0, &whole), RP_E_ARG, "key_norms");
    refused(rp_key_norms(plan, &t, -1, &norms), RP_E_RANGE, "from is -1; it must be 0 to 130, the number of keys");
    refused(rp_key_norms(plan, &t, 131, &norms), RP_E_RANGE, "from is 131; it must be 0 to 130, the number of keys");
    const rp_array over_k = rp_array_of(t.k.data, RP_F32, 3, shape), over_v = rp_array_of(t.v.data, RP_F32, 3, shape);
    refused(rp_key_norms(plan, &t, 0, &over_k), RP_E_OVERLAP, "tensors.key_norms overlaps k");
    refused(rp_key_norms(plan, &t, 0, &over_v), RP_E_OVERLAP, "tensors.key_norms overlaps v");
    t.v.data = NULL;
    refused(rp_key_norms(plan, &t, 0, &norms), RP_E_ARG, "v is missing");
    t = p.t;
    t.k.data = NULL;
    refused(rp_key_norms(plan, &t, 0, &norms), RP_E_ARG, "k");
    end();
}

/* A norm is the largest length among 64 keys, or infinity if one of these keys or its value is not finite. If a first
 * key is given, norms of earlier keys are kept. */
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
    for (int c = 0; c < D; c++) { /* a norm beyond 1e15 is infinity, even if every element is smaller */
        k[(3 * LK + 3) * D + c] = 9e14f;
        k[(3 * LK + 70) * D + c] = 4e14f;
    }
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
    good(rp_key_norms(plan, &p.t, LK, &norms)); /* no new keys */
    for (int x = 0; x < 12; x++)
        found[x] = 1000;
    good(rp_key_norms(plan, &p.t, 65, &norms)); /* computes the norm that includes key 64, keeps the earlier ones */
    assert_true(found[0] == 1000 && found[1] == 1000);
    assert_true(fabs(found[2] - want[2]) <= 1e-12 * want[2]);
    assert_true(isinf(found[4]));
    end();
}

/* Norms must be at least 0; infinity marks keys that must be read. */
static void calls_refuse_invalid_norms(void **state)
{
    const double wrong[] = {-1, -INFINITY, NAN, -1e-30};
    (void)state;
    begin("fwd:f32:b2h4g2q2k130d5v6:alibi:causal");
    const int64_t room[3] = {2, 2, 5}, at = 1 * 10 + 1 * 5 + 2;
    for (int type = 0; type < 2; type++) {
        p.t.key_norms = array_in(&p, type ? RP_F64 : RP_F32, 3, room);
        good(rp_key_norms(plan, &p.t, 0, &p.t.key_norms));
        for (size_t n = 0; n < sizeof wrong / sizeof *wrong; n++) {
            set(&p.t.key_norms, at, wrong[n]);
            refused(rp_attend(plan, &p.t, NULL), RP_E_RANGE, "tensors.key_norms: element [1, 1, 2] is ");
            set(&p.t.key_norms, at, INFINITY);
            set(&p.t.key_norms, at + 1, wrong[n]); /* past the keys of the call */
            good(rp_attend(plan, &p.t, NULL));
        }
    }
    end();
}

/* With RELPOS_SKIP=check, a norm that is too small for its keys is an error, for arrays and pages. Without it, or if
 * the norm is larger, the call succeeds. */
static void norms_can_be_compared_with_keys(void **state)
{
    static const char *const words[] = {
        "tensors.key_norms: element [1, 0, 1] is 2, but key 70 has norm 7; when keys or values change",
        "pages.norms: element [1, 0, 3] is 2, but key 70 has norm 7",
        "pages.norms: element [1, 0, 3] is 2, but key 69 has norm inf"};
    (void)state;
    for (int check = 0; check < 2; check++) {
        if (check)
            setenv("RELPOS_SKIP", "check", 1);
        begin("fwd:f32:b2h2q2k140d4:alibi:causal");
        unsetenv("RELPOS_SKIP");
        enum { LK = 140, PAGE = 20, PER_BATCH = 7 };
        const int64_t shape[3] = {2, 2, 3};
        const rp_array norms = array_in(&p, RP_F32, 3, shape);
        float of_page[2 * PER_BATCH][2], *const k = p.t.k.data, *const v = p.t.v.data;
        const void *page[2][2 * PER_BATCH];
        void *at[2 * PER_BATCH];
        for (int x = 0; x < 4 * LK * 4; x++)
            k[x] = 1;
        rp_tensors t = p.t, paged = p.t;
        t.key_norms = norms;
        paged.k.data = paged.v.data = NULL;
        for (int n = 0; n < 2 * PER_BATCH; n++) {
            const int64_t first = (n / PER_BATCH * 2 * LK + n % PER_BATCH * PAGE) * 4;
            page[0][n] = k + first, page[1][n] = v + first, at[n] = of_page[n];
        }
        paged.pages = (rp_pages){.k = page[0],
                                 .v = page[1],
                                 .page = PAGE,
                                 .per_batch = PER_BATCH,
                                 .len_k = LK,
                                 .k_head = LK * 4,
                                 .k_key = 4,
                                 .v_head = LK * 4,
                                 .v_key = 4,
                                 .norms = at};
        good(rp_key_norms(plan, &p.t, 0, &norms));
        good(rp_key_norms(plan, &paged, 0, NULL));
        for (int n = 0; n < 2 * PER_BATCH; n++)
            assert_true(of_page[n][0] == 2 && of_page[n][1] == 2);
        good(rp_attend(plan, &t, NULL));
        good(rp_attend(plan, &paged, NULL));
        k[(2 * LK + 70) * 4] = 0;
        good(rp_attend(plan, &t, NULL));
        k[(2 * LK + 70) * 4] = sqrtf(46); /* the norm is 7 */
        for (int n = 0; n < 3; n++) {
            const rp_status got = rp_attend(plan, n ? &paged : &t, NULL);
            if (check)
                refused(got, RP_E_RANGE, words[n]);
            else
                good(got);
            if (n == 1)
                v[(2 * LK + 69) * 4 + 1] = INFINITY;
        }
        good(rp_key_norms(plan, &p.t, 69, &norms));
        good(rp_key_norms(plan, &paged, 69, NULL));
        assert_true(isinf(of_page[PER_BATCH + 3][0]) && of_page[PER_BATCH + 2][0] == 2 &&
                    of_page[PER_BATCH + 3][1] == 2);
        good(rp_attend(plan, &t, NULL));
        good(rp_attend(plan, &paged, NULL));
        of_page[3][1] = -1;
        refused(rp_attend(plan, &paged, NULL), RP_E_RANGE,
                "pages.norms: element [0, 1, 3] is -1; it must be 0 or more");
        of_page[3][1] = NAN;
        refused(rp_attend(plan, &paged, NULL), RP_E_RANGE, "pages.norms: element [0, 1, 3] is ");
        at[8] = NULL;
        refused(rp_attend(plan, &paged, NULL), RP_E_ARG,
                "pages.norms[8] is NULL; pass the address of the page's norms");
        refused(rp_key_norms(plan, &paged, 0, NULL), RP_E_ARG, "pages.norms[8] is NULL");
        at[8] = (char *)of_page[8] + 1;
        refused(rp_attend(plan, &paged, NULL), RP_E_ARG, "pages.norms[8] is not aligned to its elements");
        paged.key_norms = norms;
        refused(rp_attend(plan, &paged, NULL), RP_E_ARG, "pages.norms was given with tensors.key_norms");
        refused(rp_key_norms(plan, &paged, 0, &norms), RP_E_ARG, "pages.norms was given with tensors.key_norms");
        t.pages.norms = at;
        refused(rp_attend(plan, &t, NULL), RP_E_ARG, "pages.norms was given without pages.k");
        end();
    }
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
    refused(rp_prepare(&prepared, plan, &old), RP_E_ARG, "tensors has another size");
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
    refused(rp_bias(plan, &t, 0, &bias), RP_E_ARG, "tensors has another size");
    refused(rp_bias(plan, &p.t, -1, &bias), RP_E_RANGE, "b is -1; it must be 0 to 1");
    refused(rp_bias(plan, &p.t, 2, &bias), RP_E_RANGE, "b is 2; it must be 0 to 1");
    refused(rp_error_bound(plan, &p.t, NULL), RP_E_ARG, "bound is missing");
    refused(rp_error_bound(plan, &p.t, &none), RP_E_ARG, "bound is missing");
    refused(rp_error_bound(plan, &p.t, &single), RP_E_ARG, "bound: dtype is f32; it must be f64");
    t = p.t;
    t.v.data = NULL;
    refused(rp_error_bound(plan, &t, &bound), RP_E_ARG, "v is missing");
    t = p.t;
    t.out.data = t.lse.data = NULL;
    refused(rp_attend(plan, &t, NULL), RP_E_ARG, "tensors has no output");
    rp_grads g = rp_grads_init();
    g.dout = p.g.dout;
    g.dq = array_in(&p, RP_F32, 4, q_shape);
    refused(rp_gradient_bound(plan, &t, &g), RP_E_ARG, "bound of dq: dtype is f32; it must be f64");
    g.dq.data = NULL;
    g.term[0][0] = array_in(&p, RP_F32, 2, table);
    refused(rp_gradient_bound(plan, &t, &g), RP_E_ARG, "it must be f64");
    rp_tangents x = rp_tangents_init();
    refused(rp_hvp_bound(plan, &t, &x, &g), RP_E_ARG, "it must be f64");
    x.out = single;
    refused(rp_tangent_bound(plan, &t, &x), RP_E_ARG, "bound of the tangent of out: dtype is f32; it must be f64");
    x.out.data = NULL;
    x.lse = array_in(&p, RP_F32, 3, q_shape);
    refused(rp_tangent_bound(plan, &t, &x), RP_E_ARG, "bound of the tangent of lse: dtype is f32; it must be f64");
    x.lse.dtype = RP_F64;
    t.v.data = NULL;
    refused(rp_tangent_bound(plan, &t, &x), RP_E_ARG, "v is missing");
    end();
}

/* Request each output alone, on the reference and on the fast path. The numbers must be the same as when all outputs
 * are requested. */
static void each_output_by_itself(void **state)
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
                wrong(&p, path, "output %d by itself differs", n);
        }
        end();
    }
}

/* Errors about maximum lengths, pages, offsets and norms. */
static void lengths_and_pages_are_refused(void **state)
{
    uint64_t offset = UINT64_MAX;
    const int64_t one[1] = {1}, norms[3] = {1, 2, 2}, few[3] = {1, 2, 1}, flat[2] = {2, 2};
    (void)state;
    begin("fwd:f32:b1h2q3k100d4:alibi:window=5,5");
    rp_plan_destroy(plan);
    p.desc.flexible = 1;
    good(rp_plan_create(&plan, &p.desc));
    rp_tensors t = p.t;
    t.k.shape[2] = 101;
    refused(rp_attend(plan, &t, NULL), RP_E_SHAPE, "k: the length is 101; it must be 0 to 100, the length of the plan");
    t.k.shape[2] = -1;
    refused(rp_attend(plan, &t, NULL), RP_E_SHAPE, "k: the length is -1");
    t = p.t;
    t.q_offset = rp_array_of(&offset, RP_U64, 1, one);
    refused(rp_attend(plan, &t, NULL), RP_E_RANGE, "tensors.q_offset: element 0");
    t = p.t;
    t.key_norms = array_in(&p, RP_F16, 3, norms);
    refused(rp_attend(plan, &t, NULL), RP_E_ARG, "tensors.key_norms: dtype is f16");
    t.key_norms = array_in(&p, RP_F32, 3, few);
    refused(rp_attend(plan, &t, NULL), RP_E_SHAPE, "tensors.key_norms");
    t.key_norms = array_in(&p, RP_F32, 2, flat);
    refused(rp_attend(plan, &t, NULL), RP_E_SHAPE, "tensors.key_norms");
    const void *page[2] = {p.t.k.data, p.t.v.data};
    const rp_pages right = {.k = page, .v = page, .page = 50, .per_batch = 2, .len_k = 100, .k_key = 4, .v_key = 4};
    t = p.t;
    t.pages = (rp_pages){.v = page};
    refused(rp_attend(plan, &t, NULL), RP_E_ARG, "pages.k is NULL and pages.v is not");
    t.k.data = NULL;
    t.pages = right;
    refused(rp_attend(plan, &t, NULL), RP_E_ARG, "v and pages.k were both given");
    t.v.data = NULL;
    good(rp_attend(plan, &t, NULL));
    t.pages.page = 99, t.pages.per_batch = 1; /* one key is left over, and needs a page */
    refused(rp_attend(plan, &t, NULL), RP_E_RANGE, "pages.per_batch is 1; 100 keys need 2 pages of 99 keys");
    t.pages = right;
    t.pages.len_k = 101;
    refused(rp_attend(plan, &t, NULL), RP_E_SHAPE,
            "pages.len_k is 101; it must be 0 to 100, the number of keys in the plan");
    t.pages.len_k = -1;
    refused(rp_attend(plan, &t, NULL), RP_E_SHAPE, "pages.len_k is -1");
    t.pages = right, t.pages.page = 0;
    refused(rp_attend(plan, &t, NULL), RP_E_RANGE, "pages.page is 0");
    t.pages.page = INT64_MAX;
    refused(rp_attend(plan, &t, NULL), RP_E_RANGE, "pages.page is 9223372036854775807");
    t.pages = right, t.pages.v_key = -4;
    refused(rp_attend(plan, &t, NULL), RP_E_STRIDE, "the strides of v are 0 and -4");
    t.pages = right, t.pages.k_head = INT64_MAX;
    refused(rp_attend(plan, &t, NULL), RP_E_STRIDE, "the strides of k are 9223372036854775807 and 4");
    t.pages = right, t.pages.k_key = 1, t.pages.k_channel = INT64_MAX;
    refused(rp_attend(plan, &t, NULL), RP_E_STRIDE, "k_channel is 9223372036854775807");
    t.pages = right, page[1] = (const char *)p.t.v.data + 1;
    refused(rp_attend(plan, &t, NULL), RP_E_ARG, "pages.k[1] is not aligned to its elements");
    page[1] = p.t.v.data;
    t.pages.v = NULL; /* weights need no values, but out needs them */
    refused(rp_attend(plan, &t, NULL), RP_E_ARG, "v");
    t.out.data = NULL;
    const int64_t pairs[4] = {1, 2, 3, 100};
    t.weights = array_in(&p, RP_F32, 4, pairs);
    good(rp_attend(plan, &t, NULL));
    end();
}

/* Errors of backward calls: gradients that do not exist, or that are not supported. */
static void gradients_are_refused(void **state)
{
    (void)state;
    begin("bwd:f32:b1h2q5k5d4:alibi");
    static const char *const others = "an output other than out and lse";
    const int64_t rows[3] = {1, 2, 5}, profile[3] = {1, 2, 9};
    rp_tensors t = p.t;
    t.profile = array_in(&p, RP_F32, 3, profile);
    refused(rp_backward(plan, &t, &p.g, NULL), RP_E_ARG, others);
    t = p.t, t.key_mass = array_in(&p, RP_F32, 3, rows);
    refused(rp_backward(plan, &t, &p.g, NULL), RP_E_ARG, others);
    t = p.t, t.entropy = array_in(&p, RP_F32, 3, rows);
    refused(rp_backward(plan, &t, &p.g, NULL), RP_E_ARG, others);
    const void *page[1] = {p.t.k.data};
    t = p.t, t.k.data = t.v.data = NULL;
    t.pages = (rp_pages){.k = page, .v = page, .page = 5, .per_batch = 1, .len_k = 5, .k_key = 4, .v_key = 4};
    refused(rp_backward(plan, &t, &p.g, NULL), RP_E_UNSUPPORTED,
            "pages were given, but a backward call does not support them");
    end();
}

/* Errors about an array without the parameter that uses it, about a parameter without its array, about invalid
 * positions, and about a grid with an offset. */
static void arrays_of_terms_are_refused(void **state)
{
    double position[5] = {0, 1, 0x1p54, 3, 4};
    const int64_t factors[1] = {2}, positions[1] = {5}, one[1] = {1};
    int64_t offset = 0;
    (void)state;
    begin("fwd:f32:b1h2q5k5d4:rope");
    rp_tensors t = p.t;
    int longs = 0, from = 0;
    for (int x = 0; rp_term_array(RP_TERM_ROPE, x) != NULL; x++) {
        longs = strcmp(rp_term_array(RP_TERM_ROPE, x), "long_factor") == 0 ? x : longs;
        from = strcmp(rp_term_array(RP_TERM_ROPE, x), "q_positions") == 0 ? x : from;
    }
    t.term[0][longs] = array_in(&p, RP_F32, 1, factors);
    refused(rp_attend(plan, &t, NULL), RP_E_ARG,
            "long_factor (of rope) was given, but it is only read with scaling=longrope; omit it");
    t = p.t;
    t.term[0][from] = rp_array_of(position, RP_F64, 1, positions);
    refused(rp_attend(plan, &t, NULL), RP_E_RANGE, "q_positions (of rope): element 2 is 1.80144e+16");
    position[2] = NAN;
    refused(rp_attend(plan, &t, NULL), RP_E_RANGE, "q_positions (of rope): element 2 is");
    end();
    begin("fwd:f32:b1h2q6k6d4:swin,grid=2x3");
    t = p.t;
    t.q_offset = rp_array_of(&offset, RP_I64, 1, one);
    refused(rp_attend(plan, &t, NULL), RP_E_UNSUPPORTED, "the tokens of terms[0] (of swin) are on a grid");
    end();
}

/* If a plan has maximum lengths, rp_bias uses the lengths of the arrays in the call. */
static void biases_have_the_lengths_of_the_call(void **state)
{
    (void)state;
    begin("fwd:f64:b1h2q8k9d4:alibi");
    rp_plan_destroy(plan);
    p.desc.flexible = 1;
    good(rp_plan_create(&plan, &p.desc));
    const int64_t shape[3] = {2, 3, 5}, all[3] = {2, 8, 9};
    const rp_array some = array_in(&p, RP_F64, 3, shape), whole = array_in(&p, RP_F64, 3, all);
    rp_tensors t = p.t;
    t.q.shape[2] = 3, t.k.shape[2] = t.v.shape[2] = 5, t.out.data = NULL;
    good(rp_bias(plan, &t, 0, &some));
    refused(rp_bias(plan, &t, 0, &whole), RP_E_SHAPE, "bias");
    t.q.data = t.k.data = t.v.data = NULL; /* without arrays, rp_bias uses the maximum lengths */
    good(rp_bias(plan, &t, 0, &whole));
    for (int64_t x = 0; x < 2 * 3 * 5; x++)
        assert_true(at(&some, x) == at(&whole, x / 15 * 72 + x / 5 % 3 * 9 + x % 5));
    const void *page[1] = {p.t.k.data};
    t = p.t, t.q.shape[2] = 3, t.k.data = t.v.data = t.out.data = NULL;
    t.pages = (rp_pages){.k = page, .v = page, .page = 5, .per_batch = 1, .len_k = 5, .k_key = 4, .v_key = 4};
    good(rp_bias(plan, &t, 0, &some));
    end();
}

static void shapes_and_rows_of_masks_are_refused(void **state)
{
    static const int64_t outside[][3] = {{-1, 0, 0}, {2, 0, 0}, {0, -1, 0}, {0, 2, 0}, {0, 0, -1}, {0, 0, 5}};
    int64_t first = 7, end_ = 7, shape[RP_MAX_AXES];
    int32_t ndim;
    (void)state;
    begin("fwd:f32:b2h2q5k7d4:t5:key_mask+causal");
    const rp_desc *d = &p.desc;
    rp_array a = p.t.mask[0];
    refused(rp_mask_row(d, 0, &a, 0, 0, 0, NULL, &end_, NULL), RP_E_ARG, "first or end is NULL");
    refused(rp_mask_row(d, 0, &a, 0, 0, 0, &first, NULL, NULL), RP_E_ARG, "first or end is NULL");
    refused(rp_mask_row(d, -1, &a, 0, 0, 0, &first, &end_, NULL), RP_E_ARG,
            "mask is -1; it must be 0 or more and below 2, the number of masks");
    refused(rp_mask_row(d, 2, &a, 0, 0, 0, &first, &end_, NULL), RP_E_ARG,
            "mask is 2; it must be 0 or more and below 2, the number of masks");
    for (size_t n = 0; n < sizeof outside / sizeof *outside; n++)
        refused(rp_mask_row(d, 0, &a, outside[n][0], outside[n][1], outside[n][2], &first, &end_, NULL), RP_E_RANGE,
                "there are 2, 2 and 5, counted from 0");
    refused(rp_mask_row(d, 0, NULL, 0, 0, 0, &first, &end_, NULL), RP_E_ARG,
            "array is missing; pass the array of the mask key_mask");
    a.data = NULL;
    refused(rp_mask_row(d, 0, &a, 0, 0, 0, &first, &end_, NULL), RP_E_ARG,
            "array is missing; pass the array of the mask key_mask");
    a = p.t.mask[0], a.dtype = RP_F32;
    refused(rp_mask_row(d, 0, &a, 0, 0, 0, &first, &end_, NULL), RP_E_ARG, "array");
    assert_true(first == 7 && end_ == 7);
    refused(rp_mask_shape(d, -1, &ndim, shape), RP_E_ARG,
            "mask is -1; it must be 0 or more and below 2, the number of masks");
    refused(rp_mask_shape(d, 2, &ndim, shape), RP_E_ARG,
            "mask is 2; it must be 0 or more and below 2, the number of masks");
    refused(rp_mask_shape(d, 0, NULL, shape), RP_E_ARG, "ndim or shape is NULL");
    refused(rp_mask_shape(d, 0, &ndim, NULL), RP_E_ARG, "ndim or shape is NULL");
    refused(rp_term_shape(d, 0, -1, &ndim, shape), RP_E_ARG,
            "term is 0, index is -1; they must be 0 or more, and term below 1");
    refused(rp_term_shape(d, 1, 0, &ndim, shape), RP_E_ARG,
            "term is 1, index is 0; they must be 0 or more, and term below 1");
    good(rp_term_shape(d, 0, RP_MAX_ARRAYS, &ndim, shape)); /* an array that does not exist has no axes */
    assert_int_equal(ndim, 0);
    assert_string_equal(rp_plan_isa(NULL), "");
    end();
}

/* Functions that take an invalid kind of term. */
/* rp_attention has the bits of rp_attend, and its errors. */
static void attention_in_one_call(void **state)
{
    (void)state;
    begin("fwd:f32:b2h4g2q3k130d5v6:alibi:causal");
    const size_t bytes = (size_t)problem_size(&p.t.out) * sizeof(float);
    float *out = calloc(1, bytes);
    good(rp_attend(plan, &p.t, NULL));
    good(rp_attention(&p.desc, p.t.q.data, p.t.k.data, p.t.v.data, out));
    assert_memory_equal(out, p.t.out.data, bytes);
    refused(rp_attention(NULL, p.t.q.data, p.t.k.data, p.t.v.data, out), RP_E_ARG, "desc is NULL");
    refused(rp_attention(&p.desc, NULL, p.t.k.data, p.t.v.data, out), RP_E_ARG, "q is missing");
    p.desc.len_q = -1;
    refused(rp_attention(&p.desc, p.t.q.data, p.t.k.data, p.t.v.data, out), RP_E_RANGE, "desc.len_q is -1");
    p.desc.len_q = 3;
    p.terms[0] = rp_term_init(RP_TERM_T5);
    refused(rp_attention(&p.desc, p.t.q.data, p.t.k.data, p.t.v.data, out), RP_E_ARG, "table");
    free(out);
    end();
}

static void invalid_kinds(void **state)
{
    static const int none[] = {RP_TERM_NONE, RP_TERM_COUNT, -1};
    (void)state;
    for (size_t n = 0; n < sizeof none / sizeof *none; n++) {
        const rp_term_kind kind = (rp_term_kind)none[n];
        const rp_array arrays[RP_MAX_ARRAYS] = {{0}};
        rp_term t = rp_term_init(RP_TERM_ALIBI);
        t.kind = kind;
        assert_null(rp_term_name(kind));
        assert_null(rp_term_about(kind));
        assert_null(rp_term_param(kind, 0));
        assert_null(rp_term_array(kind, 0));
        assert_null(rp_term_fault(kind));
        assert_int_equal(rp_term_role(kind), RP_ROLE_BIAS);
        assert_false(rp_term_is_bias(kind) || rp_term_is_causal(kind) || rp_term_is_array(kind));
        assert_false(rp_term_takes_name(kind) || rp_term_array_optional(kind, 0) || rp_term_array_learned(kind, 0));
        refused(rp_term_sizes(&t, arrays), RP_E_ARG, "it must be a value of rp_term_kind");
        refused(rp_term_usual_sizes(&t, 10), RP_E_ARG, "it must be a value of rp_term_kind");
    }
    assert_null(rp_term_param(RP_TERM_T5, -1));
    assert_null(rp_term_array(RP_TERM_T5, -1));
    rp_term t = rp_term_init(RP_TERM_T5);
    refused(rp_term_sizes_sized(&t, sizeof t + 8, p.t.term[0]), RP_E_ARG, "rp_term");
    refused(rp_term_usual_sizes_sized(&t, sizeof t + 8, 10), RP_E_ARG, "rp_term");
    rp_term_init_sized(NULL, sizeof t, RP_TERM_T5);
    t.buckets = 77;
    rp_term_init_sized(&t, sizeof t + 8, RP_TERM_T5); /* no version had this struct size: nothing is written */
    assert_int_equal(t.buckets, 77);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(norms_are_refused),
        cmocka_unit_test(norms_are_the_largest_lengths),
        cmocka_unit_test(calls_refuse_invalid_norms),
        cmocka_unit_test(norms_can_be_compared_with_keys),
        cmocka_unit_test(preparing_is_refused),
        cmocka_unit_test(inspection_is_refused),
        cmocka_unit_test(each_output_by_itself),
        cmocka_unit_test(lengths_and_pages_are_refused),
        cmocka_unit_test(gradients_are_refused),
        cmocka_unit_test(arrays_of_terms_are_refused),
        cmocka_unit_test(biases_have_the_lengths_of_the_call),
        cmocka_unit_test(shapes_and_rows_of_masks_are_refused),
        cmocka_unit_test(attention_in_one_call),
        cmocka_unit_test(invalid_kinds),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
