/* test_rows.c -- backward calls over ranges of rows and of keys, from sums to sums, give the bits of one call.
 * SPDX-License-Identifier: Apache-2.0 */
#include "ranges.h"

enum { ROW_STEP = 96, MAX_CUTS = 64 };

/* The sums of a range of rows or keys: two arrays, or twice the same array. */
typedef struct sums {
    rp_array at[2];
    int64_t calls;
} sums;

/* A problem cut into ranges of rows and ranges of keys. */
typedef struct grid {
    problem *p;
    rp_plan *plan;
    int64_t row[MAX_CUTS + 1], key[MAX_CUTS + 1]; /* where ranges begin, and the end */
    int64_t rows, keys;                           /* numbers of ranges */
    sums dq[MAX_CUTS], dkv[MAX_CUTS];
    int64_t done[MAX_CUTS]; /* [range of keys] ranges of rows that have been computed */
} grid;

/* Return elements [from, to) of axis 2. */
static rp_array part_of(rp_array a, int64_t from, int64_t to)
{
    if (!a.data)
        return a;
    a.data = (char *)a.data + from * a.stride[2] * (int64_t)rp_dtype_size(a.dtype);
    a.shape[2] = to - from;
    return a;
}

/* Return the inputs of the call over range n of the rows and range s of the keys. */
static rp_tensors inputs_of(const grid *g, int64_t n, int64_t s)
{
    rp_tensors t = g->p->t;
    t.row_from = g->row[n];
    t.row_to = g->row[n + 1];
    t.key_from = g->key[s];
    t.key_to = g->key[s + 1];
    t.q = part_of(t.q, t.row_from, t.row_to);
    t.out = part_of(t.out, t.row_from, t.row_to);
    t.lse = part_of(t.lse, t.row_from, t.row_to);
    t.k = part_of(t.k, t.key_from, t.key_to);
    t.v = part_of(t.v, t.key_from, t.key_to);
    return t;
}

/* Return the sums so far, and move on to the next array. */
static rp_array sums_so_far(sums *s, rp_array *next)
{
    const rp_array none = {0}, in = s->calls > 0 ? s->at[(s->calls + 1) % 2] : none;
    *next = s->at[s->calls % 2];
    s->calls++;
    return in;
}

static sums begin_sums(problem *p, int64_t n, int64_t width, bool in_place)
{
    const int64_t shape[4] = {p->desc.batch, p->desc.heads, n, width};
    const rp_dtype real = p->desc.dtype == RP_F64 ? RP_F64 : RP_F32;
    sums s = {.calls = 0};
    for (int x = 0; x < 2; x++) {
        s.at[x] = x && in_place ? s.at[0] : array_in(p, real, 4, shape);
        memset(s.at[x].data, 0xff, (size_t)problem_size(&s.at[x]) * rp_dtype_size(real));
    }
    return s;
}

/* Compute range n of the rows against range s of the keys. Write dq with the last keys, and dk and dv with the last
 * rows, to *sum; add the gradients of terms to it. */
static rp_status backward_cell(grid *g, int64_t n, int64_t s, rp_grads *sum)
{
    const rp_array none = {0};
    const rp_tensors t = inputs_of(g, n, s);
    const bool last_rows = n + 1 == g->rows, last_keys = s + 1 == g->keys;
    rp_grads c = *sum;
    rp_array dq_next, dkv_next;
    c.dout = part_of(c.dout, t.row_from, t.row_to);
    c.dlse = part_of(c.dlse, t.row_from, t.row_to);
    c.dweights = part_of(c.dweights, t.row_from, t.row_to);
    c.dentropy = part_of(c.dentropy, t.row_from, t.row_to);
    c.dq_in = sums_so_far(&g->dq[n], &dq_next);
    c.dkv_in = sums_so_far(&g->dkv[s], &dkv_next);
    c.dq = last_keys ? part_of(sum->dq, t.row_from, t.row_to) : none;
    c.dq_out = last_keys ? none : dq_next;
    c.dk = last_rows ? part_of(sum->dk, t.key_from, t.key_to) : none;
    c.dv = last_rows ? part_of(sum->dv, t.key_from, t.key_to) : none;
    c.dkv_out = last_rows ? none : dkv_next;
    separate_terms(&c);
    const rp_status status = rp_backward(g->plan, &t, &c, NULL);
    add_terms(sum, &c, status);
    return status;
}

