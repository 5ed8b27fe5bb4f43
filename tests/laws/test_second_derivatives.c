/* test_second_derivatives.c -- second derivatives: against central differences of gradients, symmetry, and what must
 * not change a bit of them; the fast path against plain loops, with rp_hvp_bound as tolerance.
 * SPDX-License-Identifier: Apache-2.0 */
#include "tests/laws/bounds.h"
#include "tests/laws/tangents.h"

static double worst_difference, worst_symmetry;

static void run_backward(problem *p)
{
    backward(p, "reference", &p->g, false);
}

/* rp_hvp does not support gradients of weights. */
static rp_grads of_out_and_lse(problem *p)
{
    drop_weight_gradients(p);
    return gradients_like(p, RP_F64);
}

/* The Hessian times the tangents is how the gradients change along the tangents. */
static void equal_differences(problem *p)
{
    rp_tangents x = tangents_of(p, 3, RP_F64, RP_F64), y = tangents_of(p, 3, RP_F64, RP_F64);
    rp_grads got = of_out_and_lse(p), want = gradients_like(p, RP_F64);
    rp_array *of[GRADIENTS], *to[GRADIENTS];
    int n = 0;
    for (int m = 0; m < GRADIENTS; m++)
        if (gradient(&p->g, m)->data)
            of[n] = gradient(&p->g, m), to[n++] = gradient(&want, m);
    differences(p, &x, run_backward, of, to, n);
    hvp(p, "reference", &x, &got);
    for (int m = 0; m < GRADIENTS; m++)
        if (gradient(&got, m)->data)
            worst_difference = fmax(worst_difference, near_differences(p, gradient_name(p, m), gradient(&got, m),
                                                                       gradient(&want, m), gradient(&p->g, m)));
    jvp(p, "reference", &y);
    same_tangents(p, "reference", "tangents of rp_jvp and rp_hvp", &y, &x);
}

static void second_derivatives_equal_differences(void **state)
{
    (void)state;
    each_problem(equal_differences);
    print_message("against differences: largest error / tolerance %.3g\n", worst_difference);
}

/* <u, H x> = <x, H u>. Each side adds up the same products in double, with fewer than 1000 roundings in a chain. */
static void symmetric(problem *p)
{
    rp_tangents x = tangents_of(p, 5, RP_F64, RP_F64), u = tangents_of(p, 6, RP_F64, RP_F64);
    rp_grads of_x = of_out_and_lse(p), of_u = gradients_like(p, RP_F64);
    double one = 0, other = 0, size = 0;
    hvp(p, "reference", &x, &of_x);
    hvp(p, "reference", &u, &of_u);
    for (int m = 0; m < GRADIENTS; m++) {
        one += dot(tangent(&u, m), gradient(&of_x, m), &size);
        other += dot(tangent(&x, m), gradient(&of_u, m), &size);
    }
    worst_symmetry = fmax(worst_symmetry, size > 0 ? fabs(one - other) / size : 0);
    if (!(fabs(one - other) <= 1000 * 0x1p-53 * size))
        wrong(p, "reference", "<u, H x> is %.17g, <x, H u> is %.17g, of %.3g", one, other, size);
}

static void the_hessian_is_symmetric(void **state)
{
    (void)state;
    each_problem(symmetric);
    print_message("symmetry: largest difference %.3g, tolerance %.3g\n", worst_symmetry, 1000 * 0x1p-53);
}

/* The number of threads, strides, maximum lengths in the plan, and which results are computed change no bit. */
static void nothing_changes_a_bit(void **state)
{
    const rp_array none = {0};
    problem p;
    (void)state;
    for (int n = 0; n < SUMS; n++)
        EACH_PATH(path)
        {
            if ((SLOW(path) || path_n < 0) && n % 3)
                continue;
            pose(&p, 5, "bwd:%s:%s", rp_dtype_name((rp_dtype)(n % 4)), sums[n]);
            drop_weight_gradients(&p);
            rp_tangents x = tangents_of(&p, 6, p.desc.dtype, RP_F64), y = x;
            rp_grads want = gradients_like(&p, RP_F64), got = gradients_like(&p, RP_F64);
            y.out = array_in(&p, RP_F64, 4, x.out.shape);
            y.lse = array_in(&p, RP_F64, 3, x.lse.shape);
            hvp(&p, path, &x, &want);
            jvp(&p, path, &y);
            same_tangents(&p, path, "tangents of rp_jvp and rp_hvp", &x, &y);
            good(rp_pool_create(&p.t.pool, 3));
            hvp(&p, path, &y, &got);
            same_gradients(&p, path, "three threads", &want, &got);
            same_tangents(&p, path, "three threads", &x, &y);
            rp_pool_destroy(p.t.pool);
            p.t.pool = NULL;
            for (int m = 0; m < GRADIENTS; m++) { /* all results, then without the second, then without the fourth, … */
                if (m > 0 && (m % 2 == 0 || !gradient(&got, m)->data))
                    continue;
                if (m > 0)
                    *gradient(&got, m) = none;
                else if (gradient(&want, m)->data)
                    memset(gradient(&got, m)->data, 0, (size_t)problem_size(gradient(&got, m)) * 8);
                if (m >= 3 && m % 3 == 0)
                    *tangent(&y, m) = scattered(&p, tangent(&x, m));
            }
            y.q = scattered(&p, &x.q);
            y.k = transposed(&p, &x.k);
            y.lse.data = NULL;
            hvp(&p, path, &y, &got);
            same_gradients(&p, path, "some of the results, other strides", &want, &got);
            if (!strstr(sums[n], "grid")) {
                p.desc.flexible = 1;
                p.desc.len_q += 70;
                p.desc.len_k += 400;
                hvp(&p, path, &x, &got);
                same_gradients(&p, path, "a flexible plan", &want, &got);
            }
            problem_free(&p);
        }
}

