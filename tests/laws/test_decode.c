/* test_decode.c -- one plan serves every step of decoding. Each row equals that of the prefill bit for bit, with keys
 * in one array or in pages, and with strips computed in each call or prepared once.
 * SPDX-License-Identifier: Apache-2.0 */
#include "tests/helpers.h"

enum { MAX_BATCH = 2, H = 4, N = 1300, BLOCK = 96, PER_BATCH = (N + 47) / 48 };
/* Numbers that are too large for AMX tiles; the FMA backend multiplies them instead. */
enum huge { NOTHING_HUGE, HUGE_KEYS, HUGE_VALUES };
enum keys {
    IN_ONE_ARRAY,
    IN_PAGES,
    TRANSPOSED,
    TRANSPOSED_PAGES
}; /* TRANSPOSED: the axis of channels comes before the axis of keys */
enum strips { MADE_ANEW, PREPARED };

typedef struct decoding {
    const char *terms, *dtype;
    int G;     /* kv heads; with one per query head, they are read in place */
    int D, DV; /* widths of keys and values; if both are 64, values are read in place */
    int few;   /* queries per step */
    enum strips strips;
    enum keys keys;
    enum huge huge;
} decoding;

static const decoding cases[] = {
    {"t5", "f32", 4, 16, 20, 1, PREPARED, IN_PAGES, 0},
    {"t5", "f32", 4, 16, 20, 7, MADE_ANEW, IN_ONE_ARRAY, 0},
    {"alibi", "f32", 2, 16, 20, 1, MADE_ANEW, IN_ONE_ARRAY, 0},
    {"alibi", "f32", 2, 16, 20, 7, PREPARED, IN_PAGES, 0},
    {"rope", "f32", 4, 16, 20, 1, PREPARED, IN_ONE_ARRAY, 0},
    {"rope", "f32", 4, 16, 20, 7, MADE_ANEW, IN_PAGES, 0},
    {"sink", "f32", 2, 16, 20, 1, MADE_ANEW, IN_PAGES, 0},
    {"sink", "f32", 2, 16, 20, 7, PREPARED, IN_ONE_ARRAY, 0},
    {"rope,scaling=yarn,factor=4,max_position_embeddings=400", "f32", 4, 16, 20, 1, PREPARED, IN_ONE_ARRAY, 0},
    {"rope,scaling=yarn,factor=4,max_position_embeddings=400", "f32", 4, 16, 20, 7, MADE_ANEW, IN_PAGES, 0},
    {"relkey,left=20,right=0", "f32", 4, 16, 20, 1, PREPARED, IN_PAGES, 0},
    {"relkey,left=20,right=0", "f32", 4, 16, 20, 7, MADE_ANEW, IN_ONE_ARRAY, 0},
    {"relval,left=3,right=3", "f32", 2, 16, 20, 1, MADE_ANEW, IN_ONE_ARRAY, 0},
    {"relval,left=3,right=3", "f32", 2, 16, 20, 7, PREPARED, IN_PAGES, 0},
    {"t5+rope+alibi+sink+relkey,left=9,right=0", "f32", 2, 16, 20, 1, PREPARED, IN_PAGES, 0},
    {"t5+rope+alibi+sink", "bf16", 2, 16, 20, 3, PREPARED, IN_PAGES, 0},
    {"rope+relkey,left=9,right=0", "f32", 4, 16, 20, 1, PREPARED, IN_PAGES, 0},
    {"t5+rope+alibi", "f64", 4, 16, 20, 2, PREPARED, IN_ONE_ARRAY, 0},
    {"t5+rope+alibi", "f16", 4, 16, 20, 1, PREPARED, IN_ONE_ARRAY, 0},
    {"t5", "f32", 4, 16, 20, 1, PREPARED, IN_ONE_ARRAY, HUGE_VALUES},
    {"rope", "f32", 4, 16, 20, 2, PREPARED, IN_ONE_ARRAY, HUGE_VALUES},
    {"t5", "f32", 4, 16, 20, 1, PREPARED, IN_ONE_ARRAY, HUGE_KEYS},
    {"rope", "f32", 4, 16, 20, 2, PREPARED, IN_ONE_ARRAY, HUGE_KEYS},
    {"t5", "f32", 4, 64, 64, 1, PREPARED, IN_ONE_ARRAY, 0},
    {"rope+table,left=9,right=0", "bf16", 4, 64, 64, 1, PREPARED, IN_ONE_ARRAY, 0},
    {"", "f32", 4, 64, 64, 1, MADE_ANEW, IN_PAGES, 0},
    {"", "f32", 4, 64, 64, 1, MADE_ANEW, TRANSPOSED_PAGES, 0},
    {"t5", "f32", 4, 64, 64, 1, PREPARED, TRANSPOSED, 0},
    {"t5", "f32", 4, 20, 64, 7, PREPARED, TRANSPOSED_PAGES, 0},
    {"rope", "f32", 4, 16, 20, 1, PREPARED, TRANSPOSED_PAGES, 0},
    {"alibi", "bf16", 4, 20, 16, 3, PREPARED, TRANSPOSED_PAGES, 0},
    {"t5+alibi", "f16", 2, 16, 20, 1, PREPARED, TRANSPOSED, 0},
    {"t5", "f16", 4, 64, 64, 1, PREPARED, TRANSPOSED, 0},
    {"alibi", "f16", 4, 64, 64, 3, MADE_ANEW, TRANSPOSED_PAGES, 0},
    {"t5+alibi", "f16", 4, 64, 64, 1, PREPARED, IN_ONE_ARRAY, 0},
    {"alibi", "f16", 4, 16, 20, 1, MADE_ANEW, IN_PAGES, 0},
    {"t5+alibi", "bf16", 4, 64, 64, 1, PREPARED, IN_ONE_ARRAY, 0},
    {"t5", "bf16", 4, 32, 32, 1, PREPARED, IN_PAGES, 0},
    {"alibi", "bf16", 4, 96, 80, 1, MADE_ANEW, IN_ONE_ARRAY, 0},
    {"t5", "f32", 4, 272, 24, 1, MADE_ANEW, IN_ONE_ARRAY, 0},
    {"t5+alibi", "bf16", 4, 272, 24, 1, MADE_ANEW, IN_ONE_ARRAY, 0},
    {"t5+rope", "f64", 4, 16, 20, 1, PREPARED, TRANSPOSED_PAGES, 0},
    {"t5", "f64", 4, 16, 20, 2, PREPARED, TRANSPOSED, 0},
    {"t5", "f32", 4, 16, 20, 1, PREPARED, TRANSPOSED_PAGES, HUGE_KEYS},
    {"rope", "f32", 4, 16, 20, 2, PREPARED, TRANSPOSED, HUGE_KEYS},
};

