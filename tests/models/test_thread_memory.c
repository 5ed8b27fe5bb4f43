/* test_thread_memory.c -- the memory of a call of a model grows in proportion to the number of threads at most: from 8
 * threads to 64, the most memory that is in use grows by a factor of at most 8.
 * SPDX-License-Identifier: Apache-2.0 */
#include "tests/helpers.h"
#include "tests/starve.h"
#include <relpos/encoder.h>
#include <relpos/t5.h>

enum { SEQUENCES = 3, TOKENS = 100, FEW = 8, MANY = 64 };

static void good_t5(rp_status status)
{
    if (status != RP_OK)
        fail_msg("%s: %s", rp_status_name(status), rp_t5_last_error());
}

static void good_encoder(rp_status status)
{
    if (status != RP_OK)
        fail_msg("%s: %s", rp_status_name(status), rp_encoder_last_error());
}

static int32_t tokens[TOKENS];

/* Return the most memory that encoding sources, or with `decodes` also a step of decoding, takes besides the model. */
static long t5_peak(const char *path, rp_pool *pool, bool decodes)
{
    rp_t5 *m;
    rp_t5_session *session;
    rp_t5_opening o = rp_t5_opening_init();
    rp_t5_tokens sources[SEQUENCES];
    const int32_t parents[SEQUENCES] = {0, 1, 2};
    o.pool = pool;
    good_t5(rp_t5_open(&m, path, &o));
    const rp_t5_info *i = rp_t5_about(m);
    float *out = malloc((size_t)(SEQUENCES * (TOKENS * i->d_model + i->vocab)) * sizeof *out);
    for (int s = 0; s < SEQUENCES; s++)
        sources[s] = (rp_t5_tokens){tokens, TOKENS};
    const long before = starve_begin_peak();
    if (decodes) {
        good_t5(rp_t5_begin(&session, m, SEQUENCES, sources, TOKENS));
        for (int step = 0; step < 2; step++)
            good_t5(rp_t5_step(session, SEQUENCES, parents, tokens, out));
        rp_t5_end(session);
    } else
        good_t5(rp_t5_encode(m, SEQUENCES, sources, out, NULL, NULL));
    const long peak = (long)starve_peak - before;
    free(out);
    rp_t5_close(m);
    return peak;
}

static long encoder_peak(const char *path, rp_pool *pool, bool decodes)
{
    rp_encoder *m;
    rp_encoder_opening o = rp_encoder_opening_init();
    rp_encoder_tokens sequences[SEQUENCES];
    (void)decodes;
    o.pool = pool;
    good_encoder(rp_encoder_open(&m, path, &o));
    const rp_encoder_info *i = rp_encoder_about(m);
    const int64_t n = i->max_tokens > 0 && i->max_tokens < TOKENS ? i->max_tokens : TOKENS;
    float *out = malloc((size_t)(SEQUENCES * n * i->width) * sizeof *out);
    for (int s = 0; s < SEQUENCES; s++)
        sequences[s] = (rp_encoder_tokens){tokens, NULL, n};
    const long before = starve_begin_peak();
    good_encoder(rp_encoder_hidden(m, SEQUENCES, sequences, out, NULL, NULL));
    const long peak = (long)starve_peak - before;
    free(out);
    rp_encoder_close(m);
    return peak;
}

static const struct {
    const char *path;
    long (*peak)(const char *path, rp_pool *pool, bool decodes);
    bool decodes;
} calls[] = {
    {"tests/t5/data/t5", t5_peak, false},
    {"tests/t5/data/t5", t5_peak, true},
    {"tests/t5/data/longt5_global", t5_peak, false},
    {"tests/encoder/data/bert", encoder_peak, false},
    {"tests/encoder/data/mpnet", encoder_peak, false},
    {"tests/encoder/data/deberta", encoder_peak, false},
    {"tests/encoder/data/modernbert", encoder_peak, false},
};

static void peaks(void **state)
{
    int wrong = 0;
    (void)state;
    if (!STARVES) {
        print_message("not measured, because sanitizers define malloc\n");
        return;
    }
    for (int t = 0; t < TOKENS; t++)
        tokens[t] = 5 + t % 30;
    for (size_t n = 0; n < sizeof calls / sizeof *calls; n++) {
        long bytes[2];
        for (int k = 0; k < 2; k++) {
            rp_pool *pool;
            assert_int_equal(rp_pool_create(&pool, k == 0 ? FEW : MANY), RP_OK);
            bytes[k] = calls[n].peak(calls[n].path, pool, calls[n].decodes);
            rp_pool_destroy(pool);
        }
        print_message("    %-30s %9ld bytes with %d threads, %9ld with %d\n", calls[n].path, bytes[0], FEW, bytes[1],
                      MANY);
        wrong += bytes[0] <= 0 || bytes[1] > MANY / FEW * bytes[0];
    }
    assert_int_equal(wrong, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(peaks)};
    return cmocka_run_group_tests_name("thread_memory", tests, NULL, NULL);
}
