/* test_parts.c -- the parts of a row, for every term and every pair of terms in the registry. They sum to the score and
 * to out; each belongs to its term; and a product by query or by key depends only on that side.
 * SPDX-License-Identifier: Apache-2.0 */
#include "tests/helpers.h"
#include "tests/pairs.h"

enum { L = PAIR_TOKENS, D = 8, DV = 5 };

static const char *const settings[] = {"",
                                       "causal+scale=0.7",
                                       "softcap=1.5+mask",
                                       "softcap_after=2+key_mask",
                                       "softcap=1.5+softcap_after=2+causal",
                                       "dropout=0.4+seed=3"};
enum { SETTINGS = sizeof settings / sizeof *settings };

typedef struct trace {
    double raw[L], scaled[L], bias[L], score[L], weights[L], out[DV];
    rp_row row;
    int32_t n;
    rp_part part[RP_MAX_PARTS];
    double value[RP_MAX_PARTS][L > DV ? L : DV];
} trace;

static bool is_of_score(const rp_part *p)
{
    return p->kind <= RP_PART_MASK;
}

static void look(const problem *p, const rp_plan *plan, const rp_tensors *t, int64_t b, int64_t h, int64_t i, trace *to)
{
    memset(to->part, 0, sizeof to->part);
    to->row = (rp_row){to->raw, to->scaled, to->bias, to->score, to->weights, to->out, 0};
    good(rp_attend_row(plan, t, b, h, i, &to->row));
    good(rp_attend_parts(plan, t, b, h, i, to->part, &to->n));
    for (int32_t n = 0; n < to->n; n++) {
        const rp_part *part = &to->part[n];
        const int64_t length = is_of_score(part) ? L : part->kind == RP_PART_SINK ? 1 : DV;
        if (part->length != length)
            wrong(p, "reference", "part %s has length %lld", part->name, (long long)part->length);
        to->part[n].value = to->value[n];
    }
    good(rp_attend_parts(plan, t, b, h, i, to->part, &to->n));
}

static void expect_near(const problem *p, const char *what, double got, double want, double size)
{
    if (got == want || fabs(got - want) <= 64 * DBL_EPSILON * size)
        return;
    wrong(p, "reference", "%s is %.17g, not %.17g", what, got, want);
}

/* Check that all names differ and that every term has a part with its role. */
static void check_names(const problem *p, const trace *t)
{
    assert_true(t->n >= 1 && t->n <= RP_MAX_PARTS);
    for (int32_t n = 0; n < t->n; n++) {
        assert_true(*t->part[n].name && t->part[n].formula && *t->part[n].formula);
        for (int32_t m = 0; m < n; m++)
            if (strcmp(t->part[n].name, t->part[m].name) == 0)
                wrong(p, "reference", "two parts are called %s", t->part[n].name);
    }
    for (int32_t x = 0; x < p->desc.n_terms; x++) {
        const rp_role role = rp_term_role(p->terms[x].kind);
        int parts = 0;
        for (int32_t n = 0; n < t->n; n++) {
            const rp_part *part = &t->part[n];
            const bool product = part->kind == RP_PART_QUERY || part->kind == RP_PART_KEY;
            if (part->term != x)
                continue;
            parts++;
            if (role == RP_ROLE_BIAS       ? part->kind != RP_PART_BIAS && !product
                : role == RP_ROLE_PRODUCT  ? !product
                : role == RP_ROLE_VALUE    ? part->kind != RP_PART_VECTORS
                : role == RP_ROLE_ROTATION ? part->kind != RP_PART_ROTATION
                                           : part->kind != RP_PART_SINK)
                wrong(p, "reference", "part %s of %s has kind %d", part->name, rp_term_name(p->terms[x].kind),
                      (int)part->kind);
        }
        if (parts == 0)
            wrong(p, "reference", "%s has no part", rp_term_name(p->terms[x].kind));
    }
}

/* Check the sums, and those parts that this test can compute itself. */
static void check_sums(const problem *p, const trace *t, int64_t b, int64_t h, int64_t i)
{
    const rp_desc *d = &p->desc;
    const double scale = d->scale == RP_SCALE_AUTO ? 1 / sqrt(D) : d->scale;
    const int64_t Hk = d->kv_heads, g = h / (d->heads / Hk);
    for (int64_t j = 0; j < L; j++) {
        double sum = 0, size = 0, content = 0, rotated = 0, biases = 0, product = 0;
        for (int32_t n = 0; n < t->n && is_of_score(&t->part[n]); n++) {
            const double x = t->value[n][j];
            const rp_part *part = &t->part[n];
            sum += x;
            size += isfinite(x) ? fabs(x) : 0;
            content += part->kind == RP_PART_CONTENT ? x : 0;
            rotated += part->kind <= RP_PART_ROTATION ? x : 0;
            biases += part->term >= 0 && rp_term_is_bias(p->terms[part->term].kind) ? x : 0;
        }
        for (int64_t c = 0; c < D; c++)
            product += at(&p->t.q, ((b * d->heads + h) * L + i) * D + c) * at(&p->t.k, ((b * Hk + g) * L + j) * D + c);
        expect_near(p, "the sum of the parts", sum, t->score[j], size);
        expect_near(p, "content", content, scale * product, size);
        expect_near(p, "content and rotation", rotated, t->scaled[j], size);
        expect_near(p, "scaled", t->scaled[j], scale * t->raw[j], size);
        expect_near(p, "the sum of the biases", biases, t->bias[j], size);
    }
    for (int64_t c = 0; c < DV; c++) {
        double sum = 0, size = 0;
        for (int32_t n = 0; n < t->n; n++)
            if (t->part[n].kind >= RP_PART_VALUES) {
                sum += t->value[n][c];
                size += fabs(t->value[n][c]);
            }
        expect_near(p, "the sum of the parts of out", sum, t->out[c], size + 4);
    }
    for (int32_t n = 0; n < t->n; n++)
        if (t->part[n].kind == RP_PART_SINK) {
            const rp_array *sink = &p->t.term[t->part[n].term][0];
            const int64_t entry = sink->ndim == 3 && sink->shape[0] > 1 ? b : 0,
                          x = sink->ndim == 1 ? h : (entry * d->heads + h) * L + i;
            expect_near(p, "the sink", t->value[n][0], at(sink, x), 0);
        }
}

