/* test_call_arguments.c -- arguments of calls over ranges of rows and keys, of calls with pages or states, and of empty
 * sequences: what is refused, and what is not.
 * SPDX-License-Identifier: Apache-2.0 */
#include "tests/api/refusals.h"

enum { STEP = 512, KEYS = 600, ROWS = 200, ROW_STEP = 96 };

static problem p;
static rp_plan *plan;

static void begin(const char *text, const char *isa)
{
    pose(&p, 6, "%s", text);
    p.desc.isa = isa;
    good(rp_plan_create(&plan, &p.desc));
}

static void end(void)
{
    rp_plan_destroy(plan);
    problem_free(&p);
}

/* Return the arrays of a call over keys [0, STEP), without outputs. */
static rp_tensors first_keys(void)
{
    rp_tensors t = p.t;
    t.key_to = STEP;
    t.k.shape[2] = t.v.shape[2] = STEP;
    t.out.data = t.lse.data = NULL;
    return t;
}

static rp_array state_of(int64_t rows)
{
    const int64_t shape[4] = {p.desc.batch, p.desc.heads, rows, rp_plan_state_width(plan)};
    return array_in(&p, RP_F32, 4, shape);
}

static void outputs_of_all_pairs_need_one_call(void **state)
{
    static const char *const names[] = {"weights", "profile", "key_mass", "entropy"};
    (void)state;
    for (int n = 0; n < 4; n++) {
        begin("fwd:f32:b1h2q5k600d4", "generic");
        also(&p, WITH_ALL, RP_F32);
        rp_tensors t = first_keys();
        rp_array *const to[] = {&t.weights, &t.profile, &t.key_mass, &t.entropy};
        for (int m = 0; m < 4; m++)
            if (m != n)
                to[m]->data = NULL;
        char want[64];
        snprintf(want, sizeof want, "%s needs all rows and keys in one call", names[n]);
        said(rp_attend(plan, &t, NULL), RP_E_UNSUPPORTED, want, "omit key_from, key_to, row_from, row_to");
        end();
    }
}

static void states_replace_outputs(void **state)
{
    (void)state;
    begin("fwd:f32:b1h2q5k600d4", "generic");
    also(&p, WITH_LSE, RP_F32);
    rp_tensors t = first_keys();
    t.state_out = state_of(5);
    good(rp_attend(plan, &t, NULL));
    t.lse = p.t.lse;
    said(rp_attend(plan, &t, NULL), RP_E_ARG, "lse was given with state_out", "without state_out");
    t.out = p.t.out;
    said(rp_attend(plan, &t, NULL), RP_E_ARG, "the output was given with state_out", "without state_out");
    end();
}

/* A state may be continued in its own memory, but it must not lie in that of another array, or begin within the state
 * that it continues. */
static void sums_overlap_only_what_they_continue(void **state)
{
    (void)state;
    begin("bwd:f32:b1h2q200k600d4", "generic");
    rp_tensors t = first_keys();
    const rp_array sums = state_of(ROWS + 1);
    t.state_out = t.state_in = sums;
    t.state_in.shape[2] = t.state_out.shape[2] = ROWS;
    good(rp_attend(plan, &t, NULL));
    t.state_in.data = (float *)sums.data + 1;
    said(rp_attend(plan, &t, NULL), RP_E_OVERLAP, "state_out overlaps state_in", "outputs must not share memory");
    t.state_in = sums, t.state_in.shape[2] = ROWS, t.state_in.stride[2] += 1;
    said(rp_attend(plan, &t, NULL), RP_E_OVERLAP, "state_out overlaps state_in", NULL);
    t.state_in.data = NULL;
    t.k.data = sums.data;
    said(rp_attend(plan, &t, NULL), RP_E_OVERLAP, "state_out overlaps k", NULL);
    end();
    for (int keys = 0; keys < 2; keys++) {
        begin("bwd:f32:b1h2q200k600d4", "generic");
        attend(&p, "generic");
        const int64_t dq[4] = {1, 2, ROWS, rp_plan_dq_width(plan)}, dkv[4] = {1, 2, STEP, rp_plan_dkv_width(plan)};
        t = p.t, t.key_to = STEP, t.k.shape[2] = t.v.shape[2] = STEP;
        rp_grads g = rp_grads_init();
        g.dout = p.g.dout;
        rp_array *in = keys ? &g.dkv_in : &g.dq_in, *out = keys ? &g.dkv_out : &g.dq_out;
        *in = *out = array_in(&p, RP_F32, 4, keys ? dkv : dq);
        good(rp_backward(plan, &t, &g, NULL));
        in->data = NULL;
        out->data = keys ? t.k.data : t.q.data;
        said(rp_backward(plan, &t, &g, NULL), RP_E_OVERLAP, keys ? "dkv_out overlaps k" : "dq_out overlaps q", NULL);
        end();
    }
}

