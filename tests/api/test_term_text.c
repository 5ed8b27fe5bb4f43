/* test_term_text.c -- terms as text: parsing, printing, and kinds without a name.
 * SPDX-License-Identifier: Apache-2.0 */
#include "tests/api/refusals.h"
#include <locale.h>

static void invalid_values_have_no_name(void **state)
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

static void parse_bad(const char *text, rp_status want, const char *field, const char *value)
{
    rp_term t;
    char names[RP_MAX_ARRAYS][RP_NAME_MAX];
    said(rp_term_parse(text, &t, names), want, field, value);
}

/* Parameters, numbers in every spelling, and names of arrays. */
static void texts_are_read(void **state)
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
}

/* Some kinds require parameters; the error names the missing one. */
static void every_name_gives_its_kind(void **state)
{
    (void)state;
    rp_term t;
    char names[RP_MAX_ARRAYS][RP_NAME_MAX];
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
}

static void a_part_has_255_bytes_at_most(void **state)
{
    rp_term t;
    char names[RP_MAX_ARRAYS][RP_NAME_MAX], longest[RP_NAME_MAX + 40] = "t5,table=";
    (void)state;
    memset(longest + 9, 'n', RP_NAME_MAX - 7);
    good(rp_term_parse(longest, &t, names));
    assert_int_equal(strlen(names[0]), RP_NAME_MAX - 7);
    strcat(longest, "n");
    parse_bad(longest, RP_E_ARG, "longer than", "255");
}

/* Each text must fail with an error that contains its words. */
static void bad_texts_are_refused(void **state)
{
    (void)state;
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
        {"t5,strategy=log", "strategy", NULL}, /* bucket has this parameter, but t5 does not */
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
        {"axial,grid=2x2,extra=1", "extra", NULL}, /* only swin has a class token */
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
    /* a number of more than a hundred digits is an error */
    char many[160];
    memset(many, '1', sizeof many);
    memcpy(many, "log,lambda=", 11);
    many[sizeof many - 1] = 0;
    parse_bad(many, RP_E_ARG, "lambda", NULL);
}

/* Every kind, with each parameter set to a value other than its default. */
static void printed_terms_parse_back(void **state)
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
            good(rp_term_print(&t, text, sizeof text)); /* parameters of other kinds are not printed */
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

/* Sizes that a term leaves open are taken from its arrays; sizes that are already set stay. */
static void open_sizes_come_from_arrays(void **state)
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

static void numbers_have_a_point_in_every_locale(void **state)
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(invalid_values_have_no_name), cmocka_unit_test(texts_are_read),
        cmocka_unit_test(every_name_gives_its_kind),   cmocka_unit_test(a_part_has_255_bytes_at_most),
        cmocka_unit_test(bad_texts_are_refused),       cmocka_unit_test(printed_terms_parse_back),
        cmocka_unit_test(open_sizes_come_from_arrays), cmocka_unit_test(numbers_have_a_point_in_every_locale),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
