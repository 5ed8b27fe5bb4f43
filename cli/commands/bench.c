/* bench.c -- relpos bench: time problems, and compare their speed with the peak of the machine.
 * SPDX-License-Identifier: Apache-2.0 */
#include "cli/team.h"
#include "cli/support/sample_problem.h"
#include "cli/progress.h"
#include <malloc.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { THREADS = CLI_FIRST_KEY, ISA, JSON, SECONDS, PROCESSOR, MPI };

static const cli_option options[] = {
    {"threads", THREADS, "N", "use N threads; default 1"},
    {"isa", ISA, "NAME", "use this instruction set (relpos info lists them); default: RELPOS_ISA, else the best found"},
    {"seconds", SECONDS, "S", "spend S seconds on all problems together; default: 5 for each"},
    {"processor", PROCESSOR, NULL, "measure processor time instead of wall time, for a machine that others use"},
    {"mpi", MPI, NULL, "time each problem over all processes that mpirun started, and in one of them"},
    {"json", JSON, NULL, "print one JSON object for each problem, one per line"},
    {0},
};

typedef struct request {
    int64_t threads;
    const char *isa;
    bool json, processor, mpi;
    double seconds;
} request;

static int on_option(void *context, int key, const char *value)
{
    request *r = context;
    switch (key) {
    case THREADS: return cli_integer("--threads", value, 1, RP_MAX_THREADS, &r->threads);
    case ISA: return cli_isa(value, &r->isa);
    case JSON: r->json = true; return CLI_OK;
    case PROCESSOR: r->processor = true; return CLI_OK;
    case MPI: r->mpi = true; return CLI_OK;
    case SECONDS: {
        const int code = cli_real("--seconds", value, &r->seconds);
        if (code == CLI_OK && !(r->seconds > 0 && r->seconds < 1e6))
            return cli_error(CLI_USAGE, "--seconds: %s is out of range (above 0, below a million)", value);
        return code;
    }
    default: return -1;
    }
}

/* Return resident memory in bytes: its peak since the last reset for "VmHWM:", its current size for "VmRSS:". Return -1
 * if unknown. */
static double memory(const char *field)
{
    char line[256];
    double kib = -1;
    FILE *f = fopen("/proc/self/status", "re");
    while (f && fgets(line, sizeof line, f))
        if (strncmp(line, field, strlen(field)) == 0)
            kib = (double)strtoll(line + strlen(field), NULL, 10);
    if (f)
        fclose(f);
    return kib < 0 ? -1 : kib * 1024;
}

/* Reset the recorded peak of resident memory to the current size. Return true on success. */
static bool reset_peak(void)
{
    FILE *f = fopen("/proc/self/clear_refs", "we");
    const bool done = f && fputs("5", f) >= 0;
    return (f ? fclose(f) == 0 : false) && done;
}

enum { MAX_RUNS = 1000 };

typedef struct measured {
    problem p;
    rp_plan *plan;
    int runs;
    double ms[MAX_RUNS], bytes_peak;
    double computed; /* pairs whose scores are computed, as a fraction of the pairs that masks allow; 0: unknown */
} measured;

static int refused(const rp_desc *d)
{
    char message[512];
    return cli_error(CLI_FAILED, "bench: %s (see relpos info)", problem_words(d, message));
}

