/* opened.c -- a model from opening to closing. The capsule of a model counts the calls that use it, so that a model
 * that is closed during calls is freed after the last of them. The GIL protects the count.
 * SPDX-License-Identifier: Apache-2.0 */
#include "models.h"

#define MODEL "relpos.model"

static void free_unused(opened *m)
{
    void *model = m->model;
    rp_pool *pool = m->pool;
    if (!m->closing || m->users > 0)
        return;
    m->model = NULL;
    m->pool = NULL;
    Py_BEGIN_ALLOW_THREADS
    close_model(model);
    rp_pool_destroy(pool);
    Py_END_ALLOW_THREADS
}

static void destroy(PyObject *capsule)
{
    opened *m = PyCapsule_GetPointer(capsule, MODEL);
    m->closing = true;
    free_unused(m); /* each call keeps a reference to the capsule */
    PyMem_Free(m);
}

/* Convert a capsule to its model, which may be closed. A converter of PyArg_ParseTuple. */
int to_opened(PyObject *capsule, void *model)
{
    return (*(opened **)model = PyCapsule_GetPointer(capsule, MODEL)) != NULL;
}

/* Like to_opened, but a closed model is an error. */
int to_open(PyObject *capsule, void *model)
{
    if (!to_opened(capsule, model))
        return 0;
    if ((*(opened **)model)->closing)
        PyErr_SetString(PyExc_ValueError, "the model is closed (open it again)");
    return !(*(opened **)model)->closing;
}

/* Keep the model open until end_use. */
void use(opened *m)
{
    m->users++;
}

void end_use(opened *m)
{
    m->users--;
    free_unused(m);
}

/* Return the capsule of a model that is not open yet, and *m. */
PyObject *new_model(opened **m)
{
    *m = PyMem_Calloc(1, sizeof **m);
    PyObject *capsule = *m ? PyCapsule_New(*m, MODEL, destroy) : PyErr_NoMemory();
    if (!capsule)
        PyMem_Free(*m);
    return capsule;
}

/* Create the thread pool of a model; threads = 0: the default pool. Returns 0, or -1 with an error set. */
int make_pool(opened *m, int threads)
{
    char line[256];
    const rp_status status = threads ? rp_pool_create(&m->pool, threads) : RP_OK;
    if (status != RP_OK && rp_last_error_in(NULL, NULL, NULL, line, sizeof line))
        raise_line(status, PyExc_ValueError, line);
    return status == RP_OK ? 0 : -1;
}

/* close(model): free it after the calls in other threads. */
PyObject *core_close(PyObject *module, PyObject *args)
{
    (void)module;
    opened *m;
    if (!PyArg_ParseTuple(args, "O&", to_opened, &m))
        return NULL;
    m->closing = true;
    free_unused(m);
    Py_RETURN_NONE;
}

/* Return a list of the texts 0, 1, … of the model in `args`. */
PyObject *list_of(PyObject *args, const char *(*text)(const void *model, int64_t n))
{
    opened *m;
    const char *line;
    if (!PyArg_ParseTuple(args, "O&", to_open, &m))
        return NULL;
    PyObject *answer = PyList_New(0);
    for (int64_t n = 0; answer && (line = text(m->model, n)); n++) {
        PyObject *item = text_of(line, (int64_t)strlen(line));
        if (!item || PyList_Append(answer, item) != 0)
            Py_CLEAR(answer);
        Py_XDECREF(item);
    }
    return answer;
}

/* notes(model): a list of texts, what was changed or ignored when the model was opened. */
PyObject *core_notes(PyObject *module, PyObject *args)
{
    (void)module;
    return list_of(args, model_note);
}

/* pack(model, path): write the packed file. */
PyObject *core_pack(PyObject *module, PyObject *args)
{
    (void)module;
    opened *m;
    const char *path;
    rp_status status;
    if (!PyArg_ParseTuple(args, "O&y", to_open, &m, &path))
        return NULL;
    use(m);
    Py_BEGIN_ALLOW_THREADS
    status = pack_model(m->model, path);
    Py_END_ALLOW_THREADS
    if (status != RP_OK)
        raise_error(status, PyExc_OSError);
    end_use(m);
    return status == RP_OK ? Py_NewRef(Py_None) : NULL;
}
