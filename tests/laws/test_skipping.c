/* test_skipping.c -- tiles that are skipped because all their weights are 0. For any numbers, the bits are the same
 * with and without skipping.
 * SPDX-License-Identifier: Apache-2.0 */
#include "tests/helpers.h"

static void skipping(bool on)
{
    if (on)
        unsetenv("RELPOS_SKIP");
    else
        setenv("RELPOS_SKIP", "0", 1);
}

/* A function that changes the numbers of a problem before it runs. */
typedef void disturb(problem *p, uint64_t *state);

static void nothing(problem *p, uint64_t *state)
{
    (void)p, (void)state;
}

/* Set n elements of an array, drawn at random. */
static void sprinkle(const rp_array *a, uint64_t *state, int n, double x)
{
    while (n-- > 0)
        set(a, (int64_t)(draw(state) % (uint64_t)problem_size(a)), x);
}

static void far_keys_of_huge_norm(problem *p, uint64_t *state)
{
    sprinkle(&p->t.k, state, 3, 3e3);
    sprinkle(&p->t.k, state, 2, -3e4);
}

static void huge_queries(problem *p, uint64_t *state)
{
    sprinkle(&p->t.q, state, 5, 2e4);
}

static void huge_values(problem *p, uint64_t *state)
{
    const double size = p->t.v.dtype == RP_F16 ? 6e4 : 1e30;
    sprinkle(&p->t.v, state, 9, size);
    sprinkle(&p->t.v, state, 9, -size);
}

static void tiny_numbers(problem *p, uint64_t *state)
{
    rp_array *all[] = {&p->t.k, &p->t.v, &p->t.q};
    (void)state;
    for (int x = 0; x < 3; x++)
        for (int64_t n = 0; n < problem_size(all[x]); n++)
            set(all[x], n, at(all[x], n) * (p->t.v.dtype == RP_F64 ? 1e-306 : 1e-37));
}

static void values_that_are_not_finite(problem *p, uint64_t *state)
{
    sprinkle(&p->t.v, state, 2, INFINITY);
    sprinkle(&p->t.v, state, 1, NAN);
}

static void keys_that_are_not_finite(problem *p, uint64_t *state)
{
    sprinkle(&p->t.k, state, 1, INFINITY);
    sprinkle(&p->t.k, state, 1, NAN);
    sprinkle(&p->t.k, state, 1, p->t.k.dtype == RP_F16 ? -6e4 : -1e30);
}

static void queries_that_are_not_finite(problem *p, uint64_t *state)
{
    sprinkle(&p->t.q, state, 1, NAN);
    sprinkle(&p->t.q, state, 1, -INFINITY);
}

/* Mask the key at the query's own position in about half of the rows. */
static void own_keys_masked(problem *p, uint64_t *state)
{
    for (int32_t m = 0; m < p->desc.n_masks; m++)
        for (int64_t n = 0; p->t.mask[m].data && p->t.mask[m].dtype == RP_BOOL && n < problem_size(&p->t.mask[m]); n++)
            ((uint8_t *)p->t.mask[m].data)[n] = draw(state) & 1;
}

static disturb *const disturbances[] = {nothing,
                                        far_keys_of_huge_norm,
                                        huge_queries,
                                        huge_values,
                                        tiny_numbers,
                                        values_that_are_not_finite,
                                        keys_that_are_not_finite,
                                        queries_that_are_not_finite,
                                        own_keys_masked};
/* Run every EVERY-th disturbance; all of them would take a quarter of an hour under qemu and two minutes under
 * sanitizers. */
enum { DISTURBANCES = sizeof disturbances / sizeof *disturbances, EVERY = EMULATED ? 13 : SANITIZED ? 5 : 1 };

