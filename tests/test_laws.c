/* test_laws.c -- laws and hazards of rp_attend, on every instruction set of this machine, against two judges.
 *
 * Two judges: naive() below is written from the formulas of relpos.h alone and holds the oracle; the oracle, with
 * rp_error_bound as tolerance, holds each instruction set. Where a law promises equal bits, bits are compared.
 * SPDX-License-Identifier: Apache-2.0 */
#include "helpers.h"
#include <limits.h>

/* ------------------------------------------------------------------------------------------------ judges */

/* Whether masks let the pair attend. */
static bool allowed(const problem *p, int64_t b, int64_t h, int64_t i, int64_t j)
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
        case RP_MASK_SEGMENTS:
            yes = ((int32_t *)a->data)[b * d->len_k + i] == ((int32_t *)a->data)[b * d->len_k + j];
            break;
        default: fail_msg("naive() does not know mask %d", (int)m->kind);
        }
        if (!yes)
            return false;
    }
    return true;
}

static int64_t clip(int64_t x, int64_t low, int64_t high)
{
    return x < low ? low : x > high ? high : x;
}

/* Element of a term's array, by head if it has heads. */
static double entry(const problem *p, int32_t n, int64_t h, int64_t row, int64_t width, int64_t column)
{
    const rp_array *a = &p->t.term[n][0];
    const rp_term *t = &p->terms[n];
    const bool heads = a->ndim == (t->kind == RP_TERM_TABLE ? 2 : 3) && a->shape[0] > 1;
    return at(a, ((heads ? h * (t->left + t->right + 1) : 0) + row) * width + column);
}

static double cap(const rp_desc *d, double x)
{
    return d->softcap > 0 ? d->softcap * tanh(x / d->softcap) : x;
}

/* Turn x by position p: channels (c, c + dim/2) or (2c, 2c + 1). */
static void turned(const rp_term *t, int64_t width, double *x, int64_t position)
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

/* Scores of row (b, h, i), then weights; out and lse of it. Contiguous arrays, full shapes. */
static void naive(const problem *p, int64_t b, int64_t h, int64_t i, double *weight, double *out, double *lse)
{
    const rp_desc *d = &p->desc;
    const int64_t Hk = d->kv_heads ? d->kv_heads : d->heads, Dk = d->dim_k, Dv = d->dim_v ? d->dim_v : Dk,
                  Lk = d->len_k;
    const int64_t g = h / (d->heads / Hk);
    const double scale = d->scale == RP_SCALE_AUTO ? 1.0 / sqrt((double)Dk) : d->scale;
    double q[512], k[512], top = -INFINITY, sum = 0;
    assert_true(Dk <= 512);
    for (int64_t j = 0; j < Lk; j++) {
        double bias = 0, inside = 0;
        const int64_t delta = j - (i + d->q_offset);
        const rp_term *rope = NULL;
        weight[j] = -INFINITY;
        if (!allowed(p, b, h, i, j))
            continue;
        for (int64_t c = 0; c < Dk; c++) {
            q[c] = at(&p->t.q, ((b * d->heads + h) * d->len_q + i) * Dk + c);
            k[c] = at(&p->t.k, ((b * Hk + g) * Lk + j) * Dk + c);
        }
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
                bias -= far * (p->t.term[n][0].data ? at(&p->t.term[n][0], h) : rp_alibi_slope(h, d->heads));
                break;
            case RP_TERM_DENSE: bias += at(&p->t.term[n][0], ((b * d->heads + h) * d->len_q + i) * Lk + j); break;
            case RP_TERM_ROPE: rope = t; break;
            case RP_TERM_RELKEY:
                for (int64_t c = 0; c < Dk; c++)
                    inside += scale * q[c] * entry(p, n, h, clip(delta, -t->left, t->right) + t->left, Dk, c);
                break;
            case RP_TERM_RELVAL: break;
            default: fail_msg("naive() does not know term %d", (int)t->kind);
            }
        }
        if (rope) {
            turned(rope, Dk, q, i + d->q_offset);
            turned(rope, Dk, k, j);
        }
        for (int64_t c = 0; c < Dk; c++)
            inside += scale * q[c] * k[c];
        weight[j] = d->cap_after ? (bias == -INFINITY ? bias : cap(d, inside + bias)) : cap(d, inside) + bias;
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

/* The bound of rp_error_bound for the plan of an instruction set; the caller frees it. */
static double *bound_of(problem *p, const char *isa)
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

static double worst_share; /* largest error over its bound since the last print */

static void show(const char *what)
{
    print_message("%-40s largest error / bound %.3f\n", what, worst_share);
    worst_share = 0;
}

/* |got - want| <= bound for n numbers, the reference rounded to f32 once. NaN only where the reference has it. */
static void hold(const problem *p, const char *isa, const char *what, const float *got, const float *want,
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
        if (error / most > worst_share)
            worst_share = error / most;
    }
}