/* Compare second derivatives on every instruction set with plain loops in double on the same inputs. */
static void judged(problem *p, uint64_t seed)
{
    static int turn;
    const rp_dtype type = p->desc.dtype;
    turn++;
    drop_weight_gradients(p);
    rp_tangents x = tangents_of(p, seed, type, RP_F64);
    rp_grads want = gradients_like(p, RP_F64), bound = gradients_like(p, RP_F64), got = gradients_like(p, type);
    rp_plan *plan;
    p->t.out.data = p->t.lse.data = NULL;
    hvp(p, "reference", &x, &want);
    EACH_ISA(isa)
    {
        if ((SLOW(isa) && (p->desc.len_k > 100 || (turn % 3 && !all_cases()))) || (SANITIZED && !PART(isa, turn, 4)))
            continue;
        p->desc.isa = isa;
        good(rp_plan_create(&plan, &p->desc));
        good(rp_hvp_bound(plan, &p->t, &x, &bound));
        rp_plan_destroy(plan);
        hvp(p, isa, &x, &got);
        for (int n = 0; n < GRADIENTS; n++) {
            const rp_array *g = gradient(&got, n), *w = gradient(&want, n), *b = gradient(&bound, n);
            for (int64_t e = 0; g->data && e < problem_size(g); e++)
                if (!within(g, at(g, e), at(w, e), at(b, e)))
                    wrong(p, isa, "%s[%lld] is %.9g, not %.9g: bound %.3g", gradient_name(p, n), (long long)e, at(g, e),
                          at(w, e), at(b, e));
        }
    }
}

static void show_errors(const char *what)
{
    const double worst = worst_ratio;
    show(what);
    assert_true(worst > 0);
}

/* Every term with every setting in turn, and numbers of queries, keys and channels near those of blocks and tiles. */
static void errors_keep_their_bounds(void **state)
{
    static const int queries[] = {1, 5, 7, 96, 97, 193}, keys[] = {1, 63, 65, 256, 257, 600}, widths[] = {1, 3, 16, 65};
    static const char *const of_any_width[] = {"t5,buckets=8,max_distance=20",
                                               "dense",
                                               "sink+alibi,slopes=x",
                                               "",
                                               "relkey,left=4,right=2+relval,left=200,right=3",
                                               "xl",
                                               "deberta,span=12",
                                               "forget"};
    problem p;
    (void)state;
    for (int n = 0; n < TERMS; n++)
        for (int type = 0; type < 3; type++) {
            const char *set = settings[(n + 7 * type) % SETTINGS];
            if (terms[n].sizes && (strstr(set, "q_offsets") || strstr(set, "positions"))) /* grids need offset 0 */
                set = "causal+softcap=1.5+softcap_after=2+dsoftcap";
            pose(&p, (uint64_t)n + 1, "bwd:%s:%s:%s:%s",
                 type > 1 ? (n % 2 ? "bf16" : "f16")
                 : type   ? "f64"
                          : "f32",
                 terms[n].sizes ? terms[n].sizes : small[n % SMALL], terms[n].text, set);
            judged(&p, (uint64_t)n);
            problem_free(&p);
        }
    show_errors("terms");
    for (int n = 0; n < 16; n++) {
        pose(&p, (uint64_t)n + 1, "bwd:f32:b1h2g1q%dk%dd%dv%do%d:%s:%s", queries[n % 6], keys[(n * 5 + n / 6) % 6],
             widths[n % 4], widths[(n + n / 4) % 4],
             n % 3   ? 0
             : n % 2 ? 300
                     : -3,
             of_any_width[(n + n / 8) % 8], settings[n % SETTINGS]);
        judged(&p, (uint64_t)n);
        problem_free(&p);
    }
    show_errors("sizes");
}

