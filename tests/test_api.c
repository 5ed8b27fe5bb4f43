/* test_api.c -- the public interface misused: each slip has its status, a line that names it, and writes nothing.
 * SPDX-License-Identifier: Apache-2.0 */
#include "helpers.h"
#include <locale.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>

#if SANITIZED
/* malloc says no to what no machine holds, as it does without the sanitizer. */
__attribute__((visibility("default"))) const char *__asan_default_options(void);
const char *__asan_default_options(void)
{
    return "allocator_may_return_null=1";
}
#endif

#define FAR ((int64_t)1 << 61) /* more than any size may be */

static void said(rp_status got, rp_status want, const char *field, const char *value)
{
    if (got != want)
        fail_msg("%s \"%s\", not %s (%s %s)", rp_status_name(got), got == RP_OK ? "" : rp_last_error(),
                 rp_status_name(want), field, value ? value : "");
    if (!strstr(rp_last_error(), field) || (value && !strstr(rp_last_error(), value)))
        fail_msg("\"%s\" does not name %s and %s", rp_last_error(), field, value ? value : "-");
    assert_null(strchr(rp_last_error(), '\n'));
}

/* ------------------------------------------------------------------------------------------------ descriptions */

static void refuse_plan(rp_desc d, rp_status want, const char *field, const char *value)
{
    rp_plan *plan = (rp_plan *)&d;
    said(rp_plan_create(&plan, &d), want, field, value);
    assert_null(plan);
}

static void null_pointers(void **state)
{
    rp_desc d = rp_desc_init(1, 2, 3, 4, 5);
    rp_plan *plan;
    rp_tensors t = rp_tensors_init();
    rp_term term;
    rp_row row = {0};
    rp_pool *pool;
    int32_t ndim;
    int64_t shape[RP_MAX_AXES];
    double flops;
    char names[RP_MAX_ARRAYS][RP_NAME_MAX];
    rp_array a = {0};
    (void)state;
    said(rp_plan_create(NULL, &d), RP_E_ARG, "plan", "NULL");
    said(rp_plan_create(&plan, NULL), RP_E_ARG, "desc", "NULL");
    assert_null(plan);
    rp_plan_destroy(NULL);
    rp_pool_destroy(NULL);
    good(rp_plan_create(&plan, &d));
    said(rp_attend(NULL, &t, NULL), RP_E_ARG, "plan", "NULL");
    said(rp_attend(plan, NULL, NULL), RP_E_ARG, "tensors", "NULL");
    said(rp_attend_row(NULL, &t, 0, 0, 0, &row), RP_E_ARG, "plan", "NULL");
    said(rp_attend_row(plan, NULL, 0, 0, 0, &row), RP_E_ARG, "tensors", "NULL");
    said(rp_bias(NULL, &t, 0, &a), RP_E_ARG, "plan", "NULL");
    said(rp_bias(plan, NULL, 0, &a), RP_E_ARG, "tensors", "NULL");
    said(rp_bias(plan, &t, 0, NULL), RP_E_ARG, "bias", "NULL");
    said(rp_bias(plan, &t, 0, &a), RP_E_ARG, "bias", "NULL");
    said(rp_error_bound(NULL, &t, &a), RP_E_ARG, "plan", "NULL");
    said(rp_error_bound(plan, NULL, &a), RP_E_ARG, "tensors", "NULL");
    assert_int_equal(rp_plan_work_size(NULL, NULL), 0);
    said(RP_E_ARG, RP_E_ARG, "plan", "NULL");
    assert_true(rp_plan_work_size(plan, NULL) > 0);
    said(rp_pool_create(NULL, 1), RP_E_ARG, "pool", "NULL");
    said(rp_pool_create(&pool, -1), RP_E_RANGE, "threads", "-1");
    assert_null(pool);
    said(rp_pool_create(&pool, 4097), RP_E_RANGE, "threads", "4097");
    assert_null(pool);
    said(rp_term_shape(NULL, 0, 0, &ndim, shape), RP_E_ARG, "desc", "NULL");
    said(rp_term_shape(&d, 0, 0, NULL, shape), RP_E_ARG, "ndim", "NULL");
    said(rp_term_shape(&d, 0, 0, &ndim, NULL), RP_E_ARG, "shape", "NULL");
    said(rp_term_shape(&d, 0, 0, &ndim, shape), RP_E_ARG, "term", "0");
    said(rp_term_shape(&d, -1, 0, &ndim, shape), RP_E_ARG, "term", "-1");
    said(rp_mask_shape(NULL, 0, &ndim, shape), RP_E_ARG, "desc", "NULL");
    said(rp_mask_shape(&d, 0, NULL, shape), RP_E_ARG, "ndim", "NULL");
    said(rp_mask_shape(&d, 0, &ndim, NULL), RP_E_ARG, "shape", "NULL");
    said(rp_mask_shape(&d, 0, &ndim, shape), RP_E_ARG, "mask", "0");
    said(rp_term_parse(NULL, &term, names), RP_E_ARG, "text", "NULL");
    said(rp_term_parse("rope", NULL, names), RP_E_ARG, "term", "NULL");
    said(rp_term_parse("rope", &term, NULL), RP_E_ARG, "names", "NULL");
    said(rp_measure_peak(NULL, NULL, NULL), RP_E_ARG, "gflops", "NULL");
    said(rp_measure_peak("reference", NULL, &flops), RP_E_ARG, "isa", "reference");
    said(rp_measure_peak("mmx", NULL, &flops), RP_E_ARG, "isa", "mmx");
    said(rp_measure_bandwidth(NULL, NULL), RP_E_ARG, "bytes_per_second", "NULL");
    said(rp_measure_tile_peak(NULL, NULL), RP_E_ARG, "gflops", "NULL");
    if (rp_isa_found("amx") == 1) {
        assert_int_equal(rp_measure_tile_peak(NULL, &flops), RP_OK);
        assert_true(flops > 1);
    } else {
        said(rp_measure_tile_peak(NULL, &flops), RP_E_UNSUPPORTED, "isa", "amx");
    }
    assert_int_equal(rp_isa_found(NULL), -1);
    rp_plan_destroy(plan);
}

static void names_of_nothing(void **state)
{
    (void)state;
    assert_string_equal(rp_status_name((rp_status)-1), "unknown status");
    assert_string_equal(rp_status_name((rp_status)(RP_E_CANCELLED + 1)), "unknown status");
    for (int s = RP_OK; s <= RP_E_CANCELLED; s++)
        assert_string_not_equal(rp_status_name((rp_status)s), "unknown status");
    assert_int_equal(rp_dtype_size((rp_dtype)-1), 0);
    assert_int_equal(rp_dtype_size((rp_dtype)13), 0);
    assert_string_equal(rp_dtype_name((rp_dtype)13), "?");
    static const int kinds[] = {-1, 0, RP_TERM_COUNT, 1000};
    for (size_t n = 0; n < sizeof kinds / sizeof *kinds; n++) {
        assert_null(rp_term_name((rp_term_kind)kinds[n]));
        assert_null(rp_term_syntax((rp_term_kind)kinds[n]));
        assert_null(rp_term_source((rp_term_kind)kinds[n]));
        assert_null(rp_term_array((rp_term_kind)kinds[n], 0));
    }
    for (int k = 1; k < RP_TERM_COUNT; k++) {
        assert_non_null(rp_term_name((rp_term_kind)k));
        assert_null(rp_term_array((rp_term_kind)k, -1));
        assert_null(rp_term_array((rp_term_kind)k, RP_MAX_ARRAYS));
    }
    assert_null(rp_mask_name(RP_MASK_NONE));
    assert_null(rp_mask_name(RP_MASK_COUNT));
    assert_null(rp_mask_name((rp_mask_kind)-1));
    assert_null(rp_isa_name(-1));
    assert_null(rp_isa_name(1000));
    assert_string_equal(rp_isa_name(0), "generic");
    assert_int_equal(rp_isa_found("generic"), 1);
    assert_int_equal(rp_isa_found("reference"), 1);
    assert_int_equal(rp_isa_found(""), -1);
    assert_int_equal(rp_isa_found("Generic"), -1);
    assert_string_equal(rp_version(), RP_VERSION_STRING);
    assert_true(isnan(rp_alibi_slope(-1, 4)) && isnan(rp_alibi_slope(4, 4)) && isnan(rp_alibi_slope(0, 0)));
}

static void sizes(void **state)
{
    const rp_desc base = rp_desc_init(2, 4, 5, 6, 8);
    (void)state;
    static const struct {
        size_t field;
        const char *name;
        int64_t bad[4]; /* 0 ends the list, past the first */
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
            rp_desc d = base;
            char value[32];
            memcpy((char *)&d + cases[c].field, &cases[c].bad[n], sizeof(int64_t));
            snprintf(value, sizeof value, "%lld", (long long)cases[c].bad[n]);
            refuse_plan(d, RP_E_RANGE, cases[c].name, value);
        }
    rp_desc d = base;
    d.size--;
    refuse_plan(d, RP_E_ARG, "size", NULL);
    d.size = 0;
    refuse_plan(d, RP_E_ARG, "size", "0");
    d.size = SIZE_MAX;
    refuse_plan(d, RP_E_ARG, "size", NULL);
    d = base;
    d.n_terms = RP_MAX_TERMS + 1;
    refuse_plan(d, RP_E_RANGE, "n_terms", "17");
    d.n_terms = -1;
    refuse_plan(d, RP_E_RANGE, "n_terms", "-1");
    d.n_terms = 1;
    refuse_plan(d, RP_E_ARG, "terms", "NULL");
    d = base;
    d.n_masks = RP_MAX_MASKS + 1;
    refuse_plan(d, RP_E_RANGE, "n_masks", "9");
    d.n_masks = INT32_MIN;
    refuse_plan(d, RP_E_RANGE, "n_masks", "-2147483648");
    d.n_masks = 1;
    refuse_plan(d, RP_E_ARG, "masks", "NULL");
    d = base;
    d.cap_after = 2;
    refuse_plan(d, RP_E_RANGE, "cap_after", "2");

    /* products that do not fit, each factor in its bounds; a zero beside them hides nothing */
    for (int n = 0; n < 6; n++) {
        d = base;
        d.batch = n == 1 ? 0 : n == 2 ? (int64_t)1 << 40 : 1;
        d.heads = n == 5 ? (int64_t)1 << 60 : (int64_t)1 << 24;
        d.len_q = n == 3 ? (int64_t)1 << 40 : 2;
        d.len_k = n == 4 ? (int64_t)1 << 40 : 2;
        d.dim_k = n == 1 ? (int64_t)1 << 30 : 8;
        d.dim_v = n == 1 ? (int64_t)1 << 30 : 8;
        if (n == 1)
            d.len_k = (int64_t)1 << 30;
        if (n > 0)
            refuse_plan(d, RP_E_OVERFLOW, "63 bits", NULL);
    }
}

