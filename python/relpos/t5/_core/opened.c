/* opened.c -- a model from opening to closing. The capsule of a model counts the calls that use it, so that a model
 * that is closed during calls is freed after the last of them. The GIL protects the count.
 * SPDX-License-Identifier: Apache-2.0 */
#include "t5_core.h"

#define MODEL "relpos.t5.model"

static void free_unused(opened *m)
{
    rp_t5 *t5 = m->t5;
    rp_pool *pool = m->pool;
    if (!m->closing || m->users > 0)
        return;
    m->t5 = NULL;
    m->pool = NULL;
    Py_BEGIN_ALLOW_THREADS
    rp_t5_close(t5);
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

/* open(path, type, threads, draft, tokenizer, no_tokenizer): return the capsule of a model. threads = 0: the default
 * pool. */
PyObject *core_open(PyObject *module, PyObject *args)
{
    (void)module;
    rp_t5_opening opening = rp_t5_opening_init();
    const char *path;
    Py_ssize_t length;
    int threads, no_tokenizer;
    if (!PyArg_ParseTuple(args, "yzizz#p", &path, &opening.type, &threads, &opening.draft, &opening.tokenizer, &length,
                          &no_tokenizer))
        return NULL;
    opened *m = PyMem_Calloc(1, sizeof *m);
    PyObject *capsule = m ? PyCapsule_New(m, MODEL, destroy) : PyErr_NoMemory();
    if (!capsule) {
        PyMem_Free(m);
        return NULL;
    }
    opening.no_tokenizer = no_tokenizer;
    rp_status status = RP_OK, of_pool;
    Py_BEGIN_ALLOW_THREADS
    of_pool = threads ? rp_pool_create(&m->pool, threads) : RP_OK;
    opening.pool = m->pool;
    if (of_pool == RP_OK)
        status = rp_t5_open(&m->t5, path, &opening);
    Py_END_ALLOW_THREADS
    char line[256];
    if (of_pool != RP_OK && rp_last_error_in(NULL, NULL, NULL, line, sizeof line))
        raise_line(of_pool, PyExc_ValueError, line);
    if (status != RP_OK)
        raise_error(status, PyExc_ValueError);
    if (of_pool != RP_OK || status != RP_OK)
        Py_CLEAR(capsule);
    return capsule;
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

/* info(model): a dict of all fields of rp_t5_info. */
PyObject *core_info(PyObject *module, PyObject *args)
{
#define INFO(name) FIELD(rp_t5_info, name)
    static const field fields[] = {
        INFO(kind),
        INFO(type),
        INFO(vocab),
        INFO(d_model),
        INFO(d_kv),
        INFO(d_ff),
        INFO(heads),
        INFO(layers),
        INFO(decoder_layers),
        INFO(parameters),
        INFO(bytes),
        INFO(step_bytes),
        INFO(gated),
        INFO(tied),
        INFO(scaled),
        INFO(has_tokenizer),
        INFO(start),
        INFO(eos),
        INFO(pad),
        INFO(activation),
        INFO(attention),
        INFO(experts),
        INFO(not_finite),
        INFO(packed),
        INFO(source),
        INFO(source_checksum),
        INFO(vector_width),
        INFO(vector_tokens),
        INFO(cleans_up),
    };
    (void)module;
    opened *m;
    if (!PyArg_ParseTuple(args, "O&", to_open, &m))
        return NULL;
    return get_fields(fields, sizeof fields / sizeof *fields, rp_t5_about(m->t5));
}

/* notes(model): a list of texts, what was changed or ignored when the model was opened. */
PyObject *core_notes(PyObject *module, PyObject *args)
{
    (void)module;
    opened *m;
    const char *line;
    if (!PyArg_ParseTuple(args, "O&", to_open, &m))
        return NULL;
    PyObject *answer = PyList_New(0);
    for (int64_t n = 0; answer && (line = rp_t5_note(m->t5, n)); n++) {
        PyObject *note = text_of(line, (int64_t)strlen(line));
        if (!note || PyList_Append(answer, note) != 0)
            Py_CLEAR(answer);
        Py_XDECREF(note);
    }
    return answer;
}

/* drafted(model): a dict of the fields of rp_t5_drafted, summed over all successful calls. The model may be closed. */
PyObject *core_drafted(PyObject *module, PyObject *args)
{
    static const field fields[] = {FIELD(rp_t5_drafted, proposed), FIELD(rp_t5_drafted, accepted),
                                   FIELD(rp_t5_drafted, passes)};
    (void)module;
    opened *m;
    if (!PyArg_ParseTuple(args, "O&", to_opened, &m))
        return NULL;
    return get_fields(fields, sizeof fields / sizeof *fields, &m->drafted);
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
    status = rp_t5_pack(m->t5, path);
    Py_END_ALLOW_THREADS
    if (status != RP_OK)
        raise_error(status, PyExc_OSError);
    end_use(m);
    return status == RP_OK ? Py_NewRef(Py_None) : NULL;
}
