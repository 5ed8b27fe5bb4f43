/* exchange.h -- the messages of calls that all processes of a communicator make together: parts of arrays, which go
 * from process to process while the caller computes, and records, which every process gathers from all.
 *
 * A part belongs to one process, and goes along a chain of those that need it: each passes a chunk on as soon as it has
 * it. So a process sends each part at most once, and no process sends to all others.
 *
 *     owner ──▶ next process that needs the part ──▶ next ──▶ …
 *
 * Processes take parts in the order of their numbers, and receive a few in advance, as slots become free. This cannot
 * deadlock: the part with the lowest number that some process still lacks never waits for a slot.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef RELPOS_MPI_EXCHANGE_H
#define RELPOS_MPI_EXCHANGE_H

#include <mpi.h>
#include <relpos/mpi.h>
#include <pthread.h>
#include <stdbool.h>

enum { RPI_CHUNKS = 32, RPI_SLOTS = 4, RPI_OWN = 2 };

/* A part, as this process sees it. A process takes part in its chain if it has or receives it. */
typedef struct rpi_part {
    size_t size;
    int32_t from, to; /* ranks of the neighbours in its chain; -1: none */
    const char *own;  /* the data, if it belongs to this process; at most RPI_OWN parts do */
} rpi_part;

/* Memory for a part. */
typedef struct rpi_slot {
    int64_t part; /* -1: free */
    char *data;
    int received, sent; /* chunks */
    bool ready,         /* all chunks are received; for own parts: are being sent */
        released;       /* the caller has finished with it */
} rpi_slot;

/* Which thread calls MPI during an exchange. */
typedef enum rpi_driver {
    RPI_CALLER, /* the caller, between blocks of its work: MPI_THREAD_SINGLE and FUNNELED */
    RPI_THREAD, /* a thread, which lives as long as the exchange */
    RPI_HOST    /* the thread of an rpi_host, also between exchanges */
} rpi_driver;

typedef struct rpi_exchange rpi_exchange;

/* Something whose thread makes all calls of MPI, such as a team. */
typedef struct rpi_host {
    void *context;
    /* Call rpi_exchange_advance(x) from time to time from now on; x is NULL: no more. */
    void (*attach)(void *context, rpi_exchange *x);
    /* Return a line that says why the exchange cannot go on, or NULL. */
    const char *(*failure)(void *context);
} rpi_host;

struct rpi_exchange {
    MPI_Comm comm;
    int32_t rank, ranks;
    rpi_driver driver;
    rpi_host host; /* for RPI_HOST */
    bool threaded; /* `thread` runs */
    pthread_t thread;
    pthread_mutex_t mutex; /* of all fields below */
    pthread_cond_t changed;
    bool running; /* an exchange has begun */
    char failure[RP_MPI_ERROR_MAX];
    /* a collective call: rows from each process to each, or `size` bytes from each process to all */
    const void *send;
    void *receive;
    const int *counts; /* [4][ranks] rows to send, and where they begin; rows to receive, and where; NULL: gather */
    int size;          /* of a row, or of what a process gives */
    MPI_Request collective;
    bool collecting, collected;
    /* parts */
    const rpi_part *part;               /* [n_parts] */
    int64_t n_parts, next;              /* next: the first part for which there is no slot yet */
    rpi_slot slot[RPI_SLOTS + RPI_OWN]; /* the last ones are for own parts, which are only sent */
    MPI_Request request[(RPI_SLOTS + RPI_OWN) * 2 * RPI_CHUNKS];
    size_t slot_size;
    uint64_t sent_bytes;
    bool idle; /* every part is received, released and sent */
    /* stopping */
    MPI_Request stop_in, *stop_out;
    int stops, expected_stops; /* messages received, and to receive; -1: not known yet */
    bool stop, stopped, ended; /* stop: this process wants all to stop; stopped: another one does; ended: all stop
                                * messages are received */
    double pause;              /* seconds of the last wait */
};

/* Prepare exchanges on a communicator that nothing else uses. host is NULL unless the driver is RPI_HOST. Return false
 * if out of memory. */
bool rpi_exchange_init(rpi_exchange *x, MPI_Comm comm, rpi_driver driver, const rpi_host *host);
void rpi_exchange_free(rpi_exchange *x);

/* Gather `size` bytes from each process in the order of ranks. Return false after a failure of MPI. */
bool rpi_exchange_gather(rpi_exchange *x, const void *mine, void *all, int size);

/* Send rows of `size` bytes to each process, and receive rows from each. counts is [4][ranks]: numbers of rows to send
 * to each process, the first of them in `send`, and the same for those that come from each. Return false after a
 * failure of MPI. */
bool rpi_exchange_rows(rpi_exchange *x, const void *send, void *receive, const int *counts, int size);

/* Allocate memory for parts of at most `slot_size` bytes, which later exchanges use again. Return false if out of
 * memory. Call this before the processes agree to begin. */
bool rpi_exchange_alloc(rpi_exchange *x, size_t slot_size);
/* Begin to exchange parts, which stay valid until the end. */
void rpi_exchange_begin(rpi_exchange *x, const rpi_part *part, int64_t n_parts);
/* Wait for a part that this process has or receives. Parts must be taken and released in their order. Return NULL after
 * a failure of MPI. */
const char *rpi_exchange_wait(rpi_exchange *x, int64_t part);
void rpi_exchange_release(rpi_exchange *x, int64_t part);
/* Make all other processes stop. All must still take and release their parts. */
void rpi_exchange_stop(rpi_exchange *x);
/* Return true if another process wants all to stop. Call it between blocks of work. */
bool rpi_exchange_stopped(rpi_exchange *x);
/* Wait until this process has sent all parts. */
bool rpi_exchange_finish(rpi_exchange *x);
/* Receive the stop messages of `stops` other processes, and end the exchange. */
void rpi_exchange_end(rpi_exchange *x, int stops);

/* Do what MPI allows now, without waiting. Return true if something happened. For hosts. */
bool rpi_exchange_advance(rpi_exchange *x);

#endif