static const char *const texts[] = {
    "f32:b1h4q700k1900d16:alibi",
    "f32:b1h4q1900k1900d16:alibi:causal",
    "f64:b1h2q300k1800d9v5:alibi+sink,rows=1:causal",
    "bf16:b1h4g2q200k1700d24v40:linear,left=0.4,right=0.2:window=1300,900",
    "f16:b1h2q150k1650d16:alibi:key_mask",
    "f32:b2h2q130k1700d16o1500:linear,left=0.3,right=0.3+t5:causal",
    "f32:b1h4q60k2100d33v17o900:alibi+log:softcap=20+lengths",
    "f32:b1h2q1500k1500d16:linear,left=0.5,right=0.5:segments",
    "f32:b1h2q700k1300d8o600:forget:",
    "f32:b1h2q800k1400d16o600:forget+alibi+sink:key_mask",
    "f32:b1h4q5k3000d16o2995:alibi:causal",
    "f32:b1h4g1q3k2600d16o1300:alibi:",
    "f32:b1h2q700k1500d16o-40:alibi+rope:dropout=0.3",
    "f32:b1h2q300k1100d16o700:alibi+kerple,kind=power:mask",
    "f32:b1h2q300k1100d16:alibi+t5+dense:causal",
    "f32:b1h2q100k1300d16:table,left=600,right=600:",
    "f32:b1h2q300k900d16o3000:linear,left=0.1,right=0.1:", /* all scores are about -200 */
};

/* Make gates forget so fast that tiles can be skipped, and make tables fall steeply. */
static void strengthen(problem *p, uint64_t *state)
{
    for (int32_t n = 0; n < p->desc.n_terms; n++) {
        const rp_array *a = &p->t.term[n][0];
        for (int64_t x = 0; p->terms[n].kind == RP_TERM_FORGET && x < problem_size(a); x++)
            set(a, x, at(a, x) * 10);
        for (int64_t x = 0; p->terms[n].kind == RP_TERM_TABLE && x < problem_size(a); x++)
            set(a, x, -0.4 * fabs((double)(x % 1201 - 600)) + (draw(state) % 100 == 0 ? 20 : 0));
    }
}

/* Check that every output of a forward call has the same bits with and without skipping. */
static void forward_case(problem *p, const char *isa, int32_t threads)
{
    const size_t bytes = (size_t)problem_size(&p->t.out) * rp_dtype_size(p->t.out.dtype),
                 rows = (size_t)problem_size(&p->t.lse) * 8;
    good(rp_pool_create(&p->t.pool, threads));
    skipping(false);
    attend(p, isa);
    rp_array out = p->t.out, lse = p->t.lse;
    out.data = copy_of(&out);
    lse.data = copy_of(&lse);
    skipping(true);
    memset(p->t.out.data, 0x55, bytes);
    memset(p->t.lse.data, 0x55, rows);
    attend(p, isa);
    same_numbers(p, isa, "out with tiles left out", &out, &p->t.out);
    same_numbers(p, isa, "lse with tiles left out", &lse, &p->t.lse);
    free(out.data);
    free(lse.data);
    rp_pool_destroy(p->t.pool);
    p->t.pool = NULL;
}

/* True if case n of the disturbed problems runs on an instruction set. */
#define RUNS(isa, n) (SLOW(isa) ? (n) % (all_cases() ? 5 : 11) == 0 : PART(isa, n, 3))

static void forward_has_the_same_bits(void **state)
{
    uint64_t random = 5;
    problem p;
    (void)state;
    for (size_t n = 0; n < sizeof texts / sizeof *texts; n++)
        for (size_t x = 0; x < DISTURBANCES; x++) {
            if ((n + x) % EVERY)
                continue;
            pose(&p, 70 + n, "fwd:%s", texts[n]);
            also(&p, WITH_LSE, RP_F64);
            strengthen(&p, &random);
            disturbances[x](&p, &random);
            EACH_ISA(isa)
            {
                if (RUNS(isa, n + x))
                    forward_case(&p, isa, 1 + (int32_t)(n % 3));
            }
            problem_free(&p);
        }
}

/* Check that all gradients have the same bits with and without skipping. */
static void backward_case(problem *p, const char *isa, int32_t threads, bool given)
{
    const int kept = p->n_memory;
    good(rp_pool_create(&p->t.pool, threads));
    rp_grads g = gradients_like(p, p->g.dq.dtype);
    skipping(false);
    backward(p, isa, &g, given);
    skipping(true);
    backward(p, isa, &p->g, given);
    for (int a = 0; a < GRADIENTS; a++)
        if (gradient(&g, a)->data)
            same_numbers(p, isa, gradient_name(p, a), gradient(&g, a), gradient(&p->g, a));
    rp_pool_destroy(p->t.pool);
    p->t.pool = NULL;
    release(p, kept);
}

