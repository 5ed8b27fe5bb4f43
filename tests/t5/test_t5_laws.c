/* test_t5_laws.c -- a source gives the same bits together with any other sources, on any number of threads, token by
 * token or in one pass, and from a folder or a packed file. Samples depend only on their seed.
 * SPDX-License-Identifier: Apache-2.0 */
#include "tests/t5/models.h"

static const char *const types[] = {"f32", "f16", "bf16", "int8", "int4"};
enum { N_TYPES = sizeof types / sizeof *types };

#define EACH_MODEL(name, type)                                                                                         \
    for (int name##_n = 0; name##_n < N_MODELS * N_TYPES; name##_n++)                                                  \
        for (const char *name = model_names[name##_n / N_TYPES], *type = types[name##_n % N_TYPES]; name; name = NULL)

static void equal_bits(const char *model, const char *type, const char *what, const void *a, const void *b,
                       size_t bytes)
{
    if (memcmp(a, b, bytes) != 0)
        fail_msg("%s as %s: %s: the bits differ", model, type, what);
}

/* ------------------------------------------------------------------------------------------------ encode */

static void test_batch(void **state)
{
    (void)state;
    EACH_MODEL(name, type)
    {
        expected e;
        rp_t5 *m = open_model(name, type, NULL);
        read_expected(&e, name);
        const int64_t d = rp_t5_about(m)->d_model;
        rp_t5_tokens turned[2 * SOURCES]; /* each source twice, in reverse order */
        for (int64_t s = 0; s < 2 * SOURCES; s++)
            turned[s] = e.source[SOURCES - 1 - s / 2];
        float *together = encode_all(m, SOURCES, e.source), *others = encode_all(m, 2 * SOURCES, turned);
        const float *at = together, *end = others + 2 * e.rows * d;
        for (int64_t s = 0; s < SOURCES; s++) {
            const size_t bytes = (size_t)(e.source[s].n * d) * sizeof(float);
            float *alone = encode_all(m, 1, &e.source[s]);
            equal_bits(name, type, "alone and together", alone, at, bytes);
            end -= 2 * e.source[s].n * d;
            equal_bits(name, type, "among others", alone, end, bytes);
            at += e.source[s].n * d;
            free(alone);
        }
        free(together);
        free(others);
        free_expected(&e);
        rp_t5_close(m);
    }
}

static void test_threads(void **state)
{
    (void)state;
    EACH_MODEL(name, type)
    {
        expected e;
        read_expected(&e, name);
        float *first = NULL;
        rp_t5_results *first_results = NULL;
        for (int32_t threads = 1; threads <= 4; threads++) {
            rp_pool *pool;
            good(rp_pool_create(&pool, threads));
            rp_t5 *m = open_model(name, type, pool);
            float *hidden = encode_all(m, SOURCES, e.source);
            rp_t5_results *r = NULL;
            if (decodes(m)) {
                rp_t5_generation g = settings_of(m);
                g.scores = 1;
                fine(rp_t5_generate(m, SOURCES, e.source, &g, &r));
            }
            if (first != NULL)
                equal_bits(name, type, "threads", first, hidden,
                           (size_t)(e.rows * rp_t5_about(m)->d_model) * sizeof *hidden);
            for (int64_t k = 0; first != NULL && k < rp_t5_results_size(r); k++)
                equal_bits(name, type, "scores on threads", &rp_t5_result(first_results, k)->score,
                           &rp_t5_result(r, k)->score, sizeof(double));
            if (first == NULL) {
                first = hidden;
                first_results = r;
            } else {
                free(hidden);
                rp_t5_results_free(r);
            }
            rp_t5_close(m);
            rp_pool_destroy(pool);
        }
        free(first);
        rp_t5_results_free(first_results);
        free_expected(&e);
    }
}

/* ------------------------------------------------------------------------------------------------ decode */

/* Sums of log-probabilities are the same token by token and in one pass, for one source alone and for several. */
static void test_prefill(void **state)
{
    (void)state;
    EACH_MODEL(name, type)
    {
        expected e;
        rp_t5 *m = open_model(name, type, NULL);
        read_expected(&e, name);
        if (decodes(m)) {
            rp_t5_results *r, *one;
            rp_t5_generation g = settings_of(m);
            g.scores = 1;
            g.max_new_tokens = 150; /* longer than a page */
            fine(rp_t5_generate(m, SOURCES, e.source, &g, &r));
            for (int64_t s = 0; s < SOURCES; s++) {
                const rp_t5_sequence *q = rp_t5_result(r, s);
                double total;
                fine(rp_t5_generate(m, 1, &e.source[s], &g, &one));
                assert_true(same_tokens(q, rp_t5_result(one, 0)->tokens, rp_t5_result(one, 0)->n));
                equal_bits(name, type, "written alone", &q->score, &rp_t5_result(one, 0)->score, sizeof(double));
                fine(rp_t5_score(m, e.source[s], (rp_t5_tokens){q->tokens, q->n}, &total, NULL, NULL, NULL));
                equal_bits(name, type, "at once", &q->score, &total, sizeof total);
                rp_t5_results_free(one);
            }
            rp_t5_results_free(r);
        }
        free_expected(&e);
        rp_t5_close(m);
    }
}

/* Rows that were copied or reordered, or whose neighbours were removed, continue as they would alone. */
static void test_rows(void **state)
{
    enum { LENGTH = 140, ROWS = 3 };
    (void)state;
    EACH_MODEL(name, type)
    {
        expected e;
        rp_t5_session *s;
        rp_t5 *m = open_model(name, type, NULL);
        read_expected(&e, name);
        const int64_t vocab = rp_t5_about(m)->vocab;
        int32_t history[ROWS][LENGTH] = {{0}}, source[ROWS] = {0}, old[ROWS][LENGTH], was[ROWS];
        uint32_t random = 1;
        float *logits = malloc((size_t)(ROWS * vocab) * sizeof *logits), *alone = malloc((size_t)vocab * sizeof *alone);
        if (decodes(m)) {
            fine(rp_t5_begin(&s, m, SOURCES, e.source, 1));
            for (int64_t k = 0; k < LENGTH; k++) {
                int32_t parents[ROWS], tokens[ROWS];
                memcpy(old, history, sizeof old);
                memcpy(was, source, sizeof was);
                for (int r = 0; r < ROWS; r++) {
                    random = random * 1664525 + 1013904223;
                    parents[r] = (int32_t)(random >> 16) % (k == 0 ? SOURCES : ROWS);
                    tokens[r] = k == 0 ? rp_t5_about(m)->start : (int32_t)(random >> 8 & 0xff) % (int32_t)vocab;
                    source[r] = k == 0 ? parents[r] : was[parents[r]];
                    if (k > 0)
                        memcpy(history[r], old[parents[r]], sizeof history[r]);
                    history[r][k] = tokens[r];
                }
                fine(rp_t5_step(s, ROWS, parents, tokens, logits));
            }
            rp_t5_end(s);
            for (int r = 0; r < ROWS; r++) {
                const int32_t zero = 0;
                fine(rp_t5_begin(&s, m, 1, &e.source[source[r]], LENGTH));
                for (int64_t k = 0; k < LENGTH; k++)
                    fine(rp_t5_step(s, 1, &zero, &history[r][k], alone));
                rp_t5_end(s);
                equal_bits(name, type, "rows", alone, logits + r * vocab, (size_t)vocab * sizeof *alone);
            }
        }
        free(alone);
        free(logits);
        free_expected(&e);
        rp_t5_close(m);
    }
}

/* With a length penalty of 0, the score of a beam is the log-probability of its tokens. */
static void test_beam_scores(void **state)
{
    (void)state;
    for (int n = 0; n < N_MODELS; n++) {
        expected e;
        rp_t5 *m = open_model(model_names[n], "f32", NULL);
        read_expected(&e, model_names[n]);
        if (decodes(m)) {
            rp_t5_results *r;
            rp_t5_generation g = settings_of(m);
            g.beams = g.returned = 3;
            g.length_penalty = 0;
            fine(rp_t5_generate(m, SOURCES, e.source, &g, &r));
            for (int64_t k = 0; k < rp_t5_results_size(r); k++) {
                const rp_t5_sequence *q = rp_t5_result(r, k);
                double total;
                fine(rp_t5_score(m, e.source[q->source], (rp_t5_tokens){q->tokens, q->n}, &total, NULL, NULL, NULL));
                const double bound =
                    4 * (double)q->n * FLT_EPSILON * (fabs(total) + 20); /* f32 sums of f32 logits of size up to 20 */
                if (!(fabs(q->score - total) <= bound))
                    fail_msg("%s: the score of a beam is %.9g and not %.9g", model_names[n], q->score, total);
            }
            rp_t5_results_free(r);
        }
        free_expected(&e);
        rp_t5_close(m);
    }
}

/* ------------------------------------------------------------------------------------------------ files and samples */

static void test_packed(void **state)
{
    char path[] = "/tmp/relpos-t5-XXXXXX";
    const int fd = mkstemp(path);
    (void)state;
    assert_true(fd >= 0);
    close(fd);
    EACH_MODEL(name, type)
    {
        expected e;
        rp_t5 *m = open_model(name, type, NULL), *packed;
        read_expected(&e, name);
        fine(rp_t5_pack(m, path));
        fine(rp_t5_open(&packed, path, NULL));
        assert_string_equal(rp_t5_about(packed)->type, type);
        assert_int_equal(rp_t5_about(packed)->parameters, rp_t5_about(m)->parameters);
        float *a = encode_all(m, SOURCES, e.source), *b = encode_all(packed, SOURCES, e.source);
        equal_bits(name, type, "packed", a, b, (size_t)(e.rows * rp_t5_about(m)->d_model) * sizeof *a);
        if (decodes(m)) {
            const int32_t target[] = {5, 9, 2};
            double x, y;
            fine(rp_t5_score(m, e.source[2], (rp_t5_tokens){target, 3}, &x, NULL, NULL, NULL));
            fine(rp_t5_score(packed, e.source[2], (rp_t5_tokens){target, 3}, &y, NULL, NULL, NULL));
            equal_bits(name, type, "packed score", &x, &y, sizeof x);
        }
        free(a);
        free(b);
        free_expected(&e);
        rp_t5_close(packed);
        rp_t5_close(m);
    }
    unlink(path);
}

static void test_samples(void **state)
{
    enum { COPIES = 200 };
    expected e;
    rp_t5_results *r, *again;
    rp_t5 *m = open_model("v11", "f32", NULL);
    (void)state;
    read_expected(&e, "v11");
    rp_t5_generation g = settings_of(m);
    g.sample = 1;
    g.seed = 7;
    g.max_new_tokens = 1;
    g.returned = COPIES;
    g.top_k = 0;
    fine(rp_t5_generate(m, 1, &e.source[1], &g, &r));
    /* the frequency of each token matches its probability, within five standard deviations */
    int count[64] = {0};
    for (int64_t k = 0; k < COPIES; k++)
        count[rp_t5_result(r, k)->tokens[0]]++;
    for (int32_t t = 0; t < 64; t++) {
        double p;
        fine(rp_t5_score(m, e.source[1], (rp_t5_tokens){&t, 1}, &p, NULL, NULL, NULL));
        p = exp(p);
        if (fabs(count[t] - p * COPIES) > 5 * sqrt(p * (1 - p) * COPIES) + 1)
            fail_msg("token %d was drawn %d times of %d, its probability is %g", (int)t, count[t], COPIES, p);
    }
    rp_t5_results_free(r);
    /* a source has the same samples alone and with other sources */
    g.returned = 3;
    g.max_new_tokens = STEPS;
    fine(rp_t5_generate(m, SOURCES, e.source, &g, &r));
    for (int64_t s = 0; s < SOURCES; s++) {
        g.first = s;
        fine(rp_t5_generate(m, 1, &e.source[s], &g, &again));
        for (int64_t k = 0; k < 3; k++)
            assert_true(
                same_tokens(rp_t5_result(r, 3 * s + k), rp_t5_result(again, k)->tokens, rp_t5_result(again, k)->n));
        rp_t5_results_free(again);
    }
    rp_t5_results_free(r);
    /* top_k = 1 gives the most probable token, and so does a tiny top_p */
    g.first = 0;
    g.returned = 1;
    for (int k = 0; k < 2; k++) {
        int32_t greedy[MAX_TOKENS];
        g.top_k = k == 0 ? 1 : 0;
        g.top_p = k == 0 ? 1 : 1e-6;
        fine(rp_t5_generate(m, 1, &e.source[3], &g, &r));
        assert_true(same_tokens(rp_t5_result(r, 0), greedy, read_row(array_of(&e, "targets"), 3, greedy)));
        rp_t5_results_free(r);
    }
    free_expected(&e);
    rp_t5_close(m);
}

static int stop_after(void *context, int64_t source, int32_t index, int32_t token)
{
    (void)source;
    (void)index;
    (void)token;
    return ++*(int *)context == 3;
}

static void test_callbacks(void **state)
{
    expected e;
    rp_t5_results *r;
    int calls = 0;
    rp_t5 *m = open_model("v11", "f32", NULL);
    (void)state;
    read_expected(&e, "v11");
    rp_t5_generation g = settings_of(m);
    g.on_token = stop_after;
    g.context = &calls;
    assert_int_equal(rp_t5_generate(m, 1, &e.source[1], &g, &r), RP_E_CANCELLED);
    assert_null(r);
    assert_int_equal(calls, 3);
    /* a target that is forced to begin like the greedy target continues like it */
    int32_t greedy[MAX_TOKENS];
    const int64_t n = read_row(array_of(&e, "targets"), 1, greedy);
    g = settings_of(m);
    g.prefix = (rp_t5_tokens){greedy, 4};
    g.max_new_tokens = STEPS - 4;
    fine(rp_t5_generate(m, 1, &e.source[1], &g, &r));
    assert_true(same_tokens(rp_t5_result(r, 0), greedy, n));
    rp_t5_results_free(r);
    /* a source without tokens; no source at all */
    const rp_t5_tokens none = {NULL, 0};
    fine(rp_t5_generate(m, 1, &none, &g, &r));
    assert_int_equal(rp_t5_results_size(r), 1);
    rp_t5_results_free(r);
    fine(rp_t5_generate(m, 0, NULL, &g, &r));
    assert_int_equal(rp_t5_results_size(r), 0);
    rp_t5_results_free(r);
    free_expected(&e);
    rp_t5_close(m);
}

/* Tokens and sequences to forbid. They are taken from a target that was generated without forbidden tokens (plain: at
 * least two tokens). */
typedef struct forbidden {
    rp_t5_tokens words[4];
    int32_t end, begins[2];
} forbidden;

static void forbid_some(rp_t5_generation *g, const rp_t5 *m, const rp_t5_sequence *plain, forbidden *f)
{
    const int32_t *t = plain->tokens;
    f->begins[0] = rp_t5_about(m)->start;
    f->begins[1] = t[0];
    f->end = rp_t5_about(m)->eos;
    f->words[0] = (rp_t5_tokens){t + plain->n / 2 - 1, 2};
    f->words[1] = (rp_t5_tokens){f->begins, 2};
    f->words[2] = (rp_t5_tokens){&f->end, 1}; /* has no effect */
    f->words[3] = (rp_t5_tokens){t, plain->n < 3 ? plain->n : 3};
    g->bad_words = f->words;
    g->n_bad_words = 4;
    g->suppress = (rp_t5_tokens){t + plain->n / 2, 1};
    g->begin_suppress = (rp_t5_tokens){t, plain->n};
}

/* Return true if the token may come next, by definition: it is not suppressed, and together with the previous tokens it
 * does not complete a bad word. */
static bool may_follow(const rp_t5 *m, const rp_t5_generation *g, const int32_t *tokens, int64_t n, int32_t token)
{
    bool may = true;
    for (int64_t k = 0; k < g->n_bad_words; k++) {
        const rp_t5_tokens *w = &g->bad_words[k];
        bool ends = w->n <= n + 1 && w->tokens[w->n - 1] == token;
        for (int64_t x = 1; ends && x < w->n; x++)
            ends = w->tokens[w->n - 1 - x] == tokens[n - x];
        may = may && !(ends && !(w->n == 1 && token == rp_t5_about(m)->eos));
    }
    for (int64_t k = 0; k < g->suppress.n; k++)
        may = may && g->suppress.tokens[k] != token;
    for (int64_t k = 0; n == 1 && k < g->begin_suppress.n; k++)
        may = may && g->begin_suppress.tokens[k] != token;
    return may;
}

/* Greedy targets with forbidden tokens equal targets built from single steps that skip these tokens. */
static void test_forbidden(void **state)
{
    int changed = 0;
    (void)state;
    for (int name = 0; name < N_MODELS; name++) {
        expected e;
        rp_t5 *m = open_model(model_names[name], NULL, NULL);
        const int64_t vocab = rp_t5_about(m)->vocab;
        float *logits = malloc((size_t)vocab * sizeof *logits);
        read_expected(&e, model_names[name]);
        for (int64_t s = 0; decodes(m) && s < SOURCES; s++) {
            rp_t5_results *plain, *r;
            rp_t5_session *session;
            rp_t5_generation g = settings_of(m);
            forbidden f;
            fine(rp_t5_generate(m, 1, &e.source[s], &g, &plain));
            if (rp_t5_result(plain, 0)->n < 2) {
                rp_t5_results_free(plain);
                continue;
            }
            forbid_some(&g, m, rp_t5_result(plain, 0), &f);
            fine(rp_t5_generate(m, 1, &e.source[s], &g, &r));
            const rp_t5_sequence *found = rp_t5_result(r, 0);
            int32_t tokens[STEPS + 1] = {rp_t5_about(m)->start};
            const int32_t first = 0;
            fine(rp_t5_begin(&session, m, 1, &e.source[s], STEPS));
            for (int64_t n = 1; n <= found->n; n++) {
                int32_t best = -1;
                fine(rp_t5_step(session, 1, &first, tokens + n - 1, logits));
                for (int32_t t = 0; t < vocab; t++)
                    if (may_follow(m, &g, tokens, n, t) && (best < 0 || logits[t] > logits[best]))
                        best = t;
                tokens[n] = best;
            }
            assert_true(same_tokens(found, tokens + 1, found->n));
            changed += !same_tokens(found, rp_t5_result(plain, 0)->tokens, rp_t5_result(plain, 0)->n);
            rp_t5_end(session);
            rp_t5_results_free(plain);
            rp_t5_results_free(r);
        }
        free(logits);
        free_expected(&e);
        rp_t5_close(m);
    }
    printf("%d targets are others\n", changed);
    assert_true(changed > 10);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_batch),   cmocka_unit_test(test_threads),   cmocka_unit_test(test_prefill),
        cmocka_unit_test(test_rows),    cmocka_unit_test(test_packed),    cmocka_unit_test(test_beam_scores),
        cmocka_unit_test(test_samples), cmocka_unit_test(test_callbacks), cmocka_unit_test(test_forbidden),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
