/* plan.h -- what the files of attention over several processes share.
 *
 *     stretches.c   who has which rows and keys, and which keys can matter for which rows
 *     agree.c       all processes were given the same; an error of one is an error of all
 *     exchange.c    keys and values on their way
 *     attend.c      the calls
 *
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef RELPOS_MPI_PLAN_H
#define RELPOS_MPI_PLAN_H

#include "exchange.h"

/* A range of rows, keys or stretches. */
typedef struct rpi_span {
    int64_t from, to;
} rpi_span;

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
    uint64_t sent_bytes; /* in the last call */
};

/* ------------------------------------------------------------------------------------------------ errors */

/* Write a line for rp_mpi_last_error. Return status. */
__attribute__((format(printf, 2, 3))) rp_status rpi_mpi_fail(rp_status status, const char *format, ...);

/* ------------------------------------------------------------------------------------------------ stretches.c */

/* Return stretch n of 2 * ranks stretches of a sequence. */
rpi_span rpi_stretch(int64_t length, int32_t ranks, int64_t n);
/* Return the number of stretch `which` (0 or 1) of a process, or the process that has stretch n. */
int64_t rpi_stretch_of(int32_t ranks, int32_t rank, int which);
int32_t rpi_owner_of(int32_t ranks, int64_t n);
/* Find the stretches of keys that masks and causal terms let the rows of each stretch attend to: span[n] for stretch n
 * of the rows, empty if there are none. t has the arrays of the masks. */
rp_status rpi_find_needed(const rp_mpi_plan *m, const rp_tensors *t, rpi_span *span);
/* Return true if a process needs stretch n of the keys. */
bool rpi_needs(const rp_mpi_plan *m, const rpi_span *span, int32_t rank, int64_t n);

/* ------------------------------------------------------------------------------------------------ agree.c */

/* Compare the description, or the arrays of a call, with those of the other processes. `own` is the status of this
 * process so far; if it is not RP_OK, rp_mpi_last_error has the reason. Return the same status in all processes, with
 * the same error. */
rp_status rpi_agree_on_desc(rp_mpi_plan *m, rp_status own);
rp_status rpi_agree_on_arrays(rp_mpi_plan *m, const rp_tensors *t, rp_status own);
/* Exchange only the status. *failed receives the number of other processes that failed. */
rp_status rpi_agree_on_status(rp_mpi_plan *m, rp_status own, int *failed);

/* Return the bytes of rp_mpi_plan.gathered. */
size_t rpi_gathered_size(int32_t ranks);

#endif
