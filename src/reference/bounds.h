/* reference/bounds.h -- bounds on the errors of the fast path; docs/maintainers/numerics.md derives them. Independent
 * of the fast path.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef RELPOS_BOUNDS_H
#define RELPOS_BOUNDS_H
#include "tangents.h"
#include <float.h>
#include <math.h>

/* Return the relative rounding error of one operation of the arithmetic. For f64 it is doubled, because the reference
 * also computes in f64 and has its own rounding errors. */
static inline double rpi_unit(const rp_desc *d)
{
    return d->dtype == RP_F64 ? 0x1p-52 : 0x1p-24;
}

/* Return what a rounding in double adds to a bound on the error of a contribution to a gradient, relative to that bound
 * (rpi_sums.rounding): the bound includes more than 1000 roundings, of the sums over keys and rows. */
static inline double rpi_gradient_rounding(const rp_desc *d)
{
    return 0x1p-53 / (1000 * rpi_unit(d));
}

/* Return the relative error of rounding an element when it is stored. */
static inline double rpi_stored(const rp_desc *d)
{
    return d->dtype == RP_BF16 ? 0x1p-8 : d->dtype == RP_F16 ? 0x1p-11 : rpi_unit(d);
}

/* Return 2^-16, the unit of the bounds on the relative error of a product of two f32 numbers that are each split into
 * two bf16 (rounding of sums excluded); 0 if no product is split so. Scores need 3/4 of it, because both components are
 * rounded; products of weights need 5/4, because one component is truncated. */
static inline double rpi_bf16_error(const rp_desc *d)
{
    return d->dtype == RP_F32 && d->precision == RP_PRECISION_HIGH ? 0x1p-16 : 0;
}

/* Return the relative error of products of dout and values on AMX tiles if both are f16. Each number is the sum of two
 * bf16. The second is at most 2^-9 of the number, and the product of the second components is omitted. */
static inline double rpi_f16_error(const rp_plan *plan)
{
    return plan->desc.dtype == RP_F16 && plan->ops && plan->ops->amx ? 0x1p-18 : 0;
}

/* Return a bound on how many more roundings a sum of `width` products has on AMX tiles than the `width` roundings of
 * multiply-adds. A sum on tiles has 18 roundings, six for each chunk of 32 (one per product of components), and 2 for
 * the omitted products. For simplicity, at most 20 of the `width` roundings are subtracted. */
static inline double rpi_tile_roundings(const rp_plan *plan, int64_t width)
{
    if (!plan->ops || !plan->ops->amx)
        return 0;
    return fmax(20 + 6 * ceil((double)width / 32) - fmin((double)width, 20), 0);
}

/* Return a limit for the sum of absolute values, up to which no partial sum can overflow. */
static inline double rpi_max_sum(const rp_desc *d)
{
    return d->dtype == RP_F64 ? DBL_MAX / 2 : (double)(FLT_MAX / 2);
}

/* Return the number of channels of the widest product of a score. */
int64_t rpi_widest_product(const rp_plan *plan);
/* Return the number of roundings of a score, and of a sum over the keys of a row. */
double rpi_score_roundings(const rp_plan *plan);
double rpi_sum_roundings(const rp_plan *plan, const rp_desc *d);
/* Return the magnitude below which kernels treat operands and results as 0. */
static inline double rpi_tiny(const rp_desc *d)
{
    return d->dtype == RP_F64 ? DBL_MIN : FLT_MIN;
}

/* Return a bound on the part of an operand that a kernel may drop: all of it if it is below `least`, and the last
 * components on AMX tiles. */
static inline double rpi_dropped_part(double x, double least)
{
    const double size = fabs(x);
    return size >= least * 0x1p26 ? 0 : size < 2 * least ? size : 2 * least;
}

/* Return a bound on the error of adding a times x to a sum. a is off by up to `error`, and tiny operands and products
 * may be treated as 0. */
static inline double rpi_rounded_product(const rp_desc *d, double a, double error, double x)
{
    const double least = rpi_tiny(d);
    return error * fabs(x) + (a + error) * rpi_dropped_part(x, least) + rpi_dropped_part(a, least) * fabs(x) + least;
}

