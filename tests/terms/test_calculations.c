/* test_calculations.c -- the text of the calculation of a bias, which the explorer shows, for one pair of each term.
 * SPDX-License-Identifier: Apache-2.0 */
#include "src/terms/term_registry.h"
#include "tests/helpers.h"

/* Head 1 of 4, batch entry 4 of 6, 12 keys. Element e of array x is e + 7 x; the first axis has a stride of 100. */
static const struct {
    const char *term;
    int64_t i, j;
    const char *text;
} cases[] = {
    {"alibi", 1, 11, "-0.0625 * 10"},
    {"alibi,max_bias=4", 11, 1, "-0.25 * 10"},
    {"log,lambda=0.5", 1, 11, "-0.5 * log(1 + 10)"},
    {"linear,left=0.1,right=0.2", 1, 11, "-0.2 * 10"},
    {"linear,left=0.1,right=0.2", 5, 2, "-0.1 * 3"},
    {"kerple", 1, 11, "-100 * log(1 + 107 * 10)"},
    {"kerple,kind=power", 11, 1, "-107 * 10^100"},
    {"sandwich,dim=16", 3, 3, "8 / (8 * (1 + 1) / 4)"},
    {"fire,c=2,L=4,width=16", 8, 5, "MLP(log(|2 * 3| + 1) / (log(|2 * 8| + 1) + 1e-06))[1]"},
    {"fire,c=2,L=20,width=16", 8, 5, "MLP(log(|2 * 3| + 1) / (log(|2 * 20| + 1) + 1e-06))[1]"},
    {"t5", 5, 2, "table[bucket(-3) = 3, 1]"},
    {"t5", 2, 5, "table[bucket(3) = 19, 1]"},
    {"real,max_distance=9,sign=-1", 1, 11, "-1 * table[1, -9 + 9]"},
    {"real,max_distance=9,sign=1", 5, 2, "1 * table[1, 3 + 9]"},
    {"table,left=5,right=9", 1, 11, "table[1, 9 + 5]"},
    {"table,left=5,right=9", 5, 2, "table[1, -3 + 5]"},
    {"axial,grid=3x4", 1, 11, "104 + 112"},
    {"axial,grid=3x4", 11, 4, "101 + 107"},
    {"swin,grid=3x4", 1, 11, "table[(-2 + 2) * 7 + (-2 + 3), 1]"},
    {"swin,grid=2x4,extra=1", 2, 8, "table[(-1 + 1) * 7 + (-2 + 3), 1]"},
    {"swin,grid=2x4,extra=1", 0, 5, "table[21, 1]"},
    {"swin,grid=2x4,extra=1", 5, 0, "table[22, 1]"},
    {"swin,grid=2x4,extra=1", 0, 0, "table[23, 1]"},
    {"dense", 1, 11, "bias[4, 1, 1, 11]"},
    {"dense,interleave=2", 1, 11, "bias[2, 1, 1, 11]"},
    {"dense,tile=2", 1, 11, "bias[1, 1, 1, 11]"},
    {"forget", 8, 5, "logf[4, 1, 6] + ... + logf[4, 1, 8]"},
    {"forget", 8, 7, "logf[4, 1, 8]"},
    {"forget", 8, 8, "0 (no gate between)"},
    {"lookup,entries=600", 1, 11, "table[1, 531]"},
};

static void texts_are_exact(void **state)
{
    (void)state;
    static double numbers[1000];
    static int32_t integers[1000];
    for (int e = 0; e < 1000; e++) {
        numbers[e] = e;
        integers[e] = e;
    }
    for (size_t n = 0; n < sizeof cases / sizeof *cases; n++) {
        rp_desc desc = rp_desc_init(6, 4, 12, 12, 8);
        rp_term term;
        char names[RP_MAX_ARRAYS][RP_NAME_MAX];
        rpi_view array[RP_MAX_ARRAYS] = {0};
        assert_int_equal(rp_term_parse(cases[n].term, &term, names), RP_OK);
        desc.terms = &term;
        desc.n_terms = 1;
        const rpi_scheme *scheme = rpi_scheme_of(term.kind);
        const bool looks_up = strncmp(cases[n].term, "lookup", 6) == 0;
        for (int x = 0; x < 2; x++)
            if (scheme->array[x].name)
                array[x] = (rpi_view){.data = numbers + 7 * x, .dtype = RP_F64, .stride = {100, 1}};
        if (strncmp(cases[n].term, "alibi", 5) == 0)
            array[0].data = NULL; /* the slopes of the paper */
        if (looks_up)
            array[1] = (rpi_view){.data = integers, .dtype = RP_I32, .stride = {100, 100, 20, 1}};
        const rpi_pair p = {.desc = &desc,
                            .term = &term,
                            .scheme = scheme,
                            .array = array,
                            .b = 4,
                            .h = 1,
                            .i = cases[n].i,
                            .j = cases[n].j,
                            .position = cases[n].i,
                            .at = (double)cases[n].i,
                            .delta = (double)(cases[n].j - cases[n].i)};
        char text[200];
        assert_non_null(scheme->example);
        scheme->example(&p, text, sizeof text);
        if (strcmp(text, cases[n].text) != 0)
            fail_msg("%s, query %d, key %d: \"%s\", expected \"%s\"", cases[n].term, (int)p.i, (int)p.j, text,
                     cases[n].text);
    }
}

/* A term with a calculation that is new in src/terms needs a case here. */
static void every_calculation_is_tested(void **state)
{
    (void)state;
    for (rp_term_kind kind = RP_TERM_NONE + 1; kind < RP_TERM_COUNT; kind++) {
        bool found = !rpi_scheme_of(kind)->example || kind == RP_TERM_BUCKET; /* has the function of T5 */
        for (size_t n = 0; n < sizeof cases / sizeof *cases && !found; n++)
            found = strncmp(cases[n].term, rp_term_name(kind), strcspn(cases[n].term, ",")) == 0;
        if (!found)
            fail_msg("%s has a calculation, but no case here", rp_term_name(kind));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(texts_are_exact),
        cmocka_unit_test(every_calculation_is_tested),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
