/* definition.h -- attention computed directly from the formulas of relpos.h, and two checks: the reference is compared
 * with naive(), and each instruction set is compared with the reference, with rp_error_bound as tolerance.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef RELPOS_TESTS_DEFINITION_H
#define RELPOS_TESTS_DEFINITION_H
#include "tests/helpers.h"

/* Return true if mask n allows the pair, according to its definition in the library. */
HELPER bool defined(const rp_desc *d, int32_t n, const rp_array *a, int64_t b, int64_t h, int64_t i, int64_t j)
{
    int64_t first, end;
    uint8_t *keep = malloc((size_t)d->len_k + 1);
    assert_non_null(keep);
    good(rp_mask_row(d, n, a, b, h, i, &first, &end, keep));
    const bool yes = keep[j];
    free(keep);
    return yes;
}

/* Return true if all masks allow the pair. */
HELPER bool allowed(const problem *p, int64_t b, int64_t h, int64_t i, int64_t j)
{
    const rp_desc *d = &p->desc;
    const int64_t delta = j - (i + d->q_offset);
    for (int32_t n = 0; n < d->n_masks; n++) {
        const rp_mask *m = &d->masks[n];
        const rp_array *a = &p->t.mask[n];
        bool yes = true;
        switch (m->kind) {
        case RP_MASK_CAUSAL: yes = delta <= 0; break;
        case RP_MASK_WINDOW: yes = (m->left < 0 || delta >= -m->left) && (m->right < 0 || delta <= m->right); break;
        case RP_MASK_KEYS: yes = ((uint8_t *)a->data)[b * d->len_k + j]; break;
        case RP_MASK_PAIRS: yes = ((uint8_t *)a->data)[((b * d->heads + h) * d->len_q + i) * d->len_k + j]; break;
        case RP_MASK_LENGTHS: yes = j < ((int64_t *)a->data)[b]; break;
        case RP_MASK_STARTS: yes = ((int64_t *)a->data)[b * d->len_q + i] <= j; break;
        case RP_MASK_ENDS: yes = j < ((int64_t *)a->data)[b * d->len_q + i]; break;
        case RP_MASK_SEGMENTS:
            yes = ((int32_t *)a->data)[b * d->len_k + i] == ((int32_t *)a->data)[b * d->len_k + j];
            break;
        default: yes = defined(d, n, a, b, h, i, j); /* the kernels must match this definition too */
        }
        if (!yes)
            return false;
    }
    return true;
}

HELPER int64_t clip(int64_t x, int64_t low, int64_t high)
{
    return x < low ? low : x > high ? high : x;
}

/* Return an element of an array of a term. If the array has heads, h selects one. */
HELPER double entry(const problem *p, int32_t n, int64_t h, int64_t row, int64_t width, int64_t column)
{
    const rp_array *a = &p->t.term[n][0];
    const rp_term *t = &p->terms[n];
    const bool heads = a->ndim == (t->kind == RP_TERM_TABLE ? 2 : 3) && a->shape[0] > 1;
    return at(a, ((heads ? h * (t->left + t->right + 1) : 0) + row) * width + column);
}

HELPER double cap(double softcap, double x)
{
    return softcap > 0 ? softcap * tanh(x / softcap) : x;
}

/* Rotate x by position p. Pairs of channels are (c, c + dim/2) or (2c, 2c + 1). */
HELPER void rotated(const rp_term *t, int64_t width, double *x, int64_t position)
{
    const int64_t dim = t->dim ? t->dim : width;
    for (int64_t c = 0; c < dim / 2; c++) {
        const int64_t u = t->layout == RP_LAYOUT_HALF ? c : 2 * c,
                      v = t->layout == RP_LAYOUT_HALF ? c + dim / 2 : 2 * c + 1;
        const double angle = (double)position * pow(t->base, -2.0 * (double)c / (double)dim), a = x[u], b = x[v];
        x[u] = a * cos(angle) - b * sin(angle);
        x[v] = a * sin(angle) + b * cos(angle);
    }
}

/* Compute the scores of row (b, h, i), then its weights, out and lse. Arrays must be contiguous and have full
 * shapes. */
