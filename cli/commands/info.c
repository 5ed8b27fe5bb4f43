/* info.c -- relpos info: print what this build and this machine support.
 * SPDX-License-Identifier: Apache-2.0 */
#include "cli/expand.h"
#include <relpos/facts.h>
#include <stdlib.h>
#include <string.h>

enum { JSON = CLI_FIRST_KEY, MEASURE, COMPLETION };

static const cli_option options[] = {
    {"json", JSON, NULL, "print one JSON object"},
    {"measure", MEASURE, NULL, "also measure how fast this machine multiplies and reads memory; takes a second"},
    {"completion", COMPLETION, "SHELL",
     "instead print a script by which bash, zsh or fish completes commands and options"},
    {0},
};

#if defined(__clang__)
#define COMPILER __VERSION__
#elif defined(__GNUC__)
#define COMPILER "gcc " __VERSION__
#else
#define COMPILER "unknown compiler"
#endif
#ifndef RELPOS_BUILD_TYPE /* defined by the build system */
#define RELPOS_BUILD_TYPE "unknown"
#endif

/* Speeds that --measure finds with all threads of the default pool. */
typedef struct speeds {
    double gflops[16], bytes_per_s; /* gflops[n]: speed of rp_isa_name(n); 0 if not available */
} speeds;

static int measure(speeds *s)
{
    rp_status status = rp_measure_bandwidth(NULL, &s->bytes_per_s);
    for (int n = 0; n < 16 && rp_isa_name(n) && status == RP_OK; n++)
        if (rp_isa_found(rp_isa_name(n)) == 1)
            status = rp_measure_peak(rp_isa_name(n), NULL, &s->gflops[n]);
    return status == RP_OK ? CLI_OK : cli_refused(CLI_FAILED, "info", NULL, "close other programs");
}

/* Return the default instruction set of f32 and f16 numbers, which may differ from rp_isa_default. */
static const char *f32_isa(void)
{
    const rp_desc d = rp_desc_init(1, 1, 1, 1, 1);
    rp_plan *plan;
    const char *isa = rp_plan_create(&plan, &d) == RP_OK ? rp_plan_isa(plan) : "";
    rp_plan_destroy(plan);
    return isa;
}

static int print_text(const speeds *s)
{
    char usage[CLI_MASK_MAX];
    printf("relpos %s\n\n%-18s", rp_version(), "instruction sets");
    for (int n = 0; rp_isa_name(n); n++)
        printf("%s%s %s", n ? ", " : "", rp_isa_name(n), rp_isa_found(rp_isa_name(n)) == 1 ? "yes" : "no");
    printf("\n%-18s%s", "chosen", rp_isa_default());
    const char *f32 = f32_isa();
    if (strcmp(f32, rp_isa_default()) != 0)
        printf("\n%-18s%s", "for f32 and f16", f32);
    printf("\n%-18s%d\n%-18s%s, %s\n", "threads", (int)rp_pool_threads(NULL), "build", COMPILER, RELPOS_BUILD_TYPE);
    for (int n = 0; s && n < 16 && rp_isa_name(n); n++)
        if (s->gflops[n] > 0)
            printf("%-18s%.1f GFLOP/s, %s\n", "multiplies", s->gflops[n], rp_isa_name(n));
    if (s)
        printf("%-18s%.1f GB/s\n", "reads", s->bytes_per_s * 1e-9);
    puts("\nPosition terms (relpos bias TERM draws the biases)");
    for (int k = RP_TERM_NONE + 1; k < RP_TERM_COUNT; k++)
        printf("  %-9s %s\n            %s\n            %s\n", rp_term_name((rp_term_kind)k),
               rp_term_syntax((rp_term_kind)k), rp_term_about((rp_term_kind)k)->formula,
               rp_term_source((rp_term_kind)k));
    puts("\nMasks: query i attends to key j where");
    for (int k = RP_MASK_NONE + 1; k < RP_MASK_COUNT; k++)
        printf("  %-21s %s\n", cli_mask_usage((rp_mask_kind)k, usage), rp_mask_info_of((rp_mask_kind)k)->meaning);
    return CLI_OK;
}

static void json_pair(const char *before, const char *key, const char *value)
{
    printf("%s\"%s\": ", before, key);
    cli_json_string(stdout, value);
}

