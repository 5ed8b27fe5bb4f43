/* count.c -- runs one problem on one thread. tests/kernels/instructions.sh counts the instructions in its problem_run.
 *
 *     count PROBLEM ISA [CALLS]      for example  count fwd:f32:b1h1q512k512d64:t5 avx2
 *     count                          print the compiler
 *
 * Prints how many pairs of query and key one call attends to. The exit code is 77 if this machine lacks the instruction
 * set.
 * SPDX-License-Identifier: Apache-2.0 */
#include "cli/support/sample_problem.h"
#include <stdio.h>
#include <stdlib.h>

#if defined(__clang__)
#define COMPILER "clang " __clang_version__
#else
#define COMPILER "gcc " __VERSION__
#endif
#if defined(__x86_64__)
#define FOR "x86_64"
#else
#define FOR "another architecture"
#endif

int main(int argc, char **argv)
{
    problem p;
    rp_pool *pool = NULL;
    rp_plan *plan = NULL;
    char err[512];
    if (argc < 3) {
        puts(COMPILER " for " FOR);
        return 0;
    }
    if (rp_isa_found(argv[2]) != 1)
        return 77;
    if (problem_parse(&p, argv[1], err) != 0 || problem_fill(&p, 1, err) != 0) {
        fprintf(stderr, "%s\n", err);
        return 1;
    }
    p.desc.isa = argv[2];
    bool good = rp_pool_create(&pool, 1) == RP_OK && rp_plan_create(&plan, &p.desc) == RP_OK;
    p.t.pool = pool;
    if (good && p.pass == PROBLEM_BACKWARD) /* out and lse are available, as in training */
        good = rp_attend(plan, &p.t, NULL) == RP_OK;
    for (int calls = argc > 3 ? atoi(argv[3]) : 1; good && calls > 0; calls--)
        good = problem_run(&p, plan) == RP_OK;
    if (!good)
        fprintf(stderr, "%s\n", rp_last_error());
    p.pass = PROBLEM_FORWARD; /* two products, each with a multiplication and an addition */
    printf("%.0f\n", problem_flops(&p) / (double)(2 * (p.desc.dim_k + (p.desc.dim_v ? p.desc.dim_v : p.desc.dim_k))));
    problem_free(&p);
    rp_plan_destroy(plan);
    rp_pool_destroy(pool);
    return !good;
}
