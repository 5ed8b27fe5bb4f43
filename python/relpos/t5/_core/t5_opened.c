/* t5_opened.c -- open a model; its sizes and statistics.
 * SPDX-License-Identifier: Apache-2.0 */
#include "t5_core.h"

/* open(path, type, threads, draft, tokenizer, no_tokenizer): return the capsule of a model. threads = 0: the default
 * pool. */
PyObject *core_open(PyObject *module, PyObject *args)
{
    (void)module;
    rp_t5_opening opening = rp_t5_opening_init();
    const char *path;
    Py_ssize_t length;
    int threads, no_tokenizer;
    opened *m;
    if (!PyArg_ParseTuple(args, "yzizz#p", &path, &opening.type, &threads, &opening.draft, &opening.tokenizer, &length,
                          &no_tokenizer))
        return NULL;
    PyObject *capsule = new_model(&m);
    if (!capsule || make_pool(m, threads) != 0) {
        Py_XDECREF(capsule);
        return NULL;
    }
    opening.no_tokenizer = no_tokenizer;
    opening.pool = m->pool;
    rp_t5 *model = NULL;
    rp_status status;
    Py_BEGIN_ALLOW_THREADS
    status = rp_t5_open(&model, path, &opening);
    Py_END_ALLOW_THREADS
    m->model = model;
    if (status == RP_OK)
        return capsule;
    raise_error(status, PyExc_ValueError);
    Py_DECREF(capsule);
    return NULL;
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
    return get_fields(fields, sizeof fields / sizeof *fields, rp_t5_about(m->model));
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
    return get_fields(fields, sizeof fields / sizeof *fields, drafted_of(m));
}
