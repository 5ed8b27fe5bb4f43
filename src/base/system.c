/* base/system.c -- what the pool needs from the operating system: Linux, macOS, other POSIX systems and Windows.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* for sched_getaffinity */
#endif
#include "system.h"
#include "integer.h"
#include <relpos/relpos.h>
#ifdef _WIN32
#include <windows.h>

long long rpi_this_process(void)
{
    return (long long)GetCurrentProcessId(); /* Windows has no fork */
}

static long processors(void)
{
    SYSTEM_INFO system;
    GetSystemInfo(&system);
    return (long)system.dwNumberOfProcessors;
}
#else
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* A process is identified by its process id and the number of forks that led to it, because in a new PID namespace a
 * child may have the process id of its parent. A process created by the bare system call, which runs no fork handlers,
 * is identified by its process id only. */
static atomic_uint forks;
static pthread_once_t forks_once = PTHREAD_ONCE_INIT;

static void count_fork(void)
{
    atomic_fetch_add(&forks, 1);
}

static void count_forks(void)
{
    pthread_atfork(NULL, NULL, count_fork);
}

long long rpi_this_process(void)
{
    pthread_once(&forks_once, count_forks);
    return (long long)(atomic_load(&forks) & INT32_MAX) << 32 | (uint32_t)getpid();
}

#ifdef __linux__
/* Return n, or less if a control group may use less time than n processors have: cpu.max of version 2 has
 * "QUOTA PERIOD" or "max PERIOD"; version 1 has a file for each, and -1 for no limit. */
static long within_quota(const char *folder, long n)
{
    static const char *const files[2][2] = {{"cpu.max", NULL}, {"cpu.cfs_quota_us", "cpu.cfs_period_us"}};
    for (int version = 0; version < 2; version++) {
        long long number[2] = {0, 0};
        int found = 0;
        for (int x = 0; x < 2 && files[version][x]; x++) {
            char name[512];
            const int length = snprintf(name, sizeof name, "%s/%s", folder, files[version][x]);
            FILE *f = length < (int)sizeof name ? fopen(name, "re") : NULL;
            if (!f)
                break;
            found += fscanf(f, found ? "%lld" : "%lld %lld", &number[found], &number[1]);
            fclose(f);
        }
        if (found == 2 && number[0] > 0 && number[1] > 0)
            n = (long)rpi_min(n, rpi_max(1, (number[0] + number[1] - 1) / number[1]));
    }
    return n;
}

/* Return n, or less if the control group of this process, or one that contains it, has a lower limit. A line of
 * /proc/self/cgroup is NUMBER:CONTROLLERS:PATH, without controllers in version 2. A container may see no group except
 * its own, which is then the root. */
static long in_groups(long n)
{
    static const char *const roots[] = {"/sys/fs/cgroup", "/sys/fs/cgroup/cpu"};
    char line[300], folder[400];
    for (int version = 0; version < 2; version++)
        n = within_quota(roots[version], n);
    FILE *f = fopen("/proc/self/cgroup", "re");
    while (f && fgets(line, sizeof line, f)) {
        line[strcspn(line, "\n")] = 0;
        char *controllers = strchr(line, ':');
        char *path = controllers ? strchr(controllers + 1, ':') : NULL;
        if (!path)
            continue;
        *path++ = 0;
        const bool v1 = strcmp(controllers, ":cpu") == 0 || strcmp(controllers, ":cpu,cpuacct") == 0 ||
                        strcmp(controllers, ":cpuacct,cpu") == 0;
        if (!v1 && strcmp(controllers, ":") != 0)
            continue;
        for (char *end; (end = strrchr(path, '/')) != NULL && end[1]; *end = 0) {
            snprintf(folder, sizeof folder, "%s%s", roots[v1], path);
            n = within_quota(folder, n);
            if (end == path)
                break;
        }
    }
    if (f)
        fclose(f);
    return n;
}
#endif

static long processors(void)
{
    long n = sysconf(_SC_NPROCESSORS_ONLN);
#ifdef __linux__
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) == 0)
        n = CPU_COUNT(&set);
    n = in_groups(n);
#endif
    return n;
}
#endif

int32_t rpi_usable_processors(void)
{
    return (int32_t)rpi_clamp(processors(), 1, RP_MAX_THREADS);
}
