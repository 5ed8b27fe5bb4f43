/* progress.h -- a bar on standard error for what lasts over two seconds, on a terminal only.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef RELPOS_PROGRESS_H
#define RELPOS_PROGRESS_H

/* A clock that only goes forward, in seconds. */
double cli_seconds(void);

/* Start from zeros with what is being done, such as "attend". */
typedef struct cli_progress {
    const char *what;
    double start, shown; /* seconds; when the work began, when the bar was last drawn */
    const char *note;    /* what else the line says, such as a loss; NULL: nothing */
} cli_progress;

/* An rp_progress: context is a cli_progress. */
int cli_progress_show(void *context, double share);
/* Take the bar away. */
void cli_progress_end(cli_progress *p);

#endif