static void backward_has_the_same_bits(void **state)
{
    uint64_t random = 6;
    problem p;
    (void)state;
    for (size_t n = 0; n < sizeof texts / sizeof *texts; n++)
        for (size_t x = 0; x < DISTURBANCES; x++) {
            if ((n + x) % (2 * EVERY))
                continue;
            pose(&p, 90 + n, "fwdbwd:%s", texts[n]);
            also(&p, WITH_LSE, RP_F64);
            strengthen(&p, &random);
            disturbances[x](&p, &random);
            if (x == 0 && n % 4 == 0)
                sprinkle(&p.g.dout, &random, 2, n % 8 ? NAN : 1e30);
            EACH_ISA(isa)
            {
                if (RUNS(isa, (n + x) / 2))
                    backward_case(&p, isa, 1 + (int32_t)(n % 3), n % 3 != 0);
            }
            problem_free(&p);
        }
}

/* If there are few queries and key norms are known, far keys are skipped without being read, so their contents do not
 * matter. */
static void few_queries_do_not_read_far_keys(void **state)
{
    static const char *const few[] = {
        "f32:b2h4g2q1k5000d16o4999:linear,left=0.2,right=0.2:causal",
        "f64:b1h2q3k4000d24o3990:alibi,slopes=given+sink:",
        "bf16:b1h2g1q4k3000d16o2996:linear,left=0.3,right=1:causal",
        "f16:b1h4g2q2k3000d16o1500:linear,left=0.3,right=0.3+t5:",
        "f32:b1h2q1k4000d16o3999:forget:",
    };
    uint64_t random = 7;
    problem p;
    (void)state;
    for (size_t n = 0; n < sizeof few / sizeof *few; n++)
        EACH_ISA(isa)
        {
            pose(&p, 110 + n, "fwd:%s", few[n]);
            also(&p, WITH_LSE, RP_F64);
            strengthen(&p, &random);
            for (int64_t x = 0; p.terms[0].kind == RP_TERM_ALIBI && x < problem_size(&p.t.term[0][0]); x++)
                set(&p.t.term[0][0], x, 0.5);
            const int64_t Lk = p.desc.len_k, half = Lk / 2 + 7,
                          shape[3] = {p.desc.batch, p.t.k.shape[1], (Lk + 63) / 64 + 3};
            const rp_array norms = array_in(&p, n % 2 ? RP_F64 : RP_F32, 3, shape);
            rp_plan *plan;
            int64_t pairs[2];
            attend(&p, isa);
            void *out = copy_of(&p.t.out), *lse = copy_of(&p.t.lse);
            p.t.pairs = pairs;
            forward_case(&p, isa, 2);
            assert_true(pairs[0] > 0 && pairs[1] == pairs[0]); /* no norms are known */
            /* norms of the first keys, then of the keys appended later */
            rp_tensors keys = p.t;
            p.desc.isa = isa;
            p.desc.flexible = 1;
            good(rp_plan_create(&plan, &p.desc));
            keys.k.shape[2] = keys.v.shape[2] = half;
            good(rp_key_norms(plan, &keys, 0, &norms));
            good(rp_key_norms(plan, &p.t, half, &norms));
            rp_plan_destroy(plan);
            p.desc.flexible = 0;
            p.t.key_norms = norms;
            forward_case(&p, isa, 2);
            assert_true(pairs[1] > 0 && pairs[1] < pairs[0] / 2);
            const int64_t far = p.desc.q_offset > Lk - 500 ? 1536 : 512;
            for (int64_t b = 0; b < p.desc.batch * p.t.k.shape[1]; b++)
                for (int64_t x = 0; x < far * p.desc.dim_k; x++) {
                    set(&p.t.k, b * Lk * p.desc.dim_k + x, NAN);
                    set(&p.t.v, b * Lk * p.desc.dim_k + x, INFINITY);
                }
            attend(&p, isa);
            same_bits(&p, isa, "out with far keys unread", out, p.t.out.data,
                      (size_t)problem_size(&p.t.out) * rp_dtype_size(p.t.out.dtype));
            same_bits(&p, isa, "lse with far keys unread", lse, p.t.lse.data, (size_t)problem_size(&p.t.lse) * 8);
            /* after computing the norms again, these keys cannot be skipped */
            good(rp_plan_create(&plan, &p.desc));
            good(rp_key_norms(plan, &p.t, 0, &norms));
            rp_plan_destroy(plan);
            attend(&p, isa);
            assert_true(isnan(at(&p.t.lse, 0)));
            free(out);
            free(lse);
            problem_free(&p);
        }
}