/* If keys are 0, products by query and biases stay, and all other parts are 0. If queries are 0, products by key
 * stay. */
static void check_sides(const problem *p, const rp_plan *plan, const trace *t, int64_t b, int64_t h, int64_t i)
{
    static const double zeros[2 * 4 * L * D];
    for (int side = 0; side < 2; side++) {
        rp_tensors other = p->t;
        static trace without;
        (side ? &other.q : &other.k)->data = (void *)(uintptr_t)zeros;
        look(p, plan, &other, b, h, i, &without);
        assert_int_equal(without.n, t->n);
        for (int32_t n = 0; n < t->n; n++)
            for (int64_t j = 0; j < L; j++) {
                const rp_part_kind kind = t->part[n].kind;
                const double x = without.value[n][j], with = t->value[n][j];
                const bool stays =
                    kind == RP_PART_BIAS || (kind == RP_PART_QUERY && !side) || (kind == RP_PART_KEY && side);
                const bool goes = kind <= RP_PART_ROTATION || (kind == RP_PART_KEY && !side);
                if ((stays && memcmp(&x, &with, sizeof x) != 0) || (goes && x != 0))
                    wrong(p, "reference", "part %s is %g, and %g without %s", t->part[n].name, with, x,
                          side ? "queries" : "keys");
            }
    }
}

/* The parts of a term equal the score with this term minus the score without it. */
static void check_terms(const problem *p, const trace *t, int64_t b, int64_t h, int64_t i)
{
    for (int32_t x = 0; x < p->desc.n_terms; x++) {
        rp_desc d = p->desc;
        rp_tensors other = p->t;
        rp_term terms[RP_MAX_TERMS];
        rp_plan *plan;
        static trace without;
        d.terms = terms;
        d.n_terms = 0;
        for (int32_t n = 0; n < p->desc.n_terms; n++)
            if (n != x) {
                memcpy(other.term[d.n_terms], p->t.term[n], sizeof other.term[0]);
                terms[d.n_terms++] = p->terms[n];
            }
        good(rp_plan_create(&plan, &d));
        look(p, plan, &other, b, h, i, &without);
        for (int64_t j = 0; j < L; j++) {
            double own = 0, size = 1;
            for (int32_t n = 0; n < t->n && is_of_score(&t->part[n]); n++) {
                own += t->part[n].term == x ? t->value[n][j] : 0;
                size += isfinite(t->value[n][j]) ? fabs(t->value[n][j]) : 0;
            }
            if (without.score[j] != -INFINITY)
                expect_near(p, rp_term_name(p->terms[x].kind), own, t->score[j] - without.score[j], size);
        }
        rp_plan_destroy(plan);
    }
}

static void check_problem(const char *terms, const char *setting)
{
    problem p;
    rp_plan *plan;
    static trace t;
    pose(&p, 7, "fwd:f64:b2h4g2q%dk%dd%dv%d:%s:%s", L, L, D, DV, terms, setting);
    good(rp_plan_create(&plan, &p.desc));
    for (int64_t row = 0; row < 3; row++) {
        const int64_t b = row % 2, h = row, i = row * 2 + 1;
        look(&p, plan, &p.t, b, h, i, &t);
        check_names(&p, &t);
        check_sums(&p, &t, b, h, i);
        check_sides(&p, plan, &t, b, h, i);
        if (p.desc.softcap == 0 && p.desc.softcap_after == 0)
            check_terms(&p, &t, b, h, i);
    }
    rp_plan_destroy(plan);
    problem_free(&p);
}

static void parts_of_every_term(void **state)
{
    char text[TERM_TEXT];
    (void)state;
    for (int s = 0; s < SETTINGS; s++) {
        check_problem("", settings[s]);
        for (rp_term_kind kind = RP_TERM_NONE + 1; kind < RP_TERM_COUNT; kind++)
            for (int x = 0; term_text(kind, x, text); x++)
                check_problem(text, settings[s]);
    }
}

static void parts_of_every_pair_of_terms(void **state)
{
    char text[2 * TERM_TEXT + 1];
    int pairs = 0;
    (void)state;
    for (rp_term_kind a = RP_TERM_NONE + 1; a < RP_TERM_COUNT; a++)
        for (rp_term_kind b = a; b < RP_TERM_COUNT; b++)
            for (int s = 0; pair_text(a, b, text) && s < SETTINGS; s++, pairs++)
                check_problem(text, settings[s]);
    print_message("%d pairs of terms with settings\n", pairs);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parts_of_every_term),
        cmocka_unit_test(parts_of_every_pair_of_terms),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
