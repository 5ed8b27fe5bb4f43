/* verify.c -- relpos verify: compare the fast paths with the reference, and check laws such as equal bits for any
 * number of threads, on each instruction set of this machine.
 * SPDX-License-Identifier: Apache-2.0 */
#include "cli/verify/verify.h"
#include "cli/progress.h"
#include "cli/support/random_problem.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { ISA = CLI_FIRST_KEY, RANDOM, SEED, JSON, VERBOSE };

static const cli_option options[] = {
    {"isa", ISA, "NAME", "check only this instruction set; default: all found"},
    {"random", RANDOM, "N", "check N random problems, drawn from the seed, instead of the list"},
    {"seed", SEED, "N", "set the seed of the random inputs; default 7"},
    {"verbose", VERBOSE, NULL, "print a line for each problem, not only for failures"},
    {"json", JSON, NULL, "print one JSON object for each problem and instruction set"},
    {0},
};

typedef struct request {
    const char *isa;
    int64_t seed;
    bool verbose, json;
    bool derivatives; /* a problem asked for the gradient of a term's array */
    int64_t random;
    int64_t checked, failed, total, refused;
    int64_t both,
        shortened; /* problems that were also computed without skipping tiles; number of those that do skip tiles */
    cli_progress progress;
    double worst; /* largest ratio of an error to its bound */
} request;

static int on_option(void *context, int key, const char *value)
{
    request *r = context;
    switch (key) {
    case ISA: return cli_isa(value, &r->isa);
    case RANDOM: return cli_integer("--random", value, 1, 1000000000, &r->random);
    case SEED: return cli_integer("--seed", value, 0, INT64_MAX, &r->seed);
    case VERBOSE: r->verbose = true; return CLI_OK;
    case JSON: r->json = true; return CLI_OK;
    default: return -1;
    }
}

/* Check one problem on one instruction set. `wrong` is the error of the reference, or NULL. */
static void verify_isa(request *r, trial *t, const char *isa, const char *wrong)
{
    char line[256] = "", found[256] = "";
    const char *where = wrong ? "reference" : "attend";
    t->p.desc.isa = isa;
    t->both = false;
    if (!wrong)
        wrong = verify_attend(t, 1, t->p.t.out.data, t->pairs);
    for (const verify_check *c = verify_checks; !wrong && c->name; c++) {
        if (!(t->p.pass & c->pass))
            continue;
        line[0] = 0;
        wrong = c->run(t, line);
        where = c->name;
        if (*line && !wrong)
            snprintf(found, sizeof found, "%s", line);
    }
    r->checked++;
    cli_progress_show(&r->progress, (double)r->checked / (double)r->total);
    r->failed += wrong != NULL;
    r->worst = fmax(r->worst, t->worst);
    r->both += t->both;
    r->shortened += t->both && t->pairs[1] < t->pairs[0];
    if (r->json) {
        printf("{\"problem\": ");
        cli_json_string(stdout, t->p.text);
        printf(", \"isa\": \"%s\", \"seed\": %lld, \"passed\": %s", isa, (long long)r->seed, wrong ? "false" : "true");
        cli_json_numbers(stdout, (cli_json_member[]){{"pairs_computed", "%.4f",
                                                      t->pairs[0] > 0 ? (double)t->pairs[1] / (double)t->pairs[0] : 1},
                                                     {0}});
        fputs(", \"found\": ", stdout);
        cli_json_string(stdout, wrong ? wrong : found);
        printf("}\n");
    } else if (wrong) {
        printf("FAILED %s: %s\n       relpos verify %s --isa %s --seed %lld\n", where, wrong, t->p.text, isa,
               (long long)r->seed);
    } else if (r->verbose) {
        printf("ok     %-8s %s: %s\n", isa, t->p.text, found);
    }
}

/* Return the next instruction set, starting at number *x, that is available and should be checked. Return NULL at the
 * end. */
static const char *next_isa(const request *r, int *x)
{
    const char *isa;
    while ((isa = rp_isa_name((*x)++)))
        if (rp_isa_found(isa) == 1 && (!r->isa || strcmp(r->isa, isa) == 0))
            return isa;
    return NULL;
}