/* Return the number of keys in a page. The larger of the two page sizes holds a whole panel of 64 keys. */
static int page_keys(const decoding *c)
{
    return c->keys == TRANSPOSED_PAGES ? 112 : 48;
}

/* Copy the cache into pages that are at separate places in memory. */
static void fill_pages(problem *p, const decoding *c, const void *page[2][MAX_BATCH * PER_BATCH])
{
    const size_t size = rp_dtype_size(p->desc.dtype);
    const int B = (int)p->desc.batch, page_size = page_keys(c);
    for (int x = 0; x < 2; x++) {
        const char *from = x ? p->t.v.data : p->t.k.data;
        const size_t row = (size_t)(x ? c->DV : c->D) * size, page_bytes = (size_t)(c->G * page_size) * row;
        char *cache = problem_alloc(p, (size_t)(B * PER_BATCH) * page_bytes);
        assert_non_null(cache);
        for (int b = 0; b < B; b++)
            for (int n = 0; n * page_size < N; n++) {
                char *to = cache + (size_t)(b * PER_BATCH + (n * 5 + 3) % PER_BATCH) * page_bytes;
                const int keys = N - n * page_size < page_size ? N - n * page_size : page_size;
                page[x][b * PER_BATCH + n] = to;
                for (int at = 0; x == 0 && c->keys == TRANSPOSED_PAGES && at < c->G * keys * c->D; at++) {
                    const int g = at / (keys * c->D), j = at / c->D % keys, d = at % c->D;
                    memcpy(to + (size_t)((g * c->D + d) * page_size + j) * size,
                           from + (size_t)(((b * c->G + g) * N + n * page_size + j) * c->D + d) * size, size);
                }
                if (x == 0 && c->keys == TRANSPOSED_PAGES)
                    continue;
                for (int g = 0; g < c->G; g++)
                    memcpy(to + (size_t)(g * page_size) * row,
                           from + (size_t)((b * c->G + g) * N + n * page_size) * row, (size_t)keys * row);
            }
    }
}

