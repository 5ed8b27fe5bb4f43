/* test_schemes.c -- what every scheme declares: the table in src/terms/scheme.h, bounds, defaults, samples, JSON.
 * SPDX-License-Identifier: Apache-2.0 */
#include "src/terms/term_registry.h"
#include "tests/helpers.h"
#include <jansson.h>

#define EACH_TERM(kind, name)                                                                                          \
    for (rp_term_kind kind = RP_TERM_NONE + 1; (kind) < RP_TERM_COUNT; (kind)++)                                       \
        for (const char *name = rp_term_name(kind); name; name = NULL)

/* Write the first sample text of a term. */
static void first_sample(char text[512], rp_term_kind kind)
{
    const char *sample = rp_term_about(kind)->samples[0];
    snprintf(text, 512, "%s%s%s", rp_term_name(kind), sample && *sample ? "," : "", sample ? sample : "");
}

static void every_scheme_keeps_the_table(void **state)
{
    (void)state;
    EACH_TERM(kind, name)
    if (rp_term_fault(kind))
        fail_msg("src/terms: the scheme of %s: %s", name, rp_term_fault(kind));
}

/* Functions that only some schemes have. */
static double pair(const rpi_pair *p)
{
    return p->delta;
}

static void grad(const rpi_pair *p, double g, const rpi_sums *to)
{
    (void)p, (void)g, (void)to;
}

static int64_t count(const rp_desc *d, const rp_term *t)
{
    (void)d, (void)t;
    return 1;
}

static int64_t batch_entry(const rp_desc *d, const rp_term *t, int64_t b)
{
    (void)d, (void)t;
    return b;
}

static double vec(const rpi_pair *p, int64_t e, int64_t c)
{
    (void)p, (void)e, (void)c;
    return 0;
}

static double query(const rpi_pair *p, int64_t c)
{
    (void)p, (void)c;
    return 1;
}

static int64_t entry_of(const rpi_pair *p)
{
    return p->delta;
}

#define FACTS .facts = {.formula = "f", .about = "a"}

