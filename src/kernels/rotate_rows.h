/* kernels/rotate_rows.h -- apply RoPE to a row of queries, keys or gradients. Keys are rotated when they are packed
 * (pack_panels in pack.h; rotated_copies in amx/amx_pack.h and amx_unpacked.h), queries when a block loads them
 * (load_groups in query_block.h; amx/amx_scores.h). Gradients are rotated back: dk in backward_task.h, dq in
 * engine/backward.c. sources/rope_tables.c computes the cosines and sines.
 * Parameters: the vector operations.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef RPI_ISA
#include "elements.h" /* lets an editor parse this file on its own */
#endif

/* Rotate a row in place, with channel x at row[x * step]. Sign -1 rotates back; with an angle for each channel, it
 * multiplies by the transposed matrix. */
static void rotate_row(const rp_term *t, const real *rope, real sign, real *row, int64_t step)
{
    const bool channels = rpi_rotates_channels(t);
    for (int64_t c = 0; c < t->dim / 2; c++) {
        int64_t u, v;
        rpi_rotate_channels(t, c, &u, &v);
        if (channels)
            turn_pair(&row[u * step], &row[v * step], rope + 4 * c, sign < 0);
        else
            rotate_pair(&row[u * step], &row[v * step], rope[2 * c], rope[2 * c + 1] * sign);
    }
}