/* Logits in the hundreds and in the hundred thousands, where weights are 0 or 1, and numbers near 0. */
static void large_and_small_numbers_keep_their_bounds(void **state)
{
    static const double sizes[][4] = {
        /* of q, k, v, dout */
        {300, 1, 1, 1},      {1e5, 1, 1, 1}, {1, 1, 1e8, 1e-42}, {1, 1, 1e-42, 1e8}, {1e-25, 1e25, 1e-20, 1e-20},
        {1, 1e-40, 1e6, 1e6}};
    static const char *const texts[] = {"b1h2q20k70d6v5:t5,buckets=8,max_distance=20+sink:causal",
                                        "b1h2q7k70d16:rope:", "b1h2q20k70d6:alibi+dense:softcap=90+dsoftcap"};
    problem p;
    (void)state;
    for (size_t n = 0; n < sizeof texts / sizeof *texts; n++)
        for (size_t m = 0; m < sizeof sizes / sizeof *sizes; m++) {
            pose(&p, 7 + n, "bwd:f32:%s", texts[n]);
            const rp_array *const arrays[] = {&p.t.q, &p.t.k, &p.t.v, &p.g.dout};
            for (int a = 0; a < 4; a++)
                for (int64_t x = 0; x < problem_size(arrays[a]); x++)
                    set(arrays[a], x, at(arrays[a], x) * sizes[m][a]);
            judged(&p, n);
            problem_free(&p);
        }
    assert_true(infinite == 0);
    show_errors("large logits and numbers near 0");
}

/* Results of f16, bf16 and f32 arrays are those of the same numbers in f64, rounded once. */
static void types_only_round(void **state)
{
    problem p;
    (void)state;
    for (int n = 0; n < TERMS; n++) {
        const rp_dtype type = (rp_dtype[]){RP_F32, RP_BF16, RP_F16}[n % 3];
        pose(&p, 9, "bwd:%s:%s:%s:causal+softcap=2+dlse+dsoftcap", rp_dtype_name(type),
             terms[n].sizes ? terms[n].sizes : small[n % SMALL], terms[n].text);
        rp_tangents x = tangents_of(&p, 7, type, RP_F64), y = tangents_of(&p, 7, RP_F64, RP_F64);
        rp_grads narrow = gradients_like(&p, type), wide = gradients_like(&p, RP_F64);
        p.t.out.data = p.t.lse.data = NULL;
        hvp(&p, "reference", &x, &narrow);
        for (int m = -2; m < GRADIENTS; m++)
            for (int which = 0; which < 2; which++) {
                rp_array *from = m < 0 ? (m + 2 ? &wide.dlse : &wide.dout) : which ? tangent(&x, m) : source_of(&p, m);
                if (m >= 0 ? !tangent(&x, m)->data : which)
                    continue;
                *(m >= 0 && which ? tangent(&y, m) : from) = converted(&p, from, RP_F64);
            }
        p.desc.dtype = RP_F64;
        hvp(&p, "reference", &y, &wide);
        for (int m = 0; m < GRADIENTS; m++) {
            const rp_array *of = gradient(&wide, m);
            if (!of->data)
                continue;
            const rp_array rounded = converted(&p, of, type);
            same_numbers(&p, "reference", gradient_name(&p, m), &rounded, gradient(&narrow, m));
        }
        problem_free(&p);
    }
}

/* A call in which a row attends to NaN or infinity has the bits of plain loops. */
static void numbers_that_are_not_finite_go_to_plain_loops(void **state)
{
    problem p;
    (void)state;
    for (int n = 0; n < 4; n++)
        EACH_ISA(isa)
        {
            pose(&p, 12, "bwd:f32:b1h2q20k30d6v5:%s:causal",
                 n % 2 ? "relkey,left=3,right=3+relval,left=3,right=3" : "t5");
            rp_tangents x = tangents_of(&p, 8, RP_F32, RP_F64);
            rp_grads want = gradients_like(&p, RP_F64), got = gradients_like(&p, RP_F64);
            set(n < 2 ? &x.q : &p.t.v, 17, n % 2 ? NAN : INFINITY);
            hvp(&p, "reference", &x, &want);
            hvp(&p, isa, &x, &got);
            same_gradients(&p, isa, "not finite", &want, &got);
            problem_free(&p);
        }
}

