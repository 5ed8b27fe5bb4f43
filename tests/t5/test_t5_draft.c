/* test_t5_draft.c -- a model with a draft gives the same results as a model without: tokens, scores (bit for bit)
 * and calls of on_token. What the draft proposes does not matter.
 * SPDX-License-Identifier: Apache-2.0 */
#include "tests/t5/models.h"
#include "tests/starve.h"

#include "t5/model.h"

static rp_t5 *open_drafted(const char *name, const char *type, const char *draft, rp_pool *pool, const char *min_vocab)
{
    char path[300];
    rp_t5 *m;
    rp_t5_opening o = rp_t5_opening_init();
    o.type = type;
    o.draft = draft;
    o.pool = pool;
    setenv("RELPOS_SCREEN", min_vocab, 1);
    snprintf(path, sizeof path, DATA "/%s", name);
    fine(rp_t5_open(&m, path, &o));
    unsetenv("RELPOS_SCREEN");
    return m;
}

enum { SETTINGS = 14, LONGEST = 150 /* longer than a page */ };
static rp_t5_generation setting(const rp_t5 *m, int n)
{
    static const int32_t prefix[] = {11, 5, 3};
    static const char *const stops[] = {"\xef\xbf\xbd", "e", "a"};
    rp_t5_generation g = settings_of(m);
    g.max_new_tokens = 30;
    switch (n) {
    case 1: g.repetition_penalty = 1.3; break;
    case 2: g.repetition_penalty = 0.6, g.scores = 1; break;
    case 3: g.no_repeat_ngram = 2; break;
    case 4: g.min_new_tokens = 29; break;
    case 5: g.prefix = (rp_t5_tokens){prefix, 3}; break;
    case 6: g.forced_first = 7, g.forced_last = 9, g.no_repeat_ngram = 1, g.repetition_penalty = 2; break;
    case 7: g.max_new_tokens = g.min_new_tokens = LONGEST, g.scores = 1; break;
    case 8: g.sample = 1, g.seed = 3, g.scores = 1; break;
    case 9: g.sample = 1, g.returned = 2, g.temperature = 0.5, g.top_p = 0.9; break;
    case 10: g.max_new_tokens = 1; break;
    case 11: g.max_new_tokens = 2, g.scores = 1; break;
    case 12: g.n_stop = m->tokenizer != NULL ? 3 : 0, g.stop = stops; break;
    case 13: forbid_many(&g); break;
    }
    return g;
}

/* Tokens that on_token has reported. */
typedef struct reported {
    int32_t tokens[2 * SOURCES * LONGEST];
    int64_t n, of[2 * SOURCES];
} reported;

static int tell(void *context, int64_t source, int32_t index, int32_t token)
{
    reported *t = context;
    const int64_t row = 2 * source + index;
    t->tokens[row * LONGEST + t->of[row]++] = token;
    t->n++;
    return 0;
}

/* Compare results with and without a draft: for the first source, and for all sources. */
static void compare(const char *what, const rp_t5 *plain, const rp_t5 *drafted, const expected *e, rp_t5_drafted *sum)
{
    static reported by[2];
    for (int n = 0; n < SETTINGS; n++)
        for (int64_t some = 1; some <= SOURCES; some += SOURCES - 1) {
            rp_t5_results *a, *b;
            rp_t5_generation g = setting(plain, n);
            memset(by, 0, sizeof by);
            g.on_token = tell;
            g.context = &by[0];
            fine(rp_t5_generate(plain, some, e->source, &g, &a));
            g.context = &by[1];
            fine(rp_t5_generate(drafted, some, e->source, &g, &b));
            assert_int_equal(rp_t5_results_size(a), rp_t5_results_size(b));
            for (int64_t s = 0; s < rp_t5_results_size(a); s++) {
                const rp_t5_sequence *x = rp_t5_result(a, s), *y = rp_t5_result(b, s);
                if (!same_tokens(x, y->tokens, y->n) || x->finished != y->finished ||
                    memcmp(&x->score, &y->score, sizeof x->score) != 0)
                    fail_msg("%s, setting %d: result %d of %d sources differs", what, n, (int)s, (int)some);
            }
            assert_memory_equal(&by[0], &by[1], sizeof by[0]);
            const rp_t5_drafted *d = rp_t5_results_drafted(b);
            assert_int_equal(rp_t5_results_drafted(a)->passes, 0);
            assert_true(d->accepted <= d->proposed &&
                        /* each pass generates one token more than it accepts, or ends a target */
                        d->accepted + d->passes <= by[1].n + 1);
            sum->proposed += d->proposed;
            sum->accepted += d->accepted;
            sum->passes += d->passes;
            rp_t5_results_free(a);
            rp_t5_results_free(b);
        }
}

static const struct {
    const char *type, *draft, *screen; /* screen: the size of the smallest head that is screened */
} ways[] = {{"f32", "int8", "0"}, {"f32", "int4", "1000000"}, {"bf16", "int4", "0"}, {"int8", "int4", "0"}};
enum { WAYS = sizeof ways / sizeof *ways };

