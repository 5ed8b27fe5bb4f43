/* team_errors.c -- errors of a command that runs over several processes: rank 0 prints one line, and the other
 * processes keep theirs, which team.c sends to rank 0.
 * SPDX-License-Identifier: Apache-2.0 */
#include "cli/team.h"
#include <pthread.h>

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER; /* of all variables */
static bool in_team;
static int32_t own_rank;
static char kept[2048];

void cli_errors_of_rank(int32_t rank)
{
    pthread_mutex_lock(&mutex);
    in_team = true;
    own_rank = rank;
    pthread_mutex_unlock(&mutex);
}

bool cli_keep_error(int code, const char *text)
{
    pthread_mutex_lock(&mutex);
    const bool error = code != CLI_OK, first = kept[0] == 0, keep = in_team && error && (own_rank != 0 || !first);
    if (in_team && error && first)
        snprintf(kept, sizeof kept, "%s", text);
    pthread_mutex_unlock(&mutex);
    return keep;
}

const char *cli_kept_error(void)
{
    return kept;
}