static void backward_calls_have_no_states(void **state)
{
    (void)state;
    begin("bwd:f32:b1h2q200k600d4", "generic");
    attend(&p, "generic");
    rp_tensors t = p.t;
    t.state_in = state_of(ROWS);
    said(rp_backward(plan, &t, &p.g, NULL), RP_E_ARG, "state_in was given to a backward call", "omit it");
    t.state_in.data = NULL;
    t.out.data = t.lse.data = NULL;
    t.state_out = state_of(ROWS);
    said(rp_backward(plan, &t, &p.g, NULL), RP_E_ARG, "state_out was given to a backward call", "omit it");
    end();
}

/* Sums of keys continue in dk, in dv or in dkv_out; gradients of the weights need the last keys, too. */
static void sums_of_keys_are_continued(void **state)
{
    (void)state;
    begin("bwd:f32:b1h2q200k600d4::dweights", "generic");
    attend(&p, "generic");
    const int64_t n[4] = {1, 2, KEYS, rp_plan_dkv_width(plan)};
    rp_grads g = rp_grads_init();
    g.dout = p.g.dout;
    g.dkv_in = array_in(&p, RP_F32, 4, n);
    said(rp_backward(plan, &p.t, &g, NULL), RP_E_ARG, "dkv_in was given without dk, dv and dkv_out", NULL);
    g.dv = p.g.dv;
    good(rp_backward(plan, &p.t, &g, NULL)); /* dkv_in is 0, so dv is that of a call without it */
    const rp_grads whole = gradients_like(&p, RP_F32);
    g.dkv_in.data = NULL;
    g.dv = whole.dv;
    good(rp_backward(plan, &p.t, &g, NULL));
    same_bits(&p, "generic", "dv", p.g.dv.data, whole.dv.data, (size_t)problem_size(&p.g.dv) * sizeof(float));
    rp_tensors t = p.t;
    t.key_to = STEP, t.k.shape[2] = t.v.shape[2] = g.dv.shape[2] = STEP;
    g.dweights = p.g.dweights;
    said(rp_backward(plan, &t, &g, NULL), RP_E_UNSUPPORTED, "dweights needs all keys in one call; omit key_from", NULL);
    end();
}

/* A bias that rows or heads share has one gradient; its sums over the ranges of rows are those of one call. */
static void broadcast_biases_keep_their_shape(void **state)
{
    static const int64_t shapes[][4] = {{1, 2, ROWS, 7}, {2, 1, ROWS, 7}, {2, 2, ROWS, 1}, {2, 2, ROWS, 7}};
    (void)state;
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++) {
        begin("bwd:f64:b2h2q200k7d4:dense", "generic");
        p.t.term[0][0] = array_in(&p, RP_F64, 4, shapes[s]);
        also(&p, WITH_LSE, RP_F64);
        attend(&p, "generic");
        rp_grads g = rp_grads_init(), part = g;
        g.dout = p.g.dout;
        g.term[0][0] = array_in(&p, RP_F64, 4, shapes[s]);
        good(rp_backward(plan, &p.t, &g, NULL));
        const int64_t size = problem_size(&g.term[0][0]);
        double *sum = calloc((size_t)size, sizeof *sum);
        assert_non_null(sum);
        for (int64_t from = 0; from < ROWS; from += 2 * ROW_STEP) {
            rp_tensors t = p.t;
            t.row_from = from, t.row_to = from == 0 ? 2 * ROW_STEP : ROWS;
            rp_array *const rows[] = {&t.q, &t.out, &t.lse, &part.dout};
            part.dout = g.dout;
            for (int n = 0; n < 4; n++) {
                rows[n]->data = (double *)rows[n]->data + from * rows[n]->stride[2];
                rows[n]->shape[2] = t.row_to - from;
            }
            part.term[0][0] = array_in(&p, RP_F64, 4, shapes[s]);
            good(rp_backward(plan, &t, &part, NULL));
            for (int64_t x = 0; x < size; x++)
                sum[x] += at(&part.term[0][0], x);
            part.term[0][0].shape[1] += 2;
            said(rp_backward(plan, &t, &part, NULL), RP_E_SHAPE, "the gradient of term[0].bias", "it must be (");
        }
        for (int64_t x = 0; x < size; x++)
            if (!(fabs(sum[x] - at(&g.term[0][0], x)) <= 1e-13))
                fail_msg("shape %zu: element %lld is %g in two calls, %g in one", s, (long long)x, sum[x],
                         at(&g.term[0][0], x));
        free(sum);
        end();
    }
}

