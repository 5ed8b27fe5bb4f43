/* test_tangents.c -- tangents of out and lse: against central differences, against gradients, those of the fast path
 * against plain loops, and what must not change a bit of them.
 * SPDX-License-Identifier: Apache-2.0 */
#include "tests/laws/tangents.h"

static double worst_difference, worst_product;

static void run_forward(problem *p)
{
    attend(p, "reference");
}

static void equal_differences(problem *p)
{
    rp_tangents x = tangents_of(p, 3, RP_F64, RP_F64);
    rp_array out = array_in(p, RP_F64, 4, x.out.shape), lse = array_in(p, RP_F64, 3, x.lse.shape);
    differences(p, &x, run_forward, (rp_array *[]){&p->t.out, &p->t.lse}, (rp_array *[]){&out, &lse}, 2);
    jvp(p, "reference", &x);
    worst_difference = fmax(worst_difference, near_differences(p, "the tangent of out", &x.out, &out, &p->t.out));
    worst_difference = fmax(worst_difference, near_differences(p, "the tangent of lse", &x.lse, &lse, &p->t.lse));
}

static void tangents_equal_differences(void **state)
{
    (void)state;
    each_problem(equal_differences);
    print_message("against differences: largest error / tolerance %.3g\n", worst_difference);
}

/* <dout, out'> + <dlse, lse'> is the sum of the products of all gradients with their tangents. Both sides add the same
 * products in another order, so both have errors of at most the bounds of the gradients times the tangents, besides the
 * roundings of the sums. */
static void agree_with_gradients(problem *p)
{
    rp_tangents x = tangents_of(p, 5, RP_F64, RP_F64);
    rp_grads bounds = gradients_like(p, RP_F64);
    rp_plan *plan;
    int64_t elements = problem_size(&x.out) + problem_size(&x.lse);
    double size = 0, by_gradients = 0, bound = 0;
    drop_weight_gradients(p);
    for (int n = 1; n < OUTPUT_GRADIENTS; n++)
        output_gradient(&bounds, n)->data = NULL;
    jvp(p, "reference", &x);
    backward(p, "reference", &p->g, false);
    rp_tensors t = p->t;
    t.out.data = t.lse.data = NULL;
    good(rp_plan_create(&plan, &p->desc));
    good(rp_gradient_bound(plan, &t, &bounds));
    rp_plan_destroy(plan);
    const double by_tangents = dot(&p->g.dout, &x.out, &size) + dot(&p->g.dlse, &x.lse, &size);
    for (int n = 0; n < GRADIENTS; n++) {
        const rp_array *g = gradient(&p->g, n), *s = tangent(&x, n), *b = gradient(&bounds, n);
        by_gradients += dot(g, s, &size);
        elements += g->data ? problem_size(g) : 0;
        for (int64_t e = 0; g->data && e < problem_size(g); e++)
            bound += at(b, e) * fabs(at(s, e));
    }
    const double error = fabs(by_tangents - by_gradients), tolerance = 2 * bound + 0x1p-53 * (double)elements * size;
    worst_product = fmax(worst_product, tolerance > 0 ? error / tolerance : 0);
    if (!(error <= tolerance))
        wrong(p, "reference", "the tangents give %.17g, the gradients %.17g: more than %.3g apart", by_tangents,
              by_gradients, tolerance);
}

static void tangents_agree_with_gradients(void **state)
{
    (void)state;
    each_problem(agree_with_gradients);
    print_message("against gradients: largest error / bound %.3g\n", worst_product);
}

/* Compare the tangents that an instruction set computes with those of plain loops in double, with rp_tangent_bound as
 * tolerance. */
static double worst_error[8]; /* of each instruction set */

static void near_plain_loops(problem *p)
{
    static int turn;
    int n = 0;
    turn++;
    rp_tangents x = tangents_of(p, 3, p->desc.dtype, RP_F64), got = x, bounds = x;
    got.out = array_in(p, RP_F64, 4, x.out.shape), got.lse = array_in(p, RP_F64, 3, x.lse.shape);
    bounds.out = array_in(p, RP_F64, 4, x.out.shape), bounds.lse = array_in(p, RP_F64, 3, x.lse.shape);
    p->t.out.data = p->t.lse.data = NULL;
    jvp(p, "reference", &x);
    EACH_ISA(isa)
    {
        rp_plan *plan;
        const bool other_f64 = p->desc.dtype == RP_F64 && (SLOW(isa) || strstr(isa, "_bf16")), /* that of other sets */
            runs = SLOW(isa) ? turn % 3 == 0 || all_cases()
                             : (p->desc.len_k > 100 && !SANITIZED) || PART(isa, turn / 2, SANITIZED ? 6 : 2);
        if (other_f64 || !runs) {
            n++;
            continue;
        }
        p->desc.isa = isa;
        good(rp_plan_create(&plan, &p->desc));
        good(rp_tangent_bound(plan, &p->t, &bounds));
        rp_plan_destroy(plan);
        jvp(p, isa, &got);
        for (int m = 0; m < 2; m++) {
            const rp_array *a = m ? &got.lse : &got.out, *b = m ? &x.lse : &x.out, *c = m ? &bounds.lse : &bounds.out;
            for (int64_t e = 0; e < problem_size(a); e++) {
                const double error = fabs(at(a, e) - at(b, e));
                if (isnan(at(b, e)) ? !isnan(at(a, e)) : at(a, e) != at(b, e) && !(error <= at(c, e)))
                    wrong(p, isa, "the tangent of %s[%lld] is %.12g, not %.12g: error %.3g, bound %.3g",
                          m ? "lse" : "out", (long long)e, at(a, e), at(b, e), error, at(c, e));
                if (at(c, e) > 0 && at(c, e) < INFINITY)
                    worst_error[n] = fmax(worst_error[n], error / at(c, e));
            }
        }
        n++;
    }
}

