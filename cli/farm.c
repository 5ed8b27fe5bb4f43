/* farm.c -- shares out tasks between the processes of a team. Each process computes one task and has another at hand,
 * so that none waits for a message. On rank 0 a thread computes, and the caller's thread hands out tasks and takes
 * results.
 *
 *     next ──▶ window of tasks ──▶ the most expensive first ──▶ compute, in any process ──▶ take, in the order of next
 *
 * The window bounds the memory. Without a team, a loop does the same.
 * SPDX-License-Identifier: Apache-2.0 */
#include "cli/team.h"
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { AT_HAND = 2 }; /* tasks that a process computes or has at hand */
#define LOOK 0.002    /* seconds between two looks at the results of rank 0 */

typedef enum state { WAITING, GIVEN, DONE } state;

typedef struct slot {
    cli_task task;
    state state;
    int32_t rank; /* that computes it */
    void *result;
    size_t size;
} slot;

/* The thread of rank 0 that computes. */
typedef struct worker {
    cli_farm farm;
    pthread_t thread;
    pthread_mutex_t mutex; /* of the fields below */
    pthread_cond_t given;
    slot *todo[AT_HAND];
    int n_todo;
    bool end;
    slot *done[AT_HAND];
    int n_done, code;
} worker;

typedef struct window {
    const cli_farm *farm;
    slot *slots; /* [size], a ring */
    int64_t size, head, tail, waiting;
    bool ended;    /* next has made all tasks */
    int32_t *load; /* [ranks] tasks given to each process */
    worker *worker;
} window;

static int no_memory(void)
{
    return cli_error(CLI_FAILED, "out of memory for the tasks of %d processes (start fewer)", (int)cli_team_ranks());
}

/* ------------------------------------------------------------------------------------------------ rank 0 computes */

static void *work(void *context)
{
    worker *w = context;
    pthread_mutex_lock(&w->mutex);
    for (;;) {
        while (w->n_todo == 0 && !w->end)
            pthread_cond_wait(&w->given, &w->mutex);
        if (w->end)
            break;
        slot *s = w->todo[0];
        pthread_mutex_unlock(&w->mutex);
        const int code = w->farm.compute(w->farm.context, s->task.data, s->task.size, &s->result, &s->size);
        pthread_mutex_lock(&w->mutex);
        w->todo[0] = w->todo[1];
        w->n_todo--;
        w->done[w->n_done++] = s;
        w->code = w->code != CLI_OK ? w->code : code;
    }
    pthread_mutex_unlock(&w->mutex);
    return NULL;
}

static worker *start_worker(const cli_farm *f)
{
    worker *w = calloc(1, sizeof *w);
    if (w == NULL)
        return NULL;
    w->farm = *f;
    pthread_mutex_init(&w->mutex, NULL);
    pthread_cond_init(&w->given, NULL);
    if (pthread_create(&w->thread, NULL, work, w) == 0)
        return w;
    free(w);
    return NULL;
}

/* Let the worker end when it has computed its task. */
static void stop_worker(worker *w)
{
    pthread_mutex_lock(&w->mutex);
    w->end = true;
    pthread_cond_signal(&w->given);
    pthread_mutex_unlock(&w->mutex);
}

/* ------------------------------------------------------------------------------------------------ rank 0 shares out */

/* Make tasks until the window is full. */
static int fill(window *w)
{
    while (!w->ended && w->tail - w->head < w->size) {
        slot *s = &w->slots[w->tail % w->size];
        *s = (slot){0};
        const int code = w->farm->next(w->farm->context, &s->task);
        if (code != CLI_OK)
            return code;
        w->ended = s->task.data == NULL;
        w->tail += !w->ended;
        w->waiting += !w->ended;
    }
    return CLI_OK;
}

/* Return the most expensive waiting task. */
static int64_t choose(const window *w)
{
    int64_t best = -1;
    for (int64_t k = w->head; k < w->tail; k++) {
        const slot *s = &w->slots[k % w->size];
        if (s->state == WAITING && (best < 0 || s->task.cost > w->slots[best % w->size].task.cost))
            best = k;
    }
    return best;
}

static int give(window *w, int32_t rank, int64_t id)
{
    slot *s = &w->slots[id % w->size];
    s->state = GIVEN;
    s->rank = rank;
    w->load[rank]++;
    w->waiting--;
    if (rank != 0)
        return cli_team_send(rank, TEAM_TASK, id, s->task.data, s->task.size);
    pthread_mutex_lock(&w->worker->mutex);
    w->worker->todo[w->worker->n_todo++] = s;
    pthread_cond_signal(&w->worker->given);
    pthread_mutex_unlock(&w->worker->mutex);
    return CLI_OK;
}

/* Give each process a task; and if there are tasks for all, a second one. */
static int give_all(window *w)
{
    const int32_t ranks = cli_team_ranks();
    int code = CLI_OK;
    for (int load = 0; load < AT_HAND; load++)
        for (int32_t rank = 0; rank < ranks && code == CLI_OK && w->waiting > (load > 0 ? ranks : 0); rank++)
            if (w->load[rank] == load)
                code = give(w, rank, choose(w));
    return code;
}