/* A call with pages of 100 of the 200 keys. */
static rp_pages pages_of(const void *list[2][2], const void *k, const void *v)
{
    for (int n = 0; n < 2; n++) {
        list[0][n] = (const float *)k + n * 100 * 4;
        list[1][n] = (const float *)v + n * 100 * 4;
    }
    return (rp_pages){.k = list[0],
                      .v = list[1],
                      .page = 100,
                      .per_batch = 2,
                      .len_k = 200,
                      .k_head = 800,
                      .k_key = 4,
                      .v_head = 800,
                      .v_key = 4};
}

static void pages_overlap_no_output(void **state)
{
    const void *list[2][2];
    void *norms[2];
    (void)state;
    begin("fwd:f32:b1h1q2k200d4:alibi", "generic");
    rp_tensors t = p.t;
    t.pages = pages_of(list, t.k.data, t.v.data);
    t.k.data = t.v.data = NULL;
    good(rp_attend(plan, &t, NULL));
    t.out.data = (void *)(uintptr_t)list[0][1];
    said(rp_attend(plan, &t, NULL), RP_E_OVERLAP, "the output overlaps page 1 of k", "must not share memory");
    t.out.data = (void *)(uintptr_t)list[1][0];
    said(rp_attend(plan, &t, NULL), RP_E_OVERLAP, "the output overlaps page 0 of v", "must not share memory");
    t.out = p.t.out;
    t.row_to = 1, t.q.shape[2] = t.out.shape[2] = 1;
    said(rp_attend(plan, &t, NULL), RP_E_UNSUPPORTED, "pages were given with a range of keys or rows",
         "pass k and v as arrays");
    t = p.t;
    norms[0] = norms[1] = p.t.out.data;
    t.pages.norms = norms;
    said(rp_attend(plan, &t, NULL), RP_E_ARG, "pages.norms was given without pages.k", "tensors.key_norms");
    end();
    begin("fwd:f32:b4h1q2k200d4", "generic"); /* the lists of pages cannot be so long */
    t = p.t;
    t.pages = pages_of(list, t.k.data, t.v.data);
    t.k.data = t.v.data = NULL;
    t.pages.per_batch = INT64_MAX / 16;
    said(rp_attend(plan, &t, NULL), RP_E_RANGE, "pages.per_batch is 576460752303423487; the lists of 4 batch entries",
         "list fewer pages");
    end();
}

/* In a plan with maximum lengths, the plan's numbers of rows and keys are those of a sequence of which a call computes
 * a range. An array with other axes determines no length. */
