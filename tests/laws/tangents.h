/* tangents.h -- random tangents for a problem, and the sums of products of gradients with tangents.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef RELPOS_TESTS_TANGENTS_H
#define RELPOS_TESTS_TANGENTS_H
#include "tests/laws/gradients.h"

/* Return the tangent of the array of gradient n. */
HELPER rp_array *tangent(rp_tangents *x, int n)
{
    rp_array *const first[3] = {&x->q, &x->k, &x->v};
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

HELPER void jvp(problem *p, const char *isa, const rp_tangents *x)
{
    rp_plan *plan;
    p->desc.isa = isa;
    good(rp_plan_create(&plan, &p->desc));
    const rp_status status = rp_jvp(plan, &p->t, x);
    rp_plan_destroy(plan);
    if (status != RP_OK)
        wrong(p, isa, "rp_jvp: %s: %s", rp_status_name(status), rp_last_error());
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
                                        "mask+softcap=1.2+dlse",
                                        "softcap=1.5+softcap_after=2+dropout=0.2+seed=3",
                                        "lengths+scale=0.6+dlse",
                                        "window=3,2+softcap_after=2"};
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
        pose(&p, 8, "bwd:f64:b2h2q9k9d4v3:t5,buckets=8,max_distance=9+sink:%s+softcap=2",
             problem_mask((rp_mask_kind)k).text);
        test(&p);
        problem_free(&p);
    }
    for (int m = 0; m < TERMS; m++) {
        const char *set = settings[m % SETTINGS];
        if (terms[m].sizes && (strstr(set, "q_offsets") || strstr(set, "positions"))) /* grids need offset 0 */
            set = "mask+softcap=1.2";
        pose(&p, (uint64_t)m + 1, "bwd:f64:%s:%s:%s", terms[m].sizes ? terms[m].sizes : small[m % SMALL], terms[m].text,
             set);
        test(&p);
        problem_free(&p);
    }
}

#endif
