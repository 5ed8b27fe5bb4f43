/* test_words.c -- rp_last_error_in: every field name in an error is replaced by the caller's word, and nothing else
 * is.
 * SPDX-License-Identifier: Apache-2.0 */
#include "tests/helpers.h"

static int marked(void *context, const rp_field *f, char *text, size_t size)
{
    *(int *)context += 1;
    snprintf(text, size, "<%d %d %s %s>", (int)f->of, (int)f->index, f->name, f->kind);
    return f->of != RP_FIELD_PAGES;
}

static const rp_term term_list[] = {{.kind = RP_TERM_ROPE}, {.kind = RP_TERM_T5}};
static const rp_mask mask_list[] = {{.kind = RP_MASK_WINDOW}, {.kind = RP_MASK_KEYS}};

static rp_desc described(void)
{
    rp_desc d = rp_desc_init(1, 1, 1, 1, 4);
    d.terms = term_list;
    d.n_terms = 2;
    d.masks = mask_list;
    d.n_masks = 2;
    return d;
}

static const struct {
    const char *name, *text, *plain;
} provoked[] = {
    {"heads", "<0 0 kv_heads > is 3; it must divide <0 0 heads >, which is 4",
     "kv_heads is 3; it must divide heads, which is 4"},
    {"parameter", "<3 1 buckets t5> is 5; it must be even if bidirectional, half for each side",
     "buckets of t5 is 5; it must be even if bidirectional, half for each side"},
    {"twice", "<3 1  rope> was given twice; give it once", "rope was given twice; give it once"},
    {"field", "<3 0 kind kerple> is 9; it must be one of 0 (log), 1 (power)",
     "kind of kerple is 9; it must be one of 0 (log), 1 (power)"},
    {"place", "<3 0 left linear> is nan; it must be a finite number",
     "left of linear is nan; it must be a finite number"},
    {"mask", "<5 0 left window> is -2; it must be -1 or more", "left of window is -2; it must be -1 or more"},
};

static void provoke(int n, rp_desc *d, rp_term t[2], rp_mask m[2])
{
    rp_plan *plan;
    *d = described();
    for (int x = 0; x < 2; x++) {
        t[x] = rp_term_init(term_list[x].kind);
        m[x] = mask_list[x];
    }
    d->terms = t;
    d->masks = m;
    if (n == 0)
        d->heads = 4, d->kv_heads = 3;
    if (n == 1)
        t[1].buckets = 5;
    if (n == 2)
        t[1] = t[0];
    if (n == 3) {
        t[0] = rp_term_init(RP_TERM_KERPLE);
        t[0].kerple = 9;
    }
    if (n == 4) {
        t[0] = rp_term_init(RP_TERM_LINEAR);
        t[0].rate_left = NAN;
    }
    if (n == 5)
        m[0].left = -2;
    assert_int_not_equal(rp_plan_create(&plan, d), RP_OK);
}

static void every_field_is_named_by_its_client(void **state)
{
    rp_desc d;
    rp_term t[2];
    rp_mask m[2];
    char text[256], small[8];
    (void)state;
    for (int n = 0; n < (int)(sizeof provoked / sizeof *provoked); n++) {
        int calls = 0;
        provoke(n, &d, t, m);
        assert_string_equal(rp_last_error_in(&d, marked, &calls, text, sizeof text), provoked[n].text);
        assert_true(calls > 0);
        assert_string_equal(rp_last_error_in(&d, NULL, NULL, text, sizeof text), provoked[n].plain);
        rp_last_error_in(&d, marked, &calls, small, sizeof small); /* the text is truncated, and terminated by NUL */
        assert_true(strlen(small) < sizeof small);
        rp_last_error_in(NULL, NULL, NULL, text, sizeof text); /* without a description, kinds cannot be named */
        assert_null(strstr(text, "terms["));
        assert_null(strstr(text, "desc."));
    }
    assert_string_equal(rp_last_error_in(NULL, NULL, NULL, text, 0), "");
    assert_string_equal(rp_last_error_in(NULL, NULL, NULL, NULL, sizeof text), "");
    /* a description without this mask cannot name it, so the message stays as it is */
    d = described();
    d.n_masks = 0;
    assert_string_equal(rp_last_error_in(&d, NULL, NULL, text, sizeof text), rp_last_error());
    assert_memory_equal(text, "masks[0].left is -2", 19);
}

