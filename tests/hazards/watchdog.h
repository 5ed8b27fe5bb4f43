/* watchdog.h -- aborts a test that hangs, and prints the call in which it hangs. Elapsed time alone is no sign of a
 * hang, since a machine may be slow or stopped. A process counts as hung in two cases: since its last step(), the
 * watchdog has found all of its threads asleep without a context switch watch_limit.looks times in a row, or the
 * process has used more than watch_limit.cpu seconds of processor time. The watchdog allocates no memory, because a
 * test may fork at any moment.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef RELPOS_TESTS_WATCHDOG_H
#define RELPOS_TESTS_WATCHDOG_H

#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* A watched process: the test itself, or a child that it forked. Each process counts its calls separately. */
typedef struct watched {
    atomic_int process, parent; /* process: 0 for an unused entry, -1 for one that is about to be forked */
    atomic_llong calls;
    _Atomic(const char *) call; /* a string literal; it has the same address in a child */
} watched;

enum { WATCHED = 8 };
static watched *watch_list, *watch_self; /* in memory shared by all watched processes */
static const char *watch_test;

static struct {
    long looks, pause_ms; /* number of looks without a running thread that count as a hang; time between looks */
    double cpu;           /* max seconds of processor time without a new call */
} watch_limit = {100, 100, 100};

/* Record that the previous call has ended and that `call`, which may hang, begins. */
static inline void step(const char *call)
{
    if (watch_self) {
        atomic_store(&watch_self->call, call);
        atomic_fetch_add(&watch_self->calls, 1);
    }
}

/* Fork a child. It is watched, and killed when its parent ends. */
static inline pid_t fork_watched(void)
{
    watched *mine = NULL;
    for (int n = 0, free = 0; watch_list && n < WATCHED && !mine; n++, free = 0)
        if (atomic_compare_exchange_strong(&watch_list[n].process, &free, -1))
            mine = &watch_list[n];
    if (mine)
        atomic_store(&mine->parent, (int)getpid());
    const pid_t child = fork();
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        watch_self = mine;
        step("its beginning");
    } else if (mine) {
        atomic_store(&mine->process, child > 0 ? (int)child : 0);
    }
    return child;
}

/* Wait for a watched child. Return true once it has been reaped. */
static inline bool wait_watched(pid_t child, int *how)
{
    const bool ended = child > 0 && waitpid(child, how, 0) == child;
    for (int n = 0; watch_list && n < WATCHED; n++)
        if (atomic_load(&watch_list[n].process) == (int)child)
            atomic_store(&watch_list[n].process, 0);
    return ended;
}

static ssize_t watch_read(const char *path, char *text, size_t size)
{
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    const ssize_t n = fd < 0 ? -1 : read(fd, text, size - 1);
    if (fd >= 0)
        close(fd);
    text[n < 0 ? 0 : n] = 0;
    return n;
}

static long long watch_field(const char *text, const char *name)
{
    const char *at = strstr(text, name);
    return at ? strtoll(at + strlen(name), NULL, 10) : 0;
}

/* Add up the context switches of a process. Return false if one of its threads can run or is stopped, or if its state
 * cannot be read. */
static bool watch_asleep(int process, int self, unsigned long long *switches)
{
    char path[64], text[4096];
    _Alignas(8) char entries[1024];
    bool asleep = true;
    snprintf(path, sizeof path, "/proc/%d/task", process);
    const int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    long n;
    if (fd < 0)
        return false;
    while ((n = syscall(SYS_getdents64, fd, entries, sizeof entries)) > 0)
        for (long at = 0; at < n;) {
            const struct dirent64 *entry = (const void *)(entries + at);
            const int thread = atoi(entry->d_name);
            at += entry->d_reclen;
            if (thread == 0 || thread == self)
                continue;
            snprintf(path, sizeof path, "/proc/%d/task/%d/status", process, thread);
            if (watch_read(path, text, sizeof text) <= 0)
                continue; /* the thread has just ended */
            const char *state = strstr(text, "\nState:\t");
            asleep &= state && (state[8] == 'S' || state[8] == 'Z' || state[8] == 'X');
            *switches += (unsigned long long)(watch_field(text, "\nvoluntary_ctxt_switches:") +
                                              watch_field(text, "\nnonvoluntary_ctxt_switches:") + thread);
        }
    close(fd);
    return asleep && n == 0;
}

/* Return the processor time of a process in seconds. */
static double watch_cpu(int process)
{
    clockid_t clock;
    struct timespec spent = {0, 0};
    if (clock_getcpuclockid(process, &clock) != 0 || clock_gettime(clock, &spent) != 0)
        return 0;
    return (double)spent.tv_sec + 1e-9 * (double)spent.tv_nsec;
}

static void watch_bark(watched *w, const char *how)
{
    dprintf(STDERR_FILENO, "HANG in %s, in or after %s, call %lld of process %d: %s\n", watch_test,
            atomic_load(&w->call), (long long)atomic_load(&w->calls), atomic_load(&w->process), how);
    signal(SIGABRT, SIG_DFL);
    abort();
}

/* Return true if the process has a watched child that it may be waiting for. In this case only the child is watched. */
static bool watch_waits(int process)
{
    bool waits = false;
    for (int n = 0; n < WATCHED; n++)
        waits |= atomic_load(&watch_list[n].process) != 0 && atomic_load(&watch_list[n].parent) == process;
    return waits;
}

static void *watch_main(void *unused)
{
    const int self = (int)syscall(SYS_gettid);
    static struct {
        int process;
        long long calls;
        unsigned long long switches;
        long asleep;
        double cpu;
    } seen[WATCHED];
    for (;;) {
        const struct timespec pause = {watch_limit.pause_ms / 1000, watch_limit.pause_ms % 1000 * 1000000};
        nanosleep(&pause, NULL);
        for (int n = 0; n < WATCHED; n++) {
            watched *w = &watch_list[n];
            const int process = atomic_load(&w->process);
            const long long calls = atomic_load(&w->calls);
            unsigned long long switches = 0;
            if (process <= 0)
                continue;
            const bool asleep = watch_asleep(process, self, &switches);
            const double cpu = watch_cpu(process);
            if (process != seen[n].process || calls != seen[n].calls || watch_waits(process)) {
                seen[n].asleep = 0;
                seen[n].cpu = cpu;
            }
            seen[n].asleep = asleep && switches == seen[n].switches ? seen[n].asleep + 1 : 0;
            seen[n].process = process;
            seen[n].calls = calls;
            seen[n].switches = switches;
            if (seen[n].asleep >= watch_limit.looks)
                watch_bark(w, "every thread sleeps, and none has been woken");
            if (cpu - seen[n].cpu > watch_limit.cpu)
                watch_bark(w, "processor time goes by, and no call ends");
        }
    }
    return unused;
}

/* Start watching this process, which runs the given test. */
static inline void watch(const char *test)
{
    watch_test = test;
    if (!watch_self) {
        pthread_t thread;
        watched *list = mmap(NULL, WATCHED * sizeof *list, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        if (list == MAP_FAILED)
            abort();
        atomic_store(&list[0].process, (int)getpid());
        watch_self = watch_list = list;
        step("its beginning");
        if (pthread_create(&thread, NULL, watch_main, NULL) != 0)
            abort();
        pthread_detach(thread);
    }
    step("its beginning");
}

#endif