/* Norms of pages skip far keys too, for any size of page, and after keys are appended. */
static void few_queries_skip_far_pages(void **state)
{
    static const char *const few[] = {
        "f32:b2h4g2q1k5000d16o4999:linear,left=0.2,right=0.2:causal",
        "f16:b1h4g2q2k3000d16o1500:linear,left=0.3,right=0.3+t5:",
        "f32:b1h2q1k4000d16o3999:forget:",
    };
    static const int64_t sizes[] = {8, 100, 200, 1000}; /* of pages, which divide the lengths */
    uint64_t random = 9;
    problem p;
    (void)state;
    for (size_t n = 0; n < sizeof few / sizeof *few * (sizeof sizes / sizeof *sizes); n++)
        EACH_ISA(isa)
        {
            if ((SLOW(isa) || EMULATED) && n % 5)
                continue;
            pose(&p, 170 + n, "fwd:%s", few[n % 3]);
            also(&p, WITH_LSE, RP_F64);
            strengthen(&p, &random);
            const rp_desc *d = &p.desc;
            const int64_t page = sizes[n / 3], per_batch = (d->len_k + page - 1) / page, Hk = p.t.k.shape[1],
                          of_page = Hk * ((page + 63) / 64), all = d->batch * per_batch,
                          size = (int64_t)rp_dtype_size(d->dtype);
            const void **k = problem_alloc(&p, (size_t)all * sizeof *k),
                       **v = problem_alloc(&p, (size_t)all * sizeof *v);
            void **norms = problem_alloc(&p, (size_t)all * sizeof *norms);
            float *norm = problem_alloc(&p, (size_t)(all * of_page) * sizeof *norm);
            int64_t pairs[2];
            attend(&p, isa);
            void *out = copy_of(&p.t.out);
            for (int64_t m = 0; m < all; m++) {
                const int64_t at = (m / per_batch * Hk * d->len_k + m % per_batch * page) * d->dim_k * size;
                k[m] = (const char *)p.t.k.data + at, v[m] = (const char *)p.t.v.data + at;
                norms[m] = norm + (all - 1 - m) * of_page;
            }
            p.t.k.data = p.t.v.data = NULL;
            p.t.pages =
                (rp_pages){k,        v, page, per_batch, d->len_k, d->len_k * d->dim_k, d->dim_k, d->len_k * d->dim_k,
                           d->dim_k, 0, norms};
            p.t.pairs = pairs;
            p.desc.isa = isa;
            p.desc.flexible = 1;
            rp_plan *plan;
            good(rp_plan_create(&plan, d));
            rp_tensors keys = p.t;
            keys.pages.len_k = d->len_k / 2 + 7;
            good(rp_key_norms(plan, &keys, 0, NULL));
            good(rp_key_norms(plan, &p.t, keys.pages.len_k, NULL));
            rp_plan_destroy(plan);
            p.desc.flexible = 0;
            forward_case(&p, isa, 2);
            assert_true(pairs[1] > 0 && pairs[1] < pairs[0] / 2);
            same_bits(&p, isa, "out with norms of pages", out, p.t.out.data, (size_t)(problem_size(&p.t.out) * size));
            free(out);
            problem_free(&p);
        }
}

