/* reference/bounds.h -- by how much the fast paths may be off: docs/numerics.md derives it.
 * It may not know the fast path.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef RELPOS_BOUNDS_H
#define RELPOS_BOUNDS_H
#include "row.h"
#include <float.h>
#include <math.h>

/* The unit of rounding of the arithmetic; doubled for f64, where the oracle rounds as often. */
static inline double rpi_unit(const rp_desc *d)
{
    return d->dtype == RP_F64 ? 0x1p-52 : 0x1p-24;
}

/* What one rounding at the store adds, relative to the element. */
static inline double rpi_stored(const rp_desc *d)
{
    return d->dtype == RP_BF16 ? 0x1p-8 : d->dtype == RP_F16 ? 0x1p-11 : rpi_unit(d);
}

/* By how much of its size a product may be off beside rounding, where f32 is the sum of two bf16: 3/4 of this for
 * scores, which are rounded twice, 5/4 for weights, of which one component is truncated. */
static inline double rpi_bf16_error(const rp_desc *d)
{
    return d->dtype == RP_F32 && d->precision == RP_PRECISION_HIGH ? 0x1p-16 : 0;
}

/* What the products of dout and values leave out on AMX tiles where both are f16: two bf16 each, of which the second is
 * up to 2^-9 of the number; the product of both seconds is not made. */
static inline double rpi_f16_error(const rp_plan *plan)
{
    return plan->desc.dtype == RP_F16 && plan->ops && plan->ops->amx ? 0x1p-18 : 0;
}

/* By how many the roundings of a sum of `width` products exceed width on AMX tiles: 18 within a chunk of 32, one for
 * each of six products of a chunk, and 2 for what six leave out. */
static inline double rpi_tile_roundings(const rp_plan *plan, int64_t width)
{
    if (!plan->ops || !plan->ops->amx)
        return 0;
    return fmax(20 + 6 * ceil((double)width / 32) - fmin((double)width, 20), 0);
}

/* Beyond this a sum may be infinite before others take from it. */
static inline double rpi_most(const rp_desc *d)
{
    return d->dtype == RP_F64 ? DBL_MAX / 2 : (double)(FLT_MAX / 2);
}

/* The size of channel x of value j, with the vector that is added to it, times the factor of dropout. */
double rpi_value_size(const rpi_row *r, int64_t j, int64_t x);
/* Compute the sizes of the scores of a row whose scores are known. A pair that a product of -infinity masks counts as one
 * that attends: it has no bound. */
void rpi_score_sizes(rpi_row *plain, rpi_row *absolute);
/* The bound of out at this row: see rp_error_bound. plain has scores, weights and lse; absolute the sizes of the
 * scores, in place of which it gets bounds on the errors of scores (absolute->score) and of weights
 * (absolute->weight). Returns a bound on the error of the sink's weight. */
double rpi_bound_row(rpi_row *plain, rpi_row *absolute, double *bound);

#endif
