/* test_descriptions.c -- descriptions from which no plan can be created: sizes, numbers, terms and masks out of range.
 * SPDX-License-Identifier: Apache-2.0 */
#include "tests/api/refusals.h"

#define FAR ((int64_t)1 << 61) /* larger than every limit on sizes */

/* One table row: a change to a correct description, and the expected error. */
#define DESC(change, status, field, value)                                                                             \
    do {                                                                                                               \
        rp_desc d = rp_desc_init(1, 2, 3, 4, 6);                                                                       \
        change;                                                                                                        \
        refuse_plan(d, status, field, value);                                                                          \
    } while (0)

/* ------------------------------------------------------------------------------------------------ sizes and numbers */

static void sizes_out_of_bounds_are_named(void **state)
{
    (void)state;
    static const struct {
        size_t field;
        const char *name;
        int64_t bad[4];
    } cases[] = {
        {offsetof(rp_desc, batch), "batch", {-1, INT64_MIN, INT64_MAX, FAR}},
        {offsetof(rp_desc, heads), "heads", {0, -1, INT64_MAX, FAR}},
        {offsetof(rp_desc, kv_heads), "kv_heads", {-1, 3, 8, INT64_MAX}},
        {offsetof(rp_desc, len_q), "len_q", {-1, INT64_MIN, INT64_MAX, FAR}},
        {offsetof(rp_desc, len_k), "len_k", {-1, INT64_MIN, INT64_MAX, FAR}},
        {offsetof(rp_desc, dim_k), "dim_k", {0, -8, INT64_MAX, (int64_t)1 << 31}},
        {offsetof(rp_desc, dim_v), "dim_v", {-1, INT64_MIN, INT64_MAX, (int64_t)1 << 31}},
        {offsetof(rp_desc, q_offset), "q_offset", {INT64_MIN, INT64_MAX, FAR, -FAR}},
    };
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++)
        for (int n = 0; n < 4; n++) {
            rp_desc d = rp_desc_init(2, 4, 5, 6, 8);
            char value[32];
            memcpy((char *)&d + cases[c].field, &cases[c].bad[n], sizeof(int64_t));
            snprintf(value, sizeof value, "%lld", (long long)cases[c].bad[n]);
            refuse_plan(d, RP_E_RANGE, cases[c].name, value);
        }
}

static void counts_and_switches_out_of_bounds_are_named(void **state)
{
    (void)state;
    DESC(d.size--, RP_E_ARG, "size", NULL);
    DESC(d.size = 0, RP_E_ARG, "size", "0");
    DESC(d.size = SIZE_MAX, RP_E_ARG, "size", NULL);
    DESC(d.n_terms = RP_MAX_TERMS + 1, RP_E_RANGE, "n_terms", "17");
    DESC(d.n_terms = -1, RP_E_RANGE, "n_terms", "-1");
    DESC(d.n_terms = 1, RP_E_ARG, "terms", "NULL");
    DESC(d.n_masks = RP_MAX_MASKS + 1, RP_E_RANGE, "n_masks", "9");
    DESC(d.n_masks = INT32_MIN, RP_E_RANGE, "n_masks", "-2147483648");
    DESC(d.n_masks = 1, RP_E_ARG, "masks", "NULL");
    DESC(d.flexible = 2, RP_E_RANGE, "flexible", "2");
}

/* Each factor is in range, but their product is not. A size of zero must not hide this. */
static void products_beyond_63_bits_are_refused(void **state)
{
    const int64_t T = (int64_t)1 << 40, G = (int64_t)1 << 30, H = (int64_t)1 << 24;
    (void)state;
    DESC((d = rp_desc_init(0, H, 2, G, G), d.dim_v = G), RP_E_OVERFLOW, "63 bits", NULL);
    DESC(d = rp_desc_init(T, H, 2, 2, 8), RP_E_OVERFLOW, "63 bits", NULL);
    DESC(d = rp_desc_init(1, H, T, 2, 8), RP_E_OVERFLOW, "63 bits", NULL);
    DESC(d = rp_desc_init(1, H, 2, T, 8), RP_E_OVERFLOW, "63 bits", NULL);
    DESC(d = rp_desc_init(1, (int64_t)1 << 60, 2, 2, 8), RP_E_OVERFLOW, "63 bits", NULL);
}

