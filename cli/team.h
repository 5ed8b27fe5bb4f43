/* team.h -- one command over the processes that mpirun started. Rank 0 reads the input, shares out the work, and writes
 * the output and all messages; the others only compute. Without mpirun, the same functions work in one process.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef RELPOS_CLI_TEAM_H
#define RELPOS_CLI_TEAM_H

#include "cli/cli.h"

/* ------------------------------------------------------------------------------------------------ team_errors.c */

/* Set whether errors are printed: by rank 0 of a team only the first; by other ranks none. Warnings are always
 * printed. */
void cli_errors_of_rank(int32_t rank);
/* Decide about an error, or a warning if code is CLI_OK. Return true if it must not be printed. The first error is
 * kept. */
bool cli_keep_error(int code, const char *text);
/* Return the kept error, or "" if there was none. */
const char *cli_kept_error(void);

/* ------------------------------------------------------------------------------------------------ presence.c */

/* Let other processes of this machine and launcher see that this one has begun, until it ends or closes the returned
 * socket. Return a negative number where this is not possible. */
int cli_presence_begin(long rank);
/* Describe in `text` which of the processes have begun, as far as this machine knows; "" if it knows nothing. Return
 * true if this process has the lowest rank of them, so that it should print this. */
bool cli_presence_list(const char *launcher, long rank, long ranks, char *text, size_t size);

/* ------------------------------------------------------------------------------------------------ team.c */

/* Run a command that shares its work. If mpirun started several processes, join them before, and end them all with the
 * same exit code after. */
int cli_team_run(const cli_command *self, int argc, char **argv,
                 int (*run)(const cli_command *self, int argc, char **argv));
/* Check that a command that does not share its work runs alone: in several processes, each would do the same. Return
 * CLI_OK, or an exit code after printing an error. */
int cli_team_alone(const cli_command *command);
/* Return true if this process is the one that prints help and the version: the only one, or the first one of those that
 * a launcher started. It need not have joined a team. */
bool cli_team_prints(void);
/* Return the rank of this process; 0 without a team. */
int32_t cli_team_rank(void);
/* Return the number of processes; 1 without a team. */
int32_t cli_team_ranks(void);
/* Return the default number of threads of this process under mpirun: its share of the machine. 0: that of the default
 * pool, because there is no team or RELPOS_THREADS is set. */
int64_t cli_team_threads(void);
/* Something that must be equal in all processes. */
typedef struct cli_team_fact {
    const char *name, *fix; /* "model", "use the same file on all machines" */
    const char *text;       /* one line or many; the error shows the first line that differs */
} cli_team_fact;
enum { CLI_TEAM_FACTS = 8 };
/* Compare with rank 0: the version, the arguments, the instruction sets, and up to CLI_TEAM_FACTS further facts. Return
 * CLI_OK without a team. Call it when everything that may fail before the work has succeeded. */
int cli_team_agree(const cli_team_fact *more, int n_more);
/* In work without messages: return CLI_OK, or an exit code if another process has failed, after printing the error. */
int cli_team_check(void);
/* Call this after a failure, when the output is closed and before anything that cli_farm.compute uses is freed. In a
 * team, rank 0 then ends all processes with this exit code. */
void cli_team_settle(int code);

struct rp_mpi_plan;
/* Attention over the processes: rp_mpi_plan_create, rp_mpi_attend and rp_mpi_backward. Return CLI_OK, or an exit code
 * after printing. */
int cli_team_plan(const cli_problem *p, struct rp_mpi_plan **plan);
int cli_team_attend(const cli_problem *p, struct rp_mpi_plan *plan, const rp_tensors *local);
int cli_team_backward(const cli_problem *p, struct rp_mpi_plan *plan, const rp_tensors *local, const rp_grads *grads);
/* Return the bytes that this process sent in the last call. */
uint64_t cli_team_sent(const struct rp_mpi_plan *plan);
void cli_team_free_plan(struct rp_mpi_plan *plan);
/* A range of rows or keys. */
typedef struct cli_span {
    int64_t from, to;
} cli_span;
/* Find both stretches of a process in a sequence. Return the number of their rows. */
int64_t cli_team_rows(int64_t length, int32_t rank, cli_span s[2]);

/* Messages between the processes. */
typedef enum cli_team_kind { TEAM_FACTS = 1, TEAM_FAILED, TEAM_TASK, TEAM_RESULT, TEAM_END } cli_team_kind;
typedef struct cli_team_message {
    int32_t from;
    cli_team_kind kind;
    int32_t code; /* exit code of FAILED */
    int64_t id;   /* of a task */
    void *memory; /* free it */
    const void *data;
    size_t size;
} cli_team_message;
int cli_team_send(int32_t to, cli_team_kind kind, int64_t id, const void *data, size_t size);
/* Wait up to `seconds` for a message; memory is NULL if none came. An error of another process, or a dead one, is an
 * error. */
int cli_team_receive(double seconds, cli_team_message *m);

/* ------------------------------------------------------------------------------------------------ farm.c */

/* A part of the work. */
typedef struct cli_task {
    void *data; /* the input, from malloc; the farm frees it */
    size_t size;
    double cost;         /* in any unit */
    size_t first, count; /* for the caller */
} cli_task;

/* Work that can be shared out. All functions return CLI_OK, or an exit code after printing. */
typedef struct cli_farm {
    void *context;
    /* Rank 0: make the next task. Leave data NULL after the last. */
    int (*next)(void *context, cli_task *task);
    /* Any rank, in any thread but one at a time: compute a task. After a failure this may continue until
     * cli_team_settle. *result is from malloc. Stop on cli_stop_requested. */
    int (*compute)(void *context, const void *data, size_t size, void **result, size_t *result_size);
    /* Rank 0: take a result; it may be changed. Results come in the order of the tasks. */
    int (*take)(void *context, const cli_task *task, void *result, size_t size);
    int32_t tasks_per_rank; /* rank 0 keeps at most this many tasks and results for each process; at least 2 */
} cli_farm;

/* Rank 0: do all tasks, the expensive ones of those at hand first. Other ranks: compute tasks until rank 0 has finished
 * its command. */
int cli_farm_run(const cli_farm *f);

#endif
