/* exchange.c -- parts on their way from process to process. See exchange.h. Only the functions of the section "calls of
 * MPI" call MPI; a driver runs them (rpi_exchange_advance).
 * SPDX-License-Identifier: Apache-2.0 */
#include "exchange.h"
#include "condition.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { TAG_STOP = 1, TAG_PARTS };
enum { SLOTS = RPI_SLOTS + RPI_OWN, REQUESTS = SLOTS * 2 * RPI_CHUNKS };
#define MIN_CHUNK ((size_t)1 << 18)
#define SHORT_NAP 20e-6
#define LONG_NAP  1e-3

/* Wait until something changes, at most for this time. The mutex is locked. */
static void nap(rpi_exchange *x, double seconds)
{
    rpi_condition_wait(&x->changed, &x->mutex, seconds);
}

/* Record the failure of a call of MPI. Return true if it succeeded. */
static bool worked(rpi_exchange *x, int result)
{
    char text[MPI_MAX_ERROR_STRING] = "";
    int length = 0;
    if (result == MPI_SUCCESS)
        return true;
    MPI_Error_string(result, text, &length);
    if (x->failure[0] == 0)
        snprintf(x->failure, sizeof x->failure, "rank %d: MPI failed: %.300s (start the program again)", (int)x->rank,
                 text);
    return false;
}

/* ------------------------------------------------------------------------------------------------ calls of MPI */

/* Return the bytes of a chunk of a part: 1/RPI_CHUNKS of it, but not too few. */
static size_t chunk_size(const rpi_part *p)
{
    const size_t n = (p->size + RPI_CHUNKS - 1) / RPI_CHUNKS;
    return n > MIN_CHUNK ? n : MIN_CHUNK;
}

static int chunks_of(const rpi_part *p)
{
    return (int)((p->size + chunk_size(p) - 1) / chunk_size(p));
}

/* Find chunk c of a part: its address in a slot, and its bytes. */
static char *chunk_at(const rpi_part *p, const rpi_slot *s, int c, int *bytes)
{
    const size_t size = chunk_size(p), at = (size_t)c * size;
    *bytes = (int)(p->size - at < size ? p->size - at : size);
    return s->data + at;
}

static MPI_Request *request_of(rpi_exchange *x, const rpi_slot *s, bool send, int c)
{
    return &x->request[((s - x->slot) * 2 + send) * RPI_CHUNKS + c];
}

static void send_chunk(rpi_exchange *x, rpi_slot *s, int c)
{
    const rpi_part *p = &x->part[s->part];
    int bytes;
    const char *from = chunk_at(p, s, c, &bytes);
    if (worked(x,
               MPI_Isend(from, bytes, MPI_BYTE, p->to, TAG_PARTS + (int)s->part, x->comm, request_of(x, s, true, c))))
        x->sent_bytes += (uint64_t)bytes;
}

/* Begin to receive the next part that comes from another process. Return false if there is none. */
static bool receive_next(rpi_exchange *x, rpi_slot *s)
{
    while (x->next < x->n_parts && x->part[x->next].from < 0)
        x->next++;
    if (x->next == x->n_parts)
        return false;
    const rpi_part *p = &x->part[x->next];
    char *data = s->data;
    *s = (rpi_slot){.part = x->next++, .data = data, .ready = p->size == 0};
    for (int c = 0; c < chunks_of(p); c++) {
        int bytes;
        char *to = chunk_at(p, s, c, &bytes);
        worked(x,
               MPI_Irecv(to, bytes, MPI_BYTE, p->from, TAG_PARTS + (int)s->part, x->comm, request_of(x, s, false, c)));
    }
    return true;
}

/* A request of a slot is complete. */
static void complete(rpi_exchange *x, int index)
{
    rpi_slot *s = &x->slot[index / RPI_CHUNKS / 2];
    const rpi_part *p = &x->part[s->part];
    if (index / RPI_CHUNKS % 2 == 1) {
        s->sent++;
        return;
    }
    s->received++;
    s->ready = s->received == chunks_of(p);
    if (p->to >= 0)
        send_chunk(x, s, index % RPI_CHUNKS);
}

