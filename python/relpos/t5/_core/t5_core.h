/* t5_core.h -- types and functions shared by the files of relpos.t5._core. They use only relpos/t5.h.
 *
 *     t5_module.c    the function table
 *     opened.c       open and close a model; its sizes, notes and statistics; pack
 *     text.c         texts -> tokens, tokens -> text
 *     t5_generate.c  settings, and a call of rp_t5_generate                    read this first
 *     t5_encode.c    hidden states, vectors, log-probabilities, inputs of an attention layer
 *     t5_proteins.c  residues -> tokens, their hidden states, FASTA files
 *     fields.c       fields of a struct of relpos/t5.h by name
 *     buffers.c      buffers of Python -> tokens and outputs; memory of the library -> bytearray
 *     watch.c        calls without the GIL: progress, tokens, Ctrl-C; a status of the library -> an exception
 *
 * The module uses the limited API of Python 3.11 and has no state. The package checks arguments, so that errors name
 * them as Python does. The functions check types and sizes, so that wrong arguments cannot damage memory. A model is a
 * capsule. On failure a function sets Python's error and returns NULL or -1; functions that return a PyObject return a
 * new reference.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef RELPOS_PYTHON_T5_CORE_H
#define RELPOS_PYTHON_T5_CORE_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <relpos/t5.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

/* ---------------------------------------------------------------------------------------------- watch.c */

/* A call of the library that runs without the GIL. Set on_token and flag, and call watch_begin. */
typedef struct watch {
    PyObject *progress; /* borrowed function of the fraction done; NULL: none */
    PyObject *on_token; /* borrowed function of source, index and token; it returns True to end the call. NULL: none */
    Py_buffer flag;     /* an int32 that another thread sets to end the call; obj is NULL: none */
    bool main;          /* this is the main thread, which handles signals */
    bool raised;        /* a callback or a signal's handler raised an exception */
    double next;        /* time of the next check for signals */
    PyThreadState *thread;
} watch;

void watch_begin(watch *w, PyObject *progress);
int watch_end(watch *w, rp_status status);
int on_progress(void *context, double fraction);
int on_token(void *context, int64_t source, int32_t index, int32_t token);
int is_cancelled(void *context);
void *raise_line(rp_status status, PyObject *refused, const char *line);
void *raise_error(rp_status status, PyObject *refused);
PyObject *text_of(const char *utf8, int64_t n);

/* ---------------------------------------------------------------------------------------------- buffers.c */

/* Sequences of tokens, which refer to buffers of Python. */
typedef struct rows {
    Py_ssize_t n;
    rp_t5_tokens *tokens;
    Py_buffer *views;
    int64_t total; /* tokens of all rows */
} rows;

int take_row(PyObject *object, Py_buffer *view, rp_t5_tokens *row);
int take_rows(PyObject *sequence, rows *r);
void release_rows(rows *r);
int take_numbers(PyObject *object, bool writable, Py_ssize_t size, int64_t n, Py_buffer *view);
PyObject *bytes_of(const void *memory, int64_t n, size_t size);

/* ---------------------------------------------------------------------------------------------- fields.c */

/* A field of a struct of relpos/t5.h. */
typedef enum kind { TEXT, INT32, INT64, UINT64, DOUBLE, TOKENS } kind;
typedef struct field {
    const char *name;
    size_t at;
    kind kind;
} field;

#define KIND_OF(x)                                                                                                     \
    _Generic((x),                                                                                                      \
        const char *: TEXT,                                                                                            \
        int32_t: INT32,                                                                                                \
        rp_t5_stopping: INT32,                                                                                         \
        int64_t: INT64,                                                                                                \
        uint64_t: UINT64,                                                                                              \
        double: DOUBLE,                                                                                                \
        rp_t5_tokens: TOKENS)
#define FIELD(type, name)                                                                                              \
    {                                                                                                                  \
#name, offsetof(type, name), KIND_OF(((type *)NULL)->name)                                                     \
    }

PyObject *get_fields(const field *fields, size_t n, const void *from);
int set_field(const field *f, void *to, PyObject *value);

/* ---------------------------------------------------------------------------------------------- opened.c */

/* The content of the capsule of a model. */
typedef struct opened {
    rp_t5 *t5; /* NULL after it is closed */
    rp_pool *pool;
    int64_t users; /* calls in progress, which keep the model open */
    bool closing;
    rp_t5_drafted drafted; /* sums over all successful calls */
} opened;

int to_opened(PyObject *capsule, void *model);
int to_open(PyObject *capsule, void *model);
void use(opened *m);
void end_use(opened *m);
PyObject *core_open(PyObject *module, PyObject *args);
PyObject *core_close(PyObject *module, PyObject *args);
PyObject *core_info(PyObject *module, PyObject *args);
PyObject *core_notes(PyObject *module, PyObject *args);
PyObject *core_drafted(PyObject *module, PyObject *args);
PyObject *core_pack(PyObject *module, PyObject *args);

/* ---------------------------------------------------------------------------------------------- text.c */

PyObject *core_tokenize(PyObject *module, PyObject *args);
PyObject *core_detokenize(PyObject *module, PyObject *args);
PyObject *core_prompt(PyObject *module, PyObject *args);

/* ---------------------------------------------------------------------------------------------- t5_generate.c */

PyObject *core_settings(PyObject *module, PyObject *args);
PyObject *core_generate(PyObject *module, PyObject *args);

/* ---------------------------------------------------------------------------------------------- t5_encode.c */

PyObject *core_encode(PyObject *module, PyObject *args);
PyObject *core_vector(PyObject *module, PyObject *args);
PyObject *core_score(PyObject *module, PyObject *args);
PyObject *core_attention(PyObject *module, PyObject *args);

/* ---------------------------------------------------------------------------------------------- t5_proteins.c */

PyObject *core_residues(PyObject *module, PyObject *args);
PyObject *core_encode_residues(PyObject *module, PyObject *args);
PyObject *core_fasta(PyObject *module, PyObject *args);
PyObject *core_fasta_next(PyObject *module, PyObject *args);
PyObject *core_fasta_skip(PyObject *module, PyObject *args);

#endif