/* Parameters, arrays and products that lack a part, or that belong to another form. */
static void incomplete_parts_are_found(void **state)
{
    static const rp_param no_field[] = {{"x", RP_PARAM_REAL, 0, NULL, .meaning = "none"}, {0}},
                          no_meaning[] = {{"x", RP_PARAM_REAL, RPI_FIELD(real[0]), .meaning = NULL}, {0}},
                          no_choices[] = {{"x", RP_PARAM_CHOICE, RPI_FIELD(choice[0]), .meaning = "none"}, {0}};
#define OFFSET_FORM FACTS, .form = RPI_OFFSET, .pair = pair
#define VEC_FORM    FACTS, .form = RPI_VEC
#define POSITIONS(name, facts)                                                                                         \
    {                                                                                                                  \
        name, RP_USE_POSITIONS, RP_REPLACES, .shape = facts                                                            \
    }
    static const struct {
        rpi_scheme scheme;
        const char *said;
    } all[] = {
        {{OFFSET_FORM, .params = no_field}, "needs a field and a meaning"},
        {{OFFSET_FORM, .params = no_meaning}, "needs a field and a meaning"},
        {{OFFSET_FORM, .params = no_choices}, "of type CHOICE needs choices"},
        {{.form = RPI_OFFSET, .pair = pair, .facts = {.formula = "f"}}, "needs formula and about"},
        {{OFFSET_FORM, .array = {POSITIONS("x", NULL)}}, "every array needs a shape"},
        {{OFFSET_FORM, .array = {POSITIONS("q_positions", "[Lq]")}}, "k_positions must follow q_positions"},
        {{OFFSET_FORM, .array = {POSITIONS("q_positions", "[Lq]"), POSITIONS("positions", "[Lk]")}},
         "k_positions must follow q_positions"},
        {{OFFSET_FORM, .array = {POSITIONS("q_positions", "[Lq]"), POSITIONS("k_positions", "[Lk]")}}, NULL},
        {{OFFSET_FORM, .bias = true}, "bias and unscaled are only for form VEC"},
        {{OFFSET_FORM, .unscaled = true}, "bias and unscaled are only for form VEC"},
        {{OFFSET_FORM, .class_token = true}, "class_token is only for form INDEX"},
        {{FACTS, .form = RPI_TILE, .pair = pair, .same_heads = true}, "same_heads is only for form OFFSET"},
        {{FACTS, .form = RPI_TILE, .pair = pair, .sharing = "tile", .batch_entry = batch_entry}, "needs in_place and"},
        {{FACTS, .form = RPI_TILE, .pair = pair, .in_place = true, .batch_entry = batch_entry, .sharing = "tile"},
         NULL},
        {{FACTS, .form = RPI_INDEX, .entries = count, .index = entry_of, .entry = query, .index_array = 1,
          .array = {{"a", RP_USE_CONSTANT, .shape = "[H]"}, {"b", RP_USE_CONSTANT, .shape = "[B?, H?, Lq, Lk]"}}},
         "names an array of indices"},
        {{FACTS, .form = RPI_INDEX, .entries = count, .index = entry_of, .entry = query, .index_array = 1,
          .array = {{"a", RP_USE_CONSTANT, .shape = "[H]"}, {"b", RP_USE_INDEX, .shape = "[B?, H?, Lq, Lk]"}}},
         NULL},
        {{VEC_FORM, .product = {{.count = count, .first = count}}}, "needs count, vec, and"},
        {{VEC_FORM, .product = {{.count = count, .vec = vec, .first = count, .query = query, .shown = "x"}}},
         "query needs query_grad"},
    };
    (void)state;
    for (size_t n = 0; n < sizeof all / sizeof *all; n++) {
        const char *found = rpi_scheme_fault(&all[n].scheme);
        if (all[n].said ? !found || !strstr(found, all[n].said) : found != NULL)
            fail_msg("case %d: found \"%s\", and \"%s\" is to be found", (int)n, found ? found : "nothing",
                     all[n].said ? all[n].said : "nothing");
    }
}