static void numbers(void **state)
{
    const rp_desc base = rp_desc_init(1, 2, 3, 4, 6);
    static const double bad[] = {NAN, INFINITY};
    rp_desc d = base;
    (void)state;
    for (int n = 0; n < 2; n++) {
        d = base;
        d.scale = bad[n];
        refuse_plan(d, RP_E_RANGE, "scale", NULL);
        d = base;
        d.softcap = bad[n];
        refuse_plan(d, RP_E_RANGE, "softcap", NULL);
    }
    d = base;
    d.softcap = -0.5;
    refuse_plan(d, RP_E_RANGE, "softcap", "-0.5");
    d.softcap = -INFINITY;
    refuse_plan(d, RP_E_RANGE, "softcap", "-inf");
    static const double shares[] = {1, -0.1, 1.5, NAN, INFINITY};
    for (size_t n = 0; n < sizeof shares / sizeof *shares; n++) {
        d = base;
        d.dropout = shares[n];
        refuse_plan(d, RP_E_RANGE, "dropout", NULL);
    }
    d = base;
    d.flexible = 2;
    refuse_plan(d, RP_E_RANGE, "flexible", "2");
    static const int no_type[] = {RP_BOOL, RP_I64, 13, -1, 1 << 30};
    for (size_t n = 0; n < sizeof no_type / sizeof *no_type; n++) {
        d = base;
        d.dtype = (rp_dtype)no_type[n];
        refuse_plan(d, RP_E_ARG, "dtype", NULL);
    }
    d = base;
    d.isa = "mmx";
    refuse_plan(d, RP_E_ARG, "isa", "mmx");
    d.isa = "";
    refuse_plan(d, RP_E_ARG, "isa", NULL);
    for (int n = 0; rp_isa_name(n); n++)
        if (!rp_isa_found(rp_isa_name(n))) {
            d.isa = rp_isa_name(n);
            refuse_plan(d, RP_E_UNSUPPORTED, "isa", d.isa);
        }
    char name[300];
    memset(name, 'x', sizeof name - 1);
    name[sizeof name - 1] = 0;
    d.isa = name;
    refuse_plan(d, RP_E_ARG, "isa", "xxx");

    /* a description is copied: the caller's may go */
    rp_plan *plan;
    d = base;
    strcpy(name, "generic");
    d.isa = name;
    good(rp_plan_create(&plan, &d));
    memset(name, 'y', 20);
    memset(&d, 0xff, sizeof d);
    assert_string_equal(rp_plan_isa(plan), "generic");
    rp_plan_destroy(plan);
}

static void refuse_term(rp_term t, rp_status want, const char *field, const char *value)
{
    rp_term two[2] = {rp_term_init(RP_TERM_LOG), t};
    rp_desc d = rp_desc_init(1, 2, 3, 4, 6);
    int32_t ndim = 7;
    int64_t shape[RP_MAX_AXES];
    char indexed[64];
    d.terms = two;
    d.n_terms = 2;
    snprintf(indexed, sizeof indexed, "terms[1]");
    refuse_plan(d, want, field, value);
    assert_non_null(strstr(rp_last_error(), indexed));
    said(rp_term_shape(&d, 1, 0, &ndim, shape), want, field, value);
    assert_int_equal(ndim, 0);
}

static void terms(void **state)
{
    rp_term t;
    (void)state;
    static const int kinds[] = {-1, 0, RP_TERM_COUNT, 1 << 30};
    for (size_t n = 0; n < sizeof kinds / sizeof *kinds; n++)
        refuse_term(rp_term_init((rp_term_kind)kinds[n]), RP_E_ARG, "kind", NULL);
    static const rp_term_kind clipped[] = {RP_TERM_TABLE, RP_TERM_RELKEY, RP_TERM_RELVAL};
    static const int64_t ends[] = {-1, INT64_MIN, INT64_MAX, ((int64_t)1 << 40) + 1};
    for (int k = 0; k < 3; k++)
        for (int n = 0; n < 4; n++) {
            t = rp_term_init(clipped[k]);
            t.left = ends[n];
            refuse_term(t, RP_E_RANGE, "left", NULL);
            t.left = 1;
            t.right = ends[n];
            refuse_term(t, RP_E_RANGE, "right", NULL);
        }
    static const struct {
        int64_t buckets, max_distance;
        int32_t bidirectional;
        rp_status status;
        const char *field;
    } buckets[] = {
        {-2, 128, 1, RP_E_RANGE, "buckets"},
        {0, 128, 1, RP_E_RANGE, "buckets"},
        {1, 128, 0, RP_E_RANGE, "buckets"},
        {2, 128, 1, RP_E_RANGE, "buckets"},
        {33, 128, 1, RP_E_RANGE, "buckets"},
        {INT64_MAX, 128, 0, RP_E_RANGE, "buckets"},
        {((int64_t)1 << 30) + 2, INT32_MAX, 1, RP_E_RANGE, "buckets"},
        {32, 0, 1, RP_E_RANGE, "max_distance"},
        {32, -1, 1, RP_E_RANGE, "max_distance"},
        {32, 8, 1, RP_E_RANGE, "max_distance"},
        {32, 16, 0, RP_E_RANGE, "max_distance"},
        {32, INT64_MAX, 1, RP_E_RANGE, "max_distance"},
        {32, INT64_MIN, 1, RP_E_RANGE, "max_distance"},
        {32, 128, 2, RP_E_RANGE, "bidirectional"},
        {32, 128, -1, RP_E_RANGE, "bidirectional"},
    };
    for (size_t n = 0; n < sizeof buckets / sizeof *buckets; n++)
        for (int k = 0; k < 2; k++) {
            t = rp_term_init(k ? RP_TERM_BUCKET : RP_TERM_T5);
            t.buckets = buckets[n].buckets;
            t.max_distance = buckets[n].max_distance;
            t.bidirectional = buckets[n].bidirectional;
            refuse_term(t, buckets[n].status, buckets[n].field, NULL);
            assert_int_equal(rp_bucket(0, t.buckets, t.max_distance, t.bidirectional, RP_STRATEGY_LOG), -1);
            assert_non_null(strstr(rp_last_error(), buckets[n].field));
        }
    static const int strategies[] = {-1, 4, 1 << 30};
    for (int n = 0; n < 3; n++) {
        t = rp_term_init(RP_TERM_BUCKET);
        t.strategy = (rp_strategy)strategies[n];
        refuse_term(t, RP_E_ARG, "strategy", NULL);
        assert_int_equal(rp_bucket(0, 32, 128, 1, t.strategy), -1);
        t.kind = RP_TERM_T5; /* which does not read it */
        rp_desc d = rp_desc_init(1, 1, 1, 1, 1);
        rp_plan *plan;
        d.terms = &t;
        d.n_terms = 1;
        good(rp_plan_create(&plan, &d));
        rp_plan_destroy(plan);
    }
    /* the edges of what is allowed */
    assert_int_equal(rp_bucket(INT64_MIN, 4, 2, 1, RP_STRATEGY_LOG), 1);
    assert_int_equal(rp_bucket(INT64_MAX, 4, 2, 1, RP_STRATEGY_LOG), 3);
    assert_int_equal(rp_bucket(INT64_MAX, 2, 2, 0, RP_STRATEGY_UNIFORM), 0);
    for (int s = 0; s < 4; s++) {
        const int64_t most = (int64_t)1 << 32, n = (int64_t)1 << 30;
        assert_int_equal(rp_bucket(INT64_MIN, n, most, 0, (rp_strategy)s), n - 1);
        assert_int_equal(rp_bucket(-most, n, most, 0, (rp_strategy)s), n - 1);
        assert_true(rp_bucket(1 - most, n, most, 0, (rp_strategy)s) >= n - 8);
        assert_true(rp_bucket(1 - most, n, most, 0, (rp_strategy)s) < n);
    }
    /* the formulas of rp_strategy, both directions, where no rounding can matter */
    for (int s = 0; s < 4; s++)
        for (int64_t delta = -300; delta <= 300; delta++) {
            const int64_t n = 8, E = 4, M = 100, d = delta < 0 ? -delta : delta;
            const double x = (double)(d - E), rest = (double)(n - E), span = (double)(M - E);
            double want = (double)d;
            if (s == RP_STRATEGY_UNIFORM)
                want = (double)(d * n / M);
            else if (d >= E)
                want = (double)E + (s == RP_STRATEGY_LINEAR ? x * rest / span
                                    : s == RP_STRATEGY_QUADRATIC
                                        ? rest * sqrt(x / span)
                                        : log((double)d / (double)E) / log((double)M / (double)E) * rest);
            const int64_t low = (int64_t)fmin(want - 1e-6, (double)n - 1),
                          high = (int64_t)fmin(want + 1e-6, (double)n - 1);
            const int64_t one = rp_bucket(delta, n, M, 0, (rp_strategy)s),
                          two = rp_bucket(delta, 2 * n, M, 1, (rp_strategy)s);
            assert_true(delta > 0 ? one == 0 : one == low || one == high);
            assert_true(two - (delta > 0 ? n : 0) == low || two - (delta > 0 ? n : 0) == high);
        }
    static const double bad[] = {NAN, INFINITY, -INFINITY};
    for (int n = 0; n < 3; n++) {
        t = rp_term_init(RP_TERM_LOG);
        t.lambda = bad[n];
        refuse_term(t, RP_E_RANGE, "lambda", NULL);
        t = rp_term_init(RP_TERM_LINEAR);
        t.rate_left = bad[n];
        refuse_term(t, RP_E_RANGE, "rate_left", NULL);
        t = rp_term_init(RP_TERM_LINEAR);
        t.rate_right = bad[n];
        refuse_term(t, RP_E_RANGE, "rate_right", NULL);
        t = rp_term_init(RP_TERM_ROPE);
        t.base = bad[n];
        refuse_term(t, RP_E_RANGE, "base", NULL);
    }
    static const double bases[] = {0.0, -10000.0};
    for (int n = 0; n < 2; n++) {
        t = rp_term_init(RP_TERM_ROPE);
        t.base = bases[n];
        refuse_term(t, RP_E_RANGE, "base", NULL);
    }
    static const int64_t dims[] = {1, 3, 5, 7, 8, -2, INT64_MIN, INT64_MAX}; /* q and k are 6 wide */
    for (int n = 0; n < 8; n++) {
        t = rp_term_init(RP_TERM_ROPE);
        t.dim = dims[n];
        refuse_term(t, RP_E_RANGE, "dim", NULL);
    }
    static const int layouts[] = {-1, 2, 77};
    for (int n = 0; n < 3; n++) {
        t = rp_term_init(RP_TERM_ROPE);
        t.layout = (rp_layout)layouts[n];
        refuse_term(t, RP_E_ARG, "layout", NULL);
    }
    /* dim 0 is the width of q and k, which must be even */
    rp_desc d = rp_desc_init(1, 1, 2, 2, 7);
    t = rp_term_init(RP_TERM_ROPE);
    d.terms = &t;
    d.n_terms = 1;
    refuse_plan(d, RP_E_RANGE, "dim", "7");
    /* one of a form */
    static const rp_term_kind once[] = {RP_TERM_ROPE, RP_TERM_RELKEY, RP_TERM_RELVAL};
    for (int n = 0; n < 3; n++) {
        rp_term two[3] = {rp_term_init(once[n]), rp_term_init(RP_TERM_LOG), rp_term_init(once[n])};
        d = rp_desc_init(1, 1, 2, 2, 6);
        d.terms = two;
        d.n_terms = 3;
        refuse_plan(d, RP_E_UNSUPPORTED, "terms[2]", rp_term_name(once[n]));
    }
}

