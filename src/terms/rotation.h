/* terms/rotation.h -- RoPE's rotation, once for the definition and the fast path: which channels make a pair, and how
 * an angle rotates it. Knows rp_term alone; terms/rope.h has the frequencies, sources/rope_tables.c makes the cosines
 * and sines of a call, and kernels/rotate_rows.h rotates queries and keys by them.
 * Su et al. 2021, section 3.2.
 * It may not know kernels.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef RELPOS_ROTATION_H
#define RELPOS_ROTATION_H
#include <relpos/relpos.h>

/* The two channels of pair c. */
static inline void rpi_rotate_channels(const rp_term *t, int64_t c, int64_t *x, int64_t *y)
{
    *x = t->layout == RP_LAYOUT_HALF ? c : 2 * c;
    *y = t->layout == RP_LAYOUT_HALF ? c + t->dim / 2 : 2 * c + 1;
}

/* Rotate the pair (*x, *y) by an angle of this cosine and sine, in the type REAL; back: with the sine negated. */
#define RPI_ROTATION(NAME, REAL)                                                                                       \
    static inline void NAME(REAL *x, REAL *y, REAL cosine, REAL sine)                                                  \
    {                                                                                                                  \
        const REAL a = *x, b = *y;                                                                                     \
        *x = a * cosine - b * sine;                                                                                    \
        *y = a * sine + b * cosine;                                                                                    \
    }
RPI_ROTATION(rpi_rotate, double)
RPI_ROTATION(rpi_rotate_f32, float)
#undef RPI_ROTATION

#endif
