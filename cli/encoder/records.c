/* records.c -- reads texts and pairs of texts: lines, JSON lines, or a table with commas or tabs (RFC 4180: a value
 * with a comma, a quote or a line break is in quotes, and "" is a quote in it).
 * SPDX-License-Identifier: Apache-2.0 */
#include "cli/encoder/records.h"
#include "io/json.h"
#include <stdlib.h>
#include <string.h>

#define MAX_ROW ((size_t)64 << 20) /* bytes of a row of a table */

static int no_memory(const cli_records *r)
{
    return cli_error(CLI_FAILED, "line %lld: out of memory while reading it (use a shorter line)",
                     (long long)r->lines.number);
}

/* As cli_lines_next, but the line must be UTF-8. */
static int next_line(cli_records *r, const char **line, int64_t *length)
{
    const bool option = r->lines.file == NULL;
    const int code = cli_lines_next(&r->lines, line, length);
    return code == CLI_OK && *length > 0 ? cli_check_utf8("--text", option ? 0 : r->lines.number, *line, *length)
                                         : code;
}

/* Set *value to a copy of the text, ended by a null byte. */
static bool keep(char **value, const char *text, size_t bytes)
{
    char *more = realloc(*value, bytes + 1);
    if (more == NULL)
        return false;
    *value = more;
    memcpy(more, text, bytes);
    more[bytes] = 0;
    return true;
}

/* ------------------------------------------------------------------------------------------------ JSON lines */

/* Copy the value of a key. */
static int json_value(cli_records *r, const json_t *root, const char *key, int k, int64_t *bytes)
{
    const json_t *v = json_object_get(root, key);
    char safe[64];
    if (!json_is_string(v))
        return cli_error(CLI_FAILED, "line %lld: \"%s\" %s (name the key of the text with --column%s)",
                         (long long)r->lines.number, io_safe(safe, sizeof safe, key),
                         v == NULL ? "is missing" : "is not a text", k == 1 ? ", that of the second with --pair" : "");
    *bytes = (int64_t)json_string_length(v);
    return keep(&r->value[k], json_string_value(v), (size_t)*bytes) ? CLI_OK : no_memory(r);
}

static int next_json(cli_records *r, const char *line, int64_t length, cli_record *record)
{
    json_error_t error;
    bool out_of_memory;
    char fault[IO_JSON_FAULT];
    if ((int64_t)strspn(line, " \t\r") >= length) /* a line has no NUL */
        return cli_error(CLI_FAILED, "line %lld: it is empty (remove it: each line must be a JSON object)",
                         (long long)r->lines.number);
    json_t *root = io_json(line, (size_t)length, JSON_REJECT_DUPLICATES, &error, &out_of_memory);
    if (root == NULL && out_of_memory)
        return no_memory(r);
    if (!json_is_object(root)) {
        const char *in_line = "line 1, "; /* where the fault is in the text, whose only line is this one */
        io_json_fault(line, (size_t)length, &error, fault);
        const char *what = root != NULL                                    ? "it is not an object"
                           : strstr(fault, "it is cut off") != NULL        ? "the object has no end"
                           : strncmp(fault, in_line, strlen(in_line)) == 0 ? fault + strlen(in_line)
                                                                           : fault;
        const int code =
            cli_error(CLI_FAILED, "line %lld: %s (each line must be a JSON object)", (long long)r->lines.number, what);
        json_decref(root);
        return code;
    }
    record->pair_bytes = -1;
    int code = json_value(r, root, r->column != NULL ? r->column : "text", 0, &record->bytes);
    if (code == CLI_OK && (r->pairs || r->pair != NULL))
        code = json_value(r, root, r->pair != NULL ? r->pair : "pair", 1, &record->pair_bytes);
    json_decref(root);
    record->text = r->value[0];
    record->pair = r->pairs || r->pair != NULL ? r->value[1] : NULL;
    return code;
}

/* ------------------------------------------------------------------------------------------------ tables */

/* Where a scan of a row is: at the start of a value, in one without quotes, in one with quotes, after a quote in it. */
typedef enum place { START, PLAIN, QUOTED, QUOTE } place;

