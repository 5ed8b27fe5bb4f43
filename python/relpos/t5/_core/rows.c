/* rows.c -- sequences of tokens from arrays of Python, read in place.
 * SPDX-License-Identifier: Apache-2.0 */
#include "t5_core.h"

/* Get the tokens of one sequence, an array of int32. Release the view after the call. */
int take_row(PyObject *object, Py_buffer *view, rp_t5_tokens *row)
{
    if (take_numbers(object, false, sizeof(int32_t), -1, view) != 0)
        return -1;
    row->tokens = view->buf;
    row->n = view->len / (Py_ssize_t)sizeof(int32_t);
    return 0;
}

/* Get the tokens of a list or tuple of arrays. Call release_rows after the call, also after an error. */
int take_rows(PyObject *sequence, rows *r)
{
    memset(r, 0, sizeof *r);
    const Py_ssize_t n = PySequence_Size(sequence);
    if (n < 0)
        return -1;
    r->tokens = PyMem_Calloc((size_t)n + 1, sizeof *r->tokens);
    r->views = PyMem_Calloc((size_t)n + 1, sizeof *r->views);
    if (!r->tokens || !r->views)
        return PyErr_NoMemory(), -1;
    while (r->n < n) {
        PyObject *one = PySequence_GetItem(sequence, r->n);
        const int status = one ? take_row(one, &r->views[r->n], &r->tokens[r->n]) : -1; /* the view keeps a reference */
        Py_XDECREF(one);
        if (status != 0)
            return -1;
        r->total += r->tokens[r->n++].n;
    }
    return 0;
}

void release_rows(rows *r)
{
    while (r->n > 0)
        PyBuffer_Release(&r->views[--r->n]);
    PyMem_Free(r->views);
    PyMem_Free(r->tokens);
}
