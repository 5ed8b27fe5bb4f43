/* test_ranges.c -- calls over ranges of the keys, from state to state, and over ranges of the rows, give the bits of
 * one call. The keys of a range end at a page that cannot be read.
 * SPDX-License-Identifier: Apache-2.0 */
#include "ranges.h"

enum { STEP = KEY_STEP };

/* The arrays of the calls over ranges of a problem. */
typedef struct cutting {
    rp_tensors t;
    rp_array states[2]; /* two arrays, or twice the same array */
    rp_array own_keys;
    int64_t row_from, row_to; /* 0: all rows */
    bool in_place, prepared;
    int64_t range; /* calls so far that left a state */
} cutting;

/* Return rows [from, to) of k or v, contiguous, right before an inaccessible page. */
static rp_array rows_before_fence(const rp_array *a, int64_t from, int64_t to, fence *f)
{
    const int64_t heads = a->shape[0] * a->shape[1], size = (int64_t)rp_dtype_size(a->dtype) * a->shape[3];
    int64_t shape[4] = {a->shape[0], a->shape[1], to - from, a->shape[3]};
    *f = fence_of((size_t)(heads * (to - from) * size), true);
    for (int64_t h = 0; h < heads; h++)
        memcpy(f->data + h * (to - from) * size, (const char *)a->data + (h * a->shape[2] + from) * size,
               (size_t)((to - from) * size));
    return rp_array_of(f->data, a->dtype, 4, shape);
}

static int64_t position(const problem *p, int64_t b, int64_t i)
{
    const rp_array *o = &p->t.q_offset;
    return i + (!o->data             ? p->desc.q_offset
                : o->dtype == RP_I64 ? ((const int64_t *)o->data)[b]
                                     : ((const int32_t *)o->data)[b]);
}

/* Return the keys at the positions of the queries; NaN where there is none. */
static rp_array own_keys(problem *p)
{
    const int64_t B = p->desc.batch, G = p->t.k.shape[1], Lq = p->desc.len_q, Lk = p->desc.len_k, D = p->desc.dim_k,
                  size = (int64_t)rp_dtype_size(p->t.k.dtype) * D, shape[4] = {B, G, Lq, D};
    rp_array to = array_in(p, p->t.k.dtype, 4, shape);
    memset(to.data, 0xff, (size_t)(B * G * Lq * size));
    for (int64_t n = 0; n < B * G * Lq; n++) {
        const int64_t j = position(p, n / Lq / G, n % Lq);
        if (j >= 0 && j < Lk)
            memcpy((char *)to.data + n * size, (const char *)p->t.k.data + (n / Lq * Lk + j) * size, (size_t)size);
    }
    return to;
}

static void begin_cutting(cutting *c, problem *p, int64_t width, uint64_t *state)
{
    const int64_t shape[4] = {p->desc.batch, p->desc.heads, p->desc.len_q, width};
    const rp_dtype real = p->desc.dtype == RP_F64 ? RP_F64 : RP_F32;
    memset(c, 0, sizeof *c);
    c->t = p->t;
    c->own_keys = c->t.own_keys = own_keys(p);
    c->in_place = draw(state) % 2;
    for (int n = 0; n < 2; n++) {
        c->states[n] = n && c->in_place ? c->states[0] : array_in(p, real, 4, shape);
        memset(c->states[n].data, 0xff, (size_t)problem_size(&c->states[n]) * rp_dtype_size(real));
    }
}

/* Return the rows of the range of an array whose axis 2 is the queries. The other rows must not be read or written. */
static rp_array rows_of(const cutting *c, const rp_array *a)
{
    rp_array rows = *a;
    if (c->row_from == 0 && c->row_to == 0)
        return rows;
    rows.data = (char *)a->data + c->row_from * a->stride[2] * (int64_t)rp_dtype_size(a->dtype);
    rows.shape[2] = c->row_to - c->row_from;
    return rows;
}

