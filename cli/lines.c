/* lines.c -- reads lines of text, and checks files of output before long work.
 * SPDX-License-Identifier: Apache-2.0 */
#include "cli/lines.h"
#include "cli/team.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

int cli_check_output(const char *option, const char *path)
{
    char folder[PATH_MAX], safe[160];
    const char *slash = strrchr(path, '/');
    const int n = slash == NULL ? 0 : slash == path ? 1 : (int)(slash - path);
    snprintf(folder, sizeof folder, "%.*s", n > 0 ? n : 1, n > 0 ? path : ".");
    if (strcmp(path, "-") == 0 || cli_team_rank() != 0 || access(folder, W_OK | X_OK) == 0)
        return CLI_OK;
    return cli_error(CLI_FAILED, "%s: %s: cannot write to its folder: %s (create the folder, or choose another)",
                     option, io_safe(safe, sizeof safe, path), strerror(errno));
}

bool cli_has_suffix(const char *path, const char *suffixes)
{
    const size_t n = strlen(path);
    for (size_t k; *suffixes != 0; suffixes += k + (suffixes[k] == ' ')) {
        k = strcspn(suffixes, " ");
        if (n >= k && strncasecmp(path + n - k, suffixes, k) == 0)
            return true;
    }
    return false;
}

/* Refuse a file whose lines are no texts, by its suffix. */
static int check_suffix(const char *path, bool records)
{
    static const struct {
        const char *suffixes, *what;
    } others[] = {
        {".jsonl .csv",
         "its suffix says that it has records, but this command reads lines (write the texts alone, one on "
         "each line of a file .txt)"}, /* the first: not for records */
        {".fasta .fa .faa .fas .fna .ffn .fasta.gz .fa.gz .faa.gz .fas.gz .fna.gz .ffn.gz",
         "it has the suffix of FASTA, whose headers are no texts (relpos proteins computes proteins; for another "
         "command, write each sequence on one line of a file .txt)"},
        {".gz .bgz .bz2 .xz .lzma .zst .lz4 .br .z", "its suffix says that it is compressed (decompress it)"},
        {".zip .tar .tgz .tbz2 .txz .7z .rar", "its suffix says that it is an archive (extract its files)"},
        {".json .geojson .ipynb", "its suffix says that it is one JSON document (write one object on each line "
                                  "of a file .jsonl, as jq -c '.[] | {text: .}' does for an array of texts)"},
        {".ndjson .ldjson", "the suffix of JSON lines is .jsonl here (rename it)"},
        {".tab", "the suffix of tables with tabs is .tsv here (rename it)"},
        {".parquet .arrow .feather .avro .orc .xlsx .xlsm .xls .ods .sqlite .db",
         "its suffix says that it is a table that is not text (export it as .csv)"},
        {".npz .npy .safetensors .h5 .hdf5 .pt .pth .pkl .pickle .mat .gguf .relpos",
         "its suffix says that it has arrays or a model (give a file of texts)"},
        {".pdf .doc .docx .odt .rtf .epub .ppt .pptx .odp",
         "its suffix says that it is a document (export it as .txt)"},
    };
    char safe[160];
    for (size_t k = records; k < sizeof others / sizeof *others; k++)
        if (cli_has_suffix(path, others[k].suffixes))
            return cli_error(CLI_USAGE, "%s: %s", io_safe(safe, sizeof safe, path), others[k].what);
    return CLI_OK;
}

int cli_lines_open(cli_lines *l, const char *path, const char *text, bool records)
{
    char safe[160];
    *l = (cli_lines){.text = text, .file = text != NULL ? NULL : stdin};
    if (text != NULL && path != NULL)
        return cli_error(CLI_USAGE, "--text: a file of lines was given too (give only one of them)");
    if (path == NULL || strcmp(path, "-") == 0)
        return CLI_OK;
    l->file = NULL;
    if (check_suffix(path, records) != CLI_OK)
        return CLI_USAGE;
    l->file = fopen(path, "re");
    if (l->file == NULL)
        return cli_error(
            CLI_FAILED,
            "%s: cannot be opened: %s (give a file of lines, - for standard input, or --text for a single line)",
            io_safe(safe, sizeof safe, path), strerror(errno));
    struct stat st;
    if (fstat(fileno(l->file), &st) == 0 && S_ISREG(st.st_mode))
        l->all = (double)st.st_size;
    return CLI_OK;
}

