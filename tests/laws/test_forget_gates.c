/* test_forget_gates.c -- gradients of forget gates when the gradients of rows differ by many orders of magnitude. Their
 * errors stay within the bound, and they are exactly 0 after the last row with a gradient. Also tests closed gates, and
 * large gates before a window.
 * SPDX-License-Identifier: Apache-2.0 */
#include "tests/helpers.h"

/* Compute dlogf of a problem on one path or, with `bound`, the bound of its errors. The caller frees the result. */
static double *gates(problem *p, const char *isa, bool bound)
{
    rp_plan *plan;
    const size_t n = (size_t)problem_size(&p->t.term[0][0]);
    double *to = calloc(n, sizeof *to);
    rp_grads g = rp_grads_init();
    g.dout = p->g.dout;
    g.term[0][0] = rp_array_of(to, RP_F64, 3, p->t.term[0][0].shape);
    p->desc.isa = isa;
    good(rp_plan_create(&plan, &p->desc));
    rp_tensors t = p->t;
    t.out.data = t.lse.data = NULL;
    good(bound ? rp_gradient_bound(plan, &t, &g) : rp_backward(plan, &t, &g, NULL));
    rp_plan_destroy(plan);
    return to;
}

/* Multiply dout by `early` in rows before `first`, and by `late` in all other rows. */
static void unequal(problem *p, int64_t first, float early, float late)
{
    float *dout = p->g.dout.data;
    const int64_t rows = p->desc.batch * p->desc.heads * p->desc.len_q, Dv = p->t.v.shape[3];
    for (int64_t x = 0; x < rows * Dv; x++)
        dout[x] *= x / Dv % p->desc.len_q < first ? early : late;
}

static void small_gradients_after_large_ones(void **state)
{
    static const struct {
        const char *text;
        int64_t first;
    } cases[] = {{"bwd:f32:b1h1q65k65d7:forget:", 32},
                 {"bwd:f32:b2h2q130k300d16o170:forget:", 20},
                 {"bwd:f32:b1h2q300k300d8:forget:", 128},
                 {"bwd:f32:b1h1q100k40d8:forget:", 30},
                 {"bwd:f32:b1h2q60k300d8:forget:", 30}};
    (void)state;
    for (size_t n = 0; n < sizeof cases / sizeof *cases; n++) {
        problem p;
        pose(&p, 3, "%s", cases[n].text);
        unequal(&p, cases[n].first, 1e6f, 1e-6f);
        double *want = gates(&p, "reference", false), worst = 0;
        const int64_t size = problem_size(&p.t.term[0][0]);
        EACH_ISA(isa)
        {
            double *got = gates(&p, isa, false), *bound = gates(&p, isa, true);
            for (int64_t e = 0; e < size; e++) {
                const double error = fabs(got[e] - want[e]);
                if (!(error <= bound[e]))
                    wrong(&p, isa, "gate %lld: %g, exact %g, error %g, bound %g", (long long)e, got[e], want[e], error,
                          bound[e]);
                worst = bound[e] > 0 && error / bound[e] > worst ? error / bound[e] : worst;
            }
            free(got);
            free(bound);
        }
        printf("%-45s largest error / bound: %.2g\n", cases[n].text, worst);
        free(want);
        problem_free(&p);
    }
}

/* dout is 0 in all rows from `first` on, so the gradients of the gates from `first` on are exactly 0. */
static void rows_without_gradient_give_exactly_0(void **state)
{
    (void)state;
    EACH_ISA(isa)
    {
        problem p;
        const int64_t first = 140, Lk = 300;
        pose(&p, 4, "bwd:f32:b1h2q300k300d8:forget:");
        unequal(&p, first, 1e6f, 0);
        double *got = gates(&p, isa, false);
        for (int64_t e = 0; e < problem_size(&p.t.term[0][0]); e++) {
            if (e % Lk >= first && got[e] != 0)
                wrong(&p, isa, "gate %lld: %g, and 0 is exact", (long long)e, got[e]);
            assert_true(e % Lk == 0 || e % Lk >= first || got[e] != 0);
        }
        free(got);
        problem_free(&p);
    }
}

