/* compute.c -- the numbers of a problem of one head, and how they are written.
 * SPDX-License-Identifier: Apache-2.0 */
#include "cli/tutorial/tutorial.h"
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

void tutorial_add(char *text, size_t size, const char *format, ...)
{
    const size_t used = strlen(text);
    va_list list;
    va_start(list, format);
    vsnprintf(text + used, size - used, format, list);
    va_end(list);
}

void tutorial_print(char *text, size_t size, const double *x, int64_t rows, int64_t columns, int digits)
{
    const double half = 0.5 * pow(10, -digits);
    text[0] = 0;
    for (int64_t n = 0; n < rows * columns; n++)
        tutorial_add(text, size, "%s%.*f",
                     n == 0        ? ""
                     : n % columns ? " "
                                   : "\n",
                     digits, fabs(x[n]) < half ? 0 : x[n]);
}

void tutorial_compute(const tutorial_problem *p, tutorial_row which, double *to)
{
    const int64_t n = p->len, shape[4] = {1, 1, n, p->dim}, columns = which == TUTORIAL_OUT ? p->dim : n;
    rp_desc desc = rp_desc_init(1, 1, n, n, p->dim);
    rp_tensors t = rp_tensors_init();
    rp_plan *plan;
    desc.dtype = RP_F64;
    desc.terms = p->term;
    desc.n_terms = p->n_terms;
    t.q = rp_array_of(p->q, RP_F64, 4, shape);
    t.k = rp_array_of(p->k, RP_F64, 4, shape);
    t.v = rp_array_of(p->v ? p->v : p->k, RP_F64, 4, shape);
    for (int32_t x = 0; x < p->n_terms; x++) {
        int64_t axes[RP_MAX_AXES];
        int32_t ndim;
        if (p->array[x] && rp_term_shape(&desc, x, 0, &ndim, axes) == RP_OK)
            t.term[x][0] = rp_array_of(p->array[x], RP_F64, ndim, axes);
        if (p->positions)
            t.term[x][0] = rp_array_of(p->positions, RP_F64, 1, &n);
    }
    for (int64_t x = 0; x < n * columns; x++)
        to[x] = NAN; /* shown if a call fails, which the tests would see */
    if (rp_plan_create(&plan, &desc) != RP_OK)
        return;
    for (int64_t i = 0; i < n; i++) {
        double *at = to + i * columns;
        rp_row row = {.raw = which == TUTORIAL_RAW ? at : NULL,
                      .scaled = which == TUTORIAL_SCALED ? at : NULL,
                      .bias = which == TUTORIAL_BIAS ? at : NULL,
                      .score = which == TUTORIAL_SCORE ? at : NULL,
                      .weights = which == TUTORIAL_WEIGHTS ? at : NULL,
                      .out = which == TUTORIAL_OUT ? at : NULL};
        rp_attend_row(plan, &t, 0, 0, i, &row);
    }
    rp_plan_destroy(plan);
}

int64_t tutorial_elements(const rp_term *term, int64_t heads, int64_t dim)
{
    rp_desc desc = rp_desc_init(1, heads, 1, 1, dim);
    int64_t shape[RP_MAX_AXES], n = 1;
    int32_t ndim;
    desc.terms = term;
    desc.n_terms = 1;
    if (rp_term_shape(&desc, 0, 0, &ndim, shape) != RP_OK)
        return -1;
    for (int32_t x = 0; x < ndim; x++)
        n *= shape[x];
    return n;
}
