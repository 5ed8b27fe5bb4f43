/* inject.c -- run a program and make one of its system calls fail, using ptrace, without changing the program. For
 * x86-64.
 *
 *     inject N once|ever|short|kill LOG PROGRAM ARGUMENT...
 *
 * Counts the calls that can fail, starting at the program's entry point, in all its threads and forked children. The
 * N-th such call fails with an error that suits it. With `ever`, all later calls of the same kind fail too. With
 * `short`, a read or write transfers half of its bytes. With `kill`, the program is killed before the N-th call. With N
 * = 0, no call fails.
 *
 * LOG receives the number of calls and the kind of the call that failed, for example "57 write". If none failed, it
 * also lists one call for each code path, the first, as "N HASH"; the hash covers the kind and the first words on the
 * stack that point into the program's code. The exit code is the program's, or 128 + the signal that ended it. Writing
 * to standard error never fails, because the message is checked. A program started by exec is not traced.
 * SPDX-License-Identifier: Apache-2.0 */
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

enum { CANNOT = 77 };

/* The system calls that can fail, with their kinds and errors. */
static const struct call {
    long number;
    const char *kind;
    int error;
} calls[] = {
    {SYS_open, "open", EMFILE},
    {SYS_openat, "open", EMFILE},
    {SYS_read, "read", EIO},
    {SYS_pread64, "read", EIO},
    {SYS_readv, "read", EIO},
    {SYS_write, "write", ENOSPC},
    {SYS_pwrite64, "write", ENOSPC},
    {SYS_writev, "write", ENOSPC},
    {SYS_fsync, "fsync", EIO},
    {SYS_fdatasync, "fsync", EIO},
    {SYS_rename, "rename", EIO},
    {SYS_renameat, "rename", EIO},
    {SYS_renameat2, "rename", EIO},
    {SYS_link, "link", EPERM},
    {SYS_linkat, "link", EPERM},
    {SYS_unlink, "unlink", EACCES},
    {SYS_unlinkat, "unlink", EACCES},
    {SYS_mkdir, "mkdir", EACCES},
    {SYS_mkdirat, "mkdir", EACCES},
    {SYS_rmdir, "rmdir", EACCES},
    {SYS_stat, "stat", EACCES},
    {SYS_lstat, "stat", EACCES},
    {SYS_fstat, "stat", EIO},
    {SYS_newfstatat, "stat", EACCES},
    {SYS_statx, "stat", EACCES},
    {SYS_access, "access", EACCES},
    {SYS_faccessat, "access", EACCES},
    {SYS_faccessat2, "access", EACCES},
    {SYS_readlink, "readlink", EACCES},
    {SYS_readlinkat, "readlink", EACCES},
    {SYS_mmap, "mmap", ENOMEM},
    {SYS_mprotect, "mprotect", ENOMEM},
    {SYS_mremap, "mmap", ENOMEM},
    {SYS_close, "close", EIO},
    {SYS_lseek, "lseek", EINVAL},
    {SYS_ftruncate, "truncate", EIO},
    {SYS_fchmod, "chmod", EPERM},
    {SYS_chmod, "chmod", EPERM},
    {SYS_fchmodat, "chmod", EPERM},
    {SYS_flock, "flock", ENOLCK},
    {SYS_fcntl, "fcntl", EMFILE},
    {SYS_dup, "dup", EMFILE},
    {SYS_getdents64, "getdents", EIO},
    {SYS_getcwd, "getcwd", ENOENT},
    {SYS_pipe2, "pipe", EMFILE},
    {SYS_sched_getaffinity, "affinity", EINVAL},
    {SYS_clone, "clone", EAGAIN},
    {SYS_clone3, "clone", EAGAIN},
    {SYS_execve, "execve", ENOENT},
    {SYS_getrandom, "random", ENOSYS},
};
enum { N_CALLS = sizeof calls / sizeof *calls };

static struct {
    long fails, count;
    bool ever, half, kill;
    pid_t program;
    const struct call *failed;
} run;

/* Threads whose current call must fail, and the error. */
static struct {
    pid_t thread;
    int error;
} pending[1024];

static void set_pending(pid_t thread, int error)
{
    for (size_t n = 0; n < sizeof pending / sizeof *pending; n++)
        if (pending[n].thread == thread || pending[n].thread == 0) {
            pending[n].thread = thread;
            pending[n].error = error;
            return;
        }
}

