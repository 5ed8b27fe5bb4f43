/* kernels/amx/amx_peak_rate.h -- measure the peak rate of AMX tiles.
 * Parameters: none.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef RPI_ISA
#include "amx_backward.h" /* lets an editor parse this file on its own */
#endif

static double amx_peak(int64_t rounds)
{
    static const uint32_t zeros[FRAGMENT];
    amx_tiles scratch, *R = &scratch;
    (void)R;
    amx_begin();
    amx_zero(R, 0);
    amx_zero(R, 1);
    amx_zero(R, 2);
    amx_zero(R, 3);
    amx_load(R, 4, zeros, 64);
    amx_load(R, 5, zeros, 64);
    amx_load(R, 6, zeros, 64);
    amx_load(R, 7, zeros, 64);
    for (int64_t r = 0; r < rounds; r++) {
        amx_dot(R, 0, 4, 6);
        amx_dot(R, 1, 4, 7);
        amx_dot(R, 2, 5, 6);
        amx_dot(R, 3, 5, 7);
    }
    amx_end();
    return (double)rounds * 4 * TILE_SIDE * TILE_SIDE * CHUNK;
}
