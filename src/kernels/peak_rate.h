/* kernels/peak_rate.h -- measure the peak rate of a register tile.
 * Parameters: VL, MR, ROW_VECTORS.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef RPI_ISA
#include "block_sizes.h" /* lets an editor parse this file on its own */
#endif

/* In each round, run the multiply-adds of one register tile, independent of each other and without memory access.
 * Return the number of multiply-adds. */
static double peak(int64_t rounds)
{
    vf sum[MR * ROW_VECTORS];
    volatile real seed = (real)0.5;
    const vf x = vf_set1(seed), y = vf_set1(1 - seed);
    real lane[VL];
    RPI_UNROLL
    for (int n = 0; n < MR * ROW_VECTORS; n++)
        sum[n] = vf_set1((real)n);
    for (int64_t r = 0; r < rounds; r++) {
        RPI_UNROLL
        for (int n = 0; n < MR * ROW_VECTORS; n++)
            sum[n] = vf_fma(x, y, sum[n]);
    }
    RPI_UNROLL
    for (int n = 1; n < MR * ROW_VECTORS; n++)
        sum[0] = sum[0] + sum[n];
    vf_store(lane, sum[0]);
    seed = lane[0];
    return (double)rounds * MR * ROW_VECTORS * VL;
}