static void ranges_of_a_flexible_plan(void **state)
{
    (void)state;
    begin("fwd:f32:b1h2q5k600d4:alibi", "generic");
    rp_tensors t = first_keys();
    t.state_out = state_of(5);
    good(rp_attend(plan, &t, NULL));
    const rp_array want = t.state_out;
    rp_plan_destroy(plan);
    p.desc.flexible = 1;
    good(rp_plan_create(&plan, &p.desc));
    t.state_out = state_of(5);
    good(rp_attend(plan, &t, NULL));
    same_bits(&p, "generic", "the state", t.state_out.data, want.data, (size_t)problem_size(&want) * sizeof(float));
    t = p.t, t.k.ndim = 3;
    said(rp_attend(plan, &t, NULL), RP_E_SHAPE, "k: shape is (1, 2, 600)", "it must be (1, 2, 600, 4)");
    const int64_t shape[3] = {2, 5, 600};
    const rp_array all = array_in(&p, RP_F64, 3, shape), bias = array_in(&p, RP_F64, 3, shape);
    good(rp_bias(plan, &p.t, 0, &all));
    t.q.ndim = 3;
    good(rp_bias(plan, &t, 0, &bias)); /* the maximum lengths */
    same_bits(&p, "generic", "the biases", bias.data, all.data, (size_t)problem_size(&all) * sizeof(double));
    end();
    begin("fwd:f32:b1h2q5k5d4::segments", "generic");
    rp_plan_destroy(plan);
    p.desc.flexible = 1;
    good(rp_plan_create(&plan, &p.desc));
    t = p.t, t.q.shape[2] = t.out.shape[2] = 4;
    said(rp_attend(plan, &t, NULL), RP_E_SHAPE, "masks[0]: there are 4 queries and 5 keys", "must be equal");
    end();
}

/* Without keys, values are not needed: outputs and bounds are 0, and lse is -infinity. */
static void sequences_without_keys_need_no_values(void **state)
{
    double out[4] = {7, 7, 7, 7};
    rp_row row = {.out = out};
    (void)state;
    EACH_PATH(path)
    {
        begin("fwd:f64:b1h2q3k0d4", path);
        rp_tensors t = p.t;
        t.k.data = t.v.data = NULL;
        good(rp_attend_row(plan, &t, 0, 1, 2, &row));
        assert_true(out[0] == 0 && out[3] == 0 && row.lse == -INFINITY);
        const int64_t shape[4] = {1, 2, 3, 4};
        rp_array bound = array_in(&p, RP_F64, 4, shape);
        memset(bound.data, 0xff, 24 * sizeof(double));
        good(rp_error_bound(plan, &t, &bound));
        for (int x = 0; x < 24; x++)
            assert_true(at(&bound, x) == 0);
        rp_tangents x = rp_tangents_init();
        x.lse = array_in(&p, RP_F64, 3, shape);
        x.q = array_in(&p, RP_F64, 4, shape);
        good(rp_tangent_bound(plan, &t, &x));
        const int64_t norms[3] = {1, 2, 0};
        t.key_norms = rp_array_of(out, RP_F64, 3, norms); /* no norms, of which none is read */
        good(rp_attend(plan, &t, NULL));
        end();
    }
}

/* Without batch entries or rows, arrays may be NULL, and a call for tangents needs no outputs. */
static void empty_batches_need_no_arrays(void **state)
{
    static const char *const texts[] = {"bwd:f32:b0h2q3k4d4:dense:key_mask", "bwd:f32:b2h2q0k4d4:dense:mask"};
    (void)state;
    for (int n = 0; n < 2; n++)
        EACH_PATH(path)
        {
            begin(texts[n], path);
            rp_tensors t = p.t;
            t.term[0][0].data = t.mask[0].data = NULL;
            good(rp_attend(plan, &t, NULL));
            rp_tangents x = rp_tangents_init();
            good(rp_jvp(plan, &t, &x));
            t.v.data = NULL;
            x.lse = p.t.lse;
            x.lse.dtype = RP_F64, x.lse.data = n ? x.lse.data : NULL;
            if (n == 0) /* with batch entries, the bounds depend on v */
                good(rp_tangent_bound(plan, &t, &x));
            end();
        }
    begin("bwd:f32:b2h2q3k4d4:dense:mask", "generic");
    rp_tensors t = p.t;
    rp_tangents x = rp_tangents_init();
    said(rp_jvp(plan, &t, &x), RP_E_ARG, "tangents has no output", "set out or lse");
    t.mask[0].data = NULL;
    said(rp_attend(plan, &t, NULL), RP_E_ARG, "mask[0] (of mask) is missing", "pass this array");
    end();
}