/* Run the call over keys [from, to). The last call writes out and lse. */
static void run_range(cutting *c, problem *p, const rp_plan *plan, const char *isa, int64_t from, int64_t to, bool last)
{
    const rp_array none = {0};
    fence k, v;
    c->t.key_from = from;
    c->t.key_to = to;
    c->t.k = rows_before_fence(&p->t.k, from, to, &k);
    c->t.v = rows_before_fence(&p->t.v, from, to, &v);
    c->t.row_from = c->row_from;
    c->t.row_to = c->row_to;
    c->t.q = rows_of(c, &p->t.q);
    c->t.own_keys = rows_of(c, &c->own_keys);
    c->t.state_in = c->range > 0 ? rows_of(c, &c->states[(c->range + 1) % 2]) : none;
    c->t.state_out = last ? none : rows_of(c, &c->states[c->range % 2]);
    c->t.out = last ? rows_of(c, &p->t.out) : none;
    c->t.lse = last ? rows_of(c, &p->t.lse) : none;
    c->range++;
    const rp_status status = rp_attend(plan, &c->t, NULL);
    if (status != RP_OK)
        wrong(p, isa, "keys %lld to %lld: %s", (long long)from, (long long)to, rp_last_error());
    fence_free(&k);
    fence_free(&v);
}

/* Run calls over random ranges of the keys for rows [row_from, row_to), or for all rows if both are 0. */
static void run_rows(cutting *c, problem *p, const rp_plan *plan, const char *isa, uint64_t *state)
{
    const bool more = draw(state) % 4 == 0; /* an empty range follows the last key */
    c->range = 0;
    for (int64_t from = 0, to; from < p->desc.len_k; from = to) {
        to = from + ((int64_t)(draw(state) % 3) + (from == 0)) * STEP; /* a later range may be empty */
        to = to < p->desc.len_k ? to : p->desc.len_k;
        run_range(c, p, plan, isa, from, to, to == p->desc.len_k && !more);
    }
    if (more)
        run_range(c, p, plan, isa, p->desc.len_k, p->desc.len_k, true);
}

/* Check that out and lse of one call have the bits of calls over random ranges. */
static void cut(problem *p, const char *isa, uint64_t *state)
{
    rp_plan *plan;
    rp_prepared *prepared = NULL;
    cutting c;
    change_pool(p, state);
    attend(p, isa);
    rp_array out = p->t.out, lse = p->t.lse;
    out.data = copy_of(&out);
    lse.data = copy_of(&lse);
    memset(p->t.out.data, 0x55, (size_t)problem_size(&out) * rp_dtype_size(out.dtype));
    memset(p->t.lse.data, 0x55, (size_t)problem_size(&lse) * rp_dtype_size(lse.dtype));
    change_pool(p, state);
    good(rp_plan_create(&plan, &p->desc));
    assert_int_equal(rp_plan_key_step(plan), STEP);
    begin_cutting(&c, p, rp_plan_state_width(plan), state);
    if (draw(state) % 2) {
        good(rp_prepare(&prepared, plan, &p->t));
        c.t.prepared = prepared;
    }
    const bool cuts = draw(state) % 2;
    for (int64_t to = cuts ? 1 + (int64_t)(draw(state) % (uint64_t)p->desc.len_q) : p->desc.len_q;
         c.row_to < p->desc.len_q; to = p->desc.len_q) {
        c.row_from = c.row_to;
        c.row_to = to;
        run_rows(&c, p, plan, isa, state);
    }
    same_numbers(p, isa, "out from ranges of keys", &out, &p->t.out);
    same_numbers(p, isa, "lse from ranges of keys", &lse, &p->t.lse);
    free(out.data);
    free(lse.data);
    rp_prepared_destroy(prepared);
    rp_plan_destroy(plan);
    change_pool(p, NULL);
}

