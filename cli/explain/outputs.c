/* outputs.c -- computes and prints the outputs of one query or, with --outputs, of all queries of the head.
 * SPDX-License-Identifier: Apache-2.0 */
#include "cli/explain/explain.h"
#include <stdlib.h>

void explain_print_output(const explain_request *r, const char *label, const char *query, const double *out)
{
    const int64_t n = r->problem.desc.dim_v, shown = n <= 32 || r->all ? n : 16;
    printf("%s[%s] = [", label, query);
    for (int64_t c = 0; c < shown; c++)
        printf("%s%s", c == 0 ? "" : c % 8 ? " " : "\n    ", explain_number((char[40]){0}, out[c], false));
    if (shown < n)
        printf("\n    ... %lld numbers in all (--all prints them)", (long long)n);
    puts("]");
}

int explain_outputs(const explain_request *r, const explain_source *s, double **out)
{
    const rp_desc *d = &r->problem.desc;
    const size_t width = (size_t)d->dim_v;
    *out = width <= SIZE_MAX / sizeof **out ? calloc((size_t)d->len_q, width * sizeof **out) : NULL;
    if (!*out)
        return explain_no_memory();
    for (int64_t i = 0; i < d->len_q; i++) {
        rp_row row = {.out = *out + (size_t)i * width};
        if (rp_attend_row(s->plan, &s->t, r->batch, r->head, i, &row) != RP_OK)
            return cli_refused(CLI_FAILED, "explain", &r->problem, NULL);
    }
    return CLI_OK;
}

void explain_print_outputs(const explain_request *r, const explain_source *s, const double *out)
{
    const rp_desc *d = &r->problem.desc;
    char name[EXPLAIN_TOKEN];
    explain_heading("All outputs");
    for (int64_t i = 0; i < d->len_q; i++)
        explain_print_output(r, "Output", explain_query_name(r, s, i, name), out + i * d->dim_v);
}

void explain_json_outputs(const explain_request *r, const double *out)
{
    const rp_desc *d = &r->problem.desc;
    fputs(", \"outputs\": [", stdout);
    for (int64_t i = 0; i < d->len_q; i++) {
        fputs(i ? ", [" : "[", stdout);
        for (int64_t c = 0; c < d->dim_v; c++) {
            fputs(c ? ", " : "", stdout);
            explain_json_number(out[i * d->dim_v + c]);
        }
        putchar(']');
    }
    putchar(']');
}
