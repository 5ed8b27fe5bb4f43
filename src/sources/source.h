/* sources/source.h -- sources: where the biases of a tile come from, as the kernels see them. A source has the scheme
 * of its term, to evaluate pairs that no table contains. Independent of kernels, tiles and instruction sets.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef RELPOS_SOURCE_H
#define RELPOS_SOURCE_H
#include "problem/problem.h"

/* Kinds of source. A source of biases gives a pointer for each row of a tile to
 *   STRIP   entries of the head's strip, the sum of the OFFSET terms: entry delta - low
 *   GATHER  entries of the head by an index
 *   ROWS    biases computed row by row from the definition, or the array itself
 *   RUN     products of the queries with vectors, by delta - first, clamped, or by an index
 *   COLUMN  one product for each key, equal for every row
 *   KEYS    products of the keys with vectors, pair by pair
 * One kind has no biases:
 *   VALUES  vectors that are added to values, by delta - first, clamped, or by an index */
typedef enum rpi_source_kind {
    RPI_STRIP,
    RPI_GATHER,
    RPI_ROWS,
    RPI_RUN,
    RPI_COLUMN,
    RPI_KEYS,
    RPI_VALUES,
} rpi_source_kind;

typedef struct rpi_strip {
    void *entry;    /* [B or 1][H or 1][len] */
    int64_t len,    /* entries of a head */
        head_step,  /* entries from head to head; 0: all heads share them */
        batch_step, /* entries from batch entry to batch entry; 0: all share them */
        low;        /* delta of entry 0, if batch entries share one strip */
    /* [2][B or 1][H or 1][rpi_segments_of(len)] the largest, then the smallest entry of each segment */
    void *largest;
} rpi_strip;

/* Entries of a segment, for which largest.c keeps the largest and the smallest entry. */
#define RPI_SEGMENT 64
static inline int64_t rpi_segments_of(int64_t len)
{
    return (len + RPI_SEGMENT - 1) / RPI_SEGMENT;
}

/* The entry or vector of each pair: trunc(clamp(k_at - q_at)) - first, in [0, count). NaN in q_at or k_at means that
 * the token has no position, so that its pairs have no entry. For class tokens NaN means that the pair uses the
 * definition. */
typedef struct rpi_indices {
    int64_t count, first;
    double *q_at,           /* [B or 1][Lq] */
        *k_at;              /* [B or 1][Lk padded] */
    int32_t *q_int,         /* q_at as integers; NULL: some are not integers */
        *k_int;             /* k_at - first as integers; NULL with q_int */
    int64_t q_step, k_step; /* elements of q_at and k_at between batch entries; 0: they share them */
    bool has_masked;        /* some element of q_at or k_at is NaN */
    bool unclamped;         /* k_int - q_int is in [0, count) for every query and key */
} rpi_indices;

typedef struct rpi_gather {
    rpi_indices index;
    void *entry; /* [H][count] */
    void *table; /* [H][Lq][Lk padded] biases of all pairs, if batch entries share them and they are few; NULL: none */
} rpi_gather;

typedef struct rpi_filled {
    bool by_row;  /* filled by `row` of the scheme */
    int64_t sums; /* number of sums of each head that row_grad of the scheme adds to; 0: no row_grad */
    void *table;  /* like rpi_gather.table */
} rpi_filled;

/* The vectors of one product of a term. */
typedef struct rpi_vectors {
    const rpi_product *product;
    double factor;        /* factor of the product */
    int64_t count,        /* number of vectors */
        padded;           /* count rounded up to a multiple of NR */
    int64_t first,        /* delta of the first vector */
        width;            /* channels of a vector */
    void *columns;        /* [H or 1] packed like values: columns of NR channels; NULL: not needed */
    int64_t columns_step; /* between heads */
} rpi_vectors;

typedef struct rpi_run {
    rpi_vectors vectors;
    bool gather; /* vectors are found by the index, not by the offset */
    rpi_indices index;
    void *panels; /* [H or 1] packed like keys; NULL: not needed */
    int64_t panels_step;
} rpi_run;