static const char *const texts[] = {
    "f32:b1h2q200k1300d16::",
    "f32:b1h2q200k1300d16v24o1100:t5:causal",
    "f32:b2h4g2q150k1600d16:alibi:",
    "f32:b1h2q1600k1600d16:alibi:causal",
    "f32:b1h2q700k1700d16o1000:alibi+sink:causal",
    "f32:b1h2q576k576d16:swin,grid=24x24:",
    "f32:b1h2q576k576d16:axialkey,grid=24x24+rope:",
    "f64:b1h2q130k1500d10v5:alibi+sink+rope:causal",
    "bf16:b1h4g2q200k1500d24v40:linear,left=0.4,right=0.2:window=1300,900",
    "f16:b1h2q150k1100d16:t5+rope:key_mask",
    "f32:b2h2q130k1500d16o1400:rope+t5+relkey,left=20,right=5+relval,left=9,right=9:causal+q_offsets",
    "f32:b1h2q60k1700d16:relval,left=700,right=700:window=1500,800",
    "f32:b1h4q60k2100d33v17o900:alibi+log:softcap=20+lengths",
    "f32:b1h2q1100k1100d16:rope+alibi:segments",
    "f32:b2h2q600k1100d16:rope,scaling=dynamic,factor=2,max_position_embeddings=300+alibi:key_mask+lengths",
    "f32:b1h2q200k1300d8o600:forget+sink:",
    "f32:b1h2q100k1100d16:xl+t5:causal",
    "f32:b1h2q100k1100d16o1000:deberta,span=32,buckets=-1:",
    "f32:b1h2q100k1100d16:dense+fire,c=2,L=100:mask",
    "f32:b1h2q700k1500d16o-40:kerple+rope:dropout=0.3",
    "f32:b1h4q5k3000d64o2995:alibi:causal",
    "f32:b1h4g1q3k1600d16o1300:t5+sink:causal",
    "f32:b2h4g2q3k1600d16o1300:t5+sink,rows=1:causal",
    "f64:b2h2q230k1500d10v5:alibi+sink,rows=1:causal",
    "bf16:b1h2q1k2000d64o1999:rope+t5:causal",
    "f32:b1h2q1k1500d64o1499::causal",
    "f64:b2h2q2k1500d8:t5:",
};

static void named_problems_have_the_same_bits(void **unused)
{
    uint64_t state = 7;
    (void)unused;
    for (size_t n = 0; n < sizeof texts / sizeof *texts; n++) {
        problem p;
        pose(&p, n, "fwd:%s", texts[n]);
        also(&p, WITH_LSE, RP_F64);
        const int kept = p.n_memory;
        for (size_t infinite = 0; infinite < 2; infinite++) { /* a call of few queries with such a value begins again */
            if (infinite)
                set(&p.t.v, problem_size(&p.t.v) - 1 - p.t.v.shape[3] * (int64_t)(draw(&state) % 400), INFINITY);
            EACH_ISA(isa)
            {
                if (SLOW(isa) ? n % 5 == 0 : PART(isa, n + infinite, 2) || p.desc.len_q < 10)
                    cut(&p, isa, &state);
                release(&p, kept);
            }
        }
        problem_free(&p);
    }
}

static void random_problems_have_the_same_bits(void **unused)
{
    uint64_t state = 1;
    problem_dice dice = {.seed = 99};
    const int problems = random_problems();
    (void)unused;
    for (int n = 0, cases = 0; cases < problems; n++) {
        problem p;
        char text[512], err[512];
        problem_draw(&dice, 1 << 22, text);
        if (problem_parse(&p, text, err) != 0 || p.desc.len_k <= STEP || large_network(&p) ||
            problem_fill(&p, (uint64_t)n, err) != 0)
            continue;
        cases++;
        also(&p, WITH_LSE, RP_F64);
        EACH_ISA(isa)
        {
            if (!SLOW(isa) || cases % 20 == 0)
                cut(&p, isa, &state);
        }
        problem_free(&p);
    }
}

/* Copy rows of a range, [B, G, to - from, D], to keys [from, to) of an array of the whole sequence. */
static void put_rows(const rp_array *whole, const rp_array *range, int64_t from, int64_t to)
{
    const int64_t size = (int64_t)rp_dtype_size(whole->dtype) * whole->shape[3];
    for (int64_t h = 0; h < whole->shape[0] * whole->shape[1]; h++)
        memcpy((char *)whole->data + (h * whole->shape[2] + from) * size, (char *)range->data + h * (to - from) * size,
               (size_t)((to - from) * size));
}

