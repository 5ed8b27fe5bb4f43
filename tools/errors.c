/* errors.c -- measures the error of the fast path for each term, on the term's benchmark texts, for the table in
 * docs/maintainers/numerics.md.
 *     errors > bench/results/errors.md
 * The program compares `out` with the reference in double on the same inputs. Errors are in units of u S, with u =
 * 2^-24 and S = sum_j w_j (|v_j| + |relval_j|). q, k, v and tables are normally distributed. The second table uses 300
 * q instead of q, which gives logits of about ±1000.
 * SPDX-License-Identifier: Apache-2.0 */
#include "cli/support/sample_problem.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Compute `out` with the given instruction set, and convert it to double. */
static int attend(problem *p, const char *isa, double *out, int64_t n)
{
    rp_plan *plan;
    rp_tensors t = p->t;
    float *f = malloc((size_t)n * sizeof *f);
    p->desc.isa = isa;
    const int bad = !f || rp_plan_create(&plan, &p->desc) != RP_OK;
    if (bad) {
        free(f);
        return -1;
    }
    t.out.data = f;
    const rp_status status = rp_attend(plan, &t, NULL);
    for (int64_t x = 0; x < n; x++)
        out[x] = (double)f[x];
    rp_plan_destroy(plan);
    free(f);
    return status == RP_OK ? 0 : -1;
}

/* Compute `out` in double, so the reference is not rounded to f32. If `absolute`, use |v| and |relval|. */
static int exact(problem *p, double *out, bool absolute)
{
    rp_tensors t = p->t;
    rp_desc d = p->desc;
    rp_plan *plan;
    rp_array *arrays[3 + RP_MAX_TERMS * RP_MAX_ARRAYS] = {&t.q, &t.k, &t.v};
    void *made[3 + RP_MAX_TERMS * RP_MAX_ARRAYS] = {0};
    int n_arrays = 3, bad = 0;
    const rp_array *relval = NULL;
    for (int32_t x = 0; x < d.n_terms; x++)
        for (int m = 0; m < RP_MAX_ARRAYS; m++)
            if (t.term[x][m].data) {
                arrays[n_arrays++] = &t.term[x][m];
                if (d.terms[x].kind == RP_TERM_RELVAL)
                    relval = &t.term[x][m];
            }
    for (int a = 0; a < n_arrays; a++) {
        const int64_t n = problem_size(arrays[a]);
        double *to = made[a] = malloc((size_t)n * sizeof *to);
        const bool value = arrays[a] == &t.v || arrays[a] == relval;
        for (int64_t x = 0; to && x < n; x++) {
            const double y = (double)((const float *)arrays[a]->data)[x];
            to[x] = absolute && value ? fabs(y) : y;
        }
        arrays[a]->data = to;
        arrays[a]->dtype = RP_F64;
        bad |= !to;
    }
    d.dtype = RP_F64;
    d.isa = "reference";
    t.out.data = out;
    t.out.dtype = RP_F64;
    if (!bad && rp_plan_create(&plan, &d) == RP_OK) {
        bad = rp_attend(plan, &t, NULL) != RP_OK;
        rp_plan_destroy(plan);
    } else {
        bad = 1;
    }
    for (int a = 0; a < n_arrays; a++)
        free(made[a]);
    return bad ? -1 : 0;
}

static int measure(const char *term, double factor)
{
    char text[512], err[512];
    problem p;
    snprintf(text, sizeof text, "fwd:f32:b1h4%sd64:%s", strstr(term, "grid") ? "q2048k2048" : "q60k2048", term);
    if (problem_parse(&p, text, err) != 0 || problem_fill(&p, 11, err) != 0) {
        fprintf(stderr, "%s\n", err);
        return 1;
    }
    const int64_t n = problem_size(&p.t.out), n_q = problem_size(&p.t.q);
    for (int64_t x = 0; x < n_q; x++)
        ((float *)p.t.q.data)[x] *= (float)factor;
    double *reference = malloc((size_t)n * 8), *spread = malloc((size_t)n * 8), *fast = malloc((size_t)n * 8),
           *bound = malloc((size_t)n * 8);
    rp_array to = p.t.out;
    to.data = bound;
    to.dtype = RP_F64;
    rp_plan *plan;
    int bad =
        !reference || !spread || !fast || !bound || exact(&p, reference, false) != 0 || exact(&p, spread, true) != 0;
    printf("| %s |", term);
    for (int k = 0; !bad && rp_isa_name(k); k++) {
        if (rp_isa_found(rp_isa_name(k)) != 1)
            continue;
        bad |= attend(&p, rp_isa_name(k), fast, n) != 0 || rp_plan_create(&plan, &p.desc) != RP_OK;
        if (bad)
            break;
        bad |= rp_error_bound(plan, &p.t, &to) != RP_OK;
        rp_plan_destroy(plan);
        double most = 0, mean = 0, ratio = 0;
        for (int64_t x = 0; x < n; x++) {
            const double e = fabs(fast[x] - reference[x]);
            most = fmax(most, e / (0x1p-24 * spread[x]));
            mean += e / (0x1p-24 * spread[x]) / (double)n;
            ratio = fmax(ratio, e / bound[x]);
        }
        printf(" %.2f / %.2f / %.3f |", most, mean, ratio);
    }
    printf("\n");
    free(reference);
    free(spread);
    free(fast);
    free(bound);
    problem_free(&p);
    if (bad)
        fprintf(stderr, "%s: %s\n", term, rp_last_error());
    return bad;
}

int main(void)
{
    int bad = 0;
    const double factors[] = {1, 300};
    for (int f = 0; f < 2; f++) {
        printf("%s\n\n| term |", f ? "\nLogits of about ±1000 (q times 300):" : "Normal q, k and v:");
        for (int k = 0; rp_isa_name(k); k++)
            if (rp_isa_found(rp_isa_name(k)) == 1)
                printf(" %s |", rp_isa_name(k));
        printf("\n|---|");
        for (int k = 0; rp_isa_name(k); k++)
            if (rp_isa_found(rp_isa_name(k)) == 1)
                printf("---|");
        printf("\n");
        bad |= measure("none", factors[f]);
        for (int k = RP_TERM_NONE + 1; k < RP_TERM_COUNT; k++) {
            const char *const *texts = rp_term_about((rp_term_kind)k)->bench;
            for (int x = 0; x < 2 && (texts[x] || x == 0); x++) {
                char term[256];
                snprintf(term, sizeof term, "%s%s%s", rp_term_name((rp_term_kind)k), texts[x] && *texts[x] ? "," : "",
                         texts[x] ? texts[x] : "");
                bad |= measure(term, factors[f]);
            }
        }
        bad |= measure("t5+rope+dense+relkey,left=16,right=16+relval,left=16,right=16", factors[f]);
    }
    return bad;
}