static void make_huge(problem *p, const decoding *c)
{
    float *k = p->t.k.data, *v = p->t.v.data;
    for (int64_t x = 0; c->huge && x < p->desc.batch * c->G * N; x += 97)
        if (c->huge == HUGE_VALUES)
            v[x * c->DV] = 2e38f;
        else
            for (int d = 0; d < c->D; d++)
                k[x * c->D + d] *= 1e16f;
    if (c->huge == HUGE_KEYS)
        p->desc.scale = 1e-16;
}

/* Run lq queries, starting at `first`. They may attend to keys up to the last of these queries. */
static rp_pool *pools[2];

static void call(const rp_plan *plan, const problem *p, const decoding *c, int64_t first, int64_t lq, rp_tensors t,
                 const rp_array *out)
{
    const int64_t one[1] = {1};
    t.q_offset = rp_array_of(&first, RP_I64, 1, one);
    t.q.shape[2] = lq;
    t.q.data = (char *)p->t.q.data + (size_t)(first * c->D) * rp_dtype_size(p->desc.dtype);
    t.k.shape[2] = t.v.shape[2] = first + lq;
    t.out = *out;
    t.pool = pools[(first + lq) % 2];
    good(rp_attend(plan, &t, NULL));
}

/* Blocks of queries as in a prefill; after each of them, a few steps of decoding. */
static const struct {
    int first;
    int steps[4]; /* positions; -1 ends the list */
} blocks[] = {{0, {0, 5, -1}}, {480, {511, 512, 513, -1}}, {960, {1029, 1030, -1}}, {1248, {1299, -1}}};