/* Give each array of every term and mask a wrong type and shape. */
static void arrays_are_named(void **state)
{
    problem p;
    char text[512];
    rp_plan *plan;
    static const char *const texts[] = {
        ("fwd:f32:b2h4q6k6d8:t5+kerple+dense+rope+relkey,left=1,right=1+relval,left=1,right=1+sink+"
         "fire,c=1,L=2,width=3,width2=2+real,max_distance=2+band+forget:key_mask+mask+lengths+segments"),
        "fwd:f32:b1h2q6k6d8:swin,grid=2x3+axial,grid=2x3+axialkey,grid=2x3:", "fwd:f32:b1h2q6k6d8:xl:",
        "fwd:f32:b1h2q6k6d8:deberta,span=2:"};
    (void)state;
    for (size_t n = 0; n < sizeof texts / sizeof *texts; n++) {
        pose(&p, 1, "%s", texts[n]);
        good(rp_plan_create(&plan, &p.desc));
        for (int32_t x = 0; x < p.desc.n_terms * RP_MAX_ARRAYS + p.desc.n_masks; x++) {
            const bool mask = x >= p.desc.n_terms * RP_MAX_ARRAYS;
            rp_array *a =
                mask ? &p.t.mask[x - p.desc.n_terms * RP_MAX_ARRAYS] : &p.t.term[x / RP_MAX_ARRAYS][x % RP_MAX_ARRAYS];
            const rp_array kept = *a;
            for (int wrong_way = 0; a->data && wrong_way < 3; wrong_way++) {
                if (wrong_way == 0)
                    a->shape[a->ndim - 1] += 7;
                else if (wrong_way == 1)
                    a->dtype = (rp_dtype)99;
                else { /* memory of out, so that out overlaps no other array */
                    const size_t bytes = (size_t)problem_size(a) * rp_dtype_size(a->dtype);
                    assert_true(bytes <= (size_t)problem_size(&p.t.out) * sizeof(float));
                    memcpy(p.t.out.data, a->data, bytes);
                    a->data = p.t.out.data;
                }
                if (rp_attend(plan, &p.t, NULL) == RP_OK)
                    wrong(&p, "any", "array %d is taken however it is", x);
                rp_last_error_in(&p.desc, NULL, NULL, text, sizeof text);
                const char *name = mask ? rp_mask_name(p.masks[x - p.desc.n_terms * RP_MAX_ARRAYS].kind)
                                        : rp_term_array(p.terms[x / RP_MAX_ARRAYS].kind, x % RP_MAX_ARRAYS);
                if (strchr(text, '[') || strstr(text, "(of ") || !strstr(text, name))
                    wrong(&p, "any", "\"%s\" does not name %s, or names C", text, name);
                *a = kept;
            }
        }
        rp_plan_destroy(plan);
        problem_free(&p);
    }
}

/* An array name that looks like a field and contains quotes. */
static void user_text_is_not_replaced(void **state)
{
    static const char *const names[] = {"terms[0].left", "x\"terms[77].left", "\"\"desc.heads\"", "masks[-1]"};
    (void)state;
    for (int n = 0; n < (int)(sizeof names / sizeof *names); n++) {
        rp_desc d = rp_desc_init(1, 1, 1, 1, 4);
        const rp_term term = rp_term_init(RP_TERM_ALIBI);
        rp_plan *plan;
        char text[256], want[256];
        int calls = 0, used = snprintf(want, sizeof want, "%s", names[n]);
        for (int c = 0; c < used; c++)
            want[c] = want[c] == '"' ? '\'' : want[c];
        d.terms = &term;
        d.n_terms = 1;
        d.isa = names[n];
        assert_int_equal(rp_plan_create(&plan, &d), RP_E_ARG);
        assert_non_null(strstr(rp_last_error_in(&d, marked, &calls, text, sizeof text), want));
        assert_int_equal(calls, 1); /* desc.isa */
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_field_is_named_by_its_client),
        cmocka_unit_test(arrays_are_named),
        cmocka_unit_test(user_text_is_not_replaced),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
