/* t5_proteins.c -- residues of proteins to tokens, their hidden states, and FASTA files.
 * SPDX-License-Identifier: Apache-2.0 */
#include "t5_core.h"

#define PROTEINS "relpos.t5.proteins"
#define FASTA    "relpos.t5.fasta"

typedef struct batch {
    Py_ssize_t n;
    rp_t5_protein protein[];
} batch;

static void free_batch(PyObject *capsule)
{
    batch *b = PyCapsule_GetPointer(capsule, PROTEINS);
    for (Py_ssize_t n = 0; n < b->n; n++)
        rp_t5_free(b->protein[n].tokens);
    PyMem_Free(b);
}

/* residues(model, family, texts): convert a list of bytes to tokens. Return a capsule for encode_residues and a list of
 * the numbers (residues, replaced) of each protein. family = None: that of the model. */
PyObject *core_residues(PyObject *module, PyObject *args)
{
    (void)module;
    opened *m;
    const char *family;
    PyObject *texts;
    if (!PyArg_ParseTuple(args, "O&zO!", to_open, &m, &family, &PyList_Type, &texts))
        return NULL;
    const Py_ssize_t n = PyList_Size(texts);
    batch *b = PyMem_Calloc(1, sizeof *b + (size_t)n * sizeof *b->protein);
    PyObject *capsule = b ? PyCapsule_New(b, PROTEINS, free_batch) : PyErr_NoMemory(), *counts = PyList_New(n);
    if (!capsule)
        PyMem_Free(b);
    bool ok = capsule && counts;
    while (ok && b->n < n) {
        char *text;
        Py_ssize_t bytes;
        rp_t5_protein *to = &b->protein[b->n];
        ok = PyBytes_AsStringAndSize(PyList_GetItem(texts, b->n), &text, &bytes) == 0;
        const rp_status status = ok ? rp_t5_residues(m->model, family, text, bytes, to) : RP_OK;
        if (status != RP_OK)
            ok = raise_error(status, PyExc_ValueError);
        PyObject *pair = ok ? Py_BuildValue("(LL)", (long long)to->residues, (long long)to->replaced) : NULL;
        if (ok)
            ok = PyList_SetItem(counts, b->n++, pair) == 0 && pair;
    }
    PyObject *answer = ok ? PyTuple_Pack(2, capsule, counts) : NULL;
    Py_XDECREF(capsule);
    Py_XDECREF(counts);
    return answer;
}

/* encode_residues(model, proteins, out, progress): write the hidden states of residues() to out, float32. */
PyObject *core_encode_residues(PyObject *module, PyObject *args)
{
    (void)module;
    opened *m;
    PyObject *capsule, *out, *progress;
    watch w = {0};
    Py_buffer view;
    int64_t total = 0;
    if (!PyArg_ParseTuple(args, "O&OOO", to_open, &m, &capsule, &out, &progress))
        return NULL;
    const batch *b = PyCapsule_GetPointer(capsule, PROTEINS);
    for (Py_ssize_t n = 0; b && n < b->n; n++)
        total += b->protein[n].residues;
    if (!b || take_numbers(out, true, sizeof(float), total * rp_t5_about(m->model)->d_model, &view) != 0)
        return NULL;
    use(m);
    watch_begin(&w, progress);
    const rp_status status = rp_t5_encode_residues(m->model, b->n, b->protein, view.buf, on_progress, &w);
    const bool ok = watch_end(&w, status) == 0;
    PyBuffer_Release(&view);
    end_use(m);
    return ok ? Py_NewRef(Py_None) : NULL;
}

static void close_fasta(PyObject *capsule)
{
    rp_t5_fasta_close(PyCapsule_GetPointer(capsule, FASTA));
}

/* Convert a capsule to its FASTA file. A converter of PyArg_ParseTuple. */
static int to_fasta(PyObject *capsule, void *file)
{
    return (*(rp_t5_fasta **)file = PyCapsule_GetPointer(capsule, FASTA)) != NULL;
}

/* fasta(path): open a FASTA file. It is closed with the last reference to the capsule. */
PyObject *core_fasta(PyObject *module, PyObject *args)
{
    (void)module;
    const char *path;
    rp_t5_fasta *file;
    rp_status status;
    if (!PyArg_ParseTuple(args, "y", &path))
        return NULL;
    Py_BEGIN_ALLOW_THREADS
    status = rp_t5_fasta_open(&file, path);
    Py_END_ALLOW_THREADS
    if (status != RP_OK)
        return raise_error(status, PyExc_OSError);
    PyObject *capsule = PyCapsule_New(file, FASTA, close_fasta);
    if (!capsule)
        rp_t5_fasta_close(file);
    return capsule;
}

/* fasta_next(file): return (line, header, residues), the last two as bytes, or None at the end. */
PyObject *core_fasta_next(PyObject *module, PyObject *args)
{
    (void)module;
    rp_t5_fasta *file;
    rp_t5_record record;
    rp_status status;
    if (!PyArg_ParseTuple(args, "O&", to_fasta, &file))
        return NULL;
    Py_BEGIN_ALLOW_THREADS
    status = rp_t5_fasta_next(file, 1, INT32_MAX - 2, &record);
    Py_END_ALLOW_THREADS
    if (status != RP_OK)
        return raise_error(status, PyExc_ValueError);
    if (!record.header)
        Py_RETURN_NONE;
    return Py_BuildValue("(Lyy#)", (long long)record.line, record.header, record.residues, (Py_ssize_t)record.n);
}

/* fasta_skip(file): after an error of fasta_next, return (line, header) of the refused record; the next call of
 * fasta_next reads the record after it. Return None if the file cannot be read further. */
PyObject *core_fasta_skip(PyObject *module, PyObject *args)
{
    (void)module;
    rp_t5_fasta *file;
    rp_t5_record record;
    rp_status status;
    if (!PyArg_ParseTuple(args, "O&", to_fasta, &file))
        return NULL;
    Py_BEGIN_ALLOW_THREADS
    status = rp_t5_fasta_skip(file, &record);
    Py_END_ALLOW_THREADS
    if (status != RP_OK)
        Py_RETURN_NONE;
    return Py_BuildValue("(Ly)", (long long)record.line, record.header);
}
