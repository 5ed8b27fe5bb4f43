/* test_t5_screen.c -- greedy decoding with an 8-bit screen gives the same tokens as with the whole head.
 * SPDX-License-Identifier: Apache-2.0 */
#include "tests/t5/models.h"
#include "tests/starve.h"

#include "t5/model.h"

static rp_t5 *open_screened(const char *name, const char *type, rp_pool *pool, const char *min_vocab)
{
    setenv("RELPOS_SCREEN", min_vocab, 1);
    rp_t5 *m = open_model(name, type, pool);
    unsetenv("RELPOS_SCREEN");
    return m;
}

/* Greedy settings that change scores. */
enum { SETTINGS = 8 };
static rp_t5_generation setting(const rp_t5 *m, int n, const int32_t *prefix)
{
    rp_t5_generation g = settings_of(m);
    g.max_new_tokens = 40;
    switch (n) {
    case 1: g.repetition_penalty = 1.3; break;
    case 2: g.repetition_penalty = 0.6; break;
    case 3: g.no_repeat_ngram = 2; break;
    case 4: g.min_new_tokens = 39; break;
    case 5: g.prefix = (rp_t5_tokens){prefix, 3}; break;
    case 6: g.forced_first = 7, g.forced_last = 9, g.no_repeat_ngram = 1, g.repetition_penalty = 2; break;
    case 7: forbid_many(&g); break;
    }
    return g;
}

static void compare(const char *name, const char *type, const rp_t5 *whole, const rp_t5 *screened, const expected *e)
{
    static const int32_t prefix[] = {11, 5, 3};
    for (int n = 0; n < SETTINGS; n++)
        for (int64_t some = 1; some <= SOURCES; some += SOURCES - 1) { /* the first source, then all sources */
            rp_t5_results *a, *b;
            const rp_t5_generation g = setting(whole, n, prefix);
            fine(rp_t5_generate(whole, some, e->source, &g, &a));
            fine(rp_t5_generate(screened, some, e->source, &g, &b));
            for (int64_t s = 0; s < some; s++)
                if (!same_tokens(rp_t5_result(a, s), rp_t5_result(b, s)->tokens, rp_t5_result(b, s)->n))
                    fail_msg("%s as %s, setting %d: source %d of %d gets other tokens", name, type, n, (int)s,
                             (int)some);
            rp_t5_results_free(a);
            rp_t5_results_free(b);
        }
}

static void test_tokens(void **state)
{
    static const char *const types[] = {"f32", "bf16"};
    (void)state;
    for (int n = 0; n < N_MODELS; n++)
        for (int t = 0; t < 2; t++) {
            rp_pool *pool;
            expected e;
            good(rp_pool_create(&pool, 1 + t));
            rp_t5 *whole = open_screened(model_names[n], types[t], pool, "1000000"),
                  *screened = open_screened(model_names[n], types[t], pool, "0");
            read_expected(&e, model_names[n]);
            assert_null(whole->screen);
            if (decodes(whole)) {
                compare(model_names[n], types[t], whole, screened, &e);
                const t5_screen *k = screened->screen;
                assert_true(k->made && k->rows > 100 && k->whole < k->rows / 2);
                printf("%-14s %-4s %5d rows, %.1f candidates of %d, %d read the whole head\n", model_names[n], types[t],
                       (int)k->rows, (double)k->candidates / (double)(k->rows - k->whole), (int)whole->config.vocab,
                       (int)k->whole);
            }
            free_expected(&e);
            rp_t5_close(whole);
            rp_t5_close(screened);
            rp_pool_destroy(pool);
        }
}

/* Make 64 rows of the head (see linear/layout.h) so similar that 8 bits cannot distinguish them. The whole head must
 * then be read. */
static void likes(const rp_t5 *m)
{
    float *w = (float *)(uintptr_t)m->weights.head.packed;
    for (int64_t i = 0; i < m->weights.head.in; i++)
        for (int64_t o = 0; o < 64; o++)
            w[i * 64 + o] = (float)(i * 29 % 31 - 15) + 1e-3f * (float)((i + 7) * (o + 3) * 37 % 61);
}