HELPER void naive(const problem *p, int64_t b, int64_t h, int64_t i, double *weight, double *out, double *lse)
{
    const rp_desc *d = &p->desc;
    const int64_t Hk = d->kv_heads ? d->kv_heads : d->heads, Dk = d->dim_k, Dv = d->dim_v ? d->dim_v : Dk,
                  Lk = d->len_k;
    const int64_t g = h / (d->heads / Hk);
    const double scale = d->scale == RP_SCALE_AUTO ? 1.0 / sqrt((double)Dk) : d->scale;
    double q[512], k[512], rotated_q[512], top = -INFINITY, sum = 0;
    const rp_term *rope = NULL;
    assert_true(Dk <= 512);
    for (int64_t c = 0; c < Dk; c++)
        q[c] = rotated_q[c] = at(&p->t.q, ((b * d->heads + h) * d->len_q + i) * Dk + c);
    for (int32_t n = 0; n < d->n_terms; n++)
        rope = p->terms[n].kind == RP_TERM_ROPE ? &p->terms[n] : rope;
    if (rope)
        rotated(rope, Dk, rotated_q, i + d->q_offset);
    for (int64_t j = 0; j < Lk; j++) {
        double bias = 0, inside = 0;
        const int64_t delta = j - (i + d->q_offset);
        weight[j] = -INFINITY;
        if (!allowed(p, b, h, i, j))
            continue;
        for (int64_t c = 0; c < Dk; c++)
            k[c] = at(&p->t.k, ((b * Hk + g) * Lk + j) * Dk + c);
        for (int32_t n = 0; n < d->n_terms; n++) {
            const rp_term *t = &p->terms[n];
            const double far = fabs((double)delta);
            switch (t->kind) {
            case RP_TERM_TABLE: bias += entry(p, n, h, clip(delta, -t->left, t->right) + t->left, 1, 0); break;
            case RP_TERM_T5:
            case RP_TERM_BUCKET:
                bias += at(&p->t.term[n][0], rp_bucket(delta, t->buckets, t->max_distance, t->bidirectional,
                                                       t->kind == RP_TERM_T5 ? RP_STRATEGY_LOG : t->strategy) *
                                                     d->heads +
                                                 h);
                break;
            case RP_TERM_LOG: bias -= t->lambda * log(1 + far); break;
            case RP_TERM_LINEAR: bias -= (delta < 0 ? t->rate_left : t->rate_right) * far; break;
            case RP_TERM_ALIBI:
                bias -= far * (p->t.term[n][0].data ? at(&p->t.term[n][0], h)
                                                    : pow(rp_alibi_slope(h, d->heads), t->real[0] / 8));
                break;
            case RP_TERM_DENSE: {
                const int64_t entries = d->batch / t->integer[0] / t->integer[1], entry = b / t->integer[0] % entries;
                bias += at(&p->t.term[n][0], ((entry * d->heads + h) * d->len_q + i) * Lk + j);
                break;
            }
            case RP_TERM_ROPE: break;
            case RP_TERM_RELKEY:
                for (int64_t c = 0; c < Dk; c++)
                    inside += scale * q[c] * entry(p, n, h, clip(delta, -t->left, t->right) + t->left, Dk, c);
                break;
            case RP_TERM_RELVAL: break;
            default: fail_msg("naive() has no term %d", (int)t->kind);
            }
        }
        if (rope)
            rotated(rope, Dk, k, j);
        for (int64_t c = 0; c < Dk; c++)
            inside += scale * rotated_q[c] * k[c];
        weight[j] = bias == -INFINITY ? bias : cap(d->softcap_after, cap(d->softcap, inside) + bias);
        if (weight[j] > top)
            top = weight[j];
    }
    for (int64_t c = 0; c < Dv; c++)
        out[c] = 0;
    for (int64_t j = 0; j < Lk; j++)
        sum += weight[j] = weight[j] == -INFINITY ? 0 : exp(weight[j] - top);
    *lse = sum == 0 ? -INFINITY : top + log(sum);
    for (int64_t j = 0; j < Lk; j++) {
        weight[j] = sum == 0 ? 0 : weight[j] / sum;
        for (int64_t c = 0; c < Dv && weight[j] != 0; c++) {
            double v = at(&p->t.v, ((b * Hk + g) * Lk + j) * Dv + c);
            for (int32_t n = 0; n < d->n_terms; n++)
                if (p->terms[n].kind == RP_TERM_RELVAL)
                    v += entry(p, n, h,
                               clip(j - (i + d->q_offset), -p->terms[n].left, p->terms[n].right) + p->terms[n].left, Dv,
                               c);
            out[c] += weight[j] * v;
        }
    }
}

/* Return what rp_error_bound computes for the plan of an instruction set. The caller frees it. */
HELPER double *bound_of(problem *p, const char *isa)
{
    rp_plan *plan;
    rp_array a = p->t.out;
    p->desc.isa = isa;
    a.dtype = RP_F64;
    a.data = malloc((size_t)problem_size(&a) * sizeof(double) + 1);
    assert_non_null(a.data);
    good(rp_plan_create(&plan, &p->desc));
    good(rp_error_bound(plan, &p->t, &a));
    rp_plan_destroy(plan);
    return a.data;
}

HELPER double worst_ratio; /* largest ratio of error to bound since the last print */

HELPER void show(const char *what)
{
    print_message("%-40s largest error / bound %.3f\n", what, worst_ratio);
    worst_ratio = 0;
}

/* Check |got - want| <= bound for n numbers. The reference may have been rounded to f32 once. NaN is only allowed where
 * the reference is NaN. */
