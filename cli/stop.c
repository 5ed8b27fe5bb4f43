/* stop.c -- on Ctrl-C and SIGTERM, sets a flag that long computations poll.
 * SPDX-License-Identifier: Apache-2.0 */
#include "cli/cli.h"
#include <signal.h>
#include <time.h>

static volatile sig_atomic_t stop_asked;
static struct timespec first;
static struct sigaction before[2];
static const int signals[2] = {SIGINT, SIGTERM};

/* End the program on a second signal. Ignore signals within half a second of the first, because timeout(1) sends its
 * signal twice: to its child, and to the child's process group. */
static void on_signal(int number)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    if (!stop_asked)
        first = now;
    else if ((double)(now.tv_sec - first.tv_sec) + 1e-9 * (double)(now.tv_nsec - first.tv_nsec) > 0.5) {
        signal(number, SIG_DFL);
        raise(number); /* delivered when this handler returns */
    }
    stop_asked = 1;
}

void cli_catch_signals(bool on)
{
    struct sigaction stop = {.sa_handler = on_signal};
    for (int n = 0; n < 2; n++)
        sigaddset(&stop.sa_mask, signals[n]); /* block other signals while the handler uses `first` */
    for (int n = 0; n < 2; n++)
        on ? sigaction(signals[n], &stop, &before[n]) : sigaction(signals[n], &before[n], NULL);
}

bool cli_stop_requested(void)
{
    return stop_asked != 0;
}