static void faults_are_found(void **state)
{
    static const rp_param wrong_bounds[] = {
        {"x", RP_PARAM_REAL, RPI_FIELD(real[0]), .min = 2, .max = 1, .meaning = "none"}, {0}};
    static const struct {
        rpi_scheme scheme;
        const char *said;
    } all[] = {
        {{.form = RPI_OFFSET, FACTS, .pair = pair}, NULL},
        {{.form = RPI_OFFSET, FACTS}, "requires pair"},
        {{.form = RPI_OFFSET, FACTS, .pair = pair, .array = {{"a", .shape = "[H]"}}}, "requires grad"},
        {{.form = RPI_OFFSET, FACTS, .pair = pair, .entries = count}, "does not allow entries"},
        {{.form = RPI_OFFSET, FACTS, .pair = pair, .causal = true}, "causal"},
        {{.form = RPI_OFFSET, .pair = pair}, "formula"},
        {{.form = RPI_OFFSET, FACTS, .pair = pair, .params = wrong_bounds}, "max below min"},
        {{.form = RPI_OFFSET, FACTS, .pair = pair, .grad = grad, .array = {{"a", .shape = "[K]"}}}, "shape"},
        {{.form = RPI_OFFSET, FACTS, .pair = pair, .grad = grad, .array = {{"a", .shape = "[H, B?]"}}}, "shape"},
        {{.form = RPI_OFFSET, FACTS, .pair = pair, .grad = grad, .array = {{"a", .shape = "[H]"}, RPI_TWO_POSITIONS}},
         ".positions"},
        {{.form = RPI_INDEX, FACTS, .entries = count}, "requires index, entry"},
        {{.form = RPI_TILE, FACTS, .pair = pair, .shared = pair}, "does not allow shared"},
        {{.form = RPI_TILE, FACTS, .pair = pair, .index_array = 1}, "index_array is only for form INDEX"},
        {{.form = RPI_TILE, FACTS, .pair = pair, .sums_size = count}, "requires row_grad"},
        {{.form = RPI_TILE, FACTS, .pair = pair, .in_place = true, .batch_entry = batch_entry}, "needs in_place"},
        {{.form = RPI_VEC, FACTS}, "requires product[0]"},
        {{.form = RPI_VEC, FACTS, .product = {{.count = count, .vec = vec}}}, "first or index"},
        {{.form = RPI_VALVEC, FACTS, .product = {{.count = count, .vec = vec, .first = count}}}, "width"},
        {{.form = RPI_VEC,
          FACTS,
          .array = {{"a", .shape = "[H]"}},
          .product = {{.count = count, .vec = vec, .first = count}}},
         "vec_grad"},
        {{.form = RPI_VEC, FACTS, .product = {{.count = count, .vec = vec, .first = count}}}, ".shown"},
        {{.form = RPI_SINK, FACTS}, "requires pair"},
        {{.form = RPI_ROTATE, FACTS, .pair = pair}, "does not allow pair"},
    };
    (void)state;
    for (size_t n = 0; n < sizeof all / sizeof *all; n++) {
        const char *found = rpi_scheme_fault(&all[n].scheme);
        if (all[n].said ? !found || !strstr(found, all[n].said) : found != NULL)
            fail_msg("case %d: found \"%s\", and \"%s\" is to be found", (int)n, found ? found : "nothing",
                     all[n].said ? all[n].said : "nothing");
    }
    /* a call needs pair, and only a gradient needs grad */
    const rpi_scheme none = {.form = RPI_OFFSET}, forward = {.form = RPI_OFFSET, .pair = pair},
                     both = {.form = RPI_OFFSET, .pair = pair, .grad = grad};
    assert_non_null(strstr(rpi_scheme_lacks(&none, false), "requires pair"));
    assert_null(rpi_scheme_lacks(&forward, false));
    assert_non_null(strstr(rpi_scheme_lacks(&forward, true), "requires grad"));
    assert_null(rpi_scheme_lacks(&both, true));
}

/* If all arrays are finite, so are biases. Only a scheme of form TILE may give -infinity, which masks the pair. Given
 * positions are tested too. */
static void biases_are_finite(void **state)
{
    (void)state;
    EACH_TERM(kind, name)
    for (int x = 0; x < RP_MAX_SAMPLES && (rp_term_about(kind)->samples[x] || x == 0) && rp_term_is_bias(kind); x++)
        for (int given = 0; given < 2; given++) {
            const char *sample = rp_term_about(kind)->samples[x] ? rp_term_about(kind)->samples[x] : "";
            const long long tokens = problem_tokens(sample);
            problem p;
            rp_plan *plan;
            pose(&p, 3, "fwd:f64:b1h3q%lldk%lldd4:%s%s%s:%s", tokens ? tokens : 20, tokens ? tokens : 30, name,
                 *sample ? "," : "", sample, given && !tokens ? "positions" : "");
            const int64_t shape[3] = {p.desc.heads, p.desc.len_q, p.desc.len_k};
            rp_array to = rp_array_of(problem_alloc(&p, (size_t)(3 * shape[1] * shape[2]) * 8), RP_F64, 3, shape);
            good(rp_plan_create(&plan, &p.desc));
            good(rp_bias(plan, &p.t, 0, &to));
            for (int64_t n = 0; n < problem_size(&to); n++) {
                const double bias = ((double *)to.data)[n];
                const bool masks = bias == -INFINITY && (rp_term_is_causal(kind) || rp_term_is_array(kind));
                if (!isfinite(bias) && !masks)
                    wrong(&p, "reference", "the bias of element %lld is %g", (long long)n, bias);
            }
            rp_plan_destroy(plan);
            problem_free(&p);
        }
}