/* A key without a query, or a query without a key, gets exact zeros, and NaN in it changes nothing. */
static void masked_pairs_have_no_effect(void **state)
{
    problem p;
    (void)state;
    for (size_t n = 0; n < MASKED; n++)
        EACH_PATH(path)
        {
            pose_masked(&p, masked[n], "+softcap=3+dsoftcap");
            rp_tangents x = tangents_of(&p, 8, RP_F64, RP_F64);
            rp_grads want = gradients_like(&p, RP_F64), got = gradients_like(&p, RP_F64);
            hvp(&p, path, &x, &want);
            for (int64_t h = 0; h < 2; h++) {
                for (int64_t c = 0; c < 6; c++)
                    if (at(&want.dq, (h * L + ROW) * 6 + c) != 0 || at(&want.dk, (h * L + KEY) * 6 + c) != 0)
                        wrong(&p, path, "a second derivative of a masked row or key is not 0");
                for (int64_t c = 0; c < 5; c++) {
                    set(&p.g.dout, (h * L + ROW) * 5 + c, NAN);
                    if (at(&want.dv, (h * L + KEY) * 5 + c) != 0)
                        wrong(&p, path, "a second derivative of a masked value is not 0");
                }
            }
            spoil(&p, &x);
            got.dout = p.g.dout;
            if (strcmp(masked[n], "sink") == 0) /* a row with a sink has a weight */
                got.dout = want.dout;
            hvp(&p, path, &x, &got);
            same_gradients(&p, path, "NaN in what is masked", &want, &got);
            problem_free(&p);
        }
}

/* No keys, no queries or no batch entries. */
static void empty_arrays_have_zero_second_derivatives(void **state)
{
    static const char *const empty[] = {"b2h2q5k0d4", "b2h2q0k5d4", "b0h2q5k5d4"};
    problem p;
    (void)state;
    for (int n = 0; n < 6; n++)
        EACH_PATH(path)
        {
            pose(&p, 13, "bwd:f32:%s:%s:causal", empty[n / 2],
                 n % 2 ? "t5+dense+sink+rope" : "t5+dense+relkey,left=1,right=1+relval,left=1,right=1+sink+rope");
            rp_tangents x = tangents_of(&p, 3, RP_F32, RP_F32);
            double size = 0;
            for (int m = 0; m < GRADIENTS; m++)
                if (gradient(&p.g, m)->data)
                    memset(gradient(&p.g, m)->data, 0x7f, (size_t)problem_size(gradient(&p.g, m)) * 4);
            hvp(&p, path, &x, &p.g);
            for (int m = 0; m < GRADIENTS; m++)
                dot(gradient(&p.g, m), gradient(&p.g, m), &size);
            if (size != 0)
                wrong(&p, path, "second derivatives of nothing are not 0");
            problem_free(&p);
        }
}

/* A unit of FIRE's network whose input is 0 has the slope 0, so the tangents of its weights and its bias change no
 * derivative by the weights of the last layer. */
static void units_of_fire_at_zero_have_no_slope(void **state)
{
    problem p;
    (void)state;
    EACH_PATH(path)
    {
        pose(&p, 15, "bwd:f64:b1h2q5k6d4:fire,c=1,L=4,width=3,width2=4:causal");
        rp_tangents x = tangents_of(&p, 3, RP_F64, RP_F64);
        rp_grads got = gradients_like(&p, RP_F64);
        const rp_array *last = &got.term[0][4];
        const size_t size = (size_t)problem_size(last) * 8;
        for (int a = 0; a < 2; a++)
            memset(p.t.term[0][a].data, 0, (size_t)problem_size(&p.t.term[0][a]) * 8);
        hvp(&p, path, &x, &got);
        void *with = copy_of(last);
        for (int a = 0; a < 2; a++)
            memset(x.term[0][a].data, 0, (size_t)problem_size(&x.term[0][a]) * 8);
        hvp(&p, path, &x, &got);
        same_bits(&p, path, "the derivative by the last layer without tangents of units at 0", with, last->data, size);
        free(with);
        problem_free(&p);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(second_derivatives_equal_differences),
        cmocka_unit_test(the_hessian_is_symmetric),
        cmocka_unit_test(nothing_changes_a_bit),
        cmocka_unit_test(errors_keep_their_bounds),
        cmocka_unit_test(large_and_small_numbers_keep_their_bounds),
        cmocka_unit_test(types_only_round),
        cmocka_unit_test(numbers_that_are_not_finite_go_to_plain_loops),
        cmocka_unit_test(masked_pairs_have_no_effect),
        cmocka_unit_test(empty_arrays_have_zero_second_derivatives),
        cmocka_unit_test(units_of_fire_at_zero_have_no_slope),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
