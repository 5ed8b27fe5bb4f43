/* test_t5_reference.c -- compares the reference in double with transformers in f64, including the attention weights of
 * each head.
 * SPDX-License-Identifier: Apache-2.0 */
#include "tests/t5/models.h"

static double largest(const io_array *a)
{
    const float *y = a->data;
    double most = 0;
    for (size_t k = 0; k < a->bytes / sizeof *y; k++)
        most = fmax(most, fabs((double)y[k]));
    return most;
}

static double farthest(const double *x, const io_array *a)
{
    const float *y = a->data;
    double most = 0;
    for (size_t k = 0; k < a->bytes / sizeof *y; k++)
        most = fmax(most, fabs(x[k] - (double)y[k]));
    return most;
}

/* The file stores f64 results as f32, which adds an error of half a unit in the last place; other errors are
 * negligible. For LongT5, transformers computes the encoder's attention weights in f32 even if the model is f64, so
 * that bound is the one of test_t5_golden.c. */
enum { MARGIN = 8 };
static void check(const expected *e, const char *model, const char *what, double error, double size)
{
    char name[40];
    snprintf(name, sizeof name, "%s_error", what);
    const bool in_f32 = strncmp(model, "longt5", 6) == 0;
    const double bound = in_f32 ? MARGIN * (double)*(const float *)array_of(e, name)->data : size * (0x1p-24 + 1e-11);
    print_message("    %-14s %-9s error %.2e of %.2e\n", model, what, error, bound);
    if (!(error <= bound))
        fail_msg("%s: %s is off by %g, above %g", model, what, error, bound);
}

static rp_t5_tokens target_of(const expected *e, int64_t row, int32_t *tokens)
{
    return (rp_t5_tokens){tokens, read_row(array_of(e, "targets"), row, tokens)};
}

static double *doubles(int64_t n)
{
    double *x = malloc(((size_t)n + 1) * sizeof *x);
    assert_non_null(x);
    return x;
}

static void test_reference(void **state)
{
    (void)state;
    for (int n = 0; n < N_MODELS; n++) {
        expected e;
        int32_t tokens[MAX_TOKENS];
        rp_t5 *m = open_model(model_names[n], "f32", NULL);
        read_expected(&e, model_names[n]);
        const int64_t d = rp_t5_about(m)->d_model;
        double *hidden = doubles(e.rows * d), *at = hidden;
        for (int64_t s = 0; s < SOURCES; at += e.source[s++].n * d)
            fine(rp_t5_reference(m, e.source[s], (rp_t5_tokens){0}, NULL, at, NULL, NULL, NULL));
        check(&e, model_names[n], "hidden", farthest(hidden, array_of(&e, "hidden")), largest(array_of(&e, "hidden")));
        if (decodes(m)) {
            const rp_t5_tokens target = target_of(&e, SOURCES - 1, tokens);
            double *logits = doubles(target.n * rp_t5_about(m)->vocab);
            fine(rp_t5_reference(m, e.source[SOURCES - 1], target, NULL, NULL, logits, NULL, NULL));
            check(&e, model_names[n], "logits", farthest(logits, array_of(&e, "logits")),
                  largest(array_of(&e, "logits")));
            free(logits);
        }
        free(hidden);
        free_expected(&e);
        rp_t5_close(m);
    }
}

/* Noise changes the result, and the seed determines the noise. Rounding the inputs has an effect for every type except
 * f32 and f16. */