/* With a parameter on a bound, biases may exceed the range of double, but are not NaN. */
static void biases_are_numbers(problem *p, const rp_plan *plan, const char *name, const char *key, double value)
{
    const int64_t shape[3] = {p->desc.heads, p->desc.len_q, p->desc.len_k};
    rp_array to = rp_array_of(problem_alloc(p, (size_t)(shape[0] * shape[1] * shape[2]) * 8), RP_F64, 3, shape);
    if (rp_bias(plan, &p->t, 0, &to) == RP_OK)
        for (int64_t n = 0; n < problem_size(&to); n++)
            if (isnan(((double *)to.data)[n]))
                fail_msg("%s: with %s = %g, the bias of element %lld is NaN", name, key, value, (long long)n);
}

/* A parameter outside of its declared bounds is an error that names its field. A parameter exactly on a bound is no
 * such error. */
static void bounds_hold(void **state)
{
    (void)state;
    EACH_TERM(kind, name)
    {
        const rp_param *q;
        for (int x = 0; (q = rp_term_param(kind, x)); x++)
            for (int side = 0; side < 2 && (q->min != 0 || q->max != 0); side++) {
                char text[512];
                const double inside = side ? q->max : q->min,
                             beyond = side ? q->max * 2 + 1 : q->min - fabs(q->min) - 1;
                problem p;
                first_sample(text, kind);
                const long long tokens = problem_tokens(text);
                pose(&p, 1, "fwd:f64:b1h1q%lldk%lldd4:%s", tokens ? tokens : 2, tokens ? tokens : 2, text);
                const struct {
                    double value;
                    bool refused;
                } cases[] = {{beyond, true}, {inside, false}};
                for (int c = 0; c < 2; c++) {
                    rp_term t = p.terms[0];
                    char *field = (char *)&t + q->offset;
                    const int64_t n = q->type == RP_PARAM_REAL ? 0 : (int64_t)cases[c].value;
                    rp_plan *plan = NULL;
                    if (q->type == RP_PARAM_REAL)
                        memcpy(field, &cases[c].value, sizeof(double));
                    else
                        memcpy(field, &n, sizeof n);
                    rp_desc d = p.desc;
                    d.terms = &t;
                    const rp_status status = rp_plan_create(&plan, &d);
                    if (status == RP_OK && rp_term_is_bias(kind))
                        biases_are_numbers(&p, plan, name, q->key, cases[c].value);
                    rp_plan_destroy(plan);
                    char said[80];
                    snprintf(said, sizeof said, "%s is ", q->type == RP_PARAM_GRID ? "grid_h" : q->field);
                    if (cases[c].refused ? status == RP_OK || (!q->unset && !strstr(rp_last_error(), said)) : false)
                        fail_msg("%s: %s = %g: %s", name, q->key, cases[c].value,
                                 status == RP_OK ? "not refused" : rp_last_error());
                }
                problem_free(&p);
            }
    }
}

