/* lines.h -- reads lines of text from a file, a string or standard input. Functions return CLI_OK, or an exit code
 * after printing.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef RELPOS_CLI_LINES_H
#define RELPOS_CLI_LINES_H

#include "cli/cli.h"
#include "cli/progress.h"

/* Check that a file can be created at this path; in a team only rank 0 writes. Call it before long work. */
int cli_check_output(const char *option, const char *path);
/* A reader of lines from a file, a string or standard input. */
typedef struct cli_lines {
    FILE *file;
    const char *text; /* the only line, if file is NULL */
    char *line;
    size_t size;
    int64_t number;
    double read, all; /* bytes read so far, and size of the file; all = 0 if unknown */
    double begin;     /* bytes read before the work began */
} cli_lines;

/* Return true if a path ends with one of these suffixes, which have spaces between them; case does not matter. */
bool cli_has_suffix(const char *path, const char *suffixes);
/* Open a file (NULL or "-": standard input), or `text`, which is the only line. A suffix of files whose lines are no
 * texts is refused; records: but not one of JSON lines and of tables. */
int cli_lines_open(cli_lines *l, const char *path, const char *text, bool records);
/* Read the next line, without its "\n" or "\r\n", or a byte order mark before the first. *length is -1 after the last
 * line. Ctrl-C and UTF-16 are errors. */
int cli_lines_next(cli_lines *l, const char **line, int64_t *length);
void cli_lines_close(cli_lines *l);
/* Check that n bytes (-1: null-terminated) are UTF-8. `line` > 0 is the number of their line, for the message;
 * otherwise they are the value of `option`. */
int cli_check_utf8(const char *option, int64_t line, const char *text, int64_t n);

/* Show in the progress bar which fraction of the input has been read. Do nothing if the size of the input is unknown or
 * `to` is a terminal. */
void cli_show_lines(cli_progress *p, const cli_lines *l, FILE *to);

#endif