static int prepare(measured *m, const char *text, const request *r, rp_pool *pool)
{
    char err[512];
    int code = problem_parse(&m->p, text, err);
    if (code != 0)
        return cli_error(code, "%s", err);
    m->p.desc.isa = r->isa;
    if (problem_fill(&m->p, 1, err) != 0)
        return cli_error(CLI_FAILED, "%s", err);
    if (rp_plan_create(&m->plan, &m->p.desc) != RP_OK)
        return refused(&m->p.desc);
    m->p.t.pool = pool;
    if ((m->p.pass & (PROBLEM_FORWARD | PROBLEM_BACKWARD)) == PROBLEM_BACKWARD &&
        rp_attend(m->plan, &m->p.t, NULL) != RP_OK) /* as in training, the backward pass reads out and lse */
        return refused(&m->p.desc);
    if (m->p.pass & PROBLEM_FORWARD) {
        rp_tensors counted = m->p.t;
        int64_t pairs[2];
        counted.pairs = pairs;
        if (rp_attend(m->plan, &counted, NULL) != RP_OK)
            return refused(&m->p.desc);
        m->computed = pairs[0] > 0 ? (double)pairs[1] / (double)pairs[0] : 0;
    }
    malloc_trim(0); /* return freed memory; if this problem reused it, the peak would not include it */
    const bool exact = reset_peak();
    const double before = memory("VmRSS:");
    if (problem_run(&m->p, m->plan) != RP_OK)
        return refused(&m->p.desc);
    m->bytes_peak = exact && before >= 0           ? fmax(memory("VmHWM:") - before, 0)
                    : m->p.pass & PROBLEM_BACKWARD ? (double)rp_plan_backward_size(m->plan, pool)
                                                   : (double)rp_plan_work_size(m->plan, pool);
    return CLI_OK;
}

static void report(const measured *m, const request *r, double peak)
{
    double ms[MAX_RUNS];
    memcpy(ms, m->ms, sizeof ms);
    qsort(ms, (size_t)m->runs, sizeof *ms, cli_by_size);
    const double median = m->runs % 2 ? ms[m->runs / 2] : (ms[m->runs / 2 - 1] + ms[m->runs / 2]) / 2;
    const double gflops = problem_flops(&m->p) / median * 1e-6;
    if (r->json) {
        printf("{\"problem\": ");
        cli_json_string(stdout, m->p.text);
        printf(", \"isa\": \"%s\", \"threads\": %lld, \"runs\": %d", rp_plan_isa(m->plan), (long long)r->threads,
               m->runs);
        cli_json_numbers(stdout, (cli_json_member[]){{"ms", "%.6g", median},
                                                     {"ms_min", "%.6g", ms[0]},
                                                     {"ms_max", "%.6g", ms[m->runs - 1]},
                                                     {"gflops", "%.6g", gflops},
                                                     {"peak_gflops", "%.6g", peak},
                                                     {"share_of_peak", "%.4f", peak > 0 ? gflops / peak : 0},
                                                     {"bytes_per_s", "%.6g", 1e3 * problem_bytes(&m->p) / median},
                                                     {"bytes_peak", "%.0f", m->bytes_peak},
                                                     {"pairs_computed", "%.4f", m->computed},
                                                     {0}});
        printf(", \"clock\": \"%s\"}\n", r->processor ? "processor" : "wall");
    } else {
        char computed[48] = "";
        if (m->computed > 0 && m->computed < 1)
            snprintf(computed, sizeof computed, "  pairs computed: %.1f %%", 100 * m->computed);
        printf("%-52s %9.3f ms  (%.3f to %.3f, %d runs)  %7.1f GFLOP/s  %5.1f %% of peak  %6.1f MB besides tensors%s\n",
               m->p.text, median, ms[0], ms[m->runs - 1], m->runs, gflops, peak > 0 ? 100 * gflops / peak : 0,
               m->bytes_peak * 1e-6, computed);
    }
}

/* Check that --mpi was given if and only if there are several processes. */
static int check_team(const request *r)
{
    if (r->mpi && cli_team_ranks() == 1)
        return cli_error(CLI_USAGE, "--mpi: there is only one process (write mpirun -n 2 relpos bench --mpi ...)");
    if (!r->mpi && cli_team_ranks() > 1)
        return cli_error(CLI_USAGE, "bench: mpirun started %d processes (give --mpi to time problems over all of them)",
                         (int)cli_team_ranks());
    if (r->mpi && r->processor)
        return cli_error(CLI_USAGE, "--mpi: --processor measures only one process (omit it)");
    return CLI_OK;
}

