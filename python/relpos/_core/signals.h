/* signals.h -- what the callbacks of both extension modules share: when a call handles signals such as Ctrl-C, and how
 * it reports progress. Include <Python.h> first.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef RELPOS_SIGNALS_H
#define RELPOS_SIGNALS_H

#include <stdbool.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* Seconds between checks for signals. */
#define SIGNALS_EVERY 0.05

/* Return true in the main thread of the process, the only thread in which Python handles signals. */
static inline bool on_main_thread(void)
{
    return syscall(SYS_gettid) == getpid();
}

/* Return true at most every SIGNALS_EVERY seconds. *next is the time of the next check; 0 before the first call. */
static inline bool signals_due(double *next)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    const double at = (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
    const bool due = *next != 0 && at >= *next;
    if (*next == 0 || due)
        *next = at + SIGNALS_EVERY;
    return due;
}

/* Call the caller's progress function with the fraction done. Returns 0, or -1 with the error that it raised. */
static inline int report_progress(PyObject *progress, double fraction)
{
    PyObject *number = PyFloat_FromDouble(fraction);
    PyObject *answer = number ? PyObject_CallFunctionObjArgs(progress, number, NULL) : NULL;
    Py_XDECREF(number);
    Py_XDECREF(answer);
    return answer ? 0 : -1;
}

#endif
