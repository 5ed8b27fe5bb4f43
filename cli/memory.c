/* memory.c -- the memory that this process may use.
 * SPDX-License-Identifier: Apache-2.0 */
#include "cli/cli.h"
#include <inttypes.h>
#include <sys/resource.h>
#include <unistd.h>

static int64_t smaller(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* Return the number in a file, or INT64_MAX if there is none ("max" means unlimited). */
static int64_t number_in(const char *path)
{
    int64_t n = INT64_MAX;
    FILE *f = fopen(path, "re");
    if (f != NULL && (fscanf(f, "%" SCNd64, &n) != 1 || n <= 0))
        n = INT64_MAX;
    if (f != NULL)
        fclose(f);
    return n;
}

int64_t cli_memory(void)
{
    struct rlimit limit;
    const long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
    int64_t bytes = pages > 0 && page > 0 && pages < INT64_MAX / page ? (int64_t)pages * page : INT64_MAX;
    bytes = smaller(bytes, number_in("/sys/fs/cgroup/memory.max"));                   /* version 2 */
    bytes = smaller(bytes, number_in("/sys/fs/cgroup/memory/memory.limit_in_bytes")); /* version 1 */
    if (getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur < (rlim_t)bytes)
        bytes = (int64_t)limit.rlim_cur;
    return bytes;
}
