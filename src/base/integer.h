/* base/integer.h -- arithmetic of sizes: minimum, maximum, rounding up, products checked for overflow. Independent of
 * terms, masks and calls.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef RELPOS_INTEGER_H
#define RELPOS_INTEGER_H
#include <stdbool.h>
#include <stdint.h>

static inline int64_t rpi_min(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static inline int64_t rpi_max(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

static inline int64_t rpi_clamp(int64_t x, int64_t low, int64_t high)
{
    return x < low ? low : x > high ? high : x;
}

static inline int64_t rpi_round_up(int64_t n, int64_t step)
{
    return (n + step - 1) / step * step;
}

/* Set *product = a * b * c for sizes >= 0. Return false if the product does not fit in 63 bits; a factor of 0 counts as
 * 1 in this check. */
static inline bool rpi_mul(int64_t a, int64_t b, int64_t c, int64_t *product)
{
    int64_t p;
    if (a < 0 || b < 0 || c < 0)
        return false;
    if (__builtin_mul_overflow(rpi_max(a, 1), rpi_max(b, 1), &p) || __builtin_mul_overflow(p, rpi_max(c, 1), &p))
        return false;
    *product = a && b && c ? p : 0;
    return true;
}

#endif
