/* bus_error.c -- on SIGBUS, prints which mapped file cannot be read, removes temporary files and ends the program. The
 * kernel sends the signal when a model's file became shorter after it was mapped, or when its disk fails. The handler
 * finds the files in /proc, and calls only functions that are async-signal-safe.
 * SPDX-License-Identifier: Apache-2.0 */
#include "cli/cli.h"
#include "cli/team.h"
#include "io/formats.h"
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

/* Return the number in the given base (10 or 16) at *at, and move *at after it. */
static uint64_t number_at(const char **at, unsigned base)
{
    uint64_t n = 0;
    for (;; ++*at) {
        const char c = **at;
        const unsigned digit = c >= '0' && c <= '9'   ? (unsigned)(c - '0')
                               : c >= 'a' && c <= 'f' ? (unsigned)(c - 'a') + 10
                                                      : 16;
        if (digit >= base)
            return n;
        n = n * base + digit;
    }
}

/* Return the path of the file that is mapped at an address, or NULL. A line of /proc/self/maps is
 *
 *     START-END PERMISSIONS OFFSET DEVICE INODE      PATH */
static char *mapped_file(uintptr_t address)
{
    static char lines[2 * PATH_MAX];
    size_t n = 0;
    const int fd = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
    for (ssize_t got; fd >= 0 && (got = read(fd, lines + n, sizeof lines - 1 - n)) > 0;) {
        char *line = lines, *end;
        n += (size_t)got;
        lines[n] = 0;
        for (; (end = strchr(line, '\n')) != NULL; line = end + 1) {
            const char *at = line;
            const uint64_t from = number_at(&at, 16), to = *at == '-' ? (++at, number_at(&at, 16)) : 0;
            char *path = memchr(line, '/', (size_t)(end - line));
            if (from <= address && address < to && path != NULL) {
                *end = 0;
                close(fd);
                return path;
            }
        }
        n -= (size_t)(line - lines);
        memmove(lines, line, n);
    }
    if (fd >= 0)
        close(fd);
    return NULL;
}

/* Remove the temporary files that this process has open. Their names are in models/io/temporary.c. */
static void remove_temporary(void)
{
    static const char start[] = ".relpos-", end[] = ".tmp";
    static char path[PATH_MAX];
    _Alignas(struct dirent64) static char list[2048];
    const int folder = open("/proc/self/fd", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    for (ssize_t n; folder >= 0 && (n = getdents64(folder, list, sizeof list)) > 0;)
        for (const struct dirent64 *entry = (void *)list; (char *)entry < list + n;
             entry = (void *)((char *)(uintptr_t)entry + entry->d_reclen)) {
            const char *digits = entry->d_name;
            const ssize_t length = readlinkat(folder, digits, path, sizeof path - 1);
            if (length <= 0)
                continue;
            path[length] = 0;
            const char *name = strrchr(path, '/');
            if (name == NULL || strncmp(++name, start, sizeof start - 1) != 0 || strlen(name) < sizeof end ||
                strcmp(name + strlen(name) - (sizeof end - 1), end) != 0)
                continue;
            name = strchr(name + sizeof start - 1, '-'); /* .relpos-HASH-PROCESS-… */
            if (name != NULL && (++name, number_at(&name, 10)) == (uint64_t)getpid())
                io_remove_temporary((int)number_at(&digits, 10), path);
        }
    if (folder >= 0)
        close(folder);
}

static void on_bus_error(int number, siginfo_t *info, void *context)
{
    static volatile int busy;
    (void)context;
    while (__atomic_exchange_n(&busy, 1, __ATOMIC_SEQ_CST) != 0) /* another thread ends the program */
        pause();
    char *path = info->si_code > 0 ? mapped_file((uintptr_t)info->si_addr) : NULL;
    if (path == NULL) {
        signal(number, SIG_DFL); /* not a file's: end as without a handler */
        raise(number);
        return;
    }
    if (cli_team_rank() > 0)
        sleep(2); /* if rank 0 has the same error, mpirun ends this process */
    static char text[PATH_MAX + 256];
    char *to = stpcpy(text, "relpos: ");
    for (const char *c = path; *c != 0; c++) /* without control characters, as io_safe */
        *to++ = (unsigned char)*c < 0x20 || *c == 0x7f ? '?' : *c;
    to = stpcpy(to, ": it became shorter while it was in use, or its disk failed (start again, and replace files with "
                    "mv instead of writing to them)\n");
    for (const char *from = text; from < to;) {
        const ssize_t n = write(STDERR_FILENO, from, (size_t)(to - from));
        if (n <= 0)
            break;
        from += n;
    }
    remove_temporary();
    _exit(CLI_FAILED);
}

void cli_catch_bus_errors(void)
{
    struct sigaction action = {.sa_sigaction = on_bus_error, .sa_flags = SA_SIGINFO};
    sigfillset(&action.sa_mask);
    sigaction(SIGBUS, &action, NULL);
}
