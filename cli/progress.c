/* progress.c -- the progress bar: the fraction of the work that is done, and the estimated remaining time.
 * SPDX-License-Identifier: Apache-2.0 */
#include "cli/progress.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { WIDTH = 30 };

static double seconds_of(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

double cli_seconds(void)
{
    return seconds_of(CLOCK_MONOTONIC);
}

double cli_processor_seconds(void)
{
    return seconds_of(CLOCK_PROCESS_CPUTIME_ID);
}

int cli_progress_show(void *context, double fraction)
{
    cli_progress *p = context;
    const double at = cli_seconds();
    const char *term = getenv("TERM");
    char bar[WIDTH + 1];
    if (p->start == 0)
        p->start = at;
    const double left = fraction > 0 ? (at - p->start) * (1 - fraction) / fraction : 0;
    if (!isatty(STDERR_FILENO) || !term || strcmp(term, "dumb") == 0) {
        if (p->every <= 0 || at - fmax(p->start, p->printed) < p->every)
            return 0;
        p->printed = at;
        fprintf(stderr, "%s: %.0f %%, %s%s%.0f s left\n", p->what, 100 * fraction, p->note ? p->note : "",
                p->note ? ", " : "", left);
        return 0;
    }
    if (at - p->start < 2 || at - p->shown < 0.2)
        return 0;
    p->shown = at;
    for (int n = 0; n < WIDTH; n++)
        bar[n] = n < fraction * WIDTH ? '#' : '.';
    bar[WIDTH] = 0;
    fprintf(stderr, "\r%s [%s] %3.0f %%, %s%s%.0f s left \033[K", p->what, bar, 100 * fraction, p->note ? p->note : "",
            p->note ? ", " : "", left);
    fflush(stderr);
    return 0;
}

void cli_progress_end(cli_progress *p)
{
    if (p->shown != 0) {
        fputs("\r\033[K", stderr);
        fflush(stderr);
    }
}