/* Parse a problem, and generate its inputs. Return 0, or an exit code with a message in err. */
static int prepare(const request *r, trial *t, const char *text, char err[512])
{
    memset(t, 0, sizeof *t);
    int code = problem_parse(&t->p, text, err);
    if (code != 0)
        return code;
    code = problem_fill(&t->p, (uint64_t)r->seed, err);
    if (code != 0)
        problem_free(&t->p);
    return code;
}

/* Check a problem on each instruction set, then free it. */
static void verify(request *r, trial *t)
{
    t->n = problem_size(&t->p.t.out);
    for (int m = 0; m < t->p.desc.n_terms; m++)
        for (int x = 0; x < RP_MAX_ARRAYS; x++)
            r->derivatives |= t->p.g.term[m][x].data != NULL;
    const char *isa, *wrong = verify_reference(t);
    const int shared = t->p.n_memory;
    for (int x = 0; (isa = next_isa(r, &x));) {
        verify_isa(r, t, isa, wrong);
        while (t->p.n_memory > shared)
            free(t->p.memory[--t->p.n_memory]);
    }
    problem_free(&t->p);
}

/* Check random problems. If the library refuses one, check that it gives a reason, and draw another. */
static int verify_random(request *r)
{
    enum { WORK = 1000000 }; /* limit of a problem's size, at which the reference takes a few milliseconds */
    problem_dice dice = {.seed = (uint64_t)r->seed};
    trial t;
    char text[512], err[512];
    for (int64_t n = 0; n < r->random;) {
        err[0] = 0;
        problem_draw(&dice, WORK, text);
        if (prepare(r, &t, text, err) == 0) {
            verify(r, &t);
            n++;
            continue;
        }
        r->refused++;
        if (r->verbose && !r->json)
            printf("refused %s\n        %s\n", text, err);
        if (!*err)
            return cli_error(CLI_FAILED, "verify: %s was refused without a message (please report it)", text);
    }
    return CLI_OK;
}

static int run(const cli_command *self, int argc, char **argv)
{
    request r = {.seed = 7, .progress = {.what = "verify"}};
    const char *texts[64];
    char text[1024], err[512];
    int64_t n_all = 0;
    trial t;
    int n, isas = 0, code = cli_options(self, argc, argv, on_option, &r, texts, 64, &n);
    if (code >= 0)
        return code;
    if (r.random && n)
        return cli_error(CLI_USAGE, "--random: the problem %s was given too (give only one of them)", texts[0]);
    while (verify_problem((int)n_all, text))
        n_all++;
    for (int x = 0; next_isa(&r, &x);)
        isas++;
    if (isas == 0)
        return cli_error(CLI_USAGE, "--isa: %s cannot be compared with itself (name another)", r.isa);
    r.total = isas * (r.random ? r.random : n ? n : n_all);
    cli_progress_show(&r.progress, 0); /* start measuring the time */
    code = r.random ? verify_random(&r) : CLI_OK;
    for (int k = 0; code == CLI_OK && !r.random && (n ? k < n : verify_problem(k, text)); k++) {
        code = prepare(&r, &t, n ? texts[k] : text, err);
        if (code != CLI_OK)
            return cli_error(code, "%s", err);
        verify(&r, &t);
    }
    cli_progress_end(&r.progress);
    if (code == CLI_OK && !r.json)
        printf("%lld problems checked, %lld failed; largest error / bound %.3f; %lld also computed without "
               "skipping tiles: %lld of them skip some by default\n",
               (long long)r.checked, (long long)r.failed, r.worst, (long long)r.both, (long long)r.shortened);
    if (code == CLI_OK && !r.json && r.derivatives)
        printf("the derivatives of terms are part of both paths, so they were not judged here\n");
    if (code == CLI_OK && !r.json && r.random)
        printf("%lld random problems were refused with a reason and drawn again\n", (long long)r.refused);
    return code != CLI_OK ? code : r.failed ? CLI_FAILED : CLI_OK;
}

const cli_command cmd_verify = {
    .name = "verify",
    .summary = "check the fast paths against the reference on this machine",
    .usage = "[PROBLEM...] [options]      without a problem: a list that covers every term and mask\n"
             "Both paths call the same definitions and derivatives of terms, so verify cannot judge those.",
    .example = "  relpos verify\n  relpos verify fwd:f32:b1h8q33k65d64:t5,buckets=32:causal --verbose\n  relpos verify "
               "--random 1000 --seed 1\n",
    .options = options,
    .run = run,
};
