/* base/random.h -- random numbers computed from counters, so that dropout drops the same weights on any machine and
 * with any number of threads. Independent of terms, masks and calls.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef RELPOS_RANDOM_H
#define RELPOS_RANDOM_H

#include <stdint.h>

/* The random seed of row (b, h, i). The weight of key j is kept if rpi_random(row, j) >= rpi_dropout_limit(p). */
typedef struct rpi_dropout_row {
    uint32_t low, high;
} rpi_dropout_row;

static inline uint64_t rpi_mix64(uint64_t z) /* finalizer of splitmix64: Steele, Lea, Flood 2014 */
{
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

static inline rpi_dropout_row rpi_dropout_at(uint64_t seed, int64_t b, int64_t h, int64_t i)
{
    uint64_t z = rpi_mix64(seed + 0x9e3779b97f4a7c15u);
    z = rpi_mix64(z ^ ((uint64_t)b + 0xd1b54a32d192ed03u));
    z = rpi_mix64(z ^ ((uint64_t)h + 0x8cb92ba72f3d8dd7u));
    z = rpi_mix64(z ^ ((uint64_t)i + 0xaaaaaaaaaaaaaaabu));
    return (rpi_dropout_row){(uint32_t)z, (uint32_t)(z >> 32)};
}

/* Two rounds of a 32-bit finalizer (multipliers found by Wellons 2018), with one half of the row's seed added before
 * the first round and the other half after each round. apply_dropout (kernels/softmax.h) computes the same with
 * vectors. */
#define RPI_MIX32_A 0x21f0aaadu
#define RPI_MIX32_B 0x735a2d97u
static inline uint32_t rpi_random(rpi_dropout_row row, int64_t j)
{
    uint32_t x = ((uint32_t)j ^ (uint32_t)((uint64_t)j >> 32)) + row.low;
    for (int round = 0; round < 2; round++) {
        x = (x ^ x >> 16) * RPI_MIX32_A;
        x = (x ^ x >> 15) * RPI_MIX32_B;
        x = (x ^ x >> 15) + row.high;
    }
    return x;
}

static inline uint32_t rpi_dropout_limit(double p)
{
    return (uint32_t)(p * 0x1p32);
}

#endif
