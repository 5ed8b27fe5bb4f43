/* problem/limits.h -- the limits of a call: the sizes that determine the memory of bias sources and RoPE tables. A plan
 * has upper bounds for calls that pass no positions and use the description's q_offset for every batch entry.
 * Each call computes its exact limits from its arrays; if they exceed the plan's bounds, the call allocates memory
 * itself. sources/limits.c fills in this struct. Includes only the public header.
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
    /* for terms with given positions: a list has an entry for each offset first … first+count-1. If there are too many
     * offsets for a list, count is 0 and the definition computes each bias. */
    int64_t first, count;
} rpi_term_limits;

typedef struct rpi_limits {
    int64_t len_q, len_k;
    int64_t rows;                   /* rows that the call computes */
    int64_t strip_from, strip_past; /* deltas of rp_backward's rows and keys, for the largest q_offset, from element
                                     * strip_from of a strip to before strip_past; of other calls, the whole strip */
    int64_t min_offset, max_offset; /* smallest and largest q_offset of the batch entries */
    bool strip_per_head;            /* heads have different strips */
    bool strip_per_entry;           /* batch entries have different strips at any q_offset */
    bool rope_per_batch[2];         /* [0] queries, [1] keys: batch entries have different cosines and sines */
    /* tables of rp_prepare for the strip, and for the keys' cosines and sines; NULL if the call computes them */
    const rp_prepared *strip, *rope;
    bool summary;           /* profile, key_mass or entropy is requested */
    int64_t decode_queries; /* number of queries of a decoding call; 0 for other calls */
    int64_t rope_heads;     /* kv heads with cosines and sines of their own, or 1 */
    bool rope_angles;       /* RoPE's angles are given */
    bool rope_same;         /* one array has the angles of queries and keys: they share cosines and sines */
    bool rope_wanted[2];    /* [0] queries, [1] keys: a gradient of their angles is requested, or of frequencies */
    int64_t rope_shared;    /* heads of the gradient of angles for both queries and keys, if it is requested */
    bool dq;                /* the gradient of q is requested, or one that needs it */
    bool softcap;           /* the gradient of a softcap is requested */
    bool per_sample;        /* the gradient of some array is requested for each batch entry */
    rpi_term_limits term[RP_MAX_TERMS];
} rpi_limits;

#endif