/* Return true if nobody needs the data of a slot any more. */
static bool is_done(const rpi_exchange *x, const rpi_slot *s)
{
    const rpi_part *p = &x->part[s->part];
    return s->released && s->ready && (p->to < 0 || s->sent == chunks_of(p));
}

/* Begin to send a part that belongs to this process. */
static void send_own(rpi_exchange *x, rpi_slot *s)
{
    const rpi_part *p = &x->part[s->part];
    s->ready = true;
    for (int c = 0; p->to >= 0 && c < chunks_of(p); c++)
        send_chunk(x, s, c);
}

/* Free slots, and fill them again. Return true if something changed. */
static bool refill(rpi_exchange *x)
{
    bool any = false, idle = true;
    for (int n = 0; n < SLOTS; n++) {
        rpi_slot *s = &x->slot[n];
        if (n >= RPI_SLOTS && s->part >= 0 && !s->ready)
            send_own(x, s);
        if (s->part >= 0 && is_done(x, s)) {
            s->part = -1;
            any = true;
        }
        if (s->part < 0 && n < RPI_SLOTS)
            any |= receive_next(x, s);
        idle = idle && s->part < 0;
    }
    x->idle = idle;
    return any;
}

/* Send and receive stop messages. When the caller has learned how many others have sent one, receive these, and cancel
 * the last receive. */
static bool advance_stops(rpi_exchange *x)
{
    int done = 0, sent = 0;
    if (x->stop_in == MPI_REQUEST_NULL)
        worked(x, MPI_Irecv(NULL, 0, MPI_BYTE, MPI_ANY_SOURCE, TAG_STOP, x->comm, &x->stop_in));
    if (worked(x, MPI_Test(&x->stop_in, &done, MPI_STATUS_IGNORE)) && done) {
        x->stops++;
        x->stopped = true;
    }
    for (int32_t k = 0; x->stop && k < x->ranks; k++)
        if (k != x->rank)
            worked(x, MPI_Isend(NULL, 0, MPI_BYTE, k, TAG_STOP, x->comm, &x->stop_out[k]));
    x->stop = false;
    worked(x, MPI_Testall(x->ranks, x->stop_out, &sent, MPI_STATUSES_IGNORE));
    if (x->stops != x->expected_stops || !sent)
        return done;
    if (x->stop_in != MPI_REQUEST_NULL) {
        worked(x, MPI_Cancel(&x->stop_in));
        worked(x, MPI_Wait(&x->stop_in, MPI_STATUS_IGNORE));
    }
    x->ended = true;
    return true;
}

static bool advance_parts(rpi_exchange *x)
{
    int n = 0, index[REQUESTS];
    if (x->ended)
        return false;
    bool any = advance_stops(x);
    if (worked(x, MPI_Testsome(REQUESTS, x->request, &n, index, MPI_STATUSES_IGNORE)) && n != MPI_UNDEFINED)
        for (int k = 0; k < n; k++)
            complete(x, index[k]);
    any |= n != MPI_UNDEFINED && n > 0;
    return refill(x) || any;
}

/* Start an exchange of rows. */
static bool start_rows(rpi_exchange *x)
{
    MPI_Datatype row;
    const int *n = x->counts, ranks = (int)x->ranks;
    const bool good = worked(x, MPI_Type_contiguous(x->size, MPI_BYTE, &row)) && worked(x, MPI_Type_commit(&row)) &&
                      worked(x, MPI_Ialltoallv(x->send, n, n + ranks, row, x->receive, n + 2 * ranks, n + 3 * ranks,
                                               row, x->comm, &x->collective));
    MPI_Type_free(&row);
    return good;
}

/* Start and test a collective call. */
static bool advance_collective(rpi_exchange *x)
{
    int done = 0;
    if (x->collective == MPI_REQUEST_NULL && x->counts != NULL)
        start_rows(x);
    else if (x->collective == MPI_REQUEST_NULL)
        worked(x, MPI_Iallgather(x->send, x->size, MPI_BYTE, x->receive, x->size, MPI_BYTE, x->comm, &x->collective));
    if (!worked(x, MPI_Test(&x->collective, &done, MPI_STATUS_IGNORE)) || !done)
        return false;
    x->collecting = false;
    x->collected = true;
    return true;
}

