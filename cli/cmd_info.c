/* cmd_info.c -- relpos info: what this build and this machine have.
 * SPDX-License-Identifier: Apache-2.0 */
#include "cli.h"
#include <string.h>

enum { JSON = CLI_OWN, MEASURE };

static const cli_option options[] = {
    {"json", JSON, NULL, "one JSON object"},
    {"measure", MEASURE, NULL, "also how fast this machine multiplies and reads; takes a second"},
    {0},
};

#if defined(__clang__)
#define COMPILER __VERSION__
#elif defined(__GNUC__)
#define COMPILER "gcc " __VERSION__
#else
#define COMPILER "unknown compiler"
#endif
#ifndef RELPOS_BUILD_TYPE /* the build system says */
#define RELPOS_BUILD_TYPE "unknown"
#endif

static const struct {
    const char *name, *option, *meaning;
} masks[] = {
#define RP_X(ENUM, name, option, meaning) {#name, option, meaning},
#include <relpos/masks.def>
#undef RP_X
};
enum { N_MASKS = sizeof masks / sizeof *masks };

/* What --measure finds, on the default pool. */
typedef struct speeds {
    double gflops[16], bytes_per_s; /* gflops of rp_isa_name(n); 0: not found */
} speeds;

static int measure(speeds *s)
{
    rp_status status = rp_measure_bandwidth(NULL, &s->bytes_per_s);
    for (int n = 0; n < 16 && rp_isa_name(n) && status == RP_OK; n++)
        if (rp_isa_found(rp_isa_name(n)) == 1)
            status = rp_measure_peak(rp_isa_name(n), NULL, &s->gflops[n]);
    return status == RP_OK ? CLI_OK : cli_error(CLI_FAILED, "info: %s", rp_last_error());
}

static void print_text(const speeds *s)
{
    printf("relpos %s\n\n%-18s", rp_version(), "instruction sets");
    for (int n = 0; rp_isa_name(n); n++)
        printf("%s%s %s", n ? ", " : "", rp_isa_name(n), rp_isa_found(rp_isa_name(n)) == 1 ? "yes" : "no");
    printf("\n%-18s%s\n%-18s%d\n%-18s%s, %s\n", "chosen", rp_isa_default(), "threads", (int)rp_pool_threads(NULL),
           "build", COMPILER, RELPOS_BUILD_TYPE);
    for (int n = 0; s && n < 16 && rp_isa_name(n); n++)
        if (s->gflops[n] > 0)
            printf("%-18s%.1f GFLOP/s, %s\n", "multiplies", s->gflops[n], rp_isa_name(n));
    if (s)
        printf("%-18s%.1f GB/s\n", "reads", s->bytes_per_s * 1e-9);
    puts("\nPosition terms (relpos bias TERM draws the biases)");
    for (int k = RP_TERM_NONE + 1; k < RP_TERM_COUNT; k++)
        printf("  %-9s %s\n            %s\n", rp_term_name((rp_term_kind)k), rp_term_syntax((rp_term_kind)k),
               rp_term_source((rp_term_kind)k));
    puts("\nMasks: a pair attends where (query i, key j)");
    for (int n = 0; n < N_MASKS; n++)
        printf("  %-21s %s\n", masks[n].option, masks[n].meaning);
}

static void json_pair(const char *before, const char *key, const char *value)
{
    printf("%s\"%s\": ", before, key);
    cli_json_string(stdout, value);
}

static void print_json(const speeds *s)
{
    json_pair("{", "version", rp_version());
    json_pair(", ", "isa", rp_isa_default());
    fputs(", \"isas\": [", stdout);
    for (int n = 0; rp_isa_name(n); n++) {
        json_pair(n ? ", {" : "{", "name", rp_isa_name(n));
        printf(", \"found\": %s", rp_isa_found(rp_isa_name(n)) == 1 ? "true" : "false");
        if (s && n < 16 && s->gflops[n] > 0)
            printf(", \"peak_gflops\": %.6g", s->gflops[n]);
        putchar('}');
    }
    printf("], \"threads\": %d, ", (int)rp_pool_threads(NULL));
    if (s)
        printf("\"bytes_per_s\": %.6g, ", s->bytes_per_s);
    json_pair("\"build\": {", "compiler", COMPILER);
    json_pair(", ", "type", RELPOS_BUILD_TYPE);
    fputs("}, \"terms\": [", stdout);
    for (int k = RP_TERM_NONE + 1; k < RP_TERM_COUNT; k++) {
        json_pair(k > RP_TERM_NONE + 1 ? ", {" : "{", "name", rp_term_name((rp_term_kind)k));
        json_pair(", ", "syntax", rp_term_syntax((rp_term_kind)k));
        json_pair(", ", "source", rp_term_source((rp_term_kind)k));
        putchar('}');
    }
    fputs("], \"masks\": [", stdout);
    for (int n = 0; n < N_MASKS; n++) {
        json_pair(n ? ", {" : "{", "name", masks[n].name);
        json_pair(", ", "option", masks[n].option);
        json_pair(", ", "meaning", masks[n].meaning);
        putchar('}');
    }
    puts("]}");
}

static int on_option(void *context, int key, const char *value)
{
    (void)value;
    ((bool *)context)[key - JSON] = true;
    return CLI_OK;
}

static int run(const cli_command *self, int argc, char **argv)
{
    bool asked[2] = {false}; /* JSON, MEASURE */
    int n_args;
    speeds s = {0};
    int code = cli_options(self, argc, argv, on_option, asked, NULL, 0, &n_args);
    if (code >= 0)
        return code;
    code = asked[1] ? measure(&s) : CLI_OK;
    if (code == CLI_OK)
        (asked[0] ? print_json : print_text)(asked[1] ? &s : NULL);
    return code;
}

const cli_command cmd_info = {
    .name = "info",
    .summary = "version, instruction sets, threads, build, terms and masks",
    .usage = "[--json] [--measure]",
    .example = "  relpos info\n  relpos info --measure\n",
    .options = options,
    .run = run,
};
