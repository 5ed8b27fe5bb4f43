/* records.h -- reads texts and pairs of texts: lines, JSON lines, or a table with commas or tabs. Functions return
 * CLI_OK, or an exit code after printing.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef RELPOS_CLI_RECORDS_H
#define RELPOS_CLI_RECORDS_H

#include "cli/lines.h"

typedef enum cli_record_format { CLI_LINES, CLI_JSON_LINES, CLI_COMMAS, CLI_TABS } cli_record_format;

/* A reader. Set `column` and `pair` (NULL: not given) and `pairs` before opening it. */
typedef struct cli_records {
    const char *column, *pair; /* names of the columns with the text and with the second text */
    bool pairs;                /* a record has two texts; lines have a tab between them */
    cli_lines lines;
    cli_record_format format;
    int64_t at[2], columns; /* of a table: numbers of the two columns, and how many there are */
    char *row;              /* of a table: one row, which may have several lines, [size] */
    size_t size;
    char *value[2]; /* values of the record */
} cli_records;

/* A record, valid until the next call. */
typedef struct cli_record {
    const char *text, *pair; /* text = NULL after the last record; pair = NULL: it has one text */
    int64_t bytes, pair_bytes;
} cli_record;

/* Open a file, whose suffix decides the format: .jsonl, .csv, .tsv, or lines. path = NULL or "-": lines of standard
 * input; or `text`: one line. */
int cli_records_open(cli_records *r, const char *path, const char *text);
int cli_records_next(cli_records *r, cli_record *record);
void cli_records_close(cli_records *r);

#endif