bool rpi_exchange_advance(rpi_exchange *x)
{
    bool any = false;
    pthread_mutex_lock(&x->mutex);
    if (x->failure[0] == 0 && x->collecting)
        any |= advance_collective(x);
    if (x->failure[0] == 0 && x->running)
        any |= advance_parts(x);
    if (any || x->failure[0] != 0)
        pthread_cond_broadcast(&x->changed);
    pthread_mutex_unlock(&x->mutex);
    return any;
}

/* ------------------------------------------------------------------------------------------------ drivers */

/* The thread of RPI_THREAD. */
static void *run(void *context)
{
    rpi_exchange *x = context;
    double pause = 0;
    for (bool go = true; go;) {
        pause = rpi_exchange_advance(x) ? 0 : pause + SHORT_NAP;
        pthread_mutex_lock(&x->mutex);
        go = x->running && x->failure[0] == 0;
        if (go && pause > 0)
            nap(x, pause < LONG_NAP ? pause : LONG_NAP);
        pthread_mutex_unlock(&x->mutex);
    }
    return NULL;
}

/* Return true if the caller must call MPI itself. */
static bool drives(const rpi_exchange *x)
{
    return x->driver != RPI_HOST && !x->threaded;
}

/* Return false after a failure of MPI or of the host. The mutex is locked. */
static bool is_healthy(rpi_exchange *x)
{
    const char *failure = x->driver == RPI_HOST ? x->host.failure(x->host.context) : NULL;
    if (failure != NULL && x->failure[0] == 0)
        snprintf(x->failure, sizeof x->failure, "%s", failure);
    return x->failure[0] == 0;
}

/* Wait a moment for a change. The mutex is locked. Return false after a failure. */
static bool wait_moment(rpi_exchange *x)
{
    bool any = false;
    if (drives(x)) {
        pthread_mutex_unlock(&x->mutex);
        any = rpi_exchange_advance(x);
        pthread_mutex_lock(&x->mutex);
    }
    x->pause = any ? 0 : x->pause + SHORT_NAP;
    if (!any)
        nap(x, drives(x) && x->pause < LONG_NAP ? x->pause : LONG_NAP);
    return is_healthy(x);
}

/* Wait until *flag. The mutex is locked. Return false after a failure. */
static bool wait_for(rpi_exchange *x, const bool *flag)
{
    x->pause = 0;
    while (!*flag && wait_moment(x))
        continue;
    return x->failure[0] == 0;
}

/* ------------------------------------------------------------------------------------------------ calls */

bool rpi_exchange_init(rpi_exchange *x, MPI_Comm comm, rpi_driver driver, const rpi_host *host)
{
    int rank, ranks;
    *x = (rpi_exchange){.comm = comm, .driver = driver};
    MPI_Comm_rank(comm, &rank);
    MPI_Comm_size(comm, &ranks);
    x->rank = rank;
    x->ranks = ranks;
    x->collective = x->stop_in = MPI_REQUEST_NULL;
    for (int n = 0; n < REQUESTS; n++)
        x->request[n] = MPI_REQUEST_NULL;
    x->stop_out = malloc((size_t)ranks * sizeof(MPI_Request));
    if (x->stop_out == NULL)
        return false;
    for (int n = 0; n < ranks; n++)
        x->stop_out[n] = MPI_REQUEST_NULL;
    pthread_mutex_init(&x->mutex, NULL);
    rpi_condition_init(&x->changed);
    if (host != NULL) {
        x->host = *host;
        host->attach(host->context, x);
    }
    return true;
}

void rpi_exchange_free(rpi_exchange *x)
{
    if (x->driver == RPI_HOST)
        x->host.attach(x->host.context, NULL);
    pthread_cond_destroy(&x->changed);
    pthread_mutex_destroy(&x->mutex);
    free(x->stop_out);
    for (int n = 0; n < RPI_SLOTS && x->failure[0] == 0; n++) /* after a failure of MPI, a message may still arrive */
        free(x->slot[n].data);
}

static bool collect(rpi_exchange *x, const void *send, void *receive, const int *counts, int size)
{
    pthread_mutex_lock(&x->mutex);
    x->send = send;
    x->receive = receive;
    x->counts = counts;
    x->size = size;
    x->collected = false;
    x->collecting = true;
    const bool good = wait_for(x, &x->collected);
    x->collecting = false;
    pthread_mutex_unlock(&x->mutex);
    return good;
}