/* An invalid position is named with its batch entry and its axis, if there are several. */
static void positions_have_batch_entries_and_axes(void **state)
{
    static const char *const texts[] = {"fwd:f32:b2h2q5k5d8:rope,dim=8", "fwd:f32:b2h2q5k5d8:rope,dim=8,axes=2"};
    double position[20] = {0};
    (void)state;
    for (int axes = 1; axes < 3; axes++)
        for (int entries = 1; entries < 3; entries++) {
            char want[100];
            int x = 0;
            begin(texts[axes - 1], "generic");
            const int64_t shape[3] = {entries, axes == 1 ? 5 : 2, 5};
            while (strcmp(rp_term_array(RP_TERM_ROPE, x), "positions") != 0)
                x++;
            const int64_t frequencies[3] = {2, 2, 4};
            rp_tensors t = p.t;
            for (int f = 0; axes > 1 && rp_term_array(RP_TERM_ROPE, f); f++)
                if (strcmp(rp_term_array(RP_TERM_ROPE, f), "frequencies") == 0)
                    t.term[0][f] = array_in(&p, RP_F32, 3, frequencies);
            t.term[0][x] = rp_array_of(position, RP_F64, 1 + axes, shape);
            good(rp_attend(plan, &t, NULL));
            position[5 * axes * entries - 2] = 0x1p60;
            snprintf(want, sizeof want, "element 3%s%s is 1.15292e+18", axes > 1 ? " of axis 1" : "",
                     entries > 1 ? " of batch entry 1" : "");
            said(rp_attend(plan, &t, NULL), RP_E_RANGE, "term[0].positions (of rope)", want);
            position[5 * axes * entries - 2] = 0;
            end();
        }
}

static const rp_dtype integers[] = {RP_U8, RP_U16, RP_U32, RP_U64, RP_I8, RP_I16, RP_I32, RP_I64};

/* Offsets of every type of integers have the same results. */
static void offsets_have_any_integer_type(void **state)
{
    const int64_t batch[1] = {2};
    float *want = NULL;
    (void)state;
    begin("fwd:f32:b2h2q3k20d4:alibi:causal", "generic");
    for (size_t n = 0; n < sizeof integers / sizeof *integers; n++) {
        const int64_t offsets[2] = {3, 9};
        const size_t size = rp_dtype_size(integers[n]);
        int64_t narrowed[2]; /* the low bytes of both offsets, which come first */
        rp_tensors t = p.t;
        memcpy(narrowed, &offsets[0], size);
        memcpy((char *)narrowed + size, &offsets[1], size);
        t.q_offset = rp_array_of(narrowed, integers[n], 1, batch);
        good(rp_attend(plan, &t, NULL));
        if (want == NULL)
            want = copy_of(&p.t.out);
        same_bits(&p, "generic", "out", p.t.out.data, want, (size_t)problem_size(&p.t.out) * sizeof(float));
    }
    free(want);
    end();
}

/* Indices of every type of integers give the bits of the same output and gradient, whatever their stride. */
static void indices_have_any_integer_type(void **state)
{
    (void)state;
    EACH_PATH(path)
    {
        begin("bwd:f32:b1h2q5k70d4:lookup,entries=100", path);
        const rp_array given = p.t.term[0][1];
        const int64_t n = problem_size(&given);
        float *out = NULL, *table = NULL;
        const size_t bytes = (size_t)problem_size(&p.t.out) * sizeof(float),
                     table_bytes = (size_t)problem_size(&p.g.term[0][0]) * sizeof(float);
        int64_t *index = calloc((size_t)n, sizeof *index);
        for (int64_t x = 0; x < n; x++)
            index[x] = (7 * x + x / 9) % 100;
        for (size_t k = 0; k < sizeof integers / sizeof *integers; k++)
            for (int apart = 1; apart < 3; apart++) {
                const size_t size = rp_dtype_size(integers[k]);
                rp_array *a = &p.t.term[0][1];
                *a = rp_array_of(problem_alloc(&p, (size_t)(apart * n) * size), integers[k], given.ndim, given.shape);
                for (int x = 0; x < a->ndim; x++)
                    a->stride[x] *= apart;
                for (int64_t x = 0; x < n; x++)
                    memcpy((char *)a->data + (size_t)(apart * x) * size, &index[x], size);
                backward(&p, path, &p.g, true);
                if (out) {
                    same_bits(&p, path, rp_dtype_name(integers[k]), p.t.out.data, out, bytes);
                    same_bits(&p, path, rp_dtype_name(integers[k]), p.g.term[0][0].data, table, table_bytes);
                } else {
                    out = copy_of(&p.t.out);
                    table = copy_of(&p.g.term[0][0]);
                }
            }
        free(out);
        free(table);
        free(index);
        end();
    }
}