static void test_similar_logits(void **state)
{
    expected e;
    rp_t5 *whole = open_screened("v11", "f32", NULL, "1000000"), *screened = open_screened("v11", "f32", NULL, "0");
    (void)state;
    assert_int_equal(whole->weights.head.out, 64);
    likes(whole);
    likes(screened);
    read_expected(&e, "v11");
    compare("v11", "f32", whole, screened, &e);
    printf("alike: %d of %d rows read the whole head\n", (int)screened->screen->whole, (int)screened->screen->rows);
    assert_true(screened->screen->whole > 50);
    free_expected(&e);
    rp_t5_close(whole);
    rp_t5_close(screened);
}

/* Short targets do not build a screen. Scores, samples and beam search read the whole head. Quantized and small heads
 * have no screen. */
static void test_when_there_is_a_screen(void **state)
{
    expected e;
    rp_t5_results *r;
    rp_t5 *m = open_screened("v11", "f32", NULL, "0");
    (void)state;
    read_expected(&e, "v11");
    rp_t5_generation g = settings_of(m);
    fine(rp_t5_generate(m, 1, e.source, &g, &r));
    rp_t5_results_free(r);
    assert_false(m->screen->made);
    g.max_new_tokens = 60;
    for (int n = 0; n < 3; n++) {
        g.beams = n == 0 ? 3 : 1;
        g.sample = n == 1;
        g.scores = n == 2;
        fine(rp_t5_generate(m, SOURCES, e.source, &g, &r));
        rp_t5_results_free(r);
    }
    assert_false(m->screen->made);
    assert_int_equal(m->screen->rows, 0);
    rp_t5_close(m);
    for (int t = 0; t < 2; t++) {
        m = open_screened("v11", t == 0 ? "int8" : "int4", NULL, "0");
        assert_null(m->screen);
        rp_t5_close(m);
    }
    m = open_model("v11", "f32", NULL);
    assert_null(m->screen);
    rp_t5_close(m);
    free_expected(&e);
}

/* Generate a target whose first step builds the screen, and let each allocation fail, alone or with all later ones.
 * Without memory for the screen, the whole head is read, and building the screen is not tried again. */
static void test_out_of_memory(void **state)
{
#if STARVES
    expected e;
    (void)state;
    rp_t5_results *want;
    int without = 0;
    rp_t5 *whole = open_screened("v11", "f32", NULL, "1000000");
    rp_t5_generation g = settings_of(whole);
    g.max_new_tokens = g.min_new_tokens = 8;
    read_expected(&e, "v11");
    fine(rp_t5_generate(whole, 1, e.source, &g, &want));
    for (int ever = 0; ever < 2; ever++)
        for (long n = 1, count = n, last = 0; count >= last; last = n++) { /* continue until no allocation fails */
            rp_t5_results *r;
            rp_pool *pool;
            good(rp_pool_create(&pool, 1));
            rp_t5 *m = open_screened("v11", "f32", pool, "0");
            m->screen->before = 1000;
            starve(n, ever);
            const rp_status status = rp_t5_generate(m, 1, e.source, &g, &r);
            count = starve_end();
            assert_true(count > 0);
            if (status != RP_OK && strstr(rp_t5_last_error(), "out of memory") == NULL &&
                strstr(rp_t5_last_error(), rp_status_name(RP_E_NOMEM)) == NULL)
                fail_msg("allocation %ld: %s: %s", n, rp_status_name(status), rp_t5_last_error());
            assert_true((status == RP_OK) == (r != NULL));
            if (status == RP_OK) {
                assert_int_equal(m->screen->made, !m->screen->without);
                without += m->screen->without;
                assert_true(same_tokens(rp_t5_result(r, 0), rp_t5_result(want, 0)->tokens, rp_t5_result(want, 0)->n));
            }
            rp_t5_results_free(r);
            rp_t5_close(m);
            rp_pool_destroy(pool);
        }
    assert_true(without > 0);
    rp_t5_results_free(want);
    rp_t5_close(whole);
    free_expected(&e);
#else
    (void)state;
    skip();
#endif
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tokens),
        cmocka_unit_test(test_similar_logits),
        cmocka_unit_test(test_when_there_is_a_screen),
        cmocka_unit_test(test_out_of_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
