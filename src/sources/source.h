/* sources/source.h -- where the biases of a tile come from: what the kernels see of the terms. A source knows its
 * term's scheme for pairs that no table holds; it knows neither tiles nor instruction sets.
 * It may not know kernels.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef RELPOS_SOURCE_H
#define RELPOS_SOURCE_H
#include "problem/problem.h"

/* A source of biases gives a pointer for each row of a tile.
 *   STRIP   the sum of the OFFSET terms: entry delta - low of the head's strip
 *   GATHER  the head's entries by an index
 *   ROWS    the definition, row by row, or the array itself
 *   RUN     products of the queries with vectors, by delta - first, clamped; or by an index
 *   COLUMN  one product of each key: the same for every row
 *   KEYS    products of the keys with vectors, pair by pair
 * and one source adds to values instead:
 *   VALUES  vectors by delta - first, clamped, or by an index, which are added to values */
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
    void *entry;                             /* [B or 1][H or 1][len] */
    int64_t len, head_step, batch_step, low; /* steps 0: shared; low: delta of entry 0 where batch entries share one */
    void *largest;                           /* [2][B or 1][H or 1][rpi_segments_of(len)] largest, least of segments */
} rpi_strip;

/* Entries of a strip are bounded by segments. */
#define RPI_SEGMENT 64
static inline int64_t rpi_segments_of(int64_t len)
{
    return (len + RPI_SEGMENT - 1) / RPI_SEGMENT;
}

/* Entry or vector of each pair: trunc(clamp(k_at - q_at)) - first, in [0, count). NaN in q_at or k_at: no
 * position, and so none; of class tokens: the definition is asked. */
typedef struct rpi_indices {
    int64_t count, first;
    double *q_at, *k_at;    /* [B or 1][Lq], [B or 1][Lk padded] */
    int32_t *q_int, *k_int; /* the same as integers, first taken off k; NULL: they are not integral */
    int64_t q_step, k_step; /* between batch entries */
    bool has_masked;        /* some of q_at or k_at is NaN */
    bool unclamped;         /* k_int minus q_int is in [0, count) for every query and key */
} rpi_indices;

typedef struct rpi_gather {
    rpi_indices index;
    void *entry; /* [H][count] */
    void *table; /* [H][Lq][Lk padded] the biases of all pairs, where batch entries share few; NULL: none */
} rpi_gather;

typedef struct rpi_filled {
    bool by_row;  /* by the scheme's `row` */
    int64_t sums; /* of each head, to which the scheme's row_grad adds; 0: it has none */
    void *table;  /* as above */
} rpi_filled;

/* The vectors of one product of a term. */
typedef struct rpi_vectors {
    const rpi_product *product;
    double factor;         /* of the product */
    int64_t count, padded; /* vectors; the same rounded up to panels of NR */
    int64_t first, width;  /* delta of the first; channels */
    void *columns;         /* [H or 1] packed as values are: columns of NR channels; NULL: none are needed */
    int64_t columns_step;  /* between heads */
} rpi_vectors;

typedef struct rpi_run {
    rpi_vectors vectors;
    bool gather; /* go by the index */
    rpi_indices index;
    void *panels; /* [H or 1] packed as keys are; NULL: none are needed */
    int64_t panels_step;
} rpi_run;

typedef struct rpi_column {
    rpi_vectors vectors;
    void *product; /* [head of the group][Lk padded] */
} rpi_column;

typedef struct rpi_keys {
    rpi_vectors vectors;
    void *channels; /* [H or 1][width][step]: channel by channel, a tile of keys more on both sides */
    int64_t step;
    bool per_head;
} rpi_keys;

typedef struct rpi_values {
    rpi_run run;
    uint8_t *nonfinite; /* [H or 1][padded] 1: a vector that is not finite, packed as 0; NULL: all are finite */
    int64_t nonfinite_step;
} rpi_values;

typedef struct rpi_source {
    rpi_source_kind kind;
    int32_t term;             /* of STRIP, which sums many: -1 */
    const rpi_scheme *scheme; /* the term's; of STRIP: NULL */
    bool inside;              /* the softcap */
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

/* The sources of a call: those of biases, then the one of VALUES, if any. */
#define RPI_MAX_SOURCES (2 * RP_MAX_TERMS + 1)
typedef struct rpi_sources {
    rpi_source source[RPI_MAX_SOURCES];
    int32_t n;
} rpi_sources;

/* Cosines and sines of queries and keys: [B or 1][Lq or Lk][dim/2][2]; and numbers between batch entries. */
typedef struct rpi_rope_tables {
    void *q, *k;
    int64_t q_step, k_step;
} rpi_rope_tables;

/* The vectors of RUN, COLUMN, KEYS and VALUES, which all begin with them; NULL: this kind has none. */
static inline const rpi_vectors *rpi_vectors_of(const rpi_source *s)
{
    return s->kind >= RPI_RUN ? &s->run.vectors : NULL;
}

/* Delta of entry 0 of the strip of batch entry b. */
static inline int64_t rpi_strip_low(const rpi_strip *s, const rpi_args *args, int64_t b)
{
    return s->batch_step ? -rpi_position(args, b, args->desc.len_q - 1) : s->low;
}

/* ---- largest.c: how far the biases of a call fall */

/* Whether the biases of all sources have bounds: there are some, and each is a STRIP, or ROWS whose scheme has
 * `largest`. */
bool rpi_biases_bounded(const rpi_source *source, int32_t n);
/* The bias of a pair, and a number that no bias of rows i0 … i0+rows-1 and keys j0 … j1-1 exceeds; +infinity where none
 * is known. *size: the sum of the sizes of what was added. Only where the biases have bounds. */
double rpi_bias_of_pair(const rpi_source *source, int32_t n, const rpi_args *args, int64_t b, int64_t h, int64_t i,
                        int64_t j, double *size);
double rpi_largest_bias(const rpi_source *source, int32_t n, const rpi_args *args, int64_t b, int64_t h, int64_t i0,
                        int64_t rows, int64_t j0, int64_t j1, double *size);
/* Whether the biases of some head fall by more than `far`, so that a tile might be left out. */
bool rpi_biases_fall(const rpi_source *source, int32_t n, const rpi_args *args, double far);

/* Entry or vector of a pair, by the definition: what GATHER and RUN tabulate. */
int64_t rpi_source_index(const rpi_source *s, const rpi_pair *p);
/* g[h * step] times the derivative of an entry of every head h: of the strip at delta, of entry e of GATHER. */
void rpi_strip_entry_grads(const rpi_args *args, int64_t delta, const double *g, int64_t step, rpi_term_sums *sums);
void rpi_gather_entry_grads(const rpi_source *s, const rpi_args *args, int64_t e, const double *g, int64_t step,
                            rpi_term_sums *sums);

#endif