static void numbers_out_of_bounds_are_named(void **state)
{
    (void)state;
    EACH(double, x, NAN, INFINITY) DESC(d.scale = x, RP_E_RANGE, "scale", NULL);
    EACH(double, x, NAN, INFINITY) DESC(d.softcap = x, RP_E_RANGE, "softcap", NULL);
    DESC(d.softcap = -0.5, RP_E_RANGE, "softcap", "-0.5");
    EACH(double, x, NAN, INFINITY, -0.5, 1e-21, 2e20) DESC(d.softcap_after = x, RP_E_RANGE, "softcap_after", NULL);
    DESC(d.softcap = -INFINITY, RP_E_RANGE, "softcap", "-inf");
    EACH(double, x, 1, -0.1, 1.5, NAN, INFINITY) DESC(d.dropout = x, RP_E_RANGE, "dropout", NULL);
    EACH(int, x, RP_BOOL, RP_I64, 13, -1, 1 << 30) DESC(d.dtype = (rp_dtype)x, RP_E_ARG, "dtype", NULL);
}

static void unknown_instruction_sets_are_named(void **state)
{
    char name[300];
    (void)state;
    memset(name, 'x', sizeof name - 1);
    name[sizeof name - 1] = 0;
    DESC(d.isa = "mmx", RP_E_ARG, "isa", "mmx");
    DESC(d.isa = "", RP_E_ARG, "isa", NULL);
    DESC(d.isa = name, RP_E_ARG, "isa", "xxx");
    for (int n = 0; rp_isa_name(n); n++)
        if (!rp_isa_found(rp_isa_name(n)))
            DESC(d.isa = rp_isa_name(n), RP_E_UNSUPPORTED, "isa", d.isa);
}

/* A plan does not depend on later changes to its description. */
static void a_description_is_copied(void **state)
{
    rp_plan *plan;
    rp_desc d = rp_desc_init(1, 2, 3, 4, 6);
    char name[] = "generic";
    (void)state;
    d.isa = name;
    good(rp_plan_create(&plan, &d));
    memset(name, 'y', sizeof name - 1);
    memset(&d, 0xff, sizeof d);
    assert_string_equal(rp_plan_isa(plan), "generic");
    rp_plan_destroy(plan);
}

/* ------------------------------------------------------------------------------------------------ terms */

/* Check the error for `t` as the second of two terms, with q and k of width 6, 3 queries and 4 keys. */
static void refuse_term(rp_term t, rp_status want, const char *field)
{
    rp_term two[2] = {rp_term_init(RP_TERM_LOG), t};
    rp_desc d = rp_desc_init(1, 2, 3, 4, 6);
    int32_t ndim = 7;
    int64_t shape[RP_MAX_AXES];
    d.terms = two;
    d.n_terms = 2;
    refuse_plan(d, want, "terms[1]", field);
    said(rp_term_shape(&d, 1, 0, &ndim, shape), want, field, NULL);
    assert_int_equal(ndim, 0);
}

