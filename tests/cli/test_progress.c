/* test_progress.c -- the bar of lines that are read shows on a terminal, unless the output itself goes there.
 * SPDX-License-Identifier: Apache-2.0 */
#include "tests/helpers.h"

#include "cli/t5/t5.h"

#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

/* What is shown on a terminal where work began 3 seconds ago and half of the lines are read. */
static size_t bytes_shown(int to_terminal)
{
    char bytes[512], *memory = NULL;
    size_t size;
    const int master = posix_openpt(O_RDWR | O_NOCTTY), was[2] = {dup(STDOUT_FILENO), dup(STDERR_FILENO)};
    assert_true(master >= 0 && grantpt(master) == 0 && unlockpt(master) == 0);
    const int slave = open(ptsname(master), O_RDWR | O_NOCTTY);
    assert_true(slave >= 0);
    fflush(stdout);
    fflush(stderr);
    dup2(slave, STDOUT_FILENO);
    dup2(slave, STDERR_FILENO);
    FILE *to = to_terminal ? stdout : open_memstream(&memory, &size);
    cli_progress p = {.what = "t5 generate", .start = cli_seconds() - 3};
    const cli_t5_lines l = {.read = 50, .all = 100};
    cli_t5_show_lines(&p, &l, to);
    dup2(was[0], STDOUT_FILENO);
    dup2(was[1], STDERR_FILENO);
    fcntl(master, F_SETFL, O_NONBLOCK);
    const ssize_t n = read(master, bytes, sizeof bytes);
    if (!to_terminal)
        fclose(to);
    free(memory);
    close(was[0]);
    close(was[1]);
    close(slave);
    close(master);
    return n > 0 ? (size_t)n : 0;
}

static void test_lines(void **state)
{
    (void)state;
    setenv("TERM", "xterm", 1);
    assert_true(bytes_shown(0) > 40);
    assert_int_equal(bytes_shown(1), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_lines)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
