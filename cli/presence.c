/* presence.c -- tells which processes of an mpirun or srun have begun on this machine, when MPI waits for one that has
 * not. MPI does not tell.
 *
 * Each process binds a name in the abstract namespace of Unix sockets, which has the job and the rank. No file remains,
 * and the kernel frees the name when the process ends. Linux has this namespace; elsewhere nothing is told.
 * SPDX-License-Identifier: Apache-2.0 */
#include "cli/team.h"
#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum { MAX_RANKS = 4096 }; /* that are looked for */

/* Write what tells this job from others to `text`; return false if the launcher does not say. */
static bool name_job(char text[32])
{
    const char *pmix = getenv("PMIX_NAMESPACE"), *job = getenv("SLURM_JOB_ID"), *step = getenv("SLURM_STEP_ID");
    const char *parts[] = {pmix != NULL ? pmix : job, pmix == NULL && step != NULL ? step : ""};
    uint64_t hash = 14695981039346656037U; /* FNV-1a, because names of jobs may be longer than a socket's */
    for (int k = 0; k < 2 && parts[0] != NULL; k++)
        for (size_t n = 0; n <= strlen(parts[k]); n++)
            hash = (hash ^ (unsigned char)parts[k][n]) * 1099511628211U;
    snprintf(text, 32, "%016" PRIx64, hash);
    return parts[0] != NULL;
}

/* Bind the name of a rank to a new socket, or connect the socket to it. Return the socket; -1 if this fails, -2 without
 * such sockets or the name of the job. */
static int open_name(long rank, bool binds)
{
#ifdef __linux__
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    char job[32];
    if (!name_job(job))
        return -2;
    const int n = snprintf(a.sun_path + 1, sizeof a.sun_path - 1, "relpos/%ld/%s/%ld", (long)getuid(), job, rank),
              one = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    const socklen_t size = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n);
    if (one < 0)
        return -2;
    const struct sockaddr *at = (const struct sockaddr *)&a;
    if ((binds ? bind(one, at, size) : connect(one, at, size)) == 0)
        return one;
    close(one);
    return -1;
#else
    (void)rank, (void)binds;
    return -2;
#endif
}

int cli_presence_begin(long rank)
{
    return open_name(rank, true);
}

/* Return the number of processes that the launcher started on this machine, or 0 if it does not say. */
static long started_here(long ranks)
{
    static const char *const known[] = {"OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS"};
    const char *nodes = getenv("SLURM_STEP_NUM_NODES");
    for (size_t k = 0; k < sizeof known / sizeof *known; k++)
        if (getenv(known[k]) != NULL)
            return strtol(getenv(known[k]), NULL, 10);
    return nodes != NULL && strtol(nodes, NULL, 10) == 1 ? ranks : 0;
}

/* Append a number to a list such as "1, 2". The list ends with "..." when it is full. */
static void append_number(char list[128], long n)
{
    const size_t used = strlen(list);
    if (used < 100)
        snprintf(list + used, 128 - used, "%s%ld", used > 0 ? ", " : "", n);
    else if (list[used - 1] != '.')
        snprintf(list + used, 128 - used, " ...");
}

bool cli_presence_list(const char *launcher, long rank, long ranks, char *text, size_t size)
{
    char here[128] = "", absent[128] = "", host[64] = "";
    long present = 0, lowest = ranks;
    gethostname(host, sizeof host - 1);
    for (long k = 0; k < ranks && ranks <= MAX_RANKS; k++) {
        const int other = open_name(k, false);
        if (other == -2 || (other < 0 && k == rank)) /* this system or sandbox has no such names */
            return true;
        if (other >= 0)
            close(other);
        present += other >= 0;
        lowest = other >= 0 && k < lowest ? k : lowest;
        append_number(other >= 0 ? here : absent, k);
    }
    const long local = started_here(ranks);
    if (present == 0)
        return true;
    if (present == ranks)
        snprintf(text, size, "all %ld processes that %s started have begun", ranks, launcher);
    else if (local == ranks)
        snprintf(text, size, "rank%s %s of the %ld processes that %s started on %s %s not begun",
                 ranks - present > 1 ? "s" : "", absent, ranks, launcher, host, ranks - present > 1 ? "have" : "has");
    else
        snprintf(text, size, "of the %ld processes that %s started, rank%s %s %s begun on %s%s", ranks, launcher,
                 present > 1 ? "s" : "", here, present > 1 ? "have" : "has", host,
                 local == present ? ", so no missing one is on this machine" : "");
    return lowest == rank;
}
