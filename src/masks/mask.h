/* masks/mask.h -- what the author of a mask writes. A mask is
 *
 *     a function with its entry, in intervals.h or pairs.h     static void even_keep(…) { … }
 *                                                              RPI_PAIRS(EVEN, even_keep, …)
 *     a line at the end of include/relpos/masks.def            RP_X(EVEN, even_keys, "j % 2 == 0")
 *     and what `tools/masks.py` then makes of it: options of the command line and of Python, help, manuals
 *
 * verify, the laws, the tests of gradients and problem strings take it from the registry.
 * It may not know terms or kernels.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef RELPOS_MASK_H
#define RELPOS_MASK_H
#include "base/array.h"

/* The row of pairs that a mask is asked about. */
typedef struct rpi_mask_row {
    const rp_mask *mask; /* its parameters, which are within their bounds */
    /* its array, of the axes that the entry names: array[b, j] is rpi_integer(array->data, array->dtype,
     * rpi_index(array, b, j, 0, 0)), or rpi_truth(…); without axes there is none to read */
    const rpi_view *array;
    int64_t b, h, i; /* batch entry, head and query */
    /* i + q_offset, the query's place among the keys; below 2^61 in size, and negative before key 0 */
    int64_t position;
} rpi_mask_row;

/* A mask of either kind may depend on its row and array alone, keeps nothing from call to call, is called from many
 * threads at once, and only hides pairs: what another mask has hidden stays hidden.
 *
 *   interval   raises *lo or lowers *hi, the first key and the one after the last. Tiles outside are never
 *              computed. The interval is the same for all heads: row->h is 0. It may reach outside [0, Lk], be empty or
 *              reversed: the caller clamps it.
 *   pairs      clears keep[n] for key j0 + n, 0 <= n < count, and writes nothing else; a byte that is 0 stays 0,
 *              another stays 1. It is called for parts of a row, in any order. */
typedef void rpi_mask_interval(const rpi_mask_row *row, int64_t *lo, int64_t *hi);
typedef void rpi_mask_pairs(const rpi_mask_row *row, int64_t j0, int64_t count, uint8_t *keep);

/* An entry of the registry: rp_mask_info of relpos.h says what belongs into `info`, all of which is optional but
 * `text`. A mask has parameters or an array, since an option takes one value. */
typedef struct rpi_mask_entry {
    rp_mask_info info;
    rpi_mask_interval *interval; /* one of the two is there */
    rpi_mask_pairs *pairs;
    /* up to one without a key; each has a field at the end of rp_mask, or uses left and right */
    const rp_mask_param *params;
    bool same_rows; /* pairs do not depend on h and i: rows are copied */
} rpi_mask_entry;
#define RPI_INTERVAL(ENUM, function, ...) RPI_MASK(ENUM, .interval = function, __VA_ARGS__)
#define RPI_PAIRS(ENUM, function, ...)    RPI_MASK(ENUM, .pairs = function, .info.by_pair = 1, __VA_ARGS__)

const rpi_mask_entry *rpi_mask_entry_of(rp_mask_kind kind); /* NULL for no such kind */
/* The shape of the mask's array; false: it has none. */
bool rpi_mask_array(const rpi_mask_entry *masker, const rp_desc *desc, rpi_shape *shape);
/* Check the parameters of masks[n], and the lengths that it needs. */
rp_status rpi_mask_check(const rp_desc *desc, const rp_mask *mask, int32_t n);

#endif
