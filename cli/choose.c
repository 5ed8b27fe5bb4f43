/* choose.c -- relpos: choose the command.
 * It may not know the options of a command.
 * SPDX-License-Identifier: Apache-2.0 */
#include "cli/cli.h"
#include "io/json.h"
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const cli_command *const commands[] = {&cmd_attend, &cmd_explain, &cmd_bias, &cmd_bucket,  &cmd_verify,
                                              &cmd_bench,  &cmd_info,    &cmd_lab,  &cmd_explore, &cmd_t5};
enum { N_COMMANDS = sizeof commands / sizeof *commands };

static void usage(FILE *to)
{
    fputs("relpos -- exact attention with relative positions\n\nUsage: relpos COMMAND [...]\n\nCommands:\n", to);
    for (int n = 0; n < N_COMMANDS; n++)
        fprintf(to, "  %-10s%s\n", commands[n]->name, commands[n]->summary);
    fputs("\nrelpos COMMAND --help shows an example and the options. Start with: relpos explain\n", to);
}

static int output_error; /* why standard output failed first, as far as that was seen */

bool cli_written(FILE *to)
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
    return fclose(to) == 0 && written && *text != NULL; /* which is NULL where it could not be cut to its size */
}

/* Whether the reader of standard output is gone. */
static bool nobody_reads(void)
{
    struct pollfd out = {STDOUT_FILENO, POLLOUT, 0};
    return output_error == EPIPE || (output_error == 0 && poll(&out, 1, 0) == 1 && (out.revents & POLLERR) != 0);
}

/* Standard output may be full or closed: then what was printed is lost, and the exit code says so. */
static int finish(int code)
{
    if (code == CLI_OK && io_json_lost())
        code = cli_error(CLI_FAILED, "out of memory: what was written may lack a part (close other programs)");
    if (cli_written(stdout))
        return code;
    if (nobody_reads())
        return code ? code : CLI_FAILED;
    return cli_error(CLI_FAILED, "standard output: %s (free some space, or write elsewhere)",
                     output_error != 0 ? strerror(output_error) : "it could not be written");
}

/* The library passes over settings it cannot use; a user who set them wants to know. */
static int check_environment(void)
{
    const char *isa = getenv("RELPOS_ISA"), *threads = getenv("RELPOS_THREADS");
    char safe[96];
    int64_t n;
    if (isa && *isa && rp_isa_found(isa) != 1)
        return cli_error(CLI_USAGE, "RELPOS_ISA: \"%s\" is %s (unset it, or name one that relpos info lists as found)",
                         io_safe(safe, sizeof safe, isa),
                         rp_isa_found(isa) < 0 ? "no instruction set" : "not on this machine");
    return threads && *threads ? cli_integer("RELPOS_THREADS", threads, 1, RP_MAX_THREADS, &n) : CLI_OK;
}

static bool asks_help(const char *word)
{
    return strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0 || strcmp(word, "help") == 0;
}

int cli_run_group(const cli_command *group, const cli_command *const *members, int n_members, void (*help)(FILE *to),
                  int argc, char **argv)
{
    char safe[96];
    if (argc < 2) {
        help(stderr);
        return CLI_USAGE;
    }
    if (asks_help(argv[1])) {
        help(stdout);
        return CLI_OK;
    }
    for (int n = 0; n < n_members; n++)
        if (strcmp(argv[1], members[n]->name + strlen(group->name) + 1) == 0)
            return members[n]->run(members[n], argc - 1, argv + 1);
    return cli_error(CLI_USAGE, "%s: no command is called \"%s\" (relpos %s --help lists them)", group->name,
                     io_safe(safe, sizeof safe, argv[1]), group->name);
}

int cli_main(int argc, char **argv)
{
    /* A file opened while 0, 1 or 2 is closed would get that number, and messages would land in it. What takes the place is
     * open the wrong way round, so that reading or writing it still is an error. */
    for (int fd = 0; fd < 3; fd++)
        if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", fd == 0 ? O_WRONLY : O_RDONLY) < 0)
            return CLI_FAILED;
    io_json_watch();
    signal(SIGPIPE, SIG_IGN); /* a broken pipe is an error of the write */
    signal(SIGXFSZ, SIG_IGN); /* so is a file that grows too big */
    if (argc < 2) {
        usage(stderr);
        return CLI_USAGE;
    }
    if (strcmp(argv[1], "--version") == 0) {
        printf("relpos %s\n", rp_version());
        return finish(CLI_OK);
    }
    if (asks_help(argv[1])) {
        usage(stdout);
        return finish(CLI_OK);
    }
    const int code = check_environment();
    if (code != CLI_OK)
        return code;
    for (int n = 0; n < N_COMMANDS; n++)
        if (strcmp(argv[1], commands[n]->name) == 0)
            return finish(commands[n]->run(commands[n], argc - 1, argv + 1));
    char safe[96];
    return cli_error(CLI_USAGE, "no command is called \"%s\" (relpos --help lists them)",
                     io_safe(safe, sizeof safe, argv[1]));
}
