/* buffers.c -- arrays of Python, read in place by the buffer protocol, and memory of the library as a bytearray, from
 * which NumPy makes an array without copying.
 * SPDX-License-Identifier: Apache-2.0 */
#include "models.h"

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

/* Copy n elements of `size` bytes to a bytearray. */
PyObject *bytes_of(const void *memory, int64_t n, size_t size)
{
    return PyByteArray_FromStringAndSize(memory, (Py_ssize_t)n * (Py_ssize_t)size);
}