/* In the same problems in f32, and in problems with several blocks of queries and tiles of keys. */
static void near_plain_loops_in_f32(problem *p)
{
    problem q;
    near_plain_loops(p);
    pose(&q, 4, "bwd:f32%s", p->text + strlen("bwd:f64"));
    near_plain_loops(&q);
    problem_free(&q);
}

static void within_the_bounds(void **state)
{
    static const char *const many[] = {"f32:b1h2q130k1100d40v24:t5+rope:causal",
                                       "f32:b2h2g1q100k600d16v9:dense+sink:softcap=2+key_mask+dsoftcap",
                                       "f32:b1h3q97k1030d64v64:alibi,slopes=x:window=700,40+softcap_after=3+dsoftcap",
                                       "f64:b1h2g1q110k1500d8v70:kerple:mask+dropout=0.2+seed=4",
                                       "f32:b2h1q1k900d33v17o899:t5+alibi+table,left=9,right=9:lengths",
                                       "f32:b1h1q20k530d6v5:real,max_distance=30:positions+scale=2",
                                       "f64:b1h1q520k520d12v12:t5,q_positions=x,k_positions=y+rope:segments",
                                       "bf16:b1h2q100k590d16:deberta,span=40+relval,left=5,right=5:key_mask",
                                       "f16:b1h2q30k590d18v7:relkey,left=5,right=5+forget+rope:softcap=3+dsoftcap",
                                       "bf16:b1h1q120k70d64:t5:scale=0.125+causal",
                                       "f32:b1h2q60k590d16v9:xl+band+relval,left=900,right=900+sink:dropout=0.2",
                                       "f32:b2h2g1q100k600d16v9:dense+sink,rows=1:key_mask"};
    problem p;
    int n = 0;
    (void)state;
    each_problem(near_plain_loops_in_f32);
    for (size_t m = 0; m < sizeof many / sizeof *many; m++) {
        pose(&p, m, "bwd:%s", many[m]);
        near_plain_loops(&p);
        problem_free(&p);
    }
    EACH_ISA(isa)
    print_message("%-14s against plain loops: largest error / bound %.3g\n", isa, worst_error[n++]);
}

/* The number of threads, strides, maximum lengths in the plan, and whether the other output is computed change no
 * bit. */
static void nothing_changes_a_bit(void **state)
{
    problem p;
    (void)state;
    for (int n = 0; n < SUMS; n++)
        EACH_ISA(isa)
        {
            pose(&p, 5, "bwd:%s:%s", rp_dtype_name((rp_dtype)(n % 4)), sums[n]);
            const rp_dtype type = n % 2 ? RP_F64 : p.desc.dtype;
            rp_tangents want = tangents_of(&p, 6, p.desc.dtype, type), got = want;
            got.out = array_in(&p, type, 4, want.out.shape);
            got.lse = array_in(&p, type, 3, want.lse.shape);
            p.t.out.data = p.t.lse.data = NULL;
            jvp(&p, isa, &want);
            for (int32_t threads = 1; threads < 6; threads += 2) {
                good(rp_pool_create(&p.t.pool, threads));
                jvp(&p, isa, &got);
                same_tangents(&p, isa, "another number of threads", &want, &got);
                rp_pool_destroy(p.t.pool);
                p.t.pool = NULL;
            }
            rp_tangents apart = got;
            for (int m = 0; m < GRADIENTS; m++)
                if (tangent(&got, m)->data)
                    *tangent(&apart, m) = m == 1 && n % 2 ? transposed(&p, &got.k) : scattered(&p, tangent(&got, m));
            apart.out = scattered(&p, &got.out);
            apart.lse = scattered(&p, &got.lse);
            jvp(&p, isa, &apart);
            gathered(&apart.out, &got.out);
            gathered(&apart.lse, &got.lse);
            same_tangents(&p, isa, "other strides", &want, &got);
            const rp_array out = got.out, lse = got.lse;
            got.out.data = NULL;
            jvp(&p, isa, &got);
            got.out = out;
            got.lse.data = NULL;
            jvp(&p, isa, &got);
            got.lse = lse;
            same_tangents(&p, isa, "one output at a time", &want, &got);
            if (!strstr(sums[n], "grid")) {
                p.desc.flexible = 1;
                p.desc.len_q += 70;
                p.desc.len_k += 400;
                jvp(&p, isa, &got);
                same_tangents(&p, isa, "a flexible plan", &want, &got);
            }
            problem_free(&p);
        }
}

