/* sources/source.h -- where the biases of a tile come from: what the kernels see of the terms.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef RELPOS_SOURCE_H
#define RELPOS_SOURCE_H
#include "problem/problem.h"

/* Where biases come from: a pointer for each row of a tile.
 *   STRIP   the sum of the OFFSET terms: entry delta - low of the head's strip
 *   GATHER  the head's entries by an index: trunc(clamp(k_at - q_at)) - first
 *   TILE    the definition, row by row, or the array itself
 *   RUN     products of the queries with vectors, by delta - first, clamped; with `gather` by index as above
 *   COLUMN  one product of each key: the same for every row
 *   KEYS    products of the keys with vectors, pair by pair */
typedef enum rpi_source_kind {
    RPI_STRIP,
    RPI_GATHER,
    RPI_ROWS,
    RPI_RUN,
    RPI_COLUMN,
    RPI_KEYS,
} rpi_source_kind;

typedef struct rpi_source {
    rpi_source_kind kind;
    int32_t term;         /* of STRIP: none */
    const rpi_part *part; /* of RUN, COLUMN, KEYS */
    bool inside;          /* the softcap */
    bool by_row;          /* of ROWS: by the scheme's `row` */
    bool gather;          /* the index comes from q_at and k_at, and NaN there asks the definition */
    int64_t count, first, width,
        pad_count;                /* entries or vectors; delta of the first; channels; count in whole panels */
    const double *q_at, *k_at;    /* [B or 1][Lq], [B or 1][Lk] */
    const int32_t *q_int, *k_int; /* the same as whole numbers, first taken off k; NULL: they are not whole */
    bool special;                 /* some of q_at or k_at is NaN */
    bool unclamped;               /* k_int less q_int is an index as it is, for every query and key */
    int64_t q_step, k_step;       /* between batch entries */
    void *strip;                  /* of STRIP and GATHER: [B or 1][H or 1][strip_len] */
    void *
        table; /* of GATHER and arrays: [H][Lq][pad_k] the biases of all pairs, where batch entries share few; NULL: none */
    int64_t strip_len, strip_step;  /* between heads */
    int64_t strip_batch, strip_low; /* between batch entries; delta of entry 0 where they share one */
    void *panels, *rows;            /* vectors packed as keys; as values, columns of NR channels */
    int64_t panels_step, rows_step; /* between heads */
    uint8_t *extreme;               /* of VALVEC: [H or 1][pad_count] 1: a vector that is not finite; NULL: all are */
    int64_t extreme_step;
    void *column;     /* [head of the group][pad_k] */
    void *transposed; /* of KEYS: [H or 1][width][transposed_step]: channel by channel, KB more on both sides */
    int64_t transposed_step;
    bool transposed_heads; /* each head has its own */
} rpi_source;
#define RPI_MAX_SOURCES (2 * RP_MAX_TERMS + 1)

/* Entry or vector of a pair, by the definition: what GATHER and RUN tabulate. */
int64_t rpi_source_index(const rpi_source *s, const rpi_pair *p);
/* g[h * step] times the derivative of entry e of every head h, of STRIP (every OFFSET term, entry 0 at delta = low) and GATHER. */
void rpi_source_entry_grads(const rpi_source *s, const rpi_args *args, int64_t low, int64_t e, const double *g,
                            int64_t step, rpi_term_sums *sums);

#endif
