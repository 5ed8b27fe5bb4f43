/* masks/mask.h -- how to add a mask. You write
 *
 *     a function with its entry, in intervals.h or pairs.h     static void even_keep(…) { … }
 *                                                              RPI_PAIRS(EVEN, even_keep, …)
 *     a line at the end of include/relpos/masks.def            RP_X(RP_MASK_EVEN, even_keys, "j % 2 == 0")
 *
 * and run `tools/masks.py`, which writes the options of the command line and of Python, help and manuals. `relpos
 * verify`, the tests and problem strings get the mask from the registry. Independent of terms and kernels.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef RELPOS_MASK_H
#define RELPOS_MASK_H
#include "base/array.h"

/* The row of pairs that a mask filters. */
typedef struct rpi_mask_row {
    const rp_mask *mask; /* parameters, already checked against their bounds */
    /* The mask's array, with the axes that its rpi_mask_entry declares. Read element [b, j] with
     * rpi_integer(array->data, array->dtype, rpi_index(array, b, j, 0, 0)) or rpi_truth(…). If the entry declares no
     * axes, do not read it. */
    const rpi_view *array;
    int64_t b, h, i; /* batch entry, head and query */
    /* i + q_offset: the query's position among the keys; negative before key 0. |position| is below 2^61. */
    int64_t position;
} rpi_mask_row;

/* A mask function depends only on its row and array, keeps no state between calls, and runs on many threads at the same
 * time. It only hides pairs: a pair that another mask has hidden stays hidden.
 *
 *   interval   raises *lo (the first key) or lowers *hi (one past the last key). Keys outside are never computed. All
 *              heads have the same interval, so row->h is 0. It may extend beyond [0, Lk], be empty or be reversed:
 *              the caller clamps it. Without an array over Lq, neither end may decrease as the row's position grows:
 *              mpi/stretches.c asks for the first and the last of many rows.
 *   pairs      clears keep[n] to hide key j0 + n, 0 <= n < count, and writes nothing else. A byte that is 0 must stay
 *              0; all others are 1. It is called for parts of a row, in any order. */
typedef void rpi_mask_interval(const rpi_mask_row *row, int64_t *lo, int64_t *hi);
typedef void rpi_mask_pairs(const rpi_mask_row *row, int64_t j0, int64_t count, uint8_t *keep);

/* An entry of the registry. rp_mask_info in relpos.h describes the fields of `info`; all except `text` are optional. A
 * mask has parameters or an array, but not both, because its command-line option takes one value. */
typedef struct rpi_mask_entry {
    rp_mask_info info;
    rpi_mask_interval *interval; /* either interval or pairs is set */
    rpi_mask_pairs *pairs;
    /* the last entry has no key; a parameter is `left`, `right` or a field at the end of rp_mask */
    const rp_mask_param *params;
    bool same_rows; /* the result of `pairs` does not depend on h and i, so rows are copied */
} rpi_mask_entry;
#define RPI_INTERVAL(ENUM, function, ...) RPI_MASK(ENUM, .interval = function, __VA_ARGS__)
#define RPI_PAIRS(ENUM, function, ...)    RPI_MASK(ENUM, .pairs = function, .info.by_pair = 1, __VA_ARGS__)

const rpi_mask_entry *rpi_mask_entry_of(rp_mask_kind kind); /* NULL if there is no such kind */
/* Compute the shape of the mask's array. Return false if the mask has no array. */
bool rpi_mask_array(const rpi_mask_entry *mask_entry, const rp_desc *desc, rpi_shape *shape);
/* Check the parameters of masks[n] and, if the mask requires it, that len_q equals len_k. */
rp_status rpi_mask_check(const rp_desc *desc, const rp_mask *mask, int32_t n);

#endif
