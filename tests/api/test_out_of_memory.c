/* test_out_of_memory.c -- scratch sizes that overflow, and allocations that fail.
 * SPDX-License-Identifier: Apache-2.0 */
#include "tests/api/refusals.h"
#include "tests/memory_limit.h"
#include <sys/wait.h>

#if SANITIZED
/* Make malloc of AddressSanitizer return NULL for impossible sizes, like the normal malloc. */
__attribute__((visibility("default"))) const char *__asan_default_options(void);
const char *__asan_default_options(void)
{
    return "allocator_may_return_null=1";
}
#endif

/* Unaligned scratch memory is an error, and computed scratch sizes do not wrap around. */
static void work_is_aligned_and_its_size_fits(void **state)
{
    problem p;
    (void)state;
    char *room = aligned_alloc(64, 1 << 22);
    EACH_ISA(isa)
    {
        pose(&p, 5, "fwd:f32:b1h1q4k4d4");
        memset(p.t.out.data, 0xa5, 64);
        said(attempt(&p, isa, room + 4), RP_E_ARG, "work", "64");
        said(attempt(&p, isa, room + 63), RP_E_ARG, "work", "64");
        assert_int_equal(((unsigned char *)p.t.out.data)[0], 0xa5);
        problem_free(&p);
    }
    free(room);
    /* strides of 0 make a small array look like a table of 2^41 vectors; packing it for each head overflows. Vectors of
     * values are packed whole, those of keys only for the offsets of the call. */
    static float zeros[32768 * 64], out[32768 * 64];
    rp_term term = rp_term_init(RP_TERM_RELVAL);
    rp_desc d = rp_desc_init(1, 32768, 1, 1, 64);
    const int64_t shape[4] = {1, 32768, 1, 64}, rows[2] = {(int64_t)1 << 41, 64};
    rp_plan *plan;
    rp_tensors t = rp_tensors_init();
    t.q = t.k = t.v = rp_array_of(zeros, RP_F32, 4, shape);
    t.out = rp_array_of(out, RP_F32, 4, shape);
    t.term[0][0] = rp_array_of(zeros, RP_F32, 2, rows);
    t.term[0][0].stride[0] = 0;
    term.right = rows[0] / 2;
    term.left = term.right - 1;
    d.terms = &term;
    d.n_terms = 1;
    EACH_ISA(isa)
    {
        d.isa = isa;
        rp_status status = rp_plan_create(&plan, &d);
        if (status == RP_E_OVERFLOW)
            continue; /* creating the plan already fails, which is also correct */
        good(status);
        const size_t size = rp_plan_work_size(plan, NULL);
        if (size != 0 && size < (size_t)1 << 40)
            fail_msg("2^41 vectors of 64 for 32768 heads take %zu bytes of work on %s", size, isa);
        status = rp_attend(plan, &t, NULL); /* must fail: if the size had wrapped around, it would write past the end */
        if (status != RP_E_OVERFLOW && status != RP_E_NOMEM)
            fail_msg("%s (%s) for work that does not fit", rp_status_name(status), rp_last_error());
        assert_true(out[0] == 0.0f);
        rp_plan_destroy(plan);
    }
    /* a long context with narrow heads: rounding the size up to whole vectors overflows */
    d = rp_desc_init(1, 1, 1, (int64_t)1 << 58, 2);
    EACH_ISA(isa)
    {
        d.isa = isa;
        if (rp_plan_create(&plan, &d) != RP_OK)
            continue;
        const size_t size = rp_plan_work_size(plan, NULL);
        if (size != 0 && size < (size_t)1 << 58)
            fail_msg("2^58 keys take %zu bytes of work on %s", size, isa);
        rp_plan_destroy(plan);
    }
}

/* Return an array of ones with any shape. Its strides are 0, except for a last axis of length 2. */
static rp_array spread_out(int32_t ndim, const int64_t *shape)
{
    static const float ones[2] = {1, 1};
    rp_array a = rp_array_of(ones, RP_F32, ndim, shape);
    memset(a.stride, 0, sizeof a.stride);
    a.stride[ndim - 1] = shape[ndim - 1] == 2;
    return a;
}

static void expect_too_large(rp_status status, const char *call, const char *isa)
{
    if (status != RP_E_OVERFLOW && status != RP_E_NOMEM)
        fail_msg("%s on %s: %s (%s) for memory that does not fit", call, isa, rp_status_name(status), rp_last_error());
}

/* Check that each call fails if it needs more memory than 63 bits can count. It must not allocate too little. The
 * arrays have only a few bytes; strides of 0 make them look large. `wanted` is the index of an array of terms[0] whose
 * gradient is requested; it has `elements` floats. */
