/* masks/mask.h -- what a mask gives: an interval of keys, or a byte for each pair.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef RELPOS_MASK_H
#define RELPOS_MASK_H
#include "base/array.h"

/* One mask. `interval` narrows the keys [*lo, *hi) that the query at a position may see; `keep` clears bytes of keys that
 * pair by pair may not be seen. A mask has either or both; together they are its meaning. */
typedef struct rpi_masker {
    rp_status (*check)(const rp_desc *desc, const rp_mask *mask, int32_t n);
    void (*shape)(const rp_desc *desc, rpi_shape *shape); /* NULL: no array */
    void (*interval)(const rp_mask *mask, const rpi_view *a, int64_t b, int64_t position, int64_t *lo, int64_t *hi);
    void (*keep)(const rpi_view *a, int64_t b, int64_t h, int64_t i, int64_t j0, int64_t n, uint8_t *keep);
    bool keep_same_rows; /* keep does not depend on h and i */
} rpi_masker;

const rpi_masker *rpi_masker_of(rp_mask_kind kind);

#endif
