/* relpos/mpi.h -- relpos over several processes, with MPI. Needs relpos.h.
 * Copyright (c) 2026 the relpos contributors. SPDX-License-Identifier: Apache-2.0
 *
 * The library relpos_mpi is built where CMake finds MPI. Nothing else of relpos links MPI: the program `relpos` loads
 * librelpos_mpi.so when mpirun started it, and calls it through rp_mpi_calls. */
#ifndef RELPOS_MPI_H
#define RELPOS_MPI_H

#include <relpos/relpos.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A description that all processes of a communicator share. Calls of a plan happen one at a time, in the same order in
 * all processes. */
typedef struct rp_mpi_plan rp_mpi_plan;

/* ------------------------------------------------------------------------------------------------ team: messages */

/* The processes that one mpirun started. They exchange messages, and each learns within seconds if another has died or
 * stopped. A thread of the library makes every call of MPI, so that messages arrive while the caller computes. */
typedef struct rp_mpi_team rp_mpi_team;

/* A message from another process. */
typedef struct rp_mpi_message {
    int32_t from; /* rank of the sender */
    void *data;   /* from malloc; the receiver frees it; NULL if size is 0 */
    size_t size;  /* bytes */
} rp_mpi_message;

/* The functions of a team. Strings for errors have RP_MPI_ERROR_MAX bytes, and name the rank. */
#define RP_MPI_ERROR_MAX 512
typedef struct rp_mpi_calls {
    size_t size;         /* sizeof(rp_mpi_calls) of the library */
    const char *version; /* rp_version() of the library */
    /* Start MPI and find the other processes; call it once. `silence` is the number of seconds after which a process
     * that has sent nothing counts as dead; processes that compute send a sign of life each second. Return NULL and
     * write to `error` on failure. */
    rp_mpi_team *(*join)(double silence, char *error);
    /* Return the rank of this process, from 0 to ranks - 1. */
    int32_t (*rank)(const rp_mpi_team *team);
    /* Return the number of processes. */
    int32_t (*ranks)(const rp_mpi_team *team);
    /* Return the name of the machine of this process. */
    const char *(*host)(const rp_mpi_team *team);
    /* Return this process's share of its machine: the sum, over the processors that it may use, of 1 / (number of
     * processes of this machine that may use this processor), divided by the number of processors that it may use. */
    double (*share)(const rp_mpi_team *team);
    /* Send a copy of `size` bytes. Messages between two processes arrive in order. Return 0, or -1 if out of memory. */
    int (*send)(rp_mpi_team *team, int32_t to, const void *data, size_t size);
    /* Wait up to `seconds` for a message. Return 1 and the message; 0 if none came; -1 if the team has failed. */
    int (*receive)(rp_mpi_team *team, double seconds, rp_mpi_message *message);
    /* Return a line that says which process has died or stopped, or NULL. Then clean up and call `abort`. If that takes
     * more than 5 seconds, the library prints the line to standard error and aborts. */
    const char *(*failure)(rp_mpi_team *team);
    /* Wait until all messages are sent and every process has called this, and end MPI. Return 0, or -1 if the team has
     * failed meanwhile. The team is freed only on success. */
    int (*leave)(rp_mpi_team *team);
    /* End every process of the team with this exit code, within seconds. Does not return. */
    void (*abort)(rp_mpi_team *team, int code);
    /* Attention over the processes of the team, one plan at a time: rp_mpi_plan_create, rp_mpi_attend,
     * rp_mpi_backward, rp_mpi_sent_bytes, rp_mpi_stretch and rp_mpi_plan_destroy below. The thread of the team makes
     * their calls of MPI, except those of rp_mpi_backward, which returns RP_E_UNSUPPORTED without MPI_THREAD_MULTIPLE.
     * On failure they write to `error`. */
    rp_status (*plan)(rp_mpi_team *team, const rp_desc *desc, rp_mpi_plan **plan, char *error);
    rp_status (*attend)(rp_mpi_plan *plan, const rp_tensors *local, char *error);
    uint64_t (*sent_bytes)(const rp_mpi_plan *plan);
    void (*stretch)(int64_t length, int32_t ranks, int32_t rank, int32_t which, int64_t *from, int64_t *to);
    void (*free_plan)(rp_mpi_plan *plan);
    rp_status (*backward)(rp_mpi_plan *plan, const rp_tensors *local, const rp_grads *grads, char *error);
    /* rp_last_error_in of the librelpos that these functions call; a static program has another copy. */
    const char *(*last_error_in)(const rp_desc *desc, rp_word *word, void *context, char *text, size_t size);
} rp_mpi_calls;

/* Return the table of functions. */
RP_API const rp_mpi_calls *rp_mpi_team_calls(void);

/* ------------------------------------------------------------------------------------ attention over a communicator
 * Include <mpi.h> before this header to use the functions of this part. They need no team.
 *
 *     rp_mpi_plan *plan;
 *     rp_mpi_plan_create(&plan, MPI_COMM_WORLD, &desc);                     desc is the same in all processes
 *     for (int which = 0; which < 2; which++)
 *         rp_mpi_stretch(desc.len_q, ranks, rank, which, &from, &to);       this process has rows from … to-1
 *     rp_tensors t = rp_tensors_init();
 *     t.q = ...;  t.k = ...;  t.v = ...;  t.out = ...;                      its rows, keys and values
 *     if (rp_mpi_attend(plan, &t) != RP_OK) puts(rp_mpi_last_error());
 *     rp_mpi_plan_destroy(plan); */

#define RP_E_MPI ((rp_status)64) /* status: a call of MPI failed; the communicator can no longer be used */