/* What the functions that describe plans, terms and masks say about none. */
static void nothing_is_described(void **state)
{
    char text[64] = "unchanged";
    (void)state;
    assert_int_equal(rp_plan_key_step(NULL), 0);
    assert_int_equal(rp_plan_state_width(NULL), 0);
    assert_int_equal(rp_plan_dq_width(NULL), 0);
    assert_int_equal(rp_plan_row_step(NULL), 0);
    assert_int_equal(rp_plan_dkv_width(NULL), 0);
    assert_int_equal(rp_term_option(RP_TERM_NONE, text, sizeof text), 0);
    assert_int_equal(rp_term_option(RP_TERM_COUNT, text, sizeof text), 0);
    assert_string_equal(text, "unchanged");
    assert_null(rp_mask_param_of(RP_MASK_COUNT, 0));
    assert_null(rp_mask_param_of(RP_MASK_WINDOW, -1));
    assert_null(rp_mask_param_of(RP_MASK_WINDOW, 2));
    assert_null(rp_mask_param_of(RP_MASK_CAUSAL, 0));
    assert_string_equal(rp_mask_param_of(RP_MASK_WINDOW, 1)->key, "right");
    /* the reference path has the widths 0, and its work takes bytes only for the arguments of a call */
    begin("bwd:f32:b1h2q5k7d4", "reference");
    assert_int_equal(rp_plan_key_step(plan), 0);
    assert_int_equal(rp_plan_dkv_width(plan), 0);
    const size_t bytes = rp_plan_backward_size(plan, NULL);
    assert_true(bytes > 64);
    attend(&p, "reference");
    fence f = fence_of((bytes + 63) / 64 * 64, true);
    good(rp_backward(plan, &p.t, &p.g, f.data));
    assert_true(fence_intact(&f, (bytes + 63) / 64 * 64));
    fence_free(&f);
    end();
}

static void absent_lists_are_named(void **state)
{
    const rp_term term = rp_term_init(RP_TERM_ALIBI);
    rp_desc d = rp_desc_init(1, 1, 1, 1, 4);
    (void)state;
    d.n_terms = d.n_masks = 1;
    refuse_plan(d, RP_E_ARG, "desc.terms is NULL", "n_terms is not 0");
    d.terms = &term;
    refuse_plan(d, RP_E_ARG, "desc.masks is NULL", "n_masks is not 0");
    d.n_terms = 0;
    refuse_plan(d, RP_E_ARG, "desc.masks is NULL", "n_masks is not 0");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(outputs_of_all_pairs_need_one_call),
        cmocka_unit_test(states_replace_outputs),
        cmocka_unit_test(sums_overlap_only_what_they_continue),
        cmocka_unit_test(backward_calls_have_no_states),
        cmocka_unit_test(sums_of_keys_are_continued),
        cmocka_unit_test(broadcast_biases_keep_their_shape),
        cmocka_unit_test(pages_overlap_no_output),
        cmocka_unit_test(ranges_of_a_flexible_plan),
        cmocka_unit_test(sequences_without_keys_need_no_values),
        cmocka_unit_test(empty_batches_need_no_arrays),
        cmocka_unit_test(positions_have_batch_entries_and_axes),
        cmocka_unit_test(offsets_have_any_integer_type),
        cmocka_unit_test(indices_have_any_integer_type),
        cmocka_unit_test(nothing_is_described),
        cmocka_unit_test(absent_lists_are_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