static int run_in_team(const cli_command *self, int argc, char **argv)
{
    request r = {.threads = 1};
    const char *texts[64];
    int n, code = cli_options(self, argc, argv, on_option, &r, texts, 64, &n);
    if (code >= 0)
        return code;
    if (n == 0)
        return cli_error(CLI_USAGE, "bench: no problem was given (write relpos bench fwd:f32:b1h8q4096k4096d64:t5)");
    if (check_team(&r) != CLI_OK)
        return CLI_USAGE;
    if (r.mpi)
        return cli_bench_ranks(texts, n, r.threads, r.isa, r.seconds, r.json);
    double (*const now)(void) = r.processor ? cli_processor_seconds : cli_seconds;
    rp_pool *pool = NULL;
    double peak = 0;
    measured *m = calloc((size_t)n, sizeof *m);
    code = CLI_OK;
    if (!m || rp_pool_create(&pool, (int32_t)r.threads) != RP_OK)
        code = cli_error(CLI_FAILED, "bench: out of memory while preparing the problems (give fewer)");
    for (int x = 0; code == CLI_OK && x < n; x++)
        code = prepare(&m[x], texts[x], &r, pool);
    for (int x = 0; code == CLI_OK && x < n && peak == 0; x++) /* the reference path has no peak */
        if (strcmp(rp_plan_isa(m[x].plan), "reference") != 0 &&
            rp_measure_peak(rp_plan_isa(m[x].plan), pool, &peak) != RP_OK)
            code = refused(&m[x].p.desc);
    /* Alternate between the problems, so a slow period of the machine affects all of them. */
    const double seconds = r.seconds > 0 ? r.seconds : 5.0 * n, end = cli_seconds() + seconds;
    cli_progress progress = {.what = "bench"};
    cli_progress_show(&progress, 0); /* start measuring the time */
    for (int round = 0; code == CLI_OK && round < MAX_RUNS && (round < 3 || cli_seconds() < end); round++)
        for (int x = 0; x < n; x++) {
            const double start = now();
            if (problem_run(&m[x].p, m[x].plan) != RP_OK)
                code = refused(&m[x].p.desc);
            m[x].ms[m[x].runs++] = 1e3 * (now() - start);
            cli_progress_show(&progress, fmin(1, 1 - (end - cli_seconds()) / seconds));
        }
    cli_progress_end(&progress);
    if (code == CLI_OK && !r.json)
        printf("%s, %lld thread%s, measured peak %.1f GFLOP/s\n", rp_plan_isa(m[0].plan), (long long)r.threads,
               r.threads > 1 ? "s" : "", peak);
    for (int x = 0; code == CLI_OK && x < n; x++)
        report(&m[x], &r, peak);
    for (int x = 0; m && x < n; x++) {
        problem_free(&m[x].p);
        rp_plan_destroy(m[x].plan);
    }
    rp_pool_destroy(pool);
    free(m);
    return code;
}

static int run(const cli_command *self, int argc, char **argv)
{
    return cli_team_run(self, argc, argv, run_in_team);
}

const cli_command cmd_bench = {
    .name = "bench",
    .summary = "time problems and compare them with the machine's peak",
    .usage = "PROBLEM... [options]",
    .example =
        "  relpos bench fwd:f32:b1h8q4096k4096d64 fwd:f32:b1h8q4096k4096d64:t5 fwd:f32:b1h8q4096k4096d64::causal\n"
        "  relpos bench fwdbwd:bf16:b1h8q2048k2048d64:alibi:causal --threads 2\n"
        "  relpos bench fwd:f32:b1h8q2048k2048d64:t5 jvp:f32:b1h8q2048k2048d64:t5\n"
        "  A problem is pass:type:sizes:terms:masks. Runs of several problems are interleaved.\n",
    .options = options,
    .shared = true,
    .run = run,
};