/* Call rp_backward over keys [from, to). Write dk and dv of the range to *sum, and add gradients of terms. The last
 * call writes dq. */
static rp_status backward_range(cutting *c, problem *p, const rp_plan *plan, rp_grads *sum, int64_t from, int64_t to,
                                bool last)
{
    const rp_array none = {0};
    rp_grads g = *sum;
    fence f[4];
    c->t.key_from = from;
    c->t.key_to = to;
    c->t.k = rows_before_fence(&p->t.k, from, to, &f[0]);
    c->t.v = rows_before_fence(&p->t.v, from, to, &f[1]);
    g.dk = rows_before_fence(&sum->dk, from, to, &f[2]);
    g.dv = rows_before_fence(&sum->dv, from, to, &f[3]);
    g.dq = last ? sum->dq : none;
    g.dq_in = c->range > 0 ? c->states[(c->range + 1) % 2] : none;
    g.dq_out = last ? none : c->states[c->range % 2];
    separate_terms(&g);
    c->range++;
    const rp_status status = rp_backward(plan, &c->t, &g, NULL);
    add_terms(sum, &g, status);
    if (status == RP_OK) {
        put_rows(&sum->dk, &g.dk, from, to);
        put_rows(&sum->dv, &g.dv, from, to);
    }
    for (int n = 0; n < 4; n++)
        fence_free(&f[n]);
    return status;
}

/* A range_cut: compare the calls over random ranges of the keys with one call. */
static bool cut_backward(problem *p, const char *isa, uint64_t *state, bool terms)
{
    rp_plan *plan;
    cutting c;
    rp_status status = RP_OK;
    drop_weight_gradients(p);
    rp_grads one = gradients_like(p, RP_F64), sum = gradients_like(p, RP_F64);
    change_pool(p, state);
    backward(p, isa, &one, true);
    change_pool(p, state);
    good(rp_plan_create(&plan, &p->desc));
    begin_cutting(&c, p, rp_plan_dq_width(plan), state);
    for (int64_t from = 0, to; from < p->desc.len_k && status == RP_OK; from = to) {
        to = from + (1 + (int64_t)(draw(state) % 2)) * STEP;
        to = to < p->desc.len_k ? to : p->desc.len_k;
        status = backward_range(&c, p, plan, &sum, from, to, to == p->desc.len_k);
        if (status != RP_OK && !strstr(rp_last_error(), "lse is too large"))
            wrong(p, isa, "keys %lld to %lld: %s", (long long)from, (long long)to, rp_last_error());
    }
    if (status == RP_OK)
        check_gradients(p, isa, &one, &sum, terms);
    rp_plan_destroy(plan);
    change_pool(p, NULL);
    return status == RP_OK;
}

static void gradients_of_named_problems_agree(void **unused)
{
    (void)unused;
    cut_named(texts, sizeof texts / sizeof *texts, 1, 5, cut_backward);
}

static void gradients_of_random_problems_have_the_same_bits(void **unused)
{
    (void)unused;
    cut_random(77, -1, STEP, STEP, cut_backward);
}

/* Ranges that the masks hide from all rows may be left out, also the first and the last ones. */
static void hidden_ranges_may_be_left_out(void **unused)
{
    uint64_t state = 3;
    (void)unused;
    EACH_ISA(isa)
    {
        problem p;
        rp_plan *plan;
        cutting c;
        pose(&p, 1, "fwd:f32:b1h2q100k4000d16o2100:t5+rope+sink:window=300,200");
        also(&p, WITH_LSE, RP_F64);
        attend(&p, isa);
        rp_array out = p.t.out, lse = p.t.lse;
        out.data = copy_of(&out);
        lse.data = copy_of(&lse);
        good(rp_plan_create(&plan, &p.desc));
        begin_cutting(&c, &p, rp_plan_state_width(plan), &state);
        run_range(&c, &p, plan, isa, 3 * STEP, 4 * STEP, false); /* keys 1800 to 2400 */
        run_range(&c, &p, plan, isa, 4 * STEP, 5 * STEP, true);
        same_numbers(&p, isa, "out without hidden ranges", &out, &p.t.out);
        same_numbers(&p, isa, "lse without hidden ranges", &lse, &p.t.lse);
        free(out.data);
        free(lse.data);
        rp_plan_destroy(plan);
        problem_free(&p);
    }
}

