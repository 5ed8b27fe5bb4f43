/* tangents.h -- random tangents for a problem, and the sums of products of gradients with tangents.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef RELPOS_TESTS_TANGENTS_H
#define RELPOS_TESTS_TANGENTS_H
#include "tests/laws/gradients.h"

/* Return the tangent of the array of gradient n. */
HELPER rp_array *tangent(rp_tangents *x, int n)
{
    rp_array *const first[3] = {&x->q, &x->k, &x->v};
    if (n >= SOFTCAPS)
        return n == SOFTCAPS ? &x->softcap : &x->softcap_after;
    return n < 3 ? first[n] : &x->term[(n - 3) / RP_MAX_ARRAYS][(n - 3) % RP_MAX_ARRAYS];
}

/* Return tangents for a problem with a backward pass: random ones between -1 and 1 for every array that has a gradient,
 * and arrays of zeros for those of out and lse. */
HELPER rp_tangents tangents_of(problem *p, uint64_t seed, rp_dtype inputs, rp_dtype outputs)
{
    rp_tangents x = rp_tangents_init();
    for (int n = 0; n < GRADIENTS; n++) {
        const rp_array *g = gradient(&p->g, n);
        if (!g->data)
            continue;
        *tangent(&x, n) = array_in(p, inputs, g->ndim, g->shape);
        for (int64_t e = 0; e < problem_size(g); e++)
            set(tangent(&x, n), e, (double)(draw(&seed) >> 11) * 0x1p-52 - 1);
    }
    x.out = array_in(p, outputs, 4, p->t.out.shape);
    x.lse = array_in(p, outputs, 3, p->t.out.shape);
    return x;
}

/* Run rp_hvp, or rp_jvp if g is NULL. */
HELPER void hvp(problem *p, const char *isa, const rp_tangents *x, const rp_grads *g)
{
    rp_plan *plan;
    p->desc.isa = isa;
    good(rp_plan_create(&plan, &p->desc));
    const rp_status status = g ? rp_hvp(plan, &p->t, x, g) : rp_jvp(plan, &p->t, x);
    rp_plan_destroy(plan);
    if (status != RP_OK)
        wrong(p, isa, "%s: %s: %s", g ? "rp_hvp" : "rp_jvp", rp_status_name(status), rp_last_error());
}

HELPER void jvp(problem *p, const char *isa, const rp_tangents *x)
{
    hvp(p, isa, x, NULL);
}

/* Problems with two heads of L queries and keys, in which key KEY has no query and row ROW no key. */
enum { L = 12, KEY = 5, ROW = 7, MASKED = 7 };
static const char *const masked[MASKED] = {"t5,buckets=8,max_distance=20+dense",
                                           "relkey,left=3,right=3+relval,left=3,right=3",
                                           "rope+alibi,slopes=x",
                                           "xl",
                                           "deberta,span=5",
                                           "fire,c=1,L=4,width=3",
                                           "sink"};
HELPER void pose_masked(problem *p, const char *text, const char *settings_too)
{
    pose(p, 11, "bwd:f64:b1h2q%dk%dd6v5:%s:mask%s", L, L, text, settings_too);
    uint8_t *mask = p->t.mask[0].data;
    for (int64_t x = 0; x < 2 * L * L; x++)
        mask[x] &= !(x % L == KEY || x / L % L == ROW);
}

/* Set what is masked in such a problem to NaN or infinity. */
HELPER void spoil(problem *p, rp_tangents *x)
{
    for (int64_t h = 0; h < 2; h++) {
        for (int64_t c = 0; c < 6; c++) {
            set(&x->k, (h * L + KEY) * 6 + c, NAN);
            set(&p->t.k, (h * L + KEY) * 6 + c, c % 2 ? NAN : INFINITY);
            set(&x->q, (h * L + ROW) * 6 + c, NAN);
        }
        for (int64_t c = 0; c < 5; c++) {
            set(&x->v, (h * L + KEY) * 5 + c, INFINITY);
            set(&p->t.v, (h * L + KEY) * 5 + c, NAN);
        }
    }
}