/* Every instruction set against the oracle, and the oracle against the naive loop (all rows, or some of many). */
static void judged(problem *p)
{
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
        for (int64_t c = 0; c < Dv; c++) /* the sums in double leave 1e-10 at most, at these sizes */
            if (!(fabs(row[c] - (double)want[r * Dv + c]) <= 0x1p-23 * fabs(row[c]) + 1e-9 * (1 + fabs(lse))))
                wrong(p, "reference", "row %lld, channel %lld: %.9g, and %.9g by the definition", (long long)r,
                      (long long)c, (double)want[r * Dv + c], row[c]);
        if (lse != want_lse[r] && !(fabs(lse - want_lse[r]) <= 1e-9 * (1 + fabs(lse))))
            wrong(p, "reference", "lse of row %lld: %.12g, and %.12g by the definition", (long long)r, want_lse[r],
                  lse);
    }
    EACH_ISA(isa)
    {
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

/* ------------------------------------------------------------------------------------------------ sizes */

static const char *const term_sets[] = {
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
static const char *const mask_sets[] = {"",
                                        "causal",
                                        "window=3,2",
                                        "key_mask",
                                        "mask",
                                        "lengths",
                                        "softcap=2",
                                        "causal+softcap_after=3",
                                        "mask+softcap=1.5",
                                        "window=40,-1+key_mask",
                                        "scale=0.3+window=-1,9",
                                        "causal+mask+lengths+key_mask"};
enum { TERM_SETS = sizeof term_sets / sizeof *term_sets, MASK_SETS = sizeof mask_sets / sizeof *mask_sets };

static void sizes(void **state)
{
    /* edges of MR = 6, NR = 8, 16, 64, QB = 96, VB = 128, KB = 512 */
    static const int lengths[] = {1,  2,  3,  5,  6,  7,  8,  9,  11, 12, 13, 15, 16, 17,  23,  24,  25,  31,
                                  33, 47, 49, 63, 64, 65, 71, 73, 79, 81, 95, 96, 97, 127, 128, 129, 191, 193};
    static const int widths[] = {1, 2, 3, 7, 8, 15, 16, 17, 31, 33, 63, 64, 65};
    problem p;
    int n = 0;
    (void)state;
    for (size_t x = 0; x < sizeof lengths / sizeof *lengths; x++)
        for (int form = 0; form < 3; form++, n++) {
            const int other = lengths[(x * 7 + 5 + (size_t)form * 11) % (sizeof lengths / sizeof *lengths)];
            const int q = form == 0 ? lengths[x] : form == 1 ? other : lengths[x], k = form == 1 ? lengths[x] : other;
            const int offset = n % 4 == 1 ? k - q : n % 4 == 2 ? -3 : n % 4 == 3 ? 5 : 0;
            pose(&p, (uint64_t)n + 1, "fwd:f32:b%dh%dg%dq%dk%dd%dv%do%d:%s:%s", 1 + n % 2, 2 + 2 * (n % 2),
                 n % 3 ? 2 : 1, q, k, widths[n % 13], widths[(n * 5 + 3) % 13], offset, term_sets[n % TERM_SETS],
                 mask_sets[(n / 3 + n) % MASK_SETS]);
            judged(&p);
            problem_free(&p);
        }
    show("sizes");
}

static void wide(void **state)
{
    static const int widths[] = {127, 128, 129, 255, 256, 257};
    problem p;
    (void)state;
    for (int n = 0; n < 6; n++) {
        pose(&p, 9, "fwd:f32:b1h2q7k19d%dv%d:%s:%s", widths[n], widths[5 - n], term_sets[n * 2 % TERM_SETS],
             mask_sets[n]);
        judged(&p);
        problem_free(&p);
        pose(&p, 9, "fwd:f32:b1h1q7k19d%dv%d:rope+relkey,left=1,right=1:", widths[n] & ~1, 1 + n);
        judged(&p);
        problem_free(&p);
    }
    show("wide");
}

/* Around the tile of 512 keys, and past two of them. */
static void tiles(void **state)
{
    static const int keys[] = {511, 512, 513, 575, 576, 577, 1023, 1024, 1025, 1151};
    static const char *const terms[] = {"alibi",
                                        "",
                                        "relval,left=600,right=600",
                                        "relkey,left=700,right=500",
                                        "dense",
                                        "relval,left=5,right=5+relkey,left=5,right=5",
                                        "t5"};
    static const char *const masks[] = {"",        "causal",        "window=70,3", "mask", "key_mask+softcap=3",
                                        "lengths", "window=-1,-500"};
    problem p;
    (void)state;
    for (int n = 0; n < 10; n++) {
        pose(&p, 10, "fwd:f32:b1h2g1q%dk%dd5v9o%d:%s:%s", n % 3 ? 7 : 101, keys[n], n % 2 ? keys[n] - 60 : 0,
             terms[n % 7], n == 6 ? "" : masks[n % 7]);
        judged(&p);
        problem_free(&p);
    }
    /* more vectors than the window of 1024 holds, with rows that end in the clip on either side */
    pose(&p, 11, "fwd:f32:b1h1q210k1300d6v5o400:relkey,left=900,right=800+relval,left=800,right=900:causal");
    judged(&p);
    problem_free(&p);
    pose(&p, 11, "fwd:f32:b1h1q97k1100d4v3o-700:relkey,left=1500,right=1500+relval,left=1500,right=1500:");
    judged(&p);
    problem_free(&p);
    show("tiles");
}

static void rotations(void **state)
{
    static const char *const ropes[] = {"rope",
                                        "rope,layout=interleaved",
                                        "rope,dim=4",
                                        "rope,dim=6,layout=interleaved,base=3",
                                        "rope,base=500000",
                                        "rope+alibi+relkey,left=2,right=2"};
    static const int64_t offsets[] = {0, 3, -200, 100000, -17, 77};
    problem p;
    (void)state;
    for (int n = 0; n < 6; n++) {
        pose(&p, 12, "fwd:f32:b2h2g1q%dk%dd8v3o%lld:%s:%s", n % 2 ? 70 : 9, n % 3 ? 20 : 131, (long long)offsets[n],
             ropes[n], n % 2 ? "causal" : "");
        judged(&p);
        problem_free(&p);
    }
    show("rotations");
}

/* ------------------------------------------------------------------------------------------------ laws */

/* Run and compare bits of out with those of another problem, or of the same one changed. */
static void same_out(problem *p, const char *isa, const char *what, const float *want)
{
    attend(p, isa);
    same_bits(p, isa, what, want, p->t.out.data, (size_t)problem_size(&p->t.out) * 4);
}

static void rows_sum_to_one(void **state)
{
    problem p;
    (void)state;
    double worst = 0;
    for (int n = 0; n < MASK_SETS; n++)
        EACH_ISA(isa)
        {
            pose(&p, 20, "fwd:f32:b2h2q50k140d9v3:%s:%s", n % 3 ? "alibi" : "dense", mask_sets[n]);
            also(&p, WITH_WEIGHTS, RP_F64);
            for (int64_t x = 0; x < problem_size(&p.t.v); x++)
                ((float *)p.t.v.data)[x] = 1;
            attend(&p, isa);
            for (int64_t r = 0; r < 2 * 2 * 50; r++) {
                bool any = false;
                double sum = 0;
                for (int64_t j = 0; j < 140; j++) {
                    any |= allowed(&p, r / 100, r / 50 % 2, r % 50, j);
                    sum += at(&p.t.weights, r * 140 + j);
                }
                if (fabs(sum - any) > 1e-12)
                    wrong(&p, isa, "weights of row %lld sum to %.15g", (long long)r, sum);
                for (int64_t c = 0; c < 3; c++) {
                    const double error = fabs(at(&p.t.out, r * 3 + c) - any);
                    worst = error > worst ? error : worst;
                    if (any ? error > 150 * 0x1p-24 : error != 0)
                        wrong(&p, isa, "row %lld sums to %.9g", (long long)r, at(&p.t.out, r * 3 + c));
                }
            }
            problem_free(&p);
        }
    print_message("rows sum to one: error %.3g, tolerance %.3g\n", worst, 150 * 0x1p-24);
}

static void shared_heads(void **state)
{
    problem p, r;
    (void)state;
    for (int n = 0; n < TERM_SETS; n++)
        EACH_ISA(isa)
        {
            pose(&p, 21, "fwd:f32:b2h6g2q19k70d7v5:%s:%s", term_sets[n], n % 2 ? "causal" : "mask");
            attend(&p, isa);
            pose(&r, 21, "fwd:f32:b2h6q19k70d7v5:%s:%s", term_sets[n], n % 2 ? "causal" : "mask");
            rp_array k = r.t.k, v = r.t.v, out = r.t.out;
            r.t = p.t;
            for (int64_t b = 0; b < 2; b++)
                for (int64_t h = 0; h < 6; h++) {
                    memcpy((float *)k.data + (b * 6 + h) * 70 * 7, (float *)p.t.k.data + (b * 2 + h / 3) * 70 * 7,
                           70 * 7 * 4);
                    memcpy((float *)v.data + (b * 6 + h) * 70 * 5, (float *)p.t.v.data + (b * 2 + h / 3) * 70 * 5,
                           70 * 5 * 4);
                }
            r.t.k = k;
            r.t.v = v;
            r.t.out = out;
            same_out(&r, isa, "shared heads against repeated ones", p.t.out.data);
            problem_free(&r);
            problem_free(&p);
        }
}

static void zero_terms(void **state)
{
    problem p;
    (void)state;
    EACH_ISA(isa)
    {
        pose(&p, 22,
             "fwd:f32:b1h4q40k90d8:t5+table,left=4,right=4+alibi+dense+log,lambda=0+linear,left=0,right=0+relkey,"
             "left=3,right=3:causal");
        float slopes[4] = {0, 0, 0, 0};
        const int64_t four[1] = {4};
        for (int n = 0; n < 7; n++)
            if (p.t.term[n][0].data)
                memset(p.t.term[n][0].data, 0, (size_t)problem_size(&p.t.term[n][0]) * 4);
        p.t.term[2][0] = rp_array_of(slopes, RP_F32, 1, four);
        p.desc.n_terms = 0;
        attend(&p, isa);
        float *want = copy_of(&p.t.out);
        for (int n = 0; n < 7; n++) {
            p.desc.n_terms = 1;
            p.desc.terms = &p.terms[n];
            const rp_array kept = p.t.term[0][0];
            p.t.term[0][0] = p.t.term[n][0];
            same_out(&p, isa, rp_term_name(p.terms[n].kind), want);
            p.t.term[0][0] = kept;
        }
        p.desc.terms = p.terms;
        p.desc.n_terms = 7;
        same_out(&p, isa, "all of them", want);
        free(want);
        problem_free(&p);
    }
}

/* Two tables, or one that holds their sums. Strips are added up in double and rounded once. */
static void sum_of_tables(void **state)
{
    problem p;
    (void)state;
    EACH_ISA(isa)
    {
        pose(&p, 23, "fwd:f32:b1h3q33k77d8:table,left=6,right=9+table,left=6,right=9+table,left=6,right=9:");
        float *a = p.t.term[0][0].data, *b = p.t.term[1][0].data, *c = p.t.term[2][0].data;
        for (int n = 0; n < 3 * 16; n++)
            c[n] = (float)((double)a[n] + (double)b[n]);
        p.desc.n_terms = 2;
        attend(&p, isa);
        float *want = copy_of(&p.t.out);
        p.desc.n_terms = 1;
        p.t.term[0][0] = p.t.term[2][0];
        same_out(&p, isa, "a table of sums", want);
        free(want);
        problem_free(&p);
    }
}

/* Keys [from, from+n) alone, with the offset moved along, are the same as all keys with the others masked. */
static void shift(void **state)
{
    static const char *const terms[] = {"t5",
                                        "table,left=7,right=7",
                                        "alibi",
                                        "log+linear,left=0.1,right=0.3",
                                        "relkey,left=5,right=5",
                                        "relval,left=9,right=4",
                                        "rope",
                                        "rope,layout=interleaved",
                                        "bucket,strategy=uniform"};
    problem p, s;
    (void)state;
    enum { ALL = 150, FROM = 41, SOME = 70 };
    for (size_t n = 0; n < sizeof terms / sizeof *terms; n++)
        EACH_ISA(isa)
        {
            pose(&p, 24, "fwd:f32:b1h2q30k%dd8o50:%s:key_mask", ALL, terms[n]);
            for (int j = 0; j < ALL; j++)
                ((uint8_t *)p.t.mask[0].data)[j] = j >= FROM && j < FROM + SOME;
            attend(&p, isa);
            double *bound = bound_of(&p, isa);
            pose(&s, 24, "fwd:f32:b1h2q30k%dd8o%d:%s:", SOME, 50 - FROM, terms[n]);
            const rp_array out = s.t.out;
            s.t = p.t;
            s.t.out = out;
            s.t.k.shape[2] = s.t.v.shape[2] = SOME; /* strides stay those of all keys */
            s.t.k.data = (float *)p.t.k.data + FROM * 8;
            s.t.v.data = (float *)p.t.v.data + FROM * 8;
            attend(&s, isa);
            double *bound2 = bound_of(&s, isa);
            for (int64_t x = 0; x < problem_size(&out); x++)
                bound[x] += bound2[x];
            hold(&s, isa, "shifted", out.data, p.t.out.data, bound, problem_size(&out));
            free(bound);
            free(bound2);
            problem_free(&s);
            problem_free(&p);
        }
    /* a constant on every bias adds to lse and does nothing else */
    EACH_ISA(isa)
    {
        pose(&p, 25, "fwd:f32:b1h2q30k150d8:dense:causal");
        also(&p, WITH_LSE, RP_F64);
        attend(&p, isa);
        float *out = copy_of(&p.t.out);
        double *lse = copy_of(&p.t.lse);
        for (int64_t x = 0; x < problem_size(&p.t.term[0][0]); x++)
            ((float *)p.t.term[0][0].data)[x] =
                (float)((int)(((float *)p.t.term[0][0].data)[x] * 64)) / 64; /* exact sums */
        attend(&p, isa);
        memcpy(out, p.t.out.data, (size_t)problem_size(&p.t.out) * 4);
        memcpy(lse, p.t.lse.data, (size_t)problem_size(&p.t.lse) * 8);
        double *bound = bound_of(&p, isa);
        for (int64_t x = 0; x < problem_size(&p.t.term[0][0]); x++)
            ((float *)p.t.term[0][0].data)[x] += 32;
        attend(&p, isa);
        double *bound2 = bound_of(&p, isa);
        for (int64_t x = 0; x < problem_size(&p.t.out); x++)
            bound[x] += bound2[x];
        hold(&p, isa, "32 on every bias", p.t.out.data, out, bound, problem_size(&p.t.out));
        for (int64_t r = 0; r < 60; r++)
            if (!(fabs(at(&p.t.lse, r) - lse[r] - 32) < 2e-5))
                wrong(&p, isa, "32 on every bias moves lse of row %lld by %.9g", (long long)r,
                      at(&p.t.lse, r) - lse[r]);
        free(out);
        free(lse);
        free(bound);
        free(bound2);
        problem_free(&p);
    }
    show("shift");
}

/* Causal, said in four ways. */
static void four_causals(void **state)
{
    static const int shapes[][3] = {{7, 7, 0}, {50, 50, 0}, {33, 90, 57}, {20, 130, 3}, {70, 20, -30}, {100, 600, 500}};
    problem p;
    (void)state;
    for (size_t n = 0; n < sizeof shapes / sizeof *shapes; n++)
        EACH_ISA(isa)
        {
            const int q = shapes[n][0], k = shapes[n][1], o = shapes[n][2];
            pose(&p, 26, "fwd:f32:b1h2q%dk%dd6v4o%d:alibi:causal", q, k, o);
            also(&p, WITH_LSE, RP_F32);
            attend(&p, isa);
            float *want = copy_of(&p.t.out), *lse = copy_of(&p.t.lse);
            const size_t lse_bytes = (size_t)problem_size(&p.t.lse) * 4;
            double *bound = bound_of(&p, isa);
            p.masks[0] = (rp_mask){.kind = RP_MASK_WINDOW, .left = -1, .right = 0};
            same_out(&p, isa, "window -1,0", want);
            same_bits(&p, isa, "window -1,0: lse", lse, p.t.lse.data, lse_bytes);
            p.masks[0].left = INT64_MAX;
            same_out(&p, isa, "window far,0", want);
            p.masks[0].kind = RP_MASK_PAIRS;
            const int64_t pairs[2] = {q, k};
            rp_array mask = array_in(&p, RP_BOOL, 2, pairs), bias = array_in(&p, RP_F32, 2, pairs);
            for (int i = 0; i < q; i++)
                for (int j = 0; j < k; j++) {
                    ((uint8_t *)mask.data)[i * k + j] = j <= i + o;
                    ((float *)bias.data)[i * k + j] = j <= i + o ? 0 : -INFINITY;
                }
            p.t.mask[0] = mask;
            same_out(&p, isa, "an array of booleans", want);
            same_bits(&p, isa, "an array of booleans: lse", lse, p.t.lse.data, lse_bytes);
            p.desc.n_masks = 0;
            p.terms[1] = rp_term_init(RP_TERM_DENSE);
            p.desc.n_terms = 2;
            p.t.term[1][0] = bias;
            attend(&p, isa);
            hold(&p, isa, "-infinity in a dense bias", p.t.out.data, want, bound, problem_size(&p.t.out));
            free(want);
            free(lse);
            free(bound);
            problem_free(&p);
        }
    show("four causals");
}

/* ------------------------------------------------------------------------------------------------ rows without keys */

/* Hide what `hidden` says by each kind of mask that can; the other rows are right, these are empty. */
static void empty_rows(void **state)
{
    static const char *const cases[] = {
        "b2h2q30k70d6:alibi:lengths",
        "b2h2q30k70d6:alibi:key_mask",
        "b2h2q30k70d6:t5:mask",
        "b2h2q30k70d6o-12:relkey,left=2,right=2:causal",
        "b2h2q100k70d6:relval,left=2,right=2:window=5,3",
        "b2h2q100k40d6o60:dense:window=5,-1",
        "b2h2q30k70d6:dense:",
        "b2h2q30k70d6:dense:softcap=2",
        "b2h2q30k70d6:dense:softcap_after=2",
        "b2h2q30k70d6:table,left=40,right=80:",
        "b2h2q30k70d6:table,left=40,right=80:softcap_after=2",
        "b1h1q7k1030d6o1020:dense:window=2,-1+mask",
    };
    problem p;
    int64_t empty = 0;
    (void)state;
    for (size_t n = 0; n < sizeof cases / sizeof *cases; n++) {
        pose(&p, 30, "fwd:f32:%s", cases[n]);
        const rp_desc *d = &p.desc;
        const int64_t Lq = d->len_q, Lk = d->len_k;
        also(&p, WITH_ALL, RP_F64);
        if (p.t.mask[0].data && p.masks[0].kind == RP_MASK_LENGTHS)
            ((int64_t *)p.t.mask[0].data)[1] = 0;
        if (p.t.mask[0].data && p.masks[0].kind == RP_MASK_KEYS)
            memset(p.t.mask[0].data, 0, (size_t)Lk);
        if (p.t.mask[0].data && p.masks[0].kind == RP_MASK_PAIRS)
            for (int64_t i = 0; i < Lq; i += 4)
                memset((char *)p.t.mask[0].data + i * Lk, 0, (size_t)Lk);
        if (p.terms[0].kind == RP_TERM_DENSE)
            for (int64_t r = 0; r < d->batch * d->heads * Lq; r++)
                for (int64_t j = 0; j < Lk; j++)
                    if (r % 3 == 0 || (r % 3 == 1 && j != r % Lk)) /* all keys, or all but one */
                        ((float *)p.t.term[0][0].data)[r * Lk + j] = -INFINITY;
        if (p.terms[0].kind == RP_TERM_TABLE) /* head 0: only keys before the query, none for query 0 */
            for (int64_t e = 40; e < 121; e++)
                ((float *)p.t.term[0][0].data)[e] = -INFINITY;
        double *weight = malloc((size_t)Lk * 8), row[8], lse;
        judged(&p); /* fills the outputs last by the best instruction set */
        EACH_ISA(isa)
        {
            memset(p.t.out.data, 0x7f, (size_t)problem_size(&p.t.out) * 4);
            attend(&p, isa);
            for (int64_t r = 0; r < d->batch * d->heads * Lq; r++) {
                naive(&p, r / Lq / d->heads, r / Lq % d->heads, r % Lq, weight, row, &lse);
                if (lse != -INFINITY)
                    continue;
                empty++;
                for (int64_t c = 0; c < 6; c++)
                    if (memcmp((float *)p.t.out.data + r * 6 + c, &(float){0}, 4) != 0)
                        wrong(&p, isa, "row %lld is masked, and its out is %g", (long long)r, at(&p.t.out, r * 6 + c));
                if (at(&p.t.lse, r) != -INFINITY || at(&p.t.entropy, r) != 0)
                    wrong(&p, isa, "row %lld is masked: lse %g, entropy %g", (long long)r, at(&p.t.lse, r),
                          at(&p.t.entropy, r));
                for (int64_t j = 0; j < Lk; j++)
                    if (at(&p.t.weights, r * Lk + j) != 0)
                        wrong(&p, isa, "row %lld is masked, with a weight", (long long)r);
            }
        }
        free(weight);
        problem_free(&p);
    }
    print_message("masked rows seen: %lld\n", (long long)empty);
    assert_true(empty > 1000);
    show("empty rows");
}

/* Only the first, or only the last key: out is that value, exactly. */
static void one_key(void **state)
{
    static const int keys[] = {1, 2, 8, 9, 64, 65, 512, 513, 1024, 1030};
    problem p;
    (void)state;
    for (size_t n = 0; n < sizeof keys / sizeof *keys; n++)
        for (int last = 0; last < 2; last++)
            EACH_ISA(isa)
            {
                pose(&p, 31, "fwd:f32:b1h1q13k%dd5v3:alibi:key_mask", keys[n]);
                const int64_t j = last ? keys[n] - 1 : 0;
                memset(p.t.mask[0].data, 0, (size_t)keys[n]);
                ((uint8_t *)p.t.mask[0].data)[j] = 1;
                attend(&p, isa);
                for (int r = 0; r < 13; r++)
                    same_bits(&p, isa, "one key", (float *)p.t.v.data + j * 3, (float *)p.t.out.data + r * 3, 12);
                problem_free(&p);
            }
}

/* The lowest finite number is a number: a row of it gives the mean of v, and so does twice it. */
static void lowest(void **state)
{
    static const char *const sets[] = {"dense",
                                       "dense+dense",
                                       "dense+dense+dense",
                                       "table,left=0,right=0",
                                       "table,left=0,right=0+table,left=0,right=0",
                                       "table,left=0,right=0+dense"};
    problem p;
    (void)state;
    for (size_t n = 0; n < sizeof sets / sizeof *sets; n++)
        for (int type = 0; type < 2; type++)
            for (int cap_it = 0; cap_it < 3; cap_it++)
                EACH_ISA(isa)
                {
                    pose(&p, 32, "fwd:f32:b1h1q9k%dd4v5:%s:%s", n % 2 ? 37 : 530, sets[n],
                         cap_it == 0   ? ""
                         : cap_it == 1 ? "softcap=5"
                                       : "softcap_after=5");
                    for (int m = 0; m < p.desc.n_terms; m++) {
                        rp_array *a = &p.t.term[m][0];
                        if (type) /* as f64, it does not fit in f32 */
                            *a = array_in(&p, RP_F64, a->ndim, a->shape);
                        for (int64_t x = 0; x < problem_size(a); x++)
                            if (type)
                                ((double *)a->data)[x] = -DBL_MAX;
                            else
                                ((float *)a->data)[x] = -FLT_MAX;
                    }
                    attend(&p, isa);
                    float *got = copy_of(&p.t.out);
                    attend(&p, "reference");
                    for (int64_t r = 0; r < 9; r++)
                        for (int64_t c = 0; c < 5; c++) {
                            double mean = 0;
                            for (int64_t j = 0; j < p.desc.len_k; j++)
                                mean += at(&p.t.v, j * 5 + c) / (double)p.desc.len_k;
                            const double g = (double)got[r * 5 + c], w = at(&p.t.out, r * 5 + c);
                            if (!(fabs(g - mean) < 2e-6))
                                wrong(&p, isa, "a row of the lowest %s gives %g, and the mean is %g",
                                      type ? "f64" : "f32", g, mean);
                            if (!(fabs(w - mean) < 2e-6))
                                wrong(&p, "reference", "a row of the lowest gives %g, and the mean is %g", w, mean);
                        }
                    free(got);
                    problem_free(&p);
                }
}

/* Biases beyond f32 are finite numbers: only -infinity masks, and none makes NaN. */
static void beyond_f32(void **state)
{
    static const char *const sets[] = {"dense",
                                       "dense+dense",
                                       "table,left=3,right=3",
                                       "table,left=3,right=3+dense",
                                       "log,lambda=-1e300",
                                       "log,lambda=1e300",
                                       "linear,left=1e300,right=-1e300"};
    static const double values[] = {1e300, -1e300, 3.4e38, 1e39, -1e39};
    problem p;
    (void)state;
    for (size_t n = 0; n < sizeof sets / sizeof *sets; n++)
        for (size_t x = 0; x < sizeof values / sizeof *values; x++)
            EACH_ISA(isa)
            {
                pose(&p, 33, "fwd:f32:b1h1q9k20d4v5:%s:", sets[n]);
                for (int m = 0; m < p.desc.n_terms; m++) {
                    if (!p.t.term[m][0].data)
                        continue;
                    p.t.term[m][0] = array_in(&p, RP_F64, p.t.term[m][0].ndim, p.t.term[m][0].shape);
                    for (int64_t e = 0; e < problem_size(&p.t.term[m][0]); e++)
                        ((double *)p.t.term[m][0].data)[e] = e % 7 == 3 ? values[x] : 0.25;
                }
                attend(&p, "reference");
                float *want = copy_of(&p.t.out);
                attend(&p, isa);
                /* rates of 1e300 make different numbers beyond f32, which are all the same there: any mean will do */
                const bool same = !strstr(sets[n], "=-1e300") && !strstr(sets[n], "left=1e300");
                for (int64_t e = 0; e < 45; e++)
                    if (same ? !(fabs(at(&p.t.out, e) - (double)want[e]) < 1e-5) : !isfinite(at(&p.t.out, e)))
                        wrong(&p, isa, "with %g in %s out is %g, not %g", values[x], sets[n], at(&p.t.out, e),
                              (double)want[e]);
                free(want);
                problem_free(&p);
            }
}

/* ------------------------------------------------------------------------------------------------ NaN and infinity */

static const float poisons[] = {NAN, INFINITY, -INFINITY};

/* Rows of out that may not change, by bits; the others must be NaN in channel c (or in every channel, c = -1). */
static void reached(problem *p, const char *isa, const char *what, const float *clean, const bool *row, int64_t c,
                    const double *bound)
{
    const int64_t Dv = p->desc.dim_v ? p->desc.dim_v : p->desc.dim_k, rows = problem_size(&p->t.out) / Dv;
    const float *out = p->t.out.data;
    for (int64_t r = 0; r < rows; r++)
        for (int64_t x = 0; x < Dv; x++) {
            const float got = out[r * Dv + x], was = clean[r * Dv + x];
            if (!row[r] && memcmp(&got, &was, 4) != 0)
                wrong(p, isa, "%s: row %lld does not attend to it, and its channel %lld was %.9g and is %.9g", what,
                      (long long)r, (long long)x, (double)was, (double)got);
            if (row[r] && (c < 0 || x == c) && !isnan(got))
                wrong(p, isa, "%s: row %lld attends to it, and its channel %lld is %.9g", what, (long long)r,
                      (long long)x, (double)got);
            if (row[r] && c >= 0 && x != c && !(fabs((double)got - (double)was) <= 2 * bound[r * Dv + x] + 1e-7))
                wrong(p, isa, "%s: NaN in channel %lld reached channel %lld of row %lld", what, (long long)c,
                      (long long)x, (long long)r);
        }
}

/* NaN and infinity in k, v, and biases: hidden ones reach nothing, attended NaN reaches its rows. */
static void poisoned(void **state)
{
    static const char *const cases[] = {
        "q40k70d6v5o20::causal",
        "q40k70d6v5o20:t5+relkey,left=3,right=3:causal",
        "q40k70d6v5o9:dense:window=7,2",
        "q40k70d6v5o9:alibi:window=7,2+softcap=3",
        "q40k70d6v5:t5:key_mask",
        "q40k70d6v5:relval,left=3,right=3:key_mask",
        "q40k70d6v5:dense:mask",
        "q40k70d6v5:dense+alibi:mask+softcap_after=4",
        "q40k70d6v5:rope:lengths",
        "q60k60d6v5:dense+table,left=3,right=3:segments",
        "q40k70d6v5:dense:",
        "q40k70d6v5:dense+dense:",
        "q40k70d6v5:dense+alibi+relkey,left=3,right=3:",
        "q40k70d6v5:dense:softcap=3",
        "q40k70d6v5:dense+t5:softcap_after=3",
        "q40k70d6v5:dense+rope:softcap=3",
        "q40k70d6v5:dense+relkey,left=3,right=3:softcap=3",
        "q40k70d6v5:dense+relval,left=3,right=3:",
        /* 64 and 512 keys fill every tile: then nothing but the biases masks */
        "q40k64d6v5:dense:",
        "q40k64d6v5:dense+dense:softcap=3",
        "q40k64d6v5:dense+relkey,left=3,right=3:",
        "q40k64d6v5:dense+relkey,left=3,right=3:softcap=3",
        "q40k64d6v5:dense+relkey,left=3,right=3:softcap_after=3",
        "q40k64d6v5:dense+alibi+relval,left=3,right=3:softcap=2",
        "q9k512d6v5o540:table,left=30,right=9:causal",
        "q9k600d6v5o540:table,left=30,right=9:causal",
        "q9k600d6v5o540:dense:window=530,5",
        "q9k600d6v5o540:relval,left=600,right=600+relkey,left=600,right=600:window=20,5",
    };
    problem p;
    (void)state;
    for (size_t n = 0; n < sizeof cases / sizeof *cases; n += EMULATED ? 3 : 1) {
        pose(&p, 40, "fwd:f32:b2h2g1%s", cases[n]);
        const rp_desc *d = &p.desc;
        const int64_t Lq = d->len_q, Lk = d->len_k, rows = 4 * Lq;
        const bool by_bias = d->n_masks == 0 && p.terms[0].kind == RP_TERM_DENSE;
        if (by_bias) /* -infinity hides three pairs of ten, and all of some keys */
            for (int64_t x = 0; x < rows * Lk; x++)
                if (x * 7 % 10 < 3 || x % Lk % 11 == 5)
                    ((float *)p.t.term[0][0].data)[x] = -INFINITY;
        if (p.t.mask[0].data && p.masks[0].kind == RP_MASK_LENGTHS)
            ((int64_t *)p.t.mask[0].data)[0] = 33, ((int64_t *)p.t.mask[0].data)[1] = 70;
        bool *open = malloc((size_t)rows * (size_t)Lk), *row = malloc((size_t)rows);
        for (int64_t x = 0; x < rows * Lk; x++)
            open[x] = allowed(&p, x / Lk / Lq / 2, x / Lk / Lq % 2, x / Lk % Lq, x % Lk) &&
                      !(by_bias && ((float *)p.t.term[0][0].data)[x] == -INFINITY);
        EACH_ISA(isa)
        {
            float *k = p.t.k.data, *v = p.t.v.data, *q = p.t.q.data;
            attend(&p, isa);
            float *clean = copy_of(&p.t.out);
            double *bound = bound_of(&p, isa);
            /* a key, a value, a query */
            for (int64_t j = n % 3 == 0 ? 0 : 5; j<Lk; j += Lk> 100 ? 83 : 9)
                for (int64_t b = 0; b < 2; b++)
                    for (int what = 0; what < 3; what++) {
                        bool hidden = true;
                        for (int64_t r = 0; r < rows; r++) {
                            row[r] = r / Lq / 2 == b && open[r * Lk + j];
                            hidden &= !row[r];
                        }
                        float *k_at = &k[(b * Lk + j) * 6 + what], *v_at = &v[(b * Lk + j) * 5 + what];
                        const float k_was = *k_at, v_was = *v_at;
                        for (int m = 0; m < (hidden ? 3 : 1); m++) {
                            *k_at = poisons[m];
                            attend(&p, isa);
                            reached(&p, isa, hidden ? "a hidden key" : "NaN in a key", clean, row, -1, bound);
                            *k_at = k_was;
                            *v_at = poisons[m];
                            attend(&p, isa);
                            reached(&p, isa, hidden ? "a hidden value" : "NaN in a value", clean, row, what, bound);
                            *v_at = v_was;
                        }
                    }
            for (int64_t i = 0; i < rows; i += 13) {
                const float was = q[i * 6 + 1];
                bool any = false;
                for (int64_t j = 0; j < Lk; j++)
                    any |= open[i * Lk + j];
                for (int64_t r = 0; r < rows; r++)
                    row[r] = r == i && any;
                q[i * 6 + 1] = NAN;
                attend(&p, isa);
                reached(&p, isa, "NaN in a query", clean, row, -1, bound);
                q[i * 6 + 1] = was;
            }
            /* every hidden key, value and bias at once */
            for (int m = 0; m < 3; m++) {
                float *k_was = copy_of(&p.t.k), *v_was = copy_of(&p.t.v), *bias_was[RP_MAX_TERMS] = {0};
                memset(row, 0, (size_t)rows);
                for (int64_t x = 0; x < 2 * Lk; x++) {
                    bool hidden = true;
                    for (int64_t r = 0; r < 2 * Lq; r++)
                        hidden &= !open[(x / Lk * 2 * Lq + r) * Lk + x % Lk];
                    for (int c = 0; hidden && c < 6; c++)
                        k[x * 6 + c] = poisons[(m + c) % 3];
                    for (int c = 0; hidden && c < 5; c++)
                        v[x * 5 + c] = poisons[(m + c) % 3];
                }
                for (int32_t t = by_bias ? 1 : 0; t < d->n_terms; t++)
                    if (p.terms[t].kind == RP_TERM_DENSE) {
                        bias_was[t] = copy_of(&p.t.term[t][0]);
                        for (int64_t x = 0; x < rows * Lk; x++)
                            if (!open[x])
                                ((float *)p.t.term[t][0].data)[x] = poisons[m];
                    }
                attend(&p, isa);
                reached(&p, isa, "every hidden number", clean, row, -1, bound);
                memcpy(k, k_was, (size_t)problem_size(&p.t.k) * 4);
                memcpy(v, v_was, (size_t)problem_size(&p.t.v) * 4);
                for (int32_t t = 0; t < d->n_terms; t++)
                    if (bias_was[t])
                        memcpy(p.t.term[t][0].data, bias_was[t], (size_t)problem_size(&p.t.term[t][0]) * 4);
                for (int32_t t = 0; t < d->n_terms; t++)
                    free(bias_was[t]);
                free(k_was);
                free(v_was);
            }
            /* NaN in the bias of one open pair */
            for (int32_t t = 0; t < d->n_terms; t++)
                for (int64_t x = 17; p.terms[t].kind == RP_TERM_DENSE && x < rows * Lk; x += rows * Lk / 7) {
                    float *one = (float *)p.t.term[t][0].data + x;
                    const float was = *one;
                    if (!open[x])
                        continue;
                    memset(row, 0, (size_t)rows);
                    row[x / Lk] = true;
                    *one = NAN;
                    attend(&p, isa);
                    reached(&p, isa, "NaN in a bias", clean, row, -1, bound);
                    *one = was;
                }
            /* entries of tables: NaN where no open pair looks changes nothing; elsewhere it reaches its rows */
            for (int32_t t = 0; t < d->n_terms; t++) {
                const rp_term *term = &p.terms[t];
                const bool vector = term->kind == RP_TERM_RELKEY || term->kind == RP_TERM_RELVAL;
                if (!vector && term->kind != RP_TERM_TABLE)
                    continue;
                const rp_array *a = &p.t.term[t][0];
                const int64_t entries = term->left + term->right + 1, width = vector ? a->shape[a->ndim - 1] : 1;
                for (int64_t e = 0; e<entries; e += entries> 100 ? 90 : 1) {
                    float *one = (float *)a->data + e * width; /* of head 0, if it has heads; else of all */
                    const bool heads = a->ndim == (vector ? 3 : 2);
                    const float was = *one;
                    for (int64_t r = 0; r < rows; r++) {
                        row[r] = false;
                        for (int64_t j = 0; j < Lk; j++)
                            row[r] |= open[r * Lk + j] && (!heads || r / Lq % 2 == 0) &&
                                      clip(j - (r % Lq + d->q_offset), -term->left, term->right) + term->left == e;
                    }
                    *one = NAN;
                    attend(&p, isa);
                    reached(&p, isa, "NaN in a table", clean, row, term->kind == RP_TERM_RELVAL ? 0 : -1, bound);
                    *one = was;
                }
            }
            free(clean);
            free(bound);
        }
        free(open);
        free(row);
        problem_free(&p);
    }
}

/* NaN in the only key of a row reaches nobody's summaries but its own. */
static void poisoned_summaries(void **state)
{
    problem p;
    (void)state;
    EACH_ISA(isa)
    {
        pose(&p, 41, "fwd:f32:b1h2q6k40d6::causal");
        also(&p, WITH_SUMMARY, RP_F64);
        ((float *)p.t.q.data)[2] = NAN; /* query 0 of head 0, which sees key 0 alone */
        attend(&p, "reference");
        double *want = copy_of(&p.t.key_mass), *profile = copy_of(&p.t.profile), *entropy = copy_of(&p.t.entropy);
        attend(&p, isa);
        for (int64_t x = 0; x < 80; x++)
            if (isnan(at(&p.t.key_mass, x)) != isnan(want[x]))
                wrong(&p, isa, "key_mass[%lld] is %g, not %g", (long long)x, at(&p.t.key_mass, x), want[x]);
        for (int64_t x = 0; x < 2 * 45; x++)
            if (isnan(at(&p.t.profile, x)) != isnan(profile[x]))
                wrong(&p, isa, "profile[%lld] is %g, not %g", (long long)x, at(&p.t.profile, x), profile[x]);
        for (int64_t x = 0; x < 12; x++)
            if (isnan(at(&p.t.entropy, x)) != isnan(entropy[x]))
                wrong(&p, isa, "entropy[%lld] is %g, not %g", (long long)x, at(&p.t.entropy, x), entropy[x]);
        free(want);
        free(profile);
        free(entropy);
        problem_free(&p);
    }
}

/* Large logits, and numbers whose products are large. */
static void large(void **state)
{
    problem p;
    (void)state;
    for (int n = 0; n < 6; n++) {
        static const char *const settings[] = {"scale=1000",
                                               "scale=-1000",
                                               "scale=1000+causal",
                                               "scale=3000+softcap=10000",
                                               "scale=1000+softcap_after=5000",
                                               "scale=1000"};
        pose(&p, 42, "fwd:f32:b1h2q20k90d12v5:%s:%s", n == 5 ? "dense" : "", settings[n]);
        if (n == 5)
            for (int64_t x = 0; x < problem_size(&p.t.term[0][0]); x++)
                ((float *)p.t.term[0][0].data)[x] *= 1e4f;
        judged(&p);
        problem_free(&p);
    }
    show("logits of 1e4");
    EACH_ISA(isa)
    for (int n = 0; n < 4; n++) {
        /* products of 1e36: the best key takes all, and where the softcap levels them none is lost */
        static const char *const settings[] = {"", "causal", "softcap=4", "scale=1e-36"};
        pose(&p, 43, "fwd:f32:b1h2q20k90d3v5::%s", settings[n]);
        for (int64_t x = 0; x < problem_size(&p.t.q); x++)
            ((float *)p.t.q.data)[x] *= 1e18f;
        for (int64_t x = 0; x < problem_size(&p.t.k); x++)
            ((float *)p.t.k.data)[x] *= 1e18f;
        attend(&p, "reference");
        float *want = copy_of(&p.t.out);
        attend(&p, isa);
        for (int64_t x = 0; x < problem_size(&p.t.out); x++)
            if (!(fabs(at(&p.t.out, x) - (double)want[x]) < 1e-5))
                wrong(&p, isa, "out[%lld] is %g, not %g", (long long)x, at(&p.t.out, x), (double)want[x]);
        free(want);
        problem_free(&p);
    }
    /* products that overflow in pairs that a bias of -infinity hides: by large queries, then by large keys */
    for (int n = 0; n < 4; n++)
        EACH_ISA(isa)
        {
            pose(&p, 45, "fwd:f32:b1h1q12k64d3v5:dense:%s", n % 2 ? "softcap=3" : "");
            float *q = p.t.q.data, *k = p.t.k.data, *bias = p.t.term[0][0].data;
            for (int j = 0; j < 64; j++) {
                k[j * 3] = j % 3 == 0 ? (n < 2 ? 1e13f : 1e30f) : 0;
                for (int i = 0; i < 12 && j % 3 == 0; i++)
                    bias[i * 64 + j] = -INFINITY;
            }
            for (int i = 0; i < 12; i++)
                q[i * 3] = n < 2 ? 1e30f : 1e13f;
            attend(&p, "reference");
            float *want = copy_of(&p.t.out);
            attend(&p, isa);
            for (int64_t x = 0; x < 60; x++)
                if (!(fabs(at(&p.t.out, x) - (double)want[x]) < 1e-5))
                    wrong(&p, isa, "an overflow in a hidden pair: out[%lld] is %g, not %g", (long long)x,
                          at(&p.t.out, x), (double)want[x]);
            free(want);
            problem_free(&p);
        }
    /* a softcap is any finite number: a huge one changes nothing, a tiny one levels the scores */
    static const double caps[] = {1e-300, 1e-45, 1e-38, 1e-20, 1e20, 1e30, 1e37, 1e38, 1e39, 1e300, DBL_MAX};
    for (size_t n = 0; n < sizeof caps / sizeof *caps; n++)
        for (int after = 0; after < 2; after++)
            EACH_ISA(isa)
            {
                pose(&p, 44, "fwd:f32:b1h1q8k20d6:alibi:");
                memset(p.t.q.data, 0, 24); /* scores of 0 too */
                p.desc.softcap = caps[n];
                p.desc.cap_after = after;
                rp_plan *plan;
                p.desc.isa = isa;
                if (rp_plan_create(&plan, &p.desc) == RP_E_RANGE) { /* as good, if it says so */
                    assert_non_null(strstr(rp_last_error(), "softcap"));
                    problem_free(&p);
                    continue;
                }
                rp_plan_destroy(plan);
                attend(&p, "reference");
                float *want = copy_of(&p.t.out);
                attend(&p, isa);
                for (int64_t x = 0; x < 48; x++)
                    if (!(fabs(at(&p.t.out, x) - (double)want[x]) < 1e-5))
                        wrong(&p, isa, "softcap %g: out[%lld] is %g, not %g", caps[n], (long long)x, at(&p.t.out, x),
                              (double)want[x]);
                free(want);
                problem_free(&p);
            }
}

/* ------------------------------------------------------------------------------------------------ memory */

/* Copy a contiguous array into a layout with the given order of axes in memory (slowest first), each axis backwards
 * where the bit of `backwards` is set, `gap` elements between rows of the last axis, the first element `skew` off. */
static rp_array laid_out(problem *p, const rp_array *a, const int *order, int backwards, int64_t gap, int64_t skew)
{
    rp_array to = *a;
    const int last = a->ndim - 1;
    int64_t step = 1, total;
    for (int n = last; n >= 0; n--) {
        const int x = order[n];
        to.stride[x] = step;
        step *= a->shape[x] > 0 ? a->shape[x] : 1;
        if (n == last)
            step += gap;
    }
    total = step + skew;
    char *room = problem_alloc(p, (size_t)total * rp_dtype_size(a->dtype));
    assert_non_null(room);
    memset(room, 0xc3, (size_t)total * rp_dtype_size(a->dtype));
    to.data = room + (size_t)skew * rp_dtype_size(a->dtype);
    for (int x = 0; x < last; x++)
        if (backwards >> x & 1) {
            to.data = (char *)to.data + (a->shape[x] - 1) * to.stride[x] * (int64_t)rp_dtype_size(a->dtype);
            to.stride[x] = -to.stride[x];
        }
    const size_t size = rp_dtype_size(a->dtype);
    for (int64_t n = 0; n < problem_size(a); n++) {
        int64_t rest = n, where = 0;
        for (int x = last; x >= 0; x--) {
            where += rest % a->shape[x] * to.stride[x];
            rest /= a->shape[x];
        }
        memcpy((char *)to.data + where * (int64_t)size, (char *)a->data + n * (int64_t)size, size);
    }
    return to;
}

/* Element n, in row-major order, of a strided array. */
static void *element(const rp_array *a, int64_t n)
{
    int64_t where = 0;
    for (int x = a->ndim - 1; x >= 0; x--) {
        where += n % a->shape[x] * a->stride[x];
        n /= a->shape[x];
    }
    return (char *)a->data + where * (int64_t)rp_dtype_size(a->dtype);
}

static void strides(void **state)
{
    static const int orders[][4] = {{0, 1, 2, 3}, {0, 2, 1, 3}, {2, 0, 1, 3}, {1, 2, 0, 3}};
    static const char *const texts[] = {
        "b2h4g2q23k75d7v5:t5+dense+relkey,left=3,right=3+relval,left=2,right=4:mask+key_mask",
        "b2h4g2q23k75d8v9:rope+table,left=3,right=3:causal+lengths",
        "b2h4g4q40k40d5v17:alibi:segments",
    };
    problem p;
    (void)state;
    for (size_t n = 0; n < sizeof texts / sizeof *texts; n++)
        EACH_ISA(isa)
        {
            pose(&p, 50, "fwd:f32:%s", texts[n]);
            also(&p, WITH_ALL, RP_F32);
            attend(&p, isa);
            const rp_tensors kept = p.t;
            rp_array *const all[] = {&p.t.q,       &p.t.k,       &p.t.v,        &p.t.out,    &p.t.lse,
                                     &p.t.weights, &p.t.profile, &p.t.key_mass, &p.t.entropy};
            const char *const names[] = {"q", "k", "v", "out", "lse", "weights", "profile", "key_mass", "entropy"};
            for (int form = 0; form < 8; form++) {
                p.t = kept;
                const int memory = p.n_memory;
                for (int x = 0; x < 9; x++) {
                    static const int three[][3] = {{0, 1, 2}, {0, 2, 1}, {2, 0, 1}, {1, 2, 0}};
                    *all[x] = laid_out(&p, all[x], all[x]->ndim == 4 ? orders[form % 4] : three[form % 4],
                                       form / 2 % 2 * (form + x), form % 3, form > 0);
                }
                for (int32_t t = 0; t < p.desc.n_terms; t++)
                    if (p.t.term[t][0].data) {
                        rp_array *a = &p.t.term[t][0];
                        static const int turned_order[5][4] = {{0}, {0}, {1, 0}, {2, 0, 1}, {3, 1, 0, 2}};
                        *a = laid_out(&p, a, turned_order[a->ndim], form * 3, 1, 1);
                    }
                for (int32_t m = 0; m < p.desc.n_masks; m++)
                    if (p.t.mask[m].data) {
                        rp_array *a = &p.t.mask[m];
                        static const int turned_order[5][4] = {{0}, {0}, {1, 0}, {2, 0, 1}, {3, 1, 0, 2}};
                        *a = laid_out(&p, a, turned_order[a->ndim], form * 5, 1, 1);
                    }
                for (int x = 3; x < 9; x++) /* outputs: nothing but their elements may change */
                    for (int64_t e = 0; e < problem_size(all[x]); e++)
                        memset(element(all[x], e), 0x11, 4);
                attend(&p, isa);
                const rp_array *was[] = {&kept.q,       &kept.k,       &kept.v,        &kept.out,    &kept.lse,
                                         &kept.weights, &kept.profile, &kept.key_mass, &kept.entropy};
                for (int x = 3; x < 9; x++) {
                    for (int64_t e = 0; e < problem_size(all[x]); e++) {
                        if (memcmp(element(all[x], e), (float *)was[x]->data + e, 4) != 0)
                            wrong(&p, isa, "form %d: %s[%lld] has other bits", form, names[x], (long long)e);
                        memset(element(all[x], e), 0xc3, 4);
                    }
                    unsigned char *room = p.memory[memory + x];
                    for (int64_t e = 0; e < problem_size(all[x]) * 4; e++)
                        if (room[e] != 0xc3)
                            wrong(&p, isa, "form %d: %s was written beside its elements", form, names[x]);
                }
                while (p.n_memory > memory)
                    free(p.memory[--p.n_memory]);
            }
            /* one key and value for every head and batch entry, by strides of 0 */
            p.t = kept;
            p.t.k.stride[0] = p.t.k.stride[1] = p.t.v.stride[0] = p.t.v.stride[1] = 0;
            attend(&p, isa);
            float *want = copy_of(&p.t.out);
            p.t.k = kept.k;
            p.t.v = kept.v;
            const int64_t one_k = p.desc.len_k * p.desc.dim_k, one_v = p.desc.len_k * p.desc.dim_v;
            for (int64_t x = 1; x < 2 * p.t.k.shape[1]; x++) {
                memcpy((float *)p.t.k.data + x * one_k, p.t.k.data, (size_t)one_k * 4);
                memcpy((float *)p.t.v.data + x * one_v, p.t.v.data, (size_t)one_v * 4);
            }
            same_out(&p, isa, "strides of 0", want);
            /* every key the same, by a stride of 0: the mean of one value is that value */
            p.t.k.stride[2] = p.t.v.stride[2] = 0;
            attend(&p, isa);
            free(want);
            problem_free(&p);
        }
}

/* Fences: each array in turn, before and after it, then all at once. */
static void fences(void **state)
{
    static const char *const texts[] = {
        "b2h2g1q13k37d7v5:t5,buckets=8+dense+relkey,left=3,right=3+relval,left=2,right=4:mask+key_mask",
        "b1h2q7k9d3v1:table,left=3,right=3+dense+dense:causal+lengths",
        "b1h1q97k64d16v16:dense+alibi:mask",
        "b1h1q6k512d8v8:dense+rope:segments",
        "b1h1q1k1d1v1:dense:mask",
        "b2h2q17k17d65v33:relval,left=20,right=20+relkey,left=20,right=20:segments+softcap=4",
        "b1h1q5k530d4v4o500:relkey,left=1100,right=1100+relval,left=1100,right=1100:causal",
        "b1h1q100k65d6v7:relkey,left=0,right=0+relval,left=0,right=0:window=9,9",
    };
    problem p;
    (void)state;
    for (size_t n = 0; n < sizeof texts / sizeof *texts; n++) {
        char text[300];
        snprintf(text, sizeof text, "%s", texts[n]);
        if (strstr(text, "segments") && !strstr(text, "q17k17")) /* segments need as many queries as keys */
            memcpy(strstr(text, "segments"), "key_mask", 8);
        pose(&p, 51, "fwd:f32:%s", text);
        also(&p, WITH_ALL, RP_F64);
        rp_array *all[9 + RP_MAX_TERMS + RP_MAX_MASKS] = {
            &p.t.out, &p.t.lse, &p.t.weights, &p.t.profile, &p.t.key_mass, &p.t.entropy, &p.t.q, &p.t.k, &p.t.v};
        int count = 9;
        for (int32_t t = 0; t < p.desc.n_terms; t++)
            if (p.t.term[t][0].data)
                all[count++] = &p.t.term[t][0];
        for (int32_t m = 0; m < p.desc.n_masks; m++)
            if (p.t.mask[m].data)
                all[count++] = &p.t.mask[m];
        static const char *const reference[] = {"reference"};
        for (int i = -1; i < 0 || rp_isa_name(i); i++) {
            const char *isa = i < 0 ? reference[0] : rp_isa_name(i);
            if (rp_isa_found(isa) != 1)
                continue;
            attend(&p, isa);
            unsigned char *want[6];
            for (int x = 0; x < 6; x++)
                want[x] = copy_of(all[x]);
            for (int after = 0; after < 2; after++) {
                fence f[9 + RP_MAX_TERMS + RP_MAX_MASKS];
                void *kept[9 + RP_MAX_TERMS + RP_MAX_MASKS];
                for (int x = 0; x < count; x++) {
                    const size_t bytes = (size_t)problem_size(all[x]) * rp_dtype_size(all[x]->dtype);
                    f[x] = fence_of(bytes, after);
                    memcpy(f[x].data, all[x]->data, bytes);
                    if (x < 6)
                        memset(f[x].data, 0x11, bytes);
                    kept[x] = all[x]->data;
                    all[x]->data = f[x].data;
                }
                rp_plan *plan;
                p.desc.isa = isa;
                good(rp_plan_create(&plan, &p.desc));
                const size_t bytes = rp_plan_work_size(plan, NULL);
                fence w = fence_of((bytes + 63) / 64 * 64, after);
                assert_true((uintptr_t)w.data % 64 == 0);
                good(rp_attend(plan, &p.t, w.data));
                if (!fence_intact(&w, bytes))
                    wrong(&p, isa, "written outside of work");
                fence_free(&w);
                rp_plan_destroy(plan);
                for (int x = 0; x < count; x++) {
                    const size_t size = (size_t)problem_size(all[x]) * rp_dtype_size(all[x]->dtype);
                    if (!fence_intact(&f[x], size))
                        wrong(&p, isa, "written outside of array %d", x);
                    if (x < 6)
                        same_bits(&p, isa, "fenced output", want[x], f[x].data, size);
                    fence_free(&f[x]);
                    all[x]->data = kept[x];
                }
            }
            for (int x = 0; x < 6; x++)
                free(want[x]);
        }
        problem_free(&p);
    }
}

/* Elements further than 2^31 and 2^32 from the first, in memory that is reserved and hardly touched. */
static void far_elements(void **state)
{
    problem p;
    (void)state;
    const int64_t step = ((int64_t)1 << 31) + 16, most = 6 * step;
    char *room[8];
    for (int n = 0; n < 8; n++) {
        const int64_t bytes = most * 4 + (1 << 20);
        room[n] = mmap(NULL, (size_t)bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (room[n] == MAP_FAILED) {
            print_message("far elements: this machine gives no %lld bytes of address space: not run\n",
                          (long long)bytes);
            while (n-- > 0)
                munmap(room[n], (size_t)bytes);
            return;
        }
    }
    for (int axis = 0; axis < 3; axis++)
        EACH_ISA(isa)
        {
            pose(&p, 52, "fwd:f32:b%dh%dq%dk%dd5v3:dense+relkey,left=1,right=1+table,left=1,right=1:mask",
                 axis == 0 ? 3 : 1, axis == 1 ? 3 : 2, axis == 2 ? 3 : 7, axis == 2 ? 3 : 9);
            also(&p, WITH_WEIGHTS, RP_F32);
            attend(&p, isa);
            const rp_tensors kept = p.t;
            rp_array *all[] = {&p.t.q,       &p.t.k,          &p.t.v,          &p.t.out,
                               &p.t.weights, &p.t.term[0][0], &p.t.term[1][0], &p.t.mask[0]};
            for (int x = 0; x < 8; x++) {
                const rp_array was = *all[x];
                const int a = x == 6 ? was.ndim - 2 : axis; /* relkey: its vectors lie far apart */
                all[x]->data = room[x];
                all[x]->stride[a] = x % 3 ? step : -step;
                for (int y = 0; y < a; y++) /* the axes before it have few elements: 4096 apart is enough */
                    all[x]->stride[y] = 4096 * (y == 1 ? 1 : 4);
                if (all[x]->stride[a] < 0)
                    all[x]->data = room[x] + (was.shape[a] - 1) * step * (int64_t)rp_dtype_size(was.dtype);
                const size_t size = rp_dtype_size(was.dtype);
                for (int64_t e = 0; e < problem_size(&was); e++)
                    memcpy(element(all[x], e), (char *)was.data + e * (int64_t)size, size);
            }
            attend(&p, isa);
            for (int64_t e = 0; e < problem_size(&kept.out); e++)
                if (memcmp(element(&p.t.out, e), (float *)kept.out.data + e, 4) != 0)
                    wrong(&p, isa, "axis %d far apart: out[%lld] has other bits", axis, (long long)e);
            for (int64_t e = 0; e < problem_size(&kept.weights); e++)
                if (memcmp(element(&p.t.weights, e), (float *)kept.weights.data + e, 4) != 0)
                    wrong(&p, isa, "axis %d far apart: weights[%lld] has other bits", axis, (long long)e);
            problem_free(&p);
        }
    for (int n = 0; n < 8; n++)
        munmap(room[n], (size_t)(most * 4 + (1 << 20)));
}

/* ------------------------------------------------------------------------------------------------ equal bits */

/* The tiles of the processor, where it has them, and their emulation in C give the same bits. */
static void same_as_emulated(void **state)
{
    static const char *const texts[] = {
        "fwd:f32:b1h2q40k70d8v6:t5:causal",
        "fwd:f32:b1h1q200k1100d64:alibi+relkey,left=9,right=9",
        "fwd:bf16:b1h2q100k130d40v24:t5+rope:causal",
        "fwd:f16:b1h1q33k600d66",
        "fwd:f32:b1h2q100k700d64:t5:high",
        "fwd:f32:b1h2q3k1300d16:t5:dropout=0.2",
    };
    problem p;
    (void)state;
    if (rp_isa_found("amx") != 1) {
        print_message("this machine has no AMX\n");
        skip();
    }
    for (size_t n = 0; n < sizeof texts / sizeof *texts; n++) {
        pose(&p, 61, "%s", texts[n]);
        attend(&p, "amx_emulated");
        void *want = copy_of(&p.t.out);
        attend(&p, "amx");
        same_bits(&p, "amx", "beside amx_emulated", want, p.t.out.data,
                  (size_t)problem_size(&p.t.out) * rp_dtype_size(p.t.out.dtype));
        free(want);
        problem_free(&p);
    }
}

/* Threads, memory of the caller's or the call's own, and the place in a batch change no bit of any output. */
static void same_everywhere(void **state)
{
    static const char *const texts[] = {
        "b3h2q40k70d8v6:t5+relkey,left=3,right=3:causal",
        "b3h4g2q230k300d5v9:relval,left=3,right=3+dense:key_mask+window=200,20",
        "b3h1q800k64d4:alibi:",
        "b3h2q100k1100d4:relval,left=900,right=900+rope:mask+softcap=4",
    };
    static const int32_t threads[] = {1, 2, 3, 7};
    problem p;
    (void)state;
    for (size_t n = 0; n < sizeof texts / sizeof *texts; n++)
        EACH_ISA(isa)
        {
            pose(&p, 60, "fwd:f32:%s", texts[n]);
            also(&p, WITH_LSE | WITH_SUMMARY | (n == 0 ? WITH_WEIGHTS : 0), RP_F64);
            /* every batch entry the same */
            rp_array *in[] = {&p.t.q, &p.t.k, &p.t.v};
            for (int x = 0; x < 3; x++) {
                const size_t one = (size_t)problem_size(in[x]) / 3 * 4;
                memcpy((char *)in[x]->data + one, in[x]->data, one);
                memcpy((char *)in[x]->data + 2 * one, in[x]->data, one);
            }
            for (int32_t t = 0; t < p.desc.n_terms; t++)
                if (p.terms[t].kind == RP_TERM_DENSE)
                    p.t.term[t][0].stride[0] = 0;
            if (p.t.mask[0].data)
                p.t.mask[0].stride[0] = 0;
            rp_array *out[] = {&p.t.out, &p.t.lse, &p.t.profile, &p.t.key_mass, &p.t.entropy, &p.t.weights};
            void *want[6] = {0};
            for (int x = 0; x < 4; x++)
                for (int own = 0; own < 2; own++) {
                    rp_plan *plan;
                    good(rp_pool_create(&p.t.pool, threads[x]));
                    assert_int_equal(rp_pool_threads(p.t.pool), threads[x]);
                    p.desc.isa = isa;
                    good(rp_plan_create(&plan, &p.desc));
                    const size_t bytes = rp_plan_work_size(plan, p.t.pool);
                    void *work = own ? aligned_alloc(64, (bytes + 63) / 64 * 64) : NULL;
                    if (own)
                        memset(work, 0x7f, bytes); /* what is in it does not matter */
                    for (int o = 0; o < 6; o++)
                        if (out[o]->data)
                            memset(out[o]->data, 0x11, (size_t)problem_size(out[o]) * rp_dtype_size(out[o]->dtype));
                    good(rp_attend(plan, &p.t, work));
                    rp_plan_destroy(plan);
                    free(work);
                    rp_pool_destroy(p.t.pool);
                    for (int o = 0; o < 6; o++) {
                        if (!out[o]->data)
                            continue;
                        const size_t size = (size_t)problem_size(out[o]) * rp_dtype_size(out[o]->dtype);
                        char line[80];
                        snprintf(line, sizeof line, "output %d on %d threads, %s work", o, (int)threads[x],
                                 own ? "given" : "own");
                        if (!want[o]) {
                            want[o] = copy_of(out[o]);
                            same_bits(&p, isa, "batch entries 0 and 1", want[o], (char *)want[o] + size / 3, size / 3);
                            same_bits(&p, isa, "batch entries 0 and 2", want[o], (char *)want[o] + size / 3 * 2,
                                      size / 3);
                        }
                        same_bits(&p, isa, line, want[o], out[o]->data, size);
                    }
                }
            /* without the summaries, and alone in its batch */
            p.t.pool = NULL;
            p.t.profile.data = p.t.key_mass.data = p.t.entropy.data = p.t.weights.data = NULL;
            same_out(&p, isa, "without summaries", want[0]);
            p.desc.batch = 1;
            for (int x = 0; x < 3; x++)
                in[x]->shape[0] = 1;
            p.t.out.shape[0] = p.t.lse.shape[0] = 1;
            for (int32_t t = 0; t < p.desc.n_terms; t++)
                if (p.terms[t].kind == RP_TERM_DENSE)
                    p.t.term[t][0].shape[0] = 1;
            if (p.t.mask[0].data)
                p.t.mask[0].shape[0] = 1;
            same_out(&p, isa, "a batch of one", want[0]);
            for (int o = 0; o < 6; o++)
                free(want[o]);
            problem_free(&p);
        }
}

/* Each query alone, with its offset, gives the bits it has among the others. */
static void decoding(void **state)
{
    static const char *const terms[] = {"",
                                        "t5",
                                        "alibi+table,left=5,right=5",
                                        "dense",
                                        "relkey,left=3,right=3",
                                        "relval,left=3,right=3",
                                        "relval,left=700,right=700+relkey,left=700,right=700",
                                        "rope,dim=4+log",
                                        "dense+alibi+relkey,left=2,right=2"};
    static const char *const masks[] = {"causal", "", "mask+softcap=3", "window=30,4", "key_mask+causal", "lengths"};
    problem p;
    (void)state;
    for (size_t n = 0; n < sizeof terms / sizeof *terms; n++)
        for (int big = 0; big < 2; big++)
            EACH_ISA(isa)
            {
                pose(&p, 61, "fwd:f32:b1h2g1q%dk%dd6v5o%d:%s:%s", big ? 101 : 23, big ? 640 : 23, big ? 530 : 0,
                     terms[n], masks[(n + (size_t)big) % 6]);
                also(&p, WITH_LSE, RP_F64);
                attend(&p, isa);
                const rp_desc whole = p.desc;
                const rp_tensors kept = p.t;
                const int64_t Lk = whole.len_k;
                for (int64_t i = 0; i < whole.len_q; i += big ? 7 : 1) {
                    float out[2][5];
                    double lse[2];
                    p.desc.len_q = 1;
                    p.desc.q_offset = whole.q_offset + i;
                    p.t.q.shape[2] = 1;
                    p.t.q.data = (float *)kept.q.data + i * 6;
                    const int64_t shape[4] = {1, 2, 1, 5};
                    p.t.out = rp_array_of(out, RP_F32, 4, shape);
                    p.t.lse = rp_array_of(lse, RP_F64, 3, shape);
                    for (int32_t t = 0; t < whole.n_terms; t++)
                        if (p.terms[t].kind == RP_TERM_DENSE) {
                            p.t.term[t][0].shape[2] = 1;
                            p.t.term[t][0].data = (float *)kept.term[t][0].data + i * Lk;
                        }
                    for (int32_t m = 0; m < whole.n_masks; m++)
                        if (p.masks[m].kind == RP_MASK_PAIRS) {
                            p.t.mask[m].shape[2] = 1;
                            p.t.mask[m].data = (uint8_t *)kept.mask[m].data + i * Lk;
                        }
                    attend(&p, isa);
                    for (int64_t h = 0; h < 2; h++) {
                        same_bits(&p, isa, "one query alone", (float *)kept.out.data + (h * whole.len_q + i) * 5,
                                  out[h], 20);
                        same_bits(&p, isa, "lse of one query alone", (double *)kept.lse.data + h * whole.len_q + i,
                                  &lse[h], 8);
                    }
                }
                p.desc = whole;
                p.t = kept;
                problem_free(&p);
            }
}

/* The turn of a position is the same wherever a call begins: each query again with fewer before it. */
static void decoding_turned(void **state)
{
    problem p;
    (void)state;
    for (int dim = 16; dim <= 40; dim += 8)
        EACH_ISA(isa)
        {
            enum { L = 16384 };
            pose(&p, 62, "fwd:f32:b1h1q%dk1d%do50000:rope,base=500000", L, dim);
            also(&p, WITH_LSE, RP_F32);
            attend(&p, isa);
            float *want = copy_of(&p.t.lse);
            for (int less = 1; less < 64; less += 31) {
                p.desc.len_q = p.t.q.shape[2] = p.t.out.shape[2] = p.t.lse.shape[2] = L - less;
                p.desc.q_offset = 50000 + less;
                const rp_array q = p.t.q;
                p.t.q.data = (float *)q.data + less * dim;
                attend(&p, isa);
                p.t.q = q;
                same_bits(&p, isa, "positions turned from another start", want + less, p.t.lse.data,
                          (size_t)(L - less) * 4);
            }
            free(want);
            problem_free(&p);
        }
}

/* ------------------------------------------------------------------------------------------------ halves */

/* With one key a row is the key's value: every number of f16 and bf16 comes out as it went in. Numbers below 2^-126 may be 0. */
static void halves(void **state)
{
    static const char *const types[] = {"f16", "bf16"};
    problem p;
    (void)state;
    for (int type = 0; type < 2; type++)
        EACH_ISA(isa)
        {
            pose(&p, 71, "fwd:%s:b1024h1q1k1d4v64", types[type]);
            uint16_t *v = p.t.v.data;
            const uint16_t *out = p.t.out.data;
            for (int x = 0; x < 65536; x++)
                v[x] = (uint16_t)x;
            attend(&p, isa);
            for (int row = 0; row < 1024; row++)
                for (int x = 64 * row; x < 64 * row + 64; x++) {
                    float in, got;
                    good(rp_convert(&in, RP_F32, v + x, p.t.v.dtype, 1));
                    good(rp_convert(&got, RP_F32, out + x, p.t.v.dtype, 1));
                    if (isnan(in) ? !isnan(got) : fabsf(in) < FLT_MIN ? fabsf(got) > fabsf(in) : got != in)
                        wrong(&p, isa, "value %#x of %s came out as %#x", x, types[type], (unsigned)out[x]);
                }
            problem_free(&p);
        }
}

/* ------------------------------------------------------------------------------------------------ nothing to do */

static void nothing(void **state)
{
    static const char *const texts[] = {
        "b0h2q5k7d4",
        "b2h2q0k7d4",
        "b2h2q5k0d4",
        "b2h2q0k0d4",
        "b1h2q1k0d4",
        "b0h2q0k0d4",
        "b2h2q5k0d4:alibi+t5+dense+rope+relkey,left=1,right=1+relval,left=1,right=1:causal+key_mask+mask+lengths",
        "b2h2q0k5d4:alibi+t5+dense+rope+relkey,left=1,right=1+relval,left=1,right=1:causal+key_mask+mask+lengths",
        "b0h2q5k5d4:alibi+t5+dense+rope+relkey,left=1,right=1+relval,left=1,right=1:causal+segments",
    };
    problem p;
    (void)state;
    for (size_t n = 0; n < sizeof texts / sizeof *texts; n++)
        for (int i = -1; i < 0 || rp_isa_name(i); i++) {
            const char *isa = i < 0 ? "reference" : rp_isa_name(i);
            if (rp_isa_found(isa) != 1)
                continue;
            pose(&p, 70, "fwd:f32:%s", texts[n]);
            also(&p, WITH_ALL, RP_F32);
            rp_array *out[] = {&p.t.out, &p.t.lse, &p.t.profile, &p.t.key_mass, &p.t.entropy, &p.t.weights};
            static const char *const names[] = {"out", "lse", "profile", "key_mass", "entropy", "weights"};
            for (int o = 0; o < 6; o++)
                memset(out[o]->data, 0x11, (size_t)problem_size(out[o]) * 4);
            attend(&p, isa);
            for (int o = 0; o < 6; o++)
                for (int64_t x = 0; x < problem_size(out[o]); x++)
                    if (at(out[o], x) != (o == 1 ? -INFINITY : 0.0))
                        wrong(&p, isa, "%s[%lld] is %g", names[o], (long long)x, at(out[o], x));
            /* absent arrays are as good as empty ones */
            if (p.desc.batch * p.desc.len_q == 0)
                p.t.q.data = NULL;
            if (p.desc.batch * p.desc.len_k == 0)
                p.t.k.data = p.t.v.data = NULL;
            attend(&p, isa);
            problem_free(&p);
        }
}

/* ------------------------------------------------------------------------------------------------ summaries, traces */

static void summaries(void **state)
{
    static const char *const texts[] = {
        "b2h2q40k70d8:t5:causal",
        "b1h4g2q210k300d5:alibi:window=40,20",
        "b1h2q7k1100d6o500:dense:",
        "b1h1q130k9d4o-50:table,left=3,right=3:causal",
        "b1h1q1k1d3::",
        "b1h2q97k513d4:relkey,left=3,right=3:mask+softcap=2",
        "b2h1q20k20d4:rope:segments",
        "b1h1q800k40d4::lengths",
    };
    problem p;
    double worst = 0;
    (void)state;
    for (size_t n = 0; n < sizeof texts / sizeof *texts; n++)
        for (int i = -1; i < 0 || rp_isa_name(i); i++) {
            const char *isa = i < 0 ? "reference" : rp_isa_name(i);
            if (rp_isa_found(isa) != 1)
                continue;
            pose(&p, 80, "fwd:f32:%s", texts[n]);
            also(&p, WITH_ALL, RP_F64);
            attend(&p, isa);
            const int64_t Lq = p.desc.len_q, Lk = p.desc.len_k, heads = p.desc.batch * p.desc.heads, T = Lq + Lk - 1;
            double *profile = calloc((size_t)T, 8), *mass = calloc((size_t)Lk, 8), *pairs = calloc((size_t)T, 8);
            for (int64_t h = 0; h < heads; h++) {
                memset(profile, 0, (size_t)T * 8);
                memset(pairs, 0, (size_t)T * 8);
                memset(mass, 0, (size_t)Lk * 8);
                for (int64_t r = 0; r < Lq; r++) {
                    double entropy = 0;
                    for (int64_t j = 0; j < Lk; j++) {
                        const double w = at(&p.t.weights, (h * Lq + r) * Lk + j);
                        /* profile[t] is of delta = t - (Lq-1+q_offset), and delta = j - (r + q_offset) */
                        profile[j - r + Lq - 1] += w;
                        pairs[j - r + Lq - 1]++;
                        mass[j] += w;
                        entropy -= w > 0 ? w * log(w) : 0;
                    }
                    const double error = fabs(at(&p.t.entropy, h * Lq + r) - entropy);
                    worst = fmax(worst, error);
                    if (!(error <= 2e-5))
                        wrong(&p, isa, "entropy of row %lld of head %lld is %.9g, not %.9g", (long long)r, (long long)h,
                              at(&p.t.entropy, h * Lq + r), entropy);
                }
                for (int64_t t = 0; t < T; t++) {
                    const double want = profile[t] / pairs[t], got = at(&p.t.profile, h * T + t);
                    if (!(fabs(got - want) <= 4e-6 * want + 1e-12))
                        wrong(&p, isa, "profile[%lld] of head %lld is %.9g, not %.9g", (long long)t, (long long)h, got,
                              want);
                }
                for (int64_t j = 0; j < Lk; j++)
                    if (!(fabs(at(&p.t.key_mass, h * Lk + j) - mass[j]) <= 4e-6 * mass[j] + 1e-12))
                        wrong(&p, isa, "key_mass[%lld] of head %lld is %.9g, not %.9g", (long long)j, (long long)h,
                              at(&p.t.key_mass, h * Lk + j), mass[j]);
            }
            free(profile);
            free(mass);
            free(pairs);
            problem_free(&p);
        }
    print_message("entropy: error %.3g, tolerance %.3g\n", worst, 2e-5);
}

/* The trace of a row is the reference's row, and rp_bias the difference that biases make. */
static void traces(void **state)
{
    static const char *const texts[] = {
        "b2h4g2q9k13d6v5o4:t5+dense+alibi+rope:causal",
        "b1h2q8k11d4:relkey,left=2,right=3+relval,left=1,right=1+log:mask",
        "b1h2q8k11d4o-3:table,left=2,right=3+linear,left=0.5,right=2:window=5,2+softcap=2",
        "b1h2q8k11d4:dense+bucket,strategy=linear,buckets=8,max_distance=9:key_mask+softcap_after=2",
    };
    problem p;
    (void)state;
    for (size_t n = 0; n < sizeof texts / sizeof *texts; n++) {
        pose(&p, 90, "fwd:f64:%s", texts[n]);
        const rp_desc *d = &p.desc;
        const int64_t Lq = d->len_q, Lk = d->len_k, Dv = d->dim_v ? d->dim_v : d->dim_k;
        rp_plan *plan;
        const int64_t shape[3] = {d->heads, Lq, Lk};
        rp_array bias = array_in(&p, RP_F64, 3, shape), bias32 = array_in(&p, RP_F32, 3, shape);
        also(&p, WITH_LSE | WITH_WEIGHTS, RP_F64);
        attend(&p, "reference");
        good(rp_plan_create(&plan, d));
        for (int64_t b = 0; b < d->batch; b++) {
            good(rp_bias(plan, &p.t, b, &bias));
            good(rp_bias(plan, &p.t, b, &bias32));
            for (int64_t h = 0; h < d->heads; h++)
                for (int64_t i = 0; i < Lq; i++) {
                    double raw[64], scaled[64], own[64], score[64], weights[64], out[16];
                    rp_row row = {raw, scaled, own, score, weights, out, 0};
                    const int64_t r = (b * d->heads + h) * Lq + i;
                    good(rp_attend_row(plan, &p.t, b, h, i, &row));
                    same_bits(&p, "reference", "weights of a row", (double *)p.t.weights.data + r * Lk, weights,
                              (size_t)Lk * 8);
                    same_bits(&p, "reference", "out of a row", (double *)p.t.out.data + r * Dv, out, (size_t)Dv * 8);
                    same_bits(&p, "reference", "lse of a row", (double *)p.t.lse.data + r, &row.lse, 8);
                    same_bits(&p, "reference", "bias of a row", (double *)bias.data + (h * Lq + i) * Lk, own,
                              (size_t)Lk * 8);
                    for (int64_t j = 0; j < Lk; j++) {
                        const bool open = allowed(&p, b, h, i, j);
                        const double plain = d->cap_after ? cap(d, scaled[j] + own[j]) : cap(d, scaled[j]) + own[j];
                        if (open ? fabs(score[j] - plain) > 1e-12 : score[j] != -INFINITY)
                            wrong(&p, "reference", "score %lld of a row is %g, not %g", (long long)j, score[j], plain);
                        if (at(&bias32, (h * Lq + i) * Lk + j) != (double)(float)own[j])
                            wrong(&p, "reference", "rp_bias in f32 is not the one in f64");
                        double product = 0; /* raw is of the turned vectors; without rope, of q and k */
                        const int64_t g = h / (d->heads / (d->kv_heads ? d->kv_heads : d->heads)),
                                      Hk = d->kv_heads ? d->kv_heads : d->heads;
                        for (int64_t c = 0; c < d->dim_k; c++)
                            product +=
                                at(&p.t.q, r * d->dim_k + c) * at(&p.t.k, ((b * Hk + g) * Lk + j) * d->dim_k + c);
                        if (n > 0 && fabs(product - raw[j]) > 1e-12)
                            wrong(&p, "reference", "raw %lld of a row is %g, not %g", (long long)j, raw[j], product);
                    }
                    double weight[64], want[16], lse;
                    naive(&p, b, h, i, weight, want, &lse);
                    for (int64_t j = 0; j < Lk; j++)
                        if (fabs(weight[j] - weights[j]) > 1e-12)
                            wrong(&p, "reference", "weight %lld of row %lld: %g, and %g by the definition",
                                  (long long)j, (long long)r, weights[j], weight[j]);
                }
        }
        rp_plan_destroy(plan);
        problem_free(&p);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sizes),           cmocka_unit_test(wide),
        cmocka_unit_test(tiles),           cmocka_unit_test(rotations),
        cmocka_unit_test(rows_sum_to_one), cmocka_unit_test(shared_heads),
        cmocka_unit_test(zero_terms),      cmocka_unit_test(sum_of_tables),
        cmocka_unit_test(shift),           cmocka_unit_test(four_causals),
        cmocka_unit_test(empty_rows),      cmocka_unit_test(one_key),
        cmocka_unit_test(lowest),          cmocka_unit_test(beyond_f32),
        cmocka_unit_test(poisoned),        cmocka_unit_test(poisoned_summaries),
        cmocka_unit_test(large),           cmocka_unit_test(strides),
        cmocka_unit_test(fences),          cmocka_unit_test(far_elements),
        cmocka_unit_test(same_everywhere), cmocka_unit_test(same_as_emulated),
        cmocka_unit_test(decoding),        cmocka_unit_test(decoding_turned),
        cmocka_unit_test(halves),          cmocka_unit_test(nothing),
        cmocka_unit_test(summaries),       cmocka_unit_test(traces),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
