/* labels.c -- short strings that relpos explain prints: numbers, headings, names of queries and terms.
 * SPDX-License-Identifier: Apache-2.0 */
#include "cli/explain/explain.h"
#include "cli/picture/picture.h"
#include <math.h>
#include <string.h>

const char *explain_cut(char buf[EXPLAIN_TOKEN], const char *name, int max_columns)
{
    size_t length = strlen(name);
    snprintf(buf, EXPLAIN_TOKEN, "%s", name);
    while (pic_columns(buf) > max_columns) {
        do
            length--;
        while (length > 2 && (name[length] & 0xc0) == 0x80);
        snprintf(buf, EXPLAIN_TOKEN, "%.*s..", (int)length, name);
    }
    return buf;
}

const char *explain_number(char buf[40], double x, bool sign)
{
    snprintf(buf, 40, fabs(x) >= 1e6 && isfinite(x) ? "%+.2e" : "%+.4f", x);
    if (strcmp(buf + 1, "0.0000") == 0 || isnan(x)) /* print no sign */
        return buf + 1;
    return sign || *buf == '-' ? buf : buf + 1;
}

void explain_json_number(double x)
{
    cli_json_number(stdout, "%.17g", x);
}

void explain_heading(const char *text)
{
    printf(cli_colour(stdout) ? "\n\033[1m%s\033[0m\n" : "\n%s\n", text);
}

const char *explain_query_name(const explain_request *r, const explain_source *s, int64_t i, char buf[EXPLAIN_TOKEN])
{
    const rp_desc *d = &r->problem.desc;
    if (s->query_token)
        return s->query_token[i];
    const int64_t at = d->len_q == d->len_k ? i : i + d->q_offset;
    if (at >= 0 && at < d->len_k)
        return s->token[at];
    snprintf(buf, EXPLAIN_TOKEN, "%lld", (long long)at);
    return buf;
}

const char *explain_terms(const explain_request *r, bool names, char *buf, size_t size)
{
    size_t used = 0;
    snprintf(buf, size, names ? "no term" : "no position term");
    for (int32_t n = 0; n < r->problem.desc.n_terms && used + 1 < size; n++) {
        snprintf(buf + used, size - used, "%s%s", n ? " + " : "",
                 names ? rp_term_name(r->problem.terms[n].kind) : r->problem.term_text[n]);
        used = strlen(buf);
    }
    return buf;
}