static int take_pending(pid_t thread)
{
    for (size_t n = 0; n < sizeof pending / sizeof *pending && pending[n].thread != 0; n++)
        if (pending[n].thread == thread) {
            const int error = pending[n].error;
            pending[n].error = 0;
            return error;
        }
    return 0;
}

static _Noreturn void cannot(const char *what)
{
    fprintf(stderr, "inject: %s: %s\n", what, strerror(errno));
    exit(CANNOT);
}

enum { MAX_WAYS = 20000, WORDS = 1024, FRAMES = 6 };
static struct {
    long first;
    uint64_t hash;
} ways[MAX_WAYS];
static int n_ways;

/* Find the code of the program and of its library in /proc/PID/maps. Return the number of address ranges. */
static int find_code(unsigned long range[8][2])
{
    char line[512];
    int n = 0;
    snprintf(line, sizeof line, "/proc/%ld/maps", (long)run.program);
    FILE *maps = fopen(line, "r");
    while (maps != NULL && n < 8 && fgets(line, sizeof line, maps) != NULL) {
        const char *name = strrchr(line, '/');
        if (name != NULL && strstr(name, "relpos") != NULL && strstr(line, " r-xp ") != NULL &&
            sscanf(line, "%lx-%lx", &range[n][0], &range[n][1]) == 2)
            n++;
    }
    if (maps != NULL)
        fclose(maps);
    return n;
}

/* Record the first call of each kind from each place in the code. The hash may include words that earlier calls left on
 * the stack, so some places are recorded more than once. */
static void keep_way(pid_t thread, const struct call *call, unsigned long stack)
{
    static unsigned long range[8][2];
    static int n_ranges;
    unsigned long word[WORDS];
    uint64_t hash = 14695981039346656037U ^ (uint64_t)(call - calls);
    int n = 0, frames = 0;
    if (n_ranges == 0)
        n_ranges = find_code(range);
    struct iovec to = {word, sizeof word}, from = {(void *)stack, sizeof word}; /* NOLINT: an address in the program */
    const ssize_t got = process_vm_readv(thread, &to, 1, &from, 1, 0);
    for (ssize_t x = 0; x < got / (ssize_t)sizeof *word && frames < FRAMES; x++)
        for (int k = 0; k < n_ranges; k++)
            if (word[x] >= range[k][0] && word[x] < range[k][1]) {
                hash = (hash ^ (word[x] - range[k][0])) * 1099511628211U;
                frames++;
            }
    while (n < n_ways && ways[n].hash != hash)
        n++;
    if (n == n_ways && n < MAX_WAYS) {
        ways[n].first = run.count;
        ways[n].hash = hash;
        n_ways = n + 1;
    }
}

/* Handle the start of a system call. */
static void enter(pid_t thread, struct user_regs_struct *regs)
{
    const struct call *call = calls;
    while (call < calls + N_CALLS && call->number != (long)regs->orig_rax)
        call++;
    if (call == calls + N_CALLS || (strcmp(call->kind, "write") == 0 && regs->rdi == STDERR_FILENO))
        return;
    const bool half = strcmp(call->kind, "read") == 0 || strcmp(call->kind, "write") == 0;
    if (run.half && !half)
        return;
    run.count++;
    if (run.fails == 0)
        keep_way(thread, call, regs->rsp);
    if (run.count == run.fails)
        run.failed = call;
    else if (!(run.ever && run.failed != NULL && strcmp(run.failed->kind, call->kind) == 0))
        return;
    if (run.kill) {
        kill(run.program, SIGKILL);
        return;
    }
    if (run.half) {
        if (regs->rdx > 1 && call->number != SYS_writev && call->number != SYS_readv)
            regs->rdx /= 2;
    } else {
        set_pending(thread, call->error);
        if (call->number == SYS_close) /* like Linux, close the descriptor even if close reports an error */
            return;
        regs->orig_rax = (unsigned long long)-1;
    }
    ptrace(PTRACE_SETREGS, thread, NULL, regs);
}

/* Handle a stop before or after a system call. */
static void at_call(pid_t thread)
{
    struct __ptrace_syscall_info info;
    struct user_regs_struct regs;
    if (ptrace(PTRACE_GET_SYSCALL_INFO, thread, sizeof info, &info) <= 0 ||
        ptrace(PTRACE_GETREGS, thread, NULL, &regs) != 0)
        return;
    if (info.op == PTRACE_SYSCALL_INFO_ENTRY) {
        enter(thread, &regs);
    } else if (info.op == PTRACE_SYSCALL_INFO_EXIT) {
        const int error = take_pending(thread);
        if (error != 0) {
            regs.rax = (unsigned long long)-error;
            ptrace(PTRACE_SETREGS, thread, NULL, &regs);
        }
    }
}

