/* problem/limits.h -- the limits of a call: sizes that depend on its arrays, and that determine the memory of bias
 * sources and RoPE tables. A plan has upper bounds of them, for calls without given positions whose batch entries have
 * the offset of the description. Each call has its exact limits; if they exceed the bounds, it allocates its own
 * memory. sources/limits.c fills this in. Includes only the public header.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef RELPOS_LIMITS_H
#define RELPOS_LIMITS_H
#include <relpos/relpos.h>
#include <stdbool.h>

typedef struct rpi_term_limits {
    bool by_position;  /* q_positions or k_positions are given */
    bool present[2];   /* VEC and VALVEC: the arrays of each product are given */
    bool per_head[2];  /* VEC and VALVEC: the vectors differ between heads */
    bool shares_batch; /* the array of biases is the same for every batch entry */
    bool wanted;       /* the gradient of one of its arrays is requested */
    /* for terms with given positions: the offsets first … first+count-1 occur, each with an entry in a list; count 0:
     * too many offsets for a list, so each value is computed from the definition */
    int64_t first, count;
} rpi_term_limits;

typedef struct rpi_limits {
    int64_t len_q, len_k;
    int64_t min_offset, max_offset; /* smallest and largest q_offset of the batch entries */
    bool strip_per_head;            /* heads have different strips */
    bool rope_per_batch[2];         /* batch entries have different cosines and sines: of queries, of keys */
    /* prepared strip, and prepared cosines and sines of the keys; NULL: the call computes them */
    const rp_prepared *strip, *rope;
    bool summary;           /* profile, key_mass or entropy is requested */
    int64_t decode_queries; /* queries of a call that runs tile by tile; 0: it does not */
    bool dq;                /* the gradient of q is requested */
    rpi_term_limits term[RP_MAX_TERMS];
} rpi_limits;

#endif
