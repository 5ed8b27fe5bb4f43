/* output.c -- print errors and JSON strings, and describe the terminal.
 * SPDX-License-Identifier: Apache-2.0 */
#include "cli/cli.h"
#include "cli/team.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

int cli_error(int code, const char *format, ...)
{
    char text[2048], safe[3072]; /* text may quote users and files; io_safe removes control characters */
    va_list list;
    va_start(list, format);
    vsnprintf(text, sizeof text, format, list);
    va_end(list);
    if (!cli_keep_error(code, text))
        fprintf(stderr, "relpos: %s\n", io_safe(safe, sizeof safe, text));
    return code;
}

bool cli_colour(FILE *f)
{
    const char *no = getenv("NO_COLOR"), *term = getenv("TERM");
    return isatty(fileno(f)) && !(no && *no) && term && strcmp(term, "dumb") != 0;
}

int cli_width(void)
{
    struct winsize w;
    if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &w) == 0 && w.ws_col > 20)
        return w.ws_col;
    return 80;
}

void cli_put_text(FILE *to, const char *text, int64_t n)
{
    for (int64_t k = 0; k < n; k++) {
        const unsigned char c = (unsigned char)text[k];
        if (c == '\n' || c == '\r')
            fputs(c == '\n' ? "\\n" : "\\r", to);
        else if ((c < 0x20 && c != '\t') || c == 0x7f)
            fprintf(to, "\\x%02x", c);
        else
            putc(c, to);
    }
}

void cli_json_string(FILE *to, const char *text)
{
    const unsigned char *c = (const unsigned char *)text;
    fputc('"', to);
    for (size_t left = strlen(text), n; left > 0; c += n, left -= n) {
        n = io_utf8(c, left);
        if (*c == '"' || *c == '\\')
            fprintf(to, "\\%c", *c);
        else if (n == 1 && (*c < 0x20 || *c == 0x7f))
            fprintf(to, "\\u%04x", *c);
        else if (n == 2 && *c == 0xc2 && c[1] < 0xa0) /* U+0080 to U+009F are control characters */
            fprintf(to, "\\u%04x", c[1]);
        else if (n > 0)
            fwrite(c, 1, n, to);
        else
            fputs("\\ufffd", to), n = 1; /* JSON must be valid UTF-8 */
    }
    fputc('"', to);
}

void cli_json_number(FILE *to, const char *format, double x)
{
    if (isfinite(x))
        fprintf(to, format, x);
    else
        fputs("null", to);
}

void cli_json_numbers(FILE *to, const cli_json_member *members)
{
    for (const cli_json_member *m = members; m->name != NULL; m++) {
        fprintf(to, ", \"%s\": ", m->name);
        cli_json_number(to, m->format, m->x);
    }
}

void cli_normalize(float *x, int64_t n)
{
    double sum = 0;
    for (int64_t k = 0; k < n; k++)
        sum += (double)x[k] * (double)x[k];
    for (int64_t k = 0; k < n && sum > 0; k++)
        x[k] = (float)((double)x[k] / sqrt(sum));
}
