/* processes.c -- a training run that the processes of an mpirun share. Rank 0 has the run: the files, the weights and
 * the optimizer. Each process computes the gradients of some batches of a step:
 *
 *     rank 0    weights ──▶ all     batches 0 … a-1    ◀── sums    add all sums, AdamW, next step
 *     rank k                        batches b … c-1 ──▶
 *
 * The sums are nodes of one binary tree (gradient_sums.c), so the bits do not depend on the number of processes.
 * SPDX-License-Identifier: Apache-2.0 */
#include "cli/team.h"
#include "cli/lab/lab.h"
#include <stdlib.h>
#include <string.h>

/* Return the first batch of a rank. */
static int64_t first_of(const lab_run *r, int32_t rank)
{
    return r->c.accumulate * rank / cli_team_ranks();
}

int lab_share(lab_run *r)
{
    const nn_config *c = &r->c;
    const int64_t ranks = cli_team_ranks(), windows = c->batch * c->accumulate;
    char advice[128] = "";
    r->shared = ranks > 1;
    if (ranks <= c->accumulate)
        return CLI_OK;
    int64_t parts = ranks;
    while (parts < windows && windows % parts != 0)
        parts++;
    if (parts <= windows)
        snprintf(advice, sizeof advice, "set batch = %lld and accumulate = %lld for steps of the same size, or ",
                 (long long)(windows / parts), (long long)parts);
    return cli_error(CLI_USAGE,
                     "accumulate = %lld: %lld processes cannot share %lld batch%s of a step (%sstart at most %lld)",
                     (long long)c->accumulate, (long long)ranks, (long long)c->accumulate,
                     c->accumulate > 1 ? "es" : "", advice, (long long)c->accumulate);
}

int lab_agree(const char *name, const char *config, uint64_t checksum)
{
    char texts[32];
    snprintf(texts, sizeof texts, "checksum %016llx", (unsigned long long)checksum);
    const cli_team_fact facts[] = {
        {name, "use the same file on all machines", config},
        {"text", "use the same files on all machines", texts},
        {"CBLAS", "results depend on it; name the same one in RELPOS_BLAS on all machines", nn_blas_name()},
    };
    return cli_team_agree(facts, (int)(sizeof facts / sizeof *facts));
}

/* ------------------------------------------------------------------------------------------------ other ranks */

/* A message with the sums of a rank: this header, the losses of its batches, the first batch and the number of batches
 * of each sum, and the gradients. */
typedef struct header {
    int64_t n_sums;
    int64_t stop; /* 1: the process received a signal */
} header;

static size_t message_size(const lab_run *r, int64_t n_sums, int64_t batches)
{
    return sizeof(header) + (size_t)batches * sizeof(double) + (size_t)n_sums * 2 * sizeof(int64_t) +
           (size_t)n_sums * (size_t)r->m.n_weights * sizeof(real);
}

/* Append bytes to a message. */
static char *put(char *to, const void *from, size_t size)
{
    memcpy(to, from, size);
    return to + size;
}

static int send_sums(const lab_run *r, int64_t from, int64_t to)
{
    const nn_sums *s = &r->sums;
    const header h = {s->n_before + 1, cli_stop_requested()};
    const size_t size = message_size(r, h.n_sums, to - from), arena = (size_t)r->m.n_weights * sizeof(real);
    char *bytes = malloc(size), *at = bytes;
    if (bytes == NULL)
        return cli_error(CLI_FAILED, "out of memory for %zu bytes of gradients (start fewer processes on this machine)",
                         size);
    at = put(at, &h, sizeof h);
    at = put(at, r->batch_losses + from, (size_t)(to - from) * sizeof(double));
    for (int32_t n = 0; n < h.n_sums; n++) {
        const bool last = n == s->n_before;
        const int64_t range[2] = {last ? s->first : s->before[n].first, last ? s->count : s->before[n].count};
        at = put(at, range, sizeof range);
    }
    for (int32_t n = 0; n < h.n_sums; n++)
        at = put(at, n == s->n_before ? r->m.g : s->before[n].g, arena);
    const int code = cli_team_send(0, TEAM_RESULT, r->step, bytes, size);
    free(bytes);
    return code;
}

