/* team.c -- messages between the processes of an mpirun, and the detection of processes that died or stopped. One
 * thread makes every call of MPI, none of which blocks after the start, so any level of thread support suffices. The
 * exception is rp_mpi_backward, which calls MPI in the caller's thread, so it needs MPI_THREAD_MULTIPLE.
 *
 *     caller          thread of MPI                              other process
 *     send    ──▶ outgoing ──▶ Isend SIZE, Isend DATA …  ──▶  Iprobe SIZE, Irecv DATA … ──▶ incoming ──▶ receive
 *                              Isend BEAT each second    ──▶  heard[rank] = now
 *
 * Rank 0 watches every process, and every process watches rank 0.
 * SPDX-License-Identifier: Apache-2.0 */
#include "condition.h"
#include "parcel.h"
#include "plan.h"
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { TAG_BEAT = 1, TAG_SIZE, TAG_DATA };
enum { HOST_MAX = 64, END_SECONDS = 5, START_SILENCES = 3 };
#define LONG_NAP 0.001 /* seconds between two looks for messages when there are none */

/* What is known of another process. */
typedef struct peer {
    double heard; /* when its last message arrived */
    char host[HOST_MAX];
    MPI_Request beat;
} peer;

struct rp_mpi_team {
    pthread_t thread;
    pthread_mutex_t mutex; /* of all fields below, except those that only the thread of MPI uses */
    pthread_cond_t changed;
    int32_t rank, ranks;
    double share, silence;
    bool started, leaving, left;
    int abort_code; /* 0: do not abort */
    char failure[RP_MPI_ERROR_MAX];
    list queued, arrived;
    /* only the thread of MPI uses these */
    MPI_Comm comm;
    list sending, arriving;
    peer *peers;                     /* [ranks]; host is constant after the start */
    double beaten, checked, healthy; /* when signs of life were last sent, silence was last checked, and no process was
                                      * known to have failed */
    MPI_Request barrier;
    MPI_Comm parts; /* for rpi_exchange */
    pthread_mutex_t attaching;
    rpi_exchange *attached; /* or NULL */
};

static double seconds_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Wait until t->changed is signalled, but at most `seconds`, up to 1. The mutex is locked. */
static void await_change(rp_mpi_team *t, double seconds)
{
    rpi_condition_wait(&t->changed, &t->mutex, seconds);
}

/* Record the first failure. */
__attribute__((format(printf, 2, 3))) static void fail(rp_mpi_team *t, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    pthread_mutex_lock(&t->mutex);
    if (t->failure[0] == 0)
        vsnprintf(t->failure, sizeof t->failure, format, arguments);
    pthread_cond_broadcast(&t->changed);
    pthread_mutex_unlock(&t->mutex);
    va_end(arguments);
}

/* Record the failure of a call of MPI. Return true if it succeeded. */
static bool worked(rp_mpi_team *t, int result)
{
    char text[MPI_MAX_ERROR_STRING] = "";
    int length = 0;
    if (result == MPI_SUCCESS)
        return true;
    MPI_Error_string(result, text, &length);
    fail(t, "rank %d on %s: MPI failed: %.300s (start the command again)", (int)t->rank,
         t->peers != NULL ? t->peers[t->rank].host : "this machine", text);
    return false;
}

/* ------------------------------------------------------------------------------------------------ the thread of MPI */

/* Start the sends or receives of the chunks of a parcel. */
static void start_chunks(rp_mpi_team *t, parcel *p, bool send)
{
    for (uint64_t at = 0; at < p->size; at += CHUNK) {
        const int n = (int)(p->size - at < CHUNK ? p->size - at : CHUNK);
        MPI_Request *r = &p->requests[p->n_requests++];
        worked(t, send ? MPI_Isend(p->data + at, n, MPI_BYTE, p->rank, TAG_DATA, t->comm, r)
                       : MPI_Irecv(p->data + at, n, MPI_BYTE, p->rank, TAG_DATA, t->comm, r));
    }
}

/* Start to send what the caller queued. Return true if there was something. */
static bool start_sends(rp_mpi_team *t)
{
    bool any = false;
    for (;;) {
        pthread_mutex_lock(&t->mutex);
        parcel *p = pop(&t->queued);
        pthread_mutex_unlock(&t->mutex);
        if (p == NULL)
            return any;
        worked(t, MPI_Isend(&p->size, 8, MPI_BYTE, p->rank, TAG_SIZE, t->comm, &p->requests[p->n_requests++]));
        start_chunks(t, p, true);
        append(&t->sending, p);
        any = true;
    }
}

