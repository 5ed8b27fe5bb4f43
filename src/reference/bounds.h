/* reference/bounds.h -- bounds on the errors of the fast path; docs/numerics.md derives them. Independent of the fast
 * path.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef RELPOS_BOUNDS_H
#define RELPOS_BOUNDS_H
#include "row.h"
#include <float.h>
#include <math.h>

/* Return the unit of rounding of the arithmetic. For f64 it is doubled, because the reference also computes in f64 and
 * rounds as often as the fast path. */
static inline double rpi_unit(const rp_desc *d)
{
    return d->dtype == RP_F64 ? 0x1p-52 : 0x1p-24;
}

/* Return the relative error of rounding an element when it is stored. */
static inline double rpi_stored(const rp_desc *d)
{
    return d->dtype == RP_BF16 ? 0x1p-8 : d->dtype == RP_F16 ? 0x1p-11 : rpi_unit(d);
}

/* Return a bound on the relative error of a product, besides rounding, if an f32 number is the sum of two bf16. The
 * bound for scores is 3/4 of it, because both components are rounded. The bound for products of weights is 5/4 of it,
 * because one component is truncated. */
static inline double rpi_bf16_error(const rp_desc *d)
{
    return d->dtype == RP_F32 && d->precision == RP_PRECISION_HIGH ? 0x1p-16 : 0;
}

/* Return the relative error of products of dout and values on AMX tiles if both are f16. Each is two bf16, of which the
 * second is up to 2^-9 of the number. The product of the second components is omitted. */
static inline double rpi_f16_error(const rp_plan *plan)
{
    return plan->desc.dtype == RP_F16 && plan->ops && plan->ops->amx ? 0x1p-18 : 0;
}

/* Return a bound on the roundings of a sum of `width` products on AMX tiles beyond the `width` of
 * multiply-adds. There are 18 in a chunk of 32, one for each of the six products of a chunk, and 2 for the omitted
 * products. */
static inline double rpi_tile_roundings(const rp_plan *plan, int64_t width)
{
    if (!plan->ops || !plan->ops->amx)
        return 0;
    return fmax(20 + 6 * ceil((double)width / 32) - fmin((double)width, 20), 0);
}

/* Return the largest sum of sizes for which no partial sum can overflow. */
static inline double rpi_max_sum(const rp_desc *d)
{
    return d->dtype == RP_F64 ? DBL_MAX / 2 : (double)(FLT_MAX / 2);
}

/* Return the absolute value of channel x of value j, plus that of its vector, times the factor of dropout. */
double rpi_value_size(const rpi_row *r, int64_t j, int64_t x);
/* Compute the sizes of the scores of a row whose scores are known. A pair masked by a product of -infinity counts as
 * attended: it has no bound. */
void rpi_score_sizes(rpi_row *plain, rpi_row *absolute);
/* Compute the bound of rp_error_bound for one row. `plain` has scores, weights and lse. `absolute` has the sizes of the
 * scores; this function replaces them by bounds on the errors of scores (absolute->score) and of weights
 * (absolute->weight). Return a bound on the error of the sink's weight. */
double rpi_bound_row(rpi_row *plain, rpi_row *absolute, double *bound);

#endif
