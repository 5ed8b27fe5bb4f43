/* choose.c -- relpos: select the command, check the environment variables, and report lost output.
 * SPDX-License-Identifier: Apache-2.0 */
#include "cli/cli.h"
#include "cli/team.h"
#include "io/json.h"
#include "src/base/edits.h"
#include "src/processor/processor.h"
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void usage(FILE *to)
{
    fputs("relpos -- exact attention with relative positions\n\nUsage: relpos COMMAND [...]\n\nCommands:\n", to);
    for (int n = 0; cli_commands[n]; n++)
        fprintf(to, "  %-10s%s\n", cli_commands[n]->name, cli_commands[n]->summary);
    fputs("\nrelpos COMMAND --help shows an example and the options. Start with: relpos explain\n", to);
}

static int output_error; /* errno of the first failed flush of standard output; 0 if none failed */

bool cli_flush(FILE *to)
{
    errno = 0;
    const bool flushed = fflush(to) == 0;
    const int error = errno;
    if (flushed && !ferror(to))
        return true;
    if (to == stdout && output_error == 0 && !flushed)
        output_error = error;
    return false;
}

bool cli_close_text(FILE *to, char **text)
{
    const bool written = fflush(to) == 0 && !ferror(to);
    return fclose(to) == 0 && written && *text != NULL; /* *text is NULL if the final realloc failed */
}

/* Return true if the reader of standard output has closed its end of the pipe. */
static bool reader_is_gone(void)
{
    struct pollfd out = {STDOUT_FILENO, POLLOUT, 0};
    return output_error == EPIPE || (output_error == 0 && poll(&out, 1, 0) == 1 && (out.revents & POLLERR) != 0);
}

/* Flush standard output and return the exit code. If a successful command lost output, this is CLI_FAILED. */
static int finish(int code)
{
    if (code == CLI_OK && io_json_lost())
        code =
            cli_error(CLI_FAILED, "out of memory while writing; the output may be incomplete (close other programs)");
    if (cli_flush(stdout))
        return code;
    if (reader_is_gone())
        return code ? code : CLI_FAILED;
    return cli_error(
        CLI_FAILED, "standard output: %s (%s)", output_error != 0 ? strerror(output_error) : "it cannot be written",
        output_error == EBADF ? "it is closed; give the command an output" : "free some space, or write elsewhere");
}

/* Check that every name in RELPOS_HIDE_ISA is a known processor feature. */
static int check_hidden(void)
{
    static const char *const features[] = {RPI_FEATURES};
    char safe[96], name[32];
    for (const char *at = getenv("RELPOS_HIDE_ISA"); at && *at; at += *at == ',') {
        const size_t length = strcspn(at, ",");
        size_t n = 0;
        snprintf(name, sizeof name, "%.*s", (int)(length < sizeof name ? length : sizeof name - 1), at);
        while (n < sizeof features / sizeof *features && strcmp(name, features[n]) != 0)
            n++;
        if (n == sizeof features / sizeof *features)
            return cli_error(CLI_USAGE, "RELPOS_HIDE_ISA: unknown feature \"%s\" (man relpos lists them)",
                             io_safe(safe, sizeof safe, name));
        at += length;
    }
    return CLI_OK;
}

/* Check RELPOS_ISA, RELPOS_HIDE_ISA and RELPOS_THREADS. The library ignores invalid values, so the program has to
 * report them. */
static int check_environment(void)
{
    const char *isa = getenv("RELPOS_ISA"), *threads = getenv("RELPOS_THREADS");
    char safe[96];
    int64_t n;
    if (isa && *isa && rp_isa_found(isa) != 1)
        return cli_error(CLI_USAGE, "RELPOS_ISA: \"%s\" is %s (unset it, or use one that relpos info marks yes)",
                         io_safe(safe, sizeof safe, isa),
                         rp_isa_found(isa) < 0 ? "not an instruction set" : "not available on this machine");
    if (check_hidden() != CLI_OK)
        return CLI_USAGE;
    return threads && *threads ? cli_integer("RELPOS_THREADS", threads, 1, RP_MAX_THREADS, &n) : CLI_OK;
}

static bool is_help(const char *word)
{
    return strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0 || strcmp(word, "help") == 0;
}

/* Return true if two names differ by one pair of neighbouring characters that are swapped. */
static bool swapped(const char *a, const char *b)
{
    while (*a && *a == *b) {
        a++;
        b++;
    }
    return a[0] && a[1] && b[0] && a[0] == b[1] && a[1] == b[0] && strcmp(a + 2, b + 2) == 0;
}

enum { NONE = CLI_A_WORD + 1 }; /* nothing in common */

/* Return true if `word` is one of the words of `name`, which are separated by hyphens. */
static bool has_word(const char *name, const char *word)
{
    const size_t length = strlen(word);
    for (const char *at = name; length > 0 && at; at = strchr(at, '-')) {
        at += *at == '-';
        if (strncmp(at, word, length) == 0 && (at[length] == '-' || !at[length]))
            return true;
    }
    return false;
}

