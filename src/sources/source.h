/* sources/source.h -- sources: where the kernels get the biases of a tile. A source refers to the scheme of its term,
 * to evaluate pairs that no table contains. Independent of kernels, tiles and instruction sets.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef RELPOS_SOURCE_H
#define RELPOS_SOURCE_H
#include "problem/problem.h"

/* Kinds of sources. For each row of a tile, a source of biases returns a pointer to
 *   STRIP   elements of the head's strip, which sums the OFFSET terms; element delta - low is the bias of delta
 *   GATHER  entries of the head, looked up by an index that is computed or an element of an array
 *   ROWS    biases computed row by row from the definition, or the array itself
 *   RUN     products of the query with vectors; an index or clamp(delta - first) chooses the vector
 *   COLUMN  one product for each key, the same for every row
 *   KEYS    products of the keys with vectors; clamp(delta - first) chooses the vector
 * One kind gives no biases:
 *   VALUES  vectors that are added to the values; they are chosen as for RUN */
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
    int64_t len,    /* length of the strip of a head, in elements */
        head_step,  /* elements from the strip of one head to that of the next; 0 if all heads share one */
        batch_step, /* elements from the strips of one batch entry to those of the next; 0 if all share them */
        low,        /* delta of element 0, if batch entries share the strip */
        from, past; /* the call uses elements from … past-1 */
    /* [2][B or 1][H or 1][rpi_segments_of(len)] the largest, then the smallest element of each segment */
    void *largest;
} rpi_strip;

/* Number of elements in a segment. largest.c stores the largest and the smallest element of each segment. */
#define RPI_SEGMENT 64
static inline int64_t rpi_segments_of(int64_t len)
{
    return (len + RPI_SEGMENT - 1) / RPI_SEGMENT;
}

/* The entry or vector of each pair: trunc(clamp(k_at - q_at)) - first, in [0, count). NaN in q_at or k_at means that
 * the token has no position and its pairs have no entry. For class tokens, NaN means that the definition computes the
 * pair. */
typedef struct rpi_indices {
    int64_t count, first;
    double *q_at,           /* [B or 1][Lq] */
        *k_at;              /* [B or 1][Lk padded] */
    int32_t *q_int,         /* q_at as integers, of the batch entries whose positions are integers */
        *k_int;             /* k_at - first as integers, of the same entries */
    int64_t q_step, k_step; /* elements of q_at and k_at between batch entries; 0 if they share them */
    /* of each batch entry, so that no entry changes the order of sums of another one, [B or 1]: */
    uint8_t *integral, /* 1: all positions are integers, and q_int and k_int have them */
        *has_masked,   /* 1: some element of q_at or k_at is NaN */
        *unclamped;    /* 1: k_int - q_int is in [0, count) for every query and key */
} rpi_indices;

/* Return the index of the elements of batch entry b in integral, has_masked and unclamped. */
static inline int64_t rpi_index_entry(const rpi_indices *s, int64_t b)
{
    return s->k_step ? b : 0;
}

typedef struct rpi_gather {
    bool by_array; /* the indices are elements of an array of the term; of `index`, only count is used */
    rpi_indices index;
    void *entry; /* [H][count] */
    void *table; /* [H][Lq][Lk padded] biases of all pairs, or NULL; see wants_table in place.c */
} rpi_gather;

typedef struct rpi_filled {
    bool by_row;  /* the scheme's `row` function fills the biases */
    int64_t sums; /* sums per head that the scheme's row_grad adds to; 0 without row_grad */
    void *table;  /* like rpi_gather.table */
} rpi_filled;

/* The vectors of one product of a term. */
typedef struct rpi_vectors {
    const rpi_product *product;
    double factor; /* factor of the product */
    int64_t skip,  /* number of the product's vectors before the first one that the call may use */
        count,     /* number of vectors */
        padded;    /* count rounded up to a multiple of NR */
    int64_t first, /* delta of the first vector, which is vector `skip` of the product */
        width;     /* channels of a vector */
    /* Vectors that follow each other and are one row of the array, as in a bucket of several offsets, are packed once
     * for products. NULL: each vector is packed (VALUES, or `gather`). */
    int32_t *place,       /* [padded] the packed vector of each vector */
        *first_of;        /* [padded] the first vector of each packed vector */
    int64_t packed;       /* number of packed vectors */
    void *columns;        /* [H or 1] packed like values, as columns of NR channels; NULL if not needed */
    int64_t columns_step; /* between heads */
} rpi_vectors;

