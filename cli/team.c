/* team.c -- finds out whether mpirun started this process, loads librelpos_mpi, and checks that all processes compute
 * the same thing. The program does not link MPI.
 * SPDX-License-Identifier: Apache-2.0 */
#include "cli/progress.h"
#include "cli/team.h"
#include <relpos/mpi.h>
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#define TEXT_OF(x)  #x
#define VALUE_OF(x) TEXT_OF(x)
#define LIBRARY     "librelpos_mpi.so." VALUE_OF(RP_VERSION_MAJOR) "." VALUE_OF(RP_VERSION_MINOR)
enum { SILENCE = 20 }; /* default of RELPOS_MPI_SILENCE, in seconds */

static const rp_mpi_calls *calls; /* NULL until the library is loaded */
static rp_mpi_team *team;         /* NULL: no team */

/* What must be equal in all processes. */
enum { VERSION, ARGUMENTS, SETS, FACTS };
static char own[FACTS][4096];
static const cli_team_fact facts[FACTS] = {
    [VERSION] = {"version", "install the same version of relpos on all machines", own[VERSION]},
    [ARGUMENTS] = {"arguments", "give all processes the same arguments, in the same order", own[ARGUMENTS]},
    [SETS] = {"instruction sets", "results depend on them; use machines of one kind, or hide some with RELPOS_HIDE_ISA",
              own[SETS]},
};

/* ------------------------------------------------------------------------------------------------ starting */

/* Return the number of processes that a launcher started together with this one; 1 if there is no launcher. *launcher
 * receives its name, and *rank the rank that it gave to this process. */
