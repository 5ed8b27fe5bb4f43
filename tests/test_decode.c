/* test_decode.c -- one plan for every step of decoding: each row has the bits of the prefill's row, with keys in one array or
 * in pages, and with strips made anew or once.
 * SPDX-License-Identifier: Apache-2.0 */
#include "helpers.h"

enum { B = EMULATED ? 1 : 2, H = 4, N = 1300, PAGE = 48, PER_BATCH = (N + PAGE - 1) / PAGE };
static int G = 4;           /* kv heads; one for each head: read where they lie */
static int D = 16, DV = 20; /* 64 and 64: values are read in place */
static int large;           /* 1: keys, 2: values that squares leave to multiply-adds */

static const char *const terms[] = {"t5",
                                    "alibi",
                                    "rope",
                                    "sink",
                                    "rope,scaling=yarn,factor=4,max_position_embeddings=400",
                                    "xl",
                                    "relkey,left=20,right=0",
                                    "relval,left=3,right=3",
                                    NULL};

/* Step by step, `few` queries at a time, over keys [0, position]: compared with the rows of a prefill. */
static void steps(const char *text, const char *isa, int few, bool prepared, bool pages, const char *dtype)
{
    problem p;
    pose(&p, 11, "fwd:%s:b%dh%dg%dq%dk%dd%dv%d:%s:causal", dtype, B, H, G, N, N, D, DV, text);
    const size_t size = rp_dtype_size(p.desc.dtype);
    for (int64_t x = 0; large && x < B * G * N; x += 97) {
        for (int c = 0; c < D && large == 1; c++)
            ((float *)p.t.k.data)[x * D + c] *= 1e16f;
        if (large == 1)
            p.desc.scale = 1e-16;
        else
            ((float *)p.t.v.data)[x * DV] = 2e38f;
    }
    rp_plan *whole, *plan;
    rp_prepared *ready = NULL;
    p.desc.isa = isa;
    good(rp_plan_create(&whole, &p.desc));
    good(rp_attend(whole, &p.t, NULL));
    rp_desc d = p.desc;
    d.flexible = 1;
    d.isa = isa;
    good(rp_plan_create(&plan, &d));
    if (prepared)
        good(rp_prepare(&ready, plan, &p.t));
    /* the cache: every page somewhere else */
    char *cache[2];
    const void *page[2][B * PER_BATCH];
    const int64_t width[2] = {D, DV};
    for (int x = 0; x < 2; x++) {
        cache[x] = problem_alloc(&p, (size_t)(B * PER_BATCH * G * PAGE * width[x]) * size);
        for (int b = 0; b < B; b++)
            for (int n = 0; n < PER_BATCH; n++) {
                char *to = cache[x] + (size_t)((b * PER_BATCH + (n * 5 + 3) % PER_BATCH) * G * PAGE * width[x]) * size;
                page[x][b * PER_BATCH + n] = to;
                for (int g = 0; g < G; g++)
                    for (int j = 0; j < PAGE && n * PAGE + j < N; j++)
                        memcpy(to + (size_t)((g * PAGE + j) * width[x]) * size,
                               (const char *)(x ? p.t.v.data : p.t.k.data) +
                                   (size_t)(((b * G + g) * N + n * PAGE + j) * width[x]) * size,
                               (size_t)width[x] * size);
            }
    }
    static const int at[] = {0, 5, 511, 512, 513, 1030, 1299};
    for (size_t step = 0; step < sizeof at / sizeof *at; step++) {
        const int64_t last = at[step], lq = last + 1 < few ? last + 1 : few, first = last + 1 - lq;
        rp_tensors t = p.t;
        t.prepared = ready;
        const int64_t offset[1] = {first}, one[1] = {1};
        t.q_offset = rp_array_of(offset, RP_I64, 1, one);
        t.q.shape[2] = t.out.shape[2] = lq;
        t.q.data = (char *)p.t.q.data + (size_t)(first * D) * size;
        t.k.shape[2] = t.v.shape[2] = last + 1;
        const int64_t shape[4] = {B, H, lq, DV};
        t.out = array_in(&p, p.desc.dtype, 4, shape);
        if (pages) {
            t.k.data = t.v.data = NULL;
            t.pages = (rp_pages){page[0], page[1], PAGE, PER_BATCH, last + 1, PAGE * D, D, PAGE * DV, DV};
        }
        good(rp_attend(plan, &t, NULL));
        for (int bh = 0; bh < B * H; bh++)
            if (memcmp((char *)t.out.data + (size_t)(bh * lq * DV) * size,
                       (char *)p.t.out.data + (size_t)((bh * N + first) * DV) * size, (size_t)(lq * DV) * size) != 0)
                fail_msg("%s on %s: %d queries before position %d, head %d, differ from the prefill%s%s", p.text, isa,
                         (int)lq, (int)last, bh, prepared ? ", prepared" : "", pages ? ", pages" : "");
    }
    rp_prepared_destroy(ready);
    rp_plan_destroy(plan);
    rp_plan_destroy(whole);
    problem_free(&p);
}