/* A closed gate hides all earlier keys from later rows. Values of 1e30 before it change no later row, but do change the
 * rows before the gate. */
static void a_closed_gate_hides_earlier_keys(void **state)
{
    const float shut[] = {-INFINITY, -1e30f, -1e16f};
    const int64_t lengths[] = {33, 600}, Dv = 8;
    (void)state;
    EACH_PATH(path)
    for (int n = 0; n < 3; n++)
        for (int l = 0; l < 2; l++) {
            problem p;
            rp_plan *plan;
            const int64_t L = lengths[l], gate = L / 2;
            pose(&p, 5, "fwd:f32:b1h2q%lldk%lldd8:forget:", (long long)L, (long long)L);
            p.desc.isa = path;
            float *logf = (float *)(uintptr_t)p.t.term[0][0].data, *v = (float *)(uintptr_t)p.t.v.data,
                  *out = p.t.out.data;
            for (int64_t h = 0; h < 2; h++) {
                logf[h * L + gate] = shut[n];
                for (int64_t x = 0; x < gate * Dv; x++)
                    v[h * L * Dv + x] = 1e30f;
            }
            good(rp_plan_create(&plan, &p.desc));
            good(rp_attend(plan, &p.t, NULL));
            for (int64_t x = 0; x < 2 * L * Dv; x++) {
                const int64_t row = x / Dv % L;
                if (row < gate ? !(out[x] > 0.99e30f) : !(fabsf(out[x]) < 100))
                    wrong(&p, path, "row %lld: %g, and the gate %g before row %lld", (long long)row, (double)out[x],
                          (double)shut[n], (long long)gate);
            }
            rp_plan_destroy(plan);
            problem_free(&p);
        }
}

/* Gates before the first key of a row change neither its output nor its tangent, not even by a rounding. */
static void earlier_gates_change_no_bit(void **state)
{
    static const char *const types[] = {"f32", "f64", "bf16"};
    const int64_t L = 300, Dv = 8, changed = 100, first = 150;
    (void)state;
    for (size_t n = 0; n < sizeof types / sizeof *types; n++)
        EACH_PATH(path)
        {
            problem p;
            rp_plan *plan;
            pose(&p, 7, "jvp:%s:b1h2q300k300d8:forget:window=40,0", types[n]);
            const rp_array *gates[2] = {&p.t.term[0][0], &p.x.term[0][0]}, *results[2] = {&p.t.out, &p.x.out};
            const size_t row = (size_t)Dv * rp_dtype_size(p.desc.dtype), bytes = 2 * (size_t)L * row;
            char *want[2] = {malloc(bytes), malloc(bytes)};
            assert_true(want[0] && want[1]);
            p.desc.isa = path;
            good(rp_plan_create(&plan, &p.desc));
            for (int early = 0; early < 2; early++) {
                for (int64_t x = 0; x < 2 * L; x++)
                    for (int g = 0; g < 2 && x % L < changed; g++)
                        set(gates[g], x, early ? 1000.0 / 3 : 0);
                good(rp_attend(plan, &p.t, NULL));
                good(rp_jvp(plan, &p.t, &p.x));
                for (int r = 0; r < 2; r++) {
                    const char *got = results[r]->data;
                    for (int64_t h = 0; h < 2 && early; h++)
                        same_bits(&p, path, r ? "the tangent of out" : "out", want[r] + (size_t)(h * L + first) * row,
                                  got + (size_t)(h * L + first) * row, (size_t)(L - first) * row);
                    memcpy(want[r], got, bytes);
                }
            }
            rp_plan_destroy(plan);
            free(want[0]);
            free(want[1]);
            problem_free(&p);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(small_gradients_after_large_ones), cmocka_unit_test(rows_without_gradient_give_exactly_0),
        cmocka_unit_test(earlier_gates_change_no_bit), cmocka_unit_test(a_closed_gate_hides_earlier_keys)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
