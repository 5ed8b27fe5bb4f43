/* wave.h -- blocks of rows on their way along the keys, for gradients.
 *
 * Keys stay with their process, and so do their sums of dk and dv. Rows travel in blocks: a block visits the stretches
 * of keys that it needs, in the order of the keys, and its sums of dq travel with it. A stretch sees the blocks in the
 * order of the rows. So the sums are those of one call of rp_backward (rp_grads.dq_in and dkv_in).
 *
 *                   block 0  block 1  block 2
 *     stretch 0        0        1        2        the step in which a block meets a stretch: the meetings to its left
 *     stretch 1        1        2        3        and above, which it continues, have earlier steps
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

/* Blocks that a process can hold. It has at most two meetings in a step, so it needs memory for two blocks that are
 * being sent, two that it keeps for its other stretch, two that it computes or receives, and two that it receives in
 * advance. */
enum { RPI_HELD = 8, RPI_AHEAD = 2 };

/* An array with the axis of rows. */
typedef struct rpi_field {
    const rp_array *local; /* rows of this process; NULL for DQ */
    rp_dtype dtype;
    int64_t width; /* 0: absent */
} rpi_field;

/* Rows that travel together. */
typedef struct rpi_block {
    rpi_span rows, needed; /* stretches of keys */
} rpi_block;

/* A block that this process holds. */
typedef struct rpi_held {
    int64_t block; /* -1: none */
    bool sending;
    char *data, *spare; /* the block; its pieces while they arrive, and its dq at the end */
    int requests;
    MPI_Request *request; /* [most_pieces] */
} rpi_held;

/* A block meets a stretch of the keys of this process. */
typedef struct rpi_meeting {
    int64_t block, stretch, step;
    bool expected; /* its messages are being received */
} rpi_meeting;

typedef struct rpi_wave {
    rp_mpi_plan *m;
    const rp_tensors *local;
    const rp_grads *grads;
    bool from_first_key; /* all blocks visit the stretch with key 0 */
    rpi_field field[RPI_FIELDS];
    int64_t stretches, blocks, most_pieces; /* most_pieces: of a block */
    rpi_block *block;
    rpi_held held[RPI_HELD];
    char *outgoing, *returning; /* pieces of the rows of this process, and their dq */
    MPI_Request *out_request, *return_request;
    int64_t outs, returns;
    bool stopped;    /* another process failed, and says why */
    rp_status error; /* of this process */
} rpi_wave;

/* Cut the rows into blocks, and allocate what the messages need. The fields up to `field` are set. */
rp_status rpi_wave_init(rpi_wave *w);
void rpi_wave_free(rpi_wave *w);

/* Return the keys of stretch s, or true if block r visits it. */
rpi_span rpi_wave_keys(const rpi_wave *w, int64_t s);
bool rpi_wave_visits(const rpi_wave *w, int64_t r, int64_t s);
/* Return the stretch before (step -1) or after (step 1) stretch s on the path of block r, or -1. */
int64_t rpi_wave_beside(const rpi_wave *w, int64_t r, int64_t s, int step);
/* Return array x of a held block of n rows, or its dq, [B, H, n, Dk], which the last meeting computes. */
rp_array rpi_wave_view(const rpi_wave *w, int x, const rpi_held *s, int64_t n);
rp_array rpi_wave_dq(const rpi_wave *w, const rpi_held *s, int64_t n);

/* Record the first error of this process, or a failure of MPI. */
void rpi_wave_note(rpi_wave *w, rp_status status, const char *text);
void rpi_wave_check(rpi_wave *w, int code);

/* Send the rows of this process, and begin to receive their dq. */
void rpi_wave_begin(rpi_wave *w);
/* Begin to receive the block of a meeting. Return false if this process holds too many blocks. */
bool rpi_wave_expect(rpi_wave *w, rpi_meeting *x);
/* Wait for the block of a meeting. */
rpi_held *rpi_wave_take(rpi_wave *w, rpi_meeting *x);
/* Send a block to the next stretch, or its dq to the owners of the rows. */
void rpi_wave_pass(rpi_wave *w, const rpi_meeting *x, rpi_held *s);
/* Let messages progress. */
void rpi_wave_advance(rpi_wave *w);
/* Wait for all messages, and write dq. */
void rpi_wave_finish(rpi_wave *w);

#endif