static long launched(const char **launcher, long *rank)
{
    static const struct {
        const char *name, *size, *rank;
    } known[] = {
        {"mpirun", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK"}, /* Open MPI */
        {"mpiexec", "PMI_SIZE", "PMI_RANK"},                        /* MPICH, Intel MPI, and srun with PMI */
        {"srun", "SLURM_STEP_NUM_TASKS", "SLURM_PROCID"},
    };
    const char *off = getenv("RELPOS_MPI");
    for (size_t k = 0; k < sizeof known / sizeof *known && !(off != NULL && strcasecmp(off, "off") == 0); k++) {
        const char *size = getenv(known[k].size), *number = getenv(known[k].rank);
        const long n = size != NULL ? strtol(size, NULL, 10) : 0;
        if (n > 1) {
            *launcher = known[k].name;
            *rank = number != NULL ? strtol(number, NULL, 10) : 0;
            return n;
        }
    }
    return 1;
}

/* Load the library from the folder of the program, or as the dynamic linker finds it. Return NULL, and the reason, on
 * failure. */
static const rp_mpi_calls *load(char why[RP_MPI_ERROR_MAX])
{
    char path[PATH_MAX] = "";
    const ssize_t n = readlink("/proc/self/exe", path, sizeof path - sizeof LIBRARY - 1);
    char *slash = n > 0 ? strrchr(path, '/') : NULL;
    void *library = NULL;
    const rp_mpi_calls *(*get)(void) = NULL;
    if (slash != NULL && strcpy(slash + 1, LIBRARY) && access(path, F_OK) == 0)
        library = dlopen(path, RTLD_NOW | RTLD_GLOBAL); /* global: plugins of MPI use its functions */
    else
        library = dlopen(LIBRARY, RTLD_NOW | RTLD_GLOBAL);
    void *found = library != NULL ? dlsym(library, "rp_mpi_team_calls") : NULL;
    memcpy(&get, &found, sizeof get); /* ISO C cannot cast void * to a function */
    const rp_mpi_calls *made = get != NULL ? get() : NULL;
    if (made == NULL)
        snprintf(why, RP_MPI_ERROR_MAX, "%s", dlerror());
    else if (strcmp(made->version, rp_version()) == 0 && made->size == sizeof *made)
        return made;
    else
        snprintf(why, RP_MPI_ERROR_MAX, "it is version %s, but this program is %s", made->version, rp_version());
    return NULL;
}

/* Wait until rank 0 has printed the error that all processes have: the launcher ends the others when one has ended. */
static void let_rank_0_print(long rank)
{
    if (rank > 0)
        sleep(2);
}

int cli_team_alone(const cli_command *command)
{
    const char *launcher = NULL;
    long rank = 0;
    const long n = team == NULL ? launched(&launcher, &rank) : 1;
    if (n <= 1)
        return CLI_OK;
    let_rank_0_print(rank);
    if (rank > 0)
        return CLI_USAGE;
    return cli_error(CLI_USAGE,
                     "%s: %s started %ld processes, but this command works in one (run it without %s, or set "
                     "RELPOS_MPI=off to let each process do the same)",
                     command->name, launcher, n, launcher);
}

bool cli_team_prints(void)
{
    const char *launcher = NULL;
    long rank = 0;
    launched(&launcher, &rank);
    return rank == 0;
}

static int silence(double *seconds)
{
    const char *text = getenv("RELPOS_MPI_SILENCE");
    int64_t n = SILENCE;
    const int code = text != NULL && *text != 0 ? cli_integer("RELPOS_MPI_SILENCE", text, 3, 86400, &n) : CLI_OK;
    *seconds = (double)n;
    return code;
}

/* Report that the processes could not be joined, and which of them have begun. */
static int not_joined(const char *launcher, long rank, long ranks, const char *why)
{
    char begun[320] = "";
    const bool first = cli_presence_list(launcher, rank, ranks, begun, sizeof begun);
    if (!first)
        sleep(3); /* the first process of this machine prints the same, and then the launcher ends this one */
    const int code = cli_error(CLI_FAILED, "%s%s%s", begun, begun[0] != 0 ? ": " : "", why);
    if (first)
        sleep(1); /* so that those that notice it a little later see this process */
    return code;
}

/* Join the other processes, if there are any. */
static int join(void)
{
    const char *launcher = NULL;
    char why[RP_MPI_ERROR_MAX] = "";
    long rank = 0;
    double seconds;
    const long n = launched(&launcher, &rank);
    int code = n > 1 ? silence(&seconds) : CLI_OK;
    if (n <= 1 || code != CLI_OK)
        return code;
    calls = load(why);
    if (calls == NULL) {
        let_rank_0_print(rank);
        return cli_error(CLI_FAILED,
                         "%s started %ld processes, but %s cannot be used: %s (build relpos where MPI is installed, or "
                         "set RELPOS_MPI=off to let each process work by itself)",
                         launcher, n, LIBRARY, why);
    }
    const int present = cli_presence_begin(rank);
    team = calls->join(seconds, why);
    if (team == NULL)
        return not_joined(launcher, rank, n, why);
    if (present >= 0)
        close(present);
    if (calls->ranks(team) != n) {
        let_rank_0_print(rank);
        return cli_error(
            CLI_FAILED,
            "%s started %ld processes, but MPI connects %d (use the mpirun of the MPI library that " LIBRARY
            " was built with, or srun --mpi=pmix)",
            launcher, n, (int)calls->ranks(team));
    }
    cli_errors_of_rank(calls->rank(team));
    return CLI_OK;
}

int32_t cli_team_rank(void)
{
    return team != NULL ? calls->rank(team) : 0;
}

int32_t cli_team_ranks(void)
{
    return team != NULL ? calls->ranks(team) : 1;
}

int64_t cli_team_threads(void)
{
    const char *threads = getenv("RELPOS_THREADS");
    if (team == NULL || (threads != NULL && *threads != 0))
        return 0;
    const int64_t n = (int64_t)(rp_pool_threads(NULL) * calls->share(team) + 1e-6);
    return n > 0 ? n : 1;
}

/* ------------------------------------------------------------------------------------------------ messages */

typedef struct header {
    int32_t kind, code;
    int64_t id;
} header;

static int send_with_code(int32_t to, header h, const void *data, size_t size)
{
    char *bytes = malloc(sizeof h + size);
    if (bytes != NULL) {
        memcpy(bytes, &h, sizeof h);
        if (size > 0)
            memcpy(bytes + sizeof h, data, size);
    }
    const int sent = bytes != NULL ? calls->send(team, to, bytes, sizeof h + size) : -1;
    free(bytes);
    return sent == 0 ? CLI_OK
                     : cli_error(CLI_FAILED,
                                 "out of memory for a message of %zu bytes (start fewer processes on this "
                                 "machine)",
                                 size);
}

int cli_team_send(int32_t to, cli_team_kind kind, int64_t id, const void *data, size_t size)
{
    return send_with_code(to, (header){(int32_t)kind, 0, id}, data, size);
}

int cli_team_receive(double seconds, cli_team_message *m)
{
    rp_mpi_message got = {0};
    *m = (cli_team_message){0};
    const int result = calls->receive(team, seconds, &got);
    if (result < 0)
        return cli_error(CLI_FAILED, "%s", calls->failure(team));
    if (result == 0)
        return CLI_OK;
    header h = {0};
    if (got.size >= sizeof h)
        memcpy(&h, got.data, sizeof h);
    *m = (cli_team_message){.from = got.from,
                            .kind = (cli_team_kind)h.kind,
                            .code = h.code,
                            .id = h.id,
                            .memory = got.data,
                            .data = (char *)got.data + sizeof h,
                            .size = got.size - sizeof h};
    if (m->kind != TEAM_FAILED)
        return CLI_OK;
    if (!cli_stop_requested()) /* otherwise a signal stops all processes, and the caller says so */
        cli_error(m->code, "rank %d: %.*s", (int)m->from, (int)m->size, (const char *)m->data);
    free(m->memory);
    m->memory = NULL;
    return m->code;
}

/* ------------------------------------------------------------------------------------------------ attention */

/* Print an error of the library. If rank 0 found it, print it in the words of the command line. */
static int refused(const cli_problem *p, rp_status status, const char *error)
{
    const bool mine = strncmp(error, "rank 0: ", 8) == 0 && cli_team_rank() == 0;
    char safe[RP_MPI_ERROR_MAX], words[CLI_WORDS_MAX];
    const char *said =
        mine && status < RP_E_NOMEM ? cli_words_of(calls->last_error_in, p, words) : io_safe(safe, sizeof safe, error);
    return cli_error(CLI_FAILED, "attend: %s (%s)", said,
                     status == RP_E_NOMEM ? "use more processes or shorter sequences" : "see relpos attend --help");
}

int cli_team_plan(const cli_problem *p, rp_mpi_plan **plan)
{
    char error[RP_MPI_ERROR_MAX] = "";
    const rp_status status = calls->plan(team, &p->desc, plan, error);
    return status == RP_OK ? CLI_OK : refused(p, status, error);
}

/* Return the exit code of a call that computed, after printing its error. */
static int ended(const cli_problem *p, rp_status status, const char *error)
{
    if (status != RP_OK && calls->failure(team) != NULL)
        return cli_error(CLI_FAILED, "%s", calls->failure(team));
    return status == RP_OK ? CLI_OK : refused(p, status, error);
}

int cli_team_attend(const cli_problem *p, rp_mpi_plan *plan, const rp_tensors *local)
{
    char error[RP_MPI_ERROR_MAX] = "";
    return ended(p, calls->attend(plan, local, error), error);
}

int cli_team_backward(const cli_problem *p, rp_mpi_plan *plan, const rp_tensors *local, const rp_grads *grads)
{
    char error[RP_MPI_ERROR_MAX] = "";
    return ended(p, calls->backward(plan, local, grads, error), error);
}

uint64_t cli_team_sent(const rp_mpi_plan *plan)
{
    return calls->sent_bytes(plan);
}

void cli_team_free_plan(rp_mpi_plan *plan)
{
    calls->free_plan(plan);
}

int64_t cli_team_rows(int64_t length, int32_t rank, cli_span s[2])
{
    for (int w = 0; w < 2; w++)
        calls->stretch(length, cli_team_ranks(), rank, w, &s[w].from, &s[w].to);
    return s[0].to - s[0].from + s[1].to - s[1].from;
}

/* ------------------------------------------------------------------------------------------------ failures */

int cli_team_check(void)
{
    cli_team_message m = {0};
    const int code = team != NULL ? cli_team_receive(0, &m) : CLI_OK;
    free(m.memory);
    return code;
}

/* ------------------------------------------------------------------------------------------------ agreement */

/* Write the facts of this process. */
static void collect(const cli_command *self, int argc, char **argv)
{
    size_t n = 0;
    snprintf(own[VERSION], sizeof own[VERSION], "%s", rp_version());
    n += (size_t)snprintf(own[ARGUMENTS], sizeof own[ARGUMENTS], "%s", self->name);
    uint64_t sum = 1;
    for (int k = 1; k < argc; k++) {
        sum = io_checksum(sum, argv[k], strlen(argv[k]) + 1);
        if (n < sizeof own[ARGUMENTS])
            n += (size_t)snprintf(own[ARGUMENTS] + n, sizeof own[ARGUMENTS] - n, " %s", argv[k]);
    }
    if (n >= sizeof own[ARGUMENTS]) /* too long to show: compare a checksum */
        snprintf(own[ARGUMENTS], sizeof own[ARGUMENTS], "%d arguments with checksum %016llx", argc - 1,
                 (unsigned long long)sum);
    n = (size_t)snprintf(own[SETS], sizeof own[SETS], "%s of", rp_isa_default());
    for (int k = 0; rp_isa_name(k) != NULL; k++)
        if (rp_isa_found(rp_isa_name(k)) == 1 && n < sizeof own[SETS])
            n += (size_t)snprintf(own[SETS] + n, sizeof own[SETS] - n, " %s", rp_isa_name(k));
}

/* Print that a fact of another process differs, with the first line in which it does. */
static int differs(int32_t rank, const cli_team_fact *f, const char *theirs)
{
    char a[1024], b[1024], line[1024];
    size_t from = 0; /* start of that line */
    for (size_t n = 0; theirs[n] != 0 && theirs[n] == f->text[n]; n++)
        from = theirs[n] == '\n' ? n + 1 : from;
    snprintf(line, sizeof line, "%.*s", (int)strcspn(theirs + from, "\n"), theirs + from);
    io_safe(a, sizeof a, line);
    snprintf(line, sizeof line, "%.*s", (int)strcspn(f->text + from, "\n"), f->text + from);
    io_safe(b, sizeof b, line);
    return cli_error(CLI_FAILED, "rank %d: its %s differ%s from rank 0: \"%s\", not \"%s\" (%s)", (int)rank, f->name,
                     f->name[strlen(f->name) - 1] == 's' ? "" : "s", a, b, f->fix);
}

/* Compare the facts in a message with those of rank 0. */
static int compare(const cli_team_message *m, const cli_team_fact *all, int n)
{
    const char *at = m->data, *end = at + m->size;
    for (int k = 0; k < n; k++) {
        const size_t length = strnlen(at, (size_t)(end - at));
        const bool whole = length < (size_t)(end - at);
        if (!whole || strcmp(at, all[k].text) != 0)
            return differs(m->from, &all[k], whole ? at : "");
        at += length + 1;
    }
    return CLI_OK;
}

/* Send the facts to rank 0. */
static int send_facts(const cli_team_fact *all, int n)
{
    size_t size = 0, used = 0;
    for (int k = 0; k < n; k++)
        size += strlen(all[k].text) + 1;
    char *text = malloc(size);
    for (int k = 0; text != NULL && k < n; k++) {
        strcpy(text + used, all[k].text);
        used += strlen(all[k].text) + 1;
    }
    const int code = text != NULL ? cli_team_send(0, TEAM_FACTS, 0, text, size)
                                  : cli_error(CLI_FAILED, "out of memory for %zu bytes (close other programs)", size);
    free(text);
    return code;
}

int cli_team_agree(const cli_team_fact *more, int n_more)
{
    cli_team_fact all[FACTS + CLI_TEAM_FACTS];
    if (team == NULL)
        return CLI_OK;
    memcpy(all, facts, sizeof facts);
    memcpy(all + FACTS, more, (size_t)n_more * sizeof *more);
    if (cli_team_rank() != 0)
        return send_facts(all, FACTS + n_more);
    int code = CLI_OK;
    for (int32_t left = cli_team_ranks() - 1; left > 0 && code == CLI_OK;) {
        cli_team_message m;
        if (cli_stop_requested())
            return cli_error(CLI_FAILED, "stopped by a signal (start it again; no file was changed)");
        code = cli_team_receive(0.1, &m);
        if (m.kind == TEAM_FACTS && code == CLI_OK) {
            code = compare(&m, all, FACTS + n_more);
            left--;
        }
        free(m.memory);
    }
    return code;
}

/* ------------------------------------------------------------------------------------------------ ending */

void cli_team_settle(int code)
{
    if (team == NULL || code == CLI_OK || cli_team_rank() != 0)
        return;
    fflush(NULL);
    calls->abort(team, code);
}

/* Wait until mpirun ends this process, or rank 0 has died. */
static void await_end(double seconds)
{
    for (double until = cli_seconds() + seconds; cli_seconds() < until && !cli_stop_requested();)
        usleep(50000);
}

/* In a process other than rank 0: report an error to rank 0, which prints it and ends all processes. If rank 0 has
 * died, rank 1 does that. */
static void report(int code)
{
    const char *text = cli_kept_error();
    cli_catch_signals(true);
    if (calls->failure(team) == NULL) {
        send_with_code(0, (header){TEAM_FAILED, code, 0}, text, strlen(text));
        await_end(2 * SILENCE);
    } else if (cli_team_rank() > 1) {
        await_end(3);
    }
    if (!cli_stop_requested())
        fprintf(stderr, "relpos: %s\n", calls->failure(team) != NULL ? calls->failure(team) : text);
    calls->abort(team, code);
}

int cli_team_run(const cli_command *self, int argc, char **argv,
                 int (*run)(const cli_command *self, int argc, char **argv))
{
    int code = join();
    if (code != CLI_OK)
        return code;
    if (team != NULL)
        collect(self, argc, argv);
    code = run(self, argc, argv);
    if (team == NULL)
        return code;
    if (code != CLI_OK && cli_team_rank() != 0)
        report(code);
    cli_team_settle(code);
    for (int32_t k = 1; cli_team_rank() == 0 && k < cli_team_ranks(); k++)
        code = code == CLI_OK ? cli_team_send(k, TEAM_END, 0, NULL, 0) : code;
    if (calls->leave(team) != 0) {
        code = cli_error(CLI_FAILED, "%s", calls->failure(team));
        calls->abort(team, code);
    }
    return code;
}