/* Return the size up to which summands cannot make a sum over keys or rows overflow. */
static inline double rpi_summand_limit(const rp_desc *d)
{
    return rpi_max_sum(d) / (2 * (double)(d->heads / d->kv_heads * d->len_q + d->len_k));
}

/* Return rpi_rounded_product, or infinity if a sum of such products over keys and rows may overflow. */
static inline double rpi_product_error(const rp_desc *d, double largest, double a, double error, double x)
{
    return (a + error) * fabs(x) <= largest ? rpi_rounded_product(d, a, error, x) : INFINITY;
}

/* Return a bound on the error of the slope of a softcap whose argument is off by up to eta. */
static inline double rpi_slope_error(double cap, double slope, double eta, double u)
{
    return cap > 0 ? fmin(fabs(slope) * expm1(2 * eta / cap), 1) + 16 * u : 0;
}

/* Return a bound on the error of the derivative of a softcap by its limit, t - u (1 - t^2), whose argument x is off by
 * up to eta. Its own derivative by u, 2 u t (1 - t^2), is at most 2 u^2 and at most 0.65. Kernels sum a series if |t| <
 * 0.25, with errors relative to the result; else u and t have errors of some units in the last place. */
static inline double rpi_by_limit_error(const rp_desc *d, double cap, double x, double eta)
{
    const double u = rpi_unit(d), off = eta / cap, most = fabs(rpi_cap_ratio(cap, x)) + off,
                 result = fmin(most * most * most, 1), steep = fmin(2 * most * most, 0.65);
    return cap == 0 ? 0
                    : fmin(steep * off, 2) + u * (most < 0.2 ? 64 * result : 32 * (1 + fmin(most, 20))) + rpi_tiny(d);
}

/* Return the relative error of the sums in double of a softcap's gradient: of kernels over the rows and lanes of a
 * block of keys, then over blocks and heads; of the reference over keys, then over rows. */
static inline double rpi_softcap_sums_error(const rp_desc *d)
{
    const double heads = (double)d->batch * (double)d->heads, rows = (double)d->len_q, keys = (double)d->len_k;
    return 0x1p-53 * (16 * rows + heads * (rows + keys / 256 + 1) + keys);
}

/* Return a bound on the relative error of a score because the angles of given frequencies are off: each is rounded in
 * double, once in the reference and once in the fast path, which adds the error of up to 64 steps of one position. Of
 * given angles, only cosines and sines are off. */
double rpi_angle_error(const rpi_row *r, int64_t j);

/* Return |v| + |vector| for channel x of value j and its vector, times the factor of dropout. */
double rpi_value_size(const rpi_row *r, int64_t j, int64_t x);
/* Compute the sizes of the scores of a row whose scores are known. A pair that is masked by a product of -infinity
 * counts as attended, so its bound is infinite. */
void rpi_score_sizes(rpi_row *plain, rpi_row *absolute);
/* Compute the bound of rp_error_bound for one row. `plain` has scores, weights and lse. `absolute` has the sizes of the
 * scores. This function replaces them by bounds on the errors of the scores (absolute->score) and stores bounds on the
 * errors of the weights (absolute->weight). Return a bound on the error of the sink's weight. */
double rpi_bound_row(rpi_row *plain, rpi_row *absolute, double *bound);
/* Return a bound on the error of a weight w of the backward pass, given the error `off` of the forward pass. The weight
 * is recomputed from the score and lse, each of which is off by up to eta. If lse is given and rpi_lse_limit allows it,
 * it is one rounded number; else it is the largest score and the logarithm of a sum. The argument of exp is limited to
 * the range in which exp does not return 0. */
double rpi_recomputed_weight_error(const rpi_row *r, double score, double eta, double w, double off);
/* Compute the bounds of rp_tangent_bound for one row: of channel c of the tangent of out in out[c] (if of_out), and
 * return that of the tangent of lse. `absolute` has the sizes of the scores and of their tangents (rpi_score_sizes,
 * rpi_tangent_sizes). They are replaced by bounds as in rpi_bound_row, which also computes t->row.out; inside, biased
 * and score become bounds on the errors of these tangents, and sink one on the error of the sink's weight. */
double rpi_tangent_bound_row(rpi_tangent_row *t, rpi_tangent_row *absolute, bool of_out, double *out);

#endif
