/* test_random_problem.c -- random problems of `relpos verify --random` and of the fuzz target: they depend on the seed
 * or the bytes, and reach every term and mask.
 * SPDX-License-Identifier: Apache-2.0 */
#include "cli/support/random_problem.h"
#include "tests/helpers.h"

enum { DRAWN = 4000, WORK = 30000 };

static void bytes_decide(void **state)
{
    static char text[256][512];
    int different = 0;
    (void)state;
    for (int n = 0; n < 256; n++) {
        uint8_t bytes[64];
        for (size_t x = 0; x < sizeof bytes; x++)
            bytes[x] = (uint8_t)((size_t)n * 37 + x * x * 11 + x);
        problem_dice dice = {.bytes = bytes, .size = sizeof bytes}, again = dice;
        char second[512];
        problem_draw(&dice, WORK, text[n]);
        problem_draw(&again, WORK, second);
        assert_string_equal(text[n], second);
        assert_true(dice.size < sizeof bytes);
        assert_ptr_equal(dice.bytes + dice.size, bytes + sizeof bytes);
        bool seen = false;
        for (int m = 0; m < n; m++)
            seen |= strcmp(text[m], text[n]) == 0;
        different += !seen;
    }
    assert_true(different > 250);
}

static void every_term_and_mask_occurs(void **state)
{
    int terms[RP_TERM_COUNT] = {0};
    problem_dice dice = {.seed = 5};
    (void)state;
    for (int n = 0; n < DRAWN; n++) {
        char text[512], err[512] = "";
        problem p;
        problem_draw(&dice, WORK, text);
        if (problem_parse(&p, text, err) == 0)
            for (int32_t m = 0; m < p.desc.n_terms; m++)
                terms[p.desc.terms[m].kind]++;
        problem_free(&p);
    }
    for (int kind = RP_TERM_NONE + 1; kind < RP_TERM_COUNT; kind++)
        if (terms[kind] == 0)
            fail_msg("no random problem has a term of kind %d", kind);
}

static void bad_sizes_are_refused(void **state)
{
    static const struct {
        const char *text, *words;
    } cases[] = {
        {"fwd:f32:b99999999999999999999h1q1k1d1", "a number is missing in"}, /* more than 63 bits */
        {"fwd:f32:b-99999999999999999999h1q1k1d1", "a number is missing in"},
        {"fwd:f32:bh1q1k1d1", "a number is missing in"},
        {"fwd:f32:b+1h1q1k1d1", "a number is missing in"},
        {"fwd:f32:b 1h1q1k1d1", "a number is missing in"},
        {"fwd:f32:b-h1q1k1d1", "a number is missing in"},
        {"fwd:f32:b1h1q1k1d1x1", "unknown size letter in"},
        {"fwd:f32:b1h1q1k1d1d1", "a size is given twice in"},
    };
    (void)state;
    for (size_t n = 0; n < sizeof cases / sizeof *cases; n++) {
        char err[512] = "";
        problem p;
        if (problem_parse(&p, cases[n].text, err) == 0 || !strstr(err, cases[n].words))
            fail_msg("%s: %s", cases[n].text, *err ? err : "not refused");
        problem_free(&p);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(bytes_decide), cmocka_unit_test(every_term_and_mask_occurs),
                                       cmocka_unit_test(bad_sizes_are_refused)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