/* The numbers of a state agree with its definition, and a row that has seen no key has the state of nothing. */
static void states_are_as_defined(void **unused)
{
    uint64_t state = 5;
    (void)unused;
    EACH_ISA(isa)
    {
        problem p;
        rp_plan *plan;
        cutting c;
        pose(&p, 1, "fwd:f32:b1h1q600k600d8v3::causal");
        also(&p, WITH_LSE, RP_F64);
        attend(&p, isa);
        good(rp_plan_create(&plan, &p.desc));
        assert_int_equal(rp_plan_state_width(plan), 2 + 3);
        begin_cutting(&c, &p, rp_plan_state_width(plan), &state);
        run_range(&c, &p, plan, isa, 0, STEP, false);
        const float *s = c.states[0].data;
        for (int64_t i = 0; i < STEP; i++, s += 5) { /* these rows see only keys of the range */
            assert_true(fabs(at(&p.t.lse, i) - ((double)s[0] + log((double)s[1]))) < 1e-6);
            for (int x = 0; x < 3; x++)
                assert_true(fabs(at(&p.t.out, 3 * i + x) - (double)s[2 + x] / (double)s[1]) < 1e-6);
        }
        c.range = 0;
        run_range(&c, &p, plan, isa, STEP, 600, false);
        s = c.states[0].data; /* these rows have no key in the range */
        for (int64_t i = 0; i < STEP; i++, s += 5)
            assert_true(isinf(s[0]) && s[0] < 0 && s[1] == 0 && s[2] == 0 && s[3] == 0 && s[4] == 0);
        rp_plan_destroy(plan);
        problem_free(&p);
    }
}

/* With norms of the range, a decoding call does not read far keys: they are not in memory. */
static void norms_of_a_range_skip_keys(void **unused)
{
    uint64_t state = 9;
    (void)unused;
    EACH_ISA(isa)
    {
        problem p;
        rp_plan *plan;
        cutting c;
        int64_t pairs[2], computed = 0;
        pose(&p, 2, "fwd:f32:b1h2q2k6000d16o5998:linear,left=0.5,right=0.5:causal");
        also(&p, WITH_LSE, RP_F64);
        attend(&p, isa);
        rp_array out = p.t.out;
        out.data = copy_of(&out);
        good(rp_plan_create(&plan, &p.desc));
        begin_cutting(&c, &p, rp_plan_state_width(plan), &state);
        for (int64_t from = 0, to; from < 6000; from = to) {
            to = from + 4 * STEP < 6000 ? from + 4 * STEP : 6000;
            const int64_t shape[3] = {1, 2, (to - from + RP_NORM_KEYS - 1) / RP_NORM_KEYS};
            fence k, v;
            rp_tensors t = rp_tensors_init();
            t.key_from = from, t.key_to = to;
            t.k = rows_before_fence(&p.t.k, from, to, &k);
            t.v = rows_before_fence(&p.t.v, from, to, &v);
            c.t.key_norms = array_in(&p, RP_F32, 3, shape);
            good(rp_key_norms(plan, &t, 0, &c.t.key_norms));
            c.t.pairs = pairs;
            fence_free(&k);
            fence_free(&v);
            run_range(&c, &p, plan, isa, from, to, to == 6000);
            computed += pairs[1];
        }
        same_numbers(&p, isa, "out with norms of ranges", &out, &p.t.out);
        assert_true(computed > 0 && computed < 6000);
        free(out.data);
        rp_plan_destroy(plan);
        problem_free(&p);
    }
}