/* Return true if all requests of a parcel are complete. */
static bool complete(rp_mpi_team *t, parcel *p)
{
    int done = 0;
    return worked(t, MPI_Testall(p->n_requests, p->requests, &done, MPI_STATUSES_IGNORE)) && done;
}

static bool end_sends(rp_mpi_team *t)
{
    bool any = false;
    while (t->sending.first != NULL && complete(t, t->sending.first)) {
        free_parcel(pop(&t->sending));
        any = true;
    }
    return any;
}

/* Begin to receive a parcel whose size has arrived. */
static void begin_receive(rp_mpi_team *t, int from)
{
    uint64_t size = 0;
    if (!worked(t, MPI_Recv(&size, 8, MPI_BYTE, from, TAG_SIZE, t->comm, MPI_STATUS_IGNORE)))
        return;
    parcel *p = make_parcel(from, size);
    if (p == NULL) {
        fail(t, "rank %d on %s: out of memory for a message of %llu bytes (start fewer processes on this machine)",
             (int)t->rank, t->peers[t->rank].host, (unsigned long long)size);
        return;
    }
    start_chunks(t, p, false);
    append(&t->arriving, p);
}

/* Receive what has arrived. Return true if there was something. */
static bool receive_all(rp_mpi_team *t)
{
    bool any = false;
    for (int found = 1; found;) {
        MPI_Status status;
        if (!worked(t, MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, t->comm, &found, &status)) || !found)
            break;
        t->peers[status.MPI_SOURCE].heard = seconds_now();
        if (status.MPI_TAG == TAG_SIZE)
            begin_receive(t, status.MPI_SOURCE);
        else if (!worked(t, MPI_Recv(NULL, 0, MPI_BYTE, status.MPI_SOURCE, TAG_BEAT, t->comm, MPI_STATUS_IGNORE)))
            break;
        any = true;
    }
    while (t->arriving.first != NULL && complete(t, t->arriving.first)) {
        pthread_mutex_lock(&t->mutex);
        append(&t->arrived, pop(&t->arriving));
        pthread_cond_broadcast(&t->changed);
        pthread_mutex_unlock(&t->mutex);
        any = true;
    }
    return any;
}

/* Return true if this process watches another: rank 0 watches all, and all watch rank 0. */
static bool watches(const rp_mpi_team *t, int32_t rank)
{
    return rank != t->rank && (rank == 0 || t->rank == 0);
}

/* Send a sign of life each second, unless the last one is still on its way. */
static void beat(rp_mpi_team *t)
{
    const double now = seconds_now();
    if (now - t->beaten < 1)
        return;
    t->beaten = now;
    for (int32_t k = 0; k < t->ranks; k++) {
        int done = 0;
        if (watches(t, k) && worked(t, MPI_Test(&t->peers[k].beat, &done, MPI_STATUS_IGNORE)) && done)
            worked(t, MPI_Isend(NULL, 0, MPI_BYTE, k, TAG_BEAT, t->comm, &t->peers[k].beat));
    }
}

/* Look for processes that have been silent for too long. A time in which this process itself could not run, for example
 * because it was stopped, does not count. */
static void check_silence(rp_mpi_team *t)
{
    const double now = seconds_now(), slept = now - t->checked > 1 ? now - t->checked : 0;
    t->checked = now;
    for (int32_t k = 0; k < t->ranks; k++) {
        t->peers[k].heard += slept;
        if (watches(t, k) && now - t->peers[k].heard > t->silence)
            fail(t,
                 "rank %d on %s: it has been silent for %.0f s, so it was killed or stopped, or its machine is down or "
                 "overloaded (start the command again; RELPOS_MPI_SILENCE sets the number of seconds)",
                 (int)k, t->peers[k].host, t->silence);
    }
}

