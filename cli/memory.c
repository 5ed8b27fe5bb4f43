/* memory.c -- the memory that this process may use.
 * SPDX-License-Identifier: Apache-2.0 */
#include "cli/cli.h"
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

static int64_t smaller(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* Return the number after a label at the beginning of a line, in units of `unit` bytes; INT64_MAX if there is none
 * ("max" means unlimited). */
static int64_t number_in(const char *path, const char *label, int64_t unit)
{
    char line[256];
    int64_t found = INT64_MAX;
    FILE *f = fopen(path, "re");
    while (f != NULL && found == INT64_MAX && fgets(line, sizeof line, f) != NULL) {
        const long long x = strncmp(line, label, strlen(label)) == 0 ? strtoll(line + strlen(label), NULL, 10) : 0;
        found = x > 0 && x < INT64_MAX / unit ? (int64_t)x * unit : INT64_MAX;
    }
    if (f != NULL)
        fclose(f);
    return found;
}

int64_t cli_memory(bool now)
{
    static const struct {
        const char *max, *used;
    } groups[] = {{"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current"}, /* version 2 */
                  {"/sys/fs/cgroup/memory/memory.limit_in_bytes", "/sys/fs/cgroup/memory/memory.usage_in_bytes"}};
    struct rlimit limit;
    int64_t bytes = number_in("/proc/meminfo", now ? "MemAvailable:" : "MemTotal:", 1024);
    for (size_t k = 0; k < sizeof groups / sizeof *groups; k++) {
        const int64_t max = number_in(groups[k].max, "", 1), used = now ? number_in(groups[k].used, "", 1) : 0;
        if (max < INT64_MAX && used < INT64_MAX)
            bytes = smaller(bytes, max > used ? max - used : 0);
    }
    if (getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur < (rlim_t)bytes)
        bytes = (int64_t)limit.rlim_cur;
    return bytes;
}