/* Cut an axis at random multiples of a step. Return the number of parts. */
static int64_t cut_axis(int64_t *at, int64_t length, int64_t step, int64_t most, uint64_t *state)
{
    int64_t n = 0;
    for (int64_t from = 0; from < length && n < MAX_CUTS; n++) {
        at[n] = from;
        from += (1 + (int64_t)(draw(state) % (uint64_t)most)) * step;
    }
    at[n] = length;
    return n;
}

static void cut_problem(grid *g, problem *p, uint64_t *state)
{
    memset(g, 0, sizeof *g);
    g->p = p;
    g->rows = cut_axis(g->row, p->desc.len_q, ROW_STEP, 4, state);
    /* gradients of weights need all keys */
    g->keys = cut_axis(g->key, p->desc.len_k, p->dweights || p->dsummary ? p->desc.len_k : KEY_STEP, 2, state);
    good(rp_plan_create(&g->plan, &p->desc));
    assert_int_equal(rp_plan_row_step(g->plan), ROW_STEP);
    for (int64_t n = 0; n < g->rows; n++)
        g->dq[n] = begin_sums(p, g->row[n + 1] - g->row[n], rp_plan_dq_width(g->plan), draw(state) % 2);
    for (int64_t s = 0; s < g->keys; s++)
        g->dkv[s] = begin_sums(p, g->key[s + 1] - g->key[s], rp_plan_dkv_width(g->plan), draw(state) % 2);
}

/* Choose the range of keys of the next call: any whose next rows have been computed over the range before. */
static int64_t next_range(const grid *g, uint64_t *state)
{
    int64_t ready[MAX_CUTS], n = 0;
    for (int64_t s = 0; s < g->keys; s++)
        if (g->done[s] < g->rows && (s == 0 || g->done[s] < g->done[s - 1]))
            ready[n++] = s;
    return n > 0 ? ready[draw(state) % (uint64_t)n] : -1;
}

/* A range_cut: compare the calls over all ranges of rows and keys with one call. */
static bool cut(problem *p, const char *isa, uint64_t *state, bool terms)
{
    rp_status status = RP_OK;
    grid *g = malloc(sizeof *g);
    assert_non_null(g);
    rp_grads one = gradients_like(p, RP_F64), sum = gradients_like(p, RP_F64);
    change_pool(p, state);
    backward(p, isa, &one, true);
    change_pool(p, state);
    cut_problem(g, p, state);
    for (int64_t s; status == RP_OK && (s = next_range(g, state)) >= 0; g->done[s]++) {
        status = backward_cell(g, g->done[s], s, &sum);
        if (status != RP_OK && !strstr(rp_last_error(), "lse is too large"))
            wrong(p, isa, "rows from %lld, keys from %lld: %s", (long long)g->row[g->done[s]], (long long)g->key[s],
                  rp_last_error());
    }
    if (status == RP_OK)
        check_gradients(p, isa, &one, &sum, terms);
    rp_plan_destroy(g->plan);
    change_pool(p, NULL);
    free(g);
    return status == RP_OK;
}

/* Problems whose dk has more than the products of ds and q: RoPE, vectors that multiply keys (deberta, axialkey), a
 * vector that multiplies all keys (xl). Gradients of vectors are summed in the arithmetic type, so these are f64. */
static const char *const texts[] = {
    "f32:b1h2q200k1300d16::",
    "f32:b1h6g2q300k700d16v24o400:t5:causal",
    "bf16:b2h4g1q450k520d40:alibi+sink+rope:causal",
    "f32:b1h4g2q500k1300d16o800:alibi:causal+dlse",
    "f64:b1h4g2q200k600d10v5:xl+t5+rope,dim=4:causal",
    "f64:b2h2q300k600d16o100:deberta,span=32,buckets=-1:q_offsets",
    "f64:b1h4g2q290k600d16v9:relkey,left=20,right=5+relval,left=9,right=9:softcap=3+window=200,100",
    "f16:b1h2q1000k600d16o-200:fire,c=2,L=100+dense:mask+lengths",
    "f32:b1h2q97k513d33:kerple:key_mask",
    "f32:b1h4g2q192k1024d64::causal",
    "f32:b1h2q576k576d16:swin,grid=24x24:",
    "f64:b1h2q576k576d16:axialkey,grid=24x24+rope:",
    "f32:b1h4g2q700k700d16:forget+rope:segments",
    "f32:b1h4g2q300k700d16:t5:dropout=0.3",
    "f32:b2h2g1q300k500d16o100:t5:causal+dropout=0.3+dweights+dsummary", /* these have a single range of keys */
    "f64:b1h2q500k300d9:alibi:dsummary+dlse+mask",
};

