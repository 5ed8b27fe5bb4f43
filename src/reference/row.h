/* reference/row.h -- one query row of the reference path: its scores, weights and output, step by step. Independent of
 * the fast path.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef RELPOS_ROW_H
#define RELPOS_ROW_H
#include "problem/problem.h"

typedef struct rpi_row {
    const rp_plan *plan;
    const rpi_args *args;
    int64_t b, h, g, i;
    double *plain_q, *q;       /* [Dk] query before and after rotation */
    double *plain_keys, *keys; /* [Lk][Dk] keys before and after rotation, of batch entry keys_b and kv head keys_g */
    int64_t keys_b, keys_g;
    double *score, *weight;      /* [Lk]; weights before dropout */
    double *inside, *biased;     /* [Lk] arguments of the softcaps before and after the biases */
    double *slope;               /* [Lk] derivative of the softcap before the biases, 1 without one */
    double *slope_after;         /* [Lk] derivative of the softcap after the biases, 1 without one */
    double *curve, *curve_after; /* [Lk] second derivatives of the softcaps; not computed if NULL */
    uint8_t *keep;               /* [Lk] 0: masked */
    double *out;                 /* [Dv] */
    double lse;
    double *raw, *scaled, *bias; /* [Lk] for callers that trace a row; not stored if NULL */
    /* cached product of the query with vector e, for both products of a term; keys with the same e reuse it */
    struct {
        const rp_term *term;
        int64_t e;
        double sum;
    } product[2];
    bool absolute; /* sum absolute values, for error bounds */
    rpi_arena memory;
} rpi_row;

rp_status rpi_row_alloc(rpi_row *r, const rp_plan *plan, const rpi_args *args);
void rpi_row_free(rpi_row *r);
void rpi_row_at(rpi_row *r, int64_t b, int64_t h, int64_t i);
void rpi_row_scores(rpi_row *r);
void rpi_row_softmax(rpi_row *r);
void rpi_row_mix(rpi_row *r);
/* Return a pair for a term's definition: with the query only (rpi_row_query), or with query and key j
 * (rpi_row_pair). */
rpi_pair rpi_row_query(const rpi_row *r, int32_t term);
rpi_pair rpi_row_pair(const rpi_row *r, int32_t term, int64_t j);
double rpi_row_bias(rpi_row *r, rpi_pair *query, int64_t j); /* 0 if the term is not a bias */
/* Steps of rpi_row_scores: the dot product, a product of a VEC term, and the softcap. */
double rpi_row_dot(const rpi_row *r, const double *q, const double *k);
double rpi_row_product(rpi_row *r, const rpi_pair *p, int n); /* product n of a term of form VEC, without its factor */
/* Return x if cap is 0. Set *slope and *curve, unless NULL, to the first and second derivative. */
double rpi_row_cap(double cap, double x, double *slope, double *curve);
/* Return x / cap for a softcap, or RPI_CAPPED with the sign of x if it is larger: there the slope in double is 0. */
#define RPI_CAPPED 64.0
double rpi_cap_ratio(double cap, double x);
/* Return the derivative of a softcap by its limit `cap`: t - u (1 - t^2) with u = x / cap and t = tanh u; 0 without a
 * softcap. */
double rpi_cap_by_limit(double cap, double x);

/* Return the weight of the sink, 0 without one. The row must have weights. */
double rpi_row_sink_weight(const rpi_row *r);

/* Value j of the row: its vector of a term of form VALVEC, if e >= 0. */
typedef struct rpi_row_vector {
    rpi_pair pair;
    const rpi_product *product;
    int64_t e;
} rpi_row_vector;
rpi_row_vector rpi_row_vector_of(const rpi_row *r, int64_t j);
/* Return its channel c, 0 without a vector. */
static inline double rpi_row_vector_channel(const rpi_row_vector *v, int64_t c)
{
    return v->e >= 0 ? v->product->vec(&v->pair, v->e, c) : 0;
}

/* Compute out = sum_j w_j (v_j + relval_j), or only the part with v_j or with relval_j. */
void rpi_row_sums(const rpi_row *r, bool values, bool vectors, double *out);

/* List the parts of the row in part[RP_MAX_PARTS], as rp_attend_parts specifies, and return their number
 * (rpi_row_parts). Compute the values of each part whose `value` is not NULL, from the row's scores and weights
 * (rpi_row_split). */
int32_t rpi_row_parts(const rpi_row *r, rp_part *part);
void rpi_row_split(rpi_row *r, const rp_part *part, int32_t n_parts);

/* Return the factor that dropout applies to the weight of key j; 1 without dropout. */
double rpi_row_dropout(const rpi_row *r, int64_t j);

/* Set `at` to the cosines and sines, times RoPE's factor, of the angles of the channels of pair c of query or key n;
 * `turn` is the function of them that gives the turned pair (terms/rotation.h). Only for angles of each channel. */
void rpi_row_turn(const rpi_row *r, bool key, int64_t n, int64_t c, double at[4]);
/* Rotate the channels of x as those of query or key n; with sign -1, rotate back. Without RoPE, do nothing. */
void rpi_row_rotate(const rpi_row *r, double *x, bool key, int64_t n, double sign);

#endif