/* Scan n more bytes of a row. */
static place scan(place at, char separator, const char *text, size_t n)
{
    for (size_t k = 0; k < n; k++)
        if (at == QUOTED)
            at = text[k] == '"' ? QUOTE : QUOTED;
        else if (text[k] == separator)
            at = START;
        else
            at = text[k] == '"' && at != PLAIN ? QUOTED : PLAIN;
    return at;
}

/* Read a row into r->row, whose quoted values may contain line breaks. *n = 0 at the end and *end = true. */
static int read_row(cli_records *r, size_t *n, bool *end)
{
    const char *line, separator = r->format == CLI_TABS ? '\t' : ',';
    int64_t length, first = 0; /* first: number of the row's first line */
    place at = START;
    *n = 0;
    do {
        const int code = next_line(r, &line, &length);
        *end = length < 0;
        first = first > 0 ? first : r->lines.number;
        if (code != CLI_OK)
            return code;
        if (*end && at == START)
            return CLI_OK;
        if (*end || *n > MAX_ROW)
            return cli_error(CLI_FAILED, "line %lld: a value in quotes has no end%s (close the quotes)",
                             (long long)first, *end ? "" : " within 64 MiB");
        char *more = realloc(r->row, *n + (size_t)length + 2);
        if (more == NULL)
            return no_memory(r);
        r->row = more;
        if (at != START)
            r->row[(*n)++] = '\n';
        if (length > 0)
            memcpy(r->row + *n, line, (size_t)length);
        *n += (size_t)length;
        at = scan(at == START ? START : QUOTED, separator, line, (size_t)length);
    } while (at == QUOTED);
    r->row[*n] = 0;
    return CLI_OK;
}

/* Take the value at *at, without its quotes, to r->row[from …]; advance *at past it. Return its size, or -1 if text
 * follows its quotes. *more: another value follows. */
static int64_t take_value(const cli_records *r, size_t n, size_t *at, bool *more)
{
    const char separator = r->format == CLI_TABS ? '\t' : ',';
    char *row = r->row, *to = row + *at;
    const char *first = to;
    size_t k = *at;
    if (k < n && row[k] == '"') {
        for (k++; k < n && (row[k] != '"' || (k + 1 < n && row[k + 1] == '"')); k++) {
            *to++ = row[k];
            k += row[k] == '"';
        }
        k++;
        if (k < n && row[k] != separator)
            return -1;
    } else
        while (k < n && row[k] != separator)
            *to++ = row[k++];
    *more = k < n;
    *at = k + 1;
    return to - first;
}

/* Find the columns in the first row. */
static int read_header(cli_records *r)
{
    size_t n, at = 0;
    bool end, more = true;
    char names[200] = "", safe[64];
    int code = read_row(r, &n, &end);
    const char *wanted[2] = {r->column != NULL ? r->column : "text", r->pair != NULL ? r->pair : "pair"};
    bool twice[2] = {false, false};
    r->at[0] = r->at[1] = -1;
    for (r->columns = 0; code == CLI_OK && !end && more; r->columns++) {
        const size_t from = at;
        const int64_t size = take_value(r, n, &at, &more);
        const size_t used = strlen(names);
        if (size < 0)
            return cli_error(CLI_FAILED,
                             "line 1: text follows the quotes of column %lld (write quotes in quotes twice)",
                             (long long)r->columns + 1);
        char *name = strndup(r->row + from, (size_t)size);
        if (name == NULL)
            return no_memory(r);
        for (int k = 0; k < 2; k++)
            if (strcmp(name, wanted[k]) == 0) {
                twice[k] |= r->at[k] >= 0;
                r->at[k] = r->columns;
            }
        if (used + 70 < sizeof names)
            snprintf(names + used, sizeof names - used, "%s%s", used > 0 ? ", " : "", io_safe(safe, sizeof safe, name));
        free(name);
    }
    if (code == CLI_OK && r->at[0] < 0)
        return cli_error(CLI_FAILED, "line 1: there is no column \"%s\" (choose one with --column: %s)",
                         io_safe(safe, sizeof safe, wanted[0]), names);
    if (code == CLI_OK && r->at[1] < 0 && (r->pairs || r->pair != NULL))
        return cli_error(CLI_FAILED, "line 1: there is no column \"%s\" (choose one with --pair: %s)",
                         io_safe(safe, sizeof safe, wanted[1]), names);
    for (int k = 0; k < (r->pairs || r->pair != NULL ? 2 : 1) && code == CLI_OK; k++)
        if (twice[k])
            code = cli_error(CLI_FAILED,
                             "line 1: two columns have the name \"%s\" (rename one, or choose another with %s)",
                             io_safe(safe, sizeof safe, wanted[k]), k == 0 ? "--column" : "--pair");
    return code;
}