static void named_problems_have_the_same_bits(void **unused)
{
    (void)unused;
    cut_named(texts, sizeof texts / sizeof *texts, 3, 3, cut);
}

static void random_problems_have_the_same_bits(void **unused)
{
    (void)unused;
    cut_random(78, ROW_STEP, 0, KEY_STEP, cut);
}

/* The gradient of a bias with an element for each pair may have only the rows of the range. It has the bits of one
 * call. */
static void bias_gradients_of_a_range(void **unused)
{
    static const char *const some[] = {"fwdbwd:f32:b2h4g2q300k200d16o-20:dense+t5:causal+dropout=0.3",
                                       "fwdbwd:f64:b1h2q200k130d8:fire,c=0.5,L=40+dense:"};
    (void)unused;
    for (size_t x = 0; x < sizeof some / sizeof *some; x++) {
        problem p;
        rp_plan *plan;
        pose(&p, 1, "%s", some[x]);
        also(&p, WITH_LSE, RP_F64);
        p.desc.isa = NULL;
        good(rp_plan_create(&plan, &p.desc));
        good(rp_attend(plan, &p.t, NULL));
        const rp_array none = {0};
        const int64_t rows = p.desc.len_q, shape[4] = {p.desc.batch, p.desc.heads, rows, p.desc.len_k};
        const int term = x == 0 ? 0 : 1;
        p.t.term[term][0] = array_in(&p, RP_F64, 4, shape);
        memset(p.t.term[term][0].data, 0, (size_t)problem_size(&p.t.term[term][0]) * sizeof(double));
        rp_grads g = rp_grads_init();
        const rp_array dout = gradients_like(&p, RP_F32).dout;
        g.dout = dout;
        g.term[term][0] = array_in(&p, RP_F64, 4, shape);
        good(rp_attend(plan, &p.t, NULL));
        good(rp_backward(plan, &p.t, &g, NULL));
        const rp_array whole = g.term[term][0], lse = p.t.lse, out = p.t.out, q = p.t.q;
        for (int64_t from = 0; from < rows; from += ROW_STEP) {
            const int64_t to = from + ROW_STEP < rows ? from + ROW_STEP : rows;
            const int64_t part[4] = {shape[0], shape[1], to - from, shape[3]};
            p.t.row_from = from, p.t.row_to = to;
            p.t.q = part_of(q, from, to), p.t.out = part_of(out, from, to), p.t.lse = part_of(lse, from, to);
            g.dout = part_of(dout, from, to);
            g.term[term][0] = array_in(&p, RP_F64, 4, part);
            memset(g.term[term][0].data, 0xff, (size_t)problem_size(&g.term[term][0]) * sizeof(double));
            good(rp_backward(plan, &p.t, &g, NULL));
            const int64_t keys = shape[3];
            for (int64_t head = 0; head < shape[0] * shape[1]; head++)
                assert_memory_equal((const double *)whole.data + (head * rows + from) * keys,
                                    (const double *)g.term[term][0].data + head * (to - from) * keys,
                                    (size_t)((to - from) * keys) * sizeof(double));
            const int64_t other[4] = {shape[0], shape[1], to - from + 1, shape[3]};
            g.term[term][0] = array_in(&p, RP_F64, 4, other);
            assert_int_equal(rp_backward(plan, &p.t, &g, NULL), RP_E_SHAPE);
        }
        p.t.term[term][0] = part_of(p.t.term[term][0], 0, 1); /* all rows share the elements */
        assert_int_equal(rp_backward(plan, &p.t, &g, NULL), RP_E_SHAPE);
        p.t.q = q, p.t.out = out, p.t.lse = lse, p.t.term[term][0] = none;
        rp_plan_destroy(plan);
        problem_free(&p);
    }
}