static void test_rounding(void **state)
{
    static const char *const types[] = {"f32", "f16", "bf16", "int8", "int4"};
    (void)state;
    for (int type = 0; type < (int)(sizeof types / sizeof *types); type++) {
        expected e;
        rp_t5 *m = open_model("v11", types[type], NULL);
        read_expected(&e, "v11");
        const rp_t5_rounding how[] = {{0}, {.noise = 1e-6, .seed = 1}, {.noise = 1e-6, .seed = 2}, {.exact_inputs = 1}};
        const size_t bytes = (size_t)(e.source[1].n * rp_t5_about(m)->d_model) * sizeof(double);
        double *x[4];
        for (int k = 0; k < 4; k++) {
            x[k] = doubles((int64_t)(bytes / sizeof **x));
            fine(rp_t5_reference(m, e.source[1], (rp_t5_tokens){0}, &how[k], x[k], NULL, NULL, NULL));
        }
        assert_memory_not_equal(x[0], x[1], bytes);
        assert_memory_not_equal(x[1], x[2], bytes);
        assert_int_equal(memcmp(x[0], x[3], bytes) == 0, type < 2);
        for (int k = 0; k < 4; k++)
            free(x[k]);
        free_expected(&e);
        rp_t5_close(m);
    }
}

/* ------------------------------------------------------------------------------------------------ attention */

/* Compute the weights of query i in head h, using the reference of relpos.h. */
static void weights_of(const rp_t5_attention *a, int64_t h, int64_t i, double *weights)
{
    const int64_t q[4] = {1, a->heads, a->len_q, a->d_kv}, k[4] = {1, a->heads, a->len_k, a->d_kv};
    const int64_t table[2] = {a->buckets, a->heads};
    rp_term term = rp_term_init(RP_TERM_T5);
    rp_mask mask = rp_mask_init(RP_MASK_CAUSAL);
    rp_desc desc = rp_desc_init(1, a->heads, a->len_q, a->len_k, a->d_kv);
    rp_tensors t = rp_tensors_init();
    rp_plan *plan;
    rp_row row = {.weights = weights};
    term.buckets = a->buckets;
    term.max_distance = a->max_distance;
    term.bidirectional = a->bidirectional;
    desc.dtype = RP_F64;
    desc.terms = &term;
    desc.n_terms = a->table != NULL;
    desc.masks = &mask;
    desc.n_masks = a->causal;
    desc.scale = 1;
    t.q = rp_array_of(a->q, RP_F64, 4, q);
    t.k = rp_array_of(a->k, RP_F64, 4, k);
    t.v = rp_array_of(a->v, RP_F64, 4, k);
    if (a->table != NULL)
        t.term[0][0] = rp_array_of(a->table, RP_F32, 2, table);
    good(rp_plan_create(&plan, &desc));
    good(rp_attend_row(plan, &t, 0, h, i, &row));
    rp_plan_destroy(plan);
}

static void test_attention(void **state)
{
    static const char *const models[] = {"t5", "umt5"}, *const parts[] = {"encoder", "decoder", "cross"};
    (void)state;
    for (int n = 0; n < 2; n++)
        for (int part = 0; part < 3; part++) {
            expected e;
            int32_t tokens[MAX_TOKENS];
            char name[40];
            rp_t5 *m = open_model(models[n], "f32", NULL);
            read_expected(&e, models[n]);
            snprintf(name, sizeof name, "attention.%s", parts[part]);
            const io_array *want = array_of(&e, name); /* [layers, heads, queries, keys] */
            assert_non_null(want);
            const rp_t5_tokens target = target_of(&e, 1, tokens);
            double *found = doubles((int64_t)(want->bytes / sizeof(float))), *at = found;
            for (int64_t layer = 0; layer < want->shape[0]; layer++) {
                rp_t5_attention *a;
                fine(rp_t5_attention_of(m, (rp_t5_part)part, layer, e.source[SOURCES - 1], target, &a, NULL, NULL));
                assert_int_equal(a->len_q, want->shape[2]);
                assert_int_equal(a->len_k, want->shape[3]);
                for (int64_t h = 0; h < want->shape[1]; h++)
                    for (int64_t i = 0; i < a->len_q; i++, at += a->len_k)
                        weights_of(a, h, i, at);
                rp_t5_attention_free(a);
            }
            check(&e, models[n], parts[part], farthest(found, want), 1);
            free(found);
            free_expected(&e);
            rp_t5_close(m);
        }
}

static int stop_at_once(void *context, double share)
{
    (void)share;
    return ++*(int *)context > 3;
}

