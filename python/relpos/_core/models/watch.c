/* watch.c -- a call of the library without the GIL, and its callbacks: progress and Ctrl-C. A status of the
 * library becomes an exception.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* syscall */
#endif
#include "models.h"
#include "python/relpos/_core/signals.h"

/* Convert a text of n bytes to a str; bytes that are not UTF-8 become U+FFFD. */
PyObject *text_of(const char *utf8, int64_t n)
{
    return PyUnicode_DecodeUTF8(utf8, (Py_ssize_t)n, "replace");
}

/* Raise the exception of a status: `refused`, unless memory was lacking or the call was cancelled. Returns NULL. */
void *raise_line(rp_status status, PyObject *refused, const char *line)
{
    PyObject *text = text_of(line, (int64_t)strlen(line));
    PyErr_SetObject(status == RP_E_NOMEM       ? PyExc_MemoryError
                    : status == RP_E_CANCELLED ? PyExc_InterruptedError
                                               : refused,
                    text);
    Py_XDECREF(text);
    return NULL;
}

/* Raise the last error of the library on this thread. Call this before the library is called again. Returns NULL. */
void *raise_error(rp_status status, PyObject *refused)
{
    return raise_line(status, refused, last_error());
}

/* Release the GIL. The library calls the callbacks on this thread; progress may be None. */
void watch_begin(watch *w, PyObject *progress)
{
    w->progress = progress == Py_None ? NULL : progress;
    w->main = on_main_thread();
    w->thread = PyEval_SaveThread();
}

/* Take the GIL again. Returns 0, or -1 with an error set: that of a callback, or that of the status. */
int watch_end(watch *w, rp_status status)
{
    PyEval_RestoreThread(w->thread);
    if (w->raised)
        return -1;
    return status == RP_OK ? 0 : (raise_error(status, PyExc_ValueError), -1);
}

/* Report progress and handle signals: without a progress function, at most every SIGNALS_EVERY seconds and in the main
 * thread. An rp_progress callback. */
int on_progress(void *context, double fraction)
{
    watch *w = context;
    if (w->raised || !(w->progress || (w->main && signals_due(&w->next))))
        return w->raised;
    PyEval_RestoreThread(w->thread);
    w->raised = PyErr_CheckSignals() != 0 || (w->progress && report_progress(w->progress, fraction) != 0);
    w->thread = PyEval_SaveThread();
    return w->raised;
}
