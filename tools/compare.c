/* compare.c -- prints the largest difference between arrays of two files; used by ./demo and the tests.
 *     compare A NAME B NAME TOLERANCE     compare the first elements of the array in A with all elements of the array
 *     in
 *                                         B; exit with 1 if they differ by more than TOLERANCE
 * SPDX-License-Identifier: Apache-2.0 */
#include "io/io.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static double value(const io_array *a, size_t n)
{
    double x;
    rp_convert(&x, RP_F64,
               (const char *)a->data + n * (a->dtype == RP_F64   ? 8
                                            : a->dtype == RP_F32 ? 4
                                                                 : 2),
               a->dtype, 1);
    return x;
}

static size_t count(const io_array *a)
{
    size_t n = 1;
    for (int32_t x = 0; x < a->ndim; x++)
        n *= (size_t)a->shape[x];
    return n;
}

int main(int argc, char **argv)
{
    io_set sets[2] = {{0}, {0}};
    const io_array *a[2] = {NULL, NULL};
    char err[IO_ERR_MAX];
    if (argc != 6) {
        fprintf(stderr, "usage: compare A NAME B NAME TOLERANCE\n");
        return 2;
    }
    for (int n = 0; n < 2; n++) {
        if (io_read(argv[1 + 2 * n], &sets[n], NULL, err) != 0) {
            fprintf(stderr, "compare: %s\n", err);
            return 1;
        }
        a[n] = io_find(&sets[n], argv[2 + 2 * n]);
        if (!a[n] || !a[n]->data || a[n]->dtype > RP_BF16) {
            fprintf(stderr, "compare: %s has no floating array \"%s\"\n", argv[1 + 2 * n], argv[2 + 2 * n]);
            return 1;
        }
    }
    double worst = 0;
    const size_t n = count(a[1]);
    if (count(a[0]) < n) {
        fprintf(stderr, "compare: %s is smaller than %s\n", argv[2], argv[4]);
        return 1;
    }
    for (size_t x = 0; x < n; x++) {
        const double d = fabs(value(a[0], x) - value(a[1], x));
        worst = d > worst || isnan(d) ? (isnan(d) ? INFINITY : d) : worst;
    }
    const double tolerance = strtod(argv[5], NULL);
    printf("%zu elements, largest difference %.2g, tolerance %g: %s\n", n, worst, tolerance,
           worst <= tolerance ? "equal" : "DIFFERENT");
    io_free(&sets[0]);
    io_free(&sets[1]);
    return worst <= tolerance ? 0 : 1;
}
