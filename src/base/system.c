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

static long processors(void)
{
    long n = sysconf(_SC_NPROCESSORS_ONLN);
#ifdef __linux__
    cpu_set_t set;
    long long quota, period;
    if (sched_getaffinity(0, sizeof set, &set) == 0)
        n = CPU_COUNT(&set);
    FILE *f = fopen("/sys/fs/cgroup/cpu.max", "re");
    if (f) {
        if (fscanf(f, "%lld %lld", &quota, &period) == 2 && quota > 0 && period > 0)
            n = (long)rpi_min(n, rpi_max(1, (quota + period - 1) / period));
        fclose(f);
    }
#endif
    return n;
}
#endif

int32_t rpi_usable_processors(void)
{
    return (int32_t)rpi_clamp(processors(), 1, RP_MAX_THREADS);
}