bool rpi_exchange_gather(rpi_exchange *x, const void *mine, void *all, int size)
{
    return collect(x, mine, all, NULL, size);
}

bool rpi_exchange_rows(rpi_exchange *x, const void *send, void *receive, const int *counts, int size)
{
    return collect(x, send, receive, counts, size);
}

bool rpi_exchange_alloc(rpi_exchange *x, size_t slot_size)
{
    bool there = true;
    for (int n = 0; n < RPI_SLOTS && slot_size > x->slot_size; n++) {
        free(x->slot[n].data);
        x->slot[n].data = malloc(slot_size);
        there = there && x->slot[n].data != NULL;
    }
    if (there && slot_size > x->slot_size)
        x->slot_size = slot_size;
    return there;
}

void rpi_exchange_begin(rpi_exchange *x, const rpi_part *part, int64_t n_parts)
{
    int own = RPI_SLOTS;
    pthread_mutex_lock(&x->mutex);
    x->part = part;
    x->n_parts = n_parts;
    x->next = 0;
    x->sent_bytes = 0;
    x->idle = x->stop = x->stopped = false;
    x->ended = false;
    x->stops = 0;
    x->expected_stops = -1;
    for (int n = 0; n < SLOTS; n++)
        x->slot[n] = (rpi_slot){.part = -1, .data = n < RPI_SLOTS ? x->slot[n].data : NULL};
    for (int64_t n = 0; n < n_parts; n++) {
        if (part[n].own == NULL)
            continue;
        rpi_slot *s = &x->slot[own++];
        *s = (rpi_slot){.part = n, .data = (char *)(uintptr_t)part[n].own};
    }
    x->running = true;
    x->threaded = x->driver == RPI_THREAD && pthread_create(&x->thread, NULL, run, x) == 0;
    pthread_mutex_unlock(&x->mutex);
}

static rpi_slot *slot_of(rpi_exchange *x, int64_t part)
{
    for (int n = 0; n < SLOTS; n++)
        if (x->slot[n].part == part)
            return &x->slot[n];
    return NULL;
}

const char *rpi_exchange_wait(rpi_exchange *x, int64_t part)
{
    const char *data = NULL;
    pthread_mutex_lock(&x->mutex);
    x->pause = 0;
    do {
        const rpi_slot *s = slot_of(x, part);
        data = s != NULL && s->ready ? s->data : NULL;
    } while (data == NULL && wait_moment(x));
    pthread_mutex_unlock(&x->mutex);
    return data;
}

void rpi_exchange_release(rpi_exchange *x, int64_t part)
{
    pthread_mutex_lock(&x->mutex);
    rpi_slot *s = slot_of(x, part);
    if (s != NULL)
        s->released = true;
    pthread_cond_broadcast(&x->changed);
    pthread_mutex_unlock(&x->mutex);
}

void rpi_exchange_stop(rpi_exchange *x)
{
    pthread_mutex_lock(&x->mutex);
    x->stop = true;
    pthread_cond_broadcast(&x->changed);
    pthread_mutex_unlock(&x->mutex);
}

bool rpi_exchange_stopped(rpi_exchange *x)
{
    if (drives(x))
        rpi_exchange_advance(x);
    pthread_mutex_lock(&x->mutex);
    const bool stopped = x->stopped || !is_healthy(x);
    pthread_mutex_unlock(&x->mutex);
    return stopped;
}

bool rpi_exchange_finish(rpi_exchange *x)
{
    pthread_mutex_lock(&x->mutex);
    const bool good = wait_for(x, &x->idle);
    pthread_mutex_unlock(&x->mutex);
    return good;
}

void rpi_exchange_end(rpi_exchange *x, int stops)
{
    pthread_mutex_lock(&x->mutex);
    x->expected_stops = stops;
    wait_for(x, &x->ended);
    x->running = false;
    pthread_cond_broadcast(&x->changed);
    pthread_mutex_unlock(&x->mutex);
    if (x->threaded)
        pthread_join(x->thread, NULL);
    x->threaded = false;
}
