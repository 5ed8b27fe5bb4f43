/* test_option_words.c -- errors about arrays use the words of the command line: the option, the term's key, and the
 * name of the array in the file. Every array of every term and mask is given a wrong shape and a wrong type.
 * SPDX-License-Identifier: Apache-2.0 */
#include "tests/helpers.h"

#include "cli/cli.h"

static const char *const texts[] = {
    "table,left=1,right=1,q_positions=x,k_positions=x+t5,table=x,q_positions=x+bucket+log,q_positions=x+linear,k_"
    "positions=x:",
    "alibi,slopes=x,q_positions=x+dense+rope,scaling=longrope,factor=2,original_max_position_embeddings=4,q_positions="
    "x:",
    "relkey,left=1,right=1,q_positions=x+relval,left=1,right=1,k_positions=x+kerple,k_positions=x+sandwich,dim=4,q_"
    "positions=x:",
    "fire,c=1,L=2,width=3,width2=2,q_positions=x+real,max_distance=2,q_positions=x,k_position_mask=x+band+forget+sink:",
    "swin,grid=2x3+axial,grid=2x3+axialkey,grid=2x3:",
    "xl:",
    "deberta,span=2:",
};

/* Describe the same problem by options. Array x of term n is called "in_n_x", the array of a mask "in_mask". */
static void by_options(cli_problem *c, const problem *p)
{
    char text[512], name[64];
    cli_problem_init(c);
    for (int32_t n = 0; n < p->desc.n_terms; n++) {
        const rp_term_kind kind = p->terms[n].kind;
        const bool bias = rp_term_is_bias(kind);
        good(rp_term_print(&p->terms[n], text, sizeof text - 200));
        for (int x = 0; x < RP_MAX_ARRAYS; x++)
            if (p->t.term[n][x].data)
                snprintf(text + strlen(text), sizeof text - strlen(text), ",%s=in_%d_%d", rp_term_array(kind, x),
                         (int)n, x);
        const char *rest = strchr(text, ',') ? strchr(text, ',') + 1 : "";
        snprintf(name, sizeof name, "in_%d_0", (int)n);
        assert_int_equal(cli_problem_option(c, bias ? CLI_BIAS : CLI_TERM + (int)kind,
                                            bias                   ? text
                                            : kind == RP_TERM_SINK ? name
                                                                   : rest),
                         CLI_OK);
    }
    for (int32_t n = 0; n < p->desc.n_masks; n++) {
        const rp_mask_info *info = rp_mask_info_of(p->masks[n].kind);
        assert_int_equal(cli_problem_option(c, CLI_MASK + (int)p->masks[n].kind, info->axes ? "in_mask" : info->sample),
                         CLI_OK);
    }
}

static void refused_as(const problem *p, cli_problem *c, const rp_plan *plan, const char *option, const char *name)
{
    char text[CLI_WORDS_MAX];
    if (rp_attend(plan, &p->t, NULL) == RP_OK)
        wrong(p, "any", "%s %s is taken however it is", option, name);
    cli_words(c, text);
    if (strchr(text, '[') || strstr(text, "(of ") || strncmp(text, option, strlen(option)) != 0 || !strstr(text, name))
        wrong(p, "any", "\"%s\" does not name %s and %s, or names C", text, option, name);
}

static void each_array(problem *p)
{
    cli_problem c;
    rp_plan *plan;
    char option[CLI_MASK_MAX + 8], mask[CLI_MASK_MAX], name[64];
    by_options(&c, p);
    good(rp_plan_create(&plan, &p->desc));
    for (int32_t n = 0; n < p->desc.n_terms + p->desc.n_masks; n++)
        for (int x = 0; x < (n < p->desc.n_terms ? RP_MAX_ARRAYS : 1); x++) {
            const bool term = n < p->desc.n_terms;
            rp_array *a = term ? &p->t.term[n][x] : &p->t.mask[n - p->desc.n_terms];
            const rp_array kept = *a;
            if (!a->data)
                continue;
            snprintf(name, sizeof name, term ? "in_%d_%d" : "in_mask", (int)n, x);
            if (term)
                snprintf(option, sizeof option, "--%s%s", rp_term_is_bias(p->terms[n].kind) ? "bias " : "",
                         rp_term_name(p->terms[n].kind));
            else
                snprintf(option, sizeof option, "--%s ", cli_mask_option(p->masks[n - p->desc.n_terms].kind, mask));
            a->shape[a->ndim - 1] += 7;
            refused_as(p, &c, plan, option, name);
            *a = kept;
            a->dtype = (rp_dtype)99;
            refused_as(p, &c, plan, option, name);
            *a = kept;
        }
    rp_plan_destroy(plan);
}

static void arrays_are_named_as_written(void **state)
{
    problem p;
    (void)state;
    for (size_t n = 0; n < sizeof texts / sizeof *texts; n++) {
        pose(&p, 1, "fwd:f32:b2h4q6k6d8:%s", texts[n]);
        each_array(&p);
        problem_free(&p);
    }
    for (int k = RP_MASK_NONE + 1; k < RP_MASK_COUNT; k++) {
        pose(&p, 1, "fwd:f32:b2h4q6k6d8::%s", problem_mask((rp_mask_kind)k).text);
        each_array(&p);
        problem_free(&p);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(arrays_are_named_as_written)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