/* Return what this process may use of its machine; see rp_mpi_calls.share. */
static double find_share(MPI_Comm comm)
{
    MPI_Comm local;
    int ranks = 1;
    double share = 1;
    cpu_set_t own;
    CPU_ZERO(&own);
    if (sched_getaffinity(0, sizeof own, &own) != 0 ||
        MPI_Comm_split_type(comm, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &local) != MPI_SUCCESS)
        return share;
    MPI_Comm_size(local, &ranks);
    cpu_set_t *all = calloc((size_t)ranks, sizeof *all);
    if (all != NULL && MPI_Allgather(&own, sizeof own, MPI_BYTE, all, sizeof own, MPI_BYTE, local) == MPI_SUCCESS) {
        share = 0;
        for (size_t cpu = 0; cpu < CPU_SETSIZE; cpu++) {
            int users = 0;
            for (int k = 0; k < ranks; k++)
                users += CPU_ISSET(cpu, &all[k]) != 0;
            share += CPU_ISSET(cpu, &own) ? 1.0 / users : 0;
        }
        share /= CPU_COUNT(&own) > 0 ? CPU_COUNT(&own) : 1;
    }
    free(all);
    MPI_Comm_free(&local);
    return share;
}

/* Start MPI, and learn the names of the machines. Return false after a failure. */
static bool start(rp_mpi_team *t)
{
    int level, rank, ranks;
    if (!worked(t, MPI_Init_thread(NULL, NULL, MPI_THREAD_MULTIPLE, &level)) ||
        !worked(t, MPI_Comm_dup(MPI_COMM_WORLD, &t->comm)) ||
        !worked(t, MPI_Comm_set_errhandler(t->comm, MPI_ERRORS_RETURN)) || !worked(t, MPI_Comm_dup(t->comm, &t->parts)))
        return false;
    MPI_Comm_rank(t->comm, &rank);
    MPI_Comm_size(t->comm, &ranks);
    t->rank = rank;
    t->ranks = ranks;
    peer *peers = calloc((size_t)ranks, sizeof *peers);
    char *hosts = calloc((size_t)ranks, HOST_MAX), own[HOST_MAX] = "";
    gethostname(own, sizeof own - 1);
    const bool known = peers != NULL && hosts != NULL &&
                       worked(t, MPI_Allgather(own, HOST_MAX, MPI_BYTE, hosts, HOST_MAX, MPI_BYTE, t->comm));
    for (int k = 0; known && k < ranks; k++) {
        peers[k] = (peer){.heard = seconds_now(), .beat = MPI_REQUEST_NULL};
        memcpy(peers[k].host, hosts + (size_t)k * HOST_MAX, HOST_MAX - 1);
    }
    free(hosts);
    if (!known) {
        free(peers);
        fail(t, "rank %d: out of memory while starting MPI (start fewer processes on this machine)", rank);
        return false;
    }
    t->peers = peers;
    t->share = find_share(t->comm);
    return true;
}

/* Let the thread of MPI advance an exchange; NULL: no more. */
static void attach(void *context, rpi_exchange *x)
{
    rp_mpi_team *t = context;
    pthread_mutex_lock(&t->attaching);
    t->attached = x;
    pthread_mutex_unlock(&t->attaching);
}

/* Advance the attached exchange. Return true if something happened. */
static bool advance_attached(rp_mpi_team *t)
{
    pthread_mutex_lock(&t->attaching);
    const bool any = t->attached != NULL && rpi_exchange_advance(t->attached);
    pthread_mutex_unlock(&t->attaching);
    return any;
}

/* Return true if the caller wants to leave, and everything that it sent is sent. */
static bool may_leave(rp_mpi_team *t)
{
    pthread_mutex_lock(&t->mutex);
    const bool may = t->leaving && t->queued.first == NULL;
    pthread_mutex_unlock(&t->mutex);
    return may && t->sending.first == NULL;
}

/* Take part in the barrier at the end. Return true when every process has reached it. Signs of life continue until
 * then. */
static bool pass_barrier(rp_mpi_team *t)
{
    int done = 0;
    if (t->barrier == MPI_REQUEST_NULL && !worked(t, MPI_Ibarrier(t->comm, &t->barrier)))
        return false;
    return worked(t, MPI_Test(&t->barrier, &done, MPI_STATUS_IGNORE)) && done;
}

/* Wait a moment for the caller to send something. */
static void nap(rp_mpi_team *t, double seconds)
{
    pthread_mutex_lock(&t->mutex);
    if (t->queued.first == NULL && t->abort_code == 0)
        await_change(t, seconds);
    pthread_mutex_unlock(&t->mutex);
}

/* Abort when the caller asks for it; or, because the caller may be waiting for a file, END_SECONDS after a failure.
 * Return false if the team has failed. */
