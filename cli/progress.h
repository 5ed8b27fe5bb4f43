/* progress.h -- a progress bar on standard error for work that takes more than two seconds; where that is no terminal, nothing, or a line
 * from time to time.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef RELPOS_PROGRESS_H
#define RELPOS_PROGRESS_H

/* A clock that only goes forward, in seconds. */
double cli_seconds(void);

/* Seconds that processors have spent on this process. */
double cli_processor_seconds(void);

/* Start from zeros, with the name of the work, such as "attend". */
typedef struct cli_progress {
    const char *what;
    double start, shown; /* seconds; when the work began, when the bar was last drawn */
    const char *note;    /* further text of the line, such as a loss; NULL: none */
    double every, told;  /* seconds between lines where there is no terminal, 0: none; when the last was written */
} cli_progress;

/* An rp_progress; its context is a cli_progress. */
int cli_progress_show(void *context, double share);
/* Erase the bar. */
void cli_progress_end(cli_progress *p);

#endif
