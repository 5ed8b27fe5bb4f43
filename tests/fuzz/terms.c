/* terms.c -- parses the input as the text of a term and of a problem. If it parses, its printed form must parse to the
 * same term, and creating a plan must succeed or give an error.
 * SPDX-License-Identifier: Apache-2.0 */
#include "cli/support/sample_problem.h"
#include "tests/fuzz/fuzz.h"

enum { PRINTED = 1024 };

static void term(const char *text)
{
    rp_term a, b;
    char names[RP_MAX_ARRAYS][RP_NAME_MAX], first[PRINTED], second[PRINTED];
    rp_plan *plan;
    if (rp_term_parse(text, &a, names) != RP_OK) {
        PROMISE(*rp_last_error(), "rejected without a message");
        return;
    }
    const rp_status status = rp_term_print(&a, first, sizeof first);
    PROMISE(status == RP_OK || status == RP_E_RANGE, "print: %s", rp_last_error());
    if (status == RP_OK) {
        PROMISE(rp_term_parse(first, &b, names) == RP_OK, "%s is printed, but does not parse: %s", first,
                rp_last_error());
        PROMISE(rp_term_print(&b, second, sizeof second) == RP_OK && strcmp(first, second) == 0,
                "%s is printed as %s the second time", first, second);
    }
    rp_desc d = rp_desc_init(1, 2, 5, 7, 8);
    d.terms = &a;
    d.n_terms = 1;
    if (rp_plan_create(&plan, &d) == RP_OK) {
        int32_t ndim;
        int64_t shape[RP_MAX_AXES];
        for (int x = 0; x < RP_MAX_ARRAYS; x++)
            rp_term_shape(&d, 0, x, &ndim, shape);
        rp_plan_work_size(plan, NULL);
        rp_plan_backward_size(plan, NULL);
    } else {
        PROMISE(*rp_last_error(), "rejected without a message");
    }
    rp_plan_destroy(plan);
    for (int x = 0; x < 4; x++)
        rp_bucket((int64_t[]){0, -1, INT64_MIN, INT64_MAX}[x], a.buckets, a.max_distance, a.bidirectional, a.strategy);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = text_of(data, size), err[512] = "";
    problem p;
    term(text);
    if (problem_parse(&p, text, err) != 0) {
        PROMISE(*err, "a problem is rejected without a message");
    } else {
        rp_plan *plan;
        if (rp_plan_create(&plan, &p.desc) == RP_OK)
            fuzz_valid++;
        else
            PROMISE(*rp_last_error(), "rejected without a message");
        rp_plan_destroy(plan);
    }
    free(text);
    return 0;
}
