/* test_progress.c -- the progress bar for lines is shown on a terminal, unless the output goes to the same terminal.
 * SPDX-License-Identifier: Apache-2.0 */
#include "tests/helpers.h"

#include "cli/t5/t5.h"

#include <stdlib.h>
#include <unistd.h>

/* Replace isatty of the C library: standard output and standard error are always terminals. */
__attribute__((visibility("default"))) int isatty(int fd)
{
    return fd == STDOUT_FILENO || fd == STDERR_FILENO;
}

/* Return how many bytes are shown on the terminal 3 seconds after the start, when half of the lines have been read. */
static long bytes_shown(bool to_terminal)
{
    char *memory = NULL;
    size_t size;
    FILE *terminal = tmpfile();
    const int was[2] = {dup(STDOUT_FILENO), dup(STDERR_FILENO)};
    assert_non_null(terminal);
    fflush(stdout);
    fflush(stderr);
    dup2(fileno(terminal), STDOUT_FILENO);
    dup2(fileno(terminal), STDERR_FILENO);
    FILE *to = to_terminal ? stdout : open_memstream(&memory, &size);
    cli_progress p = {.what = "t5 generate", .start = cli_seconds() - 3};
    const cli_lines l = {.read = 50, .all = 100};
    cli_show_lines(&p, &l, to);
    fflush(stdout);
    fflush(stderr);
    dup2(was[0], STDOUT_FILENO);
    dup2(was[1], STDERR_FILENO);
    fseek(terminal, 0, SEEK_END);
    const long n = ftell(terminal);
    if (!to_terminal)
        fclose(to);
    free(memory);
    close(was[0]);
    close(was[1]);
    fclose(terminal);
    return n;
}

static void test_lines(void **state)
{
    (void)state;
    setenv("TERM", "xterm", 1);
    assert_true(bytes_shown(false) > 40);
    assert_int_equal(bytes_shown(true), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_lines)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