#define TERM(name, change, status, field)                                                                              \
    do {                                                                                                               \
        rp_term t = rp_term_init(RP_TERM_##name);                                                                      \
        change;                                                                                                        \
        refuse_term(t, status, field);                                                                                 \
    } while (0)

/* Parameters that can be written as text. */
static void parameters_out_of_bounds_are_named(void **state)
{
    static const struct {
        const char *text;
        rp_status status;
        const char *field;
    } cases[] = {
        {"table,left=-1,right=1", RP_E_RANGE, "left"},
        {"table,left=1,right=1099511627777", RP_E_RANGE, "right"},
        {"t5,buckets=-2", RP_E_RANGE, "buckets"},
        {"rope,base=0", RP_E_RANGE, "base"},
        {"rope,base=-10000", RP_E_RANGE, "base"},
        {"rope,dim=1", RP_E_RANGE, "dim"},
        {"rope,dim=3", RP_E_RANGE, "dim"},
        {"rope,dim=5", RP_E_RANGE, "dim"},
        {"rope,dim=7", RP_E_RANGE, "dim"},
        {"rope,dim=8", RP_E_RANGE, "dim"}, /* q and k have width 6 */
        {"rope,dim=-2", RP_E_RANGE, "dim"},
        {"sandwich,dim=3", RP_E_RANGE, "dim"},
        {"sandwich,dim=0", RP_E_RANGE, "dim"},
        {"sandwich,dim=4,base=0", RP_E_RANGE, "base"},
        {"fire,c=1,L=-1", RP_E_RANGE, "L"},
        {"fire,c=1,L=1,eps=-1", RP_E_RANGE, "eps"},
        {"fire,c=0,L=1,eps=0", RP_E_RANGE, "eps"},
        {"fire,c=1,L=1", RP_E_RANGE, "width"}, /* no array sets the width here */
        {"fire,c=1,L=1,width=4,width2=-1", RP_E_RANGE, "width2"},
        {"swin,grid=0x4", RP_E_RANGE, "grid"},
        {"swin,grid=1x-3", RP_E_RANGE, "grid"},
        {"swin,grid=1x3,extra=2", RP_E_RANGE, "extra"},
        {"swin,grid=1x3", RP_E_SHAPE, "grid"}, /* three queries but four keys */
        {"axial,grid=2x2", RP_E_SHAPE, "grid"},
        {"axialkey,grid=99999999x99999999", RP_E_RANGE, "grid"},
        {"real,max_distance=-1", RP_E_RANGE, "max_distance"},
        {"real,max_distance=9999999999999", RP_E_RANGE, "max_distance"},
        {"band,width=0,extent=3", RP_E_RANGE, "width"},
        {"band,width=3,extent=0", RP_E_RANGE, "extent"},
        {"deberta", RP_E_RANGE, "max_position"},
        {"deberta,span=-2", RP_E_RANGE, "span"},
        {"deberta,span=16777217", RP_E_RANGE, "span"},
        {"deberta,span=4,max_position=-1", RP_E_RANGE, "max_position"},
        {"deberta,span=4,max_position=16777217", RP_E_RANGE, "max_position"},
        {"deberta,span=4,buckets=2", RP_E_RANGE, "buckets"},
        {"deberta,buckets=16,max_position=8", RP_E_RANGE, "max_position"},
        {"rope,factor=2", RP_E_ARG, "factor"},
        {"rope,scaling=linear,factor=0.5", RP_E_RANGE, "factor"},
        {"rope,scaling=dynamic,factor=2", RP_E_RANGE, "max_position_embeddings"},
        {"rope,scaling=yarn,factor=2", RP_E_RANGE, "original_max_position_embeddings"},
        {"rope,scaling=yarn,factor=2,original_max_position_embeddings=8,beta_fast=1,beta_slow=2", RP_E_RANGE,
         "beta_fast"},
        {"rope,scaling=llama3,factor=2,original_max_position_embeddings=8,low_freq_factor=4", RP_E_RANGE,
         "low_freq_factor"},
        {"rope,scaling=longrope,factor=2,original_max_position_embeddings=1", RP_E_RANGE,
         "original_max_position_embeddings"},
        {"rope,attention_factor=-1", RP_E_RANGE, "attention_factor"},
    };
    (void)state;
    for (size_t n = 0; n < sizeof cases / sizeof *cases; n++) {
        rp_term t;
        char names[RP_MAX_ARRAYS][RP_NAME_MAX];
        good(rp_term_parse(cases[n].text, &t, names));
        refuse_term(t, cases[n].status, cases[n].field);
    }
}

/* Parameters that text cannot express: non-finite numbers, enum values and sizes that do not exist. */
static void impossible_parameters_are_named(void **state)
{
    (void)state;
    EACH(int, kind, -1, 0, RP_TERM_COUNT, 1 << 30) TERM(LOG, t = rp_term_init((rp_term_kind)kind), RP_E_ARG, "kind");
    EACH(int64_t, x, -1, INT64_MIN, INT64_MAX, ((int64_t)1 << 40) + 1)
    {
        TERM(TABLE, t.left = x, RP_E_RANGE, "left");
        TERM(TABLE, (t.left = 1, t.right = x), RP_E_RANGE, "right");
        TERM(RELKEY, t.left = x, RP_E_RANGE, "left");
        TERM(RELKEY, (t.left = 1, t.right = x), RP_E_RANGE, "right");
        TERM(RELVAL, t.left = x, RP_E_RANGE, "left");
        TERM(RELVAL, (t.left = 1, t.right = x), RP_E_RANGE, "right");
    }
    EACH(double, x, NAN, INFINITY, -INFINITY)
    {
        TERM(LOG, t.lambda = x, RP_E_RANGE, "lambda");
        TERM(LINEAR, t.rate_left = x, RP_E_RANGE, "rate_left");
        TERM(LINEAR, t.rate_right = x, RP_E_RANGE, "rate_right");
        TERM(ROPE, t.base = x, RP_E_RANGE, "base");
    }
    EACH(int64_t, x, INT64_MIN, INT64_MAX) TERM(ROPE, t.dim = x, RP_E_RANGE, "dim");
    EACH(int64_t, x, INT64_MIN, -1, (1 << 24) + 1, INT64_MAX)
    {
        TERM(DEBERTA, t.span = x, RP_E_RANGE, "span");
        TERM(DEBERTA, (t.span = 4, t.max_position = x), RP_E_RANGE, "max_position");
    }
    EACH(int, x, -1, 2, 77) TERM(ROPE, t.layout = (rp_layout)x, RP_E_ARG, "layout");
    EACH(int, x, -1, 4, 1 << 30) TERM(BUCKET, t.strategy = (rp_strategy)x, RP_E_ARG, "strategy");
}

/* Buckets out of range, in terms and in rp_bucket. */
static void buckets_out_of_bounds_are_named(void **state)
{
    static const struct {
        int64_t buckets, max_distance;
        int32_t bidirectional;
        const char *field;
    } cases[] = {
        {-2, 128, 1, "buckets"},
        {0, 128, 1, "buckets"},
        {1, 128, 0, "buckets"},
        {2, 128, 1, "buckets"},
        {33, 128, 1, "buckets"},
        {INT64_MAX, 128, 0, "buckets"},
        {((int64_t)1 << 30) + 2, INT32_MAX, 1, "buckets"},
        {32, 0, 1, "max_distance"},
        {32, -1, 1, "max_distance"},
        {32, 8, 1, "max_distance"},
        {32, 16, 0, "max_distance"},
        {32, INT64_MAX, 1, "max_distance"},
        {32, INT64_MIN, 1, "max_distance"},
        {32, 128, 2, "bidirectional"},
        {32, 128, -1, "bidirectional"},
    };
    (void)state;
    for (size_t n = 0; n < sizeof cases / sizeof *cases; n++)
        for (int k = 0; k < 2; k++) {
            rp_term t = rp_term_init(k ? RP_TERM_BUCKET : RP_TERM_T5);
            t.buckets = cases[n].buckets;
            t.max_distance = cases[n].max_distance;
            t.bidirectional = cases[n].bidirectional;
            refuse_term(t, RP_E_RANGE, cases[n].field);
            assert_int_equal(rp_bucket(0, t.buckets, t.max_distance, t.bidirectional, RP_STRATEGY_LOG), -1);
            assert_non_null(strstr(rp_last_error(), cases[n].field));
        }
    EACH(int, x, -1, 4, 1 << 30) assert_int_equal(rp_bucket(0, 32, 128, 1, (rp_strategy)x), -1);
}

/* Every parameter accepts its smallest and its largest value, unless another parameter forbids it. */
static void bounds_are_accepted(void **state)
{
    static const char *const texts[] = {
        "table,left=0,right=0",
        "table,left=1099511627776,right=0",
        "table,left=0,right=1099511627776",
        "t5,buckets=2,bidirectional=0",
        "t5,buckets=4,max_distance=3",
        "linear,left=0,right=0",
        "deberta,span=1",
        "deberta,span=16777216",
        "deberta,span=4,max_position=1",
        "deberta,span=4,max_position=16777216",
        "deberta,buckets=4,max_position=4",
        "rope,dim=2",
        "rope,dim=6",
        "sandwich,dim=2",
        "relkey,left=0,right=0",
        "relval,left=0,right=0",
    };
    char names[RP_MAX_ARRAYS][RP_NAME_MAX];
    (void)state;
    for (size_t n = 0; n < sizeof texts / sizeof *texts; n++) {
        rp_term t;
        rp_plan *plan;
        rp_desc d = rp_desc_init(1, 2, 4, 4, 6);
        good(rp_term_parse(texts[n], &t, names));
        d.terms = &t, d.n_terms = 1;
        if (rp_plan_create(&plan, &d) != RP_OK)
            fail_msg("%s: %s", texts[n], rp_last_error());
        rp_plan_destroy(plan);
    }
}

/* Check that creating a plan with these terms fails, and that the error names the last term and contains these
 * words. */
static void refuse_terms(const rp_term *terms, int32_t n, const char *words)
{
    char last[16];
    snprintf(last, sizeof last, "terms[%d]", (int)n - 1);
    DESC((d.terms = terms, d.n_terms = n), RP_E_UNSUPPORTED, last, words);
}

static void some_terms_cannot_be_combined(void **state)
{
    static const char *const products[] = {"relkey,left=1,right=1", "xl", "deberta,span=3"};
    char names[RP_MAX_ARRAYS][RP_NAME_MAX];
    (void)state;
    EACH(rp_term_kind, once, RP_TERM_ROPE, RP_TERM_RELKEY, RP_TERM_RELVAL)
    {
        const rp_term three[3] = {rp_term_init(once), rp_term_init(RP_TERM_LOG), rp_term_init(once)};
        refuse_terms(three, 3, rp_term_name(once));
    }
    for (int x = 0; x < 3; x++)
        for (int y = 0; y < 3; y++) {
            rp_term two[2];
            good(rp_term_parse(products[x], &two[0], names));
            good(rp_term_parse(products[y], &two[1], names));
            refuse_terms(two, 2, x == y ? "twice" : "only one");
        }
}

/* RoPE's dim of 0 means the width of q and k, which must be even. T5 ignores the bucket strategy. */
static void parameters_mean_what_the_kind_reads(void **state)
{
    rp_term rope = rp_term_init(RP_TERM_ROPE), t5 = rp_term_init(RP_TERM_T5);
    rp_desc right = rp_desc_init(1, 1, 1, 1, 1);
    rp_plan *plan;
    (void)state;
    DESC((d = rp_desc_init(1, 1, 2, 2, 7), d.terms = &rope, d.n_terms = 1), RP_E_RANGE, "dim", "7");
    t5.strategy = (rp_strategy)-1;
    right.terms = &t5;
    right.n_terms = 1;
    good(rp_plan_create(&plan, &right));
    rp_plan_destroy(plan);
}

/* ------------------------------------------------------------------------------------------------ masks */

#define MASK(status, value, ...)                                                                                       \
    do {                                                                                                               \
        const rp_mask two[2] = {{RP_MASK_CAUSAL, 0, 0}, {__VA_ARGS__}};                                                \
        DESC((d.masks = two, d.n_masks = 2), status, "masks[1]", value);                                               \
    } while (0)

static void masks_out_of_bounds_are_named(void **state)
{
    const rp_mask far = {RP_MASK_WINDOW, INT64_MAX, INT64_MAX};
    rp_desc right = rp_desc_init(1, 2, 3, 4, 6);
    rp_plan *plan;
    (void)state;
    EACH(int, kind, -1, 0, RP_MASK_COUNT, 1 << 30) MASK(RP_E_ARG, NULL, (rp_mask_kind)kind, 0, 0);
    MASK(RP_E_RANGE, "-2", RP_MASK_WINDOW, -2, 3);
    MASK(RP_E_RANGE, NULL, RP_MASK_WINDOW, 3, INT64_MIN);
    MASK(RP_E_SHAPE, "3", RP_MASK_SEGMENTS, 0, 0);
    right.masks = &far; /* the mask is a window */
    right.n_masks = 1;
    good(rp_plan_create(&plan, &right));
    rp_plan_destroy(plan);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sizes_out_of_bounds_are_named),
        cmocka_unit_test(counts_and_switches_out_of_bounds_are_named),
        cmocka_unit_test(products_beyond_63_bits_are_refused),
        cmocka_unit_test(numbers_out_of_bounds_are_named),
        cmocka_unit_test(unknown_instruction_sets_are_named),
        cmocka_unit_test(a_description_is_copied),
        cmocka_unit_test(parameters_out_of_bounds_are_named),
        cmocka_unit_test(impossible_parameters_are_named),
        cmocka_unit_test(buckets_out_of_bounds_are_named),
        cmocka_unit_test(bounds_are_accepted),
        cmocka_unit_test(some_terms_cannot_be_combined),
        cmocka_unit_test(parameters_mean_what_the_kind_reads),
        cmocka_unit_test(masks_out_of_bounds_are_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
