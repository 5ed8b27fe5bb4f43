/* progress.h -- a progress bar on standard error, for work that takes more than two seconds. If standard error is not a
 * terminal, it prints nothing, or a line at intervals.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef RELPOS_PROGRESS_H
#define RELPOS_PROGRESS_H

/* Return the time of a monotonic clock, in seconds. */
double cli_seconds(void);

/* Return the processor time of this process in seconds, summed over all threads. */
double cli_processor_seconds(void);

/* A progress bar. Set `what` and leave the other fields zero, or set `note` and `every` too. */
typedef struct cli_progress {
    const char *what;      /* name of the work, such as "attend" */
    double start, shown;   /* when the work started, and when the bar was last drawn, in seconds */
    const char *note;      /* additional text, such as a loss; NULL: none */
    double every, printed; /* without a terminal: seconds between lines (0: no lines); time of the last line */
} cli_progress;

/* Draw the bar for the fraction of work done so far. A callback of type rp_progress, whose context is a
 * cli_progress. */
int cli_progress_show(void *context, double fraction);
/* Erase the bar. */
void cli_progress_end(cli_progress *p);

#endif