/* Return a copy of an array in another type. */
HELPER rp_array converted(problem *p, const rp_array *a, rp_dtype type)
{
    const rp_array to = array_in(p, type, a->ndim, a->shape);
    good(rp_convert(to.data, type, a->data, a->dtype, problem_size(a)));
    return to;
}

/* Move every array by `step` times its tangent from `kept`. */
HELPER void move(problem *p, rp_tangents *x, double *const *kept, double step)
{
    for (int n = 0; n < GRADIENTS; n++)
        for (int64_t e = 0; kept[n] && e < problem_size(tangent(x, n)); e++)
            set(source_of(p, n), e, kept[n][e] + step * at(tangent(x, n), e));
}

/* Return the step of differences. FIRE is smooth only between the kinks of its ReLU, and by the frequencies of RoPE,
 * the nth derivative grows with the nth power of the positions. */
HELPER double step_of(const problem *p)
{
    bool kinks = false, steep = false;
    for (int32_t n = 0; n < p->desc.n_terms; n++) {
        kinks |= p->terms[n].kind == RP_TERM_FIRE;
        steep |= p->terms[n].kind == RP_TERM_ROPE && p->t.term[n][5].data;
    }
    return kinks ? 0x1p-15 : steep ? 0x1p-13 : 0x1p-10;
}

/* Compute (f(+h) - f(-h)) / 2h along the tangents, extrapolated from h and h/2, for each of n arrays that `run`
 * computes. */
HELPER void differences(problem *p, rp_tangents *x, void (*run)(problem *p), rp_array *const *of, rp_array *const *to,
                        int n)
{
    double *kept[GRADIENTS] = {NULL};
    const double h = step_of(p);
    static const double step[4] = {1, -1, 0.5, -0.5}, factor[4] = {-1 / 6.0, 1 / 6.0, 4 / 3.0, -4 / 3.0};
    for (int m = 0; m < GRADIENTS; m++)
        if (tangent(x, m)->data)
            kept[m] = copy_of(source_of(p, m));
    for (int s = 0; s < 4; s++) {
        move(p, x, kept, step[s] * h);
        run(p);
        for (int m = 0; m < n; m++)
            for (int64_t e = 0; e < problem_size(of[m]); e++) {
                const double value = at(of[m], e) == -INFINITY ? 0 : at(of[m], e); /* lse of a row without keys */
                set(to[m], e, at(to[m], e) + factor[s] * value / h);
            }
    }
    move(p, x, kept, 0);
    for (int m = 0; m < GRADIENTS; m++)
        free(kept[m]);
}

HELPER double largest(const rp_array *a)
{
    double most = 0;
    for (int64_t e = 0; e < problem_size(a); e++)
        most = at(a, e) == -INFINITY ? most : fmax(most, fabs(at(a, e)));
    return most;
}

/* Compare derivatives with the differences of the values of `of`. The differences are off by a multiple of h^4, 1e-12,
 * times the fifth derivative, and by the roundings of the values, divided by h. Return the largest ratio of error to
 * tolerance. */
HELPER double near_differences(const problem *p, const char *what, const rp_array *got, const rp_array *want,
                               const rp_array *of)
{
    const double tolerance = 1e-9 * largest(want) + 32 * 0x1p-52 * (1 + largest(of)) / step_of(p);
    double worst = 0;
    for (int64_t e = 0; e < problem_size(want); e++) {
        const double error = fabs(at(got, e) - at(want, e));
        worst = fmax(worst, error / tolerance);
        if (!(error <= tolerance))
            wrong(p, "reference", "%s[%lld] is %.12g, by differences %.12g", what, (long long)e, at(got, e),
                  at(want, e));
    }
    return worst;
}

HELPER void same_tangents(problem *p, const char *isa, const char *what, const rp_tangents *a, const rp_tangents *b)
{
    same_numbers(p, isa, what, &a->out, &b->out);
    same_numbers(p, isa, what, &a->lse, &b->lse);
}