static void expect_each_too_large(const rp_desc *desc, rp_tensors *t, int wanted, int64_t elements, const char *isa)
{
    rp_desc d = *desc;
    rp_plan *plan;
    static double weights[1], bound[2];
    static float lse[1];
    const int64_t one[4] = {1, 1, 1, d.dim_k}, dout[4] = {d.batch, d.heads, d.len_q, d.dim_k};
    rp_row row = {.weights = weights};
    rp_grads g = rp_grads_init();
    rp_tangents x = rp_tangents_init();
    d.isa = isa;
    good(rp_plan_create(&plan, &d));
    expect_too_large(rp_attend_row(plan, t, 0, 0, 0, &row), "rp_attend_row", isa);
    if (d.heads == 1) { /* with many heads outputs would overlap, so only this case requests them */
        t->lse = rp_array_of(lse, RP_F32, 3, one);
        expect_too_large(rp_attend(plan, t, NULL), "rp_attend", isa);
        t->lse.data = NULL;
        x.lse = rp_array_of(lse, RP_F32, 3, one);
        expect_too_large(rp_jvp(plan, t, &x), "rp_jvp", isa);
        const rp_array b = rp_array_of(bound, RP_F64, 4, one);
        expect_too_large(rp_error_bound(plan, t, &b), "rp_error_bound", isa);
        x.lse = rp_array_of(bound, RP_F64, 3, one);
        expect_too_large(rp_tangent_bound(plan, t, &x), "rp_tangent_bound", isa);
        x.lse.data = NULL;
    }
    g.dout = spread_out(4, dout);
    float *gradient = calloc((size_t)elements, sizeof *gradient);
    double *gradient_bound = calloc((size_t)elements, sizeof *gradient_bound);
    if (wanted >= 0) {
        g.term[0][wanted] = rp_array_of(gradient, RP_F32, t->term[0][wanted].ndim, t->term[0][wanted].shape);
        expect_too_large(rp_backward(plan, t, &g, NULL), "rp_backward", isa);
        expect_too_large(rp_hvp(plan, t, &x, &g), "rp_hvp", isa);
        g.term[0][wanted] = rp_array_of(gradient_bound, RP_F64, t->term[0][wanted].ndim, t->term[0][wanted].shape);
        expect_too_large(rp_gradient_bound(plan, t, &g), "rp_gradient_bound", isa);
        expect_too_large(rp_hvp_bound(plan, t, &x, &g), "rp_hvp_bound", isa);
    } else {
        g.dq = rp_array_of(gradient, RP_F32, 4, one);
        expect_too_large(rp_backward(plan, t, &g, NULL), "rp_backward", isa);
        expect_too_large(rp_hvp(plan, t, &x, &g), "rp_hvp", isa);
        g.dq = rp_array_of(gradient_bound, RP_F64, 4, one);
        expect_too_large(rp_gradient_bound(plan, t, &g), "rp_gradient_bound", isa);
        expect_too_large(rp_hvp_bound(plan, t, &x, &g), "rp_hvp_bound", isa);
    }
    free(gradient);
    free(gradient_bound);
    rp_plan_destroy(plan);
}

/* Strides of 0 make small arrays look so large that no machine has enough memory for the prepared data. */
/* A call packs the vectors of its offsets only: 16 tokens need little memory beside a table of 2^21 vectors. */
static void a_large_table_costs_what_the_call_uses(void **state)
{
    (void)state;
    const rp_term_kind kinds[] = {RP_TERM_RELKEY, RP_TERM_DEBERTA};
    for (size_t n = 0; n < sizeof kinds / sizeof *kinds; n++) {
        rp_term term = rp_term_init(kinds[n]);
        rp_desc d = rp_desc_init(1, 12, 16, 16, 64);
        term.left = term.right = term.span = 1 << 20;
        d.terms = &term;
        d.n_terms = 1;
        EACH_ISA(isa)
        {
            rp_plan *plan;
            d.isa = isa;
            good(rp_plan_create(&plan, &d));
            const size_t size = rp_plan_work_size(plan, NULL);
            if (size == 0 || size > (size_t)16 << 20)
                fail_msg("16 tokens and 2^21 vectors of 64 for 12 heads take %zu bytes of work on %s", size, isa);
            rp_plan_destroy(plan);
        }
    }
}