static int next_row(cli_records *r, cli_record *record)
{
    size_t n, at = 0;
    bool end, more = true;
    int64_t column = 0;
    int code = read_row(r, &n, &end);
    record->text = record->pair = NULL;
    if (code != CLI_OK || end)
        return code;
    for (; more && code == CLI_OK; column++) {
        const size_t from = at;
        const int64_t size = take_value(r, n, &at, &more);
        if (size < 0)
            return cli_error(CLI_FAILED,
                             "line %lld: text follows the quotes of column %lld (write quotes in quotes twice)",
                             (long long)r->lines.number, (long long)column + 1);
        for (int k = 0; k < 2; k++) {
            if (r->at[k] != column || (k == 1 && !r->pairs && r->pair == NULL))
                continue;
            if (!keep(&r->value[k], r->row + from, (size_t)size))
                return no_memory(r);
            *(k == 0 ? &record->text : &record->pair) = r->value[k];
            *(k == 0 ? &record->bytes : &record->pair_bytes) = size;
        }
    }
    if (column != r->columns)
        return cli_error(CLI_FAILED,
                         "line %lld: it has %lld values, but the first line %lld (put a value with a "
                         "separator in quotes)",
                         (long long)r->lines.number, (long long)column, (long long)r->columns);
    return CLI_OK;
}

/* ------------------------------------------------------------------------------------------------ all formats */

int cli_records_open(cli_records *r, const char *path, const char *text)
{
    const char *name = path != NULL ? path : "";
    r->format = cli_has_suffix(name, ".jsonl") ? CLI_JSON_LINES
                : cli_has_suffix(name, ".csv") ? CLI_COMMAS
                : cli_has_suffix(name, ".tsv") ? CLI_TABS
                                               : CLI_LINES;
    const int code = cli_lines_open(&r->lines, path, text, true);
    if (code == CLI_OK && r->format == CLI_LINES && (r->column != NULL || r->pair != NULL))
        return cli_error(CLI_USAGE, "%s: a file of lines has no columns (give a file .jsonl, .csv or .tsv)",
                         r->column != NULL ? "--column" : "--pair");
    return code == CLI_OK && r->format >= CLI_COMMAS ? read_header(r) : code;
}

/* Split a line at its tab. */
static int split_line(const cli_records *r, const char *line, int64_t length, cli_record *record)
{
    const char *tab = r->pairs && length > 0 ? memchr(line, '\t', (size_t)length) : NULL;
    *record = (cli_record){line, NULL, length, 0};
    if (!r->pairs)
        return CLI_OK;
    if (tab == NULL)
        return cli_error(CLI_FAILED,
                         "line %lld: it has no tab between two texts (write TEXT<tab>TEXT, or give a file "
                         ".jsonl, .csv or .tsv)",
                         (long long)r->lines.number);
    record->bytes = tab - line;
    record->pair = tab + 1;
    record->pair_bytes = length - record->bytes - 1;
    return CLI_OK;
}

int cli_records_next(cli_records *r, cli_record *record)
{
    const char *line;
    int64_t length;
    *record = (cli_record){NULL, NULL, 0, 0};
    if (r->format >= CLI_COMMAS)
        return next_row(r, record);
    const int code = next_line(r, &line, &length);
    if (code != CLI_OK || length < 0)
        return code;
    return r->format == CLI_JSON_LINES ? next_json(r, line, length, record) : split_line(r, line, length, record);
}

void cli_records_close(cli_records *r)
{
    cli_lines_close(&r->lines);
    free(r->row);
    free(r->value[0]);
    free(r->value[1]);
}