/* Find the rows or keys of a process in a sequence of `length`. It has two stretches: which = 0 is stretch `rank` of
 * 2 * ranks, and which = 1 is stretch 2 * ranks - 1 - rank. The early rows of a causal sequence attend to few keys and
 * the late ones to many, so all processes have the same work. Stretches begin at multiples of 512 and differ by at most
 * 512; a stretch may be empty. */
RP_API void rp_mpi_stretch(int64_t length, int32_t ranks, int32_t rank, int32_t which, int64_t *from, int64_t *to);

/* Return one line about the last failure of a function of this part on this thread: the rank, the field, its value,
 * what to do. "" before any failure. */
RP_API const char *rp_mpi_last_error(void);

/* Return the number of bytes that this process sent to others in the last call: of keys and values in rp_mpi_attend; of
 * rows (q, out, dout, lse, dlse, dq) in rp_mpi_backward. */
RP_API uint64_t rp_mpi_sent_bytes(const rp_mpi_plan *plan);

#ifdef MPI_VERSION
/* Check a description and compare it between the processes of a communicator; all must call this. desc.len_q and
 * desc.len_k are the lengths of the whole sequence.
 * Returns  RP_OK and *plan; on an error *plan = NULL, and all processes have the same status and error: RP_E_ARG, also
 *          if a process has another description, version or instruction set; RP_E_SHAPE, RP_E_RANGE, RP_E_OVERFLOW,
 *          RP_E_NOMEM; RP_E_UNSUPPORTED, also for the reference path and flexible plans; RP_E_MPI. */
RP_API rp_status rp_mpi_plan_create(rp_mpi_plan **plan, MPI_Comm comm, const rp_desc *desc);

/* Free a plan, in all processes; NULL is allowed. */
RP_API void rp_mpi_plan_destroy(rp_mpi_plan *plan);

/* Attend like rp_attend, over a sequence whose rows and keys are divided among the processes. All must call this.
 *
 * Shapes   q [B,H,Nq,Dk], out [B,H,Nq,Dv] and lse [B,H,Nq] have the rows of both stretches of this process, one after
 *          the other; k [B,Hk,Nk,Dk] and v [B,Hk,Nk,Dv] its keys (rp_mpi_stretch with desc.len_q and desc.len_k). All
 *          strides are allowed that rp_attend allows. Arrays of terms and masks, and q_offset, are those of the whole
 *          sequence, the same in all processes.
 * Law      the bits are those of rp_attend over the whole sequence, for any number of processes.
 * Edges    weights, profile, key_mass, entropy, pages, key_norms, prepared, states, own_keys and ranges
 *          must be absent. Stretches of keys that masks hide from all rows of a process are neither sent nor computed.
 * Memory   besides rp_attend's, a process allocates its keys and values again, four stretches of those of others, and
 *          the states of its rows.
 * Threads  with MPI_THREAD_SERIALIZED or MULTIPLE, a thread of the library calls MPI while the caller's threads
 *          compute. Otherwise the caller's thread calls MPI between blocks of rows.
 * Returns  RP_OK; or an error, the same in all processes: RP_E_ARG, also if arrays of terms or masks differ;
 *          RP_E_SHAPE, RP_E_STRIDE, RP_E_OVERLAP, RP_E_RANGE, RP_E_UNSUPPORTED, RP_E_OVERFLOW, RP_E_NOMEM,
 *          RP_E_CANCELLED, RP_E_MPI. After RP_E_CANCELLED, RP_E_NOMEM and RP_E_MPI, outputs are undefined.
 * Source   Liu et al. 2023 (Ring Attention), whose processes merge results. Here all take keys in their order
 *          instead, so nothing is merged. */
RP_API rp_status rp_mpi_attend(rp_mpi_plan *plan, const rp_tensors *local);

/* Compute gradients like rp_backward, over a sequence whose rows and keys are divided among the processes. All must
 * call this, with the same gradients wanted.
 *
 * Shapes   local has q, k, v, out and lse as in rp_mpi_attend. In grads, dout, dlse and dq have the rows of this
 *          process, and dk and dv its keys. Gradients of arrays of terms are those of the whole sequence, the same in
 *          all processes. The address of an array without elements must not be NULL.
 * Law      dq, dk and dv have the bits of rp_backward over the whole sequence with the same out and lse, for any
 *          number of processes. Gradients of arrays of terms are summed in f64 in a fixed order. Their bits depend on
 *          the number of processes, because it decides where the sequence is cut, and the pairs of a part are summed
 *          first. A repeated call gives the same bits.
 * Edges    out and lse are needed, with lse in the type of the arithmetic or f64. len_k must not be 0.
 *          dweights, dprofile, dkey_mass, dentropy, dsoftcap and dsoftcap_after must be absent.
 *          If some rows need fewer keys than others, as with a causal mask, each stretch of keys of 2 or more tiles of
 *          512 is divided into up to 4 stripes, which all processes compute in turn, so that none waits for long.
 * Memory   a process allocates the sums of dk and dv of its keys for all query heads (rp_plan_dkv_width), its rows
 *          again, and 16 blocks of rows; there are 8 blocks for each of the 2 * ranks stretches. With stripes it
 *          allocates up to 28 blocks, and keys, values, dk and dv of as many keys as it has, twice.
 * Threads  the caller's thread calls MPI, also between blocks of work.
 * Returns  as rp_mpi_attend. */
RP_API rp_status rp_mpi_backward(rp_mpi_plan *plan, const rp_tensors *local, const rp_grads *grads);
#endif

#ifdef __cplusplus
}
#endif
#endif
