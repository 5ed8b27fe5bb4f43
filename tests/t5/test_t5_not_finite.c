/* test_t5_not_finite.c -- if weights of the head are NaN or infinite, so that one logit is, every use of logits is an
 * error, for every type of weights. No source and no target has the token of that logit.
 * SPDX-License-Identifier: Apache-2.0 */
#include "tests/t5/folders.h"

#include "t5/model.h"

enum { BAD = 40, VOCAB = 64 };
static const int32_t tokens[] = {7, 8, 9, 1}, bad = BAD;
static const rp_t5_tokens source = {tokens, 4}, target = {tokens + 1, 3};

/* Change n numbers of row BAD of the head. In "v11" the head is a tensor of its own; in "t5" it is the embedding, which
 * the file has twice. */
static void damage(const char *name, float value, int64_t n)
{
    const char *head = strcmp(name, "v11") == 0 ? "lm_head" : "e";
    io_set set;
    copy_model(name);
    read_weights(&set);
    for (size_t k = 0; k < set.n_arrays; k++) {
        io_array *a = &set.arrays[k];
        if (a->shape[0] != VOCAB || strstr(a->name, head) == NULL)
            continue;
        const int64_t size = a->dtype == RP_F32 ? 4 : 2;
        for (int64_t i = 0; i < n; i++)
            rp_convert((char *)a->data + (BAD * a->shape[1] + i) * size, a->dtype, &value, RP_F32, 1);
    }
    write_weights(&set);
    io_free(&set);
}

static rp_t5 *open_damaged(const char *type, const char *draft)
{
    rp_t5 *m;
    rp_t5_opening o = rp_t5_opening_init();
    o.type = type;
    o.draft = draft;
    setenv("RELPOS_SCREEN", "0", 1);
    fine(rp_t5_open(&m, folder, &o));
    unsetenv("RELPOS_SCREEN");
    if (m->screen != NULL)
        m->screen->before = 1000; /* the first step makes the screen */
    return m;
}

static void refused(const char *how, const char *what, rp_status status)
{
    if (status != RP_E_RANGE || strstr(rp_t5_last_error(), "logits are not finite") == NULL)
        fail_msg("%s, %s: %s: %s", how, what, rp_status_name(status),
                 status == RP_OK ? "no error" : rp_t5_last_error());
}

/* Refuse every way to score and generate. */
static void refuses_all(const char *how, const rp_t5 *m)
{
    static const char *const ways[] = {"greedy",    "with scores",         "sampled",        "two samples",
                                       "two beams", "only a forced token", "forbidden token"};
    double total, each[3];
    rp_t5_session *s;
    const int32_t first = 0, start = rp_t5_about(m)->start;
    float logits[VOCAB];
    refused(how, "score", rp_t5_score(m, source, target, &total, NULL, NULL, NULL));
    refused(how, "each score", rp_t5_score(m, source, target, NULL, each, NULL, NULL));
    fine(rp_t5_begin(&s, m, 1, &source, 4));
    refused(how, "step", rp_t5_step(s, 1, &first, &start, logits));
    rp_t5_end(s);
    for (int n = 0; n < (int)(sizeof ways / sizeof *ways); n++) {
        rp_t5_results *r;
        rp_t5_generation g = settings_of(m);
        switch (n) {
        case 1: g.scores = 1; break;
        case 2: g.sample = 1; break;
        case 3: g.sample = 1, g.returned = 2, g.top_k = 3; break;
        case 4: g.beams = 2; break;
        case 5: g.forced_first = 7, g.max_new_tokens = 1; break;
        case 6: g.suppress = (rp_t5_tokens){&bad, 1}; break;
        }
        refused(how, ways[n], rp_t5_generate(m, 1, &source, &g, &r));
        assert_null(r);
    }
}

static void test_head(void **state)
{
    static const char *const names[] = {"v11", "t5"};
    static const struct {
        float value;
        int64_t n;
    } damages[] = {{NAN, 1}, {NAN, 12}, {INFINITY, 1}, {-INFINITY, 1}};
    static const char *const types[][2] = {{"f32", NULL},   {"f16", NULL},    {"bf16", NULL},  {"int8", NULL},
                                           {"q8", NULL},    {"int4", NULL},   {"f32", "int8"}, {"f32", "int4"},
                                           {"f16", "int8"}, {"bf16", "int4"}, {"int8", "int4"}};
    (void)state;
    for (size_t k = 0; k < 2 * sizeof damages / sizeof *damages; k++) {
        damage(names[k % 2], damages[k / 2].value, damages[k / 2].n);
        for (size_t t = 0; t < sizeof types / sizeof *types; t++) {
            char how[100];
            rp_t5 *m = open_damaged(types[t][0], types[t][1]);
            snprintf(how, sizeof how, "%s as %s, draft %s, %d times %g", names[k % 2], types[t][0],
                     types[t][1] != NULL ? types[t][1] : "none", (int)damages[k / 2].n, (double)damages[k / 2].value);
            refuses_all(how, m);
            rp_t5_close(m);
        }
    }
}

/* Finite weights, and hidden states too large for the bounds of the screen, also overflow in one logit. */
static void test_overflow(void **state)
{
    (void)state;
    for (int sign = -1; sign < 2; sign += 2) {
        io_set set;
        copy_model("v11");
        read_weights(&set);
        const io_array *norm = array_named(&set, "decoder.final_layer_norm.weight");
        const io_array *head = array_named(&set, "lm_head.weight");
        for (int64_t i = 0; i < norm->shape[0]; i++)
            ((float *)norm->data)[i] *= 0x1p80F;
        ((float *)head->data)[BAD * head->shape[1]] = (float)sign * 0x1p59F;
        write_weights(&set);
        io_free(&set);
        rp_t5 *m = open_damaged("f32", NULL);
        refuses_all(sign < 0 ? "below" : "above", m);
        assert_true(m->screen->made && m->screen->screen.bounds && m->screen->rows > 0);
        rp_t5_close(m);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_head), cmocka_unit_test(test_overflow)};
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
