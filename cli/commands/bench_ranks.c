/* bench_ranks.c -- relpos bench --mpi: time a problem over the processes that mpirun started, and in one of them. Rank
 * 0 decides how often the others run a problem, and prints.
 * SPDX-License-Identifier: Apache-2.0 */
#include "cli/progress.h"
#include "cli/support/sample_problem.h"
#include "cli/team.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_RUNS = 1000, MIN_RUNS = 3 };
#define ONE_SECONDS 40.0 /* rank 0 runs the problem by itself if this takes less time */

/* A problem over the processes. */
typedef struct shared {
    problem p;
    cli_problem words; /* for errors */
    struct rp_mpi_plan *plan;
    rp_tensors t; /* the rows of this process */
    rp_grads g;
    int runs;
    double ms[MAX_RUNS], one_ms; /* one_ms: in one process; 0: not measured */
    uint64_t sent;               /* bytes that all processes send in a run */
    int64_t max_sent;            /* bytes of the process that sends most */
} shared;

static int no_memory(void)
{
    return cli_error(CLI_FAILED, "bench: out of memory while dividing the problem (use a shorter one)");
}

/* Replace an array whose axis 2 is the sequence, if it is there, by the rows of this process. */
static int take_rows(problem *p, rp_array *a)
{
    if (a->data == NULL)
        return CLI_OK;
    const int64_t heads = a->shape[0] * a->shape[1], width = a->ndim > 3 ? a->shape[3] : 1,
                  row = width * (int64_t)rp_dtype_size(a->dtype);
    cli_span s[2];
    const int64_t shape[4] = {a->shape[0], a->shape[1], cli_team_rows(a->shape[2], cli_team_rank(), s), width};
    char *data = problem_alloc(p, (size_t)(heads * shape[2] * row) + 1), *at = data;
    for (int64_t h = 0; h < heads && data; h++)
        for (int w = 0; w < 2; w++) {
            const size_t bytes = (size_t)((s[w].to - s[w].from) * row);
            memcpy(at, (const char *)a->data + (h * a->shape[2] + s[w].from) * row, bytes);
            at += bytes;
        }
    *a = rp_array_of(data, a->dtype, a->ndim, shape);
    return data ? CLI_OK : no_memory();
}

static int prepare(shared *s, const char *text, const char *isa, rp_pool *pool)
{
    char err[512];
    int code = problem_parse(&s->p, text, err);
    if (code == 0 && s->p.pass & (PROBLEM_TANGENTS | PROBLEM_SECOND))
        return cli_error(CLI_USAGE, "--mpi: %.100s: processes share only the passes fwd, bwd and fwdbwd (omit --mpi)",
                         text);
    if (code != 0)
        return cli_error(code, "%s", err);
    if (problem_fill(&s->p, 1, err) != 0)
        return cli_error(CLI_FAILED, "%s", err);
    s->p.desc.isa = isa;
    s->p.t.pool = pool;
    s->t = s->p.t;
    s->g = s->p.g;
    cli_problem_init(&s->words);
    s->words.desc = s->p.desc;
    rp_array *arrays[] = {&s->t.q,    &s->t.k,    &s->t.v,  &s->t.out, &s->t.lse,
                          &s->g.dout, &s->g.dlse, &s->g.dq, &s->g.dk,  &s->g.dv};
    for (size_t n = 0; n < sizeof arrays / sizeof *arrays && code == CLI_OK; n++)
        code = take_rows(&s->p, arrays[n]);
    return code;
}

/* Rank 0: tell the others whether to run the problem again. Others: wait for this. Return an exit code. */
static int again(bool *go)
{
    int code = CLI_OK;
    cli_team_message m = {0};
    for (int32_t k = 1; k < cli_team_ranks() && cli_team_rank() == 0 && code == CLI_OK; k++)
        code = cli_team_send(k, TEAM_TASK, *go, NULL, 0);
    while (cli_team_rank() != 0 && m.kind != TEAM_TASK && code == CLI_OK) {
        code = cli_team_receive(0.1, &m);
        *go = m.id != 0;
        free(m.memory);
    }
    return code;
}

/* Add up on rank 0 what the processes sent. */
static int count_bytes(shared *s)
{
    const uint64_t own = s->sent;
    s->max_sent = (int64_t)own;
    if (cli_team_rank() != 0)
        return cli_team_send(0, TEAM_RESULT, (int64_t)own, NULL, 0);
    int code = CLI_OK;
    for (int32_t left = cli_team_ranks() - 1; left > 0 && code == CLI_OK;) {
        cli_team_message m;
        code = cli_team_receive(0.1, &m);
        if (code == CLI_OK && m.kind == TEAM_RESULT) {
            s->sent += (uint64_t)m.id;
            s->max_sent = m.id > s->max_sent ? m.id : s->max_sent;
            left--;
        }
        free(m.memory);
    }
    return code;
}

