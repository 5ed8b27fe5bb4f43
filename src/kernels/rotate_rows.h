/* kernels/rotate_rows.h -- RoPE on a row of queries, keys or gradients. Keys are rotated as they are packed (pack.h,
 * pack_panels; amx/amx_pack.h and amx_unpacked.h, rotated_copies), queries as a block loads them (query_block.h,
 * load_groups; amx/amx_scores.h). Gradients are rotated back: of keys in backward_task.h, of queries in
 * engine/backward.c. The cosines and sines come from sources/rope_tables.c.
 * Parameters: the verbs.
 * May not know where rows come from.
 * SPDX-License-Identifier: Apache-2.0 */

/* Rotate a row in place, channel x at row[x * step]; back with sign -1. */
static void rotate_row(const rp_term *t, const real *rope, real sign, real *row, int64_t step)
{
    for (int64_t c = 0; c < t->dim / 2; c++) {
        int64_t u, v;
        rpi_rotate_channels(t, c, &u, &v);
        rotate_pair(&row[u * step], &row[v * step], rope[2 * c], rope[2 * c + 1] * sign);
    }
}