/* Check that a call fails with this status and that its error contains a text. */
static void refused(const rp_plan *plan, const rp_tensors *t, rp_status status, const char *text)
{
    assert_int_equal(rp_attend(plan, t, NULL), status);
    if (!strstr(rp_last_error(), text))
        fail_msg("the error \"%s\" does not contain \"%s\"", rp_last_error(), text);
}

static void wrong_ranges_are_refused(void **unused)
{
    (void)unused;
    problem p;
    rp_plan *plan;
    pose(&p, 1, "fwd:f32:b1h2q20k1500d8:alibi:");
    good(rp_plan_create(&plan, &p.desc));
    const int64_t width = rp_plan_state_width(plan), shape[4] = {1, 2, 20, width}, narrow[4] = {1, 2, 20, width - 1},
                  part[4] = {1, 2, STEP, 8}, own[4] = {1, 2, 20, 8};
    const rp_array none = {0}, state = array_in(&p, RP_F32, 4, shape);
    rp_tensors t = p.t, s;
    t.key_to = STEP;
    t.k.shape[2] = t.v.shape[2] = STEP;
    t.out = none;
    t.state_out = state;
    good(rp_attend(plan, &t, NULL)); /* the own keys of all rows are in the first range */
    s = t, s.key_from = 3;
    refused(plan, &s, RP_E_RANGE, "tensors.key_from is 3; it must be a multiple of 512");
    s = t, s.key_to = 1000;
    refused(plan, &s, RP_E_RANGE, "tensors.key_to is 1000; it must be a multiple of 512");
    s = t, s.key_to = 1501;
    refused(plan, &s, RP_E_RANGE, "they must be 0 to 1500");
    s = t, s.key_from = 2 * STEP;
    refused(plan, &s, RP_E_RANGE, "in this order");
    s = t, s.key_to = 2 * STEP;
    refused(plan, &s, RP_E_SHAPE, "k: ");
    s = t, s.row_to = 21;
    refused(plan, &s, RP_E_RANGE,
            "tensors.row_from is 0 and tensors.row_to is 21; they must be 0 to 20, the number of");
    s = t, s.row_from = 3, s.row_to = 2;
    refused(plan, &s, RP_E_RANGE, "in this order");
    s = t, s.row_from = 3, s.row_to = 20;
    refused(plan, &s, RP_E_SHAPE, "q: ");
    s.q.shape[2] = 17;
    refused(plan, &s, RP_E_SHAPE, "state_out: ");
    s = t, s.state_out = array_in(&p, RP_F32, 4, narrow);
    refused(plan, &s, RP_E_SHAPE, "state_out: ");
    s = t, s.state_out = array_in(&p, RP_F64, 4, shape);
    refused(plan, &s, RP_E_ARG, "state_out: dtype is f64; it must be f32");
    s = t, s.state_in = array_in(&p, RP_F16, 4, shape);
    refused(plan, &s, RP_E_ARG, "state_in: dtype is f16; it must be f32");
    s = t, s.out = p.t.out;
    refused(plan, &s, RP_E_ARG, "with state_out");
    s = t, s.state_in = state, s.state_in.data = (float *)state.data + 1, s.state_in.shape[2] = 19;
    refused(plan, &s, RP_E_SHAPE, "state_in: ");
    s = t, s.state_in = state, s.state_in.stride[1] = 0;
    refused(plan, &s, RP_E_OVERLAP, "state_out overlaps state_in");
    s = t, s.v = none;
    refused(plan, &s, RP_E_ARG, "v is missing");
    s = t, s.key_from = STEP, s.key_to = 2 * STEP;
    refused(plan, &s, RP_E_ARG, "own_keys is missing");
    s.own_keys = array_in(&p, RP_F32, 4, part);
    refused(plan, &s, RP_E_SHAPE, "own_keys: ");
    s.own_keys = array_in(&p, RP_F32, 4, own);
    good(rp_attend(plan, &s, NULL));
    const int64_t rows[3] = {1, 2, 20};
    s = t, s.entropy = array_in(&p, RP_F32, 3, rows);
    refused(plan, &s, RP_E_UNSUPPORTED, "entropy needs all rows and keys");
    rp_row row = {0};
    assert_int_equal(rp_attend_row(plan, &t, 0, 0, 0, &row), RP_E_UNSUPPORTED);
    rp_plan_destroy(plan);
    p.desc.isa = "reference";
    good(rp_plan_create(&plan, &p.desc));
    assert_int_equal(rp_plan_key_step(plan), 0);
    assert_int_equal(rp_plan_state_width(plan), 0);
    refused(plan, &t, RP_E_UNSUPPORTED, "reference path");
    rp_plan_destroy(plan);
    problem_free(&p);
}