/* Check the line that was read, of n bytes: the text must not be UTF-16 or UTF-32. Without a byte order mark, these are
 * known by their NUL bytes. */
static int check_encoding(const cli_lines *l, int64_t n)
{
    const bool marked =
        l->number == 1 && n >= 2 && (memcmp(l->line, "\xff\xfe", 2) == 0 || memcmp(l->line, "\xfe\xff", 2) == 0);
    if (!marked && (n <= 0 || memchr(l->line, 0, (size_t)n) == NULL))
        return CLI_OK;
    return cli_error(CLI_FAILED,
                     "line %lld: it %s, as text in UTF-16 or UTF-32 does (give UTF-8, such as from iconv -f UTF-16 -t "
                     "UTF-8)",
                     (long long)l->number,
                     marked ? "begins with the byte order mark FF FE or FE FF" : "has a NUL byte");
}

int cli_lines_next(cli_lines *l, const char **line, int64_t *length)
{
    static const char mark[] = "\xef\xbb\xbf"; /* the byte order mark in UTF-8 */
    enum { MARK = sizeof mark - 1 };
    *length = -1;
    if (l->file == NULL) {
        *line = l->text;
        *length = l->text != NULL ? (int64_t)strlen(l->text) : -1;
        l->text = NULL;
        l->number++;
        return CLI_OK;
    }
    errno = 0;
    const ssize_t n = getline(&l->line, &l->size, l->file);
    if (cli_stop_requested())
        return cli_error(CLI_FAILED, "stopped by a signal (start it again)");
    if (n < 0 && (ferror(l->file) || errno == ENOMEM))
        return cli_error(CLI_FAILED,
                         "line %lld: cannot be read: %s (give a file of lines, - for standard input, or --text for a "
                         "single line)",
                         (long long)l->number + 1, strerror(errno));
    l->number++;
    l->read += n > 0 ? (double)n : 0;
    *line = l->line;
    *length = n > 0 && l->line[n - 1] == '\n' ? n - 1 : n;
    if (*length > 0 && *length < n && l->line[*length - 1] == '\r') /* the line ended in CR LF */
        --*length;
    if (l->number == 1 && *length >= MARK && memcmp(l->line, mark, MARK) == 0) {
        *line += MARK;
        *length = n == MARK ? -1 : *length - MARK; /* a file of nothing else has no lines */
    }
    return check_encoding(l, n);
}

int cli_check_utf8(const char *option, int64_t line, const char *text, int64_t n)
{
    const size_t size = n < 0 ? strlen(text) : (size_t)n;
    char number[32];
    size_t at = 0;
    for (size_t k; at < size && (k = io_utf8((const unsigned char *)text + at, size - at)) > 0;)
        at += k;
    if (at == size)
        return CLI_OK;
    snprintf(number, sizeof number, "line %lld", (long long)line);
    return cli_error(CLI_FAILED,
                     "%s: byte %lld, which is %02X, is not UTF-8 (convert the text, such as with iconv -f "
                     "WINDOWS-1252 -t UTF-8)",
                     line > 0 ? number : option, (long long)at + 1, (unsigned char)text[at]);
}

void cli_show_lines(cli_progress *p, const cli_lines *l, FILE *to)
{
    const int out = fileno(to); /* -1 for a memory stream */
    if (l->all > 0 && (out < 0 || !isatty(out)))
        cli_progress_show(p, (l->read - l->begin) / (l->all > l->begin ? l->all - l->begin : 1));
}

void cli_lines_close(cli_lines *l)
{
    if (l->file != NULL && l->file != stdin)
        fclose(l->file);
    free(l->line);
}