static void memory_beyond_63_bits_is_refused(void **state)
{
    (void)state;
    EACH_ISA(isa)
    {
        /* the lines of FIRE for 2^50 heads overflow; the frequencies of RoPE are added to the size afterwards */
        const int64_t width = 1 << 20, heads = (int64_t)1 << 50;
        const int64_t shape[4] = {1, heads, 1, 2};
        const int64_t w1[2] = {width, 1}, w2[2] = {width, width}, w3[2] = {1, width}, b1[1] = {width}, b3[1] = {1};
        rp_term terms[2] = {rp_term_init(RP_TERM_FIRE), rp_term_init(RP_TERM_ROPE)};
        terms[0].c = terms[0].L = 1;
        terms[0].width = terms[0].width2 = width;
        rp_desc d = rp_desc_init(1, heads, 1, 1, 2);
        d.terms = terms;
        d.n_terms = 2;
        rp_tensors t = rp_tensors_init();
        t.q = t.k = t.v = spread_out(4, shape);
        t.term[0][0] = spread_out(2, w1);
        t.term[0][1] = t.term[0][3] = spread_out(1, b1);
        t.term[0][2] = spread_out(2, w2);
        t.term[0][4] = spread_out(2, w3);
        t.term[0][5] = spread_out(1, b3);
        expect_each_too_large(&d, &t, 1, width, isa);

        /* sums of 2^58 forget gates */
        const int64_t many = (int64_t)1 << 58, few[4] = {1, 1, 1, 2}, keys[4] = {1, 1, many, 2},
                      gates[3] = {1, 1, many};
        terms[0] = rp_term_init(RP_TERM_FORGET);
        d = rp_desc_init(1, 1, 1, many, 2);
        d.terms = terms;
        d.n_terms = 1;
        t = rp_tensors_init();
        t.q = spread_out(4, few);
        t.k = t.v = spread_out(4, keys);
        t.term[0][0] = spread_out(3, gates);
        t.lse.data = NULL;
        expect_each_too_large(&d, &t, -1, 2, isa);

        /* a row of the reference that needs slightly more than 2^64 bytes */
        const int64_t len = (int64_t)(UINT64_MAX / 41) + 10, narrow[4] = {1, 1, 1, 1}, long_keys[4] = {1, 1, len, 1};
        d = rp_desc_init(1, 1, 1, len, 1);
        t = rp_tensors_init();
        t.q = spread_out(4, narrow);
        t.k = t.v = spread_out(4, long_keys);
        expect_each_too_large(&d, &t, -1, 1, isa);
    }
}

/* A call that runs out of memory must not have written anything. A child process with little memory left requests
 * weights. */
static void a_call_without_memory_writes_nothing(void **state)
{
    (void)state;
    if (SANITIZED || EMULATED) {
        print_message("no_memory: not run, because sanitizers need more memory and emulators have no limit\n");
        return;
    }
    problem p;
    rp_pool *pool;
    good(rp_pool_create(&pool, 1));
    int refused = 0;
    EACH_ISA(isa)
    {
        pose(&p, 7, "fwd:f32:b1h1q2k500000d4");
        also(&p, WITH_WEIGHTS | WITH_LSE, RP_F32);
        p.t.pool = pool;
        unsigned char *arrays[3] = {p.t.weights.data, p.t.lse.data, p.t.out.data};
        const size_t bytes[3] = {2 * 500000 * 4, 2 * 4, 2 * 4 * 4};
        for (int n = 0; n < 3; n++)
            memset(arrays[n], 0xa5, bytes[n]);
        for (int mb = 2; mb < 30; mb += 4) {
            fflush(NULL);
            pid_t child = fork();
            assert_true(child >= 0);
            if (child == 0) {
                limit_memory(mb);
                const rp_status status = attempt(&p, isa, NULL);
                if (status == RP_OK)
                    _exit(0);
                for (int n = 0; n < 3; n++)
                    for (size_t c = 0; c < bytes[n]; c++)
                        if (arrays[n][c] != 0xa5)
                            _exit(2);
                _exit(status == RP_E_NOMEM && strstr(rp_last_error(), "bytes") ? 1 : 3);
            }
            int how;
            assert_int_equal(waitpid(child, &how, 0), child);
            if (!WIFEXITED(how) || WEXITSTATUS(how) > 1)
                wrong(&p, isa, "with %d MB left the child ended with %d (2: an output was written)", mb,
                      WIFEXITED(how) ? WEXITSTATUS(how) : -WTERMSIG(how));
            refused += WEXITSTATUS(how);
        }
        problem_free(&p);
    }
    print_message("no_memory: %d calls failed\n", refused);
    assert_true(refused > 0);
    rp_pool_destroy(pool);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(work_is_aligned_and_its_size_fits),
        cmocka_unit_test(a_large_table_costs_what_the_call_uses),
        cmocka_unit_test(memory_beyond_63_bits_is_refused),
        cmocka_unit_test(a_call_without_memory_writes_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