/* Note a result. */
static void finish(window *w, slot *s, void *result, size_t size)
{
    s->state = DONE;
    s->result = result;
    s->size = size;
    w->load[s->rank]--;
}

/* Get the results of rank 0, and wait a moment for those of others. */
static int collect(window *w)
{
    cli_team_message m;
    pthread_mutex_lock(&w->worker->mutex);
    int code = w->worker->code;
    for (int k = 0; k < w->worker->n_done; k++)
        finish(w, w->worker->done[k], w->worker->done[k]->result, w->worker->done[k]->size);
    w->worker->n_done = 0;
    pthread_mutex_unlock(&w->worker->mutex);
    if (code == CLI_OK)
        code = cli_team_receive(LOOK, &m);
    if (code != CLI_OK || m.memory == NULL)
        return code;
    slot *s = m.kind == TEAM_RESULT && m.id >= w->head && m.id < w->tail ? &w->slots[m.id % w->size] : NULL;
    void *result = s != NULL && s->state == GIVEN && s->rank == m.from ? malloc(m.size + 1) : NULL;
    if (result != NULL) {
        memcpy(result, m.data, m.size);
        finish(w, s, result, m.size);
    }
    free(m.memory);
    return result != NULL ? CLI_OK : no_memory();
}

/* Take the results that are complete up to the first that is not. */
static int take_complete(window *w)
{
    int code = CLI_OK;
    while (w->head < w->tail && w->slots[w->head % w->size].state == DONE && code == CLI_OK) {
        slot *s = &w->slots[w->head++ % w->size];
        code = w->farm->take(w->farm->context, &s->task, s->result, s->size);
        free(s->result);
        free(s->task.data);
        *s = (slot){0};
    }
    return code;
}

static int share_out(window *w)
{
    int code = CLI_OK;
    while (code == CLI_OK) {
        code = fill(w);
        if (code == CLI_OK && w->ended && w->head == w->tail)
            return CLI_OK;
        if (code == CLI_OK)
            code = give_all(w);
        if (code == CLI_OK)
            code = collect(w);
        if (code == CLI_OK)
            code = take_complete(w);
        if (code == CLI_OK && cli_stop_requested())
            code = CLI_FAILED;
    }
    return code;
}

/* After a failure the worker may still be computing a task, so the memory stays; cli_team_settle ends the process. */
static int run_first(const cli_farm *f)
{
    const int32_t ranks = cli_team_ranks();
    window w = {.farm = f, .size = (int64_t)f->tasks_per_rank * ranks};
    w.slots = calloc((size_t)w.size, sizeof *w.slots);
    w.load = calloc((size_t)ranks, sizeof *w.load);
    w.worker = w.slots != NULL && w.load != NULL ? start_worker(f) : NULL;
    if (w.worker == NULL)
        return no_memory();
    const int code = share_out(&w);
    stop_worker(w.worker);
    if (code != CLI_OK)
        return code;
    pthread_join(w.worker->thread, NULL);
    pthread_cond_destroy(&w.worker->given);
    pthread_mutex_destroy(&w.worker->mutex);
    free(w.worker);
    free(w.slots);
    free(w.load);
    return CLI_OK;
}

/* ------------------------------------------------------------------------------------------------ other processes */

static int run_other(const cli_farm *f)
{
    int code = CLI_OK;
    for (cli_team_message m = {0}; code == CLI_OK; free(m.memory)) {
        code = cli_team_receive(1, &m);
        if (code == CLI_OK && cli_stop_requested())
            code = cli_error(CLI_FAILED, "stopped by a signal (start the command again)");
        if (code != CLI_OK || m.memory == NULL)
            continue;
        if (m.kind == TEAM_END) {
            free(m.memory);
            return CLI_OK;
        }
        void *result = NULL;
        size_t size = 0;
        code = f->compute(f->context, m.data, m.size, &result, &size);
        if (code == CLI_OK)
            code = cli_team_send(0, TEAM_RESULT, m.id, result, size);
        free(result);
    }
    return code;
}

/* ------------------------------------------------------------------------------------------------ one process */

static int run_alone(const cli_farm *f)
{
    int code = CLI_OK;
    for (;;) {
        cli_task task = {0};
        void *result = NULL;
        size_t size = 0;
        code = f->next(f->context, &task);
        if (code != CLI_OK || task.data == NULL)
            return code;
        code = f->compute(f->context, task.data, task.size, &result, &size);
        if (code == CLI_OK)
            code = f->take(f->context, &task, result, size);
        free(result);
        free(task.data);
        if (code != CLI_OK)
            return code;
    }
}

int cli_farm_run(const cli_farm *f)
{
    return cli_team_ranks() == 1 ? run_alone(f) : cli_team_rank() == 0 ? run_first(f) : run_other(f);
}
