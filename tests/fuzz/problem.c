/* problem.c -- generates random problems from the input. Every instruction set of this machine computes each problem,
 * forward and backward. Results that must have equal bits are compared, and a sanitizer checks memory accesses.
 * SPDX-License-Identifier: Apache-2.0 */
#include "cli/support/random_problem.h"
#include "cli/support/sample_problem.h"
#include "tests/fuzz/fuzz.h"

static void attend(problem *p, const rp_plan *plan, const rp_pool *pool, void *out)
{
    rp_tensors t = p->t;
    const size_t bytes = (size_t)problem_size(&t.out) * rp_dtype_size(t.out.dtype);
    memset(t.out.data, 0xee, bytes);
    t.pool = (rp_pool *)(uintptr_t)pool;
    PROMISE(rp_attend(plan, &t, NULL) == RP_OK, "%s: %s", p->text, rp_last_error());
    memcpy(out, t.out.data, bytes);
}

static void compute(problem *p, const char *isa, rp_pool *pool)
{
    rp_plan *plan;
    const size_t bytes = (size_t)problem_size(&p->t.out) * rp_dtype_size(p->t.out.dtype);
    char *first = malloc(bytes + 1), *second = malloc(bytes + 1);
    p->desc.isa = isa;
    PROMISE(first && second, "out of memory");
    PROMISE(rp_plan_create(&plan, &p->desc) == RP_OK, "%s on %s: %s", p->text, isa, rp_last_error());
    attend(p, plan, NULL, first);
    attend(p, plan, pool, second);
    PROMISE(memcmp(first, second, bytes) == 0, "%s on %s: another number of threads changes bits", p->text, isa);
    if (p->pass & PROBLEM_BACKWARD)
        PROMISE(rp_backward(plan, &p->t, &p->g, NULL) == RP_OK, "%s on %s: %s", p->text, isa, rp_last_error());
    rp_plan_destroy(plan);
    free(first);
    free(second);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static rp_pool *pool;
    problem_dice dice = {.bytes = data, .size = size};
    problem p;
    char text[512], err[512] = "";
    const char *isa;
    if (!pool)
        PROMISE(rp_pool_create(&pool, 3) == RP_OK, "%s", rp_last_error());
    problem_draw(&dice, 30000, text);
    if (problem_parse(&p, text, err) == 0 && problem_fill(&p, 1, err) == 0) {
        fuzz_valid++;
        for (int x = 0; (isa = rp_isa_name(x)); x++)
            if (rp_isa_found(isa) == 1 && strcmp(isa, "amx_emulated") != 0)
                compute(&p, isa, pool);
    } else {
        PROMISE(*err, "%s is rejected without a message", text);
    }
    problem_free(&p);
    return 0;
}