static void decode(problem *p, const decoding *c, const void *page[2][MAX_BATCH * PER_BATCH],
                   const rp_array *turned_keys, const char *isa)
{
    const int B = EMULATED || SLOW(isa) ? 1 : MAX_BATCH, D = c->D, DV = c->DV, page_size = page_keys(c);
    const size_t row = (size_t)DV * rp_dtype_size(p->desc.dtype);
    rp_plan *plan;
    rp_prepared *ready = NULL;
    p->desc.isa = isa;
    p->desc.flexible = 1;
    p->desc.batch = p->t.q.shape[0] = p->t.k.shape[0] = p->t.v.shape[0] = B;
    good(rp_plan_create(&plan, &p->desc));
    if (c->strips == PREPARED)
        good(rp_prepare(&ready, plan, &p->t));
    for (size_t n = 0; n < sizeof blocks / sizeof *blocks; n++) {
        const int first = blocks[n].first, rows = N - first < BLOCK ? N - first : BLOCK;
        const int64_t all[4] = {B, H, rows, DV};
        const rp_array prefill = array_in(p, p->desc.dtype, 4, all);
        rp_desc exact = p->desc; /* for comparison, a plan for exactly these lengths */
        rp_plan *its_own;
        exact.flexible = 0;
        exact.len_q = rows;
        exact.len_k = first + rows;
        good(rp_plan_create(&its_own, &exact));
        call(its_own, p, c, first, rows, p->t, &prefill);
        rp_plan_destroy(its_own);
        for (const int *last = blocks[n].steps; *last >= 0; last++) {
            const int lq = *last + 1 < c->few ? *last + 1 : c->few;
            const int64_t shape[4] = {B, H, lq, DV};
            const rp_array out = array_in(p, p->desc.dtype, 4, shape);
            rp_tensors t = p->t;
            t.prepared = ready;
            if (c->keys == TRANSPOSED) {
                t.k.data = turned_keys->data;
                memcpy(t.k.stride, turned_keys->stride, sizeof t.k.stride);
            }
            if (c->keys == IN_PAGES || c->keys == TRANSPOSED_PAGES) {
                t.k.data = t.v.data = NULL;
                t.pages = (rp_pages){page[0], page[1],        page_size, PER_BATCH, *last + 1, page_size * D,
                                     D,       page_size * DV, DV,        0,         NULL};
            }
            if (c->keys == TRANSPOSED_PAGES)
                t.pages.k_key = 1, t.pages.k_channel = page_size;
            call(plan, p, c, *last + 1 - lq, lq, t, &out);
            for (int bh = 0; bh < B * H; bh++)
                if (memcmp((char *)out.data + (size_t)(bh * lq) * row,
                           (char *)prefill.data + (size_t)(bh * rows + *last + 1 - lq - first) * row,
                           (size_t)lq * row) != 0)
                    fail_msg("%s on %s: %d queries before position %d, head %d, differ from the prefill%s%s", p->text,
                             isa, lq, *last, bh, ready ? ", prepared" : "", c->keys == IN_PAGES ? ", pages" : "");
        }
    }
    rp_prepared_destroy(ready);
    rp_plan_destroy(plan);
}

/* Decode one query and then a few queries per step, with keys in a cache or in pages, with and without prepared
 * data. */
static void decoding_equals_prefill(void **state)
{
    (void)state;
    good(rp_pool_create(&pools[0], 3));
    good(rp_pool_create(&pools[1], 1));
    for (size_t n = 0; n < sizeof cases / sizeof *cases; n++) {
        const decoding *c = &cases[n];
        const void *page[2][MAX_BATCH * PER_BATCH];
        problem p;
        pose(&p, 11, "fwd:%s:b%dh%dg%dq%dk%dd%dv%d:%s:causal", c->dtype, MAX_BATCH, H, c->G, N, N, c->D, c->DV,
             c->terms);
        make_huge(&p, c);
        fill_pages(&p, c, page);
        const rp_array turned_keys = transposed(&p, &p.t.k);
        EACH_ISA(isa)
        decode(&p, c, page, &turned_keys, isa);
        problem_free(&p);
    }
    for (int n = 0; n < 2; n++)
        rp_pool_destroy(pools[n]);
}

/* Separate code handles non-finite values. A masked one has no effect; an attended one changes only its channel. */
static void nan_values_reach_only_their_channel(void **state)
{
    (void)state;
    EACH_ISA(isa)
    for (int DV = 20; DV <= 64; DV += 44) {
        problem p;
        pose(&p, 3, "fwd:f32:b1h%dq1k1100d16v%d:alibi:key_mask", H, DV);
        uint8_t *mask = p.t.mask[0].data;
        ((float *)p.t.v.data)[700 * DV + 3] = NAN; /* of head 0 */
        for (int attended = 0; attended < 2; attended++) {
            mask[700] = (uint8_t)attended;
            attend(&p, isa);
            for (int x = 0; x < H * DV; x++)
                if (attended ? isnan(at(&p.t.out, x)) != (x == 3) : !isfinite(at(&p.t.out, x)))
                    wrong(&p, isa, "out[%d] is %g, and the key of NaN is %s", x, at(&p.t.out, x),
                          attended ? "attended" : "masked");
        }
        problem_free(&p);
    }
}