/* The other terms, with a parameter out of its bounds; q and k are 6 wide, 3 queries, 4 keys. */
static void more_terms(void **state)
{
    static const struct {
        const char *text;
        rp_status status;
        const char *field;
    } cases[] = {
        {"sandwich,dim=3", RP_E_RANGE, "dim"},
        {"sandwich,dim=0", RP_E_RANGE, "dim"},
        {"sandwich,dim=4,base=0", RP_E_RANGE, "base"},
        {"fire,c=1,L=-1", RP_E_RANGE, "L"},
        {"fire,c=1,L=1,eps=-1", RP_E_RANGE, "eps"},
        {"fire,c=0,L=1,eps=0", RP_E_RANGE, "eps"},
        {"fire,c=1,L=1", RP_E_RANGE, "width"}, /* no array tells it here */
        {"fire,c=1,L=1,width=4,width2=-1", RP_E_RANGE, "width2"},
        {"swin,grid=0x4", RP_E_RANGE, "grid"},
        {"swin,grid=1x-3", RP_E_RANGE, "grid"},
        {"swin,grid=1x3,extra=2", RP_E_RANGE, "extra"},
        {"swin,grid=1x3", RP_E_SHAPE, "grid"}, /* three queries, four keys */
        {"axial,grid=2x2", RP_E_SHAPE, "grid"},
        {"axialkey,grid=99999999x99999999", RP_E_RANGE, "grid"},
        {"real,max_distance=-1", RP_E_RANGE, "max_distance"},
        {"real,max_distance=9999999999999", RP_E_RANGE, "max_distance"},
        {"band,width=0,extent=3", RP_E_RANGE, "width"},
        {"band,width=3,extent=0", RP_E_RANGE, "extent"},
        {"deberta", RP_E_RANGE, "max_position"},
        {"deberta,span=-2", RP_E_RANGE, "span"},
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
    rp_term t;
    char names[RP_MAX_ARRAYS][RP_NAME_MAX];
    (void)state;
    for (size_t n = 0; n < sizeof cases / sizeof *cases; n++) {
        good(rp_term_parse(cases[n].text, &t, names));
        refuse_term(t, cases[n].status, cases[n].field, NULL);
    }
    /* one of relkey, xl, axialkey, deberta */
    static const char *const family[] = {"relkey,left=1,right=1", "xl", "deberta,span=3"};
    for (int x = 0; x < 3; x++)
        for (int y = 0; y < 3; y++) {
            rp_term two[2];
            rp_desc d = rp_desc_init(1, 2, 3, 4, 6);
            good(rp_term_parse(family[x], &two[0], names));
            good(rp_term_parse(family[y], &two[1], names));
            d.terms = two;
            d.n_terms = 2;
            refuse_plan(d, RP_E_UNSUPPORTED, "terms[1]", "family");
        }
}

static void masks(void **state)
{
    static const int kinds[] = {-1, 0, RP_MASK_COUNT, 1 << 30};
    rp_desc d = rp_desc_init(1, 2, 3, 4, 6);
    rp_mask m[2] = {{RP_MASK_CAUSAL, 0, 0}, {RP_MASK_CAUSAL, 0, 0}};
    (void)state;
    d.masks = m;
    d.n_masks = 2;
    for (int n = 0; n < 4; n++) {
        m[1].kind = (rp_mask_kind)kinds[n];
        refuse_plan(d, RP_E_ARG, "masks[1]", NULL);
    }
    m[1] = (rp_mask){RP_MASK_WINDOW, -2, 3};
    refuse_plan(d, RP_E_RANGE, "masks[1]", "-2");
    m[1] = (rp_mask){RP_MASK_WINDOW, 3, INT64_MIN};
    refuse_plan(d, RP_E_RANGE, "masks[1]", NULL);
    m[1] = (rp_mask){RP_MASK_SEGMENTS, 0, 0};
    refuse_plan(d, RP_E_SHAPE, "masks[1]", "3");
    m[1] = (rp_mask){RP_MASK_WINDOW, INT64_MAX, INT64_MAX}; /* far windows are windows */
    rp_plan *plan;
    good(rp_plan_create(&plan, &d));
    rp_plan_destroy(plan);
}

/* ------------------------------------------------------------------------------------------------ arrays of a call */

enum { MOST_ARRAYS = 16 };

/* Every output of a problem, the bytes it had before, and whether they are all still there. */
static void all_outputs(problem *p, rp_array **outputs)
{
    outputs[0] = &p->t.out;
    outputs[1] = &p->t.lse;
    outputs[2] = &p->t.weights;
    outputs[3] = &p->t.profile;
    outputs[4] = &p->t.key_mass;
    outputs[5] = &p->t.entropy;
}

static const char *const problem_text = "fwd:f32:b2h4g2q5k7d8v6:t5,buckets=8+dense+relkey,left=2,right=1+relval,left=1,"
                                        "right=2+alibi+table,left=3,right=3:key_mask+mask+lengths";

/* One slip in a call that is otherwise right. */
typedef struct slip {
    problem p;
    unsigned char *memory[6]; /* of the outputs */
    size_t bytes[6];
} slip;

static void slip_begin(slip *s)
{
    rp_array *outputs[6];
    pose(&s->p, 1, "%s", problem_text);
    also(&s->p, WITH_ALL, RP_F32);
    all_outputs(&s->p, outputs);
    for (int n = 0; n < 6; n++) {
        s->memory[n] = outputs[n]->data;
        s->bytes[n] = (size_t)problem_size(outputs[n]) * 4;
        memset(s->memory[n], 0xa5, s->bytes[n]);
    }
}

static void slip_end(slip *s, rp_status want, const char *field, const char *value)
{
    static const char *const first[] = {"reference", NULL};
    for (int round = 0; round < 2; round++)
        for (int n = 0; round ? rp_isa_name(n) != NULL : first[n] != NULL; n++) {
            const char *isa = round ? rp_isa_name(n) : first[n];
            if (rp_isa_found(isa) != 1)
                continue;
            said(attempt(&s->p, isa, NULL), want, field, value);
            for (int x = 0; x < 6; x++)
                for (size_t c = 0; c < s->bytes[x]; c++)
                    if (s->memory[x][c] != 0xa5)
                        fail_msg("%s (%s): output %d was written", rp_last_error(), isa, x);
        }
    problem_free(&s->p);
}

#define SLIP(change, status, field, value)                                                                             \
    do {                                                                                                               \
        slip s;                                                                                                        \
        slip_begin(&s);                                                                                                \
        rp_tensors *t = &s.p.t;                                                                                        \
        (void)t;                                                                                                       \
        change;                                                                                                        \
        slip_end(&s, status, field, value);                                                                            \
    } while (0)

static void arrays(void **state)
{
    (void)state;
    SLIP(t->size--, RP_E_ARG, "size", NULL);
    SLIP(t->size = 0, RP_E_ARG, "size", NULL);
    SLIP(t->q.data = NULL, RP_E_ARG, "q is absent", "NULL");
    SLIP(t->k.data = NULL, RP_E_ARG, "k is absent", "NULL");
    SLIP(t->v.data = NULL, RP_E_ARG, "v is absent", "NULL");
    SLIP(t->term[0][0].data = NULL, RP_E_ARG, "term[0].table", "absent");
    SLIP(t->term[2][0].data = NULL, RP_E_ARG, "term[2].table", "relkey");
    SLIP(t->mask[1].data = NULL, RP_E_ARG, "mask[1]", "absent");
    SLIP((t->out.data = t->lse.data = t->weights.data = t->profile.data = t->key_mass.data = t->entropy.data = NULL),
         RP_E_ARG, "output", NULL);
    /* one array after the other: type, axes, shape, strides, address */
    static const struct {
        const char *name;
        size_t offset;
        int last_contiguous;
    } all[] = {
        {"q:", offsetof(rp_tensors, q), 1},
        {"k:", offsetof(rp_tensors, k), 1},
        {"v:", offsetof(rp_tensors, v), 1},
        {"out:", offsetof(rp_tensors, out), 1},
        {"lse:", offsetof(rp_tensors, lse), 0},
        {"weights:", offsetof(rp_tensors, weights), 0},
        {"profile:", offsetof(rp_tensors, profile), 0},
        {"key_mass:", offsetof(rp_tensors, key_mass), 0},
        {"entropy:", offsetof(rp_tensors, entropy), 0},
    };
    for (size_t n = 0; n < sizeof all / sizeof *all; n++) {
        const char *name = all[n].name;
        const bool output = n >= 3;
#define ARRAY ((rp_array *)(void *)((char *)t + all[n].offset))
        static const int types[] = {RP_BOOL, RP_I32, RP_I64, 13, -1, 1 << 30};
        for (size_t x = 0; x < sizeof types / sizeof *types; x++)
            SLIP(ARRAY->dtype = (rp_dtype)types[x], RP_E_ARG, name, "dtype");
        static const int halves[] = {RP_F16, RP_BF16};
        for (int x = 0; x < 2 && all[n].last_contiguous; x++)
            SLIP(ARRAY->dtype = (rp_dtype)halves[x], RP_E_ARG, name, "dtype");
        if (all[n].last_contiguous) /* q, k, v and out: desc's own type only */
            SLIP((ARRAY->dtype = RP_F64, ARRAY->data = (void *)((uintptr_t)ARRAY->data & ~(uintptr_t)7)), RP_E_ARG,
                 name, "f64");
        static const int axes[] = {-1, 0, 1, 2, 5, 1 << 30, INT32_MIN};
        for (size_t x = 0; x < sizeof axes / sizeof *axes; x++)
            SLIP(ARRAY->ndim = axes[x], RP_E_SHAPE, name, NULL);
        for (int x = 0; x < 3; x++) {
            SLIP(ARRAY->shape[x]++, RP_E_SHAPE, name, "shape");
            SLIP(ARRAY->shape[x]--, RP_E_SHAPE, name, "shape");
            SLIP(ARRAY->shape[x] = 1, RP_E_SHAPE, name, "shape"); /* no broadcasting of these */
            SLIP(ARRAY->shape[x] = -1, RP_E_SHAPE, name, "shape");
            SLIP(ARRAY->shape[x] = INT64_MAX, RP_E_SHAPE, name, "shape");
        }
        SLIP(ARRAY->data = (char *)ARRAY->data + 1, RP_E_ARG, name, "address");
        SLIP(ARRAY->data = (char *)ARRAY->data + 2, RP_E_ARG, name, "address");
        static const int64_t steps[] = {INT64_MIN, INT64_MAX, INT64_MAX / 4, -INT64_MAX};
        for (int x = 0; x < 4; x++)
            SLIP(ARRAY->stride[1] = steps[x], RP_E_OVERFLOW, name, "stride");
        SLIP((ARRAY->stride[0] = INT64_MAX / 4 - 100, ARRAY->stride[1] = INT64_MAX / 16), RP_E_OVERFLOW, name,
             "stride");
        if (all[n].last_contiguous) {
            static const int64_t last[] = {0, 2, -1};
            for (int x = 0; x < 3; x++)
                SLIP(ARRAY->stride[3] = last[x], RP_E_STRIDE, name, "last axis");
        }
        if (output) {
            const int end = n == 3 || n == 5 ? 3 : 2;
            SLIP(ARRAY->stride[0] = 0, RP_E_STRIDE, name, "stride");
            SLIP(ARRAY->stride[1] = 0, RP_E_STRIDE, name, "stride");
            SLIP(ARRAY->stride[0] = ARRAY->stride[1], RP_E_STRIDE, name, "stride");
            SLIP(ARRAY->stride[0] = -ARRAY->stride[1], RP_E_STRIDE, name, "stride");
            SLIP(ARRAY->stride[end - 1] = ARRAY->stride[end - 1] / ARRAY->shape[end] * (ARRAY->shape[end] - 1),
                 RP_E_STRIDE, name, "stride"); /* rows share one element */
            SLIP(ARRAY->data = t->q.data, RP_E_OVERLAP, "q", NULL);
            SLIP(ARRAY->data = (char *)t->k.data + 4, RP_E_OVERLAP, "k", NULL);
            SLIP(ARRAY->data = (char *)t->term[1][0].data, RP_E_OVERLAP, "term", NULL);
            SLIP(t->mask[1].data = (char *)ARRAY->data + 3, RP_E_OVERLAP, "mask", NULL);
            if (n > 3)
                SLIP(ARRAY->data = (char *)t->out.data + 2 * 4 * 5 * 6 * 4 - 4, RP_E_OVERLAP, "out", NULL);
        }
#undef ARRAY
    }
    /* an input that ends in the first element of out; read backwards too */
    SLIP((t->q.data = (float *)t->out.data - (problem_size(&t->q) - 1)), RP_E_OVERLAP, "out", "q");
    SLIP((t->k.data = (float *)t->out.data + problem_size(&t->out) + 40, t->k.stride[0] = -41), RP_E_OVERLAP, "out",
         "k");
}

static void arrays_of_terms(void **state)
{
    (void)state;
    /* 0 t5 table [8, 4]; 1 dense; 2 relkey [4, 8]; 3 relval [4, 6]; 4 alibi [4]; 5 table [4, 7] */
    static const int floats_only[] = {RP_BOOL, RP_I64, 13, -1};
    for (int n = 0; n < 6; n++) {
        if (n == 4)
            continue;
        for (size_t x = 0; x < sizeof floats_only / sizeof *floats_only; x++)
            SLIP(t->term[n][0].dtype = (rp_dtype)floats_only[x], RP_E_ARG, "term[", "dtype");
        SLIP(t->term[n][0].ndim = 5, RP_E_SHAPE, "term[", NULL);
        SLIP(t->term[n][0].ndim = -1, RP_E_SHAPE, "term[", NULL);
        SLIP(t->term[n][0].shape[t->term[n][0].ndim - 1]++, RP_E_SHAPE, "term[", "shape");
        SLIP(t->term[n][0].shape[0]++, RP_E_SHAPE, "term[", "shape");
        SLIP(t->term[n][0].data = (char *)t->term[n][0].data + 1, RP_E_ARG, "term[", "address");
        SLIP(t->term[n][0].stride[0] = INT64_MIN, RP_E_OVERFLOW, "term[", "stride");
    }
    SLIP(t->term[0][0].shape[0] = 1, RP_E_SHAPE, "term[0].table", "(1, 4)"); /* buckets do not broadcast */
    SLIP(t->term[0][0].ndim = 1, RP_E_SHAPE, "term[0].table", NULL);
    SLIP(t->term[5][0].shape[1] = 1, RP_E_SHAPE, "term[5].table", NULL);
    SLIP(t->term[2][0].shape[1] = 1, RP_E_SHAPE, "term[2].table", NULL);
    SLIP(t->term[3][0].ndim = 1, RP_E_SHAPE, "term[3].table", NULL);
    /* slopes given, and wrong */
    static float slopes[8];
    static const int64_t three[1] = {3}, two[2] = {4, 4};
    SLIP(t->term[4][0] = rp_array_of(slopes, RP_F32, 1, three), RP_E_SHAPE, "term[4].slopes", "(3)");
    SLIP(t->term[4][0] = rp_array_of(slopes, RP_F32, 2, two), RP_E_SHAPE, "term[4].slopes", "(4, 4)");

    /* masks: 0 key_mask [2, 7]; 1 mask [2, 4, 5, 7]; 2 lengths [2] */
    for (int n = 0; n < 3; n++) {
        static const int integers_only[] = {RP_F32, RP_F64, RP_F16, RP_BF16, 13, -1};
        for (size_t x = 0; x < sizeof integers_only / sizeof *integers_only; x++)
            SLIP(t->mask[n].dtype = (rp_dtype)integers_only[x], RP_E_ARG, "mask[", "dtype");
        SLIP(t->mask[n].ndim = 5, RP_E_SHAPE, "mask[", NULL);
        SLIP(t->mask[n].shape[0] = 3, RP_E_SHAPE, "mask[", "shape");
        SLIP(t->mask[n].shape[t->mask[n].ndim - 1] = 0, RP_E_SHAPE, "mask[", "shape");
        SLIP((t->mask[n].dtype = RP_U16, t->mask[n].data = (char *)t->mask[n].data + 1), RP_E_ARG, "mask[", "address");
        SLIP(t->mask[n].stride[0] = INT64_MAX, RP_E_OVERFLOW, "mask[", "stride");
    }
}

/* Forms that broadcast give the bits of the full form. */
static void broadcasts(void **state)
{
    problem p;
    (void)state;
    EACH_ISA(isa)
    {
        pose(&p, 3, "%s", problem_text);
        /* make the full arrays constant along the axes that will be left out, then leave them out */
        float *dense = p.t.term[1][0].data, *relkey = p.t.term[2][0].data;
        uint8_t *mask = p.t.mask[1].data, *keys = p.t.mask[0].data;
        int64_t *lengths = p.t.mask[2].data;
        for (int64_t x = 0; x < 2 * 4 * 5 * 7; x++) {
            dense[x] = dense[x % 7];
            mask[x] = mask[x / 7 % 5];
        }
        for (int64_t x = 0; x < 14; x++)
            keys[x] = keys[x % 7];
        lengths[1] = lengths[0] = 6;
        attend(&p, isa);
        const float *want = copy_of(&p.t.out);
        static const int64_t seven[1] = {7}, wide[4] = {1, 1, 1, 7}, column[3] = {1, 5, 1}, two[2] = {5, 1},
                             one[1] = {1};
        static const int64_t with_heads[3] = {1, 4, 8};
        uint8_t few[5];
        int32_t six = 6;
        for (int n = 0; n < 5; n++)
            few[n] = mask[n];
        for (int form = 0; form < 2; form++) {
            p.t.term[1][0] = form ? rp_array_of(dense, RP_F32, 4, wide) : rp_array_of(dense, RP_F32, 1, seven);
            p.t.mask[1] = form ? rp_array_of(few, RP_BOOL, 3, column) : rp_array_of(few, RP_I8, 2, two);
            p.t.mask[0] = rp_array_of(keys, RP_U8, 1, seven);
            p.t.mask[2] = rp_array_of(&six, RP_I32, form ? 1 : 0, one); /* no axes at all is one length for all */
            p.t.term[2][0] = form ? rp_array_of(relkey, RP_F32, 3, with_heads) : p.t.term[2][0];
            attend(&p, isa);
            same_bits(&p, isa, "broadcast forms", want, p.t.out.data, (size_t)problem_size(&p.t.out) * 4);
        }
        free((void *)(uintptr_t)want);
        problem_free(&p);
    }
}

/* Every integer type is a mask, and any non-zero value is true. */
static void mask_types(void **state)
{
    problem p;
    (void)state;
    EACH_ISA(isa)
    {
        pose(&p, 4, "fwd:f32:b2h2q9k11d4::key_mask+lengths");
        uint8_t *keys = copy_of(&p.t.mask[0]);
        int64_t *lengths = copy_of(&p.t.mask[1]);
        attend(&p, isa);
        const float *want = copy_of(&p.t.out);
        for (int type = RP_BOOL; type <= RP_I64; type++) {
            uint64_t room[22] = {0}, lens[2] = {0};
            const size_t size = rp_dtype_size((rp_dtype)type);
            for (int n = 0; n < 22; n++)
                if (keys[n]) /* the highest byte alone: truth is not the lowest bit */
                    ((uint8_t *)room)[(size_t)n * size + size - 1] = n % 2 ? 0x80 : 2;
            for (int n = 0; n < 2; n++)
                memcpy((char *)lens + (size_t)n * size, &lengths[n], size);
            p.t.mask[0].data = room;
            p.t.mask[1].data = lens;
            p.t.mask[0].dtype = p.t.mask[1].dtype = (rp_dtype)type;
            attend(&p, isa);
            same_bits(&p, isa, rp_dtype_name((rp_dtype)type), want, p.t.out.data, (size_t)problem_size(&p.t.out) * 4);
        }
        /* lengths past either end */
        const int64_t ends[2] = {INT64_MIN, INT64_MAX};
        const uint64_t huge[2] = {UINT64_MAX, 0};
        memset(keys, 1, 22);
        p.t.mask[0].data = keys;
        p.t.mask[0].dtype = RP_U8;
        p.t.mask[1].data = (void *)(uintptr_t)ends;
        p.t.mask[1].dtype = RP_I64;
        attend(&p, isa);
        for (int64_t x = 0; x < 2 * 2 * 9 * 4; x++)
            assert_int_equal(at(&p.t.out, x) != 0, x >= 2 * 9 * 4);
        p.t.mask[1].data = (void *)(uintptr_t)huge;
        p.t.mask[1].dtype = RP_U64;
        attend(&p, isa);
        for (int64_t x = 0; x < 2 * 2 * 9 * 4; x++)
            assert_int_equal(at(&p.t.out, x) != 0, x < 2 * 9 * 4);
        free(keys);
        free(lengths);
        free((void *)(uintptr_t)want);
        problem_free(&p);
    }
}

/* work that is not aligned, and sizes of work that do not fit. */
static void work(void **state)
{
    problem p;
    (void)state;
    char *room = aligned_alloc(64, 1 << 22);
    EACH_ISA(isa)
    {
        pose(&p, 5, "fwd:f32:b1h1q4k4d4");
        memset(p.t.out.data, 0xa5, 64);
        said(attempt(&p, isa, room + 4), RP_E_ARG, "work", "64");
        said(attempt(&p, isa, room + 63), RP_E_ARG, "work", "64");
        assert_int_equal(((unsigned char *)p.t.out.data)[0], 0xa5);
        problem_free(&p);
    }
    free(room);
    /* strides of 0 let small memory stand for a table of 2^41 vectors; packed by head they overflow */
    static float zeros[32768 * 64], out[32768 * 64];
    rp_term term = rp_term_init(RP_TERM_RELKEY);
    rp_desc d = rp_desc_init(1, 32768, 1, 1, 64);
    const int64_t shape[4] = {1, 32768, 1, 64}, rows[2] = {(int64_t)1 << 41, 64};
    rp_plan *plan;
    rp_tensors t = rp_tensors_init();
    t.q = t.k = t.v = rp_array_of(zeros, RP_F32, 4, shape);
    t.out = rp_array_of(out, RP_F32, 4, shape);
    t.term[0][0] = rp_array_of(zeros, RP_F32, 2, rows);
    t.term[0][0].stride[0] = 0;
    term.right = rows[0] / 2;
    term.left = term.right - 1;
    d.terms = &term;
    d.n_terms = 1;
    EACH_ISA(isa)
    {
        d.isa = isa;
        rp_status status = rp_plan_create(&plan, &d);
        if (status == RP_E_OVERFLOW)
            continue; /* refused at once: as good */
        good(status);
        const size_t size = rp_plan_work_size(plan, NULL);
        if (size != 0 && size < (size_t)1 << 40)
            fail_msg("2^41 vectors of 64 for 32768 heads take %zu bytes of work on %s", size, isa);
        status =
            rp_attend(plan, &t, NULL); /* not reached with a size that wrapped around: it would write past the end */
        if (status != RP_E_OVERFLOW && status != RP_E_NOMEM)
            fail_msg("%s (%s) for work that does not fit", rp_status_name(status), rp_last_error());
        assert_true(out[0] == 0.0f);
        rp_plan_destroy(plan);
    }
    /* a long context and narrow heads: what is rounded up to vectors does not fit */
    d = rp_desc_init(1, 1, 1, (int64_t)1 << 58, 2);
    EACH_ISA(isa)
    {
        d.isa = isa;
        if (rp_plan_create(&plan, &d) != RP_OK)
            continue;
        const size_t size = rp_plan_work_size(plan, NULL);
        if (size != 0 && size < (size_t)1 << 58)
            fail_msg("2^58 keys take %zu bytes of work on %s", size, isa);
        rp_plan_destroy(plan);
    }
}

/* An array of ones that stands for any shape: every stride is 0, but for that of a last axis of two. */
static rp_array spread_out(int32_t ndim, const int64_t *shape)
{
    static const float ones[2] = {1, 1};
    rp_array a = rp_array_of(ones, RP_F32, ndim, shape);
    memset(a.stride, 0, sizeof a.stride);
    a.stride[ndim - 1] = shape[ndim - 1] == 2;
    return a;
}

static void expect_too_large(rp_status status, const char *call, const char *isa)
{
    if (status != RP_E_OVERFLOW && status != RP_E_NOMEM)
        fail_msg("%s on %s: %s (%s) for memory that does not fit", call, isa, rp_status_name(status), rp_last_error());
}

/* Every call that needs more memory than 63 bits count, for a problem whose arrays are few bytes seen through strides of 0:
 * refused, not given a block that is too small. wanted: index of an array of terms[0] with a gradient, of `elements` floats. */
static void expect_each_too_large(const rp_desc *desc, rp_tensors *t, int wanted, int64_t elements, const char *isa)
{
    rp_desc d = *desc;
    rp_plan *plan;
    static double weights[1], bound[2];
    static float lse[1];
    const int64_t one[4] = {1, 1, 1, d.dim_k}, dout[4] = {d.batch, d.heads, d.len_q, d.dim_k};
    rp_row row = {.weights = weights};
    rp_grads g = rp_grads_init();
    d.isa = isa;
    good(rp_plan_create(&plan, &d));
    expect_too_large(rp_attend_row(plan, t, 0, 0, 0, &row), "rp_attend_row", isa);
    if (d.heads == 1) { /* outputs may not share memory, so heads that are many have none */
        t->lse = rp_array_of(lse, RP_F32, 3, one);
        expect_too_large(rp_attend(plan, t, NULL), "rp_attend", isa);
        t->lse.data = NULL;
        const rp_array b = rp_array_of(bound, RP_F64, 4, one);
        expect_too_large(rp_error_bound(plan, t, &b), "rp_error_bound", isa);
    }
    g.dout = spread_out(4, dout);
    float *gradient = calloc((size_t)elements, sizeof *gradient);
    double *gradient_bound = calloc((size_t)elements, sizeof *gradient_bound);
    if (wanted >= 0) {
        g.term[0][wanted] = rp_array_of(gradient, RP_F32, t->term[0][wanted].ndim, t->term[0][wanted].shape);
        expect_too_large(rp_backward(plan, t, &g, NULL), "rp_backward", isa);
        g.term[0][wanted] = rp_array_of(gradient_bound, RP_F64, t->term[0][wanted].ndim, t->term[0][wanted].shape);
        expect_too_large(rp_gradient_bound(plan, t, &g), "rp_gradient_bound", isa);
    } else {
        g.dq = rp_array_of(gradient, RP_F32, 4, one);
        expect_too_large(rp_backward(plan, t, &g, NULL), "rp_backward", isa);
        g.dq = rp_array_of(gradient_bound, RP_F64, 4, one);
        expect_too_large(rp_gradient_bound(plan, t, &g), "rp_gradient_bound", isa);
    }
    free(gradient);
    free(gradient_bound);
    rp_plan_destroy(plan);
}

static void too_large(void **state)
{
    (void)state;
    EACH_ISA(isa)
    {
        /* FIRE's lines for 2^50 heads do not fit, and RoPE's frequencies come after them */
        const int64_t width = 1 << 20, heads = (int64_t)1 << 50;
        const int64_t shape[4] = {1, heads, 1, 2};
        const int64_t w1[2] = {width, 1}, w2[2] = {width, width}, w3[2] = {1, width}, b1[1] = {width}, b3[1] = {1};
        rp_term terms[2] = {rp_term_init(RP_TERM_FIRE), rp_term_init(RP_TERM_ROPE)};
        terms[0].c = terms[0].L = 1;
        terms[0].width = terms[0].width2 = width;
        rp_desc d = rp_desc_init(1, heads, 1, 1, 2);
        d.terms = terms;
        d.n_terms = 2;
        rp_tensors t = rp_tensors_init();
        t.q = t.k = t.v = spread_out(4, shape);
        t.term[0][0] = spread_out(2, w1);
        t.term[0][1] = t.term[0][3] = spread_out(1, b1);
        t.term[0][2] = spread_out(2, w2);
        t.term[0][4] = spread_out(2, w3);
        t.term[0][5] = spread_out(1, b3);
        expect_each_too_large(&d, &t, 1, width, isa);

        /* prefix sums of 2^58 forget gates */
        const int64_t many = (int64_t)1 << 58, few[4] = {1, 1, 1, 2}, keys[4] = {1, 1, many, 2},
                      gates[3] = {1, 1, many};
        terms[0] = rp_term_init(RP_TERM_FORGET);
        d = rp_desc_init(1, 1, 1, many, 2);
        d.terms = terms;
        d.n_terms = 1;
        t = rp_tensors_init();
        t.q = spread_out(4, few);
        t.k = t.v = spread_out(4, keys);
        t.term[0][0] = spread_out(3, gates);
        t.lse.data = NULL;
        expect_each_too_large(&d, &t, -1, 2, isa);

        /* a row of the reference path, whose bytes would be 2^64 and a little */
        const int64_t len = (int64_t)(UINT64_MAX / 41) + 10, narrow[4] = {1, 1, 1, 1}, long_keys[4] = {1, 1, len, 1};
        d = rp_desc_init(1, 1, 1, len, 1);
        t = rp_tensors_init();
        t.q = spread_out(4, narrow);
        t.k = t.v = spread_out(4, long_keys);
        expect_each_too_large(&d, &t, -1, 1, isa);
    }
}

/* Only lse, or only summaries: v is not needed, and may be absent. In a child, for a worker that reads it dies. */
static void without_v(void **state)
{
    problem p;
    (void)state;
    EACH_ISA(isa)
    {
        pose(&p, 6, "fwd:f32:b2h2q7k9d4");
        also(&p, WITH_ALL, RP_F64);
        good(rp_pool_create(&p.t.pool, 1));
        fflush(NULL);
        const pid_t child = fork();
        assert_true(child >= 0);
        if (child == 0) {
            static const int ends[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT};
            for (int n = 0; n < 5; n++)
                signal(ends[n], SIG_DFL);
            if (attempt(&p, isa, NULL) != RP_OK)
                _exit(1);
            const double *lse = copy_of(&p.t.lse);
            p.t.out.data = p.t.v.data = NULL;
            for (int round = 0; round < 2; round++) {
                memset(p.t.lse.data, 0, 8 * 28);
                if (attempt(&p, isa, NULL) != RP_OK)
                    _exit(2);
                if (memcmp(lse, p.t.lse.data, 8 * 28) != 0)
                    _exit(3);
                p.t.weights.data = p.t.profile.data = p.t.key_mass.data = p.t.entropy.data = NULL;
            }
            _exit(0);
        }
        int how;
        assert_int_equal(waitpid(child, &how, 0), child);
        if (!WIFEXITED(how) || WEXITSTATUS(how) != 0)
            wrong(&p, isa, "lse without out and v: the child ended with %s %d", WIFEXITED(how) ? "status" : "signal",
                  WIFEXITED(how) ? WEXITSTATUS(how) : WTERMSIG(how));
        rp_pool_destroy(p.t.pool);
        problem_free(&p);
    }
}

/* Where memory runs out nothing has been written: a child with little memory left asks for weights. */
static void no_memory(void **state)
{
    (void)state;
    if (SANITIZED || EMULATED) {
        print_message("no_memory: a sanitizer needs its own memory, an emulator knows no limit: not run\n");
        return;
    }
    problem p;
    rp_pool *pool;
    good(rp_pool_create(&pool, 1));
    int refused = 0;
    EACH_ISA(isa)
    {
        pose(&p, 7, "fwd:f32:b1h1q2k2000000d4");
        also(&p, WITH_WEIGHTS | WITH_LSE, RP_F32);
        p.t.pool = pool;
        unsigned char *arrays[3] = {p.t.weights.data, p.t.lse.data, p.t.out.data};
        const size_t bytes[3] = {2 * 2000000 * 4, 2 * 4, 2 * 4 * 4};
        for (int n = 0; n < 3; n++)
            memset(arrays[n], 0xa5, bytes[n]);
        for (int mb = 8; mb < 120; mb += 16) {
            fflush(NULL);
            pid_t child = fork();
            assert_true(child >= 0);
            if (child == 0) {
                FILE *f = fopen("/proc/self/statm", "r");
                unsigned long pages = 0;
                if (!f || fscanf(f, "%lu", &pages) != 1)
                    _exit(9);
                fclose(f);
                const rlim_t most = (rlim_t)pages * (rlim_t)sysconf(_SC_PAGESIZE) + (rlim_t)mb * (1u << 20);
                struct rlimit limit = {most, most};
                setrlimit(RLIMIT_AS, &limit);
                const rp_status status = attempt(&p, isa, NULL);
                if (status == RP_OK)
                    _exit(0);
                for (int n = 0; n < 3; n++)
                    for (size_t c = 0; c < bytes[n]; c++)
                        if (arrays[n][c] != 0xa5)
                            _exit(2);
                _exit(status == RP_E_NOMEM && strstr(rp_last_error(), "bytes") ? 1 : 3);
            }
            int how;
            assert_int_equal(waitpid(child, &how, 0), child);
            if (!WIFEXITED(how) || WEXITSTATUS(how) > 1)
                wrong(&p, isa, "with %d MB left the child ended with %d (2: an output was written)", mb,
                      WIFEXITED(how) ? WEXITSTATUS(how) : -WTERMSIG(how));
            refused += WEXITSTATUS(how);
        }
        problem_free(&p);
    }
    print_message("no_memory: %d calls were refused\n", refused);
    assert_true(refused > 0);
    rp_pool_destroy(pool);
}

/* ------------------------------------------------------------------------------------------------ looking inside */

static void looking_inside(void **state)
{
    problem p;
    rp_plan *plan;
    rp_row row = {0};
    (void)state;
    pose(&p, 8, "fwd:f64:b2h2q3k4d2:dense+log:");
    good(rp_plan_create(&plan, &p.desc));
    static const int64_t outside[][3] = {{-1, 0, 0}, {2, 0, 0}, {0, -1, 0},        {0, 2, 0},
                                         {0, 0, -1}, {0, 0, 3}, {INT64_MIN, 0, 0}, {0, INT64_MAX, 0}};
    for (size_t n = 0; n < sizeof outside / sizeof *outside; n++)
        said(rp_attend_row(plan, &p.t, outside[n][0], outside[n][1], outside[n][2], &row), RP_E_RANGE, "row", NULL);
    said(rp_attend_row(plan, &p.t, 0, 0, 0, NULL), RP_E_ARG, "row", "NULL");
    double room[64], far[2] = {7, 7};
    row.out = far;
    rp_tensors t = p.t;
    t.v.data = NULL;
    said(rp_attend_row(plan, &t, 0, 0, 0, &row), RP_E_ARG, "v", "absent");
    assert_true(far[0] == 7 && far[1] == 7);
    row = (rp_row){.weights = room};
    good(rp_attend_row(plan, &t, 1, 1, 2, &row)); /* weights do not need v, nor out */
    t.k.data = NULL;
    said(rp_attend_row(plan, &t, 0, 0, 0, &row), RP_E_ARG, "k", "absent");

    const int64_t shape[3] = {2, 3, 4}, fewer[3] = {2, 3, 3}, bound[4] = {2, 2, 3, 2};
    memset(room, 0xa5, sizeof room);
    rp_array a = rp_array_of(room, RP_F64, 3, shape);
    said(rp_bias(plan, &p.t, -1, &a), RP_E_RANGE, "b", "-1");
    said(rp_bias(plan, &p.t, 2, &a), RP_E_RANGE, "b", "2");
    a = rp_array_of(room, RP_F64, 3, fewer);
    said(rp_bias(plan, &p.t, 0, &a), RP_E_SHAPE, "bias", "(2, 3, 3)");
    a = rp_array_of(room, RP_I64, 3, shape);
    said(rp_bias(plan, &p.t, 0, &a), RP_E_ARG, "bias", "i64");
    a = rp_array_of(room, RP_F64, 3, shape);
    a.stride[1] = 0;
    said(rp_bias(plan, &p.t, 0, &a), RP_E_STRIDE, "bias", "stride");
    a = rp_array_of(p.t.term[0][0].data, RP_F64, 3, shape);
    said(rp_bias(plan, &p.t, 0, &a), RP_E_OVERLAP, "lies over", NULL);
    a = rp_array_of(room, RP_F32, 4, bound);
    said(rp_error_bound(plan, &p.t, &a), RP_E_ARG, "bound", "f32");
    a = rp_array_of(room, RP_F64, 3, shape);
    said(rp_error_bound(plan, &p.t, &a), RP_E_SHAPE, "bound", NULL);
    said(rp_error_bound(plan, &p.t, NULL), RP_E_ARG, "bound", "NULL");
    a = rp_array_of(room, RP_F64, 4, bound);
    a.stride[0] = 0;
    said(rp_error_bound(plan, &p.t, &a), RP_E_STRIDE, "bound", "stride");
    a = rp_array_of(p.t.q.data, RP_F64, 4, bound);
    said(rp_error_bound(plan, &p.t, &a), RP_E_OVERLAP, "lies over", NULL);
    for (size_t c = 0; c < sizeof room; c++)
        if (c >= 4 * sizeof(double)) /* weights of a row went to the first four, and were overwritten */
            assert_int_equal(((unsigned char *)room)[c], 0xa5);
    /* an f32 result at an address of 4 bytes, for a description in f64, is as good as any */
    a = rp_array_of((float *)(void *)room + 1, RP_F32, 3, shape);
    good(rp_bias(plan, &p.t, 0, &a));
    rp_plan_destroy(plan);
    problem_free(&p);
}

/* ------------------------------------------------------------------------------------------------ text */

static void parse_bad(const char *text, rp_status want, const char *field, const char *value)
{
    rp_term t;
    char names[RP_MAX_ARRAYS][RP_NAME_MAX];
    said(rp_term_parse(text, &t, names), want, field, value);
}

static void texts(void **state)
{
    rp_term t;
    char names[RP_MAX_ARRAYS][RP_NAME_MAX];
    (void)state;
    good(rp_term_parse("t5,table=rel_bias,buckets=16", &t, names));
    assert_int_equal(t.kind, RP_TERM_T5);
    assert_int_equal(t.buckets, 16);
    assert_int_equal(t.max_distance, 128);
    assert_int_equal(t.bidirectional, 1);
    assert_string_equal(names[0], "rel_bias");
    assert_string_equal(names[1], "");
    good(rp_term_parse("bucket,strategy=quadratic,table=x=y,bidirectional=0,max_distance=+77", &t, names));
    assert_int_equal(t.strategy, RP_STRATEGY_QUADRATIC);
    assert_int_equal(t.bidirectional, 0);
    assert_int_equal(t.max_distance, 77);
    assert_string_equal(names[0], "x=y");
    good(rp_term_parse("linear,left=0.25,right=-1e-3", &t, names));
    assert_true(t.rate_left == 0.25 && t.rate_right == -1e-3);
    good(rp_term_parse("linear,left=.5,right=2.", &t, names));
    assert_true(t.rate_left == 0.5 && t.rate_right == 2.0);
    good(rp_term_parse("rope,layout=interleaved,base=5E5,dim=6", &t, names));
    assert_true(t.layout == RP_LAYOUT_INTERLEAVED && t.base == 5e5 && t.dim == 6);
    good(rp_term_parse("table,table=t,left=3,right=0", &t, names));
    assert_true(t.left == 3 && t.right == 0);
    good(rp_term_parse("log,lambda=0", &t, names));
    assert_true(t.lambda == 0);
    good(rp_term_parse("swin,table=t,grid=7x5,extra=1", &t, names));
    assert_true(t.grid_h == 7 && t.grid_w == 5 && t.extra == 1);
    good(rp_term_parse("real,max_distance=9,sign=1,q_position_mask=m,table=t", &t, names));
    assert_true(t.max_distance == 9 && t.sign == 1);
    assert_string_equal(names[3], "m");
    good(rp_term_parse("deberta,k_pos=a,q_pos=b,span=9,buckets=-1,max_position=3", &t, names));
    assert_true(t.span == 9 && t.buckets == -1 && t.max_position == 3);
    assert_string_equal(names[1], "b");
    good(rp_term_parse("rope,scaling=yarn,factor=8,original_max_position_embeddings=4096,truncate=0,positions=p", &t,
                       names));
    assert_true(t.scaling == RP_SCALING_YARN && t.factor == 8 && t.original_max_position_embeddings == 4096);
    assert_true(t.truncate == 0 && t.beta_fast == 32);
    assert_string_equal(names[0], "p");
    good(rp_term_parse("t5,k_positions=x,table=y", &t, names));
    assert_string_equal(names[2], "x");
    /* every name stands for its kind; some ask for more */
    static const struct {
        rp_term_kind kind;
        const char *keys;
    } needed[] = {
        {RP_TERM_TABLE, ",left=1,right=2"}, {RP_TERM_RELKEY, ",right=2,left=1"}, {RP_TERM_RELVAL, ",left=1,right=2"},
        {RP_TERM_SANDWICH, ",dim=4"},       {RP_TERM_FIRE, ",c=1,L=2"},          {RP_TERM_FIRE, ",L=2,c=1"},
        {RP_TERM_SWIN, ",grid=2x3"},        {RP_TERM_AXIAL, ",grid=2x3"},        {RP_TERM_REAL, ",max_distance=4"},
        {RP_TERM_AXIALKEY, ",grid=1x1"},
    };
    for (int k = 1; k < RP_TERM_COUNT; k++) {
        char text[200];
        const char *name = rp_term_name((rp_term_kind)k), *keys = "";
        for (size_t n = 0; n < sizeof needed / sizeof *needed; n++)
            keys = needed[n].kind == (rp_term_kind)k ? needed[n].keys : keys;
        snprintf(text, sizeof text, "%s%s", name, keys);
        good(rp_term_parse(text, &t, names));
        assert_int_equal(t.kind, k);
        if (*keys) {
            *strrchr(text, ',') = 0;
            parse_bad(text, RP_E_ARG, "missing", name);
        }
    }
    char longest[RP_NAME_MAX + 40];
    snprintf(longest, sizeof longest, "t5,table=%.*s", RP_NAME_MAX - 7, /* the whole part has 255 bytes */
             "nnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnn"
             "nnnnnnnnnnn"
             "nnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnn"
             "nnnnnnnnnnn"
             "nnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnn");
    good(rp_term_parse(longest, &t, names));
    assert_int_equal(strlen(names[0]), RP_NAME_MAX - 7);
    strcat(longest, "n");
    parse_bad(longest, RP_E_ARG, "longer than", "255");

    static const char *const bad[][3] = {
        {"", "term", NULL},
        {"t6", "t6", "did you mean \"t5\""},
        {"ropes", "ropes", "rope"},
        {"T5", "T5", NULL},
        {" t5", " t5", NULL},
        {"alibi,", "alibi", "key=value"},
        {"alibi,,slopes=x", "alibi", "key=value"},
        {"alibi,slopes", "slopes", "key=value"},
        {"alibi,slopes=", "slopes=", "key=value"},
        {"alibi,=x", "=x", "key=value"},
        {"alibi,slopes=x,slopes=x", "slopes", "twice"},
        {"t5,buckets=8,buckets=8", "buckets", "twice"},
        {"t5,bukets=8", "bukets", "did you mean \"buckets\""},
        {"t5,tabel=x", "tabel", "did you mean \"table\""},
        {"rope,bsae=5", "bsae", "did you mean \"base\""},
        {"linear,lef=1", "lef", "did you mean \"left\""},
        {"linear,rigt=1", "rigt", "did you mean \"right\""},
        {"t5,strategy=log", "strategy", NULL}, /* bucket reads it, t5 does not */
        {"log,left=1", "left", NULL},
        {"dense,table=x", "table", NULL},
        {"t5,buckets=8.5", "buckets", "8.5"},
        {"t5,buckets=0x10", "buckets", "0x10"},
        {"t5,buckets= 8", "buckets", " 8"},
        {"t5,buckets=8 ", "buckets", "8 "},
        {"t5,buckets=1e3", "buckets", "1e3"},
        {"t5,buckets=--8", "buckets", "--8"},
        {"t5,buckets=99999999999999999999", "buckets", "99999999999999999999"},
        {"t5,bidirectional=2", "bidirectional", "2"},
        {"t5,bidirectional=yes", "bidirectional", "yes"},
        {"log,lambda=nan", "lambda", "nan"},
        {"log,lambda=inf", "lambda", "inf"},
        {"log,lambda=1e999", "lambda", "1e999"},
        {"log,lambda=0x1p3", "lambda", "0x1p3"},
        {"log,lambda=.", "lambda", NULL},
        {"log,lambda=-", "lambda", NULL},
        {"log,lambda=1.5.2", "lambda", "1.5.2"},
        {"log,lambda= 1", "lambda", NULL},
        {"rope,layout=both", "layout", "half"},
        {"rope,layout=Half", "layout", "half"},
        {"bucket,strategy=cubic", "strategy", "quadratic"},
        {"table,table=x,left=3", "right", "missing"},
        {"relkey,right=3", "left", "missing"},
        {"swin,grid=7", "grid", "7x7"},
        {"swin,grid=7x", "grid", "7x"},
        {"swin,grid=x7", "grid", "x7"},
        {"swin,grid=7x7x7", "grid", "7x7x7"},
        {"axial,grid=2x2,extra=1", "extra", NULL}, /* swin alone has a class token */
        {"real,max_distance=3,sign=2", "sign", "1 or -1"},
        {"real,max_distance=3,sign=+1", "sign", "+1"},
        {"kerple,kind=exp", "kind", "power"},
        {"rope,scaling=ntk", "scaling", "yarn"},
        {"rope,truncate=2", "truncate", "2"},
        {"rope,q_position=x", "q_position", "did you mean \"q_positions\""},
        {"forget,log=x", "log", "did you mean \"logf\""},
        {"deberta,kpos=x", "kpos", "did you mean \"k_pos\""},
    };
    for (size_t n = 0; n < sizeof bad / sizeof *bad; n++)
        parse_bad(bad[n][0], RP_E_ARG, bad[n][1], bad[n][2]);
    /* a hundred digits are no number to trip over */
    char many[160];
    memset(many, '1', sizeof many);
    memcpy(many, "log,lambda=", 11);
    many[sizeof many - 1] = 0;
    parse_bad(many, RP_E_ARG, "lambda", NULL);
}

/* What rp_term_print writes, rp_term_parse reads: every kind, with a value of every parameter that is not its default. */
static void printed(void **state)
{
    char text[1024], again[1024], names[RP_MAX_ARRAYS][RP_NAME_MAX];
    rp_term t, read;
    (void)state;
    for (int k = 1; k < RP_TERM_COUNT; k++) {
        t = rp_term_init((rp_term_kind)k);
        for (int turn = 0; turn < 2; turn++) {
            good(rp_term_print(&t, text, sizeof text));
            good(rp_term_parse(text, &read, names));
            assert_memory_equal(&read, &t, sizeof t);
            good(rp_term_print(&read, again, sizeof again));
            assert_string_equal(again, text);
            t.left = 3, t.right = 4, t.buckets = 6, t.max_distance = -77, t.bidirectional = 0, t.dim = 12;
            t.lambda = 0.1 + 0.2, t.rate_left = -1e-300, t.base = 5e5, t.eps = 0x1p-40, t.sign = 1, t.grid_h = 5;
            t.scaling = RP_SCALING_YARN, t.layout = RP_LAYOUT_INTERLEAVED, t.factor = 1.0 / 3;
            t.strategy = RP_STRATEGY_LINEAR, t.kerple = RP_KERPLE_POWER, t.extra = 1, t.span = 7, t.width = 9;
            good(rp_term_print(&t, text, sizeof text)); /* what the kind does not read is not written */
            good(rp_term_parse(text, &t, names));
        }
    }
    t = rp_term_init(RP_TERM_T5);
    good(rp_term_print(&t, text, sizeof text));
    assert_string_equal(text, "t5,buckets=32,max_distance=128,bidirectional=1");
    assert_int_equal(rp_term_print(&t, text, strlen(text) + 1), RP_OK);
    t = rp_term_init(RP_TERM_LINEAR);
    t.rate_right = 0.1;
    good(rp_term_print(&t, again, sizeof again));
    assert_string_equal(again, "linear,left=1.0,right=0.1");
    t = rp_term_init(RP_TERM_T5);
    said(rp_term_print(&t, text, strlen(text)), RP_E_RANGE, "size", "46");
    said(rp_term_print(NULL, text, 9), RP_E_ARG, "term", "NULL");
    said(rp_term_print(&t, NULL, 9), RP_E_ARG, "text", "NULL");
    t.kind = RP_TERM_COUNT;
    said(rp_term_print(&t, text, sizeof text), RP_E_ARG, "term.kind", NULL);
    t = rp_term_init(RP_TERM_LOG);
    t.lambda = NAN;
    said(rp_term_print(&t, text, sizeof text), RP_E_RANGE, "lambda", NULL);
    t = rp_term_init(RP_TERM_KERPLE);
    t.kerple = (rp_kerple)9;
    said(rp_term_print(&t, text, sizeof text), RP_E_RANGE, "kind", NULL);
}

/* Sizes that a term leaves open come from its arrays; those that are set stay. */
static void open_sizes(void **state)
{
    static const float x;
    const int64_t w1[2] = {5, 1}, w2[2] = {3, 5}, p[3] = {2, 4, 6}, pos[3] = {2, 14, 8}, none[2] = {0, 1};
    rp_array a[RP_MAX_ARRAYS] = {0};
    rp_term t = rp_term_init(RP_TERM_FIRE);
    (void)state;
    good(rp_term_sizes(&t, a));
    assert_int_equal(t.width, 0);
    a[0] = rp_array_of(&x, RP_F32, 2, w1), a[2] = rp_array_of(&x, RP_F32, 2, w2), a[4] = a[0];
    good(rp_term_sizes(&t, a));
    assert_true(t.width == 5 && t.width2 == 3);
    a[0] = rp_array_of(&x, RP_F32, 2, w2);
    good(rp_term_sizes(&t, a));
    assert_int_equal(t.width, 5);
    t.width = 0;
    a[0] = rp_array_of(&x, RP_F32, 2, none);
    said(rp_term_sizes(&t, a), RP_E_SHAPE, "w1", NULL);
    t = rp_term_init(RP_TERM_BAND);
    a[1] = rp_array_of(&x, RP_F32, 3, p);
    good(rp_term_sizes(&t, a));
    assert_true(t.width == 4 && t.extent == 6);
    t = rp_term_init(RP_TERM_DEBERTA);
    memset(a, 0, sizeof a);
    a[1] = rp_array_of(&x, RP_F32, 3, pos);
    good(rp_term_sizes(&t, a));
    assert_int_equal(t.span, 7);
    said(rp_term_sizes(NULL, a), RP_E_ARG, "term", "NULL");
    said(rp_term_sizes(&t, NULL), RP_E_ARG, "arrays", "NULL");
}

static void locales(void **state)
{
    static const char *const with_comma[] = {"de_DE.UTF-8", "de_DE.utf8",  "de_DE",      "fr_FR.UTF-8",
                                             "fr_FR.utf8",  "pt_BR.UTF-8", "ru_RU.UTF-8"};
    int found = 0;
    (void)state;
    for (size_t n = 0; n < sizeof with_comma / sizeof *with_comma; n++) {
        if (!setlocale(LC_ALL, with_comma[n]))
            continue;
        found++;
        rp_term t;
        char names[RP_MAX_ARRAYS][RP_NAME_MAX];
        good(rp_term_parse("log,lambda=0.75", &t, names));
        assert_true(t.lambda == 0.75);
        parse_bad("log,lambda=0,75", RP_E_ARG, "75", NULL);
        setlocale(LC_ALL, "C");
    }
    print_message("locales with a decimal comma on this machine: %d\n", found);
}

/* ------------------------------------------------------------------------------------------------ environment */

static void environment(void **state)
{
    const char *kept = getenv("RELPOS_ISA");
    char keep[64];
    rp_plan *plan;
    const rp_desc d = rp_desc_init(1, 1, 1, 1, 1);
    (void)state;
    snprintf(keep, sizeof keep, "%s", kept ? kept : "");
    unsetenv("RELPOS_ISA");
    const char *best = rp_isa_default();
    static const char *const garbage[] = {"", "mmx", " generic", "generic ", "GENERIC", "\n", "avx2,avx512"};
    for (size_t n = 0; n < sizeof garbage / sizeof *garbage; n++) {
        setenv("RELPOS_ISA", garbage[n], 1);
        assert_string_equal(rp_isa_default(), best);
        good(rp_plan_create(&plan, &d));
        assert_string_equal(rp_plan_isa(plan), best);
        rp_plan_destroy(plan);
    }
    for (int n = 0; rp_isa_name(n); n++) { /* one that is not found falls back too */
        setenv("RELPOS_ISA", rp_isa_name(n), 1);
        assert_string_equal(rp_isa_default(), rp_isa_found(rp_isa_name(n)) ? rp_isa_name(n) : best);
    }
    setenv("RELPOS_ISA", "reference", 1);
    assert_string_equal(rp_isa_default(), "reference");
    rp_desc asked = d; /* what the description asks for wins */
    asked.isa = "generic";
    good(rp_plan_create(&plan, &asked));
    assert_string_equal(rp_plan_isa(plan), "generic");
    rp_plan_destroy(plan);
    if (*keep)
        setenv("RELPOS_ISA", keep, 1);
    else
        unsetenv("RELPOS_ISA");

    /* the default pool is made once a process: a child for each value */
    static const struct {
        const char *text;
        int32_t threads; /* 0: as many as without the variable */
    } values[] = {{NULL, 0}, {"", 0},  {"3", 3},  {"1", 1},    {"x", 0},
                  {"3x", 0}, {"0", 0}, {"-2", 0}, {"4097", 0}, {"99999999999999999999", 0},
                  {"2.5", 0}};
    int plain = 0;
    for (size_t n = 0; n < sizeof values / sizeof *values; n++) {
        fflush(NULL);
        pid_t child = fork();
        assert_true(child >= 0);
        if (child == 0) {
            if (values[n].text)
                setenv("RELPOS_THREADS", values[n].text, 1);
            else
                unsetenv("RELPOS_THREADS");
            const int32_t threads = rp_pool_threads(NULL);
            _exit(threads > 250 ? 250 : threads);
        }
        int how;
        assert_int_equal(waitpid(child, &how, 0), child);
        assert_true(WIFEXITED(how));
        if (n == 0)
            plain = WEXITSTATUS(how);
        const int want = values[n].threads ? values[n].threads : plain;
        if (WEXITSTATUS(how) != want)
            fail_msg("RELPOS_THREADS=%s gives %d threads, not %d", values[n].text, WEXITSTATUS(how), want);
    }
    assert_true(plain >= 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(environment), /* first: it must fork before the default pool is made */
        cmocka_unit_test(null_pointers),   cmocka_unit_test(names_of_nothing),
        cmocka_unit_test(sizes),           cmocka_unit_test(numbers),
        cmocka_unit_test(terms),           cmocka_unit_test(masks),
        cmocka_unit_test(more_terms),      cmocka_unit_test(arrays),
        cmocka_unit_test(arrays_of_terms), cmocka_unit_test(broadcasts),
        cmocka_unit_test(mask_types),      cmocka_unit_test(work),
        cmocka_unit_test(no_memory),       cmocka_unit_test(looking_inside),
        cmocka_unit_test(texts),           cmocka_unit_test(locales),
        cmocka_unit_test(printed),         cmocka_unit_test(open_sizes),
        cmocka_unit_test(without_v),       cmocka_unit_test(too_large),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
