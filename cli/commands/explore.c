/* explore.c -- relpos explore: open the explorer, a page that has the library within, in a browser.
 * It may know the public headers, io, support and cli, and not the other commands.
 * SPDX-License-Identifier: Apache-2.0 */
#include "cli/cli.h"
#include <limits.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PATH = CLI_OWN };

static const cli_option options[] = {
    {"path", PATH, NULL, "only print where the page is"},
    {0},
};

static int on_option(void *context, int key, const char *value)
{
    (void)key, (void)value;
    *(bool *)context = true;
    return CLI_OK;
}

/* xdg-open knows the user's browser; true if it started one. Without a screen it would try one for terminals. */
static bool start_browser(char *page)
{
    extern char **environ;
    const char *x = getenv("DISPLAY"), *wayland = getenv("WAYLAND_DISPLAY");
    char *command[] = {(char[]){"xdg-open"}, page, NULL};
    pid_t child;
    int status;
    if (!(x && *x) && !(wayland && *wayland))
        return false;
    if (posix_spawnp(&child, command[0], NULL, NULL, command, environ) != 0)
        return false;
    return waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

static int run(const cli_command *self, int argc, char **argv)
{
    bool path_only = false;
    char page[PATH_MAX], folder[PATH_MAX], safe[PATH_MAX];
    int n_args;
    const int code = cli_options(self, argc, argv, on_option, &path_only, NULL, 0, &n_args);
    if (code >= 0)
        return code;
    if (!cli_find("relpos-explorer.html", page))
        return cli_error(
            CLI_FAILED,
            "explore: relpos-explorer.html is not there (a release has it beside the wheel, and any browser "
            "opens it; cmake --build BUILD --target explorer makes it; relpos explore finds it in %s)",
            cli_installed(folder) ? folder : "share/doc/relpos of the installation");
    if (path_only || !start_browser(page))
        printf("%s\n", io_safe(safe, sizeof safe, page));
    return CLI_OK;
}

const cli_command cmd_explore = {
    .name = "explore",
    .summary = "open the explorer, a page that computes in the browser",
    .usage = "[--path]      prints where the page is if there is no browser to open it",
    .example = "  relpos explore\n",
    .options = options,
    .run = run,
};
