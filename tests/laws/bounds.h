/* tests/laws/bounds.h -- compares results with bounds on their errors, and keeps the largest error as a share of its
 * bound.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef RELPOS_TESTS_LAWS_BOUNDS_H
#define RELPOS_TESTS_LAWS_BOUNDS_H
#include "tests/laws/gradients.h"

static double worst_ratio;
static int64_t bounds, infinite; /* number of elements; number of elements with an infinite bound */

/* Print the largest error as a share of its bound, and begin again. */
static void show(const char *what)
{
    print_message("%-40s largest error / bound %.3f; %lld of %lld bounds are infinite\n", what, worst_ratio,
                  (long long)infinite, (long long)bounds);
    worst_ratio = 0;
    bounds = infinite = 0;
}

/* Return the relative rounding error of a type. */
static double rounding_of(rp_dtype type)
{
    return type == RP_F64 ? 0x1p-53 : type == RP_F32 ? 0x1p-24 : type == RP_F16 ? 0x1p-11 : 0x1p-8;
}

/* Return true if a result is within its bound. An infinite bound allows every result; in f16, values beyond 65504 are
 * exempt. */
static bool within(const rp_array *of, double got, double want, double bound)
{
    const double last = rounding_of(of->dtype),
                 most = bound + last * (fabs(want) + bound) + (of->dtype == RP_F16 ? 0x1p-25 : 0),
                 error = fabs(got - want);
    const bool beyond = of->dtype == RP_F16 && isinf(got) && fabs(want) + most >= 65504;
    bounds++;
    infinite += !(most < INFINITY);
    if (error == 0 || !(most < INFINITY) || beyond)
        return true;
    if (fabs(want) > 1e-20) /* for smaller numbers, the bound is mostly the rounding to the type */
        worst_ratio = fmax(worst_ratio, error / most);
    return error <= most;
}

#endif