static void decoding(void **state)
{
    const char *isa;
    (void)state;
    for (int n = 0; (isa = rp_isa_name(n)); n++) {
        if (!TRIED(isa))
            continue;
        for (int x = 0; terms[x]; x++) {
            if (strcmp(terms[x], "xl") == 0)
                continue; /* its vectors are counted from the call's own lengths */
            if (SANITIZED && x > 1 && strcmp(isa, "amx_emulated") == 0)
                continue; /* minutes: the other builds run them */
            G = x % 2 ? 2 : 4;
            steps(terms[x], isa, 1, x % 2 == 0, x % 3 == 0, "f32");
            steps(terms[x], isa, 7, x % 2 == 1, x % 3 != 0, "f32");
        }
        G = 2;
        steps("t5+rope+alibi+sink+relkey,left=9,right=0", isa, 1, true, true, "f32");
        steps("t5+rope+alibi+sink", isa, 3, true, true, "bf16");
        G = 4;
        steps("rope+relkey,left=9,right=0", isa, 1, true, true, "f32");
        steps("t5+rope+alibi", isa, 2, true, false, "f64");
        steps("t5+rope+alibi", isa, 1, true, false, "f16");
        for (large = 2; large > 0; large--) {
            steps("t5", isa, 1, true, false, "f32");
            steps("rope", isa, 2, true, false, "f32");
        }
        D = DV = 64;
        steps("t5", isa, 1, true, false, "f32");
        steps("rope+table,left=9,right=0", isa, 1, true, false, "bf16");
        steps("", isa, 1, false, true, "f32");
        D = 16, DV = 20;
    }
}

/* Values that are not finite take the other way, to the same bits. */
static void extreme(void **state)
{
    const char *isa;
    (void)state;
    for (int n = 0; (isa = rp_isa_name(n)); n++)
        for (DV = 20; DV <= 64 && TRIED(isa); DV += 44) {
            problem p;
            rp_plan *plan;
            pose(&p, 3, "fwd:f32:b1h%dq1k1100d%dv%d:alibi:key_mask", H, D, DV);
            uint8_t *mask = p.t.mask[0].data;
            ((float *)p.t.v.data)[700 * DV + 3] = NAN; /* of head 0 */
            mask[700] = 0;
            p.desc.isa = isa;
            good(rp_plan_create(&plan, &p.desc));
            good(rp_attend(plan, &p.t, NULL));
            for (int x = 0; x < H * DV; x++)
                if (!isfinite(((float *)p.t.out.data)[x]))
                    fail_msg("%s, %d channels: out[%d] is not finite, and its key is masked", isa, DV, x);
            mask[700] = 1;
            good(rp_attend(plan, &p.t, NULL));
            for (int x = 0; x < H * DV; x++)
                assert_true(isnan(((float *)p.t.out.data)[x]) == (x == 3));
            rp_plan_destroy(plan);
            problem_free(&p);
        }
    DV = 20;
}

static void bad(void **state)
{
    problem p;
    rp_plan *plan, *other;
    rp_prepared *ready;
    (void)state;
    pose(&p, 3, "fwd:f32:b1h2q1k100d4:t5");
    good(rp_plan_create(&plan, &p.desc));
    good(rp_plan_create(&other, &p.desc));
    good(rp_prepare(&ready, other, &p.t));
    rp_tensors t = p.t;
    t.prepared = ready;
    assert_int_equal(rp_attend(plan, &t, NULL), RP_E_ARG);
    assert_non_null(strstr(rp_last_error(), "another plan"));
    rp_prepared_destroy(ready);
    rp_prepared_destroy(NULL);
    assert_int_equal(rp_prepare(NULL, plan, &p.t), RP_E_ARG);
    assert_int_equal(rp_prepare(&ready, NULL, &p.t), RP_E_ARG);
    assert_null(ready);
    t = p.t;
    const void *page[2] = {p.t.k.data, NULL};
    t.pages = (rp_pages){.k = page, .v = page, .page = 50, .per_batch = 2, .len_k = 100, .k_head = 200, .k_key = 4};
    assert_int_equal(rp_attend(plan, &t, NULL), RP_E_ARG);
    assert_non_null(strstr(rp_last_error(), "both"));
    t.k.data = t.v.data = NULL;
    assert_int_equal(rp_attend(plan, &t, NULL), RP_E_ARG);
    assert_non_null(strstr(rp_last_error(), "pages.k[1] is NULL"));
    t.pages.per_batch = 1;
    assert_int_equal(rp_attend(plan, &t, NULL), RP_E_RANGE);
    assert_non_null(strstr(rp_last_error(), "100 keys need 2 pages"));
    t.pages.len_k = 99;
    assert_int_equal(rp_attend(plan, &t, NULL), RP_E_RANGE);
    rp_plan_destroy(plan);
    rp_plan_destroy(other);
    problem_free(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(decoding), cmocka_unit_test(extreme), cmocka_unit_test(bad)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
