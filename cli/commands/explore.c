/* explore.c -- relpos explore: open the explorer in a browser. The explorer is a web page that contains the library.
 * SPDX-License-Identifier: Apache-2.0 */
#include "cli/cli.h"
#include <limits.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PATH = CLI_FIRST_KEY };

static const cli_option options[] = {
    {"path", PATH, NULL, "print the path of the page instead of opening it"},
    {0},
};

static int on_option(void *context, int key, const char *value)
{
    (void)key, (void)value;
    *(bool *)context = true;
    return CLI_OK;
}

/* Open the page with xdg-open. Return true on success. Without a display do nothing, because xdg-open would start a
 * text browser in the terminal. */
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

#define PACKAGES "clang-19 lld-19 wasi-libc libclang-rt-19-dev-wasm32" /* of Debian, for WebAssembly */

/* Print the command that builds the page, and return CLI_FAILED. */
static int no_page(void)
{
    char folder[PATH_MAX], safe[PATH_MAX];
    if (cli_built(folder)) {
        io_safe(safe, sizeof safe, folder);
        return cli_error(CLI_FAILED,
                         "explore: relpos-explorer.html is not built yet (run  apt install " PACKAGES
                         " && cmake '%s' && cmake --build '%s' --target explorer)",
                         safe, safe);
    }
    return cli_error(
        CLI_FAILED,
        "explore: relpos-explorer.html is not in this installation (in the source folder, run  apt install " PACKAGES
        " && cmake -S . -B build && cmake --build build --target explorer  and put "
        "build/web/relpos-explorer.html in %s)",
        cli_installed(folder) ? io_safe(safe, sizeof safe, folder) : "share/doc/relpos of the installation");
}

static int run(const cli_command *self, int argc, char **argv)
{
    bool path_only = false;
    char page[PATH_MAX], safe[PATH_MAX];
    int n_args;
    const int code = cli_options(self, argc, argv, on_option, &path_only, NULL, 0, &n_args);
    if (code >= 0)
        return code;
    if (!cli_find("relpos-explorer.html", page))
        return no_page();
    if (path_only || !start_browser(page))
        printf("%s\n", io_safe(safe, sizeof safe, page));
    return CLI_OK;
}

const cli_command cmd_explore = {
    .name = "explore",
    .summary = "open the explorer, a page that computes in the browser",
    .usage = "[--path]      without a browser: print the path of the page",
    .example = "  relpos explore\n",
    .options = options,
    .run = run,
};
