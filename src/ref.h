/* ref.h -- one query row of the reference path, shared by ref.c (forward) and ref_backward.c.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef RELPOS_REF_H
#define RELPOS_REF_H
#include "internal.h"

typedef struct rpi_row {
    const rp_plan *plan;
    const rpi_args *args;
    int64_t b, h, g, i;
    double *plain_q, *q;       /* [Dk] as it came, and turned */
    double *plain_keys, *keys; /* [Lk][Dk] of batch entry keys_b and kv head keys_g */
    int64_t keys_b, keys_g;
    double *score, *weight; /* [Lk]; weight before dropout */
    double *slope;          /* [Lk] derivative of the softcap */
    uint8_t *keep;          /* [Lk] */
    double *out;            /* [Dv] */
    double lse;
    double *raw, *scaled, *bias; /* where a caller wants to look: NULL or [Lk] */
    bool absolute;               /* for the error bound: sums of absolute values instead of sums */
    void *memory;
} rpi_row;

bool rpi_row_alloc(rpi_row *r, const rp_plan *plan, const rpi_args *args); /* false after rpi_fail */
void rpi_row_at(rpi_row *r, int64_t b, int64_t h, int64_t i);
void rpi_row_scores(rpi_row *r);
void rpi_row_softmax(rpi_row *r);
void rpi_row_mix(rpi_row *r);
rpi_pair rpi_row_pair(const rpi_row *r, int32_t term, int64_t j);

/* The factor of dropout of key j: 1 without dropout. */
double rpi_row_dropout(const rpi_row *r, int64_t j);

/* Turn the channels of x by a position, back with sign -1. */
void rpi_row_turn(const rpi_row *r, double *x, double position, double sign);

#endif
