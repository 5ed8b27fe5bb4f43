/* buffers.c -- arrays of Python, read in place by the buffer protocol, and memory of the library as a bytearray, from
 * which NumPy makes an array without copying.
 * SPDX-License-Identifier: Apache-2.0 */
#include "t5_core.h"

/* Get a contiguous buffer with elements of `size` bytes; n is their number, or -1 for any. Returns 0 or -1. */
int take_numbers(PyObject *object, bool writable, Py_ssize_t size, int64_t n, Py_buffer *view)
{
    if (PyObject_GetBuffer(object, view, PyBUF_ND | PyBUF_C_CONTIGUOUS | (writable ? PyBUF_WRITABLE : 0)) != 0)
        return -1;
    if (view->itemsize == size && (n < 0 || view->len == n * size))
        return 0;
    char needed[32] = "any number";
    if (n >= 0)
        snprintf(needed, sizeof needed, "%lld", (long long)n);
    PyErr_Format(PyExc_TypeError, "an array has %zd bytes in elements of %zd; the call needs %s of %zd", view->len,
                 view->itemsize, needed, size);
    PyBuffer_Release(view);
    return -1;
}

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

/* Copy n elements of `size` bytes to a bytearray. */
PyObject *bytes_of(const void *memory, int64_t n, size_t size)
{
    return PyByteArray_FromStringAndSize(memory, (Py_ssize_t)n * (Py_ssize_t)size);
}