/* Run the problem on rank 0 by itself, if this does not take long. */
static int run_alone(shared *s)
{
    rp_plan *plan;
    if (cli_team_rank() != 0 || s->ms[0] * cli_team_ranks() > 1e3 * ONE_SECONDS)
        return CLI_OK;
    if (rp_plan_create(&plan, &s->p.desc) != RP_OK)
        return cli_refused(CLI_FAILED, "bench", &s->words, "see relpos info");
    int code = CLI_OK;
    for (int n = 0; n < MIN_RUNS && code == CLI_OK; n++) {
        const double start = cli_seconds();
        if (problem_run(&s->p, plan) != RP_OK)
            code = cli_refused(CLI_FAILED, "bench", &s->words, "see relpos info");
        const double ms = 1e3 * (cli_seconds() - start);
        s->one_ms = n == 0 || ms < s->one_ms ? ms : s->one_ms;
    }
    rp_plan_destroy(plan);
    return code;
}

/* Run the calls of the pass once, and count the bytes that this process sends. */
static int run_pass(shared *s, int pass)
{
    int code = CLI_OK;
    s->sent = 0;
    if (pass & PROBLEM_FORWARD) {
        code = cli_team_attend(&s->words, s->plan, &s->t);
        s->sent += cli_team_sent(s->plan);
    }
    if (pass & PROBLEM_BACKWARD && code == CLI_OK) {
        code = cli_team_backward(&s->words, s->plan, &s->t, &s->g);
        s->sent += cli_team_sent(s->plan);
    }
    return code;
}

/* Run a problem several times. The call returns when the slowest process has finished. */
static int run_shared(shared *s, double seconds)
{
    const double end = cli_seconds() + seconds;
    int code = cli_team_plan(&s->words, &s->plan);
    if (code == CLI_OK && !(s->p.pass & PROBLEM_FORWARD)) /* the backward pass reads out and lse */
        code = run_pass(s, PROBLEM_FORWARD);
    for (bool go = true; code == CLI_OK && go;) {
        const double start = cli_seconds();
        code = run_pass(s, s->p.pass);
        s->ms[s->runs++] = 1e3 * (cli_seconds() - start);
        go = s->runs < MAX_RUNS && (s->runs < MIN_RUNS || cli_seconds() < end);
        if (code == CLI_OK)
            code = again(&go);
    }
    if (code == CLI_OK)
        code = count_bytes(s);
    cli_team_free_plan(s->plan);
    return code == CLI_OK ? run_alone(s) : code;
}

static void report(shared *s, int64_t threads, bool json)
{
    qsort(s->ms, (size_t)s->runs, sizeof *s->ms, cli_by_size);
    const double median = s->ms[s->runs / 2], gflops = problem_flops(&s->p) / median * 1e-6;
    if (json) {
        printf("{\"problem\": ");
        cli_json_string(stdout, s->p.text);
        printf(", \"processes\": %d, \"threads\": %lld, \"runs\": %d", (int)cli_team_ranks(), (long long)threads,
               s->runs);
        cli_json_numbers(stdout, (cli_json_member[]){{"ms", "%.6g", median},
                                                     {"ms_min", "%.6g", s->ms[0]},
                                                     {"ms_max", "%.6g", s->ms[s->runs - 1]},
                                                     {"gflops", "%.6g", gflops},
                                                     {"one_process_ms", "%.6g", s->one_ms},
                                                     {"bytes_sent", "%.0f", (double)s->sent},
                                                     {"bytes_sent_max", "%.0f", (double)s->max_sent},
                                                     {0}});
        puts("}");
        return;
    }
    printf("%-52s %9.3f ms  (%.3f to %.3f, %d runs)  %7.1f GFLOP/s  %.1f MB sent, at most %.1f MB by a process",
           s->p.text, median, s->ms[0], s->ms[s->runs - 1], s->runs, gflops, (double)s->sent * 1e-6,
           (double)s->max_sent * 1e-6);
    if (s->one_ms > 0)
        printf("  one process: %.3f ms; all together are %.2f × as fast", s->one_ms, s->one_ms / s->ms[0]);
    printf("\n");
}

int cli_bench_ranks(const char *const *texts, int n, int64_t threads, const char *isa, double seconds, bool json)
{
    rp_pool *pool = NULL;
    int code = CLI_OK;
    char all[512] = "";
    for (int x = 0; x < n; x++)
        snprintf(all + strlen(all), sizeof all - strlen(all), "%s ", texts[x]);
    if (rp_pool_create(&pool, (int32_t)threads) != RP_OK)
        code = no_memory();
    if (code == CLI_OK)
        code = cli_team_agree(&(cli_team_fact){"problems", "give all processes the same problems", all}, 1);
    if (code == CLI_OK && cli_team_rank() == 0 && !json)
        printf("%d processes of %lld thread%s\n", (int)cli_team_ranks(), (long long)threads, threads > 1 ? "s" : "");
    for (int x = 0; x < n && code == CLI_OK; x++) {
        shared *s = calloc(1, sizeof *s);
        code = s ? prepare(s, texts[x], isa, pool) : no_memory();
        if (code == CLI_OK)
            code = run_shared(s, seconds > 0 ? seconds / n : 5);
        if (code == CLI_OK && cli_team_rank() == 0)
            report(s, threads, json);
        if (s)
            problem_free(&s->p);
        free(s);
    }
    cli_team_settle(code);
    rp_pool_destroy(pool);
    return code;
}
