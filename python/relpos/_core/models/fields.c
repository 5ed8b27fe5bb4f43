/* fields.c -- fields of a struct of the library by name.
 * SPDX-License-Identifier: Apache-2.0 */
#include "models.h"

static PyObject *get_field(const field *f, const void *from)
{
    const void *at = (const char *)from + f->at;
    switch (f->kind) {
    case TEXT:
        if (*(const char *const *)at)
            return PyUnicode_FromString(*(const char *const *)at);
        return Py_NewRef(Py_None);
    case INT32: return PyLong_FromLong(*(const int32_t *)at);
    case INT64: return PyLong_FromLongLong(*(const int64_t *)at);
    case UINT64: return PyLong_FromUnsignedLongLong(*(const uint64_t *)at);
    case DOUBLE: return PyFloat_FromDouble(*(const double *)at);
    default: return Py_NewRef(Py_None);
    }
}

/* Return a dict of the fields, in their order. Tokens are None. */
PyObject *get_fields(const field *fields, size_t n, const void *from)
{
    PyObject *answer = PyDict_New();
    for (size_t x = 0; answer && x < n; x++) {
        PyObject *value = get_field(&fields[x], from);
        if (!value || PyDict_SetItemString(answer, fields[x].name, value) != 0)
            Py_CLEAR(answer);
        Py_XDECREF(value);
    }
    return answer;
}

/* Set a field that is a number. Returns 0, or -1 if the value does not fit it. */
int set_field(const field *f, void *to, PyObject *value)
{
    void *at = (char *)to + f->at;
    if (f->kind == DOUBLE) {
        *(double *)at = PyFloat_AsDouble(value);
    } else if (f->kind == UINT64) {
        *(uint64_t *)at = PyLong_AsUnsignedLongLong(value);
    } else {
        const int64_t n = PyLong_AsLongLong(value);
        if (f->kind == INT64)
            *(int64_t *)at = n;
        else
            *(int32_t *)at = (int32_t)n;
        if (f->kind == INT32 && n != (int32_t)n)
            PyErr_Format(PyExc_OverflowError, "%s is %lld", f->name, (long long)n);
    }
    return PyErr_Occurred() ? -1 : 0;
}
