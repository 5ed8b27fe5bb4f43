/* plan.h -- what the files of attention over several processes share.
 *
 *     stretches.c     who has which rows and keys, and which keys can matter for which rows
 *     own_keys.c      the keys at the positions of the rows
 *     agree.c         all processes were given the same; an error of one is an error of all
 *     arrays.c        parts of arrays, and checks
 *     exchange.c      keys and values on their way
 *     wave.c          blocks of rows on their way, for gradients
 *     stripes.c       the keys that each process computes with, for gradients
 *     keys.c          these keys and their gradients on their way
 *     mpi_attend.c    rp_mpi_attend
 *     mpi_backward.c  rp_mpi_backward
 *
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef RELPOS_MPI_PLAN_H
#define RELPOS_MPI_PLAN_H

#include "exchange.h"

enum { RPI_TILE = 512 }; /* keys of a tile: ranges of keys begin at multiples of it */

/* A range of rows, keys, stretches or stripes. */
typedef struct rpi_span {
    int64_t from, to;
} rpi_span;

static inline int64_t rpi_length(rpi_span s)
{
    return s.to - s.from;
}

struct rp_mpi_plan {
    rp_desc desc; /* points to the copies below */
    rp_term *terms;
    rp_mask *masks;
    rp_plan *plan;
    rp_prepared *prepared; /* of the current call */
    MPI_Comm comm;
    bool owns_comm;
    rpi_exchange exchange;
    void *gathered;      /* [ranks] what agree.c gathers */
    rpi_span *needed;    /* [2 * ranks] see rpi_find_needed */
    rpi_part *parts;     /* [2 * ranks] stretches of keys and values */
    uint64_t sent_bytes; /* of keys and values, or of rows and their dq, in the last call */
};

/* ------------------------------------------------------------------------------------------------ plan.c */

/* Like rp_mpi_plan_create, on a communicator that the plan borrows, with a host that makes the calls of MPI. */
rp_status rpi_plan_with(rp_mpi_plan **plan, MPI_Comm comm, const rp_desc *desc, const rpi_host *host);

/* ------------------------------------------------------------------------------------------------ errors */

/* Write a line for rp_mpi_last_error. Return status. */
__attribute__((format(printf, 2, 3))) rp_status rpi_mpi_fail(rp_status status, const char *format, ...);

/* ------------------------------------------------------------------------------------------------ stretches.c */

/* Return stretch n of 2 * ranks stretches of a sequence. */
rpi_span rpi_stretch(int64_t length, int32_t ranks, int64_t n);
/* Return the number of stretch `which` (0 or 1) of a process, or the process that has stretch n. */
int64_t rpi_stretch_of(int32_t ranks, int32_t rank, int which);
int32_t rpi_owner_of(int32_t ranks, int64_t n);
/* Return the offset of the queries of batch entry b. */
int64_t rpi_offset_of(const rp_mpi_plan *m, const rp_tensors *t, int64_t b);
/* Find the stretches of keys that masks and causal terms let the rows of each stretch attend to: span[n] for stretch n
 * of the rows, empty if there are none. t has the arrays of the masks. */
rp_status rpi_find_needed(const rp_mpi_plan *m, const rp_tensors *t, rpi_span *span);
/* Find the keys that any rows may attend to: from >= to if there are none. */
rp_status rpi_keys_of(const rp_mpi_plan *m, const rp_tensors *t, rpi_span rows, rpi_span *keys);
/* Find the stretches of these keys. */
rp_status rpi_needed_by(const rp_mpi_plan *m, const rp_tensors *t, rpi_span rows, rpi_span *span);
/* Return true if a process needs stretch n of the keys. */
bool rpi_needs(const rp_mpi_plan *m, const rpi_span *span, int32_t rank, int64_t n);

/* ------------------------------------------------------------------------------------------------ arrays.c */

/* Return n entries of axis 2 of an array, from `first` on. */
rp_array rpi_slice(const rp_array *a, int64_t first, int64_t n);
/* Copy rows between arrays of the same shape with three axes, or with four of which the last of `to` is contiguous. */
void rpi_copy_rows(const rp_array *to, const rp_array *from);
/* Return the number of elements of an array. */
int64_t rpi_elements(const rp_array *a);
/* Return the number of rows or keys of this process in a sequence of `length`. */
int64_t rpi_own_length(const rp_mpi_plan *m, int64_t length);
/* Check an array of this process. It may be absent if `optional`; type RP_BOOL allows any floating type. */
rp_status rpi_check_array(const rp_array *a, const char *name, int32_t ndim, const int64_t *shape, rp_dtype type,
                          bool optional);

/* ------------------------------------------------------------------------------------------------ own_keys.c */

/* Return true if the keys of a process are those at the positions of its rows. */
bool rpi_has_own_keys(const rp_mpi_plan *m, const rp_tensors *t);
/* Return true if the keys at the positions of a process's rows may belong to other processes, and may be needed. */
bool rpi_needs_own_keys(const rp_mpi_plan *m, const rp_tensors *t);
/* Get the keys at the positions of the rows of this process: own[0] and own[1] are [B, Hk, rows, Dk] for its stretches,
 * and packed[0] and packed[1] have the keys of this process, [B, Hk, keys, Dk]. All processes call this. Return RP_OK,
 * RP_E_NOMEM or RP_E_MPI. */
rp_status rpi_get_own_keys(rp_mpi_plan *m, const rp_tensors *t, char *const packed[2], char *const own[2]);

/* ------------------------------------------------------------------------------------------------ agree.c */

/* Compare the description, or the arrays of a call, with those of the other processes. `own` is the status of this
 * process so far; if it is not RP_OK, rp_mpi_last_error has the reason. Return the same status in all processes, with
 * the same error. */
rp_status rpi_agree_on_desc(rp_mpi_plan *m, rp_status own);
rp_status rpi_agree_on_arrays(rp_mpi_plan *m, const rp_tensors *t, rp_status own);
/* Compare also the types of the rows' gradients, and which gradients are wanted. */
rp_status rpi_agree_on_gradients(rp_mpi_plan *m, const rp_tensors *t, const rp_grads *g, rp_status own);
/* Exchange only the status. *failed receives the number of other processes that failed. */
rp_status rpi_agree_on_status(rp_mpi_plan *m, rp_status own, int *failed);

/* Return the bytes of rp_mpi_plan.gathered. */
size_t rpi_gathered_size(int32_t ranks);

#endif
