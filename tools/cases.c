/* cases.c -- compares the results of relpos attend with a case of the independent oracle; used by tests/oracle/run.sh.
 *     cases CASE FOUND TOLERANCE     compare each want.X of CASE with X of FOUND, by |found - want| / (1 + |want|);
 *                                    print the largest error; exit with 1 if it exceeds TOLERANCE or an X is missing
 * SPDX-License-Identifier: Apache-2.0 */
#include "io/io.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Return the largest error, or INFINITY if the arrays cannot be compared. */
static double error_of(const io_array *want, const io_array *found)
{
    double worst = 0;
    size_t n = 1;
    if (!found || found->dtype > RP_BF16 || want->dtype > RP_BF16 || found->ndim != want->ndim ||
        memcmp(found->shape, want->shape, (size_t)want->ndim * sizeof *want->shape) != 0)
        return INFINITY;
    for (int32_t x = 0; x < want->ndim; x++)
        n *= (size_t)want->shape[x];
    for (size_t x = 0; x < n; x++) {
        const io_array *a[2] = {want, found};
        double value[2];
        for (int k = 0; k < 2; k++)
            rp_convert(&value[k], RP_F64, (const char *)a[k]->data + x * rp_dtype_size(a[k]->dtype), a[k]->dtype, 1);
        const double error = fabs(value[1] - value[0]) / (1 + fabs(value[0]));
        if (value[0] != value[1] && !(error <= worst) && !(isnan(value[0]) && isnan(value[1])))
            worst = isnan(error) ? INFINITY : error;
    }
    return worst;
}

int main(int argc, char **argv)
{
    io_set want = {0}, found = {0};
    char err[IO_ERR_MAX];
    if (argc != 4) {
        fprintf(stderr, "usage: cases CASE FOUND TOLERANCE\n");
        return 2;
    }
    if (io_read(argv[1], &want, NULL, err) != 0 || io_read(argv[2], &found, NULL, err) != 0) {
        fprintf(stderr, "cases: %s\n", err);
        return 1;
    }
    const double tolerance = strtod(argv[3], NULL);
    double worst = 0;
    const char *where = NULL;
    int compared = 0;
    for (size_t n = 0; n < want.n_arrays; n++) {
        const char *name = want.arrays[n].name;
        if (strncmp(name, "want.", 5) != 0)
            continue;
        const double error = error_of(&want.arrays[n], io_find(&found, name + 5));
        if (!where || error > worst) {
            worst = error;
            where = name + 5;
        }
        compared++;
    }
    const int good = compared > 0 && worst <= tolerance;
    if (worst == INFINITY)
        printf("%d arrays, %s is missing or different in kind, or infinite\n", compared, where);
    else
        printf("%d arrays, largest error %.2g in %s, tolerance %g%s\n", compared, worst, where ? where : "none",
               tolerance, good ? "" : ": FAILED");
    io_free(&want);
    io_free(&found);
    return good ? 0 : 1;
}
