/* stack.c -- runs a command on a stack of its own, if that of the process is limited (ulimit -s) to less than commands
 * need.
 * SPDX-License-Identifier: Apache-2.0 */
#include "cli/cli.h"
#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>

/* Bytes of stack: lab sweep needs about 300 KB, the library 32 KB. */
#define ENOUGH ((size_t)1 << 20)

typedef struct waiting_command {
    const cli_command *command;
    int argc;
    char **argv;
    int code;
} waiting_command;

static void *run_it(void *context)
{
    waiting_command *w = context;
    w->code = w->command->run(w->command, w->argc, w->argv);
    return NULL;
}

int cli_run(const cli_command *command, int argc, char **argv)
{
    waiting_command w = {command, argc, argv, CLI_FAILED};
    struct rlimit limit;
    pthread_attr_t attributes;
    pthread_t thread;
    bool started = false;
    if (getrlimit(RLIMIT_STACK, &limit) == 0 && limit.rlim_cur < ENOUGH && pthread_attr_init(&attributes) == 0) {
        started = pthread_attr_setstacksize(&attributes, ENOUGH) == 0 &&
                  pthread_create(&thread, &attributes, run_it, &w) == 0;
        pthread_attr_destroy(&attributes);
    }
    if (!started) {
        run_it(&w);
        return w.code;
    }
    sigset_t all; /* the thread of the command gets the signals, so they interrupt its system calls */
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, NULL);
    pthread_join(thread, NULL);
    return w.code;
}
