/* reference/bounds.h -- by how much the fast paths may be off: docs/numerics.md derives it.
 * It may not know the fast path.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef RELPOS_BOUNDS_H
#define RELPOS_BOUNDS_H
#include "row.h"

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

/* The bound of out at this row: see rp_error_bound. Returns a bound on the error of lse. */
double rpi_bound_row(rpi_row *plain, rpi_row *absolute, double *bound, double *eta_of);

#endif