/* Run the program up to its entry point, because calls of the dynamic linker before it are not counted. */
static void run_to_entry(pid_t child)
{
    char path[64];
    unsigned long pair[2], entry = 0;
    int status;
    snprintf(path, sizeof path, "/proc/%ld/auxv", (long)child);
    const int fd = open(path, O_RDONLY);
    while (fd >= 0 && read(fd, pair, sizeof pair) == (ssize_t)sizeof pair && pair[0] != AT_NULL)
        if (pair[0] == AT_ENTRY)
            entry = pair[1];
    close(fd);
    errno = 0;
    const long word = ptrace(PTRACE_PEEKTEXT, child, (void *)entry, NULL);
    if (entry == 0 || errno != 0 ||
        ptrace(PTRACE_POKETEXT, child, (void *)entry, (void *)((word & ~0xffL) | 0xcc)) != 0)
        cannot("the program's entry");
    if (ptrace(PTRACE_CONT, child, NULL, NULL) != 0 || waitpid(child, &status, 0) != child || !WIFSTOPPED(status) ||
        WSTOPSIG(status) != SIGTRAP)
        cannot("the way to the program's entry");
    struct user_regs_struct regs;
    ptrace(PTRACE_POKETEXT, child, (void *)entry, (void *)word);
    ptrace(PTRACE_GETREGS, child, NULL, &regs);
    regs.rip = entry;
    ptrace(PTRACE_SETREGS, child, NULL, &regs);
}

int main(int argc, char **argv)
{
    const char *how = argc < 5 ? "" : argv[2];
    run.ever = strcmp(how, "ever") == 0;
    run.half = strcmp(how, "short") == 0;
    run.kill = strcmp(how, "kill") == 0;
    if (!run.ever && !run.half && !run.kill && strcmp(how, "once") != 0) {
        fprintf(stderr, "usage: inject N once|ever|short|kill LOG PROGRAM ARGUMENT...\n");
        return 2;
    }
    run.fails = atol(argv[1]);
    const pid_t child = run.program = fork();
    int status, code = CANNOT;
    if (child == 0) {
        if (ptrace(PTRACE_TRACEME, 0, NULL, NULL) != 0)
            cannot("ptrace");
        execvp(argv[4], argv + 4);
        cannot(argv[4]);
    }
    if (child < 0 || waitpid(child, &status, 0) != child || !WIFSTOPPED(status))
        return CANNOT;
    run_to_entry(child);
    if (ptrace(PTRACE_SETOPTIONS, child, NULL,
               PTRACE_O_EXITKILL | PTRACE_O_TRACESYSGOOD | PTRACE_O_TRACECLONE | PTRACE_O_TRACEFORK |
                   PTRACE_O_TRACEVFORK | PTRACE_O_TRACEEXEC) != 0)
        cannot("ptrace");
    ptrace(PTRACE_SYSCALL, child, NULL, NULL);
    for (pid_t thread; (thread = waitpid(-1, &status, __WALL)) > 0;) {
        if (WIFEXITED(status) || WIFSIGNALED(status)) {
            if (thread == child)
                code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
            continue;
        }
        int signal = WSTOPSIG(status);
        const int event = status >> 16;
        if (event == PTRACE_EVENT_EXEC) {
            ptrace(PTRACE_DETACH, thread, NULL, NULL);
            continue;
        }
        if (signal == (SIGTRAP | 0x80))
            at_call(thread);
        if (signal == (SIGTRAP | 0x80) || event != 0 || signal == SIGSTOP) /* a new thread stops with SIGSTOP */
            signal = 0;
        ptrace(PTRACE_SYSCALL, thread, NULL, (void *)(long)signal);
    }
    FILE *log = fopen(argv[3], "w");
    if (log == NULL || fprintf(log, "%ld %s\n", run.count, run.failed != NULL ? run.failed->kind : "none") < 0)
        cannot(argv[3]);
    for (int n = 0; n < n_ways; n++)
        fprintf(log, "%ld %llx\n", ways[n].first, (unsigned long long)ways[n].hash);
    if (fclose(log) != 0)
        cannot(argv[3]);
    return code;
}
