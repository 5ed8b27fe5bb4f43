/* cmd_info.c -- relpos info: what this build and this machine have.
 * SPDX-License-Identifier: Apache-2.0 */
#include "cli.h"
#include <string.h>

enum { JSON = CLI_OWN };

static const cli_option options[] = {
    {"json", JSON, NULL, "one JSON object"},
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

static void print_text(void)
{
    printf("relpos %s\n\n%-18s", rp_version(), "instruction sets");
    for (int n = 0; rp_isa_name(n); n++)
        printf("%s%s %s", n ? ", " : "", rp_isa_name(n), rp_isa_found(rp_isa_name(n)) == 1 ? "yes" : "no");
    printf("\n%-18s%s\n%-18s%d\n%-18s%s, %s\n", "chosen", rp_isa_default(), "threads", (int)rp_pool_threads(NULL),
           "build", COMPILER, RELPOS_BUILD_TYPE);
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

static void print_json(void)
{
    json_pair("{", "version", rp_version());
    json_pair(", ", "isa", rp_isa_default());
    fputs(", \"isas\": [", stdout);
    for (int n = 0; rp_isa_name(n); n++) {
        json_pair(n ? ", {" : "{", "name", rp_isa_name(n));
        printf(", \"found\": %s}", rp_isa_found(rp_isa_name(n)) == 1 ? "true" : "false");
    }
    printf("], \"threads\": %d, ", (int)rp_pool_threads(NULL));
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
    *(bool *)context |= key == JSON;
    return CLI_OK;
}

static int run(const cli_command *self, int argc, char **argv)
{
    bool json = false;
    int n_args;
    const int code = cli_options(self, argc, argv, on_option, &json, NULL, 0, &n_args);
    if (code >= 0)
        return code;
    if (json)
        print_json();
    else
        print_text();
    return CLI_OK;
}

const cli_command cmd_info = {
    .name = "info",
    .summary = "version, instruction sets, threads, build, terms and masks",
    .usage = "[--json]",
    .example = "  relpos info\n",
    .options = options,
    .run = run,
};