/* Check the fraction of computed pairs: steep slopes and forget gates skip most pairs, other biases skip none. */
static void pairs_are_counted(void **state)
{
    static const struct {
        const char *text;
        double low, high;
    } cases[] = {
        {"f32:b1h2q3000k3000d16:linear,left=0.4,right=0.4", 0.1, 0.35},
        {"f32:b1h2q3000k3000d16:linear,left=0.4,right=0.4:causal", 0.1, 0.4},
        {"f32:b1h2q3000k3000d16:forget", 0.01, 0.5},
        {"f32:b1h2q1300k1300d16:t5", 1, 1},
        {"f32:b1h2q1300k1300d16:", 1, 1},
        {"f32:b1h2q600k600d16:alibi+dense", 1, 1},
    };
    uint64_t random = 8;
    problem p;
    (void)state;
    for (size_t n = 0; n < sizeof cases / sizeof *cases; n++)
        EACH_ISA(isa)
        {
            int64_t pairs[2] = {-1, -1};
            pose(&p, 130 + n, "fwd:%s", cases[n].text);
            strengthen(&p, &random);
            p.t.pairs = pairs;
            if (n > 0 && (SLOW(isa) || EMULATED || (n < 3 && !PART(isa, n, 2)))) {
                problem_free(&p);
                continue;
            }
            attend(&p, isa);
            const double share = (double)pairs[1] / (double)pairs[0];
            if (!(share >= cases[n].low && share <= cases[n].high))
                wrong(&p, isa, "%.3f of the pairs were computed: %g to %g expected", share, cases[n].low,
                      cases[n].high);
            skipping(false);
            attend(&p, isa);
            assert_true(pairs[0] > 0 && pairs[0] == pairs[1]);
            skipping(true);
            problem_free(&p);
        }
}

/* Forget gates of -500 and -60 at the first keys of tiles. Plain loops determine which pairs are in skipped tiles and
 * which are computed, for any block size. */
static void the_count_matches_plain_loops(void **state)
{
    static const char *const calls[] = {"f32:b2h3q300k1900d16o1536:forget:causal",
                                        "f32:b1h2q2k1900d16o1800:forget:causal",
                                        "bf16:b1h4g2q130k1700d8o1536:forget:window=1400,0"};
    problem p;
    (void)state;
    for (size_t n = 0; n < sizeof calls / sizeof *calls; n++)
        EACH_ISA(isa)
        {
            pose(&p, 150 + n, "fwd:%s", calls[n]);
            const rp_desc *d = &p.desc;
            const rp_array *gates = &p.t.term[0][0];
            const int64_t rows = d->batch * d->heads, Lk = d->len_k,
                          shape[3] = {d->batch, p.t.k.shape[1], (Lk + RP_NORM_KEYS - 1) / RP_NORM_KEYS};
            int64_t pairs[2], allowed = 0, computed = 0;
            for (int64_t x = 0; x < rows * Lk; x++)
                set(gates, x, x % Lk == 512 ? -500 : x % Lk == 1024 || x % Lk == 1536 ? -60 : 0);
            for (int64_t i = d->q_offset; i < d->q_offset + d->len_q; i++) {
                double bias = 0; /* the sum of the gates of keys j + 1 to i */
                for (int64_t j = i, first = n == 2 ? i - 1400 : 0; j >= first; j--) {
                    allowed += rows;
                    computed += bias > -88 ? rows : 0;
                    bias += at(gates, j);
                }
            }
            p.t.pairs = pairs;
            for (int known = 0; known < 2; known++) { /* norms of keys, which calls with few queries need */
                const rp_array norms = array_in(&p, RP_F32, 3, shape);
                rp_plan *plan;
                p.desc.isa = isa;
                good(rp_plan_create(&plan, d));
                good(rp_key_norms(plan, &p.t, 0, &norms));
                rp_plan_destroy(plan);
                p.t.key_norms = known ? norms : (rp_array){0};
                attend(&p, isa);
                const int64_t want = d->len_q < 8 && !known ? allowed : computed;
                if (pairs[0] != allowed || pairs[1] != want)
                    wrong(&p, isa, "%lld of %lld pairs were counted: plain loops find %lld of %lld",
                          (long long)pairs[1], (long long)pairs[0], (long long)want, (long long)allowed);
                skipping(false);
                attend(&p, isa);
                skipping(true);
                assert_true(pairs[0] == allowed && pairs[1] == allowed);
            }
            problem_free(&p);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(forward_has_the_same_bits),
        cmocka_unit_test(backward_has_the_same_bits),
        cmocka_unit_test(few_queries_do_not_read_far_keys),
        cmocka_unit_test(few_queries_skip_far_pages),
        cmocka_unit_test(pairs_are_counted),
        cmocka_unit_test(the_count_matches_plain_loops),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