static void wrong_backward_ranges_are_refused(void **unused)
{
    (void)unused;
    problem p;
    rp_plan *plan;
    pose(&p, 1, "fwdbwd:f32:b1h2q20k1500d8:relkey,left=3,right=3:");
    also(&p, WITH_LSE, RP_F64);
    p.desc.isa = NULL;
    good(rp_plan_create(&plan, &p.desc));
    good(rp_attend(plan, &p.t, NULL));
    const int64_t width = rp_plan_dq_width(plan), shape[4] = {1, 2, 20, width}, narrow[4] = {1, 2, 20, width - 1};
    const rp_array none = {0}, sums = array_in(&p, RP_F32, 4, shape);
    rp_tensors t = p.t, s = p.t;
    rp_grads g = gradients_like(&p, RP_F32), h;
    assert_int_equal(width, 8 + 8); /* dq, and the gradient of the queries that relkey multiplies */
    t.key_to = STEP;
    t.k.shape[2] = t.v.shape[2] = g.dk.shape[2] = g.dv.shape[2] = STEP;
    g.dq = none;
    g.dq_out = sums;
    good(rp_backward(plan, &t, &g, NULL));
    const struct {
        rp_array dq, dq_in, dq_out;
        const char *error;
    } cases[] = {
        {p.g.dq, none, sums, "dq was given with dq_out"},
        {none, sums, none, "dq_in was given without dq and dq_out"},
        {none, none, array_in(&p, RP_F32, 4, narrow), "dq_out: shape"},
        {none, array_in(&p, RP_F64, 4, shape), sums, "dq_in: dtype is f64; it must be f32"},
    };
    for (size_t n = 0; n < sizeof cases / sizeof *cases; n++) {
        h = g, h.dq = cases[n].dq, h.dq_in = cases[n].dq_in, h.dq_out = cases[n].dq_out;
        assert_int_not_equal(rp_backward(plan, &t, &h, NULL), RP_OK);
        if (!strstr(rp_last_error(), cases[n].error))
            fail_msg("the error \"%s\" does not contain \"%s\"", rp_last_error(), cases[n].error);
    }
    s = t, s.lse = none;
    assert_int_equal(rp_backward(plan, &s, &g, NULL), RP_E_ARG);
    s = t, s.state_out = array_in(&p, RP_F32, 4, shape);
    assert_int_not_equal(rp_backward(plan, &s, &g, NULL), RP_OK);
    s = t, s.key_to = 100;
    assert_int_equal(rp_backward(plan, &s, &g, NULL), RP_E_RANGE);
    rp_plan_destroy(plan);
    problem_free(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(named_problems_have_the_same_bits),
        cmocka_unit_test(random_problems_have_the_same_bits),
        cmocka_unit_test(gradients_of_named_problems_agree),
        cmocka_unit_test(gradients_of_random_problems_have_the_same_bits),
        cmocka_unit_test(hidden_ranges_may_be_left_out),
        cmocka_unit_test(states_are_as_defined),
        cmocka_unit_test(norms_of_a_range_skip_keys),
        cmocka_unit_test(wrong_ranges_are_refused),
        cmocka_unit_test(wrong_backward_ranges_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
