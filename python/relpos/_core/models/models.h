/* models.h -- types and functions shared by the extension modules of models, relpos.t5._core and relpos.encoder._core.
 *
 *     opened.c   a model from opening to closing, its notes and its packed file
 *     fields.c   fields of a struct of the library by name
 *     buffers.c  buffers of Python; memory of the library -> bytearray
 *     watch.c    calls without the GIL: progress, Ctrl-C; a status of the library -> an exception
 *
 * The modules use the limited API of Python 3.11 and have no state. The packages check arguments, so that errors name
 * them as Python does. The functions check types and sizes, so that wrong arguments cannot damage memory. A model is a
 * capsule. On failure a function sets Python's error and returns NULL or -1; functions that return a PyObject return a
 * new reference.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef RELPOS_PYTHON_MODELS_H
#define RELPOS_PYTHON_MODELS_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <relpos/relpos.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

/* ---------------------------------------------------------------------------------------------- its library */

/* Each module defines these: the last error of its library on this thread, closing a model, writing its packed file,
 * and its note n, or NULL after the last. */
const char *last_error(void);
void close_model(void *model);
rp_status pack_model(const void *model, const char *path);
const char *model_note(const void *model, int64_t n);

/* ---------------------------------------------------------------------------------------------- watch.c */

/* A call of the library that runs without the GIL. */
typedef struct watch {
    PyObject *progress; /* borrowed function of the fraction done; NULL: none */
    bool main;          /* this is the main thread, which handles signals */
    bool raised;        /* a callback or a signal's handler raised an exception */
    double next;        /* time of the next check for signals */
    PyThreadState *thread;
} watch;

void watch_begin(watch *w, PyObject *progress);
int watch_end(watch *w, rp_status status);
int on_progress(void *context, double fraction);
void *raise_line(rp_status status, PyObject *refused, const char *line);
void *raise_error(rp_status status, PyObject *refused);
PyObject *text_of(const char *utf8, int64_t n);

/* ---------------------------------------------------------------------------------------------- buffers.c */

int take_numbers(PyObject *object, bool writable, Py_ssize_t size, int64_t n, Py_buffer *view);
PyObject *bytes_of(const void *memory, int64_t n, size_t size);

/* ---------------------------------------------------------------------------------------------- fields.c */

/* A field of a struct of the library; an enum is INT32, and a struct is OTHER. */
typedef enum kind { TEXT, INT32, INT64, UINT64, DOUBLE, OTHER } kind;
typedef struct field {
    const char *name;
    size_t at;
    kind kind;
} field;

#define KIND_OF(x)                                                                                                     \
    _Generic((x),                                                                                                      \
        const char *: TEXT,                                                                                            \
        int32_t: INT32,                                                                                                \
        unsigned: INT32, /* an enum */                                                                                 \
        int64_t: INT64,                                                                                                \
        uint64_t: UINT64,                                                                                              \
        double: DOUBLE,                                                                                                \
        default: OTHER)
#define FIELD(type, name)                                                                                              \
    {                                                                                                                  \
#name, offsetof(type, name), KIND_OF(((type *)NULL)->name)                                                     \
    }

PyObject *get_fields(const field *fields, size_t n, const void *from);
int set_field(const field *f, void *to, PyObject *value);

/* ---------------------------------------------------------------------------------------------- opened.c */

/* The content of the capsule of a model. */
typedef struct opened {
    void *model; /* of the library; NULL after it is closed */
    rp_pool *pool;
    int64_t users; /* calls in progress, which keep the model open */
    bool closing;
    int64_t sums[3]; /* statistics of the module over all calls */
} opened;

PyObject *new_model(opened **m);
int make_pool(opened *m, int threads);
int to_opened(PyObject *capsule, void *model);
int to_open(PyObject *capsule, void *model);
void use(opened *m);
void end_use(opened *m);
PyObject *list_of(PyObject *args, const char *(*text)(const void *model, int64_t n));
PyObject *core_close(PyObject *module, PyObject *args);
PyObject *core_notes(PyObject *module, PyObject *args);
PyObject *core_pack(PyObject *module, PyObject *args);

#endif