bool cli_consider(cli_nearest *n, const char *given, const char *name)
{
    char lower[64] = "";
    const size_t length = strlen(given);
    for (size_t c = 0; c < length && c + 1 < sizeof lower; c++)
        lower[c] = (char)(given[c] == '_' ? '-' : given[c] >= 'A' && given[c] <= 'Z' ? given[c] + 32 : given[c]);
    const bool beginning = length > 1 && strncmp(lower, name, length) == 0; /* an ambiguous one, else getopt takes it */
    size_t edits = beginning ? 0 : swapped(lower, name) ? 1 : rpi_edits(lower, name);
    const size_t shorter = length < strlen(name) ? length : strlen(name);
    if (edits > 3 || (edits == 1 && shorter < 2) ||
        (edits > 1 && 3 * edits > shorter)) /* no typing error; perhaps a longer name, such as --num-beams */
        edits = has_word(lower, name) || has_word(name, lower) || strncmp(lower, name, strlen(name)) == 0 ? CLI_A_WORD
                                                                                                          : NONE;
    if (edits == NONE || (n->best && edits >= n->edits))
        return false;
    *n = (cli_nearest){name, edits};
    return true;
}

const cli_command *cli_command_at(int n)
{
    for (int at = 0; cli_commands[at]; at++) {
        if (!cli_commands[at]->members && n-- == 0)
            return cli_commands[at];
        for (const cli_command *const *m = cli_commands[at]->members; m && *m; m++)
            if (n-- == 0)
                return *m;
    }
    return NULL;
}

/* Print that there is no command of this name in `group`, or in the program, and suggest one. */
static int no_command(const cli_command *group, const char *given)
{
    char safe[96];
    const char *full = NULL; /* the name with that of its group */
    static const char *const options[] = {"--version", "--help"};
    cli_nearest near = {0};
    io_safe(safe, sizeof safe, given);
    for (const cli_command *const *m = group ? group->members : NULL; m && *m; m++)
        if (cli_consider(&near, given, (*m)->name + strlen(group->name) + 1))
            full = (*m)->name;
    for (int n = 0; cli_commands[n]; n++)
        if (cli_consider(&near, given, cli_commands[n]->name))
            full = cli_commands[n]->name;
    for (int n = 0; cli_command_at(n); n++) {
        const char *name = cli_command_at(n)->name, *space = strchr(name, ' ');
        if (cli_consider(&near, given, space ? space + 1 : name))
            full = name;
    }
    for (size_t o = 0; !group && given[0] == '-' && o < sizeof options / sizeof *options; o++)
        if (cli_consider(&near, given, options[o]))
            full = options[o];
    if (full)
        return cli_error(CLI_USAGE, "%s%sno command is called \"%s\" (did you mean relpos %s?)",
                         group ? group->name : "", group ? ": " : "", safe, full);
    return cli_error(CLI_USAGE, "%s%sno command is called \"%s\" (relpos%s%s --help lists them)",
                     group ? group->name : "", group ? ": " : "", safe, group ? " " : "", group ? group->name : "");
}

int cli_run_group(const cli_command *group, void (*help)(FILE *to), int argc, char **argv)
{
    if (argc < 2) {
        help(stderr);
        return CLI_USAGE;
    }
    if (is_help(argv[1])) {
        if (cli_team_prints())
            help(stdout);
        return CLI_OK;
    }
    for (const cli_command *const *m = group->members; *m; m++)
        if (strcmp(argv[1], (*m)->name + strlen(group->name) + 1) == 0)
            return (*m)->run(*m, argc - 1, argv + 1);
    return no_command(group, argv[1]);
}

int rp_cli_main(int argc, char **argv)
{
    /* If descriptor 0, 1 or 2 is closed, the next file opened would get its number, and messages would end up in that
     * file. Open /dev/null there, in the wrong access mode, so reading 0 and writing 1 or 2 still fail. */
    for (int fd = 0; fd < 3; fd++)
        if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", fd == 0 ? O_WRONLY : O_RDONLY) < 0)
            return CLI_FAILED;
    io_json_watch();
    cli_catch_bus_errors();
    signal(SIGPIPE, SIG_IGN); /* writing to a closed pipe then returns an error */
    signal(SIGXFSZ, SIG_IGN); /* exceeding the file size limit then returns an error */
    if (argc < 2) {
        usage(stderr);
        return CLI_USAGE;
    }
    if (strcmp(argv[1], "--version") == 0) {
        if (cli_team_prints())
            printf("relpos %s\n", rp_version());
        return finish(CLI_OK);
    }
    if (is_help(argv[1])) {
        if (cli_team_prints())
            usage(stdout);
        return finish(CLI_OK);
    }
    const int code = check_environment();
    if (code != CLI_OK)
        return code;
    for (int n = 0; cli_commands[n]; n++)
        if (strcmp(argv[1], cli_commands[n]->name) == 0)
            return finish(cli_run(cli_commands[n], argc - 1, argv + 1));
    return finish(no_command(NULL, argv[1]));
}
