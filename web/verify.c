/* verify.c -- relpos verify as a separate program for WebAssembly and Windows. Contains simple versions of the
 * functions that cli/verify uses from the rest of the program.
 * SPDX-License-Identifier: Apache-2.0 */
#include "cli/cli.h"
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

extern const cli_command cmd_verify; /* of cli/verify/verify.c */

int cli_options(const cli_command *c, int argc, char **argv,
                int (*on_option)(void *context, int key, const char *value), void *context, const char **args,
                int max_args, int *n_args)
{
    *n_args = 0;
    for (int n = 1; n < argc; n++) {
        const cli_option *o = c->options;
        while (o->name && (strncmp(argv[n], "--", 2) != 0 || strcmp(argv[n] + 2, o->name) != 0))
            o++;
        if (!o->name && *n_args < max_args)
            args[(*n_args)++] = argv[n];
        else if (!o->name || (o->arg && n + 1 == argc))
            return cli_error(CLI_USAGE, "verify: %s is not understood (give problems, or options with their values)",
                             argv[n]);
        else if (on_option(context, o->key, o->arg ? argv[++n] : NULL) != CLI_OK)
            return CLI_USAGE;
    }
    return -1;
}

int cli_error(int code, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    vfprintf(stderr, format, list);
    va_end(list);
    fputc('\n', stderr);
    return code;
}

int cli_isa(const char *text, const char **isa)
{
    *isa = text;
    return rp_isa_found(text) == 1 ? CLI_OK
                                   : cli_error(CLI_USAGE, "--isa: \"%s\" is not available (name another)", text);
}

int cli_integer(const char *option, const char *text, int64_t min, int64_t max, int64_t *value)
{
    char *end;
    *value = strtoll(text, &end, 10);
    return !*end && *value >= min && *value <= max ? CLI_OK
                                                   : cli_error(CLI_USAGE, "%s: \"%s\" is out of range", option, text);
}

void cli_json_string(FILE *to, const char *text) /* problem strings contain no characters that JSON would escape */
{
    fprintf(to, "\"%s\"", text);
}

void cli_json_numbers(FILE *to, const cli_json_member *members)
{
    for (const cli_json_member *m = members; m->name != NULL; m++) {
        fprintf(to, ", \"%s\": ", m->name);
        if (isfinite(m->x))
            fprintf(to, m->format, m->x);
        else
            fputs("null", to);
    }
}

int main(int argc, char **argv)
{
    return cmd_verify.run(&cmd_verify, argc, argv);
}