int lab_serve(lab_run *r)
{
    const int64_t from = first_of(r, cli_team_rank()), to = first_of(r, cli_team_rank() + 1);
    char err[NN_ERR_MAX];
    int code = CLI_OK;
    for (cli_team_message m = {0}; code == CLI_OK; free(m.memory)) {
        code = cli_team_receive(1, &m); /* a signal alone ends nothing: rank 0 learns of it, and writes a checkpoint */
        if (code != CLI_OK || m.memory == NULL)
            continue;
        if (m.kind == TEAM_END) {
            free(m.memory);
            return CLI_OK;
        }
        memcpy(r->m.w, m.data, (size_t)r->m.n_weights * sizeof(real));
        r->step = m.id;
        code = lab_batches(r, from, to, err) == 0 ? send_sums(r, from, to) : cli_error(CLI_FAILED, "%s", err);
    }
    return code;
}

/* ------------------------------------------------------------------------------------------------ rank 0 */

/* Add the sums in a message of a rank. Return true if that process received a signal. */
static int add_sums(lab_run *r, const cli_team_message *m, bool *stop, char err[NN_ERR_MAX])
{
    const int64_t from = first_of(r, m->from), batches = first_of(r, m->from + 1) - from;
    const size_t arena = (size_t)r->m.n_weights * sizeof(real);
    const char *at = m->data;
    header h = {0};
    if (m->size >= sizeof h)
        memcpy(&h, at, sizeof h);
    if (h.n_sums < 1 || h.n_sums > NN_SUMS_MAX || m->size != message_size(r, h.n_sums, batches))
        return nn_fail(err, "rank %d: its message has %zu bytes, not the gradients of %lld batches", (int)m->from,
                       m->size, (long long)batches);
    at += sizeof h;
    memcpy(r->batch_losses + from, at, (size_t)batches * sizeof(double));
    at += (size_t)batches * sizeof(double);
    const char *g = at + (size_t)h.n_sums * 2 * sizeof(int64_t);
    for (int64_t n = 0; n < h.n_sums; n++, g += arena) {
        int64_t range[2];
        memcpy(range, at + (size_t)n * sizeof range, sizeof range);
        if (nn_sums_next(&r->sums, &r->m, err) != 0)
            return -1;
        memcpy(r->m.g, g, arena);
        nn_sums_add(&r->sums, &r->m, r->pool, range[0], range[1]);
    }
    *stop |= h.stop != 0;
    return 0;
}

/* Receive the sums of all other ranks for this step, into messages[rank]. Return 1 if a signal or another process
 * stops the run. */
static int receive_all(const lab_run *r, cli_team_message *messages)
{
    for (int32_t left = cli_team_ranks() - 1; left > 0;) {
        cli_team_message m;
        if (cli_team_receive(0.1, &m) != CLI_OK || (m.memory == NULL && cli_stop_requested()))
            return 1;
        if (m.memory == NULL)
            continue;
        if (m.kind == TEAM_RESULT && m.id == r->step && messages[m.from].memory == NULL) {
            messages[m.from] = m;
            left--;
        } else {
            free(m.memory);
        }
    }
    return 0;
}

int lab_share_step(lab_run *r, char err[NN_ERR_MAX])
{
    const int32_t ranks = cli_team_ranks();
    const size_t arena = (size_t)r->m.n_weights * sizeof(real);
    bool stop = false;
    cli_team_message *messages = calloc((size_t)ranks, sizeof *messages);
    int code = messages ? 0 : nn_fail(err, "lab: out of memory for the messages of %d processes", (int)ranks);
    for (int32_t rank = 1; rank < ranks && code == 0; rank++)
        code = cli_team_send(rank, TEAM_TASK, r->step, r->m.w, arena) == CLI_OK ? 0 : 1;
    code = code == 0 ? lab_batches(r, 0, first_of(r, 1), err) : code;
    code = code == 0 ? receive_all(r, messages) : code;
    for (int32_t rank = 1; rank < ranks && code == 0; rank++)
        code = add_sums(r, &messages[rank], &stop, err);
    for (int32_t rank = 1; rank < ranks && messages; rank++)
        free(messages[rank].memory);
    free(messages);
    return code == 0 && stop ? 1 : code;
}