/* Long calls can be cancelled. Requesting weights that do not exist is an error. */
static void test_stop_and_refuse(void **state)
{
    expected e;
    rp_t5_attention *a;
    float out[MAX_TOKENS * 16];
    double total, hidden[MAX_TOKENS * 16];
    int asked = 0;
    (void)state;
    read_expected(&e, "longt5_global");
    rp_t5 *m = open_model("longt5_global", "f32", NULL);
    const rp_t5_tokens s = e.source[SOURCES - 1];
    assert_int_equal(rp_t5_encode(m, 1, &s, out, stop_at_once, &asked), RP_E_CANCELLED);
    assert_int_equal(rp_t5_score(m, s, s, &total, NULL, stop_at_once, &asked), RP_E_CANCELLED);
    assert_int_equal(rp_t5_reference(m, s, s, NULL, hidden, NULL, stop_at_once, &asked), RP_E_CANCELLED);
    assert_int_equal(rp_t5_attention_of(m, RP_T5_CROSS, 1, s, s, &a, stop_at_once, &asked), RP_E_CANCELLED);
    assert_null(a);
    assert_int_equal(asked, 4 + 3);
    assert_int_equal(rp_t5_attention_of(m, RP_T5_ENCODER, 0, s, s, &a, NULL, NULL), RP_E_UNSUPPORTED);
    assert_int_equal(rp_t5_attention_of(m, RP_T5_DECODER, 2, s, s, &a, NULL, NULL), RP_E_RANGE);
    assert_non_null(strstr(rp_t5_last_error(), "layer is 2; it must be 0 to 1"));
    assert_int_equal(rp_t5_attention_of(m, RP_T5_DECODER, 0, s, (rp_t5_tokens){0}, &a, NULL, NULL), RP_E_ARG);
    rp_t5_close(m);
    m = open_model("encoder", "f32", NULL);
    assert_int_equal(rp_t5_attention_of(m, RP_T5_CROSS, 0, s, s, &a, NULL, NULL), RP_E_UNSUPPORTED);
    rp_t5_close(m);
    free_expected(&e);
}

/* Over all parts of a call, the fraction done rises from 0 to at most 1. A model of two layers reports only the start
 * of each layer. */
typedef struct rising {
    int calls;
    double least, last;
} rising;

static int see_rise(void *context, double share)
{
    rising *r = context;
    if (r->calls++ == 0)
        r->least = share;
    else if (share < r->last)
        fail_msg("progress is %g after %g", share, r->last);
    r->last = share;
    return 0;
}

static void test_progress(void **state)
{
    expected e;
    rising r[3] = {{0}};
    float out[SOURCES * MAX_TOKENS * 16];
    double hidden[MAX_TOKENS * 16];
    (void)state;
    read_expected(&e, "longt5_global");
    rp_t5 *m = open_model("longt5_global", "f32", NULL);
    const rp_t5_tokens s = e.source[SOURCES - 1];
    fine(rp_t5_encode(m, 1, &s, out, see_rise, &r[0]));
    double *logits = malloc((size_t)(s.n * rp_t5_about(m)->vocab) * sizeof *logits); /* logits need the decoder */
    assert_non_null(logits);
    fine(rp_t5_reference(m, s, s, NULL, hidden, logits, see_rise, &r[1]));
    free(logits);
    double total;
    fine(rp_t5_score(m, s, s, &total, NULL, see_rise, &r[2]));
    for (int n = 0; n < 3; n++) {
        assert_true(r[n].calls > 3);
        if (!(r[n].least >= 0 && r[n].least < 0.25 && r[n].last > 0.45 && r[n].last <= 1))
            fail_msg("call %d: from %g to %g", n, r[n].least, r[n].last);
    }
    rp_t5_close(m);
    free_expected(&e);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reference),       cmocka_unit_test(test_rounding), cmocka_unit_test(test_attention),
        cmocka_unit_test(test_stop_and_refuse), cmocka_unit_test(test_progress),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