static bool check_end(rp_mpi_team *t)
{
    pthread_mutex_lock(&t->mutex);
    int code = t->abort_code;
    const bool failed = t->failure[0] != 0;
    pthread_mutex_unlock(&t->mutex);
    if (!failed)
        t->healthy = seconds_now();
    if (code == 0 && seconds_now() - t->healthy > END_SECONDS) {
        fprintf(stderr, "relpos: %s\n", t->failure);
        code = 1;
    }
    if (code != 0)
        MPI_Abort(MPI_COMM_WORLD, code);
    return !failed;
}

/* Exchange messages until the caller leaves or aborts. */
static void exchange(rp_mpi_team *t)
{
    double pause = 0;
    t->checked = t->healthy = seconds_now();
    for (;;) {
        if (!check_end(t)) {
            nap(t, LONG_NAP);
            continue;
        }
        bool any = start_sends(t);
        any |= receive_all(t);
        any |= end_sends(t);
        any |= advance_attached(t);
        beat(t);
        check_silence(t);
        if (may_leave(t) && pass_barrier(t))
            return;
        pause = any ? 0 : pause + 20e-6;
        if (!any)
            nap(t, pause < LONG_NAP ? pause : LONG_NAP);
    }
}

/* Receive the signs of life that are still on their way, and end MPI. */
static void end(rp_mpi_team *t)
{
    receive_all(t);
    for (int32_t k = 0; k < t->ranks; k++)
        if (t->peers[k].beat != MPI_REQUEST_NULL)
            MPI_Request_free(&t->peers[k].beat);
    MPI_Comm_free(&t->parts);
    MPI_Comm_free(&t->comm);
    MPI_Finalize();
}

static void *run(void *context)
{
    rp_mpi_team *t = context;
    const bool started = start(t);
    pthread_mutex_lock(&t->mutex);
    t->started = true;
    pthread_cond_broadcast(&t->changed);
    pthread_mutex_unlock(&t->mutex);
    if (!started)
        return NULL;
    exchange(t);
    end(t);
    pthread_mutex_lock(&t->mutex);
    t->left = true;
    pthread_cond_broadcast(&t->changed);
    pthread_mutex_unlock(&t->mutex);
    return NULL;
}

/* ------------------------------------------------------------------------------------------------ calls */

/* Wait until *flag, the team has failed, or the time is over. The mutex is locked. Return *flag. */
static bool wait_for(rp_mpi_team *t, const bool *flag, double seconds)
{
    const double until = seconds_now() + seconds;
    while (!*flag && t->failure[0] == 0 && seconds_now() < until)
        await_change(t, 1);
    return *flag;
}

static rp_mpi_team *join(double silence, char *error)
{
    rp_mpi_team *t = calloc(1, sizeof *t);
    if (t == NULL) {
        snprintf(error, RP_MPI_ERROR_MAX, "out of memory while starting MPI (start fewer processes on this machine)");
        return NULL;
    }
    t->silence = silence;
    t->barrier = MPI_REQUEST_NULL;
    t->beaten = seconds_now();
    pthread_mutex_init(&t->mutex, NULL);
    pthread_mutex_init(&t->attaching, NULL);
    rpi_condition_init(&t->changed);
    if (pthread_create(&t->thread, NULL, run, t) != 0) {
        snprintf(error, RP_MPI_ERROR_MAX, "no thread can be started for MPI: %s (raise ulimit -u)", strerror(errno));
        free(t);
        return NULL;
    }
    pthread_mutex_lock(&t->mutex);
    const bool started = wait_for(t, &t->started, START_SILENCES * silence) && t->failure[0] == 0;
    if (!started && t->failure[0] != 0)
        snprintf(error, RP_MPI_ERROR_MAX, "%s", t->failure);
    else if (!started)
        snprintf(error, RP_MPI_ERROR_MAX,
                 "MPI has not started within %.0f s, because a process is missing (start the command again; see the "
                 "messages of the launcher; RELPOS_MPI_SILENCE sets a third of this time)",
                 START_SILENCES * silence);
    pthread_mutex_unlock(&t->mutex);
    return started ? t : NULL; /* its thread may still be starting MPI, so it keeps its memory */
}

static int32_t rank_of(const rp_mpi_team *t)
{
    return t->rank;
}

static int32_t ranks_of(const rp_mpi_team *t)
{
    return t->ranks;
}

static const char *host_of(const rp_mpi_team *t)
{
    return t->peers[t->rank].host;
}

static double share_of(const rp_mpi_team *t)
{
    return t->share;
}

