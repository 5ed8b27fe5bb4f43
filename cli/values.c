/* values.c -- parse the values of options: integers, reals, instruction sets and types.
 * SPDX-License-Identifier: Apache-2.0 */
#include "cli/cli.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Write the range min to max to `text` in words, such as "1 to 8". Return `text`. */
static const char *range_words(int64_t min, int64_t max, char text[64])
{
    if (min == max)
        snprintf(text, 64, "only %lld", (long long)min);
    else if (max == INT64_MAX)
        snprintf(text, 64, "%lld or more", (long long)min);
    else
        snprintf(text, 64, "%lld to %lld", (long long)min, (long long)max);
    return text;
}

int cli_out_of_range(const char *option, int64_t n, int64_t min, int64_t max)
{
    char range[64];
    return cli_error(CLI_USAGE, "%s: %lld is out of range (%s)", option, (long long)n, range_words(min, max, range));
}

int cli_integer(const char *option, const char *text, int64_t min, int64_t max, int64_t *value)
{
    char *end, safe[96], range[64];
    const char *digit = text + (*text == '-');
    errno = 0;
    const long long n = *digit >= '0' && *digit <= '9' ? strtoll(text, &end, 10) : (end = (char *)(uintptr_t) "x", 0);
    if (*end == 0 && errno == ERANGE)
        return cli_error(CLI_USAGE, "%s: \"%s\" is too %s (%s)", option, io_safe(safe, sizeof safe, text),
                         *text == '-' ? "small" : "large", range_words(min, max, range));
    if (*end || errno)
        return cli_error(CLI_USAGE, "%s: \"%s\" is not a whole number (write %s)", option,
                         io_safe(safe, sizeof safe, text),
                         min < 0 ? "digits, after a minus sign if it is negative" : "digits only");
    if (n < min || n > max)
        return cli_out_of_range(option, n, min, max);
    *value = n;
    return CLI_OK;
}

int cli_bytes(const char *option, const char *text, int64_t *value)
{
    static const char units[] = "KMGT";
    char digits[32], safe[96];
    const size_t n = strspn(text, "0123456789");
    const char *unit = text[n] ? strchr(units, text[n]) : NULL;
    const int shift = unit ? 10 * (int)(unit - units + 1) : 0;
    if (n == 0 || n >= sizeof digits || (text[n] && (!unit || text[n + 1])))
        return cli_error(CLI_USAGE, "%s: \"%s\" is not a number of bytes (write it like 512M or 2G)", option,
                         io_safe(safe, sizeof safe, text));
    snprintf(digits, sizeof digits, "%.*s", (int)n, text);
    const int code = cli_integer(option, digits, 1, INT64_MAX >> shift, value);
    *value = code == CLI_OK ? *value << shift : 0;
    return code;
}

int cli_real(const char *option, const char *text, double *value)
{
    /* Let the library parse the number, because it does so independently of the locale. It does not export its parser,
     * so parse a term that has one number. */
    char term[96], names[RP_MAX_ARRAYS][RP_NAME_MAX], safe[96];
    rp_term t;
    snprintf(term, sizeof term, "log,lambda=%s", text);
    if (strlen(text) > 64 || strchr(text, ',') || rp_term_parse(term, &t, names) != RP_OK)
        return cli_error(CLI_USAGE, "%s: \"%s\" is not a finite number (write it like 0.125 or 1e-3)", option,
                         io_safe(safe, sizeof safe, text));
    *value = t.lambda;
    return CLI_OK;
}

int cli_isa(const char *text, const char **isa)
{
    if (rp_isa_found(text) != 1)
        return cli_error(CLI_USAGE, "--isa: \"%.40s\" is %s (use one that relpos info marks yes)", text,
                         rp_isa_found(text) < 0 ? "not an instruction set" : "not available on this machine");
    *isa = text;
    return CLI_OK;
}

int cli_dtype(const char *option, const char *text, rp_dtype *type)
{
    for (int n = 0; n <= RP_BF16; n++)
        if (strcmp(text, rp_dtype_name((rp_dtype)n)) == 0) {
            *type = (rp_dtype)n;
            return CLI_OK;
        }
    return cli_error(CLI_USAGE, "%s: \"%.40s\" is not a type (use f32, f64, bf16 or f16)", option, text);
}

int cli_by_size(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}
