/* stop.c -- Ctrl-C: work that takes long asks whether it shall stop. It knows no command.
 * SPDX-License-Identifier: Apache-2.0 */
#include "cli/cli.h"
#include <signal.h>

static volatile sig_atomic_t stop_asked;
static struct sigaction before[2];
static const int signals[2] = {SIGINT, SIGTERM};

static void on_signal(int number)
{
    (void)number;
    stop_asked = 1;
}

void cli_catch_signals(bool on)
{
    const struct sigaction stop = {.sa_handler = on_signal,
                                   .sa_flags = SA_RESETHAND}; /* a second one ends the program */
    for (int n = 0; n < 2; n++)
        on ? sigaction(signals[n], &stop, &before[n]) : sigaction(signals[n], &before[n], NULL);
}

bool cli_stop_asked(void)
{
    return stop_asked != 0;
}
