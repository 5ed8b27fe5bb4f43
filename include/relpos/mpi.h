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
} rp_mpi_calls;

/* Return the table of functions. */
RP_API const rp_mpi_calls *rp_mpi_team_calls(void);

#ifdef __cplusplus
}
#endif
#endif
