/* wave.h -- blocks of rows on their way along the keys, for gradients.
 *
 * The keys are divided into stripes. Each stays with one process, and so do its sums of dk and dv. Rows travel in
 * blocks: a block visits the stripes that it needs, in the order of the keys, and its sums of dq travel with it. A
 * stripe sees the blocks in the order of the rows. So the sums are those of one call of rp_backward (rp_grads.dq_in and
 * dkv_in).
 *
 *                   block 0  block 1  block 2
 *     stripe 0         0        1        2        the step in which a block meets a stripe: the meetings to its left
 *     stripe 1         1        2        3        and above, which it continues, have earlier steps
 *
 * Every process computes its meetings in the order of the steps, so none waits for a later step: no deadlock.
 *
 * Blocks begin at multiples of rp_plan_row_step, stretches do not. A block at the end of a stretch therefore ends with
 * rows of the next stretch; every owner of rows sends its piece to the first process that the block visits.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef RELPOS_MPI_WAVE_H
#define RELPOS_MPI_WAVE_H

#include "plan.h"

/* The arrays of a block, in the order of its memory; DQ has the sums. A piece has all arrays but DQ. */
enum { RPI_Q, RPI_OUT, RPI_DOUT, RPI_LSE, RPI_DLSE, RPI_DQ, RPI_FIELDS };

/* Meetings whose blocks a process receives in advance. It has at most one meeting in a step for each of its stripes. So
 * it needs memory for a block for each stripe that it keeps for the next one, the block that it computes, those in
 * advance, and some that are being sent. */
enum { RPI_AHEAD = 2, RPI_SPARE_BLOCKS = 6 };

/* Kinds of messages. A tag has a kind and a number modulo RPI_TAG_NUMBERS; messages of the same tag arrive in order. */
enum { RPI_TAG_PIECE, RPI_TAG_BLOCK, RPI_TAG_DQ, RPI_TAG_KEYS, RPI_TAG_NUMBERS = 8192 };

/* A stripe of the keys: the process that has them and gets their gradients, and the one that computes with them. */
typedef struct rpi_stripe {
    rpi_span keys;
    int32_t keeper, worker;
} rpi_stripe;

/* The arrays of a stripe. */
enum { RPI_K, RPI_V, RPI_DK, RPI_DV, RPI_KEY_FIELDS };

/* A stripe that this process keeps or computes with. */
typedef struct rpi_own_stripe {
    int64_t stripe;
    int64_t from, to; /* first and last block that visit it; -1: none */
    bool moves;       /* from its keeper to another process: the arrays are copies, [B, Hk, keys, width] */
    rp_array array[RPI_KEY_FIELDS];
    MPI_Request request[RPI_KEY_FIELDS];
    rp_array sums; /* of the worker, [B, H, keys, width] */
} rpi_own_stripe;

/* An array with the axis of rows. */
typedef struct rpi_field {
    const rp_array *local; /* rows of this process; NULL for DQ */
    rp_dtype dtype;
    int64_t width; /* 0: absent */
} rpi_field;

/* Rows that travel together. */
typedef struct rpi_block {
    rpi_span rows, needed; /* needed: stripes of keys */
} rpi_block;

/* A block that this process holds. */
typedef struct rpi_held {
    int64_t block, stripe; /* block -1: none; stripe: which it meets next */
    bool sending;
    char *data, *spare; /* the block; its pieces while they arrive, and its dq at the end */
    int requests;
    MPI_Request *request; /* [most_pieces] */
} rpi_held;

/* A block meets a stripe of this process. */
typedef struct rpi_meeting {
    int64_t block, stripe, step;
    bool expected; /* its messages are being received */
} rpi_meeting;

typedef struct rpi_wave {
    rp_mpi_plan *m;
    const rp_tensors *local;
    const rp_grads *grads;
    bool from_first_key; /* all blocks visit the stripe with key 0 */
    bool whole_keys;     /* do not divide the stretches of keys */
    rpi_field field[RPI_FIELDS];
    int64_t stripes, n_own, stretches, blocks, most_pieces; /* stretches: of the rows; most_pieces: of a block */
    rpi_stripe *stripe;
    rpi_own_stripe *own; /* [n_own] */
    rpi_block *block;
    int n_held;
    rpi_held *held;
    char *outgoing, *returning; /* pieces of the rows of this process, and their dq */
    MPI_Request *out_request, *return_request;
    int64_t outs, returns;
    bool stopped;    /* another process failed, and says why */
    rp_status error; /* of this process */
} rpi_wave;

/* Cut the rows into blocks, and allocate what the messages need. The fields up to `field` are set. */
rp_status rpi_wave_init(rpi_wave *w);
void rpi_wave_free(rpi_wave *w);

/* Return true if block r visits stripe s. */
bool rpi_wave_visits(const rpi_wave *w, int64_t r, int64_t s);
/* Return the stripe before (step -1) or after (step 1) stripe s on the path of block r, or -1. */
int64_t rpi_wave_beside(const rpi_wave *w, int64_t r, int64_t s, int step);
/* Return array x of a held block of n rows, or its dq, [B, H, n, Dk], which the last meeting computes. */
rp_array rpi_wave_view(const rpi_wave *w, int x, const rpi_held *s, int64_t n);
rp_array rpi_wave_dq(const rpi_wave *w, const rpi_held *s, int64_t n);

/* Record the first error of this process, or a failure of MPI. */
void rpi_wave_note(rpi_wave *w, rp_status status, const char *text);
void rpi_wave_check(rpi_wave *w, int code);
int rpi_wave_tag(int kind, int64_t number);

/* Send the rows of this process, and begin to receive their dq. */
void rpi_wave_begin(rpi_wave *w);
/* Begin to receive the block of a meeting. Return false if this process holds too many blocks. */
bool rpi_wave_expect(rpi_wave *w, rpi_meeting *x);
/* Wait for the block of a meeting. */
rpi_held *rpi_wave_take(rpi_wave *w, rpi_meeting *x);
/* Send a block to the next stripe, or its dq to the owners of the rows. */
void rpi_wave_pass(rpi_wave *w, const rpi_meeting *x, rpi_held *s);
/* Let messages progress. */
void rpi_wave_advance(rpi_wave *w);
/* Wait for all messages, and write dq. */
void rpi_wave_finish(rpi_wave *w);

/* ------------------------------------------------------------------------------------------------ stripes.c */

/* Return the number of stripes of a stretch. uneven: some rows need fewer keys than others. */
int64_t rpi_stripes_per_stretch(const rpi_wave *w, bool uneven);
/* Divide the keys into stripes. Return false if out of memory. */
bool rpi_make_stripes(rpi_wave *w, int64_t parts);

/* ------------------------------------------------------------------------------------------------ keys.c */

/* Find the stripes of this process, and allocate copies of those that move, when the blocks are known. Return RP_OK,
 * RP_E_NOMEM or RP_E_OVERFLOW. */
rp_status rpi_find_own_stripes(rpi_wave *w);
void rpi_free_own_stripes(rpi_wave *w);
/* Send keys and values to the processes that compute with them, and begin to receive theirs. */
void rpi_keys_begin(rpi_wave *w);
/* Wait for the keys and values of a stripe. */
void rpi_keys_wait(rpi_wave *w, rpi_own_stripe *o);
/* Send the gradients of a stripe to its keeper. */
void rpi_keys_return(rpi_wave *w, rpi_own_stripe *o);
/* Wait for all gradients, and write them. */
void rpi_keys_finish(rpi_wave *w);

#endif
