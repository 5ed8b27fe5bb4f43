/* report.c -- relpos lab report: run the Python program lab/report. cli_find searches for it in the installation and in
 * the build folder.
 * SPDX-License-Identifier: Apache-2.0 */
#include "cli/lab/lab.h"
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const cli_option options[] = {
    {"output", 'o', "PAGE", "write a page with charts, .html or .md; default: print tables in Markdown"},
    {0},
};

static int on_option(void *context, int key, const char *value)
{
    (void)key; /* there is only one option */
    *(const char **)context = value;
    return CLI_OK;
}

static int run(const cli_command *self, int argc, char **argv)
{
    enum { MAX_FILES = 32 };
    const char *page = NULL, *paths[MAX_FILES];
    const char *set = getenv("RELPOS_PYTHON"), *python = set && *set ? set : "python3";
    char output[] = "-o", *line[MAX_FILES + 5] = {(char *)(uintptr_t)python}, script[PATH_MAX];
    int n, x = 1, code = cli_options(self, argc, argv, on_option, &page, paths, MAX_FILES, &n);
    if (code >= 0)
        return code;
    if (n == 0)
        return cli_error(CLI_USAGE, "lab report: no results were given (write relpos lab report out/length.jsonl)");
    if (!cli_find("report/__main__.py", script))
        return cli_error(CLI_FAILED, "lab report: report/__main__.py is not found: %s (install relpos again)",
                         strerror(errno));
    line[x++] = script;
    if (page) {
        line[x++] = output;
        line[x++] = (char *)(uintptr_t)page;
    }
    for (int f = 0; f < n; f++)
        line[x++] = (char *)(uintptr_t)paths[f];
    execvp(line[0], line);
    return cli_error(CLI_FAILED, "lab report: %s cannot be run: %s (install Debian's python3)", python,
                     strerror(errno));
}

const cli_command lab_report = {
    .name = "lab report",
    .summary = "show results of sweeps as tables and charts",
    .usage = "FILE... [-o PAGE]",
    .example = "  relpos lab report out/length.jsonl\n"
               "  relpos lab report out/*.jsonl -o out/report.html\n",
    .options = options,
    .run = run,
};