HELPER void hold(const problem *p, const char *isa, const char *what, const float *got, const float *want,
                 const double *bound, int64_t n)
{
    for (int64_t x = 0; x < n; x++) {
        const double w = (double)want[x], g = (double)got[x];
        if (isnan(w) || isinf(w)) {
            if (isnan(w) ? !isnan(g) : g != w)
                wrong(p, isa, "%s: [%lld] is %.9g, not %.9g", what, (long long)x, g, w);
            continue;
        }
        const double error = fabs(g - w), most = bound[x] + 0x1p-24 * fabs(w) + 1e-45;
        if (!(error <= most))
            wrong(p, isa, "%s: [%lld] is %.9g, not %.9g: error %.3g, bound %.3g", what, (long long)x, g, w, error,
                  most);
        if (error / most > worst_ratio)
            worst_ratio = error / most;
    }
}

/* Outside ./check full, judged() compares each instruction set in one of judged_parts problems, slow sets in fewer. */
HELPER size_t judged_parts = 1;

/* Compare every instruction set with the reference. Compare the reference with naive(): all rows, or a sample if there
 * are more than 400. */
HELPER void judged(problem *p)
{
    static size_t turn;
    const rp_desc *d = &p->desc;
    const int64_t n = problem_size(&p->t.out), Dv = d->dim_v ? d->dim_v : d->dim_k,
                  rows = d->batch * d->heads * d->len_q;
    double *weight = malloc((size_t)d->len_k * 8 + 8), *row = malloc((size_t)Dv * 8), lse;
    if (!p->t.lse.data)
        also(p, WITH_LSE, RP_F64);
    attend(p, "reference");
    float *want = copy_of(&p->t.out);
    double *want_lse = copy_of(&p->t.lse);
    for (int64_t r = 0; r<rows; r += rows> 400 ? 37 : 1) {
        naive(p, r / d->len_q / d->heads, r / d->len_q % d->heads, r % d->len_q, weight, row, &lse);
        for (int64_t c = 0; c < Dv; c++) /* at these sizes the rounding errors of sums in double are at most 1e-10 */
            if (!(fabs(row[c] - (double)want[r * Dv + c]) <= 0x1p-23 * fabs(row[c]) + 1e-9 * (1 + fabs(lse))))
                wrong(p, "reference", "row %lld, channel %lld: %.9g, and %.9g by the definition", (long long)r,
                      (long long)c, (double)want[r * Dv + c], row[c]);
        if (lse != want_lse[r] && !(fabs(lse - want_lse[r]) <= 1e-9 * (1 + fabs(lse))))
            wrong(p, "reference", "lse of row %lld: %.12g, and %.12g by the definition", (long long)r, want_lse[r],
                  lse);
    }
    turn++;
    EACH_ISA(isa)
    {
        if (!PART(isa, turn, SLOW(isa) ? 2 * judged_parts - 1 : judged_parts))
            continue;
        double *bound = bound_of(p, isa);
        memset(p->t.out.data, 0x7f, (size_t)n * 4);
        attend(p, isa);
        hold(p, isa, "out", p->t.out.data, want, bound, n);
        for (int64_t r = 0; r < rows; r++) {
            const double got = at(&p->t.lse, r),
                         tolerance = 0x1p-24 * ((double)d->dim_k + 32) * (4 + fabs(want_lse[r]));
            if (got != want_lse[r] && !(fabs(got - want_lse[r]) <= tolerance))
                wrong(p, isa, "lse of row %lld is %.9g, not %.9g: tolerance %.3g", (long long)r, got, want_lse[r],
                      tolerance);
        }
        free(bound);
    }
    free(weight);
    free(row);
    free(want);
    free(want_lse);
}

HELPER const char *const term_sets[] = {
    "",
    "t5,buckets=8,max_distance=20",
    "table,left=3,right=5",
    "alibi",
    "log,lambda=0.7+linear,left=0.05,right=0.2",
    "dense",
    "relkey,left=4,right=2",
    "relval,left=2,right=6",
    "bucket,strategy=quadratic,buckets=7,max_distance=30,bidirectional=0",
    "dense+t5+relkey,left=9,right=9+relval,left=3,right=3",
    "bucket,strategy=linear,buckets=12,max_distance=40+dense+dense",
    "bucket,strategy=uniform,buckets=6,max_distance=30+table,left=0,right=0",
};

HELPER const char *const mask_sets[] = {"",
                                        "causal",
                                        "window=3,2",
                                        "key_mask",
                                        "mask",
                                        "lengths",
                                        "softcap=2",
                                        "causal+softcap_after=3",
                                        "softcap=1.5+softcap_after=2+key_mask",
                                        "mask+softcap=1.5",
                                        "window=40,-1+key_mask",
                                        "scale=0.3+window=-1,9",
                                        "causal+mask+lengths+key_mask",
                                        "starts+softcap=3",
                                        "causal+ends"};

enum { TERM_SETS = sizeof term_sets / sizeof *term_sets, MASK_SETS = sizeof mask_sets / sizeof *mask_sets };

#endif