/* The default shown in the syntax is the actual default. Every parameter without brackets is required. */
static void syntax_shows_the_defaults(void **state)
{
    (void)state;
    EACH_TERM(kind, name)
    {
        const char *syntax = rp_term_syntax(kind);
        const rp_param *q;
        if (strncmp(syntax, name, strlen(name)) != 0 || (syntax[strlen(name)] && !strchr(",[", syntax[strlen(name)])))
            fail_msg("terms.def: the syntax of %s begins with its name: %s", name, syntax);
        for (int x = 0; (q = rp_term_param(kind, x)); x++) {
            char key[96], value[64];
            const rp_term t = rp_term_init(kind);
            snprintf(key, sizeof key, "%s%s=", q->required ? "," : "[,", q->key);
            const char *at = strstr(syntax, key);
            if (q->required && (!at || (at > syntax && at[-1] == '[')))
                fail_msg("terms.def: %s needs %s, but the syntax has %s", name, q->key, syntax);
            if (q->required || !at || q->type == RP_PARAM_CHOICE)
                continue;
            at += strlen(key);
            const size_t length = strcspn(at, ",]");
            char said[64], text[512], names[RP_MAX_ARRAYS][RP_NAME_MAX];
            rp_term read;
            snprintf(said, sizeof said, "%.*s", (int)length, at);
            if (said[0] >= 'A' && said[0] <= 'Z') /* a letter represents a number */
                continue;
            first_sample(text, kind);
            snprintf(value, sizeof value, ",%s", q->key);
            const bool given = strstr(text, value) != NULL;
            snprintf(text + strlen(text), sizeof text - strlen(text), "%s%s=%s", given ? "" : ",", given ? "" : q->key,
                     given ? "" : said);
            if (given || q->type == RP_PARAM_FLAG)
                continue; /* [,bidirectional=1] and [,extra=1] show the value that turns the feature on */
            good(rp_term_parse(text, &read, names));
            if (memcmp((char *)&read + q->offset, (char *)&t + q->offset, 8) != 0 && q->type == RP_PARAM_REAL)
                fail_msg("terms.def: %s has %s%s in its syntax, but the default is different", name, key, said);
        }
        const rp_array_facts *a;
        for (int x = 0; (a = rp_term_array_about(kind, x)); x++) {
            char key[96];
            snprintf(key, sizeof key, ",%s=NAME", a->name);
            if (a->presence == RP_NEEDED && !strstr(syntax, key))
                fail_msg("terms.def: %s needs the array %s, but the syntax has %s", name, a->name, syntax);
        }
    }
}

/* Open sizes have usual values. A term with its first sample text, and with arrays of these sizes, works. Sizes that
 * are set stay. */
static void usual_sizes_work(void **state)
{
    (void)state;
    EACH_TERM(kind, name)
    {
        char text[512], names[RP_MAX_ARRAYS][RP_NAME_MAX];
        rp_term t, set;
        first_sample(text, kind);
        good(rp_term_parse(text, &t, names));
        good(rp_term_usual_sizes(&t, 40));
        set = t;
        good(rp_term_usual_sizes(&set, 99));
        assert_memory_equal(&set, &t, sizeof t);
    }
    assert_int_equal(rp_term_usual_sizes(NULL, 1), RP_E_ARG);
}

static void json_is_json(void **state)
{
    (void)state;
    EACH_TERM(kind, name)
    {
        const size_t size = rp_term_json(kind, NULL, 0);
        char *text = malloc(size + 1), cut[20];
        json_error_t why;
        assert_int_equal(rp_term_json(kind, text, size + 1), size);
        assert_int_equal(strlen(text), size);
        json_t *read = json_loads(text, JSON_REJECT_DUPLICATES, &why);
        if (!read)
            fail_msg("%s: %s in %s", name, why.text, text);
        assert_string_equal(json_string_value(json_object_get(read, "name")), name);
        assert_int_equal(rp_term_json(kind, cut, sizeof cut), size);
        assert_memory_equal(cut, text, sizeof cut - 1);
        assert_int_equal(cut[sizeof cut - 1], 0);
        json_decref(read);
        free(text);
    }
    assert_int_equal(rp_term_json(RP_TERM_NONE, NULL, 0), 0);
    assert_int_equal(rp_term_json(RP_TERM_COUNT, NULL, 0), 0);
    assert_null(rp_term_about(RP_TERM_NONE));
    assert_null(rp_term_param(RP_TERM_T5, -1));
    assert_null(rp_term_array_about(RP_TERM_T5, RP_MAX_ARRAYS));
}