static void test_same(void **state)
{
    (void)state;
    for (int n = 0; n < N_MODELS * WAYS; n++) {
        if (EMULATED && n % WAYS != n / WAYS % WAYS)
            continue; /* under qemu, all combinations would take two minutes */
        const char *name = model_names[n / WAYS], *type = ways[n % WAYS].type;
        char what[100];
        expected e;
        rp_pool *pool;
        rp_t5_drafted sum = {0};
        rp_t5 *plain = open_model(name, type, NULL);
        if (decodes(plain)) {
            good(rp_pool_create(&pool, 1 + n % 3));
            rp_t5 *drafted = open_drafted(name, type, ways[n % WAYS].draft, pool, ways[n % WAYS].screen);
            read_expected(&e, name);
            snprintf(what, sizeof what, "%s as %s with %s", name, type, ways[n % WAYS].draft);
            if (n % WAYS == 0)
                /* if the vocabulary is larger, allow only 64 frequent tokens and the tokens of the source */
                drafted->draft->frequent = 64;
            compare(what, plain, drafted, &e, &sum);
            printf("%-30s %5d proposed, %5d accepted, %5d passes\n", what, (int)sum.proposed, (int)sum.accepted,
                   (int)sum.passes);
            assert_true(sum.accepted > (drafted->draft->frequent < drafted->config.vocab ? 0 : 50) && sum.passes > 100);
            free_expected(&e);
            rp_t5_close(drafted);
            rp_pool_destroy(pool);
        }
        rp_t5_close(plain);
    }
}

/* Replace the draft's weights by noise that includes NaN. Its proposals are then right only by chance. */
static void test_wrong_drafts(void **state)
{
    static const char *const names[] = {"v11", "umt5", "switch", "byt5"};
    (void)state;
    for (int n = 0; n < (EMULATED ? 2 : 4); n++) {
        expected e;
        rp_t5_drafted sum = {0};
        uint32_t random = 1;
        rp_t5 *plain = open_model(names[n], "f32", NULL);
        rp_t5 *drafted = open_drafted(names[n], "f32", n % 2 ? "int8" : "int4", NULL, n < 2 ? "0" : "1000000");
        read_expected(&e, names[n]);
        for (int64_t k = 0; k < drafted->draft->bytes; k++)
            drafted->draft->memory[k] = (unsigned char)((random = random * 1664525 + 1013904223) >> 24);
        compare(names[n], plain, drafted, &e, &sum);
        printf("%-6s %5d proposed, %5d accepted\n", names[n], (int)sum.proposed, (int)sum.accepted);
        assert_true(sum.proposed > 300 && sum.accepted < sum.proposed / 4);
        free_expected(&e);
        rp_t5_close(plain);
        rp_t5_close(drafted);
    }
}

static int third(void *context, int64_t source, int32_t index, int32_t token)
{
    (void)source, (void)index, (void)token;
    return ++*(int *)context == 3;
}

static void test_refusals(void **state)
{
    static const struct {
        const char *name, *type, *draft, *says;
        rp_status status;
    } of[] = {
        {"v11", "f32", "f32", "draft type f32 with weights of f32", RP_E_ARG},
        {"v11", "f32", "bf16", "draft type bf16 with weights of f32; it must be int8 or int4", RP_E_ARG},
        {"v11", "int8", "int8", "have fewer bits", RP_E_ARG},
        {"v11", "int4", "int4", "or no draft", RP_E_ARG},
        {"v11", "f32", "int5", "int5", RP_E_ARG},
        {"encoder", "f32", "int8", "no decoder", RP_E_UNSUPPORTED},
    };
    (void)state;
    for (size_t n = 0; n < sizeof of / sizeof *of; n++) {
        char path[300];
        rp_t5 *m;
        rp_t5_opening o = rp_t5_opening_init();
        o.type = of[n].type;
        o.draft = of[n].draft;
        snprintf(path, sizeof path, DATA "/%s", of[n].name);
        assert_int_equal(rp_t5_open(&m, path, &o), of[n].status);
        assert_null(m);
        assert_non_null(strstr(rp_t5_last_error(), of[n].says));
    }
    expected e;
    rp_t5_results *r;
    int calls = 0;
    rp_t5 *m = open_drafted("v11", "f32", "int8", NULL, "0");
    read_expected(&e, "v11");
    rp_t5_generation g = setting(m, 4);
    g.on_token = third;
    g.context = &calls;
    assert_int_equal(rp_t5_generate(m, 1, e.source, &g, &r), RP_E_CANCELLED);
    assert_int_equal(calls, 3);
    free_expected(&e);
    rp_t5_close(m);
}

/* Let each allocation fail while a long target is generated, alone or with all later ones. */
static void test_out_of_memory(void **state)
{
#if STARVES
    expected e;
    (void)state;
    read_expected(&e, "v11");
    for (int ever = 0; ever < 2; ever++)
        for (long n = 1, count = n, last = 0; count >= last;
             last = n, n += 1 + n / 20) { /* continue until no allocation fails */
            rp_t5_results *r = NULL;
            rp_t5 *m = NULL;
            rp_pool *pool;
            rp_t5_opening o = rp_t5_opening_init();
            good(rp_pool_create(&pool, 1));
            o.type = "f32";
            o.draft = "int4";
            o.pool = pool;
            fine(rp_t5_open(&m, DATA "/v11", &o));
            const rp_t5_generation g = setting(m, 7);
            starve(n, ever);
            const rp_status status = rp_t5_generate(m, 1, e.source, &g, &r);
            count = starve_end();
            assert_true(count > 0);
            if (status != RP_OK && strstr(rp_t5_last_error(), "out of memory") == NULL &&
                strstr(rp_t5_last_error(), rp_status_name(RP_E_NOMEM)) == NULL)
                fail_msg("allocation %ld: %s: %s", n, rp_status_name(status), rp_t5_last_error());
            assert_true((status == RP_OK) == (r != NULL));
            rp_t5_results_free(r);
            rp_t5_close(m);
            rp_pool_destroy(pool);
        }
    free_expected(&e);
#else
    (void)state;
    skip();
#endif
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_same),
        cmocka_unit_test(test_wrong_drafts),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_out_of_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
