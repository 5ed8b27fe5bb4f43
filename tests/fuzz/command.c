/* command.c -- runs the command line; each line of the input is an argument. Commands run in an empty folder. Commands
 * that can write outside of it or run for hours are not called, and arguments with a slash are skipped.
 * SPDX-License-Identifier: Apache-2.0 */
#include "cli/cli.h"
#include "tests/fuzz/fuzz.h"
#include <dirent.h>
#include <fcntl.h>
#include <unistd.h>

enum { MAX_ARGUMENTS = 24 };

static char folder[] = "/tmp/relpos-fuzz-XXXXXX";

/* Remove the folder and the files that commands wrote to it. */
static void clean(void)
{
    DIR *d = opendir(folder);
    for (const struct dirent *e; d && (e = readdir(d));)
        unlinkat(dirfd(d), e->d_name, 0);
    if (d)
        closedir(d);
    rmdir(folder);
}

static void quieten(void)
{
    const int nothing = open("/dev/null", O_RDWR);
    PROMISE(nothing >= 0 && mkdtemp(folder) && chdir(folder) == 0, "no folder to run in");
    atexit(clean);
    dup2(nothing, STDIN_FILENO);
    dup2(nothing, STDOUT_FILENO);
    close(nothing);
}

static bool may_run(const char *name)
{
    static const char *const names[] = {"attend", "bias", "bucket", "explain", "info", "help", "t5", "nothing"};
    for (size_t n = 0; n < sizeof names / sizeof *names; n++)
        if (strcmp(names[n], name) == 0)
            return true;
    return *name == '-';
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static bool quiet;
    if (!quiet)
        quieten();
    quiet = true;
    if (memchr(data, '/', size) || size > 400)
        return 0;
    char *text = text_of(data, size), *argv[MAX_ARGUMENTS + 2] = {(char *)(uintptr_t) "relpos"};
    int argc = 1;
    for (char *at = text; at && argc <= MAX_ARGUMENTS; argc++) {
        argv[argc] = at;
        at = strchr(at, '\n');
        if (at)
            *at++ = 0;
    }
    if (argc > 1 && may_run(argv[1])) {
        const int code = rp_cli_main(argc, argv);
        PROMISE(code >= 0 && code <= 2, "exit code %d", code);
        fuzz_valid += code == 0;
    }
    free(text);
    return 0;
}