static void wrong_sums_are_refused(void **unused)
{
    (void)unused;
    problem p;
    rp_plan *plan;
    pose(&p, 1, "fwdbwd:f32:b1h2g1q192k700d8:relkey,left=3,right=3:");
    also(&p, WITH_LSE, RP_F64);
    p.desc.isa = NULL;
    good(rp_plan_create(&plan, &p.desc));
    good(rp_attend(plan, &p.t, NULL));
    const int64_t width = rp_plan_dkv_width(plan), shape[4] = {1, 2, 700, width}, narrow[4] = {1, 2, 700, width - 1},
                  groups[4] = {1, 1, 700, width};
    const rp_array none = {0}, s = array_in(&p, RP_F32, 4, shape);
    assert_int_equal(width, 8 + 8);
    const rp_grads g = gradients_like(&p, RP_F32);
    const struct {
        rp_array dk, dv, in, out;
        const char *error;
    } cases[] = {
        {none, none, none, s, NULL},
        {none, none, s, s, NULL},
        {g.dk, none, s, none, NULL},
        {g.dk, none, none, s, "dk was given with dkv_out"},
        {none, g.dv, none, s, "dv was given with dkv_out"},
        {none, none, s, none, "dkv_in was given without dk, dv and dkv_out"},
        {none, none, none, array_in(&p, RP_F32, 4, narrow), "dkv_out: shape"},
        {none, none, none, array_in(&p, RP_F32, 4, groups), "dkv_out: shape"},
        {none, none, array_in(&p, RP_F64, 4, shape), s, "dkv_in: dtype is f64; it must be f32"},
        {none, none, part_of(s, 1, 700), s, "dkv_in: shape"},
    };
    for (size_t n = 0; n < sizeof cases / sizeof *cases; n++) {
        rp_grads c = g;
        c.dk = cases[n].dk, c.dv = cases[n].dv, c.dkv_in = cases[n].in, c.dkv_out = cases[n].out;
        const rp_status status = rp_backward(plan, &p.t, &c, NULL);
        if (!cases[n].error)
            good(status);
        else if (status == RP_OK || !strstr(rp_last_error(), cases[n].error))
            fail_msg("the error \"%s\" does not contain \"%s\"", rp_last_error(), cases[n].error);
    }
    rp_grads c = g;
    rp_tensors t = p.t;
    c.dk = c.dv = none, c.dkv_out = s;
    t.lse = none;
    assert_int_equal(rp_backward(plan, &t, &c, NULL), RP_E_ARG);
    assert_non_null(strstr(rp_last_error(), "dkv_out need both"));
    t = p.t, t.row_to = 100, t.q.shape[2] = t.out.shape[2] = t.lse.shape[2] = c.dq.shape[2] = c.dout.shape[2] = 100;
    assert_int_equal(rp_backward(plan, &t, &c, NULL), RP_E_RANGE);
    assert_non_null(strstr(rp_last_error(), "tensors.row_to is 100; in a backward call it must be a multiple of 96"));
    t.row_from = 92, t.row_to = 192;
    assert_int_equal(rp_backward(plan, &t, &c, NULL), RP_E_RANGE);
    assert_non_null(strstr(rp_last_error(), "tensors.row_from is 92"));
    rp_plan_destroy(plan);
    t = p.t, c = g, c.dk = c.dv = none, c.dkv_out = s;
    p.desc.isa = "reference";
    good(rp_plan_create(&plan, &p.desc));
    assert_int_equal(rp_plan_row_step(plan), 0);
    assert_int_equal(rp_plan_dkv_width(plan), 0);
    assert_int_equal(rp_backward(plan, &t, &c, NULL), RP_E_UNSUPPORTED);
    rp_plan_destroy(plan);
    problem_free(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(named_problems_have_the_same_bits),
        cmocka_unit_test(random_problems_have_the_same_bits),
        cmocka_unit_test(bias_gradients_of_a_range),
        cmocka_unit_test(wrong_sums_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
