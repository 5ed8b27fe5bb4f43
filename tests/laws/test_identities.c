/* test_identities.c -- two ways to express the same attention give the same bits, or the same numbers within the error
 * bound.
 * SPDX-License-Identifier: Apache-2.0 */
#include "tests/laws/definition.h"

/* The weights of a row sum to one; if all values are one, so is out. A row without keys sums to zero. */
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

/* Query heads that share a key head give the bits that they would give with a copy of it each. */
static void shared_heads_equal_repeated_heads(void **state)
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

/* A call with a term whose numbers are all zero equals a call without it bit for bit, alone or with other terms. */
static void zero_terms_change_nothing(void **state)
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

/* Two tables give bit-identical results to one table of their sums. Strips are added in double and rounded once. */
static void two_tables_equal_their_sum(void **state)
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

/* A call with only the keys [from, from+n) and an adjusted offset equals, bit for bit, a call with all keys that masks
 * the others. */
static void cut_keys_equal_masked_keys(void **state)
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
            s.t.k.shape[2] = s.t.v.shape[2] = SOME; /* the strides stay, because the array still contains all keys */
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
    show("cut keys");
}

/* A call whose keys all fit one sum of values writes each row when it is summed. It equals, bit for bit, a call with
 * more keys that masks the others: rows and groups without a key, values of any width, in place and packed. */
static void few_keys_equal_masked_keys(void **state)
{
    static const struct {
        const char *before, *after, *mask;
    } texts[] = {{"b2h2q49", "d32:t5", ""},
                 {"b1h4g2q64", "d64:", ""},
                 {"b1h2q100", "d16v8:alibi+sink", "causal"},
                 {"b1h2q13", "d24v40o-7:table,left=3,right=3", "causal"},
                 {"b1h1q98", "d8v128o20:t5", "window=6,2"},
                 {"b1h2q33", "d9v16:relkey,left=3,right=3", "dropout=0.3"}};
    static const int keys[] = {1, 5, 17, 49, 64, 127, 128};
    problem p, s;
    (void)state;
    for (size_t n = 0; n < sizeof texts / sizeof *texts; n++)
        for (size_t m = 0; m < sizeof keys / sizeof *keys; m++)
            EACH_ISA(isa)
            {
                const char *mask = texts[n].mask;
                pose(&p, 26, "fwd:f32:%sk150%s:%s%skey_mask", texts[n].before, texts[n].after, mask, *mask ? "+" : "");
                also(&p, WITH_LSE, RP_F64);
                for (int j = 0; j < 150; j++)
                    for (int b = 0; b < p.desc.batch; b++)
                        ((uint8_t *)p.t.mask[p.desc.n_masks - 1].data)[b * 150 + j] = j < keys[m];
                attend(&p, isa);
                pose(&s, 26, "fwd:f32:%sk%d%s:%s", texts[n].before, keys[m], texts[n].after, mask);
                also(&s, WITH_LSE, RP_F64);
                const rp_array out = s.t.out, lse = s.t.lse;
                s.t = p.t;
                s.t.out = out;
                s.t.lse = lse;
                s.t.k.shape[2] = s.t.v.shape[2] = keys[m];
                attend(&s, isa);
                same_bits(&s, isa, "more keys, masked", p.t.out.data, out.data, (size_t)problem_size(&out) * 4);
                same_bits(&s, isa, "lse of more keys", p.t.lse.data, lse.data, (size_t)problem_size(&lse) * 8);
                problem_free(&s);
                problem_free(&p);
            }
}

/* A constant added to every bias is added to lse and changes nothing else. */
static void a_constant_bias_only_moves_lse(void **state)
{
    problem p;
    (void)state;
    EACH_ISA(isa)
    {
        pose(&p, 25, "fwd:f32:b1h2q30k150d8:dense:causal");
        also(&p, WITH_LSE, RP_F64);
        attend(&p, isa);
        float *out = copy_of(&p.t.out);
        double *lse = copy_of(&p.t.lse);
        for (int64_t x = 0; x < problem_size(&p.t.term[0][0]); x++)
            ((float *)p.t.term[0][0].data)[x] =
                /* use multiples of 1/64, whose sums are exact */
                (float)((int)(((float *)p.t.term[0][0].data)[x] * 64)) / 64;
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
    show("32 on every bias");
}

/* Causal attention expressed in four ways: by the mask, a window, a boolean array, and biases of -infinity. */
static void causal_equals_window_mask_and_bias(void **state)
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_sum_to_one),
        cmocka_unit_test(shared_heads_equal_repeated_heads),
        cmocka_unit_test(zero_terms_change_nothing),
        cmocka_unit_test(two_tables_equal_their_sum),
        cmocka_unit_test(cut_keys_equal_masked_keys),
        cmocka_unit_test(few_keys_equal_masked_keys),
        cmocka_unit_test(a_constant_bias_only_moves_lse),
        cmocka_unit_test(causal_equals_window_mask_and_bias),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