/* Parse texts of shapes: letters, arithmetic, conditions, and axes that may be 1 or missing. */
static void shapes_are_read(void **state)
{
    static const char *const kinds[] = {"one", "two_way", NULL};
    static const rp_param params[] = {
        {"by_kind", RP_PARAM_CHOICE, RPI_FIELD(choice[0]), .choices = kinds, .meaning = ""},
        {"left", RP_PARAM_INT, RPI_FIELD(left), .meaning = ""},
        {"grid", RP_PARAM_GRID, offsetof(rp_term, grid_h), "grid_h grid_w", .meaning = ""},
        {0}};
    static const struct {
        const char *text;
        rpi_shape want;
    } good_ones[] = {
        {"[H]", {1, 1, 1, false, {3}}},
        {"[H?, left+1]", {2, 1, 1, false, {3, 6}}},
        {"[2*left-3, H]", {2, 2, 2, false, {7, 3}}},
        {"[(2*grid_h-1)*(2*grid_w-1), Dk/2]", {2, 2, 0, false, {21, 4}}},
        {"[B?, H?, Lq?, Lk?]", {4, 0, 15, true, {2, 3, 10, 20}}},
        {"[B, H, Lq, Dv]", {4, 4, 2, true, {2, 3, 10, 6}}},
        {"left ? [left] : none", {1, 1, 0, false, {5}}},
        {"left ? [B?, H, Lq] : [H]", {3, 2, 3, true, {2, 3, 10}}},
        {"left ? [H] : [B?, H, Lq]", {1, 1, 1, false, {3}}},
        {"none", {0, 0, 0, false, {0}}},
        {"[1-left]", {1, 1, 0, false, {0}}},
        {"[H+1, H]", {2, 2, 2, false, {4, 3}}}, /* only H itself may be 1 */
        {"by_kind=two_way ? [H] : none", {1, 1, 1, false, {3}}},
        {"by_kind=one ? [H] : none", {0, 0, 0, false, {0}}},
    };
    static const char *const bad[] = {"",
                                      "H",
                                      "[H",
                                      "[H]]",
                                      "[right]",
                                      "[H, B?]",
                                      "[left+]",
                                      "[Lx]",
                                      "left ? [H]",
                                      "[left/0]",
                                      "[1, 2, 3, 4, 5]", /* more axes than arrays have */
                                      "[9999999999]",    /* more than 31 bits */
                                      "by_kind=three ? [H] : none",
                                      "left=two ? [H] : none",
                                      NULL};
    rp_desc d = rp_desc_init(2, 3, 10, 20, 8);
    d.dim_v = 6;
    const rp_term t = {.kind = RP_TERM_TABLE, .left = 5, .grid_h = 2, .grid_w = 4, .choice = {1}};
    rpi_shape found;
    (void)state;
    for (size_t n = 0; n < sizeof good_ones / sizeof *good_ones; n++) {
        if (!rpi_read_shape(good_ones[n].text, &d, &t, params, &found))
            fail_msg("%s is refused", good_ones[n].text);
        assert_memory_equal(&found, &good_ones[n].want, sizeof found);
    }
    for (size_t n = 0; n < sizeof bad / sizeof *bad; n++)
        if (rpi_read_shape(bad[n], &d, &t, params, &found))
            fail_msg("\"%s\" is no shape, and was read as one", bad[n] ? bad[n] : "NULL");
    /* a term without parameters has no conditions */
    assert_false(rpi_read_shape("by_kind=two_way ? [H] : none", &d, &t, NULL, &found));
    assert_true(rpi_read_shape("[H]", &d, &t, NULL, &found));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_scheme_keeps_the_table),
        cmocka_unit_test(faults_are_found),
        cmocka_unit_test(incomplete_parts_are_found),
        cmocka_unit_test(biases_are_finite),
        cmocka_unit_test(bounds_hold),
        cmocka_unit_test(syntax_shows_the_defaults),
        cmocka_unit_test(usual_sizes_work),
        cmocka_unit_test(json_is_json),
        cmocka_unit_test(shapes_are_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
