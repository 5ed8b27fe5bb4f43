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
    char line[256], *end;
    int64_t found = INT64_MAX;
    FILE *f = fopen(path, "re");
    while (f != NULL && found == INT64_MAX && fgets(line, sizeof line, f) != NULL) {
        if (strncmp(line, label, strlen(label)) != 0)
            continue;
        const long long x = strtoll(line + strlen(label), &end, 10);
        found = end != line + strlen(label) && x >= 0 && x < INT64_MAX / unit ? (int64_t)x * unit : INT64_MAX;
    }
    if (f != NULL)
        fclose(f);
    return found;
}

/* The files of a control group, of versions 2 and 1. */
static const struct {
    const char *root, *max, *used;
} versions[] = {{"/sys/fs/cgroup", "memory.max", "memory.current"},
                {"/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes"}};

/* Return bytes, or less if the control group in the folder root + path allows less. `now`: only what is free. */
static int64_t within_group(size_t version, const char *path, bool now, int64_t bytes)
{
    char max[512], used[512];
    const char *root = versions[version].root;
    if (snprintf(max, sizeof max, "%s%s/%s", root, path, versions[version].max) >= (int)sizeof max ||
        snprintf(used, sizeof used, "%s%s/%s", root, path, versions[version].used) >= (int)sizeof used)
        return bytes;
    const int64_t most = number_in(max, "", 1), taken = now ? number_in(used, "", 1) : 0;
    return most < INT64_MAX && taken < INT64_MAX ? smaller(bytes, most > taken ? most - taken : 0) : bytes;
}

/* Return bytes, or less if the control group of this process, or one that contains it, allows less. A line of
 * /proc/self/cgroup is NUMBER:CONTROLLERS:PATH, without controllers in version 2. A container may see no group except
 * its own, which is then the root. */
static int64_t within_groups(bool now, int64_t bytes)
{
    char line[400];
    for (size_t version = 0; version < sizeof versions / sizeof *versions; version++)
        bytes = within_group(version, "", now, bytes);
    FILE *f = fopen("/proc/self/cgroup", "re");
    while (f != NULL && fgets(line, sizeof line, f) != NULL) {
        line[strcspn(line, "\n")] = 0;
        char *controllers = strchr(line, ':');
        char *path = controllers != NULL ? strchr(controllers + 1, ':') : NULL;
        if (path == NULL)
            continue;
        *path++ = 0;
        const bool v1 = strcmp(controllers, ":memory") == 0;
        if (!v1 && strcmp(controllers, ":") != 0)
            continue;
        for (char *end; (end = strrchr(path, '/')) != NULL && end[1] != 0; *end = 0)
            bytes = within_group(v1, path, now, bytes);
    }
    if (f != NULL)
        fclose(f);
    return bytes;
}

int64_t cli_memory(bool now)
{
    struct rlimit limit;
    int64_t bytes = within_groups(now, number_in("/proc/meminfo", now ? "MemAvailable:" : "MemTotal:", 1024));
    if (getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur < (rlim_t)bytes)
        bytes = (int64_t)limit.rlim_cur;
    return bytes;
}
