/* test_nonfinite.c -- NaN and infinity affect the rows that attend to them, and nothing else.
 * SPDX-License-Identifier: Apache-2.0 */
#include "tests/laws/definition.h"

static const float poisons[] = {NAN, INFINITY, -INFINITY};

/* Check `out` row by row. Rows r with row[r] = false must keep their bits. Rows with row[r] = true must be NaN in
 * channel c, or in every channel if c = -1. */
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

/* Each way to mask pairs, combined with each way in which tiles add a bias. */
static const char *const cases[] = {
    "q40k70d6v5o20::causal",
    "q40k70d6v5o20:t5+relkey,left=3,right=3:causal",
    "q40k70d6v5o9:dense:window=7,2",
    "q40k70d6v5o9:alibi:window=7,2+softcap=3",
    "q40k70d6v5:t5:key_mask",
    "q40k70d6v5:relval,left=3,right=3:key_mask",
    "q40k70d6v5:relval,left=3,right=3,q_position_mask=x,k_position_mask=y:key_mask",
    "q40k70d6v5:relkey,left=3,right=3,k_position_mask=y:causal",
    "q40k70d6v5:dense:mask",
    "q40k70d6v5:dense+alibi:mask+softcap_after=4",
    "q40k70d6v5:rope:lengths",
    "q60k60d6v5:dense+table,left=3,right=3:segments",
    "q40k70d6v5:dense:",
    "q40k70d6v5:dense+dense:",
    "q40k70d6v5:dense+alibi+relkey,left=3,right=3:",
    "q40k70d6v5:dense:softcap=3",
    "q40k70d6v5:dense+t5:softcap_after=3",
    "q40k70d6v5:dense+relkey,left=3,right=3:softcap=2+softcap_after=3",
    "q40k70d6v5:dense+rope:softcap=3",
    "q40k70d6v5:dense+relkey,left=3,right=3:softcap=3",
    "q40k70d6v5:dense+relval,left=3,right=3:",
    /* 64 and 512 keys fill whole tiles, so only the biases mask */
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

/* A problem whose masked pairs are known, and its results before any number becomes NaN or infinite. */
typedef struct poison_case {
    problem p;
    int64_t Lq, Lk, rows;
    bool by_bias;     /* there is no mask; the first term masks pairs by -infinity */
    bool *open, *row; /* for each pair: it is not masked; for each row: it may change */
    float *clean;     /* out of the unchanged problem */
    double *bound;    /* bounds of the errors of out, for channels that the number does not reach */
} poison_case;

static void case_begin(poison_case *c, size_t n)
{
    problem *p = &c->p;
    pose(p, 40, "fwd:f32:b2h2g1%s", cases[n]);
    const int64_t Lq = c->Lq = p->desc.len_q, Lk = c->Lk = p->desc.len_k, rows = c->rows = 4 * Lq;
    c->by_bias = p->desc.n_masks == 0 && p->terms[0].kind == RP_TERM_DENSE;
    if (c->by_bias) /* -infinity masks three pairs in ten, and all pairs of some keys */
        for (int64_t x = 0; x < rows * Lk; x++)
            if (x * 7 % 10 < 3 || x % Lk % 11 == 5)
                ((float *)p->t.term[0][0].data)[x] = -INFINITY;
    if (p->t.mask[0].data && p->masks[0].kind == RP_MASK_LENGTHS)
        ((int64_t *)p->t.mask[0].data)[0] = 33, ((int64_t *)p->t.mask[0].data)[1] = 70;
    c->open = malloc((size_t)rows * (size_t)Lk), c->row = malloc((size_t)rows);
    assert_true(c->open && c->row);
    for (int64_t x = 0; x < rows * Lk; x++)
        c->open[x] = allowed(p, x / Lk / Lq / 2, x / Lk / Lq % 2, x / Lk % Lq, x % Lk) &&
                     !(c->by_bias && ((float *)p->t.term[0][0].data)[x] == -INFINITY);
}

static void case_end(poison_case *c)
{
    free(c->open);
    free(c->row);
    problem_free(&c->p);
}

static void clean_call(poison_case *c, const char *isa, bool bounded)
{
    attend(&c->p, isa);
    c->clean = copy_of(&c->p.t.out);
    c->bound = bounded ? bound_of(&c->p, isa) : NULL;
}

static void clean_end(poison_case *c)
{
    free(c->clean);
    free(c->bound);
}

/* Run the call after a number became NaN or infinite. Rows in c->row must be NaN in `channel` (-1: in all channels);
 * other rows must keep their bits. */
static void poisoned(poison_case *c, const char *isa, const char *what, int64_t channel)
{
    attend(&c->p, isa);
    reached(&c->p, isa, what, c->clean, c->row, channel, c->bound);
}

#define EACH_CASE(c)                                                                                                   \
    for (size_t c##_n = 0; c##_n < sizeof cases / sizeof *cases; c##_n += EMULATED ? 3 : 1)                            \
        for (int c##_on = (case_begin(&(c), c##_n), 1); c##_on; c##_on = (case_end(&(c)), 0))

/* Put NaN or infinity into one key or value. If it is masked, nothing changes. If it is attended, rows that attend to
 * it become NaN; a value affects only its channel. */
static void one_key_or_value_reaches_only_its_rows(void **state)
{
    poison_case c;
    (void)state;
    EACH_CASE(c)
    EACH_ISA(isa)
    {
        if (SLOW(isa) && c_n % 3 != 0)
            continue;
        clean_call(&c, isa, true);
        float *k = c.p.t.k.data, *v = c.p.t.v.data;
        for (int64_t j = c_n % 3 == 0 ? 0 : 5; j<c.Lk; j += c.Lk> 100 ? 83 : 9)
            for (int64_t b = 0; b < 2; b++) {
                const int64_t channel = (j + b) % 3;
                bool hidden = true;
                for (int64_t r = 0; r < c.rows; r++) {
                    c.row[r] = r / c.Lq / 2 == b && c.open[r * c.Lk + j];
                    hidden &= !c.row[r];
                }
                float *k_at = &k[(b * c.Lk + j) * 6 + channel], *v_at = &v[(b * c.Lk + j) * 5 + channel];
                const float k_was = *k_at, v_was = *v_at;
                for (int m = 0; m < (hidden ? 3 : 1); m++) {
                    *k_at = poisons[m];
                    poisoned(&c, isa, hidden ? "a hidden key" : "NaN in a key", -1);
                    *k_at = k_was;
                    *v_at = poisons[m];
                    poisoned(&c, isa, hidden ? "a hidden value" : "NaN in a value", channel);
                    *v_at = v_was;
                }
            }
        clean_end(&c);
    }
}

/* Put NaN into one query. */
static void one_query_reaches_only_its_row(void **state)
{
    poison_case c;
    (void)state;
    EACH_CASE(c)
    EACH_ISA(isa)
    {
        clean_call(&c, isa, false);
        float *q = c.p.t.q.data;
        for (int64_t i = 0; i < c.rows; i += 13) {
            const float was = q[i * 6 + 1];
            bool any = false;
            for (int64_t j = 0; j < c.Lk; j++)
                any |= c.open[i * c.Lk + j];
            for (int64_t r = 0; r < c.rows; r++)
                c.row[r] = r == i && any;
            q[i * 6 + 1] = NAN;
            poisoned(&c, isa, "NaN in a query", -1);
            q[i * 6 + 1] = was;
        }
        clean_end(&c);
    }
}

/* In a single call, set all masked keys, values and biases to NaN or infinity. */
static void hidden_numbers_reach_nothing(void **state)
{
    poison_case c;
    (void)state;
    EACH_CASE(c)
    EACH_ISA(isa)
    {
        clean_call(&c, isa, false);
        float *k = c.p.t.k.data, *v = c.p.t.v.data;
        for (int m = 0; m < 3; m++) {
            float *k_was = copy_of(&c.p.t.k), *v_was = copy_of(&c.p.t.v), *bias_was[RP_MAX_TERMS] = {0};
            memset(c.row, 0, (size_t)c.rows);
            for (int64_t x = 0; x < 2 * c.Lk; x++) {
                bool hidden = true;
                for (int64_t r = 0; r < 2 * c.Lq; r++)
                    hidden &= !c.open[(x / c.Lk * 2 * c.Lq + r) * c.Lk + x % c.Lk];
                for (int d = 0; hidden && d < 6; d++)
                    k[x * 6 + d] = poisons[(m + d) % 3];
                for (int d = 0; hidden && d < 5; d++)
                    v[x * 5 + d] = poisons[(m + d) % 3];
            }
            for (int32_t t = c.by_bias ? 1 : 0; t < c.p.desc.n_terms; t++)
                if (c.p.terms[t].kind == RP_TERM_DENSE) {
                    bias_was[t] = copy_of(&c.p.t.term[t][0]);
                    for (int64_t x = 0; x < c.rows * c.Lk; x++)
                        if (!c.open[x])
                            ((float *)c.p.t.term[t][0].data)[x] = poisons[m];
                }
            poisoned(&c, isa, "every hidden number", -1);
            memcpy(k, k_was, (size_t)problem_size(&c.p.t.k) * 4);
            memcpy(v, v_was, (size_t)problem_size(&c.p.t.v) * 4);
            for (int32_t t = 0; t < c.p.desc.n_terms; t++)
                if (bias_was[t])
                    memcpy(c.p.t.term[t][0].data, bias_was[t], (size_t)problem_size(&c.p.t.term[t][0]) * 4);
            for (int32_t t = 0; t < c.p.desc.n_terms; t++)
                free(bias_was[t]);
            free(k_was);
            free(v_was);
        }
        clean_end(&c);
    }
}

/* Put NaN into the bias of one attended pair. */
static void one_bias_reaches_only_its_row(void **state)
{
    poison_case c;
    (void)state;
    EACH_CASE(c)
    EACH_ISA(isa)
    {
        clean_call(&c, isa, false);
        for (int32_t t = 0; t < c.p.desc.n_terms; t++)
            for (int64_t x = 17; c.p.terms[t].kind == RP_TERM_DENSE && x < c.rows * c.Lk; x += c.rows * c.Lk / 7) {
                float *one = (float *)c.p.t.term[t][0].data + x;
                const float was = *one;
                if (!c.open[x])
                    continue;
                memset(c.row, 0, (size_t)c.rows);
                c.row[x / c.Lk] = true;
                *one = NAN;
                poisoned(&c, isa, "NaN in a bias", -1);
                *one = was;
            }
        clean_end(&c);
    }
}

/* Return true if token n has a position, according to q_position_mask or k_position_mask. */
static bool placed(const rp_array *mask, int64_t b, int64_t n)
{
    return !mask->data || ((const uint8_t *)mask->data)[(mask->ndim == 2 ? b * mask->shape[1] : 0) + n];
}

/* NaN in a table entry that no attended pair reads changes nothing. In any other entry it affects the rows that read
 * the entry. */
static void one_entry_of_a_table_reaches_only_its_rows(void **state)
{
    poison_case c;
    (void)state;
    EACH_CASE(c)
    EACH_ISA(isa)
    {
        clean_call(&c, isa, true);
        for (int32_t t = 0; t < c.p.desc.n_terms; t++) {
            const rp_term *term = &c.p.terms[t];
            const bool vector = term->kind == RP_TERM_RELKEY || term->kind == RP_TERM_RELVAL;
            if (!vector && term->kind != RP_TERM_TABLE)
                continue;
            const rp_array *a = &c.p.t.term[t][0];
            const int64_t entries = term->left + term->right + 1, width = vector ? a->shape[a->ndim - 1] : 1;
            for (int64_t e = 0; e<entries; e += entries> 100 ? 90 : 1) {
                /* an entry of head 0; if the array has no heads, of all heads */
                float *one = (float *)a->data + e * width;
                const bool heads = a->ndim == (vector ? 3 : 2);
                const float was = *one;
                for (int64_t r = 0; r < c.rows; r++) {
                    const int64_t b = r / c.Lq / 2;
                    c.row[r] = false;
                    for (int64_t j = 0; j < c.Lk; j++)
                        c.row[r] |=
                            c.open[r * c.Lk + j] && (!heads || r / c.Lq % 2 == 0) &&
                            (!vector || (placed(&a[3], b, r % c.Lq) && placed(&a[4], b, j))) &&
                            clip(j - (r % c.Lq + c.p.desc.q_offset), -term->left, term->right) + term->left == e;
                }
                *one = NAN;
                poisoned(&c, isa, "NaN in a table", term->kind == RP_TERM_RELVAL ? 0 : -1);
                *one = was;
            }
        }
        clean_end(&c);
    }
}

/* NaN in the only key of a row affects only the summaries of that row. */
static void nan_reaches_only_its_summaries(void **state)
{
    problem p;
    (void)state;
    EACH_ISA(isa)
    {
        pose(&p, 41, "fwd:f32:b1h2q6k40d6::causal");
        also(&p, WITH_SUMMARY, RP_F64);
        ((float *)p.t.q.data)[2] = NAN; /* query 0 of head 0 attends only to key 0 */
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

/* A product of -infinity does not mask. The weight of its pair is 0, so an infinite value gives NaN in its channel and
 * in the gradients of the row, but not in the gradients of that key and value. A row whose products are all -infinity
 * is treated as having no key. */
static void a_weight_of_zero_multiplies_its_value(void **state)
{
    static const char *const texts[] = {"bwd:f32:b1h2q1k40d6v5:", "bwd:f32:b1h2q9k40d6v5:t5:",
                                        "bwd:f32:b1h2q9k600d32v32:", "bwd:f32:b1h2q1k600d32v32:alibi:"};
    (void)state;
    for (size_t n = 0; n < sizeof texts / sizeof *texts; n++)
        EACH_PATH(path)
    for (int all = 0; all < 2; all++)
        for (int sign = -1; sign <= 1; sign++) { /* sign of the infinite value; with 0 the value is finite */
            problem p;
            pose(&p, 42, "%s", texts[n]);
            const int64_t Lq = p.desc.len_q, Lk = p.desc.len_k, Dk = p.desc.dim_k, Dv = p.desc.dim_v;
            for (int64_t x = 0; x < problem_size(&p.t.q); x++)
                set(&p.t.q, x, fabs(at(&p.t.q, x)) + 0.1);
            for (int64_t j = 0; j < Lk; j++) /* of head 0 */
                if (all || j == 3)
                    set(&p.t.k, j * Dk + 1, -INFINITY);
            if (sign)
                set(&p.t.v, 3 * Dv + 2, sign * (double)INFINITY);
            backward(&p, path, &p.g, true);
            const bool nan = sign && !all;
            for (int64_t x = 0; x < problem_size(&p.t.out); x++)
                if (isnan(at(&p.t.out, x)) != (nan && x < Lq * Dv && x % Dv == 2) ||
                    (all && x < Lq * Dv && at(&p.t.out, x) != 0))
                    wrong(&p, path, "all %d, value %d: out[%lld] is %g", all, sign, (long long)x, at(&p.t.out, x));
            for (int64_t x = 0; x < problem_size(&p.g.dq); x++)
                if (isnan(at(&p.g.dq, x)) != (nan && x < Lq * Dk))
                    wrong(&p, path, "all %d, value %d: dq[%lld] is %g", all, sign, (long long)x, at(&p.g.dq, x));
            for (int64_t x = 0; x < problem_size(&p.g.dk); x++)
                if (isnan(at(&p.g.dk, x)) != (nan && x < Lk * Dk && x / Dk != 3))
                    wrong(&p, path, "all %d, value %d: dk[%lld] is %g", all, sign, (long long)x, at(&p.g.dk, x));
            for (int64_t x = 0; x < problem_size(&p.g.dv); x++)
                if (isnan(at(&p.g.dv, x)) || ((all || x / Dv == 3) && x < Lk * Dv && at(&p.g.dv, x) != 0))
                    wrong(&p, path, "all %d, value %d: dv[%lld] is %g", all, sign, (long long)x, at(&p.g.dv, x));
            problem_free(&p);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_key_or_value_reaches_only_its_rows),
        cmocka_unit_test(one_query_reaches_only_its_row),
        cmocka_unit_test(hidden_numbers_reach_nothing),
        cmocka_unit_test(one_bias_reaches_only_its_row),
        cmocka_unit_test(one_entry_of_a_table_reaches_only_its_rows),
        cmocka_unit_test(nan_reaches_only_its_summaries),
        cmocka_unit_test(a_weight_of_zero_multiplies_its_value),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