typedef struct rpi_run {
    rpi_vectors vectors;
    bool gather; /* `index` chooses the vectors, not the offset */
    rpi_indices index;
    void *panels; /* [H or 1] packed vectors, packed like keys; NULL if not needed */
    int64_t panels_step;
} rpi_run;

typedef struct rpi_column {
    rpi_vectors vectors;
    void *product; /* [head of the group][Lk padded] */
} rpi_column;

typedef struct rpi_keys {
    rpi_vectors vectors;
    void *rows; /* [H or 1][padded + NR][width padded] packed vectors; a register tile may read past the last one */
    int64_t rows_step;
} rpi_keys;

typedef struct rpi_values {
    rpi_run run;
    uint8_t *nonfinite; /* [H or 1][padded] 1: the vector is not finite, and is packed as 0; NULL if all are finite */
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

/* The sources of a call: first those of biases, then VALUES if the call has it. */
#define RPI_MAX_SOURCES (2 * RP_MAX_TERMS + 1)
typedef struct rpi_sources {
    rpi_source source[RPI_MAX_SOURCES];
    int32_t n;
} rpi_sources;

/* Cosines and sines of queries (q) and keys (k), [B or 1][Hk or 1][Lq or Lk][angles][2], and the elements between batch
 * entries and kv heads. */
typedef struct rpi_rope_tables {
    void *q, *k;
    int64_t q_step, k_step, q_head, k_head;
} rpi_rope_tables;

/* Return the vectors of a RUN, COLUMN, KEYS or VALUES source (always their first field), or NULL for other kinds. */
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

/* Return true if there are sources and each of them has bounds: it is STRIP, or ROWS with a scheme that defines
 * `largest`. */
bool rpi_biases_bounded(const rpi_source *source, int32_t n);
/* Return the bias of a pair (rpi_bias_of_pair), or an upper bound of the biases of rows i0 … i0+rows-1 and keys j0 …
 * j1-1, +infinity if unknown (rpi_largest_bias). Set *size to the sum of the absolute values of the added biases. Call
 * these functions only if rpi_biases_bounded is true. */
double rpi_bias_of_pair(const rpi_source *source, int32_t n, const rpi_args *args, int64_t b, int64_t h, int64_t i,
                        int64_t j, double *size);
double rpi_largest_bias(const rpi_source *source, int32_t n, const rpi_args *args, int64_t b, int64_t h, int64_t i0,
                        int64_t rows, int64_t j0, int64_t j1, double *size);
/* Return true if the biases of some head differ by more than `far`, so that skipping tiles is possible. */
bool rpi_biases_fall(const rpi_source *source, int32_t n, const rpi_args *args, double far);

/* Return the bias of a pair, evaluated from the definition, or its tangent in a call of tangents. */
double rpi_source_bias(const rpi_source *s, const rpi_args *args, const rpi_pair *p);
/* Return the array of a TILE in_place, whose elements are the biases or their tangents. */
static inline const rpi_view *rpi_source_array(const rpi_args *args, int32_t term)
{
    return args->along ? &args->along->term[term][0] : &args->term[term][0];
}
/* Return the array of the indices of a GATHER by_array. */
static inline const rpi_view *rpi_source_indices(const rpi_args *args, const rpi_source *s)
{
    return &args->term[s->term][s->scheme->index_array];
}
/* Evaluate the definition to get the index of a pair's entry (GATHER) or vector (RUN). */
int64_t rpi_source_index(const rpi_source *s, const rpi_pair *p);
/* For every head h, add g[h * step] times the derivative of an entry to `sums`. The entry is that at delta of the strip
 * of batch entry b, or entry e of a GATHER. */
void rpi_strip_entry_grads(const rpi_args *args, int64_t b, int64_t delta, const double *g, int64_t step,
                           rpi_term_sums *sums);
void rpi_gather_entry_grads(const rpi_source *s, const rpi_args *args, int64_t e, const double *g, int64_t step,
                            rpi_term_sums *sums);

#endif
