/* encoder_module.c -- the extension module relpos.encoder._core: its function table; open a model, its sizes and
 * labels.
 * SPDX-License-Identifier: Apache-2.0 */
#include "encoder_core.h"

const char *last_error(void)
{
    return rp_encoder_last_error();
}

void close_model(void *model)
{
    rp_encoder_close(model);
}

rp_status pack_model(const void *model, const char *path)
{
    return rp_encoder_pack(model, path);
}

const char *model_note(const void *model, int64_t n)
{
    return rp_encoder_note(model, n);
}

/* open(path, type, threads): return the capsule of a model. threads = 0: the default pool. */
static PyObject *core_open(PyObject *module, PyObject *args)
{
    (void)module;
    rp_encoder_opening opening = rp_encoder_opening_init();
    const char *path;
    int threads;
    opened *m;
    if (!PyArg_ParseTuple(args, "yzi", &path, &opening.type, &threads))
        return NULL;
    PyObject *capsule = new_model(&m);
    if (!capsule || make_pool(m, threads) != 0) {
        Py_XDECREF(capsule);
        return NULL;
    }
    opening.pool = m->pool;
    rp_encoder *model = NULL;
    rp_status status;
    Py_BEGIN_ALLOW_THREADS
    status = rp_encoder_open(&model, path, &opening);
    Py_END_ALLOW_THREADS
    m->model = model;
    if (status == RP_OK)
        return capsule;
    raise_error(status, PyExc_ValueError);
    Py_DECREF(capsule);
    return NULL;
}

/* info(model): a dict of all fields of rp_encoder_info. */
static PyObject *core_info(PyObject *module, PyObject *args)
{
#define INFO(name) FIELD(rp_encoder_info, name)
    static const field fields[] = {
        INFO(kind),        INFO(type),         INFO(vocab),         INFO(width),        INFO(heads),
        INFO(inner),       INFO(layers),       INFO(max_tokens),    INFO(parameters),   INFO(bytes),
        INFO(not_finite),  INFO(vector_width), INFO(vector_tokens), INFO(labels),       INFO(has_tokenizer),
        INFO(token_types), INFO(pad),          INFO(packed),        INFO(plain_scores), INFO(why_no_scores),
    };
    (void)module;
    opened *m;
    if (!PyArg_ParseTuple(args, "O&", to_open, &m))
        return NULL;
    return get_fields(fields, sizeof fields / sizeof *fields, rp_encoder_about(m->model));
}

static const char *label(const void *model, int64_t n)
{
    return rp_encoder_label(model, n);
}

/* labels(model): a list of the names of labels. */
static PyObject *core_labels(PyObject *module, PyObject *args)
{
    (void)module;
    return list_of(args, label);
}

static PyMethodDef methods[] = {
    {"open", core_open, METH_VARARGS, "open(path, type, threads)"},
    {"close", core_close, METH_VARARGS, "close(model)"},
    {"info", core_info, METH_VARARGS, "info(model)"},
    {"notes", core_notes, METH_VARARGS, "notes(model)"},
    {"pack", core_pack, METH_VARARGS, "pack(model, path)"},
    {"labels", core_labels, METH_VARARGS, "labels(model)"},
    {"tokenize", core_tokenize, METH_VARARGS, "tokenize(model, text, max_tokens)"},
    {"prompt", core_prompt, METH_VARARGS, "prompt(model, name)"},
    {"embed", core_embed, METH_VARARGS, "embed(model, prompt, texts, out, progress)"},
    {"classify", core_classify, METH_VARARGS, "classify(model, texts, out, progress)"},
    {"rerank", core_rerank, METH_VARARGS, "rerank(model, pairs, out, progress)"},
    {"hidden", core_hidden, METH_VARARGS, "hidden(model, tokens, types, lengths, out, progress)"},
    {"logits", core_logits, METH_VARARGS, "logits(model, tokens, types, lengths, out, progress)"},
    {"vector", core_vector, METH_VARARGS, "vector(model, prompt, hidden, out)"},
    {0},
};

static PyModuleDef_Slot slots[] = {{0, NULL}};

static struct PyModuleDef definition = {
    .m_base = PyModuleDef_HEAD_INIT,
    .m_name = "relpos.encoder._core",
    .m_doc = "The C functions behind the package relpos.encoder. Import relpos.encoder instead.",
    .m_methods = methods,
    .m_slots = slots,
};

PyMODINIT_FUNC PyInit__core(void)
{
    return PyModuleDef_Init(&definition);
}