/* A bias of -infinity masks a key even if its product is infinite or NaN, also in a call that only sums weights. */
static void huge_keys_are_masked_by_biases(void **state)
{
    (void)state;
    EACH_ISA(isa)
    {
        problem p;
        pose(&p, 3, "fwd:f32:b1h%dq1k1100d16:dense", H);
        const float *q = p.t.q.data;
        const rp_array none = {0};
        const int64_t rows[] = {1, H, 1};
        for (int d = 0; d < 16; d++) /* of head 0 */
            ((float *)p.t.k.data)[700 * 16 + d] = q[d] < 0 ? -INFINITY : INFINITY;
        p.t.lse = array_in(&p, RP_F32, 3, rows);
        p.t.out = none;
        for (int attended = 0; attended < 2; attended++) {
            ((float *)p.t.term[0][0].data)[700] = attended ? 0 : -INFINITY;
            attend(&p, isa);
            for (int h = 0; h < H; h++)
                if (isfinite(at(&p.t.lse, h)) != (!attended || h > 0))
                    wrong(&p, isa, "lse[%d] is %g, and the infinite key of head 0 is %s", h, at(&p.t.lse, h),
                          attended ? "attended" : "masked");
        }
        problem_free(&p);
    }
}

/* A mask excludes all keys of tiles between tiles that are used. One query alone and the same row among 8 queries give
 * bit-identical results, for every number of threads. */
static void empty_tiles_between_others(void **state)
{
    enum { L = 2560, D = 64, ROWS = 8 };
    static const struct {
        const char *type;
        int from[2], to[2]; /* masked keys */
    } holes[] = {{"f32", {512, 512}, {1024, 1024}},
                 {"f32", {512, 1536}, {1024, 2048}},
                 {"f32", {512, 512}, {1536, 1536}},
                 {"bf16", {512, 1536}, {1024, 2048}},
                 {"f64", {1024, 1024}, {1536, 1536}}};
    rp_pool *own[2];
    (void)state;
    good(rp_pool_create(&own[0], 3));
    good(rp_pool_create(&own[1], 1));
    for (size_t n = 0; n < sizeof holes / sizeof *holes; n++)
        EACH_ISA(isa)
        {
            problem p;
            uint8_t out[H * D * 8];
            rp_plan *plan;
            const int64_t shape[4] = {1, H, 1, D};
            pose(&p, 9, "fwd:%s:b1h%dq%dk%dd%d::key_mask", holes[n].type, H, ROWS, L, D);
            const size_t size = rp_dtype_size(p.desc.dtype);
            for (int x = 0; x < 2; x++)
                memset((char *)p.t.mask[0].data + holes[n].from[x], 0, (size_t)(holes[n].to[x] - holes[n].from[x]));
            attend(&p, isa);
            p.desc.isa = isa;
            p.desc.len_q = 1;
            good(rp_plan_create(&plan, &p.desc));
            for (int pool = 0; pool < 2; pool++) {
                rp_tensors t = p.t;
                t.q.shape[2] = 1;
                t.q.data = (char *)t.q.data + (ROWS - 1) * D * size;
                t.out = rp_array_of(out, p.desc.dtype, 4, shape);
                t.pool = own[pool];
                good(rp_attend(plan, &t, NULL));
                for (size_t h = 0; h < H; h++)
                    same_bits(&p, isa, "one query with empty tiles",
                              (char *)p.t.out.data + (h * ROWS + ROWS - 1) * D * size, out + h * D * size, D * size);
            }
            rp_plan_destroy(plan);
            problem_free(&p);
        }
    rp_pool_destroy(own[0]);
    rp_pool_destroy(own[1]);
}

/* Using prepared data of another plan, pages together with arrays, or too few pages is an error that names the
 * argument. */