static int send_bytes(rp_mpi_team *t, int32_t to, const void *data, size_t size)
{
    parcel *p = make_parcel(to, size);
    if (p == NULL)
        return -1;
    if (size > 0)
        memcpy(p->data, data, size);
    pthread_mutex_lock(&t->mutex);
    append(&t->queued, p);
    pthread_cond_broadcast(&t->changed);
    pthread_mutex_unlock(&t->mutex);
    return 0;
}

static int receive(rp_mpi_team *t, double seconds, rp_mpi_message *m)
{
    const double until = seconds_now() + seconds;
    pthread_mutex_lock(&t->mutex);
    while (t->arrived.first == NULL && t->failure[0] == 0 && seconds_now() < until)
        await_change(t, 0.01); /* look at the time at least every 10 ms */
    parcel *p = t->failure[0] == 0 ? pop(&t->arrived) : NULL;
    const int result = t->failure[0] != 0 ? -1 : p != NULL;
    pthread_mutex_unlock(&t->mutex);
    if (p != NULL) {
        *m = (rp_mpi_message){p->rank, p->data, p->size};
        p->data = NULL;
        free_parcel(p);
    }
    return result;
}

static const char *failure_of(rp_mpi_team *t)
{
    pthread_mutex_lock(&t->mutex);
    const bool failed = t->failure[0] != 0; /* the text does not change any more */
    pthread_mutex_unlock(&t->mutex);
    return failed ? t->failure : NULL;
}

/* Copy the error of a failed call. */
static rp_status with_error(rp_status status, char *error)
{
    if (status != RP_OK)
        snprintf(error, RP_MPI_ERROR_MAX, "%s", rp_mpi_last_error());
    return status;
}

static const char *host_failure(void *context)
{
    return failure_of(context);
}

static rp_status make_plan(rp_mpi_team *t, const rp_desc *desc, rp_mpi_plan **plan, char *error)
{
    const rpi_host host = {t, attach, host_failure};
    return with_error(rpi_plan_with(plan, t->parts, desc, &host), error);
}

static rp_status attend(rp_mpi_plan *plan, const rp_tensors *local, char *error)
{
    return with_error(rp_mpi_attend(plan, local), error);
}

static rp_status backward(rp_mpi_plan *plan, const rp_tensors *local, const rp_grads *grads, char *error)
{
    int level = MPI_THREAD_SINGLE;
    MPI_Query_thread(&level);
    if (level < MPI_THREAD_MULTIPLE) /* the same in all processes */
        return with_error(rpi_mpi_fail(RP_E_UNSUPPORTED, "this MPI lets only one thread call it; gradients need an MPI "
                                                         "with MPI_THREAD_MULTIPLE"),
                          error);
    return with_error(rp_mpi_backward(plan, local, grads), error);
}

static int leave(rp_mpi_team *t)
{
    pthread_mutex_lock(&t->mutex);
    t->leaving = true;
    pthread_cond_broadcast(&t->changed);
    wait_for(t, &t->left, 1e9);
    const bool left = t->left;
    pthread_mutex_unlock(&t->mutex);
    if (!left)
        return -1;
    pthread_join(t->thread, NULL);
    while (t->arrived.first != NULL)
        free_parcel(pop(&t->arrived));
    pthread_cond_destroy(&t->changed);
    pthread_mutex_destroy(&t->attaching);
    pthread_mutex_destroy(&t->mutex);
    free(t->peers);
    free(t);
    return 0;
}

static void abort_all(rp_mpi_team *t, int code)
{
    pthread_mutex_lock(&t->mutex);
    t->abort_code = code != 0 ? code : 1;
    pthread_cond_broadcast(&t->changed);
    pthread_mutex_unlock(&t->mutex);
    sleep(END_SECONDS);
    _exit(code);
}

const rp_mpi_calls *rp_mpi_team_calls(void)
{
    static const rp_mpi_calls calls = {
        .size = sizeof calls,
        .version = RP_VERSION_STRING,
        .join = join,
        .rank = rank_of,
        .ranks = ranks_of,
        .host = host_of,
        .share = share_of,
        .send = send_bytes,
        .receive = receive,
        .failure = failure_of,
        .leave = leave,
        .abort = abort_all,
        .plan = make_plan,
        .attend = attend,
        .backward = backward,
        .sent_bytes = rp_mpi_sent_bytes,
        .stretch = rp_mpi_stretch,
        .free_plan = rp_mpi_plan_destroy,
        .last_error_in = rp_last_error_in,
    };
    return &calls;
}
