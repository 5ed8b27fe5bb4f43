/* reference/tangents.h -- one query row of the reference path with the tangents of its scores, its logarithm of the row
 * sum and its output, in double. Independent of the fast path.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef RELPOS_TANGENTS_H
#define RELPOS_TANGENTS_H
#include "row.h"

/* A row, and its tangents: the derivatives along given tangents of q, k, v and the learned arrays. */
typedef struct rpi_tangent_row {
    rpi_row row;
    const rpi_tangents *given;
    double *plain_q, *q;       /* [Dk] tangent of the query before and after rotation */
    double *plain_keys, *keys; /* [Lk][Dk] tangents of the keys of batch entry keys_b and kv head keys_g */
    int64_t keys_b, keys_g;
    double *inside; /* [Lk] tangent of the argument of the softcap before the biases */
    double *biased; /* [Lk] tangent of the argument of the softcap after the biases */
    double *score;  /* [Lk] tangent of the score */
    double lse;     /* tangent of lse: sum_j w_j score_j, the sink included */
    double sink;    /* tangent of the sink */
    double sum;     /* rpi_sums.along of all terms */
    rpi_sums *term; /* [n_terms] tangents of the arrays of each term */
    rpi_arena memory;
} rpi_tangent_row;

rp_status rpi_tangent_row_alloc(rpi_tangent_row *t, const rp_plan *plan, const rpi_args *args,
                                const rpi_tangents *given);
void rpi_tangent_row_free(rpi_tangent_row *t);
/* Compute the scores and weights of row (b, h, i), and all tangents. */
void rpi_tangent_row_at(rpi_tangent_row *t, int64_t b, int64_t h, int64_t i);
/* Compute the sizes of inside, biased and score: the sums of the absolute values of their summands, times the slopes of
 * the softcaps of `plain`. absolute->row.absolute is set, and its row has been computed (rpi_score_sizes). */
void rpi_tangent_sizes(rpi_tangent_row *absolute, const rpi_tangent_row *plain);
/* Compute the tangent of out and store it (of_out), and store that of lse (of_lse), where they are given. */
void rpi_tangent_row_store(rpi_tangent_row *t, bool of_out, bool of_lse);

/* Channel c of a product of a term of form VEC: of the row (query or key) and of the vector, with their tangents. */
typedef struct rpi_channel {
    double row, vec, row_tangent, vec_tangent;
} rpi_channel;
rpi_channel rpi_tangent_channel(rpi_tangent_row *t, const rpi_pair *p, const rpi_product *product, int64_t e,
                                int64_t c);

/* Return channel c of the tangent of v_j + relval(i,j). */
double rpi_row_vector_tangent(rpi_tangent_row *t, const rpi_row_vector *v, int64_t j, int64_t c);

#endif