/* Results of f16, bf16 and f32 arrays are those of the same numbers in f64, rounded once. */
static void types_only_round(void **state)
{
    problem p;
    (void)state;
    for (int n = 0; n < TERMS; n++)
        for (rp_dtype type = RP_F32; type <= RP_BF16; type++) {
            if (type == RP_F64)
                continue;
            pose(&p, 9, "bwd:%s:%s:%s:causal+softcap=2+dsoftcap", rp_dtype_name(type),
                 terms[n].sizes ? terms[n].sizes : small[n % SMALL], terms[n].text);
            rp_tangents x = tangents_of(&p, 7, type, type), y = tangents_of(&p, 7, RP_F64, RP_F64);
            p.t.out.data = p.t.lse.data = NULL;
            jvp(&p, "reference", &x);
            for (int m = 0; m < GRADIENTS; m++) {
                rp_array *a = source_of(&p, m);
                if (!tangent(&x, m)->data)
                    continue;
                for (int which = 0; which < 2; which++) {
                    const rp_array *from = which ? tangent(&x, m) : a;
                    *(which ? tangent(&y, m) : a) = converted(&p, from, RP_F64);
                }
            }
            p.desc.dtype = RP_F64;
            jvp(&p, "reference", &y);
            for (int m = 0; m < 2; m++) {
                const rp_array *wide = m ? &y.lse : &y.out, *narrow = m ? &x.lse : &x.out;
                const rp_array rounded = converted(&p, wide, type);
                same_numbers(&p, "reference", m ? "lse in f64, rounded" : "out in f64, rounded", &rounded, narrow);
            }
            problem_free(&p);
        }
}

/* Rows without keys have tangents of 0. NaN in what is masked changes nothing, and NaN in one row of the tangent of q
 * reaches only this row. */
static void masked_pairs_have_no_effect(void **state)
{
    problem p;
    (void)state;
    for (size_t n = 0; n < MASKED; n++)
        EACH_PATH(path)
        {
            pose_masked(&p, masked[n], "");
            rp_tangents x = tangents_of(&p, 8, RP_F64, RP_F64), again = x;
            again.out = array_in(&p, RP_F64, 4, x.out.shape);
            again.lse = array_in(&p, RP_F64, 3, x.lse.shape);
            jvp(&p, path, &x);
            for (int64_t h = 0; h < 2; h++) {
                for (int64_t c = 0; c < 5; c++)
                    if (at(&x.out, (h * L + ROW) * 5 + c) != 0)
                        wrong(&p, path, "the tangent of a masked row is not 0");
                const double lse = at(&x.lse, h * L + ROW);
                if (lse != (strcmp(masked[n], "sink") == 0 ? at(&x.term[0][0], h) : 0))
                    wrong(&p, path, "the tangent of lse of a masked row is %g", lse);
            }
            spoil(&p, &x);
            again.q = x.q, again.k = x.k, again.v = x.v;
            jvp(&p, path, &again);
            same_tangents(&p, path, "NaN in what is masked", &x, &again);
            set(&x.q, 3 * 6, NAN);
            jvp(&p, path, &again);
            for (int64_t e = 0; e < 2 * L * 5; e++)
                if (e / 5 == 3 ? !isnan(at(&again.out, e)) : at(&again.out, e) != at(&x.out, e))
                    wrong(&p, path, "NaN in row 3 of the tangent of q: row %lld of out is %g", (long long)e / 5,
                          at(&again.out, e));
            problem_free(&p);
        }
}

/* No keys, no queries or no batch entries. */
static void empty_arrays_have_zero_tangents(void **state)
{
    static const char *const empty[] = {"b2h2q5k0d4", "b2h2q0k5d4", "b0h2q5k5d4"};
    problem p;
    (void)state;
    for (int n = 0; n < 3; n++) {
        pose(&p, 13, "bwd:f32:%s:t5+dense+relkey,left=1,right=1+relval,left=1,right=1+forget:causal", empty[n]);
        rp_tangents x = tangents_of(&p, 3, RP_F32, RP_F32);
        memset(x.out.data, 0x7f, (size_t)problem_size(&x.out) * 4);
        memset(x.lse.data, 0x7f, (size_t)problem_size(&x.lse) * 4);
        jvp(&p, "reference", &x);
        double size = 0;
        dot(&x.out, &x.out, &size);
        dot(&x.lse, &x.lse, &size);
        if (size != 0)
            wrong(&p, "reference", "tangents of nothing are not 0");
        problem_free(&p);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tangents_equal_differences),
        cmocka_unit_test(tangents_agree_with_gradients),
        cmocka_unit_test(within_the_bounds),
        cmocka_unit_test(nothing_changes_a_bit),
        cmocka_unit_test(types_only_round),
        cmocka_unit_test(masked_pairs_have_no_effect),
        cmocka_unit_test(empty_arrays_have_zero_tangents),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