/* Print what the registry says about a mask, as JSON; tools/masks.py reads it. */
static void json_mask(const char *before, rp_mask_kind kind)
{
    static const char *const holds[] = {
        [RP_HOLDS_TRUTH] = "truth", [RP_HOLDS_COUNTS] = "counts", [RP_HOLDS_LABELS] = "labels"};
    const rp_mask_info *m = rp_mask_info_of(kind);
    char usage[CLI_MASK_MAX];
    printf("%s{", before);
    json_pair("", "name", m->name);
    json_pair(", ", "option", cli_mask_usage(kind, usage));
    json_pair(", ", "meaning", m->meaning);
    json_pair(", ", "text", m->text);
    json_pair(", ", "kind", m->by_pair ? "pairs" : "interval");
    printf(", \"same_lengths\": %s, \"parameters\": [", m->same_lengths ? "true" : "false");
    const rp_mask_param *p;
    for (int x = 0; (p = rp_mask_param_of(kind, x)); x++) {
        json_pair(x ? ", {" : "{", "key", p->key);
        printf(", \"min\": %lld, \"max\": %lld, \"default\": %lld}", (long long)p->min, (long long)p->max,
               (long long)p->value);
    }
    fputs("], \"array\": ", stdout);
    if (m->axes) {
        json_pair("{", "axes", m->axes);
        json_pair(", ", "holds", holds[m->holds]);
    }
    fputs(m->axes ? "}" : "null", stdout);
    json_pair(", ", "sample", m->sample ? m->sample : "");
    putchar('}');
}

static int print_json(const speeds *s)
{
    json_pair("{", "version", rp_version());
    json_pair(", ", "isa", rp_isa_default());
    json_pair(", ", "isa_f32", f32_isa());
    fputs(", \"isas\": [", stdout);
    for (int n = 0; rp_isa_name(n); n++) {
        json_pair(n ? ", {" : "{", "name", rp_isa_name(n));
        printf(", \"found\": %s", rp_isa_found(rp_isa_name(n)) == 1 ? "true" : "false");
        if (s && n < 16 && s->gflops[n] > 0)
            cli_json_numbers(stdout, (cli_json_member[]){{"peak_gflops", "%.6g", s->gflops[n]}, {0}});
        putchar('}');
    }
    printf("], \"threads\": %d", (int)rp_pool_threads(NULL));
    if (s)
        cli_json_numbers(stdout, (cli_json_member[]){{"bytes_per_s", "%.6g", s->bytes_per_s}, {0}});
    json_pair(", \"build\": {", "compiler", COMPILER);
    json_pair(", ", "type", RELPOS_BUILD_TYPE);
    fputs("}, \"terms\": [", stdout);
    for (int k = RP_TERM_NONE + 1; k < RP_TERM_COUNT; k++) {
        char *text = NULL;
        const size_t size = rp_term_json((rp_term_kind)k, NULL, 0) + 1;
        if (!(text = malloc(size)))
            return cli_error(CLI_FAILED, "info: out of memory while printing (close other programs)");
        rp_term_json((rp_term_kind)k, text, size);
        printf("%s%s", k > RP_TERM_NONE + 1 ? ", " : "", text);
        free(text);
    }
    fputs("], \"masks\": [", stdout);
    for (int k = RP_MASK_NONE + 1; k < RP_MASK_COUNT; k++)
        json_mask(k > RP_MASK_NONE + 1 ? ", " : "", (rp_mask_kind)k);
    puts("]}");
    return CLI_OK;
}

typedef struct info_options {
    bool json, measure;
    const char *shell; /* of --completion; NULL if not given */
} info_options;

static int on_option(void *context, int key, const char *value)
{
    info_options *o = context;
    if (key == JSON)
        o->json = true;
    else if (key == MEASURE)
        o->measure = true;
    else
        o->shell = value;
    return CLI_OK;
}

static int run(const cli_command *self, int argc, char **argv)
{
    info_options o = {0};
    int n_args;
    speeds s = {0};
    int code = cli_options(self, argc, argv, on_option, &o, NULL, 0, &n_args);
    if (code >= 0)
        return code;
    if (o.shell && (o.json || o.measure))
        return cli_error(CLI_USAGE, "info: --completion prints a script and nothing else (leave out --%s)",
                         o.json ? "json" : "measure");
    if (o.shell)
        return cli_print_completion(o.shell);
    code = o.measure ? measure(&s) : CLI_OK;
    if (code == CLI_OK)
        code = (o.json ? print_json : print_text)(o.measure ? &s : NULL);
    return code;
}

const cli_command cmd_info = {
    .name = "info",
    .summary = "show version, instruction sets, threads, build, terms and masks",
    .usage = "[--json] [--measure] [--completion SHELL]",
    .example = "  relpos info\n  relpos info --measure\n  source <(relpos info --completion bash)\n",
    .options = options,
    .run = run,
};
