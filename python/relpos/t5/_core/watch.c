/* watch.c -- a call of the library without the GIL, and its callbacks: progress, tokens, and Ctrl-C. A status of the
 * library becomes an exception.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* syscall */
#endif
#include "t5_core.h"
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

/* Raise the last error of relpos_t5 on this thread. Call this before the library is called again. Returns NULL. */
void *raise_error(rp_status status, PyObject *refused)
{
    return raise_line(status, refused, rp_t5_last_error());
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

/* Return 1 to end a call: the flag is set, or a signal's handler raised an exception. */
int is_cancelled(void *context)
{
    watch *w = context;
    return (w->flag.obj && rp_t5_is_set(w->flag.buf)) || on_progress(w, 0);
}

/* Pass a token to the caller's function. Return 1 to end the call. */
int on_token(void *context, int64_t source, int32_t index, int32_t token)
{
    watch *w = context;
    if (w->raised)
        return 1;
    PyEval_RestoreThread(w->thread);
    PyObject *answer = PyObject_CallFunction(w->on_token, "Lii", (long long)source, (int)index, (int)token);
    const int end = answer ? PyObject_IsTrue(answer) : -1;
    Py_XDECREF(answer);
    w->raised = end < 0;
    w->thread = PyEval_SaveThread();
    return end != 0;
}
