/* terms/rotation.h -- RoPE's rotation, shared by the reference and the fast path: which channels form a pair, and how a
 * pair is rotated. terms/rope.h computes the frequencies, sources/rope_tables.c the cosines and sines of a call, and
 * kernels/rotate_rows.h rotates queries and keys.
 * Su et al. 2021, section 3.2.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef RELPOS_ROTATION_H
#define RELPOS_ROTATION_H
#include "base/array.h"
#include <relpos/relpos.h>

/* The arrays of RoPE, in the order of terms/rope.h. Positions and angles are for both q and k, or for one of them.
 * Those from the frequencies on are learned. */
enum {
    RPI_ROPE_POSITIONS,
    RPI_ROPE_Q_POSITIONS,
    RPI_ROPE_K_POSITIONS,
    RPI_ROPE_SHORT_FACTOR,
    RPI_ROPE_LONG_FACTOR,
    RPI_ROPE_FREQUENCIES,
    RPI_ROPE_ANGLES,
    RPI_ROPE_Q_ANGLES,
    RPI_ROPE_K_ANGLES,
    RPI_ROPE_END
};

/* Return the number of axes of the positions. */
static inline int64_t rpi_rotation_axes(const rp_term *t)
{
    return t->integer[0] > 0 ? t->integer[0] : 1;
}

/* Return the frequency of pair c of kv head g along an axis of the positions, from the array of given frequencies. */
static inline double rpi_rope_frequency_at(const rp_term *t, const rpi_view *v, int64_t axis, int64_t g, int64_t c)
{
    return t->integer[0] > 0 ? rpi_at(v, axis, g, c, 0) : rpi_at(v, g, c, 0, 0);
}

/* Return true if each channel has an angle, and not each pair. Then (x, y) becomes (x cos a - y sin a, y cos b + x sin
 * b), which is no rotation. */
static inline bool rpi_rotates_channels(const rp_term *t)
{
    return t->choice[0] != 0;
}

/* Return the number of angles of a token, and of their cosines and sines. */
static inline int64_t rpi_rotation_angles(const rp_term *t)
{
    return rpi_rotates_channels(t) ? t->dim : t->dim / 2;
}
static inline int64_t rpi_rotation_width(const rp_term *t)
{
    return 2 * rpi_rotation_angles(t);
}

/* Return the first rotated channel. */
static inline int64_t rpi_rotation_first(const rp_term *t)
{
    return t->integer[1];
}

/* Set x and y to the two channels of pair c. */
static inline void rpi_rotate_channels(const rp_term *t, int64_t c, int64_t *x, int64_t *y)
{
    *x = rpi_rotation_first(t) + (t->layout == RP_LAYOUT_HALF ? c : 2 * c);
    *y = rpi_rotation_first(t) + (t->layout == RP_LAYOUT_HALF ? c + t->dim / 2 : 2 * c + 1);
}

/* Define a function that rotates the pair (*x, *y) by the angle with this cosine and sine. Negate the sine to rotate
 * back. */
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

/* Define a function that turns (*x, *y) by the angles a and b of its channels, or multiplies by the transposed matrix
 * (back). `at` has the cosine and sine of a, and those of b. */
#define RPI_TURN(NAME, REAL)                                                                                           \
    static inline void NAME(REAL *x, REAL *y, const REAL *at, bool back)                                               \
    {                                                                                                                  \
        const REAL a = *x, b = *y;                                                                                     \
        *x = back ? a * at[0] + b * at[3] : a * at[0] - b * at[1];                                                     \
        *y = back ? b * at[2] - a * at[1] : b * at[2] + a * at[3];                                                     \
    }
RPI_TURN(rpi_turn, double)
RPI_TURN(rpi_turn_f32, float)
#undef RPI_TURN

/* Set by[0] and by[1] to the derivatives by the angles of the channels of a pair (x, y), from the gradient (dx, dy) of
 * the turned pair. */
static inline void rpi_turn_grad(double x, double y, double dx, double dy, const double *at, double by[2])
{
    by[0] = dx != 0 ? -dx * (x * at[1] + y * at[0]) : 0;
    by[1] = dy != 0 ? dy * (x * at[2] - y * at[3]) : 0;
}

/* Return the derivative by the angle of a pair (x, y) whose gradient is (dx, dy). Both are those before the rotation,
 * or both those after it. A gradient of 0, as of a masked key, gives 0 whatever the pair is. */
static inline double rpi_rotation_grad(double x, double y, double dx, double dy)
{
    return (dy != 0 ? x * dy : 0) - (dx != 0 ? y * dx : 0);
}

#endif