typedef struct rpi_column {
    rpi_vectors vectors;
    void *product; /* [head of the group][Lk padded] */
} rpi_column;

typedef struct rpi_keys {
    rpi_vectors vectors;
    void *channels; /* [H or 1][width][step] channel by channel, with padding of one tile of keys on both sides */
    int64_t step;
    bool per_head;
} rpi_keys;

typedef struct rpi_values {
    rpi_run run;
    uint8_t *nonfinite; /* [H or 1][padded] 1: the vector is not finite and packed as 0; NULL: all are finite */
    int64_t nonfinite_step;
} rpi_values;

typedef struct rpi_source {
    rpi_source_kind kind;
    int32_t term;             /* -1 for STRIP, which sums several terms */
    const rpi_scheme *scheme; /* NULL for STRIP */
    bool inside;              /* biases are added before the softcap */
    union {
        rpi_strip strip;
        rpi_gather gather;
        rpi_filled rows;
        rpi_run run;
        rpi_column column;
        rpi_keys keys;
        rpi_values values;
    };
} rpi_source;

/* The sources of a call: sources of biases first, then VALUES if the call has it. */
#define RPI_MAX_SOURCES (2 * RP_MAX_TERMS + 1)
typedef struct rpi_sources {
    rpi_source source[RPI_MAX_SOURCES];
    int32_t n;
} rpi_sources;

/* Cosines and sines of queries and keys, [B or 1][Lq or Lk][dim/2][2], and the steps between batch entries in
 * elements. */
typedef struct rpi_rope_tables {
    void *q, *k;
    int64_t q_step, k_step;
} rpi_rope_tables;

/* Return the vectors of RUN, COLUMN, KEYS and VALUES, which are their first field, or NULL for other kinds. */
static inline const rpi_vectors *rpi_vectors_of(const rpi_source *s)
{
    return s->kind >= RPI_RUN ? &s->run.vectors : NULL;
}

/* Return the delta of entry 0 of the strip of batch entry b. */
static inline int64_t rpi_strip_low(const rpi_strip *s, const rpi_args *args, int64_t b)
{
    return s->batch_step ? -rpi_position(args, b, args->desc.len_q - 1) : s->low;
}

/* ---- largest.c: bounds of the biases of a call */

/* Return true if there are sources and each has bounds: it is STRIP, or ROWS whose scheme has `largest`. */
bool rpi_biases_bounded(const rpi_source *source, int32_t n);
/* Return the bias of a pair, or an upper bound of the biases of rows i0 … i0+rows-1 and keys j0 … j1-1 (+infinity if no
 * bound is known). *size is the sum of the absolute values of the biases added. Call either only if rpi_biases_bounded
 * is true. */
double rpi_bias_of_pair(const rpi_source *source, int32_t n, const rpi_args *args, int64_t b, int64_t h, int64_t i,
                        int64_t j, double *size);
double rpi_largest_bias(const rpi_source *source, int32_t n, const rpi_args *args, int64_t b, int64_t h, int64_t i0,
                        int64_t rows, int64_t j0, int64_t j1, double *size);
/* Return true if the biases of some head fall by more than `far`, so that a tile may be skipped. */
bool rpi_biases_fall(const rpi_source *source, int32_t n, const rpi_args *args, double far);

/* Return the entry or vector of a pair by the definition, which GATHER and RUN tabulate. */
int64_t rpi_source_index(const rpi_source *s, const rpi_pair *p);
/* Add g[h * step] times the derivative of an entry to `sums`, for every head h: of the strip at delta, or of entry e of
 * GATHER. */
void rpi_strip_entry_grads(const rpi_args *args, int64_t delta, const double *g, int64_t step, rpi_term_sums *sums);
void rpi_gather_entry_grads(const rpi_source *s, const rpi_args *args, int64_t e, const double *g, int64_t step,
                            rpi_term_sums *sums);

#endif
