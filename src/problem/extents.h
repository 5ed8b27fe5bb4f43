/* problem/extents.h -- how large a call is where its description alone does not tell: what its arrays decide about the
 * memory of the sources of biases and of RoPE's tables. A plan holds bounds for every call without given positions
 * whose batch entries have the description's offset; a call has its exact extents, and allocates its own memory where
 * they exceed the bounds. It may know the public header alone: sources/extents.c fills it in.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef RELPOS_EXTENTS_H
#define RELPOS_EXTENTS_H
#include <relpos/relpos.h>
#include <stdbool.h>

typedef struct rpi_term_extent {
    bool by_position;  /* q_positions or k_positions are given */
    bool present[2];   /* of VEC and VALVEC: the arrays of each product are given */
    bool per_head[2];  /* and each head has vectors of its own */
    bool shares_batch; /* an array of biases is the same for every batch entry */
    bool wanted;       /* the gradient of one of its arrays is asked for */
    /* of terms that go by given positions: the offsets first … first+count-1 occur, each an entry of a list; count 0:
     * no list can hold them, and the definition is asked */
    int64_t first, count;
} rpi_term_extent;

typedef struct rpi_extents {
    int64_t len_q, len_k;
    int64_t min_offset, max_offset; /* of q_offset among the batch entries */
    bool strip_per_head;            /* each head has a strip of its own */
    bool rope_per_batch[2];         /* each batch entry has cosines and sines of its own: of queries, of keys */
    /* what holds the strip, and the keys' cosines and sines; NULL: the call makes them */
    const rp_prepared *strip, *rope;
    bool summary;           /* profile, key_mass or entropy is asked for */
    int64_t decode_queries; /* of a call that goes tile by tile; 0: it does not */
    bool dq;                /* the gradient of q is asked for */
    rpi_term_extent term[RP_MAX_TERMS];
} rpi_extents;

#endif
