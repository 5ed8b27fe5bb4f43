/* normal.h -- random numbers that depend only on a seed, a stream and an index.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef RELPOS_LAYERS_NORMAL_H
#define RELPOS_LAYERS_NORMAL_H

#include "src/base/random.h"
#include <math.h>

static inline uint64_t layers_random(uint64_t seed, uint64_t stream, uint64_t n)
{
    return rpi_mix64(rpi_mix64(rpi_mix64(seed + 0x9e3779b97f4a7c15u) ^ (stream + 0xd1b54a32d192ed03u)) ^
                     (n + 0x8cb92ba72f3d8dd7u));
}

static inline double layers_uniform(uint64_t seed, uint64_t stream, uint64_t n) /* 0 <= u < 1 */
{
    return (double)(layers_random(seed, stream, n) >> 11) * 0x1p-53;
}

static inline double layers_normal(uint64_t seed, uint64_t stream, uint64_t n) /* Box, Muller 1958 */
{
    const double u = 1 - layers_uniform(seed, stream, 2 * n), v = layers_uniform(seed, stream, 2 * n + 1);
    return sqrt(-2 * log(u)) * cos(6.283185307179586 * v);
}

#endif