/* Move the elements of an array to a layout with gaps, from the last batch entry to the first. */
HELPER rp_array scattered(problem *p, const rp_array *a)
{
    rp_array to = *a;
    if (!a->data || a->ndim == 0)
        return to;
    const int64_t n = problem_size(a), row = a->shape[a->ndim - 1], size = (int64_t)rp_dtype_size(a->dtype);
    char *base = problem_alloc(p, (size_t)(2 * n * size + 64));
    assert_non_null(base);
    for (int32_t x = 0; x < a->ndim - 1; x++)
        to.stride[x] *= 2;
    to.data = base;
    for (int64_t e = 0; e < n; e += row)
        memcpy(base + 2 * e * size, (char *)a->data + e * size, (size_t)(row * size));
    return to;
}

HELPER void gathered(const rp_array *a, const rp_array *to)
{
    const int64_t row = to->shape[to->ndim - 1], size = (int64_t)rp_dtype_size(to->dtype);
    for (int64_t e = 0; e < problem_size(to); e += row)
        memcpy((char *)to->data + e * size, (char *)a->data + 2 * e * size, (size_t)(row * size));
}

/* Return the sum of the products of two arrays, and add the sum of absolute values to *size. */
HELPER double dot(const rp_array *a, const rp_array *b, double *size)
{
    double sum = 0;
    for (int64_t e = 0; a->data && b->data && e < problem_size(a); e++) {
        sum += at(a, e) * at(b, e);
        *size += fabs(at(a, e) * at(b, e));
    }
    return sum;
}

/* Sizes that suit a text of terms, with any mask. */
HELPER const char *sizes_for(const char *text, int n, char to[64])
{
    const long long tokens = problem_tokens(text);
    if (!tokens)
        return small[n % SMALL];
    snprintf(to, 64, "b1h2q%lldk%lldd4v3", tokens, tokens);
    return to;
}

/* Loop over every term of the registry with every sample text of its scheme, then over every mask, then over problems
 * that combine terms: run `test` on each, in f64 with a backward pass. */
HELPER void each_problem(void (*test)(problem *p))
{
    static const char *const masks[] = {"dlse",
                                        "causal",
                                        "mask+softcap=1.2+dlse+dsoftcap",
                                        "softcap=1.5+softcap_after=2+dropout=0.2+seed=3+dsoftcap",
                                        "lengths+scale=0.6+dlse",
                                        "window=3,2+softcap_after=2+dsoftcap"};
    problem p;
    char sizes[64];
    int n = 0;
    for (int k = RP_TERM_NONE + 1; k < RP_TERM_COUNT; k++) {
        const char *name = rp_term_name((rp_term_kind)k);
        const rp_term_facts *f = rp_term_about((rp_term_kind)k);
        for (int x = 0; x < RP_MAX_SAMPLES && (f->samples[x] || x == 0); x++)
            for (int two = 0; two < 2; two++, n++) {
                const char *sample = f->samples[x] ? f->samples[x] : "";
                pose(&p, (uint64_t)n + 1, "bwd:f64:%s:%s%s%s:%s", sizes_for(sample, n, sizes), name, *sample ? "," : "",
                     sample, masks[n % 6]);
                test(&p);
                problem_free(&p);
            }
    }
    for (int k = RP_MASK_NONE + 1; k < RP_MASK_COUNT; k++) { /* at a size that all masks accept */
        pose(&p, 8, "bwd:f64:b2h2q9k9d4v3:t5,buckets=8,max_distance=9+sink:%s+softcap=2+dsoftcap",
             problem_mask((rp_mask_kind)k).text);
        test(&p);
        problem_free(&p);
    }
    for (int m = 0; m < TERMS; m++) {
        const char *set = settings[m % SETTINGS];
        if (terms[m].sizes && (strstr(set, "q_offsets") || strstr(set, "positions"))) /* grids need offset 0 */
            set = "mask+softcap=1.2+dsoftcap";
        pose(&p, (uint64_t)m + 1, "bwd:f64:%s:%s:%s", terms[m].sizes ? terms[m].sizes : small[m % SMALL], terms[m].text,
             set);
        test(&p);
        problem_free(&p);
    }
}

#endif