static void pages_and_prepared_data_are_checked(void **state)
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
    page[1] = p.t.v.data;
    t.pages.k_channel = 50; /* neither keys nor channels are contiguous */
    assert_int_equal(rp_attend(plan, &t, NULL), RP_E_STRIDE);
    assert_non_null(strstr(rp_last_error(), "k_channel is 50 and k_key is 4"));
    t.pages.k_channel = 0;
    t.pages.per_batch = 1;
    assert_int_equal(rp_attend(plan, &t, NULL), RP_E_RANGE);
    assert_non_null(strstr(rp_last_error(), "100 keys need 2 pages"));
    t.pages.len_k = 99;
    assert_int_equal(rp_attend(plan, &t, NULL), RP_E_RANGE);
    rp_plan_destroy(plan);
    rp_plan_destroy(other);
    problem_free(&p);
}

/* Run a prefill, then every step of decoding with the same plan. A step uses the keys up to its query, and sets the
 * offset. */
static void one_plan_serves_every_length(void **state)
{
    static const char *const texts[] = {
        "t5+rope:causal",    "alibi:causal",
        ":causal+softcap=3", "relkey,left=5,right=0+relval,left=3,right=0:causal",
        "forget+sink:",      "table,left=20,right=3+rope,layout=interleaved:window=40,0"};
    enum { L = 133, D = 6, V = 5 };
    problem p;
    (void)state;
    for (int n = 0; n < 6; n++)
        for (int type = 0; type < 2; type++)
            EACH_ISA(isa)
            {
                const int64_t size = type ? 2 : 4;
                rp_plan *plan;
                pose(&p, 5, "fwd:%s:b2h4g2q%dk%dd%dv%d:%s", type ? "bf16" : "f32", L, L, D, V, texts[n]);
                p.desc.isa = isa;
                p.desc.flexible = 1;
                good(rp_plan_create(&plan, &p.desc));
                good(rp_attend(plan, &p.t, NULL));
                for (int64_t i = 0; i < L; i += i < 5 || i > 120 ? 1 : 7) {
                    uint8_t out[2 * 4 * V * 4];
                    int64_t offset[2] = {i, i};
                    const int64_t two[1] = {2}, shape[4] = {2, 4, 1, V};
                    rp_tensors t = p.t;
                    t.q.shape[2] = 1;
                    t.q.data = (char *)t.q.data + i * D * size;
                    t.k.shape[2] = t.v.shape[2] = i + 1; /* the strides stay, as in a cache */
                    t.q_offset = rp_array_of(offset, RP_I64, 1, two);
                    t.out = rp_array_of(out, p.desc.dtype, 4, shape);
                    for (int32_t m = 0; m < p.desc.n_terms; m++)
                        if (p.terms[m].kind == RP_TERM_FORGET)
                            t.term[m][0].shape[2] = i + 1;
                    good(rp_attend(plan, &t, NULL));
                    for (int64_t h = 0; h < 8; h++)
                        same_bits(&p, isa, "one step of decoding", (char *)p.t.out.data + (h * L + i) * V * size,
                                  out + h * V * size, (size_t)(V * size));
                }
                rp_plan_destroy(plan);
                p.desc.len_k = L - 1; /* more keys than the plan allows are an error */
                good(rp_plan_create(&plan, &p.desc));
                assert_int_equal(rp_attend(plan, &p.t, NULL), RP_E_SHAPE);
                assert_non_null(strstr(rp_last_error(), "k: the length is 133"));
                rp_plan_destroy(plan);
                problem_free(&p);
            }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(decoding_equals_prefill),
        cmocka_unit_test(one_plan_serves_every_length),
        cmocka_unit_test(nan_values_reach_only_their_channel),
        cmocka_unit_test(huge_keys_are_masked_by_biases),
        cmocka_unit_test(empty_tiles_between_others),
        cmocka_unit_test(pages_and_prepared_data_are_checked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
